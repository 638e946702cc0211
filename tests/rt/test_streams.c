/*
 * test_streams.c: the order of work in streams, what it takes, and what is said of work that has
 * none.
 *
 * Checks G1.
 */
#include "ordered.h"
#include "programs.h"

/* ---- In one stream ------------------------------------------------------------------------ */

/* Each launch reads what another cube wrote in the one before. x' = x + x of another PE + 1: all
 * elements are alike, so after n launches they are 2^n - 1. */
static void launches_see_what_those_before_them_wrote(void **state)
{
    (void)state;
    enum { LAUNCHES = 12 };
    static const char *const machines[] = {THREE_SIPS, ODD_ONES, TALL};
    for (size_t m = 0; m < sizeof machines / sizeof *machines; m++) {
        for (int step = 1; step < 6; step += 2) {
            kb_context *ctx = open_strict(machines[m]);
            kb_tensor x[2] = {make_blocks(ctx, "x"), make_blocks(ctx, "y")};
            kb_request requests[LAUNCHES];
            for (int i = 0; i < LAUNCHES; i++)
                expect_ok(kb_launch_async(ctx, &requests[i], NULL, &mix, x[(i + 1) % 2], x[i % 2],
                                          step, 1, 1));
            expect_ok(kb_synchronize(ctx));
            expect_all(ctx, x[LAUNCHES % 2], (1 << LAUNCHES) - 1);
            for (int i = 0; i < LAUNCHES; i++)
                expect_ok(kb_request_free(ctx, requests[i]));
            kb_context_destroy(ctx);
        }
    }
}

/* The results of a launch: issued + held + network + pe_exec is its end. Launches that follow each
 * other are held, and take less time in all than if the host waited for each. */
static void the_host_is_not_waited_for(void **state)
{
    (void)state;
    kb_time took[2];
    for (int wait = 0; wait < 2; wait++) {
        kb_context *ctx = open_strict(NULL);
        kb_tensor x = make_blocks(ctx, "x"), y = make_blocks(ctx, "y");
        kb_request first, second;
        kb_launch_result result;
        size_t count;
        kb_time start = kb_context_now(ctx);
        expect_ok(kb_launch_async(ctx, &first, "first", &mix, y, x, 9, 1, 1));
        if (wait)
            expect_ok(kb_request_wait(ctx, first, NULL));
        expect_ok(kb_launch_async(ctx, &second, "second", &mix, x, y, 9, 1, 1));
        expect_ok(kb_request_wait(ctx, second, NULL));
        took[wait] = kb_context_now(ctx) - start;
        expect_ok(kb_launch_results(ctx, second, &result, 1, &count));
        assert_int_equal(count, 1);
        assert_int_equal(result.issued + result.held + result.network + result.pe_exec,
                         result.ended);
        assert_true(wait ? result.held == 0 : result.held > 0);
        expect_all(ctx, x, 3);
        kb_context_destroy(ctx);
    }
    assert_true(took[0] < took[1]);
}

