/*
 * cmd_runs_export.c: the command `runs export`: of one run its document, machine or op log; of any
 * number a table with a row for each run and a column for each parameter and figure.
 */
#include "runs.h"

#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "op_log.h"

typedef struct export_args {
    runs_choice choice;
    bool json, csv, yaml, ops;
} export_args;

/* ---- The table --------------------------------------------------------------------------- */

/* A row: its first cells as text, and the values of its figures by column. */
typedef struct export_row {
    char *head;
    json_t *parameters;
    double *figures;
    bool *has;
    size_t count; /* of figures */
} export_row;

/* Columns are in the order in which they are found first. */
typedef struct export_table {
    store *store;
    json_t *parameter_columns; /* objects: the name of a column to its index */
    json_t *figure_columns;
    KB_VEC(export_row) rows;
} export_table;

static void append_cell(kb_text *text, const char *value)
{
    if (!value)
        return;
    if (value[strcspn(value, ",\"\r\n")] == '\0') {
        kb_text_puts(text, value);
        return;
    }
    kb_text_puts(text, "\"");
    for (; *value != '\0'; value++)
        kb_text_append(text, *value == '"' ? "\"\"" : value, *value == '"' ? 2 : 1);
    kb_text_puts(text, "\"");
}

static const char head_titles[] =
    "id,ended_at,bench,machine,machine_hash,settings,status,exit_code,message";

static char *make_head(const store_row *row)
{
    kb_text text = KB_TEXT_INIT, settings = KB_TEXT_INIT;
    runs_append_settings(row, &settings);
    kb_text_printf(&text, "%s,%s,", row->id, row->ended_at);
    append_cell(&text, row->bench);
    kb_text_puts(&text, ",");
    append_cell(&text, row->machine_name);
    kb_text_printf(&text, ",%s,", row->machine_hash ? row->machine_hash : "");
    append_cell(&text, kb_text_peek(&settings));
    kb_text_printf(&text, ",%s,%d,", store_status_name(row->status), row->exit_code);
    append_cell(&text, row->message);
    text.failed = text.failed || settings.failed;
    kb_text_fini(&settings);
    return kb_text_take(&text);
}

/* The index of the column, which is new if it has not been seen. */
static kb_error *find_column(json_t *columns, const char *name, size_t *index)
{
    const json_t *found = json_object_get(columns, name);
    *index = found ? (size_t)json_integer_value(found) : json_object_size(columns);
    if (found || json_object_set_new(columns, name, json_integer((json_int_t)*index)) == 0)
        return NULL;
    return kb_error_nomem();
}

static kb_error *grow(export_row *row, size_t count)
{
    if (count <= row->count)
        return NULL;
    size_t room = count + 64;
    double *figures = kb_realloc_array(row->figures, room, sizeof *figures);
    row->figures = figures ? figures : row->figures;
    bool *has = kb_realloc_array(row->has, room, sizeof *has);
    row->has = has ? has : row->has;
    if (!figures || !has)
        return kb_error_nomem();
    memset(row->has + row->count, 0, (room - row->count) * sizeof *has);
    row->count = room;
    return NULL;
}

/* Parameters have columns of their own, as some are no numbers. */
static kb_error *add_figure(void *self, const char *name, double value)
{
    export_table *t = self;
    export_row *row = &t->rows.items[t->rows.count - 1];
    size_t index;
    if (strncmp(name, "parameters.", strlen("parameters.")) == 0)
        return NULL;
    KB_TRY(find_column(t->figure_columns, name, &index));
    KB_TRY(grow(row, index + 1));
    row->figures[index] = value;
    row->has[index] = true;
    return NULL;
}

static kb_error *add_row(void *self, const store_row *row)
{
    export_table *t = self;
    export_row fresh = {.head = make_head(row), .parameters = json_loads(row->parameters, 0, NULL)};
    const char *name;
    json_t *value;
    size_t index;
    if (!fresh.head || !kb_vec_push(&t->rows, fresh)) {
        free(fresh.head);
        json_decref(fresh.parameters);
        return kb_error_nomem();
    }
    json_object_foreach(fresh.parameters, name, value)
        KB_TRY(find_column(t->parameter_columns, name, &index));
    return store_each_figure(t->store, row->run, add_figure, t);
}

static void append_parameters(const export_table *t, const export_row *row, kb_text *line)
{
    const char *name;
    json_t *index;
    json_object_foreach(t->parameter_columns, name, index)
    {
        const json_t *value = json_object_get(row->parameters, name);
        kb_text_puts(line, ",");
        if (json_is_integer(value))
            kb_text_printf(line, "%lld", (long long)json_integer_value(value));
        else
            append_cell(line, json_string_value(value));
    }
}

static void print_row(const export_table *t, const export_row *row, kb_text *line)
{
    line->length = 0;
    kb_text_puts(line, row->head);
    append_parameters(t, row, line);
    for (size_t i = 0; i < json_object_size(t->figure_columns); i++) {
        kb_text_puts(line, ",");
        if (i < row->count && row->has[i])
            kb_text_printf(line, "%.15g", row->figures[i]);
    }
    puts(cli_text(line));
}

static void print_titles(const export_table *t, kb_text *line)
{
    const char *name;
    json_t *index;
    kb_text_puts(line, head_titles);
    json_object_foreach(t->parameter_columns, name, index)
    {
        kb_text_puts(line, ",");
        append_cell(line, name);
    }
    json_object_foreach(t->figure_columns, name, index)
    {
        kb_text_puts(line, ",");
        append_cell(line, name);
    }
    puts(cli_text(line));
}

