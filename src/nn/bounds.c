/* bounds.c: the minimum time of attention, for each hardware unit that it needs. */
#include "cache_layout.h"
#include "prefill.h"

static kb_time to_time(double ns)
{
    double time = ns * (double)KB_NS;
    return time < (double)KB_FOREVER ? (kb_time)time : KB_FOREVER;
}

/* The work of a call, summed over all PEs. */
typedef struct work {
    double keys;   /* read, of each kv head; as many values */
    double scores; /* of all query heads */
    double cycles; /* of the vector engine for each score */
    double bytes;  /* read and written besides keys and values */
} work;

static kb_attention_bounds bound(kb_context *ctx, const nn_cache_layout *layout, const work *w)
{
    const tp_pe_params pe = tp_get_pe_params(ctx);
    double pes = (double)layout->pes, dim = (double)layout->head_dim;
    double products = 2 * w->scores * dim / (double)(pe.array_rows * pe.array_columns);
    double cache_bytes =
        w->keys * 2 * (double)layout->kv_heads * dim * (double)kb_dtype_bytes(layout->dtype);
    return (kb_attention_bounds){
        .cache_bytes = (uint64_t)cache_bytes,
        .hbm = to_time((cache_bytes + w->bytes) / pe.hbm_bytes_per_ns / pes),
        .vector = to_time(w->scores * w->cycles / pe.vector_per_ns / pes),
        .exponentials = to_time(w->scores * nn_exp_cycles(ctx) / pe.vector_per_ns / pes),
        .matrix = to_time(products * pe.cycle_ns / pes),
    };
}

/* ---- Decode ---- */

kb_error *kb_attention_decode_bounds(kb_context *ctx, kb_kv_cache handle, uint32_t window,
                                     kb_attention_bounds *bounds)
{
    nn_cache *cache;
    work w = {.cycles = nn_score_cycles(ctx)};
    *bounds = (kb_attention_bounds){0};
    KB_TRY(nn_find_cache(ctx, "kb_attention_decode_bounds", handle, &cache));
    for (int64_t b = 0; b < cache->layout.batch; b++) {
        const int32_t *record = &cache->record_values[b * NN_RECORD];
        int64_t keys = record[NN_ADDED] > 0 ? record[NN_CACHED] + 1 : 0;
        keys = window > 0 ? kb_min(keys, window) : keys;
        w.scores += (double)(keys * cache->layout.heads);
        w.keys += (double)kb_max(keys - 1, 0); /* the new one is not read */
    }
    *bounds = bound(ctx, &cache->layout, &w);
    return NULL;
}

/* ---- Prefill ---- */

/* Without the sum, which the matrix engine computes. */
double nn_prefill_cycles(const kb_context *ctx)
{
    double moves = nn_score_cycles(ctx) - nn_exp_cycles(ctx);
    return nn_exp_cycles(ctx) + moves * 2 / 3;
}

/* The sum of the numbers from 1 to n. */
static double sum_to(double n)
{
    return n * (n + 1) / 2;
}

/* The keys seen by the added tokens of a sequence, summed over these tokens. */
static double count_keys(int64_t cached, int64_t added, int64_t window)
{
    double first = (double)cached, last = (double)(cached + added);
    double all = sum_to(last) - sum_to(first);
    if (window == 0 || cached + added <= window)
        return all;
    double from = (double)kb_max(cached, window), beyond = last - from;
    return sum_to(from) - sum_to(first) + beyond * (double)window;
}

kb_error *kb_attention_prefill_bounds(kb_context *ctx, kb_kv_cache handle, uint32_t window,
                                      kb_attention_bounds *bounds)
{
    nn_cache *cache;
    work w = {.cycles = nn_prefill_cycles(ctx)};
    *bounds = (kb_attention_bounds){0};
    KB_TRY(nn_find_cache(ctx, "kb_attention_prefill_bounds", handle, &cache));
    const nn_cache_layout *layout = &cache->layout;
    double bytes_of_row =
        (double)(layout->heads * layout->head_dim) * (double)kb_dtype_bytes(layout->dtype);
    for (int64_t b = 0; b < layout->batch; b++) {
        const int32_t *record = &cache->record_values[b * NN_RECORD];
        int64_t cached = record[NN_CACHED], added = record[NN_ADDED];
        int64_t unseen = window > 0 ? kb_max(cached + 1 - window, 0) : 0;
        w.scores += (double)layout->heads * count_keys(cached, added, window);
        w.keys += added > 0 ? (double)(cached + added - unseen) : 0;
        w.bytes += 2 * (double)added * bytes_of_row; /* queries and results */
    }
    *bounds = bound(ctx, layout, &w);
    return NULL;
}