static void copies_and_launches_keep_their_order(void **state)
{
    (void)state;
    kb_context *ctx = open_strict(ODD_ONES);
    kb_stream stream;
    kb_request last;
    expect_ok(kb_stream_create(ctx, "one", &stream));
    uint64_t count = block_elements(ctx);
    float *numbers = calloc(count, sizeof *numbers);
    assert_non_null(numbers);
    for (uint64_t i = 0; i < count; i++)
        numbers[i] = 5;
    kb_tensor_spec spec = {.name = "h", .dtype = KB_F32, .shape = KB_SHAPE(count)};
    kb_tensor host, back, x = make_blocks(ctx, "x"), y = make_blocks(ctx, "y"), there;
    expect_ok(kb_from_host(ctx, &spec, numbers, count * sizeof *numbers, &host));
    expect_ok(kb_from_host(ctx, &spec, numbers, count * sizeof *numbers, &back));
    expect_ok(kb_ahbm_set_device(ctx, 1));
    there = make_blocks(ctx, "there");
    expect_ok(kb_stream_copy(ctx, stream, x, host, NULL)); /* 5 */
    expect_ok(kb_launch_with(ctx, (&(kb_launch_options){.stream = stream, .request = &last}), &mix,
                             y, x, 4, 1, 1)); /* 11 */
    expect_ok(kb_request_free(ctx, last));
    expect_ok(kb_stream_copy(ctx, stream, there, y, NULL)); /* to the other device */
    expect_ok(kb_launch_with(ctx, (&(kb_launch_options){.stream = stream, .request = &last}), &own,
                             there, 0, 3)); /* 14 there */
    expect_ok(kb_request_free(ctx, last));
    expect_ok(kb_stream_copy(ctx, stream, x, there, NULL)); /* and back */
    expect_ok(kb_stream_copy(ctx, stream, back, x, &last));
    /* A tensor of the host that something is on its way into is waited for; and one that is read
     * by a copy under way is changed when that is over. */
    expect_ok(kb_tensor_set(ctx, host, KB_UNTIMED, &KB_INDEX(0), 99));
    assert_true(element(ctx, back, 0) == 14);
    assert_true(element(ctx, x, 0) == 14);
    assert_true(element(ctx, y, 0) == 11);
    expect_ok(kb_request_wait(ctx, last, NULL));
    expect_ok(kb_stream_destroy(ctx, stream));
    free(numbers);
    kb_context_destroy(ctx);
}

static void what_work_uses_is_not_changed_before_it_ends(void **state)
{
    (void)state;
    kb_context *ctx = open_strict(THREE_SIPS);
    kb_tensor x = make_blocks(ctx, "x"), y = make_blocks(ctx, "y");
    kb_request request;
    expect_ok(kb_launch_async(ctx, &request, NULL, &own, x, 20, 1));
    expect_ok(kb_launch_async(ctx, &request, NULL, &mix, y, x, 3, 1, 0));
    expect_ok(kb_tensor_fill_slice(ctx, x, KB_UNTIMED, NULL, 100)); /* waits */
    expect_all(ctx, y, 2);
    expect_ok(kb_launch_async(ctx, &request, NULL, &mix, y, x, 3, 1, 0));
    expect_ok(kb_tensor_free(ctx, x)); /* waits too */
    expect_all(ctx, y, 200);
    kb_context_destroy(ctx);
}

/* ---- Narrower scopes ----------------------------------------------------------------------- */

static kb_error *two_launches(kb_context *ctx, kb_scope scope, int step, kb_time *took)
{
    kb_tensor x = make_blocks(ctx, "x"), y = make_blocks(ctx, "y");
    kb_request request;
    kb_time start = kb_context_now(ctx);
    kb_launch_options options = {.request = &request, .scope = scope};
    KB_TRY(kb_launch_with(ctx, (&(kb_launch_options){.request = &request}), &own, x, 30, 1));
    if (step < 0)
        KB_TRY(kb_launch_with(ctx, &options, &from_neighbour, y, x));
    else
        KB_TRY(kb_launch_with(ctx, &options, &mix, y, x, step, 1, 1));
    KB_TRY(kb_synchronize(ctx));
    *took = kb_context_now(ctx) - start;
    expect_all(ctx, y, step < 0 ? 2 : 3);
    return NULL;
}

/* A launch that needs only what its own PE or cube made starts earlier there. */
static void a_narrow_scope_starts_earlier(void **state)
{
    (void)state;
    kb_time took[3];
    for (kb_scope scope = KB_SCOPE_DEVICE; scope <= KB_SCOPE_PE; scope++) {
        kb_context *ctx = open_strict(TALL);
        expect_ok(two_launches(ctx, scope, 0, &took[scope]));
        kb_context_destroy(ctx);
    }
    assert_true(took[KB_SCOPE_CUBE] < took[KB_SCOPE_DEVICE]);
    assert_true(took[KB_SCOPE_PE] < took[KB_SCOPE_CUBE]);
}

