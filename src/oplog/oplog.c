/*
 * oplog.c: sums over what was done, kept up as it is told. causes.c has what the time of PEs goes
 * to, merge_edges.c how most of it is applied, engine_work.c the operations of engines, ahead.c
 * what is told before its time.
 *
 * A unit that begins takes the time of day from the sum of its work, and gives it back when it
 * ends: between the two the sum lacks `now`. So each instant is counted once, and no beginning has
 * to be kept.
 *
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

const char *kb_reason_name(kb_reason_kind kind)
{
    static const char *const names[KB_REASON_KINDS] = {
        [KB_REASON_NONE] = "none",     [KB_REASON_LAUNCH] = "launch",
        [KB_REASON_ISSUE] = "issue",   [KB_REASON_ROOM] = "room",
        [KB_REASON_QUEUE] = "queue",   [KB_REASON_UNIT] = "unit",
        [KB_REASON_ORDER] = "order",   [KB_REASON_SPACE] = "space",
        [KB_REASON_INPUT] = "input",   [KB_REASON_MESSAGE] = "message",
        [KB_REASON_CREDIT] = "credit", [KB_REASON_TRANSFER] = "transfer",
        [KB_REASON_TCM] = "tcm",       [KB_REASON_WORK] = "work",
    };
    return (size_t)kind < KB_REASON_KINDS ? names[kind] : "?";
}

kb_error *kb_oplog_create(kb_sim *sim, uint64_t pes, kb_oplog **log)
{
    *log = NULL;
    kb_oplog *made = kb_alloc_zeroed(1, sizeof *made);
    if (!made)
        return kb_error_nomem();
    made->sim = sim;
    made->clock = kb_sim_get_clock(sim);
    made->pe_count = pes;
    made->charged_to = kb_sim_now(sim);
    kb_oplog_make_states(made);
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
    return log->watched;
}

void kb_oplog_give_ids(kb_oplog *log)
{
    log->gives_ids = true;
}

uint32_t kb_oplog_new_id(kb_oplog *log)
{
    if (KB_LIKELY(!log->gives_ids || !log->watch))
        return 0;
    if (log->last_id == UINT32_MAX) {
        kb_sim_fail(log->sim, kb_error_new(KB_ERR_INPUT, "more than 2^32 - 1 operations: their "
                                                         "reasons cannot be recorded"));
        return 0;
    }
    return ++log->last_id;
}

/* ---- Operations -------------------------------------------------------------------------- */

/* The index of the sum, which is made if there is none; false if there is no memory. */
static bool find_sum(kb_oplog *log, kb_unit unit, const char *name, uint32_t *index)
{
    size_t count = log->sums.count;
    for (*index = 0; *index < count; ++*index) {
        const op_sum *sum = &log->sums.items[*index];
        if (sum->unit == unit && strcmp(sum->name, name) == 0)
            return true;
    }
    if (!kb_vec_reserve(&log->sorted, count + 1))
        return false;
    return kb_vec_push(&log->sums, ((op_sum){.unit = unit, .name = name}));
}

/* `known` is where the name belongs. NO_SUM if there is no memory, and then the run fails. */
static __attribute__((noinline)) uint32_t get_to_know(kb_oplog *log, kb_unit unit, const char *name,
                                                      known_name *known)
{
    uint32_t index;
    if (!find_sum(log, unit, name, &index)) {
        kb_oplog_fail_memory(log);
        return NO_SUM;
    }
    if (log->known_count[unit] < MAX_KNOWN) {
        *known = (known_name){.name = name, .sum = index};
        log->known_count[unit]++;
    }
    return index;
}

__attribute__((noinline)) uint32_t kb_oplog_find_known(kb_oplog *log, kb_unit unit,
                                                       const char *name)
{
    KB_ASSERT((size_t)unit < KB_UNITS);
    for (size_t slot = slot_of(name);; slot = (slot + 1) % KNOWN_NAMES) {
        known_name *known = &log->known[unit][slot];
        if (known->name == name)
            return known->sum;
        if (!known->name)
            return get_to_know(log, unit, name, known);
    }
}

