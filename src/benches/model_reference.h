/*
 * model_reference.h: a dense transformer in double precision, written for clarity, to compare
 * models with. It has the weights of the model, and keys and values of its own.
 */
#ifndef KB_BENCHES_MODEL_REFERENCE_H
#define KB_BENCHES_MODEL_REFERENCE_H

#include <stdint.h>

#include <kernbench/model.h>

typedef struct reference reference;

KB_MUST_USE kb_error *reference_create(const kb_model_spec *spec, reference **out);
void reference_destroy(reference *ref);

/* Keys (rotated) or values of a token: heads side by side, kv_heads * head_dim numbers. */
double *reference_keys(reference *ref, uint64_t layer, uint64_t sequence, uint64_t token);
double *reference_values(reference *ref, uint64_t layer, uint64_t sequence, uint64_t token);

/* The row of the embedding. */
void reference_embed(const reference *ref, int32_t token, double *x);

/* A token at a position of a sequence through all layers: x (hidden) is changed in place; keys and
 * values are appended. Tokens before it must have been there. */
KB_MUST_USE kb_error *reference_layers(reference *ref, uint64_t sequence, uint64_t position,
                                       double *x);

/* Through the head: (vocab) numbers. */
KB_MUST_USE kb_error *reference_logits(const reference *ref, const double *x, double *logits);

#endif