/* The race check verifies what was declared. */
static void a_scope_that_is_too_narrow_is_found(void **state)
{
    (void)state;
    kb_time took;
    kb_context *ctx = open_strict(TALL);
    expect_ok(two_launches(ctx, KB_SCOPE_CUBE, -1, &took));
    kb_context_destroy(ctx);
    ctx = open_strict(TALL);
    expect_texts(two_launches(ctx, KB_SCOPE_PE, -1, &took), KB_ERR_FAULT,
                 "data race between launch '", "launch 'own'", "launch 'from_neighbour'",
                 "the scope of launch 'from_neighbour', KB_SCOPE_PE, is too narrow",
                 "in tensor 'x'", "tl_store", "tl_load", NULL);
    kb_context_destroy(ctx);
    ctx = open_strict(TALL);
    expect_texts(two_launches(ctx, KB_SCOPE_CUBE, 5, &took), KB_ERR_FAULT,
                 "data race between launch '", "launch 'own'", "launch 'mix'", NULL);
    kb_context_destroy(ctx);
}

/* Narrow launches in a row, and then one that needs all of them. */
static void narrow_launches_are_waited_for(void **state)
{
    (void)state;
    for (kb_scope scope = KB_SCOPE_CUBE; scope <= KB_SCOPE_PE; scope++) {
        kb_context *ctx = open_strict(TALL);
        kb_tensor x = make_blocks(ctx, "x"), y = make_blocks(ctx, "y");
        kb_request request;
        kb_launch_options narrow = {.request = &request, .scope = scope};
        for (int i = 0; i < 5; i++)
            expect_ok(kb_launch_with(ctx, &narrow, &own, x, 3 * i, 1));
        expect_ok(kb_launch(ctx, NULL, &mix, y, x, 7, 1, 0));
        expect_all(ctx, y, 10);
        kb_context_destroy(ctx);
    }
}

/* ---- Several streams ----------------------------------------------------------------------- */

typedef struct pair {
    kb_context *ctx;
    kb_stream one, two;
    kb_stream_event event;
    kb_tensor x, y;
} pair;

static pair open_pair(const char *machine)
{
    pair p = {.ctx = open_strict(machine)};
    expect_ok(kb_stream_create(p.ctx, "one", &p.one));
    expect_ok(kb_stream_create(p.ctx, "two", &p.two));
    expect_ok(kb_stream_event_create(p.ctx, &p.event));
    p.x = make_blocks(p.ctx, "x");
    p.y = make_blocks(p.ctx, "y");
    return p;
}

static kb_error *launch_in(pair *p, kb_stream stream, const char *name, int work, double b)
{
    kb_request request;
    kb_launch_options options = {.name = name, .stream = stream, .request = &request};
    KB_TRY(kb_launch_with(p->ctx, &options, &own, p->x, work, b));
    return kb_request_free(p->ctx, request);
}

/* Without an event the two have no order, whether or not they overlap in time, and on the same PEs
 * too; waiting of the host makes one. */
static void streams_have_no_order_by_themselves(void **state)
{
    (void)state;
    enum { AT_ONCE, LATER, EVENT, HOST, CASES };
    for (int how = 0; how < CASES; how++) {
        pair p = open_pair(TALL);
        if (how == LATER) { /* something else is under way meanwhile */
            kb_tensor z = make_blocks(p.ctx, "z");
            kb_request request;
            expect_ok(kb_launch_async(p.ctx, &request, NULL, &own, z, 200, 1));
            expect_ok(kb_request_free(p.ctx, request));
        }
        expect_ok(launch_in(&p, p.one, "first", 0, 1));
        if (how == LATER)
            expect_ok(kb_sim_run(kb_context_sim(p.ctx), kb_context_now(p.ctx) + 20 * KB_US));
        if (how == EVENT) {
            expect_ok(kb_stream_record(p.ctx, p.one, p.event));
            expect_ok(kb_stream_wait(p.ctx, p.two, p.event));
        }
        if (how == HOST)
            expect_ok(kb_stream_synchronize(p.ctx, p.one));
        expect_ok(launch_in(&p, p.two, "second", 0, 1));
        kb_error *err = kb_synchronize(p.ctx);
        if (how == EVENT || how == HOST) {
            expect_ok(err);
            expect_all(p.ctx, p.x, 2);
        } else {
            expect_texts(err, KB_ERR_FAULT, "data race between launch '",
                         "launch 'first' in stream 'one'", "launch 'second' in stream 'two'",
                         "neither a stream, an event", NULL);
        }
        kb_context_destroy(p.ctx);
    }
}

