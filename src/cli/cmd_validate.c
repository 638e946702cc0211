/*
 * cmd_validate.c: the command `validate`: compares the model with measurements of cycle-level
 * simulators and with closed forms. The checks are in src/measure.
 */
#include "cli.h"
#include "columns.h"
#include "json.h"
#include "machine_options.h"
#include "progress.h"
#include "terminal.h"

#include "measure/measure.h"

typedef struct validate_args {
    bool quick, json, quiet;
} validate_args;

static const cli_option options[] = {
    CLI_OPTION("--quick", NULL, CLI_FLAG, validate_args, quick,
               "runs fewer points and shorter windows"),
    CLI_OPTION("--json", NULL, CLI_FLAG, validate_args, json,
               "prints one JSON document instead of text"),
    CLI_OPTION("--quiet", NULL, CLI_FLAG, validate_args, quiet,
               "prints only the number of passed checks, and no progress"),
};

/* ---- Tables ------------------------------------------------------------------------------ */

static const cli_column form_columns[] = {
    CLI_COLUMN("closed form", "form", CLI_WORD),
    CLI_COLUMN("case", "case", CLI_WORD),
    CLI_COLUMN("expected ns", "expected_ns", CLI_REAL, .decimals = 4),
    CLI_COLUMN("model", "ours_ns", CLI_REAL, .decimals = 4),
    CLI_TEXT("+-", CLI_FIGURE),
    CLI_JSON("tolerance_ns", CLI_REAL),
    CLI_COLUMN("passed", "inside", CLI_BOOL),
};

static void add_forms(cli_table *table, const void *report)
{
    const validate_report *r = report;
    for (size_t i = 0; i < r->forms.count; i++) {
        const validate_form *form = &r->forms.items[i];
        char tolerance[32];
        snprintf(tolerance, sizeof tolerance, "%.4f", form->tolerance);
        CLI_ROW(table, {.text = form->group}, {.text = form->name}, {.real = form->expected},
                {.real = form->ours}, {.text = form->tolerance > 0 ? tolerance : "exact"},
                {.real = form->tolerance}, {.n = form->inside});
    }
}

static const cli_rows forms = {CLI_COLUMNS(form_columns), add_forms};

/* "4 x 4" */
typedef struct mesh_name {
    char text[32];
} mesh_name;

static mesh_name name_mesh(uint32_t k)
{
    mesh_name name;
    snprintf(name.text, sizeof name.text, "%u x %u", k, k);
    return name;
}

static const cli_column point_columns[] = {
    CLI_TEXT("mesh", CLI_FIGURE),
    CLI_JSON("k", CLI_INTEGER),
    CLI_COLUMN("flits", "flits", CLI_INTEGER),
    CLI_COLUMN("rate", "rate", CLI_REAL, .decimals = 2),
    CLI_COLUMN("reference ns", "reference_ns", CLI_REAL, .decimals = 2),
    CLI_COLUMN("+-", "ci95_ns", CLI_REAL, .decimals = 2),
    CLI_COLUMN("model", "ours_ns", CLI_REAL, .decimals = 2),
    CLI_JSON("ours_p99_ns", CLI_REAL),
    CLI_COLUMN("error %", "error", CLI_ERROR),
    CLI_TEXT("passed", CLI_WORD),
    CLI_JSON("saturated", CLI_BOOL),
    CLI_JSON("judged", CLI_BOOL),
    CLI_JSON("inside", CLI_BOOL),
};

static void add_points(cli_table *table, const void *report)
{
    const validate_report *r = report;
    for (size_t i = 0; i < r->points.count; i++) {
        const validate_point *p = &r->points.items[i];
        char verdict[32];
        snprintf(verdict, sizeof verdict, "%s%s",
                 !p->judged  ? "not checked"
                 : p->inside ? "yes"
                             : "NO",
                 p->saturated ? ", saturated" : "");
        CLI_ROW(table, {.text = name_mesh(p->k).text}, {.n = p->k}, {.n = p->flits},
                {.real = p->rate}, {.real = p->reference}, {.real = p->ci95}, {.real = p->ours},
                {.real = p->ours_p99}, {.real = p->error}, {.text = verdict}, {.n = p->saturated},
                {.n = p->judged}, {.n = p->inside});
    }
}

