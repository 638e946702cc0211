/*
 * test_interleaving.c: random programs for coroutines and handlers, run by the engine and by an
 * interpreter that shares no code with it; both must do the same at the same time.
 *
 * A program has actors, each with a list of operations: a coroutine performs them one after
 * another, an agent is a handler that does the same with the _then calls. They sleep, use
 * semaphores, channels and wait lists, spawn and kill each other, push and pop cleanups (each of
 * which is an operation again), and stop or fail the run. Between runs somebody acts from outside.
 * Times are small, so that much happens at one instant.
 *
 * What is compared: a trace of (time, actor, operation, result), the outcome and words of each run,
 * and the counts of events, with elision and without.
 */
#include "support/expect.h"

#include <inttypes.h>

#include "base/base.h"

#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#else
#define RUNNING_ON_VALGRIND 0
#endif

enum {
    ACTORS = 14,
    OUTSIDE = ACTORS, /* the actor that is none: between runs */
    LENGTH = 14,
    SEMS = 3,
    CHANNELS = 2,
    LISTS = 2,
    RUNS = 4,
    OUTSIDE_OPS = 4,
    MOST_RUNS = RUNS + 40, /* more if they are stopped and fail */
    ENTRIES = 4096,
};

#if defined(KB_TSAN)
enum { PROGRAMS = 500 };
#elif defined(KB_ASAN)
enum { PROGRAMS = 5000 };
#else
enum { PROGRAMS = 20000 };
#endif

typedef enum kind {
    SLEEP,
    ACQUIRE,
    PUT,
    GET,
    WAIT,
    WAIT_UNTIL,
    /* From here on nothing blocks. */
    TRY_ACQUIRE,
    RELEASE,
    TRY_PUT,
    TRY_GET,
    WAKE_ONE,
    WAKE_ALL,
    SPAWN,
    KILL,
    POST,   /* schedules an event of its own */
    UNPOST, /* cancels that */
    CANCEL, /* an agent's wait */
    STOP,
    FAIL,
    EXIT,
    PUSH,
    POP,
    KINDS
} kind;

static const char *const kind_names[] = {
    "sleep",   "acquire", "put",      "get",      "wait",  "wait_until", "try_acquire", "release",
    "try_put", "try_get", "wake_one", "wake_all", "spawn", "kill",       "post",        "unpost",
    "cancel",  "stop",    "fail",     "exit",     "push",  "pop",
};

/* How often each kind is drawn. */
static const uint8_t weights[KINDS] = {
    [SLEEP] = 30,      [ACQUIRE] = 12,    [PUT] = 10,     [GET] = 8,     [WAIT] = 6,
    [WAIT_UNTIL] = 10, [TRY_ACQUIRE] = 4, [RELEASE] = 16, [TRY_PUT] = 6, [TRY_GET] = 6,
    [WAKE_ONE] = 8,    [WAKE_ALL] = 4,    [SPAWN] = 6,    [KILL] = 5,    [POST] = 5,
    [UNPOST] = 2,      [CANCEL] = 4,      [STOP] = 1,     [FAIL] = 1,    [EXIT] = 1,
    [PUSH] = 10,       [POP] = 6,
};

typedef struct op {
    kind kind;
    int which; /* semaphore, channel, list, actor; of POP: whether to run */
    int amount;
    kind inner; /* of PUSH: the operation that is the cleanup */
    int inner_which, inner_amount;
} op;

typedef struct program {
    int actors, at_start;
    bool agent[ACTORS], daemon[ACTORS];
    uint32_t id[ACTORS + 1];
    int length[ACTORS];
    op ops[ACTORS][LENGTH];
    op at_end[ACTORS]; /* of coroutines: what on_end does */
    uint64_t units[SEMS];
    uint32_t capacity[CHANNELS];
    kb_time until[RUNS];
    op outside[RUNS][OUTSIDE_OPS];
} program;

typedef struct entry {
    kb_time time;
    int actor;
    int op; /* number in its list; or one of these */
    uint64_t result;
} entry;

enum { CLEANUP = 100, NOTE = 200, STARTED = 300, ENDED, GONE, RAN };

typedef struct trace {
    entry entries[ENTRIES];
    int count;
    char words[MOST_RUNS][512]; /* what runs returned */
    int runs;
    uint64_t events, cancelled, resumes;
} trace;

