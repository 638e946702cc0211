/*
 * test_tp_layers.c: linear layers on machines of several sizes and topologies, for tensor parallel
 * sizes 1 to 6, against products in double precision. Contents are small integers, so that sums are
 * exact and results are compared bit for bit.
 */
#include "tp_ranks.h"

#include <math.h>

typedef struct mlp {
    uint32_t size; /* tensor parallel */
    uint64_t rows, in, hidden, out;
    kb_dtype dtype;
    bool bias, gather, whole_input;
    uint32_t overlap;
    uint64_t axes; /* of the input: 2 or 3 */
    bool on_one_pe;
} mlp;

static kb_error *run_column(kb_context *ctx, const mlp *is, kb_tensor x, const double *w,
                            const double *b, kb_tensor *y)
{
    kb_tp_layer layer;
    const kb_tp_linear_spec spec = {
        .name = "up",
        .in_features = is->in,
        .out_features = is->hidden,
        .dtype = is->dtype,
        .bias = is->bias,
        .gather_output = is->gather,
        .weight = make_host_tensor(ctx, is->dtype, KB_SHAPE(is->in, is->hidden), w),
        .bias_values =
            is->bias ? make_host_tensor(ctx, is->dtype, KB_SHAPE(is->hidden), b) : (kb_tensor){0},
        .access = KB_UNTIMED,
    };
    KB_TRY(kb_column_parallel_linear_create(ctx, &spec, &layer));
    KB_TRY(kb_column_parallel_linear_forward(ctx, layer, x, y));
    KB_TRY(kb_column_parallel_linear_forward(ctx, layer, x, y)); /* again, into the same */
    return kb_tp_layer_free(ctx, layer);
}

static kb_error *run_row(kb_context *ctx, const mlp *is, kb_tensor x, const double *w,
                         const double *b, kb_tensor *y)
{
    kb_tp_layer layer;
    const kb_tp_linear_spec spec = {
        .name = "down",
        .in_features = is->hidden,
        .out_features = is->out,
        .dtype = is->dtype,
        .bias = is->bias,
        .input_is_parallel = is->whole_input ? KB_TP_NO : KB_TP_DEFAULT,
        .overlap = is->overlap,
        .weight = make_host_tensor(ctx, is->dtype, KB_SHAPE(is->hidden, is->out), w),
        .bias_values =
            is->bias ? make_host_tensor(ctx, is->dtype, KB_SHAPE(is->out), b) : (kb_tensor){0},
        .access = KB_UNTIMED,
    };
    KB_TRY(kb_row_parallel_linear_create(ctx, &spec, &layer));
    KB_TRY(kb_row_parallel_linear_forward(ctx, layer, x, y));
    KB_TRY(kb_row_parallel_linear_forward(ctx, layer, x, y));
    return kb_tp_layer_free(ctx, layer);
}

/* Sparse: few entries are not 0, so that the second product is exact in all dtypes. */
static double *sparse(uint64_t seed, uint64_t count, uint64_t every)
{
    double *numbers = integers(seed, count);
    for (uint64_t i = 0; i < count; i++)
        if ((i + seed) % every != 0)
            numbers[i] = 0;
    return numbers;
}

