/*
 * test_requests.c: handles of requests: submitting, waiting, testing, freeing, and what becomes of
 * faults. What the messages do is in test_messages.c.
 *
 * Checks H3.
 */
#include "programs.h"
#include "support/seed.h"

/* What must not change if a call is to cost nothing. */
typedef struct effort {
    kb_time now;
    uint64_t events, elided, resumes;
} effort;

static effort effort_of(kb_context *ctx)
{
    kb_sim_stats stats = kb_sim_get_stats(kb_context_sim(ctx));
    return (effort){kb_context_now(ctx), stats.events, stats.elided, stats.resumes};
}

static void expect_no_effort(kb_context *ctx, effort before)
{
    effort after = effort_of(ctx);
    assert_int_equal(after.now, before.now);
    assert_int_equal(after.events, before.events);
    assert_int_equal(after.elided, before.elided);
    assert_int_equal(after.resumes, before.resumes);
}

/* ---- Waiting and testing ---- */

static void submitting_takes_no_time_and_waiting_does(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    effort before = effort_of(ctx);
    kb_request request = submit(ctx, write_to(hbm(0, 0), 4096));
    assert_int_equal(kb_context_now(ctx), before.now);
    assert_false(is_done(ctx, request));
    kb_completion completion = wait_for(ctx, request);
    assert_int_equal(completion.issued, before.now);
    assert_true(completion.ended > completion.issued);
    assert_int_equal(kb_context_now(ctx), completion.ended);
    assert_true(is_done(ctx, request));
    kb_context_destroy(ctx);
}

static void waiting_on_a_completed_handle_is_free(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_request request = submit(ctx, write_to(hbm(0, 0), 100));
    kb_completion first = wait_for(ctx, request);
    effort before = effort_of(ctx);
    for (int i = 0; i < 5; i++) {
        kb_completion again = wait_for(ctx, request);
        assert_memory_equal(&again, &first, sizeof again);
        assert_true(is_done(ctx, request));
        expect_ok(kb_request_wait(ctx, request, NULL));
        expect_ok(kb_synchronize(ctx)); /* nothing is left to wait for */
    }
    expect_no_effort(ctx, before);
    kb_context_destroy(ctx);
}

static kb_error *waits_twice(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    kb_request request = submit(ctx, write_to(hbm(rank, 0), 100));
    (void)wait_for(ctx, request);
    effort before = effort_of(ctx);
    for (int i = 0; i < 5; i++)
        (void)wait_for(ctx, request);
    expect_ok(kb_synchronize(ctx));
    expect_no_effort(ctx, before);
    return NULL;
}

static void waiting_on_a_completed_handle_is_free_for_workers(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    expect_ok(kb_spawn(ctx, waits_twice, NULL, SIPS));
    kb_context_destroy(ctx);
}

static void testing_takes_no_time(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_request request = submit(ctx, read_from(hbm(1, 0), 1));
    effort before = effort_of(ctx);
    for (int i = 0; i < 100; i++)
        assert_false(is_done(ctx, request));
    expect_no_effort(ctx, before);
    kb_context_destroy(ctx);
}

static void requests_under_way_together_end_when_they_would(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_request large = submit(ctx, read_from(hbm(0, 0), 1 << 20));
    kb_request small = submit(ctx, write_to(at(KB_SRAM, 1, 0, 0, 0), 1));
    kb_completion first = wait_for(ctx, small);
    assert_false(is_done(ctx, large));
    kb_completion second = wait_for(ctx, large);
    assert_true(second.ended > first.ended);
    assert_int_equal(first.issued, second.issued);
    assert_int_equal(kb_context_now(ctx), second.ended);
    kb_context_destroy(ctx);
}

