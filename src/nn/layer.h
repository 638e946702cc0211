/*
 * layer.h: the host side of all layers: checks of tensors, outputs, launches. Private to nn.
 */
#ifndef KB_NN_LAYER_H
#define KB_NN_LAYER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>
#include <kernbench/nn.h>

#include "nn_state.h"

/* A call of a layer, while its tensors are checked. */
typedef struct nn_call {
    kb_context *ctx;
    const char *function; /* for messages */
    uint32_t sip;         /* of the first tensor, or of the cache */
    bool has_sip;
} nn_call;

/* Sets of dtypes. */
#define NN_DTYPE(dtype) (1u << (dtype))
#define NN_ALL_DTYPES ((1u << KB_DTYPES) - 1)
#define NN_FLOATS (NN_DTYPE(KB_F16) | NN_DTYPE(KB_BF16) | NN_DTYPE(KB_F32))

/* Checks that the tensor is on the call's device and has one of the dtypes. If the call has no
 * device yet, it gets the tensor's. */
KB_MUST_USE kb_error *nn_check_tensor(nn_call *call, const char *what, kb_tensor tensor,
                                      unsigned dtypes, rt_tensor_view *seen);

/* The view of a checked tensor. By cube: see tp/matrix_view.h. */
KB_MUST_USE kb_error *nn_make_view(const nn_call *call, const char *what, kb_tensor tensor,
                                   bool by_cube, tp_view *view);

/* Checks that the tensor is in HBM of the call's device and has one of the dtypes. */
KB_MUST_USE kb_error *nn_take_input(nn_call *call, const char *what, kb_tensor tensor,
                                    unsigned dtypes, tp_view *view);

/* The same for a vector with one element for each column. Its view is a matrix of one row. */
KB_MUST_USE kb_error *nn_take_vector(nn_call *call, const char *what, kb_tensor tensor,
                                     int64_t columns, tp_view *view);

/* An error unless the two matrices have the same size. */
KB_MUST_USE kb_error *nn_check_size(const nn_call *call, const char *what, const tp_view *view,
                                    const tp_view *expected);

/* An error unless there is one copy of the output, or one at each PE of the device. */
KB_MUST_USE kb_error *nn_check_copies(const nn_call *call, const char *what, const tp_view *view);

/* The requirements for an output. */
typedef struct nn_output_spec {
    const char *what;   /* for messages; the name of a new output */
    kb_shape shape;     /* of a new output; a given one is a matrix of the same size */
    kb_dtype dtype;     /* of a new output */
    unsigned dtypes;    /* allowed for a given one */
    kb_tensor like;     /* a new output gets its layout; {0}: on one PE, or: */
    bool is_by_columns; /* split by columns over all PEs */
    const char *name;   /* of the layer, for a new output; NULL: `what` */
} nn_output_spec;

/* An output: the given one, or a new one. */
typedef struct nn_output {
    kb_tensor *tensor;
    bool was_given;
} nn_output;

KB_MUST_USE kb_error *nn_take_output(nn_call *call, const nn_output_spec *spec, kb_tensor *tensor,
                                     nn_output *output, tp_view *view);

/* The same for an output with an element for each of the rows: a given one has any shape. */
KB_MUST_USE kb_error *nn_take_rows_output(nn_call *call, const nn_output_spec *spec, int64_t rows,
                                          kb_tensor *tensor, nn_output *output, tp_view *view);

/* After an error: frees the new outputs. Returns the error. */
KB_MUST_USE kb_error *nn_end_outputs(const nn_call *call, kb_error *err, nn_output *outputs,
                                     size_t count);

/*
 * A launch on all PEs of the call's device. Its last argument is a tensor with a copy on each PE.
 */
typedef struct nn_launch_spec {
    const char *name; /* NULL: the kernel's */
    const kb_kernel *kernel;
    const void *plan; /* see nn_get_kernel() */
    size_t plan_bytes;
    const kb_tensor *tensors; /* its arguments; {0} becomes the address 0 */
    size_t tensor_count;
    kb_queue_set queues;
    kb_stream stream;
    kb_request *request;
} nn_launch_spec;

KB_MUST_USE kb_error *nn_launch(const nn_call *call, const nn_launch_spec *spec);

/* The shape without its last axis: one element for each row. (1) if no axis is left. */
kb_shape nn_shape_of_rows(const kb_shape *shape);

#endif
