/*
 * causes.c: what the time of PEs goes to.
 *
 * A PE is in a state that follows from what is under way there (state_of): an engine works; else
 * the next product waits for nothing but results that drain; else bytes are outstanding, maybe of
 * several causes; else results drain; else nothing. The time that a state held is charged when it
 * changes, or when the bytes change that a state is divided by. So each instant is charged once,
 * and causes add up whatever is called when. With a profile or a watcher of states time is charged
 * more often; what each cause gets stays the same to the femtosecond: time that is divided by bytes
 * is divided at the same instants as without, and of engines that share time the one that gets the
 * odd femtosecond takes turns.
 *
 * If the log is not detailed, operations of engines are no part of the state: work.c charges them
 * when they are told, and charging skips their times.
 *
 * This is called several times for a message, so it is kept to a few instructions a call.
 * Not modelled: an engine that waits for the TCM counts as working.
 */
#include <string.h>

#include "oplog_private.h"

kb_time kb_part_of_time(kb_time whole, uint64_t part, uint64_t total)
{
    __extension__ typedef unsigned __int128 wide;
    KB_ASSERT(whole >= 0 && part <= total && total > 0);
    if (part == total)
        return whole;
    if (((uint64_t)whole | total) <= UINT32_MAX)
        return (kb_time)((uint64_t)whole * part / total);
    return (kb_time)((wide)whole * part / total);
}

void kb_divide_time(kb_time whole, const uint64_t *weights, size_t count, kb_time *parts)
{
    uint64_t total = 0, before = 0;
    for (size_t i = 0; i < count; i++)
        total += weights[i];
    kb_time given = 0;
    for (size_t i = 0; i < count; i++) {
        parts[i] = 0;
        if (weights[i] == 0)
            continue;
        before += weights[i];
        kb_time up_to = kb_part_of_time(whole, before, total);
        parts[i] = up_to - given;
        given = up_to;
    }
}

/* ---- States ------------------------------------------------------------------------------ */

static inline uint8_t state_of(const pe_record *record)
{
    if (record->matrix > 0)
        return record->vector > 0 ? BOTH_ENGINES : KB_CAUSE_MATRIX;
    if (record->vector > 0)
        return KB_CAUSE_VECTOR;
    if (record->needed_drains > 0)
        return NEEDED_DRAIN;
    uint32_t outstanding = record->outstanding;
    if (outstanding == 0)
        return record->drains > 0 ? KB_CAUSE_MATRIX_DRAIN : KB_CAUSE_ISSUE;
    uint32_t rest = outstanding & (outstanding - 1);
    if (rest == 0)
        return (uint8_t)__builtin_ctz(outstanding);
    return (rest & (rest - 1)) == 0 ? PAIR : DIVIDED;
}

/* Whether bytes of several causes share the time. */
static inline bool is_divided(const pe_record *record)
{
    return record->state == PAIR || record->state == DIVIDED;
}

void kb_oplog_find_state(pe_record *record)
{
    record->state = state_of(record);
    record->odd = false;
}

/* Divides time in the PE's state between causes; parts that get nothing are left as they are. */
static void divide(pe_record *record, kb_time time, kb_time parts[KB_CAUSES])
{
    if (record->state == BOTH_ENGINES) {
        kb_cause larger = record->odd ? KB_CAUSE_VECTOR : KB_CAUSE_MATRIX;
        kb_cause smaller = record->odd ? KB_CAUSE_MATRIX : KB_CAUSE_VECTOR;
        parts[larger] = time - time / 2;
        parts[smaller] = time / 2;
        record->odd ^= time % 2 != 0;
    } else if (record->state == NEEDED_DRAIN) {
        parts[KB_CAUSE_MATRIX_DRAIN] = time;
    } else if (is_divided(record)) {
        kb_divide_time(time, record->bytes, BYTE_CAUSES, parts + KB_CAUSE_LOCAL_MEMORY);
    } else {
        parts[record->state] = time;
    }
}

static uint8_t largest_cause(const kb_time parts[KB_CAUSES])
{
    int largest = 0;
    for (int c = 1; c < KB_CAUSES; c++)
        largest = parts[c] > parts[largest] ? c : largest;
    return (uint8_t)largest;
}

