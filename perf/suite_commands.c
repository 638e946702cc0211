/*
 * suite_commands.c: what whole runs of the program cost: CPU time and memory of the process.
 *
 * With --against BUILD the commands of both builds take turns, and "x other" is how many times
 * faster this one is. A case that the other build cannot run, because it lacks the bench, has no
 * ratio. The case `uniform` runs kb-bench instead of the program, and compares its time per hop.
 */
#include "suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct command {
    const char *name;
    const char *const *words; /* behind the program; ends with NULL */
    const char *figure;       /* of kb-bench, which is run instead; NULL: CPU time */
    double cycles;            /* that are simulated; 0: not worth a figure */
    bool is_long;             /* run once, and not among the quick ones */
    bool on_request;          /* takes minutes: run if --only names it */
} command;

#define WORDS(...)                                                                                 \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }
#define RUN(bench, ...) WORDS("run", "--bench", bench, "--timing-only", "--quiet", __VA_ARGS__)
#define RING256(bytes, warmup)                                                                     \
    RUN("ccl_allreduce", "--set", "ccl.defaults.algorithm=ring_allreduce_tcm", "--set",            \
        "ccl.algorithms.ring_allreduce_tcm.world_size=256", "--param", "min_bytes=" bytes,         \
        "--param", "max_bytes=" bytes, "--param", "warmup=" warmup)

static const command commands[] = {
    /* 8 elements, ten calls; 2,048 elements, five. */
    {.name = "ring256_8", .words = RING256("16", "9")},
    {.name = "ring256_2048", .words = RING256("4096", "4")},
    {.name = "rsag1024",
     .words = RUN("ccl_allreduce", "--set", "system.sips.count=8", "--set",
                  "ccl.defaults.algorithm=ring_rsag_pes", "--param", "min_bytes=1MiB", "--param",
                  "max_bytes=1MiB", "--param", "warmup=0"),
     .is_long = true},
    {.name = "uniform",
     .words = WORDS("--quick", "--no-simpy", "--no-instructions", "--json", "/dev/stdout", "--only",
                    "fabric.uniform.pe256"),
     .figure = "fabric.uniform.pe256.ns_per_hop"},
    /* 2,000 cycles of warm-up and 10,000 that are measured. */
    {.name = "mesh8x8",
     .words = WORDS("traffic", "--topology", "mesh-reference", "--rate", "0.3", "--bytes", "128"),
     .cycles = 12000},
    {.name = "qkv8192",
     .words = RUN("qkv_gemm_multi_pe", "--param", "tokens=2048", "--param", "width=8192")},
    {.name = "qkv3072", .words = RUN("qkv_gemm_multi_pe", "--param", "width=3072")},
    {.name = "decode405b",
     .words = RUN("llama70b_decode", "--param", "model=405b", "--param", "layers=2", "--param",
                  "all_layers=126")},
    {.name = "decode70b", .words = RUN("llama70b_decode", "--param", "batch=1"), .is_long = true},
    {.name = "prefill70b",
     .words = RUN("llama70b_prefill", "--param", "layers=1"),
     .is_long = true,
     .on_request = true},
};
enum { command_count = sizeof commands / sizeof commands[0] };

/* ---- Programs ---- */

enum { PATH_BYTES = 4096 };

typedef struct build {
    char program[PATH_BYTES], kb_bench[PATH_BYTES];
} build;

static kb_error *find_own(build *own)
{
    snprintf(own->program, sizeof own->program, "%s/kernbench", KB_BUILD_DIR);
    return bench_self(own->kb_bench, sizeof own->kb_bench);
}

/* A build directory, or a program in one. */
static kb_error *find_other(const char *path, build *other)
{
    struct stat status;
    size_t length = strlen(path);

    if (length + sizeof "/kb-bench" > PATH_BYTES)
        return kb_error_new(KB_ERR_INPUT, "--against: the path is too long");
    if (stat(path, &status) == 0 && S_ISDIR(status.st_mode)) {
        snprintf(other->program, sizeof other->program, "%s/kernbench", path);
        snprintf(other->kb_bench, sizeof other->kb_bench, "%s/kb-bench", path);
    } else {
        const char *slash = strrchr(path, '/');
        snprintf(other->program, sizeof other->program, "%s", path);
        snprintf(other->kb_bench, sizeof other->kb_bench, "%.*skb-bench",
                 slash != NULL ? (int)(slash + 1 - path) : 0, path);
    }
    if (access(other->program, X_OK) != 0)
        return kb_error_new(KB_ERR_INPUT, "--against: there is no program %s", other->program);
    return NULL;
}

/* ---- One run ---- */

typedef struct cost {
    double s; /* or what the figure measures; 0: none yet */
    double mb;
} cost;

