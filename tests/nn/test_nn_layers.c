/*
 * test_nn_layers.c: the layers other than norms against plain loops in double precision: random
 * sizes, dtypes and layouts, on odd machines.
 */
#include "layouts.h"

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static double gelu(double x)
{
    return x * (1 + erf(x / sqrt(2))) / 2;
}

/* Random sizes, the same for all tensors of a case. */
typedef struct size {
    uint64_t rows, columns;
} size;

static size pick_size(uint64_t *sequence)
{
    static const uint64_t rows[] = {1, 2, 5, 13, 64}, columns[] = {1, 6, 48, 77, 130};
    return (size){rows[pick(sequence, 5)], columns[pick(sequence, 5)]};
}

/* An output of a random float dtype, or none: one is to be made. */
static kb_tensor pick_output(kb_context *ctx, uint64_t *sequence, size is)
{
    if (pick(sequence, 2))
        return (kb_tensor){0};
    return make_tensor(ctx, "out", pick_float(sequence), KB_SHAPE(is.rows, is.columns),
                       &layouts[pick(sequence, LAYOUTS)], NULL);
}

static void free_tensors(kb_context *ctx, const kb_tensor *tensors, size_t count)
{
    for (size_t i = 0; i < count; i++)
        expect_ok(kb_tensor_free(ctx, tensors[i]));
}

/* ---- Element by element ---- */

typedef enum op { SWIGLU, PAIRS, GELU, ADD, OPS } op;

static double apply(op which, double a, double b)
{
    return which == GELU ? gelu(a) : which == ADD ? a + b : silu(a) * b;
}

static kb_error *call_layer(kb_context *ctx, op which, kb_tensor a, kb_tensor b, kb_tensor *out)
{
    if (which == GELU)
        return kb_gelu(ctx, &(kb_gelu_spec){.x = a}, out);
    if (which == ADD)
        return kb_add(ctx, &(kb_add_spec){.a = a, .b = b}, out);
    return kb_swiglu(ctx, &(kb_swiglu_spec){.gate = a, .up = which == PAIRS ? (kb_tensor){0} : b},
                     out);
}

static void expect_elements(kb_context *ctx, op which, uint64_t *sequence)
{
    size is = pick_size(sequence);
    size_t count = is.rows * is.columns;
    uint64_t factor = which == PAIRS ? 2 : 1;
    kb_dtype a_dtype = pick_float(sequence), b_dtype = pick_float(sequence);
    double *a = random_numbers(1, count * factor, a_dtype), *b = random_numbers(2, count, b_dtype);
    kb_tensor x = make_tensor(ctx, "a", a_dtype, KB_SHAPE(is.rows, is.columns * factor),
                              &layouts[pick(sequence, LAYOUTS)], a);
    kb_tensor y =
        make_tensor(ctx, "b", b_dtype, KB_SHAPE(is.rows, is.columns), pick_layout(sequence), b);
    kb_tensor out = pick_output(ctx, sequence, is);
    if (which != PAIRS && pick(sequence, 4) == 0)
        out = which != GELU && pick(sequence, 2) ? y : x; /* in place */
    expect_ok(call_layer(ctx, which, x, y, &out));
    double *expected = malloc(count * sizeof *expected);
    assert_non_null(expected);
    for (size_t i = 0; i < count; i++)
        expected[i] =
            which == PAIRS ? apply(which, a[2 * i], a[2 * i + 1]) : apply(which, a[i], b[i]);
    expect_near(ctx, out, expected, count);
    if (out.id != x.id && out.id != y.id)
        expect_ok(kb_tensor_free(ctx, out));
    free_tensors(ctx, (kb_tensor[]){x, y}, 2);
    free(a);
    free(b);
    free(expected);
}

static void elements_are_those_of_the_formula(void **unused)
{
    (void)unused;
    uint64_t sequence = 3;
    for (int m = 0; m < MACHINES; m++) {
        kb_context *ctx = open_checked(machines[m]);
        for (int i = 0; i < 25 * OPS; i++)
            expect_elements(ctx, (op)(i % OPS), &sequence);
        kb_context_destroy(ctx);
    }
}

/* ---- Rotation ---- */

