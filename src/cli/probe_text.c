/* probe_text.c: the results of the probe command for people. */
#include "probe.h"

#include "cli.h"
#include "machine.h"
#include "obs/obs.h"
#include "table.h"

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

static uint64_t rate_of(const probe_view *view, uint32_t link)
{
    return topo_link_rate(topo_machine_graph(view->machine), link);
}

static double rate_gbs(const probe_view *view, uint32_t link)
{
    return (double)rate_of(view, link) / (double)TOPO_GBS;
}

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

static void add_link_cell(cli_table *table, const probe_view *view, uint32_t link)
{
    kb_text name = KB_TEXT_INIT;
    cli_short_link_name(view->machine, link, &name);
    cli_table_cell(table, "%s", cli_text(&name));
    kb_text_fini(&name);
}

/* ---- All cases --------------------------------------------------------------------------- */

static kb_code print_summary(const probe_view *view, const probe_report *reports, size_t count)
{
    static const cli_column columns[] = {
        {.title = "case", .left = true},
        {.title = "latency"},
        {.title = "overhead"},
        {.title = "wire"},
        {.title = "drain"},
        {.title = "queue"},
        {.title = "GB/s"},
        {.title = "util %"},
        {.title = "limit"},
        {.title = "bottleneck link", .left = true},
    };
    cli_table table;
    cli_table_init(&table, columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < count; i++) {
        const probe_result *r = &reports[i].result;
        double gbs = obs_bandwidth(r->bytes, r->completion.ended);
        cli_table_cell(&table, "%s", probe_cases[reports[i].which].name);
        cli_table_cell(&table, "%s", obs_ns(r->completion.ended).text);
        cli_table_cell(&table, "%s", obs_ns(r->completion.overhead).text);
        cli_table_cell(&table, "%s", obs_ns(r->completion.wire).text);
        cli_table_cell(&table, "%s", obs_ns(r->completion.drain).text);
        cli_table_cell(&table, "%s", obs_ns(r->completion.queueing).text);
        cli_table_cell(&table, "%s", obs_gbs(gbs).text);
        cli_table_cell(&table, "%s", obs_percent(gbs / rate_gbs(view, r->bottleneck)).text);
        cli_table_cell(&table, "%s", obs_rate(rate_of(view, r->bottleneck)).text);
        add_link_cell(&table, view, r->bottleneck);
    }
    return cli_table_print(&table, stdout);
}

static bool is_same(const char *a, const char *b)
{
    return a && b && strcmp(a, b) == 0;
}

/* The cases that are missing for this reason, on lines of some length. */
static void print_missing_for(const probe_view *view, const char *why)
{
    enum { WIDTH = 110, INDENT = 4 };
    int column = printf("  Not available, as %s:", why);
    const char *comma = "";
    for (size_t i = 0; i < probe_case_count; i++) {
        if (!is_same(probe_missing(view->machine, i), why))
            continue;
        int length = (int)strlen(probe_cases[i].name);
        bool wraps = column + length + 2 > WIDTH;
        column = wraps ? INDENT + length : column + length + 2;
        printf("%s%s%s", comma, wraps ? "\n    " : " ", probe_cases[i].name);
        comma = ",";
    }
    putchar('\n');
}

/* The cases that the machine has not, by reason. */
static void print_missing(const probe_view *view)
{
    for (size_t i = 0; i < probe_case_count; i++) {
        const char *why = probe_missing(view->machine, i);
        bool told = !why;
        for (size_t k = 0; k < i && !told; k++)
            told = is_same(probe_missing(view->machine, k), why);
        if (!told)
            print_missing_for(view, why);
    }
}

/* A row a case, a column a size. */
static kb_code print_sweeps(const probe_report *reports, size_t count)
{
    obs_number sizes[PROBE_SWEEP_COUNT];
    cli_column columns[PROBE_SWEEP_COUNT + 1] = {{.title = "case", .left = true}};
    for (size_t i = 0; i < PROBE_SWEEP_COUNT; i++) {
        sizes[i] = obs_bytes(probe_sweep_bytes(i));
        columns[i + 1] = (cli_column){.title = sizes[i].text};
    }
    cli_table table;
    cli_table_init(&table, columns, PROBE_SWEEP_COUNT + 1);
    for (size_t c = 0; c < count; c++) {
        cli_table_cell(&table, "%s", probe_cases[reports[c].which].name);
        for (size_t i = 0; i < PROBE_SWEEP_COUNT; i++) {
            double gbs = obs_bandwidth(probe_sweep_bytes(i), reports[c].sweep[i]);
            cli_table_cell(&table, "%s", obs_gbs(gbs).text);
        }
    }
    return cli_table_print(&table, stdout);
}

/* The case to look at next: a long way, if the machine has it. */
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

