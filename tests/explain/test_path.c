/*
 * test_path.c: critical paths of random kernels on random machines: the chain has no gaps and no
 * overlaps, parts and groups add up to the femtosecond, and recording changes no time. Slowing what
 * is not on the path by less than its slack changes neither the end nor the path. That a path does
 * not promise more of a better resource than a run with it shows is in what_if.sh.
 */
#include "../tl/random_kernel.h"

#include "explain/explain.h"

typedef struct recording {
    rig r;
    explain_recorder *recorder;
    explain_path path;
    kb_time end;
} recording;

static void on_op(void *self, const kb_op *op)
{
    recording *rec = self;
    explain_record_op(rec->recorder, op);
}

static void begin_recording(recording *rec, uint64_t max_bytes)
{
    kb_oplog_watch(rec->r.log, on_op, rec);
    kb_oplog_give_ids(rec->r.log);
    expect_ok(explain_recorder_create(rec->r.machine, rec->r.log, max_bytes, &rec->recorder));
}

/* The path to the end of the run. */
static void end_recording(recording *rec)
{
    kb_oplog_flush(rec->r.log);
    rec->end = kb_sim_now(rec->r.sim);
    expect_ok(explain_find_path(rec->recorder, rec->end, &rec->path));
}

static void fini_recording(recording *rec)
{
    explain_path_fini(&rec->path);
    explain_recorder_destroy(rec->recorder);
    rig_fini(&rec->r);
}

static void expect_chain(const explain_path *path)
{
    kb_time at = 0;
    assert_int_equal(path->first_part.count, path->steps.count + 1);
    for (size_t i = 0; i < path->steps.count; i++) {
        const explain_step *step = &path->steps.items[i];
        assert_int_equal(step->from, at);
        assert_true(step->to > step->from);
        kb_time parts = 0;
        for (uint32_t p = path->first_part.items[i]; p < path->first_part.items[i + 1]; p++) {
            assert_true(path->parts.items[p].time > 0);
            parts += path->parts.items[p].time;
        }
        assert_int_equal(parts, step->to - step->from);
        at = step->to;
    }
    assert_int_equal(at, path->end);
}

static void expect_groups(const explain_path *path)
{
    for (int key = 0; key < EXPLAIN_KEYS; key++) {
        explain_groups groups;
        kb_time_sum all = 0;
        expect_ok(explain_group_path(path, (explain_key)key, &groups));
        for (size_t i = 0; i < groups.all.count; i++) {
            all += groups.all.items[i].time;
            assert_true(i == 0 || groups.all.items[i].time <= groups.all.items[i - 1].time);
        }
        assert_true(all == path->end);
        explain_groups_fini(&groups);
    }
    explain_findings found;
    kb_time_sum all = 0;
    expect_ok(explain_find(path, &found));
    for (int c = 0; c < EXPLAIN_CATEGORIES; c++)
        all += found.shares[c].time;
    assert_true(all == path->end);
}

/* No step but those at the ends may be without an operation. */
static void expect_operations(const explain_path *path)
{
    for (size_t i = 0; i < path->steps.count; i++)
        assert_true(path->steps.items[i].id != EXPLAIN_NONE || i == 0 ||
                    i + 1 == path->steps.count);
}

static void record_random(uint64_t seed, uint64_t max_bytes, recording *rec)
{
    *rec = (recording){0};
    prepare(seed, true, (rig_options){.timing_only = true, .window = 1}, &rec->r);
    begin_recording(rec, max_bytes);
    ending ends[PES];
    expect_ok(run_on(&rec->r, PES, &anything, (const tl_arg[]){MEMORY}, ends));
    for (int i = 0; i < PES; i++)
        expect_ok(ends[i].err);
    end_recording(rec);
}

static void paths_of_random_kernels_add_up(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 100; seed++) {
        recording rec, again;
        record_random(seed, UINT64_MAX, &rec);
        expect_chain(&rec.path);
        expect_groups(&rec.path);
        expect_operations(&rec.path);
        record_random(seed, UINT64_MAX, &again);
        assert_int_equal(rec.path.signature, again.path.signature);
        fini_recording(&again);
        fini_recording(&rec);
    }
}

/* Of a full recorder the path has kernels alone, and still adds up. */
static void a_full_recorder_groups_by_kernel(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        recording rec;
        record_random(seed, 0, &rec);
        expect_chain(&rec.path);
        expect_groups(&rec.path);
        explain_recorded recorded = explain_get_recorded(rec.recorder);
        assert_true(recorded.dropped > 0 && recorded.dropped < recorded.operations);
        size_t kernels = 0;
        for (size_t i = 0; i < rec.path.steps.count; i++)
            kernels += rec.path.steps.items[i].kind == EXPLAIN_KERNEL;
        assert_true(kernels > 0);
        fini_recording(&rec);
    }
}

/* ---- One chain, worked out by hand -------------------------------------------------------- */

KB_KERNEL(load_and_exp, tl_ptr memory)
{
    tl_store(memory, tl_exp(tl_load(memory, tl_shape(64, 64), TL_F16)));
}

