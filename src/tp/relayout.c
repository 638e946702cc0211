/*
 * relayout.c: copies between layouts. Each PE loads the contents of its shards of the destination
 * from any PE, and stores them: its own copy, if there are several. Large shards are copied in
 * pieces.
 */
#include "relayout.h"

#include <stdlib.h>
#include <string.h>

#include "tp_state.h"

/* ---- The kernel ---- */

static tp_rect intersect(const tp_rect *a, const tp_rect *b)
{
    tp_rect both = {.row = kb_max(a->row, b->row), .column = kb_max(a->column, b->column)};
    both.rows = kb_min(a->row + a->rows, b->row + b->rows) - both.row;
    both.columns = kb_min(a->column + a->columns, b->column + b->columns) - both.column;
    return both;
}

kb_dtype tp_sum_dtype(kb_dtype x, kb_dtype w)
{
    bool integers = mem_is_integer(x) && mem_is_integer(w);
    return integers ? KB_I32 : KB_F32;
}

tl_tensor tp_cast(tl_context *tl, tl_tensor x, kb_dtype from, kb_dtype to)
{
    if (from == to)
        return x;
    tl_tensor cast = tl_cast(x, to);
    tl_free(x);
    return cast;
}

static void copy_piece(tl_context *tl, const tp_relayout_plan *plan, tl_ptr to, tl_ptr from,
                       tl_ptr bias, const tp_rect *at)
{
    int64_t column = at->column - plan->at.column + plan->from_column;
    int64_t row = at->row - plan->at.row + plan->from_row + column / plan->fold * plan->to.rows;
    const tp_rect source = {row, at->rows, column % plan->fold, at->columns};
    tl_tensor value = tp_load(tl, &plan->from, from, source);
    kb_dtype dtype = plan->from.dtype;
    if (plan->has_bias) {
        kb_dtype sum = tp_sum_dtype(dtype, plan->bias.dtype);
        const tp_rect bias_at = {0, 1, at->column, at->columns};
        tl_tensor added = tp_load(tl, &plan->bias, bias, bias_at);
        added = tp_cast(tl, added, plan->bias.dtype, sum);
        value = tp_cast(tl, value, dtype, sum);
        dtype = sum;
        tl_tensor with = tl_add(value, added);
        tl_free(value);
        tl_free(added);
        value = with;
    }
    value = tp_cast(tl, value, dtype, plan->to.dtype);
    tp_store(tl, &plan->to, to, *at, value);
    tl_free(value);
}

static void copy_block(tl_context *tl, const tp_relayout_plan *plan, tl_ptr to, tl_ptr from,
                       tl_ptr bias, const tp_rect *block)
{
    int64_t element = 4; /* bytes, the maximum */
    int64_t widest = kb_max(1, kb_min(block->columns, plan->piece_bytes / element));
    int64_t rows = kb_max(1, kb_min(block->rows, plan->piece_bytes / element / widest));
    int64_t source = block->column - plan->at.column + plan->from_column;
    for (int64_t row = 0; row < block->rows; row += rows)
        for (int64_t column = 0, columns; column < block->columns; column += columns) {
            int64_t left_of_fold = plan->fold - (source + column) % plan->fold;
            columns = kb_min(kb_min(widest, block->columns - column), left_of_fold);
            const tp_rect piece = {block->row + row, kb_min(rows, block->rows - row),
                                   block->column + column, columns};
            copy_piece(tl, plan, to, from, bias, &piece);
        }
}

KB_KERNEL(relayout, tl_ptr to, tl_ptr from, tl_ptr bias)
{
    const tp_relayout_plan *plan = tl_user();
    int64_t cube = tl_program_id(1), pe = tl_program_id(0);
    for (int64_t i = 0; i < tp_block_count(&plan->to, cube, pe); i++) {
        tp_block block = tp_get_block(&plan->to, cube, pe, i);
        tp_rect at = intersect(&block.at, &plan->at);
        if (at.rows > 0 && at.columns > 0)
            copy_block(tl, plan, to, from, bias, &at);
    }
}

static kb_kernel relayout_kernel(void)
{
    return relayout;
}

/* ---- The host ---- */

static bool same_plan(const tp_relayout_plan *a, const tp_relayout_plan *b)
{
    return memcmp(&a->to, &b->to, sizeof a->to) == 0 &&
           memcmp(&a->from, &b->from, sizeof a->from) == 0 && a->has_bias == b->has_bias &&
           (!a->has_bias || memcmp(&a->bias, &b->bias, sizeof a->bias) == 0) &&
           memcmp(&a->at, &b->at, sizeof a->at) == 0 && a->from_row == b->from_row &&
           a->from_column == b->from_column && a->fold == b->fold;
}

static kb_error *get_plan(tp_state *state, const tp_relayout_plan *wanted, tp_relayout_plan **out)
{
    for (*out = state->relayouts; *out; *out = (*out)->next)
        if (same_plan(*out, wanted))
            return NULL;
    tp_relayout_plan *plan = kb_alloc_array(1, sizeof *plan);
    if (!plan)
        return kb_error_nomem();
    *plan = *wanted;
    plan->kernel = relayout_kernel();
    plan->kernel.user = plan;
    plan->next = state->relayouts;
    state->relayouts = plan;
    *out = plan;
    return NULL;
}

kb_error *tp_relayout(kb_context *ctx, const tp_relayout_spec *spec)
{
    tp_state *state;
    tp_relayout_plan wanted, *plan;
    KB_TRY(tp_get_state(ctx, &state));
    memset(&wanted, 0, sizeof wanted);
    KB_TRY(tp_view_make(ctx, spec->to, &wanted.to));
    KB_TRY(tp_view_make(ctx, spec->from, &wanted.from));
    wanted.has_bias = spec->bias.id != 0;
    if (wanted.has_bias)
        KB_TRY(tp_view_make(ctx, spec->bias, &wanted.bias));
    wanted.at = spec->at;
    if (spec->at.rows == 0 && spec->at.columns == 0)
        wanted.at = (tp_rect){.rows = wanted.to.rows, .columns = wanted.to.columns};
    wanted.from_row = spec->from_row;
    wanted.from_column = spec->from_column;
    wanted.fold = spec->fold > 0 ? spec->fold : wanted.from.columns;
    wanted.piece_bytes = (int64_t)kb_context_machine(ctx).tcm_bytes / 16;
    KB_TRY(get_plan(state, &wanted, &plan));
    const kb_arg args[] = {kb_arg_tensor(spec->to), kb_arg_tensor(spec->from),
                           wanted.has_bias ? kb_arg_tensor(spec->bias) : kb_arg_integer(0)};
    const kb_launch_options options = {
        .name = spec->name, .request = spec->request, .stream = spec->stream};
    return kb_launch_args(ctx, &options, &plan->kernel, args, sizeof args / sizeof args[0]);
}
