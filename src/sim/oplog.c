/*
 * oplog.c: sums over what was done, kept up as it is told.
 *
 * What a PE is doing, and what the run is doing, is a state that holds from one call to the next:
 * every call that may change one first charges the time since the last to the part that the old
 * state stands for. So each instant is charged once, and parts add up whatever is called when.
 *
 * Memory grows with the PEs that did something and with the different names, not with the run.
 */
#include "oplog.h"

#include <stdlib.h>
#include <string.h>

#include "sim/engine.h"

typedef struct unit_work {
    kb_time busy;
    kb_time since;      /* if there is one under way */
    uint32_t announced; /* operations under way */
    kb_time ahead_to;   /* of operations that were told ahead: `busy` has all of them up to here */
} unit_work;

/* A PE that did something. */
typedef struct pe_record {
    unit_work units[KB_UNITS];
    kb_split_time split; /* of the kernel that runs */
    kb_time charged_to;  /* its time up to here is in the split */
    uint32_t active[KB_ACTIVITIES];
    bool runs_kernel;
} pe_record;

/* Names are constants, so most are known by their address. */
enum { KNOWN_NAME_BITS = 8, KNOWN_NAMES = 1 << KNOWN_NAME_BITS };

typedef struct known_name {
    const char *name; /* NULL: none */
    size_t sum;       /* its index */
    kb_unit unit;
} known_name;

/* A record whose time has not come. */
typedef struct early_op {
    kb_op op;
    uint64_t order;
} early_op;

struct kb_oplog {
    kb_sim *sim;
    kb_op_fn *watch;
    void *watcher;
    KB_VEC(early_op) early; /* while somebody watches: a heap, by end and order of telling */
    uint64_t early_count;   /* ever */

    uint64_t pe_count;
    pe_record **pes; /* NULL until it does something */

    KB_VEC(kb_op_sum) sums; /* by unit, then name */
    known_name known[KNOWN_NAMES];

    kb_timeline timeline; /* its `pes` without the kernels that run */
    kb_time charged_to;   /* the run's time up to here is in the timeline */
    uint64_t kernels, requests;
    bool failed; /* there was no memory: the run ends, and sums mean nothing */
};

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
    made->pes = kb_alloc_zeroed(pes, sizeof(pe_record *));
    if (!made->pes) {
        free(made);
        return kb_error_nomem();
    }
    *log = made;
    return NULL;
}

void kb_oplog_destroy(kb_oplog *log)
{
    if (!log)
        return;
    for (uint64_t pe = 0; pe < log->pe_count; pe++)
        free(log->pes[pe]);
    kb_vec_fini(&log->early);
    kb_vec_fini(&log->sums);
    free(log->pes);
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
    return log->watch != NULL;
}

static void fail(kb_oplog *log)
{
    log->failed = true;
    kb_sim_fail(log->sim, kb_error_nomem());
}

