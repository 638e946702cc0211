/*
 * rope.h: rotary position embedding, for layers and attention. Private to nn.
 *
 * A kernel loads the frequencies of a rotation once (nn_get_frequencies() creates the tensor on the
 * host), computes cosines and sines of its positions, and rotates heads with them:
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

/* If the rotation has invalid values: an error with the function's name. */
KB_MUST_USE kb_error *nn_check_rope(const char *function, const kb_rope *rope, uint32_t head_dim);

/* The number of rotated pairs of elements; 0 without a rotation. The rope has been checked. */
uint32_t nn_rope_pairs(const kb_rope *rope, uint32_t head_dim);

/* nn_rope_pairs() frequencies, in radians per position. The rope has been checked. */
void nn_rope_frequencies(const kb_rope *rope, uint32_t head_dim, float *inv_freq);

/* The frequencies as an F32 tensor of (pairs), with a copy on each PE of the device; {0} without a
 * rotation. Created at the first call, which is an error while a graph is recorded (see
 * kb_rope_prepare()), and kept as long as the context. */
KB_MUST_USE kb_error *nn_get_frequencies(kb_context *ctx, const char *function, uint32_t sip,
                                         const kb_rope *rope, uint32_t head_dim, kb_tensor *tensor);

/* ---- In kernels ---- */

/* The shape of the rotated heads. */
typedef struct nn_heads {
    int64_t tokens, heads, head_dim;
    kb_rope_style style;
    int64_t pairs; /* nn_rope_pairs() */
} nn_heads;

/* Cosines and sines, F32, (tokens, 1, pairs); or (1, 1, pairs) for all tokens. */
typedef struct nn_angles {
    tl_tensor cosines, sines, minus_sines;
} nn_angles;

/* (1, pairs), F32, from a tensor of nn_get_frequencies(). */
tl_tensor nn_load_frequencies(tl_context *tl, tl_ptr frequencies, int64_t pairs);

/* For one position. */
nn_angles nn_angles_at(tl_context *tl, tl_tensor frequencies, int64_t pairs, int64_t position);

/* For positions (tokens, 1), I32 or F32. */
nn_angles nn_angles_of(tl_context *tl, tl_tensor frequencies, int64_t pairs, tl_tensor positions,
                       int64_t tokens);

void nn_free_angles(tl_context *tl, const nn_angles *angles);

/*
 * Rotates x, with the elements of (tokens, heads, head_dim), in f16, bf16 or f32. The result is
 * F32, (tokens * heads, head_dim); x is not consumed. Without pairs it is a cast. Takes four passes
 * of the vector engine over the rotated elements, of which two only move elements (one, for one
 * token of one head with half-split rotation), and further ones over the rest of a head, if any.
 */
tl_tensor nn_rotate(tl_context *tl, const nn_heads *h, tl_tensor x, const nn_angles *angles);

/* Separate elements of pairs, as strided loads produce them: pair i is first[i] and second[i]. Both
 * have the elements of (tokens, heads, pairs). */
typedef struct nn_pairs {
    tl_tensor first, second;
} nn_pairs;

/* Rotates them: F32, (tokens, heads, pairs). Takes two passes; x is not consumed. */
nn_pairs nn_rotate_pairs(tl_context *tl, const nn_heads *h, const nn_pairs *x,
                         const nn_angles *angles);

#endif
