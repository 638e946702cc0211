/*
 * test_index_operations.c: operations that look elements up, order, cut and join them, in kernels:
 * their numbers against plain loops, their types, what they cost, and what is said of a wrong
 * index.
 */
#include "support/seed.h"
#include "tl_rig.h"

enum { X = 0, Y = 1 << 16, Z = 2 << 16, OUT = 3 << 16, ALSO = 4 << 16 };

/* ---- Numbers ----------------------------------------------------------------------------- */

KB_KERNEL(search, tl_ptr memory, int64_t rows, int64_t columns, int axis, int dtype)
{
    tl_tensor x = tl_load(memory + X, tl_shape(rows, columns), (kb_dtype)dtype);
    tl_store(memory + OUT, tl_argmax(x, axis));
    tl_store(memory + ALSO, tl_argmin(x, axis));
}

static const kb_dtype computed[] = {KB_F16, KB_BF16, KB_F32, KB_I8, KB_I32};
enum { COMPUTED = sizeof computed / sizeof *computed, MOST = 200 };

static void random_numbers(kb_rng *rng, double *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        numbers[i] = (double)kb_rng_below(rng, 15) - 7; /* which f8 has, too */
}

static void the_place_of_the_largest(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(1));
    for (int d = 0; d < COMPUTED; d++)
        for (int axis = -2; axis < 2; axis++) {
            rig r = rig_default();
            double x[7 * 9];
            random_numbers(&rng, x, 63);
            put(&r, X, computed[d], x, 63);
            (void)time_of(&r, search, MEMORY, 7, 9, axis, computed[d]);
            bool along_rows = axis == 1 || axis == -1;
            for (size_t i = 0; i < (along_rows ? 7 : 9); i++) {
                size_t length = along_rows ? 9 : 7, most = 0, least = 0;
                size_t first = along_rows ? i * 9 : i, step = along_rows ? 1 : 9;
                for (size_t j = 1; j < length; j++) {
                    most = x[first + j * step] > x[first + most * step] ? j : most;
                    least = x[first + j * step] < x[first + least * step] ? j : least;
                }
                assert_true(get_one(&r, OUT + i * 4, KB_I32) == (double)most);
                assert_true(get_one(&r, ALSO + i * 4, KB_I32) == (double)least);
            }
            rig_fini(&r);
        }
}

/* The first NaN, for both; of equal ones the first. */
static void nan_is_the_largest_and_the_smallest(void **state)
{
    (void)state;
    rig r = rig_default();
    const double x[] = {1, (double)NAN, 9, (double)NAN, 3, 3, 1, 1};
    put(&r, X, KB_F16, x, 8);
    (void)time_of(&r, search, MEMORY, 2, 4, 1, KB_F16);
    expect_numbers(&r, OUT, KB_I32, 1, 0);
    expect_numbers(&r, ALSO, KB_I32, 1, 2);
    rig_fini(&r);
}

KB_KERNEL(sums, tl_ptr memory, int64_t rows, int64_t columns, int axis, int dtype)
{
    tl_store(memory + OUT,
             tl_cumsum(tl_load(memory + X, tl_shape(rows, columns), (kb_dtype)dtype), axis));
}

static void running_sums(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(2));
    for (int d = 0; d < COMPUTED; d++)
        for (int axis = -2; axis < 2; axis++) {
            rig r = rig_default();
            double x[5 * 11];
            random_numbers(&rng, x, 55);
            put(&r, X, computed[d], x, 55);
            (void)time_of(&r, sums, MEMORY, 5, 11, axis, computed[d]);
            kb_dtype dtype = computed[d] == KB_I8 ? KB_I32 : computed[d];
            for (size_t i = 0; i < 55; i++) {
                bool along_rows = axis == 1 || axis == -1;
                if (along_rows ? i % 11 > 0 : i >= 11)
                    x[i] += x[i - (along_rows ? 1 : 11)];
                assert_true(get_one(&r, OUT + i * kb_dtype_bytes(dtype), dtype) == x[i]);
            }
            rig_fini(&r);
        }
}

