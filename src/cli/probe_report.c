/* probe_report.c: prints the results of the command `probe`, as text and as JSON. */
#include "probe_report.h"

#include "cli.h"
#include "columns.h"
#include "json.h"
#include "machine_options.h"
#include "obs/obs.h"
#include "terminal.h"

#include <string.h>

static const char reading[] =
    "latency = overhead + wire + drain + queueing. overhead: delay of the nodes on the route.\n"
    "wire: delay of the links. drain: time of all bytes at the slowest link. queueing: time\n"
    "behind other transfers, 0 for a single one. Reads include the request. GB/s: size / latency.\n"
    "limit: bandwidth of the slowest link, in GB/s. util: GB/s as % of limit.\n\n";

static const char reading_load[] =
    "Transfers are issued at random times, independently of earlier ones. wait: mean latency\n"
    "beyond that of a single transfer. busy: utilization of the bottleneck link. waited there: sum\n"
    "over all packets of their waiting time at that link; packets wait at the same time, so it can\n"
    "exceed the length of the run. Other links can keep the bottleneck from reaching 100 %. Once\n"
    "accepted < offered the fabric is saturated, and latency grows with the length of the run.\n";

static uint64_t rate_of(const topo_machine *machine, uint32_t link)
{
    return topo_link_rate(topo_machine_graph(machine), link);
}

static double rate_gbs(const topo_machine *machine, uint32_t link)
{
    return (double)rate_of(machine, link) / (double)TOPO_GBS;
}

/* ---- Tables ------------------------------------------------------------------------------ */

static const cli_column overhead_columns[] = {
    CLI_COLUMN("nodes", "kind", CLI_WORD),
    CLI_JSON("count", CLI_INTEGER),
    CLI_TEXT("passed", CLI_FIGURE),
    CLI_COLUMN("overhead ns", "each_ns", CLI_NS),
    CLI_COLUMN("total ns", "total_ns", CLI_NS),
    CLI_TEXT("% of latency", CLI_SHARE),
};

static void add_overheads(cli_table *table, const void *result)
{
    const probe_result *r = result;
    probe_overhead overheads[TOPO_KINDS];
    size_t count = probe_overheads(table->machine, r, overheads);
    for (size_t i = 0; i < count; i++) {
        const probe_overhead *o = &overheads[i];
        char passed[16];
        snprintf(passed, sizeof passed, "%u x", o->count);
        CLI_ROW(table, {.text = topo_kind_name(o->kind)}, {.n = o->count}, {.text = passed},
                {.n = o->each}, {.n = o->total},
                {.real = (double)o->total / (double)r->completion.ended});
    }
}

static const cli_rows overheads_by_kind = {CLI_COLUMNS(overhead_columns), add_overheads};

static const cli_column stop_columns[] = {
    CLI_TEXT("at ns", CLI_NS),
    CLI_COLUMN("node", "node", CLI_NODE),
    CLI_JSON("link", CLI_LINK),
    CLI_TEXT("link GB/s", CLI_RATE),
    CLI_JSON("link_gbs", CLI_RATE),
    CLI_JSON("leg", CLI_WORD),
    CLI_JSON("at_ns", CLI_NS),
    CLI_TEXT("wire ns", CLI_NS),
    CLI_COLUMN("overhead ns", "overhead_ns", CLI_NS),
    CLI_JSON("wire_ns", CLI_NS),
    CLI_TEXT("", CLI_WORD),
};

static const char *note_on_stop(const probe_result *r, size_t i)
{
    if (i + 1 == r->stops.count)
        return "last byte arrives";
    bool turns = r->stops.items[i + 1].back && !r->stops.items[i].back;
    return turns ? "request arrives, data return" : "";
}