static kb_error *work(kb_context *ctx, uint32_t rank, void *arg)
{
    mlp *is = arg;
    KB_TRY(join_ranks(ctx, rank, is->size));
    uint32_t index;
    KB_TRY(kb_tp_get_tensor_model_parallel_rank(ctx, &index));
    uint64_t m = is->rows, part = is->hidden / is->size;
    uint64_t salt = rank / is->size; /* data parallel groups have other inputs */
    double *x = sparse(salt + 1, m * is->in, 3), *w1 = sparse(2, is->in * is->hidden, 5),
           *w2 = sparse(3, is->hidden * is->out, 7), *b1 = integers(4, is->hidden),
           *b2 = integers(5, is->out), *h = integers(0, m * is->hidden),
           *y = integers(0, m * is->out);
    multiply(x, w1, is->bias ? b1 : NULL, h, m, is->in, is->hidden);
    multiply(h, w2, is->bias ? b2 : NULL, y, m, is->hidden, is->out);
    kb_shape shape = is->axes == 3 ? KB_SHAPE(1, m, is->in) : KB_SHAPE(m, is->in);
    static const kb_policy columns = {.cube = KB_COLUMN_WISE, .pe = KB_ROW_WISE};
    kb_tensor tx = make_tensor(ctx, "x", is->dtype, shape, is->on_one_pe ? NULL : &columns, x),
              th = {0}, ty = {0};
    KB_TRY(run_column(ctx, is, tx, w1, b1, &th));
    expect_columns(ctx, th, h, m, is->hidden, is->gather ? 0 : part * index,
                   is->gather ? is->hidden : part);
    KB_TRY(run_row(ctx, is, th, w2, b2, &ty));
    expect_columns(ctx, ty, y, m, is->out, 0, is->out);
    kb_shape made;
    KB_TRY(kb_tensor_shape(ctx, ty, &made));
    assert_int_equal(made.rank, is->axes);
    double *all[] = {x, w1, w2, b1, b2, h, y};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
    return NULL;
}

static void run_mlp(machine_size machine, const char *ccl_setting, mlp is)
{
    kb_context *ctx =
        open_machine(machine, (kb_context_options){.races = KB_RACES_FAIL,
                                                   .settings = ccl_setting ? &ccl_setting : NULL,
                                                   .setting_count = ccl_setting ? 1 : 0});
    expect_ok(kb_spawn(ctx, work, &is, machine.sips));
    kb_context_destroy(ctx);
}

static void layers_of_any_size(void **unused)
{
    (void)unused;
    static const struct {
        machine_size machine;
        uint32_t size;
    } cases[] = {
        {{.sips = 1, .w = 2, .h = 1, .pes = 2}, 1},
        {{.sips = 2, .w = 2, .h = 1, .pes = 3}, 1},
        {{.sips = 2, .w = 1, .h = 1, .pes = 1}, 2},
        {{.sips = 4, .w = 1, .h = 2, .pes = 2, .sip_extra = ", topology: torus_2d, w: 2, h: 2"}, 2},
        {{.sips = 3, .w = 3, .h = 1, .pes = 2}, 3},
        {{.sips = 4,
          .w = 2,
          .h = 1,
          .pes = 2,
          .sip_extra = ", topology: mesh_2d_no_wrap, w: 4, h: 1"},
         4},
        {{.sips = 6, .w = 1, .h = 1, .pes = 3}, 6},
        {{.sips = 6,
          .w = 2,
          .h = 1,
          .pes = 1,
          .sip_extra = ", topology: mesh_2d_no_wrap, w: 3, h: 2"},
         3},
    };
    static const kb_dtype dtypes[] = {KB_F16, KB_BF16, KB_F32, KB_I32, KB_F8E5M2, KB_I8};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int variant = 0; variant < 5; variant++) {
            const uint64_t rows[] = {1, 5, 64, 17, 90};
            mlp is = {.size = cases[i].size,
                      .rows = rows[variant],
                      .in = variant == 4 ? 130 : 20 + i,
                      .on_one_pe = variant == 4, /* and large: it is spread first */
                      .hidden = 12 * (1 + i % 3),
                      .out = 37 + 60 * (uint64_t)(variant == 2),
                      .dtype = dtypes[(i + (size_t)variant) % 3],
                      .bias = variant % 2 == 1,
                      .gather = variant == 3,
                      .whole_input = variant == 3,
                      .overlap = (uint32_t)(variant == 2   ? 3
                                            : variant == 1 ? 1
                                                           : 0),
                      .axes = variant == 1 ? 3 : 2};
            run_mlp(cases[i].machine, NULL, is);
        }
}

