/*
 * test_work.c: queues that are installed by commands, works in steps, kernels on chosen PEs with
 * arguments of their own, and ends that come from outside.
 *
 * Checks Q5.
 */
#include "works.h"

/* ---- Queues ---- */

static const kb_pe across[] = {{0, 0, 0}, {2, 1, 3}, {0, 1, 2}, {3, 0, 1}, {2, 0, 0}};
enum { ACROSS = sizeof across / sizeof *across };

static void installing_takes_time(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    ipcq_set *set = ring_of(ctx, across, ACROSS);
    assert_int_equal(count_installed(set), 0);
    assert_true(install(ctx, set) > 0);
    assert_int_equal(count_installed(set), ACROSS);
    assert_true(uninstall(ctx, set) > 0);
    assert_int_equal(count_installed(set), 0);
    assert_int_equal(uninstall(ctx, set), 0); /* nobody has anything to remove */
    ipcq_set_destroy(set);
    kb_context_destroy(ctx);
}

/* Two PEs are all of this machine. Removing tells them nothing but that, as unmapping a tensor
 * does: so both take the same time. */
static void removing_takes_as_long_as_unmapping(void **state)
{
    (void)state;
    temporary file = file_of("system: { sips: { count: 1 } }\n"
                             "sip: { cube_mesh: { w: 1, h: 1 } }\n"
                             "cube: { noc: { k: 1 }, pe_layout: { pe_per_router: 2 } }\n");
    kb_context *ctx = open_small(&(kb_context_options){.topology = file.path});
    remove_file(&file);
    assert_int_equal(kb_context_machine(ctx).pes, 2);
    kb_tensor tensor;
    kb_tensor_spec spec = bytes_spec("x", 64);
    expect_ok(kb_empty(ctx, &spec, &tensor));
    expect_ok(kb_synchronize(ctx));
    kb_time before = kb_context_now(ctx);
    expect_ok(kb_tensor_free(ctx, tensor));
    expect_ok(kb_synchronize(ctx));
    kb_time unmapping = kb_context_now(ctx) - before;
    assert_int_equal(uninstall(ctx, installed_pair(ctx)), unmapping);
    kb_context_destroy(ctx);
}

static void the_order_of_members_does_not_matter(void **state)
{
    (void)state;
    static const size_t orders[][ACROSS] = {{0, 1, 2, 3, 4}, {4, 3, 2, 1, 0}, {2, 0, 4, 1, 3}};
    kb_time took[3];
    for (int order = 0; order < 3; order++) {
        kb_context *ctx = open_small(NULL);
        ipcq_edge edges[ACROSS];
        for (size_t i = 0; i < ACROSS; i++) {
            size_t from = orders[order][i];
            edges[i] = (ipcq_edge){across[from], "E", across[(from + 1) % ACROSS]};
        }
        ipcq_settings settings = {
            .buffer = KB_TCM, .n_slots = 4, .slot_bytes = 256, .credit_bytes = 16};
        ipcq_plan plan;
        ipcq_set *set;
        expect_ok(ipcq_plan_init(&plan, edges, ACROSS, &settings));
        expect_ok(ipcq_set_create(rt_queues(ctx), &plan, &set));
        ipcq_plan_fini(&plan);
        took[order] = install(ctx, set);
        kb_context_destroy(ctx);
    }
    assert_true(took[0] > 0);
    assert_int_equal(took[1], took[0]);
    assert_int_equal(took[2], took[0]);
}

static void installing_twice_is_an_error(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    ipcq_set *set = installed_pair(ctx);
    kb_request request;
    expect_ok(rt_install_queues(ctx, set, &request));
    kb_error *err = kb_request_wait(ctx, request, NULL);
    assert_int_not_equal(kb_error_code(err), KB_OK);
    kb_error_free(err);
    expect_ok(kb_request_free(ctx, request));
    assert_int_equal(count_installed(set), 2);
    kb_context_destroy(ctx); /* with the queues that are left */
}

/* ---- Works ---- */

