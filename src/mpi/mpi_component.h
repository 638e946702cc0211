/*
 * mpi_component.h: what the component kernbench-mpi.so exports. It calls nothing of the program, so
 * it only has to be of the same build.
 */
#ifndef KB_MPI_MPI_COMPONENT_H
#define KB_MPI_MPI_COMPONENT_H

#include <stdbool.h>
#include <stddef.h>

typedef struct mpi_component {
    const char *version; /* of KernBench */
    void (*init)(int *rank, int *size);
    void (*finalize)(void);
    void (*abort)(int status);
    void (*send)(int to, const void *bytes, size_t length);
    /* Whether a message is there, from whom and how long; receive() then takes that one. */
    bool (*probe)(int *from, size_t *length);
    void (*receive)(int from, void *bytes, size_t length);
} mpi_component;

#define MPI_COMPONENT_SYMBOL "kernbench_mpi_component"

#endif
