/*
 * test_tensor_memory.c: tensors come and go for a long time and nothing grows; and when a memory is
 * full that is said, and everything is as before.
 */
#include "tensors.h"

#include "rt/runtime.h"
#include "support/failing_alloc.h"
#include "support/seed.h"

/* ---- Coming and going -------------------------------------------------------------------- */

/* What a context has, in the host's memory and in the machine's. */
typedef struct sizes {
    size_t live; /* blocks of the host's memory */
    uint32_t tensor_places, request_places;
    size_t va_capacity, va_gap_capacity;
    size_t content_bytes;
} sizes;

static sizes sizes_of(const kb_context *ctx)
{
    return (sizes){
        .live = failing_alloc_live(),
        .tensor_places = ctx->tensors.pool.used,
        .request_places = ctx->requests.pool.used,
        .va_capacity = ctx->va.used.capacity,
        .va_gap_capacity = ctx->va.free.capacity,
        .content_bytes = mem_memories_content_bytes(ctx->memories),
    };
}

static void expect_same_sizes(sizes a, sizes b)
{
    assert_int_equal(a.live, b.live);
    assert_int_equal(a.tensor_places, b.tensor_places);
    assert_int_equal(a.request_places, b.request_places);
    assert_int_equal(a.va_capacity, b.va_capacity);
    assert_int_equal(a.va_gap_capacity, b.va_gap_capacity);
    assert_int_equal(a.content_bytes, b.content_bytes);
}

/* Nothing is left of any tensor, anywhere; but for pages of contents that it had a part of. */
static void expect_all_gone(kb_context *ctx)
{
    expect_ok(kb_synchronize(ctx));
    kb_machine machine = kb_context_machine(ctx);
    uint32_t pes = machine.sips * machine.cubes * machine.pes;
    for (uint32_t i = 0; i < pes; i++) {
        kb_pe pe = {i / machine.pes / machine.cubes, i / machine.pes % machine.cubes,
                    i % machine.pes};
        for (int memory = KB_HBM; memory <= KB_TCM; memory++) {
            mem_stats f = mem_memories_get_stats(ctx->memories, pe, (kb_memory)memory);
            assert_int_equal(f.blocks, 0);
            assert_int_equal(f.free, f.capacity);
            assert_int_equal(f.largest, f.capacity);
        }
    }
    assert_true(mem_memories_content_bytes(ctx->memories) <= pes * 8 * MEM_PAGE_BYTES);
    assert_int_equal(ctx->va.used.count, 0);
    assert_int_equal(ctx->va.free_bytes, MEM_VA_BYTES);
    assert_int_equal(rt_table_next(&ctx->tensors, 0), 0);
    assert_int_equal(rt_table_next(&ctx->requests, 0), 0);
    assert_int_equal(ctx->under_way, 0);
    assert_int_equal(ctx->driver.under_way, 0);
    assert_null(ctx->jobs);
}

static void use_one(kb_context *ctx, kb_rng *rng)
{
    static unsigned char bytes[900];
    kb_policy policy = {.cube = KB_ROW_WISE, .pe = KB_COLUMN_WISE};
    kb_tensor_spec spec = {
        .shape = KB_SHAPE(15, 15), .dtype = KB_F32, .policy = &policy, .access = draw_access(rng)};
    kb_tensor x, y, h;
    expect_ok(kb_from_host(ctx, &spec, bytes, sizeof bytes, &h));
    expect_ok(kb_full(ctx, &spec, 1, &x));
    expect_ok(kb_empty(ctx, &spec, &y));
    expect_ok(kb_tensor_copy(ctx, x, h, KB_TIMED));
    expect_ok(kb_tensor_copy(ctx, y, x, KB_TIMED));
    if (one_in(rng, 2))
        expect_ok(kb_tensor_to_host(ctx, y, KB_TIMED, bytes, sizeof bytes));
    expect_ok(kb_tensor_free(ctx, x));
    expect_ok(kb_tensor_free(ctx, h));
    expect_ok(kb_tensor_free(ctx, y));
    expect_ok(kb_synchronize(ctx));
}

static void tensors_come_and_go_without_growth(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(ODD_ONES);
    kb_rng rng;
    kb_rng_init(&rng, test_seed(41));
    for (uint64_t n = 0; n < 20; n++)
        use_one(ctx, &rng);
    sizes before = sizes_of(ctx);
    for (uint64_t n = cases(1500); n > 0; n--)
        use_one(ctx, &rng);
    expect_same_sizes(sizes_of(ctx), before);
    expect_all_gone(ctx);
    kb_context_destroy(ctx);
}

