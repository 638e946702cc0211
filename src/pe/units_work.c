/*
 * units_work.c: what a command of the DMA does from when it begins. It has one transfer for each
 * memory that it moves something in, and is done when the last has ended and the TCM has passed
 * all. Bytes that stay in the own TCM are read there and written there, and booked as an engine's.
 *
 * Of a copy of the host even those are a stream, which never delays an engine: it begins at a time
 * that a kernel which runs ahead does not know.
 */
#include "units_private.h"

/* What a PE that waits for memory there waits for. */
static kb_cause cause_of(const kb_location *where, kb_pe pe)
{
    if (where->pe.sip != pe.sip)
        return KB_CAUSE_OTHER_SIPS;
    if (where->pe.cube != pe.cube)
        return KB_CAUSE_OTHER_CUBES;
    return where->memory == KB_TCM ? KB_CAUSE_CUBE_PES : KB_CAUSE_LOCAL_MEMORY;
}

static bool add_share(pe_units *units, uint32_t node, uint64_t bytes, kb_cause cause)
{
    for (size_t i = units->shares.count; i-- > 0;)
        if (units->shares.items[i].node == node) {
            units->shares.items[i].bytes += bytes;
            return true;
        }
    return kb_vec_push(&units->shares, ((share){.node = node, .bytes = bytes, .cause = cause}));
}

/* What the command moves at each node; *own: in its PE's own TCM. */
static kb_error *sum_up_rects(pe_units *units, operation *op, uint64_t *own)
{
    units->shares.count = 0;
    *own = 0;
    for (size_t i = 0; i < op->rect_count; i++) {
        const kb_location *where = &op->memory.rects[i].at;
        uint64_t bytes = mem_rect_bytes(&op->memory.rects[i]);
        if (bytes == 0)
            continue;
        op->bytes += bytes;
        if (units_is_own_tcm(where, op->pe->pe)) {
            *own += bytes;
            continue;
        }
        op->memory.streamed += bytes;
        if (!add_share(units, mem_memories_node(units->has.memories, where), bytes,
                       cause_of(where, op->pe->pe)))
            return kb_error_nomem();
    }
    return NULL;
}

/* The direction of the TCM that the DMA's streams go through. */
static tcm_port *stream_port(const operation *op)
{
    return op->lane->unit == KB_UNIT_DMA_READ ? &op->pe->writes : &op->pe->reads;
}

/* When the oldest one under way besides this one began; now if there is none. */
static kb_time oldest_start(const operation *op, kb_time now)
{
    const operation *oldest = op->lane->oldest == op ? op->next : op->lane->oldest;
    return oldest ? oldest->start : now;
}

/* The log knows what it waits for until then. */
static void wait_for_tcm(pe_units *units, operation *op, kb_time until)
{
    kb_time now = kb_sim_now(units->has.sim);
    if (op->moves)
        kb_oplog_end(units->has.log, op->pe->number, now, (kb_cause)op->cause, op->bytes, NULL);
    op->moves = false;
    if (!op->in_tcm && !op->of_host) {
        kb_oplog_begin(units->has.log, op->pe->number, now, KB_CAUSE_TCM, op->bytes,
                       units_entry(op));
        op->in_tcm = true;
    }
    (void)kb_sim_at(units->has.sim, &op->lane->source, until, units->on_end, op->index);
}

/* The end of its stream: whether all bytes have passed. */
static kb_error *end_stream(pe_units *units, operation *op, bool *passed)
{
    kb_time now = kb_sim_now(units->has.sim);
    *passed = true;
    if (op->lags) {
        KB_TRY(tcm_port_catch_up(stream_port(op), op->index, now, passed));
    } else if (op->memory.streamed > 0) {
        kb_time work = units_tcm_time(units, op->memory.streamed);
        bool lags;
        KB_TRY(tcm_port_stream_end(stream_port(op), op->index, op->start, now, work,
                                   oldest_start(op, now), &lags));
        *passed = !lags;
    }
    op->lags = !*passed;
    return NULL;
}

void units_finish_dma(pe_units *units, operation *op)
{
    kb_time now = kb_sim_now(units->has.sim);
    bool passed;
    kb_error *err = end_stream(units, op, &passed);
    if (err)
        units_fail(units, err);
    else if (!passed)
        wait_for_tcm(units, op, tcm_port_estimate(stream_port(op), op->index, now));
    else if (op->memory.not_before > now)
        wait_for_tcm(units, op, op->memory.not_before);
    else
        units_end(units, op);
}