static void a_copy_races_like_a_kernel(void **state)
{
    (void)state;
    for (int ordered = 0; ordered < 2; ordered++) {
        pair p = open_pair(ODD_ONES);
        expect_ok(launch_in(&p, p.one, "first", 5, 1));
        expect_ok(kb_stream_record(p.ctx, p.one, p.event));
        if (ordered)
            expect_ok(kb_stream_wait(p.ctx, p.two, p.event));
        expect_ok(kb_stream_copy(p.ctx, p.two, p.y, p.x, NULL));
        kb_error *err = kb_synchronize(p.ctx);
        if (ordered) {
            expect_ok(err);
            expect_all(p.ctx, p.y, 1);
        } else {
            expect_texts(err, KB_ERR_FAULT, "launch 'first' in stream 'one'",
                         "copy of 'y' in stream 'two'", NULL);
        }
        kb_context_destroy(p.ctx);
    }
}

/* What runs in two streams on the same PEs takes turns there. */
static void a_pe_runs_one_kernel_at_a_time(void **state)
{
    (void)state;
    pair p = open_pair(TALL);
    kb_request requests[2];
    kb_launch_result results[2];
    size_t count;
    expect_ok(kb_launch_with(
        p.ctx, (&(kb_launch_options){.stream = p.one, .request = &requests[0]}), &own, p.x, 10, 1));
    expect_ok(kb_launch_with(
        p.ctx, (&(kb_launch_options){.stream = p.two, .request = &requests[1]}), &own, p.y, 10, 2));
    expect_ok(kb_synchronize(p.ctx));
    for (int i = 0; i < 2; i++)
        expect_ok(kb_launch_results(p.ctx, requests[i], &results[i], 1, &count));
    kb_time_sum busy = results[0].busy[KB_UNIT_MATH] + results[1].busy[KB_UNIT_MATH];
    assert_true(busy <= kb_context_kernel_time(p.ctx) * results[0].pes);
    expect_all(p.ctx, p.x, 1);
    expect_all(p.ctx, p.y, 2);
    kb_context_destroy(p.ctx);
}

/* An event orders work of two devices: the signal travels from one to the other. */
static void events_order_devices(void **state)
{
    (void)state;
    pair p = open_pair(THREE_SIPS);
    expect_ok(kb_ahbm_set_device(p.ctx, 2));
    kb_tensor there = make_blocks(p.ctx, "there");
    kb_request first, second;
    kb_launch_result a, b;
    size_t count;
    expect_ok(kb_launch_with(p.ctx, (&(kb_launch_options){.stream = p.one, .request = &first}),
                             &own, p.x, 50, 1));
    expect_ok(kb_stream_record(p.ctx, p.one, p.event));
    expect_ok(kb_stream_wait(p.ctx, p.two, p.event));
    expect_ok(kb_launch_with(p.ctx, (&(kb_launch_options){.stream = p.two, .request = &second}),
                             &own, there, 0, 1));
    expect_ok(kb_synchronize(p.ctx));
    expect_ok(kb_launch_results(p.ctx, first, &a, 1, &count));
    expect_ok(kb_launch_results(p.ctx, second, &b, 1, &count));
    assert_true(b.held > 0 && b.issued + b.held > a.issued + a.pe_exec);
    kb_context_destroy(p.ctx);
}

/* Two streams that wait for each other in turn, and a third one that only waits: none keeps what is
 * over, or what others wait for already. Also on devices that have no work. */
