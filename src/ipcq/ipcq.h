/*
 * ipcq.h: queues between PEs. A PE has directions, such as "E" or "parent"; what a kernel sends in
 * one arrives at another PE, in a ring of slots in that PE's memory.
 *
 *     ipcq_plan plan;                                   // on the host: who is joined to whom
 *     KB_TRY(ipcq_plan_init(&plan, edges, count, &settings));
 *     ipcq_set *set;
 *     KB_TRY(ipcq_set_create(queues, &plan, &set));     // memory for the rings
 *     KB_TRY(ipcq_install(set, pe));                    // at each PE, when the command is there
 *
 *     ipcq_end *east = ipcq_find(set, pe, "E");
 *     if (ipcq_credit_at(east, &at)) ...                // else wait until that is known
 *     kb_location slot = ipcq_take_slot(east);          // and the DMA writes there; when it has:
 *     KB_TRY(ipcq_arrive(queues, slot, message, bytes));
 *
 * What arrives is found by its address alone: it belongs to the end whose ring has that address. A
 * credit has the base of the ring that it frees a slot of, and belongs to the end that sends to
 * that base. So a PE may have any number of directions to the same peer. Addresses are locations (a
 * memory and an offset in it), which name the same bytes as physical addresses and exist on
 * machines of any size.
 *
 * A message has the value itself (data.h); contents of slots are never read as numbers. One that is
 * larger than a slot goes in segments, a slot each.
 *
 * Credits take the time that their bytes take on the way back when nothing else is there; they
 * occupy nothing. A credit on its way is a time in its end, not an event.
 */
#ifndef KB_IPCQ_IPCQ_H
#define KB_IPCQ_IPCQ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "base/base.h"
#include "data/data.h"
#include "mem/mem.h"
#include "net/net.h"
#include "sim/sim.h"
#include "topo/topo.h"

typedef struct ipcq ipcq;         /* all queues of a machine */
typedef struct ipcq_set ipcq_set; /* those of one plan */
typedef struct ipcq_end ipcq_end; /* a direction of a PE */

/* One line for each message that is sent or received, valid during the call. */
typedef void ipcq_trace_fn(void *self, const char *line);

typedef struct ipcq_options {
    kb_sim *sim;
    const topo_machine *machine;
    net *fabric; /* NULL: no time is to pass (n_slots of 0 alone is possible then) */
    mem_memories *memories;
    data_store *store;
    kb_oplog *log;
    ipcq_trace_fn *trace; /* NULL: none */
    void *trace_self;
} ipcq_options;

/* All that the options name must stay. */
KB_MUST_USE kb_error *ipcq_create(const ipcq_options *options, ipcq **queues);

/* With all sets that are left. Not while something is under way, unless the simulator was
 * abandoned. */
void ipcq_destroy(ipcq *queues);

/* ---- Plans: on the host, without memory or time -------------------------------------------- */

/* In the order in which one says it, though that takes 8 bytes more. */
typedef struct ipcq_edge { /* NOLINT(clang-analyzer-optin.performance.Padding) */
    kb_pe from;
    const char *direction; /* its name at `from` */
    kb_pe to;
} ipcq_edge;

typedef struct ipcq_settings {
    kb_memory buffer; /* where rings are: KB_TCM, KB_HBM or KB_SRAM */
    bool polls;       /* a sender without credit asks again and again; else it sleeps */
    uint32_t n_slots; /* of a ring; 0: without rings, bounds and time, for mock runs */
    uint64_t slot_bytes;
    uint32_t credit_bytes; /* how large a credit is */
} ipcq_settings;

#define IPCQ_NONE SIZE_MAX

/* A direction at a PE. */
typedef struct ipcq_plan_end {
    kb_pe pe;
    const char *direction; /* the plan's */
    size_t to;   /* the end where arrives what is sent here; IPCQ_NONE: nothing can be sent */
    size_t from; /* the end from where comes what is received here, or IPCQ_NONE */
} ipcq_plan_end;

typedef struct ipcq_plan {
    ipcq_settings settings;
    KB_VEC(ipcq_plan_end) ends; /* by (sip, cube, pe) and edge; those that only receive last */
    kb_arena names;
} ipcq_plan;

