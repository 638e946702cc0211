/*
 * coroutine.c: functions that can wait, each on a stack of its own.
 *
 * A coroutine is entered by switching to it and left by switching back to its caller: from
 * outside, resuming one is a call. At most one event or list entry can resume it at any time
 * (detach() finds it), so a coroutine that is killed leaves nothing behind.
 *
 * Not modelled: priorities, preemption, moving between simulators.
 */
#include <inttypes.h>
#include <string.h>

#include "sim/engine.h"
#include "sim/sim.h"

#if KB_CONTEXT_ASM && !defined(KB_ASAN) && !defined(KB_TSAN)
_Static_assert(offsetof(kb_co, waiter) == 64, "what a sleep takes is one cache line");
#endif

kb_sim *kb_co_sim(const kb_co *co)
{
    return co->sim;
}

const char *kb_co_name(const kb_co *co)
{
    return co->name;
}

kb_source *kb_co_source(kb_co *co)
{
    return &co->source;
}

void *kb_co_arg(const kb_co *co)
{
    return co->arg;
}

void kb_co_set_line(kb_co *co, kb_line at)
{
    co->file = at.file;
    co->line = at.line;
}

kb_line kb_co_get_line(const kb_co *co)
{
    return (kb_line){.file = co->file, .line = co->line};
}

bool kb_co_is_unwinding(const kb_co *co)
{
    return co->unwinding;
}

kb_co *kb_sim_current(const kb_sim *sim)
{
    return sim->current;
}

kb_co *kb_sim_newest(const kb_sim *sim)
{
    return sim->coroutines;
}

/* ---- Being born and dying ---- */

void kb_co_release(kb_co *co)
{
    kb_sim *sim = co->sim;
    KB_LIST_TAKE_OUT(sim->coroutines, co);
    sim->coroutine_count--;
    if (co->on_end)
        co->on_end(co->arg);
    kb_continuation_destroy(&co->context);
    kb_stack_give(&sim->stacks, co->stack); /* with co on it */
}

/* A cleanup may exit in turn: that goes on with the cleanups below it. */
void kb_co_exit(kb_co *co)
{
    KB_ASSERT(co->sim->current == co);
    co->unwinding = true;
    kb_cleanup *staying = co->landing ? co->landing->cleanups : NULL;
    while (co->cleanups != staying)
        kb_co_pop_cleanup(co, true);
    if (co->landing)
        longjmp(co->landing->frame, 1);
    co->ended = true;
    kb_continuation_leave(&co->context, &co->resumer);
}

bool kb_co_try(kb_co *co, void (*fn)(void *arg), void *arg)
{
    KB_ASSERT(co->sim->current == co);
    kb_landing landing = {.outer = co->landing, .cleanups = co->cleanups};
    co->landing = &landing;
    if (setjmp(landing.frame) != 0) {
        co->landing = landing.outer;
        return false;
    }
    fn(arg);
    co->landing = landing.outer;
    return true;
}

static void co_main(void *arg)
{
    kb_co *co = arg;
    co->started = true;
    kb_continuation_entered(&co->resumer);
    co->fn(co, co->arg);
    KB_ASSERT(!co->landing); /* a frame of kb_co_try() was skipped, for example by a longjmp() */
    kb_co_exit(co);
}

/*
 * Coroutines of one id that follow each other get keys of their own, so that an event of a former
 * one is never taken for one of a later: each has a range of 2^24 before keys could be those of the
 * next.
 */
static kb_source own_source(kb_sim *sim, uint32_t id)
{
    kb_source source = kb_source_make(id);
    source.next_key += (uint64_t)(sim->spawned++ & 0x7fff) << 24;
    return source;
}

kb_error *kb_co_spawn(kb_sim *sim, const kb_co_options *options, kb_co_fn *fn, void *arg,
                      kb_co **handle)
{
    static const kb_co_options defaults = {.name = "coroutine"};
    if (!options)
        options = &defaults;
    const char *name = options->name ? options->name : defaults.name;
    if (options->source_id > KB_SOURCE_ID_MAX)
        return kb_error_new(KB_ERR_BUG, "coroutine '%s': source id %u exceeds the maximum of %u",
                            name, options->source_id, KB_SOURCE_ID_MAX);
    if (sim->unwinding)
        return kb_error_new(KB_ERR_FAULT, "coroutine '%s': the simulation is being torn down",
                            name);
    kb_stack stack;
    KB_TRY(kb_stack_take(&sim->stacks, &stack));
    char *low = kb_stack_low(stack);
    uintptr_t top = (uintptr_t)low + sim->stacks.bytes;
    kb_co *co = (kb_co *)((top - sizeof *co) & ~(uintptr_t)63);
    *co = (kb_co){
        .sim = sim,
        .source = own_source(sim, options->source_id),
        .daemon = options->daemon,
        .fn = fn,
        .arg = arg,
        .on_end = options->on_end,
        .stack = stack,
    };
    strncpy(co->name, name, sizeof co->name - 1);
    kb_waiter_init(&co->waiter, &co->source, sim->resume, (uintptr_t)co);
    co->wake =
        kb_eventset_push(&sim->set, sim->now, co->source.next_key++, sim->resume, (uintptr_t)co);
    if (co->wake.slot == 0) {
        kb_stack_give(&sim->stacks, stack);
        return kb_error_nomem();
    }
    kb_continuation_make(&co->context, low, (size_t)((char *)co - low), co_main, co);
    KB_LIST_PUSH(sim->coroutines, co);
    sim->coroutine_count++;
    if (handle)
        *handle = co;
    return NULL;
}

