/*
 * test_blocking.c: L6, who holds up whom: packets that wait, channels that are full, and ports that
 * send one packet at a time. On machines built by hand, with numbers worked out by hand.
 *
 * Where the text says nothing else, links have 100 GB/s: 100 bytes take 1 ns.
 */
#include "net/scenario.h"

static const net_options plain = {
    .fabric.packet_bytes = 100, .fabric.vcs = 1, .fabric.depth_bytes = 100000};

/* ---- L6: head-of-line blocking ----------------------------------------------------------- */

/*
 * a, b, d > m > x, y. Packets are 1000 bytes here. B, from b to x, starts on mx at 0: busy until
 * 10 ns. A, 100 bytes, a to x, is at m at 1 ns and waits for mx until 10. C, 100 bytes, a to y,
 * comes behind it at 2 ns. In the same channel it waits until A has started, at 10; in another one
 * it starts at 2. D, from d to y at 1 ns, is held up by nothing: it is done at 2.
 */
typedef enum c_is { C_THE_SAME, C_A_REPLY, C_IN_ANOTHER_PHASE } c_is;

static void expect_hold_up(uint32_t vcs, c_is what, kb_time c_starts)
{
    scenario s;
    scenario_init(
        &s,
        (net_options){.fabric.packet_bytes = 1000, .fabric.vcs = vcs, .fabric.depth_bytes = 2000});
    uint32_t m = scenario_node(&s, 0), x = scenario_node(&s, 0), y = scenario_node(&s, 0);
    uint32_t am = scenario_link(&s, scenario_node(&s, 0), m, 100, 0);
    uint32_t bm = scenario_link(&s, scenario_node(&s, 0), m, 100, 0);
    uint32_t dm = scenario_link(&s, scenario_node(&s, 0), m, 100, 0);
    uint32_t mx = scenario_link(&s, m, x, 100, 0), my = scenario_link(&s, m, y, 100, 0);
    scenario_write(&s, 0, 1000, LINKS(bm, mx));
    scenario_write(&s, 1 * KB_NS, 100, LINKS(am, mx));
    planned *c = scenario_write(&s, 1 * KB_NS, 100, LINKS(am, my));
    c->reply = what == C_A_REPLY;
    if (what == C_IN_ANOTHER_PHASE)
        c->out.steps[0] = topo_step(am, TOPO_AFTER);
    scenario_write(&s, 1 * KB_NS, 100, LINKS(dm, my));
    outcome *o = scenario_run_both(&s);
    assert_int_equal(outcome_start(o, 1, 0, mx), 10 * KB_NS);
    assert_int_equal(outcome_start(o, 2, 0, am), 2 * KB_NS);
    assert_int_equal(outcome_start(o, 2, 0, my), c_starts);
    assert_int_equal(outcome_start(o, 3, 0, my), 1 * KB_NS);
    assert_int_equal(o->completions[2].ended, c_starts + KB_NS);
    assert_int_equal(o->completions[3].ended, 2 * KB_NS);
    outcome_free(o);
    scenario_fini(&s);
}

static void l6_a_packet_that_waits_holds_up_its_own_channel_alone(void **state)
{
    (void)state;
    expect_hold_up(1, C_THE_SAME, 10 * KB_NS);
    expect_hold_up(2, C_THE_SAME, 2 * KB_NS);
    expect_hold_up(1, C_A_REPLY, 2 * KB_NS);
    expect_hold_up(1, C_IN_ANOTHER_PHASE, 2 * KB_NS);
}

/*
 * a, f > m > n > x, y; also e > n and m > z. No depth and no latency: a channel holds one packet.
 * nx has 10 GB/s: 10 ns a packet.
 *
 * E, from e to x, has nx from 0 to 10. A, two packets from a to x at 1 ns: A0 comes to n at 1 and
 * waits there, in the channel behind mn, until 10; its tail leaves at 20. A1 comes to m at 2 and
 * finds that channel full: it starts at 20 on mn and nx, and leaves at 30.
 *
 * F, a packet from f to y, comes to m at 3. It wants the same channel: A1, which was blocked before
 * it, goes first at 20, so F starts at 30. With another channel, because it is a reply or because
 * there are two, it starts at 3. G, from f' to z, does not want that channel and starts at 3 too.
 */
