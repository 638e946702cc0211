/* test_log.c: sums over operations. test_causes.c has what the time of PEs goes to. */
#include "oplog/log_rig.h"
#include "support/failing_alloc.h"
#include "support/seed.h"

/* An operation that has just ended. */
static void add(rig *r, uint64_t pe, kb_unit unit, const char *name, kb_time start, uint64_t bytes,
                uint64_t flops)
{
    kb_op op = {.unit = unit,
                .name = name,
                .label = "",
                .start = start,
                .end = kb_sim_now(r->sim),
                .bytes = bytes,
                .flops = flops};
    kb_oplog_add(r->log, pe, &op);
}

/* ---- Operations -------------------------------------------------------------------------- */

static void units_have_names(void **state)
{
    (void)state;
    assert_string_equal(kb_unit_name(KB_UNIT_GEMM), "pe_gemm");
    assert_string_equal(kb_unit_name(KB_UNIT_IPCQ), "pe_ipcq");
    for (int a = 0; a < KB_UNITS; a++)
        for (int b = 0; b < a; b++)
            assert_string_not_equal(kb_unit_name((kb_unit)a), kb_unit_name((kb_unit)b));
    assert_string_equal(kb_unit_name(KB_UNITS), "?");
}

static void expect_sum(const kb_op_sum *sum, kb_unit unit, const char *name, uint64_t count,
                       kb_time busy, uint64_t bytes, uint64_t flops)
{
    assert_int_equal(sum->unit, unit);
    assert_string_equal(sum->name, name);
    assert_int_equal(sum->count, count);
    assert_int_equal(sum->busy, busy);
    assert_int_equal(sum->bytes, bytes);
    assert_int_equal(sum->flops, flops);
}

/* The same text at two addresses is one name. */
static void sums_are_by_unit_and_name(void **state)
{
    (void)state;
    static const char one_add[] = "add", other_add[] = "add";
    rig r = make(4);
    size_t count;
    (void)kb_oplog_sums(r.log, &count);
    assert_int_equal(count, 0);
    go_to(&r, 10);
    add(&r, 0, KB_UNIT_MATH, "mul", 4, 1, 100);
    add(&r, 1, KB_UNIT_MATH, one_add, 3, 2, 200);
    go_to(&r, 20);
    add(&r, 3, KB_UNIT_MATH, other_add, 18, 4, 400);
    add(&r, KB_OPLOG_HOST, KB_UNIT_HOST, "copy", 0, 8, 0);
    add(&r, 3, KB_UNIT_DMA_READ, "add", 19, 16, 0);
    add(&r, 3, KB_UNIT_MATH, one_add, 20, 32, 800);
    add(&r, 3, KB_UNIT_MATH, "mul", 20, 0, 0);
    const kb_op_sum *sums = kb_oplog_sums(r.log, &count);
    assert_int_equal(count, 4);
    expect_sum(&sums[0], KB_UNIT_HOST, "copy", 1, 20, 8, 0);
    expect_sum(&sums[1], KB_UNIT_DMA_READ, "add", 1, 1, 16, 0);
    expect_sum(&sums[2], KB_UNIT_MATH, "add", 3, 9, 38, 1400);
    expect_sum(&sums[3], KB_UNIT_MATH, "mul", 2, 6, 1, 100);
    drop(&r);
}

/* More names than are remembered by their address. */
static void there_may_be_many_names(void **state)
{
    (void)state;
    enum { NAMES = 500 };
    static char names[NAMES][8];
    rig r = make(1);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < NAMES; i++) {
            (void)snprintf(names[i], sizeof names[i], "%03d", i * 7 % NAMES);
            add(&r, 0, KB_UNIT_MATH, names[i], 0, (uint64_t)(i * 7 % NAMES), 0);
        }
    size_t count;
    const kb_op_sum *sums = kb_oplog_sums(r.log, &count);
    assert_int_equal(count, NAMES);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(strtol(sums[i].name, NULL, 10), (long)i);
        assert_int_equal(sums[i].count, 2);
        assert_int_equal(sums[i].bytes, 2 * i);
    }
    drop(&r);
}

typedef struct seen {
    size_t count;
    kb_op ops[4];
} seen;

static void on_op(void *self, const kb_op *op)
{
    seen *s = self;
    s->ops[s->count++] = *op;
}