void kb_co_push_cleanup(kb_co *co, kb_cleanup *cleanup, void (*fn)(void *), void *arg)
{
    *cleanup = (kb_cleanup){.below = co->cleanups, .fn = fn, .arg = arg};
    co->cleanups = cleanup;
}

void kb_co_pop_cleanup(kb_co *co, bool run)
{
    kb_cleanup *cleanup = co->cleanups;
    KB_ASSERT(cleanup);
    co->cleanups = cleanup->below;
    if (run)
        cleanup->fn(cleanup->arg);
}

/* Removes a coroutine's event or list entry, so that nothing resumes it any more. */
static void detach(kb_co *co)
{
    if (co->wake.slot)
        (void)kb_sim_cancel(co->sim, co->wake);
    co->wake.slot = 0;
    (void)kb_waiter_cancel(co->sim, &co->waiter);
}

void kb_co_kill(kb_co *co)
{
    /* Neither the caller, nor one that has come to this call by a cleanup of another. */
    KB_ASSERT(!co->running);
    detach(co);
    if (!co->started) {
        kb_co_release(co);
        return;
    }
    co->unwinding = true;
    kb_co_enter(co);
}

void kb_co_kill_all(kb_sim *sim)
{
    KB_ASSERT(!sim->current);
    sim->unwinding = true;
    while (sim->coroutines)
        kb_co_kill(sim->coroutines);
    sim->unwinding = false;
}

/* ---- Waiting and going on ---- */

void kb_co_sleep(kb_co *co, kb_time duration)
{
    kb_sim *sim = co->sim;
    if (KB_UNLIKELY(co->unwinding))
        return;
    kb_time when = kb_time_add(sim->now, duration);
    if (kb_sim_would_be_next(sim, &co->source, when) && kb_sim_advance(sim, &co->source, when))
        return;
    co->wake = kb_sim_schedule(sim, &co->source, when, sim->resume, (uintptr_t)co);
    kb_co_suspend(co);
}

void kb_co_wake(kb_co *co)
{
    detach(co);
    co->wake = kb_sim_schedule(co->sim, &co->source, co->sim->now, co->sim->resume, (uintptr_t)co);
}

void kb_co_resume_now(kb_co *co)
{
    KB_ASSERT(!co->sim->current && co->started);
    detach(co);
    kb_co_enter(co);
}

/* ---- Reports ---- */

kb_error *kb_sim_deadlock(const kb_sim *sim)
{
    enum { MAX_LISTED = 16 };
    const kb_co *oldest = sim->coroutines;
    while (oldest && oldest->next)
        oldest = oldest->next;
    uint32_t waiting = 0;
    for (const kb_co *co = oldest; co; co = co->prev)
        waiting += !co->daemon;
    if (waiting == 0)
        return NULL;

    kb_error *err = kb_error_new(KB_ERR_DEADLOCK,
                                 "deadlock at %" PRId64 ".%06" PRId64
                                 " ns: no pending events, %u coroutine%s blocked",
                                 sim->now / KB_NS, sim->now % KB_NS, waiting, kb_plural(waiting));
    uint32_t listed = 0;
    for (const kb_co *co = oldest; co && listed < MAX_LISTED; co = co->prev) {
        if (co->daemon)
            continue;
        const kb_waitlist *list = co->waiter.list;
        kb_error_add_detail(err, "%s waits for %s", co->name,
                            list && list->name ? list->name : "something");
        listed++;
    }
    if (waiting > listed)
        kb_error_add_detail(err, "and %u more", waiting - listed);
    return err;
}

const char *kb_sim_stack_overflow(const kb_sim *sim, const void *address)
{
    for (const kb_co *co = sim->coroutines; co; co = co->next) {
        uintptr_t offset = (uintptr_t)address - (uintptr_t)co->stack.base;
        if (offset < KB_STACK_GUARD)
            return co->name;
    }
    return NULL;
}
