/*
 * validate.c: the mesh beside a cycle-level simulator: every load point of the reference,
 * the rate at which latency doubles, and what larger packets cost in accuracy.
 */
#include "validate_private.h"

#include <stdio.h>

void validate_step(validation *v)
{
    v->done++;
    if (v->options->progress)
        v->options->progress(v->options->self, v->done, v->total);
}

kb_error *validate_mesh(uint32_t k, uint32_t packet_flits, topo_machine **machine)
{
    char size[32], packet[48];
    snprintf(size, sizeof size, "cube.noc.k=%u", k);
    snprintf(packet, sizeof packet, "fabric.packet_bytes=%u", packet_flits * VALIDATE_FLIT_BYTES);
    const char *const settings[] = {size, packet};
    return topo_machine_load(
        &(topo_source){.path = "mesh-reference", .settings = settings, .setting_count = 2},
        machine);
}

double validate_idle(uint32_t k, uint32_t flits)
{
    double side = k;
    double routers = 1 + 2 * (side * side - 1) / (3 * side);
    return 4 * routers + 1 + flits;
}

/* ---- Runs -------------------------------------------------------------------------------- */

/*
 * Windows are so long that the mean is known to a percent or so, and that many times the latency of
 * a transfer fits in.
 */
static traffic_options load_point(const validation *v, uint32_t k, uint32_t flits,
                                  uint64_t rate_ppb)
{
    const validate_options *o = v->options;
    uint64_t transfers = o->quick ? 1500 : 4000, min_cycles = o->quick ? 1200 : 3000;
    if (o->transfers > 0) {
        min_cycles = min_cycles * o->transfers / transfers;
        transfers = o->transfers;
    }
    uint64_t cycles = transfers * flits * TRAFFIC_RATE_ONE / ((uint64_t)k * k * rate_ppb);
    if (cycles < min_cycles)
        cycles = min_cycles;
    return (traffic_options){
        .pattern = TRAFFIC_UNIFORM,
        .process = TRAFFIC_BERNOULLI,
        .level = TRAFFIC_CUBE,
        .rate_ppb = rate_ppb,
        .bytes = (uint64_t)flits * VALIDATE_FLIT_BYTES,
        .cycle_bytes = VALIDATE_FLIT_BYTES,
        .seed = 1,
        .warmup = (kb_time)(cycles / 4) * KB_NS,
        .measure = (kb_time)cycles * KB_NS,
    };
}

static kb_error *run_mesh(validation *v, const topo_machine *machine, const reference_curve *curve,
                          uint64_t rate_ppb, traffic_result *result)
{
    traffic_options options = load_point(v, curve->k, curve->flits, rate_ppb);
    KB_TRY(traffic_run(machine, &options, result));
    v->report->hops += result->hops;
    validate_step(v);
    return NULL;
}

static double in_ns(double fs)
{
    return fs / (double)KB_NS;
}

static double off_by(double ours, double reference)
{
    return ours / reference - 1;
}

static double size_of(double x)
{
    return x < 0 ? -x : x;
}

static void judge(validate_report *r, bool inside)
{
    r->judged++;
    r->inside += inside;
}

/* ---- Load points ------------------------------------------------------------------------- */

static kb_error *check_point(validation *v, const topo_machine *machine,
                             const reference_curve *curve, const reference_point *reference)
{
    traffic_result result;
    KB_TRY(run_mesh(v, machine, curve, reference->rate_ppb, &result));
    validate_point point = {
        .k = curve->k,
        .flits = curve->flits,
        .rate = result.offered,
        .reference = reference->latency,
        .ci95 = reference->ci95,
        .ours = in_ns(result.mean_fs),
        .ours_p99 = in_ns((double)result.p99_fs),
        .saturated = result.saturated,
        .judged = reference->latency < 2 * validate_idle(curve->k, curve->flits),
    };
    point.error = off_by(point.ours, point.reference);
    point.inside =
        size_of(point.ours - point.reference) <= VALIDATE_BAR * point.reference + point.ci95;
    if (point.judged) {
        judge(v->report, point.inside);
        if (size_of(point.error) > v->report->worst)
            v->report->worst = size_of(point.error);
    }
    return kb_vec_push(&v->report->points, point) ? NULL : kb_error_nomem();
}

/* A quick check takes every other point, and the highest one below twice the idle latency. */
static bool is_wanted(const validation *v, const reference_mesh *reference,
                      const reference_curve *curve, size_t i)
{
    const reference_point *point = &reference->points.items[curve->first + i];
    double limit = 2 * validate_idle(curve->k, curve->flits);
    bool below = point->latency < limit;
    bool highest = below && (i + 1 == curve->count || point[1].latency >= limit);
    return !v->options->quick || highest || (below && i % 3 == 1);
}

static kb_error *check_points(validation *v, const topo_machine *machine,
                              const reference_mesh *reference, const reference_curve *curve)
{
    for (size_t i = 0; i < curve->count; i++)
        if (is_wanted(v, reference, curve, i))
            KB_TRY(check_point(v, machine, curve, &reference->points.items[curve->first + i]));
    return NULL;
}

/* ---- Doubling ---------------------------------------------------------------------------- */

/* One end of the interval in which the latency reaches twice that of an idle mesh. */
typedef struct edge {
    uint64_t rate_ppb;
    double latency;
} edge;

static kb_error *run_edge(validation *v, const topo_machine *machine, const reference_curve *curve,
                          edge *e)
{
    traffic_result result;
    KB_TRY(run_mesh(v, machine, curve, e->rate_ppb, &result));
    e->latency = in_ns(result.mean_fs);
    return NULL;
}

enum { bisections = 2, widenings = 4, doubling_steps = 2 + bisections };

