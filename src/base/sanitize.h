/*
 * sanitize.h: which sanitizers the build has, and poisoning: marks bytes of
 * our own blocks that must not be accessed, for AddressSanitizer; without it, it does nothing.
 */
#ifndef KB_BASE_SANITIZE_H
#define KB_BASE_SANITIZE_H

#include <stddef.h>

#if defined(__SANITIZE_ADDRESS__)
#define KB_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KB_ASAN 1
#endif
#endif

#if defined(__SANITIZE_THREAD__)
#define KB_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define KB_TSAN 1
#endif
#endif

#ifdef KB_ASAN

#include <sanitizer/asan_interface.h>

enum { KB_REDZONE = 64 }; /* poisoned bytes between neighbours, so that overruns hit them */

static inline void kb_poison(void *address, size_t size)
{
    /* Hides where it comes from: gcc 12 warns that poisoning reads what was just allocated. */
    __asm__("" : "+r"(address));
    __asan_poison_memory_region(address, size);
}

static inline void kb_unpoison(void *address, size_t size)
{
    __asan_unpoison_memory_region(address, size);
}

#else

enum { KB_REDZONE = 0 };

static inline void kb_poison(void *address, size_t size)
{
    (void)address;
    (void)size;
}

static inline void kb_unpoison(void *address, size_t size)
{
    (void)address;
    (void)size;
}

#endif

#endif
