/*
 * tp.h: tensor parallel layers, as in Megatron: the weights of a layer are divided among the
 * ranks of a group, and each rank multiplies its part on all PEs of its device.
 *
 *     #include <kernbench/kernbench.h>
 *     #include <kernbench/tp.h>
 *
 *     static kb_error *mlp(kb_context *ctx, uint32_t rank, void *arg)
 *     {
 *         kb_tensor x = {0}, hidden = {0}, out = {0};
 *         kb_tp_layer up, down;
 *         (void)arg;
 *         KB_TRY(kb_ahbm_set_device(ctx, rank));
 *         KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
 *         KB_TRY(kb_tp_initialize_model_parallel(ctx, 2));
 *         KB_TRY(kb_full(ctx, &(kb_tensor_spec){.name = "x", .shape = KB_SHAPE(4, 64)}, 1, &x));
 *         const kb_tp_linear_spec first = {
 *             .name = "up", .in_features = 64, .out_features = 256, .seed = 1};
 *         const kb_tp_linear_spec second = {
 *             .name = "down", .in_features = 256, .out_features = 64, .seed = 2};
 *         KB_TRY(kb_column_parallel_linear_create(ctx, &first, &up));
 *         KB_TRY(kb_row_parallel_linear_create(ctx, &second, &down));
 *         KB_TRY(kb_column_parallel_linear_forward(ctx, up, x, &hidden));
 *         KB_TRY(kb_row_parallel_linear_forward(ctx, down, hidden, &out));
 *         KB_TRY(kb_tp_layer_free(ctx, up));
 *         KB_TRY(kb_tp_layer_free(ctx, down));
 *         KB_TRY(kb_tensor_free(ctx, hidden));
 *         KB_TRY(kb_tensor_free(ctx, out));
 *         return kb_tensor_free(ctx, x);
 *     }
 *
 * A program runs this on all ranks with kb_spawn(ctx, mlp, NULL, 2). All ranks of a group make the
 * same calls in the same order. Calls wait for their results.
 *
 * A matrix is a tensor seen as (product of all axes but the last, last axis), so inputs may be
 * (tokens, features) or (batch, tokens, features), in any layout, in HBM. The number of rows may
 * differ from call to call.
 */
#ifndef KERNBENCH_TP_H
#define KERNBENCH_TP_H

#include <kernbench/kernbench.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Parallel state ---------------------------------------------------------------------- */

/*
 * Divides the ranks of the process group into tensor parallel groups of `size` consecutive ranks,
 * and data parallel groups of the ranks with the same index in these. Every rank calls it after
 * kb_distributed_init_process_group(), or the program outside workers does so once for all. The
 * size must divide the world size. The groups last until kb_tp_destroy_model_parallel(), or the end
 * of the process group.
 */
KB_API KB_MUST_USE kb_error *kb_tp_initialize_model_parallel(kb_context *ctx, uint32_t size);
KB_API bool kb_tp_model_parallel_is_initialized(kb_context *ctx);

/* The caller's layers can still be freed, but not used. */
KB_API KB_MUST_USE kb_error *kb_tp_destroy_model_parallel(kb_context *ctx);

/* An error before initialisation. */
KB_API KB_MUST_USE kb_error *kb_tp_get_tensor_model_parallel_rank(kb_context *ctx, uint32_t *rank);
KB_API KB_MUST_USE kb_error *kb_tp_get_tensor_model_parallel_world_size(kb_context *ctx,
                                                                        uint32_t *size);
KB_API KB_MUST_USE kb_error *kb_tp_get_tensor_model_parallel_group(kb_context *ctx,
                                                                   kb_group *group);
KB_API KB_MUST_USE kb_error *kb_tp_get_data_parallel_rank(kb_context *ctx, uint32_t *rank);
KB_API KB_MUST_USE kb_error *kb_tp_get_data_parallel_world_size(kb_context *ctx, uint32_t *size);
KB_API KB_MUST_USE kb_error *kb_tp_get_data_parallel_group(kb_context *ctx, kb_group *group);

/* ---- Layers ------------------------------------------------------------------------------ */

