/*
 * parallel_groups.c: tensor parallel groups (consecutive ranks, which share the weights of a layer)
 * and data parallel groups (ranks with the same part of them).
 *
 * Each rank initialises for itself and makes all groups, because calls of
 * kb_distributed_new_group() are matched by their order. A program outside workers does it for all
 * ranks at once. Invariant: the entry of a rank is valid as long as its group exists in the process
 * group.
 */
#include <kernbench/ccl.h>
#include <kernbench/tp.h>

#include <inttypes.h>
#include <stdlib.h>

#include "tp_state.h"

/* The caller's rank in the process group; 0 outside workers. */
static uint32_t own_rank(kb_context *ctx)
{
    uint32_t rank = rt_caller_rank(ctx);
    return rank == RT_DRIVER ? 0 : rank;
}

/* The entry of the rank; NULL if there is none, or its groups ended with their process group. */
static const tp_rank *find_entry(kb_context *ctx)
{
    const tp_state *state = rt_get_layer(ctx, RT_LAYER_TP);
    uint32_t rank = own_rank(ctx);
    if (!kb_distributed_is_initialized(ctx) || !state || rank >= state->rank_count)
        return NULL;
    const tp_rank *entry = &state->ranks[rank];
    uint32_t size;
    if (entry->size == 0)
        return NULL;
    kb_error *gone = kb_distributed_get_group_size(ctx, entry->tensor_group, &size);
    kb_error_free(gone);
    return gone ? NULL : entry;
}

kb_error *tp_get_rank(kb_context *ctx, const char *function, tp_rank *entry)
{
    const tp_rank *found = find_entry(ctx);
    *entry = (tp_rank){0};
    if (!found)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: model parallelism is not initialised: call "
                            "kb_tp_initialize_model_parallel() first",
                            function);
    *entry = *found;
    return NULL;
}

/* ---- Initialisation ---- */

static kb_error *check_size(kb_context *ctx, const char *function, uint32_t size, uint32_t *world)
{
    kb_ccl_info info;
    if (!kb_distributed_is_initialized(ctx))
        return kb_error_new(KB_ERR_INPUT,
                            "%s: the process group is not initialised: call "
                            "kb_distributed_init_process_group() first",
                            function);
    if (find_entry(ctx))
        return kb_error_new(KB_ERR_INPUT, "%s: already initialised", function);
    KB_TRY(kb_ccl_get_info(ctx, &info));
    if (info.rank_is_pe)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: ranks are PEs in the algorithm '%s' of ccl.yaml: tensor parallel "
                            "layers need ranks that are devices",
                            function, info.algorithm);
    KB_TRY(kb_distributed_get_world_size(ctx, world));
    if (size == 0 || *world % size != 0)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: the world size %" PRIu32
                            " is not divisible by the tensor parallel size %" PRIu32,
                            function, *world, size);
    return NULL;
}

/* A group of `count` ranks at distance `step`. */
static kb_error *make_group(kb_context *ctx, uint32_t first, uint32_t step, uint32_t count,
                            kb_group *group)
{
    uint32_t *ranks = kb_alloc_array(count, sizeof *ranks);
    if (!ranks)
        return kb_error_nomem();
    for (uint32_t i = 0; i < count; i++)
        ranks[i] = first + i * step;
    kb_error *err = kb_distributed_new_group(ctx, ranks, count, group);
    free(ranks);
    return err;
}

static bool make_entries(tp_state *state, uint32_t world)
{
    if (state->rank_count >= world)
        return true;
    tp_rank *grown = kb_realloc_array(state->ranks, world, sizeof *grown);
    if (!grown)
        return false;
    state->ranks = grown;
    for (uint32_t rank = state->rank_count; rank < world; rank++)
        grown[rank] = (tp_rank){0};
    state->rank_count = world;
    return true;
}

/* Whether the caller initialises the rank. */
static bool is_own(kb_context *ctx, uint32_t rank)
{
    return rt_caller_rank(ctx) == RT_DRIVER || rank == rt_caller_rank(ctx);
}

