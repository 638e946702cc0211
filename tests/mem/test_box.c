/*
 * test_box.c: blocks of arrays against counting element by element.
 */
#include "support/expect.h"
#include "support/seed.h"

#include "base/rng.h"
#include "cases.h"
#include "mem/box.h"

typedef struct run {
    uint64_t at_a, at_b, count;
} run;

enum { MAX_RUNS = 1 << 16 };

typedef struct run_list {
    run items[MAX_RUNS];
    size_t count;
    size_t fail_at; /* the run that is refused; 0: none */
} run_list;

static run_list found, wanted;

static kb_error *collect(void *self, uint64_t at_a, uint64_t at_b, uint64_t count)
{
    run_list *list = self;
    assert_true(list->count < MAX_RUNS);
    list->items[list->count++] = (run){at_a, at_b, count};
    return list->count == list->fail_at ? kb_error_new(KB_ERR_CHECK, "enough") : NULL;
}

static mem_box box2(uint64_t row, uint64_t rows, uint64_t column, uint64_t columns)
{
    return (mem_box){2, {row, column}, {rows, columns}};
}

static void expect_runs(const mem_box *a, const mem_box *b, const run *runs, size_t count)
{
    found.count = found.fail_at = 0;
    expect_ok(mem_box_runs(a, b, collect, &found));
    assert_int_equal(found.count, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(found.items[i].at_a, runs[i].at_a);
        assert_int_equal(found.items[i].at_b, runs[i].at_b);
        assert_int_equal(found.items[i].count, runs[i].count);
    }
}

/* ---- By hand ----------------------------------------------------------------------------- */

static void a_whole_box_is_the_shape_from_0_on(void **state)
{
    (void)state;
    mem_box box = mem_box_whole(&KB_SHAPE(2, 3, 4));
    assert_int_equal(box.rank, 3);
    for (int axis = 0; axis < 3; axis++) {
        assert_int_equal(box.start[axis], 0);
        assert_int_equal(box.size[axis], axis + 2);
    }
    assert_int_equal(mem_box_elements(&box), 24);
    box = mem_box_whole(&KB_SHAPE(1, 2, 3, 4, 5, 6, 7, 8));
    assert_int_equal(box.rank, 8);
    assert_int_equal(mem_box_elements(&box), 40320);
    box = mem_box_whole(&KB_SHAPE(7, 0));
    assert_int_equal(mem_box_elements(&box), 0);
}

static void a_scalar_is_a_box_of_one_element(void **state)
{
    (void)state;
    mem_box box = mem_box_whole(&(kb_shape){0});
    assert_int_equal(box.rank, 1);
    assert_int_equal(box.start[0], 0);
    assert_int_equal(box.size[0], 1);
    assert_int_equal(mem_box_elements(&box), 1);
}

static void boxes_meet_where_both_are(void **state)
{
    (void)state;
    mem_box a = box2(2, 4, 10, 5), b = box2(4, 10, 0, 12), both;
    assert_true(mem_box_meet(&a, &b, &both));
    assert_int_equal(both.rank, 2);
    assert_int_equal(both.start[0], 4);
    assert_int_equal(both.size[0], 2);
    assert_int_equal(both.start[1], 10);
    assert_int_equal(both.size[1], 2);

    mem_box touching = box2(6, 1, 10, 5);
    assert_false(mem_box_meet(&a, &touching, &both));
    mem_box beside = box2(2, 4, 15, 1);
    assert_false(mem_box_meet(&a, &beside, &both));
    assert_false(mem_box_meet(&beside, &a, &both));
    mem_box empty = box2(2, 0, 10, 5);
    assert_false(mem_box_meet(&empty, &empty, &both));
}

