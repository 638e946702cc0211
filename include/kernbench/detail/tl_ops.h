/*
 * tl_ops.h: the operations of the vector engine, in one list. From it come the operations of
 * kernels (tl_op in tl.h) and of the numbers (data_op in src/data/data.h), their names, how many
 * inputs they have and what computes them. What they mean is in tl.h, what they cost in
 * src/tl/math.c.
 *
 * Each is (OP, name, inputs, kernel): tl_name() is its call, TL_OP_ and DATA_OP are its numbers,
 * and data_kernel_kernel in src/data computes it. New ones come last, so that programs that are
 * compiled already keep their numbers.
 */
#ifndef KERNBENCH_DETAIL_TL_OPS_H
#define KERNBENCH_DETAIL_TL_OPS_H

#define TL_DETAIL_EACH_OP(X)                                                                       \
    X(ADD, add, 2, elements)                                                                       \
    X(SUB, sub, 2, elements)                                                                       \
    X(MUL, mul, 2, elements)                                                                       \
    X(DIV, div, 2, elements)                                                                       \
    X(MAXIMUM, maximum, 2, elements)                                                               \
    X(MINIMUM, minimum, 2, elements)                                                               \
    X(LT, lt, 2, elements)                                                                         \
    X(LE, le, 2, elements)                                                                         \
    X(GT, gt, 2, elements)                                                                         \
    X(GE, ge, 2, elements)                                                                         \
    X(EQ, eq, 2, elements)                                                                         \
    X(NE, ne, 2, elements)                                                                         \
    X(FMA, fma, 3, elements)                                                                       \
    X(CLAMP, clamp, 3, elements)                                                                   \
    X(WHERE, where, 3, elements)                                                                   \
    X(EXP, exp, 1, elements)                                                                       \
    X(LOG, log, 1, elements)                                                                       \
    X(SQRT, sqrt, 1, elements)                                                                     \
    X(RSQRT, rsqrt, 1, elements)                                                                   \
    X(ABS, abs, 1, elements)                                                                       \
    X(SIGMOID, sigmoid, 1, elements)                                                               \
    X(TANH, tanh, 1, elements)                                                                     \
    X(COS, cos, 1, elements)                                                                       \
    X(SIN, sin, 1, elements)                                                                       \
    X(GELU, gelu, 1, elements)                                                                     \
    X(SILU, silu, 1, elements)                                                                     \
    X(NEG, neg, 1, elements)                                                                       \
    X(CAST, cast, 1, elements)                                                                     \
    X(SUM, sum, 1, reduce)                                                                         \
    X(MAX, max, 1, reduce)                                                                         \
    X(MIN, min, 1, reduce)                                                                         \
    X(SOFTMAX, softmax, 1, softmax)                                                                \
    X(TRANSPOSE, transpose, 1, transpose)                                                          \
    X(RESHAPE, reshape, 1, reshape)                                                                \
    X(ARGMAX, argmax, 1, argmax)                                                                   \
    X(ARGMIN, argmin, 1, argmax)                                                                   \
    X(CUMSUM, cumsum, 1, cumsum)                                                                   \
    X(TOPK, topk, 1, topk)                                                                         \
    X(GATHER, gather, 2, gather)                                                                   \
    X(SCATTER, scatter, 3, scatter)                                                                \
    X(SCATTER_ADD, scatter_add, 3, scatter_add)                                                    \
    X(SLICE, slice, 1, slice)                                                                      \
    X(CONCAT, concat, 0, concat)

#endif
