/*
 * test_net_errors.c: what the transport refuses, what it does when there is no memory, and what is
 * left to see after that: figures, and a net that is destroyed while it is at work.
 */
#include "support/expect.h"
#include "support/failing_alloc.h"

#include "base/base.h"
#include "net/net.h"

/* a > b > c > a, of which b is a router; and c > b. */
enum { A, B, C };
enum { AB, BC, CA, CB };

static topo_graph small_graph(void)
{
    topo_graph g = {0};
    (void)topo_graph_add_node(&g, (topo_node){.overhead_fs = KB_NS});
    (void)topo_graph_add_node(&g, (topo_node){.overhead_fs = KB_NS, .kind = TOPO_ROUTER});
    (void)topo_graph_add_node(&g, (topo_node){.overhead_fs = KB_NS});
    (void)topo_graph_add_link(&g, A, B, 100 * TOPO_GBS, 0);
    (void)topo_graph_add_link(&g, B, C, 1 * TOPO_GBS, 0);
    (void)topo_graph_add_link(&g, C, A, 100 * TOPO_GBS, 0);
    (void)topo_graph_add_link(&g, C, B, 100 * TOPO_GBS, 0);
    expect_ok(topo_graph_finish(&g));
    return g;
}

static uint32_t step(uint32_t link)
{
    return topo_step(link, TOPO_BEFORE);
}

/* ---- Options and machines ---------------------------------------------------------------- */

static void options_have_limits(void **state)
{
    (void)state;
    static const struct {
        uint32_t packet, vcs, depth;
        const char *message; /* NULL: good */
    } cases[] = {
        {1, 1, 0, NULL},
        {1 << 20, 63, NET_MAX_DEPTH_BYTES, NULL},
        {0, 1, 0, "fabric settings out of range: packet_bytes 0, vcs 1, depth_bytes 0"},
        {(1 << 20) + 1, 1, 0,
         "fabric settings out of range: packet_bytes 1048577, vcs 1, "
         "depth_bytes 0"},
        {1, 0, 0, "fabric settings out of range: packet_bytes 1, vcs 0, depth_bytes 0"},
        {1, 64, 0, "fabric settings out of range: packet_bytes 1, vcs 64, depth_bytes 0"},
        {1, 1, (1 << 25) + 1,
         "fabric settings out of range: packet_bytes 1, vcs 1, "
         "depth_bytes 33554433"},
    };
    topo_graph g = small_graph();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kb_sim *sim;
        net *n = (net *)&g;
        net_options options = {.fabric.packet_bytes = cases[i].packet,
                               .fabric.vcs = cases[i].vcs,
                               .fabric.depth_bytes = cases[i].depth};
        expect_ok(kb_sim_create(NULL, &sim));
        kb_error *err = net_create(sim, &g, &options, &n);
        if (cases[i].message) {
            expect_error(err, KB_ERR_BUG, cases[i].message);
            assert_null(n);
        } else {
            expect_ok(err);
        }
        net_destroy(n);
        kb_sim_destroy(sim);
    }
    topo_graph_fini(&g);
}

