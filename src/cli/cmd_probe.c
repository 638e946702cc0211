/*
 * cmd_probe.c: the command `probe`: predefined transfers, one at a time or under load. src/measure
 * measures, probe_report.c prints.
 */
#include "probe_report.h"

#include "cli.h"
#include "columns.h"
#include "json.h"
#include "machine_options.h"
#include "progress.h"
#include "report_page.h"

#include <stdlib.h>
#include <string.h>

const double probe_loads[PROBE_LOAD_COUNT] = {0.1, 0.2, 0.3, 0.4,  0.5, 0.6,
                                              0.7, 0.8, 0.9, 0.95, 1.0, 1.2};

typedef struct probe_args {
    cli_common common;
    const char *name, *report;
    bool list, load, verbose;
    uint64_t bytes, seed, transfers;
} probe_args;

/* A number that is out of range for each option. */
#define NOT_GIVEN UINT64_MAX

static const cli_option options[] = {
    CLI_OPTION("--case", "NAME", CLI_STRING, probe_args, name,
               "runs only this case, with its sweep and its route"),
    CLI_OPTION("--list", NULL, CLI_FLAG, probe_args, list,
               "lists the cases, and why this machine lacks some of them"),
    CLI_OPTION("--bytes", "N", CLI_SIZE, probe_args, bytes,
               "size of a transfer in bytes, or as 64KiB; default: 4KiB", .min = 1, .max = 1 << 30),
    CLI_OPTION("--verbose", NULL, CLI_FLAG, probe_args, verbose,
               "prints sweep and route of every case"),
    CLI_OPTION("--load", NULL, CLI_FLAG, probe_args, load,
               "measures latency under load, with many transfers at once"),
    CLI_OPTION("--report", "FILE", CLI_STRING, probe_args, report,
               "also writes the results as one HTML page"),
    CLI_OPTION("--transfers", "N", CLI_UINT, probe_args, transfers,
               "with --load: number of transfers per run; default: 4000", .min = 100,
               .max = 10000000),
    CLI_OPTION("--seed", "N", CLI_UINT, probe_args, seed,
               "with --load: seed of the random issue times; default: 1"),
};

/* Whether the name contains all words of `part`, which are separated by dashes. */
static bool has_words(const char *name, const char *part)
{
    bool any = false;
    while (*part != '\0') {
        size_t length = strcspn(part, "-");
        bool found = length == 0;
        for (const char *at = name; !found && *at != '\0'; at++)
            found = strncmp(at, part, length) == 0;
        if (!found)
            return false;
        any = any || length > 0;
        part += length + (part[length] == '-');
    }
    return any;
}

/* Suggests the cases that contain its words, or the nearest name. */
static kb_code unknown_case(const char *name, const char *const *names)
{
    char buffer[CLI_CLIP];
    const char *word = cli_clip(name, buffer);
    kb_suggestion near;
    kb_suggestion_search(&near, name, names, probe_case_count);
    kb_text like = KB_TEXT_INIT;
    for (size_t i = 0; i < probe_case_count; i++)
        if (has_words(names[i], name))
            kb_text_printf(&like, "%s%s", like.length > 0 ? ", " : "", names[i]);
    kb_code code;
    if (like.length == 0)
        code = cli_fail(KB_ERR_INPUT, "unknown case '%s'%s", word,
                        kb_suggestion_near(&near, "; see kernbench probe --list"));
    else
        code = cli_fail(KB_ERR_INPUT, "unknown case '%s': matching cases are %s", word,
                        kb_text_peek(&like));
    kb_text_fini(&like);
    return code;
}

static kb_code find_case(const char *name, const topo_machine *machine, size_t *which)
{
    const char **names = kb_alloc_array(probe_case_count, sizeof *names);
    kb_code code = KB_OK;
    if (!names)
        return cli_report(kb_error_nomem());
    for (*which = 0; *which < probe_case_count; ++*which) {
        names[*which] = probe_cases[*which].name;
        if (strcmp(name, names[*which]) == 0)
            break;
    }
    if (*which == probe_case_count) {
        code = unknown_case(name, names);
    } else if (probe_missing(machine, *which)) {
        code = cli_fail(KB_ERR_INPUT, "case %s is not available on machine '%s': %s", name,
                        topo_machine_name(machine), probe_missing(machine, *which));
    }
    free(names);
    return code;
}

