/*
 * test_windows.c: results do not depend on how far kernels run ahead of global time: random small
 * kernels on a ring of PEs, with loads, stores, both engines, composite operations, messages and
 * values that come and go. A window of 1 does not run ahead at all.
 */
#include "queue_rig.h"
#include "support/seed.h"

enum {
    PES = 4,
    STEPS = 60,
    MAX_VALUES = 6,
    REGION = 64 << 10, /* of memory that kernels load and store */
    MATRICES = 1 << 20,
    NOTES = PES * STEPS,
    MAX_OPS = 40000,
};

/* What the kernels of a run share. */
typedef struct plan {
    uint64_t seed;
    int64_t side; /* values are square matrices of f16 */
    int values;   /* that a kernel keeps */
    bool fits;    /* a message fits into the ring at once */
    bool composites, messages;
} plan;

static plan now_running;
static kb_time notes[NOTES]; /* what tl_now() said */
static size_t note_count[PES];

/* ---- The kernel -------------------------------------------------------------------------- */

typedef struct desk {
    tl_tensor values[MAX_VALUES];
    tl_future stored;
    bool has_stored;
    kb_rng rng;
} desk;

static tl_tensor *some_value(desk *d)
{
    return &d->values[kb_rng_below(&d->rng, (uint64_t)now_running.values)];
}

static void replace(tl_context *tl, tl_tensor *old, tl_tensor by)
{
    tl_free(*old);
    *old = by;
}

static tl_ptr some_place(desk *d, tl_ptr memory)
{
    return memory + (tl_ptr)(kb_rng_below(&d->rng, REGION / 256) * 256);
}

static void compute(tl_context *tl, desk *d)
{
    tl_tensor a = *some_value(d), b = *some_value(d);
    tl_tensor *to = some_value(d);
    switch (kb_rng_below(&d->rng, 5)) {
    case 0:
        replace(tl, to, tl_add(a, b));
        break;
    case 1:
        replace(tl, to, tl_exp(a));
        break;
    case 2:
        replace(tl, to, tl_full(tl_shape(now_running.side, now_running.side), TL_F16, 0.5));
        break;
    default:
        replace(tl, to, tl_dot(a, b));
        break;
    }
}

static void multiply_in_memory(tl_context *tl, desk *d, tl_ptr memory)
{
    tl_dims shape = tl_shape(64, 64);
    tl_ptr at = memory + MATRICES;
    tl_tensor a = tl_ref(at, shape, TL_F16), b = tl_ref(at + 8192, shape, TL_F16);
    tl_tensor out = tl_ref(at + 16384 * (1 + (tl_ptr)kb_rng_below(&d->rng, 2)), shape, TL_F16);
    d->stored = tl_composite(TL_GEMM, a, b, out);
    d->has_stored = true;
    tl_free(a);
    tl_free(b);
    tl_free(out);
}

static void move(tl_context *tl, desk *d, tl_ptr memory)
{
    tl_dims shape = tl_shape(now_running.side, now_running.side);
    if (kb_rng_below(&d->rng, 2)) {
        replace(tl, some_value(d), tl_load(some_place(d, memory), shape, TL_F16));
        return;
    }
    d->stored = tl_store(some_place(d, memory), *some_value(d));
    d->has_stored = true;
}

static void note_time(tl_context *tl)
{
    size_t pe = (size_t)tl_program_id(0);
    notes[pe * STEPS + note_count[pe]++] = tl_now();
}

static void await(tl_context *tl, desk *d)
{
    uint64_t what = kb_rng_below(&d->rng, 4);
    if (what == 0)
        note_time(tl);
    else if (what == 1 && d->has_stored)
        tl_wait(d->stored);
    else
        tl_wait(*some_value(d));
}

static void do_something(tl_context *tl, desk *d, tl_ptr memory)
{
    uint64_t what = kb_rng_below(&d->rng, 12);
    if (what < 6)
        compute(tl, d);
    else if (what < 10)
        move(tl, d, memory);
    else if (what == 10 && now_running.composites)
        multiply_in_memory(tl, d, memory);
    else
        await(tl, d);
}

