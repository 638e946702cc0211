/*
 * llama70b.c: a dense transformer decoder over the SIPs of a machine: one layer, a decode step, a
 * prompt. The sizes are those of Llama 70B, or of 405B, unless parameters give others.
 *
 * A model that is small enough runs with data and is compared with a double-precision reference;
 * a large one is timed.
 */
#include <kernbench/kernbench.h>
#include <kernbench/model.h>
#include <kernbench/tp.h>

#include <stdlib.h>

#include "benches.h"
#include "model_check.h"
#include "model_report.h"

typedef enum bench_kind { LAYER, DECODE, PREFILL } bench_kind;

enum { MODEL_70B, MODEL_405B };

/* ---- Parameters -------------------------------------------------------------------------- */

static void replace(const kb_bench *bench, const char *name, uint64_t *value)
{
    int64_t given = kb_bench_param(bench, name);
    if (given > 0)
        *value = (uint64_t)given;
}

static const kb_dtype dtypes[] = {KB_BF16, KB_F16, KB_F32};

static kb_model_spec model_of(const kb_bench *bench)
{
    return kb_bench_param(bench, "model") == MODEL_405B ? kb_model_llama405b()
                                                        : kb_model_llama70b();
}

/* Whether parameters change the model; the number of layers alone does not. */
static bool has_own_sizes(const kb_bench *bench)
{
    static const char *const sizes[] = {"hidden", "ffn", "heads", "kv_heads", "head_dim", "vocab"};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (kb_bench_param(bench, sizes[i]) > 0)
            return true;
    return false;
}

/* The sizes of the model, overridden by parameters. */
static kb_model_spec sizes_of(const kb_bench *bench)
{
    kb_model_spec spec = model_of(bench);
    replace(bench, "hidden", &spec.hidden);
    replace(bench, "ffn", &spec.ffn);
    replace(bench, "heads", &spec.heads);
    replace(bench, "kv_heads", &spec.kv_heads);
    replace(bench, "head_dim", &spec.head_dim);
    replace(bench, "vocab", &spec.vocab);
    replace(bench, "layers", &spec.layers);
    if (has_own_sizes(bench))
        spec.name = "own model";
    spec.dtype = dtypes[kb_bench_param(bench, "dtype")];
    spec.batch = (uint64_t)kb_bench_param(bench, "batch");
    spec.page_tokens = (uint64_t)kb_bench_param(bench, "page_tokens");
    spec.seed = (uint64_t)kb_bench_param(bench, "seed");
    return spec;
}

/* The layers of the whole model, of which some are run. */
static uint64_t all_layers_of(const kb_bench *bench)
{
    uint64_t all = has_own_sizes(bench) ? sizes_of(bench).layers : model_of(bench).layers;
    replace(bench, "all_layers", &all);
    return all;
}

/* Steps of decode: `steps` of them, the first with `context` keys. */
static model_job decode_job(const kb_bench *bench)
{
    model_job job = {.spec = sizes_of(bench),
                     .all_layers = all_layers_of(bench),
                     .context = (uint64_t)kb_bench_param(bench, "context"),
                     .steps = (uint64_t)kb_bench_param(bench, "steps")};
    job.spec.context = job.context + job.steps - 1;
    return job;
}

/* A prompt, and then `steps` of decode. */
static model_job prefill_job(const kb_bench *bench)
{
    model_job job = {.spec = sizes_of(bench),
                     .all_layers = all_layers_of(bench),
                     .prompt = (uint64_t)kb_bench_param(bench, "prompt"),
                     .steps = (uint64_t)kb_bench_param(bench, "steps"),
                     .ragged = kb_bench_param(bench, "ragged") != 0};
    job.spec.prompt = job.prompt;
    job.spec.context = job.prompt + job.steps;
    return job;
}

/* One step of a few layers, without embedding and head. */
static model_job layer_job(const kb_bench *bench)
{
    bool is_prefill = kb_bench_param(bench, "phase") == 1;
    model_job job = {.spec = sizes_of(bench)};
    job.spec.layers = job.all_layers = (uint64_t)kb_bench_param(bench, "layers");
    job.spec.layers_only = true;
    job.prompt = is_prefill ? (uint64_t)kb_bench_param(bench, "prompt") : 0;
    job.context = is_prefill ? 0 : (uint64_t)kb_bench_param(bench, "context");
    job.steps = is_prefill ? 0 : 1;
    job.spec.prompt = job.prompt;
    job.spec.context = job.prompt + job.context;
    return job;
}

