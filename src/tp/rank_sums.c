/*
 * rank_sums.c: the sum over ranks, in the matmul kernel.
 *
 * Each PE has the same parts of the product as the PE of the same index on every other rank. Each
 * rank has a *share* of a part, of its rows or columns. A group of parts goes through three stages:
 *
 *     scatter   each rank sends the others their shares
 *     reduce    each rank adds up its own share, in the order of ranks, and sends the result
 *     store     each rank stores the sums of all shares
 *
 * With two ranks each sends the whole part instead, and both add it up, in the same order: this
 * sends no more bytes, and no results need to return.
 *
 * A group is scattered after the products of the next group have been issued, and reduced and
 * stored some groups later (TP_RANK_LAG): messages are in transit while the array works, and the
 * vector engine does not wait for them. Invariant: every element is added up on one rank, or from
 * the same values in the same order, so all ranks get the same bits.
 *
 * Receives are posted before the sends of the same stage, and all ranks go through the stages in
 * the same order. So messages of a direction are received in the order of their sends, and a rank
 * that waits for a slot waits for a rank that is behind it: there is no deadlock.
 */
#include "matmul_private.h"

/* Whether each rank adds up whole parts. */
static bool sums_everywhere(const team_pe *me)
{
    return me->plan->ranks == 2;
}

/* The rank's share of a part: of its rows, or of its columns if there are too few rows. */
static tp_rect share_of(const team_pe *me, const tp_rect *at, int64_t rank)
{
    tp_rect share = *at;
    int64_t ranks = me->plan->ranks;
    if (sums_everywhere(me))
        return share;
    if (at->rows >= ranks) {
        share.row += tl_part_begin(at->rows, ranks, rank);
        share.rows = tl_part_size(at->rows, ranks, rank);
    } else {
        int64_t unit = me->plan->problem.gated ? 2 : 1; /* pairs stay together */
        share.column += tl_part_begin(at->columns / unit, ranks, rank) * unit;
        share.columns = tl_part_size(at->columns / unit, ranks, rank) * unit;
    }
    return share;
}

static bool is_empty(const tp_rect *at)
{
    return at->rows == 0 || at->columns == 0;
}

/* This rank's values of a share. */
static tl_tensor own_share(tl_context *tl, const rank_piece *piece, const tp_rect *share)
{
    bool by_rows = share->columns == piece->at.columns;
    int64_t begin = by_rows ? share->row - piece->at.row : share->column - piece->at.column;
    int64_t size = by_rows ? share->rows : share->columns;
    return tl_slice(piece->own, by_rows ? 0 : 1, begin, begin + size);
}

/* Starts with the next rank, so that not all send to the same one. */
static int64_t peer_at(const team_pe *me, int64_t step)
{
    return (me->plan->rank + step) % me->plan->ranks;
}

/* ---- Scatter ---- */

static void receive_shares(tl_context *tl, const team_pe *me, rank_piece *piece)
{
    tp_rect share = share_of(me, &piece->at, me->plan->rank);
    if (is_empty(&share))
        return;
    piece->operands = tp_load_operands(tl, me, &share);
    for (int64_t step = 1; step < me->plan->ranks; step++) {
        int64_t peer = peer_at(me, step);
        piece->others[peer] = tl_recv_async(tp_rank_name(peer), tl_shape(share.rows, share.columns),
                                            me->plan->sum_dtype);
    }
}

static void send_shares(tl_context *tl, const team_pe *me, const rank_piece *piece)
{
    for (int64_t step = 1; step < me->plan->ranks; step++) {
        int64_t peer = peer_at(me, step);
        tp_rect share = share_of(me, &piece->at, peer);
        if (is_empty(&share))
            continue;
        tl_tensor value = own_share(tl, piece, &share);
        tl_send(tp_rank_name(peer), value);
        tl_free(value);
    }
}

/* ---- Reduce ---- */

static void receive_results(tl_context *tl, const team_pe *me, rank_piece *piece)
{
    for (int64_t step = 1; step < me->plan->ranks && !sums_everywhere(me); step++) {
        int64_t peer = peer_at(me, step);
        tp_rect share = share_of(me, &piece->at, peer), made = tp_out_rect(me, &share);
        if (!is_empty(&share))
            piece->results[peer] = tl_recv_async(
                tp_rank_name(peer), tl_shape(made.rows, made.columns), me->plan->out.dtype);
    }
}

