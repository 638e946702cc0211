/*
 * test_fused.c: matrix products with a norm, a gate, a residual, a bias, sums over ranks and
 * matrices by cube, in random combinations, against a reference in double precision. Accesses that
 * race are faults. Each product is made again with the other choice of matrices by cube: the result
 * is the same bits.
 */
#include "tp_ranks.h"

#include <math.h>

#include "tp/matmul.h"

static uint64_t state = 7;

static uint64_t draw(uint64_t from, uint64_t to)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return from + (state >> 33) % (to - from + 1);
}

typedef enum residual_kind { NO_RESIDUAL, OTHER_RESIDUAL, OUT_RESIDUAL } residual_kind;

typedef struct fused {
    uint64_t m, k, n; /* k of each rank */
    kb_dtype dtype, gain_dtype, out_dtype, sum_dtype;
    bool norm, gated, bias, by_best_layout;
    residual_kind residual;
    bool x_by_cube, out_by_cube;
    uint32_t ranks, chunks;
    double eps;
    uint64_t seed;
    double *x, *w, *gain, *b, *r; /* of all ranks, one behind the other; rounded to their dtypes */
    float *out[4];                /* by rank */
} fused;

static double half_ulp(kb_dtype dtype)
{
    switch (dtype) {
    case KB_F32:
        return 0x1p-24;
    case KB_F16:
        return 0x1p-11;
    case KB_BF16:
        return 0x1p-8;
    case KB_F8E4M3:
        return 0x1p-4;
    default:
        return 0x1p-3;
    }
}

static double round_to(kb_dtype dtype, double number)
{
    float wide = (float)number, rounded;
    unsigned char bytes[4];
    kb_convert(dtype, bytes, KB_F32, &wide, 1);
    kb_convert(KB_F32, &rounded, dtype, bytes, 1);
    return (double)rounded;
}

/* Between -1 and 1, as the dtype has them. */
static double *draw_reals(uint64_t seed, uint64_t count, kb_dtype dtype)
{
    double *numbers = malloc((count + 1) * sizeof *numbers);
    assert_non_null(numbers);
    uint64_t h = seed * 2 + 1;
    for (uint64_t i = 0; i < count; i++) {
        h = h * 6364136223846793005u + 1442695040888963407u;
        numbers[i] = round_to(dtype, (double)(int64_t)(h >> 33) / 0x1p30 - 1);
    }
    return numbers;
}

static uint64_t out_columns(const fused *f)
{
    return f->gated ? f->n / 2 : f->n;
}

static bool is_integer(kb_dtype dtype)
{
    return dtype == KB_I8 || dtype == KB_I32;
}

static void draw_contents(fused *f)
{
    uint64_t xs = f->m * f->k * f->ranks, ws = f->k * f->n * f->ranks;
    bool ints = is_integer(f->dtype);
    uint64_t rs = f->m * out_columns(f);
    f->x = ints ? integers(f->seed, xs) : draw_reals(f->seed, xs, f->dtype);
    f->w = ints ? integers(f->seed + 1, ws) : draw_reals(f->seed + 1, ws, f->dtype);
    f->gain = draw_reals(f->seed + 2, f->k, f->gain_dtype);
    f->b = ints ? integers(f->seed + 3, f->n) : draw_reals(f->seed + 3, f->n, f->out_dtype);
    f->r = ints ? integers(f->seed + 4, rs) : draw_reals(f->seed + 4, rs, f->out_dtype);
}

