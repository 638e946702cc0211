/*
 * fabric.h: the state of the transport. Private to net.
 *
 * Numbers N1.. are in docs/invariants.md.
 */
#ifndef KB_NET_FABRIC_H
#define KB_NET_FABRIC_H

#include "agenda.h"
#include "net/net.h"
#include "paths.h"
#include "routes.h"
#include "sim/sim.h"

enum {
    CLASSES = 5, /* request and reply, each before and after entering the cube; wrapped around */
    NONE = 0,    /* of packets and transfers: pools give out no index 0 */
};

/*
 * A step of a message: a channel of the port behind the link that it passes. The first packet of
 * the message chooses the channel, among the virtual channels of the message's class; until then
 * the step is the first of these, marked as open.
 */
#define STEP_OPEN (1u << 31)
#define END_OF_PATH UINT32_MAX /* no step */

#define VC_OPEN ((uint32_t)NET_MAX_VCS) /* of virtual channels: not chosen yet */
#define VC_OF_PATH (VC_OPEN + 1)        /* the one that is or will be in the message's path */
#define VC_PLANNED 128u                 /* and more: it will be this one, though out of turn */

#define NOTHING UINT32_MAX /* of channels */

/* Of times that are foreseen, so that they can be added. */
#define FARTHEST (KB_FOREVER / 4)

/* What links have in common: few are different, so this stays in the nearest cache. */
typedef struct profile {
    topo_pace pace;
    kb_time latency;     /* wire and overhead of the node behind */
    kb_time clearance;   /* of a full packet: on the link, and on any link out of the node behind */
    uint32_t capacity;   /* of each channel behind the link, in bytes */
    uint32_t max_space;  /* `space` of a channel behind the link that has room for a full packet */
    uint32_t even_bytes; /* a packet of so many takes pace.quotient wherever in its message it is;
                            0 if none does */
    bool roomy;          /* what a link not faster than this one sends never waits for room */
} profile;

enum {
    LINK_GRANT_PENDING = 1,
    LINK_OWED_AWAITED = 2, /* there will be an event when what it owes is given back */
    LINK_SPACE = 4,        /* given back to a channel that somebody waits for */
    LINK_BUSY = 8,         /* without elision only */
    LINK_PORT_USED = 16,   /* packets have waited or chosen channels behind it, and perhaps some
                              are still there */
    LINK_FED_AT_ONCE = 32, /* some route comes to it over a link without latency */
    LINK_MARKED = 64,      /* it is on the route that is being looked at */
};

/*
 * A link, and what waits for it. Channels whose first packet wants the link stand in `ready`, in
 * the order of the rotation, or in `blocked` while the channel that it wants is full.
 *
 * The packet that started last still has its space in the channel that it came from until its tail
 * has left; that is what the link owes. Mostly nobody looks before that time, so it takes no event.
 */
typedef struct link {
    kb_time free_at;    /* booked until here (N1); or it tries again then, with serial ports */
    kb_time held_until; /* packets that are near it have passed it by then, unless they wait */
    kb_time owed_at;
    uint32_t owed_channel; /* or NOTHING */
    uint32_t owed_bytes;
    uint32_t ready;    /* the last one of a ring of channels, or NOTHING */
    uint32_t blocked;  /* the same */
    uint32_t reserved; /* the earliest reservation; NONE if there is none */
    uint32_t last;     /* the step that was booked last: tells transfers apart */
    uint64_t bytes;    /* at most 10^15 a second for 9,223 s, which is 2^63 */
    uint32_t late;     /* late packets that want it */
    uint16_t profile;
    uint8_t flags;
    uint8_t turn; /* the virtual channel to be taken next */
} link;

_Static_assert(sizeof(link) == 64, "a link is a cache line");

/*
 * With serial ports, what there is beside each link: the state of the port that it feeds, out of
 * which one packet at a time can be read, and of the link's own choice among ports.
 */
typedef struct port {
    kb_time free_at;      /* when the port's next packet may begin to leave */
    uint32_t last_taker;  /* of the port: the link that was served last */
    uint32_t bids;        /* of the port: links that have chosen it at this instant, or NOTHING */
    uint32_t next_bid;    /* of the link: the next one of these */
    uint32_t chosen;      /* of the link: the channel that it has chosen */
    uint32_t chosen_to;   /* of the link: where the packet goes; NOTHING if it arrives */
    uint32_t last_feeder; /* of the link: the port that was served last */
} port;

/*
 * First in, first out. In a port it holds packets; at a source the next packet of the transfer
 * whose turn it is, and a ring of readers that have packets left, each as its first transfer.
 */
enum {
    SPACE_TAKEN = 1,   /* a message has begun to pass, and none has ended since */
    SPACE_AWAITED = 2, /* a packet is blocked for want of space in the channel */
    SPACE_SHIFT = 2,
};
#define MAX_SPACE (UINT32_MAX >> SPACE_SHIFT)

