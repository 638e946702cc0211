/*
 * sweep.c: what begins and ends at a PE, if the log is not detailed: in few instructions.
 *
 * A PE has two short lists: edges, which are told at their times and so come in order, and byte
 * changes, which may be told ahead and are inserted in their places. Both are applied when one is
 * full or something is read, in one loop over all that is due in the order of time, which keeps the
 * PE's state in registers. Of two at the same instant either may be first: states in between last
 * for no time. Operations of engines are no part of the state: the loop skips their times, and
 * work.c charges them.
 *
 * Operations that end in a row and have the same name are added to the sums together.
 */
#include <string.h>

#include "oplog_private.h"

/* ---- Applying ------------------------------------------------------------------------------ */

/* What the loop keeps in registers of the PE's record. */
typedef struct sweep {
    kb_time since;
    const engine_op *next_op;
    uint64_t state, outstanding;
    const uint8_t *states; /* which state follows from what is outstanding */
    uint64_t *begun;       /* bytes by slot */
} sweep;

/* Between two causes, as kb_divide_time() does. Else false. */
static inline bool charge_pair(pe_record *record, uint64_t outstanding, kb_time time)
{
    size_t first = (size_t)__builtin_ctzll(outstanding);
    size_t second = (size_t)__builtin_ctzll(outstanding & (outstanding - 1));
    uint64_t part = record->bytes[first], total = part + record->bytes[second];
    if (KB_UNLIKELY(((uint64_t)time | total) > UINT32_MAX))
        return false;
    kb_time given = (kb_time)((uint64_t)time * part / total);
    record->charged[first + KB_CAUSE_LOCAL_MEMORY] += given;
    record->charged[second + KB_CAUSE_LOCAL_MEMORY] += time - given;
    return true;
}

/* Without a kernel what is charged is dropped when the next one begins. */
static inline void charge_up_to(kb_oplog *log, pe_record *record, sweep *s, kb_time at)
{
    kb_time time = at - s->since;
    if (time <= 0)
        return;
    s->since = at;
    if (KB_LIKELY(s->state < KB_CAUSES)) {
        record->charged[s->state] += time;
    } else if (KB_UNLIKELY(s->state != PAIR || !charge_pair(record, s->outstanding, time))) {
        record->state = (uint8_t)s->state;
        kb_oplog_charge_shared(log, record, time);
    }
}

/* Charges the time before bytes change, although the state may stay the same: no sum depends on
 * that, and it takes less than finding out. */
static inline void charge(kb_oplog *log, pe_record *record, sweep *s, kb_time at)
{
    while (KB_UNLIKELY(s->next_op->start < at)) {
        charge_up_to(log, record, s, s->next_op->start);
        s->since = s->next_op->free_at > s->since ? s->next_op->free_at : s->since;
        s->next_op++;
    }
    charge_up_to(log, record, s, at);
}

/* The first bytes of the cause are outstanding, or no longer any. */
static inline void flip(sweep *s, size_t slot)
{
    s->outstanding ^= UINT64_C(1) << slot;
    s->state = s->states[s->outstanding];
}

static inline void begin_bytes(pe_record *record, sweep *s, size_t slot, uint64_t bytes)
{
    uint64_t before = record->bytes[slot];
    s->begun[slot] += bytes;
    record->bytes[slot] = before + bytes;
    if (before == 0)
        flip(s, slot);
}

static inline void end_bytes(const kb_oplog *log, pe_record *record, sweep *s, size_t slot,
                             uint64_t bytes)
{
    uint64_t before = record->bytes[slot];
    if (KB_UNLIKELY(before < bytes)) {
        KB_ASSERT(log->incomplete);
        return;
    }
    record->bytes[slot] = before - bytes;
    if (before == bytes)
        flip(s, slot);
}

