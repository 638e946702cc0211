/*
 * embedding.c: a table with a row for each token of a vocabulary, split by rows over the ranks.
 *
 * Tokens are distributed over the PEs; if there are fewer tokens than PEs, several PEs share a row
 * by columns. A PE reads a token, and loads its row from any PE of the device if the rank has it.
 * So the time depends on the tokens; without data each token is taken as one of the rank's own.
 */
#include <inttypes.h>
#include <string.h>

#include "layers.h"

/* ---- The kernel ---- */

enum { TOKENS_AT_A_TIME = 64 };

/* One row of the output, or some of its columns. */
static void look_up(tl_context *tl, const tp_embedding_plan *plan, tl_ptr table, tl_ptr out,
                    int64_t token, const tp_rect *at)
{
    int64_t row = token - plan->first_token;
    bool is_here = row >= 0 && row < plan->table.rows;
    const tp_rect source = {row, 1, at->column, at->columns};
    tl_tensor value = is_here ? tp_load(tl, &plan->table, table, source)
                              : tl_zeros(tl_shape(1, at->columns), plan->table.dtype);
    value = tp_cast(tl, value, plan->table.dtype, plan->out.dtype);
    tp_store(tl, &plan->out, out, *at, value);
    tl_free(value);
}

KB_KERNEL(embedding, tl_ptr table, tl_ptr tokens, tl_ptr out, tl_ptr all_pes)
{
    (void)all_pes;
    const tp_embedding_plan *plan = tl_user();
    int64_t count = plan->out.rows, columns = plan->out.columns;
    int64_t pe = tl_program_id(1) * plan->pes + tl_program_id(0), all = plan->cubes * plan->pes;
    int64_t parts = kb_min(count, all), sharing = kb_min(all / parts, columns);
    if (pe >= parts * sharing)
        return;
    int64_t part = pe / sharing, share = pe % sharing;
    tp_rect at = {.rows = 1,
                  .column = tl_part_begin(columns, sharing, share),
                  .columns = tl_part_size(columns, sharing, share)};
    int64_t first = tl_part_begin(count, parts, part), size = tl_part_size(count, parts, part);
    for (int64_t done = 0; done < size; done += TOKENS_AT_A_TIME)
        TL_SCOPE {
            int64_t some = kb_min(TOKENS_AT_A_TIME, size - done);
            tl_tensor read = tl_load(tokens + (first + done) * 4, tl_shape(some), TL_I32);
            for (int64_t i = 0; i < some; i++) {
                double token = tl_item_or(tl_slice(read, 0, i, i + 1), plan->first_token);
                at.row = first + done + i;
                look_up(tl, plan, table, out, (int64_t)token, &at);
            }
        }
}

/* ---- Creation ---- */

static kb_error *check_spec(const char *function, const kb_tp_embedding_spec *spec, uint32_t ranks)
{
    if (spec->num_embeddings == 0 || spec->embedding_dim == 0)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: num_embeddings is %" PRIu64 " and embedding_dim is %" PRIu64
                            ": both must be at least 1",
                            function, spec->num_embeddings, spec->embedding_dim);
    if (spec->num_embeddings % ranks != 0)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: num_embeddings (%" PRIu64
                            ") is not divisible by the tensor parallel size %" PRIu32,
                            function, spec->num_embeddings, ranks);
    if (spec->num_embeddings > INT32_MAX)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: num_embeddings is %" PRIu64 ": tokens are i32, the maximum is %d",
                            function, spec->num_embeddings, INT32_MAX);
    if ((unsigned)spec->dtype >= KB_DTYPES)
        return kb_error_new(KB_ERR_INPUT, "%s: invalid dtype %u", function, (unsigned)spec->dtype);
    if (spec->weight.id != 0 && spec->seed != 0)
        return kb_error_new(KB_ERR_INPUT, "%s: both weights and a seed are given", function);
    return NULL;
}

static kb_error *fill_layer(kb_context *ctx, const char *function, const kb_tp_embedding_spec *spec,
                            tp_layer *layer)
{
    static const kb_policy by_rows = {.cube = KB_ROW_WISE, .pe = KB_ROW_WISE};
    KB_TRY(check_spec(function, spec, layer->at.size));
    layer->inputs = spec->num_embeddings;
    layer->outputs = layer->columns = spec->embedding_dim;
    layer->rows = spec->num_embeddings / layer->at.size;
    layer->dtype = spec->dtype;
    const kb_tensor_spec tensor = {.name = layer->name,
                                   .dtype = layer->dtype,
                                   .shape = KB_SHAPE(layer->rows, layer->columns),
                                   .policy = &by_rows,
                                   .access = spec->access};
    const tp_weight_source source = {
        .given = spec->weight,
        .seed = spec->seed,
        .all_rows = spec->num_embeddings,
        .all_columns = spec->embedding_dim,
        .row = layer->rows * layer->at.index,
        .scale = 1,
    };
    kb_error *err = tp_make_tensor(ctx, layer->sip, &tensor, &layer->weight);
    if (!err)
        err = tp_fill_weight(ctx, layer->weight, "weight", layer->rows, layer->columns,
                             layer->dtype, spec->access, &source);
    return err ? kb_error_wrap(err, "%s: layer '%s'", function, layer->name) : NULL;
}

