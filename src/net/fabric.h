/*
 * fabric.h: the state of the transport. Private to net.
 *
 * Numbers N1.. are in docs/invariants.md.
 */
#ifndef KB_NET_FABRIC_H
#define KB_NET_FABRIC_H

#include "net/net.h"
#include "pending_set.h"
#include "routes.h"
#include "sim/sim.h"
#include "step_pool.h"

enum {
    CLASSES = 5, /* request and response, each before and after entering the cube; wrapped around */
    NONE = 0,    /* no packet, no transfer: pools never return index 0 */
};

/*
 * A route step: a channel of the port behind a link. The first packet of a message chooses the
 * channel among the virtual channels of the message's class. Until then the step is the first of
 * these, marked as open.
 */
#define STEP_OPEN (1u << 31)
#define END_OF_ROUTE UINT32_MAX /* no step */

#define VC_OPEN ((uint32_t)NET_MAX_VCS) /* of virtual channels: not chosen yet */
#define VC_OF_ROUTE (VC_OPEN + 1)       /* the one in the message's own route, now or later */
#define VC_PLANNED 128u                 /* and above: the channel is planned, out of turn */

#define NOTHING UINT32_MAX /* no channel */

/* Predicted times are at most this, so that sums do not overflow. */
#define FARTHEST (KB_FOREVER / 4)

/* The parameters that links share. Few differ, so the profiles stay in the L1 cache. */
typedef struct profile {
    topo_pace pace;
    kb_time latency;     /* wire and overhead of the node behind */
    kb_time clearance;   /* of a full packet: on the link, and on any link out of the node behind */
    uint32_t capacity;   /* of each channel behind the link, in bytes */
    uint32_t max_space;  /* `space` of a channel behind the link that has room for a full packet */
    uint32_t even_bytes; /* a packet of this size takes pace.quotient at every place of its
                            message; 0 if none does */
    bool roomy;          /* packets of a link that is not faster never wait for credits */
} profile;

enum {
    LINK_GRANT_PENDING = 1,
    LINK_CREDIT_AWAITED = 2, /* an event is pending for its credit */
    LINK_SPACE = 4,          /* a credit returned to a channel with waiting packets */
    LINK_BUSY = 8,           /* without elision only */
    LINK_PORT_USED =
        16, /* packets have waited or chosen channels behind it and may still be there */
    LINK_FED_AT_ONCE = 32, /* some route reaches it over a link without latency */
    LINK_MARKED = 64,      /* scratch: it is on the route under examination */
};

/*
 * A link with the channels that wait for it. A channel whose first packet needs the link is in
 * `ready`, in round-robin order, or in `blocked` while its next channel is full.
 *
 * The packet that started last occupies space in its previous channel until its tail has left. The
 * link records this as one credit due later. Usually no packet needs the space before that time, so
 * the credit takes no event.
 */
typedef struct link {
    kb_time free_at;    /* busy until here (N1); with serial ports, or time of the next attempt */
    kb_time held_until; /* packets near it have passed it by then, unless they wait */
    kb_time credit_due_at;
    uint32_t credit_channel; /* or NOTHING */
    uint32_t credit_bytes;
    uint32_t ready;    /* last element of a ring of channels, or NOTHING */
    uint32_t blocked;  /* the same */
    uint32_t reserved; /* the earliest reservation; NONE if there is none */
    uint32_t last;     /* step of the last booking: identifies the message */
    uint64_t bytes;    /* at most 10^15 a second for 9,223 s, which is 2^63 */
    uint32_t late;     /* number of late packets that need it */
    uint16_t profile;
    uint8_t flags;
    uint8_t turn; /* next virtual channel in round-robin order */
} link;

_Static_assert(sizeof(link) == 64, "a link is a cache line");

/*
 * With serial ports, one per link: the state of the port behind the link, which sends one packet at
 * a time, and of the link's own arbitration among ports.
 */
typedef struct port {
    kb_time free_at;      /* when the port's next packet may begin to leave */
    uint32_t last_taker;  /* port: the link served last */
    uint32_t bids;        /* port: list of links that request it at this instant, or NOTHING */
    uint32_t next_bid;    /* link: next element of that list */
    uint32_t chosen;      /* link: the channel that it has chosen */
    uint32_t chosen_to;   /* link: next channel of the packet; NOTHING if it arrives */
    uint32_t last_feeder; /* link: the port served last */
} port;

