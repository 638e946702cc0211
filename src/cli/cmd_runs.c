/* cmd_runs.c: the commands `runs` and `runs delete`: lists runs of a store, and deletes them. */
#include "runs.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "columns.h"
#include "json.h"

typedef struct runs_args {
    runs_choice choice;
    bool json;
} runs_args;

const char *const runs_status_names[STORE_STATUSES] = {
    "ok", "wrong", "failed", "deadlock", "crashed", "timeout", "no-memory",
};

/* ---- Choosing runs ----------------------------------------------------------------------- */

bool runs_has_filter(const runs_choice *choice)
{
    return choice->bench || choice->machine || choice->since || choice->label || choice->last > 0 ||
           choice->status != STORE_STATUSES;
}

/* "12h": the time before now, as the store has it. False if it is no duration. */
static bool read_duration(const char *text, char *out, size_t size)
{
    static const struct {
        char unit;
        int64_t seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
    char *end;
    if (text[0] < '0' || text[0] > '9')
        return false;
    int64_t number = strtoll(text, &end, 10);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (end[0] != units[i].unit || end[1] != '\0' || number > INT64_MAX / 100000)
            continue;
        time_t then = time(NULL) - (time_t)(number * units[i].seconds);
        struct tm utc;
        return gmtime_r(&then, &utc) && strftime(out, size, "%Y-%m-%d %H:%M:%S", &utc) > 0;
    }
    return false;
}

/* A date, or the beginning of one; a T between date and time is as good as a space. */
static bool read_date(const char *text, char *out, size_t size)
{
    static const char form[] = "0000-00-00 00:00:00.000";
    size_t length = strlen(text);
    if (length < 4 || length > sizeof form - 1 || length >= size)
        return false;
    for (size_t i = 0; i < length; i++) {
        bool is_digit = text[i] >= '0' && text[i] <= '9';
        bool is_gap = form[i] == ' ' && text[i] == 'T';
        if (form[i] == '0' ? !is_digit : text[i] != form[i] && !is_gap)
            return false;
        out[i] = text[i];
        if (is_gap)
            out[i] = ' ';
    }
    out[length] = '\0';
    return true;
}

static kb_code make_filter(const runs_choice *choice, store_filter *filter, char *since,
                           size_t size)
{
    *filter = (store_filter){
        .bench = choice->bench,
        .machine = choice->machine,
        .label = choice->label,
        .last = (int64_t)choice->last,
    };
    if (choice->status != STORE_STATUSES)
        filter->status = runs_status_names[choice->status];
    if (!choice->since)
        return KB_OK;
    filter->not_before = since;
    if (read_duration(choice->since, since, size) || read_date(choice->since, since, size))
        return KB_OK;
    char buffer[CLI_CLIP];
    return cli_fail(KB_ERR_INPUT,
                    "--since: expected a date such as 2026-01-31, or a time such as 12h or 7d, "
                    "found '%s'",
                    cli_clip(choice->since, buffer));
}

kb_code runs_each(store *s, const runs_choice *choice,
                  kb_error *(*each)(void *self, const store_row *row), void *self)
{
    store_filter filter;
    char since[40];
    kb_code code = make_filter(choice, &filter, since, sizeof since);
    if (code != KB_OK)
        return code;
    kb_error *err = store_each_run(s, &filter, each, self);
    return err ? cli_report(err) : KB_OK;
}

kb_code runs_one(store *s, int64_t run, kb_error *(*each)(void *self, const store_row *row),
                 void *self)
{
    kb_error *err = store_each_run(s, &(store_filter){.run = run}, each, self);
    return err ? cli_report(err) : KB_OK;
}

typedef KB_VEC(int64_t) numbers;

static kb_error *note_number(void *self, const store_row *row)
{
    return kb_vec_push((numbers *)self, row->run) ? NULL : kb_error_nomem();
}

static kb_error *find_words(store *s, const cli_call *call, numbers *found)
{
    for (int i = 0; i < call->word_count; i++) {
        int64_t run;
        KB_TRY(store_find(s, call->words[i], &run));
        if (!kb_vec_push(found, run))
            return kb_error_nomem();
    }
    return NULL;
}

kb_code runs_choose(store *s, const runs_choice *choice, const cli_call *call, int64_t **runs,
                    size_t *count)
{
    numbers found = {0};
    kb_code code = KB_OK;
    if (call->word_count > 0) {
        kb_error *err = find_words(s, call, &found);
        code = err ? cli_report(err) : KB_OK;
    } else {
        code = runs_each(s, choice, note_number, &found);
    }
    *runs = found.items;
    *count = found.count;
    return code;
}

/* ---- Texts of rows ----------------------------------------------------------------------- */

/* A value as `--param` takes it. */
static void append_value(kb_text *text, const json_t *value)
{
    if (json_is_integer(value))
        kb_text_printf(text, "%lld", (long long)json_integer_value(value));
    else if (json_is_string(value))
        kb_text_puts(text, json_string_value(value));
}

