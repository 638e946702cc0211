/*
 * test_traffic.c: who sends to whom and when, how latencies are counted, and what comes of it.
 */
#include "support/expect.h"
#include "support/seed.h"

#include "measure/arrivals.h"
#include "measure/latency.h"
#include "measure/pattern.h"
#include "measure/traffic.h"

static void expect_near(double found, double expected, double tolerance)
{
    if (found < expected - tolerance || found > expected + tolerance)
        fail_msg("expected %g, give or take %g, found %g", expected, tolerance, found);
}

/* A machine, with up to three settings. */
static topo_machine *load(const char *name, const char *a, const char *b, const char *c)
{
    const char *settings[3];
    size_t count = 0;
    for (size_t i = 0; i < 3; i++) {
        const char *setting = i == 0 ? a : i == 1 ? b : c;
        if (setting)
            settings[count++] = setting;
    }
    topo_machine *machine;
    expect_ok(topo_machine_load(
        &(topo_source){.path = name, .settings = settings, .setting_count = count}, &machine));
    return machine;
}

static topo_machine *mesh(const char *k)
{
    return load("mesh-reference", k, NULL, NULL);
}

/* ---- Patterns ---------------------------------------------------------------------------- */

static void expect_target(const topo_machine *machine, traffic_pattern which, traffic_level level,
                          uint32_t from, uint32_t to)
{
    pattern p;
    expect_ok(pattern_init(&p, machine, &(traffic_options){.pattern = which, .level = level}));
    assert_int_equal(p.targets[from], to);
    /* A pattern is a permutation, but for a hot spot: each PE is somebody's target once. */
    uint64_t sum = 0;
    for (uint32_t pe = 0; pe < p.count; pe++)
        sum += p.targets[pe];
    if (which != TRAFFIC_HOTSPOT)
        assert_int_equal(sum, (uint64_t)p.count * (p.count - 1) / 2);
    pattern_fini(&p);
}

static void patterns_of_a_mesh(void **state)
{
    (void)state;
    topo_machine *machine = mesh("cube.noc.k=4"); /* PE = 4 y + x */
    expect_target(machine, TRAFFIC_TRANSPOSE, TRAFFIC_CUBE, 1, 4);
    expect_target(machine, TRAFFIC_TRANSPOSE, TRAFFIC_CUBE, 14, 11);
    expect_target(machine, TRAFFIC_TRANSPOSE, TRAFFIC_CUBE, 5, 5);
    expect_target(machine, TRAFFIC_BITCOMP, TRAFFIC_CUBE, 1, 14);
    expect_target(machine, TRAFFIC_NEIGHBOR, TRAFFIC_CUBE, 0, 5);
    expect_target(machine, TRAFFIC_NEIGHBOR, TRAFFIC_CUBE, 7, 8);
    expect_target(machine, TRAFFIC_NEIGHBOR, TRAFFIC_CUBE, 15, 0);
    /* (1, 1) is as near to the middle as (2, 2), and comes first. */
    expect_target(machine, TRAFFIC_HOTSPOT, TRAFFIC_CUBE, 12, 5);
    topo_machine_destroy(machine);
}

