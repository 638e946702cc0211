/*
 * nn.h: layers of transformers, as kernels over all PEs of a device.
 *
 *     #include <kernbench/kernbench.h>
 *     #include <kernbench/nn.h>
 *
 *     static kb_error *activate(kb_context *ctx, kb_tensor x, kb_tensor residual, kb_tensor gain)
 *     {
 *         kb_norm_outputs normed = {0};
 *         kb_tensor activated = {0};
 *         const kb_norm_spec norm = {.x = x, .residual = residual, .gain = gain};
 *         KB_TRY(kb_rms_norm(ctx, &norm, &normed));
 *         const kb_gelu_spec gelu = {.x = normed.out};
 *         KB_TRY(kb_gelu(ctx, &gelu, &activated));
 *         KB_TRY(kb_tensor_free(ctx, normed.out));
 *         KB_TRY(kb_tensor_free(ctx, normed.sum));
 *         return kb_tensor_free(ctx, activated);
 *     }
 *
 * Tensors are in HBM of one device, in any layout and size. A matrix is a tensor seen as
 * (product of all axes but the last, last axis), so activations may be (tokens, features) or
 * (batch, tokens, features). Activations are F16, BF16 or F32; layers compute in f32 and round each
 * element of their output once.
 *
 * Each call is one kernel. Its spec names the inputs; fields that are 0 have defaults:
 *     .name       of the launch and of new outputs; NULL: that of the layer
 *     .stream     0: the default stream
 *     .request    NULL: the call waits. Else it returns at once, with a request to be waited
 *                 for and freed
 * Calls can be recorded in graphs.
 *
 * For an output of {0} a new tensor is made, in the layout of x unless noted, and the caller frees
 * it. Otherwise the given one is used: a matrix of the right size, in any layout, with one copy, or
 * one on each PE.
 *
 * docs/layers.md has formulas, costs and times.
 */
#ifndef KERNBENCH_NN_H
#define KERNBENCH_NN_H

#include <kernbench/kernbench.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Rotary position embedding ----------------------------------------------------------- */

/* The pairs of elements of a head that are rotated, for `dims` rotated elements. */
typedef enum kb_rope_style {
    KB_ROPE_NONE,       /* no rotation */
    KB_ROPE_HALF_SPLIT, /* i and i + dims / 2: Llama, GPT-NeoX */
    KB_ROPE_INTERLEAVED /* 2 * i and 2 * i + 1: GPT-J */
} kb_rope_style;

/* How frequencies are changed for contexts longer than those of the training. */
typedef enum kb_rope_scaling {
    KB_ROPE_UNSCALED,
    KB_ROPE_LINEAR, /* all divided by `factor` */
    KB_ROPE_LLAMA3  /* those with a wave longer than original_max_position / low_freq_factor are
                       divided by `factor`, those with one shorter than original_max_position /
                       high_freq_factor stay, and those between are interpolated: Llama 3.1 */
} kb_rope_scaling;

/*
 * Element pair i of a head at position p is rotated by the angle p * frequency(i), where
 * frequency(i) = base ^ (-2 * i / dims), scaled. All zeros: no rotation.
 */
typedef struct kb_rope {
    kb_rope_style style;
    double base;   /* theta; 0: 10000 */
    uint32_t dims; /* rotated elements of a head: the first ones, an even number; 0: all */
    kb_rope_scaling scaling;
    double factor;                            /* LINEAR, LLAMA3: at least 1 */
    double low_freq_factor, high_freq_factor; /* LLAMA3: the second is larger */
    uint64_t original_max_position;           /* LLAMA3: tokens of the original context */
} kb_rope;

/* Writes the frequencies of a rotation to the device. A call that rotates does so itself if
 * necessary, but not while it is recorded in a graph: then this call must precede it. */
KB_API KB_MUST_USE kb_error *kb_rope_prepare(kb_context *ctx, uint32_t sip, const kb_rope *rope,
                                             uint32_t head_dim);

/*
 * Rotates the heads of x (tokens, heads * head_dim) by the positions, I32, one for each token. The
 * output may be x itself.
 */
typedef struct kb_rope_spec {
    const char *name;
    kb_tensor x, positions;
    uint32_t head_dim; /* divides the columns of x */
    kb_rope rope;
    kb_stream stream;
    kb_request *request;
} kb_rope_spec;

KB_API KB_MUST_USE kb_error *kb_rope_apply(kb_context *ctx, const kb_rope_spec *spec,
                                           kb_tensor *out);

/* ---- Normalisation ----------------------------------------------------------------------- */

/* Whether the output of a norm is quantised, with a scale for each row. */
typedef enum kb_quantisation {
    KB_NOT_QUANTISED,
    KB_QUANTISED_F8E4M3, /* scale = largest magnitude of the row / 448 */
    KB_QUANTISED_I8      /* scale = largest magnitude of the row / 127; to nearest, ties to even */
} kb_quantisation;

