/*
 * matmul.c: the host side of a matrix product: checks, plan, launch. A plan is made once for each
 * combination of shapes and layouts, and cached.
 */
#include "matmul.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "relayout.h"
#include "tp_state.h"

/* ---- Plans ---- */

/* The sizes of the parts of k and n in the layout of the weights, if it fits a grid of division.h;
 * else 0. */
static void find_kept_grid(const tp_pe_params *pe, const tp_view *w, int64_t *k, int64_t *n)
{
    *k = *n = 0;
    if (w->cubes != pe->cubes || w->pes != pe->pes)
        return;
    if (w->tiling == KB_TILED_ROW_MAJOR) {
        *k = w->tile_rows < w->rows ? w->tile_rows : w->rows;
        *n = w->tile_columns < w->columns ? w->tile_columns : w->columns;
    } else if (w->tiling == KB_NOT_TILED && w->cube == KB_COLUMN_WISE) {
        bool by_rows = w->pe == KB_ROW_WISE && w->rows % w->pes == 0 && w->columns % w->cubes == 0;
        bool by_columns = w->pe == KB_COLUMN_WISE && w->columns % (w->cubes * w->pes) == 0;
        if (by_rows) {
            *k = w->rows / w->pes;
            *n = w->columns / w->cubes;
        } else if (by_columns) {
            *k = w->rows;
            *n = w->columns / (w->cubes * w->pes);
        }
    }
}

static bool same_view(bool is_used, const tp_view *a, const tp_view *b)
{
    return !is_used || memcmp(a, b, sizeof *a) == 0;
}

static bool same_plan(const tp_matmul_plan *a, const tp_matmul_plan *b)
{
    return same_view(true, &a->x, &b->x) && same_view(true, &a->w, &b->w) &&
           same_view(true, &a->out, &b->out) && a->has_bias == b->has_bias &&
           same_view(a->has_bias, &a->bias, &b->bias) && a->has_gain == b->has_gain &&
           same_view(a->has_gain, &a->gain, &b->gain) && a->eps == b->eps &&
           a->has_residual == b->has_residual &&
           same_view(a->has_residual, &a->residual, &b->residual) &&
           a->problem.gated == b->problem.gated && a->x_column == b->x_column &&
           a->rank == b->rank && a->ranks == b->ranks && a->chunks == b->chunks &&
           a->sum_dtype == b->sum_dtype;
}

/* Only for long products on machines where all teams take part. */
static int64_t count_paced_groups(const tp_matmul_plan *plan)
{
    const tp_grid *grid = &plan->grid;
    int64_t teams = grid->m_parts * grid->n_parts;
    bool all = teams == plan->pe.cubes * plan->pe.pes / grid->team;
    int64_t groups = tp_count_groups(grid, &plan->steps);
    int64_t rounds = tp_pace_rounds(teams);
    bool takes_long = groups > rounds && rounds < TP_MAX_ROUNDS;
    return plan->ranks > 1 && all && teams > 1 && takes_long ? groups : 0;
}

static void make_plan(kb_context *ctx, tp_matmul_plan *plan)
{
    int64_t kept_k, kept_n;
    plan->problem = (tp_problem){.m = plan->x.rows,
                                 .k = plan->w.rows,
                                 .n = plan->w.columns,
                                 .x = plan->x.dtype,
                                 .w = plan->w.dtype,
                                 .gated = plan->problem.gated,
                                 .norm = plan->has_gain,
                                 .x_by_cube = plan->x.cube_copies > 1};
    plan->pe = tp_get_pe_params(ctx);
    find_kept_grid(&plan->pe, &plan->w, &kept_k, &kept_n);
    plan->grid = tp_choose_grid(&plan->pe, &plan->problem, kept_k, kept_n);
    plan->steps =
        tp_choose_steps(&plan->pe, &plan->problem, &plan->grid, plan->ranks > 1 ? plan->chunks : 0);
    plan->paced = count_paced_groups(plan);
    plan->kernel = tp_matmul_kernel();
    plan->kernel.user = plan;
}

