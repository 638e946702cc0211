/*
 * test_queue_deadlocks.c: kernels that wait for each other for ever: what is said of it, that it
 * never hangs, and that the context can be used on. And workers that fail while kernels wait.
 */
#include "works.h"

/* The part of the message that tells of the circle of the pair. */
#define CIRCLE ": sip0.cube0.pe0 waits for sip0.cube0.pe1 (W), which waits for sip0.cube0.pe0 (W)"

static void expect_deadlock(kb_error *err, const char *circle)
{
    const char *message = kb_error_message(err), *detail = kb_error_detail(err);
    if (!strstr(message, "deadlock at ") || !strstr(message, circle))
        fail_msg("'%s' does not tell of the deadlock and '%s'", message, circle);
    assert_non_null(strstr(detail, "sip0.cube0.pe0 waits to receive by W from sip0.cube0.pe1"));
    assert_non_null(strstr(detail, "works.h:"));
    assert_non_null(strstr(detail, "peer_tail_cache"));
    const char *first_dump = strstr(detail, "my_head");
    assert_non_null(first_dump);
    assert_null(strstr(first_dump + 1, "my_head")); /* once for each set */
    assert_int_equal(kb_error_code(err), KB_ERR_DEADLOCK);
    kb_error_free(err);
}

/* ---- Outside workers ---- */

static void waiting_for_a_deadlock_is_an_error(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    ipcq_set *set = installed_pair(ctx);
    kb_tensor numbers = numbers_for(ctx, 0, 2);
    script s = ring_script(ctx, &receive_first, set, numbers, two_pes, 2);
    start_script(&s);
    expect_deadlock(finish_script(&s), CIRCLE);
    expect_usable(ctx, set, numbers);
    kb_context_destroy(ctx);
}

static void so_is_synchronizing_with_it(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    ipcq_set *set = installed_pair(ctx);
    kb_tensor numbers = numbers_for(ctx, 0, 2);
    script s = ring_script(ctx, &receive_first, set, numbers, two_pes, 2);
    start_script(&s);
    expect_deadlock(kb_synchronize(ctx), CIRCLE);
    expect_ok(kb_synchronize(ctx)); /* it was told */
    assert_int_equal(s.done, 1);
    expect_ok(kb_request_free(ctx, s.request));
    expect_usable(ctx, set, numbers);
    kb_context_destroy(ctx);
}

static void yielding_until_it_is_done_ends(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    ipcq_set *set = installed_pair(ctx);
    kb_tensor numbers = numbers_for(ctx, 0, 2);
    script s = ring_script(ctx, &receive_first, set, numbers, two_pes, 2);
    start_script(&s);
    while (!is_done(ctx, s.request))
        expect_ok(kb_cooperative_yield(ctx));
    expect_deadlock(finish_script(&s), CIRCLE);
    expect_usable(ctx, set, numbers);
    kb_context_destroy(ctx);
}

/* One waits for another that has ended: no circle. */
KB_KERNEL(one_too_many, tl_ptr mine, float number)
{
    tl_send("E", tl_full(tl_shape(1), TL_F32, (double)number));
    tl_tensor x = tl_recv("W", tl_shape(1), TL_F32);
    if (number == 10)
        x = tl_recv("W", tl_shape(1), TL_F32);
    tl_store(mine, x);
}

/* The message names the PE whose kernel has ended. */
static void without_a_cycle_the_message_names_the_end_of_the_chain(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    ipcq_set *set = installed_pair(ctx);
    kb_tensor numbers = numbers_for(ctx, 0, 2);
    script s = ring_script(ctx, &one_too_many, set, numbers, two_pes, 2);
    start_script(&s);
    kb_error *err = finish_script(&s);
    assert_non_null(strstr(kb_error_message(err),
                           ": sip0.cube0.pe0 waits for sip0.cube0.pe1 (W), which runs no kernel"));
    assert_non_null(
        strstr(kb_error_detail(err), "sip0.cube0.pe0 waits to receive by W from sip0.cube0.pe1"));
    assert_int_equal(kb_error_code(err), KB_ERR_DEADLOCK);
    kb_error_free(err);
    expect_usable(ctx, set, numbers);
    kb_context_destroy(ctx);
}

