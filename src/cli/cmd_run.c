/*
 * cmd_run.c: the command `run`: one run of a bench (run_once.c), its trace and its summary.
 *
 * The bench prints while it runs; the summary follows. A run with a wrong result (exit status 1)
 * has a summary; one that fails otherwise has it only with --json.
 */
#include "cli.h"
#include "crash.h"
#include "files.h"
#include "json.h"
#include "op_log.h"
#include "run_once.h"
#include "run_path.h"
#include "run_record.h"
#include "run_report.h"
#include "run_trace.h"

typedef struct run_args {
    cli_common common;
    const char *bench, *device, *trace, *report, *store, *label;
    bool trace_path, save_ops, verify, timing_only, verbose, profile, check_races;
    uint64_t stack_bytes;
    cli_list params;
    collectives_args collectives;
    bool ccl_trace;
} run_args;

static const cli_option options[] = {
    CLI_OPTION("--bench", "NAME", CLI_STRING, run_args, bench,
               "a bench of kernbench list, or a file: ./mine.c, which is compiled, or ./mine.so;\n"
               "./mine.c:NAME if the file has several"),
    CLI_OPTION("--param", "NAME=VALUE", CLI_LIST, run_args, params,
               "sets a parameter of the bench: a whole number, a size such as 64KiB, or a name;\n"
               "kernbench list shows all; repeatable"),
    CLI_OPTION("--device", "all|sip:N", CLI_STRING, run_args, device,
               "uses all SIPs (default), or only this one"),
    CLI_OPTION("--verify-data", NULL, CLI_FLAG, run_args, verify,
               "compares the results with a reference; exit status 1 if an element is wrong"),
    CLI_OPTION("--timing-only", NULL, CLI_FLAG, run_args, timing_only,
               "computes no data: same simulated times, less wall time and memory"),
    CLI_OPTION(
        "--check-races", NULL, CLI_FLAG, run_args, check_races,
        "ends with 3 if two PEs of a launch, or launches and copies of two streams, access the\n"
        "same bytes unordered, and at least one writes; without it that is a warning"),
    CLI_OPTION(
        "--trace", "FILE", CLI_STRING, run_args, trace,
        "writes a timeline of all units, for https://ui.perfetto.dev: in its own format if the name\n"
        "ends with .pftrace, else as JSON; - is stdout, which has no other text then"),
    CLI_OPTION(
        "--trace-path", NULL, CLI_FLAG, run_args, trace_path,
        "the trace has the critical path as a track of its own; takes up to twice the time,\n"
        "and 64 bytes of memory for each operation"),
    CLI_OPTION(
        "--report", "FILE", CLI_STRING, run_args, report,
        "writes one HTML page that needs nothing else: what bound the run, the machine with\n"
        "its links over time, the timeline of units, kernels, lines, waits"),
    CLI_OPTION(
        "--profile", NULL, CLI_FLAG, run_args, profile,
        "prints the time of the PEs by source line and operation, with the causes of stalls"),
    CLI_OPTION("--save", "[DB]", CLI_OPTIONAL, run_args, store,
               "keeps the run with its critical path in a store, a SQLite file (docs/store.md);\n"
               "default: kernbench.db",
               .by_default = "kernbench.db"),
    CLI_OPTION("--label", "NAME", CLI_STRING, run_args, label,
               "names the run that is saved: @NAME is the newest run with that label"),
    CLI_OPTION("--save-ops", NULL, CLI_FLAG, run_args, save_ops,
               "keeps its operations too; kernbench runs export ID --ops prints them"),
    COLLECTIVES_OPTIONS(run_args),
    CLI_OPTION("--ccl-trace", NULL, CLI_FLAG, run_args, ccl_trace,
               "prints a line on stderr for each message that PEs send or receive"),
    CLI_OPTION("--verbose", NULL, CLI_FLAG, run_args, verbose,
               "prints all links that carried data, not only the busiest; and on stderr the\n"
               "algorithm of each collective and the reason"),
    CLI_OPTION("--stack-bytes", "N", CLI_SIZE, run_args, stack_bytes,
               "stack size in bytes of each kernel and worker; default: 1MiB", .min = 16 << 10,
               .max = 1 << 30),
};

/* What the hooks of the run see. */
typedef struct run {
    const run_args *args;
    const run_options *options;
    run_trace *trace;
    run_report *report;
    store *store;   /* NULL: it is not saved */
    op_log *ops;    /* NULL: they are not saved */
    run_path *path; /* the critical path, if the run is saved or its trace shows it */
    bool trace_on_stdout;
    bool printed; /* the bench has printed something */
} run;

