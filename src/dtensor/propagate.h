/* propagate.h: chooses rules for an operation, and redistributes its operands for them. */
#ifndef KB_DTENSOR_PROPAGATE_H
#define KB_DTENSOR_PROPAGATE_H

#include "frame.h"
#include "rules.h"

/* Redistributes the operands if no rules fit their placements. *result: the placements of the
 * result; *report: what was redistributed. `b` may be NULL. */
KB_MUST_USE kb_error *dt_propagate(dt_frame *frame, const char *op, const dt_problem *problem,
                                   dt_value *a, dt_value *b, kb_placements *result,
                                   kb_dtensor_report *report);

#endif