/* The ends of these are 2^64, which is no number of 64 bits. */
static void boxes_at_the_end_of_all_numbers_meet_too(void **state)
{
    (void)state;
    mem_box a = {1, {UINT64_MAX - 3}, {4}}, b = {1, {UINT64_MAX - 1}, {2}}, both;
    assert_true(mem_box_meet(&a, &b, &both));
    assert_true(both.start[0] == UINT64_MAX - 1);
    assert_int_equal(both.size[0], 2);
    mem_box all = {1, {0}, {UINT64_MAX}};
    assert_true(mem_box_meet(&a, &all, &both));
    assert_true(both.start[0] == UINT64_MAX - 3);
    assert_int_equal(both.size[0], 3);
    expect_runs(&a, &b, (run[]){{2, 0, 2}}, 1);
}

static void all_of_a_tensor_is_one_run(void **state)
{
    (void)state;
    mem_box whole = mem_box_whole(&KB_SHAPE(3, 4, 5));
    expect_runs(&whole, &whole, (run[]){{0, 0, 60}}, 1);
}

static void whole_rows_are_one_run(void **state)
{
    (void)state;
    mem_box whole = mem_box_whole(&KB_SHAPE(8, 6));
    mem_box rows = box2(3, 2, 0, 6);
    expect_runs(&whole, &rows, (run[]){{18, 0, 12}}, 1);
    expect_runs(&rows, &whole, (run[]){{0, 18, 12}}, 1);
}

static void columns_are_a_run_for_each_row(void **state)
{
    (void)state;
    mem_box whole = mem_box_whole(&KB_SHAPE(3, 6));
    mem_box columns = box2(0, 3, 4, 2);
    expect_runs(&whole, &columns, (run[]){{4, 0, 2}, {10, 2, 2}, {16, 4, 2}}, 3);
}

/* In a the columns are all there are, in b they are not. */
static void an_axis_must_be_whole_in_both_to_be_joined(void **state)
{
    (void)state;
    mem_box a = box2(0, 2, 0, 3), b = box2(0, 2, 0, 4);
    expect_runs(&a, &b, (run[]){{0, 0, 3}, {3, 4, 3}}, 2);
    expect_runs(&b, &a, (run[]){{0, 0, 3}, {4, 3, 3}}, 2);
}

static void boxes_that_do_not_meet_have_no_runs(void **state)
{
    (void)state;
    mem_box a = box2(0, 2, 0, 3), b = box2(2, 2, 0, 3), empty = box2(0, 2, 1, 0);
    expect_runs(&a, &b, NULL, 0);
    expect_runs(&a, &empty, NULL, 0);
    expect_runs(&empty, &empty, NULL, 0);
}

static void the_first_error_ends_the_walk(void **state)
{
    (void)state;
    mem_box a = box2(0, 5, 0, 3), b = box2(0, 5, 0, 4);
    found = (run_list){.fail_at = 3};
    expect_error(mem_box_runs(&a, &b, collect, &found), KB_ERR_CHECK, "enough");
    assert_int_equal(found.count, 3);
}

static void meet_with_another_rank(void)
{
    mem_box a = {1, {0}, {1}}, b = {2, {0, 0}, {1, 1}}, both;
    (void)mem_box_meet(&a, &b, &both);
}

static void make_too_many_dimensions(void)
{
    kb_shape shape = {.rank = KB_MAX_DIMS + 1};
    (void)mem_box_whole(&shape);
}

static void boxes_of_different_tensors_are_a_bug(void **state)
{
    (void)state;
    expect_abort(meet_with_another_rank, "a->rank == b->rank");
    expect_abort(make_too_many_dimensions, "KB_MAX_DIMS");
}

/* ---- By chance --------------------------------------------------------------------------- */

/* Goes through the elements of a box row by row; false after the last. */
static bool next_element(const mem_box *box, uint64_t at[KB_MAX_DIMS])
{
    for (uint32_t axis = box->rank; axis-- > 0;) {
        if (++at[axis] < box->start[axis] + box->size[axis])
            return true;
        at[axis] = box->start[axis];
    }
    return false;
}

/* Where an element is in a box, or -1 if it is not there: counts by strides. */
static int64_t index_in(const mem_box *box, const uint64_t at[KB_MAX_DIMS])
{
    int64_t index = 0, stride = 1;
    for (uint32_t axis = box->rank; axis-- > 0;) {
        if (at[axis] < box->start[axis] || at[axis] >= box->start[axis] + box->size[axis])
            return -1;
        index += stride * (int64_t)(at[axis] - box->start[axis]);
        stride *= (int64_t)box->size[axis];
    }
    return index;
}

