/*
 * cmd_report.c: the command `report`: the page of a run of a store, or of a document that a command
 * has printed with --json. It shows what the document has; `run --report` shows more, as it sees
 * the run.
 */
#include "cli.h"
#include "files.h"
#include "json.h"
#include "report_page.h"
#include "store/store.h"

#include <string.h>

typedef struct report_args {
    const char *output, *store;
} report_args;

static const cli_option options[] = {
    CLI_OPTION("-o", "FILE", CLI_STRING, report_args, output, "the page to write"),
    CLI_OPTION("--store", "DB", CLI_STRING, report_args, store,
               "the store, a file of run --save; default: kernbench.db"),
};

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), size = strlen(end);
    return length >= size && strcmp(text + length - size, end) == 0;
}

/* ---- Documents --------------------------------------------------------------------------- */

/* What the page is made from. */
typedef struct source {
    json_t *document;
    kb_text command; /* that makes it again; empty: not known */
} source;

static kb_error *read_file(const char *path, source *from)
{
    kb_text text = KB_TEXT_INIT;
    kb_error *err = cli_read_file(path, &text);
    if (!err) {
        json_error_t problem;
        from->document = json_loadb(kb_text_peek(&text), text.length, 0, &problem);
        if (!from->document && json_error_code(&problem) == json_error_out_of_memory)
            err = kb_error_nomem();
        else if (!from->document)
            err = kb_error_new(KB_ERR_INPUT, "%s:%d: not a JSON document: %s", path, problem.line,
                               problem.text);
    }
    kb_text_fini(&text);
    return err;
}

static kb_error *note_command(void *self, const store_row *row)
{
    source *from = self;
    if (row->command)
        kb_text_puts(&from->command, row->command);
    return NULL;
}

static kb_error *read_run(store *s, const char *name, source *from)
{
    int64_t run;
    KB_TRY(store_find(s, name, &run));
    KB_TRY(store_get_document(s, run, &from->document));
    if (!from->document)
        return kb_error_new(KB_ERR_INPUT,
                            "run %s has no results: it failed before it had any; see kernbench "
                            "runs show %s",
                            name, name);
    return store_each_run(s, &(store_filter){.run = run}, note_command, from);
}

static kb_error *read_store(const report_args *args, const char *name, source *from)
{
    store *s;
    KB_TRY(store_open(args->store, STORE_READ, &s));
    kb_error *err = read_run(s, name, from);
    store_close(s);
    return err;
}

/* ---- The command ------------------------------------------------------------------------- */

static kb_code check_options(const cli_call *call)
{
    const report_args *args = call->args;
    bool on_stdout = false;
    if (call->word_count == 0)
        return cli_fail(KB_ERR_INPUT, "missing run: kernbench report @last -o FILE.html");
    if (!args->output)
        return cli_fail(KB_ERR_INPUT, "missing -o FILE: the page to write");
    kb_error *err = cli_is_stdout(args->output, &on_stdout);
    if (err)
        return cli_report(err);
    return on_stdout ? cli_fail(KB_ERR_INPUT, "-o %s: give a file", args->output) : KB_OK;
}

static kb_code run_report_command(const cli_call *call)
{
    const report_args *args = call->args;
    const char *word = call->words[0];
    source from = {.command = KB_TEXT_INIT};
    kb_error *err =
        ends_with(word, ".json") ? read_file(word, &from) : read_store(args, word, &from);
    if (!err)
        err = report_write_document(args->output, from.document,
                                    from.command.length > 0 ? cli_text(&from.command) : NULL);
    kb_text_fini(&from.command);
    json_decref(from.document);
    return err ? cli_report(err) : KB_OK;
}

const cli_command cli_report_command = {
    .name = "report",
    .arguments = "RUN|FILE.json -o FILE.html [OPTIONS]",
    .summary = "write one HTML page of a saved run, or of what a command printed as JSON",
    .help =
        "RUN is the id of a run in a store, or @last. FILE.json is what run, probe, traffic or\n"
        "sweep printed with --json. The page needs no network and no other file.\n"
        "\n"
        "run --report makes a page with more: the machine and its units over time.\n",
    .example = "Example: kernbench run --bench gemm_single_pe --save && kernbench report @last -o "
               "gemm.html\n"
               "Example: kernbench probe --load --json > load.json && kernbench report load.json "
               "-o load.html\n",
    CLI_OPTIONS(options),
    CLI_ARGS(report_args, .store = "kernbench.db"),
    .max_words = 1,
    .check = check_options,
    .run = run_report_command,
};
