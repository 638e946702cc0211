/*
 * work.c: operations of engines, all of whose times are known when they are told.
 *
 * If the log is not detailed, an operation is counted when it is told: in the sums, in the time at
 * work of its unit, and in the causes of its PE. The PE keeps it until it has ended, for two ends:
 * its time is skipped when what is outstanding is charged (kb_oplog_pass_engines), and what has
 * been counted ahead is taken back when something is read (the unworked).
 *
 * While both engines work the matrix engine gets half of the time, rounded up, of each pair of
 * operations: that is what charging it event by event gives, as at the end of an operation a new
 * state begins.
 *
 * In a detailed log it is a transition, which becomes due several times (causes.c).
 */
#include <string.h>

#include "oplog_private.h"

enum { FIRST_ROOM = 16 };

/* The time in which both work. */
static kb_time common_time(const engine_op *a, const engine_op *b, kb_time up_to)
{
    kb_time from = a->start > b->start ? a->start : b->start;
    kb_time to = a->free_at < b->free_at ? a->free_at : b->free_at;
    to = to < up_to ? to : up_to;
    return to > from ? to - from : 0;
}

/* ---- Counting ------------------------------------------------------------------------------ */

/* Removes operations that have ended and makes room for one more. False if there is no memory. */
static bool make_room(kb_oplog *log, pe_record *record)
{
    kb_time now = log->sim->now;
    catch_up(log, record);
    kb_oplog_pass_engines(log, record, now);
    engine_op *op = record->ops;
    while (op != record->next_op && op->end <= now)
        op++;
    size_t gone = (size_t)(op - record->ops), left = (size_t)(record->op_end - op);
    if (gone > 0) {
        memmove(record->ops, op, left * sizeof *op);
        record->op_end -= gone;
        record->next_op -= gone;
    }
    if (left < record->op_room)
        return true;
    size_t room = record->op_room, next = (size_t)(record->next_op - record->ops);
    engine_op *grown = NULL;
    if (room < UINT32_MAX / 2)
        grown = kb_grow_array(record->ops, left, room > 0 ? 1 : FIRST_ROOM, sizeof *grown, &room);
    if (!grown)
        return false;
    kb_oplog_link_pe(log, record);
    record->ops = grown;
    record->op_room = (uint32_t)room;
    record->op_end = grown + left;
    record->next_op = grown + next;
    return true;
}

/* Puts it in its place. */
static engine_op *insert_op(pe_record *record, const kb_work *work, uint32_t sum)
{
    engine_op *op = record->op_end++;
    for (; op != record->next_op && op[-1].start > work->start; op--)
        *op = op[-1];
    *op = (engine_op){.start = work->start,
                      .free_at = work->unit == KB_UNIT_GEMM ? work->free_at : work->end,
                      .end = work->end,
                      .flops = work->flops,
                      .sum = sum,
                      .unit = work->unit};
    if (op->start < record->next_start)
        record->next_start = op->start;
    return op;
}

/* Charges the operation, which may share its time with some of the other engine. */
static void charge_op(kb_oplog *log, pe_record *record, const engine_op *op)
{
    record->charged[engine_cause((uint8_t)op->unit)] += op->free_at - op->start;
    for (const engine_op *other = record->ops; other != record->op_end; other++) {
        if (other->unit == op->unit)
            continue;
        kb_time both = common_time(op, other, KB_FOREVER);
        record->charged[KB_CAUSE_MATRIX] -= both / 2;
        record->charged[KB_CAUSE_VECTOR] -= both - both / 2;
        log->timeline.both_engines += record->runs_kernel ? both : 0;
    }
}

/* Its results drain from free_at to its end. */
static void tell_drain(kb_oplog *log, pe_record *record, const kb_work *work)
{
    uint64_t pe = (uint64_t)(record - log->pes);
    kb_oplog_begin(log, pe, work->free_at, KB_CAUSE_MATRIX_DRAIN, 0, NULL);
    kb_oplog_end(log, pe, work->end, KB_CAUSE_MATRIX_DRAIN, 0, NULL);
}

static void count_work(kb_oplog *log, pe_record *record, const kb_work *work, uint32_t sum)
{
    if ((record->ops == NULL || record->op_end == record->ops + record->op_room) &&
        !make_room(log, record)) {
        kb_oplog_fail_memory(log);
        return;
    }
    if (!add_to_sum(log, sum, work->unit, work->of_kernel, work->end - work->start, 0, work->flops))
        return;
    record->op_limit = record->ops + record->op_room;
    const engine_op *op = insert_op(record, work, sum);
    add_span(record, work->unit, op->start, op->end);
    charge_op(log, record, op);
    if (op->end > record->engines_to)
        record->engines_to = op->end;
    if (op->free_at < op->end)
        tell_drain(log, record, work);
}

