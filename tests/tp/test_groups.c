/*
 * test_groups.c: parallel state: groups and ranks, errors before it is initialised and for sizes
 * that do not divide, its end, and the state of a program outside workers.
 */
#include "tp_ranks.h"

static const machine_size six_sips = {.sips = 6, .w = 1, .h = 1, .pes = 1};

static kb_error *look_at_groups(kb_context *ctx, uint32_t rank, void *arg)
{
    const uint32_t *size = arg;
    uint32_t index, count;
    kb_group group;
    assert_false(kb_tp_model_parallel_is_initialized(ctx));
    KB_TRY(join_ranks(ctx, rank, *size));
    assert_true(kb_tp_model_parallel_is_initialized(ctx));
    KB_TRY(kb_tp_get_tensor_model_parallel_rank(ctx, &index));
    assert_int_equal(index, rank % *size);
    KB_TRY(kb_tp_get_tensor_model_parallel_world_size(ctx, &count));
    assert_int_equal(count, *size);
    KB_TRY(kb_tp_get_data_parallel_rank(ctx, &index));
    assert_int_equal(index, rank / *size);
    KB_TRY(kb_tp_get_data_parallel_world_size(ctx, &count));
    assert_int_equal(count, 6 / *size);
    KB_TRY(kb_tp_get_tensor_model_parallel_group(ctx, &group));
    KB_TRY(kb_distributed_get_group_rank(ctx, group, &index));
    assert_int_equal(index, rank % *size);
    KB_TRY(kb_tp_get_data_parallel_group(ctx, &group));
    KB_TRY(kb_distributed_get_group_rank(ctx, group, &index));
    assert_int_equal(index, rank / *size);
    KB_TRY(kb_distributed_get_group_size(ctx, group, &count));
    assert_int_equal(count, 6 / *size);

    expect_error(kb_tp_initialize_model_parallel(ctx, *size), KB_ERR_INPUT,
                 "kb_tp_initialize_model_parallel: already initialised");
    KB_TRY(kb_tp_destroy_model_parallel(ctx));
    assert_false(kb_tp_model_parallel_is_initialized(ctx));
    KB_TRY(kb_tp_initialize_model_parallel(ctx, 6)); /* again, in another way */
    KB_TRY(kb_tp_get_tensor_model_parallel_rank(ctx, &index));
    assert_int_equal(index, rank);
    return NULL;
}

static void ranks_are_divided(void **unused)
{
    (void)unused;
    for (uint32_t size = 1; size <= 6; size++) {
        if (6 % size != 0)
            continue;
        kb_context *ctx = open_machine(six_sips, (kb_context_options){0});
        expect_ok(kb_spawn(ctx, look_at_groups, &size, 6));
        assert_false(kb_tp_model_parallel_is_initialized(ctx));
        expect_ok(kb_spawn(ctx, look_at_groups, &size, 6)); /* the context can be used on */
        kb_context_destroy(ctx);
    }
}

static kb_error *divide_wrongly(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    expect_error(kb_tp_initialize_model_parallel(ctx, 2), KB_ERR_INPUT,
                 "kb_tp_initialize_model_parallel: the process group is not initialised: call "
                 "kb_distributed_init_process_group() first");
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    uint32_t index;
    expect_error(kb_tp_get_tensor_model_parallel_rank(ctx, &index), KB_ERR_INPUT,
                 "kb_tp_get_tensor_model_parallel_rank: model parallelism is not initialised: call "
                 "kb_tp_initialize_model_parallel() first");
    expect_error(kb_tp_initialize_model_parallel(ctx, 4), KB_ERR_INPUT,
                 "kb_tp_initialize_model_parallel: the world size 6 is not divisible by the tensor "
                 "parallel size 4");
    expect_error(kb_tp_initialize_model_parallel(ctx, 0), KB_ERR_INPUT,
                 "kb_tp_initialize_model_parallel: the world size 6 is not divisible by the tensor "
                 "parallel size 0");
    expect_error(kb_tp_destroy_model_parallel(ctx), KB_ERR_INPUT,
                 "kb_tp_destroy_model_parallel: model parallelism is not initialised: call "
                 "kb_tp_initialize_model_parallel() first");
    return NULL;
}

static void errors_name_the_numbers(void **unused)
{
    (void)unused;
    kb_context *ctx = open_machine(six_sips, (kb_context_options){0});
    expect_ok(kb_spawn(ctx, divide_wrongly, NULL, 6));
    kb_context_destroy(ctx);
}

static kb_error *leave_process_group(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    KB_TRY(join_ranks(ctx, rank, 2));
    KB_TRY(kb_distributed_destroy_process_group(ctx));
    assert_false(kb_tp_model_parallel_is_initialized(ctx));
    return join_ranks(ctx, rank, 3);
}

static void it_ends_with_the_process_group(void **unused)
{
    (void)unused;
    kb_context *ctx = open_machine(six_sips, (kb_context_options){0});
    expect_ok(kb_spawn(ctx, leave_process_group, NULL, 6));
    kb_context_destroy(ctx);
}

static kb_error *use_the_drivers(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    uint32_t index;
    KB_TRY(kb_tp_get_tensor_model_parallel_rank(ctx, &index));
    assert_int_equal(index, rank % 2);
    KB_TRY(kb_tp_get_data_parallel_rank(ctx, &index));
    assert_int_equal(index, rank / 2);
    return NULL;
}

static void the_program_initialises_for_all(void **unused)
{
    (void)unused;
    kb_context *ctx = open_machine(six_sips, (kb_context_options){0});
    expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
    expect_ok(kb_tp_initialize_model_parallel(ctx, 2));
    expect_ok(kb_spawn(ctx, use_the_drivers, NULL, 6));
    kb_tp_layer layer;
    const kb_tp_linear_spec spec = {.in_features = 4, .out_features = 4};
    expect_error(kb_row_parallel_linear_create(ctx, &spec, &layer), KB_ERR_INPUT,
                 "kb_row_parallel_linear_create: called outside workers with a tensor parallel "
                 "size of 2: each rank makes its part, in a worker (kb_spawn)");
    expect_ok(kb_tp_destroy_model_parallel(ctx));
    expect_ok(kb_tp_initialize_model_parallel(ctx, 1));
    expect_ok(kb_row_parallel_linear_create(ctx, &spec, &layer));
    assert_int_not_equal(layer.id, 0);
    kb_context_destroy(ctx);
}

static kb_error *initialize_differently(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    return join_ranks(ctx, rank, rank == 5 ? 3 : 2);
}

static void ranks_that_differ_are_told(void **unused)
{
    (void)unused;
    kb_context *ctx = open_machine(six_sips, (kb_context_options){0});
    kb_error *err = kb_spawn(ctx, initialize_differently, NULL, 6);
    assert_non_null(strstr(kb_error_message(err), "rank 5: kb_tp_initialize_model_parallel: "));
    kb_error_free(err);
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_are_divided),
        cmocka_unit_test(errors_name_the_numbers),
        cmocka_unit_test(it_ends_with_the_process_group),
        cmocka_unit_test(the_program_initialises_for_all),
        cmocka_unit_test(ranks_that_differ_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
