/*
 * test_vocabulary.c: layers that are split by the vocabulary, and the four regions: embeddings, the
 * cross-entropy and its steps, against plain loops; and errors.
 */
#include "tp_ranks.h"

#include <math.h>

static const machine_size three_sips = {.sips = 3, .w = 2, .h = 1, .pes = 3};
static const kb_policy by_columns = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
static const kb_policy by_rows = {.cube = KB_ROW_WISE, .pe = KB_ROW_WISE};

static void spawn_on(machine_size machine, kb_worker_fn *fn)
{
    kb_context *ctx = open_machine(machine, (kb_context_options){.races = KB_RACES_FAIL});
    expect_ok(kb_spawn(ctx, fn, NULL, machine.sips));
    kb_context_destroy(ctx);
}

/* ---- Embeddings ---- */

enum { VOCABULARY = 30, DIM = 50, TOKENS = 40 };

static kb_error *embed(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    KB_TRY(join_ranks(ctx, rank, 3));
    double *table = integers(1, VOCABULARY * DIM), tokens[TOKENS];
    for (int i = 0; i < TOKENS; i++)
        tokens[i] = (i * 7) % VOCABULARY;
    tokens[3] = VOCABULARY + 5; /* no rank's */
    tokens[4] = -1;
    for (int dtype = 0; dtype < KB_DTYPES; dtype++)
        for (int count = 1; count <= TOKENS; count += TOKENS - 1) {
            kb_tp_layer layer;
            kb_tensor out = {0};
            const kb_tp_embedding_spec spec = {
                .num_embeddings = VOCABULARY,
                .embedding_dim = DIM,
                .dtype = (kb_dtype)dtype,
                .weight = make_host_tensor(ctx, (kb_dtype)dtype, KB_SHAPE(VOCABULARY, DIM), table),
                .access = KB_UNTIMED};
            kb_shape shape = count == 1 ? KB_SHAPE(1) : KB_SHAPE(4, TOKENS / 4);
            kb_tensor t = make_tensor(ctx, "tokens", KB_I32, shape,
                                      dtype % 2 ? &by_columns : &by_rows, tokens);
            KB_TRY(kb_vocab_parallel_embedding_create(ctx, &spec, &layer));
            KB_TRY(kb_vocab_parallel_embedding_forward(ctx, layer, t, &out));
            double expected[TOKENS * DIM];
            for (int i = 0; i < count * DIM; i++) {
                double token = tokens[i / DIM];
                bool exists = token >= 0 && token < VOCABULARY;
                expected[i] = exists ? table[(int)token * DIM + i % DIM] : 0;
            }
            expect_columns(ctx, out, expected, (uint64_t)count, DIM, 0, DIM);
            kb_shape made;
            KB_TRY(kb_tensor_shape(ctx, out, &made));
            assert_int_equal(made.rank, shape.rank + 1);
            KB_TRY(kb_tp_layer_free(ctx, layer));
        }
    free(table);
    return NULL;
}

static void tokens_become_rows(void **unused)
{
    (void)unused;
    spawn_on(three_sips, embed);
}

/* ---- Cross-entropy ---- */

enum { ROWS = 20, CLASSES = 600 };

static kb_error *lose(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    KB_TRY(join_ranks(ctx, rank, 3));
    enum { PART = CLASSES / 3 };
    double *logits = integers(5, ROWS * CLASSES), *own = integers(0, ROWS * PART), targets[ROWS];
    for (int i = 0; i < ROWS; i++)
        targets[i] = (i * 31) % CLASSES;
    for (int i = 0; i < ROWS * PART; i++)
        own[i] = logits[i / PART * CLASSES + (int)rank * PART + i % PART];
    kb_tensor l =
        make_tensor(ctx, "logits", KB_BF16, KB_SHAPE(2, ROWS / 2, PART), &by_columns, own);
    kb_tensor t = make_tensor(ctx, "targets", KB_I32, KB_SHAPE(2, ROWS / 2), &by_rows, targets);
    kb_tensor max = {0}, sum = {0}, predicted = {0}, loss = {0};
    KB_TRY(kb_vocab_parallel_max(ctx, l, &max));
    KB_TRY(kb_vocab_parallel_sum_exp(ctx, l, max, &sum));
    KB_TRY(kb_vocab_parallel_predicted_logit(ctx, l, t, max, &predicted));
    KB_TRY(kb_vocab_parallel_cross_entropy(ctx, l, t, &loss));
    float *found[] = {read_tensor(ctx, max, ROWS), read_tensor(ctx, sum, ROWS),
                      read_tensor(ctx, predicted, ROWS), read_tensor(ctx, loss, ROWS)};
    for (int i = 0; i < ROWS; i++) {
        const double *row = logits + (ptrdiff_t)i * CLASSES;
        double largest = row[0], total = 0, target = row[(int)targets[i]];
        for (int j = 0; j < CLASSES; j++)
            largest = row[j] > largest ? row[j] : largest;
        for (int j = 0; j < CLASSES; j++)
            total += exp(row[j] - largest);
        assert_true((double)found[0][i] == largest);
        assert_true(fabs((double)found[1][i] - total) < 1e-4 * total);
        assert_true((double)found[2][i] == target - largest);
        assert_true(fabs((double)found[3][i] - (log(total) - (target - largest))) < 1e-4);
    }
    for (int i = 0; i < 4; i++)
        free(found[i]);
    expect_error(kb_vocab_parallel_predicted_logit(ctx, l, max, max, &predicted), KB_ERR_INPUT,
                 "kb_vocab_parallel_predicted_logit: the targets 'rows' are f32: expected i32");
    free(logits);
    free(own);
    return NULL;
}

