/*
 * test_laws.c: the laws of the transport, L1 to L5, L7 and L8, on machines built by hand, with
 * numbers worked out by hand. L6 is in test_blocking.c.
 *
 * Where the text says nothing else, links have 100 GB/s and packets 100 bytes: a packet takes 1 ns.
 * Each case runs with and without elision, which must make no difference.
 */
#include "net/scenario.h"

static const net_options plain = {
    .fabric.packet_bytes = 100, .fabric.vcs = 1, .fabric.depth_bytes = 100000};

/* For one order alone: total, and that its parts are as given. */
static void expect_receipt(const net_completion *r, kb_time overhead, kb_time wire, kb_time drain,
                           kb_time queueing)
{
    assert_int_equal(r->overhead, overhead);
    assert_int_equal(r->wire, wire);
    assert_int_equal(r->drain, drain);
    assert_int_equal(r->queueing, queueing);
    assert_int_equal(r->ended - r->issued, overhead + wire + drain + queueing);
}

/* ---- L1, L2: alone ----------------------------------------------------------------------- */

static const uint32_t packet_sizes[] = {1, 7, 64, 100, 256, 1000, 4096, 1 << 20};
static const uint32_t depths[] = {0, 1, 256, 100000};

/* Runs the only order of the scenario with all packet sizes and depths. */
static void expect_always(scenario *s, kb_time overhead, kb_time wire, kb_time drain)
{
    for (size_t i = 0; i < sizeof packet_sizes / sizeof *packet_sizes; i++)
        for (size_t j = 0; j < sizeof depths / sizeof *depths; j++) {
            s->options.fabric.packet_bytes = packet_sizes[i];
            s->options.fabric.depth_bytes = depths[j];
            s->options.fabric.vcs = 1 + j % 2;
            outcome *o = scenario_run_both(s);
            expect_receipt(&o->completions[0], overhead, wire, drain, 0);
            for (uint32_t at = 0; at < o->links; at++)
                assert_int_equal(o->stats[at].waited_fs, 0);
            outcome_free(o);
        }
}

/*
 * a (5 ns) > b (1 ns) > c (2 ns), both links 256 GB/s, wires 25 and 50 ps. 4096 bytes drain in
 * 4096 / 256 = 16 ns: 8 + 0.075 + 16 = 24.075 ns. One byte drains in 1000000 / 256 = 3906.25 fs, so
 * in 3907.
 */
static void l1_a_write_of_equal_links(void **state)
{
    (void)state;
    static const struct {
        uint64_t bytes;
        kb_time drain;
    } cases[] = {{4096, 16 * KB_NS}, {1, 3907}, {7, 27344}, {257, 1003907}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scenario s;
        scenario_init(&s, plain);
        uint32_t a = scenario_node(&s, 5 * KB_NS), b = scenario_node(&s, 1 * KB_NS);
        uint32_t c = scenario_node(&s, 2 * KB_NS);
        uint32_t ab = scenario_link(&s, a, b, 256, 25 * KB_PS);
        uint32_t bc = scenario_link(&s, b, c, 256, 50 * KB_PS);
        scenario_write(&s, 3 * KB_NS, cases[i].bytes, LINKS(ab, bc));
        expect_always(&s, 8 * KB_NS, 75 * KB_PS, cases[i].drain);
        scenario_fini(&s);
    }
}

/*
 * Four links, each node 1 ns (5 of them), wires 10 ps: 5 + 0.04 ns, and 4096 bytes at the slowest:
 * 64 GB/s take 64 ns. 100 GB/s take 40.96 ns. 3 GB/s take 4096000000 / 3 = 1365333334 fs.
 */
static void l1_the_slowest_link_counts_wherever_it_is(void **state)
{
    (void)state;
    static const struct {
        uint64_t gbs[4];
        kb_time drain;
    } cases[] = {
        {{256, 64, 256, 256}, 64 * KB_NS},    {{64, 256, 128, 100}, 64 * KB_NS},
        {{256, 128, 100, 64}, 64 * KB_NS},    {{64, 256, 64, 256}, 64 * KB_NS},
        {{256, 100, 512, 128}, 40960000},     {{1000, 3, 7, 1000}, 1365333334},
        {{3, 3, 3, 3}, 1365333334},           {{7, 3, 1000, 3}, 1365333334},
        {{100000, 7, 3, 100000}, 1365333334},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scenario s;
        scenario_init(&s, plain);
        uint32_t links[4], from = scenario_node(&s, KB_NS);
        for (int j = 0; j < 4; j++) {
            uint32_t to = scenario_node(&s, KB_NS);
            links[j] = scenario_link(&s, from, to, cases[i].gbs[j], 10 * KB_PS);
            from = to;
        }
        scenario_write(&s, 0, 4096, 4, links);
        expect_always(&s, 5 * KB_NS, 40 * KB_PS, cases[i].drain);
        scenario_fini(&s);
    }
}

