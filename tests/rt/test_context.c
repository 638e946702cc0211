/*
 * test_context.c: making contexts, having several, and leaving them: what is freed, what is
 * reported, and what happens to work that is under way.
 */
#include "as_new.h"

#include <fcntl.h>

static notes seen;

/* ---- Making ---- */

static void a_context_is_the_default_machine_unless_told(void **state)
{
    (void)state;
    kb_context *ctx;
    for (int given = 0; given < 3; given++) {
        expect_ok(kb_context_create(given == 0   ? NULL
                                    : given == 1 ? &(kb_context_options){0}
                                                 : &(kb_context_options){.topology = "default"},
                                    &ctx));
        kb_machine m = kb_context_machine(ctx);
        assert_string_equal(m.name, "default");
        assert_int_equal(m.sips, 2);
        assert_int_equal(m.cubes, 16);
        assert_int_equal(m.cube_w * m.cube_h, 16);
        assert_int_equal(m.pes, 8);
        assert_int_equal(m.hbm_bytes, (uint64_t)6 << 30);
        assert_int_equal(m.tcm_bytes, 12 << 20); /* 16 MiB, of which the scheduler keeps 4 */
        assert_int_equal(m.sram_bytes, 32 << 20);
        assert_int_equal(kb_context_now(ctx), 0);
        assert_false(kb_context_is_timing_only(ctx));
        assert_null(kb_context_worker(ctx));
        assert_int_equal(kb_sim_now(kb_context_sim(ctx)), 0);
        kb_context_destroy(ctx);
    }
}

static void settings_override_the_file(void **state)
{
    (void)state;
    temporary file = file_of("name: mine\nsystem: { sips: { count: 3 } }\n"
                             "sip: { cube_mesh: { w: 3, h: 1 } }\n");
    static const char *const settings[] = {"sip.cube_mesh.w=2", "cube.sram.capacity_mib=1"};
    kb_context *ctx = open_small(
        &(kb_context_options){.topology = file.path, .settings = settings, .setting_count = 2});
    kb_machine m = kb_context_machine(ctx);
    assert_string_equal(m.name, "mine");
    assert_int_equal(m.sips, 3);
    assert_int_equal(m.cube_w, 2);
    assert_int_equal(m.cube_h, 1);
    assert_int_equal(m.sram_bytes, 1 << 20);
    kb_context_destroy(ctx);
    remove_file(&file);
}

static void refuse_context(const kb_context_options *options, kb_code code, const char *text)
{
    kb_context *ctx = (kb_context *)(uintptr_t)1;
    expect_error_about(kb_context_create(options, &ctx), code, text);
    assert_null(ctx);
}

static void what_is_wrong_with_the_machine_is_said(void **state)
{
    (void)state;
    refuse_context(&(kb_context_options){.topology = "/no/such/file.yaml"}, KB_ERR_INPUT,
                   "/no/such/file.yaml");
    temporary file = file_of("system: { sips: { count: 0 } }\n");
    refuse_context(&(kb_context_options){.topology = file.path}, KB_ERR_INPUT, file.path);
    remove_file(&file);
    file = file_of("system: [\n");
    refuse_context(&(kb_context_options){.topology = file.path}, KB_ERR_INPUT, file.path);
    remove_file(&file);
    static const char *const settings[] = {"cube.noc.w=many", "cube.nok.w=4", "nonsense", ""};
    for (int i = 0; i < 4; i++)
        refuse_context(&(kb_context_options){.settings = &settings[i], .setting_count = 1},
                       KB_ERR_INPUT, i < 3 ? settings[i][0] == 'c' ? "cube." : "nonsense" : "");
    refuse_context(&(kb_context_options){.device = "sip:2"}, KB_ERR_INPUT, "sip:2");
}

