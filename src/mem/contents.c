/*
 * contents.c: pages of bytes, found by number.
 *
 * The hash table probes linearly and is at most three quarters full. Removing a page moves those
 * behind it up, so there are no tombstones and a page is always found between its home and the next
 * free slot. The table grows with the pages and goes when the last one does; nothing depends on the
 * order of slots.
 *
 * What changes contents first makes all the pages that it needs, which are full of zeros and so no
 * change, and then writes: running out of memory in between does no harm.
 */
#include "contents.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

enum { FIRST_SLOTS = 16 };

/* The part of a range that is in one page. */
typedef struct chunk {
    uint64_t page;
    size_t from;  /* in the page */
    size_t bytes; /* up to its end, or that of the range */
} chunk;

static chunk first_chunk(uint64_t offset, uint64_t bytes)
{
    size_t from = offset % MEM_PAGE_BYTES, left = MEM_PAGE_BYTES - from;
    return (chunk){offset / MEM_PAGE_BYTES, from, bytes < left ? (size_t)bytes : left};
}

/* ---- The table --------------------------------------------------------------------------- */

static size_t home_of(const mem_contents *contents, uint64_t page)
{
    /* Fibonacci hashing: neighbours land far apart, and the upper bits are the best mixed. */
    uint64_t mixed = page * UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(mixed >> (64 - __builtin_ctzll(contents->slot_count)));
}

/* The slot of the page, or the free one where it would go. There must be slots. */
static size_t probe(const mem_contents *contents, uint64_t page)
{
    size_t at = home_of(contents, page);
    while (contents->slots[at].bytes && contents->slots[at].number != page)
        at = (at + 1) & (contents->slot_count - 1);
    return at;
}

/* NULL if it was never written to. */
static unsigned char *find_page(const mem_contents *contents, uint64_t page)
{
    return contents->page_count > 0 ? contents->slots[probe(contents, page)].bytes : NULL;
}

static bool grow(mem_contents *contents)
{
    mem_contents larger = {.slot_count = FIRST_SLOTS, .page_count = contents->page_count};
    if (contents->slot_count > 0 && !kb_size_mul(contents->slot_count, 2, &larger.slot_count))
        return false;
    larger.slots = kb_alloc_zeroed(larger.slot_count, sizeof *larger.slots);
    if (!larger.slots)
        return false;
    for (size_t i = 0; i < contents->slot_count; i++)
        if (contents->slots[i].bytes)
            larger.slots[probe(&larger, contents->slots[i].number)] = contents->slots[i];
    free(contents->slots);
    *contents = larger;
    return true;
}

/* Makes the page unless it is there. */
static bool need_page(mem_contents *contents, uint64_t page)
{
    if (find_page(contents, page))
        return true;
    /* page_count < slot_count, so none of this overflows. */
    if (contents->page_count >= contents->slot_count - contents->slot_count / 4 && !grow(contents))
        return false;
    unsigned char *bytes = kb_alloc_zeroed(1, MEM_PAGE_BYTES);
    if (!bytes)
        return false;
    contents->slots[probe(contents, page)] = (mem_page_slot){page, bytes};
    contents->page_count++;
    return true;
}

static bool need_pages(mem_contents *contents, uint64_t offset, uint64_t bytes)
{
    while (bytes > 0) {
        chunk c = first_chunk(offset, bytes);
        if (!need_page(contents, c.page))
            return false;
        offset += c.bytes;
        bytes -= c.bytes;
    }
    return true;
}

/* Whether the hole is on the way from `home` to `at`, which may go around the end of the table. */
static bool is_on_the_way(size_t hole, size_t home, size_t at, size_t mask)
{
    return ((at - home) & mask) >= ((at - hole) & mask);
}

/* Pages behind the hole that are found by way of it move up. */
static void remove_slot(mem_contents *contents, size_t hole)
{
    size_t mask = contents->slot_count - 1;
    free(contents->slots[hole].bytes);
    for (size_t at = (hole + 1) & mask; contents->slots[at].bytes; at = (at + 1) & mask) {
        size_t home = home_of(contents, contents->slots[at].number);
        if (is_on_the_way(hole, home, at, mask)) {
            contents->slots[hole] = contents->slots[at];
            hole = at;
        }
    }
    contents->slots[hole] = (mem_page_slot){0};
    if (--contents->page_count == 0)
        mem_contents_fini(contents);
}

void mem_contents_fini(mem_contents *contents)
{
    for (size_t i = 0; i < contents->slot_count; i++)
        free(contents->slots[i].bytes);
    free(contents->slots);
    *contents = (mem_contents){0};
}

size_t mem_contents_bytes(const mem_contents *contents)
{
    return contents->slot_count * sizeof *contents->slots + contents->page_count * MEM_PAGE_BYTES;
}

/* ---- Reading and writing ----------------------------------------------------------------- */

kb_error *mem_contents_write(mem_contents *contents, uint64_t offset, const void *data,
                             uint64_t bytes)
{
    if (!need_pages(contents, offset, bytes))
        return kb_error_nomem();
    for (const unsigned char *from = data; bytes > 0;) {
        chunk c = first_chunk(offset, bytes);
        memcpy(find_page(contents, c.page) + c.from, from, c.bytes);
        from += c.bytes;
        offset += c.bytes;
        bytes -= c.bytes;
    }
    return NULL;
}

