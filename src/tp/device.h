/*
 * device.h: tensors on one device, also for the folders above. A launch with the tensor of
 * tp_get_all_pes_tensor() runs on all PEs of a device.
 */
#ifndef KB_TP_DEVICE_H
#define KB_TP_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

typedef struct tp_state tp_state;

/* Creates the state at the first call. */
KB_MUST_USE kb_error *tp_get_state(kb_context *ctx, tp_state **state);

/* A tensor with a copy on each PE of the device: a launch with it runs on all of them. */
KB_MUST_USE kb_error *tp_get_all_pes_tensor(tp_state *state, uint32_t sip, kb_tensor *tensor);

/* A tensor in the HBM of a device, by columns over all PEs unless a policy is given. */
KB_MUST_USE kb_error *tp_make_tensor(kb_context *ctx, uint32_t sip, const kb_tensor_spec *spec,
                                     kb_tensor *tensor);

/* An output of this shape and dtype: the given tensor, or a new one. */
KB_MUST_USE kb_error *tp_take_output(kb_context *ctx, const char *function, uint32_t sip,
                                     const char *name, const kb_shape *shape, kb_dtype dtype,
                                     kb_tensor *output);

/* After an error: frees the output if tp_take_output() made it. Returns the error. */
KB_MUST_USE kb_error *tp_end_output(kb_context *ctx, kb_error *err, bool was_given,
                                    kb_tensor *output);

/* The value in another dtype; x itself if it has that dtype. Else x is freed. */
tl_tensor tp_cast(tl_context *tl, tl_tensor x, kb_dtype from, kb_dtype to);

#endif
