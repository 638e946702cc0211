/*
 * test_decode_time.c: the time of attention of one token on the default machine: the share of the
 * HBM bandwidth that reading the cache reaches, contiguous and paged.
 */
#include "attention_rig.h"

typedef struct timed {
    uint32_t batch, heads, kv_heads, context, page_tokens;
    uint64_t page_seed;
    bool out_by_cube;
} timed;

static kb_time time_of(const timed *is, bool timing_only)
{
    const kb_context_options options = {.timing_only = timing_only, .races = KB_RACES_FAIL};
    const kb_policy columns = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    const kb_policy by_cube = {.cube = KB_ROW_WISE, .pe = KB_COLUMN_WISE};
    const kb_kv_cache_spec spec = {.batch = is->batch,
                                   .capacity = is->context,
                                   .heads = is->heads,
                                   .kv_heads = is->kv_heads,
                                   .head_dim = 128,
                                   .dtype = KB_BF16,
                                   .page_tokens = is->page_tokens,
                                   .page_seed = is->page_seed,
                                   .rope = {.style = KB_ROPE_HALF_SPLIT, .base = 500000},
                                   .access = KB_UNTIMED};
    uint32_t cached[64], added[64];
    kb_context *ctx;
    kb_kv_cache cache;
    kb_request request;
    kb_launch_result result;
    size_t count;
    expect_ok(kb_context_create(&options, &ctx));
    expect_ok(kb_kv_cache_create(ctx, &spec, &cache));
    for (uint32_t b = 0; b < is->batch; b++) {
        cached[b] = is->context - 1;
        added[b] = 1;
    }
    expect_ok(kb_kv_cache_set_lengths(ctx, cache, cached, added));
    uint64_t copies = is->out_by_cube ? kb_context_machine(ctx).cubes : 1;
    const kb_attention_decode_spec step = {
        .cache = cache,
        .qkv = make_tensor(ctx, "qkv", KB_BF16,
                           KB_SHAPE(is->batch, (is->heads + 2 * is->kv_heads) * 128ull), &columns,
                           NULL),
        .out = make_tensor(ctx, "out", KB_BF16, KB_SHAPE(copies * is->batch, is->heads * 128ull),
                           is->out_by_cube ? &by_cube : &columns, NULL),
        .out_by_cube = is->out_by_cube,
        .request = &request};
    expect_ok(kb_attention_decode(ctx, &step));
    expect_ok(kb_request_wait(ctx, request, NULL));
    expect_ok(kb_launch_results(ctx, request, &result, 1, &count));
    kb_context_destroy(ctx);
    return result.pe_exec;
}

/* Cache bytes / (128 slices of 204.8 GB/s), and what share of the time that is. */
static double share_of_bandwidth(const timed *is)
{
    double bytes = 2.0 * 2 * is->batch * is->context * is->kv_heads * 128;
    double ns = kb_to_ns(time_of(is, true));
    double share = bytes / (128 * 204.8) / ns;
    print_message("batch %u, heads %u/%u, context %u, pages of %u%s: %.2f us, %.1f %%\n", is->batch,
                  is->heads, is->kv_heads, is->context, is->page_tokens,
                  is->page_seed ? " shuffled" : "", ns / 1000, 100 * share);
    return share;
}

static void large_batches_reach_the_bandwidth(void **unused)
{
    (void)unused;
    const struct {
        uint32_t batch;
        double share;
    } bars[] = {{8, 0.55}, {32, 0.80}, {64, 0.85}};
    for (size_t i = 0; i < sizeof bars / sizeof bars[0]; i++) {
        timed is = {.batch = bars[i].batch, .heads = 64, .kv_heads = 8, .context = 4096};
        assert_true(share_of_bandwidth(&is) >= bars[i].share);
        is.page_tokens = KB_PAGE_TOKENS;
        assert_true(share_of_bandwidth(&is) >= bars[i].share);
        is.page_seed = 7;
        assert_true(share_of_bandwidth(&is) >= bars[i].share);
    }
}