static void expect_rotated(kb_context *ctx, uint64_t *sequence)
{
    static const uint32_t dims[] = {2, 8, 10, 16}, counts[] = {1, 2, 3, 12};
    static const uint64_t tokens_of[] = {1, 3, 14, 60};
    uint32_t head_dim = dims[pick(sequence, 4)], heads = counts[pick(sequence, 4)];
    size is = {tokens_of[pick(sequence, 4)], (uint64_t)heads * head_dim};
    kb_rope rope = {.style = (kb_rope_style)pick(sequence, 3), .base = 500};
    rope.dims = head_dim > 4 && pick(sequence, 2) ? 4 : 0;
    kb_dtype dtype = pick_float(sequence);
    double *x = random_numbers(9, is.rows * is.columns, dtype), *positions;
    positions = random_numbers(4, is.rows, KB_F32);
    for (uint64_t i = 0; i < is.rows; i++)
        positions[i] = (double)pick(sequence, 3000);
    kb_shape shape = is.rows % 2 ? KB_SHAPE(is.rows) : KB_SHAPE(2, is.rows / 2);
    kb_tensor t =
        make_tensor(ctx, "x", dtype, KB_SHAPE(is.rows, is.columns), pick_layout(sequence), x);
    kb_tensor p =
        make_tensor(ctx, "positions", KB_I32, shape, &layouts[pick(sequence, 3)], positions);
    kb_tensor out = pick(sequence, 3) == 0 ? t : pick_output(ctx, sequence, is);
    const kb_rope_spec spec = {.x = t, .positions = p, .head_dim = head_dim, .rope = rope};
    expect_ok(kb_rope_apply(ctx, &spec, &out));
    rotate_reference(&rope, x, positions, is.rows, heads, head_dim);
    expect_near(ctx, out, x, is.rows * is.columns);
    if (out.id != t.id)
        expect_ok(kb_tensor_free(ctx, out));
    free_tensors(ctx, (kb_tensor[]){t, p}, 2);
    free(x);
    free(positions);
}

static void tensors_are_rotated(void **unused)
{
    (void)unused;
    uint64_t sequence = 11;
    for (int m = 0; m < MACHINES; m++) {
        kb_context *ctx = open_checked(machines[m]);
        for (int i = 0; i < 50; i++)
            expect_rotated(ctx, &sequence);
        kb_context_destroy(ctx);
    }
}

/* ---- Embeddings ---- */

static void expect_looked_up(kb_context *ctx, uint64_t *sequence)
{
    enum { VOCABULARY = 41 };
    static const uint64_t counts[] = {1, 4, 15, 70, 130}, widths[] = {1, 9, 64, 150};
    uint64_t count = counts[pick(sequence, 5)], columns = widths[pick(sequence, 4)];
    kb_dtype dtype = (kb_dtype)pick(sequence, KB_DTYPES);
    double *table = random_numbers(5, VOCABULARY * columns, dtype);
    double *tokens = random_numbers(6, count, KB_F32);
    for (uint64_t i = 0; i < count; i++)
        tokens[i] = (double)pick(sequence, VOCABULARY);
    kb_shape shape = count % 5 ? KB_SHAPE(count) : KB_SHAPE(5, count / 5);
    kb_tensor weights = make_tensor(ctx, "table", dtype, KB_SHAPE(VOCABULARY, columns),
                                    &layouts[pick(sequence, LAYOUTS)], table);
    kb_tensor t = make_tensor(ctx, "tokens", KB_I32, shape, pick_layout(sequence), tokens);
    kb_tensor out = {0};
    bool is_float = dtype <= KB_F32;
    if (is_float)
        out = pick_output(ctx, sequence, (size){count, columns});
    expect_ok(kb_embedding(ctx, &(kb_embedding_spec){.table = weights, .tokens = t}, &out));
    double *expected = malloc(count * columns * sizeof *expected);
    assert_non_null(expected);
    for (uint64_t i = 0; i < count * columns; i++)
        expected[i] = table[(uint64_t)tokens[i / columns] * columns + i % columns];
    expect_near(ctx, out, expected, count * columns);
    free_tensors(ctx, (kb_tensor[]){weights, t, out}, 3);
    free(table);
    free(tokens);
    free(expected);
}

static void tokens_become_rows(void **unused)
{
    (void)unused;
    uint64_t sequence = 23;
    for (int m = 0; m < MACHINES; m++) {
        kb_context *ctx = open_checked(machines[m]);
        for (int i = 0; i < 40; i++)
            expect_looked_up(ctx, &sequence);
        kb_context_destroy(ctx);
    }
}

