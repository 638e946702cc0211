/*
 * eventset.h: the set of pending events, private to sim.
 *
 * A pending event is a 32-byte node. It is in one of five structures:
 *
 *     next     the earliest event of all, kept aside so that looking at it is free
 *     wheel    buckets of 2^shift fs: the two segments of time ahead of `base`
 *     segments 64 lists, each for as much time as half the wheel: what comes after the wheel
 *     heap     a binary heap of whatever fits neither: the far future, and latecomers (below)
 *     run      copies of the events of a bucket that held three or more, sorted, while it is being
 *              consumed
 *
 * Most buckets hold one event or two (the width follows the rate of events, see tune() in
 * eventset.c), so that taking the next event is: find the lowest bit that is set, take the node.
 * The order of events that share a bucket is decided when the bucket is reached. Nothing depends on
 * the geometry but speed: whatever it is, events come out in the order of (time, key).
 *
 * Invariants (docs/invariants.md, E1 to E6):
 *   E1  no pending event comes before `next`;
 *   E2  wheel events are in buckets [base, limit), segment events in segments
 *       [limit, limit + 64 segments), so that no two times share a slot of either;
 *   E3  while a run is being consumed base is past its bucket: latecomers go to the heap;
 *   E4  a node that is not pending, or whose event was copied to the run, has handler 0, so that a
 *       stale handle never matches;
 *   E5  nodes, heap, run, words and scratch have equal capacity, so that only adding an event
 *       allocates;
 *   E6  of the nodes that are not pending, those given back come before those never used: so the
 *       highest index ever used is the most that were ever in use.
 *
 * The nodes of a run are given back all at once, when the next run begins: until then no other
 * event has their slots, so that a handle still names one event.
 *
 * Cancelled events stay where they are, marked by handler 0, until they are reached, or until there
 * were more cancels than events are pending: then they are swept out.
 */
#ifndef KB_SIM_EVENTSET_H
#define KB_SIM_EVENTSET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "base/base.h"
#include "sim/sort.h"

typedef struct kb_node {
    kb_time time;
    uint64_t key;
    uint64_t arg;
    uint32_t handler; /* 0: not pending */
    uint32_t next;    /* in its list; 0 ends it; in the run: its node */
} kb_node;

typedef struct kb_heap_entry {
    kb_time time;
    uint64_t key;
    uint32_t node;
} kb_heap_entry;

enum { KB_SEGMENTS = 64 };

typedef struct kb_eventset {
    kb_node *next;  /* the earliest event, or nodes[0] */
    kb_node *nodes; /* nodes[0] stands for "none": time KB_FOREVER, key ~0, handler 0 */
    kb_node *run;   /* as many, behind the nodes */
    kb_node
        *run_first;   /* the run is run_first .. run_end - 1; none if these are equal. If `next` */
    kb_node *run_end; /* is of the run, it is the one before run_first */
    uint32_t run_nodes; /* list of the nodes of the run, in use until the next one begins */
    uint32_t last_run_node;
    uint32_t free_node; /* list of nodes to take; 0: none left, grow */

    uint64_t base;  /* number of the bucket from which on the wheel takes events */
    uint64_t span;  /* limit - base */
    uint32_t shift; /* a bucket's width is 2^shift fs; at most 32 */
    uint32_t mask;  /* number of buckets - 1 */
    uint32_t word;  /* of `bits` in which base is */
    uint32_t in_wheel;
    uint32_t *heads;
    uint64_t *bits; /* a bit for each bucket that is not empty */

    kb_time heap_time; /* of its first entry, KB_FOREVER if empty */
    uint32_t heap_count;

    kb_heap_entry *heap;
    uint64_t *words;   /* for sorting: nodes, in the lower half */
    uint64_t *scratch; /* for sorting and rebuilding */
    uint32_t capacity; /* of nodes, heap, run, words and scratch */

    uint32_t segment_shift; /* a segment has 2^segment_shift buckets, half the wheel */
    uint32_t in_segments;
    uint64_t segment_bits;
    uint32_t segments[KB_SEGMENTS];

    uint32_t dead;         /* cancelled events that are still in some list */
    uint32_t cancels;      /* since they were last swept out */
    uint64_t taken;        /* events taken so far */
    uint64_t tune_at;      /* value of `taken` at which the geometry is looked at again */
    uint64_t window_taken; /* value of `taken` when it was looked at last */
    kb_time window_time;   /* time of the event taken then */
} kb_eventset;

/* False if there is no memory. */
KB_MUST_USE bool kb_eventset_init(kb_eventset *set);
void kb_eventset_fini(kb_eventset *set);

/* Takes every event out, without any memory being given back. */
void kb_eventset_clear(kb_eventset *set);

bool kb_eventset_cancel(kb_eventset *set, kb_event event);

/* The events everywhere, `next` included, cancelled ones not. */
static inline uint32_t kb_eventset_pending(const kb_eventset *set)
{
    return set->in_wheel + set->in_segments + set->heap_count +
           (uint32_t)(set->run_end - set->run_first) + (set->next != set->nodes) - set->dead;
}

/* The most nodes that were ever in use at once. Takes a while: for reports. */
uint32_t kb_eventset_peak(const kb_eventset *set);

/*
 * The parts of push and pop that are not worth inlining. Those of push return what push returns, so
 * that it can end in a jump to them and needs no stack frame.
 */
kb_event kb_eventset_push_slowly(kb_eventset *set, kb_time time, uint64_t key, uint32_t handler,
                                 uint64_t arg);
kb_event kb_eventset_put_first(kb_eventset *set, uint32_t index, kb_event event);
kb_event kb_eventset_insert_far(kb_eventset *set, uint32_t index, kb_event event);
void kb_eventset_stage_slowly(kb_eventset *set);

