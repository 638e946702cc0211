/*
 * units_work.c: what a command does from when it begins.
 *
 * An engine is free again when its time is over and its bytes have passed the TCM, and the result
 * is there a tail later. A DMA has one transfer for each memory that it moves something in, and is
 * done when the last has ended and the TCM has passed all; bytes that stay in the own TCM are read
 * there and written there.
 */
#include "units_private.h"

/* ---- Engines ----------------------------------------------------------------------------- */

static kb_time later_of(kb_time a, kb_time b)
{
    return a > b ? a : b;
}

/* Books bytes of both directions of the TCM. */
static kb_error *book_tcm(pe_units *units, pe_state *state, uint64_t reads, uint64_t writes,
                          kb_time *done)
{
    kb_time now = kb_sim_now(units->has.sim), read = now, written = now;
    uint64_t rate = units->shape->pe.tcm_bytes_per_s;
    KB_TRY(pe_tcm_book(&state->reads, now, topo_rate_time(rate, reads), &read));
    KB_TRY(pe_tcm_book(&state->writes, now, topo_rate_time(rate, writes), &written));
    *done = later_of(read, written);
    return NULL;
}

kb_error *units_begin_engine(pe_units *units, uint32_t index)
{
    operation *op = operation_at(units, index);
    kb_sim *sim = units->has.sim;
    kb_time passed = op->start;
    KB_TRY(book_tcm(units, op->pe, op->engine.tcm_reads, op->engine.tcm_writes, &passed));
    kb_oplog_begin(units->has.log, op->pe->number, kb_sim_now(sim),
                   op->lane->unit == KB_UNIT_GEMM ? KB_CAUSE_MATRIX : KB_CAUSE_VECTOR, 0,
                   units_entry(op));
    kb_time worked = kb_time_add(op->start, op->engine.time);
    kb_time free_at = later_of(worked, passed);
    kb_time end = later_of(kb_time_add(worked, op->engine.tail), passed);
    if (free_at < end)
        (void)kb_sim_at(sim, &op->lane->source, free_at, units->on_free, index);
    if (op->start < end)
        (void)kb_sim_at(sim, &op->lane->source, end, units->on_end, index);
    else
        units_end(units, index);
    return NULL;
}

/* ---- DMAs -------------------------------------------------------------------------------- */

static bool is_own_tcm(const kb_location *where, kb_pe pe)
{
    return where->memory == KB_TCM && where->pe.sip == pe.sip && where->pe.cube == pe.cube &&
           where->pe.pe == pe.pe;
}

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
        if (is_own_tcm(where, op->pe->pe)) {
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
static pe_tcm_port *stream_port(const operation *op)
{
    return op->lane->unit == KB_UNIT_DMA_READ ? &op->pe->writes : &op->pe->reads;
}

/* When the oldest one under way besides this one began; now if there is none. */
static kb_time oldest_start(const pe_units *units, uint32_t index, kb_time now)
{
    const operation *op = operation_at(units, index);
    uint32_t oldest = op->lane->oldest == index ? op->next : op->lane->oldest;
    return oldest != NONE ? operation_at(units, oldest)->start : now;
}

/* All transfers have ended; what is left is the TCM. */
static void finish_dma(pe_units *units, uint32_t index)
{
    operation *op = operation_at(units, index);
    kb_time now = kb_sim_now(units->has.sim), passed = now;
    if (op->memory.streamed > 0) {
        kb_time work = topo_rate_time(units->shape->pe.tcm_bytes_per_s, op->memory.streamed);
        kb_error *err = pe_tcm_stream_end(stream_port(op), op->start, now, work,
                                          oldest_start(units, index, now), &passed);
        if (err) {
            units_fail(units, err);
            return;
        }
    }
    kb_time end = later_of(passed, op->memory.not_before);
    if (now == end) {
        units_end(units, index);
        return;
    }
    op->in_tcm = true;
    kb_oplog_begin(units->has.log, op->pe->number, now, KB_CAUSE_TCM, op->bytes, units_entry(op));
    (void)kb_sim_at(units->has.sim, &op->lane->source, end, units->on_end, index);
}

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

static void on_moved(void *self, uint64_t arg, const net_receipt *receipt)
{
    (void)receipt;
    pe_units *units = self;
    uint32_t index = (uint32_t)arg;
    operation *op = operation_at(units, index);
    bool is_last = --op->memory.transfers == 0;
    kb_cause cause = (kb_cause)(arg >> (32 + TRANSFER_BYTE_BITS));
    uint64_t bytes = (arg >> 32) & MAX_LOGGED_BYTES;
    kb_oplog_end(units->has.log, op->pe->number, kb_sim_now(units->has.sim), cause, bytes,
                 units_entry(op));
    if (is_last)
        finish_dma(units, index);
}

static kb_error *submit_shares(pe_units *units, uint32_t index)
{
    operation *op = operation_at(units, index);
    op->memory.transfers = (uint32_t)units->shares.count;
    for (size_t i = 0; i < units->shares.count; i++) {
        const share *s = &units->shares.items[i];
        net_order order = net_ways_between(&units->ways, op->pe->node, s->node, s->bytes,
                                           op->lane->unit == KB_UNIT_DMA_READ);
        order.plain = true;
        order.done = on_moved;
        order.self = units;
        order.arg = transfer_arg(index, s);
        kb_oplog_begin(units->has.log, op->pe->number, kb_sim_now(units->has.sim), s->cause,
                       logged_bytes(s->bytes), units_entry(op));
        KB_TRY(net_submit(units->has.fabric, &order));
    }
    return NULL;
}

kb_error *units_begin_dma(pe_units *units, uint32_t index)
{
    operation *op = operation_at(units, index);
    uint64_t own = 0;
    op->memory.not_before = op->start;
    op->memory.streamed = 0;
    KB_TRY(sum_up_rects(units, op, &own));
    if (own > 0)
        KB_TRY(book_tcm(units, op->pe, own, own, &op->memory.not_before));
    if (op->memory.streamed == 0) {
        finish_dma(units, index);
        return NULL;
    }
    KB_TRY(pe_tcm_stream_begin(stream_port(op), op->start));
    return submit_shares(units, index);
}
