/*
 * test_dtype.c: numbers of all types against a table of every value that a type has.
 *
 * The reference works with exact doubles: the values come from the definition of the format, and
 * rounding is a search for the nearest one in the table, to the even pattern of two.
 *
 * Checks M7.
 */
#include "support/expect.h"
#include "support/seed.h"

#include <math.h>

#include "base/rng.h"
#include "cases.h"
#include "mem/dtype.h"

/* ---- The reference ----------------------------------------------------------------------- */

typedef struct format {
    kb_dtype dtype;
    int exponent_bits, fraction_bits;
    uint32_t beyond; /* the first pattern behind the largest number: infinity, or NaN */
    bool has_infinity;
} format;

static const format formats[] = {
    {KB_F16, 5, 10, 0x7c00, true},
    {KB_BF16, 8, 7, 0x7f80, true},
    {KB_F8E4M3, 4, 3, 0x7f, false},
    {KB_F8E5M2, 5, 2, 0x7c, true},
};
enum { FORMATS = sizeof formats / sizeof *formats };

/* Of the patterns without a sign; the last is what would be the number behind the largest. */
static double tables[FORMATS][0x8000];

static uint32_t sign_bit(const format *f)
{
    return 1u << (f->exponent_bits + f->fraction_bits);
}

static bool is_nan_pattern(const format *f, uint32_t bits)
{
    uint32_t magnitude = bits & (sign_bit(f) - 1);
    return f->has_infinity ? magnitude > f->beyond : magnitude == f->beyond;
}

static double positive_value(const format *f, uint32_t magnitude)
{
    int bias = (1 << (f->exponent_bits - 1)) - 1;
    int exponent = (int)(magnitude >> f->fraction_bits);
    int fraction = (int)(magnitude & ((1u << f->fraction_bits) - 1));
    if (exponent == 0)
        return ldexp(fraction, 1 - bias - f->fraction_bits);
    return ldexp(fraction + (1 << f->fraction_bits), exponent - bias - f->fraction_bits);
}

static int make_tables(void **state)
{
    (void)state;
    for (int i = 0; i < FORMATS; i++)
        for (uint32_t m = 0; m <= formats[i].beyond; m++)
            tables[i][m] = positive_value(&formats[i], m);
    return 0;
}

