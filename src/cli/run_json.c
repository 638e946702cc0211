/* run_json.c: the summary of a run as JSON. */
#include "run.h"

#include "json.h"
#include "stand_ins.h"

/* Times by cause, all of them. */
static json_t *causes_json(const kb_time_sum *causes, int count)
{
    json_t *object = json_object();
    for (int c = 0; c < count; c++) {
        char key[48];
        snprintf(key, sizeof key, "%s_ns", run_cause_key(c));
        cli_json_set(&object, key, cli_json_ns(causes[c]));
    }
    return object;
}

static json_t *kernels_json(const run_stats *s)
{
    json_t *kernels = json_array();
    for (size_t i = 0; i < s->launch_count; i++) {
        const kb_launch_result *launch = &s->launches[i];
        cli_json_append(
            &kernels,
            json_pack("{s:o, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "name",
                      cli_json_text(launch->name), "sip", (json_int_t)launch->sip, "pes",
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

/* How requests, responses and writes were simulated: as packet trains, as packets, or as trains
 * that unfolded into packets, by reason; and how often packets were coalesced into a train again.
 */
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

/* Commands of engines: how many had their times when they were issued, and why others did not. */
static json_t *engines_json(const pe_stats *engines)
{
    return json_pack("{s:I, s:{s:I, s:I, s:I}}", "resolved", (json_int_t)engines->resolved,
                     "deferred", "input", (json_int_t)engines->waited_for_input, "command",
                     (json_int_t)engines->waited_for_command, "event",
                     (json_int_t)engines->waited_for_event);
}

static json_t *execution_json(const run_stats *s)
{
    return json_pack("{s:o, s:o}", "engine_commands", engines_json(&s->engines), "transfers",
                     transport_json(&s->trains));
}

/* The group of causes of each roof, and its name. */
static const struct {
    const char *bound, *name;
} roofs[] = {
    [RUN_MATRIX_ROOF] = {"compute", "matrix"},
    [RUN_VECTOR_ROOF] = {"compute", "vector"},
    [RUN_MEMORY_ROOF] = {"memory", "local_memory"},
    [RUN_REMOTE_ROOF] = {"communication", "remote"},
};

/* null for a run without kernels. */
static json_t *roofline_json(const run_stats *s)
{
    const run_roofline *r = &s->roofline;
    if (s->pes == 0)
        return json_null();
    json_t *object = json_object();
    cli_json_set(&object, "pes", json_integer((json_int_t)s->pes));
    cli_json_set(&object, "tflops", cli_json_real(r->tflops));
    cli_json_set(&object, "peak_tflops", cli_json_real(r->peak_tflops));
    cli_json_set(&object, "array_slots_used", cli_json_real(r->slots));
    cli_json_set(&object, "vector_tflops", cli_json_real(r->vector_tflops));
    cli_json_set(&object, "vector_peak_tflops", cli_json_real(r->vector_peak_tflops));
    cli_json_set(&object, "vector_busy", cli_json_real(r->vector_busy));
    cli_json_set(&object, "gbs", cli_json_real(r->gbs));
    cli_json_set(&object, "peak_gbs", cli_json_real(r->peak_gbs));
    cli_json_set(&object, "remote_gbs", cli_json_real(r->remote_gbs));
    cli_json_set(&object, "remote_busy", cli_json_real(r->remote_busy));
    cli_json_set(&object, "intensity", cli_json_real(r->intensity));
    cli_json_set(&object, "ridge", cli_json_real(r->ridge));
    cli_json_set(&object, "roof_tflops", cli_json_real(r->roof_tflops));
    cli_json_set(&object, "bound", json_string(roofs[r->roof].bound));
    cli_json_set(&object, "roof", json_string(roofs[r->roof].name));
    cli_json_set(&object, "of_roof", cli_json_real(r->of_roof));
    return object;
}

static void set_named(json_t **object, const char *name, json_t *value)
{
    kb_text key = KB_TEXT_INIT;
    kb_text_puts(&key, name);
    kb_text_escape_from(&key, 0);
    cli_json_set(object, cli_text(&key), value);
    kb_text_fini(&key);
}

/* The object of the metric "object.name", created if it does not exist. NULL if out of memory, or
 * if another metric has the object's name. */
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
    json_incref(group); /* set_named() drops it on failure */
    set_named(&group, dot + 1, cli_json_real(metric->value));
    if (group)
        json_decref(group);
    else
        cli_json_set(metrics, metric->name, NULL);
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
                  param->names ? cli_json_text(param->names[value]) : json_integer(value));
    }
    return object;
}

static json_t *verified_json(const run_view *view)
{
    rt_verdict verdict = rt_bench_verdict(view->bench);
    return verdict == RT_NOT_VERIFIED ? json_null() : json_boolean(verdict == RT_VERIFIED);
}

/* How the run failed: null if it did not. */
static json_t *error_json(const kb_error *err)
{
    if (!err)
        return json_null();
    return json_pack("{s:i, s:o}", "code", (int)kb_error_code(err), "message",
                     cli_json_text(kb_error_message(err)));
}

json_t *run_document(const run_view *view)
{
    const run_stats *s = view->stats;
    kb_text verdict = KB_TEXT_INIT;
    run_verdict(s, &verdict);
    json_t *document = json_object();
    cli_json_set(&document, "bench", cli_json_text(view->spec->name));
    cli_json_set(&document, "topology", cli_json_machine(s->machine, view->settings));
    cli_json_set(&document, "parameters", parameters_json(view));
    cli_json_set(&document, "timing_only", json_boolean(view->timing_only));
    cli_json_set(&document, "stand_ins", stand_ins_json(&s->stand_ins));
    cli_json_set(&document, "verified", verified_json(view));
    cli_json_set(&document, "error", error_json(view->failure));
    cli_json_set(&document, "metrics", metrics_json(view));
    cli_json_set(&document, "sim_ns", cli_json_ns(s->sim));
    cli_json_set(&document, "breakdown", split_json(&s->split));
    cli_json_set(&document, "causes", causes_json(s->causes, RUN_CAUSES));
    cli_json_set(&document, "verdict", json_string(cli_text(&verdict)));
    cli_json_set(&document, "kernels", kernels_json(s));
    cli_json_set(&document, "units", cli_rows_json(&run_units, s->machine, view));
    cli_json_set(&document, "busiest_links", cli_rows_json(&run_busiest_links, s->machine, view));
    cli_json_set(&document, "link_kinds", cli_rows_json(&run_links_by_kind, s->machine, view));
    cli_json_set(&document, "link_bytes", cli_json_count(s->link_bytes));
    cli_json_set(&document, "roofline", roofline_json(s));
    if (s->profile)
        cli_json_set(&document, "profile", run_profile_json(view));
    cli_json_set(&document, "events", json_integer((json_int_t)s->events));
    cli_json_set(&document, "hops", json_integer((json_int_t)s->hops));
    cli_json_set(&document, "execution", execution_json(s));
    cli_json_set(&document, "wall_s", cli_json_real(view->wall_s));
    cli_json_set(&document, "hops_per_s", cli_json_real(run_per_second(s->hops, view->wall_s)));
    kb_text_fini(&verdict);
    return document;
}
