/*
 * queue.c: what kernels send to other PEs (receive.c: what they receive). The protocol of the
 * queues is in src/ipcq; here is what a call checks, what it waits for, and the commands of the
 * PE's DMA that move bytes for it.
 *
 * A message gets its value when the DMA begins to send it. The receiver has that value,
 * whatever is in the slot later (K1).
 *
 * Not modelled: the bandwidth that what arrives takes from the receiver's TCM.
 */
#include "queues.h"

enum { POLL_ISSUES = 8 }; /* how many issue times of the pe_cpu lie between two questions */

/* ---- Directions -------------------------------------------------------------------------- */

static KB_NORETURN void fault_unknown(const tl_call *call, const char *direction)
{
    const tl_run *run = &call->tl->run;
    kb_text list = KB_TEXT_INIT;
    ipcq_list_directions(run->queues, run->pe, &list);
    kb_error *err =
        list.length > 0
            ? kb_error_new(KB_ERR_FAULT, "invalid direction '%s' on this PE: expected %s",
                           direction, kb_text_peek(&list))
            : kb_error_new(KB_ERR_FAULT, "invalid direction '%s': this PE has no queues",
                           direction);
    if (list.failed) {
        kb_error_free(err);
        err = kb_error_nomem();
    }
    kb_text_fini(&list);
    tl_fail(call, err);
}

void tl_check_queues(const tl_call *call)
{
    if (!call->tl->run.queues)
        tl_fault(call, "no queues are installed in this PE: kb_queues_create() and "
                       "kb_queues_install() give an ordinary launch its directions");
}

ipcq_end *tl_look_up_slowly(tl_context *tl, const char *direction)
{
    ipcq_end *end = tl->run.queues ? ipcq_find(tl->run.queues, tl->run.pe, direction) : NULL;
    if (end)
        tl->recent[tl->next_recent++ % TL_RECENT] =
            (tl_direction){tl_direction_key(direction), ipcq_direction(end), end};
    return end;
}

void tl_fault_direction(const tl_call *call, const char *direction)
{
    tl_check_queues(call);
    if (!direction)
        tl_fault(call, "TL_ANY is for receiving only: name a direction");
    fault_unknown(call, direction);
}

bool tl_can_send_(tl_context *tl, tl_srcloc at, const char *direction)
{
    tl_call call = tl_enter(tl, at, "tl_can_send");
    (void)call;
    const ipcq_end *end = direction ? tl_look_up(tl, direction) : NULL;
    return end && ipcq_can_send(end);
}

bool tl_can_recv_(tl_context *tl, tl_srcloc at, const char *direction)
{
    tl_call call = tl_enter(tl, at, "tl_can_recv");
    (void)call;
    const ipcq_end *end = direction ? tl_look_up(tl, direction) : NULL;
    return end && ipcq_can_receive(end);
}

/* ---- Credits ----------------------------------------------------------------------------- */

/* What the log is told of a wait for a queue. */
kb_op tl_queue_entry(const tl_call *call, const char *name)
{
    kb_op entry = tl_log_entry(call, name);
    entry.unit = KB_UNIT_IPCQ;
    return entry;
}

static kb_op lack_entry(tl_context *tl)
{
    tl_call call = {tl, tl->lacks_at, "tl_send"};
    return tl_queue_entry(&call, "await credit");
}

/* From then on, or until then, the kernel waits for a credit. */
static void tell_log_of_lack(tl_context *tl, kb_time at, bool begins)
{
    kb_oplog *log = tl->runner->has.log;
    kb_op entry;
    bool watched = kb_oplog_is_watched(log);
    if (KB_UNLIKELY(watched))
        entry = lack_entry(tl);
    (begins ? kb_oplog_begin : kb_oplog_end)(log, tl->pe, at, KB_CAUSE_CREDIT, tl->lacks_bytes,
                                             watched ? &entry : NULL);
}

static void end_lack(tl_context *tl, kb_time at)
{
    if (tl->lacks_credit)
        tell_log_of_lack(tl, kb_max(at, tl->lacks_since), false);
    tl->lacks_credit = false;
}

/*
 * The sender has asked since then, and there was nothing until its clock: it sees that when it asks
 * next. All these questions are one entry of the log. They are no events, so that senders that ask
 * in vain do not keep a run going that is deadlocked.
 */
static void spend_polling_time(const tl_call *call, kb_time since, kb_time interval)
{
    tl_context *tl = call->tl;
    kb_oplog *log = tl->runner->has.log;
    kb_time too_much = (tl->cpu->clock - since) % interval;
    if (too_much > 0)
        tl->cpu->clock = kb_time_add(tl->cpu->clock, interval - too_much);
    if (tl->synchronous)
        tl_synchronise(tl);
    kb_op op = tl_log_entry(call, "poll");
    op.unit = KB_UNIT_CPU;
    op.start = since;
    op.end = tl->cpu->clock;
    op.id = kb_oplog_new_id(log);
    op.begun_by = tl->lacks_by;
    op.ended_by = tl->cpu->clock_by;
    if (op.id != 0)
        tl->cpu->clock_by = (kb_reason){KB_REASON_ISSUE, op.id};
    tl->issuing += op.end - since;
    kb_oplog_start(log, tl->pe, op.end, KB_UNIT_CPU);
    kb_oplog_add(log, tl->pe, &op);
}

