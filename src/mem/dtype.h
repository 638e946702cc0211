/*
 * dtype.h: the dtypes, in one list, and single numbers of them. kb_dtype itself, kb_convert() and
 * the sizes and names are public (kernbench/tensor.h).
 *
 * All small floating-point types are parts of f32, so f32 holds each of their values; what is
 * computed in f32 and rounded once to the small type is rounded right for one operation.
 */
#ifndef KB_MEM_DTYPE_H
#define KB_MEM_DTYPE_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

/*
 * (NAME, name, bytes, CLASS, conversion to f32, conversion from f32), the conversions in dtype.c;
 * NULL: it is f32. Classes: FLOAT, STORAGE (floating point without arithmetic) and INTEGER.
 */
#define MEM_EACH_DTYPE(X)                                                                          \
    X(F16, f16, 2, FLOAT, f32_of_f16, f16_of_f32)                                                  \
    X(BF16, bf16, 2, FLOAT, f32_of_bf16, bf16_of_f32)                                              \
    X(F32, f32, 4, FLOAT, NULL, NULL)                                                              \
    X(F8E4M3, f8e4m3, 1, STORAGE, f32_of_f8e4m3, f8e4m3_of_f32)                                    \
    X(F8E5M2, f8e5m2, 1, STORAGE, f32_of_f8e5m2, f8e5m2_of_f32)                                    \
    X(I8, i8, 1, INTEGER, f32_of_i8, i8_of_f32)                                                    \
    X(I32, i32, 4, INTEGER, f32_of_i32, i32_of_f32)

enum { MEM_FLOAT, MEM_STORAGE, MEM_INTEGER };

/* The dtypes of a class, as a set of bits. */
#define MEM_BIT(NAME, name, bytes, CLASS, widen, narrow)                                           \
    | ((uint32_t)(MEM_##CLASS == MEM_CLASS) << KB_##NAME)
enum {
#define MEM_CLASS MEM_FLOAT
    MEM_FLOAT_DTYPES = 0 MEM_EACH_DTYPE(MEM_BIT),
#undef MEM_CLASS
#define MEM_CLASS MEM_STORAGE
    MEM_STORAGE_DTYPES = 0 MEM_EACH_DTYPE(MEM_BIT),
#undef MEM_CLASS
#define MEM_CLASS MEM_INTEGER
    MEM_INTEGER_DTYPES = 0 MEM_EACH_DTYPE(MEM_BIT),
#undef MEM_CLASS
};
#undef MEM_BIT

/* Whether there is a dtype of this number. */
static inline bool mem_dtype_exists(kb_dtype dtype)
{
    return (unsigned)dtype < KB_DTYPES;
}

static inline bool mem_is_integer(kb_dtype dtype)
{
    return mem_dtype_exists(dtype) && (uint32_t)MEM_INTEGER_DTYPES >> dtype & 1;
}

/* Whether nothing computes with it: it is converted first. */
static inline bool mem_is_storage(kb_dtype dtype)
{
    return mem_dtype_exists(dtype) && (uint32_t)MEM_STORAGE_DTYPES >> dtype & 1;
}

/* Whether it is of floating point and has arithmetic. */
static inline bool mem_is_float(kb_dtype dtype)
{
    return mem_dtype_exists(dtype) && (uint32_t)MEM_FLOAT_DTYPES >> dtype & 1;
}

/* What sums of its numbers are computed in. */
static inline kb_dtype mem_sum_dtype(kb_dtype dtype)
{
    return mem_is_integer(dtype) ? KB_I32 : KB_F32;
}

/* Bounds of an integer type. */
static inline double mem_integer_max(kb_dtype dtype)
{
    return (double)((UINT64_C(1) << (8 * kb_dtype_bytes(dtype) - 1)) - 1);
}

static inline double mem_integer_min(kb_dtype dtype)
{
    return -mem_integer_max(dtype) - 1;
}

/* One element of any type, rounded once. */
double mem_number_get(kb_dtype dtype, const void *from);
void mem_number_set(kb_dtype dtype, void *to, double value);

/* From i32 to an integer type; what is out of range wraps around. The arrays must not overlap. */
void mem_wrap_integers(kb_dtype dtype, void *to, const int32_t *from, size_t count);

#endif
