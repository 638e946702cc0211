/*
 * units.c: the units of the PEs: the queues of the DMA's engines, and whose turn it is.
 * units_order.c has what waits for what, units_work.c what a DMA command does, engines.c the
 * matrix and vector engines, cpu.c the clock of the program, tcm_port.c the TCM.
 *
 * A unit has two queues, one for the program's commands and one for internal ones, each first in,
 * first out. A command of the program may wait for a composite operation, and that for commands
 * which it has yet to issue: these must be able to pass. Engines of the DMA have a third one for
 * copies of the host: a kernel may wait for one that only starts after such a copy. Of two that can
 * begin at one time, the one issued first does.
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
    return (uint32_t)(topo_machine_shape(machine)->pe_count * SOURCES);
}

pe_stats pe_units_get_stats(const pe_units *units)
{
    return units->stats;
}

uint64_t pe_units_number(const pe_units *units, kb_pe pe)
{
    const topo_shape *shape = units->shape;
    KB_ASSERT(topo_has_pe(shape, pe));
    return topo_pe_index(shape, pe);
}

pe_state *units_need_pe(pe_units *units, kb_pe pe)
{
    uint64_t number = pe_units_number(units, pe);
    if (KB_LIKELY(units->pes[number] != NULL))
        return units->pes[number];
    pe_state *state = kb_alloc_zeroed(1, sizeof *state);
    if (!state)
        return NULL;
    uint64_t source = units->has.first_source + number * SOURCES;
    state->units = units;
    state->pe = pe;
    state->number = number;
    state->node = topo_node_at(units->has.machine, TOPO_PE_DMA, pe.sip, pe.cube, pe.pe);
    state->cpu.horizon = state->frontier_at = KB_FOREVER;
    state->begins.at = state->issues.at = KB_FOREVER;
    state->program_at = -1;
    state->resume = (task){.of = state, .kind = RESUME_PROGRAM};
    state->look = (task){.of = state, .kind = LOOK_AT_ENGINES};
    state->look_at_lanes = (task){.of = state, .kind = LOOK_AT_LANES};
    state->engine_source = kb_source_make((uint32_t)(source + LANES));
    kb_waitlist_init(&state->waiters, "units of its PE");
    for (uint32_t i = 0; i < LANES; i++) {
        lane *l = &state->lanes[i];
        l->pe = state;
        l->unit = (kb_unit)(KB_UNIT_DMA_READ + i);
        l->source = kb_source_make((uint32_t)(source + i));
    }
    units->pes[number] = state;
    return state;
}

static void destroy_pe(pe_state *state)
{
    if (!state)
        return;
    for (const operation *op = state->first_long; op; op = op->memory.next_long)
        free(op->memory.rects);
    kb_vec_fini(&state->marks);
    kb_vec_fini(&state->event_users);
    tcm_port_fini(&state->reads);
    tcm_port_fini(&state->writes);
    engines_fini(state);
    free(state);
}

/* ---- The agenda -------------------------------------------------------------------------- */

void units_put(pe_units *units, task *t)
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

static void look_at_lanes(pe_units *units, pe_state *state);
static void look_at_span(pe_units *units, operation *op);
static void on_span(kb_sim *sim, void *self, uint64_t arg);
static void on_part_end(kb_sim *sim, void *self, uint64_t arg);
static void put_due_spans(pe_units *units, pe_state *state);

static void do_task(pe_units *units, task *t)
{
    switch (t->kind) {
    case LOOK_AT_LANES:
        look_at_lanes(units, t->of);
        break;
    case LOOK_AT_ENGINES:
        units_look_at_engines(t->of);
        break;
    case LOOK_AT_SPAN:
        look_at_span(units, t->of);
        break;
    case RESUME_PROGRAM:
        units_resume_program(t->of);
        break;
    }
}