/* ---- Output of the run -------------------------------------------------------------------- */

static void on_op(void *self, const kb_op *op)
{
    const run *r = self;
    run_trace_op(r->trace, op);
    run_report_op(r->report, op);
    if (r->ops)
        op_log_add(r->ops, op);
    run_path_op(r->path, op);
}

static void on_state(void *self, uint64_t pe, kb_cause cause, kb_time start, kb_time end)
{
    const run *r = self;
    run_trace_state(r->trace, pe, cause, start, end);
    run_report_state(r->report, pe, cause, start, end);
}

static void on_tcm(void *self, const kb_pe *pe, kb_time now, uint64_t bytes)
{
    const run *r = self;
    run_trace_tcm(r->trace, pe, now, bytes);
}

static void on_warning(void *self, const char *line)
{
    const run *r = self;
    if (!r->args->common.quiet)
        cli_warn("%s", line);
}

static void on_note(void *self, const char *line)
{
    (void)self;
    crash_clear_progress();
    fprintf(stderr, "kernbench: note: %s\n", line);
}

static void on_ccl_trace(void *self, const char *line)
{
    (void)self;
    crash_clear_progress();
    fprintf(stderr, "%s\n", line);
}

/* With --json or --trace - stdout has one document: lines go to stderr, with --quiet nowhere. */
static void on_print(void *self, const char *line)
{
    run *r = self;
    FILE *out = r->args->common.json || r->trace_on_stdout ? stderr : stdout;
    if (out == stderr && r->args->common.quiet)
        return;
    crash_clear_progress();
    fprintf(out, "%s\n", line);
    fflush(out);
    r->printed = true;
}

static kb_error *on_ready(void *self, kb_context *ctx)
{
    run *r = self;
    if (r->store || r->args->trace_path)
        KB_TRY(run_path_begin(ctx, RUN_PATH_BYTES, &r->path));
    if (r->args->trace || r->args->report)
        KB_TRY(kb_oplog_watch_states(rt_get_stats(ctx).log, on_state, r));
    if (r->args->report)
        KB_TRY(run_report_open(ctx, &r->report));
    return r->args->trace ? run_trace_open(r->args->trace, ctx, &r->trace) : NULL;
}

/* ---- The end of the run ------------------------------------------------------------------ */

/* `trace` and `report`: their files, if they were written. */
static kb_code print_summary(const run *r, const char *trace, const char *report,
                             const run_outcome *outcome)
{
    const run_args *args = r->args;
    if (args->common.json) {
        json_t *document = run_document(outcome->view);
        if (document && !args->profile)
            (void)json_object_del(document, "profile"); /* it was made for the report */
        return cli_json_print(document);
    }
    run_view view = *outcome->view;
    view.shows_profile = args->profile;
    view.report = report;
    view.verbose = args->verbose;
    view.quiet = args->common.quiet;
    view.trace = trace;
    if (r->printed)
        putchar('\n');
    return run_print_text(&view);
}

/*
 * Whether to keep the trace. A trace of a fault or a deadlock ends with it, and shows its cause;
 * not kept are empty ones and those that end because memory or the clock ran out.
 */
static bool keeps_trace(const run_outcome *outcome)
{
    switch (kb_error_code(outcome->error)) {
    case KB_OK:
    case KB_ERR_CHECK:
        return true;
    case KB_ERR_FAULT:
    case KB_ERR_DEADLOCK:
        return outcome->ctx && kb_context_now(outcome->ctx) > 0;
    default:
        return false;
    }
}

/* The critical path is a member of the document. */
static kb_error *add_path(run *r, const run_outcome *outcome, run_record *record)
{
    json_t *path;
    if (!r->path || !record->document)
        return NULL;
    KB_TRY(run_path_json(r->path, outcome, RUN_PATH_STEPS, &path));
    return json_object_set_new(record->document, "critical_path", path) == 0 ? NULL
                                                                             : kb_error_nomem();
}

