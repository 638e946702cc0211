/*
 * causes.c: what the time of PEs goes to, and what the run as a whole is doing.
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
 * Of a PE that takes part in the run but has no kernel nothing is charged at first. The kernel
 * clock, which runs while any kernel does, tells how much there is when its next kernel begins or
 * the run ends, so no PE is visited meanwhile.
 *
 * This is called some twenty times for a message, so it is kept to a few instructions a call.
 * Not modelled: an engine that waits for the TCM counts as working.
 */
#include <stdlib.h>
#include <string.h>

#include "oplog_private.h"

const char *kb_cause_name(kb_cause cause)
{
    static const char *const names[KB_CAUSES] = {
        [KB_CAUSE_MATRIX] = "matrix",
        [KB_CAUSE_VECTOR] = "vector",
        [KB_CAUSE_MATRIX_DRAIN] = "matrix_drain",
        [KB_CAUSE_LOCAL_MEMORY] = "local_memory",
        [KB_CAUSE_TCM] = "tcm",
        [KB_CAUSE_CUBE_PES] = "cube_pes",
        [KB_CAUSE_OTHER_CUBES] = "other_cubes",
        [KB_CAUSE_OTHER_SIPS] = "other_sips",
        [KB_CAUSE_MESSAGE] = "message",
        [KB_CAUSE_CREDIT] = "credit",
        [KB_CAUSE_LAUNCH] = "launch",
        [KB_CAUSE_ISSUE] = "issue",
        [KB_CAUSE_IMBALANCE] = "imbalance",
    };
    return (size_t)cause < KB_CAUSES ? names[cause] : "?";
}

kb_split_time kb_split_causes(const kb_time_sum causes[KB_CAUSES])
{
    kb_split_time split = {0};
    for (int c = 0; c < KB_CAUSES; c++) {
        if (c <= KB_CAUSE_MATRIX_DRAIN)
            split.compute += causes[c];
        else if (c <= KB_CAUSE_TCM)
            split.memory += causes[c];
        else if (c <= KB_CAUSE_LAUNCH)
            split.communication += causes[c];
        else
            split.idle += causes[c];
    }
    return split;
}

