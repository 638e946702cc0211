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

/* ---- Details ---- */

/* Whether commands of the kernel have details. */
static inline bool has_details(const tl_context *tl)
{
    return !tl->runner->has.timing_only || tl->synchronous || !tl->cpu;
}

static tl_details *take_details(const tl_call *call)
{
    tl_details *details = kb_slab_take(&call->tl->runner->details);
    if (!details)
        tl_fail(call, kb_error_nomem());
    return details;
}

/* What all have. */
static void fill_details(const tl_call *call, const tl_operand *inputs, uint32_t count,
                         tl_value *result, tl_value *second, const tl_dims *shape,
                         tl_details *details)
{
    details->tl = call->tl;
    details->bind = NULL;
    details->result = result;
    details->second = second;
    details->shape = *shape;
    details->input_count = count;
    for (uint32_t i = 0; i < count; i++)
        details->inputs[i] = inputs[i];
    details->at = call->at;
    details->name = call->name;
    details->reads_index = false;
    details->masked = false;
    details->message = NULL;
    details->product = NULL;
    details->access_count = 0;
    details->entry.id = 0;
    for (int i = 0; i < TL_MATRICES; i++)
        details->rects[i] = (pe_rects){0};
}

static void give_details(tl_details *details)
{
    tl_context *tl = details->tl;
    for (int i = 0; i < TL_MATRICES; i++)
        kb_vec_fini(&details->rects[i]);
    if (details->product)
        data_release(tl->runner->has.store, details->product);
    kb_slab_give(&tl->runner->details, details);
}

/* Makes the data, unless an input will never be there. */
static kb_error *bind_details(tl_details *details)
{
    for (uint32_t i = 0; i < details->input_count; i++)
        if (KB_UNLIKELY(details->inputs[i].value && !details->inputs[i].value->data))
            return NULL;
    return details->bind(details);
}

/* ---- Values of commands ---- */

static inline void count_input(tl_value *value)
{
    value->refs++;
    value->commands++;
    value->readers++;
}

static inline void count_result(tl_value *value)
{
    value->refs++;
    value->commands++;
}

/* The command's end is known, or the command was not issued after all. */
static inline void drop_input(tl_context *tl, tl_value *value)
{
    value->readers--;
    value->commands--;
    tl_value_release(tl, value);
}

static inline void drop_result(tl_context *tl, tl_value *value)
{
    value->commands--;
    tl_value_release(tl, value);
}

static inline void read_until(tl_value *value, const pe_ready *end)
{
    if (KB_UNLIKELY(end->id != 0) && end->at >= value->read_until)
        value->read_by = end->id;
    value->read_until = kb_max(value->read_until, end->at);
}

/* ---- Commands ---- */

static void add_inputs(const tl_call *call, tl_command *command, const tl_operand *inputs,
                       uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        tl_value *value = inputs[i].value;
        if (!value)
            continue;
        command->values[command->value_count++] = value;
        count_input(value);
        if (KB_UNLIKELY(value->after != 0))
            command->after = tl_join(call, command->after, value->after);
    }
    if (command->result)
        command->result->after = command->after;
}

tl_command *tl_command_new(const tl_call *call, const tl_operand *inputs, uint32_t count,
                           tl_value *result, const tl_dims *shape, bool needs_details)
{
    tl_context *tl = call->tl;
    tl_details *details = NULL;
    if (KB_UNLIKELY(needs_details || has_details(tl))) {
        details = take_details(call);
        fill_details(call, inputs, count, result, NULL, shape, details);
    }
    tl_command *command = kb_slab_take(&tl->runner->commands);
    if (!command) {
        if (details)
            give_details(details);
        tl_fail(call, kb_error_nomem());
    }
    command->tl = tl;
    command->result = result;
    command->second = NULL;
    command->value_count = 0;
    command->after = 0;
    command->details = details;
    command->conclude = NULL;
    command->ticket = 0;
    KB_RING_PUSH(&tl->commands, &command->link);
    if (result)
        count_result(result);
    add_inputs(call, command, inputs, count);
    return command;
}

/* Its inputs and results are no longer counted, and it is gone. */
void tl_command_destroy(tl_command *command)
{
    tl_context *tl = command->tl;
    for (uint32_t i = 0; i < command->value_count; i++)
        drop_input(tl, command->values[i]);
    if (command->result)
        drop_result(tl, command->result);
    if (KB_UNLIKELY(command->second != NULL))
        drop_result(tl, command->second);
    if (KB_UNLIKELY(command->details != NULL))
        give_details(command->details);
    KB_RING_REMOVE(&command->link);
    kb_slab_give(&tl->runner->commands, command);
}

/* The end of a command is known: its inputs are read until then, and its results are there. */
static void set_end(const tl_command *command, pe_ready result)
{
    for (uint32_t i = 0; i < command->value_count; i++)
        read_until(command->values[i], &result);
    if (command->result)
        command->result->ready = result;
    if (KB_UNLIKELY(command->second != NULL))
        command->second->ready = result;
}

