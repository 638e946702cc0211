/* reference_heap.c: a textbook binary heap; see reference_heap.h. */
#include "reference_heap.h"

#include <stdlib.h>

bool reference_heap_init(reference_heap *heap, uint32_t capacity)
{
    heap->capacity = capacity;
    heap->events = calloc(capacity, sizeof *heap->events);
    heap->order = calloc(capacity, sizeof *heap->order);
    heap->unused = calloc(capacity, sizeof *heap->unused);
    if (!heap->events || !heap->order || !heap->unused) {
        reference_heap_fini(heap);
        return false;
    }
    reference_heap_clear(heap);
    return true;
}

void reference_heap_fini(reference_heap *heap)
{
    free(heap->events);
    free(heap->order);
    free(heap->unused);
}

void reference_heap_clear(reference_heap *heap)
{
    heap->count = 0;
    for (uint32_t i = 0; i < heap->capacity; i++)
        heap->unused[i] = heap->capacity - 1 - i;
}

static bool comes_before(const reference_event *a, const reference_event *b)
{
    if (a->time != b->time)
        return a->time < b->time;
    return a->key < b->key;
}

static void put(reference_heap *heap, uint32_t place, uint32_t ticket)
{
    heap->order[place] = ticket;
    heap->events[ticket].place = place;
}

/* Moves a ticket up, then down, from `place` to where it belongs. */
static void settle(reference_heap *heap, uint32_t place, uint32_t ticket)
{
    const reference_event *event = &heap->events[ticket];
    while (place > 0) {
        uint32_t parent = heap->order[(place - 1) / 2];
        if (!comes_before(event, &heap->events[parent]))
            break;
        put(heap, place, parent);
        place = (place - 1) / 2;
    }
    for (;;) {
        uint32_t child = 2 * place + 1;
        if (child >= heap->count)
            break;
        if (child + 1 < heap->count &&
            comes_before(&heap->events[heap->order[child + 1]], &heap->events[heap->order[child]]))
            child++;
        if (!comes_before(&heap->events[heap->order[child]], event))
            break;
        put(heap, place, heap->order[child]);
        place = child;
    }
    put(heap, place, ticket);
}

uint32_t reference_heap_push(reference_heap *heap, reference_event event)
{
    /* So many are pending, so many tickets are missing at the end. */
    uint32_t ticket = heap->unused[heap->capacity - 1 - heap->count];
    heap->events[ticket] = event;
    heap->count++;
    settle(heap, heap->count - 1, ticket);
    return ticket;
}

const reference_event *reference_heap_first(const reference_heap *heap)
{
    return &heap->events[heap->order[0]];
}

reference_event reference_heap_remove(reference_heap *heap, uint32_t ticket)
{
    reference_event event = heap->events[ticket];
    uint32_t last = heap->order[--heap->count];
    heap->unused[heap->capacity - 1 - heap->count] = ticket;
    if (last != ticket)
        settle(heap, event.place, last);
    return event;
}
