/*
 * drive.c: see drive.h. Points are started longest first, by what is expected from those that are
 * done (expectation.h). While nothing is known some points from all over the plan come first. The
 * order is made anew whenever twice as many points are done as at the last time.
 *
 * The next point is started before the record of the last one is written, so that workers do not
 * wait for the store.
 */
#include "drive.h"

#include <math.h>
#include <stdlib.h>
#include <time.h>

#include "expectation.h"
#include "point_record.h"

enum { FIRST_SAMPLES = 8 };
static const double tick = 0.5; /* seconds between calls of progress */

typedef struct queued {
    uint32_t point;
    float expected_s;
} queued;

struct sweep_drive {
    sweep_drive_options options;
    sweep_outcome *outcomes;
    queued *queue; /* points to run, in their order */
    size_t queued, next;
    size_t running, done, failed, stored, finished; /* finished: by this sweep */
    uint64_t ordered_at; /* points that were known when the queue was ordered */
    sweep_expectation expectation;
    sweep_point point;
    double began, told;
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- What there is to do ------------------------------------------------------------------ */

bool sweep_is_good(const sweep_known_run *run, bool force, bool retry_failed)
{
    return run && !force && (run->status == STORE_OK || !retry_failed);
}

static kb_error *note_time(sweep_drive *d, size_t point, double wall_s)
{
    KB_TRY(sweep_plan_point(d->options.plan, point, &d->point));
    sweep_expectation_add(&d->expectation, &d->point, wall_s);
    return NULL;
}

static void note_outcome(sweep_drive *d, size_t point, const sweep_known_run *run)
{
    d->outcomes[point] =
        (sweep_outcome){.done = true, .status = run->status, .run = run->id, .wall_s = run->wall_s};
    d->done++;
    d->failed += run->status != STORE_OK;
}

static kb_error *look_up(sweep_drive *d, size_t point)
{
    const sweep_drive_options *o = &d->options;
    KB_TRY(sweep_plan_point(o->plan, point, &d->point));
    sweep_hash request = sweep_keys_request(o->keys, &d->point);
    const sweep_known_run *run = sweep_known_find_request(o->known, request.hex);
    if (run && run->status == STORE_OK)
        sweep_expectation_add(&d->expectation, &d->point, run->wall_s);
    if (run && sweep_is_good(run, o->force, o->retry_failed)) {
        note_outcome(d, point, run);
        d->outcomes[point].stored = true;
        d->stored++;
    } else {
        d->queue[d->queued++] = (queued){.point = (uint32_t)point};
    }
    return NULL;
}

/* Some points from all over the queue to its front, without changing the order of the others
 * much. */
static void spread_first(sweep_drive *d)
{
    size_t samples = d->queued < FIRST_SAMPLES ? d->queued : FIRST_SAMPLES;
    for (size_t i = 0; i < samples; i++) {
        size_t from = i * (d->queued - 1) / (samples > 1 ? samples - 1 : 1);
        queued moved = d->queue[from];
        if (from <= i)
            continue;
        d->queue[from] = d->queue[i];
        d->queue[i] = moved;
    }
}

static int by_expectation(const void *a, const void *b)
{
    const queued *x = a, *y = b;
    if (x->expected_s > y->expected_s || x->expected_s < y->expected_s)
        return x->expected_s > y->expected_s ? -1 : 1;
    return (x->point > y->point) - (x->point < y->point);
}

static kb_error *order(sweep_drive *d)
{
    for (size_t i = d->next; i < d->queued; i++) {
        KB_TRY(sweep_plan_point(d->options.plan, d->queue[i].point, &d->point));
        d->queue[i].expected_s = (float)sweep_expectation_of(&d->expectation, &d->point);
    }
    if (d->queued > d->next)
        qsort(d->queue + d->next, d->queued - d->next, sizeof *d->queue, by_expectation);
    d->ordered_at = d->expectation.count;
    return NULL;
}

static kb_error *order_again(sweep_drive *d)
{
    uint64_t known = d->expectation.count;
    return known >= FIRST_SAMPLES && known >= 2 * d->ordered_at ? order(d) : NULL;
}

static kb_error *prepare(sweep_drive *d)
{
    const sweep_plan *plan = d->options.plan;
    d->outcomes = kb_alloc_zeroed(plan->point_count + 1, sizeof *d->outcomes);
    d->queue = kb_alloc_array(plan->point_count + 1, sizeof *d->queue);
    if (!d->outcomes || !d->queue)
        return kb_error_nomem();
    KB_TRY(sweep_expectation_init(&d->expectation, plan));
    for (size_t i = 0; i < plan->point_count; i++)
        KB_TRY(look_up(d, i));
    spread_first(d);
    return order_again(d);
}

kb_error *sweep_drive_create(const sweep_drive_options *options, sweep_drive **out)
{
    sweep_drive *d = kb_alloc_zeroed(1, sizeof *d);
    *out = NULL;
    if (!d)
        return kb_error_nomem();
    d->options = *options;
    kb_error *err = prepare(d);
    if (err) {
        sweep_drive_destroy(d);
        return err;
    }
    *out = d;
    return NULL;
}

void sweep_drive_destroy(sweep_drive *d)
{
    if (!d)
        return;
    sweep_expectation_fini(&d->expectation);
    sweep_point_fini(&d->point);
    free(d->outcomes);
    free(d->queue);
    free(d);
}

size_t sweep_drive_left(const sweep_drive *d)
{
    return d->options.plan->point_count - d->done;
}

const sweep_outcome *sweep_drive_outcome(const sweep_drive *d, size_t point)
{
    return &d->outcomes[point];
}

bool sweep_drive_is_stored(const sweep_drive *d, size_t point)
{
    return d->outcomes[point].stored;
}

size_t sweep_drive_stored(const sweep_drive *d)
{
    return d->stored;
}

/* ---- Estimates ---------------------------------------------------------------------------- */

static kb_error *expected_work(const sweep_drive *d, double *seconds, double *longest)
{
    sweep_point point = {0};
    kb_error *err = NULL;
    *seconds = *longest = 0;
    for (size_t i = 0; i < d->options.plan->point_count && !err; i++) {
        if (d->outcomes[i].stored)
            continue;
        err = sweep_plan_point(d->options.plan, i, &point);
        double expected = err ? 0 : sweep_expectation_of(&d->expectation, &point);
        *seconds += expected;
        *longest = expected > *longest ? expected : *longest;
    }
    sweep_point_fini(&point);
    return err;
}

kb_error *sweep_drive_estimate(const sweep_drive *d, size_t workers, double *seconds)
{
    double work, longest;
    *seconds = -1;
    if (d->expectation.count == 0)
        return NULL;
    KB_TRY(expected_work(d, &work, &longest));
    *seconds = fmax(work / (double)workers, longest);
    return NULL;
}

static void tell(sweep_drive *d, bool is_last)
{
    double t = now();
    if (!d->options.progress)
        return;
    d->told = t;
    size_t left = d->options.plan->point_count - d->done;
    sweep_progress progress = {
        .points = d->options.plan->point_count,
        .done = d->done,
        .failed = d->failed,
        .stored = d->stored,
        .running = d->running,
        .seconds = t - d->began,
        .left_s = -1,
        .is_last = is_last,
    };
    progress.rate = progress.seconds > 0 ? (double)d->finished / progress.seconds : 0;
    if (progress.rate > 0)
        progress.left_s = (double)left / progress.rate;
    d->options.progress(d->options.self, &progress);
}

/* ---- Running ------------------------------------------------------------------------------ */

static bool may_start(const sweep_drive *d, const sweep_runner *runner)
{
    const sweep_drive_options *o = &d->options;
    if (d->next >= d->queued || d->running >= runner->slots)
        return false;
    if (o->max_points > 0 && d->next >= o->max_points)
        return false;
    return o->max_seconds <= 0 || now() - d->began < o->max_seconds;
}

/* As many as there is room for. If the host has none, later; but one must be running then. */
static kb_error *start_points(sweep_drive *d, const sweep_runner *runner)
{
    while (may_start(d, runner)) {
        kb_error *err = runner->start(runner->self, d->queue[d->next].point);
        if (err && d->running > 0) {
            kb_error_free(err);
            return NULL;
        }
        KB_TRY(err);
        d->next++;
        d->running++;
    }
    return NULL;
}

/* Keeps what came of a point. */
static kb_error *keep(sweep_drive *d, const child_result *result)
{
    const sweep_drive_options *o = &d->options;
    size_t point = (size_t)result->tag;
    sweep_known_run run;
    KB_TRY(sweep_plan_point(o->plan, point, &d->point));
    sweep_hash request = sweep_keys_request(o->keys, &d->point);
    sweep_recorder recorder = {
        .store = o->store,
        .known = o->known,
        .describe = o->describe,
        .self = o->self,
    };
    KB_TRY(sweep_record(&recorder, &d->point, request.hex, result, &run));
    note_outcome(d, point, &run);
    d->finished++;
    return run.status == STORE_OK ? note_time(d, point, run.wall_s) : NULL;
}

static kb_error *step(sweep_drive *d, const sweep_runner *runner)
{
    child_result result;
    bool ended = runner->wait(runner->self, tick, &result);
    kb_error *err = NULL;
    if (ended) {
        d->running--;
        err = interrupts_signal() == 0 ? start_points(d, runner) : NULL;
        kb_error *kept = keep(d, &result);
        child_result_fini(&result);
        if (err)
            kb_error_free(kept);
        else
            err = kept;
    }
    if (!err)
        err = order_again(d);
    if (ended || now() - d->told >= tick)
        tell(d, false);
    return err;
}

kb_error *sweep_drive_run(sweep_drive *d, const sweep_runner *runner)
{
    d->began = now();
    kb_error *err = start_points(d, runner);
    while (!err && d->running > 0 && interrupts_signal() == 0)
        err = step(d, runner);
    if (d->running > 0)
        runner->cancel(runner->self);
    d->running = 0;
    tell(d, true);
    return err;
}
