/*
 * report.h: runs a shipped bench on a machine and keeps its output: lines, verdict, metrics.
 */
#ifndef TESTS_BENCHES_REPORT_H
#define TESTS_BENCHES_REPORT_H

#include "rt/tensors.h"

#include "benches/benches.h"
#include "rt/bench.h"

typedef struct report {
    char last_line[256];
    char text[16384]; /* all lines, as far as there is room */
    size_t lines;
    rt_verdict verdict;
    size_t count;
    struct {
        char name[64];
        double value;
    } metrics[128];
    kb_time ended;
} report;

static inline void keep_line(void *self, const char *line)
{
    report *r = self;
    size_t used = strlen(r->text);
    snprintf(r->text + used, sizeof r->text - used, "%s\n", line);
    snprintf(r->last_line, sizeof r->last_line, "%s", line);
    r->lines++;
}

/* The figures of a run; NULL: not wanted. They are those of the log and the fabric. */
typedef void look_fn(kb_context *ctx, const report *r);

typedef struct job {
    const kb_bench_spec *spec;
    const char *machine; /* NULL: the default one */
    const char *algorithm;
    const char *params[16]; /* up to NULL */
    bool with_data;
    look_fn *look;
    kb_context_options options; /* but for settings, timing_only and threads */
} job;

static inline kb_error *run_in(const job *j, kb_context *ctx, kb_bench *bench, report *r)
{
    KB_TRY(rt_bench_run(bench, ctx));
    r->verdict = rt_bench_verdict(bench);
    r->ended = kb_context_now(ctx);
    const rt_metric *metrics = rt_bench_metrics(bench, &r->count);
    assert_true(r->count <= sizeof r->metrics / sizeof r->metrics[0]);
    for (size_t i = 0; i < r->count; i++) {
        snprintf(r->metrics[i].name, sizeof r->metrics[i].name, "%s", metrics[i].name);
        r->metrics[i].value = metrics[i].value;
    }
    if (j->look)
        j->look(ctx, r);
    return NULL;
}

static inline kb_error *try_run(const job *j, report *r)
{
    char setting[128];
    snprintf(setting, sizeof setting, "ccl.defaults.algorithm=%s",
             j->algorithm ? j->algorithm : "");
    kb_context_options options = j->options;
    options.settings = (const char *[]){setting};
    options.setting_count = j->algorithm ? 1 : 0;
    options.timing_only = !j->with_data;
    options.threads = 1;
    *r = (report){.lines = 0};
    rt_bench_options bench_options = {
        .settings = j->params, .verify = j->with_data, .print = keep_line, .self = r};
    while (j->params[bench_options.setting_count])
        bench_options.setting_count++;
    kb_context *ctx = open_context(j->machine, options);
    kb_bench *bench;
    expect_ok(rt_bench_create(j->spec, &bench_options, &bench));
    kb_error *err = run_in(j, ctx, bench, r);
    rt_bench_destroy(bench);
    kb_context_destroy(ctx);
    return err;
}

static inline void run(const job *j, report *r)
{
    expect_ok(try_run(j, r));
}

static inline const double *find_metric(const report *r, const char *name)
{
    for (size_t i = 0; i < r->count; i++)
        if (strcmp(r->metrics[i].name, name) == 0)
            return &r->metrics[i].value;
    return NULL;
}

#endif
