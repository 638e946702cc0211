/*
 * run_report.c: the report of a run: see run_report.h. Turns what obs_activity has collected into
 * JSON for the scripts of the page: columns of numbers rather than objects, and shares of time as
 * one character a bin, so that the page of a large run stays small.
 */
#include "run_report.h"

#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "json.h"
#include "report_page.h"
#include "run_path.h"

enum {
    MAX_LINKS = 4000,     /* in the page; the rest is in the sums by kind and by cube */
    MAX_SHOWN_PES = 4096, /* with their own colour; more are shown by cube */
    MAX_STEPS = 1500      /* of the critical path, the longest */
};

struct run_report {
    kb_context *ctx;
    net *fabric;
    obs_activity *activity;
    run_path *path; /* the critical path */
    size_t bins;    /* that the run used */
    kb_time end;
};

/* ---- Collecting -------------------------------------------------------------------------- */

static kb_time sample(void *self, uint64_t *bytes)
{
    const run_report *r = self;
    size_t count = topo_machine_graph(rt_get_stats(r->ctx).machine)->links.count;
    for (size_t i = 0; i < count; i++)
        bytes[i] = net_link_get(r->fabric, (uint32_t)i).bytes;
    return kb_context_now(r->ctx);
}

kb_error *run_report_open(kb_context *ctx, run_report **report)
{
    *report = NULL;
    run_report *r = kb_alloc_zeroed(1, sizeof *r);
    if (!r)
        return kb_error_nomem();
    rt_stats stats = rt_get_stats(ctx);
    r->ctx = ctx;
    r->fabric = stats.fabric;
    kb_error *err = obs_activity_create(stats.machine, sample, r, &r->activity);
    if (!err)
        err = run_path_begin(ctx, RUN_PATH_BYTES, &r->path);
    if (err)
        run_report_discard(r);
    else
        *report = r;
    return err;
}

void run_report_op(run_report *report, const kb_op *op)
{
    if (!report)
        return;
    obs_activity_op(report->activity, op);
    run_path_op(report->path, op);
}

void run_report_state(run_report *report, uint64_t pe, kb_cause cause, kb_time start, kb_time end)
{
    if (report)
        obs_activity_state(report->activity, pe, cause, start, end);
}

void run_report_discard(run_report *report)
{
    if (!report)
        return;
    obs_activity_destroy(report->activity);
    run_path_end(report->path);
    free(report);
}

/* ---- Shares of time ---------------------------------------------------------------------- */

/* A share from 0 to 1 as a digit of base 64; only 0 is 0. */
static char digit_of(double share)
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-_";
    double scaled = share * 63;
    int level = scaled >= 63 ? 63 : (int)(scaled + 0.5);
    return digits[share > 0 && level == 0 ? 1 : level];
}

/* The last bin ends with the run. */
static kb_time width_of(const run_report *r, const obs_spread *spread, size_t bin)
{
    kb_time start = (kb_time)bin * spread->width;
    return r->end - start < spread->width ? r->end - start : spread->width;
}

/*
 * Links and PEs have bins of different widths while they are collected, powers of two of
 * nanoseconds. The page has one width, the wider one.
 */
static void widen(obs_spread *spread, kb_time width)
{
    while (spread->width < width)
        obs_spread_merge(spread);
}

static json_t *share_text(const double *shares, size_t bins)
{
    char text[512];
    KB_ASSERT(bins <= sizeof text);
    for (size_t i = 0; i < bins; i++)
        text[i] = digit_of(shares[i]);
    return json_stringn(text, bins);
}

static void link_shares(const run_report *r, uint32_t link, double *shares)
{
    const obs_activity *a = r->activity;
    uint64_t rate = topo_link_rate(topo_machine_graph(a->machine), link);
    for (size_t bin = 0; bin < r->bins; bin++)
        shares[bin] = topo_utilization(rate, obs_spread_get(&a->links, link, bin),
                                       width_of(r, &a->links, bin));
}

/* ---- Links ------------------------------------------------------------------------------- */

enum { MAX_BINS = 256 };

/* Sums over a set of links: the mean and the maximum of their utilization in each bin. */
typedef struct link_sum {
    uint64_t count;
    double mean[MAX_BINS], max[MAX_BINS];
} link_sum;

