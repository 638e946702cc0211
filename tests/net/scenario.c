/* scenario.c: see scenario.h. */
#include "net/scenario.h"

#include <inttypes.h>

#include "base/sanitize.h"

#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#else
#define RUNNING_ON_VALGRIND 0
#endif

/* The tests' own source ids: the net's are in between. */
enum { SUBMIT_FIRST = 0, FIRST_SOURCE = 1, SUBMIT_LAST = KB_SOURCE_ID_MAX };

void scenario_init(scenario *s, net_options options)
{
    *s = (scenario){.options = options, .submit_first = true};
    s->options.first_source = FIRST_SOURCE;
}

void scenario_fini(scenario *s)
{
    topo_graph_fini(&s->graph);
    kb_vec_fini(&s->orders);
}

uint32_t scenario_node(scenario *s, kb_time overhead_fs)
{
    return topo_graph_add_node(&s->graph, (topo_node){.overhead_fs = overhead_fs});
}

uint32_t scenario_link(scenario *s, uint32_t from, uint32_t to, uint64_t gbs, kb_time wire_fs)
{
    return topo_graph_add_link(&s->graph, from, to, gbs * TOPO_GBS, wire_fs);
}

uint32_t scenario_memory(scenario *s, kb_time latency_fs, uint64_t gbs)
{
    uint32_t node = scenario_node(s, latency_fs);
    topo_graph_add_service(&s->graph, node, gbs * TOPO_GBS);
    return node;
}

uint32_t scenario_service(const scenario *s, uint32_t memory)
{
    return s->graph.nodes.items[memory].service;
}

static planned_message plan_message(uint64_t bytes, uint32_t count, const uint32_t *links)
{
    planned_message message = {.count = count, .bytes = bytes};
    assert_true(count <= MAX_STEPS);
    for (uint32_t i = 0; i < count; i++)
        message.steps[i] = topo_step(links[i], TOPO_BEFORE);
    return message;
}

static planned *add_order(scenario *s, const planned *order)
{
    assert_true(kb_vec_push(&s->orders, *order));
    return &s->orders.items[s->orders.count - 1];
}

planned *scenario_write(scenario *s, kb_time at, uint64_t bytes, uint32_t count,
                        const uint32_t *links)
{
    planned order = {.at = at,
                     .after = AT_ONCE,
                     .from = s->graph.links.items[links[0]].from,
                     .out = plan_message(bytes, count, links)};
    return add_order(s, &order);
}

planned *scenario_read(scenario *s, kb_time at, uint64_t bytes, uint32_t count,
                       const uint32_t *links, uint32_t back_count, const uint32_t *back_links)
{
    planned *order = scenario_write(s, at, NET_REQUEST_BYTES, count, links);
    order->back = plan_message(bytes, back_count, back_links);
    return order;
}

net_order order_of(const planned *p)
{
    return (net_order){
        .from = p->from,
        .request = {.steps = p->out.steps, .count = p->out.count, .bytes = p->out.bytes},
        .response = {.steps = p->back.steps, .count = p->back.count, .bytes = p->back.bytes},
        .is_response = p->reply,
        .forwarded = p->forwarded,
    };
}

uint32_t scenario_classes(const scenario *s)
{
    for (uint32_t i = 0; i < s->graph.nodes.count; i++)
        if (s->graph.nodes.items[i].kind == TOPO_SIP_PORT)
            return 5;
    return 4;
}

uint32_t scenario_class(uint32_t step, bool reply)
{
    topo_phase phase = topo_step_phase(step);
    return phase == TOPO_WRAPPED ? 4 : 2 * reply + (uint32_t)phase;
}

/* ---- Outcomes ---------------------------------------------------------------------------- */

static void *new_array(size_t count, size_t size)
{
    void *array = calloc(count + 1, size);
    assert_non_null(array);
    return array;
}

outcome *outcome_new(uint32_t orders, uint32_t links)
{
    outcome *o = new_array(1, sizeof *o);
    *o = (outcome){.orders = orders, .links = links};
    o->completions = new_array(orders, sizeof *o->completions);
    o->done = new_array(orders, sizeof *o->done);
    o->first_of_link = new_array(links + 1, sizeof *o->first_of_link);
    o->stats = new_array(links, sizeof *o->stats);
    o->looks = new_array((size_t)links * MAX_LOOKS, sizeof *o->looks);
    return o;
}

void outcome_free(outcome *o)
{
    free(o->completions);
    free(o->done);
    free(o->bookings);
    free(o->first_of_link);
    free(o->stats);
    free(o->looks);
    free(o);
}

