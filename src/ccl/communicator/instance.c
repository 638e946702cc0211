/*
 * instance.c: an entry of ccl.yaml for a group: its plan, and its queues in the PEs.
 *
 * The first rank that needs the queues starts their installation in all PEs of the group.
 * Invariant: every rank waits for the installation before it launches kernels, so no message is
 * sent to a PE without queues.
 */
#include "communicator.h"

#include <stdlib.h>
#include <string.h>

/* ---- Participants ---- */

static int by_pe(const void *a, const void *b)
{
    const kb_pe *x = &((const ccl_participant *)a)->pe, *y = &((const ccl_participant *)b)->pe;
    if (x->cube != y->cube)
        return x->cube < y->cube ? -1 : 1;
    return (x->pe > y->pe) - (x->pe < y->pe);
}

/* Distributes the participants of all subgroups to their devices. `next`: by device, the next free
 * entry. */
static void deal_participants(const uint32_t *device_of_sip, ccl_instance *instance, size_t *next)
{
    const kb_ccl_participants *participants = &instance->plan.participants;
    uint32_t *ranks = instance->ranks;
    for (uint32_t subgroup = 0; subgroup < kb_ccl_subgroup_count(participants); subgroup++) {
        uint32_t count;
        const kb_ccl_participant *items = kb_ccl_subgroup(participants, subgroup, &count);
        for (uint32_t index = 0; index < count; index++) {
            ranks[index] = items[index].rank;
            instance->participants[next[device_of_sip[items[index].pe.sip]]++] = (ccl_participant){
                .pe = items[index].pe,
                .rank = items[index].rank,
                .subgroup = subgroup,
                .index = index,
                .subgroup_size = count,
                .ranks = ranks,
            };
        }
        ranks += count;
    }
}

static void count_participants(const ccl_group *group, const uint32_t *device_of_sip,
                               ccl_instance *instance)
{
    const kb_ccl_participants *participants = &instance->plan.participants;
    for (uint32_t subgroup = 0; subgroup < kb_ccl_subgroup_count(participants); subgroup++) {
        uint32_t count;
        const kb_ccl_participant *items = kb_ccl_subgroup(participants, subgroup, &count);
        instance->participant_count += count;
        for (uint32_t index = 0; index < count; index++)
            instance->first[device_of_sip[items[index].pe.sip] + 1]++;
    }
    for (uint32_t device = 0; device < group->device_count; device++)
        instance->first[device + 1] += instance->first[device];
}

/* Whether a subgroup has several PEs of a rank. Ranks may be in any order. */
static kb_error *find_mixed_shards(const ccl_group *group, ccl_instance *instance)
{
    bool *seen = kb_alloc_zeroed(group->world, sizeof *seen);
    if (!seen)
        return kb_error_nomem();
    const kb_ccl_participants *participants = &instance->plan.participants;
    for (uint32_t subgroup = 0; subgroup < kb_ccl_subgroup_count(participants); subgroup++) {
        uint32_t count;
        const kb_ccl_participant *items = kb_ccl_subgroup(participants, subgroup, &count);
        for (uint32_t index = 0; index < count; index++) {
            instance->mixes_shards |= seen[items[index].rank];
            seen[items[index].rank] = true;
        }
        for (uint32_t index = 0; index < count; index++)
            seen[items[index].rank] = false;
    }
    free(seen);
    return NULL;
}

/* `device_of_sip`: by SIP of the machine. */
static kb_error *fill_participants(const ccl_group *group, const uint32_t *device_of_sip,
                                   ccl_instance *instance)
{
    instance->first = kb_alloc_zeroed((size_t)group->device_count + 1, sizeof *instance->first);
    if (!instance->first)
        return kb_error_nomem();
    count_participants(group, device_of_sip, instance);
    instance->participants =
        kb_alloc_array(instance->participant_count, sizeof *instance->participants);
    instance->ranks = kb_alloc_array(instance->participant_count, sizeof *instance->ranks);
    size_t *next = kb_alloc_array(group->device_count, sizeof *next);
    if (!instance->participants || !instance->ranks || !next) {
        free(next);
        return kb_error_nomem();
    }
    memcpy(next, instance->first, group->device_count * sizeof *next);
    deal_participants(device_of_sip, instance, next);
    free(next);
    return NULL;
}

static kb_error *list_participants(const ccl_group *group, ccl_instance *instance)
{
    uint32_t *device_of_sip =
        kb_alloc_zeroed(instance->plan.scope.machine.sips, sizeof *device_of_sip);
    if (!device_of_sip)
        return kb_error_nomem();
    for (uint32_t device = 0; device < group->device_count; device++)
        device_of_sip[group->sips[device]] = device;
    kb_error *err = fill_participants(group, device_of_sip, instance);
    free(device_of_sip);
    KB_TRY(err);
    for (uint32_t device = 0; device < group->device_count; device++)
        qsort(instance->participants + instance->first[device],
              instance->first[device + 1] - instance->first[device], sizeof *instance->participants,
              by_pe);
    return NULL;
}

/* ---- Creation and end ---- */

