/*
 * oplog.c: sums over what was done, kept up as it is told. causes.c has what the time of PEs goes
 * to.
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
    made->pe_memory = kb_alloc_zeroed(pes + 1, sizeof(pe_record));
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
    kb_vec_fini(&log->early);
    kb_vec_fini(&log->sums);
    kb_vec_fini(&log->sorted);
    kb_profile_destroy(log->profile);
    free(log->shown);
    free(log->pe_memory);
    free(log);
}

void kb_oplog_watch(kb_oplog *log, kb_op_fn *fn, void *self)
{
    kb_oplog_flush(log);
    log->watch = fn;
    log->watcher = self;
}

bool kb_oplog_is_watched(const kb_oplog *log)
{
    return log->watch || log->profile;
}

/* ---- Records whose time has not come ------------------------------------------------------ */

static bool comes_before(const early_op *a, const early_op *b)
{
    return a->op.end != b->op.end ? a->op.end < b->op.end : a->order < b->order;
}

/* There must be room. */
static void push_early(kb_oplog *log, const kb_op *op)
{
    early_op fresh = {.op = *op, .order = log->early_count++};
    early_op *heap = log->early.items;
    size_t at = log->early.count++;
    for (; at > 0 && comes_before(&fresh, &heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = fresh;
}

static kb_op pop_early(kb_oplog *log)
{
    early_op *heap = log->early.items;
    kb_op first = heap[0].op;
    early_op last = heap[--log->early.count];
    size_t at = 0, child, count = log->early.count;
    while ((child = 2 * at + 1) < count) {
        if (child + 1 < count && comes_before(&heap[child + 1], &heap[child]))
            child++;
        if (!comes_before(&heap[child], &last))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return first;
}

static void show_early(kb_oplog *log, kb_time up_to)
{
    while (log->early.count > 0 && log->early.items[0].op.end <= up_to) {
        kb_op op = pop_early(log);
        log->watch(log->watcher, &op);
    }
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

/* `known` is where the name belongs. NULL if there is no memory, and then the run fails. */
static __attribute__((noinline)) kb_op_sum *get_to_know(kb_oplog *log, kb_unit unit,
                                                        const char *name, known_name *known)
{
    uint32_t index;
    KB_ASSERT((size_t)unit < KB_UNITS);
    if (!find_sum(log, unit, name, &index)) {
        kb_sim_fail(log->sim, kb_error_nomem());
        return NULL;
    }
    if (log->known_count < MOST_KNOWN) {
        *known = (known_name){.name = name, .unit = unit, .sum = index};
        log->known_count++;
    }
    return &log->sums.items[index];
}

static inline kb_op_sum *sum_of(kb_oplog *log, kb_unit unit, const char *name)
{
    uint64_t mixed = ((uintptr_t)name + (uint64_t)unit) * UINT64_C(0x9e3779b97f4a7c15);
    for (size_t slot = mixed >> (64 - KNOWN_NAME_BITS);; slot = (slot + 1) % KNOWN_NAMES) {
        known_name *known = &log->known[slot];
        if (KB_LIKELY(known->name == name && known->unit == unit))
            return &log->sums.items[known->sum];
        if (!known->name)
            return get_to_know(log, unit, name, known);
    }
}

void kb_oplog_start(kb_oplog *log, uint64_t pe, kb_unit unit)
{
    unit_work *work = &record_of(log, pe)->units[unit];
    if (work->announced++ == 0)
        work->busy -= log->sim->now;
}

static void end_work(unit_work *work, kb_time start, kb_time end)
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
                         .bytes = op->bytes,
                         .flops = op->flops};
}

/* No sum of bytes or flops is larger than that of its unit, so none wraps around. */
static __attribute__((noinline, cold)) void fail_sum(const kb_oplog *log, const kb_op_brief *op)
{
    kb_sim_fail(log->sim, kb_error_new(KB_ERR_INPUT,
                                       "more than 2^63 - 1 bytes or floating-point operations in "
                                       "all in %s: use less work",
                                       kb_unit_name(op->unit)));
}

static inline bool is_within(uint64_t sum, uint64_t more)
{
    return KB_LIKELY(more <= (uint64_t)INT64_MAX - sum);
}

static void add_to_sum(kb_oplog *log, kb_op_sum *sum, const kb_op_brief *op, kb_time end)
{
    uint64_t *bytes = &log->unit_bytes[op->unit], *flops = &log->unit_flops[op->unit];
    if (!is_within(*bytes, op->bytes) || !is_within(*flops, op->flops)) {
        fail_sum(log, op);
        return;
    }
    *bytes += op->bytes;
    *flops += op->flops;
    sum->count++;
    sum->busy += end - op->start;
    sum->bytes += op->bytes;
    sum->flops += op->flops;
    sum->kernel_bytes += op->of_kernel ? op->bytes : 0;
}

/* The sums by name. False if there is no memory. */
static inline bool add_by_name(kb_oplog *log, const kb_op_brief *op, kb_time end)
{
    KB_ASSERT(op->start <= end);
    kb_op_sum *sum = sum_of(log, op->unit, op->name);
    if (KB_LIKELY(sum))
        add_to_sum(log, sum, op, end);
    return sum;
}

/* All sums. False if there is no memory. */
static inline bool add_up(kb_oplog *log, uint64_t pe, const kb_op_brief *op)
{
    kb_time end = log->sim->now;
    if (pe != KB_OPLOG_HOST)
        end_work(&record_of(log, pe)->units[op->unit], op->start, end);
    return add_by_name(log, op, end);
}

void kb_oplog_count_parts(kb_oplog *log, kb_unit unit, const char *name, uint64_t count,
                          kb_time busy)
{
    kb_op_sum *sum = sum_of(log, unit, name);
    if (!sum)
        return;
    sum->count += count;
    sum->busy += busy;
}

void kb_oplog_count(kb_oplog *log, uint64_t pe, const kb_op_brief *op)
{
    KB_ASSERT(!kb_oplog_is_watched(log));
    (void)add_up(log, pe, op);
}

void kb_oplog_show(kb_oplog *log, const kb_op *op)
{
    KB_ASSERT(op->start <= op->end && op->end == log->sim->now);
    if (log->profile && !kb_profile_count(log->profile, op))
        kb_sim_fail(log->sim, kb_error_nomem());
    if (!log->watch)
        return;
    show_early(log, op->end);
    log->watch(log->watcher, op);
}

void kb_oplog_add(kb_oplog *log, uint64_t pe, const kb_op *op)
{
    kb_op_brief brief = brief_of(op);
    if (add_up(log, pe, &brief))
        kb_oplog_show(log, op);
}

/* All sums. False if there is no memory. */
static inline bool add_up_ahead(kb_oplog *log, uint64_t pe, const kb_op_brief *op, kb_time end)
{
    KB_ASSERT(op->start == log->sim->now);
    if (!add_by_name(log, op, end))
        return false;
    log->told_ahead[op->unit] = true;
    unit_work *work = &record_of(log, pe)->units[op->unit];
    kb_time from = op->start > work->ahead_to ? op->start : work->ahead_to;
    if (end > from) {
        work->busy += end - from;
        work->ahead_to = end;
    }
    return true;
}

void kb_oplog_count_ahead(kb_oplog *log, uint64_t pe, const kb_op_brief *op, kb_time end)
{
    KB_ASSERT(!kb_oplog_is_watched(log));
    (void)add_up_ahead(log, pe, op, end);
}

void kb_oplog_add_ahead(kb_oplog *log, uint64_t pe, const kb_op *op)
{
    if (log->watch && !kb_vec_reserve(&log->early, 1)) {
        kb_sim_fail(log->sim, kb_error_nomem());
        return;
    }
    kb_op_brief brief = brief_of(op);
    if (add_up_ahead(log, pe, &brief, op->end) && log->watch) {
        show_early(log, op->start);
        push_early(log, op);
    }
}

void kb_oplog_flush(kb_oplog *log)
{
    show_early(log, KB_FOREVER);
    kb_oplog_flush_states(log);
}

static int by_unit_and_name(const void *a, const void *b)
{
    const kb_op_sum *x = a, *y = b;
    return x->unit != y->unit ? (int)x->unit - (int)y->unit : strcmp(x->name, y->name);
}

const kb_op_sum *kb_oplog_sums(kb_oplog *log, size_t *count)
{
    *count = log->sums.count;
    if (*count > 0) {
        memcpy(log->sorted.items, log->sums.items, *count * sizeof *log->sums.items);
        qsort(log->sorted.items, *count, sizeof *log->sorted.items, by_unit_and_name);
    }
    return log->sorted.items;
}

kb_time kb_oplog_busy(const kb_oplog *log, uint64_t pe, kb_unit unit)
{
    const unit_work *work = &record_of(log, pe)->units[unit];
    kb_time now = log->sim->now;
    if (!log->told_ahead[unit])
        return work->busy + (work->announced > 0 ? now : 0);
    /* Something is under way at every instant from now to there. */
    return work->busy - (work->ahead_to > now ? work->ahead_to - now : 0);
}
