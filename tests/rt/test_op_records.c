/*
 * test_op_records.c: what a watcher of the operations is told besides times: which part of which
 * tensor a transfer accesses, what was under way when a run failed, and the TCM in use.
 */
#include "tensors.h"

#include <kernbench/tl.h>

#include "rt/rt.h"

enum { N = 200 }; /* elements of x and y */

KB_KERNEL(touch, tl_ptr x, tl_ptr y)
{
    tl_tensor part = tl_load(x + 8, tl_shape(64), TL_F16);
    (void)(tl_load(x, tl_shape(2, 3), TL_F16, .strides = tl_strides(10, 1)));
    tl_tensor mask = tl_lt(tl_arange(0, 4), 2); /* the other two are behind the end */
    (void)(tl_load(x + 2 * (N - 2), tl_shape(4), TL_F16, .mask = mask));
    tl_store(y + 4, part);
}

/* One operation, with its accesses. */
typedef struct kept_op {
    kb_unit unit;
    char name[16];
    size_t access_count;
    kb_op_access accesses[3];
    char names[3][16];
    uint64_t bytes;
    bool unfinished;
} kept_op;

typedef struct record {
    KB_VEC(kept_op) ops;
    uint64_t tcm_peak, tcm_now, tcm_changes;
} record;

static void keep_op(void *self, const kb_op *op)
{
    record *r = self;
    kept_op kept = {.unit = op->unit,
                    .access_count = op->access_count,
                    .bytes = op->bytes,
                    .unfinished = op->unfinished};
    snprintf(kept.name, sizeof kept.name, "%s", op->name);
    assert_true(op->access_count <= 3);
    for (size_t i = 0; i < op->access_count; i++) {
        kept.accesses[i] = op->accesses[i];
        snprintf(kept.names[i], sizeof kept.names[i], "%s", op->accesses[i].tensor);
    }
    assert_true(kb_vec_push(&r->ops, kept));
}

static void keep_tcm(void *self, const kb_pe *pe, kb_time now, uint64_t bytes)
{
    record *r = self;
    assert_true(pe->sip == 0 && pe->cube == 0 && pe->pe == 0 && now >= 0);
    r->tcm_now = bytes;
    r->tcm_peak = bytes > r->tcm_peak ? bytes : r->tcm_peak;
    r->tcm_changes++;
}

static kb_context *open_recorded(const char *machine, record *r)
{
    *r = (record){0};
    return open_context(
        machine, (kb_context_options){
                     .on_op = keep_op, .on_op_self = r, .on_tcm = keep_tcm, .on_tcm_self = r});
}

static kb_tensor matrix_of(kb_context *ctx, const char *name, uint64_t rows, uint64_t columns)
{
    kb_tensor tensor;
    expect_ok(kb_empty(
        ctx,
        &(kb_tensor_spec){
            .name = name, .shape = KB_SHAPE(rows, columns), .dtype = KB_F16, .access = KB_UNTIMED},
        &tensor));
    return tensor;
}

/* The n-th operation of this name at a PE. */
static const kept_op *find_op(const record *r, const char *name, size_t n)
{
    for (size_t i = 0; i < r->ops.count; i++)
        if (r->ops.items[i].unit != KB_UNIT_HOST && strcmp(r->ops.items[i].name, name) == 0 &&
            n-- == 0)
            return &r->ops.items[i];
    fail_msg("no such operation: %s", name);
    return NULL;
}

static void expect_access(const kept_op *op, size_t which, const char *name, bool write,
                          uint64_t offset, uint64_t bytes)
{
    assert_true(which < op->access_count);
    const kb_op_access *access = &op->accesses[which];
    assert_string_equal(op->names[which], name);
    assert_int_equal(access->dtype, KB_F16);
    assert_int_equal(access->write, write);
    assert_int_equal(access->offset, offset);
    assert_int_equal(access->bytes, bytes);
}

/*
 * 64 elements of 2 bytes from byte 8 on; rows at 0 and 10 * 2, of 3 elements: up to (10 + 3) * 2;
 * the last two elements; and 64 elements from byte 4 on.
 */
static void transfers_name_their_tensors(void **state)
{
    (void)state;
    record r;
    kb_context *ctx = open_recorded(ONE_PE, &r);
    kb_tensor x = matrix_of(ctx, "x", 1, N), y = matrix_of(ctx, "y", 1, N);
    expect_ok(kb_launch(ctx, "touch", &touch, x, y));
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(find_op(&r, "load", i)->access_count, 1);
    bool found[3] = {false};
    for (size_t i = 0; i < 3; i++) { /* in the order of their ends */
        const kept_op *load = find_op(&r, "load", i);
        size_t which = load->bytes == 128 ? 0 : load->bytes == 12 ? 1 : 2;
        static const uint64_t offsets[] = {8, 0, 2 * (N - 2)}, bytes[] = {128, 26, 4};
        expect_access(load, 0, "x", false, offsets[which], bytes[which]);
        found[which] = true;
    }
    assert_true(found[0] && found[1] && found[2]);
    expect_access(find_op(&r, "store", 0), 0, "y", true, 4, 128);
    assert_int_equal(find_op(&r, "lt", 0)->access_count, 0);
    kb_context_destroy(ctx);
    kb_vec_fini(&r.ops);
}