static uint64_t double_bits(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static double double_from(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t float_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_from(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The pattern that a format should have for a number. */
static uint32_t nearest(int i, double value)
{
    const format *f = &formats[i];
    uint32_t sign = double_bits(value) >> 63 ? sign_bit(f) : 0;
    if (isnan(value) && !f->has_infinity)
        return sign | f->beyond;
    if (isnan(value)) {
        uint64_t fraction = double_bits(value) & (((uint64_t)1 << 52) - 1);
        uint32_t kept = (uint32_t)(fraction >> (52 - f->fraction_bits));
        return sign | f->beyond | kept | 1u << (f->fraction_bits - 1);
    }
    double magnitude = fabs(value);
    if (magnitude >= tables[i][f->beyond])
        return sign | f->beyond;
    uint32_t low = 0, high = f->beyond; /* tables[low] <= magnitude < tables[high] */
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (tables[i][middle] <= magnitude)
            low = middle;
        else
            high = middle;
    }
    double half_way = (tables[i][low] + tables[i][high]) / 2;
    if (magnitude < half_way || (magnitude == half_way && low % 2 == 0))
        return sign | low;
    return sign | high;
}

/* ---- What is tested, by format ----------------------------------------------------------- */

static float widen_dtype(kb_dtype dtype, uint32_t bits)
{
    unsigned char bytes[2] = {(unsigned char)bits, (unsigned char)(bits >> 8)};
    float value;
    kb_convert(KB_F32, &value, dtype, bytes, 1);
    return value;
}

static uint32_t narrow_dtype(kb_dtype dtype, float value)
{
    unsigned char bytes[2] = {0};
    kb_convert(dtype, bytes, KB_F32, &value, 1);
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8;
}

static float widen(int i, uint32_t bits)
{
    return widen_dtype(formats[i].dtype, bits);
}

static uint32_t narrow(int i, float value)
{
    return narrow_dtype(formats[i].dtype, value);
}

static uint32_t load(kb_dtype dtype, const void *from)
{
    uint32_t bits = 0;
    memcpy(&bits, from,
           kb_dtype_bytes(dtype)); /* the tests run on machines that are little-endian */
    return bits;
}

/* From a double, by mem_number_set. */
static uint32_t set(kb_dtype dtype, double value)
{
    unsigned char bytes[8];
    memset(bytes, 0xa5, sizeof bytes);
    mem_number_set(dtype, bytes + 1, value);
    assert_int_equal(bytes[0], 0xa5);
    assert_int_equal(bytes[1 + kb_dtype_bytes(dtype)], 0xa5);
    return load(dtype, bytes + 1);
}

static void expect_bits(int i, uint32_t found, uint32_t expected, const char *how, double from)
{
    if (found != expected)
        fail_msg("%s %s of %a (0x%llx): expected 0x%x, found 0x%x", kb_dtype_name(formats[i].dtype),
                 how, from, (unsigned long long)double_bits(from), expected, found);
}

static void expect_f32(int i, float value)
{
    double wide = (double)value;
    if (isnan(value)) /* not every FPU keeps the payload */
        wide = double_from((uint64_t)(float_bits(value) & 0x80000000) << 32 |
                           (uint64_t)0x7ff << 52 | (uint64_t)(float_bits(value) & 0x7fffff) << 29);
    uint32_t expected = nearest(i, wide);
    expect_bits(i, narrow(i, value), expected, "in f32", wide);
    uint32_t converted = 0;
    kb_convert(formats[i].dtype, &converted, KB_F32, &value, 1);
    expect_bits(i, converted, expected, "converted", wide);
}

static void expect_double(int i, double value)
{
    expect_bits(i, set(formats[i].dtype, value), nearest(i, value), "in double", value);
}

/* ---- Types ------------------------------------------------------------------------------- */

static void types_have_sizes_and_names(void **state)
{
    (void)state;
    static const struct {
        kb_dtype dtype;
        size_t bytes;
        const char *name;
    } all[] = {{KB_F16, 2, "f16"},       {KB_BF16, 2, "bf16"},     {KB_F32, 4, "f32"},
               {KB_F8E4M3, 1, "f8e4m3"}, {KB_F8E5M2, 1, "f8e5m2"}, {KB_I8, 1, "i8"},
               {KB_I32, 4, "i32"}};
    assert_int_equal(sizeof all / sizeof *all, KB_DTYPES);
    for (size_t i = 0; i < KB_DTYPES; i++) {
        assert_true(mem_dtype_exists(all[i].dtype));
        assert_int_equal(kb_dtype_bytes(all[i].dtype), all[i].bytes);
        assert_string_equal(kb_dtype_name(all[i].dtype), all[i].name);
    }
}

static void other_types_have_no_size(void **state)
{
    (void)state;
    static const int others[] = {KB_DTYPES, KB_DTYPES + 1, 1000, -1};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_false(mem_dtype_exists((kb_dtype)others[i]));
        assert_int_equal(kb_dtype_bytes((kb_dtype)others[i]), 0);
        assert_string_equal(kb_dtype_name((kb_dtype)others[i]), "?");
    }
}

static void convert_from_nothing(void)
{
    uint32_t x = 0, y = 0;
    kb_convert(KB_F32, &x, KB_DTYPES, &y, 1);
}

static void convert_to_nothing(void)
{
    uint32_t x = 0, y = 0;
    kb_convert(KB_DTYPES, &x, KB_F32, &y, 1);
}

static void converting_what_does_not_exist_is_a_bug(void **state)
{
    (void)state;
    expect_abort(convert_from_nothing, "mem_dtype_exists");
    expect_abort(convert_to_nothing, "mem_dtype_exists");
}

/* ---- From small to large ----------------------------------------------------------------- */

static void every_pattern_has_the_value_of_its_format(void **state)
{
    (void)state;
    for (int i = 0; i < FORMATS; i++) {
        const format *f = &formats[i];
        for (uint32_t bits = 0; bits < 2 * sign_bit(f); bits++) {
            uint32_t magnitude = bits & (sign_bit(f) - 1);
            uint32_t sign = bits != magnitude ? 0x80000000 : 0;
            uint32_t expected = 0x7f800000;
            if (is_nan_pattern(f, bits))
                expected |= 0x400000 | (f->has_infinity ? bits << (23 - f->fraction_bits) : 0);
            else if (magnitude < f->beyond)
                expected = float_bits((float)tables[i][magnitude]);
            expected = (expected & 0x7fffffff) | sign;

            float value = widen(i, bits);
            assert_int_equal(float_bits(value), expected);
            uint32_t converted;
            kb_convert(KB_F32, &converted, f->dtype, &bits, 1);
            assert_int_equal(converted, expected);
            double got = mem_number_get(f->dtype, &bits);
            assert_int_equal(double_bits(got) >> 63, sign != 0);
            if (is_nan_pattern(f, bits)) {
                assert_int_equal(double_bits(got) >> 52 & 0x7ff, 0x7ff);
                assert_int_equal(double_bits(got) << 12 >> 41, expected & 0x7fffff);
            } else {
                assert_true(got == (double)value);
            }
        }
    }
}

static void a_number_that_goes_up_and_down_again_is_the_same(void **state)
{
    (void)state;
    for (int i = 0; i < FORMATS; i++) {
        const format *f = &formats[i];
        uint32_t quiet = f->has_infinity ? 1u << (f->fraction_bits - 1) : 0;
        for (uint32_t bits = 0; bits < 2 * sign_bit(f); bits++) {
            uint32_t expected = is_nan_pattern(f, bits) ? bits | quiet : bits;
            assert_int_equal(narrow(i, widen(i, bits)), expected);
            assert_int_equal(set(f->dtype, mem_number_get(f->dtype, &bits)), expected);
        }
    }
}

static void f32_as_a_double_is_the_same(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(2));
    static const uint32_t special[] = {0,          0x80000000, 1,          0x807fffff, 0x7f800000,
                                       0xff800000, 0x7fc00000, 0xffc00000, 0x7f800001, 0xff812345,
                                       0x7fffffff, 0x7f7fffff, 0x00800000};
    const uint64_t specials = sizeof special / sizeof *special;
    for (uint64_t i = 0; i < cases(100000) + specials; i++) {
        uint32_t bits = i < specials ? special[i] : (uint32_t)kb_rng_u64(&rng);
        bool nan = (bits & 0x7fffffff) > 0x7f800000;
        double got = mem_number_get(KB_F32, &bits);
        assert_int_equal(isnan(got), nan);
        if (!nan)
            assert_true(got == (double)float_from(bits));
        assert_int_equal(set(KB_F32, got), nan ? bits | 0x400000 : bits);
    }
}

