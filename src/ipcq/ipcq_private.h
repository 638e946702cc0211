/* ipcq_private.h: the state of the queues, which set.c, send.c, posted_receives.c and report.c
 * share. */
#ifndef KB_IPCQ_PRIVATE_H
#define KB_IPCQ_PRIVATE_H

#include "ipcq.h"

typedef struct receive_list {
    ipcq_receive *head, *tail;
} receive_list;

/* What is in a slot of a ring. */
typedef struct slot {
    ipcq_message *message; /* NULL: nothing that could be handed out */
    uint64_t bytes;
    bool was_read;    /* of the read number n, at n % n_slots */
    uint32_t read_by; /* the same: its record. This and the next two: 0 without ids */
    uint32_t sent_by; /* the record of the send with which all up to here had arrived, */
    kb_time there_at; /* and when that was */
} slot;

/*
 * Counts are of slots, from the beginning: what is number n is in slot n % n_slots. Of a ring
 *     my_tail <= handed <= peer_head <= the sender's my_head <= my_tail + n_slots
 * and of the sender  credited = the receiver's my_tail. A slot that was handed out and is not free
 * is being read:  reads - reads_freed = handed - my_tail.
 */
struct ipcq_end { /* first what each message touches, of the receiver and of the sender */
    ipcq_set *set;
    ipcq_end *to, *from; /* NULL: nothing can be sent; nothing can be received */
    uint64_t pe;         /* the number of its PE in the machine */

    /* As a receiver. */
    slot *slots;
    receive_list posted;
    bool installed;
    bool is_handing_out;
    kb_location ring;      /* its first byte */
    uint64_t peer_head;    /* all before it have arrived */
    uint64_t handed;       /* all before it went to receives */
    uint64_t my_tail;      /* all before it are free again */
    kb_time credit_fs;     /* how long a credit takes; KB_FOREVER: not known yet */
    uint64_t left;         /* segments of `open` to come; without a receive they are dropped */
    ipcq_message *open;    /* the message whose segments are being handed out, */
    ipcq_receive *current; /* and what gets them */

    /* As a sender. */
    uint64_t my_head;
    uint64_t credited;     /* credits of which it is known when they are there, */
    kb_time *credit_times; /* of the newest of them: number n at n % n_slots */
    uint64_t next_sequence;
    void (*wake)(void *self); /* wakes who waits for a credit of which the time is not known yet; */
    void *wake_self;          /* NULL: nothing does */
    uint64_t last_bytes;      /* of the last message that was made */
    uint64_t last_until;      /* my_head when all its slots are taken */

    struct member *member;
    const char *direction;
    kb_co *waiter;
    kb_waitlist waiters;
    uint64_t reads, reads_freed;
    uint32_t *credit_ids;       /* as credit_times, of their records; 0 without ids */
    kb_reason freed_by;         /* why the next slot is freed, with ids */
    ipcq_message *first, *last; /* without rings: what is there, in order */
};

/* A PE of a set. */
typedef struct member {
    uint64_t number; /* of the PE in the machine */
    ipcq_end *ends;
    ipcq_end **by_name; /* in the order of their directions */
    uint32_t count;
    uint32_t turn;       /* of the end that a receive for any looks at first */
    receive_list posted; /* for any */
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
    uint32_t *credit_ids;
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
    net_route_buffer routes;
    kb_pool messages;
    uint64_t message_count; /* ever */
};

/* How many slots a message takes; an empty one takes one too. */
static inline uint64_t ipcq_segments_of(const ipcq_settings *settings, uint64_t bytes)
{
    if (settings->n_slots == 0 || bytes <= settings->slot_bytes)
        return 1;
    return (bytes - 1) / settings->slot_bytes + 1;
}

/* With its value, unless the receiver has that. */
static inline void ipcq_release_message(ipcq *queues, const ipcq_message *message)
{
    if (message->data)
        data_release(queues->has.store, message->data);
    kb_pool_give(&queues->messages, message->index);
}

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

/* ---- send.c ---- */

/* All slots before `tail` are free for the sender, from then on. `id`: of the credit's record; 0:
 * none. */
void ipcq_send_credits(ipcq_end *sender, uint64_t tail, kb_time arrives, uint32_t id);

/* ---- posted_receives.c ---- */

/* Gives what has arrived to the receives that are posted for it. */
void ipcq_hand_out(ipcq_end *end);

/* As after installing; messages are freed, and receives no longer wait. */
void ipcq_forget_end(ipcq_end *end);
void ipcq_forget_any(member *m);

/* ---- report.c ---- */

/* Tell of a message; only if messages are watched. */
void ipcq_trace_send(const ipcq_end *end, const ipcq_message *message);
void ipcq_trace_receive(const ipcq_end *end, const ipcq_message *message);

#endif
