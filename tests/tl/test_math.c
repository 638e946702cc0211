/*
 * test_math.c: operations on elements and along axes: their numbers against doubles, their shapes,
 * their types, and what they cost.
 */
#include "support/seed.h"
#include "tl_rig.h"

enum { X = 0, Y = 1 << 16, Z = 2 << 16, OUT = 3 << 16 };

/* ---- Numbers ----------------------------------------------------------------------------- */

enum { OF_SEVERAL = 14, OPERATIONS = 30 };

static tl_tensor operation_of_several(tl_context *tl, int which, tl_tensor x, tl_tensor y,
                                      tl_tensor z)
{
    switch (which) {
    case 0:
        return tl_add(x, y);
    case 1:
        return tl_sub(x, y);
    case 2:
        return tl_mul(x, y);
    case 3:
        return tl_div(x, y);
    case 4:
        return tl_maximum(x, y);
    case 5:
        return tl_minimum(x, y);
    case 6:
        return tl_fma(x, y, z);
    case 7:
        return tl_clamp(x, -0.5, 0.5);
    case 8:
        return tl_where(tl_lt(x, y), x, z);
    case 9:
        return tl_where(tl_le(x, y), 2, -1);
    case 10:
        return tl_where(tl_gt(x, y), x, 1);
    case 11:
        return tl_where(tl_ge(x, y), z, x);
    case 12:
        return tl_where(tl_eq(x, x), x, z);
    default:
        return tl_where(tl_ne(x, x), x, z);
    }
}

static double reference_of_several(int which, double x, double y, double z)
{
    switch (which) {
    case 0:
        return x + y;
    case 1:
        return x - y;
    case 2:
        return x * y;
    case 3:
        return x / y;
    case 4:
        return fmax(x, y);
    case 5:
        return fmin(x, y);
    case 6:
        return x * y + z;
    case 7:
        return fmin(fmax(x, -0.5), 0.5);
    case 8:
        return x < y ? x : z;
    case 9:
        return x <= y ? 2 : -1;
    case 10:
        return x > y ? x : 1;
    case 11:
        return x >= y ? z : x;
    case 12:
        return x;
    default:
        return z;
    }
}

static tl_tensor operation_of_one(tl_context *tl, int which, tl_tensor x, tl_tensor y)
{
    switch (which) {
    case 14:
        return tl_exp(x);
    case 15:
        return tl_log(y);
    case 16:
        return tl_sqrt(y);
    case 17:
        return tl_rsqrt(y);
    case 18:
        return tl_abs(x);
    case 19:
        return tl_neg(x);
    case 20:
        return tl_sigmoid(x);
    case 21:
        return tl_tanh(x);
    case 22:
        return tl_cos(x);
    case 23:
        return tl_sin(x);
    case 24:
        return tl_gelu(x);
    case 25:
        return tl_silu(x);
    case 26:
        return tl_sub(2, x);
    case 27:
        return tl_div(x, 3);
    case 28:
        return tl_add(tl_reshape(x, tl_shape(13, 5)), 1);
    default:
        return tl_cast(x, TL_F32);
    }
}

static double reference_of_one(int which, double x, double y)
{
    switch (which) {
    case 14:
        return exp(x);
    case 15:
        return log(y);
    case 16:
        return sqrt(y);
    case 17:
        return 1 / sqrt(y);
    case 18:
        return fabs(x);
    case 19:
        return -x;
    case 20:
        return 1 / (1 + exp(-x));
    case 21:
        return tanh(x);
    case 22:
        return cos(x);
    case 23:
        return sin(x);
    case 24:
        return x / 2 * (1 + erf(x / sqrt(2)));
    case 25:
        return x / (1 + exp(-x));
    case 26:
        return 2 - x;
    case 27:
        return x / 3;
    case 28:
        return x + 1;
    default:
        return x;
    }
}

static double reference(int which, double x, double y, double z)
{
    return which < OF_SEVERAL ? reference_of_several(which, x, y, z)
                              : reference_of_one(which, x, y);
}

/* x (rows, columns), y (rows, 1) and z (1, columns); the result in f32. */
KB_KERNEL(apply, tl_ptr memory, int which, int rows, int columns, int dtype)
{
    tl_tensor x = tl_load(memory + X, tl_shape(rows, columns), (kb_dtype)dtype);
    tl_tensor y = tl_load(memory + Y, tl_shape(rows, 1), (kb_dtype)dtype);
    tl_tensor z = tl_load(memory + Z, tl_shape(1, columns), (kb_dtype)dtype);
    tl_tensor out = which < OF_SEVERAL ? operation_of_several(tl, which, x, y, z)
                                       : operation_of_one(tl, which, x, y);
    tl_store(memory + OUT, tl_cast(out, TL_F32));
}

