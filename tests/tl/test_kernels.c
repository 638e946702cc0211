/*
 * test_kernels.c: kernels on PEs: when they begin and end, in which order, and what the log is
 * told. Figures are those of the default machine, in ns: 20 until a kernel begins, 1 to issue a
 * command; 90.1425 + bytes / 204.8 to read the own slice, 83.04 + bytes / 204.8 to write it; 4 +
 * elements / 64 for a sum.
 */
#include "tl_rig.h"

KB_KERNEL(nothing, int n)
{
    (void)n;
}

KB_KERNEL(scale, tl_ptr x, int n, float factor)
{
    tl_tensor v = tl_load(x, tl_shape(n), TL_F16);
    tl_store(x, tl_mul(v, factor));
}

static void a_kernel_of_nothing_takes_the_overhead(void **state)
{
    (void)state;
    rig r = rig_default();
    expect_ok(kb_sim_run(r.sim, 5 * KB_NS));
    ending e = run(&r, nothing, 0);
    expect_ok(e.err);
    assert_int_equal(e.outcome.start, 5 * KB_NS);
    assert_int_equal(e.outcome.end, 25 * KB_NS);
    assert_int_equal(e.outcome.busy[KB_UNIT_CPU], 0);
    assert_int_equal(e.outcome.causes[KB_CAUSE_ISSUE], 20 * KB_NS);
    rig_fini(&r);
}

/*
 * 2048 numbers of f16. The load is issued after 20 + 1 and takes 90.1425 + 20, until 131.1425; the
 * product takes 2048 / 64 + 4 = 36, until 167.1425; the store 83.04 + 20, until 270.1825.
 */
static void load_multiply_store(void **state)
{
    (void)state;
    rig r = rig_default();
    put_sequence(&r, 0, KB_F16, 2048);
    ending e = run(&r, scale, MEMORY, 2048, 0.5L);
    assert_int_equal(time_of_ending(e), 270182500);
    assert_int_equal(e.outcome.busy[KB_UNIT_CPU], 3 * KB_NS);
    assert_int_equal(e.outcome.busy[KB_UNIT_DMA_READ], 110142500);
    assert_int_equal(e.outcome.busy[KB_UNIT_MATH], 36 * KB_NS);
    assert_int_equal(e.outcome.busy[KB_UNIT_DMA_WRITE], 103040000);
    assert_int_equal(e.outcome.busy[KB_UNIT_GEMM], 0);
    assert_int_equal(e.outcome.causes[KB_CAUSE_VECTOR], 36 * KB_NS);
    assert_int_equal(e.outcome.causes[KB_CAUSE_LOCAL_MEMORY], 213182500);
    assert_int_equal(e.outcome.causes[KB_CAUSE_ISSUE], 21 * KB_NS);
    expect_numbers(&r, 0, KB_F16, 0, 0.5, 1, 1.5, 2);
    assert_true(get_one(&r, 2047 * 2, KB_F16) == 1023.5);
    expect_tcm_free(&r);
    rig_fini(&r);
}

typedef struct record {
    kb_op ops[16];
    size_t count;
} record;

static void keep_op(void *self, const kb_op *op)
{
    record *log = self;
    assert_true(log->count < 16);
    log->ops[log->count++] = *op;
}

static void expect_op(const kb_op *op, kb_unit unit, const char *name, int line, kb_time start,
                      kb_time end)
{
    assert_int_equal(op->unit, unit);
    assert_string_equal(op->name, name);
    assert_string_equal(op->label, "test");
    assert_string_equal(strrchr(op->file, '/'), "/test_kernels.c");
    assert_int_equal(op->line, line);
    assert_int_equal(op->start, start);
    assert_int_equal(op->end, end);
    assert_int_equal(op->launch, 1);
}