/* The PE's watcher is told of an interval when another cause is the largest. */
static void show_state(kb_oplog *log, uint64_t pe, uint8_t cause, kb_time start, kb_time end)
{
    shown_state *shown = &log->shown[pe];
    bool goes_on = shown->cause == cause && shown->end == start;
    if (shown->start < shown->end && !goes_on)
        log->watch_states(log->state_watcher, pe, (kb_cause)shown->cause, shown->start, shown->end);
    if (!goes_on || shown->start == shown->end)
        *shown = (shown_state){.start = start, .cause = cause};
    shown->end = end;
}

static __attribute__((noinline)) void tell_details(kb_oplog *log, const pe_record *record,
                                                   kb_time time, const kb_time parts[KB_CAUSES])
{
    uint64_t pe = (uint64_t)(record - log->pes);
    if (log->watch_states)
        show_state(log, pe, largest_cause(parts), record->since - time, record->since);
    for (int c = 0; log->profile && c < KB_CAUSES; c++)
        if (parts[c] > 0)
            kb_profile_charge(log->profile, pe, (kb_cause)c, parts[c]);
}

/* Several causes share the time, or there is a profile or a watcher of states. */
static __attribute__((noinline)) void charge_shared(kb_oplog *log, pe_record *record, kb_time time)
{
    if (!record->runs_kernel)
        return;
    kb_time parts[KB_CAUSES] = {0};
    divide(record, time, parts);
    for (int c = 0; c < KB_CAUSES; c++)
        record->charged[c] += parts[c];
    if (record->state == BOTH_ENGINES)
        log->timeline.both_engines += time;
    if (record->state == NEEDED_DRAIN)
        log->timeline.needed_drain += time;
    if (log->detailed)
        tell_details(log, record, time, parts);
}

/* Charges time in the PE's state. */
static inline void charge_time(kb_oplog *log, pe_record *record, kb_time time)
{
    if (KB_LIKELY(record->state < KB_CAUSES && !log->detailed))
        record->charged[record->state] += time;
    else
        charge_shared(log, record, time);
}

/* From then on nothing of the time of its next engine's operation is to be charged. Returns the
 * time from which on it is. */
static inline kb_time pass_engine(pe_record *record, kb_time since)
{
    const engine_op *op = record->next_op++;
    record->next_start = record->next_op != record->op_end ? op[1].start : KB_FOREVER;
    return op->free_at > since ? op->free_at : since;
}

/* The time up to which the PE is in its state: at most then. */
static inline kb_time end_of_state(const pe_record *record, kb_time at)
{
    return record->next_start < at ? record->next_start : at;
}

/* See kb_oplog_charge(). */
static inline void charge(kb_oplog *log, pe_record *record, kb_time at)
{
    for (;;) {
        kb_time until = end_of_state(record, at), time = until - record->since;
        if (time > 0) {
            record->since = until;
            charge_time(log, record, time);
        }
        if (KB_LIKELY(record->next_start >= at))
            return;
        record->since = pass_engine(record, record->since);
    }
}

void kb_oplog_charge(kb_oplog *log, pe_record *record, kb_time at)
{
    charge(log, record, at);
}

void kb_oplog_pass_engines(kb_oplog *log, pe_record *record, kb_time at)
{
    while (record->next_start < at) {
        charge(log, record, record->next_start);
        record->since = pass_engine(record, record->since);
    }
}

static inline void change_state(kb_oplog *log, pe_record *record, kb_time at)
{
    uint8_t state = state_of(record);
    if (state == record->state)
        return;
    charge(log, record, at);
    record->state = state;
    record->odd = false;
}

static inline bool is_engine(kb_cause cause)
{
    return cause <= KB_CAUSE_MATRIX_DRAIN;
}

static inline uint32_t *counter_of(pe_record *record, kb_cause cause)
{
    return cause == KB_CAUSE_MATRIX   ? &record->matrix
           : cause == KB_CAUSE_VECTOR ? &record->vector
                                      : &record->drains;
}

/* For the profile time is charged before anything changes that it is divided by. */
static __attribute__((noinline)) void note_item(kb_oplog *log, pe_record *record, kb_time at,
                                                kb_cause cause, uint64_t bytes, uint32_t key,
                                                bool begins)
{
    uint64_t pe = (uint64_t)(record - log->pes);
    if (!is_divided(record) || !is_engine(cause))
        charge(log, record, at);
    if (!log->profile)
        return;
    if (!begins)
        kb_profile_end(log->profile, pe, cause, bytes, key);
    else if (!kb_profile_begin(log->profile, pe, cause, bytes, key))
        kb_sim_fail(log->sim, kb_error_nomem());
}

