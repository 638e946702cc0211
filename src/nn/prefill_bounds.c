/* prefill_bounds.c: the least time of prefill attention, for each of the units that it needs. */
#include "prefill.h"

#include "cache_layout.h"

/* The matrix engine makes the sum. */
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

/* Keys that the added tokens of a sequence see, all together. */
static double count_keys(int64_t cached, int64_t added, int64_t window)
{
    double first = (double)cached, last = (double)(cached + added);
    double all = sum_to(last) - sum_to(first);
    if (window == 0 || cached + added <= window)
        return all;
    double from = (double)(cached > window ? cached : window), beyond = last - from;
    return sum_to(from) - sum_to(first) + beyond * (double)window;
}

static kb_time to_time(double ns)
{
    return (kb_time)(ns * (double)KB_NS);
}

kb_error *kb_attention_prefill_bounds(kb_context *ctx, kb_kv_cache handle, uint32_t window,
                                      kb_attention_bounds *bounds)
{
    nn_cache *cache;
    *bounds = (kb_attention_bounds){0};
    KB_TRY(nn_find_cache(ctx, "kb_attention_prefill_bounds", handle, &cache));
    const nn_cache_layout *is = &cache->is;
    const tp_pe_params pe = tp_get_pe_params(ctx);
    double pes = (double)is->pes, dim = (double)is->head_dim, scores = 0, keys = 0, tokens = 0;
    for (int64_t b = 0; b < is->batch; b++) {
        const int32_t *record = &cache->record_values[b * NN_RECORD];
        int64_t cached = record[NN_CACHED], added = record[NN_ADDED];
        int64_t unseen = window > 0 && cached >= window ? cached + 1 - window : 0;
        scores += (double)is->heads * count_keys(cached, added, window);
        keys += added > 0 ? (double)(cached + added - unseen) : 0;
        tokens += (double)added;
    }
    double bytes = (double)kb_dtype_bytes(is->dtype);
    double products = 2 * scores * dim / (double)(pe.array_rows * pe.array_columns);
    double moved = 2 * tokens * (double)is->heads * dim * bytes; /* queries and results */
    bounds->cache_bytes = (uint64_t)(keys * 2 * (double)is->kv_heads * dim * bytes);
    bounds->hbm = to_time(((double)bounds->cache_bytes + moved) / pe.hbm_bytes_per_ns / pes);
    bounds->exponentials = to_time(scores * nn_exp_cycles(ctx) / pe.vector_per_ns / pes);
    bounds->vector = to_time(scores * nn_prefill_cycles(ctx) / pe.vector_per_ns / pes);
    bounds->matrix = to_time(products * pe.cycle_ns / pes);
    return NULL;
}
