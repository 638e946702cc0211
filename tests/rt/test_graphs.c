/*
 * test_graphs.c: recorded sequences give the results of the same calls one by one, cost little, and
 * say what is wrong with them.
 *
 * Checks G4.
 */
#include "ordered.h"

/* ---- Results ------------------------------------------------------------------------------- */

enum { CHAIN = 36 };

static void record_chain(kb_context *ctx, const kb_tensor x[2], int step, kb_graph *graph)
{
    expect_ok(kb_graph_begin(ctx, "chain", graph));
    for (int i = 0; i < CHAIN; i++)
        expect_ok(kb_launch(ctx, NULL, &mix, x[(i + 1) % 2], x[i % 2], step, 0.5, 1));
    expect_ok(kb_graph_end(ctx, *graph));
}

/* Launched twice, a graph does what its calls do twice. */
static void a_graph_does_what_its_calls_do(void **state)
{
    (void)state;
    static const char *const machines[] = {ONE_PE, THREE_SIPS, ODD_ONES, TALL};
    for (size_t m = 0; m < sizeof machines / sizeof *machines; m++) {
        float *all[2];
        for (int recorded = 0; recorded < 2; recorded++) {
            kb_context *ctx = open_strict(machines[m]);
            uint64_t count = block_elements(ctx);
            kb_tensor x[2] = {make_blocks(ctx, "x"), make_blocks(ctx, "y")};
            kb_graph graph;
            expect_ok(kb_tensor_set(ctx, x[0], KB_UNTIMED, &KB_INDEX(3), 7));
            if (recorded)
                record_chain(ctx, x, 2, &graph);
            for (int round = 0; round < 2; round++) {
                for (int i = 0; i < CHAIN && !recorded; i++)
                    expect_ok(kb_launch(ctx, NULL, &mix, x[(i + 1) % 2], x[i % 2], 2, 0.5, 1));
                if (recorded)
                    expect_ok(kb_graph_launch(ctx, graph, NULL));
            }
            all[recorded] = calloc(count, sizeof(float));
            assert_non_null(all[recorded]);
            expect_ok(kb_tensor_to_host(ctx, x[0], KB_UNTIMED, all[recorded], count * 4));
            if (recorded) {
                assert_memory_equal(all[0], all[1], count * 4);
                expect_ok(kb_graph_free(ctx, graph));
            }
            kb_context_destroy(ctx);
        }
        free(all[0]);
        free(all[1]);
    }
}

/* Dependent launches of a small kernel over 128 PEs, each of which reads what another cube wrote:
 * at most 0.4 us each beyond the kernels. */
static void a_node_costs_little(void **state)
{
    (void)state;
    kb_context *ctx = open_strict(NULL);
    kb_tensor x[2] = {make_blocks(ctx, "x"), make_blocks(ctx, "y")};
    kb_graph graph;
    kb_request request;
    kb_launch_result results[CHAIN];
    size_t count;
    record_chain(ctx, x, (int)kb_context_machine(ctx).pes, &graph);
    kb_time start = kb_context_now(ctx), kernels = 0;
    expect_ok(kb_graph_launch(ctx, graph, &(kb_graph_options){.request = &request}));
    expect_ok(kb_request_wait(ctx, request, NULL));
    kb_time took = kb_context_now(ctx) - start;
    expect_ok(kb_launch_results(ctx, request, results, CHAIN, &count));
    assert_int_equal(count, CHAIN);
    for (int i = 0; i < CHAIN; i++) {
        kernels += results[i].pe_exec;
        assert_int_equal(results[i].issued + results[i].network + results[i].pe_exec,
                         results[i].ended);
        if (i > 0)
            assert_int_equal(results[i].issued, results[i - 1].ended);
    }
    assert_true(took - kernels <= CHAIN * 400 * KB_NS);
    kb_context_destroy(ctx);
}