static inline void add_item(kb_oplog *log, pe_record *record, kb_cause cause, uint64_t bytes)
{
    if (is_engine(cause)) {
        ++*counter_of(record, cause);
        return;
    }
    log->timeline.bytes[cause] += record->runs_kernel ? bytes : 0;
    record->bytes[cause - KB_CAUSE_LOCAL_MEMORY] += bytes > 0 ? bytes : 1;
    record->outstanding |= (uint16_t)(1u << cause);
}

static inline void remove_item(const kb_oplog *log, pe_record *record, kb_cause cause,
                               uint64_t bytes)
{
    if (is_engine(cause)) {
        uint32_t *counter = counter_of(record, cause);
        KB_ASSERT(*counter > 0 || log->incomplete);
        *counter -= *counter > 0;
        return;
    }
    uint64_t *outstanding = &record->bytes[cause - KB_CAUSE_LOCAL_MEMORY];
    bytes = bytes > 0 ? bytes : 1;
    KB_ASSERT(*outstanding >= bytes || log->incomplete);
    *outstanding -= *outstanding >= bytes ? bytes : 0;
    if (*outstanding == 0)
        record->outstanding &= (uint16_t) ~(1u << cause);
}

/* In any state. */
static __attribute__((noinline)) void change_item(kb_oplog *log, pe_record *record, kb_time at,
                                                  uint64_t bytes, uint32_t key, kb_cause cause,
                                                  bool begins)
{
    if (log->detailed)
        note_item(log, record, at, cause, bytes, key, begins);
    if (!is_engine(cause) && is_divided(record))
        charge(log, record, at);
    if (begins)
        add_item(log, record, cause, bytes);
    else
        remove_item(log, record, cause, bytes);
    change_state(log, record, at);
}

/* ---- Bytes, if the log is not detailed: in few instructions ---- */

void kb_oplog_make_states(kb_oplog *log)
{
    for (uint32_t mask = 0; mask < 1 << BYTE_CAUSES; mask++) {
        pe_record record = {.outstanding = (uint16_t)(mask << KB_CAUSE_LOCAL_MEMORY)};
        log->states[0][mask] = state_of(&record);
        record.drains = 1;
        log->states[1][mask] = state_of(&record);
    }
}

/* What apply_changes() keeps in registers of the PE's record. */
typedef struct sweep {
    kb_time since, next_start;
    uint32_t state, outstanding;
} sweep;

/* Charges time to one cause, or to two, as kb_divide_time() does. Else false. Without a kernel what
 * is charged is dropped when the next one begins. */
static inline bool charge_plainly(pe_record *record, const sweep *s, kb_time time)
{
    if (KB_LIKELY(s->state < KB_CAUSES)) {
        record->charged[s->state] += time;
        return true;
    }
    if (KB_UNLIKELY(s->state != PAIR))
        return false;
    uint32_t first = (uint32_t)__builtin_ctz(s->outstanding);
    uint32_t second = (uint32_t)__builtin_ctz(s->outstanding & (s->outstanding - 1));
    uint64_t part = record->bytes[first - KB_CAUSE_LOCAL_MEMORY];
    uint64_t total = part + record->bytes[second - KB_CAUSE_LOCAL_MEMORY];
    if (KB_UNLIKELY(((uint64_t)time | total) > UINT32_MAX))
        return false;
    kb_time given = (kb_time)((uint64_t)time * part / total);
    record->charged[first] += given;
    record->charged[second] += time - given;
    return true;
}

/* The same as charge(). */
static inline void charge_sweep(kb_oplog *log, pe_record *record, sweep *s, kb_time at)
{
    for (;;) {
        kb_time until = KB_LIKELY(s->next_start >= at) ? at : s->next_start;
        kb_time time = until - s->since;
        if (time > 0) {
            s->since = until;
            if (!charge_plainly(record, s, time)) {
                record->state = (uint8_t)s->state;
                record->outstanding = (uint16_t)s->outstanding;
                charge_shared(log, record, time);
            }
        }
        if (KB_LIKELY(s->next_start >= at))
            return;
        s->since = pass_engine(record, s->since);
        s->next_start = record->next_start;
    }
}

