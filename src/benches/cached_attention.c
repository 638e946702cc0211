/* cached_attention.c: parameters, numbers and verification of attention with a cache. */
#include "cached_attention.h"

#include <stdlib.h>
#include <string.h>

#include "attention_reference.h"
#include "benches.h"

/* ---- Parameters -------------------------------------------------------------------------- */

enum { VALIDATION, HEADLINE };

const char *const attention_scale_names[] = {"validation", "headline", NULL};
const char *const attention_dtype_names[] = {"bf16", "f16", "f32", NULL};
const char *const attention_yes_names[] = {"no", "yes", NULL};

uint32_t attention_param(const kb_bench *bench, const char *name, uint32_t validation,
                         uint32_t headline)
{
    int64_t value = kb_bench_param(bench, name);
    bool is_headline = kb_bench_param(bench, "scale") == HEADLINE;
    return value > 0 ? (uint32_t)value : is_headline ? headline : validation;
}

kb_kv_cache_spec attention_cache_spec(const kb_bench *bench)
{
    static const kb_dtype dtypes[] = {KB_BF16, KB_F16, KB_F32};
    kb_kv_cache_spec spec = {.heads = attention_param(bench, "heads", 16, 64),
                             .kv_heads = attention_param(bench, "kv_heads", 2, 8),
                             .head_dim = attention_param(bench, "head_dim", 64, 128),
                             .dtype = dtypes[kb_bench_param(bench, "dtype")],
                             .split = (uint32_t)kb_bench_param(bench, "split"),
                             .rope = {.style = KB_ROPE_HALF_SPLIT, .base = 500000},
                             .access = KB_UNTIMED};
    if (spec.head_dim % 2 != 0)
        spec.rope.style = KB_ROPE_NONE; /* it rotates pairs */
    return spec;
}

/* ---- A run ------------------------------------------------------------------------------- */

kb_error *attention_begin(attention_run *run, kb_bench *bench, const kb_kv_cache_spec *spec,
                          uint32_t prompt)
{
    *run = (attention_run){.bench = bench,
                           .spec = *spec,
                           .prompt = prompt,
                           .window = (uint32_t)kb_bench_param(bench, "window"),
                           .seed = (uint64_t)kb_bench_param(bench, "seed")};
    KB_TRY(kb_ahbm_set_device(kb_bench_context(bench), kb_bench_device(bench, 0)));
    run->cached = malloc(spec->batch * sizeof *run->cached);
    run->added = malloc(spec->batch * sizeof *run->added);
    return run->cached && run->added ? NULL : reference_no_memory();
}

void attention_end(attention_run *run)
{
    free(run->cached);
    free(run->added);
    free(run->rows);
    free(run->keys);
    free(run->values);
}

size_t attention_q_columns(const kb_kv_cache_spec *spec)
{
    return (size_t)spec->heads * spec->head_dim;
}

size_t attention_qkv_columns(const kb_kv_cache_spec *spec)
{
    return ((size_t)spec->heads + 2 * (size_t)spec->kv_heads) * spec->head_dim;
}

kb_error *attention_make_rows(const attention_run *run, const char *name, const kb_policy *policy,
                              size_t columns, kb_tensor *tensor)
{
    const kb_kv_cache_spec *s = &run->spec;
    const kb_tensor_spec spec = {.name = name,
                                 .dtype = s->dtype,
                                 .shape = KB_SHAPE((uint64_t)s->batch * run->prompt, columns),
                                 .policy = policy,
                                 .access = KB_UNTIMED};
    return kb_empty(kb_bench_context(run->bench), &spec, tensor);
}

kb_error *attention_fill(attention_run *run)
{
    const kb_kv_cache_spec *s = &run->spec;
    kb_context *ctx = kb_bench_context(run->bench);
    size_t rows = (size_t)s->batch * run->prompt * attention_qkv_columns(s);
    size_t count = (size_t)s->batch * s->kv_heads * s->capacity * s->head_dim;
    run->keys = reference_numbers(s->dtype, run->seed + 1, count);
    run->values = reference_numbers(s->dtype, run->seed + 2, count);
    run->rows = reference_numbers(s->dtype, run->seed + 3, rows);
    if (!run->keys || !run->values || !run->rows)
        return reference_no_memory();
    KB_TRY(reference_set_tensor(ctx, run->qkv, s->dtype, run->rows, rows));
    return reference_fill_cache(ctx, run->cache, s, run->cached, run->keys, run->values);
}