/* Streams and events within a graph, copies with the host and between devices. */
static void the_order_within_a_graph_is_that_of_streams(void **state)
{
    (void)state;
    kb_context *ctx = open_strict(ODD_ONES);
    kb_stream side;
    kb_stream_event made, used;
    expect_ok(kb_stream_create(ctx, "side", &side));
    expect_ok(kb_stream_event_create(ctx, &made));
    expect_ok(kb_stream_event_create(ctx, &used));
    kb_tensor x = make_blocks(ctx, "x"), y = make_blocks(ctx, "y"), host, back, there;
    uint64_t count = block_elements(ctx);
    float *numbers = calloc(count, sizeof *numbers);
    assert_non_null(numbers);
    kb_tensor_spec spec = {.name = "host", .dtype = KB_F32, .shape = KB_SHAPE(count)};
    expect_ok(kb_from_host(ctx, &spec, numbers, count * 4, &host));
    expect_ok(kb_from_host(ctx, &spec, numbers, count * 4, &back));
    expect_ok(kb_ahbm_set_device(ctx, 1));
    there = make_blocks(ctx, "there");
    kb_graph graph;
    expect_ok(kb_graph_begin(ctx, NULL, &graph));
    expect_ok(kb_tensor_copy(ctx, x, host, KB_TIMED));
    expect_ok(kb_launch(ctx, NULL, &mix, y, x, 2, 1, 1)); /* 2 x + 1 */
    expect_ok(kb_stream_record(ctx, KB_DEFAULT_STREAM, made));
    expect_ok(kb_stream_wait(ctx, side, made));
    expect_ok(kb_stream_copy(ctx, side, there, y, NULL));
    expect_ok(kb_launch_with(ctx, (&(kb_launch_options){.stream = side}), &own, there, 9, 5));
    expect_ok(kb_stream_copy(ctx, side, back, there, NULL));
    expect_ok(kb_stream_record(ctx, side, used));
    expect_ok(kb_stream_wait(ctx, KB_DEFAULT_STREAM, used));
    expect_ok(kb_launch(ctx, NULL, &own, y, 0, 100));
    expect_ok(kb_graph_end(ctx, graph));
    size_t nodes;
    expect_ok(kb_graph_node_count(ctx, graph, &nodes));
    assert_int_equal(nodes, 6);
    for (int round = 1; round <= 3; round++) {
        expect_ok(kb_tensor_fill_slice(ctx, host, KB_UNTIMED, NULL, round));
        kb_request request;
        expect_ok(kb_graph_launch(ctx, graph, &(kb_graph_options){.request = &request}));
        expect_all(ctx, back, 2 * round + 6);
        expect_all(ctx, y, 2 * round + 101);
        expect_ok(kb_request_free(ctx, request));
    }
    free(numbers);
    kb_context_destroy(ctx);
}

/* A graph is a part of its stream: what is before and behind it waits. */
static void a_graph_is_in_a_stream(void **state)
{
    (void)state;
    kb_context *ctx = open_strict(TALL);
    kb_tensor x = make_blocks(ctx, "x"), y = make_blocks(ctx, "y");
    kb_graph graph;
    kb_request requests[3];
    expect_ok(kb_graph_begin(ctx, NULL, &graph));
    expect_ok(kb_launch(ctx, NULL, &mix, y, x, 5, 1, 0));
    expect_ok(kb_launch(ctx, NULL, &mix, x, y, 5, 1, 0));
    expect_ok(kb_graph_end(ctx, graph));
    expect_ok(kb_launch_async(ctx, &requests[0], NULL, &own, x, 40, 1));
    expect_ok(kb_graph_launch(ctx, graph, &(kb_graph_options){.request = &requests[1]}));
    expect_ok(kb_launch_async(ctx, &requests[2], NULL, &mix, y, x, 5, 1, 0));
    expect_ok(kb_synchronize(ctx));
    expect_all(ctx, y, 8);
    kb_context_destroy(ctx);
}

/* A kernel that the program makes, with a user object, may go when its launch was called. */
static void a_kernel_may_go_once_it_is_launched(void **state)
{
    (void)state;
    kb_context *ctx = open_strict(TALL);
    kb_tensor x = make_blocks(ctx, "x");
    kb_graph graph;
    kb_request request;
    kb_kernel kernel = own;
    expect_ok(kb_launch_async(ctx, &request, NULL, &kernel, x, 3, 1));
    memset(&kernel, 0xee, sizeof kernel);
    expect_ok(kb_request_wait(ctx, request, NULL));
    kernel = own;
    expect_ok(kb_graph_begin(ctx, NULL, &graph));
    expect_ok(kb_launch(ctx, NULL, &kernel, x, 3, 1));
    memset(&kernel, 0xee, sizeof kernel);
    expect_ok(kb_graph_end(ctx, graph));
    for (int i = 0; i < 2; i++)
        expect_ok(kb_graph_launch(ctx, graph, NULL));
    expect_all(ctx, x, 3);
    kb_context_destroy(ctx);
}

