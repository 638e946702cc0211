/*
 * test_run_stats.c: the summary of a run, from made-up numbers. bounds.sh has runs
 * that are bound by something known.
 */
#include "support/expect.h"

#include "base/base.h"
#include "cli/run.h"

/* Causes of a run of 1000 fs, in which kernels run on 2 PEs while none of RUN_LAUNCHES and so on is
 * true. */
static run_stats figures_of(const topo_machine *machine, const kb_time causes[RUN_CAUSES])
{
    run_stats f = {
        .machine = machine,
        .pes = 2,
        .roofline = {.peak_tflops = 8, .tflops = 6, .gbs = 10, .peak_gbs = 20, .slots = 1},
    };
    f.timeline.pes = 2;
    for (int c = 0; c < RUN_CAUSES; c++) {
        f.causes[c] = causes[c];
        f.sim += causes[c];
        f.timeline.kernels += c < KB_CAUSES ? causes[c] : 0;
    }
    assert_int_equal(f.sim, 1000);
    return f;
}

static topo_machine *default_machine(void)
{
    topo_machine *machine;
    expect_ok(topo_machine_load(&(topo_source){0}, &machine));
    return machine;
}

static void expect_verdict(const run_stats *f, const char *expected)
{
    kb_text text = KB_TEXT_INIT;
    run_verdict(f, &text);
    assert_string_equal(kb_text_peek(&text), expected);
    kb_text_fini(&text);
}

static void every_cause_has_a_group_a_label_and_a_key(void **state)
{
    (void)state;
    assert_int_equal(run_group_of(KB_CAUSE_MATRIX), RUN_COMPUTE);
    assert_int_equal(run_group_of(KB_CAUSE_TCM), RUN_MEMORY);
    assert_int_equal(run_group_of(KB_CAUSE_LAUNCH), RUN_COMMUNICATION);
    assert_int_equal(run_group_of(RUN_REQUESTS), RUN_COMMUNICATION);
    assert_int_equal(run_group_of(KB_CAUSE_IMBALANCE), RUN_IDLE);
    assert_int_equal(run_group_of(RUN_NOTHING), RUN_IDLE);
    for (int a = 0; a < RUN_CAUSES; a++)
        for (int b = 0; b < a; b++) {
            assert_string_not_equal(run_cause_label(a), run_cause_label(b));
            assert_string_not_equal(run_cause_key(a), run_cause_key(b));
        }
}

static void nothing_takes_no_time(void **state)
{
    (void)state;
    run_stats f = {0};
    expect_verdict(&f, "Nothing took any time.");
}

static void engines_are_named(void **state)
{
    (void)state;
    topo_machine *machine = default_machine();
    run_stats f = figures_of(machine, (const kb_time[RUN_CAUSES]){
                                          [KB_CAUSE_MATRIX] = 780, [KB_CAUSE_LOCAL_MEMORY] = 220});
    f.roofline.occupied = 0.78;
    expect_verdict(&f, "Compute bound: the matrix engines are busy 78.0 % of the time and reach "
                       "75.0 % of peak while kernels run. The largest other part: stalled on local "
                       "memory, 22.0 % of the time.");
    f.roofline.occupied = 1;
    f.roofline.slots = 0.75;
    expect_verdict(&f, "Compute bound: the matrix engines are busy 78.0 % of the time and reach "
                       "75.0 % of peak while kernels run, as 25.0 % of the array slots have no "
                       "work: operands do not fill the 64 x 64 array. The largest other part: "
                       "stalled on local memory, 22.0 % of the time.");
    f = figures_of(machine, (const kb_time[RUN_CAUSES]){
                                [KB_CAUSE_VECTOR] = 600, [KB_CAUSE_LOCAL_MEMORY] = 400});
    f.roofline.vector_busy = 0.6;
    expect_verdict(&f, "Compute bound: the vector engines are busy 60.0 % of the time, and 60.0 % "
                       "while kernels run. The largest other part: stalled on local memory, 40.0 % "
                       "of the time.");
    f.roofline.gbs = 14; /* busier than the engines, but there is more to get */
    expect_verdict(&f, "Compute bound: the vector engines are busy 60.0 % of the time, and 60.0 % "
                       "while kernels run. The largest other part: stalled on local memory, 40.0 % "
                       "of the time.");
    f.roofline.gbs = 19;
    expect_verdict(&f, "Memory bound: HBM delivers 19.00 of 20.00 GB/s, 95.0 % of peak, while "
                       "kernels run: bandwidth bound. The vector engines keep up with it, busy "
                       "60.0 % of the time. The largest other part: stalled on local memory, "
                       "40.0 % of the time.");
    topo_machine_destroy(machine);
}

/* Engines that work for less than half of the time do not bound the run. */
static void idle_engines_bound_nothing(void **state)
{
    (void)state;
    topo_machine *machine = default_machine();
    run_stats f = figures_of(
        machine,
        (const kb_time[RUN_CAUSES]){
            [KB_CAUSE_MATRIX] = 450, [KB_CAUSE_OTHER_CUBES] = 300, [KB_CAUSE_IMBALANCE] = 250});
    expect_verdict(&f, "Communication bound: waiting for other cubes 30.0 % of the time.");
    f = figures_of(machine, (const kb_time[RUN_CAUSES]){
                                [KB_CAUSE_VECTOR] = 499, [KB_CAUSE_LOCAL_MEMORY] = 501});
    kb_text verdict = KB_TEXT_INIT;
    run_verdict(&f, &verdict);
    assert_non_null(strstr(kb_text_peek(&verdict), "Memory bound: stalled on local memory 50.1 %"));
    kb_text_fini(&verdict);
    topo_machine_destroy(machine);
}