/* ---- From large to small ----------------------------------------------------------------- */

static void a_few_numbers_by_hand(void **state)
{
    (void)state;
    static const struct {
        kb_dtype dtype;
        double from;
        uint32_t bits;
    } known[] = {
        {KB_F16, 1, 0x3c00},
        {KB_F16, -2, 0xc000},
        {KB_F16, 65504, 0x7bff},                /* the largest */
        {KB_F16, 0x1.ffdffffffffffp15, 0x7bff}, /* just below the middle to 65536 */
        {KB_F16, 65520, 0x7c00},                /* the middle: even is infinity */
        {KB_F16, -1e300, 0xfc00},
        {KB_F16, 0x1p-24, 0x0001}, /* the smallest */
        {KB_F16, 0x1p-25, 0x0000},
        {KB_F16, 0x1.0000000000001p-25, 0x0001}, /* in f32 this were the middle */
        {KB_F16, 0x1.8p-24, 0x0002},
        {KB_F16, -1e-300, 0x8000},
        {KB_F16, 1 + 0x1p-11, 0x3c00},
        {KB_F16, 1 + 0x1p-11 + 0x1p-40, 0x3c01},
        {KB_F16, 1 + 0x3p-11 - 0x1p-40, 0x3c01},
        {KB_BF16, 1, 0x3f80},
        {KB_BF16, 1 + 0x1p-8, 0x3f80},
        {KB_BF16, 1 + 0x1p-8 + 0x1p-50, 0x3f81},
        {KB_BF16, 0x1.fep127, 0x7f7f},
        {KB_BF16, 0x1.ffp127, 0x7f80},
        {KB_BF16, 0x1.fefffffffffffp127, 0x7f7f},
        {KB_BF16, 0x1p-133, 0x0001},
        {KB_BF16, 0x1p-134, 0x0000},
        {KB_BF16, 0x1.0000000000001p-134, 0x0001},
        {KB_F8E4M3, 1, 0x38},
        {KB_F8E4M3, 448, 0x7e},
        {KB_F8E4M3, 464, 0x7e}, /* the middle to what would be 480: even is 448 */
        {KB_F8E4M3, 464.00001, 0x7f},
        {KB_F8E4M3, -480, 0xff},
        {KB_F8E4M3, -HUGE_VAL, 0xff},
        {KB_F8E4M3, 0x1p-9, 0x01},
        {KB_F8E4M3, 0x1p-10, 0x00},
        {KB_F8E5M2, 1, 0x3c},
        {KB_F8E5M2, 57344, 0x7b},
        {KB_F8E5M2, 61439, 0x7b},
        {KB_F8E5M2, 61440, 0x7c},
        {KB_F8E5M2, -HUGE_VAL, 0xfc},
        {KB_F8E5M2, 0x1p-16, 0x01},
        {KB_F32, 1, 0x3f800000},
        {KB_F32, 16777217, 0x4b800000}, /* 2^24 + 1 goes to even */
        {KB_F32, 16777219, 0x4b800002},
        {KB_F32, 1e300, 0x7f800000},
        {KB_F32, -0x1p-149, 0x80000001},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (set(known[i].dtype, known[i].from) != known[i].bits)
            fail_msg("%s of %a: expected 0x%x, found 0x%x", kb_dtype_name(known[i].dtype),
                     known[i].from, known[i].bits, set(known[i].dtype, known[i].from));
}

/* At the middle between two neighbours, and next to it, in f32 and in double; the same above the
 * largest number. */
static void at_and_beside_every_middle_the_nearest_is_taken(void **state)
{
    (void)state;
    for (int i = 0; i < FORMATS; i++) {
        uint32_t stride = RUNNING_ON_VALGRIND && formats[i].beyond > 0xff ? 37 : 1;
        for (uint32_t low = 0; low < formats[i].beyond; low += stride) {
            double middle = (tables[i][low] + tables[i][low + 1]) / 2;
            for (int sign = -1; sign <= 1; sign += 2) {
                double m = sign * middle;
                expect_double(i, m);
                expect_double(i, nextafter(m, HUGE_VAL));
                expect_double(i, nextafter(m, -HUGE_VAL));
                expect_f32(i, (float)m); /* exact but for bf16 below the smallest number of f32 */
                expect_f32(i, nextafterf((float)m, INFINITY));
                expect_f32(i, nextafterf((float)m, -INFINITY));
                double v = sign * tables[i][low];
                expect_f32(i, nextafterf((float)v, INFINITY));
                expect_f32(i, nextafterf((float)v, -INFINITY));
                expect_double(i, nextafter(v, HUGE_VAL));
                expect_double(i, nextafter(v, -HUGE_VAL));
            }
        }
    }
}

static void what_is_too_large_becomes_infinite_or_nan(void **state)
{
    (void)state;
    static const float large[] = {65520, 1e6f, 1e20f, 0x1.fffffep127f, INFINITY};
    for (int i = 0; i < FORMATS; i++) {
        for (size_t n = 0; n < sizeof large / sizeof *large; n++) {
            expect_f32(i, large[n]);
            expect_f32(i, -large[n]);
            expect_double(i, (double)large[n]);
            expect_double(i, (double)-large[n]);
        }
        expect_double(i, 1e300);
        expect_double(i, -1e300);
    }
}

/* Also one whose payload is all in bits that do not fit, and one that is signalling. */
static void nan_stays_nan_with_its_sign_and_what_fits_of_its_payload(void **state)
{
    (void)state;
    static const uint32_t nans[] = {0x7fc00000, 0x7f800001, 0x7f801000, 0x7fa00000, 0x7fffffff,
                                    0x7fd55555, 0x7faaaaaa, 0x7f80ffff, 0x7f810000, 0x7fc10000};
    for (int i = 0; i < FORMATS; i++) {
        for (size_t n = 0; n < sizeof nans / sizeof *nans; n++) {
            for (uint32_t sign = 0; sign < 2; sign++) {
                uint32_t bits = nans[n] | sign << 31;
                expect_f32(i, float_from(bits));
                assert_true(is_nan_pattern(&formats[i], narrow(i, float_from(bits))));
                expect_double(i, mem_number_get(KB_F32, &bits));
            }
        }
        expect_double(i, double_from(UINT64_C(0x7ff0000000000001)));
        expect_double(i, double_from(UINT64_C(0xfff0000000000001)));
        expect_double(i, double_from(UINT64_C(0xfff5555555555555)));
    }
    assert_int_equal(set(KB_F32, double_from(UINT64_C(0x7ff0000000000001))), 0x7fc00000);
    assert_int_equal(set(KB_F32, double_from(UINT64_C(0xfff0000020000000))), 0xffc00001);
}

static void random_f32_goes_to_the_nearest(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(3));
    for (uint64_t n = cases(1000000); n > 0; n--) {
        uint32_t bits = (uint32_t)kb_rng_u64(&rng);
        int i = (int)kb_rng_below(&rng, FORMATS);
        expect_f32(i, float_from(bits));
        /* Another with an exponent that all formats are at home with. */
        bits = (bits & 0x807fffff) | (uint32_t)(127 - 30 + kb_rng_below(&rng, 50)) << 23;
        expect_f32(i, float_from(bits));
    }
}

