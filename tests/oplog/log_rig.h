/* log_rig.h: a simulator with an op log. */
#ifndef TESTS_OPLOG_LOG_RIG_H
#define TESTS_OPLOG_LOG_RIG_H

#include "support/expect.h"

#include "base/base.h"
#include "oplog/oplog.h"
#include "sim/sim.h"

typedef struct rig {
    kb_sim *sim;
    kb_oplog *log;
} rig;

static inline rig make(uint64_t pes)
{
    rig r;
    expect_ok(kb_sim_create(NULL, &r.sim));
    expect_ok(kb_oplog_create(r.sim, pes, &r.log));
    return r;
}

static inline void drop(rig *r)
{
    kb_oplog_destroy(r->log);
    kb_sim_destroy(r->sim);
}

static inline void go_to(rig *r, kb_time when)
{
    expect_ok(kb_sim_run(r->sim, when));
}

#endif
