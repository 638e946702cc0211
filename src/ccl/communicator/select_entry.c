/*
 * select_entry.c: selects the entry of ccl.yaml that serves a call.
 *
 *     the call names one    that entry; an error if it does not compute the collective
 *     "auto"                the fastest entry that works in any layout (tune.c)
 *     no name               the entry of defaults.algorithm, if it can do the collective and the
 *                           tensors have the layout that it needs; else as "auto"
 *
 * The first call of an epoch selects for all ranks, by its own tensors. An entry whose mapper takes
 * several PEs of a rank into one subgroup adds up PEs, not ranks. That is another operation, so the
 * entry must declare it (reduce_shards: true).
 */
#include "communicator.h"

#include <inttypes.h>
#include <string.h>

/* ---- Named entries ---- */

static kb_error *check_meaning(const ccl_instance *instance)
{
    const ccl_entry *entry = instance->entry;
    if (!instance->mixes_shards || entry->reduce_shards)
        return NULL;
    return kb_error_new(KB_ERR_INPUT,
                        "'%s' combines PEs, not ranks: its mapper %s takes several PEs of a rank. "
                        "Say reduce_shards: true if the shards of a SIP are to be combined too, "
                        "rank: pe if PEs are the ranks, or take the mapper leader_only",
                        entry->name, entry->mapper->name);
}

static kb_error *select_named(ccl_op *op, const char *name)
{
    const ccl_entry *entry;
    KB_TRY(ccl_find_entry(op->group, op->signature.kind, name, &entry));
    KB_TRY(ccl_get_instance(op->group, entry, &op->instance));
    return check_meaning(op->instance);
}

/* ---- The configured entry ---- */

/* An entry that combines shards needs a shard on each of its PEs: copies of the same elements and
 * empty shards are refused. */
static kb_error *check_shards(const ccl_op *op, const ccl_entry *entry)
{
    for (size_t i = 0; i < op->share_count && entry->reduce_shards; i++) {
        rt_tensor_view view;
        if (op->shares[i].input.id == 0)
            continue;
        KB_TRY(rt_view_tensor(op->group->state->ctx, op->shares[i].input, &view));
        if (view.replicated)
            return kb_error_new(KB_ERR_INPUT, "'%s' would add up the copies of tensor '%s'",
                                entry->name, view.name);
        for (size_t s = 0; s < view.shard_count; s++)
            if (view.shards[s].nbytes == 0)
                return kb_error_new(KB_ERR_INPUT,
                                    "'%s' combines shards, and some of tensor '%s' are empty",
                                    entry->name, view.name);
    }
    return NULL;
}

/* Checks the entry with the tensors of the op. */
static kb_error *check_layout(ccl_op *op)
{
    if (op->instance->lanes)
        return NULL;
    KB_TRY(check_shards(op, op->instance->entry));
    KB_TRY(ccl_validate(op));
    kb_error *err = ccl_make_targets(op);
    ccl_drop_targets(op);
    return err;
}

static kb_error *try_configured(ccl_op *op)
{
    const ccl_entry *chosen = op->group->state->chosen;
    if (chosen->algorithm->by_name_only)
        return kb_error_new(KB_ERR_INPUT, "'%s' is no %s: only calls that name it use it",
                            chosen->name, kb_collective_name(op->signature.kind));
    KB_TRY(select_named(op, chosen->name));
    return check_layout(op);
}

/* ---- Notes ---- */

static void note(const ccl_op *op, const char *entry, const char *why)
{
    kb_text what = KB_TEXT_INIT;
    ccl_print_signature(op->group, &op->signature, &what);
    ccl_print_group(op->group, &what);
    rt_note(op->group->state->ctx, "%s uses '%s': %s", kb_text_peek(&what), entry, why);
    kb_text_fini(&what);
}

static void note_auto(const ccl_op *op, const char *entry, const kb_error *unfit)
{
    kb_text why = KB_TEXT_INIT;
    kb_text_printf(&why, "the fastest for %" PRIu64 " bytes that works in any layout", op->size);
    if (unfit)
        kb_text_printf(&why, "; defaults.algorithm does not fit: %s", kb_error_message(unfit));
    note(op, entry, kb_text_peek(&why));
    kb_text_fini(&why);
}

/* ---- Selecting ---- */

static kb_error *select_auto(ccl_op *op, const kb_error *unfit)
{
    const ccl_entry *entry;
    KB_TRY(ccl_choose(op->group, op, &entry));
    KB_TRY(ccl_get_instance(op->group, entry, &op->instance));
    note_auto(op, entry->name, unfit);
    return NULL;
}

static kb_error *select_configured(ccl_op *op)
{
    const ccl_state *state = op->group->state;
    if (!state->chosen)
        return select_auto(op, NULL);
    kb_error *unfit = try_configured(op);
    if (!unfit)
        note(op, state->chosen->name, "defaults.algorithm names it");
    if (!unfit || kb_error_code(unfit) == KB_ERR_HOST)
        return unfit;
    kb_error *err = select_auto(op, unfit);
    kb_error_free(unfit);
    return err;
}

kb_error *ccl_select(ccl_op *op)
{
    const char *name = op->signature.algorithm;
    if (!name)
        return select_configured(op);
    return strcmp(name, CCL_AUTO_NAME) == 0 ? select_auto(op, NULL) : select_named(op, name);
}
