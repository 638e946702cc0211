/*
 * message_order.c: the graph of points. Predecessors are made before a point, with one exception: a
 * receive that is posted before its message is sent has a send of a higher number. So walks that
 * need all predecessors first go by a stack.
 */
#include "message_order.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_NODES = 1 << 24 };

tl_order *tl_order_create(void)
{
    tl_order *order = kb_alloc_zeroed(1, sizeof *order);
    if (order && !kb_vec_push(&order->nodes, (tl_order_node){0})) {
        free(order);
        return NULL;
    }
    if (order) {
        order->users = 1;
        order->max_nodes = MAX_NODES;
    }
    return order;
}

void tl_order_retain(tl_order *order)
{
    order->users++;
}

void tl_order_release(tl_order *order)
{
    if (!order || --order->users > 0)
        return;
    kb_vec_fini(&order->nodes);
    kb_vec_fini(&order->marking);
    free(order);
}

void tl_order_open(tl_order *order)
{
    order->open++;
}

void tl_order_close(tl_order *order)
{
    KB_ASSERT(order->open > 0);
    if (--order->open > 0)
        return;
    order->generation++;
    order->nodes.count = 1;
    order->clock = 0;
    order->threads = 0;
    order->failed = order->full = false;
}

/* ---- Points ---- */

static tl_point add(tl_order *order, const tl_order_node *node)
{
    if (order->nodes.count >= order->max_nodes)
        order->full = true;
    else if (!kb_vec_push(&order->nodes, *node))
        order->failed = true;
    else
        return (tl_point)order->nodes.count - 1;
    return 0;
}

tl_point tl_order_join(tl_order *order, tl_point a, tl_point b)
{
    if (a == b || b == 0)
        return a;
    if (a == 0)
        return b;
    return add(order, &(tl_order_node){.before = {a, b}, .reached = tl_order_tick(order)});
}

tl_point tl_order_send(tl_order *order, tl_point a, tl_point b, uint32_t thread, uint32_t sends)
{
    return add(order, &(tl_order_node){.before = {a, b},
                                       .sender = thread,
                                       .sends = sends,
                                       .reached = tl_order_tick(order)});
}

tl_point tl_order_receive(tl_order *order, tl_point issued)
{
    return add(order, &(tl_order_node){.before = {issued, 0}, .is_receive = true});
}

/* What a receive comes after its PE has waited for when it issued it. */
void tl_order_acquire(tl_order *order, tl_point point)
{
    if (point != 0)
        order->failed = !kb_vec_push(&order->marking, point) || order->failed;
    while (order->marking.count > 0) {
        tl_order_node *node = &order->nodes.items[order->marking.items[--order->marking.count]];
        if (node->acquired)
            continue;
        node->acquired = true;
        for (int i = 0; i < 2 && !node->is_receive; i++)
            if (node->before[i] != 0)
                order->failed = !kb_vec_push(&order->marking, node->before[i]) || order->failed;
    }
}

uint64_t tl_order_name(const tl_order *order, tl_point send)
{
    return (uint64_t)order->generation << 32 | send;
}

void tl_order_arrive(tl_order *order, tl_point receive, uint64_t message)
{
    if (receive == 0)
        return;
    tl_order_node *node = &order->nodes.items[receive];
    if (message >> 32 == order->generation)
        node->before[1] = (tl_point)message;
    node->reached = tl_order_tick(order);
}

/* ---- The whole graph ---- */

uint64_t *tl_order_times(const tl_order *order)
{
    uint64_t *times = kb_alloc_zeroed(order->nodes.count, sizeof *times);
    if (!times)
        return NULL;
    for (size_t i = 1; i < order->nodes.count; i++) {
        const tl_order_node *node = &order->nodes.items[i];
        /* A message arrives later than it was sent: that need not be looked up. */
        uint64_t second = node->is_receive ? 0 : times[node->before[1]];
        uint64_t own = node->is_receive && node->reached == 0 ? UINT64_MAX : node->reached;
        times[i] = kb_max(own, kb_max(times[node->before[0]], second));
    }
    return times;
}

