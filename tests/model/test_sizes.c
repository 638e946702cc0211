/*
 * test_sizes.c: closed forms of models: parameters, cache, bounds, memory, and errors.
 */
#include "rt/tensors.h"

#include <math.h>

#include <kernbench/model.h>

/* ---- Counts ------------------------------------------------------------------------------ */

static void parameters_are_counted(void **state)
{
    (void)state;
    kb_model_spec spec = kb_model_llama70b();
    kb_model_counts counts;
    expect_ok(kb_model_count(&spec, &counts));
    assert_int_equal(counts.parameters, 70553706496);
    assert_int_equal(counts.cache_elements, 163840);
    /* 2 * 8192 of norms, 8192 * (8192 + 2 * 1024) + 8192^2 of attention, 3 * 8192 * 28672 of MLP */
    assert_int_equal(counts.layer, 16384 + 83886080 + 67108864 + 704643072);
    assert_int_equal(counts.embedding, 128256 * 8192);

    spec = kb_model_llama405b();
    expect_ok(kb_model_count(&spec, &counts));
    assert_int_equal(counts.parameters, 405853388800);
    assert_int_equal(counts.cache_elements, 258048);

    spec.layers_only = true;
    uint64_t layer = counts.layer;
    expect_ok(kb_model_count(&spec, &counts));
    assert_int_equal(counts.parameters, 126 * layer);
}

/* ---- Bounds ------------------------------------------------------------------------------ */

static void expect_us(kb_time found, double us)
{
    double got = kb_to_ns(found) / 1e3;
    if (fabs(got - us) > 1e-3)
        fail_msg("%.6f us, not %.6f", got, us);
}

/*
 * The default machine: a SIP has 128 PEs with 204.8 GB/s of HBM and 4096 products a ns each, and
 * 64 GB/s to the switch.
 *   weights   (70,553,706,496 - 1,050,673,152) * 2 bytes on 256 PEs: 2651.330 us
 *   cache     4096 tokens * 163,840 * 2 bytes on 128 PEs: 51.2 us
 *   matrix    64 rows * 69,503,033,344 products on 256 PEs; and 64 queries of 4096 keys, 2 * 8192
 *             products for each in 80 layers: 4241.9825 + 327.68 us
 *   sums      160 of 64 * 8192 * 2 bytes at 64 GB/s: 2621.44 us
 */
static void bounds_are_closed_forms(void **state)
{
    (void)state;
    kb_context *ctx = open_context(NULL, (kb_context_options){.timing_only = true});
    kb_model_spec spec = kb_model_llama70b();
    kb_model_bounds bounds;
    expect_ok(kb_model_bound(ctx, &spec, 2, (kb_model_step){1, 4095}, &bounds));
    expect_us(bounds.weights, 69503033344.0 * 2 / 256 / 204.8e3);
    expect_us(bounds.cache, 25.6);
    expect_us(bounds.communication, 160 * 0.256);
    assert_int_equal(bounds.best, bounds.weights + bounds.cache);

    expect_ok(kb_model_bound(ctx, &spec, 1, (kb_model_step){1, 4095}, &bounds));
    expect_us(bounds.cache, 51.2);
    assert_int_equal(bounds.communication, 0);

    spec.batch = 64;
    expect_ok(kb_model_bound(ctx, &spec, 2, (kb_model_step){1, 4095}, &bounds));
    expect_us(bounds.matrix,
              64 * 69503033344.0 / 256 / 4096e3 + 64.0 * 4096 * 2 * 8192 * 80 / 256 / 4096e3);
    expect_us(bounds.communication, 2621.44);

    /* A prompt of 2048 on one SIP: 272.6 ms of products in layers and attention. */
    spec.batch = 1;
    expect_ok(kb_model_bound(ctx, &spec, 1, (kb_model_step){2048, 0}, &bounds));
    assert_true(fabs(kb_to_ns(bounds.matrix) / 1e6 - 272.6) < 0.1);
    kb_context_destroy(ctx);
}

/* ---- What is refused --------------------------------------------------------------------- */

static kb_model_spec small(void)
{
    return (kb_model_spec){.name = "small",
                           .hidden = 64,
                           .ffn = 96,
                           .heads = 6,
                           .kv_heads = 3,
                           .head_dim = 16,
                           .vocab = 90,
                           .layers = 2,
                           .dtype = KB_BF16,
                           .context = 32};
}

static void expect_refused(kb_context *ctx, const kb_model_spec *spec, uint32_t ranks,
                           const char *text)
{
    kb_model_bounds bounds;
    kb_error *err = kb_model_bound(ctx, spec, ranks, (kb_model_step){1, 0}, &bounds);
    assert_int_equal(kb_error_code(err), KB_ERR_INPUT);
    if (!strstr(kb_error_message(err), text))
        fail_msg("no '%s' in: %s", text, kb_error_message(err));
    kb_error_free(err);
}

