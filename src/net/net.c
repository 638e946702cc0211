/*
 * net.c: making a net, submitting transfers, and what is known of them when they are done.
 */
#include <stdlib.h>
#include <string.h>

#include "fabric.h"
#include "sim/sim.h"
#include "train.h"

/* ---- Making a net ------------------------------------------------------------------------ */

/* Whether transfers may begin at nodes of this kind. */
static bool is_end(uint8_t kind)
{
    switch ((topo_kind)kind) {
    case TOPO_SWITCH:
    case TOPO_IO_NOC:
    case TOPO_IO_UCIE:
    case TOPO_SIP_PORT:
    case TOPO_ROUTER:
    case TOPO_UCIE:
    case TOPO_XBAR:
        return false;
    default:
        return true;
    }
}

/*
 * What a channel holds: its depth, beside what is on its way in while the head travels; and at
 * least that in whole packets and one more. With less a lone transfer would be held up by its own
 * packets, since a packet takes its space as a whole when it starts and gives it back when its tail
 * has left.
 */
static uint64_t capacity_of(const net_options *options, uint64_t moving)
{
    uint64_t packets = (moving + options->fabric.packet_bytes - 1) / options->fabric.packet_bytes;
    uint64_t least = (packets + 1) * options->fabric.packet_bytes;
    uint64_t wished = moving + options->fabric.depth_bytes;
    return wished > least ? wished : least;
}

/* What is on its way in; or a large number if that is more. */
static uint64_t moving_of(uint64_t bytes_per_s, kb_time latency)
{
    __extension__ typedef unsigned __int128 wide;
    const uint64_t fs_per_s = (uint64_t)KB_S;
    wide moving = ((wide)bytes_per_s * (uint64_t)latency + fs_per_s - 1) / fs_per_s;
    return moving > UINT32_MAX ? UINT32_MAX : (uint64_t)moving;
}

/* The longest that a full packet takes on the link or on one out of the node behind it. */
static kb_time clearance_of(const net *n, uint32_t at)
{
    const topo_graph *g = n->graph;
    uint32_t node = g->links.items[at].to;
    uint64_t slowest = topo_link_rate(g, at);
    for (uint32_t i = g->first_out[node]; i < g->first_out[node + 1]; i++) {
        uint64_t rate = topo_link_rate(g, g->out[i]);
        slowest = rate < slowest ? rate : slowest;
    }
    return topo_rate_time(slowest, n->options.fabric.packet_bytes);
}

/* The index of the link's profile; links of a kind share one. */
static kb_error *add_profile(net *n, uint32_t at, uint16_t *index)
{
    const topo_link *l = &n->graph->links.items[at];
    uint64_t rate = topo_link_rate(n->graph, at);
    kb_time latency = kb_time_add(l->wire_fs, topo_link_overhead(n->graph, at));
    kb_time clearance = clearance_of(n, at);
    /* Links of a kind stand together, so the newest profiles are the likeliest. */
    for (size_t i = n->profiles.count; i-- > 0;) {
        const profile *known = &n->profiles.items[i];
        if (known->pace.bytes_per_s == rate && known->latency == latency &&
            known->clearance == clearance) {
            *index = (uint16_t)i;
            return NULL;
        }
    }
    uint64_t moving = moving_of(rate, latency);
    uint64_t capacity = capacity_of(&n->options, moving);
    if (capacity > MAX_SPACE)
        return kb_error_new(KB_ERR_INPUT,
                            "a link of %.9g GB/s with a latency of %.9g ns needs buffers of "
                            "more than 1 GiB per virtual channel",
                            (double)rate / 1e9, (double)latency / (double)KB_NS);
    topo_pace pace = topo_pace_make(rate, n->options.fabric.packet_bytes);
    bool even = topo_pace_is_even(&pace, n->options.fabric.packet_bytes);
    uint32_t most = (uint32_t)capacity - n->options.fabric.packet_bytes;
    profile fresh = {.pace = pace,
                     .latency = latency,
                     .clearance = clearance,
                     .capacity = (uint32_t)capacity,
                     .max_space = most << SPACE_SHIFT | SPACE_TAKEN | SPACE_AWAITED,
                     .even_bytes = even ? n->options.fabric.packet_bytes : 0,
                     /* The packets that came within the latency, the one before, and one more. */
                     .roomy = latency == 0 ||
                              capacity >= moving + 2 * (uint64_t)n->options.fabric.packet_bytes};
    if (n->profiles.count > UINT16_MAX)
        return kb_error_new(KB_ERR_INPUT, "machine too large: more than %d kinds of links",
                            UINT16_MAX);
    *index = (uint16_t)n->profiles.count;
    return kb_vec_push(&n->profiles, fresh) ? NULL : kb_error_nomem();
}

