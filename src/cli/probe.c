/*
 * probe.c: the command that shows what a machine's fabric can do: predefined transfers, alone or
 * many at once. Measuring is in src/measure, printing in probe_text.c and probe_json.c.
 */
#include "probe.h"

#include "cli.h"
#include "json.h"
#include "machine.h"
#include "progress.h"
#include "table.h"

#include <stdlib.h>
#include <string.h>

const double probe_loads[PROBE_LOAD_COUNT] = {0.1, 0.2, 0.3, 0.4,  0.5, 0.6,
                                              0.7, 0.8, 0.9, 0.95, 1.0, 1.2};

typedef struct probe_args {
    cli_common common;
    const char *name;
    bool list, load, verbose;
    uint64_t bytes, seed, transfers;
} probe_args;

/* A number that no option can have. */
#define NOT_GIVEN UINT64_MAX

static const cli_option options[] = {
    {.name = "--case",
     .value = "NAME",
     .help = "runs only this case, with its sweep and its route",
     .kind = CLI_STRING,
     CLI_INTO(probe_args, name)},
    {.name = "--list",
     .help = "lists the cases, and why this machine lacks some of them",
     .kind = CLI_FLAG,
     CLI_INTO(probe_args, list)},
    {.name = "--bytes",
     .value = "N",
     .help = "size of a transfer in bytes, or as 64KiB; default: 4KiB",
     .kind = CLI_BYTES,
     .min = 1,
     .max = 1 << 30,
     CLI_INTO(probe_args, bytes)},
    {.name = "--verbose",
     .help = "prints sweep and route of every case",
     .kind = CLI_FLAG,
     CLI_INTO(probe_args, verbose)},
    {.name = "--load",
     .help = "measures latency under load, with many transfers at once",
     .kind = CLI_FLAG,
     CLI_INTO(probe_args, load)},
    {.name = "--transfers",
     .value = "N",
     .help = "with --load: number of transfers per run; default: 4000",
     .kind = CLI_UINT,
     .min = 100,
     .max = 10000000,
     CLI_INTO(probe_args, transfers)},
    {.name = "--seed",
     .value = "N",
     .help = "with --load: seed of the random issue times; default: 1",
     .kind = CLI_UINT,
     CLI_INTO(probe_args, seed)},
};

/* The cases that were asked for and that the machine has. */
typedef struct selection {
    size_t *which;
    size_t count;
    bool all;
} selection;

/* Whether all words of `part`, which are parted by dashes, are in the name. */
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

/* With the cases that have its words, or with the nearest. */
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

static kb_code select_cases(const probe_args *args, const topo_machine *machine, selection *s)
{
    s->all = !args->name;
    s->which = kb_alloc_array(probe_case_count, sizeof *s->which);
    if (!s->which)
        return cli_report(kb_error_nomem());
    if (args->name) {
        s->count = 1;
        return find_case(args->name, machine, &s->which[0]);
    }
    for (size_t i = 0; i < probe_case_count; i++)
        if (!probe_missing(machine, i))
            s->which[s->count++] = i;
    return KB_OK;
}

static probe_view view_of(const probe_args *args, const topo_machine *machine)
{
    return (probe_view){
        .machine = machine,
        .common = &args->common,
        .bytes = args->bytes,
        .seed = args->seed,
        .transfers = args->transfers,
        .json = args->common.json,
        .quiet = args->common.quiet,
        .details = args->name || args->verbose,
    };
}

/* ---- List -------------------------------------------------------------------------------- */

static kb_code list_json(const probe_args *args, const topo_machine *machine)
{
    json_t *cases = json_array();
    for (size_t i = 0; i < probe_case_count; i++) {
        const char *missing = probe_missing(machine, i);
        cli_json_append(&cases,
                        json_pack("{s:s, s:s, s:b, s:s?}", "name", probe_cases[i].name, "what",
                                  probe_cases[i].what, "available", !missing, "missing", missing));
    }
    return cli_json_print(json_pack("{s:o, s:o}", "topology",
                                    cli_json_machine(machine, &args->common.settings), "cases",
                                    cases));
}

