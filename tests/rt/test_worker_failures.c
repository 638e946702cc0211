/*
 * test_worker_failures.c: what happens when workers fail, in every phase of their lives: who is
 * named, what runs, what is left. Random programs are in test_worker_scripts.c.
 */
#include "as_new.h"

static notes seen;

static kb_error *boom(void)
{
    return kb_error_new(KB_ERR_CHECK, "boom");
}

/* ---- Phases ---- */

typedef enum phase {
    AT_ONCE,
    AFTER_A_WAIT,
    AFTER_A_YIELD,
    AFTER_A_READ,
    AFTER_A_BARRIER,
    AT_THE_VERY_END, /* when all others are done */
    BY_A_FAULT,      /* in a wait */
    BY_A_FAULT_THAT_NOBODY_WAITED_FOR,
    PHASES
} phase;

typedef struct failing {
    phase phase;
    uint32_t rank;
    kb_request left; /* what others had under way */
} failing;

static kb_error *fails_in_a_phase(kb_context *ctx, phase when)
{
    kb_tensor x;
    kb_tensor_spec spec = bytes_spec("x", 100);
    double value;
    switch (when) {
    case AT_ONCE:
        return boom();
    case AFTER_A_WAIT:
        KB_TRY(kb_request_wait(ctx, submit(ctx, write_to(hbm(1, 0), 1)), NULL));
        return boom();
    case AFTER_A_YIELD:
        KB_TRY(kb_cooperative_yield(ctx));
        return boom();
    case AFTER_A_READ:
        KB_TRY(kb_zeros(ctx, &spec, &x));
        KB_TRY(kb_tensor_get(ctx, x, KB_TIMED, &KB_INDEX(0), &value));
        return boom();
    case AFTER_A_BARRIER:
        KB_TRY(kb_distributed_barrier(ctx, NULL));
        return boom();
    case AT_THE_VERY_END:
        while (kb_sim_get_stats(kb_context_sim(ctx)).coroutines > 1)
            KB_TRY(kb_cooperative_yield(ctx));
        return boom();
    case BY_A_FAULT:
        return kb_request_wait(ctx, submit(ctx, faulty(0)), NULL);
    case BY_A_FAULT_THAT_NOBODY_WAITED_FOR:
        return kb_request_free(ctx, submit(ctx, faulty(0)));
    case PHASES:
        break;
    }
    return NULL;
}

static kb_error *one_of_them_fails(kb_context *ctx, uint32_t rank, void *arg)
{
    failing *f = arg;
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    if (rank == f->rank)
        return fails_in_a_phase(ctx, f->phase);
    if (f->phase == AFTER_A_BARRIER)
        KB_TRY(kb_distributed_barrier(ctx, NULL));
    if (f->phase == AT_THE_VERY_END)
        return NULL;
    f->left = submit(ctx, read_from(hbm(2, 0), 1 << 20));
    KB_TRY(kb_request_wait(ctx, f->left, NULL));
    return kb_error_new(KB_ERR_BUG, "rank %u was not stopped", rank);
}

static void the_rank_that_fails_is_named_in_every_phase(void **state)
{
    (void)state;
    for (uint32_t rank = 0; rank < SIPS; rank += stride_if_slow(3)) {
        for (phase when = AT_ONCE; when < PHASES; when++) {
            kb_context *ctx = open_small(NULL);
            failing f = {when, rank, {0}};
            bool fault = when >= BY_A_FAULT;
            char expected[160];
            snprintf(expected, sizeof expected, "1 of 4 workers failed: rank %u: %s", rank,
                     fault ? "PE DMA on sip0.cube0.pe0: address 0xdead0000 is not mapped: no "
                             "tensor is mapped"
                           : "boom");
            expect_error(kb_spawn(ctx, one_of_them_fails, &f, SIPS),
                         fault ? KB_ERR_FAULT : KB_ERR_CHECK, expected);
            if (f.left.id)
                assert_true(is_done(ctx, f.left)); /* what was under way has run dry */
            expect_as_new(ctx);
            kb_context_destroy(ctx);
        }
    }
}

