/*
 * gqa_decode.c: a step of decode attention on all PEs of a SIP: one new token for each sequence of
 * a batch, over a cache of keys and values.
 *
 * Small caches have data and are verified; large ones are timing-only unless they are to be
 * verified.
 */
#include <kernbench/attention.h>
#include <kernbench/kernbench.h>

#include <stdlib.h>

#include "attention_reference.h"
#include "benches.h"
#include "cached_attention.h"

enum { CONTIGUOUS, PAGED, SHUFFLED };

typedef struct step {
    attention_run run;
    uint32_t *expected; /* lengths */
    kb_launch_result launch;
} step;

/* ---- Shapes ------------------------------------------------------------------------------ */

static kb_kv_cache_spec spec_of(const kb_bench *bench)
{
    int64_t layout = kb_bench_param(bench, "layout");
    kb_kv_cache_spec spec = attention_cache_spec(bench);
    spec.batch = attention_param(bench, "batch", 4, 32);
    spec.capacity = attention_param(bench, "context", 256, 4096);
    if (layout != CONTIGUOUS)
        spec.page_tokens = attention_param(bench, "page_tokens", KB_PAGE_TOKENS, KB_PAGE_TOKENS);
    if (layout == SHUFFLED)
        spec.page_seed = (uint64_t)kb_bench_param(bench, "seed") + 1;
    return spec;
}

/* Lengths with the new token: all of the context, or random ones. */
static kb_error *make_lengths(step *is)
{
    attention_run *run = &is->run;
    bool is_ragged = kb_bench_param(run->bench, "ragged") == 1;
    uint32_t capacity = run->spec.capacity;
    is->expected = malloc(run->spec.batch * sizeof *is->expected);
    if (!is->expected)
        return reference_no_memory();
    for (uint32_t b = 0; b < run->spec.batch; b++) {
        run->cached[b] =
            is_ragged ? (uint32_t)reference_random_below(run->seed, b, capacity) : capacity - 1;
        run->added[b] = 1;
        is->expected[b] = run->cached[b] + 1;
    }
    run->spec.expected = is->expected;
    return NULL;
}

/* ---- Results ----------------------------------------------------------------------------- */

static void print_shape(const step *is, const kb_kv_cache_info *info)
{
    static const char *const layouts[] = {"contiguous", "paged", "paged, shuffled"};
    const kb_kv_cache_spec *s = &is->run.spec;
    kb_bench_print(
        is->run.bench, "decode attention: %u sequences of up to %u tokens, %u/%u heads of %u, %s",
        s->batch, s->capacity, s->heads, s->kv_heads, s->head_dim, kb_dtype_name(s->dtype));
    kb_bench_print(is->run.bench, "cache: %s, pages of %u tokens, %u PEs of each kv head",
                   layouts[kb_bench_param(is->run.bench, "layout")], info->page_tokens,
                   info->pes_of_head);
    kb_bench_print(is->run.bench, "rule: %s", info->rule);
}

static void report(const step *is, const kb_kv_cache_info *info, const kb_attention_bounds *bounds)
{
    kb_bench *bench = is->run.bench;
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

static kb_error *make_tensors(attention_run *run)
{
    static const kb_policy columns = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    const kb_kv_cache_spec *s = &run->spec;
    kb_context *ctx = kb_bench_context(run->bench);
    KB_TRY(attention_make_rows(run, "qkv", &columns, attention_qkv_columns(s), &run->qkv));
    KB_TRY(attention_make_rows(run, "out", &columns, attention_q_columns(s), &run->out));
    KB_TRY(kb_kv_cache_create(ctx, s, &run->cache));
    return kb_kv_cache_set_lengths(ctx, run->cache, run->cached, run->added);
}

static kb_error *launch(step *is)
{
    kb_context *ctx = kb_bench_context(is->run.bench);
    kb_request request;
    const kb_attention_decode_spec spec = {.cache = is->run.cache,
                                           .qkv = is->run.qkv,
                                           .out = is->run.out,
                                           .window = is->run.window,
                                           .request = &request};
    KB_TRY(kb_attention_decode(ctx, &spec));
    return attention_wait(ctx, request, &is->launch);
}

static kb_error *run_step(step *is)
{
    attention_run *run = &is->run;
    kb_context *ctx = kb_bench_context(run->bench);
    bool has_data = !kb_context_is_timing_only(ctx);
    kb_kv_cache_info info;
    kb_attention_bounds bounds;
    KB_TRY(make_lengths(is));
    KB_TRY(make_tensors(run));
    KB_TRY(kb_kv_cache_get_info(ctx, run->cache, &info));
    print_shape(is, &info);
    if (has_data)
        KB_TRY(attention_fill(run));
    KB_TRY(launch(is));
    KB_TRY(kb_attention_decode_bounds(ctx, run->cache, run->window, &bounds));
    report(is, &info, &bounds);
    return has_data ? attention_verify(run) : NULL;
}

static kb_error *run(kb_bench *bench)
{
    const kb_kv_cache_spec spec = spec_of(bench);
    step is = {0};
    kb_error *err = attention_begin(&is.run, bench, &spec, 1);
    if (!err)
        err = run_step(&is);
    free(is.expected);
    attention_end(&is.run);
    return err;
}

/* Whether verification would take more than a second or two. */
static bool is_large(const kb_bench *bench)
{
    const kb_kv_cache_spec s = spec_of(bench);
    return (double)s.batch * s.capacity * s.heads * s.head_dim > 1e8;
}

static const char *const layout_names[] = {"contiguous", "paged", "shuffled", NULL};

static const kb_param params[] = {
    ATTENTION_SCALE_PARAM,
    {.name = "batch", .max = 1 << 16, .help = "sequences; 0: 4, headline 32"},
    {.name = "context", .max = 1 << 22, .help = "tokens of a sequence; 0: 256, headline 4096"},
    ATTENTION_HEAD_PARAMS,
    {.name = "layout", .names = layout_names, .help = "of the pages of the cache"},
    {.name = "page_tokens", .max = 1 << 20, .help = "tokens of a page if it is paged; 0: 128"},
    {.name = "ragged", .names = attention_yes_names, .help = "random lengths up to the context"},
    ATTENTION_WINDOW_PARAM,
    {.name = "split",
     .max = 64,
     .help = "PEs that share a sequence and head; 0: by the rule that is printed"},
    ATTENTION_SEED_PARAM,
};

const kb_bench_spec bench_gqa_decode = {
    .name = "gqa_decode",
    .summary = "decode attention of a batch on all PEs of a SIP, with a cache of keys and values",
    .params = params,
    .param_count = sizeof params / sizeof params[0],
    .run = run,
    .is_timing_only = is_large,
};