void units_work_off_agenda(pe_units *units)
{
    while (units->agenda && !units->failed) {
        task *t = units->agenda;
        units->agenda = t->next;
        t->listed = false;
        do_task(units, t);
    }
}

void units_put_if_ready(pe_units *units, operation *op)
{
    if (op->waits_for > 0)
        return;
    if (op->lane) {
        units_put(units, &op->pe->look_at_lanes);
    } else if (op->is_engine) {
        op->gate.at = kb_sim_now(units->has.sim);
        if (KB_UNLIKELY(op->id != 0))
            op->gate.id = (uint32_t)op->released.id;
        units_put(units, &op->pe->look);
    } else {
        units_put(units, &op->span.ready);
    }
}

/* At one time copies of the host come first: the program's events are the last of an instant, and a
 * program that runs ahead does not know of copies to come. */
static bool is_issued_before(const operation *a, const operation *b)
{
    if (KB_UNLIKELY(a->of_host != b->of_host) && a->issued == b->issued)
        return a->of_host;
    return units_issued_before(a->issued, a->sequence, b->issued, b->sequence);
}

void units_poll_inputs(pe_units *units, pe_state *state)
{
    if (state->in_queues > 0)
        units_put(units, &state->look_at_lanes);
    for (operation *span = state->first_polled; span; span = span->span.next_polled)
        units_put(units, &span->span.ready);
    units_progress(units, state);
}

/* A time has become known, or an operation has ended: what waits for it may go on. */
static void poll_pe(pe_units *units, pe_state *state)
{
    if (state->cpu.queued > 0)
        units_put(units, &state->look);
    units_poll_inputs(units, state);
}

void pe_units_poll(pe_units *units, kb_pe pe)
{
    pe_state *state = units->pes[pe_units_number(units, pe)];
    if (!state)
        return;
    units_enter(units);
    poll_pe(units, state);
    units_leave(units);
}

/* ---- Who uses engines from events -------------------------------------------------------- */

static void find_first_user(pe_state *state)
{
    state->first_user = NULL;
    for (size_t i = 0; i < state->event_users.count; i++) {
        operation *user = state->event_users.items[i];
        if (!state->first_user || is_issued_before(user, state->first_user))
            state->first_user = user;
    }
    state->cpu.shares_units = state->first_user != NULL;
}

/* Commands of engines that were issued after the operation begin in events until it is removed. */
static void add_event_user(pe_units *units, operation *op)
{
    if (!kb_vec_push(&op->pe->event_users, op))
        units_fail(units, kb_error_nomem());
    find_first_user(op->pe);
}

void units_remove_event_user(pe_units *units, operation *op)
{
    pe_state *state = op->pe;
    for (size_t i = 0; i < state->event_users.count; i++)
        if (state->event_users.items[i] == op) {
            state->event_users.items[i] = state->event_users.items[--state->event_users.count];
            break;
        }
    find_first_user(state);
    if (state->cpu.queued > 0)
        units_put(units, &state->look); /* times of younger commands may be final now */
}

/* ---- Ends -------------------------------------------------------------------------------- */

/* From the list of DMAs under way. */
static void remove_from_lane(const operation *op)
{
    lane *l = op->lane;
    KB_LIST_REMOVE(l->oldest, l->newest, op);
}

static void tell_log_of_end(pe_units *units, operation *op)
{
    kb_oplog *log = units->has.log;
    uint64_t pe = op->pe->number;
    kb_time now = kb_sim_now(units->has.sim);
    if (op->in_tcm)
        kb_oplog_end(log, pe, now, KB_CAUSE_TCM, op->bytes, units_entry(op));
    if (KB_LIKELY(!op->watched)) {
        kb_op_brief brief = {.name = op->name,
                             .unit = op->lane->unit,
                             .of_kernel = op->of_kernel,
                             .start = op->start,
                             .end = now,
                             .bytes = op->bytes,
                             .flops = op->flops};
        if (KB_LIKELY(op->moves))
            kb_oplog_end_transfer(log, pe, (kb_cause)op->cause, &brief);
        else
            kb_oplog_count(log, pe, &brief);
        return;
    }
    op->log.pe = op->pe->pe;
    op->log.start = op->start;
    op->log.end = now;
    op->log.bytes = op->bytes;
    if (op->id != 0)
        op->log.ended_by.kind = op->in_tcm                ? KB_REASON_TCM
                                : op->memory.streamed > 0 ? KB_REASON_TRANSFER
                                                          : KB_REASON_WORK;
    kb_oplog_add(log, pe, &op->log);
}