/* Of a long circle the message has a part. */
static void long_circles_are_cut_short(void **state)
{
    (void)state;
    enum { LENGTH = 12 };
    static const char *const twelve[] = {"sip.cube_mesh.w=2", "sip.cube_mesh.h=1"};
    kb_context *ctx = open_small(&(kb_context_options){.settings = twelve, .setting_count = 2});
    kb_pe ring[LENGTH];
    for (uint32_t i = 0; i < LENGTH; i++)
        ring[i] = (kb_pe){0, i / 8, i % 8};
    ipcq_set *set = ring_of(ctx, ring, LENGTH);
    (void)install(ctx, set);
    kb_tensor numbers = numbers_for(ctx, 0, LENGTH);
    script s = ring_script(ctx, &receive_first, set, numbers, ring, LENGTH);
    start_script(&s);
    kb_error *err = kb_request_wait(ctx, s.request, NULL);
    expect_ok(kb_request_free(ctx, s.request));
    /* Each waits for the one before it. */
    const char *expected = ": sip0.cube0.pe0 waits for sip0.cube1.pe3 (W), which waits for "
                           "sip0.cube1.pe2 (W), which waits for sip0.cube1.pe1 (W), which "
                           "waits for sip0.cube1.pe0 (W), which waits for sip0.cube0.pe7 (W), "
                           "which waits for sip0.cube0.pe6 (W), which waits for sip0.cube0.pe5 "
                           "(W), which waits for sip0.cube0.pe4 (W), and so on in a cycle";
    if (!strstr(kb_error_message(err), expected))
        fail_msg("'%s'", kb_error_message(err));
    kb_error_free(err);
    kb_context_destroy(ctx);
}

/* Somebody else's transfer goes on while kernels wait for ever. */
static void other_requests_end_before_it(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    ipcq_set *set = installed_pair(ctx);
    kb_tensor numbers = numbers_for(ctx, 0, 2);
    script s = ring_script(ctx, &receive_first, set, numbers, two_pes, 2);
    start_script(&s);
    assert_true(carry_out(ctx, write_to(hbm(1, 0), 1 << 20)) > 0);
    assert_false(is_done(ctx, s.request));
    expect_deadlock(finish_script(&s), CIRCLE);
    kb_context_destroy(ctx);
}

/* ---- In workers ---- */

/* Each worker has one of the two kernels, which are joined. */
typedef struct pair {
    ipcq_set *set;
    const kb_kernel *kernel;
    kb_tensor numbers;
    script scripts[2];
    bool polls; /* asks whether it is done, instead of waiting */
    uint32_t failing;
    uint32_t yields; /* of rank 1 before it starts its kernel */
} pair;

static kb_error *start_own(pair *p, kb_context *ctx, uint32_t rank)
{
    script *s = &p->scripts[rank];
    *s = ring_script(ctx, p->kernel, p->set, p->numbers, &two_pes[rank], 1);
    s->first = 10 + (float)rank;
    KB_TRY(try_script(s));
    return NULL;
}

static kb_error *wait_and_free(kb_context *ctx, kb_request request)
{
    kb_error *err = kb_request_wait(ctx, request, NULL);
    expect_ok(kb_request_free(ctx, request));
    return err;
}

static kb_error *runs_its_kernel(kb_context *ctx, uint32_t rank, void *arg)
{
    pair *p = arg;
    for (uint32_t i = 0; i < p->yields && rank == 1; i++)
        KB_TRY(kb_cooperative_yield(ctx));
    KB_TRY(start_own(p, ctx, rank));
    while (p->polls && !is_done(ctx, p->scripts[rank].request))
        KB_TRY(kb_cooperative_yield(ctx));
    return wait_and_free(ctx, p->scripts[rank].request);
}

