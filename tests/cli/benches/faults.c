/* faults.c: benches that go wrong, each in its way: for run.sh. */
#include <stdio.h>
#include <stdlib.h>

#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

static kb_error *make(kb_bench *bench, kb_tensor *x)
{
    const kb_tensor_spec spec = {
        .name = "x", .dtype = KB_F32, .shape = KB_SHAPE(16), .access = KB_UNTIMED};
    return kb_full(kb_bench_context(bench), &spec, 1, x);
}

/* ---- Wrong result ---- */

KB_KERNEL(doubles, tl_ptr x)
{
    tl_store(x, tl_mul(tl_load(x, tl_shape(16), TL_F32), 2));
}

static kb_error *run_wrong(kb_bench *bench)
{
    double expected[16];
    kb_tensor x;
    for (int i = 0; i < 16; i++)
        expected[i] = i == 5 ? 3 : 2;
    KB_TRY(make(bench, &x));
    KB_TRY(kb_launch(kb_bench_context(bench), NULL, &doubles, x));
    return kb_bench_verify(bench, x, expected, 0, 0);
}
static const kb_bench_spec wrong = {.name = "wrong", .summary = "a result is", .run = run_wrong};

static kb_error *run_unchecked(kb_bench *bench)
{
    kb_tensor x;
    KB_TRY(make(bench, &x));
    return kb_launch(kb_bench_context(bench), NULL, &doubles, x);
}
static const kb_bench_spec unchecked = {
    .name = "unchecked", .summary = "compares nothing", .run = run_unchecked};

/* ---- Faults ---- */

KB_KERNEL(strays, tl_ptr x)
{
    tl_store(x, tl_load(x + 0x123456789, tl_shape(4), TL_F32));
}

static kb_error *run_stray(kb_bench *bench)
{
    kb_tensor x;
    KB_TRY(make(bench, &x));
    return kb_launch(kb_bench_context(bench), NULL, &strays, x);
}
static const kb_bench_spec stray = {.name = "stray", .summary = "reads nowhere", .run = run_stray};

/* Every PE writes all of the tensor. */
KB_KERNEL(clashes, tl_ptr x)
{
    tl_store(x, tl_full(tl_shape(16), TL_F32, 1));
}

static kb_error *run_race(kb_bench *bench)
{
    static const kb_policy policy = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    const kb_tensor_spec spec = {.name = "x",
                                 .dtype = KB_F32,
                                 .shape = KB_SHAPE(16),
                                 .policy = &policy,
                                 .access = KB_UNTIMED};
    kb_tensor x;
    KB_TRY(kb_empty(kb_bench_context(bench), &spec, &x));
    return kb_launch(kb_bench_context(bench), NULL, &clashes, x);
}
static const kb_bench_spec race = {.name = "race", .summary = "all write it", .run = run_race};

static int deeper(int n)
{
    volatile char frame[1000];
    frame[0] = (char)n;
    return n > 0 ? deeper(n - 1) + frame[0] : 0;
}

KB_KERNEL(overflows, tl_ptr x, int depth)
{
    tl_store(x, tl_full(tl_shape(1), TL_F32, deeper(depth)));
}

static kb_error *run_overflow(kb_bench *bench)
{
    kb_tensor x;
    KB_TRY(make(bench, &x));
    return kb_launch(kb_bench_context(bench), "too deep", &overflows, x, 100000);
}
static const kb_bench_spec overflow = {
    .name = "overflow", .summary = "uses up its stack", .run = run_overflow};

/* Larger than its stack and the guard: its middle is somebody else's memory. */
KB_KERNEL(has_large_variable, tl_ptr x, int n)
{
    volatile char large[(1 << 20) + 300000];
    large[0] = (char)n;
    tl_store(x, tl_full(tl_shape(1), TL_F32, large[0]));
}

static kb_error *run_large(kb_bench *bench)
{
    kb_tensor x;
    KB_TRY(make(bench, &x));
    return kb_launch(kb_bench_context(bench), NULL, &has_large_variable, x, 3);
}
static const kb_bench_spec large = {
    .name = "large", .summary = "a variable is larger than a stack", .run = run_large};

/* ---- Mistakes in C ---- */

static kb_error *run_crash(kb_bench *bench)
{
    (void)bench;
    volatile int *volatile nothing = NULL;
    *nothing = 1;
    return NULL;
}
static const kb_bench_spec crash = {
    .name = "crash", .summary = "the host uses a null pointer", .run = run_crash};

KB_KERNEL(divides, tl_ptr x, int by)
{
    tl_store(x, tl_full(tl_shape(1), TL_F32, 5 / by));
}

static kb_error *run_divide(kb_bench *bench)
{
    kb_tensor x;
    KB_TRY(make(bench, &x));
    return kb_launch(kb_bench_context(bench), NULL, &divides, x, 0);
}
static const kb_bench_spec divide = {
    .name = "divide", .summary = "a kernel divides by zero", .run = run_divide};

static kb_error *run_leave(kb_bench *bench)
{
    kb_bench_print(bench, "leaving");
    exit(0);
}
static const kb_bench_spec leave = {.name = "leave", .summary = "calls exit()", .run = run_leave};

static const kb_param counts[] = {{.name = "count", .value = 1, .min = 0, .max = 9, .help = ""}};

static kb_error *run_ask(kb_bench *bench)
{
    kb_bench_metric(bench, "never", (double)kb_bench_param(bench, "cuont"), "");
    return NULL;
}
static const kb_bench_spec ask = {.name = "ask",
                                  .summary = "asks for a parameter that it does not have",
                                  .params = counts,
                                  .param_count = 1,
                                  .run = run_ask};

static kb_error *run_expect_nothing(kb_bench *bench)
{
    kb_tensor x;
    KB_TRY(make(bench, &x));
    return kb_bench_verify(bench, x, NULL, 0, 0);
}
static const kb_bench_spec expect_nothing = {
    .name = "expect_nothing", .summary = "compares with NULL", .run = run_expect_nothing};

/* ---- Endless ---- */

KB_KERNEL(spins, tl_ptr x)
{
    for (bool told = false;; told = true) {
        tl_store(x, tl_full(tl_shape(1), TL_F32, (double)tl_program_id(0)));
        if (!told)
            fputs("spinning\n", stderr); /* not buffered: run.sh waits for it */
    }
}

static kb_error *run_endless(kb_bench *bench)
{
    kb_tensor x;
    KB_TRY(make(bench, &x));
    return kb_launch(kb_bench_context(bench), NULL, &spins, x);
}
static const kb_bench_spec endless = {
    .name = "endless", .summary = "a kernel never ends", .run = run_endless};

/* ---- Deadlock ---- */

static kb_error *wait_for_nothing(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)rank;
    kb_sem_acquire(kb_context_worker(ctx), arg, 1);
    return NULL;
}

static kb_error *run_deadlock(kb_bench *bench)
{
    kb_sem nothing;
    kb_sem_init(&nothing, "what never comes", 0);
    return kb_spawn(kb_bench_context(bench), wait_for_nothing, &nothing, 2);
}
static const kb_bench_spec deadlock = {
    .name = "deadlock", .summary = "waits for what never comes", .run = run_deadlock};

KB_EXPORT_BENCHES(&wrong, &unchecked, &stray, &race, &overflow, &large, &crash, &divide, &leave,
                  &ask, &expect_nothing, &endless, &deadlock);
