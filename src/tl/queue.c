/*
 * queue.c: what kernels send to other PEs and receive from them. The queues themselves are in
 * src/ipcq; here bytes are moved by commands of the PE's DMA, and values by messages.
 *
 * A message gets its value when the DMA begins to send it. Whoever receives it has that value,
 * whatever is in the slot later (K1). A value larger than a slot goes in segments, each a command.
 *
 * A receive is an operation that is open until its value is there, so that commands can come after
 * it. With rings in TCM the value takes over the memory of the slot, and the ring gets other memory
 * of the same size: that takes no time. With other rings each slot is read by the DMA first, and
 * slots are freed in the order in which they came. Receives belong to the context: a kernel that
 * ends early withdraws them, and what would have been received is never there.
 *
 * Not modelled: the bandwidth that what arrives takes from the receiver's TCM.
 */
#include <inttypes.h>
#include <string.h>

#include "tl_private.h"

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

static void check_queues(const tl_call *call)
{
    if (!call->tl->run.queues)
        tl_fault(call, "no queues are installed in this PE: kb_queues_create() and "
                       "kb_queues_install() give an ordinary launch its directions");
}

/* NULL if there is none such. Kernels mostly use the same few again and again. */
static ipcq_end *look_up(tl_context *tl, const char *direction)
{
    for (uint32_t i = 0; i < TL_RECENT; i++) {
        const char *name = tl->recent[i].name;
        if (name && name[0] == direction[0] && strcmp(name, direction) == 0)
            return tl->recent[i].end;
    }
    ipcq_end *end = ipcq_find(tl->run.queues, tl->run.pe, direction);
    if (end)
        tl->recent[tl->next_recent++ % TL_RECENT] = (tl_direction){ipcq_direction(end), end};
    return end;
}

static ipcq_end *find_direction(const tl_call *call, const char *direction)
{
    check_queues(call);
    if (!direction)
        tl_fault(call, "TL_ANY is for receiving only: name a direction");
    ipcq_end *end = look_up(call->tl, direction);
    if (!end)
        fault_unknown(call, direction);
    return end;
}

bool tl_can_send_(tl_context *tl, tl_place at, const char *direction)
{
    tl_call call = tl_enter(tl, at, "tl_can_send");
    (void)call;
    const ipcq_end *end = tl->run.queues && direction ? look_up(tl, direction) : NULL;
    return end && ipcq_can_send(end);
}

bool tl_can_recv_(tl_context *tl, tl_place at, const char *direction)
{
    tl_call call = tl_enter(tl, at, "tl_can_recv");
    (void)call;
    const ipcq_end *end = tl->run.queues && direction ? look_up(tl, direction) : NULL;
    return end && ipcq_can_receive(end);
}

/* ---- Credits ----------------------------------------------------------------------------- */

/* Tells the log that something begins or ends: kb_oplog_begin() or kb_oplog_end(). */
typedef void tell_fn(kb_oplog *log, uint64_t pe, kb_time at, kb_cause cause, uint64_t bytes,
                     const kb_op *op);

/* What the log is told of a wait for a queue. */
static kb_op queue_entry(const tl_call *call, const char *name)
{
    kb_op entry = tl_log_entry(call, name);
    entry.unit = KB_UNIT_IPCQ;
    return entry;
}

static kb_op lack_entry(tl_context *tl)
{
    tl_call call = {tl, tl->lacks_at, "tl_send"};
    return queue_entry(&call, "await credit");
}

static void tell_log_of_lack(tl_context *tl, kb_time at, tell_fn *tell)
{
    kb_oplog *log = tl->runner->has.log;
    bool watched = kb_oplog_is_watched(log);
    kb_op entry;
    if (KB_UNLIKELY(watched))
        entry = lack_entry(tl);
    tell(log, tl->pe, at, KB_CAUSE_CREDIT, tl->lacks_bytes, watched ? &entry : NULL);
}