static kb_code print_all(const probe_view *view, const probe_report *reports, size_t count)
{
    char title[160];
    snprintf(title, sizeof title,
             "One transfer of %s at a time: latency = overhead + wire + drain + queueing, in ns",
             obs_bytes(view->bytes).text);
    cli_print_heading(stdout, title);
    kb_code code = print_summary(view, reports, count);
    if (code != KB_OK)
        return code;
    print_missing(view);
    putchar('\n');
    if (!view->quiet)
        fputs(reading, stdout);
    cli_print_heading(stdout, "Bandwidth by transfer size, GB/s");
    code = print_sweeps(reports, count);
    if (code == KB_OK && !view->details && !view->quiet)
        print_hints(view, &reports[count - 1]);
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
                   obs_rate(rate_of(view, r->bottleneck)).text);
    print_ends(view, r);
    print_line("size", obs_bytes(r->bytes).text, "");
    print_line("latency", obs_ns(completion->ended).text, "ns");
    print_line("  overhead", obs_ns(completion->overhead).text, "ns in nodes");
    print_line("  wire", obs_ns(completion->wire).text, "ns in links");
    print_line("  drain", obs_ns(completion->drain).text,
               "ns for the bytes to pass the slowest link");
    print_line("  queueing", obs_ns(completion->queueing).text, "ns behind other transfers");
    print_line("bandwidth", obs_gbs(gbs).text, "GB/s");
    print_line("utilisation", obs_percent(gbs / rate_gbs(view, r->bottleneck)).text,
               cli_text(&unit));
    kb_text_fini(&unit);
    kb_text_fini(&link);
}

