/*
 * findings.c: what a path says in one sentence: what most of its time goes to, and what stands out:
 * one PE with more work than the others, one memory with more bytes, senders without free slots.
 */
#include "path_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *key;
} categories[EXPLAIN_CATEGORIES] = {
    [EXPLAIN_IN_MATRIX] = {"matrix engine", "matrix"},
    [EXPLAIN_IN_DRAINS] = {"results leaving the matrix engine", "matrix_drain"},
    [EXPLAIN_IN_VECTOR] = {"vector engine", "vector"},
    [EXPLAIN_IN_TCM] = {"TCM ports", "tcm"},
    [EXPLAIN_IN_LOCAL_MEMORY] = {"transfers with memory of the own cube", "local_memory"},
    [EXPLAIN_IN_CUBE_PES] = {"transfers with other PEs of the cube", "cube_pes"},
    [EXPLAIN_IN_OTHER_CUBES] = {"transfers with other cubes", "other_cubes"},
    [EXPLAIN_IN_OTHER_SIPS] = {"transfers with other SIPs", "other_sips"},
    [EXPLAIN_IN_MESSAGES] = {"messages between PEs", "message"},
    [EXPLAIN_IN_CREDITS] = {"credits on their way back", "credit"},
    [EXPLAIN_IN_LAUNCHES] = {"launches and their completions", "launch"},
    [EXPLAIN_IN_REQUESTS] = {"requests of the host: copies, mappings, queues", "request"},
    [EXPLAIN_IN_ISSUES] = {"issuing commands", "issue"},
    [EXPLAIN_IN_PROGRAM] = {"the host program, or nothing under way", "program"},
    [EXPLAIN_IN_NEVER] = {"waiting for what never comes", "never"},
};

const char *explain_category_name(explain_category category)
{
    return categories[category].name;
}

const char *explain_category_key(explain_category category)
{
    return categories[category].key;
}

/* ---- Categories -------------------------------------------------------------------------- */

static explain_category category_of_transfer(const explain_path *path, const explain_record *record)
{
    const topo_shape *shape = topo_machine_shape(path->machine);
    const topo_node *there = &topo_machine_graph(path->machine)->nodes.items[record->node];
    kb_pe pe = topo_pe_at(shape, record->at);
    if (there->sip != pe.sip)
        return EXPLAIN_IN_OTHER_SIPS;
    if (there->cube != pe.cube)
        return EXPLAIN_IN_OTHER_CUBES;
    return there->kind == TOPO_PE_DMA ? EXPLAIN_IN_CUBE_PES : EXPLAIN_IN_LOCAL_MEMORY;
}

static bool is_named(const explain_site *site, const char *name)
{
    return strcmp(site->name, name) == 0;
}

explain_category explain_category_of(const explain_path *path, const explain_step *step,
                                     const explain_part *part)
{
    const explain_record *record = explain_record_at(path->recorder, step->id);
    if (step->kind == EXPLAIN_STUCK)
        return EXPLAIN_IN_NEVER;
    if (!record || step->kind == EXPLAIN_HOST || step->kind == EXPLAIN_KERNEL)
        return EXPLAIN_IN_PROGRAM;
    if (step->kind == EXPLAIN_START)
        return EXPLAIN_IN_LAUNCHES;
    if (step->kind == EXPLAIN_POLL)
        return EXPLAIN_IN_ISSUES;
    const explain_site *site = &path->recorder->sites.items[record->site];
    if (site->is_control)
        return step->is_request ? EXPLAIN_IN_REQUESTS : EXPLAIN_IN_LAUNCHES;
    if (part->resource == EXPLAIN_TCM)
        return EXPLAIN_IN_TCM;
    switch (site->unit) {
    case KB_UNIT_GEMM:
        return part->aspect == EXPLAIN_DRAIN ? EXPLAIN_IN_DRAINS : EXPLAIN_IN_MATRIX;
    case KB_UNIT_MATH:
        return EXPLAIN_IN_VECTOR;
    case KB_UNIT_DMA_READ:
    case KB_UNIT_DMA_WRITE:
        return is_named(site, "send") || is_named(site, "recv")
                   ? EXPLAIN_IN_MESSAGES
                   : category_of_transfer(path, record);
    case KB_UNIT_IPCQ: /* a receive takes time of its own only if no message came */
        return is_named(site, "recv") ? EXPLAIN_IN_NEVER : EXPLAIN_IN_CREDITS;
    default:
        return EXPLAIN_IN_ISSUES;
    }
}