static void record(trace *t, kb_time time, int actor, int number, uint64_t result)
{
    if (t->count < ENTRIES)
        t->entries[t->count++] = (entry){time, actor, number, result};
}

static uint64_t word_of(int actor, int number)
{
    return (uint64_t)(actor + 1) << 16 | (uint64_t)number;
}

/* ---- Making programs ---- */

static int below(kb_rng *rng, int bound)
{
    return (int)kb_rng_below(rng, (uint64_t)bound);
}

static kind draw_kind(kb_rng *rng, kind first, kind end)
{
    int total = 0;
    for (kind k = first; k < end; k++)
        total += weights[k];
    int drawn = below(rng, total);
    while (drawn >= weights[first])
        drawn -= weights[first++];
    return first;
}

static void draw_arguments(kb_rng *rng, kind k, int *which, int *amount)
{
    static const int durations[] = {0, 0, 1, 1, 2, 3, 5, 8};
    *amount = 0;
    switch (k) {
    case SLEEP:
    case POST:
        *which = 0;
        *amount = durations[below(rng, 8)];
        break;
    case ACQUIRE:
    case TRY_ACQUIRE:
    case RELEASE:
        *which = below(rng, SEMS);
        *amount = below(rng, 4);
        break;
    case PUT:
    case GET:
    case TRY_PUT:
    case TRY_GET:
        *which = below(rng, CHANNELS);
        break;
    case WAIT:
    case WAIT_UNTIL:
    case WAKE_ONE:
    case WAKE_ALL:
        *which = below(rng, LISTS);
        *amount = durations[below(rng, 8)] - (below(rng, 8) == 0);
        break;
    case KILL:
    case CANCEL:
        *which = below(rng, ACTORS);
        break;
    default:
        *which = below(rng, 2);
    }
}

static op draw_op(kb_rng *rng, kind first, kind end)
{
    op o = {.kind = draw_kind(rng, first, end)};
    draw_arguments(rng, o.kind, &o.which, &o.amount);
    o.inner = draw_kind(rng, SLEEP, PUSH);
    draw_arguments(rng, o.inner, &o.inner_which, &o.inner_amount);
    return o;
}

static void draw_program(program *p, uint64_t seed)
{
    kb_rng rng;
    kb_rng_init(&rng, seed);
    *p = (program){.actors = 2 + below(&rng, ACTORS - 1)};
    p->at_start = 1 + below(&rng, p->actors);
    int agents = below(&rng, 3); /* of three programs one has no agents, one half of them */
    for (int i = 0; i <= ACTORS; i++) {
        int j = below(&rng, i + 1); /* ids in random order */
        p->id[i] = p->id[j];
        p->id[j] = (uint32_t)i;
    }
    for (int i = 0; i < p->actors; i++) {
        p->agent[i] = below(&rng, 4) < agents;
        p->daemon[i] = below(&rng, 4) == 0;
        p->length[i] = 1 + below(&rng, LENGTH);
        for (int j = 0; j < p->length[i]; j++)
            p->ops[i][j] = draw_op(&rng, SLEEP, KINDS);
        p->at_end[i] = draw_op(&rng, TRY_ACQUIRE, STOP);
    }
    for (int i = 0; i < SEMS; i++)
        p->units[i] = kb_rng_below(&rng, 5);
    for (int i = 0; i < CHANNELS; i++)
        p->capacity[i] = 1 + (uint32_t)below(&rng, 3);
    kb_time until = 0;
    for (int i = 0; i < RUNS; i++) {
        until += below(&rng, 8);
        p->until[i] = below(&rng, 4) ? until : KB_FOREVER;
        for (int j = 0; j < OUTSIDE_OPS; j++)
            p->outside[i][j] = draw_op(&rng, TRY_ACQUIRE, STOP);
    }
}

/* What a run has returned, and what the counts are. */
static void record_run(trace *t, kb_time now, kb_code code, const char *message, const char *detail)
{
    KB_ASSERT(t->runs < MOST_RUNS);
    snprintf(t->words[t->runs], sizeof t->words[0], "%d: %s: %s", (int)code, message, detail);
    record(t, now, OUTSIDE, RAN, (uint64_t)t->runs++);
}

/* ---- The engine ---- */

typedef struct world world;