/*
 * pe (5 ns) and router (1 ns), memory of 76 ns and 200 GB/s; links of 256 GB/s, 25 ps of wire
 * between pe and router.
 *
 * Read, 4096 bytes. Request: 5 + 1 ns, 25 ps, and 16 bytes: 62.5 ps. The memory is charged behind
 * its service. Back: 76 + 1 + 5 ns, 25 ps, 4096 / 200 = 20.48 ns. In all overhead 88 ns, wire 50
 * ps, drain 20.5425 ns.
 *
 * Write: 5 + 1 + 76 = 82 ns, 25 ps, 20.48 ns.
 */
static void l1_reads_and_writes_of_a_memory(void **state)
{
    (void)state;
    for (int reads = 0; reads < 2; reads++) {
        scenario s;
        scenario_init(&s, plain);
        uint32_t pe = scenario_node(&s, 5 * KB_NS), router = scenario_node(&s, 1 * KB_NS);
        uint32_t memory = scenario_memory(&s, 76 * KB_NS, 200);
        uint32_t service = scenario_service(&s, memory);
        uint32_t up = scenario_link(&s, pe, router, 256, 25 * KB_PS);
        uint32_t in = scenario_link(&s, router, memory, 256, 0);
        uint32_t out = scenario_link(&s, memory, router, 256, 0);
        uint32_t down = scenario_link(&s, router, pe, 256, 25 * KB_PS);
        if (reads) {
            scenario_read(&s, 7, 4096, LINKS(up, in), LINKS(service, out, down));
            expect_always(&s, 88 * KB_NS, 50 * KB_PS, 20542500);
        } else {
            scenario_write(&s, 7, 4096, LINKS(up, in, service));
            expect_always(&s, 82 * KB_NS, 25 * KB_PS, 20480000);
        }
        scenario_fini(&s);
    }
}

/*
 * a (5 ns) > b (2 ns) > c (3 ns), links of 100 GB/s, 1000 bytes drain in 10 ns. As one transfer
 * 5 + 2 + 3 + 10 = 20 ns. As two, the second of which goes on from b, 5 + 2 + 10 = 17 and
 * 3 + 10 = 13 ns: b is charged once, the bytes drain twice. Not forwarded it takes b's 2 ns more.
 */
static void l1_what_is_forwarded_is_charged_once(void **state)
{
    (void)state;
    for (int forwarded = 0; forwarded < 2; forwarded++) {
        scenario s;
        scenario_init(&s, plain);
        uint32_t a = scenario_node(&s, 5 * KB_NS), b = scenario_node(&s, 2 * KB_NS);
        uint32_t c = scenario_node(&s, 3 * KB_NS);
        uint32_t ab = scenario_link(&s, a, b, 100, 0), bc = scenario_link(&s, b, c, 100, 0);
        scenario_write(&s, 1 * KB_NS, 1000, LINKS(ab));
        planned *second = scenario_write(&s, 0, 1000, LINKS(bc));
        second->after = 0;
        second->forwarded = forwarded;
        outcome *o = scenario_run_both(&s);
        expect_receipt(&o->completions[0], 7 * KB_NS, 0, 10 * KB_NS, 0);
        expect_receipt(&o->completions[1], (forwarded ? 3 : 5) * KB_NS, 0, 10 * KB_NS, 0);
        assert_int_equal(o->completions[1].issued, 18 * KB_NS);
        outcome_free(o);
        scenario_fini(&s);
    }
}

/*
 * A read that is forwarded: only its request goes on from where it is. pe (5 ns), memory of 76 ns,
 * links and memory of 100 GB/s. Request: 16 bytes in 160 ps. Back: 76 + 5 ns, 1000 bytes in 10 ns.
 */
