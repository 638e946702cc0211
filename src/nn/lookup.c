/*
 * lookup.c: embeddings on one device. Tokens are distributed over the PEs; if there are fewer
 * tokens than PEs, several PEs share a row of the table by columns. A PE reads its tokens and loads
 * their rows from any PE of the device, so the time depends on the tokens.
 */
#include <inttypes.h>
#include <string.h>

#include "layer.h"
#include "rows.h"

enum {
    TOKENS_AT_A_TIME = 64,
    TCM_PER_ELEMENT = 64, /* bytes, for some rows in flight, before and after a cast */
};

/* Numbers only: plans are compared byte by byte. */
typedef struct lookup_plan {
    tp_view table, tokens, out;
    int64_t cubes, pes;
    int64_t parts, sharing; /* parts of the tokens; PEs per part */
    int64_t piece;          /* columns at a time */
    bool has_tokens;        /* their contents are known */
} lookup_plan;

/* ---- The kernel ---- */

/* Without contents: rows that are spread over the table. */
static void read_tokens(tl_context *tl, const lookup_plan *plan, tl_ptr tokens, int64_t first,
                        int64_t count, int64_t *rows)
{
    tl_tensor loaded = nn_load_indices(tl, &plan->tokens, tokens, first, count);
    if (plan->has_tokens) {
        tl_items(loaded, rows, count);
        for (int64_t i = 0; i < count; i++)
            if (rows[i] < 0 || rows[i] >= plan->table.rows)
                tl_raise("token %" PRId64 " (element %" PRId64
                         ") is not in the table, which has %" PRId64 " rows",
                         rows[i], first + i, plan->table.rows);
    } else {
        tl_tensor all = tl_reshape(loaded, tl_shape(count));
        for (int64_t i = 0; i < count; i++) {
            int64_t spread = (first + i) * 7919 % plan->table.rows;
            rows[i] = (int64_t)tl_item_or(tl_slice(all, 0, i, i + 1), spread);
        }
    }
}

KB_KERNEL(embedding, tl_ptr table, tl_ptr tokens, tl_ptr out, tl_ptr all_pes)
{
    (void)all_pes;
    const lookup_plan *plan = tl_user();
    int64_t index = nn_find_pe(tl, plan->cubes, plan->pes).index;
    if (plan->out.copies > 1)
        index = 0; /* each PE computes the whole output */
    int64_t part = index / plan->sharing, share = index % plan->sharing;
    if (part >= plan->parts)
        return;
    int64_t begin = tl_part_begin(plan->out.columns, plan->sharing, share);
    int64_t end = begin + tl_part_size(plan->out.columns, plan->sharing, share);
    int64_t first = tl_part_begin(plan->out.rows, plan->parts, part);
    int64_t size = tl_part_size(plan->out.rows, plan->parts, part);
    for (int64_t done = 0; done < size; done += TOKENS_AT_A_TIME)
        TL_SCOPE {
            int64_t rows[TOKENS_AT_A_TIME], count = kb_min(TOKENS_AT_A_TIME, size - done);
            read_tokens(tl, plan, tokens, first + done, count, rows);
            for (int64_t i = 0; i < count; i++)
                for (int64_t column = begin; column < end; column += plan->piece) {
                    tp_rect at = {rows[i], 1, column, kb_min(plan->piece, end - column)};
                    tl_tensor row = nn_load(tl, &plan->table, table, at);
                    row = tp_cast(tl, row, plan->table.dtype, plan->out.dtype);
                    at.row = first + done + i;
                    nn_store(tl, &plan->out, out, at, row);
                    tl_free(row);
                }
        }
}

/* ---- The host ---- */

static kb_error *take_output_by_cube(nn_call *call, kb_tensor out, lookup_plan *plan)
{
    tp_view one; /* of the tensor as it is: of the right device and dtype */
    KB_TRY(nn_take_input(call, "output", out, NN_FLOATS | NN_DTYPE(plan->table.dtype), &one));
    KB_TRY(nn_make_view(call, "output", out, true, &plan->out));
    int64_t tokens = plan->tokens.rows * plan->tokens.columns;
    if (plan->out.rows != tokens || plan->out.columns != plan->table.columns)
        return kb_error_new(
            KB_ERR_INPUT,
            "%s: output: a copy is (%" PRId64 ", %" PRId64 "): expected (%" PRId64 ", %" PRId64 ")",
            call->function, plan->out.rows, plan->out.columns, tokens, plan->table.columns);
    return NULL;
}

static kb_error *take_output(nn_call *call, const kb_embedding_spec *spec, kb_tensor *out,
                             nn_output *made, lookup_plan *plan)
{
    if (spec->out_by_cube)
        return take_output_by_cube(call, *out, plan);
    bool is_float = NN_FLOATS & NN_DTYPE(plan->table.dtype);
    nn_output_spec output = {.what = "output",
                             .dtype = plan->table.dtype,
                             .dtypes = is_float ? NN_FLOATS : NN_DTYPE(plan->table.dtype),
                             .is_by_columns = true,
                             .name = spec->name};
    KB_TRY(kb_tensor_shape(call->ctx, spec->tokens, &output.shape));
    if (output.shape.rank == KB_MAX_DIMS)
        return kb_error_new(KB_ERR_INPUT, "%s: tokens have %d axes: no room for one more",
                            call->function, KB_MAX_DIMS);
    output.shape.dims[output.shape.rank++] = (uint64_t)plan->table.columns;
    KB_TRY(nn_take_output(call, &output, out, made, &plan->out));
    return nn_check_copies(call, "output", &plan->out);
}

static void share_out(kb_context *ctx, lookup_plan *plan)
{
    kb_machine machine = kb_context_machine(ctx);
    int64_t pes = (int64_t)machine.cubes * machine.pes;
    plan->cubes = machine.cubes;
    plan->pes = machine.pes;
    plan->parts = plan->sharing = 1;
    plan->piece = kb_max(1, (int64_t)machine.tcm_bytes / TCM_PER_ELEMENT);
    if (plan->out.copies > 1)
        return;
    plan->parts = kb_min(plan->out.rows, pes);
    plan->sharing = kb_min(pes / plan->parts, plan->out.columns);
}

kb_error *kb_embedding(kb_context *ctx, const kb_embedding_spec *spec, kb_tensor *out)
{
    nn_call call = {.ctx = ctx, .function = "kb_embedding"};
    lookup_plan plan;
    nn_output made = {0};
    rt_tensor_view tokens;
    memset(&plan, 0, sizeof plan); /* padding too */
    KB_TRY(nn_take_input(&call, "table", spec->table, NN_ALL_DTYPES, &plan.table));
    KB_TRY(nn_take_input(&call, "tokens", spec->tokens, NN_DTYPE(KB_I32), &plan.tokens));
    KB_TRY(rt_view_tensor(ctx, spec->tokens, &tokens));
    plan.has_tokens = tokens.is_index || !kb_context_is_timing_only(ctx);
    kb_error *err = take_output(&call, spec, out, &made, &plan);
    if (!err) {
        share_out(ctx, &plan);
        const kb_tensor tensors[] = {spec->table, spec->tokens, *out};
        const nn_launch_spec launch = {.name = spec->name ? spec->name : "embedding",
                                       .kernel = &embedding,
                                       .plan = &plan,
                                       .plan_bytes = sizeof plan,
                                       .tensors = tensors,
                                       .tensor_count = sizeof tensors / sizeof tensors[0],
                                       .stream = spec->stream,
                                       .request = spec->request};
        err = nn_launch(&call, &launch);
    }
    return nn_end_outputs(&call, err, &made, 1);
}