static void kernels_have_arguments_of_their_own(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    static const kb_pe ring[] = {{1, 0, 1}, {1, 0, 3}, {1, 1, 0}};
    ipcq_set *set = ring_of(ctx, ring, 3);
    (void)install(ctx, set);
    kb_tensor numbers = numbers_for(ctx, 1, 3);
    script s = ring_script(ctx, &pass_on, set, numbers, ring, 3);
    start_script(&s);
    expect_ok(finish_script(&s));
    expect_numbers(ctx, numbers, (const float[]){12, 10, 11}, 3);

    rt_stats stats = rt_get_stats(ctx); /* it is a launch like any other */
    assert_int_equal(stats.launch_count, 1);
    assert_string_equal(stats.launches[0].name, "ring");
    assert_int_equal(stats.launches[0].sip, 1);
    assert_int_equal(stats.launches[0].pes, 3);
    assert_true(stats.launches[0].pe_exec > 0);
    kb_context_destroy(ctx);
}

static void works_without_queues_run_kernels_too(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_tensor numbers = numbers_for(ctx, 0, 2);
    script s = ring_script(ctx, &put, NULL, numbers, two_pes, 2);
    start_script(&s);
    expect_ok(finish_script(&s));
    expect_numbers(ctx, numbers, (const float[]){10, 11}, 2);
    s = ring_script(ctx, &pass_on, NULL, numbers, two_pes, 2);
    start_script(&s);
    expect_error_about(finish_script(&s), KB_ERR_FAULT, "no queues are installed in this PE");
    kb_context_destroy(ctx);
}

static kb_error *more_launches(script *s, rt_work *work)
{
    s->first += 100;
    return launch_step(s, work);
}

static void steps_follow_each_other(void **state)
{
    (void)state;
    static script_step *const steps[] = {launch_step, empty_step, more_launches, empty_step,
                                         empty_step};
    kb_context *ctx = open_small(NULL);
    kb_tensor numbers = numbers_for(ctx, 0, 2);
    script s = ring_script(ctx, &pass_on, installed_pair(ctx), numbers, two_pes, 2);
    s.steps = steps;
    s.step_count = 5;
    kb_time began = kb_context_now(ctx);
    start_script(&s);
    assert_int_equal(s.began, 1);
    kb_completion completion;
    expect_ok(kb_request_wait(ctx, s.request, &completion));
    assert_int_equal(s.began, 5);
    assert_int_equal(s.times[0], began);
    assert_true(s.times[1] > began);
    assert_int_equal(s.times[2], s.times[1]); /* the step before had nothing to do */
    /* Both launches take equally long, and nothing is between them. */
    assert_int_equal(s.times[3] - s.times[2], s.times[1] - s.times[0]);
    assert_int_equal(completion.issued, began);
    assert_int_equal(completion.ended, s.times[4]);
    assert_int_equal(completion.overhead + completion.wire + completion.drain + completion.queueing,
                     completion.ended - completion.issued);
    kb_launch_result results[2];
    size_t count;
    expect_ok(kb_launch_results(ctx, s.request, results, 2, &count));
    assert_int_equal(count, 2);
    expect_ok(finish_script(&s));
    expect_numbers(ctx, numbers, (const float[]){111, 110}, 2);
    kb_context_destroy(ctx);
}

static void a_work_without_anything_to_do_ends_at_once(void **state)
{
    (void)state;
    static script_step *const steps[] = {empty_step, empty_step};
    kb_context *ctx = open_small(NULL);
    script s = {.ctx = ctx, .steps = steps, .step_count = 2};
    start_script(&s);
    assert_int_equal(s.done, 1);
    assert_true(is_done(ctx, s.request));
    expect_ok(finish_script(&s));
    kb_context_destroy(ctx);
}

