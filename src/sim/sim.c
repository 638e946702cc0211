/*
 * sim.c: the clock and the loop that runs events in order.
 *
 * The clock never goes back. An event is run when everything before it has been; a step whose event
 * would be the very next one may skip the set (kb_sim_advance), which changes neither times nor
 * order, only the count of events.
 */
#include "sim/sim.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "sim/engine.h"

enum { DEFAULT_STACK = 64 * 1024, MIN_STACK = 16 * 1024, MAX_STACK = 1 << 30 };

/* Handler 0 marks nodes that are not pending (E4). */
static void no_handler(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim, (void)self, (void)arg;
    kb_check_failed(__FILE__, __LINE__, "the event is pending");
}

kb_error *kb_sim_create(const kb_sim_options *options, kb_sim **out)
{
    kb_sim_options chosen = options ? *options : (kb_sim_options){0};
    size_t stack_bytes = chosen.stack_bytes ? chosen.stack_bytes : DEFAULT_STACK;
    *out = NULL;
    if (stack_bytes < MIN_STACK || stack_bytes > MAX_STACK)
        return kb_error_new(KB_ERR_BUG, "invalid stack size of %zu bytes: expected %d to %d",
                            stack_bytes, MIN_STACK, MAX_STACK);
    kb_sim *sim = kb_alloc_zeroed(1, sizeof *sim);
    if (!sim)
        return kb_error_nomem();
    kb_error *err = kb_error_nomem();
    if (!kb_eventset_init(&sim->set))
        goto fail;
    sim->elide = !chosen.no_elision;
    sim->run_until = -1;
    kb_stack_pool_init(&sim->stacks, stack_bytes);

    kb_handler none;
    err = kb_sim_add_handler(sim, no_handler, NULL, &none);
    if (!err)
        err = kb_sim_add_handler(sim, kb_co_resume, NULL, &sim->resume);
    if (err)
        goto fail;
    *out = sim;
    return NULL;
fail:
    kb_sim_destroy(sim);
    return err;
}

void kb_sim_own(kb_sim *sim, bool owned)
{
    sim->is_owned = owned;
}

bool kb_sim_refused_destruction(const kb_sim *sim)
{
    return sim->refused_destruction;
}

void kb_sim_destroy(kb_sim *sim)
{
    if (!sim)
        return;
    if (sim->is_owned) {
        sim->refused_destruction = true;
        return;
    }
    KB_ASSERT(!sim->running); /* S4 */
    kb_co_kill_all(sim);
    kb_stack_pool_fini(&sim->stacks);
    kb_error_free(sim->failure);
    free(sim->handlers);
    kb_eventset_fini(&sim->set);
    free(sim);
}

void kb_sim_abandon(kb_sim *sim)
{
    kb_co_kill_all(sim);
    kb_eventset_clear(&sim->set);
    kb_error_free(sim->failure);
    sim->failure = NULL;
}

kb_time kb_sim_now(const kb_sim *sim)
{
    return sim->now;
}

kb_eventset *kb_sim_events(kb_sim *sim)
{
    return &sim->set;
}

kb_clock *kb_sim_get_clock(kb_sim *sim)
{
    return &sim->clock;
}

kb_time kb_sim_next_time(const kb_sim *sim)
{
    return sim->set.next->time;
}

bool kb_sim_is_running(const kb_sim *sim)
{
    return sim->running;
}

kb_outlook kb_sim_look_ahead(const kb_sim *sim)
{
    const kb_eventset *set = &sim->set;
    const kb_node *next = set->next;
    const kb_node *later = kb_eventset_upcoming(set);
    return (kb_outlook){.next = {next->handler, next->arg}, .later = {later->handler, later->arg}};
}

kb_error *kb_sim_add_handler(kb_sim *sim, kb_handler_fn *fn, void *self, kb_handler *handler)
{
    if (sim->handler_count == sim->handler_capacity) {
        size_t capacity = sim->handler_capacity;
        kb_handler_entry *grown =
            kb_grow_array(sim->handlers, sim->handler_count, 1, sizeof *grown, &capacity);
        if (!grown)
            return kb_error_nomem();
        sim->handlers = grown;
        sim->handler_capacity = (uint32_t)capacity;
    }
    *handler = sim->handler_count++;
    sim->handlers[*handler] = (kb_handler_entry){.fn = fn, .self = self};
    return NULL;
}

void kb_sim_name_work(kb_sim *sim, kb_handler handler, const char *work)
{
    KB_ASSERT(handler > 0 && handler < sim->handler_count);
    if (handler < KB_NAMED_HANDLERS)
        sim->work_names[handler] = work;
}

/* The clock ends before the work does. */
static kb_error *clock_error(const kb_sim *sim, const char *work)
{
    kb_line at = sim->current ? kb_co_get_line(sim->current) : (kb_line){0};
    kb_text place = KB_TEXT_INIT;
    if (at.file)
        kb_text_printf(&place, " (%s:%d)", at.file, at.line);
    kb_error *err = kb_error_new(KB_ERR_INPUT,
                                 "simulated time exceeds its limit of 9,223 s: %s%s that begins at "
                                 "%" PRId64 ".%06" PRId64 " ns would end later; use faster figures "
                                 "(shorter cycles and latencies, more bandwidth) or less work",
                                 work, kb_text_peek(&place), sim->now / KB_NS, sim->now % KB_NS);
    kb_text_fini(&place);
    return err;
}