/*
 * A FIFO. A channel of a port holds packets. An injection channel holds the next packet of the
 * transfer in turn and a ring of readers with packets left, each represented by its first transfer.
 */
enum {
    SPACE_TAKEN = 1,   /* allocated to a message that is passing */
    SPACE_AWAITED = 2, /* a packet is blocked because the channel is full */
    SPACE_SHIFT = 2,
};
#define MAX_SPACE (UINT32_MAX >> SPACE_SHIFT)

typedef struct channel {
    uint32_t first; /* packet; NONE if empty */
    union {
        uint32_t last;          /* port: last packet, if there is a first one */
        uint32_t last_transfer; /* injection: the last in turn */
    };
    uint32_t next; /* channel in the ring of the link that it waits for */
    union {
        uint32_t space;          /* port: bytes in use, shifted, and flags */
        uint32_t first_transfer; /* injection: the one in turn, or NONE */
    };
} channel;

enum {
    PACKET_LAST = 1,
    PACKET_ARRIVED = 2,  /* without elision only */
    PACKET_LATE = 2,     /* with elision: a packet ahead in its channel has waited, so its start is
                            not known */
    PACKET_FORESEEN = 4, /* behind others in its channel, with an event for its arrival */
    PACKET_NUMBER_SHIFT = 3,
};
#define MAX_PACKETS (1u << (32 - PACKET_NUMBER_SHIFT))

typedef struct packet {
    kb_time head_at; /* when its head is at the head of the port, overhead included */
    kb_time tail_at;
    uint32_t next_step; /* word of its next step in the step pool */
    uint32_t step;      /* copy of that word; the channel may have been chosen since */
    uint32_t next;      /* packet in its channel; NONE for the last one */
    uint32_t number;    /* index, or bytes of the last packet; shifted, with flags */
} packet;

/*
 * A transfer under way. A plain transfer that moves as trains uses the first two cache lines only.
 */
typedef struct transfer {
    uint32_t route;       /* of the message under way */
    uint32_t response;    /* route of the response while a read's request is under way; else NONE */
    uint64_t bytes;       /* of the message */
    uint32_t packets;     /* of the message */
    uint32_t behind;      /* the next transfer of the same reader */
    uint32_t last_behind; /* of a reader's first transfer: the last of them, or itself */
    uint32_t next;        /* at injection: the first transfer of the next reader */
    kb_time ready_at;     /* at injection */
    kb_time ends_at;      /* of the delivered packets; of a train, of all packets */
    uint32_t own_route;   /* of a message that moves as packets: steps, END_OF_ROUTE, number of the
                             transfer; else NONE */
    uint32_t train;       /* of a train: its reservations */
    uint8_t own_route_size, train_size;
    bool plain;
    bool returning; /* the response of a read is under way */
    bool arrived;   /* at injection */
    bool in_train;
    bool deferred; /* first at injection, behind trains that have not left */
    bool on_links; /* its packets have been injected, or are as soon as possible */

    kb_time start; /* of a train: start of packet 0 on the first link, as if all packets had left
                      without a gap */
    kb_event end;  /* of a train */
    uint64_t response_bytes;
    kb_time issued;
    net_done_fn *done;
    void *self;
    uint64_t arg;
    uint32_t part_of; /* of a train of the first packets of a message, which is cut off: the
                         message; else NONE. It uses the message's own route. */

    kb_time overhead, wire, drain; /* of a completion that is not plain */
    uint32_t made;                 /* packets made at injection; most have left */
    uint32_t delivered;            /* packets that have started on their last link */
    uint32_t train_first;          /* of a train: its first packet; 0 if it is the whole message */
    uint32_t retry_at, retry_gap;  /* the packets from this one on may form a train; packets between
                                      two attempts */
} transfer;

enum {
    PACKET_STRIDE = KB_POOL_STRIDE(sizeof(packet)),
    TRANSFER_STRIDE = KB_POOL_STRIDE(sizeof(transfer)),
    ROUTE_STRIDE = KB_POOL_STRIDE(sizeof(route)),
};