/* Sums are small enough for all types: up to 8 in f8. */
static void layers_of_any_dtype(void **unused)
{
    (void)unused;
    for (int dtype = 0; dtype < KB_DTYPES; dtype++)
        for (uint32_t overlap = 0; overlap < 3; overlap += 2) {
            mlp is = {.size = 2,
                      .rows = 6,
                      .in = 4,
                      .hidden = 8,
                      .out = 10,
                      .dtype = (kb_dtype)dtype,
                      .bias = false,
                      .overlap = overlap,
                      .axes = 2};
            run_mlp((machine_size){.sips = 2, .w = 2, .h = 1, .pes = 2}, NULL, is);
        }
}

/* An algorithm in ccl.yaml that adds up shards inside a SIP does not change what a layer means. */
static void configured_algorithms_do_not_change_layers(void **unused)
{
    (void)unused;
    mlp is = {.size = 2, .rows = 4, .in = 16, .hidden = 16, .out = 4, .axes = 2};
    run_mlp((machine_size){.sips = 2, .w = 2, .h = 2, .pes = 2},
            "ccl.defaults.algorithm=intercube_allreduce", is);
    run_mlp((machine_size){.sips = 2, .w = 2, .h = 2, .pes = 2},
            "ccl.defaults.algorithm=hierarchical_allreduce", is);
}

/* ---- Numbers whose sums are not exact ---- */

typedef struct inexact {
    uint32_t size, overlap;
    uint64_t rows, in, hidden, out;
    uint16_t *bits; /* of rank 0's result */
    double worst;   /* relative to the largest element */
} inexact;

static double *fractions(uint64_t seed, uint64_t count, double scale)
{
    double *numbers = integers(0, count);
    for (uint64_t i = 0; i < count; i++) {
        uint16_t half;
        float wide =
            (float)(scale * (small_integer(seed, 3 * i) + small_integer(seed, 3 * i + 1) / 7 +
                             small_integer(seed, 3 * i + 2) / 49));
        kb_convert(KB_F16, &half, KB_F32, &wide, 1);
        kb_convert(KB_F32, &wide, KB_F16, &half, 1);
        numbers[i] = (double)wide;
    }
    return numbers;
}

static double ulp_of_f16(double x)
{
    int exponent;
    frexp(x, &exponent);
    return ldexp(1, (exponent < -13 ? -13 : exponent) - 11);
}

static kb_error *work_inexact(kb_context *ctx, uint32_t rank, void *arg)
{
    inexact *is = arg;
    uint64_t m = is->rows, part = is->hidden / is->size;
    KB_TRY(join_ranks(ctx, rank, is->size));
    double *x = fractions(1, m * is->in, 0.25), *w1 = fractions(2, is->in * is->hidden, 0.05),
           *w2 = fractions(3, is->hidden * is->out, 0.05), *h = integers(0, m * is->hidden),
           *y = integers(0, m * is->out);
    multiply(x, w1, NULL, h, m, is->in, is->hidden);
    multiply(h, w2, NULL, y, m, is->hidden, is->out);
    static const kb_policy columns = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    kb_tensor tx = make_tensor(ctx, "x", KB_F16, KB_SHAPE(m, is->in), &columns, x), th = {0},
              ty = {0};
    mlp like = {.in = is->in, .hidden = is->hidden, .out = is->out, .overlap = is->overlap};
    KB_TRY(run_column(ctx, &like, tx, w1, NULL, &th));
    float *found = read_tensor(ctx, th, m * part);
    for (uint64_t i = 0; i < m; i++) /* within one unit in the last place */
        for (uint64_t j = 0; j < part; j++) {
            double expected = h[i * is->hidden + part * (rank % is->size) + j];
            assert_true(fabs((double)found[i * part + j] - expected) <= ulp_of_f16(expected));
        }
    free(found);
    KB_TRY(run_row(ctx, &like, th, w2, NULL, &ty));
    found = read_tensor(ctx, ty, m * is->out);
    for (uint64_t i = 0; i < m * is->out; i++)
        is->worst = fmax(is->worst, fabs((double)found[i] - y[i]) / (1 + fabs(y[i])));
    uint16_t *bits = malloc(m * is->out * 2);
    assert_non_null(bits);
    KB_TRY(kb_tensor_to_host(ctx, ty, KB_UNTIMED, bits, m * is->out * 2));
    if (rank == 0)
        memcpy(is->bits, bits, m * is->out * 2);
    KB_TRY(kb_distributed_barrier(ctx, NULL));
    assert_memory_equal(is->bits, bits, m * is->out * 2); /* the same bits on every rank */
    double *all[] = {x, w1, w2, h, y};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
    free(bits);
    free(found);
    return NULL;
}