typedef struct kb_norm_spec {
    const char *name;
    kb_tensor x;
    kb_tensor residual; /* of the size of x: normalises x + residual, rounded to the
                           residual's dtype; {0}: x */
    kb_tensor gain;     /* (columns); {0}: 1 */
    kb_tensor bias;     /* (columns), of kb_layer_norm() alone; {0}: 0 */
    double eps;         /* 0: 1e-5 */
    kb_quantisation quantisation;
    kb_stream stream;
    kb_request *request;
} kb_norm_spec;

typedef struct kb_norm_outputs {
    kb_tensor out;    /* a new one has the dtype of x; it may be x or the residual itself */
    kb_tensor sum;    /* x + residual; only with a residual. It may be x or the residual itself */
    kb_tensor scales; /* F32, an element for each row; only if the output is quantised. A new
                         one is on one PE */
} kb_norm_outputs;

/* out = x / sqrt(mean(x^2) + eps) * gain, for each row. If quantised, out * scale is this value. */
KB_API KB_MUST_USE kb_error *kb_rms_norm(kb_context *ctx, const kb_norm_spec *spec,
                                         kb_norm_outputs *outputs);

/* out = (x - mean(x)) / sqrt(variance(x) + eps) * gain + bias, for each row. */
KB_API KB_MUST_USE kb_error *kb_layer_norm(kb_context *ctx, const kb_norm_spec *spec,
                                           kb_norm_outputs *outputs);

/* ---- Element by element ------------------------------------------------------------------ */

/*
 * Outputs may be replicated, also partly: each PE computes its own shards. Outputs may
 * be one of the inputs, except for kb_swiglu() with pairs.
 */

typedef struct kb_swiglu_spec {
    const char *name;
    kb_tensor gate;
    kb_tensor up; /* of the size of gate. {0}: gate has both, in columns that alternate (gate, up),
                     and the output half as many columns */
    kb_stream stream;
    kb_request *request;
} kb_swiglu_spec;

/* out = silu(gate) * up; a new one has the dtype of gate. silu(x) = x / (1 + exp(-x)). */
KB_API KB_MUST_USE kb_error *kb_swiglu(kb_context *ctx, const kb_swiglu_spec *spec, kb_tensor *out);

typedef struct kb_gelu_spec {
    const char *name;
    kb_tensor x;
    kb_stream stream;
    kb_request *request;
} kb_gelu_spec;

/* out = x * (1 + erf(x / sqrt(2))) / 2 */
KB_API KB_MUST_USE kb_error *kb_gelu(kb_context *ctx, const kb_gelu_spec *spec, kb_tensor *out);

typedef struct kb_add_spec {
    const char *name;
    kb_tensor a, b; /* of the same size */
    kb_stream stream;
    kb_request *request;
} kb_add_spec;

/* out = a + b; a new one has the dtype of a. */
KB_API KB_MUST_USE kb_error *kb_add(kb_context *ctx, const kb_add_spec *spec, kb_tensor *out);

/* ---- Vocabulary -------------------------------------------------------------------------- */

typedef struct kb_embedding_spec {
    const char *name;
    kb_tensor table;  /* (vocabulary, features), of any dtype */
    kb_tensor tokens; /* I32, of any shape */
    bool out_by_cube; /* the given output has a copy in each cube: (cubes * tokens,
                         features), whose rows are split over the cubes */
    kb_stream stream;
    kb_request *request;
} kb_embedding_spec;

/*
 * The rows of the table that the tokens select: (tokens.., features). A new output has the table's
 * dtype and is split by columns over all PEs. A token outside the table stops the kernel with an
 * error. A timing-only run knows the tokens if they are an index tensor (kb_tensor_spec.is_index);
 * otherwise it uses rows that are spread over the table.
 */
KB_API KB_MUST_USE kb_error *kb_embedding(kb_context *ctx, const kb_embedding_spec *spec,
                                          kb_tensor *out);

typedef struct kb_argmax_spec {
    const char *name;
    kb_tensor logits; /* (.., vocabulary) */
    kb_stream stream;
    kb_request *request; /* not of kb_vocab_parallel_argmax(), which waits */
} kb_argmax_spec;

/* The column of the largest element of each row, I32; of equal elements the first. NaN counts as
 * larger than any number. A new output is on one PE, without the last axis of the logits. */
KB_API KB_MUST_USE kb_error *kb_argmax(kb_context *ctx, const kb_argmax_spec *spec, kb_tensor *out);

/* The same for logits (.., vocabulary / ranks) that are split by columns over the ranks of the
 * tensor parallel group (kernbench/tp.h): columns of the whole vocabulary, equal on all ranks. All
 * ranks call it. */
KB_API KB_MUST_USE kb_error *kb_vocab_parallel_argmax(kb_context *ctx, const kb_argmax_spec *spec,
                                                      kb_tensor *out);

#ifdef __cplusplus
}
#endif

#endif