void runs_append_parameters(const store_row *row, kb_text *text)
{
    const char *name;
    json_t *value, *object = json_loads(row->parameters, 0, NULL);
    const char *separator = "";
    json_object_foreach(object, name, value)
    {
        kb_text_printf(text, "%s%s=", separator, name);
        append_value(text, value);
        separator = " ";
    }
    json_decref(object);
}

void runs_append_settings(const store_row *row, kb_text *text)
{
    size_t i;
    json_t *value, *list = json_loads(row->settings, 0, NULL);
    json_array_foreach(list, i, value)
    {
        kb_text_puts(text, i > 0 ? " " : "");
        append_value(text, value);
    }
    json_decref(list);
}

static json_t *text_or_null(const char *text)
{
    return text ? json_string(text) : json_null();
}

json_t *runs_row_json(const store_row *row)
{
    json_t *object = json_object();
    cli_json_set(&object, "id", json_string(row->id));
    cli_json_set(&object, "label", text_or_null(row->label));
    cli_json_set(&object, "ended_at", json_string(row->ended_at));
    cli_json_set(&object, "bench", json_string(row->bench));
    cli_json_set(&object, "bench_file", text_or_null(row->bench_file));
    cli_json_set(&object, "parameters", json_loads(row->parameters, 0, NULL));
    cli_json_set(&object, "settings", json_loads(row->settings, 0, NULL));
    cli_json_set(&object, "machine", text_or_null(row->machine_name));
    cli_json_set(&object, "machine_hash", text_or_null(row->machine_hash));
    cli_json_set(&object, "status", json_string(store_status_name(row->status)));
    cli_json_set(&object, "exit_code", json_integer(row->exit_code));
    cli_json_set(&object, "message", text_or_null(row->message));
    cli_json_set(&object, "sim_ns", row->has_sim ? json_real(row->sim_ns) : json_null());
    cli_json_set(&object, "verdict", text_or_null(row->verdict));
    cli_json_set(&object, "wall_s", cli_json_real(row->wall_s));
    cli_json_set(&object, "cpu_s", row->cpu_s > 0 ? cli_json_real(row->cpu_s) : json_null());
    cli_json_set(&object, "peak_bytes",
                 row->peak_bytes > 0 ? json_integer((json_int_t)row->peak_bytes) : json_null());
    cli_json_set(&object, "key", text_or_null(row->key));
    cli_json_set(&object, "command", text_or_null(row->command));
    cli_json_set(&object, "directory", text_or_null(row->directory));
    cli_json_set(&object, "version", json_string(row->version));
    cli_json_set(&object, "host", json_string(row->host));
    return object;
}

/* ---- The list ---------------------------------------------------------------------------- */

enum { MAX_PARAMETERS = 40, MAX_MACHINE = 32, MAX_VERDICT = 44 };

static const cli_column columns[] = {
    CLI_TEXT("id", CLI_WORD),      CLI_TEXT("ended (UTC)", CLI_WORD),
    CLI_TEXT("bench", CLI_WORD),   CLI_TEXT("parameters", CLI_WORD),
    CLI_TEXT("machine", CLI_WORD), CLI_TEXT("sim ns", CLI_NS),
    CLI_TEXT("status", CLI_WORD),  CLI_TEXT("verdict", CLI_WORD),
};

/* Shortens the text to so many characters at most; cells are for a line of a terminal. */
static const char *clip(kb_text *text, size_t max)
{
    static const char dots[] = "...";
    if (text->length <= max || text->failed)
        return cli_text(text);
    size_t end = max - strlen(dots);
    while (end > 0 && (text->bytes[end] & 0xc0) == 0x80) /* in the middle of a character */
        end--;
    text->length = end;
    kb_text_puts(text, dots);
    return cli_text(text);
}

/* What limited the run, without the figures; of a failure the message. */
static void append_verdict(const store_row *row, kb_text *text)
{
    if (row->message)
        kb_text_puts(text, row->message);
    else if (row->verdict)
        kb_text_append(text, row->verdict, strcspn(row->verdict, ":."));
}

typedef struct list {
    cli_table table;
    json_t *rows; /* of JSON */
    size_t count;
} list;

static kb_error *add_row(void *self, const store_row *row)
{
    list *l = self;
    kb_text parameters = KB_TEXT_INIT, machine = KB_TEXT_INIT, verdict = KB_TEXT_INIT;
    char ended_at[17];
    l->count++;
    runs_append_parameters(row, &parameters);
    kb_text_puts(&machine, row->machine_name ? row->machine_name : "");
    if (strcmp(row->settings, "[]") != 0)
        kb_text_puts(&machine, " ");
    runs_append_settings(row, &machine);
    append_verdict(row, &verdict);
    snprintf(ended_at, sizeof ended_at, "%s", row->ended_at);
    CLI_ROW(&l->table, {.text = row->id}, {.text = ended_at}, {.text = row->bench},
            {.text = clip(&parameters, MAX_PARAMETERS)}, {.text = clip(&machine, MAX_MACHINE)},
            {.none = !row->has_sim, .n = (kb_time_sum)(row->sim_ns * (double)KB_NS + 0.5)},
            {.text = store_status_name(row->status)}, {.text = clip(&verdict, MAX_VERDICT)});
    kb_text_fini(&parameters);
    kb_text_fini(&machine);
    kb_text_fini(&verdict);
    return NULL;
}

