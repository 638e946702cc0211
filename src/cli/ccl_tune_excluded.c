/*
 * ccl_tune_excluded.c: entries of ccl.yaml that implement a collective but cannot be selected by
 * auto, or fail, and the reasons.
 */
#include "ccl_tune.h"

#include "obs/obs.h"

#include <inttypes.h>
#include <stdlib.h>

void tune_results_fini(tune_results *results)
{
    for (size_t i = 0; i < results->rows.count; i++)
        kb_vec_fini(&results->rows.items[i].results);
    for (size_t i = 0; i < results->excluded.count; i++)
        free(results->excluded.items[i].reason);
    kb_vec_fini(&results->rows);
    kb_vec_fini(&results->excluded);
}

/* Takes the text over. */
static void exclude(tune_results *results, size_t entry, kb_text *reason)
{
    kb_text_escape_from(reason, 0);
    tune_excluded new = {.kind = results->kind, .entry = entry, .reason = kb_text_take(reason)};
    if (!new.reason || !kb_vec_push(&results->excluded, new)) {
        free(new.reason);
        results->failed = true;
    }
}

static void append_reason(const ccl_entry *entry, ccl_fitness fitness, uint32_t world,
                          kb_text *reason)
{
    switch (fitness) {
    case CCL_OTHER_RANKS:
        kb_text_puts(reason, entry->rank_is_pe ? "ranks are PEs there, not SIPs"
                                               : "ranks are SIPs there, not PEs");
        break;
    case CCL_OTHER_WORLD:
        kb_text_printf(reason, "world_size is %" PRIu32 ", not %" PRIu32, entry->world_size, world);
        break;
    case CCL_TOO_MANY_RANKS:
        kb_text_printf(reason, "auto_max_ranks is %" PRIu32 ", and there are %" PRIu32 " ranks",
                       entry->auto_max_ranks, world);
        break;
    case CCL_OTHER_OPERATION:
        kb_text_puts(reason, "reduces the shards of a rank, too (reduce_shards)");
        break;
    case CCL_ONE_LAYOUT:
        kb_text_printf(reason, "for one layout only, as the mapper is %s, not lanes",
                       entry->mapper->name);
        break;
    case CCL_OTHER_BITS:
        kb_text_printf(reason, "module %s does not promise same_bits", entry->algorithm->name);
        break;
    case CCL_FITS:
    case CCL_OTHER_COLLECTIVE:
        break;
    }
}

void tune_exclude_unfit(tune_results *results, const ccl_config *config)
{
    const kb_ccl_info *ranks = &results->ranks;
    for (size_t i = 0; i < config->entries.count; i++) {
        const ccl_entry *entry = &config->entries.items[i];
        ccl_fitness fitness =
            ccl_entry_fitness(entry, results->kind, ranks->world, ranks->rank_is_pe);
        if (fitness == CCL_FITS || fitness == CCL_OTHER_COLLECTIVE)
            continue;
        kb_text reason = KB_TEXT_INIT;
        append_reason(entry, fitness, ranks->world, &reason);
        exclude(results, i, &reason);
    }
}

void tune_exclude_failed(void *self, size_t entry, const kb_error *err)
{
    tune_results *results = self;
    for (size_t i = 0; i < results->excluded.count; i++) {
        const tune_excluded *l = &results->excluded.items[i];
        if (l->kind == results->kind && l->entry == entry)
            return;
    }
    kb_text reason = KB_TEXT_INIT;
    kb_text_printf(&reason, "at %s: %s", obs_bytes(results->bytes).text, kb_error_message(err));
    exclude(results, entry, &reason);
}
