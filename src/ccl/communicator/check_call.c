/*
 * check_call.c: the table of collectives, and checks of calls that need no other rank. A call that
 * fails them has had no effect.
 */
#include "communicator.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- Collectives ---- */

const char *kb_reduce_op_name(kb_reduce_op op)
{
    static const char *const names[KB_REDUCE_OPS] = {
        [KB_SUM] = "sum", [KB_MAX] = "max", [KB_MIN] = "min", [KB_PROD] = "prod", [KB_AVG] = "avg",
    };
    return (unsigned)op < KB_REDUCE_OPS ? names[op] : "";
}

/* Properties of collectives. */
enum {
    INPUT_BLOCKS = 1,      /* the input has a block for each rank */
    OUTPUT_BLOCKS = 2,     /* the output does */
    IN_PLACE = 4,          /* one tensor is input and output */
    REDUCES = 8,           /* has a reduce operation */
    ROOTED = 16,           /* one rank is the root */
    PAIR = 32,             /* between two ranks */
    OUTPUT_REFERENCE = 64, /* every rank has the output, and not every rank the input */
};

static const struct {
    const char *name;
    unsigned is;
} kinds[KB_COLLECTIVES] = {
    [KB_ALL_REDUCE] = {"all_reduce", IN_PLACE | REDUCES},
    [KB_ALL_GATHER] = {"all_gather", OUTPUT_BLOCKS},
    [KB_REDUCE_SCATTER] = {"reduce_scatter", INPUT_BLOCKS | REDUCES | OUTPUT_REFERENCE},
    [KB_BROADCAST] = {"broadcast", IN_PLACE | ROOTED},
    [KB_REDUCE] = {"reduce", IN_PLACE | REDUCES | ROOTED},
    [KB_GATHER] = {"gather", OUTPUT_BLOCKS | ROOTED},
    [KB_SCATTER] = {"scatter", INPUT_BLOCKS | ROOTED | OUTPUT_REFERENCE},
    [KB_ALL_TO_ALL] = {"all_to_all", INPUT_BLOCKS | OUTPUT_BLOCKS},
    [KB_SEND] = {"send", PAIR},
    [KB_RECV] = {"recv", PAIR | OUTPUT_REFERENCE},
    [KB_BARRIER] = {"barrier", 0},
};

static bool is(kb_collective_kind kind, unsigned property)
{
    return (unsigned)kind < KB_COLLECTIVES && (kinds[kind].is & property) != 0;
}

const char *kb_collective_name(kb_collective_kind kind)
{
    return (unsigned)kind < KB_COLLECTIVES ? kinds[kind].name : "";
}

bool ccl_input_has_blocks(kb_collective_kind kind)
{
    return is(kind, INPUT_BLOCKS);
}

bool ccl_output_has_blocks(kb_collective_kind kind)
{
    return is(kind, OUTPUT_BLOCKS);
}

bool ccl_is_in_place(kb_collective_kind kind)
{
    return is(kind, IN_PLACE);
}

bool ccl_reduces(kb_collective_kind kind)
{
    return is(kind, REDUCES);
}

bool ccl_has_root(kb_collective_kind kind)
{
    return is(kind, ROOTED);
}

bool ccl_is_pair(kb_collective_kind kind)
{
    return is(kind, PAIR);
}

bool ccl_output_is_reference(kb_collective_kind kind)
{
    return is(kind, OUTPUT_REFERENCE);
}

/* ---- Entries ---- */

kb_error *ccl_no_such_entry(const ccl_config *config, const char *name)
{
    kb_suggestion near;
    kb_suggestion_init(&near, name);
    for (size_t i = 0; i < config->entries.count; i++)
        kb_suggestion_offer(&near, config->entries.items[i].name);
    kb_suggestion_offer(&near, "auto");
    return kb_error_new(KB_ERR_INPUT, "%s has no algorithm '%s'%s", config->path, name,
                        kb_suggestion_hint(&near, ""));
}