static void random_doubles_go_to_the_nearest(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(4));
    for (uint64_t n = cases(500000); n > 0; n--) {
        uint64_t bits = kb_rng_u64(&rng);
        int i = (int)kb_rng_below(&rng, FORMATS);
        expect_double(i, double_from(bits));
        bits = (bits & UINT64_C(0x800fffffffffffff)) | (1023 - 30 + kb_rng_below(&rng, 50)) << 52;
        expect_double(i, double_from(bits));
        /* With few ones, so that ties and near ties come up. */
        bits &= UINT64_MAX << kb_rng_below(&rng, 53);
        expect_double(i, double_from(bits | (kb_rng_u64(&rng) & 1)));
    }
}

/* What the header promises: f32 is wide enough for one operation on small numbers. */
static void one_operation_in_f32_is_rounded_right(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(5));
    for (uint64_t n = cases(200000); n > 0; n--) {
        int i = (int)kb_rng_below(&rng, FORMATS);
        float a = widen(i, (uint32_t)kb_rng_below(&rng, 2 * sign_bit(&formats[i])));
        float b = widen(i, (uint32_t)kb_rng_below(&rng, 2 * sign_bit(&formats[i])));
        if (isnan(a) || isnan(b))
            continue;
        const double exact[] = {(double)a + (double)b, (double)a - (double)b, (double)a * (double)b,
                                (double)a / (double)b, sqrt(fabs((double)a))};
        const float single[] = {a + b, a - b, a * b, a / b, sqrtf(fabsf(a))};
        for (size_t op = 0; op < sizeof single / sizeof *single; op++)
            if (!isnan(exact[op]))
                expect_bits(i, narrow(i, single[op]), nearest(i, exact[op]), "computed", exact[op]);
    }
}

