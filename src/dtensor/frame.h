/*
 * frame.h: the temporary objects of one public call. Everything in a frame is freed when the call
 * ends, also if its worker is stopped meanwhile, except for tensors that become part of the result.
 */
#ifndef KB_DTENSOR_FRAME_H
#define KB_DTENSOR_FRAME_H

#include "dtensor_state.h"

typedef struct dt_frame {
    kb_context *ctx;
    const char *function; /* for messages: the public call */
    kb_arena arena;
    KB_VEC(kb_tensor) tensors;
    KB_VEC(kb_request) requests; /* pending; only outside workers */
    kb_cleanup cleanup;
} dt_frame;

/*
 * An error if the caller records a graph, because temporary tensors would not exist when it runs.
 */
KB_MUST_USE kb_error *dt_frame_begin(dt_frame *frame, kb_context *ctx, const char *function);

/* Frees what was not kept. Returns the error, prefixed by the name of the function. */
KB_MUST_USE kb_error *dt_frame_end(dt_frame *frame, kb_error *err);

/* A logical tensor during a call. */
typedef struct dt_value {
    dt_mesh *mesh;
    const char *name;
    kb_shape shape; /* of the whole */
    kb_dtype dtype;
    kb_placements placements;
    kb_tensor *locals; /* by driven position */
    bool temporary;    /* made in this frame: may be modified, and become the result */
} dt_value;

/* ---- Local tensors ---- */

/* A row-major tensor on a device, in rows over all PEs. */
KB_MUST_USE kb_error *dt_new_tensor(dt_frame *frame, uint32_t device, const char *name,
                                    kb_dtype dtype, const kb_shape *shape, kb_tensor *tensor);

/* The same, filled. */
KB_MUST_USE kb_error *dt_new_filled(dt_frame *frame, uint32_t device, const char *name,
                                    kb_dtype dtype, const kb_shape *shape, double value,
                                    kb_tensor *tensor);

/* An array for local tensors, all zero. */
KB_MUST_USE kb_error *dt_new_array(dt_frame *frame, const dt_mesh *mesh, kb_tensor **locals);

/* New local tensors for the value's shape and placements. */
KB_MUST_USE kb_error *dt_new_locals(dt_frame *frame, dt_value *value);

/* Copies local tensors that are not row-major to ones that are. */
KB_MUST_USE kb_error *dt_make_row_major(dt_frame *frame, dt_value *value);

/* Removes the tensor from the frame. */
void dt_keep(dt_frame *frame, kb_tensor tensor);

/* ---- Work ---- */

/* Runs the kernel for a driven position. Its first argument must be the position's grid, a byte on
 * every PE of the device: so the launch runs on all PEs. Waits in workers; outside workers,
 * dt_wait() does. */
KB_MUST_USE kb_error *dt_launch(dt_frame *frame, const char *name, const kb_kernel *kernel,
                                const kb_arg *args, size_t count);

/* *where: the place for the request of an asynchronous call, to be added right after; NULL in
 * workers, where the call must wait. */
KB_MUST_USE kb_error *dt_request_room(dt_frame *frame, kb_request *request, kb_request **where);
void dt_add_request(dt_frame *frame, kb_request request);

/* Waits for all pending requests. */
KB_MUST_USE kb_error *dt_wait(dt_frame *frame);

/* A collective along a dimension of the mesh, for all driven positions; waits. */
typedef struct dt_collective {
    const dt_mesh *mesh;
    uint32_t dim;
    kb_collective_kind kind;
    kb_reduce_op op;
    uint32_t root;                     /* coordinate along the dimension */
    const kb_tensor *inputs, *outputs; /* by driven position; the same in place */
} dt_collective;

KB_MUST_USE kb_error *dt_call(dt_frame *frame, const dt_collective *call);

#endif
