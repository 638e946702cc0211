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
 * If the log is not detailed, most of what it is told goes through merge_edges.c, and operations of
 * engines are no part of the state: engine_work.c charges them, and charging skips their times.
 *
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
        return (uint8_t)(__builtin_ctz(outstanding) + KB_CAUSE_LOCAL_MEMORY);
    if ((rest & (rest - 1)) != 0)
        return DIVIDED;
    return (uint8_t)(PAIR + __builtin_ctz(outstanding) * SLOTS + __builtin_ctz(rest));
}

/* Whether bytes of several causes share the time. */
static inline bool is_divided(const pe_record *record)
{
    return record->state >= PAIR || record->state == DIVIDED;
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

__attribute__((noinline)) void kb_oplog_charge_shared(kb_oplog *log, pe_record *record,
                                                      kb_time time)
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
        kb_oplog_charge_shared(log, record, time);
}

static inline void charge_up_to(kb_oplog *log, pe_record *record, kb_time at)
{
    kb_time time = at - record->since;
    if (time <= 0)
        return;
    record->since = at;
    charge_time(log, record, time);
}

void kb_oplog_pass_engines(kb_oplog *log, pe_record *record, kb_time at)
{
    const engine_op *op = record->next_op;
    for (; op && op->start < at; op++) {
        charge_up_to(log, record, op->start);
        record->since = op->free_at > record->since ? op->free_at : record->since;
    }
    record->next_op = op;
}

/* See kb_oplog_charge(). */
static inline void charge(kb_oplog *log, pe_record *record, kb_time at)
{
    kb_oplog_pass_engines(log, record, at);
    charge_up_to(log, record, at);
}

void kb_oplog_charge(kb_oplog *log, pe_record *record, kb_time at)
{
    charge(log, record, at);
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
    record->outstanding |= (uint16_t)(1u << (cause - KB_CAUSE_LOCAL_MEMORY));
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
        record->outstanding &= (uint16_t) ~(1u << (cause - KB_CAUSE_LOCAL_MEMORY));
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

void kb_oplog_make_states(kb_oplog *log)
{
    for (uint32_t mask = 0; mask < 1 << BYTE_CAUSES; mask++) {
        pe_record record = {.outstanding = (uint16_t)mask};
        log->states[0][mask] = state_of(&record);
        record.drains = 1;
        log->states[1][mask] = state_of(&record);
    }
}

/* ---- What is told ------------------------------------------------------------------------- */

void kb_oplog_tell_item(kb_oplog *log, pe_record *record, kb_time at, kb_cause cause,
                        uint64_t bytes, const kb_op *op, bool begins)
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
    if (!is_engine(cause)) {
        record->byte_transitions++;
        record->change_limit = NULL;
    }
    t->kind = ITEM_CHANGES;
    t->bytes = bytes;
    t->cause = (uint8_t)cause;
    t->begins = begins;
    t->key = key;
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

/* The PE's first transition has another time: moves it into order. */
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
        record->byte_transitions -= !is_engine((kb_cause)t->cause);
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

__attribute__((noinline)) void kb_oplog_apply_due(kb_oplog *log, pe_record *record)
{
    if (KB_UNLIKELY(log->detailed)) {
        kb_oplog_apply_in_order(log);
        return;
    }
    kb_time now = log->clock->now;
    merge_position position = kb_oplog_merge_begin(record);
    transition *t = record->first;
    const transition *end = record->end; /* nothing is told meanwhile */
    while (t != end && t->at <= now) {
        kb_oplog_merge(log, record, &position, t->at);
        t += apply_any(log, record, t);
    }
    kb_oplog_merge(log, record, &position, now);
    kb_oplog_merge_end(record, &position);
    record->next_due = t != end ? t->at : KB_FOREVER;
    set_first(record, t);
}
