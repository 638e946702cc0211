/*
 * preprocessor.h: counts the arguments of a macro and applies a macro to each. Not for programs:
 * names that begin with KB_DETAIL_ may change.
 */
#ifndef KERNBENCH_DETAIL_PREPROCESSOR_H
#define KERNBENCH_DETAIL_PREPROCESSOR_H

/* The number of arguments, up to 16. */
#define KB_DETAIL_COUNT(...)                                                                       \
    KB_DETAIL_PICK_17(__VA_ARGS__, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0)
#define KB_DETAIL_PICK_17(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, chosen, ...) chosen
#define KB_DETAIL_JOIN(a, b) KB_DETAIL_JOIN_AS_IS(a, b)
#define KB_DETAIL_JOIN_AS_IS(a, b) a##b

/* f(x) for each argument, separated by commas. */
#define KB_DETAIL_EACH_1(f, x) f(x)
#define KB_DETAIL_EACH_2(f, x, ...) f(x), KB_DETAIL_EACH_1(f, __VA_ARGS__)
#define KB_DETAIL_EACH_3(f, x, ...) f(x), KB_DETAIL_EACH_2(f, __VA_ARGS__)
#define KB_DETAIL_EACH_4(f, x, ...) f(x), KB_DETAIL_EACH_3(f, __VA_ARGS__)
#define KB_DETAIL_EACH_5(f, x, ...) f(x), KB_DETAIL_EACH_4(f, __VA_ARGS__)
#define KB_DETAIL_EACH_6(f, x, ...) f(x), KB_DETAIL_EACH_5(f, __VA_ARGS__)
#define KB_DETAIL_EACH_7(f, x, ...) f(x), KB_DETAIL_EACH_6(f, __VA_ARGS__)
#define KB_DETAIL_EACH_8(f, x, ...) f(x), KB_DETAIL_EACH_7(f, __VA_ARGS__)
#define KB_DETAIL_EACH_9(f, x, ...) f(x), KB_DETAIL_EACH_8(f, __VA_ARGS__)
#define KB_DETAIL_EACH_10(f, x, ...) f(x), KB_DETAIL_EACH_9(f, __VA_ARGS__)
#define KB_DETAIL_EACH_11(f, x, ...) f(x), KB_DETAIL_EACH_10(f, __VA_ARGS__)
#define KB_DETAIL_EACH_12(f, x, ...) f(x), KB_DETAIL_EACH_11(f, __VA_ARGS__)
#define KB_DETAIL_EACH_13(f, x, ...) f(x), KB_DETAIL_EACH_12(f, __VA_ARGS__)
#define KB_DETAIL_EACH_14(f, x, ...) f(x), KB_DETAIL_EACH_13(f, __VA_ARGS__)
#define KB_DETAIL_EACH_15(f, x, ...) f(x), KB_DETAIL_EACH_14(f, __VA_ARGS__)
#define KB_DETAIL_EACH_16(f, x, ...) f(x), KB_DETAIL_EACH_15(f, __VA_ARGS__)

/* f(0), f(1), ..: an index for each argument. */
#define KB_DETAIL_EACH_INDEX(f, ...)                                                               \
    KB_DETAIL_JOIN(KB_DETAIL_INDEX_, KB_DETAIL_COUNT(__VA_ARGS__))(f)
#define KB_DETAIL_INDEX_1(f) f(0)
#define KB_DETAIL_INDEX_2(f) KB_DETAIL_INDEX_1(f), f(1)
#define KB_DETAIL_INDEX_3(f) KB_DETAIL_INDEX_2(f), f(2)
#define KB_DETAIL_INDEX_4(f) KB_DETAIL_INDEX_3(f), f(3)
#define KB_DETAIL_INDEX_5(f) KB_DETAIL_INDEX_4(f), f(4)
#define KB_DETAIL_INDEX_6(f) KB_DETAIL_INDEX_5(f), f(5)
#define KB_DETAIL_INDEX_7(f) KB_DETAIL_INDEX_6(f), f(6)
#define KB_DETAIL_INDEX_8(f) KB_DETAIL_INDEX_7(f), f(7)
#define KB_DETAIL_INDEX_9(f) KB_DETAIL_INDEX_8(f), f(8)
#define KB_DETAIL_INDEX_10(f) KB_DETAIL_INDEX_9(f), f(9)
#define KB_DETAIL_INDEX_11(f) KB_DETAIL_INDEX_10(f), f(10)
#define KB_DETAIL_INDEX_12(f) KB_DETAIL_INDEX_11(f), f(11)
#define KB_DETAIL_INDEX_13(f) KB_DETAIL_INDEX_12(f), f(12)
#define KB_DETAIL_INDEX_14(f) KB_DETAIL_INDEX_13(f), f(13)
#define KB_DETAIL_INDEX_15(f) KB_DETAIL_INDEX_14(f), f(14)
#define KB_DETAIL_INDEX_16(f) KB_DETAIL_INDEX_15(f), f(15)

#endif
