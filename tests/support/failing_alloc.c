/*
 * failing_alloc.c: wraps the malloc family at link time.
 *
 * The counters are atomic, so that programs with threads can be counted; which allocation is the
 * n-th is then up to the scheduler.
 */
#include "support/failing_alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <cmocka.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t align, size_t size);
void __real_free(void *block);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
void __wrap_free(void *block);

static atomic_size_t live;
static atomic_long countdown; /* 0: disarmed */
static atomic_bool onwards;
static atomic_bool failed;

void failing_alloc_arm(long nth, failing_alloc_mode mode)
{
    onwards = mode == FAIL_ONWARDS;
    failed = false;
    countdown = nth;
}

bool failing_alloc_disarm(void)
{
    countdown = 0;
    onwards = false;
    return failed;
}

size_t failing_alloc_live(void)
{
    return live;
}

void failing_alloc_try_all(void (*body)(void))
{
    for (int mode = FAIL_ONCE; mode <= FAIL_ONWARDS; mode++) {
        bool done = false;
        for (long n = 1; !done; n++) {
            size_t before = live;
            failing_alloc_arm(n, (failing_alloc_mode)mode);
            body();
            done = !failing_alloc_disarm();
            assert_int_equal(live, before);
        }
    }
}

static bool must_fail(void)
{
    long left = countdown;
    if (left > 0) {
        countdown = left - 1;
        if (left == 1) {
            failed = true;
            return true;
        }
        return false;
    }
    return failed && onwards;
}

static void *counted(void *block)
{
    if (block)
        live++;
    return block;
}

void *__wrap_malloc(size_t size)
{
    return must_fail() ? NULL : counted(__real_malloc(size));
}

void *__wrap_calloc(size_t count, size_t size)
{
    return must_fail() ? NULL : counted(__real_calloc(count, size));
}

void *__wrap_realloc(void *old, size_t size)
{
    if (must_fail())
        return NULL;
    void *block = __real_realloc(old, size);
    return old ? block : counted(block);
}

void *__wrap_aligned_alloc(size_t align, size_t size)
{
    return must_fail() ? NULL : counted(__real_aligned_alloc(align, size));
}

void __wrap_free(void *block)
{
    if (block)
        live--;
    __real_free(block);
}
