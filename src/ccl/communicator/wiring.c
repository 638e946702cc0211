/*
 * wiring.c: an entry of ccl.yaml for a group: its plan, and its queues in the PEs.
 *
 * The first rank that needs the queues has them installed in all PEs of the group; every rank waits
 * until they are before it sends kernels there: so nobody ever sends to a PE without queues.
 */
#include "communicator.h"

#include <stdlib.h>
#include <string.h>

/* ---- Who takes part ---- */

static int by_place(const void *a, const void *b)
{
    const kb_pe *x = &((const ccl_spot *)a)->pe, *y = &((const ccl_spot *)b)->pe;
    if (x->cube != y->cube)
        return x->cube < y->cube ? -1 : 1;
    return (x->pe > y->pe) - (x->pe < y->pe);
}

/* The members of all circles, put where those of their seat begin. */
static void deal_spots(const uint32_t *seats, ccl_wiring *wiring, size_t *next)
{
    const kb_ccl_members *members = &wiring->plan.members;
    uint32_t *ranks = wiring->ranks;
    for (uint32_t circle = 0; circle < kb_ccl_circle_count(members); circle++) {
        uint32_t count;
        const kb_ccl_member *items = kb_ccl_circle(members, circle, &count);
        for (uint32_t place = 0; place < count; place++) {
            ranks[place] = items[place].rank;
            wiring->spots[next[seats[items[place].pe.sip]]++] = (ccl_spot){
                .pe = items[place].pe,
                .rank = items[place].rank,
                .circle = circle,
                .place = place,
                .circle_size = count,
                .ranks = ranks,
            };
        }
        ranks += count;
    }
}

static void count_spots(const ccl_group *group, const uint32_t *seats, ccl_wiring *wiring)
{
    const kb_ccl_members *members = &wiring->plan.members;
    for (uint32_t circle = 0; circle < kb_ccl_circle_count(members); circle++) {
        uint32_t count;
        const kb_ccl_member *items = kb_ccl_circle(members, circle, &count);
        wiring->spot_count += count;
        for (uint32_t place = 0; place < count; place++)
            wiring->first[seats[items[place].pe.sip] + 1]++;
    }
    for (uint32_t seat = 0; seat < group->seats; seat++)
        wiring->first[seat + 1] += wiring->first[seat];
}

/* Ranks stand in a circle in any order, so they are counted. */
static kb_error *find_mixed_shards(const ccl_group *group, ccl_wiring *wiring)
{
    bool *seen = kb_alloc_zeroed(group->world, sizeof *seen);
    if (!seen)
        return kb_error_nomem();
    const kb_ccl_members *members = &wiring->plan.members;
    for (uint32_t circle = 0; circle < kb_ccl_circle_count(members); circle++) {
        uint32_t count;
        const kb_ccl_member *items = kb_ccl_circle(members, circle, &count);
        for (uint32_t place = 0; place < count; place++) {
            wiring->mixes_shards |= seen[items[place].rank];
            seen[items[place].rank] = true;
        }
        for (uint32_t place = 0; place < count; place++)
            seen[items[place].rank] = false;
    }
    free(seen);
    return NULL;
}

/* `seats`: by SIP of the machine. */
static kb_error *fill_spots(const ccl_group *group, const uint32_t *seats, ccl_wiring *wiring)
{
    wiring->first = kb_alloc_zeroed((size_t)group->seats + 1, sizeof *wiring->first);
    if (!wiring->first)
        return kb_error_nomem();
    count_spots(group, seats, wiring);
    wiring->spots = kb_alloc_array(wiring->spot_count, sizeof *wiring->spots);
    wiring->ranks = kb_alloc_array(wiring->spot_count, sizeof *wiring->ranks);
    size_t *next = kb_alloc_array(group->seats, sizeof *next);
    if (!wiring->spots || !wiring->ranks || !next) {
        free(next);
        return kb_error_nomem();
    }
    memcpy(next, wiring->first, group->seats * sizeof *next);
    deal_spots(seats, wiring, next);
    free(next);
    return NULL;
}

static kb_error *list_spots(const ccl_group *group, ccl_wiring *wiring)
{
    uint32_t *seats = kb_alloc_zeroed(wiring->plan.scope.machine.sips, sizeof *seats);
    if (!seats)
        return kb_error_nomem();
    for (uint32_t seat = 0; seat < group->seats; seat++)
        seats[group->sips[seat]] = seat;
    kb_error *err = fill_spots(group, seats, wiring);
    free(seats);
    KB_TRY(err);
    for (uint32_t seat = 0; seat < group->seats; seat++)
        qsort(wiring->spots + wiring->first[seat], wiring->first[seat + 1] - wiring->first[seat],
              sizeof *wiring->spots, by_place);
    return NULL;
}

/* ---- Making and freeing ---- */

static void free_wiring(kb_context *ctx, ccl_wiring *wiring)
{
    if (wiring->install.id != 0)
        kb_error_free(kb_request_free(ctx, wiring->install));
    if (wiring->queues)
        ipcq_set_destroy(wiring->queues);
    kb_error_free(wiring->refused);
    ccl_plan_fini(&wiring->plan);
    free(wiring->spots);
    free(wiring->ranks);
    free(wiring->first);
    free(wiring);
}

