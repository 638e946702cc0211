/*
 * stack.c: mapping, guarding and recycling the stacks of coroutines.
 *
 * A stack takes memory only for the pages that were touched. Those of a stack that is given back
 * are kept, since the next coroutine will touch them too.
 */
#include "sim/stack.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/base.h"

#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#else
#define VALGRIND_STACK_REGISTER(low, high) ((void)(low), (void)(high))
#endif

/* Linux 6.13: a guard inside a mapping. Older headers do not name it, older kernels refuse it. */
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

void kb_stack_pool_init(kb_stack_pool *pool, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    *pool = (kb_stack_pool){.bytes = (bytes + page - 1) / page * page};
    /*
     * An odd number of pages, with an unused one above the stack if need be: the upper
     * ends of stacks, which are always in use, then are in all sets of the TLB and of the caches
     * alike, and not in every 16th.
     */
    pool->length = (KB_STACK_GUARD + pool->bytes) | page;
}

static char **link_of(const kb_stack_pool *pool, char *base)
{
    return (char **)(void *)(base + KB_STACK_GUARD + pool->bytes - sizeof(char *));
}

static bool guard(char *base)
{
    /* mprotect() splits the mapping, and a process may have only some 65,000: the last resort. */
    return madvise(base, KB_STACK_GUARD, MADV_GUARD_INSTALL) == 0 ||
           mprotect(base, KB_STACK_GUARD, PROT_NONE) == 0;
}

kb_error *kb_stack_take(kb_stack_pool *pool, kb_stack *stack)
{
    if (pool->free_base) {
        stack->base = pool->free_base;
        pool->free_base = *link_of(pool, stack->base);
        return NULL;
    }
    char *base = mmap(NULL, pool->length, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (base != MAP_FAILED && guard(base)) {
        pool->mapped++;
        stack->base = base;
        VALGRIND_STACK_REGISTER(kb_stack_low(*stack), kb_stack_low(*stack) + pool->bytes - 1);
        return NULL;
    }
    int cause = errno;
    if (base != MAP_FAILED)
        munmap(base, pool->length);
    return kb_error_new(KB_ERR_HOST,
                        "cannot allocate a stack of %zu KiB for a coroutine (%u exist): %s; "
                        "use smaller stacks, or raise the limits (ulimit -v, sysctl "
                        "vm.max_map_count)",
                        pool->bytes / 1024, pool->mapped, strerror(cause));
}

void kb_stack_give(kb_stack_pool *pool, kb_stack stack)
{
    /* What a coroutine leaves behind when it is unwound is still marked as its variables. */
    kb_unpoison(kb_stack_low(stack), pool->bytes);
    *link_of(pool, stack.base) = pool->free_base;
    pool->free_base = stack.base;
}

void kb_stack_pool_fini(kb_stack_pool *pool)
{
    while (pool->free_base) {
        char *base = pool->free_base;
        pool->free_base = *link_of(pool, base);
        munmap(base, pool->length);
        pool->mapped--;
    }
    KB_ASSERT(pool->mapped == 0);
}
