/*
 * test_queue_sets.c: queues for ordinary launches: the three ways to make a set, sets beside each
 * other and beside collectives, removal, lists and dumps, and every mistake.
 *
 * The machine has 2 SIPs of 3 x 1 cubes of four PEs. A tensor of 12 elements has one on each PE of
 * SIP 0: element i is on PE i % 4 of cube i / 4.
 */
#include "trial.h"

#include <kernbench/tl.h>

enum { CUBE_COUNT = 3, CUBE_PES = 4, ALL = CUBE_COUNT * CUBE_PES };

/* Adds to the PE's element what its predecessor has. */
KB_KERNEL(add_previous, tl_ptr x)
{
    tl_ptr mine = x + (tl_program_id(1) * tl_num_programs(0) + tl_program_id(0)) * 4;
    tl_tensor own = tl_load(mine, tl_shape(1), TL_F32);
    tl_send("E", own);
    tl_store(mine, tl_add(own, tl_recv("W", tl_shape(1), TL_F32)));
}

/* The same in one direction of the sender's naming, where there is one. */
KB_KERNEL(pass_along, tl_ptr x)
{
    tl_ptr mine = x + (tl_program_id(1) * tl_num_programs(0) + tl_program_id(0)) * 4;
    if (tl_can_send("out"))
        tl_send("out", tl_load(mine, tl_shape(1), TL_F32));
    if (tl_can_recv("out"))
        tl_store(mine, tl_recv("out", tl_shape(1), TL_F32));
}

/* PE 0 makes a mistake; all others wait for a message that never comes. */
KB_KERNEL(fail_on_first, tl_ptr x)
{
    if (tl_program_id(0) + tl_program_id(1) == 0)
        (void)tl_load(x, tl_shape(-1), TL_F32);
    (void)tl_recv("W", tl_shape(1), TL_F32);
}

/* Sends what the next launch receives. */
KB_KERNEL(send_only, tl_ptr x)
{
    tl_send("E", tl_load(x, tl_shape(1), TL_F32));
}

static kb_context *open_two_sips(kb_context_options options)
{
    options.threads = 1;
    return open_sips(2, CUBE_COUNT, 1, NULL, options);
}

static kb_pe pe_at(size_t i)
{
    return (kb_pe){.cube = (uint32_t)i / CUBE_PES, .pe = (uint32_t)i % CUBE_PES};
}

/* Element i is 2^i, so that a sum says what was added. */
static kb_tensor powers(kb_context *ctx)
{
    static const kb_policy policy = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    kb_tensor_spec spec = {.name = "x",
                           .dtype = KB_F32,
                           .shape = KB_SHAPE(ALL),
                           .policy = &policy,
                           .access = KB_UNTIMED};
    kb_tensor x;
    expect_ok(kb_empty(ctx, &spec, &x));
    for (uint64_t i = 0; i < ALL; i++)
        expect_ok(kb_tensor_set(ctx, x, KB_UNTIMED, &KB_INDEX(i), (double)(1u << i)));
    return x;
}

static void expect_element(kb_context *ctx, kb_tensor x, uint64_t i, double expected)
{
    double value;
    expect_ok(kb_tensor_get(ctx, x, KB_UNTIMED, &KB_INDEX(i), &value));
    assert_true(value == expected);
}

/* ---- Three ways ---------------------------------------------------------------------------- */