/* Whether transfers may begin at the link: those of a memory begin with its service. */
static bool may_begin_at(const topo_graph *graph, uint32_t at)
{
    const topo_node *from = &graph->nodes.items[graph->links.items[at].from];
    return is_end(from->kind) && (from->service == TOPO_NONE || from->service == at);
}

enum { LARGE_BYTES = 1 << 20 };

static kb_error *init_links(net *n)
{
    size_t count = n->graph->links.count;
    n->links = kb_alloc_large(count, sizeof *n->links);
    n->injection_of = kb_alloc_array(count, sizeof *n->injection_of);
    n->waited = kb_alloc_zeroed(count, sizeof *n->waited);
    if (!n->links || !n->injection_of || !n->waited)
        return kb_error_nomem();
    if (n->options.fabric.serial_ports) {
        n->ports = kb_alloc_array(count, sizeof *n->ports);
        if (!n->ports || !pending_set_init(&n->pending, 2 * count))
            return kb_error_nomem();
        for (size_t i = 0; i < count; i++)
            n->ports[i] = (port){.last_taker = NOTHING, .bids = NOTHING, .last_feeder = NOTHING};
    }
    uint64_t channels = (uint64_t)count << n->channel_shift;
    n->injection_base = (uint32_t)channels;
    for (uint32_t at = 0; at < count; at++) {
        n->links[at] =
            (link){.free_at = -1, .credit_channel = NOTHING, .ready = NOTHING, .blocked = NOTHING};
        KB_TRY(add_profile(n, at, &n->links[at].profile));
        bool source = may_begin_at(n->graph, at);
        n->injection_of[at] = source ? (uint32_t)channels : NOTHING;
        channels += source ? 2 : 0;
    }
    uint64_t places =
        n->options.first_source + (n->ports ? 3 : 2) * count + channels - n->injection_base;
    if (channels > MAX_CHANNELS || places > KB_SOURCE_ID_MAX + (uint64_t)1)
        return kb_error_new(KB_ERR_INPUT,
                            "machine too large: %zu links need %ju virtual channels (maximum "
                            "%d) and %ju event sources (maximum %u)",
                            count, (uintmax_t)channels, MAX_CHANNELS, (uintmax_t)places,
                            KB_SOURCE_ID_MAX + 1);
    n->channel_count = (uint32_t)channels;
    n->channels = kb_alloc_large(channels, sizeof *n->channels);
    n->last_begun = kb_alloc_zeroed(channels - n->injection_base + 1, sizeof *n->last_begun);
    n->tries = kb_alloc_zeroed(channels - n->injection_base + 1, sizeof *n->tries);
    if (!n->channels || !n->last_begun || !n->tries)
        return kb_error_nomem();
    memset(n->channels, 0, channels * sizeof *n->channels);
    n->is_large = channels * sizeof *n->channels > LARGE_BYTES;
    return NULL;
}

static kb_error *check_options(const net_options *options)
{
    if (options->fabric.packet_bytes < 1 || options->fabric.packet_bytes > NET_MAX_PACKET_BYTES ||
        options->fabric.vcs < 1 || options->fabric.vcs > NET_MAX_VCS ||
        options->fabric.depth_bytes > NET_MAX_DEPTH_BYTES)
        return kb_error_new(KB_ERR_BUG,
                            "fabric settings out of range: packet_bytes %u, vcs %u, "
                            "depth_bytes %u",
                            options->fabric.packet_bytes, options->fabric.vcs,
                            options->fabric.depth_bytes);
    return NULL;
}

static const packet_engine *select_engine(const net_options *options)
{
    if (options->no_elision)
        return options->fabric.serial_ports ? &engine_serial_reference : &engine_parallel_reference;
    return options->fabric.serial_ports ? &engine_serial : &engine_parallel;
}

