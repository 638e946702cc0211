/* hold_heap.c: the hold model on the reference heap, line by line as in hold_engine.c. */
#include "hold_model.h"

#include "base/base.h"

static inline void step(ref_heap *heap, hold_state *state, uint64_t component, unsigned kind,
                        bool check)
{
    uint32_t handler;
    kb_time now = ref_heap_now(heap);
    kb_time delay = hold_draw(state, kind, &handler);

    if (check)
        hold_hash(state, now, component);
    ref_heap_at(heap, &state->sources[component], now + delay, handler, component);
}

#define HANDLERS(kind)                                                                             \
    static void on_event_##kind(ref_heap *heap, void *self, uint64_t component)                    \
    {                                                                                              \
        step(heap, self, component, kind, false);                                                  \
    }                                                                                              \
    static void on_checked_event_##kind(ref_heap *heap, void *self, uint64_t component)            \
    {                                                                                              \
        step(heap, self, component, kind, true);                                                   \
    }

HANDLERS(0)
HANDLERS(1)
HANDLERS(2)
HANDLERS(3)

static ref_heap_fn *const plain[hold_kinds] = {on_event_0, on_event_1, on_event_2, on_event_3};
static ref_heap_fn *const checking[hold_kinds] = {on_checked_event_0, on_checked_event_1,
                                                  on_checked_event_2, on_checked_event_3};

kb_error *hold_heap_create(hold_state *state, bool check, ref_heap **heap)
{
    uint32_t added[hold_kinds];

    KB_TRY(ref_heap_create(heap));
    for (unsigned i = 0; i < hold_kinds; i++)
        added[i] = ref_heap_add_handler(*heap, check ? checking[i] : plain[i], state);
    hold_set_handlers(state, added);
    for (uint32_t i = 0; i < state->shape.pending; i++)
        step(*heap, state, i, i % hold_kinds, false);
    return NULL;
}

kb_error *hold_heap_count(uint32_t pending, uint64_t events, uint64_t *done)
{
    hold_state state;
    ref_heap *heap = NULL;
    kb_error *err = hold_state_init(&state, &(hold_shape){.pending = pending, .kinds = 4});

    if (err == NULL)
        err = hold_heap_create(&state, false, &heap);
    if (err == NULL) {
        ref_heap_run(heap, hold_time_of(&state, events));
        *done = ref_heap_events(heap);
    }
    ref_heap_destroy(heap);
    hold_state_fini(&state);
    return err;
}