/* The cached plan for these views, or a new one. */
static kb_error *get_plan(tp_state *state, const tp_matmul_plan *wanted, tp_matmul_plan **out)
{
    for (*out = state->matmuls; *out; *out = (*out)->next)
        if (same_plan(*out, wanted))
            return NULL;
    tp_matmul_plan *plan = kb_alloc_array(1, sizeof *plan);
    if (!plan)
        return kb_error_nomem();
    *plan = *wanted;
    make_plan(state->ctx, plan);
    plan->next = state->matmuls;
    state->matmuls = plan;
    *out = plan;
    return NULL;
}

/* ---- Arguments ---- */

/* A tensor of a call, to be viewed. All must be on one device. */
typedef struct operand {
    const char *what;
    kb_tensor tensor;
    bool by_cube;
    tp_view *view;
    bool *is_there; /* NULL: it is required */
} operand;

static kb_error *view_operand(kb_context *ctx, const operand *op, uint32_t *sip)
{
    uint32_t on;
    if (op->is_there)
        *op->is_there = op->tensor.id != 0;
    if (op->is_there && op->tensor.id == 0)
        return NULL;
    kb_error *err = op->by_cube ? tp_view_make_by_cube(ctx, op->tensor, op->view)
                                : tp_view_make(ctx, op->tensor, op->view);
    if (err)
        return kb_error_wrap(err, "%s", op->what);
    KB_TRY(kb_tensor_device(ctx, op->tensor, &on));
    if (*sip != TOPO_NONE && *sip != on)
        return kb_error_new(KB_ERR_INPUT,
                            "%s is on sip%" PRIu32 " and x on sip%" PRIu32
                            ": a matrix product needs all tensors on one device",
                            op->what, on, *sip);
    *sip = on;
    return NULL;
}

static kb_error *check_vector(const char *what, const tp_view *view, int64_t columns)
{
    if (view->rows != 1 || view->columns != columns)
        return kb_error_new(KB_ERR_INPUT,
                            "the %s is (%" PRId64 ", %" PRId64 "): expected (%" PRId64 ",)", what,
                            view->rows, view->columns, columns);
    return NULL;
}

static kb_error *check_shapes(const tp_matmul_plan *p, int64_t x_columns)
{
    if (p->problem.gated && p->w.columns % 2 != 0)
        return kb_error_new(KB_ERR_INPUT,
                            "gated: w has %" PRId64 " columns, which are not pairs (gate, up)",
                            p->w.columns);
    if (x_columns != p->w.rows || p->x_column + x_columns > p->x.columns ||
        p->out.rows != p->x.rows || p->out.columns != p->w.columns / (p->problem.gated ? 2 : 1))
        return kb_error_new(KB_ERR_INPUT,
                            "shapes do not match: %sx (%" PRId64 ", %" PRId64 ") * w (%" PRId64
                            ", %" PRId64 ") = out (%" PRId64 ", %" PRId64 ")",
                            p->problem.gated ? "gated " : "", p->x.rows, x_columns, p->w.rows,
                            p->w.columns, p->out.rows, p->out.columns);
    if (p->x.rows == 0 || x_columns == 0 || p->w.columns == 0)
        return kb_error_new(KB_ERR_INPUT,
                            "empty matrix: x (%" PRId64 ", %" PRId64 ") * w (%" PRId64 ", %" PRId64
                            ")",
                            p->x.rows, x_columns, p->w.rows, p->w.columns);
    if (p->has_bias)
        KB_TRY(check_vector("bias", &p->bias, p->w.columns));
    if (p->has_gain)
        KB_TRY(check_vector("gain of the norm", &p->gain, p->w.rows));
    if (p->has_residual &&
        (p->residual.rows != p->out.rows || p->residual.columns != p->out.columns))
        return kb_error_new(KB_ERR_INPUT,
                            "the residual is (%" PRId64 ", %" PRId64 "): expected (%" PRId64
                            ", %" PRId64 ")",
                            p->residual.rows, p->residual.columns, p->out.rows, p->out.columns);
    return NULL;
}

