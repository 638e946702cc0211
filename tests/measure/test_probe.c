/* test_probe.c: predefined transfers: figures by hand, and what holds on every machine. */
#include "support/expect.h"
#include "support/seed.h"

#include "measure/measure.h"
#include "topo/random_machines.h"

static size_t case_named(const char *name)
{
    for (size_t i = 0; i < probe_case_count; i++)
        if (strcmp(probe_cases[i].name, name) == 0)
            return i;
    fail_msg("no case %s", name);
    return 0;
}

static probe_result measure(const topo_machine *machine, const char *name, uint64_t bytes)
{
    probe *p;
    probe_result result;
    expect_ok(probe_create(machine, &p));
    expect_ok(probe_measure(p, case_named(name), bytes, &result));
    probe_destroy(p);
    return result;
}

static void expect_parts(const net_completion *r, kb_time overhead, kb_time wire, kb_time drain)
{
    assert_int_equal(r->overhead, overhead);
    assert_int_equal(r->wire, wire);
    assert_int_equal(r->drain, drain);
    assert_int_equal(r->queueing, 0);
    assert_int_equal(r->ended, overhead + wire + drain);
}

static void expect_stop(const topo_machine *machine, const probe_result *r, size_t i,
                        const char *node, kb_time at)
{
    kb_text name = KB_TEXT_INIT;
    assert_in_range(i, 0, r->stops.count - 1);
    topo_node_name(machine, r->stops.items[i].node, &name);
    assert_string_equal(kb_text_peek(&name), node);
    assert_int_equal(r->stops.items[i].at, at);
    kb_text_fini(&name);
}

/*
 * 4 KiB from a PE to its slice: overhead is 5 (pe_dma) + 2 (xbar) + 76 (hbm_ctrl) = 83 ns, wire is
 * two links of 2 mm at 0.01 ns/mm = 0.04 ns, drain is 4096 bytes at 204.8 GB/s = 20 ns. The head is
 * at the crossbar after 5 + 0.02 and at the controller after 2 + 0.02 more.
 */
static void write_to_the_own_slice(void **state)
{
    (void)state;
    topo_machine *machine = default_machine();
    probe_result r = measure(machine, "pe-local-hbm-write", 4096);
    expect_parts(&r.completion, 83 * KB_NS, 40 * KB_PS, 20 * KB_NS);
    assert_int_equal(r.stops.count, 4);
    expect_stop(machine, &r, 0, "sip0.cube0.pe0.pe_dma", 0);
    expect_stop(machine, &r, 1, "sip0.cube0.xbar", 5020 * KB_PS);
    expect_stop(machine, &r, 2, "sip0.cube0.hbm_ctrl0", 7040 * KB_PS);
    expect_stop(machine, &r, 3, "sip0.cube0.hbm_ctrl0", 103040 * KB_PS);
    uint32_t slice = topo_node_at(machine, TOPO_HBM_CTRL, 0, 0, 0);
    const topo_graph *graph = topo_machine_graph(machine);
    assert_int_equal(r.bottleneck, graph->nodes.items[slice].service);
    probe_result_fini(&r);
    topo_machine_destroy(machine);
}

/*
 * 4 KiB read back by the host from the nearest cube, the first. The way there: 0 (host) + 5
 * (switch)
 * + 50 (pcie_ep) + 1 (io_noc) + 8 + 8 (UCIe ports) + 2 * 1 (routers) + 2 (xbar) = 76 ns, and 2 * 1
 * (100 mm each) + 3 * 0.05 (5 mm each) + 0.025 (router to router) + 2 * 0.02 (crossbar) = 2.215 ns
 * of wire. The way back is the same, and 76 ns for the access. 16 bytes at 64 GB/s take 0.25 ns,
 * 4096 take 64 ns.
 */
static void read_by_the_host(void **state)
{
    (void)state;
    topo_machine *machine = default_machine();
    probe_result r = measure(machine, "d2h-near", 4096);
    expect_parts(&r.completion, 228 * KB_NS, 4430 * KB_PS, 64250 * KB_PS);
    /* The request is there after 76 + 2.215 + 0.25 ns; there are 9 links to get there. */
    expect_stop(machine, &r, 0, "host", 0);
    expect_stop(machine, &r, 9, "sip0.cube0.hbm_ctrl0", 78465 * KB_PS);
    expect_stop(machine, &r, r.stops.count - 1, "host", 296680 * KB_PS);
    assert_false(r.stops.items[9].back);
    assert_true(r.stops.items[10].back);
    probe_result_fini(&r);
    topo_machine_destroy(machine);
}

