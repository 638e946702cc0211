/*
 * base.h: what every header needs: the version, simulated time, and errors.
 */
#ifndef KERNBENCH_BASE_H
#define KERNBENCH_BASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KB_API __attribute__((visibility("default")))
#define KB_MUST_USE __attribute__((warn_unused_result))
#define KB_NORETURN __attribute__((noreturn))
#define KB_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* The version of the library, such as "0.1.0". */
KB_API const char *kb_version(void);

/* ---- Time -------------------------------------------------------------------------------- */

/*
 * Simulated time and durations, in femtoseconds: never negative, at most 9,223 s (2.5 hours). The
 * last instant of the clock is KB_FOREVER - 1. Work that would take longer than that ends the run
 * with KB_ERR_INPUT; a deadline of KB_FOREVER never comes.
 */
typedef int64_t kb_time;

/* A sum of times, over PEs, links or commands: it passes 9,223 s long before the clock does. */
__extension__ typedef __int128 kb_time_sum;

#define KB_PS ((kb_time)1000)
#define KB_NS (1000 * KB_PS)
#define KB_US (1000 * KB_NS)
#define KB_MS (1000 * KB_US)
#define KB_S (1000 * KB_MS)

#define KB_FOREVER INT64_MAX

/* a + b, and count * each; KB_FOREVER if that is more than a kb_time holds. None is negative. */
static inline kb_time kb_time_add(kb_time a, kb_time b)
{
    kb_time sum;
    return __builtin_expect(__builtin_add_overflow(a, b, &sum), 0) ? KB_FOREVER : sum;
}

static inline kb_time kb_time_times(uint64_t count, kb_time each)
{
    kb_time product;
    return __builtin_mul_overflow(count, each, &product) ? KB_FOREVER : product;
}

/* For printing: of a time, or of a sum of times. */
static inline double kb_to_ns(kb_time_sum time)
{
    return (double)time / (double)KB_NS;
}

/* Operations in a time, in 10^12 a second; 0 if no time has passed. */
static inline double kb_to_tflops(double flops, kb_time time)
{
    return time > 0 ? flops * 1e3 / (double)time : 0;
}

/* ---- Errors ------------------------------------------------------------------------------ */

/* What kind of thing went wrong. The value is the exit code of the command line. */
typedef enum kb_code {
    KB_OK = 0,
    KB_ERR_CHECK = 1,    /* a check failed: verification, comparison */
    KB_ERR_INPUT = 2,    /* bad usage or a bad input file */
    KB_ERR_FAULT = 3,    /* the simulated program did something wrong */
    KB_ERR_DEADLOCK = 4, /* the simulated program waits for what cannot happen */
    KB_ERR_BUG = 70,     /* a bug in KernBench, or in the program that calls it */
    KB_ERR_HOST = 71     /* the host refused: out of memory, disk full */
} kb_code;

/* NULL is success. The caller frees an error that it gets. */
typedef struct kb_error kb_error;

KB_API kb_code kb_error_code(const kb_error *err);        /* KB_OK for NULL */
KB_API const char *kb_error_message(const kb_error *err); /* one line: location, context, cause */
KB_API const char *kb_error_detail(const kb_error *err);  /* further lines, "" if there are none */
KB_API void kb_error_free(kb_error *err);

/*
 * An error of one's own. Never NULL: if memory is short, the one about that. A code that is no
 * error of kb_code becomes KB_ERR_FAULT, and the detail says so.
 */
KB_API KB_MUST_USE kb_error *kb_error_new(kb_code code, const char *format, ...) KB_PRINTF(2, 3);

/* Hands an error on to the caller: KB_TRY(kb_zeros(ctx, &spec, &x)); */
#define KB_TRY(expr)                                                                               \
    do {                                                                                           \
        kb_error *kb_try_error_ = (expr);                                                          \
        if (__builtin_expect(kb_try_error_ != NULL, 0))                                            \
            return kb_try_error_;                                                                  \
    } while (0)

#ifdef __cplusplus
}
#endif

#endif
