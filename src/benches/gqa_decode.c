/*
 * gqa_decode.c: a step of decode attention on all PEs of a SIP: one new token for each sequence of
 * a batch, over a cache of keys and values.
 *
 * Small caches have data and are verified; large ones are timing-only unless they are to be
 * verified.
 */
#include <kernbench/attention.h>
#include <kernbench/kernbench.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attention_reference.h"
#include "benches.h"

enum { VALIDATION, HEADLINE };
enum { CONTIGUOUS, PAGED, SHUFFLED };

typedef struct step {
    kb_bench *bench;
    kb_kv_cache_spec spec;
    uint32_t window;
    uint64_t seed;
    uint32_t *cached, *added, *expected;
    kb_kv_cache cache;
    kb_tensor qkv, out;
    float *keys, *values; /* (sequence, kv head, token, dim); NULL without data */
    float *rows;          /* of qkv */
    kb_launch_result launch;
} step;

/* ---- Shapes ------------------------------------------------------------------------------ */

/* A parameter, or what it is by default. */
static uint32_t value_or(const kb_bench *bench, const char *name, uint32_t validation,
                         uint32_t headline)
{
    int64_t value = kb_bench_param(bench, name);
    bool is_headline = kb_bench_param(bench, "scale") == HEADLINE;
    return value > 0 ? (uint32_t)value : is_headline ? headline : validation;
}

static kb_dtype dtype_of(const kb_bench *bench)
{
    static const kb_dtype dtypes[] = {KB_BF16, KB_F16, KB_F32};
    return dtypes[kb_bench_param(bench, "dtype")];
}

static kb_kv_cache_spec spec_of(const kb_bench *bench)
{
    int64_t layout = kb_bench_param(bench, "layout");
    kb_kv_cache_spec spec = {.batch = value_or(bench, "batch", 4, 32),
                             .capacity = value_or(bench, "context", 256, 4096),
                             .heads = value_or(bench, "heads", 16, 64),
                             .kv_heads = value_or(bench, "kv_heads", 2, 8),
                             .head_dim = value_or(bench, "head_dim", 64, 128),
                             .dtype = dtype_of(bench),
                             .split = (uint32_t)kb_bench_param(bench, "split"),
                             .rope = {.style = KB_ROPE_HALF_SPLIT, .base = 500000},
                             .door = KB_BACKDOOR};
    if (layout != CONTIGUOUS)
        spec.page_tokens = value_or(bench, "page_tokens", KB_PAGE_TOKENS, KB_PAGE_TOKENS);
    if (layout == SHUFFLED)
        spec.page_seed = (uint64_t)kb_bench_param(bench, "seed") + 1;
    if (spec.head_dim % 2 != 0)
        spec.rope.style = KB_ROPE_NONE; /* it rotates pairs */
    return spec;
}

/* Lengths with the new token: all of the context, or random ones. */
static kb_error *make_lengths(step *is)
{
    bool is_ragged = kb_bench_param(is->bench, "ragged") == 1;
    uint32_t batch = is->spec.batch;
    is->cached = malloc(batch * sizeof *is->cached);
    is->added = malloc(batch * sizeof *is->added);
    is->expected = malloc(batch * sizeof *is->expected);
    if (!is->cached || !is->added || !is->expected)
        return reference_no_memory();
    for (uint32_t b = 0; b < batch; b++) {
        is->cached[b] = is_ragged ? (uint32_t)reference_random_below(is->seed, b, is->spec.capacity)
                                  : is->spec.capacity - 1;
        is->added[b] = 1;
        is->expected[b] = is->cached[b] + 1;
    }
    is->spec.expected = is->expected;
    return NULL;
}

/* ---- Numbers ----------------------------------------------------------------------------- */

static size_t qkv_columns(const kb_kv_cache_spec *s)
{
    return ((size_t)s->heads + 2 * (size_t)s->kv_heads) * s->head_dim;
}

static kb_error *fill(step *is)
{
    const kb_kv_cache_spec *s = &is->spec;
    kb_context *ctx = kb_bench_context(is->bench);
    size_t row_count = s->batch * qkv_columns(s);
    size_t count = (size_t)s->batch * s->kv_heads * s->capacity * s->head_dim;
    is->keys = reference_numbers(s->dtype, is->seed + 1, count);
    is->values = reference_numbers(s->dtype, is->seed + 2, count);
    is->rows = reference_numbers(s->dtype, is->seed + 3, row_count);
    if (!is->keys || !is->values || !is->rows)
        return reference_no_memory();
    KB_TRY(reference_set_tensor(ctx, is->qkv, s->dtype, is->rows, row_count));
    return reference_fill_cache(ctx, is->cache, s, is->cached, is->keys, is->values);
}

/* ---- Reference --------------------------------------------------------------------------- */

/* Buffers for one head. */
typedef struct scratch {
    double *q, *weights, *o;
} scratch;

