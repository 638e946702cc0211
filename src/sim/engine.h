/*
 * engine.h: what the files of sim know of a simulator and its coroutines. Private to sim.
 */
#ifndef KB_SIM_ENGINE_H
#define KB_SIM_ENGINE_H

#include <setjmp.h>

#include "sim/continuation.h"
#include "sim/eventset.h"
#include "sim/sim.h"
#include "sim/stack.h"

typedef struct kb_handler_entry {
    kb_handler_fn *fn;
    void *self;
} kb_handler_entry;

/* Handlers whose work has a name: those of a machine are fewer. */
enum { KB_NAMED_HANDLERS = 64 };

struct kb_sim {
    kb_eventset set;
    union {
        kb_clock clock;
        struct {
            kb_time now;
            kb_time run_until;
        };
    };
    bool elide;
    bool running;
    bool unwinding; /* all coroutines; none is born meanwhile */
    bool is_owned;  /* kb_sim_own() */
    bool refused_destruction;
    kb_handler_entry *handlers;
    uint32_t handler_count;
    uint32_t handler_capacity;

    uint64_t elided;
    uint64_t cancelled;
    uint64_t resumes;
    kb_error *failure; /* what run is to return */

    const char *work_names[KB_NAMED_HANDLERS]; /* kb_sim_name_work(); NULL: not known */

    kb_handler resume; /* the handler that resumes the coroutine in its argument */
    kb_stack_pool stacks;
    kb_co *coroutines; /* all that are alive, the newest first */
    kb_co *current;    /* the one that runs, NULL in handlers and outside run */
    uint32_t coroutine_count;
    uint32_t spawned;
};

/* Where a coroutine goes on that ends in a kb_co_try(): in the frame of that call. */
typedef struct kb_landing {
    struct kb_landing *outer; /* of the kb_co_try() around it; NULL: none */
    kb_cleanup *cleanups;     /* that were pushed before the call, and stay */
    jmp_buf frame;
} kb_landing;

/*
 * At the top of the coroutine's own stack. When it is suspended it is resumed by an event (`wake`),
 * or by what it waits for (`waiter`), or by either in a wait with a deadline (C1).
 *
 * With many coroutines, each finds its state in no cache when its turn comes: so what a sleep takes
 * is one line, and what other waiting takes are the next two.
 */
struct kb_co {
    kb_sim *sim;
    kb_source source;
    kb_continuation context; /* where it goes on when resumed */
    kb_continuation resumer; /* where it goes when it yields or ends */
    kb_event wake;           /* slot 0: none */
    const char *file;        /* of its program: where it was last */
    int line;
    bool running;   /* or waiting for one that it kills to be unwound */
    bool unwinding; /* it ends; blocking calls return at once */
    bool ended;

    kb_waiter waiter; /* list NULL: none */

    bool daemon;
    bool started;
    kb_cleanup *cleanups;
    kb_landing *landing; /* of the innermost kb_co_try(); NULL: it ends at once */
    kb_co *next, *prev;
    kb_co_fn *fn;
    void *arg;
    void (*on_end)(void *arg);
    kb_stack stack;
    char name[48]; /* cut off if longer */
};

/* What kb_sim_at() does when it cannot do its work: fails the run. */
kb_event kb_sim_refuse_event(kb_sim *sim, kb_time when, kb_handler handler);

/* kb_sim_at(), for the files of sim: inlined. */
static inline kb_event kb_sim_schedule(kb_sim *sim, kb_source *source, kb_time when,
                                       kb_handler handler, uint64_t arg)
{
    /* KB_FOREVER + 1 is far below 0, so one comparison finds both what is in the past and what is
     * past the end of the clock. Handler 0 stands for none: 0 - 1 is a large number. */
    if (KB_UNLIKELY((kb_time)((uint64_t)when + 1) <= sim->now) ||
        KB_UNLIKELY(handler - 1 >= sim->handler_count - 1))
        return kb_sim_refuse_event(sim, when, handler);
    kb_event event = kb_eventset_push(&sim->set, when, source->next_key++, handler, arg);
    if (KB_UNLIKELY(event.slot == 0))
        return kb_sim_refuse_event(sim, when, handler);
    return event;
}

/* Would an event that `source` schedules for `when` be the very next? */
static inline bool kb_sim_would_be_next(const kb_sim *sim, const kb_source *source, kb_time when)
{
    return kb_before(when, source->next_key, sim->set.next->time, sim->set.next->key);
}

/* Gives way until resumed. Does not return if the coroutine is killed meanwhile. */
static inline void kb_co_suspend(kb_co *co)
{
    KB_DEBUG_ASSERT(co->sim->current == co);
    kb_continuation_switch(&co->context, &co->resumer);
    if (KB_UNLIKELY(co->unwinding))
        kb_co_exit(co);
}

/* Unwinds the rest, the newest first. */
void kb_co_kill_all(kb_sim *sim);

/* Who waits for what, as an error; NULL if only daemons are left. */
KB_MUST_USE kb_error *kb_sim_deadlock(const kb_sim *sim);

/* Gives the stack of a coroutine that has ended back, and the coroutine with it. */
void kb_co_release(kb_co *co);

/* Lets a coroutine go on until it waits or ends. */
static inline void kb_co_enter(kb_co *co)
{
    kb_sim *sim = co->sim;
    kb_co *outer = sim->current;
    sim->current = co;
    sim->resumes++;
    co->running = true;
    kb_continuation_switch(&co->resumer, &co->context);
    co->running = false;
    sim->current = outer;
    if (KB_UNLIKELY(co->ended))
        kb_co_release(co);
}

/*
 * Fetches the stack of a coroutine that is about to go on: the frames that it will return to and
 * those it will make. With this many coroutines they are in no cache that is near.
 */
static inline void kb_co_fetch(const kb_sim *sim, const kb_co *co)
{
#if KB_CONTEXT_ASM
    enum { MANY = 64, LINE = 64, BELOW = 4, ABOVE = 12 };
    if (sim->coroutine_count < MANY)
        return;
    const char *top = co->context.stack_pointer;
#pragma GCC unroll 20
    for (ptrdiff_t i = -BELOW; i < ABOVE; i++)
        __builtin_prefetch(top + i * LINE);
#else
    (void)sim, (void)co;
#endif
}

/* The handler that resumes the coroutine in its argument. */
static inline void kb_co_resume(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim;
    (void)self;
    kb_co *co = (kb_co *)(uintptr_t)arg;
    co->wake.slot = 0;
    kb_co_enter(co);
}

#endif
