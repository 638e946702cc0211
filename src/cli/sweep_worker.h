/*
 * sweep_worker.h: how a point of a sweep is run, in a child process, and what identifies its run.
 *
 *     sweep_worker worker;
 *     kb_code code = sweep_worker_open(&worker, plan);   // loads the benches of the plan
 *     ... sweep_local_create(&options, (sweep_work){sweep_worker_run, &worker}, &local) ...
 *     sweep_worker_close(&worker);
 *
 * A bench in Python runs in a program of its own, which prints the document; its key has the file
 * and the parameters that were given.
 */
#ifndef KB_CLI_SWEEP_WORKER_H
#define KB_CLI_SWEEP_WORKER_H

#include "base/base.h"
#include "store/store.h"

#include <stdbool.h>

#include "run_once.h"
#include "sweep/sweep.h"

/* A bench of the plan. */
typedef struct sweep_bench {
    const char *name; /* as the plan has it */
    const char *file; /* NULL: built in */
    bool is_python;   /* the program is not loaded */
    run_program program;
} sweep_bench;

typedef struct sweep_worker {
    const sweep_plan *plan;
    KB_VEC(sweep_bench) benches;
    collectives_args collectives;
    const char *ccl; /* the file that configures collectives; NULL: the built-in one */
    kb_arena arena;
    char directory[4096]; /* "": not known */

    /* Set by the command before points run. */
    const sweep_keys *keys;
    const sweep_known *known; /* NULL: every point is run */
    bool force, retry_failed;
} sweep_worker;

/* Reports errors on stderr. sweep_worker_close() must be called in any case. */
KB_MUST_USE kb_code sweep_worker_open(sweep_worker *worker, const sweep_plan *plan);
void sweep_worker_close(sweep_worker *worker);

/* The bench of that name, which the plan has. */
const sweep_bench *sweep_worker_bench(const sweep_worker *worker, const char *name);

/* Runs a point, in a child: see sweep_work. `self` is the sweep_worker. */
int sweep_worker_run(void *self, size_t point, int out);

/* What the record says of bench and command: see sweep_drive_options. */
void sweep_worker_describe(const sweep_worker *worker, const sweep_point *point, store_run *run,
                           kb_text *texts);

#endif
