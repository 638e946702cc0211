/*
 * test_pe2pe.c: the bench pe2pe: latencies worked out by hand, machines that lack some distances,
 * and that only distance and size matter.
 */
#include "report.h"

#include <math.h>

#include "support/failing_alloc.h"

enum { DISTANCES = 5 };
static const char *const distances[DISTANCES] = {"neighbour", "across_cube", "next_cube",
                                                 "far_cube", "other_sip"};
static const char *const methods[] = {"queue", "dma"};

static const double *find_latency(const report *r, const char *distance, const char *method,
                                  uint64_t bytes)
{
    char name[64];
    snprintf(name, sizeof name, "%s_%s_%llu", distance, method, (unsigned long long)bytes);
    return find_metric(r, name);
}

static double latency(const report *r, const char *distance, const char *method, uint64_t bytes)
{
    const double *value = find_latency(r, distance, method, bytes);
    if (!value)
        fail_msg("there is no %s by %s of %llu bytes", distance, method, (unsigned long long)bytes);
    return *value;
}

static void expect_latency(const report *r, const char *distance, const char *method,
                           uint64_t bytes, kb_time expected)
{
    double found = latency(r, distance, method, bytes);
    if (found < kb_to_ns(expected) || found > kb_to_ns(expected))
        fail_msg("%s by %s of %llu bytes takes %.6f ns, not %.6f", distance, method,
                 (unsigned long long)bytes, found, kb_to_ns(expected));
}

static void expect_same_metrics(const report *a, const report *b)
{
    assert_int_equal(a->count, b->count);
    for (size_t i = 0; i < a->count; i++) {
        assert_string_equal(a->metrics[i].name, b->metrics[i].name);
        if (fabs(a->metrics[i].value - b->metrics[i].value) > 0)
            fail_msg("%s: %.6f and %.6f", a->metrics[i].name, a->metrics[i].value,
                     b->metrics[i].value);
    }
}

/* ---- By hand ----------------------------------------------------------------------------- */

/*
 * The command takes 1 ns to issue; the bytes pass the DMA of the source (5), routers (1 each, with
 * wires of .025 in between) and the DMA of the target (5), and drain at 256 bytes a ns.
 *   neighbour, at the same router:          1 + 5 + 1 + 5 = 12, 128 bytes .5, 10240 bytes 40
 *   across the cube, NW to SE corner of a 4 x 4 mesh, 7 routers and 6 wires:
 *                                           1 + 5 + 7 + .15 + 5 = 18.15
 * The receiver of a message has it when its bytes are there, so a queue takes as long as a store.
 */
static void into_the_tcm(void **state)
{
    (void)state;
    report r;
    job j = {.spec = &bench_pe2pe, .with_data = true, .options = {.races = KB_RACES_FAIL}};
    run(&j, &r);
    assert_int_equal(r.verdict, RT_VERIFIED);
    assert_int_equal(r.count, DISTANCES * 2 * 8); /* 128 .. 8192 and 10240 */
    for (size_t i = 0; i < 2; i++) {
        expect_latency(&r, "neighbour", methods[i], 128, 12500 * KB_PS);
        expect_latency(&r, "neighbour", methods[i], 10240, 52 * KB_NS);
        expect_latency(&r, "across_cube", methods[i], 128, 18650 * KB_PS);
        expect_latency(&r, "across_cube", methods[i], 10240, 58150 * KB_PS);
    }
}

/*
 * To the HBM slice of a PE of the cube: 1 to issue, DMA 5, crossbar 2, HBM 76, .04 of wire; 128
 * bytes at 204.8 a ns take .625: 84.665. By queue the receiver then reads its slot: the request
 * passes the DMA and the crossbar, 16 bytes of it take .0625 and .04 of wire; the data HBM,
 * crossbar and DMA, .04 and .625: 7 + .1025 + 83 + .665 = 90.7675, in all 175.4325.
 */
static void into_the_hbm(void **state)
{
    (void)state;
    report r;
    job j = {.spec = &bench_pe2pe,
             .params = {"memory=hbm", "max_bytes=128"},
             .with_data = true,
             .options = {.races = KB_RACES_FAIL}};
    run(&j, &r);
    assert_int_equal(r.verdict, RT_VERIFIED);
    expect_latency(&r, "neighbour", "dma", 128, 84665 * KB_PS);
    expect_latency(&r, "neighbour", "queue", 128, 175432500);
}

