/*
 * runner.c: kernels on PEs. A PE runs one at a time, in the order in which they were started. A
 * kernel is a coroutine that issues commands; it is done when the coroutine has ended and so has
 * every command that it issued, whichever comes last. Then its values go, the next one begins, and
 * who started it is told.
 *
 * A kernel that the simulator unwinds (kb_sim_abandon) is never done: it stays, with what it has,
 * until the runner is destroyed. So does one for which the host had no memory, as that fails the
 * run.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tl_private.h"

/* Enough to make the cost of synchronising small. */
enum { DEFAULT_WINDOW = 64 };

static void on_drained(kb_sim *sim, void *self, uint64_t arg);
static void on_release(kb_sim *sim, void *self, uint64_t arg);

kb_error *tl_runner_create(const tl_runner_options *options, tl_runner **out)
{
    *out = NULL;
    const topo_shape *shape = topo_machine_shape(options->machine);
    tl_runner *runner = kb_alloc_zeroed(1, sizeof *runner);
    tl_turns *turns = kb_alloc_zeroed(shape->pe_count, sizeof *turns);
    if (!runner || !turns) {
        free(turns);
        free(runner);
        return kb_error_nomem();
    }
    *runner = (tl_runner){
        .has = *options, .params = &shape->pe, .turns = turns, .pe_count = shape->pe_count};
    kb_slab_init(&runner->values, sizeof(tl_value));
    kb_slab_init(&runner->commands, sizeof(tl_command));
    kb_slab_init(&runner->details, sizeof(tl_details));
    kb_pool_init(&runner->receives, sizeof(tl_receive));
    runner->window = options->window > 0 ? options->window - 1 : DEFAULT_WINDOW;
    kb_error *err = kb_sim_add_handler(options->sim, on_drained, runner, &runner->on_drained);
    if (!err)
        err = kb_sim_add_handler(options->sim, on_release, runner, &runner->on_release);
    if (err) {
        tl_runner_destroy(runner);
        return err;
    }
    *out = runner;
    return NULL;
}

static void destroy_context(tl_context *tl)
{
    kb_vec_fini(&tl->open_accesses);
    tl_context_fini(tl);
    free(tl);
}

void tl_runner_destroy(tl_runner *runner)
{
    if (!runner)
        return;
    for (uint64_t pe = 0; pe < runner->pe_count; pe++) {
        tl_context *next;
        for (tl_context *tl = runner->turns[pe].first; tl; tl = next) {
            next = tl->next;
            destroy_context(tl);
        }
    }
    kb_pool_fini(&runner->receives);
    kb_slab_fini(&runner->details);
    kb_slab_fini(&runner->commands);
    kb_slab_fini(&runner->values);
    tl_free_tensor_names(runner);
    tl_order_release(runner->order);
    free(runner->turns);
    free(runner);
}

tl_stand_ins tl_runner_stand_ins(const tl_runner *runner)
{
    return runner->stand_ins;
}

/* ---- Beginning --------------------------------------------------------------------------- */

static void run_kernel(kb_co *co, void *arg)
{
    tl_context *tl = arg;
    kb_co_set_line(co, (kb_line){tl->run.kernel->file, tl->run.kernel->line});
    if (tl->cpu) {
        pe_cpu_begin(tl->cpu, co);
        tl->cpu->clock_by = (kb_reason){tl->id != 0 ? KB_REASON_LAUNCH : KB_REASON_NONE, tl->id};
        tl->cpu->clock = kb_time_add(tl->cpu->clock, tl->runner->params->cpu_overhead_fs);
        if (tl->synchronous)
            tl_synchronise(tl);
    }
    const kb_error *refused = tl->run.refused ? tl->run.refused(tl->run.self, tl->run.arg) : NULL;
    if (KB_UNLIKELY(refused != NULL)) {
        tl->error = kb_error_copy(refused);
        tl->over = true;
        return;
    }
    tl->run.kernel->run(tl, tl->run.args);
    if (KB_UNLIKELY(kb_co_is_unwinding(co)))
        return; /* after an error that tl_try() returned: what ends the kernel is that error */
    tl_await_receives(tl);
    tl_synchronise(tl);
    tl->over = true;
}

static void on_coroutine_end(void *arg)
{
    tl_context *tl = arg;
    tl->co = NULL;
    if (tl->awaits_credit_on)
        ipcq_stop_awaiting(tl->awaits_credit_on); /* also if it is abandoned */
    tl->awaits_credit_on = NULL;
    if (tl->over)
        tl_end_send(tl);
    if (tl->cpu) {
        tl->ended_by = tl->cpu->clock_by;
        pe_cpu_end(tl->cpu);
    }
    tl_context_progress(tl);
}