/* 2 SIPs of 4 x 4 cubes; PEs 0, 1 at NW, 2, 3 at NE, 4, 5 at SW, 6, 7 at SE of a cube. */
static void patterns_of_larger_levels(void **state)
{
    (void)state;
    enum { CUBE = 8, SIP = 16 * CUBE };
    topo_machine *machine = load(NULL, NULL, NULL, NULL);
    expect_target(machine, TRAFFIC_TRANSPOSE, TRAFFIC_CUBE, 2, 4);
    expect_target(machine, TRAFFIC_TRANSPOSE, TRAFFIC_CUBE, SIP + CUBE + 5, SIP + CUBE + 3);
    expect_target(machine, TRAFFIC_BITCOMP, TRAFFIC_CUBE, 1, 7);
    /* Cube 1 is at (1, 0) of the SIP, cube 4 at (0, 1), cube 11 at (3, 2). */
    expect_target(machine, TRAFFIC_TRANSPOSE, TRAFFIC_SIP, CUBE + 2, 4 * CUBE + 4);
    expect_target(machine, TRAFFIC_BITCOMP, TRAFFIC_SIP, 4 * CUBE + 1, 11 * CUBE + 7);
    expect_target(machine, TRAFFIC_BITCOMP, TRAFFIC_SIP, SIP + 4 * CUBE, SIP + 11 * CUBE + 6);
    /* SIPs in a row: 32 x 16 routers. */
    expect_target(machine, TRAFFIC_BITCOMP, TRAFFIC_SYSTEM, 0, SIP + 15 * CUBE + 6);
    expect_target(machine, TRAFFIC_BITCOMP, TRAFFIC_SYSTEM, CUBE + 3, SIP + 14 * CUBE + 5);
    topo_machine_destroy(machine);

    /* A PE at every router: (3, 0) of cube 0 and (0, 1) of cube 1 are neighbours. */
    machine = load("mesh-reference", "cube.noc.k=4", "sip.cube_mesh.w=2", "sip.cube_mesh.h=2");
    expect_target(machine, TRAFFIC_NEIGHBOR, TRAFFIC_SIP, 3, 16 + 4);
    expect_target(machine, TRAFFIC_NEIGHBOR, TRAFFIC_SIP, 63, 0);
    topo_machine_destroy(machine);
}

static void expect_refused(const topo_machine *machine, traffic_options options, const char *why)
{
    options.rate_ppb = options.rate_ppb ? options.rate_ppb : TRAFFIC_RATE_ONE / 10;
    options.bytes = options.bytes ? options.bytes : 8;
    options.measure = options.measure ? options.measure : KB_US;
    traffic_result result;
    expect_error(traffic_run(machine, &options, &result), KB_ERR_INPUT, why);
}

static void patterns_that_are_refused(void **state)
{
    (void)state;
    topo_machine *machine = load(NULL, "sip.cube_mesh.w=3", NULL, NULL);
    expect_refused(machine, (traffic_options){.pattern = TRAFFIC_NEIGHBOR},
                   "the pattern neighbor has the PEs at router 0,0 of the cube send to router 1,1, "
                   "which has none");
    expect_refused(machine, (traffic_options){.pattern = TRAFFIC_TRANSPOSE, .level = TRAFFIC_SIP},
                   "the pattern transpose needs as many rows of routers as columns; the sip has "
                   "12 x 16");
    expect_refused(machine, (traffic_options){.pattern = TRAFFIC_BITCOMP, .level = TRAFFIC_SIP},
                   "the pattern bitcomp needs rows and columns of routers that are powers of two; "
                   "the sip has 12 x 16");
    expect_refused(
        machine,
        (traffic_options){.pattern = TRAFFIC_HOTSPOT, .hot_given = true, .hot_x = 1, .hot_y = 0},
        "the pattern hotspot has the PEs at router 0,0 of the cube send to router 1,0, "
        "which has none");
    expect_refused(machine,
                   (traffic_options){.pattern = TRAFFIC_HOTSPOT, .hot_given = true, .hot_y = 4},
                   "no such router 0,4 for the hot spot: the cube has 4 x 4");
    expect_refused(machine, (traffic_options){.hot_given = true}, "--hot needs --pattern hotspot");
    topo_machine_destroy(machine);
}

/* ---- Arrivals ---------------------------------------------------------------------------- */

static arrivals arrivals_of(traffic_process process, uint64_t rate_ppb, uint64_t bytes,
                            uint64_t bytes_per_s)
{
    arrivals a;
    expect_ok(arrivals_init(
        &a, &(traffic_options){.process = process, .rate_ppb = rate_ppb, .bytes = bytes},
        bytes_per_s, 8, KB_S));
    return a;
}

/* With certainty: in every cycle. 8 bytes at 3 GB/s are 2666666 2/3 fs, and that does not drift. */
static void a_cycle_that_is_no_whole_number(void **state)
{
    (void)state;
    arrivals a = arrivals_of(TRAFFIC_BERNOULLI, TRAFFIC_RATE_ONE, 8, 3 * TOPO_GBS);
    arrivals_stream stream;
    arrivals_start(&stream, 1, 0);
    static const kb_time expected[] = {0, 2666667, 5333334, 8000000, 10666667};
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        assert_int_equal(arrivals_next(&a, &stream), expected[i]);
}

