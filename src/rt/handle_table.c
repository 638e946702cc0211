/* handle_table.c: numbers of objects: see handle_table.h. Indices are those of the pool, from 1 on.
 */
#include "handle_table.h"

#include <string.h>

enum {
    MAX_PLACE = (1 << RT_PLACE_BITS) - 1,
    MAX_GENERATION = (1 << RT_GENERATION_BITS) - 1,
};

void rt_table_init(rt_table *table, size_t object_size, uint32_t context)
{
    *table = (rt_table){.context = context};
    kb_pool_init(&table->pool, object_size);
}

void rt_table_fini(rt_table *table)
{
    kb_pool_fini(&table->pool);
    kb_vec_fini(&table->generations);
}

static uint64_t make_id(const rt_table *table, uint32_t generation, uint32_t index)
{
    return (uint64_t)table->context << RT_CONTEXT_SHIFT | (uint64_t)generation << RT_PLACE_BITS |
           index;
}

void *rt_table_add(rt_table *table, uint64_t *id)
{
    uint32_t index = kb_pool_take(&table->pool);
    if (index == 0)
        return NULL;
    while (table->generations.count <= index) {
        if (index > MAX_PLACE || !kb_vec_push(&table->generations, 0)) {
            kb_pool_give(&table->pool, index);
            return NULL;
        }
    }
    uint32_t generation = ++table->generations.items[index];
    void *object = kb_pool_at(&table->pool, index);
    memset(object, 0, table->pool.size);
    *id = make_id(table, generation, index);
    return object;
}

void *rt_table_get(const rt_table *table, uint64_t id)
{
    uint32_t index = (uint32_t)id & MAX_PLACE;
    if (index == 0 || index >= table->generations.count)
        return NULL;
    uint32_t generation = table->generations.items[index];
    if (generation % 2 == 0 || id != make_id(table, generation, index))
        return NULL;
    return kb_pool_at(&table->pool, index);
}

void rt_table_remove(rt_table *table, uint64_t id)
{
    KB_ASSERT(rt_table_get(table, id)); /* H5 */
    uint32_t index = (uint32_t)id & MAX_PLACE;
    if (++table->generations.items[index] < MAX_GENERATION) /* else its numbers are used up */
        kb_pool_give(&table->pool, index);
}

uint64_t rt_table_next(const rt_table *table, uint64_t id)
{
    uint32_t first = ((uint32_t)id & MAX_PLACE) + 1;
    for (uint32_t index = first; index < table->generations.count; index++) {
        uint32_t generation = table->generations.items[index];
        if (generation % 2 == 1)
            return make_id(table, generation, index);
    }
    return 0;
}
