/*
 * gemm_plan.c: tries ways to cut a matrix product and takes the one that costs least (gemm_cost.c).
 *
 * A plan has to leave space for AHEAD steps to be loaded while one is at work; only if none does,
 * for fewer. What is needed at least always fits: what stays, a slice of a, a strip of b and the
 * sums of one tile. So steps in their order that wait for space get it.
 */
#include "gemm_plan.h"

#include <inttypes.h>

#include "base/base.h"
#include "gemm_private.h"

enum {
    AHEAD = 3,
    /* What steps load, if they can be cut like that: enough to be worth a command, and not so much
     * that much waits for it. */
    MIN_LOAD_BYTES = 32 << 10,
    MAX_LOAD_BYTES = 256 << 10,
    /* Rows below which tiles are not cut unless they have to be: each one reads all of b. */
    FEW_ROWS = 32,
};

/* What must fit, with `ahead` steps loaded ahead. */
static uint64_t space_of(const gemm_plan *p, uint64_t ahead)
{
    const uint64_t lines = gemm_tile_lines(p), stacks = gemm_tile_stacks(p);
    const uint64_t depths = kb_min(p->slice, p->k);
    const uint64_t a_slice = times(times(p->tile_rows, depths), p->a_bytes);
    const uint64_t b_strip = times(times(depths, p->strip), p->b_bytes);
    const uint64_t a_ahead = p->strip < p->tile_columns ? kb_min(ahead, 2) : ahead;
    uint64_t space = 0;
    if (p->keeps_a)
        space = times(times(p->rows_first ? p->tile_rows : p->m, p->k), p->a_bytes);
    if (!p->keeps_a || (p->rows_first && lines > 1 && ahead > 1))
        space = plus(space, times(a_slice, a_ahead));
    if (p->keeps_b)
        space = plus(space, times(times(p->rows_first ? p->n : p->tile_columns, p->k), p->b_bytes));
    if (!p->keeps_b || (!p->rows_first && stacks > 1 && ahead > 1))
        space = plus(space, times(b_strip, ahead));
    uint64_t tiles = 1; /* at a time: one at work, one that is stored, those that begin */
    if (ahead > 1)
        tiles = kb_min(times(lines, stacks), p->slice >= p->k ? ahead + 1 : 2);
    return plus(space, times(tiles, gemm_sum_space(p, p->tile_rows, p->tile_columns)));
}

/* False if it does not fit. */
static bool try_plan(gemm_search *s, gemm_plan *p)
{
    if (space_of(p, s->ahead) > s->problem->space)
        return false;
    if (s->found && gemm_least_cost(s, p) >= s->cost)
        return true;
    uint64_t cost = gemm_cost(s, p);
    if (!s->found || cost < s->cost) {
        s->found = true;
        s->cost = cost;
        s->plan = *p;
    }
    return true;
}

/* What is used by several tiles stays if it fits: both, or one of them, or none. */
static void try_keeping(gemm_search *s, gemm_plan *p)
{
    const bool a_again = p->a_bytes > 0 && gemm_tile_stacks(p) > 1;
    const bool b_again = p->b_bytes > 0 && gemm_tile_lines(p) > 1;
    const bool is_grid = gemm_tile_stacks(p) > 1 && gemm_tile_lines(p) > 1;
    for (int order = 0; order < (is_grid ? 2 : 1); order++) {
        p->rows_first = order == 0;
        p->keeps_a = a_again;
        p->keeps_b = b_again;
        if (try_plan(s, p))
            continue;
        bool fits = false;
        if (a_again && b_again) {
            p->keeps_b = false;
            fits = try_plan(s, p);
            p->keeps_a = false;
            p->keeps_b = true;
            fits |= try_plan(s, p);
        }
        p->keeps_a = p->keeps_b = false;
        if (!fits)
            try_plan(s, p);
    }
}

/* Short slices to begin and to end with; or longer ones, if the TCM is too slow for these. */
static void try_ramps(gemm_search *s, gemm_plan *p)
{
    const bool is_slow = gemm_folds_are_slow(s, p);
    p->ramp = p->slice;
    try_keeping(s, p);
    for (p->ramp = p->fold; p->ramp < p->slice; p->ramp *= 2)
        if (p->ramp == p->fold || is_slow)
            try_keeping(s, p);
}

/* Those that make steps load as much as a command should: if none does, the nearest. */
static void try_strips(gemm_search *s, gemm_plan *p)
{
    const uint64_t a = times(times(p->slice, p->tile_rows), p->a_bytes);
    const uint64_t b = times(p->slice, p->b_bytes);
    uint64_t widths = KB_DIV_UP(p->tile_columns, p->width);
    for (;; widths = KB_DIV_UP(widths, 2)) {
        p->strip = kb_min(times(widths, p->width), p->tile_columns);
        uint64_t loaded = plus(a, times(b, p->strip));
        if (loaded <= MAX_LOAD_BYTES || widths == 1)
            try_ramps(s, p);
        if (loaded <= MIN_LOAD_BYTES || widths == 1)
            break;
    }
}

