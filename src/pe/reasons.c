/*
 * reasons.c: why operations of the units begin and end when they do: kb_reason. An operation begins
 * at the latest of several times; here is which of them that is. If several are, the kind that
 * comes last in kb_reason_kind counts, as it says most.
 *
 * All of it is called only if records have ids: then the log is watched, and programs follow global
 * time.
 */
#include "units_private.h"

/* One of the times that the operation could not begin before. */
static void consider(kb_reason *by, kb_reason_kind kind, happening last, kb_time begin)
{
    if (last.id != 0 && last.at == begin && kind > by->kind)
        *by = (kb_reason){kind, last.id};
}

/* The program may wait for room in the queue. */
static void leave_queue(const operation *op, kb_time now)
{
    lane *l = op->lane;
    pe_cpu *cpu = &op->pe->cpu;
    *(op->internal ? &l->internal_begun : &l->program_begun) = (happening){now, op->id};
    if (!op->internal && cpu->waits == PE_WAITS_FOR_ROOM && cpu->room_of == l->unit)
        cpu->awaited = op->id;
}

void units_explain_begin(operation *op, kb_time now)
{
    kb_reason by = {0};
    const lane *l = op->lane;
    if (op->issued == now)
        by = op->log.begun_by;
    consider(&by, KB_REASON_INPUT, (happening){op->earliest, op->input_id}, now);
    consider(&by, KB_REASON_ORDER, op->released, now);
    if (l) {
        consider(&by, KB_REASON_UNIT, l->freed, now);
        consider(&by, KB_REASON_QUEUE, op->internal ? l->internal_begun : l->program_begun, now);
        leave_queue(op, now);
    }
    op->log.begun_by = by;
}

/* The command that used the port when this one began; 0: none. */
static uint64_t user_at(const port_user *user, kb_time begin)
{
    return user->begin <= begin && begin < user->passed ? user->id : 0;
}

static kb_reason end_of_work(const pe_state *state, const work_times *t)
{
    kb_time passed = kb_max(t->read, t->written);
    if (passed < t->end || passed == t->begin)
        return (kb_reason){KB_REASON_WORK, 0};
    return (kb_reason){KB_REASON_TCM, user_at(&state->port_users[t->written == passed], t->begin)};
}

void units_explain_work(pe_state *state, engine *e, const pe_work *work, const work_times *t)
{
    kb_op *entry = work->entry;
    kb_reason by = {0};
    if (work->issued == t->begin)
        by = entry->begun_by;
    consider(&by, KB_REASON_UNIT, (happening){e->free_at, e->last_id}, t->begin);
    for (uint8_t i = 0; i < work->input_count; i++)
        consider(&by, KB_REASON_INPUT, (happening){work->inputs[i]->at, work->inputs[i]->id},
                 t->begin);
    entry->begun_by = by;
    entry->ended_by = end_of_work(state, t);
    e->last_id = (uint32_t)entry->id;
    if (t->end >= state->cpu.engines_end)
        state->cpu.last_to_end = (uint32_t)entry->id;
    const kb_time passed[2] = {t->read, t->written};
    for (int port = 0; port < 2; port++)
        if (passed[port] > t->begin && passed[port] > state->port_users[port].passed)
            state->port_users[port] = (port_user){t->begin, passed[port], entry->id};
}

void units_note_begin_id(pe_units *units, engine *e, uint32_t number, uint64_t id)
{
    if (!e->begin_ids)
        e->begin_ids = kb_alloc_zeroed(units->shape->pe.queue_depth, sizeof *e->begin_ids);
    if (e->begin_ids)
        e->begin_ids[number] = (uint32_t)id;
    else
        units_fail(units, kb_error_nomem());
}

void units_note_end(const pe_units *units, const operation *op)
{
    pe_cpu *cpu = &op->pe->cpu;
    happening end = {kb_sim_now(units->has.sim), op->id};
    if (op->lane && op->lane->busy == units->shape->pe.dma_channels)
        op->lane->freed = end;
    if (cpu->waits == PE_WAITS_FOR_OP && cpu->op == units_name(units, op->index))
        cpu->awaited = op->id;
    for (uint32_t next = op->waiters; next != NONE;) {
        const waiter *w = kb_pool_at(&units->waiters, next);
        w->op->released = end;
        next = w->next;
    }
}

kb_reason pe_units_begun_by(const pe_units *units, pe_op op)
{
    const operation *is = operation_at(units, (uint32_t)op);
    return is->id != 0 ? is->log.begun_by : (kb_reason){0};
}

void pe_units_set_id(pe_units *units, pe_op op, uint64_t id)
{
    if (!pe_units_is_done(units, op))
        operation_at(units, (uint32_t)op)->id = (uint32_t)id;
}