KB_KERNEL(best, tl_ptr memory, int64_t rows, int64_t columns, int64_t k, int axis, int dtype)
{
    tl_tensor x = tl_load(memory + X, tl_shape(rows, columns), (kb_dtype)dtype);
    tl_topk_result top = tl_topk(x, k, axis);
    tl_store(memory + OUT, top.values);
    tl_free(top.values);
    tl_store(memory + ALSO, top.indices);
}

/* Rows of 6: 3 is twice there, and NaN before all. */
static void the_largest_come_first(void **state)
{
    (void)state;
    rig r = rig_default();
    const double x[] = {1, 3, -2, 3, 7, 0, 5, (double)NAN, 5, 4, -1, 5};
    put(&r, X, KB_F16, x, 12);
    (void)time_of(&r, best, MEMORY, 2, 6, 4, -1, KB_F16);
    expect_numbers(&r, OUT, KB_F16, 7, 3, 3, 1, (double)NAN, 5, 5, 5);
    expect_numbers(&r, ALSO, KB_I32, 4, 1, 3, 0, 1, 0, 2, 5);
    (void)time_of(&r, best, MEMORY, 6, 2, 1, 0, KB_F16);
    expect_numbers(&r, OUT, KB_F16, 7, (double)NAN);
    expect_numbers(&r, ALSO, KB_I32, 2, 3);
    rig_fini(&r);
}

KB_KERNEL(pick, tl_ptr memory, int64_t picked, int axis, int dtype)
{
    tl_tensor x = tl_load(memory + X, tl_shape(4, 3, 5), (kb_dtype)dtype);
    tl_dims shape = tl_shape(4, 3, 5);
    shape.dims[axis < 0 ? axis + 3 : axis] = picked;
    tl_tensor index = tl_load(memory + Y, shape, TL_I32);
    tl_store(memory + OUT, tl_gather(x, index, axis));
}

KB_KERNEL(drop_in, tl_ptr memory, int64_t placed, int axis, int dtype, int adds)
{
    tl_tensor x = tl_load(memory + X, tl_shape(4, 3, 5), (kb_dtype)dtype);
    tl_dims shape = tl_shape(4, 3, 5);
    shape.dims[axis < 0 ? axis + 3 : axis] = placed;
    tl_tensor index = tl_load(memory + Y, shape, TL_I32);
    tl_tensor src = tl_load(memory + Z, shape, (kb_dtype)dtype);
    tl_store(memory + OUT,
             adds ? tl_scatter_add(x, index, axis, src) : tl_scatter(x, index, axis, src));
}

/* Where element i of an index of (4, 3, 5), but `length` on the axis, leads to, with its number. */
static size_t place_in_x(size_t i, int axis, size_t length, double number)
{
    size_t dims[] = {4, 3, 5}, at[3];
    dims[axis] = length;
    for (int a = 3; a-- > 0; i /= dims[a])
        at[a] = i % dims[a];
    at[axis] = (size_t)number;
    return (at[0] * 3 + at[1]) * 5 + at[2];
}

static void check_index_ops(kb_rng *rng, kb_dtype dtype, int axis, size_t length)
{
    rig r = rig_default();
    const size_t dims[] = {4, 3, 5}, count = 60 / dims[axis] * length;
    double x[60], index[MOST], src[MOST], last[60], sum[60];
    random_numbers(rng, x, 60);
    random_numbers(rng, src, count);
    for (size_t i = 0; i < count; i++)
        index[i] = (double)kb_rng_below(rng, dims[axis]);
    memcpy(last, x, sizeof x);
    memcpy(sum, x, sizeof x);
    for (size_t i = 0; i < count; i++) {
        last[place_in_x(i, axis, length, index[i])] = src[i];
        sum[place_in_x(i, axis, length, index[i])] += src[i];
    }
    put(&r, X, dtype, x, 60);
    put(&r, Y, KB_I32, index, count);
    put(&r, Z, dtype, src, count);
    (void)time_of(&r, pick, MEMORY, (tl_arg)length, axis, dtype);
    for (size_t i = 0; i < count; i++)
        assert_true(get_one(&r, OUT + i * kb_dtype_bytes(dtype), dtype) ==
                    x[place_in_x(i, axis, length, index[i])]);
    (void)time_of(&r, drop_in, MEMORY, (tl_arg)length, axis - 3, dtype, 0);
    expect_these(&r, OUT, dtype, last, 60);
    if (dtype != KB_F8E4M3 && dtype != KB_F8E5M2) {
        (void)time_of(&r, drop_in, MEMORY, (tl_arg)length, axis, dtype, 1);
        expect_these(&r, OUT, dtype, sum, 60);
    }
    expect_tcm_free(&r);
    rig_fini(&r);
}

