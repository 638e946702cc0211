/*
 * explain_report.h: what the commands about critical paths share. They read paths from documents,
 * which runs make (run_path.h) and stores keep.
 *
 *     cmd_explain.c    the command `explain`
 *     explain_text.c   a critical path as text
 */
#ifndef KB_CLI_EXPLAIN_H
#define KB_CLI_EXPLAIN_H

#include <jansson.h>

#include "base/base.h"
#include "obs/obs.h"

/* Members of documents; 0 or "" if there is none. */
kb_time explain_fs(const json_t *object, const char *key);
obs_number explain_ns(kb_time time); /* of a difference: "-1.250" */
const char *explain_string(const json_t *object, const char *key);

/* The headline, the verdict of the summary if it differs, and notes. */
void explain_print_headline(const json_t *path);

/* The path by cause and source line, its longest steps and, if `steps`, itself. `verbose`: by all
 * other keys too, with what each step consists of. */
KB_MUST_USE kb_code explain_print_groups(const json_t *path, bool verbose, bool steps);

/* The bound, and the time beyond it by cause. */
KB_MUST_USE kb_code explain_print_bound(const json_t *path);

#endif