kb_error *attention_wait(kb_context *ctx, kb_request request, kb_launch_result *result)
{
    size_t count;
    KB_TRY(kb_request_wait(ctx, request, NULL));
    KB_TRY(kb_launch_results(ctx, request, result, 1, &count));
    return kb_request_free(ctx, request);
}

/* ---- Verification ------------------------------------------------------------------------ */

/* Buffers of a verification. */
typedef struct scratch {
    float *found; /* (rows, heads * dim) */
    void *stored;
    double *q, *weights, *o;
} scratch;

/* Appends keys and values of the new tokens, as they are cached. */
static void append_head(const attention_run *run, uint32_t b, uint32_t kv_head, double *rotated)
{
    const kb_kv_cache_spec *s = &run->spec;
    uint32_t dim = s->head_dim;
    for (uint32_t token = 0; token < run->added[b]; token++) {
        size_t row = (size_t)b * run->prompt + token;
        const float *key =
            run->rows + row * attention_qkv_columns(s) + (size_t)(s->heads + kv_head) * dim;
        uint32_t position = run->cached[b] + token;
        size_t at = (size_t)position * dim;
        float *value = reference_head(s, run->values, b, kv_head) + at;
        reference_append_key(s, position, key, reference_head(s, run->keys, b, kv_head) + at,
                             rotated);
        memcpy(value, key + (size_t)s->kv_heads * dim, dim * sizeof *value);
    }
}

static kb_error *compare_head(const attention_run *run, uint32_t b, uint32_t head, const scratch *w)
{
    const kb_kv_cache_spec *s = &run->spec;
    uint32_t dim = s->head_dim, kv_head = head / (s->heads / s->kv_heads);
    const float *k = reference_head(s, run->keys, b, kv_head);
    const float *v = reference_head(s, run->values, b, kv_head);
    for (uint32_t token = 0; token < run->prompt; token++) {
        size_t row = (size_t)b * run->prompt + token, column = (size_t)head * dim;
        uint32_t end = run->cached[b] + token + 1;
        uint32_t first = run->window > 0 && end > run->window ? end - run->window : 0;
        if (token < run->added[b]) {
            reference_rotate(s, end - 1, run->rows + row * attention_qkv_columns(s) + column, w->q);
            reference_attend(w->q, k, v, first, end, dim, w->weights, w->o);
        } else {
            memset(w->o, 0, dim * sizeof *w->o);
        }
        const float *found = w->found + row * attention_q_columns(s) + column;
        KB_TRY(reference_compare(s, b, token, head, found, w->o));
    }
    return NULL;
}

static kb_error *compare_all(const attention_run *run, size_t count, const scratch *w)
{
    const kb_kv_cache_spec *s = &run->spec;
    KB_TRY(kb_tensor_to_host(kb_bench_context(run->bench), run->out, KB_UNTIMED, w->stored,
                             count * kb_dtype_bytes(s->dtype)));
    kb_convert(KB_F32, w->found, s->dtype, w->stored, count);
    for (uint32_t b = 0; b < s->batch; b++) {
        for (uint32_t head = 0; head < s->kv_heads; head++)
            append_head(run, b, head, w->q);
        for (uint32_t head = 0; head < s->heads; head++)
            KB_TRY(compare_head(run, b, head, w));
    }
    kb_bench_confirm(run->bench);
    return NULL;
}

kb_error *attention_verify(const attention_run *run)
{
    const kb_kv_cache_spec *s = &run->spec;
    size_t count = (size_t)s->batch * run->prompt * attention_q_columns(s);
    scratch w = {.found = malloc(count * sizeof *w.found),
                 .stored = malloc(count * kb_dtype_bytes(s->dtype)),
                 .q = malloc(s->head_dim * sizeof *w.q),
                 .weights = malloc(s->capacity * sizeof *w.weights),
                 .o = malloc(s->head_dim * sizeof *w.o)};
    bool has_all = w.found && w.stored && w.q && w.weights && w.o;
    kb_error *err = has_all ? compare_all(run, count, &w) : reference_no_memory();
    free(w.found);
    free(w.stored);
    free(w.q);
    free(w.weights);
    free(w.o);
    return err;
}
