/*
 * test_norm.c: RMSNorm and LayerNorm against double-precision references, with residuals and
 * quantised outputs, on odd machines and in all layouts.
 */
#include "layouts.h"

typedef struct norm_case {
    uint64_t rows, columns;
    kb_dtype x_dtype, residual_dtype, gain_dtype, out_dtype;
    const kb_policy *x, *residual, *gain, *out, *sum, *scales;
    bool is_centred, has_residual, has_gain, has_bias;
    kb_quantisation quantisation;
    double eps;
    bool in_place; /* the output takes the place of x, the sum that of the residual */
} norm_case;

typedef struct norm_tensors {
    kb_tensor x, residual, gain, bias;
    double *numbers, *added, *gains, *biases;
} norm_tensors;

static norm_tensors make_inputs(kb_context *ctx, const norm_case *is)
{
    size_t count = is->rows * is->columns;
    norm_tensors t = {
        .numbers = random_numbers(1, count, is->x_dtype),
        .added = random_numbers(2, count, is->residual_dtype),
        .gains = random_numbers(3, is->columns, is->gain_dtype),
        .biases = random_numbers(4, is->columns, is->gain_dtype),
    };
    for (size_t i = 0; i < is->columns; i++) /* a row far from the others */
        t.numbers[i] = round_to(is->x_dtype, t.numbers[i] * 16 + 3);
    kb_shape shape = KB_SHAPE(is->rows, is->columns);
    t.x = make_tensor(ctx, "x", is->x_dtype, shape, is->x, t.numbers);
    if (is->has_residual)
        t.residual = make_tensor(ctx, "r", is->residual_dtype, shape, is->residual, t.added);
    if (is->has_gain)
        t.gain = make_tensor(ctx, "gain", is->gain_dtype, KB_SHAPE(is->columns), is->gain, t.gains);
    if (is->has_bias)
        t.bias =
            make_tensor(ctx, "bias", is->gain_dtype, KB_SHAPE(is->columns), is->gain, t.biases);
    return t;
}

/* Makes `numbers` what is normalised, and `result` the norm. */
static double *norm_reference(const norm_case *is, norm_tensors *t)
{
    double *result = malloc(is->rows * is->columns * sizeof *result);
    assert_non_null(result);
    for (uint64_t row = 0; row < is->rows; row++) {
        double *x = t->numbers + row * is->columns, mean = 0, squares = 0;
        for (uint64_t i = 0; i < is->columns; i++) {
            if (is->has_residual)
                x[i] = round_to(is->residual_dtype,
                                (double)(float)(x[i] + t->added[row * is->columns + i]));
            mean += is->is_centred ? x[i] / (double)is->columns : 0;
        }
        for (uint64_t i = 0; i < is->columns; i++)
            squares += (x[i] - mean) * (x[i] - mean);
        double eps = is->eps > 0 ? is->eps : 1e-5;
        double root = sqrt(squares / (double)is->columns + eps);
        for (uint64_t i = 0; i < is->columns; i++)
            result[row * is->columns + i] =
                (x[i] - mean) / root * (is->has_gain ? t->gains[i] : 1) +
                (is->has_bias ? t->biases[i] : 0);
    }
    return result;
}

/* Each element is at most half a step of its dtype from the quotient of the norm and the scale. */
static void expect_quantised(kb_context *ctx, const norm_case *is, const kb_norm_outputs *made,
                             const double *expected)
{
    size_t count = is->rows * is->columns;
    float *out = read_tensor(ctx, made->out, count);
    float *scales = read_tensor(ctx, made->scales, is->rows);
    bool is_i8 = is->quantisation == KB_QUANTISED_I8;
    for (uint64_t row = 0; row < is->rows; row++) {
        double largest = 0;
        for (uint64_t i = 0; i < is->columns; i++)
            largest = fmax(largest, fabs(expected[row * is->columns + i]));
        double scale = fmax(largest, 1e-12) / (is_i8 ? 127 : 448);
        assert_true(fabs((double)scales[row] - scale) <= 1e-5 * scale);
        for (uint64_t i = 0; i < is->columns; i++) {
            double wanted = expected[row * is->columns + i] / scale;
            double found = (double)out[row * is->columns + i];
            double step = is_i8 ? 1 : fmax(fabs(wanted) / 8, 0x1p-9);
            if (!(fabs(found - wanted) <= step / 2 + 1e-2 * step))
                fail_msg("element (%llu, %llu) is %g, expected %g", (unsigned long long)row,
                         (unsigned long long)i, found, wanted);
        }
    }
    free(out);
    free(scales);
}

