/* mpi.c: finds and loads the component: see mpi.h. */
#include "mpi.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mpi_component.h"

struct mpi_job {
    const mpi_component *component;
    int rank, size;
};

static bool is_number_above_one(const char *text)
{
    return text && strtol(text, NULL, 10) > 1;
}

bool mpi_is_started(void)
{
    /* mpirun of OpenMPI; srun --mpi=pmix. */
    return is_number_above_one(getenv("OMPI_COMM_WORLD_SIZE")) ||
           (getenv("PMIX_RANK") && is_number_above_one(getenv("SLURM_NTASKS")));
}

/* The directory of this program, with "/"; "" if it is not known. */
static void find_own_directory(char *path, size_t size)
{
    ssize_t length = readlink("/proc/self/exe", path, size - 1);
    path[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(path, '/');
    if (slash)
        slash[1] = '\0';
}

static const char *const places[] = {KB_BUILT_MPI, KB_INSTALLED_MPI};

/* NULL if it is nowhere; *why is the message of the loader if it cannot be loaded. */
static void *load(const char **why)
{
    char directory[4096], path[4200];
    find_own_directory(directory, sizeof directory);
    *why = NULL;
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        snprintf(path, sizeof path, "%s%s", directory, places[i]);
        if (access(path, R_OK) != 0)
            continue;
        /* Parts of OpenMPI that it loads itself look up its symbols. */
        void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
        if (!library)
            *why = dlerror();
        return library;
    }
    return NULL;
}

static kb_error *find_component(const mpi_component **component)
{
    const char *why;
    void *library = load(&why);
    *component = library ? dlsym(library, MPI_COMPONENT_SYMBOL) : NULL;
    if (*component && strcmp((*component)->version, kb_version()) == 0)
        return NULL;
    if (*component)
        return kb_error_new(KB_ERR_INPUT,
                            "the MPI component is of KernBench %s, this is %s: install both again",
                            (*component)->version, kb_version());
    if (why)
        return kb_error_new(KB_ERR_HOST, "cannot load the MPI component: %s", why);
    return kb_error_new(KB_ERR_INPUT,
                        "mpirun has started this program, which was built without MPI: install "
                        "OpenMPI (Debian: libopenmpi-dev openmpi-bin) and build it again, or "
                        "divide the sweep with --shard");
}

kb_error *mpi_open(mpi_job **out)
{
    *out = NULL;
    mpi_job *job = kb_alloc_zeroed(1, sizeof *job);
    if (!job)
        return kb_error_nomem();
    kb_error *err = find_component(&job->component);
    if (err) {
        free(job);
        return err;
    }
    /* Points run in forked processes, which do not use MPI; and the program reports crashes. */
    (void)setenv("OMPI_MCA_mpi_warn_on_fork", "0", 0);
    (void)setenv("OMPI_MCA_opal_signal", "", 0);
    job->component->init(&job->rank, &job->size);
    *out = job;
    return NULL;
}

void mpi_close(mpi_job *job)
{
    if (!job)
        return;
    job->component->finalize();
    free(job);
}

void mpi_abort(mpi_job *job, int status)
{
    job->component->abort(status);
    abort(); /* not reached */
}

int mpi_rank(const mpi_job *job)
{
    return job->rank;
}

int mpi_size(const mpi_job *job)
{
    return job->size;
}

void mpi_send(mpi_job *job, int to, const void *bytes, size_t length)
{
    job->component->send(to, bytes, length);
}

bool mpi_receive(mpi_job *job, int *from, kb_text *message)
{
    size_t length;
    if (!job->component->probe(from, &length))
        return false;
    kb_text_fini(message);
    void *bytes = kb_alloc_array(length + 1, 1);
    if (!bytes)
        mpi_abort(job, KB_ERR_HOST);
    job->component->receive(*from, bytes, length);
    ((char *)bytes)[length] = '\0';
    *message = (kb_text){.bytes = bytes, .length = length, .capacity = length + 1};
    return true;
}
