/*
 * suite.h: what the benchmarks share.
 *
 * A suite measures and reports figures by name. Names are dotted; what stands before the last dot
 * is a row of the suite's table, and what stands after it says which column: "vs_heap",
 * "vs_simpy", "instructions" and some more have one of their own (figure_tables.c), anything else
 * is the value itself. All figures go into one JSON object as they are named.
 *
 * Times are the thread's own CPU time, and a figure is the best of several rounds in which all
 * competitors take turns: other programs on the machine then disturb as little as they can, and all
 * alike.
 *
 * A new suite is a file of its own, a line in CMakeLists.txt and a line in the table of
 * bench_main.c.
 */
#ifndef KB_BENCH_BENCH_H
#define KB_BENCH_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "base/base.h"

typedef struct bench_figure {
    char name[64];
    double value;
    const char *unit;
} bench_figure;

typedef struct bench {
    /* What was asked for. */
    bool quick;
    bool simpy;
    bool instructions;
    const char *only; /* "" for everything */
    const char *json;
    const char *against;        /* another build to compare with; NULL for none */
    const char *check, *update; /* files with counts of instructions; NULL for none */

    unsigned rounds;
    bool on_terminal; /* progress is welcome */
    KB_VEC(bench_figure) stats;
    size_t printed; /* so many figures have been in a table */
    bool failed;    /* memory ran out for figures */
} bench;

/* ---- Suites ------------------------------------------------------------------------------ */

/* A piece of work whose instructions can be counted: does about `events`, says how many it were. */
typedef struct bench_work {
    const char *name;
    kb_error *(*run)(uint32_t pending, uint64_t events, uint64_t *done);
    uint32_t pending;
    uint64_t few, many; /* the difference between these is what counts */
} bench_work;

typedef struct bench_suite {
    const char *title;
    kb_error *(*run)(bench *b);
    const bench_work *works; /* optional; the last one has no name */
} bench_suite;

extern const bench_suite bench_floor;
extern const bench_suite bench_hold;
extern const bench_suite bench_lockstep;
extern const bench_suite bench_cancel;
extern const bench_suite bench_coroutine;
extern const bench_suite bench_mm1;
extern const bench_suite bench_fabric;
extern const bench_suite bench_runtime;
extern const bench_suite bench_kernels;
extern const bench_suite bench_collectives;
extern const bench_suite bench_messages;
extern const bench_suite bench_memory;
extern const bench_suite bench_commands;

/* The work of this name, or NULL. */
const bench_work *bench_find_work(const char *name);

/* ---- Figures (figure_tables.c,
 * figures_json.c)------------------------------------------------------ */

/* Whether a case of this name is to be run: --only names its beginning, or a figure of it. */
bool bench_wants(const bench *b, const char *format, ...) KB_PRINTF(2, 3);

/* `unit` stands behind the value in the table; it is not copied. */
void bench_report(bench *b, double value, const char *unit, const char *format, ...)
    KB_PRINTF(4, 5);

/* What is being done now, if there is a terminal to say it on. "" wipes it away. */
void bench_progress(const bench *b, const char *format, ...) KB_PRINTF(2, 3);

/* Prints the figures that came since the last time as a table; nothing if there are none. */
void bench_print_table(bench *b, const char *title);

/* Sees that the file could be written, before time is spent on what goes into it. */
KB_MUST_USE kb_error *bench_probe_json(const bench *b);
KB_MUST_USE kb_error *bench_write_json(const bench *b);

/* ---- The machine (host.c, measured_child.c, count.c) ----------------------------------------- */

#if defined(__OPTIMIZE__) && defined(NDEBUG)
enum { bench_is_release = true };
#else
enum { bench_is_release = false };
#endif

/* CPU time of this thread. */
double bench_clock_ns(void);

/* Keeps the better of two measurements; 0 means none yet. */
static inline void bench_keep_least(double *best, double value)
{
    if (*best == 0 || value < *best)
        *best = value;
}

static inline void bench_keep_most(double *best, double value)
{
    if (value > *best)
        *best = value;
}

/* One line: processor, compiler, how it is measured. Pins the thread to the CPU it runs on. */
void bench_print_host(const bench *b);

/* What a program used while it ran. */
typedef struct bench_usage {
    double cpu_s;
    double max_mb; /* resident at the same time */
} bench_usage;

/* Runs a program and gives what it printed, cut to `size`, and unless `usage` is NULL what it used.
 * Fails if the program does. */
KB_MUST_USE kb_error *bench_capture(const char *const argv[], char *output, size_t size,
                                    bench_usage *usage);

/* Runs a script of this folder with two arguments and gives the number it printed. */
KB_MUST_USE kb_error *bench_python(const char *script, const char *a, const char *b,
                                   double *number);

/* The path of this program. */
KB_MUST_USE kb_error *bench_self(char *path, size_t size);

/* Turns off what this machine cannot do, and says what the tables leave out. */
void bench_check_tools(bench *b);

/* Why instructions cannot be counted here, or NULL. */
const char *bench_why_no_instructions(void);

/* Instructions per event of a work. */
KB_MUST_USE kb_error *bench_count_work(const bench_work *work, double *instructions);

/* Reports the instructions per event of each work. */
KB_MUST_USE kb_error *bench_count(bench *b, const bench_work *works);

/* Counts the works that a file lists and compares with its figures, or writes new ones into it. */
KB_MUST_USE kb_error *bench_check_counts(const bench *b, const char *path);
KB_MUST_USE kb_error *bench_update_counts(const bench *b, const char *path);

/* ---- Commands (suite_commands.c) ------------------------------------------------------------- */

/* Runs a program, prints what it printed, and what it used. */
KB_MUST_USE kb_error *bench_print_usage(const char *const argv[]);

/* ---- Memory (suite_memory.c) ----------------------------------------------------------------- */

/* What a new process does for bench_memory: prints what a machine with these SIPs takes. */
KB_MUST_USE kb_error *bench_print_memory(const char *sips);

/* ---- Floor of the event set (floor.c) ---------------------------------------------------- */

/* One at a time: nanoseconds per event of a model without an event set. */
KB_MUST_USE kb_error *floor_start(uint32_t kinds);
double floor_round(uint64_t events);
void floor_end(void);

#endif