/* At its first instant a worker gets to its first wait, whoever fails. */
static kb_error *notes_that_it_began(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    note(&seen, "%u ", rank);
    if (rank == 1)
        return boom();
    KB_TRY(kb_request_wait(ctx, submit(ctx, write_to(hbm(rank, 0), 1)), NULL));
    note(&seen, "%u went on ", rank);
    return NULL;
}

static void others_get_their_turn_of_that_instant(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    expect_error(kb_spawn(ctx, notes_that_it_began, NULL, SIPS), KB_ERR_CHECK,
                 "1 of 4 workers failed: rank 1: boom");
    expect_notes(&seen, "0 1 2 3 ");
    expect_as_new(ctx);
    kb_context_destroy(ctx);
}

/* ---- Cleanups ---- */

typedef struct unwound {
    kb_context *ctx;
    uint32_t rank;
    kb_tensor tensor, other;
    kb_request request;
    kb_cleanup cleanups[3];
    struct unwound_step {
        struct unwound *of;
        char name;
    } steps[3];
} unwound;

static void note_cleanup(void *arg)
{
    struct unwound_step *step = arg;
    note(&seen, "%u:%c ", step->of->rank, step->name);
}

static void expect_no_waiting(kb_error *err, uint32_t rank)
{
    char message[64];
    snprintf(message, sizeof message, "rank %u is being stopped and cannot wait", rank);
    expect_error(err, KB_ERR_FAULT, message);
}

/* Everything that does not wait can be called; what would wait says that it cannot. */
static void call_everything(void *arg)
{
    struct unwound_step *step = arg;
    unwound *u = step->of;
    kb_context *ctx = u->ctx;
    note_cleanup(arg);
    assert_non_null(kb_context_worker(ctx));
    kb_time now = kb_context_now(ctx);
    assert_false(is_done(ctx, u->request));
    expect_no_waiting(kb_request_wait(ctx, u->request, NULL), u->rank);
    expect_no_waiting(kb_synchronize(ctx), u->rank);
    expect_ok(kb_request_free(ctx, u->request));

    kb_shape shape;
    unsigned char back[8] = {0};
    expect_ok(kb_tensor_shape(ctx, u->tensor, &shape));
    expect_no_waiting(kb_tensor_to_host(ctx, u->tensor, KB_TIMED, back, 8), u->rank);
    expect_no_waiting(kb_tensor_to_host(ctx, u->tensor, KB_UNTIMED, back, 8), u->rank);
    expect_ok(kb_tensor_set(ctx, u->tensor, KB_TIMED, &KB_INDEX(0), 9));
    expect_ok(kb_tensor_set(ctx, u->tensor, KB_UNTIMED, &KB_INDEX(0), 9));
    expect_ok(kb_tensor_free(ctx, u->tensor));
    expect_ok(kb_tensor_free(ctx, u->other));

    kb_tensor fresh;
    kb_tensor_spec spec = bytes_spec("late", 8);
    expect_ok(kb_zeros(ctx, &spec, &fresh));
    expect_ok(kb_tensor_free(ctx, fresh));
    expect_ok(kb_request_free(ctx, submit(ctx, write_to(hbm(0, 0), 100))));
    expect_ok(kb_request_free(ctx, submit(ctx, faulty(1))));
    expect_error_about(kb_spawn(ctx, probe_worker, NULL, 1), KB_ERR_INPUT, "is a worker itself");
    uint32_t rank;
    expect_ok(kb_distributed_get_rank(ctx, &rank));
    assert_int_equal(rank, u->rank);
    expect_no_waiting(kb_distributed_barrier(ctx, NULL), u->rank);
    expect_ok(kb_ahbm_set_device(ctx, 3));
    assert_int_equal(kb_ahbm_current_device(ctx), 3);
    assert_int_equal(kb_context_now(ctx), now);
}

