/*
 * test_launch.c: launches: who runs a kernel, what it is given, what it sees of memory, how long it
 * takes, and what a launch that went wrong says.
 */
#include "tensors.h"

#include <kernbench/tl.h>

/* ---- Kernels ----------------------------------------------------------------------------- */

/* Adds to its rows of a tensor that is split by rows over cubes, and then over PEs. */
KB_KERNEL(add_rows, tl_ptr x, int rows, int columns, float number)
{
    int64_t cubes = tl_num_programs(1), pes = tl_num_programs(0);
    int64_t cube_rows = tl_part_size(rows, cubes, tl_program_id(1));
    int64_t first = tl_part_begin(rows, cubes, tl_program_id(1)) +
                    tl_part_begin(cube_rows, pes, tl_program_id(0));
    int64_t mine = tl_part_size(cube_rows, pes, tl_program_id(0));
    tl_ptr at = x + first * columns * 4;
    tl_tensor v = tl_load(at, tl_shape(mine, columns), TL_F32);
    tl_store(at, tl_add(v, number));
}

/* An exponential of each of n numbers. */
KB_KERNEL(exponentials, tl_ptr x, int n)
{
    tl_store(x + 4 * tl_program_id(0), tl_sum(tl_exp(tl_full(tl_shape(n), TL_F32, 0)), 0));
}

/* Counts those that ran it: every PE writes its place in the grid into its part. */
KB_KERNEL(who, tl_ptr x, int64_t elements)
{
    int64_t at = tl_program_id(1) * tl_num_programs(0) + tl_program_id(0);
    tl_store(x + at * elements * 4, tl_full(tl_shape(elements), TL_I32, (double)at));
}

KB_KERNEL(copy, tl_ptr to, tl_ptr from, int n)
{
    tl_store(to, tl_load(from, tl_shape(n), TL_F32));
}

KB_KERNEL(out_of_bounds, tl_ptr x, int n)
{
    tl_load(x + 4, tl_shape(n), TL_F32);
}

KB_KERNEL(many_kinds, tl_ptr x, bool flag, unsigned char byte, uint64_t large, double real,
          kb_dtype dtype)
{
    double sum = flag + byte + (double)large + real + (int)dtype;
    tl_store(x, tl_full(tl_shape(1), TL_F32, sum));
}

/* Scales column tiles of a matrix in rows of `width`. */
KB_KERNEL(scale_columns, tl_ptr from, tl_ptr to, int rows, int width)
{
    tl_dims strides = tl_strides(width, 1);
    for (int i = 0; i < width / 64; i++) {
        TL_SCOPE {
            tl_tensor t = tl_load(from + 128 * i, tl_shape(rows, 64), TL_F16, .strides = strides);
            tl_store(to + 128 * i, tl_mul(t, 2), .strides = strides);
        }
    }
}

/* The same elements, named as one axis or as a column. */
KB_KERNEL(every_third, tl_ptr x, int n, int rank)
{
    tl_dims shape = rank == 1 ? tl_shape(n) : tl_shape(n, 1);
    tl_dims strides = rank == 1 ? tl_strides(3) : tl_strides(3, 1);
    for (int i = 0; i < 3; i++) {
        tl_tensor v = tl_load(x + 2 * i, shape, TL_F16, .strides = strides);
        tl_store(x + 2 * i, tl_add(v, i), .strides = strides);
    }
}

/* Elements of two bytes in a tensor of single bytes, which may be cut anywhere. */
KB_KERNEL(masked_pairs, tl_ptr x, int n)
{
    if (tl_program_id(0) > 0)
        return;
    tl_tensor old = tl_load(x, tl_shape(n), TL_F16, .reinterpret = true);
    tl_store(x, tl_full(tl_shape(n), TL_F16, 2), .mask = tl_eq(old, 0), .reinterpret = true);
}

/* ---- Helpers ----------------------------------------------------------------------------- */

