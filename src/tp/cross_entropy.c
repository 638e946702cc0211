/*
 * cross_entropy.c: the loss of logits whose vocabulary is split over the ranks, and its steps. Rows
 * are distributed over the PEs; a PE processes a row piece by piece. A collective combines the
 * results of the ranks.
 */
#include <inttypes.h>
#include <string.h>

#include "layers.h"

/* ---- The kernel ---- */

/* A piece of a row of logits, as f32. */
static tl_tensor load_logits(tl_context *tl, const tp_row_plan *plan, tl_ptr logits, int64_t row,
                             int64_t column)
{
    const tp_rect at = {row, 1, column, kb_min(plan->piece, plan->logits.columns - column)};
    return tp_cast(tl, tp_load(tl, &plan->logits, logits, at), plan->logits.dtype, KB_F32);
}

/* The maximum, or the sum of exponentials, of a row. */
static tl_tensor reduce_row(tl_context *tl, const tp_row_plan *plan, tl_ptr logits, tl_tensor max,
                            int64_t row)
{
    tl_tensor result = {0};
    for (int64_t column = 0; column < plan->logits.columns; column += plan->piece) {
        tl_tensor piece = load_logits(tl, plan, logits, row, column);
        tl_tensor next =
            plan->step == TP_ROW_MAX ? tl_max(piece, 1) : tl_sum(tl_exp(tl_sub(piece, max)), 1);
        if (result.id == 0)
            result = next;
        else
            result = plan->step == TP_ROW_MAX ? tl_maximum(result, next) : tl_add(result, next);
    }
    return result;
}

/* The logit of the target minus the maximum; 0 if another rank has the target. */
static tl_tensor predict_row(tl_context *tl, const tp_row_plan *plan, tl_ptr logits, tl_tensor max,
                             tl_ptr targets, int64_t row)
{
    tl_tensor target = tl_load(targets + row * 4, tl_shape(1), TL_I32);
    int64_t column = (int64_t)tl_item_or(target, plan->first_column) - plan->first_column;
    if (column < 0 || column >= plan->logits.columns)
        return tl_zeros(tl_shape(1, 1), TL_F32);
    const tp_rect at = {row, 1, column, 1};
    tl_tensor logit =
        tp_cast(tl, tp_load(tl, &plan->logits, logits, at), plan->logits.dtype, TL_F32);
    return tl_sub(logit, max);
}

KB_KERNEL(row_step, tl_ptr logits, tl_ptr max, tl_ptr other, tl_ptr out, tl_ptr all_pes)
{
    (void)all_pes;
    const tp_row_plan *plan = tl_user();
    int64_t pe = tl_program_id(1) * plan->pes + tl_program_id(0), all = plan->cubes * plan->pes;
    int64_t first = tl_part_begin(plan->rows, all, pe), count = tl_part_size(plan->rows, all, pe);
    for (int64_t row = first; row < first + count; row++)
        TL_SCOPE {
            tl_tensor m = {0}, result;
            if (plan->step == TP_ROW_SUM_EXP || plan->step == TP_ROW_PREDICT)
                m = tl_load(max + row * 4, tl_shape(1, 1), TL_F32);
            if (plan->step == TP_ROW_LOSS) /* of the sum, and of the predicted logit */
                result = tl_sub(tl_log(tl_load(max + row * 4, tl_shape(1, 1), TL_F32)),
                                tl_load(other + row * 4, tl_shape(1, 1), TL_F32));
            else if (plan->step == TP_ROW_PREDICT)
                result = predict_row(tl, plan, logits, m, other, row);
            else
                result = reduce_row(tl, plan, logits, m, row);
            tl_store(out + row * 4, result);
        }
}

/* ---- The host ---- */

