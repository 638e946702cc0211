/*
 * routes.h: route cache: one entry per (source, destination, kind). Private to net.
 */
#ifndef KB_NET_ROUTES_H
#define KB_NET_ROUTES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "topo/topo.h"
#include "transport.h"

enum {
    ROUTE_RATES = 6
}; /* different rates of a route; with more, only single packets are predicted */

/* The kind of a route, in the key of the cache. */
enum {
    ROUTE_DATA = 1,     /* carries data: memories at its ends spend service time */
    ROUTE_RESPONSE = 2, /* uses response channels */
    ROUTE_GIVEN = 4,    /* the order gave its steps; else it is a route of the machine */
};

/*
 * A route with its timing. Most messages over a route have the same size, so the timing of that
 * size is cached too.
 */
typedef struct route {
    uint32_t from, to;  /* nodes */
    uint32_t uses;      /* messages that use this route now or later */
    uint32_t injection; /* channel where its messages are injected */
    uint8_t kind;
    uint8_t words_size;
    bool from_memory;
    bool distinct;   /* its rates differ by more than rounding */
    bool is_simple;  /* it passes no link twice */
    bool size_whole; /* messages of `size` have full packets only */
    uint16_t steps;
    uint32_t packets;       /* of a message of `size` */
    uint32_t words;         /* its steps in the step pool; read-only */
    uint64_t size;          /* bytes of messages that may move as trains; 0: none yet */
    kb_time overhead;       /* of the source node */
    kb_time drain;          /* of a message of `size` on the slowest link */
    kb_time latency;        /* of all links; KB_FOREVER if too long for trains */
    const topo_pace *first; /* NULL until routes_compute_timing() */
    const topo_pace *slowest;
    uint32_t first_link, last_link;
    uint32_t next;                /* route with the same hash */
    uint32_t reader;              /* destination of messages from a memory; else 0 */
    kb_time node_time, wire_time; /* sums over its nodes, without the first, and wires */
    uint32_t rate_count;
    uint32_t rates[ROUTE_RATES]; /* profiles of links, one per different rate */
} route;

typedef struct routes {
    kb_pool pool;
    uint32_t *table; /* hash table: head of a list of routes */
    uint32_t shift;  /* from a hash to its table index */
    uint32_t count;
    uint32_t limit;         /* with more routes, unused ones are evicted */
    KB_VEC(uint32_t) steps; /* scratch: steps of one route */
} routes;

void routes_init(routes *all);
/* Sizes the table for this number of injection channels. */
KB_MUST_USE bool routes_make_table(routes *all, uint32_t injections);
void routes_fini(routes *all);
size_t routes_table_bytes(const routes *all);

/*
 * Finds or adds the route of a message and adds one use. The route is the machine's, or that of the
 * message's steps, which have been checked, if `machine` is NULL.
 */
KB_MUST_USE kb_error *routes_acquire(net *n, const topo_machine *machine, uint32_t from,
                                     uint32_t to, uint32_t kind, const net_message *message,
                                     uint32_t *index);

/* Computes latency, rates and drain of the route, unless that is done. */
void routes_compute_timing(net *n, route *r);

#endif