/* ---- Channels that the host has ---- */

/* What the PE waits for while the command does. */
static kb_cause cause_of_command(const operation *op)
{
    const kb_location *where = &op->memory.rects[0].at;
    return units_is_own_tcm(where, op->pe->pe) ? KB_CAUSE_TCM : cause_of(where, op->pe->pe);
}

void units_begin_hold_up(pe_units *units, operation *op)
{
    if (op->held_up || op->rect_count == 0)
        return;
    op->held_up = true;
    kb_oplog_begin(units->has.log, op->pe->number, kb_sim_now(units->has.sim), cause_of_command(op),
                   0, units_entry(op));
}

void units_end_hold_up(pe_units *units, operation *op)
{
    op->held_up = false;
    kb_oplog_end(units->has.log, op->pe->number, kb_sim_now(units->has.sim), cause_of_command(op),
                 0, units_entry(op));
}

/* ---- Transfers ---- */

/*
 * What a transfer says when it has ended: the operation, the cause, and how many bytes the log was
 * told of, which are fewer than there are only if a command fills a TCM of the largest size.
 */
enum { TRANSFER_BYTE_BITS = 28, MAX_LOGGED_BYTES = (1 << TRANSFER_BYTE_BITS) - 1 };

static uint64_t logged_bytes(uint64_t bytes)
{
    return bytes < MAX_LOGGED_BYTES ? bytes : MAX_LOGGED_BYTES;
}

static uint64_t transfer_arg(uint32_t index, const share *s)
{
    _Static_assert((int)KB_CAUSES <= 1 << (32 - TRANSFER_BYTE_BITS), "a cause fits");
    return (uint64_t)s->cause << (32 + TRANSFER_BYTE_BITS) | logged_bytes(s->bytes) << 32 | index;
}

static kb_oplog_transfer transfer_of(const operation *op, uint32_t node,
                                     const net_completion *completion)
{
    return (kb_oplog_transfer){
        .id = op->id,
        .from = op->pe->node,
        .to = node,
        .read = op->lane->unit == KB_UNIT_DMA_READ,
        .issued = completion->issued,
        .ended = completion->ended,
        .latency = completion->overhead + completion->wire,
        .bandwidth = completion->drain,
        .queueing = completion->queueing,
    };
}

/* The memory that the transfer was with: where the command waits for that cause. */
static __attribute__((noinline)) void tell_path(pe_units *units, const operation *op,
                                                kb_cause cause, const net_completion *completion)
{
    for (size_t i = 0; i < op->rect_count; i++) {
        const kb_location *where = &op->memory.rects[i].at;
        if (units_is_own_tcm(where, op->pe->pe) || cause_of(where, op->pe->pe) != cause)
            continue;
        kb_oplog_transfer moved =
            transfer_of(op, mem_memories_node(units->has.memories, where), completion);
        kb_oplog_tell_transfer(units->has.log, &moved);
        return;
    }
}

static void on_moved(void *self, uint64_t arg, const net_completion *completion)
{
    pe_units *units = self;
    operation *op = operation_at(units, (uint32_t)arg);
    bool is_last = --op->memory.transfers == 0;
    kb_cause cause = (kb_cause)(arg >> (32 + TRANSFER_BYTE_BITS));
    uint64_t bytes = (arg >> 32) & MAX_LOGGED_BYTES;
    if (KB_UNLIKELY(op->id != 0))
        tell_path(units, op, cause, completion);
    if (KB_UNLIKELY(!op->moves))
        kb_oplog_end(units->has.log, op->pe->number, kb_sim_now(units->has.sim), cause, bytes,
                     units_entry(op));
    if (is_last)
        units_finish_dma(units, op);
}

/* Of a copy of the host. What follows is sent because of it. */
static void tell_path_of_host(pe_units *units, const operation *op, uint32_t node,
                              const net_completion *completion)
{
    if (KB_LIKELY(!kb_oplog_is_path_watched(units->has.log)))
        return;
    kb_oplog_control record = {
        .name = "copy",
        .end = completion->ended,
        .moved = transfer_of(op, node, completion),
        .begun_by = op->log.begun_by,
    };
    kb_oplog_tell_control(units->has.log, &record);
}