static void losses_are_those_of_the_whole_vocabulary(void **unused)
{
    (void)unused;
    spawn_on(three_sips, lose);
}

/* ---- Regions ---- */

static kb_error *cross_regions(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    KB_TRY(join_ranks(ctx, rank, 3));
    enum { COLUMNS = 42, PART = COLUMNS / 3 };
    double *numbers = integers(8, ROWS * COLUMNS);
    kb_tensor x = make_tensor(ctx, "x", KB_F32, KB_SHAPE(ROWS, COLUMNS), &by_rows, numbers);
    kb_tensor same = {0}, part = {0}, all = {0}, sum = {0};
    KB_TRY(kb_copy_to_tensor_model_parallel_region(ctx, x, &same));
    assert_int_equal(same.id, x.id);
    KB_TRY(kb_scatter_to_tensor_model_parallel_region(ctx, x, &part));
    expect_columns(ctx, part, numbers, ROWS, COLUMNS, rank * PART, PART);
    KB_TRY(kb_gather_from_tensor_model_parallel_region(ctx, part, &all));
    expect_columns(ctx, all, numbers, ROWS, COLUMNS, 0, COLUMNS);
    KB_TRY(kb_reduce_from_tensor_model_parallel_region(ctx, x, &sum));
    assert_int_equal(sum.id, x.id);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        numbers[i] *= 3;
    expect_columns(ctx, sum, numbers, ROWS, COLUMNS, 0, COLUMNS);
    kb_tensor odd = make_tensor(ctx, "odd", KB_F32, KB_SHAPE(2, 7), &by_rows, numbers);
    part = (kb_tensor){0};
    expect_error(kb_scatter_to_tensor_model_parallel_region(ctx, odd, &part), KB_ERR_INPUT,
                 "kb_scatter_to_tensor_model_parallel_region: the input has 7 columns, which are "
                 "not divisible by the tensor parallel size 3");
    free(numbers);
    return NULL;
}

static void regions_scatter_gather_and_add(void **unused)
{
    (void)unused;
    spawn_on(three_sips, cross_regions);
}

/* ---- Weights and mistakes ---- */

/* The same seed gives the same layer for any number of ranks; without one, weights are 0. */
typedef struct seeded {
    uint32_t size;
    float out[4 * 12];
} seeded;

static kb_error *run_seeded(kb_context *ctx, uint32_t rank, void *arg)
{
    seeded *is = arg;
    KB_TRY(join_ranks(ctx, rank, is->size));
    double *numbers = integers(3, 4 * 12);
    kb_tensor x = make_tensor(ctx, "x", KB_F32, KB_SHAPE(4, 12), &by_columns, numbers), y = {0};
    kb_tp_layer layer, zero;
    kb_tp_linear_spec spec = {.in_features = 12,
                              .out_features = 12,
                              .dtype = KB_F32,
                              .bias = true,
                              .gather_output = true,
                              .seed = 77};
    KB_TRY(kb_column_parallel_linear_create(ctx, &spec, &layer));
    KB_TRY(kb_column_parallel_linear_forward(ctx, layer, x, &y));
    float *found = read_tensor(ctx, y, 4 * 12);
    if (rank == 0)
        memcpy(is->out, found, sizeof is->out);
    free(found);
    spec.seed = 0;
    KB_TRY(kb_column_parallel_linear_create(ctx, &spec, &zero));
    KB_TRY(kb_column_parallel_linear_forward(ctx, zero, x, &y));
    found = read_tensor(ctx, y, 4 * 12);
    for (int i = 0; i < 4 * 12; i++)
        assert_true(found[i] == 0);
    free(found);
    free(numbers);
    return NULL;
}

