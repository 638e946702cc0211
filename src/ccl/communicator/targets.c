/*
 * targets.c: the kernel arguments of each participant, made from the location and size of its part
 * of the tensors.
 *
 * All participants of a subgroup have the same number of elements. A participant without elements
 * runs no kernel, and neither does its subgroup; but if PEs share their work (`shares_work`) all
 * run.
 */
#include "communicator.h"

#include <inttypes.h>
#include <stdlib.h>

/* A PE's part of a tensor. */
typedef struct range {
    uint64_t address, elements;
} range;

/* ---- Locations of parts ---- */

static kb_error *in_pieces(const ccl_op *op, const rt_tensor_view *view, kb_pe pe)
{
    return kb_error_new(
        KB_ERR_FAULT,
        "what %s has of tensor '%s' is in several pieces, and '%s' needs it in one; a "
        "policy without tiles gives it",
        topo_pe_name(pe).text, view->name, op->instance->entry->name);
}

static kb_error *takes_no_part(const ccl_op *op, const rt_tensor_view *view, const kb_shard *shard)
{
    return kb_error_new(KB_ERR_FAULT,
                        "%s has a part of tensor '%s' "
                        "but none in '%s' (mapper %s)",
                        topo_pe_name((kb_pe){shard->sip, shard->cube, shard->pe}).text, view->name,
                        op->instance->entry->name, op->instance->entry->mapper->name);
}

static int compare(const kb_shard *shard, kb_pe pe)
{
    if (shard->cube != pe.cube)
        return shard->cube < pe.cube ? -1 : 1;
    return (shard->pe > pe.pe) - (shard->pe < pe.pe);
}

/* Shards and participants are both sorted by (cube, pe). */
static kb_error *locate(const ccl_op *op, kb_tensor tensor, const ccl_participant *participants,
                        size_t count, range *ranges, range *whole)
{
    rt_tensor_view view;
    KB_TRY(rt_view_tensor(op->group->state->ctx, tensor, &view));
    size_t each = kb_dtype_bytes(view.dtype), participant = 0;
    *whole = (range){.address = view.va, .elements = view.elements};
    for (size_t i = 0; i < count; i++)
        ranges[i] = (range){.address = view.va};
    for (size_t i = 0; i < view.shard_count; i++) {
        const kb_shard *shard = &view.shards[i];
        if (shard->nbytes == 0)
            continue;
        while (participant < count && compare(shard, participants[participant].pe) > 0)
            participant++;
        if (participant == count || compare(shard, participants[participant].pe) < 0)
            return takes_no_part(op, &view, shard);
        range *r = &ranges[participant];
        uint64_t address = view.va + shard->offset_bytes;
        if (r->elements > 0 && r->address + r->elements * each != address)
            return in_pieces(op, &view, participants[participant].pe);
        r->address = r->elements > 0 ? r->address : address;
        r->elements += shard->nbytes / each;
    }
    return NULL;
}

/* ---- One device's share ---- */

typedef struct ranges {
    range *input, *output; /* by participant; NULL: none */
    range whole;           /* of the output, or else of the input */
} ranges;

static void free_ranges(ranges *all)
{
    if (all->output != all->input)
        free(all->output);
    free(all->input);
}

static kb_error *locate_new(const ccl_op *op, kb_tensor tensor, const ccl_participant *participants,
                            size_t count, range **out, range *whole)
{
    *out = kb_alloc_array(count, sizeof **out);
    return *out ? locate(op, tensor, participants, count, *out, whole) : kb_error_nomem();
}

static kb_error *locate_all(const ccl_op *op, const ccl_share *share,
                            const ccl_participant *participants, size_t count, ranges *all)
{
    kb_tensor input = share->in ? share->in->tensor : share->input;
    kb_tensor output = share->out ? share->out->tensor : share->output;
    if (input.id != 0)
        KB_TRY(locate_new(op, input, participants, count, &all->input, &all->whole));
    if (output.id != 0 && output.id == input.id)
        all->output = all->input;
    else if (output.id != 0)
        KB_TRY(locate_new(op, output, participants, count, &all->output, &all->whole));
    return NULL;
}

