/* as_new.h: that a context in which workers have failed is as good as a new one. */
#ifndef TESTS_RT_AS_NEW_H
#define TESTS_RT_AS_NEW_H

#include "programs.h"

/* How long a program took that does a little of everything. */
typedef struct probe {
    kb_time durations[SIPS];
} probe;

static inline kb_error *probe_worker(kb_context *ctx, uint32_t rank, void *arg)
{
    probe *p = arg;
    kb_time start = kb_context_now(ctx);
    kb_tensor x;
    kb_tensor_spec spec = bytes_spec("probe", 5000);
    unsigned char back[5000];
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    KB_TRY(kb_full(ctx, &spec, rank + 1, &x));
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    KB_TRY(kb_distributed_barrier(ctx, NULL));
    KB_TRY(kb_tensor_to_host(ctx, x, KB_TIMED, back, sizeof back));
    assert_int_equal(back[4999], rank + 1);
    KB_TRY(kb_tensor_free(ctx, x));
    KB_TRY(kb_synchronize(ctx));
    p->durations[rank] = kb_context_now(ctx) - start;
    return NULL;
}

/* The context works as a fresh one would, and nothing that was under way is left. */
static inline void expect_as_new(kb_context *ctx)
{
    probe used, fresh;
    kb_sim_stats stats = kb_sim_get_stats(kb_context_sim(ctx));
    kb_time now = kb_context_now(ctx);
    assert_int_equal(stats.coroutines, 0);
    assert_null(kb_context_worker(ctx));
    expect_ok(kb_synchronize(ctx));
    assert_int_equal(kb_context_now(ctx), now);
    assert_int_equal(kb_sim_get_stats(kb_context_sim(ctx)).events, stats.events);

    expect_ok(kb_spawn(ctx, probe_worker, &used, SIPS));
    kb_context *new = open_small(NULL);
    expect_ok(kb_spawn(new, probe_worker, &fresh, SIPS));
    assert_memory_equal(&used, &fresh, sizeof used);
    kb_context_destroy(new);
}

#endif
