/*
 * rotate.c: rotary position embedding of a tensor. Heads and tokens are distributed over the PEs.
 * The cosines and sines of a token take longer than the rotation of a few heads. So a PE has all
 * heads of its tokens, unless the output is split by columns over cubes (then each cube processes
 * its heads) or there are fewer tokens than PEs.
 */
#include <inttypes.h>
#include <string.h>

#include "layer.h"
#include "rope.h"
#include "rows.h"

/* Numbers only: plans are compared byte by byte. */
typedef struct rotate_plan {
    tp_view x, positions, out;
    int64_t heads, head_dim, pairs;
    kb_rope_style style;
    int64_t cubes, pes;
    int64_t head_parts, token_parts; /* parts of the work; a PE has at most one of each */
    int64_t budget;                  /* elements at a time */
} rotate_plan;

enum {
    TCM_PER_ELEMENT = 128, /* bytes, for a few blocks in flight with several values each */
    MAX_BUDGET = 16384,
};

/* ---- The kernel ---- */

typedef struct addresses {
    tl_ptr x, positions, out;
} addresses;

static nn_angles load_angles(tl_context *tl, const rotate_plan *plan, tl_ptr positions,
                             tl_tensor frequencies, const nn_heads *h, int64_t token)
{
    if (plan->pairs == 0)
        return (nn_angles){0};
    tl_tensor loaded = nn_load_indices(tl, &plan->positions, positions, token, h->tokens);
    tl_tensor column = tl_reshape(loaded, tl_shape(h->tokens, 1));
    nn_angles angles = nn_angles_of(tl, frequencies, plan->pairs, column, h->tokens);
    tl_free(loaded);
    tl_free(column);
    return angles;
}

static void rotate_block(tl_context *tl, const rotate_plan *plan, const addresses *at,
                         const nn_heads *h, const nn_angles *angles, int64_t token, int64_t head)
{
    const tp_rect rect = {token, h->tokens, head * plan->head_dim, h->heads * plan->head_dim};
    tl_tensor x = nn_load(tl, &plan->x, at->x, rect);
    tl_tensor turned = tp_cast(tl, nn_rotate(tl, h, x, angles), KB_F32, plan->out.dtype);
    tl_tensor rows = tl_reshape(turned, tl_shape(rect.rows, rect.columns));
    nn_store(tl, &plan->out, at->out, rect, rows);
    tl_free(x);
    tl_free(turned);
    tl_free(rows);
}

/* Rotates the tokens (rows) and heads (columns) of `rect`. */
static void rotate_share(tl_context *tl, const rotate_plan *plan, const addresses *at,
                         tl_tensor frequencies, const tp_rect *share)
{
    int64_t heads = kb_max(1, kb_min(share->columns, plan->budget / plan->head_dim));
    int64_t tokens = kb_max(1, plan->budget / (heads * plan->head_dim));
    for (int64_t token = 0; token < share->rows; token += tokens) {
        nn_heads h = {.tokens = kb_min(tokens, share->rows - token),
                      .head_dim = plan->head_dim,
                      .style = plan->style,
                      .pairs = plan->pairs};
        nn_angles angles =
            load_angles(tl, plan, at->positions, frequencies, &h, share->row + token);
        for (int64_t head = 0; head < share->columns; head += heads) {
            h.heads = kb_min(heads, share->columns - head);
            rotate_block(tl, plan, at, &h, &angles, share->row + token, share->column + head);
        }
        if (plan->pairs > 0)
            nn_free_angles(tl, &angles);
    }
}

KB_KERNEL(rotate, tl_ptr x, tl_ptr positions, tl_ptr frequencies, tl_ptr out, tl_ptr all_pes)
{
    (void)all_pes;
    const rotate_plan *plan = tl_user();
    const addresses at = {x, positions, out};
    int64_t index = nn_find_pe(tl, plan->cubes, plan->pes).index;
    if (plan->out.copies > 1)
        index = 0; /* each PE computes the whole output */
    int64_t head_part = index / plan->token_parts, token_part = index % plan->token_parts;
    if (head_part >= plan->head_parts)
        return;
    const tp_rect share = {tl_part_begin(plan->x.rows, plan->token_parts, token_part),
                           tl_part_size(plan->x.rows, plan->token_parts, token_part),
                           tl_part_begin(plan->heads, plan->head_parts, head_part),
                           tl_part_size(plan->heads, plan->head_parts, head_part)};
    tl_tensor loaded = {0};
    if (plan->pairs > 0)
        loaded = nn_load_frequencies(tl, frequencies, plan->pairs);
    rotate_share(tl, plan, &at, loaded, &share);
}

