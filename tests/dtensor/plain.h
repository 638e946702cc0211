/*
 * plain.h: tensors as plain arrays of doubles, the parts of the ranks of a mesh by placements, and
 * small machines. Independent of the sources under test: parts are found by computing the rank of
 * every index of an axis.
 */
#ifndef TESTS_DTENSOR_PLAIN_H
#define TESTS_DTENSOR_PLAIN_H

#include "support/expect.h"

#include <kernbench/dtensor.h>

#include "base/base.h"
#include "rt/programs.h"

enum { PLAIN_RANKS = 8 };

/* The number of random cases to try: fewer where everything takes longer. */
static inline int tries(int count)
{
    return RUNNING_ON_VALGRIND ? count / 10 + 1 : count;
}

typedef struct plain {
    kb_shape shape;
    double *numbers; /* row by row */
} plain;

plain plain_new(const kb_shape *shape);
void plain_free(plain *p);
uint64_t plain_count(const kb_shape *shape);

/* Whole numbers from -4 to 4, so that sums of a few are exact in every dtype. */
plain plain_draw(kb_rng *rng, const kb_shape *shape);

/* Row by row in the dtype; to be freed. */
void *plain_bytes(const plain *p, kb_dtype dtype);

/* The part of a mesh's position. Partial counts as Replicate. */
plain plain_part(const plain *p, const uint32_t mesh[2], kb_placements placements,
                 uint32_t position);

/* The tensor has these numbers, each off by at most tolerance * max(1, |number|). */
void expect_plain(kb_context *ctx, kb_tensor tensor, const plain *p, double tolerance);

/* ---- Machines and meshes ---- */

/* `sips` SIPs of w x h cubes of four PEs. ccl.yaml's default is one that adds up shards too. */
kb_context *open_machine_of(uint32_t sips, uint32_t w, uint32_t h, kb_context_options options);

/* Of all ranks: one dimension if w is 0, else (h, w). */
kb_device_mesh open_mesh(kb_context *ctx, uint32_t h, uint32_t w);

/* A tensor of the host. */
kb_tensor host_tensor(kb_context *ctx, const char *name, const plain *p, kb_dtype dtype);

/* The DTensor as a whole has these numbers. Every rank of its mesh calls it. */
void expect_full(kb_context *ctx, kb_dtensor dtensor, const plain *p, double tolerance);

/* Random placements for a tensor of this rank. Partial only with operations that the dtype has, and
 * never two that do not commute. */
kb_placements draw_placements(kb_rng *rng, uint32_t count, uint32_t rank, kb_dtype dtype,
                              bool partial);

#endif
