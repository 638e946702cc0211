/*
 * engines.c: begins and ends of the engines' commands; engines.h has the rules.
 */
#include "units_private.h"

#include <stdlib.h>

enum { FIRST_ROOM = 4 };

/* ---- Commands that wait ------------------------------------------------------------------ */

void engines_fini(pe_state *state)
{
    for (int i = 0; i < ENGINES; i++) {
        free(state->engines[i].begins);
        free(state->engines[i].begin_ids);
        free(state->engines[i].waiting_works);
    }
}

static bool engine_is_idle(const engine *e)
{
    return e->waiting == 0 && !e->internal.first;
}

static pe_work *program_work(const engine *e, uint32_t i)
{
    return &e->waiting_works[(e->first_waiting + i) & (e->room - 1)];
}

static pe_work *first_of_program(const engine *e)
{
    return e->waiting > 0 ? program_work(e, 0) : NULL;
}

/* Twice as much room; what waits is at its beginning. */
static __attribute__((noinline)) bool grow(engine *e)
{
    uint32_t room = e->room > 0 ? 2 * e->room : FIRST_ROOM;
    pe_work *works = kb_alloc_array(room, sizeof *works);
    if (!works)
        return false;
    for (uint32_t i = 0; i < e->waiting; i++)
        works[i] = *program_work(e, i);
    free(e->waiting_works);
    e->waiting_works = works;
    e->room = room;
    e->first_waiting = 0;
    return true;
}

static void push_internal(work_queue *q, pe_work *work)
{
    work->next = NULL;
    if (q->first)
        q->last->next = work;
    else
        q->first = work;
    q->last = work;
}

/* ---- The queue --------------------------------------------------------------------------- */

bool engine_has_room(const pe_units *units, const engine *e, kb_time *from)
{
    uint32_t depth = units->shape->pe.queue_depth;
    *from = e->in_ring == depth ? e->begins[e->issued] : 0;
    return e->waiting < depth;
}

/* The begins of as many commands as the queue holds are kept: the next one may be issued when the
 * oldest of these has begun. */
static bool prepare_begins(const pe_units *units, engine *e)
{
    if (KB_UNLIKELY(!e->begins))
        e->begins = kb_alloc_array(units->shape->pe.queue_depth, sizeof *e->begins);
    return e->begins;
}

static inline __attribute__((always_inline)) void note_begin(pe_units *units, engine *e,
                                                             const pe_work *work, kb_time begin)
{
    uint32_t depth = units->shape->pe.queue_depth;
    uint32_t number =
        e->issued >= e->waiting ? e->issued - e->waiting : e->issued + depth - e->waiting;
    e->begins[number] = begin;
    if (KB_UNLIKELY(work->entry != NULL && work->entry->id != 0))
        units_note_begin_id(units, e, number, work->entry->id);
}

static void note_issue(const pe_units *units, engine *e)
{
    uint32_t depth = units->shape->pe.queue_depth;
    e->issued = e->issued + 1 == depth ? 0 : e->issued + 1;
    e->in_ring += e->in_ring < depth;
}

/* ---- Times ------------------------------------------------------------------------------- */