/* The requested case, or all cases that the machine has. */
static kb_code select_cases(const probe_args *args, const topo_machine *machine, size_t *which,
                            size_t *count)
{
    *count = 0;
    if (args->name) {
        *count = 1;
        return find_case(args->name, machine, which);
    }
    for (size_t i = 0; i < probe_case_count; i++)
        if (!probe_missing(machine, i))
            which[(*count)++] = i;
    return KB_OK;
}

/* ---- List -------------------------------------------------------------------------------- */

static const cli_column case_columns[] = {
    CLI_COLUMN("case", "name", CLI_WORD), CLI_JSON("what", CLI_WORD),
    CLI_JSON("available", CLI_BOOL),      CLI_JSON("missing", CLI_WORD),
    CLI_TEXT("description", CLI_WORD),
};

static void add_cases(cli_table *table, const void *machine)
{
    for (size_t i = 0; i < probe_case_count; i++) {
        const char *missing = probe_missing(machine, i);
        kb_text description = KB_TEXT_INIT;
        kb_text_printf(&description, "%s%s", missing ? "not available: " : "",
                       missing ? missing : probe_cases[i].what);
        CLI_ROW(table, {.text = probe_cases[i].name}, {.text = probe_cases[i].what},
                {.n = !missing}, {.text = missing}, {.text = cli_text(&description)});
        kb_text_fini(&description);
    }
}

static const cli_rows cases = {CLI_COLUMNS(case_columns), add_cases};

static kb_code list_cases(const cli_call *call)
{
    const topo_machine *machine = call->machine;
    if (!call->common->json)
        return cli_rows_print(&cases, machine, machine);
    return cli_json_print(json_pack("{s:o, s:o}", "topology",
                                    cli_json_machine(machine, &call->common->settings), "cases",
                                    cli_rows_json(&cases, machine, machine)));
}

/* ---- Single transfers -------------------------------------------------------------------- */

static kb_error *measure(probe *p, uint64_t bytes, probe_report *report)
{
    KB_TRY(probe_measure(p, report->which, bytes, &report->result));
    for (size_t i = 0; i < PROBE_SWEEP_COUNT; i++) {
        probe_result point;
        KB_TRY(probe_measure(p, report->which, probe_sweep_bytes(i), &point));
        report->sweep[i] = point.completion.ended;
        probe_result_fini(&point);
    }
    return NULL;
}

static kb_error *measure_all(const probe_view *view, const size_t *which, probe_report *reports)
{
    probe *p;
    KB_TRY(probe_create(view->machine, &p));
    cli_progress progress = cli_progress_start("cases", view->count, view->common->quiet);
    kb_error *err = NULL;
    for (size_t i = 0; i < view->count && !err; i++) {
        reports[i].which = which[i];
        err = measure(p, view->bytes, &reports[i]);
        cli_progress_show(&progress, i + 1);
    }
    cli_progress_end(&progress);
    probe_destroy(p);
    return err;
}

/* What makes the same measurement again. */
static void compose_command(const probe_view *view, const probe_args *args, kb_text *command)
{
    kb_text_printf(command, "kernbench probe%s", args->load ? " --load" : "");
    if (args->name)
        cli_append_option(command, "--case", args->name);
    kb_text_printf(command, " --bytes %llu", (unsigned long long)args->bytes);
    if (args->load)
        kb_text_printf(command, " --transfers %llu --seed %llu",
                       (unsigned long long)args->transfers, (unsigned long long)args->seed);
    cli_machine_options(view->common, command);
}

static kb_code write_report(const probe_view *view, const probe_args *args)
{
    if (!args->report)
        return KB_OK;
    json_t *document = probe_document(view);
    kb_text command = KB_TEXT_INIT;
    compose_command(view, args, &command);
    kb_error *err = document ? report_write_document(args->report, document, cli_text(&command))
                             : kb_error_nomem();
    kb_text_fini(&command);
    json_decref(document);
    return err ? cli_report(err) : KB_OK;
}

static kb_code run_single(probe_view *view, const probe_args *args, const size_t *which)
{
    probe_report *reports = kb_alloc_zeroed(view->count, sizeof *reports);
    kb_error *err = reports ? measure_all(view, which, reports) : kb_error_nomem();
    view->reports = reports;
    kb_code code = err ? cli_report(err) : probe_print(view);
    if (code == KB_OK)
        code = write_report(view, args);
    for (size_t i = 0; reports && i < view->count; i++)
        probe_result_fini(&reports[i].result);
    free(reports);
    return code;
}