/* What the numbers of a tensor are after being rounded to its type. */
static void put_random(rig *r, kb_rng *rng, uint64_t offset, kb_dtype dtype, double least,
                       double most, double *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        numbers[i] = least + (most - least) * (double)kb_rng_below(rng, 1000) / 1000;
    put(r, offset, dtype, numbers, count);
    get(r, offset, dtype, numbers, count);
}

static double precision_of(kb_dtype dtype)
{
    return dtype == KB_F16 ? 0x1p-11 : dtype == KB_BF16 ? 0x1p-8 : 0x1p-23;
}

static bool is_of_one_row(int which)
{
    return which >= 15 && which <= 17;
}

static void every_operation_gives_the_right_numbers(void **state)
{
    (void)state;
    enum { ROWS = 5, COLUMNS = 13 };
    static const kb_dtype dtypes[] = {KB_F32, KB_F16, KB_BF16};
    rig r = rig_default();
    kb_rng rng;
    kb_rng_init(&rng, test_seed(1));
    for (int which = 0; which < OPERATIONS; which++) {
        kb_dtype dtype = dtypes[which % 3];
        double x[ROWS * COLUMNS], y[ROWS], z[COLUMNS], out[ROWS * COLUMNS];
        put_random(&r, &rng, X, dtype, -2, 2, x, ROWS * COLUMNS);
        put_random(&r, &rng, Y, dtype, 0.25, 3, y, ROWS);
        put_random(&r, &rng, Z, dtype, -2, 2, z, COLUMNS);
        (void)time_of(&r, apply, MEMORY, which, ROWS, COLUMNS, dtype);
        size_t count = is_of_one_row(which) ? ROWS : ROWS * COLUMNS;
        get(&r, OUT, KB_F32, out, count);
        for (size_t i = 0; i < count; i++) {
            double of_x = x[i], of_y = is_of_one_row(which) ? y[i] : y[i / COLUMNS];
            double of_z = z[i % COLUMNS], right = reference(which, of_x, of_y, of_z);
            double room = precision_of(dtype) * (2 * fabs(right) + fabs(of_x * of_y));
            if (fabs(out[i] - right) > room)
                fail_msg("operation %d, element %zu: %g instead of %g", which, i, out[i], right);
        }
    }
    expect_tcm_free(&r);
    rig_fini(&r);
}

/* ---- Along an axis ----------------------------------------------------------------------- */

KB_KERNEL(reduce, tl_ptr memory, int which, int axis)
{
    tl_tensor x = tl_load(memory + X, tl_shape(2, 3, 4), TL_F32);
    tl_tensor y = which == 0   ? tl_sum(x, axis)
                  : which == 1 ? tl_max(x, axis)
                  : which == 2 ? tl_min(x, axis)
                               : tl_softmax(x, axis);
    tl_store(memory + OUT, y);
}

static void reductions_and_softmax_are_along_an_axis(void **state)
{
    (void)state;
    rig r = rig_default();
    kb_rng rng;
    kb_rng_init(&rng, test_seed(2));
    double x[24], out[24];
    put_random(&r, &rng, X, KB_F32, -3, 3, x, 24);
    static const size_t dims[] = {2, 3, 4}, strides[] = {12, 4, 1};
    for (int axis = -3; axis < 3; axis++) {
        size_t a = (size_t)(axis < 0 ? axis + 3 : axis), length = dims[a], stride = strides[a];
        for (int which = 0; which < 4; which++) {
            (void)time_of(&r, reduce, MEMORY, which, axis);
            size_t count = which == 3 ? 24 : 24 / length;
            get(&r, OUT, KB_F32, out, count);
            for (size_t i = 0; i < count; i++) {
                size_t inner = i % stride, outer = i / (which == 3 ? stride * length : stride);
                size_t first = outer * stride * length + inner;
                double sum = 0, most = -HUGE_VAL, least = HUGE_VAL, exponentials = 0;
                for (size_t k = 0; k < length; k++) {
                    double one = x[first + k * stride];
                    sum += one;
                    most = fmax(most, one);
                    least = fmin(least, one);
                    exponentials += exp(one);
                }
                double right = which == 0   ? sum
                               : which == 1 ? most
                               : which == 2 ? least
                                            : exp(x[i]) / exponentials;
                assert_true(fabs(out[i] - right) <= 1e-6 * (fabs(right) + 3));
            }
        }
    }
    rig_fini(&r);
}