/* In any order: what ended before one waits is found as it was. */
static void waiting_in_another_order_changes_no_completion(void **state)
{
    (void)state;
    enum { count = 6 };
    kb_completion completions[2][count];
    for (int backwards = 0; backwards < 2; backwards++) {
        kb_context *ctx = open_small(NULL);
        kb_request requests[count];
        for (uint32_t i = 0; i < count; i++)
            requests[i] = submit(ctx, write_to(at(KB_HBM, i % SIPS, 1, i % PES, 0), 1000 * i + 1));
        for (int i = 0; i < count; i++) {
            int which = backwards ? count - 1 - i : i;
            completions[backwards][which] = wait_for(ctx, requests[which]);
        }
        kb_context_destroy(ctx);
    }
    assert_memory_equal(completions[0], completions[1], sizeof completions[0]);
}

static void synchronizing_waits_for_all_that_is_under_way(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_request requests[8];
    for (uint32_t i = 0; i < 8; i++)
        requests[i] = submit(ctx, write_to(hbm(i % SIPS, 0), 10000 * (8 - i)));
    expect_ok(kb_synchronize(ctx));
    kb_time last = 0;
    for (int i = 0; i < 8; i++) {
        assert_true(is_done(ctx, requests[i]));
        kb_completion completion = wait_for(ctx, requests[i]);
        last = completion.ended > last ? completion.ended : last;
    }
    assert_int_equal(kb_context_now(ctx), last); /* and no longer */
    kb_context_destroy(ctx);
}

/* ---- Of others ---- */

typedef struct handed_over {
    kb_request request;
    kb_completion seen[3];
    kb_error *errors[3];
    kb_time returned[3];
} handed_over;

static kb_error *all_wait_for_the_first(kb_context *ctx, uint32_t rank, void *arg)
{
    handed_over *h = arg;
    if (rank == 0)
        h->request = submit(ctx, write_to(hbm(0, 0), 5000));
    KB_TRY(kb_request_wait(ctx, h->request, &h->seen[rank]));
    h->returned[rank] = kb_context_now(ctx);
    return NULL;
}

static void any_worker_may_wait_for_a_request(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    handed_over h = {0};
    expect_ok(kb_spawn(ctx, all_wait_for_the_first, &h, 3));
    for (int rank = 0; rank < 3; rank++) {
        assert_memory_equal(&h.seen[rank], &h.seen[0], sizeof h.seen[0]);
        assert_int_equal(h.returned[rank], h.seen[0].ended);
    }
    /* The handle outlives its worker. */
    effort before = effort_of(ctx);
    kb_completion again = wait_for(ctx, h.request);
    assert_memory_equal(&again, &h.seen[0], sizeof again);
    expect_no_effort(ctx, before);
    expect_ok(kb_request_free(ctx, h.request));
    kb_context_destroy(ctx);
}

static kb_error *submits_and_leaves(kb_context *ctx, uint32_t rank, void *arg)
{
    kb_request *request = arg;
    if (rank == 0)
        *request = submit(ctx, write_to(hbm(0, 0), 5000));
    return NULL;
}

static void a_request_of_a_worker_that_is_gone_can_be_waited_for(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_request request;
    expect_ok(kb_spawn(ctx, submits_and_leaves, &request, 2));
    assert_true(is_done(ctx, request)); /* spawn has waited for it */
    kb_completion completion = wait_for(ctx, request);
    assert_int_equal(completion.ended, kb_context_now(ctx));
    kb_context_destroy(ctx);
}

static kb_message long_copy(void)
{
    return dma((kb_pe){0, 0, 0}, hbm(0, 0), at(KB_HBM, 0, 1, 0, 0), 1 << 22);
}

/* Rank 1 and 2 wait for what rank 0 submitted and frees. */
static kb_error *frees_what_others_wait_for(kb_context *ctx, uint32_t rank, void *arg)
{
    handed_over *h = arg;
    if (rank == 0) {
        h->request = submit(ctx, long_copy());
        KB_TRY(kb_request_wait(ctx, submit(ctx, write_to(hbm(1, 0), 1)), NULL));
        assert_false(is_done(ctx, h->request));
        KB_TRY(kb_request_free(ctx, h->request));
        h->returned[0] = kb_context_now(ctx);
        return NULL;
    }
    h->errors[rank] = kb_request_wait(ctx, h->request, NULL);
    h->returned[rank] = kb_context_now(ctx);
    return NULL;
}

