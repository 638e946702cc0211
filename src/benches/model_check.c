/*
 * model_check.c: compares a model with its reference. All ranks call in turn; the first rank that
 * comes to a step advances the reference.
 */
#include "model_check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_reference.h"

static const double tolerance = 2e-2; /* relative to the largest element of a tensor */

struct model_check {
    model_job job;
    uint32_t ranks;
    reference *ref;
    uint64_t steps;       /* of the reference so far, the prompt included */
    uint64_t *rank_steps; /* by rank: steps that were compared */
    const model_inputs *inputs;
    uint32_t *positions; /* of the next token of each sequence */
    int32_t *tokens;     /* input of the next step, one per sequence */
    int32_t *sampled;    /* by the model in this step; -1: unknown */
    float *rows_in;      /* layers alone: their input */
    double *rows;        /* output of the layers: (batch or batch * prompt, hidden) */
    double *logits;      /* (batch, vocab) */
    double worst;        /* largest difference, relative to the tolerance */
};

static kb_error *no_memory(void)
{
    return kb_error_new(KB_ERR_HOST, "out of memory");
}

/* ---- Inputs ---- */

static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state = *state * 6364136223846793005 + 1442695040888963407;
    return (*state >> 33) % below;
}

kb_error *model_inputs_draw(const model_job *job, model_inputs *inputs)
{
    const kb_model_spec *spec = &job->spec;
    uint64_t state = spec->seed * 0x9e3779b97f4a7c15 + 1;
    size_t batch = (size_t)spec->batch, rows = batch * (size_t)job->prompt;
    *inputs = (model_inputs){.prompt = calloc(rows + 1, sizeof *inputs->prompt),
                             .lengths = calloc(batch, sizeof *inputs->lengths),
                             .tokens = calloc(batch, sizeof *inputs->tokens)};
    if (!inputs->prompt || !inputs->lengths || !inputs->tokens) {
        model_inputs_free(inputs);
        return no_memory();
    }
    for (size_t i = 0; i < rows; i++)
        inputs->prompt[i] = (int32_t)draw(&state, spec->vocab);
    for (size_t i = 0; i < batch; i++) {
        inputs->tokens[i] = (int32_t)draw(&state, spec->vocab);
        inputs->lengths[i] = (uint32_t)job->prompt;
        if (job->ragged)
            inputs->lengths[i] = (uint32_t)(1 + draw(&state, job->prompt));
    }
    return NULL;
}

void model_inputs_free(model_inputs *inputs)
{
    free(inputs->prompt);
    free(inputs->lengths);
    free(inputs->tokens);
    *inputs = (model_inputs){0};
}

/* ---- Creation ---- */

static uint64_t row_count(const model_check *check)
{
    const model_job *job = &check->job;
    return job->spec.batch * (job->prompt > 0 ? job->prompt : 1);
}

/* Random numbers, rounded to the model's dtype. */
static void fill_random(const kb_model_spec *spec, uint64_t seed, float *numbers, uint64_t count)
{
    unsigned char rounded[8];
    kb_bench_random(seed, KB_F32, numbers, (size_t)count);
    for (uint64_t i = 0; i < count; i++) {
        kb_convert(spec->dtype, rounded, KB_F32, &numbers[i], 1);
        kb_convert(KB_F32, &numbers[i], spec->dtype, rounded, 1);
    }
}

static void begin(model_check *check)
{
    const model_job *job = &check->job;
    for (uint64_t i = 0; i < job->spec.batch; i++) {
        check->positions[i] = job->prompt > 0 ? 0 : (uint32_t)job->context - 1;
        check->tokens[i] = check->inputs->tokens[i];
        check->sampled[i] = -1;
    }
}