static void elements_are_picked_and_put(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(3));
    for (int dtype = 0; dtype < KB_DTYPES; dtype++)
        for (int axis = 0; axis < 3; axis++)
            for (size_t length = 0; length < 7; length += 2)
                check_index_ops(&rng, (kb_dtype)dtype, axis, length);
}

KB_KERNEL(put_numbers, tl_ptr memory)
{
    tl_tensor index = tl_reshape(tl_arange(1, 3), tl_shape(1, 2));
    tl_tensor x = tl_zeros(tl_shape(2, 4), TL_I32);
    tl_store(memory + OUT, tl_scatter(x, index, 1, 7));
    tl_store(memory + ALSO, tl_scatter_add(tl_cast(x, TL_F16), index, 1, 0.5));
}

static void numbers_can_be_put_too(void **state)
{
    (void)state;
    rig r = rig_default();
    (void)time_of(&r, put_numbers, MEMORY);
    expect_numbers(&r, OUT, KB_I32, 0, 7, 7, 0, 0, 0, 0, 0);
    expect_numbers(&r, ALSO, KB_F16, 0, 0.5, 0.5, 0, 0, 0, 0, 0);
    rig_fini(&r);
}

/* ---- Parts ------------------------------------------------------------------------------- */

KB_KERNEL(cut, tl_ptr memory, int dtype)
{
    tl_tensor x = tl_load(memory + X, tl_shape(3, 4, 2), (kb_dtype)dtype), parts[3], sizes[4];
    int64_t size = (int64_t)kb_dtype_bytes((kb_dtype)dtype);
    tl_store(memory + OUT, tl_slice(x, 0, 1, 3));
    tl_store(memory + OUT + 16 * size, tl_slice(x, -2, 1, 3));
    tl_store(memory + OUT + 28 * size, tl_slice(tl_slice(x, 0, 2, 3), 1, 1, 2));
    tl_store(memory + OUT + 30 * size, tl_slice(x, 2, 1, 1));
    tl_store(memory + OUT + 30 * size,
             tl_slice(tl_reshape(tl_slice(x, 0, 1, 3), tl_shape(16)), 0, 3, 5));
    tl_split(x, 1, parts, 3);
    tl_split_sizes(x, 0, sizes, 1, 0, 1, 1);
    tl_free(x);
    tl_store(memory + ALSO, tl_concat(1, parts[0], parts[1], parts[2]));
    tl_store(memory + ALSO + 24 * size, tl_concat(0, sizes[0], sizes[1], sizes[2], sizes[3]));
    tl_store(memory + ALSO + 48 * size,
             tl_concat(2, parts[2], tl_ref(memory + X, tl_shape(3, 1, 1), (kb_dtype)dtype)));
}