static kb_error *get_plan(tp_state *state, const tp_row_plan *wanted, tp_row_plan **out)
{
    for (*out = state->row_steps; *out; *out = (*out)->next)
        if ((*out)->step == wanted->step && (*out)->rows == wanted->rows &&
            (*out)->first_column == wanted->first_column &&
            memcmp(&(*out)->logits, &wanted->logits, sizeof wanted->logits) == 0)
            return NULL;
    tp_row_plan *plan = kb_alloc_array(1, sizeof *plan);
    if (!plan)
        return kb_error_nomem();
    *plan = *wanted;
    plan->kernel = row_step;
    plan->kernel.user = plan;
    plan->next = state->row_steps;
    state->row_steps = plan;
    *out = plan;
    return NULL;
}

/* A call: the logits, their view and device. */
typedef struct loss_call {
    const char *function;
    tp_rank at;
    tp_view view;
    kb_shape shape; /* of one element for each row */
    uint32_t sip;
    kb_tensor logits;
} loss_call;

static kb_error *enter(kb_context *ctx, const char *function, kb_tensor logits, loss_call *call)
{
    *call = (loss_call){.function = function, .logits = logits};
    KB_TRY(tp_get_rank(ctx, function, &call->at));
    kb_error *err = tp_view_make(ctx, logits, &call->view);
    if (err)
        return kb_error_wrap(err, "%s: logits", function);
    KB_TRY(kb_tensor_device(ctx, logits, &call->sip));
    KB_TRY(kb_tensor_shape(ctx, logits, &call->shape));
    if (call->view.rows == 0 || call->view.columns == 0)
        return kb_error_new(KB_ERR_INPUT, "%s: the logits are empty", function);
    call->shape.rank = call->shape.rank > 1 ? call->shape.rank - 1 : 1;
    if (call->view.rows == 1)
        call->shape = KB_SHAPE(1);
    return NULL;
}

/* The output, packed on one PE, so that kernels can index it by row. */
static kb_error *take_result(kb_context *ctx, const loss_call *call, const char *name,
                             kb_tensor *result)
{
    static const kb_policy one_pe = {.num_cubes = 1, .num_pes = 1};
    if (result->id == 0) {
        const kb_tensor_spec spec = {
            .name = name, .dtype = KB_F32, .shape = call->shape, .policy = &one_pe};
        return tp_make_tensor(ctx, call->sip, &spec, result);
    }
    rt_tensor_view view;
    KB_TRY(rt_view_tensor(ctx, *result, &view));
    if (!view.on_host && view.sip == call->sip && view.dtype == KB_F32 &&
        view.elements == (uint64_t)call->view.rows && view.shard_count == 1)
        return NULL;
    return kb_error_new(KB_ERR_INPUT,
                        "%s: tensor '%s' cannot hold %" PRId64
                        " results: expected as many elements, f32, on one PE of sip%" PRIu32
                        " (no policy)",
                        call->function, view.name, call->view.rows, call->sip);
}

static kb_error *launch_step(kb_context *ctx, const loss_call *call, tp_row_step step,
                             kb_tensor max, kb_tensor other, kb_tensor out)
{
    static const char *const names[] = {"vocab_max", "vocab_sum_exp", "predicted_logit",
                                        "cross_entropy"};
    tp_state *state;
    tp_row_plan wanted, *plan;
    kb_tensor all_pes;
    kb_machine machine = kb_context_machine(ctx);
    memset(&wanted, 0, sizeof wanted);
    KB_TRY(tp_get_state(ctx, &state));
    wanted.step = step;
    wanted.logits = call->view;
    wanted.rows = call->view.rows;
    wanted.first_column = call->view.columns * call->at.index;
    wanted.cubes = machine.cubes;
    wanted.pes = machine.pes;
    wanted.piece = (int64_t)machine.tcm_bytes / 64; /* elements; some values of 4 bytes at a time */
    KB_TRY(get_plan(state, &wanted, &plan));
    KB_TRY(tp_get_all_pes_tensor(state, call->sip, &all_pes));
    const kb_arg args[] = {kb_arg_tensor(call->logits),
                           max.id != 0 ? kb_arg_tensor(max) : kb_arg_integer(0),
                           other.id != 0 ? kb_arg_tensor(other) : kb_arg_integer(0),
                           kb_arg_tensor(out), kb_arg_tensor(all_pes)};
    const kb_launch_options options = {.name = names[step]};
    return kb_launch_args(ctx, &options, &plan->kernel, args, sizeof args / sizeof args[0]);
}

