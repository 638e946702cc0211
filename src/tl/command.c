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

static void add_input(const tl_call *call, tl_command *command, tl_value *value)
{
    command->values[command->value_count++] = value;
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

/* One without inputs. */
static tl_command *take_command(const tl_call *call, tl_value *result)
{
    tl_context *tl = call->tl;
    tl_command *command = kb_slab_take(&tl->runner->commands);
    if (!command)
        tl_fail(call, kb_error_nomem());
    memset(&command->conclude, 0, offsetof(tl_command, shape) - offsetof(tl_command, conclude));
    command->tl = tl;
    command->result = result;
    command->value_count = command->input_count = 0;
    tl_link_to(&tl->commands, &command->link);
    if (result)
        count_result(result);
    return command;
}

/* What `bind` needs of its inputs. */
static void copy_inputs(tl_command *command, const tl_operand *inputs, uint32_t count,
                        const tl_dims *shape)
{
    command->shape = *shape;
    command->input_count = count;
    for (uint32_t i = 0; i < count; i++)
        command->inputs[i] = inputs[i];
}

static void add_inputs(const tl_call *call, tl_command *command, const tl_operand *inputs,
                       uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        if (inputs[i].value)
            add_input(call, command, inputs[i].value);
    if (command->result)
        command->result->after = command->after;
}

tl_command *tl_command_new(const tl_call *call, const tl_operand *inputs, uint32_t count,
                           tl_value *result, const tl_dims *shape)
{
    tl_command *command = take_command(call, result);
    copy_inputs(command, inputs, count, shape);
    add_inputs(call, command, inputs, count);
    return command;
}

static void drop_result(tl_context *tl, tl_value *value)
{
    value->commands--;
    tl_value_release(tl, value);
}

/* Its inputs and results are no longer counted, and it is gone. */
void tl_command_destroy(tl_command *command)
{
    tl_context *tl = command->tl;
    for (uint32_t i = 0; i < command->value_count; i++) {
        tl_value *value = command->values[i];
        value->readers--;
        value->commands--;
        tl_value_release(tl, value);
    }
    if (command->result)
        drop_result(tl, command->result);
    if (KB_UNLIKELY(command->second != NULL))
        drop_result(tl, command->second);
    for (int i = 0; i < TL_MATRICES; i++)
        if (KB_UNLIKELY(command->rects[i].items != NULL))
            kb_vec_fini(&command->rects[i]);
    if (KB_UNLIKELY(command->product != NULL))
        data_release(tl->runner->has.store, command->product);
    tl_unlink(&command->link);
    kb_slab_give(&tl->runner->commands, command);
}

/* The end of a command is known: its inputs are read until then, and its results are there. */
static void set_end(const tl_command *command, pe_ready result)
{
    for (uint32_t i = 0; i < command->value_count; i++) {
        tl_value *value = command->values[i];
        value->read_until = tl_later_of(value->read_until, result.at);
    }
    if (command->result)
        command->result->ready = result;
    if (KB_UNLIKELY(command->second != NULL))
        command->second->ready = result;
}

/* Whether it works on what will never be there: then it makes nothing. */
static bool lacks_data(const tl_command *command)
{
    for (uint32_t i = 0; i < command->value_count; i++)
        if (!command->values[i]->data)
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
    for (uint32_t i = 0; i < command->value_count; i++)
        if (command->values[i]->ready.at > clock)
            inputs[count++] = &command->values[i]->ready;
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
    if (KB_UNLIKELY(tl_command_binds_later(command))) {
        kb_error *err = tl_command_begun(command, 0);
        if (err)
            kb_sim_fail(tl->runner->has.sim, err);
    }
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
    copy_inputs(command, is->inputs, is->input_count, &is->shape);
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
    command->value_count = 0;
    for (uint32_t i = 0; i < is->input_count; i++)
        if (is->inputs[i].value)
            command->values[command->value_count++] = is->inputs[i].value;
    describe(call, is, command);
}

/* A command that stays until its times are known. */
static tl_command *keep(const tl_call *call, const tl_work *is, tl_value *result, tl_value *second)
{
    tl_command *command = take_command(call, result);
    add_inputs(call, command, is->inputs, is->input_count);
    if (!call->tl->runner->has.timing_only)
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

/* What the units are told. */
static void fill_work(const tl_call *call, const tl_work *is, pe_work *work)
{
    const tl_context *tl = call->tl;
    work->unit = is->unit;
    work->internal = false;
    work->in_event = is->checks_data;
    work->of_kernel = tl->run.launch != 0;
    work->time = is->time;
    work->tail = is->tail;
    work->tcm_reads = is->tcm_reads;
    work->tcm_writes = is->tcm_writes;
    work->flops = is->flops;
    work->name = name_of_call(call);
    work->entry = NULL;
    work->issued = work->earliest = tl->cpu->clock;
    work->second = 0;
    work->drains_from = 0;
    work->input_count = 0;
    for (uint32_t i = 0; i < is->input_count; i++) {
        const tl_value *value = is->inputs[i].value;
        if (value && value->ready.at > work->earliest)
            work->inputs[work->input_count++] = &value->ready;
    }
}

/* What the watcher of the log is told. */
static void fill_entry(const tl_call *call, const tl_work *is, tl_value *result, kb_op *entry)
{
    tl_command command;
    draft(call, is, result, NULL, &command);
    *entry = (kb_op){.unit = is->unit, .flops = is->flops};
    complete_entry(call, &command, entry);
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

/* In the call itself, if its times are final. */
static bool resolve(const tl_call *call, const tl_work *is, tl_value *result, tl_value *second)
{
    tl_context *tl = call->tl;
    if (!pe_cpu_may_resolve(tl->cpu))
        return false;
    pe_work work;
    kb_op entry;
    pe_ready ready;
    fill_work(call, is, &work);
    if (KB_UNLIKELY(tl->synchronous && kb_oplog_is_watched(tl->runner->has.log))) {
        fill_entry(call, is, result, &entry);
        work.entry = &entry;
    }
    if (!pe_units_resolve(tl->cpu, &work, &ready))
        return false;
    set_result(call, is, result, second, ready);
    return true;
}

static void queue_work(const tl_call *call, const tl_work *is, tl_value *result, tl_value *second)
{
    tl_context *tl = call->tl;
    tl_command *command = keep(call, is, result, second);
    fill_work(call, is, &command->work);
    command->work.known = on_known;
    if (KB_UNLIKELY(tl->synchronous && kb_oplog_is_watched(tl->runner->has.log))) {
        fill_entry(call, is, result, &command->entry);
        command->work.entry = &command->entry;
    }
    result->ready.by_engine = true;
    if (second)
        second->ready.by_engine = true;
    tl->under_way++;
    pe_units_queue(tl->cpu, &command->work);
}

void tl_issue_engine(const tl_call *call, const tl_work *is, tl_value *result, tl_value *second)
{
    tl_context *tl = call->tl;
    result->structural = is_structural(is);
    if (second)
        second->structural = result->structural;
    if (KB_UNLIKELY(result->structural))
        bind_now(call, is, result, second);
    if (KB_UNLIKELY(!tl->cpu)) {
        (void)tl_instant_issue(keep(call, is, result, second), is->unit);
        return;
    }
    tl_spend_issue_time(call);
    pe_cpu_await_room(tl->cpu, is->unit);
    if (!resolve(call, is, result, second))
        queue_work(call, is, result, second);
    else if (!tl->runner->has.timing_only && !result->structural)
        bind_now(call, is, result, second);
}
