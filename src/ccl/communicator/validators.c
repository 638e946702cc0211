/*
 * validators.c: the layouts that algorithms need. Shards without bytes are ignored: they occur if a
 * tensor is too small for its policy.
 */
#include <inttypes.h>
#include <stdlib.h>

#include "base/base.h"
#include "ccl/config/registry.h"
#include "topo/topo.h"

static size_t in_sip(const kb_ccl_scope *scope, uint32_t cube, uint32_t pe)
{
    return (size_t)cube * scope->machine.pes + pe;
}

/* The number of shards on each PE of a SIP, by (cube, pe). NULL if there is no memory. */
static uint32_t *count_shards(const kb_ccl_scope *scope, const kb_ccl_layout *layout)
{
    uint32_t *counts = kb_alloc_zeroed(in_sip(scope, scope->machine.cubes, 0), sizeof *counts);
    for (size_t i = 0; counts && i < layout->shard_count; i++)
        if (layout->shards[i].nbytes > 0)
            counts[in_sip(scope, layout->shards[i].cube, layout->shards[i].pe)]++;
    return counts;
}

/* Whether the PE must have exactly one shard; other PEs must have none. */
typedef bool wanted_fn(const kb_ccl_scope *scope, const kb_ccl_layout *layout, kb_pe pe);

/* A required layout, for error messages. */
typedef struct need {
    const char *what;   /* "exactly one shard, on PE 0 of cube 0" */
    const char *policy; /* that produces it */
} need;

static kb_error *refuse(const kb_ccl_layout *layout, const need *n, kb_pe pe, uint32_t count)
{
    kb_text found = KB_TEXT_INIT;
    if (count == 0)
        kb_text_puts(&found, "no shard");
    else
        kb_text_printf(&found, "%" PRIu32 " shard%s", count, kb_plural(count));
    kb_error *err = kb_error_new(KB_ERR_INPUT,
                                 "tensor '%s' of rank %" PRIu32
                                 " has %s on %s, but %s is needed; the policy for it: %s",
                                 layout->tensor, layout->rank, kb_text_peek(&found),
                                 topo_pe_name(pe).text, n->what, n->policy);
    kb_text_fini(&found);
    return err;
}

static kb_error *check_layout(const kb_ccl_scope *scope, const kb_ccl_layout *layout,
                              wanted_fn *wanted, const need *n)
{
    if (layout->shard_count == 0)
        return kb_error_new(KB_ERR_INPUT,
                            "tensor '%s' of rank %" PRIu32 " is on the host, but %s is needed; "
                            "the policy for it: %s",
                            layout->tensor, layout->rank, n->what, n->policy);
    uint32_t *counts = count_shards(scope, layout);
    if (!counts)
        return kb_error_nomem();
    kb_error *err = NULL;
    kb_pe pe = {.sip = layout->shards[0].sip};
    for (pe.cube = 0; pe.cube < scope->machine.cubes && !err; pe.cube++) {
        for (pe.pe = 0; pe.pe < scope->machine.pes && !err; pe.pe++) {
            uint32_t count = counts[in_sip(scope, pe.cube, pe.pe)];
            if (count != (wanted(scope, layout, pe) ? 1 : 0))
                err = refuse(layout, n, pe, count);
        }
    }
    free(counts);
    return err;
}

/* ---- One shard a rank --------------------------------------------------------------------- */

static bool same_pe(kb_pe a, kb_pe b)
{
    return a.sip == b.sip && a.cube == b.cube && a.pe == b.pe;
}

static bool is_leader(const kb_ccl_scope *scope, const kb_ccl_layout *layout, kb_pe pe)
{
    return same_pe(scope->ranks[layout->rank], pe);
}

static kb_error *check_leaders(const kb_ccl_scope *scope, const kb_ccl_layout *layouts,
                               size_t count)
{
    static const need one = {
        .what = "exactly one shard per rank, on PE 0 of cube 0,",
        .policy = ".num_cubes = 1, .num_pes = 1",
    };
    for (size_t i = 0; i < count; i++)
        KB_TRY(check_layout(scope, &layouts[i], is_leader, &one));
    return NULL;
}

/* Whether the PE is a rank: the first PEs of the machine, or those of a group. */
static bool is_rank(const kb_ccl_scope *scope, const kb_ccl_layout *layout, kb_pe pe)
{
    (void)layout;
    for (uint32_t rank = 0; rank < scope->world; rank++)
        if (same_pe(scope->ranks[rank], pe))
            return true;
    return false;
}

