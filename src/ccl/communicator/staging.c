/*
 * staging.c: tensors in a layout that lanes can work on.
 *
 * A lane is the PE at one position of every rank's device. Each lane has its part of the tensor,
 * with the same elements on all ranks. So all ranks need the same layout, without copies, and each
 * PE's part in one piece. If a tensor has a block for each rank, a PE's part must be its parts of
 * the blocks, one after the other: the tensor is split by columns alone, and blocks are rows.
 *
 * The first call of an epoch chooses the layout: that of its tensor if lanes can work on it, else
 * the canonical one. Ranks with another layout copy their input to a staging tensor, and the result
 * back. Staging tensors are kept for later calls.
 */
#include "communicator.h"

#include <stdlib.h>

enum { MAX_IDLE = 4 }; /* staging tensors that a device keeps for later */

static const kb_policy by_columns = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};

/* ---- Layouts ---- */

static uint32_t filled_in(uint32_t count, uint32_t all)
{
    return count == 0 ? all : count;
}

static bool same_policy(const ccl_group *group, const kb_policy *a, const kb_policy *b)
{
    const topo_shape *shape = topo_machine_shape(group->state->machine);
    return a->cube == b->cube && a->pe == b->pe && a->tiling == b->tiling &&
           a->tile_rows == b->tile_rows && a->tile_columns == b->tile_columns &&
           filled_in(a->num_cubes, shape->cubes) == filled_in(b->num_cubes, shape->cubes) &&
           filled_in(a->num_pes, shape->pes) == filled_in(b->num_pes, shape->pes);
}

static bool has_blocks(kb_collective_kind kind)
{
    return ccl_input_has_blocks(kind) || ccl_output_has_blocks(kind);
}

/* Whether each PE has its part in one piece, and no element has copies. */
static bool is_plain(const rt_tensor_view *view)
{
    const kb_shard *last = NULL;
    for (size_t i = 0; i < view->shard_count; i++) {
        const kb_shard *shard = &view->shards[i];
        if (shard->nbytes == 0)
            continue;
        bool same_pe = last && last->cube == shard->cube && last->pe == shard->pe;
        if (same_pe && last->offset_bytes + last->nbytes != shard->offset_bytes)
            return false;
        last = shard;
    }
    return !view->replicated;
}

/* Whether each PE has all rows of its columns, for any number of rows. */
static bool is_by_columns(const ccl_group *group, const rt_tensor_view *view)
{
    const topo_shape *machine = topo_machine_shape(group->state->machine);
    const kb_policy *policy = &view->policy;
    bool cubes =
        policy->cube == KB_COLUMN_WISE || filled_in(policy->num_cubes, machine->cubes) == 1;
    bool pes = policy->pe == KB_COLUMN_WISE || filled_in(policy->num_pes, machine->pes) == 1;
    return cubes && pes && policy->tiling == KB_NOT_TILED && view->shape.rank <= 2;
}

/* The shape of a tensor with this number of blocks, one after the other. */
static kb_shape shape_of_blocks(const ccl_op *op, uint64_t blocks)
{
    kb_shape shape = op->lane_layout.block;
    if (has_blocks(op->signature.kind))
        shape.dims[0] *= blocks;
    return shape;
}

/* ---- Choosing the layout ---- */

/* The tensor whose layout the first call chooses, and its number of blocks. */
static kb_tensor deciding_tensor(const ccl_op *op, uint64_t *blocks)
{
    const ccl_share *share = &op->shares[0];
    kb_collective_kind kind = op->signature.kind;
    *blocks = kind == KB_ALL_TO_ALL ? op->group->world : 1;
    return ccl_output_is_reference(kind) ? share->output : share->input;
}

static ccl_lane_layout canonical_layout(const ccl_op *op, uint64_t elements)
{
    return (ccl_lane_layout){
        .canonical = true,
        .block = has_blocks(op->signature.kind) ? KB_SHAPE(1, elements) : KB_SHAPE(elements),
        .policy = by_columns,
    };
}