static void seeds_do_not_depend_on_ranks(void **unused)
{
    (void)unused;
    seeded first = {.size = 1};
    for (uint32_t size = 1; size <= 6; size++) {
        if (size == 5)
            continue;
        seeded is = {.size = size};
        kb_context *ctx = open_machine((machine_size){.sips = size, .w = 2, .h = 1, .pes = 2},
                                       (kb_context_options){0});
        expect_ok(kb_spawn(ctx, run_seeded, &is, size));
        kb_context_destroy(ctx);
        if (size == 1)
            first = is;
        for (int i = 0; i < 4 * 12; i++)
            assert_true(fabsf(first.out[i] - is.out[i]) < 1e-5F && first.out[i] != 0);
    }
}

static kb_error *make_mistakes(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    KB_TRY(join_ranks(ctx, rank, 3));
    kb_tp_layer column, row;
    kb_tp_linear_spec spec = {.name = "up", .in_features = 12, .out_features = 16};
    expect_error(kb_column_parallel_linear_create(ctx, &spec, &column), KB_ERR_INPUT,
                 "kb_column_parallel_linear_create: out_features (16) is not divisible by the "
                 "tensor parallel size 3");
    assert_int_equal(column.id, 0);
    spec.in_features = 14;
    expect_error(kb_row_parallel_linear_create(ctx, &spec, &row), KB_ERR_INPUT,
                 "kb_row_parallel_linear_create: in_features (14) is not divisible by the tensor "
                 "parallel size 3");
    const kb_tp_embedding_spec table = {.num_embeddings = 10, .embedding_dim = 4};
    expect_error(kb_vocab_parallel_embedding_create(ctx, &table, &row), KB_ERR_INPUT,
                 "kb_vocab_parallel_embedding_create: num_embeddings (10) is not divisible by the "
                 "tensor parallel size 3");
    spec.out_features = 9;
    KB_TRY(kb_column_parallel_linear_create(ctx, &spec, &column));
    kb_tensor x = make_tensor(ctx, "x", KB_F16, KB_SHAPE(4, 12), &by_columns, NULL), y = {0};
    expect_error(kb_column_parallel_linear_forward(ctx, column, x, &y), KB_ERR_INPUT,
                 "kb_column_parallel_linear_forward: the input has 12 columns, but layer 'up' "
                 "takes 14");
    expect_error(kb_row_parallel_linear_forward(ctx, column, x, &y), KB_ERR_INPUT,
                 "kb_row_parallel_linear_forward: layer 'up' is a column parallel linear layer");
    kb_tensor f = make_tensor(ctx, "f", KB_F32, KB_SHAPE(4, 14), &by_columns, NULL);
    expect_error(kb_column_parallel_linear_forward(ctx, column, f, &y), KB_ERR_INPUT,
                 "kb_column_parallel_linear_forward: the input is f32, but layer 'up' is f16");
    assert_int_equal(y.id, 0);
    x = make_tensor(ctx, "x", KB_F16, KB_SHAPE(4, 14), &by_columns, NULL);
    y = make_tensor(ctx, "y", KB_F16, KB_SHAPE(4, 9), &by_columns, NULL);
    expect_error(kb_column_parallel_linear_forward(ctx, column, x, &y), KB_ERR_INPUT,
                 "kb_column_parallel_linear_forward: the output is (4, 9) f16: expected (4, 3) "
                 "f16");
    KB_TRY(kb_tp_layer_free(ctx, column));
    expect_error(kb_tp_layer_free(ctx, column), KB_ERR_FAULT,
                 "kb_tp_layer_free: invalid or freed layer handle");
    double numbers[8] = {0};
    spec.weight = make_host_tensor(ctx, KB_F16, KB_SHAPE(2, 4), numbers);
    expect_error(kb_column_parallel_linear_create(ctx, &spec, &column), KB_ERR_INPUT,
                 "kb_column_parallel_linear_create: layer 'up': the weight is (2, 4): expected "
                 "(14, 9), or the rank's part (14, 3)");
    return NULL;
}

static void mistakes_are_refused(void **unused)
{
    (void)unused;
    spawn_on(three_sips, make_mistakes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_become_rows),
        cmocka_unit_test(losses_are_those_of_the_whole_vocabulary),
        cmocka_unit_test(regions_scatter_gather_and_add),
        cmocka_unit_test(seeds_do_not_depend_on_ranks),
        cmocka_unit_test(mistakes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