/* Every second PE backwards: who precedes whom is the order that was given. */
static void a_topology_over_chosen_pes(void **state)
{
    (void)state;
    kb_pe pes[ALL];
    for (size_t i = 0; i < ALL; i++)
        pes[i] = pe_at(i * 5 % ALL);
    kb_context *ctx = open_two_sips((kb_context_options){0});
    kb_tensor x = powers(ctx);
    kb_queue_set set;
    kb_time before = kb_context_now(ctx);
    expect_ok(kb_queues_create(
        ctx, &(kb_queue_spec){.topology = "ring_1d", .pes = pes, .pe_count = ALL}, &set));
    assert_int_equal(kb_context_now(ctx), before);
    expect_ok(kb_queues_install(ctx, set));
    assert_true(kb_context_now(ctx) > before);
    expect_ok(kb_launch(ctx, NULL, &add_previous, x));
    for (size_t i = 0; i < ALL; i++) {
        uint64_t mine = i * 5 % ALL, previous = (i + ALL - 1) * 5 % ALL;
        expect_element(ctx, x, mine, (double)((1u << mine) + (1u << previous)));
    }
    expect_ok(kb_queues_remove(ctx, set));
    kb_context_destroy(ctx);
}

static void a_list_of_edges(void **state)
{
    (void)state;
    const kb_queue_edge edges[] = {{pe_at(2), "out", pe_at(9)}, {pe_at(11), "out", pe_at(0)}};
    kb_context *ctx = open_two_sips((kb_context_options){0});
    kb_tensor x = powers(ctx);
    kb_queue_set set;
    expect_ok(kb_queues_create(ctx, &(kb_queue_spec){.edges = edges, .edge_count = 2}, &set));
    expect_ok(kb_queues_install(ctx, set));
    expect_ok(kb_launch(ctx, NULL, &pass_along, x));
    for (uint64_t i = 0; i < ALL; i++)
        expect_element(ctx, x, i, i == 9 ? 1 << 2 : i == 0 ? 1 << 11 : (double)(1u << i));
    kb_context_destroy(ctx); /* a set that is left goes with the context */
}

static void an_entry_of_ccl_yaml(void **state)
{
    (void)state;
    kb_context *ctx = open_two_sips((kb_context_options){0});
    kb_tensor x = powers(ctx);
    kb_queue_set set;
    expect_ok(kb_queues_create(ctx, &(kb_queue_spec){.algorithm = "tree_allreduce_7"}, &set));
    kb_queue_info infos[64];
    size_t count;
    expect_ok(kb_queues_list(ctx, set, infos, 64, &count));
    assert_int_equal(count, 12);           /* a tree of 7 has 6 edges, both ways */
    expect_ok(kb_queues_remove(ctx, set)); /* which was not installed */
    expect_ok(kb_queues_create(
        ctx, &(kb_queue_spec){.algorithm = "ring_rsag_pes", .world = ALL, .n_slots = 2}, &set));
    expect_ok(kb_queues_install(ctx, set));
    expect_ok(kb_launch(ctx, NULL, &add_previous, x));
    kb_context_destroy(ctx);
}

/* ---- Beside each other --------------------------------------------------------------------- */

static kb_queue_set install_ring(kb_context *ctx, size_t stride)
{
    kb_pe pes[ALL];
    for (size_t i = 0; i < ALL; i++)
        pes[i] = pe_at(i * stride % ALL);
    kb_queue_set set;
    expect_ok(kb_queues_create(
        ctx, &(kb_queue_spec){.topology = "ring_1d", .pes = pes, .pe_count = ALL}, &set));
    expect_ok(kb_queues_install(ctx, set));
    return set;
}

/* What element 0 is after a launch: itself and its predecessor at the stride. */
static double with_previous(size_t stride)
{
    return 1 + (double)(1u << (ALL - 1) * stride % ALL);
}

static double launch_on_fresh(kb_context *ctx, kb_queue_set set)
{
    kb_tensor x = powers(ctx);
    double value;
    expect_ok(kb_launch_with(ctx, (&(kb_launch_options){.queues = set}), &add_previous, x));
    expect_ok(kb_tensor_get(ctx, x, KB_UNTIMED, &KB_INDEX(0), &value));
    return value;
}