static void a_watcher_gets_every_record(void **state)
{
    (void)state;
    rig r = make(2);
    seen s = {0};
    add(&r, 0, KB_UNIT_MATH, "before", 0, 0, 0);
    kb_oplog_watch(r.log, on_op, &s);
    go_to(&r, 5);
    add(&r, 1, KB_UNIT_GEMM, "dot", 2, 3, 4);
    kb_op op = {.unit = KB_UNIT_CPU,
                .name = "kernel",
                .label = "scale",
                .end = 5,
                .result = 6,
                .operands = {7, 8, 9},
                .launch = 10,
                .file = "f.c",
                .line = 11};
    kb_oplog_add(r.log, 0, &op);
    kb_oplog_watch(r.log, NULL, NULL);
    add(&r, 1, KB_UNIT_GEMM, "after", 5, 0, 0);
    assert_int_equal(s.count, 2);
    assert_string_equal(s.ops[0].name, "dot");
    assert_int_equal(s.ops[0].start, 2);
    assert_memory_equal(&s.ops[1], &op, sizeof op);
    drop(&r);
}

/* It comes in its place among those told ahead, and counts nowhere. */
static void what_is_only_shown_does_not_count(void **state)
{
    (void)state;
    rig r = make(2);
    seen s = {0};
    kb_op wait = {.unit = KB_UNIT_IPCQ, .name = "recv", .label = "", .start = 2, .end = 7};
    kb_op credit = {.unit = KB_UNIT_IPCQ, .name = "credit", .label = "", .end = 5};
    kb_oplog_watch(r.log, on_op, &s);
    kb_oplog_add_ahead(r.log, 1, &credit);
    go_to(&r, 7);
    kb_oplog_show(r.log, &wait);
    kb_oplog_watch(r.log, NULL, NULL);
    kb_oplog_show(r.log, &wait);
    assert_int_equal(s.count, 2);
    assert_string_equal(s.ops[0].name, "credit");
    assert_memory_equal(&s.ops[1], &wait, sizeof wait);
    assert_int_equal(kb_oplog_busy(r.log, 1, KB_UNIT_IPCQ), 5);
    size_t count;
    (void)kb_oplog_sums(r.log, &count);
    assert_int_equal(count, 1);
    drop(&r);
}

/*
 * A unit that does several at a time is busy while there is one: [0, 10), [5, 12), then nothing,
 * then [20, 25): 17. A unit of which no begin is told gets the sum: 10 + 7 + 5 = 22.
 */
static void busy_is_the_time_with_something_under_way(void **state)
{
    (void)state;
    rig r = make(2);
    assert_int_equal(kb_oplog_busy(r.log, 1, KB_UNIT_DMA_READ), 0);
    kb_oplog_start(r.log, 1, kb_sim_now(r.sim), KB_UNIT_DMA_READ);
    go_to(&r, 5);
    assert_int_equal(kb_oplog_busy(r.log, 1, KB_UNIT_DMA_READ), 5);
    kb_oplog_start(r.log, 1, kb_sim_now(r.sim), KB_UNIT_DMA_READ);
    go_to(&r, 10);
    add(&r, 1, KB_UNIT_DMA_READ, "load", 0, 0, 0);
    add(&r, 1, KB_UNIT_CPU, "x", 0, 0, 0);
    go_to(&r, 12);
    add(&r, 1, KB_UNIT_DMA_READ, "load", 5, 0, 0);
    add(&r, 1, KB_UNIT_CPU, "x", 5, 0, 0);
    go_to(&r, 20);
    assert_int_equal(kb_oplog_busy(r.log, 1, KB_UNIT_DMA_READ), 12);
    kb_oplog_start(r.log, 1, kb_sim_now(r.sim), KB_UNIT_DMA_READ);
    go_to(&r, 25);
    add(&r, 1, KB_UNIT_DMA_READ, "load", 20, 0, 0);
    add(&r, 1, KB_UNIT_CPU, "x", 20, 0, 0);
    go_to(&r, 99);
    assert_int_equal(kb_oplog_busy(r.log, 1, KB_UNIT_DMA_READ), 17);
    assert_int_equal(kb_oplog_busy(r.log, 1, KB_UNIT_CPU), 22);
    assert_int_equal(kb_oplog_busy(r.log, 0, KB_UNIT_DMA_READ), 0);
    size_t count;
    const kb_op_sum *sums = kb_oplog_sums(r.log, &count);
    assert_int_equal(sums[1].busy, 22); /* a sum of times in any case */
    drop(&r);
}

/* ---- Told ahead -------------------------------------------------------------------------- */