static void freeing_a_request_tells_those_who_wait_for_it(void **state)
{
    (void)state;
    kb_context *alone = open_small(NULL);
    kb_time whole = carry_out(alone, long_copy());
    kb_context_destroy(alone);

    kb_context *ctx = open_small(NULL);
    handed_over h = {0};
    expect_ok(kb_spawn(ctx, frees_what_others_wait_for, &h, 3));
    for (int rank = 1; rank < 3; rank++) {
        expect_error(h.errors[rank], KB_ERR_FAULT,
                     "kb_request_wait: invalid or freed request handle");
        assert_int_equal(h.returned[rank], h.returned[0]); /* at once */
    }
    assert_true(kb_context_now(ctx) >= whole); /* it went on, and rank 0 waited for it at its end */
    kb_context_destroy(ctx);
}

/* ---- Handles ---- */

static void expect_no_request(kb_context *ctx, kb_request request)
{
    bool done = true;
    expect_error(kb_request_wait(ctx, request, NULL), KB_ERR_FAULT,
                 "kb_request_wait: invalid or freed request handle");
    expect_error(kb_request_test(ctx, request, &done), KB_ERR_FAULT,
                 "kb_request_test: invalid or freed request handle");
    expect_error(kb_request_free(ctx, request), KB_ERR_FAULT,
                 "kb_request_free: invalid or freed request handle");
}

static void handles_that_name_nothing_are_refused(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    static const uint64_t nonsense[] = {
        1, 2, UINT32_MAX, (uint64_t)1 << 32, (uint64_t)1 << 63, UINT64_MAX};
    for (size_t i = 0; i < sizeof nonsense / sizeof *nonsense; i++)
        expect_no_request(ctx, (kb_request){nonsense[i]});
    expect_ok(kb_request_free(ctx, (kb_request){0})); /* of a call that was recorded */
    expect_error(kb_request_wait(ctx, (kb_request){0}, NULL), KB_ERR_FAULT,
                 "kb_request_wait: invalid request handle 0: the call was recorded, or has failed");
    kb_request request = submit(ctx, write_to(hbm(0, 0), 1));
    for (int bit = 0; bit < 44; bit++) /* the others are the context: see test_handles.c */
        expect_no_request(ctx, (kb_request){request.id ^ (uint64_t)1 << bit});
    kb_context_destroy(ctx);
}

static void a_freed_handle_is_refused_for_ever(void **state)
{
    (void)state;
    enum { count = 50 };
    kb_context *ctx = open_small(NULL);
    kb_request freed[count];
    for (int i = 0; i < count; i++) {
        freed[i] = submit(ctx, write_to(hbm(0, 0), 1));
        if (i % 2 == 0)
            (void)wait_for(ctx, freed[i]);
        expect_ok(kb_request_free(ctx, freed[i])); /* every other one is still under way */
        for (int j = 0; j <= i; j++)
            expect_no_request(ctx, freed[j]);
    }
    expect_ok(kb_synchronize(ctx));
    kb_request live = submit(ctx, write_to(hbm(0, 0), 1));
    for (int i = 0; i < count; i++) {
        assert_true(freed[i].id != live.id);
        expect_no_request(ctx, freed[i]);
    }
    assert_false(is_done(ctx, live));
    kb_context_destroy(ctx);
}

static void a_freed_request_goes_on(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    const char text[] = "still on its way";
    kb_message message = write_to(hbm(2, 64), sizeof text);
    message.data = text;
    expect_ok(kb_request_free(ctx, submit(ctx, message)));
    assert_int_equal(kb_context_now(ctx), 0);
    expect_ok(kb_synchronize(ctx));
    assert_true(kb_context_now(ctx) > 0);
    char back[sizeof text];
    kb_message reading = read_from(hbm(2, 64), sizeof back);
    reading.into = back;
    (void)carry_out(ctx, reading);
    assert_string_equal(back, text);
    kb_context_destroy(ctx);
}

