/*
 * matmul.c: the host's side of a matrix product: checks, plan, launch. Plans are made once for each
 * combination of shapes and layouts, and kept.
 */
#include "matmul.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "relayout.h"
#include "state.h"

/* ---- Plans ---- */

/* The parts of k and n that the PEs have of the weights, if the PEs are a grid as in plan.h; else
 * 0. */
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

static bool same_plan(const tp_matmul_plan *a, const tp_matmul_plan *b)
{
    return memcmp(&a->x, &b->x, sizeof a->x) == 0 && memcmp(&a->w, &b->w, sizeof a->w) == 0 &&
           memcmp(&a->out, &b->out, sizeof a->out) == 0 && a->has_bias == b->has_bias &&
           (!a->has_bias || memcmp(&a->bias, &b->bias, sizeof a->bias) == 0) &&
           a->x_column == b->x_column && a->rank == b->rank && a->ranks == b->ranks &&
           a->chunks == b->chunks && a->sum_dtype == b->sum_dtype;
}

static void make_plan(kb_context *ctx, tp_matmul_plan *plan)
{
    int64_t kept_k, kept_n;
    plan->is = (tp_problem){.m = plan->x.rows,
                            .k = plan->w.rows,
                            .n = plan->w.columns,
                            .x = plan->x.dtype,
                            .w = plan->w.dtype};
    plan->pe = tp_get_pe_params(ctx);
    find_kept_grid(&plan->pe, &plan->w, &kept_k, &kept_n);
    plan->grid = tp_choose_grid(&plan->pe, &plan->is, kept_k, kept_n);
    plan->steps =
        tp_choose_steps(&plan->pe, &plan->is, &plan->grid, plan->ranks > 1 ? plan->chunks : 0);
    plan->kernel = tp_matmul_kernel();
    plan->kernel.user = plan;
}

/* The plan for these views. */
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

static kb_error *view_operand(kb_context *ctx, const char *what, kb_tensor tensor, uint32_t *sip,
                              tp_view *view)
{
    uint32_t on;
    kb_error *err = tp_view_make(ctx, tensor, view);
    if (err)
        return kb_error_wrap(err, "%s", what);
    KB_TRY(kb_tensor_device(ctx, tensor, &on));
    if (*sip != TOPO_NONE && *sip != on)
        return kb_error_new(KB_ERR_INPUT,
                            "%s is on sip%" PRIu32 " and x on sip%" PRIu32
                            ": a matrix product needs all tensors on one device",
                            what, on, *sip);
    *sip = on;
    return NULL;
}

static kb_error *check_shapes(const tp_matmul_plan *p, int64_t x_columns)
{
    if (x_columns != p->w.rows || p->x_column + x_columns > p->x.columns ||
        p->out.rows != p->x.rows || p->out.columns != p->w.columns)
        return kb_error_new(KB_ERR_INPUT,
                            "shapes do not match: x (%" PRId64 ", %" PRId64 ") * w (%" PRId64
                            ", %" PRId64 ") = out (%" PRId64 ", %" PRId64 ")",
                            p->x.rows, x_columns, p->w.rows, p->w.columns, p->out.rows,
                            p->out.columns);
    if (p->x.rows == 0 || x_columns == 0 || p->w.columns == 0)
        return kb_error_new(KB_ERR_INPUT,
                            "empty matrix: x (%" PRId64 ", %" PRId64 ") * w (%" PRId64 ", %" PRId64
                            ")",
                            p->x.rows, x_columns, p->w.rows, p->w.columns);
    if (p->has_bias && (p->bias.rows != 1 || p->bias.columns != p->out.columns))
        return kb_error_new(KB_ERR_INPUT,
                            "the bias is (%" PRId64 ", %" PRId64 "): expected (%" PRId64 ",)",
                            p->bias.rows, p->bias.columns, p->out.columns);
    return NULL;
}