static kb_error *uneven(const ccl_op *op, kb_pe pe, uint64_t found, uint64_t expected)
{
    return kb_error_new(KB_ERR_FAULT,
                        "%s has a part of %" PRIu64 " elements, but '%s' needs %" PRIu64
                        " there: all parts have to be equal",
                        topo_pe_name(pe).text, found, op->instance->entry->name, expected);
}

/* The elements of one block. Input and output must agree. */
static kb_error *count_elements(const ccl_op *op, const ccl_participant *participant,
                                const range *input, const range *output, uint64_t *elements)
{
    kb_collective_kind kind = op->signature.kind;
    uint64_t world = op->group->world;
    uint64_t in_blocks = ccl_input_has_blocks(kind) ? world : 1;
    uint64_t out_blocks = ccl_output_has_blocks(kind) ? world : 1;
    *elements = input ? input->elements / in_blocks : output->elements / out_blocks;
    if (input && input->elements != *elements * in_blocks)
        return uneven(op, participant->pe, input->elements, (*elements + 1) * in_blocks);
    if (output && output->elements != *elements * out_blocks)
        return uneven(op, participant->pe, output->elements, *elements * out_blocks);
    return NULL;
}

static kb_error *add_target(ccl_op *op, ccl_share *share, const kb_ccl_target *target)
{
    const ccl_entry *entry = op->instance->entry;
    const kb_kernel *kernel = entry->algorithm->kernel;
    const kb_ccl_call call = {
        .scope = &op->instance->plan.scope,
        .kind = op->signature.kind,
        .op = op->signature.op,
        .dtype = op->signature.dtype,
        .root = op->signature.root,
        .slot_bytes = op->instance->plan.queues.settings.slot_bytes,
        .n_slots = entry->n_slots,
    };
    kb_ccl_arguments args = {0};
    kb_error *err = entry->algorithm->arguments(&call, target, &args);
    if (err)
        return kb_error_wrap(err, "'%s'", entry->name);
    if (args.count != kernel->parameter_count)
        return kb_error_new(KB_ERR_INPUT,
                            "algorithm '%s' makes %zu argument%s, but its kernel expects %zu (%s)",
                            entry->algorithm->name, args.count, kb_plural(args.count),
                            kernel->parameter_count, kernel->parameters);
    if (args.count > KB_CCL_MAX_ARGUMENTS)
        return kb_error_new(KB_ERR_INPUT, "algorithm '%s' makes %zu arguments, the maximum is %d",
                            entry->algorithm->name, args.count, KB_CCL_MAX_ARGUMENTS);
    tl_arg *own = share->args + share->target_count * kernel->parameter_count;
    for (size_t i = 0; i < args.count; i++)
        own[i] = args.items[i];
    share->targets[share->target_count++] =
        (rt_target){.cube = target->pe.cube, .pe = target->pe.pe, .args = own};
    return NULL;
}

static kb_error *fill_share(ccl_op *op, ccl_share *share, const ccl_participant *participants,
                            size_t count, const ranges *all)
{
    const kb_ccl_algorithm *algorithm = op->instance->entry->algorithm;
    size_t parameters = algorithm->kernel->parameter_count;
    bool all_run = algorithm->shares_work && all->whole.elements > 0;
    share->targets = kb_alloc_array(count, sizeof *share->targets);
    share->args = kb_alloc_array(count * parameters, sizeof *share->args);
    if (!share->targets || !share->args)
        return kb_error_nomem();
    bool one_subgroup = kb_ccl_subgroup_count(&op->instance->plan.participants) == 1;
    for (size_t i = 0; i < count; i++) {
        const range *input = all->input ? &all->input[i] : NULL;
        const range *output = all->output ? &all->output[i] : NULL;
        kb_ccl_target target = {
            .pe = participants[i].pe,
            .rank = participants[i].rank,
            .subgroup = participants[i].subgroup,
            .index = participants[i].index,
            .subgroup_size = participants[i].subgroup_size,
            .ranks = participants[i].ranks,
            .input = input ? input->address : 0,
            .output = output ? output->address : 0,
            .whole = all->whole.address,
            .whole_elements = all->whole.elements,
        };
        KB_TRY(count_elements(op, &participants[i], input, output, &target.elements));
        uint64_t bytes = target.elements * kb_dtype_bytes(op->signature.dtype);
        if (i == 0 && share == op->shares)
            op->part = bytes;
        if (one_subgroup && bytes != op->part)
            return uneven(op, target.pe, target.elements,
                          op->part / kb_dtype_bytes(op->signature.dtype));
        if (target.elements > 0 || all_run)
            KB_TRY(add_target(op, share, &target));
    }
    return NULL;
}

