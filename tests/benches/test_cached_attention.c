/*
 * test_cached_attention.c: the benches of decode and prefill attention, on machines of several
 * shapes: verified with data, the same time without; for every failing allocation they run or
 * report that there is no memory.
 */
#include "rt/tensors.h"

#include "benches/benches.h"
#include "rt/rt.h"
#include "support/failing_alloc.h"

static const char *const machines[] = {
    "sip: { cube_mesh: { w: 1, h: 1 } }\n"
    "cube: { noc: { w: 3, h: 1 }, pe_layout: { pe_per_router: 1 } }\n",
    "sip: { cube_mesh: { w: 3, h: 2 } }\n"
    "cube: { pe_layout: { pe_per_corner: 1, corners: [NW, SE] } }\n",
};

static const char *const of_decode[][6] = {
    {"batch=3", "context=70", "heads=8", "kv_heads=2", "head_dim=16", "ragged=yes"},
    {"batch=1", "context=300", "heads=5", "kv_heads=1", "head_dim=33", "dtype=f32"},
    {"context=90", "layout=shuffled", "page_tokens=7", "ragged=yes", "window=20", "dtype=f16"},
    {"context=120", "layout=paged", "kv_heads=16", "split=1", "seed=9", "head_dim=8"},
};

static const char *const of_prefill[][6] = {
    {"batch=3", "prompt=30", "heads=8", "kv_heads=2", "head_dim=16", "ragged=yes"},
    {"batch=1", "prompt=90", "heads=5", "kv_heads=1", "head_dim=33", "dtype=f32"},
    {"cached=90", "page_tokens=7", "ragged=yes", "window=20", "dtype=f16", "head_dim=8"},
    {"cached=20", "kv_heads=16", "split=1", "seed=9", "head_dim=8", "batch=5"},
};

/* Returns how long it took. */
static kb_time run_bench(const kb_bench_spec *spec, const char *machine,
                         const char *const *settings, bool timing_only)
{
    kb_context *ctx = open_context(
        machine, (kb_context_options){.races = KB_RACES_FAIL, .timing_only = timing_only});
    const rt_bench_options options = {.settings = settings, .setting_count = 6};
    kb_bench *bench;
    expect_ok(rt_bench_create(spec, &options, &bench));
    expect_ok(rt_bench_run(bench, ctx));
    assert_int_equal(rt_bench_verdict(bench), timing_only ? RT_NOT_VERIFIED : RT_VERIFIED);
    rt_bench_destroy(bench);
    kb_time time = kb_context_now(ctx);
    kb_context_destroy(ctx);
    return time;
}

static void verify_all(const kb_bench_spec *spec, const char *const (*settings)[6], size_t count)
{
    for (size_t m = 0; m < sizeof machines / sizeof machines[0]; m++)
        for (size_t i = 0; i < count; i++)
            assert_int_equal(run_bench(spec, machines[m], settings[i], false),
                             run_bench(spec, machines[m], settings[i], true));
}

static void results_are_verified(void **state)
{
    (void)state;
    verify_all(&bench_gqa_decode, of_decode, sizeof of_decode / sizeof of_decode[0]);
    verify_all(&bench_gqa_prefill, of_prefill, sizeof of_prefill / sizeof of_prefill[0]);
}

/* ---- Memory ---- */

static kb_context *ctx;

static void run_small(const kb_bench_spec *spec, const char *const *settings)
{
    const rt_bench_options options = {.settings = settings, .setting_count = 6};
    kb_bench *bench;
    kb_error *err = rt_bench_create(spec, &options, &bench);
    if (!err)
        err = rt_bench_run(bench, ctx);
    if (err)
        assert_int_equal(kb_error_code(err), KB_ERR_HOST);
    else
        assert_int_equal(rt_bench_verdict(bench), RT_VERIFIED);
    kb_error_free(err);
    rt_bench_destroy(bench);
}

static void body(void)
{
    static const char *const decode[] = {"batch=2",    "context=9",  "heads=2",
                                         "kv_heads=1", "head_dim=3", "layout=shuffled"};
    static const char *const prefill[] = {"batch=2",    "prompt=5",   "heads=2",
                                          "kv_heads=1", "head_dim=4", "page_tokens=3"};
    run_small(&bench_gqa_decode, decode);
    run_small(&bench_gqa_prefill, prefill);
}

static void in_a_context(void)
{
    kb_context_options options = {.threads = 1};
    temporary file = file_of(machines[0]);
    options.topology = file.path;
    kb_error *err = kb_context_create(&options, &ctx);
    remove_file(&file);
    if (err)
        assert_int_equal(kb_error_code(err), KB_ERR_HOST);
    else
        body();
    kb_error_free(err);
    kb_context_destroy(ctx);
}

static void whichever_allocation_fails(void **state)
{
    (void)state;
    failing_alloc_try_all(in_a_context);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_verified),
        cmocka_unit_test(whichever_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