KB_KERNEL(turn, tl_ptr memory)
{
    tl_tensor x = tl_load(memory + X, tl_shape(2, 3), TL_I32);
    tl_store(memory + OUT, tl_transpose(x));
    tl_store(memory + Z, tl_transpose(tl_reshape(x, tl_shape(1, 6, 1))));
}

static void transposing_and_reshaping_move_elements(void **state)
{
    (void)state;
    rig r = rig_default();
    put_sequence(&r, X, KB_I32, 6);
    (void)time_of(&r, turn, MEMORY);
    expect_numbers(&r, OUT, KB_I32, 0, 3, 1, 4, 2, 5);
    expect_numbers(&r, Z, KB_I32, 0, 1, 2, 3, 4, 5);
    rig_fini(&r);
}

/* ---- Shapes ------------------------------------------------------------------------------ */

/* (3, 1, 2) + (4, 1) + () is (3, 4, 2). */
KB_KERNEL(broadcast, tl_ptr memory)
{
    tl_tensor x = tl_load(memory + X, tl_shape(3, 1, 2), TL_F32);
    tl_tensor y = tl_mul(tl_load(memory + X, tl_shape(4, 1), TL_F32), 10);
    tl_tensor one = tl_full(tl_shape(), TL_F32, 100);
    tl_store(memory + OUT, tl_add(tl_add(x, y), one));
}

static void shapes_broadcast_from_their_last_axes(void **state)
{
    (void)state;
    rig r = rig_default();
    put_sequence(&r, X, KB_F32, 8);
    (void)time_of(&r, broadcast, MEMORY);
    for (size_t i = 0; i < 24; i++) {
        double right = (double)(i / 8 * 2 + i % 2) + (double)(i / 2 % 4) * 10 + 100;
        assert_true(get_one(&r, OUT + i * 4, KB_F32) == right);
    }
    rig_fini(&r);
}

KB_KERNEL(empty, tl_ptr memory, int rows)
{
    tl_tensor x = tl_load(memory + X, tl_shape(rows, 3), TL_F16);
    tl_tensor sum = tl_sum(tl_exp(tl_add(x, 1)), 0);
    tl_store(memory + OUT, sum);
    tl_store(memory + OUT, tl_reshape(x, tl_shape(3, rows)));
    tl_store(memory + OUT, tl_arange(4, 4));
}

/* A PE may have no part of something: its shapes have a 0, and sums over nothing are 0. */
static void empty_tensors_are_no_exception(void **state)
{
    (void)state;
    rig r = rig_default();
    put(&r, OUT, KB_F16, (const double[]){5, 5, 5, 5}, 4);
    (void)time_of(&r, empty, MEMORY, 0);
    expect_numbers(&r, OUT, KB_F16, 0, 0, 0, 5);
    rig_fini(&r);
}

/* ---- Types ------------------------------------------------------------------------------- */

static tl_tensor of_dtype(tl_context *tl, kb_dtype dtype)
{
    return tl_full(tl_shape(2), dtype, 3);
}

/* Stores x, and 99 behind it; so the host sees how many bytes it has. */
static void store_and_mark(tl_context *tl, tl_ptr ptr, tl_tensor x)
{
    tl_store(ptr, tl_full(tl_shape(8), TL_I8, 99));
    tl_store(ptr, x);
}

KB_KERNEL(meet, tl_ptr memory)
{
    static const kb_dtype pairs[][2] = {{TL_F16, TL_F16},  {TL_F16, TL_BF16}, {TL_F16, TL_F32},
                                        {TL_BF16, TL_I32}, {TL_I8, TL_I8},    {TL_I8, TL_I32},
                                        {TL_I32, TL_F16}};
    for (int i = 0; i < 7; i++)
        store_and_mark(tl, memory + OUT + i * 8,
                       tl_add(of_dtype(tl, pairs[i][0]), of_dtype(tl, pairs[i][1])));
    store_and_mark(tl, memory + OUT + 56, tl_lt(of_dtype(tl, TL_F32), 4));
    store_and_mark(tl, memory + OUT + 64, tl_exp(tl_full(tl_shape(2), TL_I8, 0)));
    store_and_mark(tl, memory + OUT + 72, tl_sum(tl_full(tl_shape(2, 100), TL_I8, 100), 1));
    store_and_mark(tl, memory + OUT + 80, tl_neg(of_dtype(tl, TL_I8)));
    store_and_mark(tl, memory + OUT + 88, tl_max(tl_full(tl_shape(2, 2), TL_I8, 7), 1));
}