static void streams_may_wait_for_each_other_often(void **state)
{
    (void)state;
    enum { TURNS = 60 };
    pair p = open_pair(THREE_SIPS);
    kb_stream third;
    expect_ok(kb_stream_create(p.ctx, "three", &third));
    for (int i = 0; i < TURNS; i++) {
        kb_stream from = i % 2 ? p.two : p.one, to = i % 2 ? p.one : p.two;
        expect_ok(launch_in(&p, from, NULL, 0, 1));
        expect_ok(kb_stream_record(p.ctx, from, p.event));
        expect_ok(kb_stream_wait(p.ctx, to, p.event));
        expect_ok(kb_stream_wait(p.ctx, third, p.event));
        expect_ok(kb_stream_record(p.ctx, third, p.event));
        expect_ok(kb_stream_wait(p.ctx, to, p.event));
        expect_ok(kb_stream_wait(p.ctx, KB_DEFAULT_STREAM, p.event));
        expect_ok(kb_stream_record(p.ctx, KB_DEFAULT_STREAM, p.event));
        expect_ok(kb_stream_wait(p.ctx, third, p.event));
    }
    expect_ok(launch_in(&p, third, NULL, 0, 1));
    expect_ok(kb_synchronize(p.ctx));
    expect_all(p.ctx, p.x, TURNS + 1);
    kb_context_destroy(p.ctx);
}

/* A launch of narrow scope on other PEs than the one before it comes after the event too. */
static void narrow_launches_come_after_events(void **state)
{
    (void)state;
    static const kb_policy first_cube = {
        .cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE, .num_cubes = 1};
    for (kb_scope scope = KB_SCOPE_CUBE; scope <= KB_SCOPE_PE; scope++) {
        pair p = open_pair(TALL);
        kb_tensor small;
        kb_request request;
        kb_launch_options narrow = {.request = &request, .stream = p.two, .scope = scope};
        kb_tensor_spec spec = {.name = "small",
                               .dtype = KB_F32,
                               .shape = KB_SHAPE(2 * BLOCK),
                               .policy = &first_cube,
                               .access = KB_UNTIMED};
        expect_ok(kb_zeros(p.ctx, &spec, &small));
        expect_ok(launch_in(&p, p.one, NULL, 20, 1));
        expect_ok(kb_stream_record(p.ctx, p.one, p.event));
        expect_ok(kb_stream_wait(p.ctx, p.two, p.event));
        expect_ok(kb_launch_with(p.ctx, &narrow, &own, small, 0, 1));
        expect_ok(kb_launch_with(p.ctx, &narrow, &own, p.x, 0, 1));
        expect_ok(kb_synchronize(p.ctx));
        expect_all(p.ctx, p.x, 2);
        kb_context_destroy(p.ctx);
    }
}

/* Each waits for the one before it alone, and none begins within another. */
static void narrow_launches_may_be_many(void **state)
{
    (void)state;
    enum { LAUNCHES = 10000 };
    uint64_t count = fewer_if_slow(LAUNCHES);
    kb_context *ctx = open_context(ONE_PE, (kb_context_options){.races = KB_RACES_OFF});
    kb_tensor x = make_blocks(ctx, "x");
    kb_request request;
    for (uint64_t i = 0; i < count; i++) {
        bool late = i < count / 100; /* the others arrive meanwhile */
        kb_launch_options narrow = {.request = &request,
                                    .scope = late ? KB_SCOPE_DEVICE : KB_SCOPE_PE};
        expect_ok(kb_launch_with(ctx, &narrow, &own, x, late ? 1000 : 0, 1));
        expect_ok(kb_request_free(ctx, request));
    }
    expect_ok(kb_synchronize(ctx));
    expect_all(ctx, x, (double)count);
    kb_context_destroy(ctx);
}

/* ---- What goes wrong ----------------------------------------------------------------------- */