kb_error *model_check_create(const model_job *job, const model_inputs *inputs, uint32_t ranks,
                             model_check **out)
{
    const kb_model_spec *spec = &job->spec;
    model_check *check = calloc(1, sizeof *check);
    *out = NULL;
    if (!check)
        return no_memory();
    check->job = *job;
    check->inputs = inputs;
    check->ranks = ranks;
    size_t batch = (size_t)spec->batch, rows = (size_t)(row_count(check) * spec->hidden);
    check->rank_steps = calloc(ranks, sizeof *check->rank_steps);
    check->positions = calloc(batch, sizeof *check->positions);
    check->tokens = calloc(batch, sizeof *check->tokens);
    check->sampled = calloc(batch, sizeof *check->sampled);
    check->rows_in = calloc(rows, sizeof *check->rows_in);
    check->rows = calloc(rows, sizeof *check->rows);
    check->logits = calloc(batch * (size_t)spec->vocab, sizeof *check->logits);
    if (!check->rank_steps || !check->positions || !check->tokens || !check->sampled ||
        !check->rows_in || !check->rows || !check->logits) {
        model_check_destroy(check);
        return no_memory();
    }
    begin(check);
    fill_random(spec, spec->seed + 17, check->rows_in, row_count(check) * spec->hidden);
    kb_error *err = reference_create(spec, &check->ref);
    if (err)
        model_check_destroy(check); /* other ranks must not find an incomplete one */
    else
        *out = check;
    return err;
}

void model_check_destroy(model_check *check)
{
    if (!check)
        return;
    reference_destroy(check->ref);
    void *all[] = {check->rank_steps, check->positions, check->tokens, check->sampled,
                   check->rows_in,    check->rows,      check->logits};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
    free(check);
}

/* ---- The reference's steps ---- */

/* One token; `row` is its row in the output of the layers. */
static kb_error *advance_token(model_check *check, uint64_t sequence, uint64_t row, int32_t token)
{
    const kb_model_spec *spec = &check->job.spec;
    double *x = check->rows + row * spec->hidden;
    if (spec->layers_only)
        for (uint64_t i = 0; i < spec->hidden; i++)
            x[i] = (double)check->rows_in[row * spec->hidden + i];
    else
        reference_embed(check->ref, token, x);
    return reference_layers(check->ref, sequence, check->positions[sequence]++, x);
}

static kb_error *advance_prompt(model_check *check)
{
    const kb_model_spec *spec = &check->job.spec;
    for (uint64_t i = 0; i < spec->batch; i++) {
        uint64_t first = i * check->job.prompt, length = check->inputs->lengths[i];
        for (uint64_t t = 0; t < length; t++)
            KB_TRY(advance_token(check, i, first + t, check->inputs->prompt[first + t]));
        if (!spec->layers_only)
            KB_TRY(reference_logits(check->ref, check->rows + (first + length - 1) * spec->hidden,
                                    check->logits + i * spec->vocab));
    }
    return NULL;
}

static kb_error *advance_decode(model_check *check)
{
    const kb_model_spec *spec = &check->job.spec;
    for (uint64_t i = 0; i < spec->batch; i++) {
        KB_TRY(advance_token(check, i, i, check->tokens[i]));
        if (!spec->layers_only)
            KB_TRY(reference_logits(check->ref, check->rows + i * spec->hidden,
                                    check->logits + i * spec->vocab));
    }
    return NULL;
}

/* Called before a rank compares its step: advances the reference if it is behind. */
static kb_error *advance(model_check *check, uint32_t rank, bool is_prompt)
{
    if (check->rank_steps[rank]++ < check->steps)
        return NULL;
    check->steps++;
    for (uint64_t i = 0; i < check->job.spec.batch; i++)
        check->sampled[i] = -1;
    return is_prompt ? advance_prompt(check) : advance_decode(check);
}

/* ---- Comparison ---- */

/* Numbers of the model and of the reference. */
typedef struct comparison {
    const char *what;
    uint32_t rank;
    uint64_t sequence;
    const float *got;
    const double *expected;
    uint64_t count;
    double largest; /* of the tensor */
} comparison;

