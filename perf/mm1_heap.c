/* mm1_heap.c: the M/M/1 queue on the reference heap, with the handlers of mm1_engine.c. */
#include "mm1.h"
#include "ref_heap.h"

static void on_arrival(ref_heap *heap, void *self, uint64_t arg)
{
    mm1_queue *queue = self;
    kb_time now = ref_heap_now(heap);

    if (mm1_enter(queue, now))
        ref_heap_at(heap, &queue->departure_source, now + mm1_next_service(queue),
                    queue->on_departure, arg);
    if (queue->to_come > 0)
        ref_heap_at(heap, &queue->arrival_source, now + mm1_next_arrival(queue), queue->on_arrival,
                    arg);
}

static void on_departure(ref_heap *heap, void *self, uint64_t arg)
{
    mm1_queue *queue = self;
    kb_time now = ref_heap_now(heap);

    if (mm1_leave(queue, now))
        ref_heap_at(heap, &queue->departure_source, now + mm1_next_service(queue),
                    queue->on_departure, arg);
}

kb_error *mm1_heap(uint64_t objects, mm1_result *result)
{
    mm1_queue queue;
    ref_heap *heap;

    mm1_queue_init(&queue, objects);
    KB_TRY(ref_heap_create(&heap));
    queue.on_arrival = ref_heap_add_handler(heap, on_arrival, &queue);
    queue.on_departure = ref_heap_add_handler(heap, on_departure, &queue);
    ref_heap_at(heap, &queue.arrival_source, mm1_next_arrival(&queue), queue.on_arrival, 0);
    ref_heap_run(heap, KB_FOREVER);
    result->total = queue.total;
    result->events = ref_heap_events(heap);
    ref_heap_destroy(heap);
    return NULL;
}
