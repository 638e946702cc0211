/*
 * test_race_check.c: what a launch says of PEs that touch the same bytes, and when it says nothing.
 * Which accesses are ordered is in tests/tl/test_race_order.c.
 */
#include "tensors.h"

#include <kernbench/tl.h>

#include <ctype.h>

/* ---- Kernels ------------------------------------------------------------------------------ */

/* It does not look at its cube: all of them work on the rows of the first. */
KB_KERNEL(scale_first_row, tl_ptr x, int n, float factor)
{
    tl_ptr mine = x + tl_program_id(0) * n * 2;
    tl_tensor v = tl_load(mine, tl_shape(n), TL_F16);
    tl_store(mine, tl_mul(v, factor));
}

KB_KERNEL(scale, tl_ptr x, int n, float factor)
{
    tl_ptr mine = x + (tl_program_id(1) * tl_num_programs(0) + tl_program_id(0)) * n * 2;
    tl_tensor v = tl_load(mine, tl_shape(n), TL_F16);
    tl_store(mine, tl_mul(v, factor));
}

/* All of it, by everyone. */
KB_KERNEL(fill, tl_ptr x, int n)
{
    tl_store(x, tl_full(tl_shape(n), TL_F16, 1));
}

static int64_t number_of_pe(tl_context *tl)
{
    return tl_program_id(1) * tl_num_programs(0) + tl_program_id(0);
}

/* Every PE its columns of all rows: with a width of 2 they lie side by side. The second tensor is
 * cut over all PEs, so that they run it. */
KB_KERNEL(fill_columns, tl_ptr x, tl_ptr where, int rows, int width)
{
    (void)where;
    int64_t pes = tl_num_programs(0) * tl_num_programs(1);
    tl_ptr mine = x + number_of_pe(tl) * 4;
    tl_store(mine, tl_full(tl_shape(rows, width), TL_F16, 1), .strides = tl_strides(2 * pes, 1));
}

/* Every PE a part of the tensor, by a mask on all of it. */
KB_KERNEL(fill_masked, tl_ptr x, int n)
{
    int64_t pes = tl_num_programs(0) * tl_num_programs(1), at = number_of_pe(tl);
    tl_tensor i = tl_arange(0, n);
    tl_tensor mask = tl_mul(tl_ge(i, tl_part_begin(n, pes, at)),
                            tl_lt(i, tl_part_begin(n, pes, at) + tl_part_size(n, pes, at)));
    tl_store(x, tl_full(tl_shape(n), TL_F16, 1), .mask = mask);
}

/* The product is written where another PE reads. */
KB_KERNEL(multiply_in_place, tl_ptr x)
{
    tl_tensor a = tl_ref(x, tl_shape(4, 4), TL_F16), out = tl_ref(x + 32, tl_shape(4, 4), TL_F16);
    if (tl_program_id(0) == 0)
        tl_composite(TL_GEMM, a, a, out);
    else if (tl_program_id(0) == 1)
        tl_load(x + 48, tl_shape(1), TL_F16);
}

/* ---- Contexts and what they say ----------------------------------------------------------- */

typedef struct said {
    int count;
    char first[1024];
} said;

/* "at 12.345 ns" is a matter of the machine. */
static void copy_without_times(char *to, size_t room, const char *from)
{
    size_t length = 0;
    while (*from && length + 1 < room) {
        if (strncmp(from, " at ", 4) == 0 && isdigit((unsigned char)from[4]) &&
            from[4 + strspn(from + 4, "0123456789.")] == ' ') {
            memcpy(to + length, " at T", 5);
            length += 5;
            from += 4 + strspn(from + 4, "0123456789.");
        } else {
            to[length++] = *from++;
        }
    }
    to[length] = '\0';
}

static void on_warning(void *self, const char *line)
{
    said *s = self;
    if (s->count++ == 0)
        copy_without_times(s->first, sizeof s->first, line);
}

static kb_context *open_with(const char *machine, kb_race_check races, bool timing_only, said *s)
{
    *s = (said){0};
    return open_context(machine, (kb_context_options){.races = races,
                                                      .timing_only = timing_only,
                                                      .on_warning = on_warning,
                                                      .on_warning_self = s});
}

static kb_tensor make(kb_context *ctx, kb_shape shape, const kb_policy *policy, kb_memory memory)
{
    kb_tensor_spec spec = {.name = "x",
                           .dtype = KB_F16,
                           .shape = shape,
                           .policy = policy,
                           .memory = memory,
                           .access = KB_UNTIMED};
    kb_tensor x;
    expect_ok(kb_empty(ctx, &spec, &x));
    return x;
}