kb_error *ccl_choose_layout(ccl_op *op)
{
    kb_context *ctx = op->group->state->ctx;
    uint64_t blocks;
    kb_tensor tensor = deciding_tensor(op, &blocks);
    rt_tensor_view view;
    KB_TRY(rt_view_tensor(ctx, tensor, &view));
    op->lane_layout = canonical_layout(op, view.elements / blocks);
    ccl_lane_layout own = {.like = tensor, .block = view.shape, .policy = view.policy};
    if (!has_blocks(op->signature.kind)) {
        if (is_plain(&view))
            op->lane_layout = own;
        return NULL;
    }
    own.block = mem_shape_normal(&view.shape);
    if (!is_by_columns(op->group, &view) || own.block.dims[0] % blocks != 0)
        return NULL;
    own.block.dims[0] /= blocks;
    op->lane_layout = own;
    return NULL;
}

/* Whether lanes can work on the tensor as it is. */
static kb_error *fits(const ccl_op *op, kb_tensor tensor, uint64_t blocks, bool *out)
{
    kb_context *ctx = op->group->state->ctx;
    rt_tensor_view view;
    *out = false;
    KB_TRY(rt_view_tensor(ctx, tensor, &view));
    if (!has_blocks(op->signature.kind)) {
        *out = !op->lane_layout.canonical && (tensor.id == op->lane_layout.like.id ||
                                              rt_same_layout(ctx, op->lane_layout.like, tensor));
        return NULL;
    }
    kb_shape normal = mem_shape_normal(&view.shape), wanted = shape_of_blocks(op, blocks);
    *out = mem_shape_equal(&normal, &wanted) && is_by_columns(op->group, &view) &&
           same_policy(op->group, &view.policy, &op->lane_layout.policy);
    return NULL;
}

/* ---- Staging tensors ---- */

static void discard(ccl_group *group, ccl_staging *staging)
{
    ccl_staging **link = &group->staging;
    while (*link != staging)
        link = &(*link)->next;
    *link = staging->next;
    if (staging->tensor.id != 0)
        kb_error_free(kb_tensor_free(group->state->ctx, staging->tensor));
    free(staging);
}

/* Frees idle staging tensors of the device, oldest first, except for the newest few. */
static void tidy(ccl_group *group, uint32_t device)
{
    uint32_t idle = 0;
    for (ccl_staging *staging = group->staging, *next; staging; staging = next) {
        next = staging->next; /* the newest comes first */
        if (staging->device == device && !staging->busy && ++idle > MAX_IDLE)
            discard(group, staging);
    }
}

void ccl_free_staging(ccl_group *group)
{
    while (group->staging)
        discard(group, group->staging);
}

static kb_error *make_tensor(ccl_group *group, ccl_staging *staging)
{
    kb_context *ctx = group->state->ctx;
    uint32_t current = kb_ahbm_current_device(ctx);
    kb_tensor_spec spec = {
        .name = "staging",
        .dtype = staging->dtype,
        .shape = staging->shape,
        .policy = &staging->policy,
    };
    KB_TRY(kb_ahbm_set_device(ctx, group->sips[staging->device]));
    kb_error *err = kb_empty(ctx, &spec, &staging->tensor);
    kb_error_free(kb_ahbm_set_device(ctx, current));
    return err;
}

static kb_error *take_staging(ccl_op *op, uint32_t device, uint64_t blocks, ccl_staging **out)
{
    ccl_group *group = op->group;
    kb_shape shape = shape_of_blocks(op, blocks);
    for (ccl_staging *staging = group->staging; staging; staging = staging->next) {
        if (staging->busy || staging->device != device || staging->dtype != op->signature.dtype ||
            !mem_shape_equal(&staging->shape, &shape) ||
            !same_policy(group, &staging->policy, &op->lane_layout.policy))
            continue;
        staging->busy = true;
        *out = staging;
        return NULL;
    }
    tidy(group, device);
    ccl_staging *staging = kb_alloc_zeroed(1, sizeof *staging);
    if (!staging)
        return kb_error_nomem();
    *staging = (ccl_staging){
        .next = group->staging,
        .device = device,
        .dtype = op->signature.dtype,
        .shape = shape,
        .policy = op->lane_layout.policy,
        .busy = true,
    };
    group->staging = staging;
    *out = staging;
    return make_tensor(group, staging);
}

