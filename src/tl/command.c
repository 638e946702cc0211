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

tl_command *tl_command_new(const tl_call *call, const tl_operand *inputs, uint32_t count,
                           tl_value *result, const tl_dims *shape)
{
    tl_context *tl = call->tl;
    uint32_t index = kb_pool_take(&tl->runner->commands);
    if (index == 0)
        tl_fail(call, kb_error_nomem());
    tl_command *command = kb_pool_at(&tl->runner->commands, index);
    memset(&command->conclude, 0, offsetof(tl_command, shape) - offsetof(tl_command, conclude));
    command->index = index;
    command->input_count = count;
    command->tl = tl;
    command->result = result;
    command->shape = *shape;
    tl_link_to(&tl->commands, &command->link);
    for (uint32_t i = 0; i < count; i++) {
        command->inputs[i] = inputs[i];
        tl_value *value = inputs[i].value;
        if (!value)
            continue;
        value->refs++;
        value->commands++;
        value->readers++;
        if (KB_UNLIKELY(value->after != 0))
            command->after = tl_join(call, command->after, value->after);
    }
    if (result) {
        result->refs++;
        result->commands++;
        result->after = command->after;
    }
    return command;
}

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
    tl_command_destroy(command);
    tl->under_way--;
    tl_context_progress(tl);
}

/* ---- Issuing ---- */

void tl_wait_for_progress(const tl_call *call)
{
    tl_context *tl = call->tl;
    const tl_runner_options *has = &tl->runner->has;
    kb_waitlist *progress =
        has->instant ? &tl->arrivals : pe_units_progress(has->units, tl->run.pe);
    if (!progress)
        tl_fail(call, kb_error_nomem());
    kb_wait(tl->co, progress);
}

bool tl_is_done(const tl_context *tl, pe_op op)
{
    const tl_runner_options *has = &tl->runner->has;
    return has->instant ? tl_instant_is_done(tl, op) : pe_units_is_done(has->units, op);
}

void tl_wait_for(const tl_call *call, pe_op op)
{
    const tl_runner_options *has = &call->tl->runner->has;
    if (!has->instant)
        pe_units_wait_for(has->units, op, call->tl->co);
    while (!tl_is_done(call->tl, op))
        tl_wait_for_progress(call);
}

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

static kb_op issue_entry(const tl_call *call)
{
    kb_op op = tl_log_entry(call, "issue");
    op.unit = KB_UNIT_CPU;
    return op;
}

/* The pe_cpu has issued something, since `start`. */
static void log_issue(const tl_call *call, kb_time start)
{
    tl_context *tl = call->tl;
    kb_oplog *log = tl->runner->has.log;
    if (KB_LIKELY(!kb_oplog_is_watched(log))) {
        tl->unlogged_issues++;
        return;
    }
    kb_op op = issue_entry(call);
    op.start = start;
    op.end = kb_sim_now(tl->runner->has.sim);
    kb_oplog_start(log, tl->pe, op.end, KB_UNIT_CPU); /* not before: it may not have come back */
    kb_oplog_add(log, tl->pe, &op);
}

void tl_spend_issue_time(const tl_call *call)
{
    tl_context *tl = call->tl;
    const tl_runner *runner = tl->runner;
    kb_time takes = runner->figures->cpu_issue_fs;
    if (takes == 0 || runner->has.instant)
        return;
    kb_time start = kb_sim_now(runner->has.sim);
    if (KB_UNLIKELY(kb_oplog_is_watched(runner->has.log))) {
        kb_op entry = issue_entry(call);
        kb_oplog_set_line(runner->has.log, tl->pe, start, &entry);
    }
    kb_co_sleep(tl->co, takes);
    tl->issuing += takes;
    log_issue(call, start);
}

/* Completes the log's entry for a command, which has what the call itself knows. */
static void complete_entry(const tl_call *call, const tl_command *command, kb_op *op)
{
    if (!op->name)
        op->name = call->name + strlen("tl_");
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

/* The operations that make its inputs. */
static void list_makers(const tl_command *command, pe_op after[PE_MAX_AFTER])
{
    _Static_assert((int)TL_MAX_INPUTS <= (int)PE_MAX_AFTER, "a command can wait for its inputs");
    for (uint32_t i = 0; i < command->input_count; i++)
        if (command->inputs[i].value)
            after[i] = command->inputs[i].value->made;
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

/* The command may be gone when this returns, but not its result, which the call counts. */
pe_op tl_issue(const tl_call *call, tl_command *command, pe_command *what)
{
    tl_context *tl = call->tl;
    pe_units *units = tl->runner->has.units;
    tl_value *result = command->result;
    if (result && result->structural)
        tl_check(call, command->bind(command));
    if (tl->runner->has.instant) {
        pe_op ticket = tl_instant_issue(command, what->unit);
        if (result)
            result->made = ticket;
        return ticket;
    }
    tl_spend_issue_time(call);
    pe_units_wait_for_room(units, tl->run.pe, what->unit, tl->co);

    list_makers(command, what->after);
    what->begun = tl_command_binds_later(command) ? tl_command_begun : NULL;
    what->ended = tl_command_ended;
    what->self = command;
    complete_entry(call, command, &what->op);
    tl->under_way++;
    pe_op op = 0;
    kb_error *err = pe_units_issue(units, tl->run.pe, what, &op);
    if (err)
        refuse(call, command, err);
    if (result)
        result->made = op;
    return op;
}

pe_op tl_issue_product(const tl_call *call, tl_command *command, pe_product *what)
{
    tl_context *tl = call->tl;
    pe_composites *composites = tl->runner->has.composites;
    if (tl->runner->has.instant)
        return tl_instant_issue(command, KB_UNIT_SCHEDULER);
    tl_spend_issue_time(call);
    while (pe_composites_under_way(composites, tl->run.pe) >= tl->runner->figures->queue_depth)
        tl_wait_for_progress(call);

    list_makers(command, what->after);
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
