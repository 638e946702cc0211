/*
 * pairwise.c: every participant exchanges messages with every other, by directions "r0", "r1", ..:
 * the index of the receiver. This takes one step for any number of participants. It is the fastest
 * for small sizes, and for collectives in which each participant sends different data to each
 * other.
 *
 * Participants send to their successors first, so that not all send to index 0 at once.
 */
#include "algorithms.h"

static ccl_label peer(int64_t index)
{
    return ccl_label_of("r", index);
}

/* ---- All-reduce -------------------------------------------------------------------------- */

/* Each participant receives all values and adds them in the order of indices: the same bits on all
 * ranks. */
KB_KERNEL(one_shot, tl_ptr mine, int64_t count, kb_dtype dtype, kb_reduce_op op, int participants,
          int index, int64_t tile)
{
    for (int64_t begin = 0; begin < count && participants > 1; begin += tile)
        TL_SCOPE {
            tl_ptr at = ccl_at(mine, begin, dtype);
            tl_dims shape = tl_shape(kb_min(tile, count - begin));
            tl_tensor own = tl_load(at, shape, dtype), sum = {0};
            for (int step = 1; step < participants; step++)
                tl_send(peer((index + step) % participants).text, own);
            for (int from = 0; from < participants; from++)
                TL_SCOPE {
                    tl_tensor value = from == index ? tl_reshape(own, shape)
                                                    : tl_recv_async(peer(from).text, shape, dtype);
                    tl_assign(&sum, from == 0 ? value : ccl_combine(tl, op, sum, value));
                }
            tl_store(at, ccl_finish(tl, op, sum, participants));
        }
}

static kb_error *one_shot_arguments(const kb_ccl_call *call, const kb_ccl_target *target,
                                    kb_ccl_arguments *args)
{
    ccl_add_common(call, target, args);
    kb_ccl_add_integer(args, target->subgroup_size);
    kb_ccl_add_integer(args, target->index);
    kb_ccl_add_integer(args, ccl_tile_elements(call, 32));
    return NULL;
}

const kb_ccl_algorithm ccl_one_shot_algorithm = {
    .name = "one_shot",
    .summary = "all ranks send to all and reduce locally: for small sizes",
    .kernel = &one_shot,
    .arguments = one_shot_arguments,
    .collectives = 1 << KB_ALL_REDUCE,
    .topologies = ccl_pair_topologies,
    .mapper = "lanes",
    .same_bits = true,
};

/* ---- Gather and scatter ------------------------------------------------------------------ */

KB_KERNEL(pairs_gather, tl_ptr input, tl_ptr output, int64_t count, kb_dtype dtype,
          int participants, int index, int64_t order, int root, int64_t tile)
{
    for (int64_t begin = 0; begin < count; begin += tile) {
        tl_dims shape = tl_shape(kb_min(tile, count - begin));
        if (index != root)
            TL_SCOPE {
                tl_send(peer(root).text, tl_load(ccl_at(input, begin, dtype), shape, dtype));
            }
        for (int step = 0; step < participants && index == root; step++)
            TL_SCOPE {
                int from = (root + step) % participants;
                int64_t block = ccl_rank_at(order, from) * count;
                tl_tensor value = step == 0 ? tl_load(ccl_at(input, begin, dtype), shape, dtype)
                                            : tl_recv_async(peer(from).text, shape, dtype);
                tl_store(ccl_at(output, block + begin, dtype), value);
            }
    }
}

KB_KERNEL(pairs_scatter, tl_ptr input, tl_ptr output, int64_t count, kb_dtype dtype,
          int participants, int index, int64_t order, int root, int64_t tile)
{
    for (int64_t begin = 0; begin < count; begin += tile) {
        tl_dims shape = tl_shape(kb_min(tile, count - begin));
        tl_ptr to = ccl_at(output, begin, dtype);
        if (index != root)
            TL_SCOPE {
                tl_store(to, tl_recv_async(peer(root).text, shape, dtype));
            }
        for (int step = 1; step <= participants && index == root; step++)
            TL_SCOPE {
                int participant = (root + step) % participants;
                int64_t block = ccl_rank_at(order, participant) * count;
                tl_tensor value = tl_load(ccl_at(input, block + begin, dtype), shape, dtype);
                if (participant == root)
                    tl_store(to, value);
                else
                    tl_send(peer(participant).text, value);
            }
    }
}

/* ---- All to all -------------------------------------------------------------------------- */

