/*
 * child.h: functions that run in child processes, several at a time, under limits.
 *
 *     child_pool *pool;
 *     KB_TRY(child_pool_create(&(child_options){.slots = 4, .seconds = 60}, &pool));
 *     while (there is work || child_pool_running(pool) > 0) {
 *         while (there is work && child_pool_running(pool) < 4)
 *             KB_TRY(child_start(pool, function, self, number));
 *         child_result result;
 *         if (child_wait(pool, -1, -1, &result)) {
 *             use(&result);
 *             child_result_fini(&result);
 *         }
 *     }
 *     child_pool_destroy(pool);
 *
 * A child begins as a copy of this process, so it has all that is loaded here, and nothing that it
 * does changes this process: it may crash, hang or take all memory. It ends with this process,
 * whatever ends that. It has its own process group, so the keyboard interrupts this process alone.
 *
 * The calling process must have one thread when it starts a child, as the child has no other.
 */
#ifndef KB_CHILD_CHILD_H
#define KB_CHILD_CHILD_H

#include "base/base.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "interrupts.h"

typedef struct child_pool child_pool;

typedef struct child_options {
    unsigned slots;            /* children at a time, at least 1 */
    double seconds;            /* of wall time, then a child is killed; 0: no limit */
    uint64_t memory_bytes;     /* of resident memory, then it is killed; 0: no limit */
    void (*enter)(void);       /* called first in the child; NULL: nothing */
    void (*leave)(int status); /* ends the child without handlers of exit(); NULL: _exit() */
} child_options;

KB_MUST_USE kb_error *child_pool_create(const child_options *options, child_pool **out);

/* Kills the children that still run. NULL does nothing. */
void child_pool_destroy(child_pool *pool);

/* Kills them; none of them is returned by child_wait() any more. */
void child_pool_kill(child_pool *pool);

/* Another limit of wall time, for children that start from now on. */
void child_pool_limit(child_pool *pool, double seconds);

/* Children that have not been returned by child_wait(). */
unsigned child_pool_running(const child_pool *pool);

/*
 * Runs the function in a child, which ends with the status that it returns. What it writes to the
 * descriptor `out` is the result; what it writes to stderr is kept as its messages; stdout is
 * discarded and stdin empty. There must be a free slot. `tag` is for the caller.
 */
KB_MUST_USE kb_error *child_start(child_pool *pool, int (*function)(void *self, int out),
                                  void *self, uint64_t tag);

typedef enum child_end {
    CHILD_EXITED,   /* with `status` */
    CHILD_SIGNALED, /* by the signal `status` */
    CHILD_TIMEOUT,
    CHILD_NO_MEMORY /* used more than memory_bytes, even if it ended by itself */
} child_end;

typedef struct child_result {
    uint64_t tag;
    child_end end;
    int status;
    kb_text bytes;    /* written to `out`; .failed if there was no memory for them */
    kb_text messages; /* of stderr: the first CHILD_MAX_MESSAGES bytes */
    double wall_s, cpu_s;
    uint64_t peak_bytes; /* resident memory, with what it shares with this process */
} child_result;

enum { CHILD_MAX_MESSAGES = 64 << 10 };

/*
 * Waits for a child to end, `seconds` at most (negative: without limit), or until the descriptor
 * `wake` can be read (negative: none). False if none has ended. Otherwise the result is to be freed
 * with child_result_fini().
 */
KB_MUST_USE bool child_wait(child_pool *pool, double seconds, int wake, child_result *result);
void child_result_fini(child_result *result);

/* Cores that this process may use, at least 1. */
unsigned child_count_cores(void);

#endif
