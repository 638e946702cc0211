/*
 * test_no_hidden_time.c: law L9. All that takes time is in the op log; what the log adds up as it
 * goes is what its records add up to; and the parts of a run and of a kernel add up to the whole.
 */
#include "tensors.h"

#include <kernbench/tl.h>

#include "rt/rt.h"

/* ---- A program --------------------------------------------------------------------------- */

KB_KERNEL(busy, tl_ptr x, tl_ptr y, int rows, int columns, int rounds)
{
    int64_t cubes = tl_num_programs(1), pes = tl_num_programs(0);
    int64_t in_cube = tl_part_size(rows, cubes, tl_program_id(1));
    int64_t first = tl_part_begin(rows, cubes, tl_program_id(1)) +
                    tl_part_begin(in_cube, pes, tl_program_id(0));
    int64_t mine = tl_part_size(in_cube, pes, tl_program_id(0));
    tl_ptr from = x + first * columns * 2, to = y + first * columns * 2;
    for (int i = 0; i < rounds; i++) {
        TL_SCOPE {
            tl_tensor v = tl_load(from, tl_shape(mine, columns), TL_F16);
            tl_tensor w = tl_softmax(tl_exp(v), 1);
            tl_store(to, tl_add(w, tl_dot(w, tl_full(tl_shape(columns, 1), TL_F16, 1))));
        }
    }
    if (tl_program_id(0) == 0) /* somebody else's rows, in another cube or not */
        tl_wait(tl_load(x, tl_shape(1, columns), TL_F16));
}

enum { MOST_OPS = 20000, MOST_PES = 64 };

typedef struct records {
    kb_op ops[MOST_OPS];
    size_t count;
} records;

static void keep(void *self, const kb_op *op)
{
    records *r = self;
    assert_true(r->count < MOST_OPS);
    assert_true(op->end > op->start);
    r->ops[r->count++] = *op;
}

static void run_program(kb_context *ctx)
{
    kb_policy policy = {.cube = KB_ROW_WISE, .pe = KB_ROW_WISE};
    kb_tensor_spec spec = {.shape = KB_SHAPE(37, 24), .policy = &policy};
    kb_tensor x, y;
    expect_ok(kb_full(ctx, &spec, 0.5, &x));
    expect_ok(kb_empty(ctx, &spec, &y));
    expect_ok(kb_launch(ctx, "one", &busy, x, y, 37, 24, 3));
    uint16_t host[37 * 24];
    expect_ok(kb_tensor_to_host(ctx, y, KB_FABRIC, host, sizeof host));
    expect_ok(kb_launch(ctx, "two", &busy, y, x, 37, 24, 2));
    expect_ok(kb_tensor_free(ctx, x));
    expect_ok(kb_synchronize(ctx));
}

/* ---- Adding up --------------------------------------------------------------------------- */

static void expect_sums(const records *r, kb_oplog *log)
{
    size_t rows;
    const kb_op_sum *sums = kb_oplog_sums(log, &rows);
    uint64_t counted = 0;
    for (size_t i = 0; i < rows; i++) {
        kb_op_sum naive = {0};
        for (size_t j = 0; j < r->count; j++) {
            const kb_op *op = &r->ops[j];
            if (op->unit != sums[i].unit || strcmp(op->name, sums[i].name) != 0)
                continue;
            naive.count++;
            naive.busy += op->end - op->start;
            naive.bytes += op->bytes;
            naive.flops += op->flops;
        }
        assert_int_equal(sums[i].count, naive.count);
        assert_int_equal(sums[i].busy, naive.busy);
        assert_int_equal(sums[i].bytes, naive.bytes);
        assert_int_equal(sums[i].flops, naive.flops);
        counted += naive.count;
    }
    assert_int_equal(counted, r->count);
}

static bool is_kernel(const kb_op *op)
{
    return op->unit == KB_UNIT_CPU && strcmp(op->name, "kernel") == 0;
}

