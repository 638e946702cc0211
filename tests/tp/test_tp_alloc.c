/*
 * test_tp_alloc.c: allocations fail in turn while model parallelism is initialised and layers are
 * made and used. The result is an error about memory, without leaks.
 */
#include "failing_ranks.h"

#include "tp/matmul.h"

static kb_error *make_empty(kb_context *ctx, kb_shape shape, const kb_policy *policy,
                            kb_tensor *tensor)
{
    const kb_tensor_spec spec = {.dtype = KB_F32, .shape = shape, .policy = policy};
    return kb_empty(ctx, &spec, tensor);
}

/* A norm and a gate; then a sum over ranks with a residual. */
static kb_error *use_fused_products(kb_context *ctx, uint32_t rank, const kb_policy *columns)
{
    tp_matmul_spec first = {.gated = true, .x_by_cube = true}, second = {.ranks = 2, .chunks = 2};
    const kb_policy by_cube = {.cube = KB_ROW_WISE, .pe = KB_COLUMN_WISE};
    const uint64_t cubes = kb_context_machine(ctx).cubes;
    KB_TRY(make_empty(ctx, KB_SHAPE(3 * cubes, 8), &by_cube, &first.x));
    KB_TRY(make_empty(ctx, KB_SHAPE(8, 12), columns, &first.w));
    KB_TRY(make_empty(ctx, KB_SHAPE(8), columns, &first.norm_gain));
    KB_TRY(make_empty(ctx, KB_SHAPE(3, 6), columns, &first.out));
    KB_TRY(make_empty(ctx, KB_SHAPE(6, 8), columns, &second.w));
    KB_TRY(make_empty(ctx, KB_SHAPE(3, 8), columns, &second.out));
    second.x = first.out;
    second.residual = second.out;
    second.rank = rank;
    second.sum_dtype = KB_F32;
    KB_TRY(tp_matmul(ctx, &first));
    return tp_matmul(ctx, &second);
}

static kb_error *use_layers(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    static const kb_policy columns = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    kb_tensor x, h = {0}, y = {0}, tokens, rows = {0}, loss = {0};
    kb_tp_layer up, down, table;
    KB_TRY(join_ranks(ctx, rank, 2));
    kb_tensor_spec spec = {
        .name = "x", .dtype = KB_F32, .shape = KB_SHAPE(3, 8), .policy = &columns};
    KB_TRY(kb_empty(ctx, &spec, &x));
    spec.dtype = KB_I32;
    spec.shape = KB_SHAPE(3);
    KB_TRY(kb_empty(ctx, &spec, &tokens));
    const kb_tp_linear_spec first = {.in_features = 8,
                                     .out_features = 16,
                                     .dtype = KB_F32,
                                     .bias = true,
                                     .gather_output = true,
                                     .seed = 1};
    const kb_tp_linear_spec second = {.in_features = 16,
                                      .out_features = 8,
                                      .dtype = KB_F32,
                                      .bias = true,
                                      .input_is_parallel = KB_TP_NO,
                                      .overlap = 2};
    const kb_tp_embedding_spec words = {.num_embeddings = 8, .embedding_dim = 4, .dtype = KB_F32};
    KB_TRY(kb_column_parallel_linear_create(ctx, &first, &up));
    KB_TRY(kb_row_parallel_linear_create(ctx, &second, &down));
    KB_TRY(kb_vocab_parallel_embedding_create(ctx, &words, &table));
    KB_TRY(kb_column_parallel_linear_forward(ctx, up, x, &h));
    KB_TRY(kb_row_parallel_linear_forward(ctx, down, h, &y));
    KB_TRY(kb_vocab_parallel_embedding_forward(ctx, table, tokens, &rows));
    KB_TRY(kb_vocab_parallel_cross_entropy(ctx, rows, tokens, &loss));
    KB_TRY(use_fused_products(ctx, rank, &columns));
    KB_TRY(kb_tp_layer_free(ctx, up));
    return kb_tp_destroy_model_parallel(ctx);
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
