/*
 * gqa_prefill.c: prefill attention on all PEs of a SIP: prompts of a batch are appended to a cache
 * of keys and values, and attend to it.
 *
 * Small shapes have data and are verified; large ones are timing-only unless they are to be
 * verified.
 */
#include <kernbench/attention.h>
#include <kernbench/kernbench.h>

#include <stdlib.h>
#include <string.h>

#include "attention_reference.h"
#include "benches.h"

enum { VALIDATION, HEADLINE };

typedef struct prompts {
    kb_bench *bench;
    kb_kv_cache_spec spec;
    uint32_t prompt, window;
    uint64_t seed;
    uint32_t *cached, *added;
    kb_kv_cache cache;
    kb_tensor qkv, q, out;
    float *rows;          /* of qkv; NULL without data */
    float *keys, *values; /* (sequence, kv head, token, dim), as they are cached */
    kb_launch_result append, attention;
} prompts;

/* ---- Shapes ------------------------------------------------------------------------------ */

/* A parameter, or what it is by default. */
static uint32_t value_or(const kb_bench *bench, const char *name, uint32_t validation,
                         uint32_t headline)
{
    int64_t value = kb_bench_param(bench, name);
    uint32_t otherwise = kb_bench_param(bench, "scale") == HEADLINE ? headline : validation;
    return value > 0 ? (uint32_t)value : otherwise;
}

static uint32_t prompt_of(const kb_bench *bench)
{
    return value_or(bench, "prompt", 48, 2048);
}

static kb_kv_cache_spec spec_of(const kb_bench *bench)
{
    static const kb_dtype dtypes[] = {KB_BF16, KB_F16, KB_F32};
    kb_kv_cache_spec spec = {
        .batch = value_or(bench, "batch", 2, 1),
        .capacity = prompt_of(bench) + (uint32_t)kb_bench_param(bench, "cached"),
        .heads = value_or(bench, "heads", 16, 64),
        .kv_heads = value_or(bench, "kv_heads", 2, 8),
        .head_dim = value_or(bench, "head_dim", 64, 128),
        .dtype = dtypes[kb_bench_param(bench, "dtype")],
        .page_tokens = (uint32_t)kb_bench_param(bench, "page_tokens"),
        .split = (uint32_t)kb_bench_param(bench, "split"),
        .rope = {.style = KB_ROPE_HALF_SPLIT, .base = 500000},
        .door = KB_BACKDOOR,
    };
    if (spec.page_tokens > 0)
        spec.page_seed = (uint64_t)kb_bench_param(bench, "seed") + 1;
    if (spec.head_dim % 2 != 0)
        spec.rope.style = KB_ROPE_NONE; /* it rotates pairs */
    return spec;
}

static kb_error *make_lengths(prompts *p)
{
    bool is_ragged = kb_bench_param(p->bench, "ragged") == 1;
    uint32_t batch = p->spec.batch, prefix = p->spec.capacity - p->prompt;
    p->cached = malloc(batch * sizeof *p->cached);
    p->added = malloc(batch * sizeof *p->added);
    if (!p->cached || !p->added)
        return reference_no_memory();
    for (uint32_t b = 0; b < batch; b++) {
        p->cached[b] =
            is_ragged ? (uint32_t)reference_random_below(p->seed, 2 * b, prefix + 1) : prefix;
        p->added[b] = is_ragged
                          ? 1 + (uint32_t)reference_random_below(p->seed, 2 * b + 1, p->prompt)
                          : p->prompt;
    }
    return NULL;
}

static size_t width_of(const kb_kv_cache_spec *s, bool all)
{
    return ((size_t)s->heads + (all ? 2 * (size_t)s->kv_heads : 0)) * s->head_dim;
}

/* ---- Numbers ----------------------------------------------------------------------------- */

static kb_error *fill(prompts *p)
{
    const kb_kv_cache_spec *s = &p->spec;
    kb_context *ctx = kb_bench_context(p->bench);
    size_t rows = (size_t)s->batch * p->prompt * width_of(s, true);
    size_t count = (size_t)s->batch * s->kv_heads * s->capacity * s->head_dim;
    p->rows = reference_numbers(s->dtype, p->seed + 3, rows);
    p->keys = reference_numbers(s->dtype, p->seed + 1, count);
    p->values = reference_numbers(s->dtype, p->seed + 2, count);
    if (!p->rows || !p->keys || !p->values)
        return reference_no_memory();
    KB_TRY(reference_fill_cache(ctx, p->cache, s, p->cached, p->keys, p->values));
    return reference_set_tensor(ctx, p->qkv, s->dtype, p->rows, rows);
}