static void end_lack(tl_context *tl, kb_time at)
{
    if (tl->lacks_credit)
        tell_log_of_lack(tl, tl_later_of(at, tl->lacks_since), kb_oplog_end);
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
    tl->issuing += op.end - since;
    kb_oplog_start(log, tl->pe, op.end, KB_UNIT_CPU);
    kb_oplog_add(log, tl->pe, &op);
}

/* Shows that something of the kernel's has waited between the two; the entry knows what for. */
static void show_wait(const tl_context *tl, kb_op *entry, kb_time since, kb_time until)
{
    entry->start = since;
    entry->end = tl_later_of(since, until);
    kb_oplog_show(tl->runner->has.log, entry);
}

/* The kernel has waited for a credit until then. */
static void show_lack(tl_context *tl, kb_time until, bool unfinished)
{
    if (KB_LIKELY(!kb_oplog_is_watched(tl->runner->has.log)))
        return;
    kb_op entry = lack_entry(tl);
    entry.direction = ipcq_direction(tl->lacks_on);
    entry.unfinished = unfinished;
    show_wait(tl, &entry, tl->lacks_since, until);
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
static bool has_credit(const tl_context *tl, const ipcq_end *end)
{
    kb_time at;
    return ipcq_credit_at(end, &at) && at <= tl->cpu->clock;
}

/* The kernel's clock is when it has a credit, or later. `bytes`: what is to be sent. */
static void wait_for_credit(const tl_call *call, ipcq_end *end, uint64_t bytes)
{
    tl_context *tl = call->tl;
    if (KB_LIKELY(has_credit(tl, end)))
        return;
    if (!ipcq_credit_at(end, &(kb_time){0})) {
        tl_synchronise(tl); /* it may be known by then that there is one: then it does not wait */
        if (has_credit(tl, end))
            return;
    }
    kb_time since = tl->cpu->clock;
    kb_time interval = tl->runner->figures->cpu_issue_fs * POLL_ISSUES;
    tl->lacks_credit = true;
    tl->lacks_since = since;
    tl->lacks_on = end;
    tl->lacks_at = call->at;
    tl->lacks_bytes = bytes;
    tell_log_of_lack(tl, since, kb_oplog_begin);
    tl->cpu->clock = tl_later_of(since, credit_time(tl, end));
    if (tl->synchronous)
        tl_synchronise(tl);
    show_lack(tl, tl->cpu->clock, false);
    if (ipcq_set_settings(tl->run.queues)->polls && interval > 0)
        spend_polling_time(call, since, interval);
    end_lack(tl, tl->cpu->clock);
}

/* ---- Sending ----------------------------------------------------------------------------- */

static kb_error *bind_send(tl_command *command)
{
    tl_context *tl = command->tl;
    ipcq_message *message = ipcq_message_at(tl->runner->has.queues, command->message);
    return message->data ? NULL : tl_operand_data(tl, &command->inputs[0], &message->data);
}

static kb_error *hand_over(tl_command *command)
{
    ipcq_hand_over(command->direction, command->message);
    return NULL;
}

/* Closes it if no command but this one belongs to it. */
static void close_if_delivered(tl_context *tl, pe_op delivery, const tl_command *but)
{
    for (const tl_link *link = tl->commands.next; link != &tl->commands; link = link->next) {
        const tl_command *command = (const tl_command *)link;
        if (command != but && command->delivery == delivery)
            return;
    }
    pe_units_close(tl->runner->has.units, delivery);
}

static kb_error *arrive(tl_command *command)
{
    tl_context *tl = command->tl;
    KB_TRY(ipcq_arrive(tl->runner->has.queues, command->slot, command->message,
                       command->segment_bytes));
    if (command->delivery && command->delivery != tl->delivery)
        close_if_delivered(tl, command->delivery, command);
    return NULL;
}

void tl_end_send(tl_context *tl)
{
    if (tl->unsent)
        ipcq_message_free(tl->runner->has.queues, tl->unsent);
    tl->unsent = 0;
    kb_time now = kb_sim_now(tl->runner->has.sim);
    if (tl->awaits_credit_on)
        ipcq_stop_awaiting(tl->awaits_credit_on);
    tl->awaits_credit_on = NULL;
    if (tl->lacks_credit)
        show_lack(tl, now, true);
    end_lack(tl, now);
    pe_op delivery = tl->delivery;
    if (!delivery)
        return;
    tl->delivery = 0; /* nobody will ask when all is there: some of it will never be */
    for (tl_link *link = tl->commands.next; link != &tl->commands; link = link->next)
        if (((tl_command *)link)->delivery == delivery)
            ((tl_command *)link)->delivery = 0;
    pe_units_close(tl->runner->has.units, delivery);
}

/* The next message in the direction; no command has it yet. */
static ipcq_message_id new_message(const tl_call *call, ipcq_end *end, const tl_operand *sent)
{
    kb_shape shape = tl_shape_of(&sent->shape);
    ipcq_message_id message = ipcq_message_new(end, sent->dtype, &shape, tl_operand_bytes(sent));
    if (message == 0)
        tl_fail(call, kb_error_nomem());
    call->tl->unsent = message;
    ipcq_message_at(call->tl->runner->has.queues, message)->order =
        tl_checked_send(call, sent->value->after);
    return message;
}

static tl_command *new_send(const tl_call *call, ipcq_end *end, const tl_operand *sent,
                            ipcq_message_id message)
{
    tl_command *command = tl_command_new(call, sent, 1, NULL, &sent->shape);
    command->bind = bind_send;
    command->message = message;
    command->direction = end;
    return command;
}

/* Something that is under way until it is closed. */
static pe_op open_operation(const tl_call *call)
{
    const tl_context *tl = call->tl;
    pe_op op = 0;
    tl_check(call, pe_units_open(tl->runner->has.units, tl->run.pe, &(pe_span){0}, &op));
    return op;
}

static pe_op send_segment(const tl_call *call, ipcq_end *end, const tl_operand *sent,
                          ipcq_message_id message, uint64_t bytes)
{
    tl_command *command = new_send(call, end, sent, message);
    command->conclude = arrive;
    command->segment_bytes = bytes;
    command->delivery = call->tl->delivery;
    command->slot = ipcq_take_slot(end);
    mem_rect rect = {.at = command->slot, .rows = 1, .bytes = bytes > 0 ? bytes : 1};
    pe_command what = {.unit = KB_UNIT_DMA_WRITE,
                       .rects = &rect,
                       .rect_count = 1,
                       .apart = true, /* with the slot's credit came all that was in it before */
                       .op.name = "send"};
    what.op.message = ipcq_message_at(call->tl->runner->has.queues, message)->number;
    what.op.direction = ipcq_direction(end);
    return tl_issue(call, command, &what);
}

/* What is done when all of it has arrived. */
static pe_op send_to_slots(const tl_call *call, ipcq_end *end, const tl_operand *sent)
{
    tl_context *tl = call->tl;
    uint64_t most = ipcq_set_settings(tl->run.queues)->slot_bytes;
    uint64_t left = tl_operand_bytes(sent);
    wait_for_credit(call, end, left < most ? left : most);
    ipcq_message_id message = new_message(call, end, sent);
    if (left > most)
        tl->delivery = open_operation(call);
    pe_op op = 0;
    for (bool is_first = true; is_first || left > 0; is_first = false) {
        uint64_t bytes = left < most ? left : most;
        if (!is_first)
            wait_for_credit(call, end, bytes);
        op = send_segment(call, end, sent, message, bytes);
        tl->unsent = 0;
        left -= bytes;
    }
    if (tl->delivery) {
        op = tl->delivery;
        tl->delivery = 0;
        close_if_delivered(tl, op, NULL);
    }
    return op;
}

static pe_op send_at_once(const tl_call *call, ipcq_end *end, const tl_operand *sent)
{
    tl_command *command = new_send(call, end, sent, new_message(call, end, sent));
    command->conclude = hand_over;
    call->tl->unsent = 0;
    return tl_instant_issue(command, KB_UNIT_DMA_WRITE);
}

tl_future tl_send_(tl_context *tl, tl_place at, const char *direction, tl_tensor value, bool sync)
{
    tl_call call = tl_enter(tl, at, sync ? "tl_send_sync" : "tl_send");
    ipcq_end *end = find_direction(&call, direction);
    if (!ipcq_can_send(end))
        tl_fault(&call, "cannot send in direction '%s': it is receive-only", direction);
    tl_operand sent = tl_take(&call, value);
    if (!sent.value)
        tl_fault(&call, "a plain number has no shape: make it a tensor with tl_full");
    pe_op op = tl->runner->has.instant ? send_at_once(&call, end, &sent)
                                       : send_to_slots(&call, end, &sent);
    tl_point after = tl->checked.writes; /* with all that is before it in the queue of the DMA */
    tl_end_call(tl);
    if (sync) {
        tl_wait_for(&call, op);
        tl_acquire(&call, after);
    }
    return (tl_future){.id = op, .kernel = tl->kernel, .after = after};
}

/* ---- Receives ---------------------------------------------------------------------------- */

static void destroy_receive(tl_receive *receive)
{
    kb_error_free(receive->mismatch);
    tl_unlink(&receive->link);
    kb_pool_give(&receive->tl->runner->receives, receive->index);
}

static tl_call call_of(const tl_receive *receive)
{
    return (tl_call){receive->tl, receive->at, receive->name};
}

/* That the PE waits for the message, or no longer does. */
static void tell_log(const tl_receive *receive, kb_time at, tell_fn *tell)
{
    kb_oplog *log = receive->tl->runner->has.log;
    kb_op entry;
    bool watched = kb_oplog_is_watched(log);
    if (KB_UNLIKELY(watched)) {
        tl_call call = call_of(receive);
        entry = queue_entry(&call, "recv");
    }
    tell(log, receive->tl->pe, at, KB_CAUSE_MESSAGE, receive->value->bytes,
         watched ? &entry : NULL);
}

/* The PE waits for others, as far as it has nothing else to do. */
static void begin_wait(tl_receive *receive)
{
    const tl_context *tl = receive->tl;
    receive->since = tl_clock(tl);
    if (tl->cpu)
        tell_log(receive, receive->since, kb_oplog_begin);
    receive->lacks_message = receive->waits = true;
}

/* The message is received then, or never will be: what is left is to read its slots. */
static void end_lack_of_message(tl_receive *receive, kb_time at)
{
    if (receive->lacks_message && receive->tl->cpu)
        tell_log(receive, tl_later_of(at, receive->since), kb_oplog_end);
    receive->lacks_message = false;
}

static void show_receive(const tl_receive *receive, kb_time until)
{
    tl_call call = call_of(receive);
    kb_op entry = queue_entry(&call, "recv");
    entry.unfinished = !receive->whole;
    entry.bytes = receive->value->bytes;
    entry.result = receive->value->number;
    entry.message = receive->message;
    entry.direction = receive->claim.end ? ipcq_direction(receive->claim.end) : NULL;
    show_wait(receive->tl, &entry, receive->since, until);
}

static void end_wait(tl_receive *receive)
{
    const tl_context *tl = receive->tl;
    end_lack_of_message(receive, receive->when);
    if (receive->waits && tl->cpu && KB_UNLIKELY(kb_oplog_is_watched(tl->runner->has.log)))
        show_receive(receive, receive->when);
    receive->waits = false;
}

void tl_show_waits(tl_context *tl)
{
    kb_time now = kb_sim_now(tl->runner->has.sim);
    if (tl->lacks_credit)
        show_lack(tl, now, true);
    for (const tl_link *link = tl->receives.next; link != &tl->receives; link = link->next) {
        const tl_receive *receive = (const tl_receive *)link;
        if (receive->waits)
            show_receive(receive, now);
    }
}

/* It is over: what comes after it may begin. The kernel may be gone when this returns. */
static void finish(tl_receive *receive)
{
    tl_context *tl = receive->tl;
    pe_op op = receive->op;
    tl_value *value = receive->value;
    receive->there = true;
    receive->value = NULL;
    value->ready = (pe_ready){.at = receive->when};
    if (!receive->in_call)
        destroy_receive(receive);
    value->commands--;
    tl_value_release(tl, value);
    if (!tl->cpu)
        tl_instant_go_on(tl);
    else if (op)
        pe_units_close(tl->runner->has.units, op);
    else
        pe_units_poll(tl->runner->has.units, tl->run.pe);
    tl->under_way--;
    tl_context_progress(tl);
}

/* ---- To a destination ---- */

static kb_error *on_store_begun(void *self, uint64_t arg)
{
    return tl_command_begun(((tl_receive *)self)->store, arg);
}

static void on_stored(void *self, uint64_t arg)
{
    (void)arg;
    tl_receive *receive = self;
    tl_command_destroy(receive->store);
    receive->when = kb_sim_now(receive->tl->runner->has.sim);
    finish(receive);
}

static void start_storing(tl_receive *receive)
{
    const tl_context *tl = receive->tl;
    const tl_command *store = receive->store;
    tl_call call = call_of(receive);
    pe_command what = {.unit = KB_UNIT_DMA_WRITE,
                       .rects = store->rects[0].items,
                       .rect_count = store->rects[0].count,
                       .issued = receive->when,
                       .internal = true,
                       .begun = tl_command_binds_later(store) ? on_store_begun : NULL,
                       .ended = on_stored,
                       .self = receive,
                       .op = tl_log_entry(&call, "store")};
    what.op.operands[0] = receive->value->number;
    what.op.accesses = store->accesses;
    what.op.access_count = store->access_count;
    receive->is_storing = true;
    pe_op op;
    kb_error *err = pe_units_issue(tl->runner->has.units, tl->run.pe, &what, &op);
    if (err)
        kb_sim_fail(tl->runner->has.sim, err);
}

/* ---- Going on ---- */

/* What arrived is not what the kernel, which has gone on, said: it ends here. */
static void blame(tl_receive *receive)
{
    tl_context *tl = receive->tl;
    tl_call call = call_of(receive);
    kb_error *err = tl_locate_error(&call, receive->mismatch);
    receive->mismatch = NULL;
    tl->under_way++; /* it is to be there when it is stopped */
    finish(receive);
    tl->under_way--;
    tl_context_stop(tl, err);
}

/* Does what can be done next. The receive, and the kernel, may be gone when this returns. */
static void proceed(tl_receive *receive)
{
    tl_context *tl = receive->tl;
    if (receive->reads > 0 || receive->is_storing || !(receive->whole || receive->withdrawn))
        return;
    receive->when = tl_later_of(receive->when, kb_sim_now(tl->runner->has.sim));
    end_wait(receive);
    receive->there = true;
    tl_wake(tl);
    if (receive->store && !receive->may_store)
        return;
    if (receive->store && !receive->mismatch && !receive->withdrawn) {
        start_storing(receive);
        return;
    }
    if (receive->store)
        tl_command_destroy(receive->store);
    if (receive->mismatch && !receive->in_call && !receive->withdrawn)
        blame(receive);
    else
        finish(receive);
}

/* What was at the destination before is done with. */
static void on_may_store(void *self, uint64_t arg)
{
    (void)arg;
    tl_receive *receive = self;
    receive->may_store = true;
    proceed(receive);
}

/* ---- What arrives ---- */

static bool is_shape(const kb_shape *shape, const tl_dims *dims)
{
    bool same = shape->rank == (uint32_t)dims->rank;
    for (int i = 0; same && i < dims->rank; i++)
        same = shape->dims[i] == (uint64_t)dims->dims[i];
    return same;
}

static kb_error *describe_mismatch(const tl_receive *receive, const ipcq_message *message)
{
    tl_dims sent = {.rank = (int)message->shape.rank};
    for (int i = 0; i < sent.rank; i++)
        sent.dims[i] = (int64_t)message->shape.dims[i];
    kb_pe pe = ipcq_end_pe(message->from);
    return kb_error_new(KB_ERR_FAULT,
                        "expected %s %s, but sip%" PRIu32 ".cube%" PRIu32 ".pe%" PRIu32
                        " sent %s %s in direction %s",
                        tl_shape_print(&receive->shape).text, kb_dtype_name(receive->value->dtype),
                        pe.sip, pe.cube, pe.pe, tl_shape_print(&sent).text,
                        kb_dtype_name(message->dtype), ipcq_direction(message->from));
}

/* The value that was sent is the one that is received. */
static void take_message(tl_receive *receive, ipcq_message_id id)
{
    ipcq *queues = receive->tl->runner->has.queues;
    ipcq_message *message = ipcq_message_at(queues, id);
    tl_value *value = receive->value;
    receive->message = message->number;
    tl_checked_arrive(receive->tl, receive->point, message->order);
    if (message->dtype == value->dtype && is_shape(&message->shape, &receive->shape)) {
        value->data = message->data;
        message->data = NULL;
    } else {
        receive->mismatch = describe_mismatch(receive, message);
    }
    ipcq_message_free(queues, id);
}

/* Frees the slots that were read, up to the first that was not. */
static void free_slots(tl_context *tl, ipcq_end *end)
{
    tl_link *newer;
    for (tl_link *link = tl->slot_reads.prev; link != &tl->slot_reads; link = newer) {
        newer = link->prev;
        const tl_slot_read *read = (const tl_slot_read *)link;
        if (read->end != end)
            continue;
        if (!read->done)
            return;
        tl_unlink(link);
        kb_pool_give(&tl->runner->slot_reads, read->index);
        ipcq_free_slot(end, kb_sim_now(tl->runner->has.sim));
    }
}

static void on_slot_read(void *self, uint64_t arg)
{
    (void)arg;
    tl_slot_read *read = self;
    tl_receive *receive = read->receive;
    read->done = true;
    receive->reads--;
    free_slots(receive->tl, read->end);
    proceed(receive);
}

static kb_error *read_slot(tl_receive *receive, const ipcq_segment *segment)
{
    tl_context *tl = receive->tl;
    tl_runner *runner = tl->runner;
    uint32_t index = kb_pool_take(&runner->slot_reads);
    if (index == 0)
        return kb_error_nomem();
    tl_slot_read *read = kb_pool_at(&runner->slot_reads, index);
    *read = (tl_slot_read){.index = index, .receive = receive, .end = segment->end};
    tl_link_to(&tl->slot_reads, &read->link);
    receive->reads++;
    mem_rect rect = {
        .at = segment->at, .rows = 1, .bytes = segment->bytes > 0 ? segment->bytes : 1};
    tl_call call = call_of(receive);
    pe_command what = {.unit = KB_UNIT_DMA_READ,
                       .rects = &rect,
                       .rect_count = 1,
                       .issued = segment->when,
                       .internal = true,
                       .ended = on_slot_read,
                       .self = read,
                       .op = tl_log_entry(&call, "recv")};
    what.op.result = receive->value->number;
    what.op.direction = ipcq_direction(segment->end);
    pe_op op;
    return pe_units_issue(runner->has.units, tl->run.pe, &what, &op);
}

static void on_segment(ipcq_claim *claim, const ipcq_segment *segment)
{
    tl_receive *receive = (tl_receive *)((char *)claim - offsetof(tl_receive, claim));
    const tl_context *tl = receive->tl;
    bool is_exchanged = !tl->cpu || ipcq_set_settings(tl->run.queues)->buffer == KB_TCM;
    receive->whole = segment->last;
    receive->when = segment->when;
    if (segment->last) {
        end_lack_of_message(receive, segment->when);
        take_message(receive, segment->message);
    }
    kb_error *err = NULL;
    if (is_exchanged)
        ipcq_free_slot(segment->end, segment->when);
    else
        err = read_slot(receive, segment);
    if (err)
        kb_sim_fail(tl->runner->has.sim, err);
    else
        proceed(receive);
}

/* ---- Ends of kernels ---- */

static bool is_waiting(const tl_context *tl)
{
    for (const tl_link *link = tl->receives.next; link != &tl->receives; link = link->next)
        if (!((const tl_receive *)link)->there)
            return true;
    return false;
}

static void await_arrival(tl_context *tl)
{
    if (tl->cpu)
        pe_cpu_suspend(tl->cpu, &tl->arrivals);
    else
        kb_wait(tl->co, &tl->arrivals);
}

void tl_await_receives(tl_context *tl)
{
    while (is_waiting(tl))
        await_arrival(tl);
}

static tl_receive *find_open(const tl_context *tl)
{
    for (tl_link *link = tl->receives.next; link != &tl->receives; link = link->next) {
        tl_receive *receive = (tl_receive *)link;
        if (receive->value && !receive->withdrawn && !receive->is_storing)
            return receive;
    }
    return NULL;
}

void tl_withdraw_receives(tl_context *tl)
{
    bool is_current = tl->co && kb_sim_current(tl->runner->has.sim) == tl->co;
    tl->under_way++;
    tl_receive *receive;
    while ((receive = find_open(tl)) != NULL) {
        ipcq_claim_withdraw(&receive->claim);
        receive->withdrawn = true;
        receive->in_call = receive->in_call && is_current;
        proceed(receive);
    }
    tl->under_way--;
}

void tl_forget_receives(tl_context *tl)
{
    while (tl->receives.next != &tl->receives) {
        tl_receive *receive = (tl_receive *)tl->receives.next;
        ipcq_claim_withdraw(&receive->claim);
        destroy_receive(receive);
    }
    while (tl->slot_reads.next != &tl->slot_reads) {
        const tl_slot_read *read = (const tl_slot_read *)tl->slot_reads.next;
        tl_unlink(tl->slot_reads.next);
        kb_pool_give(&tl->runner->slot_reads, read->index);
    }
}

/* ---- The call ---- */

static tl_receive *new_receive(const tl_call *call, tl_value *value, const tl_dims *shape)
{
    tl_context *tl = call->tl;
    value->after = tl_checked_receive(call);
    uint32_t index = kb_pool_take(&tl->runner->receives);
    if (index == 0)
        tl_fail(call, kb_error_nomem());
    tl_receive *receive = kb_pool_at(&tl->runner->receives, index);
    *receive = (tl_receive){.index = index,
                            .tl = tl,
                            .at = call->at,
                            .name = call->name,
                            .value = value,
                            .shape = *shape,
                            .point = value->after,
                            .in_call = true};
    tl_link_to(&tl->receives, &receive->link);
    value->refs++;
    value->commands++;
    tl->under_way++;
    return receive;
}

/* Later commands that touch the destination come after it, and earlier ones before. */
static void open_store(const tl_call *call, tl_receive *receive, tl_command *store, bool wait)
{
    const tl_context *tl = call->tl;
    const pe_rects *rects = &store->rects[0];
    receive->store = store;
    tl_record_access(
        call, &(tl_touch){.rects = rects, .writes = true, .after = receive->point, .waited = wait});
    pe_span span = {.issued = tl->cpu->clock,
                    .writes = rects->items,
                    .write_count = rects->count,
                    .ready = on_may_store,
                    .self = receive};
    tl_check(call, pe_units_open(tl->runner->has.units, tl->run.pe, &span, &receive->op));
}

static void post(const tl_call *call, tl_receive *receive, ipcq_end *end)
{
    tl_context *tl = call->tl;
    receive->claim = (ipcq_claim){.got = on_segment,
                                  .pe = tl->run.pe,
                                  .end = end,
                                  .posted = tl_clock(tl),
                                  .file = call->at.file,
                                  .line = call->at.line};
    begin_wait(receive);
    ipcq_claim_post(tl->run.queues, &receive->claim);
}

/* The kernel's clock is when the message is there, or later. */
static void await(const tl_call *call, const tl_receive *receive)
{
    tl_context *tl = call->tl;
    while (!receive->there)
        await_arrival(tl);
    if (tl->cpu)
        tl->cpu->clock = tl_later_of(tl->cpu->clock, receive->when);
}

/* The call is done with it. A fault if what came is not what it asked for. */
static void let_go(const tl_call *call, tl_receive *receive)
{
    kb_error *mismatch = receive->mismatch;
    receive->mismatch = NULL;
    receive->in_call = false;
    if (!receive->value)
        destroy_receive(receive);
    if (mismatch)
        tl_fail(call, mismatch);
}

static ipcq_end *find_receiving_end(const tl_call *call, const char *direction)
{
    const tl_run *run = &call->tl->run;
    check_queues(call);
    if (!direction && !ipcq_is_member(run->queues, run->pe))
        tl_fault(call, "this PE has no directions to receive from");
    if (!direction)
        return NULL;
    ipcq_end *end = find_direction(call, direction);
    if (!ipcq_can_receive(end))
        tl_fault(call, "cannot receive from direction '%s': it is send-only", direction);
    return end;
}

/* Posts it and waits for it, or not. What others can wait for until it is there; 0: it is. */
static pe_op take_in(const tl_call *call, ipcq_end *end, tl_value *value, const tl_dims *shape,
                     tl_command *store, const char **from, bool wait)
{
    tl_spend_issue_time(call);
    if (!end) /* which message comes first is known at global time only */
        tl_synchronise(call->tl);
    tl_receive *receive = new_receive(call, value, shape);
    if (store && !call->tl->runner->has.instant)
        open_store(call, receive, store, wait);
    tl_point point = receive->point;
    post(call, receive, end);
    if (wait) {
        await(call, receive);
        tl_acquire(call, point);
    }
    if (from)
        *from = ipcq_direction(receive->claim.end);
    pe_op left = receive->value ? receive->op : 0;
    let_go(call, receive);
    return left;
}

/* To .dst: what the kernel gets is the place there. */
static tl_tensor receive_to(const tl_call *call, ipcq_end *end, tl_value *value,
                            const tl_dims *shape, const tl_recv_options *options, bool wait)
{
    tl_handle place = tl_packed_place(call, options->dst, shape, options->dtype);
    place.reinterpret = options->reinterpret;
    tl_command *store = tl_prepare_store(call, &place, value);
    place.filled = take_in(call, end, value, shape, store, options->from, wait);
    place.after = value->after;
    if (call->tl->runner->has.instant)
        place.filled = tl_instant_issue(store, TL_NO_UNIT);
    tl_value_release(call->tl, value);
    return tl_handle_new(call, &place);
}

tl_tensor tl_recv_(tl_context *tl, tl_place at, const char *direction, tl_dims shape,
                   tl_recv_options options, bool wait)
{
    tl_call call = tl_enter(tl, at, wait ? "tl_recv" : "tl_recv_async");
    tl_check_dtype(&call, options.dtype);
    (void)tl_check_shape(&call, &shape);
    ipcq_end *end = find_receiving_end(&call, direction);
    if (options.from && !wait)
        tl_fault(&call, "the direction is not known yet: use tl_recv with .from");
    tl_value *value = tl_value_new(&call, options.dtype, &shape);
    if (options.dst)
        return receive_to(&call, end, value, &shape, &options, wait);
    (void)take_in(&call, end, value, &shape, NULL, options.from, wait);
    return tl_handle_of(&call, value, &shape);
}
