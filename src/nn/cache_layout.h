/* cache_layout.h: how a cache is divided among PEs: see cache.h. Private to nn. */
#ifndef KB_NN_CACHE_LAYOUT_H
#define KB_NN_CACHE_LAYOUT_H

#include "cache.h"

/* Chooses split, page size and slots, makes the values of records and table, and writes the rule as
 * a sentence. The other numbers of the layout are there. */
KB_MUST_USE kb_error *nn_plan_cache(kb_context *ctx, const kb_kv_cache_spec *spec, nn_cache *cache);

/* Cycles of the vector engine for a row of lanes of scores: maximum, difference, exponential, sum.
 */
double nn_score_cycles(const kb_context *ctx);

/* Of these, the exponential. */
double nn_exp_cycles(const kb_context *ctx);

#endif