/* A run is kept if there was one: if it has a context. */
static kb_error *save(run *r, const run_outcome *outcome, int64_t *number)
{
    run_record record;
    run_request request = {r->args->bench, r->options, &r->args->collectives};
    *number = 0;
    if (!r->store || !outcome->ctx)
        return NULL;
    kb_error *err = run_record_init(&record, &request, outcome);
    record.run.label = r->args->label;
    if (!err)
        err = add_path(r, outcome, &record);
    if (!err && r->ops)
        err = op_log_finish(r->ops, &record.run.ops, &record.run.ops_size);
    if (!err)
        err = store_add(r->store, &record.run, number);
    run_record_fini(&record);
    return err;
}

static kb_error *print_id(void *self, const store_row *row)
{
    const run *r = self;
    FILE *out = r->args->common.json || r->trace_on_stdout ? stderr : stdout;
    fprintf(out, "Saved as run %s in %s: kernbench runs show %s\n", row->id, r->args->store,
            row->id);
    return NULL;
}

static kb_code save_and_report(run *r, const run_outcome *outcome)
{
    int64_t number;
    kb_error *err = save(r, outcome, &number);
    if (!err && number != 0 && !r->args->common.quiet)
        err = store_each_run(r->store, &(store_filter){.run = number}, print_id, r);
    return err ? cli_report(err) : KB_OK;
}

static kb_error *write_trace(run *r, const run_outcome *outcome)
{
    run_trace *trace = r->trace;
    r->trace = NULL;
    if (!trace || !r->args->trace_path)
        return run_trace_close(trace);
    const explain_path *path;
    kb_error *err = run_path_find(r->path, outcome, &path);
    if (!err)
        err = run_trace_path(trace, path);
    if (!err)
        return run_trace_close(trace);
    run_trace_discard(trace);
    return err;
}

static kb_error *write_report(run *r, const run_outcome *outcome)
{
    run_report *report = r->report;
    if (!report)
        return NULL;
    r->report = NULL;
    kb_text command = KB_TEXT_INIT;
    run_record_command(&(run_request){r->args->bench, r->options, &r->args->collectives}, &command);
    kb_error *err = run_report_close(report, r->args->report, outcome, cli_text(&command));
    kb_text_fini(&command);
    return err;
}

/* Prints the error, if there is one; the code that came first counts. */
static kb_code report_also(kb_code code, kb_error *err)
{
    kb_code of_error = err ? cli_report(err) : KB_OK;
    return code == KB_OK ? of_error : code;
}

/* Completes the trace and the report, prints the summary and saves the run. */
static kb_code on_done(void *self, const run_outcome *outcome)
{
    run *r = self;
    const kb_error *err = outcome->error;
    bool has_summary = !err || kb_error_code(err) == KB_ERR_CHECK || r->args->common.json;
    has_summary = has_summary && !r->trace_on_stdout;
    bool traced = keeps_trace(outcome);
    kb_error *trace_error = NULL, *report_error = NULL;
    if (traced) {
        trace_error = write_trace(r, outcome);
        report_error = write_report(r, outcome);
    } else {
        run_trace_discard(r->trace);
        run_report_discard(r->report);
    }
    r->trace = NULL;
    kb_code code = KB_OK;
    if (has_summary && outcome->view)
        code = print_summary(r, traced && !trace_error ? r->args->trace : NULL,
                             traced && !report_error ? r->args->report : NULL, outcome);
    kb_code of_store = save_and_report(r, outcome);
    code = code == KB_OK ? of_store : code;
    if (err) {
        fflush(stdout); /* the message comes last */
        kb_code of_run = cli_print_error(err);
        code = code == KB_OK ? of_run : code;
    }
    return report_also(report_also(code, trace_error), report_error);
}

static kb_code make_run(const run_args *args, bool trace_on_stdout, const run_program *program)
{
    run r = {.args = args, .trace_on_stdout = trace_on_stdout};
    bool gets_ops = args->trace || args->report || args->store;
    kb_error *err = NULL;
    run_options o = {
        .topology = args->common.topology,
        .settings = &args->common.settings,
        .params = &args->params,
        .device = args->device,
        .verify = args->verify,
        .timing_only = args->timing_only,
        .profile = args->profile,
        .check_races = args->check_races,
        .stack_bytes = args->stack_bytes,
        .shows_progress = !args->common.quiet,
        .print = on_print,
        .warn = on_warning,
        .note = args->verbose ? on_note : NULL,
        .ccl_trace = args->ccl_trace ? on_ccl_trace : NULL,
        .op = gets_ops ? on_op : NULL,
        .reasons = gets_ops,
        .tcm = args->trace ? on_tcm : NULL,
        .ready = on_ready,
        .done = on_done,
        .self = &r,
    };
    const run_options given = o;
    r.options = &given;
    o.profile = args->profile || args->report; /* a report shows it too */
    if (args->store) /* before the run: a store that cannot be written is no surprise after it */
        err = store_open(args->store, STORE_WRITE, &r.store);
    if (!err && args->save_ops)
        err = op_log_create(&r.ops);
    kb_code code = err ? cli_report(err) : run_once(program, &o);
    run_path_end(r.path);
    op_log_destroy(r.ops);
    store_close(r.store);
    return code;
}

