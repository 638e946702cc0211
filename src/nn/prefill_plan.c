/*
 * prefill_plan.c: sizes of blocks, tiles and chunks. Everything that is in the TCM at a time must
 * fit: keys and values of three chunks (of the current step, the next one, and the one being
 * loaded), scores of two steps, and the kept values of blocks.
 */
#include "prefill.h"

enum {
    MAX_ROWS = 128,
    MIN_TILE = 64, /* keys: the width of the matrix engine */
    MAX_TILE = 256,
    USUAL_TILE = 128,
    SPARE_TILES = 4, /* for exponentials that wait for the matrix engine, and concatenated pages */
    PAGES_OF_CHUNK = 1024,
};

/* Whole pages, unless these are small or large: then pages need not be concatenated. */
static int64_t choose_tile(int64_t page_tokens)
{
    if (page_tokens > MAX_TILE)
        return MAX_TILE;
    return page_tokens < MIN_TILE ? USUAL_TILE / page_tokens * page_tokens : page_tokens;
}

/* Bytes that do not depend on the size of a chunk. */
static int64_t fixed_bytes(const nn_prefill_plan *plan)
{
    int64_t bytes = (int64_t)kb_dtype_bytes(plan->cache.dtype);
    int64_t dim = plan->cache.head_dim, f32 = (int64_t)sizeof(float);
    int64_t result = plan->rows * dim * f32, queries = plan->rows * dim * bytes;
    int64_t tile = plan->tile * (plan->rows * f32 + 2 * dim * bytes);
    return (plan->kept + 4) * (result + 3 * queries) + SPARE_TILES * tile;
}

static int64_t bytes_of_key(const nn_prefill_plan *plan)
{
    return 6 * plan->cache.head_dim * (int64_t)kb_dtype_bytes(plan->cache.dtype) +
           2 * plan->rows * (int64_t)sizeof(float);
}

/* As many keys as fit; 0 if not even a tile fits. */
static int64_t choose_chunk(const nn_prefill_plan *plan, int64_t room)
{
    int64_t tiles = (room - fixed_bytes(plan)) / (bytes_of_key(plan) * plan->tile);
    tiles = kb_min(tiles, NN_MAX_TILES);
    if (plan->cache.is_paged && tiles > 1)
        tiles = kb_min(tiles, tl_cdiv(PAGES_OF_CHUNK * plan->cache.page_tokens, plan->tile));
    return tiles > 0 ? tiles * plan->tile : 0;
}

/* The lanes of a head read its keys from `split` slices. On the default machine with 16 and 32
 * lanes, the links between their cubes carry about as much as three slices (measured). */
static void estimate(nn_prefill_plan *plan, const tp_pe_params *pe, double score_cycles)
{
    const nn_cache_layout *layout = &plan->cache;
    double bytes = 2.0 * (double)layout->head_dim * (double)kb_dtype_bytes(layout->dtype);
    double slices = (double)kb_min(layout->split, 3);
    plan->ns_of_score = score_cycles / pe->vector_per_ns;
    plan->ns_of_key = (double)layout->lanes * bytes / (slices * pe->hbm_bytes_per_ns);
}

bool nn_size_prefill(nn_prefill_plan *plan, const tp_pe_params *pe, double score_cycles)
{
    int64_t room = pe->tcm_bytes - pe->tcm_bytes / 8; /* queues of other kernels may have some */
    estimate(plan, pe, score_cycles);
    plan->rows = MAX_ROWS;
    plan->kept = NN_MAX_KEPT;
    plan->tile = choose_tile(plan->cache.page_tokens);
    for (;;) {
        plan->chunk = choose_chunk(plan, room);
        bool is_small = plan->chunk < 4 * plan->tile;
        if (is_small && plan->kept > 1)
            plan->kept /= 2;
        else if (is_small && plan->tile > 1 && plan->rows <= plan->tile)
            plan->tile = tl_cdiv(plan->tile, 2);
        else if (is_small && plan->rows > 1)
            plan->rows = tl_cdiv(plan->rows, 2);
        else
            return plan->chunk > 0;
    }
}
