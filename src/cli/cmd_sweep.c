/*
 * cmd_sweep.c: the command `sweep`: runs the points of a plan that the store does not have, and
 * shows the results of all.
 *
 * The plan is a file (plan_file.c), options, or both: options replace what the file says of the
 * same key.
 */
#include "cli.h"
#include "crash.h"
#include "machine_options.h"
#include "sweep_check.h"
#include "sweep_ranks.h"
#include "sweep_show.h"
#include "sweep_status.h"
#include "sweep_worker.h"

#include <string.h>
#include <unistd.h>

static const char default_store[] = "kernbench.db";
static const double max_seconds = 1e9;
static const double sample_seconds = 10; /* of the points that --dry-run runs */
enum { SAMPLES = 8 };

typedef struct sweep_args {
    cli_common common;
    const char *bench, *device, *store, *shard;
    bool verify, timing_only, check_races, force, retry_failed, dry_run;
    cli_list over, zip, where, params;
    uint64_t repeat, workers, memory_bytes, stack_bytes;
    double timeout_s;
    collectives_args collectives;
    sweep_report_args report;
} sweep_args;

static const cli_option options[] = {
    CLI_OPTION("--bench", "NAME", CLI_STRING, sweep_args, bench,
               "a bench of kernbench list, or a file: ./mine.c, ./mine.so or ./mine.py"),
    CLI_OPTION(
        "--over", "KEY=VALUES", CLI_LIST, sweep_args, over,
        "an axis: a setting of the machine (sip.ucie.bw_gbs) or of collectives (ccl.KEY), a\n"
        "parameter of the bench, topology or bench; values such as 1,2,4 or 2..8 or\n"
        "1KiB..1GiB*4 or 0.5..1+0.1; repeatable"),
    CLI_OPTION("--zip", "KEY,KEY", CLI_LIST, sweep_args, zip,
               "these axes advance together; repeatable"),
    CLI_OPTION("--where", "EXPR", CLI_LIST, sweep_args, where,
               "only points for which this holds, such as 'm*n <= 4096'; repeatable"),
    CLI_OPTION("--param", "NAME=VALUE", CLI_LIST, sweep_args, params,
               "sets a parameter of the bench; repeatable"),
    CLI_OPTION("--repeat", "N", CLI_UINT, sweep_args, repeat,
               "runs each point so many times, to compare wall times", .min = 1,
               .max = SWEEP_MAX_POINTS),
    CLI_OPTION("--device", "all|sip:N", CLI_STRING, sweep_args, device,
               "uses all SIPs (default), or only this one"),
    CLI_OPTION("--verify-data", NULL, CLI_FLAG, sweep_args, verify,
               "compares the results of each point with a reference"),
    CLI_OPTION("--timing-only", NULL, CLI_FLAG, sweep_args, timing_only,
               "computes no data: same simulated times, less wall time and memory"),
    CLI_OPTION("--check-races", NULL, CLI_FLAG, sweep_args, check_races,
               "points with data races fail"),
    COLLECTIVES_OPTIONS(sweep_args),
    CLI_OPTION("--stack-bytes", "N", CLI_SIZE, sweep_args, stack_bytes,
               "stack size in bytes of each kernel and worker; default: 1MiB", .min = 16 << 10,
               .max = 1 << 30),
    CLI_OPTION("--workers", "N", CLI_UINT, sweep_args, workers,
               "points at a time; default: the number of cores", .min = 1,
               .max = SWEEP_MAX_WORKERS),
    CLI_OPTION("--timeout", "SECONDS", CLI_DOUBLE, sweep_args, timeout_s,
               "ends a point that takes longer, and records that", .min = 1e-3, .max = max_seconds),
    CLI_OPTION("--memory-per-point", "N", CLI_SIZE, sweep_args, memory_bytes,
               "ends a point that uses more resident memory, and records that", .min = 1 << 20,
               .max = (double)((uint64_t)1 << 52)),
    CLI_OPTION("--store", "FILE", CLI_STRING, sweep_args, store,
               "the file that keeps all runs; default: kernbench.db"),
    CLI_OPTION("--shard", "I/N", CLI_STRING, sweep_args, shard,
               "only the I-th of N parts of the plan, such as 3/16; see sweep merge"),
    CLI_OPTION("--force", NULL, CLI_FLAG, sweep_args, force,
               "runs points that the store has already"),
    CLI_OPTION("--retry-failed", NULL, CLI_FLAG, sweep_args, retry_failed,
               "runs points again that failed before"),
    CLI_OPTION("--dry-run", NULL, CLI_FLAG, sweep_args, dry_run,
               "counts and lists the points, and estimates the time from a few of them"),
    SWEEP_REPORT_OPTIONS(sweep_args),
};

