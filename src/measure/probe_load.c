/*
 * probe_load.c: many transfers of a case at once: latency against offered load.
 *
 * Sources are open: each issues when its time comes, however many of its transfers are under way.
 * So with more than the fabric can carry latency grows with the length of the run, and only what is
 * accepted means something.
 *
 *     0        warm         end
 *     |--------|------------|---------->    sources issue from 0 to end
 *                 counted     drains
 */
#include <stdlib.h>

#include "probe_private.h"

static const double warm_share = 0.2;

/* ---- What it can carry ------------------------------------------------------------------- */

static void add_message(const net_message *message, uint64_t *bytes)
{
    for (uint32_t i = 0; i < message->count; i++)
        bytes[topo_step_link(message->steps[i])] += message->bytes;
}

/* What every link carries for one transfer of each source. */
static void add_all(net_route_buffer *routes, size_t which, uint64_t bytes, uint64_t *load)
{
    uint32_t sources = probe_source_count(routes->machine, which);
    for (uint32_t s = 0; s < sources; s++) {
        probe_ends ends = probe_find_ends(routes, which, s);
        net_order order =
            net_make_order(routes, ends.from, ends.to, bytes, probe_cases[which].read);
        add_message(&order.request, load);
        add_message(&order.response, load);
    }
}

/* What the link takes for its share. */
static double busy_ns(const topo_graph *graph, const uint64_t *load, uint32_t link)
{
    return (double)load[link] * (double)TOPO_GBS / (double)topo_link_rate(graph, link);
}

/* The first link of a message's route that is busy for `ns`; TOPO_NONE if there is none. */
static uint32_t first_of_message(const topo_graph *graph, const net_message *message,
                                 const uint64_t *load, double ns)
{
    for (uint32_t i = 0; i < message->count; i++)
        if (busy_ns(graph, load, topo_step_link(message->steps[i])) >= ns)
            return topo_step_link(message->steps[i]);
    return TOPO_NONE;
}

/* Of the links that take so long, the one where what waits for them waits: the first on the way. */
static uint32_t find_bottleneck(net_route_buffer *routes, size_t which, uint64_t bytes,
                                const uint64_t *load, double ns)
{
    const topo_graph *graph = topo_machine_graph(routes->machine);
    uint32_t sources = probe_source_count(routes->machine, which);
    for (uint32_t s = 0; s < sources; s++) {
        probe_ends ends = probe_find_ends(routes, which, s);
        net_order order =
            net_make_order(routes, ends.from, ends.to, bytes, probe_cases[which].read);
        uint32_t link = first_of_message(graph, &order.request, load, ns);
        if (link == TOPO_NONE)
            link = first_of_message(graph, &order.response, load, ns);
        if (link != TOPO_NONE)
            return link;
    }
    return TOPO_NONE;
}

kb_error *probe_capacity_of(const topo_machine *machine, size_t which, uint64_t bytes,
                            probe_capacity *capacity)
{
    const topo_graph *graph = topo_machine_graph(machine);
    net_route_buffer routes;
    KB_TRY(net_route_buffer_init(&routes, machine));
    uint64_t *load = kb_alloc_zeroed(graph->links.count, sizeof *load);
    if (!load) {
        net_route_buffer_fini(&routes);
        return kb_error_nomem();
    }
    add_all(&routes, which, bytes, load);
    double longest_ns = 0; /* the link that takes longest for its share is full first */
    for (uint32_t link = 0; link < graph->links.count; link++) {
        double ns = busy_ns(graph, load, link);
        longest_ns = ns > longest_ns ? ns : longest_ns;
    }
    *capacity = (probe_capacity){.sources = probe_source_count(machine, which)};
    capacity->bottleneck = find_bottleneck(&routes, which, bytes, load, longest_ns);
    capacity->gbs = (double)bytes * capacity->sources / longest_ns;
    net_route_buffer_fini(&routes);
    free(load);
    return NULL;
}

/* ---- Running ----------------------------------------------------------------------------- */

typedef struct source {
    kb_source order;
    kb_rng rng;
    probe_ends ends;
    kb_time lone; /* what its transfers take with nothing else under way */
} source;

typedef struct run {
    const topo_machine *machine;
    const probe_load_options *options;
    kb_sim *sim;
    net *fabric;
    net_route_buffer routes;
    probe_capacity capacity;
    size_t which;
    kb_time gap;       /* the mean one, at each source */
    kb_time warm, end; /* what happens from warm to end is counted */
    kb_handler issue, mark;
    kb_source marks;
    source *sources;
    KB_VEC(kb_time) latencies;
    double waited; /* by those transfers, in all */
    uint64_t issued, ended;
    net_link_stats seen; /* of the bottleneck */
} run;

static bool is_counted(const run *r, kb_time when)
{
    return when >= r->warm && when < r->end;
}

static void on_done(void *self, uint64_t arg, const net_completion *completion)
{
    run *r = self;
    r->ended += is_counted(r, completion->ended);
    if (!is_counted(r, completion->issued))
        return;
    kb_time latency = completion->ended - completion->issued;
    r->waited += (double)(latency - r->sources[arg].lone);
    if (!kb_vec_push(&r->latencies, latency))
        kb_sim_fail(r->sim, kb_error_nomem());
}

static void schedule_next(run *r, uint64_t number)
{
    source *s = &r->sources[number];
    kb_time when = kb_time_add(kb_sim_now(r->sim), kb_rng_exponential_time(&s->rng, r->gap));
    if (when < r->end)
        kb_sim_at(r->sim, &s->order, when, r->issue, number);
}