/* Adds the next rank's share to the sum. Consumes both; f8 is added in f32, i8 in i32. */
static tl_tensor add_rank(tl_context *tl, const team_pe *me, tl_tensor sum, tl_tensor next)
{
    kb_dtype wire = me->plan->sum_dtype, wide = tp_team_sum_dtype(me);
    if (!mem_is_float(wire))
        next = tp_cast(tl, next, wire, wide);
    if (sum.id == 0)
        return tp_cast(tl, next, mem_is_float(wire) ? wire : wide, wide);
    tl_tensor both = tl_add(sum, next);
    tl_free(sum);
    tl_free(next);
    return both;
}

/* Adds up this rank's share of all ranks. A plain sum is first rounded to the dtype of its parts,
 * as in a collective. */
static tl_tensor reduce_share(tl_context *tl, const team_pe *me, rank_piece *piece,
                              const tp_rect *share)
{
    const tp_matmul_plan *plan = me->plan;
    kb_dtype dtype = tp_team_sum_dtype(me);
    tl_tensor sum = {0};
    for (int64_t rank = 0; rank < plan->ranks; rank++) {
        bool is_own = rank == plan->rank;
        sum = add_rank(tl, me, sum, is_own ? own_share(tl, piece, share) : piece->others[rank]);
    }
    if (!plan->problem.gated && !plan->has_residual) {
        sum = tp_cast(tl, sum, dtype, plan->sum_dtype);
        dtype = plan->sum_dtype;
    }
    return tp_finish_part(tl, me, sum, dtype, share, &piece->operands);
}

static void send_result(tl_context *tl, const team_pe *me, rank_piece *piece)
{
    tp_rect share = share_of(me, &piece->at, me->plan->rank);
    if (is_empty(&share))
        return;
    tl_tensor result = reduce_share(tl, me, piece, &share);
    for (int64_t step = 1; step < me->plan->ranks && !sums_everywhere(me); step++)
        tl_send(tp_rank_name(peer_at(me, step)), result);
    piece->results[me->plan->rank] = result;
}

/* ---- Store ---- */

static void store_results(tl_context *tl, const team_pe *me, const rank_piece *piece)
{
    for (int64_t rank = 0; rank < me->plan->ranks; rank++) {
        tp_rect share = share_of(me, &piece->at, rank);
        if (piece->results[rank].id == 0)
            continue;
        tp_store_part(tl, me, &share, piece->results[rank]);
    }
    tl_free(piece->own);
}

/* ---- Stages ---- */

/* The batch `ago` batches before the newest. */
static rank_batch *batch_at(rank_sums *sums, int64_t ago)
{
    return &sums->batches[(sums->newest + TP_RANK_BATCHES - ago) % TP_RANK_BATCHES];
}

rank_batch *tp_new_rank_batch(rank_sums *sums)
{
    return batch_at(sums, 0);
}

bool tp_advance_rank_sums(tl_context *tl, const team_pe *me, rank_sums *sums)
{
    const int64_t lag = TP_RANK_LAG;
    rank_batch *scatter = batch_at(sums, 0), *reduce = batch_at(sums, lag);
    rank_batch *store = sums_everywhere(me) ? reduce : batch_at(sums, 2 * lag);
    bool any = false;
    for (int64_t i = 0; i < scatter->count; i++)
        receive_shares(tl, me, &scatter->pieces[i]);
    for (int64_t i = 0; i < scatter->count; i++)
        send_shares(tl, me, &scatter->pieces[i]);
    for (int64_t i = 0; i < reduce->count; i++)
        receive_results(tl, me, &reduce->pieces[i]);
    for (int64_t i = 0; i < reduce->count; i++)
        send_result(tl, me, &reduce->pieces[i]);
    if (reduce->count > 0)
        tp_keep_pace(tl, me, sums, reduce);
    for (int64_t i = 0; i < store->count; i++)
        store_results(tl, me, &store->pieces[i]);
    store->count = 0;
    for (int64_t i = 0; i < TP_RANK_BATCHES; i++)
        any |= sums->batches[i].count > 0;
    sums->newest++;
    batch_at(sums, 0)->count = 0;
    return any;
}