static void launches_choose_among_sets(void **state)
{
    (void)state;
    kb_context *ctx = open_two_sips((kb_context_options){0});
    kb_queue_set first = install_ring(ctx, 1), second = install_ring(ctx, 5);
    assert_true(launch_on_fresh(ctx, (kb_queue_set){0}) == with_previous(5)); /* the last one */
    assert_true(launch_on_fresh(ctx, first) == with_previous(1));
    assert_true(launch_on_fresh(ctx, second) == with_previous(5));
    expect_ok(kb_queues_remove(ctx, second));
    assert_true(launch_on_fresh(ctx, (kb_queue_set){0}) == with_previous(1));
    expect_ok(kb_queues_remove(ctx, first));
    kb_context_destroy(ctx);
}

/* Two launches by two sets and an all-reduce, under way at the same time. */
static void sets_and_collectives_at_the_same_time(void **state)
{
    (void)state;
    kb_context *ctx = open_two_sips((kb_context_options){0});
    expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
    kb_queue_set sets[] = {install_ring(ctx, 1), install_ring(ctx, 7)};
    kb_tensor x[] = {powers(ctx), powers(ctx)}, sums[2];
    for (uint32_t sip = 0; sip < 2; sip++) {
        expect_ok(kb_ahbm_set_device(ctx, sip));
        sums[sip] = filled_f16(ctx, 100, sip + 1);
    }
    kb_request requests[3];
    kb_collective call = {.kind = KB_ALL_REDUCE,
                          .inputs = sums,
                          .outputs = sums,
                          .count = 2,
                          .options = {.work = &requests[2]}};
    for (size_t i = 0; i < 2; i++)
        expect_ok(kb_launch_with(ctx,
                                 (&(kb_launch_options){.queues = sets[i], .request = &requests[i]}),
                                 &add_previous, x[i]));
    expect_ok(kb_distributed_call(ctx, &call));
    for (size_t i = 0; i < 3; i++) {
        expect_ok(kb_request_wait(ctx, requests[i], NULL));
        expect_ok(kb_request_free(ctx, requests[i]));
    }
    expect_element(ctx, x[0], 0, with_previous(1));
    expect_element(ctx, x[1], 0, with_previous(7));
    assert_true(first_of(ctx, sums[0]) == 3 && first_of(ctx, sums[1]) == 3);
    for (size_t i = 0; i < 2; i++)
        expect_ok(kb_queues_remove(ctx, sets[i]));
    kb_context_destroy(ctx);
}

/* ---- After failures, and left over ---------------------------------------------------------- */

typedef struct lines {
    size_t count;
    char last[512];
} lines;

static void keep_line(void *self, const char *line)
{
    lines *l = self;
    l->count++;
    snprintf(l->last, sizeof l->last, "%s", line);
}

static void a_failed_kernel_stops_its_launch_alone(void **state)
{
    (void)state;
    lines warnings = {0};
    kb_context *ctx =
        open_two_sips((kb_context_options){.on_warning = keep_line, .on_warning_self = &warnings});
    kb_queue_set set = install_ring(ctx, 1);
    kb_tensor x = powers(ctx);
    for (int i = 0; i < 2; i++) {
        kb_error *err = kb_launch(ctx, NULL, &fail_on_first, x);
        assert_int_equal(kb_error_code(err), KB_ERR_FAULT);
        assert_non_null(strstr(kb_error_message(err), "kernel 'fail_on_first' on sip0.cube0.pe0"));
        kb_error_free(err);
        assert_true(launch_on_fresh(ctx, set) == with_previous(1));
    }
    expect_ok(kb_queues_remove(ctx, set));
    kb_context_destroy(ctx);
}

/* PE 1 sends; PE 0 waits for PE 2, which runs no kernel, or takes what PE 1 has sent. */
KB_KERNEL(wait_or_take, tl_ptr x, int take)
{
    tl_ptr mine = x + tl_program_id(0) * 4;
    if (tl_program_id(0) == 1)
        tl_send("to0", tl_load(mine, tl_shape(1), TL_F32));
    else if (tl_program_id(0) == 0)
        tl_store(mine, tl_recv(take ? "to0" : "from2", tl_shape(1), TL_F32));
}

