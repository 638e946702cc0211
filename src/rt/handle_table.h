/*
 * handle_table.h: objects that users name by number. A number has the context of the object, its
 * index and how often that index was used before. So the number of an object that is gone, or of
 * another context, is recognised, and indices can be used again.
 */
#ifndef KB_RT_HANDLE_TABLE_H
#define KB_RT_HANDLE_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "base/base.h"

/* The bits of a number, from the top: context, generation, index. */
enum {
    RT_PLACE_BITS = 24,
    RT_GENERATION_BITS = 20,
    RT_CONTEXT_SHIFT = RT_PLACE_BITS + RT_GENERATION_BITS,
    RT_MAX_CONTEXT = (1 << (64 - RT_CONTEXT_SHIFT)) - 1,
};

typedef struct rt_table {
    uint32_t context; /* its number */
    kb_pool pool;
    KB_VEC(uint32_t) generations; /* by index: odd while an object is there */
} rt_table;

void rt_table_init(rt_table *table, size_t object_size, uint32_t context);
void rt_table_fini(rt_table *table);

/*
 * An object of zeros, and its number; NULL if there is no memory, or if all 2^24 indices are taken.
 * It never moves.
 */
void *rt_table_add(rt_table *table, uint64_t *id);

/* NULL if the number names none, or none any more. */
void *rt_table_get(const rt_table *table, uint64_t id);

void rt_table_remove(rt_table *table, uint64_t id);

/* The number of the first object with an index above that of `id` (0: in any); 0 if none is left.
 */
uint64_t rt_table_next(const rt_table *table, uint64_t id);

#endif