static uint32_t ranks_of(const kb_bench *bench)
{
    int64_t tp = kb_bench_param(bench, "tp");
    return tp > 0 ? (uint32_t)tp : kb_bench_device_count(bench);
}

/* Whether computation and comparison would take more than about a minute on one core, or the
 * reference more than 1 GiB for keys and values. */
static bool is_large(const model_job *job)
{
    static const double max_parameters = 2e7, max_products = 2e10, max_cached = 0x1p26;
    const kb_model_spec *spec = &job->spec;
    kb_model_counts counts;
    kb_error *err = kb_model_count(spec, &counts);
    bool is_refused = err != NULL;
    kb_error_free(err); /* the run reports it */
    double batch = (double)spec->batch, context = (double)spec->context;
    double rows = batch * (double)(job->prompt + job->steps);
    double products = rows * ((double)counts.parameters +
                              2 * context * (double)(spec->heads * spec->head_dim * spec->layers));
    return is_refused || (double)counts.parameters > max_parameters || products > max_products ||
           batch * context * (double)counts.cache_elements > max_cached;
}

static bool is_large_layer(const kb_bench *bench)
{
    const model_job job = layer_job(bench);
    return is_large(&job);
}

static bool is_large_decode(const kb_bench *bench)
{
    const model_job job = decode_job(bench);
    return is_large(&job);
}

static bool is_large_prefill(const kb_bench *bench)
{
    const model_job job = prefill_job(bench);
    return is_large(&job);
}

/* ---- Ranks ------------------------------------------------------------------------------- */

/* The job of all ranks. */
typedef struct group_job {
    kb_bench *bench;
    const model_job *job;
    model_inputs inputs;
    model_check *check; /* NULL: there is no data */
    bool is_prepared;   /* inputs and check */
    bool is_ready;      /* the preparation succeeded */
    uint32_t ranks;
    model_stats stats; /* of rank 0 */
} group_job;

/* Called by the first rank that has created its model: a model that does not fit is refused before
 * its inputs are made. */
static kb_error *prepare(kb_context *ctx, group_job *is)
{
    if (is->is_prepared)
        return is->is_ready ? NULL : kb_error_new(KB_ERR_HOST, "out of memory");
    is->is_prepared = true;
    KB_TRY(model_inputs_draw(is->job, &is->inputs));
    if (!kb_context_is_timing_only(ctx))
        KB_TRY(model_check_create(is->job, &is->inputs, is->ranks, &is->check));
    is->is_ready = true;
    return NULL;
}

static kb_error *run_prompt(kb_context *ctx, group_job *is, uint32_t rank, kb_model model)
{
    kb_model_times times;
    if (is->job->prompt == 0)
        return NULL;
    if (is->check)
        KB_TRY(model_check_begin_prompt(is->check, ctx, model));
    KB_TRY(kb_model_prefill(ctx, model, is->inputs.prompt, is->inputs.lengths, &times));
    if (rank == 0) {
        is->stats.prefill = times;
        for (uint64_t i = 0; i < is->job->spec.batch; i++)
            is->stats.prompt_tokens += is->inputs.lengths[i];
    }
    return is->check ? model_check_prompt(is->check, ctx, rank, model) : NULL;
}

/* Without a prompt: fills the cache as if there had been one. */
static kb_error *begin_decode(kb_context *ctx, const group_job *is, uint32_t rank, kb_model model)
{
    KB_TRY(model_job_set_cached(ctx, is->job, model));
    if (!is->job->spec.layers_only)
        KB_TRY(kb_model_set_tokens(ctx, model, is->inputs.tokens));
    return is->check ? model_check_begin_decode(is->check, ctx, rank, model) : NULL;
}