static int by_time(const void *a, const void *b)
{
    const kb_time *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static bool any_at(const records *r, kb_time from, bool (*wanted)(const kb_op *op))
{
    for (size_t i = 0; i < r->count; i++)
        if (wanted(&r->ops[i]) && r->ops[i].start <= from && r->ops[i].end > from)
            return true;
    return false;
}

static bool is_request(const kb_op *op)
{
    return op->unit == KB_UNIT_HOST;
}

/* Between any two moments at which something begins or ends nothing changes: so look there. */
static void expect_timeline(const records *r, const kb_timeline *found, kb_time end)
{
    kb_time *moments = calloc(2 * r->count + 2, sizeof *moments);
    assert_non_null(moments);
    size_t count = 0;
    moments[count++] = 0;
    moments[count++] = end;
    for (size_t i = 0; i < r->count; i++) {
        if (!is_kernel(&r->ops[i]) && !is_request(&r->ops[i]))
            continue;
        moments[count++] = r->ops[i].start;
        moments[count++] = r->ops[i].end;
    }
    qsort(moments, count, sizeof *moments, by_time);
    kb_timeline naive = {0};
    for (size_t i = 1; i < count; i++) {
        kb_time length = moments[i] - moments[i - 1];
        if (length == 0)
            continue;
        if (any_at(r, moments[i - 1], is_kernel))
            naive.kernels += length;
        else if (any_at(r, moments[i - 1], is_request))
            naive.communicating += length;
        else
            naive.idle += length;
    }
    free(moments);
    assert_int_equal(found->kernels, naive.kernels);
    assert_int_equal(found->communicating, naive.communicating);
    assert_int_equal(found->idle, naive.idle);
    assert_int_equal(found->kernels + found->communicating + found->idle, end);
}

static void expect_kernel_time(const records *r, const kb_timeline *timeline)
{
    kb_time kernels = 0;
    for (size_t i = 0; i < r->count; i++)
        if (is_kernel(&r->ops[i]))
            kernels += r->ops[i].end - r->ops[i].start;
    const kb_split_time *split = &timeline->pes;
    assert_int_equal(split->compute + split->memory + split->communication + split->idle, kernels);
    assert_true(split->compute > 0 && split->memory > 0);
}

static void all_time_is_accounted_for(void **state)
{
    (void)state;
    records *r = calloc(1, sizeof *r);
    assert_non_null(r);
    for (int m = 0; m < SMALL_MACHINES; m++) {
        r->count = 0;
        kb_context *ctx = open_context(
            small_machines[m],
            (kb_context_options){.on_op = keep, .on_op_self = r, .timing_only = m % 2 == 1});
        run_program(ctx);
        rt_figures figures = rt_get_figures(ctx);
        kb_timeline timeline = kb_oplog_timeline(figures.log);
        expect_sums(r, figures.log);
        expect_timeline(r, &timeline, kb_context_now(ctx));
        expect_kernel_time(r, &timeline);
        kb_context_destroy(ctx);
    }
    free(r);
}

/* Watching changes nothing. */
static void sums_are_the_same_when_nobody_watches(void **state)
{
    (void)state;
    records *r = calloc(1, sizeof *r);
    assert_non_null(r);
    kb_op_sum kept[64];
    size_t rows[2];
    kb_time ends[2];
    for (int watched = 0; watched < 2; watched++) {
        kb_context_options options = {.on_op = watched ? keep : NULL, .on_op_self = r};
        kb_context *ctx = open_context(TALL, options);
        run_program(ctx);
        const kb_op_sum *sums = kb_oplog_sums(rt_get_figures(ctx).log, &rows[watched]);
        assert_true(rows[watched] <= 64);
        for (size_t i = 0; i < rows[watched]; i++) {
            if (watched == 0) {
                kept[i] = sums[i];
                continue;
            }
            assert_string_equal(sums[i].name, kept[i].name);
            assert_int_equal(sums[i].count, kept[i].count);
            assert_int_equal(sums[i].busy, kept[i].busy);
        }
        ends[watched] = kb_context_now(ctx);
        kb_context_destroy(ctx);
    }
    assert_int_equal(rows[0], rows[1]);
    assert_int_equal(ends[0], ends[1]);
    free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_time_is_accounted_for),
        cmocka_unit_test(sums_are_the_same_when_nobody_watches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
