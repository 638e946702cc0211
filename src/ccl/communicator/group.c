/*
 * group.c: the process group, and groups of some of its ranks.
 *
 * The context has one ccl_state, created at the first call that needs it. Groups end with their
 * process group. The process group ends with the workers that made it, or with the context. A
 * process group that workers made is over when all workers have joined and left it. A worker that
 * initialises again before that waits, so that the n-th process group of one rank is the n-th of
 * all ranks.
 */
#include "communicator.h"

#include <stdlib.h>
#include <string.h>

static const char backend_name[] = "ahbm";

/* ---- Groups ---- */

static void free_group(ccl_group *group)
{
    if (!group)
        return;
    ccl_free_calls(group);
    ccl_free_epochs(group);
    ccl_free_staging(group);
    ccl_free_instances(group);
    kb_vec_fini(&group->pairs);
    kb_vec_fini(&group->choices);
    free(group->global_ranks);
    free(group->ranks);
    free(group->sips);
    free(group->calls);
    free(group->last);
    free(group);
}

/* The PE of a rank of the process group, or PE 0 of cube 0 of its device. */
static kb_pe pe_of_rank(const ccl_state *state, uint32_t rank)
{
    const topo_shape *shape = topo_machine_shape(state->machine);
    uint32_t only = rt_only_sip(state->ctx), pes = shape->pes;
    if (!state->rank_is_pe)
        return (kb_pe){.sip = only == TOPO_NONE ? rank : only};
    uint32_t in_sip = rank % (shape->cubes * pes);
    return (kb_pe){
        .sip = only == TOPO_NONE ? rank / (shape->cubes * pes) : only,
        .cube = in_sip / pes,
        .pe = in_sip % pes,
    };
}

static void number_devices(ccl_group *group)
{
    for (uint32_t rank = 0; rank < group->world; rank++) {
        uint32_t sip = group->ranks[rank].sip, device = 0;
        if (rank > 0 && group->ranks[rank - 1].sip == sip)
            continue; /* shortcut: consecutive ranks are mostly on one SIP */
        while (device < group->device_count && group->sips[device] != sip)
            device++;
        if (device == group->device_count)
            group->sips[group->device_count++] = sip;
    }
}

/* A group of these ranks of the process group; global_ranks NULL: of all. NULL if there is no
 * memory. */
static ccl_group *new_group(ccl_state *state, const uint32_t *global_ranks, uint32_t count)
{
    ccl_group *group = kb_alloc_zeroed(1, sizeof *group);
    if (!group)
        return NULL;
    group->state = state;
    group->world = count;
    group->global_ranks = kb_alloc_array(count, sizeof *group->global_ranks);
    group->ranks = kb_alloc_array(count, sizeof *group->ranks);
    group->sips = kb_alloc_array(count, sizeof *group->sips);
    group->calls = kb_alloc_zeroed(count, sizeof *group->calls);
    group->last = kb_alloc_zeroed(count, sizeof *group->last);
    bool made = group->global_ranks && group->ranks && group->sips && group->calls && group->last;
    if (!made || !kb_vec_reserve(&state->groups, 1)) {
        free_group(group);
        return NULL;
    }
    for (uint32_t rank = 0; rank < count; rank++) {
        group->global_ranks[rank] = global_ranks ? global_ranks[rank] : rank;
        group->ranks[rank] = pe_of_rank(state, group->global_ranks[rank]);
    }
    number_devices(group);
    group->id = state->groups.count == 0 ? 0 : ++state->last_id;
    state->groups.items[state->groups.count++] = group;
    return group;
}

void ccl_print_group(const ccl_group *group, kb_text *text)
{
    if (group->id != 0)
        kb_text_printf(text, " of group %ju", (uintmax_t)group->id);
}

static kb_error *await_calls(ccl_group *group)
{
    while (group->ops)
        KB_TRY(kb_cooperative_yield(group->state->ctx));
    return NULL;
}

/* ---- The process group ---- */

