/*
 * test_queries.c: what a program can ask without changing anything: the shards that a policy would
 * give, the meaning of physical addresses, whether a device is set, which ranks of a spawn failed
 * and how, and the object behind a kernel.
 */
#include "programs.h"

#include <kernbench/tl.h>

/* ---- Shards without a tensor ---- */

static void expect_same_shard(const kb_shard *a, const kb_shard *b)
{
    assert_int_equal(a->sip, b->sip);
    assert_int_equal(a->cube, b->cube);
    assert_int_equal(a->pe, b->pe);
    assert_int_equal(a->offset_bytes, b->offset_bytes);
    assert_int_equal(a->nbytes, b->nbytes);
}

static void shards_are_those_of_a_tensor(void **state)
{
    (void)state;
    static const kb_policy policies[] = {
        {.cube = KB_ROW_WISE, .pe = KB_COLUMN_WISE},
        {.cube = KB_COLUMN_WISE, .pe = KB_ROW_WISE, .num_pes = 3},
        {.cube = KB_REPLICATE, .pe = KB_ROW_WISE},
        {.tiling = KB_TILED_ROW_MAJOR, .tile_rows = 3, .tile_columns = 5},
    };
    kb_context *ctx = open_small(NULL);
    for (size_t p = 0; p <= 4; p++) {
        kb_tensor_spec spec = {.dtype = KB_BF16,
                               .shape = KB_SHAPE(7, 13),
                               .policy = p < 4 ? &policies[p] : NULL,
                               .access = KB_UNTIMED};
        kb_shard planned[64];
        size_t count, made;
        kb_tensor tensor;
        expect_ok(kb_plan_shards(ctx, &spec, planned, 64, &count));
        expect_ok(kb_empty(ctx, &spec, &tensor));
        expect_ok(kb_tensor_shard_count(ctx, tensor, &made));
        assert_int_equal(count, made);
        for (size_t i = 0; i < count; i++) {
            kb_shard shard;
            expect_ok(kb_tensor_shard(ctx, tensor, i, &shard));
            expect_same_shard(&shard, &planned[i]);
        }
        kb_shard one;
        size_t again;
        expect_ok(kb_plan_shards(ctx, &spec, &one, 1, &again)); /* no more than there is room for */
        assert_int_equal(again, count);
        expect_same_shard(&one, &planned[0]);
    }
    size_t none;
    expect_error(kb_plan_shards(ctx, NULL, NULL, 0, &none), KB_ERR_INPUT,
                 "kb_plan_shards: the spec is NULL");
    kb_context_destroy(ctx);
}

/* ---- Physical addresses ---- */

static void every_range_has_addresses(void **state)
{
    (void)state;
    static const char *const names[KB_PA_RANGES] = {
        "sip3.cube7.hbm+0x10",           "sip3.cube7.sram+0x10",
        "sip3.cube7.m_cpu+0x10",         "sip3.cube7.pe5.tcm+0x10",
        "sip3.cube7.pe5.ipcq+0x10",      "sip3.cube7.pe5.scratchpad+0x10",
        "sip3.cube7.pe5.registers+0x10", "sip3.cube7.pe5.status+0x10",
        "sip3.cube7.pe5.reserved+0x10",
    };
    for (int range = 0; range < KB_PA_RANGES; range++) {
        kb_pa_fields fields = {.range = (kb_pa_range)range,
                               .rack = 0,
                               .sip = 3,
                               .cube = 7,
                               .pe = range >= KB_PA_TCM ? 5 : 0,
                               .offset = 0x10},
                     back;
        uint64_t pa;
        char name[KB_NAME_BYTES];
        expect_ok(kb_pa_encode(&fields, &pa));
        expect_ok(kb_pa_decode(pa, &back));
        assert_int_equal(back.range, range);
        assert_true(back.rack == 0 && back.sip == 3 && back.cube == 7 && back.offset == 0x10);
        assert_int_equal(back.pe, fields.pe);
        expect_ok(kb_pa_name(pa, name));
        assert_string_equal(name, names[range]);
    }
}