/* What the log is told of the kernel as a whole. */
static kb_op op_of(const tl_context *tl, kb_time end)
{
    const tl_run *run = &tl->run;
    return (kb_op){.unit = KB_UNIT_CPU,
                   .name = "kernel",
                   .label = run->label,
                   .pe = run->pe,
                   .start = tl->start,
                   .end = end,
                   .launch = run->launch,
                   .file = run->kernel->file,
                   .line = run->kernel->line,
                   .id = tl->id,
                   .begun_by = tl->begun_by,
                   .ended_by = tl->ended_by};
}

/* Whether something wants to be told of all that happens in the order of time. */
static bool is_watched(const tl_runner *runner)
{
    const tl_runner_options *has = &runner->has;
    return !has->instant &&
           (runner->window == 0 || kb_oplog_is_watched(has->log) ||
            mem_memories_is_tcm_watched(has->memories) || ipcq_is_traced(has->queues));
}

/* It is its turn. */
static kb_error *begin(tl_context *tl)
{
    tl_runner *runner = tl->runner;
    kb_pe pe = tl->run.pe;
    char name[128];
    const char *stream = tl->run.stream;
    snprintf(name, sizeof name, "%s%s%s on %s", tl->run.kernel->name, stream ? " in stream " : "",
             stream ? stream : "", topo_pe_name(pe).text);
    KB_TRY(tl_checked_begin(tl));
    if (!runner->has.instant) {
        tl->cpu = pe_units_cpu(runner->has.units, pe);
        if (!tl->cpu)
            return kb_error_nomem();
    }
    tl->synchronous = is_watched(runner);
    if (!runner->has.instant)
        tl->id = kb_oplog_new_id(runner->has.log);
    if (KB_UNLIKELY(tl->id != 0) && tl->begun_by.kind == KB_REASON_NONE)
        tl->begun_by = (kb_reason){KB_REASON_LAUNCH, kb_oplog_control_cause(runner->has.log)};
    KB_TRY(kb_co_spawn(runner->has.sim,
                       &(kb_co_options){.name = name,
                                        .source_id = runner->has.first_source + (uint32_t)tl->pe,
                                        .on_end = on_coroutine_end},
                       run_kernel, tl, &tl->co));
    tl->start = kb_sim_now(runner->has.sim);
    if (runner->has.instant)
        return NULL;
    for (int unit = 0; unit < KB_UNITS; unit++)
        tl->busy_before[unit] = kb_oplog_busy(runner->has.log, tl->pe, (kb_unit)unit);
    kb_oplog_kernel_begin(runner->has.log, tl->pe, tl->run.posted);
    if (KB_UNLIKELY(kb_oplog_is_watched(runner->has.log))) {
        kb_op op = op_of(tl, tl->start);
        kb_oplog_set_line(runner->has.log, tl->pe, op.end, &op);
    }
    kb_oplog_start(runner->has.log, tl->pe, tl->start, KB_UNIT_CPU);
    return NULL;
}

static uint64_t number_of(const tl_runner *runner, kb_pe pe)
{
    const topo_shape *shape = topo_machine_shape(runner->has.machine);
    KB_ASSERT(topo_has_pe(shape, pe));
    return ((uint64_t)pe.sip * shape->cubes + pe.cube) * shape->pes + pe.pe;
}

kb_error *tl_runner_start(tl_runner *runner, const tl_run *run)
{
    tl_context *tl = kb_alloc_zeroed(1, sizeof *tl);
    if (!tl)
        return kb_error_nomem();
    tl->runner = runner;
    tl->run = *run;
    tl->pe = number_of(runner, run->pe);
    tl->kernel = ++runner->started;
    tl_turns *turns = &runner->turns[tl->pe];
    kb_error *err = tl_context_init(tl);
    if (!err && !turns->first)
        err = begin(tl);
    if (err) {
        destroy_context(tl);
        return err;
    }
    *(turns->first ? &turns->last->next : &turns->first) = tl;
    turns->last = tl;
    return NULL;
}

/* ---- The end ----------------------------------------------------------------------------- */