static kb_error *compare_heads(step *is, uint32_t b, uint32_t kv_head, const float *found,
                               const scratch *w)
{
    const kb_kv_cache_spec *s = &is->spec;
    uint32_t dim = s->head_dim, group = s->heads / s->kv_heads, position = is->cached[b];
    uint32_t first = is->window > 0 && position >= is->window ? position + 1 - is->window : 0;
    const float *row = is->rows + b * qkv_columns(s);
    const float *new_key = row + (size_t)(s->heads + kv_head) * dim;
    float *k = reference_head(s, is->keys, b, kv_head),
          *v = reference_head(s, is->values, b, kv_head);
    reference_append_key(s, position, new_key, k + (size_t)position * dim, w->q);
    memcpy(v + (size_t)position * dim, new_key + (size_t)s->kv_heads * dim, dim * sizeof *v);
    for (uint32_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
        reference_rotate(s, position, row + (size_t)head * dim, w->q);
        reference_attend(w->q, k, v, first, position + 1, dim, w->weights, w->o);
        KB_TRY(reference_compare(s, b, 0, head, found + ((size_t)b * s->heads + head) * dim, w->o));
    }
    return NULL;
}

static kb_error *compare_all(step *is, float *found, void *stored, const scratch *w)
{
    const kb_kv_cache_spec *s = &is->spec;
    size_t count = (size_t)s->batch * s->heads * s->head_dim;
    KB_TRY(kb_tensor_to_host(kb_bench_context(is->bench), is->out, KB_BACKDOOR, stored,
                             count * kb_dtype_bytes(s->dtype)));
    kb_convert(KB_F32, found, s->dtype, stored, count);
    for (uint32_t b = 0; b < s->batch; b++)
        for (uint32_t head = 0; head < s->kv_heads; head++)
            KB_TRY(compare_heads(is, b, head, found, w));
    kb_bench_confirm(is->bench);
    return NULL;
}

static kb_error *verify(step *is)
{
    const kb_kv_cache_spec *s = &is->spec;
    size_t count = (size_t)s->batch * s->heads * s->head_dim;
    float *found = malloc(count * sizeof *found);
    void *stored = malloc(count * kb_dtype_bytes(s->dtype));
    scratch w = {.q = malloc(s->head_dim * sizeof *w.q),
                 .weights = malloc(s->capacity * sizeof *w.weights),
                 .o = malloc(s->head_dim * sizeof *w.o)};
    kb_error *err = found && stored && w.q && w.weights && w.o ? compare_all(is, found, stored, &w)
                                                               : reference_no_memory();
    free(found);
    free(stored);
    free(w.q);
    free(w.weights);
    free(w.o);
    return err;
}

/* ---- Results ----------------------------------------------------------------------------- */

static void print_shape(const step *is, const kb_kv_cache_info *info)
{
    static const char *const layouts[] = {"contiguous", "paged", "paged, shuffled"};
    const kb_kv_cache_spec *s = &is->spec;
    kb_bench_print(
        is->bench, "decode attention: %u sequences of up to %u tokens, %u/%u heads of %u, %s",
        s->batch, s->capacity, s->heads, s->kv_heads, s->head_dim, kb_dtype_name(s->dtype));
    kb_bench_print(is->bench, "cache: %s, pages of %u tokens, %u PEs of each kv head",
                   layouts[kb_bench_param(is->bench, "layout")], info->page_tokens,
                   info->pes_of_head);
    kb_bench_print(is->bench, "rule: %s", info->rule);
}

static void report(const step *is, const kb_kv_cache_info *info, const kb_attention_bounds *bounds)
{
    kb_bench *bench = is->bench;
    double ns = kb_to_ns(is->launch.pe_exec), hbm = kb_to_ns(bounds->hbm);
    double share = ns > 0 ? 100 * hbm / ns : 0;
    kb_bench_print(bench, "PE execution: %.3f us", ns / 1e3);
    kb_bench_print(bench, "bounds: HBM %.3f us, vector passes %.3f us, matrix products %.3f us",
                   hbm / 1e3, kb_to_ns(bounds->vector) / 1e3, kb_to_ns(bounds->matrix) / 1e3);
    kb_bench_print(bench, "bound by: %s; %.1f %% of the HBM bandwidth reached",
                   reference_bound_of(bounds), share);
    kb_bench_metric(bench, "kernel_ns", ns, "ns, from the first PE to the last");
    kb_bench_metric(bench, "time_ns", kb_to_ns(is->launch.ended - is->launch.issued),
                    "ns, with the launch");
    kb_bench_metric(bench, "cache_bytes", (double)bounds->cache_bytes, "bytes of the cache read");
    kb_bench_metric(bench, "hbm_share", share, "% of the HBM bandwidth reached");
    kb_bench_metric(bench, "hbm_bound_ns", hbm, "ns to read the cache");
    kb_bench_metric(bench, "vector_bound_ns", kb_to_ns(bounds->vector),
                    "ns of passes over the scores");
    kb_bench_metric(bench, "matrix_bound_ns", kb_to_ns(bounds->matrix), "ns of matrix products");
    kb_bench_detail(bench, "split", info->split, "PEs that share a sequence and head");
    kb_bench_detail(bench, "pes_of_head", info->pes_of_head, "PEs of a kv head");
    kb_bench_detail(bench, "page_tokens", info->page_tokens, "tokens of a page");
    kb_bench_detail(bench, "cache_room_bytes", (double)info->bytes, "bytes reserved");
}