static void expect_full(uint32_t vcs, bool reply, kb_time f_starts)
{
    scenario s;
    scenario_init(&s, (net_options){.fabric.packet_bytes = 100, .fabric.vcs = vcs});
    uint32_t m = scenario_node(&s, 0), n = scenario_node(&s, 0);
    uint32_t am = scenario_link(&s, scenario_node(&s, 0), m, 100, 0);
    uint32_t fm = scenario_link(&s, scenario_node(&s, 0), m, 100, 0);
    uint32_t gm = scenario_link(&s, scenario_node(&s, 0), m, 100, 0);
    uint32_t en = scenario_link(&s, scenario_node(&s, 0), n, 100, 0);
    uint32_t mn = scenario_link(&s, m, n, 100, 0);
    uint32_t nx = scenario_link(&s, n, scenario_node(&s, 0), 10, 0);
    uint32_t ny = scenario_link(&s, n, scenario_node(&s, 0), 100, 0);
    uint32_t mz = scenario_link(&s, m, scenario_node(&s, 0), 100, 0);
    scenario_write(&s, 0, 100, LINKS(en, nx));
    scenario_write(&s, 1 * KB_NS, 200, LINKS(am, mn, nx));
    scenario_write(&s, 3 * KB_NS, 100, LINKS(fm, mn, ny))->reply = reply;
    scenario_write(&s, 3 * KB_NS, 100, LINKS(gm, mz));
    outcome *o = scenario_run_both(&s);
    assert_int_equal(outcome_start(o, 1, 0, mn), 1 * KB_NS);
    assert_int_equal(outcome_start(o, 1, 0, nx), 10 * KB_NS);
    assert_int_equal(outcome_start(o, 1, 1, am), 2 * KB_NS);
    assert_int_equal(outcome_start(o, 1, 1, mn), 20 * KB_NS);
    assert_int_equal(outcome_start(o, 1, 1, nx), 20 * KB_NS);
    assert_int_equal(outcome_start(o, 2, 0, fm), 3 * KB_NS);
    assert_int_equal(outcome_start(o, 2, 0, mn), f_starts);
    assert_int_equal(outcome_start(o, 2, 0, ny), f_starts);
    assert_int_equal(outcome_start(o, 3, 0, mz), 3 * KB_NS);
    outcome_free(o);
    scenario_fini(&s);
}

static void l6_a_full_channel_holds_up_who_wants_to_enter_it_alone(void **state)
{
    (void)state;
    expect_full(1, false, 30 * KB_NS);
    expect_full(2, false, 3 * KB_NS);
    expect_full(1, true, 3 * KB_NS);
}

/* a > m > x: 100 and 10 GB/s, a channel of so many packets between them. A packet leaves mx at 10,
 * 20, 30 ns .. and then one more starts on am. Those that have room from the start go at 0, 1, 2.
 */
static void l6_a_full_channel_throttles_its_source(void **state)
{
    (void)state;
    for (uint32_t depth = 1; depth <= 4; depth++) {
        scenario s;
        scenario_init(&s, (net_options){.fabric.packet_bytes = 100, .fabric.vcs = 1});
        s.options.fabric.depth_bytes = depth * 100;
        uint32_t m = scenario_node(&s, 0);
        uint32_t am = scenario_link(&s, scenario_node(&s, 0), m, 100, 0);
        uint32_t mx = scenario_link(&s, m, scenario_node(&s, 0), 10, 0);
        scenario_write(&s, 0, 1000, LINKS(am, mx));
        outcome *o = scenario_run_both(&s);
        for (uint32_t packet = 0; packet < 10; packet++) {
            kb_time start = packet < depth ? packet : 10 * (packet - depth + 1);
            assert_int_equal(outcome_start(o, 0, packet, am), start * KB_NS);
            assert_int_equal(outcome_start(o, 0, packet, mx), 10 * KB_NS * packet);
        }
        outcome_free(o);
        scenario_fini(&s);
    }
}

