/*
 * io.c: a command is a tree: the host, the control processor of the SIP, those of cubes, and PEs.
 * It is sent down the tree and its completions come up. Each knot of the tree keeps the chain of
 * what happened before it: its parts always add up to chain.ended - chain.issued, and the next link
 * of the chain begins when the last one has ended. Where completions join, the chain of the one
 * that came last goes on.
 *
 * Processors are pure latency: they work on any number of commands at once.
 */
#include "io.h"

#include <inttypes.h>
#include <stdlib.h>

enum { NONE = 0 }; /* of knots: pools give out no index 0 */

typedef struct target {
    net_receipt chain;
    size_t number; /* of the command */
    uint64_t bytes;
    uint32_t next; /* of its group */
    uint32_t group;
    uint32_t pe;
    uint32_t serial; /* tells tickets apart; NONE unless the PE has the command */
} target;

/* The targets in one cube. */
typedef struct group {
    net_receipt chain;
    uint64_t bytes; /* of all its targets */
    uint32_t next;  /* of its command */
    uint32_t command;
    uint32_t cube;
    uint32_t waiting; /* targets that have not completed */
    uint32_t first, last;
} group;

typedef struct command {
    net_receipt chain;
    uint64_t cube_bytes;
    io_arrive_fn *arrive;
    io_done_fn *done;
    void *self;
    uint64_t arg;
    kb_error *err; /* of the first target that failed */
    uint32_t sip;
    uint32_t waiting; /* groups that have not completed */
    uint32_t first, last;
    uint32_t before, after; /* among all that are under way */
} command;

struct io {
    kb_sim *sim;
    const topo_machine *machine;
    net *fabric;
    net_ways ways;
    kb_pool commands, groups, targets;
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

kb_error *io_create(kb_sim *sim, const topo_machine *machine, net *fabric, io **out)
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
    kb_error *err = net_ways_init(&control->ways, machine);
    if (err) {
        io_destroy(control);
        return err;
    }
    *out = control;
    return NULL;
}

void io_destroy(io *control)
{
    if (!control)
        return;
    for (uint32_t c = control->newest; c != NONE; c = command_at(control, c)->before)
        kb_error_free(command_at(control, c)->err);
    kb_pool_fini(&control->targets);
    kb_pool_fini(&control->groups);
    kb_pool_fini(&control->commands);
    net_ways_fini(&control->ways);
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
        .cube_bytes = from->cube_bytes,
        .arrive = from->arrive,
        .done = from->done,
        .self = from->self,
        .arg = from->arg,
        .sip = from->sip,
        .before = control->newest,
    };
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

static void extend(net_receipt *chain, const net_receipt *with, kb_time ended)
{
    chain->overhead += with->overhead;
    chain->wire += with->wire;
    chain->drain += with->drain;
    chain->queueing += with->queueing;
    chain->ended = ended;
    KB_ASSERT(chain->overhead + chain->wire + chain->drain + chain->queueing ==
              chain->ended - chain->issued);
}

static net_receipt chain_with(const net_receipt *chain, const net_receipt *leg)
{
    net_receipt longer = *chain;
    extend(&longer, leg, leg->ended);
    return longer;
}

/* ---- Up: completions --------------------------------------------------------------------- */

