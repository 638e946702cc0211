/* test_bound.c: the lower bound of the time, against numbers worked out by hand. */
#include "trial.h"

#include "ccl/ccl.h"
#include "support/failing_alloc.h"
#include "support/seed.h"

static topo_machine *load(const char *const *settings, size_t count)
{
    topo_machine *machine;
    expect_ok(
        topo_machine_load(&(topo_source){.settings = settings, .setting_count = count}, &machine));
    return machine;
}

static const kb_pe sips[16] = {{.sip = 0},  {.sip = 1},  {.sip = 2},  {.sip = 3},
                               {.sip = 4},  {.sip = 5},  {.sip = 6},  {.sip = 7},
                               {.sip = 8},  {.sip = 9},  {.sip = 10}, {.sip = 11},
                               {.sip = 12}, {.sip = 13}, {.sip = 14}, {.sip = 15}};

enum { MIB = 1 << 20 };

static ccl_bound get(const ccl_bound_query *query)
{
    ccl_bound bound;
    assert_null(ccl_bound_of(query, &bound));
    return bound;
}

static ccl_bound bound_of(const topo_machine *machine, kb_collective_kind kind, uint32_t world,
                          uint64_t size)
{
    return get(&(ccl_bound_query){.machine = machine,
                                  .kind = kind,
                                  .ranks = sips,
                                  .world = world,
                                  .dtype = KB_F16,
                                  .size = size});
}

/* Through the switch a SIP has 64 GB/s, 64 bytes a ns: of 64 MiB, 2^26 bytes, half have to leave
 * each of two, twice: 2^26 / 64 = 2^20 ns. Of four, 2 * 3/4: half as much again. */
static void through_the_switch(void **state)
{
    (void)state;
    static const char *const four[] = {"system.sips.count=4"};
    topo_machine *machine = load(four, 1);
    ccl_bound two = bound_of(machine, KB_ALL_REDUCE, 2, 64 * MIB);
    assert_int_equal(two.moving, MIB * KB_NS);
    assert_true(two.gbs == 64);
    assert_int_equal(bound_of(machine, KB_ALL_REDUCE, 4, 64 * MIB).time, 3 * MIB / 2 * KB_NS);
    assert_int_equal(bound_of(machine, KB_ALL_GATHER, 4, 64 * MIB).time, 3 * MIB / 4 * KB_NS);
    assert_int_equal(bound_of(machine, KB_REDUCE_SCATTER, 4, 64 * MIB).time, 3 * MIB / 4 * KB_NS);
    assert_int_equal(bound_of(machine, KB_ALL_TO_ALL, 4, 64 * MIB).time, 3 * MIB / 4 * KB_NS);
    assert_int_equal(bound_of(machine, KB_GATHER, 4, 64 * MIB).time, 3 * MIB / 4 * KB_NS);
    assert_int_equal(bound_of(machine, KB_SCATTER, 4, 64 * MIB).time, 3 * MIB / 4 * KB_NS);
    assert_int_equal(bound_of(machine, KB_BROADCAST, 4, 64 * MIB).time, MIB * KB_NS);
    assert_int_equal(bound_of(machine, KB_REDUCE, 4, 64 * MIB).time, MIB * KB_NS);
    assert_int_equal(bound_of(machine, KB_SEND, 4, 64 * MIB).time, MIB * KB_NS);
    assert_int_equal(bound_of(machine, KB_ALL_REDUCE, 1, 64 * MIB).time, 0);
    assert_int_equal(bound_of(machine, KB_BARRIER, 4, 0).time, 0);
    /* 3 bytes * 2 * 1/2 at 64 bytes a ns: 46.875 ps, whole femtoseconds */
    assert_int_equal(bound_of(machine, KB_ALL_REDUCE, 2, 3).moving, 46875);
    /* 3 * 2 * 2/3 = 4 of three: 62.5 ps; of 1 byte a third of 62.5 ps, rounded up */
    assert_int_equal(bound_of(machine, KB_ALL_REDUCE, 3, 1).moving, 20834);
    topo_machine_destroy(machine);
}

/*
 * Links of 100 GB/s. A torus of 4 x 4: each SIP has four; of a mesh without wrap there are 24 pairs
 * of neighbours, so 48 links; a torus of 2 x 2 has no wrap: 2 links a SIP.
 */
static void over_direct_links(void **state)
{
    (void)state;
    const char *settings[] = {"system.sips.count=16",
                              "system.sips.topology=torus_2d",
                              "system.sips.link.bw_gbs=100",
                              "system.sips.link.length_mm=50",
                              "system.sips.link.overhead_ns=20",
                              "sip.cube_mesh.h=1"};
    topo_machine *torus = load(settings, 6);
    ccl_bound bound = bound_of(torus, KB_ALL_REDUCE, 16, 100 * MIB);
    assert_int_equal(bound.moving, 2 * 15 * MIB / 64 * KB_NS); /* 30 * 100 MiB / 6400 */
    assert_true(bound.gbs == 400);
    /* The first row alone is a ring: two links each. */
    assert_true(bound_of(torus, KB_ALL_REDUCE, 4, MIB).gbs == 200);
    topo_machine_destroy(torus);
    settings[1] = "system.sips.topology=mesh_2d_no_wrap";
    topo_machine *mesh = load(settings, 6);
    bound = bound_of(mesh, KB_ALL_REDUCE, 16, 48 * 100 * 64);
    assert_int_equal(bound.moving, 30 * 64 * KB_NS); /* 30 * 48 * 6400 / 4800 */
    /* From a SIP in the middle four links lead away, from others fewer: any may be the root. */
    assert_int_equal(bound_of(mesh, KB_BROADCAST, 16, 400 * 1000).time, 1000 * KB_NS);
    topo_machine_destroy(mesh);
    settings[0] = "system.sips.count=4";
    settings[1] = "system.sips.topology=torus_2d";
    topo_machine *small = load(settings, 6);
    assert_true(bound_of(small, KB_ALL_REDUCE, 4, MIB).gbs == 200);
    topo_machine_destroy(small);
    settings[2] = "system.sips.link.bw_gbs=100000"; /* the four ports to the cubes have 512 each */
    topo_machine *fast = load(settings, 6);
    assert_true(bound_of(fast, KB_ALL_REDUCE, 4, MIB).gbs == 2048);
    topo_machine_destroy(fast);
}

