/*
 * dtype.c: what the bits of numbers mean, and conversion between the types.
 *
 * Every conversion rounds once, to nearest and to even, through f32: that holds all values of the
 * small types and of i8, so that only the step out of it rounds. What f32 cannot hold, doubles and
 * large integers, gets there rounded to odd, if it has further to go: cut off, with the last bit
 * set if something was lost. That bit stands for all the lost ones in the second rounding, which
 * so is right as long as f32 has two bits more than the result.
 *
 * A NaN stays one: quiet, with its sign, and with as much of its payload as fits. F8E4M3 has just
 * one, without a payload. Not kept: the exception flags of the FPU, whose rounding mode must be the
 * default.
 */
#include "dtype.h"

#include <math.h>
#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "base/base.h"

/* Elements in memory have no alignment. */
typedef void convert_fn(void *restrict to, const void *restrict from, size_t count);

typedef struct dtype_traits {
    const char *name;
    size_t bytes;
    convert_fn *f32_of, *of_f32;
} dtype_traits;

static const dtype_traits dtypes[KB_DTYPES];

size_t kb_dtype_bytes(kb_dtype dtype)
{
    return mem_dtype_exists(dtype) ? dtypes[dtype].bytes : 0;
}

const char *kb_dtype_name(kb_dtype dtype)
{
    return mem_dtype_exists(dtype) ? dtypes[dtype].name : "?";
}

/* ---- Bits -------------------------------------------------------------------------------- */

enum { f32_fraction_bits = 23, f32_bias = 127 };

#define F32_SIGN 0x80000000u
#define F32_INFINITY 0x7f800000u
#define F32_QUIET 0x00400000u