static void add_stops(cli_table *table, const void *result)
{
    const probe_result *r = result;
    for (size_t i = 0; i < r->stops.count; i++) {
        const probe_stop *stop = &r->stops.items[i];
        bool first = stop->link == TOPO_NONE;
        uint64_t rate = first ? 0 : rate_of(table->machine, stop->link);
        kb_time wire = probe_stop_wire(table->machine, stop);
        CLI_ROW(table, {.n = stop->at}, {.n = stop->node}, {.none = first, .n = stop->link},
                {.none = first, .n = rate}, {.none = first, .n = rate},
                {.text = stop->back ? "back" : "out"}, {.n = stop->at}, {.none = first, .n = wire},
                {.n = probe_stop_overhead(table->machine, stop)}, {.n = wire},
                {.text = note_on_stop(r, i)});
    }
}

static const cli_rows route = {CLI_COLUMNS(stop_columns), add_stops};

static const cli_column sweep_columns[] = {
    CLI_COLUMN("size", "nbytes", CLI_BYTES),
    CLI_COLUMN("latency ns", "total_ns", CLI_NS),
    CLI_COLUMN("GB/s", "effective_gbs", CLI_GBS),
    CLI_COLUMN("utilization %", "utilization", CLI_SHARE),
};

static void add_sweep(cli_table *table, const void *report)
{
    const probe_report *r = report;
    double bottleneck = rate_gbs(table->machine, r->result.bottleneck);
    for (size_t i = 0; i < PROBE_SWEEP_COUNT; i++) {
        double gbs = obs_bandwidth(probe_sweep_bytes(i), r->sweep[i]);
        CLI_ROW(table, {.n = probe_sweep_bytes(i)}, {.n = r->sweep[i]}, {.real = gbs},
                {.real = gbs / bottleneck});
    }
}

static const cli_rows sweep = {CLI_COLUMNS(sweep_columns), add_sweep};

static const cli_column case_columns[] = {
    CLI_COLUMN("case", "name", CLI_WORD),
    CLI_JSON("what", CLI_WORD),
    CLI_JSON("from", CLI_NODE),
    CLI_JSON("to", CLI_NODE),
    CLI_JSON("nbytes", CLI_BYTES),
    CLI_COLUMN("latency", "total_ns", CLI_NS),
    CLI_COLUMN("overhead", "overhead_ns", CLI_NS),
    CLI_COLUMN("wire", "wire_ns", CLI_NS),
    CLI_COLUMN("drain", "drain_ns", CLI_NS),
    CLI_COLUMN("queue", "queueing_ns", CLI_NS),
    CLI_JSON("bottleneck_link", CLI_LINK),
    CLI_JSON("bottleneck_gbs", CLI_RATE),
    CLI_COLUMN("GB/s", "effective_gbs", CLI_GBS),
    CLI_COLUMN("util %", "utilization", CLI_SHARE),
    CLI_TEXT("limit", CLI_RATE),
    CLI_TEXT("bottleneck link", CLI_LINK),
    CLI_JSON("overhead_by_kind", CLI_NESTED),
    CLI_JSON("path", CLI_NESTED),
    CLI_JSON("sweep", CLI_NESTED),
};

static void add_cases(cli_table *table, const void *view)
{
    const topo_machine *machine = table->machine;
    const probe_view *v = view;
    for (size_t i = 0; i < v->count; i++) {
        const probe_report *report = &v->reports[i];
        const probe_case *which = &probe_cases[report->which];
        const probe_result *r = &report->result;
        uint64_t rate = rate_of(machine, r->bottleneck);
        double gbs = obs_bandwidth(r->bytes, r->completion.ended);
        bool is_json = table->is_json;
        CLI_ROW(table, {.text = which->name}, {.text = which->what}, {.n = r->from}, {.n = r->to},
                {.n = r->bytes}, {.n = r->completion.ended}, {.n = r->completion.overhead},
                {.n = r->completion.wire}, {.n = r->completion.drain},
                {.n = r->completion.queueing}, {.n = r->bottleneck}, {.n = rate}, {.real = gbs},
                {.real = gbs / rate_gbs(machine, r->bottleneck)}, {.n = rate}, {.n = r->bottleneck},
                {.json = is_json ? cli_rows_json(&overheads_by_kind, machine, r) : NULL},
                {.json = is_json ? cli_rows_json(&route, machine, r) : NULL},
                {.json = is_json ? cli_rows_json(&sweep, machine, report) : NULL});
    }
}

