/*
 * test_index_tensors.c: tensors whose numbers decide addresses have contents in every run, and
 * kernels that follow them take the same time with data and without.
 */
#include "tensors.h"

#include <kernbench/tl.h>

enum { PAGES = 6, PAGE = 40 };

/* Adds up the pages that a table names; numbers are what the kernel found in the table. */
static int64_t found[PAGES + 1];

KB_KERNEL(walk, tl_ptr table, tl_ptr pages, tl_ptr out)
{
    tl_tensor index = tl_load(table, tl_shape(2, PAGES / 2), TL_I32);
    tl_items(index, found, PAGES);
    found[PAGES] = (int64_t)tl_item(tl_load(table + 4 * (PAGES - 1), tl_shape(1), TL_I32));
    tl_tensor sum = tl_zeros(tl_shape(PAGE), TL_F32);
    /* The page's number is also how often it is added: the time depends on the table. */
    for (int64_t i = 0; i < PAGES; i++)
        for (int64_t times = 0; times < found[i]; times++)
            tl_assign(&sum,
                      tl_add(sum, tl_load(pages + found[i] * PAGE * 4, tl_shape(PAGE), TL_F32)));
    tl_store(out, sum);
}

KB_KERNEL(read_plain, tl_ptr x)
{
    int64_t numbers[2];
    tl_items(tl_load(x, tl_shape(2), TL_I32), numbers, 2);
}

KB_KERNEL(read_too_many, tl_ptr x)
{
    int64_t numbers[3];
    tl_items(tl_load(x, tl_shape(2), TL_I32), numbers, 3);
}

KB_KERNEL(read_floats, tl_ptr x)
{
    int64_t numbers[2];
    tl_items(tl_load(x, tl_shape(2), TL_F32, .reinterpret = true), numbers, 2);
}

KB_KERNEL(overwrite, tl_ptr x)
{
    tl_store(x, tl_full(tl_shape(2), TL_I32, 9));
}

static kb_tensor make(kb_context *ctx, const char *name, kb_dtype dtype, uint64_t elements,
                      bool is_index)
{
    kb_tensor tensor;
    const kb_tensor_spec spec = {.name = name,
                                 .dtype = dtype,
                                 .shape = KB_SHAPE(elements),
                                 .access = KB_UNTIMED,
                                 .is_index = is_index};
    expect_ok(kb_zeros(ctx, &spec, &tensor));
    return tensor;
}

/* The time of a walk; `sum` is the first element of its result. */
static kb_time time_walk(bool timing_only, const int32_t table[PAGES], double *sum)
{
    kb_context *ctx = open_context(ONE_PE, (kb_context_options){.timing_only = timing_only});
    kb_tensor index = make(ctx, "table", KB_I32, PAGES, true);
    kb_tensor pages = make(ctx, "pages", KB_F32, PAGES * PAGE, false);
    kb_tensor out = make(ctx, "out", KB_F32, PAGE, false);
    float numbers[PAGES * PAGE];
    for (int i = 0; i < PAGES * PAGE; i++)
        numbers[i] = (float)(i / PAGE + 1);
    expect_ok(kb_tensor_set_slice(ctx, pages, KB_UNTIMED, NULL, numbers, sizeof numbers));
    expect_ok(kb_tensor_set_slice(ctx, index, KB_UNTIMED, NULL, table, PAGES * sizeof *table));
    kb_time began = kb_context_now(ctx);
    expect_ok(kb_launch(ctx, NULL, &walk, index, pages, out));
    kb_time took = kb_context_now(ctx) - began;
    for (int i = 0; i < PAGES; i++)
        assert_int_equal(found[i], table[i]);
    assert_int_equal(found[PAGES], table[PAGES - 1]);
    expect_ok(kb_tensor_get(ctx, out, KB_UNTIMED, &KB_INDEX(0), sum));
    kb_context_destroy(ctx);
    return took;
}

