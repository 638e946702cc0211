/*
 * test_attention_alloc.c: allocations fail in turn while a cache is made and used. The result is an
 * error about memory, without leaks.
 */
#include "support/failing_alloc.h"

#include "attention_rig.h"

static kb_error *use_cache(kb_context *ctx)
{
    static const kb_policy columns = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    const kb_kv_cache_spec spec = {.batch = 2,
                                   .capacity = 12,
                                   .heads = 4,
                                   .kv_heads = 2,
                                   .head_dim = 4,
                                   .layers = 2,
                                   .split = 2,
                                   .page_tokens = 3,
                                   .page_seed = 1,
                                   .rope = {.style = KB_ROPE_HALF_SPLIT}};
    kb_tensor_spec tensor = {.name = "qkv", .shape = KB_SHAPE(2, 32), .policy = &columns};
    kb_tensor qkv, out;
    kb_kv_cache cache;
    float numbers[20];
    KB_TRY(kb_full(ctx, &tensor, 1, &qkv));
    tensor.shape = KB_SHAPE(2, 16);
    KB_TRY(kb_empty(ctx, &tensor, &out));
    KB_TRY(kb_kv_cache_create(ctx, &spec, &cache));
    KB_TRY(
        kb_kv_cache_set_lengths(ctx, cache, (const uint32_t[]){5, 11}, (const uint32_t[]){1, 1}));
    for (uint32_t layer = 0; layer < 2; layer++) {
        const kb_attention_decode_spec step = {
            .cache = cache, .layer = layer, .qkv = qkv, .out = out};
        KB_TRY(kb_attention_decode(ctx, &step));
    }
    KB_TRY(kb_kv_cache_set_lengths(ctx, cache, (const uint32_t[]){5, 0}, (const uint32_t[]){1, 1}));
    const kb_kv_append_spec append = {.cache = cache, .qkv = qkv};
    const kb_attention_prefill_spec prefill = {.cache = cache, .q = qkv, .out = out};
    KB_TRY(kb_kv_append(ctx, &append));
    KB_TRY(kb_attention_prefill(ctx, &prefill));
    const kb_kv_range range = {.sequence = 1, .token = 7, .count = 5};
    KB_TRY(kb_kv_cache_get(ctx, cache, &range, numbers));
    KB_TRY(kb_kv_cache_set(ctx, cache, &range, numbers));
    return kb_kv_cache_free(ctx, cache);
}

/* With the n-th allocation failing; false if there were fewer. */
static bool try_nth(long n, failing_alloc_mode mode)
{
    kb_context *ctx = open_machine((machine_size){1, 1, 1, 4, NULL, NULL}, (kb_context_options){0});
    failing_alloc_arm(n, mode);
    kb_error *err = use_cache(ctx);
    bool failed = failing_alloc_disarm();
    if (err && kb_error_code(err) != KB_ERR_HOST)
        fail_msg("allocation %ld: %s", n, kb_error_message(err));
    if (!failed)
        expect_ok(err);
    kb_error_free(err);
    kb_context_destroy(ctx);
    return failed;
}

/* Every one of the first, then fewer and fewer. */
static void nothing_is_lost_without_memory(void **unused)
{
    (void)unused;
    for (int mode = FAIL_ONCE; mode <= FAIL_ONWARDS; mode++) {
        size_t before = failing_alloc_live();
        bool failed = true;
        for (long n = 1; failed; n += n < 300 ? 1 : n < 1000 ? 7 : 31) {
            failed = try_nth(n, (failing_alloc_mode)mode);
            assert_int_equal(failing_alloc_live(), before);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_is_lost_without_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