static kb_error *run_steps(kb_context *ctx, group_job *is, uint32_t rank, kb_model model)
{
    if (is->job->prompt == 0)
        KB_TRY(begin_decode(ctx, is, rank, model));
    for (uint64_t step = 0; step < is->job->steps; step++) {
        kb_model_times times;
        KB_TRY(kb_model_decode(ctx, model, &times));
        if (rank == 0)
            model_stats_add(&is->stats, &times);
        if (is->check)
            KB_TRY(model_check_step(is->check, ctx, rank, model));
    }
    return NULL;
}

static kb_error *run_rank(kb_context *ctx, uint32_t rank, void *arg)
{
    group_job *is = arg;
    kb_model model;
    KB_TRY(kb_ahbm_set_device(ctx, kb_bench_device(is->bench, rank)));
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    KB_TRY(kb_tp_initialize_model_parallel(ctx, is->ranks));
    KB_TRY(kb_model_create(ctx, &is->job->spec, &model));
    KB_TRY(prepare(ctx, is));
    if (rank == 0) {
        kb_kv_cache cache;
        KB_TRY(kb_model_cache(ctx, model, &cache));
        KB_TRY(kb_kv_cache_get_info(ctx, cache, &is->stats.cache));
    }
    KB_TRY(run_prompt(ctx, is, rank, model));
    KB_TRY(run_steps(ctx, is, rank, model));
    return kb_model_free(ctx, model);
}

static kb_error *check_devices(uint32_t devices, uint32_t ranks)
{
    if (ranks > devices)
        return kb_error_new(KB_ERR_INPUT,
                            "tp is %u, but the machine has %u SIP%s: set system.sips.count=%u, or "
                            "a smaller tp",
                            ranks, devices, devices == 1 ? "" : "s", ranks);
    if (devices % ranks != 0)
        return kb_error_new(KB_ERR_INPUT,
                            "tp is %u, but the run has %u SIPs: tp has to divide this number; "
                            "system.sips.count=%u is a machine for it",
                            ranks, devices, ranks);
    return NULL;
}

/* Beyond this, weights and their products take minutes and gigabytes on the host. */
static kb_error *check_data(kb_context *ctx, const model_job *job)
{
    static const uint64_t max_parameters = 200000000;
    kb_model_counts counts;
    KB_TRY(kb_model_count(&job->spec, &counts));
    if (kb_context_is_timing_only(ctx) || counts.parameters <= max_parameters)
        return NULL;
    return kb_error_new(KB_ERR_INPUT,
                        "%llu parameters are too many to be computed and verified: expected at "
                        "most %llu. Leave out --verify-data, or give smaller sizes (hidden, ffn, "
                        "vocab, layers)",
                        (unsigned long long)counts.parameters, (unsigned long long)max_parameters);
}

static kb_error *run_job(kb_bench *bench, const model_job *job)
{
    kb_context *ctx = kb_bench_context(bench);
    group_job is = {.bench = bench, .job = job, .ranks = ranks_of(bench)};
    KB_TRY(check_devices(kb_bench_device_count(bench), is.ranks));
    KB_TRY(check_data(ctx, job));
    KB_TRY(model_report_sizes(bench, job, is.ranks));
    kb_error *err = kb_spawn(ctx, run_rank, &is, is.ranks);
    if (!err && is.check)
        err = model_check_end(is.check, bench);
    model_check_destroy(is.check);
    model_inputs_free(&is.inputs);
    return err ? err : model_report_times(bench, job, is.ranks, &is.stats);
}

static kb_error *run_layer(kb_bench *bench)
{
    const model_job job = layer_job(bench);
    return run_job(bench, &job);
}

static kb_error *run_decode(kb_bench *bench)
{
    const model_job job = decode_job(bench);
    return run_job(bench, &job);
}

static kb_error *run_prefill(kb_bench *bench)
{
    const model_job job = prefill_job(bench);
    return run_job(bench, &job);
}

/* ---- Specs ------------------------------------------------------------------------------- */

static const char *const model_names[] = {"70b", "405b", NULL};
static const char *const dtype_names[] = {"bf16", "f16", "f32", NULL};
static const char *const phase_names[] = {"decode", "prefill", NULL};
static const char *const yes_names[] = {"no", "yes", NULL};