/* Into how many parts something is cut: 1, 2, 3, 4, 6, 8, 12, 16, ... */
static uint64_t next_parts(uint64_t parts)
{
    if (parts < 3)
        return parts + 1;
    bool is_power_of_two = (parts & (parts - 1)) == 0;
    return is_power_of_two ? parts / 2 * 3 : parts / 3 * 4;
}

/* Equal ones, as far as they go. */
static void try_slices(gemm_search *s, gemm_plan *p)
{
    const uint64_t folds = KB_DIV_UP(p->k, p->fold);
    const uint64_t bytes =
        plus(times(p->tile_rows, p->a_bytes), times(kb_min(p->width, p->tile_columns), p->b_bytes));
    for (uint64_t parts = 1, last = 0;; parts = next_parts(parts)) {
        p->slice = KB_DIV_UP(folds, parts) * p->fold;
        bool is_min = p->slice == p->fold;
        if (p->slice != last && (is_min || times(p->slice, bytes) <= MAX_LOAD_BYTES))
            try_strips(s, p);
        if (is_min)
            break;
        last = p->slice;
    }
}

static void try_tiles(gemm_search *s, uint64_t min_rows)
{
    const gemm_problem *is = s->problem;
    const uint64_t columns = s->params->gemm_columns, folds = KB_DIV_UP(is->n, columns);
    gemm_plan p = {
        .m = is->m,
        .k = is->k,
        .n = is->n,
        .fold = s->params->gemm_rows,
        .width = s->params->gemm_columns,
        .a_bytes = is->a_streams ? is->a_bytes : 0,
        .b_bytes = is->b_streams ? is->b_bytes : 0,
        .c_bytes = is->c_bytes,
    };
    for (uint64_t lines = 1;; lines = next_parts(lines)) {
        p.tile_rows = KB_DIV_UP(is->m, lines);
        if (lines > 1 && p.tile_rows < min_rows)
            break;
        for (uint64_t stacks = 1;; stacks = next_parts(stacks)) {
            p.tile_columns = kb_min(KB_DIV_UP(folds, stacks) * columns, is->n);
            try_slices(s, &p);
            if (p.tile_columns <= columns)
                break;
        }
        if (p.tile_rows == 1)
            break;
    }
}

/* With tiles of one row and one fold: there is nothing less. */
static kb_error *check_space(const topo_pe_params *params, const gemm_problem *is)
{
    const uint64_t depths = kb_min(params->gemm_rows, is->k);
    const uint64_t columns = kb_min(params->gemm_columns, is->n);
    uint64_t bytes = columns * kb_max(is->c_bytes, GEMM_SUM_BYTES);
    bytes += is->a_streams ? depths * is->a_bytes : 0;
    bytes += is->b_streams ? depths * columns * is->b_bytes : 0;
    if (bytes <= is->space)
        return NULL;
    return kb_error_new(KB_ERR_FAULT,
                        "matrix product %" PRIu64 " x %" PRIu64 " x %" PRIu64
                        " needs tiles of at least %" PRIu64 " bytes, but the scheduler has %" PRIu64
                        " bytes of TCM: raise cube.pe_tcm.reserved_mib",
                        is->m, is->k, is->n, bytes, is->space);
}

static uint64_t fs_per_byte(uint64_t bytes_per_s)
{
    return kb_max((uint64_t)topo_rate_time(bytes_per_s, 1), 1);
}

kb_error *gemm_plan_make(const topo_pe_params *params, const gemm_problem *problem, gemm_plan *plan)
{
    KB_TRY(check_space(params, problem));
    gemm_search s = {
        .params = params,
        .problem = problem,
        .folds = times(KB_DIV_UP(problem->k, params->gemm_rows),
                       KB_DIV_UP(problem->n, params->gemm_columns)),
        .fs_per_byte = fs_per_byte(problem->bytes_per_s),
        .tcm_fs_per_byte = fs_per_byte(params->tcm_bytes_per_s) * 9 / 8, /* it is never all busy */
    };
    for (s.ahead = AHEAD; s.ahead > 0 && !s.found; s.ahead--) {
        try_tiles(&s, FEW_ROWS);
        if (!s.found)
            try_tiles(&s, 1);
    }
    KB_ASSERT(s.found); /* at least those that check_space() knows */
    s.plan.loaded = gemm_count_loaded(&s.plan);
    s.plan.stored = problem->m * problem->n * problem->c_bytes;
    *plan = s.plan;
    return NULL;
}
