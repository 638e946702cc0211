/*
 * test_slices.c: elements and slices of tensors, read and written by the host, compared with what
 * happens to a plain array.
 */
#include "support/seed.h"
#include "tensors.h"

#include <math.h>

/* A tensor, and an array with what must be in it. */
typedef struct subject {
    kb_context *ctx;
    kb_machine machine;
    kb_policy policy;
    kb_tensor_spec spec;
    bool on_host;
    kb_tensor tensor;
    unsigned char *data;
    uint64_t elements;
    size_t each, bytes;
} subject;

static subject *draw_subject(kb_context *ctx, kb_rng *rng)
{
    subject *s = calloc(1, sizeof *s);
    assert_non_null(s);
    s->ctx = ctx;
    s->machine = kb_context_machine(ctx);
    s->spec = draw_spec(rng, &s->machine, &s->policy);
    s->on_host = one_in(rng, 8);
    s->elements = elements_of(&s->spec.shape);
    s->each = kb_dtype_bytes(s->spec.dtype);
    s->bytes = s->elements * s->each;
    if (s->on_host) {
        s->data = draw_bytes(rng, s->bytes);
        expect_ok(kb_from_host(ctx, &s->spec, s->data, s->bytes, &s->tensor));
    } else {
        s->data = new_bytes(s->bytes);
        expect_ok(kb_ahbm_set_device(ctx, (uint32_t)below(rng, s->machine.sips)));
        expect_ok(kb_zeros(ctx, &s->spec, &s->tensor));
    }
    return s;
}

static void discard(subject *s)
{
    expect_contents(s->ctx, s->tensor, KB_UNTIMED, s->data, s->bytes);
    if (!s->on_host) { /* all copies were written */
        layout l = layout_of(&s->spec.shape, s->spec.policy, &s->machine);
        expect_shards(s->ctx, s->tensor, &l, s->data);
        layout_fini(&l);
    }
    expect_ok(kb_tensor_free(s->ctx, s->tensor));
    free(s->data);
    free(s);
}

/* ---- The plain way ----------------------------------------------------------------------- */

static void index_of(const kb_shape *shape, uint64_t element, uint64_t index[KB_MAX_DIMS])
{
    for (uint32_t axis = shape->rank; axis-- > 0;) {
        index[axis] = element % shape->dims[axis];
        element /= shape->dims[axis];
    }
}

static bool in_slice(const kb_shape *shape, const kb_slice *slice, uint64_t element)
{
    uint64_t index[KB_MAX_DIMS];
    index_of(shape, element, index);
    for (uint32_t axis = 0; axis < slice->rank; axis++)
        if (index[axis] < slice->ranges[axis].start || index[axis] >= slice->ranges[axis].stop)
            return false; /* KB_END is beyond them all */
    return true;
}

static kb_slice draw_slice(kb_rng *rng, const kb_shape *shape)
{
    kb_slice slice = {.rank = (uint32_t)below(rng, shape->rank + 1)};
    for (uint32_t axis = 0; axis < slice.rank; axis++) {
        uint64_t a = below(rng, shape->dims[axis] + 1), b = below(rng, shape->dims[axis] + 1);
        slice.ranges[axis] = (kb_span){a < b ? a : b, a < b ? b : a};
        if (one_in(rng, 4))
            slice.ranges[axis].stop = KB_END;
    }
    return slice;
}

/* A whole number that every dtype has, and the bytes of it. */
static double draw_number(kb_rng *rng, kb_dtype dtype, unsigned char bytes[4])
{
    int32_t number = (int32_t)below(rng, 17) - 8;
    kb_convert(dtype, bytes, KB_I32, &number, 1);
    return number;
}

/* ---- Operations -------------------------------------------------------------------------- */

static void get_one(subject *s, kb_rng *rng)
{
    uint64_t element = below(rng, s->elements);
    kb_index index = {.rank = s->spec.shape.rank};
    index_of(&s->spec.shape, element, index.at);
    double found;
    float expected;
    expect_ok(kb_tensor_get(s->ctx, s->tensor, draw_access(rng), &index, &found));
    if (s->spec.dtype == KB_I32) { /* which f32 cannot hold */
        int32_t whole;
        memcpy(&whole, s->data + element * s->each, sizeof whole);
        assert_true(found == whole);
        return;
    }
    kb_convert(KB_F32, &expected, s->spec.dtype, s->data + element * s->each, 1);
    assert_true(found == (double)expected || (isnan(found) && isnan(expected)));
}

