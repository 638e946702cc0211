/*
 * units.c: the units of the PEs: their queues, and whose turn it is. units_order.c has what waits
 * for what, units_work.c what a command does, units_tcm.c the TCM.
 *
 * A unit has two queues, one for the program's commands and one for internal ones, each first in,
 * first out. A command of the program may wait for a composite operation, and that for commands
 * which it has yet to issue: these must be able to pass. Of two that can begin, the one issued
 * first does.
 *
 * What can go on at an instant is put on a list, the agenda, and taken from there in order once the
 * call in hand has done its own part. So callbacks may issue commands, and a chain of operations
 * that take no time needs no stack.
 *
 * Not modelled: banks of the TCM; what DMAs of other PEs move there, which takes none of its
 * bandwidth; and that strided rows cost a memory more than packed ones.
 */
#include "units_private.h"

#include <stdlib.h>
#include <string.h>

void units_fail(pe_units *units, kb_error *err)
{
    units->failed = true;
    kb_sim_fail(units->has.sim, err);
}

/* ---- PEs --------------------------------------------------------------------------------- */

uint32_t pe_units_source_count(const topo_machine *machine)
{
    return (uint32_t)(topo_machine_shape(machine)->pe_count * LANES);
}

uint64_t pe_units_number(const pe_units *units, kb_pe pe)
{
    const topo_shape *shape = units->shape;
    KB_ASSERT(pe.sip < shape->sips && pe.cube < shape->cubes && pe.pe < shape->pes);
    return ((uint64_t)pe.sip * shape->cubes + pe.cube) * shape->pes + pe.pe;
}

static lane *lane_of(pe_state *state, kb_unit unit)
{
    KB_ASSERT(unit >= KB_UNIT_DMA_READ && unit <= KB_UNIT_MATH);
    return &state->lanes[unit - KB_UNIT_DMA_READ];
}

pe_state *units_need_pe(pe_units *units, kb_pe pe)
{
    uint64_t number = pe_units_number(units, pe);
    if (KB_LIKELY(units->pes[number] != NULL))
        return units->pes[number];
    pe_state *state = kb_alloc_zeroed(1, sizeof *state);
    if (!state)
        return NULL;
    state->pe = pe;
    state->number = number;
    state->node = topo_node_at(units->has.machine, TOPO_PE_DMA, pe.sip, pe.cube, pe.pe);
    kb_waitlist_init(&state->progress, "units of its PE");
    kb_waitlist_init(&state->done, "units of its PE");
    for (uint32_t l = 0; l < LANES; l++) {
        uint64_t source = units->has.first_source + number * LANES + l;
        state->lanes[l].unit = (kb_unit)(KB_UNIT_DMA_READ + l);
        state->lanes[l].source = kb_source_make((uint32_t)source);
        state->lanes[l].look.lane = &state->lanes[l];
        kb_waitlist_init(&state->lanes[l].room, "units of its PE");
    }
    units->pes[number] = state;
    return state;
}

static void destroy_pe(pe_units *units, pe_state *state)
{
    if (!state)
        return;
    for (uint32_t o = state->first_long; o != NONE; o = operation_at(units, o)->memory.next_long)
        free(operation_at(units, o)->memory.rects);
    kb_vec_fini(&state->marks);
    pe_tcm_fini(&state->reads);
    pe_tcm_fini(&state->writes);
    free(state);
}

/* ---- The agenda -------------------------------------------------------------------------- */

static void put_on_agenda(pe_units *units, task *t)
{
    if (t->listed)
        return;
    t->listed = true;
    t->next = NULL;
    if (units->agenda)
        units->agenda_end->next = t;
    else
        units->agenda = t;
    units->agenda_end = t;
}

void units_put_if_ready(pe_units *units, operation *op)
{
    if (op->waits_for == 0)
        put_on_agenda(units, op->lane ? &op->lane->look : &op->span.ready);
}

static void look_at_lane(pe_units *units, lane *l);

static void enter(pe_units *units)
{
    units->depth++;
}

/* The outermost call in hand does all that can be done at this instant. */
static void leave(pe_units *units)
{
    while (units->depth == 1 && units->agenda && !units->failed) {
        task *t = units->agenda;
        units->agenda = t->next;
        t->listed = false;
        if (t->lane) {
            look_at_lane(units, t->lane);
        } else {
            const operation *op = operation_at(units, t->span);
            op->span.is_ready(op->self, op->arg);
        }
    }
    units->depth--;
}

/* ---- Ends -------------------------------------------------------------------------------- */