static void tell_detailed(kb_oplog *log, pe_record *record, const kb_work *work, uint32_t sum)
{
    uint32_t key = log->profile ? kb_oplog_find_key(log, work->op) : NO_KEY;
    transition *t = kb_oplog_insert(log, record, work->start);
    if (!t)
        return;
    t->kind = ENGINE_STARTS;
    t->free_at = work->unit == KB_UNIT_GEMM ? work->free_at : work->end;
    t->end = work->end;
    t->bytes = 0;
    t->flops = work->flops;
    t->sum = sum;
    t->key = key;
    t->unit = (uint8_t)work->unit;
    t->of_kernel = work->of_kernel;
    if (work->start == log->sim->now)
        catch_up(log, record); /* states are shown at their times */
}

static __attribute__((noinline)) void tell_otherwise(kb_oplog *log, pe_record *record,
                                                     const kb_work *work)
{
    KB_ASSERT(work->unit == KB_UNIT_GEMM || work->unit == KB_UNIT_MATH);
    KB_ASSERT(work->start <= work->free_at && work->free_at <= work->end);
    KB_ASSERT(work->start >= log->sim->now);
    uint32_t sum = sum_of(log, work->unit, work->name);
    if (sum == NO_SUM)
        return;
    log->has_spans[work->unit] = true;
    if (log->detailed)
        tell_detailed(log, record, work, sum);
    else
        count_work(log, record, work, sum);
    if (log->watch)
        kb_oplog_show_at_end(log, work->op);
}

/* Most often it is the last one of both engines, and has no drain. */
void kb_oplog_work(kb_oplog *log, uint64_t pe, const kb_work *work)
{
    pe_record *record = record_of(log, pe);
    kb_time start = work->start, end = work->end;
    const known_name *known = look_up(log, work->unit, work->name);
    engine_op *op = record->op_end;
    if (KB_UNLIKELY(known->name != work->name || op >= record->op_limit ||
                    start < record->engines_to || work->free_at != end || log->watched)) {
        kb_work copy = *work; /* so a caller that has this inlined keeps `work` in registers */
        tell_otherwise(log, record, &copy);
        return;
    }
    KB_DEBUG_ASSERT(start <= end && start >= log->sim->now);
    if (KB_UNLIKELY(!add_to_sum(log, known->sum, work->unit, false, end - start, 0, work->flops)))
        return;
    *op = (engine_op){.start = start,
                      .free_at = end,
                      .end = end,
                      .flops = work->flops,
                      .sum = known->sum,
                      .unit = work->unit};
    record->op_end = op + 1;
    if (start < record->next_start)
        record->next_start = start;
    record->engines_to = end;
    record->charged[engine_cause((uint8_t)work->unit)] += end - start;
    record->units[work->unit].busy += end - start;
    record->units[work->unit].ahead_to = end;
}

/* ---- What has been counted ahead ----------------------------------------------------------- */

static kb_time later_of(kb_time a, kb_time b)
{
    return a > b ? a : b;
}

unworked kb_oplog_unworked(const kb_oplog *log, const pe_record *record)
{
    unworked later = {0};
    kb_time now = log->sim->now;
    for (const engine_op *op = record->ops; op != record->op_end; op++) {
        if (op->free_at <= now)
            continue;
        kb_time time = op->free_at - later_of(op->start, now);
        *(op->unit == KB_UNIT_GEMM ? &later.matrix : &later.vector) += time;
        for (const engine_op *other = record->ops; other != record->op_end; other++) {
            if (other->unit == op->unit || other->free_at <= now || op->unit != KB_UNIT_GEMM)
                continue;
            kb_time all = common_time(op, other, KB_FOREVER), so_far = common_time(op, other, now);
            later.matrix -= all / 2 - so_far / 2;
            later.vector -= all - all / 2 - (so_far - so_far / 2);
            later.both += all - so_far;
        }
    }
    return later;
}

kb_time kb_oplog_unworked_time(const kb_oplog *log, const pe_record *record, kb_unit unit)
{
    kb_time later = 0, counted_to = log->sim->now;
    for (const engine_op *op = record->ops; op != record->op_end; op++) {
        if (op->unit != (uint32_t)unit || op->end <= counted_to)
            continue;
        later += op->end - later_of(op->start, counted_to);
        counted_to = op->end;
    }
    return later;
}

void kb_oplog_take_unworked(kb_oplog *log, const pe_record *record, bool back)
{
    for (const engine_op *op = record->ops; op != record->op_end; op++) {
        if (op->end <= log->sim->now)
            continue;
        op_sum *sum = &log->sums.items[op->sum];
        kb_time_sum busy = (kb_time_sum)sum->busy_high << 64 | sum->busy_low;
        busy += back ? op->end - op->start : op->start - op->end;
        sum->busy_high = (uint64_t)((unsigned __int128)busy >> 64);
        sum->busy_low = (uint64_t)busy;
        sum->flops += back ? op->flops : 0 - op->flops;
        sum->count += back ? 1 : UINT64_MAX;
    }
}