/* Every element of a that b has, one after the other; what follows in both is added to the run. */
static void list_common_elements(const mem_box *a, const mem_box *b)
{
    wanted.count = 0;
    for (uint32_t axis = 0; axis < a->rank; axis++)
        if (a->size[axis] == 0)
            return;
    uint64_t at[KB_MAX_DIMS];
    memcpy(at, a->start, sizeof at);
    do {
        int64_t in_a = index_in(a, at), in_b = index_in(b, at);
        assert_true(in_a >= 0);
        if (in_b < 0)
            continue;
        run *last = wanted.count > 0 ? &wanted.items[wanted.count - 1] : NULL;
        if (last && last->at_a + last->count == (uint64_t)in_a &&
            last->at_b + last->count == (uint64_t)in_b)
            last->count++;
        else
            (void)collect(&wanted, (uint64_t)in_a, (uint64_t)in_b, 1);
    } while (next_element(a, at));
}

/* Often the whole axis, seldom nothing of it. */
static void draw_axis(kb_rng *rng, uint64_t dim, uint64_t *start, uint64_t *size)
{
    *start = 0;
    *size = dim;
    if (dim == 0 || kb_rng_below(rng, 2))
        return;
    *start = kb_rng_below(rng, dim);
    *size = kb_rng_below(rng, 50) ? 1 + kb_rng_below(rng, dim - *start) : 0;
}

static void runs_are_what_counting_gives_and_as_long_as_can_be(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(1));
    uint64_t with_runs = 0, with_several = 0, empty = 0;
    for (uint64_t i = cases(30000); i > 0; i--) {
        mem_box a = {.rank = 1 + (uint32_t)kb_rng_below(&rng, KB_MAX_DIMS)}, b = a;
        uint64_t longest = a.rank <= 2 ? 12 : a.rank <= 4 ? 4 : 3;
        for (uint32_t axis = 0; axis < a.rank; axis++) {
            uint64_t dim = kb_rng_below(&rng, 100) ? 1 + kb_rng_below(&rng, longest) : 0;
            uint64_t origin = kb_rng_below(&rng, 3) ? 0 : kb_rng_below(&rng, 5);
            draw_axis(&rng, dim, &a.start[axis], &a.size[axis]);
            draw_axis(&rng, dim, &b.start[axis], &b.size[axis]);
            a.start[axis] += origin;
            b.start[axis] += origin;
        }
        list_common_elements(&a, &b);
        expect_runs(&a, &b, wanted.items, wanted.count);

        uint64_t common = 0;
        for (size_t r = 0; r < wanted.count; r++)
            common += wanted.items[r].count;
        mem_box both;
        assert_int_equal(mem_box_meet(&a, &b, &both), common > 0);
        if (common > 0)
            assert_int_equal(mem_box_elements(&both), common);
        with_runs += wanted.count > 0;
        with_several += wanted.count > 1;
        empty += wanted.count == 0;
    }
    /* The draw must be worth something. */
    assert_true(with_runs > 0 && with_several > 0 && empty > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_box_is_the_shape_from_0_on),
        cmocka_unit_test(a_scalar_is_a_box_of_one_element),
        cmocka_unit_test(boxes_meet_where_both_are),
        cmocka_unit_test(boxes_at_the_end_of_all_numbers_meet_too),
        cmocka_unit_test(all_of_a_tensor_is_one_run),
        cmocka_unit_test(whole_rows_are_one_run),
        cmocka_unit_test(columns_are_a_run_for_each_row),
        cmocka_unit_test(an_axis_must_be_whole_in_both_to_be_joined),
        cmocka_unit_test(boxes_that_do_not_meet_have_no_runs),
        cmocka_unit_test(the_first_error_ends_the_walk),
        cmocka_unit_test(boxes_of_different_tensors_are_a_bug),
        cmocka_unit_test(runs_are_what_counting_gives_and_as_long_as_can_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