static inline void apply_change(const kb_oplog *log, pe_record *record, sweep *s, int64_t what)
{
    size_t slot = (size_t)what % SLOTS;
    int64_t more = what >> SLOT_BITS;
    if (more >= 0)
        begin_bytes(record, s, slot, (uint64_t)more);
    else
        end_bytes(log, record, s, slot, (uint64_t)-more);
}

static __attribute__((noinline)) void begin_run(kb_oplog *log, op_run *run, const edge *e)
{
    kb_oplog_count_run(log, run);
    *run = (op_run){.name = e->name, .unit = e->unit, .of_kernel = e->of_kernel};
}

static inline void count_edge(kb_oplog *log, pe_record *record, op_run *run, const edge *e)
{
    if (KB_UNLIKELY(run->name != e->name || run->unit != e->unit ||
                    run->of_kernel != e->of_kernel || (run->time | run->bytes) > INT64_MAX))
        begin_run(log, run, e);
    run->count++;
    run->bytes += e->bytes;
    run->time += (uint64_t)(e->at - e->start);
    end_unit(record, (kb_unit)e->unit, e->start, e->at);
}

static inline void apply_edge(kb_oplog *log, pe_record *record, sweep *s, op_run *run,
                              const edge *e)
{
    if (e->kind == TRANSFER_BEGINS) {
        charge(log, record, s, e->at);
        begin_bytes(record, s, e->slot, e->bytes);
        start_unit(record, (kb_unit)e->unit, e->at);
    } else if (KB_LIKELY(e->kind == TRANSFER_ENDS)) {
        charge(log, record, s, e->at);
        end_bytes(log, record, s, e->slot, e->bytes);
        count_edge(log, record, run, e);
    } else if (e->kind == UNIT_EDGE_STARTS) {
        start_unit(record, (kb_unit)e->unit, e->at);
    } else {
        count_edge(log, record, run, e);
    }
}

/* Applies all up to those at KB_FOREVER. */
static __attribute__((noinline)) void
apply_all(kb_oplog *log, pe_record *record, const sweep *start, const edge *e, const byte_change *c)
{
    sweep s = *start;
    op_run *run = &record->buffer->run;
    for (;; e++) {
        kb_time at = e->at;
        for (; c->at < at; c++) {
            charge(log, record, &s, c->at);
            apply_change(log, record, &s, c->what);
        }
        if (at == KB_FOREVER)
            break;
        apply_edge(log, record, &s, run, e);
    }
    record->since = s.since;
    record->next_op = s.next_op;
    record->state = (uint8_t)s.state;
    record->outstanding = (uint16_t)s.outstanding;
}

static void apply_before(kb_oplog *log, pe_record *record, const sweep_position *from,
                         sweep_position to)
{
    static const engine_op never = {.start = KB_FOREVER};
    uint8_t same[1 << BYTE_CAUSES];
    uint64_t *begun = record->runs_kernel ? log->timeline.bytes : log->uncounted;
    sweep s = {.since = record->since,
               .next_op = record->next_op ? record->next_op : &never,
               .state = record->state,
               .outstanding = record->outstanding,
               .states = log->states[record->drains > 0],
               .begun = begun + KB_CAUSE_LOCAL_MEMORY};
    if (KB_UNLIKELY((record->engines | record->needed_drains) != 0)) { /* these decide the state */
        memset(same, record->state, sizeof same);
        s.states = same;
    }
    kb_time edge_at = to.edge->at, change_at = to.change->at;
    to.edge->at = to.change->at = KB_FOREVER;
    apply_all(log, record, &s, from->edge, from->change);
    to.edge->at = edge_at;
    to.change->at = change_at;
    if (record->next_op == &never)
        record->next_op = NULL;
}

void kb_oplog_sweep(kb_oplog *log, pe_record *record, sweep_position *from, kb_time at)
{
    if (!record->buffer)
        return;
    sweep_position to = {record->edge_end, record->change_end};
    while (to.edge != from->edge && to.edge[-1].at > at)
        to.edge--;
    while (to.change != from->change && to.change[-1].at > at)
        to.change--;
    if (to.edge != from->edge || to.change != from->change)
        apply_before(log, record, from, to);
    *from = to;
}