void mem_contents_read(const mem_contents *contents, uint64_t offset, void *into, uint64_t bytes)
{
    for (unsigned char *to = into; bytes > 0;) {
        chunk c = first_chunk(offset, bytes);
        const unsigned char *page = find_page(contents, c.page);
        if (page)
            memcpy(to, page + c.from, c.bytes);
        else
            memset(to, 0, c.bytes);
        to += c.bytes;
        offset += c.bytes;
        bytes -= c.bytes;
    }
}

/* Repeats the pattern, beginning with its byte number `phase`. */
static void repeat(unsigned char *to, size_t bytes, const unsigned char *pattern, size_t size,
                   size_t phase)
{
    size_t done = bytes < size ? bytes : size;
    for (size_t i = 0; i < done; i++)
        to[i] = pattern[(phase + i) % size];
    while (done < bytes) { /* what is there doubles, so it stays in step */
        size_t more = bytes - done < done ? bytes - done : done;
        memcpy(to + done, to, more);
        done += more;
    }
}

kb_error *mem_contents_fill(mem_contents *contents, uint64_t offset, uint64_t bytes,
                            const void *pattern, size_t size)
{
    static const unsigned char zeros[8];
    KB_ASSERT(size > 0 && size <= sizeof zeros && bytes % size == 0);
    if (memcmp(pattern, zeros, size) == 0) {
        mem_contents_discard(contents, offset, bytes);
        return NULL;
    }
    if (!need_pages(contents, offset, bytes))
        return kb_error_nomem();
    for (uint64_t done = 0; done < bytes;) {
        chunk c = first_chunk(offset + done, bytes - done);
        repeat(find_page(contents, c.page) + c.from, c.bytes, pattern, size, done % size);
        done += c.bytes;
    }
    return NULL;
}

/* ---- Copying ----------------------------------------------------------------------------- */

/* As much from the two starts on as is in one page of each. */
static size_t common_bytes(uint64_t a, uint64_t b, uint64_t bytes)
{
    return first_chunk(b, first_chunk(a, bytes).bytes).bytes;
}

static bool need_pages_of_copy(mem_contents *to, uint64_t to_offset, const mem_contents *from,
                               uint64_t from_offset, uint64_t bytes)
{
    for (uint64_t done = 0; done < bytes;) {
        uint64_t source = from_offset + done, target = to_offset + done;
        if (find_page(from, source / MEM_PAGE_BYTES) && !need_page(to, target / MEM_PAGE_BYTES))
            return false;
        done += common_bytes(source, target, bytes - done);
    }
    return true;
}

kb_error *mem_contents_copy(mem_contents *to, uint64_t to_offset, const mem_contents *from,
                            uint64_t from_offset, uint64_t bytes)
{
    if (!need_pages_of_copy(to, to_offset, from, from_offset, bytes))
        return kb_error_nomem();
    for (uint64_t done = 0; done < bytes;) {
        uint64_t source = from_offset + done, target = to_offset + done;
        size_t count = common_bytes(source, target, bytes - done);
        const unsigned char *source_page = find_page(from, source / MEM_PAGE_BYTES);
        unsigned char *target_page = find_page(to, target / MEM_PAGE_BYTES);
        /* A source without a target is a page of zeros that was just made, for another target. */
        if (source_page && target_page)
            memcpy(target_page + target % MEM_PAGE_BYTES, source_page + source % MEM_PAGE_BYTES,
                   count);
        else if (target_page)
            mem_contents_discard(to, target, count);
        done += count;
    }
    return NULL;
}

/* ---- Discarding -------------------------------------------------------------------------- */

static void discard_chunk(mem_contents *contents, size_t slot, size_t from, size_t bytes)
{
    if (bytes == MEM_PAGE_BYTES)
        remove_slot(contents, slot);
    else
        memset(contents->slots[slot].bytes + from, 0, bytes);
}

/* Looks at each page that is there, for ranges with more pages than that. */
static void discard_by_slot(mem_contents *contents, uint64_t offset, uint64_t bytes)
{
    uint64_t first = offset / MEM_PAGE_BYTES, last = (offset + (bytes - 1)) / MEM_PAGE_BYTES;
    for (size_t slot = 0; slot < contents->slot_count;) {
        uint64_t page = contents->slots[slot].number;
        bool inside = contents->slots[slot].bytes && page >= first && page <= last;
        uint64_t start = page == first ? offset : page * MEM_PAGE_BYTES;
        chunk c = inside ? first_chunk(start, bytes - (start - offset)) : (chunk){0};
        if (inside)
            discard_chunk(contents, slot, c.from, c.bytes);
        if (c.bytes < MEM_PAGE_BYTES)
            slot++; /* else another page may have moved up */
    }
}

void mem_contents_discard(mem_contents *contents, uint64_t offset, uint64_t bytes)
{
    if (bytes / MEM_PAGE_BYTES > contents->slot_count) {
        discard_by_slot(contents, offset, bytes);
        return;
    }
    while (bytes > 0 && contents->page_count > 0) {
        chunk c = first_chunk(offset, bytes);
        size_t slot = probe(contents, c.page);
        if (contents->slots[slot].bytes)
            discard_chunk(contents, slot, c.from, c.bytes);
        offset += c.bytes;
        bytes -= c.bytes;
    }
}