static void l1_a_forwarded_read_is_charged_on_its_way_back(void **state)
{
    (void)state;
    scenario s;
    scenario_init(&s, plain);
    uint32_t pe = scenario_node(&s, 5 * KB_NS), memory = scenario_memory(&s, 76 * KB_NS, 100);
    uint32_t in = scenario_link(&s, pe, memory, 100, 0);
    uint32_t out = scenario_link(&s, memory, pe, 100, 0);
    scenario_read(&s, 0, 1000, LINKS(in), LINKS(scenario_service(&s, memory), out))->forwarded =
        true;
    expect_always(&s, 81 * KB_NS, 0, 10160000);
    scenario_fini(&s);
}

/*
 * A node of 2 ns sends what it got first: 100 bytes that are made there at 0 are ready at 2 ns, and
 * those that are forwarded at 1 ns wait for them until 3. Those forwarded at 10 go at once.
 */
static void l3_what_is_forwarded_keeps_its_place(void **state)
{
    (void)state;
    scenario s;
    scenario_init(&s, plain);
    uint32_t a = scenario_node(&s, 2 * KB_NS), b = scenario_node(&s, 0);
    uint32_t ab = scenario_link(&s, a, b, 100, 0);
    scenario_write(&s, 0, 100, LINKS(ab));
    scenario_write(&s, 1 * KB_NS, 100, LINKS(ab))->forwarded = true;
    scenario_write(&s, 10 * KB_NS, 100, LINKS(ab))->forwarded = true;
    outcome *o = scenario_run_both(&s);
    expect_receipt(&o->completions[0], 2 * KB_NS, 0, KB_NS, 0);
    expect_receipt(&o->completions[1], 0, 0, KB_NS, 2 * KB_NS);
    expect_receipt(&o->completions[2], 0, 0, KB_NS, 0);
    outcome_free(o);
    scenario_fini(&s);
}

/*
 * Each link is passed cut-through: packet k of 100 bytes starts on a link of 100 GB/s at k ns after
 * the first one, and on the next link 1.5 ns (wire and node) later. On a slower link, 50 GB/s, they
 * follow each other by 2 ns. On the fast one behind, the tail comes later than the link is free.
 */
static void l1_packets_move_cut_through(void **state)
{
    (void)state;
    scenario s;
    scenario_init(&s, plain);
    uint32_t a = scenario_node(&s, 0), b = scenario_node(&s, KB_NS), c = scenario_node(&s, 0);
    uint32_t d = scenario_node(&s, 0);
    uint32_t ab = scenario_link(&s, a, b, 100, 500 * KB_PS), bc = scenario_link(&s, b, c, 50, 0);
    uint32_t cd = scenario_link(&s, c, d, 200, 0);
    scenario_write(&s, 0, 250, LINKS(ab, bc, cd));
    outcome *o = scenario_run_both(&s);
    static const kb_time starts[3][3] = {/* in ps, by link and packet */
                                         {0, 1000, 2000},
                                         {1500, 3500, 5500},
                                         {1500, 3500, 5500}};
    static const kb_time frees[3][3] = {{1000, 2000, 2500}, {3500, 5500, 6500}, {2000, 4000, 5750}};
    static const kb_time tails[3][3] = {{1000, 2000, 2500}, {3500, 5500, 6500}, {3500, 5500, 6500}};
    for (uint32_t at = 0; at < 3; at++)
        for (uint32_t packet = 0; packet < 3; packet++) {
            const net_booking *b0 = outcome_booking(o, 0, packet, at);
            assert_int_equal(b0->start, starts[at][packet] * KB_PS);
            assert_int_equal(b0->free_at, frees[at][packet] * KB_PS);
            assert_int_equal(b0->tail_leaves, tails[at][packet] * KB_PS);
            assert_int_equal(b0->bytes, packet < 2 ? 100 : 50);
        }
    assert_int_equal(o->total.hops, 9);
    assert_int_equal(o->completions[0].ended, 6500 * KB_PS);
    outcome_free(o);
    scenario_fini(&s);
}

/*
 * 256 GB/s for 1.025 ns are 262.4 bytes, so 263 are on their way. In packets of 256 that is 512,
 * and one more: 768; or 263 + depth if that is more. With packets of one byte 263 + 1. Without
 * latency it is the depth, or a packet.
 */