static void on_moved_for_host(void *self, uint64_t arg, const net_completion *completion)
{
    pe_units *units = self;
    operation *op = operation_at(units, (uint32_t)arg);
    tell_path_of_host(units, op, (uint32_t)(arg >> 32), completion);
    if (op->memory.moved)
        op->memory.moved(op->self, op->arg, completion);
    units_finish_dma(units, op);
}

static kb_error *submit_for_host(pe_units *units, operation *op)
{
    const share *s = &units->shares.items[0];
    net_order order = net_make_order_by_nodes(&units->routes, op->pe->node, s->node, s->bytes,
                                              op->lane->unit == KB_UNIT_DMA_READ);
    order.forwarded = op->forwards;
    order.done = on_moved_for_host;
    order.self = units;
    order.arg = (uint64_t)s->node << 32 | op->index;
    op->log.begun_by = (kb_reason){KB_REASON_ISSUE, kb_oplog_control_cause(units->has.log)};
    return net_submit(units->has.fabric, &order);
}

static kb_error *submit_shares(pe_units *units, operation *op)
{
    op->memory.transfers = (uint32_t)units->shares.count;
    for (size_t i = 0; i < units->shares.count; i++) {
        const share *s = &units->shares.items[i];
        net_order order = net_make_order_by_nodes(&units->routes, op->pe->node, s->node, s->bytes,
                                                  op->lane->unit == KB_UNIT_DMA_READ);
        order.plain = op->id == 0;
        order.done = on_moved;
        order.self = units;
        order.arg = transfer_arg(op->index, s);
        if (KB_UNLIKELY(!op->moves))
            kb_oplog_begin(units->has.log, op->pe->number, op->start, s->cause,
                           logged_bytes(s->bytes), units_entry(op));
        KB_TRY(net_submit(units->has.fabric, &order));
    }
    return NULL;
}

/* What stays in the own TCM passes both of its ports, as an engine's bytes do. */
static kb_error *copy_in_tcm(pe_units *units, operation *op, uint64_t bytes)
{
    kb_time work = topo_rate_time(units->shape->pe.tcm_bytes_per_s, bytes), read, written;
    pe_state *state = op->pe;
    KB_TRY(tcm_port_book(&state->reads, op->start, op->start, work, &read));
    KB_TRY(tcm_port_book(&state->writes, op->start, op->start, work, &written));
    op->memory.not_before = kb_max(read, written);
    return NULL;
}

/* A command of a copy of the host. Its rectangle is in its PE's own TCM, with `own` bytes, or not
 * at all. */
static kb_error *begin_for_host(pe_units *units, operation *op, uint64_t own)
{
    op->memory.streamed = op->fills ? 0 : op->bytes;
    if (op->memory.streamed > 0)
        tcm_port_stream_begin(stream_port(op));
    if (own == 0)
        return submit_for_host(units, op);
    kb_time passed = kb_time_add(op->start, units_tcm_time(units, own));
    (void)kb_sim_at(units->has.sim, &op->lane->source, passed, units->on_passed, op->index);
    return NULL;
}

static void tell_log_of_begin(pe_units *units, operation *op)
{
    const share *s = units->shares.items;
    op->moves = units->shares.count == 1 && s->bytes == op->bytes && !op->watched;
    if (KB_LIKELY(op->moves)) {
        op->cause = (uint8_t)s->cause;
        kb_oplog_begin_transfer(units->has.log, op->pe->number, op->start, op->lane->unit, s->cause,
                                s->bytes);
    } else {
        kb_oplog_start(units->has.log, op->pe->number, op->start, op->lane->unit);
    }
}

kb_error *units_begin_dma(pe_units *units, operation *op)
{
    uint64_t own = 0;
    op->memory.not_before = op->start;
    op->memory.streamed = 0;
    KB_TRY(sum_up_rects(units, op, &own));
    if (KB_UNLIKELY(op->of_host))
        return begin_for_host(units, op, own);
    tell_log_of_begin(units, op);
    if (own > 0)
        KB_TRY(copy_in_tcm(units, op, own));
    if (op->memory.copies_in_tcm)
        units_remove_event_user(units, op);
    if (op->memory.streamed == 0) {
        units_finish_dma(units, op);
        return NULL;
    }
    tcm_port_stream_begin(stream_port(op));
    return submit_shares(units, op);
}