typedef struct ends {
    kb_time at[64];
    size_t count;
} ends;

static void keep_end(void *self, const kb_op *op)
{
    ends *e = self;
    assert_true(e->count < 64);
    e->at[e->count++] = op->end;
}

/* One that begins now, and will end then. */
static void add_ahead(rig *r, uint64_t pe, kb_time end)
{
    kb_op op = {.unit = KB_UNIT_IPCQ,
                .name = "credit",
                .label = "",
                .start = kb_sim_now(r->sim),
                .end = end,
                .bytes = 16};
    kb_oplog_add_ahead(r->log, pe, &op);
}

/*
 * [0, 10), [4, 12), [4, 9) and [20, 25): of the PE's time it is [0, 12) and [20, 25), and of that
 * so much as has passed. The sums have all of them at once: 10 + 8 + 5 + 5.
 */
static void what_is_told_ahead_counts_as_it_passes(void **state)
{
    (void)state;
    rig r = make(2);
    add_ahead(&r, 1, 10);
    assert_int_equal(kb_oplog_busy(r.log, 1, KB_UNIT_IPCQ), 0);
    go_to(&r, 4);
    assert_int_equal(kb_oplog_busy(r.log, 1, KB_UNIT_IPCQ), 4);
    add_ahead(&r, 1, 12);
    add_ahead(&r, 1, 9);
    assert_int_equal(kb_oplog_busy(r.log, 1, KB_UNIT_IPCQ), 4);
    go_to(&r, 11);
    assert_int_equal(kb_oplog_busy(r.log, 1, KB_UNIT_IPCQ), 11);
    go_to(&r, 20);
    assert_int_equal(kb_oplog_busy(r.log, 1, KB_UNIT_IPCQ), 12);
    add_ahead(&r, 1, 25);
    size_t count;
    const kb_op_sum *sums = kb_oplog_sums(r.log, &count);
    expect_sum(&sums[0], KB_UNIT_IPCQ, "credit", 4, 28, 64, 0);
    go_to(&r, 99);
    assert_int_equal(kb_oplog_busy(r.log, 1, KB_UNIT_IPCQ), 17);
    assert_int_equal(kb_oplog_busy(r.log, 0, KB_UNIT_IPCQ), 0);
    drop(&r);
}

/* Records come in the order of ends: those that were told ahead before others of the same time. */
static void records_told_ahead_come_in_their_places(void **state)
{
    (void)state;
    rig r = make(2);
    ends got = {0};
    kb_oplog_watch(r.log, keep_end, &got);
    const kb_time told[] = {50, 10, 40, 20, 20, 60, 30};
    for (int i = 0; i < 7; i++)
        add_ahead(&r, 1, told[i]);
    assert_int_equal(got.count, 0);
    go_to(&r, 20);
    add(&r, 0, KB_UNIT_MATH, "add", 15, 0, 0);
    assert_int_equal(got.count, 4);
    go_to(&r, 45);
    add_ahead(&r, 1, 45);
    add(&r, 0, KB_UNIT_MATH, "add", 44, 0, 0);
    kb_oplog_flush(r.log);
    kb_oplog_flush(r.log);
    const kb_time expected[] = {10, 20, 20, 20, 30, 40, 45, 45, 50, 60};
    assert_int_equal(got.count, 10);
    assert_memory_equal(got.at, expected, sizeof expected);
    /* Those that are left go to whoever watches until then. */
    add_ahead(&r, 1, 100);
    kb_oplog_watch(r.log, NULL, NULL);
    assert_int_equal(got.count, 11);
    add_ahead(&r, 1, 100);
    kb_oplog_flush(r.log);
    assert_int_equal(got.count, 11);
    drop(&r);
}

/* Many at a time, at random: all come, sorted. */
static void many_records_told_ahead_are_sorted(void **state)
{
    (void)state;
    rig r = make(1);
    kb_rng rng;
    kb_rng_init(&rng, test_seed(3));
    ends got = {0};
    kb_oplog_watch(r.log, keep_end, &got);
    for (int i = 0; i < 60; i++) {
        add_ahead(&r, 0, kb_sim_now(r.sim) + (kb_time)kb_rng_below(&rng, 200));
        go_to(&r, kb_sim_now(r.sim) + (kb_time)kb_rng_below(&rng, 9));
    }
    kb_oplog_flush(r.log);
    assert_int_equal(got.count, 60);
    for (size_t i = 1; i < 60; i++)
        assert_true(got.at[i - 1] <= got.at[i]);
    drop(&r);
}

