/* probe_json.c: the results of the probe command for programs. */
#include "probe.h"

#include "cli.h"
#include "json.h"
#include "obs/obs.h"
#include "table.h"

static double rate_gbs(const probe_view *view, uint32_t link)
{
    return (double)topo_link_rate(topo_machine_graph(view->machine), link) / (double)TOPO_GBS;
}

static json_t *path_json(const probe_view *view, const probe_result *result)
{
    json_t *path = json_array();
    for (size_t i = 0; i < result->stops.count; i++) {
        const probe_stop *stop = &result->stops.items[i];
        bool first = stop->link == TOPO_NONE;
        cli_json_append(
            &path,
            json_pack("{s:o, s:o, s:o, s:s, s:o, s:o, s:o}", "node",
                      cli_json_node(view->machine, stop->node), "link",
                      first ? json_null() : cli_json_link(view->machine, stop->link), "link_gbs",
                      first ? json_null() : cli_json_real(rate_gbs(view, stop->link)), "leg",
                      stop->back ? "back" : "out", "at_ns", cli_json_ns(stop->at), "overhead_ns",
                      cli_json_ns(probe_stop_overhead(view, stop)), "wire_ns",
                      cli_json_ns(probe_stop_wire(view, stop))));
    }
    return path;
}

static json_t *overheads_json(const probe_view *view, const probe_result *result)
{
    probe_overhead overheads[TOPO_KINDS];
    size_t count = probe_overheads(view, result, overheads);
    json_t *kinds = json_array();
    for (size_t i = 0; i < count; i++) {
        const probe_overhead *o = &overheads[i];
        cli_json_append(&kinds, json_pack("{s:s, s:I, s:o, s:o}", "kind", topo_kind_name(o->kind),
                                          "count", (json_int_t)o->count, "each_ns",
                                          cli_json_ns(o->each), "total_ns", cli_json_ns(o->total)));
    }
    return kinds;
}

static json_t *sweep_json(const probe_view *view, const probe_report *report)
{
    json_t *sweep = json_array();
    double bottleneck = rate_gbs(view, report->result.bottleneck);
    for (size_t i = 0; i < PROBE_SWEEP_COUNT; i++) {
        uint64_t bytes = probe_sweep_bytes(i);
        double gbs = obs_bandwidth(bytes, report->sweep[i]);
        cli_json_append(&sweep, json_pack("{s:I, s:o, s:o, s:o}", "nbytes", (json_int_t)bytes,
                                          "total_ns", cli_json_ns(report->sweep[i]),
                                          "effective_gbs", cli_json_real(gbs), "utilization",
                                          cli_json_real(gbs / bottleneck)));
    }
    return sweep;
}

static json_t *case_json(const probe_view *view, const probe_report *report)
{
    const probe_result *r = &report->result;
    const net_completion *completion = &r->completion;
    double bottleneck = rate_gbs(view, r->bottleneck);
    double gbs = obs_bandwidth(r->bytes, completion->ended);
    return json_pack(
        "{s:s, s:s, s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
        "name", probe_cases[report->which].name, "what", probe_cases[report->which].what, "from",
        cli_json_node(view->machine, r->from), "to", cli_json_node(view->machine, r->to), "nbytes",
        (json_int_t)r->bytes, "total_ns", cli_json_ns(completion->ended), "overhead_ns",
        cli_json_ns(completion->overhead), "wire_ns", cli_json_ns(completion->wire), "drain_ns",
        cli_json_ns(completion->drain), "queueing_ns", cli_json_ns(completion->queueing),
        "bottleneck_link", cli_json_link(view->machine, r->bottleneck), "bottleneck_gbs",
        cli_json_real(bottleneck), "effective_gbs", cli_json_real(gbs), "utilization",
        cli_json_real(gbs / bottleneck), "overhead_by_kind", overheads_json(view, r), "path",
        path_json(view, r), "sweep", sweep_json(view, report));
}

/* Those that the machine has not, if all were asked for. */
static json_t *skipped_json(const probe_view *view, bool all)
{
    json_t *skipped = json_array();
    for (size_t i = 0; all && i < probe_case_count; i++) {
        const char *missing = probe_missing(view->machine, i);
        if (missing)
            cli_json_append(
                &skipped, json_pack("{s:s, s:s}", "name", probe_cases[i].name, "missing", missing));
    }
    return skipped;
}

kb_code probe_print_json(const probe_view *view, const probe_report *reports, size_t count,
                         bool all)
{
    json_t *cases = json_array();
    for (size_t i = 0; i < count; i++)
        cli_json_append(&cases, case_json(view, &reports[i]));
    return cli_json_print(json_pack("{s:o, s:o, s:o}", "topology",
                                    cli_json_machine(view->machine, &view->common->settings),
                                    "cases", cases, "skipped", skipped_json(view, all)));
}

static json_t *point_json(double offered, const probe_load *load)
{
    return json_pack("{s:o, s:o, s:o, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "offered",
                     cli_json_real(offered), "offered_gbs", cli_json_real(load->offered_gbs),
                     "accepted_gbs", cli_json_real(load->accepted_gbs), "transfers",
                     (json_int_t)load->transfers, "mean_ns", cli_json_ns(load->mean), "wait_ns",
                     cli_json_ns(load->wait), "p50_ns", cli_json_ns(load->p50), "p99_ns",
                     cli_json_ns(load->p99), "max_ns", cli_json_ns(load->max), "utilization",
                     cli_json_real(load->utilization), "waited_ns", cli_json_ns(load->waited));
}

static json_t *load_json(const probe_view *view, const probe_load_report *report)
{
    json_t *points = json_array();
    for (size_t i = 0; i < PROBE_LOAD_COUNT; i++)
        cli_json_append(&points, point_json(probe_loads[i], &report->points[i]));
    const probe_capacity *capacity = &report->capacity;
    return json_pack("{s:s, s:I, s:I, s:o, s:o, s:o, s:o}", "name", probe_cases[report->which].name,
                     "nbytes", (json_int_t)view->bytes, "sources", (json_int_t)capacity->sources,
                     "bottleneck_link", cli_json_link(view->machine, capacity->bottleneck),
                     "bottleneck_gbs", cli_json_real(rate_gbs(view, capacity->bottleneck)),
                     "capacity_gbs", cli_json_real(capacity->gbs), "load", points);
}

kb_code probe_print_load_json(const probe_view *view, const probe_load_report *reports,
                              size_t count, bool all)
{
    json_t *cases = json_array();
    for (size_t i = 0; i < count; i++)
        cli_json_append(&cases, load_json(view, &reports[i]));
    return cli_json_print(json_pack("{s:o, s:I, s:o, s:o}", "topology",
                                    cli_json_machine(view->machine, &view->common->settings),
                                    "seed", (json_int_t)view->seed, "cases", cases, "skipped",
                                    skipped_json(view, all)));
}