/* The links of the slowest rate that the data pass. */
static uint32_t count_slowest(const probe_view *view, const probe_result *r, bool read)
{
    uint64_t slowest = rate_of(view, r->bottleneck);
    uint32_t count = 0;
    for (size_t i = 0; i < r->stops.count; i++) {
        const probe_stop *stop = &r->stops.items[i];
        if (stop->link != TOPO_NONE && stop->back == read && rate_of(view, stop->link) == slowest)
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

/* What the latency is mostly made of, and what follows. */
static void print_verdict(const probe_view *view, const probe_report *report,
                          const probe_overhead *largest)
{
    const net_completion *r = &report->result.completion;
    double total = (double)r->ended, drain = (double)r->drain / total;
    if (r->drain >= r->overhead && r->drain >= r->wire)
        print_drain_verdict(view, report, drain);
    else if (r->wire > r->overhead)
        printf("  %s %% of the latency is in wires: a larger transfer uses the route better;\n"
               "  more bandwidth could save %s %% at most\n",
               obs_percent((double)r->wire / total).text, obs_percent(drain).text);
    else
        printf("  %s %% of the latency is overhead of nodes, %s %% that of %s: a larger transfer\n"
               "  makes better use of the way; more bandwidth could save %s %% at most\n",
               obs_percent((double)r->overhead / total).text,
               obs_percent((double)largest->total / total).text, topo_kind_name(largest->kind),
               obs_percent(drain).text);
}

static kb_code print_overheads(const probe_view *view, const probe_report *report)
{
    static const cli_column columns[] = {{.title = "nodes", .left = true},
                                         {.title = "passed"},
                                         {.title = "overhead ns"},
                                         {.title = "total ns"},
                                         {.title = "% of latency"}};
    const probe_result *r = &report->result;
    probe_overhead overheads[TOPO_KINDS] = {0};
    size_t count = probe_overheads(view, r, overheads);
    cli_table table;
    cli_table_init(&table, columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < count; i++) {
        const probe_overhead *o = &overheads[i];
        cli_table_cell(&table, "%s", topo_kind_name(o->kind));
        cli_table_cell(&table, "%u x", o->count);
        cli_table_cell(&table, "%s", obs_ns(o->each).text);
        cli_table_cell(&table, "%s", obs_ns(o->total).text);
        cli_table_cell(&table, "%s",
                       obs_percent((double)o->total / (double)r->completion.ended).text);
    }
    kb_code code = cli_table_print(&table, stdout);
    if (!view->quiet) {
        putchar('\n');
        print_verdict(view, report, &overheads[0]);
    }
    return code;
}

static kb_code print_sweep(const probe_view *view, const probe_report *report)
{
    static const cli_column columns[] = {
        {.title = "size"}, {.title = "latency ns"}, {.title = "GB/s"}, {.title = "utilisation %"}};
    cli_table table;
    cli_table_init(&table, columns, 4);
    for (size_t i = 0; i < PROBE_SWEEP_COUNT; i++) {
        double gbs = obs_bandwidth(probe_sweep_bytes(i), report->sweep[i]);
        cli_table_cell(&table, "%s", obs_bytes(probe_sweep_bytes(i)).text);
        cli_table_cell(&table, "%s", obs_ns(report->sweep[i]).text);
        cli_table_cell(&table, "%s", obs_gbs(gbs).text);
        cli_table_cell(&table, "%s",
                       obs_percent(gbs / rate_gbs(view, report->result.bottleneck)).text);
    }
    return cli_table_print(&table, stdout);
}

static void add_stop_rows(cli_table *table, const probe_view *view, const probe_stop *stop,
                          const char *note)
{
    kb_text name = KB_TEXT_INIT;
    topo_node_name(view->machine, stop->node, &name);
    cli_table_cell(table, "%s", obs_ns(stop->at).text);
    cli_table_cell(table, "%s", cli_text(&name));
    bool first = stop->link == TOPO_NONE;
    cli_table_cell(table, "%s", first ? "" : obs_rate(rate_of(view, stop->link)).text);
    cli_table_cell(table, "%s", first ? "" : obs_ns(probe_stop_wire(view, stop)).text);
    cli_table_cell(table, "%s", obs_ns(probe_stop_overhead(view, stop)).text);
    cli_table_cell(table, "%s", note);
    kb_text_fini(&name);
}

static kb_code print_route(const probe_view *view, const probe_report *report)
{
    static const cli_column columns[] = {
        {.title = "at ns"},   {.title = "node", .left = true}, {.title = "link GB/s"},
        {.title = "wire ns"}, {.title = "overhead ns"},        {.title = "", .left = true},
    };
    const probe_result *r = &report->result;
    cli_table table;
    cli_table_init(&table, columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < r->stops.count; i++) {
        const probe_stop *stop = &r->stops.items[i];
        bool last = i + 1 == r->stops.count;
        bool turns = !last && r->stops.items[i + 1].back && !stop->back;
        const char *note = "";
        if (last)
            note = "last byte arrives";
        else if (turns)
            note = "request arrives, data return";
        add_stop_rows(&table, view, stop, note);
    }
    return cli_table_print(&table, stdout);
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
    kb_code code = print_overheads(view, report);
    if (code != KB_OK)
        return code;
    putchar('\n');
    cli_print_heading(stdout, "Bandwidth by transfer size");
    code = print_sweep(view, report);
    if (code != KB_OK)
        return code;
    putchar('\n');
    cli_print_heading(stdout, "Route, with the arrival time of the head of the first packet");
    return print_route(view, report);
}

kb_code probe_print(const probe_view *view, const probe_report *reports, size_t count, bool all)
{
    kb_code code = KB_OK;
    print_machine(view);
    putchar('\n');
    if (all)
        code = print_all(view, reports, count);
    for (size_t i = 0; i < count && view->details && code == KB_OK; i++) {
        if (all || i > 0)
            putchar('\n');
        code = print_case(view, &reports[i]);
    }
    return code;
}

/* ---- Under load -------------------------------------------------------------------------- */

static kb_code print_load_table(const probe_load_report *report)
{
    static const cli_column columns[] = {
        {.title = "load %"},        {.title = "offered GB/s"},
        {.title = "accepted GB/s"}, {.title = "mean ns"},
        {.title = "wait ns"},       {.title = "p50 ns"},
        {.title = "p99 ns"},        {.title = "max ns"},
        {.title = "busy %"},        {.title = "waited there ns, sum"},
    };
    cli_table table;
    cli_table_init(&table, columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < PROBE_LOAD_COUNT; i++) {
        const probe_load *load = &report->points[i];
        cli_table_cell(&table, "%s", obs_percent(probe_loads[i]).text);
        cli_table_cell(&table, "%s", obs_gbs(load->offered_gbs).text);
        cli_table_cell(&table, "%s", obs_gbs(load->accepted_gbs).text);
        cli_table_cell(&table, "%s", obs_ns(load->mean).text);
        cli_table_cell(&table, "%s", obs_ns(load->wait).text);
        cli_table_cell(&table, "%s", obs_ns(load->p50).text);
        cli_table_cell(&table, "%s", obs_ns(load->p99).text);
        cli_table_cell(&table, "%s", obs_ns(load->max).text);
        cli_table_cell(&table, "%s", obs_percent(load->utilization).text);
        cli_table_cell(&table, "%s", obs_ns(load->waited).text);
    }
    return cli_table_print(&table, stdout);
}

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
           cli_text(&link), obs_rate(rate_of(view, c->bottleneck)).text);
    kb_text_fini(&title);
    kb_text_fini(&link);
}

kb_code probe_print_load(const probe_view *view, const probe_load_report *reports, size_t count,
                         bool all)
{
    kb_code code = KB_OK;
    print_machine(view);
    putchar('\n');
    for (size_t i = 0; i < count && code == KB_OK; i++) {
        print_load_title(view, &reports[i]);
        code = print_load_table(&reports[i]);
        putchar('\n');
    }
    if (all && code == KB_OK) {
        print_missing(view);
        putchar('\n');
    }
    if (!view->quiet)
        fputs(reading_load, stdout);
    return code;
}