/* 1000000 GB/s for 1073 ns are 1.07 GB, and for 3 ms much more than can be counted. */
static void channels_have_limits(void **state)
{
    (void)state;
    static const struct {
        kb_time wire;
        const char *message;
    } cases[] = {
        {1073 * KB_NS, NULL},
        {1074 * KB_NS,
         "a link of 1000000 GB/s with a latency of 1074 ns needs buffers of more than 1 GiB "
         "per virtual channel"},
        {3 * KB_MS, "a link of 1000000 GB/s with a latency of 3000000 ns needs buffers of more "
                    "than 1 GiB per virtual channel"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        topo_graph g = {0};
        (void)topo_graph_add_node(&g, (topo_node){.overhead_fs = KB_US});
        (void)topo_graph_add_node(&g, (topo_node){0});
        (void)topo_graph_add_link(&g, 0, 1, 1000000 * TOPO_GBS, cases[i].wire);
        expect_ok(topo_graph_finish(&g));
        kb_sim *sim;
        net *n;
        expect_ok(kb_sim_create(NULL, &sim));
        kb_error *err =
            net_create(sim, &g, &(net_options){.fabric.packet_bytes = 64, .fabric.vcs = 1}, &n);
        if (cases[i].message) {
            expect_error(err, KB_ERR_INPUT, cases[i].message);
            assert_null(n);
        } else {
            expect_ok(err);
            assert_int_equal(net_channel_bytes(n, 0), 1073000000 + 64);
        }
        net_destroy(n);
        kb_sim_destroy(sim);
        topo_graph_fini(&g);
    }
}

/* Two places a link, two for each link where transfers may begin, which is three of the four. */
static void places_in_the_order_of_events_have_limits(void **state)
{
    (void)state;
    topo_graph g = small_graph();
    kb_sim *sim;
    net *n;
    expect_ok(kb_sim_create(NULL, &sim));
    for (int serial = 0; serial < 2; serial++) {
        net_options options = {
            .fabric.packet_bytes = 64, .fabric.vcs = 1, .fabric.serial_ports = serial};
        expect_ok(net_create(sim, &g, &options, &n));
        uint32_t count = net_source_count(n);
        assert_int_equal(count, 2 * 4 + 3 * 2 + (serial ? 4 : 0)); /* and ports decide, too */
        net_destroy(n);
        options.first_source = KB_SOURCE_ID_MAX + 1 - count;
        expect_ok(net_create(sim, &g, &options, &n));
        net_destroy(n);
        options.first_source++;
        expect_error(net_create(sim, &g, &options, &n), KB_ERR_INPUT,
                     "machine too large: 4 links need 22 virtual channels (maximum 134217728) "
                     "and 16777217 event sources (maximum 16777216)");
        assert_null(n);
    }
    kb_sim_destroy(sim);
    topo_graph_fini(&g);
}

static void a_machine_without_links_is_a_machine(void **state)
{
    (void)state;
    topo_graph g = {0};
    (void)topo_graph_add_node(&g, (topo_node){0});
    expect_ok(topo_graph_finish(&g));
    kb_sim *sim;
    net *n;
    expect_ok(kb_sim_create(NULL, &sim));
    expect_ok(net_create(sim, &g, &(net_options){.fabric.packet_bytes = 64, .fabric.vcs = 2}, &n));
    assert_int_equal(net_source_count(n), 0);
    net_destroy(n);
    net_destroy(NULL);
    kb_sim_destroy(sim);
    topo_graph_fini(&g);
}

/* ---- Orders ------------------------------------------------------------------------------ */

static void bad_orders_are_refused(void **state)
{
    (void)state;
    topo_graph g = small_graph();
    kb_sim *sim;
    net *n;
    expect_ok(kb_sim_create(NULL, &sim));
    expect_ok(net_create(sim, &g, &(net_options){.fabric.packet_bytes = 64, .fabric.vcs = 1}, &n));

    const uint32_t good[] = {step(AB), step(BC)}, gap[] = {step(AB), step(CA)};
    const uint32_t router[] = {step(BC)}, nowhere[] = {step(AB), step(4)};
    const uint32_t far[] = {step(AB), step(TOPO_MAX_LINKS)}, home[] = {step(CA)};
    const uint32_t wrapped[] = {topo_step(AB, TOPO_WRAPPED), step(BC)};
    const uint32_t phase_3[] = {step(AB), step(BC) | 3};
    const net_message way = {.steps = good, .count = 2, .bytes = 100}, none = {0};
    const uint64_t most = (((uint64_t)1 << 29) - 1) * 64;
    const struct {
        const char *message;
        net_message out, back;
        uint32_t from;
        kb_code code;
    } cases[] = {
        {"invalid transfer: 0 bytes over 2 links", {good, 2, 0}, none, A, KB_ERR_BUG},
        {"invalid transfer: 5 bytes over 0 links", {good, 0, 5}, none, A, KB_ERR_BUG},
        {"invalid transfer: 9223372036854775808 bytes over 2 links",
         {good, 2, (uint64_t)1 << 63},
         none,
         A,
         KB_ERR_BUG},
        {"transfer too large: 34359738305 bytes exceed 536870911 packets of 64 bytes",
         {good, 2, most + 1},
         none,
         A,
         KB_ERR_INPUT},
        {"invalid route: step 0 does not continue the one before",
         {good, 2, 5},
         none,
         C,
         KB_ERR_BUG},
        {"invalid route: step 1 does not continue the one before",
         {gap, 2, 5},
         none,
         A,
         KB_ERR_BUG},
        {"invalid route: step 0 does not continue the one before",
         {router, 1, 5},
         none,
         B,
         KB_ERR_BUG},
        {"invalid route: step 1 does not continue the one before",
         {nowhere, 2, 5},
         none,
         A,
         KB_ERR_BUG},
        {"invalid route: step 1 does not continue the one before",
         {far, 2, 5},
         none,
         A,
         KB_ERR_BUG},
        {"invalid route: step 0 does not continue the one before",
         {wrapped, 2, 5},
         none,
         A,
         KB_ERR_BUG},
        {"invalid route: step 1 does not continue the one before",
         {phase_3, 2, 5},
         none,
         A,
         KB_ERR_BUG},
        {"invalid transfer: 5 bytes over 0 links", way, {home, 0, 5}, A, KB_ERR_BUG},
        {"invalid route: step 0 does not continue the one before",
         way,
         {good, 2, 5},
         A,
         KB_ERR_BUG},
        {"transfer too large: 34359738305 bytes exceed 536870911 packets of 64 bytes",
         way,
         {home, 1, most + 1},
         A,
         KB_ERR_INPUT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        net_order order = {
            .from = cases[i].from, .request = cases[i].out, .response = cases[i].back};
        expect_error(net_submit(n, &order), cases[i].code, cases[i].message);
        assert_int_equal(net_get_stats(n).live, 0);
    }
    /* Nothing of it is left. The most packets are no mistake; but nothing waits for them here. */
    assert_int_equal(kb_sim_get_stats(sim).pending, 0);
    net_order order = {.from = A, .request = {good, 2, most}};
    expect_ok(net_submit(n, &order));
    assert_int_equal(net_get_stats(n).live, 1);
    expect_ok(kb_sim_run(sim, KB_US));
    kb_sim_abandon(sim);
    net_destroy(n);
    kb_sim_destroy(sim);
    topo_graph_fini(&g);
}

/* What comes out of a memory begins with its service. */
static void a_memory_is_served_first(void **state)
{
    (void)state;
    topo_graph g = {0};
    uint32_t memory = topo_graph_add_node(&g, (topo_node){.overhead_fs = 7 * KB_NS});
    uint32_t other = topo_graph_add_node(&g, (topo_node){.overhead_fs = KB_NS});
    uint32_t out = topo_graph_add_link(&g, memory, other, 100 * TOPO_GBS, 0);
    topo_graph_add_service(&g, memory, 100 * TOPO_GBS);
    expect_ok(topo_graph_finish(&g));
    kb_sim *sim;
    net *n;
    expect_ok(kb_sim_create(NULL, &sim));
    expect_ok(net_create(sim, &g, &(net_options){.fabric.packet_bytes = 64, .fabric.vcs = 1}, &n));
    const uint32_t steps[] = {step(g.nodes.items[memory].service), step(out)};
    net_order order = {.from = memory, .request = {steps + 1, 1, 100}};
    expect_error(net_submit(n, &order), KB_ERR_BUG,
                 "invalid route: step 0 does not continue "
                 "the one before");
    order.request = (net_message){steps, 2, 100};
    expect_ok(net_submit(n, &order));
    expect_ok(kb_sim_run(sim, KB_FOREVER));
    assert_int_equal(kb_sim_now(sim), 9 * KB_NS);
    net_destroy(n);
    kb_sim_destroy(sim);
    topo_graph_fini(&g);
}

/* 65532 links and 65533 nodes of 1 ns each, and a byte, which takes 1 ns on the slowest link. */
static void a_way_may_be_very_long(void **state)
{
    (void)state;
    enum { LONG = 65532, TOO_LONG = NET_MAX_STEPS + 1 };
    topo_graph g = small_graph();
    kb_sim *sim;
    net *n;
    expect_ok(kb_sim_create(NULL, &sim));
    expect_ok(net_create(sim, &g, &(net_options){.fabric.packet_bytes = 64, .fabric.vcs = 2}, &n));
    uint32_t *steps = calloc(TOO_LONG, sizeof *steps);
    assert_non_null(steps);
    for (uint32_t i = 0; i < TOO_LONG; i++)
        steps[i] = step((uint32_t[]){AB, BC, CA}[i % 3]);
    net_order order = {.from = A, .request = {steps, TOO_LONG, 1}};
    expect_error(net_submit(n, &order), KB_ERR_BUG, "invalid transfer: 1 byte over 65535 links");
    for (int i = 0; i < 2; i++) {
        order.request.count = LONG;
        expect_ok(net_submit(n, &order));
        kb_time before = kb_sim_now(sim);
        expect_ok(kb_sim_run(sim, KB_FOREVER));
        assert_int_equal(kb_sim_now(sim) - before, (LONG + 1) * KB_NS + KB_NS);
    }
    free(steps);
    net_destroy(n);
    kb_sim_destroy(sim);
    topo_graph_fini(&g);
}

/* On a machine with ports of SIPs there are channels for what has been wrapped around. */
static void wrapped_steps_want_a_ring(void **state)
{
    (void)state;
    topo_graph g = {0};
    (void)topo_graph_add_node(&g, (topo_node){0});
    (void)topo_graph_add_node(&g, (topo_node){.kind = TOPO_SIP_PORT});
    (void)topo_graph_add_node(&g, (topo_node){0});
    (void)topo_graph_add_link(&g, 0, 1, 100 * TOPO_GBS, 0);
    (void)topo_graph_add_link(&g, 1, 2, 100 * TOPO_GBS, 0);
    expect_ok(topo_graph_finish(&g));
    for (uint32_t vcs = 1; vcs < 64; vcs += 31) {
        kb_sim *sim;
        net *n;
        expect_ok(kb_sim_create(NULL, &sim));
        expect_ok(
            net_create(sim, &g, &(net_options){.fabric.packet_bytes = 64, .fabric.vcs = vcs}, &n));
        const uint32_t steps[] = {topo_step(0, TOPO_WRAPPED), topo_step(1, TOPO_WRAPPED)};
        for (int reply = 0; reply < 2; reply++) {
            net_order order = {.from = 0, .request = {steps, 2, 1000}, .is_response = reply};
            expect_ok(net_submit(n, &order));
        }
        expect_ok(kb_sim_run(sim, KB_FOREVER));
        assert_int_equal(kb_sim_now(sim), 20 * KB_NS);
        assert_int_equal(net_channels_per_link(n), 5 * vcs);
        assert_int_equal(net_get_stats(n).transfers, 2);
        net_destroy(n);
        kb_sim_destroy(sim);
    }
    topo_graph_fini(&g);
}

/* ---- Figures ----------------------------------------------------------------------------- */

static void keep_receipt(void *self, uint64_t arg, const net_completion *completion)
{
    (void)arg;
    *(net_completion *)self = *completion;
}

/* 100 bytes over 1 GB/s: 100 ns, and 3 ns for the nodes. */
static void a_plain_receipt_has_two_times(void **state)
{
    (void)state;
    topo_graph g = small_graph();
    kb_sim *sim;
    net *n;
    expect_ok(kb_sim_create(NULL, &sim));
    expect_ok(net_create(sim, &g, &(net_options){.fabric.packet_bytes = 64, .fabric.vcs = 1}, &n));
    const uint32_t steps[] = {step(AB), step(BC)};
    net_completion completion = {0};
    net_order order = {.from = A,
                       .request = {steps, 2, 100},
                       .plain = true,
                       .done = keep_receipt,
                       .self = &completion};
    expect_ok(kb_sim_run(sim, KB_NS));
    expect_ok(net_submit(n, &order));
    expect_ok(kb_sim_run(sim, KB_FOREVER));
    assert_int_equal(completion.issued, KB_NS);
    assert_int_equal(completion.ended, 104 * KB_NS);
    assert_int_equal(completion.overhead, 0);
    assert_int_equal(completion.drain, 0);
    net_destroy(n);
    kb_sim_destroy(sim);
    topo_graph_fini(&g);
}

/* Steps are copied, so they may change afterwards; figures begin again, transfers go on. */
static void figures_can_begin_again(void **state)
{
    (void)state;
    topo_graph g = small_graph();
    kb_sim *sim;
    net *n;
    expect_ok(kb_sim_create(NULL, &sim));
    expect_ok(net_create(sim, &g, &(net_options){.fabric.packet_bytes = 10, .fabric.vcs = 1}, &n));
    net_stats idle = net_get_stats(n);
    assert_true(idle.state_bytes > 0);
    assert_int_equal(idle.live_bytes, 0);
    uint32_t steps[] = {step(AB), step(BC)};
    net_order order = {.from = A, .request = {steps, 2, 100}};
    expect_ok(net_submit(n, &order));
    expect_ok(net_submit(n, &order));
    memset(steps, 0xff, sizeof steps);
    /* The first starts on BC at 2 ns and ends at 103, the second at 203. At 152 ns half of it, five
     * packets of 10 ns, has been passed on; all has passed AB. */
    expect_ok(kb_sim_run(sim, 152 * KB_NS - 1));
    net_stats f = net_get_stats(n);
    assert_int_equal(f.transfers, 1);
    assert_int_equal(f.live, 1);
    assert_true(f.live_bytes > 0);
    assert_int_equal(net_link_get(n, BC).bytes, 150);
    uint64_t hops = f.hops;
    net_reset_stats(n);
    f = net_get_stats(n);
    assert_int_equal(f.hops + f.link_bytes + f.transfers, 0);
    assert_int_equal(net_link_get(n, BC).waited_fs, 0);
    expect_ok(kb_sim_run(sim, KB_FOREVER));
    assert_int_equal(kb_sim_now(sim), 203 * KB_NS);
    f = net_get_stats(n);
    assert_int_equal(hops + f.hops, 2 * 2 * 10);
    assert_int_equal(f.transfers, 1);
    assert_int_equal(f.live, 0);
    assert_int_equal(net_link_get(n, BC).bytes, 50);
    assert_int_equal(net_link_get(n, CA).bytes, 0);
    net_destroy(n);
    kb_sim_destroy(sim);
    topo_graph_fini(&g);
}

typedef struct repeater {
    net *fabric;
    net_order order;
    uint32_t left;
} repeater;

static void repeat(void *self, uint64_t arg, const net_completion *completion)
{
    (void)arg;
    (void)completion;
    repeater *r = self;
    if (r->left-- > 0)
        expect_ok(net_submit(r->fabric, &r->order));
}

/* What a transfer took is used again by the next one. */
static void memory_is_used_again(void **state)
{
    (void)state;
    topo_graph g = small_graph();
    kb_sim *sim;
    repeater r = {.left = 10000};
    expect_ok(kb_sim_create(NULL, &sim));
    expect_ok(
        net_create(sim, &g, &(net_options){.fabric.packet_bytes = 10, .fabric.vcs = 2}, &r.fabric));
    uint32_t steps[] = {step(AB), step(BC), step(CA)};
    r.order = (net_order){.from = A,
                          .request = {steps, 2, 16},
                          .response = {steps + 2, 1, 100},
                          .done = repeat,
                          .self = &r};
    expect_ok(net_submit(r.fabric, &r.order));
    expect_ok(kb_sim_run(sim, KB_US));
    size_t before = net_get_stats(r.fabric).live_bytes;
    expect_ok(kb_sim_run(sim, KB_FOREVER));
    assert_int_equal(net_get_stats(r.fabric).transfers, 10001);
    assert_int_equal(net_get_stats(r.fabric).live_bytes, before);
    net_destroy(r.fabric);
    kb_sim_destroy(sim);
    topo_graph_fini(&g);
}

/* ---- No memory --------------------------------------------------------------------------- */

static topo_graph shared_graph;
static net_options shared_options;
static int failures_seen, successes_seen;

static bool went_well(kb_error *err)
{
    if (!err)
        return true;
    failures_seen++;
    assert_int_equal(kb_error_code(err), KB_ERR_HOST);
    kb_error_free(err);
    return false;
}

/* Long routes, reads and writes, and more packets under way at once than a chunk of a pool holds.
 */
static bool submit_all(net *n)
{
    uint32_t around[60];
    for (uint32_t i = 0; i < 60; i++)
        around[i] = topo_step((uint32_t[]){AB, BC, CA}[i % 3], TOPO_BEFORE);
    net_order orders[] = {
        {.from = A, .request = {around, 2, 700}},
        {.from = A, .request = {around, 2, 700}, .is_response = true},
        {.from = A, .request = {around, 2, 16}, .response = {around + 2, 1, 100}},
        {.from = A, .request = {around, 60, 10}},
        {.from = C, .request = {around + 2, 6, 10}, .response = {around + 2, 12, 10}},
    };
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
        if (!went_well(net_submit(n, &orders[i])))
            return false;
    return true;
}

static void all_of_it(void)
{
    kb_sim *sim = NULL;
    net *n = NULL;
    if (went_well(kb_sim_create(NULL, &sim)) &&
        went_well(net_create(sim, &shared_graph, &shared_options, &n))) {
        if (submit_all(n) && went_well(kb_sim_run(sim, KB_FOREVER))) {
            assert_int_equal(net_get_stats(n).transfers, 5);
            assert_int_equal(net_get_stats(n).live, 0);
            successes_seen++;
        }
        kb_sim_abandon(sim);
    } else {
        assert_null(n);
    }
    net_destroy(n);
    if (sim)
        kb_sim_destroy(sim);
}

static void without_memory_it_fails_cleanly(void **state)
{
    (void)state;
    shared_graph = small_graph();
    for (uint32_t i = 0; i < 4; i++) {
        shared_options = (net_options){.fabric.packet_bytes = 1,
                                       .fabric.vcs = 1 + (i > 1),
                                       .fabric.depth_bytes = 3000,
                                       .fabric.serial_ports = i == 1 || i == 2,
                                       .no_elision = i % 2};
        failures_seen = successes_seen = 0;
        failing_alloc_try_all(all_of_it);
        assert_true(failures_seen > 20);
        assert_true(successes_seen >= 2);
    }
    topo_graph_fini(&shared_graph);
}

/* A net that is at work can go at any time, if the simulator has been abandoned. */
static void a_net_at_work_can_be_destroyed(void **state)
{
    (void)state;
    shared_graph = small_graph();
    size_t before = failing_alloc_live();
    for (kb_time until = 0; until < 4 * KB_US; until += 100 * KB_NS) {
        kb_sim *sim;
        net *n;
        expect_ok(kb_sim_create(NULL, &sim));
        net_options options = {
            .fabric.packet_bytes = 16, .fabric.vcs = 2, .fabric.depth_bytes = 64};
        expect_ok(net_create(sim, &shared_graph, &options, &n));
        assert_true(submit_all(n));
        expect_ok(kb_sim_run(sim, until));
        kb_sim_abandon(sim);
        net_destroy(n);
        kb_sim_destroy(sim);
        assert_int_equal(failing_alloc_live(), before);
    }
    topo_graph_fini(&shared_graph);
}

/* ---- The end of the clock ---------------------------------------------------------------- */

static void add_queueing(void *self, uint64_t arg, const net_completion *completion)
{
    (void)arg;
    *(kb_time_sum *)self += completion->ended - completion->issued;
}

/* a > b > c at 100 GB/s and at a byte a second. */
static topo_graph slow_graph(void)
{
    topo_graph g = {0};
    (void)topo_graph_add_node(&g, (topo_node){0});
    (void)topo_graph_add_node(&g, (topo_node){.kind = TOPO_ROUTER});
    (void)topo_graph_add_node(&g, (topo_node){0});
    (void)topo_graph_add_link(&g, A, B, 100 * TOPO_GBS, 0);
    (void)topo_graph_add_link(&g, B, C, 1, 0);
    expect_ok(topo_graph_finish(&g));
    return g;
}

/*
 * The k-th of 30 transfers of 250 bytes ends at 250 k s: together 116250 s after they were issued.
 * Nearly all of that but 250 s each is waiting for links, twelve times what 64 bits hold. Then 1723
 * bytes take until 9223 s, and another one would end 0.6 s after the last instant.
 */
static void links_count_and_end_at_the_limit(void **state)
{
    (void)state;
    enum { COUNT = 30 };
    const uint32_t steps[] = {step(AB), step(BC)};
    topo_graph g = slow_graph();
    for (int plain = 0; plain < 2; plain++) {
        kb_sim *sim;
        net *n;
        kb_time_sum all = 0;
        net_options options = {
            .fabric.packet_bytes = 10, .fabric.vcs = 1, .no_elision = plain != 0};
        expect_ok(kb_sim_create(NULL, &sim));
        expect_ok(net_create(sim, &g, &options, &n));
        net_order order = {.from = A,
                           .request = {steps, 2, 250},
                           .done = add_queueing,
                           .self = &all,
                           .plain = true};
        for (int i = 0; i < COUNT; i++)
            expect_ok(net_submit(n, &order));
        expect_ok(kb_sim_run(sim, KB_FOREVER));
        kb_time_sum ends = (kb_time_sum)250 * COUNT * (COUNT + 1) / 2 * KB_S;
        assert_true(all == ends);
        assert_true(kb_sim_now(sim) == (kb_time)250 * COUNT * KB_S);
        kb_time_sum waited = net_link_get(n, AB).waited_fs + net_link_get(n, BC).waited_fs;
        assert_true(waited > (kb_time_sum)KB_FOREVER && waited < ends);

        order.request.bytes = 1723;
        expect_ok(net_submit(n, &order));
        expect_ok(kb_sim_run(sim, KB_FOREVER));
        assert_true(kb_sim_now(sim) == 9223 * KB_S);
        order.request.bytes = 1; /* one second more than there is */
        expect_ok(net_submit(n, &order));
        expect_error(kb_sim_run(sim, KB_FOREVER), KB_ERR_INPUT,
                     "simulated time exceeds its limit of 9,223 s: a transfer that begins at "
                     "9223000000000.000000 ns would end later; use faster figures (shorter cycles "
                     "and latencies, more bandwidth) or less work");
        kb_sim_abandon(sim);
        net_destroy(n);
        kb_sim_destroy(sim);
    }
    topo_graph_fini(&g);
}

/* A packet of 10 kB takes more than the clock has, and so does what is foreseen of it. */
static void a_packet_may_take_for_ever(void **state)
{
    (void)state;
    const uint32_t steps[] = {step(AB), step(BC)};
    topo_graph g = slow_graph();
    kb_sim *sim;
    net *n;
    expect_ok(kb_sim_create(NULL, &sim));
    expect_ok(
        net_create(sim, &g, &(net_options){.fabric.packet_bytes = 10000, .fabric.vcs = 1}, &n));
    net_order order = {.from = A, .request = {steps, 2, 10000}};
    assert_true(net_predict(n, &order).ended == KB_FOREVER);
    expect_ok(net_submit(n, &order));
    kb_error *err = kb_sim_run(sim, KB_FOREVER);
    assert_int_equal(kb_error_code(err), KB_ERR_INPUT);
    kb_error_free(err);
    kb_sim_abandon(sim);
    net_destroy(n);
    kb_sim_destroy(sim);
    topo_graph_fini(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_have_limits),
        cmocka_unit_test(channels_have_limits),
        cmocka_unit_test(places_in_the_order_of_events_have_limits),
        cmocka_unit_test(a_machine_without_links_is_a_machine),
        cmocka_unit_test(bad_orders_are_refused),
        cmocka_unit_test(a_memory_is_served_first),
        cmocka_unit_test(a_way_may_be_very_long),
        cmocka_unit_test(wrapped_steps_want_a_ring),
        cmocka_unit_test(a_plain_receipt_has_two_times),
        cmocka_unit_test(figures_can_begin_again),
        cmocka_unit_test(memory_is_used_again),
        cmocka_unit_test(without_memory_it_fails_cleanly),
        cmocka_unit_test(a_net_at_work_can_be_destroyed),
        cmocka_unit_test(links_count_and_end_at_the_limit),
        cmocka_unit_test(a_packet_may_take_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