static void queues_are_empty_after_a_deadlock(void **state)
{
    (void)state;
    kb_context *ctx = open_two_sips((kb_context_options){0});
    const kb_queue_edge edges[] = {{pe_at(1), "to0", pe_at(0)}, {pe_at(2), "from2", pe_at(0)}};
    const kb_policy first_two = {.pe = KB_COLUMN_WISE, .num_cubes = 1, .num_pes = 2};
    kb_tensor_spec spec = {
        .dtype = KB_F32, .shape = KB_SHAPE(2), .policy = &first_two, .access = KB_UNTIMED};
    kb_tensor x, y;
    kb_queue_set set;
    expect_ok(kb_full(ctx, &spec, 111, &x));
    expect_ok(kb_full(ctx, &spec, 222, &y));
    expect_ok(kb_queues_create(ctx, &(kb_queue_spec){.edges = edges, .edge_count = 2}, &set));
    expect_ok(kb_queues_install(ctx, set));
    kb_error *err = kb_launch(ctx, NULL, &wait_or_take, x, 0);
    assert_int_equal(kb_error_code(err), KB_ERR_DEADLOCK);
    assert_non_null(strstr(kb_error_message(err),
                           ": sip0.cube0.pe0 waits for sip0.cube0.pe2 (from2), which runs no "
                           "kernel: its kernel has ended, or the launch does not run on it"));
    kb_error_free(err);
    expect_ok(kb_launch(ctx, NULL, &wait_or_take, y, 1));
    expect_element(ctx, y, 0, 222);
    expect_ok(kb_queues_remove(ctx, set));
    kb_context_destroy(ctx);
}

/* A send does not wait for composites: without waiting for their futures it is a race. */
enum { SIDE = 32, PRODUCTS = 3 };
KB_KERNEL(multiply_then_tell, tl_ptr a, tl_ptr out, int waits)
{
    tl_dims square = tl_shape(SIDE, SIDE);
    if (tl_program_id(0) == 0) {
        tl_future done[PRODUCTS];
        for (int i = 0; i < PRODUCTS; i++)
            done[i] = tl_composite(TL_GEMM, tl_ref(a, square, TL_F32), tl_ref(a, square, TL_F32),
                                   tl_ref(out + i * SIDE * SIDE * 4, square, TL_F32));
        for (int i = 0; i < waits; i++)
            tl_wait(done[i]);
        tl_send("E", tl_full(tl_shape(1), TL_F32, 1));
    } else {
        (void)tl_recv("E", tl_shape(1), TL_F32);
        for (int i = 0; i < PRODUCTS; i++) {
            tl_ptr from = out + i * SIDE * SIDE * 4;
            tl_store(from + PRODUCTS * SIDE * SIDE * 4, tl_load(from, square, TL_F32));
        }
    }
}