/* An edge of a unit comes after what was told ahead of it for the same instant. */
static void apply_transitions(kb_oplog *log, pe_record *record)
{
    if (record->next_due <= log->clock->now)
        catch_up(log, record);
}

void kb_oplog_start(kb_oplog *log, uint64_t pe, kb_time at, kb_unit unit)
{
    pe_record *record = record_of(log, pe);
    apply_transitions(log, record);
    edge *e = is_ahead(log, at) ? NULL : append_edge(log, record, at, 1);
    if (e) {
        e->kind = UNIT_EDGE_STARTS;
        e->unit = (uint8_t)unit;
        return;
    }
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

__attribute__((cold)) void kb_oplog_fail_sum(const kb_oplog *log, kb_unit unit)
{
    kb_sim_fail(log->sim, kb_error_new(KB_ERR_INPUT,
                                       "more than 2^63 - 1 bytes or floating-point operations in "
                                       "all in %s: use less work",
                                       kb_unit_name(unit)));
}

static inline void add_brief(kb_oplog *log, uint32_t sum, const kb_op_brief *op)
{
    (void)add_to_sum(log, sum, op->unit, op->of_kernel, op->end - op->start, op->bytes, op->flops);
}

void kb_oplog_count_run(kb_oplog *log, op_run *run)
{
    if (run->count == 0)
        return;
    uint32_t index = sum_of(log, (kb_unit)run->unit, run->name);
    if (index != NO_SUM && add_to_sum(log, index, (kb_unit)run->unit, run->of_kernel,
                                      (kb_time)run->time, run->bytes, run->flops))
        log->sums.items[index].count += run->count - 1;
    run->time = run->bytes = run->flops = 0;
    run->count = 0;
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
    add_busy(&log->sums.items[index], busy);
}

/* ---- Operations that end ------------------------------------------------------------------ */

static inline void fill_op(transition *t, transition_kind kind, uint32_t sum, const kb_op_brief *op)
{
    t->start = op->start;
    t->end = op->end;
    t->bytes = op->bytes;
    t->flops = op->flops;
    t->sum = sum;
    t->kind = (uint8_t)kind;
    t->unit = (uint8_t)op->unit;
    t->of_kernel = op->of_kernel;
}

/* All sums, but for the profile. False if there is no memory. */
static bool add_up(kb_oplog *log, uint64_t pe, const kb_op_brief *op, uint32_t key)
{
    KB_ASSERT(op->start <= op->end);
    pe_record *record = record_or_host(log, pe);
    uint32_t sum = sum_of(log, op->unit, op->name);
    if (KB_UNLIKELY(sum == NO_SUM))
        return false;
    if (is_ahead(log, op->end)) {
        transition *t = kb_oplog_insert(log, record, op->end);
        if (t) {
            fill_op(t, OP_ENDS, sum, op);
            t->key = key;
        }
        return true;
    }
    catch_up(log, record);
    if (pe != KB_OPLOG_HOST)
        end_unit(record, op->unit, op->start, op->end);
    add_brief(log, sum, op);
    return true;
}

void kb_oplog_count(kb_oplog *log, uint64_t pe, const kb_op_brief *op)
{
    KB_ASSERT(!log->watched && op->start <= op->end);
    apply_transitions(log, record_of(log, pe));
    bool is_edge = !is_ahead(log, op->end) && op->bytes <= UINT32_MAX && op->flops == 0;
    edge *e = is_edge ? append_edge(log, record_of(log, pe), op->end, 2) : NULL;
    if (!e) {
        (void)add_up(log, pe, op, NO_KEY);
        return;
    }
    e->bytes = (uint32_t)op->bytes;
    e->kind = UNIT_EDGE_ENDS;
    e->unit = (uint8_t)op->unit;
    e->of_kernel = op->of_kernel;
    e[1].start = op->start;
    e[1].name = op->name;
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

void kb_oplog_show_at_end(kb_oplog *log, const kb_op *op)
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
    kb_oplog_show_at_end(log, op);
}

void kb_oplog_add(kb_oplog *log, uint64_t pe, const kb_op *op)
{
    kb_op_brief brief = brief_of(op);
    uint32_t key = key_to_count(log, op);
    if (!add_up(log, pe, &brief, key))
        return;
    if (key != NO_KEY && !is_ahead(log, op->end))
        kb_profile_count(log->profile, key, op->bytes, op->flops);
    kb_oplog_show_at_end(log, op);
}

/* ---- Operations that count when they begin ------------------------------------------------ */

/* All sums. False if there is no memory. */
static inline bool add_up_span(kb_oplog *log, pe_record *record, const kb_op_brief *op)
{
    KB_ASSERT(op->start <= op->end);
    uint32_t sum = sum_of(log, op->unit, op->name);
    if (KB_UNLIKELY(sum == NO_SUM))
        return false;
    log->has_spans[op->unit] = true;
    bool ahead = is_ahead(log, op->start);
    transition *t = insert_transition(log, record, op->start);
    if (!t)
        return true; /* the run fails */
    fill_op(t, SPAN_BEGINS, sum, op);
    if (!ahead && log->detailed)
        catch_up(log, record);
    return true;
}

void kb_oplog_tell_span(kb_oplog *log, pe_record *record, kb_unit unit, const char *name,
                        kb_time start, kb_time end, uint64_t bytes)
{
    kb_op_brief op = {.unit = unit, .name = name, .start = start, .end = end, .bytes = bytes};
    (void)add_up_span(log, record, &op);
}

void kb_oplog_add_ahead(kb_oplog *log, uint64_t pe, const kb_op *op)
{
    kb_op_brief brief = brief_of(op);
    if (!add_up_span(log, record_of(log, pe), &brief) || !log->watch)
        return;
    kb_oplog_show_early(log);
    kb_oplog_keep_record(log, op, op->start);
}

/* ---- Sums --------------------------------------------------------------------------------- */

static int by_unit_and_name(const void *a, const void *b)
{
    const kb_op_sum *x = a, *y = b;
    return x->unit != y->unit ? (int)x->unit - (int)y->unit : strcmp(x->name, y->name);
}

static kb_op_sum shown_sum(const op_sum *sum)
{
    return (kb_op_sum){.unit = sum->unit,
                       .name = sum->name,
                       .count = sum->count,
                       .busy = (kb_time_sum)sum->busy_high << 64 | sum->busy_low,
                       .bytes = sum->bytes,
                       .flops = sum->flops,
                       .kernel_bytes = sum->kernel_bytes};
}

/* The sums get operations that have ended but are not counted, or lack them again. */
static void show_worked(kb_oplog *log, bool back)
{
    for (uint32_t next = log->ahead_pes; next != 0; next = log->pes[next - 1].next_ahead) {
        const pe_record *record = &log->pes[next - 1];
        kb_oplog_count_runs(log, record);
        kb_oplog_show_worked(log, record, back);
    }
}

const kb_op_sum *kb_oplog_sums(kb_oplog *log, size_t *count)
{
    kb_oplog_apply_all_due(log);
    show_worked(log, false);
    *count = 0;
    for (size_t i = 0; i < log->sums.count; i++)
        if (log->sums.items[i].count > 0) /* else it is of operations that end later */
            log->sorted.items[(*count)++] = shown_sum(&log->sums.items[i]);
    show_worked(log, true);
    if (*count > 0)
        qsort(log->sorted.items, *count, sizeof *log->sorted.items, by_unit_and_name);
    return log->sorted.items;
}

kb_time kb_oplog_busy(kb_oplog *log, uint64_t pe, kb_unit unit)
{
    pe_record *record = record_of(log, pe);
    catch_up(log, record);
    const unit_work *work = &record->units[unit];
    kb_time now = log->clock->now;
    if (record->ops && !log->detailed && (unit == KB_UNIT_GEMM || unit == KB_UNIT_MATH))
        return kb_oplog_engine_busy(log, record, unit);
    if (!log->has_spans[unit])
        return work->busy + (work->announced > 0 ? now : 0);
    /* Something is under way at every instant from now to there. */
    return work->busy - (work->ahead_to > now ? work->ahead_to - now : 0);
}
