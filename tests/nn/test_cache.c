/*
 * test_cache.c: caches of keys and values: each token of each sequence, head and layer has its own
 * address, in the memory of the PEs of its head; work is balanced; invalid values are refused.
 */
#include "attention_rig.h"

#include <math.h>

#include "nn/cache.h"
#include "rt/rt.h"
#include "support/seed.h"

/* ---- Contents ---- */

/* Different for every element of small caches; exact in f32. */
static float number_of(const kb_kv_range *r, uint32_t token, uint32_t i)
{
    uint32_t n = r->values;
    n = n * 3 + r->layer;
    n = n * 8 + r->sequence;
    n = n * 16 + r->kv_head;
    n = n * 128 + token;
    return (float)(n * 16 + i);
}

/* Calls `visit` with each (layer, sequence, head, keys or values). */
static void for_each_range(const kb_kv_cache_spec *spec,
                           void (*visit)(kb_context *, kb_kv_cache, const kb_kv_cache_spec *,
                                         kb_kv_range),
                           kb_context *ctx, kb_kv_cache cache)
{
    for (uint32_t layer = 0; layer < spec->layers; layer++)
        for (uint32_t b = 0; b < spec->batch; b++)
            for (uint32_t head = 0; head < spec->kv_heads; head++)
                for (int values = 0; values < 2; values++)
                    visit(ctx, cache, spec,
                          (kb_kv_range){.layer = layer,
                                        .sequence = b,
                                        .kv_head = head,
                                        .count = spec->capacity,
                                        .values = values == 1});
}

static void write_range(kb_context *ctx, kb_kv_cache cache, const kb_kv_cache_spec *spec,
                        kb_kv_range r)
{
    float numbers[128 * 16];
    for (uint32_t t = 0; t < r.count; t++)
        for (uint32_t i = 0; i < spec->head_dim; i++)
            numbers[t * spec->head_dim + i] = number_of(&r, t, i);
    expect_ok(kb_kv_cache_set(ctx, cache, &r, numbers));
}

static void check_range(kb_context *ctx, kb_kv_cache cache, const kb_kv_cache_spec *spec,
                        kb_kv_range r)
{
    float numbers[128 * 16];
    r.token = r.count / 3; /* in the middle of a page */
    r.count -= r.token;
    expect_ok(kb_kv_cache_get(ctx, cache, &r, numbers));
    for (uint32_t t = 0; t < r.count; t++)
        for (uint32_t i = 0; i < spec->head_dim; i++)
            assert_true(numbers[t * spec->head_dim + i] == number_of(&r, r.token + t, i));
}

static void every_token_has_a_place(void **unused)
{
    (void)unused;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(5));
    for (int i = 0; i < 60; i++) {
        kb_context *ctx = open_checked(attention_machines[i % ATTENTION_MACHINES], false);
        kb_kv_cache_spec spec = {.batch = draw(&rng, 1, 7),
                                 .capacity = draw(&rng, 1, 100),
                                 .kv_heads = draw(&rng, 1, 9),
                                 .head_dim = draw(&rng, 1, 9),
                                 .layers = draw(&rng, 1, 2),
                                 .dtype = KB_F32,
                                 .page_tokens = draw(&rng, 0, 1) * draw(&rng, 1, 40),
                                 .access = KB_UNTIMED};
        uint32_t expected[7];
        kb_kv_cache cache;
        kb_kv_cache_info info;
        for (uint32_t b = 0; b < spec.batch; b++)
            expected[b] = draw(&rng, 0, spec.capacity);
        spec.heads = spec.kv_heads * draw(&rng, 1, 3);
        spec.expected = i % 3 == 0 ? NULL : expected;
        spec.page_seed = spec.page_tokens > 0 ? draw(&rng, 0, 2) : 0;
        expect_ok(kb_kv_cache_create(ctx, &spec, &cache));
        expect_ok(kb_kv_cache_get_info(ctx, cache, &info));
        if (info.pes_of_head > 1 && i % 2 == 0) { /* another split, also one that does not divide */
            expect_ok(kb_kv_cache_free(ctx, cache));
            spec.split = draw(&rng, 1, info.pes_of_head);
            expect_ok(kb_kv_cache_create(ctx, &spec, &cache));
            expect_ok(kb_kv_cache_get_info(ctx, cache, &info));
            assert_int_equal(info.split, spec.split);
        }
        assert_true(strlen(info.rule) > 0);
        assert_int_equal(info.is_paged, spec.page_tokens > 0);
        for_each_range(&spec, write_range, ctx, cache);
        for_each_range(&spec, check_range, ctx, cache);
        expect_ok(kb_kv_cache_free(ctx, cache));
        kb_context_destroy(ctx);
    }
}