typedef struct actor {
    world *world;
    int slot, pc, depth;
    bool born, started, running, dying, ended, blocked;
    kb_co *co;        /* of a coroutine */
    kb_source source; /* of an agent */
    kb_waiter waiter;
    kb_event posted;
    kb_cleanup last, cleanups[LENGTH];
    op pushed[LENGTH];
} actor;

struct world {
    const program *program;
    trace *trace;
    kb_sim *sim;
    actor actors[ACTORS + 1];
    int born;
    bool abandoned; /* nobody is spawned any more */
    bool stopped;
    kb_sem sems[SEMS];
    kb_channel channels[CHANNELS];
    kb_waitlist lists[LISTS];
    kb_handler step, note;
};

static const char *const names[] = {"a0", "a1", "a2", "a3",  "a4",  "a5",  "a6",
                                    "a7", "a8", "a9", "a10", "a11", "a12", "a13"};
static const char *const thing_names[] = {"s0", "s1", "s2", "c0", "c1", "c0", "c1", "l0", "l1"};

static void tell(const actor *a, int number, uint64_t result)
{
    record(a->world->trace, kb_sim_now(a->world->sim), a->slot, number, result);
}

static kb_source *source_of(actor *a)
{
    return a->co ? kb_co_source(a->co) : &a->source;
}

static void coroutine_main(kb_co *co, void *arg);
static void coroutine_gone(void *arg);

static uint64_t spawn_next(world *w)
{
    const program *p = w->program;
    if (w->born == p->actors || w->abandoned)
        return 0;
    int slot = w->born++;
    actor *a = &w->actors[slot];
    a->born = true;
    if (p->agent[slot]) {
        a->source = kb_source_make(p->id[slot]);
        kb_waiter_init(&a->waiter, &a->source, w->step, (uint64_t)slot);
        kb_sim_at(w->sim, &a->source, kb_sim_now(w->sim), w->step, (uint64_t)slot);
    } else {
        kb_co_options options = {.name = names[slot],
                                 .source_id = p->id[slot],
                                 .daemon = p->daemon[slot],
                                 .on_end = coroutine_gone};
        kb_error *err = kb_co_spawn(w->sim, &options, coroutine_main, a, &a->co);
        KB_ASSERT(!err);
    }
    return (uint64_t)slot + 1;
}

static uint64_t kill_actor(actor *a)
{
    if (!a->born || a->ended)
        return 0;
    if (!a->co)
        return 1;
    if (a->running || a->dying)
        return 2;
    a->dying = true;
    bool started = a->started;
    kb_co_kill(a->co);
    a->ended = true;
    return 3 + started;
}

static uint64_t cancel_wait(world *w, actor *a)
{
    if (a->co || !kb_waiter_cancel(w->sim, &a->waiter))
        return 0;
    kb_sim_at(w->sim, &a->source, kb_sim_now(w->sim), w->step, (uint64_t)a->slot | 256);
    return 1;
}

static uint64_t act(actor *a, const op *o, int number)
{
    world *w = a->world;
    kb_sim *sim = w->sim;
    kb_sem *sem = &w->sems[o->which % SEMS];
    kb_channel *channel = &w->channels[o->which % CHANNELS];
    kb_waitlist *list = &w->lists[o->which % LISTS];
    uint64_t word = word_of(a->slot, number);
    bool outer_running = a->running;
    if (o->kind < TRY_ACQUIRE)
        a->running = false;
    uint64_t result = 0;
    switch (o->kind) {
    case SLEEP:
        kb_co_sleep(a->co, o->amount);
        break;
    case ACQUIRE:
        result = kb_sem_acquire(a->co, sem, (uint64_t)o->amount);
        result += 2 * sem->available;
        break;
    case PUT:
        result = kb_channel_put(a->co, channel, word);
        result += 2 * channel->count;
        break;
    case GET:
        result = kb_channel_get(a->co, channel);
        break;
    case WAIT:
        kb_wait(a->co, list);
        break;
    case WAIT_UNTIL:
        result = kb_wait_until(a->co, list, kb_sim_now(sim) + o->amount);
        break;
    case TRY_ACQUIRE:
        result = kb_sem_try_acquire(sem, (uint64_t)o->amount);
        break;
    case RELEASE:
        kb_sem_release(sim, sem, (uint64_t)o->amount);
        result = sem->available;
        break;
    case TRY_PUT:
        result = kb_channel_try_put(sim, channel, word);
        break;
    case TRY_GET:
        if (!kb_channel_try_get(sim, channel, &result))
            result = 1;
        break;
    case WAKE_ONE:
        result = kb_wake_one(sim, list);
        break;
    case WAKE_ALL:
        kb_wake_all(sim, list);
        break;
    case SPAWN:
        result = spawn_next(w);
        break;
    case KILL:
        result = kill_actor(&w->actors[o->which]);
        break;
    case POST:
        a->posted = kb_sim_at(sim, source_of(a), kb_sim_now(sim) + o->amount, w->note, word);
        break;
    case UNPOST:
        result = kb_sim_cancel(sim, a->posted);
        break;
    case CANCEL:
        result = cancel_wait(w, &w->actors[o->which]);
        break;
    case STOP:
        w->stopped = true;
        kb_sim_stop(sim);
        break;
    case FAIL:
        kb_sim_fail(sim, kb_error_new(KB_ERR_FAULT, "failed by %d", a->slot));
        break;
    case EXIT:
        if (a->co)
            kb_co_exit(a->co);
        break;
    default:
        break;
    }
    a->running = outer_running;
    return result;
}