static void add_link(const run_report *r, uint32_t link, link_sum *sum)
{
    double shares[MAX_BINS];
    link_shares(r, link, shares);
    sum->count++;
    for (size_t bin = 0; bin < r->bins; bin++) {
        sum->mean[bin] += shares[bin];
        sum->max[bin] = shares[bin] > sum->max[bin] ? shares[bin] : sum->max[bin];
    }
}

static json_t *kind_json(const run_report *r, const link_class *class, link_sum *sum)
{
    for (size_t bin = 0; bin < r->bins; bin++)
        sum->mean[bin] /= (double)sum->count;
    kb_text name = KB_TEXT_INIT;
    link_class_name(class, &name);
    json_t *kind = json_object();
    cli_json_set(&kind, "name", json_string(cli_text(&name)));
    cli_json_set(&kind, "gbs", cli_json_rate(class->rate));
    cli_json_set(&kind, "active", json_integer((json_int_t)sum->count));
    cli_json_set(&kind, "mean", share_text(sum->mean, r->bins));
    cli_json_set(&kind, "max", share_text(sum->max, r->bins));
    kb_text_fini(&name);
    return kind;
}

/* Of the kinds of links that carried something. */
static json_t *kinds_json(const run_report *r, const link_classes *classes)
{
    const obs_activity *a = r->activity;
    link_sum *sums = kb_alloc_zeroed(classes->all.count, sizeof *sums);
    json_t *kinds = sums ? json_array() : NULL;
    for (uint32_t i = 0; sums && i < a->links.rows; i++)
        if (a->totals[i] > 0)
            add_link(r, i, &sums[link_classes_index(classes, a->machine, i)]);
    for (size_t i = 0; sums && i < classes->all.count; i++)
        cli_json_append(&kinds, sums[i].count > 0 ? kind_json(r, &classes->all.items[i], &sums[i])
                                                  : json_null());
    free(sums);
    return kinds;
}

/* What is drawn of a cube: the busiest of its memory's links and of those of its network. */
typedef struct cube_sum {
    link_sum hbm, noc;
} cube_sum;

static bool is_in_cube(const topo_node *node)
{
    return node->kind >= TOPO_ROUTER;
}

static json_t *cubes_json(const run_report *r)
{
    const obs_activity *a = r->activity;
    const topo_graph *graph = topo_machine_graph(a->machine);
    size_t count = (size_t)a->shape->sips * a->shape->cubes;
    cube_sum *sums = kb_alloc_zeroed(count, sizeof *sums);
    json_t *cubes = sums ? json_array() : NULL;
    for (uint32_t i = 0; sums && i < a->links.rows; i++) {
        const topo_node *from = &graph->nodes.items[graph->links.items[i].from];
        const topo_node *to = &graph->nodes.items[graph->links.items[i].to];
        if (a->totals[i] == 0 || !is_in_cube(from) || !is_in_cube(to) ||
            (from->kind == TOPO_UCIE && to->kind == TOPO_UCIE))
            continue;
        cube_sum *sum = &sums[(size_t)from->sip * a->shape->cubes + from->cube];
        bool of_memory = from->kind == TOPO_HBM_CTRL || to->kind == TOPO_HBM_CTRL;
        add_link(r, i, of_memory ? &sum->hbm : &sum->noc);
    }
    for (size_t i = 0; sums && i < count; i++)
        cli_json_append(&cubes, json_pack("[o, o]", share_text(sums[i].hbm.max, r->bins),
                                          share_text(sums[i].noc.max, r->bins)));
    free(sums);
    return cubes;
}

static json_t *node_json(const topo_node *node)
{
    return json_pack("[s, i, i, i]", topo_kind_name((topo_kind)node->kind), (int)node->sip,
                     (int)node->cube, (int)node->index);
}

static json_t *link_json(const run_report *r, const link_classes *classes, uint32_t link)
{
    const obs_activity *a = r->activity;
    const topo_graph *graph = topo_machine_graph(a->machine);
    double shares[MAX_BINS];
    link_shares(r, link, shares);
    return json_pack("[o, I, o, o, o, I, o, o]", cli_json_link(a->machine, link),
                     (json_int_t)link_classes_index(classes, a->machine, link),
                     node_json(&graph->nodes.items[graph->links.items[link].from]),
                     node_json(&graph->nodes.items[graph->links.items[link].to]),
                     cli_json_rate(topo_link_rate(graph, link)), (json_int_t)a->totals[link],
                     cli_json_ns(net_link_get(r->fabric, link).waited_fs),
                     share_text(shares, r->bins));
}

