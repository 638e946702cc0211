/*
 * sim.h: the discrete-event simulator: events, coroutines, waiting. It can be used without a
 * machine. A clerk serves customers, two at a time, for three nanoseconds each:
 *
 *     static void customer(kb_co *co, void *desk)
 *     {
 *         kb_sem_acquire(co, desk, 1);
 *         kb_co_sleep(co, 3 * KB_NS);
 *         kb_sem_release(kb_co_sim(co), desk, 1);
 *     }
 *
 *     int main(void)
 *     {
 *         kb_sim *sim;
 *         kb_error *err = kb_sim_create(NULL, &sim);
 *         kb_sem desk;
 *         kb_sem_init(&desk, "desk", 2);
 *         for (uint32_t i = 0; i < 5 && !err; i++)
 *             err = kb_co_spawn(sim, &(kb_co_options){.name = "customer", .source_id = i},
 *                               customer, &desk, NULL);
 *         if (!err)
 *             err = kb_sim_run(sim, KB_FOREVER);
 *         if (err)
 *             fprintf(stderr, "%s\n", kb_error_message(err));
 *         else
 *             printf("closed at %" PRId64 " fs\n", kb_sim_now(sim));    // 9000000: 9 ns
 *         kb_error_free(err);
 *         kb_sim_destroy(sim);
 *     }
 */
#ifndef KERNBENCH_SIM_H
#define KERNBENCH_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/base.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- The simulator ----------------------------------------------------------------------- */

typedef struct kb_sim kb_sim;
typedef struct kb_co kb_co; /* a coroutine */

typedef struct kb_sim_options {
    size_t stack_bytes; /* of each coroutine, 16 KiB to 1 GiB; 0 means 64 KiB */
    bool no_elision;    /* every step goes through the event set: slower, the same results */
} kb_sim_options;

/* NULL options are the default ones. *sim is NULL after an error. */
KB_API KB_MUST_USE kb_error *kb_sim_create(const kb_sim_options *options, kb_sim **sim);

/* Unwinds the coroutines that are left: their cleanups run. Not while it runs. */
KB_API void kb_sim_destroy(kb_sim *sim);

KB_API kb_time kb_sim_now(const kb_sim *sim);

/*
 * Runs all events up to and including `until`, and leaves the clock there. With KB_FOREVER it
 * leaves the clock at the last event; and if then a coroutine that is no daemon still waits, it
 * returns KB_ERR_DEADLOCK with the list of who waits for what. Returns early after kb_sim_stop(),
 * and with the error that kb_sim_fail() was given. Not to be called from handlers or coroutines.
 */
KB_API KB_MUST_USE kb_error *kb_sim_run(kb_sim *sim, kb_time until);

/* Makes run return when the event in hand is done. A later run goes on from there. */
KB_API void kb_sim_stop(kb_sim *sim);

/* The same, with an error to return. Takes it over; of several the first one counts. */
KB_API void kb_sim_fail(kb_sim *sim, kb_error *err);

/*
 * Forgets all events and unwinds all coroutines; meanwhile none can be spawned. The clock stays,
 * and the simulator can be used on. Not to be called from coroutines.
 */
KB_API void kb_sim_abandon(kb_sim *sim);

typedef struct kb_sim_stats {
    uint64_t events;    /* taken from the event set and run */
    uint64_t elided;    /* steps that needed no event because nothing came before them */
    uint64_t cancelled; /* events cancelled before their time */
    uint64_t resumes;   /* switches into a coroutine */
    uint32_t pending;   /* events waiting now */
    uint32_t
        max_pending; /* the most there ever were, with those whose place is not yet free again */
    uint32_t coroutines; /* alive now */
} kb_sim_stats;

/* Looks through memory for max_pending: for reports, not for every event. */
KB_API kb_sim_stats kb_sim_get_stats(const kb_sim *sim);

/* ---- Events and handlers ----------------------------------------------------------------- */

/*
 * Events are totally ordered by (time, source id, sequence at the source), so the order depends
 * on what is simulated and not on how. Each thing that schedules has a source of its own, with an
 * id that no other one has at the time; ids should follow the structure of what is modelled.
 */
typedef struct kb_source {
    uint64_t next_key;
} kb_source;

#define KB_SOURCE_ID_MAX ((1u << 24) - 1)

