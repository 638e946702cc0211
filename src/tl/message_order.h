/*
 * message_order.h: the order that messages make between the operations of kernels, as a graph.
 *
 * A point is a place in the execution of a PE: a message was sent, one has arrived, or both of two
 * points are reached. What comes before a point's predecessors comes before the point. So whether
 * an operation of one PE is ordered before one of another PE is whether a send that follows the
 * first leads to the point at which the second is issued.
 *
 * All launches that are checked at the same time share one graph, as messages may pass between
 * their kernels. It is emptied when none is left.
 */
#ifndef KB_TL_ORDER_H
#define KB_TL_ORDER_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "base/base.h"

/* 0: nothing is known to come before. */
typedef uint32_t tl_point;

typedef struct tl_order_node {
    tl_point before[2]; /* 0: none */
    uint32_t sender;    /* of a send: the thread; 0: it is none */
    uint32_t sends;     /* its number among the sends of the thread, from 1 */
    uint64_t reached;   /* on the clock; of a receive 0 until the message is there */
    bool is_receive;
    bool acquired; /* its PE has waited for it: all that is issued there from then on comes after */
} tl_order_node;

typedef struct tl_order {
    uint32_t users; /* what holds the graph: the runner, and launches that are not over */
    uint32_t open;  /* launches */
    uint32_t generation;
    uint32_t threads; /* kernels so far */
    uint64_t clock;   /* counts accesses and points, in the order in which they come */
    bool failed;      /* there was no memory for a point */
    bool full;        /* there are too many points: no access from here on is ordered correctly */
    size_t max_nodes;
    KB_VEC(tl_order_node) nodes; /* [0] is none */
    KB_VEC(tl_point) marking;    /* points that are still to be marked */
} tl_order;

/* NULL if there is no memory. To be released. */
tl_order *tl_order_create(void);
void tl_order_retain(tl_order *order);
void tl_order_release(tl_order *order);

/* A launch begins, or is over. */
void tl_order_open(tl_order *order);
void tl_order_close(tl_order *order);

static inline uint64_t tl_order_tick(tl_order *order)
{
    return ++order->clock;
}

/* A point at which both are reached. These return 0 if the graph has failed or is full. */
tl_point tl_order_join(tl_order *order, tl_point a, tl_point b);

/* The thread sends its message of that number, after these. */
tl_point tl_order_send(tl_order *order, tl_point a, tl_point b, uint32_t thread, uint32_t sends);

/* A receive that is issued after the point, and its message, which is there. */
tl_point tl_order_receive(tl_order *order, tl_point issued);
void tl_order_arrive(tl_order *order, tl_point receive, uint64_t message);

/* The PE has waited for the point, and so for all in the same PE that it comes after. */
void tl_order_acquire(tl_order *order, tl_point point);

/* What a message carries: the send, and the graph's generation. */
uint64_t tl_order_name(const tl_order *order, tl_point send);

/*
 * When each point is reached, on the clock; UINT64_MAX: never. As many as the graph has nodes; to
 * be freed. NULL if there is no memory.
 */
uint64_t *tl_order_times(const tl_order *order);

/* Appends the receives of a PE that a point of it comes after, but none for which the PE had waited
 * before. False if there is no memory. */
typedef KB_VEC(tl_point) tl_points;
KB_MUST_USE bool tl_order_list_receives(const tl_order *order, tl_point point, tl_points *list);

/* Accesses of a thread that wait for points: they come before those of its later sends alone that
 * come after all of these. */
typedef struct tl_order_late {
    uint32_t first, count; /* of the flags */
    uint32_t next;         /* of the same thread: its number + 1; 0: none */
} tl_order_late;

/* What a clock has: the number of the last send of each thread, then of the last of those that late
 * accesses come before, then whether it comes after each of some points. */
typedef struct tl_order_columns {
    uint32_t *of_thread;  /* its column, by thread; UINT32_MAX: none */
    uint32_t *first_late; /* by thread, a number in `late` + 1; 0: none */
    size_t thread_count;
    KB_VEC(tl_order_late) late;
    tl_points flags;
} tl_order_columns;

static inline size_t tl_order_row(const tl_order_columns *columns)
{
    return columns->thread_count + columns->late.count + columns->flags.count;
}

/* The clocks of all points: a row for each node. False if there is no memory. */
KB_MUST_USE bool tl_order_clocks(const tl_order *order, const tl_order_columns *columns,
                                 uint32_t *rows);

#endif