kb_error *kb_vocab_parallel_embedding_create(kb_context *ctx, const kb_tp_embedding_spec *spec,
                                             kb_tp_layer *handle)
{
    static const char function[] = "kb_vocab_parallel_embedding_create";
    tp_layer *layer;
    KB_TRY(tp_add_layer(ctx, function, TP_EMBEDDING, spec->name, &layer, handle));
    kb_error *err = fill_layer(ctx, function, spec, layer);
    if (err)
        tp_drop_layer(ctx, handle);
    return err;
}

/* ---- Forward ---- */

static kb_error *get_plan(tp_state *state, const tp_embedding_plan *wanted, tp_embedding_plan **out)
{
    for (*out = state->embeddings; *out; *out = (*out)->next)
        if (memcmp(&(*out)->table, &wanted->table, sizeof wanted->table) == 0 &&
            memcmp(&(*out)->out, &wanted->out, sizeof wanted->out) == 0 &&
            (*out)->first_token == wanted->first_token)
            return NULL;
    tp_embedding_plan *plan = kb_alloc_array(1, sizeof *plan);
    if (!plan)
        return kb_error_nomem();
    *plan = *wanted;
    plan->kernel = embedding;
    plan->kernel.user = plan;
    plan->next = state->embeddings;
    state->embeddings = plan;
    *out = plan;
    return NULL;
}

/* The rank's rows, and 0 for tokens of other ranks. */
static kb_error *launch_look_up(kb_context *ctx, const tp_layer *layer, kb_tensor tokens,
                                kb_tensor out)
{
    tp_state *state;
    tp_embedding_plan wanted, *plan;
    kb_tensor all_pes;
    kb_machine machine = kb_context_machine(ctx);
    memset(&wanted, 0, sizeof wanted);
    KB_TRY(tp_get_state(ctx, &state));
    KB_TRY(tp_view_make(ctx, layer->weight, &wanted.table));
    KB_TRY(tp_view_make(ctx, out, &wanted.out));
    wanted.first_token = (int64_t)(layer->rows * layer->at.index);
    wanted.cubes = machine.cubes;
    wanted.pes = machine.pes;
    KB_TRY(get_plan(state, &wanted, &plan));
    KB_TRY(tp_get_all_pes_tensor(state, layer->sip, &all_pes));
    const kb_arg args[] = {kb_arg_tensor(layer->weight), kb_arg_tensor(tokens), kb_arg_tensor(out),
                           kb_arg_tensor(all_pes)};
    const kb_launch_options options = {.name = layer->name};
    return kb_launch_args(ctx, &options, &plan->kernel, args, sizeof args / sizeof args[0]);
}

/* The rows are written to a tensor with one copy, in a dtype that collectives can add. */
static kb_error *run_embedding(kb_context *ctx, tp_layer *layer, kb_tensor tokens, uint64_t rows,
                               kb_tensor output)
{
    tp_view view;
    kb_dtype dtype = tp_reduce_dtype(layer->dtype);
    kb_tensor found = output;
    KB_TRY(tp_view_make(ctx, output, &view));
    bool is_direct = dtype == layer->dtype && view.copies == 1;
    if (!is_direct)
        KB_TRY(tp_get_buffer(ctx, layer, TP_PARTIAL, rows, layer->columns, dtype, &found));
    KB_TRY(launch_look_up(ctx, layer, tokens, found));
    KB_TRY(tp_all_reduce(ctx, &layer->at, found, KB_SUM));
    const tp_relayout_spec copy = {.name = "embedding", .to = output, .from = found};
    return is_direct ? NULL : tp_relayout(ctx, &copy);
}

kb_error *kb_vocab_parallel_embedding_forward(kb_context *ctx, kb_tp_layer handle, kb_tensor tokens,
                                              kb_tensor *output)
{
    static const char function[] = "kb_vocab_parallel_embedding_forward";
    tp_layer *layer;
    tp_indices indices;
    KB_TRY(tp_find_layer(ctx, function, TP_EMBEDDING, handle, &layer));
    KB_TRY(tp_get_indices(ctx, function, "tokens", tokens, layer->sip, &indices));
    kb_error *err = NULL;
    if (indices.shape.rank == KB_MAX_DIMS)
        err = kb_error_new(KB_ERR_INPUT, "%s: tokens have %d axes: no room for one more", function,
                           KB_MAX_DIMS);
    kb_shape shape = indices.shape;
    bool was_given = output->id != 0;
    if (!err) {
        shape.dims[shape.rank++] = layer->columns;
        err = tp_take_output(ctx, function, layer->sip, layer->name, &shape, layer->dtype, output);
    }
    if (!err)
        err = run_embedding(ctx, layer, indices.packed, indices.count, *output);
    err = tp_end_output(ctx, err, was_given, output);
    return tp_free_indices(ctx, &indices, err);
}