static void channels_hold_what_is_on_its_way_and_a_packet(void **state)
{
    (void)state;
    static const struct {
        uint32_t packet, depth;
        uint64_t near, far;
    } cases[] = {{256, 0, 768, 256}, {256, 505, 768, 505},  {256, 506, 769, 506},
                 {1, 0, 264, 1},     {1, 1024, 1287, 1024}, {263, 0, 526, 263}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scenario s;
        scenario_init(&s, plain);
        uint32_t a = scenario_node(&s, 0), b = scenario_node(&s, KB_NS);
        uint32_t ab = scenario_link(&s, a, b, 256, 25 * KB_PS);
        uint32_t ba = scenario_link(&s, b, a, 256, 0);
        expect_ok(topo_graph_finish(&s.graph));
        net_options options = {.fabric.packet_bytes = cases[i].packet,
                               .fabric.vcs = 1,
                               .fabric.depth_bytes = cases[i].depth};
        kb_sim *sim;
        net *n;
        expect_ok(kb_sim_create(NULL, &sim));
        expect_ok(net_create(sim, &s.graph, &options, &n));
        assert_int_equal(net_channel_bytes(n, ab), cases[i].near);
        assert_int_equal(net_channel_bytes(n, ba), cases[i].far);
        assert_int_equal(net_source_count(n), 8);
        net_destroy(n);
        kb_sim_destroy(sim);
        scenario_fini(&s);
    }
}

/* ---- L3: order --------------------------------------------------------------------------- */

/* Two packets of each, one transfer after the other: 0 1, 2 3, 4 5 ns. */
static void l3_a_source_is_first_in_first_out(void **state)
{
    (void)state;
    scenario s;
    scenario_init(&s, plain);
    uint32_t a = scenario_node(&s, 0), b = scenario_node(&s, 0);
    uint32_t ab = scenario_link(&s, a, b, 100, 0);
    for (uint32_t i = 0; i < 3; i++)
        scenario_write(&s, 0, 200, LINKS(ab));
    outcome *o = scenario_run_both(&s);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(outcome_start(o, i, 0, ab), 2 * KB_NS * i);
        assert_int_equal(outcome_start(o, i, 1, ab), KB_NS * (2 * i + 1));
        /* They wait behind others for 0, 2 and 4 ns. */
        expect_receipt(&o->completions[i], 0, 0, 2 * KB_NS, 2 * KB_NS * i);
    }
    /* The first packets of the second and third; the others are behind their own. */
    assert_int_equal(o->stats[ab].waited_fs, (2 + 4) * KB_NS);
    outcome_free(o);
    scenario_fini(&s);
}

/* So many inputs to one output; input i is link i, the output comes after them. */
static uint32_t funnel(scenario *s, uint32_t inputs)
{
    scenario_init(s, plain);
    uint32_t m = scenario_node(s, 0), d = scenario_node(s, 0);
    for (uint32_t i = 0; i < inputs; i++)
        (void)scenario_link(s, scenario_node(s, 0), m, 100, 0);
    return scenario_link(s, m, d, 100, 0);
}

/*
 * Two inputs, three packets each. A0 is at the output at 0 and starts; B0 comes at 0 and waits; A1
 * comes at 1, when B0 starts, and is behind it in the rotation: A B A B A B.
 *
 * Waiting: A0 0, B0 1, A1 (came at 1, starts at 2) 1, B1 (1, 3) 2, A2 (2, 4) 2, B2 (2, 5) 3: 9 ns.
 * A ends at 5 ns, 2 later than alone; B at 6.
 */
static void l3_two_inputs_take_turns(void **state)
{
    (void)state;
    scenario s;
    uint32_t out = funnel(&s, 2);
    scenario_write(&s, 0, 300, LINKS(0, out));
    scenario_write(&s, 0, 300, LINKS(1, out));
    outcome *o = scenario_run_both(&s);
    for (uint32_t packet = 0; packet < 3; packet++)
        for (uint32_t input = 0; input < 2; input++)
            assert_int_equal(outcome_start(o, input, packet, out), (2 * packet + input) * KB_NS);
    assert_int_equal(o->stats[out].waited_fs, 9 * KB_NS);
    assert_int_equal(o->stats[0].waited_fs, 0);
    assert_int_equal(o->stats[1].waited_fs, 0);
    expect_receipt(&o->completions[0], 0, 0, 3 * KB_NS, 2 * KB_NS);
    expect_receipt(&o->completions[1], 0, 0, 3 * KB_NS, 3 * KB_NS);
    outcome_free(o);
    scenario_fini(&s);
}