/* Links follow each other, times never go back, and the slowest link of the data is named. */
static void expect_sound_stops(const topo_machine *machine, const probe_result *r)
{
    const topo_graph *graph = topo_machine_graph(machine);
    uint64_t slowest = topo_link_rate(graph, r->bottleneck);
    bool read = r->stops.items[r->stops.count - 1].back;
    assert_int_equal(r->stops.items[0].node, r->from);
    assert_int_equal(r->stops.items[0].link, TOPO_NONE);
    assert_int_equal(r->stops.items[0].at, 0);
    for (size_t i = 1; i < r->stops.count; i++) {
        const probe_stop *stop = &r->stops.items[i], *before = stop - 1;
        assert_int_equal(graph->links.items[stop->link].from, before->node);
        assert_int_equal(graph->links.items[stop->link].to, stop->node);
        assert_true(stop->at >= before->at);
        if (stop->back == read)
            assert_true(topo_link_rate(graph, stop->link) >= slowest);
    }
    assert_int_equal(r->stops.items[r->stops.count - 1].at, r->completion.ended);
}

static void expect_foreseen(const topo_machine *machine, size_t which, const probe_result *r)
{
    kb_sim *sim;
    net *fabric;
    net_route_buffer routes;
    expect_ok(kb_sim_create(NULL, &sim));
    expect_ok(net_create_for(sim, machine, 0, false, &fabric));
    expect_ok(net_route_buffer_init(&routes, machine));
    net_order order = net_make_order(&routes, r->from, r->to, r->bytes, probe_cases[which].read);
    net_completion foreseen = net_predict(fabric, &order);
    expect_parts(&r->completion, foreseen.overhead, foreseen.wire, foreseen.drain);
    net_route_buffer_fini(&routes);
    net_destroy(fabric);
    kb_sim_destroy(sim);
}

static void check_all_cases(const topo_machine *machine, uint64_t bytes)
{
    const topo_shape *shape = topo_machine_shape(machine);
    probe *p;
    expect_ok(probe_create(machine, &p));
    for (size_t i = 0; i < probe_case_count; i++) {
        probe_target target = probe_cases[i].target;
        bool more_cubes = target == PROBE_FAR_CUBE || target == PROBE_NEAR_REMOTE_CUBE ||
                          target == PROBE_FAR_REMOTE_CUBE;
        bool missing = (target == PROBE_OTHER_SLICE && shape->pes == 1) ||
                       (more_cubes && shape->cubes == 1) ||
                       (target == PROBE_REMOTE_SIP && shape->sips == 1);
        assert_int_equal(probe_missing(machine, i) != NULL, missing);
        if (missing)
            continue;
        probe_result r;
        expect_ok(probe_measure(p, i, bytes, &r));
        expect_sound_stops(machine, &r);
        expect_foreseen(machine, i, &r);
        probe_result_fini(&r);
    }
    probe_destroy(p);
}

static void lone_transfers_take_what_is_foreseen(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(7));
    for (int round = 0; round < 40; round++) {
        char *text = random_description(&rng);
        topo_machine *machine = machine_of(text);
        check_all_cases(machine, 1 + kb_rng_below(&rng, 20000));
        topo_machine_destroy(machine);
        free(text);
    }
}

/* Far is never nearer than near, and one of them is what its name says. */
static void far_is_farther(void **state)
{
    (void)state;
    topo_machine *machine = default_machine();
    probe_result near = measure(machine, "pe-remote-cube-near", 64);
    probe_result far = measure(machine, "pe-remote-cube-far", 64);
    assert_true(far.stops.count > near.stops.count);
    assert_int_equal(near.to, topo_node_at(machine, TOPO_HBM_CTRL, 0, 1, 0));
    assert_int_equal(far.to, topo_node_at(machine, TOPO_HBM_CTRL, 0, 15, 0));
    probe_result_fini(&near);
    probe_result_fini(&far);
    topo_machine_destroy(machine);
}

/* ---- Under load -------------------------------------------------------------------------- */

/*
 * Eight PEs write 4 KiB each to the SRAM: its service carries 8 * 4096 bytes at 512 GB/s in 64 ns,
 * and so does the link to it, which comes first; each PE's own port takes 16 ns.
 */
static void capacity_by_hand(void **state)
{
    (void)state;
    topo_machine *machine = default_machine();
    probe_capacity capacity;
    expect_ok(probe_capacity_of(machine, case_named("pe-sram-write"), 4096, &capacity));
    assert_int_equal(capacity.sources, 8);
    assert_true(capacity.gbs > 511.999 && capacity.gbs < 512.001);
    uint32_t sram = topo_node_at(machine, TOPO_SRAM, 0, 0, 0);
    assert_int_equal(topo_machine_graph(machine)->links.items[capacity.bottleneck].to, sram);
    expect_ok(probe_capacity_of(machine, case_named("h2d-far"), 4096, &capacity));
    assert_int_equal(capacity.sources, 1);
    assert_true(capacity.gbs > 63.999 && capacity.gbs < 64.001);
    topo_machine_destroy(machine);
}

