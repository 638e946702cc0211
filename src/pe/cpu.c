/*
 * cpu.c: the clock of a PE's program, and how the program waits.
 *
 * The program advances its clock by what it is told: the time of a value, room in a queue. It is
 * suspended only if such a time is not known yet; then the event that makes it known resumes the
 * program, before the event's handler returns. All times that become known are now or later
 * (nothing is known late), so the clock of a running program is never behind global time.
 */
#include "units_private.h"

static pe_state *state_of(pe_cpu *cpu)
{
    return (pe_state *)cpu; /* its first member */
}

pe_cpu *pe_units_cpu(pe_units *units, kb_pe pe)
{
    pe_state *state = units_need_pe(units, pe);
    return state ? &state->cpu : NULL;
}

static kb_time now_of(const pe_cpu *cpu)
{
    return kb_sim_now(((const pe_state *)cpu)->units->has.sim);
}

void pe_cpu_begin(pe_cpu *cpu, kb_co *co)
{
    KB_ASSERT(!cpu->co);
    cpu->co = co;
    cpu->clock = state_of(cpu)->program_at = now_of(cpu);
    cpu->waits = PE_RUNS;
}

void pe_cpu_end(pe_cpu *cpu)
{
    pe_state *state = state_of(cpu);
    cpu->co = NULL;
    cpu->waits = PE_RUNS;
    cpu->horizon = KB_FOREVER;
    units_enter(state->units);
    units_put(state->units, &state->look);
    units_leave(state->units);
}

void pe_cpu_schedule(pe_cpu *cpu, kb_time at, kb_handler handler, uint64_t arg)
{
    pe_state *state = state_of(cpu);
    (void)kb_sim_at(state->units->has.sim, &state->engine_source, at, handler, arg);
}

/* ---- Waiting ----------------------------------------------------------------------------- */

static void block(pe_cpu *cpu, pe_wait what, kb_waitlist *list, kb_time deadline)
{
    kb_time asked = cpu->clock;
    cpu->waits = what;
    cpu->horizon = what == PE_SLEEPS ? deadline : 0;
    units_look_at_engines(state_of(cpu));
    if (cpu->waits == PE_RUNS)
        return; /* that was what it waited for */
    if (what == PE_SLEEPS && state_of(cpu)->units->depth == 0)
        kb_co_sleep(cpu->co, deadline - now_of(cpu)); /* may advance global time by itself */
    else
        (void)kb_wait_until(cpu->co, list, deadline);
    cpu->waits = PE_RUNS;
    kb_time now = now_of(cpu);
    if (what == PE_SLEEPS || asked < now)
        state_of(cpu)->program_at = now;
    cpu->clock = kb_max(asked, now);
}

static void block_on_units(pe_cpu *cpu, pe_wait what)
{
    block(cpu, what, &state_of(cpu)->waiters, KB_FOREVER);
}

void pe_cpu_synchronise(pe_cpu *cpu)
{
    kb_time now = now_of(cpu);
    bool is_ahead = cpu->clock > now || units_is_program_early(state_of(cpu), now);
    if (is_ahead && !kb_co_is_unwinding(cpu->co))
        block(cpu, PE_SLEEPS, &state_of(cpu)->waiters, cpu->clock);
}

void pe_cpu_await_progress(pe_cpu *cpu, kb_time deadline)
{
    block(cpu, PE_WAITS_FOR_ANY, &state_of(cpu)->waiters, deadline);
}

void pe_cpu_suspend(pe_cpu *cpu, kb_waitlist *list)
{
    block(cpu, PE_WAITS_FOR_OTHERS, list, KB_FOREVER);
}

void pe_cpu_await_value(pe_cpu *cpu, const pe_ready *ready)
{
    kb_time asked = cpu->clock;
    if (ready->at == KB_FOREVER)
        engines_advance(state_of(cpu), cpu->clock, (engine_goal){.value = ready});
    while (ready->at == KB_FOREVER && !kb_co_is_unwinding(cpu->co)) {
        cpu->value = ready;
        block_on_units(cpu, PE_WAITS_FOR_VALUE);
    }
    cpu->clock = kb_max(cpu->clock, ready->at);
    pe_cpu_explain(cpu, asked, KB_REASON_INPUT, ready->id);
}

