/*
 * merge_edges.c: what begins and ends at a PE, if the log is not detailed: in few instructions.
 *
 * A PE has two short lists: edges, which are told at their times and so come in order, and byte
 * changes, which may be told ahead and are inserted in order. Both are applied when one is
 * full or something is read, in one loop over all that is due in the order of time, which keeps the
 * PE's state in registers. Of two at the same instant either may be first: states in between last
 * for no time. Operations of engines are no part of the state: the loop skips their times, and
 * engine_work.c charges them.
 *
 * Operations that end in a row and have the same name are added to the sums together.
 */
#include <string.h>

#include "oplog_private.h"

/* ---- Applying ------------------------------------------------------------------------------ */

/* What the loop keeps in registers of the PE's record. */
typedef struct merge {
    kb_time since;
    const engine_op *next_op;
    uint64_t state, outstanding;
    const uint8_t *states; /* which state follows from what is outstanding */
    uint64_t *begun;       /* bytes by slot */
} merge;

/* Between two causes, as kb_divide_time() does. Else false. */
static inline bool charge_pair(pe_record *record, uint64_t state, kb_time time)
{
    size_t first = (state - PAIR) / SLOTS, second = state % SLOTS;
    uint64_t part = record->bytes[first], total = part + record->bytes[second];
    if (KB_UNLIKELY(((uint64_t)time | total) > UINT32_MAX))
        return false;
    kb_time given = (kb_time)((uint64_t)time * part / total);
    record->charged[first + KB_CAUSE_LOCAL_MEMORY] += given;
    record->charged[second + KB_CAUSE_LOCAL_MEMORY] += time - given;
    return true;
}

/* Without a kernel what is charged is dropped when the next one begins. */
static inline void charge_up_to(kb_oplog *log, pe_record *record, merge *s, kb_time at)
{
    kb_time time = at - s->since;
    if (time <= 0)
        return;
    s->since = at;
    if (KB_LIKELY(s->state < KB_CAUSES)) {
        record->charged[s->state] += time;
    } else if (KB_UNLIKELY(s->state < PAIR || !charge_pair(record, s->state, time))) {
        record->state = (uint8_t)s->state;
        kb_oplog_charge_shared(log, record, time);
    }
}

/* Charges the time before bytes change, although the state may stay the same: no sum depends on
 * that, and it takes less than finding out. */
static inline void charge(kb_oplog *log, pe_record *record, merge *s, kb_time at)
{
    while (KB_UNLIKELY(s->next_op->start < at)) {
        charge_up_to(log, record, s, s->next_op->start);
        s->since = s->next_op->free_at > s->since ? s->next_op->free_at : s->since;
        s->next_op++;
    }
    charge_up_to(log, record, s, at);
}

/* The first bytes of the cause are outstanding, or no longer any. */
static inline void flip(merge *s, size_t slot)
{
    s->outstanding ^= UINT64_C(1) << slot;
    s->state = s->states[s->outstanding];
}

static inline void begin_bytes(pe_record *record, merge *s, size_t slot, uint64_t bytes)
{
    uint64_t before = record->bytes[slot];
    s->begun[slot] += bytes;
    record->bytes[slot] = before + bytes;
    if (before == 0)
        flip(s, slot);
}

static inline void end_bytes(const kb_oplog *log, pe_record *record, merge *s, size_t slot,
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

static inline void apply_change(const kb_oplog *log, pe_record *record, merge *s, int64_t what)
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
    *run = (op_run){.name = e[1].name, .unit = e->unit, .of_kernel = e->of_kernel};
}

/* Of one that ends. */
static inline void count_edge(kb_oplog *log, pe_record *record, op_run *run, const edge *e)
{
    if (KB_UNLIKELY(run->name != e[1].name || run->unit != e->unit ||
                    run->of_kernel != e->of_kernel || run->time > INT64_MAX))
        begin_run(log, run, e);
    run->count++;
    run->bytes += e->bytes;
    run->time += (uint64_t)(e->at - e[1].start);
    end_unit(record, (kb_unit)e->unit, e[1].start, e->at);
}

