/*
 * run_links.c: statistics of the links of a run, individually and by kind.
 *
 * Means by kind are over active links: those that carried something, and those between active
 * devices. A cube is active if one of its PEs ran a kernel or one of its memories served a request;
 * an IO chiplet if a cube of its SIP is; the host and the switch always are.
 */
#include "run.h"

#include <stdlib.h>

/* ---- Active devices ---------------------------------------------------------------------- */

typedef struct devices {
    const topo_machine *machine;
    const topo_shape *shape;
    bool *cubes; /* by sip * cubes + cube */
    bool *sips;
} devices;

static void mark_cube(const devices *d, uint32_t sip, uint32_t cube)
{
    d->cubes[topo_cube_index(d->shape, (kb_pe){.sip = sip, .cube = cube})] = true;
    d->sips[sip] = true;
}

static void find_active(const devices *d, net *fabric, kb_oplog *log)
{
    const topo_graph *graph = topo_machine_graph(d->machine);
    for (uint64_t pe = 0; pe < d->shape->pe_count; pe++) {
        uint64_t cube = pe / d->shape->pes;
        if (kb_oplog_busy(log, pe, KB_UNIT_CPU) > 0)
            mark_cube(d, (uint32_t)(cube / d->shape->cubes), (uint32_t)(cube % d->shape->cubes));
    }
    for (uint32_t i = 0; i < graph->nodes.count; i++) {
        const topo_node *node = &graph->nodes.items[i];
        if (node->service != TOPO_NONE && net_link_get(fabric, node->service).bytes > 0)
            mark_cube(d, node->sip, node->cube);
    }
}

static bool is_active(const devices *d, uint32_t number)
{
    const topo_node *node = &topo_machine_graph(d->machine)->nodes.items[number];
    if (node->kind == TOPO_HOST || node->kind == TOPO_SWITCH)
        return true;
    if (node->kind < TOPO_ROUTER)
        return d->sips[node->sip];
    return d->cubes[topo_cube_index(d->shape, (kb_pe){.sip = node->sip, .cube = node->cube})];
}

/* ---- Order ------------------------------------------------------------------------------- */

/* Descending utilization, then by kind, then descending waiting time. */
static int compare_links(const void *a, const void *b)
{
    const run_link *x = a, *y = b;
    if (x->busy != y->busy)
        return x->busy < y->busy ? 1 : -1;
    if (x->kind != y->kind)
        return x->kind > y->kind ? 1 : -1;
    if (x->waited != y->waited)
        return x->waited < y->waited ? 1 : -1;
    return (x->link > y->link) - (x->link < y->link);
}

static void rank_links(run_stats *s)
{
    run_link *links = s->links.items;
    size_t kept = 0;
    if (s->links.count > 0)
        qsort(links, s->links.count, sizeof links[0], compare_links);
    for (size_t i = 0; i < s->links.count; i++) {
        if (kept > 0 && links[kept - 1].kind == links[i].kind &&
            links[kept - 1].bytes == links[i].bytes)
            links[kept - 1].alike++;
        else
            links[kept++] = links[i];
    }
    s->links.count = kept;
}

/* Descending utilization of the busiest link; ties: order of kinds. */
static int compare_kinds(const void *a, const void *b)
{
    const run_kind *x = a, *y = b;
    if (x->max < y->max || x->max > y->max)
        return x->max < y->max ? 1 : -1;
    return (x->kind > y->kind) - (x->kind < y->kind);
}

/* Turns sums into means, and removes kinds that carried nothing. */
static void finish_kinds(run_stats *s)
{
    size_t used = 0;
    for (size_t i = 0; i < s->kinds.count; i++) {
        run_kind kind = s->kinds.items[i];
        if (kind.bytes == 0)
            continue;
        kind.mean /= (double)kind.active;
        kind.queue /= (double)kind.active;
        s->kinds.items[used++] = kind;
    }
    s->kinds.count = used;
    if (used > 0)
        qsort(s->kinds.items, used, sizeof s->kinds.items[0], compare_kinds);
}

/* ---- Collecting -------------------------------------------------------------------------- */