static kb_time part_time(const explain_path *path, explain_resource resource, explain_aspect aspect)
{
    kb_time sum = 0;
    for (size_t i = 0; i < path->parts.count; i++)
        if (path->parts.items[i].resource == resource && path->parts.items[i].aspect == aspect)
            sum += path->parts.items[i].time;
    return sum;
}

/*
 * Start of the kernel 20 ns, issue of the load 1 ns; a load of 8 KiB from the own slice: 5 ns of
 * the DMA, 76 ns of the HBM, 8,192 bytes at 204.8 GB/s = 40 ns and a request of 16 bytes; exp: 64
 * passes of 8 cycles and 4; the store: the same as the load, without a request.
 */
static void the_parts_of_a_chain(void **state)
{
    (void)state;
    recording rec = {.r = rig_make(one_cube(NULL), true)};
    begin_recording(&rec, UINT64_MAX);
    ending ends[1];
    expect_ok(run_on(&rec.r, 1, &load_and_exp, (const tl_arg[]){MEMORY}, ends));
    expect_ok(ends[0].err);
    end_recording(&rec);
    expect_chain(&rec.path);
    const explain_path *path = &rec.path;
    assert_int_equal(part_time(path, EXPLAIN_LAUNCH, EXPLAIN_WORK), 20 * KB_NS);
    assert_int_equal(part_time(path, EXPLAIN_ISSUE, EXPLAIN_WORK), 1 * KB_NS);
    assert_int_equal(part_time(path, EXPLAIN_VECTOR, EXPLAIN_WORK), (64 * 8 + 4) * KB_NS);
    assert_int_equal(part_time(path, EXPLAIN_HBM_LATENCY, EXPLAIN_LATENCY), 2 * 76 * KB_NS);
    assert_int_equal(part_time(path, EXPLAIN_DMA, EXPLAIN_LATENCY) % (5 * KB_NS), 0);
    assert_in_range(part_time(path, EXPLAIN_HBM_BANDWIDTH, EXPLAIN_BANDWIDTH), 80 * KB_NS,
                    80 * KB_NS + 100 * KB_PS);
    assert_int_equal(part_time(path, EXPLAIN_PROGRAM, EXPLAIN_WORK), 0);
    fini_recording(&rec);
}

/* ---- Slack ------------------------------------------------------------------------------- */

enum { BUSY = 0, IDLER = 1, BOTH = 2 };

static uint64_t exponentials[BOTH]; /* of each PE */

/* Nothing of it is shared: the PE's own vector engine and its TCM. */
KB_KERNEL(exp_alone, tl_ptr memory)
{
    (void)memory;
    tl_tensor x = tl_zeros(tl_shape(32, 32), TL_F16);
    for (uint64_t i = 0; i < exponentials[tl_program_id(0)]; i++)
        tl_free(tl_exp(x));
}

typedef struct slack_run {
    kb_time ends[BOTH], end;
    uint64_t signature;
} slack_run;

static slack_run run_both(uint64_t busy, uint64_t idler)
{
    recording rec = {.r = rig_make(one_cube(NULL), true)};
    ending ends[BOTH];
    exponentials[BUSY] = busy;
    exponentials[IDLER] = idler;
    begin_recording(&rec, UINT64_MAX);
    expect_ok(run_on(&rec.r, BOTH, &exp_alone, (const tl_arg[]){MEMORY}, ends));
    slack_run result = {.signature = 0};
    for (int i = 0; i < BOTH; i++) {
        expect_ok(ends[i].err);
        result.ends[i] = ends[i].outcome.end;
    }
    end_recording(&rec);
    expect_chain(&rec.path);
    result.end = rec.end;
    result.signature = rec.path.signature;
    fini_recording(&rec);
    return result;
}

/* More work for a PE that is done early: as much as fits before the other one's end, then more. */
static void less_than_the_slack_changes_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        kb_rng rng;
        kb_rng_init(&rng, test_seed(seed));
        uint64_t busy = 40 + kb_rng_below(&rng, 60), idler = 1 + kb_rng_below(&rng, 20);
        slack_run is = run_both(busy, idler);
        kb_time one = run_both(busy, idler + 1).ends[IDLER] - is.ends[IDLER];
        kb_time slack = is.ends[BUSY] - is.ends[IDLER];
        assert_true(one > 0 && slack > one);
        uint64_t fits = (uint64_t)((slack - 1) / one);
        slack_run slower = run_both(busy, idler + fits);
        assert_int_equal(slower.ends[IDLER], is.ends[IDLER] + (kb_time)fits * one);
        assert_int_equal(slower.ends[BUSY], is.ends[BUSY]);
        assert_int_equal(slower.end, is.end);
        assert_int_equal(slower.signature, is.signature);
        slack_run too_slow = run_both(busy, idler + fits + 2);
        assert_int_equal(too_slow.ends[BUSY], is.ends[BUSY]);
        assert_int_equal(too_slow.end - is.end, too_slow.ends[IDLER] - is.ends[BUSY]);
        assert_true(too_slow.end > is.end);
        assert_true(too_slow.signature != is.signature);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paths_of_random_kernels_add_up),
        cmocka_unit_test(a_full_recorder_groups_by_kernel),
        cmocka_unit_test(the_parts_of_a_chain),
        cmocka_unit_test(less_than_the_slack_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