static void values_are_cut_and_joined(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < KB_DTYPES; dtype++) {
        rig r = rig_default();
        size_t size = kb_dtype_bytes((kb_dtype)dtype);
        double x[24];
        for (size_t i = 0; i < 24;
             i++) /* 24 of them are in every dtype: halves up to 3, and so on */
            x[i] = i < 8 ? (double)i : (double)(i - 8) * 8 - 64;
        put(&r, X, (kb_dtype)dtype, x, 24);
        (void)time_of(&r, cut, MEMORY, dtype);
        expect_these(&r, OUT, (kb_dtype)dtype, x + 8, 16);
        for (size_t row = 0; row < 3; row++)
            expect_these(&r, OUT + (16 + row * 4) * size, (kb_dtype)dtype, x + row * 8 + 2, 4);
        expect_these(&r, OUT + 28 * size, (kb_dtype)dtype, x + 18, 2);
        expect_these(&r, OUT + 30 * size, (kb_dtype)dtype, x + 11, 2);
        expect_these(&r, ALSO, (kb_dtype)dtype, x, 24);
        expect_these(&r, ALSO + 24 * size, (kb_dtype)dtype, x, 24);
        for (size_t row = 0; row < 3; row++) {
            expect_these(&r, ALSO + (48 + row * 3) * size, (kb_dtype)dtype, x + row * 8 + 6, 2);
            expect_these(&r, ALSO + (50 + row * 3) * size, (kb_dtype)dtype, x + row, 1);
        }
        expect_tcm_free(&r);
        rig_fini(&r);
    }
}

KB_KERNEL(join_many, tl_ptr memory)
{
    tl_tensor a = tl_full(tl_shape(2, 1), TL_I8, 1), b = tl_full(tl_shape(2, 2), TL_I8, 2);
    tl_tensor all = tl_concat(1, a, b, a, b, a, b, a, b, a, b, a, b, a);
    tl_free(a);
    tl_free(b);
    tl_store(memory + OUT, tl_slice(all, 0, 1, 2));
    tl_store(memory + ALSO, tl_sum(all, 1));
}

/* Thirteen: more than one command can take. */
static void any_number_can_be_joined(void **state)
{
    (void)state;
    rig r = rig_default();
    (void)time_of(&r, join_many, MEMORY);
    for (uint64_t i = 0; i < 19; i++)
        assert_true(get_one(&r, OUT + i, KB_I8) == (i % 3 == 0 ? 1 : 2));
    expect_numbers(&r, ALSO, KB_I32, 31, 31); /* 7 * 1 + 6 * 2 * 2 */
    expect_tcm_free(&r);
    rig_fini(&r);
}

/* A slice is used as any value: in products, sums, other slices; as .acc only if it is all. */
KB_KERNEL(use_slices, tl_ptr memory)
{
    tl_tensor x = tl_load(memory + X, tl_shape(4, 2), TL_F32);
    tl_tensor low = tl_slice(x, 0, 2, 4), high = tl_slice(x, 0, 0, 2);
    tl_free(x);
    tl_store(memory + OUT, tl_dot(low, high));
    tl_composite(TL_GEMM, low, high, tl_ref(memory + OUT + 16, tl_shape(2, 2), TL_F32));
    tl_store(memory + OUT + 32, tl_add(low, tl_slice(high, 0, 1, 2)));
    if (tl_item(tl_slice(tl_slice(low, 0, 1, 2), 1, 1, 2)) == 7)
        tl_store(memory + OUT + 48, tl_transpose(low));
}

static void slices_are_values(void **state)
{
    (void)state;
    rig r = rig_default();
    put_sequence(&r, X, KB_F32, 8);
    (void)time_of(&r, use_slices, MEMORY);
    /* (4 5, 6 7) times (0 1, 2 3) */
    expect_numbers(&r, OUT, KB_F32, 10, 19, 14, 27);
    expect_numbers(&r, OUT + 16, KB_F32, 10, 19, 14, 27);
    expect_numbers(&r, OUT + 32, KB_F32, 6, 8, 8, 10);
    expect_numbers(&r, OUT + 48, KB_F32, 4, 6, 5, 7);
    rig_fini(&r);
}

/*
 * Masks that are made of numbers alone are known without data: what they leave out need not be
 * mapped. Of the 128 bytes that are loaded only the first 64 are there: rows 0 and 1. Row i has the
 * columns 10 .. 17 that are less than 4 + i + 9, so 3 + i of them; rows 2 and 3 would have 5 and 6.
 */
