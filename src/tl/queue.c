/*
 * queue.c: what kernels send to other PEs and receive from them. The protocol of the queues is in
 * src/ipcq; here is what a call checks, what it waits for, and the commands of the PE's DMA that
 * move bytes for it.
 *
 * A message gets its value when the DMA begins to send it. Whoever receives it has that value,
 * whatever is in the slot later (K1).
 *
 * A receive is open until its value is there, so that commands can come after it. Receives belong
 * to the context: a kernel that ends early withdraws them, and what would have been received is
 * never there.
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

/* The first two letters of a name; most have no more. */
static uint32_t key_of(const char *name)
{
    uint32_t first = (uint8_t)name[0];
    return first == 0 ? 0 : first | (uint32_t)(uint8_t)name[1] << 8;
}

static __attribute__((noinline)) ipcq_end *look_up_slowly(tl_context *tl, const char *direction)
{
    ipcq_end *end = tl->run.queues ? ipcq_find(tl->run.queues, tl->run.pe, direction) : NULL;
    if (end)
        tl->recent[tl->next_recent++ % TL_RECENT] =
            (tl_direction){key_of(direction), ipcq_direction(end), end};
    return end;
}

/* NULL if there is none such. Kernels mostly use the same few again and again. */
static inline ipcq_end *look_up(tl_context *tl, const char *direction)
{
    uint32_t key = key_of(direction);
    for (uint32_t i = 0; i < TL_RECENT && key != 0; i++)
        if (tl->recent[i].key == key &&
            (key >> 8 == 0 || strcmp(tl->recent[i].name, direction) == 0))
            return tl->recent[i].end;
    return look_up_slowly(tl, direction);
}

static __attribute__((noinline, cold)) KB_NORETURN void fault_direction(const tl_call *call,
                                                                        const char *direction)
{
    check_queues(call);
    if (!direction)
        tl_fault(call, "TL_ANY is for receiving only: name a direction");
    fault_unknown(call, direction);
}

static inline ipcq_end *find_direction(const tl_call *call, const char *direction)
{
    ipcq_end *end = KB_LIKELY(direction != NULL) ? look_up(call->tl, direction) : NULL;
    if (KB_UNLIKELY(!end))
        fault_direction(call, direction);
    return end;
}

bool tl_can_send_(tl_context *tl, tl_place at, const char *direction)
{
    tl_call call = tl_enter(tl, at, "tl_can_send");
    (void)call;
    const ipcq_end *end = direction ? look_up(tl, direction) : NULL;
    return end && ipcq_can_send(end);
}

bool tl_can_recv_(tl_context *tl, tl_place at, const char *direction)
{
    tl_call call = tl_enter(tl, at, "tl_can_recv");
    (void)call;
    const ipcq_end *end = direction ? look_up(tl, direction) : NULL;
    return end && ipcq_can_receive(end);
}

