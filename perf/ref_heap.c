/*
 * ref_heap.c: an implicit binary heap. No entry comes before its parent, entries[(i - 1) / 2].
 */
#include "ref_heap.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/base.h"

enum { handler_max = 8 };

typedef struct entry {
    kb_time when;
    uint64_t key;
    uint64_t arg;
    uint32_t handler;
} entry;

struct ref_heap {
    kb_time now;
    uint64_t events;
    entry *entries;
    size_t count, capacity;
    uint32_t handler_count;
    struct {
        ref_heap_fn *fn;
        void *self;
    } handlers[handler_max];
};

kb_error *ref_heap_create(ref_heap **heap)
{
    *heap = kb_alloc_zeroed(1, sizeof **heap);
    return *heap != NULL ? NULL : kb_error_nomem();
}

void ref_heap_destroy(ref_heap *heap)
{
    if (heap == NULL)
        return;
    free(heap->entries);
    free(heap);
}

uint32_t ref_heap_add_handler(ref_heap *heap, ref_heap_fn *fn, void *self)
{
    KB_ASSERT(heap->handler_count < handler_max);
    heap->handlers[heap->handler_count].fn = fn;
    heap->handlers[heap->handler_count].self = self;
    return heap->handler_count++;
}

kb_time ref_heap_now(const ref_heap *heap)
{
    return heap->now;
}

uint64_t ref_heap_events(const ref_heap *heap)
{
    return heap->events;
}

static inline bool comes_before(const entry *a, const entry *b)
{
    return a->when < b->when || (a->when == b->when && a->key < b->key);
}

static void grow(ref_heap *heap)
{
    entry *grown =
        kb_grow_array(heap->entries, heap->count, 1, sizeof *heap->entries, &heap->capacity);
    KB_ASSERT(grown != NULL); /* a benchmark without memory has nothing to tell */
    heap->entries = grown;
}

void ref_heap_at(ref_heap *heap, kb_source *source, kb_time when, uint32_t handler, uint64_t arg)
{
    if (KB_UNLIKELY(heap->count == heap->capacity))
        grow(heap);

    entry *entries = heap->entries;
    entry fresh = {when, source->next_key++, arg, handler};
    size_t hole = heap->count++;
    while (hole > 0) {
        size_t parent = (hole - 1) / 2;
        if (!comes_before(&fresh, &entries[parent]))
            break;
        entries[hole] = entries[parent];
        hole = parent;
    }
    entries[hole] = fresh;
}

static entry pop(ref_heap *heap)
{
    entry *entries = heap->entries;
    entry first = entries[0];
    size_t count = --heap->count;
    entry last = entries[count];
    size_t hole = 0;

    for (size_t child; (child = 2 * hole + 1) < count; hole = child) {
        if (child + 1 < count && comes_before(&entries[child + 1], &entries[child]))
            child++;
        if (!comes_before(&entries[child], &last))
            break;
        entries[hole] = entries[child];
    }
    entries[hole] = last;
    return first;
}

void ref_heap_run(ref_heap *heap, kb_time until)
{
    while (heap->count > 0 && heap->entries[0].when <= until) {
        entry next = pop(heap);
        heap->now = next.when;
        heap->events++;
        heap->handlers[next.handler].fn(heap, heap->handlers[next.handler].self, next.arg);
    }
    if (until != KB_FOREVER)
        heap->now = until;
}