static void held_parts_are_waited_for(void **state)
{
    (void)state;
    static script_step *const steps[] = {hold_step, empty_step};
    kb_context *ctx = open_small(NULL);
    script s = {.ctx = ctx, .steps = steps, .step_count = 2};
    start_script(&s);
    assert_int_equal(carry_out(ctx, write_to(hbm(0, 0), 64)) > 0, true);
    assert_int_equal(s.began, 1);
    rt_work_release(s.work, NULL);
    assert_int_equal(s.began, 2);
    kb_completion completion;
    expect_ok(kb_request_wait(ctx, s.request, &completion));
    assert_int_equal(completion.queueing, completion.ended - completion.issued);
    assert_true(completion.queueing > 0);
    expect_ok(finish_script(&s));

    s = (script){.ctx = ctx, .steps = steps, .step_count = 2};
    start_script(&s);
    rt_work_release(s.work, kb_error_new(KB_ERR_FAULT, "let go"));
    assert_int_equal(s.began, 1); /* nothing comes behind a failure */
    expect_error(finish_script(&s), KB_ERR_FAULT, "let go");
    kb_context_destroy(ctx);
}

static kb_error *failing_step(script *s, rt_work *work)
{
    KB_TRY(launch_step(s, work));
    return kb_error_new(KB_ERR_CHECK, "a step that fails");
}

static void what_a_failing_step_began_ends_first(void **state)
{
    (void)state;
    static script_step *const steps[] = {failing_step, empty_step};
    kb_context *ctx = open_small(NULL);
    kb_tensor numbers = numbers_for(ctx, 0, 2);
    script s = ring_script(ctx, &pass_on, installed_pair(ctx), numbers, two_pes, 2);
    s.steps = steps;
    s.step_count = 2;
    start_script(&s);
    assert_int_equal(s.done, 0);
    expect_error(finish_script(&s), KB_ERR_CHECK, "a step that fails");
    assert_int_equal(s.began, 1);
    expect_numbers(ctx, numbers, (const float[]){11, 10}, 2);
    kb_context_destroy(ctx);
}

/* One kernel fails; the other one would wait for it for ever. */
static void a_kernel_that_fails_ends_those_that_wait_for_it(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    ipcq_set *set = installed_pair(ctx);
    kb_tensor numbers = numbers_for(ctx, 0, 2);
    script s = ring_script(ctx, &first_fails, set, numbers, two_pes, 2);
    s.first = 0;
    start_script(&s);
    expect_error_about(finish_script(&s), KB_ERR_FAULT, "first_fails");
    ipcq_set_reset(set);
    s = ring_script(ctx, &pass_on, set, numbers, two_pes, 2);
    start_script(&s);
    expect_ok(finish_script(&s));
    expect_numbers(ctx, numbers, (const float[]){11, 10}, 2);
    expect_ok(kb_synchronize(ctx));
    kb_context_destroy(ctx);
}

/* ---- Aborting ---- */

/* At every moment: before its command is at the PEs, while kernels wait, and with parts held. */
static void works_can_be_aborted_at_any_time(void **state)
{
    (void)state;
    static script_step *const steps[] = {launch_step, hold_step, empty_step};
    for (int when = 0; when < 12; when++) {
        kb_context *ctx = open_small(NULL);
        ipcq_set *set = installed_pair(ctx);
        kb_tensor numbers = numbers_for(ctx, 0, 2);
        const kb_kernel *kernel = when % 2 ? &receive_first : &pass_on;
        script s = ring_script(ctx, kernel, set, numbers, two_pes, 2);
        s.steps = steps;
        s.step_count = 3;
        start_script(&s);
        for (int i = 0; i < when; i++)
            (void)carry_out(ctx, write_to(hbm(0, 0), 200));
        assert_int_equal(s.done, 0);
        kb_error *why = kb_error_new(KB_ERR_FAULT, "enough");
        rt_work_abort(s.work, why);
        kb_error_free(why);
        expect_error(finish_script(&s), KB_ERR_FAULT, "enough");
        assert_true(s.began < 3);
        ipcq_set_reset(set);
        s = ring_script(ctx, &pass_on, set, numbers, two_pes, 2);
        start_script(&s);
        expect_ok(finish_script(&s));
        expect_numbers(ctx, numbers, (const float[]){11, 10}, 2);
        kb_context_destroy(ctx);
    }
}

