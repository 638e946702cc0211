/*
 * gemm_steps.c: the steps of a plan, one after the other.
 *
 * A cursor is enough to know where it goes on: all else follows from the plan. What is loaded and
 * what is freed adds up to the same, also where slices of one tile are shorter than those of
 * another that use the same part.
 */
#include "gemm_private.h"

/* The least that a strip moves if it can: at the beginning and the end, where they are narrow. */
enum { MIN_STRIP_BYTES = 8 << 10 };

uint64_t gemm_tile_lines(const gemm_plan *p)
{
    return KB_DIV_UP(p->m, p->tile_rows);
}

uint64_t gemm_tile_stacks(const gemm_plan *p)
{
    return KB_DIV_UP(p->n, p->tile_columns);
}

uint64_t gemm_sum_space(const gemm_plan *plan, uint64_t rows, uint64_t columns)
{
    return times(times(rows, columns), kb_max(plan->c_bytes, GEMM_SUM_BYTES));
}

/*
 * How long the piece is that begins at `at`: as long as allowed, but at the beginning of a product
 * at most half of what came before, and at its end a third of what is left, in whole units. So the
 * array starts soon, and little is left to do when the last byte has come.
 */
static uint64_t piece_at(uint64_t at, uint64_t whole, uint64_t unit, uint64_t allowed, bool begins,
                         bool ends)
{
    uint64_t left = whole - at, piece = allowed;
    if (begins)
        piece = kb_min(piece, kb_max(at / (2 * unit), 1) * unit);
    if (ends)
        piece = kb_min(piece, KB_DIV_UP(left, 3 * unit) * unit);
    return kb_min(piece, left);
}

/* The same for slices, none of which is shorter than `ramp` if that can be had. */
uint64_t gemm_slice_at(const gemm_plan *p, uint64_t at, bool begins, bool ends)
{
    const uint64_t left = p->k - at;
    if ((begins || ends) && left < 2 * p->ramp && left <= p->slice)
        return left;
    return piece_at(at, p->k, p->ramp, p->slice, begins, ends);
}

/*
 * The least width of a strip that is worth a command. A slice that is not as deep as others may
 * have wider ones, but not such that take more space.
 */
static uint64_t min_strip(const gemm_plan *p, const gemm_step *s)
{
    const uint64_t moved = s->depths * p->b_bytes + (s->is_last ? s->rows * p->c_bytes : 0);
    if (moved == 0)
        return p->width;
    const uint64_t enough = KB_DIV_UP(MIN_STRIP_BYTES, p->width * moved);
    const uint64_t fitting = times(kb_min(p->slice, p->k), p->strip) / (s->depths * p->width);
    return kb_max(kb_min(enough, fitting), 1) * p->width;
}

/* Where a step is, in tiles. */
typedef struct position {
    uint64_t line, lines, stack, stacks;
} position;

static position position_of(const gemm_plan *p, const gemm_cursor *at)
{
    return (position){
        .line = p->rows_first ? at->outer : at->inner,
        .lines = gemm_tile_lines(p),
        .stack = p->rows_first ? at->inner : at->outer,
        .stacks = gemm_tile_stacks(p),
    };
}

/* To the next strip of the slice, slice of the tile, tile. */
static void move_on(const gemm_plan *p, const position *is, const gemm_step *s, bool in_last_strip,
                    gemm_cursor *at)
{
    at->column += s->columns;
    if (!in_last_strip)
        return;
    at->column = 0;
    at->depth += s->depths;
    if (!s->is_last)
        return;
    at->depth = 0;
    if (++at->inner < (p->rows_first ? is->stacks : is->lines))
        return;
    at->inner = 0;
    at->outer++;
}

bool gemm_plan_next(const gemm_plan *plan, gemm_cursor *at, gemm_step *step)
{
    const position is = position_of(plan, at);
    if (is.line == is.lines || is.stack == is.stacks)
        return false;
    const bool in_first = is.line == 0 && is.stack == 0;
    const bool in_last = is.line == is.lines - 1 && is.stack == is.stacks - 1;
    gemm_step s = {
        .row = is.line * plan->tile_rows,
        .column = is.stack * plan->tile_columns + at->column,
        .depth = at->depth,
        .depths = gemm_slice_at(plan, at->depth, in_first, in_last),
        .is_first = at->depth == 0,
    };
    s.is_last = s.depth + s.depths == plan->k;
    s.rows = kb_min(plan->tile_rows, plan->m - s.row);
    const uint64_t columns = kb_min(plan->tile_columns, plan->n - (s.column - at->column));
    const uint64_t strip = min_strip(plan, &s);
    s.columns = piece_at(at->column, columns, strip, kb_max(plan->strip, strip),
                         in_first && s.is_first, in_last && s.is_last);
    const bool in_first_strip = at->column == 0, in_last_strip = at->column + s.columns == columns;

    s.sums = s.is_first ? gemm_sum_space(plan, s.rows, s.columns) : 0;
    const uint64_t a = s.rows * s.depths * plan->a_bytes;
    const uint64_t b = s.depths * s.columns * plan->b_bytes;
    s.a_loaded = in_first_strip && (!plan->keeps_a || is.stack == 0) ? a : 0;
    s.b_loaded = !plan->keeps_b || is.line == 0 ? b : 0;
    s.a_freed = in_last_strip && (!plan->keeps_a || is.stack == is.stacks - 1) ? a : 0;
    s.b_freed = !plan->keeps_b || is.line == is.lines - 1 ? b : 0;
    move_on(plan, &is, &s, in_last_strip, at);
    *step = s;
    return true;
}
