/*
 * cmd_explain.c: the command `explain`: why a run takes as long as it does.
 */
#include "cli.h"
#include "explain_report.h"
#include "json.h"
#include "machine_options.h"
#include "path_document.h"
#include "what_if.h"

#include <string.h>

typedef struct explain_args {
    cli_common common;
    const char *bench, *device, *store;
    bool data, path, no_rerun, verbose;
    uint64_t stack_bytes, path_bytes, jobs;
    double seconds;
    cli_list params, what_if;
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
    CLI_OPTION("--verbose", NULL, CLI_FLAG, explain_args, verbose,
               "adds the path by resource, kernel, unit, link, memory and reason, what each step\n"
               "consists of, and all resources that would not help"),
    CLI_OPTION("--what-if", "KEY=VALUE", CLI_LIST, explain_args, what_if,
               "also runs with this setting of the machine, or of ccl.yaml; repeatable"),
    CLI_OPTION("--no-rerun", NULL, CLI_FLAG, explain_args, no_rerun,
               "does not measure what would help, which takes some 40 runs on all cores"),
    CLI_OPTION("--rerun-seconds", "N", CLI_DOUBLE, explain_args, seconds,
               "how long these runs may take together, once the run itself has ended;\n"
               "what that leaves out is named; default: 120",
               .min = 0, .max = 1e9),
    CLI_OPTION("--jobs", "N", CLI_UINT, explain_args, jobs, "runs at a time; default: all cores",
               .min = 1, .max = 4096),
    CLI_OPTION("--store", "DB", CLI_STRING, explain_args, store,
               "the store of RUN, a file of run --save; default: kernbench.db"),
    CLI_OPTION("--path-memory", "N", CLI_SIZE, explain_args, path_bytes,
               "memory for records of operations, 64 bytes each; what comes after they are full\n"
               "is grouped by kernel; default: 4GiB",
               .min = 0, .max = (double)((uint64_t)1 << 46)),
    COLLECTIVES_OPTIONS(explain_args),
    CLI_OPTION("--stack-bytes", "N", CLI_SIZE, explain_args, stack_bytes,
               "stack size in bytes of each kernel and worker; default: 1MiB", .min = 16 << 10,
               .max = 1 << 30),
};

/* ---- The command's work ------------------------------------------------------------------ */

enum { LISTED_STEPS = 10000 };

static kb_code print(const explain_args *args, const json_t *path, const json_t *table)
{
    kb_code code = KB_OK;
    explain_print_headline(path);
    if (explain_fs(path, "fs") == 0)
        return KB_OK;
    putchar('\n');
    if (table) {
        code = what_if_print(path, table, args->verbose);
        putchar('\n');
    }
    if (code == KB_OK)
        code = explain_print_groups(path, args->verbose, args->path);
    if (code == KB_OK && json_is_object(json_object_get(path, "bound"))) {
        putchar('\n');
        code = explain_print_bound(path);
    }
    return code;
}

/* `table`: what would help, or NULL. */
static kb_code show(const explain_args *args, json_t *document, const json_t *table)
{
    if (!args->common.json)
        return print(args, json_object_get(document, "critical_path"), table);
    json_t *shown = json_incref(document);
    cli_json_set(&shown, "what_if", table ? json_incref((json_t *)(uintptr_t)table) : json_null());
    return cli_json_print(shown);
}

static kb_code explain(const explain_args *args, what_if *runs)
{
    json_t *document = NULL, *table = NULL;
    kb_code of_run = what_if_base(runs, &document), code = KB_OK;
    const json_t *path = json_object_get(document, "critical_path");
    if (explain_fs(path, "fs") > 0 && of_run == KB_OK && !args->no_rerun)
        code = what_if_measure(runs, path, &table);
    if (path && code == KB_OK)
        code = show(args, document, table);
    json_decref(document);
    json_decref(table);
    return of_run != KB_OK ? of_run : code;
}

static kb_code explain_bench(const explain_args *args, const run_program *program,
                             const topo_machine *machine)
{
    what_if *runs;
    what_if_options o = {
        .program = program,
        .topology = args->common.topology,
        .device = args->device,
        .settings = &args->common.settings,
        .params = &args->params,
        .own = &args->what_if,
        .machine = machine,
        .data = args->data,
        .quiet = args->common.quiet,
        .stack_bytes = args->stack_bytes,
        .path_bytes = args->path_bytes,
        .steps = args->path ? LISTED_STEPS : RUN_PATH_STEPS,
        .seconds = args->seconds,
        .cores = (unsigned)args->jobs,
    };
    kb_error *err = what_if_create(&o, &runs);
    if (err)
        return cli_report(err);
    kb_code code = explain(args, runs);
    what_if_destroy(runs);
    return code;
}