static void l3_three_inputs_take_turns(void **state)
{
    (void)state;
    scenario s;
    uint32_t out = funnel(&s, 3);
    for (uint32_t input = 0; input < 3; input++)
        scenario_write(&s, 0, 400, LINKS(input, out));
    outcome *o = scenario_run_both(&s);
    for (uint32_t packet = 0; packet < 4; packet++)
        for (uint32_t input = 0; input < 3; input++)
            assert_int_equal(outcome_start(o, input, packet, out), (3 * packet + input) * KB_NS);
    outcome_free(o);
    scenario_fini(&s);
}

/*
 * Input 0 has five packets, which come at 0, 1, 2, 3, 4. One of input 1 comes at 1.5 and one of
 * input 2 at 1.7: they are next, at 2 and 3. A2, which came at 2, is behind them: 4, 5, 6.
 */
static void l3_who_comes_later_is_behind_in_the_rotation(void **state)
{
    (void)state;
    scenario s;
    uint32_t out = funnel(&s, 3);
    scenario_write(&s, 0, 500, LINKS(0, out));
    scenario_write(&s, 1500 * KB_PS, 100, LINKS(1, out));
    scenario_write(&s, 1700 * KB_PS, 100, LINKS(2, out));
    outcome *o = scenario_run_both(&s);
    static const kb_time starts[] = {0, 1, 4, 5, 6};
    for (uint32_t packet = 0; packet < 5; packet++)
        assert_int_equal(outcome_start(o, 0, packet, out), starts[packet] * KB_NS);
    assert_int_equal(outcome_start(o, 1, 0, out), 2 * KB_NS);
    assert_int_equal(outcome_start(o, 2, 0, out), 3 * KB_NS);
    outcome_free(o);
    scenario_fini(&s);
}

/*
 * The channels of one port, and of one source, take turns like those of different ports: requests
 * and replies here, three packets each. Request 0 starts at 0, and request 1 stands in line before
 * reply 0 does; from then on they alternate.
 */
static void l3_channels_of_one_port_take_turns(void **state)
{
    (void)state;
    scenario s;
    uint32_t out = funnel(&s, 1);
    scenario_write(&s, 0, 300, LINKS(0, out));
    scenario_write(&s, 0, 300, LINKS(0, out))->reply = true;
    outcome *o = scenario_run_both(&s);
    static const kb_time starts[2][3] = {{0, 1, 3}, {2, 4, 5}};
    for (uint32_t packet = 0; packet < 3; packet++)
        for (uint32_t i = 0; i < 2; i++) {
            assert_int_equal(outcome_start(o, i, packet, 0), starts[i][packet] * KB_NS);
            assert_int_equal(outcome_start(o, i, packet, out), starts[i][packet] * KB_NS);
        }
    outcome_free(o);
    scenario_fini(&s);
}

/* ---- L4: back to back -------------------------------------------------------------------- */

/*
 * 256, 64, 256 GB/s, four nodes of 1 ns: alone 4 + 64 ns; the n-th ends 64 ns after the one before.
 */
static void l4_writes_follow_each_other_at_the_bottleneck(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 9; n++)
        for (uint32_t depth = 0; depth <= 8192; depth += 4096) {
            scenario s;
            scenario_init(&s, (net_options){.fabric.packet_bytes = 256, .fabric.vcs = 1 + n % 2});
            s.options.fabric.depth_bytes = depth;
            uint32_t links[3], from = scenario_node(&s, KB_NS);
            for (uint32_t j = 0; j < 3; j++) {
                uint32_t to = scenario_node(&s, KB_NS);
                links[j] = scenario_link(&s, from, to, j == 1 ? 64 : 256, 0);
                from = to;
            }
            for (uint32_t i = 0; i < n; i++)
                scenario_write(&s, 0, 4096, 3, links);
            outcome *o = scenario_run_both(&s);
            /* With several channels they share the way, but the last one ends at the same time. */
            for (uint32_t i = s.options.fabric.vcs == 1 ? 0 : n - 1; i < n; i++) {
                const net_completion *r = &o->completions[o->done[i]];
                expect_receipt(r, 4 * KB_NS, 0, 64 * KB_NS, 64 * KB_NS * i);
            }
            outcome_free(o);
            scenario_fini(&s);
        }
}