/* Control processors pass on what they got; hosts and PEs make what they send. */
static kb_error *send(io *control, uint32_t from, uint32_t to, uint64_t bytes, bool reply,
                      net_done_fn *done, uint32_t arg)
{
    const topo_graph *graph = topo_machine_graph(control->machine);
    topo_kind kind = (topo_kind)graph->nodes.items[from].kind;
    net_order order = net_ways_between(&control->ways, from, to, bytes, false);
    order.forwarded = kind == TOPO_IO_CPU || kind == TOPO_M_CPU;
    order.reply = reply;
    order.done = done;
    order.self = control;
    order.arg = arg;
    return net_submit(control->fabric, &order);
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

/* A completion of the whole command is at the host. */
static void on_host(void *self, uint64_t arg, const net_receipt *leg)
{
    io *control = self;
    command last = *command_at(control, (uint32_t)arg);
    extend(&last.chain, leg, leg->ended);
    give_command(control, (uint32_t)arg);
    last.done(last.self, last.arg, &last.chain, last.err);
}

static void complete_command(io *control, uint32_t c)
{
    uint32_t io_cpu = io_cpu_node(control, command_at(control, c)->sip);
    kb_error *err =
        send(control, io_cpu, host_node(control), IO_COMPLETION_BYTES, true, on_host, c);
    if (err)
        kb_sim_fail(control->sim, err);
}

/* A completion of a group is at the control processor of the SIP. */
static void on_io_cpu_again(void *self, uint64_t arg, const net_receipt *leg)
{
    io *control = self;
    group *gr = group_at(control, (uint32_t)arg);
    command *cm = command_at(control, gr->command);
    if (--cm->waiting > 0)
        return;
    cm->chain = chain_with(&gr->chain, leg);
    complete_command(control, gr->command);
}

static void complete_group(io *control, uint32_t g)
{
    const group *gr = group_at(control, g);
    uint32_t sip = command_at(control, gr->command)->sip;
    kb_error *err = send(control, m_cpu_node(control, sip, gr->cube), io_cpu_node(control, sip),
                         IO_COMPLETION_BYTES, true, on_io_cpu_again, g);
    if (err)
        kb_sim_fail(control->sim, err);
}

/* A completion of a target is at the control processor of its cube. */
static void on_m_cpu_again(void *self, uint64_t arg, const net_receipt *leg)
{
    io *control = self;
    target *ta = target_at(control, (uint32_t)arg);
    group *gr = group_at(control, ta->group);
    if (--gr->waiting > 0)
        return;
    gr->chain = chain_with(&ta->chain, leg);
    complete_group(control, ta->group);
}

void io_finish(io *control, uint64_t ticket, const net_receipt *work, kb_error *err)
{
    static const net_receipt no_work = {0};
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
    err =
        send(control, pe_node(control, cm->sip, gr->cube, ta->pe),
             m_cpu_node(control, cm->sip, gr->cube), IO_COMPLETION_BYTES, true, on_m_cpu_again, t);
    if (err)
        kb_sim_fail(control->sim, err);
}

/* ---- Down: the command ------------------------------------------------------------------- */

static void on_pe(void *self, uint64_t arg, const net_receipt *leg)
{
    io *control = self;
    target *ta = target_at(control, (uint32_t)arg);
    const group *gr = group_at(control, ta->group);
    const command *cm = command_at(control, gr->command);
    ta->chain = chain_with(&gr->chain, leg);
    if (++control->serials == NONE)
        control->serials++;
    ta->serial = control->serials;
    cm->arrive(cm->self, (uint64_t)ta->serial << 32 | arg, ta->number);
}

static void on_m_cpu(void *self, uint64_t arg, const net_receipt *leg)
{
    io *control = self;
    group *gr = group_at(control, (uint32_t)arg);
    const command *cm = command_at(control, gr->command);
    gr->chain = chain_with(&cm->chain, leg);
    uint32_t m_cpu = m_cpu_node(control, cm->sip, gr->cube);
    kb_error *err = NULL;
    for (uint32_t t = gr->first; t != NONE && !err; t = target_at(control, t)->next) {
        const target *ta = target_at(control, t);
        err = send(control, m_cpu, pe_node(control, cm->sip, gr->cube, ta->pe),
                   IO_HEADER_BYTES + ta->bytes, false, on_pe, t);
    }
    if (err)
        kb_sim_fail(control->sim, err);
}

static void on_io_cpu(void *self, uint64_t arg, const net_receipt *leg)
{
    io *control = self;
    command *cm = command_at(control, (uint32_t)arg);
    extend(&cm->chain, leg, leg->ended);
    uint32_t io_cpu = io_cpu_node(control, cm->sip);
    kb_error *err = NULL;
    for (uint32_t g = cm->first; g != NONE && !err; g = group_at(control, g)->next) {
        const group *gr = group_at(control, g);
        err = send(control, io_cpu, m_cpu_node(control, cm->sip, gr->cube),
                   IO_HEADER_BYTES + cm->cube_bytes + gr->bytes, false, on_m_cpu, g);
    }
    if (err)
        kb_sim_fail(control->sim, err);
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
    if (!err)
        err = send(control, host_node(control), io_cpu_node(control, from->sip), bytes, false,
                   on_io_cpu, c);
    if (err)
        give_command(control, c);
    return err;
}
