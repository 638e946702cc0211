/*
 * bench.h: what the benchmarks share.
 *
 * A suite measures and reports figures by name. Names are dotted; what stands before the last dot
 * is a row of the suite's table, and what stands after it says which column: "vs_heap",
 * "vs_simpy" and "instructions" have one of their own, anything else is the value itself. All
 * figures go into one JSON object as they are named.
 *
 * Times are the thread's own CPU time, and a figure is the best of several rounds in which all
 * competitors take turns: other programs on the machine then disturb as little as they can, and all
 * alike.
 *
 * A new suite is a file of its own, a line in CMakeLists.txt and a line in the table of main.c.
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

    unsigned rounds;
    bool on_terminal; /* progress is welcome */
    KB_VEC(bench_figure) figures;
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

/* ---- Figures (report.c, json.c) ---------------------------------------------------------- */

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

/* ---- The machine (host.c, child.c, count.c) ---------------------------------------------- */

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

/* Runs a program and gives what it printed, cut to `size`. Fails if the program does. */
KB_MUST_USE kb_error *bench_capture(const char *const argv[], char *output, size_t size);

/* Runs a script of this folder and gives the number it printed. */
KB_MUST_USE kb_error *bench_python(const char *script, uint64_t a, uint64_t b, double *number);

/* Turns off what this machine cannot do, and says what the tables leave out. */
void bench_check_tools(bench *b);

/* Reports the instructions per event of each work. */
KB_MUST_USE kb_error *bench_count(bench *b, const bench_work *works);

#endif
