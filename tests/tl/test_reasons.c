/*
 * test_reasons.c: what determined when operations began and ended (kb_reason). One kernel for each
 * kind, on a machine where that is the latest by a margin; and a law for random kernels: the time
 * of a reason is the time that it explains, a walk along reasons ends at a launch, and asking for
 * reasons changes no time.
 */
#include "random_kernel.h"

enum { MAX_RECORDS = 40000 };

/* ---- Records ----------------------------------------------------------------------------- */

typedef struct records {
    kb_op by_id[MAX_RECORDS]; /* an id of 0: there is none */
    size_t count;
} records;

static records all;

static void keep(void *self, const kb_op *op)
{
    records *r = self;
    assert_in_range(op->id, 1, MAX_RECORDS - 1);
    assert_int_equal(r->by_id[op->id].id, 0); /* each has its own */
    r->by_id[op->id] = *op;
    r->count++;
}

static void give_reasons(rig *r)
{
    memset(&all, 0, sizeof all);
    kb_oplog_watch(r->log, keep, &all);
    kb_oplog_give_ids(r->log);
}

static const kb_op *record_of(uint64_t id)
{
    assert_in_range(id, 1, MAX_RECORDS - 1);
    assert_int_equal(all.by_id[id].id, id);
    return &all.by_id[id];
}

/* Number n of that name at the unit of the PE, from 0 on: ids are given in the order of issues. */
static const kb_op *nth_at(uint32_t pe, kb_unit unit, const char *name, int n)
{
    for (uint64_t id = 1; id < MAX_RECORDS; id++) {
        const kb_op *op = &all.by_id[id];
        if (op->id && op->pe.pe == pe && op->unit == unit && strcmp(op->name, name) == 0 &&
            n-- == 0)
            return op;
    }
    fail_msg("no such operation: %s", name);
    return NULL;
}

static const kb_op *kernel_of(uint32_t pe)
{
    return nth_at(pe, KB_UNIT_CPU, "kernel", 0);
}

static const kb_op *issue_of(uint32_t pe, int n)
{
    return nth_at(pe, KB_UNIT_CPU, "issue", n);
}

static const kb_op *load_of(int n)
{
    return nth_at(0, KB_UNIT_DMA_READ, "load", n);
}

static const kb_op *store_of(int n)
{
    return nth_at(0, KB_UNIT_DMA_WRITE, "store", n);
}

static const kb_op *exp_of(uint32_t pe, int n)
{
    return nth_at(pe, KB_UNIT_MATH, "exp", n);
}

static void expect_reason(kb_reason is, kb_reason_kind kind, const kb_op *of)
{
    if (is.kind != kind || is.id != (of ? of->id : 0))
        print_message("%s of %d; expected %s of %d\n", kb_reason_name(is.kind), (int)is.id,
                      kb_reason_name(kind), of ? (int)of->id : 0);
    assert_int_equal(is.kind, kind);
    assert_int_equal(is.id, of ? of->id : 0);
}

/* ---- The law ------------------------------------------------------------------------------ */

static bool is_own_time(kb_reason_kind kind)
{
    return kind == KB_REASON_TRANSFER || kind == KB_REASON_TCM || kind == KB_REASON_WORK;
}

/* Whether the reason of a time is met by its record at that time. */
static bool holds(const kb_op *op, kb_reason by, kb_time time)
{
    const kb_op *of = record_of(by.id);
    switch (by.kind) {
    case KB_REASON_LAUNCH:
        return strcmp(of->name, "kernel") == 0 && of->pe.pe == op->pe.pe &&
               of->start + 20 * KB_NS == time;
    case KB_REASON_QUEUE:
        return of->start == time && of->unit == op->unit;
    case KB_REASON_ROOM:
        return (of->unit == KB_UNIT_SCHEDULER ? of->end : of->start) == time;
    case KB_REASON_UNIT:
        return of->end == time || (of->unit == KB_UNIT_GEMM && of->start <= time && time < of->end);
    case KB_REASON_ISSUE:
        return of->unit == KB_UNIT_CPU && of->end == time && of->pe.pe == op->pe.pe;
    case KB_REASON_MESSAGE:
        return strcmp(of->name, "send") == 0 && of->end == time;
    case KB_REASON_CREDIT: /* a sender that polls sees it later */
        return strcmp(of->name, "credit") == 0 &&
               (strcmp(op->name, "poll") == 0 ? of->end <= time : of->end == time);
    case KB_REASON_ORDER:
    case KB_REASON_SPACE:
    case KB_REASON_INPUT:
        return of->end == time && of->pe.pe == op->pe.pe;
    default:
        return false;
    }
}