/* A loop around a test must end here, too. */
static void poll_in_vain(void *arg)
{
    struct unwound_step *step = arg;
    kb_context *ctx = step->of->ctx;
    note_cleanup(arg);
    kb_request request = submit(ctx, write_to(hbm(0, 0), 100));
    kb_error *err = NULL;
    while (!err && !is_done(ctx, request))
        err = kb_cooperative_yield(ctx);
    expect_no_waiting(err, step->of->rank);
}

static kb_error *has_much_to_clean_up(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    unwound u = {.ctx = ctx, .rank = rank};
    for (int i = 0; i < 3; i++)
        u.steps[i] = (struct unwound_step){&u, (char)('a' + i)};
    kb_co *co = kb_context_worker(ctx);
    kb_tensor_spec spec = bytes_spec("x", 8);
    KB_TRY(kb_full(ctx, &spec, 1, &u.tensor));
    spec.access = KB_UNTIMED;
    KB_TRY(kb_full(ctx, &spec, 1, &u.other));
    u.request = submit(ctx, dma((kb_pe){0, 0, 0}, hbm(0, 0), hbm(1, 0), 1 << 22));
    kb_co_push_cleanup(co, &u.cleanups[0], poll_in_vain, &u.steps[0]);
    kb_co_push_cleanup(co, &u.cleanups[1], call_everything, &u.steps[1]);
    kb_co_push_cleanup(co, &u.cleanups[2], note_cleanup, &u.steps[2]);
    if (rank == 1) {
        kb_co_sleep(co, KB_US);
        for (int i = 0; i < 3; i++)
            kb_co_pop_cleanup(co, false);
        return boom();
    }
    if (rank == 0)
        KB_TRY(kb_request_wait(ctx, u.request, NULL));
    if (rank == 2)
        KB_TRY(kb_synchronize(ctx));
    if (rank == 3)
        KB_TRY(kb_distributed_barrier(ctx, NULL));
    return kb_error_new(KB_ERR_BUG, "rank %u was not stopped", rank);
}

static void cleanups_run_newest_first_and_may_call_everything(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    expect_error(kb_spawn(ctx, has_much_to_clean_up, NULL, SIPS), KB_ERR_CHECK,
                 "1 of 4 workers failed: rank 1: boom");
    expect_notes(&seen, "0:c 0:b 0:a 2:c 2:b 2:a 3:c 3:b 3:a ");
    expect_as_new(ctx);
    kb_context_destroy(ctx);
}

static void give_back(void *arg)
{
    kb_sem *sem = ((kb_sem **)arg)[0];
    kb_sim *sim = ((kb_sim **)arg)[1];
    kb_sem_release(sim, sem, 1);
}

/* Rank 0 holds the tool, rank 1 waits for it, rank 2 fails. */
static kb_error *shares_a_tool(kb_context *ctx, uint32_t rank, void *arg)
{
    kb_co *co = kb_context_worker(ctx);
    void *tool[] = {arg, kb_context_sim(ctx)};
    kb_cleanup cleanup;
    if (rank == 2) {
        kb_co_sleep(co, KB_NS);
        return boom();
    }
    (void)kb_sem_acquire(co, arg, 1);
    kb_co_push_cleanup(co, &cleanup, give_back, tool);
    kb_co_sleep(co, KB_US);
    kb_co_pop_cleanup(co, true);
    return NULL;
}

static void tools_of_unwound_workers_are_given_back(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_sem tool;
    kb_sem_init(&tool, "tool", 1);
    expect_error(kb_spawn(ctx, shares_a_tool, &tool, 3), KB_ERR_CHECK,
                 "1 of 3 workers failed: rank 2: boom");
    assert_int_equal(tool.available, 1);
    assert_null(tool.waiters.head);
    expect_as_new(ctx);
    kb_context_destroy(ctx);
}

/* ---- Several ---- */

typedef struct plan {
    kb_time fails_at[8]; /* by rank; 0: never */
} plan;