/* Gaps of k cycles without an arrival come with probability (1 - p)^k p. */
static void bernoulli_gaps(void **state)
{
    (void)state;
    enum { DRAWS = 400000 };
    /* 0.6 of the link in transfers of 3 packets, so p = 0.2. */
    arrivals a = arrivals_of(TRAFFIC_BERNOULLI, 600000000, 24, 8 * TOPO_GBS);
    arrivals_stream stream;
    arrivals_start(&stream, 7, 3);
    uint32_t counts[4] = {0};
    kb_time last = -KB_NS;
    for (int i = 0; i < DRAWS; i++) {
        kb_time now = arrivals_next(&a, &stream);
        assert_int_equal(now % KB_NS, 0);
        kb_time gap = (now - last) / KB_NS - 1;
        assert_true(gap >= 0); /* never two in a cycle */
        if (gap < 4)
            counts[gap]++;
        last = now;
    }
    double p = 0.2, left = DRAWS;
    for (int k = 0; k < 4; k++, left *= 1 - p)
        expect_near(counts[k] / (left * p), 1, 0.02); /* 5 standard errors or so */
    expect_near((double)last / (double)KB_NS / DRAWS, 1 / p, 0.04);
}

static void poisson_gaps(void **state)
{
    (void)state;
    enum { DRAWS = 200000 };
    /* 1 byte at 256 GB/s and a load of 1: 3906.25 fs apart on average. */
    arrivals a = arrivals_of(TRAFFIC_POISSON, TRAFFIC_RATE_ONE, 1, 256 * TOPO_GBS);
    arrivals_stream stream;
    arrivals_start(&stream, 1, 1);
    kb_time now = 0, longer = 0;
    for (int i = 0; i < DRAWS; i++) {
        kb_time next = arrivals_next(&a, &stream);
        longer += next - now > 3906;
        now = next;
    }
    expect_near((double)now / DRAWS / 3906.25, 1, 0.01);
    expect_near((double)longer / DRAWS, 0.3679, 0.005); /* exp(-1) */
}

/* The first numbers, so that results do not change unnoticed. */
static void arrivals_are_reproducible(void **state)
{
    (void)state;
    arrivals a = arrivals_of(TRAFFIC_BERNOULLI, 100000000, 8, 8 * TOPO_GBS);
    arrivals_stream stream, other;
    arrivals_start(&stream, 1, 0);
    arrivals_start(&other, 1, 1);
    static const kb_time cycles[] = {2, 28, 29, 31, 42, 45, 46, 51};
    bool same = true;
    for (size_t i = 0; i < sizeof cycles / sizeof cycles[0]; i++) {
        assert_int_equal(arrivals_next(&a, &stream), cycles[i] * KB_NS);
        same = same && arrivals_next(&a, &other) == cycles[i] * KB_NS;
    }
    assert_false(same);
}

static void nothing_arrives_after_the_end(void **state)
{
    (void)state;
    for (traffic_process process = 0; process < TRAFFIC_PROCESSES; process++) {
        arrivals a;
        traffic_options options = {.process = process, .rate_ppb = 500000000, .bytes = 8};
        expect_ok(arrivals_init(&a, &options, 8 * TOPO_GBS, 8, 100 * KB_NS));
        arrivals_stream stream;
        arrivals_start(&stream, 1, 0);
        kb_time now, last = 0;
        while ((now = arrivals_next(&a, &stream)) != KB_FOREVER)
            last = now;
        assert_in_range(last, 50 * KB_NS, 100 * KB_NS);
        assert_true(arrivals_next(&a, &stream) == KB_FOREVER);
    }
}

/* The least that there is: nothing overflows, and nothing comes. */
static void hardly_any_arrivals(void **state)
{
    (void)state;
    for (traffic_process process = 0; process < TRAFFIC_PROCESSES; process++) {
        arrivals a = arrivals_of(process, 1, TRAFFIC_MAX_BYTES, TOPO_GBS / 1000);
        arrivals_stream stream;
        arrivals_start(&stream, 1, 0);
        assert_true(arrivals_next(&a, &stream) == KB_FOREVER);
    }
}

/* ---- Latencies --------------------------------------------------------------------------- */

