/*
 * bench.h: running a bench: its parameters, what it prints, what it reports.
 */
#ifndef KB_RT_BENCH_H
#define KB_RT_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

typedef struct rt_metric {
    char *name, *unit;
    double value;
    bool only_json; /* the bench has printed it already */
} rt_metric;

typedef struct rt_bench_options {
    const char *const *settings; /* "m=4096", of its parameters */
    size_t setting_count;
    bool verify;
    void (*print)(void *self, const char *line); /* its lines; NULL: they are dropped */
    /* A mistake in the bench that no call can return: does not return; NULL: the process aborts. */
    void (*give_up)(void *self, kb_error *err);
    void *self;
} rt_bench_options;

/* Checks and reads the parameters: an unknown one is an error with the nearest. */
KB_MUST_USE kb_error *rt_bench_create(const kb_bench_spec *spec, const rt_bench_options *options,
                                      kb_bench **bench);
void rt_bench_destroy(kb_bench *bench);

/* Whether it says that it is too large for data. */
bool rt_bench_is_timing_only(const kb_bench *bench);

/* Runs it in the context, which stays the caller's. */
KB_MUST_USE kb_error *rt_bench_run(kb_bench *bench, kb_context *ctx);

typedef enum rt_verdict { RT_NOT_VERIFIED, RT_VERIFIED, RT_WRONG } rt_verdict;

rt_verdict rt_bench_verdict(const kb_bench *bench);
const rt_metric *rt_bench_metrics(const kb_bench *bench, size_t *count);

#endif
