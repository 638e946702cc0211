/*
 * gqa_prefill.c: prefill attention on all PEs of a SIP: prompts of a batch are appended to a cache
 * of keys and values, and attend to it.
 *
 * Small shapes have data and are verified; large ones are timing-only unless they are to be
 * verified.
 */
#include <kernbench/attention.h>
#include <kernbench/kernbench.h>

#include "attention_reference.h"
#include "benches.h"
#include "cached_attention.h"

typedef struct prompts {
    attention_run run;
    kb_tensor q;
    kb_launch_result append, attention;
} prompts;

/* ---- Shapes ------------------------------------------------------------------------------ */

static uint32_t prompt_of(const kb_bench *bench)
{
    return attention_param(bench, "prompt", 48, 2048);
}

static kb_kv_cache_spec spec_of(const kb_bench *bench)
{
    kb_kv_cache_spec spec = attention_cache_spec(bench);
    spec.batch = attention_param(bench, "batch", 2, 1);
    spec.capacity = prompt_of(bench) + (uint32_t)kb_bench_param(bench, "cached");
    spec.page_tokens = (uint32_t)kb_bench_param(bench, "page_tokens");
    if (spec.page_tokens > 0)
        spec.page_seed = (uint64_t)kb_bench_param(bench, "seed") + 1;
    return spec;
}

static void make_lengths(attention_run *run)
{
    bool is_ragged = kb_bench_param(run->bench, "ragged") == 1;
    uint32_t prefix = run->spec.capacity - run->prompt;
    for (uint32_t b = 0; b < run->spec.batch; b++) {
        run->cached[b] =
            is_ragged ? (uint32_t)reference_random_below(run->seed, 2 * (uint64_t)b, prefix + 1)
                      : prefix;
        run->added[b] =
            is_ragged
                ? 1 + (uint32_t)reference_random_below(run->seed, 2 * (uint64_t)b + 1, run->prompt)
                : run->prompt;
    }
}

/* ---- Results ----------------------------------------------------------------------------- */

static void print_shape(const prompts *p, const kb_kv_cache_info *info)
{
    const kb_kv_cache_spec *s = &p->run.spec;
    kb_bench_print(p->run.bench,
                   "prefill attention: %u prompts of up to %u tokens behind %u, %u/%u heads of %u, "
                   "%s",
                   s->batch, p->run.prompt, s->capacity - p->run.prompt, s->heads, s->kv_heads,
                   s->head_dim, kb_dtype_name(s->dtype));
    kb_bench_print(p->run.bench, "cache: %s, pages of %u tokens, %u PEs of each kv head, split %u",
                   info->is_paged ? "paged, shuffled" : "contiguous", info->page_tokens,
                   info->pes_of_head, info->split);
}

