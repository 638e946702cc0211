/* cache_layout.h: how a cache is divided among PEs: see cache.h. Private to nn. */
#ifndef KB_NN_CACHE_LAYOUT_H
#define KB_NN_CACHE_LAYOUT_H

#include "cache.h"

/* Chooses split, page size and slots, and makes the values of records and table and the rule as a
 * sentence. The other numbers of the layout are inputs. */
KB_MUST_USE kb_error *nn_plan_cache(kb_context *ctx, const kb_kv_cache_spec *spec, nn_cache *cache);

/* Cycles of the vector engine for as many scores as it has lanes: maximum, difference, exponential,
 * sum. */
double nn_score_cycles(const kb_context *ctx);

/* The cycles of the exponential. */
double nn_exp_cycles(const kb_context *ctx);

#endif
