/*
 * test_work_alloc.c: works, queues and copies when there is no memory. Whichever allocation fails,
 * alone or with all that follow, every call returns what it should or an error of KB_ERR_HOST,
 * works end, the context can be destroyed, and nothing is leaked.
 */
#include "works.h"

#include "support/failing_alloc.h"

static const char *const tiny_machine[] = {
    "system.sips.count=1", "sip.cube_mesh.w=1", "sip.cube_mesh.h=1",
    "cube.noc.w=2",        "cube.noc.h=2",      "cube.pe_layout.pe_per_corner=1",
};

static const char *const ccl_settings[] = {"ccl.a=1", "ccl.b=2"};

static int failures_seen;

/* Success, or the error that is expected, or out of memory: false for the last. */
static bool ended_with(kb_error *err, kb_code expected)
{
    kb_code code = kb_error_code(err);
    kb_error_free(err);
    if (code == expected)
        return true;
    assert_int_equal(code, KB_ERR_HOST);
    failures_seen++;
    return false;
}

static bool went_well(kb_error *err)
{
    return ended_with(err, KB_OK);
}

/* With memory for all but what is tried. */
static void try_all(void (*body)(kb_context *ctx, ipcq_set *set, kb_tensor numbers), bool installed)
{
    failures_seen = 0;
    for (int mode = FAIL_ONCE; mode <= FAIL_ONWARDS; mode++) {
        bool done = false;
        uint32_t stride =
            mode == FAIL_ONCE ? 2 : 5; /* the others differ little, and it takes long */
        for (long n = 1; !done; n += stride * stride_if_slow(17)) {
            size_t before = failing_alloc_live();
            kb_context *ctx = open_small(&(kb_context_options){
                .settings = tiny_machine, .setting_count = 6, .stack_bytes = 128 << 10});
            ipcq_set *set = ring_of(ctx, two_pes, 2);
            if (installed)
                (void)install(ctx, set);
            kb_tensor numbers = numbers_for(ctx, 0, 2);
            failing_alloc_arm(n, (failing_alloc_mode)mode);
            body(ctx, set, numbers);
            done = !failing_alloc_disarm();
            kb_context_destroy(ctx);
            assert_int_equal(failing_alloc_live(), before);
        }
    }
    assert_true(failures_seen > 0);
}

/* Waits and frees; the work is over unless the simulation itself had no memory. */
static bool finish(script *s, kb_code expected)
{
    bool fine = ended_with(kb_request_wait(s->ctx, s->request, NULL), expected);
    if (fine)
        assert_int_equal(s->done, 1);
    expect_ok(kb_request_free(s->ctx, s->request));
    return fine;
}

static void install_and_remove(kb_context *ctx, ipcq_set *set, kb_tensor numbers)
{
    (void)numbers;
    kb_request request;
    if (!went_well(rt_install_queues(ctx, set, &request)))
        return;
    bool fine = went_well(kb_request_wait(ctx, request, NULL));
    expect_ok(kb_request_free(ctx, request));
    if (!fine || !went_well(rt_remove_queues(ctx, set, &request)))
        return;
    if (went_well(kb_request_wait(ctx, request, NULL)))
        assert_int_equal(count_installed(set), 0);
    expect_ok(kb_request_free(ctx, request));
}

static void queues_are_installed_or_not(void **state)
{
    (void)state;
    try_all(install_and_remove, false);
}

static kb_error *again(script *s, rt_work *work)
{
    s->first += 100;
    return launch_step(s, work);
}

static void run_steps(kb_context *ctx, ipcq_set *set, kb_tensor numbers)
{
    static script_step *const steps[] = {launch_step, again};
    script s = ring_script(ctx, &pass_on, set, numbers, two_pes, 2);
    s.steps = steps;
    s.step_count = 2;
    if (went_well(try_script(&s)) && finish(&s, KB_OK))
        assert_int_equal(s.began, 2);
}