static void expect_reason_to_hold(const kb_op *op, kb_reason by, kb_time time, const char *which)
{
    if (by.kind == KB_REASON_NONE || by.id == 0 || !holds(op, by, time)) {
        const kb_op *of = &all.by_id[by.id];
        print_message("%s %d on pe%d, %lld to %lld: %s by %s of %s %d, %lld to %lld\n", op->name,
                      (int)op->id, (int)op->pe.pe, (long long)op->start, (long long)op->end, which,
                      kb_reason_name(by.kind), of->name, (int)by.id, (long long)of->start,
                      (long long)of->end);
        fail();
    }
}

static size_t seen[KB_REASON_KINDS]; /* in random kernels */

static void expect_law(const kb_op *op)
{
    seen[op->begun_by.kind]++;
    seen[op->ended_by.kind]++;
    bool is_launched = strcmp(op->name, "kernel") == 0 && op->begun_by.kind == KB_REASON_LAUNCH;
    if (is_launched)
        assert_int_equal(op->begun_by.id, 0);
    else
        expect_reason_to_hold(op, op->begun_by, op->start, "begun");
    if (!is_own_time(op->ended_by.kind))
        expect_reason_to_hold(op, op->ended_by, op->end, "ended");
    else if (op->ended_by.kind == KB_REASON_TCM && op->ended_by.id != 0)
        assert_true(record_of(op->ended_by.id)->start <= op->start);
    else
        assert_int_equal(op->ended_by.id, 0);
}

/*
 * From the end of the record to a launch. At an end that another record determined the walk goes on
 * there; else the time since its begin is the record's own, and the walk goes on at what determined
 * the begin. It never goes forward in time, and in no circle.
 */
static void walk(const kb_op *op)
{
    kb_time time = op->end;
    for (size_t steps = 0; steps <= 2 * all.count; steps++) {
        bool goes_on_at_end = time == op->end && !is_own_time(op->ended_by.kind);
        kb_reason by = goes_on_at_end ? op->ended_by : op->begun_by;
        if (!goes_on_at_end)
            time = op->start;
        if (by.kind == KB_REASON_LAUNCH)
            return;
        op = record_of(by.id);
        time = op->end < time ? op->end : time; /* the pe_cpu's own time may be in between */
        assert_true(time >= op->start);
    }
    fail_msg("reasons lead in a circle");
}

static void expect_laws(void)
{
    for (uint64_t id = 1; id < MAX_RECORDS; id++)
        if (all.by_id[id].id)
            expect_law(&all.by_id[id]);
    for (uint64_t id = 1; id < MAX_RECORDS; id++)
        if (all.by_id[id].id)
            walk(&all.by_id[id]);
}

/* ---- One constraint each ------------------------------------------------------------------ */

/* Runs it on the PEs of a machine, and checks the law. */
static void record_on(rig *r, uint32_t pes, const kb_kernel *kernel)
{
    ending ends[MAX_PES];
    give_reasons(r);
    expect_ok(run_on(r, pes, kernel, (const tl_arg[]){MEMORY}, ends));
    for (uint32_t i = 0; i < pes; i++)
        expect_ok(ends[i].err);
    kb_oplog_flush(r->log);
    rig_fini(r);
    expect_laws();
}

static void record_alone(const char *machine, const kb_kernel *kernel)
{
    rig r = rig_make(one_cube(machine), true);
    record_on(&r, 1, kernel);
}

