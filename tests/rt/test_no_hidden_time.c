/*
 * test_no_hidden_time.c: law L9. All that takes time is in the op log; what the log adds up as it
 * goes is what its records add up to; and the parts of a run and of a kernel add up to the whole.
 */
#include "tensors.h"

#include <kernbench/tl.h>

#include "rt/rt.h"
#include "support/seed.h"

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

enum { MAX_OPS = 20000, MAX_PES = 64, SEEDS = 8 };

typedef struct records {
    kb_op ops[MAX_OPS];
    size_t count;
} records;

static void keep(void *self, const kb_op *op)
{
    records *r = self;
    assert_true(r->count < MAX_OPS);
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
    expect_ok(kb_tensor_to_host(ctx, y, KB_TIMED, host, sizeof host));
    expect_ok(kb_launch(ctx, "two", &busy, y, x, 37, 24, 2));
    expect_ok(kb_tensor_free(ctx, x));
    expect_ok(kb_synchronize(ctx));
}

/* ---- A program of whatever comes ---- */

enum { SIDE = 24, BLOCKS = 64 }; /* at least as many as PEs: each has one to itself */

/* Blocks of SIDE x SIDE elements, of which some are near and some far. Each PE does other things:
 * loads, products that need each other, vectors, stores to its own block, composites. */
KB_KERNEL(random_steps, tl_ptr x, tl_ptr y, int64_t seed, int64_t steps)
{
    int64_t me = tl_program_id(1) * tl_num_programs(0) + tl_program_id(0);
    kb_rng rng;
    kb_rng_init(&rng, test_seed((uint64_t)(seed * 1000 + me)));
    tl_ptr own = y + me % BLOCKS * SIDE * SIDE * 2;
    int64_t count = steps + (int64_t)kb_rng_below(&rng, 3) * steps;
    tl_tensor acc = tl_zeros(tl_shape(SIDE, SIDE), TL_F32);
    for (int64_t i = 0; i < count; i++) {
        TL_SCOPE {
            tl_ptr from = x + (int64_t)kb_rng_below(&rng, BLOCKS) * SIDE * SIDE * 2;
            tl_tensor v = tl_load(from, tl_shape(SIDE, SIDE), TL_F16);
            switch (kb_rng_below(&rng, 5)) {
            case 0:
                acc = tl_dot(v, v, .acc = acc);
                break;
            case 1:
                tl_store(own, tl_exp(v));
                break;
            case 2:
                tl_wait(tl_composite(TL_GEMM, tl_ref(from, tl_shape(SIDE, SIDE), TL_F16), v,
                                     tl_ref(own, tl_shape(SIDE, SIDE), TL_F16)));
                break;
            case 3:
                tl_wait(v);
                break;
            default:
                tl_store(own, v);
            }
        }
    }
    tl_store(own, tl_cast(acc, TL_F16));
}

static void run_random_program(kb_context *ctx, int64_t seed)
{
    kb_policy policy = {.cube = KB_ROW_WISE, .pe = KB_ROW_WISE};
    kb_tensor_spec spec = {.shape = KB_SHAPE(BLOCKS * SIDE, SIDE), .policy = &policy};
    kb_tensor x, y;
    kb_request first;
    expect_ok(kb_full(ctx, &spec, 0.25, &x));
    expect_ok(kb_empty(ctx, &spec, &y));
    expect_ok(kb_launch_async(ctx, &first, "one", &random_steps, x, y, seed, 5));
    expect_ok(kb_launch(ctx, "two", &random_steps, x, y, seed + 1, 3));
    expect_ok(kb_request_wait(ctx, first, NULL));
    expect_ok(kb_request_free(ctx, first));
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

static bool is_launch(const kb_op *op)
{
    return is_request(op) && op->launch != 0;
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
        else if (any_at(r, moments[i - 1], is_launch))
            naive.launching += length;
        else if (any_at(r, moments[i - 1], is_request))
            naive.requesting += length;
        else
            naive.idle += length;
    }
    free(moments);
    assert_int_equal(found->kernels, naive.kernels);
    assert_int_equal(found->launching, naive.launching);
    assert_int_equal(found->requesting, naive.requesting);
    assert_int_equal(found->idle, naive.idle);
    assert_int_equal(found->kernels + found->launching + found->requesting + found->idle, end);
}

static uint64_t number_of(const kb_machine *machine, kb_pe pe)
{
    return ((uint64_t)pe.sip * machine->cubes + pe.cube) * machine->pes + pe.pe;
}