static const kb_policy rows_and_columns = {.cube = KB_ROW_WISE, .pe = KB_COLUMN_WISE};
static const kb_policy by_columns = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};

/* Two cubes of four PEs, whose PEs share 4 places: both load, and then both store. So each store
 * races with the load of the other PE, which came before it: 8 accesses in all. */
#define RACE                                                                                       \
    "data race in launch 'it': 64 bytes at sip0.cube0.pe0.hbm+0x0, in tensor 'x' (f16, "           \
    "0x100000000 to 0x100000200) from offset 0x0 on, elements 0 to 31: "

static kb_error *launch_racy(kb_context *ctx)
{
    kb_tensor x = make(ctx, KB_SHAPE(2, 128), &rows_and_columns, KB_HBM);
    return kb_launch(ctx, "it", &scale_first_row, x, 32, 0.5);
}

static void expect_report(const char *text)
{
    if (strncmp(text, RACE, strlen(RACE)) != 0)
        fail_msg("%s", text);
    static const char first[] =
        "kernel 'scale_first_row' on sip0.cube1.pe0 reads them (tl_load at test_race_check.c:17, "
        "issued at T ns), kernel 'scale_first_row' on sip0.cube0.pe0 writes them (tl_store at "
        "test_race_check.c:18, issued at T ns), and no chain of messages orders the two; 7 more "
        "accesses of this launch race";
    assert_string_equal(text + strlen(RACE), first);
}

/* ---- Tests -------------------------------------------------------------------------------- */

static void a_race_is_a_warning(void **state)
{
    (void)state;
    said s;
    kb_context *ctx = open_with(THREE_SIPS, KB_RACES_WARN, false, &s);
    expect_ok(launch_racy(ctx));
    assert_int_equal(s.count, 1);
    expect_report(s.first);
    expect_ok(launch_racy(ctx));
    assert_int_equal(s.count, 2); /* one a launch */
    kb_context_destroy(ctx);
}

static void a_race_is_a_fault_on_request(void **state)
{
    (void)state;
    for (int timing_only = 0; timing_only < 2; timing_only++) {
        said s;
        kb_context *ctx = open_with(THREE_SIPS, KB_RACES_FAIL, timing_only, &s);
        kb_error *err = launch_racy(ctx);
        assert_int_equal(kb_error_code(err), KB_ERR_FAULT);
        on_warning(&s, kb_error_message(err));
        expect_report(s.first);
        assert_int_equal(s.count, 1);
        kb_error_free(err);
        kb_context_destroy(ctx);
    }
}