/* ---- What must hold ---------------------------------------------------------------------- */

static void more_bytes_are_never_faster_and_nearer_is_never_slower(void **state)
{
    (void)state;
    static const char *const memories[] = {"memory=tcm", "memory=hbm"};
    static const uint64_t sizes[] = {128, 256, 512, 1024, 2048, 4096, 8192, 10240};
    enum { SIZES = sizeof sizes / sizeof sizes[0] };
    for (size_t m = 0; m < 2; m++) {
        report r;
        job j = {.spec = &bench_pe2pe, .params = {memories[m]}};
        run(&j, &r);
        for (size_t i = 0; i < 2; i++)
            for (size_t d = 0; d < DISTANCES; d++)
                for (size_t s = 0; s < SIZES; s++) {
                    double at = latency(&r, distances[d], methods[i], sizes[s]);
                    if (s > 0)
                        assert_true(at >= latency(&r, distances[d], methods[i], sizes[s - 1]));
                    if (d > 0)
                        assert_true(at >= latency(&r, distances[d - 1], methods[i], sizes[s]));
                }
    }
}

/* Data, tracing every step, messages before: none of these changes a latency. */
static void nothing_else_matters(void **state)
{
    (void)state;
    for (size_t i = 1; i < SMALL_MACHINES; i++) {
        report plain, other;
        job j = {.spec = &bench_pe2pe,
                 .machine = small_machines[i],
                 .params = {"max_bytes=3000", "factor=5", "warmup=1"}};
        run(&j, &plain);
        j.with_data = true;
        run(&j, &other);
        expect_same_metrics(&plain, &other);
        assert_int_equal(plain.ended, other.ended);
        j.options.no_elision = true;
        run(&j, &other);
        expect_same_metrics(&plain, &other);
        assert_int_equal(plain.ended, other.ended);
        j.params[2] = "warmup=4";
        run(&j, &other);
        expect_same_metrics(&plain, &other);
        assert_true(other.ended > plain.ended);
    }
}

/* ---- Machines ---------------------------------------------------------------------------- */

/* Sizes that do not divide, one byte among them, and one that takes all slots several times. */
static void expect_distances(const char *machine, const char *device, const char *const *expected,
                             const char *const *reasons)
{
    static const char *const memories[] = {"memory=tcm", "memory=hbm"};
    for (size_t m = 0; m < 2; m++) {
        report r;
        job j = {.spec = &bench_pe2pe,
                 .machine = machine,
                 .params = {"min_bytes=1", "max_bytes=70001", "factor=257", memories[m]},
                 .with_data = true,
                 .options = {.races = KB_RACES_FAIL, .device = device}};
        run(&j, &r);
        assert_int_equal(r.verdict, RT_VERIFIED);
        size_t there = 0;
        for (size_t d = 0; d < DISTANCES; d++) {
            bool wanted = false;
            for (size_t i = 0; expected[i]; i++)
                wanted = wanted || strcmp(expected[i], distances[d]) == 0;
            for (size_t i = 0; i < 2; i++)
                assert_int_equal(find_latency(&r, distances[d], methods[i], 70001) != NULL, wanted);
            there += wanted;
        }
        assert_int_equal(r.count, there * 2 * 4); /* 1, 257, 66049, 70001 */
        for (size_t i = 0; reasons[i]; i++)
            assert_non_null(strstr(r.text, reasons[i]));
        assert_true((strstr(r.text, "not measured") != NULL) == (there < DISTANCES));
    }
}

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

