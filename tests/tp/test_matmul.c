/*
 * test_matmul.c: matrix products of random shapes, layouts, dtypes and machines against a product
 * in double precision; and errors.
 *
 * Contents are small integers, so that all sums are exact and results are compared bit for bit.
 */
#include "tp_machines.h"

#include "tp/matmul.h"

static uint64_t state = 1;

static uint64_t draw(uint64_t from, uint64_t to)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return from + (state >> 33) % (to - from + 1);
}

static kb_policy draw_policy(uint64_t rows, uint64_t columns)
{
    if (draw(0, 3) == 0)
        return (kb_policy){.tiling = draw(0, 1) ? KB_TILED_ROW_MAJOR : KB_TILED_COLUMN_MAJOR,
                           .tile_rows = draw(1, rows),
                           .tile_columns = draw(columns / 4 + 1, columns)};
    return (kb_policy){.cube = (kb_split)draw(0, 2), .pe = (kb_split)draw(0, 2)};
}

typedef struct product {
    uint64_t m, k, n;
    kb_dtype x, w, out;
    bool best, bias;
} product;

static double *draw_numbers(uint64_t seed, uint64_t count)
{
    double *numbers = malloc(count * sizeof *numbers);
    assert_non_null(numbers);
    for (uint64_t i = 0; i < count; i++)
        numbers[i] = small_integer(seed, i);
    return numbers;
}

static void check_product(kb_context *ctx, const product *p)
{
    double *x = draw_numbers(state, p->m * p->k), *w = draw_numbers(state + 1, p->k * p->n);
    double *b = draw_numbers(state + 2, p->n);
    kb_policy px = draw_policy(p->m, p->k), pw = draw_policy(p->k, p->n),
              po = draw_policy(p->m, p->n), pb = draw_policy(1, p->n);
    if (p->best)
        tp_best_layout(ctx, p->m, p->k, p->n, p->x, false, &pw, &px, &po);
    const tp_matmul_spec spec = {
        .x = make_tensor(ctx, "x", p->x, KB_SHAPE(p->m, p->k), &px, x),
        .w = make_tensor(ctx, "w", p->w, KB_SHAPE(p->k, p->n), &pw, w),
        .out = make_tensor(ctx, "out", p->out, KB_SHAPE(p->m, p->n), &po, NULL),
        .bias = p->bias ? make_tensor(ctx, "bias", p->out, KB_SHAPE(p->n), &pb, b) : (kb_tensor){0},
    };
    expect_ok(tp_matmul(ctx, &spec));
    float *out = read_tensor(ctx, spec.out, p->m * p->n);
    for (uint64_t i = 0; i < p->m; i++)
        for (uint64_t j = 0; j < p->n; j++) {
            double sum = p->bias ? b[j] : 0;
            for (uint64_t k = 0; k < p->k; k++)
                sum += x[i * p->k + k] * w[k * p->n + j];
            float expected = (float)sum, rounded;
            unsigned char bytes[4];
            kb_convert(p->out, bytes, KB_F32, &expected, 1);
            kb_convert(KB_F32, &rounded, p->out, bytes, 1);
            if (out[i * p->n + j] != rounded)
                fail_msg("(%llu, %llu, %llu) at (%llu, %llu): %g, expected %g",
                         (unsigned long long)p->m, (unsigned long long)p->k,
                         (unsigned long long)p->n, (unsigned long long)i, (unsigned long long)j,
                         (double)out[i * p->n + j], (double)rounded);
        }
    free(out);
    free(x);
    free(w);
    free(b);
    expect_ok(kb_tensor_free(ctx, spec.x));
    expect_ok(kb_tensor_free(ctx, spec.w));
    expect_ok(kb_tensor_free(ctx, spec.out));
    if (p->bias)
        expect_ok(kb_tensor_free(ctx, spec.bias));
}

static const machine_size machines[] = {
    {.sips = 1, .w = 1, .h = 1, .pes = 1},
    {.sips = 1, .w = 2, .h = 1, .pes = 4},
    {.sips = 1, .w = 3, .h = 1, .pes = 3},
    {.sips = 1, .w = 1, .h = 2, .pes = 5},
    {.sips = 2, .w = 2, .h = 2, .pes = 2},
    {.sips = 1, .w = 5, .h = 1, .pes = 2, .cube_extra = ", pe_gemm: { rows: 16, columns: 8 }"},
    {.sips = 1,
     .w = 2,
     .h = 1,
     .pes = 3,
     .cube_extra = ", pe_tcm: { capacity_mib: 1, reserved_mib: 0.75 }"},
    {.sips = 1,
     .w = 2,
     .h = 1,
     .pes = 2,
     .cube_extra = ", pe_tcm: { capacity_mib: 1, reserved_mib: 0.875 }"},
};

