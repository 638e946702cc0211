/*
 * rect.h: a block of rows somewhere in a memory, which is a part of a larger array that is packed
 * row by row elsewhere: what a DMA gathers from and scatters to.
 *
 *     packed array, row_bytes a row          a memory
 *     +------------------------+             at + 0 * stride:  [bytes]
 *     |   row  +--bytes--+     |    <-->     at + 1 * stride:  [bytes]
 *     |  rows  |         |     |             ...
 *     |        +---------+     |
 *     +------------------------+
 */
#ifndef KB_MEM_RECT_H
#define KB_MEM_RECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "memories.h"

typedef struct mem_rect {
    kb_location at;         /* of its first byte; not virtual; all of it is inside the memory */
    uint64_t stride;        /* in the memory, from row to row; means nothing if there is one row */
    uint64_t row, rows;     /* in the packed array */
    uint64_t column, bytes; /* the same, in bytes of a row */
} mem_rect;

/* Between the memories and the packed array. Rectangles of one call do not overlap in the array. */
void mem_rects_read(const mem_memories *memories, const mem_rect *rects, size_t count, void *packed,
                    uint64_t row_bytes);
KB_MUST_USE kb_error *mem_rects_write(mem_memories *memories, const mem_rect *rects, size_t count,
                                      const void *packed, uint64_t row_bytes);

/*
 * Whether a byte of one is a byte of another in the same memory. Takes a look at each row of one of
 * them if strides differ. Rectangles without bytes overlap nothing.
 */
bool mem_rects_overlap(const mem_rect *a, size_t a_count, const mem_rect *b, size_t b_count);

uint64_t mem_rect_bytes(const mem_rect *rect);

/* The offset in the memory behind its last byte. */
uint64_t mem_rect_end(const mem_rect *rect);

/* Of two locations: a cube's SRAM is one memory, whichever PE is named. */
bool mem_same_memory(const kb_location *a, const kb_location *b);

#endif