/* The figure from the JSON that kb-bench prints. */
static kb_error *read_figure(const char *output, const char *name, double *value)
{
    char quoted[80];

    snprintf(quoted, sizeof quoted, "\"%s\": ", name);
    const char *found = strstr(output, quoted);
    *value = found != NULL ? strtod(found + strlen(quoted), NULL) : 0;
    return *value > 0 ? NULL : kb_error_new(KB_ERR_CHECK, "kb-bench printed no %s", name);
}

static char output[1 << 16];

/*
 * What a program has used at most includes what the process that started it had at that time, which
 * is much after other suites. So a new kb-bench starts the program, and prints what it used.
 */
kb_error *bench_print_usage(const char *const argv[])
{
    bench_usage usage = {0};

    KB_TRY(bench_capture(argv, output, sizeof output, &usage));
    printf("%s\nused: %.6f s, %.6f MB\n", output, usage.cpu_s, usage.max_mb);
    return NULL;
}

static kb_error *read_usage(bench_usage *usage)
{
    const char *line = strstr(output, "\nused: ");
    if (line == NULL || sscanf(line, "\nused: %lf s, %lf MB", &usage->cpu_s, &usage->max_mb) != 2)
        return kb_error_new(KB_ERR_CHECK, "kb-bench did not say what a program used");
    return NULL;
}

static kb_error *run_once(const command *c, const build *from, cost *best)
{
    enum { MAX_WORDS = 32, FIRST = 3 };
    char self[PATH_BYTES];
    const char *argv[MAX_WORDS] = {self, "--usage",
                                   c->figure != NULL ? from->kb_bench : from->program};
    bench_usage usage = {0};

    KB_TRY(bench_self(self, sizeof self));
    for (size_t i = 0; i + FIRST + 1 < MAX_WORDS && c->words[i] != NULL; i++)
        argv[FIRST + i] = c->words[i];
    KB_TRY(bench_capture(argv, output, sizeof output, NULL));
    KB_TRY(read_usage(&usage));
    double value = usage.cpu_s;
    if (c->figure != NULL)
        KB_TRY(read_figure(output, c->figure, &value));
    bench_keep_least(&best->s, value);
    bench_keep_most(&best->mb, usage.max_mb);
    return NULL;
}

/* ---- All of them ---- */

static bool wants(const bench *b, const command *c)
{
    const char prefix[] = "commands.";

    if (c->on_request && strncmp(b->only, prefix, strlen(prefix)) != 0)
        return false;
    if (c->on_request && b->only[strlen(prefix)] == '\0')
        return false;
    if (c->figure != NULL && b->against == NULL)
        return false; /* a suite of its own */
    return bench_wants(b, "commands.%s", c->name) && !(b->quick && c->is_long);
}

static void report(bench *b, const command *c, cost own, cost other)
{
    const char *unit = c->figure != NULL ? "ns/hop" : "s";
    const char *metric = c->figure != NULL ? "ns" : "s";

    bench_report(b, own.s, unit, "commands.%s.%s", c->name, metric);
    if (other.s > 0) {
        bench_report(b, other.s / own.s, "", "commands.%s.vs_other", c->name);
        bench_report(b, other.s, unit, "commands.%s.other_%s", c->name, metric);
    }
    if (c->cycles > 0)
        bench_report(b, c->cycles / own.s, "cycles/s", "commands.%s.cycles_per_s", c->name);
    if (c->figure == NULL)
        bench_report(b, own.mb, "MB", "commands.%s.mb", c->name);
}

/* The other build may lack the bench, or kb-bench: that is no failure of this one. */
static kb_error *measure(bench *b, const command *c, const build *own, const build *other)
{
    cost own_cost = {0}, other_cost = {0};

    for (unsigned round = 0; round < (c->is_long ? 1 : b->rounds); round++) {
        bench_progress(b, "commands.%s", c->name);
        KB_TRY(run_once(c, own, &own_cost));
        if (other == NULL)
            continue;
        bench_progress(b, "commands.%s, the other build", c->name);
        kb_error *err = run_once(c, other, &other_cost);
        if (err != NULL) {
            bench_progress(b, "%s", "");
            printf("No ratio for commands.%s: %s\n", c->name, kb_error_message(err));
            kb_error_free(err);
            other = NULL;
        }
    }
    report(b, c, own_cost, other_cost);
    return NULL;
}

static kb_error *run(bench *b)
{
    build own = {0}, other = {0};

    KB_TRY(find_own(&own));
    if (b->against != NULL)
        KB_TRY(find_other(b->against, &other));
    for (const command *c = commands; c < commands + command_count; c++) {
        if (wants(b, c))
            KB_TRY(measure(b, c, &own, b->against != NULL ? &other : NULL));
    }
    return NULL;
}

const bench_suite bench_commands = {
    .title = "Commands: CPU time and memory of whole runs of the program",
    .run = run,
};