/* A link and how long its bytes occupy it. */
typedef struct busy_link {
    uint32_t link;
    bool drawn; /* between dies: the drawing has it */
    kb_time busy;
} busy_link;

static int compare_busy(const void *a, const void *b)
{
    const busy_link *x = a, *y = b;
    if (x->drawn != y->drawn)
        return y->drawn - x->drawn;
    if (x->busy != y->busy)
        return x->busy < y->busy ? 1 : -1;
    return x->link < y->link ? -1 : x->link > y->link;
}

static bool is_drawn(const topo_graph *graph, uint32_t link)
{
    const topo_node *from = &graph->nodes.items[graph->links.items[link].from];
    const topo_node *to = &graph->nodes.items[graph->links.items[link].to];
    return !is_in_cube(from) || !is_in_cube(to) ||
           (from->kind == TOPO_UCIE && to->kind == TOPO_UCIE);
}

/* The links that the drawing has, and the busiest others. */
static json_t *links_json(const run_report *r, const link_classes *classes, size_t *active)
{
    const obs_activity *a = r->activity;
    const topo_graph *graph = topo_machine_graph(a->machine);
    busy_link *busy = kb_alloc_array(a->links.rows, sizeof *busy);
    json_t *links = busy ? json_array() : NULL;
    *active = 0;
    for (uint32_t i = 0; busy && i < a->links.rows; i++)
        if (a->totals[i] > 0)
            busy[(*active)++] = (busy_link){i, is_drawn(graph, i),
                                            topo_rate_time(topo_link_rate(graph, i), a->totals[i])};
    if (*active > 0)
        qsort(busy, *active, sizeof *busy, compare_busy);
    for (size_t i = 0; busy && i < *active && i < MAX_LINKS; i++)
        cli_json_append(&links, link_json(r, classes, busy[i].link));
    free(busy);
    return links;
}

/* ---- PEs --------------------------------------------------------------------------------- */

/* The share of each group of causes in the time of these PEs; null if none ran. */
static json_t *groups_json(const run_report *r, uint64_t first, uint64_t count)
{
    const obs_activity *a = r->activity;
    json_t *groups = json_array();
    bool any = false;
    for (int group = 0; group < ACTIVITY_GROUPS; group++) {
        double shares[MAX_BINS] = {0};
        for (uint64_t pe = first; pe < first + count; pe++) {
            size_t row = pe * ACTIVITY_GROUPS + (size_t)group;
            any = any || a->pes.amounts[row];
            for (size_t bin = 0; a->pes.amounts[row] && bin < r->bins; bin++)
                shares[bin] += (double)obs_spread_get(&a->pes, row, bin) /
                               (double)width_of(r, &a->pes, bin) / (double)count;
        }
        cli_json_append(&groups, share_text(shares, r->bins));
    }
    if (any)
        return groups;
    json_decref(groups);
    return json_null();
}

static json_t *pes_json(const run_report *r)
{
    const topo_shape *shape = r->activity->shape;
    uint64_t each = shape->pe_count > MAX_SHOWN_PES ? shape->pes : 1;
    json_t *pes = json_array();
    for (uint64_t pe = 0; pe < shape->pe_count; pe += each)
        cli_json_append(&pes, groups_json(r, pe, each));
    return pes;
}

/* ---- The timeline ------------------------------------------------------------------------ */

/* Picoseconds: all digits that are to be seen, in whole numbers. */
static json_int_t ps(kb_time time)
{
    return (json_int_t)(time / KB_PS);
}

/*
 * Six numbers a slice: start after the start of the slice before, duration, busy time, operations,
 * title and place (numbers of texts, 0: none).
 */
static json_t *slices_json(const timeline_lane *lane)
{
    json_t *numbers = json_array();
    kb_time before = 0;
    for (size_t i = 0; i < lane->slices.count; i++) {
        const timeline_slice *s = &lane->slices.items[i];
        const json_int_t row[] = {ps(s->start) - ps(before),
                                  ps(s->end) - ps(s->start),
                                  ps(s->busy),
                                  s->count,
                                  s->title,
                                  s->place};
        for (size_t k = 0; k < sizeof row / sizeof row[0]; k++)
            cli_json_append(&numbers, json_integer(row[k]));
        before = s->start;
    }
    return numbers;
}

