/*
 * writes.c: what memory is to hold, and is not there yet.
 *
 * Writes are kept in order and done in order, all of them or, if memory runs out on the way, again
 * from the first one. To see quickly that something is not waiting to be written, the rectangles
 * are chained by memory, and each memory knows from where to where they reach.
 */
#include <stdlib.h>
#include <string.h>

#include "data_private.h"

enum { FIRST_TARGETS = 16 };

/* ---- Memories that are written to -------------------------------------------------------- */

/* The entry of the memory in the table, or the free one where it would go. There must be one. */
static size_t find_target(const data_target *targets, size_t capacity, const kb_location *memory)
{
    uint64_t key = (uint64_t)memory->pe.sip << 32 ^ (uint64_t)memory->pe.cube << 16 ^
                   (memory->memory == KB_SRAM ? 0 : memory->pe.pe);
    key = (key << 2 ^ (uint64_t)memory->memory) * UINT64_C(0x9E3779B97F4A7C15);
    size_t at = (size_t)(key >> 32) & (capacity - 1);
    while (targets[at].is_used && !mem_same_memory(&targets[at].memory, memory))
        at = (at + 1) & (capacity - 1);
    return at;
}

/* Makes room for `extra` more, so that half of the table stays free. */
static bool reserve_targets(data_writes *writes, size_t extra)
{
    size_t capacity = writes->target_capacity ? writes->target_capacity : FIRST_TARGETS;
    while (capacity / 2 < writes->target_count + extra)
        if (!kb_size_mul(capacity, 2, &capacity))
            return false;
    if (capacity == writes->target_capacity)
        return true;
    data_target *targets = kb_alloc_zeroed(capacity, sizeof *targets);
    if (!targets)
        return false;
    for (size_t i = 0; i < writes->target_capacity; i++) {
        const data_target *old = &writes->targets[i];
        if (old->is_used)
            targets[find_target(targets, capacity, &old->memory)] = *old;
    }
    free(writes->targets);
    writes->targets = targets;
    writes->target_capacity = capacity;
    return true;
}

/* There is room for all. */
static void add_rect(data_writes *writes, const mem_rect *rect)
{
    size_t index = writes->rects.count++;
    writes->rects.items[index] = *rect;
    size_t at = find_target(writes->targets, writes->target_capacity, &rect->at);
    data_target *target = &writes->targets[at];
    if (!target->is_used) {
        *target = (data_target){
            .memory = rect->at, .low = UINT64_MAX, .last_rect = SIZE_MAX, .is_used = true};
        writes->target_count++;
    }
    if (mem_rect_bytes(rect) > 0) {
        target->low = kb_min(target->low, rect->at.offset);
        target->high = mem_rect_end(rect) > target->high ? mem_rect_end(rect) : target->high;
    }
    writes->before.items[writes->before.count++] = target->last_rect;
    target->last_rect = index;
}

static bool touches(const data_writes *writes, const mem_rect *rect)
{
    const data_target *target =
        &writes->targets[find_target(writes->targets, writes->target_capacity, &rect->at)];
    if (!target->is_used || rect->at.offset >= target->high || mem_rect_end(rect) <= target->low)
        return false;
    for (size_t i = target->last_rect; i != SIZE_MAX; i = writes->before.items[i])
        if (mem_rects_overlap(&writes->rects.items[i], 1, rect, 1))
            return true;
    return false;
}

bool data_writes_touch(const data_writes *writes, const mem_rect *rects, size_t count)
{
    for (size_t i = 0; i < count && writes->list.count > 0; i++)
        if (touches(writes, &rects[i]))
            return true;
    return false;
}

/* ---- The list ---------------------------------------------------------------------------- */

/* Forgets all. */
static void clear(data_writes *writes)
{
    for (size_t i = 0; i < writes->list.count; i++) {
        data_wait_over(writes->list.items[i].value);
        if (writes->list.items[i].mask)
            data_wait_over(writes->list.items[i].mask);
    }
    writes->list.count = writes->rects.count = writes->before.count = writes->target_count = 0;
    if (writes->targets)
        memset(writes->targets, 0, writes->target_capacity * sizeof *writes->targets);
}

void data_writes_fini(data_writes *writes)
{
    clear(writes);
    kb_vec_fini(&writes->list);
    kb_vec_fini(&writes->rects);
    kb_vec_fini(&writes->before);
    free(writes->targets);
}