/* Begins it, at a time that is final. */
static pe_ready carry_out(pe_state *state, const pe_work *work, kb_time begin)
{
    pe_units *units = state->units;
    engine *e = units_engine(state, work->unit);
    kb_time now = kb_sim_now(units->has.sim), read = begin, written = begin;
    kb_error *err = NULL;
    if (work->tcm_reads > 0)
        err =
            tcm_port_book(&state->reads, now, begin, units_tcm_time(units, work->tcm_reads), &read);
    if (!err && work->tcm_writes > 0)
        err = tcm_port_book(&state->writes, now, begin, units_tcm_time(units, work->tcm_writes),
                            &written);
    if (KB_UNLIKELY(err != NULL))
        units_fail(units, err);
    kb_time passed = kb_max(read, written), worked = kb_time_add(begin, work->time);
    kb_time end = kb_max(kb_time_add(worked, work->tail), passed);
    uint32_t id = 0;
    if (KB_UNLIKELY(work->entry != NULL)) {
        work->entry->start = begin;
        work->entry->end = end;
        (void)kb_sim_at(units->has.sim, &state->engine_source, end, units->on_watched, 0);
        id = (uint32_t)work->entry->id;
        if (id != 0)
            units_explain_work(state, e, work, &(work_times){begin, read, written, end});
    }
    e->free_at = kb_max(worked, passed);
    kb_sim_expect(units->has.sim, end, "a command of a PE"); /* it has no event */
    state->cpu.engines_end = kb_max(state->cpu.engines_end, end);
    kb_oplog_work(units->has.log, state->number,
                  &(kb_work){.start = begin,
                             .free_at = e->free_at,
                             .end = end,
                             .unit = work->unit,
                             .name = work->name,
                             .of_kernel = work->of_kernel,
                             .flops = work->flops,
                             .op = work->entry});
    return (pe_ready){
        .at = end, .drains_from = work->unit == KB_UNIT_GEMM ? e->free_at : 0, .id = id};
}

/* When a command could begin if its engine were free, as far as its inputs are known. */
typedef struct readiness {
    kb_time earliest;      /* the latest of its issue and of known inputs, */
    kb_time second;        /* and the latest before that */
    kb_time drains_from;   /* of the input that is the latest */
    uint8_t unknown;       /* an input that is not known */
    bool is_known;         /* all inputs are known */
    bool waits_for_others; /* one is not known that no engine makes */
} readiness;

static inline readiness look_at_inputs(const pe_work *work)
{
    readiness r = {.earliest = work->issued, .is_known = true};
    for (uint8_t i = 0; i < work->input_count; i++) {
        const pe_ready *input = work->inputs[i];
        if (input->at == KB_FOREVER) {
            r.is_known = false;
            r.unknown = i;
            r.waits_for_others |= !input->by_engine;
        } else if (input->at > r.earliest) {
            r.second = r.earliest;
            r.earliest = input->at;
            r.drains_from = input->drains_from;
        } else if (input->at > r.second) {
            r.second = input->at;
        }
    }
    return r;
}

/* The product waits for nothing but results of another one that drain. */
static void note_drain(const pe_state *state, pe_work *work, const readiness *r)
{
    if (work->noted_drain || work->unit != KB_UNIT_GEMM)
        return;
    work->noted_drain = true;
    kb_time from = kb_max(r->drains_from, r->second);
    from = kb_max(from, kb_sim_now(state->units->has.sim));
    if (r->drains_from == 0 || from >= r->earliest)
        return;
    kb_oplog *log = state->units->has.log;
    kb_oplog_need_drain(log, state->number, from, true);
    kb_oplog_need_drain(log, state->number, r->earliest, false);
}

/* Calls are no order: a program issues commands ahead of global time. */
static bool was_issued_before(const pe_work *a, const pe_work *b)
{
    return units_issued_before(a->issued, a->sequence, b->issued, b->sequence);
}

/*
 * The command that the engine begins next, and when; NULL if its inputs are not known. *bound: of
 * commands of which that is so, none begins before this. What waits for the engines alone begins
 * after the first of their commands that are known.
 */
static pe_work *next_of(const pe_state *state, const engine *e, kb_time *begin, kb_time *bound)
{
    pe_work *own = first_of_program(e), *next = NULL;
    for (pe_work *work = own ? own : e->internal.first; work;
         work = work->internal ? NULL : e->internal.first) {
        readiness r = look_at_inputs(work);
        kb_time at = kb_max(r.earliest, e->free_at);
        if (!r.is_known) {
            if (r.waits_for_others && at < *bound)
                *bound = at;
            continue;
        }
        note_drain(state, work, &r);
        if (!next || at < *begin || (at == *begin && was_issued_before(work, next))) {
            next = work;
            *begin = at;
        }
    }
    return next;
}

