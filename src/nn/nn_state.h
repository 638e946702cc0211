/*
 * nn_state.h: the state of nn in a context: plans of kernels, and tensors that they need on each
 * device. Private to nn.
 *
 * A plan has the numbers that a kernel reads with tl_user(); they follow from the shapes and
 * layouts of a call. Running kernels and recorded graphs read it, so it lives as long as the
 * context. A call like an earlier one uses the same plan and allocates nothing.
 */
#ifndef KB_NN_STATE_H
#define KB_NN_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

#include "base/base.h"
#include "rt/rt.h"
#include "tp/tp.h"

typedef struct nn_plan nn_plan;

/* Frequencies of a rotation on a device: see rope.h. */
typedef struct nn_frequencies {
    struct nn_frequencies *next;
    uint32_t sip, pairs;
    kb_tensor tensor;
    float numbers[];
} nn_frequencies;

/* A temporary tensor for calls in a stream: see argmax.c. */
typedef struct nn_buffer {
    struct nn_buffer *next;
    uint32_t sip;
    kb_stream stream;
    uint64_t rows, columns;
    kb_tensor tensor; /* F32, on one PE */
} nn_buffer;

typedef struct nn_state {
    kb_context *ctx;
    nn_plan *plans;
    nn_frequencies *frequencies;
    nn_buffer *buffers;
} nn_state;

/* Creates the state at the first call. */
KB_MUST_USE kb_error *nn_get_state(kb_context *ctx, nn_state **state);

/* The kernel with a plan as its user pointer: a copy of the `bytes` of `plan`, made at the first
 * call with such a plan. Plans are compared byte by byte: they contain only numbers, and padding of
 * 0. */
KB_MUST_USE kb_error *nn_get_kernel(kb_context *ctx, const kb_kernel *kernel, const void *plan,
                                    size_t bytes, const kb_kernel **planned);

/* The buffer of this size, for calls in this stream. The state owns it. */
KB_MUST_USE kb_error *nn_get_buffer(kb_context *ctx, uint32_t sip, kb_stream stream, uint64_t rows,
                                    uint64_t columns, kb_tensor *tensor);

#endif
