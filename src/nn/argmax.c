/*
 * argmax.c: the column of the largest element of each row.
 *
 * Columns are distributed over the PEs as in a tensor that is split by columns, so that each PE
 * reads its own memory; the results are exchanged (exchange.h). If the logits are split by rows, or
 * the device has no queues for the exchange, rows are distributed instead.
 *
 * Over ranks: each rank writes its values and columns to a buffer, (2, rows); a collective gathers
 * these, and each rank chooses among them. Values are f32, columns i32, in the same tensor.
 */
#include <math.h>
#include <string.h>

#include <kernbench/tp.h>

#include "exchange.h"
#include "layer.h"
#include "rows.h"

/* Numbers only: plans are compared byte by byte. */
typedef struct argmax_plan {
    tp_view logits, out;
    nn_peers peers;
    bool exchanges;       /* columns are distributed; else rows */
    bool is_staged;       /* the output is a buffer for columns and values */
    int64_t first_column; /* of the rank, in the vocabulary */
    int64_t budget;       /* elements at a time */
} argmax_plan;

enum {
    TCM_PER_ELEMENT = 32, /* bytes, for some pieces in flight */
    MAX_BUDGET = 65536,
    MAX_BANDS = 16, /* of rows in one exchange */
};

/* ---- The kernel ---- */

/* Of a rectangle: value and column, both (rows, 1). */
static nn_largest search_piece(tl_context *tl, const argmax_plan *plan, tl_ptr logits, tp_rect at)
{
    tl_tensor x = nn_load(tl, &plan->logits, logits, at), local = tl_argmax(x, 1);
    tl_tensor value = tl_gather(x, local, 1);
    nn_largest found = {.values = tp_cast(tl, value, plan->logits.dtype, KB_F32),
                        .indices = tl_add(local, at.column + plan->first_column)};
    tl_free(x);
    tl_free(local);
    return found;
}

/* The larger of two, of which `a` has the lower columns. Consumes both. */
static nn_largest larger_of(tl_context *tl, nn_largest a, nn_largest b)
{
    nn_largest both = {tl_concat(1, a.values, b.values), tl_concat(1, a.indices, b.indices)};
    tl_free(a.values);
    tl_free(a.indices);
    tl_free(b.values);
    tl_free(b.indices);
    return nn_choose_largest(tl, both);
}

/* Of rows over a range of columns, which may be empty. */
static nn_largest search(tl_context *tl, const argmax_plan *plan, tl_ptr logits, tp_rect range)
{
    nn_largest best = {{0}, {0}};
    if (range.columns == 0)
        return (nn_largest){tl_full(tl_shape(range.rows, 1), TL_F32, -INFINITY),
                            tl_zeros(tl_shape(range.rows, 1), TL_I32)};
    int64_t step = kb_max(1, kb_min(range.columns, plan->budget / range.rows));
    for (int64_t column = 0; column < range.columns; column += step) {
        tp_rect at = range;
        at.column += column;
        at.columns = kb_min(step, range.columns - column);
        nn_largest next = search_piece(tl, plan, logits, at);
        best = best.values.id == 0 ? next : larger_of(tl, best, next);
    }
    return best;
}

static void store(tl_context *tl, const argmax_plan *plan, tl_ptr out, int64_t row, int64_t rows,
                  nn_largest found)
{
    if (plan->is_staged) {
        tl_store(out + row * 4, found.values);
        tl_store(out + (plan->logits.rows + row) * 4, found.indices, .reinterpret = true);
    } else {
        nn_store_rows(tl, &plan->out, out, row, rows, found.indices);
    }
    tl_free(found.values);
    tl_free(found.indices);
}

/* The columns of this PE in a tensor that is split by columns over all PEs. */
static tp_rect own_columns(tl_context *tl, const argmax_plan *plan)
{
    int64_t cube = tl_program_id(1), pe = tl_program_id(0);
    int64_t begin = tl_part_begin(plan->logits.columns, plan->peers.cubes, cube);
    int64_t size = tl_part_size(plan->logits.columns, plan->peers.cubes, cube);
    return (tp_rect){.column = begin + tl_part_begin(size, plan->peers.pes, pe),
                     .columns = tl_part_size(size, plan->peers.pes, pe)};
}

/* Of rows over a range of columns, `step` rows at a time. */
static nn_largest search_bands(tl_context *tl, const argmax_plan *plan, tl_ptr logits,
                               tp_rect range, int64_t step)
{
    tl_tensor values[MAX_BANDS] = {{0}}, indices[MAX_BANDS] = {{0}};
    size_t count = 0;
    for (int64_t row = 0; row < range.rows; row += step) {
        tp_rect band = range;
        band.row += row;
        band.rows = kb_min(step, range.rows - row);
        nn_largest found = search(tl, plan, logits, band);
        values[count] = found.values;
        indices[count++] = found.indices;
    }
    if (count == 1)
        return (nn_largest){values[0], indices[0]};
    nn_largest all = {tl_concat_(tl, TL_DETAIL_HERE, 0, values, count),
                      tl_concat_(tl, TL_DETAIL_HERE, 0, indices, count)};
    for (size_t i = 0; i < count; i++) {
        tl_free(values[i]);
        tl_free(indices[i]);
    }
    return all;
}