static kb_error *add_json(void *self, const store_row *row)
{
    list *l = self;
    cli_json_append(&l->rows, runs_row_json(row));
    return l->rows ? NULL : kb_error_nomem();
}

static kb_code print_list(store *s, const runs_args *args)
{
    list l = {0};
    if (args->json) {
        l.rows = json_array();
        kb_code code = runs_each(s, &args->choice, add_json, &l);
        if (code == KB_OK)
            return cli_json_print(l.rows);
        json_decref(l.rows);
        return code;
    }
    cli_table_init(&l.table, columns, sizeof columns / sizeof columns[0]);
    kb_code code = runs_each(s, &args->choice, add_row, &l);
    if (code == KB_OK && l.count > 0)
        return cli_table_print(&l.table, stdout);
    cli_table_discard(&l.table);
    if (code == KB_OK)
        printf("No runs%s\n", runs_has_filter(&args->choice) ? " that match" : "");
    return code;
}

static kb_code run_runs(const cli_call *call)
{
    const runs_args *args = call->args;
    store *s;
    kb_error *err = store_open(args->choice.store, STORE_READ, &s);
    if (err)
        return cli_report(err);
    kb_code code = print_list(s, args);
    store_close(s);
    return code;
}

static kb_code check_runs(const cli_call *call)
{
    static const char *const names[] = {"show", "delete", "export"};
    if (call->word_count == 0)
        return KB_OK;
    return cli_unknown("subcommand", call->words[0], names, sizeof names / sizeof names[0], "runs");
}

/* ---- Deleting ---------------------------------------------------------------------------- */

static kb_code run_delete(const cli_call *call)
{
    const runs_args *args = call->args;
    store *s;
    int64_t *runs = NULL;
    size_t count = 0;
    kb_error *err = store_open(args->choice.store, STORE_EXISTING, &s);
    if (err)
        return cli_report(err);
    kb_code code = runs_choose(s, &args->choice, call, &runs, &count);
    if (code == KB_OK) {
        err = store_delete(s, runs, count);
        code = err ? cli_report(err) : KB_OK;
    }
    if (code == KB_OK)
        printf("Deleted %zu run%s\n", count, kb_plural(count));
    free(runs);
    store_close(s);
    return code;
}

static kb_code check_delete(const cli_call *call)
{
    const runs_args *args = call->args;
    if (call->word_count > 0 && runs_has_filter(&args->choice))
        return cli_fail(KB_ERR_INPUT, "give ids of runs, or options that choose runs, not both");
    if (call->word_count == 0 && !runs_has_filter(&args->choice))
        return cli_fail(KB_ERR_INPUT, "missing runs: kernbench runs delete ID..., or options that "
                                      "choose runs; see kernbench runs delete --help");
    return KB_OK;
}

static const cli_option list_options[] = {
    RUNS_STORE_OPTION(runs_args),
    RUNS_FILTER_OPTIONS(runs_args),
    CLI_OPTION("--json", NULL, CLI_FLAG, runs_args, json, "prints a JSON array instead of text"),
};

static const cli_option delete_options[] = {
    RUNS_STORE_OPTION(runs_args),
    RUNS_FILTER_OPTIONS(runs_args),
};

const cli_command cli_runs_delete_command = {
    .name = "runs delete",
    .arguments = "ID... | OPTIONS",
    .summary = "delete runs of a store",
    .help = "",
    .example = "Example: kernbench runs delete @last\n"
               "Example: kernbench runs delete --status crashed --since 1d\n",
    CLI_OPTIONS(delete_options),
    CLI_ARGS(runs_args, .choice = RUNS_CHOICE),
    .max_words = RUNS_MAX_WORDS,
    .check = check_delete,
    .run = run_delete,
};

static const cli_command *const subcommands[] = {&cli_runs_show_command, &cli_runs_delete_command,
                                                 &cli_runs_export_command, NULL};

const cli_command cli_runs_command = {
    .name = "runs",
    .arguments = "[OPTIONS] | SUBCOMMAND",
    .summary = "list, show, export and delete runs that were saved",
    .help = "Runs are saved by run --save and by sweeps, in a SQLite file: docs/store.md.\n"
            "A run is named by its id or the beginning of that, @last, @-2 for the last but one,\n"
            "or @LABEL for the newest with a label.\n",
    .example = "Example: kernbench runs --bench 'ccl_*' --since 1d\n"
               "Example: kernbench runs show @last\n",
    CLI_OPTIONS(list_options),
    CLI_ARGS(runs_args, .choice = RUNS_CHOICE),
    .max_words = 1, /* for the message of an unknown subcommand */
    .subcommands = subcommands,
    .check = check_runs,
    .run = run_runs,
};