/* ---- The plan ------------------------------------------------------------------------------ */

static kb_error *apply_each(sweep_plan *plan, const cli_list *list,
                            kb_error *(*apply)(sweep_plan *plan, const char *text))
{
    for (size_t i = 0; i < list->count; i++)
        KB_TRY(apply(plan, list->items[i]));
    return NULL;
}

static kb_error *apply_shard(sweep_plan *plan, const char *text)
{
    char copy[64];
    const char *slash = strchr(text, '/');
    size_t length = slash ? (size_t)(slash - text) : 0;
    uint64_t part = 0, parts = 0;
    if (slash && length < sizeof copy) {
        memcpy(copy, text, length);
        copy[length] = '\0';
        if (cli_read_uint(copy, &part) && cli_read_uint(slash + 1, &parts) && part >= 1 &&
            part <= parts) {
            plan->shard = part - 1;
            plan->shards = parts;
            return NULL;
        }
    }
    return kb_error_new(KB_ERR_INPUT,
                        "--shard: expected I/N with I from 1 to N, such as 3/16, found '%.80s'",
                        text);
}

/* Options that the file may have too: those of the command line come first. */
static kb_error *apply_run_options(sweep_plan *plan, const sweep_args *args)
{
    const collectives_args *c = &args->collectives;
    if (args->common.topology)
        plan->topology = args->common.topology;
    if (args->device)
        plan->device = args->device;
    if (args->store)
        plan->store = args->store;
    if (c->ccl)
        plan->ccl = c->ccl;
    for (size_t i = 0; i < c->plugins.count; i++)
        if (!kb_vec_push(&plan->plugins, c->plugins.items[i]))
            return kb_error_nomem();
    plan->verify = plan->verify || args->verify;
    plan->timing_only = plan->timing_only || args->timing_only;
    plan->check_races = plan->check_races || args->check_races;
    plan->repeat = args->repeat > 0 ? args->repeat : plan->repeat;
    plan->workers = args->workers > 0 ? args->workers : plan->workers;
    plan->memory_bytes = args->memory_bytes > 0 ? args->memory_bytes : plan->memory_bytes;
    plan->stack_bytes = args->stack_bytes > 0 ? args->stack_bytes : plan->stack_bytes;
    plan->timeout_s = args->timeout_s > 0 ? args->timeout_s : plan->timeout_s;
    if (plan->verify && plan->timing_only)
        return kb_error_new(KB_ERR_INPUT, "--verify-data and --timing-only are mutually exclusive");
    return NULL;
}

static kb_error *make_plan(const sweep_args *args, const char *file, sweep_plan *plan)
{
    if (file)
        KB_TRY(sweep_plan_read(plan, file));
    if (args->bench)
        KB_TRY(sweep_plan_bench(plan, args->bench));
    KB_TRY(apply_each(plan, &args->common.settings, sweep_plan_set));
    KB_TRY(apply_each(plan, &args->params, sweep_plan_param));
    KB_TRY(apply_each(plan, &args->over, sweep_plan_over));
    KB_TRY(apply_each(plan, &args->zip, sweep_plan_zip));
    KB_TRY(apply_each(plan, &args->where, sweep_plan_where));
    KB_TRY(apply_run_options(plan, args));
    if (args->shard)
        KB_TRY(apply_shard(plan, args->shard));
    return sweep_plan_finish(plan);
}

/* ---- The command --------------------------------------------------------------------------- */