static kb_error *add_handlers(net *n)
{
    kb_handler *const numbers[EVENT_KINDS] = {
        [EVENT_ARRIVAL] = &n->on_arrival, [EVENT_GRANT] = &n->on_grant,
        [EVENT_SPACE] = &n->on_space,     [EVENT_CREDIT] = &n->on_credit,
        [EVENT_INJECT] = &n->on_inject,   [EVENT_ACCEPT] = &n->on_accept,
        [EVENT_PENDING] = &n->on_pending, [EVENT_END] = &n->on_end,
    };
    for (uint32_t kind = 0; kind < EVENT_KINDS; kind++) {
        KB_TRY(kb_sim_add_handler(n->sim, n->engine->handlers[kind], n, numbers[kind]));
        KB_ASSERT(*numbers[kind] == n->on_arrival + kind);
        kb_sim_name_work(n->sim, *numbers[kind], "a transfer");
    }
    return NULL;
}

/*
 * A packet that starts on a link has times that are later by at most what it takes on any link, and
 * the latency of this one; and on the next link there is its clearance.
 */
static void find_fast_until(net *n)
{
    enum { ROUNDING = 8 };
    kb_time occupancy = 0, latency = 0;
    for (size_t i = 0; i < n->profiles.count; i++) {
        const profile *pr = &n->profiles.items[i];
        occupancy = pr->clearance > occupancy ? pr->clearance : occupancy;
        latency = pr->latency > latency ? pr->latency : latency;
    }
    n->fast_until = KB_FOREVER - ROUNDING - kb_time_add(kb_time_add(occupancy, occupancy), latency);
    if (n->watch)
        n->fast_until = -1;
}

/* A step has a class of channels: request and reply are kept apart, and so are phases. */
static void make_open_steps(net *n)
{
    for (uint32_t reply = 0; reply < 2; reply++)
        for (uint32_t phase = TOPO_BEFORE; phase <= TOPO_WRAPPED; phase++) {
            uint32_t class = phase == TOPO_WRAPPED ? CLASSES - 1 : 2 * reply + phase;
            n->open_steps[reply][phase] =
                class * n->options.fabric.vcs | (n->options.fabric.vcs > 1 ? STEP_OPEN : 0);
        }
}

kb_error *net_create(kb_sim *sim, const topo_graph *graph, const net_options *options, net **out)
{
    *out = NULL;
    KB_TRY(check_options(options));
    net *n = kb_alloc_zeroed(1, sizeof *n);
    if (!n)
        return kb_error_nomem();
    n->sim = sim;
    n->events = kb_sim_events(sim);
    n->clock = kb_sim_get_clock(sim);
    n->graph = graph;
    n->options = *options;
    kb_pool_init(&n->packets, sizeof(packet));
    kb_pool_init(&n->transfers, sizeof(transfer));
    routes_init(&n->routes);
    KB_ASSERT(n->packets.stride == PACKET_STRIDE && n->transfers.stride == TRANSFER_STRIDE &&
              n->routes.pool.stride == ROUTE_STRIDE);
    step_pool_init(&n->step_pool);

    /* Only rings of SIPs wrap around; other machines need not have that class. */
    uint32_t classes = CLASSES - 1;
    for (size_t i = 0; i < graph->nodes.count; i++)
        if (graph->nodes.items[i].kind == TOPO_SIP_PORT)
            classes = CLASSES;
    n->channels_per_link = classes * options->fabric.vcs;
    KB_ASSERT(n->channels_per_link > 0);
    while (1u << n->channel_shift < n->channels_per_link)
        n->channel_shift++;
    n->engine = select_engine(options);
    make_open_steps(n);

    kb_error *err = init_links(n);
    find_fast_until(n);
    if (!err && !routes_make_table(&n->routes, (n->channel_count - n->injection_base) / 2))
        err = kb_error_nomem();
    if (!err)
        err = add_handlers(n);
    if (err) {
        net_destroy(n);
        return err;
    }
    *out = n;
    return NULL;
}

void net_destroy(net *n)
{
    if (!n)
        return;
    kb_vec_fini(&n->to_offer);
    kb_vec_fini(&n->to_meet);
    kb_vec_fini(&n->to_clear);
    kb_vec_fini(&n->departures);
    kb_vec_fini(&n->stages);
    step_pool_fini(&n->step_pool);
    routes_fini(&n->routes);
    kb_pool_fini(&n->transfers);
    kb_pool_fini(&n->packets);
    kb_vec_fini(&n->profiles);
    free(n->channels);
    free(n->tries);
    free(n->last_begun);
    free(n->waited_high);
    free(n->waited);
    free(n->injection_of);
    pending_set_fini(&n->pending);
    free(n->ports);
    free(n->links);
    free(n);
}

