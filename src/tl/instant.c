/*
 * instant.c: commands in a run without time: each is done when it is issued, without units.
 *
 * But for those that need what has not been received: these are held up, and with them, as with
 * units, what needs their results, what stands behind them in the queue of a unit, and what touches
 * the same bytes of memory. The kernel goes on meanwhile. So kernels wait for each other here if
 * they would with units, and not otherwise; but queues of units have no bounds.
 *
 * Kernels that can go on stand in a list that the outermost call works off, so that a message which
 * is passed on by a thousand kernels needs no stack.
 */
#include "tl_private.h"

static tl_command *command_of(tl_link *link)
{
    return (tl_command *)link;
}

bool tl_instant_is_done(const tl_context *tl, pe_op op)
{
    if (op == 0)
        return true;
    for (tl_link *link = tl->held_up.next; link != &tl->held_up; link = link->next)
        if (command_of(link)->ticket == op)
            return false;
    for (const tl_link *link = tl->receives.next; link != &tl->receives; link = link->next) {
        const tl_receive *receive = (const tl_receive *)link;
        if (receive->op == op && !receive->there)
            return false;
    }
    return true;
}

static bool has_inputs(const tl_command *command)
{
    for (uint32_t i = 0; i < command->value_count; i++)
        if (command->values[i]->ready.at == KB_FOREVER)
            return false;
    return true;
}

/* Of its rectangles: a load has one list that it reads, a product two and one that it writes. */
static bool writes(const tl_command *command, int which)
{
    return command->unit == KB_UNIT_SCHEDULER ? which == 2 : command->unit != KB_UNIT_DMA_READ;
}

static void carry_out(tl_command *command)
{
    kb_sim *sim = command->tl->runner->has.sim;
    kb_error *err = tl_command_binds_later(command) ? tl_command_begun(command, 0) : NULL;
    if (err)
        kb_sim_fail(sim, err);
    tl_command_ended(command, 0);
}

/* Whether one of them writes what the other reads or writes. */
static bool do_conflict(const tl_command *a, const tl_command *b)
{
    const pe_rects *x = a->details->rects, *y = b->details->rects;
    for (int i = 0; i < TL_MATRICES; i++)
        for (int j = 0; j < TL_MATRICES; j++)
            if ((writes(a, i) || writes(b, j)) &&
                mem_rects_overlap(x[i].items, x[i].count, y[j].items, y[j].count))
                return true;
    return false;
}

/* Whether it has to stay behind one that is held up and was issued before; `newest` is the last of
 * these, or the head of the list. */
static bool is_behind(const tl_command *command, const tl_link *newest)
{
    const tl_context *tl = command->tl;
    for (const tl_link *link = newest; link != &tl->held_up; link = link->next) {
        const tl_command *older = (const tl_command *)link;
        bool same_queue = command->unit == older->unit && command->unit != TL_NO_UNIT;
        if (same_queue || do_conflict(command, older))
            return true;
    }
    return false;
}

/* Does what can be done, in the order of the program. */
static void work_off(tl_context *tl)
{
    tl_link *newer;
    for (tl_link *link = tl->held_up.prev; link != &tl->held_up; link = newer) {
        newer = link->prev;
        tl_command *command = command_of(link);
        if (!has_inputs(command) || is_behind(command, link->next))
            continue;
        command->ticket = 0;
        carry_out(command);
    }
}

void tl_instant_go_on(tl_context *tl)
{
    tl_runner *runner = tl->runner;
    if (!tl->can_go_on) {
        tl->can_go_on = true;
        tl->under_way++; /* it must not go while it is on the list */
        *(runner->to_go ? &runner->last_to_go->next_to_go : &runner->to_go) = tl;
        runner->last_to_go = tl;
    }
    if (runner->is_going)
        return;
    runner->is_going = true;
    while (runner->to_go) {
        tl_context *first = runner->to_go;
        runner->to_go = first->next_to_go;
        first->next_to_go = NULL;
        first->can_go_on = false;
        work_off(first);
        kb_wake_all(runner->has.sim, &first->arrivals);
        first->under_way--;
        tl_context_progress(first);
    }
    runner->is_going = false;
}

pe_op tl_instant_issue(tl_command *command, kb_unit unit)
{
    tl_context *tl = command->tl;
    command->unit = unit;
    tl->under_way++;
    if (has_inputs(command) && !is_behind(command, tl->held_up.next)) {
        carry_out(command);
        return 0;
    }
    pe_op ticket = command->ticket = ++tl->tickets;
    KB_RING_REMOVE(&command->link);
    KB_RING_PUSH(&tl->held_up, &command->link);
    return ticket;
}
