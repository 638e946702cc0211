/*
 * wait.c: wait lists, and the semaphores and channels made of them.
 *
 * Lists are first come, first served, without overtaking: a request that could be met at once
 * still queues behind one that could not. What a waiter waited for has been done for it when it is
 * woken, at the same instant; it need not check again. What need not wait costs no event.
 */
#include <stdlib.h>

#include "sim/engine.h"

/* ---- Lists ---- */

void kb_waitlist_init(kb_waitlist *list, const char *name)
{
    *list = (kb_waitlist){.name = name};
}

static void append(kb_waitlist *list, kb_waiter *waiter)
{
    KB_ASSERT(!waiter->list); /* C1 */
    waiter->list = list;
    KB_LIST_APPEND(list->head, list->tail, waiter);
}

static void unlink_waiter(kb_waitlist *list, kb_waiter *waiter)
{
    KB_LIST_REMOVE(list->head, list->tail, waiter);
    waiter->list = NULL;
}

/* The coroutine whose waiter this is, or NULL for a handler's. */
static kb_co *coroutine_of(const kb_sim *sim, const kb_waiter *waiter)
{
    return waiter->handler == sim->resume ? (kb_co *)(uintptr_t)waiter->arg : NULL;
}

/* Takes the first waiter off its list and lets it go on; returns it. */
static kb_waiter *wake_first(kb_sim *sim, kb_waitlist *list)
{
    kb_waiter *waiter = list->head;
    unlink_waiter(list, waiter);
    kb_co *co = coroutine_of(sim, waiter);
    if (co && co->wake.slot) {
        (void)kb_sim_cancel(sim, co->wake); /* its deadline */
        co->wake.slot = 0;
    }
    waiter->event = kb_sim_schedule(sim, waiter->source, sim->now, waiter->handler, waiter->arg);
    waiter->granted = NULL;
    return waiter;
}

/* Lets those go on for whom there is enough, in their order. */
static void serve(kb_sim *sim, kb_sem *sem)
{
    while (sem->waiters.head && sem->waiters.head->value <= sem->available) {
        kb_waiter *waiter = wake_first(sim, &sem->waiters);
        waiter->granted = sem;
        sem->available -= waiter->value;
    }
}

bool kb_waiter_cancel(kb_sim *sim, kb_waiter *waiter)
{
    if (waiter->list) {
        kb_sem *sem = waiter->list->sem;
        unlink_waiter(waiter->list, waiter);
        if (sem)
            serve(sim, sem); /* those behind it may want less */
        return true;
    }
    if (!kb_sim_cancel(sim, waiter->event))
        return false;
    if (waiter->granted)
        kb_sem_release(sim, waiter->granted, waiter->value);
    return true;
}

/* False in a cleanup: there nothing waits. */
static bool block(kb_co *co, kb_waitlist *list, uint64_t value)
{
    if (co->unwinding)
        return false;
    co->waiter.value = value;
    append(list, &co->waiter);
    kb_co_suspend(co);
    return true;
}

void kb_wait(kb_co *co, kb_waitlist *list)
{
    (void)block(co, list, 0);
}

bool kb_wait_until(kb_co *co, kb_waitlist *list, kb_time deadline)
{
    kb_sim *sim = co->sim;
    if (co->unwinding || deadline < sim->now)
        return false;
    if (deadline == KB_FOREVER)
        return block(co, list, 0);
    co->wake = kb_sim_at(sim, &co->source, deadline, sim->resume, (uintptr_t)co);
    (void)block(co, list, 0);
    return !kb_waiter_cancel(sim, &co->waiter); /* waking it takes it off the list */
}

void kb_wait_then(kb_waitlist *list, kb_waiter *waiter)
{
    append(list, waiter);
}

bool kb_wake_one(kb_sim *sim, kb_waitlist *list)
{
    if (!list->head)
        return false;
    (void)wake_first(sim, list);
    return true;
}

