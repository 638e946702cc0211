/*
 * io.c: a command is a tree: the host, the control processor of the SIP, those of cubes, and PEs.
 * It is sent down the tree and its completions come up. Each vertex of the tree keeps the chain of
 * what happened before it: its parts always add up to chain.ended - chain.issued, and the next link
 * of the chain begins when the last one has ended. Where completions join, the chain of the one
 * that came last goes on.
 *
 * Processors are pure latency: they work on any number of commands at once. What they take depends
 * on what they do, so it is charged here, and not by the transport: a command and its completions
 * are decoded; of a recorded one, completions are counted and the next is triggered.
 */
#include "io.h"

#include <inttypes.h>
#include <stdlib.h>

#include "sim/sim.h"

enum { NONE = 0 }; /* of vertices: pools give out no index 0 */

typedef struct target {
    net_completion chain;
    size_t number; /* of the command */
    uint64_t bytes;
    uint32_t next; /* of its group */
    uint32_t group;
    uint32_t pe;
    uint32_t serial; /* tells tickets apart; NONE unless the PE has the command */
} target;

/* The targets in one cube. */
typedef struct group {
    net_completion chain;
    uint64_t bytes; /* of all its targets */
    uint32_t next;  /* of its command */
    uint32_t command;
    uint32_t cube;
    uint32_t waiting; /* targets that have not completed */
    uint32_t first, last;
    bool held; /* at the m_cpu */
} group;

typedef struct command {
    net_completion chain;
    io_command is;    /* without its targets */
    kb_error *err;    /* of the first target that failed */
    uint32_t waiting; /* groups that have not completed */
    uint32_t first, last;
    uint32_t before, after; /* among all that are under way */
    bool held;              /* at the io_cpu */
} command;

/* A message that is on its way to a node, or being worked on there. */
typedef struct flight {
    net_done_fn *then; /* called with `self` when both is over */
    void *self;
    uint64_t arg;
    kb_time work; /* what the node takes */
    net_completion part;
    uint32_t from, to;
    uint32_t cause; /* the record because of which it was sent */
    bool is_response;
} flight;

struct io {
    kb_sim *sim;
    const topo_machine *machine;
    net *fabric;
    kb_oplog *log; /* NULL: none gets messages */
    net_route_buffer routes;
    const topo_control_params *io_cpu, *m_cpu;
    kb_source source;
    kb_handler on_work_done;
    kb_pool commands, groups, targets, flights;
    uint32_t newest;  /* command under way */
    uint32_t serials; /* of tickets */
};

static command *command_at(const io *control, uint32_t index)
{
    return kb_pool_at(&control->commands, index);
}

static group *group_at(const io *control, uint32_t index)
{
    return kb_pool_at(&control->groups, index);
}

static target *target_at(const io *control, uint32_t index)
{
    return kb_pool_at(&control->targets, index);
}

static flight *flight_at(const io *control, uint32_t index)
{
    return kb_pool_at(&control->flights, index);
}

/* For critical paths. */
static void tell_log(const io *control, const flight *fl)
{
    if (KB_LIKELY(!control->log || !kb_oplog_is_path_watched(control->log)))
        return;
    const net_completion *part = &fl->part;
    kb_oplog_control record = {
        .name = fl->from == fl->to ? "trigger"
                : fl->is_response  ? "completion"
                                   : "command",
        .end = part->ended,
        .moved = {.from = fl->from,
                  .to = fl->to,
                  .issued = part->issued,
                  .ended = part->ended - fl->work,
                  .latency = part->overhead - fl->work + part->wire,
                  .bandwidth = part->drain,
                  .queueing = part->queueing},
        .begun_by = {KB_REASON_ISSUE, fl->cause},
    };
    kb_oplog_tell_control(control->log, &record);
}

static void end_flight(io *control, uint32_t l)
{
    flight last = *flight_at(control, l);
    kb_pool_give(&control->flights, l);
    tell_log(control, &last);
    last.then(last.self, last.arg, &last.part);
}