KB_KERNEL(multiply, tl_ptr a, tl_ptr b, tl_ptr c, int64_t m, int64_t k, int64_t n)
{
    tl_tensor left = tl_ref(a, tl_shape(m, k), TL_F16);
    tl_tensor right = tl_ref(b, tl_shape(k, n), TL_F16);
    tl_wait(tl_composite(TL_GEMM, left, right, tl_ref(c, tl_shape(m, n), TL_F16)));
}

/* What all transfers together access of a tensor. */
typedef struct extent {
    uint64_t first, end, accesses;
} extent;

static extent extent_of(const record *r, const char *name, bool write)
{
    extent all = {.first = UINT64_MAX};
    for (size_t i = 0; i < r->ops.count; i++) {
        const kept_op *op = &r->ops.items[i];
        for (size_t k = 0; k < op->access_count && op->unit != KB_UNIT_SCHEDULER; k++) {
            const kb_op_access *access = &op->accesses[k];
            if (strcmp(op->names[k], name) != 0)
                continue;
            assert_int_equal(access->write, write);
            uint64_t end = access->offset + access->bytes;
            all.first = access->offset < all.first ? access->offset : all.first;
            all.end = end > all.end ? end : all.end;
            all.accesses++;
        }
    }
    return all;
}

static void expect_all_of(const record *r, const char *name, bool write, uint64_t bytes)
{
    extent all = extent_of(r, name, write);
    assert_true(all.accesses > 0);
    assert_int_equal(all.first, 0);
    assert_int_equal(all.end, bytes);
}

/* Tiles of all sizes: together they reach from the first element of each matrix to its last. */
static void products_name_the_parts_of_their_matrices(void **state)
{
    (void)state;
    static const uint64_t sizes[][3] = {{1, 1, 1}, {64, 64, 64}, {300, 77, 513}, {5, 2000, 3}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint64_t m = sizes[i][0], k = sizes[i][1], n = sizes[i][2];
        record r;
        kb_context *ctx = open_recorded(ONE_PE, &r);
        kb_tensor a = matrix_of(ctx, "a", m, k), b = matrix_of(ctx, "b", k, n);
        kb_tensor c = matrix_of(ctx, "c", m, n);
        expect_ok(kb_launch(ctx, "mm", &multiply, a, b, c, m, k, n));
        const kept_op *whole = NULL;
        for (size_t o = 0; o < r.ops.count; o++)
            if (r.ops.items[o].unit == KB_UNIT_SCHEDULER)
                whole = &r.ops.items[o];
        assert_non_null(whole);
        assert_int_equal(whole->access_count, 3);
        expect_access(whole, 0, "a", false, 0, 2 * m * k);
        expect_access(whole, 1, "b", false, 0, 2 * k * n);
        expect_access(whole, 2, "c", true, 0, 2 * m * n);
        expect_all_of(&r, "a", false, 2 * m * k);
        expect_all_of(&r, "b", false, 2 * k * n);
        expect_all_of(&r, "c", true, 2 * m * n);
        kb_context_destroy(ctx);
        kb_vec_fini(&r.ops);
    }
}

KB_KERNEL(hold, tl_ptr x)
{
    tl_tensor a = tl_load(x, tl_shape(64), TL_F16);
    tl_tensor b = tl_add(a, 1);
    tl_wait(tl_store(x, b));
    tl_free(a);
    tl_wait(tl_store(x, tl_add(b, b)));
}

/* Two values of 128 bytes, then one of them, then one more; at the end none. */
static void tcm_in_use_follows_values(void **state)
{
    (void)state;
    record r;
    kb_context *ctx = open_recorded(ONE_PE, &r);
    kb_tensor x = matrix_of(ctx, "x", 1, N);
    assert_int_equal(r.tcm_changes, 0); /* it is in HBM */
    expect_ok(kb_launch(ctx, "hold", &hold, x));
    assert_int_equal(r.tcm_peak, 256);
    assert_int_equal(r.tcm_now, 0);
    assert_int_equal(r.tcm_changes, 6);
    kb_context_destroy(ctx);
    kb_vec_fini(&r.ops);
}

/* A tensor in the TCM counts until it is freed. */
static void tcm_in_use_follows_tensors(void **state)
{
    (void)state;
    record r;
    kb_context *ctx = open_recorded(ONE_PE, &r);
    kb_tensor x;
    kb_tensor_spec spec = {.name = "x",
                           .shape = KB_SHAPE(96),
                           .dtype = KB_F32,
                           .memory = KB_TCM,
                           .access = KB_UNTIMED};
    expect_ok(kb_empty(ctx, &spec, &x));
    assert_int_equal(r.tcm_now, 384);
    expect_ok(kb_tensor_free(ctx, x));
    assert_int_equal(r.tcm_now, 0);
    kb_context_destroy(ctx);
    kb_vec_fini(&r.ops);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transfers_name_their_tensors),
        cmocka_unit_test(products_name_the_parts_of_their_matrices),
        cmocka_unit_test(tcm_in_use_follows_values),
        cmocka_unit_test(tcm_in_use_follows_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