static kb_error *fails_by_plan(kb_context *ctx, uint32_t rank, void *arg)
{
    const plan *p = arg;
    kb_co *co = kb_context_worker(ctx);
    if (p->fails_at[rank] > 0) {
        kb_co_sleep(co, p->fails_at[rank]);
        return kb_error_new(rank == 0 ? KB_ERR_CHECK : KB_ERR_FAULT, "as planned");
    }
    kb_co_sleep(co, KB_S);
    return NULL;
}

static void those_that_fail_first_are_named(void **state)
{
    (void)state;
    static const struct {
        plan plan;
        kb_code code;
        const char *says;
    } cases[] = {
        {{{0, 5, 0, 0}}, KB_ERR_FAULT, "1 of 4 workers failed: rank 1: as planned"},
        {{{7, 5, 5, 6}}, KB_ERR_FAULT, "2 of 4 workers failed: ranks 1, 2: as planned"},
        {{{3, 4, 5, 6}}, KB_ERR_CHECK, "1 of 4 workers failed: rank 0: as planned"},
        {{{6, 5, 4, 3}}, KB_ERR_FAULT, "1 of 4 workers failed: rank 3: as planned"},
        {{{9, 9, 9, 9}}, KB_ERR_CHECK, "4 of 4 workers failed: ranks 0-3: as planned"},
        {{{0, 9, 0, 9}}, KB_ERR_FAULT, "2 of 4 workers failed: ranks 1, 3: as planned"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kb_context *ctx = open_small(NULL);
        plan p = cases[i].plan;
        expect_error(kb_spawn(ctx, fails_by_plan, &p, SIPS), cases[i].code, cases[i].says);
        kb_context_destroy(ctx);
    }
}

/*
 * Rank 0 is woken by the machine, rank 1 by its clock, at the same instant; and rank 2 and 3 by
 * what ends then too. They fail together, whatever the order of events at that instant.
 */
typedef struct coincidence {
    kb_time when;
    uint32_t sleeper;
} coincidence;

static kb_error *fails_at_that_instant(kb_context *ctx, uint32_t rank, void *arg)
{
    const coincidence *c = arg;
    if (rank == c->sleeper)
        kb_co_sleep(kb_context_worker(ctx), c->when);
    else
        KB_TRY(kb_request_wait(ctx, submit(ctx, write_to(hbm(0, 0), 1000)), NULL));
    assert_int_equal(kb_context_now(ctx), c->when);
    return boom();
}

static void those_that_fail_at_the_same_instant_are_all_named(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    coincidence c = {.when = carry_out(ctx, write_to(hbm(0, 0), 1000))};
    kb_context_destroy(ctx);
    for (c.sleeper = 0; c.sleeper < 2; c.sleeper++) {
        ctx = open_small(NULL);
        expect_error(kb_spawn(ctx, fails_at_that_instant, &c, 2), KB_ERR_CHECK,
                     "2 of 2 workers failed: ranks 0, 1: boom");
        expect_as_new(ctx);
        kb_context_destroy(ctx);
    }
}

static kb_error *all_fail(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)ctx;
    (void)arg;
    return kb_error_new(KB_ERR_CHECK, "reason %u", rank);
}

static void of_many_the_message_names_some_and_the_detail_all(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_error *err = kb_spawn(ctx, all_fail, NULL, 7);
    assert_string_equal(kb_error_detail(err), "rank 0: reason 0\nrank 1: reason 1\n"
                                              "rank 2: reason 2\nrank 3: reason 3\n"
                                              "rank 4: reason 4\nrank 5: reason 5\n"
                                              "rank 6: reason 6");
    expect_error(err, KB_ERR_CHECK,
                 "7 of 7 workers failed: rank 0: reason 0; rank 1: reason 1; rank 2: reason 2; "
                 "rank 3: reason 3; and 3 more");
    expect_as_new(ctx);
    kb_context_destroy(ctx);
}

/* By rank, and how many: what is said, one letter for each. */
typedef struct chorus {
    const char *words;
    const char *message, *detail;
} chorus;

