/*
 * check.h: assertions, for bugs only. Bad input is a returned kb_error instead.
 *
 * KB_ASSERT is always on: for what is cheap to check and ruinous to miss.
 * KB_DEBUG_ASSERT vanishes under NDEBUG: for hot paths. Its condition must have no effects.
 */
#ifndef KB_BASE_CHECK_H
#define KB_BASE_CHECK_H

#define KB_LIKELY(cond) __builtin_expect(!!(cond), 1)
#define KB_UNLIKELY(cond) __builtin_expect(!!(cond), 0)

#define KB_ASSERT(cond)                                                                            \
    do {                                                                                           \
        if (KB_UNLIKELY(!(cond)))                                                                  \
            kb_check_failed(__FILE__, __LINE__, #cond);                                            \
    } while (0)

#ifdef NDEBUG
/* Never evaluated, but compiled: it cannot rot, and no build warns of what only it uses. */
#define KB_DEBUG_ASSERT(cond) ((void)(0 && (cond)))
#else
#define KB_DEBUG_ASSERT(cond) KB_ASSERT(cond)
#endif

/* Prints "file:line: assertion failed: condition" to stderr and aborts. */
_Noreturn void kb_check_failed(const char *file, int line, const char *condition);

#endif
