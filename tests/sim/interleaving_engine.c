/* interleaving_engine.c: runs a program with the engine's own coroutines, handlers and lists. */
#include "interleaving.h"

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
    bool abandoned; /* no coroutine is spawned any more */
    bool stopped;
    kb_sem sems[SEMS];
    kb_channel channels[CHANNELS];
    kb_waitlist lists[LISTS];
    kb_handler step, note;
};

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
        kb_co_options options = {.name = actor_names[slot],
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

void run_engine(const program *p, bool elision, trace *t)
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