static void works_end_in_any_case(void **state)
{
    (void)state;
    try_all(run_steps, true);
}

static void run_into_deadlock(kb_context *ctx, ipcq_set *set, kb_tensor numbers)
{
    script s = ring_script(ctx, &receive_first, set, numbers, two_pes, 2);
    if (went_well(try_script(&s)))
        (void)finish(&s, KB_ERR_DEADLOCK);
}

static void deadlocks_are_told_without_memory(void **state)
{
    (void)state;
    try_all(run_into_deadlock, true);
}

static void fail_or_abort(kb_context *ctx, ipcq_set *set, kb_tensor numbers)
{
    script s = ring_script(ctx, &first_fails, set, numbers, two_pes, 2);
    s.first = 0;
    if (went_well(try_script(&s)) && !finish(&s, KB_ERR_FAULT))
        return;
    script t = ring_script(ctx, &receive_first, set, numbers, two_pes, 2);
    if (!went_well(try_script(&t)))
        return;
    if (t.work) {
        kb_error *why = kb_error_new(KB_ERR_FAULT, "enough");
        rt_work_abort(t.work, why);
        kb_error_free(why);
    }
    (void)finish(&t, KB_ERR_FAULT);
}

static void failures_are_told_without_memory(void **state)
{
    (void)state;
    try_all(fail_or_abort, true);
}

static kb_error *copy_step(script *s, rt_work *work)
{
    rt_flat_copy copy = {
        .to = s->tensor, .from = s->tensor, .to_first = 7, .from_first = 0, .count = 9};
    return rt_work_copy(work, &copy);
}

static void copy_some(kb_context *ctx, ipcq_set *set, kb_tensor numbers)
{
    (void)set, (void)numbers;
    static script_step *const steps[] = {copy_step};
    static const kb_policy split = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    kb_tensor_spec spec = {.dtype = KB_F32,
                           .shape = KB_SHAPE(5, 6),
                           .policy = &split,
                           .memory = KB_TCM,
                           .access = KB_UNTIMED};
    script s = {.ctx = ctx, .steps = steps, .step_count = 1};
    rt_tensor_view view;
    if (!went_well(kb_zeros(ctx, &spec, &s.tensor)))
        return;
    if (went_well(rt_view_tensor(ctx, s.tensor, &view)))
        assert_int_equal(view.shard_count, 4);
    if (went_well(try_script(&s)))
        (void)finish(&s, KB_OK);
}

static void copies_fail_cleanly(void **state)
{
    (void)state;
    try_all(copy_some, false);
}

static void make_another(kb_context *ctx, ipcq_set *set, kb_tensor numbers)
{
    (void)set, (void)numbers;
    kb_context *other;
    if (went_well(rt_context_like(ctx, &other)))
        kb_context_destroy(other);
    else
        assert_null(other);
}

static void contexts_like_others_are_made_or_not(void **state)
{
    (void)state;
    try_all(make_another, false);
}

static void settings_of_collectives_are_kept_or_not(void **state)
{
    (void)state;
    for (long n = 1; n < 12; n++) {
        size_t before = failing_alloc_live();
        kb_context *ctx;
        failing_alloc_arm(n, FAIL_ONWARDS);
        kb_context_options options = {
            .settings = ccl_settings, .setting_count = 2, .ccl = "x.yaml"};
        assert_false(went_well(kb_context_create(&options, &ctx)));
        assert_true(failing_alloc_disarm());
        assert_int_equal(failing_alloc_live(), before);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queues_are_installed_or_not),
        cmocka_unit_test(works_end_in_any_case),
        cmocka_unit_test(deadlocks_are_told_without_memory),
        cmocka_unit_test(failures_are_told_without_memory),
        cmocka_unit_test(copies_fail_cleanly),
        cmocka_unit_test(contexts_like_others_are_made_or_not),
        cmocka_unit_test(settings_of_collectives_are_kept_or_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
