/*
 * engines.c: begins and ends of the engines' commands; engines.h has the rules.
 */
#include "units_private.h"

#include <stdlib.h>

static void push(work_queue *q, pe_work *work)
{
    work->next = NULL;
    if (q->first)
        q->last->next = work;
    else
        q->first = work;
    q->last = work;
}

void engines_fini(pe_state *state)
{
    for (int i = 0; i < ENGINES; i++)
        free(state->engines[i].begins);
}

static bool engine_is_idle(const engine *e)
{
    return !e->program.first && !e->internal.first;
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

static void note_begin(const pe_units *units, engine *e, kb_time begin)
{
    uint32_t depth = units->shape->pe.queue_depth;
    uint32_t number =
        e->issued >= e->waiting ? e->issued - e->waiting : e->issued + depth - e->waiting;
    e->begins[number] = begin;
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
    kb_time passed = units_later_of(read, written), worked = kb_time_add(begin, work->time);
    kb_time end = units_later_of(kb_time_add(worked, work->tail), passed);
    e->free_at = units_later_of(worked, passed);
    kb_sim_expect(units->has.sim, end, "a command of a PE"); /* it has no event */
    state->cpu.engines_end = units_later_of(state->cpu.engines_end, end);
    if (KB_UNLIKELY(work->entry != NULL)) {
        work->entry->start = begin;
        work->entry->end = end;
        (void)kb_sim_at(units->has.sim, &state->engine_source, end, units->on_watched, 0);
    }
    kb_oplog_work(units->has.log, state->number,
                  &(kb_work){.start = begin,
                             .free_at = e->free_at,
                             .end = end,
                             .unit = work->unit,
                             .name = work->name,
                             .of_kernel = work->of_kernel,
                             .flops = work->flops,
                             .op = work->entry});
    return (pe_ready){.at = end, .drains_from = work->unit == KB_UNIT_GEMM ? e->free_at : 0};
}

/* The product waits for nothing but results of another one that drain. */
static void note_drain(const pe_state *state, const pe_work *work)
{
    kb_time from = units_later_of(work->drains_from, work->second);
    from = units_later_of(from, kb_sim_now(state->units->has.sim));
    if (work->drains_from == 0 || from >= work->earliest)
        return;
    kb_oplog *log = state->units->has.log;
    kb_oplog_need_drain(log, state->number, from, true);
    kb_oplog_need_drain(log, state->number, work->earliest, false);
}

/* Whether all inputs are known; then it begins at `earliest` or later. */
static bool has_inputs(const pe_state *state, pe_work *work)
{
    if (work->input_count == 0)
        return true;
    uint8_t left = 0;
    work->waits_for_others = false;
    for (uint8_t i = 0; i < work->input_count; i++) {
        const pe_ready *input = work->inputs[i];
        if (input->at == KB_FOREVER) {
            work->inputs[left++] = input;
            work->waits_for_others |= !input->by_engine;
        } else if (input->at > work->earliest) {
            work->second = work->earliest;
            work->earliest = input->at;
            work->drains_from = input->drains_from;
        } else if (input->at > work->second) {
            work->second = input->at;
        }
    }
    work->input_count = left;
    if (left == 0 && work->unit == KB_UNIT_GEMM)
        note_drain(state, work);
    return left == 0;
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
static pe_work *next_of(const pe_state *state, engine *e, kb_time *begin, kb_time *bound)
{
    pe_work *next = NULL;
    for (pe_work *work = e->program.first ? e->program.first : e->internal.first; work;
         work = work->internal ? NULL : e->internal.first) {
        bool is_known = has_inputs(state, work);
        kb_time at = units_later_of(work->earliest, e->free_at);
        if (!is_known) {
            if (work->waits_for_others && at < *bound)
                *bound = at;
        } else if (!next || at < *begin || (at == *begin && was_issued_before(work, next))) {
            next = work;
            *begin = at;
        }
    }
    return next;
}

static void take_out(pe_state *state, engine *e, const pe_work *work, kb_time begin)
{
    work_queue *q = work->internal ? &e->internal : &e->program;
    q->first = work->next;
    state->cpu.queued--;
    if (work->internal)
        return;
    note_begin(state->units, e, begin);
    e->waiting--;
}

/* An event at the next begin. It may turn out to be too early: then nothing happens. */
static void set_frontier(pe_state *state, kb_time at)
{
    pe_units *units = state->units;
    if (state->frontier_at <= at)
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
    return units_later_of(until, now);
}

/* Also of those behind the first: the log is to know of drains that they wait for. */
static void fold_inputs_of_products(const pe_state *state)
{
    for (pe_work *work = state->engines[0].program.first; work; work = work->next)
        if (work->input_count > 0)
            (void)has_inputs(state, work);
}

void engines_advance(pe_state *state, kb_time limit, engine_goal goal)
{
    pe_units *units = state->units;
    kb_time now = kb_sim_now(units->has.sim);
    bool any = false, any_product = state->engines[0].program.first;
    if (state->cpu.queued == 0)
        return;
    if (goal.value || goal.room)
        limit = KB_FOREVER; /* the program issues nothing until that is reached */
    units_enter(units);
    if (any_product)
        fold_inputs_of_products(state);
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
        next->known(next, at, carry_out(state, next, at));
        any = true;
    }
    if (any) {
        if (any_product)
            fold_inputs_of_products(state);
        units_poll_inputs(units, state);
    }
    units_leave(units);
}

/* ---- Issuing ----------------------------------------------------------------------------- */

bool pe_units_resolve(pe_cpu *cpu, pe_work *work, pe_ready *result)
{
    pe_state *state = (pe_state *)cpu;
    engine *e = units_engine(state, work->unit);
    if (!pe_cpu_may_resolve(cpu) || work->in_event || !has_inputs(state, work) ||
        units_later_of(work->earliest, e->free_at) > cpu->clock)
        return false;
    if (!prepare_begins(state->units, e)) {
        units_fail(state->units, kb_error_nomem());
        return false;
    }
    kb_time begin = units_later_of(work->earliest, e->free_at);
    note_begin(state->units, e, begin);
    note_issue(state->units, e);
    state->units->stats.resolved++;
    state->issued++;
    *result = carry_out(state, work, begin);
    return true;
}

void engines_put(pe_state *state, pe_work *work)
{
    engine *e = units_engine(state, work->unit);
    if (!prepare_begins(state->units, e))
        units_fail(state->units, kb_error_nomem());
    KB_ASSERT(work->internal || e->waiting < state->units->shape->pe.queue_depth);
    push(work->internal ? &e->internal : &e->program, work);
    state->cpu.queued++;
    if (work->internal)
        return;
    e->waiting++;
    note_issue(state->units, e);
}

void pe_units_queue(pe_cpu *cpu, pe_work *work)
{
    pe_state *state = (pe_state *)cpu;
    pe_stats *stats = &state->units->stats;
    ++*(work->in_event || state->first_user ? &stats->waited_for_event
        : work->input_count > 0             ? &stats->waited_for_input
                                            : &stats->waited_for_command);
    work->sequence = state->issued++;
    engines_put(state, work); /* looked at when the program waits for something */
}