static kb_error *compare(model_check *check, const comparison *c)
{
    double bound = tolerance * c->largest;
    for (uint64_t i = 0; i < c->count; i++) {
        double difference = fabs((double)c->got[i] - c->expected[i]);
        if (!(difference <= bound))
            return kb_error_new(KB_ERR_CHECK,
                                "%s of sequence %llu on rank %u, element %llu: %g, but the "
                                "reference has %g (allowed is a difference of %g)",
                                c->what, (unsigned long long)c->sequence, c->rank,
                                (unsigned long long)i, (double)c->got[i], c->expected[i], bound);
        if (bound > 0)
            check->worst = fmax(check->worst, difference / bound);
    }
    return NULL;
}

static double largest_of(const double *numbers, uint64_t count)
{
    double largest = 0;
    for (uint64_t i = 0; i < count; i++)
        largest = fmax(largest, fabs(numbers[i]));
    return largest;
}

static kb_error *compare_logits(model_check *check, kb_context *ctx, uint32_t rank, kb_model model)
{
    const kb_model_spec *spec = &check->job.spec;
    uint64_t columns = spec->vocab / check->ranks;
    float *got = malloc((size_t)(spec->batch * columns) * sizeof *got);
    kb_error *err = got ? kb_model_get_logits(ctx, model, got) : no_memory();
    double largest = largest_of(check->logits, spec->batch * spec->vocab);
    for (uint64_t i = 0; !err && i < spec->batch; i++)
        err = compare(check, &(comparison){"logits", rank, i, got + i * columns,
                                           check->logits + i * spec->vocab + rank * columns,
                                           columns, largest});
    free(got);
    return err;
}

/* Padding rows of prompts are not compared. */
static kb_error *compare_rows(model_check *check, kb_context *ctx, uint32_t rank, kb_model model,
                              bool is_prompt)
{
    const kb_model_spec *spec = &check->job.spec;
    uint64_t each = is_prompt ? check->job.prompt : 1, width = spec->hidden;
    uint64_t count = spec->batch * each * width;
    float *got = malloc((size_t)count * sizeof *got);
    kb_error *err = got ? kb_model_get_hidden(ctx, model, is_prompt, got) : no_memory();
    double largest = largest_of(check->rows, count);
    for (uint64_t i = 0; !err && i < spec->batch; i++)
        err = compare(check,
                      &(comparison){"rows", rank, i, got + i * each * width,
                                    check->rows + i * each * width,
                                    (is_prompt ? check->inputs->lengths[i] : 1) * width, largest});
    free(got);
    return err;
}

/* ---- Tokens ---- */

static kb_error *compare_token(const model_check *check, uint32_t rank, uint64_t sequence,
                               int32_t token)
{
    const kb_model_spec *spec = &check->job.spec;
    const double *logits = check->logits + sequence * spec->vocab;
    double bound = tolerance * largest_of(check->logits, spec->batch * spec->vocab);
    uint64_t best = 0;
    for (uint64_t i = 1; i < spec->vocab; i++)
        if (logits[i] > logits[best])
            best = i;
    if (token < 0 || (uint64_t)token >= spec->vocab || logits[best] - logits[token] > bound)
        return kb_error_new(KB_ERR_CHECK,
                            "sequence %llu on rank %u: token %d was sampled, but the reference has "
                            "%llu, whose logit is larger by more than %g",
                            (unsigned long long)sequence, rank, token, (unsigned long long)best,
                            bound);
    if (check->sampled[sequence] >= 0 && check->sampled[sequence] != token)
        return kb_error_new(KB_ERR_CHECK,
                            "sequence %llu: rank %u sampled token %d, another rank %d",
                            (unsigned long long)sequence, rank, token, check->sampled[sequence]);
    return NULL;
}

