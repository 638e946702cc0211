/*
 * model_state.h: the models of a context. Private to model.
 *
 *     spec.c         shipped specs, checks, parameter counts
 *     bound.c        lower bounds of the time of a step
 *     capacity.c     the HBM that a device needs, and what would fit
 *     weights.c      the values of the weights
 *     create.c       the tensors of one rank
 *     step.c         decode and prefill, and their times
 *     host_access.c  tokens, lengths, hidden rows and logits, for the host
 *     model_state.c  the table of models
 */
#ifndef KB_MODEL_STATE_H
#define KB_MODEL_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/model.h>
#include <kernbench/tp.h>

#include "base/base.h"
#include "rt/rt.h"

enum { MODEL_MAX_RANKS = 16, MODEL_MAX_BATCH = 1 << 22, MODEL_MAX_TOKENS = 1 << 24 };

/* The sizes of one of `ranks` devices. */
typedef struct model_share {
    uint64_t heads, kv_heads, ffn, vocab;
    uint64_t q_columns, kv_columns, qkv_columns; /* of the product of queries, keys and values */
} model_share;

/* A rank's part of a matrix or vector of weights. */
typedef struct model_part {
    uint64_t rows, columns;
} model_part;

/* For a spec that was checked for this number of ranks. */
model_share model_share_of(const kb_model_spec *spec, uint32_t ranks);

/* Checks that the sizes are consistent with each other and with the ranks. */
KB_MUST_USE kb_error *model_check(const kb_model_spec *spec, uint32_t ranks);

/* The spec with its defaults filled in. */
kb_model_spec model_complete(const kb_model_spec *spec);

/* ---- Objects ---- */

typedef struct model_layer {
    kb_tensor attention_norm, qkv, out, mlp_norm, gate_up, down;
} model_layer;

/* The tensors of a step of decode, or of prefill. */
typedef struct model_rows {
    uint64_t count;      /* of rows; 0: no such step */
    bool by_cube;        /* x, attention and gated have a copy in each cube */
    kb_tensor tokens;    /* (rows) */
    kb_tensor x;         /* (rows, hidden): input and output of the layers */
    kb_tensor qkv;       /* (rows, q, k and v) */
    kb_tensor attention; /* (rows, heads * head_dim) */
    kb_tensor gated;     /* (rows, ffn) */
} model_rows;

typedef struct model {
    uint64_t id;
    kb_model_spec spec;
    char name[64]; /* of the spec */
    uint32_t rank, ranks, sip;
    model_share share;
    model_layer *layers;
    kb_tensor embedding, final_norm, head;
    kb_kv_cache cache;
    model_rows decode, prefill;
    kb_tensor last;   /* (batch, hidden): prefill: the last row of each sequence */
    kb_tensor logits; /* (batch, vocab of the rank) */
    uint32_t *cached; /* by sequence: tokens in the cache */
    uint32_t *added;  /* by sequence: tokens of the current step */
    kb_graph graph;   /* of decode; 0: not recorded yet */
} model;

typedef struct model_state {
    kb_context *ctx;
    KB_VEC(model *) models;
    uint64_t last_id;
} model_state;

KB_MUST_USE kb_error *model_get_state(kb_context *ctx, model_state **state);

/* An error that names the function if the handle is invalid. */
KB_MUST_USE kb_error *model_find(kb_context *ctx, const char *function, kb_model handle,
                                 model **out);

void model_drop(kb_context *ctx, model *m); /* removes it from the table */
KB_MUST_USE kb_error *model_add(model_state *state, const kb_model_spec *spec, model **out);

/* ---- capacity.c ---- */

/* The layout of the weights of a product. */
kb_policy model_weight_policy(kb_context *ctx, const kb_model_spec *spec, const model_part *part,
                              kb_model_weight_kind kind);

/* The error for a model that does not fit, with the required and the maximum sizes. */
kb_error *model_refuse(const kb_model_spec *spec, uint32_t ranks, const kb_model_memory *memory);

/* Whether activations of this number of rows have a copy in each cube. */
bool model_keeps_by_cube(uint64_t rows);

/* ---- weights.c ---- */

model_part model_part_of(const kb_model_spec *spec, const model_share *share,
                         kb_model_weight_kind kind);

/* Fills the rank's tensor with its part of the weights. Does nothing in a timing-only context. */
KB_MUST_USE kb_error *model_fill(kb_context *ctx, const model *m, kb_model_weight_kind kind,
                                 uint64_t layer, kb_tensor tensor);

/* ---- create.c ---- */

kb_kv_cache_spec model_cache_spec(const kb_model_spec *spec, const model_share *share);

#endif
