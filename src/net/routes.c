/*
 * routes.c: the route cache, with one entry per (source, destination, kind).
 *
 * A PE exchanges messages with few nodes, so its routes and what follows from them are computed
 * once. When there are many entries, those without a message under way are evicted. The content of
 * the cache has no influence on results.
 */
#include "routes.h"

#include <stdlib.h>
#include <string.h>

#include "packet_ops.h"

enum { ROUTES_A_SOURCE = 8, MIN_SLOTS_SHIFT = 4 };

void routes_init(routes *all)
{
    *all = (routes){0};
    kb_pool_init(&all->pool, sizeof(route));
}

bool routes_make_table(routes *all, uint32_t sources)
{
    uint32_t bits = MIN_SLOTS_SHIFT;
    while (bits < 31 && (uint64_t)1 << bits < (uint64_t)ROUTES_A_SOURCE / 2 * sources)
        bits++;
    all->shift = 64 - bits;
    all->limit = 2u << bits;
    all->table = kb_alloc_zeroed((size_t)1 << bits, sizeof *all->table);
    return all->table != NULL;
}

void routes_fini(routes *all)
{
    kb_vec_fini(&all->steps);
    kb_pool_fini(&all->pool);
    free(all->table);
}

static size_t slot_count(const routes *all)
{
    return (size_t)1 << (64 - all->shift);
}

size_t routes_table_bytes(const routes *all)
{
    return slot_count(all) * sizeof *all->table;
}

static uint32_t *slot_of(const routes *all, uint32_t from, uint32_t to, uint32_t kind)
{
    /* Fibonacci hashing: the upper bits are the best mixed. */
    uint64_t key = ((uint64_t)from << 32 | to) * 8 + kind;
    return &all->table[(key * UINT64_C(0x9E3779B97F4A7C15)) >> all->shift];
}

/* As many slots as routes, at least; false, with all as it was, if there is no memory. */
static bool widen(net *n)
{
    routes *all = &n->routes;
    routes wide = {.shift = all->shift};
    while (wide.shift > 33 && slot_count(&wide) < all->count)
        wide.shift--;
    wide.table = kb_alloc_zeroed(slot_count(&wide), sizeof *wide.table);
    if (!wide.table)
        return false;
    for (size_t i = 0; i < slot_count(all); i++)
        for (uint32_t index = all->table[i], next; index != NONE; index = next) {
            route *r = route_at(n, index);
            uint32_t *slot = slot_of(&wide, r->from, r->to, r->kind);
            next = r->next;
            r->next = *slot;
            *slot = index;
        }
    free(all->table);
    all->table = wide.table;
    all->shift = wide.shift;
    return true;
}

/* ---- Forgetting -------------------------------------------------------------------------- */

static void forget_unused(net *n)
{
    routes *all = &n->routes;
    for (size_t i = 0; i < slot_count(all); i++) {
        uint32_t *place = &all->table[i];
        while (*place != NONE) {
            uint32_t index = *place;
            route *r = route_at(n, index);
            if (r->uses > 0) {
                place = &r->next;
                continue;
            }
            *place = r->next;
            step_pool_free(&n->step_pool, r->words, r->words_size);
            kb_pool_give(&all->pool, index);
            all->count--;
        }
    }
    if (all->count > all->limit / 2) { /* else they would be looked at again too soon */
        all->limit = 2 * all->count;
        (void)widen(n); /* without, it takes longer to find one */
    }
}

/* ---- Making ------------------------------------------------------------------------------ */

static kb_time packet_time(const topo_pace *pace)
{
    return (kb_time)(pace->quotient + (pace->remainder != 0));
}

static void add_rate(const net *n, route *r, uint32_t index)
{
    const topo_pace *pace = &n->profiles.items[index].pace;
    kb_time time = packet_time(pace);
    for (uint32_t i = 0; i < r->rate_count; i++) {
        const topo_pace *other = &n->profiles.items[r->rates[i]].pace;
        if (other->bytes_per_s == pace->bytes_per_s)
            return;
        kb_time difference = time - packet_time(other);
        if (difference < 3 && difference > -3)
            r->distinct = false;
    }
    if (pace->bytes_per_s < r->slowest->bytes_per_s)
        r->slowest = pace;
    if (r->rate_count < ROUTE_RATES)
        r->rates[r->rate_count++] = index;
    else
        r->distinct = false;
}

