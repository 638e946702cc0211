/*
 * matmul_kernel.c: a PE's part of a matrix product: see division.h.
 *
 * A PE multiplies group by group of strips. Partial sums of a group are exchanged after the
 * products of the next group have been issued, so that the array stays busy, also across blocks of
 * rows.
 */
#include "matmul_private.h"

enum {
    AHEAD = 3, /* pieces of weights that are loaded before x */
};

/* False if the PE has no part. */
static bool find_part(team_pe *me, int64_t pe)
{
    const tp_grid *grid = &me->plan->grid;
    const tp_problem *problem = &me->plan->problem;
    int64_t rectangle = pe / grid->team;
    if (rectangle >= grid->m_parts * grid->n_parts)
        return false;
    me->index = pe % grid->team;
    me->team = rectangle;
    me->rect.row = rectangle / grid->n_parts * grid->m_size;
    me->rect.column = rectangle % grid->n_parts * grid->n_size;
    me->rect.rows = kb_min(grid->m_size, problem->m - me->rect.row);
    me->rect.columns = kb_min(grid->n_size, problem->n - me->rect.column);
    me->depth = me->index * grid->k_size;
    me->depths = kb_min(grid->k_size, problem->k - me->depth);
    return true;
}

/* ---- Chunks of k ---- */

static int64_t chunk_count(const team_pe *me)
{
    return tl_cdiv(me->depths, me->plan->steps.chunk);
}

/* The chunk of k at a step. Teams begin with different chunks, so that they do not all load the
 * same part of x at the same time. */
static int64_t chunk_at(const team_pe *me, int64_t step)
{
    return (step + me->team) % chunk_count(me);
}

/* x of the group's rows and one chunk of k. */
static tl_tensor load_x(tl_context *tl, team_pe *me, const group *g, int64_t chunk)
{
    tl_tensor *kept = &me->xs[chunk];
    if (kept->id != 0)
        return *kept;
    int64_t begin = chunk * me->plan->steps.chunk;
    const tp_rect at = {g->rect.row, g->rect.rows, me->plan->x_column + me->depth + begin,
                        kb_min(me->plan->steps.chunk, me->depths - begin)};
    tl_tensor x = tp_load(tl, &me->plan->x, me->x, at);
    if (me->plan->has_gain)
        x = tp_apply_gain(tl, me, chunk, x, g->is_first);
    if (me->plan->steps.keeps_x)
        *kept = x;
    return x;
}

static void free_x(tl_context *tl, team_pe *me)
{
    for (int64_t chunk = 0; chunk < TP_MAX_CHUNKS; chunk++) {
        if (me->xs[chunk].id != 0)
            tl_free(me->xs[chunk]);
        me->xs[chunk] = (tl_tensor){0};
    }
}

/* ---- Products ---- */

/* The weights of a strip and one chunk of k. */
static tl_tensor load_w(tl_context *tl, team_pe *me, const group *g, int64_t strip, int64_t chunk)
{
    int64_t begin = chunk * me->plan->steps.chunk;
    tp_rect out = tp_strip_of(me, g, strip);
    const tp_rect at = {me->depth + begin, kb_min(me->plan->steps.chunk, me->depths - begin),
                        out.column, out.columns};
    return tp_load(tl, &me->plan->w, me->w, at);
}

static void multiply(tl_context *tl, const team_pe *me, tl_tensor x, tl_tensor w, tl_tensor *sum)
{
    bool f32 = tp_team_sum_dtype(me) == KB_F32;
    *sum = sum->id == 0 ? tl_dot(x, w, .out_f32 = f32) : tl_dot(x, w, .acc = *sum, .out_f32 = f32);
    tl_free(w);
}

/*
 * Makes the sums of a group, chunk by chunk. A product that adds to a sum waits until the previous
 * product is out of the array, so several sums alternate: those of the strips or, for a single
 * strip, one for even and one for odd chunks. If x arrives from other PEs in small pieces, weights
 * are loaded first, which keeps the PE's own memory busy meanwhile.
 */