/*
 * Applies byte changes, and charges the time before each, although the state may stay the same: no
 * sum depends on that, and it takes less than finding out. `states`: which state follows from what
 * is outstanding.
 */
static __attribute__((noinline)) void apply_changes(kb_oplog *log, pe_record *record,
                                                    const byte_change *c, const byte_change *end,
                                                    const uint8_t *states)
{
    uint64_t *begun = record->runs_kernel ? log->timeline.bytes : log->uncounted;
    sweep s = {record->since, record->next_start, record->state, record->outstanding};
    for (; c != end; c++) {
        uint32_t cause = c->what & (MAX_CAUSES - 1);
        int64_t more = c->what >> CAUSE_BITS;
        charge_sweep(log, record, &s, c->at);
        uint64_t *all = &record->bytes[cause - KB_CAUSE_LOCAL_MEMORY], before = *all;
        uint64_t after = before + (uint64_t)more;
        if (more >= 0) {
            begun[cause] += (uint64_t)more;
        } else if (KB_UNLIKELY(after > before)) {
            KB_ASSERT(log->incomplete);
            continue;
        }
        *all = after;
        if (before != 0 && after != 0)
            continue;
        s.outstanding ^= 1u << cause;
        s.state = states[s.outstanding >> KB_CAUSE_LOCAL_MEMORY];
    }
    record->since = s.since;
    record->state = (uint8_t)s.state;
    record->outstanding = (uint16_t)s.outstanding;
}

/* The same while something else decides the state. */
static __attribute__((noinline)) void apply_behind(kb_oplog *log, pe_record *record,
                                                   const byte_change *c, const byte_change *end)
{
    uint8_t states[1 << BYTE_CAUSES];
    memset(states, record->state, sizeof states);
    apply_changes(log, record, c, end, states);
}

/* ---- What is told ------------------------------------------------------------------------- */

/* Anything else than in kb_oplog_begin() and kb_oplog_end(). */
static void tell_item(kb_oplog *log, pe_record *record, kb_time at, kb_cause cause, uint64_t bytes,
                      const kb_op *op, bool begins)
{
    KB_ASSERT(cause <= KB_CAUSE_CREDIT);
    uint32_t key = log->detailed ? kb_oplog_find_key(log, op) : 0;
    if (!is_ahead(log, at)) {
        catch_up(log, record);
        change_item(log, record, at, bytes, key, cause, begins);
        return;
    }
    transition *t = kb_oplog_insert(log, record, at);
    if (!t)
        return;
    t->kind = ITEM_CHANGES;
    t->bytes = bytes;
    t->cause = (uint8_t)cause;
    t->begins = begins;
    t->key = key;
}

static inline bool fits_change(kb_cause cause, uint64_t bytes)
{
    return (unsigned)cause - KB_CAUSE_LOCAL_MEMORY < BYTE_CAUSES && bytes - 1 < MAX_CHANGE_BYTES;
}

/* Makes room for a byte change. False: all that are there are later than now. */
static bool make_room(kb_oplog *log, pe_record *record)
{
    if (!record->change_limit) {
        record->change_limit = record->changes + PAST + MAX_CHANGES;
        record->next_change = record->changes + PAST;
    }
    if (record->next_change == record->change_limit)
        kb_oplog_apply_due(log, record);
    return record->next_change < record->change_limit;
}

static void insert_change(pe_record *record, kb_time at, int64_t what)
{
    byte_change *c = record->next_change++;
    for (; c[-1].at > at; c--) /* those before the first one are in the past */
        *c = c[-1];
    *c = (byte_change){at, what};
}

/* Not inlined, and with as many arguments: so the calls below save no registers. */
static __attribute__((noinline)) void begin_otherwise(kb_oplog *log, pe_record *record, kb_time at,
                                                      kb_cause cause, uint64_t bytes,
                                                      const kb_op *op)
{
    if (log->detailed || !fits_change(cause, bytes) || !make_room(log, record)) {
        tell_item(log, record, at, cause, bytes, op, true);
        return;
    }
    insert_change(record, at, (int64_t)bytes * MAX_CAUSES + (int64_t)cause);
}

static __attribute__((noinline)) void end_otherwise(kb_oplog *log, pe_record *record, kb_time at,
                                                    kb_cause cause, uint64_t bytes, const kb_op *op)
{
    if (log->detailed || !fits_change(cause, bytes) || !make_room(log, record)) {
        tell_item(log, record, at, cause, bytes, op, false);
        return;
    }
    insert_change(record, at, -(int64_t)bytes * MAX_CAUSES + (int64_t)cause);
}

