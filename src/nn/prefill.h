/*
 * prefill.h: causal attention of many new tokens. Private to nn.
 *
 *     prefill.c         host: checks, plan, launch
 *     bounds.c          the minimum time, of decode too
 *     prefill_plan.c    sizes of blocks, tiles and chunks, from the TCM
 *     prefill_share.c   which blocks of queries a PE has
 *     prefill_keys.c    loads keys and values from the pages of the cache
 *     prefill_kernel.c  the steps of a PE
 *
 * The queries of a kv head are divided into blocks: some tokens of a sequence, of the query heads
 * that share the kv head. The keys are divided into tiles, the operand of a matrix product, and
 * tiles into chunks, which are in the TCM as a whole. A step of a PE is one block and one chunk.
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
    NN_MAX_KEPT = 8,   /* blocks whose results are kept while chunks change */
};

/* Only numbers: plans are compared byte by byte. */
typedef struct nn_prefill_plan {
    nn_cache_layout cache;
    tp_view q, out;
    int64_t q_column; /* of q: its first one in the tensor */
    int64_t prompt;   /* rows of a sequence */
    int64_t window;   /* keys that a query sees at most; 0: all */
    double scale;     /* of q, beside what it has already; 1: none */
    int64_t rows;     /* of a block, at most */
    int64_t tile;     /* keys */
    int64_t chunk;    /* keys, a multiple of `tile` */
    int64_t kept;     /* blocks whose results are kept while chunks change */
    /* Estimates: of the vector engine's work for a score, and of loading a key and its value when
     * all lanes of a head do. */
    double ns_of_score, ns_of_key;
} nn_prefill_plan;

/* Chooses sizes and makes estimates. False if a single row and tile do not fit in the TCM. */
bool nn_size_prefill(nn_prefill_plan *plan, const tp_pe_params *pe, double score_cycles);

/* Cycles of the vector engine for a row of lanes of scores: maximum, difference, exponential. */
double nn_prefill_cycles(const kb_context *ctx);

/* ---- Which blocks a PE has ---- */

/* Heads whose blocks are distributed over `lanes` PEs, of which this one is `lane`. */
typedef struct nn_head_share {
    int64_t first_head, heads;
    int64_t lanes, lane;
} nn_head_share;

/*
 * The share of a PE in that round; false if there is none. If there are fewer PEs than kv heads,
 * each PE has a whole head in each round, and the heads that are left are distributed in the last
 * one.
 */
bool nn_get_head_share(const nn_cache_layout *is, int64_t pe, int64_t round, nn_head_share *share);

/* How the tokens of a call are divided into blocks. */
typedef struct nn_blocks {
    int64_t tokens;     /* of a block */
    int64_t heads;      /* query heads of a block; */
    int64_t head_parts; /* blocks that the query heads of a kv head make */
} nn_blocks;

/* Blocks for this number of tokens in all. */
nn_blocks nn_divide_queries(const nn_prefill_plan *plan, const nn_head_share *share,
                            int64_t tokens);

/* The lane of block k of `count` of a sequence, whose work grows with k. `before` is the number of
 * blocks of the sequences and heads before it. */
int64_t nn_lane_of_block(int64_t lanes, int64_t before, int64_t count, int64_t k);

/* ---- Keys and values ---- */

/* The slots of the pages of a chunk; kept by the kernel. */
typedef struct nn_page_slots {
    int64_t first_row, rows; /* page / split */
    int64_t *slots;          /* (split, rows) */
} nn_page_slots;

/* Room for as many slots as a chunk of the plan may need; 0: contiguous. */
int64_t nn_count_page_slots(const nn_prefill_plan *plan);

/* Reads the slots of the pages of these keys. Waits for them. */
void nn_read_page_slots(tl_context *tl, const nn_cache_layout *is, tl_ptr table,
                        const nn_sequence *sequence, int64_t key, int64_t count,
                        nn_page_slots *slots);

/* The cache of a layer, as a kernel has it. */
typedef struct nn_cache_tensors {
    tl_ptr keys, values, records, table;
} nn_cache_tensors;

/* Some keys of a sequence and kv head. */
typedef struct nn_key_range {
    const nn_sequence *sequence;
    int64_t kv_head, key, count;
} nn_key_range;

/* K, (head_dim, count), and V, (count, head_dim). If they are in several pages, the vector engine
 * joins the parts. */
tl_tensor nn_load_keys(tl_context *tl, const nn_cache_layout *is, const nn_cache_tensors *tensors,
                       const nn_page_slots *slots, const nn_key_range *range);
tl_tensor nn_load_values(tl_context *tl, const nn_cache_layout *is, const nn_cache_tensors *tensors,
                         const nn_page_slots *slots, const nn_key_range *range);

/* Without a plan: that is its user. */
const kb_kernel *nn_prefill_kernel(void);

#endif
