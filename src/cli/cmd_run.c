/*
 * cmd_run.c: the command `run`: one context, one run of a bench, and its summary.
 *
 * The bench prints while it runs; the summary follows. A run with a wrong result (exit status 1)
 * has a summary; one that fails otherwise has it only with --json.
 */
#include "run.h"

#include "cli.h"
#include "collectives.h"
#include "crash.h"
#include "embedded.h"
#include "files.h"
#include "plugin.h"
#include "progress.h"
#include "run_trace.h"

#include <string.h>
#include <unistd.h>

enum { DEFAULT_STACK = 1 << 20 };

typedef struct run_args {
    cli_common common;
    const char *bench, *device, *trace;
    bool verify, timing_only, verbose, profile, check_races;
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
        "writes a timeline of all units, for https://ui.perfetto.dev; - is stdout, which has\n"
        "no other text then"),
    CLI_OPTION(
        "--profile", NULL, CLI_FLAG, run_args, profile,
        "prints the time of the PEs by source line and operation, with the causes of stalls"),
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

/* A run in progress. */
typedef struct run {
    const run_args *args;
    const kb_bench_spec *spec;
    const collectives *collectives;
    const char *file; /* of user code; NULL if the bench is built in */
    kb_bench *bench;
    kb_context *ctx;
    run_trace *trace;
    bool trace_on_stdout;
    double wall_s;
    bool timing_only, by_bench;
    bool printed; /* the bench has printed something */
} run;

/* ---- Output of the run -------------------------------------------------------------------- */