/* Whether append_change() will do. */
static inline bool can_append(const pe_record *record, kb_time at, kb_cause cause, uint64_t bytes)
{
    const byte_change *c = record->next_change;
    return KB_LIKELY(fits_change(cause, bytes) && c < record->change_limit && c[-2].at <= at);
}

static inline void append_change(pe_record *record, kb_time at, int64_t what)
{
    byte_change *c = record->next_change;
    record->next_change = c + 1;
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
        append_change(record, at, (int64_t)bytes * MAX_CAUSES + (int64_t)cause);
    else
        begin_otherwise(log, record, at, cause, bytes, op);
}

void kb_oplog_end(kb_oplog *log, uint64_t pe, kb_time at, kb_cause cause, uint64_t bytes,
                  const kb_op *op)
{
    pe_record *record = record_of(log, pe);
    if (can_append(record, at, cause, bytes))
        append_change(record, at, -(int64_t)bytes * MAX_CAUSES + (int64_t)cause);
    else
        end_otherwise(log, record, at, cause, bytes, op);
}

static void need_drain(kb_oplog *log, pe_record *record, kb_time at, bool needed)
{
    KB_ASSERT(needed || record->needed_drains > 0 || log->incomplete);
    if (needed)
        record->needed_drains++;
    else
        record->needed_drains -= record->needed_drains > 0;
    change_state(log, record, at);
}

void kb_oplog_need_drain(kb_oplog *log, uint64_t pe, kb_time at, bool needed)
{
    pe_record *record = record_of(log, pe);
    if (!is_ahead(log, at)) {
        catch_up(log, record);
        need_drain(log, record, at, needed);
        return;
    }
    transition *t = insert_transition(log, record, at);
    if (t)
        t->kind = needed ? DRAIN_IS_NEEDED : DRAIN_IS_NOT_NEEDED;
}

static void set_line(kb_oplog *log, pe_record *record, kb_time at, uint32_t key)
{
    if (!is_divided(record)) /* that time is of transfers, whatever the line */
        charge(log, record, at);
    kb_profile_set_line(log->profile, (uint64_t)(record - log->pes), key);
}

void kb_oplog_set_line(kb_oplog *log, uint64_t pe, kb_time at, const kb_op *op)
{
    pe_record *record = record_of(log, pe);
    if (!log->profile)
        return;
    uint32_t key = kb_oplog_find_key(log, op);
    if (!is_ahead(log, at)) {
        catch_up(log, record);
        set_line(log, record, at, key);
        return;
    }
    transition *t = insert_transition(log, record, at);
    if (!t)
        return;
    t->kind = LINE_IS_SET;
    t->key = key;
}

/* ---- What was told ahead ------------------------------------------------------------------ */

/* The PE's first transition has another time: puts it in its place. */
static void move_first(const pe_record *record, transition *t)
{
    transition *last = record->end - 1, moved = *t;
    for (; t < last && (t[1].at < moved.at || (t[1].at == moved.at && t[1].order < moved.order));
         t++)
        *t = t[1];
    *t = moved;
}

/* The first transition of an engine's operation becomes its next one. */
static inline void go_on_engine(const pe_record *record, transition *t, transition_kind kind,
                                kb_time at, kb_cause cause)
{
    t->kind = (uint8_t)kind;
    t->at = at;
    t->cause = (uint8_t)cause;
    move_first(record, t);
}

/* See kb_oplog_work(). */
static void start_engine(kb_oplog *log, pe_record *record, transition *t)
{
    kb_time start = t->at, free_at = t->free_at;
    kb_cause cause = engine_cause(t->unit);
    add_span(record, (kb_unit)t->unit, start, t->end);
    change_item(log, record, start, 0, t->key, cause, true);
    t->start = start;
    go_on_engine(record, t, free_at < t->end ? ENGINE_DRAINS : ENGINE_ENDS, free_at, cause);
}

static void drain_engine(kb_oplog *log, pe_record *record, transition *t)
{
    change_item(log, record, t->at, 0, t->key, KB_CAUSE_MATRIX_DRAIN, true);
    change_item(log, record, t->at, 0, t->key, KB_CAUSE_MATRIX, false);
    go_on_engine(record, t, ENGINE_ENDS, t->end, KB_CAUSE_MATRIX_DRAIN);
}