/* ---- Changing it ---------------------------------------------------------------------------- */

static void arguments_can_be_changed(void **state)
{
    (void)state;
    kb_context *ctx = open_strict(TALL);
    kb_tensor x = make_blocks(ctx, "x"), y = make_blocks(ctx, "y"), z = make_blocks(ctx, "z");
    kb_graph graph;
    size_t node;
    expect_ok(kb_graph_begin(ctx, "g", &graph));
    expect_ok(kb_launch(ctx, "add", &own, x, 0, 1));
    expect_ok(kb_stream_copy(ctx, KB_DEFAULT_STREAM, y, x, NULL));
    expect_ok(kb_graph_end(ctx, graph));
    expect_ok(kb_graph_launch(ctx, graph, NULL));
    expect_ok(kb_graph_find(ctx, graph, "add", &node));
    assert_int_equal(node, 0);
    expect_ok(kb_graph_set_arg(ctx, graph, node, 2, kb_arg_real(10)));
    expect_ok(kb_graph_launch(ctx, graph, NULL));
    expect_all(ctx, y, 11);
    expect_ok(kb_graph_find(ctx, graph, "y", &node));
    assert_int_equal(node, 1);
    expect_ok(kb_graph_set_arg(ctx, graph, node, 0, kb_arg_tensor(z)));
    expect_ok(kb_graph_launch(ctx, graph, NULL));
    expect_all(ctx, y, 11);
    expect_all(ctx, z, 21);
    expect_ok(kb_graph_set_arg(ctx, graph, 0, 0, kb_arg_tensor(y)));
    expect_ok(kb_graph_launch(ctx, graph, NULL));
    expect_all(ctx, y, 21);
    expect_all(ctx, x, 21);

    const kb_policy other = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE, .num_cubes = 2};
    kb_tensor_spec spec = {.name = "odd",
                           .dtype = KB_F32,
                           .shape = KB_SHAPE(block_elements(ctx)),
                           .policy = &other,
                           .access = KB_UNTIMED};
    kb_tensor odd;
    expect_ok(kb_empty(ctx, &spec, &odd));
    expect_texts(kb_graph_set_arg(ctx, graph, 0, 0, kb_arg_tensor(odd)), KB_ERR_FAULT,
                 "graph 'g', node 0 ('add'): argument 1: 'odd'", "is not placed as the recorded",
                 NULL);
    expect_texts(kb_graph_set_arg(ctx, graph, 0, 0, kb_arg_integer(1)), KB_ERR_FAULT,
                 "argument 1: expected 1 tensor as recorded, found 0", NULL);
    expect_texts(kb_graph_set_arg(ctx, graph, 0, 1, kb_arg_integer(INT64_MAX)), KB_ERR_FAULT,
                 "argument 2", NULL);
    expect_texts(kb_graph_set_arg(ctx, graph, 0, 3, kb_arg_integer(1)), KB_ERR_FAULT,
                 "no argument 3: it has 3", NULL);
    expect_texts(kb_graph_set_arg(ctx, graph, 2, 0, kb_arg_integer(1)), KB_ERR_FAULT,
                 "no node 2: it has 2", NULL);
    expect_texts(kb_graph_find(ctx, graph, "sub", &node), KB_ERR_FAULT, "no node 'sub'", NULL);
    expect_ok(kb_graph_launch(ctx, graph, NULL)); /* nothing has changed */
    expect_all(ctx, y, 31);
    kb_context_destroy(ctx);
}

/* ---- What is wrong with it ------------------------------------------------------------------ */