/* NULL if there is no memory, or there once was none: ends without a beginning mean nothing. */
static pe_record *need_pe(kb_oplog *log, uint64_t pe)
{
    KB_ASSERT(pe < log->pe_count);
    if (KB_UNLIKELY(log->failed))
        return NULL;
    if (KB_UNLIKELY(!log->pes[pe])) {
        log->pes[pe] = kb_alloc_zeroed(1, sizeof(pe_record));
        if (!log->pes[pe])
            fail(log);
    }
    return log->pes[pe];
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

/* The first sum that does not come before (unit, name). */
static size_t place_of(const kb_oplog *log, kb_unit unit, const char *name)
{
    size_t low = 0, high = log->sums.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const kb_op_sum *s = &log->sums.items[middle];
        if (s->unit < unit || (s->unit == unit && strcmp(s->name, name) < 0))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* NULL if there is no memory. */
static kb_op_sum *insert_sum(kb_oplog *log, size_t at, kb_unit unit, const char *name)
{
    if (!kb_vec_reserve(&log->sums, 1))
        return NULL;
    kb_op_sum *here = &log->sums.items[at];
    memmove(here + 1, here, (log->sums.count - at) * sizeof *here);
    *here = (kb_op_sum){.unit = unit, .name = name};
    log->sums.count++;
    memset(log->known, 0, sizeof log->known); /* others have moved */
    return here;
}

static kb_op_sum *sum_of(kb_oplog *log, kb_unit unit, const char *name)
{
    uint64_t mixed = ((uintptr_t)name + (uint64_t)unit) * UINT64_C(0x9e3779b97f4a7c15);
    size_t slot = mixed >> (64 - KNOWN_NAME_BITS);
    known_name *known = &log->known[slot];
    if (KB_LIKELY(known->name == name && known->unit == unit))
        return &log->sums.items[known->sum];
    size_t at = place_of(log, unit, name);
    bool is_there = at < log->sums.count && log->sums.items[at].unit == unit &&
                    strcmp(log->sums.items[at].name, name) == 0;
    kb_op_sum *sum = is_there ? &log->sums.items[at] : insert_sum(log, at, unit, name);
    if (sum)
        *known = (known_name){.name = name, .sum = at, .unit = unit};
    return sum;
}

void kb_oplog_start(kb_oplog *log, uint64_t pe, kb_unit unit)
{
    pe_record *record = need_pe(log, pe);
    if (!record)
        return;
    unit_work *work = &record->units[unit];
    if (work->announced++ == 0)
        work->since = log->sim->now;
}

static void end_work(unit_work *work, kb_time start, kb_time end)
{
    if (work->announced == 0)
        work->busy += end - start;
    else if (--work->announced == 0)
        work->busy += end - work->since;
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

static void add_to_sum(kb_op_sum *sum, const kb_op_brief *op, kb_time end)
{
    sum->count++;
    sum->busy += end - op->start;
    sum->bytes += op->bytes;
    sum->flops += op->flops;
    sum->kernel_bytes += op->of_kernel ? op->bytes : 0;
}

/* The sums by name. False if there is no memory. */
static bool add_by_name(kb_oplog *log, const kb_op_brief *op, kb_time end)
{
    KB_ASSERT((size_t)op->unit < KB_UNITS && op->start <= end);
    kb_op_sum *sum = sum_of(log, op->unit, op->name);
    if (KB_UNLIKELY(!sum)) {
        fail(log);
        return false;
    }
    add_to_sum(sum, op, end);
    return true;
}

/* All sums. False if there is no memory. */
static bool add_up(kb_oplog *log, uint64_t pe, const kb_op_brief *op)
{
    kb_time end = log->sim->now;
    if (!add_by_name(log, op, end))
        return false;
    if (pe == KB_OPLOG_HOST)
        return true;
    pe_record *record = need_pe(log, pe);
    if (!record)
        return false;
    end_work(&record->units[op->unit], op->start, end);
    return true;
}

void kb_oplog_count_part(kb_oplog *log, const kb_op_brief *op)
{
    KB_ASSERT(!log->watch);
    (void)add_by_name(log, op, log->sim->now);
}

void kb_oplog_count(kb_oplog *log, uint64_t pe, const kb_op_brief *op)
{
    KB_ASSERT(!log->watch);
    (void)add_up(log, pe, op);
}

void kb_oplog_show(kb_oplog *log, const kb_op *op)
{
    KB_ASSERT(op->start <= op->end && op->end == log->sim->now);
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

void kb_oplog_add_ahead(kb_oplog *log, uint64_t pe, const kb_op *op)
{
    KB_ASSERT((size_t)op->unit < KB_UNITS && op->start <= op->end && op->start == log->sim->now);
    kb_op_sum *sum = sum_of(log, op->unit, op->name);
    pe_record *record = need_pe(log, pe);
    if (!sum || !record || (log->watch && !kb_vec_reserve(&log->early, 1))) {
        fail(log);
        return;
    }
    kb_op_brief brief = brief_of(op);
    add_to_sum(sum, &brief, op->end);
    unit_work *work = &record->units[op->unit];
    kb_time from = op->start > work->ahead_to ? op->start : work->ahead_to;
    if (op->end > from) {
        work->busy += op->end - from;
        work->ahead_to = op->end;
    }
    if (log->watch) {
        show_early(log, op->start);
        push_early(log, op);
    }
}

void kb_oplog_flush(kb_oplog *log)
{
    show_early(log, KB_FOREVER);
}

const kb_op_sum *kb_oplog_sums(kb_oplog *log, size_t *count)
{
    *count = log->sums.count;
    return log->sums.items;
}

kb_time kb_oplog_busy(const kb_oplog *log, uint64_t pe, kb_unit unit)
{
    KB_ASSERT(pe < log->pe_count);
    const pe_record *record = log->pes[pe];
    if (!record)
        return 0;
    const unit_work *work = &record->units[unit];
    kb_time now = log->sim->now;
    if (work->ahead_to > now) /* something is under way at every instant from now to there */
        return work->busy - (work->ahead_to - now);
    return work->busy + (work->announced > 0 ? now - work->since : 0);
}

/* ---- What a PE is doing ------------------------------------------------------------------ */

static kb_time *part_of(const pe_record *record, kb_split_time *split)
{
    if (record->active[KB_COMPUTING] > 0)
        return &split->compute;
    if (record->active[KB_MEMORY] > 0)
        return &split->memory;
    if (record->active[KB_COMMUNICATING] > 0)
        return &split->communication;
    return &split->idle;
}

/* The split of the kernel that runs, up to now. While none does it means nothing. */
static kb_split_time split_now(const kb_oplog *log, const pe_record *record)
{
    kb_split_time split = record->split;
    *part_of(record, &split) += log->sim->now - record->charged_to;
    return split;
}

static void charge_pe(const kb_oplog *log, pe_record *record)
{
    kb_time now = log->sim->now;
    *part_of(record, &record->split) += now - record->charged_to;
    record->charged_to = now;
}

void kb_oplog_begin(kb_oplog *log, uint64_t pe, kb_activity activity)
{
    pe_record *record = need_pe(log, pe);
    if (!record)
        return;
    charge_pe(log, record);
    record->active[activity]++;
}

void kb_oplog_end(kb_oplog *log, uint64_t pe, kb_activity activity)
{
    pe_record *record = need_pe(log, pe);
    if (!record)
        return;
    KB_ASSERT(record->active[activity] > 0);
    charge_pe(log, record);
    record->active[activity]--;
}

/* ---- What the run is doing --------------------------------------------------------------- */

static void charge_run(const kb_oplog *log, kb_timeline *timeline)
{
    kb_time passed = log->sim->now - log->charged_to;
    if (log->kernels > 0)
        timeline->kernels += passed;
    else if (log->requests > 0)
        timeline->communicating += passed;
    else
        timeline->idle += passed;
}

static void settle_run(kb_oplog *log)
{
    charge_run(log, &log->timeline);
    log->charged_to = log->sim->now;
}

static void add_split(kb_split_time *sum, kb_split_time split)
{
    sum->compute += split.compute;
    sum->memory += split.memory;
    sum->communication += split.communication;
    sum->idle += split.idle;
}

void kb_oplog_kernel_begin(kb_oplog *log, uint64_t pe)
{
    settle_run(log);
    log->kernels++;
    pe_record *record = need_pe(log, pe);
    if (!record)
        return;
    KB_ASSERT(!record->runs_kernel);
    record->runs_kernel = true;
    record->split = (kb_split_time){0};
    record->charged_to = log->sim->now;
}

kb_split_time kb_oplog_kernel_end(kb_oplog *log, uint64_t pe)
{
    KB_ASSERT(log->kernels > 0);
    settle_run(log);
    log->kernels--;
    pe_record *record = need_pe(log, pe);
    if (!record)
        return (kb_split_time){0};
    KB_ASSERT(record->runs_kernel);
    charge_pe(log, record);
    record->runs_kernel = false;
    add_split(&log->timeline.pes, record->split);
    return record->split;
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

kb_timeline kb_oplog_timeline(const kb_oplog *log)
{
    kb_timeline timeline = log->timeline;
    charge_run(log, &timeline);
    for (uint64_t pe = 0; pe < log->pe_count; pe++) {
        const pe_record *record = log->pes[pe];
        if (record && record->runs_kernel)
            add_split(&timeline.pes, split_now(log, record));
    }
    return timeline;
}