static kb_error *check_fused(const tp_matmul_plan *p)
{
    bool integers = tp_sum_dtype(p->x.dtype, p->w.dtype) == KB_I32;
    if ((p->has_gain || p->problem.gated) && (integers || mem_is_integer(p->x.dtype)))
        return kb_error_new(KB_ERR_INPUT, "%s: x is %s: expected a floating-point dtype",
                            p->has_gain ? "norm" : "gated", kb_dtype_name(p->x.dtype));
    if (p->has_gain && mem_is_integer(p->gain.dtype))
        return kb_error_new(KB_ERR_INPUT, "norm: the gain is %s: expected a floating-point dtype",
                            kb_dtype_name(p->gain.dtype));
    if (p->has_residual && mem_is_integer(p->residual.dtype) != integers)
        return kb_error_new(KB_ERR_INPUT, "the residual is %s, but sums are %s",
                            kb_dtype_name(p->residual.dtype),
                            integers ? kb_dtype_name(KB_I32) : kb_dtype_name(KB_F32));
    if (p->has_gain && !(p->eps >= 0))
        return kb_error_new(KB_ERR_INPUT, "norm: eps is %g: expected at least 0", p->eps);
    if (p->has_gain && (p->ranks > 1 || p->x.columns != p->w.rows))
        return kb_error_new(KB_ERR_INPUT, "norm: needs whole rows of x: without sums over ranks, "
                                          "and with all columns of x");
    return NULL;
}

static kb_error *plan_spec(kb_context *ctx, const tp_matmul_spec *spec, tp_state **state,
                           uint32_t *sip, tp_matmul_plan **plan)
{
    tp_matmul_plan wanted;
    memset(&wanted, 0, sizeof wanted);
    const operand operands[] = {
        {"x", spec->x, spec->x_by_cube, &wanted.x, NULL},
        {"w", spec->w, false, &wanted.w, NULL},
        {"out", spec->out, spec->out_by_cube, &wanted.out, NULL},
        {"bias", spec->bias, false, &wanted.bias, &wanted.has_bias},
        {"gain", spec->norm_gain, false, &wanted.gain, &wanted.has_gain},
        {"residual", spec->residual, spec->out_by_cube, &wanted.residual, &wanted.has_residual},
    };
    *sip = TOPO_NONE;
    KB_TRY(tp_get_state(ctx, state));
    for (size_t i = 0; i < sizeof operands / sizeof operands[0]; i++)
        KB_TRY(view_operand(ctx, &operands[i], sip));
    wanted.problem.gated = spec->gated;
    wanted.eps = wanted.has_gain ? spec->norm_eps : 0;
    wanted.x_column = spec->x_column;
    wanted.ranks = spec->ranks > 1 ? spec->ranks : 1;
    if (wanted.ranks > 1) {
        wanted.rank = spec->rank;
        wanted.chunks = spec->chunks > 0 ? spec->chunks : 1;
        wanted.sum_dtype = spec->sum_dtype;
    }
    KB_TRY(check_shapes(&wanted, spec->x_columns > 0 ? spec->x_columns : wanted.x.columns));
    KB_TRY(check_fused(&wanted));
    return get_plan(*state, &wanted, plan);
}

/* ---- Calls ---- */

static kb_error *get_queues(tp_state *state, uint32_t sip, int64_t team, uint32_t rank,
                            uint32_t ranks, kb_queue_set *queues)
{
    KB_ASSERT(rank <= sip);
    return tp_get_team_queues(state, sip - rank, ranks, team, queues);
}

kb_error *tp_matmul_prepare(kb_context *ctx, kb_tensor w, uint32_t rank, uint32_t ranks)
{
    tp_state *state;
    tp_view view;
    kb_tensor all_pes;
    kb_queue_set queues;
    uint32_t sip;
    int64_t k, n;
    const tp_pe_params pe = tp_get_pe_params(ctx);
    KB_TRY(tp_get_state(ctx, &state));
    KB_TRY(tp_view_make(ctx, w, &view));
    KB_TRY(kb_tensor_device(ctx, w, &sip));
    find_kept_grid(&pe, &view, &k, &n);
    KB_TRY(tp_get_all_pes_tensor(state, sip, &all_pes));
    return get_queues(state, sip, k > 0 ? tl_cdiv(view.rows, k) : 1, ranks > 1 ? rank : 0,
                      ranks > 1 ? ranks : 1, &queues);
}

