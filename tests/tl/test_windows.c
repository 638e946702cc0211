/*
 * test_windows.c: results do not depend on how far kernels run ahead of global time: random small
 * kernels (random_kernel.h). A window of 1 does not run ahead at all.
 *
 * Checks K8 and K9.
 */
#include "random_kernel.h"

enum { MAX_OPS = 40000 };

/* ---- Runs -------------------------------------------------------------------------------- */

typedef struct op_time {
    kb_time start, end;
    kb_unit unit;
    uint32_t pe;
    uint64_t name; /* its first letters */
} op_time;

/* All that a run is compared by. */
typedef struct findings {
    tl_outcome outcomes[PES];
    kb_time notes[NOTES];
    kb_op_sum sums[64];
    char names[64][16];
    size_t sum_count;
    unsigned char memory[PES][REGION];
    op_time ops[MAX_OPS];
    size_t op_count;
} findings;

static void note_op(void *self, const kb_op *op)
{
    findings *f = self;
    assert_true(f->op_count < MAX_OPS);
    op_time *t = &f->ops[f->op_count++];
    *t = (op_time){op->start, op->end, op->unit, op->pe.pe, 0};
    memcpy(&t->name, op->name, strnlen(op->name, sizeof t->name));
}

static void gather(rig *r, findings *f)
{
    memcpy(f->notes, notes, sizeof notes);
    const kb_op_sum *sums = kb_oplog_sums(r->log, &f->sum_count);
    assert_true(f->sum_count <= 64);
    memcpy(f->sums, sums, f->sum_count * sizeof *sums);
    for (size_t i = 0; i < f->sum_count; i++) {
        snprintf(f->names[i], sizeof f->names[i], "%s", sums[i].name);
        f->sums[i].name = NULL;
    }
    expect_ok(data_settle(r->store));
    for (uint32_t pe = 0; pe < PES; pe++)
        mem_memories_read(r->memories, &(kb_location){.memory = KB_HBM, .pe = pe_at(pe)},
                          f->memory[pe], REGION);
}

static void run_once(uint64_t seed, uint32_t window, bool watched, bool timing_only, findings *f)
{
    rig r;
    memset(f, 0, sizeof *f);
    prepare(seed, false, (rig_options){.window = window, .timing_only = timing_only}, &r);
    if (watched)
        kb_oplog_watch(r.log, note_op, f);
    ending ends[PES];
    expect_ok(run_on(&r, PES, &anything, (const tl_arg[]){MEMORY}, ends));
    for (int i = 0; i < PES; i++) {
        assert_int_equal(ends[i].done, 1);
        expect_ok(ends[i].err);
        f->outcomes[i] = ends[i].outcome;
    }
    kb_oplog_flush(r.log);
    gather(&r, f);
    rig_fini(&r);
}

/* ---- Comparing --------------------------------------------------------------------------- */

static int compare_ops(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(op_time));
}

static void expect_same_outcome(const tl_outcome *a, const tl_outcome *b)
{
    assert_int_equal(a->start, b->start);
    assert_int_equal(a->end, b->end);
    for (int unit = 0; unit < KB_UNITS; unit++) {
        if (a->busy[unit] != b->busy[unit])
            print_message("unit %d: busy %lld, then %lld\n", unit, (long long)a->busy[unit],
                          (long long)b->busy[unit]);
        assert_int_equal(a->busy[unit], b->busy[unit]);
    }
    for (int cause = 0; cause < KB_CAUSES; cause++) {
        if (a->causes[cause] != b->causes[cause])
            print_message("cause %d: %lld, then %lld\n", cause, (long long)a->causes[cause],
                          (long long)b->causes[cause]);
        assert_int_equal(a->causes[cause], b->causes[cause]);
    }
}

static void expect_same(const findings *a, const findings *b)
{
    for (size_t i = 0; i < NOTES; i++)
        assert_int_equal(a->notes[i], b->notes[i]);
    for (int pe = 0; pe < PES; pe++)
        expect_same_outcome(&a->outcomes[pe], &b->outcomes[pe]);
    assert_int_equal(a->sum_count, b->sum_count);
    for (size_t i = 0; i < a->sum_count; i++) {
        assert_string_equal(a->names[i], b->names[i]);
        if (a->sums[i].count != b->sums[i].count || a->sums[i].busy != b->sums[i].busy)
            print_message("%s: %d of %lld, then %d of %lld\n", a->names[i], (int)a->sums[i].count,
                          (long long)a->sums[i].busy, (int)b->sums[i].count,
                          (long long)b->sums[i].busy);
        assert_int_equal(a->sums[i].count, b->sums[i].count);
        assert_int_equal(a->sums[i].busy, b->sums[i].busy);
        assert_int_equal(a->sums[i].bytes, b->sums[i].bytes);
        assert_int_equal(a->sums[i].flops, b->sums[i].flops);
        assert_int_equal(a->sums[i].kernel_bytes, b->sums[i].kernel_bytes);
    }
    assert_memory_equal(a->memory, b->memory, sizeof a->memory);
}

static void expect_same_ops(findings *a, findings *b)
{
    assert_int_equal(a->op_count, b->op_count);
    qsort(a->ops, a->op_count, sizeof *a->ops, compare_ops);
    qsort(b->ops, b->op_count, sizeof *b->ops, compare_ops);
    assert_memory_equal(a->ops, b->ops, a->op_count * sizeof *a->ops);
}

static bool differ(const findings *a, const findings *b)
{
    return memcmp(a->notes, b->notes, sizeof a->notes) != 0 ||
           memcmp(a->outcomes, b->outcomes, sizeof a->outcomes) != 0;
}

static findings in_step, ahead;

static void compare_windows(bool timing_only, uint64_t seeds)
{
    static const uint32_t windows[] = {2, 3, 33, 0};
    for (uint64_t seed = 0; seed < seeds; seed++) {
        run_once(seed, 1, false, timing_only, &in_step);
        for (size_t w = 0; w < sizeof windows / sizeof windows[0]; w++) {
            run_once(seed, windows[w], false, timing_only, &ahead);
            if (differ(&in_step, &ahead))
                print_message("seed %d, window %d\n", (int)seed, (int)windows[w]);
            expect_same(&in_step, &ahead);
        }
    }
}

static void results_do_not_depend_on_the_window(void **state)
{
    (void)state;
    compare_windows(true, 100);
}

static void nor_do_data(void **state)
{
    (void)state;
    compare_windows(false, 15);
}

/* One who watches gets the same operations, and changes nothing. */
static void a_watcher_sees_the_same(void **state)
{
    (void)state;
    static findings other;
    for (uint64_t seed = 0; seed < 10; seed++) {
        run_once(seed, 1, true, true, &in_step);
        run_once(seed, 0, true, true, &ahead);
        assert_true(in_step.op_count > STEPS);
        expect_same_ops(&in_step, &ahead);
        expect_same(&in_step, &ahead);
        run_once(seed, 0, false, true, &other);
        expect_same(&in_step, &other);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_do_not_depend_on_the_window),
        cmocka_unit_test(nor_do_data),
        cmocka_unit_test(a_watcher_sees_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