static void free_instance(kb_context *ctx, ccl_instance *instance)
{
    if (instance->install.id != 0)
        kb_error_free(kb_request_free(ctx, instance->install));
    if (instance->queues)
        ipcq_set_destroy(instance->queues);
    kb_error_free(instance->refused);
    ccl_plan_fini(&instance->plan);
    free(instance->participants);
    free(instance->ranks);
    free(instance->first);
    free(instance);
}

/* Whether no command for its queues is pending; else the instance must be kept. */
static bool is_settled(kb_context *ctx, const ccl_instance *instance)
{
    if (instance->install.id == 0)
        return true;
    bool done = true;
    kb_error_free(kb_request_test(ctx, instance->install, &done));
    return done;
}

void ccl_free_instances(ccl_group *group)
{
    ccl_state *state = group->state;
    while (group->instances) {
        ccl_instance *instance = group->instances;
        group->instances = instance->next;
        if (is_settled(state->ctx, instance)) {
            free_instance(state->ctx, instance);
            continue;
        }
        instance->next = state->retired;
        state->retired = instance;
    }
}

void ccl_free_retired(ccl_state *state)
{
    while (state->retired) {
        ccl_instance *instance = state->retired;
        state->retired = instance->next;
        free_instance(state->ctx, instance);
    }
}

static kb_error *fill_instance(const ccl_group *group, ccl_instance *instance)
{
    const ccl_entry *entry = instance->entry;
    KB_TRY(ccl_plan_make_for(entry, group->state->machine, group->ranks, group->world,
                             &instance->plan));
    instance->lanes = !entry->rank_is_pe && strcmp(entry->mapper->name, "lanes") == 0;
    KB_TRY(find_mixed_shards(group, instance));
    return list_participants(group, instance);
}

kb_error *ccl_get_instance(ccl_group *group, const ccl_entry *entry, ccl_instance **out)
{
    for (*out = group->instances; *out; *out = (*out)->next)
        if ((*out)->entry == entry)
            return (*out)->refused ? kb_error_copy((*out)->refused) : NULL;
    ccl_instance *instance = kb_alloc_zeroed(1, sizeof *instance);
    if (!instance)
        return kb_error_nomem();
    instance->entry = entry;
    kb_error *err = fill_instance(group, instance);
    if (err && kb_error_code(err) == KB_ERR_HOST) {
        free_instance(group->state->ctx, instance);
        return err;
    }
    instance->refused = err;
    instance->next = group->instances;
    group->instances = instance;
    *out = instance;
    return err ? kb_error_copy(err) : NULL;
}

/* ---- Queues ---- */

static kb_error *start_install(ccl_group *group, ccl_instance *instance)
{
    kb_context *ctx = group->state->ctx;
    KB_TRY(ipcq_set_create(rt_queues(ctx), &instance->plan.queues, &instance->queues));
    size_t participants;
    (void)ipcq_set_members(instance->queues, &participants);
    if (participants == 0) { /* no queues */
        instance->installed = true;
        return NULL;
    }
    kb_error *err = rt_install_queues(ctx, instance->queues, &instance->install);
    if (err) {
        ipcq_set_destroy(instance->queues);
        instance->queues = NULL;
    }
    return err;
}

/* Retires an instance that could not be installed, so that the next call creates a new one. Waiting
 * ranks still access this one. */
static void give_up(ccl_group *group, ccl_instance *instance)
{
    ccl_instance **link = &group->instances;
    while (*link && *link != instance)
        link = &(*link)->next;
    if (!*link)
        return; /* another rank has retired it */
    *link = instance->next;
    instance->next = group->state->retired;
    group->state->retired = instance;
}

kb_error *ccl_install(ccl_group *group, ccl_instance *instance)
{
    if (instance->installed)
        return NULL;
    if (!instance->queues) {
        kb_error *err = start_install(group, instance);
        if (err)
            return kb_error_wrap(err, "'%s'", instance->entry->name);
    }
    if (instance->installed)
        return NULL;
    kb_error *err = kb_request_wait(group->state->ctx, instance->install, NULL);
    if (err) {
        give_up(group, instance);
        return kb_error_wrap(err, "'%s'", instance->entry->name);
    }
    instance->installed = true;
    return NULL;
}

kb_error *ccl_reset_stale_queues(ccl_group *group, ccl_instance *instance)
{
    while (instance->stale && instance->launched > 0)
        KB_TRY(kb_cooperative_yield(group->state->ctx));
    if (instance->stale)
        ipcq_set_reset(instance->queues);
    instance->stale = false;
    return NULL;
}

kb_error *ccl_remove_instances(ccl_group *group)
{
    kb_context *ctx = group->state->ctx;
    for (ccl_instance *instance = group->instances; instance; instance = instance->next) {
        if (instance->install.id == 0)
            continue;
        KB_TRY(kb_request_wait(ctx, instance->install, NULL));
        kb_error_free(kb_request_free(ctx, instance->install));
        instance->install = (kb_request){0};
        instance->installed = false;
        KB_TRY(rt_remove_queues(ctx, instance->queues, &instance->install));
    }
    for (ccl_instance *instance = group->instances; instance; instance = instance->next)
        if (instance->install.id != 0)
            KB_TRY(kb_request_wait(ctx, instance->install, NULL));
    return NULL;
}
