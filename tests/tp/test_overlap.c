/*
 * test_overlap.c: a row parallel layer of a 70B model on both SIPs of the default machine, with its
 * sum over ranks after the product, and in chunks that overlap with the product.
 *
 * The sum has 64 * 8192 * 2 bytes, which take 16.4 us on a SIP's link of 64 GB/s, and the product
 * alone takes 16.3 us. The exposed time is that of the layer minus that of the product.
 */
#include "tp_ranks.h"

typedef struct layer_times {
    uint32_t overlap;
    kb_tp_times times; /* of rank 0 */
} layer_times;

static kb_error *time_row(kb_context *ctx, uint32_t rank, void *arg)
{
    layer_times *is = arg;
    static const kb_policy columns = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    kb_tp_layer layer;
    kb_tensor out = {0};
    KB_TRY(join_ranks(ctx, rank, 2));
    kb_tensor x = make_tensor(ctx, "x", KB_BF16, KB_SHAPE(64, 14336), &columns, NULL);
    const kb_tp_linear_spec spec = {.name = "down",
                                    .in_features = 28672,
                                    .out_features = 8192,
                                    .dtype = KB_BF16,
                                    .overlap = is->overlap,
                                    .access = KB_UNTIMED};
    KB_TRY(kb_row_parallel_linear_create(ctx, &spec, &layer));
    for (int pass = 0; pass < 2; pass++) { /* the first one installs queues of collectives */
        KB_TRY(kb_distributed_barrier(ctx, NULL));
        KB_TRY(kb_row_parallel_linear_forward(ctx, layer, x, &out));
    }
    return rank == 0 ? kb_tp_layer_times(ctx, layer, &is->times) : NULL;
}

static kb_tp_times time_with(uint32_t overlap)
{
    layer_times is = {.overlap = overlap};
    kb_context *ctx;
    const kb_context_options options = {.timing_only = true};
    expect_ok(kb_context_create(&options, &ctx));
    expect_ok(kb_spawn(ctx, time_row, &is, 2));
    kb_context_destroy(ctx);
    return is.times;
}

static void overlap_hides_communication(void **unused)
{
    (void)unused;
    kb_tp_times plain = time_with(0), chunked = time_with(4);
    kb_time product = plain.kernel;
    assert_true(product > 14336 * KB_NS && product < 17000 * KB_NS);
    assert_true(plain.total - product > 16384 * KB_NS); /* all of the sum is exposed */
    assert_true(chunked.total > product && plain.exposed > chunked.exposed);
    assert_true(10 * (chunked.total - product) <= 6 * (plain.total - product));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(overlap_hides_communication)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