static void what_follows_a_failure_does_not_start(void **state)
{
    (void)state;
    pair p = open_pair(TALL);
    kb_request bad, behind, beside;
    expect_ok(kb_launch_with(p.ctx, (&(kb_launch_options){.stream = p.one, .request = &bad}),
                             &outside, p.x));
    expect_ok(kb_launch_with(p.ctx, (&(kb_launch_options){.stream = p.one, .request = &behind}),
                             &own, p.x, 0, 1));
    expect_ok(kb_launch_with(p.ctx, (&(kb_launch_options){.stream = p.two, .request = &beside}),
                             &own, p.y, 0, 1));
    expect_texts(kb_request_wait(p.ctx, bad, NULL), KB_ERR_FAULT,
                 "launch 'outside' in stream 'one': kernel", "not mapped", NULL);
    expect_texts(kb_request_wait(p.ctx, behind, NULL), KB_ERR_FAULT,
                 "after failed work: launch 'outside' in stream 'one'", NULL);
    expect_ok(kb_request_wait(p.ctx, beside, NULL));
    expect_all(p.ctx, p.x, 0);
    expect_all(p.ctx, p.y, 1);
    expect_ok(launch_in(&p, p.one, NULL, 0, 4)); /* and the stream goes on */
    expect_ok(kb_synchronize(p.ctx));
    expect_all(p.ctx, p.x, 4);
    kb_context_destroy(p.ctx);
}

/* What follows with a narrow scope does not start either, if the one before it did not. */
static void what_follows_closely_does_not_start(void **state)
{
    (void)state;
    pair p = open_pair(TALL);
    kb_request bad, behind[2];
    expect_ok(kb_launch_with(p.ctx, (&(kb_launch_options){.stream = p.one, .request = &bad}),
                             &outside, p.x));
    expect_ok(kb_stream_record(p.ctx, p.one, p.event));
    expect_ok(kb_stream_wait(p.ctx, p.two, p.event));
    for (int i = 0; i < 2; i++) {
        kb_launch_options narrow = {.stream = p.two, .request = &behind[i], .scope = KB_SCOPE_PE};
        expect_ok(kb_launch_with(p.ctx, &narrow, &own, p.y, 0, 1));
    }
    expect_texts(kb_request_wait(p.ctx, bad, NULL), KB_ERR_FAULT, "not mapped", NULL);
    for (int i = 0; i < 2; i++)
        expect_texts(kb_request_wait(p.ctx, behind[i], NULL), KB_ERR_FAULT, "after failed work",
                     NULL);
    expect_all(p.ctx, p.y, 0);
    kb_context_destroy(p.ctx);
}

/* Nor does it if its kernels are at the PEs already, behind those that fail. */
static void what_waits_at_its_pe_does_not_start(void **state)
{
    (void)state;
    enum { BEHIND = 3 };
    for (kb_scope scope = KB_SCOPE_CUBE; scope <= KB_SCOPE_PE; scope++) {
        pair p = open_pair(TALL);
        kb_request bad, behind[BEHIND], next;
        kb_launch_options options = {.stream = p.one, .request = &bad};
        expect_ok(kb_launch_with(p.ctx, &options, &outside, p.x));
        for (int i = 0; i < BEHIND; i++) {
            options = (kb_launch_options){.stream = p.one, .request = &behind[i], .scope = scope};
            expect_ok(kb_launch_with(p.ctx, &options, &own, p.x, 0, 1));
        }
        expect_texts(kb_request_wait(p.ctx, bad, NULL), KB_ERR_FAULT, "not mapped", NULL);
        for (int i = 0; i < BEHIND; i++)
            expect_texts(kb_request_wait(p.ctx, behind[i], NULL), KB_ERR_FAULT,
                         "after failed work: launch 'outside' in stream 'one'", NULL);
        expect_all(p.ctx, p.x, 0);
        options.request = &next; /* and the stream goes on */
        expect_ok(kb_launch_with(p.ctx, &options, &own, p.x, 0, 1));
        expect_ok(kb_request_wait(p.ctx, next, NULL));
        expect_all(p.ctx, p.x, 1);
        kb_context_destroy(p.ctx);
    }
}

KB_KERNEL(fail_where_it_sends, tl_ptr x)
{
    tl_load(tl_can_send("out") ? x + ((int64_t)1 << 30) : x, tl_shape(1), TL_F32);
}

/* A launch on two devices fails on one while it waits on the other, where it never starts: what
 * comes after it there still waits for what came before it. */