static void latencies_are_counted(void **state)
{
    (void)state;
    latency_counts l;
    expect_ok(latency_init(&l));
    assert_int_equal(latency_quantile(&l, 50), 0);
    assert_true(latency_mean(&l) == 0);
    for (kb_time ns = 1; ns <= 200; ns++)
        latency_add(&l, ns * KB_NS);
    assert_true(latency_mean(&l) == 100.5e6);
    assert_int_equal(latency_quantile(&l, 50), 100 * KB_NS);
    assert_int_equal(latency_quantile(&l, 99), 198 * KB_NS);
    assert_int_equal(latency_quantile(&l, 100), 200 * KB_NS);
    assert_int_equal(latency_quantile(&l, 0), 1 * KB_NS);
    latency_add(&l, INT64_MAX);
    latency_add(&l, 0);
    assert_int_equal(l.largest, INT64_MAX);
    assert_int_equal(latency_quantile(&l, 100), INT64_MAX);
    assert_int_equal(latency_quantile(&l, 0), 0);
    latency_fini(&l);
}

static int compare_times(const void *a, const void *b)
{
    kb_time x = *(const kb_time *)a, y = *(const kb_time *)b;
    return (x > y) - (x < y);
}

/* Never below the true quantile, nor above it by more than 1/2048. */
static void quantiles_are_near(void **state)
{
    (void)state;
    enum { COUNT = 5000 };
    static kb_time times[COUNT];
    kb_rng rng;
    kb_rng_init(&rng, test_seed(5));
    for (kb_time mean = 1000; mean < KB_MS; mean *= 300) {
        latency_counts l;
        expect_ok(latency_init(&l));
        for (size_t i = 0; i < COUNT; i++) {
            times[i] = kb_rng_exponential_time(&rng, mean);
            latency_add(&l, times[i]);
        }
        qsort(times, COUNT, sizeof times[0], compare_times);
        for (uint32_t percent = 1; percent <= 100; percent++) {
            kb_time exact = times[COUNT / 100 * percent - 1];
            kb_time got = latency_quantile(&l, percent);
            assert_true(got >= exact && got - exact <= exact / 2048);
        }
        latency_fini(&l);
    }
}

/* ---- Runs -------------------------------------------------------------------------------- */

/*
 * On a mesh of 2 x 2 everybody sends to the opposite corner, in every cycle: three routers of 4 ns,
 * a flit and a cycle for the ends are 14 ns, and no two share a link.
 */
static void a_full_mesh_without_conflicts(void **state)
{
    (void)state;
    topo_machine *machine = mesh("cube.noc.k=2");
    traffic_result r;
    expect_ok(traffic_run(machine,
                          &(traffic_options){.pattern = TRAFFIC_NEIGHBOR,
                                             .rate_ppb = TRAFFIC_RATE_ONE,
                                             .bytes = 8,
                                             .warmup = 100 * KB_NS,
                                             .measure = 1000 * KB_NS},
                          &r));
    assert_int_equal(r.pes, 4);
    assert_int_equal(r.bytes_per_s, 8 * TOPO_GBS);
    assert_int_equal(r.measured, 4000);
    assert_int_equal(r.arrived, 4000);
    assert_true(r.mean_fs == 14e6);
    assert_int_equal(r.p50_fs, 14 * KB_NS);
    assert_int_equal(r.p99_fs, 14 * KB_NS);
    assert_int_equal(r.max_fs, 14 * KB_NS);
    assert_true(r.offered == 1);
    expect_near(r.created, 1, 1e-9);
    expect_near(r.accepted, 1, 1e-9);
    assert_false(r.saturated);
    /* 4 links into the mesh, 4 of x, 4 of y, 4 out of it: all are full. */
    assert_int_equal(r.busiest_count, TRAFFIC_BUSIEST);
    for (uint32_t i = 0; i < r.busiest_count; i++) {
        assert_int_equal(r.busiest[i].bytes, 8000);
        assert_true(r.busiest[i].utilization == 1);
        assert_int_equal(r.busiest[i].waited_fs, 0);
    }
    topo_machine_destroy(machine);
}