static void releasing_an_aborted_work_does_nothing(void **state)
{
    (void)state;
    static script_step *const steps[] = {hold_step, empty_step};
    kb_context *ctx = open_small(NULL);
    kb_tensor numbers = numbers_for(ctx, 0, 2);
    script s = ring_script(ctx, &receive_first, installed_pair(ctx), numbers, two_pes, 2);
    s.steps = steps;
    s.step_count = 2;
    start_script(&s);
    expect_ok(launch_step(&s, s.work)); /* so that it does not end at once */
    kb_error *why = kb_error_new(KB_ERR_FAULT, "enough");
    rt_work_abort(s.work, why);
    kb_error_free(why);
    assert_int_equal(s.done, 0);
    rt_work_release(s.work, kb_error_new(KB_ERR_CHECK, "too late"));
    expect_error(finish_script(&s), KB_ERR_FAULT, "enough");
    kb_context_destroy(ctx);
}

static void contexts_can_go_with_works_under_way(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_tensor numbers = numbers_for(ctx, 0, 2);
    script s = ring_script(ctx, &receive_first, installed_pair(ctx), numbers, two_pes, 2);
    start_script(&s);
    for (int i = 0; i < 10; i++)
        (void)carry_out(ctx, write_to(hbm(0, 0), 200));
    kb_context_destroy(ctx);
    assert_int_equal(s.done, 0);
}

/* ---- Who waits for works ---- */

static void reading_waits_for_works_of_the_caller(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_tensor numbers = numbers_for(ctx, 0, 2);
    script s = ring_script(ctx, &pass_on, installed_pair(ctx), numbers, two_pes, 2);
    start_script(&s);
    expect_numbers(ctx, numbers, (const float[]){11, 10}, 2);
    assert_true(is_done(ctx, s.request));
    expect_ok(finish_script(&s));

    /* But not for one that moves nothing. */
    static script_step *const steps[] = {hold_step};
    s = (script){.ctx = ctx, .steps = steps, .step_count = 1};
    rt_work_options options = {.what = "barrier",
                               .step = script_next,
                               .done = script_done,
                               .self = &s,
                               .moves_nothing = true};
    expect_ok(rt_work_open(ctx, &options, &s.work, &s.request));
    rt_work_start(s.work);
    expect_numbers(ctx, numbers, (const float[]){11, 10}, 2);
    assert_false(is_done(ctx, s.request));
    rt_work_release(s.work, NULL);
    expect_ok(finish_script(&s));
    kb_context_destroy(ctx);
}

/* ---- Traces and settings ---- */

static notes lines;

static void queues_are_traced_on_request(void **state)
{
    (void)state;
    kb_context *ctx = open_small(
        &(kb_context_options){.on_ccl_trace = note_warning, .on_ccl_trace_self = &lines});
    kb_tensor numbers = numbers_for(ctx, 0, 2);
    script s = ring_script(ctx, &pass_on, installed_pair(ctx), numbers, two_pes, 2);
    start_script(&s);
    expect_ok(finish_script(&s));
    kb_context_destroy(ctx);
    size_t count = 0;
    for (const char *c = lines.text; *c; c++)
        count += *c == '\n';
    assert_int_equal(count, 4); /* two sends, two receives */
    assert_non_null(strstr(lines.text, "sip0.cube0.pe1"));
}

/* What it prints on stderr, with the variable set to this. */
static size_t traced_bytes(const char *value)
{
    FILE *file = tmpfile();
    int kept = dup(STDERR_FILENO);
    assert_non_null(file);
    assert_true(kept >= 0 && fflush(stderr) == 0);
    assert_true(dup2(fileno(file), STDERR_FILENO) >= 0);
    assert_int_equal(setenv("KERNBENCH_CCL_TRACE", value, 1), 0);
    kb_context *ctx = open_small(NULL);
    script s = ring_script(ctx, &pass_on, installed_pair(ctx), numbers_for(ctx, 0, 2), two_pes, 2);
    start_script(&s);
    kb_error *err = finish_script(&s);
    kb_context_destroy(ctx);
    (void)unsetenv("KERNBENCH_CCL_TRACE");
    (void)fflush(stderr);
    (void)dup2(kept, STDERR_FILENO);
    (void)close(kept);
    expect_ok(err);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    long bytes = ftell(file);
    (void)fclose(file);
    return (size_t)bytes;
}