typedef struct channel {
    uint32_t first; /* packet; NONE if empty */
    union {
        uint32_t last;          /* port: packet, if there is a first one */
        uint32_t last_transfer; /* source: the one whose turn comes last */
    };
    uint32_t next; /* channel in the ring of the link that it waits for */
    union {
        uint32_t space;          /* port: bytes in use, shifted, and flags */
        uint32_t first_transfer; /* source: the one in hand; NONE if there is none */
    };
} channel;

enum {
    PACKET_LAST = 1,
    PACKET_ARRIVED = 2, /* without elision only */
    PACKET_LATE = 2,    /* with elision: one before it in its channel has waited, so that it is not
                           known when it starts */
    PACKET_NUMBER_SHIFT = 2,
};
#define MAX_PACKETS (1u << (32 - PACKET_NUMBER_SHIFT))

typedef struct packet {
    kb_time head_at; /* when its head is at the head of the port, overhead included */
    kb_time tail_at;
    uint32_t path;   /* the word of the step that is to be done next */
    uint32_t step;   /* and what it says; but the channel may have been chosen since */
    uint32_t next;   /* in its port; NONE in the last one */
    uint32_t number; /* its index, but of the last one its bytes; shifted, and flags */
} packet;

enum { PACKET_STRIDE = sizeof(packet) + KB_REDZONE }; /* in their pool */

/*
 * The first two cache lines are all that is looked at of a transfer whose messages go as trains, if
 * its receipt is plain.
 */
typedef struct transfer {
    uint32_t route;       /* of the message under way */
    uint32_t back;        /* of a read whose request is under way: the response's; else NONE */
    uint64_t bytes;       /* of the message */
    uint32_t packets;     /* the same */
    uint32_t behind;      /* the next transfer of the same reader */
    uint32_t last_behind; /* of a reader's first transfer: the last of them, or itself */
    uint32_t next;        /* at the source: the first transfer of the next reader */
    kb_time ready_at;     /* at the source */
    kb_time ends_at;      /* of what has been delivered; of a train, of all */
    uint32_t path;        /* of a message that moves as packets: steps, END_OF_PATH, the number of
                             the transfer; else NONE */
    uint32_t train;       /* of a train: its reservations */
    uint8_t path_size, train_size;
    bool plain;
    bool returning; /* the data of a read */
    bool arrived;   /* at the source */
    bool in_train;
    bool deferred; /* the first at its source, behind trains that leave it */
    bool on_links; /* its packets are, or will be as soon as they can */

    kb_time start; /* of a train: when packet 0 starts on the first link, or would have started if
                      all packets had left without a gap */
    kb_event end;  /* of a train */
    uint64_t back_bytes;
    kb_time issued;
    net_done_fn *done;
    void *self;
    uint64_t arg;

    kb_time overhead, wire, drain; /* of a receipt that is not plain */
    uint32_t made;                 /* packets that have been made at the source; most have left */
    uint32_t delivered;            /* have begun their last link */
    uint32_t train_first;          /* of a train: its first packet; 0 if it is the whole message */
    uint32_t retry_at, retry_gap;  /* the packets from this one on may be tried as a train; how many
                                      go before the next try */
} transfer;

/* What an event of the net is for. Handlers are numbered in this order, one after the other. */
typedef enum event_kind {
    EVENT_ARRIVAL,
    EVENT_GRANT,
    EVENT_SPACE,
    EVENT_CREDIT,
    EVENT_INJECT,
    EVENT_ACCEPT, /* without elision only */
    EVENT_AGENDA, /* with elision and serial ports only */
    EVENT_END,
    EVENT_KINDS,
} event_kind;

/*
 * How packets move, compiled for some options (packet_engine.inc). A message begins at its source;
 * if in the event of another one's end, as the last thing in it. Packet `p`, the first of channel
 * `c`, is offered when it is there: it starts, or the channel waits.
 */
typedef struct packet_engine {
    void (*begin_message)(net *n, uint32_t t, bool in_end);
    void (*offer)(net *n, uint32_t c, uint32_t p);
    kb_handler_fn *handlers[EVENT_KINDS];
} packet_engine;

extern const packet_engine engine_parallel, engine_serial, engine_parallel_reference,
    engine_serial_reference;

/* How often trains are tried at a source. */
typedef struct source_tries {
    uint8_t skip_hops; /* of messages that go as packets without being tried as trains */
    uint8_t failures;  /* trains that have failed since one ended whole, up to a limit */
} source_tries;

typedef struct stage stage; /* see unfold.c */
typedef struct visit visit; /* see contact.h */

struct net {
    kb_sim *sim;
    kb_eventset *events; /* of sim */
    kb_clock *clock;     /* of sim */
    const topo_graph *graph;
    net_options options;
    uint32_t channels_per_link;
    uint32_t channel_shift;                   /* channels of links are a power of two apart */
    bool is_large;                            /* much larger than caches */
    uint32_t open_steps[2][TOPO_WRAPPED + 1]; /* by reply and phase: a step of the first link */
    const packet_engine *engine;

