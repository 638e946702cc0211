/*
 * box.c: the common part of two boxes, as stretches that are contiguous in the storage of both.
 *
 * Along the last axis elements follow each other. Where an axis is whole in both boxes, so do its
 * rows: the end of one touches the start of the next, and the axis before it joins the stretch.
 */
#include "box.h"

#include <string.h>

#include "base/base.h"

mem_box mem_box_whole(const kb_shape *shape)
{
    KB_ASSERT(shape->rank <= KB_MAX_DIMS);
    mem_box box = {.rank = shape->rank};
    for (uint32_t axis = 0; axis < shape->rank; axis++)
        box.size[axis] = shape->dims[axis];
    if (box.rank == 0) {
        box.rank = 1;
        box.size[0] = 1;
    }
    return box;
}

uint64_t mem_box_elements(const mem_box *box)
{
    uint64_t elements = 1;
    for (uint32_t axis = 0; axis < box->rank; axis++)
        elements *= box->size[axis];
    return elements;
}

bool mem_box_meet(const mem_box *a, const mem_box *b, mem_box *both)
{
    KB_ASSERT(a->rank == b->rank);
    *both = (mem_box){.rank = a->rank};
    for (uint32_t axis = 0; axis < a->rank; axis++) {
        uint64_t start = a->start[axis] > b->start[axis] ? a->start[axis] : b->start[axis];
        uint64_t skip_a = start - a->start[axis], skip_b = start - b->start[axis];
        if (skip_a >= a->size[axis] || skip_b >= b->size[axis])
            return false;
        uint64_t left_a = a->size[axis] - skip_a, left_b = b->size[axis] - skip_b;
        both->start[axis] = start;
        both->size[axis] = left_a < left_b ? left_a : left_b;
    }
    return true;
}

/* Where an element is in the storage of a box that has it. */
static uint64_t place_in(const mem_box *box, const uint64_t at[KB_MAX_DIMS])
{
    uint64_t index = 0;
    for (uint32_t axis = 0; axis < box->rank; axis++)
        index = index * box->size[axis] + (at[axis] - box->start[axis]);
    return index;
}

kb_error *mem_box_runs(const mem_box *a, const mem_box *b, mem_run_fn *fn, void *self)
{
    mem_box both;
    if (!mem_box_meet(a, b, &both))
        return NULL;

    /* The axes from `inner` on are a run. */
    uint32_t inner = both.rank - 1;
    uint64_t count = both.size[inner];
    while (inner > 0 && both.size[inner] == a->size[inner] && both.size[inner] == b->size[inner]) {
        inner--;
        count *= both.size[inner];
    }

    uint64_t at[KB_MAX_DIMS];
    memcpy(at, both.start, sizeof at);
    for (;;) {
        KB_TRY(fn(self, place_in(a, at), place_in(b, at), count));
        uint32_t axis = inner;
        for (; axis > 0; axis--) {
            if (++at[axis - 1] - both.start[axis - 1] < both.size[axis - 1])
                break;
            at[axis - 1] = both.start[axis - 1];
        }
        if (axis == 0)
            return NULL;
    }
}