bool tl_order_list_receives(const tl_order *order, tl_point point, tl_points *list)
{
    tl_points stack = {0};
    bool fits = kb_vec_push(&stack, point);
    while (fits && stack.count > 0) {
        tl_point at = stack.items[--stack.count];
        const tl_order_node *node = &order->nodes.items[at];
        if (node->is_receive)
            fits = kb_vec_push(list, at);
        for (int i = 0; i < 2 && fits && !node->is_receive; i++)
            if (node->before[i] != 0)
                fits = kb_vec_push(&stack, node->before[i]);
    }
    kb_vec_fini(&stack);
    return fits;
}

typedef struct walk {
    const tl_order *order;
    const tl_order_columns *columns;
    size_t row; /* numbers */
    uint32_t *rows;
    bool *done;
    KB_VEC(tl_point) stack;
} walk;

static void take_over(const walk *w, uint32_t *to, tl_point from)
{
    const uint32_t *row = w->rows + (size_t)from * w->row;
    for (size_t c = 0; c < w->row; c++)
        to[c] = row[c] > to[c] ? row[c] : to[c];
}

static bool has_all_flags(const walk *w, const tl_order_late *late, const uint32_t *row)
{
    const uint32_t *flags = row + w->columns->thread_count + w->columns->late.count + late->first;
    for (uint32_t i = 0; i < late->count; i++)
        if (flags[i] == 0)
            return false;
    return true;
}

/* A send counts in the column of its thread, and where it comes after what others wait for. */
static void count_send(const walk *w, const tl_order_node *node, uint32_t *row)
{
    const tl_order_columns *is = w->columns;
    uint32_t column = is->of_thread[node->sender];
    if (column != UINT32_MAX && node->sends > row[column])
        row[column] = node->sends;
    for (uint32_t l = is->first_late[node->sender]; l != 0; l = is->late.items[l - 1].next) {
        uint32_t *known = &row[is->thread_count + l - 1];
        if (node->sends > *known && has_all_flags(w, &is->late.items[l - 1], row))
            *known = node->sends;
    }
}

/* All of its predecessors are done. The flags of points that are waited for are set. */
static void compute(const walk *w, tl_point point)
{
    const tl_order_node *node = &w->order->nodes.items[point];
    uint32_t *row = w->rows + (size_t)point * w->row;
    for (int i = 0; i < 2; i++)
        if (node->before[i] != 0)
            take_over(w, row, node->before[i]);
    if (node->sender != 0)
        count_send(w, node, row);
    w->done[point] = true;
}

/* The point, and before it all that it depends on. */
static bool visit(walk *w, tl_point point)
{
    if (!kb_vec_push(&w->stack, point))
        return false;
    while (w->stack.count > 0) {
        tl_point at = w->stack.items[w->stack.count - 1];
        const tl_order_node *node = &w->order->nodes.items[at];
        tl_point missing = 0;
        for (int i = 0; i < 2; i++)
            if (!w->done[node->before[i]])
                missing = node->before[i];
        if (missing != 0) {
            if (!kb_vec_push(&w->stack, missing))
                return false;
            continue;
        }
        if (!w->done[at])
            compute(w, at);
        w->stack.count--;
    }
    return true;
}

bool tl_order_clocks(const tl_order *order, const tl_order_columns *columns, uint32_t *rows)
{
    walk w = {.order = order, .columns = columns, .row = tl_order_row(columns), .rows = rows};
    size_t first_flag = columns->thread_count + columns->late.count;
    memset(rows, 0, order->nodes.count * w.row * sizeof *rows);
    for (size_t i = 0; i < columns->flags.count; i++)
        rows[columns->flags.items[i] * w.row + first_flag + i] = 1;
    w.done = kb_alloc_zeroed(order->nodes.count, sizeof *w.done);
    bool fits = w.done != NULL;
    if (fits)
        w.done[0] = true;
    for (size_t i = 1; fits && i < order->nodes.count; i++)
        fits = w.done[i] || visit(&w, (tl_point)i);
    kb_vec_fini(&w.stack);
    free(w.done);
    return fits;
}