/* Any number up to LIVE at a time, in any order, of any layout. */
static void any_coming_and_going_leaves_nothing(void **state)
{
    (void)state;
    enum { LIVE = 10 };
    kb_rng rng;
    kb_rng_init(&rng, test_seed(42));
    for (int m = 0; m < SMALL_MACHINES; m++) {
        size_t live_before = failing_alloc_live();
        kb_context *ctx = open_machine(small_machines[m]);
        kb_machine machine = kb_context_machine(ctx);
        kb_tensor tensors[LIVE];
        bool there[LIVE] = {false};
        for (uint64_t n = cases(500); n > 0; n--) {
            size_t i = below(&rng, LIVE);
            if (there[i]) {
                expect_ok(kb_tensor_free(ctx, tensors[i]));
            } else {
                kb_policy policy;
                kb_tensor_spec spec = draw_spec(&rng, &machine, &policy);
                expect_ok(kb_ahbm_set_device(ctx, (uint32_t)below(&rng, machine.sips)));
                expect_ok(kb_full(ctx, &spec, 5, &tensors[i]));
            }
            there[i] = !there[i];
            if (one_in(&rng, 10))
                expect_ok(kb_synchronize(ctx));
        }
        assert_true(ctx->tensors.pool.used <= LIVE + 1);
        for (size_t i = 0; i < LIVE; i++)
            if (there[i])
                expect_ok(kb_tensor_free(ctx, tensors[i]));
        expect_all_gone(ctx);
        kb_context_destroy(ctx);
        assert_int_equal(failing_alloc_live(), live_before);
    }
}

/* ---- Full memories ----------------------------------------------------------------------- */

static kb_tensor_spec bytes_in(kb_memory memory, uint64_t bytes, const kb_policy *policy)
{
    return (kb_tensor_spec){.name = "x",
                            .shape = KB_SHAPE(bytes),
                            .dtype = KB_I8,
                            .memory = memory,
                            .policy = policy,
                            .access = KB_UNTIMED};
}

/* 6 GiB of HBM; 16 MiB of TCM without the 4 that the scheduler keeps. */
static void a_memory_can_be_used_to_the_last_byte(void **state)
{
    (void)state;
    static const struct {
        kb_memory memory;
        uint64_t bytes;
        const char *message;
    } memories[] = {
        {KB_HBM, (uint64_t)6 << 30,
         "kb_empty: tensor 'x': out of memory in sip0.cube0.pe0.hbm: 6442450945 bytes "
         "requested, 6442450944 free (capacity 6442450944)"},
        {KB_TCM, 12 << 20,
         "kb_empty: tensor 'x': out of memory in sip0.cube0.pe0.tcm: 12582913 bytes requested, "
         "12582912 free (capacity 12582912)"},
    };
    kb_context *ctx = open_machine(ONE_PE);
    for (size_t i = 0; i < 2; i++) {
        kb_tensor x, y;
        kb_tensor_spec spec = bytes_in(memories[i].memory, memories[i].bytes + 1, NULL);
        expect_error(kb_empty(ctx, &spec, &x), KB_ERR_FAULT, memories[i].message);
        spec.shape.dims[0]--;
        expect_ok(kb_empty(ctx, &spec, &x));
        spec.shape.dims[0] = 1;
        kb_error *err = kb_empty(ctx, &spec, &y);
        assert_int_equal(kb_error_code(err), KB_ERR_FAULT);
        assert_non_null(strstr(kb_error_message(err), "1 byte requested, 0 free"));
        kb_error_free(err);
        expect_ok(kb_tensor_free(ctx, x));
        expect_ok(kb_empty(ctx, &spec, &y));
        expect_ok(kb_tensor_free(ctx, y));
    }
    expect_all_gone(ctx);
    kb_context_destroy(ctx);
}