static void a_recording_refuses_what_it_cannot_hold(void **state)
{
    (void)state;
    kb_context *ctx = open_strict(TALL);
    kb_tensor x = make_blocks(ctx, "x");
    kb_graph graph, second;
    kb_request request;
    kb_stream_event event;
    double value;
    expect_ok(kb_stream_event_create(ctx, &event));
    expect_ok(kb_stream_record(ctx, KB_DEFAULT_STREAM, event));
    expect_ok(kb_graph_begin(ctx, "g", &graph));
    expect_texts(kb_tensor_get(ctx, x, KB_UNTIMED, &KB_INDEX(0), &value), KB_ERR_FAULT,
                 "kb_tensor_get: graph 'g' is being recorded", NULL);
    expect_texts(kb_tensor_set(ctx, x, KB_UNTIMED, &KB_INDEX(0), 1), KB_ERR_FAULT,
                 "is being recorded", NULL);
    expect_texts(kb_synchronize(ctx), KB_ERR_FAULT, "is being recorded", NULL);
    expect_texts(kb_stream_synchronize(ctx, KB_DEFAULT_STREAM), KB_ERR_FAULT, "being recorded",
                 NULL);
    expect_texts(kb_graph_begin(ctx, NULL, &second), KB_ERR_FAULT, "being recorded", NULL);
    expect_texts(kb_graph_launch(ctx, graph, NULL), KB_ERR_FAULT, "being recorded", NULL);
    expect_ok(kb_launch_async(ctx, &request, NULL, &own, x, 0, 1));
    assert_int_equal(request.id, 0);
    expect_texts(kb_request_wait(ctx, request, NULL), KB_ERR_FAULT, "invalid", NULL);
    expect_ok(kb_request_free(ctx, request));
    expect_texts(kb_stream_wait(ctx, KB_DEFAULT_STREAM, event), KB_ERR_FAULT,
                 "the event was not recorded in it", NULL);
    expect_texts(kb_launch(ctx, NULL, &own, x, 0), KB_ERR_FAULT, "launch of 'own'", NULL);
    expect_ok(kb_graph_end(ctx, graph));
    expect_texts(kb_graph_end(ctx, graph), KB_ERR_FAULT, "is not being recorded by the caller",
                 NULL);
    expect_all(ctx, x, 0); /* nothing has run */
    expect_ok(kb_graph_launch(ctx, graph, NULL));
    expect_all(ctx, x, 1);
    kb_context_destroy(ctx);
}

static void a_graph_that_cannot_run_says_why(void **state)
{
    (void)state;
    kb_context *ctx = open_strict(TALL);
    kb_tensor x = make_blocks(ctx, "x"), y = make_blocks(ctx, "y");
    kb_pe pes[] = {{0, 0, 0}, {0, 0, 1}};
    kb_queue_spec spec = {.topology = "ring_1d", .pes = pes, .pe_count = 2};
    kb_queue_set set;
    expect_ok(kb_queues_create(ctx, &spec, &set));
    expect_ok(kb_queues_install(ctx, set));
    kb_graph graph, with_queues;
    kb_request request;
    expect_ok(kb_graph_begin(ctx, "g", &graph));
    expect_ok(kb_launch(ctx, "first", &own, x, 5, 1));
    expect_ok(kb_launch(ctx, "second", &mix, y, x, 1, 1, 1));
    expect_ok(kb_graph_end(ctx, graph));
    expect_ok(kb_graph_begin(ctx, "q", &with_queues));
    expect_ok(kb_launch_with(ctx, (&(kb_launch_options){.queues = set}), &own, x, 0, 1));
    expect_ok(kb_graph_end(ctx, with_queues));

    expect_ok(kb_graph_launch(ctx, graph, &(kb_graph_options){.request = &request}));
    expect_texts(kb_graph_launch(ctx, graph, NULL), KB_ERR_FAULT,
                 "kb_graph_launch: graph 'g' is still running", NULL);
    expect_texts(kb_graph_free(ctx, graph), KB_ERR_FAULT, "is running", NULL);
    expect_ok(kb_request_wait(ctx, request, NULL));
    expect_ok(kb_graph_launch(ctx, graph, NULL));

    expect_ok(kb_graph_launch(ctx, with_queues, NULL));
    expect_ok(kb_queues_remove(ctx, set));
    expect_texts(kb_graph_launch(ctx, with_queues, NULL), KB_ERR_FAULT, "graph 'q', node 0 ('own')",
                 "its queue set was removed", NULL);
    expect_ok(kb_tensor_free(ctx, y));
    expect_texts(kb_graph_launch(ctx, graph, NULL), KB_ERR_FAULT,
                 "graph 'g', node 1 ('second'): argument 1: the tensor was freed", NULL);
    expect_all(ctx, x, 3); /* the first node did not run either */
    expect_ok(kb_graph_free(ctx, graph));
    expect_texts(kb_graph_launch(ctx, graph, NULL), KB_ERR_FAULT, "invalid or freed graph", NULL);
    kb_context_destroy(ctx);
}

