/*
 * model_reference.h: a dense transformer in double precision, written for clarity, as a reference
 * for models. It has the weights of the model, and its own keys and values.
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

/* A token at a position of a sequence through all layers: modifies x (hidden) in place, and appends
 * keys and values. The previous tokens must have been processed. */
KB_MUST_USE kb_error *reference_layers(reference *ref, uint64_t sequence, uint64_t position,
                                       double *x);

/* Through the head: (vocab) numbers. */
KB_MUST_USE kb_error *reference_logits(const reference *ref, const double *x, double *logits);

#endif
