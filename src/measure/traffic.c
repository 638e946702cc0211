/*
 * traffic.c: runs synthetic traffic and measures it.
 *
 * An event for each transfer: it is submitted, and the next one of its PE is drawn. Time is cut
 * into three parts: the warm-up, the window, and what it takes for all transfers of the window to
 * arrive, while others go on being created so that these see the same load to the end.
 *
 * The third part is cut off when it has lasted ten windows or when the transfers under way
 * would exhaust memory. The machine is called saturated then, unless ten windows are too
 * short for transfers to arrive at all.
 */
#include "traffic.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "arrivals.h"
#include "latency.h"
#include "net/net.h"
#include "pattern.h"

enum {
    patience = 10,     /* windows to wait for the last transfers */
    lone_samples = 64, /* transfers that are looked at for what they take alone */
    slices = 256,      /* parts of warm-up and window that a run is cut into, for progress */

    /* Transfers that may be under way: some 300 bytes each. */
    live_base = 1 << 20,
    live_per_pe = 16,
};

typedef struct traffic {
    const topo_machine *machine;
    const traffic_options *options;
    kb_sim *sim;
    net *fabric;
    kb_handler on_arrival;
    uint32_t first_source; /* of the PEs, in the order of events */
    pattern where;
    arrivals when;
    arrivals_stream *streams; /* by PE */
    net_route_buffer routes;  /* of the transfer in hand */

    kb_time from, until; /* the window */
    kb_time last;        /* end of patience */
    uint64_t live, max_live, done;
    kb_time lone; /* the longest that one of the first transfers would take alone */
    uint32_t lone_count;
    uint64_t created, delivered; /* in the window; delivered whenever they were created */
    bool gave_up;
    latency_counts latencies;
    latency_wide half_sum[2], half_squares[2]; /* of those created in each half of the window */
    uint64_t half_count[2];
    uint64_t hops_before; /* the window: statistics of links are reset there */
} traffic;

/* ---- Transfers --------------------------------------------------------------------------- */

static void schedule_next(traffic *t, uint32_t pe)
{
    kb_time at = arrivals_next(&t->when, &t->streams[pe]);
    if (at == KB_FOREVER)
        return;
    /* An event of a PE at a time: its sequence does not matter. */
    kb_source source = kb_source_make(t->first_source + pe);
    (void)kb_sim_at(t->sim, &source, at, t->on_arrival, pe);
}

static void on_delivery(void *self, uint64_t arg, const net_completion *completion)
{
    (void)arg;
    traffic *t = self;
    t->live--;
    t->done++;
    if (completion->ended >= t->from && completion->ended < t->until)
        t->delivered++;
    if (completion->issued < t->from || completion->issued >= t->until)
        return;
    kb_time latency = completion->ended - completion->issued;
    latency_add(&t->latencies, latency);
    bool later = completion->issued - t->from >= (t->until - t->from) / 2;
    t->half_count[later]++;
    t->half_sum[later] += (uint64_t)latency;
    t->half_squares[later] += (latency_wide)latency * (uint64_t)latency;
    if (t->latencies.count == t->created && completion->ended >= t->until)
        kb_sim_stop(t->sim);
}

static void note_lone(traffic *t, uint32_t from, uint32_t to)
{
    net_order order = net_make_order(&t->routes, from, to, t->options->bytes, false);
    kb_time takes = net_predict(t->fabric, &order).ended;
    t->lone = takes > t->lone ? takes : t->lone;
    t->lone_count++;
}

/* A transfer is created. */
static void on_arrival(kb_sim *sim, void *self, uint64_t arg)
{
    traffic *t = self;
    uint32_t pe = (uint32_t)arg;
    uint32_t to = pattern_draw(&t->where, pe, &t->streams[pe].rng);
    if (t->lone_count < lone_samples)
        note_lone(t, t->where.nodes[pe], t->where.nodes[to]);
    net_order order = net_make_order_by_nodes(&t->routes, t->where.nodes[pe], t->where.nodes[to],
                                              t->options->bytes, false);
    order.plain = true;
    order.done = on_delivery;
    order.self = t;
    kb_error *err = net_submit(t->fabric, &order);
    if (err) {
        kb_sim_fail(sim, err);
        return;
    }
    kb_time now = kb_sim_now(sim);
    t->created += now >= t->from && now < t->until;
    if (++t->live >= t->max_live) {
        t->gave_up = true;
        kb_sim_stop(sim);
    }
    schedule_next(t, pe);
}