static void run_cleanup(void *arg)
{
    actor *a = arg;
    int number = CLEANUP + --a->depth;
    a->running = true;
    tell(a, number, act(a, &a->pushed[a->depth], number));
}

static void run_last_cleanup(void *arg)
{
    actor *a = arg;
    tell(a, ENDED, 0);
    a->ended = true;
    a->running = false;
}

static uint64_t push_or_pop(actor *a, const op *o)
{
    if (o->kind == PUSH) {
        a->pushed[a->depth] = (op){o->inner, o->inner_which, o->inner_amount, 0, 0, 0};
        kb_co_push_cleanup(a->co, &a->cleanups[a->depth], run_cleanup, a);
        a->depth++;
        return 0;
    }
    if (a->depth == 0)
        return 0;
    a->depth -= !o->which; /* if it runs it counts itself */
    kb_co_pop_cleanup(a->co, o->which);
    return 1;
}

static void coroutine_main(kb_co *co, void *arg)
{
    actor *a = arg;
    const program *p = a->world->program;
    a->started = a->running = true;
    kb_co_push_cleanup(co, &a->last, run_last_cleanup, a);
    tell(a, STARTED, 0);
    for (; a->pc < p->length[a->slot]; a->pc++) {
        const op *o = &p->ops[a->slot][a->pc];
        tell(a, a->pc, o->kind < PUSH ? act(a, o, a->pc) : push_or_pop(a, o));
    }
}

/* Here the actor outside acts: the coroutine is no more. */
static void coroutine_gone(void *arg)
{
    actor *a = arg;
    a->dying = true;
    tell(a, GONE, act(&a->world->actors[OUTSIDE], &a->world->program->at_end[a->slot], a->slot));
    a->ended = true;
}

/* Begins what a coroutine would block in; true if it is done at once. */
static bool agent_begins(actor *a, const op *o)
{
    world *w = a->world;
    switch (o->kind) {
    case SLEEP: {
        kb_time when = kb_sim_now(w->sim) + o->amount;
        if (kb_sim_advance(w->sim, &a->source, when))
            return true;
        kb_sim_at(w->sim, &a->source, when, w->step, (uint64_t)a->slot);
        return false;
    }
    case ACQUIRE:
        return kb_sem_acquire_then(&w->sems[o->which], (uint64_t)o->amount, &a->waiter);
    case PUT:
        return kb_channel_put_then(w->sim, &w->channels[o->which], word_of(a->slot, a->pc),
                                   &a->waiter);
    case GET:
        return kb_channel_get_then(w->sim, &w->channels[o->which], &a->waiter);
    case WAIT:
        kb_wait_then(&w->lists[o->which], &a->waiter);
        return false;
    default:
        return true;
    }
}

static uint64_t agent_result(const actor *a, const op *o)
{
    switch (o->kind) {
    case ACQUIRE:
        return 1 + 2 * a->world->sems[o->which].available;
    case PUT:
        return 1 + 2 * a->world->channels[o->which].count;
    case GET:
        return a->waiter.value;
    default:
        return 0;
    }
}

