/*
 * device.h: tensors on one device, for the folders above as well: a launch with the tensor of
 * tp_get_everywhere() runs on all PEs of a device.
 */
#ifndef KB_TP_DEVICE_H
#define KB_TP_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

typedef struct tp_state tp_state;

/* Made at the first call that needs it. */
KB_MUST_USE kb_error *tp_get_state(kb_context *ctx, tp_state **state);

/* A tensor that each PE of the device has: a launch with it runs on all of them. */
KB_MUST_USE kb_error *tp_get_everywhere(tp_state *state, uint32_t sip, kb_tensor *tensor);

/* A tensor on a device, in HBM; by columns over all PEs if there is no policy. */
KB_MUST_USE kb_error *tp_make_tensor(kb_context *ctx, uint32_t sip, const kb_tensor_spec *spec,
                                     kb_tensor *tensor);

/* An output of this shape and dtype: the one that is given, or a new one. */
KB_MUST_USE kb_error *tp_take_output(kb_context *ctx, const char *function, uint32_t sip,
                                     const char *name, const kb_shape *shape, kb_dtype dtype,
                                     kb_tensor *output);

/* After an error: frees the output if it was made here. */
KB_MUST_USE kb_error *tp_end_output(kb_context *ctx, kb_error *err, bool was_given,
                                    kb_tensor *output);

/* The value in another dtype; itself if it has that. If it is another one, x is freed. */
tl_tensor tp_cast(tl_context *tl, tl_tensor x, kb_dtype from, kb_dtype to);

#endif