static kb_error *late_event_error(const kb_sim *sim, kb_handler handler)
{
    const char *work = handler < KB_NAMED_HANDLERS ? sim->work_names[handler] : NULL;
    if (handler != sim->resume || !sim->current)
        return clock_error(sim, work ? work : "an operation");
    char wait[sizeof sim->current->name + 16];
    snprintf(wait, sizeof wait, "a wait of %s", sim->current->name);
    return clock_error(sim, wait);
}

void kb_sim_expect(kb_sim *sim, kb_time when, const char *work)
{
    if (KB_UNLIKELY(when == KB_FOREVER))
        kb_sim_fail(sim, clock_error(sim, work));
}

__attribute__((cold)) kb_event kb_sim_refuse_event(kb_sim *sim, kb_time when, kb_handler handler)
{
    kb_error *err;
    if (when < sim->now && sim->current)
        err = kb_error_new(KB_ERR_FAULT,
                           "event scheduled in the past: at %" PRId64 " fs, now %" PRId64
                           " fs, by %s",
                           when, sim->now, sim->current->name);
    else if (when < sim->now)
        err = kb_error_new(KB_ERR_BUG,
                           "event scheduled in the past: at %" PRId64 " fs, now %" PRId64 " fs",
                           when, sim->now);
    else if (handler == 0 || handler >= sim->handler_count)
        err = kb_error_new(KB_ERR_BUG, "event scheduled for invalid handler %u", handler);
    else if (when == KB_FOREVER)
        err = late_event_error(sim, handler);
    else
        err = kb_error_nomem();
    kb_sim_fail(sim, err);
    return (kb_event){0};
}

kb_event kb_sim_at(kb_sim *sim, kb_source *source, kb_time when, kb_handler handler, uint64_t arg)
{
    return kb_sim_schedule(sim, source, when, handler, arg);
}

kb_event kb_sim_after(kb_sim *sim, kb_source *source, kb_time delay, kb_handler handler,
                      uint64_t arg)
{
    return kb_sim_schedule(sim, source, kb_time_add(sim->now, delay), handler, arg);
}

bool kb_sim_cancel(kb_sim *sim, kb_event event)
{
    bool cancelled = kb_eventset_cancel(&sim->set, event);
    sim->cancelled += cancelled;
    return cancelled;
}

bool kb_sim_advance(kb_sim *sim, kb_source *source, kb_time when)
{
    if (!kb_sim_would_be_next(sim, source, when))
        return false;
    if (when > sim->run_until || when < sim->now || !sim->elide)
        return false;
    source->next_key++; /* the key that the event would have had: others keep theirs */
    sim->now = when;
    sim->elided++;
    return true;
}

void kb_sim_stop(kb_sim *sim)
{
    sim->run_until = -1;
}

void kb_sim_fail(kb_sim *sim, kb_error *err)
{
    if (sim->failure)
        kb_error_free(err);
    else
        sim->failure = err;
    kb_sim_stop(sim);
}

/*
 * A processor guesses where a call through a pointer goes, and a wrong guess costs more than an
 * event does; but it notices the sooner, the earlier the pointer is known. So the handler of the
 * following event is looked up before this event's handler is called, and again after it only if
 * that has put something with another handler first.
 *
 * Coroutines are entered from here and not by a call, for the reason that continuation.h gives.
 */
static void run_events(kb_sim *sim)
{
    kb_eventset *set = &sim->set;
    kb_handler_entry handler = sim->handlers[set->next->handler];
    while (set->next->time <= sim->run_until) {
        kb_node event = kb_eventset_pop(set);
        kb_handler following_id = set->next->handler;
        kb_handler_entry following = sim->handlers[following_id];
        __asm__ volatile("" : "+r"(following.fn)); /* now, not when it is used */

        if (following.fn == kb_co_resume)
            kb_co_fetch(sim, (const kb_co *)(uintptr_t)set->next->arg);

        sim->now = event.time;
        if (handler.fn == kb_co_resume)
            kb_co_resume(sim, NULL, event.arg);
        else
            handler.fn(sim, handler.self, event.arg);

        kb_handler next_id = set->next->handler;
        if (KB_UNLIKELY(next_id != following_id))
            following = sim->handlers[next_id];
        handler = following;
    }
}

kb_error *kb_sim_run(kb_sim *sim, kb_time until)
{
    KB_ASSERT(!sim->running); /* S4 */
    sim->running = true;
    /* What is due at KB_FOREVER never happens: that is also how an empty set looks. */
    sim->run_until = until < KB_FOREVER ? until : KB_FOREVER - 1;
    if (!sim->failure)
        run_events(sim);
    bool stopped = sim->run_until < 0;
    sim->run_until = -1; /* the clock moves only while running */
    sim->running = false;

    if (sim->failure) {
        kb_error *err = sim->failure;
        sim->failure = NULL;
        return err;
    }
    if (stopped)
        return NULL;
    if (until == KB_FOREVER)
        return kb_sim_deadlock(sim);
    if (until > sim->now)
        sim->now = until;
    return NULL;
}

kb_sim_stats kb_sim_get_stats(const kb_sim *sim)
{
    return (kb_sim_stats){
        .events = sim->set.taken,
        .elided = sim->elided,
        .cancelled = sim->cancelled,
        .resumes = sim->resumes,
        .pending = kb_eventset_pending(&sim->set),
        .max_pending = kb_eventset_peak(&sim->set),
        .coroutines = sim->coroutine_count,
    };
}