static kb_tensor make(kb_context *ctx, const char *name, kb_shape shape, const kb_policy *policy)
{
    kb_tensor_spec spec = {.name = name, .dtype = KB_F32, .shape = shape, .policy = policy};
    kb_tensor tensor;
    expect_ok(kb_zeros(ctx, &spec, &tensor));
    return tensor;
}

static void upload(kb_context *ctx, kb_tensor tensor, kb_access access, const float *data,
                   size_t count)
{
    expect_ok(kb_tensor_set_slice(ctx, tensor, access, NULL, data, count * sizeof *data));
}

static void expect_floats(kb_context *ctx, kb_tensor tensor, const float *expected, size_t count)
{
    expect_contents(ctx, tensor, KB_UNTIMED, expected, count * sizeof *expected);
}

/* ---- Who runs it, and what it sees ------------------------------------------------------- */

static const kb_policy by_rows = {.cube = KB_ROW_WISE, .pe = KB_ROW_WISE};

static void every_part_of_a_tensor_is_worked_on(void **state)
{
    (void)state;
    static const uint64_t rows[] = {1, 2, 7, 24, 53};
    for (int m = 0; m < SMALL_MACHINES; m++) {
        kb_context *ctx = open_machine(small_machines[m]);
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
            float data[53 * 5], expected[53 * 5];
            size_t count = rows[i] * 5;
            for (size_t j = 0; j < count; j++) {
                data[j] = (float)j * 0.5f;
                expected[j] = data[j] + 2.5f;
            }
            kb_tensor x = make(ctx, "x", KB_SHAPE(rows[i], 5), &by_rows);
            upload(ctx, x, KB_TIMED, data, count);
            expect_ok(kb_launch(ctx, "add", &add_rows, x, rows[i], 5, 2.5));
            expect_floats(ctx, x, expected, count);
            expect_ok(kb_tensor_free(ctx, x));
        }
        kb_context_destroy(ctx);
    }
}

static void only_those_who_have_a_part_run_it(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(THREE_SIPS);
    kb_policy policy = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE, .num_pes = 3};
    kb_tensor_spec spec = {.dtype = KB_I32, .shape = KB_SHAPE(12), .policy = &policy};
    kb_tensor x;
    expect_ok(kb_zeros(ctx, &spec, &x));
    kb_request request;
    expect_ok(kb_launch_async(ctx, &request, "who", &who, x, 2));
    expect_ok(kb_request_wait(ctx, request, NULL));
    kb_launch_result result;
    size_t count;
    expect_ok(kb_launch_results(ctx, request, &result, 1, &count));
    assert_int_equal(count, 1);
    assert_int_equal(result.pes, 6);
    assert_string_equal(result.name, "who");
    expect_ok(kb_request_free(ctx, request));
    const int32_t expected[12] = {0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5};
    expect_contents(ctx, x, KB_UNTIMED, expected, sizeof expected);
    kb_context_destroy(ctx);
}

static void devices_get_their_own_addresses(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(THREE_SIPS);
    kb_tensor from[3], to[3];
    for (uint32_t sip = 0; sip < 3; sip++) {
        expect_ok(kb_ahbm_set_device(ctx, sip));
        for (uint32_t i = 0; i < sip; i++) /* so that addresses differ */
            (void)make(ctx, "unused", KB_SHAPE(100), NULL);
        from[sip] = make(ctx, "from", KB_SHAPE(3), NULL);
        to[sip] = make(ctx, "to", KB_SHAPE(3), NULL);
        const float data[3] = {(float)sip, 10, 20};
        upload(ctx, from[sip], KB_TIMED, data, 3);
    }
    kb_request request;
    expect_ok(kb_launch_async(ctx, &request, NULL, &copy, KB_EACH(to, 3), KB_EACH(from, 3), 3));
    expect_ok(kb_request_wait(ctx, request, NULL));
    kb_launch_result results[3];
    size_t count;
    expect_ok(kb_launch_results(ctx, request, results, 3, &count));
    assert_int_equal(count, 3);
    for (uint32_t sip = 0; sip < 3; sip++) {
        const float data[3] = {(float)sip, 10, 20};
        expect_floats(ctx, to[sip], data, 3);
        assert_int_equal(results[sip].sip, sip);
        assert_int_equal(results[sip].issued,
                         results[0].issued); /* all were told before the wait */
        assert_int_equal(results[sip].network,
                         results[sip].ended - results[sip].issued - results[sip].pe_exec);
    }
    expect_ok(kb_request_free(ctx, request));
    kb_context_destroy(ctx);
}