static void record_pair(ipcq_settings settings, const kb_kernel *kernel)
{
    rig r = ring_with(2, &settings, (rig_options){.timing_only = true});
    record_on(&r, 2, kernel);
}

static tl_tensor load_some(tl_context *tl, tl_ptr at)
{
    return tl_load(at, tl_shape(64, 64), TL_F16);
}

KB_KERNEL(chain, tl_ptr memory)
{
    ignore(tl_exp(tl_exp(load_some(tl, memory))));
}

static void a_command_waits_for_its_input(void **state)
{
    (void)state;
    record_alone(NULL, &chain);
    expect_reason(kernel_of(0)->begun_by, KB_REASON_LAUNCH, NULL);
    expect_reason(issue_of(0, 0)->begun_by, KB_REASON_LAUNCH, kernel_of(0));
    expect_reason(issue_of(0, 0)->ended_by, KB_REASON_WORK, NULL);
    expect_reason(issue_of(0, 1)->begun_by, KB_REASON_ISSUE, issue_of(0, 0));
    expect_reason(load_of(0)->begun_by, KB_REASON_ISSUE, issue_of(0, 0));
    expect_reason(load_of(0)->ended_by, KB_REASON_TRANSFER, NULL);
    expect_reason(exp_of(0, 0)->begun_by, KB_REASON_INPUT, load_of(0));
    expect_reason(exp_of(0, 1)->begun_by, KB_REASON_INPUT, exp_of(0, 0));
    expect_reason(exp_of(0, 1)->ended_by, KB_REASON_WORK, NULL);
    expect_reason(kernel_of(0)->ended_by, KB_REASON_INPUT, exp_of(0, 1));
}

KB_KERNEL(twice, tl_ptr memory)
{
    tl_tensor x = load_some(tl, memory);
    tl_wait(x);
    ignore(tl_exp(x));
    ignore(tl_exp(x));
}

static void a_command_waits_for_its_engine(void **state)
{
    (void)state;
    record_alone("{ pe_cpu: { issue_ns: 0 } }", &twice);
    expect_reason(load_of(0)->begun_by, KB_REASON_LAUNCH, kernel_of(0));
    expect_reason(exp_of(0, 0)->begun_by, KB_REASON_INPUT, load_of(0));
    expect_reason(exp_of(0, 1)->begun_by, KB_REASON_UNIT, exp_of(0, 0));
}

/* 4,096 elements of exp take 256 cycles of 64 lanes and more; an issue takes 2,000 ns here. */
static void a_command_waits_for_its_issue(void **state)
{
    (void)state;
    record_alone("{ pe_cpu: { issue_ns: 2000 } }", &twice);
    expect_reason(issue_of(0, 2)->begun_by, KB_REASON_ISSUE, issue_of(0, 1));
    for (int i = 0; i < 2; i++)
        expect_reason(exp_of(0, i)->begun_by, KB_REASON_ISSUE, issue_of(0, 1 + i));
}

KB_KERNEL(crowd, tl_ptr memory)
{
    tl_tensor x = load_some(tl, memory);
    tl_wait(x);
    for (int i = 0; i < 3; i++)
        ignore(tl_exp(x));
    ignore(load_some(tl, memory));
}

/* The third operation can be issued when the second leaves the queue; the load is issued then. */
static void the_program_waits_for_room(void **state)
{
    (void)state;
    record_alone("{ pe_cpu: { queue_depth: 1 } }", &crowd);
    expect_reason(issue_of(0, 1)->begun_by, KB_REASON_INPUT, load_of(0));
    expect_reason(exp_of(0, 2)->begun_by, KB_REASON_UNIT, exp_of(0, 1));
    expect_reason(issue_of(0, 4)->begun_by, KB_REASON_ROOM, exp_of(0, 1));
    assert_int_equal(issue_of(0, 4)->start, exp_of(0, 1)->start);
}

KB_KERNEL(same_bytes, tl_ptr memory)
{
    tl_tensor x = load_some(tl, memory);
    tl_wait(x);
    (void)tl_store(memory, x);
    ignore(load_some(tl, memory));
    ignore(load_some(tl, memory + (1 << 20)));
}