/* From the list of DMAs under way. */
static void remove_from_lane(pe_units *units, const operation *op)
{
    lane *l = op->lane;
    if (op->previous != NONE)
        operation_at(units, op->previous)->next = op->next;
    else
        l->oldest = op->next;
    if (op->next != NONE)
        operation_at(units, op->next)->previous = op->previous;
    else
        l->newest = op->previous;
}

/* ---- What the log is told of engines ---- */

static kb_cause engine_cause(const operation *op)
{
    if (op->drains)
        return KB_CAUSE_MATRIX_DRAIN;
    return op->lane->unit == KB_UNIT_GEMM ? KB_CAUSE_MATRIX : KB_CAUSE_VECTOR;
}

void units_note_chain(pe_units *units, const operation *op)
{
    if (pe_units_is_done(units, op->product_before))
        return;
    operation *before = operation_at(units, (uint32_t)op->product_before);
    if (!before->drains || before->is_needed || before->pe != op->pe)
        return;
    before->is_needed = true;
    kb_oplog_need_drain(units->has.log, op->pe->number, kb_sim_now(units->has.sim), true);
}

/* Of a product that is issued: it waits for those in the list of blockers. */
static void find_product_before(pe_units *units, operation *op)
{
    for (size_t i = 0; i < units->blockers.count; i++) {
        const operation *blocker = operation_at(units, units->blockers.items[i]);
        if (blocker->lane && blocker->lane->unit == KB_UNIT_GEMM)
            op->product_before = units_name(units, units->blockers.items[i]);
    }
    if (op->product_before != 0 && op->waits_for == 1)
        units_note_chain(units, op);
}

/* The product's results drain: maybe another one waits for them. */
static void begin_drain(pe_units *units, uint32_t index)
{
    operation *op = operation_at(units, index);
    kb_oplog *log = units->has.log;
    kb_time now = kb_sim_now(units->has.sim);
    kb_oplog_begin(log, op->pe->number, now, KB_CAUSE_MATRIX_DRAIN, 0, units_entry(op));
    kb_oplog_end(log, op->pe->number, now, KB_CAUSE_MATRIX, 0, units_entry(op));
    op->drains = true;
    const waiter *w;
    for (uint32_t next = op->waiters; next != NONE; next = w->next) {
        w = kb_pool_at(&units->waiters, next);
        const operation *later = operation_at(units, w->operation);
        if (later->waits_for == 1 && later->product_before == units_name(units, index))
            units_note_chain(units, later);
    }
}

static void tell_log_of_end(pe_units *units, operation *op)
{
    kb_oplog *log = units->has.log;
    uint64_t pe = op->pe->number;
    kb_time now = kb_sim_now(units->has.sim);
    if (op->is_needed)
        kb_oplog_need_drain(log, pe, now, false);
    if (!units_is_dma(op->lane->unit))
        kb_oplog_end(log, pe, now, engine_cause(op), 0, units_entry(op));
    else if (op->in_tcm)
        kb_oplog_end(log, pe, now, KB_CAUSE_TCM, op->bytes, units_entry(op));
    if (KB_LIKELY(!op->watched)) {
        kb_oplog_count(log, pe,
                       &(kb_op_brief){.name = op->name,
                                      .unit = op->lane->unit,
                                      .of_kernel = op->of_kernel,
                                      .start = op->start,
                                      .end = now,
                                      .bytes = op->bytes,
                                      .flops = op->flops});
        return;
    }
    op->log.pe = op->pe->pe;
    op->log.start = op->start;
    op->log.end = now;
    op->log.bytes = op->bytes;
    kb_oplog_add(log, pe, &op->log);
}

static void release_lane(pe_units *units, operation *op)
{
    op->occupies = false;
    op->lane->busy--;
    put_on_agenda(units, &op->lane->look);
}

void units_end(pe_units *units, uint32_t index)
{
    enter(units);
    operation *op = operation_at(units, index);
    if (op->lane) {
        if (units_is_dma(op->lane->unit))
            remove_from_lane(units, op);
        if (op->occupies)
            release_lane(units, op);
        tell_log_of_end(units, op);
    }
    pe_state *state = op->pe;
    void (*ended)(void *self, uint64_t arg) = op->ended;
    void *self = op->self;
    uint64_t arg = op->arg;
    uint32_t waiters = op->waiters;
    pe_op name = units_name(units, index);
    units_give_operation(units, index);
    units_release_waiters(units, waiters);
    if (ended)
        ended(self, arg);
    if (state->progress.head)
        kb_wake_all(units->has.sim, &state->progress);
    if (state->awaited == name)
        kb_wake_all(units->has.sim, &state->done);
    leave(units);
}

