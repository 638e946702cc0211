/*
 * oplog.c: sums over what was done, kept up as it is told. causes.c has what the time of PEs goes
 * to, ahead.c what is told before its time.
 *
 * A unit that begins takes the time of day from the sum of its work, and gives it back when it
 * ends: between the two the sum lacks `now`. So each instant is counted once, and no beginning has
 * to be kept.
 *
 * This is called some twenty times for a message, so it is kept to a few instructions a call.
 * Memory grows with the PEs (pages of idle PEs are not touched) and with the different names, not
 * with the run.
 */
#include <stdlib.h>
#include <string.h>

#include "oplog_private.h"

const char *kb_unit_name(kb_unit unit)
{
    static const char *const names[KB_UNITS] = {
        [KB_UNIT_HOST] = "host",
        [KB_UNIT_CPU] = "pe_cpu",
        [KB_UNIT_DMA_READ] = "pe_dma_read",
        [KB_UNIT_DMA_WRITE] = "pe_dma_write",
        [KB_UNIT_GEMM] = "pe_gemm",
        [KB_UNIT_MATH] = "pe_math",
        [KB_UNIT_SCHEDULER] = "pe_scheduler",
        [KB_UNIT_IPCQ] = "pe_ipcq",
    };
    return (size_t)unit < KB_UNITS ? names[unit] : "?";
}

kb_error *kb_oplog_create(kb_sim *sim, uint64_t pes, kb_oplog **log)
{
    *log = NULL;
    kb_oplog *made = kb_alloc_zeroed(1, sizeof *made);
    if (!made)
        return kb_error_nomem();
    made->sim = sim;
    made->pe_count = pes;
    made->charged_to = kb_sim_now(sim);
    made->pe_memory = kb_alloc_zeroed(pes + 2, sizeof(pe_record));
    if (!made->pe_memory) {
        free(made);
        return kb_error_nomem();
    }
    made->pes = (pe_record *)(((uintptr_t)made->pe_memory + 63) & ~(uintptr_t)63);
    *log = made;
    return NULL;
}

void kb_oplog_destroy(kb_oplog *log)
{
    if (!log)
        return;
    kb_oplog_drop_ahead(log);
    kb_vec_fini(&log->sums);
    kb_vec_fini(&log->sorted);
    kb_profile_destroy(log->profile);
    free(log->shown);
    free(log->pe_memory);
    free(log);
}

bool kb_oplog_is_watched(const kb_oplog *log)
{
    return log->watch || log->profile;
}

/* ---- Operations -------------------------------------------------------------------------- */

/* The index of the sum, which is made if there is none; false if there is no memory. */
static bool find_sum(kb_oplog *log, kb_unit unit, const char *name, uint32_t *index)
{
    size_t count = log->sums.count;
    for (*index = 0; *index < count; ++*index) {
        const kb_op_sum *sum = &log->sums.items[*index];
        if (sum->unit == unit && strcmp(sum->name, name) == 0)
            return true;
    }
    if (!kb_vec_reserve(&log->sorted, count + 1))
        return false;
    return kb_vec_push(&log->sums, ((kb_op_sum){.unit = unit, .name = name}));
}

enum { NO_SUM = UINT32_MAX };

/* `known` is where the name belongs. NO_SUM if there is no memory, and then the run fails. */
static __attribute__((noinline)) uint32_t get_to_know(kb_oplog *log, kb_unit unit, const char *name,
                                                      known_name *known)
{
    uint32_t index;
    KB_ASSERT((size_t)unit < KB_UNITS);
    if (!find_sum(log, unit, name, &index)) {
        kb_oplog_fail_memory(log);
        return NO_SUM;
    }
    if (log->known_count < MOST_KNOWN) {
        *known = (known_name){.name = name, .unit = unit, .sum = index};
        log->known_count++;
    }
    return index;
}