/* The last load waits behind the one before it, and not for the store: they begin together. */
static void a_command_waits_for_the_same_bytes(void **state)
{
    (void)state;
    record_alone(NULL, &same_bytes);
    expect_reason(load_of(1)->begun_by, KB_REASON_ORDER, store_of(0));
    expect_reason(load_of(2)->begun_by, KB_REASON_QUEUE, load_of(1));
}

KB_KERNEL(two_loads, tl_ptr memory)
{
    ignore(load_some(tl, memory));
    ignore(load_some(tl, memory + (1 << 20)));
}

static void a_command_waits_for_a_channel(void **state)
{
    (void)state;
    record_alone("{ pe_dma: { channels: 1 } }", &two_loads);
    expect_reason(load_of(1)->begun_by, KB_REASON_UNIT, load_of(0));
}

KB_KERNEL(large_values, tl_ptr memory)
{
    tl_tensor x = tl_load(memory, tl_shape(512, 512), TL_F16);
    (void)tl_store(memory + (8 << 20), x);
    tl_free(x);
    ignore(tl_load(memory, tl_shape(768, 512), TL_F16));
}

/* 1 MiB of TCM has no room for both values: 512 and 768 KiB. */
static void the_program_waits_for_space(void **state)
{
    (void)state;
    record_alone("{ pe_tcm: { capacity_mib: 2, reserved_mib: 1 } }", &large_values);
    expect_reason(issue_of(0, 2)->begun_by, KB_REASON_SPACE, store_of(0));
}

KB_KERNEL(stream, tl_ptr memory)
{
    tl_tensor x = load_some(tl, memory);
    tl_wait(x);
    ignore(tl_dot(x, x));
    ignore(tl_exp(x));
}

/* 8 KiB take 8 us at 1 GB/s; the product reads first, so the vector engine comes behind it. */
static void an_engine_waits_for_the_tcm(void **state)
{
    (void)state;
    record_alone("{ pe_tcm: { bw_gbs: 1 } }", &stream);
    const kb_op *dot = nth_at(0, KB_UNIT_GEMM, "dot", 0);
    expect_reason(dot->ended_by, KB_REASON_TCM, NULL);
    expect_reason(exp_of(0, 0)->ended_by, KB_REASON_TCM, dot);
}

KB_KERNEL(multiply, tl_ptr memory)
{
    tl_dims shape = tl_shape(256, 256);
    tl_wait(tl_composite(TL_GEMM, tl_ref(memory, shape, TL_F16),
                         tl_ref(memory + (1 << 20), shape, TL_F16),
                         tl_ref(memory + (2 << 20), shape, TL_F16)));
    ignore(load_some(tl, memory));
}

/* Its first load begins with it, the array when that is there, and it ends with its last store. */
static void a_composite_operation_has_reasons_inside(void **state)
{
    (void)state;
    record_alone(NULL, &multiply);
    const kb_op *product = nth_at(0, KB_UNIT_SCHEDULER, "gemm", 0);
    expect_reason(product->begun_by, KB_REASON_ISSUE, issue_of(0, 0));
    expect_reason(load_of(0)->begun_by, KB_REASON_ISSUE, issue_of(0, 0));
    expect_reason(nth_at(0, KB_UNIT_GEMM, "gemm", 0)->begun_by, KB_REASON_INPUT, load_of(0));
    assert_int_equal(product->ended_by.kind, KB_REASON_INPUT);
    assert_string_equal(record_of(product->ended_by.id)->name, "store");
    expect_reason(issue_of(0, 1)->begun_by, KB_REASON_INPUT, product);
}

/* ---- Messages ---- */

static const ipcq_settings one_slot = {
    .buffer = KB_TCM, .n_slots = 1, .slot_bytes = 8192, .credit_bytes = 16};