static inline kb_source kb_source_make(uint32_t id)
{
    kb_source source = {(uint64_t)id << 40}; /* 2^40 events a source before ids would run over */
    return source;
}

/* Runs to completion; must not block. */
typedef void kb_handler_fn(kb_sim *sim, void *self, uint64_t arg);

typedef uint32_t kb_handler;

KB_API KB_MUST_USE kb_error *kb_sim_add_handler(kb_sim *sim, kb_handler_fn *fn, void *self,
                                                kb_handler *handler);

/* Names one scheduled event, for cancelling it. Never names another one later. */
typedef struct kb_event {
    uint64_t key;
    uint64_t slot;
} kb_event;

/*
 * Calls the handler with `arg` at time `when`, which must not be in the past. If there is no
 * memory for the event, the run fails with KB_ERR_HOST; if `when` is KB_FOREVER, and so past the
 * end of the clock, with KB_ERR_INPUT.
 */
KB_API kb_event kb_sim_at(kb_sim *sim, kb_source *source, kb_time when, kb_handler handler,
                          uint64_t arg);

/* The same, `delay` from now. */
KB_API kb_event kb_sim_after(kb_sim *sim, kb_source *source, kb_time delay, kb_handler handler,
                             uint64_t arg);

/* False if the event has happened or was cancelled before. */
KB_API bool kb_sim_cancel(kb_sim *sim, kb_event event);

/*
 * Skips an event: if the one that `source` would schedule for `when` would be the very next to
 * happen, moves the clock there and returns true, and the caller does at once what its handler
 * would have done. Otherwise nothing has happened, and the caller schedules it.
 */
KB_API bool kb_sim_advance(kb_sim *sim, kb_source *source, kb_time when);

/* ---- Coroutines -------------------------------------------------------------------------- */

/*
 * A function with a stack of its own that can sleep and wait. It must not change the floating
 * point environment, nor block the thread. The calls that take a kb_co as their first argument are
 * for the coroutine itself.
 */
typedef void kb_co_fn(kb_co *co, void *arg);

typedef struct kb_co_options {
    const char *name;          /* for messages; copied */
    uint32_t source_id;        /* its id in the order of events */
    bool daemon;               /* may be left waiting at the end: no deadlock */
    void (*on_end)(void *arg); /* called when it is gone, also if it never started; may be NULL */
} kb_co_options;

/*
 * The coroutine starts at the present time, when its turn comes. If `co` is not NULL it gets a
 * handle that is good until the coroutine ends; so is its source. NULL options are the default
 * ones.
 */
KB_API KB_MUST_USE kb_error *kb_co_spawn(kb_sim *sim, const kb_co_options *options, kb_co_fn *fn,
                                         void *arg, kb_co **co);

KB_API kb_sim *kb_co_sim(const kb_co *co);
KB_API const char *kb_co_name(const kb_co *co);
KB_API kb_source *kb_co_source(kb_co *co);

/* A sleep of 0 lets everything go first that comes before this coroutine at the present time. */
KB_API void kb_co_sleep(kb_co *co, kb_time duration);

/* Ends the coroutine from anywhere in it, as if its function had returned. */
KB_API KB_NORETURN void kb_co_exit(kb_co *co);

/*
 * Unwinds a suspended coroutine: wherever it waits, that call does not return; its cleanups run on
 * its stack, the newest first, and it is gone. In a cleanup, calls that would block return at once.
 * C++ destructors do not run: use cleanups. The frames of a kernel can return by themselves:
 * tl_try().
 */
KB_API void kb_co_kill(kb_co *co);

/*
 * A cleanup runs when the coroutine ends while it is pushed. It mostly lives in a local variable,
 * and is then to be popped before the function around it returns:
 *
 *     kb_cleanup undo;
 *     kb_co_push_cleanup(co, &undo, free, buffer);
 *     ...
 *     kb_co_pop_cleanup(co, true);
 */
typedef struct kb_cleanup {
    struct kb_cleanup *below;
    void (*fn)(void *arg);
    void *arg;
} kb_cleanup;

KB_API void kb_co_push_cleanup(kb_co *co, kb_cleanup *cleanup, void (*fn)(void *), void *arg);
KB_API void kb_co_pop_cleanup(kb_co *co, bool run);

/*
 * For a handler of SIGSEGV: the name of the coroutine in whose guard page the address is, or NULL.
 * Allocates nothing and takes no locks.
 */
