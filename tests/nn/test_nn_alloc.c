/*
 * test_nn_alloc.c: allocations fail in turn while layers are called. The result is an error about
 * memory, without leaks.
 */
#include "layouts.h"
#include "tp/failing_ranks.h"

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

static void nothing_is_lost_without_memory(void **unused)
{
    (void)unused;
    fail_each_allocation(use_layers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nothing_is_lost_without_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