/* Every link of the machine, if asked for: the busiest of them are those of the result. */
static void all_links_are_told(void **state)
{
    (void)state;
    topo_machine *machine = mesh("cube.noc.k=2");
    uint32_t count = (uint32_t)topo_machine_graph(machine)->links.count;
    traffic_link *links = kb_alloc_zeroed(count, sizeof *links);
    assert_non_null(links);
    traffic_options options = {.pattern = TRAFFIC_NEIGHBOR,
                               .rate_ppb = TRAFFIC_RATE_ONE,
                               .bytes = 8,
                               .warmup = 100 * KB_NS,
                               .measure = 1000 * KB_NS,
                               .links = links};
    traffic_result r;
    expect_ok(traffic_run(machine, &options, &r));
    uint32_t full = 0;
    for (uint32_t i = 0; i < count; i++) {
        assert_int_equal(links[i].link, i);
        assert_true(links[i].bytes == 0 || links[i].utilization == 1);
        full += links[i].bytes == 8000;
    }
    assert_int_equal(full, 16); /* see above */
    assert_int_equal(r.end, TRAFFIC_COMPLETE);
    assert_int_equal(r.lone_fs, 14 * KB_NS);
    free(links);
    topo_machine_destroy(machine);
}

static traffic_result run_mesh(const char *k, traffic_options options)
{
    topo_machine *machine = mesh(k);
    traffic_result result;
    expect_ok(traffic_run(machine, &options, &result));
    topo_machine_destroy(machine);
    return result;
}

static void the_same_seed_gives_the_same_result(void **state)
{
    (void)state;
    traffic_options options = {.rate_ppb = 300000000,
                               .process = TRAFFIC_POISSON,
                               .bytes = 32,
                               .seed = 5,
                               .warmup = KB_US,
                               .measure = 4 * KB_US};
    traffic_result a = run_mesh("cube.noc.k=4", options), b = run_mesh("cube.noc.k=4", options);
    a.wall_s = b.wall_s = 0;
    assert_memory_equal(&a, &b, sizeof a);
    options.seed = 6;
    b = run_mesh("cube.noc.k=4", options);
    assert_true(a.mean_fs != b.mean_fs);
    assert_false(a.saturated);
    expect_near(a.accepted, a.created, 0.01);
}

/* One of 16 routers takes it all: a sixteenth of a link each is what there is. */
static void a_hot_spot_saturates(void **state)
{
    (void)state;
    traffic_options options = {.pattern = TRAFFIC_HOTSPOT,
                               .bytes = 8,
                               .warmup = 2 * KB_US,
                               .measure = 8 * KB_US,
                               .rate_ppb = 50000000};
    traffic_result r = run_mesh("cube.noc.k=4", options);
    assert_false(r.saturated);
    expect_near(r.accepted, 0.05, 0.003);
    options.rate_ppb = 80000000;
    r = run_mesh("cube.noc.k=4", options);
    assert_true(r.saturated);
    expect_near(r.accepted, 0.0625, 0.0005);
    expect_near(r.busiest[0].utilization, 1, 0.001);
    assert_int_equal(r.arrived, r.measured);
    /* Sixteen times what can be carried: not all arrive. */
    options.rate_ppb = TRAFFIC_RATE_ONE;
    r = run_mesh("cube.noc.k=4", options);
    assert_true(r.saturated);
    assert_true(r.arrived < r.measured);
    expect_near(r.accepted, 0.0625, 0.0005);
    assert_int_equal(r.measured, 16 * 8000);
    assert_int_equal(r.end, TRAFFIC_CROWDED); /* 15 more a ns: a million before ten windows */
    assert_int_equal(r.live, (1 << 20) + 16 * 16);
    /* And with a window so short that this does not happen. */
    options.measure = KB_US;
    r = run_mesh("cube.noc.k=4", options);
    assert_true(r.saturated && !r.too_short);
    assert_true(r.arrived < r.measured);
    assert_int_equal(r.end, TRAFFIC_PATIENCE);
}

/*
 * Up to 30 ns are on the way for 7 routers, a flit and the ends of a mesh of 4 x 4, and the run
 * ends 10 ns after its window of 1 ns: some do not arrive, which says nothing of what the mesh
 * carries.
 */