kb_error *ccl_find_entry(const ccl_group *group, kb_collective_kind kind, const char *name,
                         const ccl_entry **out)
{
    const ccl_state *state = group->state;
    const ccl_entry *entry = ccl_config_find(&state->config, name);
    *out = entry;
    if (!entry)
        return ccl_no_such_entry(&state->config, name);
    if (!(entry->algorithm->collectives >> kind & 1))
        return kb_error_new(KB_ERR_INPUT, "'%s' (%s) does not implement %s", name,
                            entry->algorithm->name, kb_collective_name(kind));
    if (entry->rank_is_pe != state->rank_is_pe)
        return kb_error_new(KB_ERR_INPUT,
                            "ranks of '%s' are %s, but ranks of the process group are %s, as "
                            "defaults.algorithm selects in %s",
                            name, entry->rank_is_pe ? "PEs" : "devices",
                            state->rank_is_pe ? "PEs" : "devices", state->config.path);
    if (entry->world_size > 0 && entry->world_size != group->world)
        return kb_error_new(KB_ERR_INPUT,
                            "'%s' is for %" PRIu32 " rank%s, but the group has %" PRIu32, name,
                            entry->world_size, kb_plural(entry->world_size), group->world);
    return NULL;
}

/* ---- Numbers ---- */

static kb_error *check_dtype(const kb_collective *call, kb_dtype dtype)
{
    const char *kind = kb_collective_name(call->kind);
    if (!ccl_reduces(call->kind))
        return NULL;
    if (mem_is_storage(dtype))
        return kb_error_new(KB_ERR_FAULT, "%s: unsupported dtype %s: it is for storage only", kind,
                            kb_dtype_name(dtype));
    bool whole = mem_is_integer(dtype);
    if (whole && call->op == KB_AVG)
        return kb_error_new(KB_ERR_FAULT,
                            "%s: unsupported dtype %s: an average is not a whole "
                            "number",
                            kind, kb_dtype_name(dtype));
    return NULL;
}

static kb_error *check_numbers(const ccl_group *group, const kb_collective *call, uint32_t device,
                               uint32_t count)
{
    if ((unsigned)call->kind >= KB_COLLECTIVES)
        return kb_error_new(KB_ERR_INPUT, "invalid collective %d", (int)call->kind);
    const char *kind = kb_collective_name(call->kind);
    if (ccl_reduces(call->kind) && (unsigned)call->op >= KB_REDUCE_OPS)
        return kb_error_new(KB_ERR_INPUT, "%s: invalid reduce operation %d", kind, (int)call->op);
    bool other = ccl_has_root(call->kind) || ccl_is_pair(call->kind);
    if (other && call->root >= group->world)
        return kb_error_new(KB_ERR_INPUT, "%s: no such rank %" PRIu32 ": the group has %" PRIu32,
                            kind, call->root, group->world);
    bool stands_for_all =
        rt_caller_rank(group->state->ctx) == RT_DRIVER || group->state->rank_is_pe;
    if (ccl_is_pair(call->kind) && stands_for_all)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: only workers can call it; use kb_tensor_copy() on the host", kind);
    if (ccl_is_pair(call->kind) && call->root == device)
        return kb_error_new(KB_ERR_INPUT, "%s: rank %" PRIu32 " is the caller itself", kind,
                            call->root);
    if (call->count == count)
        return NULL;
    return kb_error_new(KB_ERR_INPUT,
                        "%s: %zu tensor%s given, but the caller drives %" PRIu32
                        " device%s: expected one per device",
                        kind, call->count, kb_plural(call->count), count, kb_plural(count));
}

/* ---- Tensors ---- */

/* Whether the root is a rank on this device. */
static bool has_the_root(const ccl_group *group, const kb_collective *call, uint32_t device)
{
    return group->ranks[call->root].sip == group->sips[device];
}

static bool needs_input(const ccl_group *group, const kb_collective *call, uint32_t device)
{
    return call->kind != KB_RECV && (call->kind != KB_SCATTER || has_the_root(group, call, device));
}

static bool needs_output(const ccl_group *group, const kb_collective *call, uint32_t device)
{
    return call->kind != KB_SEND && (call->kind != KB_GATHER || has_the_root(group, call, device));
}