/* The index of the sum, or NO_SUM. */
static inline uint32_t sum_of(kb_oplog *log, kb_unit unit, const char *name)
{
    uint64_t mixed = ((uintptr_t)name + (uint64_t)unit) * UINT64_C(0x9e3779b97f4a7c15);
    for (size_t slot = mixed >> (64 - KNOWN_NAME_BITS);; slot = (slot + 1) % KNOWN_NAMES) {
        known_name *known = &log->known[slot];
        if (KB_LIKELY(known->name == name && known->unit == unit))
            return known->sum;
        if (!known->name)
            return get_to_know(log, unit, name, known);
    }
}

void kb_oplog_start(kb_oplog *log, uint64_t pe, kb_time at, kb_unit unit)
{
    pe_record *record = record_of(log, pe);
    if (!is_ahead(log, at)) {
        catch_up(log, record);
        start_unit(record, unit, at);
        return;
    }
    transition *t = insert_transition(log, record, at);
    if (!t)
        return;
    t->kind = UNIT_STARTS;
    t->unit = (uint8_t)unit;
}

static inline void end_work(unit_work *work, kb_time start, kb_time end)
{
    if (work->announced == 0)
        work->busy += end - start;
    else if (--work->announced == 0)
        work->busy += end;
}

static kb_op_brief brief_of(const kb_op *op)
{
    return (kb_op_brief){.name = op->name,
                         .unit = op->unit,
                         .of_kernel = op->launch != 0,
                         .start = op->start,
                         .end = op->end,
                         .bytes = op->bytes,
                         .flops = op->flops};
}

/* No sum of bytes or flops is larger than that of its unit, so none wraps around. */
static __attribute__((noinline, cold)) void fail_sum(const kb_oplog *log, kb_unit unit)
{
    kb_sim_fail(log->sim, kb_error_new(KB_ERR_INPUT,
                                       "more than 2^63 - 1 bytes or floating-point operations in "
                                       "all in %s: use less work",
                                       kb_unit_name(unit)));
}

static inline bool is_within(uint64_t sum, uint64_t more)
{
    return KB_LIKELY(more <= (uint64_t)INT64_MAX - sum);
}

static inline void add_to_sum(kb_oplog *log, uint32_t index, kb_unit unit, bool of_kernel,
                              kb_time time, uint64_t bytes, uint64_t flops)
{
    kb_op_sum *sum = &log->sums.items[index];
    uint64_t *all_bytes = &log->unit_bytes[unit], *all_flops = &log->unit_flops[unit];
    if (!is_within(*all_bytes, bytes) || !is_within(*all_flops, flops)) {
        fail_sum(log, unit);
        return;
    }
    *all_bytes += bytes;
    *all_flops += flops;
    sum->count++;
    sum->busy += time;
    sum->bytes += bytes;
    sum->flops += flops;
    sum->kernel_bytes += of_kernel ? bytes : 0;
}

static inline void add_brief(kb_oplog *log, uint32_t sum, const kb_op_brief *op)
{
    add_to_sum(log, sum, op->unit, op->of_kernel, op->end - op->start, op->bytes, op->flops);
}

static inline pe_record *record_or_host(const kb_oplog *log, uint64_t pe)
{
    return pe == KB_OPLOG_HOST ? record_without_pe(log) : record_of(log, pe);
}

void kb_oplog_count_parts(kb_oplog *log, kb_unit unit, const char *name, uint64_t count,
                          kb_time busy)
{
    uint32_t index = sum_of(log, unit, name);
    if (index == NO_SUM)
        return;
    log->sums.items[index].count += count;
    log->sums.items[index].busy += busy;
}

/* ---- Operations that end ------------------------------------------------------------------ */

void kb_oplog_apply_op_end(kb_oplog *log, pe_record *record, const transition *t)
{
    end_work(&record->units[t->unit], t->start, t->at);
    add_to_sum(log, t->sum, (kb_unit)t->unit, t->of_kernel, t->at - t->start, t->bytes, t->flops);
    if (KB_UNLIKELY(log->profile) && t->key != NO_KEY)
        kb_profile_count(log->profile, t->key, t->bytes, t->flops);
}