static void sizes_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    kb_context *ctx = open_context(THREE_SIPS, (kb_context_options){.timing_only = true});
    kb_model_spec spec = small();
    expect_refused(ctx, &spec, 0, "0 ranks: expected 1 to 16");
    expect_refused(ctx, &spec, 17, "17 ranks: expected 1 to 16");
    expect_refused(ctx, &spec, 4, "heads (6) is not divisible by the 4 ranks: 4 or 8 would be");
    expect_refused(ctx, &spec, 2, "kv_heads (3) is not divisible by the 2 ranks: 2 or 4 would be");
    spec.vocab = 91;
    expect_refused(ctx, &spec, 3, "vocab (91) is not divisible by the 3 ranks: 90 or 93 would be");
    spec.layers_only = true;
    kb_model_bounds bounds;
    expect_ok(kb_model_bound(ctx, &spec, 3, (kb_model_step){1, 0}, &bounds));
    spec = small();
    spec.ffn = 95;
    expect_refused(ctx, &spec, 3, "ffn (95) is not divisible by the 3 ranks: 93 or 96 would be");
    spec = small();
    spec.kv_heads = 4;
    expect_refused(ctx, &spec, 1, "heads (6) is not a multiple of kv_heads (4)");
    spec = small();
    spec.layers = 0;
    expect_refused(ctx, &spec, 1, "layers is 0: expected 1 to 8192");
    spec = small();
    spec.hidden = UINT64_MAX;
    expect_refused(ctx, &spec, 1, "hidden is 18446744073709551615: expected 1 to 4194304");
    spec = small();
    spec.dtype = KB_I8;
    expect_refused(ctx, &spec, 1, "dtype is i8: expected f16, bf16 or f32");
    spec = small();
    spec.norm_eps = (double)NAN;
    expect_refused(ctx, &spec, 1, "norm_eps is nan: expected 0 or more");
    /* Two kv heads on six ranks: three ranks share one. */
    spec = small();
    spec.kv_heads = 2;
    expect_refused(ctx, &spec, 6, "6 ranks, but the machine has 3 SIPs");
    kb_model_memory memory;
    expect_ok(kb_model_plan_memory(ctx, &spec, 6, &memory));
    kb_context_destroy(ctx);
}

/* ---- Memory ------------------------------------------------------------------------------ */

/* One SIP of two cubes of two PEs with 1 MiB (2^-10 GiB) of HBM each. */
#define LITTLE_MEMORY                                                                              \
    "system: { sips: { count: 1 } }\n"                                                             \
    "sip: { cube_mesh: { w: 2, h: 1 } }\n"                                                         \
    "cube: { noc: { k: 2 }, hbm_gib: 0.001953125, pe_layout: { pe_per_corner: 1, corners: [NW, SE] } }\n"

/*
 * Weights of `small`, of which a PE has a quarter: two layers of 64 * 192 + 96 * 64 + 3 * 64 * 96 +
 * 128 elements, two tables of 90 * 64 and a norm. Cache of a token: 2 layers * 2 * 48 elements.
 */
static void memory_is_planned_and_limits_hold(void **state)
{
    (void)state;
    kb_context *ctx = open_context(LITTLE_MEMORY, (kb_context_options){.timing_only = true});
    kb_model_spec spec = small();
    kb_model_memory memory;
    expect_ok(kb_model_plan_memory(ctx, &spec, 1, &memory));
    assert_int_equal(memory.weights,
                     2 * (2 * (64 * 192 + 96 * 64 + 3 * 64 * 96 + 128) + 2 * 90 * 64 + 64));
    assert_true(memory.fits);
    assert_int_equal(memory.slice_capacity, 1 << 20);
    assert_int_equal(memory.capacity, 4 << 20);
    assert_int_equal(memory.min_ranks, 1);

    spec.batch = memory.max_batch;
    kb_model model;
    assert_true(spec.batch > 4);
    expect_ok(kb_model_create(ctx, &spec, &model));
    expect_ok(kb_model_free(ctx, model));
    spec.batch++;
    kb_error *err = kb_model_create(ctx, &spec, &model);
    assert_int_equal(kb_error_code(err), KB_ERR_INPUT);
    char expected[64];
    snprintf(expected, sizeof expected, "Would fit: batch %u, or", (unsigned)memory.max_batch);
    if (!strstr(kb_error_message(err), expected))
        fail_msg("no '%s' in: %s", expected, kb_error_message(err));
    kb_error_free(err);
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_counted),
        cmocka_unit_test(bounds_are_closed_forms),
        cmocka_unit_test(sizes_that_do_not_fit_are_refused),
        cmocka_unit_test(memory_is_planned_and_limits_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