/* A kernel begins when what was sent before is there: in time too, not only in contents. */
static void uploads_arrive_first(void **state)
{
    (void)state;
    enum { COUNT = 100000 };
    kb_context *ctx = open_machine(ONE_PE);
    kb_tensor from = make(ctx, "from", KB_SHAPE(COUNT), NULL);
    kb_tensor to = make(ctx, "to", KB_SHAPE(3), NULL);
    expect_ok(kb_synchronize(ctx));
    float *data = calloc(COUNT, sizeof *data);
    assert_non_null(data);
    data[0] = 1;
    kb_time before = kb_context_now(ctx);
    upload(ctx, from, KB_TIMED, data, COUNT); /* 400,000 bytes at 64 GB/s: 6250 ns */
    free(data);
    kb_request request;
    expect_ok(kb_launch_async(ctx, &request, "copy", &copy, to, from, 3));
    assert_true(kb_context_now(ctx) - before >= 6250 * KB_NS);
    expect_ok(kb_request_wait(ctx, request, NULL));
    const float expected[3] = {1, 0, 0};
    expect_floats(ctx, to, expected, 3);
    expect_ok(kb_request_free(ctx, request));
    kb_context_destroy(ctx);
}

/* What a kernel wrote to memory that was given back never shows in what comes there next. */
static void memory_that_is_used_again_is_clean(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(ONE_PE);
    kb_tensor from = make(ctx, "from", KB_SHAPE(64), NULL);
    float ones[64], zeros[64] = {0};
    for (int i = 0; i < 64; i++)
        ones[i] = 1;
    upload(ctx, from, KB_UNTIMED, ones, 64);
    kb_tensor to = make(ctx, "to", KB_SHAPE(64), NULL);
    expect_ok(kb_launch(ctx, "copy", &copy, to, from, 64));
    expect_ok(kb_tensor_free(ctx, to)); /* nobody has looked at it */
    kb_tensor_spec spec = {.name = "next", .dtype = KB_F32, .shape = KB_SHAPE(64)};
    kb_tensor next;
    expect_ok(kb_empty(ctx, &spec, &next));
    expect_floats(ctx, next, zeros, 64);
    upload(ctx, next, KB_UNTIMED, ones, 64);
    expect_floats(ctx, next, ones, 64);
    kb_context_destroy(ctx);
}

/* What the host writes after a launch is what it sees, not what the kernel wrote before. */
static void what_the_host_writes_later_stays(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(ONE_PE);
    kb_tensor from = make(ctx, "from", KB_SHAPE(4), NULL);
    kb_tensor to = make(ctx, "to", KB_SHAPE(4), NULL);
    const float one[4] = {1, 1, 1, 1}, two[4] = {2, 2, 2, 2};
    upload(ctx, from, KB_UNTIMED, one, 4);
    expect_ok(kb_launch(ctx, "copy", &copy, to, from, 4));
    expect_ok(kb_tensor_set(ctx, to, KB_UNTIMED, &KB_INDEX(2), 5)); /* before anybody looked */
    upload(ctx, from, KB_UNTIMED, two, 4);                          /* its source has changed */
    const float expected[4] = {1, 1, 5, 1};
    expect_floats(ctx, to, expected, 4);
    kb_context_destroy(ctx);
}