static void free_contents(fused *f)
{
    double *all[] = {f->x, f->w, f->gain, f->b, f->r};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

/* ---- The reference ---- */

/* Of one element of x * w, with how far it may be off. */
typedef struct value {
    double is, error;
} value;

static value product_at(const fused *f, uint64_t i, uint64_t j)
{
    value sum = {0};
    double squares = 0;
    for (uint32_t rank = 0; rank < f->ranks; rank++) {
        const double *x = f->x + (rank * f->m + i) * f->k, *w = f->w + rank * f->k * f->n;
        double part = 0, size = 0;
        for (uint64_t k = 0; k < f->k; k++) {
            double exact = f->norm ? x[k] * f->gain[k] : x[k];
            double xk = f->norm ? round_to(f->dtype, exact) : exact;
            part += xk * w[k * f->n + j];
            size += fabs(xk * w[k * f->n + j]);
            squares += x[k] * x[k];
        }
        sum.is += part;
        sum.error += 2e-6 * size;
        if (f->ranks > 1)
            sum.error += half_ulp(f->sum_dtype) * (fabs(part) + fabs(sum.is)) + 1e-7;
    }
    double scale = f->norm ? 1 / sqrt(squares / (double)f->k + f->eps) : 1;
    sum.is *= scale;
    sum.error = sum.error * scale + 4e-6 * fabs(sum.is);
    if (f->bias)
        sum.is += f->b[j];
    return sum;
}

static double silu(double x)
{
    return x / (1 + exp(-x));
}

static value expected_at(const fused *f, uint64_t i, uint64_t j)
{
    value v = product_at(f, i, f->gated ? 2 * j : j);
    if (f->gated) {
        value up = product_at(f, i, 2 * j + 1);
        /* The slope of silu is less than 1.1. */
        v = (value){silu(v.is) * up.is,
                    1.1 * v.error * fabs(up.is) + (fabs(silu(v.is)) + 1e-3) * up.error + 1e-6};
    }
    if (f->residual != NO_RESIDUAL)
        v.is += f->r[i * out_columns(f) + j];
    return v;
}

static void check_result(const fused *f, const float *out)
{
    for (uint64_t i = 0; i < f->m; i++)
        for (uint64_t j = 0; j < out_columns(f); j++) {
            value v = expected_at(f, i, j);
            double found = (double)out[i * out_columns(f) + j];
            double tolerance = 1.01 * (v.error + half_ulp(f->out_dtype) * fabs(v.is)) +
                               4e-3 * (f->out_dtype == KB_F8E4M3 || f->out_dtype == KB_F8E5M2) +
                               1e-6;
            if (is_integer(f->dtype))
                tolerance = 0;
            if (!(fabs(found - v.is) <= tolerance))
                fail_msg("seed %llu: (%llu, %llu, %llu) at (%llu, %llu): %g, expected %g +- %g",
                         (unsigned long long)f->seed, (unsigned long long)f->m,
                         (unsigned long long)f->k, (unsigned long long)f->n, (unsigned long long)i,
                         (unsigned long long)j, found, v.is, tolerance);
        }
}

/* ---- The product ---- */

static const kb_policy columns = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
static const kb_policy by_cube = {.cube = KB_ROW_WISE, .pe = KB_COLUMN_WISE};

/* By cube or not. */
static kb_tensor make_matrix(kb_context *ctx, const char *name, kb_dtype dtype, uint64_t rows,
                             uint64_t width, bool is_by_cube, const double *numbers)
{
    if (!is_by_cube)
        return make_tensor(ctx, name, dtype, KB_SHAPE(rows, width), &columns, numbers);
    uint64_t cubes = kb_context_machine(ctx).cubes, count = rows * width;
    double *copies = malloc((cubes * count + 1) * sizeof *copies);
    assert_non_null(copies);
    for (uint64_t i = 0; numbers && i < cubes; i++)
        memcpy(copies + i * count, numbers, count * sizeof *copies);
    kb_tensor t = make_tensor(ctx, name, dtype, KB_SHAPE(cubes * rows, width), &by_cube,
                              numbers ? copies : NULL);
    free(copies);
    return t;
}

static void check_copies(const fused *f, const float *copies, uint64_t cubes)
{
    size_t count = f->m * out_columns(f);
    for (uint64_t cube = 1; cube < cubes; cube++)
        assert_memory_equal(copies, copies + cube * count, count * sizeof *copies);
}

static kb_error *run_rank(kb_context *ctx, uint32_t rank, void *arg)
{
    fused *f = arg;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    static const kb_policy rows = {.cube = KB_ROW_WISE, .pe = KB_COLUMN_WISE};
    kb_policy pw = rows, px, po;
    if (f->by_best_layout)
        tp_best_layout(ctx, f->m, f->k, f->n, f->dtype, f->gated, &pw, &px, &po);
    uint64_t wide = out_columns(f), cubes = kb_context_machine(ctx).cubes;
    tp_matmul_spec spec = {
        .x = make_matrix(ctx, "x", f->dtype, f->m, f->k, f->x_by_cube, f->x + rank * f->m * f->k),
        .w = make_tensor(ctx, "w", f->dtype, KB_SHAPE(f->k, f->n), &pw, f->w + rank * f->k * f->n),
        .out = make_matrix(ctx, "out", f->out_dtype, f->m, wide, f->out_by_cube,
                           f->residual == OUT_RESIDUAL ? f->r : NULL),
        .gated = f->gated,
        .norm_eps = f->eps,
        .x_by_cube = f->x_by_cube,
        .out_by_cube = f->out_by_cube,
        .rank = rank,
        .ranks = f->ranks,
        .chunks = f->chunks,
        .sum_dtype = f->sum_dtype,
    };
    if (f->norm)
        spec.norm_gain = make_tensor(ctx, "gain", f->gain_dtype, KB_SHAPE(f->k), &columns, f->gain);
    if (f->bias)
        spec.bias = make_tensor(ctx, "bias", f->out_dtype, KB_SHAPE(f->n), &columns, f->b);
    if (f->residual == OTHER_RESIDUAL)
        spec.residual = make_matrix(ctx, "r", f->out_dtype, f->m, wide, f->out_by_cube, f->r);
    else if (f->residual == OUT_RESIDUAL)
        spec.residual = spec.out;
    KB_TRY(tp_matmul(ctx, &spec));
    f->out[rank] = read_tensor(ctx, spec.out, (f->out_by_cube ? cubes : 1) * f->m * wide);
    if (f->out_by_cube)
        check_copies(f, f->out[rank], cubes);
    const kb_tensor made[] = {
        spec.x,         spec.w,    spec.out,
        spec.norm_gain, spec.bias, f->residual == OTHER_RESIDUAL ? spec.residual : (kb_tensor){0}};
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++)
        if (made[i].id != 0)
            KB_TRY(kb_tensor_free(ctx, made[i]));
    return NULL;
}

