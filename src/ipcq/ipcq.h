/*
 * ipcq.h: queues between PEs. A PE has directions, such as "E" or "parent"; what a kernel sends in
 * one arrives at another PE, in a ring of slots in that PE's memory.
 *
 *     ipcq_plan plan;                                   // on the host: the pairs of directions
 *     KB_TRY(ipcq_plan_init(&plan, edges, count, &settings));
 *     ipcq_set *set;
 *     KB_TRY(ipcq_set_create(queues, &plan, &set));     // memory for the rings
 *     KB_TRY(ipcq_install(set, pe));                    // at each PE, when the command is there
 *
 *     ipcq_end *east = ipcq_find(set, pe, "E");
 *     if (ipcq_credit_at(east, &at)) ...                // else wait until that is known
 *     ipcq_message *message = ipcq_message_new(east, bytes);
 *     ipcq_segment segment = ipcq_take_slot(message);   // and the DMA writes there; when it has:
 *     KB_TRY(ipcq_arrive(&segment, &is_delivered));
 *
 *     ipcq_receive receive = {.ops = &ops, .end = west, .posted = clock};
 *     ipcq_post(set, &receive);                         // ops are called when it has its message
 *
 * What arrives is found by its address alone: it belongs to the end whose ring has that address. A
 * credit has the base of the ring that it frees a slot of, and belongs to the end that sends to
 * that base. So a PE may have any number of directions to the same peer. Addresses are locations (a
 * memory and an offset in it), which name the same bytes as physical addresses and exist on
 * machines of any size.
 *
 * A message has the value itself (data.h); contents of slots are never read as numbers. One that is
 * larger than a slot goes in segments, a slot each. With rings in TCM the receiver takes over the
 * memory of a slot and gives the ring other memory of the same size, which takes no time. Slots of
 * other rings are read by the receiver's DMA first.
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
#include "oplog/oplog.h"
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

/* Forgets all messages, receives and credits: as after installing. When nothing is under way. */
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
    kb_dtype dtype; /* these five are the sender's to set */
    kb_shape shape;
    data_value *data;          /* owned; NULL without data, or not sent yet */
    uint64_t order;            /* for the receiver */
    uint64_t delivery;         /* for the sender, when all of it has arrived */
    uint64_t bytes;            /* may be 0: it still takes a slot, and travels as 1 byte */
    uint64_t number;           /* among all messages of the machine, from 1 */
    uint64_t sequence;         /* at its sender's end, from 0 */
    ipcq_end *from;            /* for messages to people */
    uint64_t unsent;           /* bytes of segments that have no slot yet */
    uint32_t to_arrive;        /* segments that have not arrived */
    uint32_t index;            /* in its pool */
    struct ipcq_message *next; /* of those that wait at an end without rings */
} ipcq_message;

/* A message from the end, with its next sequence number. NULL if there is no memory. */
ipcq_message *ipcq_message_new(ipcq_end *end, uint64_t bytes);

/* Not sent after all: gives back the value too. */
void ipcq_message_free(ipcq_message *message);

/* ---- Sending ------------------------------------------------------------------------------- */

/* A part of a message, which has a slot of the peer's ring; the whole of it in most cases. */
typedef struct ipcq_segment {
    ipcq_message *message;
    kb_location slot;
    uint64_t bytes;
    ipcq_end *to; /* where it will most likely arrive: the slot is what counts. NULL: not known */
    uint32_t id;  /* of the record of its send, when it arrives; 0: none */
} ipcq_segment;

/* How much of a message's bytes goes into the next slot. */
uint64_t ipcq_slot_share(const ipcq_end *end, uint64_t bytes);

/* Whether it is known when the sender has a credit for the next slot; *at is that time, which may
 * be in the past or in the future. */
bool ipcq_credit_at(const ipcq_end *end, kb_time *at);

/* The record of that credit, if that is known; 0: there was none, or records have no ids. */
uint32_t ipcq_credit_id(const ipcq_end *end);

/* The coroutine is going to wait in the list that this returns until that is known: then `wake` is
 * called. One at a time. */
kb_waitlist *ipcq_await_credit(ipcq_end *end, kb_co *co, void (*wake)(void *self), void *self);
void ipcq_stop_awaiting(ipcq_end *end);

/* The next segment of the message, in the peer's next slot, which there must be a credit for. Once
 * it has no `unsent` bytes it may be gone as soon as its segments have arrived. The slots of a
 * message are taken before the next message is made. */
ipcq_segment ipcq_take_slot(ipcq_message *message);

