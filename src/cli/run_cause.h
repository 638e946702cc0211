/* run_cause.h: the cause that the critical path of a run names, and how it compares with what the
 * summary of the run says. */
#ifndef KB_CLI_RUN_CAUSE_H
#define KB_CLI_RUN_CAUSE_H

#include <jansson.h>

#include "explain/explain.h"
#include "run_once.h"

/* Adds "cause", "headline", "notes", "verdict" and "agrees" to the object; and "bound". */
KB_MUST_USE kb_error *run_cause_add(const explain_path *path, const run_outcome *outcome,
                                    json_t **object);

#endif