static void stacks_have_limits(void **state)
{
    (void)state;
    refuse_context(&(kb_context_options){.stack_bytes = 1000}, KB_ERR_INPUT,
                   "invalid stack size of 1000 bytes: expected 16384 to 1073741824");
    refuse_context(&(kb_context_options){.stack_bytes = (size_t)2 << 30}, KB_ERR_INPUT, "expected");
    kb_context_destroy(open_small(&(kb_context_options){.stack_bytes = 16384}));
    kb_context_destroy(open_small(&(kb_context_options){.stack_bytes = 1 << 30}));
    kb_context_destroy(NULL);
}

/* These are about the input, so they need no debug mode. */
static void settings_that_change_nothing_are_warned_of(void **state)
{
    (void)state;
    static const char *const settings[] = {"system.sips.count=2", "cube.noc.w=4"};
    kb_context *ctx = open_small(&(kb_context_options){.settings = settings,
                                                       .setting_count = 2,
                                                       .on_warning = note_warning,
                                                       .on_warning_self = &seen});
    expect_notes(&seen,
                 "--set system.sips.count=2 has no effect: the machine already has this value\n"
                 "--set cube.noc.w=4 has no effect: the machine already has this value\n");
    kb_context_destroy(ctx);
}

/* ---- Several ---- */

/* A little of everything, in steps between which other contexts can have theirs. */
typedef struct program {
    kb_context *ctx;
    uint32_t seed;
    kb_tensor x;
    kb_request request;
    kb_time ended[8];
} program;

static void take_step(program *p, int step)
{
    kb_context *ctx = p->ctx;
    kb_tensor_spec spec = bytes_spec("x", 1000 + p->seed);
    unsigned char back[2000];
    probe durations;
    switch (step) {
    case 0:
        expect_ok(kb_ahbm_set_device(ctx, p->seed % SIPS));
        expect_ok(kb_full(ctx, &spec, p->seed, &p->x));
        break;
    case 1:
        p->request = submit(
            ctx, dma((kb_pe){p->seed % SIPS, 1, 0}, hbm(0, 1 << 28), hbm(1, 1 << 28), 100000));
        break;
    case 2:
        expect_ok(kb_tensor_to_host(ctx, p->x, KB_TIMED, back, 1000 + p->seed));
        assert_int_equal(back[p->seed], p->seed);
        break;
    case 3:
        for (int i = 0; i < 5; i++)
            expect_ok(kb_cooperative_yield(ctx));
        break;
    case 4:
        expect_ok(kb_spawn(ctx, probe_worker, &durations, SIPS));
        break;
    case 5:
        expect_error_about(kb_request_wait(ctx, submit(ctx, faulty(0)), NULL), KB_ERR_FAULT,
                           "0xdead0000");
        break;
    case 6:
        (void)wait_for(ctx, p->request);
        expect_ok(kb_tensor_free(ctx, p->x));
        break;
    default:
        expect_ok(kb_synchronize(ctx));
    }
    p->ended[step] = kb_context_now(ctx);
}

enum { STEPS = 8, PROGRAMS = 6 };

static void run_alone(program *p, const kb_context_options *options)
{
    p->ctx = open_small(options);
    for (int step = 0; step < STEPS; step++)
        take_step(p, step);
    kb_context_destroy(p->ctx);
}

static void contexts_side_by_side_do_not_know_of_each_other(void **state)
{
    (void)state;
    program together[PROGRAMS], alone;
    for (uint32_t i = 0; i < PROGRAMS; i++)
        together[i] = (program){.ctx = open_small(NULL), .seed = i * 7};
    /* Each in another place of its program, in an order that changes. */
    for (int round = 0; round < STEPS + PROGRAMS; round++)
        for (int i = 0; i < PROGRAMS; i++) {
            int which = (i * 5 + round) % PROGRAMS, step = round - which;
            if (step >= 0 && step < STEPS)
                take_step(&together[which], step);
        }
    for (int i = PROGRAMS - 1; i >= 0; i--)
        kb_context_destroy(together[i].ctx);
    for (uint32_t i = 0; i < PROGRAMS; i++) {
        alone = (program){.seed = i * 7};
        run_alone(&alone, NULL);
        assert_memory_equal(alone.ended, together[i].ended, sizeof alone.ended);
        assert_true(alone.ended[STEPS - 1] > 0);
    }
}

