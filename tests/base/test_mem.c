/* test_mem.c: sizes that overflow, sizes of zero, growth; the assertions of check.h. */
#include "support/expect.h"

#include "base/base.h"

static void sizes_that_overflow_fail(void **state)
{
    (void)state;
    size_t out;
    assert_true(kb_size_add(SIZE_MAX - 1, 1, &out));
    assert_true(out == SIZE_MAX);
    assert_false(kb_size_add(SIZE_MAX, 1, &out));
    assert_true(kb_size_mul(SIZE_MAX / 3, 3, &out));
    assert_false(kb_size_mul(SIZE_MAX / 2, 3, &out));

    assert_null(kb_alloc_array(SIZE_MAX / 2, 3));
    assert_null(kb_alloc_zeroed(SIZE_MAX / 2, 3));
    assert_null(kb_alloc_aligned(64, SIZE_MAX / 2, 3));
    assert_null(kb_alloc_aligned(64, SIZE_MAX - 10, 1));
    void *block = kb_alloc_array(4, 4);
    assert_non_null(block);
    assert_null(kb_realloc_array(block, SIZE_MAX / 2, 3));
    free(block);
}

static void zero_is_not_a_failure(void **state)
{
    (void)state;
    void *blocks[] = {kb_alloc_array(0, 8), kb_alloc_zeroed(8, 0), kb_alloc_aligned(64, 0, 0),
                      kb_realloc_array(NULL, 0, 0)};
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        assert_non_null(blocks[i]);
        free(blocks[i]);
    }
}

static void zeroed_and_aligned_are_so(void **state)
{
    (void)state;
    unsigned char *zeroed = kb_alloc_zeroed(1000, 3);
    assert_non_null(zeroed);
    for (size_t i = 0; i < 3000; i++)
        assert_int_equal(zeroed[i], 0);
    free(zeroed);
    for (size_t align = sizeof(void *); align <= 4096; align *= 2) {
        char *block = kb_alloc_aligned(align, 3, 7);
        assert_non_null(block);
        assert_int_equal((uintptr_t)block % align, 0);
        memset(block, 1, 21);
        free(block);
    }
}

static void growing_keeps_items_and_gets_ahead(void **state)
{
    (void)state;
    int *items = NULL;
    size_t capacity = 0, moves = 0;
    for (size_t count = 0; count < 10000; count++) {
        if (count == capacity) {
            items = kb_grow_array(items, count, 1, sizeof *items, &capacity);
            assert_non_null(items);
            assert_true(capacity > count);
            moves++;
        }
        items[count] = (int)count;
    }
    for (int i = 0; i < 10000; i++)
        assert_int_equal(items[i], i);
    assert_true(moves < 25);
    size_t before = capacity;
    assert_null(kb_grow_array(items, 10000, SIZE_MAX - 100, sizeof *items, &capacity));
    assert_int_equal(capacity, before);
    assert_int_equal(items[9999], 9999);
    free(items);
}

static void fail_always(void)
{
    KB_ASSERT(1 + 1 == 3);
}

static void fail_in_debug(void)
{
    KB_DEBUG_ASSERT(2 + 2 == 5);
}

static int evaluated;

static bool count_evaluation(void)
{
    evaluated++;
    return true;
}

static void assertions_abort_and_say_where(void **state)
{
    (void)state;
    expect_abort(fail_always, "test_mem.c:");
    expect_abort(fail_always, ": assertion failed: 1 + 1 == 3\n");
    KB_ASSERT(count_evaluation());
    assert_int_equal(evaluated, 1);
    KB_DEBUG_ASSERT(count_evaluation());
#ifdef NDEBUG
    fail_in_debug(); /* does nothing */
    assert_int_equal(evaluated, 1);
#else
    expect_abort(fail_in_debug, ": assertion failed: 2 + 2 == 5\n");
    assert_int_equal(evaluated, 2);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_that_overflow_fail),
        cmocka_unit_test(zero_is_not_a_failure),
        cmocka_unit_test(zeroed_and_aligned_are_so),
        cmocka_unit_test(growing_keeps_items_and_gets_ahead),
        cmocka_unit_test(assertions_abort_and_say_where),
    };
    return cmocka_run_group_tests_name("mem", tests, NULL, NULL);
}