static void kernels_follow_a_table_in_every_run(void **state)
{
    (void)state;
    const int32_t few[PAGES] = {1, 0, 0, 2, 0, 0}, many[PAGES] = {5, 3, 1, 4, 0, 2};
    double sum;
    kb_time with_few = time_walk(false, few, &sum);
    assert_true(sum == 1 * 2 + 2 * 3);
    assert_int_equal(time_walk(true, few, &sum), with_few);
    assert_true(sum == 0); /* of a tensor without contents */
    kb_time with_many = time_walk(false, many, &sum);
    assert_true(sum == 5 * 6 + 3 * 4 + 1 * 2 + 4 * 5 + 2 * 3);
    assert_int_equal(time_walk(true, many, &sum), with_many);
    assert_true(with_many > with_few);
}

static void the_host_reads_and_copies_them(void **state)
{
    (void)state;
    kb_context *ctx = open_context(ONE_PE, (kb_context_options){.timing_only = true});
    kb_tensor index = make(ctx, "index", KB_I32, 2, true),
              other = make(ctx, "other", KB_I32, 2, true);
    kb_tensor plain = make(ctx, "plain", KB_I32, 2, false), host, plain_host;
    const int32_t numbers[2] = {3, -4};
    kb_tensor_spec spec = {.dtype = KB_I32, .shape = KB_SHAPE(2), .is_index = true};
    int32_t back[2];

    expect_ok(kb_from_host(ctx, &spec, numbers, sizeof numbers, &host));
    expect_ok(kb_tensor_copy(ctx, index, host, KB_TIMED));
    expect_ok(kb_tensor_copy(ctx, other, index, KB_TIMED));
    expect_ok(kb_tensor_get_slice(ctx, other, KB_UNTIMED, NULL, back, sizeof back));
    expect_bytes(back, numbers, sizeof back);
    char *repr;
    expect_ok(kb_tensor_repr(ctx, other, KB_UNTIMED, &repr));
    assert_non_null(strstr(repr, "mean -0.5"));
    free(repr);

    /* What has no contents leaves them as they are. */
    spec.is_index = false;
    expect_ok(kb_from_host(ctx, &spec, numbers, sizeof numbers, &plain_host));
    expect_ok(kb_tensor_copy(ctx, other, plain_host, KB_TIMED));
    expect_ok(kb_tensor_copy(ctx, other, plain, KB_TIMED));
    expect_ok(kb_launch(ctx, NULL, &overwrite, other));
    expect_ok(kb_tensor_get_slice(ctx, other, KB_UNTIMED, NULL, back, sizeof back));
    expect_bytes(back, numbers, sizeof back);
    expect_ok(kb_tensor_copy(ctx, plain, index, KB_TIMED));
    expect_ok(kb_tensor_get_slice(ctx, plain, KB_UNTIMED, NULL, back, sizeof back));
    assert_true(back[0] == 0 && back[1] == 0);
    kb_context_destroy(ctx);
}

static void expect_mistake(bool timing_only, const kb_kernel *kernel, const char *text)
{
    kb_context *ctx = open_context(ONE_PE, (kb_context_options){.timing_only = timing_only});
    kb_tensor plain = make(ctx, "plain", KB_I32, 2, false);
    kb_error *err = kb_launch(ctx, NULL, kernel, plain);
    assert_int_equal(kb_error_code(err), KB_ERR_FAULT);
    if (!strstr(kb_error_message(err), text))
        fail_msg("no '%s' in: %s", text, kb_error_message(err));
    kb_error_free(err);
    kb_context_destroy(ctx);
}

static void mistakes_are_told(void **state)
{
    (void)state;
    expect_mistake(true, &read_plain, "the run is timing-only; an index tensor");
    expect_mistake(false, &read_too_many, "tl_items: shape (2); expected 3 elements");
    expect_mistake(true, &read_floats, "tl_items: expected a tensor of integers");

    kb_context *ctx = open_machine(ONE_PE);
    kb_tensor tensor;
    const kb_tensor_spec spec = {.dtype = KB_F32, .shape = KB_SHAPE(2), .is_index = true};
    kb_error *err = kb_zeros(ctx, &spec, &tensor);
    assert_int_equal(kb_error_code(err), KB_ERR_INPUT);
    assert_non_null(strstr(kb_error_message(err), "an index tensor of f32: expected i32"));
    kb_error_free(err);
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_follow_a_table_in_every_run),
        cmocka_unit_test(the_host_reads_and_copies_them),
        cmocka_unit_test(mistakes_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
