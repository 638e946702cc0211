/*
 * test_reservations.c: packet trains that share links, one after the other, make no difference to
 * any result; nor do packets that come near them. Traffic has equal times everywhere, few links and
 * many transfers, so that most of what can happen at one instant does. How messages moved is
 * counted, so that no case passes because everything moved as packets.
 *
 * Checks N7.
 */
#include "net/scenario.h"
#include "support/seed.h"

/* ---- By chance --------------------------------------------------------------------------- */

static net_train_stats total;
static uint64_t compared;

static void add_stats(const net_train_stats *stats)
{
    total.whole += stats->whole;
    for (int i = 0; i < NET_PACKETS_CAUSES; i++)
        total.as_packets[i] += stats->as_packets[i];
    for (int i = 0; i < NET_UNFOLD_CAUSES; i++)
        total.unfolded[i] += stats->unfolded[i];
    total.coalesced += stats->coalesced;
    total.coalesced_unfolded += stats->coalesced_unfolded;
}

/* The two transports have the same completions, order of ends, and figures of links. */
static void compare(scenario *s, uint64_t seed)
{
    s->watch_from = KB_FOREVER;
    outcome *trains = scenario_run(s);
    s->options.no_elision = true;
    outcome *packets = scenario_run(s);
    char what[40];
    (void)snprintf(what, sizeof what, "seed %ju", (uintmax_t)seed);
    outcomes_are_equal(trains, packets, what);
    assert_int_equal(packets->trains.whole, 0);
    add_stats(&trains->trains);
    compared++;
    outcome_free(trains);
    outcome_free(packets);
}

static void compare_many(uint64_t first, uint64_t count, const chance *how)
{
    count = scenario_cases(count);
    for (uint64_t seed = first; seed < first + count; seed++) {
        kb_rng rng;
        kb_rng_init(&rng, test_seed(seed));
        scenario s;
        scenario_random(&s, &rng, how);
        compare(&s, seed);
        scenario_fini(&s);
    }
}

/*
 * A line of nodes with side inputs and outputs: a0 > m0 > m1 > .. > x, and b_i > m_i > y_i. Links
 * take 1, 2 or 4 ps for a byte, latencies are 1 to 8 ps, and transfers begin at multiples of 4 ps;
 * so trains follow each other closely on shared links, from the same source and from others.
 */
static void draw_line(scenario *s, kb_rng *rng, uint32_t orders, kb_time spread)
{
    enum { MIDDLES = 4 };
    scenario_init(s, (net_options){.fabric.packet_bytes = 1 + (uint32_t)kb_rng_below(rng, 4),
                                   .fabric.vcs = 1 + (uint32_t)kb_rng_below(rng, 4)});
    s->options.fabric.depth_bytes = (uint32_t)kb_rng_below(rng, 4) * s->options.fabric.packet_bytes;
    s->submit_first = kb_rng_below(rng, 2);
    uint32_t middle[MIDDLES], in[MIDDLES], out[MIDDLES], along[MIDDLES - 1];
    kb_time equal = 1 + (kb_time)kb_rng_below(rng, 8);
    bool all_equal = kb_rng_below(rng, 2);
    for (uint32_t i = 0; i < MIDDLES; i++) {
        kb_time latency = all_equal ? equal : 1 + (kb_time)kb_rng_below(rng, 8);
        middle[i] = scenario_node(s, latency * KB_PS);
    }
    for (uint32_t i = 0; i < MIDDLES; i++) {
        uint64_t rate = all_equal ? 1000 : 1000u >> kb_rng_below(rng, 3);
        in[i] = scenario_link(s, scenario_node(s, 0), middle[i], rate, 0);
        out[i] = scenario_link(s, middle[i], scenario_node(s, 0), 1000, 0);
        if (i > 0)
            along[i - 1] = scenario_link(s, middle[i - 1], middle[i],
                                         all_equal ? 1000 : 1000u >> kb_rng_below(rng, 3), 0);
    }
    for (uint32_t k = 0; k < orders; k++) {
        uint32_t first = (uint32_t)kb_rng_below(rng, MIDDLES), links[MIDDLES + 1], count = 0;
        uint32_t last = first + (uint32_t)kb_rng_below(rng, MIDDLES - first);
        links[count++] = in[first];
        for (uint32_t i = first; i < last; i++)
            links[count++] = along[i];
        links[count++] = out[last];
        kb_time at = 4 * (kb_time)kb_rng_below(rng, (uint64_t)spread) * KB_PS;
        uint64_t bytes = kb_rng_below(rng, 2)
                             ? s->options.fabric.packet_bytes * (1 + kb_rng_below(rng, 6))
                             : 1 + kb_rng_below(rng, 12);
        planned *p = scenario_write(s, at, bytes, count, links);
        p->reply = kb_rng_below(rng, 8) == 0;
        if (k > 0 && kb_rng_below(rng, 4) == 0)
            p->after = (uint32_t)kb_rng_below(rng, k);
    }
}

