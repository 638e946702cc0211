/*
 * sweep_ranks.h: the ranks of an MPI job that run points of a sweep: all but rank 0. They print
 * nothing: rank 0 reports what is wrong with them.
 */
#ifndef KB_CLI_SWEEP_RANKS_H
#define KB_CLI_SWEEP_RANKS_H

#include "mpi/mpi.h"
#include "sweep/sweep.h"
#include "sweep_worker.h"

/* From then on stderr goes to memory. */
typedef struct sweep_messages {
    int stderr_before, memory;
} sweep_messages;

KB_MUST_USE kb_error *sweep_messages_catch(sweep_messages *messages);
/* Restores stderr, and appends what was written. */
void sweep_messages_release(sweep_messages *messages, kb_text *text);

/* Runs the points that rank 0 gives out. The worker must have its keys. Reports errors. */
KB_MUST_USE kb_code sweep_ranks_serve(mpi_job *job, sweep_worker *worker,
                                      const child_options *options);

#endif