/* All PEs work on all rows. The PEs of cube 0 store the results, or all PEs if each has a copy. */
static void search_columns(tl_context *tl, const argmax_plan *plan, tl_ptr logits, tl_ptr out)
{
    tp_rect range = own_columns(tl, plan);
    bool to_all = plan->out.copies > 1;
    int64_t pe = tl_program_id(0);
    /* Rows at a time: as fit on the PE with the most columns; equal on all PEs. */
    int64_t widest = tl_cdiv(tl_cdiv(plan->logits.columns, plan->peers.cubes), plan->peers.pes);
    int64_t step = kb_max(1, plan->budget / widest), rows = step * MAX_BANDS;
    for (int64_t row = 0; row < plan->logits.rows; row += rows) {
        range.row = row;
        range.rows = kb_min(rows, plan->logits.rows - row);
        nn_largest found = search_bands(tl, plan, logits, range, step);
        found = nn_exchange_largest(tl, &plan->peers, found, range.rows, to_all);
        int64_t begin = 0, size = range.rows;
        if (!to_all) {
            begin = tl_part_begin(range.rows, plan->peers.pes, pe);
            size = tl_part_size(range.rows, plan->peers.pes, pe);
        }
        if (size > 0 && (to_all || tl_program_id(1) == 0))
            store(tl, plan, out, row + begin, size, found);
    }
}

static void search_rows(tl_context *tl, const argmax_plan *plan, tl_ptr logits, tl_ptr out)
{
    nn_pe own = nn_find_pe(tl, plan->peers.cubes, plan->peers.pes);
    if (plan->out.copies > 1)
        own = (nn_pe){.index = 0, .count = 1};
    int64_t first = tl_part_begin(plan->logits.rows, own.count, own.index);
    int64_t rows = tl_part_size(plan->logits.rows, own.count, own.index);
    int64_t step = kb_max(1, plan->budget / plan->logits.columns);
    for (int64_t done = 0; done < rows; done += step) {
        tp_rect range = {first + done, kb_min(step, rows - done), 0, plan->logits.columns};
        store(tl, plan, out, range.row, range.rows, search(tl, plan, logits, range));
    }
}

KB_KERNEL(argmax, tl_ptr logits, tl_ptr out, tl_ptr all_pes)
{
    (void)all_pes;
    const argmax_plan *plan = tl_user();
    if (plan->exchanges)
        search_columns(tl, plan, logits, out);
    else
        search_rows(tl, plan, logits, out);
}

/* For the choice among the ranks' values, (ranks, 2, rows). */
typedef struct choose_plan {
    tp_view out;
    int64_t rows, ranks, cubes, pes;
} choose_plan;

KB_KERNEL(choose, tl_ptr gathered, tl_ptr out, tl_ptr all_pes)
{
    (void)all_pes;
    const choose_plan *plan = tl_user();
    nn_pe own = nn_find_pe(tl, plan->cubes, plan->pes);
    if (plan->out.copies > 1)
        own = (nn_pe){.index = 0, .count = 1};
    int64_t first = tl_part_begin(plan->rows, own.count, own.index);
    int64_t rows = tl_part_size(plan->rows, own.count, own.index);
    if (rows == 0)
        return;
    const tl_dims shape = tl_shape(rows, plan->ranks), strides = tl_strides(1, 2 * plan->rows);
    tl_ptr at = gathered + first * 4;
    nn_largest all = {
        tl_load(at, shape, TL_F32, .strides = strides),
        tl_load(at + plan->rows * 4, shape, TL_I32, .strides = strides, .reinterpret = true)};
    nn_largest best = nn_choose_largest(tl, all);
    nn_store_rows(tl, &plan->out, out, first, rows, best.indices);
}

/* ---- The host ---- */

static bool is_cut_by_rows(const tp_view *logits, int64_t pes)
{
    return logits->tiling == KB_NOT_TILED && logits->cube == KB_ROW_WISE &&
           logits->pe == KB_ROW_WISE && logits->rows >= pes;
}

static kb_error *launch(const nn_call *call, const kb_argmax_spec *spec, argmax_plan *plan,
                        kb_tensor out, kb_request *request)
{
    kb_machine machine = kb_context_machine(call->ctx);
    kb_queue_set queues = {0};
    plan->peers = (nn_peers){.cubes = machine.cubes, .pes = machine.pes};
    plan->exchanges = nn_can_exchange(&machine) &&
                      !is_cut_by_rows(&plan->logits, (int64_t)machine.cubes * machine.pes);
    plan->budget = kb_max(1, kb_min(MAX_BUDGET, (int64_t)machine.tcm_bytes / TCM_PER_ELEMENT));
    if (plan->exchanges)
        KB_TRY(nn_get_queues(call->ctx, call->sip, &queues));
    const kb_tensor tensors[] = {spec->logits, out};
    const nn_launch_spec launch = {.name = spec->name ? spec->name : "argmax",
                                   .kernel = &argmax,
                                   .plan = plan,
                                   .plan_bytes = sizeof *plan,
                                   .tensors = tensors,
                                   .tensor_count = sizeof tensors / sizeof tensors[0],
                                   .queues = queues,
                                   .stream = spec->stream,
                                   .request = request};
    return nn_launch(call, &launch);
}