static void insert_op(kb_oplog *log, pe_record *record, transition_kind kind, uint32_t sum,
                      const kb_op_brief *op, uint32_t key)
{
    transition *t = insert_transition(log, record, kind == SPAN_BEGINS ? op->start : op->end);
    if (!t)
        return;
    t->start = op->start;
    t->end = op->end;
    t->bytes = op->bytes;
    t->flops = op->flops;
    t->sum = sum;
    t->key = key;
    t->kind = (uint8_t)kind;
    t->unit = (uint8_t)op->unit;
    t->of_kernel = op->of_kernel;
}

/* All sums, but for the profile. False if there is no memory. */
static inline bool add_up(kb_oplog *log, uint64_t pe, const kb_op_brief *op, uint32_t key)
{
    KB_ASSERT(op->start <= op->end);
    pe_record *record = record_or_host(log, pe);
    uint32_t sum = sum_of(log, op->unit, op->name);
    if (KB_UNLIKELY(sum == NO_SUM))
        return false;
    if (is_ahead(log, op->end)) {
        insert_op(log, record, OP_ENDS, sum, op, key);
        return true;
    }
    catch_up(log, record);
    if (pe != KB_OPLOG_HOST)
        end_work(&record->units[op->unit], op->start, op->end);
    add_brief(log, sum, op);
    return true;
}

void kb_oplog_count(kb_oplog *log, uint64_t pe, const kb_op_brief *op)
{
    KB_ASSERT(!kb_oplog_is_watched(log));
    (void)add_up(log, pe, op, NO_KEY);
}

uint32_t kb_oplog_find_key(kb_oplog *log, const kb_op *op)
{
    uint32_t key = 0;
    if (log->profile && !kb_profile_find_key(log->profile, op, &key))
        kb_oplog_fail_memory(log);
    return key;
}

/* NO_KEY if the profile does not count it. */
static uint32_t key_to_count(kb_oplog *log, const kb_op *op)
{
    return log->profile && kb_profile_counts(op) ? kb_oplog_find_key(log, op) : NO_KEY;
}

/* The record goes to the watcher at its end. */
static void show_at_end(kb_oplog *log, const kb_op *op)
{
    if (!log->watch)
        return;
    kb_oplog_show_early(log);
    if (is_ahead(log, op->end))
        kb_oplog_keep_record(log, op, op->end);
    else
        log->watch(log->watcher, op);
}

void kb_oplog_show(kb_oplog *log, const kb_op *op)
{
    KB_ASSERT(op->start <= op->end);
    bool ahead = is_ahead(log, op->end);
    pe_record *record = record_without_pe(log);
    catch_up(log, record);
    uint32_t key = key_to_count(log, op);
    if (key != NO_KEY && ahead) {
        transition *t = insert_transition(log, record, op->end);
        if (t) {
            t->kind = ROW_COUNTS;
            t->key = key;
            t->bytes = op->bytes;
            t->flops = op->flops;
        }
    } else if (key != NO_KEY) {
        kb_profile_count(log->profile, key, op->bytes, op->flops);
    }
    show_at_end(log, op);
}

void kb_oplog_add(kb_oplog *log, uint64_t pe, const kb_op *op)
{
    kb_op_brief brief = brief_of(op);
    uint32_t key = key_to_count(log, op);
    if (!add_up(log, pe, &brief, key))
        return;
    if (key != NO_KEY && !is_ahead(log, op->end))
        kb_profile_count(log->profile, key, op->bytes, op->flops);
    show_at_end(log, op);
}

/* ---- Operations that count when they begin ------------------------------------------------ */

static void add_span(kb_oplog *log, unit_work *work, kb_unit unit, kb_time start, kb_time end)
{
    log->has_spans[unit] = true;
    kb_time from = start > work->ahead_to ? start : work->ahead_to;
    if (end > from) {
        work->busy += end - from;
        work->ahead_to = end;
    }
}

