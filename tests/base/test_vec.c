/* test_vec.c: growable arrays; behaviour without memory. */
#include "support/expect.h"
#include "support/failing_alloc.h"

#include "base/base.h"

typedef struct point {
    int x, y;
} point;

static void pushes_and_keeps(void **state)
{
    (void)state;
    KB_VEC(point) points = {0};
    for (int i = 0; i < 1000; i++)
        assert_true(kb_vec_push(&points, ((point){i, -i})));
    assert_int_equal(points.count, 1000);
    assert_true(points.capacity >= points.count);
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(points.items[i].x, i);
        assert_int_equal(points.items[i].y, -i);
    }
    kb_vec_fini(&points);
    assert_null(points.items);
    assert_int_equal(points.count + points.capacity, 0);
    kb_vec_fini(&points); /* of an empty one */
}

static void arguments_are_evaluated_once(void **state)
{
    (void)state;
    KB_VEC(int) vecs[2] = {{0}, {0}};
    size_t which = 0;
    int value = 5;
    assert_true(kb_vec_push(&vecs[which++], value++));
    assert_int_equal(which, 1);
    assert_int_equal(value, 6);
    assert_int_equal(vecs[0].items[0], 5);
    which = 0;
    kb_vec_fini(&vecs[which++]);
    assert_int_equal(which, 1);
}

static void reserve_makes_pushes_succeed(void **state)
{
    (void)state;
    KB_VEC(char) bytes = {0};
    assert_true(kb_vec_push(&bytes, 'a'));
    assert_true(kb_vec_reserve(&bytes, 500));
    failing_alloc_arm(1, FAIL_ONWARDS);
    for (int i = 0; i < 500; i++)
        assert_true(kb_vec_push(&bytes, 'b'));
    assert_false(failing_alloc_disarm());
    assert_false(kb_vec_reserve(&bytes, SIZE_MAX));
    assert_int_equal(bytes.count, 501);
    kb_vec_fini(&bytes);
}

static void use_without_memory(void)
{
    KB_VEC(uint64_t) numbers = {0};
    size_t pushed = 0;
    for (uint64_t i = 0; i < 200; i++) {
        if (kb_vec_push(&numbers, i))
            pushed++;
        assert_int_equal(numbers.count, pushed);
    }
    for (size_t i = 1; i < numbers.count; i++)
        assert_true(numbers.items[i - 1] < numbers.items[i]);
    kb_vec_fini(&numbers);
}

static void survives_lack_of_memory(void **state)
{
    (void)state;
    failing_alloc_try_all(use_without_memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pushes_and_keeps),
        cmocka_unit_test(arguments_are_evaluated_once),
        cmocka_unit_test(reserve_makes_pushes_succeed),
        cmocka_unit_test(survives_lack_of_memory),
    };
    return cmocka_run_group_tests_name("vec", tests, NULL, NULL);
}