static void report(const prompts *p, const kb_attention_bounds *bounds)
{
    kb_bench *bench = p->run.bench;
    double append = kb_to_ns(p->append.pe_exec), attention = kb_to_ns(p->attention.pe_exec);
    double bound = kb_to_ns(bounds->vector);
    bound = kb_to_ns(bounds->matrix) > bound ? kb_to_ns(bounds->matrix) : bound;
    bound = kb_to_ns(bounds->hbm) > bound ? kb_to_ns(bounds->hbm) : bound;
    double share = attention > 0 ? 100 * bound / attention : 0;
    kb_bench_print(bench, "PE execution: append %.3f us, attention %.3f us, together %.3f us",
                   append / 1e3, attention / 1e3, (append + attention) / 1e3);
    kb_bench_print(bench,
                   "bounds of attention: vector passes %.3f us (exponentials alone %.3f us),",
                   kb_to_ns(bounds->vector) / 1e3, kb_to_ns(bounds->exponentials) / 1e3);
    kb_bench_print(bench, "  matrix products %.3f us, HBM %.3f us", kb_to_ns(bounds->matrix) / 1e3,
                   kb_to_ns(bounds->hbm) / 1e3);
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

static kb_error *make_tensors(prompts *p)
{
    /* Rows over all PEs, so that each PE rotates queries in its own memory. */
    static const kb_policy rows = {.cube = KB_ROW_WISE, .pe = KB_ROW_WISE};
    attention_run *run = &p->run;
    const kb_kv_cache_spec *s = &run->spec;
    kb_context *ctx = kb_bench_context(run->bench);
    KB_TRY(attention_make_rows(run, "qkv", &rows, attention_qkv_columns(s), &run->qkv));
    KB_TRY(attention_make_rows(run, "q", &rows, attention_q_columns(s), &p->q));
    KB_TRY(attention_make_rows(run, "out", &rows, attention_q_columns(s), &run->out));
    KB_TRY(kb_kv_cache_create(ctx, s, &run->cache));
    return kb_kv_cache_set_lengths(ctx, run->cache, run->cached, run->added);
}

static kb_error *launch(prompts *p)
{
    const attention_run *run = &p->run;
    kb_context *ctx = kb_bench_context(run->bench);
    kb_request request;
    const kb_kv_append_spec append = {
        .cache = run->cache, .qkv = run->qkv, .q = p->q, .request = &request};
    const kb_attention_prefill_spec attention = {.cache = run->cache,
                                                 .q = p->q,
                                                 .out = run->out,
                                                 .window = run->window,
                                                 .request = &request};
    KB_TRY(kb_kv_append(ctx, &append));
    KB_TRY(attention_wait(ctx, request, &p->append));
    KB_TRY(kb_attention_prefill(ctx, &attention));
    return attention_wait(ctx, request, &p->attention);
}

static kb_error *run_prompts(prompts *p)
{
    attention_run *run = &p->run;
    kb_context *ctx = kb_bench_context(run->bench);
    bool has_data = !kb_context_is_timing_only(ctx);
    kb_kv_cache_info info;
    kb_attention_bounds bounds;
    make_lengths(run);
    KB_TRY(make_tensors(p));
    KB_TRY(kb_kv_cache_get_info(ctx, run->cache, &info));
    print_shape(p, &info);
    if (has_data)
        KB_TRY(attention_fill(run));
    KB_TRY(launch(p));
    KB_TRY(kb_attention_prefill_bounds(ctx, run->cache, run->window, &bounds));
    report(p, &bounds);
    return has_data ? attention_verify(run) : NULL;
}

static kb_error *run(kb_bench *bench)
{
    const kb_kv_cache_spec spec = spec_of(bench);
    prompts p = {0};
    kb_error *err = attention_begin(&p.run, bench, &spec, prompt_of(bench));
    if (!err)
        err = run_prompts(&p);
    attention_end(&p.run);
    return err;
}

/* Whether verification would take more than a second or two. */
static bool is_large(const kb_bench *bench)
{
    const kb_kv_cache_spec s = spec_of(bench);
    return (double)s.batch * prompt_of(bench) * s.capacity * s.heads * s.head_dim > 3e8;
}

static const kb_param params[] = {
    ATTENTION_SCALE_PARAM,
    {.name = "batch", .max = 1 << 16, .help = "sequences; 0: 2, headline 1"},
    {.name = "prompt", .max = 1 << 20, .help = "new tokens of a sequence; 0: 48, headline 2048"},
    {.name = "cached", .max = 1 << 22, .help = "tokens of a sequence before these"},
    ATTENTION_HEAD_PARAMS,
    {.name = "page_tokens", .max = 1 << 20, .help = "tokens of a page; 0: contiguous"},
    {.name = "ragged",
     .names = attention_yes_names,
     .help = "random lengths up to prompt and cached"},
    ATTENTION_WINDOW_PARAM,
    {.name = "split",
     .max = 1 << 16,
     .help = "PEs that have the keys of a sequence and head; 0: by the rule of the cache"},
    ATTENTION_SEED_PARAM,
};

const kb_bench_spec bench_gqa_prefill = {
    .name = "gqa_prefill",
    .summary = "prefill attention of a batch on all PEs of a SIP, with a cache of keys and values",
    .params = params,
    .param_count = sizeof params / sizeof params[0],
    .run = run,
    .is_timing_only = is_large,
};
