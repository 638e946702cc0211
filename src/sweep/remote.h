/*
 * remote.h: points that run on other ranks of an MPI job. Rank 0 gives them out and keeps the
 * results; each other rank runs its points in children of its own.
 *
 *     rank 0                                       the others
 *     sweep_remote_create(job, workers, &remote)   sweep_serve(job, &local, ...)
 *     runner = sweep_remote_runner(remote)
 *     sweep_drive_run(drive, &runner)
 *     sweep_remote_destroy(remote)                 returns
 *
 * All processes are of one program, on computers of one kind: messages are as in memory. If a rank
 * dies, the job does (as with OpenMPI 4): what rank 0 has stored is kept.
 */
#ifndef KB_SWEEP_REMOTE_H
#define KB_SWEEP_REMOTE_H

#include "base/base.h"
#include "mpi/mpi.h"

#include <stddef.h>

#include "runner.h"

typedef struct sweep_remote sweep_remote;

/* Waits until every rank is ready; an error if one has failed to prepare. */
KB_MUST_USE kb_error *sweep_remote_create(mpi_job *job, sweep_remote **out);

/* Ends what the other ranks run, and their sweep_serve(). NULL does nothing. */
void sweep_remote_destroy(sweep_remote *remote);

sweep_runner sweep_remote_runner(sweep_remote *remote);

/*
 * On another rank: runs the points that rank 0 gives out, until that ends it. `note` is called for
 * each result before it is sent.
 */
KB_MUST_USE kb_error *sweep_serve(mpi_job *job, const sweep_runner *local,
                                  kb_error *(*note)(void *self, const child_result *result),
                                  void *self);

/* On another rank, instead: it has failed to prepare, and says why. */
void sweep_refuse_to_serve(mpi_job *job, const char *message);

#endif