static const cli_rows points = {CLI_COLUMNS(point_columns), add_points};

static const cli_column doubling_columns[] = {
    CLI_TEXT("mesh", CLI_FIGURE),
    CLI_JSON("k", CLI_INTEGER),
    CLI_COLUMN("flits", "flits", CLI_INTEGER),
    CLI_COLUMN("reference rate", "reference_rate", CLI_REAL, .decimals = 3),
    CLI_COLUMN("model", "ours_rate", CLI_REAL, .decimals = 3),
    CLI_COLUMN("error %", "error", CLI_ERROR),
    CLI_COLUMN("passed", "inside", CLI_BOOL),
};

static void add_doublings(cli_table *table, const void *report)
{
    const validate_report *r = report;
    for (size_t i = 0; i < r->doublings.count; i++) {
        const validate_doubling *d = &r->doublings.items[i];
        CLI_ROW(table, {.text = name_mesh(d->k).text}, {.n = d->k}, {.n = d->flits},
                {.real = d->reference}, {.real = d->ours}, {.real = d->error}, {.n = d->inside});
    }
}

static const cli_rows doublings = {CLI_COLUMNS(doubling_columns), add_doublings};

static const cli_column packet_columns[] = {
    CLI_TEXT("mesh", CLI_FIGURE),
    CLI_JSON("k", CLI_INTEGER),
    CLI_COLUMN("packet flits", "packet_flits", CLI_INTEGER),
    CLI_COLUMN("rate", "rate", CLI_REAL, .decimals = 2),
    CLI_COLUMN("reference ns", "reference_ns", CLI_REAL, .decimals = 2),
    CLI_COLUMN("model", "ours_ns", CLI_REAL, .decimals = 2),
    CLI_COLUMN("error %", "error", CLI_ERROR),
    CLI_COLUMN("hops/transfer", "hops_per_transfer", CLI_REAL, .decimals = 1),
    CLI_COLUMN("events/transfer", "events_per_transfer", CLI_REAL, .decimals = 1),
};

static void add_packets(cli_table *table, const void *report)
{
    const validate_report *r = report;
    for (size_t i = 0; i < r->packets.count; i++) {
        const validate_packet *p = &r->packets.items[i];
        CLI_ROW(table, {.text = name_mesh(p->k).text}, {.n = p->k}, {.n = p->packet_flits},
                {.real = p->rate}, {.real = p->reference}, {.real = p->ours}, {.real = p->error},
                {.real = p->hops}, {.real = p->events});
    }
}

static const cli_rows packets = {CLI_COLUMNS(packet_columns), add_packets};

/* ---- Text -------------------------------------------------------------------------------- */

/* How a built-in machine moves data: "packets of 256 B, parallel ports". */
static kb_error *describe(const char *name, kb_text *text)
{
    topo_machine *machine;
    KB_TRY(cli_try_machine(&(cli_common){.topology = name}, &machine));
    const topo_shape *shape = topo_machine_shape(machine);
    kb_text_printf(text, "packets of %s, %s ports", obs_bytes(shape->fabric.packet_bytes).text,
                   shape->fabric.serial_ports ? "serial" : "parallel");
    topo_machine_destroy(machine);
    return text->failed ? kb_error_nomem() : NULL;
}