/* Handles mean something in their context alone. */
static void a_handle_of_another_context_is_none(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL), *other = open_small(NULL);
    kb_tensor x;
    kb_shape shape;
    kb_tensor_spec spec = bytes_spec("x", 8);
    expect_ok(kb_empty(ctx, &spec, &x));
    kb_request request = submit(ctx, write_to(hbm(0, 0), 1));
    bool done;
    expect_error_about(kb_request_test(other, request, &done), KB_ERR_FAULT, "another context");
    expect_error_about(kb_tensor_shape(other, x, &shape), KB_ERR_FAULT, "another context");
    kb_context_destroy(other);
    (void)wait_for(ctx, request);
    kb_context_destroy(ctx);
}

static void times_are_the_same_without_elision(void **state)
{
    (void)state;
    for (uint32_t seed = 0; seed < 5; seed++) {
        program quick = {.seed = seed}, plain = {.seed = seed};
        run_alone(&quick, NULL);
        run_alone(&plain, &(kb_context_options){.no_elision = true});
        assert_memory_equal(quick.ended, plain.ended, sizeof quick.ended);
    }
}

static void times_are_the_same_in_debug_mode(void **state)
{
    (void)state;
    program quiet = {.seed = 3}, loud = {.seed = 3};
    run_alone(&quiet, NULL);
    run_alone(&loud, &(kb_context_options){
                         .debug = true, .on_warning = note_warning, .on_warning_self = &seen});
    assert_memory_equal(quiet.ended, loud.ended, sizeof quiet.ended);
    seen = (notes){0};
}

/* ---- Leaks ---- */

static void leave_things(const kb_context_options *options)
{
    kb_context_options chosen = *options;
    chosen.on_warning = note_warning;
    chosen.on_warning_self = &seen;
    kb_context *ctx = open_small(&chosen);
    kb_tensor x;
    kb_tensor_spec spec = {.name = "weights", .dtype = KB_F16, .shape = KB_SHAPE(4, 8)};
    kb_location block;
    uint64_t va;
    expect_ok(kb_zeros(ctx, &spec, &x));
    spec.name = "freed";
    expect_ok(kb_zeros(ctx, &spec, &x));
    expect_ok(kb_tensor_free(ctx, x));
    spec.name = NULL;
    expect_ok(kb_empty(ctx, &spec, &x));
    spec.name = "a\nb";
    expect_ok(kb_from_host(ctx, &spec, (char[64]){0}, 64, &x));
    expect_ok(kb_memory_alloc(ctx, (kb_pe){1, 1, 2}, KB_TCM, 100, 64, &block));
    expect_ok(kb_memory_alloc(ctx, (kb_pe){1, 1, 2}, KB_SRAM, 100, 64, &block));
    expect_ok(kb_memory_free(ctx, block));
    expect_ok(kb_va_alloc(ctx, 100, &va));
    expect_ok(kb_synchronize(ctx));
    (void)submit(ctx, faulty(0));
    for (int i = 0; i < 100000 && kb_sim_get_stats(kb_context_sim(ctx)).pending > 0; i++)
        expect_ok(kb_cooperative_yield(ctx));
    kb_context_destroy(ctx);
}

static const char leaks[] =
    "context destroyed: tensor 'weights' (4, 8) f16 on sip0 was not freed\n"
    "context destroyed: tensor 'tensor3' (4, 8) f16 on sip0 was not freed\n"
    "context destroyed: tensor 'a\\n"
    "b' (4, 8) f16 was not freed\n"
    "context destroyed: memory at sip1.cube1.pe2.tcm+0x0 was not freed\n"
    "context destroyed: memory at virtual+0x100006000 was not freed\n"
    "context destroyed: 1 request handle was not freed\n"
    "context destroyed: a failed request was never waited for: PE DMA on sip0.cube0.pe0: ";

