/*
 * command.c: operations on their way through the units. The pe_cpu takes its time to issue one, and
 * waits while the unit's queue is full.
 *
 * Numbers are described when a command begins, not when it is issued: then what its inputs are made
 * by is done, so their data is there, and memory is as the program's order has it. What is made of
 * numbers alone is described at once, so that masks of it are known when they are needed.
 */
#include <string.h>

#include "tl_private.h"

kb_error *tl_operand_data(tl_context *tl, const tl_operand *operand, data_value **data)
{
    data_store *store = tl->runner->has.store;
    kb_shape shape = tl_shape_of(&operand->shape);
    if (!operand->value)
        return data_full(store, operand->dtype, &shape, operand->number, data);
    data_value *has = operand->value->data;
    KB_ASSERT(has);
    const kb_shape *is = data_shape(has);
    if (operand->first == 0 && is->rank == shape.rank &&
        memcmp(is->dims, shape.dims, shape.rank * sizeof *is->dims) == 0) {
        *data = data_retain(has);
        return NULL;
    }
    return data_part(store, has, operand->first, &shape, data);
}

/* ---- Commands ---- */

static void count_input(const tl_call *call, tl_command *command, tl_value *value)
{
    value->refs++;
    value->commands++;
    value->readers++;
    if (KB_UNLIKELY(value->after != 0))
        command->after = tl_join(call, command->after, value->after);
}

static void count_result(tl_value *value)
{
    value->refs++;
    value->commands++;
}

static tl_command *take_command(const tl_call *call)
{
    tl_context *tl = call->tl;
    uint32_t index = kb_pool_take(&tl->runner->commands);
    if (index == 0)
        tl_fail(call, kb_error_nomem());
    tl_command *command = kb_pool_at(&tl->runner->commands, index);
    memset(&command->conclude, 0, offsetof(tl_command, shape) - offsetof(tl_command, conclude));
    command->index = index;
    command->tl = tl;
    tl_link_to(&tl->commands, &command->link);
    return command;
}

tl_command *tl_command_new(const tl_call *call, const tl_operand *inputs, uint32_t count,
                           tl_value *result, const tl_dims *shape)
{
    tl_command *command = take_command(call);
    command->input_count = count;
    command->result = result;
    command->shape = *shape;
    for (uint32_t i = 0; i < count; i++) {
        command->inputs[i] = inputs[i];
        if (inputs[i].value)
            count_input(call, command, inputs[i].value);
    }
    if (result) {
        count_result(result);
        result->after = command->after;
    }
    return command;
}

/* Its inputs and results are no longer counted, and it is gone. */
void tl_command_destroy(tl_command *command)
{
    tl_context *tl = command->tl;
    for (uint32_t i = 0; i < command->input_count; i++) {
        tl_value *value = command->inputs[i].value;
        if (!value)
            continue;
        value->readers--;
        value->commands--;
        tl_value_release(tl, value);
    }
    tl_value *results[] = {command->result, command->second};
    for (int i = 0; i < 2; i++)
        if (results[i]) {
            results[i]->commands--;
            tl_value_release(tl, results[i]);
        }
    for (int i = 0; i < TL_MATRICES; i++)
        if (command->rects[i].items)
            kb_vec_fini(&command->rects[i]);
    if (command->product)
        data_release(tl->runner->has.store, command->product);
    tl_unlink(&command->link);
    kb_pool_give(&tl->runner->commands, command->index);
}

/* The end of a command is known: its inputs are read until then, and its results are there. */
static void set_end(const tl_command *command, pe_ready result)
{
    for (uint32_t i = 0; i < command->input_count; i++) {
        tl_value *value = command->inputs[i].value;
        if (value && value->read_until < result.at)
            value->read_until = result.at;
    }
    if (command->result)
        command->result->ready = result;
    if (command->second)
        command->second->ready = result;
}

/* Whether it works on what will never be there: then it makes nothing. */
static bool lacks_data(const tl_command *command)
{
    for (uint32_t i = 0; i < command->input_count; i++)
        if (command->inputs[i].value && !command->inputs[i].value->data)
            return true;
    return false;
}

kb_error *tl_command_begun(void *self, uint64_t arg)
{
    (void)arg;
    tl_command *command = self;
    return KB_UNLIKELY(lacks_data(command)) ? NULL : command->bind(command);
}

