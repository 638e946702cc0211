/*
 * rope.h: rotary position embedding, for the layers and for attention. Private to nn.
 *
 * A kernel loads the frequencies of a rotation once (nn_get_frequencies() on the host makes the
 * tensor), makes cosines and sines of its positions, and rotates heads with them:
 *
 *     tl_tensor frequencies = nn_load_frequencies(tl, address, pairs);
 *     nn_angles angles = nn_angles_at(tl, frequencies, pairs, position);
 *     tl_tensor rotated = nn_rotate(tl, &heads, x, &angles);
 */
#ifndef KB_NN_ROPE_H
#define KB_NN_ROPE_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/kernbench.h>
#include <kernbench/nn.h>
#include <kernbench/tl.h>

/* ---- Host ---- */

/* An error that begins with the function's name if the rotation has invalid values. */
KB_MUST_USE kb_error *nn_check_rope(const char *function, const kb_rope *rope, uint32_t head_dim);

/* Pairs of elements that are rotated; 0 if there is no rotation. The rope has been checked. */
uint32_t nn_rope_pairs(const kb_rope *rope, uint32_t head_dim);

/* nn_rope_pairs() numbers, in radians per position. The rope has been checked. */
void nn_rope_frequencies(const kb_rope *rope, uint32_t head_dim, float *inv_freq);

/*
 * The same as an F32 tensor of (pairs), with a copy at each PE of the device; {0} if there is no
 * rotation. Made at the first call and kept as long as the context. That call is an error while a
 * graph is recorded (see kb_rope_prepare()).
 */
KB_MUST_USE kb_error *nn_get_frequencies(kb_context *ctx, const char *function, uint32_t sip,
                                         const kb_rope *rope, uint32_t head_dim, kb_tensor *tensor);

/* ---- In kernels ---- */

/* What is rotated: heads of tokens. */
typedef struct nn_heads {
    int64_t tokens, heads, head_dim;
    kb_rope_style style;
    int64_t pairs; /* as nn_rope_pairs() says */
} nn_heads;

/* Cosines and sines, F32, (tokens, 1, pairs); or (1, 1, pairs) for all tokens. */
typedef struct nn_angles {
    tl_tensor cosines, sines, minus_sines;
} nn_angles;

/* (1, pairs), F32, from a tensor of nn_get_frequencies(). */
tl_tensor nn_load_frequencies(tl_context *tl, tl_ptr frequencies, int64_t pairs);

/* Of one position. */
nn_angles nn_angles_at(tl_context *tl, tl_tensor frequencies, int64_t pairs, int64_t position);

/* Of positions (tokens, 1), I32 or F32. */
nn_angles nn_angles_of(tl_context *tl, tl_tensor frequencies, int64_t pairs, tl_tensor positions,
                       int64_t tokens);

void nn_free_angles(tl_context *tl, const nn_angles *angles);

/*
 * Rotates x, whose elements are those of (tokens, heads, head_dim) in f16, bf16 or f32. The result
 * is F32, (tokens * heads, head_dim); x stays. Without pairs it is a cast. Takes four passes of the
 * vector engine over what is rotated, of which two only move elements (one, if there is one token
 * of one head and halves are rotated), and further ones over the rest of a head, if there is one.
 */
tl_tensor nn_rotate(tl_context *tl, const nn_heads *is, tl_tensor x, const nn_angles *angles);

/* Elements that are apart, as strided loads make them: pair i is first[i] and second[i]. Both have
 * the elements of (tokens, heads, pairs). */
typedef struct nn_pairs {
    tl_tensor first, second;
} nn_pairs;

/* Rotates them: F32, (tokens, heads, pairs). Takes two passes; x stays. */
nn_pairs nn_rotate_pairs(tl_context *tl, const nn_heads *is, const nn_pairs *x,
                         const nn_angles *angles);

#endif
