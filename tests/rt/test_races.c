/*
 * test_races.c: that numbers belong to operations and not to addresses. Each case is one in which a
 * program that replays addresses after the fact gets a wrong result: memory is overwritten, given
 * back and used again, or looked at late.
 *
 * Checks H2.
 */
#include "tensors.h"

#include <kernbench/tl.h>

enum { N = 96 };

/* ---- Kernels ----------------------------------------------------------------------------- */

/* The source changes between the load and the store of what was loaded. */
KB_KERNEL(overwrite_source, tl_ptr x, tl_ptr y, int n)
{
    tl_tensor old = tl_load(x, tl_shape(n), TL_F32);
    tl_store(x, tl_full(tl_shape(n), TL_F32, 100));
    tl_tensor changed = tl_load(x, tl_shape(n), TL_F32);
    tl_store(y, tl_add(old, tl_mul(changed, 10)));
}

/* A store takes the value that it was given, and the next one of the same place comes after it. */
KB_KERNEL(store_twice, tl_ptr x, tl_ptr y, int n)
{
    tl_tensor v = tl_load(x, tl_shape(n), TL_F32);
    tl_store(y, v);
    tl_tensor w = tl_add(v, 1);
    tl_free(v);
    tl_store(y, w);
    tl_tensor back = tl_load(y, tl_shape(n), TL_F32);
    tl_store(x, tl_mul(back, 2));
}

/* The TCM that a value had is used by another one before the first was looked at. */
KB_KERNEL(reuse_scratch, tl_ptr x, tl_ptr y, int n, int rounds)
{
    for (int i = 0; i < rounds; i++) {
        TL_SCOPE {
            tl_tensor v = tl_load(x, tl_shape(n), TL_F32);
            tl_store(y + i * n * 4, tl_add(v, i));
        }
    }
}

/* One operand has just been freed and its place taken, the other is scratch. */
KB_KERNEL(mixed_operands, tl_ptr x, tl_ptr y, int n)
{
    tl_tensor a = tl_load(x, tl_shape(n), TL_F32);
    tl_tensor b = tl_mul(a, 3);
    tl_tensor sum = tl_add(a, b);
    tl_free(a);
    tl_tensor c = tl_full(tl_shape(n), TL_F32, 1000); /* where a was */
    tl_store(y, sum);
    tl_free(b);
    tl_store(y + n * 4, tl_add(sum, c));
}

/* Operands that stay in memory; what is there changes right after. */
KB_KERNEL(products, tl_ptr a, tl_ptr b, tl_ptr c, int m, int k, int n)
{
    tl_tensor x = tl_ref(a, tl_shape(m, k), TL_F32), y = tl_ref(b, tl_shape(k, n), TL_F32);
    tl_composite(TL_GEMM, x, y, tl_ref(c, tl_shape(m, n), TL_F32));
    tl_store(a, tl_zeros(tl_shape(m, k), TL_F32));
    tl_store(c + m * n * 4, tl_dot(x, y)); /* of zeros by now */
    tl_tensor first = tl_load(c, tl_shape(m, n), TL_F32);
    tl_store(c + 2 * m * n * 4, tl_mul(first, 2));
}

/* ---- Cases ------------------------------------------------------------------------------- */

typedef struct stage {
    kb_context *ctx;
    kb_tensor x, y;
    float data[N];
} stage;

static kb_tensor make(kb_context *ctx, const char *name, uint64_t count)
{
    kb_tensor_spec spec = {.name = name, .dtype = KB_F32, .shape = KB_SHAPE(count)};
    kb_tensor tensor;
    expect_ok(kb_zeros(ctx, &spec, &tensor));
    return tensor;
}

static stage set_up(uint64_t results)
{
    stage s = {.ctx = open_machine(ONE_PE)};
    for (int i = 0; i < N; i++)
        s.data[i] = (float)(i % 17) - 8;
    s.x = make(s.ctx, "x", N);
    s.y = make(s.ctx, "y", results);
    expect_ok(kb_tensor_set_slice(s.ctx, s.x, KB_TIMED, NULL, s.data, sizeof s.data));
    return s;
}

