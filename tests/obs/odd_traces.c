/* odd_traces.c: benches whose traces are hard to write: for trace.sh. */
#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

KB_KERNEL(doubles, tl_ptr x, int n)
{
    tl_store(x, tl_mul(tl_load(x, tl_shape(n), TL_F32), 2));
}

KB_KERNEL(strays, tl_ptr x)
{
    tl_store(x, tl_load(x + 0x123456789, tl_shape(4), TL_F32));
}

static kb_error *make(kb_bench *bench, const char *name, kb_access access, kb_tensor *x)
{
    const kb_tensor_spec spec = {
        .name = name, .dtype = KB_F32, .shape = KB_SHAPE(1000), .access = access};
    return kb_full(kb_bench_context(bench), &spec, 1, x);
}

/* A quote, a backslash, control characters, three bytes of UTF-8, and one that is none. */
#define ODD "\"a\\b\n\t\x01\x7f \xe2\x82\xac \xff"

static kb_error *run_odd(kb_bench *bench)
{
    kb_tensor x;
    KB_TRY(make(bench, ODD, KB_TIMED, &x));
    return kb_launch(kb_bench_context(bench), ODD, &doubles, x, 1000);
}
static const kb_bench_spec odd = {.name = "odd", .summary = "odd names", .run = run_odd};

static kb_error *run_nothing(kb_bench *bench)
{
    (void)bench;
    return NULL;
}
static const kb_bench_spec nothing = {
    .name = "nothing", .summary = "no launch", .run = run_nothing};

/* A launch that ends well, and one that does not. */
static kb_error *run_fault(kb_bench *bench)
{
    kb_tensor x;
    KB_TRY(make(bench, "x", KB_UNTIMED, &x));
    KB_TRY(kb_launch(kb_bench_context(bench), "first", &doubles, x, 1000));
    return kb_launch(kb_bench_context(bench), "second", &strays, x);
}
static const kb_bench_spec fault = {.name = "fault", .summary = "fails late", .run = run_fault};

KB_EXPORT_BENCHES(&odd, &nothing, &fault);