static inline bool kb_before(kb_time time_a, uint64_t key_a, kb_time time_b, uint64_t key_b)
{
    kb_u128 a = (kb_u128)(uint64_t)time_a << 64 | key_a;
    kb_u128 b = (kb_u128)(uint64_t)time_b << 64 | key_b;
    return a < b;
}

static inline uint32_t kb_eventset_index(const kb_eventset *set, const kb_node *node)
{
    return (uint32_t)(node - set->nodes);
}

/* Whether the event is a copy in the run. */
static inline bool kb_eventset_is_of_run(const kb_eventset *set, const kb_node *node)
{
    return node >= set->run;
}

/* Puts a node that is not `next` where its time belongs; hands `event` through. */
static inline kb_event kb_eventset_insert(kb_eventset *set, kb_node *node, uint32_t index,
                                          kb_time time, kb_event event)
{
    uint64_t bucket = (uint64_t)time >> set->shift;
    if (KB_UNLIKELY(bucket - set->base >= set->span))
        return kb_eventset_insert_far(set, index, event);
    uint32_t slot = (uint32_t)bucket & set->mask;
    node->next = set->heads[slot];
    set->heads[slot] = index;
    set->bits[slot >> 6] |= UINT64_C(1) << (slot & 63);
    set->in_wheel++;
    return event;
}

/*
 * Adds an event at a time not before the last one taken; handler is not 0. Keys of pending events
 * differ. The slot of the result is 0 if there was no memory.
 */
static inline __attribute__((always_inline)) kb_event
kb_eventset_push(kb_eventset *set, kb_time time, uint64_t key, uint32_t handler, uint64_t arg)
{
    uint32_t index = set->free_node;
    if (KB_UNLIKELY(index == 0))
        return kb_eventset_push_slowly(set, time, key, handler, arg);
    kb_node *node = &set->nodes[index];
    set->free_node = node->next;
    node->time = time;
    node->key = key;
    node->arg = arg;
    node->handler = handler;

    kb_event event = {.key = key, .slot = index};
    const kb_node *next = set->next;
    if (KB_UNLIKELY(kb_before(time, key, next->time, next->key)))
        return kb_eventset_put_first(set, index, event);
    return kb_eventset_insert(set, node, index, time, event);
}

/* The event has been taken. Nodes of the run go back together. */
static inline void kb_eventset_release(kb_eventset *set, kb_node *node)
{
    if (kb_eventset_is_of_run(set, node))
        return;
    node->handler = 0; /* E4 */
    node->next = set->free_node;
    set->free_node = kb_eventset_index(set, node);
}

/* With this many nodes they outgrow the nearest cache, and the next one is worth fetching ahead. */
enum { KB_PREFETCH_FROM = 512 };

/* Finds the event that follows the one just taken, and makes it `next`. */
static inline void kb_eventset_stage(kb_eventset *set)
{
    kb_node *nodes = set->nodes;
    kb_node *first = set->run_first;
    if (first < set->run_end) {
        if (KB_UNLIKELY(set->heap_time <= first->time) &&
            kb_before(set->heap_time, set->heap[0].key, first->time, first->key))
            goto slowly;
        if (KB_UNLIKELY(!first->handler))
            goto slowly;
        set->run_first = first + 1;
        set->next = first;
        return;
    }
    uint64_t bits = set->bits[set->word];
    if (KB_UNLIKELY(bits == 0))
        goto slowly; /* the word is used up */
    uint32_t *heads = &set->heads[(size_t)set->word * 64];
    uint64_t later_bits = bits & (bits - 1);
    if (set->capacity >= KB_PREFETCH_FROM && later_bits)
        __builtin_prefetch(&nodes[heads[__builtin_ctzll(later_bits)]]);

    uint32_t *head = &heads[__builtin_ctzll(bits)];
    uint32_t index = *head;
    uint32_t rest = nodes[index].next;
    if (rest) {
        /* Two events: which is first cannot be predicted, so it is computed. */
        if (KB_UNLIKELY(nodes[rest].next))
            goto slowly;
        uint32_t both = index ^ rest;
        bool swap =
            kb_before(nodes[rest].time, nodes[rest].key, nodes[index].time, nodes[index].key);
        index ^= both & -(uint32_t)swap;
        rest = both ^ index;
    }
    if (KB_UNLIKELY(set->heap_time <= nodes[index].time) || KB_UNLIKELY(!nodes[index].handler))
        goto slowly;
    *head = rest;
    if (rest)
        nodes[rest].next = 0;
    else
        set->bits[set->word] = later_bits;
    set->in_wheel--;
    set->next = &nodes[index];
    return;
slowly:
    kb_eventset_stage_slowly(set);
}

/* An event that comes soon after the next one, or node 0; and fetches another one. */
static inline const kb_node *kb_eventset_upcoming(const kb_eventset *set)
{
    if (set->run_first < set->run_end)
        return set->run_first;
    uint64_t bits = set->bits[set->word];
    if (bits == 0)
        return &set->nodes[0];
    const uint32_t *heads = &set->heads[(size_t)set->word * 64];
    uint64_t later_bits = bits & (bits - 1);
    if (later_bits)
        __builtin_prefetch(&set->nodes[heads[__builtin_ctzll(later_bits)]]);
    return &set->nodes[heads[__builtin_ctzll(bits)]];
}

/* Takes the next event; there must be one. */
static inline kb_node kb_eventset_pop(kb_eventset *set)
{
    kb_node *next = set->next;
    kb_node event = *next;
    kb_eventset_release(set, next);
    set->taken++;
    kb_eventset_stage(set);
    return event;
}

#endif