void tl_command_ended(void *self, uint64_t arg)
{
    (void)arg;
    tl_command *command = self;
    tl_context *tl = command->tl;
    kb_error *err = command->conclude ? command->conclude(command) : NULL;
    if (err)
        kb_sim_fail(tl->runner->has.sim, err);
    set_end(command, (pe_ready){.at = kb_sim_now(tl->runner->has.sim)});
    tl_command_destroy(command);
    tl->under_way--;
    tl_context_progress(tl);
}

/* ---- Waiting ---- */

void tl_wait_for_progress(const tl_call *call, kb_time deadline)
{
    tl_context *tl = call->tl;
    if (tl->cpu)
        pe_cpu_await_progress(tl->cpu, deadline);
    else
        kb_wait(tl->co, &tl->arrivals);
}

void tl_wait_for(const tl_call *call, pe_op op)
{
    tl_context *tl = call->tl;
    if (tl->cpu)
        pe_cpu_await_op(tl->cpu, op);
    while (!tl->cpu && !tl_instant_is_done(tl, op))
        kb_wait(tl->co, &tl->arrivals);
}

void tl_wait_for_value(const tl_call *call, const tl_value *value)
{
    tl_context *tl = call->tl;
    if (tl->cpu)
        pe_cpu_await_value(tl->cpu, &value->ready);
    while (!tl->cpu && value->ready.at == KB_FOREVER)
        kb_wait(tl->co, &tl->arrivals);
}

void tl_wake(tl_context *tl)
{
    if (tl->cpu)
        pe_cpu_wake(tl->cpu);
    else
        kb_wake_all(tl->runner->has.sim, &tl->arrivals);
}

/* ---- The log ---- */

/* What a watcher of the log is told of everything that the call does. */
static void describe_call(const tl_call *call, kb_op *op)
{
    const tl_run *run = &call->tl->run;
    op->label = run->label;
    op->pe = run->pe;
    op->launch = run->launch;
    op->file = call->at.file;
    op->line = call->at.line;
}

kb_op tl_log_entry(const tl_call *call, const char *name)
{
    kb_op op = {.name = name};
    describe_call(call, &op);
    return op;
}

static const char *name_of_call(const tl_call *call)
{
    return call->name + strlen("tl_");
}

/* Completes the log's entry for a command, which has what the call itself knows. */
static void complete_entry(const tl_call *call, const tl_command *command, kb_op *op)
{
    if (!op->name)
        op->name = name_of_call(call);
    op->launch = call->tl->run.launch;
    if (KB_LIKELY(!kb_oplog_is_watched(call->tl->runner->has.log)))
        return;
    describe_call(call, op);
    if (command->result)
        op->result = command->result->number;
    enum { room = sizeof op->operands / sizeof op->operands[0] };
    for (uint32_t i = 0; i < command->input_count && i < room; i++)
        if (command->inputs[i].value)
            op->operands[i] = command->inputs[i].value->number;
    op->accesses = command->accesses;
    op->access_count = command->access_count;
}

/* ---- Issuing ---- */

/* The pe_cpu issues a command, and the watcher of the log gets that. */
static void issue_in_sight(const tl_call *call, kb_time takes)
{
    tl_context *tl = call->tl;
    kb_oplog *log = tl->runner->has.log;
    kb_op op = tl_log_entry(call, "issue");
    op.unit = KB_UNIT_CPU;
    op.start = tl_clock(tl);
    op.end = op.start + takes;
    if (kb_oplog_is_watched(log))
        kb_oplog_set_line(log, tl->pe, op.start, &op);
    tl->cpu->clock += takes;
    tl_synchronise(tl);
    if (!kb_oplog_is_watched(log)) {
        tl->unlogged_issues++;
        return;
    }
    kb_oplog_start(log, tl->pe, op.end, KB_UNIT_CPU); /* not before: it may not have come back */
    kb_oplog_add(log, tl->pe, &op);
}