static void on_end(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim;
    units_end(self, (uint32_t)arg);
}

/* An engine can begin the next command, although the last result is still on its way. */
static void on_free(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim;
    pe_units *units = self;
    operation *op = operation_at(units, (uint32_t)arg);
    enter(units);
    if (op->lane->unit == KB_UNIT_GEMM)
        begin_drain(units, (uint32_t)arg);
    release_lane(units, op);
    leave(units);
}

/* ---- Beginnings -------------------------------------------------------------------------- */

static void push(pe_units *units, queue *q, uint32_t index)
{
    if (q->first == NONE)
        q->first = index;
    else
        operation_at(units, q->last)->next = index;
    q->last = index;
}

static bool can_begin(const pe_units *units, uint32_t index)
{
    return index != NONE && operation_at(units, index)->waits_for == 0;
}

/* The next command of the unit, out of its queue; NONE if none can begin. */
static uint32_t take_next(pe_units *units, lane *l)
{
    uint32_t index = l->program.first, inner = l->internal.first;
    bool is_internal = can_begin(units, inner) &&
                       (!can_begin(units, index) || operation_at(units, inner)->sequence <
                                                        operation_at(units, index)->sequence);
    if (is_internal)
        index = inner;
    if (!can_begin(units, index))
        return NONE;
    operation *op = operation_at(units, index);
    (is_internal ? &l->internal : &l->program)->first = op->next;
    op->next = NONE;
    if (!is_internal && l->waiting-- == units->shape->pe.queue_depth) {
        kb_wake_all(units->has.sim, &l->room);
        kb_wake_all(units->has.sim, &op->pe->progress);
    }
    return index;
}

/* To the list of DMAs under way. */
static void add_to_lane(pe_units *units, uint32_t index)
{
    operation *op = operation_at(units, index);
    lane *l = op->lane;
    op->next = NONE;
    op->previous = l->newest;
    if (op->previous != NONE)
        operation_at(units, op->previous)->next = index;
    else
        l->oldest = index;
    l->newest = index;
}

static kb_error *begin(pe_units *units, uint32_t index)
{
    operation *op = operation_at(units, index);
    op->start = kb_sim_now(units->has.sim);
    op->occupies = true;
    op->lane->busy++;
    if (units_is_dma(op->lane->unit))
        add_to_lane(units, index);
    kb_oplog_start(units->has.log, op->pe->number, op->start, op->lane->unit);
    if (op->begun)
        KB_TRY(op->begun(op->self, op->arg));
    return units_is_dma(op->lane->unit) ? units_begin_dma(units, index)
                                        : units_begin_engine(units, index);
}

static void look_at_lane(pe_units *units, lane *l)
{
    uint32_t channels = units_is_dma(l->unit) ? units->shape->pe.dma_channels : 1;
    while (l->busy < channels && !units->failed) {
        uint32_t index = take_next(units, l);
        if (index == NONE)
            return;
        kb_error *err = begin(units, index);
        if (err)
            units_fail(units, err);
    }
}

/* ---- Interface --------------------------------------------------------------------------- */

kb_error *pe_units_create(const pe_units_options *options, pe_units **units)
{
    *units = NULL;
    pe_units *made = kb_alloc_zeroed(1, sizeof *made);
    if (!made)
        return kb_error_nomem();
    made->has = *options;
    made->shape = topo_machine_shape(options->machine);
    kb_pool_init(&made->operations, sizeof(operation));
    kb_pool_init(&made->waiters, sizeof(waiter));
    kb_error *err = net_ways_init(&made->ways, options->machine);
    made->pes = kb_alloc_zeroed(made->shape->pe_count, sizeof(pe_state *));
    if (!err && !made->pes)
        err = kb_error_nomem();
    if (!err)
        err = kb_sim_add_handler(options->sim, on_free, made, &made->on_free);
    if (!err)
        err = kb_sim_add_handler(options->sim, on_end, made, &made->on_end);
    if (!err) {
        kb_sim_name_work(options->sim, made->on_free, "a command of a PE");
        kb_sim_name_work(options->sim, made->on_end, "a command of a PE");
    }
    if (err) {
        pe_units_destroy(made);
        return err;
    }
    *units = made;
    return NULL;
}