/* The same bits on all ranks and for both choices of matrices by cube. */
static void check_fused(kb_context *ctx, fused *f)
{
    draw_contents(f);
    size_t bytes = f->m * out_columns(f) * sizeof(float);
    float *first = NULL;
    for (int i = 0; i < 2; i++) {
        expect_ok(kb_spawn(ctx, run_rank, f, f->ranks));
        if (!first) {
            first = f->out[0];
            check_result(f, first);
        }
        for (uint32_t rank = 0; rank < f->ranks; rank++) {
            assert_memory_equal(f->out[rank], first, bytes);
            if (f->out[rank] != first)
                free(f->out[rank]);
        }
        f->x_by_cube = !f->x_by_cube;
        f->out_by_cube = !f->out_by_cube;
    }
    free(first);
    free_contents(f);
}

static fused draw_case(uint32_t ranks, uint64_t seed)
{
    static const kb_dtype floats[] = {KB_F16, KB_BF16, KB_F32, KB_F8E4M3};
    fused f = {.m = draw(0, 2) == 0 ? 1 : draw(1, 40),
               .k = draw(1, draw(0, 2) == 0 ? 300 : 60),
               .n = draw(1, draw(0, 2) == 0 ? 150 : 40) * 2,
               .dtype = floats[draw(0, 3)],
               .gain_dtype = floats[draw(0, 3)],
               .out_dtype = floats[draw(0, 3)],
               .gated = draw(0, 1),
               .bias = draw(0, 2) == 0,
               .residual = (residual_kind)draw(0, 2),
               .by_best_layout = draw(0, 2) > 0,
               .x_by_cube = draw(0, 1),
               .out_by_cube = draw(0, 1),
               .ranks = ranks,
               .chunks = (uint32_t)draw(1, 5),
               .eps = draw(0, 1) ? 1e-5 : 0,
               .seed = seed};
    f.norm = ranks == 1 && draw(0, 2) > 0;
    f.sum_dtype = f.dtype == KB_F8E4M3 ? KB_F32 : f.dtype;
    if (draw(0, 7) == 0) { /* integers have neither norm nor gate */
        f.dtype = KB_I8;
        f.out_dtype = f.sum_dtype = KB_I32;
        f.norm = f.gated = false;
    }
    return f;
}

