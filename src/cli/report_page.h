/*
 * report_page.h: reports as one HTML file that needs nothing else. Its style and its scripts are in
 * templates/report; the data are one JSON document in it.
 *
 *     {"kind": "run", "title": "gemm on default", "command": "kernbench run ...", ...}
 *
 * Common members: kind, title, command (or null), version (added here), document (what the command
 * prints with --json). docs/reports.md has the others.
 */
#ifndef KB_CLI_REPORT_PAGE_H
#define KB_CLI_REPORT_PAGE_H

#include <jansson.h>

#include <kernbench/kernbench.h>

#include "base/base.h"

/* Writes the page; takes `data` over, which may be NULL for want of memory. */
KB_MUST_USE kb_error *report_write_page(const char *path, json_t *data);

/*
 * Writes the page of what a command prints with --json: run, probe, traffic or sweep. What it is
 * is found in the document, which stays the caller's.
 */
KB_MUST_USE kb_error *report_write_document(const char *path, const json_t *document,
                                            const char *command);

/* The data of the page of a document that is not of run, with a title made from it; NULL if out of
 * memory. `document` stays the caller's. */
json_t *report_begin_document(const char *kind, const json_t *document, const char *command);

/* The data of a report of this kind; NULL if out of memory. `document` stays the caller's. */
json_t *report_begin(const char *kind, const char *title, const char *command,
                     const json_t *document);

#endif
