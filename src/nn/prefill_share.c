/*
 * prefill_share.c: the blocks of queries of a PE, by formula. Later blocks of a sequence see more
 * keys. So blocks are distributed from the last one on, in turns of alternating direction: lanes 0,
 * 1, .., 1, 0, 0, 1, .. Each pair of turns gives all lanes the same work. The blocks of an
 * incomplete turn are the shortest ones, and the next sequence continues from there.
 */
#include "prefill.h"

enum {
    BLOCK_ROWS = 8, /* overhead of a block, in rows: the latency of its commands */
    MAX_IDLE = 8,   /* 1 / MAX_IDLE of the PEs may be idle */
};

bool nn_get_head_share(const nn_cache_layout *layout, int64_t pe, int64_t round,
                       nn_head_share *share)
{
    int64_t whole = layout->kv_heads / layout->pes, left = layout->kv_heads % layout->pes;
    if (round < whole) {
        *share = (nn_head_share){.first_head = round * layout->pes + pe, .heads = 1, .lanes = 1};
        return true;
    }
    if (round > whole || left == 0)
        return false;
    int64_t first = whole * layout->pes, lanes = layout->pes / left;
    if ((layout->pes - lanes * left) * MAX_IDLE > layout->pes) {
        *share = (nn_head_share){first, left, layout->pes, pe};
        return true;
    }
    *share = (nn_head_share){first + pe / lanes, 1, lanes, pe % lanes};
    return pe / lanes < left;
}

/* The cost of the lane with the most blocks, in rows: its rows plus an overhead per block. */
static int64_t cost_of(const nn_blocks *blocks, int64_t lanes, int64_t work)
{
    int64_t of_lane = tl_cdiv(tl_cdiv(work, blocks->tokens), lanes);
    return of_lane * (blocks->tokens * blocks->heads + BLOCK_ROWS);
}

nn_blocks nn_divide_queries(const nn_prefill_plan *plan, const nn_head_share *share, int64_t tokens)
{
    int64_t group = plan->cache.group;
    nn_blocks blocks = {.heads = kb_min(group, plan->rows)}, best;
    blocks.head_parts = tl_cdiv(group, blocks.heads);
    blocks.tokens = plan->rows / blocks.heads;
    int64_t work = tokens * share->heads * blocks.head_parts;
    for (best = blocks; blocks.tokens > 1;) {
        blocks.tokens = tl_cdiv(blocks.tokens, 2);
        if (cost_of(&blocks, share->lanes, work) < cost_of(&best, share->lanes, work))
            best = blocks;
    }
    return best;
}

int64_t nn_lane_of_block(int64_t lanes, int64_t before, int64_t count, int64_t k)
{
    int64_t turn = (before + count - 1 - k) % (2 * lanes);
    return turn < lanes ? turn : 2 * lanes - 1 - turn;
}