static void inexact_sums_are_near_and_the_same_on_all_ranks(void **unused)
{
    (void)unused;
    static const uint32_t sizes[] = {1, 2, 3, 4, 6};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        uint16_t *plain = NULL;
        for (uint32_t overlap = 0; overlap <= 4; overlap += 4) {
            inexact is = {.size = sizes[i],
                          .overlap = overlap,
                          .rows = i == 1 ? 512 : 7 * i + 1,
                          .in = 70,
                          .hidden = 96,
                          .out = 131};
            is.bits = malloc(is.rows * is.out * 2);
            assert_non_null(is.bits);
            kb_context *ctx =
                open_machine((machine_size){.sips = is.size, .w = 2, .h = 1, .pes = 3},
                             (kb_context_options){.races = KB_RACES_FAIL});
            expect_ok(kb_spawn(ctx, work_inexact, &is, is.size));
            kb_context_destroy(ctx);
            assert_true(is.worst < 1e-2);
            if (plain && is.size <= 2) /* one addition: no order that could differ */
                assert_memory_equal(plain, is.bits, is.rows * is.out * 2);
            free(plain);
            plain = is.bits;
        }
        free(plain);
    }
}

/* ---- Graphs ---- */

typedef struct recording {
    uint32_t overlap;
    bool replicates; /* outputs have a copy on every PE */
} recording;

/* Two layers, with and without overlap, recorded once and launched with other inputs. */
static kb_error *work_recorded(kb_context *ctx, uint32_t rank, void *arg)
{
    const recording *is = arg;
    enum { ROWS = 9, IN = 24, HIDDEN = 40, OUT = 30 };
    KB_TRY(join_ranks(ctx, rank, 2));
    static const kb_policy columns = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE},
                           everywhere = {.cube = KB_REPLICATE, .pe = KB_REPLICATE};
    kb_tensor x = make_tensor(ctx, "x", KB_F32, KB_SHAPE(ROWS, IN), &columns, NULL), h = {0},
              y = {0};
    if (is->replicates) {
        h = make_tensor(ctx, "h", KB_F32, KB_SHAPE(ROWS, HIDDEN / 2), &everywhere, NULL);
        y = make_tensor(ctx, "y", KB_F32, KB_SHAPE(ROWS, OUT), &everywhere, NULL);
    }
    kb_tp_layer up, down;
    kb_tp_linear_spec spec = {.name = "up",
                              .in_features = IN,
                              .out_features = HIDDEN,
                              .dtype = KB_F32,
                              .bias = true,
                              .seed = 5};
    KB_TRY(kb_column_parallel_linear_create(ctx, &spec, &up));
    spec = (kb_tp_linear_spec){.name = "down",
                               .in_features = HIDDEN,
                               .out_features = OUT,
                               .dtype = KB_F32,
                               .bias = true,
                               .seed = 6,
                               .overlap = is->overlap};
    KB_TRY(kb_row_parallel_linear_create(ctx, &spec, &down));
    KB_TRY(kb_column_parallel_linear_forward(ctx, up, x, &h));
    KB_TRY(kb_row_parallel_linear_forward(ctx, down, h, &y));
    kb_graph graph;
    KB_TRY(kb_graph_begin(ctx, "mlp", &graph));
    KB_TRY(kb_column_parallel_linear_forward(ctx, up, x, &h));
    KB_TRY(kb_row_parallel_linear_forward(ctx, down, h, &y));
    KB_TRY(kb_graph_end(ctx, graph));
    for (uint64_t seed = 1; seed < 3; seed++) {
        float numbers[ROWS * IN];
        for (uint64_t i = 0; i < ROWS * IN; i++)
            numbers[i] = (float)small_integer(seed, i);
        KB_TRY(kb_tensor_set_slice(ctx, x, KB_UNTIMED, NULL, numbers, sizeof numbers));
        KB_TRY(kb_tensor_fill_slice(ctx, y, KB_UNTIMED, NULL, 0));
        KB_TRY(kb_graph_launch(ctx, graph, NULL));
        float *recorded = read_tensor(ctx, y, ROWS * OUT);
        KB_TRY(kb_column_parallel_linear_forward(ctx, up, x, &h));
        KB_TRY(kb_row_parallel_linear_forward(ctx, down, h, &y));
        float *called = read_tensor(ctx, y, ROWS * OUT);
        assert_memory_equal(recorded, called, ROWS * OUT * sizeof *called);
        assert_true(called[0] != 0);
        free(recorded);
        free(called);
    }
    return kb_graph_free(ctx, graph);
}

