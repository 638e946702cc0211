/*
 * suite_fabric.c: how many hops a second the transport simulates, on machines of 256 to 65,536 PEs.
 *
 * dma: every PE keeps four reads of 4 KiB from slices of other cubes under way, anywhere in the
 * machine. uniform: every PE keeps four writes of one packet to any PE of its SIP under way. local:
 * every PE keeps four reads of 16 KiB from its own slice under way, which are uncontended. All go
 * on for ever; runs are bounded by simulated time, and the time of a slice is divided by the hops
 * that were in it. The machines are the default one with more SIPs.
 */
#include "suite.h"

#include <stdio.h>

#include "measure/measure.h"

enum { OUTSTANDING = 4, DMA_BYTES = 4096, LOCAL_BYTES = 16384 };

typedef enum traffic { DMA, UNIFORM, LOCAL, TRAFFICS } traffic;

static const char *const traffic_names[TRAFFICS] = {"dma", "uniform", "local"};

/* Sizes by SIPs; the default machine has 128 PEs in each. */
static const uint32_t sip_counts[] = {2, 32, 512};
enum { size_count = sizeof sip_counts / sizeof sip_counts[0], quick_sizes = 2 };

/* Simulated time times PEs in which there are about a million hops; 25 millions of local ones. */
static const kb_time slices[TRAFFICS] = {
    [DMA] = 8 * KB_MS, [UNIFORM] = KB_MS, [LOCAL] = 10 * KB_MS};

typedef struct contest {
    traffic traffic;
    topo_machine *machine;
    const topo_shape *shape;
    kb_sim *sim;
    net *fabric;
    net_route_buffer routes;
    kb_rng rng;
    kb_time until;
    kb_time slice;     /* of simulated time that is measured in a round */
    uint64_t done;     /* transfers */
    double ns;         /* best so far, per hop */
    double us;         /* best so far, per transfer */
    double link_bytes; /* per second, of the same round */
    double events;     /* per hop */
} contest;

static uint32_t node_of(const contest *c, topo_kind kind, uint64_t pe)
{
    const topo_shape *s = c->shape;
    uint64_t cube = pe / s->pes;
    return topo_node_at(c->machine, kind, (uint32_t)(cube / s->cubes), (uint32_t)(cube % s->cubes),
                        (uint32_t)(pe % s->pes));
}

static void on_done(void *self, uint64_t pe, const net_completion *completion);

static kb_error *submit_to(contest *c, uint64_t pe, uint32_t to, uint64_t bytes, bool read)
{
    net_order order = net_make_order(&c->routes, node_of(c, TOPO_PE_DMA, pe), to, bytes, read);
    order.plain = true;
    order.done = on_done;
    order.self = c;
    order.arg = pe;
    return net_submit(c->fabric, &order);
}

static kb_error *submit(contest *c, uint64_t pe)
{
    const topo_shape *s = c->shape;
    if (c->traffic == UNIFORM) {
        uint64_t here = (uint64_t)s->cubes * s->pes;
        uint64_t other = pe / here * here + kb_rng_below(&c->rng, here);
        return submit_to(c, pe, node_of(c, TOPO_PE_DMA, other), s->fabric.packet_bytes, false);
    }
    if (c->traffic == LOCAL)
        return submit_to(c, pe, node_of(c, TOPO_HBM_CTRL, pe), LOCAL_BYTES, true);
    uint64_t cube = pe / s->pes;
    uint64_t other = kb_rng_below(&c->rng, s->pe_count / s->pes - 1);
    other += other >= cube;
    uint32_t slice = node_of(c, TOPO_HBM_CTRL, other * s->pes + kb_rng_below(&c->rng, s->pes));
    return submit_to(c, pe, slice, DMA_BYTES, true);
}

static void on_done(void *self, uint64_t pe, const net_completion *completion)
{
    (void)completion;
    contest *c = self;
    c->done++;
    kb_error *err = submit(c, pe);
    if (err)
        kb_sim_fail(c->sim, err);
}

static void contest_fini(contest *c)
{
    if (c->sim)
        kb_sim_abandon(c->sim);
    net_destroy(c->fabric);
    kb_sim_destroy(c->sim);
    net_route_buffer_fini(&c->routes);
    topo_machine_destroy(c->machine);
    *c = (contest){0};
}

/* Sets the machine up, and its first transfers. */
static kb_error *contest_init(contest *c, traffic kind, uint32_t sips)
{
    char setting[64];
    const char *const settings[] = {setting};
    snprintf(setting, sizeof setting, "system.sips.count=%u", sips);
    topo_source source = {.settings = settings, .setting_count = 1};

    *c = (contest){.traffic = kind};
    kb_rng_init(&c->rng, 1);
    KB_TRY(topo_machine_load(&source, &c->machine));
    c->shape = topo_machine_shape(c->machine);
    KB_TRY(net_route_buffer_init(&c->routes, c->machine));
    KB_TRY(kb_sim_create(NULL, &c->sim));
    KB_TRY(net_create_for(c->sim, c->machine, 0, false, &c->fabric));
    for (uint32_t i = 0; i < OUTSTANDING; i++) {
        for (uint64_t pe = 0; pe < c->shape->pe_count; pe++)
            KB_TRY(submit(c, pe));
    }
    c->slice = slices[kind] / (kb_time)c->shape->pe_count;
    return NULL;
}

