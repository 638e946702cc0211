/*
 * interleaving_reference.c: runs a program without the engine: a state machine for each actor over
 * a list of events.
 */
#include "interleaving.h"

enum { QUEUES = SEMS + 2 * CHANNELS + LISTS, NONE = -1, REF_EVENTS = 4096 };
enum { GETTERS = SEMS, PUTTERS = SEMS + CHANNELS, WAITERS = SEMS + 2 * CHANNELS };

typedef struct ref_event {
    kb_time time;
    uint32_t id;
    uint64_t sequence;
    bool pending;
    int actor; /* to resume; NONE: a note */
    uint64_t word;
} ref_event;

typedef struct ref_actor {
    bool born, started, running, dying, ended, unwinding, blocked, popping;
    int pc, depth, number;
    op pushed[LENGTH], current;
    uint64_t sequence, value;
    int queue, granted; /* where it waits; the semaphore whose units it has not yet taken */
    int wake, posted;   /* events */
    int woken;          /* the event by which something that it waited for resumes it */
} ref_actor;

typedef struct ref {
    const program *program;
    trace *trace;
    kb_time now;
    bool stopped;
    int failed_by; /* NONE: it did not fail */
    ref_actor actors[ACTORS + 1];
    int born;
    bool abandoned;
    uint64_t available[SEMS];
    uint64_t words[CHANNELS][4];
    uint32_t count[CHANNELS];
    int queue[QUEUES][ACTORS], waiting[QUEUES];
    ref_event events[REF_EVENTS];
    int event_count;
} ref;

static int ref_schedule(ref *r, int source, kb_time when, int resumes, uint64_t word)
{
    KB_ASSERT(r->event_count < REF_EVENTS);
    r->events[r->event_count] = (ref_event){.time = when,
                                            .id = r->program->id[source],
                                            .sequence = r->actors[source].sequence++,
                                            .pending = true,
                                            .actor = resumes,
                                            .word = word};
    return r->event_count++;
}

static bool ref_cancel(ref *r, int event)
{
    if (event == NONE || !r->events[event].pending)
        return false;
    r->events[event].pending = false;
    r->trace->cancelled++;
    return true;
}

static void ref_queue(ref *r, int queue, int slot)
{
    r->queue[queue][r->waiting[queue]++] = slot;
    r->actors[slot].queue = queue;
}

static bool ref_unqueue(ref *r, int slot)
{
    int queue = r->actors[slot].queue;
    if (queue == NONE)
        return false;
    int at = 0;
    while (r->queue[queue][at] != slot)
        at++;
    r->waiting[queue]--;
    for (; at < r->waiting[queue]; at++)
        r->queue[queue][at] = r->queue[queue][at + 1];
    r->actors[slot].queue = NONE;
    return true;
}

/* Lets the first that waits go on; NULL if none waits. */
static ref_actor *ref_wake(ref *r, int queue)
{
    if (r->waiting[queue] == 0)
        return NULL;
    int slot = r->queue[queue][0];
    ref_actor *a = &r->actors[slot];
    (void)ref_unqueue(r, slot);
    (void)ref_cancel(r, a->wake); /* a deadline */
    a->wake = a->woken = ref_schedule(r, slot, r->now, slot, 0);
    a->granted = NONE;
    return a;
}

static void ref_release(ref *r, int sem, uint64_t units)
{
    r->available[sem] += units;
    while (r->waiting[sem] && r->actors[r->queue[sem][0]].value <= r->available[sem]) {
        ref_actor *a = ref_wake(r, sem);
        r->available[sem] -= a->value;
        a->granted = sem;
    }
}

static bool ref_try_acquire(ref *r, int sem, uint64_t units)
{
    if (r->waiting[sem] || r->available[sem] < units)
        return false;
    r->available[sem] -= units;
    return true;
}

static bool ref_try_put(ref *r, int channel, uint64_t word)
{
    ref_actor *getter = ref_wake(r, GETTERS + channel);
    if (getter)
        getter->value = word;
    else if (r->count[channel] < r->program->capacity[channel])
        r->words[channel][r->count[channel]++] = word;
    else
        return false;
    return true;
}