static void compare_lines(uint64_t first, uint64_t count, uint32_t orders, kb_time spread)
{
    count = scenario_cases(count);
    for (uint64_t seed = first; seed < first + count; seed++) {
        kb_rng rng;
        kb_rng_init(&rng, test_seed(seed));
        scenario s;
        draw_line(&s, &rng, orders, spread);
        compare(&s, seed);
        scenario_fini(&s);
    }
}

/*
 * PEs that read memories through a crossbar, large blocks and small ones, and write to them and to
 * each other: m > x > p and back. A memory serves its readers in turns, so most of the large blocks
 * begin as packets, or are unfolded, and what is left of them is coalesced into trains.
 */
typedef struct readers {
    enum { PES = 4, MEMORIES = 2 } counts;
    uint32_t memory[MEMORIES], to_memory[MEMORIES], from_memory[MEMORIES];
    uint32_t to_pe[PES], from_pe[PES];
} readers;

static uint64_t draw_gbs(kb_rng *rng, bool is_even)
{
    static const uint64_t even[] = {1000, 500, 250}, uneven[] = {1000, 769, 613, 500, 333, 250};
    return is_even ? even[kb_rng_below(rng, 3)] : uneven[kb_rng_below(rng, 6)];
}

static void draw_crossbar(scenario *s, kb_rng *rng, readers *all)
{
    bool is_even = kb_rng_below(rng, 2), is_near = kb_rng_below(rng, 2);
    uint64_t memory_gbs = kb_rng_below(rng, 2) ? 250 : draw_gbs(rng, is_even);
    kb_time latency = (kb_time)(is_near ? 1 + kb_rng_below(rng, 8) : 20 + kb_rng_below(rng, 60));
    uint32_t x = scenario_node(s, (kb_time)(1 + kb_rng_below(rng, 8)) * KB_PS);
    for (uint32_t i = 0; i < MEMORIES; i++) {
        all->memory[i] = scenario_memory(s, latency * KB_PS, memory_gbs);
        all->to_memory[i] = scenario_link(s, x, all->memory[i], draw_gbs(rng, is_even), 0);
        all->from_memory[i] = scenario_link(s, all->memory[i], x, draw_gbs(rng, is_even), 0);
    }
    for (uint32_t i = 0; i < PES; i++) {
        uint32_t pe = scenario_node(s, (kb_time)(1 + kb_rng_below(rng, 4)) * KB_PS);
        all->to_pe[i] = scenario_link(s, x, pe, draw_gbs(rng, is_even), 0);
        all->from_pe[i] = scenario_link(s, pe, x, draw_gbs(rng, is_even), 0);
    }
}

