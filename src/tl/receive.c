/*
 * receive.c: what kernels receive from other PEs. src/ipcq finds the message of a receive; here is
 * what a call checks, the reading of slots outside of the TCM, and the store to a destination.
 *
 * A receive is open until its value is there, so that commands can come after it. Receives belong
 * to the context: a kernel that ends early withdraws them, and what would have been received is
 * never there.
 */
#include <inttypes.h>

#include "queues.h"

/* ---- Receives ---------------------------------------------------------------------------- */

static tl_receive *receive_of(ipcq_receive *posted)
{
    return (tl_receive *)((char *)posted - offsetof(tl_receive, posted));
}

static void destroy_receive(tl_receive *receive)
{
    kb_error_free(receive->mismatch);
    KB_RING_REMOVE(&receive->link);
    if (receive->index)
        kb_pool_give(&receive->tl->runner->receives, receive->index);
}

static tl_call call_of(const tl_receive *receive)
{
    tl_srcloc at = {receive->posted.file, receive->posted.line};
    return (tl_call){receive->tl, at, receive->name};
}

/* The PE waits for the message from then on, or until then: for a log that may be watched. */
static __attribute__((noinline)) void tell_log_in_sight(const tl_receive *receive, kb_time at,
                                                        bool begins)
{
    const tl_context *tl = receive->tl;
    kb_oplog *log = tl->runner->has.log;
    tl_call call = call_of(receive);
    kb_op entry = tl_queue_entry(&call, "recv");
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

/* Its message may have been there when it was posted: then it took no time. */
static void add_reasons(const tl_receive *receive, kb_time until, kb_op *entry)
{
    entry->id = receive->id;
    entry->begun_by = receive->issued_by;
    if (receive->whole && until > receive->posted.posted)
        entry->ended_by = receive->posted.by;
    else if (receive->whole)
        entry->ended_by.kind = KB_REASON_WORK;
}

static void show_receive(const tl_receive *receive, kb_time until)
{
    tl_call call = call_of(receive);
    kb_op entry = tl_queue_entry(&call, "recv");
    entry.unfinished = !receive->whole;
    entry.bytes = receive->value->bytes;
    entry.result = receive->value->number;
    entry.message = receive->message;
    entry.direction = receive->posted.end ? ipcq_direction(receive->posted.end) : NULL;
    if (KB_UNLIKELY(receive->id != 0))
        add_reasons(receive, until, &entry);
    tl_show_wait(receive->tl, &entry, receive->posted.posted, until);
}

void tl_show_waits(tl_context *tl)
{
    kb_time now = kb_sim_now(tl->runner->has.sim);
    if (tl->lacks_credit)
        tl_show_lack(tl, now, true);
    for (const tl_link *link = tl->receives.next; link != &tl->receives; link = link->next) {
        const tl_receive *receive = (const tl_receive *)link;
        if (!receive->there)
            show_receive(receive, now);
    }
}

/* The value is there, and nothing else counts it. */
static inline void set_value(tl_context *tl, tl_receive *receive)
{
    tl_value *value = receive->value;
    receive->value = NULL;
    value->ready = (pe_ready){.at = receive->posted.when, .id = receive->id};
    value->commands--;
    tl->under_way--;
    tl_note_end(tl, receive->id);
    tl_value_release(tl, value);
}

static void close_span(const tl_context *tl, pe_op op, uint32_t id)
{
    pe_units_set_id(tl->runner->has.units, op, id);
    pe_units_close(tl->runner->has.units, op);
}

/* It is over: what comes after it may begin. The kernel may be gone when this returns. */
static void finish(tl_receive *receive)
{
    tl_context *tl = receive->tl;
    pe_op op = receive->op;
    uint32_t id = receive->id;
    tl->under_way++; /* until the end of this */
    set_value(tl, receive);
    if (!receive->in_call)
        destroy_receive(receive);
    if (!tl->cpu)
        tl_instant_go_on(tl);
    else if (op)
        close_span(tl, op, id);
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
    const tl_details *store = receive->store->details;
    tl_call call = call_of(receive);
    pe_command what = {.unit = KB_UNIT_DMA_WRITE,
                       .rects = store->rects[0].items,
                       .rect_count = store->rects[0].count,
                       .issued = receive->posted.when,
                       .internal = true,
                       .part_of = receive->op,
                       .begun = tl_command_binds_later(receive->store) ? on_store_begun : NULL,
                       .ended = on_stored,
                       .self = receive,
                       .op = tl_log_entry(&call, "store")};
    what.op.operands[0] = receive->value->number;
    what.op.accesses = store->accesses;
    what.op.access_count = store->access_count;
    what.op.id = kb_oplog_new_id(tl->runner->has.log);
    if (what.op.id != 0) {
        what.op.begun_by = receive->posted.by;
        receive->id = (uint32_t)what.op.id; /* the value is there when it is stored */
    }
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
    receive->posted.when = kb_max(receive->posted.when, kb_sim_now(tl->runner->has.sim));
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
    if (receive->there) {
        if (KB_UNLIKELY(receive->id != 0)) /* that is the later of the two */
            receive->posted.by = pe_units_begun_by(receive->tl->runner->has.units, receive->op);
        go_on(receive);
    }
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
    return kb_error_new(KB_ERR_FAULT, "expected %s %s, but %s sent %s %s in direction %s",
                        tl_shape_print(&receive->shape).text, kb_dtype_name(receive->value->dtype),
                        topo_pe_name(pe).text, tl_shape_print(&sent).text,
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
                       .sequence = receive->sequence,
                       .ended = on_slot_read,
                       .self = receive,
                       .arg = read->number,
                       .op = tl_log_entry(&call, "recv")};
    what.op.result = receive->value->number;
    what.op.direction = ipcq_direction(posted->end);
    what.op.id = kb_oplog_new_id(tl->runner->has.log);
    if (what.op.id != 0) {
        what.op.begun_by = posted->by;
        ipcq_set_read_id(posted, read->number, (uint32_t)what.op.id);
    }
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
    if (KB_UNLIKELY(receive->id != 0))
        tl->arrived_by = receive->posted.by;
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

/* The receiver did not say what it expects. */
static void adopt_form(tl_receive *receive, const ipcq_message *message)
{
    receive->shape = (tl_dims){.rank = (int)message->shape.rank};
    for (int i = 0; i < receive->shape.rank; i++)
        receive->shape.dims[i] = (int64_t)message->shape.dims[i];
    receive->value->dtype = message->dtype;
    receive->value->bytes = message->bytes;
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
    if (KB_UNLIKELY(receive->any_form))
        adopt_form(receive, message);
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
    kb_time asked = tl_clock(tl);
    while (is_waiting(tl))
        await_arrival(tl);
    tl_explain_clock(tl, asked, tl->arrived_by.kind, tl->arrived_by.id);
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

static void give_id(tl_receive *receive)
{
    const tl_context *tl = receive->tl;
    receive->id = kb_oplog_new_id(tl->runner->has.log);
    receive->issued_by = receive->posted.by = tl->cpu->clock_by;
}

/* `shape` NULL: that of what arrives. */
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
    receive->any_form = !shape;
    receive->shape = KB_LIKELY(shape != NULL) ? *shape : (tl_dims){0};
    receive->message = 0;
    receive->sequence = tl->cpu ? pe_cpu_take_sequence(tl->cpu) : 0;
    receive->point = value->after;
    receive->op = 0;
    receive->store = NULL;
    receive->mismatch = NULL;
    receive->in_call = true;
    receive->whole = receive->there = receive->may_store = false;
    receive->is_storing = receive->withdrawn = false;
    receive->id = 0;
    if (KB_UNLIKELY(tl->synchronous && tl->cpu))
        give_id(receive);
    KB_RING_PUSH(&tl->receives, &receive->link);
    value->refs++;
    value->commands++;
    tl->under_way++;
    return receive;
}

/* Later commands that touch the destination come after it, and earlier ones before. */
static void open_store(const tl_call *call, tl_receive *receive, tl_command *store, bool wait)
{
    const tl_context *tl = call->tl;
    const pe_rects *rects = &store->details->rects[0];
    receive->store = store;
    tl_record_access(
        call, &(tl_touch){.rects = rects, .writes = true, .after = receive->point, .waited = wait});
    pe_span span = {.issued = tl->cpu->clock,
                    .writes = rects->items,
                    .write_count = rects->count,
                    .ready = on_may_store,
                    .self = receive,
                    .id = receive->id,
                    .issued_by = receive->issued_by};
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
    kb_time asked = tl_clock(tl);
    while (!receive->there)
        await_arrival(tl);
    if (tl->cpu)
        tl->cpu->clock = kb_max(tl->cpu->clock, receive->posted.when);
    if (KB_UNLIKELY(receive->id != 0))
        tl_explain_clock(tl, asked, receive->posted.by.kind, receive->posted.by.id);
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
        tl_check_queues(call);
        if (!ipcq_is_member(run->queues, run->pe))
            tl_fault(call, "this PE has no directions to receive from");
        return NULL;
    }
    ipcq_end *end = tl_find_direction(call, direction);
    if (KB_UNLIKELY(!ipcq_can_receive(end)))
        tl_fault(call, "cannot receive from direction '%s': it is send-only", direction);
    return end;
}

/* Posts it and waits for it, or not. What others can wait for until it is there; 0: it is. */
static pe_op take_in(const tl_call *call, ipcq_end *end, tl_value *value, const tl_dims *shape,
                     tl_command *store, const char **from, bool wait, tl_dims *arrived)
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
    if (KB_UNLIKELY(arrived != NULL))
        *arrived = receive->shape;
    const ipcq_end *matched = receive->posted.end;
    pe_op left = receive->value ? receive->op : 0;
    let_go(call, receive);
    if (!from)
        return left;
    if (!matched) /* this call has led to the fault that stops the kernel */
        kb_co_exit(call->tl->co);
    *from = ipcq_direction(matched);
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

tl_tensor tl_recv_(tl_context *tl, tl_srcloc at, const char *direction, tl_dims shape,
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
    pe_op left = take_in(&call, end, value, &shape, store, options.from, wait, NULL);
    if (KB_UNLIKELY(store))
        return handle_of_place(&call, &place, value, store, left);
    return tl_handle_of(&call, value, &shape);
}

tl_tensor tl_recv_any_form(tl_context *tl, tl_srcloc at, const char *direction)
{
    tl_call call = tl_enter(tl, at, "tl_recv");
    ipcq_end *end = find_receiving_end(&call, direction);
    tl_value *value = tl_value_new(&call, KB_I8, &(tl_dims){.rank = 1}); /* without elements */
    tl_dims shape;
    take_in(&call, end, value, NULL, NULL, NULL, true, &shape);
    tl_value_take_place(&call, value);
    return tl_handle_of(&call, value, &shape);
}
