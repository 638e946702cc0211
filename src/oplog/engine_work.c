/*
 * engine_work.c: operations of engines, all of whose times are known when they are told.
 *
 * If the log is not detailed, the PE keeps an operation until it has ended. Meanwhile its time is
 * skipped when what is outstanding is charged (kb_oplog_pass_engines, merge_edges.c); then it is
 * counted: in the sums, in the time at work of its unit and in the causes of its PE. If something
 * is read before, what those that are left add up to now is added (kb_oplog_work_so_far).
 *
 * While both engines work the matrix engine gets half of the time, rounded up, of each pair of
 * operations: that is what charging it event by event gives, as at the end of an operation a new
 * state begins.
 *
 * In a detailed log it is a transition, which becomes due several times (causes.c).
 */
#include <string.h>

#include "oplog_private.h"

enum { FIRST_ROOM = 6 };

/* The time in which both work. */
static kb_time common_time(const engine_op *a, const engine_op *b, kb_time up_to)
{
    kb_time from = a->start > b->start ? a->start : b->start;
    kb_time to = a->free_at < b->free_at ? a->free_at : b->free_at;
    to = to < up_to ? to : up_to;
    return to > from ? to - from : 0;
}

/* ---- Counting ------------------------------------------------------------------------------ */

/* All but its part of the sums. It may share its time with later ones of the other engine; for
 * earlier ones that has been done. */
static void charge_op(kb_oplog *log, pe_record *record, const engine_op *op)
{
    add_span(record, op->unit, op->start, op->end);
    record->charged[engine_cause((uint8_t)op->unit)] += op->free_at - op->start;
    for (const engine_op *other = op + 1; other->start < op->free_at; other++) {
        if (other->unit == op->unit)
            continue;
        kb_time both = common_time(op, other, KB_FOREVER);
        record->charged[KB_CAUSE_MATRIX] -= both / 2;
        record->charged[KB_CAUSE_VECTOR] -= both - both / 2;
        log->timeline.both_engines += record->runs_kernel ? both : 0;
    }
}

static __attribute__((noinline)) void begin_run(kb_oplog *log, op_run *run, const engine_op *op)
{
    kb_oplog_count_run(log, run);
    *run = (op_run){.name = op->name, .unit = (uint8_t)op->unit};
}

/* From `op` on those of one name that have been passed and have ended; none shares time with any
 * other one, or drains. Returns the first that is not. */
static const engine_op *count_alike(kb_oplog *log, pe_record *record, const engine_op *op,
                                    kb_time now)
{
    op_run *run = &record->buffer->engine_run;
    const engine_op *first = op, *passed = record->next_op;
    kb_time time = 0;
    uint64_t flops = 0;
    do {
        time += op->end - op->start;
        if (KB_UNLIKELY(__builtin_add_overflow(flops, op->flops, &flops)))
            flops = UINT64_MAX; /* too many in any case */
        op++;
    } while (op != passed && op->end <= now && op->name == first->name && op->unit == first->unit);
    if (run->name != first->name || run->unit != first->unit || is_full(run))
        begin_run(log, run, first);
    run->count += (uint32_t)(op - first);
    run->time += (uint64_t)time;
    if (KB_UNLIKELY(__builtin_add_overflow(run->flops, flops, &run->flops)))
        run->flops = UINT64_MAX;
    record->units[run->unit].busy += time;
    record->units[run->unit].ahead_to = op[-1].end;
    record->charged[engine_cause(run->unit)] += time;
    return op;
}

/* One that may do either. */
static const engine_op *count_one(kb_oplog *log, pe_record *record, const engine_op *op)
{
    charge_op(log, record, op);
    op_run run = {.name = op->name,
                  .unit = (uint8_t)op->unit,
                  .count = 1,
                  .time = (uint64_t)(op->end - op->start),
                  .flops = op->flops};
    kb_oplog_count_run(log, &run);
    return op + 1;
}

void kb_oplog_count_worked(kb_oplog *log, pe_record *record)
{
    kb_time now = log->clock->now;
    const engine_op *op = record->ops;
    while (op != record->next_op && op->end <= now)
        op = record->mixed_ops ? count_one(log, record, op) : count_alike(log, record, op, now);
    size_t gone = (size_t)(op - record->ops), left = (size_t)(record->op_end - op);
    if (gone == 0)
        return;
    if (left > 0)
        memmove(record->ops, op, left * sizeof *op);
    else
        record->mixed_ops = false;
    record->next_op -= gone;
    record->op_end -= gone;
    record->op_end->start = KB_FOREVER;
}

/* ---- What is told -------------------------------------------------------------------------- */

/* Makes room for one more behind the last one, and for one that never starts. False if there is no
 * memory. */
static bool make_room(kb_oplog *log, pe_record *record)
{
    if (!kb_oplog_open_buffer(log, record))
        return false;
    if (record->ops) {
        catch_up(log, record);
        kb_oplog_pass_engines(log, record, log->clock->now);
        kb_oplog_count_worked(log, record);
    }
    size_t count = (size_t)(record->op_end - record->ops);
    if (count + 1 < record->op_room)
        return true;
    size_t room = record->op_room, next = (size_t)(record->next_op - record->ops);
    engine_op *grown = NULL;
    if (room == 0) {
        room = FIRST_ROOM;
        grown = kb_alloc_array(room, sizeof *grown);
    } else if (room < UINT32_MAX / 2) {
        grown = kb_grow_array(record->ops, count + 1, 1, sizeof *grown, &room);
    }
    if (!grown)
        return false;
    kb_oplog_link_pe(log, record);
    record->ops = grown;
    record->op_room = (uint32_t)room;
    record->op_end = grown + count;
    record->next_op = grown + next;
    return true;
}