static void count_op(kb_oplog *log, const transition *t)
{
    (void)add_to_sum(log, t->sum, (kb_unit)t->unit, t->of_kernel, t->at - t->start, t->bytes,
                     t->flops);
    if (KB_UNLIKELY(log->profile) && t->key != NO_KEY)
        kb_profile_count(log->profile, t->key, t->bytes, t->flops);
}

static inline void begin_span(kb_oplog *log, pe_record *record, const transition *t)
{
    record->span_count--;
    add_span(record, (kb_unit)t->unit, t->at, t->end);
    (void)add_to_sum(log, t->sum, (kb_unit)t->unit, t->of_kernel, t->end - t->at, t->bytes,
                     t->flops);
}

/* Applies the first transition of the PE, of any kind and in any log. False: it is to be applied
 * again, and has been moved to its next time. */
static __attribute__((noinline)) bool apply_any(kb_oplog *log, pe_record *record, transition *t)
{
    switch ((transition_kind)t->kind) {
    case ITEM_CHANGES:
        change_item(log, record, t->at, t->bytes, t->key, (kb_cause)t->cause, t->begins);
        break;
    case DRAIN_IS_NEEDED:
    case DRAIN_IS_NOT_NEEDED:
        need_drain(log, record, t->at, t->kind == DRAIN_IS_NEEDED);
        break;
    case LINE_IS_SET:
        set_line(log, record, t->at, t->key);
        break;
    case UNIT_STARTS:
        start_unit(record, (kb_unit)t->unit, t->at);
        break;
    case OP_ENDS:
        end_unit(record, (kb_unit)t->unit, t->start, t->at);
        count_op(log, t);
        break;
    case SPAN_BEGINS:
        begin_span(log, record, t);
        break;
    case ROW_COUNTS:
        kb_profile_count(log->profile, t->key, t->bytes, t->flops);
        break;
    case ENGINE_STARTS:
        start_engine(log, record, t);
        return false;
    case ENGINE_DRAINS:
        drain_engine(log, record, t);
        return false;
    case ENGINE_ENDS:
        change_item(log, record, t->at, 0, t->key, (kb_cause)t->cause, false);
        count_op(log, t);
        break;
    }
    return true;
}

/* The list begins there. */
static inline void set_first(pe_record *record, transition *t)
{
    if (t == record->end && t)
        t = record->end = record->array + PAST;
    record->first = t;
}

void kb_oplog_apply_first(kb_oplog *log, pe_record *record)
{
    transition *t = record->first;
    bool is_done = apply_any(log, record, t);
    set_first(record, t + is_done);
}

/* Applies byte changes from the first one on; returns the first that is later. */
static const byte_change *apply_changes_up_to(kb_oplog *log, pe_record *record,
                                              const byte_change *c, kb_time at)
{
    const byte_change *end = record->change_limit ? record->next_change : c;
    while (end != c && end[-1].at > at)
        end--;
    if (c == end)
        return end;
    if (KB_LIKELY((record->engines | record->needed_drains) == 0))
        apply_changes(log, record, c, end, log->states[record->drains > 0]);
    else
        apply_behind(log, record, c, end);
    return end;
}

/* Removes the changes before that one. */
static void keep_changes(pe_record *record, const byte_change *c)
{
    byte_change *to = record->changes + PAST;
    while (c != record->next_change)
        *to++ = *c++;
    record->next_change = to;
}

__attribute__((noinline)) void kb_oplog_apply_due(kb_oplog *log, pe_record *record)
{
    if (record->next_op == record->op_end)
        record->next_start = KB_FOREVER; /* 0 in a new record */
    if (KB_UNLIKELY(log->detailed)) {
        kb_oplog_apply_in_order(log);
        return;
    }
    kb_time now = log->sim->now;
    const byte_change *c = record->changes + PAST;
    transition *t = record->first;
    const transition *end = record->end; /* nothing is told meanwhile */
    while (t != end && t->at <= now) {
        c = apply_changes_up_to(log, record, c, t->at);
        t += apply_any(log, record, t);
    }
    c = apply_changes_up_to(log, record, c, now);
    if (record->change_limit)
        keep_changes(record, c);
    record->next_due = t != end ? t->at : KB_FOREVER;
    set_first(record, t);
}