/* In the order of ends. Values are numbered: 1 is loaded, 2 is the product. */
static void the_log_is_told_of_everything(void **state)
{
    (void)state;
    rig r = rig_default();
    record log = {.count = 0};
    kb_oplog_watch(r.log, keep_op, &log);
    (void)time_of(&r, scale, MEMORY, 2048, 0.5L);
    assert_int_equal(log.count, 7);
    int line = scale.line;
    for (int i = 0; i < 3; i++)
        expect_op(&log.ops[i], KB_UNIT_CPU, "issue", i == 0 ? line + 2 : line + 3, (20 + i) * KB_NS,
                  (21 + i) * KB_NS);
    expect_op(&log.ops[3], KB_UNIT_DMA_READ, "load", line + 2, 21 * KB_NS, 131142500);
    assert_int_equal(log.ops[3].bytes, 4096);
    assert_int_equal(log.ops[3].result, 1);
    expect_op(&log.ops[4], KB_UNIT_MATH, "mul", line + 3, 131142500, 167142500);
    assert_int_equal(log.ops[4].flops, 2048);
    assert_int_equal(log.ops[4].result, 2);
    assert_int_equal(log.ops[4].operands[0], 1);
    assert_int_equal(log.ops[4].operands[1], 0); /* a number */
    expect_op(&log.ops[5], KB_UNIT_DMA_WRITE, "store", line + 3, 167142500, 270182500);
    assert_int_equal(log.ops[5].operands[0], 2);
    assert_int_equal(log.ops[5].result, 0);
    expect_op(&log.ops[6], KB_UNIT_CPU, "kernel", line, 0, 270182500);
    assert_int_equal(kb_oplog_busy(r.log, 0, KB_UNIT_CPU), 270182500);
    rig_fini(&r);
}

KB_KERNEL(many_arguments, tl_ptr out, int8_t a, uint32_t b, int64_t c, double d, float e, bool f)
{
    double sum = a + (double)b + (double)c + d + (double)e + f;
    tl_store(out, tl_full(tl_shape(1), TL_F32, sum));
}

static void arguments_have_the_types_of_the_parameters(void **state)
{
    (void)state;
    rig r = rig_default();
    assert_int_equal(many_arguments.parameter_count, 7);
    assert_string_equal(many_arguments.name, "many_arguments");
    assert_string_equal(many_arguments.parameters,
                        "tl_ptr out, int8_t a, uint32_t b, int64_t c, double d, float e, bool f");
    (void)time_of(&r, many_arguments, MEMORY, -3, 3, 1 << 20, 0.25L, 0.5L, 1);
    expect_numbers(&r, 0, KB_F32, (1 << 20) + 1.75);
    rig_fini(&r);
}

KB_KERNEL(say_who, tl_ptr out)
{
    int64_t who = tl_program_id(1) * 1000 + tl_program_id(0) * 100 + tl_num_programs(0) * 10 +
                  tl_num_programs(1);
    tl_store(out, tl_full(tl_shape(1), TL_F32, (double)who));
}

static kb_sim *simulator;

KB_KERNEL(say_its_name, int n)
{
    kb_co *self = kb_sim_current(simulator);
    assert_string_equal(kb_co_name(self), "say_its_name on sip0.cube0.pe0");
    assert_string_equal(kb_co_get_line(self).file, __FILE__);
    int called_at = __LINE__ + 1;
    (void)tl_full(tl_shape(n), TL_F32, 0);
    assert_int_equal(kb_co_get_line(self).line, called_at);
}

/* So reports of deadlocks and crashes name it, and the line of its last call. */
static void a_kernel_has_a_name(void **state)
{
    (void)state;
    rig r = rig_default();
    simulator = r.sim;
    (void)time_of(&r, say_its_name, 0);
    rig_fini(&r);
}

static void a_kernel_knows_its_place(void **state)
{
    (void)state;
    rig r = rig_default();
    ending e[2];
    const tl_arg args[] = {MEMORY};
    expect_ok(start_on(&r, (kb_pe){0, 0, 3}, &say_who, args, &e[0]));
    expect_ok(start_on(&r, (kb_pe){0, 0, 5}, &say_who, args, &e[1]));
    expect_ok(kb_sim_run(r.sim, KB_FOREVER));
    for (uint32_t i = 0; i < 2; i++) {
        expect_ok(e[i].err);
        uint32_t pe = i == 0 ? 3 : 5;
        float got;
        expect_ok(data_settle(r.store));
        mem_memories_read(r.memories, &(kb_location){.memory = KB_HBM, .pe = {0, 0, pe}}, &got, 4);
        assert_true((double)got == pe * 100 + 81);
    }
    rig_fini(&r);
}