static void print_table(const export_table *t)
{
    kb_text line = KB_TEXT_INIT;
    print_titles(t, &line);
    for (size_t i = 0; i < t->rows.count; i++)
        print_row(t, &t->rows.items[i], &line);
    kb_text_fini(&line);
}

static void table_fini(export_table *t)
{
    for (size_t i = 0; i < t->rows.count; i++) {
        free(t->rows.items[i].head);
        json_decref(t->rows.items[i].parameters);
        free(t->rows.items[i].figures);
        free(t->rows.items[i].has);
    }
    kb_vec_fini(&t->rows);
    json_decref(t->parameter_columns);
    json_decref(t->figure_columns);
}

static kb_code add_words(export_table *t, const cli_call *call)
{
    const export_args *args = call->args;
    int64_t *runs;
    size_t count;
    kb_code code = runs_choose(t->store, &args->choice, call, &runs, &count);
    for (size_t i = 0; i < count && code == KB_OK; i++)
        code = runs_one(t->store, runs[i], add_row, t);
    free(runs);
    return code;
}

static kb_code export_table_of(store *s, const cli_call *call)
{
    const export_args *args = call->args;
    export_table t = {
        .store = s, .parameter_columns = json_object(), .figure_columns = json_object()};
    kb_code code;
    if (!t.parameter_columns || !t.figure_columns)
        code = cli_report(kb_error_nomem());
    else if (call->word_count > 0)
        code = add_words(&t, call);
    else
        code = runs_each(s, &args->choice, add_row, &t);
    if (code == KB_OK)
        print_table(&t);
    table_fini(&t);
    return code;
}

/* ---- Of one run -------------------------------------------------------------------------- */

static kb_error *print_machine(store *s, int64_t run, const char *name)
{
    kb_text yaml = KB_TEXT_INIT;
    kb_error *err = store_get_machine(s, run, &yaml);
    if (!err && yaml.length == 0)
        err = kb_error_new(KB_ERR_INPUT, "the run %s has no machine: it failed before", name);
    if (!err)
        fputs(cli_text(&yaml), stdout);
    kb_text_fini(&yaml);
    return err;
}

static kb_error *print_ops(store *s, int64_t run, const char *name)
{
    kb_text bytes = KB_TEXT_INIT;
    kb_error *err = store_get_ops(s, run, &bytes);
    if (!err && bytes.length == 0)
        err = kb_error_new(KB_ERR_INPUT,
                           "the run %s has no operations: run --save --save-ops keeps them", name);
    if (!err)
        err = op_log_print(&bytes, stdout);
    kb_text_fini(&bytes);
    return err;
}

static kb_code print_document(store *s, int64_t run, const char *name)
{
    json_t *document;
    kb_error *err = store_get_document(s, run, &document);
    if (!err && !document)
        err = kb_error_new(KB_ERR_INPUT, "the run %s has no document: it failed before", name);
    return err ? cli_report(err) : cli_json_print(document);
}

static kb_code export_one(store *s, const export_args *args, const char *name)
{
    int64_t run;
    kb_error *err = store_find(s, name, &run);
    if (!err && args->json)
        return print_document(s, run, name);
    if (!err)
        err = args->yaml ? print_machine(s, run, name) : print_ops(s, run, name);
    return err ? cli_report(err) : KB_OK;
}

static kb_code run_export(const cli_call *call)
{
    const export_args *args = call->args;
    store *s;
    kb_error *err = store_open(args->choice.store, STORE_READ, &s);
    if (err)
        return cli_report(err);
    kb_code code = args->csv ? export_table_of(s, call) : export_one(s, args, call->words[0]);
    store_close(s);
    return code;
}

static kb_code check_export(const cli_call *call)
{
    const export_args *args = call->args;
    int formats = args->json + args->csv + args->yaml + args->ops;
    if (formats != 1)
        return cli_fail(KB_ERR_INPUT, "%s --json, --csv, --yaml or --ops",
                        formats == 0 ? "missing format:" : "give one of");
    if (!args->csv && call->word_count != 1)
        return cli_fail(KB_ERR_INPUT, "%s: kernbench runs export ID; only --csv takes several",
                        call->word_count == 0 ? "missing run" : "too many runs");
    if (call->word_count > 0 && runs_has_filter(&args->choice))
        return cli_fail(KB_ERR_INPUT, "give ids of runs, or options that choose runs, not both");
    return KB_OK;
}

static const cli_option options[] = {
    CLI_OPTION("--json", NULL, CLI_FLAG, export_args, json,
               "the document of the run, as run --json printed it"),
    CLI_OPTION("--csv", NULL, CLI_FLAG, export_args, csv,
               "a table of runs, with their parameters and figures; without ids all runs, or\n"
               "those that the options choose"),
    CLI_OPTION("--yaml", NULL, CLI_FLAG, export_args, yaml,
               "the machine of the run as a complete file, for --topology"),
    CLI_OPTION("--ops", NULL, CLI_FLAG, export_args, ops,
               "the operations of the run as CSV, if it was saved with --save-ops"),
    RUNS_STORE_OPTION(export_args),
    RUNS_FILTER_OPTIONS(export_args),
};

const cli_command cli_runs_export_command = {
    .name = "runs export",
    .arguments = "[ID...] --json|--csv|--yaml|--ops",
    .summary = "print the document, machine or operations of a run, or a table of runs",
    .help = "",
    .example = "Example: kernbench runs export @last --json\n"
               "Example: kernbench runs export --bench 'ccl_*' --csv\n",
    CLI_OPTIONS(options),
    CLI_ARGS(export_args, .choice = RUNS_CHOICE),
    .max_words = RUNS_MAX_WORDS,
    .check = check_export,
    .run = run_export,
};