static void a_launch_that_is_stopped_leaves_no_gap(void **state)
{
    (void)state;
    pair p = open_pair(THREE_SIPS);
    const kb_queue_edge edge = {{0, 0, 0}, "out", {1, 0, 0}};
    kb_queue_set set;
    kb_request first, bad, last;
    expect_ok(kb_queues_create(p.ctx, &(kb_queue_spec){.edges = &edge, .edge_count = 1}, &set));
    expect_ok(kb_queues_install(p.ctx, set));
    expect_ok(kb_ahbm_set_device(p.ctx, 1));
    kb_tensor there = make_blocks(p.ctx, "there"), both[] = {p.x, make_blocks(p.ctx, "other")};
    kb_launch_options options = {.stream = p.one, .queues = set, .request = &first};
    expect_ok(kb_launch_with(p.ctx, &options, &own, there, 1000, 1));
    options.request = &bad;
    expect_ok(kb_launch_with(p.ctx, &options, &fail_where_it_sends, KB_EACH(both, 2)));
    expect_texts(kb_request_wait(p.ctx, bad, NULL), KB_ERR_FAULT, "not mapped", NULL);
    options.request = &last;
    bool over;
    expect_ok(kb_request_test(p.ctx, first, &over));
    assert_false(over);
    expect_ok(kb_launch_with(p.ctx, &options, &own, there, 0, 1));
    kb_error_free(kb_request_wait(p.ctx, last, NULL)); /* it is after failed work, or it runs */
    expect_ok(kb_request_test(p.ctx, first, &over));
    assert_true(over);
    expect_ok(kb_request_wait(p.ctx, first, NULL));
    kb_context_destroy(p.ctx);
}

/* A thousand that never start end one after the other, not in each other. */
static void a_long_sequence_fails_as_a_whole(void **state)
{
    (void)state;
    enum { LAUNCHES = 1000 };
    pair p = open_pair(ONE_PE);
    kb_request first, last;
    expect_ok(kb_launch_async(p.ctx, &first, NULL, &outside, p.x));
    for (int i = 0; i < LAUNCHES; i++) {
        expect_ok(kb_launch_async(p.ctx, &last, NULL, &own, p.x, 0, 1));
        if (i + 1 < LAUNCHES)
            expect_ok(kb_request_free(p.ctx, last));
    }
    expect_texts(kb_request_wait(p.ctx, last, NULL), KB_ERR_FAULT, "not mapped", NULL);
    kb_error_free(kb_synchronize(p.ctx));
    expect_all(p.ctx, p.x, 0);
    kb_context_destroy(p.ctx);
}

KB_KERNEL(receive, tl_ptr x)
{
    tl_store(x, tl_recv("E", tl_shape(1), TL_F32));
}

static void a_deadlock_names_streams(void **state)
{
    (void)state;
    pair p = open_pair(TALL);
    kb_pe pes[] = {{0, 0, 0}, {0, 0, 1}};
    kb_queue_spec spec = {.topology = "ring_1d", .pes = pes, .pe_count = 2};
    kb_queue_set set;
    expect_ok(kb_queues_create(p.ctx, &spec, &set));
    expect_ok(kb_queues_install(p.ctx, set));
    kb_tensor z;
    kb_tensor_spec one = {.name = "z", .dtype = KB_F32, .shape = KB_SHAPE(1), .access = KB_UNTIMED};
    expect_ok(kb_zeros(p.ctx, &one, &z));
    kb_request request, behind;
    expect_ok(kb_launch_with(p.ctx, (&(kb_launch_options){.stream = p.two, .request = &request}),
                             &receive, z));
    expect_ok(kb_launch_with(p.ctx, (&(kb_launch_options){.stream = p.two, .request = &behind}),
                             &own, p.x, 0, 1));
    expect_texts(kb_request_wait(p.ctx, behind, NULL), KB_ERR_DEADLOCK, "receive in stream two",
                 NULL);
    expect_texts(kb_request_wait(p.ctx, request, NULL), KB_ERR_DEADLOCK, NULL);
    expect_ok(launch_in(&p, p.two, NULL, 0, 1));
    expect_ok(kb_synchronize(p.ctx));
    kb_context_destroy(p.ctx);
}