/* A step on each rank, and the collective that combines the results. */
static kb_error *run_step(kb_context *ctx, const loss_call *call, tp_row_step step, kb_tensor max,
                          kb_tensor other, kb_tensor *out)
{
    bool was_given = out->id != 0;
    KB_TRY(take_result(ctx, call, "rows", out));
    kb_error *err = launch_step(ctx, call, step, max, other, *out);
    if (!err && step != TP_ROW_LOSS)
        err = tp_all_reduce(ctx, &call->at, *out, step == TP_ROW_MAX ? KB_MAX : KB_SUM);
    return tp_end_output(ctx, err, was_given, out);
}

kb_error *kb_vocab_parallel_max(kb_context *ctx, kb_tensor logits, kb_tensor *max)
{
    loss_call call;
    KB_TRY(enter(ctx, "kb_vocab_parallel_max", logits, &call));
    return run_step(ctx, &call, TP_ROW_MAX, (kb_tensor){0}, (kb_tensor){0}, max);
}

/* The maxima must have the layout that this file makes. */
static kb_error *check_max(kb_context *ctx, const loss_call *call, kb_tensor max)
{
    if (max.id == 0)
        return kb_error_new(KB_ERR_INPUT, "%s: no maxima are given (kb_vocab_parallel_max)",
                            call->function);
    return take_result(ctx, call, "max", &max);
}

kb_error *kb_vocab_parallel_sum_exp(kb_context *ctx, kb_tensor logits, kb_tensor max,
                                    kb_tensor *sum)
{
    loss_call call;
    KB_TRY(enter(ctx, "kb_vocab_parallel_sum_exp", logits, &call));
    KB_TRY(check_max(ctx, &call, max));
    return run_step(ctx, &call, TP_ROW_SUM_EXP, max, (kb_tensor){0}, sum);
}

kb_error *kb_vocab_parallel_predicted_logit(kb_context *ctx, kb_tensor logits, kb_tensor targets,
                                            kb_tensor max, kb_tensor *predicted)
{
    static const char function[] = "kb_vocab_parallel_predicted_logit";
    loss_call call;
    tp_indices indices;
    KB_TRY(enter(ctx, function, logits, &call));
    KB_TRY(check_max(ctx, &call, max));
    KB_TRY(tp_get_indices(ctx, function, "targets", targets, call.sip, &indices));
    kb_error *err = NULL;
    if (indices.count != (uint64_t)call.view.rows)
        err = kb_error_new(KB_ERR_INPUT,
                           "%s: there are %" PRIu64 " targets for %" PRId64 " rows of logits",
                           function, indices.count, call.view.rows);
    if (!err)
        err = run_step(ctx, &call, TP_ROW_PREDICT, max, indices.packed, predicted);
    return tp_free_indices(ctx, &indices, err);
}

kb_error *kb_vocab_parallel_cross_entropy(kb_context *ctx, kb_tensor logits, kb_tensor targets,
                                          kb_tensor *loss)
{
    loss_call call;
    kb_tensor values[3] = {{0}, {0}, {0}}; /* maximum, sum, predicted */
    KB_TRY(enter(ctx, "kb_vocab_parallel_cross_entropy", logits, &call));
    KB_TRY(tp_refuse_recording(ctx, call.function, "call it outside the graph"));
    kb_error *err = kb_vocab_parallel_max(ctx, logits, &values[0]);
    if (!err)
        err = kb_vocab_parallel_sum_exp(ctx, logits, values[0], &values[1]);
    if (!err)
        err = kb_vocab_parallel_predicted_logit(ctx, logits, targets, values[0], &values[2]);
    if (!err)
        err = run_step(ctx, &call, TP_ROW_LOSS, values[1], values[2], loss);
    for (int i = 0; i < 3; i++) {
        kb_error *freed = values[i].id != 0 ? kb_tensor_free(ctx, values[i]) : NULL;
        if (err)
            kb_error_free(freed);
        else
            err = freed;
    }
    return err;
}
