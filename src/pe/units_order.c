/*
 * units_order.c: what an operation waits for: those that its command names, and those that move the
 * same bytes. It knows how many are left, and each of them knows who waits for it; so nobody is
 * asked twice whether it is done. All that an operation waits for was issued before it: there is no
 * circle.
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

/* Takes in one more rectangle. */
static void extend(bounds *b, const mem_rect *rect, bool *is_first)
{
    if (mem_rect_bytes(rect) == 0)
        return;
    uint64_t end = mem_rect_end(rect);
    if (*is_first) {
        *b = (bounds){.start = rect->at, .end = end};
        *is_first = false;
        return;
    }
    b->several |= !mem_same_memory(&b->start, &rect->at);
    if (rect->at.offset < b->start.offset)
        b->start.offset = rect->at.offset;
    if (end > b->end)
        b->end = end;
}

static bounds bounds_of(const pe_span *span)
{
    bounds b = {0};
    bool is_first = true;
    for (size_t i = 0; i < span->read_count; i++)
        extend(&b, &span->reads[i], &is_first);
    for (size_t i = 0; i < span->write_count; i++)
        extend(&b, &span->writes[i], &is_first);
    return b;
}

static bool are_apart(const bounds *a, const bounds *b)
{
    if (a->several || b->several)
        return false;
    return !mem_same_memory(&a->start, &b->start) || a->end <= b->start.offset ||
           b->end <= a->start.offset;
}

/* Whether one of them writes what the other reads or writes. */
static bool do_conflict(const operation *op, const pe_span *span, const bounds *where)
{
    if (are_apart(&op->where, where))
        return false;
    const mem_rect *writes = op->rects + op->read_count;
    size_t write_count = op->rect_count - op->read_count;
    return mem_rects_overlap(writes, write_count, span->reads, span->read_count) ||
           mem_rects_overlap(writes, write_count, span->writes, span->write_count) ||
           mem_rects_overlap(op->rects, op->read_count, span->writes, span->write_count);
}

/* Which operations under way the new one waits for. One may be there twice. */
static kb_error *find_blockers(pe_units *units, const pe_state *state, const pe_span *span,
                               const bounds *where, bool internal)
{
    units->blockers.count = 0;
    for (size_t i = 0; i < PE_MAX_AFTER; i++)
        if (!pe_units_is_done(units, span->after[i]) &&
            !kb_vec_push(&units->blockers, (uint32_t)span->after[i]))
            return kb_error_nomem();
    if (internal || span->read_count + span->write_count == 0)
        return NULL;
    for (uint32_t o = state->oldest; o != NONE; o = operation_at(units, o)->newer) {
        const operation *op = operation_at(units, o);
        if (!op->internal && do_conflict(op, span, where) && !kb_vec_push(&units->blockers, o))
            return kb_error_nomem();
    }
    return NULL;
}

/* There is room for all these waiters. */
static void wait_for_blockers(pe_units *units, uint32_t index)
{
    for (size_t i = 0; i < units->blockers.count; i++) {
        operation *blocker = operation_at(units, units->blockers.items[i]);
        uint32_t w = kb_pool_take(&units->waiters);
        *(waiter *)kb_pool_at(&units->waiters, w) =
            (waiter){.operation = index, .next = blocker->waiters};
        blocker->waiters = w;
    }
    operation_at(units, index)->waits_for = (uint32_t)units->blockers.count;
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
        operation *op = operation_at(units, w.operation);
        kb_pool_give(&units->waiters, reversed);
        op->waits_for--;
        units_put_if_ready(units, op);
        reversed = w.next;
    }
}

/* ---- Operations -------------------------------------------------------------------------- */

static kb_error *copy_rects(operation *op, const pe_span *span)
{
    op->read_count = span->read_count;
    op->rect_count = span->read_count + span->write_count;
    op->rects = op->few;
    if (op->rect_count > FEW_RECTS)
        op->rects = kb_alloc_array(op->rect_count, sizeof *op->rects);
    if (!op->rects)
        return kb_error_nomem();
    if (span->read_count > 0)
        memcpy(op->rects, span->reads, span->read_count * sizeof *op->rects);
    if (span->write_count > 0)
        memcpy(op->rects + span->read_count, span->writes, span->write_count * sizeof *op->rects);
    return NULL;
}

/* An operation with nothing in it but its rectangles. */
static kb_error *take_operation(pe_units *units, const pe_span *span, uint32_t *index)
{
    *index = NONE;
    if (!kb_vec_reserve(&units->generations, 2)) /* the first one is at index 1 */
        return kb_error_nomem();
    uint32_t o = kb_pool_take(&units->operations);
    if (o == NONE)
        return kb_error_nomem();
    while (units->generations.count <= o)
        units->generations.items[units->generations.count++] = 0;
    *operation_at(units, o) = (operation){.self = span->self, .arg = span->arg};
    kb_error *err = copy_rects(operation_at(units, o), span);
    if (err) {
        kb_pool_give(&units->operations, o);
        return err;
    }
    *index = o;
    return NULL;
}

/* It is one of those of its PE that touch memory. */
static void add_to_touching(pe_units *units, uint32_t index)
{
    operation *op = operation_at(units, index);
    op->older = op->pe->newest;
    if (op->older != NONE)
        operation_at(units, op->older)->newer = index;
    else
        op->pe->oldest = index;
    op->pe->newest = index;
}

static void remove_from_touching(pe_units *units, const operation *op)
{
    if (op->older != NONE)
        operation_at(units, op->older)->newer = op->newer;
    else
        op->pe->oldest = op->newer;
    if (op->newer != NONE)
        operation_at(units, op->newer)->older = op->older;
    else
        op->pe->newest = op->older;
}

kb_error *units_make_operation(pe_units *units, kb_pe pe, const pe_span *span, bool internal,
                               uint32_t *index)
{
    pe_state *state = units_need_pe(units, pe);
    if (!state)
        return kb_error_nomem();
    bounds where = bounds_of(span);
    KB_TRY(find_blockers(units, state, span, &where, internal));
    if (!kb_pool_reserve(&units->waiters, (uint32_t)units->blockers.count))
        return kb_error_nomem();
    KB_TRY(take_operation(units, span, index));
    operation *op = operation_at(units, *index);
    op->pe = state;
    op->sequence = state->issued++;
    op->internal = internal;
    op->where = where;
    wait_for_blockers(units, *index);
    if (op->rect_count > 0)
        add_to_touching(units, *index);
    state->under_way++;
    return NULL;
}

void units_give_operation(pe_units *units, uint32_t index)
{
    operation *op = operation_at(units, index);
    if (op->rect_count > 0)
        remove_from_touching(units, op);
    if (op->rects != op->few)
        free(op->rects);
    op->pe->under_way--;
    units->generations.items[index]++;
    kb_pool_give(&units->operations, index);
}