static void wrong_handles_are_refused(void **state)
{
    (void)state;
    pair p = open_pair(TALL);
    kb_stream gone = p.two;
    kb_stream_event none;
    kb_request request;
    expect_ok(kb_stream_destroy(p.ctx, p.two));
    expect_texts(kb_stream_destroy(p.ctx, gone), KB_ERR_FAULT, "invalid or destroyed stream", NULL);
    expect_texts(kb_stream_destroy(p.ctx, KB_DEFAULT_STREAM), KB_ERR_FAULT, "default stream", NULL);
    expect_texts(kb_stream_synchronize(p.ctx, gone), KB_ERR_FAULT, "invalid", NULL);
    expect_texts(launch_in(&p, gone, "x", 0, 1), KB_ERR_FAULT, "kb_launch_options.stream", NULL);
    expect_texts(kb_stream_copy(p.ctx, gone, p.x, p.y, NULL), KB_ERR_FAULT, "invalid", NULL);
    expect_ok(kb_stream_event_create(p.ctx, &none));
    expect_texts(kb_stream_wait(p.ctx, p.one, none), KB_ERR_FAULT, "never recorded", NULL);
    expect_ok(kb_stream_event_free(p.ctx, none));
    expect_texts(kb_stream_record(p.ctx, p.one, none), KB_ERR_FAULT, "invalid or freed event",
                 NULL);
    expect_ok(kb_launch_with(p.ctx, (&(kb_launch_options){.stream = p.one, .request = &request}),
                             &own, p.x, 0, 1));
    expect_texts(kb_stream_destroy(p.ctx, p.one), KB_ERR_FAULT, "has work under way", NULL);
    kb_tensor_spec spec = {.name = "h", .dtype = KB_F32, .shape = KB_SHAPE(1)};
    kb_tensor a, b;
    float number = 1;
    expect_ok(kb_from_host(p.ctx, &spec, &number, sizeof number, &a));
    expect_ok(kb_from_host(p.ctx, &spec, &number, sizeof number, &b));
    expect_texts(kb_stream_copy(p.ctx, p.one, a, b, NULL), KB_ERR_FAULT, "both on the host", NULL);
    expect_texts(kb_stream_copy(p.ctx, p.one, p.x, b, NULL), KB_ERR_FAULT, "does not fit", NULL);
    kb_launch_options odd = {.scope = (kb_scope)7};
    expect_texts(kb_launch_with(p.ctx, &odd, &own, p.x, 0, 1), KB_ERR_INPUT, "invalid scope 7",
                 NULL);
    kb_context_destroy(p.ctx); /* with work under way */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launches_see_what_those_before_them_wrote),
        cmocka_unit_test(the_host_is_not_waited_for),
        cmocka_unit_test(copies_and_launches_keep_their_order),
        cmocka_unit_test(what_work_uses_is_not_changed_before_it_ends),
        cmocka_unit_test(a_narrow_scope_starts_earlier),
        cmocka_unit_test(a_scope_that_is_too_narrow_is_found),
        cmocka_unit_test(narrow_launches_are_waited_for),
        cmocka_unit_test(streams_have_no_order_by_themselves),
        cmocka_unit_test(a_copy_races_like_a_kernel),
        cmocka_unit_test(a_pe_runs_one_kernel_at_a_time),
        cmocka_unit_test(events_order_devices),
        cmocka_unit_test(streams_may_wait_for_each_other_often),
        cmocka_unit_test(narrow_launches_come_after_events),
        cmocka_unit_test(narrow_launches_may_be_many),
        cmocka_unit_test(what_follows_a_failure_does_not_start),
        cmocka_unit_test(what_follows_closely_does_not_start),
        cmocka_unit_test(what_waits_at_its_pe_does_not_start),
        cmocka_unit_test(a_launch_that_is_stopped_leaves_no_gap),
        cmocka_unit_test(a_long_sequence_fails_as_a_whole),
        cmocka_unit_test(a_deadlock_names_streams),
        cmocka_unit_test(wrong_handles_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