/* A staging tensor for the tensor, if there is one and lanes cannot work on it. */
static kb_error *stage_one(ccl_op *op, uint32_t device, kb_tensor tensor, bool many,
                           ccl_staging **staging)
{
    uint64_t blocks = many ? op->group->world : 1;
    bool fit;
    if (tensor.id == 0)
        return NULL;
    KB_TRY(fits(op, tensor, blocks, &fit));
    return fit ? NULL : take_staging(op, device, blocks, staging);
}

static kb_error *stage_share(ccl_op *op, ccl_share *share)
{
    kb_collective_kind kind = op->signature.kind;
    uint32_t device = share->device;
    KB_TRY(stage_one(op, device, share->input, ccl_input_has_blocks(kind), &share->in));
    if (!ccl_is_in_place(kind))
        return stage_one(op, device, share->output, ccl_output_has_blocks(kind), &share->out);
    share->out = share->in;
    return NULL;
}

kb_error *ccl_stage_tensors(ccl_op *op)
{
    kb_context *ctx = op->group->state->ctx;
    for (size_t i = 0; i < op->share_count; i++)
        KB_TRY(stage_share(op, &op->shares[i]));
    for (size_t i = 0; i < op->share_count; i++) {
        if (op->shares[i].in)
            KB_TRY(rt_wait_for_tensor(ctx, op->shares[i].in->tensor));
        if (op->shares[i].out)
            KB_TRY(rt_wait_for_tensor(ctx, op->shares[i].out->tensor));
    }
    return NULL;
}

void ccl_release_staging(ccl_op *op)
{
    for (size_t i = 0; i < op->share_count; i++) {
        ccl_share *share = &op->shares[i];
        ccl_staging *taken[] = {share->in, share->out == share->in ? NULL : share->out};
        share->in = share->out = NULL;
        for (int k = 0; k < 2; k++) {
            if (!taken[k])
                continue;
            taken[k]->busy = false;
            if (taken[k]->tensor.id == 0) /* its creation failed */
                discard(op->group, taken[k]);
        }
    }
}

/* ---- Copies ---- */

static bool is_root(const ccl_op *op, const ccl_share *share)
{
    return share->device == op->signature.root; /* lanes: device_count are ranks */
}

static kb_error *copy_all(ccl_op *op, kb_tensor to, kb_tensor from)
{
    rt_tensor_view view;
    KB_TRY(rt_view_tensor(op->group->state->ctx, to, &view));
    rt_flat_copy copy = {.to = to, .from = from, .count = view.elements};
    return rt_work_copy(op->work, &copy);
}

kb_error *ccl_copy_in(ccl_op *op)
{
    for (size_t i = 0; i < op->share_count; i++) {
        const ccl_share *share = &op->shares[i];
        bool matters = op->signature.kind != KB_BROADCAST || is_root(op, share);
        if (share->in && matters)
            KB_TRY(copy_all(op, share->in->tensor, share->input));
    }
    return NULL;
}

kb_error *ccl_copy_out(ccl_op *op)
{
    for (size_t i = 0; i < op->share_count; i++) {
        const ccl_share *share = &op->shares[i];
        bool changed = (op->signature.kind != KB_BROADCAST || !is_root(op, share)) &&
                       (op->signature.kind != KB_REDUCE || is_root(op, share));
        if (share->out && changed)
            KB_TRY(copy_all(op, share->output, share->out->tensor));
    }
    return NULL;
}