/* ---- The host ---- */

static kb_error *check_sizes(const nn_call *call, const kb_rope_spec *spec, const rotate_plan *plan)
{
    if (spec->head_dim == 0 || plan->x.columns % spec->head_dim != 0)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: x has %" PRId64 " columns, which are not divisible by head_dim "
                            "(%" PRIu32 ")",
                            call->function, plan->x.columns, spec->head_dim);
    int64_t positions = plan->positions.rows * plan->positions.columns;
    if (positions != plan->x.rows)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: there are %" PRId64 " positions for %" PRId64 " tokens",
                            call->function, positions, plan->x.rows);
    return nn_check_rope(call->function, &spec->rope, spec->head_dim);
}

static void share_out(rotate_plan *plan, const kb_machine *machine)
{
    int64_t pes = (int64_t)machine->cubes * machine->pes;
    plan->cubes = machine->cubes;
    plan->pes = machine->pes;
    plan->head_parts = plan->token_parts = 1;
    plan->budget = kb_max(1, kb_min(MAX_BUDGET, (int64_t)machine->tcm_bytes / TCM_PER_ELEMENT));
    if (plan->out.copies > 1)
        return;
    bool is_by_cube = plan->out.tiling == KB_NOT_TILED && plan->out.cube == KB_COLUMN_WISE;
    int64_t parts = kb_max(is_by_cube ? machine->cubes : 1, pes / kb_min(plan->x.rows, pes));
    plan->head_parts = kb_min(plan->heads, parts);
    plan->token_parts = kb_min(plan->x.rows, pes / plan->head_parts);
}

static kb_error *launch(const nn_call *call, const kb_rope_spec *spec, const rotate_plan *plan,
                        kb_tensor out)
{
    kb_tensor frequencies;
    KB_TRY(nn_get_frequencies(call->ctx, call->function, call->sip, &spec->rope, spec->head_dim,
                              &frequencies));
    const kb_tensor tensors[] = {spec->x, spec->positions, frequencies, out};
    const nn_launch_spec launch = {.name = spec->name ? spec->name : "rope",
                                   .kernel = &rotate,
                                   .plan = plan,
                                   .plan_bytes = sizeof *plan,
                                   .tensors = tensors,
                                   .tensor_count = sizeof tensors / sizeof tensors[0],
                                   .stream = spec->stream,
                                   .request = spec->request};
    return nn_launch(call, &launch);
}

kb_error *kb_rope_apply(kb_context *ctx, const kb_rope_spec *spec, kb_tensor *out)
{
    nn_call call = {.ctx = ctx, .function = "kb_rope_apply"};
    rotate_plan plan;
    nn_output made = {0};
    memset(&plan, 0, sizeof plan); /* padding too */
    KB_TRY(nn_take_input(&call, "x", spec->x, NN_FLOATS, &plan.x));
    KB_TRY(nn_take_input(&call, "positions", spec->positions, NN_DTYPE(KB_I32), &plan.positions));
    KB_TRY(check_sizes(&call, spec, &plan));
    plan.head_dim = spec->head_dim;
    plan.heads = plan.x.columns / spec->head_dim;
    plan.pairs = nn_rope_pairs(&spec->rope, spec->head_dim);
    plan.style = spec->rope.style;
    nn_output_spec output = {.what = "output",
                             .dtype = plan.x.dtype,
                             .dtypes = NN_FLOATS,
                             .like = spec->x,
                             .name = spec->name};
    KB_TRY(kb_tensor_shape(ctx, spec->x, &output.shape));
    kb_error *err = nn_take_output(&call, &output, out, &made, &plan.out);
    if (!err)
        err = nn_check_copies(&call, "output", &plan.out);
    if (!err) {
        kb_machine machine = kb_context_machine(ctx);
        share_out(&plan, &machine);
        err = launch(&call, spec, &plan, *out);
    }
    return nn_end_outputs(&call, err, &made, 1);
}
