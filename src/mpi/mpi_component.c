/*
 * mpi_component.c: the component kernbench-mpi.so: messages of mpi.h by OpenMPI.
 *
 * An error of MPI ends the job with a message of OpenMPI, which is what it does by default.
 */
#include <mpi.h>

#include <limits.h>
#include <time.h>

#include "mpi_component.h"

enum { TAG = 1 };

static void init(int *rank, int *size)
{
    (void)MPI_Init(NULL, NULL);
    (void)MPI_Comm_rank(MPI_COMM_WORLD, rank);
    (void)MPI_Comm_size(MPI_COMM_WORLD, size);
}

static void finalize(void)
{
    (void)MPI_Finalize();
}

static void end_job(int status)
{
    (void)MPI_Abort(MPI_COMM_WORLD, status);
}

/* A long message waits for its receiver, who may be asleep: so does this process. */
static void send(int to, const void *bytes, size_t length)
{
    static const struct timespec pause = {.tv_nsec = 50000};
    MPI_Request request;
    int done = 0;
    if (length > INT_MAX)
        end_job(71);
    (void)MPI_Isend(bytes, (int)length, MPI_BYTE, to, TAG, MPI_COMM_WORLD, &request);
    (void)MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    while (!done) {
        (void)nanosleep(&pause, NULL);
        (void)MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    }
    (void)MPI_Wait(&request, MPI_STATUS_IGNORE); /* returns at once: the message is on its way */
}

static bool probe(int *from, size_t *length)
{
    MPI_Status status;
    int is_there = 0, count = 0;
    (void)MPI_Iprobe(MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &is_there, &status);
    if (!is_there)
        return false;
    (void)MPI_Get_count(&status, MPI_BYTE, &count);
    *from = status.MPI_SOURCE;
    *length = (size_t)count;
    return true;
}

static void receive(int from, void *bytes, size_t length)
{
    (void)MPI_Recv(bytes, (int)length, MPI_BYTE, from, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

extern const mpi_component kernbench_mpi_component;

__attribute__((visibility("default"))) const mpi_component kernbench_mpi_component = {
    .version = KB_VERSION,
    .init = init,
    .finalize = finalize,
    .abort = end_job,
    .send = send,
    .probe = probe,
    .receive = receive,
};