    link *links;
    port *ports;          /* one a link, or NULL if ports are not serial */
    agenda agenda;        /* with serial ports: links that choose now, then ports that accept */
    channel *channels;    /* of links, 2^channel_shift each; then of sources */
    uint32_t *source_of;  /* by link: the channel for requests, the one for replies follows */
    uint32_t source_base; /* the first channel that is a source */
    uint32_t channel_count;
    KB_VEC(profile) profiles;

    uint64_t *waited;      /* by link: by all packets, in fs: the lower 64 bits of 96, */
    uint32_t *waited_high; /* and the others; NULL as long as these are all 0 */
    uint32_t *last_begun;  /* by source: the transfer that moves as packets and began there last;
                              NONE if it has ended */
    source_tries *tries;   /* by source */
    kb_pool packets;
    kb_pool transfers;
    routes routes;
    paths paths;
    KB_VEC(stage) stages; /* room for unfolding a train */
    KB_VEC(kb_time) departures;
    KB_VEC(uint32_t) to_clear; /* links that no trains may pass any more */
    KB_VEC(visit) to_meet;     /* packets of trains that are being unfolded, and the links */
    KB_VEC(uint32_t) to_offer; /* channels where some of them wait */
    bool is_unfolding;

    kb_handler on_arrival, on_grant, on_space, on_credit, on_inject, on_accept, on_agenda, on_end;
    kb_time now;        /* in a handler: of the event in hand */
    uint32_t current;   /* and its source */
    kb_time fast_until; /* no packet that starts until then has times near the end of the clock; -1
                           while bookings are watched */

    uint64_t hops;
    uint64_t done;
    uint64_t arrivals;  /* at sources, ever: their sequence at one instant */
    uint64_t delivered; /* transfers, ever: the sequence of their ends */
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
    return &n->last_begun[source - n->source_base];
}

static inline source_tries *tries_at(const net *n, uint32_t source)
{
    return &n->tries[source - n->source_base];
}

static inline transfer *transfer_at(const net *n, uint32_t index)
{
    return kb_pool_at(&n->transfers, index);
}

static inline route *route_at(const net *n, uint32_t index)
{
    return kb_pool_at(&n->routes.pool, index);
}

static inline route *route_of(const net *n, const transfer *tr)
{
    return route_at(n, tr->route);
}

/* The channel, or the first one of the class if it is not chosen yet. */
static inline uint32_t step_channel(uint32_t step)
{
    return step & ~STEP_OPEN;
}

static inline uint32_t step_link(const net *n, uint32_t step)
{
    return link_of(n, step_channel(step));
}

/* The first virtual channel of the class that the channel is of: it stands for the class. */
static inline uint32_t class_of(const net *n, uint32_t c)
{
    uint32_t of_link = c - first_channel(n, link_of(n, c));
    return c - of_link % n->options.vcs;
}

/* The number of the virtual channel in its class, or VC_OPEN. */
static inline uint32_t step_vc(const net *n, uint32_t step)
{
    return step & STEP_OPEN ? VC_OPEN : step - class_of(n, step);
}

/* The step of a message that has not started; `step` is of a route through the machine. */
static inline uint32_t step_make(const net *n, uint32_t step, bool is_reply)
{
    return first_channel(n, topo_step_link(step)) + n->open_steps[is_reply][topo_step_phase(step)];
}

/* A constant in an engine. */
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
 * Places in the order of events. What arrives over a link comes before what it grants. With serial
 * ports all that arrives comes first, then what links choose, and then what ports accept: so that
 * nobody is served sooner because of his number.
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
           (source - n->source_base);
}

static inline uint32_t accept_id(const net *n, uint32_t at)
{
    return n->options.first_source + 2 * (uint32_t)n->graph->links.count +
           (n->channel_count - n->source_base) + at;
}

static inline const profile *profile_of(const net *n, uint32_t at)
{
    return &n->profiles.items[n->links[at].profile];
}

/* net.c: the lower half of what packets have waited for the link has run over. */
void net_carry_waited(net *n, uint32_t at, uint32_t carry);

/* Packets have waited for the link; or have not, if the time is negative. */
static inline void add_waited(net *n, uint32_t at, kb_time time)
{
    uint64_t before = n->waited[at], after = before + (uint64_t)time;
    n->waited[at] = after;
    if (KB_UNLIKELY(time >= 0 ? after < before : after > before))
        net_carry_waited(n, at, time >= 0 ? 1 : UINT32_MAX);
}

/* net.c: the transfer's last byte is there. */
void net_end_leg(net *n, uint32_t t);

/* The leg gets a path of its own, that its packets write their channels into, unless it has one.
 * False if there is no memory. */
KB_MUST_USE bool net_need_path(net *n, uint32_t t);

/* The error for a leg over too few links or too many. */
KB_MUST_USE kb_error *net_bad_leg(const net_leg *leg);

#endif
