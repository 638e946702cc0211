/* test_order.c: orders between nodes of a machine, and a fabric with the machine's settings. */
#include "support/failing_alloc.h"
#include "topo/random_machines.h"

#include "net/net.h"

static void expect_way(const topo_machine *m, const net_message *message, uint32_t from,
                       uint32_t to, bool data)
{
    uint32_t steps[128];
    assert_in_range(topo_machine_shape(m)->max_steps, 1, 128);
    assert_int_equal(message->count, topo_route(m, from, to, data, steps));
    assert_memory_equal(message->steps, steps, message->count * sizeof *steps);
}

/* A write carries its bytes to the memory; a read a request there, and the bytes back. */
static void reads_have_two_ways_and_writes_have_one(void **state)
{
    (void)state;
    topo_machine *m = default_machine();
    uint32_t pe = topo_node_at(m, TOPO_PE_DMA, 0, 3, 2);
    uint32_t slice = topo_node_at(m, TOPO_HBM_CTRL, 1, 5, 7);
    net_route_buffer routes;
    expect_ok(net_route_buffer_init(&routes, m));
    net_order order = net_make_order(&routes, pe, slice, 4096, false);
    assert_int_equal(order.from, pe);
    assert_int_equal(order.request.bytes, 4096);
    expect_way(m, &order.request, pe, slice, true);
    assert_int_equal(order.response.bytes, 0);
    assert_int_equal(order.response.count, 0);
    assert_false(order.is_response || order.forwarded || order.plain);

    order = net_make_order(&routes, pe, slice, 4096, true);
    assert_int_equal(order.from, pe);
    assert_int_equal(order.request.bytes, NET_REQUEST_BYTES);
    expect_way(m, &order.request, pe, slice, false);
    assert_int_equal(order.response.bytes, 4096);
    expect_way(m, &order.response, slice, pe, true);
    net_route_buffer_fini(&routes);
    topo_machine_destroy(m);
}

static void on_done(void *self, uint64_t arg, const net_completion *completion)
{
    assert_int_equal(arg, 9);
    *(net_completion *)self = *completion;
}

/* What the machine says of packets and channels, and a place in the order of events. */
static void a_fabric_has_the_settings_of_its_machine(void **state)
{
    (void)state;
    topo_machine *m = machine_with("fabric.packet_bytes=100", "fabric.vcs=3", "fabric.ports=serial",
                                   "fabric.depth_bytes=700");
    const topo_graph *graph = topo_machine_graph(m);
    kb_sim *sim;
    net *a, *b;
    expect_ok(kb_sim_create(NULL, &sim));
    expect_ok(net_create_for(sim, m, 0, false, &a));
    net_options options = {.fabric.packet_bytes = 100,
                           .fabric.vcs = 3,
                           .fabric.depth_bytes = 700,
                           .fabric.serial_ports = true};
    expect_ok(net_create(sim, graph, &options, &b));
    assert_int_equal(net_channels_per_link(a), net_channels_per_link(b));
    assert_int_equal(net_source_count(a), net_source_count(b));
    for (uint32_t at = 0; at < graph->links.count; at++)
        assert_int_equal(net_channel_bytes(a, at), net_channel_bytes(b, at));
    net_destroy(a);
    net_destroy(b);

    /* The last places there are, and one too many. */
    net_route_buffer routes;
    expect_ok(net_route_buffer_init(&routes, m));
    expect_ok(net_create_for(sim, m, 0, false, &a));
    uint32_t last = KB_SOURCE_ID_MAX + 1 - net_source_count(a);
    net_destroy(a);
    expect_ok(net_create_for(sim, m, last, false, &a));
    net_order order = net_make_order(&routes, topo_node_at(m, TOPO_PE_DMA, 0, 0, 0),
                                     topo_node_at(m, TOPO_HBM_CTRL, 0, 0, 0), 4096, false);
    net_completion completion = {0};
    order.done = on_done;
    order.self = &completion;
    order.arg = 9;
    expect_ok(net_submit(a, &order));
    expect_ok(kb_sim_run(sim, KB_FOREVER));
    assert_int_equal(completion.ended, net_predict(a, &order).ended);
    net_destroy(a);
    kb_error *err = net_create_for(sim, m, last + 1, false, &a);
    assert_int_equal(kb_error_code(err), KB_ERR_INPUT);
    assert_null(a);
    kb_error_free(err);
    net_route_buffer_fini(&routes);
    kb_sim_destroy(sim);
    topo_machine_destroy(m);
}