void pe_cpu_await_op(pe_cpu *cpu, pe_op op)
{
    const pe_units *units = state_of(cpu)->units;
    kb_time asked = cpu->clock;
    while (!pe_units_is_done(units, op) && !kb_co_is_unwinding(cpu->co)) {
        cpu->op = op;
        cpu->awaited = 0;
        block_on_units(cpu, PE_WAITS_FOR_OP);
    }
    pe_cpu_explain(cpu, asked, KB_REASON_INPUT, cpu->awaited);
}

static bool has_room(const pe_units *units, pe_state *state, kb_unit unit, kb_time *from)
{
    *from = 0;
    if (units_is_dma(unit))
        return units_lane(state, unit)->waiting < units->shape->pe.queue_depth;
    return engine_has_room(units, units_engine(state, unit), from);
}

/* The record of the command whose begin made room; 0 without ids. */
static uint32_t left_queue(pe_state *state, kb_unit unit)
{
    if (units_is_dma(unit))
        return state->cpu.awaited;
    const engine *e = units_engine(state, unit);
    return e->begin_ids ? e->begin_ids[e->issued] : 0;
}

static __attribute__((noinline)) void wait_for_room(pe_state *state, kb_unit unit)
{
    pe_cpu *cpu = &state->cpu;
    kb_time from, asked = cpu->clock;
    if (!units_is_dma(unit) && !has_room(state->units, state, unit, &from))
        engines_advance(state, cpu->clock, (engine_goal){.room = units_engine(state, unit)});
    while (!has_room(state->units, state, unit, &from) && !kb_co_is_unwinding(cpu->co)) {
        cpu->room_of = unit;
        cpu->awaited = 0;
        block_on_units(cpu, PE_WAITS_FOR_ROOM);
    }
    cpu->clock = kb_max(cpu->clock, from);
    pe_cpu_explain(cpu, asked, KB_REASON_ROOM, left_queue(state, unit));
}

void pe_cpu_await_room(pe_cpu *cpu, kb_unit unit)
{
    pe_state *state = state_of(cpu);
    kb_time from;
    if (KB_UNLIKELY(!has_room(state->units, state, unit, &from) || from > cpu->clock))
        wait_for_room(state, unit);
}

void units_look_at_engines(pe_state *state)
{
    const pe_cpu *cpu = &state->cpu;
    engine_goal goal = {0};
    if (cpu->waits == PE_WAITS_FOR_VALUE)
        goal.value = cpu->value;
    if (cpu->waits == PE_WAITS_FOR_ROOM && !units_is_dma(cpu->room_of))
        goal.room = units_engine(state, cpu->room_of);
    bool runs = cpu->co && cpu->waits == PE_RUNS;
    engines_advance(state, runs ? cpu->clock : cpu->horizon, goal);
}

/* ---- Going on ---------------------------------------------------------------------------- */

static bool can_go_on(const pe_units *units, pe_state *state)
{
    const pe_cpu *cpu = &state->cpu;
    kb_time from;
    switch (cpu->waits) {
    case PE_WAITS_FOR_ANY:
        return true;
    case PE_WAITS_FOR_ROOM:
        return has_room(units, state, cpu->room_of, &from);
    case PE_WAITS_FOR_OP:
        return pe_units_is_done(units, cpu->op);
    case PE_WAITS_FOR_VALUE:
        return cpu->value->at != KB_FOREVER;
    case PE_RUNS:
    case PE_SLEEPS:
    case PE_WAITS_FOR_OTHERS:
        break;
    }
    return false;
}

void units_progress(pe_units *units, pe_state *state)
{
    if (can_go_on(units, state))
        units_put(units, &state->resume);
}

void pe_cpu_wake(pe_cpu *cpu)
{
    pe_state *state = state_of(cpu);
    units_enter(state->units);
    if (cpu->waits == PE_WAITS_FOR_OTHERS)
        units_put(state->units, &state->resume);
    units_leave(state->units);
}

/* From a handler at once; another program that runs must come to its own end first. */
void units_resume_program(pe_state *state)
{
    pe_cpu *cpu = &state->cpu;
    kb_sim *sim = state->units->has.sim;
    if (cpu->waits == PE_RUNS || cpu->waits == PE_SLEEPS || !cpu->co)
        return;
    cpu->waits = PE_RUNS;
    if (!kb_sim_current(sim))
        kb_co_resume_now(cpu->co);
    else if (kb_sim_current(sim) != cpu->co) /* else it is about to wait */
        kb_co_wake(cpu->co);
}