void units_end(pe_units *units, operation *op)
{
    units_enter(units);
    pe_state *state = op->pe;
    bool of_host = op->of_host;
    if (KB_UNLIKELY(op->id != 0))
        units_note_end(units, op);
    if (op->lane) {
        remove_from_lane(op);
        op->lane->busy--;
        op->lane->busy_for_host -= of_host;
        if (KB_LIKELY(!of_host))
            tell_log_of_end(units, op);
    } else if (!op->is_engine && op->span.uses_engines) {
        units_remove_event_user(units, op);
    }
    void (*ended)(void *self, uint64_t arg) = op->ended;
    void *self = op->self;
    uint64_t arg = op->arg;
    uint32_t waiters = op->waiters;
    units_give_operation(units, op);
    if (waiters != NONE)
        units_release_waiters(units, waiters);
    if (ended)
        ended(self, arg);
    if (KB_UNLIKELY(of_host)) /* nothing of the PE waits for it but for its channel */
        units_put(units, &state->look_at_lanes);
    else
        poll_pe(units, state);
    units_leave(units);
}

static void on_end(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim;
    pe_units *units = self;
    operation *op = operation_at(units, (uint32_t)arg);
    if (op->lags)
        units_finish_dma(units, op);
    else
        units_end(units, op);
}

/* The TCM may have passed the bytes of a copy inside it. */
static void on_passed(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim;
    pe_units *units = self;
    units_finish_dma(units, operation_at(units, (uint32_t)arg));
}

/* A record of an engine's command is due: for a watcher that reads other things at its time. */
static void on_watched(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim;
    (void)arg;
    kb_oplog_show_due(((pe_units *)self)->has.log);
}

static void on_frontier(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim;
    pe_units *units = self;
    pe_state *state = units->pes[arg];
    state->frontier_at = KB_FOREVER;
    units_enter(units);
    units_put(units, &state->look);
    units_leave(units);
}

/* ---- Begins ------------------------------------------------------------------------------ */

/* Behind those that are issued before: a few internal ones are issued later than now. */
static void push(queue *q, operation *op)
{
    if (!q->first || !is_issued_before(op, q->last)) {
        *(q->first ? &q->last->next : &q->first) = op;
        q->last = op;
        return;
    }
    operation **link = &q->first;
    while (!is_issued_before(op, *link))
        link = &(*link)->next;
    op->next = *link;
    *link = op;
}

/*
 * Whether the program, had it followed global time, would not have issued the operation yet: its
 * events are the last of an instant.
 */
static bool is_too_early(const operation *op, kb_time now)
{
    return op->ahead && op->issued == now && op->pe->program_at != now && op->pe->cpu.co;
}

/* Sets the timer, unless it is set for that time or an earlier one. */
static void set(pe_units *units, timer *t, kb_source *source, kb_time at, kb_handler handler,
                uint64_t arg)
{
    if (t->at <= at)
        return;
    if (t->at != KB_FOREVER)
        (void)kb_sim_cancel(units->has.sim, t->event);
    *t = (timer){kb_sim_at(units->has.sim, source, at, handler, arg), at};
}

/*
 * An event at the begin of the command. One that begins when it is issued does so in the order of
 * the program's events, as if the program issued it then; others in the order of the units' events.
 */