/* Another opinion, where the compiler has one. */
#if defined(__FLT16_MAX__) && !defined(__clang__)
#define HAS_FLOAT16 1
static void the_compiler_agrees_about_f16(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        _Float16 half;
        uint16_t pattern = (uint16_t)bits;
        memcpy(&half, &pattern, sizeof half);
        float value = (float)half;
        if (!isnan(value))
            assert_int_equal(float_bits(widen_dtype(KB_F16, pattern)), float_bits(value));
    }
    kb_rng rng;
    kb_rng_init(&rng, test_seed(6));
    for (uint64_t n = cases(500000); n > 0; n--) {
        uint32_t bits = (uint32_t)kb_rng_u64(&rng);
        if (n % 2)
            bits = (bits & 0x807fffff) | (uint32_t)(127 - 30 + kb_rng_below(&rng, 50)) << 23;
        float value = float_from(bits);
        if (isnan(value))
            continue;
        _Float16 half = (_Float16)value;
        uint16_t expected;
        memcpy(&expected, &half, sizeof expected);
        assert_int_equal(narrow_dtype(KB_F16, value), expected);
    }
}
#endif

/* ---- Integers ---------------------------------------------------------------------------- */

static void floating_point_to_integers_goes_towards_0_and_stays_in_range(void **state)
{
    (void)state;
    static const struct {
        double from;
        int32_t i8, i32;
    } known[] = {
        {0, 0, 0},
        {-0.0, 0, 0},
        {0.99999999999, 0, 0},
        {-0.99999999999, 0, 0},
        {1.5, 1, 1},
        {-1.5, -1, -1},
        {2.5, 2, 2},
        {126.99999999999, 126, 126},
        {127.99999999999, 127, 127},
        {128, 127, 128},
        {-127.5, -127, -127},
        {-128, -128, -128},
        {-128.99999999999, -128, -128},
        {-129, -128, -129},
        {2147483646.9, 127, 2147483646},
        {2147483647, 127, INT32_MAX},
        {2147483647.9, 127, INT32_MAX},
        {2147483648, 127, INT32_MAX},
        {-2147483647.9, -128, -2147483647},
        {-2147483648, -128, INT32_MIN},
        {-2147483648.9, -128, INT32_MIN},
        {1e300, 127, INT32_MAX},
        {-1e300, -128, INT32_MIN},
        {HUGE_VAL, 127, INT32_MAX},
        {-HUGE_VAL, -128, INT32_MIN},
        {(double)NAN, 0, 0},
        {-(double)NAN, 0, 0},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        assert_int_equal((int8_t)set(KB_I8, known[i].from), known[i].i8);
        assert_int_equal((int32_t)set(KB_I32, known[i].from), known[i].i32);
        float single = (float)known[i].from;
        if ((double)single != known[i].from && !isnan(single))
            continue;
        int8_t i8 = 99;
        int32_t i32 = 99;
        kb_convert(KB_I8, &i8, KB_F32, &single, 1);
        kb_convert(KB_I32, &i32, KB_F32, &single, 1);
        assert_int_equal(i8, known[i].i8);
        assert_int_equal(i32, known[i].i32);
    }
}