static void products_of_any_shape_and_layout(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++) {
        kb_context *ctx = open_machine(machines[i], (kb_context_options){.races = KB_RACES_FAIL});
        for (int trial = 0; trial < 14; trial++) {
            product p = {.m = trial % 5 == 0 ? 1 : draw(1, 90),
                         .k = draw(1, trial % 3 == 0 ? 700 : 90),
                         .n = draw(1, trial % 3 == 1 ? 500 : 90),
                         .best = trial % 2,
                         .bias = draw(0, 1)};
            p.x = p.w = (kb_dtype)draw(0, KB_DTYPES - 1);
            p.out = p.x == KB_I8 || p.x == KB_I32 ? KB_I32 : (kb_dtype)draw(0, KB_F32);
            check_product(ctx, &p);
        }
        kb_context_destroy(ctx);
    }
}

static void larger_batches_go_in_blocks(void **unused)
{
    (void)unused;
    kb_context *ctx = open_machine((machine_size){.sips = 1, .w = 2, .h = 1, .pes = 3},
                                   (kb_context_options){.races = KB_RACES_FAIL});
    const product p = {.m = 512, .k = 96, .n = 130, .best = true, .out = KB_F32};
    check_product(ctx, &p);
    kb_context_destroy(ctx);
}

static void requests_are_waited_for_by_the_caller(void **unused)
{
    (void)unused;
    kb_context *ctx =
        open_machine((machine_size){.sips = 1, .w = 2, .h = 1, .pes = 2}, (kb_context_options){0});
    double *ones = malloc(64 * 64 * sizeof *ones);
    assert_non_null(ones);
    for (int i = 0; i < 64 * 64; i++)
        ones[i] = 1;
    static const kb_policy columns = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    static const kb_policy copies = {.cube = KB_REPLICATE, .pe = KB_REPLICATE};
    for (int i = 0; i < 2; i++) {
        kb_request request;
        bool done;
        const tp_matmul_spec spec = {
            .x = make_tensor(ctx, "x", KB_F16, KB_SHAPE(4, 64), &columns, ones),
            .w = make_tensor(ctx, "w", KB_F16, KB_SHAPE(64, 64), &columns, ones),
            .out = make_tensor(ctx, "out", KB_F16, KB_SHAPE(4, 64), i ? &copies : &columns, NULL),
            .request = &request,
        };
        expect_ok(tp_matmul(ctx, &spec));
        expect_ok(kb_request_test(ctx, request, &done));
        assert_int_equal(done, i == 1); /* all copies: the call waits */
        expect_ok(kb_request_wait(ctx, request, NULL));
        expect_ok(kb_request_free(ctx, request));
        double value;
        expect_ok(kb_tensor_get(ctx, spec.out, KB_UNTIMED, &KB_INDEX(3, 63), &value));
        assert_true(value == 64);
    }
    free(ones);
    kb_context_destroy(ctx);
}

static void mistakes_are_refused(void **unused)
{
    (void)unused;
    kb_context *ctx =
        open_machine((machine_size){.sips = 2, .w = 2, .h = 1, .pes = 2}, (kb_context_options){0});
    static const kb_policy columns = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    tp_matmul_spec spec = {
        .x = make_tensor(ctx, "x", KB_F16, KB_SHAPE(4, 6), &columns, NULL),
        .w = make_tensor(ctx, "w", KB_F16, KB_SHAPE(7, 5), &columns, NULL),
        .out = make_tensor(ctx, "out", KB_F16, KB_SHAPE(4, 5), &columns, NULL),
    };
    expect_error(tp_matmul(ctx, &spec), KB_ERR_INPUT,
                 "shapes do not match: x (4, 6) * w (7, 5) = out (4, 5)");
    spec.w = make_tensor(ctx, "w", KB_F16, KB_SHAPE(6, 5), &columns, NULL);
    spec.bias = make_tensor(ctx, "b", KB_F16, KB_SHAPE(4), &columns, NULL);
    expect_error(tp_matmul(ctx, &spec), KB_ERR_INPUT, "the bias is (1, 4): expected (5,)");
    expect_ok(kb_ahbm_set_device(ctx, 1));
    spec.bias = (kb_tensor){0};
    spec.w = make_tensor(ctx, "w", KB_F16, KB_SHAPE(6, 5), &columns, NULL);
    expect_error(tp_matmul(ctx, &spec), KB_ERR_INPUT,
                 "w is on sip1 and x on sip0: a matrix product needs all tensors on one device");
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_any_shape_and_layout),
        cmocka_unit_test(larger_batches_go_in_blocks),
        cmocka_unit_test(requests_are_waited_for_by_the_caller),
        cmocka_unit_test(mistakes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
