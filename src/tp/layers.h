/* layers.h: a layer, and functions that the files of layers share. Private to tp. */
#ifndef KB_TP_LAYERS_H
#define KB_TP_LAYERS_H

#include <kernbench/tp.h>

#include "relayout.h"
#include "tp_state.h"

typedef enum tp_layer_kind { TP_COLUMN, TP_ROW, TP_EMBEDDING } tp_layer_kind;

/* The uses of the temporary tensors that a layer keeps. */
typedef enum tp_buffer_use {
    TP_INPUT,
    TP_PARTIAL,
    TP_GATHERED,
    TP_SINGLE,
    TP_BUFFERS
} tp_buffer_use;

struct tp_layer {
    tp_layer_kind kind;
    char *name;
    uint32_t sip;
    tp_rank at;               /* the rank and groups that made it */
    uint64_t rows, columns;   /* of the rank's weights */
    uint64_t inputs, outputs; /* features of the whole layer */
    kb_dtype dtype;
    bool gathers, whole_input; /* Column: gather_output; Row: the input is not parallel */
    uint32_t overlap;
    kb_tensor weight, bias;
    kb_tensor buffers[TP_BUFFERS];
    kb_tp_times times;
};

/* Adds a layer without tensors to the state, which frees it with the context. */
KB_MUST_USE kb_error *tp_add_layer(kb_context *ctx, const char *function, tp_layer_kind kind,
                                   const char *name, tp_layer **layer, kb_tp_layer *handle);

/* Removes a layer whose creation failed. */
void tp_drop_layer(kb_context *ctx, kb_tp_layer *handle);

/* The layer; an error if it is of another kind or of other groups than the caller's. */
KB_MUST_USE kb_error *tp_find_layer(kb_context *ctx, const char *function, tp_layer_kind kind,
                                    kb_tp_layer handle, tp_layer **layer);

/* The weights of the whole layer, and the position of the rank's part. */
typedef struct tp_weight_source {
    kb_tensor given;                /* of the host: the whole or the part; {0}: none */
    uint64_t seed;                  /* 0: weights of 0 */
    uint64_t all_rows, all_columns; /* of the whole */
    uint64_t row, column;           /* of the part */
    double scale;                   /* of random numbers */
} tp_weight_source;

/* Fills a tensor of a layer, (rows, columns). */
KB_MUST_USE kb_error *tp_fill_weight(kb_context *ctx, kb_tensor tensor, const char *what,
                                     uint64_t rows, uint64_t columns, kb_dtype dtype,
                                     kb_access access, const tp_weight_source *source);

/* The layer's buffer for a use, with this shape and dtype. */
KB_MUST_USE kb_error *tp_get_buffer(kb_context *ctx, tp_layer *layer, tp_buffer_use use,
                                    uint64_t rows, uint64_t columns, kb_dtype dtype,
                                    kb_tensor *buffer);

/*
 * An error if the caller records a graph: for calls that free a tensor which the graph would need.
 */
KB_MUST_USE kb_error *tp_refuse_recording(kb_context *ctx, const char *function,
                                          const char *remedy);

/* Reduces over the ranks of the group in place; does nothing for one rank. */
KB_MUST_USE kb_error *tp_all_reduce(kb_context *ctx, const tp_rank *at, kb_tensor tensor,
                                    kb_reduce_op op);

/* Puts the columns of all ranks side by side. *staging, (ranks * rows, columns), is a temporary. */
KB_MUST_USE kb_error *tp_gather_columns(kb_context *ctx, const tp_rank *at, const char *name,
                                        kb_tensor input, kb_tensor staging, kb_tensor output);

/*
 * The dtype of sums over ranks: f32 for f8, which has no sums, and i32 for i8, which is too narrow.
 */
kb_dtype tp_reduce_dtype(kb_dtype dtype);

/* Tokens or targets: I32, packed row by row on one PE, so that kernels can index them. */
typedef struct tp_indices {
    kb_tensor packed;
    kb_shape shape;
    uint64_t count;
    bool is_copy; /* made by tp_get_indices(), from another layout */
} tp_indices;

KB_MUST_USE kb_error *tp_get_indices(kb_context *ctx, const char *function, const char *what,
                                     kb_tensor tensor, uint32_t sip, tp_indices *indices);

/* Returns the given error, if any, or that of freeing. */
KB_MUST_USE kb_error *tp_free_indices(kb_context *ctx, const tp_indices *indices, kb_error *err);

/* The shape with another last axis. */
kb_shape tp_with_columns(const kb_shape *shape, uint64_t columns);

/* The rows of a shape seen as a matrix. */
uint64_t tp_shape_rows(const kb_shape *shape);

#endif