kb_error *data_write(data_store *store, const mem_rect *rects, size_t count, uint64_t row_bytes,
                     data_value *value, data_value *mask)
{
    data_writes *writes = &store->writes;
    KB_ASSERT(!mask || mask->elements == value->elements);
    KB_TRY(data_relieve(store));
    if (!kb_vec_reserve(&writes->list, 1) || !kb_vec_reserve(&writes->rects, count) ||
        !kb_vec_reserve(&writes->before, count) || !reserve_targets(writes, count))
        return kb_error_nomem();
    writes->list.items[writes->list.count++] =
        (data_pending_write){value, mask, writes->rects.count, count, row_bytes};
    for (size_t i = 0; i < count; i++)
        add_rect(writes, &rects[i]);
    data_wait_for(value);
    if (mask)
        data_wait_for(mask);
    return NULL;
}

/* ---- Settling ---------------------------------------------------------------------------- */

/* A row of a rectangle: bytes of the value, which may begin or end in the middle of an element. */
typedef struct row {
    const data_value *value, *mask;
    kb_location at; /* of its first byte */
    uint64_t start, end;
} row;

/* Elements from number `from` on for which the mask says the same as for that one. */
static uint64_t run_length(const float *mask, uint64_t from, uint64_t count)
{
    uint64_t length = 1;
    bool chosen = mask[from] != 0;
    while (from + length < count && (mask[from + length] != 0) == chosen)
        length++;
    return length;
}

/* What the row has of the elements from `first` to before `end`. */
static kb_error *write_elements(mem_memories *memories, const row *r, uint64_t first, uint64_t end)
{
    size_t size = kb_dtype_bytes(r->value->dtype);
    uint64_t from = first * size > r->start ? first * size : r->start;
    uint64_t to = kb_min(end * size, r->end);
    kb_location at = r->at;
    at.offset += from - r->start;
    return mem_memories_write(memories, &at, r->value->bytes + from, to - from);
}

static kb_error *write_row(mem_memories *memories, const row *r)
{
    size_t size = kb_dtype_bytes(r->value->dtype);
    size_t mask_size = kb_dtype_bytes(r->mask->dtype);
    uint64_t end = (r->end + size - 1) / size;
    float mask[DATA_BLOCK];
    for (uint64_t first = r->start / size, now; first < end; first += now) {
        now = kb_min(end - first, DATA_BLOCK);
        kb_convert(KB_F32, mask, r->mask->dtype, r->mask->bytes + first * mask_size, now);
        for (uint64_t i = 0, length; i < now; i += length) {
            length = run_length(mask, i, now);
            if (mask[i] != 0)
                KB_TRY(write_elements(memories, r, first + i, first + i + length));
        }
    }
    return NULL;
}

static kb_error *write_masked(mem_memories *memories, const data_pending_write *write,
                              const mem_rect *rect)
{
    row one = {.value = write->value, .mask = write->mask, .at = rect->at};
    for (uint64_t i = 0; i < rect->rows; i++, one.at.offset += rect->stride) {
        one.start = (rect->row + i) * write->row_bytes + rect->column;
        one.end = one.start + rect->bytes;
        KB_TRY(write_row(memories, &one));
    }
    return NULL;
}

static kb_error *do_write(data_store *store, const data_pending_write *write)
{
    const mem_rect *rects = store->writes.rects.items + write->first_rect;
    if (!write->mask)
        return mem_rects_write(store->memories, rects, write->rect_count, write->value->bytes,
                               write->row_bytes);
    for (size_t i = 0; i < write->rect_count; i++)
        KB_TRY(write_masked(store->memories, write, &rects[i]));
    return NULL;
}

kb_error *data_settle(data_store *store)
{
    data_writes *writes = &store->writes;
    if (writes->list.count == 0)
        return NULL;
    for (size_t i = 0; i < writes->list.count; i++) {
        KB_TRY(data_collect(store, writes->list.items[i].value));
        if (writes->list.items[i].mask)
            KB_TRY(data_collect(store, writes->list.items[i].mask));
    }
    store->stats.settled += store->collected.count > 0;
    KB_TRY(data_compute(store));
    for (size_t i = 0; i < writes->list.count; i++)
        KB_TRY(do_write(store, &writes->list.items[i]));
    clear(writes);
    return NULL;
}