/* Pages of the device, in the order of (cube, pe), are in the memory of these PEs. */
static void pages_are_at_their_pe(void **unused)
{
    (void)unused;
    kb_context *ctx = open_checked(attention_machines[2], false); /* 12 PEs: 4 of each head */
    const kb_kv_cache_spec spec = {.batch = 3,
                                   .capacity = 50,
                                   .heads = 6,
                                   .kv_heads = 3,
                                   .head_dim = 5,
                                   .page_tokens = 7,
                                   .split = 2,
                                   .access = KB_UNTIMED};
    kb_kv_cache handle;
    nn_cache *cache;
    expect_ok(kb_kv_cache_create(ctx, &spec, &handle));
    expect_ok(nn_find_cache(ctx, "test", handle, &cache));
    const nn_cache_layout *is = &cache->layout;
    assert_int_equal(is->lanes, 4);
    for (int64_t head = 0; head < 3; head++)
        for (int64_t lane = 0; lane < 4; lane++) {
            int64_t offset = nn_page_offset(is, head, lane, is->slots - 1);
            int64_t pe = nn_pe_of(is, head, lane);
            kb_shard shard;
            assert_int_equal(pe, head * 4 + lane);
            expect_ok(kb_tensor_shard(ctx, cache->keys[0], (size_t)pe, &shard));
            assert_int_equal(shard.cube, pe / 2);
            assert_int_equal(shard.pe, pe % 2);
            assert_in_range(offset, shard.offset_bytes,
                            shard.offset_bytes + shard.nbytes - (uint64_t)(7 * 5 * 2));
            expect_ok(kb_tensor_shard(ctx, cache->values[0], (size_t)pe, &shard));
            assert_in_range(offset, shard.offset_bytes,
                            shard.offset_bytes + shard.nbytes - (uint64_t)(7 * 5 * 2));
        }
    kb_context_destroy(ctx);
}

/* ---- The rule ---- */

static kb_kv_cache_info info_of(kb_context *ctx, const kb_kv_cache_spec *spec)
{
    kb_kv_cache cache;
    kb_kv_cache_info info;
    expect_ok(kb_kv_cache_create(ctx, spec, &cache));
    expect_ok(kb_kv_cache_get_info(ctx, cache, &info));
    expect_ok(kb_kv_cache_free(ctx, cache));
    return info;
}

/* 16 PEs of each head: with 16 sequences or more a PE has whole ones, with fewer they are shared.
 */