static void on_issue(kb_sim *sim, void *self, uint64_t number)
{
    run *r = self;
    const source *s = &r->sources[number];
    r->issued += is_counted(r, kb_sim_now(sim));
    net_order order = net_make_order(&r->routes, s->ends.from, s->ends.to, r->options->bytes,
                                     probe_cases[r->which].read);
    order.plain = true;
    order.done = on_done;
    order.self = r;
    order.arg = number;
    kb_error *err = net_submit(r->fabric, &order);
    if (err)
        kb_sim_fail(sim, err);
    schedule_next(r, number);
}

static void on_mark(kb_sim *sim, void *self, uint64_t is_end)
{
    (void)sim;
    run *r = self;
    if (is_end)
        r->seen = net_link_get(r->fabric, r->capacity.bottleneck);
    else
        net_reset_stats(r->fabric);
}

static kb_time lone_of(run *r, probe_ends ends)
{
    net_order order = net_make_order(&r->routes, ends.from, ends.to, r->options->bytes,
                                     probe_cases[r->which].read);
    return net_predict(r->fabric, &order).ended;
}

static kb_error *start(run *r)
{
    uint32_t count = r->capacity.sources, id = net_source_count(r->fabric);
    uint64_t seed = r->options->seed;
    r->sources = kb_alloc_zeroed(count, sizeof *r->sources);
    if (!r->sources)
        return kb_error_nomem();
    KB_TRY(kb_sim_add_handler(r->sim, on_issue, r, &r->issue));
    KB_TRY(kb_sim_add_handler(r->sim, on_mark, r, &r->mark));
    r->marks = kb_source_make(id++);
    kb_sim_at(r->sim, &r->marks, r->warm, r->mark, false);
    kb_sim_at(r->sim, &r->marks, r->end, r->mark, true);
    for (uint32_t i = 0; i < count; i++) {
        source *s = &r->sources[i];
        s->order = kb_source_make(id + i);
        s->ends = probe_find_ends(&r->routes, r->which, i);
        s->lone = lone_of(r, s->ends);
        kb_rng_init(&s->rng, kb_splitmix64(&seed));
        schedule_next(r, i);
    }
    return NULL;
}

/* ---- Results ----------------------------------------------------------------------------- */

static int compare(const void *a, const void *b)
{
    kb_time x = *(const kb_time *)a, y = *(const kb_time *)b;
    return (x > y) - (x < y);
}

/* The smallest latency that at least this share of the transfers did not exceed. */
static kb_time quantile(const kb_time *sorted, size_t count, uint64_t percent)
{
    return sorted[(count * percent + 99) / 100 - 1];
}

static void summarise(run *r, probe_load *load)
{
    const topo_graph *graph = topo_machine_graph(r->machine);
    double ns = (double)(r->end - r->warm) / (double)KB_NS;
    uint64_t rate = topo_link_rate(graph, r->capacity.bottleneck);
    double bytes = (double)r->options->bytes;
    *load = (probe_load){
        .transfers = r->latencies.count,
        .offered_gbs = (double)r->issued * bytes / ns,
        .accepted_gbs = (double)r->ended * bytes / ns,
        .utilization = topo_utilization(rate, r->seen.bytes, r->end - r->warm),
        .waited = r->seen.waited_fs,
    };
    size_t count = r->latencies.count;
    if (count == 0)
        return;
    kb_time *sorted = r->latencies.items;
    qsort(sorted, count, sizeof *sorted, compare);
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)sorted[i];
    load->mean = (kb_time)(sum / (double)count);
    load->wait = (kb_time)(r->waited / (double)count);
    load->p50 = quantile(sorted, count, 50);
    load->p99 = quantile(sorted, count, 99);
    load->max = sorted[count - 1];
}

static kb_error *run_load(run *r, probe_load *load)
{
    KB_TRY(kb_sim_create(NULL, &r->sim));
    KB_TRY(net_create_for(r->sim, r->machine, 0, false, &r->fabric));
    KB_TRY(net_route_buffer_init(&r->routes, r->machine));
    KB_TRY(probe_capacity_of(r->machine, r->which, r->options->bytes, &r->capacity));
    double rate = r->options->offered * r->capacity.gbs / r->capacity.sources; /* bytes a ns */
    double gap_ns = (double)r->options->bytes / rate;
    double end_ns = gap_ns * (double)r->options->transfers / r->capacity.sources;
    if (end_ns > 1e12)
        return kb_error_new(KB_ERR_INPUT, "run too long: more than 1000 s of simulated time");
    /* Enough for time to go on, and for some transfers to count. */
    r->gap = 1 + (kb_time)(gap_ns * (double)KB_NS);
    r->end = 10 + (kb_time)(end_ns * (double)KB_NS);
    r->warm = (kb_time)(warm_share * (double)r->end);
    KB_TRY(start(r));
    KB_TRY(kb_sim_run(r->sim, KB_FOREVER));
    summarise(r, load);
    return NULL;
}

kb_error *probe_run_load(const topo_machine *machine, size_t which,
                         const probe_load_options *options, probe_load *load)
{
    KB_ASSERT(!probe_missing(machine, which));
    run r = {.machine = machine, .options = options, .which = which};
    kb_error *err = run_load(&r, load);
    kb_vec_fini(&r.latencies);
    free(r.sources);
    net_route_buffer_fini(&r.routes);
    if (r.sim)
        kb_sim_abandon(r.sim);
    net_destroy(r.fabric);
    kb_sim_destroy(r.sim);
    return err;
}