static void on_op(void *self, const kb_op *op)
{
    const run *r = self;
    run_trace_op(r->trace, op);
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

/* ---- The run ----------------------------------------------------------------------------- */

static kb_error *make_context(run *r)
{
    const run_args *args = r->args;
    kb_context_options o = {
        .topology = args->common.topology,
        .settings = args->common.settings.items,
        .setting_count = args->common.settings.count,
        .device = args->device,
        .timing_only = r->timing_only,
        .on_warning = on_warning,
        .on_warning_self = r,
        .stack_bytes = embedded_stack_bytes(args->stack_bytes, DEFAULT_STACK),
        .on_op = args->trace ? on_op : NULL,
        .on_op_self = r,
        .reasons = args->trace != NULL,
        .on_tcm = args->trace ? on_tcm : NULL,
        .on_tcm_self = r,
        .ccl = r->collectives->file,
        .ccl_plugins = r->collectives->plugins.items,
        .ccl_plugin_count = r->collectives->plugins.count,
        .on_note = args->verbose ? on_note : NULL,
        .on_ccl_trace = args->ccl_trace ? on_ccl_trace : NULL,
        .races = args->check_races ? KB_RACES_FAIL : KB_RACES_WARN,
    };
    return kb_context_create(&o, &r->ctx);
}

static kb_error *start_profile(run *r)
{
    return r->args->profile ? kb_oplog_start_profile(rt_get_stats(r->ctx).log) : NULL;
}

static void give_up(void *self, kb_error *err);

/* Creates the bench, which may print before there is a context. */
static kb_error *make_bench(run *r)
{
    const run_args *args = r->args;
    rt_bench_options o = {
        .settings = args->params.items,
        .setting_count = args->params.count,
        .verify = args->verify,
        .print = on_print,
        .give_up = give_up,
        .self = r,
    };
    KB_TRY(rt_bench_create(r->spec, &o, &r->bench));
    r->by_bench = !args->timing_only && rt_bench_is_timing_only(r->bench);
    r->timing_only = args->timing_only || r->by_bench;
    return NULL;
}

static kb_error *prepare(run *r)
{
    crash_enter_user_code(r->file);
    kb_error *err = make_bench(r);
    crash_leave_user_code();
    KB_TRY(err);
    KB_TRY(make_context(r));
    KB_TRY(start_profile(r));
    return r->args->trace ? run_trace_open(r->args->trace, r->ctx, &r->trace) : NULL;
}

/* While the bench runs. */
static void watch(const run *r, bool on)
{
    if (on)
        crash_enter_user_code(r->file);
    else
        crash_leave_user_code();
    crash_watch(on ? kb_context_sim(r->ctx) : NULL, r->args->stack_bytes);
    if (!r->args->common.quiet)
        crash_show_progress(on);
}

static kb_error *run_bench(run *r)
{
    double began = cli_wall_seconds();
    watch(r, true);
    kb_error *err = rt_bench_run(r->bench, r->ctx);
    watch(r, false);
    r->wall_s = cli_wall_seconds() - began;
    return err;
}

/* `failure`: how the run failed, or NULL; stays the caller's. */
static kb_code print_summary(const run *r, const char *trace, const kb_error *failure)
{
    run_stats stats;
    kb_error *err = run_stats_init(&stats, r->ctx);
    if (err)
        return cli_report(err);
    run_view view = {
        .common = &r->args->common,
        .spec = r->spec,
        .bench = r->bench,
        .stats = &stats,
        .timing_only = r->timing_only,
        .by_bench = r->by_bench,
        .verify = r->args->verify,
        .verbose = r->args->verbose,
        .wall_s = r->wall_s,
        .trace = trace,
        .failure = failure,
    };
    if (r->printed && !r->args->common.json)
        putchar('\n');
    kb_code code = r->args->common.json ? run_print_json(&view) : run_print_text(&view);
    run_stats_fini(&stats);
    return code;
}

/* --verify-data needs a bench that verifies. */
static kb_code check_verdict(const run *r)
{
    if (!r->args->verify || rt_bench_verdict(r->bench) != RT_NOT_VERIFIED)
        return KB_OK;
    return cli_fail(KB_ERR_CHECK,
                    "verification: bench '%s' compares nothing; it must call kb_bench_verify()",
                    r->spec->name);
}

/*
 * Whether to keep the trace. A trace of a fault or a deadlock ends with it, and shows its cause;
 * not kept are empty ones and those that end because memory or the clock ran out.
 */
static bool keeps_trace(const run *r, const kb_error *err)
{
    switch (kb_error_code(err)) {
    case KB_OK:
    case KB_ERR_CHECK:
        return true;
    case KB_ERR_FAULT:
    case KB_ERR_DEADLOCK:
        return r->ctx && kb_context_now(r->ctx) > 0;
    default:
        return false;
    }
}

/* Completes the trace and prints the summary. `err`: of the run, or NULL; freed. */
static kb_code conclude(run *r, kb_error *err)
{
    bool has_summary = !err || kb_error_code(err) == KB_ERR_CHECK || r->args->common.json;
    has_summary = has_summary && !r->trace_on_stdout;
    bool traced = keeps_trace(r, err);
    kb_error *trace_error = NULL;
    if (traced)
        trace_error = run_trace_close(r->trace);
    else
        run_trace_discard(r->trace);
    r->trace = NULL;
    kb_code code = KB_OK;
    if (has_summary && r->ctx)
        code = print_summary(r, traced && !trace_error ? r->args->trace : NULL, err);
    if (err) {
        fflush(stdout); /* the message comes last */
        kb_code of_run = cli_report(err);
        code = code == KB_OK ? of_run : code;
    }
    if (trace_error) {
        kb_code of_trace = cli_report(trace_error);
        code = code == KB_OK ? of_trace : code;
    }
    return code == KB_OK ? check_verdict(r) : code;
}

/* Called for an error of the bench that no call can return to it. */
static void give_up(void *self, kb_error *err)
{
    run *r = self;
    watch(r, false);
    kb_code code = conclude(r, err);
    fflush(stdout);
    crash_exit((int)code);
}

static kb_code run_plugin(const run_args *args, bool trace_on_stdout, const plugin *p,
                          const collectives *c)
{
    run r = {.args = args,
             .trace_on_stdout = trace_on_stdout,
             .spec = p->spec,
             .collectives = c,
             .file = c->plugin_file};
    kb_error *err = prepare(&r);
    kb_code code = err ? cli_report(err) : conclude(&r, run_bench(&r));
    kb_context_destroy(r.ctx);
    rt_bench_destroy(r.bench);
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

static kb_code run_run(const cli_call *call)
{
    const run_args *args = call->args;
    plugin p;
    collectives c = {0};
    bool trace_on_stdout;
    kb_code code = check_trace(args, &trace_on_stdout);
    if (code == KB_OK)
        code = plugin_open(args->bench, &p);
    if (code == KB_OK)
        code = collectives_load_plugins(&c, &args->collectives);
    if (code == KB_OK && p.library)
        c.plugin_file = args->bench;
    if (code == KB_OK)
        code = collectives_add_plugin(&c, p.collectives);
    if (code == KB_OK) /* errors there are reported even if the bench has no collectives */
        code = collectives_load_config(&c, &args->common.settings);
    if (code == KB_OK)
        code = run_plugin(args, trace_on_stdout, &p, &c);
    collectives_fini(&c);
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
        "Example: kernbench run --bench qkv_gemm_multi_pe --param width=768 --trace qkv.json\n",
    CLI_OPTIONS(options),
    CLI_ARGS(run_args, .stack_bytes = DEFAULT_STACK),
    .machine = CLI_MACHINE_OPTIONS,
    .max_words = 1, /* for the message that --bench is missing */
    .check = check_options,
    .run = run_run,
};