static void sends_come_after_composites_that_were_waited_for(void **state)
{
    (void)state;
    kb_context *ctx = open_two_sips((kb_context_options){.races = KB_RACES_FAIL});
    const kb_policy by_rows = {.pe = KB_ROW_WISE, .num_cubes = 1, .num_pes = 2};
    const kb_queue_edge edge = {pe_at(0), "E", pe_at(1)};
    kb_tensor_spec spec = {.dtype = KB_F32, .shape = KB_SHAPE(SIDE, SIDE), .access = KB_UNTIMED};
    kb_tensor a, out;
    kb_queue_set set;
    expect_ok(kb_full(ctx, &spec, 1, &a));
    spec.shape = KB_SHAPE((uint64_t)2 * PRODUCTS * SIDE, SIDE);
    spec.policy = &by_rows;
    expect_ok(kb_full(ctx, &spec, 0, &out));
    expect_ok(kb_queues_create(ctx, &(kb_queue_spec){.edges = &edge, .edge_count = 1}, &set));
    expect_ok(kb_queues_install(ctx, set));
    for (int waits = 0; waits < PRODUCTS; waits++) {
        kb_error *err = kb_launch(ctx, NULL, &multiply_then_tell, a, out, waits);
        assert_int_equal(kb_error_code(err), KB_ERR_FAULT);
        assert_non_null(strstr(kb_error_message(err), "data race"));
        assert_non_null(strstr(kb_error_message(err), "writes them (tl_composite at "));
        kb_error_free(err);
    }
    expect_ok(kb_launch(ctx, NULL, &multiply_then_tell, a, out, PRODUCTS));
    for (uint64_t row = 0; row < 2 * PRODUCTS * SIDE; row++) {
        double value;
        expect_ok(kb_tensor_get(ctx, out, KB_UNTIMED, &KB_INDEX(row, SIDE - 1), &value));
        assert_true(value == SIDE);
    }
    kb_context_destroy(ctx);
}

static void messages_stay_for_the_next_launch(void **state)
{
    (void)state;
    lines warnings = {0};
    kb_context *ctx =
        open_two_sips((kb_context_options){.on_warning = keep_line, .on_warning_self = &warnings});
    const kb_queue_edge edge = {pe_at(0), "E", pe_at(1)};
    kb_tensor_spec spec = {.dtype = KB_F32, .shape = KB_SHAPE(1), .access = KB_UNTIMED};
    kb_tensor x;
    kb_queue_set set;
    expect_ok(kb_full(ctx, &spec, 5, &x)); /* on PE 0 alone */
    expect_ok(kb_queues_create(ctx, &(kb_queue_spec){.edges = &edge, .edge_count = 1}, &set));
    expect_ok(kb_queues_install(ctx, set));
    expect_ok(kb_launch(ctx, NULL, &send_only, x));
    kb_queue_info infos[4];
    size_t count;
    expect_ok(kb_queues_list(ctx, set, infos, 4, &count));
    assert_int_equal(count, 2);
    assert_int_equal(infos[0].my_head, 1);
    assert_int_equal(infos[1].peer_head_cache, 1);
    assert_int_equal(infos[1].my_tail, 0);
    assert_true(infos[0].can_send && !infos[0].can_receive);
    assert_true(infos[1].can_receive && infos[1].from.pe == 0 && infos[1].ring.memory == KB_TCM);
    lines dump = {0};
    expect_ok(kb_queues_dump(ctx, (kb_queue_set){0}, keep_line, &dump));
    assert_int_equal(dump.count, 2);
    assert_non_null(strstr(dump.last, "sip0.cube0.pe1 E; from sip0.cube0.pe0: peer_head_cache 1, "
                                      "my_tail 0, ring sip0.cube0.pe1."));
    size_t before = warnings.count;
    expect_ok(kb_queues_remove(ctx, set));
    assert_int_equal(warnings.count, before + 1);
    assert_string_equal(warnings.last, "kb_queues_remove: 1 message was never received: "
                                       "sip0.cube0.pe1 has 1 in E from sip0.cube0.pe0");
    kb_context_destroy(ctx);
}

static void a_launch_without_queues_says_how_to_get_them(void **state)
{
    (void)state;
    kb_context *ctx = open_two_sips((kb_context_options){0});
    kb_error *err = kb_launch(ctx, NULL, &add_previous, powers(ctx));
    assert_int_equal(kb_error_code(err), KB_ERR_FAULT);
    assert_non_null(strstr(kb_error_message(err),
                           "tl_send: no queues are installed in this PE: kb_queues_create() and "
                           "kb_queues_install() give an ordinary launch its directions"));
    kb_error_free(err);
    kb_context_destroy(ctx);
}

/* ---- Mistakes ------------------------------------------------------------------------------ */

