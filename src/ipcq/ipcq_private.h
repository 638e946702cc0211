/* ipcq_private.h: the state of the queues, which set.c, queue.c and report.c share. */
#ifndef KB_IPCQ_PRIVATE_H
#define KB_IPCQ_PRIVATE_H

#include "ipcq.h"

typedef struct claim_list {
    ipcq_claim *head, *tail;
} claim_list;

/* What is in a slot of a ring. */
typedef struct slot {
    uint64_t bytes;
    ipcq_message_id message; /* 0: nothing that could be handed out */
} slot;

/*
 * Counts are of slots, from the beginning: what is number n is in slot n % n_slots. Of a ring
 *     my_tail <= handed <= peer_head <= the sender's my_head <= my_tail + n_slots
 * and of the sender  credited = the receiver's my_tail.
 */
struct ipcq_end {
    ipcq_set *set;
    struct member *member;
    const char *direction;
    ipcq_end *to, *from; /* NULL: nothing can be sent; nothing can be received */

    /* As a sender. */
    uint64_t next_sequence;
    uint64_t my_head;
    uint64_t credited;        /* credits of which it is known when they are there, */
    kb_time *credit_times;    /* of the newest of them: number n at n % n_slots */
    kb_waitlist waiters;      /* for a credit of which that is not known yet */
    kb_co *waiter;            /* if there is one, */
    void (*wake)(void *self); /* and what wakes it; NULL: there is none */
    void *wake_self;
    ipcq_message_id fresh; /* a message of which no slot was taken; 0: none */
    uint64_t last_bytes;   /* of the last message that was made */
    uint64_t last_until;   /* my_head when all its slots are taken */

    /* As a receiver. */
    kb_location ring; /* its first byte */
    slot *slots;
    uint64_t peer_head;          /* all before it have arrived */
    uint64_t handed;             /* all before it went to claims */
    uint64_t my_tail;            /* all before it are free again */
    kb_time credit_fs;           /* how long a credit takes; KB_FOREVER: not known yet */
    ipcq_message_id first, last; /* without rings: what is there, in order */
    claim_list claims;
    ipcq_claim *current;  /* who gets the message whose segments are being handed out */
    ipcq_message_id open; /* that message */
    uint64_t left;        /* segments of it to come; without a claim they are dropped */
    bool is_handing_out;
};

/* A PE of a set. */
typedef struct member {
    uint64_t number; /* of the PE in the machine */
    ipcq_end *ends;
    ipcq_end **by_name; /* in the order of their directions */
    uint32_t count;
    bool installed;
    uint32_t turn;     /* of the end that a claim for any looks at first */
    claim_list claims; /* for any */
} member;

struct ipcq_set {
    ipcq *queues;
    ipcq_set *next, *prev;
    ipcq_settings settings;
    uint64_t ring_bytes;
    ipcq_end *ends;
    size_t end_count;
    uint64_t unread; /* segments that have arrived and were not handed out */
    ipcq_member *pes;
    member *members; /* of the same numbers */
    size_t member_count;
    ipcq_end **by_name;
    kb_time *credit_times;
    slot *slots;
    KB_VEC(kb_location) reserved; /* to release */
    kb_arena names;
};

/* Who has the ring that begins at a location, or sends to it. */
typedef struct ring_user {
    kb_location base;
    ipcq_end *end;
} ring_user;
typedef KB_VEC(ring_user) user_list; /* by base */

/* What is installed at a PE. */
typedef struct pe_queues {
    user_list rings; /* that have addresses of this PE */
    user_list senders;
} pe_queues;

struct ipcq {
    ipcq_options has;
    const topo_shape *shape;
    pe_queues *pes;   /* of the machine */
    user_list *cubes; /* of the machine: rings in SRAM */
    ipcq_set *first, *last;
    net_ways ways;
    kb_pool messages;
    uint64_t message_count; /* ever */
};

/* A message with what nobody else needs to know. */
typedef struct letter {
    ipcq_message message; /* first */
    ipcq_end *fresh_at;   /* the end that has it as `fresh`, or NULL */
    ipcq_message_id next; /* of those that wait at an end without rings */
} letter;

static inline letter *ipcq_letter_at(const ipcq *queues, ipcq_message_id id)
{
    return kb_pool_at(&queues->messages, id);
}

/* How many slots a message takes; an empty one takes one too. */
static inline uint64_t ipcq_segments_of(const ipcq_settings *settings, uint64_t bytes)
{
    if (settings->n_slots == 0 || bytes <= settings->slot_bytes)
        return 1;
    return (bytes - 1) / settings->slot_bytes + 1;
}

/* "sip1.cube0.pe3" */
typedef struct pe_name {
    char text[48];
} pe_name;

pe_name ipcq_name_pe(kb_pe pe);
int ipcq_compare_pes(kb_pe a, kb_pe b);

static inline kb_pe ipcq_pe_of(const ipcq_end *end)
{
    return end->set->pes[end->member - end->set->members].pe;
}

/* Whether the ring of `bytes` at `base` contains the location. Locations in SRAM have PE 0. */
static inline bool ipcq_ring_contains(const kb_location *base, uint64_t bytes,
                                      const kb_location *at)
{
    return at->offset - base->offset < bytes && at->memory == base->memory &&
           at->pe.pe == base->pe.pe && at->pe.cube == base->pe.cube && at->pe.sip == base->pe.sip;
}

/* The end whose ring contains the location, or that sends to the ring that begins there; NULL if
 * none is installed. */
ipcq_end *ipcq_find_ring(const ipcq *queues, const kb_location *at);
ipcq_end *ipcq_find_sender(const ipcq *queues, uint64_t pe, const kb_location *base);

/* How many credits the sender has had by now. */
uint64_t ipcq_arrived_credits(const ipcq_end *end);

/* NULL if the PE has no ends in the set. */
member *ipcq_find_member(const ipcq_set *set, kb_pe pe);

/* As after installing; messages are freed, and claims no longer wait. */
void ipcq_forget_end(ipcq_end *end);
void ipcq_forget_any(member *m);

/* Tell of a message; only if there is somebody to tell. */
void ipcq_trace_send(const ipcq_end *end, const ipcq_message *message);
void ipcq_trace_receive(const ipcq_end *end, const ipcq_message *message);

#endif
