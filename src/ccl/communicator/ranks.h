/* ranks.h: the devices of ranks, and other options for collectives, for the layers above. */
#ifndef KB_CCL_RANKS_H
#define KB_CCL_RANKS_H

#include <stdint.h>

#include <kernbench/kernbench.h>

#include "rt/rt.h"

/* The device of a rank of the process group. An error if the caller has not initialised it, there
 * is no such rank, or ranks are PEs. */
KB_MUST_USE kb_error *ccl_get_rank_device(kb_context *ctx, const char *function, uint32_t rank,
                                          uint32_t *sip);

/* Reads ccl.yaml anew, with these options, for what comes from here on. Not while there is a
 * process group. */
KB_MUST_USE kb_error *ccl_reload(kb_context *ctx, const rt_ccl_options *options);

#endif