static kb_error *says_its_word(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)ctx;
    const chorus *c = arg;
    return c->words[rank] == '.' ? NULL : kb_error_new(KB_ERR_CHECK, "%c", c->words[rank]);
}

static void what_several_say_is_said_once(void **state)
{
    (void)state;
    static const chorus cases[] = {
        {"aaa", "3 of 3 workers failed: ranks 0-2: a", ""},
        {"aab", "3 of 3 workers failed: ranks 0, 1: a; rank 2: b", ""},
        {"aba", "3 of 3 workers failed: ranks 0, 2: a; rank 1: b", ""},
        {".bb.bbb.b", "6 of 9 workers failed: ranks 1, 2, 4-6, 8: b", ""},
        {"abcdaeabe",
         "9 of 9 workers failed: ranks 0, 4, 6: a; ranks 1, 7: b; rank 2: c; "
         "rank 3: d; and 2 more",
         "ranks 0, 4, 6: a\nranks 1, 7: b\nrank 2: c\nrank 3: d\nranks 5, 8: e"},
        {"a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.aa",
         "20 of 38 workers failed: ranks 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30 "
         "and 4 more: a",
         ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        kb_context *ctx = open_small(NULL);
        chorus c = cases[i];
        kb_error *err = kb_spawn(ctx, says_its_word, &c, (uint32_t)strlen(c.words));
        assert_string_equal(kb_error_detail(err), c.detail);
        expect_error(err, KB_ERR_CHECK, c.message);
        kb_context_destroy(ctx);
    }
}

/* What is said by more than are compared with each other is told, if not always once. */
static void many_different_errors_are_all_told(void **state)
{
    (void)state;
    enum { MANY = 70 };
    kb_context *ctx = open_small(NULL);
    kb_error *err = kb_spawn(ctx, all_fail, NULL, MANY);
    for (uint32_t rank = 0; rank < MANY; rank++) {
        char line[64];
        snprintf(line, sizeof line, "rank %u: reason %u", rank, rank);
        assert_non_null(strstr(kb_error_detail(err), line));
    }
    expect_error(err, KB_ERR_CHECK,
                 "70 of 70 workers failed: rank 0: reason 0; rank 1: reason 1; rank 2: reason 2; "
                 "rank 3: reason 3; and 66 more");
    kb_context_destroy(ctx);
}

/* Both wait for ever in a context of their own, and return what that one says of it. */
static kb_error *waits_for_ever(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)rank;
    kb_wait(kb_context_worker(ctx), arg);
    return NULL;
}

static kb_error *returns_an_error_with_details(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)ctx;
    (void)rank;
    kb_waitlist godot;
    kb_waitlist_init(&godot, "godot");
    return kb_spawn(arg, waits_for_ever, &godot, 2);
}

static void details_of_errors_are_kept_line_by_line(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL), *other = open_small(NULL);
    kb_error *err = kb_spawn(ctx, returns_an_error_with_details, other, 1);
    const char *message = "deadlock at 0.000000 ns: no pending events, 2 coroutines blocked";
    char expected[400];
    snprintf(expected, sizeof expected,
             "rank 0: %s\nrank 0 waits for godot\nrank 1 waits for godot", message);
    assert_string_equal(kb_error_detail(err), expected);
    snprintf(expected, sizeof expected, "1 of 1 worker failed: rank 0: %s", message);
    expect_error(err, KB_ERR_DEADLOCK, expected);
    expect_as_new(other);
    kb_context_destroy(other);
    kb_context_destroy(ctx);
}

/* ---- What they leave ---- */

typedef struct estate {
    kb_request fault, good, later;
} estate;