static kb_error *plan_spec(kb_context *ctx, const tp_matmul_spec *spec, tp_state **state,
                           uint32_t *sip, tp_matmul_plan **plan)
{
    tp_matmul_plan wanted;
    memset(&wanted, 0, sizeof wanted);
    *sip = TOPO_NONE;
    KB_TRY(tp_get_state(ctx, state));
    KB_TRY(view_operand(ctx, "x", spec->x, sip, &wanted.x));
    KB_TRY(view_operand(ctx, "w", spec->w, sip, &wanted.w));
    KB_TRY(view_operand(ctx, "out", spec->out, sip, &wanted.out));
    wanted.has_bias = spec->bias.id != 0;
    if (wanted.has_bias)
        KB_TRY(view_operand(ctx, "bias", spec->bias, sip, &wanted.bias));
    wanted.x_column = spec->x_column;
    wanted.ranks = spec->ranks > 1 ? spec->ranks : 1;
    if (wanted.ranks > 1) {
        wanted.rank = spec->rank;
        wanted.chunks = spec->chunks > 0 ? spec->chunks : 1;
        wanted.sum_dtype = spec->sum_dtype;
    }
    KB_TRY(check_shapes(&wanted, spec->x_columns > 0 ? spec->x_columns : wanted.x.columns));
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
    kb_tensor everywhere;
    kb_queue_set queues;
    uint32_t sip;
    int64_t k, n;
    const tp_pe_params pe = tp_get_pe_params(ctx);
    KB_TRY(tp_get_state(ctx, &state));
    KB_TRY(tp_view_make(ctx, w, &view));
    KB_TRY(kb_tensor_device(ctx, w, &sip));
    find_kept_grid(&pe, &view, &k, &n);
    KB_TRY(tp_get_everywhere(state, sip, &everywhere));
    return get_queues(state, sip, k > 0 ? tl_cdiv(view.rows, k) : 1, ranks > 1 ? rank : 0,
                      ranks > 1 ? ranks : 1, &queues);
}

/* Into spec->single first, and from there to all copies. */
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

/* The same with a tensor that is made for this call. Waits: that tensor has to go. */
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

kb_error *tp_matmul(kb_context *ctx, const tp_matmul_spec *spec)
{
    tp_state *state;
    tp_matmul_plan *plan;
    kb_tensor everywhere;
    kb_queue_set queues;
    uint32_t sip;
    if (spec->norm_gain.id != 0 || spec->gated || spec->residual.id != 0 || spec->x_by_cube ||
        spec->out_by_cube)
        return kb_error_new(KB_ERR_INPUT, "fused products are not supported yet");
    KB_TRY(plan_spec(ctx, spec, &state, &sip, &plan));
    if (plan->out.copies > 1)
        return spec->single.id != 0 ? multiply_to_copies(ctx, spec)
                                    : multiply_by_temporary(ctx, spec, sip, &plan->out);
    KB_TRY(tp_get_everywhere(state, sip, &everywhere));
    KB_TRY(get_queues(state, sip, plan->grid.team, (uint32_t)plan->rank, (uint32_t)plan->ranks,
                      &queues));
    if (plan->ranks > 1)
        KB_TRY(tp_match_ranks(state, sip, plan));
    const kb_arg args[] = {kb_arg_tensor(spec->x), kb_arg_tensor(spec->w),
                           plan->has_bias ? kb_arg_tensor(spec->bias) : kb_arg_integer(0),
                           kb_arg_tensor(spec->out), kb_arg_tensor(everywhere)};
    const kb_launch_options options = {
        .name = spec->name, .request = spec->request, .queues = queues, .stream = spec->stream};
    return kb_launch_args(ctx, &options, &plan->kernel, args, sizeof args / sizeof args[0]);
}

void tp_best_layout(kb_context *ctx, uint64_t m, uint64_t k, uint64_t n, kb_dtype dtype, bool gated,
                    kb_policy *w, kb_policy *x, kb_policy *out)
{
    const tp_pe_params pe = tp_get_pe_params(ctx);
    const tp_problem is = {
        .m = (int64_t)m, .k = (int64_t)k, .n = (int64_t)n, .x = dtype, .w = dtype};
    (void)gated;
    tp_grid grid = tp_choose_grid(&pe, &is, 0, 0);
    *w = (kb_policy){.tiling = KB_TILED_ROW_MAJOR,
                     .tile_rows = (uint64_t)grid.k_size,
                     .tile_columns = (uint64_t)grid.n_size};
    *x = *out = (kb_policy){.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
}