static void make_sums(tl_context *tl, team_pe *me, group *g)
{
    const tp_steps *steps = &me->plan->steps;
    for (int64_t step = 0; step < chunk_count(me); step++) {
        int64_t chunk = chunk_at(me, step);
        int64_t ahead = steps->local_x ? 0 : kb_min(g->count, AHEAD);
        tl_tensor ws[AHEAD];
        for (int64_t strip = 0; strip < ahead; strip++)
            ws[strip] = load_w(tl, me, g, strip, chunk);
        tl_tensor x = load_x(tl, me, g, chunk);
        for (int64_t strip = 0; strip < g->count; strip++) {
            tl_tensor w = strip < ahead ? ws[strip] : load_w(tl, me, g, strip, chunk);
            bool is_odd = g->count == 1 && step % 2 == 1;
            multiply(tl, me, x, w, is_odd ? &g->odd : &g->sums[strip]);
        }
        if (!steps->keeps_x)
            tl_free(x);
    }
}

/* ---- The kernel ---- */

/* The position of a PE in its rectangle. */
typedef struct walk {
    int64_t row;    /* of the block */
    int64_t strip;  /* in the block */
    int64_t groups; /* of the block, before this one */
} walk;

/* The next group, with empty sums. False if there is none. */
static bool next_group(const team_pe *me, walk *at, group *g)
{
    const tp_steps *steps = &me->plan->steps;
    if (at->row >= me->rect.rows)
        return false;
    int64_t rows = kb_min(steps->block, me->rect.rows - at->row);
    int64_t strips = tl_cdiv(me->rect.columns, steps->strip), column = at->strip * steps->strip;
    int64_t count = tp_next_strips(steps, strips, at->strip, at->groups);
    *g = (group){.first = at->strip, .count = count};
    g->rect = (tp_rect){me->rect.row + at->row, rows, me->rect.column + column,
                        kb_min(count * steps->strip, me->rect.columns - column)};
    g->is_first = at->strip == 0;
    g->is_last = at->strip + count == strips;
    *at = g->is_last ? (walk){.row = at->row + rows}
                     : (walk){at->row, at->strip + count, at->groups + 1};
    return true;
}

static void run_groups(tl_context *tl, team_pe *me)
{
    walk at = {0};
    group last = {0}, g;
    rank_sums sums = {0};
    while (next_group(me, &at, &g)) {
        make_sums(tl, me, &g);
        if (me->plan->has_gain)
            g.scale = g.is_first ? tp_exchange_squares(tl, me, g.rect.rows) : last.scale;
        tp_finish_group(tl, me, &last, tp_new_rank_batch(&sums));
        tp_advance_rank_sums(tl, me, &sums);
        if (g.is_last)
            free_x(tl, me);
        last = g;
    }
    /* Sums of earlier groups are stored during the last products. */
    tp_advance_rank_sums(tl, me, &sums);
    tp_finish_group(tl, me, &last, tp_new_rank_batch(&sums));
    while (tp_advance_rank_sums(tl, me, &sums))
        continue;
    tp_flush_parts(tl, me);
    tp_end_pace(tl, me, &sums);
}

KB_KERNEL(matmul, tl_ptr x, tl_ptr w, tl_ptr bias, tl_ptr gain, tl_ptr residual, tl_ptr out,
          tl_ptr all_pes)
{
    (void)all_pes;
    held_part held = {0};
    team_pe me = {.plan = tl_user(),
                  .x = x,
                  .w = w,
                  .bias = bias,
                  .gain = gain,
                  .residual = residual,
                  .out = out,
                  .held = &held};
    if (find_part(&me, tl_program_id(1) * me.plan->pe.pes + tl_program_id(0)))
        run_groups(tl, &me);
}

kb_kernel tp_matmul_kernel(void)
{
    return matmul;
}