static bool ref_try_get(ref *r, int channel, uint64_t *word)
{
    uint64_t *words = r->words[channel];
    if (r->count[channel] == 0)
        return false;
    *word = words[0];
    r->count[channel]--;
    memmove(words, words + 1, r->count[channel] * sizeof *words);
    ref_actor *putter = ref_wake(r, PUTTERS + channel);
    if (putter)
        words[r->count[channel]++] = putter->value;
    return true;
}

static uint64_t ref_spawn(ref *r)
{
    if (r->born == r->program->actors || r->abandoned)
        return 0;
    int slot = r->born++;
    r->actors[slot].born = true;
    r->actors[slot].wake = ref_schedule(r, slot, r->now, slot, 0);
    return (uint64_t)slot + 1;
}

static uint64_t ref_act(ref *r, int slot, const op *o, int number);

static void ref_tell(ref *r, int slot, int number, uint64_t result)
{
    record(r->trace, r->now, slot, number, result);
}

static void ref_gone(ref *r, int slot)
{
    ref_tell(r, slot, GONE, ref_act(r, OUTSIDE, &r->program->at_end[slot], slot));
}

static void ref_end(ref *r, int slot)
{
    ref_actor *a = &r->actors[slot];
    a->unwinding = true;
    while (!r->program->agent[slot] && a->depth > 0) {
        a->depth--;
        int number = CLEANUP + a->depth;
        /* One that exits does not come back to tell, but those below it run. */
        if (a->pushed[a->depth].kind != EXIT)
            ref_tell(r, slot, number, ref_act(r, slot, &a->pushed[a->depth], number));
    }
    ref_tell(r, slot, ENDED, 0);
    a->ended = true;
    a->running = false;
    if (!r->program->agent[slot])
        ref_gone(r, slot);
}

static uint64_t ref_kill(ref *r, int slot)
{
    ref_actor *a = &r->actors[slot];
    if (!a->born || a->ended)
        return 0;
    if (r->program->agent[slot])
        return 1;
    if (a->running || a->dying)
        return 2;
    a->dying = true;
    (void)ref_cancel(r, a->wake);
    int queue = a->queue;
    if (ref_unqueue(r, slot) && queue < SEMS)
        ref_release(r, queue, 0); /* those behind it may go now */
    if (a->granted != NONE)
        ref_release(r, a->granted, a->value);
    if (a->started) {
        r->trace->resumes++;
        ref_end(r, slot);
    } else {
        ref_gone(r, slot);
    }
    a->ended = true;
    return 3 + a->started;
}

static uint64_t ref_cancel_wait(ref *r, int slot)
{
    ref_actor *a = &r->actors[slot];
    int queue = a->queue;
    if (!a->born || !r->program->agent[slot])
        return 0;
    if (ref_unqueue(r, slot)) {
        if (queue < SEMS)
            ref_release(r, queue, 0);
    } else if (!ref_cancel(r, a->woken)) {
        return 0;
    } else if (a->granted != NONE) {
        ref_release(r, a->granted, a->value);
    }
    (void)ref_schedule(r, slot, r->now, slot, 256);
    return 1;
}

/* What may block. Sets `blocked` if it does. */
static uint64_t ref_begin(ref *r, int slot, const op *o, int number)
{
    ref_actor *a = &r->actors[slot];
    uint64_t word = word_of(slot, number);
    int queue;
    bool done;
    switch (o->kind) {
    case SLEEP:
        if (a->unwinding)
            return 0;
        a->wake = ref_schedule(r, slot, r->now + o->amount, slot, 0);
        a->blocked = true;
        return 0;
    case ACQUIRE:
        done = ref_try_acquire(r, o->which, (uint64_t)o->amount);
        if (done || a->unwinding)
            return done + 2 * r->available[o->which];
        a->value = (uint64_t)o->amount;
        queue = o->which;
        break;
    case PUT:
        done = ref_try_put(r, o->which, word);
        if (done || a->unwinding)
            return done + 2 * r->count[o->which];
        a->value = word;
        queue = PUTTERS + o->which;
        break;
    case GET:
        if (ref_try_get(r, o->which, &word))
            return word;
        if (a->unwinding)
            return 0;
        queue = GETTERS + o->which;
        break;
    case WAIT_UNTIL:
        if (a->unwinding || o->amount < 0 || r->program->agent[slot])
            return 0;
        a->wake = ref_schedule(r, slot, r->now + o->amount, slot, 0);
        queue = WAITERS + o->which;
        break;
    default:
        if (a->unwinding)
            return 0;
        queue = WAITERS + o->which;
    }
    ref_queue(r, queue, slot);
    a->blocked = true;
    return 0;
}

