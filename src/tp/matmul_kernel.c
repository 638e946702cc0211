/*
 * matmul_kernel.c: a PE's part of a matrix product: see plan.h.
 *
 * A member multiplies group by group of strips. Partial sums of a group are exchanged when the
 * products of the next group have been issued, so that the array has work meanwhile. In a team
 * the rows of a strip are dealt out to members, which add up what all members have of them, in the
 * order of members: the result does not depend on timing.
 *
 * Receives are posted before the sends of the same group, and all members go through the groups in
 * the same order: a member that waits for a slot waits for one that is behind it, never in a
 * circle.
 */
#include "matmul_private.h"

static int64_t min_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* False if the PE has nothing to do. */
static bool find_part(member *me, int64_t pe)
{
    const tp_grid *grid = &me->plan->grid;
    const tp_problem *is = &me->plan->is;
    int64_t rectangle = pe / grid->team;
    if (rectangle >= grid->m_parts * grid->n_parts)
        return false;
    me->index = pe % grid->team;
    me->team = rectangle;
    me->rect.row = rectangle / grid->n_parts * grid->m_size;
    me->rect.column = rectangle % grid->n_parts * grid->n_size;
    me->rect.rows = min_of(grid->m_size, is->m - me->rect.row);
    me->rect.columns = min_of(grid->n_size, is->n - me->rect.column);
    me->depth = me->index * grid->k_size;
    me->depths = min_of(grid->k_size, is->k - me->depth);
    return true;
}

/* ---- Chunks of k ---- */

static int64_t chunk_count(const member *me)
{
    return tl_cdiv(me->depths, me->plan->steps.chunk);
}

/* The chunk of k that comes at that step. Teams begin at different ones, so that they do not all
 * load the same part of x at the same time. */
static int64_t chunk_at(const member *me, int64_t step)
{
    return (step + me->team) % chunk_count(me);
}

/* x of the rows and the chunk. */
static tl_tensor load_x(tl_context *tl, member *me, const tp_rect *rows, int64_t chunk)
{
    int64_t begin = chunk * me->plan->steps.chunk;
    const tp_rect at = {rows->row, rows->rows, me->plan->x_column + me->depth + begin,
                        min_of(me->plan->steps.chunk, me->depths - begin)};
    if (!me->plan->steps.keeps_x)
        return tp_load(tl, &me->plan->x, me->x, at);
    if (me->xs[chunk].id == 0)
        me->xs[chunk] = tp_load(tl, &me->plan->x, me->x, at);
    return me->xs[chunk];
}

static void free_x(tl_context *tl, member *me)
{
    for (int64_t chunk = 0; chunk < TP_MAX_CHUNKS; chunk++) {
        if (me->xs[chunk].id != 0)
            tl_free(me->xs[chunk]);
        me->xs[chunk] = (tl_tensor){0};
    }
}

/* ---- Products ---- */

/* One strip: its columns, counted from the group's first one. */
static tp_rect strip_of(const member *me, const group *g, int64_t strip)
{
    int64_t width = me->plan->steps.strip;
    tp_rect at = g->rect;
    at.column += strip * width;
    at.columns = min_of(width, g->rect.columns - strip * width);
    return at;
}

static void multiply(tl_context *tl, const member *me, tl_tensor x, const tp_rect *w_at,
                     tl_tensor *sum)
{
    tl_tensor w = tp_load(tl, &me->plan->w, me->w, *w_at);
    bool f32 = tp_member_sum_dtype(me) == KB_F32;
    *sum = sum->id == 0 ? tl_dot(x, w, .out_f32 = f32) : tl_dot(x, w, .acc = *sum, .out_f32 = f32);
    tl_free(w);
}

/*
 * The sums of a group, chunk by chunk. A product that adds to a sum has to wait until the one
 * before is out of the array; so several sums take turns: those of the strips or, if there is one
 * strip alone, two for even and odd chunks.
 */
static void make_sums(tl_context *tl, member *me, group *g)
{
    for (int64_t step = 0; step < chunk_count(me); step++) {
        int64_t chunk = chunk_at(me, step), begin = chunk * me->plan->steps.chunk;
        int64_t depths = min_of(me->plan->steps.chunk, me->depths - begin);
        tl_tensor x = load_x(tl, me, &g->rect, chunk);
        for (int64_t strip = 0; strip < g->count; strip++) {
            tp_rect out = strip_of(me, g, strip);
            tp_rect w = {me->depth + begin, depths, out.column, out.columns};
            bool is_odd = g->count == 1 && step % 2 == 1;
            multiply(tl, me, x, &w, is_odd ? &g->odd : &g->sums[strip]);
        }
        if (!me->plan->steps.keeps_x)
            tl_free(x);
    }
}

