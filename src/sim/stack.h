/*
 * stack.h: stacks for coroutines, each with a guard below it, kept for reuse. Private to sim.
 *
 *     base      base + KB_STACK_GUARD                       base + KB_STACK_GUARD + bytes
 *     | guard   | the stack grows this way          <------ |
 */
#ifndef KB_SIM_STACK_H
#define KB_SIM_STACK_H

#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

/* More than a page: a frame that is larger than the guard steps over it. Costs addresses only. */
enum { KB_STACK_GUARD = 64 * 1024 };

typedef struct kb_stack {
    char *base;
} kb_stack;

typedef struct kb_stack_pool {
    size_t bytes;    /* of each stack, without the guard */
    size_t length;   /* of what is mapped for each */
    char *free_base; /* the one given back last; its top word has the base of the one before */
    uint32_t mapped; /* in use and free */
} kb_stack_pool;

/* Rounds `bytes` up to whole pages. */
void kb_stack_pool_init(kb_stack_pool *pool, size_t bytes);

/* All stacks must have been given back. */
void kb_stack_pool_fini(kb_stack_pool *pool);

KB_MUST_USE kb_error *kb_stack_take(kb_stack_pool *pool, kb_stack *stack);
void kb_stack_give(kb_stack_pool *pool, kb_stack stack);

static inline char *kb_stack_low(kb_stack stack)
{
    return stack.base + KB_STACK_GUARD;
}

#endif