/* [PE or -1 for the host, unit, slices] for each lane that has any. */
static json_t *lanes_json(const obs_activity *a)
{
    json_t *lanes = json_array();
    for (size_t i = 0; i < a->timeline.lane_count; i++) {
        const timeline_lane *lane = &a->timeline.lanes[i];
        json_int_t pe = i == 0 ? -1 : (json_int_t)((i - 1) / a->lanes_per_pe);
        json_int_t unit = i == 0 ? 0 : (json_int_t)((i - 1) % a->lanes_per_pe);
        if (lane->slices.count > 0)
            cli_json_append(&lanes, json_pack("[I, I, o]", pe, unit, slices_json(lane)));
    }
    return lanes;
}

static void set_text(void *self, uint32_t number, const char *text)
{
    json_t **texts = self;
    if (*texts && json_array_set_new(*texts, number, cli_json_text(text)) != 0) {
        json_decref(*texts);
        *texts = NULL;
    }
}

/* Texts by number; number 0 is none. */
static json_t *texts_json(const obs_activity *a)
{
    json_t *texts = json_array();
    for (size_t i = 0; i <= a->texts.count; i++)
        cli_json_append(&texts, json_string(""));
    obs_activity_each_text(a, set_text, (void *)&texts);
    return texts;
}

static json_t *units_json(void)
{
    json_t *units = json_array();
    for (int unit = 0; unit < ACTIVITY_UNITS; unit++)
        cli_json_append(&units, json_string(activity_unit_name((activity_unit)unit)));
    return units;
}

/* What each cause of a state counts as: the name of its group, by the cause's name. */
static json_t *cause_groups_json(void)
{
    static const char *const groups[ACTIVITY_GROUPS] = {
        [ACTIVITY_COMPUTE] = "compute",
        [ACTIVITY_MEMORY] = "memory",
        [ACTIVITY_COMMUNICATION] = "communication",
        [ACTIVITY_IDLE] = "idle",
    };
    json_t *causes = json_object();
    for (int c = 0; c < KB_CAUSES; c++)
        cli_json_set(&causes, kb_cause_name((kb_cause)c),
                     json_string(groups[obs_activity_group((kb_cause)c)]));
    return causes;
}

/* ---- Kernels and waits ------------------------------------------------------------------- */

static json_t *kernels_json(const obs_activity *a)
{
    json_t *kernels = json_array();
    for (size_t i = 0; i < a->kernels.count; i++) {
        const activity_kernel *k = &a->kernels.items[i];
        cli_json_append(&kernels, json_pack("[I, I, o, o, o]", (json_int_t)k->title,
                                            (json_int_t)k->runs, cli_json_ns(k->time),
                                            cli_json_count(k->flops), cli_json_count(k->bytes)));
    }
    return kernels;
}

static json_t *waits_json(const obs_activity *a)
{
    json_t *waits = json_array();
    for (size_t i = 0; i < a->waits.count; i++) {
        const activity_wait *w = &a->waits.items[i];
        if (w->count > 0)
            cli_json_append(&waits,
                            json_pack("[I, I, o, o, s]", (json_int_t)w->title, (json_int_t)w->count,
                                      cli_json_ns(w->time), cli_json_ns(w->longest),
                                      topo_pe_name(topo_pe_at(a->shape, w->longest_pe)).text));
    }
    return waits;
}

/* ---- All of it --------------------------------------------------------------------------- */

static json_t *machine_json(const topo_machine *machine)
{
    const topo_shape *s = topo_machine_shape(machine);
    return json_pack("{s:o, s:I, s:s, s:I, s:I, s:b, s:I, s:I, s:I, s:I, s:I, s:I}", "name",
                     cli_json_text(topo_machine_name(machine)), "sips", (json_int_t)s->sips,
                     "sip_pattern", topo_sip_pattern_name(s->sip_pattern), "sip_w",
                     (json_int_t)s->sip_w, "sip_h", (json_int_t)s->sip_h, "sip_links", s->sip_links,
                     "cube_w", (json_int_t)s->cube_w, "cube_h", (json_int_t)s->cube_h, "cubes",
                     (json_int_t)s->cubes, "pes", (json_int_t)s->pes, "noc_w", (json_int_t)s->noc_w,
                     "noc_h", (json_int_t)s->noc_h);
}