static const machine_size machines[] = {
    {.sips = 1, .w = 1, .h = 1, .pes = 1},
    {.sips = 1, .w = 1, .h = 1, .pes = 3},
    {.sips = 1, .w = 3, .h = 1, .pes = 3},
    {.sips = 1, .w = 2, .h = 2, .pes = 2},
    {.sips = 2, .w = 2, .h = 1, .pes = 4},
    {.sips = 2, .w = 1, .h = 3, .pes = 1},
    {.sips = 3, .w = 2, .h = 1, .pes = 2},
    {.sips = 3, .w = 1, .h = 1, .pes = 5},
    {.sips = 1, .w = 3, .h = 1, .pes = 2, .cube_extra = ", pe_gemm: { rows: 16, columns: 7 }"},
    {.sips = 2, .w = 2, .h = 1, .pes = 3, .cube_extra = ", pe_gemm: { rows: 8, columns: 8 }"},
    {.sips = 1,
     .w = 2,
     .h = 1,
     .pes = 2,
     .cube_extra = ", pe_tcm: { capacity_mib: 1, reserved_mib: 0.875 }"},
    {.sips = 2,
     .w = 2,
     .h = 1,
     .pes = 2,
     .cube_extra = ", pe_tcm: { capacity_mib: 1, reserved_mib: 0.875 }"},
};

static void combinations_match_the_reference(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++) {
        kb_context *ctx = open_machine(machines[i], (kb_context_options){.races = KB_RACES_FAIL});
        for (uint64_t trial = 0; trial < 9; trial++) {
            fused f = draw_case(machines[i].sips, 100 * i + trial);
            check_fused(ctx, &f);
        }
        kb_context_destroy(ctx);
    }
}

/* Several blocks of rows and groups of columns. */
static fused make_tall(uint32_t ranks, uint64_t seed)
{
    return (fused){.m = 530,
                   .k = 50,
                   .n = 126,
                   .dtype = KB_BF16,
                   .gain_dtype = KB_F32,
                   .out_dtype = KB_BF16,
                   .sum_dtype = KB_BF16,
                   .norm = ranks == 1,
                   .gated = ranks == 1,
                   .residual = OUT_RESIDUAL,
                   .by_best_layout = true,
                   .ranks = ranks,
                   .chunks = 4,
                   .seed = seed};
}

static void many_rows_go_in_blocks(void **unused)
{
    (void)unused;
    const machine_size three = {.sips = 3, .w = 3, .h = 1, .pes = 2};
    kb_context *ctx = open_machine(three, (kb_context_options){.races = KB_RACES_FAIL});
    for (uint32_t ranks = 1; ranks <= 3; ranks++) {
        fused f = make_tall(ranks, ranks);
        check_fused(ctx, &f);
    }
    kb_context_destroy(ctx);
}

/* Teams that share the link keep pace: any number of teams; the last has fewer columns. */
static void any_number_of_teams_keeps_pace(void **unused)
{
    (void)unused;
    for (uint32_t cubes = 2; cubes <= 9; cubes++) {
        const machine_size size = {.sips = 2,
                                   .w = cubes,
                                   .h = 1,
                                   .pes = 2,
                                   .cube_extra = ", pe_gemm: { rows: 8, columns: 4 }"};
        kb_context *ctx = open_machine(size, (kb_context_options){.races = KB_RACES_FAIL});
        fused f = make_tall(2, cubes);
        f.m = 300;
        check_fused(ctx, &f);
        kb_context_destroy(ctx);
    }
}

/* Whether x is in the own cube changes which strips are multiplied together, but not the order in
 * which chunks of k are added up: f32 shows any difference. */
static void order_of_sums_does_not_depend_on_layouts(void **unused)
{
    (void)unused;
    const machine_size size = {
        .sips = 1, .w = 2, .h = 1, .pes = 2, .cube_extra = ", pe_gemm: { rows: 8, columns: 4 }"};
    kb_context *ctx = open_machine(size, (kb_context_options){.races = KB_RACES_FAIL});
    for (uint64_t n = 10; n <= 250; n += 16) {
        fused f = {.m = 9,
                   .k = 300,
                   .n = n,
                   .dtype = KB_F32,
                   .gain_dtype = KB_F32,
                   .out_dtype = KB_F32,
                   .norm = n % 32 == 10,
                   .by_best_layout = true,
                   .ranks = 1,
                   .seed = n};
        check_fused(ctx, &f);
    }
    kb_context_destroy(ctx);
}