/* ---- The command ------------------------------------------------------------------------- */

static bool is_python(const char *bench)
{
    const char *ending = bench ? strrchr(bench, '.') : NULL;
    return ending && strcmp(ending, ".py") == 0;
}

static kb_code check_options(const cli_call *call)
{
    const explain_args *args = call->args;
    if (args->bench && call->word_count > 0)
        return cli_too_many("explain", call->words[0]);
    if (!args->bench && call->word_count == 0)
        return cli_fail(KB_ERR_INPUT, "missing --bench NAME, or a run of a store; see kernbench "
                                      "list and kernbench runs");
    if (is_python(args->bench))
        return cli_fail(KB_ERR_INPUT,
                        "explain runs benches in C only; keep a run of this one: kernbench run "
                        "--bench %s --save, then kernbench explain @last",
                        args->bench);
    if (args->what_if.count > 0 && (args->no_rerun || !args->bench))
        return cli_fail(KB_ERR_INPUT, "--what-if runs the bench again: give --bench, and not "
                                      "--no-rerun");
    return KB_OK;
}

/* A run that was kept: its path as it was. */
static kb_code explain_run(const explain_args *args, const char *name)
{
    json_t *document;
    kb_code code = path_document_load(name, args->store, &document);
    if (code != KB_OK)
        return code;
    code = show(args, document, NULL);
    json_decref(document);
    return code;
}

/* One's own settings, each on top of those of the machine, before anything runs. */
static kb_code check_what_if(const explain_args *args, const run_program *program)
{
    static const char of_collectives[] = "ccl.";
    kb_code code = KB_OK;
    for (size_t i = 0; i < args->what_if.count && code == KB_OK; i++) {
        const char *own = args->what_if.items[i];
        cli_common with = args->common;
        with.settings = (cli_list){0};
        bool good = true;
        for (size_t k = 0; k < args->common.settings.count; k++)
            good = good && kb_vec_push(&with.settings, args->common.settings.items[k]);
        topo_machine *machine = NULL;
        kb_error *err = NULL;
        if (!good || !kb_vec_push(&with.settings, own))
            err = kb_error_nomem();
        else if (strncmp(own, of_collectives, strlen(of_collectives)) == 0)
            err = collectives_check_config(&program->collectives, &with.settings);
        else
            err = cli_try_machine(&with, &machine);
        if (err)
            code = cli_fail(kb_error_code(err), "--what-if %s: %s", own, kb_error_message(err));
        kb_error_free(err);
        topo_machine_destroy(machine);
        kb_vec_fini(&with.settings);
    }
    return code;
}

static kb_code run_explain(const cli_call *call)
{
    const explain_args *args = call->args;
    if (!args->bench)
        return explain_run(args, call->words[0]);
    run_program program;
    kb_code code = run_program_open(&program, args->bench, &args->collectives);
    if (code == KB_OK)
        code = check_what_if(args, &program);
    if (code == KB_OK)
        code = explain_bench(args, &program, call->machine);
    run_program_close(&program);
    return code;
}

const cli_command cli_explain_command = {
    .name = "explain",
    .arguments = "RUN | --bench NAME [OPTIONS]",
    .summary = "explain a run: its critical path, and what would make it faster",
    .help =
        "The critical path is a chain of steps without gaps, from the begin of the run to its\n"
        "end. The tables divide it: each adds up to the simulated time. Data are not computed,\n"
        "unless --data is given; simulated times are the same.\n"
        "\n"
        "Exit status: 3 if the program faults, 4 if it deadlocks; the path up to there is\n"
        "printed.\n",
    .example = "Example: kernbench explain --bench gemm_single_pe\n"
               "Example: kernbench run --bench halo --save && kernbench explain @last\n"
               "Example: kernbench explain --bench qkv_gemm --what-if cube.pe_dma.channels=1\n"
               "Example: kernbench explain --bench gemm_single_pe --no-rerun --path --json\n",
    CLI_OPTIONS(options),
    CLI_ARGS(explain_args, .stack_bytes = RUN_DEFAULT_STACK, .path_bytes = RUN_PATH_BYTES,
             .seconds = 120, .store = "kernbench.db"),
    .machine = CLI_MACHINE,
    .max_words = 1,
    .check = check_options,
    .run = run_explain,
};