static uint64_t ref_act(ref *r, int slot, const op *o, int number)
{
    ref_actor *a = &r->actors[slot];
    uint64_t result = 0;
    switch (o->kind) {
    case TRY_ACQUIRE:
        return ref_try_acquire(r, o->which, (uint64_t)o->amount);
    case RELEASE:
        ref_release(r, o->which, (uint64_t)o->amount);
        return r->available[o->which];
    case TRY_PUT:
        return ref_try_put(r, o->which, word_of(slot, number));
    case TRY_GET:
        return ref_try_get(r, o->which, &result) ? result : 1;
    case WAKE_ONE:
        return ref_wake(r, WAITERS + o->which) != NULL;
    case WAKE_ALL:
        while (ref_wake(r, WAITERS + o->which))
            continue;
        return 0;
    case SPAWN:
        return ref_spawn(r);
    case KILL:
        return ref_kill(r, o->which);
    case POST:
        a->posted = ref_schedule(r, slot, r->now + o->amount, NONE, word_of(slot, number));
        return 0;
    case UNPOST:
        return ref_cancel(r, a->posted);
    case CANCEL:
        return ref_cancel_wait(r, o->which);
    case STOP:
        r->stopped = true;
        return 0;
    case FAIL:
        if (r->failed_by == NONE)
            r->failed_by = slot;
        return 0;
    case EXIT:
        ref_end(r, slot);
        return 0;
    default:
        return ref_begin(r, slot, o, number);
    }
}

/* What an operation that blocked gives in the end. */
static uint64_t ref_result(ref *r, int slot)
{
    ref_actor *a = &r->actors[slot];
    switch (a->current.kind) {
    case ACQUIRE:
        return 1 + 2 * r->available[a->current.which];
    case PUT:
        return 1 + 2 * r->count[a->current.which];
    case GET:
        return a->value;
    case WAIT_UNTIL:
        return !ref_unqueue(r, slot); /* still there: it was the deadline */
    default:
        return 0;
    }
}

static void ref_complete(ref *r, int slot, uint64_t result)
{
    ref_actor *a = &r->actors[slot];
    ref_tell(r, slot, a->number, result);
    if (a->popping)
        ref_tell(r, slot, a->pc, 1);
    a->popping = false;
    a->pc++;
}

static void ref_push_or_pop(ref *r, int slot, const op *o)
{
    ref_actor *a = &r->actors[slot];
    if (r->program->agent[slot]) {
        ref_complete(r, slot, 0);
    } else if (o->kind == PUSH) {
        a->pushed[a->depth++] = (op){o->inner, o->inner_which, o->inner_amount, 0, 0, 0};
        ref_complete(r, slot, 0);
    } else if (a->depth == 0) {
        ref_complete(r, slot, 0);
    } else {
        a->depth--;
        if (!o->which) {
            ref_complete(r, slot, 1);
            return;
        }
        a->popping = true;
        a->number = CLEANUP + a->depth;
        a->current = a->pushed[a->depth];
        uint64_t result = ref_act(r, slot, &a->current, a->number);
        if (!a->blocked && !a->ended)
            ref_complete(r, slot, result);
    }
}