static void zeros_are_there_for_kernels_too(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(ONE_PE);
    kb_tensor zero = make(ctx, "zero", KB_SHAPE(4), NULL);
    kb_tensor to = make(ctx, "to", KB_SHAPE(4), NULL);
    const float ones[4] = {1, 1, 1, 1}, zeros[4] = {0};
    upload(ctx, to, KB_UNTIMED, ones, 4);
    expect_ok(kb_launch(ctx, "copy", &copy, to, zero, 4));
    expect_floats(ctx, to, zeros, 4);
    kb_context_destroy(ctx);
}

static void arguments_of_all_kinds_arrive(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(ONE_PE);
    kb_tensor x = make(ctx, "x", KB_SHAPE(1), NULL);
    expect_ok(kb_launch(ctx, NULL, &many_kinds, x, true, 200, (uint64_t)1 << 20, -0.25, KB_I32));
    const float expected = 1 + 200 + 1048576 - 0.25f + KB_I32;
    expect_floats(ctx, x, &expected, 1);
    kb_context_destroy(ctx);
}

/* ---- Time -------------------------------------------------------------------------------- */

/* Everything that takes time takes as long without contents. */
static void time_is_the_same_without_data(void **state)
{
    (void)state;
    for (int m = 0; m < SMALL_MACHINES; m++) {
        kb_time ends[2];
        for (int timing_only = 0; timing_only < 2; timing_only++) {
            kb_context *ctx = open_context(small_machines[m],
                                           (kb_context_options){.timing_only = timing_only == 1});
            kb_tensor x = make(ctx, "x", KB_SHAPE(53, 7), &by_rows);
            expect_ok(kb_launch(ctx, "one", &add_rows, x, 53, 7, 1.0));
            expect_ok(kb_launch(ctx, "two", &add_rows, x, 53, 7, 1.0));
            ends[timing_only] = kb_context_now(ctx);
            kb_context_destroy(ctx);
        }
        assert_int_equal(ends[0], ends[1]);
    }
}

static kb_time exec_of(kb_context *ctx, kb_request request)
{
    kb_launch_result result;
    size_t count;
    expect_ok(kb_request_wait(ctx, request, NULL));
    expect_ok(kb_launch_results(ctx, request, &result, 1, &count));
    expect_ok(kb_request_free(ctx, request));
    return result.pe_exec;
}

/* Tiles that lie in each other's gaps have nothing to do with each other. */
static void what_is_woven_does_not_wait(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(ONE_PE);
    kb_tensor_spec spec = {.shape = KB_SHAPE(64, 512)};
    kb_tensor x, y;
    kb_request request;
    expect_ok(kb_zeros(ctx, &spec, &x));
    expect_ok(kb_zeros(ctx, &spec, &y));
    expect_ok(kb_launch_async(ctx, &request, NULL, &scale_columns, x, x, 64, 512));
    kb_time in_place = exec_of(ctx, request);
    expect_ok(kb_launch_async(ctx, &request, NULL, &scale_columns, x, y, 64, 512));
    assert_int_equal(exec_of(ctx, request), in_place);
    kb_context_destroy(ctx);
}

static void it_does_not_matter_how_elements_are_named(void **state)
{
    (void)state;
    enum { COUNT = 3000 };
    kb_time times[2];
    uint16_t contents[2][COUNT];
    for (int i = 0; i < 2; i++) {
        kb_context *ctx = open_machine(ONE_PE);
        kb_tensor_spec spec = {.shape = KB_SHAPE(COUNT)};
        kb_tensor x;
        kb_request request;
        expect_ok(kb_full(ctx, &spec, 1, &x));
        expect_ok(kb_launch_async(ctx, &request, NULL, &every_third, x, COUNT / 3, i + 1));
        times[i] = exec_of(ctx, request);
        expect_ok(kb_tensor_to_host(ctx, x, KB_UNTIMED, contents[i], sizeof contents[i]));
        kb_context_destroy(ctx);
    }
    assert_int_equal(times[0], times[1]);
    for (int i = 0; i < COUNT; i++) {
        static const uint16_t numbers[] = {0x3c00, 0x4000, 0x4200}; /* 1, 2, 3 */
        assert_int_equal(contents[0][i], numbers[i % 3]);
        assert_int_equal(contents[1][i], numbers[i % 3]);
    }
}