/* A PE: 256 GB/s at its port, 204.8 out of HBM; 64 elements a ns, so 128 bytes of f16 and 256 of
 * f32. Of 16 MiB and 128 PEs: 2 * 127/128 * 2^24 / 204.8 = 162560 ns to move, and 127/128 * 2^24 /
 * 128 = 130048 ns to add f16, half of it f32. */
static void over_pes(void **state)
{
    (void)state;
    topo_machine *machine = load(NULL, 0);
    kb_pe ranks[128];
    for (uint32_t i = 0; i < 128; i++)
        ranks[i] = (kb_pe){.cube = i / 8, .pe = i % 8};
    ccl_bound_query query = {.machine = machine,
                             .kind = KB_ALL_REDUCE,
                             .ranks = ranks,
                             .world = 128,
                             .rank_is_pe = true,
                             .memory = KB_HBM,
                             .dtype = KB_F16,
                             .size = 16 * MIB};
    ccl_bound bound = get(&query);
    assert_int_equal(bound.moving, 162560 * KB_NS);
    assert_int_equal(bound.adding, 130048 * KB_NS);
    assert_int_equal(bound.time, bound.moving);
    assert_true(bound.gbs == 204.8);
    query.dtype = KB_F32;
    assert_int_equal(get(&query).adding, 65024 * KB_NS);
    query.memory = KB_TCM; /* 512 GB/s: the port is what limits */
    assert_true(get(&query).gbs == 256);
    query.dtype = KB_I8; /* 64 bytes a ns: adding takes longer than moving */
    bound = get(&query);
    assert_int_equal(bound.adding, 260096 * KB_NS);
    assert_int_equal(bound.time, bound.adding);
    query.kind = KB_ALL_GATHER; /* which adds nothing */
    assert_int_equal(get(&query).adding, 0);
    topo_machine_destroy(machine);
}

/* A bound of 0 would look like a collective that costs nothing. */
static void without_memory(void **state)
{
    (void)state;
    topo_machine *machine = load(NULL, 0);
    const ccl_bound_query query = {.machine = machine,
                                   .kind = KB_ALL_REDUCE,
                                   .ranks = sips,
                                   .world = 2,
                                   .dtype = KB_F16,
                                   .size = MIB};
    for (long n = 1; n <= 2; n++) {
        ccl_bound bound;
        failing_alloc_arm(n, FAIL_ONCE);
        kb_error *err = ccl_bound_of(&query, &bound);
        assert_true(failing_alloc_disarm());
        assert_int_equal(kb_error_code(err), KB_ERR_HOST);
        kb_error_free(err);
    }
    topo_machine_destroy(machine);
}

static void bus_factors_are_those_of_nccl_tests(void **state)
{
    (void)state;
    static const double factors[KB_COLLECTIVES] = {
        [KB_ALL_REDUCE] = 1.5, [KB_ALL_GATHER] = 0.75, [KB_REDUCE_SCATTER] = 0.75,
        [KB_BROADCAST] = 1,    [KB_REDUCE] = 1,        [KB_GATHER] = 0.75,
        [KB_SCATTER] = 0.75,   [KB_ALL_TO_ALL] = 0.75, [KB_SEND] = 1,
        [KB_RECV] = 1,         [KB_BARRIER] = 1,
    };
    for (int kind = 0; kind < KB_COLLECTIVES; kind++)
        assert_true(ccl_bus_factor((kb_collective_kind)kind, 4) == factors[kind]);
}

/* No call on a machine is faster than the bound; a large one comes near. */
static void calls_take_longer(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(5));
    for (int kind = 0; kind <= KB_ALL_TO_ALL; kind++) {
        kb_context *ctx =
            open_sips(3, 2, 1, NULL, (kb_context_options){.timing_only = true, .threads = 1});
        kb_machine machine = kb_context_machine(ctx);
        trial t = {.kind = (kb_collective_kind)kind, .dtype = KB_F16, .world = 3, .block = 9000};
        trial_draw(&t, &rng, &machine, false);
        for (uint32_t rank = 0; rank < 3; rank++) {
            expect_ok(kb_ahbm_set_device(ctx, rank));
            trial_make(&t, ctx, rank);
        }
        expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
        expect_ok(trial_call_all(&t, ctx));
        kb_time before = kb_context_now(ctx);
        expect_ok(trial_call_all(&t, ctx));
        kb_time took = kb_context_now(ctx) - before;
        kb_collective_stats stats;
        expect_ok(kb_distributed_get_stats(ctx, (kb_group){0}, &stats));
        bool in_place = trial_is_in_place(t.kind);
        assert_int_equal(stats.size, 9000 * 2 * (in_place ? 1 : 3));
        assert_true(stats.lower_bound > 0 && took > stats.lower_bound);
        trial_fini(&t);
        kb_context_destroy(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(through_the_switch),
        cmocka_unit_test(over_direct_links),
        cmocka_unit_test(over_pes),
        cmocka_unit_test(without_memory),
        cmocka_unit_test(bus_factors_are_those_of_nccl_tests),
        cmocka_unit_test(calls_take_longer),
    };
    return cmocka_run_group_tests_name("bound", tests, NULL, NULL);
}