static void workers_that_wait_for_a_deadlock_are_stopped(void **state)
{
    (void)state;
    for (int polls = 0; polls < 2; polls++) {
        kb_context *ctx = open_small(NULL);
        pair p = {.set = installed_pair(ctx),
                  .kernel = &receive_first,
                  .numbers = numbers_for(ctx, 0, 2),
                  .polls = polls};
        expect_deadlock(kb_spawn(ctx, runs_its_kernel, &p, 2), CIRCLE);
        assert_int_equal(p.scripts[0].done, 1);
        assert_int_equal(p.scripts[1].done, 1);
        expect_usable(ctx, p.set, p.numbers);
        p.kernel = &pass_on;
        ipcq_set_reset(p.set);
        expect_ok(kb_spawn(ctx, runs_its_kernel, &p, 2));
        kb_context_destroy(ctx);
    }
}

/* Rank 0's kernel waits; that is no deadlock as long as rank 1 may still start its own. */
static void a_kernel_may_wait_for_a_worker_that_yields(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    pair p = {.set = installed_pair(ctx), .kernel = &pass_on, .numbers = numbers_for(ctx, 0, 2)};
    for (int polls = 0; polls < 2; polls++) {
        p.polls = polls;
        p.yields = 1000;
        expect_ok(kb_spawn(ctx, runs_its_kernel, &p, 2));
    }
    kb_context_destroy(ctx);
}

/* ---- Failures ---- */

static kb_error *one_fails(kb_context *ctx, uint32_t rank, void *arg)
{
    pair *p = arg;
    if (rank == p->failing) {
        kb_co_sleep(kb_context_worker(ctx), 100 * KB_US);
        return kb_error_new(KB_ERR_CHECK, "not today");
    }
    KB_TRY(start_own(p, ctx, rank));
    return wait_and_free(ctx, p->scripts[rank].request);
}

static void a_worker_that_fails_ends_kernels_that_wait_for_it(void **state)
{
    (void)state;
    for (uint32_t failing = 0; failing < 2; failing++) {
        kb_context *ctx = open_small(NULL);
        pair p = {.set = installed_pair(ctx),
                  .kernel = &pass_on,
                  .numbers = numbers_for(ctx, 0, 2),
                  .failing = failing};
        char message[64];
        snprintf(message, sizeof message, "1 of 2 workers failed: rank %u: not today", failing);
        expect_error(kb_spawn(ctx, one_fails, &p, 2), KB_ERR_CHECK, message);
        assert_int_equal(p.scripts[1 - failing].done, 1);
        ipcq_set_reset(p.set);
        expect_ok(kb_spawn(ctx, runs_its_kernel, &p, 2));
        expect_usable(ctx, p.set, p.numbers);
        kb_context_destroy(ctx);
    }
}

/* The driver's own work can end by itself: it goes on. */
static void works_of_the_driver_survive_workers(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    static const kb_pe others[] = {{1, 0, 0}, {1, 0, 1}};
    ipcq_set *other_set = ring_of(ctx, others, 2);
    (void)install(ctx, other_set);
    kb_tensor other_numbers = numbers_for(ctx, 1, 2);
    pair p = {.set = installed_pair(ctx), .kernel = &pass_on, .numbers = numbers_for(ctx, 0, 2)};
    script mine = ring_script(ctx, &pass_on, other_set, other_numbers, others, 2);
    start_script(&mine);
    expect_error_about(kb_spawn(ctx, one_fails, &p, 2), KB_ERR_CHECK, "not today");
    expect_ok(finish_script(&mine));
    expect_numbers(ctx, other_numbers, (const float[]){11, 10}, 2);

    mine = ring_script(ctx, &receive_first, other_set, other_numbers, others, 2);
    start_script(&mine); /* unless it cannot end */
    expect_error_about(kb_spawn(ctx, one_fails, &p, 2), KB_ERR_CHECK, "not today");
    expect_error_about(finish_script(&mine), KB_ERR_DEADLOCK,
                       ": sip1.cube0.pe0 waits for sip1.cube0.pe1 (W)");
    expect_as_new(ctx);
    kb_context_destroy(ctx);
}