static void draw_readers(scenario *s, kb_rng *rng, uint32_t orders, kb_time spread)
{
    readers all;
    scenario_init(s, (net_options){.fabric.packet_bytes = 1 + (uint32_t)kb_rng_below(rng, 8),
                                   .fabric.vcs = 1 + (uint32_t)kb_rng_below(rng, 4)});
    s->options.fabric.depth_bytes = (uint32_t)kb_rng_below(rng, 4) * s->options.fabric.packet_bytes;
    s->submit_first = kb_rng_below(rng, 2);
    draw_crossbar(s, rng, &all);
    uint64_t full = s->options.fabric.packet_bytes;
    for (uint32_t k = 0; k < orders; k++) {
        uint32_t m = (uint32_t)kb_rng_below(rng, MEMORIES), pe = (uint32_t)kb_rng_below(rng, PES);
        bool is_large = kb_rng_below(rng, 3) == 0;
        uint64_t packets = is_large ? 20 + kb_rng_below(rng, 100) : 1 + kb_rng_below(rng, 4);
        uint64_t bytes = full * packets - (kb_rng_below(rng, 2) ? 0 : kb_rng_below(rng, full));
        kb_time at = 4 * (kb_time)kb_rng_below(rng, (uint64_t)spread) * KB_PS;
        uint32_t service = scenario_service(s, all.memory[m]);
        planned *p;
        switch (kb_rng_below(rng, 8)) {
        case 0:
            p = scenario_write(s, at, bytes, LINKS(all.from_pe[pe], all.to_memory[m], service));
            break;
        case 1:
            p = scenario_write(s, at, bytes, LINKS(all.from_pe[pe], all.to_pe[(pe + 1) % PES]));
            break;
        default:
            p = scenario_read(s, at, bytes, LINKS(all.from_pe[pe], all.to_memory[m]),
                              LINKS(service, all.from_memory[m], all.to_pe[pe]));
        }
        if (k > 0 && kb_rng_below(rng, 4) == 0)
            p->after = (uint32_t)kb_rng_below(rng, k);
    }
}

static void compare_readers(uint64_t first, uint64_t count, uint32_t orders, kb_time spread)
{
    count = scenario_cases(count);
    for (uint64_t seed = first; seed < first + count; seed++) {
        kb_rng rng;
        kb_rng_init(&rng, test_seed(seed));
        scenario s;
        draw_readers(&s, &rng, orders, spread);
        compare(&s, seed);
        scenario_fini(&s);
    }
}

/* Of all messages some part stays whole, and each cause of unfolding and of packets is there. */
static void causes_have_occurred(uint64_t least_whole)
{
    assert_true(total.whole >= least_whole * compared);
    assert_true(total.as_packets[NET_TRAIN_IN_THE_WAY] > 0);
    assert_true(total.as_packets[NET_PACKETS_IN_THE_WAY] > 0);
    assert_true(total.unfolded[NET_PACKET_MET] > 0);
    assert_true(total.unfolded[NET_PACKET_WAITED] > 0);
    assert_true(total.unfolded[NET_SOURCE_TAKEN] > 0);
    total = (net_train_stats){0};
    compared = 0;
}

static void sparse_traffic_stays_whole(void **state)
{
    (void)state;
    compare_lines(10000000, 4000, 12, 60); /* 12 of up to 12 bytes in 240 ps */
    causes_have_occurred(6);
}

static void dense_traffic_is_exact(void **state)
{
    (void)state;
    compare_lines(20000000, 4000, 40, 40);
    causes_have_occurred(4);
}

static void random_machines_are_exact(void **state)
{
    (void)state;
    compare_many(30000000, 2000, &(chance){.ties = true, .chained = true, .most_orders = 40});
    compare_many(40000000, 1000,
                 &(chance){.ties = true, .chained = true, .streams = true, .most_orders = 40});
    compare_many(50000000, 500, &(chance){.chained = true, .streams = true, .most_orders = 30});
    causes_have_occurred(2);
}

/* Trains of what is left of messages are frequent, and so is unfolding them. */
static void remainders_are_exact(void **state)
{
    (void)state;
    compare_readers(70000000, 2000, 12, 400);
    compare_readers(80000000, 1000, 30, 1000);
    assert_true(2 * total.coalesced >= compared);
    assert_true(2 * total.coalesced_unfolded >= total.coalesced);
    assert_true(total.coalesced_unfolded < total.coalesced);
    causes_have_occurred(2);
}

/* With serial ports everything moves as packets. */
static void serial_ports_have_no_trains(void **state)
{
    (void)state;
    compare_many(60000000, 500,
                 &(chance){.ties = true, .serial = true, .streams = true, .most_orders = 20});
    assert_int_equal(total.whole, 0);
    total = (net_train_stats){0};
    compared = 0;
}

/* ---- By hand ----------------------------------------------------------------------------- */

/* a > m > x and b > m > y, 100 GB/s, 3 ns behind each link; and m > z, which both may take. */
typedef struct crossing {
    scenario s;
    uint32_t am, bm, mz;
} crossing;