kb_time kb_part_of_time(kb_time whole, uint64_t part, uint64_t total)
{
    __extension__ typedef unsigned __int128 wide;
    KB_ASSERT(whole >= 0 && part <= total && total > 0);
    if (part == total)
        return whole;
    if (KB_LIKELY(((uint64_t)whole | total) <= UINT32_MAX))
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
    bool one = (outstanding & (outstanding - 1)) == 0;
    return one ? (uint8_t)__builtin_ctz(outstanding) : DIVIDED;
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

/* Charges the time up to then to the state that held. */
static inline void charge(kb_oplog *log, pe_record *record, kb_time at)
{
    kb_time time = at - record->since;
    record->since = at;
    if (!record->runs_kernel || time == 0)
        return;
    if (KB_LIKELY(record->state < KB_CAUSES && !log->detailed))
        record->charged[record->state] += time;
    else
        charge_parts(log, record, time);
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

/*
 * Whether time in the PE's state goes to one cause, and to nothing else: most often. Then a change
 * is made without a call, which leaves the registers where they are.
 */
static inline bool is_simple(const kb_oplog *log, const pe_record *record)
{
    return KB_LIKELY(record->state < KB_CAUSES && !log->detailed);
}

/* The same as change_state(). */
static inline void change_simple_state(pe_record *record, kb_time at)
{
    uint8_t state = state_of(record);
    if (state == record->state)
        return;
    if (record->runs_kernel)
        record->charged[record->state] += at - record->since;
    record->since = at;
    record->state = state;
    record->odd = false;
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

static inline void begin_item(kb_oplog *log, pe_record *record, kb_time at, uint64_t bytes,
                              uint32_t key, kb_cause cause)
{
    if (!is_simple(log, record)) {
        change_item(log, record, at, bytes, key, cause, true);
        return;
    }
    add_item(log, record, cause, bytes);
    change_simple_state(record, at);
}

static inline void end_item(kb_oplog *log, pe_record *record, kb_time at, uint64_t bytes,
                            uint32_t key, kb_cause cause)
{
    if (!is_simple(log, record)) {
        change_item(log, record, at, bytes, key, cause, false);
        return;
    }
    remove_item(log, record, cause, bytes);
    change_simple_state(record, at);
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

static inline void fill_item(transition *t, uint64_t bytes, uint32_t key, kb_cause cause,
                             transition_kind kind)
{
    t->bytes = bytes;
    t->key = key;
    t->kind = (uint8_t)kind;
    t->cause = (uint8_t)cause;
}

static inline void tell_item(kb_oplog *log, uint64_t pe, kb_time at, kb_cause cause, uint64_t bytes,
                             const kb_op *op, transition_kind kind)
{
    pe_record *record = record_of(log, pe);
    uint32_t key = log->detailed ? kb_oplog_find_key(log, op) : 0;
    if (!is_ahead(log, at)) {
        catch_up(log, record);
        change_item(log, record, at, bytes, key, cause, kind == ITEM_BEGINS);
        return;
    }
    transition *t = insert_transition(log, record, at);
    if (t)
        fill_item(t, bytes, key, cause, kind);
}

/* If something is due, the log is detailed, or there is no room. Not inlined: so the two calls
 * below save no registers. */
static __attribute__((noinline)) void begin_otherwise(kb_oplog *log, uint64_t pe, kb_time at,
                                                      kb_cause cause, uint64_t bytes,
                                                      const kb_op *op)
{
    tell_item(log, pe, at, cause, bytes, op, ITEM_BEGINS);
}

static __attribute__((noinline)) void end_otherwise(kb_oplog *log, uint64_t pe, kb_time at,
                                                    kb_cause cause, uint64_t bytes, const kb_op *op)
{
    tell_item(log, pe, at, cause, bytes, op, ITEM_ENDS);
}

void kb_oplog_begin(kb_oplog *log, uint64_t pe, kb_time at, kb_cause cause, uint64_t bytes,
                    const kb_op *op)
{
    pe_record *record = record_of(log, pe);
    KB_ASSERT(cause <= KB_CAUSE_CREDIT);
    bool ahead = is_ahead(log, at);
    if (ahead && can_insert(log, record))
        fill_item(insert_in_room(log, record, at), bytes, 0, cause, ITEM_BEGINS);
    else if (!ahead && is_caught_up(log, record))
        begin_item(log, record, at, bytes, 0, cause);
    else
        begin_otherwise(log, pe, at, cause, bytes, op);
}

void kb_oplog_end(kb_oplog *log, uint64_t pe, kb_time at, kb_cause cause, uint64_t bytes,
                  const kb_op *op)
{
    pe_record *record = record_of(log, pe);
    bool ahead = is_ahead(log, at);
    if (ahead && can_insert(log, record))
        fill_item(insert_in_room(log, record, at), bytes, 0, cause, ITEM_ENDS);
    else if (!ahead && is_caught_up(log, record))
        end_item(log, record, at, bytes, 0, cause);
    else
        end_otherwise(log, pe, at, cause, bytes, op);
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

static inline void remove_first(pe_record *record)
{
    if (++record->first == record->end) {
        record->first = record->end = 0;
        record->due = 0;
    } else {
        set_due(record);
    }
}

/* The PE's first transition has another time: puts it in its place. */
static inline void move_first(pe_record *record, transition *t)
{
    transition *last = record->pending + record->end - 1, moved = *t;
    for (; t < last && (t[1].at < moved.at || (t[1].at == moved.at && t[1].order < moved.order));
         t++)
        *t = t[1];
    *t = moved;
    set_due(record);
}

/* Where an engine's operation is at its start, and when it drains; see kb_oplog_work(). */
static inline void start_engine(kb_oplog *log, pe_record *record, transition *t)
{
    bool is_product = t->unit == KB_UNIT_GEMM;
    kb_time start = t->at, free_at = t->free_at;
    start_unit(record, (kb_unit)t->unit, start);
    begin_item(log, record, start, 0, t->key, is_product ? KB_CAUSE_MATRIX : KB_CAUSE_VECTOR);
    bool drains = is_product && free_at < t->end;
    t->start = start;
    t->at = drains ? free_at : t->end;
    t->kind = drains ? ENGINE_DRAINS : ENGINE_ENDS;
    t->cause = is_product ? KB_CAUSE_MATRIX : KB_CAUSE_VECTOR;
    move_first(record, t);
}

static inline void drain_engine(kb_oplog *log, pe_record *record, transition *t)
{
    begin_item(log, record, t->at, 0, t->key, KB_CAUSE_MATRIX_DRAIN);
    end_item(log, record, t->at, 0, t->key, KB_CAUSE_MATRIX);
    t->at = t->end;
    t->kind = ENGINE_ENDS;
    t->cause = KB_CAUSE_MATRIX_DRAIN;
    move_first(record, t);
}

static inline __attribute__((always_inline)) void apply_first(kb_oplog *log, pe_record *record)
{
    transition *t = &record->pending[record->first];
    switch ((transition_kind)t->kind) {
    case ITEM_BEGINS:
        begin_item(log, record, t->at, t->bytes, t->key, (kb_cause)t->cause);
        break;
    case ITEM_ENDS:
        end_item(log, record, t->at, t->bytes, t->key, (kb_cause)t->cause);
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
        kb_oplog_apply_op_end(log, record, t);
        break;
    case SPAN_BEGINS:
        kb_oplog_apply_span(log, record, t);
        break;
    case ROW_COUNTS:
        kb_profile_count(log->profile, t->key, t->bytes, t->flops);
        break;
    case ENGINE_STARTS:
        start_engine(log, record, t);
        return;
    case ENGINE_DRAINS:
        drain_engine(log, record, t);
        return;
    case ENGINE_ENDS:
        end_item(log, record, t->at, 0, t->key, (kb_cause)t->cause);
        kb_oplog_apply_op_end(log, record, t);
        break;
    }
    remove_first(record);
}

void kb_oplog_apply_first(kb_oplog *log, pe_record *record)
{
    apply_first(log, record);
}

void kb_oplog_apply_due(kb_oplog *log, pe_record *record)
{
    if (KB_UNLIKELY(log->detailed)) {
        kb_oplog_apply_in_order(log);
        return;
    }
    uint64_t now = (uint64_t)log->sim->now;
    while (record->due - 1 <= now)
        apply_first(log, record);
}

/* ---- Watchers ---------------------------------------------------------------------------- */

kb_error *kb_oplog_watch_states(kb_oplog *log, kb_state_fn *fn, void *self)
{
    KB_ASSERT(log->kernels == 0);
    kb_oplog_flush_states(log);
    if (fn && !log->shown) {
        log->shown = kb_alloc_zeroed(log->pe_count, sizeof *log->shown);
        if (!log->shown)
            return kb_error_nomem();
    }
    if (fn && !kb_oplog_make_agenda(log))
        return kb_error_nomem();
    log->watch_states = fn;
    log->state_watcher = self;
    log->detailed = fn || log->profile;
    return NULL;
}

/* Charges all time up to now. */
static void charge_all(kb_oplog *log)
{
    kb_oplog_apply_all_due(log);
    for (uint64_t pe = 0; pe < log->pe_count && log->kernels > 0; pe++)
        if (log->pes[pe].runs_kernel)
            charge(log, &log->pes[pe], log->sim->now);
}

void kb_oplog_flush_states(kb_oplog *log)
{
    charge_all(log);
    for (uint64_t pe = 0; log->watch_states && pe < log->pe_count; pe++) {
        shown_state *shown = &log->shown[pe];
        if (shown->start < shown->end)
            log->watch_states(log->state_watcher, pe, (kb_cause)shown->cause, shown->start,
                              shown->end);
        shown->start = shown->end;
    }
}

kb_error *kb_oplog_start_profile(kb_oplog *log)
{
    KB_ASSERT(log->sums.count == 0 && !log->profile);
    if (!kb_oplog_make_agenda(log))
        return kb_error_nomem();
    log->profile = kb_profile_create(log->pe_count);
    log->detailed = log->detailed || log->profile;
    return log->profile ? NULL : kb_error_nomem();
}

const kb_profile *kb_oplog_profile(kb_oplog *log)
{
    if (log->profile)
        charge_all(log);
    return log->profile;
}

/* ---- Kernels and requests ---------------------------------------------------------------- */

static void charge_run(const kb_oplog *log, kb_timeline *timeline)
{
    kb_time passed = log->sim->now - log->charged_to;
    if (log->kernels > 0)
        timeline->kernels += passed;
    else if (log->launches > 0)
        timeline->launching += passed;
    else if (log->requests > 0)
        timeline->requesting += passed;
    else
        timeline->idle += passed;
}

static void settle_run(kb_oplog *log)
{
    charge_run(log, &log->timeline);
    log->charged_to = log->sim->now;
}

kb_time kb_oplog_kernel_clock(const kb_oplog *log)
{
    kb_time passed = log->sim->now - log->charged_to;
    return log->timeline.kernels + (log->kernels > 0 ? passed : 0);
}

/* The PE had no kernel since it left the last one, while others did. */
static void charge_gap(kb_oplog *log, const pe_record *record, kb_time posted)
{
    kb_time clock = log->timeline.kernels;
    kb_time from = posted > record->left_at ? posted : record->left_at;
    KB_ASSERT(from <= clock);
    log->timeline.causes[KB_CAUSE_LAUNCH] += clock - from;
    log->timeline.causes[KB_CAUSE_IMBALANCE] += from - record->left_at;
}

void kb_oplog_kernel_begin(kb_oplog *log, uint64_t pe, kb_time posted)
{
    settle_run(log);
    log->kernels++;
    pe_record *record = record_of(log, pe);
    catch_up(log, record);
    KB_ASSERT(!record->runs_kernel);
    log->timeline.pes += !record->takes_part;
    record->takes_part = true;
    charge_gap(log, record, posted);
    record->runs_kernel = true;
    record->state = state_of(record);
    record->odd = false;
    record->since = record->kernel_start = log->sim->now;
    memset(record->charged, 0, sizeof record->charged);
}

void kb_oplog_kernel_end(kb_oplog *log, uint64_t pe, kb_time_sum causes[KB_CAUSES])
{
    KB_ASSERT(log->kernels > 0);
    settle_run(log);
    log->kernels--;
    pe_record *record = record_of(log, pe);
    catch_up(log, record);
    KB_ASSERT(record->runs_kernel);
    charge(log, record, log->sim->now);
    record->runs_kernel = false;
    record->in_kernels += log->sim->now - record->kernel_start;
    record->left_at = log->timeline.kernels;
    for (int c = 0; c < KB_CAUSES; c++) {
        log->timeline.causes[c] += record->charged[c];
        causes[c] += record->charged[c];
    }
    if (log->watch)
        kb_oplog_show_early(log); /* texts of records may be the kernel's */
}

void kb_oplog_request_begin(kb_oplog *log)
{
    settle_run(log);
    log->requests++;
}

void kb_oplog_request_end(kb_oplog *log)
{
    KB_ASSERT(log->requests > 0);
    settle_run(log);
    log->requests--;
}

void kb_oplog_launch_begin(kb_oplog *log)
{
    settle_run(log);
    log->launches++;
}

void kb_oplog_launch_end(kb_oplog *log)
{
    KB_ASSERT(log->launches > 0);
    settle_run(log);
    log->launches--;
}

/* What a PE has that is not in the timeline yet. */
static void add_pe(const kb_oplog *log, uint64_t pe, kb_timeline *timeline)
{
    const pe_record *record = &log->pes[pe];
    kb_time in_kernels = record->in_kernels;
    if (!record->takes_part)
        return;
    if (record->runs_kernel) {
        in_kernels += log->sim->now - record->kernel_start;
        for (int c = 0; c < KB_CAUSES; c++)
            timeline->causes[c] += record->charged[c];
    } else {
        timeline->causes[KB_CAUSE_IMBALANCE] += timeline->kernels - record->left_at;
    }
    timeline->in_kernels += in_kernels;
    if (in_kernels > timeline->longest) {
        timeline->longest = in_kernels;
        timeline->longest_pe = pe;
    }
}

kb_timeline kb_oplog_timeline(kb_oplog *log)
{
    charge_all(log);
    kb_timeline timeline = log->timeline;
    charge_run(log, &timeline);
    for (uint64_t pe = 0; pe < log->pe_count && timeline.pes > 0; pe++)
        add_pe(log, pe, &timeline);
    if (timeline.pes > 0)
        timeline.mean = (kb_time)(timeline.in_kernels / (kb_time_sum)timeline.pes);
    return timeline;
}