/* ---- Credits ----------------------------------------------------------------------------- */

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
        tell_log_of_lack(tl, tl_later_of(at, tl->lacks_since), false);
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
    kb_time interval = tl->runner->figures->cpu_issue_fs * POLL_ISSUES;
    tl->lacks_credit = true;
    tl->lacks_since = since;
    tl->lacks_on = end;
    tl->lacks_at = call->at;
    tl->lacks_bytes = bytes;
    tell_log_of_lack(tl, since, true);
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
    ipcq_message *message = command->segment.message;
    return message->data ? NULL : tl_operand_data(command->tl, &command->inputs[0], &message->data);
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
    KB_TRY(ipcq_arrive(&command->segment, &delivered));
    if (KB_UNLIKELY(delivered != 0)) {
        if (tl->delivery == delivered)
            tl->delivery = 0;
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
        show_lack(tl, now, true);
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
    tl_command *command = tl_command_new(call, sent, 1, NULL, &sent->shape);
    command->bind = bind_send;
    command->segment.message = message;
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
    pe_command what = {.unit = KB_UNIT_DMA_WRITE,
                       .rects = &rect,
                       .rect_count = 1,
                       .apart = true, /* with the slot's credit came all that was in it before */
                       .op.name = "send"};
    what.op.message = message->number;
    what.op.direction = ipcq_direction(end);
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

tl_future tl_send_(tl_context *tl, tl_place at, const char *direction, tl_tensor value, bool sync)
{
    tl_call call = tl_enter(tl, at, sync ? "tl_send_sync" : "tl_send");
    ipcq_end *end = find_direction(&call, direction);
    if (KB_UNLIKELY(!ipcq_can_send(end)))
        tl_fault(&call, "cannot send in direction '%s': it is receive-only", direction);
    tl_operand sent = tl_take(&call, value);
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

/* ---- Receives ---------------------------------------------------------------------------- */

static tl_receive *receive_of(ipcq_receive *posted)
{
    return (tl_receive *)((char *)posted - offsetof(tl_receive, posted));
}

static void destroy_receive(tl_receive *receive)
{
    kb_error_free(receive->mismatch);
    tl_unlink(&receive->link);
    if (receive->index)
        kb_pool_give(&receive->tl->runner->receives, receive->index);
}

static tl_call call_of(const tl_receive *receive)
{
    tl_place at = {receive->posted.file, receive->posted.line};
    return (tl_call){receive->tl, at, receive->name};
}

/* The PE waits for the message from then on, or until then: for a log that may be watched. */
static __attribute__((noinline)) void tell_log_in_sight(const tl_receive *receive, kb_time at,
                                                        bool begins)
{
    const tl_context *tl = receive->tl;
    kb_oplog *log = tl->runner->has.log;
    tl_call call = call_of(receive);
    kb_op entry = queue_entry(&call, "recv");
    (begins ? kb_oplog_begin : kb_oplog_end)(log, tl->pe, at, KB_CAUSE_MESSAGE,
                                             receive->value->bytes,
                                             kb_oplog_is_watched(log) ? &entry : NULL);
}

/* The PE waits for others, as far as it has nothing else to do. */
static inline void begin_wait(const tl_receive *receive)
{
    const tl_context *tl = receive->tl;
    if (KB_UNLIKELY(tl->synchronous))
        tell_log_in_sight(receive, receive->posted.posted, true);
    else if (KB_LIKELY(tl->cpu != NULL))
        kb_oplog_begin(tl->runner->has.log, tl->pe, receive->posted.posted, KB_CAUSE_MESSAGE,
                       receive->value->bytes, NULL);
}

/* The message is received, or never will be: what is left is to read its slots. */
static inline void end_wait(const tl_receive *receive)
{
    const tl_context *tl = receive->tl;
    if (KB_UNLIKELY(tl->synchronous))
        tell_log_in_sight(receive, receive->posted.when, false);
    else if (KB_LIKELY(tl->cpu != NULL))
        kb_oplog_end(tl->runner->has.log, tl->pe, receive->posted.when, KB_CAUSE_MESSAGE,
                     receive->value->bytes, NULL);
}

static void show_receive(const tl_receive *receive, kb_time until)
{
    tl_call call = call_of(receive);
    kb_op entry = queue_entry(&call, "recv");
    entry.unfinished = !receive->whole;
    entry.bytes = receive->value->bytes;
    entry.result = receive->value->number;
    entry.message = receive->message;
    entry.direction = receive->posted.end ? ipcq_direction(receive->posted.end) : NULL;
    show_wait(receive->tl, &entry, receive->posted.posted, until);
}

void tl_show_waits(tl_context *tl)
{
    kb_time now = kb_sim_now(tl->runner->has.sim);
    if (tl->lacks_credit)
        show_lack(tl, now, true);
    for (const tl_link *link = tl->receives.next; link != &tl->receives; link = link->next) {
        const tl_receive *receive = (const tl_receive *)link;
        if (!receive->there)
            show_receive(receive, now);
    }
}

/* The value is there, and nobody else counts it. */
static inline void set_value(tl_context *tl, tl_receive *receive)
{
    tl_value *value = receive->value;
    receive->value = NULL;
    value->ready = (pe_ready){.at = receive->posted.when};
    value->commands--;
    tl->under_way--;
    tl_value_release(tl, value);
}

/* It is over: what comes after it may begin. The kernel may be gone when this returns. */
static void finish(tl_receive *receive)
{
    tl_context *tl = receive->tl;
    pe_op op = receive->op;
    tl->under_way++; /* until the end of this */
    set_value(tl, receive);
    if (!receive->in_call)
        destroy_receive(receive);
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
    receive->posted.when = kb_sim_now(receive->tl->runner->has.sim);
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
                       .issued = receive->posted.when,
                       .internal = true,
                       .part_of = receive->op,
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

/* It is there: stores it, or ends it. The receive, and the kernel, may be gone when this returns.
 */
static void go_on(tl_receive *receive)
{
    const tl_context *tl = receive->tl;
    receive->posted.when = tl_later_of(receive->posted.when, kb_sim_now(tl->runner->has.sim));
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
    if (receive->there)
        go_on(receive);
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

static void on_slot_read(void *self, uint64_t number)
{
    ipcq_slot_was_read(&((tl_receive *)self)->posted, number);
}

static void read_slot(ipcq_receive *posted, const ipcq_slot_read *read)
{
    tl_receive *receive = receive_of(posted);
    const tl_context *tl = receive->tl;
    mem_rect rect = {.at = read->slot, .rows = 1, .bytes = read->bytes > 0 ? read->bytes : 1};
    tl_call call = call_of(receive);
    pe_command what = {.unit = KB_UNIT_DMA_READ,
                       .rects = &rect,
                       .rect_count = 1,
                       .issued = posted->when,
                       .internal = true,
                       .ended = on_slot_read,
                       .self = receive,
                       .arg = read->number,
                       .op = tl_log_entry(&call, "recv")};
    what.op.result = receive->value->number;
    what.op.direction = ipcq_direction(posted->end);
    pe_op op;
    kb_error *err = pe_units_issue(tl->runner->has.units, tl->run.pe, &what, &op);
    if (err)
        kb_sim_fail(tl->runner->has.sim, err);
}

/* It is there, or never will be. */
static inline void end_receive(tl_receive *receive)
{
    tl_context *tl = receive->tl;
    if (KB_UNLIKELY(tl->synchronous && kb_oplog_is_watched(tl->runner->has.log)))
        show_receive(receive, receive->posted.when);
    receive->there = true;
    tl_wake(tl);
    if (!receive->in_call || receive->store || !tl->cpu) /* else the call has it in hand */
        go_on(receive);
}

static void on_ended(ipcq_receive *posted)
{
    tl_receive *receive = receive_of(posted);
    if (!receive->whole)
        end_wait(receive);
    end_receive(receive);
}

/* The value that was sent is the one that is received. */
static void on_matched(ipcq_receive *posted, ipcq_message *message)
{
    tl_receive *receive = receive_of(posted);
    tl_value *value = receive->value;
    receive->whole = true;
    receive->message = message->number;
    end_wait(receive);
    tl_checked_arrive(receive->tl, receive->point, message->order);
    if (KB_LIKELY(message->dtype == value->dtype && is_shape(&message->shape, &receive->shape))) {
        value->data = message->data;
        message->data = NULL;
    } else {
        receive->mismatch = describe_mismatch(receive, message);
    }
    if (KB_LIKELY(posted->reads == 0))
        end_receive(receive);
}

static const ipcq_receive_ops receive_ops = {
    .matched = on_matched, .read = read_slot, .ended = on_ended};

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
        receive->withdrawn = true;
        receive->in_call = receive->in_call && is_current;
        if (receive->there)
            go_on(receive);
        else
            ipcq_withdraw(&receive->posted);
    }
    tl->under_way--;
}

void tl_forget_receives(tl_context *tl)
{
    while (tl->receives.next != &tl->receives) {
        tl_receive *receive = (tl_receive *)tl->receives.next;
        ipcq_forget(&receive->posted);
        destroy_receive(receive);
    }
}

/* ---- The call ---- */

/* One that the kernel only waits for needs no memory of its own. */
static tl_receive *take_receive(const tl_call *call, bool own)
{
    tl_context *tl = call->tl;
    if (own) {
        tl->receive.index = 0;
        return &tl->receive;
    }
    uint32_t index = kb_pool_take(&tl->runner->receives);
    if (index == 0)
        tl_fail(call, kb_error_nomem());
    tl_receive *receive = kb_pool_at(&tl->runner->receives, index);
    receive->index = index;
    return receive;
}

static tl_receive *new_receive(const tl_call *call, ipcq_end *end, tl_value *value,
                               const tl_dims *shape, bool own)
{
    tl_context *tl = call->tl;
    value->after = tl_checked_receive(call);
    tl_receive *receive = take_receive(call, own);
    receive->posted.ops = &receive_ops;
    receive->posted.end = end;
    receive->posted.posted = receive->posted.when = tl_clock(tl);
    receive->posted.file = call->at.file;
    receive->posted.line = call->at.line;
    receive->posted.waits = false;
    receive->tl = tl;
    receive->name = call->name;
    receive->value = value;
    receive->shape = *shape;
    receive->message = 0;
    receive->point = value->after;
    receive->op = 0;
    receive->store = NULL;
    receive->mismatch = NULL;
    receive->in_call = true;
    receive->whole = receive->there = receive->may_store = false;
    receive->is_storing = receive->withdrawn = false;
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

static void post(const tl_call *call, tl_receive *receive)
{
    begin_wait(receive);
    if (receive->posted.end)
        ipcq_post(&receive->posted);
    else
        ipcq_post_any(call->tl->run.queues, call->tl->run.pe, &receive->posted);
}

/* The kernel's clock is when the message is there, or later. */
static void await(const tl_call *call, const tl_receive *receive)
{
    tl_context *tl = call->tl;
    while (!receive->there)
        await_arrival(tl);
    if (tl->cpu)
        tl->cpu->clock = tl_later_of(tl->cpu->clock, receive->posted.when);
}

/* The call is done with it. A fault if what came is not what it asked for. */
static void let_go(const tl_call *call, tl_receive *receive)
{
    kb_error *mismatch = receive->mismatch;
    bool is_there = receive->in_call && receive->there && receive->value && !receive->store;
    receive->mismatch = NULL;
    receive->in_call = false;
    if (KB_LIKELY(is_there)) /* nothing that waits has the value yet */
        set_value(call->tl, receive);
    if (!receive->value)
        destroy_receive(receive);
    if (KB_UNLIKELY(mismatch != NULL))
        tl_fail(call, mismatch);
}

static ipcq_end *find_receiving_end(const tl_call *call, const char *direction)
{
    const tl_run *run = &call->tl->run;
    if (KB_UNLIKELY(!direction)) {
        check_queues(call);
        if (!ipcq_is_member(run->queues, run->pe))
            tl_fault(call, "this PE has no directions to receive from");
        return NULL;
    }
    ipcq_end *end = find_direction(call, direction);
    if (KB_UNLIKELY(!ipcq_can_receive(end)))
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
    tl_receive *receive = new_receive(call, end, value, shape, wait && !store);
    if (store && !call->tl->runner->has.instant)
        open_store(call, receive, store, wait);
    tl_point point = receive->point;
    post(call, receive);
    if (wait) {
        await(call, receive);
        if (KB_UNLIKELY(point != 0))
            tl_acquire(call, point);
    }
    if (from)
        *from = ipcq_direction(receive->posted.end);
    pe_op left = receive->value ? receive->op : 0;
    let_go(call, receive);
    return left;
}

/* To .dst: what the kernel gets is the place there. */
static tl_handle find_place(const tl_call *call, const tl_dims *shape,
                            const tl_recv_options *options)
{
    tl_handle place = tl_packed_place(call, options->dst, shape, options->dtype);
    place.reinterpret = options->reinterpret;
    return place;
}

static tl_tensor handle_of_place(const tl_call *call, tl_handle *place, tl_value *value,
                                 tl_command *store, pe_op filled)
{
    place->filled = filled;
    place->after = value->after;
    if (call->tl->runner->has.instant)
        place->filled = tl_instant_issue(store, TL_NO_UNIT);
    tl_value_release(call->tl, value);
    return tl_handle_new(call, place);
}

tl_tensor tl_recv_(tl_context *tl, tl_place at, const char *direction, tl_dims shape,
                   tl_recv_options options, bool wait)
{
    tl_call call = tl_enter(tl, at, wait ? "tl_recv" : "tl_recv_async");
    tl_check_dtype(&call, options.dtype);
    (void)tl_check_shape(&call, &shape);
    ipcq_end *end = find_receiving_end(&call, direction);
    if (KB_UNLIKELY(options.from && !wait))
        tl_fault(&call, "the direction is not known yet: use tl_recv with .from");
    tl_value *value = tl_value_new(&call, options.dtype, &shape);
    tl_command *store = NULL;
    tl_handle place;
    if (KB_UNLIKELY(options.dst)) {
        place = find_place(&call, &shape, &options);
        store = tl_prepare_store(&call, &place, value);
    }
    pe_op left = take_in(&call, end, value, &shape, store, options.from, wait);
    if (KB_UNLIKELY(store))
        return handle_of_place(&call, &place, value, store, left);
    return tl_handle_of(&call, value, &shape);
}