static void integers_round_once(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(7));
    static const int32_t special[] = {
        0,         1,         -1,       INT32_MAX, INT32_MIN, 127,        128,
        -128,      -129,      16777217, -16777217, 16777219,  2049,       2051,
        -2049,     65519,     65520,    -65520,    448,       464,        465,
        -465,      61439,     61440,    67174399,  100000,    2147483519, 268500991,
        268500993, 268435457, 75497473, 75497471,  0x4040001, 0x40c0000};
    const uint64_t specials = sizeof special / sizeof *special;
    for (uint64_t n = 0; n < cases(200000) + specials; n++) {
        int32_t from = (int32_t)(uint32_t)kb_rng_u64(&rng) >> kb_rng_below(&rng, 31);
        if (n < specials)
            from = special[n];
        for (int i = 0; i < FORMATS; i++) {
            uint32_t to = 0;
            kb_convert(formats[i].dtype, &to, KB_I32, &from, 1);
            expect_bits(i, to, nearest(i, from), "of an integer", from);
        }
        float f32;
        kb_convert(KB_F32, &f32, KB_I32, &from, 1);
        assert_true(f32 == (float)from);
        int8_t i8;
        kb_convert(KB_I8, &i8, KB_I32, &from, 1);
        assert_int_equal(i8, from > 127 ? 127 : from < -128 ? -128 : from);
        assert_true(mem_number_get(KB_I32, &from) == from);
        assert_int_equal((int32_t)set(KB_I32, from), from);
    }
    for (int n = -128; n < 128; n++) {
        int8_t from = (int8_t)n;
        int32_t i32 = 999;
        float f32 = 999;
        kb_convert(KB_I32, &i32, KB_I8, &from, 1);
        assert_int_equal(i32, n);
        kb_convert(KB_F32, &f32, KB_I8, &from, 1);
        assert_true(f32 == (float)n);
        assert_true(mem_number_get(KB_I8, &from) == n);
    }
}

/* ---- Arrays ------------------------------------------------------------------------------ */

enum { MOST = 3000 };

static void fill_random(kb_rng *rng, unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)kb_rng_u64(rng);
}

/*
 * Every pair of types, at addresses without alignment and of lengths around those of pieces; each
 * element as if alone, and none beside them touched.
 */
