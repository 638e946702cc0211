/*
 * routes.h: the ways that legs take, each kept once, and what is known of it. Private to net.
 */
#ifndef KB_NET_ROUTES_H
#define KB_NET_ROUTES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "topo/topo.h"
#include "transport.h"

enum { ROUTE_RATES = 6 }; /* different ones on a way; with more only single packets are foreseen */

/* What tells ways apart that have the same ends. */
enum {
    ROUTE_DATA = 1,  /* memories at its ends serve what is carried */
    ROUTE_REPLY = 2, /* it takes the channels of replies */
    ROUTE_GIVEN = 4, /* whoever submitted it said which way; else it is the machine's */
};

/*
 * A route, and what is known of it. Most messages over a route are of one size, so what follows
 * from that is kept too.
 */
typedef struct route {
    uint32_t from, to; /* nodes */
    uint32_t uses;     /* messages that take this route or will */
    uint32_t source;   /* the channel where they begin */
    uint8_t kind;
    uint8_t words_size;
    bool from_memory;
    bool distinct;   /* no two rates are so near to each other that rounding may decide */
    bool is_simple;  /* it passes no link twice */
    bool size_whole; /* messages of that size are of full packets */
    uint16_t steps;
    uint32_t packets;       /* of messages of that size */
    uint32_t words;         /* its steps, as a path begins; never written */
    uint64_t size;          /* bytes: messages of this size may go as trains. 0: none yet */
    kb_time overhead;       /* of the node where it begins */
    kb_time drain;          /* of messages of that size on the slowest link */
    kb_time latency;        /* of all links; KB_FOREVER if it is too long for trains */
    const topo_pace *first; /* NULL: latency, rates and so on are not known yet */
    const topo_pace *slowest;
    uint32_t first_link, last_link;
    uint32_t next;                /* route with the same place in the table */
    uint32_t reader;              /* of messages from a memory: where they go; else 0 */
    kb_time node_time, wire_time; /* what its nodes and its wires take, but the first node */
    uint32_t rate_count;
    uint32_t rates[ROUTE_RATES]; /* profiles of links: one for each that is different */
} route;

typedef struct routes {
    kb_pool pool;
    uint32_t *table; /* by hash of ends and kind: the first route, and others behind it */
    uint32_t shift;  /* of a hash */
    uint32_t count;
    uint32_t limit;         /* when there are more, those that nobody uses are forgotten */
    KB_VEC(uint32_t) steps; /* room for the steps of one way */
} routes;

void routes_init(routes *all);
/* For so many places where legs can begin. */
KB_MUST_USE bool routes_make_table(routes *all, uint32_t sources);
void routes_fini(routes *all);
size_t routes_table_bytes(const routes *all);

/*
 * The way of a leg from a node to another, for one more use: the machine's, or if `machine` is NULL
 * that of the leg, which has been checked.
 */
KB_MUST_USE kb_error *routes_use(net *n, const topo_machine *machine, uint32_t from, uint32_t to,
                                 uint32_t kind, const net_leg *leg, uint32_t *index);

/* Finds out what its links are like, unless that is known. */
void routes_survey(net *n, route *r);

#endif