static void work_done(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim;
    end_flight(self, (uint32_t)arg);
}

kb_error *io_create(kb_sim *sim, const topo_machine *machine, net *fabric, uint32_t source_id,
                    io **out)
{
    *out = NULL;
    io *control = kb_alloc_zeroed(1, sizeof *control);
    if (!control)
        return kb_error_nomem();
    control->sim = sim;
    control->machine = machine;
    control->fabric = fabric;
    kb_pool_init(&control->commands, sizeof(command));
    kb_pool_init(&control->groups, sizeof(group));
    kb_pool_init(&control->targets, sizeof(target));
    kb_pool_init(&control->flights, sizeof(flight));
    control->io_cpu = &topo_machine_shape(machine)->io_cpu;
    control->m_cpu = &topo_machine_shape(machine)->m_cpu;
    control->source = kb_source_make(source_id);
    kb_error *err = net_route_buffer_init(&control->routes, machine);
    if (!err)
        err = kb_sim_add_handler(sim, work_done, control, &control->on_work_done);
    if (err) {
        io_destroy(control);
        return err;
    }
    kb_sim_name_work(sim, control->on_work_done, "a command of a control processor");
    *out = control;
    return NULL;
}

void io_set_log(io *control, kb_oplog *log)
{
    control->log = log;
}

/* The record because of which a message is sent now. */
static uint32_t cause_now(const io *control)
{
    return control->log ? kb_oplog_control_cause(control->log) : 0;
}

void io_destroy(io *control)
{
    if (!control)
        return;
    for (uint32_t c = control->newest; c != NONE; c = command_at(control, c)->before)
        kb_error_free(command_at(control, c)->err);
    kb_pool_fini(&control->flights);
    kb_pool_fini(&control->targets);
    kb_pool_fini(&control->groups);
    kb_pool_fini(&control->commands);
    net_route_buffer_fini(&control->routes);
    free(control);
}

/* ---- The tree of a command --------------------------------------------------------------- */

static void give_command(io *control, uint32_t c)
{
    command *cm = command_at(control, c);
    uint32_t next_group, next_target;
    for (uint32_t g = cm->first; g != NONE; g = next_group) {
        group *gr = group_at(control, g);
        next_group = gr->next;
        for (uint32_t t = gr->first; t != NONE; t = next_target) {
            next_target = target_at(control, t)->next;
            kb_pool_give(&control->targets, t);
        }
        kb_pool_give(&control->groups, g);
    }
    if (cm->after != NONE)
        command_at(control, cm->after)->before = cm->before;
    else
        control->newest = cm->before;
    if (cm->before != NONE)
        command_at(control, cm->before)->after = cm->after;
    kb_pool_give(&control->commands, c);
}

/* A command without targets. NONE if there is no memory. */
static uint32_t take_command(io *control, const io_command *from)
{
    uint32_t c = kb_pool_take(&control->commands);
    if (c == NONE)
        return NONE;
    kb_time now = kb_sim_now(control->sim);
    *command_at(control, c) = (command){
        .chain = {.issued = now, .ended = now},
        .is = *from,
        .before = control->newest,
    };
    command_at(control, c)->is.targets = NULL;
    if (control->newest != NONE)
        command_at(control, control->newest)->after = c;
    control->newest = c;
    return c;
}

/* A group without targets is the command's last one. */
static bool add_group(io *control, uint32_t c, uint32_t cube)
{
    uint32_t g = kb_pool_take(&control->groups);
    if (g == NONE)
        return false;
    command *cm = command_at(control, c);
    *group_at(control, g) = (group){.command = c, .cube = cube};
    if (cm->last != NONE)
        group_at(control, cm->last)->next = g;
    else
        cm->first = g;
    cm->last = g;
    cm->waiting++;
    return true;
}

