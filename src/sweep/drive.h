/*
 * drive.h: runs the points of a plan that the store does not have.
 *
 *     sweep_drive *drive;
 *     KB_TRY(sweep_drive_create(&options, &drive));   // finds points that the store has
 *     KB_TRY(sweep_drive_run(drive));                 // runs the others
 *     use(sweep_drive_outcome(drive, point));
 *     sweep_drive_destroy(drive);
 *
 * This process alone writes the store, a transaction for each run that has ended.
 */
#ifndef KB_SWEEP_DRIVE_H
#define KB_SWEEP_DRIVE_H

#include "base/base.h"
#include "store/store.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "known.h"
#include "point_key.h"
#include "runner.h"
#include "sweep_plan.h"

/* How a point ended, now or in an earlier sweep. */
typedef struct sweep_outcome {
    bool done, stored; /* stored: by an earlier sweep */
    store_status status;
    int64_t run; /* in the store; 0: none */
    double wall_s;
} sweep_outcome;

typedef struct sweep_progress {
    size_t points, done, failed; /* done: with those of earlier sweeps, and the failed ones */
    size_t stored;               /* that earlier sweeps have run */
    size_t running;
    double seconds, rate; /* since the start; points a second */
    double left_s;        /* negative: not known */
    bool is_last;
} sweep_progress;

typedef struct sweep_drive_options {
    const sweep_plan *plan;
    const sweep_keys *keys;
    store *store;       /* NULL: what the runs bring is dropped but for their time */
    sweep_known *known; /* read already */
    bool force, retry_failed;
    size_t max_points;  /* 0: all */
    double max_seconds; /* 0: no limit; else no point is started later */

    /* Fills in what the record says of the bench and the command. `texts` is for it to use. */
    void (*describe)(void *self, const sweep_point *point, store_run *run, kb_text *texts);
    /* Called when something has changed, and now and then. */
    void (*progress)(void *self, const sweep_progress *progress);
    void *self;
} sweep_drive_options;

typedef struct sweep_drive sweep_drive;

KB_MUST_USE kb_error *sweep_drive_create(const sweep_drive_options *options, sweep_drive **out);
void sweep_drive_destroy(sweep_drive *drive); /* NULL does nothing */

/* Points that are to be run. */
size_t sweep_drive_left(const sweep_drive *drive);

/* Runs them. Ends early if a signal is held (interrupts.h), after ending the points that run. */
KB_MUST_USE kb_error *sweep_drive_run(sweep_drive *drive, const sweep_runner *runner);

const sweep_outcome *sweep_drive_outcome(const sweep_drive *drive, size_t point);

/* Whether the store had the point before, and how many it had. */
bool sweep_drive_is_stored(const sweep_drive *drive, size_t point);
size_t sweep_drive_stored(const sweep_drive *drive);

/* How long the points that the store did not have take on so many workers, by those that are done;
 * negative if it is not known. */
KB_MUST_USE kb_error *sweep_drive_estimate(const sweep_drive *drive, size_t workers,
                                           double *seconds);

/* Whether a run is good as it is: what a child asks before it runs a point. */
bool sweep_is_good(const sweep_known_run *run, bool force, bool retry_failed);

#endif