static void arrays_are_converted_element_by_element(void **state)
{
    (void)state;
    static const size_t counts[] = {0, 1, 2, 3, 7, 16, 63, 511, 512, 513, 1024, 1025, 2999};
    static unsigned char from[4 * MOST + 8], to[4 * MOST + 8], alone[8];
    kb_rng rng;
    kb_rng_init(&rng, test_seed(8));
    for (kb_dtype in = 0; in < KB_DTYPES; in++) {
        for (kb_dtype out = 0; out < KB_DTYPES; out++) {
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
                size_t count = counts[c], wide = kb_dtype_bytes(in), result = kb_dtype_bytes(out);
                fill_random(&rng, from, sizeof from);
                memset(to, 0xa5, sizeof to);
                size_t skip = 1 + kb_rng_below(&rng, 3);
                kb_convert(out, to + skip, in, from + 1, count);
                for (size_t i = 0; i < count; i++) {
                    const unsigned char *element = from + 1 + i * wide;
                    if (in == out)
                        memcpy(alone, element, wide);
                    else
                        mem_number_set(out, alone, mem_number_get(in, element));
                    assert_memory_equal(to + skip + i * result, alone, result);
                }
                for (size_t i = 0; i < skip; i++)
                    assert_int_equal(to[i], 0xa5);
                for (size_t i = skip + count * result; i < sizeof to; i++)
                    assert_int_equal(to[i], 0xa5);
            }
        }
    }
}

static void nothing_is_converted_from_nowhere(void **state)
{
    (void)state;
    kb_convert(KB_F16, NULL, KB_F16, NULL, 0);
    kb_convert(KB_F16, NULL, KB_F32, NULL, 0);
    kb_convert(KB_F16, NULL, KB_I32, NULL, 0);
}

/* Between two small types as well: all patterns of one, against the table of the other. */
static void small_types_convert_to_each_other(void **state)
{
    (void)state;
    static uint16_t from[0x10000];
    static uint16_t to[0x10000];
    for (int i = 0; i < FORMATS; i++) {
        size_t count = 2 * (size_t)sign_bit(&formats[i]);
        size_t wide = kb_dtype_bytes(formats[i].dtype);
        for (size_t n = 0; n < count; n++)
            memcpy((char *)from + n * wide, &(uint32_t){(uint32_t)n}, wide);
        for (int j = 0; j < FORMATS; j++) {
            if (j == i)
                continue;
            size_t result = kb_dtype_bytes(formats[j].dtype);
            kb_convert(formats[j].dtype, to, formats[i].dtype, from, count);
            for (size_t n = 0; n < count; n++) {
                uint32_t bits = (uint32_t)n;
                double value = mem_number_get(formats[i].dtype, &bits);
                expect_bits(j, load(formats[j].dtype, (char *)to + n * result), nearest(j, value),
                            "of another type", value);
            }
        }
    }
}

static void the_same_type_is_copied_bit_by_bit(void **state)
{
    (void)state;
    static const uint32_t from[] = {0x7f800001, 0xffffffff, 0x80000000, 0x12345678};
    uint32_t to[4];
    for (kb_dtype dtype = 0; dtype < KB_DTYPES; dtype++) {
        memset(to, 0, sizeof to);
        kb_convert(dtype, to, dtype, from, sizeof from / kb_dtype_bytes(dtype));
        assert_memory_equal(to, from, sizeof from);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(types_have_sizes_and_names),
        cmocka_unit_test(other_types_have_no_size),
        cmocka_unit_test(converting_what_does_not_exist_is_a_bug),
        cmocka_unit_test(every_pattern_has_the_value_of_its_format),
        cmocka_unit_test(a_number_that_goes_up_and_down_again_is_the_same),
        cmocka_unit_test(f32_as_a_double_is_the_same),
        cmocka_unit_test(a_few_numbers_by_hand),
        cmocka_unit_test(at_and_beside_every_middle_the_nearest_is_taken),
        cmocka_unit_test(what_is_too_large_becomes_infinite_or_nan),
        cmocka_unit_test(nan_stays_nan_with_its_sign_and_what_fits_of_its_payload),
        cmocka_unit_test(random_f32_goes_to_the_nearest),
        cmocka_unit_test(random_doubles_go_to_the_nearest),
        cmocka_unit_test(one_operation_in_f32_is_rounded_right),
#ifdef HAS_FLOAT16
        cmocka_unit_test(the_compiler_agrees_about_f16),
#endif
        cmocka_unit_test(floating_point_to_integers_goes_towards_0_and_stays_in_range),
        cmocka_unit_test(integers_round_once),
        cmocka_unit_test(arrays_are_converted_element_by_element),
        cmocka_unit_test(nothing_is_converted_from_nowhere),
        cmocka_unit_test(small_types_convert_to_each_other),
        cmocka_unit_test(the_same_type_is_copied_bit_by_bit),
    };
    return cmocka_run_group_tests(tests, make_tables, NULL);
}
