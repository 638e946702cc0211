/*
 * nn.h: layers of transformers, as kernels over all PEs of a device.
 *
 * Tensors are in HBM of one device, in any layout. A matrix is a tensor seen as (product of all
 * axes but the last, last axis).
 */
#ifndef KERNBENCH_NN_H
#define KERNBENCH_NN_H

#include <kernbench/kernbench.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Rotary position embedding ----------------------------------------------------------- */

/* Which elements of a head are rotated together, if `dims` of them are. */
typedef enum kb_rope_style {
    KB_ROPE_NONE,       /* none: there is no rotation */
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
    uint32_t dims; /* of a head, that are rotated: the first ones, an even number; 0: all */
    kb_rope_scaling scaling;
    double factor;                            /* LINEAR, LLAMA3: at least 1 */
    double low_freq_factor, high_freq_factor; /* LLAMA3: the second is larger */
    uint64_t original_max_position;           /* LLAMA3: tokens of the original context */
} kb_rope;

/*
 * Puts the frequencies of this rotation on the device. A call that rotates does so itself if they
 * are not there, but not while it is recorded in a graph: then it needs this call before.
 */
KB_API KB_MUST_USE kb_error *kb_rope_prepare(kb_context *ctx, uint32_t sip, const kb_rope *rope,
                                             uint32_t head_dim);

#ifdef __cplusplus
}
#endif

#endif
