/*
 * failing_alloc.h: makes the n-th allocation fail, and counts blocks that were not freed.
 *
 * Link the test with FAILING_ALLOC_LINK_OPTIONS of support/failing_alloc.cmake. Only what is linked
 * into the program is seen, not what shared libraries allocate for themselves.
 *
 *     for (long n = 1; ; n++) {
 *         size_t before = failing_alloc_live();
 *         failing_alloc_arm(n, FAIL_ONCE);
 *         ... do it all, check that the outcome is success or a clean error, release everything ...
 *         bool done = !failing_alloc_disarm();
 *         assert_int_equal(failing_alloc_live(), before);
 *         if (done)
 *             break;
 *     }
 */
#ifndef TESTS_SUPPORT_FAILING_ALLOC_H
#define TESTS_SUPPORT_FAILING_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

typedef enum failing_alloc_mode {
    FAIL_ONCE,   /* the n-th allocation alone */
    FAIL_ONWARDS /* the n-th and all that follow */
} failing_alloc_mode;

/* From now on, the n-th allocation fails; 1 is the next one. */
void failing_alloc_arm(long nth, failing_alloc_mode mode);

/* Back to normal. Whether an allocation was made to fail since failing_alloc_arm. */
bool failing_alloc_disarm(void);

/* Blocks allocated and not freed. */
size_t failing_alloc_live(void);

/* Runs `body` with the n-th allocation failing, for every n until none fails, in both modes. */
void failing_alloc_try_all(void (*body)(void));

#endif