KB_KERNEL(masked_part, tl_ptr memory)
{
    tl_tensor columns = tl_slice(tl_arange(0, 100), 0, 10, 18);
    tl_tensor rows = tl_gather(tl_arange(0, 20), tl_slice(tl_arange(0, 9), 0, 4, 6), 0);
    tl_tensor there =
        tl_lt(tl_reshape(columns, tl_shape(1, 8)), tl_add(tl_reshape(rows, tl_shape(2, 1)), 9));
    tl_tensor none = tl_zeros(tl_shape(2, 8), TL_I8);
    tl_store(memory + OUT, tl_load(memory + (int64_t)MEMORY_BYTES - 64, tl_shape(4, 8), TL_F32,
                                   .mask = tl_concat(0, there, none), .other = -1));
}

/* The rows 3 and 2 are taken out, found in a roundabout way. */
KB_KERNEL(masked_rows, tl_ptr memory)
{
    tl_tensor ones = tl_full(tl_shape(4, 8), TL_I8, 1);
    tl_tensor counted = tl_cumsum(tl_full(tl_shape(4), TL_I32, 1), 0); /* 1, 2, 3, 4 */
    tl_tensor last = tl_topk(tl_sub(counted, 1), 2, 0).values;         /* 3, 2 */
    tl_tensor rows = tl_add(tl_reshape(last, tl_shape(2, 1)), tl_zeros(tl_shape(2, 8), TL_I32));
    tl_tensor none = tl_argmax(tl_arange(0, 1), 0); /* 0 */
    tl_tensor mask = tl_scatter(ones, tl_add(rows, none), 0, 0);
    tl_store(memory + OUT, tl_load(memory + (int64_t)MEMORY_BYTES - 64, tl_shape(4, 8), TL_F32,
                                   .mask = mask, .other = -1));
}

static void masks_can_be_made_of_pieces(void **state)
{
    (void)state;
    for (int timing_only = 0; timing_only < 2; timing_only++) {
        rig r = rig_make(one_cube(NULL), timing_only);
        if (!timing_only)
            put_sequence(&r, MEMORY_BYTES - 64, KB_F32, 16);
        (void)time_of(&r, masked_part, MEMORY);
        if (!timing_only)
            expect_numbers(&r, OUT, KB_F32, 0, 1, 2, -1, -1, -1, -1, -1, 8, 9, 10, 11, -1, -1, -1,
                           -1, -1, -1, -1, -1);
        (void)time_of(&r, masked_rows, MEMORY);
        if (!timing_only)
            expect_numbers(&r, OUT, KB_F32, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
                           -1, -1, -1, -1);
        rig_fini(&r);
    }
}

/* ---- What it costs ----------------------------------------------------------------------- */

enum { COSTS = 18 };

static void do_one(tl_context *tl, int which, tl_tensor x, tl_tensor y, tl_tensor index)
{
    tl_tensor parts[3];
    switch (which) {
    case 0:
        ignore(tl_argmax(x, 1));
        break;
    case 1:
        ignore(tl_argmin(x, 0));
        break;
    case 2:
        ignore(tl_cumsum(x, 0));
        break;
    case 3:
        ignore(tl_cumsum(x, 1));
        break;
    case 4:
        ignore(tl_cumsum(tl_reshape(x, tl_shape(1000, 1)), 0));
        break;
    case 5:
        ignore(tl_topk(x, 2, 1).values);
        break;
    case 6:
        ignore(tl_topk(x, 100, 0).values);
        break;
    case 7:
        ignore(tl_topk(x, 0, 0).indices);
        break;
    case 8:
        ignore(tl_gather(x, index, 0));
        break;
    case 9:
        ignore(tl_scatter(x, index, 0, 0));
        break;
    case 10:
        ignore(tl_scatter_add(x, index, 0, x));
        break;
    case 11:
        tl_slice(x, 1, 2, 9);
        break;
    case 12:
        tl_slice(x, 0, 2, 9);
        break;
    case 13:
        tl_slice(tl_reshape(x, tl_shape(1, 1000)), 1, 2, 9);
        break;
    case 14:
        ignore(tl_concat(1, x, y, x));
        break;
    case 15:
        tl_split(x, 1, parts, 3);
        break;
    case 16:
        ignore(tl_concat(1, y, y, y, y, y, y, y));
        break;
    default:
        tl_split(x, 0, parts, 3);
        break;
    }
}