uint32_t net_source_count(const net *n)
{
    uint32_t of_a_link = n->ports ? 3 : 2; /* arrivals, grants, and what serial ports accept */
    return of_a_link * (uint32_t)n->graph->links.count + n->channel_count - n->injection_base;
}

/* ---- Receipts ---------------------------------------------------------------------------- */

/* Adds what a lone transfer takes for this message, without the overhead of the node it starts at.
 */
static void foresee_leg(const net *n, const net_message *message, net_completion *completion)
{
    const topo_graph *g = n->graph;
    uint64_t slowest = TOPO_RATE_MAX;
    for (uint32_t i = 0; i < message->count; i++) {
        uint32_t at = topo_step_link(message->steps[i]);
        uint64_t rate = topo_link_rate(g, at);
        completion->overhead = kb_time_add(completion->overhead, topo_link_overhead(g, at));
        completion->wire = kb_time_add(completion->wire, g->links.items[at].wire_fs);
        slowest = rate < slowest ? rate : slowest;
    }
    if (message->count > 0)
        completion->drain = kb_time_add(completion->drain, topo_rate_time(slowest, message->bytes));
}

static uint32_t end_of_leg(const net *n, uint32_t from, const net_message *message)
{
    return message->count == 0
               ? from
               : n->graph->links.items[topo_step_link(message->steps[message->count - 1])].to;
}

net_completion net_predict(const net *n, const net_order *order)
{
    net_completion completion = {0};
    completion.overhead = order->forwarded ? 0 : topo_source_overhead(n->graph, order->from);
    foresee_leg(n, &order->request, &completion);
    if (order->response.bytes > 0) {
        uint32_t end = end_of_leg(n, order->from, &order->request);
        completion.overhead = kb_time_add(completion.overhead, topo_source_overhead(n->graph, end));
        foresee_leg(n, &order->response, &completion);
    }
    completion.ended =
        kb_time_add(kb_time_add(completion.overhead, completion.wire), completion.drain);
    return completion;
}

/* ---- Transfers --------------------------------------------------------------------------- */

bool net_need_own_route(net *n, uint32_t t)
{
    transfer *tr = transfer_at(n, t);
    if (tr->own_route != NONE)
        return true;
    const route *r = route_of(n, tr);
    tr->own_route = step_pool_alloc(&n->step_pool, r->steps + 2u, &tr->own_route_size);
    if (tr->own_route == NONE)
        return false;
    uint32_t *path = step_pool_at(&n->step_pool, tr->own_route);
    memcpy(path, step_pool_at(&n->step_pool, r->words), r->steps * sizeof *path);
    path[r->steps] = END_OF_ROUTE;
    path[r->steps + 1] = t;
    return true;
}

/* The message in hand has ended, or will not begin. */
static void leave_route(net *n, transfer *tr)
{
    if (tr->own_route != NONE)
        step_pool_free(&n->step_pool, tr->own_route, tr->own_route_size);
    tr->own_route = NONE;
    route_of(n, tr)->uses--;
}

static uint64_t packets_of(const net *n, uint64_t bytes)
{
    return (bytes - 1) / n->options.fabric.packet_bytes + 1;
}

/* Puts the message in hand at its source: the second one in the event that ends the first. */
static void begin_leg(net *n, uint32_t t, kb_time now, bool forwarded)
{
    transfer *tr = transfer_at(n, t);
    const route *r = route_of(n, tr);
    tr->packets = r->size == tr->bytes ? r->packets : (uint32_t)packets_of(n, tr->bytes);
    tr->own_route = NONE;
    tr->arrived = false;
    tr->in_train = false;
    tr->deferred = false;
    tr->on_links = false;
    tr->part_of = NONE;
    tr->ready_at = kb_time_add(now, forwarded ? 0 : r->overhead);
    tr->ends_at = tr->ready_at;
    n->engine->begin_message(n, t, tr->returning);
}

kb_error *net_bad_message(const net_message *message)
{
    return kb_error_new(KB_ERR_BUG, "invalid transfer: %ju byte%s over %u link%s",
                        (uintmax_t)message->bytes, kb_plural(message->bytes), message->count,
                        kb_plural(message->count));
}

static kb_error *check_bytes(const net *n, const net_message *message)
{
    if (KB_UNLIKELY(message->bytes == 0 || message->bytes > INT64_MAX))
        return net_bad_message(message);
    if (KB_UNLIKELY(message->bytes > (uint64_t)(MAX_PACKETS - 1) * n->options.fabric.packet_bytes))
        return kb_error_new(
            KB_ERR_INPUT, "transfer too large: %ju bytes exceed %u packets of %u bytes",
            (uintmax_t)message->bytes, MAX_PACKETS - 1, n->options.fabric.packet_bytes);
    return NULL;
}