/* A handle of a layer. That of a freed layer is invalid forever. */
typedef struct kb_tp_layer {
    uint64_t id;
} kb_tp_layer;

/* A boolean option with a default. */
typedef enum kb_tp_choice { KB_TP_DEFAULT, KB_TP_NO, KB_TP_YES } kb_tp_choice;

/* All zeros except for the features: f16, weights of 0, no bias. */
typedef struct kb_tp_linear_spec {
    const char *name;                   /* of the layer's launches and tensors; copied */
    uint64_t in_features, out_features; /* of the whole layer */
    kb_dtype dtype;                     /* of weights, bias and output */
    bool bias;                          /* has a bias: of 0, unless values are given */
    bool gather_output;                 /* Column: each rank gets the whole output */
    kb_tp_choice input_is_parallel;     /* Row: the input is the rank's part (default), or the
                                           whole input, of which each rank uses its part */
    uint32_t overlap;                   /* Row: chunks of the sum over ranks that overlap with the
                                           product; 0: the sum follows the product */
    kb_tensor weight;                   /* of the host: (in_features, out_features), of which each
                                           rank takes its part, or the rank's part; {0}: none */
    kb_tensor bias_values;              /* of the host: (out_features), or the rank's part */
    uint64_t seed;                      /* of random weights (and bias), if no weights are given:
                                           the same for any number of ranks; 0: weights of 0 */
    uint64_t batch;                     /* expected rows of the input: weights are laid out
                                           for these; 0: 64 */
    kb_access access;                   /* for creating the layer's tensors */
} kb_tp_linear_spec;

/*
 * y = x * W + b, with the columns of W (in_features, out_features) divided among the ranks. x is
 * the same on all ranks; y is (rows, out_features / ranks), the rank's columns, unless it is
 * gathered. Sums are made in f32 (i32 for integers) and rounded once.
 *
 * *output {0}: a new tensor is made on the caller's device, split by columns over all PEs, and the
 * caller frees it. Otherwise the given tensor is used: it must have the shape of the result, in any
 * layout.
 */
KB_API KB_MUST_USE kb_error *kb_column_parallel_linear_create(kb_context *ctx,
                                                              const kb_tp_linear_spec *spec,
                                                              kb_tp_layer *layer);
KB_API KB_MUST_USE kb_error *kb_column_parallel_linear_forward(kb_context *ctx, kb_tp_layer layer,
                                                               kb_tensor input, kb_tensor *output);

/*
 * y = x * W + b, with the rows of W divided among the ranks. x is the rank's columns, (rows,
 * in_features / ranks); y is the sum over the ranks, the same bits on each. The bias is added once,
 * to the sum. Partial results are rounded to the dtype before they are added up (f8: f32, i8: i32).
 */
KB_API KB_MUST_USE kb_error *
kb_row_parallel_linear_create(kb_context *ctx, const kb_tp_linear_spec *spec, kb_tp_layer *layer);
KB_API KB_MUST_USE kb_error *kb_row_parallel_linear_forward(kb_context *ctx, kb_tp_layer layer,
                                                            kb_tensor input, kb_tensor *output);

/* All zeros except for the sizes: f16, rows of 0. */
typedef struct kb_tp_embedding_spec {
    const char *name;
    uint64_t num_embeddings, embedding_dim;
    kb_dtype dtype;
    kb_tensor weight; /* of the host: (num_embeddings, embedding_dim), or the rank's rows */
    uint64_t seed;    /* as of kb_tp_linear_spec */
    kb_access access;
} kb_tp_embedding_spec;

/*
 * A table with a row for each token, split by rows over the ranks. tokens are I32, of any shape,
 * the same on all ranks; the output is (tokens, embedding_dim). A rank contributes 0 for tokens
 * that are not in its part, and contributions are added up over the ranks. A token that is in no
 * rank's part gives a row of 0.
 */
KB_API KB_MUST_USE kb_error *kb_vocab_parallel_embedding_create(kb_context *ctx,
                                                                const kb_tp_embedding_spec *spec,
                                                                kb_tp_layer *layer);