/*
 * Pairs the directions. A direction is paired with the peer's opposite (E-W, N-S,
 * global_E-global_W, global_N-global_S) if that points back here, else with any direction of the
 * peer that does and is not paired otherwise. One whose peer has none gets a ring of its own there,
 * and is received from by the sender's name of the direction; if the peer's direction of that name
 * has something else to receive already, the plan is refused. So are a name that a PE has twice and
 * a PE's direction to itself.
 */
KB_MUST_USE kb_error *ipcq_plan_init(ipcq_plan *plan, const ipcq_edge *edges, size_t count,
                                     const ipcq_settings *settings);
void ipcq_plan_fini(ipcq_plan *plan);

/* ---- Sets ---------------------------------------------------------------------------------- */

/* Reserves the rings, and checks that none overlaps another. Copies what it needs of the plan. Ends
 * have the numbers of the plan. After an error nothing is reserved. */
KB_MUST_USE kb_error *ipcq_set_create(ipcq *queues, const ipcq_plan *plan, ipcq_set **set);

/* Gives the rings back. */
void ipcq_set_destroy(ipcq_set *set);

/* What a PE has to be told: the settings; and of each of its ends the peer, its ring, its own. */
enum { IPCQ_SETTINGS_BYTES = 16, IPCQ_END_BYTES = 32 };

/* The PEs that have ends in it, by (sip, cube, pe), and what a command has to tell each of them. */
typedef struct ipcq_member {
    kb_pe pe;
    uint64_t bytes;
    bool installed;
} ipcq_member;

const ipcq_member *ipcq_set_members(const ipcq_set *set, size_t *count);
const ipcq_settings *ipcq_set_settings(const ipcq_set *set);

/* At a PE. Installing twice is an error, and so is removing what is not installed. */
KB_MUST_USE kb_error *ipcq_install(ipcq_set *set, kb_pe pe);
KB_MUST_USE kb_error *ipcq_remove(ipcq_set *set, kb_pe pe);

/* Forgets all messages, claims and credits: as after installing. When nothing is under way. */
void ipcq_set_reset(ipcq_set *set);

/* Whether the PE has any direction in the set. */
bool ipcq_is_member(const ipcq_set *set, kb_pe pe);

/* NULL if the PE has no such direction. The other one names all that it has: "E, W, parent". */
ipcq_end *ipcq_find(ipcq_set *set, kb_pe pe, const char *direction);
void ipcq_list_directions(const ipcq_set *set, kb_pe pe, kb_text *text);

const char *ipcq_direction(const ipcq_end *end);
kb_pe ipcq_end_pe(const ipcq_end *end);
bool ipcq_can_send(const ipcq_end *end); /* what is sent here arrives somewhere */
bool ipcq_can_receive(const ipcq_end *end);

/* The end of that number, as the plan has them; NULL behind the last. */
ipcq_end *ipcq_end_at(const ipcq_set *set, size_t number);

/* What a user is shown of an end. */
kb_queue_info ipcq_end_info(const ipcq_end *end);

/* ---- Messages ------------------------------------------------------------------------------ */

typedef struct ipcq_message {
    kb_dtype dtype;
    kb_shape shape;
    uint64_t bytes;
    uint64_t number;   /* among all messages of the machine, from 1 */
    uint64_t sequence; /* at its sender's end, from 0 */
    ipcq_end *from;    /* for messages to people, and to guess where it goes */
    uint32_t segments; /* that have not arrived */
    data_value *data;  /* owned; NULL without data, or not sent yet */
    uint64_t order;    /* the sender's own, for the receiver */
} ipcq_message;

typedef uint32_t ipcq_message_id; /* never 0 */

/* A message from the end, with its next sequence number. 0 if there is no memory. `bytes` may be 0:
 * it still takes a slot, and travels as 1 byte. */
ipcq_message_id ipcq_message_new(ipcq_end *end, kb_dtype dtype, const kb_shape *shape,
                                 uint64_t bytes);
ipcq_message *ipcq_message_at(ipcq *queues, ipcq_message_id id);

/* Received, or not sent after all: gives back the value too. */
void ipcq_message_free(ipcq *queues, ipcq_message_id id);