static kb_error *leaves_requests(kb_context *ctx, uint32_t rank, void *arg)
{
    estate *e = arg;
    if (rank == 0) {
        e->good = submit(ctx, write_to(hbm(0, 0), 1));
        e->fault = submit(ctx, faulty(0));
        while (!is_done(ctx, e->fault))
            KB_TRY(kb_cooperative_yield(ctx));
        (void)submit(ctx, write_to(hbm(0, 0), 1)); /* is waited for at the end */
        e->later = submit(ctx, faulty(1));
        return NULL;
    }
    while (e->later.id == 0)
        KB_TRY(kb_cooperative_yield(ctx));
    KB_TRY(kb_request_wait(ctx, e->later, NULL));
    return kb_error_new(KB_ERR_BUG, "the fault was not told");
}

/* Rank 1 is told of the second fault, and rank 0 at the end of the first, at the same instant. */
static void requests_of_those_that_failed_can_be_waited_for(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    estate e = {.later = {0}};
    kb_error *err = kb_spawn(ctx, leaves_requests, &e, 2);
    expect_error_about(err, KB_ERR_FAULT, "2 of 2 workers failed: rank 0: PE DMA on sip0");
    for (int i = 0; i < 2; i++) {
        (void)wait_for(ctx, e.good);
        expect_error_about(kb_request_wait(ctx, e.fault, NULL), KB_ERR_FAULT, "PE DMA on sip0");
        expect_error_about(kb_request_wait(ctx, e.later, NULL), KB_ERR_FAULT, "PE DMA on sip1");
    }
    expect_ok(kb_synchronize(ctx)); /* they are not the driver's */
    expect_ok(kb_request_free(ctx, e.fault));
    expect_as_new(ctx);
    kb_context_destroy(ctx);
}

static kb_error *leaves_a_fault_unwound(kb_context *ctx, uint32_t rank, void *arg)
{
    kb_request *request = arg;
    if (rank == 0) {
        *request = submit(ctx, faulty(0));
        while (!is_done(ctx, *request))
            KB_TRY(kb_cooperative_yield(ctx));
        expect_ok(kb_request_free(ctx, submit(ctx, faulty(0))));
        kb_co_sleep(kb_context_worker(ctx), KB_S);
    }
    kb_co_sleep(kb_context_worker(ctx), KB_MS);
    return boom();
}

static void faults_of_those_that_were_unwound_can_be_waited_for(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_request request;
    expect_error(kb_spawn(ctx, leaves_a_fault_unwound, &request, 2), KB_ERR_CHECK,
                 "1 of 2 workers failed: rank 1: boom");
    for (int i = 0; i < 2; i++)
        expect_error_about(kb_request_wait(ctx, request, NULL), KB_ERR_FAULT, "PE DMA on sip0");
    expect_ok(kb_synchronize(ctx));
    expect_ok(kb_request_free(ctx, request));
    expect_as_new(ctx);
    kb_context_destroy(ctx);
}

/* ---- Other ends ---- */

static kb_error *waits_for_nobody(kb_context *ctx, uint32_t rank, void *arg)
{
    kb_co *co = kb_context_worker(ctx);
    kb_cleanup cleanup;
    unwound u = {.ctx = ctx, .rank = rank};
    struct unwound_step step = {&u, 'x'};
    kb_co_push_cleanup(co, &cleanup, note_cleanup, &step);
    if (rank == 2) {
        kb_co_pop_cleanup(co, false);
        return kb_request_wait(ctx, submit(ctx, write_to(hbm(0, 0), 1)), NULL);
    }
    (void)kb_sem_acquire(co, arg, 1);
    return NULL;
}

static void a_deadlock_is_an_error_and_all_are_unwound(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_sem sem;
    kb_sem_init(&sem, "a word from nobody", 0);
    kb_error *err = kb_spawn(ctx, waits_for_nobody, &sem, 3);
    assert_string_equal(kb_error_detail(err),
                        "rank 0 waits for a word from nobody\nrank 1 waits for a word from nobody");
    expect_error_about(err, KB_ERR_DEADLOCK, "no pending events, 2 coroutines blocked");
    expect_notes(&seen, "0:x 1:x ");
    assert_null(sem.waiters.head);
    expect_as_new(ctx);
    kb_context_destroy(ctx);
}

