/* conversions.h: converts DTensors to values of a call, and back. */
#ifndef KB_DTENSOR_CONVERSIONS_H
#define KB_DTENSOR_CONVERSIONS_H

#include "frame.h"

/* The value of a DTensor. An error if one of its local tensors was freed. */
KB_MUST_USE kb_error *dt_read(dt_frame *frame, const dt_tensor *tensor, dt_value *value);

/* A new DTensor, which takes over the local tensors of a temporary value, or copies those of
 * another one. */
KB_MUST_USE kb_error *dt_finish(dt_frame *frame, dt_value *value, const kb_dtensor_report *report,
                                kb_dtensor *handle);

#endif