static kb_error *pick_tensors(const ccl_group *group, const kb_collective *call, size_t index,
                              ccl_share *share)
{
    const char *kind = kb_collective_name(call->kind);
    const kb_tensor *inputs = call->inputs, *outputs = call->outputs;
    if (ccl_is_in_place(call->kind)) {
        inputs = inputs ? inputs : outputs;
        outputs = outputs ? outputs : inputs;
        if (inputs && inputs[index].id != outputs[index].id)
            return kb_error_new(KB_ERR_INPUT,
                                "%s works in place: input and output have to be the "
                                "same tensor",
                                kind);
    }
    bool takes = needs_input(group, call, share->device),
         gives = needs_output(group, call, share->device);
    if ((takes && !inputs) || (gives && !outputs))
        return kb_error_new(KB_ERR_INPUT, "%s: no %s were given", kind,
                            takes && !inputs ? "inputs" : "outputs");
    share->input = takes ? inputs[index] : (kb_tensor){0};
    share->output = gives ? outputs[index] : (kb_tensor){0};
    return NULL;
}

static kb_error *view_tensor(const ccl_group *group, uint32_t device, kb_tensor tensor,
                             rt_tensor_view *view)
{
    KB_TRY(rt_view_tensor(group->state->ctx, tensor, view));
    if (view->on_host)
        return kb_error_new(KB_ERR_FAULT,
                            "tensor '%s' is on the host: it was never deployed to a "
                            "device",
                            view->name);
    if (view->sip == group->sips[device])
        return NULL;
    if (group->state->rank_is_pe)
        return kb_error_new(KB_ERR_FAULT,
                            "tensor '%s' is on sip%" PRIu32 ", but one on sip%" PRIu32
                            " is needed: one for each device that has ranks, in order",
                            view->name, view->sip, group->sips[device]);
    return kb_error_new(KB_ERR_FAULT,
                        "tensor '%s' is on sip%" PRIu32 ", but rank %" PRIu32 " has sip%" PRIu32,
                        view->name, view->sip, group->global_ranks[device], group->sips[device]);
}

/* Collectives that are not in place need two tensors. */
static kb_error *check_apart(const ccl_group *group, kb_collective_kind kind,
                             const ccl_share *share)
{
    rt_tensor_view view;
    if (ccl_is_in_place(kind) || share->input.id == 0 || share->input.id != share->output.id)
        return NULL;
    KB_TRY(rt_view_tensor(group->state->ctx, share->input, &view));
    return kb_error_new(KB_ERR_FAULT,
                        "%s: input and output are the same tensor '%s', which is not supported",
                        kb_collective_name(kind), view.name);
}

/* Refuses tensors of two shares on one device. */
static kb_error *check_twice(kb_context *ctx, const ccl_group *group, const ccl_op *op)
{
    for (size_t i = 0; i < op->share_count; i++) {
        for (size_t k = 0; k < i; k++) {
            rt_tensor_view a, b;
            kb_tensor one = op->shares[k].input.id ? op->shares[k].input : op->shares[k].output;
            kb_tensor two = op->shares[i].input.id ? op->shares[i].input : op->shares[i].output;
            KB_TRY(rt_view_tensor(ctx, one, &a));
            KB_TRY(rt_view_tensor(ctx, two, &b));
            if (!a.on_host && !b.on_host && a.sip == b.sip && !group->state->rank_is_pe)
                return kb_error_new(KB_ERR_FAULT,
                                    "a rank joined twice: tensors '%s' and '%s' are both on "
                                    "sip%" PRIu32,
                                    a.name, b.name, a.sip);
        }
    }
    return NULL;
}

/* Properties of the first tensor, with which all others must agree. */
typedef struct facts {
    bool known;
    char name[64];
    kb_dtype dtype;
    uint64_t block; /* elements of one block */
} facts;