/* The order of tensors is that of their places. */
static void expect_leaks(void)
{
    seen.text[strlen(leaks)] = '\0'; /* what is near the address is not the matter here */
    char *line = strtok(seen.text, "\n");
    size_t lines = 0;
    for (; line; line = strtok(NULL, "\n"), lines++)
        if (!strstr(leaks, line))
            fail_msg("unexpected: %s", line);
    assert_int_equal(lines, 7);
    seen = (notes){0};
}

static void debug_mode_reports_what_was_not_freed(void **state)
{
    (void)state;
    leave_things(&(kb_context_options){.debug = true});
    expect_leaks();
}

static void debug_mode_can_be_had_by_the_environment(void **state)
{
    (void)state;
    assert_int_equal(setenv("KERNBENCH_DEBUG", "1", 1), 0);
    leave_things(&(kb_context_options){0});
    expect_leaks();
    static const char *const off[] = {"0", "", "2", "yes"};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(setenv("KERNBENCH_DEBUG", off[i], 1), 0);
        leave_things(&(kb_context_options){0});
        expect_notes(&seen, "");
    }
    assert_int_equal(unsetenv("KERNBENCH_DEBUG"), 0);
    leave_things(&(kb_context_options){0});
    expect_notes(&seen, "");
}

static void debug_mode_says_nothing_if_all_was_freed(void **state)
{
    (void)state;
    kb_context *ctx = open_small(
        &(kb_context_options){.debug = true, .on_warning = note_warning, .on_warning_self = &seen});
    kb_tensor x;
    kb_tensor_spec spec = bytes_spec("x", 100);
    expect_ok(kb_zeros(ctx, &spec, &x));
    expect_ok(kb_tensor_free(ctx, x)); /* that the unmapping is under way is no leak */
    (void)carry_out(ctx, write_to(hbm(0, 0), 1));
    kb_context_destroy(ctx);
    expect_notes(&seen, "");
}

/* Without a function for them warnings go to stderr. */
static void warnings_go_to_stderr(void **state)
{
    (void)state;
    temporary file = file_of("");
    int fd = open(file.path, O_RDWR), saved = dup(STDERR_FILENO);
    assert_true(fd >= 0 && saved >= 0 && dup2(fd, STDERR_FILENO) >= 0);
    kb_context *ctx = open_small(&(kb_context_options){.debug = true});
    kb_tensor x;
    kb_tensor_spec spec = bytes_spec("left", 100);
    kb_error *err = kb_zeros(ctx, &spec, &x);
    kb_context_destroy(ctx);
    fflush(stderr);
    dup2(saved, STDERR_FILENO);
    close(saved);
    expect_ok(err);
    char text[200] = "";
    assert_true(pread(fd, text, sizeof text - 1, 0) > 0);
    close(fd);
    remove_file(&file);
    assert_string_equal(
        text,
        "kernbench: warning: context destroyed: tensor 'left' (100,) i8 on sip0 was not freed\n");
}

/* ---- Leaving in the middle ---- */

/* At every instant of a program with requests of all kinds. */
static void a_context_can_be_left_at_any_time(void **state)
{
    (void)state;
    bool over = false;
    uint64_t stride = RUNNING_ON_VALGRIND ? 97 : 7;
    for (uint64_t steps = 0; !over; steps += stride) {
        kb_context *ctx = open_small(NULL);
        kb_tensor x, y;
        uint64_t va;
        kb_tensor_spec spec = bytes_spec("x", 20000);
        expect_ok(kb_full(ctx, &spec, 1, &x));
        expect_ok(kb_ahbm_set_device(ctx, 1));
        expect_ok(kb_empty(ctx, &spec, &y));
        expect_ok(kb_va_alloc(ctx, 4096, &va));
        (void)submit(ctx, map_to((kb_pe){2, 0, 0}, va, hbm(0, 0), 4096));
        (void)submit(ctx, write_to(hbm(3, 0), 3000));
        (void)submit(ctx, read_from(hbm(3, 0), 3000));
        (void)submit(ctx, dma((kb_pe){3, 1, 1}, hbm(0, 0), hbm(3, 0), 5000));
        (void)submit(ctx, unmap_from((kb_pe){2, 0, 0}, va));
        (void)submit(ctx, faulty(3));
        expect_ok(kb_tensor_free(ctx, y)); /* while it is still being mapped */
        kb_sim *sim = kb_context_sim(ctx);
        for (uint64_t i = 0; i < steps && !over; i++) {
            expect_ok(kb_cooperative_yield(ctx));
            over = kb_sim_get_stats(sim).pending == 0;
        }
        kb_context_destroy(ctx);
    }
}

