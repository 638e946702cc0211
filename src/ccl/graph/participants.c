/*
 * participants.c: what mappers and topologies build: subgroups of PEs, and connections between PEs.
 * plan.c checks the result against the machine.
 */
#include <inttypes.h>
#include <string.h>

#include "plan.h"

int64_t kb_ccl_setting(const kb_ccl_scope *scope, const char *key, int64_t fallback)
{
    for (size_t i = 0; i < scope->settings->settings.count; i++)
        if (strcmp(scope->settings->settings.items[i].key, key) == 0)
            return scope->settings->settings.items[i].value;
    return fallback;
}

kb_error *kb_ccl_add_participant(kb_ccl_participants *participants, uint32_t subgroup,
                                 uint32_t rank, kb_pe pe)
{
    size_t count = participants->subgroups.count;
    if (subgroup > count)
        return kb_error_new(KB_ERR_INPUT,
                            "invalid group %" PRIu32 ": groups are numbered from 0 without "
                            "gaps, and there are %zu so far",
                            subgroup, count);
    if (subgroup == count && !kb_vec_push(&participants->subgroups, (ccl_subgroup){0}))
        return kb_error_nomem();
    if (!kb_vec_push(&participants->subgroups.items[subgroup].participants,
                     ((kb_ccl_participant){.rank = rank, .pe = pe})))
        return kb_error_nomem();
    return NULL;
}

uint32_t kb_ccl_subgroup_count(const kb_ccl_participants *participants)
{
    return (uint32_t)participants->subgroups.count;
}

const kb_ccl_participant *kb_ccl_subgroup(const kb_ccl_participants *participants,
                                          uint32_t subgroup, uint32_t *count)
{
    if (subgroup >= participants->subgroups.count) {
        *count = 0;
        return NULL;
    }
    *count = (uint32_t)participants->subgroups.items[subgroup].participants.count;
    return participants->subgroups.items[subgroup].participants.items;
}

void ccl_participants_fini(kb_ccl_participants *participants)
{
    for (size_t i = 0; i < participants->subgroups.count; i++)
        kb_vec_fini(&participants->subgroups.items[i].participants);
    kb_vec_fini(&participants->subgroups);
}

/* Names appear in messages and traces. */
static kb_error *check_direction(kb_pe from, const char *direction)
{
    enum { LONGEST = 31 };
    size_t length = direction ? strlen(direction) : 0;
    if (length == 0)
        return kb_error_new(KB_ERR_INPUT, "a direction of %s has no name", topo_pe_name(from).text);
    if (length > LONGEST)
        return kb_error_new(KB_ERR_INPUT,
                            "direction '%.*s...' of %s: a name has at most %d "
                            "characters, but this has %zu",
                            LONGEST, direction, topo_pe_name(from).text, LONGEST, length);
    for (size_t i = 0; i < length; i++)
        if (direction[i] <= ' ' || direction[i] > '~')
            return kb_error_new(KB_ERR_INPUT,
                                "direction '%s' of %s: a name is made of printable "
                                "ASCII characters, without spaces",
                                direction, topo_pe_name(from).text);
    return NULL;
}

kb_error *kb_ccl_connect(kb_ccl_graph *graph, kb_pe from, const char *direction, kb_pe to)
{
    KB_TRY(check_direction(from, direction));
    const char *name = kb_arena_strdup(&graph->names, direction);
    if (!name ||
        !kb_vec_push(&graph->edges, ((ipcq_edge){.from = from, .direction = name, .to = to})))
        return kb_error_nomem();
    return NULL;
}

void ccl_graph_fini(kb_ccl_graph *graph)
{
    kb_vec_fini(&graph->edges);
    kb_arena_fini(&graph->names);
}
