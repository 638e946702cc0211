/*
 * threads.c: threads that help to compute, and sleep otherwise.
 *
 * A job is open from when it is given until the caller has run out of parts; who wakes up later has
 * missed it. The caller leaves when all who came in time have left. A thread that cannot be started
 * is done without.
 */
#include <signal.h>
#include <stdlib.h>

#include "data_private.h"

typedef struct helper {
    data_threads *threads;
    pthread_t thread;
    unsigned number; /* from 1 on: 0 is the caller */
} helper;

struct data_threads {
    unsigned wanted, started;
    bool was_started;
    helper *helpers;
    pthread_mutex_t lock; /* for all that follows */
    pthread_cond_t work;  /* a job was opened, or it is time to quit */
    pthread_cond_t idle;  /* the last one has left */
    data_job *job;        /* NULL unless one is open */
    data_scratch *scratches;
    uint64_t job_number;
    unsigned inside;
    bool quits;
};

static void *help(void *arg)
{
    const helper *self = arg;
    data_threads *threads = self->threads;
    uint64_t last = 0;
    pthread_mutex_lock(&threads->lock);
    while (!threads->quits) {
        if (!threads->job || threads->job_number == last) {
            pthread_cond_wait(&threads->work, &threads->lock);
            continue;
        }
        last = threads->job_number;
        threads->inside++;
        data_job *job = threads->job;
        data_scratch *scratch = threads->scratches ? threads->scratches + self->number : NULL;
        pthread_mutex_unlock(&threads->lock);
        data_job_run(job, scratch);
        pthread_mutex_lock(&threads->lock);
        if (--threads->inside == 0)
            pthread_cond_signal(&threads->idle);
    }
    pthread_mutex_unlock(&threads->lock);
    return NULL;
}

kb_error *data_threads_create(unsigned count, data_threads **threads)
{
    *threads = NULL;
    data_threads *made = kb_alloc_zeroed(1, sizeof *made);
    helper *helpers = kb_alloc_zeroed(count, sizeof *helpers);
    if (!made || !helpers) {
        free(helpers);
        free(made);
        return kb_error_nomem();
    }
    made->wanted = count;
    made->helpers = helpers;
    pthread_mutex_init(&made->lock, NULL);
    pthread_cond_init(&made->work, NULL);
    pthread_cond_init(&made->idle, NULL);
    *threads = made;
    return NULL;
}

void data_threads_destroy(data_threads *threads)
{
    if (!threads)
        return;
    pthread_mutex_lock(&threads->lock);
    threads->quits = true;
    pthread_cond_broadcast(&threads->work);
    pthread_mutex_unlock(&threads->lock);
    for (unsigned i = 0; i < threads->started; i++)
        pthread_join(threads->helpers[i].thread, NULL);
    pthread_cond_destroy(&threads->idle);
    pthread_cond_destroy(&threads->work);
    pthread_mutex_destroy(&threads->lock);
    free(threads->helpers);
    free(threads);
}

unsigned data_threads_start(data_threads *threads)
{
    if (threads->was_started)
        return threads->started;
    threads->was_started = true;
    /* Signals are for the program's own threads. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (unsigned i = 0; i < threads->wanted; i++) {
        helper *one = &threads->helpers[i];
        *one = (helper){.threads = threads, .number = i + 1};
        if (pthread_create(&one->thread, NULL, help, one) != 0)
            break;
        threads->started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return threads->started;
}

void data_threads_run(data_threads *threads, data_job *job, data_scratch *scratches)
{
    pthread_mutex_lock(&threads->lock);
    threads->job = job;
    threads->job_number++;
    threads->scratches = scratches;
    pthread_cond_broadcast(&threads->work);
    pthread_mutex_unlock(&threads->lock);
    data_job_run(job, scratches);
    pthread_mutex_lock(&threads->lock);
    threads->job = NULL;
    while (threads->inside > 0)
        pthread_cond_wait(&threads->idle, &threads->lock);
    pthread_mutex_unlock(&threads->lock);
}