void outcome_add_booking(outcome *o, const net_booking *booking)
{
    if ((o->count & (o->count - 1)) == 0) {
        o->bookings = realloc(o->bookings, ((size_t)o->count + 1) * 2 * sizeof *o->bookings);
        assert_non_null(o->bookings);
    }
    o->bookings[o->count++] = *booking;
}

void outcome_sort(outcome *o)
{
    net_booking *sorted = new_array(o->count, sizeof *sorted);
    uint32_t place = 0;
    for (uint32_t at = 0; at < o->links; at++) {
        o->first_of_link[at] = place;
        for (uint32_t i = 0; i < o->count; i++)
            if (o->bookings[i].link == at)
                sorted[place++] = o->bookings[i];
    }
    o->first_of_link[o->links] = place;
    assert_int_equal(place, o->count);
    free(o->bookings);
    o->bookings = sorted;
}

const net_booking *outcome_booking(const outcome *o, uint64_t order, uint32_t packet, uint32_t link)
{
    for (uint32_t i = o->first_of_link[link]; i < o->first_of_link[link + 1]; i++)
        if (o->bookings[i].arg == order && o->bookings[i].packet == packet)
            return &o->bookings[i];
    fail_msg("packet %u of order %ju was not booked on link %u", packet, (uintmax_t)order, link);
    return NULL;
}

kb_time outcome_start(const outcome *o, uint64_t order, uint32_t packet, uint32_t link)
{
    return outcome_booking(o, order, packet, link)->start;
}

static bool bookings_are_equal(const net_booking *a, const net_booking *b)
{
    return a->arg == b->arg && a->packet == b->packet && a->bytes == b->bytes &&
           a->link == b->link && a->channel == b->channel && a->is_response == b->is_response &&
           a->ready_at == b->ready_at && a->start == b->start && a->free_at == b->free_at &&
           a->tail_leaves == b->tail_leaves;
}

static void print_booking(const char *which, const net_booking *b)
{
    print_error("%s link %u: order %ju%s packet %u (%u bytes) to channel %u, ready %" PRId64
                " start %" PRId64 " free %" PRId64 " tail %" PRId64 "\n",
                which, b->link, (uintmax_t)b->arg, b->is_response ? " back" : "", b->packet,
                b->bytes, b->channel, b->ready_at, b->start, b->free_at, b->tail_leaves);
}

static void looks_are_equal(const outcome *a, const outcome *b, const char *what)
{
    assert_int_equal(a->look_count, b->look_count);
    for (uint32_t i = 0; i < a->look_count; i++) {
        for (uint32_t at = 0; at < a->links; at++) {
            const net_link_stats *x = &a->looks[i * a->links + at];
            const net_link_stats *y = &b->looks[i * a->links + at];
            if (x->bytes != y->bytes || x->waited_fs != y->waited_fs)
                fail_msg("%s: look %u: link %u: %ju or %ju bytes, waited %" PRId64 " or %" PRId64,
                         what, i, at, (uintmax_t)x->bytes, (uintmax_t)y->bytes,
                         (int64_t)x->waited_fs, (int64_t)y->waited_fs);
        }
        if (a->hops[i] != b->hops[i])
            fail_msg("%s: look %u: %ju or %ju hops", what, i, (uintmax_t)a->hops[i],
                     (uintmax_t)b->hops[i]);
    }
}

