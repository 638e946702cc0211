/*
 * bad_bench.c: a bench that does what acts.h has, in its constructor, while it is asked about
 * itself, on the host's side, in a kernel, in a thread, in a handler of exit() and in its
 * destructor; and benches that misuse the calls of KernBench:
 *
 *     MISUSE(NAME, STATUS, "WORDS")
 */
#include "acts.h"

#include <setjmp.h>

#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

KB_KERNEL(doubles, tl_ptr x)
{
    if (tl_program_id(0) == 0 && tl_program_id(1) == 0)
        act_at("kernel");
    tl_store(x, tl_mul(tl_load(x, tl_shape(16), TL_F32), 2));
}

static kb_error *make(kb_context *ctx, kb_tensor *x)
{
    const kb_tensor_spec spec = {
        .name = "x", .dtype = KB_F32, .shape = KB_SHAPE(16), .access = KB_UNTIMED};
    return kb_full(ctx, &spec, 1, x);
}

static bool is_timing_only(const kb_bench *bench)
{
    act_at("describe");
    return false;
}

static kb_error *run_acts(kb_bench *bench)
{
    double expected[16];
    kb_tensor x;
    for (int i = 0; i < 16; i++)
        expected[i] = 2;
    act_in_thread();
    act_at("host");
    KB_TRY(make(kb_bench_context(bench), &x));
    KB_TRY(kb_launch(kb_bench_context(bench), NULL, &doubles, x));
    kb_bench_metric(bench, "half", 0.5, "");
    kb_bench_print(bench, "printed %.1f", 1.5);
    return kb_bench_verify(bench, x, expected, 0, 0);
}

/* ---- Misuse of KernBench ---- */

#define MISUSE(name, status, words) static kb_error *run_##name(kb_bench *bench)

MISUSE(code_256, 3, "kb_error_new() was called with the invalid error code 256")
{
    return kb_error_new((kb_code)256, "mine");
}

MISUSE(code_0, 3, "kb_error_new() was called with the invalid error code 0")
{
    return kb_error_new(KB_OK, "mine");
}

MISUSE(code_minus_1, 3, "kb_error_new() was called with the invalid error code -1")
{
    return kb_error_new((kb_code)-1, "mine");
}

MISUSE(code_99, 3, "kb_error_new() was called with the invalid error code 99")
{
    return kb_error_new((kb_code)99, "mine");
}

MISUSE(destroy_context, 3, "called kb_context_destroy() for the context that it runs in")
{
    kb_context_destroy(kb_bench_context(bench));
    return NULL;
}

MISUSE(destroy_simulator, 3, "called kb_sim_destroy() for the simulator of its context")
{
    kb_sim_destroy(kb_context_sim(kb_bench_context(bench)));
    return NULL;
}

static void sleep_backwards(kb_co *co, void *arg)
{
    (void)arg;
    kb_co_sleep(co, -1);
}

MISUSE(negative_sleep, 3, "event scheduled in the past: at -1 fs, now 0 fs, by sleeper")
{
    kb_sim *sim = kb_context_sim(kb_bench_context(bench));
    kb_co *co;
    KB_TRY(kb_co_spawn(sim, &(kb_co_options){.name = "sleeper", .source_id = KB_SOURCE_ID_MAX - 1},
                       sleep_backwards, NULL, &co));
    return kb_sim_run(sim, KB_FOREVER);
}

MISUSE(foreign_tensor, 3, "invalid tensor handle: it belongs to another context")
{
    kb_context *other;
    kb_tensor own, foreign;
    kb_shape shape;
    KB_TRY(kb_context_create(NULL, &other));
    KB_TRY(make(kb_bench_context(bench), &own));
    KB_TRY(make(other, &foreign));
    kb_error *err = kb_tensor_shape(kb_bench_context(bench), foreign, &shape);
    kb_context_destroy(other);
    return err;
}

MISUSE(tensor_of_destroyed_context, 3, "invalid tensor handle: it belongs to another context")
{
    kb_context *other;
    kb_tensor own, gone;
    KB_TRY(kb_context_create(NULL, &other));
    KB_TRY(make(other, &gone));
    kb_context_destroy(other);
    KB_TRY(make(kb_bench_context(bench), &own));
    return kb_launch(kb_bench_context(bench), NULL, &doubles, gone);
}

MISUSE(tensor_freed_twice, 3, "invalid or freed tensor handle")
{
    kb_tensor x;
    KB_TRY(make(kb_bench_context(bench), &x));
    KB_TRY(kb_tensor_free(kb_bench_context(bench), x));
    return kb_tensor_free(kb_bench_context(bench), x);
}

MISUSE(error_freed_twice, 3, "crashed")
{
    kb_error *err = kb_error_new(KB_ERR_CHECK, "mine");
    kb_error_free(err);
    kb_error_free(err);
    return NULL;
}

MISUSE(error_from_nowhere, 3, "crashed")
{
    return (kb_error *)8;
}

MISUSE(no_context, 3, "crashed")
{
    kb_tensor x;
    return make(NULL, &x);
}

static jmp_buf back;

KB_KERNEL(jumps, tl_ptr x)
{
    (void)x;
    longjmp(back, 1);
}

MISUSE(longjmp, 3, "left a running simulation")
{
    kb_tensor x;
    KB_TRY(make(kb_bench_context(bench), &x));
    if (setjmp(back) == 0)
        return kb_launch(kb_bench_context(bench), NULL, &jumps, x);
    return NULL;
}

MISUSE(longjmp_and_on, 3, "")
{
    kb_tensor x;
    KB_TRY(make(kb_bench_context(bench), &x));
    if (setjmp(back) == 0)
        return kb_launch(kb_bench_context(bench), NULL, &jumps, x);
    return kb_launch(kb_bench_context(bench), NULL, &doubles, x);
}

/* Back to a frame that is gone. */
static int __attribute__((noinline)) set_and_leave(void)
{
    return setjmp(back);
}

MISUSE(longjmp_nowhere, 3, "")
{
    if (set_and_leave() == 0)
        longjmp(back, 1);
    abort();
}

static const kb_bench_spec acts_bench = {.name = "acts",
                                         .summary = "does what the environment says",
                                         .is_timing_only = is_timing_only,
                                         .run = run_acts};
#define SPEC(n) static const kb_bench_spec spec_##n = {.name = #n, .summary = "", .run = run_##n}
SPEC(code_256);
SPEC(code_0);
SPEC(code_minus_1);
SPEC(code_99);
SPEC(destroy_context);
SPEC(destroy_simulator);
SPEC(negative_sleep);
SPEC(foreign_tensor);
SPEC(tensor_of_destroyed_context);
SPEC(tensor_freed_twice);
SPEC(error_freed_twice);
SPEC(error_from_nowhere);
SPEC(no_context);
SPEC(longjmp);
SPEC(longjmp_and_on);
SPEC(longjmp_nowhere);

KB_EXPORT_BENCHES(&acts_bench, &spec_code_256, &spec_code_0, &spec_code_minus_1, &spec_code_99,
                  &spec_destroy_context, &spec_destroy_simulator, &spec_negative_sleep,
                  &spec_foreign_tensor, &spec_tensor_of_destroyed_context, &spec_tensor_freed_twice,
                  &spec_error_freed_twice, &spec_error_from_nowhere, &spec_no_context,
                  &spec_longjmp, &spec_longjmp_and_on, &spec_longjmp_nowhere);
