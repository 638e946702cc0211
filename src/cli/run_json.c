/* run_json.c: the results of the run command for programs. */
#include "run.h"

#include "cli.h"
#include "json.h"
#include "stand_ins.h"

/* Names are the bench's, and may be no UTF-8. */
static json_t *name_json(const char *name)
{
    kb_text text = KB_TEXT_INIT;
    kb_text_puts(&text, name);
    kb_text_escape_from(&text, 0);
    json_t *value = text.failed ? NULL : json_string(cli_text(&text));
    kb_text_fini(&text);
    return value;
}

/* Sets a member of an object and takes the value over; a failure makes the object NULL. */
static void set(json_t **object, const char *key, json_t *value)
{
    if (*object && json_object_set_new(*object, key, value) == 0)
        return;
    if (!*object)
        json_decref(value);
    json_decref(*object);
    *object = NULL;
}

/* Times by cause, all of them. */
static json_t *causes_json(const kb_time_sum *causes, int count)
{
    json_t *object = json_object();
    for (int c = 0; c < count; c++) {
        char key[48];
        snprintf(key, sizeof key, "%s_ns", run_cause_key(c));
        set(&object, key, cli_json_ns(causes[c]));
    }
    return object;
}

static json_t *kernels_json(const run_stats *f)
{
    json_t *kernels = json_array();
    for (size_t i = 0; i < f->launch_count; i++) {
        const kb_launch_result *launch = &f->launches[i];
        cli_json_append(
            &kernels,
            json_pack("{s:o, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "name",
                      name_json(launch->name), "sip", (json_int_t)launch->sip, "pes",
                      (json_int_t)launch->pes, "issued_ns", cli_json_ns(launch->issued), "total_ns",
                      cli_json_ns(launch->ended - launch->issued - launch->held), "held_ns",
                      cli_json_ns(launch->held), "pe_exec_ns", cli_json_ns(launch->pe_exec),
                      "network_ns", cli_json_ns(launch->network), "causes",
                      causes_json(launch->causes, KB_CAUSES)));
    }
    return kernels;
}

static json_t *split_json(const kb_split_time *split)
{
    return json_pack("{s:o, s:o, s:o, s:o}", "compute_ns", cli_json_ns(split->compute), "memory_ns",
                     cli_json_ns(split->memory), "communication_ns",
                     cli_json_ns(split->communication), "idle_ns", cli_json_ns(split->idle));
}

static json_t *units_json(const run_stats *f)
{
    json_t *units = json_array();
    for (int i = 0; i < KB_UNITS; i++) {
        const run_unit *unit = &f->units[i];
        if (unit->count == 0)
            continue;
        double share = run_share(unit->at_work, f->timeline.in_kernels);
        cli_json_append(
            &units,
            json_pack("{s:s, s:I, s:o, s:o, s:o, s:I, s:I}", "unit", kb_unit_name((kb_unit)i),
                      "count", (json_int_t)unit->count, "busy_ns", cli_json_ns(unit->busy),
                      "at_work_ns", cli_json_ns(unit->at_work), "share", cli_json_real(share),
                      "bytes", (json_int_t)unit->bytes, "flops", (json_int_t)unit->flops));
    }
    return units;
}

/* How requests, responses and writes moved: as packet trains from start to end, as packets from the
 * start, or unfolded in between; and why. And how often the packets that were left of one were
 * coalesced into a train. */
static json_t *transport_json(const net_train_stats *trains)
{
    const uint64_t *packets = trains->as_packets, *unfolded = trains->unfolded;
    return json_pack(
        "{s:I, s:{s:I, s:I, s:I}, s:{s:I, s:I, s:I, s:I}, s:{s:I, s:I}}", "whole",
        (json_int_t)trains->whole, "packets", "unforeseen", (json_int_t)packets[NET_UNPREDICTABLE],
        "train_in_the_way", (json_int_t)packets[NET_TRAIN_IN_THE_WAY], "packets_in_the_way",
        (json_int_t)packets[NET_PACKETS_IN_THE_WAY], "unfolded", "packet_met",
        (json_int_t)unfolded[NET_PACKET_MET], "packet_waited",
        (json_int_t)unfolded[NET_PACKET_WAITED], "source_taken",
        (json_int_t)unfolded[NET_SOURCE_TAKEN], "watched", (json_int_t)unfolded[NET_WATCHED],
        "coalesced", "trains", (json_int_t)trains->coalesced, "unfolded",
        (json_int_t)trains->coalesced_unfolded);
}