static void destroy_process_group(ccl_state *state)
{
    for (size_t i = 0; i < state->groups.count; i++)
        free_group(state->groups.items[i]);
    state->groups.count = 0;
    free(state->joined);
    free(state->left);
    free(state->gone);
    free(state->groups_made);
    state->joined = state->left = state->gone = NULL;
    state->groups_made = NULL;
    state->exists = state->of_driver = false;
}

static void free_leaving(ccl_state *state)
{
    while (state->leaving.count > 0)
        free_group(state->leaving.items[--state->leaving.count]);
}

static void note_ended_workers(ccl_state *state)
{
    for (uint32_t rank = 0; rank < state->world; rank++)
        state->gone[rank] = rt_worker_has_ended(state->ctx, rank);
}

/* False if there is no memory. */
static bool create_process_group(ccl_state *state)
{
    state->joined = kb_alloc_zeroed(state->world, sizeof *state->joined);
    state->left = kb_alloc_zeroed(state->world, sizeof *state->left);
    state->gone = kb_alloc_zeroed(state->world, sizeof *state->gone);
    state->groups_made = kb_alloc_zeroed(state->world, sizeof *state->groups_made);
    bool made = state->joined && state->left && state->gone && state->groups_made;
    if (made && new_group(state, NULL, state->world)) {
        note_ended_workers(state);
        state->exists = true;
        return true;
    }
    destroy_process_group(state);
    return false;
}

static bool is_initialized(const ccl_state *state, uint32_t rank)
{
    if (!state || !state->exists)
        return false;
    uint32_t drivers = state->rank_is_pe ? 1 : state->world;
    return rank == RT_DRIVER || (rank < drivers && state->joined[rank]);
}

static kb_error *check_rank(const ccl_state *state, uint32_t rank, const char *function)
{
    if (rank == RT_DRIVER || (state->rank_is_pe ? rank == 0 : rank < state->world))
        return NULL;
    if (state->rank_is_pe)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: '%s' has PEs as ranks, and the worker of rank 0 drives them all: "
                            "there is nothing for rank %u to do",
                            function, state->ranks->name, rank);
    return kb_error_new(KB_ERR_INPUT, "%s: rank %u has no device: the world size is %u", function,
                        rank, state->world);
}

/* Checks that the machine has enough PEs for the ranks. */
static kb_error *check_world(const ccl_state *state, const char *function)
{
    const topo_shape *shape = topo_machine_shape(state->machine);
    uint32_t sips = rt_only_sip(state->ctx) == TOPO_NONE ? shape->sips : 1;
    uint32_t pes = sips * shape->cubes * shape->pes;
    if (!state->rank_is_pe || state->world <= pes)
        return NULL;
    return kb_error_new(KB_ERR_INPUT, "%s: '%s' needs %u PE%s as ranks, but there are %u", function,
                        state->ranks->name, state->world, kb_plural(state->world), pes);
}

/* The state, if the caller has initialised the process group. */
static kb_error *require_process_group(kb_context *ctx, const char *function, ccl_state **out)
{
    ccl_state *state = rt_get_layer(ctx, RT_LAYER_CCL);
    uint32_t rank = rt_caller_rank(ctx);
    *out = state;
    if (is_initialized(state, rank))
        return NULL;
    if (state && state->exists)
        KB_TRY(check_rank(state, rank, function));
    return kb_error_new(KB_ERR_INPUT, "%s: call kb_distributed_init_process_group() first",
                        function);
}

/* Installs the queues of the configured entry. Those of other entries are installed at their first
 * call. */
static kb_error *install_chosen(ccl_state *state)
{
    if (!state->chosen)
        return NULL;
    ccl_instance *instance;
    KB_TRY(ccl_get_instance(state->groups.items[0], state->chosen, &instance));
    return ccl_install(state->groups.items[0], instance);
}

/* ---- Leaving the process group ---- */

/* Waits for the calls of former groups, and removes their queues from the machine. */
static kb_error *remove_leaving(ccl_state *state)
{
    for (size_t i = 0; i < state->leaving.count; i++) {
        KB_TRY(await_calls(state->leaving.items[i]));
        KB_TRY(ccl_remove_instances(state->leaving.items[i]));
    }
    free_leaving(state);
    return NULL;
}

