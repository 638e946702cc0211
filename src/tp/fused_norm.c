/*
 * fused_norm.c: the RMSNorm of x, fused into the matmul kernel.
 *
 *     rms_norm(x) * w  =  ((x * gain) * w) / rms(x)
 *
 * The gain is applied to x chunk by chunk. Each PE of a team adds up the squares of its part of
 * each row. After the products of the first group have been issued, the PEs of the team exchange
 * their sums, and each adds all of them in the order of PEs. The rms divides each row of the
 * complete result, so the exchange overlaps with products.
 *
 * Squares are added element by element over the chunks of k, and along the row at the end: one pass
 * of the vector engine for each chunk. The last chunk may be narrower and has a separate sum.
 */
#include "matmul_private.h"

static tl_tensor load_gain(tl_context *tl, team_pe *me, int64_t chunk)
{
    const tp_steps *steps = &me->plan->steps;
    int64_t begin = chunk * steps->chunk, left = me->depths - begin;
    const tp_rect at = {0, 1, me->depth + begin, left < steps->chunk ? left : steps->chunk};
    if (me->gains[chunk].id != 0)
        return me->gains[chunk];
    tl_tensor gain = tp_load(tl, &me->plan->gain, me->gain, at);
    /* Operands of one dtype are multiplied in it; others in f32. */
    if (mem_is_storage(me->plan->gain.dtype))
        gain = tp_cast(tl, gain, me->plan->gain.dtype, KB_F32);
    if (steps->keeps_x)
        me->gains[chunk] = gain;
    return gain;
}

/* Adds the squares of x, which is not f8, to the sum, which is 0 or f32. */
static void add_squares(tl_context *tl, tl_tensor x, tl_tensor *sum)
{
    tl_tensor before = sum->id != 0 ? *sum : tl_zeros(tl_shape(1, 1), KB_F32);
    *sum = tl_fma(x, x, before);
    tl_free(before);
}

tl_tensor tp_apply_gain(tl_context *tl, team_pe *me, int64_t chunk, tl_tensor x, bool is_new)
{
    const kb_dtype x_dtype = me->plan->problem.x, gain_dtype = me->plan->gain.dtype;
    bool is_narrower = (chunk + 1) * me->plan->steps.chunk > me->depths;
    if (mem_is_storage(x_dtype))
        x = tp_cast(tl, x, x_dtype, KB_F32);
    tl_tensor gain = load_gain(tl, me, chunk);
    tl_tensor gained = tl_mul(x, gain);
    if (mem_is_storage(x_dtype) || gain_dtype != x_dtype)
        gained = tp_cast(tl, gained, KB_F32, x_dtype);
    if (is_new)
        add_squares(tl, x, is_narrower ? &me->last_squares : &me->squares);
    if (!me->plan->steps.keeps_x)
        tl_free(gain);
    tl_free(x);
    return gained;
}

/* Of this PE's part of each row: (rows, 1). */
static tl_tensor sum_squares(tl_context *tl, team_pe *me)
{
    tl_tensor sums[2] = {me->squares, me->last_squares}, all = {0};
    for (int i = 0; i < 2; i++) {
        if (sums[i].id == 0)
            continue;
        tl_tensor next = tl_sum(sums[i], 1);
        tl_free(sums[i]);
        if (all.id != 0) {
            tl_tensor both = tl_add(all, next);
            tl_free(all);
            tl_free(next);
            next = both;
        }
        all = next;
    }
    me->squares = me->last_squares = (tl_tensor){0};
    return all;
}

tl_tensor tp_exchange_squares(tl_context *tl, team_pe *me, int64_t rows)
{
    const int64_t team = me->plan->grid.team;
    tl_tensor from[TP_MAX_TEAM], sum = {0};
    for (int64_t i = 0; i < team; i++)
        if (i != me->index)
            from[i] = tl_recv_async(tp_team_queue_name(i), tl_shape(rows, 1), KB_F32);
    from[me->index] = sum_squares(tl, me);
    for (int64_t step = 1; step < team; step++)
        tl_send(tp_team_queue_name((me->index + step) % team), from[me->index]);
    for (int64_t i = 0; i < team; i++) {
        tl_tensor more = sum.id != 0 ? tl_add(sum, from[i]) : from[i];
        if (sum.id != 0) {
            tl_free(sum);
            tl_free(from[i]);
        }
        sum = more;
    }
    tl_tensor mean = tl_fma(sum, 1 / (double)me->plan->problem.k, me->plan->eps);
    tl_tensor scale = tl_rsqrt(mean);
    tl_free(sum);
    tl_free(mean);
    return scale;
}