#define MODEL_PARAMS                                                                               \
    {.name = "model", .names = model_names, .help = "what 0 means in the sizes below"},            \
        {.name = "hidden", .max = 1 << 20, .help = "width of the residual; 0: the model's"},       \
        {.name = "ffn", .max = 1 << 20, .help = "width of the MLP; 0: the model's"},               \
        {.name = "heads", .max = 1 << 14, .help = "of queries; 0: the model's"},                   \
        {.name = "kv_heads", .max = 1 << 14, .help = "of keys and values; 0: the model's"},        \
        {.name = "head_dim", .max = 1 << 14, .help = "0: the model's"},                            \
        {.name = "vocab", .max = 1 << 22, .help = "tokens; 0: the model's"},                       \
        {.name = "batch", .value = 1, .min = 1, .max = 1 << 16, .help = "sequences"},              \
        {.name = "tp", .max = 16, .help = "devices of the model; 0: all of the run"},              \
        {.name = "dtype", .names = dtype_names, .help = "of weights, activations and cache"},      \
        {.name = "page_tokens", .max = 1 << 16, .help = "of the cache; 0: contiguous"},            \
    {                                                                                              \
        .name = "seed", .value = 1, .max = 1 << 30, .help = "of weights and tokens, with data"     \
    }

#define ALL_LAYERS_PARAM                                                                           \
    {                                                                                              \
        .name = "all_layers", .max = 4096,                                                         \
        .help = "of the whole model, if fewer are run; 0: the model's, or with own sizes `layers`" \
    }
#define LAYERS_PARAM                                                                               \
    {                                                                                              \
        .name = "layers", .max = 4096, .help = "0: the model's"                                    \
    }
#define CONTEXT_PARAM                                                                              \
    {                                                                                              \
        .name = "context", .value = 4096, .min = 1, .max = 1 << 22,                                \
        .help = "keys of the (first) decode step, its own token included"                          \
    }
#define PROMPT_PARAM                                                                               \
    {                                                                                              \
        .name = "prompt", .value = 2048, .min = 1, .max = 1 << 20,                                 \
        .help = "tokens of each sequence"                                                          \
    }

static const kb_param layer_params[] = {
    MODEL_PARAMS,
    {.name = "layers", .value = 1, .min = 1, .max = 4096, .help = "that are run"},
    {.name = "phase", .names = phase_names, .help = "one token a sequence, or a prompt"},
    CONTEXT_PARAM,
    PROMPT_PARAM,
};

static const kb_param decode_params[] = {
    MODEL_PARAMS,
    LAYERS_PARAM,
    ALL_LAYERS_PARAM,
    CONTEXT_PARAM,
    {.name = "steps", .value = 1, .min = 1, .max = 1 << 16, .help = "tokens, one after the other"},
};

static const kb_param prefill_params[] = {
    MODEL_PARAMS,
    LAYERS_PARAM,
    ALL_LAYERS_PARAM,
    PROMPT_PARAM,
    {.name = "ragged", .names = yes_names, .help = "prompts of different lengths"},
    {.name = "steps", .max = 1 << 16, .help = "tokens that are generated after the first"},
};

const kb_bench_spec bench_llama70b_layer = {
    .name = "llama70b_layer",
    .summary = "layers of a transformer, tensor parallel over the SIPs",
    .params = layer_params,
    .param_count = sizeof layer_params / sizeof layer_params[0],
    .run = run_layer,
    .is_timing_only = is_large_layer,
};

const kb_bench_spec bench_llama70b_decode = {
    .name = "llama70b_decode",
    .summary = "a token for each sequence: the whole model, tensor parallel over the SIPs",
    .params = decode_params,
    .param_count = sizeof decode_params / sizeof decode_params[0],
    .run = run_decode,
    .is_timing_only = is_large_decode,
};

const kb_bench_spec bench_llama70b_prefill = {
    .name = "llama70b_prefill",
    .summary = "a prompt through the whole model, and tokens behind it",
    .params = prefill_params,
    .param_count = sizeof prefill_params / sizeof prefill_params[0],
    .run = run_prefill,
    .is_timing_only = is_large_prefill,
};