static void a_mask_holds_across_shards(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(THREE_SIPS);
    kb_policy policy = {.pe = KB_COLUMN_WISE, .num_cubes = 1, .num_pes = 2};
    kb_tensor_spec spec = {.dtype = KB_I8, .shape = KB_SHAPE(10), .policy = &policy};
    kb_tensor x; /* five bytes at each of two PEs */
    expect_ok(kb_zeros(ctx, &spec, &x));
    expect_ok(kb_tensor_set(ctx, x, KB_UNTIMED, &KB_INDEX(2), 7));
    expect_ok(kb_launch(ctx, NULL, &masked_pairs, x, 5));
    const unsigned char expected[10] = {0, 0x40, 7, 0, 0, 0x40, 0, 0x40, 0, 0x40}; /* 2 is 0x4000 */
    expect_contents(ctx, x, KB_UNTIMED, expected, sizeof expected);
    kb_context_destroy(ctx);
}

typedef struct tally {
    uint64_t kernels, launches;
    kb_time kernel_time;
} tally;

static void count_op(void *self, const kb_op *op)
{
    tally *t = self;
    bool is_kernel = op->unit == KB_UNIT_CPU && strcmp(op->name, "kernel") == 0;
    t->kernels += is_kernel;
    t->kernel_time += is_kernel ? op->end - op->start : 0;
    t->launches += op->unit == KB_UNIT_HOST && strcmp(op->name, "launch") == 0;
    assert_true(op->end >= op->start);
}

static void operations_are_told(void **state)
{
    (void)state;
    tally t = {0};
    kb_context *ctx =
        open_context(THREE_SIPS, (kb_context_options){.on_op = count_op, .on_op_self = &t});
    kb_tensor x = make(ctx, "x", KB_SHAPE(53, 7), &by_rows);
    kb_request request;
    expect_ok(kb_launch_async(ctx, &request, "add", &add_rows, x, 53, 7, 1.0));
    expect_ok(kb_request_wait(ctx, request, NULL));
    kb_launch_result result;
    size_t count;
    expect_ok(kb_launch_results(ctx, request, &result, 1, &count));
    assert_int_equal(t.launches, 1);
    assert_int_equal(t.kernels, result.pes);
    kb_time_sum split =
        result.split.compute + result.split.memory + result.split.communication + result.split.idle;
    assert_int_equal(split, t.kernel_time);
    assert_true(result.busy[KB_UNIT_MATH] > 0 && result.busy[KB_UNIT_DMA_READ] > 0);
    expect_ok(kb_request_free(ctx, request));
    kb_context_destroy(ctx);
}

/*
 * A lane that takes 5000 ms for an exponential: 1000 of them take 5000 s, and moving or adding a
 * number takes 1 ms. The PEs' times add up beyond what 64 bits hold, and a second launch would end
 * after the limit of 9223 s: it fails, and says so.
 */