/* Appends the policy that puts a shard on each of the first PEs of a SIP, if there is one. */
static void append_policy(const kb_ccl_scope *scope, uint32_t sip, kb_text *policy)
{
    uint32_t pes = scope->machine.pes, ranks = 0;
    for (uint32_t rank = 0; rank < scope->world; rank++)
        ranks += scope->ranks[rank].sip == sip;
    kb_text_puts(policy, ".cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE");
    if (ranks <= pes)
        kb_text_printf(policy, ", .num_cubes = 1, .num_pes = %" PRIu32, ranks);
    else if (pes > 0 && ranks % pes == 0 && ranks / pes < scope->machine.cubes)
        kb_text_printf(policy, ", .num_cubes = %" PRIu32, ranks / pes);
    else if (pes > 0 && ranks % pes != 0)
        kb_text_printf(
            policy, ", with a world_size that is a multiple of the %" PRIu32 " PEs of a cube", pes);
}

/* The layout is that of a device, with a shard on each of its ranks, or that of one rank alone. */
static kb_error *check_pes(const kb_ccl_scope *scope, const kb_ccl_layout *layout)
{
    bool elsewhere = false;
    for (size_t i = 0; i < layout->shard_count; i++) {
        const kb_shard *shard = &layout->shards[i];
        elsewhere |=
            !same_pe(scope->ranks[layout->rank], (kb_pe){shard->sip, shard->cube, shard->pe});
    }
    kb_text policy = KB_TEXT_INIT;
    append_policy(scope, scope->ranks[layout->rank].sip, &policy);
    const need one = {.what = "exactly one shard on each PE that is a rank",
                      .policy = kb_text_peek(&policy)};
    kb_error *err = check_layout(scope, layout, elsewhere ? is_rank : is_leader, &one);
    kb_text_fini(&policy);
    return err;
}

static kb_error *check_ranks(const kb_ccl_scope *scope, const kb_ccl_layout *layouts, size_t count)
{
    if (!scope->rank_is_pe)
        return check_leaders(scope, layouts, count);
    for (size_t i = 0; i < count; i++)
        KB_TRY(check_pes(scope, &layouts[i]));
    return NULL;
}

/* ---- Inside a SIP ------------------------------------------------------------------------- */

static bool is_first_of_cube(const kb_ccl_scope *scope, const kb_ccl_layout *layout, kb_pe pe)
{
    (void)scope;
    (void)layout;
    return pe.pe == 0;
}

static kb_error *check_cubes(const kb_ccl_scope *scope, const kb_ccl_layout *layouts, size_t count)
{
    static const need one = {
        .what = "one shard on PE 0 of every cube",
        .policy = ".cube = KB_ROW_WISE, .num_pes = 1",
    };
    for (size_t i = 0; i < count; i++)
        KB_TRY(check_layout(scope, &layouts[i], is_first_of_cube, &one));
    return NULL;
}

static bool is_any(const kb_ccl_scope *scope, const kb_ccl_layout *layout, kb_pe pe)
{
    (void)scope;
    (void)layout;
    (void)pe;
    return true;
}

static kb_error *check_all_pes(const kb_ccl_scope *scope, const kb_ccl_layout *layouts,
                               size_t count)
{
    static const need one = {
        .what = "one shard on every PE of the SIP",
        .policy = ".cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE",
    };
    for (size_t i = 0; i < count; i++)
        KB_TRY(check_layout(scope, &layouts[i], is_any, &one));
    return NULL;
}

static const kb_ccl_validator single_shard_per_rank = {
    .name = "single_shard_per_rank",
    .summary = "exactly one shard per rank",
    .check = check_ranks,
};

static const kb_ccl_validator shard_per_cube = {
    .name = "shard_per_cube",
    .summary = "one shard on PE 0 of every cube",
    .check = check_cubes,
};

static const kb_ccl_validator multi_pe_sip_local = {
    .name = "multi_pe_sip_local",
    .summary = "one shard on every PE of each rank's SIP",
    .check = check_all_pes,
};

const kb_ccl_validator *const ccl_validators[] = {&single_shard_per_rank, &shard_per_cube,
                                                  &multi_pe_sip_local, NULL};