typedef struct guest {
    kb_context *ctx;
    kb_tensor tensor;
    kb_request request;
} guest;

static void tidy_up(void *arg)
{
    guest *g = arg;
    note(&seen, "tidied up ");
    expect_ok(kb_tensor_free(g->ctx, g->tensor));
    expect_ok(kb_request_free(g->ctx, submit(g->ctx, write_to(hbm(0, 0), 1))));
    expect_error(kb_request_wait(g->ctx, g->request, NULL), KB_ERR_FAULT,
                 "guest is being stopped and cannot wait");
    expect_ok(kb_request_free(g->ctx, g->request));
}

static void visits(kb_co *co, void *arg)
{
    guest *g = arg;
    kb_cleanup cleanup;
    kb_co_push_cleanup(co, &cleanup, tidy_up, g);
    kb_error *err = kb_request_wait(g->ctx, g->request, NULL);
    note(&seen, "was served ");
    expect_ok(err);
    kb_co_pop_cleanup(co, false);
}

/* A coroutine that is no worker counts as the driver, and may wait. */
static void coroutines_of_ones_own_may_wait_and_are_unwound(void **state)
{
    (void)state;
    for (int leave = 0; leave < 2; leave++) {
        kb_context *ctx = open_small(NULL);
        guest g = {.ctx = ctx};
        kb_tensor_spec spec = bytes_spec("x", 100);
        expect_ok(kb_zeros(ctx, &spec, &g.tensor));
        g.request = submit(ctx, read_from(hbm(2, 0), 100000));
        kb_co_options options = {.name = "guest", .source_id = 5};
        expect_ok(kb_co_spawn(kb_context_sim(ctx), &options, visits, &g, NULL));
        expect_ok(kb_cooperative_yield(ctx)); /* it starts */
        while (!leave && seen.length == 0)
            expect_ok(kb_cooperative_yield(ctx));
        kb_context_destroy(ctx);
        expect_notes(&seen, leave ? "tidied up " : "was served ");
    }
}

static kb_error *destroys_it(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)rank;
    (void)arg;
    kb_context_destroy(ctx);
    return NULL;
}

static void destroy_inside(void)
{
    kb_context *ctx = open_small(NULL);
    kb_error_free(kb_spawn(ctx, destroys_it, NULL, 1));
}

static void a_worker_must_not_destroy_its_context(void **state)
{
    (void)state;
    expect_abort(destroy_inside, "context.c");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_context_is_the_default_machine_unless_told),
        cmocka_unit_test(settings_override_the_file),
        cmocka_unit_test(what_is_wrong_with_the_machine_is_said),
        cmocka_unit_test(stacks_have_limits),
        cmocka_unit_test(settings_that_change_nothing_are_warned_of),
        cmocka_unit_test(contexts_side_by_side_do_not_know_of_each_other),
        cmocka_unit_test(a_handle_of_another_context_is_none),
        cmocka_unit_test(times_are_the_same_without_elision),
        cmocka_unit_test(times_are_the_same_in_debug_mode),
        cmocka_unit_test(debug_mode_reports_what_was_not_freed),
        cmocka_unit_test(debug_mode_can_be_had_by_the_environment),
        cmocka_unit_test(debug_mode_says_nothing_if_all_was_freed),
        cmocka_unit_test(warnings_go_to_stderr),
        cmocka_unit_test(a_context_can_be_left_at_any_time),
        cmocka_unit_test(coroutines_of_ones_own_may_wait_and_are_unwound),
        cmocka_unit_test(a_worker_must_not_destroy_its_context),
    };
    return cmocka_run_group_tests_name("context", tests, NULL, NULL);
}