void kb_wake_all(kb_sim *sim, kb_waitlist *list)
{
    while (list->head)
        (void)wake_first(sim, list);
}

/* ---- Semaphores ---- */

void kb_sem_init(kb_sem *sem, const char *name, uint64_t available)
{
    *sem = (kb_sem){.waiters = {.name = name, .sem = sem}, .available = available};
}

bool kb_sem_try_acquire(kb_sem *sem, uint64_t units)
{
    if (sem->waiters.head || sem->available < units)
        return false;
    sem->available -= units;
    return true;
}

bool kb_sem_acquire(kb_co *co, kb_sem *sem, uint64_t units)
{
    return kb_sem_try_acquire(sem, units) || block(co, &sem->waiters, units);
}

bool kb_sem_acquire_then(kb_sem *sem, uint64_t units, kb_waiter *waiter)
{
    if (kb_sem_try_acquire(sem, units))
        return true;
    waiter->value = units;
    append(&sem->waiters, waiter);
    return false;
}

void kb_sem_release(kb_sim *sim, kb_sem *sem, uint64_t units)
{
    sem->available += units;
    serve(sim, sem);
}

/* ---- Channels ---- */

kb_error *kb_channel_init(kb_channel *channel, const char *name, uint32_t capacity)
{
    *channel = (kb_channel){.capacity = capacity};
    kb_waitlist_init(&channel->getters, name);
    kb_waitlist_init(&channel->putters, name);
    if (capacity == 0)
        return kb_error_new(KB_ERR_BUG, "channel '%s' has no capacity: expected at least 1",
                            name ? name : "");
    channel->words = kb_alloc_array(capacity, sizeof *channel->words);
    return channel->words ? NULL : kb_error_nomem();
}

void kb_channel_fini(kb_channel *channel)
{
    while (channel->getters.head)
        unlink_waiter(&channel->getters, channel->getters.head); /* after a run that failed */
    while (channel->putters.head)
        unlink_waiter(&channel->putters, channel->putters.head);
    free(channel->words);
    channel->words = NULL;
}

static void store(kb_channel *channel, uint64_t word)
{
    uint32_t index = channel->first + channel->count++;
    if (index >= channel->capacity || index < channel->first)
        index -= channel->capacity;
    channel->words[index] = word;
}

bool kb_channel_try_put(kb_sim *sim, kb_channel *channel, uint64_t word)
{
    if (channel->getters.head)
        wake_first(sim, &channel->getters)->value = word; /* it waits, so the queue is empty */
    else if (channel->count < channel->capacity)
        store(channel, word);
    else
        return false;
    return true;
}

bool kb_channel_try_get(kb_sim *sim, kb_channel *channel, uint64_t *word)
{
    if (channel->count == 0)
        return false;
    *word = channel->words[channel->first];
    channel->count--;
    if (++channel->first == channel->capacity)
        channel->first = 0;
    if (channel->putters.head)
        store(channel, wake_first(sim, &channel->putters)->value);
    return true;
}

bool kb_channel_put_then(kb_sim *sim, kb_channel *channel, uint64_t word, kb_waiter *waiter)
{
    if (kb_channel_try_put(sim, channel, word))
        return true;
    waiter->value = word;
    append(&channel->putters, waiter);
    return false;
}

bool kb_channel_get_then(kb_sim *sim, kb_channel *channel, kb_waiter *waiter)
{
    if (kb_channel_try_get(sim, channel, &waiter->value))
        return true;
    append(&channel->getters, waiter);
    return false;
}

bool kb_channel_put(kb_co *co, kb_channel *channel, uint64_t word)
{
    return kb_channel_try_put(co->sim, channel, word) || block(co, &channel->putters, word);
}

uint64_t kb_channel_get(kb_co *co, kb_channel *channel)
{
    uint64_t word = 0;
    if (kb_channel_try_get(co->sim, channel, &word))
        return word;
    return block(co, &channel->getters, 0) ? co->waiter.value : 0;
}