static kb_norm_outputs run_norm(kb_context *ctx, const norm_case *is, const norm_tensors *t)
{
    kb_norm_outputs made = {0};
    kb_shape shape = KB_SHAPE(is->rows, is->columns);
    const kb_norm_spec spec = {.x = t->x,
                               .residual = t->residual,
                               .gain = t->gain,
                               .bias = t->bias,
                               .eps = is->eps,
                               .quantisation = is->quantisation};
    if (is->out)
        made.out = make_tensor(ctx, "out", is->out_dtype, shape, is->out, NULL);
    if (is->sum && is->has_residual)
        made.sum = make_tensor(ctx, "sum", is->residual_dtype, shape, is->sum, NULL);
    if (is->scales && is->quantisation != KB_NOT_QUANTISED)
        made.scales = make_tensor(ctx, "scales", KB_F32, KB_SHAPE(is->rows), is->scales, NULL);
    if (is->in_place) {
        made.out = t->x;
        made.sum = t->residual;
    }
    expect_ok(is->is_centred ? kb_layer_norm(ctx, &spec, &made) : kb_rms_norm(ctx, &spec, &made));
    return made;
}

static void expect_norm(kb_context *ctx, const norm_case *is)
{
    norm_tensors t = make_inputs(ctx, is);
    kb_norm_outputs made = run_norm(ctx, is, &t);
    double *expected = norm_reference(is, &t);
    size_t count = is->rows * is->columns;
    if (is->quantisation != KB_NOT_QUANTISED)
        expect_quantised(ctx, is, &made, expected);
    else
        expect_near(ctx, made.out, expected, count);
    if (is->has_residual)
        expect_near(ctx, made.sum, t.numbers, count);
    const kb_tensor tensors[] = {t.x, t.residual, t.gain, t.bias, made.scales};
    if (!is->in_place) {
        expect_ok(kb_tensor_free(ctx, made.out));
        if (is->has_residual)
            expect_ok(kb_tensor_free(ctx, made.sum));
    }
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
        if (tensors[i].id != 0)
            expect_ok(kb_tensor_free(ctx, tensors[i]));
    free(t.numbers);
    free(t.added);
    free(t.gains);
    free(t.biases);
    free(expected);
}

/* ---- Random cases ---- */

static norm_case random_case(uint64_t *sequence)
{
    static const uint64_t rows[] = {1, 2, 3, 5, 12, 31, 64, 70, 97};
    static const uint64_t columns[] = {1, 2, 7, 24, 60, 48, 129, 240, 331};
    norm_case is = {
        .rows = rows[pick(sequence, 9)],
        .columns = columns[pick(sequence, 9)],
        .x_dtype = pick_float(sequence),
        .gain_dtype = pick_float(sequence),
        .residual_dtype = pick_float(sequence),
        .out_dtype = pick_float(sequence),
        .x = pick_layout(sequence),
        .residual = pick_layout(sequence),
        .gain = &layouts[pick(sequence, 3)],
        .is_centred = pick(sequence, 2),
        .has_residual = pick(sequence, 2),
        .has_gain = pick(sequence, 4) > 0,
        .eps = pick(sequence, 2) ? 1e-3 : 0,
    };
    is.has_bias = is.is_centred && pick(sequence, 2);
    if (pick(sequence, 3) == 0) {
        is.quantisation = pick(sequence, 2) ? KB_QUANTISED_I8 : KB_QUANTISED_F8E4M3;
        is.out_dtype = is.quantisation == KB_QUANTISED_I8 ? KB_I8 : KB_F8E4M3;
    }
    if (pick(sequence, 2)) {
        is.out = pick_layout(sequence);
        is.sum = pick_layout(sequence);
        is.scales = &layouts[pick(sequence, 3)];
    }
    is.in_place = !is.out && is.quantisation == KB_NOT_QUANTISED && pick(sequence, 3) == 0;
    return is;
}

static void rows_are_normalised(void **unused)
{
    (void)unused;
    uint64_t sequence = 7;
    for (int m = 0; m < MACHINES; m++) {
        kb_context *ctx = open_checked(machines[m]);
        for (int i = 0; i < 60; i++) {
            norm_case is = random_case(&sequence);
            expect_norm(ctx, &is);
        }
        kb_context_destroy(ctx);
    }
}

/* Each PE makes a copy of its own. */
static void copies_are_normalised(void **unused)
{
    (void)unused;
    const kb_policy *all = &layouts[LAYOUTS - 1];
    for (int m = 0; m < MACHINES; m++) {
        kb_context *ctx = open_checked(machines[m]);
        for (int quantised = 0; quantised < 2; quantised++) {
            norm_case is = {.rows = 5,
                            .columns = 33,
                            .x_dtype = KB_BF16,
                            .out_dtype = quantised ? KB_I8 : KB_BF16,
                            .residual_dtype = KB_BF16,
                            .x = all,
                            .residual = &layouts[0],
                            .has_residual = true,
                            .out = all,
                            .sum = all,
                            .scales = all,
                            .quantisation = quantised ? KB_QUANTISED_I8 : KB_NOT_QUANTISED};
            expect_norm(ctx, &is);
            is.out = is.sum = is.scales = NULL; /* as x */
            expect_norm(ctx, &is);
        }
        kb_context_destroy(ctx);
    }
}