/* From 10 % around the reference; if ours is not there, further on that side. */
static kb_error *bracket(validation *v, const topo_machine *machine, const reference_curve *curve,
                         double limit, edge *low, edge *high)
{
    uint64_t step = curve->doubling_ppb / 10;
    *low = (edge){.rate_ppb = curve->doubling_ppb - step};
    *high = (edge){.rate_ppb = curve->doubling_ppb + step};
    KB_TRY(run_edge(v, machine, curve, low));
    KB_TRY(run_edge(v, machine, curve, high));
    for (int i = 0; i < widenings && low->latency >= limit; i++) {
        *high = *low;
        low->rate_ppb -= step;
        KB_TRY(run_edge(v, machine, curve, low));
    }
    for (int i = 0; i < widenings && high->latency < limit; i++) {
        *low = *high;
        high->rate_ppb += step;
        KB_TRY(run_edge(v, machine, curve, high));
    }
    return NULL;
}

static kb_error *check_doubling(validation *v, const topo_machine *machine,
                                const reference_curve *curve)
{
    double limit = 2 * validate_idle(curve->k, curve->flits);
    edge low, high;
    KB_TRY(bracket(v, machine, curve, limit, &low, &high));
    for (int i = 0; i < bisections; i++) {
        edge middle = {.rate_ppb = (low.rate_ppb + high.rate_ppb) / 2};
        KB_TRY(run_edge(v, machine, curve, &middle));
        *(middle.latency < limit ? &low : &high) = middle;
    }
    double share = (limit - low.latency) / (high.latency - low.latency);
    double width = (double)(high.rate_ppb - low.rate_ppb);
    double one = (double)TRAFFIC_RATE_ONE;
    validate_doubling doubling = {
        .k = curve->k,
        .flits = curve->flits,
        .reference = (double)curve->doubling_ppb / one,
        .ours = ((double)low.rate_ppb + share * width) / one,
    };
    doubling.error = off_by(doubling.ours, doubling.reference);
    doubling.inside = size_of(doubling.error) <= VALIDATE_BAR;
    judge(v->report, doubling.inside);
    return kb_vec_push(&v->report->doublings, doubling) ? NULL : kb_error_nomem();
}

/* ---- Larger packets ---------------------------------------------------------------------- */

enum { packet_transfer_flits = 16 };
static const uint32_t packet_sizes[] = {4, 16};
enum { packet_size_count = sizeof packet_sizes / sizeof packet_sizes[0] };

static kb_error *check_packet(validation *v, const topo_machine *machine, uint32_t packet_flits,
                              const reference_curve *curve, const reference_point *reference)
{
    traffic_result result;
    KB_TRY(run_mesh(v, machine, curve, reference->rate_ppb, &result));
    validate_packet packet = {
        .k = curve->k,
        .packet_flits = packet_flits,
        .rate = result.offered,
        .reference = reference->latency,
        .ours = in_ns(result.mean_fs),
        .hops = (double)result.hops / (double)result.transfers,
        .events = (double)result.events / (double)result.transfers,
    };
    packet.error = off_by(packet.ours, packet.reference);
    return kb_vec_push(&v->report->packets, packet) ? NULL : kb_error_nomem();
}

static kb_error *check_packets(validation *v, const reference_mesh *reference,
                               const reference_curve *curve)
{
    for (size_t s = 0; s < packet_size_count; s++) {
        topo_machine *machine;
        KB_TRY(validate_mesh(curve->k, packet_sizes[s], &machine));
        kb_error *err = NULL;
        for (size_t i = 0; i < curve->count && !err; i++)
            if (is_wanted(v, reference, curve, i))
                err = check_packet(v, machine, packet_sizes[s], curve,
                                   &reference->points.items[curve->first + i]);
        topo_machine_destroy(machine);
        KB_TRY(err);
    }
    return NULL;
}

/* ---- All of it --------------------------------------------------------------------------- */

static kb_error *check_curve(validation *v, const reference_mesh *reference,
                             const reference_curve *curve)
{
    topo_machine *machine;
    KB_TRY(validate_mesh(curve->k, 1, &machine));
    kb_error *err = check_points(v, machine, reference, curve);
    if (!err && !v->options->quick)
        err = check_doubling(v, machine, curve);
    topo_machine_destroy(machine);
    if (!err && curve->flits == packet_transfer_flits)
        err = check_packets(v, reference, curve);
    return err;
}

static uint64_t count_steps(const validation *v, const reference_mesh *reference)
{
    uint64_t steps = validate_forms_steps();
    for (size_t c = 0; c < reference->curves.count; c++) {
        const reference_curve *curve = &reference->curves.items[c];
        uint64_t runs = curve->flits == packet_transfer_flits ? 1 + packet_size_count : 1;
        for (size_t i = 0; i < curve->count; i++)
            steps += is_wanted(v, reference, curve, i) ? runs : 0;
        steps += v->options->quick ? 0 : doubling_steps;
    }
    return steps;
}

kb_error *validate_run(const validate_options *options, validate_report *report)
{
    *report = (validate_report){0};
    validation v = {.options = options, .report = report};
    reference_mesh reference;
    kb_error *err = reference_load(&reference);
    if (!err) {
        v.total = count_steps(&v, &reference);
        err = validate_forms(&v);
    }
    for (size_t c = 0; c < reference.curves.count && !err; c++)
        err = check_curve(&v, &reference, &reference.curves.items[c]);
    reference_fini(&reference);
    if (err)
        validate_report_fini(report);
    return err;
}

void validate_report_fini(validate_report *report)
{
    kb_vec_fini(&report->forms);
    kb_vec_fini(&report->packets);
    kb_vec_fini(&report->doublings);
    kb_vec_fini(&report->points);
}