/* Shows that something of the kernel's has waited between the two; the entry knows what for. */
void tl_show_wait(const tl_context *tl, kb_op *entry, kb_time since, kb_time until)
{
    entry->start = since;
    entry->end = kb_max(since, until);
    kb_oplog_show(tl->runner->has.log, entry);
}

/* The kernel has waited for a credit until then. */
void tl_show_lack(tl_context *tl, kb_time until, bool unfinished)
{
    if (KB_LIKELY(!kb_oplog_is_watched(tl->runner->has.log)))
        return;
    kb_op entry = lack_entry(tl);
    entry.direction = ipcq_direction(tl->lacks_on);
    entry.unfinished = unfinished;
    entry.id = kb_oplog_new_id(tl->runner->has.log);
    entry.begun_by = tl->lacks_by;
    if (!unfinished)
        entry.ended_by = tl->cpu->clock_by;
    tl_show_wait(tl, &entry, tl->lacks_since, until);
}

static void wake_sender(void *self)
{
    pe_cpu_wake(((tl_context *)self)->cpu);
}

/* When the credit is there: waits only until that is known. */
static kb_time credit_time(tl_context *tl, ipcq_end *end)
{
    kb_time at;
    while (!ipcq_credit_at(end, &at) && !kb_co_is_unwinding(tl->co)) {
        kb_waitlist *list = ipcq_await_credit(end, tl->co, wake_sender, tl);
        tl->awaits_credit_on = end;
        pe_cpu_suspend(tl->cpu, list);
        ipcq_stop_awaiting(end);
        tl->awaits_credit_on = NULL;
    }
    return at;
}

/* Whether it is known that there is a credit at the kernel's clock. */
static inline bool has_credit(const tl_context *tl, const ipcq_end *end)
{
    kb_time at;
    return ipcq_credit_at(end, &at) && at <= tl->cpu->clock;
}

/* The kernel's clock is when it has a credit, or later. `bytes`: what is to be sent. */
static __attribute__((noinline)) void wait_for_credit(const tl_call *call, ipcq_end *end,
                                                      uint64_t bytes)
{
    tl_context *tl = call->tl;
    if (!ipcq_credit_at(end, &(kb_time){0})) {
        tl_synchronise(tl); /* it may be known by then that there is one: then it does not wait */
        if (has_credit(tl, end))
            return;
    }
    kb_time since = tl->cpu->clock;
    kb_time interval = tl->runner->params->cpu_issue_fs * POLL_ISSUES;
    tl->lacks_credit = true;
    tl->lacks_since = since;
    tl->lacks_on = end;
    tl->lacks_at = call->at;
    tl->lacks_bytes = bytes;
    tl->lacks_by = tl->cpu->clock_by;
    tell_log_of_lack(tl, since, true);
    tl->cpu->clock = kb_max(since, credit_time(tl, end));
    tl_explain_clock(tl, since, KB_REASON_CREDIT, ipcq_credit_id(end));
    if (tl->synchronous)
        tl_synchronise(tl);
    tl_show_lack(tl, tl->cpu->clock, false);
    if (ipcq_set_settings(tl->run.queues)->polls && interval > 0)
        spend_polling_time(call, since, interval);
    end_lack(tl, tl->cpu->clock);
}

/* ---- Sending ----------------------------------------------------------------------------- */

static kb_error *bind_send(tl_details *details)
{
    ipcq_message *message = details->message;
    return message->data ? NULL : tl_operand_data(details->tl, &details->inputs[0], &message->data);
}

static kb_error *hand_over(tl_command *command)
{
    ipcq_hand_over(command->segment.message);
    return NULL;
}

static kb_error *arrive(tl_command *command)
{
    tl_context *tl = command->tl;
    pe_op delivered;
    if (KB_UNLIKELY(command->details != NULL))
        command->segment.id = (uint32_t)command->details->entry.id;
    KB_TRY(ipcq_arrive(&command->segment, &delivered));
    if (KB_UNLIKELY(delivered != 0)) {
        if (tl->delivery == delivered)
            tl->delivery = 0;
        pe_units_set_id(tl->runner->has.units, delivered, command->segment.id);
        pe_units_close(tl->runner->has.units, delivered);
    }
    return NULL;
}

void tl_end_send(tl_context *tl)
{
    if (tl->unsent)
        ipcq_message_free(tl->unsent);
    tl->unsent = NULL;
    kb_time now = kb_sim_now(tl->runner->has.sim);
    if (tl->awaits_credit_on)
        ipcq_stop_awaiting(tl->awaits_credit_on);
    tl->awaits_credit_on = NULL;
    if (tl->lacks_credit)
        tl_show_lack(tl, now, true);
    end_lack(tl, now);
    if (tl->delivery) /* some of it will never be there */
        pe_units_close(tl->runner->has.units, tl->delivery);
    tl->delivery = 0;
}