static void add_to_kind(run_kind *kind, const run_link *link)
{
    kind->bytes += link->bytes;
    kind->mean += link->utilization;
    kind->max = link->utilization > kind->max ? link->utilization : kind->max;
    kind->waited += link->waited;
    kind->queue += link->queue;
}

static kb_error *add_link(run_stats *s, net *fabric, const devices *d, uint32_t number)
{
    const topo_graph *graph = topo_machine_graph(s->machine);
    const topo_link *link = &graph->links.items[number];
    net_link_stats carried = net_link_get(fabric, number);
    if (carried.bytes == 0 && !(is_active(d, link->from) && is_active(d, link->to)))
        return NULL;
    size_t kind = link_classes_index(&s->classes, s->machine, number);
    s->kinds.items[kind].active++;
    if (carried.bytes == 0)
        return NULL;
    kb_time busy = topo_rate_time(topo_link_rate(graph, number), carried.bytes);
    run_link fresh = {
        .link = number,
        .kind = kind,
        .bytes = carried.bytes,
        .busy = busy,
        .utilization = run_share(busy, s->sim),
        .waited = carried.waited_fs,
        .queue = run_share(carried.waited_fs, s->sim),
    };
    add_to_kind(&s->kinds.items[kind], &fresh);
    return kb_vec_push(&s->links, fresh) ? NULL : kb_error_nomem();
}

static kb_error *collect(run_stats *s, net *fabric, kb_oplog *log, const devices *d)
{
    if (!d->cubes || !d->sips)
        return kb_error_nomem();
    find_active(d, fabric, log);
    KB_TRY(link_classes_init(&s->classes, s->machine));
    for (size_t i = 0; i < s->classes.all.count; i++)
        if (!kb_vec_push(&s->kinds, ((run_kind){.kind = &s->classes.all.items[i]})))
            return kb_error_nomem();
    for (uint32_t i = 0; i < topo_machine_graph(s->machine)->links.count; i++)
        KB_TRY(add_link(s, fabric, d, i));
    rank_links(s);
    finish_kinds(s);
    return NULL;
}

kb_error *run_collect_links(run_stats *s, net *fabric, kb_oplog *log)
{
    const topo_shape *shape = topo_machine_shape(s->machine);
    devices d = {
        .machine = s->machine,
        .shape = shape,
        .cubes = kb_alloc_zeroed((size_t)shape->sips * shape->cubes, sizeof(bool)),
        .sips = kb_alloc_zeroed(shape->sips, sizeof(bool)),
    };
    kb_error *err = collect(s, fabric, log, &d);
    free(d.cubes);
    free(d.sips);
    return err;
}

/* ---- Sets of links ----------------------------------------------------------------------- */

/* The service of a memory, or a link that only the PEs of its cube use to reach it. */
static bool is_local(const link_class *c)
{
    if (c->service)
        return true;
    topo_kind other = c->a == TOPO_XBAR ? c->b : c->a;
    return (c->a == TOPO_XBAR || c->b == TOPO_XBAR) && other != TOPO_ROUTER;
}

static bool is_of_io(topo_kind kind)
{
    return kind < TOPO_ROUTER;
}

static bool is_in_set(const link_class *c, run_link_set set)
{
    switch (set) {
    case RUN_LOCAL_MEMORY:
        return is_local(c);
    case RUN_IN_SIP:
        return !is_local(c) && !is_of_io(c->a) && !is_of_io(c->b);
    case RUN_FABRIC:
        return !is_local(c) && c->a != TOPO_HOST && c->b != TOPO_HOST;
    default:
        return true;
    }
}

run_link_set run_remote_links(const run_stats *s)
{
    return s->timeline.bytes[KB_CAUSE_OTHER_SIPS] > 0 ? RUN_FABRIC : RUN_IN_SIP;
}

const run_link *run_find_busiest(const run_stats *s, run_link_set set)
{
    for (size_t i = 0; i < s->links.count; i++)
        if (is_in_set(&s->classes.all.items[s->links.items[i].kind], set))
            return &s->links.items[i];
    return NULL;
}