void tl_spend_issue_time(const tl_call *call)
{
    tl_context *tl = call->tl;
    if (!tl->cpu)
        return;
    kb_time takes = tl->runner->figures->cpu_issue_fs;
    if (KB_UNLIKELY(tl->ahead++ == tl->runner->window))
        tl_synchronise(tl);
    if (KB_UNLIKELY(tl->synchronous) && takes > 0) {
        tl->issuing += takes;
        issue_in_sight(call, takes);
        return;
    }
    if (takes > 0) {
        tl->issuing += takes;
        tl->cpu->clock = kb_time_add(tl->cpu->clock, takes);
        tl->unlogged_issues++;
    }
    if (KB_UNLIKELY(tl->cpu->shares_units))
        tl_synchronise(tl);
}

bool tl_command_binds_later(const tl_command *command)
{
    return (!command->tl->runner->has.timing_only || command->reads_index) &&
           !(command->result && command->result->structural);
}

/* It was not issued after all. */
KB_NORETURN static void refuse(const tl_call *call, tl_command *command, kb_error *err)
{
    tl_command_destroy(command);
    call->tl->under_way--;
    tl_fail(call, err);
}

/* When its inputs are there, as far as that is later than its issue or not known. */
static uint8_t list_inputs(const tl_command *command, const pe_ready **inputs)
{
    _Static_assert((int)TL_MAX_INPUTS <= (int)PE_MAX_INPUTS, "a command can wait for its inputs");
    uint8_t count = 0;
    kb_time clock = tl_clock(command->tl);
    for (uint32_t i = 0; i < command->input_count; i++) {
        const tl_value *value = command->inputs[i].value;
        if (value && value->ready.at > clock)
            inputs[count++] = &value->ready;
    }
    return count;
}

pe_op tl_issue(const tl_call *call, tl_command *command, pe_command *what)
{
    tl_context *tl = call->tl;
    if (!tl->cpu)
        return tl_instant_issue(command, what->unit);
    tl_spend_issue_time(call);
    pe_cpu_await_room(tl->cpu, what->unit);

    (void)list_inputs(command, what->inputs);
    what->issued = tl->cpu->clock;
    what->begun = tl_command_binds_later(command) ? tl_command_begun : NULL;
    what->ended = tl_command_ended;
    what->self = command;
    complete_entry(call, command, &what->op);
    tl->under_way++;
    pe_op op = 0;
    kb_error *err = pe_units_issue(tl->runner->has.units, tl->run.pe, what, &op);
    if (err)
        refuse(call, command, err);
    return op;
}

pe_op tl_issue_product(const tl_call *call, tl_command *command, pe_product *what)
{
    tl_context *tl = call->tl;
    pe_composites *composites = tl->runner->has.composites;
    if (!tl->cpu)
        return tl_instant_issue(command, KB_UNIT_SCHEDULER);
    tl_spend_issue_time(call);
    tl_synchronise(tl); /* the scheduler works from events */
    while (pe_composites_under_way(composites, tl->run.pe) >= tl->runner->figures->queue_depth)
        tl_wait_for_progress(call, KB_FOREVER);
    (void)list_inputs(command, what->inputs);
    what->issued = tl->cpu->clock;
    what->begun = tl_command_binds_later(command) ? tl_command_begun : NULL;
    what->ended = tl_command_ended;
    what->self = command;
    complete_entry(call, command, &what->op);
    tl->under_way++;
    pe_op op = 0;
    kb_error *err = pe_composites_issue(composites, tl->run.pe, what, &op);
    if (err)
        refuse(call, command, err);
    return op;
}

/* ---- Engines ---- */

/* The times of a command that had to wait are known. */
static void on_known(pe_work *work, kb_time begin, pe_ready result)
{
    (void)begin;
    tl_command *command = (tl_command *)((char *)work - offsetof(tl_command, work));
    tl_context *tl = command->tl;
    kb_error *err = tl_command_binds_later(command) ? tl_command_begun(command, 0) : NULL;
    if (err)
        kb_sim_fail(tl->runner->has.sim, err);
    set_end(command, result);
    tl_command_destroy(command);
    tl->under_way--;
    tl_context_progress(tl);
}

static bool is_structural(const tl_work *is)
{
    for (uint32_t i = 0; i < is->input_count; i++)
        if (!tl_is_structural(&is->inputs[i]))
            return false;
    return true;
}

/* What `bind` and the log need of it. */
static void describe(const tl_call *call, const tl_work *is, tl_command *command)
{
    command->bind = is->bind;
    command->op = is->op;
    command->axis = is->axis;
    command->first = is->first;
    command->number = is->number;
    command->at = call->at;
    command->name = call->name;
}