/* ---- Sums over the path ------------------------------------------------------------------ */

typedef struct sums {
    kb_time_sum (*links)[EXPLAIN_CATEGORIES]; /* by link: bandwidth and queueing */
    kb_time_sum (*nodes)[EXPLAIN_CATEGORIES]; /* by the memory or receiver of a transfer */
    kb_time_sum *pes;                         /* the path's time there */
    kb_time_sum *far_pes;                     /* of it: in transfers that are far */
    double *work;                             /* of all operations of the PE, as if all were near */
    double *far;                              /* of it: of transfers that are far */
    double *bytes;                            /* by node, of all transfers */
    bool *runs;                               /* the PE has a kernel */
    double *sorted;
    kb_time access;     /* of the nearest memory: what each transfer takes, were it not far */
    double memory_rate; /* of that memory */
} sums;

static void fini_sums(sums *s)
{
    free(s->links);
    free(s->nodes);
    free(s->pes);
    free(s->far_pes);
    free(s->work);
    free(s->far);
    free(s->bytes);
    free(s->runs);
    free(s->sorted);
}

static bool init_sums(sums *s, const topo_machine *machine)
{
    const topo_graph *graph = topo_machine_graph(machine);
    size_t pes = topo_machine_shape(machine)->pe_count;
    const topo_node *memory = &graph->nodes.items[topo_node_at(machine, TOPO_HBM_CTRL, 0, 0, 0)];
    *s = (sums){
        .links = kb_alloc_zeroed(graph->links.count, sizeof *s->links),
        .nodes = kb_alloc_zeroed(graph->nodes.count, sizeof *s->nodes),
        .pes = kb_alloc_zeroed(pes, sizeof *s->pes),
        .far_pes = kb_alloc_zeroed(pes, sizeof *s->far_pes),
        .work = kb_alloc_zeroed(pes, sizeof *s->work),
        .far = kb_alloc_zeroed(pes, sizeof *s->far),
        .bytes = kb_alloc_zeroed(graph->nodes.count, sizeof *s->bytes),
        .runs = kb_alloc_zeroed(pes, sizeof *s->runs),
        .sorted = kb_alloc_array(pes, sizeof *s->sorted),
        .access = memory->overhead_fs,
        .memory_rate = (double)topo_link_rate(graph, memory->service),
    };
    return s->links && s->nodes && s->pes && s->far_pes && s->work && s->far && s->bytes &&
           s->runs && s->sorted;
}

/* Neither with memory of the PE's cube nor with its own TCM. */
static bool is_far(const explain_path *path, const explain_record *record)
{
    const topo_node *there = &topo_machine_graph(path->machine)->nodes.items[record->node];
    kb_pe pe = topo_pe_at(topo_machine_shape(path->machine), record->at);
    return there->sip != pe.sip || there->cube != pe.cube || there->kind == TOPO_PE_DMA;
}

static void add_parts(const explain_path *path, size_t i, sums *s, explain_findings *f)
{
    const explain_step *step = &path->steps.items[i];
    const explain_record *record = explain_record_at(path->recorder, step->id);
    for (uint32_t p = path->first_part.items[i]; p < path->first_part.items[i + 1]; p++) {
        const explain_part *part = &path->parts.items[p];
        explain_category category = explain_category_of(path, step, part);
        f->shares[category].time += part->time;
        f->shares[category].aspects[part->aspect] += part->time;
        if (part->link != TOPO_NONE)
            s->links[part->link][category] += part->time;
        if (record && record->node != TOPO_NONE)
            s->nodes[record->node][category] += part->time;
    }
    if (!record || path->recorder->sites.items[record->site].is_control)
        return;
    s->pes[record->at] += step->to - step->from;
    if (record->node != TOPO_NONE && step->kind == EXPLAIN_OWN && is_far(path, record))
        s->far_pes[record->at] += step->to - step->from;
}