/*
 * Reads of 4096 bytes of a memory with 200 GB/s, all from one node: 10 + 1 + 50 + 1 + 10 ns, the
 * request 62.5 ps, the data 20.48 ns; and every further one 20.48 ns more, since what one node asks
 * for comes in order.
 */
static void l4_reads_follow_each_other_at_the_memory(void **state)
{
    (void)state;
    scenario s;
    scenario_init(&s, (net_options){.fabric.packet_bytes = 256, .fabric.vcs = 1});
    uint32_t pe = scenario_node(&s, 10 * KB_NS), router = scenario_node(&s, KB_NS);
    uint32_t memory = scenario_memory(&s, 50 * KB_NS, 200);
    uint32_t up = scenario_link(&s, pe, router, 256, 0);
    uint32_t in = scenario_link(&s, router, memory, 256, 0);
    uint32_t out = scenario_link(&s, memory, router, 256, 0);
    uint32_t down = scenario_link(&s, router, pe, 256, 0);
    for (uint32_t i = 0; i < 10; i++)
        scenario_read(&s, 0, 4096, LINKS(up, in), LINKS(scenario_service(&s, memory), out, down));
    outcome *o = scenario_run_both(&s);
    for (uint32_t i = 0; i < 10; i++) {
        assert_int_equal(o->completions[i].ended, 72 * KB_NS + 62500 + 20480000 * (kb_time)(i + 1));
        assert_int_equal(o->done[i], i);
    }
    outcome_free(o);
    scenario_fini(&s);
}

/* 1000 bytes at 3 GB/s are 333333333.3 fs: n of them end within n fs of n times that. */
static void l4_parts_that_do_not_divide_are_within_a_femtosecond_each(void **state)
{
    (void)state;
    scenario s;
    scenario_init(&s, plain);
    uint32_t a = scenario_node(&s, 0), b = scenario_node(&s, 0), c = scenario_node(&s, 0);
    uint32_t ab = scenario_link(&s, a, b, 7, 0), bc = scenario_link(&s, b, c, 3, 0);
    for (uint32_t i = 0; i < 20; i++)
        scenario_write(&s, 0, 1000, LINKS(ab, bc));
    outcome *o = scenario_run_both(&s);
    for (kb_time n = 1; n <= 20; n++) {
        kb_time exact = n * 1000000000 / 3;
        assert_in_range(o->completions[n - 1].ended, exact, exact + n);
    }
    outcome_free(o);
    scenario_fini(&s);
}

/* ---- L5, L8: capacity, work, conservation ------------------------------------------------ */

/*
 * Three inputs with 7, 1 and 13 packets, the last of 50, 10 and 100 bytes: 650 + 10 + 1300 = 1960
 * bytes are at the output before it has done its first packet, or while it is busy. So it is busy
 * from 0 to 19.6 ns without a break: utilisation 1.
 */
static void l5_l8_an_output_is_busy_while_there_is_work(void **state)
{
    (void)state;
    scenario s;
    uint32_t out = funnel(&s, 3);
    scenario_write(&s, 0, 650, LINKS(0, out));
    scenario_write(&s, 0, 10, LINKS(1, out));
    scenario_write(&s, 0, 1300, LINKS(2, out));
    outcome *o = scenario_run_both(&s);
    kb_time busy_until = 0;
    for (uint32_t i = o->first_of_link[out]; i < o->first_of_link[out + 1]; i++) {
        assert_int_equal(o->bookings[i].start, busy_until);
        busy_until = o->bookings[i].free_at;
    }
    assert_int_equal(busy_until, 19600 * KB_PS);
    assert_int_equal(o->stats[0].bytes, 650);
    assert_int_equal(o->stats[1].bytes, 10);
    assert_int_equal(o->stats[2].bytes, 1300);
    assert_int_equal(o->stats[out].bytes, 1960);
    assert_int_equal(o->total.link_bytes, 2 * 1960);
    assert_int_equal(o->total.hops, 2 * (7 + 1 + 13));
    outcome_free(o);
    scenario_fini(&s);
}