/* The next message in the direction; no command has it yet. */
static ipcq_message *new_message(const tl_call *call, ipcq_end *end, const tl_operand *sent,
                                 uint64_t bytes)
{
    ipcq_message *message = ipcq_message_new(end, bytes);
    if (!message)
        tl_fail(call, kb_error_nomem());
    message->dtype = sent->dtype;
    message->shape.rank = (uint32_t)sent->shape.rank;
    for (int i = 0; i < sent->shape.rank; i++)
        message->shape.dims[i] = (uint64_t)sent->shape.dims[i];
    call->tl->unsent = message;
    message->order = tl_checked_send(call, sent->value->after);
    return message;
}

static inline tl_command *new_send(const tl_call *call, const tl_operand *sent,
                                   ipcq_message *message)
{
    tl_command *command = tl_command_new(call, sent, 1, NULL, &sent->shape, false);
    command->segment.message = message;
    if (KB_UNLIKELY(command->details != NULL)) {
        command->details->bind = bind_send;
        command->details->message = message;
    }
    return command;
}

static pe_op send_segment(const tl_call *call, ipcq_end *end, const tl_operand *sent,
                          ipcq_message *message)
{
    tl_command *command = new_send(call, sent, message);
    command->conclude = arrive;
    command->segment = ipcq_take_slot(message);
    uint64_t bytes = command->segment.bytes;
    mem_rect rect = {.at = command->segment.slot, .rows = 1, .bytes = bytes > 0 ? bytes : 1};
    pe_command what;
    tl_describe_move(command, KB_UNIT_DMA_WRITE, "send", &what);
    what.rects = &rect;
    what.rect_count = 1;
    what.apart = true; /* with the slot's credit came all that was in it before */
    if (KB_UNLIKELY(command->details != NULL)) {
        what.op.message = message->number;
        what.op.direction = ipcq_direction(end);
    }
    pe_op op = tl_issue(call, command, &what);
    call->tl->unsent = NULL;
    return op;
}

/* What is done when all of it has arrived. */
static pe_op send_to_slots(const tl_call *call, ipcq_end *end, const tl_operand *sent,
                           ipcq_message *message)
{
    tl_context *tl = call->tl;
    uint64_t share = ipcq_slot_share(end, message->bytes), left = message->bytes;
    pe_op delivery = 0;
    if (KB_UNLIKELY(left > share)) {
        tl_check(call, pe_units_open(tl->runner->has.units, tl->run.pe, &(pe_span){0}, &delivery));
        tl->delivery = message->delivery = delivery;
    }
    for (;;) {
        pe_op op = send_segment(call, end, sent, message);
        if (KB_LIKELY(left == share)) { /* the message may be gone */
            tl->delivery = 0;
            return delivery ? delivery : op;
        }
        left -= share;
        share = ipcq_slot_share(end, left);
        if (!has_credit(tl, end))
            wait_for_credit(call, end, share);
    }
}

static pe_op send_at_once(const tl_call *call, const tl_operand *sent, ipcq_message *message)
{
    tl_command *command = new_send(call, sent, message);
    command->conclude = hand_over;
    call->tl->unsent = NULL;
    return tl_instant_issue(command, KB_UNIT_DMA_WRITE);
}

tl_future tl_send_(tl_context *tl, tl_srcloc at, const char *direction, tl_tensor value, bool sync)
{
    tl_call call = tl_enter(tl, at, sync ? "tl_send_sync" : "tl_send");
    ipcq_end *end = tl_find_direction(&call, direction);
    if (KB_UNLIKELY(!ipcq_can_send(end)))
        tl_fault(&call, "cannot send in direction '%s': it is receive-only", direction);
    tl_operand sent;
    tl_take_to(&call, value, &sent);
    if (KB_UNLIKELY(!sent.value))
        tl_fault(&call, "a plain number has no shape: make it a tensor with tl_full");
    uint64_t bytes = tl_operand_bytes(&sent);
    if (KB_UNLIKELY(tl->cpu && !has_credit(tl, end)))
        wait_for_credit(&call, end, ipcq_slot_share(end, bytes));
    ipcq_message *message = new_message(&call, end, &sent, bytes);
    pe_op op = KB_LIKELY(tl->cpu != NULL) ? send_to_slots(&call, end, &sent, message)
                                          : send_at_once(&call, &sent, message);
    tl_point after = tl->checked.writes; /* with all that is before it in the queue of the DMA */
    tl_end_call(tl);
    if (sync) {
        tl_wait_for(&call, op);
        tl_acquire(&call, after);
    }
    return (tl_future){.id = op, .kernel = tl->kernel, .after = after};
}
