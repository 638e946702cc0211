/*
 * transport.h: the transport. It carries transfers over a graph of nodes and links, packet by
 * packet, and says when they arrive and what they waited for. docs/decisions/0006-transport.md has
 * the model.
 *
 *     net *fabric;
 *     KB_TRY(net_create(sim, graph, &(net_options){.packet_bytes = 256, .vcs = 2}, &fabric));
 *     net_order order = {.from = pe, .out = {.steps = steps, .count = count, .bytes = 4096},
 *                        .done = on_done, .self = me};
 *     KB_TRY(net_submit(fabric, &order));
 *     KB_TRY(kb_sim_run(sim, KB_FOREVER));
 *     net_destroy(fabric);
 *
 * A net uses the source ids first_source .. first_source + net_source_count() - 1 of its simulator,
 * in the order of the graph's links. It must outlive the events of its transfers: abandon the
 * simulator before destroying a net that is still at work.
 */
#ifndef KB_NET_TRANSPORT_H
#define KB_NET_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "base/base.h"
#include "topo/topo.h"

typedef struct net net;

enum {
    NET_MAX_PACKET_BYTES = TOPO_MAX_PACKET_BYTES,
    NET_MAX_VCS = TOPO_MAX_VCS,
    NET_MAX_DEPTH_BYTES = TOPO_MAX_DEPTH_BYTES,
    NET_MAX_STEPS = (1 << 16) - 2,
    NET_REQUEST_BYTES = 16, /* what asks for a read */
};

typedef struct net_options {
    uint32_t packet_bytes; /* a transfer moves in packets of at most so many */
    uint32_t vcs;          /* virtual channels of each class in a port */
    uint32_t depth_bytes;  /* space of a channel, beside what is on its way in */
    bool serial_ports;     /* a port sends one packet at a time, whatever its channels hold */
    uint32_t first_source; /* in the order of events */
    bool no_elision;       /* every step has an event of its own: slower, the same results */
} net_options;

/* The graph must stay as long as the net. */
KB_MUST_USE kb_error *net_create(kb_sim *sim, const topo_graph *graph, const net_options *options,
                                 net **out);
void net_destroy(net *n);

/* ---- Transfers --------------------------------------------------------------------------- */

/* One way through the fabric: steps of a route, and what is carried. */
typedef struct net_leg {
    const uint32_t *steps; /* copied */
    uint32_t count;
    uint64_t bytes; /* at least 1 */
} net_leg;

/* How the time of a transfer came about. The four parts add up to ended - issued. */
typedef struct net_receipt {
    kb_time issued, ended;
    kb_time overhead, wire, drain, queueing;
} net_receipt;

/* Called when the last byte is there. It may submit further transfers. */
typedef void net_done_fn(void *self, uint64_t arg, const net_receipt *receipt);

typedef struct net_order {
    net_leg out;
    net_leg back; /* of a read: begins where `out` ends; no steps and 0 bytes for a write */
    net_done_fn *done;
    void *self;
    uint64_t arg;
    uint32_t from;  /* the node where it starts */
    uint32_t to;    /* and where `out` ends, if a machine says the ways */
    bool reply;     /* `out` is itself an answer to something: it takes the channels of replies */
    bool forwarded; /* goes on from a node that it reached as another transfer, where the node's
                       overhead was charged: not again. It keeps its place behind those submitted
                       there before */
    bool plain;     /* the receipt has only issued and ended: spares summing up the way */
    const topo_machine *machine; /* the one that the net is of: the ways are its routes, and legs
                                    need not have steps; NULL: they have */
} net_order;

KB_MUST_USE kb_error *net_submit(net *n, const net_order *order);

/* What a receipt of a transfer that meets no other one would say, for `issued` = 0. Legs must have
 * steps. */
net_receipt net_foresee(const net *n, const net_order *order);

/* ---- Figures ----------------------------------------------------------------------------- */

typedef struct net_link_stats {
    uint64_t bytes;        /* carried */
    kb_time_sum waited_fs; /* by packets, for this link, behind other transfers */
} net_link_stats;

/*
 * Figures say what has happened up to now. Asked for in the middle of an instant, they may count
 * what the rest of it brings.
 */
net_link_stats net_link_get(const net *n, uint32_t at);

typedef struct net_stats {
    uint64_t hops;      /* packets booked on links */
    kb_u128 link_bytes; /* bytes over all links */
    uint64_t transfers; /* done; a read counts as one */
    uint32_t live;      /* transfers under way */
    size_t state_bytes; /* memory of an idle net of this size */
    size_t live_bytes;  /* and of what is or was under way at a time */
} net_stats;

net_stats net_get_stats(const net *n);

/* The figures of links and hops start again from 0. Transfers under way go on. */
void net_reset_stats(net *n);

/* Why a message moves as packets from the start. A read has two messages: request and response. */
typedef enum net_packets_cause {
    NET_UNFORESEEN,         /* its time as a train would not be exact */
    NET_TRAIN_IN_THE_WAY,   /* a train passes one of its links at the same time */
    NET_PACKETS_IN_THE_WAY, /* packets are near one of its links, or before it at the source */
    NET_PACKETS_CAUSES
} net_packets_cause;

/* Why a packet train was unfolded into packets. */
typedef enum net_unfold_cause {
    NET_PACKET_MET,    /* a packet came to one of its links at the same time */
    NET_PACKET_WAITED, /* a packet had to wait where it was to pass */
    NET_SOURCE_TAKEN,  /* another message went as packets from a source where it was to pass */
    NET_WATCHED,       /* bookings were to be watched */
    NET_UNFOLD_CAUSES
} net_unfold_cause;

/*
 * How messages have moved. Trains that are unfolded because they stand at the source of another one
 * are not counted; they may set out again.
 */
typedef struct net_train_stats {
    uint64_t whole; /* as trains from start to end */
    uint64_t as_packets[NET_PACKETS_CAUSES];
    uint64_t unfolded[NET_UNFOLD_CAUSES];
    uint64_t coalesced;          /* trains of the packets that were left of a message */
    uint64_t coalesced_unfolded; /* and those of them that were unfolded */
} net_train_stats;

net_train_stats net_get_train_stats(const net *n);

/* The space of each channel at the end of the link. */
uint64_t net_channel_bytes(const net *n, uint32_t at);

uint32_t net_channels_per_link(const net *n);
uint32_t net_source_count(const net *n);

/* A packet booked on a link, for traces and tests. */
typedef struct net_booking {
    uint64_t arg;    /* of the order */
    uint32_t packet; /* of its leg */
    uint32_t bytes;
    uint32_t link;
    uint32_t channel; /* number of the channel at the end of the link; unused behind the last one */
    bool back;        /* on its way back */
    kb_time ready_at; /* its head was there */
    kb_time start;    /* the link is busy from here */
    kb_time free_at;  /* to here */
    kb_time tail_leaves; /* and this is when its last byte has left */
} net_booking;

typedef void net_watch_fn(void *self, const net_booking *booking);

/* Calls `fn` for every booking; NULL for none. */
void net_watch(net *n, net_watch_fn *fn, void *self);

#endif