static void one_sequence_is_fast(void **unused)
{
    (void)unused;
    timed is = {.batch = 1, .heads = 32, .kv_heads = 4, .context = 4096};
    assert_true(time_of(&is, true) <= 2500 * KB_NS);
    is.page_tokens = KB_PAGE_TOKENS;
    assert_true(time_of(&is, true) <= 2500 * KB_NS);
}

/* Each PE stores two rows of 2 KiB, each in 16 cubes and there in two slices of HBM. With one store
 * for each cube this takes 1.0 us longer than an output by columns, with one for each slice 1.9 us.
 */
static void output_by_cube_costs_little(void **unused)
{
    (void)unused;
    timed is = {.batch = 64, .heads = 32, .kv_heads = 4, .context = 4096};
    kb_time plain = time_of(&is, true);
    is.out_by_cube = true;
    kb_time by_cube = time_of(&is, true);
    print_message("output by columns %.2f us, by cube %.2f us\n", kb_to_ns(plain) / 1000,
                  kb_to_ns(by_cube) / 1000);
    assert_true(by_cube <= plain + 1600 * KB_NS);
}

/*
 * 8 sequences of 4,095 cached tokens and a new one; 8 kv heads, each with a key and a value of 128
 * elements of 2 bytes; 128 PEs with 204.8 GB/s, 64 lanes and an array of 64 x 64.
 * HBM: 8 * 4095 * 8 * 2 * 128 * 2 bytes / 204.8 / 128 = 5118.75 ns.
 * Vector: 8 * 4096 * 64 scores * (3 + 8) cycles / 64 / 128 = 2816 ns.
 * Matrix: 2 * 8 * 4096 * 64 * 128 products / 4096 / 128 = 1024 ns.
 * With a window of 1,024 tokens 1,023 of them are read: 1278.75 ns, 704 ns, 256 ns.
 */
static void bounds_follow_from_the_lengths(void **unused)
{
    (void)unused;
    const kb_context_options options = {.timing_only = true};
    const kb_kv_cache_spec spec = {.batch = 9,
                                   .capacity = 4096,
                                   .heads = 64,
                                   .kv_heads = 8,
                                   .head_dim = 128,
                                   .dtype = KB_BF16,
                                   .access = KB_UNTIMED};
    uint32_t cached[9], added[9];
    kb_attention_bounds found;
    kb_context *ctx;
    kb_kv_cache cache;
    expect_ok(kb_context_create(&options, &ctx));
    expect_ok(kb_kv_cache_create(ctx, &spec, &cache));
    for (uint32_t b = 0; b < 9; b++) {
        cached[b] = 4095;
        added[b] = b < 8; /* the last one is not active */
    }
    expect_ok(kb_kv_cache_set_lengths(ctx, cache, cached, added));
    expect_ok(kb_attention_decode_bounds(ctx, cache, 0, &found));
    assert_int_equal(found.cache_bytes, 8ull * 4095 * 8 * 2 * 128 * 2);
    assert_int_equal(found.hbm, 5118750 * KB_PS);
    assert_int_equal(found.vector, 2816 * KB_NS);
    assert_int_equal(found.matrix, 1024 * KB_NS);
    expect_ok(kb_attention_decode_bounds(ctx, cache, 1024, &found));
    assert_int_equal(found.hbm, 1278750 * KB_PS);
    assert_int_equal(found.vector, 704 * KB_NS);
    assert_int_equal(found.matrix, 256 * KB_NS);
    kb_context_destroy(ctx);
}

static void time_does_not_depend_on_data(void **unused)
{
    (void)unused;
    const timed cases[] = {{.batch = 1, .heads = 32, .kv_heads = 4, .context = 1000},
                           {.batch = 5,
                            .heads = 64,
                            .kv_heads = 8,
                            .context = 700,
                            .page_tokens = 128,
                            .page_seed = 3}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(time_of(&cases[i], true), time_of(&cases[i], false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(large_batches_reach_the_bandwidth),
        cmocka_unit_test(one_sequence_is_fast),
        cmocka_unit_test(output_by_cube_costs_little),
        cmocka_unit_test(bounds_follow_from_the_lengths),
        cmocka_unit_test(time_does_not_depend_on_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
