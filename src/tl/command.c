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
    if (is->rank == shape.rank &&
        memcmp(is->dims, shape.dims, shape.rank * sizeof *is->dims) == 0) {
        *data = data_retain(has);
        return NULL;
    }
    return data_apply(store, DATA_RESHAPE, operand->dtype, &shape, &has, 1, 0, data);
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
    *command = (tl_command){
        .index = index, .input_count = count, .tl = tl, .result = result, .shape = *shape};
    tl_link_to(&tl->commands, &command->link);
    for (uint32_t i = 0; i < count; i++) {
        command->inputs[i] = inputs[i];
        tl_value *value = inputs[i].value;
        if (!value)
            continue;
        value->refs++;
        value->commands++;
        value->readers++;
    }
    if (result) {
        result->refs++;
        result->commands++;
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
    if (command->result) {
        command->result->commands--;
        tl_value_release(tl, command->result);
    }
    for (int i = 0; i < TL_MATRICES; i++)
        kb_vec_fini(&command->rects[i]);
    data_release(tl->runner->has.store, command->product);
    tl_unlink(&command->link);
    kb_pool_give(&tl->runner->commands, command->index);
}

static kb_error *on_begun(void *self, uint64_t arg)
{
    (void)arg;
    tl_command *command = self;
    return command->bind(command);
}

static void on_ended(void *self, uint64_t arg)
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
    kb_waitlist *progress = pe_units_progress(tl->runner->has.units, tl->run.pe);
    if (!progress)
        tl_fail(call, kb_error_nomem());
    kb_wait(tl->co, progress);
}

void tl_wait_for(const tl_call *call, pe_op op)
{
    while (!pe_units_is_done(call->tl->runner->has.units, op))
        tl_wait_for_progress(call);
}

/* What the log is told of everything that the call does. */
static kb_op log_entry(const tl_call *call, const char *name)
{
    const tl_run *run = &call->tl->run;
    return (kb_op){.name = name,
                   .label = run->label,
                   .pe = run->pe,
                   .launch = run->launch,
                   .file = call->at.file,
                   .line = call->at.line};
}

static void spend_issue_time(const tl_call *call)
{
    tl_context *tl = call->tl;
    const tl_runner *runner = tl->runner;
    kb_time takes = runner->figures->cpu_issue_fs;
    if (takes == 0)
        return;
    kb_op op = log_entry(call, "issue");
    op.unit = KB_UNIT_CPU;
    op.start = kb_sim_now(runner->has.sim);
    kb_oplog_start(runner->has.log, tl->pe, KB_UNIT_CPU);
    kb_co_sleep(tl->co, takes);
    tl->issuing += takes;
    op.end = kb_sim_now(runner->has.sim);
    kb_oplog_add(runner->has.log, tl->pe, &op);
}

/* The log's entry for a command; what the call knows of it is in `is` already. */
static kb_op log_command(const tl_call *call, const tl_command *command, const kb_op *is)
{
    kb_op op = log_entry(call, is->name ? is->name : call->name + strlen("tl_"));
    op.flops = is->flops;
    if (command->result)
        op.result = command->result->number;
    for (uint32_t i = 0; i < command->input_count; i++)
        if (command->inputs[i].value)
            op.operands[i] = command->inputs[i].value->number;
    return op;
}

/* The operations that make its inputs. */
static void list_makers(const tl_command *command, pe_op after[PE_MAX_AFTER])
{
    _Static_assert((int)TL_MAX_INPUTS <= (int)PE_MAX_AFTER, "a command can wait for its inputs");
    for (uint32_t i = 0; i < command->input_count; i++)
        if (command->inputs[i].value)
            after[i] = command->inputs[i].value->made;
}

/* Whether it is to be described when it begins: else there are no numbers, or they are there. */
static bool binds_later(const tl_command *command)
{
    return !command->tl->runner->has.timing_only &&
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
    spend_issue_time(call);
    while (!pe_units_has_room(units, tl->run.pe, what->unit))
        tl_wait_for_progress(call);

    list_makers(command, what->after);
    what->begun = binds_later(command) ? on_begun : NULL;
    what->ended = on_ended;
    what->self = command;
    what->op = log_command(call, command, &what->op);
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
    spend_issue_time(call);
    while (pe_composites_under_way(composites, tl->run.pe) >= tl->runner->figures->queue_depth)
        tl_wait_for_progress(call);

    list_makers(command, what->after);
    what->begun = binds_later(command) ? on_begun : NULL;
    what->ended = on_ended;
    what->self = command;
    what->op = log_command(call, command, &what->op);
    tl->under_way++;
    pe_op op = 0;
    kb_error *err = pe_composites_issue(composites, tl->run.pe, what, &op);
    if (err)
        refuse(call, command, err);
    return op;
}
