/*
 * test_flat_copies.c: copies by the count of elements between tensors of any shapes and layouts,
 * against copying in a plain array.
 */
#include "tensors.h"

#include "programs.h"
#include "rt/rt.h"
#include "support/seed.h"

/* ---- Copying ----------------------------------------------------------------------------- */

typedef struct copying {
    const rt_flat_copy *copies;
    size_t count;
    bool done;
} copying;

static kb_error *copy_all(void *self, rt_work *work, uint32_t step, bool *over)
{
    const copying *c = self;
    *over = step + 1 >= c->count;
    return c->count > 0 ? rt_work_copy(work, &c->copies[step]) : NULL;
}

static void is_over(void *self, const kb_error *err)
{
    (void)err;
    ((copying *)self)->done = true;
}

/* One copy a step. */
static kb_error *try_copies(kb_context *ctx, const rt_flat_copy *copies, size_t count,
                            kb_completion *completion)
{
    copying c = {copies, count, false};
    rt_work_options options = {.what = "copies", .step = copy_all, .done = is_over, .self = &c};
    rt_work *work;
    kb_request request;
    KB_TRY(rt_work_open(ctx, &options, &work, &request));
    rt_work_start(work);
    kb_error *err = kb_request_wait(ctx, request, completion);
    expect_ok(kb_request_free(ctx, request));
    assert_true(c.done);
    return err;
}

static kb_completion copy_flat(kb_context *ctx, rt_flat_copy copy)
{
    kb_completion completion;
    expect_ok(try_copies(ctx, &copy, 1, &completion));
    assert_int_equal(completion.overhead + completion.wire + completion.drain + completion.queueing,
                     completion.ended - completion.issued);
    return completion;
}

/* ---- Random ones ------------------------------------------------------------------------- */

/* A tensor somewhere, and what should be in it. */
typedef struct place {
    kb_policy policy;
    kb_tensor_spec spec;
    kb_tensor tensor;
    size_t elements, bytes;
    unsigned char *data;
} place;

static void draw_place(place *p, kb_context *ctx, kb_rng *rng, kb_dtype dtype)
{
    kb_machine machine = kb_context_machine(ctx);
    p->spec = draw_spec(rng, &machine, &p->policy);
    p->spec.dtype = dtype;
    p->spec.access = KB_UNTIMED;
    p->elements = elements_of(&p->spec.shape);
    p->bytes = bytes_of(&p->spec);
    p->data = draw_bytes(rng, p->bytes);
    expect_ok(kb_ahbm_set_device(ctx, (uint32_t)below(rng, machine.sips)));
    expect_ok(kb_empty(ctx, &p->spec, &p->tensor));
    expect_ok(kb_tensor_set_slice(ctx, p->tensor, KB_UNTIMED, NULL, p->data, p->bytes));
}

/* In every copy. */
static void expect_there(kb_context *ctx, const place *p)
{
    kb_machine machine = kb_context_machine(ctx);
    layout l = layout_of(&p->spec.shape, p->spec.policy, &machine);
    expect_contents(ctx, p->tensor, KB_UNTIMED, p->data, p->bytes);
    expect_shards(ctx, p->tensor, &l, p->data);
    layout_fini(&l);
}

/* How often each element is there. */
static uint64_t copies_of(kb_context *ctx, const place *p)
{
    kb_machine machine = kb_context_machine(ctx);
    layout l = layout_of(&p->spec.shape, p->spec.policy, &machine);
    uint64_t all = 0;
    for (size_t i = 0; i < l.count; i++)
        all += l.parts[i].count;
    layout_fini(&l);
    return p->elements > 0 ? all / p->elements : 1;
}

static rt_flat_copy draw_range(kb_rng *rng, const place *to, const place *from)
{
    uint64_t least = to->elements < from->elements ? to->elements : from->elements;
    uint64_t count = one_in(rng, 4) ? least : below(rng, least + 1);
    return (rt_flat_copy){
        .to = to->tensor,
        .from = from->tensor,
        .to_first = below(rng, to->elements - count + 1),
        .from_first = below(rng, from->elements - count + 1),
        .count = count,
    };
}