void outcomes_are_equal(const outcome *a, const outcome *b, const char *what)
{
    /* The earliest difference is the one that tells. */
    const net_booking *first_a = NULL, *first_b = NULL;
    assert_int_equal(a->orders, b->orders);
    for (uint32_t at = 0; at < a->links; at++) {
        uint32_t i = a->first_of_link[at], j = b->first_of_link[at];
        while (i < a->first_of_link[at + 1] && j < b->first_of_link[at + 1] &&
               bookings_are_equal(&a->bookings[i], &b->bookings[j])) {
            i++;
            j++;
        }
        if (i < a->first_of_link[at + 1] && j < b->first_of_link[at + 1] &&
            (!first_a || a->bookings[i].start < first_a->start)) {
            first_a = &a->bookings[i];
            first_b = &b->bookings[j];
        }
    }
    if (first_a) {
        print_booking("one:  ", first_a);
        print_booking("other:", first_b);
        fail_msg("%s: bookings differ", what);
    }
    looks_are_equal(a, b, what);
    if (a->count != b->count)
        fail_msg("%s: %u and %u bookings", what, a->count, b->count);
    for (uint32_t i = 0; i < a->orders; i++)
        if (memcmp(&a->completions[i], &b->completions[i], sizeof a->completions[i]) != 0)
            fail_msg("%s: order %u: issued %" PRId64 " or %" PRId64 ", ended %" PRId64
                     " or %" PRId64,
                     what, i, a->completions[i].issued, b->completions[i].issued,
                     a->completions[i].ended, b->completions[i].ended);
    for (uint32_t i = 0; i < a->done_count; i++)
        if (a->done[i] != b->done[i])
            fail_msg("%s: order %u or %u ended as number %u", what, a->done[i], b->done[i], i);
    for (uint32_t at = 0; at < a->links; at++) {
        if (a->stats[at].bytes != b->stats[at].bytes)
            fail_msg("%s: link %u carried %ju or %ju bytes", what, at,
                     (uintmax_t)a->stats[at].bytes, (uintmax_t)b->stats[at].bytes);
        if (a->stats[at].waited_fs != b->stats[at].waited_fs)
            fail_msg("%s: link %u waited %" PRId64 " or %" PRId64, what, at,
                     (int64_t)a->stats[at].waited_fs, (int64_t)b->stats[at].waited_fs);
    }
    assert_int_equal(a->total.hops, b->total.hops);
}

/* ---- Running ----------------------------------------------------------------------------- */

typedef struct runner {
    scenario *s;
    outcome *o;
    net *fabric;
    kb_sim *sim;
    kb_source source;
    kb_handler submit;
} runner;

static void on_done(void *self, uint64_t arg, const net_completion *completion)
{
    runner *r = self;
    outcome *o = r->o;
    assert_true(arg < o->orders && o->done_count < o->orders);
    assert_int_equal(completion->ended, kb_sim_now(r->sim));
    o->completions[arg] = *completion;
    o->done[o->done_count++] = (uint32_t)arg;
    for (uint32_t i = 0; i < r->s->orders.count; i++)
        if (r->s->orders.items[i].after == arg)
            (void)kb_sim_after(r->sim, &r->source, r->s->orders.items[i].at, r->submit, i);
}

static void on_submit(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim;
    runner *r = self;
    net_order order = order_of(&r->s->orders.items[arg]);
    order.arg = arg;
    order.done = on_done;
    order.self = r;
    expect_ok(net_submit(r->fabric, &order));
}

static void on_booking(void *self, const net_booking *booking)
{
    net_booking copy = *booking;
    /* Behind the last link there is no channel. */
    if (copy.channel == UINT32_MAX)
        copy.channel = 0;
    outcome_add_booking(self, &copy);
}

/* In order of time, each when all is done that happens up to then. */
static void submit_between_runs(runner *r)
{
    kb_time now = -1;
    for (;;) {
        kb_time next = KB_FOREVER;
        for (uint32_t i = 0; i < r->s->orders.count; i++) {
            kb_time at = r->s->orders.items[i].at;
            if (at > now && at < next)
                next = at;
        }
        if (next == KB_FOREVER)
            return;
        now = next;
        for (uint32_t i = 0; i < r->s->orders.count; i++)
            if (r->s->orders.items[i].at == now) {
                expect_ok(kb_sim_run(r->sim, now));
                on_submit(r->sim, r, i);
            }
    }
}

/* Runs to the times of the looks, and looks. */
static void look(runner *r)
{
    outcome *o = r->o;
    for (; o->look_count < r->s->look_count; o->look_count++) {
        uint32_t i = o->look_count;
        expect_ok(kb_sim_run(r->sim, r->s->looks[i]));
        for (uint32_t at = 0; at < o->links; at++)
            o->looks[i * o->links + at] = net_link_get(r->fabric, at);
        o->hops[i] = net_get_stats(r->fabric).hops;
        if (r->s->watch_from == r->s->looks[i])
            net_watch(r->fabric, on_booking, o);
    }
}