static void find_places(const explain_path *path, const sums *s, explain_findings *f)
{
    const topo_graph *graph = topo_machine_graph(path->machine);
    for (int c = 0; c < EXPLAIN_CATEGORIES; c++) {
        explain_share *share = &f->shares[c];
        share->link = share->node = TOPO_NONE;
        for (uint32_t at = 0; at < graph->links.count; at++)
            if (s->links[at][c] > share->link_time) {
                share->link = at;
                share->link_time = s->links[at][c];
            }
        for (uint32_t node = 0; node < graph->nodes.count; node++)
            if (s->nodes[node][c] > share->node_time) {
                share->node = node;
                share->node_time = s->nodes[node][c];
            }
        if (share->time > f->shares[f->largest].time)
            f->largest = (explain_category)c;
    }
}

/* ---- All operations ---------------------------------------------------------------------- */

static bool is_work(const explain_site *site)
{
    return site->unit == KB_UNIT_GEMM || site->unit == KB_UNIT_MATH ||
           site->unit == KB_UNIT_DMA_READ || site->unit == KB_UNIT_DMA_WRITE ||
           (site->unit == KB_UNIT_CPU && is_named(site, "issue"));
}

/* The work is that of the same bytes in the nearest memory. */
static void add_transfer(const explain_path *path, const explain_record *record, sums *s,
                         explain_route *route, bool works)
{
    const topo_graph *graph = topo_machine_graph(path->machine);
    double near = (double)record->bandwidth;
    explain_find_route(path->recorder, record, route);
    if (route->slowest != TOPO_NONE) {
        double bytes = near * (double)topo_link_rate(graph, route->slowest);
        near = fmin(near, bytes / s->memory_rate);
        if (graph->nodes.items[record->node].service != TOPO_NONE)
            s->bytes[record->node] += bytes;
    }
    near += (double)s->access;
    s->work[record->at] += works ? near : 0;
    s->far[record->at] += works && is_far(path, record) ? near : 0;
}

static void add_record(const explain_path *path, const explain_record *record, sums *s,
                       explain_route *route)
{
    const explain_site *site = &path->recorder->sites.items[record->site];
    if (!record->known || site->is_control || site->unit == KB_UNIT_HOST)
        return;
    if (site->unit == KB_UNIT_CPU && is_named(site, "kernel"))
        s->runs[record->at] = true;
    if (record->node != TOPO_NONE)
        add_transfer(path, record, s, route, is_work(site));
    else if (is_work(site))
        s->work[record->at] += (double)(record->end - record->start);
}

static kb_error *add_records(const explain_path *path, sums *s)
{
    const explain_recorder *r = path->recorder;
    explain_route route = {
        .steps = kb_alloc_array(2 * (size_t)topo_machine_shape(path->machine)->max_steps,
                                sizeof(uint32_t))};
    if (!route.steps)
        return kb_error_nomem();
    for (size_t b = 0; b < r->blocks.count; b++)
        for (size_t i = 0; r->blocks.items[b] && i < BLOCK; i++)
            add_record(path, &r->blocks.items[b][i], s, &route);
    for (size_t i = 0; i < r->late_capacity; i++)
        if (r->late_ids[i] != EXPLAIN_NONE)
            add_record(path, &r->late[i], s, &route);
    free(route.steps);
    return NULL;
}

/* ---- What stands out --------------------------------------------------------------------- */

static const double is_most = 0.5;   /* of the path */
static const double is_uneven = 1.5; /* work of a PE, in units of the median */
static const double is_excess = 0.3; /* of the path: time that an even share of work would save */
static const double is_hot = 2.0;    /* bytes of a memory, in units of the mean */
static const double takes_part = 50; /* a PE with less than this part of the most work does not */
static const size_t is_few = 4;      /* stragglers are at most this part of the PEs */
static const double is_part = 0.2;   /* of the path: worth a look */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The lower median of those that take part. */
static double median_of(sums *s, const double *of, uint64_t pes, double most_work, size_t *count)
{
    *count = 0;
    for (uint64_t pe = 0; pe < pes; pe++)
        if (s->work[pe] > 0 && s->work[pe] * takes_part >= most_work)
            s->sorted[(*count)++] = of[pe];
    if (*count == 0)
        return 0;
    qsort(s->sorted, *count, sizeof *s->sorted, compare_doubles);
    return s->sorted[(*count - 1) / 2];
}