/* Inserts it in order. */
static engine_op *insert_op(pe_record *record, const kb_work *work)
{
    engine_op *op = record->op_end++;
    for (; op != record->next_op && op[-1].start > work->start; op--)
        *op = op[-1];
    *op = (engine_op){.start = work->start,
                      .free_at = work->unit == KB_UNIT_GEMM ? work->free_at : work->end,
                      .end = work->end,
                      .flops = work->flops,
                      .name = work->name,
                      .unit = work->unit};
    record->op_end->start = KB_FOREVER;
    return op;
}

/* Its results drain from free_at to its end. */
static void tell_drain(kb_oplog *log, pe_record *record, const kb_work *work)
{
    uint64_t pe = (uint64_t)(record - log->pes);
    kb_oplog_begin(log, pe, work->free_at, KB_CAUSE_MATRIX_DRAIN, 0, NULL);
    kb_oplog_end(log, pe, work->end, KB_CAUSE_MATRIX_DRAIN, 0, NULL);
}

static void keep_work(kb_oplog *log, pe_record *record, const kb_work *work)
{
    bool has_room = record->ops && record->op_end + 1 < record->ops + record->op_room;
    if (!has_room && !make_room(log, record)) {
        kb_oplog_fail_memory(log);
        return;
    }
    record->op_limit = log->watched ? NULL : record->ops + record->op_room - 1;
    const engine_op *op = insert_op(record, work);
    if (op->start < record->engines_to || op->free_at < op->end)
        record->mixed_ops = true;
    if (op->end > record->engines_to)
        record->engines_to = op->end;
    if (op->free_at < op->end)
        tell_drain(log, record, work);
}

static void tell_detailed(kb_oplog *log, pe_record *record, const kb_work *work)
{
    uint32_t sum = sum_of(log, work->unit, work->name);
    if (sum == NO_SUM)
        return;
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
    if (work->start == log->clock->now)
        catch_up(log, record); /* states are shown at their times */
}

static __attribute__((noinline)) void tell_otherwise(kb_oplog *log, pe_record *record,
                                                     const kb_work *work)
{
    KB_ASSERT(work->unit == KB_UNIT_GEMM || work->unit == KB_UNIT_MATH);
    KB_ASSERT(work->start <= work->free_at && work->free_at <= work->end);
    KB_ASSERT(work->start >= log->clock->now); /* K8 */
    log->has_spans[work->unit] = true;
    if (log->detailed)
        tell_detailed(log, record, work);
    else
        keep_work(log, record, work);
    if (log->watch)
        kb_oplog_show_at_end(log, work->op);
}

/* Most often it is the last one of both engines, and has no drain. */
void kb_oplog_work(kb_oplog *log, uint64_t pe, const kb_work *work)
{
    pe_record *record = record_of(log, pe);
    engine_op *op = record->op_end;
    if (KB_UNLIKELY(op >= record->op_limit || work->start < record->engines_to ||
                    work->free_at != work->end)) {
        kb_work copy = *work; /* so a caller that has this inlined keeps `work` in registers */
        tell_otherwise(log, record, &copy);
        return;
    }
    KB_DEBUG_ASSERT(work->start <= work->end && work->start >= log->clock->now);
    record->op_end = op + 1;
    record->engines_to = work->end;
    op->start = work->start;
    op->free_at = work->end;
    op->end = work->end;
    op->flops = work->flops;
    op->name = work->name;
    op->unit = work->unit;
    op[1].start = KB_FOREVER;
}

/* ---- What has not been counted ------------------------------------------------------------- */

work_so_far kb_oplog_work_so_far(const kb_oplog *log, const pe_record *record)
{
    work_so_far work = {0};
    kb_time now = log->clock->now;
    for (const engine_op *op = record->ops; op && op->start < now; op++) {
        kb_time time = kb_min(op->free_at, now) - op->start;
        *(op->unit == KB_UNIT_GEMM ? &work.matrix : &work.vector) += time;
        for (const engine_op *other = op + 1; other->start < op->free_at; other++) {
            if (other->unit == op->unit)
                continue;
            kb_time both = common_time(op, other, now);
            work.matrix -= both / 2;
            work.vector -= both - both / 2;
            work.both += both;
        }
    }
    return work;
}

kb_time kb_oplog_engine_busy(const kb_oplog *log, const pe_record *record, kb_unit unit)
{
    unit_work work = record->units[unit];
    kb_time now = log->clock->now;
    for (const engine_op *op = record->ops; op && op->start < now; op++)
        if (op->unit == unit)
            extend_span(&work, op->start, kb_min(op->end, now));
    return work.busy;
}

void kb_oplog_show_worked(kb_oplog *log, const pe_record *record, bool back)
{
    for (const engine_op *op = record->ops; op && op->start <= log->clock->now; op++) {
        if (op->end > log->clock->now)
            continue;
        uint32_t index = sum_of(log, op->unit, op->name);
        if (index == NO_SUM)
            return;
        op_sum *sum = &log->sums.items[index];
        kb_time_sum busy = (kb_time_sum)sum->busy_high << 64 | sum->busy_low;
        busy += back ? op->start - op->end : op->end - op->start;
        sum->busy_high = (uint64_t)((unsigned __int128)busy >> 64);
        sum->busy_low = (uint64_t)busy;
        sum->flops += back ? 0 - op->flops : op->flops;
        sum->count += back ? UINT64_MAX : 1;
    }
}
