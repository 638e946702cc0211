/*
 * test_tensor_alloc.c: whichever allocation fails, calls on tensors work or say that there is no
 * memory; nothing is lost, and the context can be used on.
 */
#include "tensors.h"

#include "rt/runtime.h"
#include "support/failing_alloc.h"

enum { TENSORS = 4, SIDE = 12, BYTES = SIDE * SIDE * 2 };

/* A program, and the tensors that it has at the time. */
typedef struct program {
    kb_context *ctx;
    kb_tensor tensors[TENSORS];
    bool there[TENSORS];
} program;

static kb_error *note(program *p, int i, kb_error *err)
{
    p->there[i] = !err;
    return err;
}

static kb_error *drop(program *p, int i)
{
    KB_TRY(kb_tensor_free(p->ctx, p->tensors[i]));
    p->there[i] = false;
    return NULL;
}

/* Everything that can be done with tensors, through the access. */
static kb_error *use_tensors(program *p, kb_access access)
{
    static const kb_policy rows = {.cube = KB_ROW_WISE, .pe = KB_COLUMN_WISE};
    static const kb_policy tiles = {
        .tiling = KB_TILED_ROW_MAJOR, .tile_rows = 5, .tile_columns = 5};
    kb_context *ctx = p->ctx;
    unsigned char data[BYTES], back[BYTES];
    kb_tensor *t = p->tensors;
    char *text;
    double value;
    for (int i = 0; i < BYTES; i++)
        data[i] = (unsigned char)i;
    kb_tensor_spec spec = {
        .shape = KB_SHAPE(SIDE, SIDE), .dtype = KB_F16, .policy = &rows, .access = access};
    KB_TRY(note(p, 0, kb_from_host(ctx, &spec, data, BYTES, &t[0])));
    KB_TRY(note(p, 1, kb_full(ctx, &spec, 1, &t[1])));
    spec.policy = &tiles;
    spec.memory = KB_TCM;
    KB_TRY(note(p, 2, kb_zeros(ctx, &spec, &t[2])));
    KB_TRY(kb_tensor_copy(ctx, t[1], t[0], access));
    KB_TRY(kb_tensor_copy(ctx, t[2], t[1], access));
    KB_TRY(kb_tensor_copy(ctx, t[0], t[2], access));
    KB_TRY(kb_tensor_to_host(ctx, t[0], access, back, BYTES));
    expect_bytes(back, data, BYTES);
    KB_TRY(drop(p, 1));
    KB_TRY(note(p, 3, kb_empty(ctx, &spec, &t[3])));
    KB_TRY(drop(p, 3)); /* before it is mapped */
    KB_TRY(kb_tensor_set_slice(ctx, t[2], access, &KB_SLICE({3, 9}), data, BYTES / 2));
    KB_TRY(kb_tensor_fill_slice(ctx, t[2], access, &KB_SLICE({0, SIDE}, {7, 8}), 2));
    KB_TRY(kb_tensor_set(ctx, t[2], access, &KB_INDEX(1, 1), 3));
    KB_TRY(kb_tensor_get(ctx, t[2], access, &KB_INDEX(1, 1), &value));
    assert_true(value == 3);
    KB_TRY(kb_tensor_get_slice(ctx, t[2], access, &KB_SLICE({0, 1}, {7, 8}), back, 2));
    expect_bytes(back, (unsigned char[]){0x00, 0x40}, 2);
    KB_TRY(kb_tensor_repr(ctx, t[2], access, &text));
    free(text);
    KB_TRY(drop(p, 2));
    KB_TRY(drop(p, 0));
    return kb_synchronize(ctx);
}

static void drop_all(program *p)
{
    for (int i = 0; i < TENSORS; i++)
        if (p->there[i])
            expect_ok(drop(p, i));
}

static void expect_no_tensors(const kb_context *ctx)
{
    const topo_shape *shape = ctx->shape;
    for (uint32_t i = 0; i < shape->pe_count; i++) {
        kb_pe pe = {i / shape->pes / shape->cubes, i / shape->pes % shape->cubes, i % shape->pes};
        assert_int_equal(mem_memories_get_stats(ctx->memories, pe, KB_HBM).blocks, 0);
        assert_int_equal(mem_memories_get_stats(ctx->memories, pe, KB_TCM).blocks, 0);
    }
    assert_int_equal(rt_table_next(&ctx->tensors, 0), 0);
    assert_int_equal(rt_table_next(&ctx->requests, 0), 0);
    assert_int_equal(ctx->under_way, 0);
    assert_int_equal(ctx->driver.under_way, 0);
    assert_null(ctx->jobs);
    assert_int_equal(ctx->va.free_bytes, MEM_VA_BYTES);
}

static void expect_ok_or_no_memory(kb_error *err)
{
    if (err && kb_error_code(err) != KB_ERR_HOST)
        fail_msg("expected no memory, found '%s'", kb_error_message(err));
    kb_error_free(err);
}

/* The machine has stopped for good: all that takes time says so, and the rest goes on. */
static void expect_standstill(kb_context *ctx)
{
    static const char message[] = "the simulation ran out of host memory before and cannot "
                                  "continue";
    kb_tensor_spec spec = {.shape = KB_SHAPE(3), .dtype = KB_I8, .access = KB_UNTIMED};
    kb_tensor x, y;
    kb_shape shape;
    expect_error(kb_synchronize(ctx), KB_ERR_HOST, message);
    expect_ok(kb_full(ctx, &spec, 1, &x));
    expect_ok(kb_tensor_shape(ctx, x, &shape));
    expect_error(kb_tensor_set(ctx, x, KB_TIMED, &KB_INDEX(1), 3), KB_ERR_HOST, message);
    expect_ok(kb_tensor_set(ctx, x, KB_UNTIMED, &KB_INDEX(1), 3));
    expect_ok(kb_tensor_free(ctx, x));
    spec.access = KB_TIMED;
    kb_error *err = kb_empty(ctx, &spec, &y);
    assert_int_equal(kb_error_code(err), KB_ERR_HOST);
    kb_error_free(err);
}

/* Fails the n-th allocation; false if there were not so many. */
static bool fail_one(kb_access access, long n, failing_alloc_mode mode)
{
    size_t before = failing_alloc_live();
    program p = {.ctx = open_machine(ODD_ONES)};
    failing_alloc_arm(n, mode);
    kb_error *err = use_tensors(&p, access);
    bool failed = failing_alloc_disarm();
    if (!failed)
        assert_null(err);
    expect_ok_or_no_memory(err);
    expect_ok_or_no_memory(kb_synchronize(p.ctx));
    if (p.ctx->broken) {
        expect_standstill(p.ctx);
    } else {
        drop_all(&p);
        expect_ok(use_tensors(&p, access));
        expect_no_tensors(p.ctx);
    }
    kb_context_destroy(p.ctx);
    assert_int_equal(failing_alloc_live(), before);
    return failed;
}

static void fail_all(kb_access access)
{
    for (int mode = FAIL_ONCE; mode <= FAIL_ONWARDS; mode++)
        for (long n = 1; fail_one(access, n, (failing_alloc_mode)mode); n++)
            ;
}

static void without_memory_untimed(void **state)
{
    (void)state;
    fail_all(KB_UNTIMED);
}

static void without_memory_through_the_fabric(void **state)
{
    (void)state;
    fail_all(KB_TIMED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_memory_untimed),
        cmocka_unit_test(without_memory_through_the_fabric),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