KB_KERNEL(late_receiver, tl_ptr memory)
{
    tl_tensor x = load_some(tl, memory);
    tl_wait(x);
    for (int i = 0; i < 20 && tl_program_id(0) == 1; i++)
        tl_wait(tl_exp(x));
    for (int i = 0; i < 2; i++)
        if (tl_program_id(0) == 0)
            (void)tl_send("E", x);
        else
            ignore(tl_recv("W", tl_shape(64, 64), TL_F16));
}

static void a_sender_waits_for_a_credit(void **state)
{
    (void)state;
    record_pair(one_slot, &late_receiver);
    const kb_op *credit = nth_at(1, KB_UNIT_IPCQ, "credit", 0);
    const kb_op *receive = nth_at(1, KB_UNIT_IPCQ, "recv", 0);
    expect_reason(issue_of(0, 2)->begun_by, KB_REASON_CREDIT, credit);
    expect_reason(nth_at(0, KB_UNIT_IPCQ, "await credit", 0)->ended_by, KB_REASON_CREDIT, credit);
    expect_reason(receive->begun_by, KB_REASON_ISSUE, issue_of(1, 21));
    expect_reason(receive->ended_by, KB_REASON_WORK, NULL); /* it was there */
    expect_reason(credit->begun_by, KB_REASON_ISSUE, issue_of(1, 21));
    expect_reason(credit->ended_by, KB_REASON_TRANSFER, NULL);
}

static void a_sender_may_poll(void **state)
{
    (void)state;
    ipcq_settings polls = one_slot;
    polls.polls = true;
    record_pair(polls, &late_receiver);
    const kb_op *poll = nth_at(0, KB_UNIT_CPU, "poll", 0);
    expect_reason(issue_of(0, 2)->begun_by, KB_REASON_ISSUE, poll);
    expect_reason(poll->ended_by, KB_REASON_CREDIT, nth_at(1, KB_UNIT_IPCQ, "credit", 0));
}

KB_KERNEL(late_sender, tl_ptr memory)
{
    if (tl_program_id(0) == 1) {
        tl_tensor early = tl_recv_async("W", tl_shape(64, 64), TL_F16);
        ignore(tl_exp(early));
        ignore(tl_exp(tl_recv("W", tl_shape(64, 64), TL_F16)));
        return;
    }
    tl_tensor x = load_some(tl, memory);
    (void)tl_send("E", x);
    (void)tl_send("E", x);
}

static void a_receiver_waits_for_a_message(void **state)
{
    (void)state;
    record_pair(one_slot, &late_sender);
    const kb_op *first = nth_at(0, KB_UNIT_DMA_WRITE, "send", 0);
    const kb_op *second = nth_at(0, KB_UNIT_DMA_WRITE, "send", 1);
    expect_reason(first->begun_by, KB_REASON_INPUT, load_of(0));
    expect_reason(nth_at(1, KB_UNIT_IPCQ, "recv", 0)->ended_by, KB_REASON_MESSAGE, first);
    expect_reason(exp_of(1, 0)->begun_by, KB_REASON_INPUT, nth_at(1, KB_UNIT_IPCQ, "recv", 0));
    expect_reason(nth_at(1, KB_UNIT_IPCQ, "recv", 1)->ended_by, KB_REASON_MESSAGE, second);
    expect_reason(issue_of(1, 3)->begun_by, KB_REASON_MESSAGE, second);
}

/* Slots outside of the TCM are read first. */
static void a_receiver_reads_slots(void **state)
{
    (void)state;
    ipcq_settings in_memory = one_slot;
    in_memory.buffer = KB_HBM;
    record_pair(in_memory, &late_sender);
    const kb_op *read = nth_at(1, KB_UNIT_DMA_READ, "recv", 0);
    expect_reason(read->begun_by, KB_REASON_MESSAGE, nth_at(0, KB_UNIT_DMA_WRITE, "send", 0));
    expect_reason(nth_at(1, KB_UNIT_IPCQ, "recv", 0)->ended_by, KB_REASON_INPUT, read);
    expect_reason(nth_at(1, KB_UNIT_IPCQ, "credit", 0)->begun_by, KB_REASON_INPUT, read);
}