static void crossing_init(crossing *c)
{
    scenario_init(
        &c->s,
        (net_options){.fabric.packet_bytes = 100, .fabric.vcs = 2, .fabric.depth_bytes = 200});
    uint32_t m = scenario_node(&c->s, 3 * KB_NS), z = scenario_node(&c->s, 3 * KB_NS);
    c->am = scenario_link(&c->s, scenario_node(&c->s, 0), m, 100, 0);
    c->bm = scenario_link(&c->s, scenario_node(&c->s, 0), m, 100, 0);
    c->mz = scenario_link(&c->s, m, z, 100, 0);
    c->s.watch_from = KB_FOREVER;
}

/*
 * 10 packets of 1 ns from a, at 0: on m > z from 3 to 13 ns. 10 from b, at 10 ns: from 13 to 23.
 * Neither meets the other, though both are under way from 10 to 16 ns.
 */
static void trains_share_a_link_one_after_the_other(void **state)
{
    (void)state;
    crossing c;
    crossing_init(&c);
    scenario_write(&c.s, 0, 1000, LINKS(c.am, c.mz));
    scenario_write(&c.s, 10 * KB_NS, 1000, LINKS(c.bm, c.mz));
    outcome *o = scenario_run_both(&c.s);
    assert_int_equal(o->completions[0].ended, 16 * KB_NS);
    assert_int_equal(o->completions[1].ended, 26 * KB_NS);
    assert_int_equal(o->trains.whole, 2);
    assert_int_equal(o->events, 6);
    outcome_free(o);
    scenario_fini(&c.s);
}

/*
 * A femtosecond earlier the second one overlaps the first. It moves as packets, the first of which
 * comes to m > z before the last of the first transfer has left: that one is unfolded too, and the
 * second is late by the femtosecond.
 */
static void trains_that_overlap_become_packets(void **state)
{
    (void)state;
    crossing c;
    crossing_init(&c);
    scenario_write(&c.s, 0, 1000, LINKS(c.am, c.mz));
    scenario_write(&c.s, 10 * KB_NS - 1, 1000, LINKS(c.bm, c.mz));
    outcome *o = scenario_run_both(&c.s);
    assert_int_equal(o->completions[0].ended, 16 * KB_NS);
    assert_int_equal(o->completions[1].ended, 26 * KB_NS);
    assert_int_equal(o->trains.whole, 0);
    assert_int_equal(o->trains.as_packets[NET_TRAIN_IN_THE_WAY], 1);
    assert_int_equal(o->trains.unfolded[NET_PACKET_MET], 1);
    outcome_free(o);
    scenario_fini(&c.s);
}

/* A later train may pass a link before an earlier one that has farther to go. */
static void a_train_passes_before_one_that_set_out_earlier(void **state)
{
    (void)state;
    scenario s;
    scenario_init(
        &s, (net_options){.fabric.packet_bytes = 100, .fabric.vcs = 1, .fabric.depth_bytes = 200});
    uint32_t far = scenario_node(&s, 50 * KB_NS), m = scenario_node(&s, 3 * KB_NS);
    uint32_t af = scenario_link(&s, scenario_node(&s, 0), far, 100, 0);
    uint32_t fm = scenario_link(&s, far, m, 100, 0);
    uint32_t bm = scenario_link(&s, scenario_node(&s, 0), m, 100, 0);
    uint32_t mz = scenario_link(&s, m, scenario_node(&s, 3 * KB_NS), 100, 0);
    s.watch_from = KB_FOREVER;
    scenario_write(&s, 0, 1000, LINKS(af, fm, mz));      /* on m > z from 53 to 63 ns */
    scenario_write(&s, 10 * KB_NS, 1000, LINKS(bm, mz)); /* from 13 to 23 ns */
    outcome *o = scenario_run_both(&s);
    assert_int_equal(o->completions[0].ended, 66 * KB_NS);
    assert_int_equal(o->completions[1].ended, 26 * KB_NS);
    assert_int_equal(o->trains.whole, 2);
    outcome_free(o);
    scenario_fini(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sparse_traffic_stays_whole),
        cmocka_unit_test(dense_traffic_is_exact),
        cmocka_unit_test(random_machines_are_exact),
        cmocka_unit_test(remainders_are_exact),
        cmocka_unit_test(serial_ports_have_no_trains),
        cmocka_unit_test(trains_share_a_link_one_after_the_other),
        cmocka_unit_test(trains_that_overlap_become_packets),
        cmocka_unit_test(a_train_passes_before_one_that_set_out_earlier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