static void requests_that_are_left_go_with_their_context(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    for (uint32_t i = 0; i < 3000; i++)
        (void)submit(ctx, write_to(hbm(i % SIPS, 0), 1));
    expect_ok(kb_synchronize(ctx));
    for (uint32_t i = 0; i < 100; i++) { /* some of each kind are under way at the end */
        (void)submit(ctx, read_from(hbm(i % SIPS, 0), 3000));
        (void)submit(ctx, dma((kb_pe){0, 0, i % PES}, hbm(0, 0), hbm(1, 0), 100000));
        (void)submit(ctx, faulty(i % SIPS));
    }
    kb_context_destroy(ctx);
}

static void a_million_requests_take_no_more_memory_than_a_few(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    const uint64_t count = fewer_if_slow(1000000);
    size_t at_first = 0;
    for (uint64_t i = 0; i < count; i++) {
        kb_request request = submit(ctx, write_to(hbm(0, 0), 1));
        if (i % 2 == 0)
            (void)wait_for(ctx, request);
        expect_ok(kb_request_free(ctx, request));
        if (i % 16 == 15)
            expect_ok(kb_synchronize(ctx));
        if (i == 1000)
            at_first = bytes_in_use();
    }
    assert_int_equal(bytes_in_use(), at_first);
    kb_context_destroy(ctx);
}

/* ---- Faults ---- */

static const char fault_message[] = "PE DMA on sip0.cube0.pe0: address 0xdead0000 is not "
                                    "mapped: no tensor is mapped";

static void a_fault_is_returned_at_every_wait(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_request request = submit(ctx, faulty(0));
    assert_false(is_done(ctx, request));
    for (int i = 0; i < 3; i++) {
        kb_completion completion = {0};
        expect_error(kb_request_wait(ctx, request, &completion), KB_ERR_FAULT, fault_message);
        assert_true(is_done(ctx, request));
        /* The command went there, and the completion came back. */
        assert_int_equal(completion.overhead + completion.wire + completion.drain +
                             completion.queueing,
                         completion.ended - completion.issued);
        assert_int_equal(completion.ended, kb_context_now(ctx));
        assert_true(completion.ended > 0);
    }
    expect_ok(kb_synchronize(ctx)); /* it has been told */
    expect_error(kb_request_wait(ctx, request, NULL), KB_ERR_FAULT, fault_message);
    kb_context_destroy(ctx);
}

static void synchronizing_returns_a_fault_once(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_request request = submit(ctx, faulty(0));
    expect_error(kb_synchronize(ctx), KB_ERR_FAULT, fault_message);
    expect_ok(kb_synchronize(ctx));
    expect_error(kb_request_wait(ctx, request, NULL), KB_ERR_FAULT, fault_message);
    expect_ok(kb_synchronize(ctx));
    kb_context_destroy(ctx);
}

static void the_fault_of_a_freed_request_is_not_lost(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    expect_ok(kb_request_free(ctx, submit(ctx, faulty(0))));
    expect_error(kb_synchronize(ctx), KB_ERR_FAULT, fault_message);
    kb_request request = submit(ctx, faulty(0));
    while (!is_done(ctx, request))
        expect_ok(kb_cooperative_yield(ctx));
    expect_ok(kb_request_free(ctx, request));
    expect_error(kb_synchronize(ctx), KB_ERR_FAULT, fault_message);
    expect_ok(kb_synchronize(ctx));
    kb_context_destroy(ctx);
}

/* Being told of one does not hide the other. */
static void of_two_faults_each_is_told(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        kb_context *ctx = open_small(NULL);
        kb_request requests[2] = {submit(ctx, faulty(0)), submit(ctx, faulty(1))};
        while (!is_done(ctx, requests[0]) || !is_done(ctx, requests[1]))
            expect_ok(kb_cooperative_yield(ctx));
        expect_error_about(kb_request_wait(ctx, requests[first], NULL), KB_ERR_FAULT,
                           first == 0 ? "sip0" : "sip1");
        expect_error_about(kb_synchronize(ctx), KB_ERR_FAULT, first == 0 ? "sip1" : "sip0");
        expect_ok(kb_synchronize(ctx));
        kb_context_destroy(ctx);
    }
}

