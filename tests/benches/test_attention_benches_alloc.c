/*
 * test_attention_benches_alloc.c: for every failing allocation, attention over rings runs or
 * reports that there is no memory, without leaks.
 */
#include "rt/tensors.h"

#include "benches/benches.h"
#include "rt/rt.h"
#include "support/failing_alloc.h"

#define MACHINE                                                                                    \
    "sip: { cube_mesh: { w: 2, h: 1 } }\n"                                                         \
    "cube: { pe_layout: { pe_per_corner: 1, corners: [NW, SE] } }\n"

static kb_context *ctx;

static void body(void)
{
    static const char *const settings[] = {"context=5", "prompt=2", "heads=2", "kv_heads=1",
                                           "head_dim=3"};
    const rt_bench_options options = {.settings = settings, .setting_count = 5, .verify = true};
    kb_bench *bench;
    kb_error *err = rt_bench_create(&bench_gqa_llama70b, &options, &bench);
    if (!err)
        err = rt_bench_run(bench, ctx);
    if (err)
        assert_int_equal(kb_error_code(err), KB_ERR_HOST);
    else
        assert_int_equal(rt_bench_verdict(bench), RT_VERIFIED);
    kb_error_free(err);
    rt_bench_destroy(bench);
}

static void in_a_context(void)
{
    kb_context_options options = {.threads = 1};
    temporary file = file_of(MACHINE);
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
        cmocka_unit_test(whichever_allocation_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
