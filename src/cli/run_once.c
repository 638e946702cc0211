/*
 * run_once.c: one run of a bench: see run_once.h. It prints nothing: what is said goes to hooks,
 * and what came of the run to done().
 */
#include "run_once.h"

#include "crash.h"
#include "embedded.h"
#include "progress.h"

/* ---- The program ------------------------------------------------------------------------- */

kb_code run_program_open(run_program *program, const char *bench, const collectives_args *args)
{
    *program = (run_program){0};
    plugin p;
    kb_code code = plugin_open(bench, &p);
    if (code != KB_OK)
        return code;
    program->spec = p.spec;
    code = collectives_load_plugins(&program->collectives, args);
    if (p.library)
        program->collectives.plugin_file = bench;
    return code == KB_OK ? collectives_add_plugin(&program->collectives, p.collectives) : code;
}

void run_program_close(run_program *program)
{
    collectives_fini(&program->collectives);
}

/* ---- The run ----------------------------------------------------------------------------- */

static const cli_list empty;

/* A run in progress. */
typedef struct run {
    const run_options *options;
    const cli_list *settings, *params;
    const kb_bench_spec *spec;
    const collectives *collectives;
    kb_bench *bench;
    kb_context *ctx;
    double began_s, bench_s; /* when it began; how long the bench ran */
    uint64_t stack_bytes;
    bool timing_only, by_bench;
} run;

static void warn(void *self, const char *line)
{
    const run *r = self;
    if (r->options->warn)
        r->options->warn(r->options->self, line);
}

static kb_error *make_context(run *r)
{
    const run_options *options = r->options;
    kb_context_options o = {
        .topology = options->topology,
        .settings = r->settings->items,
        .setting_count = r->settings->count,
        .device = options->device,
        .timing_only = r->timing_only,
        .on_warning = warn,
        .on_warning_self = r,
        .stack_bytes = r->stack_bytes,
        .on_op = options->op,
        .on_op_self = options->self,
        .reasons = options->reasons,
        .on_tcm = options->tcm,
        .on_tcm_self = options->self,
        .ccl = r->collectives->file,
        .ccl_plugins = r->collectives->plugins.items,
        .ccl_plugin_count = r->collectives->plugins.count,
        .on_note = options->note,
        .on_note_self = options->self,
        .on_ccl_trace = options->ccl_trace,
        .on_ccl_trace_self = options->self,
        .races = options->check_races ? KB_RACES_FAIL : KB_RACES_WARN,
    };
    return kb_context_create(&o, &r->ctx);
}

static void give_up(void *self, kb_error *err);

static void print(void *self, const char *line)
{
    const run *r = self;
    if (r->options->print)
        r->options->print(r->options->self, line);
}

/* Creates the bench, which may print before there is a context. */
static kb_error *make_bench(run *r)
{
    rt_bench_options o = {
        .settings = r->params->items,
        .setting_count = r->params->count,
        .verify = r->options->verify,
        .print = print,
        .give_up = give_up,
        .self = r,
    };
    crash_enter_user_code(r->collectives->plugin_file);
    kb_error *err = rt_bench_create(r->spec, &o, &r->bench);
    if (!err)
        r->by_bench = !r->options->timing_only && rt_bench_is_timing_only(r->bench);
    crash_leave_user_code();
    r->timing_only = r->options->timing_only || r->by_bench;
    return err;
}

static kb_error *prepare(run *r)
{
    /* Errors there are reported even if the bench has no collectives. */
    KB_TRY(collectives_check_config(r->collectives, r->settings));
    KB_TRY(make_bench(r));
    KB_TRY(make_context(r));
    if (r->options->profile)
        KB_TRY(kb_oplog_start_profile(rt_get_stats(r->ctx).log));
    return r->options->ready ? r->options->ready(r->options->self, r->ctx) : NULL;
}

/* While the bench runs. */
static void watch(const run *r, bool on)
{
    if (on)
        crash_enter_user_code(r->collectives->plugin_file);
    else
        crash_leave_user_code();
    crash_watch(on ? kb_context_sim(r->ctx) : NULL, r->stack_bytes);
    if (r->options->shows_progress)
        crash_show_progress(on);
}

/* --verify-data needs a bench that verifies. */
static kb_error *check_verdict(const run *r)
{
    if (!r->options->verify || rt_bench_verdict(r->bench) != RT_NOT_VERIFIED)
        return NULL;
    return kb_error_new(KB_ERR_CHECK,
                        "verification: bench '%s' compares nothing; it must call kb_bench_verify()",
                        r->spec->name);
}

static kb_error *run_bench(run *r)
{
    double began = cli_wall_seconds();
    watch(r, true);
    kb_error *err = rt_bench_run(r->bench, r->ctx);
    watch(r, false);
    r->bench_s = cli_wall_seconds() - began;
    return err ? err : check_verdict(r);
}

/* ---- Its end ----------------------------------------------------------------------------- */

static kb_code call_done(const run *r, const run_stats *stats, const kb_error *err)
{
    const run_options *options = r->options;
    run_view view = {
        .settings = r->settings,
        .spec = r->spec,
        .bench = r->bench,
        .stats = stats,
        .timing_only = r->timing_only,
        .by_bench = r->by_bench,
        .verify = options->verify,
        .wall_s = r->bench_s,
        .failure = err,
    };
    run_outcome outcome = {
        .error = err,
        .ctx = r->ctx,
        .view = stats ? &view : NULL,
        .wall_s = cli_wall_seconds() - r->began_s,
    };
    return options->done(options->self, &outcome);
}

/* `err`: of the run, or NULL; freed. */
static kb_code conclude(const run *r, kb_error *err)
{
    run_stats stats;
    bool has_stats = false;
    if (r->ctx) {
        kb_error *of_stats = run_stats_init(&stats, r->ctx);
        has_stats = !of_stats;
        if (err)
            kb_error_free(of_stats);
        else
            err = of_stats;
    }
    kb_code code = call_done(r, has_stats ? &stats : NULL, err);
    if (has_stats)
        run_stats_fini(&stats);
    kb_error_free(err);
    return code;
}

/* Called for an error of the bench that no call can return to it. */
static void give_up(void *self, kb_error *err)
{
    const run *r = self;
    watch(r, false);
    kb_code code = conclude(r, err);
    fflush(stdout);
    crash_exit((int)code);
}

kb_code run_once(const run_program *program, const run_options *options)
{
    uint64_t stack_bytes = options->stack_bytes ? options->stack_bytes : RUN_DEFAULT_STACK;
    run r = {
        .options = options,
        .settings = options->settings ? options->settings : &empty,
        .params = options->params ? options->params : &empty,
        .spec = program->spec,
        .collectives = &program->collectives,
        .began_s = cli_wall_seconds(),
        .stack_bytes = embedded_stack_bytes(stack_bytes, RUN_DEFAULT_STACK),
    };
    kb_error *err = prepare(&r);
    if (!err)
        err = run_bench(&r);
    kb_code code = conclude(&r, err);
    kb_context_destroy(r.ctx);
    rt_bench_destroy(r.bench);
    return code;
}
