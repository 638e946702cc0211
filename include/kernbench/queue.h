/*
 * queue.h: queues between PEs, for kernels that send and receive outside collectives.
 */
#ifndef KERNBENCH_QUEUE_H
#define KERNBENCH_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/base.h>
#include <kernbench/context.h>
#include <kernbench/launch.h>
#include <kernbench/memory.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Queues between PEs ------------------------------------------------------------------ */

/*
 * Kernels of ordinary launches can send and receive (tl_send(), tl_recv()) once queues are
 * installed in their PEs. A program says which PEs are connected, and in which directions:
 *
 *     const kb_queue_spec ring = {.topology = "ring_1d", .pes = pes, .pe_count = 8};
 *     KB_TRY(kb_queues_create(ctx, &ring, &set));
 *     KB_TRY(kb_queues_install(ctx, set));
 *     KB_TRY(kb_launch(ctx, "halo", &halo, x, rows));
 *     KB_TRY(kb_queues_remove(ctx, set));
 *
 * A kernel runs only on PEs that have a part of its tensors: connect those, which kb_plan_shards()
 * lists. A PE that waits for one without a kernel waits for ever: a deadlock, which is reported.
 *
 * Sets coexist with each other and with those of collectives. A message that a launch leaves behind
 * is there for the next one, unless a kernel of the launch failed: then all of its kernels are
 * stopped, and its queues are empty when they are used next.
 */

/* What `from` sends in the direction arrives at `to`. */
typedef struct kb_queue_edge {
    kb_pe from;
    const char *direction;
    kb_pe to;
} kb_queue_edge;

/* Connections, in one of three ways; and the queues' form, in which 0 is what ccl.yaml says. */
typedef struct kb_queue_spec {
    const char *algorithm; /* 1. as this entry of ccl.yaml connects its PEs, */
    uint32_t world;        /*    for this many ranks; 0: as many as the entry has */
    const char *topology;  /* 2. a topology by name (kernbench list), */
    const kb_pe *pes;      /*    over these PEs, in this order */
    size_t pe_count;
    uint32_t w, h;              /*    its sides, if it has two dimensions; 0: a square */
    const kb_queue_edge *edges; /* 3. one by one */
    size_t edge_count;
    const char *buffer_kind; /* where receivers have their slots: "tcm", "hbm" or "sram" */
    uint32_t n_slots;        /* of a queue */
    uint64_t slot_bytes;
} kb_queue_spec;

/* Plans the queues and reserves their slots. Takes no time: nothing is installed yet. */
KB_API KB_MUST_USE kb_error *kb_queues_create(kb_context *ctx, const kb_queue_spec *spec,
                                              kb_queue_set *set);

/* Installs the queues in all their PEs, by commands through the fabric, and waits. */
KB_API KB_MUST_USE kb_error *kb_queues_install(kb_context *ctx, kb_queue_set set);

/* Waits for the caller's own work, removes the queues from their PEs, waits, and frees the set.
 * Warns of messages that were never received. Not while a launch of others uses it. */
KB_API KB_MUST_USE kb_error *kb_queues_remove(kb_context *ctx, kb_queue_set set);

/* A direction of a PE: the plan, and where its queue pair stands. */
typedef struct kb_queue_info {
    kb_pe pe;
    const char *direction;      /* good as long as the set */
    bool can_send, can_receive; /* what of the following there is: */
    kb_pe to, from;             /* the peers */
    kb_location ring;           /* its slots for what it receives */
    uint64_t ring_bytes;        /* all of them */
    uint64_t my_head;           /* slots that it filled at its peer */
    uint64_t peer_tail_cache;   /* and those that it knows to be free again */
    uint64_t peer_head_cache;   /* slots that its peer filled here */
    uint64_t my_tail;           /* and those that are free again */
} kb_queue_info;

/* All directions of a set, by PE; at any time. Writes at most `room`, and how many there are. */
KB_API KB_MUST_USE kb_error *kb_queues_list(kb_context *ctx, kb_queue_set set, kb_queue_info *infos,
                                            size_t room, size_t *count);

/* The same as text, a line each; {0}: of all sets that the program has made. */
KB_API KB_MUST_USE kb_error *kb_queues_dump(kb_context *ctx, kb_queue_set set, kb_warning_fn *print,
                                            void *self);

#ifdef __cplusplus
}
#endif

#endif
