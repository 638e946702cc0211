/* ranks.h: the devices of ranks, for the layers above collectives. */
#ifndef KB_CCL_RANKS_H
#define KB_CCL_RANKS_H

#include <stdint.h>

#include <kernbench/kernbench.h>

/* The device of a rank of the process group. An error if the caller has not initialised it, there
 * is no such rank, or ranks are PEs. */
KB_MUST_USE kb_error *ccl_get_rank_device(kb_context *ctx, const char *function, uint32_t rank,
                                          uint32_t *sip);

#endif
