/* test_io_errors.c: commands that are refused, bugs, leaving early, and no memory. */
#include "board.h"
#include "support/failing_alloc.h"

typedef struct visit {
    board *b;
    uint64_t tickets[8];
    size_t arrivals;
    int done;
    kb_code code;
    bool finishes; /* at once */
    bool fails;
    bool again; /* the first one done submits another */
} visit;

static io_command command_of(visit *v, const io_target *targets, size_t count);

static kb_error *fault_of(const visit *v, size_t target)
{
    return v->fails ? kb_error_new(KB_ERR_FAULT, "target %zu", target) : NULL;
}

static void on_arrive(void *self, uint64_t ticket, size_t target)
{
    visit *v = self;
    v->tickets[v->arrivals++ % 8] = ticket;
    if (v->finishes)
        io_finish(v->b->control, ticket, NULL, fault_of(v, target));
}

static void on_done(void *self, uint64_t arg, const net_completion *completion, kb_error *err)
{
    visit *v = self;
    (void)arg;
    (void)completion;
    v->code = kb_error_code(err);
    kb_error_free(err);
    if (v->done++ > 0 || !v->again)
        return;
    static const io_target targets[] = {{.pe = 1}};
    io_command command = command_of(v, targets, 1);
    err = io_submit(v->b->control, &command);
    if (err)
        kb_sim_fail(v->b->sim, err);
}

static io_command command_of(visit *v, const io_target *targets, size_t count)
{
    return (io_command){.targets = targets,
                        .target_count = count,
                        .cube_bytes = 300,
                        .arrive = on_arrive,
                        .done = on_done,
                        .self = v};
}

static void bad_commands_are_refused(void **state)
{
    (void)state;
    board b = board_make(one_router(2), false);
    visit v = {.b = &b, .finishes = true};
    io_target targets[3] = {{.pe = 0}, {.pe = 1}};
    io_command command = command_of(&v, targets, 0);
    expect_error(io_submit(b.control, &command), KB_ERR_BUG, "a command for 0 PEs of SIP 0, of 1");
    command.target_count = 2;
    command.sip = 1;
    expect_error(io_submit(b.control, &command), KB_ERR_BUG, "a command for 2 PEs of SIP 1, of 1");
    command.sip = 0;
    targets[1].pe = 2;
    expect_error(io_submit(b.control, &command), KB_ERR_BUG, "a command for cube 0, PE 2");
    targets[1] = (io_target){.cube = 1};
    expect_error(io_submit(b.control, &command), KB_ERR_BUG, "a command for cube 1, PE 0");
    targets[1] = (io_target){0};
    expect_error(io_submit(b.control, &command), KB_ERR_BUG,
                 "target 1 of a command is out of order");
    targets[0].pe = 1;
    expect_error(io_submit(b.control, &command), KB_ERR_BUG,
                 "target 1 of a command is out of order");
    targets[0].pe = 0;
    targets[1].pe = 1;
    targets[1].bytes = UINT64_MAX - 315;
    expect_error(io_submit(b.control, &command), KB_ERR_INPUT,
                 "a command for 2 PEs is more than 2^64 bytes");
    targets[1].bytes = 0;
    command.cube_bytes = UINT64_MAX - 15;
    expect_error(io_submit(b.control, &command), KB_ERR_INPUT,
                 "a command for 2 PEs is more than 2^64 bytes");
    command.cube_bytes = (uint64_t)1 << 40; /* refused by the fabric */
    expect_error(io_submit(b.control, &command), KB_ERR_INPUT,
                 "transfer too large: 1099511627792 bytes exceed 536870911 packets of 256 "
                 "bytes");
    size_t blocks = failing_alloc_live();
    for (int i = 0; i < 2 * KB_POOL_CHUNK; i++)
        kb_error_free(io_submit(b.control, &command));
    assert_int_equal(failing_alloc_live(), blocks);
    expect_ok(kb_sim_run(b.sim, KB_FOREVER));
    assert_int_equal(kb_sim_now(b.sim), 0);

    /* It works on. */
    command.cube_bytes = 300;
    expect_ok(io_submit(b.control, &command));
    expect_ok(kb_sim_run(b.sim, KB_FOREVER));
    assert_int_equal(v.arrivals, 2);
    assert_int_equal(v.done, 1);
    board_fini(&b);
}