/* To the command's last group. */
static bool add_target(io *control, uint32_t c, const io_target *from, size_t number)
{
    uint32_t t = kb_pool_take(&control->targets);
    if (t == NONE)
        return false;
    uint32_t g = command_at(control, c)->last;
    group *gr = group_at(control, g);
    *target_at(control, t) =
        (target){.number = number, .bytes = from->bytes, .group = g, .pe = from->pe};
    if (gr->last != NONE)
        target_at(control, gr->last)->next = t;
    else
        gr->first = t;
    gr->last = t;
    gr->bytes += from->bytes;
    gr->waiting++;
    return true;
}

static bool add_targets(io *control, uint32_t c, const io_command *from)
{
    for (size_t i = 0; i < from->target_count; i++) {
        const io_target *t = &from->targets[i];
        if ((i == 0 || t->cube != from->targets[i - 1].cube) && !add_group(control, c, t->cube))
            return false;
        if (!add_target(control, c, t, i))
            return false;
    }
    return true;
}

/* ---- The chain of what happened ---------------------------------------------------------- */

static void extend(net_completion *chain, const net_completion *with, kb_time ended)
{
    chain->overhead += with->overhead;
    chain->wire += with->wire;
    chain->drain += with->drain;
    chain->queueing += with->queueing;
    chain->ended = ended;
    KB_ASSERT(chain->overhead + chain->wire + chain->drain + chain->queueing ==
              chain->ended - chain->issued); /* H3 */
}

static net_completion chain_with(const net_completion *chain, const net_completion *part)
{
    net_completion longer = *chain;
    extend(&longer, part, part->ended);
    return longer;
}

/* It has been held until now. */
static void extend_by_wait(net_completion *chain, kb_time now)
{
    net_completion wait = {.queueing = now - chain->ended};
    extend(chain, &wait, now);
}

/* ---- Messages ---------------------------------------------------------------------------- */

static void on_arrival(void *self, uint64_t arg, const net_completion *part)
{
    io *control = self;
    flight *fl = flight_at(control, (uint32_t)arg);
    fl->part = *part;
    if (fl->work == 0) {
        end_flight(control, (uint32_t)arg);
        return;
    }
    fl->part.overhead = kb_time_add(fl->part.overhead, fl->work);
    fl->part.ended = kb_time_add(fl->part.ended, fl->work);
    kb_sim_after(control->sim, &control->source, fl->work, control->on_work_done, arg);
}

typedef struct route {
    uint32_t from, to;
    uint64_t bytes;
    bool is_response;
    kb_time work; /* at its end */
} route;

/* Control processors pass on what they got; hosts and PEs make what they send. */
static kb_error *send_message(io *control, const route *on, net_done_fn *then, void *self,
                              uint64_t arg)
{
    const topo_graph *graph = topo_machine_graph(control->machine);
    uint32_t l = kb_pool_take(&control->flights);
    if (l == NONE)
        return kb_error_nomem();
    *flight_at(control, l) = (flight){.then = then,
                                      .self = self,
                                      .arg = arg,
                                      .work = on->work,
                                      .from = on->from,
                                      .to = on->to,
                                      .cause = cause_now(control),
                                      .is_response = on->is_response};
    net_order order = net_make_order_by_nodes(&control->routes, on->from, on->to, on->bytes, false);
    order.forwarded = topo_is_control(&graph->nodes.items[on->from]);
    order.is_response = on->is_response;
    order.done = on_arrival;
    order.self = control;
    order.arg = l;
    kb_error *err = net_submit(control->fabric, &order);
    if (err)
        kb_pool_give(&control->flights, l);
    return err;
}

/* What cannot be sent is lost, so the run fails. */
static void send(io *control, route on, net_done_fn *then, uint32_t arg)
{
    kb_error *err = send_message(control, &on, then, control, arg);
    if (err)
        kb_sim_fail(control->sim, err);
}

static uint32_t host_node(const io *control)
{
    return topo_node_at(control->machine, TOPO_HOST, 0, 0, 0);
}

static uint32_t io_cpu_node(const io *control, uint32_t sip)
{
    return topo_node_at(control->machine, TOPO_IO_CPU, sip, 0, 0);
}

static uint32_t m_cpu_node(const io *control, uint32_t sip, uint32_t cube)
{
    return topo_node_at(control->machine, TOPO_M_CPU, sip, cube, 0);
}