/* ---- Under load -------------------------------------------------------------------------- */

static kb_error *load_all(const probe_view *view, const size_t *which, probe_load_report *reports)
{
    kb_error *err = NULL;
    cli_progress progress =
        cli_progress_start("loads", view->count * PROBE_LOAD_COUNT, view->common->quiet);
    for (size_t i = 0; i < view->count && !err; i++) {
        probe_load_report *report = &reports[i];
        report->which = which[i];
        err = probe_capacity_of(view->machine, report->which, view->bytes, &report->capacity);
        for (size_t point = 0; point < PROBE_LOAD_COUNT && !err; point++) {
            probe_load_options load = {.bytes = view->bytes,
                                       .transfers = view->transfers,
                                       .offered = probe_loads[point],
                                       .seed = view->seed};
            err = probe_run_load(view->machine, report->which, &load, &report->points[point]);
            cli_progress_show(&progress, i * PROBE_LOAD_COUNT + point + 1);
        }
    }
    cli_progress_end(&progress);
    return err;
}

static kb_code run_loaded(probe_view *view, const probe_args *args, const size_t *which)
{
    probe_load_report *reports = kb_alloc_zeroed(view->count, sizeof *reports);
    kb_error *err = reports ? load_all(view, which, reports) : kb_error_nomem();
    view->load_reports = reports;
    kb_code code = err ? cli_report(err) : probe_print_load(view);
    if (code == KB_OK)
        code = write_report(view, args);
    free(reports);
    return code;
}

/* ---- The command ------------------------------------------------------------------------- */

/* --seed and --transfers have an effect only with --load. */
static kb_code check_options(const cli_call *call)
{
    probe_args *args = call->args;
    if (!args->load && (args->seed != NOT_GIVEN || args->transfers != NOT_GIVEN))
        return cli_fail(KB_ERR_INPUT, "%s needs --load",
                        args->seed != NOT_GIVEN ? "--seed" : "--transfers");
    if (args->seed == NOT_GIVEN)
        args->seed = 1;
    if (args->transfers == NOT_GIVEN)
        args->transfers = 4000;
    return KB_OK;
}

static kb_code run_probe(const cli_call *call)
{
    const probe_args *args = call->args;
    if (args->list)
        return list_cases(call);
    probe_view view = {
        .machine = call->machine,
        .common = call->common,
        .bytes = args->bytes,
        .seed = args->seed,
        .transfers = args->transfers,
        .all = !args->name,
        .details = args->name || args->verbose,
    };
    size_t *which = kb_alloc_array(probe_case_count, sizeof *which);
    kb_code code = which ? select_cases(args, call->machine, which, &view.count)
                         : cli_report(kb_error_nomem());
    if (code == KB_OK)
        code = args->load ? run_loaded(&view, args, which) : run_single(&view, args, which);
    free(which);
    return code;
}

const cli_command cli_probe_command = {
    .name = "probe",
    .arguments = "[OPTIONS]",
    .summary = "measure transfers between host, PEs and memories",
    .help =
        "Each case is a single transfer on an idle machine: its latency and the parts of it, its\n"
        "bandwidth, and its bottleneck link. The PE is PE 0 of cube 0 of SIP 0; in other cubes the\n"
        "transfer uses slice 0.\n"
        "\n"
        "With --load all PEs of the cube, or the host, issue many such transfers at random times:\n"
        "latency against offered load. PE i then uses slice i (its own, or that of the nearest or\n"
        "farthest cube, or of cube 0 of the other SIP), or slice i - 1 for another slice of its\n"
        "cube, so that each slice has one user. All PEs share the SRAM; the host uses slice 0.\n",
    .example = "Example: kernbench probe\n"
               "Example: kernbench probe --case pe-remote-cube-far --set sip.ucie.overhead_ns=4\n"
               "Example: kernbench probe --load --case pe-sram --json\n",
    CLI_OPTIONS(options),
    CLI_ARGS(probe_args, .bytes = 4096, .seed = NOT_GIVEN, .transfers = NOT_GIVEN),
    .machine = CLI_MACHINE,
    .check = check_options,
    .run = run_probe,
};