static void finish_twice(void)
{
    board b = board_make(one_router(2), false);
    visit v = {.b = &b};
    static const io_target targets[] = {{.pe = 0}, {.pe = 1}};
    io_command command = command_of(&v, targets, 2);
    expect_ok(io_submit(b.control, &command));
    expect_ok(kb_sim_run(b.sim, KB_FOREVER));
    io_finish(b.control, v.tickets[1], NULL, NULL);
    io_finish(b.control, v.tickets[1], NULL, NULL);
}

/* The second command is where the first one was. */
static void finish_with_an_old_ticket(void)
{
    board b = board_make(one_router(1), false);
    visit v = {.b = &b, .finishes = true};
    static const io_target target = {0};
    io_command command = command_of(&v, &target, 1);
    expect_ok(io_submit(b.control, &command));
    expect_ok(kb_sim_run(b.sim, KB_FOREVER));
    assert_int_equal(v.done, 1);
    v.finishes = false;
    expect_ok(io_submit(b.control, &command));
    expect_ok(kb_sim_run(b.sim, KB_FOREVER));
    assert_int_equal(v.arrivals, 2);
    assert_int_equal((uint32_t)v.tickets[0], (uint32_t)v.tickets[1]);
    io_finish(b.control, v.tickets[0], NULL, NULL);
}

static void finish_with_parts_that_are_wrong(void)
{
    board b = board_make(one_router(1), false);
    visit v = {.b = &b};
    static const io_target target = {0};
    io_command command = command_of(&v, &target, 1);
    expect_ok(io_submit(b.control, &command));
    expect_ok(kb_sim_run(b.sim, 5 * KB_US));
    io_finish(b.control, v.tickets[0], &(net_completion){.drain = KB_US}, NULL);
}

static void finish_what_is_nobodys(void)
{
    board b = board_make(one_router(1), false);
    io_finish(b.control, (uint64_t)1 << 32 | 1, NULL, NULL);
}

static void bugs_are_found(void **state)
{
    (void)state;
    expect_abort(finish_twice, "ta->serial == serial");
    expect_abort(finish_with_an_old_ticket, "ta->serial == serial");
    expect_abort(finish_with_parts_that_are_wrong, "chain->ended - chain->issued");
    expect_abort(finish_what_is_nobodys, "control->targets.used");
}

/* From outside of the run, in any order, and much later. */
static void work_may_end_whenever_it_likes(void **state)
{
    (void)state;
    board b = board_make(one_router(3), false);
    visit v = {.b = &b};
    static const io_target targets[] = {{.pe = 0}, {.pe = 1}, {.pe = 2}};
    io_command command = command_of(&v, targets, 3);
    expect_ok(io_submit(b.control, &command));
    expect_ok(kb_sim_run(b.sim, KB_FOREVER));
    assert_int_equal(v.arrivals, 3);
    kb_time last = kb_sim_now(b.sim);
    io_finish(b.control, v.tickets[2], NULL, NULL);
    expect_ok(kb_sim_run(b.sim, 5 * KB_US));
    assert_int_equal(v.done, 0);
    /* 16 bytes to each PE, one after the other at 256 GB/s: .0625 ns. */
    kb_time gap = 62500, since = 5 * KB_US - last;
    io_finish(b.control, v.tickets[0], &(net_completion){.drain = since + 2 * gap}, NULL);
    io_finish(b.control, v.tickets[1], &(net_completion){.wire = since + gap},
              kb_error_new(KB_ERR_FAULT, "x"));
    expect_ok(kb_sim_run(b.sim, KB_FOREVER));
    assert_int_equal(v.done, 1);
    assert_int_equal(v.code, KB_ERR_FAULT);
    board_fini(&b);
}

static void memory_is_used_again(void **state)
{
    (void)state;
    board b = board_make(one_router(3), false);
    visit v = {.b = &b, .finishes = true};
    static const io_target targets[] = {{.pe = 0}, {.pe = 1}, {.pe = 2}};
    io_command command = command_of(&v, targets, 3);
    size_t blocks = 0;
    for (int i = 0; i < 2 * KB_POOL_CHUNK; i++) {
        expect_ok(io_submit(b.control, &command));
        expect_ok(kb_sim_run(b.sim, KB_FOREVER));
        if (i == 0)
            blocks = failing_alloc_live();
    }
    assert_int_equal(v.done, 2 * KB_POOL_CHUNK);
    assert_int_equal(failing_alloc_live(), blocks);
    board_fini(&b);
}

/* ---- Leaving early, no memory ------------------------------------------------------------ */

