/*
 * test_models.c: models with data against a double-precision reference, on machines and sizes that
 * do not divide, and that a step takes the same time without data.
 */
#include "benches/report.h"

/* Two SIPs of four cubes of four PEs. */
#define TWO_SIPS                                                                                   \
    "system: { sips: { count: 2 } }\n"                                                             \
    "sip: { cube_mesh: { w: 2, h: 2 } }\n"                                                         \
    "cube: { noc: { k: 2 }, pe_layout: { pe_per_router: 1 } }\n"

/* ---- Running ----------------------------------------------------------------------------- */

static kb_time expect_verified(const job *j)
{
    report r;
    run(j, &r);
    assert_int_equal(r.verdict, RT_VERIFIED);
    return r.ended;
}

/* Also that the time is the same without data. Not for several tokens: where the rows of the
 * embedding are depends on what was sampled. */
static void expect_verified_and_timed(const job *j)
{
    report without;
    kb_time ended = expect_verified(j);
    job timing = *j;
    timing.with_data = false;
    run(&timing, &without);
    assert_int_equal(ended, without.ended);
}

/* A whole small model over several steps with a growing cache. */
static void a_small_model_generates_tokens(void **state)
{
    (void)state;
    const job j = {.spec = &bench_llama70b_decode,
                   .machine = TWO_SIPS,
                   .params = {"layers=4", "vocab=1000", "hidden=96", "ffn=160", "heads=6",
                              "kv_heads=2", "head_dim=16", "batch=3", "context=37", "steps=4"},
                   .with_data = true,
                   .options = {.races = KB_RACES_FAIL}};
    expect_verified(&j);
}

static void a_small_model_answers_prompts(void **state)
{
    (void)state;
    const job j = {.spec = &bench_llama70b_prefill,
                   .machine = TWO_SIPS,
                   .params = {"layers=4", "vocab=1000", "hidden=96", "ffn=160", "heads=6",
                              "kv_heads=2", "head_dim=16", "batch=3", "prompt=29", "ragged=yes",
                              "steps=3"},
                   .with_data = true,
                   .options = {.races = KB_RACES_FAIL}};
    expect_verified(&j);
}

/* The default machine, with most of its PEs in use. */
static void a_larger_model_is_right(void **state)
{
    (void)state;
    const job j = {.spec = &bench_llama70b_decode,
                   .params = {"layers=2", "vocab=1000", "hidden=640", "ffn=1408", "heads=16",
                              "kv_heads=4", "head_dim=40", "batch=9", "context=150"},
                   .with_data = true,
                   .options = {.races = KB_RACES_OFF}};
    expect_verified_and_timed(&j);
}

static void layers_are_right_on_odd_machines(void **state)
{
    (void)state;
    static const char *const phases[] = {"phase=decode", "phase=prefill"};
    for (int m = 0; m < SMALL_MACHINES; m++)
        for (int phase = 0; phase < 2; phase++) {
            const job j = {.spec = &bench_llama70b_layer,
                           .machine = small_machines[m],
                           .params = {"hidden=60", "ffn=66", "heads=6", "kv_heads=6", "head_dim=10",
                                      "batch=2", "context=19", "prompt=11", "layers=2",
                                      phases[phase]},
                           .with_data = true,
                           .options = {.races = KB_RACES_FAIL}};
            expect_verified_and_timed(&j);
        }
}

/* Many rows are kept once in each cube, and go over ranks in chunks. */
static void many_sequences_are_right(void **state)
{
    (void)state;
    static const char *const dtypes[] = {"dtype=bf16", "dtype=f16", "dtype=f32"};
    for (int i = 0; i < 3; i++) {
        const job j = {.spec = &bench_llama70b_layer,
                       .machine = ODD_ONES,
                       .params = {"hidden=200", "ffn=150", "heads=4", "kv_heads=2", "head_dim=24",
                                  "batch=37", "context=5", dtypes[i]},
                       .with_data = true,
                       .options = {.races = KB_RACES_FAIL}};
        expect_verified_and_timed(&j);
    }
}

/* Paged caches; more ranks than kv heads. */
static void pages_and_shared_kv_heads_are_right(void **state)
{
    (void)state;
    const job j = {.spec = &bench_llama70b_prefill,
                   .machine = THREE_SIPS,
                   .params = {"layers=2", "vocab=99", "hidden=48", "ffn=51", "heads=3",
                              "kv_heads=1", "head_dim=12", "batch=2", "prompt=21", "page_tokens=8",
                              "steps=2", "tp=3"},
                   .with_data = true,
                   .options = {.races = KB_RACES_FAIL}};
    expect_verified(&j);
}

/* ---- What it says ------------------------------------------------------------------------ */

static void parts_add_up_to_the_step(void **state)
{
    (void)state;
    static const char *const parts[] = {"embed", "qkv",  "attention", "out",   "gate_up",
                                        "down",  "head", "sample",    "launch"};
    const job j = {.spec = &bench_llama70b_decode,
                   .machine = ODD_ONES,
                   .params = {"layers=3", "vocab=100", "hidden=64", "ffn=96", "heads=4",
                              "kv_heads=2", "head_dim=16", "context=40"}};
    report r;
    run(&j, &r);
    double sum = 0;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "decode.%s_us", parts[i]);
        const double *value = find_metric(&r, name);
        if (!value)
            fail_msg("there is no %s", name);
        assert_true(*value > 0);
        sum += *value;
    }
    const double *step = find_metric(&r, "decode.step_us");
    assert_non_null(step);
    assert_true(sum > *step - 1e-6 && sum < *step + 1e-6);
}

static void too_many_ranks_are_refused(void **state)
{
    (void)state;
    const job j = {.spec = &bench_llama70b_decode, .machine = ODD_ONES, .params = {"tp=4"}};
    report r;
    kb_error *err = try_run(&j, &r);
    assert_int_equal(kb_error_code(err), KB_ERR_INPUT);
    assert_non_null(strstr(kb_error_message(err), "tp is 4, but the machine has 2 SIPs: set "
                                                  "system.sips.count=4, or a smaller tp"));
    kb_error_free(err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_model_generates_tokens),
        cmocka_unit_test(a_small_model_answers_prompts),
        cmocka_unit_test(a_larger_model_is_right),
        cmocka_unit_test(layers_are_right_on_odd_machines),
        cmocka_unit_test(many_sequences_are_right),
        cmocka_unit_test(pages_and_shared_kv_heads_are_right),
        cmocka_unit_test(parts_add_up_to_the_step),
        cmocka_unit_test(too_many_ranks_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