/* ---- The exchange in a team ---- */

/* Rows of a strip are dealt out in parts, to different members first for different strips. */
static int64_t part_count(const member *me, const group *g)
{
    return min_of(g->rect.rows, me->plan->grid.team);
}

static int64_t owner_of(const member *me, const group *g, int64_t strip, int64_t part)
{
    return (part + (g->first + strip) * part_count(me, g)) % me->plan->grid.team;
}

static tp_rect part_of(const member *me, const group *g, int64_t strip, int64_t part)
{
    tp_rect at = strip_of(me, g, strip);
    int64_t parts = part_count(me, g);
    at.row += tl_part_begin(g->rect.rows, parts, part);
    at.rows = tl_part_size(g->rect.rows, parts, part);
    return at;
}

tl_tensor tp_finish_sum(tl_context *tl, const member *me, const tp_rect *at, tl_tensor sum,
                        kb_dtype dtype)
{
    const tp_matmul_plan *plan = me->plan;
    if (plan->has_bias) {
        const tp_rect bias_at = {0, 1, at->column, at->columns};
        tl_tensor bias = tp_load(tl, &plan->bias, me->bias, bias_at);
        bias = tp_cast(tl, bias, plan->bias.dtype, tp_member_sum_dtype(me));
        sum = tp_cast(tl, sum, dtype, tp_member_sum_dtype(me));
        dtype = tp_member_sum_dtype(me);
        tl_tensor with = tl_add(sum, bias);
        tl_free(bias);
        tl_free(sum);
        sum = with;
    }
    return tp_cast(tl, sum, dtype, plan->out.dtype);
}

/* A part of the product is complete: stores it, or hands it to the sum over ranks. */
static void put_part(tl_context *tl, const member *me, const tp_rect *at, tl_tensor sum,
                     rank_batch *batch)
{
    if (me->plan->ranks > 1) {
        rank_piece *piece = &batch->pieces[batch->count++];
        *piece = (rank_piece){.at = *at};
        piece->own = tp_cast(tl, sum, tp_member_sum_dtype(me), me->plan->sum_dtype);
        return;
    }
    tl_tensor rounded = tp_finish_sum(tl, me, at, sum, tp_member_sum_dtype(me));
    tp_store(tl, &me->plan->out, me->out, *at, rounded);
    tl_free(rounded);
}

/* This member's sums of a part of a strip. */
static tl_tensor own_part(tl_context *tl, const member *me, const group *g, int64_t strip,
                          int64_t part)
{
    int64_t begin = tl_part_begin(g->rect.rows, part_count(me, g), part);
    return tl_slice(g->sums[strip], 0, begin,
                    begin + tl_part_size(g->rect.rows, part_count(me, g), part));
}

/* Parts of a group that this member adds up. In a group there are at most as many as rows of strips
 * times strips, dealt out to all members. */
enum { MAX_OWN_PARTS = TP_MAX_STRIPS };

typedef struct own_parts {
    int64_t count;
    struct {
        int64_t strip, part;
        tl_tensor from[TP_MAX_TEAM];
    } parts[MAX_OWN_PARTS];
} own_parts;

static void post_receives(tl_context *tl, const member *me, const group *g, own_parts *own)
{
    kb_dtype dtype = tp_member_sum_dtype(me);
    own->count = 0;
    for (int64_t strip = 0; strip < g->count; strip++)
        for (int64_t part = 0; part < part_count(me, g); part++) {
            if (owner_of(me, g, strip, part) != me->index)
                continue;
            tp_rect at = part_of(me, g, strip, part);
            int64_t i = own->count++;
            own->parts[i].strip = strip;
            own->parts[i].part = part;
            for (int64_t from = 0; from < me->plan->grid.team; from++)
                if (from != me->index)
                    own->parts[i].from[from] =
                        tl_recv_async(tp_member_name(from), tl_shape(at.rows, at.columns), dtype);
        }
}