void kb_oplog_apply_span(kb_oplog *log, pe_record *record, const transition *t)
{
    add_to_sum(log, t->sum, (kb_unit)t->unit, t->of_kernel, t->end - t->at, t->bytes, t->flops);
    add_span(log, &record->units[t->unit], (kb_unit)t->unit, t->at, t->end);
}

/* All sums. False if there is no memory. */
static inline bool add_up_span(kb_oplog *log, uint64_t pe, const kb_op_brief *op)
{
    KB_ASSERT(op->start <= op->end);
    pe_record *record = record_of(log, pe);
    uint32_t sum = sum_of(log, op->unit, op->name);
    if (KB_UNLIKELY(sum == NO_SUM))
        return false;
    if (is_ahead(log, op->start)) {
        insert_op(log, record, SPAN_BEGINS, sum, op, NO_KEY);
        return true;
    }
    catch_up(log, record);
    add_brief(log, sum, op);
    add_span(log, &record->units[op->unit], op->unit, op->start, op->end);
    return true;
}

void kb_oplog_count_ahead(kb_oplog *log, uint64_t pe, const kb_op_brief *op)
{
    KB_ASSERT(!kb_oplog_is_watched(log));
    (void)add_up_span(log, pe, op);
}

void kb_oplog_add_ahead(kb_oplog *log, uint64_t pe, const kb_op *op)
{
    kb_op_brief brief = brief_of(op);
    if (!add_up_span(log, pe, &brief) || !log->watch)
        return;
    kb_oplog_show_early(log);
    kb_oplog_keep_record(log, op, op->start);
}

/* ---- Operations of engines ---------------------------------------------------------------- */

void kb_oplog_work(kb_oplog *log, uint64_t pe, const kb_work *work)
{
    KB_ASSERT(work->start <= work->free_at && work->free_at <= work->end);
    pe_record *record = record_of(log, pe);
    uint32_t sum = sum_of(log, work->unit, work->name);
    if (KB_UNLIKELY(sum == NO_SUM))
        return;
    uint32_t key = KB_UNLIKELY(log->profile) ? kb_oplog_find_key(log, work->op) : NO_KEY;
    /* One that starts now is put in place like others: then there is one way to apply it. */
    bool ahead = is_ahead(log, work->start);
    transition *t = insert_transition(log, record, work->start);
    if (!t)
        return;
    t->free_at = work->free_at;
    t->end = work->end;
    t->bytes = work->bytes;
    t->flops = work->flops;
    t->sum = sum;
    t->key = key;
    t->kind = ENGINE_STARTS;
    t->unit = (uint8_t)work->unit;
    t->of_kernel = work->of_kernel;
    if (!ahead)
        catch_up(log, record);
    if (KB_UNLIKELY(log->watch))
        show_at_end(log, work->op);
}

/* ---- Sums --------------------------------------------------------------------------------- */

static int by_unit_and_name(const void *a, const void *b)
{
    const kb_op_sum *x = a, *y = b;
    return x->unit != y->unit ? (int)x->unit - (int)y->unit : strcmp(x->name, y->name);
}

const kb_op_sum *kb_oplog_sums(kb_oplog *log, size_t *count)
{
    kb_oplog_apply_all_due(log);
    *count = 0;
    for (size_t i = 0; i < log->sums.count; i++)
        if (log->sums.items[i].count > 0) /* else it is of operations that end later */
            log->sorted.items[(*count)++] = log->sums.items[i];
    if (*count > 0)
        qsort(log->sorted.items, *count, sizeof *log->sorted.items, by_unit_and_name);
    return log->sorted.items;
}

kb_time kb_oplog_busy(kb_oplog *log, uint64_t pe, kb_unit unit)
{
    pe_record *record = record_of(log, pe);
    catch_up(log, record);
    const unit_work *work = &record->units[unit];
    kb_time now = log->sim->now;
    if (!log->has_spans[unit])
        return work->busy + (work->announced > 0 ? now : 0);
    /* Something is under way at every instant from now to there. */
    return work->busy - (work->ahead_to > now ? work->ahead_to - now : 0);
}