/* ---- The command ------------------------------------------------------------------------- */

static kb_code check_options(const cli_call *call)
{
    const run_args *args = call->args;
    const char *word = call->word_count > 0 ? call->words[0] : NULL;
    char buffer[CLI_CLIP];
    if (!args->bench && word)
        return cli_fail(KB_ERR_INPUT, "missing --bench: kernbench run --bench %s",
                        cli_clip(word, buffer));
    if (word)
        return cli_too_many("run", word);
    if (!args->bench)
        return cli_fail(KB_ERR_INPUT, "missing --bench NAME; see kernbench list");
    if (args->verify && args->timing_only)
        return cli_fail(KB_ERR_INPUT, "--verify-data and --timing-only are mutually exclusive");
    if (args->trace_path && !args->trace)
        return cli_fail(KB_ERR_INPUT, "--trace-path needs --trace FILE");
    if (!args->store && (args->save_ops || args->label))
        return cli_fail(KB_ERR_INPUT, "%s needs --save", args->label ? "--label" : "--save-ops");
    if (args->label && !store_is_label(args->label))
        return cli_fail(KB_ERR_INPUT,
                        "--label: expected letters, digits and . _ + - (no - at the beginning), "
                        "and not 'last'");
    return KB_OK;
}

/* Whether the trace goes to stdout, which has nothing else then. */
static kb_code check_trace(const run_args *args, bool *on_stdout)
{
    *on_stdout = false;
    kb_error *err = args->trace ? cli_is_stdout(args->trace, on_stdout) : NULL;
    if (err)
        return cli_report(err);
    if (args->common.json && *on_stdout)
        return cli_fail(KB_ERR_INPUT,
                        "--trace %s and --json both write to stdout: give --trace a file",
                        args->trace);
    return KB_OK;
}

/* A report is a file: stdout has the summary. */
static kb_code check_report(const run_args *args)
{
    bool on_stdout = false;
    kb_error *err = args->report ? cli_is_stdout(args->report, &on_stdout) : NULL;
    if (err)
        return cli_report(err);
    return on_stdout ? cli_fail(KB_ERR_INPUT, "--report %s: give a file", args->report) : KB_OK;
}

static kb_code run_run(const cli_call *call)
{
    const run_args *args = call->args;
    bool trace_on_stdout;
    kb_code code = check_trace(args, &trace_on_stdout);
    if (code == KB_OK)
        code = check_report(args);
    if (code != KB_OK)
        return code;
    run_program program;
    code = run_program_open(&program, args->bench, &args->collectives);
    if (code == KB_OK)
        code = make_run(args, trace_on_stdout, &program);
    run_program_close(&program);
    return code;
}

const cli_command cli_run_command = {
    .name = "run",
    .arguments = "--bench NAME [OPTIONS]",
    .summary = "run a bench: its results, its simulated time, and what limits it",
    .help =
        "Data are computed unless --timing-only is given or the bench says that it is too large;\n"
        "simulated times are the same. Most benches place their input tensors without taking\n"
        "simulated time, and say so.\n"
        "\n"
        "Exit status: 1 if a result is wrong, 3 if the program faults, 4 if it deadlocks.\n",
    .example =
        "Example: kernbench run --bench gemm_single_pe --verify-data\n"
        "Example: kernbench run --bench gemm_single_pe --param m=256 --json --quiet\n"
        "Example: kernbench run --bench qkv_gemm_multi_pe --param width=768 --trace qkv.json\n"
        "Example: kernbench run --bench gemm_single_pe --report gemm.html\n"
        "Example: kernbench run --bench gemm_single_pe --param m=64 --save && kernbench runs\n",
    CLI_OPTIONS(options),
    CLI_ARGS(run_args, .stack_bytes = RUN_DEFAULT_STACK),
    .machine = CLI_MACHINE_OPTIONS,
    .max_words = 1, /* for the message that --bench is missing */
    .check = check_options,
    .run = run_run,
};