/* All PEs but the last have room: what they gave goes back, and later the same is to be had. */
static void a_tensor_that_does_not_fit_leaves_everything_as_it_was(void **state)
{
    (void)state;
    static const kb_policy policies[] = {
        {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE},
        {.cube = KB_REPLICATE, .pe = KB_COLUMN_WISE},
        {0},
        {.tiling = KB_TILED_COLUMN_MAJOR, .tile_rows = 1, .tile_columns = 1000},
    };
    for (int n = 0; n < 16; n++) {
        kb_context *ctx = open_machine(THREE_SIPS);
        kb_memory memory = n & 1 ? KB_TCM : KB_HBM;
        kb_access access = n & 2 ? KB_TIMED : KB_UNTIMED;
        kb_machine machine = kb_context_machine(ctx);
        uint64_t capacity = memory == KB_TCM ? machine.tcm_bytes : machine.hbm_bytes;
        kb_location hog;
        kb_pe last = {0, 1, 3};
        expect_ok(kb_memory_alloc(ctx, last, memory, capacity - 100, 1, &hog));
        kb_tensor_spec spec = bytes_in(memory, 30000, &policies[n / 4]);
        spec.access = access;
        kb_tensor x;
        sizes before = sizes_of(ctx);
        for (int again = 0; again < 3; again++) {
            kb_error *err = kb_full(ctx, &spec, 1, &x);
            assert_int_equal(kb_error_code(err), KB_ERR_FAULT);
            assert_non_null(strstr(kb_error_message(err), "out of memory in sip0.cube1.pe3."));
            kb_error_free(err);
            if (again == 0)
                before = sizes_of(ctx); /* the memories' books have been opened */
            expect_same_sizes(sizes_of(ctx), before);
        }
        expect_ok(kb_memory_free(ctx, hog));
        expect_all_gone(ctx);
        assert_int_equal(kb_context_now(ctx), 0);
        expect_ok(kb_full(ctx, &spec, 1, &x));
        kb_location at = {0};
        for (size_t i = 0; at.pe.cube != last.cube || at.pe.pe != last.pe; i++)
            expect_ok(kb_tensor_shard_location(ctx, x, i, &at));
        assert_int_equal(at.offset, 0);
        expect_ok(kb_tensor_free(ctx, x));
        expect_all_gone(ctx);
        kb_context_destroy(ctx);
    }
}

/* Filled up with tensors of all sizes, emptied and filled again. */
static void a_full_memory_can_be_filled_again(void **state)
{
    (void)state;
    enum { MOST = 200 };
    kb_context *ctx = open_machine(ONE_PE);
    kb_tensor tensors[MOST];
    size_t counts[2];
    for (int round = 0; round < 2; round++) {
        kb_rng rng;
        kb_rng_init(&rng, test_seed(43));
        size_t count = 0;
        for (; count < MOST; count++) {
            kb_tensor_spec spec = bytes_in(KB_TCM, 1 + below(&rng, 1 << 18), NULL);
            kb_error *err = kb_empty(ctx, &spec, &tensors[count]);
            kb_location at;
            if (err) {
                assert_int_equal(kb_error_code(err), KB_ERR_FAULT);
                kb_error_free(err);
                break;
            }
            expect_ok(kb_tensor_shard_location(ctx, tensors[count], 0, &at));
            assert_int_equal(at.offset % 64, 0);
        }
        assert_true(count > 50 && count < MOST);
        counts[round] = count;
        while (count > 0) /* every other one first */
            for (size_t i = count; i-- > 0; i -= i > 0) {
                expect_ok(kb_tensor_free(ctx, tensors[i]));
                memmove(&tensors[i], &tensors[i + 1], (--count - i) * sizeof *tensors);
            }
        expect_all_gone(ctx);
    }
    assert_int_equal(counts[0], counts[1]);
    kb_context_destroy(ctx);
}

static void without_addresses_there_is_no_tensor(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(THREE_SIPS);
    static const kb_policy policy = {0};
    uint64_t va;
    kb_tensor x;
    expect_ok(kb_va_alloc(ctx, MEM_VA_BYTES - 8192, &va));
    kb_tensor_spec spec = bytes_in(KB_HBM, 4097, &policy);
    expect_error(
        kb_empty(ctx, &spec, &x), KB_ERR_FAULT,
        "kb_empty: tensor 'x': out of virtual addresses: 8193 bytes requested, 8192 free, the "
        "largest range 8192");
    assert_int_equal(mem_memories_get_stats(ctx->memories, (kb_pe){0}, KB_HBM).blocks, 0);
    spec.shape.dims[0] = 4096;
    expect_ok(kb_empty(ctx, &spec, &x));
    spec.shape.dims[0] = 0; /* it has addresses too */
    kb_tensor y;
    kb_error *err = kb_empty(ctx, &spec, &y);
    assert_int_equal(kb_error_code(err), KB_ERR_FAULT);
    kb_error_free(err);
    expect_ok(kb_tensor_free(ctx, x));
    expect_ok(kb_va_free(ctx, va));
    expect_all_gone(ctx);
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_come_and_go_without_growth),
        cmocka_unit_test(any_coming_and_going_leaves_nothing),
        cmocka_unit_test(a_memory_can_be_used_to_the_last_byte),
        cmocka_unit_test(a_tensor_that_does_not_fit_leaves_everything_as_it_was),
        cmocka_unit_test(a_full_memory_can_be_filled_again),
        cmocka_unit_test(without_addresses_there_is_no_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
