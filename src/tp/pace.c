/*
 * pace.c: synchronizes the teams of a device that send sums to other ranks.
 *
 * All PEs of a device share the link to other devices, and routers favour PEs near it. Without
 * synchronization near teams run ahead at the speed of their arrays, and far teams still compute
 * when the others are done, while the link idles.
 *
 * So teams run a dissemination barrier, one round for each group. In round r the first PE of team t
 * sends a mark to team t + 2^r and receives one from team t - 2^r, which it waits for before its
 * next mark. After ceil(log2(teams)) rounds each team has heard, directly or not, of all others. A
 * mark is an element of a sum that came over the link, so it is not sent before that sum has
 * arrived. The other PEs of a team need the sums of its first PE and so keep pace with it.
 *
 * Invariant: all teams run as many rounds as a team of the full size has groups.
 */
#include "matmul_private.h"

/* One element of a result of the batch. */
static tl_tensor make_mark(tl_context *tl, const team_pe *me, const rank_batch *batch)
{
    for (int64_t i = 0; i < batch->count; i++) {
        tl_tensor result = batch->pieces[i].results[me->plan->rank];
        if (result.id == 0)
            continue;
        tl_tensor row = tl_slice(result, 0, 0, 1);
        tl_tensor mark = tl_slice(row, 1, 0, 1);
        tl_free(row);
        return mark;
    }
    return tl_zeros(tl_shape(1, 1), me->plan->out.dtype);
}

static void wait_for_mark(tl_context *tl, rank_sums *sums)
{
    if (sums->mark.id == 0)
        return;
    tl_wait(sums->mark);
    tl_free(sums->mark);
    sums->mark = (tl_tensor){0};
}

void tp_keep_pace(tl_context *tl, const team_pe *me, rank_sums *sums, const rank_batch *batch)
{
    const tp_grid *grid = &me->plan->grid;
    int64_t teams = grid->m_parts * grid->n_parts;
    if (me->index != 0 || sums->marks >= me->plan->paced)
        return;
    int64_t round = sums->marks++ % tp_pace_rounds(teams);
    wait_for_mark(tl, sums);
    sums->mark = tl_recv_async(tp_pace_name(tp_pace_back(teams, round)), tl_shape(1, 1),
                               me->plan->out.dtype);
    tl_tensor mark = make_mark(tl, me, batch);
    tl_send(tp_pace_name(round), mark);
    tl_free(mark);
}

void tp_end_pace(tl_context *tl, const team_pe *me, rank_sums *sums)
{
    const rank_batch none = {0};
    while (me->index == 0 && sums->marks < me->plan->paced)
        tp_keep_pace(tl, me, sums, &none);
    wait_for_mark(tl, sums);
}
