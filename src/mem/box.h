/*
 * box.h: blocks of arrays in several dimensions, and copying between them.
 *
 * A box is a part of a tensor: along each axis, `size` elements from `start` on. It is stored by
 * itself, row-major and without gaps: a shard, a slice in a buffer of the host, or a whole tensor.
 */
#ifndef KB_MEM_BOX_H
#define KB_MEM_BOX_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

typedef struct mem_box {
    uint32_t rank; /* at least 1 */
    uint64_t start[KB_MAX_DIMS];
    uint64_t size[KB_MAX_DIMS];
} mem_box;

/* All of a tensor. */
mem_box mem_box_whole(const kb_shape *shape);

uint64_t mem_box_elements(const mem_box *box);

/* What both have; false if that is nothing. */
bool mem_box_meet(const mem_box *a, const mem_box *b, mem_box *both);

/*
 * Calls fn for elements that both boxes have, in runs as long as they are contiguous in both:
 * `count` elements from `at_a` on in the storage of a are those from `at_b` on in that of b. The
 * runs come in row-major order and cover the common part once. Ends early with fn's error.
 */
typedef kb_error *mem_run_fn(void *self, uint64_t at_a, uint64_t at_b, uint64_t count);
KB_MUST_USE kb_error *mem_box_runs(const mem_box *a, const mem_box *b, mem_run_fn *fn, void *self);

#endif
