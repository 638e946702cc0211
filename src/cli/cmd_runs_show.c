/* cmd_runs_show.c: the command `runs show`: all about one run on a page. */
#include "runs.h"

#include <string.h>

#include "json.h"
#include "machine_options.h"
#include "obs/obs.h"
#include "terminal.h"

typedef struct show_args {
    runs_choice choice;
    bool json;
} show_args;

static void print_field(const char *name, const char *value)
{
    if (value && value[0] != '\0')
        printf("  %-15s %s\n", name, value);
}

/* And empties it. */
static void print_text(const char *name, kb_text *value)
{
    print_field(name, cli_text(value));
    kb_text_fini(value);
}

static void print_times(const store_row *row, kb_text *text)
{
    if (row->has_sim)
        kb_text_printf(text, "%s ns simulated, ",
                       obs_ns((kb_time_sum)(row->sim_ns * (double)KB_NS + 0.5)).text);
    kb_text_printf(text, "%.3g s of wall time", row->wall_s);
    if (row->cpu_s > 0)
        kb_text_printf(text, ", %.3g s of CPU time", row->cpu_s);
    if (row->peak_bytes > 0)
        kb_text_printf(text, ", %s of memory", kb_bytes_print(row->peak_bytes).text);
    print_text("times", text);
}

/* The command with its directory: it may name files. */
static void print_command(const store_row *row, kb_text *text)
{
    if (row->directory) {
        kb_text_puts(text, "cd");
        cli_append_option(text, "--", row->directory);
        kb_text_puts(text, " && ");
    }
    kb_text_puts(text, row->command);
    print_text("runs again by", text);
}

static kb_error *print_row(void *self, const store_row *row)
{
    kb_text text = KB_TEXT_INIT;
    (void)self;
    kb_text_printf(&text, "Run %s of %s, %s UTC", row->id, row->bench, row->ended_at);
    cli_print_heading(stdout, cli_text(&text));
    kb_text_fini(&text);
    print_field("label", row->label);
    print_field("bench from", row->bench_file);
    runs_append_parameters(row, &text);
    print_text("parameters", &text);
    if (row->machine_name)
        kb_text_printf(&text, "%s, hash %s", row->machine_name, row->machine_hash);
    print_text("machine", &text);
    runs_append_settings(row, &text);
    print_text("settings", &text);
    kb_text_printf(&text, "%s (exit status %d)", store_status_name(row->status), row->exit_code);
    print_text("status", &text);
    print_field("message", row->message);
    print_field("verdict", row->verdict);
    print_times(row, &text);
    kb_text_printf(&text, "KernBench %s on %s%s", row->version, row->host,
                   row->has_ops ? "; with its operations (runs export --ops)" : "");
    print_text("made by", &text);
    if (row->command)
        print_command(row, &text);
    return NULL;
}

static kb_error *print_metric(void *self, const char *name, double value)
{
    static const char prefix[] = "metrics.";
    bool *is_first = self;
    if (strncmp(name, prefix, sizeof prefix - 1) != 0)
        return NULL;
    if (*is_first)
        puts("  metrics");
    *is_first = false;
    printf("    %s: %.6g\n", name + sizeof prefix - 1, value);
    return NULL;
}

static kb_error *make_json(void *self, const store_row *row)
{
    json_t **object = self;
    *object = runs_row_json(row);
    return *object ? NULL : kb_error_nomem();
}

static kb_code show(store *s, const show_args *args, const char *name)
{
    int64_t run;
    bool is_first = true;
    json_t *object = NULL;
    kb_error *err = store_find(s, name, &run);
    if (err)
        return cli_report(err);
    if (args->json) {
        kb_code code = runs_one(s, run, make_json, &object);
        return code == KB_OK ? cli_json_print(object) : code;
    }
    kb_code code = runs_one(s, run, print_row, NULL);
    if (code != KB_OK)
        return code;
    err = store_each_figure(s, run, print_metric, &is_first);
    return err ? cli_report(err) : KB_OK;
}

static kb_code run_show(const cli_call *call)
{
    const show_args *args = call->args;
    store *s;
    kb_error *err = store_open(args->choice.store, STORE_READ, &s);
    if (err)
        return cli_report(err);
    kb_code code = show(s, args, call->words[0]);
    store_close(s);
    return code;
}

static kb_code check_show(const cli_call *call)
{
    if (call->word_count == 1)
        return KB_OK;
    return cli_fail(KB_ERR_INPUT, "missing run: kernbench runs show ID, or @last");
}

static const cli_option options[] = {
    RUNS_STORE_OPTION(show_args),
    CLI_OPTION("--json", NULL, CLI_FLAG, show_args, json, "prints a JSON object instead of text"),
};

const cli_command cli_runs_show_command = {
    .name = "runs show",
    .arguments = "ID [OPTIONS]",
    .summary = "show one run of a store, and the command that runs it again",
    .help = "",
    .example = "Example: kernbench runs show @last\n",
    CLI_OPTIONS(options),
    CLI_ARGS(show_args, .choice = RUNS_CHOICE),
    .max_words = 1,
    .check = check_show,
    .run = run_show,
};