/*
 * The last byte of a segment is in its slot. KB_ERR_FAULT if that is in no ring that is installed.
 * *delivered: the message's `delivery` if all of it has arrived; else 0. If something is posted for
 * what arrives, its functions are called before this returns.
 */
KB_MUST_USE kb_error *ipcq_arrive(const ipcq_segment *segment, uint64_t *delivered);

/* Without rings (n_slots of 0): the message is there. */
void ipcq_hand_over(ipcq_message *message);

/* ---- Receiving ----------------------------------------------------------------------------- */

typedef struct ipcq_receive ipcq_receive;

/* A slot that has to be read. */
typedef struct ipcq_slot_read {
    kb_location slot;
    uint64_t bytes;
    uint64_t number; /* among the reads of the receive's end */
} ipcq_slot_read;

/* What happens to a receive; also from within ipcq_post(). */
typedef struct ipcq_receive_ops {
    /* All of the message has arrived, and is received at receive->when. It is gone after this; the
     * receiver may take `data` out. If receive->reads is 0 the receive has ended. */
    void (*matched)(ipcq_receive *receive, ipcq_message *message);
    /* Rings outside of the TCM: a slot has to be read, from receive->when on. Then
     * ipcq_slot_was_read() is to be called. May be NULL for other rings. */
    void (*read)(ipcq_receive *receive, const ipcq_slot_read *read);
    /* The last of its slots has been read; or it was withdrawn, and none is being read. */
    void (*ended)(ipcq_receive *receive);
} ipcq_receive_ops;

/*
 * A receive that is posted. Messages of an end go to its receives in their order; a receive for any
 * end gets the first message that no receive for that end is waiting for, in turns of the ends.
 * From its first segment on, the message is the receive's until its last one.
 */
struct ipcq_receive {
    const ipcq_receive_ops *ops;
    ipcq_end *end;    /* NULL: any; set when the first segment comes */
    kb_time posted;   /* now or later; of a receive for any end: now */
    kb_time when;     /* what has come of it so far is received then: now, or `posted` if later */
    const char *file; /* where the kernel waits, for reports */
    int line;
    bool waits;     /* it has not got all of a message */
    uint32_t reads; /* slots that are to be read, or being read */
    kb_reason by;   /* if records have ids: what determined `when`; at first, `posted` */
    /* the queues' own */
    bool any;
    struct member *member; /* of one for any end */
    ipcq_receive *next, *prev;
};

/* For an end that it names, or for any of the PE. */
void ipcq_post(ipcq_receive *receive);
void ipcq_post_any(ipcq_set *set, kb_pe pe, ipcq_receive *receive);

/* It is no longer wanted. Nothing if it has ended; else `ended` is called, maybe later. */
void ipcq_withdraw(ipcq_receive *receive);

/* It will not be called any more; nothing if it has ended. */
void ipcq_forget(ipcq_receive *receive);

/* The record of that read; before it ends. */
void ipcq_set_read_id(ipcq_receive *receive, uint64_t number, uint32_t id);

/* The DMA has read the slot. Slots become free in the order of these reads. */
void ipcq_slot_was_read(ipcq_receive *receive, uint64_t number);

/* Whether each message is told to a trace function, in the order of time. */
bool ipcq_is_traced(const ipcq *queues);

/* Messages are told to another function from here on; to none if there was none before. */
void ipcq_redirect_trace(ipcq *queues, ipcq_trace_fn *trace, void *trace_self);

/* ---- What people are told ------------------------------------------------------------------ */

/* Who waits on which direction for whom, one a line; and the cycle of waits if there is one:
 * "sip0.cube0.pe0 (W) > sip0.cube0.pe1 (W) > sip0.cube0.pe0". Of all sets; the first 16 of each.
 * False if no kernel waits. */
bool ipcq_print_waits(const ipcq *queues, kb_text *text);

/* The queue pairs of those PEs of the set that ipcq_print_waits() names, at most 32: my_head,
 * my_tail, peer_head_cache, peer_tail_cache, the ring. Nothing if it names none. */
void ipcq_print_pointers(const ipcq_set *set, kb_text *text);

/* Takes over the error of a run that nothing is left to happen in: its message gets the cycle,
 * if there is one, its detail all of the above. As it was if no kernel waits. */
KB_MUST_USE kb_error *ipcq_explain_deadlock(const ipcq *queues, kb_error *err);

/* "2 messages were never received: sip0.cube0.pe0 has 1 in W from sip0.cube0.pe1, ..." of what is
 * in the set now. False if there is nothing, which costs nothing to find out. */
bool ipcq_print_unreceived(const ipcq_set *set, kb_text *text);

#endif