static kb_error *fails_the_simulation(kb_context *ctx, uint32_t rank, void *arg)
{
    kb_co *co = kb_context_worker(ctx);
    kb_cleanup cleanup;
    unwound u = {.ctx = ctx, .rank = rank};
    struct unwound_step step = {&u, 'x'};
    kb_co_push_cleanup(co, &cleanup, note_cleanup, &step);
    u.request = submit(ctx, read_from(hbm(0, 0), 100000));
    if (rank == 1) {
        kb_co_sleep(co, KB_NS);
        kb_sim_fail(kb_context_sim(ctx), kb_error_new(KB_ERR_FAULT, "the house is on fire"));
        if (arg) { /* and fails itself */
            kb_co_pop_cleanup(co, false);
            return boom();
        }
    }
    KB_TRY(kb_request_wait(ctx, u.request, NULL));
    return kb_error_new(KB_ERR_BUG, "rank %u was not stopped", rank);
}

static void a_failure_of_the_simulation_is_that_of_spawn(void **state)
{
    (void)state;
    for (int too = 0; too < 2; too++) {
        kb_context *ctx = open_small(NULL);
        kb_error *err = kb_spawn(ctx, fails_the_simulation, too ? &too : NULL, 3);
        assert_string_equal(kb_error_detail(err), too ? "1 of 3 workers failed: rank 1: boom" : "");
        expect_error(err, KB_ERR_FAULT, "the house is on fire");
        expect_notes(&seen, too ? "0:x 2:x " : "0:x 1:x 2:x ");
        expect_as_new(ctx);
        kb_context_destroy(ctx);
    }
}

static void set_off(kb_sim *sim, void *self, uint64_t arg)
{
    (void)self;
    (void)arg;
    kb_sim_fail(sim, kb_error_new(KB_ERR_FAULT, "an alarm"));
}

static kb_error *waits_long(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    return kb_request_wait(ctx, submit(ctx, write_to(hbm(rank, 0), 100000)), NULL);
}

static void a_failure_of_an_event_is_that_of_spawn(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_sim *sim = kb_context_sim(ctx);
    kb_handler alarm;
    kb_source source = kb_source_make(KB_SOURCE_ID_MAX - 1);
    expect_ok(kb_sim_add_handler(sim, set_off, NULL, &alarm));
    (void)kb_sim_after(sim, &source, KB_NS, alarm, 0);
    expect_error(kb_spawn(ctx, waits_long, NULL, 2), KB_ERR_FAULT, "an alarm");
    expect_as_new(ctx);
    kb_context_destroy(ctx);
}

static kb_error *stops_the_simulation(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    for (int i = 0; i < 3; i++) {
        kb_sim_stop(kb_context_sim(ctx));
        KB_TRY(kb_request_wait(ctx, submit(ctx, write_to(hbm(rank, 0), 1)), NULL));
    }
    return NULL;
}

static void stopping_the_simulation_stops_no_worker(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    expect_ok(kb_spawn(ctx, stops_the_simulation, NULL, 3));
    expect_as_new(ctx);
    kb_context_destroy(ctx);
}

/* ---- Together with yielding ---- */

static kb_error *fails_among_yielders(kb_context *ctx, uint32_t rank, void *arg)
{
    const uint32_t *turns = arg;
    for (uint32_t i = 0; rank != 1 || i < *turns; i++)
        KB_TRY(kb_cooperative_yield(ctx));
    return boom();
}

static kb_error *yields_and_works(kb_context *ctx, uint32_t rank, void *arg)
{
    kb_time *durations = arg;
    kb_time start = kb_context_now(ctx);
    kb_request request = submit(ctx, write_to(hbm(rank, 0), 1000));
    while (!is_done(ctx, request))
        KB_TRY(kb_cooperative_yield(ctx));
    durations[rank] = kb_context_now(ctx) - start;
    return kb_request_free(ctx, request);
}