static void expect_result(const stage *s, kb_tensor tensor, const float *expected, size_t count)
{
    expect_contents(s->ctx, tensor, KB_TIMED, expected, count * sizeof *expected);
}

static void a_loaded_value_does_not_change(void **state)
{
    (void)state;
    stage s = set_up(N);
    expect_ok(kb_launch(s.ctx, NULL, &overwrite_source, s.x, s.y, N));
    float expected[N];
    for (int i = 0; i < N; i++)
        expected[i] = s.data[i] + 1000;
    expect_result(&s, s.y, expected, N);
    kb_context_destroy(s.ctx);
}

static void a_store_takes_its_value(void **state)
{
    (void)state;
    stage s = set_up(N);
    expect_ok(kb_launch(s.ctx, NULL, &store_twice, s.x, s.y, N));
    float last[N], twice[N];
    for (int i = 0; i < N; i++) {
        last[i] = s.data[i] + 1;
        twice[i] = 2 * last[i];
    }
    expect_result(&s, s.y, last, N);
    expect_result(&s, s.x, twice, N);
    kb_context_destroy(s.ctx);
}

static void scratch_is_nobodys_after_its_scope(void **state)
{
    (void)state;
    enum { ROUNDS = 9 };
    stage s = set_up((uint64_t)N * ROUNDS);
    expect_ok(kb_launch(s.ctx, NULL, &reuse_scratch, s.x, s.y, N, ROUNDS));
    float expected[N * ROUNDS];
    for (int i = 0; i < N * ROUNDS; i++)
        expected[i] = s.data[i % N] + (float)(i / N);
    expect_result(&s, s.y, expected, (size_t)N * ROUNDS);
    kb_context_destroy(s.ctx);
}

/* A later kernel uses the same TCM, and the source is other data by then; nobody has looked yet. */
static void a_later_kernel_changes_nothing(void **state)
{
    (void)state;
    stage s = set_up((uint64_t)N * 2);
    kb_tensor z = make(s.ctx, "z", (uint64_t)N * 2);
    expect_ok(kb_launch(s.ctx, "first", &mixed_operands, s.x, s.y, N));
    float other[N];
    for (int i = 0; i < N; i++)
        other[i] = 7;
    expect_ok(kb_tensor_set_slice(s.ctx, s.x, KB_TIMED, NULL, other, sizeof other));
    expect_ok(kb_launch(s.ctx, "second", &mixed_operands, s.x, z, N));
    float first[N * 2], second[N * 2];
    for (int i = 0; i < N; i++) {
        first[i] = 4 * s.data[i];
        first[N + i] = 4 * s.data[i] + 1000;
        second[i] = 28;
        second[N + i] = 1028;
    }
    expect_result(&s, s.y, first, (size_t)N * 2);
    expect_result(&s, z, second, (size_t)N * 2);
    kb_context_destroy(s.ctx);
}

static void products_use_what_was_in_memory(void **state)
{
    (void)state;
    enum { M = 6, K = 16, W = 4 }; /* M * K is N */
    stage s = set_up((uint64_t)M * W * 3);
    kb_tensor b = make(s.ctx, "b", (uint64_t)K * W);
    float weights[K * W], expected[M * W * 3] = {0};
    for (int i = 0; i < K * W; i++)
        weights[i] = (float)(i % 5) - 2;
    expect_ok(kb_tensor_set_slice(s.ctx, b, KB_TIMED, NULL, weights, sizeof weights));
    expect_ok(kb_launch(s.ctx, NULL, &products, s.x, b, s.y, M, K, W));
    for (int i = 0; i < M; i++)
        for (int j = 0; j < W; j++)
            for (int k = 0; k < K; k++)
                expected[i * W + j] += s.data[i * K + k] * weights[k * W + j];
    for (int i = 0; i < M * W; i++)
        expected[2 * M * W + i] = 2 * expected[i];
    expect_result(&s, s.y, expected, (size_t)M * W * 3);
    kb_context_destroy(s.ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loaded_value_does_not_change),
        cmocka_unit_test(a_store_takes_its_value),
        cmocka_unit_test(scratch_is_nobodys_after_its_scope),
        cmocka_unit_test(a_later_kernel_changes_nothing),
        cmocka_unit_test(products_use_what_was_in_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