static void wake_returning(ccl_state *state)
{
    kb_wake_all(kb_context_sim(state->ctx), &state->returning);
}

static kb_error *clear_leaving(ccl_state *state)
{
    state->clearing = true;
    kb_error *err = remove_leaving(state);
    state->clearing = false;
    wake_returning(state);
    return err;
}

/* Whether all ranks have left, or ended without joining. */
static bool all_have_left(const ccl_state *state)
{
    uint32_t drivers = state->rank_is_pe ? 1 : state->world;
    for (uint32_t rank = 0; rank < drivers; rank++)
        if (state->joined[rank] || (!state->left[rank] && !state->gone[rank]))
            return false;
    return true;
}

static kb_error *take_down(ccl_state *state)
{
    if (!kb_vec_reserve(&state->leaving, state->groups.count))
        return kb_error_nomem();
    for (size_t i = 0; i < state->groups.count; i++) {
        ccl_abandon_epochs(state->groups.items[i]);
        state->leaving.items[state->leaving.count++] = state->groups.items[i];
    }
    state->groups.count = 0;
    destroy_process_group(state);
    return clear_leaving(state);
}

static bool has_left(const ccl_state *state, uint32_t rank)
{
    return state->exists && rank != RT_DRIVER && state->left[rank];
}

/* Waits until the previous process group of the rank has ended. */
static kb_error *await_end_of_last(ccl_state *state, uint32_t rank)
{
    while (has_left(state, rank) || state->leaving.count > 0) {
        if (has_left(state, rank) && all_have_left(state))
            KB_TRY(take_down(state)); /* the remaining workers have ended */
        else if (state->leaving.count > 0 && !state->clearing)
            KB_TRY(clear_leaving(state)); /* the rank that was clearing has failed */
        else
            KB_TRY(rt_block_on(state->ctx, &state->returning));
    }
    return NULL;
}

kb_error *kb_distributed_destroy_process_group(kb_context *ctx)
{
    ccl_state *state;
    KB_TRY(require_process_group(ctx, "kb_distributed_destroy_process_group", &state));
    uint32_t rank = rt_caller_rank(ctx);
    if (rank != RT_DRIVER) {
        state->joined[rank] = false;
        state->left[rank] = true;
        if (!all_have_left(state))
            return NULL;
    }
    return take_down(state);
}

/* ---- Initialisation and queries ---- */

kb_error *kb_distributed_init_process_group(kb_context *ctx, const char *backend)
{
    static const char function[] = "kb_distributed_init_process_group";
    if (!backend || strcmp(backend, backend_name) != 0)
        return kb_error_new(KB_ERR_INPUT, "%s: unknown backend '%s': use '%s'", function,
                            backend ? backend : "", backend_name);
    uint32_t rank = rt_caller_rank(ctx);
    ccl_state *state = rt_get_layer(ctx, RT_LAYER_CCL);
    if (is_initialized(state, rank))
        return kb_error_new(KB_ERR_INPUT, "%s: already initialised", function);
    kb_error *err = ccl_get_state(ctx, &state);
    if (err)
        return kb_error_wrap(err, "%s", function);
    KB_TRY(check_rank(state, rank, function));
    KB_TRY(check_world(state, function));
    KB_TRY(await_end_of_last(state, rank));
    if (!state->exists && !create_process_group(state))
        return kb_error_nomem();
    err = install_chosen(state);
    if (err) {
        if (rank == RT_DRIVER)
            destroy_process_group(state);
        return kb_error_wrap(err, "%s", function);
    }
    if (rank == RT_DRIVER) {
        memset(state->joined, true, state->world * sizeof *state->joined);
        state->of_driver = true;
    } else {
        state->joined[rank] = true;
    }
    return NULL;
}

bool kb_distributed_is_initialized(kb_context *ctx)
{
    return is_initialized(rt_get_layer(ctx, RT_LAYER_CCL), rt_caller_rank(ctx));
}

kb_error *kb_distributed_get_rank(kb_context *ctx, uint32_t *rank)
{
    ccl_state *state;
    KB_TRY(require_process_group(ctx, "kb_distributed_get_rank", &state));
    uint32_t own = rt_caller_rank(ctx);
    if (own == RT_DRIVER)
        rt_debug_warn(ctx, "kb_distributed_get_rank: outside workers the rank is 0");
    *rank = own == RT_DRIVER ? 0 : own;
    return NULL;
}