static json_t *activity_json(const run_report *r, const link_classes *classes)
{
    const obs_activity *a = r->activity;
    size_t active;
    json_t *object = json_object();
    cli_json_set(&object, "end_ns", cli_json_ns(r->end));
    cli_json_set(&object, "bin_ns", cli_json_ns(a->links.width));
    cli_json_set(&object, "bins", json_integer((json_int_t)r->bins));
    cli_json_set(&object, "kinds", kinds_json(r, classes));
    cli_json_set(&object, "links", links_json(r, classes, &active));
    cli_json_set(&object, "active_links", json_integer((json_int_t)active));
    cli_json_set(&object, "cubes", cubes_json(r));
    cli_json_set(&object, "pes", pes_json(r));
    cli_json_set(&object, "texts", texts_json(a));
    cli_json_set(&object, "units", units_json());
    cli_json_set(&object, "cause_groups", cause_groups_json());
    cli_json_set(&object, "lanes", lanes_json(a));
    cli_json_set(&object, "lanes_of_pes", json_integer((json_int_t)a->shown_pes));
    cli_json_set(&object, "resolution_ns", cli_json_ns(a->timeline.resolution));
    cli_json_set(&object, "ops", json_integer((json_int_t)a->ops));
    cli_json_set(&object, "kernels", kernels_json(a));
    cli_json_set(&object, "waits", waits_json(a));
    return object;
}

/* One width for all bins, of which the run uses some. */
static void align(run_report *r)
{
    obs_activity *a = r->activity;
    widen(&a->links, a->pes.width);
    widen(&a->pes, a->links.width);
    r->end = a->end;
    r->bins = obs_spread_used(&a->links, r->end);
}

/* [key, label, group] of all causes. */
static json_t *causes_json(void)
{
    static const char *const groups[RUN_GROUPS] = {
        [RUN_COMPUTE] = "compute",
        [RUN_MEMORY] = "memory",
        [RUN_COMMUNICATION] = "communication",
        [RUN_IDLE] = "idle",
    };
    json_t *causes = json_array();
    for (int c = 0; c < RUN_CAUSES; c++)
        cli_json_append(&causes, json_pack("[s, s, s]", run_cause_key(c), run_cause_label(c),
                                           groups[run_group_of(c)]));
    return causes;
}

json_t *run_report_begin(const json_t *document, const char *command)
{
    const char *bench = json_string_value(json_object_get(document, "bench"));
    const json_t *machine = json_object_get(document, "topology");
    const char *name = json_string_value(json_object_get(machine, "name"));
    kb_text title = KB_TEXT_INIT;
    kb_text_printf(&title, "%s on %s", bench ? bench : "", name ? name : "");
    json_t *data = report_begin("run", cli_text(&title), command, document);
    kb_text_fini(&title);
    cli_json_set(&data, "causes", causes_json());
    return data;
}

static kb_error *write_page(run_report *r, const char *path, const run_outcome *outcome,
                            const char *command)
{
    const topo_machine *machine = r->activity->machine;
    link_classes classes;
    json_t *critical;
    KB_TRY(obs_activity_finish(r->activity));
    align(r);
    KB_TRY(link_classes_init(&classes, machine));
    kb_error *err = run_path_json(r->path, outcome, MAX_STEPS, &critical);
    if (err) {
        link_classes_fini(&classes);
        return err;
    }
    json_t *document = run_document(outcome->view);
    json_t *data = run_report_begin(document, command);
    json_decref(document);
    cli_json_set(&data, "critical_path", critical);
    cli_json_set(&data, "machine", machine_json(machine));
    cli_json_set(&data, "activity", activity_json(r, &classes));
    link_classes_fini(&classes);
    return report_write_page(path, data);
}

kb_error *run_report_close(run_report *report, const char *path, const run_outcome *outcome,
                           const char *command)
{
    kb_error *err = outcome->view ? write_page(report, path, outcome, command) : kb_error_nomem();
    run_report_discard(report);
    return err;
}