/* To the next member first, so that not all send to the same. */
static void send_parts(tl_context *tl, const member *me, const group *g)
{
    int64_t team = me->plan->grid.team;
    for (int64_t strip = 0; strip < g->count; strip++)
        for (int64_t step = 1; step < team; step++)
            for (int64_t part = 0; part < part_count(me, g); part++)
                if (owner_of(me, g, strip, part) == (me->index + step) % team) {
                    tl_tensor value = own_part(tl, me, g, strip, part);
                    tl_send(tp_member_name((me->index + step) % team), value);
                    tl_free(value);
                }
}

static tl_tensor add_up(tl_context *tl, const member *me, const group *g, const own_parts *own,
                        int64_t i)
{
    tl_tensor sum = {0};
    for (int64_t from = 0; from < me->plan->grid.team; from++) {
        tl_tensor next = from == me->index
                             ? own_part(tl, me, g, own->parts[i].strip, own->parts[i].part)
                             : own->parts[i].from[from];
        if (sum.id == 0) {
            sum = next;
            continue;
        }
        tl_tensor more = tl_add(sum, next);
        tl_free(sum);
        tl_free(next);
        sum = more;
    }
    return sum;
}

/* Makes one of two sums of one strip. */
static void join_sums(tl_context *tl, group *g)
{
    tl_tensor both = tl_add(g->sums[0], g->odd);
    tl_free(g->sums[0]);
    tl_free(g->odd);
    g->sums[0] = both;
}

/* Exchanges the sums of the group in the team, and puts what is this member's. */
static void finish_group(tl_context *tl, const member *me, group *g, rank_batch *batch)
{
    if (g->odd.id != 0)
        join_sums(tl, g);
    if (me->plan->grid.team == 1) {
        for (int64_t strip = 0; strip < g->count; strip++) {
            tp_rect at = strip_of(me, g, strip);
            put_part(tl, me, &at, g->sums[strip], batch);
        }
    } else if (g->count > 0) {
        own_parts own;
        post_receives(tl, me, g, &own);
        send_parts(tl, me, g);
        for (int64_t i = 0; i < own.count; i++) {
            tp_rect at = part_of(me, g, own.parts[i].strip, own.parts[i].part);
            put_part(tl, me, &at, add_up(tl, me, g, &own, i), batch);
        }
        for (int64_t strip = 0; strip < g->count; strip++)
            tl_free(g->sums[strip]);
    }
    g->count = 0;
}

/* ---- All of it ---- */

/*
 * Strips of the next group. For sums over ranks, groups are equal. Else the last group is small, as
 * nothing hides its exchange; those before are large: all of x arrives during the first, from all
 * over the device, and takes its time.
 */
static int64_t next_count(const tp_steps *steps, int64_t strips, int64_t done, int64_t groups)
{
    int64_t left = strips - done;
    int64_t count = left > 1 ? left - 1 : 1;
    if (steps->chunks > 0)
        count = tl_cdiv(left, steps->chunks > groups ? steps->chunks - groups : 1);
    return min_of(steps->strips, count);
}

static void run_block(tl_context *tl, member *me, const tp_rect *block)
{
    const tp_steps *steps = &me->plan->steps;
    int64_t strips = tl_cdiv(block->columns, steps->strip), groups = 0;
    group last = {0};
    rank_sums sums = {0};
    for (int64_t strip = 0, count; strip < strips; strip += count, groups++) {
        count = next_count(steps, strips, strip, groups);
        group g = {.rect = *block, .first = strip, .count = count};
        g.rect.column += strip * steps->strip;
        g.rect.columns = min_of(g.count * steps->strip, block->columns - strip * steps->strip);
        make_sums(tl, me, &g);
        finish_group(tl, me, &last, &sums.complete);
        tp_advance_rank_sums(tl, me, &sums);
        last = g;
    }
    finish_group(tl, me, &last, &sums.complete);
    while (tp_advance_rank_sums(tl, me, &sums))
        continue;
    free_x(tl, me);
}

KB_KERNEL(matmul, tl_ptr x, tl_ptr w, tl_ptr bias, tl_ptr out, tl_ptr everywhere)
{
    (void)everywhere;
    member me = {.plan = tl_user(), .x = x, .w = w, .bias = bias, .out = out};
    if (!find_part(&me, tl_program_id(1) * me.plan->pe.pes + tl_program_id(0)))
        return;
    int64_t rows = me.plan->steps.block;
    for (int64_t row = 0; row < me.rect.rows; row += rows) {
        tp_rect block = me.rect;
        block.row += row;
        block.rows = min_of(rows, me.rect.rows - row);
        run_block(tl, &me, &block);
    }
}

kb_kernel tp_matmul_kernel(void)
{
    return matmul;
}