KB_API KB_MUST_USE kb_error *kb_vocab_parallel_embedding_forward(kb_context *ctx, kb_tp_layer layer,
                                                                 kb_tensor tokens,
                                                                 kb_tensor *output);

/* Frees its tensors on the caller's rank. */
KB_API KB_MUST_USE kb_error *kb_tp_layer_free(kb_context *ctx, kb_tp_layer layer);

/* The rank's part of the weights, and its bias ({0}: none). The layer owns them. */
KB_API KB_MUST_USE kb_error *kb_tp_layer_weight(kb_context *ctx, kb_tp_layer layer,
                                                kb_tensor *weight);
KB_API KB_MUST_USE kb_error *kb_tp_layer_bias(kb_context *ctx, kb_tp_layer layer, kb_tensor *bias);

/* The times of the last forward call of a layer, on the caller's device; all 0 if the call was
 * recorded in a graph. kb_launch_results() has the times of a graph's launches. */
typedef struct kb_tp_times {
    kb_time total;   /* from the call to its end */
    kb_time gemm;    /* kernels of the product minus the time that PEs waited for communication, on
                        average */
    kb_time kernel;  /* from the first begin of a kernel of the product to the last end,
                        with the communication during it */
    kb_time exposed; /* total - gemm: communication that does not overlap, and launches */
} kb_tp_times;

KB_API KB_MUST_USE kb_error *kb_tp_layer_times(kb_context *ctx, kb_tp_layer layer,
                                               kb_tp_times *times);

/* ---- Regions ----------------------------------------------------------------------------- */

/*
 * Conversions between tensors that are replicated over the ranks of the tensor parallel group and
 * tensors that are split by columns over them. Outputs are as those of layers: {0} makes one.
 */

/* The identity: *output is the input. */
KB_API KB_MUST_USE kb_error *
kb_copy_to_tensor_model_parallel_region(kb_context *ctx, kb_tensor input, kb_tensor *output);

/* The sum over the ranks, in place: *output is the input. */
KB_API KB_MUST_USE kb_error *
kb_reduce_from_tensor_model_parallel_region(kb_context *ctx, kb_tensor input, kb_tensor *output);

/* The rank's columns of the input: (.., columns) gives (.., columns / ranks). */
KB_API KB_MUST_USE kb_error *
kb_scatter_to_tensor_model_parallel_region(kb_context *ctx, kb_tensor input, kb_tensor *output);

/* The columns of all ranks, side by side: (.., columns) gives (.., columns * ranks). */
KB_API KB_MUST_USE kb_error *
kb_gather_from_tensor_model_parallel_region(kb_context *ctx, kb_tensor input, kb_tensor *output);

/* ---- Parallel cross-entropy -------------------------------------------------------------- */

/*
 * Of logits (.., vocabulary / ranks), split by columns over the ranks, and targets, I32, one for
 * each row of logits. Results are F32 with one element for each row, the same bits on all ranks;
 * outputs are as those of layers. The first three are the steps of the last:
 *
 *     loss = log(sum of exp(logit - max)) - (logit of the target - max)
 */

/* The largest logit of each row. */
KB_API KB_MUST_USE kb_error *kb_vocab_parallel_max(kb_context *ctx, kb_tensor logits,
                                                   kb_tensor *max);

/* The sum of exp(logit - max) of each row. */
KB_API KB_MUST_USE kb_error *kb_vocab_parallel_sum_exp(kb_context *ctx, kb_tensor logits,
                                                       kb_tensor max, kb_tensor *sum);

/* The logit of the target minus the maximum. A target that no rank has gives 0. */
KB_API KB_MUST_USE kb_error *kb_vocab_parallel_predicted_logit(kb_context *ctx, kb_tensor logits,
                                                               kb_tensor targets, kb_tensor max,
                                                               kb_tensor *predicted);
KB_API KB_MUST_USE kb_error *kb_vocab_parallel_cross_entropy(kb_context *ctx, kb_tensor logits,
                                                             kb_tensor targets, kb_tensor *loss);

#ifdef __cplusplus
}
#endif

#endif
