/* ranks.h: the devices of ranks, for the layers above collectives. */
#ifndef KB_CCL_RANKS_H
#define KB_CCL_RANKS_H

#include <stdint.h>

#include <kernbench/kernbench.h>

/* The device of a rank of the process group, which the caller has to be in. An error if there is no
 * such rank, or if ranks are PEs. */
KB_MUST_USE kb_error *ccl_get_rank_device(kb_context *ctx, const char *function, uint32_t rank,
                                          uint32_t *sip);

#endif