/*
 * Which channel a transfer takes. m > x is slow, so all of these gather behind link 0, where there
 * are three channels for requests, numbers 0, 1 and 2. The first four transfers start there at 0,
 * 2, 4 and 5 ns. First 0 (two packets), second 1 (two packets), third 2 (one packet). The fourth
 * finds no empty one; it is the turn of 0, whose transfer has passed. All packets follow their
 * first one.
 */
static void l6_transfers_take_channels_in_rotation(void **state)
{
    (void)state;
    scenario s;
    scenario_init(&s, plain);
    s.options.fabric.vcs = 3;
    uint32_t m = scenario_node(&s, 0);
    uint32_t am = scenario_link(&s, scenario_node(&s, 0), m, 100, 0);
    uint32_t mx = scenario_link(&s, m, scenario_node(&s, 0), 1, 0);
    static const uint64_t bytes[] = {200, 200, 100, 300, 100};
    static const uint32_t channels[] = {0, 1, 2, 0, 1};
    for (uint32_t i = 0; i < 5; i++)
        scenario_write(&s, 0, bytes[i], LINKS(am, mx));
    outcome *o = scenario_run_both(&s);
    for (uint32_t i = 0; i < 5; i++)
        for (uint32_t packet = 0; packet < bytes[i] / 100; packet++)
            assert_int_equal(outcome_booking(o, i, packet, am)->channel, channels[i]);
    outcome_free(o);
    scenario_fini(&s);
}

/*
 * Requests and replies leave a node by turns on one link: with two channels a class, a request that
 * has more to come keeps its channel, and so the next one takes the other, even if that is not
 * empty.
 */
static void l6_a_channel_that_is_passed_through_is_left_alone(void **state)
{
    (void)state;
    scenario s;
    scenario_init(&s, plain);
    s.options.fabric.vcs = 2;
    uint32_t m = scenario_node(&s, 0), k = scenario_node(&s, 0);
    uint32_t ak = scenario_link(&s, scenario_node(&s, 0), k, 100, 0);
    uint32_t bk = scenario_link(&s, scenario_node(&s, 0), k, 100, 0);
    uint32_t km = scenario_link(&s, k, m, 100, 0);
    uint32_t mx = scenario_link(&s, m, scenario_node(&s, 0), 1, 0);
    scenario_write(&s, 0, 100, LINKS(bk, km, mx));         /* 0 ns: channel 0 */
    scenario_write(&s, KB_NS, 100, LINKS(bk, km, mx));     /* 1 ns: channel 1 */
    scenario_write(&s, 2 * KB_NS, 500, LINKS(ak, km, mx)); /* 2 ns: the turn of channel 0 */
    scenario_write(&s, 3 * KB_NS, 100, LINKS(bk, km, mx)); /* 3 ns: 1 */
    scenario_write(&s, 5 * KB_NS, 100, LINKS(bk, km, mx)); /* 5 ns: again 1: 0 is in use */
    outcome *o = scenario_run_both(&s);
    static const uint32_t channels[] = {0, 1, 0, 1, 1};
    uint32_t first = 4 * 2 * km;
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(outcome_booking(o, i, 0, km)->channel, first + channels[i]);
    outcome_free(o);
    scenario_fini(&s);
}

/* ---- Serial ports ------------------------------------------------------------------------ */

/*
 * As in expect_hold_up, but both mx and my are busy until 10 ns, with B and D of 1000 bytes. A to x
 * and C to y wait in two channels of one port. Both can start at 10; but a serial port sends A
 * first, for 1 ns, and then C.
 */