KB_KERNEL(pairs_all_to_all, tl_ptr input, tl_ptr output, int64_t count, kb_dtype dtype,
          int participants, int index, int64_t order, int64_t tile)
{
    for (int64_t begin = 0; begin < count; begin += tile)
        for (int step = 0; step < participants; step++)
            TL_SCOPE {
                tl_dims shape = tl_shape(kb_min(tile, count - begin));
                int to = (index + step) % participants,
                    from = (index - step + participants) % participants;
                int64_t there = ccl_rank_at(order, to) * count + begin;
                int64_t here = ccl_rank_at(order, from) * count + begin;
                tl_tensor value = tl_load(ccl_at(input, there, dtype), shape, dtype);
                if (step > 0) {
                    tl_send(peer(to).text, value);
                    value = tl_recv_async(peer(from).text, shape, dtype);
                }
                tl_store(ccl_at(output, here, dtype), value);
            }
}

/* ---- Send and receive -------------------------------------------------------------------- */

KB_KERNEL(pairs_send, tl_ptr mine, int64_t count, kb_dtype dtype, int other, bool sends,
          int64_t tile)
{
    for (int64_t begin = 0; begin < count; begin += tile)
        TL_SCOPE {
            tl_ptr at = ccl_at(mine, begin, dtype);
            tl_dims shape = tl_shape(kb_min(tile, count - begin));
            if (sends)
                tl_send(peer(other).text, tl_load(at, shape, dtype));
            else
                tl_store(at, tl_recv_async(peer(other).text, shape, dtype));
        }
}

/* ---- Arguments --------------------------------------------------------------------------- */

static kb_error *add_blocks(const kb_ccl_call *call, const kb_ccl_target *target,
                            kb_ccl_arguments *args)
{
    int64_t order;
    KB_TRY(ccl_order_of_ranks(call, target, &order));
    kb_ccl_add_address(args, target->input);
    kb_ccl_add_address(args, target->output);
    kb_ccl_add_integer(args, (int64_t)target->elements);
    kb_ccl_add_integer(args, call->dtype);
    kb_ccl_add_integer(args, target->subgroup_size);
    kb_ccl_add_integer(args, target->index);
    kb_ccl_add_integer(args, order);
    return NULL;
}

static kb_error *rooted_arguments(const kb_ccl_call *call, const kb_ccl_target *target,
                                  kb_ccl_arguments *args)
{
    KB_TRY(add_blocks(call, target, args));
    kb_ccl_add_integer(args, ccl_root_index(call, target));
    kb_ccl_add_integer(args, ccl_tile_elements(call, 32));
    return NULL;
}

const kb_ccl_algorithm ccl_pairs_gather_algorithm = {
    .name = "pairs_gather",
    .summary = "all ranks send to the root",
    .kernel = &pairs_gather,
    .arguments = rooted_arguments,
    .collectives = 1 << KB_GATHER,
    .topologies = ccl_pair_topologies,
    .mapper = "lanes",
    .same_bits = true,
};

const kb_ccl_algorithm ccl_pairs_scatter_algorithm = {
    .name = "pairs_scatter",
    .summary = "the root sends to all",
    .kernel = &pairs_scatter,
    .arguments = rooted_arguments,
    .collectives = 1 << KB_SCATTER,
    .topologies = ccl_pair_topologies,
    .mapper = "lanes",
    .same_bits = true,
};

static kb_error *all_to_all_arguments(const kb_ccl_call *call, const kb_ccl_target *target,
                                      kb_ccl_arguments *args)
{
    KB_TRY(add_blocks(call, target, args));
    kb_ccl_add_integer(args, ccl_tile_elements(call, 32));
    return NULL;
}

const kb_ccl_algorithm ccl_pairs_all_to_all_algorithm = {
    .name = "pairs_all_to_all",
    .summary = "every rank sends a block to every rank",
    .kernel = &pairs_all_to_all,
    .arguments = all_to_all_arguments,
    .collectives = 1 << KB_ALL_TO_ALL,
    .topologies = ccl_pair_topologies,
    .mapper = "lanes",
    .same_bits = true,
};

static kb_error *send_arguments(const kb_ccl_call *call, const kb_ccl_target *target,
                                kb_ccl_arguments *args)
{
    kb_ccl_add_address(args, call->kind == KB_SEND ? target->input : target->output);
    kb_ccl_add_integer(args, (int64_t)target->elements);
    kb_ccl_add_integer(args, call->dtype);
    kb_ccl_add_integer(args, ccl_root_index(call, target));
    kb_ccl_add_integer(args, call->kind == KB_SEND);
    kb_ccl_add_integer(args, ccl_tile_elements(call, 32));
    return NULL;
}

const kb_ccl_algorithm ccl_pairs_send_algorithm = {
    .name = "pairs_send",
    .summary = "from one rank to another",
    .kernel = &pairs_send,
    .arguments = send_arguments,
    .collectives = 1 << KB_SEND | 1 << KB_RECV,
    .topologies = ccl_pair_topologies,
    .mapper = "lanes",
    .same_bits = true,
};