static void time_has_a_limit_and_sums_have_none(void **state)
{
    (void)state;
    static const char *const settings[] = {"sip.cube_mesh.w=1",
                                           "sip.cube_mesh.h=1",
                                           "cube.pe_math.lanes=1",
                                           "cube.pe_math.cycle_ns=1e6",
                                           "cube.pe_math.exp_cycles=5000",
                                           "cube.pe_math.move_cycles=1",
                                           "cube.pe_math.latency_cycles=0"};
    kb_context *ctx;
    expect_ok(kb_context_create(
        &(kb_context_options){.settings = settings, .setting_count = 7, .timing_only = true},
        &ctx));
    kb_policy policy = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE, .num_pes = 8};
    kb_tensor_spec spec = {.dtype = KB_F32, .shape = KB_SHAPE(8), .policy = &policy};
    kb_tensor x;
    expect_ok(kb_zeros(ctx, &spec, &x));
    kb_request request;
    expect_ok(kb_launch_async(ctx, &request, "one", &exponentials, x, 1000));
    expect_ok(kb_request_wait(ctx, request, NULL));
    kb_launch_result result;
    size_t count;
    expect_ok(kb_launch_results(ctx, request, &result, 1, &count));
    assert_int_equal(result.pes, 8);
    kb_time_sum each = result.busy[KB_UNIT_MATH] / 8;
    assert_true(result.busy[KB_UNIT_MATH] == each * 8);
    assert_true(each >= 5000 * KB_S && each <= 5003 * KB_S && each % KB_MS == 0);
    assert_true(result.busy[KB_UNIT_MATH] > (kb_time_sum)KB_FOREVER);
    assert_true(result.causes[KB_CAUSE_VECTOR] == result.busy[KB_UNIT_MATH]);
    assert_true(result.split.compute == result.busy[KB_UNIT_MATH]);
    assert_true(kb_context_op_total(ctx, KB_UNIT_MATH, NULL).busy == result.busy[KB_UNIT_MATH]);
    expect_ok(kb_request_free(ctx, request));

    kb_error *err = kb_launch(ctx, "two", &exponentials, x, 1000);
    assert_int_equal(kb_error_code(err), KB_ERR_INPUT);
    assert_non_null(strstr(kb_error_message(err), "simulated time exceeds its limit of 9,223 s: a "
                                                  "command of a PE"));
    kb_error_free(err);
    assert_true(kb_context_now(ctx) < KB_FOREVER);
    kb_context_destroy(ctx);
}

/* ---- What goes wrong --------------------------------------------------------------------- */

static void wrong_arguments_are_refused(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(THREE_SIPS);
    kb_tensor x = make(ctx, "x", KB_SHAPE(8, 5), &by_rows);
    expect_ok(kb_ahbm_set_device(ctx, 1));
    kb_tensor y = make(ctx, "y", KB_SHAPE(8), NULL);
    kb_tensor_spec spec = {.name = "h", .dtype = KB_F32, .shape = KB_SHAPE(1)};
    kb_tensor host;
    expect_ok(kb_from_host(ctx, &spec, &(float){0}, 4, &host));
    expect_error(kb_launch(ctx, "a", &add_rows, x, 8, 5), KB_ERR_FAULT,
                 "launch of 'a': expected 4 arguments (tl_ptr x, int rows, int columns, float "
                 "number), found 3");
    expect_error(kb_launch(ctx, "a", &add_rows, x, 8.5, 5, 1), KB_ERR_FAULT,
                 "launch of 'a': argument 2: 'int rows' takes whole numbers, found 8.5");
    expect_error(kb_launch(ctx, "a", &add_rows, x, 8, 5000000000, 1), KB_ERR_FAULT,
                 "launch of 'a': argument 3: 'int columns' cannot hold 5000000000");
    expect_error(
        kb_launch(ctx, "a", &add_rows, x, x, 5, 1), KB_ERR_FAULT,
        "launch of 'a': argument 2: 'int rows' takes a number, found a tensor: tensors are "
        "for parameters of type tl_ptr");
    expect_error(kb_launch(ctx, "a", &add_rows, 0.5, 8, 5, 1), KB_ERR_FAULT,
                 "launch of 'a': argument 1: 'tl_ptr x' is an address: expected a tensor, found "
                 "0.5");
    expect_error(kb_launch(ctx, "a", &add_rows, 4096, 8, 5, 1), KB_ERR_FAULT,
                 "launch of 'a': no tensor among its arguments: cannot determine the device");
    expect_error(kb_launch(ctx, "c", &copy, x, y, 5), KB_ERR_FAULT,
                 "launch of 'c': argument 2: 'y' is on sip1, while others are on sip0; KB_EACH() "
                 "gives each device its own");
    expect_error(
        kb_launch(ctx, "c", &copy, x, host, 5), KB_ERR_FAULT,
        "launch of 'c': argument 2: 'h' (1,) f32 is on the host: copy it to a device first");
    expect_error(kb_launch(ctx, "c", NULL, x), KB_ERR_INPUT, "kb_launch: the kernel is NULL");
    expect_ok(kb_tensor_free(ctx, x));
    expect_error(kb_launch(ctx, "a", &add_rows, x, 8, 5, 1), KB_ERR_FAULT,
                 "launch of 'a': argument 1: invalid or freed tensor handle");
    kb_context_destroy(ctx);
}

