/*
 * mpi.h: messages between the processes of a job that mpirun has started.
 *
 *     if (mpi_is_started()) {
 *         mpi_job *job;
 *         KB_TRY(mpi_open(&job));
 *         ... mpi_rank(job), mpi_size(job), mpi_send(), mpi_receive() ...
 *         mpi_close(job);
 *     }
 *
 * OpenMPI is in a component of its own, which is loaded by mpi_open(): the program does not depend
 * on it. Nothing here waits in a busy loop, as several processes may share a core.
 */
#ifndef KB_MPI_MPI_H
#define KB_MPI_MPI_H

#include "base/base.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct mpi_job mpi_job;

/* Whether this process is one of several that mpirun or srun has started. */
bool mpi_is_started(void);

/* Loads the component and joins the job: all processes call it. Once in a process. */
KB_MUST_USE kb_error *mpi_open(mpi_job **out);

/* Leaves the job: all processes call it. NULL does nothing. */
void mpi_close(mpi_job *job);

/* Ends all processes of the job, this one with that status. */
KB_NORETURN void mpi_abort(mpi_job *job, int status);

int mpi_rank(const mpi_job *job); /* from 0 on */
int mpi_size(const mpi_job *job);

/* Returns when the bytes may be changed. At most 2 GiB. */
void mpi_send(mpi_job *job, int to, const void *bytes, size_t length);

/* Takes a message that has arrived: replaces the text by its bytes. False if there is none. */
KB_MUST_USE bool mpi_receive(mpi_job *job, int *from, kb_text *message);

#endif