static kb_error *make_groups(kb_context *ctx, tp_rank *ranks, uint32_t size, uint32_t world)
{
    kb_group group;
    for (uint32_t first = 0; first < world; first += size) {
        KB_TRY(make_group(ctx, first, 1, size, &group));
        for (uint32_t rank = first; rank < first + size; rank++)
            if (is_own(ctx, rank))
                ranks[rank] = (tp_rank){.tensor_group = group}; /* size 0: not valid yet */
    }
    for (uint32_t first = 0; first < size; first++) {
        KB_TRY(make_group(ctx, first, size, world / size, &group));
        for (uint32_t rank = first; rank < world; rank += size)
            if (is_own(ctx, rank))
                ranks[rank].data_group = group;
    }
    for (uint32_t rank = 0; rank < world; rank++) {
        if (!is_own(ctx, rank))
            continue;
        ranks[rank].size = size;
        ranks[rank].index = rank % size;
        ranks[rank].first = rank / size * size;
        ranks[rank].data_size = world / size;
        ranks[rank].data_index = rank / size;
    }
    return NULL;
}

kb_error *kb_tp_initialize_model_parallel(kb_context *ctx, uint32_t size)
{
    static const char function[] = "kb_tp_initialize_model_parallel";
    uint32_t world;
    tp_state *state;
    KB_TRY(check_size(ctx, function, size, &world));
    KB_TRY(tp_get_state(ctx, &state));
    if (!make_entries(state, world))
        return kb_error_nomem();
    kb_error *err = make_groups(ctx, state->ranks, size, world);
    return err ? kb_error_wrap(err, "%s", function) : NULL;
}

bool kb_tp_model_parallel_is_initialized(kb_context *ctx)
{
    return find_entry(ctx) != NULL;
}

kb_error *kb_tp_destroy_model_parallel(kb_context *ctx)
{
    tp_rank entry;
    KB_TRY(tp_get_rank(ctx, "kb_tp_destroy_model_parallel", &entry));
    tp_state *state = rt_get_layer(ctx, RT_LAYER_TP);
    if (rt_caller_rank(ctx) != RT_DRIVER) {
        state->ranks[own_rank(ctx)].size = 0;
        return NULL;
    }
    for (uint32_t rank = 0; rank < state->rank_count; rank++)
        state->ranks[rank].size = 0;
    return NULL;
}

/* ---- Queries ---- */

kb_error *kb_tp_get_tensor_model_parallel_rank(kb_context *ctx, uint32_t *rank)
{
    tp_rank entry;
    KB_TRY(tp_get_rank(ctx, "kb_tp_get_tensor_model_parallel_rank", &entry));
    *rank = entry.index;
    return NULL;
}

kb_error *kb_tp_get_tensor_model_parallel_world_size(kb_context *ctx, uint32_t *size)
{
    tp_rank entry;
    KB_TRY(tp_get_rank(ctx, "kb_tp_get_tensor_model_parallel_world_size", &entry));
    *size = entry.size;
    return NULL;
}

kb_error *kb_tp_get_tensor_model_parallel_group(kb_context *ctx, kb_group *group)
{
    tp_rank entry;
    KB_TRY(tp_get_rank(ctx, "kb_tp_get_tensor_model_parallel_group", &entry));
    *group = entry.tensor_group;
    return NULL;
}

kb_error *kb_tp_get_data_parallel_rank(kb_context *ctx, uint32_t *rank)
{
    tp_rank entry;
    KB_TRY(tp_get_rank(ctx, "kb_tp_get_data_parallel_rank", &entry));
    *rank = entry.data_index;
    return NULL;
}

kb_error *kb_tp_get_data_parallel_world_size(kb_context *ctx, uint32_t *size)
{
    tp_rank entry;
    KB_TRY(tp_get_rank(ctx, "kb_tp_get_data_parallel_world_size", &entry));
    *size = entry.data_size;
    return NULL;
}

kb_error *kb_tp_get_data_parallel_group(kb_context *ctx, kb_group *group)
{
    tp_rank entry;
    KB_TRY(tp_get_rank(ctx, "kb_tp_get_data_parallel_group", &entry));
    *group = entry.data_group;
    return NULL;
}
