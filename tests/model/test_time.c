/*
 * test_time.c: limits of the time of a step of Llama 70B on the default machine. One or
 * two layers are run; the bench works out the whole step from them, as all layers take the same
 * time.
 *
 * At batch 1 the weights alone take 2.651 ms per token. At batch 64 the matrix engines need 4.57
 * ms and the links between the SIPs 2.62 ms, of which 1.15 ms cannot be hidden by the products.
 */
#include "benches/report.h"

#define FAST_LINKS "system: { sips: { link: { bw_gbs: 900, length_mm: 200, overhead_ns: 20 } } }\n"

static double whole_step_ms(const char *machine, const char *batch)
{
    const job j = {.spec = &bench_llama70b_decode,
                   .machine = machine,
                   .params = {"layers=2", "vocab=2048", batch}};
    report r;
    run(&j, &r);
    const double *layer = find_metric(&r, "decode.layer_us");
    assert_non_null(layer);
    return *layer * 80 / 1e3;
}

static void expect_below(double found_ms, double limit_ms)
{
    if (!(found_ms <= limit_ms))
        fail_msg("80 layers take %.3f ms, more than %.3f", found_ms, limit_ms);
}

/* Embedding, head and sampling, which come once, are left out here by a small vocabulary: they take
 * 0.05 ms at batch 1 and 0.08 ms at batch 64, and are taken off the limits of 3.8, 8.5 and 7.4. */
static void layers_take_no_longer_than_their_limits(void **state)
{
    (void)state;
    expect_below(whole_step_ms(NULL, "batch=1"), 3.8 - 0.05);
    expect_below(whole_step_ms(NULL, "batch=64"), 8.5 - 0.08);
    expect_below(whole_step_ms(FAST_LINKS, "batch=64"), 7.4 - 0.08);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_take_no_longer_than_their_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