static kb_error *check_leg(const net *n, uint32_t from, const net_message *message)
{
    uint32_t node = from;
    topo_phase last_phase =
        n->channels_per_link == CLASSES * n->options.fabric.vcs ? TOPO_WRAPPED : TOPO_AFTER;
    if (message->count == 0 || message->count > NET_MAX_STEPS)
        return net_bad_message(message);
    KB_TRY(check_bytes(n, message));
    for (uint32_t i = 0; i < message->count; i++) {
        uint32_t at = topo_step_link(message->steps[i]);
        bool good = at < n->graph->links.count && n->graph->links.items[at].from == node &&
                    (i > 0 || n->injection_of[at] != NOTHING) &&
                    topo_step_phase(message->steps[i]) <= last_phase;
        if (!good)
            return kb_error_new(KB_ERR_BUG,
                                "invalid route: step %u does not continue the one "
                                "before",
                                i);
        node = n->graph->links.items[at].to;
    }
    return NULL;
}

static kb_error *check_order(const net *n, const net_order *order)
{
    bool reads = order->response.bytes > 0;
    if (order->machine) {
        KB_TRY(check_bytes(n, &order->request));
        return reads ? check_bytes(n, &order->response) : NULL;
    }
    KB_TRY(check_leg(n, order->from, &order->request));
    return reads ? check_leg(n, end_of_leg(n, order->from, &order->request), &order->response)
                 : NULL;
}

/* The routes of an order; `back` is NONE unless it reads. */
static kb_error *use_routes(net *n, const net_order *order, uint32_t *out, uint32_t *back)
{
    bool reads = order->response.bytes > 0;
    uint32_t to = order->machine ? order->to : end_of_leg(n, order->from, &order->request);
    uint32_t kind = (reads ? 0 : ROUTE_DATA) | (order->is_response ? ROUTE_RESPONSE : 0);
    *back = NONE;
    KB_TRY(routes_acquire(n, order->machine, order->from, to, kind, &order->request, out));
    if (!reads)
        return NULL;
    uint32_t end = order->machine ? order->from : end_of_leg(n, to, &order->response);
    kb_error *err = routes_acquire(n, order->machine, to, end, ROUTE_DATA | ROUTE_RESPONSE,
                                   &order->response, back);
    if (err)
        route_at(n, *out)->uses--;
    return err;
}

/* Adds what a lone transfer takes for a message, without the overhead of the node it starts at. */
static void foresee_route(net *n, route *r, uint64_t bytes, transfer *tr)
{
    routes_compute_timing(n, r);
    tr->overhead = kb_time_add(tr->overhead, r->node_time);
    tr->wire = kb_time_add(tr->wire, r->wire_time);
    tr->drain = kb_time_add(tr->drain, topo_rate_time(r->slowest->bytes_per_s, bytes));
}

static void foresee(net *n, const net_order *order, transfer *tr)
{
    route *out = route_of(n, tr);
    tr->wire = tr->drain = 0;
    tr->overhead = order->forwarded ? 0 : out->overhead;
    foresee_route(n, out, order->request.bytes, tr);
    if (tr->response != NONE) {
        tr->overhead = kb_time_add(tr->overhead, route_at(n, tr->response)->overhead);
        foresee_route(n, route_at(n, tr->response), order->response.bytes, tr);
    }
}

kb_error *net_submit(net *n, const net_order *order)
{
    uint32_t out, back;
    KB_TRY(check_order(n, order));
    KB_TRY(use_routes(n, order, &out, &back));
    uint32_t t = kb_pool_take(&n->transfers);
    if (t == NONE) {
        route_at(n, out)->uses--;
        if (back != NONE)
            route_at(n, back)->uses--;
        return kb_error_nomem();
    }
    transfer *tr = transfer_at(n, t);
    tr->route = out;
    tr->response = back;
    tr->bytes = order->request.bytes;
    tr->response_bytes = order->response.bytes;
    tr->returning = false;
    tr->issued = kb_sim_now(n->sim);
    tr->done = order->done;
    tr->self = order->self;
    tr->arg = order->arg;
    tr->plain = order->plain;
    if (!order->plain)
        foresee(n, order, tr);
    begin_leg(n, t, tr->issued, order->forwarded);
    return NULL;
}