/* ---- Sending ------------------------------------------------------------------------------- */

/* Whether it is known when the sender has a credit for the next slot; *at is that time, which may
 * be in the past or in the future. */
bool ipcq_credit_at(const ipcq_end *end, kb_time *at);

/* The coroutine is going to wait in the list that this returns until that is known: then `wake` is
 * called. One at a time. */
kb_waitlist *ipcq_await_credit(ipcq_end *end, kb_co *co, void (*wake)(void *self), void *self);
void ipcq_stop_awaiting(ipcq_end *end);

/* The peer's next slot, which there must be a credit for. The slots of a message are taken before
 * the next message is made. */
kb_location ipcq_take_slot(ipcq_end *end);

/*
 * The last byte of a segment is in its slot. KB_ERR_FAULT if that is in no ring that is installed.
 * If somebody has claimed what arrives, he is called before this returns.
 */
KB_MUST_USE kb_error *ipcq_arrive(ipcq *queues, kb_location at, ipcq_message_id id, uint64_t bytes);

/* Without rings (n_slots of 0): the message is there. */
void ipcq_hand_over(ipcq_end *end, ipcq_message_id id);

/* ---- Receiving ----------------------------------------------------------------------------- */

/* A part of a message in a slot; the whole of it in most cases. */
typedef struct ipcq_segment {
    ipcq_end *end; /* that it came by */
    ipcq_message_id message;
    uint64_t bytes;
    bool first, last;
    kb_location at; /* its slot */
    kb_time when;   /* it is received then: now, or when the claim is posted if that is later */
} ipcq_segment;

/*
 * A receive that is not satisfied yet. Messages of an end go to its claims in their order; a claim
 * for any end gets the first message that no claim for that end is waiting for, in turns of the
 * ends. From its first segment on, the message is the claim's until its last one.
 */
typedef struct ipcq_claim {
    /* Called with each segment in order, also from within ipcq_claim(). ipcq_free_slot() has to be
     * called for it, then or later; the message is the claimant's with its last segment. */
    void (*got)(struct ipcq_claim *claim, const ipcq_segment *segment);
    kb_pe pe;
    ipcq_end *end;    /* NULL: any; set when the first segment comes */
    kb_time posted;   /* now or later; of a claim for any end: now */
    const char *file; /* where the kernel waits, for reports */
    int line;
    /* the queues' own */
    ipcq_set *set;
    struct ipcq_claim *next, *prev;
    bool waits, any;
} ipcq_claim;

void ipcq_claim_post(ipcq_set *set, ipcq_claim *claim);

/* It is no longer wanted; nothing if it does not wait. */
void ipcq_claim_withdraw(ipcq_claim *claim);

/* The oldest slot that was handed out and not freed yet is free, now or later: my_tail goes on, a
 * credit goes back. Nothing without rings. */
void ipcq_free_slot(ipcq_end *end, kb_time at);

/* Whether each message is told to a trace function, in the order of time. */
bool ipcq_is_traced(const ipcq *queues);

/* ---- What people are told ------------------------------------------------------------------ */

/* Who waits on which direction for whom, one a line; and the circle of waits if there is one:
 * "sip0.cube0.pe0 (W) > sip0.cube0.pe1 (W) > sip0.cube0.pe0". Of all sets; the first 16 of each.
 * False if nobody waits. */
bool ipcq_print_waits(const ipcq *queues, kb_text *text);

/* The queue pairs of those PEs of the set that ipcq_print_waits() names, at most 32: my_head,
 * my_tail, peer_head_cache, peer_tail_cache, the ring. Nothing if it names none. */
void ipcq_print_pointers(const ipcq_set *set, kb_text *text);

/* Takes over the error of a run that nothing is left to happen in: its message gets the circle,
 * if there is one, its detail all of the above. As it was if nobody waits. */
KB_MUST_USE kb_error *ipcq_explain_deadlock(const ipcq *queues, kb_error *err);

/* "2 messages were never received: sip0.cube0.pe0 has 1 in W from sip0.cube0.pe1, ..." of what is
 * in the set now. False if there is nothing, which costs nothing to find out. */
bool ipcq_print_unreceived(const ipcq_set *set, kb_text *text);

#endif