static void addresses_out_of_range_are_refused(void **state)
{
    (void)state;
    uint64_t pa;
    kb_pa_fields fields;
    expect_error(kb_pa_encode(&(kb_pa_fields){.range = KB_PA_RANGES}, &pa), KB_ERR_INPUT,
                 "kb_pa_encode: invalid range 9");
    expect_error(kb_pa_encode(&(kb_pa_fields){.range = KB_PA_HBM, .pe = 2}, &pa), KB_ERR_INPUT,
                 "kb_pa_encode: pe is 2, but the range is that of a cube: expected 0");
    const kb_pa_fields wrong[] = {{.sip = 16},
                                  {.cube = 32},
                                  {.rack = 16},
                                  {.range = KB_PA_TCM, .pe = 16},
                                  {.offset = (uint64_t)1 << 37},
                                  {.range = KB_PA_STATUS, .offset = (uint64_t)1 << 29}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        kb_error *err = kb_pa_encode(&wrong[i], &pa);
        assert_true(kb_error_code(err) == KB_ERR_INPUT || kb_error_code(err) == KB_ERR_FAULT);
        kb_error_free(err);
    }
    kb_error *err = kb_pa_decode((uint64_t)1 << 51, &fields);
    assert_non_null(err);
    kb_error_free(err);
}

/* Slice p begins behind those of the PEs before it. */
static void a_slice_is_a_part_of_the_hbm(void **state)
{
    (void)state;
    uint64_t pa;
    kb_pa_fields fields;
    expect_ok(kb_pa_of_slice((kb_pe){1, 2, 3}, 40, 1000, &pa));
    expect_ok(kb_pa_decode(pa, &fields));
    assert_int_equal(fields.range, KB_PA_HBM);
    assert_int_equal(fields.offset, 3 * 1000 + 40);
    kb_error *err = kb_pa_of_slice((kb_pe){1, 2, 3}, 1000, 1000, &pa);
    assert_int_equal(kb_error_code(err), KB_ERR_INPUT);
    kb_error_free(err);
}

/* ---- Devices and ranks ---- */

static kb_error *fail_if_odd(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    assert_false(kb_ahbm_device_is_set(ctx));
    KB_TRY(kb_ahbm_set_device(ctx, 0));
    assert_true(kb_ahbm_device_is_set(ctx));
    if (rank % 2 == 0)
        return NULL;
    return kb_error_new(rank == 1 ? KB_ERR_FAULT : KB_ERR_INPUT, "rank %u is odd", rank);
}

static void failed_ranks_are_listed(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_failure failures[2];
    assert_int_equal(kb_spawn_failures(ctx, failures, 2), 0);
    kb_error_free(kb_spawn(ctx, fail_if_odd, NULL, 6));
    assert_int_equal(kb_spawn_failures(ctx, NULL, 0), 3);
    assert_int_equal(kb_spawn_failures(ctx, failures, 2), 3);
    assert_int_equal(failures[0].rank, 1);
    assert_int_equal(failures[0].code, KB_ERR_FAULT);
    assert_string_equal(failures[0].message, "rank 1 is odd");
    assert_int_equal(failures[1].rank, 3);
    assert_int_equal(failures[1].code, KB_ERR_INPUT);
    expect_ok(kb_spawn(ctx, fail_if_odd, NULL, 1));
    assert_int_equal(kb_spawn_failures(ctx, failures, 2), 0);
    kb_context_destroy(ctx);
}

/* ---- Kernels of other languages ---- */

static void call_object(tl_context *tl, const tl_arg *args)
{
    double *sum = tl_user();
    *sum += (double)args[1];
}

static void kernels_have_a_user_pointer(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    double sums[2] = {0, 0};
    kb_tensor x;
    expect_ok(kb_zeros(ctx, &(kb_tensor_spec){.dtype = KB_F32, .shape = KB_SHAPE(1)}, &x));
    for (int i = 0; i < 2; i++) {
        kb_kernel kernel = {.name = "object",
                            .parameters = "tl_ptr x, double number",
                            .parameter_count = 2,
                            .file = __FILE__,
                            .line = __LINE__,
                            .run = call_object,
                            .user = &sums[i]};
        expect_ok(kb_launch(ctx, NULL, &kernel, x, 2.5 + i));
    }
    assert_true(sums[0] == 2.5 && sums[1] == 3.5);
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_are_those_of_a_tensor),
        cmocka_unit_test(every_range_has_addresses),
        cmocka_unit_test(addresses_out_of_range_are_refused),
        cmocka_unit_test(a_slice_is_a_part_of_the_hbm),
        cmocka_unit_test(failed_ranks_are_listed),
        cmocka_unit_test(kernels_have_a_user_pointer),
    };
    return cmocka_run_group_tests_name("queries", tests, NULL, NULL);
}