static void copy_between(kb_context *ctx, kb_rng *rng, place *to, place *from)
{
    rt_flat_copy copy = draw_range(rng, to, from);
    size_t each = kb_dtype_bytes(to->spec.dtype);
    kb_completion completion = copy_flat(ctx, copy);
    bool same = to == from && copy.to_first == copy.from_first;
    memmove(to->data + copy.to_first * each, from->data + copy.from_first * each,
            copy.count * each);
    expect_there(ctx, to);
    assert_int_equal(completion.bytes, same ? 0 : copy.count * each * copies_of(ctx, to));
    assert_int_equal(completion.ended > completion.issued, copy.count > 0 && !same);
}

static void any_range_goes_between_any_layouts(void **state)
{
    (void)state;
    for (int m = 0; m < SMALL_MACHINES; m++) {
        kb_context *ctx = open_machine(small_machines[m]);
        kb_rng rng;
        kb_rng_init(&rng, test_seed(71 + (uint64_t)m));
        for (uint64_t round = 0; round < fewer_if_slow(120); round++) {
            place a, b;
            kb_dtype dtype = (kb_dtype)below(&rng, KB_DTYPES);
            draw_place(&a, ctx, &rng, dtype);
            draw_place(&b, ctx, &rng, dtype);
            copy_between(ctx, &rng, &b, &a);
            copy_between(ctx, &rng, &a, &b);
            copy_between(ctx, &rng, &a, &a); /* also onto itself */
            expect_ok(kb_tensor_free(ctx, a.tensor));
            expect_ok(kb_tensor_free(ctx, b.tensor));
            free(a.data);
            free(b.data);
        }
        kb_context_destroy(ctx);
    }
}

/* ---- Time -------------------------------------------------------------------------------- */

static kb_time time_of_copy(kb_context *ctx, kb_tensor to, kb_tensor from)
{
    expect_ok(kb_synchronize(ctx));
    kb_time before = kb_context_now(ctx);
    expect_ok(kb_tensor_copy(ctx, to, from, KB_TIMED));
    expect_ok(kb_synchronize(ctx));
    return kb_context_now(ctx) - before;
}

/* An axis of 1 in the middle leaves a layout as it is, but such tensors are walked along: the time
 * is that of an ordinary copy, which goes by boxes. */
static void time_is_that_of_any_copy(void **state)
{
    (void)state;
    for (int m = 0; m < SMALL_MACHINES; m++) {
        kb_context *ctx = open_machine(small_machines[m]);
        kb_machine machine = kb_context_machine(ctx);
        kb_rng rng;
        kb_rng_init(&rng, test_seed(72 + (uint64_t)m));
        for (uint64_t round = 0; round < fewer_if_slow(60); round++) {
            uint64_t rows = 1 + below(&rng, 40), columns = 1 + below(&rng, 60);
            kb_policy from_policy = draw_policy(&rng, &machine);
            kb_policy to_policy = draw_policy(&rng, &machine);
            kb_tensor_spec spec = {.dtype = KB_F32,
                                   .shape = KB_SHAPE(rows, columns),
                                   .policy = &from_policy,
                                   .access = KB_UNTIMED};
            kb_tensor from, to, other;
            expect_ok(kb_ahbm_set_device(ctx, (uint32_t)below(&rng, machine.sips)));
            expect_ok(kb_zeros(ctx, &spec, &from));
            expect_ok(kb_ahbm_set_device(ctx, (uint32_t)below(&rng, machine.sips)));
            spec.policy = &to_policy;
            expect_ok(kb_zeros(ctx, &spec, &to));
            spec.shape = KB_SHAPE(rows, 1, columns);
            expect_ok(kb_zeros(ctx, &spec, &other));
            kb_completion flat =
                copy_flat(ctx, (rt_flat_copy){.to = other, .from = from, .count = rows * columns});
            assert_int_equal(time_of_copy(ctx, to, from), flat.ended - flat.issued);
            flat = copy_flat(ctx, (rt_flat_copy){.to = to, .from = from, .count = rows * columns});
            assert_int_equal(time_of_copy(ctx, to, from), flat.ended - flat.issued);
            expect_ok(kb_tensor_free(ctx, from));
            expect_ok(kb_tensor_free(ctx, to));
            expect_ok(kb_tensor_free(ctx, other));
        }
        kb_context_destroy(ctx);
    }
}