/* Commands of engines: how many had their times when they were issued, and why others had not. */
static json_t *engines_json(const pe_stats *engines)
{
    return json_pack("{s:I, s:{s:I, s:I, s:I}}", "resolved", (json_int_t)engines->resolved,
                     "deferred", "input", (json_int_t)engines->waited_for_input, "command",
                     (json_int_t)engines->waited_for_command, "event",
                     (json_int_t)engines->waited_for_event);
}

static json_t *execution_json(const run_stats *f)
{
    return json_pack("{s:o, s:o}", "engine_commands", engines_json(&f->engines), "transfers",
                     transport_json(&f->trains));
}

static json_t *links_json(const run_stats *f)
{
    json_t *links = json_array();
    for (size_t i = 0; i < f->links.count && i < RUN_BUSIEST; i++) {
        const run_link *link = &f->links.items[i];
        cli_json_append(&links, json_pack("{s:o, s:I, s:I, s:o, s:o, s:o}", "link",
                                          cli_json_link(f->machine, link->link), "alike",
                                          (json_int_t)link->alike, "bytes", (json_int_t)link->bytes,
                                          "utilization", cli_json_real(link->utilization),
                                          "waited_ns", cli_json_ns(link->waited), "mean_queue",
                                          cli_json_real(link->queue)));
    }
    return links;
}

static json_t *kinds_json(const run_stats *f)
{
    json_t *kinds = json_array();
    for (size_t i = 0; i < f->kinds.count; i++) {
        const run_kind *k = &f->kinds.items[i];
        cli_json_append(
            &kinds, json_pack("{s:[ss], s:b, s:o, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "between",
                              topo_kind_name(k->kind->a), topo_kind_name(k->kind->b), "service",
                              k->kind->service, "gbs", cli_json_rate(k->kind->rate), "count",
                              (json_int_t)k->kind->count, "active", (json_int_t)k->active, "bytes",
                              cli_json_count(k->bytes), "mean_utilization", cli_json_real(k->mean),
                              "max_utilization", cli_json_real(k->max), "waited_ns",
                              cli_json_ns(k->waited), "mean_queue", cli_json_real(k->queue)));
    }
    return kinds;
}

/* Which group of causes the roof belongs to, and which roof it is. */
static const struct {
    const char *bound, *name;
} roofs[] = {
    [RUN_MATRIX_ROOF] = {"compute", "matrix"},
    [RUN_VECTOR_ROOF] = {"compute", "vector"},
    [RUN_MEMORY_ROOF] = {"memory", "local_memory"},
    [RUN_REMOTE_ROOF] = {"communication", "remote"},
};

/* Of a run without kernels there is none. */
static json_t *roofline_json(const run_stats *f)
{
    const run_roofline *r = &f->roofline;
    if (f->pes == 0)
        return json_null();
    json_t *object = json_object();
    set(&object, "pes", json_integer((json_int_t)f->pes));
    set(&object, "tflops", cli_json_real(r->tflops));
    set(&object, "peak_tflops", cli_json_real(r->peak_tflops));
    set(&object, "array_slots_used", cli_json_real(r->slots));
    set(&object, "vector_tflops", cli_json_real(r->vector_tflops));
    set(&object, "vector_peak_tflops", cli_json_real(r->vector_peak_tflops));
    set(&object, "vector_busy", cli_json_real(r->vector_busy));
    set(&object, "gbs", cli_json_real(r->gbs));
    set(&object, "peak_gbs", cli_json_real(r->peak_gbs));
    set(&object, "remote_gbs", cli_json_real(r->remote_gbs));
    set(&object, "remote_busy", cli_json_real(r->remote_busy));
    set(&object, "intensity", cli_json_real(r->intensity));
    set(&object, "ridge", cli_json_real(r->ridge));
    set(&object, "roof_tflops", cli_json_real(r->roof_tflops));
    set(&object, "bound", json_string(roofs[r->roof].bound));
    set(&object, "roof", json_string(roofs[r->roof].name));
    set(&object, "of_roof", cli_json_real(r->of_roof));
    return object;
}

static void set_named(json_t **object, const char *name, json_t *value)
{
    kb_text key = KB_TEXT_INIT;
    kb_text_puts(&key, name);
    kb_text_escape_from(&key, 0);
    set(object, cli_text(&key), value);
    kb_text_fini(&key);
}