static uint32_t pe_node(const io *control, uint32_t sip, uint32_t cube, uint32_t pe)
{
    return topo_node_at(control->machine, TOPO_PE_DMA, sip, cube, pe);
}

kb_error *io_send(io *control, const io_message *message)
{
    uint32_t device = io_cpu_node(control, message->sip), host = host_node(control);
    route on = {.bytes = IO_HEADER_BYTES + message->bytes};
    switch (message->kind) {
    case IO_HOST_TO_DEVICE:
    case IO_HOST_SIGNAL:
        on.from = host;
        on.to = device;
        on.work = message->kind == IO_HOST_SIGNAL ? control->io_cpu->count_fs
                                                  : control->io_cpu->decode_fs;
        break;
    case IO_DEVICE_TO_HOST:
        on.from = device;
        on.to = host;
        on.is_response = true;
        break;
    case IO_CUBE_SIGNAL:
        on.from = m_cpu_node(control, message->sip, message->peer);
        on.to = device;
        on.is_response = true;
        on.work = control->io_cpu->count_fs;
        break;
    case IO_DEVICE_TO_DEVICE:
        on.from = device;
        on.to = io_cpu_node(control, message->peer);
        on.work = control->io_cpu->count_fs;
        break;
    }
    return send_message(control, &on, message->done, message->self, message->arg);
}

/* ---- Up: completions --------------------------------------------------------------------- */

/* What a control processor takes for a completion. */
static kb_time join_time(const command *cm, const topo_control_params *params)
{
    return cm->is.recorded ? params->count_fs : params->decode_fs;
}

static void end_command(io *control, uint32_t c)
{
    command last = *command_at(control, c);
    give_command(control, c);
    last.is.done(last.is.self, last.is.arg, &last.chain, last.err);
}

/* A completion of the whole command is at the host. */
static void on_host(void *self, uint64_t arg, const net_completion *part)
{
    io *control = self;
    extend(&command_at(control, (uint32_t)arg)->chain, part, part->ended);
    end_command(control, (uint32_t)arg);
}

/* All completions are at the io_cpu. */
static void complete_command(io *control, uint32_t c)
{
    const command *cm = command_at(control, c);
    if (cm->is.joined)
        cm->is.joined(cm->is.self, cm->is.arg, cm->err);
    if (cm->is.recorded) {
        end_command(control, c);
        return;
    }
    route on = {.from = io_cpu_node(control, cm->is.sip),
                .to = host_node(control),
                .bytes = IO_COMPLETION_BYTES,
                .is_response = true};
    send(control, on, on_host, c);
}

/* A completion of a group is at the control processor of the SIP. */
static void on_io_cpu_again(void *self, uint64_t arg, const net_completion *part)
{
    io *control = self;
    group *gr = group_at(control, (uint32_t)arg);
    command *cm = command_at(control, gr->command);
    if (--cm->waiting > 0)
        return;
    cm->chain = chain_with(&gr->chain, part);
    complete_command(control, gr->command);
}

static void complete_group(io *control, uint32_t g)
{
    const group *gr = group_at(control, g);
    const command *cm = command_at(control, gr->command);
    route on = {.from = m_cpu_node(control, cm->is.sip, gr->cube),
                .to = io_cpu_node(control, cm->is.sip),
                .bytes = IO_COMPLETION_BYTES,
                .is_response = true,
                .work = join_time(cm, control->io_cpu)};
    if (cm->is.cube_joined)
        cm->is.cube_joined(cm->is.self, cm->is.arg, gr->cube);
    send(control, on, on_io_cpu_again, g);
}

/* A completion of a target is at the control processor of its cube. */
static void on_m_cpu_again(void *self, uint64_t arg, const net_completion *part)
{
    io *control = self;
    target *ta = target_at(control, (uint32_t)arg);
    group *gr = group_at(control, ta->group);
    if (--gr->waiting > 0)
        return;
    gr->chain = chain_with(&ta->chain, part);
    complete_group(control, ta->group);
}

