/*
 * reference_heap.h: the plainest set of events that can do all that the event set can. It exists to
 * be compared with, so it shares nothing with src/sim but the names of the types.
 *
 * A textbook binary heap of tickets. A ticket names a pending event and knows its place in the
 * heap, so that it can be taken out of the middle. All memory is taken at init: later allocations
 * can be made to fail without it noticing.
 */
#ifndef TESTS_SIM_REFERENCE_HEAP_H
#define TESTS_SIM_REFERENCE_HEAP_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

typedef struct reference_event {
    kb_time time;
    uint64_t key;
    uint64_t arg;
    uint32_t handler;
    uint32_t place;  /* in `order`, while it is pending */
    kb_event handle; /* the name of the same event in the set that is compared */
} reference_event;

typedef struct reference_heap {
    reference_event *events; /* by ticket */
    uint32_t *order;         /* tickets: no event comes before its parent's, at (place - 1) / 2 */
    uint32_t *unused;        /* tickets that are not pending */
    uint32_t count;
    uint32_t capacity;
} reference_heap;

/* False if there is no memory. */
bool reference_heap_init(reference_heap *heap, uint32_t capacity);
void reference_heap_fini(reference_heap *heap);

/* Returns the ticket. There must be fewer than `capacity` events. */
uint32_t reference_heap_push(reference_heap *heap, reference_event event);

/* The earliest event; there must be one. */
const reference_event *reference_heap_first(const reference_heap *heap);

/* Takes an event out, wherever it is. The first one has the ticket order[0]. */
reference_event reference_heap_remove(reference_heap *heap, uint32_t ticket);

void reference_heap_clear(reference_heap *heap);

#endif