static kb_error *compare_tokens(model_check *check, kb_context *ctx, uint32_t rank, kb_model model)
{
    size_t batch = (size_t)check->job.spec.batch;
    int32_t *got = malloc(batch * sizeof *got);
    if (!got)
        return no_memory();
    kb_error *err = kb_model_get_tokens(ctx, model, got);
    for (size_t i = 0; !err && i < batch; i++) {
        err = compare_token(check, rank, i, got[i]);
        check->sampled[i] = check->tokens[i] = got[i];
    }
    free(got);
    return err;
}

/* ---- The cache ---- */

/* The first kv head of a rank, and the number of its kv heads. */
static uint64_t first_kv_head(const model_check *check, uint32_t rank)
{
    return rank * check->job.spec.kv_heads / check->ranks;
}

static uint64_t kv_heads_of_rank(const model_check *check)
{
    uint64_t heads = check->job.spec.kv_heads;
    return heads > check->ranks ? heads / check->ranks : 1;
}

static double *cached(model_check *check, bool values, uint64_t layer, uint64_t sequence,
                      uint64_t token)
{
    return values ? reference_values(check->ref, layer, sequence, token)
                  : reference_keys(check->ref, layer, sequence, token);
}

/* Keys or values of a token, on one rank. `largest`: of those of the sequence in this layer. */
static kb_error *compare_token_cache(model_check *check, kb_context *ctx, uint32_t rank,
                                     kb_kv_cache cache, kb_kv_range at, double largest, float *got)
{
    const kb_model_spec *spec = &check->job.spec;
    const double *expected = cached(check, at.values, at.layer, at.sequence, at.token);
    for (uint64_t head = 0; head < kv_heads_of_rank(check); head++) {
        uint64_t first = (first_kv_head(check, rank) + head) * spec->head_dim;
        at.kv_head = (uint32_t)head;
        KB_TRY(kb_kv_cache_get(ctx, cache, &at, got));
        KB_TRY(compare(check, &(comparison){at.values ? "values" : "keys", rank, at.sequence, got,
                                            expected + first, spec->head_dim, largest}));
    }
    return NULL;
}

/* Compares what the last step appended: `count` tokens of each sequence, or the prompts. */
static kb_error *compare_cache(model_check *check, kb_context *ctx, uint32_t rank, kb_model model,
                               bool is_prompt)
{
    const kb_model_spec *spec = &check->job.spec;
    float *got = malloc((size_t)spec->head_dim * sizeof *got);
    kb_kv_cache cache;
    kb_error *err = got ? kb_model_cache(ctx, model, &cache) : no_memory();
    for (uint64_t i = 0; !err && i < spec->batch * spec->layers * 2; i++) {
        uint64_t sequence = i / 2 % spec->batch, end = check->positions[sequence];
        uint64_t token = end - (is_prompt ? check->inputs->lengths[sequence] : 1);
        kb_kv_range at = {.layer = (uint32_t)(i / 2 / spec->batch),
                          .sequence = (uint32_t)sequence,
                          .count = 1,
                          .values = i % 2 == 1};
        double largest = largest_of(cached(check, at.values, at.layer, sequence, 0),
                                    end * spec->kv_heads * spec->head_dim);
        for (; !err && token < end; token++) {
            at.token = (uint32_t)token;
            err = compare_token_cache(check, ctx, rank, cache, at, largest, got);
        }
    }
    free(got);
    return err;
}

static kb_error *compare_step(model_check *check, kb_context *ctx, uint32_t rank, kb_model model,
                              bool is_prompt)
{
    KB_TRY(advance(check, rank, is_prompt));
    KB_TRY(compare_cache(check, ctx, rank, model, is_prompt));
    KB_TRY(compare_rows(check, ctx, rank, model, is_prompt));
    if (check->job.spec.layers_only)
        return NULL;
    KB_TRY(compare_logits(check, ctx, rank, model));
    return compare_tokens(check, ctx, rank, model);
}