kb_error *kb_distributed_get_world_size(kb_context *ctx, uint32_t *size)
{
    ccl_state *state;
    KB_TRY(require_process_group(ctx, "kb_distributed_get_world_size", &state));
    *size = state->world;
    return NULL;
}

kb_error *kb_distributed_get_backend(kb_context *ctx, const char **backend)
{
    ccl_state *state;
    KB_TRY(require_process_group(ctx, "kb_distributed_get_backend", &state));
    *backend = backend_name;
    return NULL;
}

kb_error *ccl_get_rank_device(kb_context *ctx, const char *function, uint32_t rank, uint32_t *sip)
{
    ccl_state *state;
    *sip = 0;
    KB_TRY(require_process_group(ctx, function, &state));
    if (state->rank_is_pe)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: ranks are PEs, as '%s' in ccl.yaml says: devices are needed as "
                            "ranks",
                            function, state->ranks->name);
    if (rank >= state->world)
        return kb_error_new(KB_ERR_INPUT, "%s: no such rank %u: the world size is %u", function,
                            rank, state->world);
    *sip = pe_of_rank(state, rank).sip;
    return NULL;
}

/* ---- Groups of some ranks ---- */

static kb_error *check_group_ranks(const ccl_state *state, const uint32_t *ranks, size_t count)
{
    static const char function[] = "kb_distributed_new_group";
    if (count == 0 || !ranks)
        return kb_error_new(KB_ERR_INPUT, "%s: empty list of ranks", function);
    bool *named = kb_alloc_zeroed(state->world, sizeof *named);
    if (!named)
        return kb_error_nomem();
    kb_error *err = NULL;
    for (size_t i = 0; i < count && !err; i++) {
        if (ranks[i] >= state->world)
            err = kb_error_new(KB_ERR_INPUT, "%s: no such rank %u: the world size is %u", function,
                               ranks[i], state->world);
        else if (named[ranks[i]])
            err = kb_error_new(KB_ERR_INPUT, "%s: rank %u is named twice", function, ranks[i]);
        else
            named[ranks[i]] = true;
    }
    free(named);
    return err;
}

static void print_ranks(const uint32_t *ranks, size_t count, kb_text *text)
{
    enum { MAX_LISTED = 16 };
    for (size_t i = 0; i < count && i < MAX_LISTED; i++)
        kb_text_printf(text, "%s%u", i > 0 ? ", " : "", ranks[i]);
    if (count > MAX_LISTED)
        kb_text_printf(text, " and %zu more", count - MAX_LISTED);
}

/* All ranks must make the same groups in the same order. */
static kb_error *check_same(const ccl_group *group, uint32_t rank, const uint32_t *ranks,
                            size_t count)
{
    if (count == group->world && memcmp(ranks, group->global_ranks, count * sizeof *ranks) == 0)
        return NULL;
    kb_text own = KB_TEXT_INIT, first = KB_TEXT_INIT;
    print_ranks(ranks, count, &own);
    print_ranks(group->global_ranks, group->world, &first);
    kb_error *err =
        kb_error_new(KB_ERR_FAULT,
                     "kb_distributed_new_group: rank %u makes group %ju of ranks %s, "
                     "but others have made it of ranks %s",
                     rank, (uintmax_t)group->id, kb_text_peek(&own), kb_text_peek(&first));
    kb_text_fini(&own);
    kb_text_fini(&first);
    return err;
}