/* All causes add up to the time of the PEs that ran a kernel; those of kernels to their time. */
static void expect_causes(const records *r, const kb_timeline *timeline, const kb_machine *machine)
{
    kb_time_sum kernels = 0, causes = 0;
    bool ran[MAX_PES] = {0};
    uint64_t pes = 0;
    for (size_t i = 0; i < r->count; i++) {
        if (!is_kernel(&r->ops[i]))
            continue;
        kernels += r->ops[i].end - r->ops[i].start;
        uint64_t pe = number_of(machine, r->ops[i].pe);
        assert_true(pe < MAX_PES);
        pes += !ran[pe];
        ran[pe] = true;
    }
    for (int c = 0; c < KB_CAUSES; c++) {
        assert_true(timeline->causes[c] >= 0);
        causes += timeline->causes[c];
    }
    assert_int_equal(timeline->pes, pes);
    assert_int_equal(timeline->in_kernels, kernels);
    assert_int_equal(causes, (kb_time)pes * timeline->kernels);
    assert_int_equal(
        causes - timeline->causes[KB_CAUSE_LAUNCH] - timeline->causes[KB_CAUSE_IMBALANCE], kernels);
    kb_split_time split = kb_split_causes(timeline->causes);
    assert_true(split.compute > 0 && split.memory > 0);
}

static bool is_of_engine(const kb_op *op)
{
    return op->unit == KB_UNIT_GEMM || op->unit == KB_UNIT_MATH;
}

/* Compute is the time in which an engine of the PE has a command, but for products that only drain
 * while bytes are outstanding: at most that much, and no less than what vector operations take. */
static void expect_compute(const records *r, const kb_timeline *timeline, kb_oplog *log,
                           const kb_machine *machine)
{
    kb_time most = 0, least = 0;
    uint64_t pes = (uint64_t)machine->sips * machine->cubes * machine->pes;
    for (size_t i = 0; i < r->count; i++)
        if (is_of_engine(&r->ops[i]))
            most += r->ops[i].end - r->ops[i].start;
    for (uint64_t pe = 0; pe < pes; pe++)
        least += kb_oplog_busy(log, pe, KB_UNIT_MATH);
    kb_time_sum compute = kb_split_causes(timeline->causes).compute;
    assert_in_range(compute, least, most);
}

/* The rows of the profile have the same time as the summary, cause by cause. */
static void expect_profile(kb_oplog *log, const kb_timeline *timeline)
{
    size_t count;
    const kb_profile_row *rows = kb_profile_rows(kb_oplog_profile(log), &count);
    for (int c = 0; c < KB_CAUSES; c++) {
        kb_time_sum sum = 0;
        for (size_t i = 0; i < count; i++)
            sum += rows[i].causes[c];
        bool has_line = c != KB_CAUSE_LAUNCH && c != KB_CAUSE_IMBALANCE;
        assert_int_equal(sum, has_line ? timeline->causes[c] : 0);
    }
}

static void all_time_is_accounted_for(void **state)
{
    (void)state;
    records *r = calloc(1, sizeof *r);
    assert_non_null(r);
    for (int m = 0; m < SMALL_MACHINES * (1 + SEEDS); m++) {
        int64_t seed = m / SMALL_MACHINES;
        r->count = 0;
        kb_context *ctx = open_context(
            small_machines[m % SMALL_MACHINES],
            (kb_context_options){.on_op = keep, .on_op_self = r, .timing_only = m % 2 == 1});
        kb_oplog *log = rt_get_stats(ctx).log;
        kb_machine machine = kb_context_machine(ctx);
        expect_ok(kb_oplog_start_profile(log));
        if (seed == 0)
            run_program(ctx);
        else
            run_random_program(ctx, seed);
        kb_timeline timeline = kb_oplog_timeline(log);
        expect_sums(r, log);
        expect_timeline(r, &timeline, kb_context_now(ctx));
        expect_causes(r, &timeline, &machine);
        expect_compute(r, &timeline, log, &machine);
        expect_profile(log, &timeline);
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
    kb_timeline timelines[2];
    for (int watched = 0; watched < 2; watched++) {
        kb_context_options options = {.on_op = watched ? keep : NULL, .on_op_self = r};
        kb_context *ctx = open_context(TALL, options);
        kb_oplog *log = rt_get_stats(ctx).log;
        if (watched)
            expect_ok(kb_oplog_start_profile(log));
        run_program(ctx);
        timelines[watched] = kb_oplog_timeline(log);
        const kb_op_sum *sums = kb_oplog_sums(log, &rows[watched]);
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
    assert_memory_equal(timelines[0].causes, timelines[1].causes, sizeof timelines[0].causes);
    assert_memory_equal(timelines[0].bytes, timelines[1].bytes, sizeof timelines[0].bytes);
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