KB_KERNEL(cost, int which)
{
    tl_tensor x = tl_full(tl_shape(100, 10), TL_F32, 1);
    tl_tensor y = tl_full(tl_shape(100, 1), TL_F32, 1);
    tl_tensor index = tl_zeros(tl_shape(20, 10), TL_I32);
    tl_wait(x);
    tl_wait(y);
    tl_wait(index);
    do_one(tl, which, x, y, index);
}

/*
 * Before: 20 to begin; three issues, of which the first is 1, and the others pass while the vector
 * engine is at work: x 16 + 4, y 2 + 4, the index (200 elements) 4 + 4: all is there at
 * 21 + 20 + 6 + 8 = 55. Then 1 to issue each command, and in cycles, with 16 rows of lanes in x:
 *
 *     argmax         2 passes                  2 * 16 + 4 = 36
 *     cumsum         axis 0: 1 pass            16 + 4 = 20
 *                    axis 1: ceil(log2(10)) = 4 passes, no more than a row of lanes
 *                                              4 * 16 + 4 = 68
 *                    of 1000: log2(64) = 6 passes and one for what came before
 *                                              7 * 16 + 4 = 116
 *     topk           k = 2: 3 * 2 passes       6 * 16 + 4 = 100
 *                    100 of 100: s = 7, so 28 rounds: 3 * 28 * 16 + 4 = 1348
 *                    none: 4
 *     gather         4 rows of the index, 4 cycles each: 16 + 4 = 20
 *     scatter        a copy of x before that:  16 + 16 + 4 = 36
 *     scatter_add    16 + 4 * (2 * 4 + 1) + 4 = 56
 *     slice          axis 1: 700 elements, 11 rows: 11 + 4 = 15; axis 0, and if axes before it
 *                    are 1: nothing at all
 *     concat         2100 elements, 33 rows: 33 + 4 = 37
 *                    seven of 100: six in one command, 10 + 4, while which the other is issued, and
 *                    one, 2 + 4: 20
 *     split          400, 300, 300 elements: 7 + 4, 5 + 4, 5 + 4 = 29, issued meanwhile; along
 *                    axis 0 nothing
 *
 * The TCM, at 512 bytes a cycle, is no limit: the concat has the most, 8400 bytes in 16.4 ns.
 */
static void what_operations_take(void **state)
{
    (void)state;
    static const struct {
        kb_time cycles; /* -1: no command */
        uint64_t flops;
    } right[COSTS] = {{36, 1000},    {36, 1000}, {20, 1000}, {68, 1000}, {116, 1000}, {100, 2000},
                      {1348, 28000}, {4, 0},     {20, 0},    {36, 0},    {56, 200},   {15, 0},
                      {-1, 0},       {-1, 0},    {37, 0},    {29, 0},    {20, 0},     {-1, 0}};
    for (int which = 0; which < COSTS; which++)
        for (int timing_only = 0; timing_only < 2; timing_only++) {
            rig r = rig_make(one_cube(NULL), timing_only);
            kb_time took = time_of(&r, cost, which);
            if (took != (56 + right[which].cycles) * KB_NS)
                fail_msg("%d took %lld ns", which, (long long)(took / KB_NS));
            size_t count;
            uint64_t flops = 0;
            const kb_op_sum *all = kb_oplog_sums(r.log, &count);
            for (size_t i = 0; i < count; i++)
                flops += all[i].flops;
            assert_int_equal(flops, right[which].flops);
            rig_fini(&r);
        }
}

/* gather_cycles: 9 makes it 9 * 4 + 4; with 32 lanes there are 7 rows in the index. Before, x takes
 * 32 + 4, y 4 + 4 and the index 7 + 4: 21 + 55 = 76. */