static void the_environment_can_ask_for_traces(void **state)
{
    (void)state;
    assert_int_equal(traced_bytes("0"), 0);
    assert_true(traced_bytes("1") > 100);
}

static void settings_of_collectives_are_set_apart(void **state)
{
    (void)state;
    char changed[] = "ccl.defaults.n_slots=8";
    const char *settings[] = {"system.sips.count=3", changed, "cube.noc.w=2", "ccl.x.y=z",
                              "cube.noc.h=2"};
    static const int plugin;
    const struct kb_ccl_plugin *plugins[] = {(const void *)&plugin};
    kb_context *ctx = open_small(&(kb_context_options){.settings = settings,
                                                       .setting_count = 5,
                                                       .ccl = "mine.yaml",
                                                       .ccl_plugins = plugins,
                                                       .ccl_plugin_count = 1});
    changed[4] = '?'; /* they are copied */
    plugins[0] = NULL;
    kb_context *other;
    expect_ok(rt_context_like(ctx, &other));
    const kb_context *both[] = {ctx, other};
    for (int i = 0; i < 2; i++) {
        const rt_ccl_options *options = rt_get_ccl_options(both[i]);
        assert_string_equal(options->file, "mine.yaml");
        assert_int_equal(options->setting_count, 2);
        assert_string_equal(options->settings[0], "defaults.n_slots=8");
        assert_string_equal(options->settings[1], "x.y=z");
        assert_int_equal(options->plugin_count, 1);
        assert_ptr_equal(options->plugins[0], &plugin);
        assert_int_equal(kb_context_machine(both[i]).sips, 3);
    }
    kb_context_destroy(other);
    kb_context_destroy(ctx);
}

static void a_context_like_another_takes_the_same_time(void **state)
{
    (void)state;
    kb_context *ctx = open_small(&(kb_context_options){.device = "sip:2", .debug = true});
    kb_context *other;
    expect_ok(rt_context_like(ctx, &other));
    assert_int_equal(rt_only_sip(ctx), 2);
    assert_int_equal(rt_only_sip(other), TOPO_NONE);
    assert_true(kb_context_is_timing_only(other));
    kb_time took[2];
    kb_context *both[] = {ctx, other};
    static const kb_pe pair[] = {{2, 0, 0}, {2, 1, 1}};
    for (int i = 0; i < 2; i++) {
        ipcq_set *set = ring_of(both[i], pair, 2);
        (void)install(both[i], set);
        script s = ring_script(both[i], &pass_on, set, numbers_for(both[i], 2, 2), pair, 2);
        kb_time before = kb_context_now(both[i]);
        start_script(&s);
        expect_ok(finish_script(&s));
        took[i] = kb_context_now(both[i]) - before;
        expect_ok(kb_tensor_free(both[i], s.tensor));
    }
    assert_int_equal(took[0], took[1]);
    kb_context_destroy(other);
    kb_context_destroy(ctx);
}

/* ---- Views ---- */