/* ---- Setting up -------------------------------------------------------------------------- */

/* The bandwidth of a PE's link to its router. */
static uint64_t injection_rate(const topo_graph *graph, uint32_t pe_node)
{
    for (uint32_t i = graph->first_out[pe_node]; i < graph->first_out[pe_node + 1]; i++) {
        uint32_t link = graph->out[i];
        if (graph->nodes.items[graph->links.items[link].to].kind == TOPO_ROUTER)
            return topo_link_rate(graph, link);
    }
    return 0;
}

static kb_error *check_options(const traffic_options *o)
{
    if (o->rate_ppb < 1 || o->rate_ppb > TRAFFIC_MAX_RATE)
        return kb_error_new(KB_ERR_INPUT,
                            "invalid rate: expected above 0 and at most %ju, "
                            "found %.9g",
                            (uintmax_t)(TRAFFIC_MAX_RATE / TRAFFIC_RATE_ONE),
                            (double)o->rate_ppb / 1e9);
    if (o->bytes < 1 || o->bytes > TRAFFIC_MAX_BYTES)
        return kb_error_new(KB_ERR_INPUT,
                            "invalid transfer size: expected 1 to %ju bytes, "
                            "found %ju",
                            (uintmax_t)TRAFFIC_MAX_BYTES, (uintmax_t)o->bytes);
    if (o->warmup < 0 || o->warmup > TRAFFIC_MAX_TIME)
        return kb_error_new(KB_ERR_INPUT, "warm-up too long: expected at most %.9g ns",
                            (double)TRAFFIC_MAX_TIME / (double)KB_NS);
    if (o->measure < 2 || o->measure > TRAFFIC_MAX_TIME)
        return kb_error_new(KB_ERR_INPUT,
                            "invalid measurement window: expected more than 0 "
                            "and at most %.9g ns",
                            (double)TRAFFIC_MAX_TIME / (double)KB_NS);
    return NULL;
}

static kb_error *init_sources(traffic *t)
{
    uint64_t pes = t->where.count, first = net_source_count(t->fabric);
    if (first + pes > KB_SOURCE_ID_MAX)
        return kb_error_new(KB_ERR_INPUT, "machine too large: %ju PEs and %ju links",
                            (uintmax_t)pes, (uintmax_t)topo_machine_graph(t->machine)->links.count);
    t->first_source = (uint32_t)first;
    t->max_live = live_base + live_per_pe * pes;
    t->streams = kb_alloc_array(pes, sizeof *t->streams);
    if (!t->streams)
        return kb_error_nomem();
    for (uint32_t pe = 0; pe < pes; pe++)
        arrivals_start(&t->streams[pe], t->options->seed, pe);
    return NULL;
}

static kb_error *traffic_init(traffic *t, const topo_machine *machine,
                              const traffic_options *options)
{
    KB_TRY(check_options(options));
    *t = (traffic){.machine = machine, .options = options};
    t->from = options->warmup;
    t->until = t->from + options->measure;
    t->last = t->until + patience * options->measure;
    KB_TRY(pattern_init(&t->where, machine, options));
    uint64_t bytes_per_s = injection_rate(topo_machine_graph(machine), t->where.nodes[0]);
    KB_TRY(arrivals_init(&t->when, options, bytes_per_s,
                         topo_machine_shape(machine)->fabric.packet_bytes, t->last));
    KB_TRY(latency_init(&t->latencies));
    KB_TRY(net_route_buffer_init(&t->routes, machine));
    KB_TRY(kb_sim_create(NULL, &t->sim));
    KB_TRY(net_create_for(t->sim, machine, 0, false, &t->fabric));
    KB_TRY(init_sources(t));
    return kb_sim_add_handler(t->sim, on_arrival, t, &t->on_arrival);
}