/* More rows than are kept before they are added up; contents or not, it takes the same time. */
static void many_rows_are_few_transfers(void **state)
{
    (void)state;
    enum { ROWS = 3000, COLUMNS = 17 };
    static const kb_policy split = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    kb_time took[2];
    for (int timing_only = 0; timing_only < 2; timing_only++) {
        kb_context *ctx =
            open_context(THREE_SIPS, (kb_context_options){.timing_only = timing_only});
        kb_tensor_spec spec = {.dtype = KB_I32,
                               .shape = KB_SHAPE(ROWS, COLUMNS),
                               .policy = &split,
                               .access = KB_UNTIMED};
        static int32_t numbers[ROWS * COLUMNS], found[ROWS * COLUMNS];
        kb_tensor from, to;
        for (int i = 0; i < ROWS * COLUMNS; i++)
            numbers[i] = i;
        expect_ok(kb_empty(ctx, &spec, &from));
        spec.shape = KB_SHAPE(ROWS * COLUMNS);
        expect_ok(kb_empty(ctx, &spec, &to));
        expect_ok(kb_tensor_set_slice(ctx, from, KB_UNTIMED, NULL, numbers, sizeof numbers));
        kb_completion flat =
            copy_flat(ctx, (rt_flat_copy){.to = to, .from = from, .count = ROWS * COLUMNS});
        took[timing_only] = flat.ended - flat.issued;
        assert_int_equal(flat.bytes, sizeof numbers);
        expect_ok(kb_tensor_to_host(ctx, to, KB_UNTIMED, found, sizeof found));
        if (!timing_only)
            assert_memory_equal(found, numbers, sizeof numbers);
        kb_context_destroy(ctx);
    }
    assert_true(took[0] > 0);
    assert_int_equal(took[0], took[1]);
}

/* ---- Steps and faults -------------------------------------------------------------------- */

static void copies_of_steps_follow_each_other(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(THREE_SIPS);
    kb_rng rng;
    kb_rng_init(&rng, test_seed(99));
    place a, b;
    draw_place(&a, ctx, &rng, KB_I8);
    while (a.elements < 4) {
        free(a.data);
        draw_place(&a, ctx, &rng, KB_I8);
    }
    draw_place(&b, ctx, &rng, KB_I8);
    while (b.elements < 4) {
        free(b.data);
        draw_place(&b, ctx, &rng, KB_I8);
    }
    const rt_flat_copy copies[] = {
        {.to = b.tensor, .from = a.tensor, .to_first = 1, .from_first = 0, .count = 2},
        {.to = a.tensor, .from = b.tensor, .to_first = 2, .from_first = 2, .count = 2},
        {.to = b.tensor, .from = a.tensor, .to_first = 0, .from_first = 2, .count = 1},
    };
    expect_ok(try_copies(ctx, copies, 3, NULL));
    memcpy(b.data + 1, a.data, 2);
    memcpy(a.data + 2, b.data + 2, 2);
    memcpy(b.data, a.data + 2, 1);
    expect_there(ctx, &a);
    expect_there(ctx, &b);
    free(a.data);
    free(b.data);
    kb_context_destroy(ctx);
}

static void a_freed_tensor_fails_the_work(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(THREE_SIPS);
    kb_tensor_spec spec = {.dtype = KB_I8, .shape = KB_SHAPE(4), .access = KB_UNTIMED};
    kb_tensor here, gone;
    expect_ok(kb_zeros(ctx, &spec, &here));
    expect_ok(kb_zeros(ctx, &spec, &gone));
    expect_ok(kb_tensor_free(ctx, gone));
    for (int i = 0; i < 2; i++) {
        rt_flat_copy copy = {.to = i ? here : gone, .from = i ? gone : here, .count = 1};
        expect_error(try_copies(ctx, &copy, 1, NULL), KB_ERR_FAULT,
                     "invalid or freed tensor handle");
    }
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_range_goes_between_any_layouts),
        cmocka_unit_test(time_is_that_of_any_copy),
        cmocka_unit_test(many_rows_are_few_transfers),
        cmocka_unit_test(copies_of_steps_follow_each_other),
        cmocka_unit_test(a_freed_tensor_fails_the_work),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