static kb_code list_cases(const probe_args *args, const topo_machine *machine)
{
    if (args->common.json)
        return list_json(args, machine);
    static const cli_column columns[] = {{.title = "case", .left = true},
                                         {.title = "description", .left = true}};
    cli_table table;
    cli_table_init(&table, columns, 2);
    for (size_t i = 0; i < probe_case_count; i++) {
        const char *missing = probe_missing(machine, i);
        cli_table_cell(&table, "%s", probe_cases[i].name);
        if (missing)
            cli_table_cell(&table, "not available: %s", missing);
        else
            cli_table_cell(&table, "%s", probe_cases[i].what);
    }
    return cli_table_print(&table, stdout);
}

/* ---- Alone ------------------------------------------------------------------------------- */

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

static kb_error *measure_all(const probe_view *view, const selection *s, probe_report *reports)
{
    probe *p;
    KB_TRY(probe_create(view->machine, &p));
    cli_progress progress = cli_progress_start("cases", s->count, view->quiet);
    kb_error *err = NULL;
    for (size_t i = 0; i < s->count && !err; i++) {
        reports[i].which = s->which[i];
        err = measure(p, view->bytes, &reports[i]);
        cli_progress_show(&progress, i + 1);
    }
    cli_progress_end(&progress);
    probe_destroy(p);
    return err;
}

static kb_code run_alone(const probe_view *view, const selection *s)
{
    probe_report *reports = kb_alloc_zeroed(s->count, sizeof *reports);
    kb_error *err = reports ? measure_all(view, s, reports) : kb_error_nomem();
    kb_code code;
    if (err)
        code = cli_report(err);
    else if (view->json)
        code = probe_print_json(view, reports, s->count, s->all);
    else
        code = probe_print(view, reports, s->count, s->all);
    for (size_t i = 0; reports && i < s->count; i++)
        probe_result_fini(&reports[i].result);
    free(reports);
    return code;
}

/* ---- Under load -------------------------------------------------------------------------- */

static kb_error *load_all(const probe_view *view, const selection *s, probe_load_report *reports)
{
    kb_error *err = NULL;
    cli_progress progress = cli_progress_start("loads", s->count * PROBE_LOAD_COUNT, view->quiet);
    for (size_t i = 0; i < s->count && !err; i++) {
        probe_load_report *report = &reports[i];
        report->which = s->which[i];
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

static kb_code run_loaded(const probe_view *view, const selection *s)
{
    probe_load_report *reports = kb_alloc_zeroed(s->count, sizeof *reports);
    kb_error *err = reports ? load_all(view, s, reports) : kb_error_nomem();
    kb_code code;
    if (err)
        code = cli_report(err);
    else if (view->json)
        code = probe_print_load_json(view, reports, s->count, s->all);
    else
        code = probe_print_load(view, reports, s->count, s->all);
    free(reports);
    return code;
}

static kb_code run_on(const probe_args *args, const topo_machine *machine)
{
    if (args->list)
        return list_cases(args, machine);
    selection s = {0};
    probe_view view = view_of(args, machine);
    kb_code code = select_cases(args, machine, &s);
    if (code == KB_OK)
        code = args->load ? run_loaded(&view, &s) : run_alone(&view, &s);
    free(s.which);
    return code;
}

/* What only --load uses must not be given in vain. */
static kb_code settle_load_options(probe_args *args)
{
    if (!args->load && (args->seed != NOT_GIVEN || args->transfers != NOT_GIVEN))
        return cli_fail(KB_ERR_INPUT, "%s needs --load",
                        args->seed != NOT_GIVEN ? "--seed" : "--transfers");
    if (args->seed == NOT_GIVEN)
        args->seed = 1;
    if (args->transfers == NOT_GIVEN)
        args->transfers = 4000;
    return KB_OK;
}

static kb_code run_probe(const cli_command *self, int argc, char **argv)
{
    probe_args args = {.bytes = 4096, .seed = NOT_GIVEN, .transfers = NOT_GIVEN};
    topo_machine *machine = NULL;
    kb_code code = cli_parse(self, &argc, argv, &args);
    if (code == KB_OK)
        code = settle_load_options(&args);
    if (code == KB_OK)
        code = cli_load_machine(&args.common, &machine);
    if (code == KB_OK)
        code = run_on(&args, machine);
    topo_machine_destroy(machine);
    cli_common_fini(&args.common);
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
    .has_machine = true,
    .run = run_probe,
};