/* Returns the next one; NULL if this is behind the last one. */
static inline const edge *apply_edge(kb_oplog *log, pe_record *record, merge *s, op_run *run,
                                     const edge *e)
{
    if (e->kind == TRANSFER_BEGINS) {
        charge(log, record, s, e->at);
        begin_bytes(record, s, e->slot, e->bytes);
        start_unit(record, (kb_unit)e->unit, e->at);
        return e + 1;
    }
    if (KB_LIKELY(e->kind == TRANSFER_ENDS)) {
        charge(log, record, s, e->at);
        end_bytes(log, record, s, e->slot, e->bytes);
        count_edge(log, record, run, e);
        return e + 2;
    }
    if (e->kind == LAST_EDGE)
        return NULL;
    if (e->kind == UNIT_EDGE_STARTS) {
        start_unit(record, (kb_unit)e->unit, e->at);
        return e + 1;
    }
    count_edge(log, record, run, e);
    return e + 2;
}

/* Applies all up to the last edge; that one and the last change are at KB_FOREVER. */
static __attribute__((noinline)) void
apply_all(kb_oplog *log, pe_record *record, const merge *start, const edge *e, const byte_change *c)
{
    merge s = *start;
    op_run *run = &record->buffer->edge_run;
    if (KB_UNLIKELY(is_full(run)))
        kb_oplog_count_run(log, run);
    while (e) {
        if (c->at < e->at) {
            charge(log, record, &s, c->at);
            apply_change(log, record, &s, c->what);
            c++;
        } else {
            e = apply_edge(log, record, &s, run, e);
        }
    }
    record->since = s.since;
    record->next_op = s.next_op;
    record->state = (uint8_t)s.state;
    record->outstanding = (uint16_t)s.outstanding;
}

/* Those in front of `to`. */
static void apply_before(kb_oplog *log, pe_record *record, const merge_position *from,
                         const merge_position *to)
{
    static const engine_op never = {.start = KB_FOREVER};
    uint8_t same[1 << BYTE_CAUSES];
    uint64_t *begun = record->runs_kernel ? log->timeline.bytes : log->uncounted;
    merge s = {.since = record->since,
               .next_op = record->next_op ? record->next_op : &never,
               .state = record->state,
               .outstanding = record->outstanding,
               .states = log->states[record->drains > 0],
               .begun = begun + KB_CAUSE_LOCAL_MEMORY};
    if (KB_UNLIKELY((record->engines | record->needed_drains) != 0)) { /* these decide the state */
        memset(same, record->state, sizeof same);
        s.states = same;
    }
    kb_time edge_at = to->edge->at, change_at = to->change->at;
    uint8_t kind = to->edge->kind;
    to->edge->at = to->change->at = KB_FOREVER;
    to->edge->kind = LAST_EDGE;
    apply_all(log, record, &s, from->edge, from->change);
    to->edge->at = edge_at;
    to->edge->kind = kind;
    to->change->at = change_at;
    if (record->next_op == &never)
        record->next_op = NULL;
}

/* Each counts from its start on. Returns the first that starts later. */
static span *apply_spans(kb_oplog *log, pe_record *record, span *from, kb_time at)
{
    op_run *run = &record->buffer->span_run;
    if (KB_UNLIKELY(is_full(run)))
        kb_oplog_count_run(log, run);
    unit_work work = record->units[run->unit];
    span *s = from;
    uint64_t time = 0;
    for (; s != record->span_end && s->start <= at; s++) {
        extend_span(&work, s->start, s->end);
        time += (uint64_t)(s->end - s->start);
    }
    record->units[run->unit] = work;
    run->time += time;
    run->count += (uint32_t)(s - from);
    run->bytes += (uint64_t)(s - from) * record->buffer->span_bytes;
    return s;
}

static edge *first_edge_after(edge *e, const edge *end, kb_time at)
{
    while (e != end && e->at <= at)
        e += e->kind == TRANSFER_ENDS || e->kind == UNIT_EDGE_ENDS ? 2 : 1;
    return e;
}