outcome *scenario_run(scenario *s)
{
    if (!s->finished)
        expect_ok(topo_graph_finish(&s->graph));
    s->finished = true;
    outcome *o = outcome_new((uint32_t)s->orders.count, (uint32_t)s->graph.links.count);
    runner r = {.s = s, .o = o};
    expect_ok(kb_sim_create(NULL, &r.sim));
    expect_ok(net_create(r.sim, &s->graph, &s->options, &r.fabric));
    expect_ok(kb_sim_add_handler(r.sim, on_submit, &r, &r.submit));
    if (s->watch_from == 0)
        net_watch(r.fabric, on_booking, o);
    r.source = kb_source_make(s->submit_first ? SUBMIT_FIRST : SUBMIT_LAST);
    if (s->from_outside)
        submit_between_runs(&r);
    else
        for (uint32_t i = 0; i < s->orders.count; i++)
            if (s->orders.items[i].after == AT_ONCE)
                (void)kb_sim_at(r.sim, &r.source, s->orders.items[i].at, r.submit, i);
    look(&r);
    expect_ok(kb_sim_run(r.sim, KB_FOREVER));

    assert_int_equal(o->done_count, o->orders);
    for (uint32_t at = 0; at < o->links; at++)
        o->stats[at] = net_link_get(r.fabric, at);
    o->total = net_get_stats(r.fabric);
    o->trains = net_get_train_stats(r.fabric);
    o->events = kb_sim_get_stats(r.sim).events;
    assert_int_equal(o->total.live, 0);
    assert_int_equal(o->total.transfers, o->orders);
    assert_int_equal(kb_sim_get_stats(r.sim).pending, 0);
    outcome_sort(o);
    net_destroy(r.fabric);
    kb_sim_destroy(r.sim);
    return o;
}

outcome *scenario_run_both(scenario *s)
{
    s->options.no_elision = true;
    outcome *full = scenario_run(s);
    s->options.no_elision = false;
    outcome *o = scenario_run(s);
    outcomes_are_equal(o, full, "with and without elision");
    outcome_free(full);
    return o;
}

/* ---- By chance --------------------------------------------------------------------------- */

uint64_t scenario_cases(uint64_t count)
{
#if defined(KB_ASAN) || defined(KB_TSAN)
    count = count / 5 + 1;
#endif
    return RUNNING_ON_VALGRIND ? count / 50 + 1 : count;
}

static uint64_t below(kb_rng *rng, uint64_t bound)
{
    return kb_rng_below(rng, bound);
}

/* With ties: a byte takes 1, 2 or 4 ps. Otherwise bandwidths with decimals. */
static uint64_t draw_rate(kb_rng *rng, const chance *how)
{
    if (how->ties)
        return 1000 * TOPO_GBS >> below(rng, 3);
    if (how->streams && below(rng, 3) == 0)
        return (uint64_t[]){3, 7, 100, 300}[below(rng, 4)] * TOPO_GBS;
    if (how->streams && below(rng, 3) == 0) /* so near that rounding decides */
        return 256 * TOPO_GBS + below(rng, 2000000);
    switch (below(rng, 3)) {
    case 0:
        return (uint64_t[]){64, 256, 200, 128}[below(rng, 4)] * TOPO_GBS;
    case 1:
        return 1000000 * (1 + below(rng, 300000)); /* three digits after the point */
    default:
        return TOPO_GBS / 2 + below(rng, 600 * TOPO_GBS);
    }
}

static kb_time draw_latency(kb_rng *rng, const chance *how)
{
    if (below(rng, 3) == 0)
        return 0;
    if (how->ties)
        return (kb_time)below(rng, how->streams && below(rng, 2) ? 40 : 5) * KB_PS;
    return (kb_time)below(rng, 20 * KB_NS);
}

static uint64_t draw_bytes(kb_rng *rng, const chance *how, uint32_t packet_bytes)
{
    if (how->streams && below(rng, 3) == 0)
        return packet_bytes * (1 + below(rng, 20));
    if (how->streams && below(rng, 2))
        return 1 + below(rng, (uint64_t)packet_bytes * 40);
    if (how->ties)
        return 1 + below(rng, 12);
    switch (below(rng, 4)) {
    case 0:
        return 1 + below(rng, 4);
    case 1:
        return packet_bytes * (1 + below(rng, 5));
    default:
        return 1 + below(rng, (uint64_t)packet_bytes * 6);
    }
}

static bool is_memory(const topo_graph *g, uint32_t node)
{
    return g->nodes.items[node].service != TOPO_NONE;
}

static bool is_port(const topo_graph *g, uint32_t node)
{
    return g->nodes.items[node].kind != 0;
}

/* Whether a way that goes up or down to `to`, or anywhere, may go on over the link. */
static bool may_go(const topo_graph *g, uint32_t link, uint32_t node, bool up, uint32_t to)
{
    const topo_link *l = &g->links.items[link];
    if (l->from != node || l->to == node || (l->to > node) != up)
        return false;
    if (to == TOPO_NONE || l->to == to)
        return true;
    return !is_memory(g, l->to) && (l->to > to) != up;
}

