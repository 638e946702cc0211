/*
 * run_once.h: one run of a bench, for commands that make runs.
 *
 *     run_program program;
 *     kb_code code = run_program_open(&program, "./mine.c", &args->collectives);
 *     if (code == KB_OK)
 *         code = run_once(&program, &(run_options){.settings = &settings, .done = on_done});
 *     run_program_close(&program);
 *
 * A program is opened once and run any number of times: each run has a context of its own.
 *
 * A run in a process of its own, so that a crash or a hang ends that alone (child/child.h): with
 * crash_enter_child() as .enter and crash_exit() as .leave of the child_options, and a function
 * that calls run_once(), whose done() writes the document.
 *
 * A process that forks must not have run anything itself: threads that compute do not survive.
 */
#ifndef KB_CLI_RUN_ONCE_H
#define KB_CLI_RUN_ONCE_H

#include <stdbool.h>
#include <stdint.h>

#include "collective_options.h"
#include "plugin.h"
#include "run.h"

/* A bench and the collectives that it may call: code that is loaded. */
typedef struct run_program {
    const kb_bench_spec *spec;
    collectives collectives;
} run_program;

/* Compiles and loads what is in files of users. Reports errors on stderr. run_program_close() must
 * be called in any case. */
KB_MUST_USE kb_code run_program_open(run_program *program, const char *bench,
                                     const collectives_args *args);
void run_program_close(run_program *program);

/* How a run ended. */
typedef struct run_outcome {
    const kb_error *error; /* NULL: good; of KB_ERR_CHECK: it ended, with a wrong result */
    kb_context *ctx;       /* NULL: it failed before there was one */
    const run_view *view;  /* for run_document(); NULL: there is no context, or no memory */
    double wall_s;         /* of the whole run, with its machine and context */
} run_outcome;

typedef struct run_options {
    const char *topology;     /* NULL: the default machine */
    const cli_list *settings; /* of the machine, and of ccl.yaml: "ccl.KEY=VALUE" */
    const cli_list *params;   /* "NAME=VALUE" */
    const char *device;       /* NULL: all */
    bool verify, timing_only, profile, check_races;
    uint64_t stack_bytes; /* of each kernel and worker; 0: the default */
    bool shows_progress;  /* on stderr */

    /* All hooks may be NULL. What they get is valid during the call. */
    void (*print)(void *self, const char *line); /* what the bench prints; NULL: dropped */
    void (*warn)(void *self, const char *line);
    void (*note)(void *self, const char *line);      /* the choice of each collective */
    void (*ccl_trace)(void *self, const char *line); /* each message of a collective */
    void (*op)(void *self, const kb_op *op);
    bool reasons; /* operations say what determined their times */
    void (*tcm)(void *self, const kb_pe *pe, kb_time now, uint64_t bytes);
    kb_error *(*ready)(void *self, kb_context *ctx); /* the bench is about to run */

    /*
     * Called once, while the context exists. What it returns is the result of run_once(), or the
     * exit status of the process if the bench made an error that no call can return to it.
     */
    kb_code (*done)(void *self, const run_outcome *outcome);
    void *self; /* of all hooks */
} run_options;

enum { RUN_DEFAULT_STACK = 1 << 20 };

/* The lists may be NULL: empty. */
KB_MUST_USE kb_code run_once(const run_program *program, const run_options *options);

#endif
