/*
 * cases.h: how many random cases a test tries.
 */
#ifndef TESTS_MEM_CASES_H
#define TESTS_MEM_CASES_H

#include <stdint.h>

#include "base/sanitize.h"

#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#else
#define RUNNING_ON_VALGRIND 0
#endif

/* So many, or fewer where the program is slow: with a sanitizer, and much fewer in valgrind. */
static inline uint64_t cases(uint64_t count)
{
#if defined(KB_ASAN) || defined(KB_TSAN)
    count = count / 5 + 1;
#endif
    return RUNNING_ON_VALGRIND ? count / 50 + 1 : count;
}

#endif