static kb_error *take_tensors(nn_call *call, const kb_argmax_spec *spec, kb_tensor *out,
                              nn_output *made, argmax_plan *plan)
{
    kb_shape shape;
    memset(plan, 0, sizeof *plan); /* padding too */
    KB_TRY(nn_take_input(call, "logits", spec->logits, NN_FLOATS, &plan->logits));
    KB_TRY(kb_tensor_shape(call->ctx, spec->logits, &shape));
    const nn_output_spec output = {.what = "output",
                                   .shape = nn_shape_of_rows(&shape),
                                   .dtype = KB_I32,
                                   .dtypes = NN_DTYPE(KB_I32),
                                   .name = spec->name};
    return nn_take_rows_output(call, &output, plan->logits.rows, out, made, &plan->out);
}

kb_error *kb_argmax(kb_context *ctx, const kb_argmax_spec *spec, kb_tensor *out)
{
    nn_call call = {.ctx = ctx, .function = "kb_argmax"};
    argmax_plan plan;
    nn_output made = {0};
    kb_error *err = take_tensors(&call, spec, out, &made, &plan);
    if (!err)
        err = launch(&call, spec, &plan, *out, spec->request);
    return nn_end_outputs(&call, err, &made, 1);
}

/* ---- Over ranks ---- */

typedef struct ranks {
    uint32_t rank, count;
    kb_group group;
} ranks;

static kb_error *find_ranks(kb_context *ctx, ranks *r)
{
    KB_TRY(kb_tp_get_tensor_model_parallel_rank(ctx, &r->rank));
    KB_TRY(kb_tp_get_tensor_model_parallel_world_size(ctx, &r->count));
    return kb_tp_get_tensor_model_parallel_group(ctx, &r->group);
}

/* Chooses among the values of the ranks. */
static kb_error *choose_of_ranks(const nn_call *call, const kb_argmax_spec *spec, const ranks *r,
                                 const tp_view *view, kb_tensor gathered, kb_tensor out)
{
    kb_machine machine = kb_context_machine(call->ctx);
    choose_plan plan;
    memset(&plan, 0, sizeof plan); /* padding too */
    plan.out = *view;
    plan.rows = view->rows * view->columns;
    plan.ranks = r->count;
    plan.cubes = machine.cubes;
    plan.pes = machine.pes;
    const kb_tensor tensors[] = {gathered, out};
    const nn_launch_spec launch = {.name = "choose",
                                   .kernel = &choose,
                                   .plan = &plan,
                                   .plan_bytes = sizeof plan,
                                   .tensors = tensors,
                                   .tensor_count = sizeof tensors / sizeof tensors[0],
                                   .stream = spec->stream};
    return nn_launch(call, &launch);
}

static kb_error *run_on_ranks(const nn_call *call, const kb_argmax_spec *spec, const ranks *r,
                              argmax_plan *plan, kb_tensor out)
{
    kb_tensor own, gathered;
    uint64_t rows = (uint64_t)plan->logits.rows;
    KB_TRY(nn_get_buffer(call->ctx, call->sip, spec->stream, 2, rows, &own));
    KB_TRY(
        nn_get_buffer(call->ctx, call->sip, spec->stream, 2 * (uint64_t)r->count, rows, &gathered));
    const tp_view view = plan->out;
    KB_TRY(tp_view_make(call->ctx, own, &plan->out));
    plan->is_staged = true;
    plan->first_column = plan->logits.columns * r->rank;
    KB_TRY(launch(call, spec, plan, own, NULL));
    const kb_collective_options options = {
        .group = r->group, .algorithm = "auto", .stream = &spec->stream};
    KB_TRY(kb_distributed_all_gather(call->ctx, gathered, own, &options));
    return choose_of_ranks(call, spec, r, &view, gathered, out);
}

kb_error *kb_vocab_parallel_argmax(kb_context *ctx, const kb_argmax_spec *spec, kb_tensor *out)
{
    nn_call call = {.ctx = ctx, .function = "kb_vocab_parallel_argmax"};
    argmax_plan plan;
    nn_output made = {0};
    ranks r;
    kb_error *err = find_ranks(ctx, &r);
    if (err)
        return kb_error_wrap(err, "%s", call.function);
    if (spec->request)
        return kb_error_new(KB_ERR_INPUT, "%s: a request is given: the call waits", call.function);
    err = take_tensors(&call, spec, out, &made, &plan);
    if (!err && r.count == 1)
        err = launch(&call, spec, &plan, *out, NULL);
    else if (!err)
        err = run_on_ranks(&call, spec, &r, &plan, *out);
    return nn_end_outputs(&call, err, &made, 1);
}
