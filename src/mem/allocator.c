/*
 * allocator.c: who has which part of a range.
 *
 * Blocks and gaps together cover the range exactly; both lists are sorted, and no two gaps touch.
 * So there is at most one gap more than blocks, and taking a block makes room for that many:
 * giving one back never needs memory of the host. What the blocks hold is not known here.
 */
#include "allocator.h"

#include <string.h>

void mem_allocator_init(mem_allocator *allocator, uint64_t base, uint64_t bytes, mem_fit fit)
{
    KB_ASSERT(bytes <= UINT64_MAX - base);
    *allocator = (mem_allocator){
        .base = base, .bytes = bytes, .free_bytes = bytes, .next = base, .fit = fit};
}

void mem_allocator_fini(mem_allocator *allocator)
{
    kb_vec_fini(&allocator->used);
    kb_vec_fini(&allocator->free);
    allocator->free_bytes = allocator->bytes;
    allocator->next = allocator->base;
}

static uint64_t end_of(const mem_span *span)
{
    return span->start + span->bytes;
}

/* The first of the spans that ends behind the address; `count` if none does. Which half it is in is
 * computed and not decided: no branch could be foreseen. */
static size_t first_ending_after(const mem_span *spans, size_t count, uint64_t address)
{
    size_t low = 0;
    while (count > 0) {
        size_t half = (count + 1) / 2;
        low += half & -(size_t)(end_of(&spans[low + half - 1]) <= address);
        count -= half;
    }
    return low;
}

/* Lists of spans have room by the time something is put into them. */
static void insert_span(mem_span *spans, size_t *count, size_t at, mem_span span)
{
    if (at < *count)
        memmove(&spans[at + 1], &spans[at], (*count - at) * sizeof *spans);
    spans[at] = span;
    ++*count;
}

static void remove_span(mem_span *spans, size_t *count, size_t at)
{
    if (at < --*count)
        memmove(&spans[at], &spans[at + 1], (*count - at) * sizeof *spans);
}

/* ---- Taking ------------------------------------------------------------------------------ */

/* Where a block fits into the gap, not below `from`. */
static bool fits(const mem_span *gap, uint64_t from, uint64_t bytes, uint64_t align, uint64_t *at)
{
    uint64_t low = gap->start > from ? gap->start : from;
    if (__builtin_add_overflow(low, align - 1, at))
        return false;
    *at &= ~(align - 1);
    return *at < end_of(gap) && end_of(gap) - *at >= bytes;
}

/* The first gap with space at or behind `from`; false if there is none. */
static bool find_gap(const mem_allocator *allocator, uint64_t from, uint64_t bytes, uint64_t align,
                     size_t *gap, uint64_t *at)
{
    const mem_span *gaps = allocator->free.items;
    size_t count = allocator->free.count;
    for (size_t i = from > 0 ? first_ending_after(gaps, count, from) : 0; i < count; i++)
        if (fits(&gaps[i], from, bytes, align, at)) {
            *gap = i;
            return true;
        }
    return false;
}

/* Room for one more block, and for all the gaps that there can be then. */
static bool make_room(mem_allocator *allocator)
{
    bool fresh = !allocator->free.items;
    size_t max_gaps = allocator->used.count + 2;
    if (!kb_vec_reserve(&allocator->used, 1) ||
        !kb_vec_reserve(&allocator->free, max_gaps - allocator->free.count))
        return false;
    KB_ASSERT(allocator->free.items); /* M2 */
    if (fresh)
        allocator->free.items[allocator->free.count++] =
            (mem_span){allocator->base, allocator->bytes};
    return true;
}

static void cut(mem_allocator *allocator, size_t at, mem_span block)
{
    mem_span *gap = &allocator->free.items[at];
    mem_span behind = {end_of(&block), end_of(gap) - end_of(&block)};
    gap->bytes = block.start - gap->start;
    if (gap->bytes == 0 && behind.bytes == 0)
        remove_span(allocator->free.items, &allocator->free.count, at);
    else if (gap->bytes == 0)
        *gap = behind;
    else if (behind.bytes > 0)
        insert_span(allocator->free.items, &allocator->free.count, at + 1, behind);
}

mem_taken mem_allocator_take(mem_allocator *allocator, uint64_t bytes, uint64_t align,
                             uint64_t *start)
{
    KB_ASSERT(bytes > 0 && align > 0 && (align & (align - 1)) == 0);
    if (bytes > allocator->free_bytes - allocator->held)
        return MEM_EXHAUSTED; /* before anything is allocated for an allocator without a use */
    if (!make_room(allocator))
        return MEM_NO_HOST_MEMORY;
    size_t gap;
    mem_span block = {.bytes = bytes};
    bool next_fit = allocator->fit == MEM_NEXT_FIT;
    bool found =
        find_gap(allocator, next_fit ? allocator->next : 0, bytes, align, &gap, &block.start);
    if (!found && next_fit)
        found = find_gap(allocator, 0, bytes, align, &gap, &block.start);
    if (!found)
        return MEM_EXHAUSTED;
    cut(allocator, gap, block);
    size_t at = first_ending_after(allocator->used.items, allocator->used.count, block.start);
    insert_span(allocator->used.items, &allocator->used.count, at, block);
    allocator->free_bytes -= bytes;
    allocator->next = end_of(&block);
    *start = block.start;
    return MEM_TAKEN;
}

/* ---- Giving back ------------------------------------------------------------------------- */

static void add_gap(mem_allocator *allocator, mem_span span)
{
    mem_span *gaps = allocator->free.items;
    size_t *count = &allocator->free.count;
    size_t at = first_ending_after(gaps, *count, span.start);
    bool joins_left = at > 0 && end_of(&gaps[at - 1]) == span.start;
    bool joins_right = at < *count && gaps[at].start == end_of(&span);
    if (joins_left && joins_right) {
        gaps[at - 1].bytes += span.bytes + gaps[at].bytes;
        remove_span(gaps, count, at);
    } else if (joins_left) {
        gaps[at - 1].bytes += span.bytes;
    } else if (joins_right) {
        gaps[at].start = span.start;
        gaps[at].bytes += span.bytes;
    } else {
        KB_ASSERT(*count < allocator->free.capacity); /* M2 */
        insert_span(gaps, count, at, span);
    }
}

void mem_allocator_give_block(mem_allocator *allocator, const mem_span *found)
{
    mem_span block = *found;
    remove_span(allocator->used.items, &allocator->used.count,
                (size_t)(found - allocator->used.items));
    add_gap(allocator, block);
    allocator->free_bytes += block.bytes;
}

bool mem_allocator_give(mem_allocator *allocator, uint64_t start)
{
    const mem_span *block = mem_allocator_find(allocator, start);
    if (!block || block->start != start)
        return false;
    mem_allocator_give_block(allocator, block);
    return true;
}

/* ---- Looking ----------------------------------------------------------------------------- */

const mem_span *mem_allocator_find(const mem_allocator *allocator, uint64_t address)
{
    size_t at = first_ending_after(allocator->used.items, allocator->used.count, address);
    if (at == allocator->used.count || allocator->used.items[at].start > address)
        return NULL;
    return &allocator->used.items[at];
}

uint64_t mem_allocator_largest(const mem_allocator *allocator)
{
    if (!allocator->free.items)
        return allocator->bytes;
    uint64_t largest = 0;
    for (size_t i = 0; i < allocator->free.count; i++)
        if (allocator->free.items[i].bytes > largest)
            largest = allocator->free.items[i].bytes;
    return largest;
}