static void a_serial_port_sends_one_packet_at_a_time(void **state)
{
    (void)state;
    for (int serial = 0; serial < 2; serial++) {
        scenario s;
        scenario_init(&s, (net_options){.fabric.packet_bytes = 1000, .fabric.vcs = 2});
        s.options.fabric.serial_ports = serial;
        uint32_t m = scenario_node(&s, 0), x = scenario_node(&s, 0), y = scenario_node(&s, 0);
        uint32_t am = scenario_link(&s, scenario_node(&s, 0), m, 100, 0);
        uint32_t bm = scenario_link(&s, scenario_node(&s, 0), m, 100, 0);
        uint32_t dm = scenario_link(&s, scenario_node(&s, 0), m, 100, 0);
        uint32_t mx = scenario_link(&s, m, x, 100, 0), my = scenario_link(&s, m, y, 100, 0);
        scenario_write(&s, 0, 1000, LINKS(bm, mx));
        scenario_write(&s, 0, 1000, LINKS(dm, my));
        scenario_write(&s, 1 * KB_NS, 100, LINKS(am, mx));
        scenario_write(&s, 1 * KB_NS, 100, LINKS(am, my));
        outcome *o = scenario_run_both(&s);
        assert_int_equal(outcome_start(o, 2, 0, mx), 10 * KB_NS);
        assert_int_equal(outcome_start(o, 3, 0, my), (serial ? 11 : 10) * KB_NS);
        outcome_free(o);
        scenario_fini(&s);
    }
}

/*
 * As before, but there are two packets for x, A and A', in one channel, and C for y in the other.
 * At 10 ns the port sends A. At 11 both mx and my want to be served; it is the turn of my, though
 * mx comes first at each instant: C at 11, A' at 12.
 */
static void a_serial_port_takes_turns_among_links(void **state)
{
    (void)state;
    scenario s;
    scenario_init(
        &s,
        (net_options){.fabric.packet_bytes = 1000, .fabric.vcs = 2, .fabric.serial_ports = true});
    uint32_t m = scenario_node(&s, 0), x = scenario_node(&s, 0), y = scenario_node(&s, 0);
    uint32_t am = scenario_link(&s, scenario_node(&s, 0), m, 100, 0);
    uint32_t bm = scenario_link(&s, scenario_node(&s, 0), m, 100, 0);
    uint32_t dm = scenario_link(&s, scenario_node(&s, 0), m, 100, 0);
    uint32_t mx = scenario_link(&s, m, x, 100, 0), my = scenario_link(&s, m, y, 100, 0);
    scenario_write(&s, 0, 1000, LINKS(bm, mx));
    scenario_write(&s, 0, 1000, LINKS(dm, my));
    scenario_write(&s, 1 * KB_NS, 100, LINKS(am, mx));
    scenario_write(&s, 1 * KB_NS, 100, LINKS(am, my));
    scenario_write(&s, 1 * KB_NS, 100, LINKS(am, mx));
    outcome *o = scenario_run_both(&s);
    assert_int_equal(outcome_start(o, 2, 0, mx), 10 * KB_NS);
    assert_int_equal(outcome_start(o, 3, 0, my), 11 * KB_NS);
    assert_int_equal(outcome_start(o, 4, 0, mx), 12 * KB_NS);
    outcome_free(o);
    scenario_fini(&s);
}

/*
 * mx is busy until 10 ns with a packet from e. Meanwhile A and A' come from a, in two channels, at
 * 1 and 2, and B from b at 3. With serial ports a link takes turns among ports: A, B, A'; else
 * among channels: A, A', B.
 */
static void a_link_takes_turns_among_serial_ports(void **state)
{
    (void)state;
    for (int serial = 0; serial < 2; serial++) {
        scenario s;
        scenario_init(&s, (net_options){.fabric.packet_bytes = 1000,
                                        .fabric.vcs = 2,
                                        .fabric.serial_ports = serial});
        uint32_t m = scenario_node(&s, 0);
        uint32_t am = scenario_link(&s, scenario_node(&s, 0), m, 100, 0);
        uint32_t bm = scenario_link(&s, scenario_node(&s, 0), m, 100, 0);
        uint32_t em = scenario_link(&s, scenario_node(&s, 0), m, 100, 0);
        uint32_t mx = scenario_link(&s, m, scenario_node(&s, 0), 100, 0);
        scenario_write(&s, 0, 1000, LINKS(em, mx));
        scenario_write(&s, 1 * KB_NS, 100, LINKS(am, mx));
        scenario_write(&s, 1 * KB_NS, 100, LINKS(am, mx));
        scenario_write(&s, 3 * KB_NS, 100, LINKS(bm, mx));
        outcome *o = scenario_run_both(&s);
        assert_int_equal(outcome_start(o, 1, 0, mx), 10 * KB_NS);
        assert_int_equal(outcome_start(o, 2, 0, mx), (serial ? 12 : 11) * KB_NS);
        assert_int_equal(outcome_start(o, 3, 0, mx), (serial ? 11 : 12) * KB_NS);
        outcome_free(o);
        scenario_fini(&s);
    }
}

