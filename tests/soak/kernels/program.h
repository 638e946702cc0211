/*
 * program.h: what a random program is made of: choices, and a plan of launches and messages.
 *
 * All of it follows from the seed. Messages are matched by construction: a launch has a list of
 * them, and each PE sends and receives its own in the order of this list, so a program that drops
 * none has no deadlock, however few slots there are.
 *
 * A PE that receives from any direction always does so, and all messages to it have one shape, as
 * it does not matter which one comes first. But it may leave a message in its slot and take a later
 * one from elsewhere: so until the host has waited for all, no more are sent to it than there are
 * slots.
 */
#ifndef RANDOM_KERNELS_PROGRAM_H
#define RANDOM_KERNELS_PROGRAM_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

/* ---- Choices ----------------------------------------------------------------------------- */

typedef struct rng {
    uint64_t state;
} rng;

/* SplitMix64. */
static inline uint64_t rng_next(rng *r)
{
    uint64_t z = (r->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline rng rng_make(uint64_t seed, uint64_t a, uint64_t b)
{
    rng r = {seed * 0x100000001b3u + a};
    r.state = rng_next(&r) + b;
    return r;
}

/* 0 to n - 1; n is at least 1. */
static inline int64_t below(rng *r, int64_t n)
{
    return (int64_t)(rng_next(r) % (uint64_t)n);
}

static inline bool one_in(rng *r, int64_t n)
{
    return below(r, n) == 0;
}

/* ---- Features ---------------------------------------------------------------------------- */

/* Bits of the parameter `features`. kernels.py has the same names. */
enum {
    VECTOR = 1 << 0,
    MATRIX = 1 << 1,
    COMPOSITE = 1 << 2,
    INDEX = 1 << 3,        /* gather, scatter, topk, tl_items */
    QUEUES = 1 << 4,       /* sends and receives */
    ANY = 1 << 5,          /* receives from any direction */
    SYNC = 1 << 6,         /* tl_now, tl_item, tl_wait */
    SCOPES = 1 << 7,       /* TL_SCOPE, tl_assign, tl_free */
    MASKS = 1 << 8,        /* masks, strides, reinterpreted bytes */
    STREAMS = 1 << 9,      /* launches that overlap */
    GRAPHS = 1 << 10,      /* a recorded graph of launches */
    LARGE = 1 << 11,       /* values for which bandwidth matters */
    ALIKE = 1 << 12,       /* all PEs do the same: many ties */
    RACES = 1 << 13,       /* reads of what other PEs write */
    FULL_TCM = 1 << 14,    /* values that nearly fill the TCM */
    COPIES = 1 << 15,      /* copies of the host and between devices while kernels run */
    FAULTS = 1 << 16,      /* some PEs fail at a random step */
    DEADLOCKS = 1 << 17,   /* a message is not sent, or not received */
    LEFTOVERS = 1 << 18,   /* a launch receives what the one before it sent */
    LATE_FAULTS = 1 << 19, /* faults that show when the kernel has gone on; one needs data */
};

/* ---- Plans ------------------------------------------------------------------------------- */

enum { MAX_SIPS = 4, MAX_PES = 64, MAX_EDGES = 192, MAX_LAUNCHES = 8, MAX_SETS = 2 };

/* A queue from a PE to another, by the names that the two have for it. */
typedef struct edge {
    int from, to; /* PEs of the program */
    char send[12], recv[12];
} edge;

/* A receive that was posted may be used only after the sends of its step: TAKE. */
typedef enum event_kind { SEND, RECV, POST, TAKE } event_kind;

/* What a PE does with a message. */
typedef struct event {
    event_kind kind;
    int edge;
    int64_t elements;
    kb_dtype dtype;
} event;

typedef struct event_list {
    event *items;
    int count, room;
} event_list;

typedef struct launch_plan {
    int set;   /* of the queues; -1: none */
    int sip;   /* -1: all */
    int steps; /* of each PE, besides its messages */
    int stream;
    kb_scope scope;
    bool waits;   /* the host waits for it at once */
    bool foreign; /* the kernel runs inside tl_try() */
    event_list events[MAX_PES];
    int fault_at[MAX_PES]; /* the step before which the PE fails; -1: none */
} launch_plan;

typedef struct queue_plan {
    bool is_ring; /* by the topology ring_1d; else by edges */
    edge edges[MAX_EDGES];
    int edge_count;
    const char *buffer_kind;
    uint32_t n_slots;
    uint64_t slot_bytes;
    uint32_t used[MAX_EDGES]; /* slots of queues to PEs that receive from any direction */
    kb_queue_set set;
} queue_plan;

/* What a kernel has learned at a point where it must know: the time, a number, a direction. */
typedef struct note {
    char text[48];
} note;

typedef struct note_list {
    note *items;
    int count, room;
} note_list;

/* The tensors of a device, each cut evenly over its PEs; `shared` may be all at the first one. */
enum { T_F16, T_F32, T_FAR, T_NEAR, T_INDEX, T_SHARED, TENSORS };

typedef struct program {
    kb_context *ctx;
    uint64_t seed;
    int size;
    unsigned features;
    rng r;
    kb_machine machine;
    int sips, cubes, pes; /* of the machine that are used */
    int per_sip, count;   /* PEs */
    kb_tensor tensors[TENSORS][MAX_SIPS];
    uint64_t va[TENSORS][MAX_SIPS];
    int64_t elements[TENSORS]; /* of a PE's part; of all of `shared` */
    int64_t rows, columns;     /* of most values */
    bool gives_up;             /* at the first failure, with work under way */
    bool shared_is_cut;
    int far_shift;     /* the part of T_FAR that a PE has is that of another */
    bool any[MAX_PES]; /* receives from any direction */
    int64_t any_elements;
    queue_plan sets[MAX_SETS];
    int set_count;
    launch_plan launches[MAX_LAUNCHES];
    int launch_count, stream_count;
    note_list notes[MAX_PES];
    FILE *out; /* NULL: nothing is written */
} program;

static inline bool has(const program *p, unsigned feature)
{
    return (p->features & feature) != 0;
}

static inline kb_pe pe_at(const program *p, int index)
{
    int of_sip = index % p->per_sip;
    return (kb_pe){(uint32_t)(index / p->per_sip), (uint32_t)(of_sip / p->pes),
                   (uint32_t)(of_sip % p->pes)};
}

static inline void *grow(void *items, int count, int *room, size_t bytes)
{
    if (count < *room)
        return items;
    *room = *room ? *room * 2 : 16;
    items = realloc(items, (size_t)*room * bytes);
    if (!items)
        abort();
    return items;
}

static inline void add_event(launch_plan *l, int pe, event e)
{
    event_list *list = &l->events[pe];
    list->items = grow(list->items, list->count, &list->room, sizeof *list->items);
    list->items[list->count++] = e;
}

/* ---- Queues ------------------------------------------------------------------------------ */

static inline void add_edge(queue_plan *q, int from, int to, const char *send, const char *recv)
{
    if (q->edge_count == MAX_EDGES)
        return;
    edge *e = &q->edges[q->edge_count++];
    e->from = from;
    e->to = to;
    snprintf(e->send, sizeof e->send, "%s", send);
    snprintf(e->recv, sizeof e->recv, "%s", recv);
}

static inline void plan_ring(program *p, queue_plan *q)
{
    q->is_ring = true;
    for (int i = 0; i < p->count; i++) {
        add_edge(q, i, (i + 1) % p->count, "E", "W");
        add_edge(q, i, (i + p->count - 1) % p->count, "W", "E");
    }
}

static inline bool are_connected(const queue_plan *q, int a, int b)
{
    for (int i = 0; i < q->edge_count; i++)
        if ((q->edges[i].from == a && q->edges[i].to == b) ||
            (q->edges[i].from == b && q->edges[i].to == a))
            return true;
    return false;
}

/* Of two directions that lead back and forth each has its own name at its sender. */
static inline void plan_edges(program *p, queue_plan *q)
{
    int pairs = p->count + (int)below(&p->r, 2 * p->count);
    for (int i = 0; i < pairs && q->edge_count + 2 <= MAX_EDGES; i++) {
        int a = (int)below(&p->r, p->count), b = (int)below(&p->r, p->count);
        if (a == b || are_connected(q, a, b))
            continue;
        char there[12], back[12];
        snprintf(there, sizeof there, "d%d", i);
        snprintf(back, sizeof back, "b%d", i);
        bool both = one_in(&p->r, 2);
        add_edge(q, a, b, there, both ? back : there);
        if (both)
            add_edge(q, b, a, back, there);
    }
}

static inline void plan_queues(program *p)
{
    static const char *const kinds[] = {"tcm", "tcm", "hbm", "sram"};
    static const uint64_t slots[] = {64, 256, 1000, 4096};
    if (!has(p, QUEUES) || p->count < 2)
        return;
    p->set_count = 1 + one_in(&p->r, 3);
    for (int i = 0; i < p->set_count; i++) {
        queue_plan *q = &p->sets[i];
        if (one_in(&p->r, 2))
            plan_edges(p, q);
        if (q->edge_count == 0)
            plan_ring(p, q);
        q->buffer_kind = kinds[below(&p->r, 4)];
        q->n_slots = 1 + (uint32_t)below(&p->r, one_in(&p->r, 2) ? 2 : 8);
        q->slot_bytes = slots[below(&p->r, 4)];
    }
    p->any_elements = 1 + below(&p->r, one_in(&p->r, 4) ? 500 : 32);
    for (int i = 0; i < p->count; i++)
        p->any[i] = has(p, ANY) && one_in(&p->r, 2);
}

/* ---- Messages ---------------------------------------------------------------------------- */

/* False if the queue may not have one now. */
static inline bool random_message(program *p, queue_plan *q, int edge, event *e)
{
    *e = (event){.edge = edge, .dtype = one_in(&p->r, 2) ? KB_F16 : KB_F32};
    int64_t slot = (int64_t)(q->slot_bytes / kb_dtype_bytes(e->dtype));
    switch (below(&p->r, 8)) {
    case 0:
        e->elements = 1;
        break;
    case 1:
        e->elements = slot;
        break;
    case 2:
        e->elements = slot + 1;
        break;
    case 3:
        e->elements = 1 + below(&p->r, 4 * slot);
        break;
    case 4:
        e->elements = one_in(&p->r, 4) ? 0 : slot / 2;
        break;
    default:
        e->elements = 1 + below(&p->r, slot);
    }
    if (e->elements > 2000)
        e->elements = 2000;
    if (!p->any[q->edges[edge].to])
        return true;
    e->dtype = KB_F16;
    e->elements = p->any_elements;
    uint64_t bytes = (uint64_t)e->elements * kb_dtype_bytes(KB_F16);
    uint32_t needs = (uint32_t)((bytes + q->slot_bytes - 1) / q->slot_bytes);
    if (q->used[edge] + needs > q->n_slots)
        return false;
    q->used[edge] += needs;
    return true;
}

/* One message after the other. */
static inline void plan_single(launch_plan *l, const queue_plan *q, event e)
{
    e.kind = SEND;
    add_event(l, q->edges[e.edge].from, e);
    e.kind = RECV;
    add_event(l, q->edges[e.edge].to, e);
}

/*
 * All PEs send at once, as in a step of a collective; those of a ring in one direction. Receives of
 * messages larger than a slot are posted first: else all would wait for a receiver.
 */
static inline void plan_step(program *p, launch_plan *l, queue_plan *q)
{
    bool posts = one_in(&p->r, 2);
    int first = q->is_ring ? (int)below(&p->r, 2) : 0, stride = q->is_ring ? 2 : 1;
    event messages[MAX_EDGES];
    bool there[MAX_EDGES];
    for (int i = first; i < q->edge_count; i += stride) {
        there[i] = random_message(p, q, i, &messages[i]);
        if (has(p, ALIKE) && !p->any[q->edges[first].to] && !p->any[q->edges[i].to]) {
            messages[i] = messages[first];
            messages[i].edge = i;
        }
    }
    for (int round = 0; round < 3; round++)
        for (int i = first; i < q->edge_count; i += stride) {
            event e = messages[i];
            bool fits = (uint64_t)e.elements * kb_dtype_bytes(e.dtype) <= q->slot_bytes;
            bool is_posted = posts || !fits;
            e.kind = round == 0 ? POST : round == 1 ? SEND : is_posted ? TAKE : RECV;
            if (there[i] && (round > 0 || is_posted))
                add_event(l, round == 1 ? q->edges[i].from : q->edges[i].to, e);
        }
}

static inline void plan_messages(program *p, launch_plan *l)
{
    queue_plan *q = &p->sets[l->set];
    if (q->edge_count == 0)
        return;
    int rounds = 1 + (int)below(&p->r, 1 + p->size / 2);
    for (int i = 0; i < rounds; i++) {
        if (one_in(&p->r, 3)) {
            plan_step(p, l, q);
            continue;
        }
        int count = 1 + (int)below(&p->r, p->count);
        for (int k = 0; k < count; k++) {
            event e;
            if (random_message(p, q, (int)below(&p->r, q->edge_count), &e))
                plan_single(l, q, e);
        }
    }
}

/* ---- Launches ---------------------------------------------------------------------------- */

/* Drops a send or a receive. */
static inline void drop_message(program *p, launch_plan *l)
{
    int pe = (int)below(&p->r, p->count);
    event_list *list = &l->events[pe];
    if (list->count == 0)
        return;
    int index = (int)below(&p->r, list->count);
    memmove(&list->items[index], &list->items[index + 1],
            (size_t)(list->count - index - 1) * sizeof *list->items);
    list->count--;
}

/* The last receives of a launch become the first of the next one. */
static inline void leave_over(launch_plan *l, launch_plan *next)
{
    for (int pe = 0; pe < MAX_PES; pe++) {
        event_list *from = &l->events[pe], *to = &next->events[pe];
        if (from->count == 0 || from->items[from->count - 1].kind != RECV)
            continue;
        add_event(next, pe, from->items[from->count - 1]);
        event moved = to->items[to->count - 1];
        memmove(&to->items[1], &to->items[0], (size_t)(to->count - 1) * sizeof *to->items);
        to->items[0] = moved;
        from->count--;
    }
}

static inline void plan_faults(program *p, launch_plan *l)
{
    int faults = 1 + (int)below(&p->r, 3);
    int step = (int)below(&p->r, l->steps + 1);
    for (int i = 0; i < faults; i++) {
        int pe = (int)below(&p->r, p->count);
        l->fault_at[pe] = has(p, ALIKE) ? step : (int)below(&p->r, l->steps + 1);
    }
}

static inline void plan_launches(program *p)
{
    int most = 1 + p->size / 4;
    p->launch_count = 1 + (int)below(&p->r, most < 5 ? most : 5);
    p->stream_count = has(p, STREAMS) ? 1 + (int)below(&p->r, 3) : 0;
    for (int i = 0; i < p->launch_count; i++) {
        launch_plan *l = &p->launches[i];
        l->set = p->set_count && !one_in(&p->r, 5) ? (int)below(&p->r, p->set_count) : -1;
        l->sip = l->set < 0 && one_in(&p->r, 2) ? (int)below(&p->r, p->sips) : -1;
        l->steps = 1 + (int)below(&p->r, p->size);
        l->scope = has(p, STREAMS) ? (kb_scope)below(&p->r, 3) : KB_SCOPE_DEVICE;
        /* Launches with messages are in one stream: PEs run them in the same order. */
        l->stream = l->set < 0 && p->stream_count ? (int)below(&p->r, p->stream_count + 1) : 0;
        l->waits = !has(p, STREAMS) || one_in(&p->r, 3);
        l->foreign = one_in(&p->r, 8);
        for (int pe = 0; pe < MAX_PES; pe++)
            l->fault_at[pe] = -1;
        if (l->set >= 0)
            plan_messages(p, l);
        for (int k = 0; l->waits && k < p->set_count; k++)
            memset(p->sets[k].used, 0, sizeof p->sets[k].used);
    }
    launch_plan *one = &p->launches[below(&p->r, p->launch_count)];
    if (has(p, FAULTS) || has(p, LATE_FAULTS))
        plan_faults(p, one);
    if (has(p, DEADLOCKS))
        drop_message(p, one);
    for (int i = 0; has(p, LEFTOVERS) && i + 1 < p->launch_count; i++)
        if (p->launches[i].set >= 0 && p->launches[i].set == p->launches[i + 1].set)
            leave_over(&p->launches[i], &p->launches[i + 1]);
}

static inline void plan_fini(program *p)
{
    for (int pe = 0; pe < MAX_PES; pe++) {
        free(p->notes[pe].items);
        for (int i = 0; i < MAX_LAUNCHES; i++)
            free(p->launches[i].events[pe].items);
    }
}

#endif
