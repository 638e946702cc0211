/*
 * gemm_private.h: what the files of gemm_plan.h share: gemm_steps.c walks through a plan,
 * gemm_cost.c weighs it, gemm_plan.c searches.
 */
#ifndef KB_PE_GEMM_PRIVATE_H
#define KB_PE_GEMM_PRIVATE_H

#include "gemm_plan.h"

typedef struct gemm_search {
    const topo_pe_params *params;
    const gemm_problem *problem;
    uint64_t fs_per_byte, tcm_fs_per_byte; /* rounded: good enough to compare with */
    uint64_t folds;                        /* of the product */
    uint64_t ahead;                        /* steps that have to fit beside the one at work */
    bool found;
    gemm_plan plan; /* the best so far, */
    uint64_t cost;  /* and what it costs */
} gemm_search;

/* Fills in how long the plan takes; returns what it costs. */
uint64_t gemm_cost(const gemm_search *s, gemm_plan *plan);

/* What it costs at least, which is found out much sooner. */
uint64_t gemm_least_cost(const gemm_search *s, const gemm_plan *plan);

/* Whether the TCM takes longer than the array for a slice of one fold that adds to sums. */
bool gemm_folds_are_slow(const gemm_search *s, const gemm_plan *plan);

/* Tiles from the first row to the last, and from the first column to the last. */
uint64_t gemm_tile_lines(const gemm_plan *plan);
uint64_t gemm_tile_stacks(const gemm_plan *plan);

/* The length of the slice at a place of k, in a tile that begins or ends the product. */
uint64_t gemm_slice_at(const gemm_plan *plan, uint64_t at, bool begins, bool ends);

/* Bytes that all steps load. */
uint64_t gemm_count_loaded(const gemm_plan *plan);

/* Both stay at the largest number rather than overflow. */
static inline uint64_t times(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static inline uint64_t plus(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

#endif