/* Adds a way from `from` to `to`, or to where it likes to end; false if there is none. */
static bool draw_way(kb_rng *rng, const scenario *s, uint32_t from, bool up, uint32_t to,
                     planned_message *message)
{
    const topo_graph *g = &s->graph;
    uint32_t phase = TOPO_BEFORE, node = from;
    uint32_t phases = scenario_classes(s) == 5 ? 3 : 2, most = 1 + (uint32_t)below(rng, 8);
    if (is_memory(g, from))
        message->steps[message->count++] = topo_step(g->nodes.items[from].service, TOPO_BEFORE);
    while (node != to) {
        bool may_end = to == TOPO_NONE && node != from && !is_port(g, node);
        if (may_end && (message->count >= most || is_memory(g, node)))
            return true;
        uint32_t found[64], n = 0;
        for (uint32_t at = 0; at < g->links.count && n < 64; at++)
            if (may_go(g, at, node, up, to))
                found[n++] = at;
        if (n == 0)
            return may_end;
        uint32_t at = found[below(rng, n)];
        if (phase + 1 < phases && below(rng, 3) == 0)
            phase++;
        message->steps[message->count++] = topo_step(at, (topo_phase)phase);
        node = g->links.items[at].to;
    }
    return true;
}

static kb_time draw_time(kb_rng *rng, const chance *how)
{
    kb_time span = how->streams && below(rng, 2) ? 10 : 1;
    return how->ties ? (kb_time)below(rng, 12 * (uint64_t)span) * KB_PS
                     : (kb_time)below(rng, (uint64_t)(50 * span) * KB_NS);
}

/* As much as before, or more or less, where an earlier order went. */
static void draw_again(kb_rng *rng, const scenario *s, const chance *how, planned *order)
{
    *order = s->orders.items[below(rng, s->orders.count)];
    if (below(rng, 2))
        order->at = draw_time(rng, how);
    planned_message *message = order->back.bytes > 0 ? &order->back : &order->out;
    if (below(rng, 2))
        message->bytes = draw_bytes(rng, how, s->options.fabric.packet_bytes);
    order->forwarded = below(rng, 4) == 0;
}

static bool draw_order(kb_rng *rng, const scenario *s, const chance *how, planned *order)
{
    const topo_graph *g = &s->graph;
    uint32_t packet = s->options.fabric.packet_bytes;
    if (how->streams && s->orders.count > 0 && below(rng, 3)) {
        draw_again(rng, s, how, order);
        return true;
    }
    *order = (planned){.after = AT_ONCE, .from = (uint32_t)below(rng, g->nodes.count)};
    order->at = draw_time(rng, how);
    if (how->chained && s->orders.count > 0 && below(rng, 2)) {
        order->after = (uint32_t)below(rng, s->orders.count);
        order->at = below(rng, 2) ? 0 : order->at;
    }
    bool up = below(rng, 3) != 0;
    planned_message *out = &order->out, *back = &order->back;
    if (is_port(g, order->from) || !draw_way(rng, s, order->from, up, TOPO_NONE, out))
        return false;
    out->bytes = draw_bytes(rng, how, packet);
    uint32_t end = g->links.items[topo_step_link(out->steps[out->count - 1])].to;
    if (up && below(rng, 2)) { /* a read */
        if (!draw_way(rng, s, end, false, order->from, back))
            return false;
        back->bytes = draw_bytes(rng, how, packet);
        if (!how->ties)
            out->bytes = NET_REQUEST_BYTES;
    } else if (is_memory(g, end)) {
        out->steps[out->count++] = topo_step(g->nodes.items[end].service, TOPO_AFTER);
    }
    order->reply = !up && below(rng, 2);
    order->forwarded = below(rng, 4) == 0;
    return true;
}

static void draw_nodes(kb_rng *rng, const chance *how, uint32_t nodes, topo_graph *g)
{
    static const uint8_t ports[] = {TOPO_UCIE, TOPO_UCIE, TOPO_IO_UCIE, TOPO_SIP_PORT};
    uint64_t often = 1 + below(rng, 4);
    for (uint32_t i = 0; i < nodes; i++) {
        topo_node node = {.overhead_fs = draw_latency(rng, how)};
        if (i > 0 && i < nodes - 1 && below(rng, 1 + often) == 0)
            node.kind = ports[below(rng, sizeof ports / sizeof *ports)];
        (void)topo_graph_add_node(g, node);
    }
}