static void the_machine_says_what_picking_costs(void **state)
{
    (void)state;
    rig r = rig_make(one_cube("{ pe_math: { gather_cycles: 9 } }"), false);
    assert_int_equal(time_of(&r, cost, 8), (56 + 40) * KB_NS);
    rig_fini(&r);
    r = rig_make(one_cube("{ pe_math: { lanes: 32, gather_cycles: 9 } }"), false);
    assert_int_equal(time_of(&r, cost, 8), (77 + 67) * KB_NS);
    rig_fini(&r);
}

KB_KERNEL(hold, tl_ptr memory, int n)
{
    tl_tensor big = tl_zeros(tl_shape(n, 1 << 20), TL_I8);
    tl_tensor part = tl_slice(big, 0, 0, 1);
    tl_free(big);
    ignore(tl_zeros(tl_shape(1 << 20), TL_I8));
    tl_store(memory + OUT, part);
}

/* 12 MiB of TCM are for kernels: a slice of 12 rows of a MiB holds all of them. */
static void a_slice_holds_the_place_of_the_whole(void **state)
{
    (void)state;
    rig r = rig_default();
    (void)time_of(&r, hold, MEMORY, 11);
    ending e = run(&r, hold, MEMORY, 12);
    assert_non_null(e.err);
    assert_non_null(strstr(kb_error_message(e.err), "values of this kernel hold 12582912 bytes"));
    kb_error_free(e.err);
    rig_fini(&r);
}

/* ---- Wrong indices ----------------------------------------------------------------------- */

static int wrong_line;

KB_KERNEL(wrong, tl_ptr memory, int which)
{
    tl_tensor x = tl_load(memory + X, tl_shape(2, 4), TL_F16);
    tl_tensor index = tl_load(memory + Y, tl_shape(2, 3), TL_I32), y = {0};
    if (which == 0) {
        wrong_line = __LINE__ + 1;
        y = tl_gather(x, index, 1);
    } else if (which == 1) {
        wrong_line = __LINE__ + 1;
        y = tl_scatter(x, index, -1, 1);
    } else {
        wrong_line = __LINE__ + 1;
        y = tl_scatter_add(x, index, 1, 1);
    }
    tl_store(memory + OUT, tl_add(y, 1));
    tl_wait(y); /* it does not come back from here */
    tl_store(memory + ALSO, y);
}

/*
 * The load of x, of 16 bytes, and that of the index, of 24, are issued at 21 and 22; the kernel has
 * long been waiting when the index is there and the command begins.
 */
static void an_index_out_of_range_ends_the_kernel(void **state)
{
    (void)state;
    static const char *const names[] = {"tl_gather", "tl_scatter", "tl_scatter_add"};
    for (int which = 0; which < 3; which++) {
        rig r = rig_default();
        put(&r, Y, KB_I32, (const double[]){0, 3, 1, 2, 4, -1}, 6);
        put(&r, OUT, KB_F16, (const double[]){5}, 1);
        put(&r, ALSO, KB_F16, (const double[]){6}, 1);
        ending e = run(&r, wrong, MEMORY, which);
        char said[120], line[64];
        snprintf(said, sizeof said,
                 "%s: index 4 at (1, 1) is out of range for axis 1 of shape (2, 4)", names[which]);
        snprintf(line, sizeof line, " ns, test_index_operations.c:%d: ", wrong_line);
        assert_non_null(strstr(kb_error_message(e.err), line));
        expect_fault_of(&r, e, "wrong", said);
        expect_numbers(&r, OUT, KB_F16, 5); /* what needs it is not done */
        expect_numbers(&r, ALSO, KB_F16, 6);
        expect_tcm_free(&r);
        rig_fini(&r);
        /* Without data it is not seen. */
        r = rig_make(one_cube(NULL), true);
        (void)time_of(&r, wrong, MEMORY, which);
        rig_fini(&r);
        /* In a run without time. */
        expect_ok(rig_try_with(&r, one_cube(NULL), (rig_options){.instant = true}));
        put(&r, Y, KB_I32, (const double[]){0, 3, 1, 2, 4, -1}, 6);
        expect_fault_of(&r, run(&r, wrong, MEMORY, which), "wrong", said);
        rig_fini(&r);
    }
}