/* ---- No memory --------------------------------------------------------------------------- */

static void on_event(kb_sim *sim, void *self, uint64_t arg)
{
    (void)arg;
    rig r = {.sim = sim, .log = self};
    kb_oplog_start(r.log, 1, kb_sim_now(r.sim), KB_UNIT_MATH);
    add(&r, 1, KB_UNIT_MATH, "add", 0, 0, 0);
    add(&r, KB_OPLOG_HOST, KB_UNIT_HOST, "copy", 0, 0, 0);
}

static kb_error *run_one_event(rig *r)
{
    kb_handler handler;
    kb_source source = kb_source_make(0);
    KB_TRY(kb_sim_create(NULL, &r->sim));
    KB_TRY(kb_oplog_create(r->sim, 2, &r->log));
    KB_TRY(kb_sim_add_handler(r->sim, on_event, r->log, &handler));
    (void)kb_sim_at(r->sim, &source, 7, handler, 0);
    return kb_sim_run(r->sim, KB_FOREVER);
}

static void try_without_memory(void)
{
    rig r = {0};
    kb_error *err = run_one_event(&r);
    if (err)
        assert_int_equal(kb_error_code(err), KB_ERR_HOST);
    kb_error_free(err);
    drop(&r);
}

static void lack_of_memory_fails_the_run(void **state)
{
    (void)state;
    failing_alloc_try_all(try_without_memory);
}

/* Four times 9000 s are 36000 s, four times what 64 bits hold: exact all the same. */
static void sums_of_times_do_not_wrap(void **state)
{
    (void)state;
    rig r = make(4);
    size_t count;
    go_to(&r, 9000 * KB_S + 1);
    for (uint64_t pe = 0; pe < 4; pe++)
        add(&r, pe, KB_UNIT_MATH, "add", 0, 0, 0);
    const kb_op_sum *sums = kb_oplog_sums(r.log, &count);
    assert_int_equal(count, 1);
    assert_true(sums[0].busy == (kb_time_sum)36000 * KB_S + 4);
    drop(&r);
}

/* Of bytes and flops there may be 2^63 - 1 in a unit, whatever the names of the operations. */
static void sums_of_bytes_and_flops_have_a_limit(void **state)
{
    (void)state;
    size_t count;
    for (int flops = 0; flops < 2; flops++) {
        rig r = make(1);
        const uint64_t half = (uint64_t)1 << 62;
        add(&r, 0, KB_UNIT_MATH, "add", 0, flops ? 0 : half, flops ? half : 0);
        add(&r, 0, KB_UNIT_GEMM, "dot", 0, half, half);
        add(&r, 0, KB_UNIT_MATH, "mul", 0, flops ? 0 : half - 1, flops ? half - 1 : 0);
        expect_ok(kb_sim_run(r.sim, 10));
        add(&r, 0, KB_UNIT_MATH, "mul", 0, flops ? 0 : 1, flops ? 1 : 0);
        expect_error(kb_sim_run(r.sim, 20), KB_ERR_INPUT,
                     "more than 2^63 - 1 bytes or floating-point operations in all in pe_math: use "
                     "less work");
        const kb_op_sum *sums = kb_oplog_sums(r.log, &count);
        assert_true((flops ? sums[1].flops : sums[1].bytes) == half);
        add(&r, 0, KB_UNIT_MATH, "max", 0, UINT64_MAX, UINT64_MAX);
        kb_error *err = kb_sim_run(r.sim, 30);
        assert_int_equal(kb_error_code(err), KB_ERR_INPUT);
        kb_error_free(err);
        drop(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(units_have_names),
        cmocka_unit_test(sums_are_by_unit_and_name),
        cmocka_unit_test(there_may_be_many_names),
        cmocka_unit_test(a_watcher_gets_every_record),
        cmocka_unit_test(what_is_only_shown_does_not_count),
        cmocka_unit_test(busy_is_the_time_with_something_under_way),
        cmocka_unit_test(what_is_told_ahead_counts_as_it_passes),
        cmocka_unit_test(records_told_ahead_come_in_their_places),
        cmocka_unit_test(many_records_told_ahead_are_sorted),
        cmocka_unit_test(sums_of_times_do_not_wrap),
        cmocka_unit_test(sums_of_bytes_and_flops_have_a_limit),
        cmocka_unit_test(lack_of_memory_fails_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