static void traffic_fini(traffic *t)
{
    if (t->sim)
        kb_sim_abandon(t->sim);
    net_destroy(t->fabric);
    kb_sim_destroy(t->sim);
    free(t->streams);
    net_route_buffer_fini(&t->routes);
    latency_fini(&t->latencies);
    pattern_fini(&t->where);
}

/* ---- Results ----------------------------------------------------------------------------- */

/* The share of all PEs' bandwidth that `transfers` in `time` take. */
static double load_of(const traffic *t, const traffic_result *r, uint64_t transfers, kb_time time)
{
    double bytes = (double)transfers * (double)t->options->bytes;
    double most = (double)r->pes * (double)r->bytes_per_s * ((double)time / (double)KB_S);
    return time > 0 ? bytes / most : 0;
}

static bool is_busier(const topo_graph *graph, const traffic_link *a, const traffic_link *b)
{
    latency_wide left = (latency_wide)a->bytes * topo_link_rate(graph, b->link);
    latency_wide right = (latency_wide)b->bytes * topo_link_rate(graph, a->link);
    return left != right ? left > right : a->waited_fs > b->waited_fs;
}

/* What a link has carried in the window, which has lasted for `time`. */
static traffic_link link_load(const traffic *t, uint32_t link, kb_time time)
{
    net_link_stats stats = net_link_get(t->fabric, link);
    uint64_t rate = topo_link_rate(topo_machine_graph(t->machine), link);
    return (traffic_link){
        .link = link,
        .bytes = stats.bytes,
        .utilization = topo_utilization(rate, stats.bytes, time),
        .waited_fs = stats.waited_fs,
    };
}

static void note_links(const traffic *t, kb_time time, traffic_result *r)
{
    const topo_graph *graph = topo_machine_graph(t->machine);
    for (uint32_t link = 0; link < graph->links.count; link++) {
        traffic_link here = link_load(t, link, time);
        if (t->options->links)
            t->options->links[link] = here;
        if (here.bytes == 0)
            continue;
        uint32_t index = r->busiest_count;
        while (index > 0 && is_busier(graph, &here, &r->busiest[index - 1]))
            index--;
        if (index == TRAFFIC_BUSIEST)
            continue;
        if (r->busiest_count < TRAFFIC_BUSIEST)
            r->busiest_count++;
        for (uint32_t i = r->busiest_count - 1; i > index; i--)
            r->busiest[i] = r->busiest[i - 1];
        r->busiest[index] = here;
    }
}

/*
 * Whether latency grows with time: transfers of the second half of the window took longer than
 * those of the first by more than 2 % of the time between the halves, and not by chance alone (4
 * standard errors, which take a handful of transfers to estimate). Where all PEs offer more than is
 * carried, that share is offered / accepted - 1.
 */
static bool is_growing(const traffic *t)
{
    static const double min_growth = 0.02, standard_errors = 4, min_count = 8;
    double mean[2], error = 0;
    for (int i = 0; i < 2; i++) {
        double count = (double)t->half_count[i];
        if (count < min_count)
            return false;
        mean[i] = (double)t->half_sum[i] / count;
        double variance = (double)t->half_squares[i] / count - mean[i] * mean[i];
        error += variance > 0 ? variance / count : 0;
    }
    double growth = mean[1] - mean[0];
    return growth > min_growth * ((double)t->options->measure / 2) &&
           growth > standard_errors * sqrt(error);
}

/*
 * Whether some PEs offer more than is carried of theirs, though most do not: one in a hundred
 * transfers takes more than a tenth of the time that there was, and far more than is usual or than
 * it would alone.
 */
static bool has_stragglers(const traffic *t, const traffic_result *r)
{
    return r->p99_fs > t->until / 10 && r->p99_fs > 4 * r->p50_fs &&
           r->p99_fs > kb_time_add(t->lone, t->lone);
}

