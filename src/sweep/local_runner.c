/* local_runner.c: the runner whose points are children of this process: see runner.h. */
#include "runner.h"

#include <stdlib.h>

struct sweep_local {
    child_options options;
    child_pool *pool;
    sweep_work work;
    size_t point; /* of the child that is started now: the child has a copy */
};

kb_error *sweep_local_create(const child_options *options, sweep_work work, sweep_local **out)
{
    sweep_local *local = kb_alloc_zeroed(1, sizeof *local);
    *out = NULL;
    if (!local)
        return kb_error_nomem();
    local->options = *options;
    local->work = work;
    kb_error *err = child_pool_create(options, &local->pool);
    if (err) {
        sweep_local_destroy(local);
        return err;
    }
    *out = local;
    return NULL;
}

void sweep_local_destroy(sweep_local *local)
{
    if (!local)
        return;
    child_pool_destroy(local->pool);
    free(local);
}

static int run(void *self, int out)
{
    const sweep_local *local = self;
    return local->work.run(local->work.self, local->point, out);
}

static kb_error *start(void *self, size_t point)
{
    sweep_local *local = self;
    local->point = point;
    return child_start(local->pool, run, local, point);
}

static bool wait_for_end(void *self, double seconds, child_result *result)
{
    sweep_local *local = self;
    return child_wait(local->pool, seconds, interrupts_fd(), result);
}

static void cancel(void *self)
{
    sweep_local *local = self;
    child_pool_kill(local->pool);
}

sweep_runner sweep_local_runner(sweep_local *local)
{
    return (sweep_runner){
        .self = local,
        .slots = local->options.slots,
        .start = start,
        .wait = wait_for_end,
        .cancel = cancel,
    };
}
