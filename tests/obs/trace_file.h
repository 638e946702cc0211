/*
 * trace_file.h: reads a trace and checks that it is one: what the format asks for, and what
 * src/obs/trace.c promises.
 */
#ifndef TESTS_OBS_TRACE_FILE_H
#define TESTS_OBS_TRACE_FILE_H

#include <stddef.h>
#include <stdint.h>

/* Slices of one category, which is a unit or "kernel". */
typedef struct trace_category {
    char name[32];
    uint64_t slices;
    int64_t time_fs; /* sum */
} trace_category;

/* A counter, at its place. */
typedef struct trace_counter {
    char name[96], unit[16];
    int64_t pid;
    uint64_t events;
    double integral; /* of the value over time, in units times nanoseconds: bytes, if in GB/s */
    double max, last;
    int64_t last_fs; /* time of the last event */
} trace_counter;

enum { TRACE_CATEGORIES = 16, TRACE_COUNTERS = 2048 };

typedef struct trace_facts {
    trace_category categories[TRACE_CATEGORIES];
    size_t category_count;
    uint64_t slices, threads, arrows;
    trace_counter *counters; /* to be freed */
    size_t counter_count;
    char problem[200]; /* "" if there is none */
} trace_facts;

/* Reads the file and looks for problems; the first is told. */
trace_facts trace_read(const char *path);

/* NULL if there is none such. */
const trace_category *trace_find(const trace_facts *facts, const char *name);

/* Of all counters of this name, wherever they are, the sum of the integrals. */
double trace_sum_counters(const trace_facts *facts, const char *name);

#endif