/* Of two PEs' 1000 each, 960 are drains that a product waits for: 48 %. */
static void dependent_products_are_named(void **state)
{
    (void)state;
    topo_machine *machine = default_machine();
    run_stats f = figures_of(machine, (const kb_time[RUN_CAUSES]){
                                          [KB_CAUSE_MATRIX] = 470, [KB_CAUSE_MATRIX_DRAIN] = 530});
    f.timeline.needed_drain = 960;
    expect_verdict(&f, "Compute bound: 53.0 % of the time the matrix engines only drain their "
                       "pipelines: dependent products, each waits for the result of the one "
                       "before; interleave independent chains (compute in all: 100.0 %).");
    f.timeline.needed_drain = 100;
    expect_verdict(&f, "Compute bound: 53.0 % of the time the matrix engines only drain their "
                       "pipelines: nothing else is under way until results are out (compute in "
                       "all: 100.0 %).");
    f = figures_of(machine, (const kb_time[RUN_CAUSES]){
                                [KB_CAUSE_LOCAL_MEMORY] = 600, [KB_CAUSE_MATRIX_DRAIN] = 400});
    f.timeline.needed_drain = 800;
    expect_verdict(&f, "Memory bound: stalled on local memory 60.0 % of the time; HBM delivers "
                       "10.00 of 20.00 GB/s, 50.0 % of peak, while kernels run: bandwidth bound "
                       "while it lasts, but not overlapped with computing. 40.0 % of the time the "
                       "matrix engines only drain their pipelines: dependent products, each waits "
                       "for the result of the one before; interleave independent chains.");
    topo_machine_destroy(machine);
}

static void memory_is_bound_by_bandwidth_or_latency(void **state)
{
    (void)state;
    run_stats f = figures_of(NULL, (const kb_time[RUN_CAUSES]){[KB_CAUSE_LOCAL_MEMORY] = 1000});
    f.roofline.gbs = 19;
    expect_verdict(&f, "Memory bound: stalled on local memory 100.0 % of the time; HBM delivers "
                       "19.00 of 20.00 GB/s, 95.0 % of peak, while kernels run: bandwidth bound.");
    f.roofline.gbs = 2;
    expect_verdict(&f, "Memory bound: stalled on local memory 100.0 % of the time; HBM delivers "
                       "2.00 of 20.00 GB/s, 10.0 % of peak, while kernels run: latency bound, too "
                       "few bytes are outstanding at a time.");
}

/* Inside kernels communication counts, too; what is outside is told of first. */
static void what_is_outside_kernels_does_not_hide_what_is_inside(void **state)
{
    (void)state;
    run_stats f = figures_of(
        NULL, (const kb_time[RUN_CAUSES]){
                  [RUN_LAUNCHES] = 600, [KB_CAUSE_VECTOR] = 100, [KB_CAUSE_OTHER_CUBES] = 300});
    expect_verdict(&f, "Launch bound: 60.0 % of the time launches are under way between the host "
                       "and PEs, and no kernel runs (communication in all: 90.0 %). Inside kernels "
                       "the largest part is: waiting for other cubes, 75.0 % of their time.");
    f = figures_of(NULL,
                   (const kb_time[RUN_CAUSES]){[RUN_LAUNCHES] = 900, [KB_CAUSE_VECTOR] = 100});
    expect_verdict(&f, "Launch bound: 90.0 % of the time launches are under way between the host "
                       "and PEs, and no kernel runs.");
    f = figures_of(NULL, (const kb_time[RUN_CAUSES]){[RUN_REQUESTS] = 900, [RUN_NOTHING] = 100});
    expect_verdict(&f,
                   "Host bound: 90.0 % of the time copies, mappings or queue set-up of the host "
                   "are under way, and no kernel runs.");
    f = figures_of(NULL, (const kb_time[RUN_CAUSES]){[RUN_NOTHING] = 1000});
    expect_verdict(&f, "Idle: 100.0 % of the time nothing is under way.");
}

/* PE 11 of the default machine is in cube 1. */
static void stragglers_are_named(void **state)
{
    (void)state;
    topo_machine *machine = default_machine();
    run_stats f = figures_of(
        machine, (const kb_time[RUN_CAUSES]){[KB_CAUSE_IMBALANCE] = 850, [KB_CAUSE_VECTOR] = 150});
    f.timeline.longest_pe = 11;
    f.timeline.longest = 3 * KB_NS;
    f.timeline.mean = KB_NS;
    expect_verdict(&f, "Load imbalance: 85.0 % of the time PEs have no kernel while others run "
                       "one; kernels take 3.000 ns on sip0.cube1.pe3, 1.000 ns on average.");
    f = figures_of(machine,
                   (const kb_time[RUN_CAUSES]){[KB_CAUSE_ISSUE] = 800, [KB_CAUSE_VECTOR] = 200});
    expect_verdict(&f, "Issue bound: 80.0 % of the time the pe_cpus issue commands or start "
                       "kernels, and nothing is outstanding; fewer and larger commands help.");
    topo_machine_destroy(machine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cause_has_a_group_a_label_and_a_key),
        cmocka_unit_test(nothing_takes_no_time),
        cmocka_unit_test(engines_are_named),
        cmocka_unit_test(idle_engines_bound_nothing),
        cmocka_unit_test(dependent_products_are_named),
        cmocka_unit_test(memory_is_bound_by_bandwidth_or_latency),
        cmocka_unit_test(what_is_outside_kernels_does_not_hide_what_is_inside),
        cmocka_unit_test(stragglers_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