static void machines_of_several_shapes(void **state)
{
    (void)state;
    expect_distances(ODD_ONES, NULL,
                     LIST("neighbour", "across_cube", "next_cube", "far_cube", "other_sip"),
                     LIST("next cube    sip0.cube1.pe0", "far cube     sip0.cube2.pe0",
                          "other SIP    sip1.cube0.pe0"));
    expect_distances(
        THREE_SIPS, NULL, LIST("neighbour", "across_cube", "next_cube", "other_sip"),
        LIST("across cube  sip0.cube0.pe3", "far cube     not measured: a SIP has two cubes"));
    expect_distances(TALL, NULL, LIST("neighbour", "next_cube", "far_cube"),
                     LIST("neighbour    sip0.cube0.pe1", "far cube     sip0.cube5.pe0",
                          "across cube  not measured: all other PEs of the cube are at the same",
                          "other SIP    not measured: the run uses one SIP"));
    expect_distances(ODD_ONES, "sip:1", LIST("neighbour", "across_cube", "next_cube", "far_cube"),
                     LIST("next cube    sip1.cube1.pe0", "other SIP    not measured"));
    expect_distances("system: { sips: { count: 2 } }\n"
                     "sip: { cube_mesh: { w: 1, h: 1 } }\n"
                     "cube: { noc: { k: 1 }, pe_layout: { pe_per_router: 1 } }\n",
                     NULL, LIST("other_sip"),
                     LIST("neighbour    not measured: a cube has one PE",
                          "next cube    not measured: a SIP has one cube"));
}

static void expect_input_error(const job *j, const char *message)
{
    report r;
    kb_error *err = try_run(j, &r);
    assert_int_equal(kb_error_code(err), KB_ERR_INPUT);
    assert_non_null(strstr(kb_error_message(err), message));
    kb_error_free(err);
}

static void what_cannot_be_measured_is_an_error(void **state)
{
    (void)state;
    expect_input_error(&(job){.spec = &bench_pe2pe, .machine = ONE_PE}, "the run uses one PE");
    expect_input_error(&(job){.spec = &bench_pe2pe, .params = {"min_bytes=300", "max_bytes=200"}},
                       "min_bytes is 300, more than max_bytes, 200");
}

/* ---- The plot ---------------------------------------------------------------------------- */

/*
 * One size: one column. TALL has three distances; a queue takes as long as a store, so each has
 * the capital alone, the smallest latency at the bottom and the largest at the top.
 */
static void one_size_is_one_column(void **state)
{
    (void)state;
    report r;
    job j = {.spec = &bench_pe2pe, .machine = TALL, .params = {"min_bytes=64", "max_bytes=64"}};
    run(&j, &r);
    const char *far = strstr(r.text, " |F\n"), *next = strstr(r.text, " |C\n"),
               *near = strstr(r.text, " |N\n");
    assert_true(far && next && near && far < next && next < near);
    assert_null(strchr(near + 4, '|'));
    assert_null(strstr(r.text, "|n"));
}

/* ---- Memory of the host ------------------------------------------------------------------ */

/* Whichever allocation of the bench fails, it ends with that error or is right. */
static void whichever_allocation_fails(void **state)
{
    (void)state;
    const char *settings[] = {"min_bytes=8", "max_bytes=8", "warmup=0"};
    rt_bench_options options = {.settings = settings, .setting_count = 3, .verify = true};
    bool failed = true;
    for (long n = 1; failed; n++) {
        kb_context *ctx = open_context(TALL, (kb_context_options){.threads = 1});
        kb_bench *bench;
        expect_ok(rt_bench_create(&bench_pe2pe, &options, &bench));
        failing_alloc_arm(n, FAIL_ONCE);
        kb_error *err = rt_bench_run(bench, ctx);
        failed = failing_alloc_disarm();
        assert_true(!err || failed);
        if (err)
            assert_int_equal(kb_error_code(err), KB_ERR_HOST);
        else
            assert_int_equal(rt_bench_verdict(bench), RT_VERIFIED);
        kb_error_free(err);
        rt_bench_destroy(bench);
        kb_context_destroy(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(into_the_tcm),
        cmocka_unit_test(into_the_hbm),
        cmocka_unit_test(more_bytes_are_never_faster_and_nearer_is_never_slower),
        cmocka_unit_test(nothing_else_matters),
        cmocka_unit_test(machines_of_several_shapes),
        cmocka_unit_test(what_cannot_be_measured_is_an_error),
        cmocka_unit_test(one_size_is_one_column),
        cmocka_unit_test(whichever_allocation_fails),
    };
    return cmocka_run_group_tests_name("pe2pe", tests, NULL, NULL);
}