/* Those with about as much work as the one with most. */
static size_t count_alike(const sums *s, uint64_t pes, double most_work)
{
    size_t alike = 0;
    for (uint64_t pe = 0; pe < pes; pe++)
        alike += s->work[pe] * is_uneven > most_work;
    return alike;
}

/*
 * Time in far transfers counts only if the others have such too: else the PE is late because of the
 * way, and others would be as late with its work.
 */
static void find_straggler(const explain_path *path, sums *s, explain_findings *f)
{
    uint64_t pes = topo_machine_shape(path->machine)->pe_count, best = 0;
    for (uint64_t pe = 0; pe < pes; pe++)
        best = s->pes[pe] > s->pes[best] ? pe : best;
    size_t running;
    double work = s->work[best], median = median_of(s, s->work, pes, work, &running);
    if (running < 2 || (double)s->pes[best] < is_most * (double)path->end)
        return;
    f->straggler = best;
    f->straggler_time = s->pes[best];
    f->straggler_work = work / median;
    double far = median_of(s, s->far, pes, work, &running) * f->straggler_work;
    bool is_far_alone = s->far[best] > 2 * far;
    double near = (double)(s->pes[best] - (is_far_alone ? s->far_pes[best] : 0));
    double excess = near * (1 - 1 / f->straggler_work);
    size_t alike = count_alike(s, pes, work);
    f->has_straggler = f->straggler_work >= is_uneven && excess >= is_excess * (double)path->end &&
                       (alike == 1 || alike * is_few <= running);
}

static void find_hot_memory(const explain_path *path, const sums *s, explain_findings *f)
{
    const topo_graph *graph = topo_machine_graph(path->machine);
    uint64_t pes = topo_machine_shape(path->machine)->pe_count, running = 0;
    double total = 0;
    kb_time_sum most = 0;
    for (uint64_t pe = 0; pe < pes; pe++)
        running += s->work[pe] > 0;
    for (uint32_t node = 0; node < graph->nodes.count; node++) {
        total += s->bytes[node];
        uint32_t service = graph->nodes.items[node].service;
        kb_time_sum there = 0;
        for (int c = 0; c < EXPLAIN_CATEGORIES && service != TOPO_NONE; c++)
            there += s->links[service][c];
        if (there > most) {
            most = there;
            f->hot_node = node;
        }
    }
    if (most < (kb_time_sum)(is_part * (double)path->end) || total <= 0)
        return;
    f->hot_share = s->bytes[f->hot_node] * (double)running / total;
    f->has_hot_memory = f->hot_share >= is_hot;
}

/* What more slots would overlap: messages on their way, credits, and issuing the next one. */
static kb_time loop_time(const explain_path *path, size_t i)
{
    kb_time time = 0;
    for (uint32_t p = path->first_part.items[i]; p < path->first_part.items[i + 1]; p++) {
        const explain_part *part = &path->parts.items[p];
        explain_category c = explain_category_of(path, &path->steps.items[i], part);
        if (c == EXPLAIN_IN_CREDITS || c == EXPLAIN_IN_ISSUES ||
            (c == EXPLAIN_IN_MESSAGES && part->aspect == EXPLAIN_LATENCY))
            time += part->time;
    }
    return time;
}

/*
 * From one credit that the path waited for to the next it goes round a loop: a message, its
 * receive, the credit. If the receiver did other work in between, that is no time that slots would
 * save.
 */
static kb_error *find_stalls(const explain_path *path, explain_findings *f)
{
    const explain_recorder *r = path->recorder;
    uint64_t pes = topo_machine_shape(path->machine)->pe_count;
    kb_time_sum *by_pe = kb_alloc_zeroed(pes, sizeof *by_pe);
    if (!by_pe)
        return kb_error_nomem();
    kb_time_sum loop = 0;
    for (size_t i = 0; i < path->steps.count; i++) {
        const explain_record *record = explain_record_at(r, path->steps.items[i].id);
        loop += loop_time(path, i);
        if (path->steps.items[i].led_by != KB_REASON_CREDIT || !record)
            continue;
        loop = f->stalls == 0 ? path->steps.items[i].to - path->steps.items[i].from : loop;
        f->stalls++;
        f->stalled += loop;
        by_pe[record->at] += loop; /* the receiver, which sends the credit */
        if (by_pe[record->at] > by_pe[f->stalled_pe])
            f->stalled_pe = record->at;
        loop = 0;
    }
    free(by_pe);
    return NULL;
}