void routes_compute_timing(net *n, route *r)
{
    if (KB_LIKELY(r->first != NULL))
        return;
    const uint32_t *step = step_pool_at(&n->step_pool, r->words);
    const topo_pace *before = NULL;
    r->is_simple = true;
    for (uint32_t i = 0; i < r->steps; i++) {
        uint32_t at = step_link(n, step[i]);
        r->is_simple &= (n->links[at].flags & LINK_MARKED) == 0;
        n->links[at].flags |= LINK_MARKED;
        const profile *pr = &n->profiles.items[n->links[at].profile];
        r->node_time = kb_time_add(r->node_time, topo_link_overhead(n->graph, at));
        r->wire_time = kb_time_add(r->wire_time, n->graph->links.items[at].wire_fs);
        r->latency = pr->latency > FARTHEST - r->latency ? KB_FOREVER : r->latency + pr->latency;
        if (&pr->pace == before)
            continue;
        if (i == 0)
            r->first = r->slowest = &pr->pace;
        add_rate(n, r, n->links[at].profile);
        before = &pr->pace;
    }
    for (uint32_t i = 0; i < r->steps; i++)
        n->links[step_link(n, step[i])].flags &= (uint8_t)~LINK_MARKED;
}

static kb_error *make(net *n, uint32_t from, uint32_t to, uint32_t kind, const net_message *message,
                      uint32_t *index)
{
    routes *all = &n->routes;
    uint32_t first_link = topo_step_link(message->steps[0]);
    KB_ASSERT(n->injection_of[first_link] != NOTHING);
    if (all->count >= all->limit)
        forget_unused(n);
    uint8_t size;
    uint32_t words = step_pool_alloc(&n->step_pool, message->count, &size);
    *index = words != NONE ? kb_pool_take(&all->pool) : NONE;
    if (*index == NONE) {
        if (words != NONE)
            step_pool_free(&n->step_pool, words, size);
        return kb_error_nomem();
    }
    for (uint32_t i = 0; i < message->count; i++)
        step_pool_at(&n->step_pool, words)[i] =
            step_make(n, message->steps[i], (kind & ROUTE_RESPONSE) != 0);

    bool from_memory = n->graph->nodes.items[from].service != TOPO_NONE;
    uint32_t *slot = slot_of(all, from, to, kind);
    route *r = route_at(n, *index);
    *r = (route){
        .from = from,
        .to = to,
        .next = *slot,
        .words = words,
        .steps = (uint16_t)message->count,
        .kind = (uint8_t)kind,
        .words_size = size,
        .injection = n->injection_of[first_link] + ((kind & ROUTE_RESPONSE) != 0),
        .reader = from_memory ? to : 0,
        .first_link = first_link,
        .last_link = topo_step_link(message->steps[message->count - 1]),
        .overhead = topo_source_overhead(n->graph, from),
        .from_memory = from_memory,
        .distinct = true,
    };
    *slot = *index;
    all->count++;
    return NULL;
}

/* ---- Finding ----------------------------------------------------------------------------- */

/* A message that names its route must take exactly that one. */
static bool is_way_of(const net *n, const route *r, const net_message *message)
{
    const uint32_t *words = step_pool_at(&n->step_pool, r->words);
    if (r->steps != message->count)
        return false;
    for (uint32_t i = 0; i < message->count; i++)
        if (words[i] != step_make(n, message->steps[i], (r->kind & ROUTE_RESPONSE) != 0))
            return false;
    return true;
}

static kb_error *make_routed(net *n, const topo_machine *machine, uint32_t from, uint32_t to,
                             uint32_t kind, const net_message *message, uint32_t *index)
{
    if (!kb_vec_reserve(&n->routes.steps, topo_machine_shape(machine)->max_steps))
        return kb_error_nomem();
    net_message routed = {.steps = n->routes.steps.items, .bytes = message->bytes};
    routed.count = topo_route(machine, from, to, (kind & ROUTE_DATA) != 0, n->routes.steps.items);
    if (routed.count == 0 || routed.count > NET_MAX_STEPS)
        return net_bad_message(&routed);
    return make(n, from, to, kind, &routed, index);
}

kb_error *routes_acquire(net *n, const topo_machine *machine, uint32_t from, uint32_t to,
                         uint32_t kind, const net_message *message, uint32_t *index)
{
    if (!machine)
        kind |= ROUTE_GIVEN;
    for (uint32_t i = *slot_of(&n->routes, from, to, kind); i != NONE;) {
        route *r = route_at(n, i);
        if (KB_LIKELY(r->from == from && r->to == to && r->kind == kind &&
                      (machine || is_way_of(n, r, message)))) {
            r->uses++;
            *index = i;
            return NULL;
        }
        i = r->next;
    }
    KB_TRY(message->count == 0 ? make_routed(n, machine, from, to, kind, message, index)
                               : make(n, from, to, kind, message, index));
    route_at(n, *index)->uses++;
    return NULL;
}
