/* test_extent.c: blocks side by side, of two kinds; all memory comes back; use by several threads.
 */
#include "support/expect.h"
#include "support/failing_alloc.h"

#include <pthread.h>

#include "base/base.h"
#include "base/extent.h"

enum { KIB = 1024, HUGE_PAGE = 2048 * KIB };

static uintptr_t page_of(const void *block)
{
    return (uintptr_t)block / HUGE_PAGE;
}

static char *alloc(size_t bytes, bool huge)
{
    char *block = kb_extent_alloc(bytes, huge);
    assert_non_null(block);
    assert_int_equal((uintptr_t)block % 64, 0);
    memset(block, 0x5a, bytes);
    return block;
}

/* 600 + 600 + 600 + 248 KiB fill 2 MiB. */
static void blocks_lie_side_by_side(void **state)
{
    (void)state;
    const size_t sizes[] = {600 * KIB, 600 * KIB, 600 * KIB, 248 * KIB, 64};
    enum { count = sizeof sizes / sizeof *sizes };
    for (int huge = 0; huge <= 1; huge++) {
        size_t before = failing_alloc_live();
        char *blocks[count];
        for (int i = 0; i < count; i++)
            blocks[i] = alloc(sizes[i], huge);
        for (int i = 1; i < count - 1; i++)
            assert_ptr_equal(blocks[i], blocks[i - 1] + sizes[i - 1]);
        assert_int_equal(page_of(blocks[3] + sizes[3] - 1), page_of(blocks[0]));
        assert_int_not_equal(page_of(blocks[4]), page_of(blocks[0]));
        for (int i = 0; i < count; i++)
            kb_extent_free(blocks[i]);
        assert_int_equal(failing_alloc_live(), before);
    }
}

static void the_two_kinds_are_apart(void **state)
{
    (void)state;
    size_t before = failing_alloc_live();
    char *small = alloc(64 * KIB, false);
    char *large = alloc(64 * KIB, true);
    assert_int_not_equal(page_of(small), page_of(large));
    kb_extent_make_huge(small);
    kb_extent_make_huge(small); /* it is */
    for (size_t i = 0; i < 64 * KIB; i++)
        assert_int_equal(small[i], 0x5a); /* as it was */
    /* It has become one of the others. */
    char *more = alloc(64 * KIB, false);
    assert_int_not_equal(page_of(more), page_of(small));
    kb_extent_free(small);
    kb_extent_free(more);
    kb_extent_free(large);
    assert_int_equal(failing_alloc_live(), before);
}

static void sizes_are_served(void **state)
{
    (void)state;
    const size_t sizes[] = {1, 63, 64, 65, HUGE_PAGE - 1, HUGE_PAGE, HUGE_PAGE + 1, 3 * HUGE_PAGE};
    enum { count = sizeof sizes / sizeof *sizes };
    size_t before = failing_alloc_live();
    char *blocks[count];
    for (size_t i = 0; i < count; i++) {
        blocks[i] = alloc(sizes[i], false);
        memset(blocks[i], (int)i, sizes[i]);
    }
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(blocks[i][0], i);
        assert_int_equal(blocks[i][sizes[i] - 1], i);
    }
    for (size_t i = 0; i < count; i++)
        kb_extent_free(blocks[(i * 3) % count]); /* in some other order */
    assert_int_equal(failing_alloc_live(), before);
    assert_null(kb_extent_alloc(SIZE_MAX, false));
    assert_null(kb_extent_alloc(SIZE_MAX - HUGE_PAGE / 2, false));
    assert_int_equal(failing_alloc_live(), before);
}

static void try_without_memory(void)
{
    char *first = kb_extent_alloc(1500 * KIB, true);
    char *second = kb_extent_alloc(1500 * KIB, true);
    if (first)
        kb_extent_free(first);
    if (second)
        kb_extent_free(second);
}

static void lack_of_memory_leaves_nothing_behind(void **state)
{
    (void)state;
    failing_alloc_try_all(try_without_memory);
}

static void *use(void *arg)
{
    char mark = *(const char *)arg;
    for (int turn = 0; turn < 50; turn++) {
        char *blocks[3];
        for (int i = 0; i < 3; i++) {
            blocks[i] = kb_extent_alloc(700 * KIB, turn % 2);
            if (blocks[i])
                blocks[i][0] = blocks[i][700 * KIB - 1] = mark;
        }
        for (int i = 0; i < 3; i++) {
            if (!blocks[i] || blocks[i][0] != mark || blocks[i][700 * KIB - 1] != mark)
                return arg;
            kb_extent_free(blocks[i]);
        }
    }
    return NULL;
}

static void threads_share_extents(void **state)
{
    (void)state;
    size_t before = failing_alloc_live();
    enum { count = 4 };
    static const char marks[count] = {'a', 'b', 'c', 'd'};
    pthread_t threads[count];
    for (int i = 0; i < count; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, use, (void *)(uintptr_t)&marks[i]), 0);
    for (int i = 0; i < count; i++) {
        void *wrong;
        assert_int_equal(pthread_join(threads[i], &wrong), 0);
        assert_null(wrong);
    }
    assert_int_equal(failing_alloc_live(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_lie_side_by_side),
        cmocka_unit_test(the_two_kinds_are_apart),
        cmocka_unit_test(sizes_are_served),
        cmocka_unit_test(lack_of_memory_leaves_nothing_behind),
        cmocka_unit_test(threads_share_extents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