/* Options that change neither the points nor what the page shows of them. */
static bool is_left_out(const char *name)
{
    static const char *const names[] = {"--workers", "--store", "--force", "--retry-failed",
                                        "--csv",     "--plot",  "--report"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

/* Appends the option if it was given: no option has a value that is 0 or empty. */
static void append_given(kb_text *text, const cli_option *option, const void *args)
{
    const void *at = (const char *)args + option->at;
    const cli_list *list = at;
    switch (option->kind) {
    case CLI_FLAG:
        if (*(const bool *)at)
            kb_text_printf(text, " %s", option->name);
        break;
    case CLI_STRING:
    case CLI_OPTIONAL:
        if (*(const char *const *)at)
            cli_append_option(text, option->name, *(const char *const *)at);
        break;
    case CLI_UINT:
    case CLI_SIZE:
        if (*(const uint64_t *)at > 0)
            kb_text_printf(text, " %s %llu", option->name, *(const unsigned long long *)at);
        break;
    case CLI_DOUBLE:
        if (*(const double *)at > 0)
            kb_text_printf(text, " %s %.12g", option->name, *(const double *)at);
        break;
    case CLI_ENUM:
        if (*(const size_t *)at > 0)
            cli_append_option(text, option->name, option->names[*(const size_t *)at]);
        break;
    case CLI_LIST:
        for (size_t i = 0; i < list->count; i++)
            cli_append_option(text, option->name, list->items[i]);
        break;
    }
}

/* What makes the same results again. */
static void compose_command(const sweep_args *args, const char *file, kb_text *text)
{
    kb_text_puts(text, "kernbench");
    if (file)
        cli_append_option(text, "sweep", file);
    else
        kb_text_puts(text, " sweep");
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        if (!is_left_out(options[i].name))
            append_given(text, &options[i], args);
    kb_text_escape_from(text, 0);
    cli_machine_options(&args->common, text);
}

/* ---- The sweep ----------------------------------------------------------------------------- */

/* All of a sweep. */
typedef struct sweep {
    sweep_args *args;
    sweep_plan *plan;
    sweep_worker worker;
    sweep_keys keys;
    sweep_known *known;
    store *store; /* NULL: --dry-run, and there is none */
    sweep_local *local;
    mpi_job *job; /* NULL: mpirun has not started the program */
    sweep_remote *remote;
    sweep_drive *drive;
    sweep_status status;
    kb_text command; /* for the page */
} sweep;

static size_t count_workers(const sweep *s)
{
    if (s->remote)
        return sweep_remote_runner(s->remote).slots;
    return s->plan->workers > 0 ? (size_t)s->plan->workers : child_count_cores();
}

static kb_error *make_keys(sweep *s)
{
    const sweep_plan *plan = s->plan;
    KB_TRY(sweep_keys_init(&s->keys, plan, s->worker.ccl));
    for (size_t i = 0; i < s->worker.benches.count; i++) {
        const sweep_bench *bench = &s->worker.benches.items[i];
        KB_TRY(sweep_keys_add_bench(&s->keys, bench->name, bench->file));
    }
    if (plan->topology)
        KB_TRY(sweep_keys_add_topology(&s->keys, plan->topology));
    for (size_t a = 0; a < plan->axes.count; a++) {
        const sweep_axis *axis = &plan->axes.items[a];
        for (size_t v = 0; axis->target == SWEEP_TOPOLOGY && v < axis->values.count; v++)
            KB_TRY(sweep_keys_add_topology(&s->keys, axis->values.items[v].text));
    }
    return NULL;
}

/* A dry run changes nothing. */
static kb_error *open_store(sweep *s)
{
    const char *path = s->plan->store ? s->plan->store : default_store;
    bool dry = s->args->dry_run;
    if (dry && access(path, F_OK) != 0)
        return NULL;
    return store_open(path, dry ? STORE_READ : STORE_WRITE, &s->store);
}

static void describe(void *self, const sweep_point *point, store_run *run, kb_text *texts)
{
    const sweep *s = self;
    sweep_worker_describe(&s->worker, point, run, texts);
}

static void show_progress(void *self, const sweep_progress *progress)
{
    sweep *s = self;
    sweep_status_show(&s->status, progress);
}

static kb_error *make_drive(sweep *s)
{
    const sweep_args *args = s->args;
    bool dry = args->dry_run;
    KB_TRY(open_store(s));
    KB_TRY(sweep_known_create(&s->known));
    if (s->store)
        KB_TRY(sweep_known_read(s->known, s->store));
    s->worker.known = s->known;
    s->worker.force = args->force;
    s->worker.retry_failed = args->retry_failed;
    sweep_drive_options o = {
        .plan = s->plan,
        .keys = &s->keys,
        .store = dry ? NULL : s->store,
        .known = s->known,
        .force = args->force,
        .retry_failed = args->retry_failed,
        .max_points = dry ? SAMPLES : 0,
        .max_seconds = dry ? sample_seconds : 0,
        .describe = describe,
        .progress = show_progress,
        .self = s,
    };
    return sweep_drive_create(&o, &s->drive);
}

static void leave_child(int status)
{
    crash_exit(status);
}

static child_options make_child_options(const sweep *s, size_t slots)
{
    return (child_options){
        .slots = (unsigned)slots,
        .seconds = s->plan->timeout_s,
        .memory_bytes = s->plan->memory_bytes,
        .leave = leave_child,
    };
}

/* In children of this process, or on the other ranks. */
static kb_error *make_runner(sweep *s, size_t left, sweep_runner *runner)
{
    if (s->remote) {
        *runner = sweep_remote_runner(s->remote);
        return NULL;
    }
    size_t workers = count_workers(s);
    child_options o = make_child_options(s, workers < left ? workers : left);
    if (s->args->dry_run && (o.seconds <= 0 || o.seconds > sample_seconds))
        o.seconds = sample_seconds;
    KB_TRY(sweep_local_create(&o, (sweep_work){sweep_worker_run, &s->worker}, &s->local));
    *runner = sweep_local_runner(s->local);
    return NULL;
}

static kb_error *run_points(sweep *s)
{
    sweep_runner runner;
    size_t left = sweep_drive_left(s->drive);
    if (left == 0)
        return NULL;
    KB_TRY(make_runner(s, left, &runner));
    s->status = sweep_status_start(s->args->common.quiet);
    interrupts_hold();
    kb_error *err = sweep_drive_run(s->drive, &runner);
    sweep_status_clear(&s->status);
    return err;
}

/* Ends the program as the signal would have, after saying what is kept. */
static void tell_of_interrupt(const sweep *s)
{
    size_t left = sweep_drive_left(s->drive);
    if (interrupts_signal() == 0)
        return;
    if (!s->args->dry_run && !s->args->common.quiet)
        fprintf(stderr,
                "kernbench: interrupted: %zu of %zu points are stored; the same command goes on\n",
                s->plan->point_count - left, s->plan->point_count);
}

static kb_code show(sweep *s)
{
    sweep_show_input input = {
        .plan = s->plan,
        .drive = s->drive,
        .store = s->store,
        .common = &s->args->common,
        .report = &s->args->report,
        .workers = count_workers(s),
    };
    return s->args->dry_run ? sweep_show_plan(&input) : sweep_show_results(&input);
}

static void fini(sweep *s)
{
    sweep_remote_destroy(s->remote);
    mpi_close(s->job);
    sweep_drive_destroy(s->drive);
    sweep_local_destroy(s->local);
    sweep_known_destroy(s->known);
    store_close(s->store);
    sweep_keys_fini(&s->keys);
    sweep_worker_close(&s->worker);
    sweep_plan_destroy(s->plan);
    kb_text_fini(&s->command);
}

/* What every rank needs. */
static kb_code prepare_points(sweep *s, const char *file)
{
    kb_error *err = sweep_plan_create(&s->plan);
    if (!err)
        err = make_plan(s->args, file, s->plan);
    if (err)
        return cli_report(err);
    const sweep_plan *plan = s->plan;
    sweep_report_args *report = &s->args->report;
    kb_code code = sweep_report_take(report, plan->views.items, plan->views.count);
    if (code == KB_OK)
        code = sweep_report_check(report, s->args->common.json, plan->columns.items,
                                  plan->columns.count);
    if (code == KB_OK)
        code = sweep_worker_open(&s->worker, plan);
    if (code != KB_OK)
        return code;
    err = sweep_check(&s->worker);
    if (!err)
        err = make_keys(s);
    s->worker.keys = &s->keys;
    return err ? cli_report(err) : KB_OK;
}

/* Other ranks wait for rank 0 until they are told what to do, also if it cannot go on. */
static kb_code prepare(sweep *s, const char *file)
{
    kb_code code = prepare_points(s, file);
    kb_error *err = code == KB_OK ? make_drive(s) : NULL;
    if (err)
        code = cli_report(err);
    err = s->job ? sweep_remote_create(s->job, &s->remote) : NULL;
    if (code == KB_OK && err)
        return cli_report(err);
    kb_error_free(err);
    return code;
}

static kb_code run_and_show(sweep *s, const char *file)
{
    kb_code code = prepare(s, file);
    if (code != KB_OK)
        return code;
    kb_error *err = run_points(s);
    tell_of_interrupt(s);
    if (err)
        return cli_report(err);
    return interrupts_signal() == 0 ? show(s) : KB_OK;
}

/* A rank runs so many points at a time as --workers says, or one. */
static kb_code serve(sweep *s, const char *file)
{
    sweep_messages messages;
    kb_text text = KB_TEXT_INIT;
    kb_error *err = sweep_messages_catch(&messages);
    if (err)
        return cli_report(err);
    kb_code code = prepare_points(s, file);
    sweep_messages_release(&messages, &text);
    if (code == KB_OK) {
        child_options o = make_child_options(s, s->plan->workers > 0 ? s->plan->workers : 1);
        code = sweep_ranks_serve(s->job, &s->worker, &o);
    } else {
        sweep_refuse_to_serve(s->job, cli_text(&text));
        code = KB_OK; /* rank 0 reports it */
    }
    kb_text_fini(&text);
    return code;
}

static kb_code run_sweep(const cli_call *call)
{
    sweep s = {.args = call->args, .command = KB_TEXT_INIT};
    const char *file = call->word_count > 0 ? call->words[0] : NULL;
    compose_command(s.args, file, &s.command); /* before options of the plan join those given */
    s.args->report.command = cli_text(&s.command);
    if (mpi_is_started()) {
        kb_error *err = mpi_open(&s.job);
        if (err)
            return cli_report(err);
    }
    kb_code code = s.job && mpi_rank(s.job) > 0 ? serve(&s, file) : run_and_show(&s, file);
    fini(&s);
    interrupts_release();
    return code;
}

static kb_code check_options(const cli_call *call)
{
    const sweep_args *args = call->args;
    if (call->word_count == 0 && !args->bench && args->over.count == 0)
        return cli_fail(KB_ERR_INPUT, "missing plan: kernbench sweep plan.yaml, or kernbench sweep "
                                      "--bench NAME --over KEY=VALUES");
    return KB_OK;
}

static const cli_command *const subcommands[] = {&cli_sweep_merge_command, NULL};

const cli_command cli_sweep_command = {
    .name = "sweep",
    .arguments = "[PLAN.yaml] [OPTIONS]",
    .summary = "run a bench over a grid of settings and parameters, on all cores",
    .help =
        "Every run is kept in a store. Points that the store has are not run again, so the same\n"
        "command goes on after an interrupt. Each point runs in a process of its own; one that\n"
        "fails is recorded, and the sweep goes on. docs/sweeps.md is the guide.\n"
        "\n"
        "Exit status: 1 if a point has failed.\n",
    .example =
        "Example: kernbench sweep --bench gemm_single_pe --over m=64..256*2 --report gemm.html\n"
        "Example: kernbench sweep --bench ccl_allreduce --over sip.ucie.bw_gbs=128,256 "
        "--timing-only --dry-run\n",
    CLI_OPTIONS(options),
    CLI_ARGS(sweep_args, .store = NULL),
    .machine = CLI_MACHINE_OPTIONS,
    .max_words = 1,
    .subcommands = subcommands,
    .check = check_options,
    .run = run_sweep,
};