void io_finish(io *control, uint64_t ticket, const net_completion *work, kb_error *err)
{
    static const net_completion no_work = {0};
    uint32_t t = (uint32_t)ticket, serial = (uint32_t)(ticket >> 32);
    KB_ASSERT(t != NONE && t < control->targets.used && serial != NONE);
    target *ta = target_at(control, t);
    KB_ASSERT(ta->serial == serial); /* finished twice? */
    ta->serial = NONE;
    extend(&ta->chain, work ? work : &no_work, kb_sim_now(control->sim));
    const group *gr = group_at(control, ta->group);
    command *cm = command_at(control, gr->command);
    if (cm->err)
        kb_error_free(err);
    else
        cm->err = err;
    route on = {.from = pe_node(control, cm->is.sip, gr->cube, ta->pe),
                .to = m_cpu_node(control, cm->is.sip, gr->cube),
                .bytes = IO_COMPLETION_BYTES,
                .is_response = true,
                .work = join_time(cm, control->m_cpu)};
    send(control, on, on_m_cpu_again, t);
}

/* ---- Down: the command ------------------------------------------------------------------- */

static void on_pe(void *self, uint64_t arg, const net_completion *part)
{
    io *control = self;
    target *ta = target_at(control, (uint32_t)arg);
    const group *gr = group_at(control, ta->group);
    const command *cm = command_at(control, gr->command);
    ta->chain = chain_with(&gr->chain, part);
    if (++control->serials == NONE)
        control->serials++;
    ta->serial = control->serials;
    cm->is.arrive(cm->is.self, (uint64_t)ta->serial << 32 | arg, ta->number);
}

/* From the m_cpu to PEs. */
static void send_to_pes(io *control, uint32_t g)
{
    const group *gr = group_at(control, g);
    const command *cm = command_at(control, gr->command);
    uint32_t m_cpu = m_cpu_node(control, cm->is.sip, gr->cube);
    for (uint32_t t = gr->first; t != NONE; t = target_at(control, t)->next) {
        const target *ta = target_at(control, t);
        route on = {.from = m_cpu,
                    .to = pe_node(control, cm->is.sip, gr->cube, ta->pe),
                    .bytes = IO_HEADER_BYTES + ta->bytes};
        send(control, on, on_pe, t);
    }
}

static void on_m_cpu(void *self, uint64_t arg, const net_completion *part)
{
    io *control = self;
    uint32_t g = (uint32_t)arg;
    group *gr = group_at(control, g);
    const command *cm = command_at(control, gr->command);
    gr->chain = chain_with(&cm->chain, part);
    gr->held = cm->is.cube_held != NULL;
    if (gr->held)
        cm->is.cube_held(cm->is.self, cm->is.arg, gr->cube, g);
    else
        send_to_pes(control, g);
}

void io_release_cube(io *control, uint64_t ticket)
{
    group *gr = group_at(control, (uint32_t)ticket);
    KB_ASSERT(gr->held);
    gr->held = false;
    extend_by_wait(&gr->chain, kb_sim_now(control->sim));
    send_to_pes(control, (uint32_t)ticket);
}

/* From the io_cpu to m_cpus. */
static void send_to_cubes(io *control, uint32_t c)
{
    const command *cm = command_at(control, c);
    uint32_t io_cpu = io_cpu_node(control, cm->is.sip);
    for (uint32_t g = cm->first; g != NONE; g = group_at(control, g)->next) {
        const group *gr = group_at(control, g);
        route on = {.from = io_cpu,
                    .to = m_cpu_node(control, cm->is.sip, gr->cube),
                    .bytes = IO_HEADER_BYTES + cm->is.cube_bytes + gr->bytes,
                    .work =
                        cm->is.recorded ? control->m_cpu->trigger_fs : control->m_cpu->decode_fs};
        send(control, on, on_m_cpu, g);
    }
}

