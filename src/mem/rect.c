/*
 * rect.c: blocks of rows between memories and packed arrays.
 *
 * Rows that follow each other on both sides move as one run.
 */
#include "rect.h"

#include "base/base.h"

uint64_t mem_rect_bytes(const mem_rect *rect)
{
    return rect->rows * rect->bytes;
}

uint64_t mem_rect_end(const mem_rect *rect)
{
    uint64_t last_row = rect->rows > 1 ? (rect->rows - 1) * rect->stride : 0;
    return rect->at.offset + last_row + rect->bytes;
}

/* Into how many runs of bytes it falls; all have the same length. */
static uint64_t count_runs(const mem_rect *rect, uint64_t row_bytes)
{
    bool joined = rect->stride == rect->bytes && row_bytes == rect->bytes;
    if (mem_rect_bytes(rect) == 0)
        return 0;
    return joined ? 1 : rect->rows;
}

static uint64_t packed_offset(const mem_rect *rect, uint64_t row_bytes)
{
    return rect->row * row_bytes + rect->column;
}

void mem_rects_read(const mem_memories *memories, const mem_rect *rects, size_t count, void *packed,
                    uint64_t row_bytes)
{
    for (const mem_rect *rect = rects; rect < rects + count; rect++) {
        uint64_t runs = count_runs(rect, row_bytes);
        unsigned char *to = (unsigned char *)packed + packed_offset(rect, row_bytes);
        kb_location at = rect->at;
        for (uint64_t i = 0; i < runs; i++, to += row_bytes, at.offset += rect->stride)
            mem_memories_read(memories, &at, to, mem_rect_bytes(rect) / runs);
    }
}

kb_error *mem_rects_write(mem_memories *memories, const mem_rect *rects, size_t count,
                          const void *packed, uint64_t row_bytes)
{
    for (const mem_rect *rect = rects; rect < rects + count; rect++) {
        uint64_t runs = count_runs(rect, row_bytes);
        const unsigned char *from = (const unsigned char *)packed + packed_offset(rect, row_bytes);
        kb_location at = rect->at;
        for (uint64_t i = 0; i < runs; i++, from += row_bytes, at.offset += rect->stride)
            KB_TRY(mem_memories_write(memories, &at, from, mem_rect_bytes(rect) / runs));
    }
    return NULL;
}

bool mem_same_memory(const kb_location *a, const kb_location *b)
{
    return a->memory == b->memory && a->pe.sip == b->pe.sip && a->pe.cube == b->pe.cube &&
           (a->memory == KB_SRAM || a->pe.pe == b->pe.pe);
}

/* ---- Overlapping ------------------------------------------------------------------------- */

static int64_t floor_div(int64_t a, int64_t b) /* b > 0 */
{
    return a / b - (a % b < 0);
}

/*
 * Whether some row of b, the first of which is `ahead` bytes behind the row of a that is looked at,
 * meets one of a's rows, which are as far apart: whether a multiple t of the stride, that many rows
 * up or down, brings it there.
 */
static bool rows_meet(const mem_rect *a, const mem_rect *b, int64_t ahead, int64_t stride)
{
    int64_t least = floor_div(ahead - (int64_t)a->bytes, stride) + 1;
    int64_t most = floor_div(ahead + (int64_t)b->bytes - 1, stride);
    int64_t up = (int64_t)a->rows - 1, down = 1 - (int64_t)b->rows;
    return (least > down ? least : down) <= (most < up ? most : up);
}

/* Whether a row of a, at that offset, meets one of b's. */
static bool row_meets(const mem_rect *a, uint64_t offset, const mem_rect *b)
{
    mem_rect one = *a;
    one.rows = 1;
    int64_t stride = b->rows > 1 && b->stride > 0 ? (int64_t)b->stride : INT64_MAX;
    return rows_meet(&one, b, (int64_t)b->at.offset - (int64_t)offset, stride);
}

/* Exact: the gaps between rows belong to other rectangles. */
static bool overlap(const mem_rect *a, const mem_rect *b)
{
    if (mem_rect_bytes(a) == 0 || mem_rect_bytes(b) == 0 || !mem_same_memory(&a->at, &b->at) ||
        a->at.offset >= mem_rect_end(b) || b->at.offset >= mem_rect_end(a))
        return false;
    if (a->rows > 1 && b->rows > 1 && a->stride == b->stride && a->stride > 0)
        return rows_meet(a, b, (int64_t)b->at.offset - (int64_t)a->at.offset, (int64_t)a->stride);
    const mem_rect *few = a->rows < b->rows ? a : b, *many = few == a ? b : a;
    for (uint64_t i = 0; i < few->rows; i++)
        if (row_meets(few, few->at.offset + i * few->stride, many))
            return true;
    return false;
}

static int compare_places(const kb_location *a, const kb_location *b)
{
    const uint64_t x[] = {a->memory, a->pe.sip, a->pe.cube, a->memory == KB_SRAM ? 0 : a->pe.pe};
    const uint64_t y[] = {b->memory, b->pe.sip, b->pe.cube, b->memory == KB_SRAM ? 0 : b->pe.pe};
    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++)
        if (x[i] != y[i])
            return x[i] < y[i] ? -1 : 1;
    return 0;
}

/* Whether none begins or ends before the one ahead of it: so they come from regions, mostly. */
static bool are_in_order(const mem_rect *rects, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        int order = compare_places(&rects[i - 1].at, &rects[i].at);
        if (order > 0 || (order == 0 && (rects[i - 1].at.offset > rects[i].at.offset ||
                                         mem_rect_end(&rects[i - 1]) > mem_rect_end(&rects[i]))))
            return false;
    }
    return true;
}

/* Whether all of a lies before all of b. */
static bool is_before(const mem_rect *a, const mem_rect *b)
{
    int order = compare_places(&a->at, &b->at);
    return order < 0 || (order == 0 && mem_rect_end(a) <= b->at.offset);
}

/* Both are in order: one look at each, and at those that lie across each other. */
static bool overlap_in_order(const mem_rect *a, size_t a_count, const mem_rect *b, size_t b_count)
{
    size_t first = 0; /* of b that does not lie before what is looked at */
    for (size_t i = 0; i < a_count; i++) {
        while (first < b_count && is_before(&b[first], &a[i]))
            first++;
        for (size_t j = first; j < b_count && !is_before(&a[i], &b[j]); j++)
            if (overlap(&a[i], &b[j]))
                return true;
    }
    return false;
}

bool mem_rects_overlap(const mem_rect *a, size_t a_count, const mem_rect *b, size_t b_count)
{
    enum { many = 8 };
    if (a_count > many && b_count > many && are_in_order(a, a_count) && are_in_order(b, b_count))
        return overlap_in_order(a, a_count, b, b_count);
    for (size_t i = 0; i < a_count; i++)
        for (size_t j = 0; j < b_count; j++)
            if (overlap(&a[i], &b[j]))
                return true;
    return false;
}