/* ---- Argmax ---- */

/* Few different numbers, so that many are equal. */
static void expect_argmax(kb_context *ctx, uint64_t *sequence)
{
    static const uint64_t rows_of[] = {1, 2, 7, 33, 130}, widths[] = {1, 5, 40, 333};
    size is = {rows_of[pick(sequence, 5)], widths[pick(sequence, 4)]};
    kb_dtype dtype = pick_float(sequence);
    double *logits = random_numbers(8, is.rows * is.columns, dtype), nan_at[2] = {0};
    for (uint64_t i = 0; i < is.rows * is.columns; i++)
        logits[i] = (double)pick(sequence, 4) - 6;
    bool has_nan = pick(sequence, 4) == 0;
    for (int i = 0; has_nan && i < 2; i++) {
        nan_at[i] = (double)pick(sequence, is.columns);
        logits[(uint64_t)nan_at[i]] = (double)NAN; /* in row 0 */
    }
    if (is.rows > 1)
        for (uint64_t i = 0; i < is.columns; i++)
            logits[is.columns + i] = -(double)INFINITY;
    kb_tensor t = make_tensor(ctx, "logits", dtype, KB_SHAPE(is.rows, is.columns),
                              &layouts[pick(sequence, LAYOUTS)], logits);
    kb_tensor out = {0};
    if (pick(sequence, 2))
        out = make_tensor(ctx, "out", KB_I32, KB_SHAPE(is.rows), &layouts[pick(sequence, LAYOUTS)],
                          NULL);
    expect_ok(kb_argmax(ctx, &(kb_argmax_spec){.logits = t}, &out));
    float *found = read_tensor(ctx, out, is.rows);
    for (uint64_t row = 0; row < is.rows; row++) {
        uint64_t best = 0;
        for (uint64_t i = 1; i < is.columns; i++)
            if (logits[row * is.columns + i] > logits[row * is.columns + best])
                best = i;
        if (has_nan && row == 0)
            best = (uint64_t)fmin(nan_at[0], nan_at[1]);
        if ((uint64_t)found[row] != best)
            fail_msg("row %llu of (%llu, %llu): found %g, expected %llu", (unsigned long long)row,
                     (unsigned long long)is.rows, (unsigned long long)is.columns,
                     (double)found[row], (unsigned long long)best);
    }
    free(found);
    free(logits);
    free_tensors(ctx, (kb_tensor[]){t, out}, 2);
}

static void largest_elements_are_found(void **unused)
{
    (void)unused;
    uint64_t sequence = 31;
    for (int m = 0; m < MACHINES; m++) {
        kb_context *ctx = open_checked(machines[m]);
        for (int i = 0; i < 60; i++)
            expect_argmax(ctx, &sequence);
        kb_context_destroy(ctx);
    }
}

/* Rows that do not fit into the TCM at once, and more than an exchange takes at a time. */
static void long_rows_are_searched(void **unused)
{
    (void)unused;
    kb_context *ctx = open_checked(machines[3]);
    static const size sizes[] = {{1, 700000}, {40, 16001}, {20, 50000}};
    for (int i = 0; i < 3; i++) {
        size is = sizes[i];
        double *logits = random_numbers((uint64_t)i, is.rows * is.columns, KB_F32);
        kb_tensor t = make_tensor(ctx, "logits", KB_F32, KB_SHAPE(is.rows, is.columns),
                                  &layouts[i == 2 ? 1 : 0], logits);
        kb_tensor out = {0};
        expect_ok(kb_argmax(ctx, &(kb_argmax_spec){.logits = t}, &out));
        float *found = read_tensor(ctx, out, is.rows);
        for (uint64_t row = 0; row < is.rows; row++)
            for (uint64_t j = 0; j < is.columns; j++)
                assert_true(logits[row * is.columns + j] <=
                            logits[row * is.columns + (uint64_t)found[row]]);
        free(found);
        free(logits);
        free_tensors(ctx, (kb_tensor[]){t, out}, 2);
    }
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(elements_are_those_of_the_formula),
        cmocka_unit_test(tensors_are_rotated),
        cmocka_unit_test(tokens_become_rows),
        cmocka_unit_test(largest_elements_are_found),
        cmocka_unit_test(long_rows_are_searched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