/* ---- L7: monotonicity -------------------------------------------------------------------- */

static kb_time alone(uint64_t bytes, uint32_t hops, uint64_t gbs, uint32_t packet)
{
    scenario s;
    scenario_init(&s, (net_options){.fabric.packet_bytes = packet, .fabric.vcs = 1});
    uint32_t links[6], from = scenario_node(&s, 300);
    for (uint32_t i = 0; i < hops; i++) {
        uint32_t to = scenario_node(&s, 700);
        links[i] = scenario_link(&s, from, to, i == 1 ? gbs : 100, 11);
        from = to;
    }
    scenario_write(&s, 0, bytes, hops, links);
    outcome *o = scenario_run(&s);
    kb_time total = o->completions[0].ended;
    outcome_free(o);
    scenario_fini(&s);
    return total;
}

static void l7_more_never_takes_less(void **state)
{
    (void)state;
    for (uint64_t bytes = 1; bytes < 300; bytes++)
        assert_true(alone(bytes + 1, 3, 77, 64) >= alone(bytes, 3, 77, 64));
    for (uint32_t hops = 1; hops < 6; hops++)
        assert_true(alone(333, hops + 1, 77, 64) >= alone(333, hops, 77, 64));
    for (uint64_t gbs = 1; gbs < 300; gbs++)
        assert_true(alone(333, 3, gbs + 1, 64) <= alone(333, 3, gbs, 64));
}

/*
 * L7 is of a lone transfer. With others a faster link may make the whole slower, as it changes who
 * comes first: a > m and b > m, then m > n, then n > x with 10 GB/s and n > y. A has two packets
 * from a to y; B has one from b to x, which comes to m at 1.5 ns and takes 10 ns on n > x.
 *
 * a > m with 50 GB/s: the second packet of A comes to m at 2 ns. m > n is free from 1 ns on, so B
 * starts at 1.5 and ends at 11.5 ns. With 100 GB/s it comes at 1 ns and has m > n until 2 ns: B
 * starts then and ends at 12 ns. A ends at 4 ns (its tail leaves a at 4), then at 2 ns.
 */
static void l7_a_faster_link_may_let_the_wrong_one_go_first(void **state)
{
    (void)state;
    static const struct {
        uint64_t gbs;
        kb_time a, b;
    } cases[] = {{50, 4 * KB_NS, 11500 * KB_PS}, {100, 2 * KB_NS, 12 * KB_NS}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scenario s;
        scenario_init(&s, plain);
        uint32_t a = scenario_node(&s, 0), b = scenario_node(&s, 0), m = scenario_node(&s, 0);
        uint32_t n = scenario_node(&s, 0), x = scenario_node(&s, 0), y = scenario_node(&s, 0);
        uint32_t am = scenario_link(&s, a, m, cases[i].gbs, 0),
                 bm = scenario_link(&s, b, m, 100, 0);
        uint32_t mn = scenario_link(&s, m, n, 100, 0);
        uint32_t nx = scenario_link(&s, n, x, 10, 0), ny = scenario_link(&s, n, y, 100, 0);
        scenario_write(&s, 0, 200, LINKS(am, mn, ny));
        scenario_write(&s, 1500 * KB_PS, 100, LINKS(bm, mn, nx));
        outcome *o = scenario_run_both(&s);
        assert_int_equal(o->completions[0].ended, cases[i].a);
        assert_int_equal(o->completions[1].ended, cases[i].b);
        outcome_free(o);
        scenario_fini(&s);
    }
}

/* ---- What waits -------------------------------------------------------------------------- */

/*
 * Waiting counts behind other transfers, also if one of them ended before: m > n > x, y, no depth;
 * nx 10 GB/s. E has nx from 0 to 10; A comes at 1 ns and fills the channel of requests behind mn
 * until
 * 20. R, a reply to y, passes mn at 3 and is done at 4. F, a request to y, comes at 5 and waits for
 * space until 20: 15 ns. R was the last one on mn, but it is not what F waited for; and F is not R.
 */