static void commands_under_way_go_with_it(void **state)
{
    (void)state;
    for (kb_time until = 0; until < 1400 * KB_NS; until += 50 * KB_NS) {
        size_t before = failing_alloc_live();
        board b = board_make(one_router(2), false);
        visit v = {.b = &b, .finishes = true, .fails = true, .again = true};
        static const io_target targets[] = {{.pe = 0}, {.pe = 1}};
        io_command command = command_of(&v, targets, 2);
        for (int i = 0; i < 3; i++)
            expect_ok(io_submit(b.control, &command));
        expect_ok(kb_sim_run(b.sim, until));
        board_fini(&b);
        assert_int_equal(failing_alloc_live(), before);
    }
}

static topo_machine *shared_machine;
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

/* So many that there is something to allocate at every stage of the way. */
static bool submit_all(board *b, visit *v)
{
    static const io_target targets[] = {{.pe = 0}, {.pe = 1}, {.pe = 2}};
    io_command command = command_of(v, targets, 3);
    for (int i = 0; i < 45; i++)
        if (!went_well(io_submit(b->control, &command)))
            return false;
    return true;
}

static void all_of_it(void)
{
    board b = {.machine = shared_machine};
    visit v = {.b = &b, .finishes = true, .fails = true, .again = true};
    if (went_well(kb_sim_create(NULL, &b.sim)) &&
        went_well(net_create_for(b.sim, shared_machine, 0, false, &b.fabric)) &&
        went_well(
            io_create(b.sim, shared_machine, b.fabric, net_source_count(b.fabric), &b.control))) {
        if (submit_all(&b, &v) && went_well(kb_sim_run(b.sim, KB_FOREVER))) {
            assert_int_equal(v.done, 46);
            assert_int_equal(v.arrivals, 136);
            successes_seen++;
        }
    } else {
        assert_null(b.control);
    }
    if (b.sim)
        kb_sim_abandon(b.sim);
    io_destroy(b.control);
    net_destroy(b.fabric);
    kb_sim_destroy(b.sim);
}

static void without_memory_it_fails_cleanly(void **state)
{
    (void)state;
    shared_machine = one_router(3);
    failing_alloc_try_all(all_of_it);
    assert_true(failures_seen > 20);

    assert_true(successes_seen >= 2);
    topo_machine_destroy(shared_machine);
}

/* The linker puts this in the place of net_submit(). */
kb_error *__real_net_submit(net *n, const net_order *order);
kb_error *__wrap_net_submit(net *n, const net_order *order);

static int submissions_left; /* until one is refused */

kb_error *__wrap_net_submit(net *n, const net_order *order)
{
    if (--submissions_left == 0)
        return kb_error_nomem();
    return __real_net_submit(n, order);
}

/*
 * Two cubes of two PEs: 1 + 2 + 4 transfers down and as many up. Whichever cannot be made, the run
 * fails, but for the first: then nothing has begun.
 */
static void without_memory_on_the_way_the_run_fails(void **state)
{
    (void)state;
    static const char text[] = "sip: { cube_mesh: { w: 2, h: 1 } }\n"
                               "cube: { noc: { k: 1 }, pe_layout: { pe_per_router: 2 } }\n";
    static const io_target targets[] = {
        {.cube = 0, .pe = 0}, {.cube = 0, .pe = 1}, {.cube = 1, .pe = 0}, {.cube = 1, .pe = 1}};
    for (int nth = 1; nth <= 15; nth++) {
        board b = board_make(machine_of(text), false);
        visit v = {.b = &b, .finishes = true, .fails = true};
        io_command command = command_of(&v, targets, 4);
        submissions_left = nth;
        kb_error *err = io_submit(b.control, &command);
        assert_int_equal(err != NULL, nth == 1);
        if (!err)
            err = kb_sim_run(b.sim, KB_FOREVER);
        assert_int_equal(kb_error_code(err), nth < 15 ? KB_ERR_HOST : KB_OK);
        assert_int_equal(v.done, nth == 15);
        kb_error_free(err);
        submissions_left = 0;
        board_fini(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_commands_are_refused),
        cmocka_unit_test(bugs_are_found),
        cmocka_unit_test(work_may_end_whenever_it_likes),
        cmocka_unit_test(memory_is_used_again),
        cmocka_unit_test(commands_under_way_go_with_it),
        cmocka_unit_test(without_memory_it_fails_cleanly),
        cmocka_unit_test(without_memory_on_the_way_the_run_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
