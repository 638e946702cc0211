/*
 * dma.h: copies of the host by the DMAs of the PEs. A DMA reads through the fabric into its PE's
 * TCM, and writes from there. What it copies from one memory to another goes in pieces, each of
 * which is read as a whole and then written, so that reading one overlaps with writing others; a
 * few are read at a time. The pieces share the channels of the DMA and the bandwidth of the TCM
 * with the commands of kernels.
 *
 * Virtual addresses are translated by the MMU of its PE when the copying starts, and that is also
 * when contents change.
 */
#ifndef KB_PE_DMA_H
#define KB_PE_DMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "data/data.h"
#include "mem/mem.h"
#include "net/net.h"
#include "topo/topo.h"
#include "units.h"

typedef struct pe_dma pe_dma; /* all of a machine */

enum {
    /* The most that is read as a whole: long enough for its latency not to matter much, short
     * enough for writing to begin soon. */
    PE_DMA_PIECE_BYTES = 64 << 10,
    /* What a copy from memory to memory asks for ahead. At the bandwidth of a port it takes 1 us,
     * several times the latency of a far memory; and it fits many times into the 4 MiB that
     * schedulers keep. */
    PE_DMA_READ_AHEAD_BYTES = 256 << 10,
};

typedef struct pe_dma_options {
    kb_sim *sim;
    const topo_machine *machine;
    pe_units *units;
    mem_memories *memories;
    mem_mmu *const *mmus; /* one a SIP */
    data_store *store;    /* what is to be in memory but is not computed yet; NULL: there is none */
} pe_dma_options;

/* All that the options name must stay. */
KB_MUST_USE kb_error *pe_dma_create(const pe_dma_options *options, pe_dma **out);

/* Not while it works, unless the simulator was abandoned. */
void pe_dma_destroy(pe_dma *dma);

typedef struct pe_move {
    kb_location from, to;
    uint64_t bytes; /* at least 1 */
    bool fill;      /* nothing is read: the DMA makes up what it writes; `from` means nothing */
    bool time_only; /* contents stay as they are; so with `fill` */
} pe_move;

/* What the last piece to end took, from the start. Takes over the error. */
typedef void pe_dma_done_fn(void *self, uint64_t arg, const net_completion *completion,
                            kb_error *err);

/*
 * Copies at the present time, all moves at once, and calls `done` when the last byte is there. A
 * fault of a move (an unmapped address, bytes outside a memory) is handed to `done`, with `who` (a
 * kernel, a request) in its message; then nothing was moved. After a fault, and if there are no
 * moves, `done` is called before this returns.
 */
KB_MUST_USE kb_error *pe_dma_start(pe_dma *dma, kb_pe pe, const char *who, const pe_move *moves,
                                   size_t count, pe_dma_done_fn *done, void *self, uint64_t arg);

#endif
