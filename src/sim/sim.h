/*
 * sim.h: the discrete-event engine, for the folders above. Most of it is public: events, handlers,
 * coroutines and waiting are in <kernbench/kernbench.h>.
 */
#ifndef KB_SIM_SIM_H
#define KB_SIM_SIM_H

#include <kernbench/kernbench.h>

#include "eventset.h"

/*
 * The event that comes next as things stand, and one that probably comes soon after it, for
 * fetching what they will need while the one in hand is dealt with: worth it where a model is much
 * larger than the caches. Handler 0 if there is none, or none that is easily found.
 */
typedef struct kb_preview {
    kb_handler handler;
    uint64_t arg;
} kb_preview;

typedef struct kb_outlook {
    kb_preview next, later;
} kb_outlook;

kb_outlook kb_sim_look_ahead(const kb_sim *sim);

/*
 * The events of a simulator, for models whose event rate requires scheduling inline with
 * kb_eventset_push(): never for the past, only with handlers of this simulator, and nothing else.
 * kb_sim_at() says what went wrong if it cannot.
 */
kb_eventset *kb_sim_events(kb_sim *sim);

/* What such models read and move of a simulator's time. */
typedef struct kb_clock {
    kb_time now;
    kb_time run_until; /* events up to here may run; before all of them once stopped */
} kb_clock;

kb_clock *kb_sim_get_clock(kb_sim *sim);

/*
 * In a handler, as the last thing that it does: if the next event is for handler `first` or one of
 * the `count` - 1 after it, takes it out and moves the clock, so that a model that has many events
 * runs them in a loop of its own.
 */
static inline __attribute__((always_inline)) bool
kb_sim_take(kb_eventset *set, kb_clock *clock, kb_handler first, uint32_t count, kb_node *event)
{
    if (KB_UNLIKELY(set->next->handler - first >= count) ||
        KB_UNLIKELY(set->next->time > clock->run_until))
        return false;
    *event = kb_eventset_pop(set);
    clock->now = event->time;
    return true;
}

/* The source that has scheduled the event with this key: see kb_source_make(). */
static inline uint32_t kb_source_id(uint64_t key)
{
    return (uint32_t)(key >> 40);
}

/* The time of the next event, KB_FOREVER if none is left. */
kb_time kb_sim_next_time(const kb_sim *sim);

/* Says what ends when the handler is called, such as "a transfer", for messages. Not copied. */
void kb_sim_name_work(kb_sim *sim, kb_handler handler, const char *work);

/* Work without an event ends then: fails the run if that is past the end of the clock. */
void kb_sim_expect(kb_sim *sim, kb_time when, const char *work);

/* While it is owned, kb_sim_destroy() does nothing but remember that it was called. */
void kb_sim_own(kb_sim *sim, bool owned);
bool kb_sim_refused_destruction(const kb_sim *sim);

/* Whether it runs, so that this is called by a handler or a coroutine. */
bool kb_sim_is_running(const kb_sim *sim);

/* The coroutine that calls this, NULL if none does. */
kb_co *kb_sim_current(const kb_sim *sim);

/* The coroutine that was spawned last and has not ended; NULL if there is none. */
kb_co *kb_sim_newest(const kb_sim *sim);

/* What it was spawned with. */
void *kb_co_arg(const kb_co *co);

/* A line of source. */
typedef struct kb_line {
    const char *file; /* must stay; NULL: unknown */
    int line;
} kb_line;

/* Where in its program it was last, for reports: as far as it says so itself. Looking is safe in a
 * signal handler, as are kb_sim_current(), kb_sim_newest(), kb_sim_now() and kb_co_name(). */
void kb_co_set_line(kb_co *co, kb_line at);
kb_line kb_co_get_line(const kb_co *co);

/* It ends, and its cleanups or its own frames still run: calls that would block return at once. */
bool kb_co_is_unwinding(const kb_co *co);

/* The coroutine waits in a list: takes it out and lets it go on, in an event of this instant; or,
 * called by a handler, before this returns. */
void kb_co_wake(kb_co *co);
void kb_co_resume_now(kb_co *co);

/*
 * Calls fn(arg). If the coroutine exits or is killed in that call, the cleanups that the call has
 * pushed run, its frames are abandoned, and this returns false instead of ending the coroutine: the
 * caller, and the frames around it, return by themselves. From there on the coroutine is unwinding
 * and never suspended again. It ends when its function returns, or with the next kb_co_exit() that
 * is not in a kb_co_try(). Calls nest. `fn` must end by returning: no longjmp(), no exception.
 */
bool kb_co_try(kb_co *co, void (*fn)(void *arg), void *arg);

#endif
