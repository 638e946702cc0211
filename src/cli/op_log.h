/*
 * op_log.h: the operations of a run as compressed text, which the store keeps (run --save-ops).
 *
 * It is CSV in the format of gzip: a line of titles, then one line an operation, in the order in
 * which they were recorded. docs/store.md has the columns.
 */
#ifndef KB_CLI_OP_LOG_H
#define KB_CLI_OP_LOG_H

#include "base/base.h"

#include <kernbench/kernbench.h>

#include <stdio.h>

typedef struct op_log op_log;

KB_MUST_USE kb_error *op_log_create(op_log **log);
void op_log_destroy(op_log *log); /* NULL does nothing */

/* An error is kept, and returned at the end. */
void op_log_add(op_log *log, const kb_op *op);

/* The compressed text, which stays the log's. */
KB_MUST_USE kb_error *op_log_finish(op_log *log, const void **bytes, size_t *size);

/* Writes the text of compressed bytes to a file. */
KB_MUST_USE kb_error *op_log_print(const kb_text *bytes, FILE *file);

#endif