kb_error *kb_distributed_new_group(kb_context *ctx, const uint32_t *ranks, size_t count,
                                   kb_group *handle)
{
    ccl_state *state;
    *handle = (kb_group){0};
    KB_TRY(require_process_group(ctx, "kb_distributed_new_group", &state));
    KB_TRY(check_group_ranks(state, ranks, count));
    uint32_t rank = rt_caller_rank(ctx);
    uint64_t number = state->groups.count; /* outside workers: for all ranks */
    if (rank != RT_DRIVER && !state->rank_is_pe)
        number = state->groups_made[rank] + 1;
    ccl_group *group = NULL;
    if (number < state->groups.count) {
        group = state->groups.items[number];
        KB_TRY(check_same(group, rank, ranks, count));
    } else {
        group = new_group(state, ranks, (uint32_t)count);
        if (!group)
            return kb_error_nomem();
    }
    for (uint32_t r = 0; r < state->world; r++)
        if (rank == RT_DRIVER || r == rank)
            state->groups_made[r] = number;
    *handle = ccl_group_handle(ctx, group);
    return NULL;
}

kb_group ccl_group_handle(const kb_context *ctx, const ccl_group *group)
{
    return (kb_group){group->id == 0 ? 0 : rt_make_handle(ctx, group->id)};
}

static kb_error *find_group(kb_context *ctx, const char *function, kb_group handle,
                            ccl_group **group)
{
    ccl_state *state;
    *group = NULL;
    KB_TRY(require_process_group(ctx, function, &state));
    for (size_t i = 0; i < state->groups.count && !*group; i++)
        if (ccl_group_handle(ctx, state->groups.items[i]).id == handle.id)
            *group = state->groups.items[i];
    if (*group)
        return NULL;
    return rt_bad_handle(ctx, function, "group", "destroyed", handle.id);
}

/* UINT32_MAX if the rank is not in the group. */
static uint32_t rank_in(const ccl_group *group, uint32_t rank)
{
    if (rank == RT_DRIVER || group->state->rank_is_pe)
        return 0;
    for (uint32_t i = 0; i < group->world; i++)
        if (group->global_ranks[i] == rank)
            return i;
    return UINT32_MAX;
}

kb_error *ccl_find_group(kb_context *ctx, const char *function, kb_group handle, ccl_group **group,
                         uint32_t *device, uint32_t *count)
{
    uint32_t rank = rt_caller_rank(ctx);
    KB_TRY(find_group(ctx, function, handle, group));
    *device = rank_in(*group, rank);
    *count = rank == RT_DRIVER || (*group)->state->rank_is_pe ? (*group)->device_count : 1;
    if (*device != UINT32_MAX)
        return NULL;
    return kb_error_new(KB_ERR_INPUT, "%s: rank %u is not in group %ju", function, rank,
                        (uintmax_t)(*group)->id);
}

kb_error *kb_distributed_get_group_rank(kb_context *ctx, kb_group handle, uint32_t *rank)
{
    ccl_group *group;
    KB_TRY(find_group(ctx, "kb_distributed_get_group_rank", handle, &group));
    *rank = rank_in(group, rt_caller_rank(ctx));
    return NULL;
}

kb_error *kb_distributed_get_group_size(kb_context *ctx, kb_group handle, uint32_t *size)
{
    ccl_group *group;
    KB_TRY(find_group(ctx, "kb_distributed_get_group_size", handle, &group));
    *size = group->world;
    return NULL;
}

/* ---- The state in the context ---- */

static void workers_begin(void *self)
{
    ccl_state *state = self;
    for (size_t i = 0; i < state->groups.count; i++) {
        ccl_group *group = state->groups.items[i];
        memset(group->calls, 0, group->device_count * sizeof *group->calls);
        group->pairs.count = 0;
    }
    if (!state->exists)
        return;
    note_ended_workers(state);
    for (uint32_t rank = 0; rank < state->world; rank++)
        state->groups_made[rank] = state->groups.count - 1;
}

static void worker_ended(void *self, uint32_t rank)
{
    ccl_state *state = self;
    if (!state->exists || rank >= state->world)
        return;
    state->gone[rank] = true;
    wake_returning(state);
    for (size_t i = 0; i < state->groups.count; i++)
        ccl_worker_missing(state->groups.items[i]);
}

/* Discards messages that failed kernels have left. All kernels have ended, also of calls outside
 * workers; or the host is out of memory and the simulation has stopped. */
static void forget_messages(ccl_group *group)
{
    for (ccl_instance *instance = group->instances; instance; instance = instance->next) {
        if (instance->launched > 0)
            continue;
        if (instance->queues && instance->installed)
            ipcq_set_reset(instance->queues);
        instance->stale = false;
    }
}

