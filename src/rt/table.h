/*
 * table.h: objects that users name by number. A number has the place of the object and how often
 * that place was used before, so that a number whose object is gone is recognised, for ever, and
 * places can be used again.
 */
#ifndef KB_RT_TABLE_H
#define KB_RT_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "base/base.h"

typedef struct rt_table {
    kb_pool pool;
    KB_VEC(uint32_t) generations; /* by place: odd while an object is there */
} rt_table;

void rt_table_init(rt_table *table, size_t object_size);
void rt_table_fini(rt_table *table);

/* An object of zeros, and its number; NULL if there is no memory. It never moves. */
void *rt_table_add(rt_table *table, uint64_t *id);

/* NULL if the number names none, or none any more. */
void *rt_table_get(const rt_table *table, uint64_t id);

void rt_table_remove(rt_table *table, uint64_t id);

/* The number of the first object in a place behind that of `id` (0: in any); 0 if none is left. */
uint64_t rt_table_next(const rt_table *table, uint64_t id);

#endif