/* A device that only receives has no node of its own: what follows there waits all the same. */
static void what_follows_waits_for_what_a_graph_sends(void **state)
{
    (void)state;
    kb_context *ctx = open_strict(THREE_SIPS);
    kb_tensor x = make_blocks(ctx, "x"), y;
    kb_graph graph;
    kb_request first, second;
    expect_ok(kb_ahbm_set_device(ctx, 1));
    y = make_blocks(ctx, "y");
    expect_ok(kb_tensor_fill_slice(ctx, x, KB_UNTIMED, NULL, 5));
    expect_ok(kb_graph_begin(ctx, NULL, &graph));
    expect_ok(kb_stream_copy(ctx, KB_DEFAULT_STREAM, y, x, NULL));
    expect_ok(kb_graph_end(ctx, graph));
    expect_ok(kb_graph_launch(ctx, graph, &(kb_graph_options){.request = &first}));
    expect_ok(kb_launch_async(ctx, &second, NULL, &own, y, 0, 1));
    expect_ok(kb_synchronize(ctx));
    expect_all(ctx, y, 6);
    kb_context_destroy(ctx);
}

/* A node that fails ends the graph; nodes behind it do not start. It can be launched again. */
static void a_node_that_fails_fails_the_graph(void **state)
{
    (void)state;
    kb_context *ctx = open_strict(TALL);
    kb_tensor x = make_blocks(ctx, "x"), y = make_blocks(ctx, "y");
    kb_graph graph;
    expect_ok(kb_graph_begin(ctx, "g", &graph));
    expect_ok(kb_launch(ctx, NULL, &own, y, 0, 1));
    expect_ok(kb_launch(ctx, NULL, &outside, x));
    for (int i = 0; i < 100; i++)
        expect_ok(kb_launch(ctx, NULL, &own, x, 0, 1));
    expect_ok(kb_stream_copy(ctx, KB_DEFAULT_STREAM, y, x, NULL));
    expect_ok(kb_graph_end(ctx, graph));
    for (int round = 1; round <= 2; round++) {
        expect_texts(kb_graph_launch(ctx, graph, NULL), KB_ERR_FAULT,
                     "launch 'outside' of a graph: kernel 'outside'", "not mapped", NULL);
        expect_all(ctx, x, 0);
        expect_all(ctx, y, round);
    }
    kb_context_destroy(ctx);
}

/* Races between nodes that nothing orders are found in a graph too. */
static void races_within_a_graph_are_found(void **state)
{
    (void)state;
    kb_context *ctx = open_strict(TALL);
    kb_tensor x = make_blocks(ctx, "x");
    kb_stream side;
    kb_graph graph;
    expect_ok(kb_stream_create(ctx, "side", &side));
    expect_ok(kb_graph_begin(ctx, "g", &graph));
    expect_ok(kb_launch(ctx, "one", &own, x, 0, 1));
    expect_ok(
        kb_launch_with(ctx, (&(kb_launch_options){.name = "two", .stream = side}), &own, x, 0, 1));
    expect_ok(kb_graph_end(ctx, graph));
    expect_texts(kb_graph_launch(ctx, graph, NULL), KB_ERR_FAULT, "data race between launch",
                 "'two' in stream 'side'", NULL);
    kb_context_destroy(ctx);
}

static void a_context_may_go_while_a_graph_runs(void **state)
{
    (void)state;
    kb_context *ctx = open_strict(TALL);
    kb_tensor x[2] = {make_blocks(ctx, "x"), make_blocks(ctx, "y")};
    kb_graph graph;
    kb_request request;
    record_chain(ctx, x, 1, &graph);
    expect_ok(kb_graph_launch(ctx, graph, &(kb_graph_options){.request = &request}));
    expect_ok(kb_sim_run(kb_context_sim(ctx), kb_context_now(ctx) + 3 * KB_US));
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_graph_does_what_its_calls_do),
        cmocka_unit_test(a_node_costs_little),
        cmocka_unit_test(the_order_within_a_graph_is_that_of_streams),
        cmocka_unit_test(a_graph_is_in_a_stream),
        cmocka_unit_test(a_kernel_may_go_once_it_is_launched),
        cmocka_unit_test(arguments_can_be_changed),
        cmocka_unit_test(a_recording_refuses_what_it_cannot_hold),
        cmocka_unit_test(a_graph_that_cannot_run_says_why),
        cmocka_unit_test(what_follows_waits_for_what_a_graph_sends),
        cmocka_unit_test(a_node_that_fails_fails_the_graph),
        cmocka_unit_test(races_within_a_graph_are_found),
        cmocka_unit_test(a_context_may_go_while_a_graph_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