kb_error *tl_command_begun(void *self, uint64_t arg)
{
    (void)arg;
    return bind_details(((tl_command *)self)->details);
}

void tl_command_ended(void *self, uint64_t arg)
{
    (void)arg;
    tl_command *command = self;
    tl_context *tl = command->tl;
    kb_error *err = command->conclude ? command->conclude(command) : NULL;
    if (KB_UNLIKELY(err != NULL))
        kb_sim_fail(tl->runner->has.sim, err);
    pe_ready end = {.at = kb_sim_now(tl->runner->has.sim)};
    if (KB_UNLIKELY(command->details != NULL)) {
        end.id = (uint32_t)command->details->entry.id;
        tl_note_end(tl, end.id);
    }
    set_end(command, end);
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

/* Completes the log's entry for an operation, which has what the call itself knows; `details` is
 * there if the log is watched. */
static void complete_entry(const tl_call *call, tl_details *details, kb_op *op)
{
    if (!op->name)
        op->name = name_of_call(call);
    op->launch = call->tl->run.launch;
    if (KB_LIKELY(!details || !kb_oplog_is_watched(call->tl->runner->has.log)))
        return;
    describe_call(call, op);
    if (details->result)
        op->result = details->result->number;
    enum { room = sizeof op->operands / sizeof op->operands[0] };
    for (uint32_t i = 0; i < details->input_count && i < room; i++)
        if (details->inputs[i].value)
            op->operands[i] = details->inputs[i].value->number;
    op->accesses = details->accesses;
    op->access_count = details->access_count;
    op->begun_by = call->tl->cpu->clock_by;
    op->id = details->entry.id = kb_oplog_new_id(call->tl->runner->has.log);
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
    op.id = kb_oplog_new_id(log);
    op.begun_by = tl->cpu->clock_by;
    if (kb_oplog_is_watched(log))
        kb_oplog_set_line(log, tl->pe, op.start, &op);
    tl->cpu->clock += takes;
    if (op.id != 0) {
        op.ended_by.kind = KB_REASON_WORK;
        tl->cpu->clock_by = (kb_reason){KB_REASON_ISSUE, op.id};
    }
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
    kb_time takes = tl->runner->params->cpu_issue_fs;
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
    const tl_details *details = command->details;
    return details && (!command->tl->runner->has.timing_only || details->reads_index) &&
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
    complete_entry(call, command->details, &what->op);
    tl->under_way++;
    pe_op op = 0;
    kb_error *err = pe_cpu_issue(tl->cpu, what, &op);
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
    kb_time asked = tl->cpu->clock;
    while (pe_composites_under_way(composites, tl->run.pe) >= tl->runner->params->queue_depth)
        tl_wait_for_progress(call, KB_FOREVER);
    tl_explain_clock(tl, asked, KB_REASON_ROOM, pe_composites_last_done(composites, tl->run.pe));
    (void)list_inputs(command, what->inputs);
    what->issued = tl->cpu->clock;
    what->begun = tl_command_binds_later(command) ? tl_command_begun : NULL;
    what->ended = tl_command_ended;
    what->self = command;
    complete_entry(call, command->details, &what->op);
    tl->under_way++;
    pe_op op = 0;
    kb_error *err = pe_composites_issue(composites, tl->run.pe, what, &op);
    if (err)
        refuse(call, command, err);
    return op;
}

/* ---- Engines ---- */

static tl_value *value_of(const pe_ready *ready)
{
    return (tl_value *)((uintptr_t)ready - offsetof(tl_value, ready));
}

/* The times of a command that had to wait are known. */
static void on_known(const pe_work *work, kb_time begin, pe_ready ready)
{
    (void)begin;
    tl_context *tl = work->self;
    tl_details *details = work->arg;
    tl_value *result = value_of(work->result);
    if (KB_UNLIKELY(details != NULL)) {
        kb_error *err =
            !tl->runner->has.timing_only && !result->structural ? bind_details(details) : NULL;
        if (err)
            kb_sim_fail(tl->runner->has.sim, err);
        give_details(details);
    }
    for (uint8_t i = 0; i < work->input_count; i++) {
        tl_value *value = value_of(work->inputs[i]);
        read_until(value, &ready);
        drop_input(tl, value);
    }
    result->ready = ready;
    drop_result(tl, result);
    if (KB_UNLIKELY(work->second != NULL)) {
        *work->second = ready;
        drop_result(tl, value_of(work->second));
    }
    tl->under_way--;
    tl_note_end(tl, ready.id);
    tl_context_progress(tl);
}

static inline bool is_structural(const tl_work *is)
{
    for (uint32_t i = 0; i < is->input_count; i++)
        if (!tl_is_structural(&is->inputs[i]))
            return false;
    return true;
}

/* What `bind` and the log need of it. */
static void describe(const tl_call *call, const tl_work *is, tl_value *result, tl_value *second,
                     tl_details *details)
{
    fill_details(call, is->inputs, is->input_count, result, second, &is->shape, details);
    details->bind = is->bind;
    details->op = is->op;
    details->axis = is->axis;
    details->first = is->first;
    details->number = is->number;
}

static __attribute__((noinline)) void bind_now(const tl_call *call, const tl_work *is,
                                               tl_value *result, tl_value *second)
{
    tl_details details;
    describe(call, is, result, second, &details);
    tl_check(call, result->structural ? details.bind(&details) : bind_details(&details));
}

/* In a run without time it is a command like others. */
static void issue_at_once(const tl_call *call, const tl_work *is, tl_value *result,
                          tl_value *second)
{
    tl_command *command =
        tl_command_new(call, is->inputs, is->input_count, result, &is->shape, true);
    describe(call, is, result, second, command->details);
    command->second = second;
    if (second)
        count_result(second);
    (void)tl_instant_issue(command, is->unit);
}

/* What the units are told. */
static inline void fill_work(const tl_call *call, const tl_work *is, tl_value *result,
                             tl_value *second, pe_work *work)
{
    tl_context *tl = call->tl;
    work->in_event = is->checks_data;
    work->of_kernel = tl->run.launch != 0;
    work->input_count = 0;
    for (uint32_t i = 0; i < is->input_count; i++)
        if (is->inputs[i].value)
            work->inputs[work->input_count++] = &is->inputs[i].value->ready;
    work->time = is->time;
    work->tail = is->tail;
    work->tcm_reads = is->tcm_reads;
    work->tcm_writes = is->tcm_writes;
    work->issued = tl->cpu->clock;
    work->name = name_of_call(call);
    work->flops = is->flops;
    work->entry = NULL;
    work->known = on_known;
    work->self = tl;
    work->arg = NULL;
    work->result = &result->ready;
    work->second = second ? &second->ready : NULL;
}

/* What its data, and the watcher of the log, need until its times are known. */
static __attribute__((noinline)) void add_details(const tl_call *call, const tl_work *is,
                                                  tl_value *result, tl_value *second, pe_work *work)
{
    tl_details *details = take_details(call);
    describe(call, is, result, second, details);
    work->arg = details;
    if (!kb_oplog_is_watched(call->tl->runner->has.log))
        return;
    details->entry = (kb_op){.unit = is->unit, .flops = is->flops};
    complete_entry(call, details, &details->entry);
    work->entry = &details->entry;
}

/* Its times were known at once. */
static void set_result(const tl_call *call, const tl_work *is, tl_value *result, tl_value *second,
                       const pe_work *work, pe_ready ready)
{
    result->ready = ready;
    if (second)
        second->ready = ready;
    for (uint8_t i = 0; i < work->input_count; i++)
        read_until(value_of(work->inputs[i]), &ready);
    if (KB_UNLIKELY(work->arg != NULL))
        give_details(work->arg);
    if (KB_UNLIKELY(!call->tl->runner->has.timing_only) && !result->structural)
        bind_now(call, is, result, second);
}

/* They will be known later: its values are counted until then. */
static void queue_work(tl_context *tl, tl_value *result, tl_value *second, pe_work *work)
{
    for (uint8_t i = 0; i < work->input_count; i++)
        count_input(value_of(work->inputs[i]));
    count_result(result);
    result->ready.by_engine = true;
    if (second) {
        count_result(second);
        second->ready.by_engine = true;
    }
    tl->under_way++;
    pe_cpu_queue(tl->cpu, work);
}

/* What its inputs wait for, in the order of races.c. */
static inline tl_point join_inputs(const tl_call *call, const tl_work *is)
{
    tl_point after = 0;
    for (uint32_t i = 0; i < is->input_count; i++)
        if (is->inputs[i].value && KB_UNLIKELY(is->inputs[i].value->after != 0))
            after = tl_join(call, after, is->inputs[i].value->after);
    return after;
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
        issue_at_once(call, is, result, second);
        return;
    }
    tl_spend_issue_time(call);
    pe_cpu_await_room(tl->cpu, is->unit);
    pe_work *work = pe_cpu_next_work(tl->cpu, is->unit);
    pe_ready ready;
    if (KB_UNLIKELY(!work))
        tl_fail(call, kb_error_nomem());
    fill_work(call, is, result, second, work);
    if (KB_UNLIKELY(tl->synchronous))
        add_details(call, is, result, second, work);
    result->after = join_inputs(call, is);
    if (pe_cpu_resolve(tl->cpu, work, &ready)) {
        set_result(call, is, result, second, work, ready);
        return;
    }
    if (KB_UNLIKELY(!work->arg && has_details(tl)))
        add_details(call, is, result, second, work);
    queue_work(tl, result, second, work);
}
