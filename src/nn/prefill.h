/*
 * prefill.h: causal attention of many new tokens. Private to nn.
 *
 *     prefill.c         the host side: checks, plan, launch
 *     bounds.c          the minimum time, also of decode
 *     prefill_plan.c    sizes of blocks, tiles and chunks, from the TCM
 *     prefill_share.c   the blocks of queries of a PE
 *     prefill_keys.c    loads of keys and values from the pages of the cache
 *     prefill_kernel.c  the steps of a PE
 *
 * The queries of a kv head are divided into blocks: some tokens of a sequence, with the query heads
 * that share the kv head. The keys are divided into tiles, the operands of matrix products, and
 * tiles are grouped into chunks, each of which fits in the TCM. A step of a PE is one block and one
 * chunk.
 */
#ifndef KB_NN_PREFILL_H
#define KB_NN_PREFILL_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

#include "cache.h"
#include "tp/tp.h"

enum {
    NN_MAX_TILES = 32, /* of a chunk */
    NN_MAX_KEPT = 8,   /* blocks whose results are kept from chunk to chunk */
};

/* Numbers only: plans are compared byte by byte. */
typedef struct nn_prefill_plan {
    nn_cache_layout cache;
    tp_view q, out;
    int64_t q_column; /* the first column of q in the tensor */
    int64_t prompt;   /* rows of a sequence */
    int64_t window;   /* maximum keys that a query sees; 0: all */
    double scale;     /* additional factor of q; 1: none */
    int64_t rows;     /* of a block, the maximum */
    int64_t tile;     /* keys */
    int64_t chunk;    /* keys, a multiple of `tile` */
    int64_t kept;     /* blocks whose results are kept from chunk to chunk */
    /* Estimates: the vector engine's time for a score, and the time to load a key and its value if
     * all lanes of a head load. */
    double ns_of_score, ns_of_key;
} nn_prefill_plan;

/* Chooses sizes and makes the estimates. False if a single row and tile do not fit in the TCM. */
bool nn_size_prefill(nn_prefill_plan *plan, const tp_pe_params *pe, double score_cycles);

/*
 * Cycles of the vector engine for as many scores as it has lanes: maximum, difference, exponential.
 */
double nn_prefill_cycles(const kb_context *ctx);

/* ---- The blocks of a PE ---- */

/* Heads whose blocks are distributed over `lanes` PEs, with the index `lane` of this PE. */
typedef struct nn_head_share {
    int64_t first_head, heads;
    int64_t lanes, lane;
} nn_head_share;

/* The share of a PE in a round; false if there is none. If there are fewer PEs than kv heads, each
 * PE has a whole head in each round, and the remaining heads are distributed in the last round. */
bool nn_get_head_share(const nn_cache_layout *layout, int64_t pe, int64_t round,
                       nn_head_share *share);

/* The division of the tokens of a call into blocks. */
typedef struct nn_blocks {
    int64_t tokens;     /* of a block */
    int64_t heads;      /* query heads of a block */
    int64_t head_parts; /* blocks for the query heads of a kv head */
} nn_blocks;

/* For this total number of tokens. */
nn_blocks nn_divide_queries(const nn_prefill_plan *plan, const nn_head_share *share,
                            int64_t tokens);

/* The lane of block k of `count` blocks of a sequence, whose work grows with k. `before` is the
 * number of blocks of the previous sequences and heads. */
int64_t nn_lane_of_block(int64_t lanes, int64_t before, int64_t count, int64_t k);

/* ---- Keys and values ---- */

/* The slots of the pages of a chunk, stored by the kernel. */
typedef struct nn_page_slots {
    int64_t first_row, rows; /* page / split */
    int64_t *slots;          /* (split, rows) */
} nn_page_slots;

/* The maximum number of slots of a chunk; 0 for contiguous caches. */
int64_t nn_count_page_slots(const nn_prefill_plan *plan);

/* Reads the slots of the pages of these keys, and waits for them. */
void nn_read_page_slots(tl_context *tl, const nn_cache_layout *layout, tl_ptr table,
                        const nn_sequence *sequence, int64_t key, int64_t count,
                        nn_page_slots *slots);

/* The tensors of a layer of the cache, in kernels. */
typedef struct nn_cache_tensors {
    tl_ptr keys, values, records, table;
} nn_cache_tensors;

/* A range of keys of a sequence and kv head. */
typedef struct nn_key_range {
    const nn_sequence *sequence;
    int64_t kv_head, key, count;
} nn_key_range;

/* K, (head_dim, count), and V, (count, head_dim). If they are in several pages, the vector engine
 * concatenates the parts. */
tl_tensor nn_load_keys(tl_context *tl, const nn_cache_layout *layout,
                       const nn_cache_tensors *tensors, const nn_page_slots *slots,
                       const nn_key_range *range);
tl_tensor nn_load_values(tl_context *tl, const nn_cache_layout *layout,
                         const nn_cache_tensors *tensors, const nn_page_slots *slots,
                         const nn_key_range *range);

/* Without the plan, which is to be set as user pointer. */
const kb_kernel *nn_prefill_kernel(void);

#endif