static void set_timer(pe_units *units, const operation *op)
{
    pe_state *state = op->pe;
    kb_co *co = state->cpu.co;
    if (op->ahead && op->issued == op->earliest && co)
        set(units, &state->issues, kb_co_source(co), op->earliest, units->on_issues, state->number);
    else
        set(units, &state->begins, &state->lanes[0].source, op->earliest, units->on_begins,
            state->number);
}

/* Whether the command begins now. If not, sets a timer if it is known when it does. */
static inline bool can_begin(pe_units *units, operation *op)
{
    if (op->waits_for > 0 || (op->input_count > 0 && !units_fold_inputs(op)))
        return false;
    kb_time now = kb_sim_now(units->has.sim);
    if (op->earliest <= now && !is_too_early(op, now))
        return true;
    set_timer(units, op);
    return false;
}

static void on_begins(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim;
    pe_units *units = self;
    pe_state *state = units->pes[arg];
    state->begins.at = KB_FOREVER;
    units_enter(units);
    look_at_lanes(units, state);
    units_leave(units);
}

static void on_issues(kb_sim *sim, void *self, uint64_t arg)
{
    pe_units *units = self;
    pe_state *state = units->pes[arg];
    state->issues.at = KB_FOREVER;
    state->program_at = kb_sim_now(sim);
    units_enter(units);
    if (KB_UNLIKELY(state->first_due != NULL)) {
        put_due_spans(units, state);
        units_put(units, &state->look_at_lanes);
    } else {
        look_at_lanes(units, state);
    }
    units_leave(units);
}

/* Of commands of the lane that can begin now, the one that was issued first; NULL: none. */
static operation *next_issued(pe_units *units, const lane *l)
{
    operation *own = l->program.first, *inner = l->internal.first, *copy = l->host.first;
    own = own && can_begin(units, own) ? own : NULL;
    if (KB_UNLIKELY(inner != NULL) && can_begin(units, inner))
        own = own && is_issued_before(own, inner) ? own : inner;
    if (KB_UNLIKELY(copy != NULL))
        own = own && is_issued_before(own, copy) ? own : copy;
    return own;
}

/* All channels are taken: who waits for nothing else may be held up by copies of the host. */
static void look_at_full_lane(pe_units *units, const lane *l)
{
    if (KB_LIKELY(l->busy_for_host == 0))
        return;
    operation *own = l->program.first, *inner = l->internal.first;
    if (own && can_begin(units, own))
        units_begin_hold_up(units, own);
    if (inner && can_begin(units, inner))
        units_begin_hold_up(units, inner);
}

/* The next command of the lane that can begin now and has a channel; NULL if there is none. */
static operation *next_of(pe_units *units, const lane *l)
{
    if (KB_LIKELY(l->busy < units->shape->pe.dma_channels))
        return next_issued(units, l);
    look_at_full_lane(units, l); /* it begins when one ends */
    return NULL;
}

static void take_out(pe_units *units, const operation *op)
{
    lane *l = op->lane;
    l->pe->in_queues--;
    if (op == l->program.first) {
        l->program.first = op->next;
        if (l->waiting-- == units->shape->pe.queue_depth)
            units_progress(units, l->pe);
    } else {
        *(op->of_host ? &l->host.first : &l->internal.first) = op->next;
    }
}

/* To the list of DMAs under way. */
static void add_to_lane(operation *op)
{
    lane *l = op->lane;
    KB_LIST_APPEND(l->oldest, l->newest, op);
}

static kb_error *begin(pe_units *units, operation *op)
{
    op->start = kb_sim_now(units->has.sim);
    if (KB_UNLIKELY(op->id != 0))
        units_explain_begin(op, op->start);
    op->lane->busy++;
    op->lane->busy_for_host += op->of_host;
    add_to_lane(op);
    if (KB_UNLIKELY(op->held_up))
        units_end_hold_up(units, op);
    if (op->begun)
        KB_TRY(op->begun(op->self, op->arg));
    return units_begin_dma(units, op);
}