/* ---- Kernels ---- */

static void a_kernel_waits_for_the_one_before(void **state)
{
    (void)state;
    rig r = rig_make(one_cube(NULL), true);
    const tl_arg args[] = {MEMORY}; /* until the kernels have run */
    ending ends[2];
    give_reasons(&r);
    for (int i = 0; i < 2; i++)
        expect_ok(start_on(&r, pe0, &chain, args, &ends[i]));
    expect_ok(kb_sim_run(r.sim, KB_FOREVER));
    rig_fini(&r);
    expect_laws();
    const kb_op *second = nth_at(0, KB_UNIT_CPU, "kernel", 1);
    expect_reason(second->begun_by, KB_REASON_UNIT, kernel_of(0));
    expect_reason(issue_of(0, 3)->begun_by, KB_REASON_LAUNCH, second);
}

static void expect_none(void *self, const kb_op *op)
{
    size_t *count = self;
    assert_int_equal(op->id, 0);
    expect_reason(op->begun_by, KB_REASON_NONE, NULL);
    expect_reason(op->ended_by, KB_REASON_NONE, NULL);
    ++*count;
}

static void there_are_none_unless_asked_for(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 20; seed++) {
        rig r;
        size_t count = 0;
        prepare(seed, true, (rig_options){.timing_only = true}, &r);
        kb_oplog_watch(r.log, expect_none, &count);
        ending ends[PES];
        expect_ok(run_on(&r, PES, &anything, (const tl_arg[]){MEMORY}, ends));
        assert_true(count > STEPS);
        rig_fini(&r);
    }
}

/* ---- Random kernels ------------------------------------------------------------------------ */

typedef struct times {
    kb_time ends[PES], notes[NOTES];
} times;

static void run_random(uint64_t seed, bool timing_only, bool reasons, times *t)
{
    rig r;
    rig_options options = {.timing_only = timing_only, .window = 1}; /* test_windows.c: as any */
    prepare(seed, true, options, &r);
    if (reasons)
        give_reasons(&r);
    ending ends[PES];
    expect_ok(run_on(&r, PES, &anything, (const tl_arg[]){MEMORY}, ends));
    for (int i = 0; i < PES; i++) {
        expect_ok(ends[i].err);
        t->ends[i] = ends[i].outcome.end;
    }
    memcpy(t->notes, notes, sizeof notes);
    kb_oplog_flush(r.log);
    rig_fini(&r);
}

static void reasons_of_random_kernels_hold(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 150; seed++) {
        static times with, without;
        run_random(seed, seed % 8 != 0, true, &with);
        assert_true(all.count > STEPS);
        expect_laws();
        run_random(seed, true, false, &without);
        assert_memory_equal(&with, &without, sizeof with);
    }
    for (int kind = KB_REASON_NONE + 1; kind < KB_REASON_KINDS; kind++) {
        if (seen[kind] == 0)
            print_message("%s was never a reason\n", kb_reason_name((kb_reason_kind)kind));
        assert_true(seen[kind] > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_command_waits_for_its_input),
        cmocka_unit_test(a_command_waits_for_its_engine),
        cmocka_unit_test(a_command_waits_for_its_issue),
        cmocka_unit_test(the_program_waits_for_room),
        cmocka_unit_test(a_command_waits_for_the_same_bytes),
        cmocka_unit_test(a_command_waits_for_a_channel),
        cmocka_unit_test(the_program_waits_for_space),
        cmocka_unit_test(an_engine_waits_for_the_tcm),
        cmocka_unit_test(a_composite_operation_has_reasons_inside),
        cmocka_unit_test(a_sender_waits_for_a_credit),
        cmocka_unit_test(a_sender_may_poll),
        cmocka_unit_test(a_receiver_waits_for_a_message),
        cmocka_unit_test(a_receiver_reads_slots),
        cmocka_unit_test(a_kernel_waits_for_the_one_before),
        cmocka_unit_test(there_are_none_unless_asked_for),
        cmocka_unit_test(reasons_of_random_kernels_hold),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