KB_KERNEL(wrong_at_the_end, tl_ptr memory)
{
    tl_tensor x = tl_load(memory + X, tl_shape(8), TL_F16);
    ignore(tl_gather(x, tl_load(memory + Y, tl_shape(1), TL_I32), 0));
}

/* The kernel has returned when its last command begins. */
static void a_kernel_that_has_returned_can_be_wrong(void **state)
{
    (void)state;
    rig r = rig_default();
    put(&r, Y, KB_I32, (const double[]){-7}, 1);
    expect_fault(&r, wrong_at_the_end,
                 "tl_gather: index -7 at (0) is out of range for axis 0 of shape (8)", MEMORY);
    rig_fini(&r);
}

KB_KERNEL(wrong_from_the_beginning, tl_ptr memory)
{
    tl_tensor x = tl_load(memory + X, tl_shape(2, 4), TL_F16);
    ignore(tl_gather(x, tl_reshape(tl_arange(0, 6), tl_shape(2, 3)), 1));
}

/* Numbers alone are known in every run. */
static void an_index_of_numbers_is_checked_without_data(void **state)
{
    (void)state;
    for (int timing_only = 0; timing_only < 2; timing_only++) {
        rig r = rig_make(one_cube(NULL), timing_only);
        expect_fault(&r, wrong_from_the_beginning,
                     "tl_gather: index 4 at (1, 1) is out of range for axis 1 of shape (2, 4)",
                     MEMORY);
        rig_fini(&r);
    }
}

/* ---- Time, with and without data --------------------------------------------------------- */

KB_KERNEL(route, tl_ptr memory)
{
    tl_tensor scores = tl_load(memory + X, tl_shape(64, 40), TL_F16);
    tl_topk_result top = tl_topk(scores, 4, -1);
    tl_tensor weights = tl_softmax(top.values, 1);
    tl_tensor gates = tl_scatter(tl_zeros(tl_shape(64, 40), TL_F16), top.indices, 1, weights);
    tl_tensor load = tl_scatter_add(tl_zeros(tl_shape(64, 40), TL_I32), top.indices, 1, 1);
    tl_store(memory + OUT, gates);
    tl_store(memory + ALSO, tl_cumsum(tl_sum(load, 0), 1));
    tl_store(memory + Z, tl_gather(gates, tl_argmax(gates, 1), 1));
}

static void the_time_is_the_same_without_data(void **state)
{
    (void)state;
    kb_time times[2];
    for (int timing_only = 0; timing_only < 2; timing_only++) {
        rig r = rig_make(one_cube(NULL), timing_only);
        kb_rng rng;
        kb_rng_init(&rng, test_seed(5));
        for (uint64_t i = 0; i < 64 * 40 && !timing_only; i++)
            put(&r, X + i * 2, KB_F16, &(double){kb_rng_double(&rng)}, 1);
        times[timing_only] = time_of(&r, route, MEMORY);
        if (!timing_only)
            assert_true(get_one(&r, ALSO + 39 * 4, KB_I32) == 64 * 4);
        rig_fini(&r);
    }
    assert_int_equal(times[0], times[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_place_of_the_largest),
        cmocka_unit_test(nan_is_the_largest_and_the_smallest),
        cmocka_unit_test(running_sums),
        cmocka_unit_test(the_largest_come_first),
        cmocka_unit_test(elements_are_picked_and_put),
        cmocka_unit_test(numbers_can_be_put_too),
        cmocka_unit_test(values_are_cut_and_joined),
        cmocka_unit_test(any_number_can_be_joined),
        cmocka_unit_test(slices_are_values),
        cmocka_unit_test(masks_can_be_made_of_pieces),
        cmocka_unit_test(what_operations_take),
        cmocka_unit_test(the_machine_says_what_picking_costs),
        cmocka_unit_test(a_slice_holds_the_place_of_the_whole),
        cmocka_unit_test(an_index_out_of_range_ends_the_kernel),
        cmocka_unit_test(a_kernel_that_has_returned_can_be_wrong),
        cmocka_unit_test(an_index_of_numbers_is_checked_without_data),
        cmocka_unit_test(the_time_is_the_same_without_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