static tl_outcome outcome_of(tl_context *tl)
{
    kb_oplog *log = tl->runner->has.log;
    tl_outcome outcome = {.start = tl->start, .end = kb_sim_now(tl->runner->has.sim)};
    if (tl->runner->has.instant)
        return outcome;
    for (int unit = 0; unit < KB_UNITS; unit++)
        outcome.busy[unit] = kb_oplog_busy(log, tl->pe, (kb_unit)unit) - tl->busy_before[unit];
    outcome.busy[KB_UNIT_CPU] = tl->issuing;
    if (tl->unlogged_issues > 0)
        kb_oplog_count_parts(log, KB_UNIT_CPU, "issue", tl->unlogged_issues,
                             (kb_time)tl->unlogged_issues * tl->runner->params->cpu_issue_fs);
    kb_op op = op_of(tl, outcome.end);
    kb_oplog_add(log, tl->pe, &op);
    kb_oplog_note_control(log, tl->id);
    kb_oplog_kernel_end(log, tl->pe, outcome.causes);
    return outcome;
}

/* The last command of a kernel's engines has ended. */
static void on_drained(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim;
    tl_runner *runner = self;
    tl_context *tl = runner->turns[arg].first;
    tl->under_way--;
    tl_note_end(tl, tl->cpu->last_to_end);
    tl_context_progress(tl);
}

static void on_release(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim;
    tl_runner *runner = self;
    if (runner->turns[arg].first)
        tl_collect_releases(runner->turns[arg].first);
}

void tl_schedule_release(tl_context *tl, kb_time at)
{
    pe_cpu_schedule(tl->cpu, at, tl->runner->on_release, tl->pe);
}

void tl_context_progress(tl_context *tl)
{
    if (tl->co || !tl->over || tl->under_way > 0)
        return;
    tl_runner *runner = tl->runner;
    if (tl->cpu && tl->cpu->engines_end > kb_sim_now(runner->has.sim)) {
        tl->under_way++; /* its engines: until on_drained() */
        pe_cpu_schedule(tl->cpu, tl->cpu->engines_end, runner->on_drained, tl->pe);
        return;
    }
    tl_outcome outcome = outcome_of(tl);
    if (tl->run.races && tl->run.over)
        tl->run.over(tl->run.self, tl->run.arg, tl_checked_end(tl));
    tl_run run = tl->run;
    kb_error *error = tl->error;
    tl_context *next = tl->next;
    tl->error = NULL;
    if (KB_UNLIKELY(tl->id != 0) && next)
        next->begun_by = (kb_reason){KB_REASON_UNIT, tl->id};
    runner->turns[tl->pe].first = next;
    destroy_context(tl);
    kb_error *err = next ? begin(next) : NULL;
    if (err)
        kb_sim_fail(runner->has.sim, err);
    run.done(run.self, run.arg, &outcome, error);
}

void tl_runner_show_unfinished(const tl_runner *runner)
{
    for (uint64_t pe = 0; pe < runner->pe_count; pe++) {
        tl_context *tl = runner->turns[pe].first;
        if (!tl)
            continue;
        kb_op op = op_of(tl, kb_sim_now(runner->has.sim));
        op.unfinished = true;
        op.ended_by = (kb_reason){0};
        tl_show_waits(tl);
        kb_oplog_show(runner->has.log, &op);
    }
}

/* ---- Ends before the end ----------------------------------------------------------------- */

void tl_context_stop(tl_context *tl, kb_error *err)
{
    if (tl->error)
        kb_error_free(err); /* that came first */
    else
        tl->error = err;
    tl->over = true;
    tl->stopped = true;
    tl_withdraw_receives(tl);
    if (!tl->co)
        tl_context_progress(tl);
    else if (tl->co != kb_sim_current(tl->runner->has.sim))
        kb_co_kill(tl->co); /* the caller's own ends with its next call */
}

/* One of the launch that has not begun, taken out of its list; NULL if there is none. */
static tl_context *take_queued(tl_turns *turns, uint64_t launch)
{
    for (tl_context *before = turns->first; before && before->next; before = before->next) {
        tl_context *tl = before->next;
        if (tl->run.launch != launch)
            continue;
        before->next = tl->next;
        if (turns->last == tl)
            turns->last = before;
        return tl;
    }
    return NULL;
}

/* The callee may start kernels, or abort more: lists are looked through anew each time. */
void tl_runner_abort(tl_runner *runner, uint64_t launch, const kb_error *why)
{
    for (uint64_t pe = 0; pe < runner->pe_count; pe++) {
        tl_turns *turns = &runner->turns[pe];
        tl_context *queued;
        while ((queued = take_queued(turns, launch)) != NULL) {
            kb_time now = kb_sim_now(runner->has.sim);
            tl_run run = queued->run;
            destroy_context(queued);
            run.done(run.self, run.arg, &(tl_outcome){.start = now, .end = now},
                     kb_error_copy(why));
        }
        if (turns->first && turns->first->run.launch == launch)
            tl_context_stop(turns->first, kb_error_copy(why));
    }
}