/* To the next PE and from the one before. All PEs decide alike. */
static void exchange(tl_context *tl, desk *d, tl_ptr memory, kb_rng *shared)
{
    tl_dims shape = tl_shape(now_running.side, now_running.side);
    uint64_t how = kb_rng_below(shared, 4);
    if (how == 0 && now_running.fits) {
        (void)tl_send("E", *some_value(d));
        replace(tl, some_value(d), tl_recv("W", shape, TL_F16));
        return;
    }
    if (how == 1 && now_running.fits) {
        (void)tl_send("E", *some_value(d));
        do_something(tl, d, memory);
        replace(tl, some_value(d), tl_recv(TL_ANY, shape, TL_F16));
        return;
    }
    tl_tensor received = tl_recv_async("W", shape, TL_F16);
    if (how == 2)
        do_something(tl, d, memory);
    (void)tl_send("E", *some_value(d));
    if (how == 3)
        do_something(tl, d, memory);
    replace(tl, some_value(d), received);
}

KB_KERNEL(anything, tl_ptr memory)
{
    kb_rng shared;
    desk d = {.has_stored = false};
    kb_rng_init(&shared, now_running.seed);
    kb_rng_init(&d.rng, now_running.seed * 1000 + (uint64_t)tl_program_id(0));
    tl_dims shape = tl_shape(now_running.side, now_running.side);
    for (int i = 0; i < now_running.values; i++)
        d.values[i] = tl_load(some_place(&d, memory), shape, TL_F16);
    for (int i = 0; i < STEPS / 2; i++) {
        if (kb_rng_below(&shared, 4) == 0 && now_running.messages)
            exchange(tl, &d, memory, &shared);
        else
            do_something(tl, &d, memory);
    }
    note_time(tl);
}

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

static const char *const machines[] = {
    NULL,
    "{ pe_cpu: { queue_depth: 1 } }",
    "{ pe_cpu: { queue_depth: 2 }, pe_dma: { channels: 1 } }",
    "{ pe_tcm: { capacity_mib: 2, reserved_mib: 1 } }",
    "{ pe_tcm: { capacity_mib: 2, reserved_mib: 1, bw_gbs: 100 }, pe_cpu: { queue_depth: 2 } }",
};

static ipcq_settings random_settings(kb_rng *rng)
{
    static const kb_memory buffers[] = {KB_TCM, KB_TCM, KB_HBM, KB_SRAM};
    return (ipcq_settings){.buffer = buffers[kb_rng_below(rng, 4)],
                           .polls = kb_rng_below(rng, 3) == 0,
                           .n_slots = 1 + (uint32_t)kb_rng_below(rng, 4),
                           .slot_bytes = kb_rng_below(rng, 2) ? 1024 : 65536,
                           .credit_bytes = 16};
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
    kb_rng rng;
    kb_rng_init(&rng, test_seed(seed));
    rig r;
    const char *machine = machines[kb_rng_below(&rng, sizeof machines / sizeof machines[0])];
    ipcq_settings settings = random_settings(&rng);
    bool large = kb_rng_below(&rng, 4) == 0;
    now_running = (plan){.seed = test_seed(seed) + 1,
                         .side = large ? 256 : 32,
                         .values = large ? 3 : MAX_VALUES,
                         .composites = kb_rng_below(&rng, 2),
                         .messages = kb_rng_below(&rng, 4) > 0};
    uint64_t bytes = (uint64_t)(now_running.side * now_running.side) * 2;
    if (large)
        settings.slot_bytes = 65536;
    if (large && settings.n_slots > 2)
        settings.n_slots = 2; /* there is little TCM */
    now_running.fits = bytes <= settings.n_slots * settings.slot_bytes;
    memset(f, 0, sizeof *f);
    memset(notes, 0, sizeof notes);
    memset(note_count, 0, sizeof note_count);
    expect_ok(rig_try_with(&r, one_cube(machine),
                           (rig_options){.window = window, .timing_only = timing_only}));
    expect_ok(ring_try(&r, PES, &settings));
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