static probe_load run_load(const topo_machine *machine, const char *name, double offered,
                           uint64_t seed)
{
    probe_load load;
    probe_load_options options = {
        .bytes = 4096, .transfers = 2000, .offered = offered, .seed = seed};
    expect_ok(probe_run_load(machine, case_named(name), &options, &load));
    return load;
}

static void latency_grows_with_load(void **state)
{
    (void)state;
    topo_machine *machine = default_machine();
    static const char *const names[] = {"pe-sram", "h2d-near", "pe-remote-cube-near-write"};
    for (size_t i = 0; i < 3; i++) {
        probe_result alone = measure(machine, names[i], 4096);
        probe_load low = run_load(machine, names[i], 0.05, 1);
        probe_load high = run_load(machine, names[i], 0.9, 1);
        probe_load over = run_load(machine, names[i], 1.5, 1);
        /* Sources at other corners may be some links nearer. */
        assert_true(low.mean > alone.completion.ended * 8 / 10);
        assert_true(low.mean < alone.completion.ended * 12 / 10);
        assert_true(low.mean < high.mean && high.mean < over.mean);
        assert_true(high.p50 <= high.p99 && high.p99 <= high.max);
        assert_true(low.utilization > 0.02 && low.utilization < 0.1);
        /* Blocking behind others keeps it from being full. */
        assert_true(over.utilization > 0.5 && over.utilization <= 1);
        assert_true(high.accepted_gbs > 0.9 * high.offered_gbs);
        assert_true(over.accepted_gbs < over.offered_gbs);
        assert_true(low.waited < high.waited);
        assert_true(low.wait >= 0 && low.wait < high.wait && high.wait < over.wait);
        /* Where all sources have ways of one length, the mean is that and the wait. */
        if (i < 2)
            assert_in_range(high.mean - high.wait, alone.completion.ended - 1,
                            alone.completion.ended + 1);
        probe_result_fini(&alone);
    }
    topo_machine_destroy(machine);
}

static void a_seed_gives_the_same_run(void **state)
{
    (void)state;
    topo_machine *machine = default_machine();
    probe_load a = run_load(machine, "pe-sram", 0.7, 3), b = run_load(machine, "pe-sram", 0.7, 3);
    probe_load c = run_load(machine, "pe-sram", 0.7, 4);
    assert_int_equal(a.mean, b.mean);
    assert_int_equal(a.max, b.max);
    assert_int_equal(a.waited, b.waited);
    assert_int_equal(a.transfers, b.transfers);
    assert_int_not_equal(a.mean, c.mean);
    topo_machine_destroy(machine);
}

/* Times of a few femtoseconds: the run still ends. */
static void tiny_transfers_end(void **state)
{
    (void)state;
    topo_machine *machine =
        machine_with("cube.pe_to_xbar_bw_gbs=1000000", "cube.xbar_to_sram_bw_gbs=1000000",
                     "cube.sram.bw_gbs=1000000", NULL);
    probe_load load;
    probe_load_options options = {.bytes = 1, .transfers = 100, .offered = 1.2, .seed = 1};
    expect_ok(probe_run_load(machine, case_named("pe-sram-write"), &options, &load));
    assert_true(load.utilization <= 1);
    topo_machine_destroy(machine);
}

/* An idle machine takes at most 1 KiB a PE, 64 bytes a link and 16 a channel. */
static void an_idle_machine_is_small(void **state)
{
    (void)state;
    static const char *const settings[] = {"system.sips.count=64", "fabric.vcs=1",
                                           "sip.cube_mesh.w=1"};
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        topo_machine *machine = machine_with(settings[i], NULL, NULL, NULL);
        const topo_graph *g = topo_machine_graph(machine);
        kb_sim *sim;
        net *fabric;
        expect_ok(kb_sim_create(NULL, &sim));
        expect_ok(net_create_for(sim, machine, 0, false, &fabric));
        uint64_t used = net_get_stats(fabric).state_bytes +
                        g->nodes.count * (sizeof(topo_node) + sizeof *g->first_out) +
                        g->links.count * (sizeof(topo_link) + sizeof *g->out);
        uint64_t channels = g->links.count * net_channels_per_link(fabric);
        uint64_t allowed =
            1024 * topo_machine_shape(machine)->pe_count + 64 * g->links.count + 16 * channels;
        assert_true(used <= allowed);
        net_destroy(fabric);
        kb_sim_destroy(sim);
        topo_machine_destroy(machine);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(write_to_the_own_slice),
        cmocka_unit_test(read_by_the_host),
        cmocka_unit_test(lone_transfers_take_what_is_foreseen),
        cmocka_unit_test(far_is_farther),
        cmocka_unit_test(capacity_by_hand),
        cmocka_unit_test(latency_grows_with_load),
        cmocka_unit_test(a_seed_gives_the_same_run),
        cmocka_unit_test(tiny_transfers_end),
        cmocka_unit_test(an_idle_machine_is_small),
    };
    return cmocka_run_group_tests_name("probe", tests, NULL, NULL);
}