static kb_error *run_round(contest *c, bool quick)
{
    net_reset_stats(c->fabric);
    uint64_t events = kb_sim_get_stats(c->sim).events, done = c->done;
    c->until += quick ? c->slice / 4 : c->slice;

    double start = bench_clock_ns();
    KB_TRY(kb_sim_run(c->sim, c->until));
    double took = bench_clock_ns() - start;
    net_stats f = net_get_stats(c->fabric);
    if (c->ns == 0 || took / (double)f.hops < c->ns) {
        c->ns = took / (double)f.hops;
        c->us = took / (double)(c->done - done) / 1e3;
        c->link_bytes = (double)f.link_bytes / took * 1e9;
        c->events = (double)(kb_sim_get_stats(c->sim).events - events) / (double)f.hops;
    }
    return NULL;
}

/* What the machine takes in memory while nothing moves, against what the project allows itself. */
static double memory_share(const contest *c)
{
    const topo_graph *g = topo_machine_graph(c->machine);
    double used = (double)(net_get_stats(c->fabric).state_bytes +
                           g->nodes.count * (sizeof(topo_node) + sizeof *g->first_out) +
                           g->links.count * (sizeof(topo_link) + sizeof *g->out));
    double channels = (double)g->links.count * net_channels_per_link(c->fabric);
    double allowed =
        1024.0 * (double)c->shape->pe_count + 64.0 * (double)g->links.count + 16.0 * channels;
    return used / allowed;
}

static void report(bench *b, const contest *c, double least_ns)
{
    char name[32];
    snprintf(name, sizeof name, "fabric.%s.pe%ju", traffic_names[c->traffic],
             (uintmax_t)c->shape->pe_count);
    bench_report(b, 1e9 / c->ns, "hops/s", "%s.hops_per_s", name);
    bench_report(b, c->ns, "ns/hop", "%s.ns_per_hop", name);
    bench_report(b, c->link_bytes, "link-bytes/s", "%s.link_bytes_per_s", name);
    bench_report(b, c->events, "events/hop", "%s.events_per_hop", name);
    if (c->traffic == DMA)
        bench_report(b, c->us, "us/read", "%s.us_per_read", name);
    if (least_ns > 0)
        bench_report(b, c->ns / least_ns, "x of pe256", "%s.vs_pe256", name);
    if (c->traffic == DMA)
        bench_report(b, memory_share(c), "of allowed", "%s.idle_memory", name);
}

static kb_error *run_contest(bench *b, contest *c, traffic kind, uint32_t sips)
{
    bench_progress(b, "fabric.%s.pe%u", traffic_names[kind], sips * 128);
    KB_TRY(contest_init(c, kind, sips));
    c->until = 2 * c->slice; /* to get going */
    KB_TRY(kb_sim_run(c->sim, c->until));
    for (unsigned round = 0; round < b->rounds; round++)
        KB_TRY(run_round(c, b->quick));
    return NULL;
}

static kb_error *run(bench *b)
{
    kb_error *err = NULL;
    for (traffic kind = 0; kind < TRAFFICS && !err; kind++) {
        double least_ns = 0;
        for (size_t i = 0; i < (b->quick ? quick_sizes : size_count) && !err; i++) {
            if (!bench_wants(b, "fabric.%s.pe%u", traffic_names[kind], sip_counts[i] * 128))
                continue;
            contest c;
            err = run_contest(b, &c, kind, sip_counts[i]);
            if (!err)
                report(b, &c, least_ns);
            if (i == 0)
                least_ns = c.ns;
            contest_fini(&c);
        }
    }
    return err;
}

/* Instructions of a hop in steady state: the machine runs until there were about this many. */
static kb_error *count_hops(uint32_t sips, uint64_t hops, uint64_t *done)
{
    contest c;
    kb_error *err = contest_init(&c, UNIFORM, sips);
    while (!err && net_get_stats(c.fabric).hops < hops) {
        c.until += c.slice / 64;
        err = kb_sim_run(c.sim, c.until);
    }
    *done = err ? 0 : net_get_stats(c.fabric).hops;
    contest_fini(&c);
    return err;
}

static const bench_work works[] = {
    {"fabric.uniform.pe256", count_hops, 2, 100000, 300000},
    {0},
};

const bench_suite bench_fabric = {
    .title =
        "Fabric: reads of 4 KiB from other cubes (dma), writes of a packet in the SIP (uniform), reads "
        "of 16 KiB from the own slice (local)",
    .run = run,
    .works = works,
};
