/* path_document.c: documents of runs with critical paths. */
#include "path_document.h"

#include <unistd.h>

#include "cli.h"
#include "store/store.h"

static kb_code load_file(const char *name, json_t **document)
{
    json_error_t error;
    *document = json_load_file(name, 0, &error);
    if (!*document)
        return cli_fail(KB_ERR_INPUT, "%s:%d:%d: no JSON document: %s", name, error.line,
                        error.column, error.text);
    return KB_OK;
}

static kb_code load_run(const char *name, const char *store_path, json_t **document)
{
    store *s;
    int64_t run;
    kb_error *err = store_open(store_path, STORE_READ, &s);
    if (err)
        return cli_report(err);
    err = store_find(s, name, &run);
    if (!err)
        err = store_get_document(s, run, document);
    store_close(s);
    return err ? cli_report(err) : KB_OK;
}

kb_code path_document_load(const char *name, const char *store_path, json_t **document)
{
    *document = NULL;
    kb_code code =
        access(name, F_OK) == 0 ? load_file(name, document) : load_run(name, store_path, document);
    if (code != KB_OK || json_is_object(json_object_get(*document, "critical_path")))
        return code;
    json_decref(*document);
    *document = NULL;
    return cli_fail(KB_ERR_INPUT,
                    "%s has no critical path: it is kept by run --save, and printed by explain "
                    "--json",
                    name);
}
