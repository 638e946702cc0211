/*
 * units_order.c: what an operation waits for: those that its command names, and those that move the
 * same bytes. It knows how many are left, and each of them knows what waits for it; so nothing is
 * asked twice whether it is done. All that an operation waits for was issued before it: there is no
 * cycle.
 *
 * Operations that move bytes are looked through when one is issued. There are as many as the queues
 * hold, and most are told apart by where they begin and end.
 */
#include "units_private.h"

#include <stdlib.h>
#include <string.h>

/* ---- Waiting for others ------------------------------------------------------------------ */

pe_op units_name(const pe_units *units, uint32_t index)
{
    return (pe_op)units->generations.items[index] << 32 | index;
}

bool pe_units_is_done(const pe_units *units, pe_op op)
{
    uint32_t index = (uint32_t)op;
    KB_ASSERT(op == 0 || index < units->generations.count);
    return op == 0 || units_name(units, index) != op;
}

/* Takes in more rectangles. */
static void extend(const pe_units *units, bounds *b, const mem_rect *rects, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (mem_rect_bytes(&rects[i]) == 0)
            continue;
        uint64_t start = rects[i].at.offset, end = mem_rect_end(&rects[i]);
        uint64_t memory = mem_memory_index(units->shape, &rects[i].at);
        if (b->end == 0) {
            *b = (bounds){.memory = memory, .start = start, .end = end};
            continue;
        }
        b->several |= memory != b->memory;
        if (start < b->start)
            b->start = start;
        if (end > b->end)
            b->end = end;
    }
}

static bool are_apart(const bounds *a, const bounds *b)
{
    if (a->several || b->several)
        return false;
    return a->memory != b->memory || a->end <= b->start || b->end <= a->start;
}

/* Whether one of them writes what the other reads or writes. */
static bool do_conflict(const operation *op, const touches *memory)
{
    const mem_rect *writes = op->memory.rects + op->memory.read_count;
    size_t write_count = op->rect_count - op->memory.read_count;
    return mem_rects_overlap(writes, write_count, memory->reads, memory->read_count) ||
           mem_rects_overlap(writes, write_count, memory->writes, memory->write_count) ||
           mem_rects_overlap(op->memory.rects, op->memory.read_count, memory->writes,
                             memory->write_count);
}

/* Operations under way that the new one is to come after. One may be there twice. */
static kb_error *find_makers(pe_units *units, const pe_op after[PE_MAX_INPUTS])
{
    _Static_assert(PE_MAX_INPUTS == 6, "all of them are looked at");
    if (KB_LIKELY((after[0] | after[1] | after[2] | after[3] | after[4] | after[5]) == 0))
        return NULL;
    for (size_t i = 0; i < PE_MAX_INPUTS; i++)
        if (after[i] != 0 && !pe_units_is_done(units, after[i]) &&
            !kb_vec_push(&units->blockers, operation_at(units, (uint32_t)after[i])))
            return kb_error_nomem();
    return NULL;
}

/* And those that touch the same memory. */
static kb_error *find_conflicts(pe_units *units, const pe_state *state, const touches *memory,
                                const bounds *where)
{
    bool writes = memory->write_count > 0;
    for (size_t i = 0; i < state->marks.count; i++) {
        const mark *m = &state->marks.items[i];
        if (KB_LIKELY(!(m->writes || writes) || are_apart(&m->where, where)))
            continue;
        if (do_conflict(m->op, memory) && !kb_vec_push(&units->blockers, m->op))
            return kb_error_nomem();
    }
    return NULL;
}

/* There is room for all these waiters. */
static void wait_for_blockers(pe_units *units, operation *op)
{
    for (size_t i = 0; i < units->blockers.count; i++) {
        operation *blocker = units->blockers.items[i];
        uint32_t w = kb_pool_take(&units->waiters);
        *(waiter *)kb_pool_at(&units->waiters, w) = (waiter){.op = op, .next = blocker->waiters};
        blocker->waiters = w;
    }
    op->waits_for = (uint32_t)units->blockers.count;
}

void units_release_waiters(pe_units *units, uint32_t first)
{
    uint32_t reversed = NONE; /* the list has the newest first */
    while (first != NONE) {
        waiter *w = kb_pool_at(&units->waiters, first);
        uint32_t next = w->next;
        w->next = reversed;
        reversed = first;
        first = next;
    }
    while (reversed != NONE) {
        waiter w = *(waiter *)kb_pool_at(&units->waiters, reversed);
        kb_pool_give(&units->waiters, reversed);
        w.op->waits_for--;
        units_put_if_ready(units, w.op);
        reversed = w.next;
    }
}

/* ---- Operations -------------------------------------------------------------------------- */

