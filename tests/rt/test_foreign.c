/*
 * test_foreign.c: launches of kernels in another language, whose frames return by themselves when
 * the launch fails, deadlocks, or its context is destroyed.
 */
#include "works.h"

#include "tl/foreign.h"

typedef struct work_of_pe {
    foreign f; /* the first member */
    tl_ptr mine;
    tl_tensor value;
} work_of_pe;

/* When the other kernel waits: the product takes longer than its start. */
static void fail_later(tl_context *tl, void *arg)
{
    (void)arg;
    tl_tensor x = tl_zeros(tl_shape(256, 256), TL_F16);
    tl_wait(tl_dot(x, x));
    tl_load(0x10, tl_shape(4), TL_F32);
}

static void receive(tl_context *tl, void *arg)
{
    work_of_pe *w = arg;
    w->value = tl_recv("W", tl_shape(1), TL_F32);
}

static void store(tl_context *tl, void *arg)
{
    const work_of_pe *w = arg;
    tl_store(w->mine, w->value);
}

/* Is given the numbers 10 and 11. */
static void receive_and_store(tl_context *tl, const tl_arg *args)
{
    work_of_pe *w = (work_of_pe *)tl_user() + (args[1] > 10);
    w->mine = (tl_ptr)args[0];
    uint32_t depth = foreign_enter(&w->f);
    if (foreign_call(&w->f, tl, receive, w))
        (void)foreign_call(&w->f, tl, store, w);
    foreign_leave(&w->f, depth);
}

static void first_fails_others_receive(tl_context *tl, const tl_arg *args)
{
    work_of_pe *w = (work_of_pe *)tl_user() + (args[1] > 10);
    uint32_t depth = foreign_enter(&w->f);
    if (args[1] > 10 || foreign_call(&w->f, tl, fail_later, w))
        (void)foreign_call(&w->f, tl, receive, w);
    foreign_leave(&w->f, depth);
}

static kb_kernel kernel_of(void (*body)(tl_context *, const tl_arg *), work_of_pe *works)
{
    return (kb_kernel){.name = "foreign",
                       .parameters = "tl_ptr mine, float number",
                       .parameter_count = 2,
                       .file = __FILE__,
                       .line = __LINE__,
                       .run = body,
                       .user = works};
}

/* A launch of it on a pair of PEs, in a context of its own. */
typedef struct pair {
    kb_context *ctx;
    ipcq_set *set;
    kb_tensor numbers;
    kb_kernel kernel;
    work_of_pe works[2];
    script s;
} pair;

static void start_pair(pair *p, void (*body)(tl_context *, const tl_arg *), bool bare)
{
    *p = (pair){.ctx = open_small(NULL), .works = {{.f.bare = bare}, {.f.bare = bare}}};
    p->set = installed_pair(p->ctx);
    p->numbers = numbers_for(p->ctx, 0, 2);
    p->kernel = kernel_of(body, p->works);
    p->s = ring_script(p->ctx, &p->kernel, p->set, p->numbers, two_pes, 2);
    start_script(&p->s);
}

/* Both kernels have seen one error, of that code. */
static void expect_returned(const pair *p, kb_code code)
{
    for (int i = 0; i < 2; i++) {
        expect_balanced(&p->works[i].f);
        assert_int_equal(p->works[i].f.errors, 1);
        assert_int_equal(p->works[i].f.code, code);
    }
}

/* The context can be used on. */
static void finish_pair(pair *p)
{
    expect_usable(p->ctx, p->set, p->numbers);
    kb_context_destroy(p->ctx);
}

static void a_kernel_that_fails_stops_the_others(void **state)
{
    (void)state;
    char messages[2][512];
    kb_time times[2];
    for (int bare = 0; bare < 2; bare++) {
        pair p;
        start_pair(&p, first_fails_others_receive, bare);
        kb_error *err = finish_script(&p.s);
        assert_int_equal(kb_error_code(err), KB_ERR_FAULT);
        snprintf(messages[bare], sizeof messages[bare], "%s", kb_error_message(err));
        times[bare] = kb_context_now(p.ctx);
        kb_error_free(err);
        if (!bare)
            expect_returned(&p, KB_ERR_FAULT);
        finish_pair(&p);
    }
    assert_non_null(strstr(messages[0], "test_foreign.c:"));
    assert_string_equal(messages[0], messages[1]);
    assert_int_equal(times[0], times[1]);
}

static void frames_return_after_a_deadlock(void **state)
{
    (void)state;
    pair p;
    start_pair(&p, receive_and_store, false);
    kb_error *err = finish_script(&p.s);
    assert_int_equal(kb_error_code(err), KB_ERR_DEADLOCK);
    kb_error_free(err);
    expect_returned(&p, KB_ERR_DEADLOCK);
    finish_pair(&p);
}

static void frames_return_when_the_context_is_destroyed(void **state)
{
    (void)state;
    pair p;
    start_pair(&p, receive_and_store, false);
    expect_ok(kb_sim_run(kb_context_sim(p.ctx), kb_context_now(p.ctx) + 10000 * KB_NS));
    assert_int_equal(p.works[0].f.depth, 2); /* they wait */
    assert_int_equal(p.works[1].f.depth, 2);
    kb_context_destroy(p.ctx);
    expect_returned(&p, KB_ERR_FAULT);
    assert_non_null(strstr(p.works[1].f.message, "the simulation is being torn down"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kernel_that_fails_stops_the_others),
        cmocka_unit_test(frames_return_after_a_deadlock),
        cmocka_unit_test(frames_return_when_the_context_is_destroyed),
    };
    return cmocka_run_group_tests_name("foreign", tests, NULL, NULL);
}