static void set_one(subject *s, kb_rng *rng)
{
    uint64_t element = below(rng, s->elements);
    kb_index index = {.rank = s->spec.shape.rank};
    index_of(&s->spec.shape, element, index.at);
    unsigned char bytes[4];
    double value = draw_number(rng, s->spec.dtype, bytes);
    expect_ok(kb_tensor_set(s->ctx, s->tensor, draw_access(rng), &index, value));
    memcpy(s->data + element * s->each, bytes, s->each);
}

static uint64_t count_in(const subject *s, const kb_slice *slice)
{
    uint64_t count = 0;
    for (uint64_t e = 0; e < s->elements; e++)
        count += in_slice(&s->spec.shape, slice, e);
    return count;
}

static void get_some(subject *s, kb_rng *rng)
{
    kb_slice slice = draw_slice(rng, &s->spec.shape);
    size_t bytes = count_in(s, &slice) * s->each;
    unsigned char *found = new_bytes(bytes), *next = found;
    expect_ok(kb_tensor_get_slice(s->ctx, s->tensor, draw_access(rng), &slice, found, bytes));
    for (uint64_t e = 0; e < s->elements; e++) {
        if (!in_slice(&s->spec.shape, &slice, e))
            continue;
        assert_memory_equal(next, s->data + e * s->each, s->each);
        next += s->each;
    }
    free(found);
}

static void set_some(subject *s, kb_rng *rng)
{
    kb_slice slice = draw_slice(rng, &s->spec.shape);
    size_t bytes = count_in(s, &slice) * s->each;
    unsigned char *fresh = draw_bytes(rng, bytes), *next = fresh;
    expect_ok(kb_tensor_set_slice(s->ctx, s->tensor, draw_access(rng), &slice, fresh, bytes));
    for (uint64_t e = 0; e < s->elements; e++) {
        if (!in_slice(&s->spec.shape, &slice, e))
            continue;
        memcpy(s->data + e * s->each, next, s->each);
        next += s->each;
    }
    free(fresh);
}

static void fill_some(subject *s, kb_rng *rng)
{
    kb_slice slice = draw_slice(rng, &s->spec.shape);
    unsigned char bytes[4];
    double value = draw_number(rng, s->spec.dtype, bytes);
    expect_ok(kb_tensor_fill_slice(s->ctx, s->tensor, draw_access(rng), &slice, value));
    for (uint64_t e = 0; e < s->elements; e++)
        if (in_slice(&s->spec.shape, &slice, e))
            memcpy(s->data + e * s->each, bytes, s->each);
}

static void do_one_thing(subject *s, kb_rng *rng)
{
    switch (below(rng, s->elements > 0 ? 5 : 3)) {
    case 0:
        get_some(s, rng);
        break;
    case 1:
        set_some(s, rng);
        break;
    case 2:
        fill_some(s, rng);
        break;
    case 3:
        get_one(s, rng);
        break;
    default:
        set_one(s, rng);
    }
}

/* Two tensors in turns, so that what one call does wrong can show in the other. */
static void slices_are_those_of_an_array(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(11));
    for (int m = 0; m < SMALL_MACHINES; m++) {
        kb_context *ctx = open_machine(small_machines[m]);
        for (uint64_t n = cases(120); n > 0; n--) {
            subject *pair[2] = {draw_subject(ctx, &rng), draw_subject(ctx, &rng)};
            for (int i = 0; i < 20; i++)
                do_one_thing(pair[below(&rng, 2)], &rng);
            discard(pair[0]);
            discard(pair[1]);
        }
        kb_context_destroy(ctx);
    }
}

/* ---- By hand ----------------------------------------------------------------------------- */

typedef struct matrix {
    kb_context *ctx;
    kb_tensor x;
} matrix;

/*
 * Numbers 0 to 19 in four rows of five, cut into columns over two cubes (three and two), and rows
 * over the four PEs of each.
 */
static matrix make_matrix(void)
{
    static const kb_policy policy = {.cube = KB_COLUMN_WISE, .pe = KB_ROW_WISE};
    kb_tensor_spec spec = {.name = "x", .shape = KB_SHAPE(4, 5), .dtype = KB_I8, .policy = &policy};
    int8_t numbers[20];
    for (int i = 0; i < 20; i++)
        numbers[i] = (int8_t)i;
    matrix m = {.ctx = open_machine(THREE_SIPS)};
    kb_tensor h;
    expect_ok(kb_from_host(m.ctx, &spec, numbers, sizeof numbers, &h));
    expect_ok(kb_empty(m.ctx, &spec, &m.x));
    expect_ok(kb_tensor_copy(m.ctx, m.x, h, KB_UNTIMED));
    return m;
}