/* A line up and a line down, so that there are routes, and links across, but not at ports. */
static void draw_links(kb_rng *rng, const chance *how, uint32_t nodes, topo_graph *g)
{
    uint64_t common = draw_rate(rng, how);
    uint32_t line = 2 * (nodes - 1), across = (uint32_t)below(rng, line + 2);
    bool equal = below(rng, 3) == 0;
    for (uint32_t i = 0; i < line + across; i++) {
        uint32_t from = i / 2, to = i / 2 + 1;
        if (i >= line) {
            from = (uint32_t)below(rng, nodes - 1);
            to = from + 1 + (uint32_t)below(rng, nodes - 1 - from);
            if (is_port(g, from) || is_port(g, to))
                continue;
        }
        uint64_t rate = equal ? common : draw_rate(rng, how);
        bool down = i % 2;
        (void)topo_graph_add_link(g, down ? to : from, down ? from : to, rate,
                                  draw_latency(rng, how));
        uint32_t memory = (uint32_t)below(rng, nodes);
        if (below(rng, 8) == 0 && !is_memory(g, memory) && !is_port(g, memory))
            topo_graph_add_service(g, memory, draw_rate(rng, how));
    }
}

void scenario_random(scenario *s, kb_rng *rng, const chance *how)
{
    static const uint32_t sizes[] = {1, 3, 16, 64, 100, 256};
    scenario_init(
        s, (net_options){
               .fabric.packet_bytes = how->ties ? 1 + (uint32_t)below(rng, 4)
                                                : sizes[below(rng, sizeof sizes / sizeof *sizes)],
               .fabric.vcs = 1 + (uint32_t)(below(rng, 2) * below(rng, how->streams ? 4 : 3)),
               .fabric.serial_ports = how->serial,
           });
    if (below(rng, 2))
        s->options.fabric.depth_bytes =
            (uint32_t)below(rng, 6) * s->options.fabric.packet_bytes / 2;
    s->submit_first = below(rng, 2);
    uint32_t nodes = 2 + (uint32_t)below(rng, 6);
    draw_nodes(rng, how, nodes, &s->graph);
    draw_links(rng, how, nodes, &s->graph);
    if (how->large) {
        uint32_t a = scenario_node(s, 0), b = scenario_node(s, 0);
        for (uint32_t i = 0; i < 300; i++)
            (void)scenario_link(s, a, b, 64, 0);
        s->options.fabric.vcs = NET_MAX_VCS;
    }
    uint32_t wanted = 1 + (uint32_t)below(rng, how->most_orders);
    for (uint32_t tries = 0; s->orders.count < wanted && tries < 20 * wanted; tries++) {
        planned order;
        if (draw_order(rng, s, how, &order))
            (void)add_order(s, &order);
    }
}

static void print_planned_message(const char *name, const planned_message *message)
{
    print_error(" %s %ju bytes over", name, (uintmax_t)message->bytes);
    for (uint32_t i = 0; i < message->count; i++)
        print_error(" %u.%d", topo_step_link(message->steps[i]),
                    (int)topo_step_phase(message->steps[i]));
}

void scenario_print(const scenario *s)
{
    print_error("packets of %u, vcs %u, depth %u%s, submissions %s\n",
                s->options.fabric.packet_bytes, s->options.fabric.vcs,
                s->options.fabric.depth_bytes, s->options.fabric.serial_ports ? ", serial" : "",
                s->submit_first ? "first" : "last");
    for (uint32_t i = 0; i < s->graph.nodes.count; i++)
        print_error("node %u: %" PRId64 " fs, kind %u\n", i, s->graph.nodes.items[i].overhead_fs,
                    s->graph.nodes.items[i].kind);
    for (uint32_t i = 0; i < s->graph.links.count; i++)
        print_error("link %u: %u > %u, %ju B/s, wire %" PRId64 " fs\n", i,
                    s->graph.links.items[i].from, s->graph.links.items[i].to,
                    (uintmax_t)topo_link_rate(&s->graph, i), s->graph.links.items[i].wire_fs);
    for (uint32_t i = 0; i < s->orders.count; i++) {
        const planned *p = &s->orders.items[i];
        print_error("order %u: at %" PRId64 " after %d%s%s:", i, p->at, (int)p->after,
                    p->reply ? " (a reply)" : "", p->forwarded ? " (forwarded)" : "");
        print_planned_message("out", &p->out);
        if (p->back.bytes > 0)
            print_planned_message("; back", &p->back);
        print_error("\n");
    }
}