sweep_position kb_oplog_sweep_begin(const pe_record *record)
{
    pe_buffer *buffer = record->buffer;
    return buffer ? (sweep_position){buffer->edges, buffer->changes + PAST} : (sweep_position){0};
}

void kb_oplog_sweep_end(pe_record *record, const sweep_position *to)
{
    pe_buffer *buffer = record->buffer;
    if (!buffer)
        return;
    KB_DEBUG_ASSERT(to->edge == record->edge_end);
    record->edge_end = buffer->edges;
    byte_change *kept = buffer->changes + PAST;
    for (const byte_change *c = to->change; c != record->change_end; c++)
        *kept++ = *c;
    record->change_end = kept;
}

/* ---- What is told ------------------------------------------------------------------------- */

/* False if there is no memory: then the run fails. */
static bool give_buffer(kb_oplog *log, pe_record *record)
{
    pe_buffer *buffer = kb_alloc_array(1, sizeof *buffer);
    if (!buffer) {
        kb_oplog_fail_memory(log);
        return false;
    }
    kb_oplog_link_pe(log, record);
    record->buffer = buffer;
    memset(buffer->changes, 0, PAST * sizeof buffer->changes[0]);
    buffer->run = (op_run){0};
    record->edge_end = buffer->edges;
    record->change_end = buffer->changes + PAST;
    return true;
}

/* False: nothing is kept in a buffer. */
static bool open_buffer(kb_oplog *log, pe_record *record)
{
    if (log->detailed || (!record->buffer && !give_buffer(log, record)))
        return false;
    record->edge_limit = record->buffer->edges + MAX_EDGES;
    record->change_limit = record->buffer->changes + PAST + MAX_CHANGES;
    return true;
}

__attribute__((noinline)) bool kb_oplog_make_edge_room(kb_oplog *log, pe_record *record)
{
    if (!open_buffer(log, record))
        return false;
    if (record->edge_end == record->edge_limit)
        kb_oplog_apply_due(log, record);
    return true;
}

/* What a byte change says of so many more, or fewer. */
static inline int64_t change_of(kb_cause cause, int64_t more)
{
    return more * SLOTS + (int64_t)cause - KB_CAUSE_LOCAL_MEMORY;
}

static inline bool fits_change(kb_cause cause, uint64_t bytes)
{
    return (unsigned)cause - KB_CAUSE_LOCAL_MEMORY < BYTE_CAUSES && bytes - 1 < MAX_CHANGE_BYTES;
}

/* False: all that are there are later than now. */
static bool make_change_room(kb_oplog *log, pe_record *record)
{
    if (!open_buffer(log, record))
        return false;
    if (record->change_end == record->change_limit)
        kb_oplog_apply_due(log, record);
    return record->change_end < record->change_limit;
}

static void insert_change(pe_record *record, kb_time at, int64_t what)
{
    byte_change *c = record->change_end++;
    for (; c[-1].at > at; c--) /* those before the first one are in the past */
        *c = c[-1];
    *c = (byte_change){at, what};
}

/* Not inlined, and with as many arguments: so the calls below save no registers. */
static __attribute__((noinline)) void begin_otherwise(kb_oplog *log, pe_record *record, kb_time at,
                                                      kb_cause cause, uint64_t bytes,
                                                      const kb_op *op)
{
    if (!fits_change(cause, bytes) || !make_change_room(log, record))
        kb_oplog_tell_item(log, record, at, cause, bytes, op, true);
    else
        insert_change(record, at, change_of(cause, (int64_t)bytes));
}

static __attribute__((noinline)) void end_otherwise(kb_oplog *log, pe_record *record, kb_time at,
                                                    kb_cause cause, uint64_t bytes, const kb_op *op)
{
    if (!fits_change(cause, bytes) || !make_change_room(log, record))
        kb_oplog_tell_item(log, record, at, cause, bytes, op, false);
    else
        insert_change(record, at, change_of(cause, -(int64_t)bytes));
}