static void agent_step(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim;
    world *w = self;
    actor *a = &w->actors[arg & 255];
    const program *p = w->program;
    if (a->blocked) {
        const op *o = &p->ops[a->slot][a->pc];
        tell(a, a->pc++, arg & 256 ? 77 : agent_result(a, o));
        a->blocked = false;
    } else {
        tell(a, STARTED, 0);
    }
    for (; a->pc < p->length[a->slot]; a->pc++) {
        const op *o = &p->ops[a->slot][a->pc];
        if (o->kind == EXIT)
            break;
        if (o->kind >= TRY_ACQUIRE) {
            tell(a, a->pc, act(a, o, a->pc));
        } else if (agent_begins(a, o)) {
            tell(a, a->pc, agent_result(a, o));
        } else {
            a->blocked = true;
            return;
        }
    }
    tell(a, ENDED, 0);
    a->ended = true;
}

static void take_note(kb_sim *sim, void *self, uint64_t word)
{
    const world *w = self;
    record(w->trace, kb_sim_now(sim), (int)(word >> 16) - 1, NOTE, word & 0xffff);
}

static bool run_engine_once(world *w, kb_time until)
{
    w->stopped = false;
    kb_error *err = kb_sim_run(w->sim, until);
    kb_code code = kb_error_code(err);
    record_run(w->trace, kb_sim_now(w->sim), code, kb_error_message(err), kb_error_detail(err));
    kb_error_free(err);
    return w->stopped || code == KB_ERR_FAULT;
}

static void run_engine(const program *p, bool elision, trace *t)
{
    world w = {.program = p, .trace = t};
    *t = (trace){0};
    expect_ok(kb_sim_create(&(kb_sim_options){.no_elision = !elision}, &w.sim));
    expect_ok(kb_sim_add_handler(w.sim, agent_step, &w, &w.step));
    expect_ok(kb_sim_add_handler(w.sim, take_note, &w, &w.note));
    for (int i = 0; i <= ACTORS; i++) {
        w.actors[i].world = &w;
        w.actors[i].slot = i;
    }
    w.actors[OUTSIDE].source = kb_source_make(p->id[OUTSIDE]);
    for (int i = 0; i < SEMS; i++)
        kb_sem_init(&w.sems[i], thing_names[i], p->units[i]);
    for (int i = 0; i < CHANNELS; i++)
        expect_ok(kb_channel_init(&w.channels[i], thing_names[SEMS + i], p->capacity[i]));
    for (int i = 0; i < LISTS; i++)
        kb_waitlist_init(&w.lists[i], thing_names[SEMS + 2 * CHANNELS + i]);
    while (w.born < p->at_start)
        (void)spawn_next(&w);

    for (int i = 0; i < RUNS; i++) {
        (void)run_engine_once(&w, p->until[i]);
        for (int j = 0; j < OUTSIDE_OPS; j++) {
            int number = i * OUTSIDE_OPS + j;
            tell(&w.actors[OUTSIDE], number, act(&w.actors[OUTSIDE], &p->outside[i][j], number));
        }
    }
    while (run_engine_once(&w, KB_FOREVER))
        continue;
    w.abandoned = true;
    kb_sim_abandon(w.sim);

    kb_sim_stats stats = kb_sim_get_stats(w.sim);
    t->events = stats.events + stats.elided;
    t->cancelled = stats.cancelled;
    t->resumes = elision ? 0 : stats.resumes;
    assert_int_equal(stats.pending, 0);
    assert_int_equal(stats.coroutines, 0);
    kb_sim_destroy(w.sim);
    for (int i = 0; i < CHANNELS; i++)
        kb_channel_fini(&w.channels[i]);
}

/* ---- The reference: a state machine for each actor over a list of events ---- */

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
    int failed_by; /* NONE: nobody */
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

/* Lets the first that waits go on; NULL if nobody does. */
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