static void a_slice_may_span_shards(void **state)
{
    (void)state;
    matrix m = make_matrix();
    for (int access = KB_TIMED; access <= KB_UNTIMED; access++) {
        int8_t part[6];
        const int8_t expected[] = {6, 7, 8, 11, 12, 13};
        expect_ok(kb_tensor_get_slice(m.ctx, m.x, (kb_access)access, &KB_SLICE({1, 3}, {1, 4}),
                                      part, sizeof part));
        assert_memory_equal(part, expected, sizeof part);
    }
    const int8_t fresh[] = {-1, -2, -3, -4};
    expect_ok(kb_tensor_set_slice(m.ctx, m.x, KB_TIMED, &KB_SLICE({0, 2}, {2, 4}), fresh, 4));
    int8_t all[20];
    const int8_t expected[] = {0,  1,  -1, -2, 4,  5,  6,  -3, -4, 9,
                               10, 11, 12, 13, 14, 15, 16, 17, 18, 19};
    expect_ok(kb_tensor_to_host(m.ctx, m.x, KB_TIMED, all, sizeof all));
    assert_memory_equal(all, expected, sizeof all);
    kb_context_destroy(m.ctx);
}

/* One range stands for rows; a number is put into all of them; none at all means everything. */
static void a_number_is_put_into_the_whole_slice(void **state)
{
    (void)state;
    matrix m = make_matrix();
    int8_t all[20];
    expect_ok(kb_tensor_fill_slice(m.ctx, m.x, KB_TIMED, &KB_SLICE({1, 3}), 7));
    expect_ok(kb_tensor_fill_slice(m.ctx, m.x, KB_TIMED, &KB_SLICE({0, KB_END}, {4, KB_END}), 8));
    const int8_t expected[] = {0, 1, 2, 3, 8, 7, 7, 7, 7, 8, 7, 7, 7, 7, 8, 15, 16, 17, 18, 8};
    expect_ok(kb_tensor_to_host(m.ctx, m.x, KB_TIMED, all, sizeof all));
    assert_memory_equal(all, expected, sizeof all);
    expect_ok(kb_tensor_fill_slice(m.ctx, m.x, KB_TIMED, &(kb_slice){0}, -1.75));
    expect_ok(kb_tensor_to_host(m.ctx, m.x, KB_TIMED, all, sizeof all));
    for (int i = 0; i < 20; i++)
        assert_int_equal(all[i], -1); /* as C converts */
    kb_context_destroy(m.ctx);
}

/* 0.1 becomes the f16 next to it, 0x2e66; 1e6 is too large and becomes infinite. */
static void values_are_rounded_once(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(ONE_PE);
    kb_tensor_spec spec = {.dtype = KB_F16};
    kb_tensor x;
    double value;
    expect_ok(kb_full(ctx, &spec, 0.1, &x));
    expect_contents(ctx, x, KB_UNTIMED, (unsigned char[]){0x66, 0x2e}, 2);
    expect_ok(kb_tensor_get(ctx, x, KB_UNTIMED, &(kb_index){0}, &value));
    assert_true(value == 0.0999755859375);
    expect_ok(kb_tensor_set(ctx, x, KB_UNTIMED, &(kb_index){0}, 1e6));
    expect_ok(kb_tensor_get(ctx, x, KB_UNTIMED, &(kb_index){0}, &value));
    assert_true(value == (double)INFINITY);
    /* f32 does not hold it, i32 and double do. */
    spec.dtype = KB_I32;
    expect_ok(kb_full(ctx, &spec, 16777217, &x));
    expect_ok(kb_tensor_get(ctx, x, KB_UNTIMED, &(kb_index){0}, &value));
    assert_true(value == 16777217);
    kb_context_destroy(ctx);
}