static void types_meet(void **state)
{
    (void)state;
    rig r = rig_default();
    (void)time_of(&r, meet, MEMORY);
    expect_numbers(&r, OUT, KB_F16, 6, 6);
    expect_numbers(&r, OUT + 4, KB_I8, 99);
    expect_numbers(&r, OUT + 8, KB_F32, 6, 6);
    expect_numbers(&r, OUT + 16, KB_F32, 6, 6);
    expect_numbers(&r, OUT + 24, KB_BF16, 6, 6);
    expect_numbers(&r, OUT + 28, KB_I8, 99);
    expect_numbers(&r, OUT + 32, KB_I8, 6, 6, 99);
    expect_numbers(&r, OUT + 40, KB_I32, 6, 6);
    expect_numbers(&r, OUT + 48, KB_F16, 6, 6);
    expect_numbers(&r, OUT + 52, KB_I8, 99);
    expect_numbers(&r, OUT + 56, KB_I8, 1, 1, 99);
    expect_numbers(&r, OUT + 64, KB_F32, 1, 1);
    expect_numbers(&r, OUT + 72, KB_I32, 10000, 10000);
    expect_numbers(&r, OUT + 80, KB_I8, -3, -3, 99);
    expect_numbers(&r, OUT + 88, KB_I8, 7, 7, 99);
    rig_fini(&r);
}

KB_KERNEL(numbers, tl_ptr memory, int64_t wide, unsigned narrow, size_t size, float third)
{
    tl_tensor bytes = tl_full(tl_shape(1), TL_I8, 5), halves = tl_full(tl_shape(1), TL_F16, 2);
    store_and_mark(tl, memory + OUT, tl_add(bytes, 1));
    store_and_mark(tl, memory + OUT + 8, tl_add(bytes, 300));
    store_and_mark(tl, memory + OUT + 16, tl_add(bytes, 0.5));
    store_and_mark(tl, memory + OUT + 24, tl_add(bytes, wide));
    store_and_mark(tl, memory + OUT + 32, tl_mul(halves, third));
    store_and_mark(tl, memory + OUT + 40, tl_add(tl_add(halves, narrow), size));
    store_and_mark(tl, memory + OUT + 48, tl_lt(bytes, 300));
    store_and_mark(tl, memory + OUT + 56, tl_where(bytes, 1, -INFINITY));
}

/* A number has the type of the tensor beside it, if that can hold it. */
static void numbers_have_the_type_of_tensors(void **state)
{
    (void)state;
    rig r = rig_default();
    (void)time_of(&r, numbers, MEMORY, 1ll << 40, 7, 8, 0.333333343L);
    expect_numbers(&r, OUT, KB_I8, 6, 99);
    expect_numbers(&r, OUT + 8, KB_I32, 305);
    expect_numbers(&r, OUT + 16, KB_F32, 5.5);
    expect_numbers(&r, OUT + 24, KB_F32, 0x1p40);
    /* A third in f16 is 0.333251953125. */
    expect_numbers(&r, OUT + 32, KB_F16, 0.66650390625);
    expect_numbers(&r, OUT + 34, KB_I8, 99);
    expect_numbers(&r, OUT + 40, KB_F16, 17);
    expect_numbers(&r, OUT + 48, KB_I8, 1, 99);
    expect_numbers(&r, OUT + 56, KB_F32, 1);
    rig_fini(&r);
}

KB_KERNEL(through_f8, tl_ptr memory)
{
    tl_tensor x = tl_load(memory + X, tl_shape(2, 2), TL_F8E4M3);
    tl_store(memory + OUT, tl_add(tl_cast(tl_transpose(x), TL_F16), 1));
    tl_store(memory + Z, tl_cast(tl_cast(x, TL_F32), TL_F8E5M2));
}

static void f8_can_be_moved_and_cast(void **state)
{
    (void)state;
    rig r = rig_default();
    put(&r, X, KB_F8E4M3, (const double[]){1, 2, 3, 448}, 4);
    (void)time_of(&r, through_f8, MEMORY);
    expect_numbers(&r, OUT, KB_F16, 2, 4, 3, 449);
    expect_numbers(&r, Z, KB_F8E5M2, 1, 2, 3, 448);
    rig_fini(&r);
}

KB_KERNEL(of_numbers_alone, tl_ptr memory)
{
    tl_store(memory + OUT, tl_arange(-2, 3));
    tl_store(memory + Z, tl_zeros(tl_shape(2), TL_I8));
    tl_store(memory + Y, tl_full(tl_shape(2), TL_BF16, 1.00390625)); /* a tie: to even */
}

