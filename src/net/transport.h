/*
 * transport.h: the transport. It moves transfers as packets over a graph of nodes and links and
 * reports when they end and how their latency is made up. docs/decisions/0006-transport.md
 * describes the model.
 *
 *     net *fabric;
 *     KB_TRY(net_create(sim, graph, &(net_options){.fabric.packet_bytes = 256, .fabric.vcs = 2},
 * &fabric)); net_order order = {.from = pe, .request = {.steps = steps, .count = count, .bytes =
 * 4096}, .done = on_done, .self = me}; KB_TRY(net_submit(fabric, &order)); KB_TRY(kb_sim_run(sim,
 * KB_FOREVER)); net_destroy(fabric);
 *
 * A net uses the source ids first_source .. first_source + net_source_count() - 1 of its simulator,
 * in the order of the graph's links. It must outlive the events of its transfers: abandon the
 * simulator before destroying a net with transfers under way.
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
    NET_REQUEST_BYTES = 16, /* of the request message of a read */
};

typedef struct net_options {
    topo_fabric_params fabric;
    uint32_t first_source; /* first source id */
    bool no_elision;       /* one event per step: slower, same results */
} net_options;

/* The graph must outlive the net. */
KB_MUST_USE kb_error *net_create(kb_sim *sim, const topo_graph *graph, const net_options *options,
                                 net **out);
void net_destroy(net *n);

/* ---- Transfers --------------------------------------------------------------------------- */

/* A message: the steps of its route and its size. */
typedef struct net_message {
    const uint32_t *steps; /* copied */
    uint32_t count;
    uint64_t bytes; /* at least 1 */
} net_message;

/* The latency breakdown of a transfer. The four parts add up to ended - issued. */
typedef struct net_completion {
    kb_time issued, ended;
    kb_time overhead, wire, drain, queueing;
} net_completion;

/* Called when the last byte has arrived. It may submit further transfers. */
typedef void net_done_fn(void *self, uint64_t arg, const net_completion *completion);

typedef struct net_order {
    net_message request;  /* or the data of a write */
    net_message response; /* of a read: starts where the request ends; empty for a write */
    net_done_fn *done;
    void *self;
    uint64_t arg;
    uint32_t from;    /* source node */
    uint32_t to;      /* destination node of the request, if `machine` is set */
    bool is_response; /* the request message answers another transfer: it uses response channels */
    bool forwarded;   /* continues at a node where another transfer ended and paid the node's
                         overhead, which is not charged again; it queues behind transfers that were
                         submitted there before */
    bool plain;       /* the completion has `issued` and `ended` only: saves summing up the route */
    const topo_machine *machine; /* the machine of the net: messages follow its routes and need no
                                    steps. NULL: messages have steps */
} net_order;

KB_MUST_USE kb_error *net_submit(net *n, const net_order *order);

/* Returns the completion of the transfer on an idle fabric, with `issued` = 0. Messages must have
 * steps. */
net_completion net_predict(const net *n, const net_order *order);

/* ---- Statistics -------------------------------------------------------------------------- */

typedef struct net_link_stats {
    uint64_t bytes;        /* carried */
    kb_time_sum waited_fs; /* by packets, for this link, behind other transfers */
} net_link_stats;

/*
 * Statistics up to now. In the middle of an instant they may include events of the rest of the
 * instant.
 */
net_link_stats net_link_get(const net *n, uint32_t at);

typedef struct net_stats {
    uint64_t hops;      /* packets booked on links */
    kb_u128 link_bytes; /* bytes over all links */
    uint64_t transfers; /* done; a read counts as one */
    uint32_t live;      /* transfers under way */
    size_t state_bytes; /* memory of an idle net of this size */
    size_t live_bytes;  /* peak memory of transfers under way */
} net_stats;

net_stats net_get_stats(const net *n);

/* Resets the statistics of links and hops to 0. Transfers under way continue. */
void net_reset_stats(net *n);

/* Why a message moves as packets from the start. A read has two messages: request and response. */
typedef enum net_packets_cause {
    NET_UNPREDICTABLE,      /* its time as a train would not be exact */
    NET_TRAIN_IN_THE_WAY,   /* a train passes one of its links at the same time */
    NET_PACKETS_IN_THE_WAY, /* packets are near one of its links, or ahead of it at injection */
    NET_PACKETS_CAUSES
} net_packets_cause;

/* Why a packet train was unfolded into packets, or cut. */
typedef enum net_unfold_cause {
    NET_PACKET_MET,    /* a packet came to one of its links at the same time */
    NET_PACKET_WAITED, /* a packet waited for one of its links */
    NET_SOURCE_TAKEN,  /* another message was injected as packets on one of its links */
    NET_WATCHED,       /* a watcher of bookings was installed */
    NET_UNFOLD_CAUSES
} net_unfold_cause;

/*
 * How messages have moved. A train that is unfolded because it queues at the injection channel of
 * another one is not counted; it may start again.
 */
typedef struct net_train_stats {
    uint64_t whole; /* as trains from start to end */
    uint64_t as_packets[NET_PACKETS_CAUSES];
    uint64_t unfolded[NET_UNFOLD_CAUSES];
    uint64_t coalesced;          /* trains of the remaining packets of a message */
    uint64_t coalesced_unfolded; /* and those of them that were unfolded */
} net_train_stats;

net_train_stats net_get_train_stats(const net *n);

/* Buffer space of each channel at the end of the link. */
uint64_t net_channel_bytes(const net *n, uint32_t at);

uint32_t net_channels_per_link(const net *n);
uint32_t net_source_count(const net *n);

/* A packet booked on a link, for traces and tests. */
typedef struct net_booking {
    uint64_t arg;    /* of the order */
    uint32_t packet; /* index in its message */
    uint32_t bytes;
    uint32_t link;
    uint32_t channel; /* number of the channel at the end of the link; unused behind the last one */
    bool is_response; /* of a response message */
    kb_time ready_at; /* arrival of its head */
    kb_time start;    /* the link is busy from here, */
    kb_time free_at;  /* to here */
    kb_time tail_leaves; /* its last byte leaves the port */
} net_booking;

typedef void net_watch_fn(void *self, const net_booking *booking);

/* Calls `fn` for every booking; NULL for none. */
void net_watch(net *n, net_watch_fn *fn, void *self);

#endif
