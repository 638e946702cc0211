/*
 * validate.c: the command that shows how far the model is off figures that others have measured,
 * and closed forms. The checks are in src/measure.
 */
#include "cli.h"
#include "json.h"
#include "machine.h"
#include "obs/obs.h"
#include "progress.h"
#include "table.h"

#include "measure/measure.h"

typedef struct validate_args {
    bool quick, json, quiet;
} validate_args;

static const cli_option options[] = {
    {.name = "--quick",
     .help = "runs fewer points and shorter windows",
     .kind = CLI_FLAG,
     CLI_INTO(validate_args, quick)},
    {.name = "--json",
     .help = "prints one JSON document instead of text",
     .kind = CLI_FLAG,
     CLI_INTO(validate_args, json)},
    {.name = "--quiet",
     .help = "prints only the number of passed checks, and no progress",
     .kind = CLI_FLAG,
     CLI_INTO(validate_args, quiet)},
};

static const char *verdict(bool judged, bool inside)
{
    if (!judged)
        return "not checked";
    return inside ? "yes" : "NO";
}

static void percent_cell(cli_table *table, double error)
{
    cli_table_cell(table, "%+.1f", 100 * error);
}

/* ---- Text -------------------------------------------------------------------------------- */

static kb_code print_forms(const validate_report *r)
{
    static const cli_column columns[] = {{.title = "closed form", .left = true},
                                         {.title = "case", .left = true},
                                         {.title = "expected ns"},
                                         {.title = "model"},
                                         {.title = "+-"},
                                         {.title = "passed", .left = true}};
    cli_table table;
    cli_table_init(&table, columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < r->forms.count; i++) {
        const validate_form *form = &r->forms.items[i];
        cli_table_cell(&table, "%s", form->group);
        cli_table_cell(&table, "%s", form->name);
        cli_table_cell(&table, "%.4f", form->expected);
        cli_table_cell(&table, "%.4f", form->ours);
        if (form->tolerance > 0)
            cli_table_cell(&table, "%.4f", form->tolerance);
        else
            cli_table_cell(&table, "exact");
        cli_table_cell(&table, "%s", verdict(true, form->inside));
    }
    return cli_table_print(&table, stdout);
}

static kb_code print_points(const validate_report *r)
{
    static const cli_column columns[] = {{.title = "mesh"},    {.title = "flits"},
                                         {.title = "rate"},    {.title = "reference ns"},
                                         {.title = "+-"},      {.title = "model"},
                                         {.title = "error %"}, {.title = "passed", .left = true}};
    cli_table table;
    cli_table_init(&table, columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < r->points.count; i++) {
        const validate_point *point = &r->points.items[i];
        cli_table_cell(&table, "%u x %u", point->k, point->k);
        cli_table_cell(&table, "%u", point->flits);
        cli_table_cell(&table, "%.2f", point->rate);
        cli_table_cell(&table, "%.2f", point->reference);
        cli_table_cell(&table, "%.2f", point->ci95);
        cli_table_cell(&table, "%.2f", point->ours);
        percent_cell(&table, point->error);
        cli_table_cell(&table, "%s%s", verdict(point->judged, point->inside),
                       point->saturated ? ", saturated" : "");
    }
    return cli_table_print(&table, stdout);
}

static kb_code print_doublings(const validate_report *r)
{
    static const cli_column columns[] = {
        {.title = "mesh"},  {.title = "flits"},   {.title = "reference rate"},
        {.title = "model"}, {.title = "error %"}, {.title = "passed", .left = true}};
    cli_table table;
    cli_table_init(&table, columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < r->doublings.count; i++) {
        const validate_doubling *doubling = &r->doublings.items[i];
        cli_table_cell(&table, "%u x %u", doubling->k, doubling->k);
        cli_table_cell(&table, "%u", doubling->flits);
        cli_table_cell(&table, "%.3f", doubling->reference);
        cli_table_cell(&table, "%.3f", doubling->ours);
        percent_cell(&table, doubling->error);
        cli_table_cell(&table, "%s", verdict(true, doubling->inside));
    }
    return cli_table_print(&table, stdout);
}

static kb_code print_packets(const validate_report *r)
{
    static const cli_column columns[] = {{.title = "mesh"},          {.title = "packet flits"},
                                         {.title = "rate"},          {.title = "reference ns"},
                                         {.title = "model"},         {.title = "error %"},
                                         {.title = "hops/transfer"}, {.title = "events/transfer"}};
    cli_table table;
    cli_table_init(&table, columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < r->packets.count; i++) {
        const validate_packet *packet = &r->packets.items[i];
        cli_table_cell(&table, "%u x %u", packet->k, packet->k);
        cli_table_cell(&table, "%u", packet->packet_flits);
        cli_table_cell(&table, "%.2f", packet->rate);
        cli_table_cell(&table, "%.2f", packet->reference);
        cli_table_cell(&table, "%.2f", packet->ours);
        percent_cell(&table, packet->error);
        cli_table_cell(&table, "%.1f", packet->hops);
        cli_table_cell(&table, "%.1f", packet->events);
    }
    return cli_table_print(&table, stdout);
}

static kb_code worse_of(kb_code a, kb_code b)
{
    return a != KB_OK ? a : b;
}

/* "packets of 256 B, parallel ports": how a built-in machine moves data. */
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