/* An actor goes on until it waits or ends. */
static void ref_step(ref *r, int slot, uint64_t word)
{
    const program *p = r->program;
    ref_actor *a = &r->actors[slot];
    a->wake = a->granted = NONE;
    a->running = true;
    r->trace->resumes += !p->agent[slot];
    if (!a->started)
        ref_tell(r, slot, STARTED, 0);
    a->started = true;
    if (a->blocked) {
        a->blocked = false;
        ref_complete(r, slot, word & 256 ? 77 : ref_result(r, slot));
    }
    while (!a->ended && a->pc < p->length[slot]) {
        const op *o = &p->ops[slot][a->pc];
        a->number = a->pc;
        a->current = *o;
        if (o->kind >= PUSH) {
            ref_push_or_pop(r, slot, o);
        } else {
            uint64_t result = ref_act(r, slot, o, a->number);
            if (!a->blocked && !a->ended)
                ref_complete(r, slot, result);
        }
        if (a->blocked) {
            a->running = false;
            return;
        }
    }
    if (!a->ended)
        ref_end(r, slot);
}

static int ref_first(const ref *r)
{
    int first = NONE;
    for (int i = 0; i < r->event_count; i++) {
        const ref_event *e = &r->events[i], *f = &r->events[first == NONE ? 0 : first];
        if (!e->pending)
            continue;
        if (first == NONE || e->time < f->time ||
            (e->time == f->time &&
             (e->id < f->id || (e->id == f->id && e->sequence < f->sequence))))
            first = i;
    }
    return first;
}

/* The report of a deadlock, or false if only daemons wait. */
static bool ref_deadlock(ref *r)
{
    char message[128], detail[512] = "";
    int waiting = 0;
    for (int i = 0; i < r->born; i++) {
        const ref_actor *a = &r->actors[i];
        if (r->program->agent[i] || r->program->daemon[i] || a->ended)
            continue;
        snprintf(detail + strlen(detail), 64, "%s%s waits for %s", waiting ? "\n" : "",
                 actor_names[i], thing_names[a->queue]);
        waiting++;
    }
    snprintf(message, sizeof message,
             "deadlock at 0.%06d ns: no pending events, %d coroutine%s blocked", (int)r->now,
             waiting, waiting == 1 ? "" : "s");
    if (waiting)
        record_run(r->trace, r->now, KB_ERR_DEADLOCK, message, detail);
    return waiting > 0;
}

static bool ref_run(ref *r, kb_time until)
{
    int first = NONE;
    r->stopped = false;
    while (r->failed_by == NONE && !r->stopped && (first = ref_first(r)) != NONE &&
           r->events[first].time <= until) {
        ref_event e = r->events[first];
        r->events[first].pending = false;
        r->trace->events++;
        r->now = e.time;
        if (e.actor == NONE)
            record(r->trace, r->now, (int)(e.word >> 16) - 1, NOTE, e.word & 0xffff);
        else
            ref_step(r, e.actor, e.word);
    }
    if (r->failed_by != NONE) {
        char message[32];
        snprintf(message, sizeof message, "failed by %d", r->failed_by);
        r->failed_by = NONE;
        record_run(r->trace, r->now, KB_ERR_FAULT, message, "");
        return true;
    }
    if (!r->stopped && until == KB_FOREVER && ref_deadlock(r))
        return false;
    if (!r->stopped && until < KB_FOREVER && until > r->now)
        r->now = until;
    record_run(r->trace, r->now, KB_OK, "", "");
    return r->stopped;
}

void run_reference(const program *p, trace *t)
{
    static ref r;
    r = (ref){.program = p, .trace = t, .failed_by = NONE};
    *t = (trace){0};
    for (int i = 0; i <= ACTORS; i++) {
        ref_actor *a = &r.actors[i];
        a->queue = a->granted = a->wake = a->woken = a->posted = NONE;
    }
    memcpy(r.available, p->units, sizeof r.available);
    while (r.born < p->at_start)
        (void)ref_spawn(&r);
    for (int i = 0; i < RUNS; i++) {
        (void)ref_run(&r, p->until[i]);
        for (int j = 0; j < OUTSIDE_OPS; j++) {
            int number = i * OUTSIDE_OPS + j;
            ref_tell(&r, OUTSIDE, number, ref_act(&r, OUTSIDE, &p->outside[i][j], number));
        }
    }
    while (ref_run(&r, KB_FOREVER))
        continue;
    r.abandoned = true;
    for (int i = ACTORS - 1; i >= 0; i--) { /* the newest first */
        if (!p->agent[i])
            (void)ref_kill(&r, i);
    }
}