static void views_show_what_a_tensor_is(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_policy policy = {.cube = KB_ROW_WISE, .pe = KB_COLUMN_WISE};
    kb_tensor_spec spec = {
        .name = "x", .dtype = KB_F16, .shape = KB_SHAPE(3, 5), .policy = &policy};
    kb_tensor x, y, z, host;
    expect_ok(kb_ahbm_set_device(ctx, 1));
    expect_ok(kb_empty(ctx, &spec, &x));
    expect_ok(kb_ahbm_set_device(ctx, 3));
    expect_ok(kb_empty(ctx, &spec, &y));
    policy = (kb_policy){.cube = KB_REPLICATE, .pe = KB_ROW_WISE};
    expect_ok(kb_empty(ctx, &spec, &z));
    char data[30] = {0};
    expect_ok(kb_from_host(ctx, &spec, data, 30, &host));

    rt_tensor_view view;
    expect_ok(rt_view_tensor(ctx, x, &view));
    assert_string_equal(view.name, "x");
    assert_int_equal(view.sip, 1);
    assert_int_equal(view.elements, 15);
    assert_int_equal(view.bytes, 30);
    assert_int_equal(view.dtype, KB_F16);
    assert_false(view.on_host || view.replicated);
    assert_int_equal(view.shard_count, CUBES * PES);
    for (size_t i = 0; i < view.shard_count; i++) {
        kb_shard shard;
        expect_ok(kb_tensor_shard(ctx, x, i, &shard));
        const kb_shard *seen = &view.shards[i];
        assert_true(seen->sip == shard.sip && seen->cube == shard.cube && seen->pe == shard.pe);
        assert_int_equal(seen->offset_bytes, shard.offset_bytes);
        assert_int_equal(seen->nbytes, shard.nbytes);
    }
    /* Rows 0 and 1 to cube 0, row 2 to cube 1; of five columns two go to PE 0, one to each other.
     */
    rt_shard_box box = rt_get_shard_box(ctx, x, 0);
    assert_true(box.row == 0 && box.rows == 2 && box.column == 0 && box.columns == 2);
    box = rt_get_shard_box(ctx, x, PES + 3);
    assert_true(box.row == 2 && box.rows == 1 && box.column == 4 && box.columns == 1);

    assert_true(rt_same_layout(ctx, x, y));
    assert_false(rt_same_layout(ctx, x, z));
    assert_false(rt_same_layout(ctx, x, host));
    expect_ok(rt_view_tensor(ctx, z, &view));
    assert_true(view.replicated);
    expect_ok(rt_view_tensor(ctx, host, &view));
    assert_true(view.on_host && view.shard_count == 0);
    expect_ok(kb_tensor_free(ctx, x));
    expect_error(rt_view_tensor(ctx, x, &view), KB_ERR_FAULT, "invalid or freed tensor handle");
    kb_context_destroy(ctx);
}

/* Of three axes: by rows a shard is a rectangle, by columns it is none. */
static void boxes_of_three_axes(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_policy policy = {.cube = KB_ROW_WISE, .pe = KB_ROW_WISE};
    kb_tensor_spec spec = {.dtype = KB_F16, .shape = KB_SHAPE(9, 3, 5), .policy = &policy};
    kb_tensor rows, columns;
    expect_ok(kb_empty(ctx, &spec, &rows));
    policy.pe = KB_COLUMN_WISE;
    expect_ok(kb_empty(ctx, &spec, &columns));
    rt_shard_box box = rt_get_shard_box(ctx, rows, 1); /* 9 rows: 5 to cube 0; 2, 1, 1, 1 of them */
    assert_true(box.row == 2 && box.rows == 1 && box.column == 0 && box.columns == 15);
    assert_int_equal(rt_get_shard_box(ctx, columns, 1).columns, 0);
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(installing_takes_time),
        cmocka_unit_test(removing_takes_as_long_as_unmapping),
        cmocka_unit_test(the_order_of_members_does_not_matter),
        cmocka_unit_test(installing_twice_is_an_error),
        cmocka_unit_test(kernels_have_arguments_of_their_own),
        cmocka_unit_test(works_without_queues_run_kernels_too),
        cmocka_unit_test(steps_follow_each_other),
        cmocka_unit_test(a_work_without_anything_to_do_ends_at_once),
        cmocka_unit_test(held_parts_are_waited_for),
        cmocka_unit_test(what_a_failing_step_began_ends_first),
        cmocka_unit_test(a_kernel_that_fails_ends_those_that_wait_for_it),
        cmocka_unit_test(works_can_be_aborted_at_any_time),
        cmocka_unit_test(releasing_an_aborted_work_does_nothing),
        cmocka_unit_test(contexts_can_go_with_works_under_way),
        cmocka_unit_test(reading_waits_for_works_of_the_caller),
        cmocka_unit_test(queues_are_traced_on_request),
        cmocka_unit_test(the_environment_can_ask_for_traces),
        cmocka_unit_test(settings_of_collectives_are_set_apart),
        cmocka_unit_test(a_context_like_another_takes_the_same_time),
        cmocka_unit_test(views_show_what_a_tensor_is),
        cmocka_unit_test(boxes_of_three_axes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
