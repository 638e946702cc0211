/*
 * test_alloc.c: allocations fail in turn while layers are called. What comes of it is an error
 * about memory, and nothing is lost.
 */
#include "support/failing_alloc.h"

#include "layouts.h"
#include "tp/ranks.h"

static kb_error *make(kb_context *ctx, kb_dtype dtype, kb_shape shape, kb_tensor *tensor)
{
    const kb_tensor_spec spec = {.dtype = dtype, .shape = shape, .policy = &layouts[0]};
    return kb_empty(ctx, &spec, tensor);
}

static kb_error *use_layers(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    kb_tensor x, ids, rotated = {0}, activated = {0}, rows = {0}, found = {0}, largest = {0};
    kb_norm_outputs normed = {0};
    KB_TRY(join_ranks(ctx, rank, 2));
    KB_TRY(make(ctx, KB_BF16, KB_SHAPE(3, 8), &x));
    KB_TRY(make(ctx, KB_I32, KB_SHAPE(3), &ids));
    const kb_norm_spec norm = {.x = x, .residual = x, .quantisation = KB_QUANTISED_I8};
    const kb_rope_spec rope = {
        .x = x, .positions = ids, .head_dim = 4, .rope = {.style = KB_ROPE_HALF_SPLIT}};
    KB_TRY(kb_layer_norm(ctx, &norm, &normed));
    KB_TRY(kb_rope_apply(ctx, &rope, &rotated));
    KB_TRY(kb_swiglu(ctx, &(kb_swiglu_spec){.gate = rotated}, &activated));
    KB_TRY(kb_embedding(ctx, &(kb_embedding_spec){.table = x, .tokens = ids}, &rows));
    KB_TRY(kb_argmax(ctx, &(kb_argmax_spec){.logits = x}, &found));
    return kb_vocab_parallel_argmax(ctx, &(kb_argmax_spec){.logits = rows}, &largest);
}

/* With the n-th allocation failing; false if there were fewer. */
static bool try_nth(long n, failing_alloc_mode mode)
{
    kb_context *ctx =
        open_machine((machine_size){.sips = 2, .w = 1, .h = 1, .pes = 2}, (kb_context_options){0});
    failing_alloc_arm(n, mode);
    kb_error *err = kb_spawn(ctx, use_layers, NULL, 2);
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
        for (long n = 1; failed; n += n < 100 ? 1 : n < 1000 ? 7 : 31) {
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