static void graphs_record_layers(void **unused)
{
    (void)unused;
    static const recording cases[] = {{.overlap = 0}, {.overlap = 2}, {.replicates = true}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        recording is = cases[i];
        kb_context *ctx = open_machine((machine_size){.sips = 2, .w = 2, .h = 1, .pes = 3},
                                       (kb_context_options){.races = KB_RACES_FAIL});
        expect_ok(kb_spawn(ctx, work_recorded, &is, 2));
        kb_context_destroy(ctx);
    }
}

/* The time of the product is that of its kernel, not of the copies behind it. */
static kb_error *time_copies(kb_context *ctx, uint32_t rank, void *unused)
{
    (void)unused;
    static const kb_policy columns = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE},
                           everywhere = {.cube = KB_REPLICATE, .pe = KB_REPLICATE};
    const kb_tp_linear_spec spec = {.name = "up", .in_features = 64, .out_features = 64};
    kb_tp_layer layer;
    kb_tp_times once, copied;
    KB_TRY(join_ranks(ctx, rank, 1));
    kb_tensor x = make_tensor(ctx, "x", KB_F16, KB_SHAPE(8, 64), &columns, NULL), y = {0},
              z = make_tensor(ctx, "z", KB_F16, KB_SHAPE(8, 64), &everywhere, NULL);
    KB_TRY(kb_column_parallel_linear_create(ctx, &spec, &layer));
    KB_TRY(kb_column_parallel_linear_forward(ctx, layer, x, &y));
    KB_TRY(kb_tp_layer_times(ctx, layer, &once));
    KB_TRY(kb_column_parallel_linear_forward(ctx, layer, x, &z));
    KB_TRY(kb_tp_layer_times(ctx, layer, &copied));
    assert_int_equal(copied.kernel, once.kernel);
    assert_int_equal(copied.gemm, once.gemm);
    assert_true(copied.total > once.total);
    return NULL;
}

static void times_do_not_count_copies_as_products(void **unused)
{
    (void)unused;
    kb_context *ctx =
        open_machine((machine_size){.sips = 1, .w = 2, .h = 1, .pes = 3}, (kb_context_options){0});
    expect_ok(kb_spawn(ctx, time_copies, NULL, 1));
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_of_any_size),
        cmocka_unit_test(layers_of_any_dtype),
        cmocka_unit_test(inexact_sums_are_near_and_the_same_on_all_ranks),
        cmocka_unit_test(graphs_record_layers),
        cmocka_unit_test(times_do_not_count_copies_as_products),
        cmocka_unit_test(configured_algorithms_do_not_change_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