static void waiting_is_told_from_a_transfer_that_is_gone(void **state)
{
    (void)state;
    scenario s;
    scenario_init(&s, (net_options){.fabric.packet_bytes = 100, .fabric.vcs = 1});
    uint32_t m = scenario_node(&s, 0), n = scenario_node(&s, 0);
    uint32_t en = scenario_link(&s, scenario_node(&s, 0), n, 100, 0);
    uint32_t mn = scenario_link(&s, m, n, 100, 0);
    uint32_t nx = scenario_link(&s, n, scenario_node(&s, 0), 10, 0);
    uint32_t ny = scenario_link(&s, n, scenario_node(&s, 0), 100, 0);
    scenario_write(&s, 0, 100, LINKS(en, nx));
    scenario_write(&s, 1 * KB_NS, 100, LINKS(mn, nx));
    scenario_write(&s, 3 * KB_NS, 100, LINKS(mn, ny))->reply = true;
    scenario_write(&s, 5 * KB_NS, 100, LINKS(mn, ny));
    outcome *o = scenario_run_both(&s);
    assert_int_equal(outcome_start(o, 3, 0, mn), 20 * KB_NS);
    assert_int_equal(o->stats[mn].waited_fs, 15 * KB_NS);
    assert_int_equal(o->stats[nx].waited_fs, 9 * KB_NS);
    assert_int_equal(o->stats[ny].waited_fs, 0);
    outcome_free(o);
    scenario_fini(&s);
}

/*
 * Two transfers whose tails come over slow links, 10 GB/s, to a fast one, 100 GB/s, at one instant:
 * heads at m at 0, mx has 0 to 1 and 1 to 2, and both tails leave at 10. They end in the order in
 * which they started there.
 */
static void ends_at_one_instant_keep_the_order_of_the_link(void **state)
{
    (void)state;
    for (uint32_t rounds = 1; rounds < 12; rounds++) {
        scenario s;
        scenario_init(&s, plain);
        uint32_t m = scenario_node(&s, 0), x = scenario_node(&s, 0), inputs[12];
        for (uint32_t i = 0; i < rounds + 1; i++)
            inputs[i] = scenario_link(&s, scenario_node(&s, 0), m, 10, 0);
        uint32_t mx = scenario_link(&s, m, x, 100, 0);
        for (uint32_t i = 0; i < rounds + 1; i++)
            scenario_write(&s, 0, 100, LINKS(inputs[rounds - i], mx));
        outcome *o = scenario_run_both(&s);
        for (uint32_t i = 1; i <= rounds && i < 10; i++) {
            uint32_t before = o->done[i - 1], after = o->done[i];
            assert_int_equal(o->completions[after].ended, 10 * KB_NS);
            assert_true(outcome_start(o, before, 0, mx) < outcome_start(o, after, 0, mx));
        }
        outcome_free(o);
        scenario_fini(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(l1_a_write_of_equal_links),
        cmocka_unit_test(l1_the_slowest_link_counts_wherever_it_is),
        cmocka_unit_test(l1_reads_and_writes_of_a_memory),
        cmocka_unit_test(l1_what_is_forwarded_is_charged_once),
        cmocka_unit_test(l1_a_forwarded_read_is_charged_on_its_way_back),
        cmocka_unit_test(l3_what_is_forwarded_keeps_its_place),
        cmocka_unit_test(l1_packets_move_cut_through),
        cmocka_unit_test(channels_hold_what_is_on_its_way_and_a_packet),
        cmocka_unit_test(l3_a_source_is_first_in_first_out),
        cmocka_unit_test(l3_two_inputs_take_turns),
        cmocka_unit_test(l3_three_inputs_take_turns),
        cmocka_unit_test(l3_who_comes_later_is_behind_in_the_rotation),
        cmocka_unit_test(l3_channels_of_one_port_take_turns),
        cmocka_unit_test(l4_writes_follow_each_other_at_the_bottleneck),
        cmocka_unit_test(l4_reads_follow_each_other_at_the_memory),
        cmocka_unit_test(l4_parts_that_do_not_divide_are_within_a_femtosecond_each),
        cmocka_unit_test(l5_l8_an_output_is_busy_while_there_is_work),
        cmocka_unit_test(l7_more_never_takes_less),
        cmocka_unit_test(l7_a_faster_link_may_let_the_wrong_one_go_first),
        cmocka_unit_test(waiting_is_told_from_a_transfer_that_is_gone),
        cmocka_unit_test(ends_at_one_instant_keep_the_order_of_the_link),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