static const cli_rows cases = {CLI_COLUMNS(case_columns), add_cases};

static const cli_column load_columns[] = {
    CLI_COLUMN("load %", "offered", CLI_SHARE),
    CLI_COLUMN("offered GB/s", "offered_gbs", CLI_GBS),
    CLI_COLUMN("accepted GB/s", "accepted_gbs", CLI_GBS),
    CLI_JSON("transfers", CLI_COUNT),
    CLI_COLUMN("mean ns", "mean_ns", CLI_NS),
    CLI_COLUMN("wait ns", "wait_ns", CLI_NS),
    CLI_COLUMN("p50 ns", "p50_ns", CLI_NS),
    CLI_COLUMN("p99 ns", "p99_ns", CLI_NS),
    CLI_COLUMN("max ns", "max_ns", CLI_NS),
    CLI_COLUMN("busy %", "utilization", CLI_SHARE),
    CLI_COLUMN("waited there ns, sum", "waited_ns", CLI_NS),
};

static void add_loads(cli_table *table, const void *report)
{
    const probe_load_report *r = report;
    for (size_t i = 0; i < PROBE_LOAD_COUNT; i++) {
        const probe_load *load = &r->points[i];
        CLI_ROW(table, {.real = probe_loads[i]}, {.real = load->offered_gbs},
                {.real = load->accepted_gbs}, {.n = load->transfers}, {.n = load->mean},
                {.n = load->wait}, {.n = load->p50}, {.n = load->p99}, {.n = load->max},
                {.real = load->utilization}, {.n = load->waited});
    }
}

static const cli_rows loads = {CLI_COLUMNS(load_columns), add_loads};

/* ---- JSON -------------------------------------------------------------------------------- */

/* Cases that the machine does not have, if all were requested. */
static json_t *skipped_json(const probe_view *view)
{
    json_t *skipped = json_array();
    for (size_t i = 0; view->all && i < probe_case_count; i++) {
        const char *missing = probe_missing(view->machine, i);
        if (missing)
            cli_json_append(
                &skipped, json_pack("{s:s, s:s}", "name", probe_cases[i].name, "missing", missing));
    }
    return skipped;
}

static json_t *single_document(const probe_view *view)
{
    return json_pack("{s:o, s:o, s:o}", "topology",
                     cli_json_machine(view->machine, &view->common->settings), "cases",
                     cli_rows_json(&cases, view->machine, view), "skipped", skipped_json(view));
}

static json_t *load_json(const probe_view *view, const probe_load_report *report)
{
    const probe_capacity *c = &report->capacity;
    return json_pack("{s:s, s:I, s:I, s:o, s:o, s:o, s:o}", "name", probe_cases[report->which].name,
                     "nbytes", (json_int_t)view->bytes, "sources", (json_int_t)c->sources,
                     "bottleneck_link", cli_json_link(view->machine, c->bottleneck),
                     "bottleneck_gbs", cli_json_real(rate_gbs(view->machine, c->bottleneck)),
                     "capacity_gbs", cli_json_real(c->gbs), "load",
                     cli_rows_json(&loads, view->machine, report));
}

static json_t *load_document(const probe_view *view)
{
    json_t *array = json_array();
    for (size_t i = 0; i < view->count; i++)
        cli_json_append(&array, load_json(view, &view->load_reports[i]));
    return json_pack("{s:o, s:I, s:o, s:o}", "topology",
                     cli_json_machine(view->machine, &view->common->settings), "seed",
                     (json_int_t)view->seed, "cases", array, "skipped", skipped_json(view));
}

json_t *probe_document(const probe_view *view)
{
    return view->load_reports ? load_document(view) : single_document(view);
}

/* ---- All cases --------------------------------------------------------------------------- */

