/*
 * run_path.h: the critical path of a run as JSON: the member "critical_path" of its document.
 *
 *     run_path *path = NULL;
 *     run_options o = {.op = on_op, .reasons = true, .ready = on_ready, .done = on_done, ...};
 *     in on_ready:  return run_path_begin(ctx, RUN_PATH_BYTES, &path);
 *     in on_op:     run_path_op(path, op);
 *     in on_done:   json_t *document = run_path_json(path, outcome, details);
 *     run_path_end(path);
 */
#ifndef KB_CLI_RUN_PATH_H
#define KB_CLI_RUN_PATH_H

#include <jansson.h>

#include "explain/explain.h"
#include "run_once.h"

/* Of records, unless the user says otherwise: 2^26 operations. */
#define RUN_PATH_BYTES ((uint64_t)4 << 30)

enum { RUN_PATH_STEPS = 2000 }; /* of a document that is kept */

typedef struct run_path run_path;

KB_MUST_USE kb_error *run_path_begin(kb_context *ctx, uint64_t max_bytes, run_path **path);
void run_path_op(run_path *path, const kb_op *op);
void run_path_end(run_path *path);

/* The path of the run, up to its end or its failure; good until run_path_end(). */
KB_MUST_USE kb_error *run_path_find(run_path *path, const run_outcome *outcome,
                                    const explain_path **found);

/* `steps`: how many steps of the path the document has at most, the longest in the order of time.
 */
KB_MUST_USE kb_error *run_path_json(run_path *path, const run_outcome *outcome, size_t steps,
                                    json_t **document);

/* In short: "signature", "waits", and "most": the resource that most of the path is spent at. */
KB_MUST_USE kb_error *run_path_brief(run_path *path, const run_outcome *outcome, json_t **document);

#endif