static void tensors_are_made_of_numbers(void **state)
{
    (void)state;
    rig r = rig_default();
    put(&r, Z, KB_I8, (const double[]){5, 5, 5}, 3);
    (void)time_of(&r, of_numbers_alone, MEMORY);
    expect_numbers(&r, OUT, KB_I32, -2, -1, 0, 1, 2);
    expect_numbers(&r, Z, KB_I8, 0, 0, 5);
    expect_numbers(&r, Y, KB_BF16, 1, 1);
    rig_fini(&r);
}

/* ---- What it costs ----------------------------------------------------------------------- */

enum { COSTS = 13 };

static void do_one(tl_context *tl, int which, tl_tensor x, tl_tensor y)
{
    switch (which) {
    case 0:
        ignore(tl_add(x, y));
        break;
    case 1:
        ignore(tl_fma(x, x, y));
        break;
    case 2:
        ignore(tl_div(y, x));
        break;
    case 3:
        ignore(tl_rsqrt(x));
        break;
    case 4:
        ignore(tl_exp(x));
        break;
    case 5:
        ignore(tl_gelu(x));
        break;
    case 6:
        ignore(tl_softmax(x, 1));
        break;
    case 7:
        ignore(tl_sum(x, 1));
        break;
    case 8:
        ignore(tl_lt(x, 1));
        break;
    case 9:
        tl_cast(x, TL_F16);
        break;
    case 10:
        tl_transpose(x);
        break;
    case 11:
        tl_arange(0, 1000);
        break;
    default:
        tl_reshape(x, tl_shape(1000));
        break;
    }
}

KB_KERNEL(cost, int which)
{
    tl_tensor x = tl_full(tl_shape(100, 10), TL_F32, 1);
    tl_tensor y = tl_full(tl_shape(100, 1), TL_F32, 1);
    tl_wait(x);
    tl_wait(y);
    do_one(tl, which, x, y);
}

/*
 * x has 1000 elements: 16 passes of 64 lanes, so 16 + 4 to make it, and y 2 + 4: both are there at
 * 20 + 1 + 20 + 6 = 47. Then 1 to issue, and in cycles: passes * classes + 4. Moves are 1,
 * divisions 4, exponentials 8; softmax is 3 moves, a division and an exponential; reductions count
 * what goes in. A TCM of 512 GB/s is no limit: 8000 bytes in 15.6 ns.
 */
static void what_operations_take(void **state)
{
    (void)state;
    static const struct {
        kb_time cycles;
        uint64_t flops;
    } right[COSTS] = {{20, 1000},  {20, 2000},  {68, 1000}, {68, 1000}, {132, 1000},
                      {148, 2000}, {244, 5000}, {20, 1000}, {20, 1000}, {20, 0},
                      {20, 0},     {20, 0},     {-1, 0}};
    for (int which = 0; which < COSTS; which++) {
        rig r = rig_default();
        assert_int_equal(time_of(&r, cost, which), (48 + right[which].cycles) * KB_NS);
        size_t count;
        uint64_t flops = 0;
        const kb_op_sum *sums = kb_oplog_sums(r.log, &count);
        for (size_t i = 0; i < count; i++)
            flops += sums[i].flops;
        assert_int_equal(flops, right[which].flops);
        rig_fini(&r);
    }
}

KB_KERNEL(add_large, int n)
{
    tl_tensor x = tl_full(tl_shape(n), TL_F32, 1);
    tl_wait(x);
    ignore(tl_add(x, x));
}

/*
 * With 1024 lanes it is the TCM that limits: 65536 numbers of 4 bytes are 262144 bytes, written in
 * 512 ns; read twice, in 1024. So 20 + 1 + 512, and 1 + 1024.
 */
static void the_tcm_limits_what_has_many_lanes(void **state)
{
    (void)state;
    rig r = rig_make(one_cube("{ pe_math: { lanes: 1024 } }"), false);
    assert_int_equal(time_of(&r, add_large, 65536), 1558 * KB_NS);
    rig_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_gives_the_right_numbers),
        cmocka_unit_test(reductions_and_softmax_are_along_an_axis),
        cmocka_unit_test(transposing_and_reshaping_move_elements),
        cmocka_unit_test(shapes_broadcast_from_their_last_axes),
        cmocka_unit_test(empty_tensors_are_no_exception),
        cmocka_unit_test(types_meet),
        cmocka_unit_test(numbers_have_the_type_of_tensors),
        cmocka_unit_test(f8_can_be_moved_and_cast),
        cmocka_unit_test(tensors_are_made_of_numbers),
        cmocka_unit_test(what_operations_take),
        cmocka_unit_test(the_tcm_limits_what_has_many_lanes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
