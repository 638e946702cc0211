/*
 * run_links.c: what the links of a run carried, one by one and by kind.
 *
 * A kind's mean is over links that take part: those that carried something, and those between
 * devices that work. A cube works if one of its PEs ran a kernel or one of its memories served
 * something; an IO chiplet if a cube of its SIP does; the host and the switch always do.
 */
#include "run.h"

#include <stdlib.h>

/* ---- Devices that work ------------------------------------------------------------------- */

typedef struct devices {
    const topo_machine *machine;
    const topo_shape *shape;
    bool *cubes; /* by sip * cubes + cube */
    bool *sips;
} devices;

static void note_cube(const devices *d, uint32_t sip, uint32_t cube)
{
    d->cubes[(size_t)sip * d->shape->cubes + cube] = true;
    d->sips[sip] = true;
}

static void find_workers(const devices *d, net *fabric, kb_oplog *log)
{
    const topo_graph *graph = topo_machine_graph(d->machine);
    for (uint64_t pe = 0; pe < d->shape->pe_count; pe++) {
        uint64_t cube = pe / d->shape->pes;
        if (kb_oplog_busy(log, pe, KB_UNIT_CPU) > 0)
            note_cube(d, (uint32_t)(cube / d->shape->cubes), (uint32_t)(cube % d->shape->cubes));
    }
    for (uint32_t i = 0; i < graph->nodes.count; i++) {
        const topo_node *node = &graph->nodes.items[i];
        if (node->service != TOPO_NONE && net_link_get(fabric, node->service).bytes > 0)
            note_cube(d, node->sip, node->cube);
    }
}

static bool is_at_work(const devices *d, uint32_t number)
{
    const topo_node *node = &topo_machine_graph(d->machine)->nodes.items[number];
    if (node->kind == TOPO_HOST || node->kind == TOPO_SWITCH)
        return true;
    if (node->kind < TOPO_ROUTER)
        return d->sips[node->sip];
    return d->cubes[(size_t)node->sip * d->shape->cubes + node->cube];
}

/* ---- Order ------------------------------------------------------------------------------- */

/* The busiest first, those that are alike together, of these the one that waited most first. */
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

static void rank_links(run_stats *f)
{
    run_link *links = f->links.items;
    size_t kept = 0;
    if (f->links.count > 0)
        qsort(links, f->links.count, sizeof links[0], compare_links);
    for (size_t i = 0; i < f->links.count; i++) {
        if (kept > 0 && links[kept - 1].kind == links[i].kind &&
            links[kept - 1].bytes == links[i].bytes)
            links[kept - 1].alike++;
        else
            links[kept++] = links[i];
    }
    f->links.count = kept;
}

/* The busiest link first; of equals the order of kinds. */
static int compare_kinds(const void *a, const void *b)
{
    const run_kind *x = a, *y = b;
    if (x->max < y->max || x->max > y->max)
        return x->max < y->max ? 1 : -1;
    return (x->kind > y->kind) - (x->kind < y->kind);
}

/* Their sums become means; those that carried nothing go. */
static void finish_kinds(run_stats *f)
{
    size_t used = 0;
    for (size_t i = 0; i < f->kinds.count; i++) {
        run_kind kind = f->kinds.items[i];
        if (kind.bytes == 0)
            continue;
        kind.mean /= (double)kind.active;
        kind.queue /= (double)kind.active;
        f->kinds.items[used++] = kind;
    }
    f->kinds.count = used;
    if (used > 0)
        qsort(f->kinds.items, used, sizeof f->kinds.items[0], compare_kinds);
}

/* ---- Gathering --------------------------------------------------------------------------- */

static void add_to_kind(run_kind *kind, const run_link *link)
{
    kind->bytes += link->bytes;
    kind->mean += link->utilization;
    kind->max = link->utilization > kind->max ? link->utilization : kind->max;
    kind->waited += link->waited;
    kind->queue += link->queue;
}

static kb_error *add_link(run_stats *f, net *fabric, const devices *d, uint32_t number)
{
    const topo_graph *graph = topo_machine_graph(f->machine);
    const topo_link *link = &graph->links.items[number];
    net_link_stats carried = net_link_get(fabric, number);
    if (carried.bytes == 0 && !(is_at_work(d, link->from) && is_at_work(d, link->to)))
        return NULL;
    size_t kind = link_classes_index(&f->classes, f->machine, number);
    f->kinds.items[kind].active++;
    if (carried.bytes == 0)
        return NULL;
    kb_time busy = topo_rate_time(topo_link_rate(graph, number), carried.bytes);
    run_link fresh = {
        .link = number,
        .kind = kind,
        .bytes = carried.bytes,
        .busy = busy,
        .utilization = run_share(busy, f->sim),
        .waited = carried.waited_fs,
        .queue = run_share(carried.waited_fs, f->sim),
    };
    add_to_kind(&f->kinds.items[kind], &fresh);
    return kb_vec_push(&f->links, fresh) ? NULL : kb_error_nomem();
}

static kb_error *gather(run_stats *f, net *fabric, kb_oplog *log, const devices *d)
{
    if (!d->cubes || !d->sips)
        return kb_error_nomem();
    find_workers(d, fabric, log);
    KB_TRY(link_classes_init(&f->classes, f->machine));
    for (size_t i = 0; i < f->classes.all.count; i++)
        if (!kb_vec_push(&f->kinds, ((run_kind){.kind = &f->classes.all.items[i]})))
            return kb_error_nomem();
    for (uint32_t i = 0; i < topo_machine_graph(f->machine)->links.count; i++)
        KB_TRY(add_link(f, fabric, d, i));
    rank_links(f);
    finish_kinds(f);
    return NULL;
}

kb_error *run_links_gather(run_stats *f, net *fabric, kb_oplog *log)
{
    const topo_shape *shape = topo_machine_shape(f->machine);
    devices d = {
        .machine = f->machine,
        .shape = shape,
        .cubes = kb_alloc_zeroed((size_t)shape->sips * shape->cubes, sizeof(bool)),
        .sips = kb_alloc_zeroed(shape->sips, sizeof(bool)),
    };
    kb_error *err = gather(f, fabric, log, &d);
    free(d.cubes);
    free(d.sips);
    return err;
}

/* ---- Which is on the way ----------------------------------------------------------------- */

/* A memory, or what only a cube's own PEs reach it by. */
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

static bool is_on_way(const link_class *c, run_way way)
{
    switch (way) {
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

run_way run_remote_way(const run_stats *f)
{
    return f->timeline.bytes[KB_CAUSE_OTHER_SIPS] > 0 ? RUN_FABRIC : RUN_IN_SIP;
}

const run_link *run_busiest(const run_stats *f, run_way way)
{
    for (size_t i = 0; i < f->links.count; i++)
        if (is_on_way(&f->classes.all.items[f->links.items[i].kind], way))
            return &f->links.items[i];
    return NULL;
}