kb_error *explain_find(const explain_path *path, explain_findings *f)
{
    *f = (explain_findings){.hot_node = TOPO_NONE};
    sums s;
    if (!init_sums(&s, path->machine)) {
        fini_sums(&s);
        return kb_error_nomem();
    }
    for (size_t i = 0; i < path->steps.count; i++)
        add_parts(path, i, &s, f);
    kb_error *err = add_records(path, &s);
    for (uint64_t pe = 0; pe < topo_machine_shape(path->machine)->pe_count; pe++) {
        f->pes += s.runs[pe];
        f->working_pes += s.work[pe] > 0;
    }
    if (!err)
        err = find_stalls(path, f);
    if (!err) {
        find_places(path, &s, f);
        find_straggler(path, &s, f);
        find_hot_memory(path, &s, f);
    }
    fini_sums(&s);
    return err;
}

/* ---- Estimates --------------------------------------------------------------------------- */

/* Where the step's transfer waits; EXPLAIN_PROGRAM: nowhere. */
static explain_resource queue_of(const explain_path *path, const explain_step *step)
{
    size_t i = (size_t)(step - path->steps.items);
    for (uint32_t p = path->first_part.items[i]; p < path->first_part.items[i + 1]; p++)
        if (path->parts.items[p].aspect == EXPLAIN_QUEUEING)
            return path->parts.items[p].resource;
    return EXPLAIN_PROGRAM;
}

static bool is_issue(const explain_path *path, const explain_step *step,
                     const explain_record *record)
{
    return step->kind == EXPLAIN_OWN && record &&
           is_named(&path->recorder->sites.items[record->site], "issue");
}

/*
 * What a part would save. Of a bandwidth only down to the next slower link of another resource. If
 * the transfer waits behind others, what it saves elsewhere it would wait longer in the queue.
 */
static kb_time saving_of(const explain_path *path, const explain_step *step,
                         const explain_part *part, explain_factor f, explain_route *route)
{
    double keeps = (double)f.denominator / (double)f.numerator;
    const explain_record *record = explain_record_at(path->recorder, step->id);
    bool is_moving = part->aspect == EXPLAIN_BANDWIDTH || part->aspect == EXPLAIN_LATENCY;
    if (is_moving && record && record->node != TOPO_NONE && record->queueing > 0 &&
        queue_of(path, step) != part->resource)
        return 0;
    if (is_moving && record && record->ended == KB_REASON_TCM)
        return 0; /* a port of the TCM holds it up from its begin */
    if (part->resource == EXPLAIN_ISSUE && !is_issue(path, step, record))
        return 0; /* polling and the like */
    if (part->aspect == EXPLAIN_BANDWIDTH && part->link != TOPO_NONE) {
        const topo_graph *graph = topo_machine_graph(path->machine);
        double mine = (double)topo_link_rate(graph, part->link);
        explain_find_route(path->recorder, explain_record_at(path->recorder, step->id), route);
        for (uint32_t i = route->data; i < route->count; i++) {
            double rate = (double)topo_link_rate(graph, route->steps[i]);
            bool scales = explain_resource_of_link(graph, route->steps[i]) == part->resource;
            double then = scales ? mine / rate * keeps : mine / rate;
            keeps = !scales && then > keeps ? then : keeps;
        }
    }
    return (kb_time)((double)part->time * (1 - keeps));
}

kb_time explain_estimate(const explain_path *path, explain_resource resource, explain_factor factor)
{
    if (resource == EXPLAIN_CHANNELS || resource == EXPLAIN_QUEUE_DEPTH ||
        resource == EXPLAIN_SLOTS)
        return -1;
    explain_route route = {
        .steps = kb_alloc_array(2 * (size_t)topo_machine_shape(path->machine)->max_steps,
                                sizeof(uint32_t))};
    kb_time saved = 0;
    for (size_t i = 0; i < path->steps.count && route.steps; i++)
        for (uint32_t p = path->first_part.items[i]; p < path->first_part.items[i + 1]; p++)
            if (path->parts.items[p].resource == resource)
                saved +=
                    saving_of(path, &path->steps.items[i], &path->parts.items[p], factor, &route);
    free(route.steps);
    return saved;
}