static void the_split_follows_from_the_batch(void **unused)
{
    (void)unused;
    const kb_context_options options = {.timing_only = true};
    kb_context *ctx;
    expect_ok(kb_context_create(&options, &ctx));
    kb_kv_cache_spec spec = {.capacity = 4096,
                             .heads = 64,
                             .kv_heads = 8,
                             .head_dim = 128,
                             .dtype = KB_BF16,
                             .access = KB_UNTIMED};
    const struct {
        uint32_t batch, split;
    } cases[] = {{1, 16}, {2, 8}, {4, 4}, {8, 2}, {16, 1}, {32, 1}, {64, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        spec.batch = cases[i].batch;
        kb_kv_cache_info info = info_of(ctx, &spec);
        assert_int_equal(info.split, cases[i].split);
        assert_int_equal(info.pes_of_head, 16);
        /* No page more than the sequences need: 2 * 4096 tokens * 8 heads * 128 * 2 bytes. */
        assert_int_equal(info.bytes, (uint64_t)cases[i].batch * 4096 * 8 * 128 * 2 * 2);
    }
    kb_context_destroy(ctx);
}

/* 4 PEs, one head, lengths 80, 30, 30, 30, 20, 20, 20, 10 with split 1: 80 alone; the others 60 at
 * most, in the order of lengths, each where there are fewest tokens. */
static void long_sequences_are_assigned_first(void **unused)
{
    (void)unused;
    kb_context *ctx = open_checked((machine_size){1, 1, 1, 4, NULL, NULL}, false);
    const uint32_t expected[] = {20, 30, 10, 80, 30, 20, 30, 20};
    const int32_t lanes[] = {1, 1, 1, 0, 2, 2, 3, 3};
    const kb_kv_cache_spec spec = {.batch = 8,
                                   .capacity = 100,
                                   .heads = 1,
                                   .kv_heads = 1,
                                   .head_dim = 4,
                                   .split = 1,
                                   .expected = expected,
                                   .access = KB_UNTIMED};
    kb_kv_cache handle;
    nn_cache *cache;
    expect_ok(kb_kv_cache_create(ctx, &spec, &handle));
    expect_ok(nn_find_cache(ctx, "test", handle, &cache));
    for (int b = 0; b < 8; b++)
        assert_int_equal(cache->record_values[b * NN_RECORD + NN_FIRST], lanes[b]);
    kb_context_destroy(ctx);
}

/* ---- Errors ---- */

static void invalid_values_are_refused(void **unused)
{
    (void)unused;
    kb_context *ctx = open_checked(attention_machines[1], false);
    const kb_kv_cache_spec good = {
        .batch = 2, .capacity = 10, .heads = 4, .kv_heads = 2, .head_dim = 8, .access = KB_UNTIMED};
    kb_kv_cache cache;
    kb_kv_cache_spec bad = good;
    bad.batch = 0;
    expect_error(kb_kv_cache_create(ctx, &bad, &cache), KB_ERR_INPUT,
                 "kb_kv_cache_create: batch is 0 and capacity 10: both must be from 1 to "
                 "2147483647");
    bad = good;
    bad.kv_heads = 3;
    expect_error(kb_kv_cache_create(ctx, &bad, &cache), KB_ERR_INPUT,
                 "kb_kv_cache_create: heads is 4 and kv_heads 3: heads must be a multiple of "
                 "kv_heads, from 1 to 65536");
    bad = good;
    bad.head_dim = 0;
    expect_error(kb_kv_cache_create(ctx, &bad, &cache), KB_ERR_INPUT,
                 "kb_kv_cache_create: head_dim is 0: it must be from 1 to 65536");
    bad = good;
    bad.dtype = KB_I8;
    expect_error(kb_kv_cache_create(ctx, &bad, &cache), KB_ERR_INPUT,
                 "kb_kv_cache_create: dtype is i8: expected f16, bf16 or f32");
    bad = good;
    bad.split = 2;
    expect_error(kb_kv_cache_create(ctx, &bad, &cache), KB_ERR_INPUT,
                 "kb_kv_cache_create: split is 2: a kv head has 1 PEs, and the maximum is 64");
    bad = good;
    bad.page_seed = 3;
    expect_error(kb_kv_cache_create(ctx, &bad, &cache), KB_ERR_INPUT,
                 "kb_kv_cache_create: page_seed needs page_tokens: pages of a contiguous cache "
                 "are not shuffled");
    bad = good;
    bad.expected = (const uint32_t[]){10, 11};
    expect_error(kb_kv_cache_create(ctx, &bad, &cache), KB_ERR_INPUT,
                 "kb_kv_cache_create: sequence 1 is expected to have 11 tokens: the capacity is "
                 "10");
    assert_int_equal(cache.id, 0);

    float numbers[80];
    const kb_kv_range outside = {.sequence = 1, .kv_head = 1, .token = 5, .count = 6};
    expect_ok(kb_kv_cache_create(ctx, &good, &cache));
    expect_error(kb_kv_cache_get(ctx, cache, &outside, numbers), KB_ERR_INPUT,
                 "kb_kv_cache_get: layer 0, sequence 1, kv head 1, 6 tokens from 5: the cache has "
                 "1 layers, 2 sequences, 2 kv heads, 10 tokens");
    expect_error(
        kb_kv_cache_set_lengths(ctx, cache, (const uint32_t[]){0, 10}, (const uint32_t[]){0, 1}),
        KB_ERR_INPUT,
        "kb_kv_cache_set_lengths: sequence 1: 10 cached and 1 added tokens exceed the "
        "capacity of 10");
    expect_ok(kb_kv_cache_free(ctx, cache));
    expect_error(kb_kv_cache_free(ctx, cache), KB_ERR_FAULT,
                 "kb_kv_cache_free: invalid or freed cache handle");
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_token_has_a_place),
        cmocka_unit_test(pages_are_at_their_pe),
        cmocka_unit_test(the_split_follows_from_the_batch),
        cmocka_unit_test(long_sequences_are_assigned_first),
        cmocka_unit_test(invalid_values_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