void pe_units_destroy(pe_units *units)
{
    if (!units)
        return;
    for (uint64_t pe = 0; units->pes && pe < units->shape->pe_count; pe++)
        destroy_pe(units, units->pes[pe]);
    free(units->pes);
    kb_vec_fini(&units->shares);
    kb_vec_fini(&units->blockers);
    kb_vec_fini(&units->generations);
    kb_pool_fini(&units->waiters);
    kb_pool_fini(&units->operations);
    net_ways_fini(&units->ways);
    free(units);
}

kb_error *pe_units_issue(pe_units *units, kb_pe pe, const pe_command *command, pe_op *op)
{
    *op = 0;
    bool reads = command->unit == KB_UNIT_DMA_READ, is_dma = units_is_dma(command->unit);
    KB_ASSERT(command->time >= 0 && command->tail >= 0);
    KB_ASSERT(is_dma || command->rect_count == 0);
    touches memory = {.reads = command->rects, .read_count = command->rect_count};
    if (!reads)
        memory = (touches){.writes = command->rects, .write_count = command->rect_count};
    uint32_t index = NONE;
    bool unordered = command->internal || command->apart;
    KB_TRY(units_make_operation(units, pe, command->after, &memory, unordered, &index));
    operation *made = operation_at(units, index);
    made->lane = lane_of(made->pe, command->unit);
    made->self = command->self;
    made->arg = command->arg;
    made->begun = command->begun;
    made->ended = command->ended;
    made->name = command->op.name;
    made->flops = command->op.flops;
    made->of_kernel = command->op.launch != 0;
    made->bytes = is_dma ? 0 : command->op.bytes;
    if (!is_dma)
        made->engine =
            (engine_work){command->time, command->tail, command->tcm_reads, command->tcm_writes};
    made->watched = kb_oplog_is_watched(units->has.log);
    if (made->watched) {
        made->log = command->op;
        made->log.unit = command->unit;
    }
    if (command->unit == KB_UNIT_GEMM && made->waits_for > 0)
        find_product_before(units, made);
    *op = units_name(units, index);

    enter(units);
    push(units, command->internal ? &made->lane->internal : &made->lane->program, index);
    made->lane->waiting += !command->internal;
    units_put_if_ready(units, made);
    leave(units);
    return NULL;
}

kb_error *pe_units_open(pe_units *units, kb_pe pe, const pe_span *span, pe_op *op)
{
    *op = 0;
    uint32_t index = NONE;
    touches memory = {span->reads, span->writes, span->read_count, span->write_count};
    KB_TRY(units_make_operation(units, pe, span->after, &memory, false, &index));
    operation *made = operation_at(units, index);
    made->self = span->self;
    made->arg = span->arg;
    made->span = (span_work){.ready.span = index, .is_ready = span->ready};
    *op = units_name(units, index);
    KB_ASSERT(span->ready || made->waits_for == 0);
    if (!span->ready)
        return NULL;
    enter(units);
    units_put_if_ready(units, made);
    leave(units);
    return NULL;
}

void pe_units_close(pe_units *units, pe_op op)
{
    KB_ASSERT(!pe_units_is_done(units, op));
    const operation *span = operation_at(units, (uint32_t)op);
    KB_ASSERT(!span->lane && span->waits_for == 0 && !span->span.ready.listed);
    units_end(units, (uint32_t)op);
}

bool pe_units_has_room(pe_units *units, kb_pe pe, kb_unit unit)
{
    pe_state *state = units->pes[pe_units_number(units, pe)];
    return !state || lane_of(state, unit)->waiting < units->shape->pe.queue_depth;
}

uint64_t pe_units_under_way(pe_units *units, kb_pe pe)
{
    const pe_state *state = units->pes[pe_units_number(units, pe)];
    return state ? state->under_way : 0;
}

void pe_units_wait_for_room(pe_units *units, kb_pe pe, kb_unit unit, kb_co *co)
{
    pe_state *state = units->pes[pe_units_number(units, pe)];
    if (!state)
        return;
    lane *l = lane_of(state, unit);
    while (l->waiting >= units->shape->pe.queue_depth)
        kb_wait(co, &l->room);
}

void pe_units_wait_for(pe_units *units, pe_op op, kb_co *co)
{
    if (pe_units_is_done(units, op))
        return;
    pe_state *state = operation_at(units, (uint32_t)op)->pe;
    KB_ASSERT(!state->done.head);
    state->awaited = op;
    kb_wait(co, &state->done);
    state->awaited = 0;
}

kb_waitlist *pe_units_progress(pe_units *units, kb_pe pe)
{
    pe_state *state = units_need_pe(units, pe);
    return state ? &state->progress : NULL;
}