/* Each waits its turn: 20 for the overhead, three times. */
static void kernels_of_a_pe_run_one_after_the_other(void **state)
{
    (void)state;
    rig r = rig_default();
    ending e[3], other;
    const tl_arg args[] = {0};
    for (int i = 0; i < 3; i++)
        expect_ok(start_on(&r, pe0, &nothing, args, &e[i]));
    expect_ok(start_on(&r, (kb_pe){0, 0, 1}, &nothing, args, &other));
    expect_ok(kb_sim_run(r.sim, KB_FOREVER));
    for (int i = 0; i < 3; i++) {
        expect_ok(e[i].err);
        assert_int_equal(e[i].outcome.start, i * 20 * KB_NS);
        assert_int_equal(e[i].outcome.end, (i + 1) * 20 * KB_NS);
    }
    assert_int_equal(other.outcome.end, 20 * KB_NS);
    rig_fini(&r);
}

/* The second begins when the stores of the first are done, and sees what they wrote. */
static void a_kernel_sees_what_the_one_before_it_stored(void **state)
{
    (void)state;
    rig r = rig_default();
    put_sequence(&r, 0, KB_F16, 64);
    ending e[2];
    const tl_arg args[] = {MEMORY, 64, 2};
    expect_ok(start_on(&r, pe0, &scale, args, &e[0]));
    expect_ok(start_on(&r, pe0, &scale, args, &e[1]));
    expect_ok(kb_sim_run(r.sim, KB_FOREVER));
    expect_ok(e[0].err);
    expect_ok(e[1].err);
    assert_int_equal(e[1].outcome.start, e[0].outcome.end);
    assert_int_equal(e[1].outcome.end, 2 * e[0].outcome.end);
    expect_numbers(&r, 0, KB_F16, 0, 4, 8, 12);
    rig_fini(&r);
}

KB_KERNEL(store_and_fail, tl_ptr x)
{
    tl_store(x, tl_full(tl_shape(64), TL_F16, 3));
    (void)tl_program_id(2);
}

/*
 * The mistake is made after 22; what was issued before it ends all the same: the store is issued
 * then, begins at 21 + 5 = 26, and takes 83.04 + 0.625. And the next kernel runs.
 */
static void a_fault_ends_the_kernel_when_what_it_issued_is_done(void **state)
{
    (void)state;
    rig r = rig_default();
    ending e[2];
    const tl_arg args[] = {MEMORY};
    expect_ok(start_on(&r, pe0, &store_and_fail, args, &e[0]));
    expect_ok(start_on(&r, pe0, &nothing, args, &e[1]));
    expect_ok(kb_sim_run(r.sim, KB_FOREVER));
    char message[160];
    snprintf(message, sizeof message,
             "kernel 'store_and_fail' on sip0.cube0.pe0 at 22.000 ns, test_kernels.c:%d: "
             "tl_program_id: invalid axis 2: expected 0 (PEs of a cube) or 1 (cubes of a SIP)",
             store_and_fail.line + 3);
    expect_error(e[0].err, KB_ERR_FAULT, message);
    assert_int_equal(e[0].outcome.end, 109665000);
    expect_ok(e[1].err);
    assert_int_equal(e[1].outcome.end, 129665000);
    expect_numbers(&r, 0, KB_F16, 3, 3);
    expect_tcm_free(&r);
    rig_fini(&r);
}

/* At any moment: what is under way, what waits its turn and what has not begun yet all go. */
static void a_run_that_is_abandoned_leaves_nothing(void **state)
{
    (void)state;
    for (kb_time until = 0; until < 300 * KB_NS; until += 10 * KB_NS + 300) {
        rig r = rig_default();
        ending e[2];
        const tl_arg args[] = {MEMORY, 2048, 0.5L};
        expect_ok(start_on(&r, pe0, &scale, args, &e[0]));
        expect_ok(start_on(&r, pe0, &scale, args, &e[1]));
        expect_ok(kb_sim_run(r.sim, until));
        assert_int_equal(e[0].done, until > 270182500);
        rig_fini(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kernel_of_nothing_takes_the_overhead),
        cmocka_unit_test(load_multiply_store),
        cmocka_unit_test(the_log_is_told_of_everything),
        cmocka_unit_test(arguments_have_the_types_of_the_parameters),
        cmocka_unit_test(a_kernel_has_a_name),
        cmocka_unit_test(a_kernel_knows_its_place),
        cmocka_unit_test(kernels_of_a_pe_run_one_after_the_other),
        cmocka_unit_test(a_kernel_sees_what_the_one_before_it_stored),
        cmocka_unit_test(a_fault_ends_the_kernel_when_what_it_issued_is_done),
        cmocka_unit_test(a_run_that_is_abandoned_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