/* ---- Hooks ---- */

typedef struct hooked {
    char text[256];
    kb_context *ctx;
    script *left; /* a work that is to be gone when workers are */
} hooked;

static void say(hooked *h, const char *what, uint32_t number)
{
    size_t length = strlen(h->text);
    snprintf(h->text + length, sizeof h->text - length, "%s%u ", what, number);
}

static void on_begin(void *self)
{
    hooked *h = self;
    say(h, "begin", rt_worker_count(h->ctx));
}

static void on_ended(void *self, uint32_t rank)
{
    hooked *h = self;
    assert_true(rt_worker_has_ended(h->ctx, rank));
    say(self, "end", rank);
}

static void on_gone(void *self, bool failed)
{
    hooked *h = self;
    if (h->left)
        assert_int_equal(h->left->done, failed);
    say(self, "gone", failed);
}

static void on_fini(void *self)
{
    say(self, "fini", 0);
}

static const rt_hooks hooks = {on_begin, on_ended, on_gone, on_fini};

static kb_error *ends(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    assert_int_equal(rt_caller_rank(ctx), rank);
    assert_false(rt_worker_has_ended(ctx, rank));
    assert_true(rt_worker_has_ended(ctx, 3));
    if (rank == 1)
        kb_co_exit(kb_context_worker(ctx));
    return NULL;
}

static void hooks_are_called_in_order(void **state)
{
    (void)state;
    hooked h = {0};
    kb_context *ctx = open_small(NULL);
    h.ctx = ctx;
    assert_null(rt_get_layer(ctx, RT_LAYER_CCL));
    expect_ok(kb_spawn(ctx, ends, NULL, 3));
    rt_set_layer(ctx, RT_LAYER_CCL, &hooks, &h);
    assert_ptr_equal(rt_get_layer(ctx, RT_LAYER_CCL), &h);
    assert_int_equal(rt_caller_rank(ctx), RT_DRIVER);
    assert_int_equal(rt_worker_count(ctx), 0);
    expect_ok(kb_spawn(ctx, ends, NULL, 3));
    assert_string_equal(h.text, "begin3 end0 end1 end2 gone0 ");

    h.text[0] = '\0';
    pair p = {.set = installed_pair(ctx), .kernel = &pass_on, .numbers = numbers_for(ctx, 0, 2)};
    h.left = &p.scripts[1];
    expect_error_about(kb_spawn(ctx, one_fails, &p, 2), KB_ERR_CHECK, "not today");
    assert_string_equal(h.text, "begin2 gone1 "); /* who fails has not ended well */
    kb_context_destroy(ctx);
    assert_string_equal(h.text, "begin2 gone1 fini0 ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waiting_for_a_deadlock_is_an_error),
        cmocka_unit_test(so_is_synchronizing_with_it),
        cmocka_unit_test(yielding_until_it_is_done_ends),
        cmocka_unit_test(without_a_cycle_the_message_names_the_end_of_the_chain),
        cmocka_unit_test(long_circles_are_cut_short),
        cmocka_unit_test(other_requests_end_before_it),
        cmocka_unit_test(workers_that_wait_for_a_deadlock_are_stopped),
        cmocka_unit_test(a_kernel_may_wait_for_a_worker_that_yields),
        cmocka_unit_test(a_worker_that_fails_ends_kernels_that_wait_for_it),
        cmocka_unit_test(works_of_the_driver_survive_workers),
        cmocka_unit_test(hooks_are_called_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