kb_error *ccl_make_targets(ccl_op *op)
{
    const ccl_instance *instance = op->instance;
    for (size_t i = 0; i < op->share_count; i++) {
        ccl_share *share = &op->shares[i];
        const ccl_participant *participants =
            instance->participants + instance->first[share->device];
        size_t count = instance->first[share->device + 1] - instance->first[share->device];
        ranges all = {0};
        kb_error *err = locate_all(op, share, participants, count, &all);
        if (!err)
            err = fill_share(op, share, participants, count, &all);
        free_ranges(&all);
        KB_TRY(err);
    }
    return NULL;
}

void ccl_drop_targets(ccl_op *op)
{
    op->part = 0;
    for (size_t i = 0; i < op->share_count; i++) {
        ccl_share *share = &op->shares[i];
        free(share->targets);
        free(share->args);
        share->targets = NULL;
        share->args = NULL;
        share->target_count = 0;
    }
}

void ccl_free_shares(ccl_op *op)
{
    ccl_drop_targets(op);
    free(op->shares);
}

/* ---- Layouts for the validator ---- */

typedef struct layouts {
    KB_VEC(kb_ccl_layout) items;
} layouts;

/* Adds a copy of the tensor's shards: a view is valid only until the next one. */
static kb_error *add_layout(const ccl_op *op, const ccl_share *share, bool input, layouts *all)
{
    kb_tensor tensor = input ? share->input : share->output;
    if (tensor.id == 0)
        return NULL;
    rt_tensor_view view;
    KB_TRY(rt_view_tensor(op->group->state->ctx, tensor, &view));
    kb_shard *shards = kb_alloc_array(view.shard_count, sizeof *shards);
    if (!shards)
        return kb_error_nomem();
    for (size_t i = 0; i < view.shard_count; i++)
        shards[i] = view.shards[i];
    uint32_t rank = 0; /* the first on the device */
    while (op->group->ranks[rank].sip != op->group->sips[share->device])
        rank++;
    kb_ccl_layout layout = {
        .tensor = view.name,
        .rank = rank,
        .shards = shards,
        .shard_count = view.shard_count,
        .replicated = view.replicated,
    };
    if (kb_vec_push(&all->items, layout))
        return NULL;
    free(shards);
    return kb_error_nomem();
}

static kb_error *add_layouts(const ccl_op *op, bool input, layouts *all)
{
    for (size_t i = 0; i < op->share_count; i++)
        KB_TRY(add_layout(op, &op->shares[i], input, all));
    const ccl_epoch *epoch = op->epoch;
    for (uint32_t device = 0; epoch && device < op->group->device_count; device++) {
        const ccl_op *other = epoch->ops[device];
        if (other && other != op)
            KB_TRY(add_layout(other, &other->shares[0], input, all));
    }
    return NULL;
}

static kb_error *validate(const ccl_op *op, bool input)
{
    const ccl_instance *instance = op->instance;
    layouts all = {0};
    kb_error *err = add_layouts(op, input, &all);
    if (!err && all.items.count > 0)
        err = instance->entry->validator->check(&instance->plan.scope, all.items.items,
                                                all.items.count);
    for (size_t i = 0; i < all.items.count; i++)
        free((void *)(uintptr_t)all.items.items[i].shards);
    kb_vec_fini(&all.items);
    return err ? kb_error_wrap(err, "'%s'", instance->entry->name) : NULL;
}

kb_error *ccl_validate(ccl_op *op)
{
    if (!op->instance->entry->validator)
        return NULL;
    KB_TRY(validate(op, true));
    return ccl_is_in_place(op->signature.kind) ? NULL : validate(op, false);
}