static kb_code print_machines(void)
{
    kb_text plain = KB_TEXT_INIT, mesh = KB_TEXT_INIT;
    kb_error *err = describe("default", &plain);
    if (!err)
        err = describe("mesh-reference", &mesh);
    if (!err)
        printf("Single transfers run on machine 'default' (%s), all other checks\n"
               "on 'mesh-reference' (%s), which models a mesh at the level of flits\n"
               "as the reference simulator does.\n\n",
               cli_text(&plain), cli_text(&mesh));
    kb_text_fini(&plain);
    kb_text_fini(&mesh);
    return err ? cli_report(err) : KB_OK;
}

/* Prints a heading and a paragraph before the table, and an empty line after it. */
static kb_code print_section(const char *heading, const char *paragraph, const cli_rows *rows,
                             const validate_report *r)
{
    cli_print_heading(stdout, heading);
    fputs(paragraph, stdout);
    kb_code code = cli_rows_print(rows, NULL, r);
    putchar('\n');
    return code;
}

static kb_code print_tables(const validate_report *r)
{
    kb_code code = print_machines();
    if (code == KB_OK)
        code = print_section(
            "Closed forms",
            "  Single transfers are shown for 4 KiB; three more sizes, and packets of 64 and 1000 B, are\n"
            "  checked too. The PE is PE 0 of cube 0 of SIP 0; the other end stands after the colon, and\n"
            "  can differ from that of kernbench probe.\n",
            &forms, r);
    if (code == KB_OK)
        code = print_section(
            "Mesh under uniform traffic, compared with a cycle-level simulator (BookSim 2)",
            "  Checked where the reference is below twice the zero-load latency. Tolerance: 10 % plus\n"
            "  the uncertainty of the reference. A cycle is 1 ns.\n",
            &points, r);
    if (code == KB_OK && r->doublings.count > 0)
        code = print_section("Injection rate at which latency is twice the zero-load latency", "",
                             &doublings, r);
    if (code == KB_OK)
        code = print_section("Error of larger packets: transfers of 16 flits, not checked", "",
                             &packets, r);
    return code;
}

static kb_code print_text(const validate_report *r, bool quiet)
{
    kb_code code = quiet ? KB_OK : print_tables(r);
    printf("%u of %u checks passed; the largest error of a checked load point is %.1f %%\n",
           r->inside, r->judged, 100 * r->worst);
    return code;
}

/* ---- Running ----------------------------------------------------------------------------- */

static kb_code print_json(const validate_report *r)
{
    return cli_json_print(json_pack(
        "{s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "judged", (json_int_t)r->judged, "inside",
        (json_int_t)r->inside, "worst_error", cli_json_real(r->worst), "closed_forms",
        cli_rows_json(&forms, NULL, r), "mesh", cli_rows_json(&points, NULL, r), "doubling",
        cli_rows_json(&doublings, NULL, r), "larger_packets", cli_rows_json(&packets, NULL, r)));
}

static void show_progress(void *self, uint64_t done, uint64_t total)
{
    cli_progress *progress = self;
    progress->total = total;
    cli_progress_show(progress, done);
}

static kb_code run_validate(const cli_call *call)
{
    const validate_args *args = call->args;
    cli_progress progress = cli_progress_start("checks", 0, args->quiet);
    validate_options o = {.quick = args->quick, .progress = show_progress, .self = &progress};
    validate_report report;
    kb_error *err = validate_run(&o, &report);
    cli_progress_end(&progress);
    if (err)
        return cli_report(err);
    kb_code code = args->json ? print_json(&report) : print_text(&report, args->quiet);
    if (code == KB_OK && report.inside < report.judged)
        code = KB_ERR_CHECK;
    validate_report_fini(&report);
    return code;
}

const cli_command cli_validate_command = {
    .name = "validate",
    .arguments = "[OPTIONS]",
    .summary = "compare the model with cycle-level simulators and closed forms",
    .help =
        "Uses the built-in machines 'mesh-reference' and 'default' and fixed seeds. Exit status 1\n"
        "if a check fails.\n",
    .example = "Example: kernbench validate --quick\n",
    CLI_OPTIONS(options),
    CLI_ARGS(validate_args),
    .run = run_validate,
};
