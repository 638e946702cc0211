/* hold_engine.c: the hold model on KernBench's own engine. */
#include "hold_model.h"

#include "base/base.h"

static inline void step(kb_sim *sim, hold_state *state, uint64_t component, unsigned kind,
                        bool check)
{
    uint32_t handler;
    kb_time delay = hold_draw(state, kind, &handler);

    if (check)
        hold_hash(state, kb_sim_now(sim), component);
    kb_sim_after(sim, &state->sources[component], delay, handler, component);
}

#define HANDLERS(kind)                                                                             \
    static void on_event_##kind(kb_sim *sim, void *self, uint64_t component)                       \
    {                                                                                              \
        step(sim, self, component, kind, false);                                                   \
    }                                                                                              \
    static void on_checked_event_##kind(kb_sim *sim, void *self, uint64_t component)               \
    {                                                                                              \
        step(sim, self, component, kind, true);                                                    \
    }

HANDLERS(0)
HANDLERS(1)
HANDLERS(2)
HANDLERS(3)

static kb_handler_fn *const plain[hold_kinds] = {on_event_0, on_event_1, on_event_2, on_event_3};
static kb_handler_fn *const checking[hold_kinds] = {on_checked_event_0, on_checked_event_1,
                                                    on_checked_event_2, on_checked_event_3};

static kb_error *add_handlers(hold_state *state, bool check, kb_sim *sim)
{
    kb_handler added[hold_kinds];

    for (unsigned i = 0; i < hold_kinds; i++)
        KB_TRY(kb_sim_add_handler(sim, check ? checking[i] : plain[i], state, &added[i]));
    hold_set_handlers(state, added);
    return NULL;
}

kb_error *hold_engine_create(hold_state *state, bool check, kb_sim **sim)
{
    KB_TRY(kb_sim_create(NULL, sim));
    kb_error *err = add_handlers(state, check, *sim);
    if (err != NULL) {
        kb_sim_destroy(*sim);
        *sim = NULL;
        return err;
    }
    for (uint32_t i = 0; i < state->shape.pending; i++)
        step(*sim, state, i, i % hold_kinds, false);
    return NULL;
}

kb_error *hold_engine_count(uint32_t pending, uint64_t events, uint64_t *done)
{
    hold_state state;
    kb_sim *sim = NULL;
    kb_error *err = hold_state_init(&state, &(hold_shape){.pending = pending, .kinds = 4});

    if (err == NULL)
        err = hold_engine_create(&state, false, &sim);
    if (err == NULL)
        err = kb_sim_run(sim, hold_time_of(&state, events));
    if (err == NULL)
        *done = kb_sim_get_stats(sim).events;
    kb_sim_destroy(sim);
    hold_state_fini(&state);
    return err;
}