/* Whether append_change() will do. */
static inline bool can_append(const pe_record *record, kb_time at, kb_cause cause, uint64_t bytes)
{
    const byte_change *c = record->change_end;
    return KB_LIKELY(fits_change(cause, bytes) && c < record->change_limit && c[-2].at <= at);
}

static inline void append_change(pe_record *record, kb_time at, int64_t what)
{
    byte_change *c = record->change_end;
    record->change_end = c + 1;
    if (c[-1].at > at) {
        *c = c[-1];
        c--;
    }
    c->at = at;
    c->what = what;
}

void kb_oplog_begin(kb_oplog *log, uint64_t pe, kb_time at, kb_cause cause, uint64_t bytes,
                    const kb_op *op)
{
    pe_record *record = record_of(log, pe);
    if (can_append(record, at, cause, bytes))
        append_change(record, at, change_of(cause, (int64_t)bytes));
    else
        begin_otherwise(log, record, at, cause, bytes, op);
}

void kb_oplog_end(kb_oplog *log, uint64_t pe, kb_time at, kb_cause cause, uint64_t bytes,
                  const kb_op *op)
{
    pe_record *record = record_of(log, pe);
    if (can_append(record, at, cause, bytes))
        append_change(record, at, change_of(cause, -(int64_t)bytes));
    else
        end_otherwise(log, record, at, cause, bytes, op);
}

/* ---- Transfers ---------------------------------------------------------------------------- */

static __attribute__((noinline)) void begin_apart(kb_oplog *log, uint64_t pe, kb_unit unit,
                                                  kb_cause cause, uint64_t bytes)
{
    kb_oplog_start(log, pe, log->sim->now, unit);
    kb_oplog_begin(log, pe, log->sim->now, cause, bytes, NULL);
}

static __attribute__((noinline)) void end_apart(kb_oplog *log, uint64_t pe, kb_cause cause,
                                                const kb_op_brief *op)
{
    kb_oplog_end(log, pe, log->sim->now, cause, op->bytes, NULL);
    kb_oplog_count(log, pe, op);
}

void kb_oplog_begin_transfer(kb_oplog *log, uint64_t pe, kb_unit unit, kb_cause cause,
                             uint64_t bytes)
{
    KB_DEBUG_ASSERT(bytes > 0 && bytes <= UINT32_MAX);
    edge *e = append_edge(log, record_of(log, pe));
    if (KB_UNLIKELY(!e)) {
        begin_apart(log, pe, unit, cause, bytes);
        return;
    }
    e->bytes = (uint32_t)bytes;
    e->kind = TRANSFER_BEGINS;
    e->slot = (uint8_t)(cause - KB_CAUSE_LOCAL_MEMORY);
    e->unit = (uint8_t)unit;
}

void kb_oplog_end_transfer(kb_oplog *log, uint64_t pe, kb_cause cause, const kb_op_brief *op)
{
    KB_DEBUG_ASSERT(op->bytes > 0 && op->bytes <= UINT32_MAX && op->flops == 0);
    KB_DEBUG_ASSERT(op->start <= op->end && op->end == log->sim->now);
    edge *e = append_edge(log, record_of(log, pe));
    if (KB_UNLIKELY(!e)) {
        kb_op_brief copy = *op; /* so a caller that has this inlined keeps `op` in registers */
        end_apart(log, pe, cause, &copy);
        return;
    }
    e->start = op->start;
    e->name = op->name;
    e->bytes = (uint32_t)op->bytes;
    e->kind = TRANSFER_ENDS;
    e->slot = (uint8_t)(cause - KB_CAUSE_LOCAL_MEMORY);
    e->unit = (uint8_t)op->unit;
    e->of_kernel = op->of_kernel;
}
