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
 * An engine's own operations are charged to their ends when they start, as nothing but the other
 * engine makes a difference to that: `since` is later than now meanwhile.
 *
 * This is called some twenty times for a message, so it is kept to a few instructions a call.
 * Not modelled: an engine that waits for the TCM counts as working.
 */
#include "oplog_private.h"

static inline kb_time part_of_time(kb_time whole, uint64_t part, uint64_t total)
{
    __extension__ typedef unsigned __int128 wide;
    if (part == total)
        return whole;
    if (KB_LIKELY(((uint64_t)whole | total) <= UINT32_MAX))
        return (kb_time)((uint64_t)whole * part / total);
    return (kb_time)((wide)whole * part / total);
}

kb_time kb_part_of_time(kb_time whole, uint64_t part, uint64_t total)
{
    KB_ASSERT(whole >= 0 && part <= total && total > 0);
    return part_of_time(whole, part, total);
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
    bool one = (outstanding & (outstanding - 1)) == 0;
    return one ? (uint8_t)__builtin_ctz(outstanding) : DIVIDED;
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
    } else if (record->state == DIVIDED) {
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

/* The same as kb_divide_time() of the PE's bytes, without a list of parts. */
static inline void charge_by_bytes(pe_record *record, kb_time time)
{
    uint64_t total = 0, before = 0;
    kb_time given = 0;
    uint32_t first = (uint32_t)__builtin_ctz(record->outstanding);
    uint32_t rest = record->outstanding & (record->outstanding - 1u);
    if (KB_LIKELY((rest & (rest - 1)) == 0)) { /* two causes */
        uint32_t second = (uint32_t)__builtin_ctz(rest);
        uint64_t part = record->bytes[first - KB_CAUSE_LOCAL_MEMORY];
        total = part + record->bytes[second - KB_CAUSE_LOCAL_MEMORY];
        given = part_of_time(time, part, total);
        record->charged[first] += given;
        record->charged[second] += time - given;
        return;
    }
    for (uint32_t left = record->outstanding; left != 0; left &= left - 1)
        total += record->bytes[__builtin_ctz(left) - KB_CAUSE_LOCAL_MEMORY];
    for (uint32_t left = record->outstanding; left != 0; left &= left - 1) {
        int cause = __builtin_ctz(left);
        before += record->bytes[cause - KB_CAUSE_LOCAL_MEMORY];
        kb_time up_to = part_of_time(time, before, total);
        record->charged[cause] += up_to - given;
        given = up_to;
    }
}

/* Several causes share the time, or there is a profile or a watcher of states. */
static __attribute__((noinline)) void charge_parts(kb_oplog *log, pe_record *record, kb_time time)
{
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

/* See kb_oplog_charge(). */
static inline void charge(kb_oplog *log, pe_record *record, kb_time at)
{
    kb_time time = at - record->since;
    if (time <= 0)
        return;
    record->since = at;
    if (!record->runs_kernel)
        return;
    if (KB_LIKELY(record->state < KB_CAUSES && !log->detailed))
        record->charged[record->state] += time;
    else
        charge_parts(log, record, time);
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
    if (record->state != DIVIDED || !is_engine(cause))
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
    if (!is_engine(cause) && record->state == DIVIDED)
        charge(log, record, at);
    if (begins)
        add_item(log, record, cause, bytes);
    else
        remove_item(log, record, cause, bytes);
    change_state(log, record, at);
}

/* ---- Bytes, if the log is not detailed: in few instructions ---- */

static __attribute__((noinline)) void charge_slowly(kb_oplog *log, pe_record *record, kb_time at)
{
    if (record->state != DIVIDED || !record->runs_kernel || at <= record->since) {
        charge(log, record, at);
        return;
    }
    charge_by_bytes(record, at - record->since);
    record->since = at;
}

/* The same as charge(). Without a kernel what is charged is dropped when the next one begins. */
static inline void charge_plain(kb_oplog *log, pe_record *record, kb_time at)
{
    if (KB_UNLIKELY(record->state >= KB_CAUSES)) {
        charge_slowly(log, record, at);
        return;
    }
    kb_time time = at - record->since;
    if (time <= 0)
        return;
    record->charged[record->state] += time;
    record->since = at;
}

/* Whether bytes make no difference to the state. */
static inline bool is_before_bytes(uint8_t state)
{
    const uint32_t before =
        1u << KB_CAUSE_MATRIX | 1u << KB_CAUSE_VECTOR | 1u << BOTH_ENGINES | 1u << NEEDED_DRAIN;
    return (before >> state & 1) != 0;
}

/* Adds them. Whether bytes of this cause were outstanding before. */
static inline bool had_bytes(kb_oplog *log, pe_record *record, kb_cause cause, uint64_t bytes)
{
    uint64_t *all = &record->bytes[cause - KB_CAUSE_LOCAL_MEMORY], before = *all;
    if (KB_LIKELY(record->runs_kernel))
        log->timeline.bytes[cause] += bytes;
    *all = before + bytes + (bytes == 0);
    return before != 0;
}

/* The first bytes of the cause. */
static inline void change_to_bytes(pe_record *record, kb_cause cause)
{
    record->state = record->outstanding == 0 ? (uint8_t)cause : DIVIDED;
    record->outstanding |= (uint16_t)(1u << cause);
}

static inline void begin_bytes(kb_oplog *log, pe_record *record, kb_time at, uint64_t bytes,
                               kb_cause cause)
{
    bool is_divided = record->state == DIVIDED;
    if (is_divided && at > record->since)
        charge_slowly(log, record, at);
    if (had_bytes(log, record, cause, bytes))
        return;
    if (is_before_bytes(record->state)) {
        record->outstanding |= (uint16_t)(1u << cause);
        return;
    }
    if (!is_divided)
        charge_plain(log, record, at);
    change_to_bytes(record, cause);
}

/* The last bytes of the cause. */
static inline void change_from_bytes(pe_record *record, kb_cause cause)
{
    uint32_t left = record->outstanding & ~(1u << cause);
    record->outstanding = (uint16_t)left;
    if (left == 0)
        record->state = record->drains > 0 ? KB_CAUSE_MATRIX_DRAIN : KB_CAUSE_ISSUE;
    else if ((left & (left - 1)) == 0)
        record->state = (uint8_t)__builtin_ctz(left);
}

static inline void end_bytes(kb_oplog *log, pe_record *record, kb_time at, uint64_t bytes,
                             kb_cause cause)
{
    uint64_t *all = &record->bytes[cause - KB_CAUSE_LOCAL_MEMORY];
    bool is_divided = record->state == DIVIDED;
    if (is_divided && at > record->since)
        charge_slowly(log, record, at);
    bytes += bytes == 0;
    if (KB_UNLIKELY(*all < bytes)) {
        KB_ASSERT(log->incomplete);
        return;
    }
    *all -= bytes;
    if (*all != 0)
        return;
    if (is_before_bytes(record->state)) {
        record->outstanding &= (uint16_t) ~(1u << cause);
        return;
    }
    if (!is_divided)
        charge_plain(log, record, at);
    change_from_bytes(record, cause);
}

static inline void need_drain(kb_oplog *log, pe_record *record, kb_time at, bool needed)
{
    KB_ASSERT(needed || record->needed_drains > 0 || log->incomplete);
    if (needed)
        record->needed_drains++;
    else
        record->needed_drains -= record->needed_drains > 0;
    change_state(log, record, at);
}

static inline void fill_bytes(transition *t, uint64_t bytes, kb_cause cause, transition_kind kind)
{
    t->bytes = bytes;
    t->kind = (uint8_t)kind;
    t->cause = (uint8_t)cause;
}

/* In any log. An engine that begins or ends now is a transition, too, if the log is not detailed:
 * then there is one way to apply it. */
static void tell_item(kb_oplog *log, pe_record *record, kb_time at, kb_cause cause, uint64_t bytes,
                      const kb_op *op, bool begins)
{
    KB_ASSERT(cause <= KB_CAUSE_CREDIT);
    uint32_t key = log->detailed ? kb_oplog_find_key(log, op) : 0;
    if (!is_ahead(log, at) && log->detailed) {
        catch_up(log, record);
        change_item(log, record, at, bytes, key, cause, begins);
        return;
    }
    transition *t = kb_oplog_insert(log, record, at);
    if (!t)
        return;
    fill_bytes(t, bytes, cause, begins ? BYTES_BEGIN : BYTES_END);
    if (is_engine(cause))
        t->kind = ENGINE_ITEM;
    t->begins = begins;
    t->key = key;
}

/* Anything else than in the two calls below. Not inlined: so these save no registers. */
static __attribute__((noinline)) void begin_otherwise(kb_oplog *log, pe_record *record, kb_time at,
                                                      kb_cause cause, uint64_t bytes,
                                                      const kb_op *op)
{
    tell_item(log, record, at, cause, bytes, op, true);
}

static __attribute__((noinline)) void end_otherwise(kb_oplog *log, pe_record *record, kb_time at,
                                                    kb_cause cause, uint64_t bytes, const kb_op *op)
{
    tell_item(log, record, at, cause, bytes, op, false);
}

/* If something is due, or several causes share the time; the log is not detailed. */
static __attribute__((noinline)) void begin_bytes_now(kb_oplog *log, pe_record *record, kb_time at,
                                                      kb_cause cause, uint64_t bytes)
{
    if (record->due - 1 <= (uint64_t)at)
        kb_oplog_apply_due(log, record);
    begin_bytes(log, record, at, bytes, cause);
}

static __attribute__((noinline)) void end_bytes_now(kb_oplog *log, pe_record *record, kb_time at,
                                                    kb_cause cause, uint64_t bytes)
{
    if (record->due - 1 <= (uint64_t)at)
        kb_oplog_apply_due(log, record);
    end_bytes(log, record, at, bytes, cause);
}

/* Whether nothing is due, and time in the PE's state goes to one cause. */
static inline bool is_simple(const pe_record *record, kb_time now)
{
    return KB_LIKELY(record->due - 1 > (uint64_t)now && record->state < KB_CAUSES);
}

static inline bool counts_bytes(kb_cause cause)
{
    return KB_LIKELY((unsigned)cause - KB_CAUSE_LOCAL_MEMORY < BYTE_CAUSES);
}

void kb_oplog_begin(kb_oplog *log, uint64_t pe, kb_time at, kb_cause cause, uint64_t bytes,
                    const kb_op *op)
{
    pe_record *record = record_of(log, pe);
    bool is_plain = counts_bytes(cause) && !log->detailed;
    if (KB_LIKELY(is_plain && at == log->sim->now)) {
        if (is_simple(record, at))
            begin_bytes(log, record, at, bytes, cause);
        else
            begin_bytes_now(log, record, at, cause, bytes);
        return;
    }
    transition *t = NULL;
    if (KB_LIKELY(is_plain && at > log->sim->now))
        t = append_transition(log, record, at);
    if (KB_LIKELY(t != NULL))
        fill_bytes(t, bytes, cause, BYTES_BEGIN);
    else
        begin_otherwise(log, record, at, cause, bytes, op);
}

void kb_oplog_end(kb_oplog *log, uint64_t pe, kb_time at, kb_cause cause, uint64_t bytes,
                  const kb_op *op)
{
    pe_record *record = record_of(log, pe);
    bool is_plain = counts_bytes(cause) && !log->detailed;
    if (KB_LIKELY(is_plain && at == log->sim->now)) {
        if (is_simple(record, at))
            end_bytes(log, record, at, bytes, cause);
        else
            end_bytes_now(log, record, at, cause, bytes);
        return;
    }
    transition *t = NULL;
    if (KB_LIKELY(is_plain && at > log->sim->now))
        t = append_transition(log, record, at);
    if (KB_LIKELY(t != NULL))
        fill_bytes(t, bytes, cause, BYTES_END);
    else
        end_otherwise(log, record, at, cause, bytes, op);
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
    if (record->state != DIVIDED) /* that time is of transfers, whatever the line */
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
    start_unit(record, (kb_unit)t->unit, start);
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

static void end_op(kb_oplog *log, pe_record *record, const transition *t)
{
    end_unit(record, (kb_unit)t->unit, t->start, t->at);
    add_to_sum(log, t->sum, (kb_unit)t->unit, t->of_kernel, t->at - t->start, t->bytes, t->flops);
    if (KB_UNLIKELY(log->profile) && t->key != NO_KEY)
        kb_profile_count(log->profile, t->key, t->bytes, t->flops);
}

static inline __attribute__((always_inline)) void begin_span(kb_oplog *log, pe_record *record,
                                                             const transition *t)
{
    add_span(record, (kb_unit)t->unit, t->at, t->end);
    add_to_sum(log, t->sum, (kb_unit)t->unit, t->of_kernel, t->end - t->at, t->bytes, t->flops);
}

/* Applies the first transition of the PE, of any kind and in any log. False: it is to be applied
 * again, and has been moved to its next time. */
static __attribute__((noinline)) bool apply_any(kb_oplog *log, pe_record *record, transition *t)
{
    switch ((transition_kind)t->kind) {
    case BYTES_BEGIN:
    case BYTES_END:
        change_item(log, record, t->at, t->bytes, t->key, (kb_cause)t->cause,
                    t->kind == BYTES_BEGIN);
        break;
    case ENGINE_ITEM:
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
        end_op(log, record, t);
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
        end_op(log, record, t);
        break;
    }
    return true;
}

/* The list begins there. */
static inline void set_first(pe_record *record, transition *t)
{
    if (t == record->end) {
        record->first = record->end = record->array + 1;
        record->due = 0;
    } else {
        record->first = t;
        record->due = (uint64_t)t->at + 1;
    }
}

void kb_oplog_apply_first(kb_oplog *log, pe_record *record)
{
    transition *t = record->first;
    bool is_done = apply_any(log, record, t);
    set_first(record, t + is_done);
}

/* ---- The same for most of them, if the log is not detailed ---- */

static inline void count_engine(kb_oplog *log, pe_record *record, const transition *t)
{
    unit_work *work = &record->units[t->unit];
    if (work->announced == 0)
        work->busy += t->end - t->at;
    add_to_sum(log, t->sum, (kb_unit)t->unit, t->of_kernel, t->end - t->at, t->bytes, t->flops);
}

/* The product is done with its engine; its results drain, and nothing else happens until `quiet`.
 * False as in apply_any(). */
static __attribute__((noinline)) bool drain_quietly(kb_oplog *log, pe_record *record, transition *t,
                                                    kb_time quiet)
{
    if (t->end <= quiet && record->needed_drains == 0) {
        if (record->outstanding == 0) {
            record->charged[KB_CAUSE_MATRIX_DRAIN] += t->end - record->since;
            record->since = t->end;
        }
        count_engine(log, record, t);
        return true;
    }
    start_unit(record, (kb_unit)t->unit, t->at);
    record->drains++;
    record->state = state_of(record);
    t->start = t->at;
    go_on_engine(record, t, ENGINE_ENDS, t->end, KB_CAUSE_MATRIX_DRAIN);
    return false;
}

/*
 * An engine's operation is open: its time is charged to its end, though that may be later than
 * now. Bytes that change meanwhile make no difference, as the engine's time is its own. It is
 * counted at once if nothing happens until its end, and that has passed. Else its unit starts, and
 * it is counted when it has ended (close_engine); if the other engine starts before, it becomes a
 * transition like others (reopen_engine).
 */
static inline void open_engine(kb_oplog *log, pe_record *record, const transition *t)
{
    charge_plain(log, record, t->at);
    record->charged[engine_cause(t->unit)] += t->end - t->at;
    record->since = t->end;
}

static inline void close_engine(kb_oplog *log, pe_record *record, const transition *t)
{
    unit_work *work = &record->units[t->unit];
    if (--work->announced == 0)
        work->busy += t->end;
    add_to_sum(log, t->sum, (kb_unit)t->unit, t->of_kernel, t->end - t->at, t->bytes, t->flops);
}

/* Another engine starts at `at`, when the list begins at `first`. Returns where it begins then. */
static __attribute__((noinline)) transition *reopen_engine(pe_record *record, transition *first,
                                                           const transition *open, kb_time at)
{
    kb_cause cause = engine_cause(open->unit);
    record->charged[cause] -= record->since - at;
    record->since = at;
    ++*counter_of(record, cause);
    record->state = state_of(record);
    *--first = *open;
    first->start = first->at;
    go_on_engine(record, first, ENGINE_ENDS, first->end, cause);
    return first;
}

/* The product's engine is occupied until `quiet` at most: nothing else happens before. False as in
 * apply_any(). */
static __attribute__((noinline)) bool apply_product(kb_oplog *log, pe_record *record, transition *t,
                                                    kb_time quiet)
{
    if (t->free_at > quiet)
        return apply_any(log, record, t);
    charge_plain(log, record, t->at);
    record->charged[KB_CAUSE_MATRIX] += t->free_at - t->at;
    record->since = t->free_at;
    return drain_quietly(log, record, t, quiet);
}

/* The rest: kinds that are rare, and engines that work together. */
static inline bool apply_other(kb_oplog *log, pe_record *record, transition *t, kb_time now)
{
    if (t->kind != ENGINE_STARTS || record->engines != 0)
        return apply_any(log, record, t);
    bool is_last = t + 1 == record->end || t[1].at > now;
    return apply_product(log, record, t, is_last ? now : t[1].at);
}

void kb_oplog_apply_due(kb_oplog *log, pe_record *record)
{
    if (KB_UNLIKELY(log->detailed)) {
        kb_oplog_apply_in_order(log);
        return;
    }
    kb_time now = log->sim->now;
    transition *t = record->first;
    const transition *end = record->end; /* nothing is told meanwhile */
    const transition *open = record->has_open ? record->array : NULL;
    for (; t < end && t->at <= now; t++) {
        if (t->kind == ENGINE_STARTS || t->kind == ENGINE_ITEM) {
            if (open && KB_UNLIKELY(open->end > t->at)) {
                t = reopen_engine(record, t, open, t->at) - 1;
                open = NULL;
                continue;
            }
            if (open)
                close_engine(log, record, open);
            open = NULL;
            if (KB_LIKELY(t->kind == ENGINE_STARTS && t->free_at == t->end &&
                          record->engines == 0)) {
                open_engine(log, record, t);
                if (t->end <= now && (t + 1 == end || t[1].at >= t->end)) {
                    count_engine(log, record, t);
                } else {
                    start_unit(record, (kb_unit)t->unit, t->at);
                    open = t;
                }
                continue;
            }
        } else if (t->kind == BYTES_BEGIN) {
            begin_bytes(log, record, t->at, t->bytes, (kb_cause)t->cause);
            continue;
        } else if (t->kind == BYTES_END) {
            end_bytes(log, record, t->at, t->bytes, (kb_cause)t->cause);
            continue;
        } else if (t->kind == SPAN_BEGINS) {
            begin_span(log, record, t);
            continue;
        } else if (open && open->end <= t->at) { /* `t` may be of its unit */
            close_engine(log, record, open);
            open = NULL;
        }
        if (!apply_other(log, record, t, now))
            t--;
    }
    if (open && open->end <= now) {
        close_engine(log, record, open);
        open = NULL;
    }
    record->has_open = open != NULL;
    if (open && open != record->array)
        *record->array = *open;
    set_first(record, t);
}

void kb_oplog_settle(kb_oplog *log, pe_record *record)
{
    catch_up(log, record);
    if (record->has_open && record->array->end <= log->sim->now) {
        close_engine(log, record, record->array);
        record->has_open = false;
    }
}