static void without_the_check_nothing_is_said(void **state)
{
    (void)state;
    static const struct {
        kb_race_check races;
        bool timing_only;
    } cases[] = {{KB_RACES_OFF, false}, {KB_RACES_OFF, true}, {KB_RACES_WARN, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        said s;
        kb_context *ctx = open_with(THREE_SIPS, cases[i].races, cases[i].timing_only, &s);
        expect_ok(launch_racy(ctx));
        assert_int_equal(s.count, 0);
        kb_context_destroy(ctx);
    }
    kb_context *ctx;
    expect_error(kb_context_create(&(kb_context_options){.races = (kb_race_check)3}, &ctx),
                 KB_ERR_INPUT, "races is 3; expected KB_RACES_WARN, KB_RACES_FAIL or KB_RACES_OFF");
}

/* Sixteen cubes of eight PEs: 8 columns with 16 PEs each. */
static void the_default_machine_races_too(void **state)
{
    (void)state;
    said s;
    kb_context *ctx = open_with(NULL, KB_RACES_WARN, false, &s);
    kb_machine machine = kb_context_machine(ctx);
    kb_tensor x = make(ctx, KB_SHAPE(machine.cubes, machine.pes * 32), &rows_and_columns, KB_HBM);
    expect_ok(kb_launch(ctx, NULL, &scale_first_row, x, 32, 0.5));
    assert_int_equal(s.count, 1);
    assert_non_null(strstr(s.first, "data race in launch 'scale_first_row': 64 bytes at "));
    expect_ok(kb_launch(ctx, NULL, &scale, x, 32, 0.5));
    assert_int_equal(s.count, 1);
    kb_context_destroy(ctx);
}

/* Runs it where a race is a fault. */
static kb_error *try_on(const char *machine, kb_shape shape, const kb_policy *policy,
                        kb_memory memory, const kb_kernel *kernel, const int64_t *numbers,
                        size_t count)
{
    said s;
    kb_context *ctx = open_with(machine, KB_RACES_FAIL, false, &s);
    kb_arg args[4] = {{.kind = KB_ARG_TENSOR, .tensor = make(ctx, shape, policy, memory)}};
    for (size_t i = 0; i < count; i++)
        args[i + 1] = (kb_arg){.kind = KB_ARG_INTEGER, .integer = numbers[i]};
    kb_error *err =
        kb_launch_args(ctx, &(kb_launch_options){.name = "it"}, kernel, args, count + 1);
    kb_context_destroy(ctx);
    return err;
}

static void expect_race(kb_error *err, const char *text)
{
    assert_int_equal(kb_error_code(err), KB_ERR_FAULT);
    if (!strstr(kb_error_message(err), text))
        fail_msg("no '%s' in: %s", text, kb_error_message(err));
    kb_error_free(err);
}

static void copies_are_different_memory(void **state)
{
    (void)state;
    static const kb_policy everywhere = {.cube = KB_REPLICATE, .pe = KB_REPLICATE};
    static const kb_policy in_cubes = {.cube = KB_REPLICATE, .num_pes = 1};
    const int64_t n[] = {64};
    for (int m = 0; m < SMALL_MACHINES; m++)
        for (kb_memory memory = KB_HBM; memory <= KB_TCM; memory++) {
            expect_ok(try_on(small_machines[m], KB_SHAPE(64), &everywhere, memory, &fill, n, 1));
            expect_ok(try_on(small_machines[m], KB_SHAPE(64), &in_cubes, memory, &fill, n, 1));
            kb_error *err =
                try_on(small_machines[m], KB_SHAPE(64), &by_columns, memory, &fill, n, 1);
            if (m == 0) /* has one PE */
                expect_ok(err);
            else
                expect_race(err, memory == KB_HBM ? " bytes at sip0.cube0.pe0.hbm+0x0, in "
                                                  : " bytes at sip0.cube0.pe0.tcm+0x0, in ");
        }
}

static void rows_between_rows_do_not_race(void **state)
{
    (void)state;
    for (int m = 1; m < SMALL_MACHINES; m++)
        for (int width = 1; width <= 3; width++) {
            said s;
            kb_context *ctx = open_with(small_machines[m], KB_RACES_FAIL, false, &s);
            kb_machine machine = kb_context_machine(ctx);
            uint64_t pes = (uint64_t)machine.cubes * machine.pes;
            kb_tensor x = make(ctx, KB_SHAPE(9, 2 * pes + 1), NULL, KB_HBM);
            kb_tensor where = make(ctx, KB_SHAPE(pes), &by_columns, KB_HBM);
            kb_error *err = kb_launch(ctx, "it", &fill_columns, x, where, 8, width);
            if (width < 3)
                expect_ok(err);
            else
                expect_race(err, "data race in launch 'it': 2 bytes at sip0.cube0.pe0.hbm+0x4, ");
            kb_context_destroy(ctx);
        }
}

static void what_masks_leave_out_does_not_race(void **state)
{
    (void)state;
    const int64_t n[] = {101};
    for (int m = 0; m < SMALL_MACHINES; m++)
        expect_ok(
            try_on(small_machines[m], KB_SHAPE(101), &by_columns, KB_HBM, &fill_masked, n, 1));
}

static void products_read_and_write(void **state)
{
    (void)state;
    expect_race(try_on(THREE_SIPS, KB_SHAPE(32), &by_columns, KB_HBM, &multiply_in_place, NULL, 0),
                "pe0 writes them (tl_composite at ");
}

static void devices_do_not_race_with_each_other(void **state)
{
    (void)state;
    said s;
    kb_context *ctx = open_with(THREE_SIPS, KB_RACES_FAIL, false, &s);
    kb_tensor x[3];
    for (uint32_t sip = 0; sip < 3; sip++) {
        expect_ok(kb_ahbm_set_device(ctx, sip));
        x[sip] = make(ctx, KB_SHAPE(64), NULL, KB_HBM);
    }
    expect_ok(kb_launch(ctx, "it", &fill, KB_EACH(x, 3), 64));
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_race_is_a_warning),
        cmocka_unit_test(a_race_is_a_fault_on_request),
        cmocka_unit_test(without_the_check_nothing_is_said),
        cmocka_unit_test(the_default_machine_races_too),
        cmocka_unit_test(copies_are_different_memory),
        cmocka_unit_test(rows_between_rows_do_not_race),
        cmocka_unit_test(what_masks_leave_out_does_not_race),
        cmocka_unit_test(products_read_and_write),
        cmocka_unit_test(devices_do_not_race_with_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
