/* table.c: a number is (generation << 32) | place. Places are those of the pool, from 1 on. */
#include "table.h"

#include <string.h>

void rt_table_init(rt_table *table, size_t object_size)
{
    *table = (rt_table){0};
    kb_pool_init(&table->pool, object_size);
}

void rt_table_fini(rt_table *table)
{
    kb_pool_fini(&table->pool);
    kb_vec_fini(&table->generations);
}

void *rt_table_add(rt_table *table, uint64_t *id)
{
    uint32_t place = kb_pool_take(&table->pool);
    if (place == 0)
        return NULL;
    while (table->generations.count <= place) {
        if (!kb_vec_push(&table->generations, 0)) {
            kb_pool_give(&table->pool, place);
            return NULL;
        }
    }
    uint32_t generation = ++table->generations.items[place];
    void *object = kb_pool_at(&table->pool, place);
    memset(object, 0, table->pool.size);
    *id = (uint64_t)generation << 32 | place;
    return object;
}

void *rt_table_get(const rt_table *table, uint64_t id)
{
    uint32_t place = (uint32_t)id, generation = (uint32_t)(id >> 32);
    if (place == 0 || place >= table->generations.count || generation % 2 == 0 ||
        table->generations.items[place] != generation)
        return NULL;
    return kb_pool_at(&table->pool, place);
}

void rt_table_remove(rt_table *table, uint64_t id)
{
    KB_ASSERT(rt_table_get(table, id));
    uint32_t place = (uint32_t)id;
    if (++table->generations.items[place] != 0) /* else its numbers are used up */
        kb_pool_give(&table->pool, place);
}

uint64_t rt_table_next(const rt_table *table, uint64_t id)
{
    for (uint32_t place = (uint32_t)id + 1; place < table->generations.count; place++) {
        uint32_t generation = table->generations.items[place];
        if (generation % 2 == 1)
            return (uint64_t)generation << 32 | place;
    }
    return 0;
}
