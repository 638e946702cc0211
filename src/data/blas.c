/*
 * blas.c: loads OpenBLAS and calls it.
 *
 * OpenBLAS gives each call a buffer of up to 128 MiB of address space and keeps the buffers. If
 * there is no memory for a buffer, it tries again forever. So the buffers are made here, one for
 * each thread, after a mapping of that size has succeeded. What is left: memory that other threads
 * of the process take between the two.
 */
#include "blas.h"

#include <cblas.h>
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "data.h"

static const char library_name[] = "libopenblas.so.0";
static const size_t library_bytes = (size_t)64 << 20; /* with the libraries that it needs */
static const size_t buffer_bytes = ((size_t)128 << 20) + ((size_t)1 << 20);
enum { MAX_BUFFERS = 64 }; /* builds of OpenBLAS have 128 or more */

/* Functions of OpenBLAS. The last two are internal and may be missing. */
static struct {
    __typeof__(&cblas_sgemm) sgemm;
    __typeof__(&openblas_set_num_threads) set_num_threads;
    __typeof__(&openblas_get_parallel) get_parallel;
    void *(*memory_alloc)(int position);
    void (*memory_free)(void *buffer);
} blas;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for what follows */
static bool is_loaded;
static unsigned callers; /* threads between data_blas_begin() and data_blas_end() */
static unsigned buffers; /* that OpenBLAS has, at least */

/* A BLAS without threads of its own has buffers that only one thread may use at a time. */
static bool is_sequential;
static pthread_mutex_t call_lock = PTHREAD_MUTEX_INITIALIZER;

static _Thread_local bool is_loading;

bool data_is_loading_library(void)
{
    return is_loading;
}

/* ---- Loading ----------------------------------------------------------------------------- */

static bool has_room(size_t bytes)
{
    void *room = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (room == MAP_FAILED)
        return false;
    (void)munmap(room, bytes);
    return true;
}

/* C has no conversion from an object's address to a function's. */
static bool find(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof found);
    return found != NULL;
}

static kb_error *cannot_load(void)
{
    const char *reason = dlerror();
    return kb_error_new(KB_ERR_HOST,
                        "cannot load OpenBLAS, which multiplies matrices (Debian package "
                        "libopenblas0-pthread): %s",
                        reason ? reason : "out of memory");
}

static kb_error *load(void)
{
    if (is_loaded)
        return NULL;
    if (!has_room(library_bytes + buffer_bytes)) /* a constructor may make a buffer */
        return kb_error_nomem();
    is_loading = true;
    void *library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    is_loading = false;
    if (!library)
        return cannot_load();
    if (!find(library, "cblas_sgemm", &blas.sgemm) ||
        !find(library, "openblas_set_num_threads", &blas.set_num_threads) ||
        !find(library, "openblas_get_parallel", &blas.get_parallel))
        return cannot_load();
    if (!find(library, "blas_memory_alloc", &blas.memory_alloc) ||
        !find(library, "blas_memory_free", &blas.memory_free))
        blas.memory_alloc = NULL;
    is_sequential = blas.get_parallel() == OPENBLAS_SEQUENTIAL;
    if (!is_sequential)
        blas.set_num_threads(1); /* products are split here, always in the same way */
    is_loaded = true;
    return NULL;
}

/* ---- Buffers ----------------------------------------------------------------------------- */

/* Has OpenBLAS make buffers, by taking all and giving them back. Whether there are as many now. */
static bool make_buffers(unsigned count)
{
    if (count > MAX_BUFFERS)
        count = MAX_BUFFERS;
    if (count <= buffers)
        return true;
    if (!has_room((count - buffers) * buffer_bytes))
        return false;
    if (blas.memory_alloc) {
        void *taken[MAX_BUFFERS];
        for (unsigned i = 0; i < count; i++)
            taken[i] = blas.memory_alloc(0);
        for (unsigned i = count; i > 0; i--)
            blas.memory_free(taken[i - 1]);
    }
    buffers = count;
    return true;
}

static kb_error *begin(unsigned *threads)
{
    KB_TRY(load());
    if (is_sequential)
        return make_buffers(1) ? NULL : kb_error_nomem();
    if (make_buffers(callers + *threads))
        return NULL;
    *threads = 1;
    return make_buffers(callers + 1) ? NULL : kb_error_nomem();
}

kb_error *data_blas_begin(unsigned *threads)
{
    (void)pthread_mutex_lock(&lock);
    kb_error *err = begin(threads);
    if (!err)
        callers += *threads;
    (void)pthread_mutex_unlock(&lock);
    return err;
}

void data_blas_end(unsigned threads)
{
    (void)pthread_mutex_lock(&lock);
    callers -= threads;
    (void)pthread_mutex_unlock(&lock);
}

/* ---- Calls ------------------------------------------------------------------------------- */

void data_blas_multiply_add(data_blas_matrix a, data_blas_matrix b, float *c, size_t m, size_t n,
                            size_t k)
{
    if (is_sequential)
        (void)pthread_mutex_lock(&call_lock);
    blas.sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (blasint)m, (blasint)n, (blasint)k, 1,
               a.numbers, (blasint)a.stride, b.numbers, (blasint)b.stride, 1, c, (blasint)n);
    if (is_sequential)
        (void)pthread_mutex_unlock(&call_lock);
}