/* At the end of the window, or where the run gave up before that. */
static void note_window(const traffic *t, kb_time now, traffic_result *r)
{
    kb_time time = now > t->from ? now - t->from : 0;
    r->created = load_of(t, r, t->created, time);
    r->accepted = load_of(t, r, t->delivered, time);
    if (time > 0)
        note_links(t, time, r);
}

static void note_latencies(const traffic *t, traffic_result *r)
{
    r->measured = t->created;
    r->arrived = t->latencies.count;
    r->mean_fs = latency_mean(&t->latencies);
    r->p50_fs = latency_quantile(&t->latencies, 50);
    r->p99_fs = latency_quantile(&t->latencies, 99);
    r->max_fs = t->latencies.largest;
    bool missing = r->arrived < r->measured;
    if (t->gave_up)
        r->end = TRAFFIC_CROWDED;
    else if (missing)
        r->end = TRAFFIC_PATIENCE;
    r->too_short = r->end == TRAFFIC_PATIENCE && t->last - t->until < kb_time_add(t->lone, t->lone);
    r->saturated =
        t->gave_up || (missing && !r->too_short) || is_growing(t) || has_stragglers(t, r);
    r->live = t->live;
    r->lone_fs = t->lone;

    r->ended_fs = kb_sim_now(t->sim);
    r->transfers = t->done;
    r->hops = t->hops_before + net_get_stats(t->fabric).hops;
    r->events = kb_sim_get_stats(t->sim).events;
}

/* ---- Running ----------------------------------------------------------------------------- */

static void tell(const traffic *t)
{
    if (!t->options->progress)
        return;
    traffic_progress progress = {
        .now = kb_sim_now(t->sim), .until = t->until, .transfers = t->done, .live = t->live};
    t->options->progress(t->options->self, &progress);
}

/* All of the window have been created, and have arrived. */
static bool is_complete(const traffic *t)
{
    return kb_sim_now(t->sim) >= t->until - 1 && t->latencies.count == t->created;
}

/* Runs all that happens before `end`, or until nothing is left to wait for or the run gives up. */
static kb_error *run_to(traffic *t, kb_time end)
{
    kb_time slice = t->until / slices + 1;
    while (kb_sim_now(t->sim) < end - 1 && !t->gave_up && !is_complete(t)) {
        kb_time now = kb_sim_now(t->sim);
        KB_TRY(kb_sim_run(t->sim, now < end - 1 - slice ? now + slice : end - 1));
        tell(t);
    }
    return NULL;
}

static double wall_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static kb_error *run(traffic *t, traffic_result *r)
{
    const topo_graph *graph = topo_machine_graph(t->machine);
    r->pes = t->where.count;
    r->bytes_per_s = injection_rate(graph, t->where.nodes[0]);
    r->offered = (double)t->options->rate_ppb / (double)TRAFFIC_RATE_ONE;
    double began = wall_clock();
    for (uint32_t pe = 0; pe < t->where.count; pe++)
        schedule_next(t, pe);

    KB_TRY(run_to(t, t->from));
    t->hops_before = net_get_stats(t->fabric).hops;
    net_reset_stats(t->fabric);
    KB_TRY(run_to(t, t->until));
    note_window(t, t->gave_up ? kb_sim_now(t->sim) : t->until, r);
    if (t->created == 0 && !t->gave_up)
        return kb_error_new(KB_ERR_INPUT,
                            "no transfer was issued in the window of %.9g ns: use a longer "
                            "window or a higher rate",
                            (double)t->options->measure / (double)KB_NS);
    KB_TRY(run_to(t, t->last));
    note_latencies(t, r);
    r->wall_s = wall_clock() - began;
    return NULL;
}

kb_error *traffic_run(const topo_machine *machine, const traffic_options *options,
                      traffic_result *result)
{
    traffic t = {0};
    *result = (traffic_result){0};
    kb_error *err = traffic_init(&t, machine, options);
    if (!err)
        err = run(&t, result);
    traffic_fini(&t);
    return err;
}
