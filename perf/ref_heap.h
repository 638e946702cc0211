/*
 * ref_heap.h: the event set of the textbook, to compare with: an implicit binary heap of callbacks.
 *
 * The order of events, the handlers and the run are those of the engine, so the same model runs on
 * both. There is no cancelling, no coroutines and no elision.
 */
#ifndef KB_BENCH_REF_HEAP_H
#define KB_BENCH_REF_HEAP_H

#include <stdint.h>

#include <kernbench/kernbench.h>

typedef struct ref_heap ref_heap;
typedef void ref_heap_fn(ref_heap *heap, void *self, uint64_t arg);

KB_MUST_USE kb_error *ref_heap_create(ref_heap **heap);
void ref_heap_destroy(ref_heap *heap);

/* At most 8 of them. */
uint32_t ref_heap_add_handler(ref_heap *heap, ref_heap_fn *fn, void *self);

void ref_heap_at(ref_heap *heap, kb_source *source, kb_time when, uint32_t handler, uint64_t arg);

/* Like kb_sim_run(). */
void ref_heap_run(ref_heap *heap, kb_time until);

kb_time ref_heap_now(const ref_heap *heap);
uint64_t ref_heap_events(const ref_heap *heap);

#endif
