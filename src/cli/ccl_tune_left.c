/*
 * ccl_tune_left.c: the entries of ccl.yaml that can do a collective but are none to choose, and
 * why; and those that fail. Those that cannot do it at all are not worth a word.
 */
#include "ccl_tune.h"

#include "obs/obs.h"
#include "table.h"

#include <inttypes.h>
#include <stdlib.h>

void tune_results_fini(tune_results *results)
{
    for (size_t i = 0; i < results->rows.count; i++)
        kb_vec_fini(&results->rows.items[i].results);
    for (size_t i = 0; i < results->left_out.count; i++)
        free(results->left_out.items[i].why);
    kb_vec_fini(&results->rows);
    kb_vec_fini(&results->left_out);
}

/* Takes the text over. */
static void leave_out(tune_results *results, size_t entry, kb_text *why)
{
    kb_text_escape_from(why, 0);
    tune_left_out new = {.kind = results->kind, .entry = entry, .why = kb_text_take(why)};
    if (!new.why || !kb_vec_push(&results->left_out, new)) {
        free(new.why);
        results->failed = true;
    }
}

static void say_why(const ccl_entry *entry, ccl_fitness fitness, uint32_t world, kb_text *why)
{
    switch (fitness) {
    case CCL_OTHER_RANKS:
        kb_text_puts(why, entry->rank_is_pe ? "ranks are PEs there, not SIPs"
                                            : "ranks are SIPs there, not PEs");
        break;
    case CCL_OTHER_WORLD:
        kb_text_printf(why, "world_size is %" PRIu32 ", not %" PRIu32, entry->world_size, world);
        break;
    case CCL_TOO_MANY_RANKS:
        kb_text_printf(why, "auto_max_ranks is %" PRIu32 ", and there are %" PRIu32 " ranks",
                       entry->auto_max_ranks, world);
        break;
    case CCL_OTHER_OPERATION:
        kb_text_puts(why, "reduces the shards of a rank, too (reduce_shards)");
        break;
    case CCL_ONE_LAYOUT:
        kb_text_printf(why, "for one layout only, as the mapper is %s, not lanes",
                       entry->mapper->name);
        break;
    case CCL_OTHER_BITS:
        kb_text_printf(why, "module %s does not promise same_bits", entry->algorithm->name);
        break;
    case CCL_FITS:
    case CCL_OTHER_COLLECTIVE:
        break;
    }
}

void tune_note_unfit(tune_results *results, const ccl_config *config)
{
    const kb_ccl_info *ranks = &results->ranks;
    for (size_t i = 0; i < config->entries.count; i++) {
        const ccl_entry *entry = &config->entries.items[i];
        ccl_fitness fitness =
            ccl_entry_fitness(entry, results->kind, ranks->world, ranks->rank_is_pe);
        if (fitness == CCL_FITS || fitness == CCL_OTHER_COLLECTIVE)
            continue;
        kb_text why = KB_TEXT_INIT;
        say_why(entry, fitness, ranks->world, &why);
        leave_out(results, i, &why);
    }
}

void tune_note_refused(void *self, size_t entry, const kb_error *err)
{
    tune_results *results = self;
    for (size_t i = 0; i < results->left_out.count; i++) {
        const tune_left_out *l = &results->left_out.items[i];
        if (l->kind == results->kind && l->entry == entry)
            return;
    }
    kb_text why = KB_TEXT_INIT;
    kb_text_printf(&why, "at %s: %s", obs_bytes(results->bytes).text, kb_error_message(err));
    leave_out(results, entry, &why);
}