static void take_out(pe_state *state, engine *e, const pe_work *work, kb_time begin)
{
    state->cpu.queued--;
    if (work->internal) {
        e->internal.first = work->next;
        return;
    }
    note_begin(state->units, e, work, begin);
    e->first_waiting = (e->first_waiting + 1) & (e->room - 1);
    e->waiting--;
}

/*
 * An event at the next begin. It may turn out to be too early: then nothing happens. The event at
 * the end of the command before, if there is one, does as well.
 */
static void set_frontier(pe_state *state, kb_time at)
{
    pe_units *units = state->units;
    if (state->frontier_at <= at || state->engines[0].looked_at == at ||
        state->engines[1].looked_at == at)
        return;
    if (state->frontier_at != KB_FOREVER)
        (void)kb_sim_cancel(units->has.sim, state->frontier);
    state->frontier_at = at;
    state->frontier =
        kb_sim_at(units->has.sim, &state->engine_source, at, units->on_frontier, state->number);
}

/*
 * Of two that begin at one time, one that waited comes before one that is issued at that time. Of
 * two that waited, an engine that becomes free then comes before one that waited for a value, as
 * that may be the value whose end freed the engine. If both become free, the matrix engine comes
 * first; if none does, the command that was issued first.
 */
static bool begins_before(pe_state *state, const pe_work *a, kb_time a_at, const pe_work *b,
                          kb_time b_at)
{
    if (a_at != b_at)
        return a_at < b_at;
    if ((a->issued == a_at) != (b->issued == b_at))
        return b->issued == b_at;
    bool a_is_freed = units_engine(state, a->unit)->free_at == a_at;
    bool b_is_freed = units_engine(state, b->unit)->free_at == b_at;
    if (a_is_freed != b_is_freed)
        return a_is_freed;
    return a_is_freed ? a->unit == KB_UNIT_GEMM : was_issued_before(a, b);
}

/* The command that begins next, and when; NULL if it is not known which. *bound becomes the time
 * before which nothing unknown begins, if it is later. */
static pe_work *next_work(pe_state *state, kb_time *at, kb_time *bound)
{
    engine *matrix = &state->engines[0], *vector = &state->engines[1];
    if (engine_is_idle(matrix))
        return next_of(state, vector, at, bound);
    if (engine_is_idle(vector))
        return next_of(state, matrix, at, bound);
    kb_time product_at = KB_FOREVER, other_at = KB_FOREVER;
    pe_work *product = next_of(state, matrix, &product_at, bound);
    pe_work *other = next_of(state, vector, &other_at, bound);
    bool takes_other =
        !product || (other && begins_before(state, other, other_at, product, product_at));
    *at = takes_other ? other_at : product_at;
    return takes_other ? other : product;
}

static bool is_reached(const pe_units *units, engine_goal goal)
{
    kb_time from;
    return (goal.value && goal.value->at != KB_FOREVER) ||
           (goal.room && engine_has_room(units, goal.room, &from));
}

/*
 * Begins up to this are final. What the program issues at `limit` comes after all others of that
 * time; other unknown commands may come before, so begins at their bound are not final.
 */
static kb_time final_until(const pe_state *state, kb_time limit, kb_time bound, kb_time now)
{
    if (KB_UNLIKELY(state->first_user != NULL)) {
        kb_time issued = state->first_user->issued;
        bound = issued < bound ? issued : bound;
    }
    kb_time until = bound <= limit ? bound - 1 : limit;
    return kb_max(until, now);
}

/* Also of those behind the first: the log is to know of drains that they wait for. */
static void note_drains(const pe_state *state)
{
    const engine *matrix = &state->engines[0];
    for (uint32_t i = 0; i < matrix->waiting; i++) {
        pe_work *work = program_work(matrix, i);
        if (work->noted_drain ||
            (work->input_count > 0 && work->inputs[work->unknown_input]->at == KB_FOREVER))
            continue;
        readiness r = look_at_inputs(work);
        if (r.is_known)
            note_drain(state, work, &r);
        else
            work->unknown_input = r.unknown;
    }
}