/* Rows longer than the TCM: 1 MiB has a budget of 16384 elements. */
static void long_rows_are_normalised(void **unused)
{
    (void)unused;
    static const uint64_t rows[] = {1, 2, 65};
    kb_context *ctx = open_checked(machines[3]);
    for (int i = 0; i < 12; i++) {
        norm_case is = {.rows = rows[i % 3],
                        .columns = i % 3 == 2 ? 2000 : 40001,
                        .x_dtype = floats[i / 4],
                        .out_dtype = KB_BF16,
                        .residual_dtype = KB_F32,
                        .x = &layouts[i % 3],
                        .residual = &layouts[i % 2],
                        .gain = &layouts[0],
                        .out = i % 4 == 0 ? &layouts[i % 2] : NULL,
                        .is_centred = i % 2,
                        .has_gain = true,
                        .has_residual = i % 3 != 0,
                        .has_bias = i % 2};
        if (i % 5 == 1 && !is.out)
            is.quantisation = KB_QUANTISED_I8;
        is.in_place = !is.out && !is.quantisation && i % 2;
        expect_norm(ctx, &is);
    }
    kb_context_destroy(ctx);
}

/* More rows than fit at once, in parts of columns that differ: PEs exchange the same rows. */
static void many_rows_are_normalised(void **unused)
{
    (void)unused;
    kb_context *ctx = open_checked(machines[3]);
    for (int i = 0; i < 4; i++) {
        norm_case is = {.rows = 3000,
                        .columns = 100 + (uint64_t)i,
                        .x_dtype = KB_BF16,
                        .out_dtype = KB_I8,
                        .x = &layouts[0],
                        .is_centred = i % 2};
        is.quantisation = i / 2 ? KB_QUANTISED_I8 : KB_NOT_QUANTISED;
        expect_norm(ctx, &is);
    }
    kb_context_destroy(ctx);
}

/* A row of 0 has a scale above 0, and stays a row of 0. */
static void rows_of_zero_are_quantised(void **unused)
{
    (void)unused;
    kb_context *ctx = open_checked(machines[1]);
    kb_tensor x = make_tensor(ctx, "x", KB_BF16, KB_SHAPE(2, 8), NULL, (double[16]){0});
    for (int i = KB_QUANTISED_F8E4M3; i <= KB_QUANTISED_I8; i++) {
        kb_norm_outputs made = {0};
        const kb_norm_spec spec = {.x = x, .quantisation = (kb_quantisation)i};
        expect_ok(kb_rms_norm(ctx, &spec, &made));
        float *out = read_tensor(ctx, made.out, 16), *scales = read_tensor(ctx, made.scales, 2);
        for (int j = 0; j < 16; j++)
            assert_true(out[j] == 0);
        assert_true(scales[0] > 0 && scales[1] > 0);
        free(out);
        free(scales);
    }
    kb_context_destroy(ctx);
}

/* The sum and the norm have the bits of two calls. */
static void fused_sums_are_those_of_kb_add(void **unused)
{
    (void)unused;
    kb_context *ctx = open_checked(machines[2]);
    enum { ROWS = 9, COLUMNS = 50, COUNT = ROWS * COLUMNS };
    double *a = random_numbers(1, COUNT, KB_BF16), *b = random_numbers(2, COUNT, KB_BF16);
    kb_tensor x = make_tensor(ctx, "x", KB_BF16, KB_SHAPE(ROWS, COLUMNS), &layouts[0], a);
    kb_tensor r = make_tensor(ctx, "r", KB_BF16, KB_SHAPE(ROWS, COLUMNS), &layouts[0], b);
    kb_tensor sum = {0};
    kb_norm_outputs fused = {0}, plain = {0};
    expect_ok(kb_rms_norm(ctx, &(kb_norm_spec){.x = x, .residual = r}, &fused));
    expect_ok(kb_add(ctx, &(kb_add_spec){.a = x, .b = r}, &sum));
    expect_ok(kb_rms_norm(ctx, &(kb_norm_spec){.x = sum}, &plain));
    float *found[] = {read_tensor(ctx, fused.sum, COUNT), read_tensor(ctx, sum, COUNT),
                      read_tensor(ctx, fused.out, COUNT), read_tensor(ctx, plain.out, COUNT)};
    assert_memory_equal(found[0], found[1], COUNT * sizeof(float));
    assert_memory_equal(found[2], found[3], COUNT * sizeof(float));
    for (int i = 0; i < 4; i++)
        free(found[i]);
    free(a);
    free(b);
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_normalised),
        cmocka_unit_test(copies_are_normalised),
        cmocka_unit_test(long_rows_are_normalised),
        cmocka_unit_test(many_rows_are_normalised),
        cmocka_unit_test(rows_of_zero_are_quantised),
        cmocka_unit_test(fused_sums_are_those_of_kb_add),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