static void a_slice_of_nothing_takes_no_time(void **state)
{
    (void)state;
    matrix m = make_matrix();
    expect_ok(kb_synchronize(m.ctx));
    kb_time before = kb_context_now(m.ctx);
    char byte = 1;
    for (int access = KB_TIMED; access <= KB_UNTIMED; access++) {
        const kb_slice none = KB_SLICE({0, KB_END}, {2, 2});
        expect_ok(kb_tensor_get_slice(m.ctx, m.x, (kb_access)access, &none, &byte, 0));
        expect_ok(kb_tensor_get_slice(m.ctx, m.x, (kb_access)access, &none, NULL, 0));
        expect_ok(kb_tensor_set_slice(m.ctx, m.x, (kb_access)access, &none, NULL, 0));
        expect_ok(kb_tensor_fill_slice(m.ctx, m.x, (kb_access)access, &KB_SLICE({4, KB_END}), 3));
    }
    expect_ok(kb_synchronize(m.ctx));
    assert_int_equal(kb_context_now(m.ctx), before);
    assert_int_equal(byte, 1);
    kb_context_destroy(m.ctx);
}

/* ---- Mistakes ---------------------------------------------------------------------------- */

static void what_is_out_of_range_is_refused(void **state)
{
    (void)state;
    matrix m = make_matrix();
    kb_context *ctx = m.ctx;
    double value = 5;
    unsigned char bytes[20];
    expect_error(kb_tensor_get(ctx, m.x, KB_TIMED, &KB_INDEX(4, 0), &value), KB_ERR_FAULT,
                 "kb_tensor_get: index 4 of axis 0 of tensor 'x' is out of range: the size is 4");
    expect_error(kb_tensor_set(ctx, m.x, KB_TIMED, &KB_INDEX(0, UINT64_MAX), 1), KB_ERR_FAULT,
                 "kb_tensor_set: index 18446744073709551615 of axis 1 of tensor 'x' is out of "
                 "range: the size is 5");
    expect_error(kb_tensor_get_slice(ctx, m.x, KB_TIMED, &KB_SLICE({0, 1}, {3, 6}), bytes, 3),
                 KB_ERR_FAULT,
                 "kb_tensor_get_slice: 3:6 of axis 1 of tensor 'x' is out of range: the size "
                 "is 5");
    expect_error(kb_tensor_set_slice(ctx, m.x, KB_TIMED, &KB_SLICE({3, 2}), bytes, 5), KB_ERR_FAULT,
                 "kb_tensor_set_slice: 3:2 of axis 0 of tensor 'x' ends before it starts");
    expect_error(kb_tensor_fill_slice(ctx, m.x, KB_TIMED, &KB_SLICE({5, KB_END}), 1), KB_ERR_FAULT,
                 "kb_tensor_fill_slice: 5:4 of axis 0 of tensor 'x' ends before it starts");
    expect_error(kb_tensor_fill_slice(ctx, m.x, KB_TIMED, &KB_SLICE({0, 1}, {0, 1}, {0, 1}), 1),
                 KB_ERR_FAULT, "kb_tensor_fill_slice: the slice has 3 axes, but tensor 'x' has 2");
    assert_true(value == 5);
    expect_ok(kb_tensor_to_host(ctx, m.x, KB_UNTIMED, bytes, sizeof bytes));
    for (int i = 0; i < 20; i++)
        assert_int_equal(bytes[i], i);
    kb_context_destroy(ctx);
}

static void the_number_of_bytes_has_to_be_right(void **state)
{
    (void)state;
    matrix m = make_matrix();
    unsigned char bytes[24] = {0};
    expect_error(kb_tensor_to_host(m.ctx, m.x, KB_TIMED, bytes, 24), KB_ERR_FAULT,
                 "kb_tensor_to_host: tensor 'x': 24 bytes given, but the elements take 20");
    expect_error(kb_tensor_get_slice(m.ctx, m.x, KB_UNTIMED, &KB_SLICE({1, 2}), bytes, 4),
                 KB_ERR_FAULT,
                 "kb_tensor_get_slice: tensor 'x': 4 bytes given, but the elements take 5");
    expect_error(kb_tensor_set_slice(m.ctx, m.x, KB_UNTIMED, &KB_SLICE({1, 1}), bytes, 5),
                 KB_ERR_FAULT,
                 "kb_tensor_set_slice: tensor 'x': 5 bytes given, but the elements take 0");
    kb_context_destroy(m.ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slices_are_those_of_an_array),
        cmocka_unit_test(a_slice_may_span_shards),
        cmocka_unit_test(a_number_is_put_into_the_whole_slice),
        cmocka_unit_test(values_are_rounded_once),
        cmocka_unit_test(a_slice_of_nothing_takes_no_time),
        cmocka_unit_test(what_is_out_of_range_is_refused),
        cmocka_unit_test(the_number_of_bytes_has_to_be_right),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
