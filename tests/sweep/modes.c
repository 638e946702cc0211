/* modes.c: a bench that ends in every way: for sweep.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

enum { GOOD, WRONG, CRASH, EXIT, HANG, MEMORY, DEADLOCK, FAULT, LATER };
static const char *const modes[] = {"good",   "wrong",    "crash", "exit",  "hang",
                                    "memory", "deadlock", "fault", "later", NULL};

static int runs_of_this_process;

KB_KERNEL(doubles, tl_ptr x, int stray)
{
    tl_store(x, tl_mul(tl_load(x + (stray ? 0x123456789 : 0), tl_shape(16), TL_F32), 2));
}

static kb_error *wait_for_nothing(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)rank;
    kb_sem_acquire(kb_context_worker(ctx), arg, 1);
    return NULL;
}

static void take_memory(void)
{
    enum { BLOCK = 1 << 20, BLOCKS = 512 };
    for (int i = 0; i < BLOCKS; i++)
        memset(malloc(BLOCK), i + 1, BLOCK);
}

static void crash(void)
{
    volatile int *volatile nothing = NULL;
    *nothing = 1;
}

static kb_error *go_wrong(kb_bench *bench, int64_t mode)
{
    kb_sem nothing;
    const char *file = getenv("MODES_FILE");
    switch (mode) {
    case CRASH:
        crash();
        return NULL;
    case EXIT:
        exit(0);
    case HANG:
        while (sleep(1000) > 0)
            continue;
        return NULL;
    case MEMORY:
        take_memory();
        return NULL;
    case DEADLOCK:
        kb_sem_init(&nothing, "what never comes", 0);
        return kb_spawn(kb_bench_context(bench), wait_for_nothing, &nothing, 2);
    case LATER: /* fails until the file exists */
        if (!file || access(file, F_OK) != 0)
            return kb_error_new(KB_ERR_INPUT, "not yet");
        return NULL;
    default:
        return NULL;
    }
}

static kb_error *run(kb_bench *bench)
{
    const kb_tensor_spec spec = {
        .name = "x", .dtype = KB_F32, .shape = KB_SHAPE(16), .access = KB_UNTIMED};
    int64_t mode = kb_bench_param(bench, "mode");
    double expected[16];
    kb_tensor x;
    usleep((useconds_t)kb_bench_param(bench, "wait_us"));
    KB_TRY(go_wrong(bench, mode));
    KB_TRY(kb_full(kb_bench_context(bench), &spec, 1, &x));
    KB_TRY(kb_launch(kb_bench_context(bench), NULL, &doubles, x, mode == FAULT));
    kb_bench_metric(bench, "runs", ++runs_of_this_process, "");
    kb_bench_metric(bench, "square",
                    (double)(kb_bench_param(bench, "n") * kb_bench_param(bench, "n")), "");
    for (int i = 0; i < 16; i++)
        expected[i] = mode == WRONG && i == 5 ? 3 : 2;
    return kb_bench_verify(bench, x, expected, 0, 0);
}

static const kb_param params[] = {
    {.name = "mode", .value = GOOD, .names = modes, .help = "how it ends"},
    {.name = "n", .value = 1, .min = 0, .max = 1000000, .help = "a number"},
    {.name = "wait_us", .value = 0, .min = 0, .max = 60000000, .help = "how long it waits"},
};
static const kb_bench_spec spec = {.name = "modes",
                                   .summary = "ends in every way",
                                   .params = params,
                                   .param_count = sizeof params / sizeof params[0],
                                   .run = run};
KB_EXPORT_BENCHES(&spec);
