/*
 * wait.c: lists of things that wait, and semaphores and channels made of them.
 *
 * Lists are first come, first served, and nobody overtakes: a request that could be met at once
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
    KB_ASSERT(!waiter->list);
    waiter->list = list;
    waiter->next = NULL;
    waiter->prev = list->tail;
    if (list->tail)
        list->tail->next = waiter;
    else
        list->head = waiter;
    list->tail = waiter;
}

bool kb_waiter_cancel(kb_waiter *waiter)
{
    kb_waitlist *list = waiter->list;
    if (!list)
        return false;
    if (waiter->next)
        waiter->next->prev = waiter->prev;
    else
        list->tail = waiter->prev;
    if (waiter->prev)
        waiter->prev->next = waiter->next;
    else
        list->head = waiter->next;
    waiter->list = NULL;
    return true;
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
    (void)kb_waiter_cancel(waiter);
    kb_co *co = coroutine_of(sim, waiter);
    if (co && co->wake.slot)
        (void)kb_sim_cancel(sim, co->wake); /* its deadline */
    kb_event event = kb_sim_schedule(sim, waiter->source, sim->now, waiter->handler, waiter->arg);
    if (co)
        co->wake = event;
    return waiter;
}

/* False in a cleanup: there nothing waits. */
static bool block(kb_co *co, kb_waitlist *list)
{
    if (co->unwinding)
        return false;
    append(list, &co->waiter);
    kb_co_suspend(co);
    return true;
}

void kb_wait(kb_co *co, kb_waitlist *list)
{
    (void)block(co, list);
}

bool kb_wait_until(kb_co *co, kb_waitlist *list, kb_time deadline)
{
    kb_sim *sim = co->sim;
    if (co->unwinding || deadline < sim->now)
        return false;
    co->wake = kb_sim_at(sim, &co->source, deadline, sim->resume, (uintptr_t)co);
    (void)block(co, list);
    return !kb_waiter_cancel(&co->waiter); /* whoever wakes it takes it off the list */
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
    kb_waitlist_init(&sem->waiters, name);
    sem->available = available;
}

bool kb_sem_try_acquire(kb_sem *sem, uint64_t units)
{
    if (sem->waiters.head || sem->available < units)
        return false;
    sem->available -= units;
    return true;
}

void kb_sem_acquire(kb_co *co, kb_sem *sem, uint64_t units)
{
    if (kb_sem_try_acquire(sem, units))
        return;
    co->waiter.value = units;
    (void)block(co, &sem->waiters);
    co->granted = NULL;
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
    while (sem->waiters.head && sem->waiters.head->value <= sem->available) {
        kb_waiter *waiter = wake_first(sim, &sem->waiters);
        sem->available -= waiter->value;
        kb_co *co = coroutine_of(sim, waiter);
        if (co)
            co->granted = sem;
    }
}

/* ---- Channels ---- */

kb_error *kb_channel_init(kb_channel *channel, const char *name, uint32_t capacity)
{
    *channel = (kb_channel){.capacity = capacity};
    kb_waitlist_init(&channel->getters, name);
    kb_waitlist_init(&channel->putters, name);
    if (capacity == 0)
        return kb_error_new(KB_ERR_BUG, "channel '%s' must have a capacity", name);
    channel->words = kb_alloc_array(capacity, sizeof *channel->words);
    return channel->words ? NULL : kb_error_nomem();
}

void kb_channel_fini(kb_channel *channel)
{
    KB_ASSERT(!channel->getters.head && !channel->putters.head);
    free(channel->words);
    channel->words = NULL;
}

static void store(kb_channel *channel, uint64_t word)
{
    uint32_t place = channel->first + channel->count++;
    if (place >= channel->capacity || place < channel->first)
        place -= channel->capacity;
    channel->words[place] = word;
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

void kb_channel_put(kb_co *co, kb_channel *channel, uint64_t word)
{
    if (kb_channel_try_put(co->sim, channel, word))
        return;
    co->waiter.value = word;
    (void)block(co, &channel->putters);
}

uint64_t kb_channel_get(kb_co *co, kb_channel *channel)
{
    uint64_t word = 0;
    if (kb_channel_try_get(co->sim, channel, &word))
        return word;
    return block(co, &channel->getters) ? co->waiter.value : 0;
}