void kb_oplog_merge(kb_oplog *log, pe_record *record, merge_position *from, kb_time at)
{
    if (!record->buffer)
        return;
    merge_position to = {record->edge_end, record->change_end, from->span};
    if (at < log->clock->now)
        to.edge = first_edge_after(from->edge, record->edge_end, at);
    while (to.change != from->change && to.change[-1].at > at)
        to.change--;
    if (to.edge != from->edge || to.change != from->change)
        apply_before(log, record, from, &to);
    if (from->span != record->span_end && from->span->start <= at)
        to.span = apply_spans(log, record, from->span, at);
    *from = to;
}

merge_position kb_oplog_merge_begin(const pe_record *record)
{
    pe_buffer *buffer = record->buffer;
    return buffer ? (merge_position){buffer->edges, buffer->changes + 1, buffer->spans + 1}
                  : (merge_position){0};
}

void kb_oplog_merge_end(pe_record *record, const merge_position *to)
{
    pe_buffer *buffer = record->buffer;
    if (!buffer)
        return;
    KB_DEBUG_ASSERT(to->edge == record->edge_end);
    record->edge_end = buffer->edges;
    byte_change *change = buffer->changes + 1;
    for (const byte_change *c = to->change; c != record->change_end; c++)
        *change++ = *c;
    record->change_end = change;
    span *kept = buffer->spans + 1;
    for (const span *s = to->span; s != record->span_end; s++)
        *kept++ = *s;
    record->span_end = kept;
}

void kb_oplog_count_runs(kb_oplog *log, const pe_record *record)
{
    pe_buffer *buffer = record->buffer;
    if (!buffer)
        return;
    kb_oplog_count_run(log, &buffer->edge_run);
    kb_oplog_count_run(log, &buffer->span_run);
    kb_oplog_count_run(log, &buffer->engine_run);
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
    buffer->changes[0].at = 0;
    buffer->spans[0].start = 0;
    buffer->edge_run = buffer->span_run = buffer->engine_run = (op_run){0};
    record->edge_end = buffer->edges;
    record->change_end = buffer->changes + 1;
    record->span_end = buffer->spans + 1;
    return true;
}

bool kb_oplog_open_buffer(kb_oplog *log, pe_record *record)
{
    if (log->detailed || (!record->buffer && !give_buffer(log, record)))
        return false;
    record->edge_limit = record->buffer->edges + EDGE_ROOM - 1; /* one may take two entries */
    if (record->byte_transitions == 0)
        record->change_limit = record->buffer->changes + 1 + MAX_CHANGES;
    return true;
}

/* Applies all that is due, so that all lists have room again. */
static void empty_buffer(kb_oplog *log, pe_record *record)
{
    kb_oplog_apply_due(log, record);
    kb_oplog_count_worked(log, record);
}

__attribute__((noinline)) bool kb_oplog_make_edge_room(kb_oplog *log, pe_record *record)
{
    if (!kb_oplog_open_buffer(log, record))
        return false;
    if (record->edge_end >= record->edge_limit)
        empty_buffer(log, record);
    return true;
}

/* Encodes by how many bytes the outstanding ones change. */
static inline int64_t change_of(kb_cause cause, int64_t more)
{
    return more * SLOTS + (int64_t)cause - KB_CAUSE_LOCAL_MEMORY;
}

static inline bool fits_change(kb_cause cause, uint64_t bytes)
{
    return (unsigned)cause - KB_CAUSE_LOCAL_MEMORY < BYTE_CAUSES && bytes - 1 < MAX_CHANGE_BYTES;
}

/* False: all that are there are later than now, or a transition of bytes is, which an end of the
 * same instant must not overtake. */
static bool make_change_room(kb_oplog *log, pe_record *record)
{
    if (!kb_oplog_open_buffer(log, record))
        return false;
    if (record->change_end >= record->change_limit) {
        empty_buffer(log, record);
        (void)kb_oplog_open_buffer(log, record);
    }
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
    return KB_LIKELY(fits_change(cause, bytes) && c < record->change_limit && c[-1].at <= at);
}