static void synchronizing_tells_the_first_of_several_faults(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    for (uint32_t sip = 0; sip < SIPS; sip++)
        expect_ok(kb_request_free(ctx, submit(ctx, faulty(sip))));
    expect_error_about(kb_synchronize(ctx), KB_ERR_FAULT, "sip0");
    expect_ok(kb_synchronize(ctx)); /* once for all that was waited for */
    kb_context_destroy(ctx);
}

static void faults_that_nobody_asks_for_take_no_memory(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    size_t at_first = 0;
    for (uint32_t i = 0; i < 3000; i++) {
        kb_request request = submit(ctx, faulty(i % SIPS));
        if (i % 2 == 0)
            expect_ok(kb_request_free(ctx, request)); /* before it fails or after that */
        while (kb_sim_get_stats(kb_context_sim(ctx)).pending > 0)
            expect_ok(kb_cooperative_yield(ctx));
        if (i % 2 == 1)
            expect_ok(kb_request_free(ctx, request));
        if (i == 100)
            at_first = bytes_in_use();
        if (i == 500 && RUNNING_ON_VALGRIND)
            break;
    }
    assert_int_equal(bytes_in_use(), at_first);
    expect_error_about(kb_synchronize(ctx), KB_ERR_FAULT, "PE DMA on sip0");
    expect_ok(kb_synchronize(ctx));
    kb_context_destroy(ctx);
}

/* ---- Faults against a model ---- */

/* Requests that failed, in that order. Of those without a handle the oldest counts for all. */
typedef struct failure {
    uint64_t address;
    kb_request request;
    bool has_handle, untold;
} failure;

typedef struct fault_model {
    failure failures[64];
    size_t count;
} fault_model;

static failure *first_untold(fault_model *m)
{
    for (size_t i = 0; i < m->count; i++)
        if (m->failures[i].untold)
            return &m->failures[i];
    return NULL;
}

/* It has no handle any more: if there is one like that, it need not be told. */
static void lose_handle(fault_model *m, failure *f)
{
    f->has_handle = false;
    for (size_t i = 0; i < m->count; i++)
        if (&m->failures[i] != f && m->failures[i].untold && !m->failures[i].has_handle)
            f->untold = false;
}

static void add_failure(kb_context *ctx, fault_model *m, bool free_first)
{
    failure *f = &m->failures[m->count];
    *f = (failure){.address = 0xdead0000 + m->count * 0x1000, .has_handle = true, .untold = true};
    f->request = submit(ctx, dma((kb_pe){0, 0, 0}, virtual_at(f->address), hbm(0, 0), 1));
    m->count++;
    if (free_first)
        expect_ok(kb_request_free(ctx, f->request));
    while (kb_sim_get_stats(kb_context_sim(ctx)).pending > 0)
        expect_ok(kb_cooperative_yield(ctx));
    if (free_first)
        lose_handle(m, f);
}

static void expect_fault_of(kb_error *err, const failure *f)
{
    char text[32];
    snprintf(text, sizeof text, "address 0x%llx is", (unsigned long long)f->address);
    expect_error_about(err, KB_ERR_FAULT, text);
}

static void every_fault_is_told_as_the_model_says(void **state)
{
    (void)state;
    const uint64_t programs = fewer_if_slow(200);
    for (uint64_t seed = 0; seed < programs; seed++) {
        kb_context *ctx = open_small(NULL);
        fault_model m = {.count = 0};
        kb_rng rng;
        kb_rng_init(&rng, test_seed(seed));
        for (int step = 0; step < 60; step++) {
            uint64_t what = kb_rng_below(&rng, 20);
            failure *f = m.count ? &m.failures[kb_rng_below(&rng, m.count)] : NULL;
            failure *first = first_untold(&m);
            if (what < 10) {
                add_failure(ctx, &m, what < 3);
            } else if (what < 13 && f && f->has_handle) {
                expect_fault_of(kb_request_wait(ctx, f->request, NULL), f);
                f->untold = false;
            } else if (what < 18 && f && f->has_handle) {
                expect_ok(kb_request_free(ctx, f->request));
                lose_handle(&m, f);
            } else if (what == 19) {
                kb_error *err = kb_synchronize(ctx);
                if (first)
                    expect_fault_of(err, first);
                else
                    expect_ok(err);
                for (size_t i = 0; i < m.count; i++)
                    m.failures[i].untold = false;
            }
        }
        kb_context_destroy(ctx);
    }
}