static inline uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint64_t bits_of_double(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline double double_of(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* NaN by hand: not every FPU keeps its sign and payload. */
static double widen_f32(uint32_t bits)
{
    enum { more = 52 - f32_fraction_bits };
    if ((bits & ~F32_SIGN) <= F32_INFINITY)
        return (double)float_of(bits);
    uint64_t sign = (uint64_t)(bits & F32_SIGN) << 32;
    uint64_t payload = (uint64_t)(bits & (F32_QUIET - 1)) << more;
    return double_of(sign | UINT64_C(0x7ff8000000000000) | payload);
}

static uint32_t narrow_nan(double nan)
{
    uint64_t bits = bits_of_double(nan);
    uint32_t sign = (uint32_t)(bits >> 32) & F32_SIGN;
    uint32_t payload = (uint32_t)(bits >> (52 - f32_fraction_bits)) & (F32_QUIET - 1);
    return sign | F32_INFINITY | F32_QUIET | payload;
}

/* The nearest in f32. */
static uint32_t narrow_double(double value)
{
    return isnan(value) ? narrow_nan(value) : bits_of((float)value);
}

/* To f32, on the way to a smaller type: cut off, and odd if that lost something. */
static uint32_t round_to_odd(double value)
{
    if (isnan(value))
        return narrow_nan(value);
    float near = (float)value;
    uint32_t bits = bits_of(near);
    if (fabs((double)near) > fabs(value))
        bits--; /* the next one towards 0, also from infinity */
    return bits | ((double)near != value);
}

/* ---- Small floating-point types ---------------------------------------------------------- */

/*
 * Sign, exponent and fraction. With an exponent of 0 they are multiples of the smallest number;
 * what is too large becomes `top`.
 */
typedef struct small_float {
    uint32_t sign, fraction_bits, bias, top;
    bool has_infinity; /* that is top, and NaNs are above it; otherwise top is the NaN */
} small_float;

static const small_float f16 = {0x8000, 10, 15, 0x7c00, true};
static const small_float f8e4m3 = {0x80, 3, 7, 0x7f, false};
static const small_float f8e5m2 = {0x80, 2, 15, 0x7c, true};

/*
 * In both directions the results for normal numbers, for those below and for NaN are all worked
 * out, and then one is chosen: that takes no jumps, and compilers can do several at a time.
 */
static inline __attribute__((always_inline)) uint32_t widen(uint32_t bits, small_float type)
{
    uint32_t shift = f32_fraction_bits - type.fraction_bits;
    uint32_t rebias = (f32_bias - type.bias) << f32_fraction_bits;
    uint32_t unit = (f32_bias + 1 - type.bias - type.fraction_bits) << f32_fraction_bits;
    uint32_t magnitude = bits & (type.sign - 1);

    uint32_t wide = (magnitude << shift) + rebias;
    uint32_t tiny = bits_of((float)(int32_t)magnitude * float_of(unit));
    wide = magnitude < 1u << type.fraction_bits ? tiny : wide;
    uint32_t special = type.has_infinity ? magnitude << shift | F32_INFINITY : F32_INFINITY;
    special |= magnitude > type.top || !type.has_infinity ? F32_QUIET : 0;
    wide = magnitude >= type.top ? special : wide;
    return wide | (bits & type.sign) * (F32_SIGN / type.sign);
}

static inline __attribute__((always_inline)) uint32_t narrow(uint32_t bits, small_float type)
{
    uint32_t shift = f32_fraction_bits - type.fraction_bits;
    uint32_t rebias = (f32_bias - type.bias) << f32_fraction_bits;
    uint32_t smallest_normal = rebias + (1u << f32_fraction_bits);
    uint32_t magnitude = bits & ~F32_SIGN;

    /* A carry out of the fraction is right: it is the next exponent, or infinity. */
    uint32_t half = (1u << (shift - 1)) - 1 + (magnitude >> shift & 1);
    uint32_t small = (magnitude + half - rebias) >> shift;
    small = small < type.top ? small : type.top;

    /* Next to a number whose last digit is the unit of the small ones, the FPU rounds to units. */
    uint32_t beside = (f32_bias + 1 - type.bias + shift) << f32_fraction_bits;
    uint32_t tiny = bits_of(float_of(magnitude) + float_of(beside)) - beside;
    small = magnitude < smallest_normal ? tiny : small;

    uint32_t quiet = type.has_infinity ? 1u << (type.fraction_bits - 1) : 0;
    uint32_t payload = type.has_infinity ? magnitude >> shift & (quiet - 1) : 0;
    small = magnitude > F32_INFINITY ? type.top | quiet | payload : small;
    return small | (bits & F32_SIGN) / (F32_SIGN / type.sign);
}

/* The upper half of f32. */
static inline uint32_t widen_bf16(uint32_t bits)
{
    uint32_t wide = bits << 16;
    return wide | ((wide & ~F32_SIGN) > F32_INFINITY ? F32_QUIET : 0);
}

static inline uint32_t narrow_bf16(uint32_t bits)
{
    uint32_t small = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (bits & ~F32_SIGN) > F32_INFINITY ? (bits | F32_QUIET) >> 16 : small;
}

/* ---- Integers ---------------------------------------------------------------------------- */

/* Towards 0, and into the range. */
static inline int32_t to_integer(double value, int32_t low, int32_t high)
{
    if (isnan(value))
        return 0;
    if (value >= high)
        return high;
    return value <= low ? low : (int32_t)value;
}

static inline int8_t to_i8(uint32_t f32)
{
    return (int8_t)to_integer((double)float_of(f32), INT8_MIN, INT8_MAX);
}

static inline int32_t to_i32(uint32_t f32)
{
    return to_integer((double)float_of(f32), INT32_MIN, INT32_MAX);
}

/* ---- Arrays ------------------------------------------------------------------------------ */

#define CONVERT(name, TO, FROM, expression)                                                        \
    static void name(void *restrict to, const void *restrict from, size_t count)                   \
    {                                                                                              \
        for (size_t i = 0; i < count; i++) {                                                       \
            FROM x;                                                                                \
            memcpy(&x, (const char *)from + i * sizeof x, sizeof x);                               \
            TO y = (TO)(expression);                                                               \
            memcpy((char *)to + i * sizeof y, &y, sizeof y);                                       \
        }                                                                                          \
    }

CONVERT(plain_f32_of_f16, uint32_t, uint16_t, widen(x, f16))
CONVERT(f32_of_bf16, uint32_t, uint16_t, widen_bf16(x))
CONVERT(f32_of_f8e4m3, uint32_t, uint8_t, widen(x, f8e4m3))
CONVERT(f32_of_f8e5m2, uint32_t, uint8_t, widen(x, f8e5m2))
CONVERT(f32_of_i8, float, int8_t, x)
CONVERT(f32_of_i32, float, int32_t, x)
CONVERT(odd_f32_of_i32, uint32_t, int32_t, round_to_odd(x))

CONVERT(plain_f16_of_f32, uint16_t, uint32_t, narrow(x, f16))
CONVERT(bf16_of_f32, uint16_t, uint32_t, narrow_bf16(x))
CONVERT(f8e4m3_of_f32, uint8_t, uint32_t, narrow(x, f8e4m3))
CONVERT(f8e5m2_of_f32, uint8_t, uint32_t, narrow(x, f8e5m2))
CONVERT(i8_of_f32, int8_t, uint32_t, to_i8(x))
CONVERT(i32_of_f32, int32_t, uint32_t, to_i32(x))
CONVERT(low_bytes, int8_t, uint32_t, (uint8_t)x)

/*
 * Most numbers are f16, and most CPUs convert them, to the same bits. These do it eight at a time,
 * and tell how many they have done.
 */
#ifdef __x86_64__
/* There is no CPU with AVX2 but without F16C, which not every compiler can ask for. */
static bool converts_f16(void)
{
    return __builtin_cpu_supports("avx2");
}

__attribute__((target("avx,f16c"))) static size_t eights_to_f32(char *to, const char *from,
                                                                size_t count)
{
    for (size_t i = 0; i < count / 8; i++) {
        __m128i eight = _mm_loadu_si128((const __m128i *)(const void *)(from + i * 16));
        _mm256_storeu_ps((float *)(void *)(to + i * 32), _mm256_cvtph_ps(eight));
    }
    return count / 8 * 8;
}

__attribute__((target("avx,f16c"))) static size_t eights_to_f16(char *to, const char *from,
                                                                size_t count)
{
    for (size_t i = 0; i < count / 8; i++) {
        __m256 eight = _mm256_loadu_ps((const float *)(const void *)(from + i * 32));
        _mm_storeu_si128((__m128i *)(void *)(to + i * 16),
                         _mm256_cvtps_ph(eight, _MM_FROUND_TO_NEAREST_INT));
    }
    return count / 8 * 8;
}
#else
static bool converts_f16(void)
{
    return false;
}

static size_t eights_to_f32(char *to, const char *from, size_t count)
{
    (void)to, (void)from, (void)count;
    return 0;
}

static size_t eights_to_f16(char *to, const char *from, size_t count)
{
    (void)to, (void)from, (void)count;
    return 0;
}
#endif

static void f32_of_f16(void *restrict to, const void *restrict from, size_t count)
{
    size_t done = converts_f16() ? eights_to_f32(to, from, count) : 0;
    plain_f32_of_f16((char *)to + done * 4, (const char *)from + done * 2, count - done);
}

static void f16_of_f32(void *restrict to, const void *restrict from, size_t count)
{
    size_t done = converts_f16() ? eights_to_f16(to, from, count) : 0;
    plain_f16_of_f32((char *)to + done * 2, (const char *)from + done * 4, count - done);
}

#define ROW(NAME, text, size, CLASS, widen_fn, narrow_fn)                                          \
    [KB_##NAME] = {.name = #text, .bytes = (size), .f32_of = (widen_fn), .of_f32 = (narrow_fn)},
static const dtype_traits dtypes[KB_DTYPES] = {MEM_EACH_DTYPE(ROW)};
#undef ROW

#define ONE(...) +1 /* NOLINT(bugprone-macro-parentheses): a term of a sum */
_Static_assert(0 MEM_EACH_DTYPE(ONE) == KB_DTYPES, "each dtype has a row");
#undef ONE

void kb_convert(kb_dtype to_dtype, void *to, kb_dtype from_dtype, const void *from, size_t count)
{
    enum { piece = 512 };
    KB_ASSERT(mem_dtype_exists(to_dtype) && mem_dtype_exists(from_dtype));
    size_t to_bytes = dtypes[to_dtype].bytes, from_bytes = dtypes[from_dtype].bytes;
    if (count == 0)
        return;
    if (to_dtype == from_dtype) {
        memcpy(to, from, count * to_bytes);
    } else if (to_dtype == KB_F32) {
        dtypes[from_dtype].f32_of(to, from, count);
    } else if (from_dtype == KB_F32) {
        dtypes[to_dtype].of_f32(to, from, count);
    } else {
        /* An odd one serves i8 too: what is not exact there is out of range. */
        convert_fn *half_way = from_dtype == KB_I32 ? odd_f32_of_i32 : dtypes[from_dtype].f32_of;
        for (size_t done = 0; done < count; done += piece) {
            uint32_t f32[piece];
            size_t now = count - done < piece ? count - done : piece;
            half_way(f32, (const char *)from + done * from_bytes, now);
            dtypes[to_dtype].of_f32((char *)to + done * to_bytes, f32, now);
        }
    }
}

void mem_wrap_integers(kb_dtype dtype, void *to, const int32_t *from, size_t count)
{
    KB_ASSERT(mem_is_integer(dtype));
    if (dtypes[dtype].bytes == sizeof *from) {
        memcpy(to, from, count * sizeof *from);
        return;
    }
    KB_ASSERT(dtypes[dtype].bytes == sizeof(int8_t)); /* there are no others */
    low_bytes(to, from, count);
}

/* ---- Single numbers ---------------------------------------------------------------------- */

double mem_number_get(kb_dtype dtype, const void *from)
{
    KB_ASSERT(mem_dtype_exists(dtype));
    if (dtype == KB_I32) {
        int32_t integer;
        memcpy(&integer, from, sizeof integer);
        return integer;
    }
    uint32_t f32;
    kb_convert(KB_F32, &f32, dtype, from, 1);
    return widen_f32(f32);
}

void mem_number_set(kb_dtype dtype, void *to, double value)
{
    KB_ASSERT(mem_dtype_exists(dtype));
    if (dtype == KB_I32) {
        int32_t integer = to_integer(value, INT32_MIN, INT32_MAX);
        memcpy(to, &integer, sizeof integer);
        return;
    }
    /* Cutting off does not change what an integer is cut off to. */
    uint32_t f32 = dtype == KB_F32 ? narrow_double(value) : round_to_odd(value);
    kb_convert(dtype, to, KB_F32, &f32, 1);
}