/* ---- Reference --------------------------------------------------------------------------- */

/* Buffers of a verification. */
typedef struct scratch {
    float *found; /* (rows, heads * dim) */
    void *stored;
    double *q, *weights, *o;
} scratch;

/* Keys and values of new tokens, as they are cached. */
static void append_head(const prompts *p, uint32_t b, uint32_t kv_head, double *rotated)
{
    const kb_kv_cache_spec *s = &p->spec;
    uint32_t dim = s->head_dim;
    for (uint32_t token = 0; token < p->added[b]; token++) {
        const float *row = p->rows + ((size_t)b * p->prompt + token) * width_of(s, true);
        const float *key = row + (size_t)(s->heads + kv_head) * dim;
        uint32_t position = p->cached[b] + token;
        size_t at = (size_t)position * dim;
        float *value = reference_head(s, p->values, b, kv_head) + at;
        reference_append_key(s, position, key, reference_head(s, p->keys, b, kv_head) + at,
                             rotated);
        memcpy(value, key + (size_t)s->kv_heads * dim, dim * sizeof *value);
    }
}

/* All rows of a head; those beyond the tokens of the sequence have to be 0. */
static kb_error *compare_head(const prompts *p, uint32_t b, uint32_t head, const scratch *w)
{
    const kb_kv_cache_spec *s = &p->spec;
    uint32_t dim = s->head_dim, kv_head = head / (s->heads / s->kv_heads);
    const float *k = reference_head(s, p->keys, b, kv_head);
    const float *v = reference_head(s, p->values, b, kv_head);
    for (uint32_t token = 0; token < p->prompt; token++) {
        size_t row = (size_t)b * p->prompt + token;
        uint32_t end = p->cached[b] + token + 1;
        uint32_t first = p->window > 0 && end > p->window ? end - p->window : 0;
        if (token < p->added[b]) {
            reference_rotate(s, end - 1, p->rows + row * width_of(s, true) + (size_t)head * dim,
                             w->q);
            reference_attend(w->q, k, v, first, end, dim, w->weights, w->o);
        } else {
            memset(w->o, 0, dim * sizeof *w->o);
        }
        KB_TRY(reference_compare(s, b, token, head,
                                 w->found + row * width_of(s, false) + (size_t)head * dim, w->o));
    }
    return NULL;
}

static kb_error *compare_all(const prompts *p, const scratch *w)
{
    const kb_kv_cache_spec *s = &p->spec;
    size_t count = (size_t)s->batch * p->prompt * width_of(s, false);
    KB_TRY(kb_tensor_to_host(kb_bench_context(p->bench), p->out, KB_BACKDOOR, w->stored,
                             count * kb_dtype_bytes(s->dtype)));
    kb_convert(KB_F32, w->found, s->dtype, w->stored, count);
    for (uint32_t b = 0; b < s->batch; b++) {
        for (uint32_t head = 0; head < s->kv_heads; head++)
            append_head(p, b, head, w->q);
        for (uint32_t head = 0; head < s->heads; head++)
            KB_TRY(compare_head(p, b, head, w));
    }
    kb_bench_confirm(p->bench);
    return NULL;
}

static kb_error *verify(const prompts *p)
{
    const kb_kv_cache_spec *s = &p->spec;
    size_t count = (size_t)s->batch * p->prompt * width_of(s, false);
    scratch w = {.found = malloc(count * sizeof *w.found),
                 .stored = malloc(count * kb_dtype_bytes(s->dtype)),
                 .q = malloc(s->head_dim * sizeof *w.q),
                 .weights = malloc(s->capacity * sizeof *w.weights),
                 .o = malloc(s->head_dim * sizeof *w.o)};
    bool has_all = w.found && w.stored && w.q && w.weights && w.o;
    kb_error *err = has_all ? compare_all(p, &w) : reference_no_memory();
    free(w.found);
    free(w.stored);
    free(w.q);
    free(w.weights);
    free(w.o);
    return err;
}

/* ---- Results ----------------------------------------------------------------------------- */