void net_end_message(net *n, uint32_t t)
{
    transfer *tr = transfer_at(n, t);
    leave_route(n, tr);
    if (tr->response != NONE) {
        tr->route = tr->response;
        tr->response = NONE;
        tr->bytes = tr->response_bytes;
        tr->returning = true;
        begin_leg(n, t, n->now, false);
        return;
    }
    net_completion completion = {.issued = tr->issued, .ended = tr->ends_at};
    if (!tr->plain) {
        completion.overhead = tr->overhead;
        completion.wire = tr->wire;
        completion.drain = tr->drain;
    }
    completion.queueing = completion.ended - completion.issued - completion.overhead -
                          completion.wire - completion.drain;
    net_done_fn *done = tr->done;
    void *self = tr->self;
    uint64_t arg = tr->arg;
    kb_pool_give(&n->transfers, t);
    n->done++;
    if (done)
        done(self, arg, &completion);
}

/* ---- Statistics -------------------------------------------------------------------------- */

void net_carry_waited(net *n, uint32_t at, uint32_t carry)
{
    if (!n->waited_high)
        n->waited_high = kb_alloc_zeroed(n->graph->links.count, sizeof *n->waited_high);
    if (n->waited_high)
        n->waited_high[at] += carry;
    else
        kb_sim_fail(n->sim, kb_error_nomem());
}

static kb_time_sum get_waited(const net *n, uint32_t at)
{
    return ((kb_time_sum)(n->waited_high ? n->waited_high[at] : 0) << 64) + n->waited[at];
}

net_link_stats net_link_get(const net *n, uint32_t at)
{
    train_remaining rest = train_get_remaining(n, at);
    return (net_link_stats){.bytes = n->links[at].bytes - rest.bytes,
                            .waited_fs = get_waited(n, at) - rest.waited};
}

/* Without what sanitizers put between objects. */
static size_t pool_bytes(const kb_pool *pool)
{
    return pool->chunk_count * KB_POOL_CHUNK * (pool->stride - KB_REDZONE);
}

net_stats net_get_stats(const net *n)
{
    net_stats f = {.hops = n->hops,
                   .transfers = n->done,
                   .live = kb_pool_live(&n->transfers) - n->parts,
                   .live_bytes = pool_bytes(&n->packets) + pool_bytes(&n->transfers) +
                                 pool_bytes(&n->routes.pool) + step_pool_bytes(&n->step_pool)};
    size_t links = n->graph->links.count;
    for (uint32_t at = 0; at < links; at++) {
        f.link_bytes += n->links[at].bytes;
        if (n->links[at].reserved == NONE)
            continue;
        train_remaining rest = train_get_remaining(n, at);
        f.hops -= rest.packets;
        f.link_bytes -= rest.bytes;
    }
    f.state_bytes =
        sizeof *n + links * (sizeof *n->links + sizeof *n->injection_of + sizeof *n->waited) +
        (n->channel_count - n->injection_base) * (sizeof *n->last_begun + sizeof *n->tries) +
        (n->ports ? links * sizeof *n->ports : 0) + pending_set_bytes(&n->pending, 2 * links) +
        routes_table_bytes(&n->routes) + n->channel_count * sizeof *n->channels +
        n->profiles.capacity * sizeof *n->profiles.items;
    return f;
}

/* The statistics include what trains have still to do. */
void net_reset_stats(net *n)
{
    n->hops = 0;
    n->done = 0;
    for (uint32_t at = 0; at < n->graph->links.count; at++) {
        train_remaining rest = train_get_remaining(n, at);
        n->hops += rest.packets;
        n->links[at].bytes = rest.bytes;
        n->waited[at] = (uint64_t)rest.waited;
        if (n->waited_high)
            n->waited_high[at] = 0;
        if (rest.waited >> 64 != 0)
            net_carry_waited(n, at, (uint32_t)(rest.waited >> 64));
    }
}

net_train_stats net_get_train_stats(const net *n)
{
    return n->trains;
}

uint64_t net_channel_bytes(const net *n, uint32_t at)
{
    return n->profiles.items[n->links[at].profile].capacity;
}

uint32_t net_channels_per_link(const net *n)
{
    return n->channels_per_link;
}

void net_watch(net *n, net_watch_fn *fn, void *self)
{
    train_unfold_all(n);
    n->watch = fn;
    n->watcher = self;
    find_fast_until(n);
}