static void print_machine(const probe_view *view)
{
    const topo_shape *s = topo_machine_shape(view->machine);
    kb_text title = KB_TEXT_INIT;
    cli_machine_title(view->machine, &view->common->settings, &title);
    printf("Machine %s: %u SIP%s of %u x %u cube%s of %u PE%s\n", cli_text(&title), s->sips,
           kb_plural(s->sips), s->cube_w, s->cube_h, kb_plural(s->cubes), s->pes,
           kb_plural(s->pes));
    kb_text_fini(&title);
}

static bool is_missing_for(const probe_view *view, size_t i, const char *reason)
{
    const char *missing = probe_missing(view->machine, i);
    return missing && strcmp(missing, reason) == 0;
}

/* The cases that the machine does not have for this reason, wrapped. */
static void print_missing_for(const probe_view *view, const char *reason)
{
    enum { WIDTH = 110, INDENT = 4 };
    int column = printf("  Not available, as %s:", reason);
    const char *comma = "";
    for (size_t i = 0; i < probe_case_count; i++) {
        if (!is_missing_for(view, i, reason))
            continue;
        int length = (int)strlen(probe_cases[i].name);
        bool wraps = column + length + 2 > WIDTH;
        column = wraps ? INDENT + length : column + length + 2;
        printf("%s%s%s", comma, wraps ? "\n    " : " ", probe_cases[i].name);
        comma = ",";
    }
    putchar('\n');
}

/* The cases that the machine does not have, by reason. */
static void print_missing(const probe_view *view)
{
    for (size_t i = 0; i < probe_case_count; i++) {
        const char *reason = probe_missing(view->machine, i);
        size_t first = 0;
        while (reason && !is_missing_for(view, first, reason))
            first++;
        if (reason && first == i)
            print_missing_for(view, reason);
    }
}

/* A row for each case, a column for each size. */
static kb_code print_sweeps(const probe_view *view)
{
    obs_number sizes[PROBE_SWEEP_COUNT];
    cli_column columns[PROBE_SWEEP_COUNT + 1] = {CLI_TEXT("case", CLI_WORD)};
    for (size_t i = 0; i < PROBE_SWEEP_COUNT; i++) {
        sizes[i] = obs_bytes(probe_sweep_bytes(i));
        columns[i + 1] = (cli_column)CLI_TEXT(sizes[i].text, CLI_GBS);
    }
    cli_table table;
    cli_table_init(&table, columns, PROBE_SWEEP_COUNT + 1);
    for (size_t c = 0; c < view->count; c++) {
        const probe_report *report = &view->reports[c];
        cli_value row[PROBE_SWEEP_COUNT + 1] = {{.text = probe_cases[report->which].name}};
        for (size_t i = 0; i < PROBE_SWEEP_COUNT; i++)
            row[i + 1].real = obs_bandwidth(probe_sweep_bytes(i), report->sweep[i]);
        cli_table_row(&table, row, PROBE_SWEEP_COUNT + 1);
    }
    return cli_table_print(&table, stdout);
}

/* The case to look at next: one with a long route, if the machine has it. */
static const char *instructive_case(const probe_view *view, const probe_report *last)
{
    for (size_t i = 0; i < probe_case_count; i++)
        if (strcmp(probe_cases[i].name, "pe-remote-cube-far") == 0 &&
            !probe_missing(view->machine, i))
            return probe_cases[i].name;
    return probe_cases[last->which].name;
}

static void print_hints(const probe_view *view, const probe_report *last)
{
    const char *name = instructive_case(view, last);
    kb_text machine = KB_TEXT_INIT;
    cli_machine_options(view->common, &machine);
    printf("\nHop by hop:             kernbench probe --case %s%s\n"
           "Many transfers at once: kernbench probe --load --case %s%s\n",
           name, cli_text(&machine), name, cli_text(&machine));
    kb_text_fini(&machine);
}