static void print_shape(const prompts *p, const kb_kv_cache_info *info)
{
    const kb_kv_cache_spec *s = &p->spec;
    kb_bench_print(p->bench,
                   "prefill attention: %u prompts of up to %u tokens behind %u, %u/%u heads of %u, "
                   "%s",
                   s->batch, p->prompt, s->capacity - p->prompt, s->heads, s->kv_heads, s->head_dim,
                   kb_dtype_name(s->dtype));
    kb_bench_print(p->bench, "cache: %s, pages of %u tokens, %u PEs of each kv head, split %u",
                   info->is_paged ? "paged, shuffled" : "contiguous", info->page_tokens,
                   info->pes_of_head, info->split);
}

static void report(const prompts *p, const kb_attention_bounds *bounds)
{
    kb_bench *bench = p->bench;
    double append = kb_to_ns(p->append.pe_exec), attention = kb_to_ns(p->attention.pe_exec);
    double least = kb_to_ns(bounds->vector);
    least = kb_to_ns(bounds->matrix) > least ? kb_to_ns(bounds->matrix) : least;
    least = kb_to_ns(bounds->hbm) > least ? kb_to_ns(bounds->hbm) : least;
    double share = attention > 0 ? 100 * least / attention : 0;
    kb_bench_print(bench, "PE execution: append %.3f us, attention %.3f us, together %.3f us",
                   append / 1e3, attention / 1e3, (append + attention) / 1e3);
    kb_bench_print(bench,
                   "bounds of attention: exponentials %.3f us, vector passes %.3f us, matrix "
                   "products %.3f us, HBM %.3f us",
                   kb_to_ns(bounds->exponentials) / 1e3, kb_to_ns(bounds->vector) / 1e3,
                   kb_to_ns(bounds->matrix) / 1e3, kb_to_ns(bounds->hbm) / 1e3);
    kb_bench_print(bench, "bound by: %s; attention reaches %.1f %% of it",
                   reference_bound_of(bounds), share);
    kb_bench_metric(bench, "kernel_ns", append + attention, "ns, both kernels");
    kb_bench_metric(bench, "append_ns", append, "ns, rotation and append to the cache");
    kb_bench_metric(bench, "attention_ns", attention, "ns, attention");
    kb_bench_metric(bench, "bound_share", share, "% of the bound that attention reaches");
    kb_bench_metric(bench, "exponential_bound_ns", kb_to_ns(bounds->exponentials),
                    "ns of exponentials");
    kb_bench_metric(bench, "vector_bound_ns", kb_to_ns(bounds->vector),
                    "ns of passes over the scores");
    kb_bench_metric(bench, "matrix_bound_ns", kb_to_ns(bounds->matrix), "ns of matrix products");
    kb_bench_metric(bench, "hbm_bound_ns", kb_to_ns(bounds->hbm),
                    "ns to read queries, keys and values and to write results");
    kb_bench_detail(bench, "time_ns", kb_to_ns(p->attention.ended - p->append.issued),
                    "ns, with the launches");
}

/* ---- Running ----------------------------------------------------------------------------- */

/* Rows over all PEs: then each PE rotates queries of its own memory. */
static kb_error *make_tensor(const prompts *p, const char *name, bool all, kb_tensor *tensor)
{
    static const kb_policy rows = {.cube = KB_ROW_WISE, .pe = KB_ROW_WISE};
    const kb_kv_cache_spec *s = &p->spec;
    const kb_tensor_spec spec = {.name = name,
                                 .dtype = s->dtype,
                                 .shape =
                                     KB_SHAPE((uint64_t)s->batch * p->prompt, width_of(s, all)),
                                 .policy = &rows,
                                 .door = KB_BACKDOOR};
    return kb_empty(kb_bench_context(p->bench), &spec, tensor);
}

static kb_error *finish(kb_context *ctx, kb_request request, kb_launch_result *result)
{
    size_t count;
    KB_TRY(kb_request_wait(ctx, request, NULL));
    KB_TRY(kb_launch_results(ctx, request, result, 1, &count));
    return kb_request_free(ctx, request);
}