static kb_error *agree(const ccl_group *group, const rt_tensor_view *view, bool has_blocks,
                       facts *all)
{
    uint64_t blocks = has_blocks ? group->world : 1;
    if (view->elements % blocks != 0)
        return kb_error_new(KB_ERR_FAULT,
                            "tensor '%s' has %" PRIu64 " elements, which do not divide into "
                            "blocks for %" PRIu64 " ranks",
                            view->name, view->elements, blocks);
    if (!all->known) {
        *all = (facts){.known = true, .dtype = view->dtype, .block = view->elements / blocks};
        snprintf(all->name, sizeof all->name, "%s", view->name);
        return NULL;
    }
    if (view->dtype != all->dtype)
        return kb_error_new(KB_ERR_FAULT, "tensor '%s' is %s, but '%s' is %s", view->name,
                            kb_dtype_name(view->dtype), all->name, kb_dtype_name(all->dtype));
    if (view->elements == all->block * blocks || group->state->rank_is_pe)
        return NULL;
    return kb_error_new(KB_ERR_FAULT,
                        "tensor '%s' has %" PRIu64 " elements, but %" PRIu64
                        " are needed beside '%s'",
                        view->name, view->elements, all->block * blocks, all->name);
}

/* Whether this is the tensor that every rank has: its shape is compared. */
static bool is_reference(kb_collective_kind kind, bool is_input)
{
    return is_input != ccl_output_is_reference(kind);
}

static kb_error *check_tensor(const ccl_group *group, uint32_t device, kb_tensor tensor,
                              bool is_input, ccl_op *op, facts *all)
{
    rt_tensor_view view;
    kb_collective_kind kind = op->signature.kind;
    if (tensor.id == 0 && !is_reference(kind, is_input))
        return NULL; /* of another rank than the root */
    KB_TRY(view_tensor(group, device, tensor, &view));
    KB_TRY(agree(group, &view, is_input ? ccl_input_has_blocks(kind) : ccl_output_has_blocks(kind),
                 all));
    if (is_reference(kind, is_input) && device == op->shares[0].device) {
        op->signature.shape = view.shape;
        op->memory = view.memory;
    }
    if (is_reference(kind, is_input) && !group->state->rank_is_pe &&
        !mem_shape_equal(&view.shape, &op->signature.shape))
        return kb_error_new(KB_ERR_FAULT, "tensors '%s' and '%s' differ in shape", all->name,
                            view.name);
    return NULL;
}

uint32_t ccl_ranks_on(const ccl_group *group, uint32_t device)
{
    uint32_t count = 0;
    for (uint32_t rank = 0; rank < group->world; rank++)
        count += group->ranks[rank].sip == group->sips[device];
    return count;
}

static kb_error *check_tensors(const ccl_group *group, const kb_collective *call, ccl_op *op)
{
    facts all = {0};
    for (size_t i = 0; i < op->share_count; i++)
        KB_TRY(pick_tensors(group, call, i, &op->shares[i]));
    KB_TRY(check_twice(group->state->ctx, group, op));
    for (size_t i = 0; i < op->share_count; i++) {
        const ccl_share *share = &op->shares[i];
        KB_TRY(check_apart(group, call->kind, share));
        KB_TRY(check_tensor(group, share->device, share->input, true, op, &all));
        if (share->output.id != share->input.id)
            KB_TRY(check_tensor(group, share->device, share->output, false, op, &all));
    }
    KB_TRY(check_dtype(call, all.dtype));
    bool blocks = ccl_input_has_blocks(call->kind) || ccl_output_has_blocks(call->kind);
    op->signature.dtype = all.dtype;
    op->size = all.block * (blocks ? group->world : 1) * kb_dtype_bytes(all.dtype);
    if (group->state->rank_is_pe)
        op->size /= ccl_ranks_on(group, op->shares[0].device);
    return NULL;
}

kb_error *ccl_check_call(ccl_group *group, const kb_collective *call, uint32_t device,
                         uint32_t count, ccl_op *op)
{
    KB_TRY(check_numbers(group, call, device, count));
    op->signature = (ccl_signature){.kind = call->kind, .op = call->op, .root = call->root};
    for (size_t i = 0; i < op->share_count; i++)
        op->shares[i].device = device + (uint32_t)i;
    const char *name = call->options.algorithm;
    if (name && strcmp(name, CCL_AUTO_NAME) == 0) {
        op->signature.algorithm = CCL_AUTO_NAME;
    } else if (name) {
        const ccl_entry *entry;
        KB_TRY(ccl_find_entry(group, call->kind, name, &entry));
        op->signature.algorithm = entry->name;
    }
    return check_tensors(group, call, op);
}
