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

/*
 * What a PE has translated last. Most accesses of a kernel are near others, and a run of bytes that
 * is in an extent which is known needs no search. All zeros is empty.
 */
enum { PE_TRANSLATIONS = 4 };

typedef struct pe_translation {
    uint64_t from, to;  /* virtual: these bytes are next to each other */
    uint64_t changes;   /* of the MMU before it */
    kb_location there;  /* of the first */
    uint64_t tensor_va; /* the rest is as of the tensor */
    bool has_dtype, is_index;
    kb_dtype dtype;
} pe_translation;

typedef struct pe_translations {
    pe_translation entries[PE_TRANSLATIONS];
    uint32_t next; /* to be replaced */
} pe_translations;

/* Keeps where the address is, and what follows it there. */
void pe_translations_note(pe_translations *known, const mem_mmu *mmu, kb_pe pe, uint64_t va);

/* Whether it is known where such a run is, and that it may be accessed: then *rect is there. */
static inline bool pe_translations_find(const pe_translations *known, const mem_mmu *mmu,
                                        const pe_region *run, mem_rect *rect)
{
    uint64_t bytes = run->dims[0] * run->element_bytes, changes = mem_mmu_changes(mmu);
    for (uint32_t i = 0; i < PE_TRANSLATIONS; i++) {
        const pe_translation *is = &known->entries[i];
        if (run->va < is->from || run->va >= is->to || bytes > is->to - run->va ||
            is->changes != changes)
            continue;
        if (is->has_dtype && ((!run->reinterpret && is->dtype != run->dtype) ||
                              (run->va - is->tensor_va) % run->element_bytes != 0))
            return false; /* a fault, which the caller describes */
        *rect = (mem_rect){.at = is->there, .rows = 1, .bytes = bytes};
        rect->at.offset += run->va - is->from;
        *run->is_index = is->is_index;
        return true;
    }
    return false;
}

#endif