/* The turns of those that are gone do not count for those that follow. */
static void a_failure_among_yielders_leaves_nothing_behind(void **state)
{
    (void)state;
    kb_time fresh[3], used[3];
    kb_context *ctx = open_small(NULL);
    expect_ok(kb_spawn(ctx, yields_and_works, fresh, 3));
    kb_context_destroy(ctx);
    for (uint32_t turns = 0; turns < 4; turns += stride_if_slow(3)) {
        for (int busy = 0; busy < 2; busy++) {
            ctx = open_small(NULL);
            kb_request request = {0};
            if (busy)
                request = submit(ctx, write_to(hbm(3, 0), 100));
            expect_error(kb_spawn(ctx, fails_among_yielders, &turns, 3), KB_ERR_CHECK,
                         "1 of 3 workers failed: rank 1: boom");
            if (busy)
                (void)wait_for(ctx, request);
            expect_ok(kb_spawn(ctx, yields_and_works, used, 3));
            assert_memory_equal(used, fresh, sizeof used);
            expect_as_new(ctx);
            kb_context_destroy(ctx);
        }
    }
}

/* ---- Over and over ---- */

static kb_error *fails_if_odd(kb_context *ctx, uint32_t rank, void *arg)
{
    const uint32_t *round = arg;
    kb_tensor x;
    kb_tensor_spec spec = bytes_spec(NULL, 1000);
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    KB_TRY(kb_zeros(ctx, &spec, &x));
    if (*round % 2 == 1 && rank == *round % SIPS)
        return boom();
    KB_TRY(kb_synchronize(ctx));
    return kb_tensor_free(ctx, x);
}

static void failures_alternate_with_successes(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    for (uint32_t round = 0; round < 40; round++) {
        kb_error *err = kb_spawn(ctx, fails_if_odd, &round, SIPS);
        assert_int_equal(kb_error_code(err), round % 2 == 1 ? KB_ERR_CHECK : KB_OK);
        kb_error_free(err);
    }
    expect_as_new(ctx);
    kb_context_destroy(ctx);
}

static void failures_take_no_memory(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    size_t at_first = 0;
    for (uint32_t round = 0; round < 3000; round++) {
        kb_request request;
        expect_error(kb_spawn(ctx, leaves_a_fault_unwound, &request, 2), KB_ERR_CHECK,
                     "1 of 2 workers failed: rank 1: boom");
        expect_ok(kb_request_free(ctx, request));
        if (round == 20)
            at_first = bytes_in_use();
        if (round == 30 && RUNNING_ON_VALGRIND)
            break;
    }
    assert_int_equal(bytes_in_use(), at_first);
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rank_that_fails_is_named_in_every_phase),
        cmocka_unit_test(others_get_their_turn_of_that_instant),
        cmocka_unit_test(cleanups_run_newest_first_and_may_call_everything),
        cmocka_unit_test(tools_of_unwound_workers_are_given_back),
        cmocka_unit_test(those_that_fail_first_are_named),
        cmocka_unit_test(those_that_fail_at_the_same_instant_are_all_named),
        cmocka_unit_test(of_many_the_message_names_some_and_the_detail_all),
        cmocka_unit_test(what_several_say_is_said_once),
        cmocka_unit_test(many_different_errors_are_all_told),
        cmocka_unit_test(details_of_errors_are_kept_line_by_line),
        cmocka_unit_test(requests_of_those_that_failed_can_be_waited_for),
        cmocka_unit_test(faults_of_those_that_were_unwound_can_be_waited_for),
        cmocka_unit_test(a_deadlock_is_an_error_and_all_are_unwound),
        cmocka_unit_test(a_failure_of_the_simulation_is_that_of_spawn),
        cmocka_unit_test(a_failure_of_an_event_is_that_of_spawn),
        cmocka_unit_test(stopping_the_simulation_stops_no_worker),
        cmocka_unit_test(a_failure_among_yielders_leaves_nothing_behind),
        cmocka_unit_test(failures_alternate_with_successes),
        cmocka_unit_test(failures_take_no_memory),
    };
    return cmocka_run_group_tests_name("worker failures", tests, NULL, NULL);
}
