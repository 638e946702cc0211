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

#include "base/base.h"

typedef struct unit_work {
    kb_time busy;
    kb_time since;      /* if there is one under way */
    uint32_t announced; /* operations under way */
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
enum { KNOWN_NAMES = 128 };

typedef struct known_name {
    const char *name; /* NULL: none */
    size_t sum;       /* its index */
    kb_unit unit;
} known_name;

struct kb_oplog {
    kb_sim *sim;
    kb_op_fn *watch;
    void *watcher;

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
    kb_vec_fini(&log->sums);
    free(log->pes);
    free(log);
}

void kb_oplog_watch(kb_oplog *log, kb_op_fn *fn, void *self)
{
    log->watch = fn;
    log->watcher = self;
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
    size_t slot = ((uintptr_t)name * 31 / 8 + (size_t)unit) % KNOWN_NAMES;
    known_name *known = &log->known[slot];
    if (KB_LIKELY(known->name == name && known->unit == unit))
        return &log->sums.items[known->sum];
    size_t at = place_of(log, unit, name);
    kb_op_sum *sum = at < log->sums.count ? &log->sums.items[at] : NULL;
    if (!sum || sum->unit != unit || strcmp(sum->name, name) != 0)
        sum = insert_sum(log, at, unit, name);
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
        work->since = kb_sim_now(log->sim);
}

static void end_work(unit_work *work, const kb_op *op)
{
    if (work->announced == 0)
        work->busy += op->end - op->start;
    else if (--work->announced == 0)
        work->busy += op->end - work->since;
}

void kb_oplog_add(kb_oplog *log, uint64_t pe, const kb_op *op)
{
    KB_ASSERT((size_t)op->unit < KB_UNITS && op->start <= op->end &&
              op->end == kb_sim_now(log->sim));
    kb_op_sum *sum = sum_of(log, op->unit, op->name);
    if (!sum) {
        fail(log);
        return;
    }
    sum->count++;
    sum->busy += op->end - op->start;
    sum->bytes += op->bytes;
    sum->flops += op->flops;
    if (pe != KB_OPLOG_HOST) {
        pe_record *record = need_pe(log, pe);
        if (!record)
            return;
        end_work(&record->units[op->unit], op);
    }
    if (log->watch)
        log->watch(log->watcher, op);
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
    return work->busy + (work->announced > 0 ? kb_sim_now(log->sim) - work->since : 0);
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
    *part_of(record, &split) += kb_sim_now(log->sim) - record->charged_to;
    return split;
}

static void charge_pe(kb_oplog *log, pe_record *record)
{
    record->split = split_now(log, record);
    record->charged_to = kb_sim_now(log->sim);
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
    kb_time passed = kb_sim_now(log->sim) - log->charged_to;
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
    log->charged_to = kb_sim_now(log->sim);
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
    record->charged_to = kb_sim_now(log->sim);
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
