/*
 * run_states.c: what the run as a whole is doing, and what the time of PEs that have no kernel goes
 * to; causes.c has that of kernels.
 *
 * Of a PE that takes part in the run but has no kernel nothing is charged at first. The kernel
 * clock, which runs while any kernel does, tells how much there is when its next kernel begins or
 * the run ends, so no PE is visited meanwhile.
 */
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
    for (uint64_t pe = 0; pe < log->pe_count && log->kernels > 0; pe++) {
        if (!log->pes[pe].runs_kernel)
            continue;
        catch_up(log, &log->pes[pe]);
        kb_oplog_charge(log, &log->pes[pe], log->clock->now);
    }
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
    log->watched = log->watched || log->profile;
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
    kb_time passed = log->clock->now - log->charged_to;
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
    log->charged_to = log->clock->now;
}

kb_time kb_oplog_kernel_clock(const kb_oplog *log)
{
    kb_time passed = log->clock->now - log->charged_to;
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
    KB_ASSERT(!record->runs_kernel); /* H7 */
    kb_oplog_charge(log, record, log->clock->now);
    kb_oplog_count_worked(log, record);
    log->timeline.pes += !record->takes_part;
    record->takes_part = true;
    charge_gap(log, record, posted);
    record->runs_kernel = true;
    kb_oplog_find_state(record);
    record->since = record->kernel_start = log->clock->now;
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
    kb_oplog_charge(log, record, log->clock->now);
    kb_oplog_count_worked(log, record);
    kb_oplog_count_runs(log, record);
    work_so_far work = kb_oplog_work_so_far(log, record);
    record->charged[KB_CAUSE_MATRIX] += work.matrix;
    record->charged[KB_CAUSE_VECTOR] += work.vector;
    log->timeline.both_engines += work.both;
    record->runs_kernel = false;
    record->in_kernels += log->clock->now - record->kernel_start;
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
        in_kernels += log->clock->now - record->kernel_start;
        for (int c = 0; c < KB_CAUSES; c++)
            timeline->causes[c] += record->charged[c];
        work_so_far work = kb_oplog_work_so_far(log, record);
        timeline->causes[KB_CAUSE_MATRIX] += work.matrix;
        timeline->causes[KB_CAUSE_VECTOR] += work.vector;
        timeline->both_engines += work.both;
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
