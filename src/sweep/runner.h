/*
 * runner.h: where points run: in children of this process, or on other machines.
 *
 * A runner is given points by their numbers in the plan, which every process of a sweep has, and
 * hands back what their children sent and how they ended, in any order.
 */
#ifndef KB_SWEEP_RUNNER_H
#define KB_SWEEP_RUNNER_H

#include "child/child.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct sweep_runner {
    void *self;
    size_t slots; /* points at a time */

    /* Starts a point; at most `slots` run. Fails if the host has no room for one more now. */
    kb_error *(*start)(void *self, size_t point);

    /* Waits so many seconds at most for a point to end; less if a signal comes. False if none has
     * ended. The tag of the result is the point; to be freed with child_result_fini(). */
    bool (*wait)(void *self, double seconds, child_result *result);

    /* Ends the points that run; they are not handed back. */
    void (*cancel)(void *self);
} sweep_runner;

/* What a child does: runs the point and sends frames (frames.h) to `out`; returns the status. */
typedef struct sweep_work {
    int (*run)(void *self, size_t point, int out);
    void *self;
} sweep_work;

/* Runs points in children of this process. */
typedef struct sweep_local sweep_local;
KB_MUST_USE kb_error *sweep_local_create(const child_options *options, sweep_work work,
                                         sweep_local **out);
void sweep_local_destroy(sweep_local *local); /* NULL does nothing */
sweep_runner sweep_local_runner(sweep_local *local);

#endif