/* Commands to PEs about its queues may be under way: then they have to stay. */
static bool is_settled(kb_context *ctx, const ccl_wiring *wiring)
{
    if (wiring->install.id == 0)
        return true;
    bool done = true;
    kb_error_free(kb_request_test(ctx, wiring->install, &done));
    return done;
}

void ccl_free_wirings(ccl_group *group)
{
    ccl_state *state = group->state;
    while (group->wirings) {
        ccl_wiring *wiring = group->wirings;
        group->wirings = wiring->next;
        if (is_settled(state->ctx, wiring)) {
            free_wiring(state->ctx, wiring);
            continue;
        }
        wiring->next = state->retired;
        state->retired = wiring;
    }
}

void ccl_free_retired(ccl_state *state)
{
    while (state->retired) {
        ccl_wiring *wiring = state->retired;
        state->retired = wiring->next;
        free_wiring(state->ctx, wiring);
    }
}

static kb_error *fill_wiring(const ccl_group *group, ccl_wiring *wiring)
{
    const ccl_entry *entry = wiring->entry;
    KB_TRY(
        ccl_plan_make_for(entry, group->state->machine, group->ranks, group->world, &wiring->plan));
    wiring->lanes = !entry->rank_is_pe && strcmp(entry->mapper->name, "lanes") == 0;
    KB_TRY(find_mixed_shards(group, wiring));
    return list_spots(group, wiring);
}

kb_error *ccl_get_wiring(ccl_group *group, const ccl_entry *entry, ccl_wiring **out)
{
    for (*out = group->wirings; *out; *out = (*out)->next)
        if ((*out)->entry == entry)
            return (*out)->refused ? kb_error_copy((*out)->refused) : NULL;
    ccl_wiring *wiring = kb_alloc_zeroed(1, sizeof *wiring);
    if (!wiring)
        return kb_error_nomem();
    wiring->entry = entry;
    kb_error *err = fill_wiring(group, wiring);
    if (err && kb_error_code(err) == KB_ERR_HOST) {
        free_wiring(group->state->ctx, wiring);
        return err;
    }
    wiring->refused = err;
    wiring->next = group->wirings;
    group->wirings = wiring;
    *out = wiring;
    return err ? kb_error_copy(err) : NULL;
}

/* ---- Queues ---- */

static kb_error *start_install(ccl_group *group, ccl_wiring *wiring)
{
    kb_context *ctx = group->state->ctx;
    KB_TRY(ipcq_set_create(rt_queues(ctx), &wiring->plan.queues, &wiring->queues));
    size_t members;
    (void)ipcq_set_members(wiring->queues, &members);
    if (members == 0) { /* nobody talks to anybody */
        wiring->installed = true;
        return NULL;
    }
    kb_error *err = rt_install_queues(ctx, wiring->queues, &wiring->install);
    if (err) {
        ipcq_set_destroy(wiring->queues);
        wiring->queues = NULL;
    }
    return err;
}

/* One that could not be installed: the next call begins anew. Those who wait still look at it. */
static void give_up(ccl_group *group, ccl_wiring *wiring)
{
    ccl_wiring **link = &group->wirings;
    while (*link && *link != wiring)
        link = &(*link)->next;
    if (!*link)
        return; /* another rank was here before */
    *link = wiring->next;
    wiring->next = group->state->retired;
    group->state->retired = wiring;
}

kb_error *ccl_install(ccl_group *group, ccl_wiring *wiring)
{
    if (wiring->installed)
        return NULL;
    if (!wiring->queues) {
        kb_error *err = start_install(group, wiring);
        if (err)
            return kb_error_wrap(err, "'%s'", wiring->entry->name);
    }
    if (wiring->installed)
        return NULL;
    kb_error *err = kb_request_wait(group->state->ctx, wiring->install, NULL);
    if (err) {
        give_up(group, wiring);
        return kb_error_wrap(err, "'%s'", wiring->entry->name);
    }
    wiring->installed = true;
    return NULL;
}

kb_error *ccl_freshen(ccl_group *group, ccl_wiring *wiring)
{
    while (wiring->stale && wiring->launched > 0)
        KB_TRY(kb_cooperative_yield(group->state->ctx));
    if (wiring->stale)
        ipcq_set_reset(wiring->queues);
    wiring->stale = false;
    return NULL;
}

kb_error *ccl_remove_wirings(ccl_group *group)
{
    kb_context *ctx = group->state->ctx;
    for (ccl_wiring *wiring = group->wirings; wiring; wiring = wiring->next) {
        if (wiring->install.id == 0)
            continue;
        KB_TRY(kb_request_wait(ctx, wiring->install, NULL));
        kb_error_free(kb_request_free(ctx, wiring->install));
        wiring->install = (kb_request){0};
        wiring->installed = false;
        KB_TRY(rt_remove_queues(ctx, wiring->queues, &wiring->install));
    }
    for (ccl_wiring *wiring = group->wirings; wiring; wiring = wiring->next)
        if (wiring->install.id != 0)
            KB_TRY(kb_request_wait(ctx, wiring->install, NULL));
    return NULL;
}
