/* path_document.h: documents of runs with critical paths, from stores and files. */
#ifndef KB_CLI_PATH_DOCUMENT_H
#define KB_CLI_PATH_DOCUMENT_H

#include <jansson.h>

#include "base/base.h"

/*
 * The document of a run: `name` is a file (run --json, runs export, explain --json), or else a run
 * of the store: its id, a prefix of it, or "@last". It has a critical path. Errors are reported.
 */
KB_MUST_USE kb_code path_document_load(const char *name, const char *store_path, json_t **document);

#endif
