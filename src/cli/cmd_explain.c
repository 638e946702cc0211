/*
 * cmd_explain.c: the command `explain`: why a run takes as long as it does.
 */
#include "cli.h"
#include "crash.h"
#include "explain_report.h"
#include "json.h"
#include "run_path.h"

typedef struct explain_args {
    cli_common common;
    const char *bench, *device;
    bool data, path;
    uint64_t stack_bytes, path_bytes;
    cli_list params;
    collectives_args collectives;
} explain_args;

static const cli_option options[] = {
    CLI_OPTION("--bench", "NAME", CLI_STRING, explain_args, bench,
               "a bench of kernbench list, or a file: ./mine.c, which is compiled, or ./mine.so;\n"
               "./mine.c:NAME if the file has several"),
    CLI_OPTION("--param", "NAME=VALUE", CLI_LIST, explain_args, params,
               "sets a parameter of the bench; repeatable"),
    CLI_OPTION("--device", "all|sip:N", CLI_STRING, explain_args, device,
               "uses all SIPs (default), or only this one"),
    CLI_OPTION("--data", NULL, CLI_FLAG, explain_args, data,
               "computes data, for programs whose course depends on them; times are the same"),
    CLI_OPTION("--path", NULL, CLI_FLAG, explain_args, path,
               "prints the path itself, step by step"),
    CLI_OPTION("--path-memory", "N", CLI_SIZE, explain_args, path_bytes,
               "memory for records of operations, 64 bytes each; what comes after they are full\n"
               "is grouped by kernel; default: 4GiB",
               .min = 0, .max = (double)((uint64_t)1 << 46)),
    COLLECTIVES_OPTIONS(explain_args),
    CLI_OPTION("--stack-bytes", "N", CLI_SIZE, explain_args, stack_bytes,
               "stack size in bytes of each kernel and worker; default: 1MiB", .min = 16 << 10,
               .max = 1 << 30),
};

/* ---- The run ----------------------------------------------------------------------------- */

enum { LISTED_STEPS = 10000, SAVED_STEPS = 2000 };

typedef struct run {
    const explain_args *args;
    run_path *path;
    json_t *document;
} run;

static void on_op(void *self, const kb_op *op)
{
    const run *r = self;
    run_path_op(r->path, op);
}

static kb_error *on_ready(void *self, kb_context *ctx)
{
    run *r = self;
    return run_path_begin(ctx, r->args->path_bytes, &r->path);
}

static void on_warning(void *self, const char *line)
{
    const run *r = self;
    if (!r->args->common.quiet)
        cli_warn("%s", line);
}

/* A run that faults or deadlocks is explained up to there. */
static bool has_path(const run *r, const run_outcome *outcome)
{
    if (!r->path || !outcome->ctx)
        return false;
    switch (kb_error_code(outcome->error)) {
    case KB_OK:
    case KB_ERR_CHECK:
    case KB_ERR_FAULT:
    case KB_ERR_DEADLOCK:
        return true;
    default:
        return false;
    }
}

static kb_code print(const run *r, const json_t *path)
{
    explain_print_headline(path);
    putchar('\n');
    kb_code code = explain_print_groups(path, r->args->path);
    if (code == KB_OK && json_object_get(path, "bound")) {
        putchar('\n');
        code = explain_print_bound(path);
    }
    return code;
}

static kb_code on_done(void *self, const run_outcome *outcome)
{
    run *r = self;
    const explain_args *args = r->args;
    kb_error *err = NULL;
    json_t *path = NULL;
    kb_code code = KB_OK;
    if (has_path(r, outcome))
        err = run_path_json(r->path, outcome, args->path ? LISTED_STEPS : SAVED_STEPS, &path);
    if (err)
        code = cli_report(err);
    else if (path && args->common.json)
        code = cli_json_print(json_pack("{s:O}", "critical_path", path));
    else if (path)
        code = print(r, path);
    json_decref(path);
    if (outcome->error) {
        fflush(stdout); /* the message comes last */
        kb_code of_run = cli_print_error(outcome->error);
        code = code == KB_OK ? of_run : code;
    }
    return code;
}

static kb_code explain(const explain_args *args, const run_program *program)
{
    run r = {.args = args};
    run_options o = {
        .topology = args->common.topology,
        .settings = &args->common.settings,
        .params = &args->params,
        .device = args->device,
        .timing_only = !args->data,
        .stack_bytes = args->stack_bytes,
        .shows_progress = !args->common.quiet,
        .warn = on_warning,
        .op = on_op,
        .reasons = true,
        .ready = on_ready,
        .done = on_done,
        .self = &r,
    };
    kb_code code = run_once(program, &o);
    run_path_end(r.path);
    return code;
}

/* ---- The command ------------------------------------------------------------------------- */

static kb_code check_options(const cli_call *call)
{
    const explain_args *args = call->args;
    if (call->word_count > 0)
        return cli_too_many("explain", call->words[0]);
    if (!args->bench)
        return cli_fail(KB_ERR_INPUT, "missing --bench NAME; see kernbench list");
    return KB_OK;
}

static kb_code run_explain(const cli_call *call)
{
    const explain_args *args = call->args;
    run_program program;
    kb_code code = run_program_open(&program, args->bench, &args->collectives);
    if (code == KB_OK)
        code = explain(args, &program);
    run_program_close(&program);
    return code;
}

const cli_command cli_explain_command = {
    .name = "explain",
    .arguments = "--bench NAME [OPTIONS]",
    .summary = "explain a run: its critical path, and what would make it faster",
    .help =
        "The critical path is a chain of steps without gaps, from the begin of the run to its\n"
        "end. The tables divide it: each adds up to the simulated time. Data are not computed,\n"
        "unless --data is given; simulated times are the same.\n"
        "\n"
        "Exit status: 3 if the program faults, 4 if it deadlocks; the path up to there is\n"
        "printed.\n",
    .example = "Example: kernbench explain --bench gemm_single_pe\n"
               "Example: kernbench explain --bench ./mine.c --path --json\n",
    CLI_OPTIONS(options),
    CLI_ARGS(explain_args, .stack_bytes = RUN_DEFAULT_STACK, .path_bytes = RUN_PATH_BYTES),
    .machine = CLI_MACHINE_OPTIONS,
    .max_words = 1,
    .check = check_options,
    .run = run_explain,
};