/* A command that is in no list and not counted: for what is done in the call itself. */
static void draft(const tl_call *call, const tl_work *is, tl_value *result, tl_value *second,
                  tl_command *command)
{
    command->tl = call->tl;
    command->result = result;
    command->second = second;
    command->reads_index = false;
    command->access_count = 0;
    command->shape = is->shape;
    command->input_count = is->input_count;
    for (uint32_t i = 0; i < is->input_count; i++)
        command->inputs[i] = is->inputs[i];
    describe(call, is, command);
}

/* A command that stays until its times are known. */
static tl_command *keep(const tl_call *call, const tl_work *is, tl_value *result, tl_value *second)
{
    tl_command *command = tl_command_new(call, is->inputs, is->input_count, result, &is->shape);
    describe(call, is, command);
    command->second = second;
    if (second)
        count_result(second);
    return command;
}

static __attribute__((noinline)) void bind_now(const tl_call *call, const tl_work *is,
                                               tl_value *result, tl_value *second)
{
    tl_command command;
    draft(call, is, result, second, &command);
    tl_check(call, result->structural ? command.bind(&command) : tl_command_begun(&command, 0));
}

static void describe_work(const tl_call *call, const tl_work *is, tl_value *result,
                          const pe_work *work, kb_op *entry)
{
    tl_command command;
    draft(call, is, result, NULL, &command);
    *entry = (kb_op){.unit = work->unit, .flops = work->flops};
    complete_entry(call, &command, entry);
}

static void queue_work(const tl_call *call, const tl_work *is, tl_value *result, tl_value *second,
                       const pe_work *work)
{
    tl_context *tl = call->tl;
    tl_command *command = keep(call, is, result, second);
    command->work = *work;
    command->work.known = on_known;
    if (KB_UNLIKELY(work->entry != NULL)) {
        command->entry = *work->entry;
        command->work.entry = &command->entry;
    }
    result->ready.by_engine = true;
    if (second)
        second->ready.by_engine = true;
    tl->under_way++;
    pe_units_queue(tl->cpu, &command->work);
}

/* Its times are known. */
static void set_result(const tl_call *call, const tl_work *is, tl_value *result, tl_value *second,
                       pe_ready ready)
{
    tl_point after = 0;
    for (uint32_t i = 0; i < is->input_count; i++) {
        tl_value *value = is->inputs[i].value;
        if (!value)
            continue;
        value->read_until = tl_later_of(value->read_until, ready.at);
        if (KB_UNLIKELY(value->after != 0))
            after = tl_join(call, after, value->after);
    }
    result->ready = ready;
    result->after = after;
    if (second)
        second->ready = ready;
}

void tl_issue_engine(const tl_call *call, const tl_work *is, tl_value *result, tl_value *second,
                     pe_work *work)
{
    tl_context *tl = call->tl;
    const tl_runner *runner = tl->runner;
    result->structural = is_structural(is);
    if (second)
        second->structural = result->structural;
    if (KB_UNLIKELY(result->structural))
        bind_now(call, is, result, second);
    if (KB_UNLIKELY(!tl->cpu)) {
        (void)tl_instant_issue(keep(call, is, result, second), work->unit);
        return;
    }
    tl_spend_issue_time(call);
    pe_cpu_await_room(tl->cpu, work->unit);
    kb_op entry;
    work->entry = NULL;
    if (KB_UNLIKELY(tl->synchronous && kb_oplog_is_watched(runner->has.log))) {
        describe_work(call, is, result, work, &entry);
        work->entry = &entry;
    }
    work->internal = false;
    work->name = name_of_call(call);
    work->of_kernel = tl->run.launch != 0;
    work->earliest = tl->cpu->clock;
    work->second = 0;
    work->drains_from = 0;
    work->input_count = 0;
    for (uint32_t i = 0; i < is->input_count; i++) {
        const tl_value *value = is->inputs[i].value;
        if (value && value->ready.at > work->earliest)
            work->inputs[work->input_count++] = &value->ready;
    }
    pe_ready ready;
    if (KB_UNLIKELY(!pe_units_resolve(tl->cpu, work, &ready))) {
        queue_work(call, is, result, second, work);
        return;
    }
    set_result(call, is, result, second, ready);
    if (!runner->has.timing_only && !result->structural)
        bind_now(call, is, result, second);
}
