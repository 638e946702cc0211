/*
 * composite.h: the scheduler of a PE: whole matrix products, cut into tiles. Operands that are in
 * memory are streamed through the part of the TCM that the scheduler keeps, sums over k stay there,
 * and finished tiles of the result are written back; loading, multiplying and writing overlap.
 */
#ifndef KB_PE_COMPOSITE_H
#define KB_PE_COMPOSITE_H

#include "units.h"

typedef struct pe_composites pe_composites; /* the schedulers of all PEs of a machine */

KB_MUST_USE kb_error *pe_composites_create(kb_sim *sim, const topo_machine *machine,
                                           pe_units *units, kb_oplog *log, pe_composites **out);
void pe_composites_destroy(pe_composites *composites);

typedef struct pe_matrix {
    const mem_rect *rects; /* copied; rows and columns are those of the matrix */
    size_t rect_count;     /* 0: it is in the TCM (not of c) */
    uint32_t element_bytes;
    /* For the log: the tensor that it is in, and how far rows and columns are apart there, in
     * bytes. NULL: none, or the log is not watched. Must stay until the product has ended. */
    const kb_op_access *access;
    uint64_t row_stride, column_stride;
} pe_matrix;

/* c (m, n) = a (m, k) * b (k, n); m, k and n are at least 1. */
typedef struct pe_product {
    uint64_t m, k, n;
    pe_matrix a, b, c;
    kb_time issued;                        /* now or later */
    const pe_ready *inputs[PE_MAX_INPUTS]; /* as of a command */

    /* As in pe_command: when it begins it reads a and b; when it is done c is in memory. */
    kb_error *(*begun)(void *self, uint64_t arg);
    void (*ended)(void *self, uint64_t arg);
    void *self;
    uint64_t arg;
    kb_op op;
} pe_product;

/*
 * Issues it, behind those issued before: it begins when nothing of these is left to be handed to
 * the units, so that it loads while they compute and store. It also waits for commands and products
 * of the PE that are under way with the same bytes, and later ones wait for it. KB_ERR_FAULT if the
 * scheduler's part of the TCM is too small for the least tiles.
 */
KB_MUST_USE kb_error *pe_composites_issue(pe_composites *composites, kb_pe pe,
                                          const pe_product *product, pe_op *op);

/* Its own queue: those not done. */
uint64_t pe_composites_under_way(const pe_composites *composites, kb_pe pe);

/* The record of the last one that is done; 0: none, or records have no ids. */
uint64_t pe_composites_last_done(const pe_composites *composites, kb_pe pe);

#endif