/* A fault ends the launch with what happened; the context goes on. */
static void a_fault_is_told_and_survived(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(ONE_PE);
    kb_tensor x = make(ctx, "x", KB_SHAPE(4), NULL);
    kb_error *err = kb_launch(ctx, "bad", &out_of_bounds, x, 4000);
    assert_int_equal(kb_error_code(err), KB_ERR_FAULT);
    const char *message = kb_error_message(err);
    assert_non_null(strstr(message, "kernel 'out_of_bounds'"));
    assert_non_null(strstr(message, "sip0.cube0.pe0"));
    assert_non_null(strstr(message, "test_launch.c:"));
    assert_non_null(strstr(message, "'x'"));
    kb_error_free(err);
    expect_ok(kb_synchronize(ctx));
    expect_ok(kb_launch(ctx, "copy", &copy, x, x, 4));
    kb_context_destroy(ctx);
}

/* ---- Workers ----------------------------------------------------------------------------- */

typedef struct ranks {
    kb_tensor to[3], from[3];
    uint32_t failing; /* a rank that fails while the others' kernels run; 3: none */
} ranks;

static kb_error *work(kb_context *ctx, uint32_t rank, void *arg)
{
    ranks *r = arg;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    if (rank == r->failing)
        return kb_error_new(KB_ERR_FAULT, "no");
    r->from[rank] = make(ctx, "from", KB_SHAPE(3), NULL);
    r->to[rank] = make(ctx, "to", KB_SHAPE(3), NULL);
    const float data[3] = {(float)rank, 1, 2};
    upload(ctx, r->from[rank], KB_TIMED, data, 3);
    return kb_launch(ctx, "copy", &copy, r->to[rank], r->from[rank], 3);
}

static void workers_launch_side_by_side(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(THREE_SIPS);
    ranks r = {.failing = 3};
    expect_ok(kb_spawn(ctx, work, &r, 3));
    for (uint32_t rank = 0; rank < 3; rank++) {
        const float data[3] = {(float)rank, 1, 2};
        expect_floats(ctx, r.to[rank], data, 3);
    }
    kb_context_destroy(ctx);
}

static void a_worker_that_is_unwound_leaves_nothing(void **state)
{
    (void)state;
    kb_context *ctx = open_machine(THREE_SIPS);
    ranks r = {.failing = 1};
    expect_error(kb_spawn(ctx, work, &r, 3), KB_ERR_FAULT, "1 of 3 workers failed: rank 1: no");
    r.failing = 3;
    expect_ok(kb_spawn(ctx, work, &r, 3));
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_of_a_tensor_is_worked_on),
        cmocka_unit_test(only_those_who_have_a_part_run_it),
        cmocka_unit_test(devices_get_their_own_addresses),
        cmocka_unit_test(uploads_arrive_first),
        cmocka_unit_test(memory_that_is_used_again_is_clean),
        cmocka_unit_test(what_the_host_writes_later_stays),
        cmocka_unit_test(zeros_are_there_for_kernels_too),
        cmocka_unit_test(arguments_of_all_kinds_arrive),
        cmocka_unit_test(time_is_the_same_without_data),
        cmocka_unit_test(what_is_woven_does_not_wait),
        cmocka_unit_test(it_does_not_matter_how_elements_are_named),
        cmocka_unit_test(a_mask_holds_across_shards),
        cmocka_unit_test(operations_are_told),
        cmocka_unit_test(time_has_a_limit_and_sums_have_none),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(a_fault_is_told_and_survived),
        cmocka_unit_test(workers_launch_side_by_side),
        cmocka_unit_test(a_worker_that_is_unwound_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