/* The report of a deadlock, or false if nobody but daemons waits. */
static bool ref_deadlock(ref *r)
{
    char message[128], detail[512] = "";
    int waiting = 0;
    for (int i = 0; i < r->born; i++) {
        const ref_actor *a = &r->actors[i];
        if (r->program->agent[i] || r->program->daemon[i] || a->ended)
            continue;
        snprintf(detail + strlen(detail), 64, "%s%s waits for %s", waiting ? "\n" : "", names[i],
                 thing_names[a->queue]);
        waiting++;
    }
    snprintf(message, sizeof message,
             "deadlock at 0.%06d ns: nothing is left to happen and %d coroutine%s", (int)r->now,
             waiting, waiting == 1 ? " waits" : "s wait");
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

static void run_reference(const program *p, trace *t)
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

/* ---- Comparing ---- */

static void print_entry(const char *who, const program *p, const trace *t, int i)
{
    if (i >= t->count) {
        print_error("  %s: nothing more\n", who);
        return;
    }
    const entry *e = &t->entries[i];
    const char *name = e->op < LENGTH && e->actor < ACTORS
                           ? kind_names[p->ops[e->actor][e->op].kind]
                       : e->op < CLEANUP  ? "outside"
                       : e->op < NOTE     ? "cleanup"
                       : e->op == NOTE    ? "note"
                       : e->op == STARTED ? "started"
                       : e->op == ENDED   ? "ended"
                       : e->op == GONE    ? "gone"
                                          : "ran";
    print_error("  %s: at %" PRId64 " actor %d op %d (%s) gives %" PRIu64 "%s%s\n", who, e->time,
                e->actor, e->op, name, e->result, e->op == RAN ? ": " : "",
                e->op == RAN ? t->words[e->result] : "");
}

static bool same_entry(const trace *a, const trace *b, int i)
{
    const entry *x = &a->entries[i], *y = &b->entries[i];
    return x->time == y->time && x->actor == y->actor && x->op == y->op && x->result == y->result &&
           (x->op != RAN || strcmp(a->words[x->result], b->words[y->result]) == 0);
}

static void compare(uint64_t seed, const program *p, bool elision, const trace *expected,
                    const trace *found)
{
    int i = 0;
    while (i < expected->count && i < found->count && same_entry(expected, found, i))
        i++;
    if (i < expected->count || i < found->count) {
        print_error("program %" PRIu64 " %s elision differs after %d steps\n", seed,
                    elision ? "with" : "without", i);
        for (int before = i < 5 ? 0 : i - 5; before < i; before++)
            print_entry("both", p, expected, before);
        print_entry("expected", p, expected, i);
        print_entry("found", p, found, i);
        fail();
    }
    if (found->events != expected->events || found->cancelled != expected->cancelled ||
        (!elision && found->resumes != expected->resumes))
        fail_msg("program %" PRIu64 ": %" PRIu64 " events, %" PRIu64 " cancelled, %" PRIu64
                 " resumes; expected %" PRIu64 ", %" PRIu64 ", %" PRIu64,
                 seed, found->events, found->cancelled, found->resumes, expected->events,
                 expected->cancelled, expected->resumes);
}

static void the_engine_does_what_the_reference_does(void **state)
{
    (void)state;
    static trace expected, found;
    static program p;
    const uint64_t programs = RUNNING_ON_VALGRIND ? PROGRAMS / 100 : PROGRAMS;
    uint64_t steps = 0, seen[KINDS] = {0};
    uint64_t outcomes[5] = {0};
    for (uint64_t seed = 0; seed < programs; seed++) {
        draw_program(&p, seed);
        run_reference(&p, &expected);
        assert_true(expected.count < ENTRIES);
        for (int elision = 0; elision < 2; elision++) {
            run_engine(&p, elision, &found);
            compare(seed, &p, elision, &expected, &found);
        }
        steps += (uint64_t)expected.count;
        for (int i = 0; i < expected.count; i++) {
            const entry *e = &expected.entries[i];
            if (e->actor < ACTORS && e->op < LENGTH)
                seen[p.ops[e->actor][e->op].kind]++;
        }
        for (int i = 0; i < expected.runs; i++)
            outcomes[expected.words[i][0] - '0']++;
    }
    /* The programs are worth running: they get far, and everything occurs. */
    print_message("%" PRIu64 " programs, %" PRIu64 " steps\n", programs, steps);
    assert_true(steps > 40 * programs);
    for (kind k = SLEEP; k < KINDS; k++)
        if (k != EXIT && seen[k] < programs / 20)
            fail_msg("%s occurs only %" PRIu64 " times", kind_names[k], seen[k]);
    assert_true(outcomes[KB_OK] > programs / 2);
    assert_true(outcomes[KB_ERR_DEADLOCK] > programs / 2);
    assert_true(outcomes[KB_ERR_FAULT] > programs / 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_engine_does_what_the_reference_does),
    };
    return cmocka_run_group_tests_name("interleaving", tests, NULL, NULL);
}