/* Multiplies into spec->single, and copies that to all copies of `out`. */
static kb_error *multiply_to_copies(kb_context *ctx, const tp_matmul_spec *spec)
{
    tp_matmul_spec to_single = *spec;
    to_single.out = spec->single;
    to_single.request = NULL;
    const tp_relayout_spec copy = {.name = "copy_output",
                                   .to = spec->out,
                                   .from = spec->single,
                                   .stream = spec->stream,
                                   .request = spec->request};
    KB_TRY(tp_matmul(ctx, &to_single));
    return tp_relayout(ctx, &copy);
}

/* The same with a temporary tensor. Waits, because the tensor must be freed. */
static kb_error *multiply_by_temporary(kb_context *ctx, const tp_matmul_spec *spec, uint32_t sip,
                                       const tp_view *out)
{
    tp_matmul_spec with_single = *spec;
    const kb_tensor_spec like = {.dtype = out->dtype,
                                 .shape = KB_SHAPE((uint64_t)out->rows, (uint64_t)out->columns)};
    KB_TRY(tp_make_tensor(ctx, sip, &like, &with_single.single));
    kb_error *err = multiply_to_copies(ctx, &with_single);
    if (!err && spec->request)
        err = kb_request_wait(ctx, *spec->request, NULL);
    kb_error *freed = kb_tensor_free(ctx, with_single.single);
    if (!err)
        return freed;
    kb_error_free(freed);
    return err;
}

static kb_arg optional_arg(kb_tensor tensor)
{
    return tensor.id != 0 ? kb_arg_tensor(tensor) : kb_arg_integer(0);
}

kb_error *tp_matmul(kb_context *ctx, const tp_matmul_spec *spec)
{
    tp_state *state;
    tp_matmul_plan *plan;
    kb_tensor all_pes;
    kb_queue_set queues;
    uint32_t sip;
    KB_TRY(plan_spec(ctx, spec, &state, &sip, &plan));
    if (plan->out.copies > 1)
        return spec->single.id != 0 ? multiply_to_copies(ctx, spec)
                                    : multiply_by_temporary(ctx, spec, sip, &plan->out);
    KB_TRY(tp_get_all_pes_tensor(state, sip, &all_pes));
    KB_TRY(get_queues(state, sip, plan->grid.team, (uint32_t)plan->rank, (uint32_t)plan->ranks,
                      &queues));
    if (plan->ranks > 1)
        KB_TRY(tp_match_ranks(state, sip, plan));
    const kb_arg args[] = {kb_arg_tensor(spec->x),       kb_arg_tensor(spec->w),
                           optional_arg(spec->bias),     optional_arg(spec->norm_gain),
                           optional_arg(spec->residual), kb_arg_tensor(spec->out),
                           kb_arg_tensor(all_pes)};
    const kb_launch_options options = {
        .name = spec->name, .request = spec->request, .queues = queues, .stream = spec->stream};
    return kb_launch_args(ctx, &options, &plan->kernel, args, sizeof args / sizeof args[0]);
}

void tp_best_layout(kb_context *ctx, uint64_t m, uint64_t k, uint64_t n, kb_dtype dtype, bool gated,
                    kb_policy *w, kb_policy *x, kb_policy *out)
{
    const tp_pe_params pe = tp_get_pe_params(ctx);
    const tp_problem problem = {
        .m = (int64_t)m, .k = (int64_t)k, .n = (int64_t)n, .x = dtype, .w = dtype, .gated = gated};
    tp_grid grid = tp_choose_grid(&pe, &problem, 0, 0);
    *w = (kb_policy){.tiling = KB_TILED_ROW_MAJOR,
                     .tile_rows = (uint64_t)grid.k_size,
                     .tile_columns = (uint64_t)grid.n_size};
    *x = *out = (kb_policy){.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
}