static void what_goes_well_is_not_touched_by_a_fault(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_request good = submit(ctx, write_to(hbm(0, 0), 100000));
    kb_request bad = submit(ctx, faulty(0));
    (void)wait_for(ctx, good);
    expect_error(kb_request_wait(ctx, bad, NULL), KB_ERR_FAULT, fault_message);
    (void)wait_for(ctx, good);
    expect_ok(kb_synchronize(ctx));
    kb_context_destroy(ctx);
}

/* Calls that show contents wait for the caller's work, and are told what failed of it. */
static void a_read_of_a_tensor_is_told_of_faults(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_tensor_spec spec = bytes_spec("x", 8);
    spec.access = KB_UNTIMED;
    kb_tensor x;
    expect_ok(kb_zeros(ctx, &spec, &x));
    kb_request request = submit(ctx, faulty(1));
    char back[8];
    expect_error_about(kb_tensor_to_host(ctx, x, KB_UNTIMED, back, sizeof back), KB_ERR_FAULT,
                       "PE DMA on sip1.cube0.pe0: address 0xdead0000 is not mapped");
    expect_ok(kb_tensor_to_host(ctx, x, KB_UNTIMED, back, sizeof back));
    expect_ok(kb_request_free(ctx, request));
    kb_context_destroy(ctx);
}

/* The allocator's caches of each thread count as in use: without them, what is in use is exact. */
static void restart_without_caches(char **argv)
{
    static const char name[] = "GLIBC_TUNABLES";
    if (RUNNING_ON_VALGRIND || getenv(name))
        return;
    assert_int_equal(setenv(name, "glibc.malloc.tcache_count=0", 1), 0);
    execv("/proc/self/exe", argv);
}

int main(int argc, char **argv)
{
    (void)argc;
    restart_without_caches(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(submitting_takes_no_time_and_waiting_does),
        cmocka_unit_test(waiting_on_a_completed_handle_is_free),
        cmocka_unit_test(waiting_on_a_completed_handle_is_free_for_workers),
        cmocka_unit_test(testing_takes_no_time),
        cmocka_unit_test(requests_under_way_together_end_when_they_would),
        cmocka_unit_test(waiting_in_another_order_changes_no_completion),
        cmocka_unit_test(synchronizing_waits_for_all_that_is_under_way),
        cmocka_unit_test(any_worker_may_wait_for_a_request),
        cmocka_unit_test(a_request_of_a_worker_that_is_gone_can_be_waited_for),
        cmocka_unit_test(freeing_a_request_tells_those_who_wait_for_it),
        cmocka_unit_test(handles_that_name_nothing_are_refused),
        cmocka_unit_test(a_freed_handle_is_refused_for_ever),
        cmocka_unit_test(a_freed_request_goes_on),
        cmocka_unit_test(requests_that_are_left_go_with_their_context),
        cmocka_unit_test(a_million_requests_take_no_more_memory_than_a_few),
        cmocka_unit_test(a_fault_is_returned_at_every_wait),
        cmocka_unit_test(synchronizing_returns_a_fault_once),
        cmocka_unit_test(the_fault_of_a_freed_request_is_not_lost),
        cmocka_unit_test(of_two_faults_each_is_told),
        cmocka_unit_test(synchronizing_tells_the_first_of_several_faults),
        cmocka_unit_test(faults_that_nobody_asks_for_take_no_memory),
        cmocka_unit_test(every_fault_is_told_as_the_model_says),
        cmocka_unit_test(what_goes_well_is_not_touched_by_a_fault),
        cmocka_unit_test(a_read_of_a_tensor_is_told_of_faults),
    };
    return cmocka_run_group_tests_name("requests", tests, NULL, NULL);
}