/*
 * a, b, c > m > n > x, all 100 GB/s but the last, which has 10. b and c send 200 transfers of 10
 * bytes each from the start: n's channel is full after some 22 ns, and m > n goes at the rate of n
 * > x, 1 ns for each. A packet of 100 bytes that comes from a at 50 ns takes its turn among them:
 * one of b and one of c may go before it, and the 2000 bytes of depth and those two are before it
 * at n: 202 ns.
 */
static void small_packets_do_not_keep_a_large_one_out(void **state)
{
    (void)state;
    scenario s;
    scenario_init(
        &s, (net_options){.fabric.packet_bytes = 100, .fabric.vcs = 1, .fabric.depth_bytes = 2000});
    uint32_t m = scenario_node(&s, 0), n = scenario_node(&s, 0), x = scenario_node(&s, 0);
    uint32_t am = scenario_link(&s, scenario_node(&s, 0), m, 100, 0);
    uint32_t bm = scenario_link(&s, scenario_node(&s, 0), m, 100, 0);
    uint32_t cm = scenario_link(&s, scenario_node(&s, 0), m, 100, 0);
    uint32_t mn = scenario_link(&s, m, n, 100, 0), nx = scenario_link(&s, n, x, 10, 0);
    scenario_write(&s, 50 * KB_NS, 100, LINKS(am, mn, nx));
    for (uint32_t i = 0; i < 200; i++) {
        scenario_write(&s, 0, 10, LINKS(bm, mn, nx));
        scenario_write(&s, 0, 10, LINKS(cm, mn, nx));
    }
    outcome *o = scenario_run_both(&s);
    kb_time took = o->completions[0].ended - o->completions[0].issued;
    assert_true(took > 100 * KB_NS);
    assert_true(took < 240 * KB_NS); /* all of the others take 400 */
    outcome_free(o);
    scenario_fini(&s);
}

/*
 * a > m > x with 100 GB/s, and m itself sends to x: 100 transfers of a packet, from 0. With serial
 * ports what comes from a takes its turn with those: ten packets from 0 are through after 20 or so.
 */
static void a_source_leaves_serial_ports_their_turn(void **state)
{
    (void)state;
    scenario s;
    scenario_init(&s, (net_options){.fabric.packet_bytes = 100,
                                    .fabric.vcs = 1,
                                    .fabric.depth_bytes = 1000,
                                    .fabric.serial_ports = true});
    uint32_t m = scenario_node(&s, 0), x = scenario_node(&s, 0);
    uint32_t am = scenario_link(&s, scenario_node(&s, 0), m, 100, 0);
    uint32_t mx = scenario_link(&s, m, x, 100, 0);
    scenario_write(&s, 0, 1000, LINKS(am, mx));
    for (uint32_t i = 0; i < 100; i++)
        scenario_write(&s, 0, 100, LINKS(mx));
    outcome *o = scenario_run_both(&s);
    assert_true(o->completions[0].ended < 25 * KB_NS);
    outcome_free(o);
    scenario_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_packets_do_not_keep_a_large_one_out),
        cmocka_unit_test(a_source_leaves_serial_ports_their_turn),
        cmocka_unit_test(l6_a_packet_that_waits_holds_up_its_own_channel_alone),
        cmocka_unit_test(l6_a_full_channel_holds_up_who_wants_to_enter_it_alone),
        cmocka_unit_test(l6_a_full_channel_throttles_its_source),
        cmocka_unit_test(l6_transfers_take_channels_in_rotation),
        cmocka_unit_test(l6_a_channel_that_is_passed_through_is_left_alone),
        cmocka_unit_test(a_serial_port_sends_one_packet_at_a_time),
        cmocka_unit_test(a_serial_port_takes_turns_among_links),
        cmocka_unit_test(a_link_takes_turns_among_serial_ports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