/* A lone transfer takes what is foreseen of it, and by the same way with steps and without. */
static void expect_lone(kb_sim *sim, net *fabric, net_route_buffer *routes, uint32_t from,
                        uint32_t to, bool read)
{
    net_order known = net_make_order(routes, from, to, 1000, read);
    net_order order = net_make_order_by_nodes(routes, from, to, 1000, read);
    net_completion completion = {0}, foreseen = net_predict(fabric, &known);
    order.done = on_done;
    order.self = &completion;
    order.arg = 9;
    expect_ok(net_submit(fabric, &order));
    expect_ok(kb_sim_run(sim, KB_FOREVER));
    assert_int_equal(completion.ended - completion.issued, foreseen.ended);
    assert_int_equal(completion.overhead, foreseen.overhead);
    assert_int_equal(completion.wire, foreseen.wire);
    assert_int_equal(completion.drain, foreseen.drain);
}

/*
 * 32 PEs and their slices, in four cubes. Each of the 64 sends to each, and each PE reads from
 * each: 4032 and 2016 times. Not all of the 8064 routes are cached, which would take 1.5 MiB.
 */
static void everybody_may_talk_to_everybody(void **state)
{
    (void)state;
    topo_machine *m =
        machine_with("system.sips.count=1", "sip.cube_mesh.w=2", "sip.cube_mesh.h=2", NULL);
    enum { ENDS = 64 };
    uint32_t ends[ENDS];
    for (uint32_t i = 0; i < ENDS; i++)
        ends[i] = topo_node_at(m, i % 2 ? TOPO_PE_DMA : TOPO_HBM_CTRL, 0, i / 16, i / 2 % 8);
    kb_sim *sim;
    net *fabric;
    net_route_buffer routes;
    expect_ok(kb_sim_create(NULL, &sim));
    expect_ok(net_create_for(sim, m, 0, false, &fabric));
    expect_ok(net_route_buffer_init(&routes, m));
    for (uint32_t i = 0; i < ENDS; i++)
        for (uint32_t k = 0; k < ENDS; k++) {
            if (i != k)
                expect_lone(sim, fabric, &routes, ends[i], ends[k], false);
            if (i != k && i % 2 == 1)
                expect_lone(sim, fabric, &routes, ends[i], ends[k], true);
        }
    net_stats f = net_get_stats(fabric);
    assert_int_equal(f.transfers, 4032 + 2016);
    assert_int_equal(f.live, 0);
    assert_in_range(f.live_bytes, 1, 1 << 20);

    net_order order = net_make_order_by_nodes(&routes, ends[0], ends[0], 8, false);
    order.from = order.to = topo_node_at(m, TOPO_M_CPU, 0, 0, 0);
    kb_error *err = net_submit(fabric, &order);
    assert_string_equal(kb_error_message(err), "invalid transfer: 8 bytes over 0 links");
    kb_error_free(err);
    net_route_buffer_fini(&routes);
    net_destroy(fabric);
    kb_sim_destroy(sim);
    topo_machine_destroy(m);
}

static topo_machine *shared_machine;

/* Two that meet at a slice, so that one way is dissolved, too. */
static kb_error *talk(net_route_buffer *routes, kb_sim *sim, net *fabric)
{
    uint32_t slice = topo_node_at(shared_machine, TOPO_HBM_CTRL, 0, 0, 0);
    for (uint32_t pe = 0; pe < 2; pe++) {
        uint32_t node = topo_node_at(shared_machine, TOPO_PE_DMA, 0, 0, pe);
        net_order order = net_make_order_by_nodes(routes, node, slice, UINT64_C(4096) << pe, true);
        KB_TRY(net_submit(fabric, &order));
        KB_TRY(kb_sim_run(sim, 30 * KB_NS));
    }
    return kb_sim_run(sim, KB_FOREVER);
}

static void make_and_drop(void)
{
    net_route_buffer routes;
    kb_sim *sim = NULL;
    net *fabric = NULL;
    kb_error *err = net_route_buffer_init(&routes, shared_machine);
    bool made = !err;
    if (!err)
        err = kb_sim_create(NULL, &sim);
    if (!err)
        err = net_create_for(sim, shared_machine, 0, false, &fabric);
    if (!err)
        err = talk(&routes, sim, fabric);
    assert_int_equal(kb_error_code(err), err ? KB_ERR_HOST : KB_OK);
    kb_error_free(err);
    net_destroy(fabric);
    kb_sim_destroy(sim);
    if (made)
        net_route_buffer_fini(&routes);
}

static void without_memory_it_fails_cleanly(void **state)
{
    (void)state;
    shared_machine =
        machine_with("system.sips.count=1", "sip.cube_mesh.w=1", "sip.cube_mesh.h=1", NULL);
    failing_alloc_try_all(make_and_drop);
    topo_machine_destroy(shared_machine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_have_two_ways_and_writes_have_one),
        cmocka_unit_test(a_fabric_has_the_settings_of_its_machine),
        cmocka_unit_test(everybody_may_talk_to_everybody),
        cmocka_unit_test(without_memory_it_fails_cleanly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