static void on_io_cpu(void *self, uint64_t arg, const net_completion *part)
{
    io *control = self;
    uint32_t c = (uint32_t)arg;
    command *cm = command_at(control, c);
    extend(&cm->chain, part, part->ended);
    cm->held = cm->is.held != NULL;
    if (cm->held)
        cm->is.held(cm->is.self, cm->is.arg, c);
    else
        send_to_cubes(control, c);
}

/* The command goes on from where it is held. */
static command *take_held(io *control, uint64_t ticket)
{
    command *cm = command_at(control, (uint32_t)ticket);
    KB_ASSERT(cm->held);
    cm->held = false;
    extend_by_wait(&cm->chain, kb_sim_now(control->sim));
    return cm;
}

void io_release(io *control, uint64_t ticket)
{
    take_held(control, ticket);
    send_to_cubes(control, (uint32_t)ticket);
}

void io_cancel(io *control, uint64_t ticket, kb_error *err)
{
    take_held(control, ticket)->err = err;
    complete_command(control, (uint32_t)ticket);
}

/* A recorded command is at the io_cpu: triggering it takes a while. */
static void trigger(io *control, uint32_t c)
{
    command *cm = command_at(control, c);
    uint32_t l = kb_pool_take(&control->flights);
    if (l == NONE) {
        kb_sim_fail(control->sim, kb_error_nomem());
        return;
    }
    kb_time now = cm->chain.ended, work = control->io_cpu->trigger_fs;
    net_completion part = {.issued = now, .ended = kb_time_add(now, work), .overhead = work};
    uint32_t node = io_cpu_node(control, cm->is.sip);
    *flight_at(control, l) = (flight){.then = on_io_cpu,
                                      .self = control,
                                      .arg = c,
                                      .work = work,
                                      .part = part,
                                      .from = node,
                                      .to = node,
                                      .cause = cause_now(control)};
    kb_sim_after(control->sim, &control->source, work, control->on_work_done, l);
}

static bool is_after(const io_target *a, const io_target *b)
{
    return a->cube > b->cube || (a->cube == b->cube && a->pe > b->pe);
}

/* Also adds up the bytes of the whole command. */
static kb_error *check(const io *control, const io_command *from, uint64_t *bytes)
{
    const topo_shape *shape = topo_machine_shape(control->machine);
    const io_target *targets = from->targets;
    bool fits = !__builtin_add_overflow(from->cube_bytes, IO_HEADER_BYTES, bytes);
    if (from->sip >= shape->sips || from->target_count == 0)
        return kb_error_new(KB_ERR_BUG, "a command for %zu PEs of SIP %" PRIu32 ", of %" PRIu32,
                            from->target_count, from->sip, shape->sips);
    for (size_t i = 0; i < from->target_count; i++) {
        if (targets[i].cube >= shape->cubes || targets[i].pe >= shape->pes)
            return kb_error_new(KB_ERR_BUG, "a command for cube %" PRIu32 ", PE %" PRIu32,
                                targets[i].cube, targets[i].pe);
        if (i > 0 && !is_after(&targets[i], &targets[i - 1]))
            return kb_error_new(KB_ERR_BUG, "target %zu of a command is out of order", i);
        fits = fits && !__builtin_add_overflow(*bytes, targets[i].bytes, bytes);
    }
    if (!fits)
        return kb_error_new(KB_ERR_INPUT, "a command for %zu PEs is more than 2^64 bytes",
                            from->target_count);
    return NULL;
}

kb_error *io_submit(io *control, const io_command *from)
{
    uint64_t bytes;
    KB_TRY(check(control, from, &bytes));
    uint32_t c = take_command(control, from);
    if (c == NONE)
        return kb_error_nomem();
    kb_error *err = add_targets(control, c, from) ? NULL : kb_error_nomem();
    route on = {.from = host_node(control),
                .to = io_cpu_node(control, from->sip),
                .bytes = bytes,
                .work = control->io_cpu->decode_fs};
    if (!err && from->recorded)
        trigger(control, c);
    else if (!err)
        err = send_message(control, &on, on_io_cpu, control, c);
    if (err)
        give_command(control, c);
    return err;
}
