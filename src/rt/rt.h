/*
 * rt.h: what the folders above see of a context besides the public header: statistics for the
 * command line, and what collectives are made of (work.h).
 */
#ifndef KB_RT_RT_H
#define KB_RT_RT_H

#include <kernbench/kernbench.h>

#include "bench.h"
#include "net/net.h"
#include "oplog/oplog.h"
#include "sim/sim.h"
#include "tl/tl.h"
#include "topo/topo.h"
#include "work.h"

/* What happened in a context so far. All of it stays the context's. */
typedef struct rt_stats {
    const topo_machine *machine;
    net *fabric;
    kb_oplog *log;
    const kb_launch_result *launches; /* those that are done, in the order of their ends */
    size_t launch_count;
    tl_stand_ins stand_ins;
    pe_stats engines;
    kb_time deadlock_at; /* what comes later only ends what was under way; 0: there was none */
} rt_stats;

rt_stats rt_get_stats(kb_context *ctx);

/* The lines of the queue trace go to another function from here on; to none if the context was made
 * without one. */
void rt_redirect_ccl_trace(kb_context *ctx, kb_warning_fn *on_ccl_trace, void *self);

/* Whether a public call that takes a tensor shows its contents to the host, and so waits first for
 * the caller's work. */
bool rt_shows_contents(const char *function);

/* Reads or writes contents at a virtual address of a tensor, or a physical one, in no time. All
 * copies of a replicated tensor are written, the first one is read. */
KB_MUST_USE kb_error *rt_access_address(kb_context *ctx, uint64_t address, void *data, size_t bytes,
                                        bool write);

#endif