static kb_tensor zeros(kb_context *ctx, const char *name, kb_dtype dtype, kb_shape shape)
{
    return make_tensor(ctx, name, dtype, shape, &columns, NULL);
}

static void mistakes_are_refused(void **unused)
{
    (void)unused;
    const machine_size size = {.sips = 2, .w = 2, .h = 1, .pes = 2};
    kb_context *ctx = open_machine(size, (kb_context_options){0});
    const tp_matmul_spec plain = {.x = zeros(ctx, "x", KB_F16, KB_SHAPE(4, 6)),
                                  .w = zeros(ctx, "w", KB_F16, KB_SHAPE(6, 10)),
                                  .out = zeros(ctx, "out", KB_F16, KB_SHAPE(4, 10))};
    tp_matmul_spec spec = plain;
    spec.gated = true;
    expect_error(tp_matmul(ctx, &spec), KB_ERR_INPUT,
                 "shapes do not match: gated x (4, 6) * w (6, 10) = out (4, 10)");
    spec.w = zeros(ctx, "w", KB_F16, KB_SHAPE(6, 5));
    expect_error(tp_matmul(ctx, &spec), KB_ERR_INPUT,
                 "gated: w has 5 columns, which are not pairs (gate, up)");
    spec = plain;
    spec.norm_gain = zeros(ctx, "gain", KB_F16, KB_SHAPE(5));
    expect_error(tp_matmul(ctx, &spec), KB_ERR_INPUT,
                 "the gain of the norm is (1, 5): expected (6,)");
    spec.norm_gain = zeros(ctx, "gain", KB_I32, KB_SHAPE(6));
    expect_error(tp_matmul(ctx, &spec), KB_ERR_INPUT,
                 "norm: the gain is i32: expected a floating-point dtype");
    spec.norm_gain = zeros(ctx, "gain", KB_F16, KB_SHAPE(6));
    spec.norm_eps = -1;
    expect_error(tp_matmul(ctx, &spec), KB_ERR_INPUT, "norm: eps is -1: expected at least 0");
    spec.norm_eps = 0;
    spec.ranks = 2;
    expect_error(tp_matmul(ctx, &spec), KB_ERR_INPUT,
                 "norm: needs whole rows of x: without sums over ranks, and with all columns of x");
    spec = plain;
    spec.residual = zeros(ctx, "r", KB_F16, KB_SHAPE(4, 9));
    expect_error(tp_matmul(ctx, &spec), KB_ERR_INPUT, "the residual is (4, 9): expected (4, 10)");
    spec.residual = zeros(ctx, "r", KB_I32, KB_SHAPE(4, 10));
    expect_error(tp_matmul(ctx, &spec), KB_ERR_INPUT, "the residual is i32, but sums are f32");
    spec = plain;
    spec.x_by_cube = true;
    expect_error(tp_matmul(ctx, &spec), KB_ERR_INPUT,
                 "x: a tensor of 4 rows is not a matrix by cube: its rows have to be cut over all "
                 "2 cubes, the same number for each");
    spec = plain;
    spec.x = zeros(ctx, "x", KB_I8, KB_SHAPE(4, 6));
    spec.w = zeros(ctx, "w", KB_I8, KB_SHAPE(6, 10));
    spec.out = zeros(ctx, "out", KB_I32, KB_SHAPE(4, 5));
    spec.gated = true;
    expect_error(tp_matmul(ctx, &spec), KB_ERR_INPUT,
                 "gated: x is i8: expected a floating-point dtype");
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(combinations_match_the_reference),
        cmocka_unit_test(many_rows_go_in_blocks),
        cmocka_unit_test(any_number_of_teams_keeps_pace),
        cmocka_unit_test(order_of_sums_does_not_depend_on_layouts),
        cmocka_unit_test(mistakes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