/* ---- Running ----------------------------------------------------------------------------- */

static kb_error *make_tensors(step *is)
{
    static const kb_policy columns = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    const kb_kv_cache_spec *s = &is->spec;
    kb_context *ctx = kb_bench_context(is->bench);
    kb_tensor_spec spec = {.name = "qkv",
                           .dtype = s->dtype,
                           .shape = KB_SHAPE(s->batch, qkv_columns(s)),
                           .policy = &columns,
                           .door = KB_BACKDOOR};
    KB_TRY(kb_empty(ctx, &spec, &is->qkv));
    spec.name = "out";
    spec.shape = KB_SHAPE(s->batch, (uint64_t)s->heads * s->head_dim);
    KB_TRY(kb_empty(ctx, &spec, &is->out));
    KB_TRY(kb_kv_cache_create(ctx, s, &is->cache));
    return kb_kv_cache_set_lengths(ctx, is->cache, is->cached, is->added);
}

static kb_error *launch(step *is)
{
    kb_context *ctx = kb_bench_context(is->bench);
    kb_request request;
    size_t count;
    const kb_attention_decode_spec spec = {.cache = is->cache,
                                           .qkv = is->qkv,
                                           .out = is->out,
                                           .window = is->window,
                                           .request = &request};
    KB_TRY(kb_attention_decode(ctx, &spec));
    KB_TRY(kb_request_wait(ctx, request, NULL));
    KB_TRY(kb_launch_results(ctx, request, &is->launch, 1, &count));
    return kb_request_free(ctx, request);
}

static kb_error *run_step(step *is)
{
    kb_context *ctx = kb_bench_context(is->bench);
    bool has_data = !kb_context_is_timing_only(ctx);
    kb_kv_cache_info info;
    kb_attention_bounds bounds;
    KB_TRY(make_lengths(is));
    KB_TRY(make_tensors(is));
    KB_TRY(kb_kv_cache_get_info(ctx, is->cache, &info));
    print_shape(is, &info);
    if (has_data)
        KB_TRY(fill(is));
    KB_TRY(launch(is));
    KB_TRY(kb_attention_decode_bounds(ctx, is->cache, is->window, &bounds));
    report(is, &info, &bounds);
    return has_data ? verify(is) : NULL;
}

static kb_error *run(kb_bench *bench)
{
    step is = {.bench = bench,
               .spec = spec_of(bench),
               .window = (uint32_t)kb_bench_param(bench, "window"),
               .seed = (uint64_t)kb_bench_param(bench, "seed")};
    KB_TRY(kb_ahbm_set_device(kb_bench_context(bench), kb_bench_device(bench, 0)));
    kb_error *err = run_step(&is);
    free(is.cached);
    free(is.added);
    free(is.expected);
    free(is.keys);
    free(is.values);
    free(is.rows);
    return err;
}

/* More than can be verified in a second or two. */
static bool is_large(const kb_bench *bench)
{
    const kb_kv_cache_spec s = spec_of(bench);
    return (double)s.batch * s.capacity * s.heads * s.head_dim > 1e8;
}

static const char *const scale_names[] = {"validation", "headline", NULL};
static const char *const layout_names[] = {"contiguous", "paged", "shuffled", NULL};
static const char *const ragged_names[] = {"no", "yes", NULL};
static const char *const dtype_names[] = {"bf16", "f16", "f32", NULL};

static const kb_param params[] = {
    {.name = "scale",
     .names = scale_names,
     .help = "what 0 means below; large shapes are timing-only, others are verified"},
    {.name = "batch", .max = 1 << 16, .help = "sequences; 0: 4, headline 32"},
    {.name = "context", .max = 1 << 22, .help = "tokens of a sequence; 0: 256, headline 4096"},
    {.name = "heads", .max = 4096, .help = "query heads; 0: 16, headline 64"},
    {.name = "kv_heads", .max = 4096, .help = "of keys and values; 0: 2, headline 8"},
    {.name = "head_dim", .max = 4096, .help = "0: 64, headline 128"},
    {.name = "dtype", .names = dtype_names, .help = "of cache, queries and results"},
    {.name = "layout", .names = layout_names, .help = "of the pages of the cache"},
    {.name = "page_tokens", .max = 1 << 20, .help = "tokens of a page if it is paged; 0: 128"},
    {.name = "ragged", .names = ragged_names, .help = "random lengths up to the context"},
    {.name = "window", .max = 1 << 22, .help = "last keys that a query sees; 0: all"},
    {.name = "split",
     .max = 64,
     .help = "PEs that share a sequence and head; 0: by the rule that is printed"},
    {.name = "seed", .value = 1, .max = 1 << 30, .help = "of numbers, lengths and pages"},
};

const kb_bench_spec bench_gqa_decode = {
    .name = "gqa_decode",
    .summary = "decode attention of a batch on all PEs of a SIP, with a cache of keys and values",
    .params = params,
    .param_count = sizeof params / sizeof params[0],
    .run = run,
    .is_timing_only = is_large,
};
