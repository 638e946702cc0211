/*
 * region.h: an array of a kernel in virtual memory, and where its parts really are.
 */
#ifndef KB_PE_REGION_H
#define KB_PE_REGION_H

#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "base/base.h"
#include "mem/mem.h"

/* An array as a kernel sees it. Packed row by row it has the product of the dims as elements; a row
 * is what the last axis has. */
typedef struct pe_region {
    uint64_t va;
    uint32_t element_bytes;
    uint32_t rank; /* 0 is one element */
    uint64_t dims[KB_MAX_DIMS];
    uint64_t strides[KB_MAX_DIMS]; /* in elements */
    const unsigned char *mask;     /* a byte for each element: 0 leaves it out; NULL: none */
    kb_dtype dtype;                /* of its elements */
    bool reinterpret;              /* whatever dtype the tensor there has */
    bool *is_index; /* NULL, or becomes whether the tensor there has contents in every run */
} pe_region;

typedef KB_VEC(mem_rect) pe_rects;

/*
 * Appends the rectangles that the region is made of, as the PE's MMU translates it; few if it is
 * contiguous in memory, whatever its shape. Rows are numbered by all axes but the last. A fault
 * (KB_ERR_FAULT) names `who`, the PE, the address and the nearest tensor. After an error the list
 * has some of the rectangles.
 *
 * It is also a fault if what is touched is of another dtype, lies between the elements of its
 * tensor, or is not all in one tensor.
 */
KB_MUST_USE kb_error *pe_region_resolve(const mem_mmu *mmu, const mem_memories *memories, kb_pe pe,
                                        const char *who, const pe_region *region, pe_rects *rects);

#endif