/* The kinds of events. Handlers have consecutive numbers in this order. */
typedef enum event_kind {
    EVENT_ARRIVAL,
    EVENT_GRANT,
    EVENT_SPACE,
    EVENT_CREDIT,
    EVENT_INJECT,
    EVENT_ACCEPT,  /* without elision only */
    EVENT_PENDING, /* with elision and serial ports only */
    EVENT_END,
    EVENT_KINDS,
} event_kind;

/*
 * A packet engine, compiled for some options (packet_engine.inc). begin_message() injects a
 * message; in the event of another message's end it is the last call. offer() takes packet `p`, the
 * first of channel `c`, when it has arrived: the packet starts, or the channel waits.
 */
typedef struct packet_engine {
    void (*begin_message)(net *n, uint32_t t, bool in_end);
    void (*offer)(net *n, uint32_t c, uint32_t p);
    kb_handler_fn *handlers[EVENT_KINDS];
} packet_engine;

extern const packet_engine engine_parallel, engine_serial, engine_parallel_reference,
    engine_serial_reference;

/* How often trains are attempted at an injection channel. */
typedef struct injection_tries {
    uint16_t skip_hops; /* of messages that go as packets without being tried as trains */
    uint16_t failures;  /* trains that have failed since one ended whole, up to a limit */
} injection_tries;

typedef struct stage stage; /* see unfold.c */
typedef struct visit visit; /* see conflict.h */

struct net {
    kb_sim *sim;
    kb_eventset *events; /* of sim */
    kb_clock *clock;     /* of sim */
    const topo_graph *graph;
    net_options options;
    uint32_t channels_per_link;
    uint32_t channel_shift;                   /* channels of links are a power of two apart */
    bool is_large;                            /* its state is much larger than caches */
    uint32_t open_steps[2][TOPO_WRAPPED + 1]; /* by is_response and phase: step of the first link */
    const packet_engine *engine;

    link *links;
    port *ports;             /* one a link, or NULL if ports are not serial */
    pending_set pending;     /* with serial ports: links that choose now, then ports that accept */
    channel *channels;       /* of links, 2^channel_shift each; then for injection */
    uint32_t *injection_of;  /* by link: the channel for requests; that for responses follows */
    uint32_t injection_base; /* first injection channel */
    uint32_t channel_count;
    KB_VEC(profile) profiles;

    uint64_t *waited;      /* by link: waiting time of all packets in fs, lower 64 bits of 96 */
    uint32_t *waited_high; /* upper 32 bits; NULL while all are 0 */
    uint32_t *last_begun;  /* by injection channel: the last transfer that began as packets; NONE if
                              it has ended */
    injection_tries *tries; /* by injection channel */
    kb_pool packets;
    kb_pool transfers;
    routes routes;
    step_pool step_pool;
    KB_VEC(stage) stages; /* scratch for unfolding a train */
    KB_VEC(kb_time) departures;
    KB_VEC(uint32_t) to_clear; /* links whose trains must be unfolded */
    KB_VEC(visit) to_meet;     /* packets of trains under unfolding that arrive at links */
    KB_VEC(uint32_t) to_offer; /* channels whose first packet must be offered */
    bool is_unfolding;

    kb_handler on_arrival, on_grant, on_space, on_credit, on_inject, on_accept, on_pending, on_end;
    kb_time now;        /* in a handler: time of the current event */
    uint32_t current;   /* and its source id */
    kb_time fast_until; /* packets that start until then have times far from the end of the clock;
                           -1 while bookings are watched */

    uint32_t parts; /* transfers that are parts of others */
    uint64_t hops;
    uint64_t done;
    uint64_t arrivals;  /* injected messages: sequence numbers of their events */
    uint64_t delivered; /* ended transfers: sequence numbers of their events */
    net_train_stats trains;
    net_watch_fn *watch;
    void *watcher;
};

enum { MAX_CHANNELS = 1 << 27 };

static inline uint32_t link_of(const net *n, uint32_t c)
{
    return c >> n->channel_shift;
}

static inline uint32_t first_channel(const net *n, uint32_t at)
{
    return at << n->channel_shift;
}

static inline uint32_t *last_begun_at(const net *n, uint32_t source)
{
    return &n->last_begun[source - n->injection_base];
}