static void a_window_that_is_too_short(void **state)
{
    (void)state;
    traffic_options options = {
        .rate_ppb = TRAFFIC_RATE_ONE / 5, .bytes = 8, .warmup = KB_US, .measure = KB_NS};
    traffic_result r = run_mesh("cube.noc.k=4", options);
    assert_true(r.arrived < r.measured);
    assert_int_equal(r.end, TRAFFIC_PATIENCE);
    assert_true(r.too_short);
    assert_false(r.saturated);
    assert_in_range(r.lone_fs, 22 * KB_NS, 30 * KB_NS);
}

static void options_that_are_refused(void **state)
{
    (void)state;
    topo_machine *machine = mesh("cube.noc.k=2");
    expect_refused(machine, (traffic_options){.rate_ppb = 101 * TRAFFIC_RATE_ONE},
                   "invalid rate: expected above 0 and at most 100, found 101");
    expect_refused(machine, (traffic_options){.bytes = TRAFFIC_MAX_BYTES + 1},
                   "invalid transfer size: expected 1 to 1099511627776 bytes, found "
                   "1099511627777");
    expect_refused(machine, (traffic_options){.measure = 1},
                   "invalid measurement window: expected more than 0 and at most 1e+09 ns");
    expect_refused(machine, (traffic_options){.warmup = KB_S + 1},
                   "warm-up too long: expected at most 1e+09 ns");
    expect_refused(machine, (traffic_options){.rate_ppb = 1100000000},
                   "a PE would issue more than one transfer per packet time to offer 1.1 of "
                   "its link's bandwidth in transfers of 8 bytes; a lower rate or the process "
                   "poisson can do");
    expect_refused(machine, (traffic_options){.rate_ppb = 1, .measure = KB_NS},
                   "no transfer was issued in the window of 1 ns: use a longer window or a "
                   "higher rate");
    topo_machine_destroy(machine);
}

/* Of transfers of two packets a PE can begin one in each cycle, twice what its link carries. */
static void more_than_the_link_can_be_offered(void **state)
{
    (void)state;
    traffic_options options = {.pattern = TRAFFIC_NEIGHBOR,
                               .bytes = 16,
                               .rate_ppb = 2 * TRAFFIC_RATE_ONE,
                               .warmup = KB_US,
                               .measure = KB_US};
    traffic_result r = run_mesh("cube.noc.k=2", options);
    assert_true(r.saturated);
    expect_near(r.created, 2, 1e-9);
    expect_near(r.accepted, 1, 0.01);
}

static void note_progress(void *self, const traffic_progress *progress)
{
    traffic_progress *last = self;
    assert_true(progress->now >= last->now && progress->transfers >= last->transfers);
    *last = *progress;
}

static void progress_is_told(void **state)
{
    (void)state;
    traffic_progress last = {0};
    traffic_options options = {.rate_ppb = 100000000,
                               .bytes = 8,
                               .warmup = KB_US,
                               .measure = KB_US,
                               .progress = note_progress,
                               .self = &last};
    traffic_result r = run_mesh("cube.noc.k=4", options);
    assert_int_equal(last.until, 2 * KB_US);
    assert_true(last.now >= 2 * KB_US - 1 && last.now == r.ended_fs);
    assert_int_equal(last.transfers, r.transfers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_of_a_mesh),
        cmocka_unit_test(patterns_of_larger_levels),
        cmocka_unit_test(patterns_that_are_refused),
        cmocka_unit_test(a_cycle_that_is_no_whole_number),
        cmocka_unit_test(bernoulli_gaps),
        cmocka_unit_test(poisson_gaps),
        cmocka_unit_test(arrivals_are_reproducible),
        cmocka_unit_test(nothing_arrives_after_the_end),
        cmocka_unit_test(hardly_any_arrivals),
        cmocka_unit_test(latencies_are_counted),
        cmocka_unit_test(quantiles_are_near),
        cmocka_unit_test(a_full_mesh_without_conflicts),
        cmocka_unit_test(all_links_are_told),
        cmocka_unit_test(the_same_seed_gives_the_same_result),
        cmocka_unit_test(a_hot_spot_saturates),
        cmocka_unit_test(a_window_that_is_too_short),
        cmocka_unit_test(options_that_are_refused),
        cmocka_unit_test(more_than_the_link_can_be_offered),
        cmocka_unit_test(progress_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