static inline void append_change(pe_record *record, kb_time at, int64_t what)
{
    byte_change *c = record->change_end;
    record->change_end = c + 1;
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
    kb_oplog_start(log, pe, log->clock->now, unit);
    kb_oplog_begin(log, pe, log->clock->now, cause, bytes, NULL);
}

static __attribute__((noinline)) void end_apart(kb_oplog *log, uint64_t pe, kb_cause cause,
                                                const kb_op_brief *op)
{
    kb_oplog_end(log, pe, log->clock->now, cause, op->bytes, NULL);
    kb_oplog_count(log, pe, op);
}

void kb_oplog_begin_transfer(kb_oplog *log, uint64_t pe, kb_time at, kb_unit unit, kb_cause cause,
                             uint64_t bytes)
{
    KB_DEBUG_ASSERT(bytes > 0 && bytes <= UINT32_MAX);
    edge *e = append_edge(log, record_of(log, pe), at, 1);
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
    KB_DEBUG_ASSERT(op->start <= op->end);
    edge *e = append_edge(log, record_of(log, pe), op->end, 2);
    if (KB_UNLIKELY(!e)) {
        kb_op_brief copy = *op; /* so a caller that has this inlined keeps `op` in registers */
        end_apart(log, pe, cause, &copy);
        return;
    }
    e->bytes = (uint32_t)op->bytes;
    e->kind = TRANSFER_ENDS;
    e->slot = (uint8_t)(cause - KB_CAUSE_LOCAL_MEMORY);
    e->unit = (uint8_t)op->unit;
    e->of_kernel = op->of_kernel;
    e[1].start = op->start;
    e[1].name = op->name;
}

/* ---- Spans -------------------------------------------------------------------------------- */

/* The buffer's spans are of that kind from now on. False: it has others that start later. */
static bool set_span_kind(kb_oplog *log, pe_record *record, kb_unit unit, const char *name,
                          uint64_t bytes)
{
    pe_buffer *buffer = record->buffer;
    if (buffer->span_run.name == name && buffer->span_run.unit == unit &&
        buffer->span_bytes == bytes)
        return true;
    kb_oplog_apply_due(log, record);
    if (record->span_end != buffer->spans + 1)
        return false;
    kb_oplog_count_run(log, &buffer->span_run);
    buffer->span_run = (op_run){.name = name, .unit = (uint8_t)unit};
    buffer->span_bytes = bytes;
    return true;
}

static bool make_span_room(kb_oplog *log, pe_record *record, kb_unit unit, const char *name,
                           uint64_t bytes)
{
    if (!kb_oplog_open_buffer(log, record) || !set_span_kind(log, record, unit, name, bytes))
        return false;
    record->span_limit = record->buffer->spans + 1 + MAX_SPANS;
    if (record->span_end == record->span_limit)
        empty_buffer(log, record);
    return record->span_end != record->span_limit;
}

static __attribute__((noinline)) void count_otherwise(kb_oplog *log, pe_record *record,
                                                      const char *name, kb_time start, kb_time end,
                                                      kb_unit unit, uint64_t bytes)
{
    KB_ASSERT(!log->watched && start <= end && start >= log->clock->now);
    log->has_spans[unit] = true;
    if (!make_span_room(log, record, unit, name, bytes)) {
        kb_oplog_tell_span(log, record, unit, name, start, end, bytes);
        return;
    }
    span *s = record->span_end++;
    for (; s[-1].start > start; s--)
        *s = s[-1];
    *s = (span){start, end};
}

void kb_oplog_count_ahead(kb_oplog *log, uint64_t pe, kb_unit unit, const char *name, kb_time start,
                          kb_time end, uint64_t bytes)
{
    pe_record *record = record_of(log, pe);
    span *s = record->span_end;
    if (KB_UNLIKELY(s >= record->span_limit || s[-1].start > start ||
                    record->buffer->span_run.name != name ||
                    record->buffer->span_run.unit != unit || record->buffer->span_bytes != bytes)) {
        count_otherwise(log, record, name, start, end, unit, bytes);
        return;
    }
    record->span_end = s + 1;
    s->start = start;
    s->end = end;
}