/* The object that the metric "object.name" is a member of; made if there is none yet. NULL if there
 * is no memory, or if a metric of that name is no object. */
static json_t *group_of(json_t *metrics, const char *name, size_t length)
{
    kb_text key = KB_TEXT_INIT;
    kb_text_append(&key, name, length);
    kb_text_escape_from(&key, 0);
    const char *text = key.failed ? NULL : cli_text(&key);
    if (text && !json_object_get(metrics, text))
        (void)json_object_set_new(metrics, text, json_object());
    json_t *group = text ? json_object_get(metrics, text) : NULL;
    kb_text_fini(&key);
    return json_is_object(group) ? group : NULL;
}

/* Sets a metric; one named "a.x" is the member x of an object `a`. */
static void set_metric(json_t **metrics, const rt_metric *metric)
{
    const char *dot = strchr(metric->name, '.');
    json_t *group = *metrics && dot && dot > metric->name && dot[1] != '\0'
                        ? group_of(*metrics, metric->name, (size_t)(dot - metric->name))
                        : NULL;
    if (!group) {
        set_named(metrics, metric->name, cli_json_real(metric->value));
        return;
    }
    json_incref(group); /* set() drops it if it fails */
    set_named(&group, dot + 1, cli_json_real(metric->value));
    if (group)
        json_decref(group);
    else
        set(metrics, metric->name, NULL);
}

static json_t *metrics_json(const run_view *view)
{
    size_t count;
    const rt_metric *metrics = rt_bench_metrics(view->bench, &count);
    json_t *object = json_object();
    for (size_t i = 0; i < count; i++)
        set_metric(&object, &metrics[i]);
    return object;
}

static json_t *parameters_json(const run_view *view)
{
    json_t *object = json_object();
    for (size_t i = 0; i < view->spec->param_count; i++) {
        const kb_param *param = &view->spec->params[i];
        int64_t value = kb_bench_param(view->bench, param->name);
        set_named(&object, param->name,
                  param->names ? name_json(param->names[value]) : json_integer(value));
    }
    return object;
}

static json_t *verified_json(const run_view *view)
{
    rt_verdict verdict = rt_bench_verdict(view->bench);
    return verdict == RT_NOT_VERIFIED ? json_null() : json_boolean(verdict == RT_VERIFIED);
}

/* How the run ended: null if well. */
static json_t *error_json(const kb_error *err)
{
    if (!err)
        return json_null();
    return json_pack("{s:i, s:o}", "code", (int)kb_error_code(err), "message",
                     name_json(kb_error_message(err)));
}

kb_code run_print_json(const run_view *view)
{
    const run_stats *f = view->stats;
    kb_text verdict = KB_TEXT_INIT;
    run_verdict(f, &verdict);
    json_t *document = json_object();
    set(&document, "bench", name_json(view->spec->name));
    set(&document, "topology", cli_json_machine(f->machine, &view->common->settings));
    set(&document, "parameters", parameters_json(view));
    set(&document, "timing_only", json_boolean(view->timing_only));
    set(&document, "stand_ins", stand_ins_json(&f->stand_ins));
    set(&document, "verified", verified_json(view));
    set(&document, "error", error_json(view->failure));
    set(&document, "metrics", metrics_json(view));
    set(&document, "sim_ns", cli_json_ns(f->sim));
    set(&document, "breakdown", split_json(&f->split));
    set(&document, "causes", causes_json(f->causes, RUN_CAUSES));
    set(&document, "verdict", json_string(cli_text(&verdict)));
    set(&document, "kernels", kernels_json(f));
    set(&document, "units", units_json(f));
    set(&document, "busiest_links", links_json(f));
    set(&document, "link_kinds", kinds_json(f));
    set(&document, "link_bytes", cli_json_count(f->link_bytes));
    set(&document, "roofline", roofline_json(f));
    if (f->profile)
        set(&document, "profile", run_profile_json(f));
    set(&document, "events", json_integer((json_int_t)f->events));
    set(&document, "hops", json_integer((json_int_t)f->hops));
    set(&document, "execution", execution_json(f));
    set(&document, "wall_s", cli_json_real(view->wall_s));
    set(&document, "hops_per_s", cli_json_real(run_per_second(f->hops, view->wall_s)));
    kb_text_fini(&verdict);
    return cli_json_print(document);
}