static kb_code print_all(const probe_view *view)
{
    char title[160];
    snprintf(title, sizeof title,
             "One transfer of %s at a time: latency = overhead + wire + drain + queueing, in ns",
             obs_bytes(view->bytes).text);
    cli_print_heading(stdout, title);
    kb_code code = cli_rows_print(&cases, view->machine, view);
    if (code != KB_OK)
        return code;
    print_missing(view);
    putchar('\n');
    if (!view->common->quiet)
        fputs(reading, stdout);
    cli_print_heading(stdout, "Bandwidth by transfer size, GB/s");
    code = print_sweeps(view);
    if (code == KB_OK && !view->details && !view->common->quiet)
        print_hints(view, &view->reports[view->count - 1]);
    return code;
}

/* ---- One case ---------------------------------------------------------------------------- */

static void print_line(const char *what, const char *value, const char *unit)
{
    printf("  %-12s %12s%s%s\n", what, value, unit[0] == '\0' ? "" : " ", unit);
}

static void print_ends(const probe_view *view, const probe_result *r)
{
    kb_text from = KB_TEXT_INIT, to = KB_TEXT_INIT;
    topo_node_name(view->machine, r->from, &from);
    topo_node_name(view->machine, r->to, &to);
    printf("  from %s to %s\n", cli_text(&from), cli_text(&to));
    kb_text_fini(&from);
    kb_text_fini(&to);
}

static void print_parts(const probe_view *view, const probe_result *r)
{
    const net_completion *completion = &r->completion;
    double gbs = obs_bandwidth(r->bytes, completion->ended);
    kb_text link = KB_TEXT_INIT, unit = KB_TEXT_INIT;
    topo_link_name(view->machine, r->bottleneck, &link);
    kb_text_printf(&unit, "%% of the bottleneck, %s, %s GB/s", cli_text(&link),
                   obs_rate(rate_of(view->machine, r->bottleneck)).text);
    print_ends(view, r);
    print_line("size", obs_bytes(r->bytes).text, "");
    print_line("latency", obs_ns(completion->ended).text, "ns");
    print_line("  overhead", obs_ns(completion->overhead).text, "ns in nodes");
    print_line("  wire", obs_ns(completion->wire).text, "ns in links");
    print_line("  drain", obs_ns(completion->drain).text,
               "ns for the bytes to pass the slowest link");
    print_line("  queueing", obs_ns(completion->queueing).text, "ns behind other transfers");
    print_line("bandwidth", obs_gbs(gbs).text, "GB/s");
    print_line("utilization", obs_percent(gbs / rate_gbs(view->machine, r->bottleneck)).text,
               cli_text(&unit));
    kb_text_fini(&unit);
    kb_text_fini(&link);
}

/* Links on the route of the data that are as slow as the bottleneck. */
static uint32_t count_slowest(const probe_view *view, const probe_result *r, bool read)
{
    uint64_t slowest = rate_of(view->machine, r->bottleneck);
    uint32_t count = 0;
    for (size_t i = 0; i < r->stops.count; i++) {
        const probe_stop *stop = &r->stops.items[i];
        if (stop->link != TOPO_NONE && stop->back == read &&
            rate_of(view->machine, stop->link) == slowest)
            count++;
    }
    return count;
}

static void print_drain_verdict(const probe_view *view, const probe_report *report, double share)
{
    const probe_result *r = &report->result;
    uint32_t links = count_slowest(view, r, probe_cases[report->which].read);
    kb_text name = KB_TEXT_INIT;
    topo_link_name(view->machine, r->bottleneck, &name);
    printf("  %s %% of the latency is the time of the bytes at ", obs_percent(share).text);
    if (links > 1)
        printf("the slowest links, %s\n  and %u more: more bandwidth at all of them helps\n",
               cli_text(&name), links - 1);
    else
        printf("the slowest link,\n  %s: more bandwidth there helps\n", cli_text(&name));
    kb_text_fini(&name);
}