/* Of commands that can begin at one time, in either lane, the one that was issued first does. */
static void look_at_lanes(pe_units *units, pe_state *state)
{
    _Static_assert(LANES == 2, "one comparison orders them");
    while (state->in_queues > 0 && !units->failed) {
        operation *read = next_of(units, &state->lanes[0]);
        operation *write = next_of(units, &state->lanes[1]);
        operation *op = !write || (read && is_issued_before(read, write)) ? read : write;
        if (!op)
            return;
        take_out(units, op);
        kb_error *err = begin(units, op);
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
    kb_error *err = net_route_buffer_init(&made->routes, options->machine);
    made->pes = kb_alloc_zeroed(made->shape->pe_count, sizeof(pe_state *));
    if (!err && !made->pes)
        err = kb_error_nomem();
    const struct {
        kb_handler_fn *fn;
        kb_handler *handler;
    } handlers[] = {{on_begins, &made->on_begins},     {on_issues, &made->on_issues},
                    {on_frontier, &made->on_frontier}, {on_span, &made->on_span},
                    {on_end, &made->on_end},           {on_part_end, &made->on_part_end},
                    {on_passed, &made->on_passed},     {on_watched, &made->on_watched}};
    for (size_t i = 0; i < sizeof handlers / sizeof handlers[0] && !err; i++) {
        err = kb_sim_add_handler(options->sim, handlers[i].fn, made, handlers[i].handler);
        if (!err)
            kb_sim_name_work(options->sim, *handlers[i].handler, "a command of a PE");
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
        destroy_pe(units->pes[pe]);
    free(units->pes);
    kb_vec_fini(&units->shares);
    kb_vec_fini(&units->blockers);
    kb_vec_fini(&units->generations);
    kb_pool_fini(&units->waiters);
    kb_pool_fini(&units->operations);
    net_route_buffer_fini(&units->routes);
    free(units);
}

/* ---- Issuing ----------------------------------------------------------------------------- */

static inline uint8_t copy_inputs(const pe_ready *const given[PE_MAX_INPUTS],
                                  const pe_ready **inputs)
{
    uint8_t count = 0;
    if (KB_LIKELY(!given[0] && !given[1] && !given[2] && !given[3] && !given[4] && !given[5]))
        return 0;
    for (int i = 0; i < PE_MAX_INPUTS; i++)
        if (given[i])
            inputs[count++] = given[i];
    return count;
}

/* When it is issued, and whether that is ahead of the program's events. */
static void set_issue_time(const pe_units *units, operation *op, kb_time issued)
{
    kb_sim *sim = units->has.sim;
    const pe_state *state = op->pe;
    kb_time now = kb_sim_now(sim);
    KB_ASSERT(issued == 0 || issued >= now); /* K8 */
    bool is_program = state->cpu.co && kb_sim_current(sim) == state->cpu.co;
    op->issued = op->earliest = issued > now ? issued : now;
    op->ahead = issued > now || (is_program && units_is_program_early(state, now));
    if (is_program)
        op->sequence |= BY_PROGRAM;
}

/* An event at the end of a command of an engine; at its begin, which is now. */
static void set_end(pe_state *state, kb_unit unit, kb_time end, kb_handler handler, uint64_t arg)
{
    units_engine(state, unit)->looked_at = end;
    (void)kb_sim_at(state->units->has.sim, &state->engine_source, end, handler, arg);
}

/* The times of a command of an engine that has events: its begin is now. */
static void on_known(const pe_work *work, kb_time begin, pe_ready result)
{
    operation *op = work->self;
    pe_state *state = op->pe;
    pe_units *units = state->units;
    op->start = begin;
    kb_error *err = op->begun ? op->begun(op->self, op->arg) : NULL;
    if (err)
        units_fail(units, err);
    else if (result.at > begin)
        set_end(state, work->unit, result.at, units->on_end, op->index);
    else
        units_end(units, op);
}

static void issue_to_engine(pe_units *units, operation *op, const pe_command *command)
{
    pe_state *state = op->pe;
    op->is_engine = true;
    op->gate = (pe_ready){.at = op->waits_for > 0 ? KB_FOREVER : op->issued};
    op->work = (pe_work){.unit = command->unit,
                         .internal = command->internal,
                         .in_event = true,
                         .of_kernel = op->of_kernel,
                         .issued = op->issued,
                         .sequence = op->sequence,
                         .time = command->time,
                         .tail = command->tail,
                         .tcm_reads = command->tcm_reads,
                         .tcm_writes = command->tcm_writes,
                         .name = op->name,
                         .flops = op->flops,
                         .entry = op->watched ? &op->log : NULL,
                         .known = on_known,
                         .self = op};
    _Static_assert(PE_MAX_INPUTS > 1, "there is room for the gate");
    op->work.input_count = copy_inputs(command->inputs, op->work.inputs);
    KB_ASSERT(op->work.input_count < PE_MAX_INPUTS);
    op->work.inputs[op->work.input_count++] = &op->gate;
    if (command->internal)
        engines_put_internal(state, &op->work);
    else
        engines_put(state, &op->work);
    units_put(units, &state->look);
}

/* Whether it moves something inside its PE's own TCM. */
static bool copies_in_tcm(const pe_state *state, const pe_command *command)
{
    for (size_t i = 0; i < command->rect_count; i++)
        if (units_is_own_tcm(&command->rects[i].at, state->pe))
            return true;
    return false;
}

static queue *queue_of(lane *l, const pe_command *command)
{
    return command->of_host ? &l->host : command->internal ? &l->internal : &l->program;
}

/* A command has become the first of its queue: looks at it now, or in an event. */
static void look_at_first(pe_units *units, operation *op)
{
    if (op->lane->busy == units->shape->pe.dma_channels)
        look_at_full_lane(units, op->lane);
    else if (op->of_host || can_begin(units, op))
        units_put(units, &op->pe->look_at_lanes);
}

static void issue_to_lane(pe_units *units, operation *op, const pe_command *command)
{
    pe_state *state = op->pe;
    op->lane = units_lane(state, command->unit);
    op->input_count = copy_inputs(command->inputs, op->inputs);
    op->memory.copies_in_tcm = !command->of_host && copies_in_tcm(state, command);
    if (op->memory.copies_in_tcm)
        add_event_user(units, op);
    if (KB_UNLIKELY(command->of_host)) {
        op->memory.moved = command->moved;
        op->forwards = command->forwards;
        op->fills = command->fills;
    }
    op->internal = command->internal;
    queue *q = queue_of(op->lane, command);
    push(q, op);
    state->in_queues++;
    op->lane->waiting += q == &op->lane->program;
    if (op->waits_for == 0 && op == q->first)
        look_at_first(units, op);
}

static kb_error *issue(pe_units *units, pe_state *state, const pe_command *command, pe_op *op)
{
    *op = 0;
    bool reads = command->unit == KB_UNIT_DMA_READ, is_dma = units_is_dma(command->unit);
    KB_ASSERT(command->time >= 0 && command->tail >= 0);
    KB_ASSERT(is_dma || command->rect_count == 0);
    KB_ASSERT(!command->of_host || (is_dma && command->rect_count == 1));
    touches memory = {.reads = command->rects, .read_count = command->rect_count};
    if (!reads)
        memory = (touches){.writes = command->rects, .write_count = command->rect_count};
    operation *made;
    bool unordered = command->internal || command->apart || command->of_host;
    KB_TRY(units_make_operation(units, state, command->after, &memory, unordered, &made));
    made->self = command->self;
    made->arg = command->arg;
    made->begun = command->begun;
    made->ended = command->ended;
    made->name = command->op.name;
    made->flops = command->op.flops;
    made->of_kernel = command->op.launch != 0;
    made->of_host = command->of_host;
    made->bytes = is_dma ? 0 : command->op.bytes;
    made->watched = !command->of_host && kb_oplog_is_watched(units->has.log);
    if (KB_UNLIKELY(made->watched)) {
        made->log = command->op;
        made->log.unit = command->unit;
        made->log.pe = state->pe;
        if (made->log.id == 0)
            made->log.id = kb_oplog_new_id(units->has.log);
        made->id = (uint32_t)made->log.id;
        made->released = (happening){0};
    }
    set_issue_time(units, made, command->issued);
    if (command->part_of)
        made->sequence = operation_at(units, (uint32_t)command->part_of)->sequence;
    else if (command->sequence)
        made->sequence = command->sequence;
    *op = units_name(units, made->index);
    units_enter(units);
    if (is_dma)
        issue_to_lane(units, made, command);
    else
        issue_to_engine(units, made, command);
    units_leave(units);
    return NULL;
}

kb_error *pe_units_issue(pe_units *units, kb_pe pe, const pe_command *command, pe_op *op)
{
    pe_state *state = units_need_pe(units, pe);
    *op = 0;
    return state ? issue(units, state, command, op) : kb_error_nomem();
}

kb_error *pe_cpu_issue(pe_cpu *cpu, const pe_command *command, pe_op *op)
{
    pe_state *state = (pe_state *)cpu;
    /* What engines have made by now lets earlier commands begin before this one does. */
    if (KB_UNLIKELY(cpu->queued > 0 && cpu->clock == kb_sim_now(state->units->has.sim)))
        engines_advance(state, cpu->clock, (engine_goal){0});
    return issue(state->units, state, command, op);
}

/* ---- Spans ------------------------------------------------------------------------------- */

static void stop_polling(const operation *op)
{
    operation **link = &op->pe->first_polled;
    while (*link && *link != op)
        link = &(*link)->span.next_polled;
    if (*link)
        *link = op->span.next_polled;
}

/* An event at the begin of the span: in the order of the program's if the program issued it then.
 */
static void wait_for_event(pe_units *units, operation *op)
{
    pe_state *state = op->pe;
    if (op->ahead && op->earliest == op->issued && state->cpu.co) {
        op->span.next_due = state->first_due;
        state->first_due = op;
        op->span.event = kb_sim_at(units->has.sim, kb_co_source(state->cpu.co), op->earliest,
                                   units->on_span, op->index);
    } else {
        (void)kb_sim_at(units->has.sim, &state->engine_source, op->earliest, units->on_span,
                        op->index);
    }
}

static void take_out_due(operation *op)
{
    operation **link = &op->pe->first_due;
    while (*link && *link != op)
        link = &(*link)->span.next_due;
    if (*link)
        *link = op->span.next_due;
}

/*
 * The program's event of this time has come. Spans that it issued at this time come before later
 * commands of the program, so they do not wait for events of their own.
 */
static void put_due_spans(pe_units *units, pe_state *state)
{
    kb_time now = kb_sim_now(units->has.sim);
    operation *next;
    for (operation *op = state->first_due; op; op = next) {
        next = op->span.next_due;
        if (op->earliest > now)
            continue;
        (void)kb_sim_cancel(units->has.sim, op->span.event);
        take_out_due(op);
        units_put(units, &op->span.ready);
    }
}

static void look_at_span(pe_units *units, operation *op)
{
    if (op->waits_for > 0 || !op->span.is_ready || !units_fold_inputs(op))
        return;
    kb_time now = kb_sim_now(units->has.sim);
    if (op->earliest > now || is_too_early(op, now)) {
        wait_for_event(units, op);
        return;
    }
    void (*ready)(void *self, uint64_t arg) = op->span.is_ready;
    if (KB_UNLIKELY(op->id != 0))
        units_explain_begin(op, now);
    op->span.is_ready = NULL;
    stop_polling(op);
    ready(op->self, op->arg);
}

static void on_span(kb_sim *sim, void *self, uint64_t arg)
{
    pe_units *units = self;
    operation *op = operation_at(units, (uint32_t)arg);
    if (is_too_early(op, kb_sim_now(sim)))
        op->pe->program_at = kb_sim_now(sim); /* this is the program's event */
    take_out_due(op);
    units_enter(units);
    units_put(units, &op->span.ready);
    units_leave(units);
}

kb_error *pe_units_open(pe_units *units, kb_pe pe, const pe_span *span, pe_op *op)
{
    static const pe_op none[PE_MAX_INPUTS];
    *op = 0;
    operation *made;
    pe_state *state = units_need_pe(units, pe);
    touches memory = {span->reads, span->writes, span->read_count, span->write_count};
    if (!state)
        return kb_error_nomem();
    KB_TRY(units_make_operation(units, state, none, &memory, false, &made));
    made->self = span->self;
    made->arg = span->arg;
    made->id = (uint32_t)span->id;
    if (KB_UNLIKELY(made->id != 0)) {
        made->log.begun_by = span->issued_by;
        made->released = (happening){0};
    }
    set_issue_time(units, made, span->issued);
    made->input_count = copy_inputs(span->inputs, made->inputs);
    made->span = (span_work){.ready = {.of = made, .kind = LOOK_AT_SPAN},
                             .is_ready = span->ready,
                             .uses_engines = span->uses_engines};
    if (span->uses_engines)
        add_event_user(units, made);
    *op = units_name(units, made->index);
    KB_ASSERT(span->ready || made->waits_for == 0);
    if (!span->ready)
        return NULL;
    if (made->input_count > 0) {
        made->span.next_polled = state->first_polled;
        state->first_polled = made;
    }
    units_enter(units);
    units_put_if_ready(units, made);
    units_leave(units);
    return NULL;
}

static void end_part(pe_state *state, const pe_part *part)
{
    pe_units *units = state->units;
    units_enter(units);
    part->ended(part->self, part->arg);
    poll_pe(units, state);
    units_leave(units);
}

static void on_part_end(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim, (void)self;
    const pe_part *part = (const pe_part *)(uintptr_t)arg;
    end_part(part->work.self, part);
}

/* Its begin is now. */
static void on_part_known(const pe_work *work, kb_time begin, pe_ready result)
{
    pe_state *state = work->self;
    if (result.at > begin)
        set_end(state, work->unit, result.at, state->units->on_part_end, (uintptr_t)work);
    else
        end_part(state, (const pe_part *)work);
}

void pe_units_issue_part(pe_units *units, pe_op span, pe_part *part)
{
    const operation *of = operation_at(units, (uint32_t)span);
    pe_state *state = of->pe;
    pe_work *work = &part->work;
    work->internal = true;
    work->in_event = true;
    work->noted_drain = false;
    work->input_count = 0;
    work->issued = kb_sim_now(units->has.sim);
    work->sequence = of->sequence;
    work->known = on_part_known;
    work->self = state;
    units_enter(units);
    engines_put_internal(state, work);
    units_put(units, &state->look);
    units_leave(units);
}

uint64_t pe_cpu_take_sequence(pe_cpu *cpu)
{
    return ((pe_state *)cpu)->issued++ | BY_PROGRAM;
}

void pe_units_close(pe_units *units, pe_op op)
{
    KB_ASSERT(!pe_units_is_done(units, op));
    operation *span = operation_at(units, (uint32_t)op);
    KB_ASSERT(!span->lane && !span->span.is_ready && !span->span.ready.listed);
    units_end(units, span);
}

uint64_t pe_units_under_way(pe_units *units, kb_pe pe)
{
    const pe_state *state = units->pes[pe_units_number(units, pe)];
    return state ? state->under_way : 0;
}