void engines_advance(pe_state *state, kb_time limit, engine_goal goal)
{
    pe_units *units = state->units;
    kb_time now = kb_sim_now(units->has.sim);
    bool any = false, any_product = state->engines[0].waiting > 0;
    if (state->cpu.queued == 0)
        return;
    if (goal.value || goal.room)
        limit = KB_FOREVER; /* the program issues nothing until that is reached */
    units_enter(units);
    if (any_product)
        note_drains(state);
    while (!units->failed && !is_reached(units, goal)) {
        kb_time at, bound = KB_FOREVER;
        pe_work *next = next_work(state, &at, &bound);
        if (!next)
            break;
        if (at > (next->in_event ? now : final_until(state, limit, bound, now))) {
            if (state->cpu.waits != PE_RUNS || !state->cpu.co)
                set_frontier(state, at);
            break;
        }
        take_out(state, units_engine(state, next->unit), next, at);
        next->known(next, at, carry_out(state, next, at)); /* it is still where it was */
        any = true;
    }
    if (any) {
        if (any_product)
            note_drains(state);
        units_poll_inputs(units, state);
    }
    units_leave(units);
}

/* ---- Issuing ----------------------------------------------------------------------------- */

/* Room for one more command of the program, behind those that wait. */
static inline bool prepare(const pe_units *units, engine *e)
{
    if (KB_LIKELY(e->begins && e->waiting < e->room))
        return true;
    return prepare_begins(units, e) && (e->waiting < e->room || grow(e));
}

pe_work *pe_cpu_next_work(pe_cpu *cpu, kb_unit unit)
{
    pe_state *state = (pe_state *)cpu;
    engine *e = units_engine(state, unit);
    KB_ASSERT(e->waiting < state->units->shape->pe.queue_depth);
    if (KB_UNLIKELY(!prepare(state->units, e)))
        return NULL;
    pe_work *work = program_work(e, e->waiting);
    work->unit = unit;
    work->internal = false;
    work->noted_drain = false;
    work->unknown_input = 0;
    return work;
}

bool pe_cpu_resolve(pe_cpu *cpu, const pe_work *work, pe_ready *result)
{
    pe_state *state = (pe_state *)cpu;
    engine *e = units_engine(state, work->unit);
    if (cpu->queued > 0 || cpu->shares_units || work->in_event || e->free_at > cpu->clock)
        return false;
    for (uint8_t i = 0; i < work->input_count; i++)
        if (work->inputs[i]->at > cpu->clock)
            return false;
    note_begin(state->units, e, work, cpu->clock);
    note_issue(state->units, e);
    state->units->stats.resolved++;
    state->issued++;
    *result = carry_out(state, work, cpu->clock);
    return true;
}

void engines_put_internal(pe_state *state, pe_work *work)
{
    state->cpu.queued++;
    push_internal(&units_engine(state, work->unit)->internal, work);
}

static void note_waiting(pe_state *state, engine *e)
{
    state->cpu.queued++;
    e->waiting++;
    note_issue(state->units, e);
}

void engines_put(pe_state *state, const pe_work *work)
{
    engine *e = units_engine(state, work->unit);
    KB_ASSERT(!work->internal && e->waiting < state->units->shape->pe.queue_depth);
    if (!prepare(state->units, e)) {
        units_fail(state->units, kb_error_nomem());
        return;
    }
    *program_work(e, e->waiting) = *work;
    note_waiting(state, e);
}

static bool waits_for_input(const pe_work *work)
{
    for (uint8_t i = 0; i < work->input_count; i++)
        if (work->inputs[i]->at > work->issued)
            return true;
    return false;
}

void pe_cpu_queue(pe_cpu *cpu, pe_work *work)
{
    pe_state *state = (pe_state *)cpu;
    pe_stats *stats = &state->units->stats;
    ++*(work->in_event || state->first_user ? &stats->waited_for_event
        : waits_for_input(work)             ? &stats->waited_for_input
                                            : &stats->waited_for_command);
    work->sequence = state->issued++ | BY_PROGRAM;
    note_waiting(state, units_engine(state, work->unit)); /* looked at when the program waits */
}