static void mistakes(void **state)
{
    (void)state;
    const kb_pe pes[] = {{0, 0, 0}, {0, 0, 9}}, twice[] = {{0, 0, 1}, {0, 0, 1}};
    const kb_queue_edge far = {{0, 0, 0}, "E", {7, 0, 0}}, nameless = {{0, 0, 0}, NULL, {0, 0, 1}};
    const struct {
        kb_queue_spec spec;
        const char *message;
    } rows[] = {
        {{0}, "none of algorithm, topology and edges: expected exactly one"},
        {{.algorithm = "a", .topology = "ring_1d"},
         "more than one of algorithm, topology and edges: expected exactly one"},
        {{.algorithm = "ring_rsak"},
         "built-in ccl.yaml has no algorithm 'ring_rsak'; did you mean 'ring_rsag'?"},
        {{.topology = "ring_1d"}, "topology 'ring_1d' over 0 PEs: expected 1 to 24"},
        {{.topology = "ring_1d", .pes = pes, .pe_count = 2},
         "PE 1: the machine has no sip0.cube0.pe9"},
        {{.topology = "ring_1d", .pes = twice, .pe_count = 2},
         "algorithm 'queues': sip0.cube0.pe1 is in the plan twice"},
        {{.edges = &far, .edge_count = 1}, "edge 0 (E): the machine has no sip7.cube0.pe0"},
        {{.edges = &nameless, .edge_count = 1}, "edge 0 has no direction"},
        {{.topology = "ring_1d", .pes = pes, .pe_count = 1, .n_slots = 100000},
         "n_slots is 100000: expected 1 to 65536"},
        {{.topology = "ring_1d", .pes = pes, .pe_count = 1, .slot_bytes = 8},
         "slot_bytes is 8: expected 16 to 67108864"},
        {{.topology = "ring_1d", .pes = pes, .pe_count = 1, .buffer_kind = "dram"},
         "unknown buffer_kind 'dram': expected tcm, hbm or sram; did you mean 'sram'?"},
    };
    kb_context *ctx = open_two_sips((kb_context_options){0});
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        kb_queue_set set;
        char expected[512];
        snprintf(expected, sizeof expected, "kb_queues_create: %s", rows[i].message);
        expect_error(kb_queues_create(ctx, &rows[i].spec, &set), KB_ERR_INPUT, expected);
        assert_int_equal(set.id, 0);
    }
    kb_queue_set set = install_ring(ctx, 1);
    expect_error(kb_queues_install(ctx, set), KB_ERR_FAULT,
                 "kb_queues_install: the queue set was installed already");
    expect_ok(kb_queues_remove(ctx, set));
    expect_error(kb_queues_remove(ctx, set), KB_ERR_FAULT,
                 "kb_queues_remove: invalid or removed queue set handle");
    kb_tensor x = powers(ctx);
    expect_error(kb_launch_with(ctx, (&(kb_launch_options){.queues = set}), &add_previous, x),
                 KB_ERR_FAULT,
                 "launch of 'add_previous': kb_launch_options.queues: invalid or removed queue set "
                 "handle");
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_topology_over_chosen_pes),
        cmocka_unit_test(a_list_of_edges),
        cmocka_unit_test(an_entry_of_ccl_yaml),
        cmocka_unit_test(launches_choose_among_sets),
        cmocka_unit_test(sets_and_collectives_at_the_same_time),
        cmocka_unit_test(a_failed_kernel_stops_its_launch_alone),
        cmocka_unit_test(queues_are_empty_after_a_deadlock),
        cmocka_unit_test(sends_come_after_composites_that_were_waited_for),
        cmocka_unit_test(messages_stay_for_the_next_launch),
        cmocka_unit_test(a_launch_without_queues_says_how_to_get_them),
        cmocka_unit_test(mistakes),
    };
    return cmocka_run_group_tests_name("queue_sets", tests, NULL, NULL);
}