/* The largest part of the latency, and what would reduce it. */
static void print_verdict(const probe_view *view, const probe_report *report)
{
    const net_completion *r = &report->result.completion;
    double total = (double)r->ended, drain = (double)r->drain / total;
    probe_overhead overheads[TOPO_KINDS] = {0}, *largest = &overheads[0];
    (void)probe_overheads(view->machine, &report->result, overheads);
    if (r->drain >= r->overhead && r->drain >= r->wire)
        print_drain_verdict(view, report, drain);
    else if (r->wire > r->overhead)
        printf("  %s %% of the latency is in wires: a larger transfer uses the route better;\n"
               "  more bandwidth could save %s %% at most\n",
               obs_percent((double)r->wire / total).text, obs_percent(drain).text);
    else
        printf("  %s %% of the latency is overhead of nodes, %s %% that of %s: a larger transfer\n"
               "  uses the route better; more bandwidth could save %s %% at most\n",
               obs_percent((double)r->overhead / total).text,
               obs_percent((double)largest->total / total).text, topo_kind_name(largest->kind),
               obs_percent(drain).text);
}

static kb_code print_case(const probe_view *view, const probe_report *report)
{
    kb_text title = KB_TEXT_INIT;
    kb_text_printf(&title, "%s: %s", probe_cases[report->which].name,
                   probe_cases[report->which].what);
    cli_print_heading(stdout, cli_text(&title));
    kb_text_fini(&title);
    print_parts(view, &report->result);
    putchar('\n');
    cli_print_heading(stdout, "Overhead by kind of node");
    kb_code code = cli_rows_print(&overheads_by_kind, view->machine, &report->result);
    if (!view->common->quiet) {
        putchar('\n');
        print_verdict(view, report);
    }
    if (code != KB_OK)
        return code;
    putchar('\n');
    cli_print_heading(stdout, "Bandwidth by transfer size");
    code = cli_rows_print(&sweep, view->machine, report);
    if (code != KB_OK)
        return code;
    putchar('\n');
    cli_print_heading(stdout, "Route, with the arrival time of the head of the first packet");
    return cli_rows_print(&route, view->machine, &report->result);
}

static kb_code print_text(const probe_view *view)
{
    kb_code code = KB_OK;
    print_machine(view);
    putchar('\n');
    if (view->all)
        code = print_all(view);
    for (size_t i = 0; i < view->count && view->details && code == KB_OK; i++) {
        if (view->all || i > 0)
            putchar('\n');
        code = print_case(view, &view->reports[i]);
    }
    return code;
}

kb_code probe_print(const probe_view *view)
{
    return view->common->json ? cli_json_print(single_document(view)) : print_text(view);
}

/* ---- Under load -------------------------------------------------------------------------- */

static void print_load_title(const probe_view *view, const probe_load_report *report)
{
    const probe_capacity *c = &report->capacity;
    kb_text title = KB_TEXT_INIT, link = KB_TEXT_INIT;
    kb_text_printf(&title, "%s under load: transfers of %s from %u source%s",
                   probe_cases[report->which].name, obs_bytes(view->bytes).text, c->sources,
                   kb_plural(c->sources));
    cli_print_heading(stdout, cli_text(&title));
    topo_link_name(view->machine, c->bottleneck, &link);
    printf("  100 %% is %s GB/s of data: then %s (%s GB/s) is fully used\n", obs_gbs(c->gbs).text,
           cli_text(&link), obs_rate(rate_of(view->machine, c->bottleneck)).text);
    kb_text_fini(&title);
    kb_text_fini(&link);
}

static kb_code print_load_text(const probe_view *view)
{
    kb_code code = KB_OK;
    print_machine(view);
    putchar('\n');
    for (size_t i = 0; i < view->count && code == KB_OK; i++) {
        print_load_title(view, &view->load_reports[i]);
        code = cli_rows_print(&loads, view->machine, &view->load_reports[i]);
        putchar('\n');
    }
    if (view->all && code == KB_OK) {
        print_missing(view);
        putchar('\n');
    }
    if (!view->common->quiet)
        fputs(reading_load, stdout);
    return code;
}

kb_code probe_print_load(const probe_view *view)
{
    return view->common->json ? cli_json_print(load_document(view)) : print_load_text(view);
}
