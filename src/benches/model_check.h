/*
 * model_check.h: runs a model with data beside a reference, with the same tokens, keys and values,
 * and compares every number.
 *
 * An element may differ by 2e-2 of the largest element of its tensor. A sampled token must be that
 * of the reference if its logit exceeds all others by more than that. The reference continues with
 * the model's token.
 */
#ifndef KB_BENCHES_MODEL_CHECK_H
#define KB_BENCHES_MODEL_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/kernbench.h>
#include <kernbench/model.h>

/* The steps of a run. */
typedef struct model_job {
    kb_model_spec spec;
    uint64_t all_layers; /* of the model, of which spec.layers are run */
    uint64_t prompt;     /* tokens of a prefill; 0: none */
    uint64_t context;    /* without a prompt: keys of the first decode step */
    uint64_t steps;      /* of decode */
    bool ragged;         /* prompts have different lengths */
} model_job;

/* Input tokens: random, so that they are spread over the embedding. */
typedef struct model_inputs {
    int32_t *prompt;   /* (batch, prompt) */
    uint32_t *lengths; /* of the prompts */
    int32_t *tokens;   /* of the first decode step, if there is no prompt: one a sequence */
} model_inputs;

KB_MUST_USE kb_error *model_inputs_draw(const model_job *job, model_inputs *inputs);
void model_inputs_free(model_inputs *inputs);

/* Sets the lengths as if each sequence had context - 1 tokens in the cache. */
KB_MUST_USE kb_error *model_job_set_cached(kb_context *ctx, const model_job *job, kb_model model);

typedef struct model_check model_check;

/* The inputs must outlive the check. */
KB_MUST_USE kb_error *model_check_create(const model_job *job, const model_inputs *inputs,
                                         uint32_t ranks, model_check **out);
void model_check_destroy(model_check *check);

/* ---- By every rank, in this order ---- */

/* Layers alone: writes the input rows of the model. */
KB_MUST_USE kb_error *model_check_begin_prompt(model_check *check, kb_context *ctx, kb_model model);
KB_MUST_USE kb_error *model_check_prompt(model_check *check, kb_context *ctx, uint32_t rank,
                                         kb_model model);

/* Without a prompt: writes keys and values, and the input rows of layers alone. */
KB_MUST_USE kb_error *model_check_begin_decode(model_check *check, kb_context *ctx, uint32_t rank,
                                               kb_model model);
KB_MUST_USE kb_error *model_check_step(model_check *check, kb_context *ctx, uint32_t rank,
                                       kb_model model);

/* ---- When all ranks are done ---- */

KB_MUST_USE kb_error *model_check_end(const model_check *check, kb_bench *bench);

#endif