KB_API const char *kb_sim_stack_overflow(const kb_sim *sim, const void *address);

/* ---- Waiting ----------------------------------------------------------------------------- */

/*
 * Something that waits, in order of arrival: a coroutine, or an event that is scheduled when its
 * turn comes. Handlers, which cannot block, wait with a kb_waiter of their own and the _then calls:
 * these return true if nothing had to be waited for and no event will come, or false, and then the
 * handler is called when the thing has been done. The kb_waiter must stay until then.
 *
 * Lists, semaphores and channels must stay while they have waiters: before they go after a run
 * that failed, kb_sim_abandon() the simulator.
 */
typedef struct kb_waiter {
    struct kb_waiter *next, *prev;
    struct kb_waitlist *list; /* NULL when it does not wait */
    kb_source *source;
    kb_handler handler;
    uint64_t arg;
    uint64_t value; /* units wanted of a semaphore; the word to put into or got from a channel */
    kb_event event; /* of its handler, once its turn has come */
    struct kb_sem *granted; /* what it was given units of */
} kb_waiter;

typedef struct kb_waitlist {
    kb_waiter *head, *tail;
    const char *name;   /* for reports of deadlock; not copied */
    struct kb_sem *sem; /* whose list it is, NULL for others */
} kb_waitlist;

static inline void kb_waiter_init(kb_waiter *waiter, kb_source *source, kb_handler handler,
                                  uint64_t arg)
{
    kb_waiter fresh = {NULL, NULL, NULL, source, handler, arg, 0, {0, 0}, NULL};
    *waiter = fresh;
}

KB_API void kb_waitlist_init(kb_waitlist *list, const char *name);
KB_API void kb_wait(kb_co *co, kb_waitlist *list);
KB_API bool kb_wait_until(kb_co *co, kb_waitlist *list, kb_time deadline); /* false: too late */
KB_API void kb_wait_then(kb_waitlist *list, kb_waiter *waiter);
KB_API bool kb_wake_one(kb_sim *sim, kb_waitlist *list); /* false if the list is empty */
KB_API void kb_wake_all(kb_sim *sim, kb_waitlist *list);

/*
 * Its handler will not be called; units that it was given go back, but words that a channel has
 * handed over or taken do not. False if it has been called, or does not wait.
 */
KB_API bool kb_waiter_cancel(kb_sim *sim, kb_waiter *waiter);

/* A count that can be taken from and given back to. First come, first served. Not to be copied. */
typedef struct kb_sem {
    kb_waitlist waiters;
    uint64_t available;
} kb_sem;

KB_API void kb_sem_init(kb_sem *sem, const char *name, uint64_t available);
KB_API bool kb_sem_acquire(kb_co *co, kb_sem *sem, uint64_t units); /* false in a cleanup only */
KB_API bool kb_sem_try_acquire(kb_sem *sem, uint64_t units);
KB_API bool kb_sem_acquire_then(kb_sem *sem, uint64_t units, kb_waiter *waiter);
KB_API void kb_sem_release(kb_sim *sim, kb_sem *sem, uint64_t units);

/* A bounded queue of 64-bit words: numbers, indices or pointers. The capacity is at least 1. */
typedef struct kb_channel {
    kb_waitlist getters, putters;
    uint64_t *words;
    uint32_t capacity, first, count;
} kb_channel;

KB_API KB_MUST_USE kb_error *kb_channel_init(kb_channel *channel, const char *name,
                                             uint32_t capacity);
KB_API void kb_channel_fini(kb_channel *channel);
KB_API bool kb_channel_put(kb_co *co, kb_channel *channel, uint64_t word); /* as kb_sem_acquire */
KB_API uint64_t kb_channel_get(kb_co *co, kb_channel *channel); /* in a cleanup, use try_get */
KB_API bool kb_channel_try_put(kb_sim *sim, kb_channel *channel, uint64_t word);
KB_API bool kb_channel_try_get(kb_sim *sim, kb_channel *channel, uint64_t *word);
KB_API bool kb_channel_put_then(kb_sim *sim, kb_channel *channel, uint64_t word, kb_waiter *waiter);
KB_API bool kb_channel_get_then(kb_sim *sim, kb_channel *channel, kb_waiter *waiter);

#ifdef __cplusplus
}
#endif

#endif
