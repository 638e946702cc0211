/*
 * placement.h: which PE has which part of a tensor.
 *
 * Tensors are seen as two axes, the first and the last (a tensor of one dimension is one row); what
 * is between stays together. A placement is the same on every SIP.
 *
 *     mem_placement placement;
 *     KB_TRY(mem_placement_init(&placement, &shape, KB_F16, &policy, cubes, pes));
 *     for (size_t i = 0; i < placement.shards.count; i++) ...
 *     mem_placement_fini(&placement);
 */
#ifndef KB_MEM_PLACEMENT_H
#define KB_MEM_PLACEMENT_H

#include <stdint.h>

#include <kernbench/kernbench.h>

#include "base/base.h"
#include "box.h"

/* More tiles than this are a mistake in the policy. */
#define MEM_MAX_SHARDS ((uint64_t)1 << 22)

typedef struct mem_shard {
    uint32_t cube, pe;
    uint64_t offset_bytes; /* in the tensor: the same for copies */
    uint64_t nbytes;       /* 0 for an empty one */
    uint64_t pe_offset;    /* in what the PE has of the tensor: its shards follow each other */
    mem_box box;           /* which elements */
} mem_shard;

typedef struct mem_placement {
    kb_shape shape;           /* with two dimensions at least */
    uint64_t bytes;           /* of the tensor, once */
    uint64_t copies;          /* of each element */
    KB_VEC(mem_shard) shards; /* by (cube, pe, offset_bytes) */
} mem_placement;

/* `cubes` and `pes` are what a SIP, and a cube, has. NULL policy: all of it at PE 0 of cube 0. */
KB_MUST_USE kb_error *mem_placement_init(mem_placement *placement, const kb_shape *shape,
                                         kb_dtype dtype, const kb_policy *policy, uint32_t cubes,
                                         uint32_t pes);
void mem_placement_fini(mem_placement *placement);

/* The shape with two dimensions at least: (n) is (1, n), and () is (1, 1). */
kb_shape mem_shape_normal(const kb_shape *shape);

/*
 * Elements; an error if there is no such dtype, if the shape has too many dimensions, or if its
 * bytes are 2^48 or more.
 */
KB_MUST_USE kb_error *mem_shape_elements(const kb_shape *shape, kb_dtype dtype, uint64_t *elements);

/* Appends "(4, 8)"; a single dimension as "(4,)". */
void mem_shape_print(const kb_shape *shape, kb_text *text);
bool mem_shape_equal(const kb_shape *a, const kb_shape *b);

#endif