static kb_code print_tables(const validate_report *r)
{
    kb_code code = print_machines();
    cli_print_heading(stdout, "Closed forms");
    printf(
        "  Single transfers are shown for 4 KiB; three more sizes, and packets of 64 and 1000 B, are\n"
        "  checked too. The PE is PE 0 of cube 0 of SIP 0; the other end stands after the colon, and\n"
        "  can differ from that of kernbench probe.\n");
    code = worse_of(code, print_forms(r));
    printf("\n");
    cli_print_heading(
        stdout, "Mesh under uniform traffic, compared with a cycle-level simulator (BookSim 2)");
    printf(
        "  Checked where the reference is below twice the zero-load latency. Tolerance: 10 %% plus\n"
        "  the uncertainty of the reference. A cycle is 1 ns.\n");
    code = worse_of(code, print_points(r));
    if (r->doublings.count > 0) {
        printf("\n");
        cli_print_heading(stdout, "Injection rate at which latency is twice the zero-load latency");
        code = worse_of(code, print_doublings(r));
    }
    printf("\n");
    cli_print_heading(stdout, "Error of larger packets: transfers of 16 flits, not checked");
    code = worse_of(code, print_packets(r));
    printf("\n");
    return code;
}

static kb_code print_text(const validate_report *r, bool quiet)
{
    kb_code code = quiet ? KB_OK : print_tables(r);
    printf("%u of %u checks passed; the largest error of a checked load point is %.1f %%\n",
           r->inside, r->judged, 100 * r->worst);
    return code;
}

/* ---- JSON -------------------------------------------------------------------------------- */

static json_t *forms_json(const validate_report *r)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < r->forms.count; i++) {
        const validate_form *form = &r->forms.items[i];
        cli_json_append(&rows,
                        json_pack("{s:s, s:s, s:o, s:o, s:o, s:b}", "form", form->group, "case",
                                  form->name, "expected_ns", cli_json_real(form->expected),
                                  "ours_ns", cli_json_real(form->ours), "tolerance_ns",
                                  cli_json_real(form->tolerance), "inside", form->inside));
    }
    return rows;
}

static json_t *points_json(const validate_report *r)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < r->points.count; i++) {
        const validate_point *p = &r->points.items[i];
        cli_json_append(&rows, json_pack("{s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:b, s:b}",
                                         "k", (json_int_t)p->k, "flits", (json_int_t)p->flits,
                                         "rate", cli_json_real(p->rate), "reference_ns",
                                         cli_json_real(p->reference), "ci95_ns",
                                         cli_json_real(p->ci95), "ours_ns", cli_json_real(p->ours),
                                         "ours_p99_ns", cli_json_real(p->ours_p99), "error",
                                         cli_json_real(p->error), "saturated", p->saturated,
                                         "judged", p->judged, "inside", p->inside));
    }
    return rows;
}

static json_t *doublings_json(const validate_report *r)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < r->doublings.count; i++) {
        const validate_doubling *d = &r->doublings.items[i];
        cli_json_append(&rows,
                        json_pack("{s:I, s:I, s:o, s:o, s:o, s:b}", "k", (json_int_t)d->k, "flits",
                                  (json_int_t)d->flits, "reference_rate",
                                  cli_json_real(d->reference), "ours_rate", cli_json_real(d->ours),
                                  "error", cli_json_real(d->error), "inside", d->inside));
    }
    return rows;
}

static json_t *packets_json(const validate_report *r)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < r->packets.count; i++) {
        const validate_packet *p = &r->packets.items[i];
        cli_json_append(
            &rows,
            json_pack("{s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "k", (json_int_t)p->k,
                      "packet_flits", (json_int_t)p->packet_flits, "rate", cli_json_real(p->rate),
                      "reference_ns", cli_json_real(p->reference), "ours_ns",
                      cli_json_real(p->ours), "error", cli_json_real(p->error), "hops_per_transfer",
                      cli_json_real(p->hops), "events_per_transfer", cli_json_real(p->events)));
    }
    return rows;
}

static kb_code print_json(const validate_report *r)
{
    return cli_json_print(json_pack("{s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "judged",
                                    (json_int_t)r->judged, "inside", (json_int_t)r->inside,
                                    "worst_error", cli_json_real(r->worst), "closed_forms",
                                    forms_json(r), "mesh", points_json(r), "doubling",
                                    doublings_json(r), "larger_packets", packets_json(r)));
}

/* ---- Running ----------------------------------------------------------------------------- */

static void show_progress(void *self, uint64_t done, uint64_t total)
{
    cli_progress *progress = self;
    progress->total = total;
    cli_progress_show(progress, done);
}

static kb_code run_validate(const cli_command *self, int argc, char **argv)
{
    validate_args args = {0};
    kb_code code = cli_parse(self, &argc, argv, &args);
    if (code != KB_OK)
        return code;
    cli_progress progress = cli_progress_start("checks", 0, args.quiet);
    validate_options o = {.quick = args.quick, .progress = show_progress, .self = &progress};
    validate_report report;
    kb_error *err = validate_run(&o, &report);
    cli_progress_end(&progress);
    if (err)
        return cli_report(err);
    code = args.json ? print_json(&report) : print_text(&report, args.quiet);
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
    .run = run_validate,
};