static kb_error *launch(prompts *p)
{
    kb_context *ctx = kb_bench_context(p->bench);
    kb_request request;
    const kb_kv_append_spec append = {
        .cache = p->cache, .qkv = p->qkv, .q = p->q, .request = &request};
    const kb_attention_prefill_spec attention = {
        .cache = p->cache, .q = p->q, .out = p->out, .window = p->window, .request = &request};
    KB_TRY(kb_kv_append(ctx, &append));
    KB_TRY(finish(ctx, request, &p->append));
    KB_TRY(kb_attention_prefill(ctx, &attention));
    return finish(ctx, request, &p->attention);
}

static kb_error *run_prompts(prompts *p)
{
    kb_context *ctx = kb_bench_context(p->bench);
    bool has_data = !kb_context_is_timing_only(ctx);
    kb_kv_cache_info info;
    kb_attention_bounds bounds;
    KB_TRY(make_lengths(p));
    KB_TRY(make_tensor(p, "qkv", true, &p->qkv));
    KB_TRY(make_tensor(p, "q", false, &p->q));
    KB_TRY(make_tensor(p, "out", false, &p->out));
    KB_TRY(kb_kv_cache_create(ctx, &p->spec, &p->cache));
    KB_TRY(kb_kv_cache_set_lengths(ctx, p->cache, p->cached, p->added));
    KB_TRY(kb_kv_cache_get_info(ctx, p->cache, &info));
    print_shape(p, &info);
    if (has_data)
        KB_TRY(fill(p));
    KB_TRY(launch(p));
    KB_TRY(kb_attention_prefill_bounds(ctx, p->cache, p->window, &bounds));
    report(p, &bounds);
    return has_data ? verify(p) : NULL;
}

static kb_error *run(kb_bench *bench)
{
    prompts p = {.bench = bench,
                 .spec = spec_of(bench),
                 .prompt = prompt_of(bench),
                 .window = (uint32_t)kb_bench_param(bench, "window"),
                 .seed = (uint64_t)kb_bench_param(bench, "seed")};
    KB_TRY(kb_ahbm_set_device(kb_bench_context(bench), kb_bench_device(bench, 0)));
    kb_error *err = run_prompts(&p);
    free(p.cached);
    free(p.added);
    free(p.rows);
    free(p.keys);
    free(p.values);
    return err;
}

/* More than can be verified in a second or two. */
static bool is_large(const kb_bench *bench)
{
    const kb_kv_cache_spec s = spec_of(bench);
    return (double)s.batch * prompt_of(bench) * s.capacity * s.heads * s.head_dim > 3e8;
}

static const char *const scale_names[] = {"validation", "headline", NULL};
static const char *const ragged_names[] = {"no", "yes", NULL};
static const char *const dtype_names[] = {"bf16", "f16", "f32", NULL};

static const kb_param params[] = {
    {.name = "scale",
     .names = scale_names,
     .help = "what 0 means below; large shapes are timing-only, others are verified"},
    {.name = "batch", .max = 1 << 16, .help = "sequences; 0: 2, headline 1"},
    {.name = "prompt", .max = 1 << 20, .help = "new tokens of a sequence; 0: 48, headline 2048"},
    {.name = "cached", .max = 1 << 22, .help = "tokens of a sequence before these"},
    {.name = "heads", .max = 4096, .help = "query heads; 0: 16, headline 64"},
    {.name = "kv_heads", .max = 4096, .help = "of keys and values; 0: 2, headline 8"},
    {.name = "head_dim", .max = 4096, .help = "0: 64, headline 128"},
    {.name = "dtype", .names = dtype_names, .help = "of cache, queries and results"},
    {.name = "page_tokens", .max = 1 << 20, .help = "tokens of a page; 0: contiguous"},
    {.name = "ragged", .names = ragged_names, .help = "random lengths up to prompt and cached"},
    {.name = "window", .max = 1 << 22, .help = "last keys that a query sees; 0: all"},
    {.name = "split",
     .max = 1 << 16,
     .help = "PEs that have the keys of a sequence and head; 0: by the rule of the cache"},
    {.name = "seed", .value = 1, .max = 1 << 30, .help = "of numbers, lengths and pages"},
};

const kb_bench_spec bench_gqa_prefill = {
    .name = "gqa_prefill",
    .summary = "prefill attention of a batch on all PEs of a SIP, with a cache of keys and values",
    .params = params,
    .param_count = sizeof params / sizeof params[0],
    .run = run,
    .is_timing_only = is_large,
};