/* Its rectangles have memory of their own. */
static void add_long(operation *op)
{
    op->memory.previous_long = NULL;
    op->memory.next_long = op->pe->first_long;
    if (op->memory.next_long)
        op->memory.next_long->memory.previous_long = op;
    op->pe->first_long = op;
}

static void drop_rects(operation *op)
{
    if (KB_LIKELY(op->rect_count <= FEW_RECTS))
        return;
    free(op->memory.rects);
    if (op->memory.next_long)
        op->memory.next_long->memory.previous_long = op->memory.previous_long;
    if (op->memory.previous_long)
        op->memory.previous_long->memory.next_long = op->memory.next_long;
    else
        op->pe->first_long = op->memory.next_long;
}

static kb_error *copy_rects(operation *op, const touches *memory)
{
    size_t count = memory->read_count + memory->write_count;
    if (count > UINT32_MAX)
        return kb_error_nomem();
    op->memory.rects = op->memory.few;
    if (count > FEW_RECTS)
        op->memory.rects = kb_alloc_array(count, sizeof *op->memory.rects);
    if (!op->memory.rects)
        return kb_error_nomem();
    op->rect_count = (uint32_t)count;
    op->memory.read_count = (uint32_t)memory->read_count;
    if (count > FEW_RECTS)
        add_long(op);
    mem_rect *to = op->memory.rects;
    for (size_t i = 0; i < memory->read_count; i++)
        *to++ = memory->reads[i];
    for (size_t i = 0; i < memory->write_count; i++)
        *to++ = memory->writes[i];
    return NULL;
}

/* One that touches no memory, with nothing in it; NULL without host memory. */
static operation *take_operation(pe_units *units, pe_state *state)
{
    if (!kb_vec_reserve(&units->generations, 2)) /* the first one is at index 1 */
        return NULL;
    uint32_t index = kb_pool_take(&units->operations);
    if (index == 0)
        return NULL;
    while (units->generations.count <= index)
        units->generations.items[units->generations.count++] = 0;
    operation *op = operation_at(units, index);
    memset(op, 0, offsetof(operation, inputs));
    op->pe = state;
    op->index = index;
    return op;
}

/* Later operations see what this one touches. There is room for it. */
static void add_mark(operation *op, const bounds *where)
{
    pe_state *state = op->pe;
    state->marks.items[state->marks.count++] =
        (mark){.where = *where, .op = op, .writes = op->memory.read_count < op->rect_count};
    op->memory.marked = (uint32_t)state->marks.count;
}

/* The last mark takes its place: their order means nothing. */
static void remove_mark(const operation *op)
{
    pe_state *state = op->pe;
    uint32_t own = op->memory.marked - 1;
    if (own == --state->marks.count)
        return;
    state->marks.items[own] = state->marks.items[state->marks.count];
    state->marks.items[own].op->memory.marked = op->memory.marked;
}

/* The operation touches memory, and comes after those that touch the same. */
static kb_error *touch(pe_units *units, operation *op, const touches *memory, bool unordered)
{
    op->memory.marked = 0;
    KB_TRY(copy_rects(op, memory));
    if (unordered)
        return NULL;
    bounds where = {0};
    extend(units, &where, memory->reads, memory->read_count);
    extend(units, &where, memory->writes, memory->write_count);
    KB_TRY(find_conflicts(units, op->pe, memory, &where));
    if (!kb_vec_reserve(&op->pe->marks, 1))
        return kb_error_nomem();
    add_mark(op, &where);
    return NULL;
}

static void forget_memory(operation *op)
{
    if (op->rect_count == 0)
        return;
    if (op->memory.marked)
        remove_mark(op);
    drop_rects(op);
}

kb_error *units_make_operation(pe_units *units, pe_state *state, const pe_op after[PE_MAX_INPUTS],
                               const touches *memory, bool unordered, operation **op)
{
    *op = NULL;
    units->blockers.count = 0;
    KB_TRY(find_makers(units, after));
    operation *made = take_operation(units, state);
    if (KB_UNLIKELY(!made))
        return kb_error_nomem();
    kb_error *err = NULL;
    if (memory->read_count + memory->write_count > 0)
        err = touch(units, made, memory, unordered);
    if (!err && KB_UNLIKELY(units->blockers.count > 0) &&
        !kb_pool_reserve(&units->waiters, (uint32_t)units->blockers.count))
        err = kb_error_nomem();
    if (KB_UNLIKELY(err != NULL)) {
        forget_memory(made);
        kb_pool_give(&units->operations, made->index);
        return err;
    }
    made->sequence = state->issued++;
    if (KB_UNLIKELY(units->blockers.count > 0))
        wait_for_blockers(units, made);
    state->under_way++;
    *op = made;
    return NULL;
}

void units_give_operation(pe_units *units, operation *op)
{
    forget_memory(op);
    op->pe->under_way--;
    units->generations.items[op->index]++;
    kb_pool_give(&units->operations, op->index);
}