/* ---- Steps ---- */

kb_error *model_check_begin_prompt(model_check *check, kb_context *ctx, kb_model model)
{
    return check->job.spec.layers_only ? kb_model_set_hidden(ctx, model, true, check->rows_in)
                                       : NULL;
}

kb_error *model_check_prompt(model_check *check, kb_context *ctx, uint32_t rank, kb_model model)
{
    return compare_step(check, ctx, rank, model, true);
}

kb_error *model_check_step(model_check *check, kb_context *ctx, uint32_t rank, kb_model model)
{
    return compare_step(check, ctx, rank, model, false);
}

kb_error *model_job_set_cached(kb_context *ctx, const model_job *job, kb_model model)
{
    size_t batch = (size_t)job->spec.batch;
    uint32_t *lengths = malloc(batch * sizeof *lengths);
    if (!lengths)
        return no_memory();
    for (size_t i = 0; i < batch; i++)
        lengths[i] = (uint32_t)job->context - 1;
    kb_error *err = kb_model_set_cached(ctx, model, lengths);
    free(lengths);
    return err;
}

/* Writes random keys or values of all tokens of a sequence in a layer to the reference and the
 * rank. */
static kb_error *fill_cache(model_check *check, kb_context *ctx, uint32_t rank, kb_kv_cache cache,
                            kb_kv_range at, float *numbers)
{
    const kb_model_spec *spec = &check->job.spec;
    for (uint64_t head = 0; head < spec->kv_heads; head++) {
        uint64_t seed = ((at.layer * spec->batch + at.sequence) * spec->kv_heads + head) * 2;
        fill_random(spec, spec->seed + 1000 + seed + at.values, numbers, at.count * spec->head_dim);
        for (uint32_t token = 0; token < at.count; token++) {
            double *to = cached(check, at.values, at.layer, at.sequence, token);
            for (uint64_t i = 0; i < spec->head_dim; i++)
                to[head * spec->head_dim + i] = (double)numbers[token * spec->head_dim + i];
        }
        uint64_t first = first_kv_head(check, rank);
        if (head < first || head >= first + kv_heads_of_rank(check))
            continue;
        at.kv_head = (uint32_t)(head - first);
        KB_TRY(kb_kv_cache_set(ctx, cache, &at, numbers));
    }
    return NULL;
}

kb_error *model_check_begin_decode(model_check *check, kb_context *ctx, uint32_t rank,
                                   kb_model model)
{
    const kb_model_spec *spec = &check->job.spec;
    uint64_t tokens = check->job.context - 1;
    kb_kv_cache cache;
    if (spec->layers_only)
        KB_TRY(kb_model_set_hidden(ctx, model, false, check->rows_in));
    KB_TRY(kb_model_cache(ctx, model, &cache));
    float *numbers = malloc((size_t)(tokens * spec->head_dim + 1) * sizeof *numbers);
    kb_error *err = numbers ? NULL : no_memory();
    for (uint64_t i = 0; !err && tokens > 0 && i < spec->layers * spec->batch * 2; i++)
        err = fill_cache(check, ctx, rank, cache,
                         (kb_kv_range){.layer = (uint32_t)(i / 2 / spec->batch),
                                       .sequence = (uint32_t)(i / 2 % spec->batch),
                                       .count = (uint32_t)tokens,
                                       .values = i % 2 == 1},
                         numbers);
    free(numbers);
    return err;
}

kb_error *model_check_end(const model_check *check, kb_bench *bench)
{
    kb_bench_print(bench, "compared with a reference in double precision: rows, keys, values%s",
                   check->job.spec.layers_only ? "" : ", logits, tokens");
    kb_bench_print(bench,
                   "largest difference: %.2f %% of the largest element of its tensor, %g %% "
                   "are allowed",
                   check->worst * tolerance * 100, tolerance * 100);
    kb_bench_confirm(bench);
    return NULL;
}