static void workers_gone(void *self, bool failed)
{
    ccl_state *state = self;
    for (size_t i = 0; i < state->groups.count; i++) {
        ccl_abandon_epochs(state->groups.items[i]);
        ccl_free_epochs(state->groups.items[i]); /* failed ones have no more ranks to inform */
        if (failed)
            forget_messages(state->groups.items[i]);
    }
    free_leaving(state);
    state->clearing = false;
    if (!state->of_driver) {
        destroy_process_group(state);
    } else { /* a worker that left it left only for itself */
        memset(state->joined, true, state->world * sizeof *state->joined);
        memset(state->left, false, state->world * sizeof *state->left);
    }
}

static void fini(void *self)
{
    ccl_state *state = self;
    destroy_process_group(state);
    free_leaving(state);
    ccl_free_retired(state);
    kb_vec_fini(&state->groups);
    kb_vec_fini(&state->leaving);
    if (state->has_config)
        ccl_config_fini(&state->config);
    free(state);
}

kb_error *ccl_reload(kb_context *ctx, const rt_ccl_options *options)
{
    ccl_state *state = rt_get_layer(ctx, RT_LAYER_CCL);
    if (state && (state->exists || state->leaving.count > 0))
        return kb_error_new(KB_ERR_FAULT, "ccl.yaml cannot be read while there is a process group");
    if (state) {
        rt_set_layer(ctx, RT_LAYER_CCL, NULL, NULL);
        fini(state);
    }
    KB_TRY(rt_set_ccl_options(ctx, options));
    return ccl_get_state(ctx, &state);
}

static const rt_hooks hooks = {
    .workers_begin = workers_begin,
    .worker_ended = worker_ended,
    .workers_gone = workers_gone,
    .fini = fini,
};

static kb_error *fill_state(ccl_state *state)
{
    const rt_ccl_options *options = rt_get_ccl_options(state->ctx);
    KB_TRY(ccl_registry_init(&state->registry, options->plugins, options->plugin_count));
    KB_TRY(ccl_config_load(options->file, options->settings, options->setting_count,
                           &state->registry, &state->config));
    state->has_config = true;
    uint32_t only = rt_only_sip(state->ctx);
    if (state->config.chosen != CCL_AUTO)
        state->chosen = &state->config.entries.items[state->config.chosen];
    state->ranks = state->chosen ? state->chosen : &state->config.automatic;
    state->world = ccl_plan_world(state->ranks, state->machine, only);
    state->rank_is_pe = state->ranks->rank_is_pe;
    return NULL;
}

kb_error *ccl_get_state(kb_context *ctx, ccl_state **out)
{
    *out = rt_get_layer(ctx, RT_LAYER_CCL);
    if (*out)
        return NULL;
    ccl_state *state = kb_alloc_zeroed(1, sizeof *state);
    if (!state)
        return kb_error_nomem();
    state->ctx = ctx;
    state->machine = rt_machine(ctx);
    kb_waitlist_init(&state->returning, "all other ranks to leave the process group");
    kb_error *err = fill_state(state);
    if (err) {
        fini(state);
        return err;
    }
    rt_set_layer(ctx, RT_LAYER_CCL, &hooks, state);
    *out = state;
    return NULL;
}

kb_error *kb_ccl_get_info(kb_context *ctx, kb_ccl_info *info)
{
    ccl_state *state;
    KB_TRY(ccl_get_state(ctx, &state));
    const ccl_entry *entry = state->ranks;
    kb_ccl_scope scope = {.settings = entry};
    *info = (kb_ccl_info){
        .algorithm = entry->name,
        .collectives =
            entry->algorithm ? entry->algorithm->collectives : (1u << KB_COLLECTIVES) - 1,
        .validator = entry->validator ? entry->validator->name : "",
        .world = state->world,
        .n_elem = kb_ccl_setting(&scope, "n_elem", 0),
        .rank_is_pe = entry->rank_is_pe,
        .reduce_shards = entry->reduce_shards,
        .op = entry->reduce_op,
    };
    return NULL;
}