static inline injection_tries *tries_at(const net *n, uint32_t source)
{
    return &n->tries[source - n->injection_base];
}

/* kb_pool_at(), with a stride that the compiler knows. */
static inline __attribute__((always_inline)) void *pool_at(const kb_pool *pool, size_t stride,
                                                           uint32_t index)
{
    KB_DEBUG_ASSERT(index != 0 && index < pool->used && stride == pool->stride);
    return pool->chunks[index >> KB_POOL_SHIFT] + (index & (KB_POOL_CHUNK - 1)) * stride;
}

static inline transfer *transfer_at(const net *n, uint32_t index)
{
    return pool_at(&n->transfers, TRANSFER_STRIDE, index);
}

static inline route *route_at(const net *n, uint32_t index)
{
    return pool_at(&n->routes.pool, ROUTE_STRIDE, index);
}

static inline route *route_of(const net *n, const transfer *tr)
{
    return route_at(n, tr->route);
}

/* Returns the channel, or the first one of the class while the step is open. */
static inline uint32_t step_channel(uint32_t step)
{
    return step & ~STEP_OPEN;
}

static inline uint32_t step_link(const net *n, uint32_t step)
{
    return link_of(n, step_channel(step));
}

/* Returns the first virtual channel of the channel's class; it identifies the class. */
static inline uint32_t class_of(const net *n, uint32_t c)
{
    uint32_t of_link = c - first_channel(n, link_of(n, c));
    return c - of_link % n->options.fabric.vcs;
}

/* Returns the index of the virtual channel in its class, or VC_OPEN. */
static inline uint32_t step_vc(const net *n, uint32_t step)
{
    return step & STEP_OPEN ? VC_OPEN : step - class_of(n, step);
}

/* Returns the open step for a step of a machine's route. */
static inline uint32_t step_make(const net *n, uint32_t step, bool is_response)
{
    return first_channel(n, topo_step_link(step)) +
           n->open_steps[is_response][topo_step_phase(step)];
}

/* A compile-time constant in an engine. */
static inline bool has_serial_ports(const net *n)
{
#ifdef ENGINE_SERIAL
    (void)n;
    return ENGINE_SERIAL;
#else
    return n->ports != NULL;
#endif
}

/*
 * Source ids. Arrivals over a link come before its grants. With serial ports all arrivals come
 * first, then the choices of links, then the grants of ports, so that no link has an advantage by
 * its number.
 */
static inline uint32_t arrival_id(const net *n, uint32_t at)
{
    return n->options.first_source + (has_serial_ports(n) ? at : 2 * at);
}

static inline uint32_t grant_id(const net *n, uint32_t at)
{
    uint32_t links = (uint32_t)n->graph->links.count;
    return n->options.first_source + (has_serial_ports(n) ? links + at : 2 * at + 1);
}

static inline uint32_t inject_id(const net *n, uint32_t source)
{
    return n->options.first_source + 2 * (uint32_t)n->graph->links.count +
           (source - n->injection_base);
}

static inline uint32_t accept_id(const net *n, uint32_t at)
{
    return n->options.first_source + 2 * (uint32_t)n->graph->links.count +
           (n->channel_count - n->injection_base) + at;
}

static inline const profile *profile_of(const net *n, uint32_t at)
{
    return &n->profiles.items[n->links[at].profile];
}

/* net.c: adds the carry of `waited` to its upper half. */
void net_carry_waited(net *n, uint32_t at, uint32_t carry);

/* Adds to the waiting time of the link; a negative time takes it back. */
static inline void add_waited(net *n, uint32_t at, kb_time time)
{
    uint64_t before = n->waited[at], after = before + (uint64_t)time;
    n->waited[at] = after;
    if (KB_UNLIKELY(time >= 0 ? after < before : after > before))
        net_carry_waited(n, at, time >= 0 ? 1 : UINT32_MAX);
}

/* net.c: the last byte of the message has arrived. */
void net_end_message(net *n, uint32_t t);

/* Gives the message a route of its own, into which its packets write their channels, unless it has
 * one. False if out of memory. */
KB_MUST_USE bool net_need_own_route(net *n, uint32_t t);

/* Returns the error for a message over too few or too many links. */
KB_MUST_USE kb_error *net_bad_message(const net_message *message);

#endif
