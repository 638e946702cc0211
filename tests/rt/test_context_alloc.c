/*
 * test_context_alloc.c: what a context does when there is no memory.
 *
 * Law: whichever allocation fails, alone or with all that follow, every call returns success or an
 * error of KB_ERR_HOST; the context can be destroyed afterwards, and nothing is leaked. If the
 * failure was a passing one and the simulation itself was not hit, the context still works.
 */
#include "programs.h"
#include "support/failing_alloc.h"

#include <errno.h>
#include <sys/mman.h>

#include "topo/topo.h"

void *__real_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset);

static long mmap_countdown; /* 0: disarmed */

/* Stacks come from here. */
void *__wrap_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    if (mmap_countdown > 0 && --mmap_countdown == 0) {
        errno = ENOMEM;
        return MAP_FAILED;
    }
    return __real_mmap(address, length, protection, flags, fd, offset);
}

static int failures_seen;

/* Success or out of memory; false for the latter. */
static bool went_well(kb_error *err)
{
    if (!err)
        return true;
    failures_seen++;
    assert_int_equal(kb_error_code(err), KB_ERR_HOST);
    assert_true(kb_error_message(err)[0] != '\0');
    kb_error_free(err);
    return false;
}

static const char *const tiny_machine[] = {
    "system.sips.count=1", "sip.cube_mesh.w=1", "sip.cube_mesh.h=1",
    "cube.noc.w=2",        "cube.noc.h=2",      "cube.pe_layout.pe_per_corner=1",
};

static bool open_tiny(kb_context **ctx)
{
    kb_context_options options = {
        .settings = tiny_machine, .setting_count = 6, .stack_bytes = 128 << 10};
    bool fine = went_well(kb_context_create(&options, ctx));
    if (!fine)
        assert_null(*ctx);
    return fine;
}

/* Whether so many allocations are enough to load the machine. */
static bool enough_to_load(long count)
{
    topo_source source = {.settings = tiny_machine, .setting_count = 6};
    topo_machine *machine;
    failing_alloc_arm(count + 1, FAIL_ONCE);
    kb_error_free(topo_machine_load(&source, &machine));
    topo_machine_destroy(machine);
    return !failing_alloc_disarm();
}

/* What loading a machine does without memory is tested with topo; here what comes after it is. */
static void creating_a_context_fails_cleanly(void **state)
{
    (void)state;
    long few = 0, many = 1;
    while (!enough_to_load(many))
        many *= 2;
    while (many - few > 1) {
        long middle = few + (many - few) / 2;
        if (enough_to_load(middle))
            many = middle;
        else
            few = middle;
    }
    for (int mode = FAIL_ONCE; mode <= FAIL_ONWARDS; mode++) {
        bool done = false;
        for (long n = 1; !done; n += n < many - 10 ? 10 + many / 20 : 1) {
            size_t before = failing_alloc_live();
            kb_context *ctx;
            failing_alloc_arm(n, (failing_alloc_mode)mode);
            bool fine = open_tiny(&ctx);
            done = !failing_alloc_disarm();
            assert_true(fine || !done);
            kb_context_destroy(ctx);
            assert_int_equal(failing_alloc_live(), before);
        }
    }
    assert_true(failures_seen > 0);
}

/* Like failing_alloc_try_all(), but the context is made while there is memory. */
static void try_all_inside(void (*body)(kb_context *ctx))
{
    failures_seen = 0;
    for (int mode = FAIL_ONCE; mode <= FAIL_ONWARDS; mode++) {
        bool done = false;
        for (long n = 1; !done; n += stride_if_slow(5)) {
            size_t before = failing_alloc_live();
            kb_context *ctx;
            assert_true(open_tiny(&ctx));
            failing_alloc_arm(n, (failing_alloc_mode)mode);
            body(ctx);
            done = !failing_alloc_disarm();
            kb_context_destroy(ctx);
            assert_int_equal(failing_alloc_live(), before);
        }
    }
    assert_true(failures_seen > 0);
}

static const kb_pe pe0 = {0, 0, 0}, pe1 = {0, 0, 1};

/* Each kind of message; what could be submitted is waited for. */
static void submit_all(kb_context *ctx)
{
    uint64_t va;
    if (!went_well(kb_va_alloc(ctx, 4096, &va)))
        return;
    const kb_message messages[] = {
        write_to(at(KB_HBM, 0, 0, 1, 0), 5000),
        read_from(at(KB_SRAM, 0, 0, 0, 0), 5000),
        map_to(pe0, va, hbm(0, 0), 4096),
        map_to(pe1, va, hbm(0, 0), 4096),
        dma(pe0, at(KB_HBM, 0, 0, 1, 0), at(KB_TCM, 0, 0, 2, 0), 200000),
    };
    kb_request requests[5];
    bool submitted[5];
    char data[5000];
    memset(data, 1, sizeof data);
    for (int i = 0; i < 5; i++) {
        kb_message message = messages[i];
        if (i == 0)
            message.data = data;
        submitted[i] = went_well(kb_request_submit(ctx, &message, &requests[i]));
    }
    for (int i = 0; i < 5; i++) {
        if (!submitted[i])
            continue;
        (void)went_well(kb_request_wait(ctx, requests[i], NULL));
        expect_ok(kb_request_free(ctx, requests[i]));
    }
    if (submitted[2] && submitted[3]) {
        kb_message message = unmap_from(pe0, va);
        if (went_well(kb_request_submit(ctx, &message, &requests[0])))
            (void)went_well(kb_request_wait(ctx, requests[0], NULL));
    }
    (void)went_well(kb_synchronize(ctx));
}

static void requests_fail_cleanly(void **state)
{
    (void)state;
    try_all_inside(submit_all);
}

/* A fault is a fault, unless there is no memory to say so. */
static void submit_faulty(kb_context *ctx)
{
    kb_request requests[3];
    for (int i = 0; i < 3; i++) {
        kb_message message = faulty(0);
        if (!went_well(kb_request_submit(ctx, &message, &requests[i])))
            continue;
        if (i == 2) {
            expect_ok(kb_request_free(ctx, requests[i]));
            continue;
        }
        kb_error *err = kb_request_wait(ctx, requests[i], NULL);
        assert_non_null(err);
        if (kb_error_code(err) == KB_ERR_FAULT)
            kb_error_free(err);
        else
            (void)went_well(err);
    }
    kb_error *err = kb_synchronize(ctx);
    if (kb_error_code(err) == KB_ERR_FAULT)
        kb_error_free(err);
    else
        (void)went_well(err);
}

static void faults_are_told_without_memory(void **state)
{
    (void)state;
    try_all_inside(submit_faulty);
}

static void count_cleanup(void *arg)
{
    --*(int *)arg;
}

static kb_error *works(kb_context *ctx, uint32_t rank, void *arg)
{
    kb_co *co = kb_context_worker(ctx);
    kb_cleanup cleanup;
    ++*(int *)arg;
    kb_co_push_cleanup(co, &cleanup, count_cleanup, arg);
    kb_error *err = kb_ahbm_set_device(ctx, 0);
    if (!err && rank == 0)
        err = kb_distributed_init_process_group(ctx, "ahbm");
    kb_message message = write_to(hbm(0, 64 * rank), 100);
    kb_request request;
    if (!err)
        err = kb_request_submit(ctx, &message, &request);
    if (!err)
        err = kb_cooperative_yield(ctx);
    if (!err)
        err = kb_request_wait(ctx, request, NULL);
    if (!err && rank == 0)
        err = kb_distributed_barrier(ctx, NULL);
    kb_co_pop_cleanup(co, true);
    return err;
}

static void spawn_workers(kb_context *ctx)
{
    int inside_now = 0;
    (void)went_well(kb_spawn(ctx, works, &inside_now, 5));
    assert_int_equal(inside_now, 0);
    assert_int_equal(kb_sim_get_stats(kb_context_sim(ctx)).coroutines, 0);
    (void)went_well(kb_spawn(ctx, works, &inside_now, 2));
    assert_int_equal(inside_now, 0);
}

static void spawning_fails_cleanly(void **state)
{
    (void)state;
    try_all_inside(spawn_workers);
}

/* Those that have a stack by then never start. */
static void without_stacks_nobody_starts(void **state)
{
    (void)state;
    bool done = false;
    long n = 1;
    for (; !done; n++) {
        int inside_now = 0;
        kb_context *fresh; /* has no stacks yet */
        assert_true(open_tiny(&fresh));
        mmap_countdown = n;
        kb_error *err = kb_spawn(fresh, works, &inside_now, 40);
        done = mmap_countdown > 0;
        mmap_countdown = 0;
        assert_int_equal(err == NULL, done);
        (void)went_well(err);
        assert_int_equal(inside_now, 0);
        assert_int_equal(kb_context_now(fresh) > 0, done);
        expect_ok(kb_spawn(fresh, works, &inside_now, 3)); /* when there are some again */
        kb_context_destroy(fresh);
    }
    assert_true(n > 2);
}

static kb_error *fails(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)ctx;
    (void)arg;
    return kb_error_new(KB_ERR_CHECK, "reason %u", rank);
}

/* The report of failures may lose lines, or shrink to "out of memory"; but it is one. */
static void spawn_failing(kb_context *ctx)
{
    kb_error *err = kb_spawn(ctx, fails, NULL, 6);
    assert_non_null(err);
    if (kb_error_code(err) == KB_ERR_CHECK)
        kb_error_free(err);
    else
        (void)went_well(err);
}

static void failures_are_reported_without_memory(void **state)
{
    (void)state;
    try_all_inside(spawn_failing);
}

static void use_group(kb_context *ctx)
{
    if (went_well(kb_distributed_init_process_group(ctx, "ahbm"))) {
        kb_request work;
        (void)went_well(kb_distributed_barrier(ctx, NULL));
        if (went_well(kb_distributed_barrier(ctx, &(kb_collective_options){.work = &work})))
            (void)went_well(kb_request_wait(ctx, work, NULL));
        (void)went_well(kb_distributed_destroy_process_group(ctx)); /* which sends commands */
    }
    kb_location block;
    if (went_well(kb_memory_alloc(ctx, pe0, KB_HBM, 100, 64, &block)))
        expect_ok(kb_memory_free(ctx, block));
}

static void groups_fail_cleanly(void **state)
{
    (void)state;
    try_all_inside(use_group);
}

/* After a failure that passed, unless it hit the simulation, all is as it was. */
static void a_failure_that_passed_is_forgotten(void **state)
{
    (void)state;
    bool done = false;
    int forgotten = 0;
    for (long n = 1; !done; n++) {
        kb_context *ctx;
        assert_true(open_tiny(&ctx));
        failing_alloc_arm(n, FAIL_ONCE);
        kb_message message = write_to(hbm(0, 0), 100);
        kb_request request;
        bool submitted = went_well(kb_request_submit(ctx, &message, &request));
        done = !failing_alloc_disarm();
        assert_true(submitted || !done);
        bool whole = !submitted || went_well(kb_request_wait(ctx, request, NULL));
        if (whole) {
            int inside_now = 0;
            expect_ok(kb_synchronize(ctx));
            (void)carry_out(ctx, message);
            expect_ok(kb_spawn(ctx, works, &inside_now, 2));
            forgotten++;
        }
        kb_context_destroy(ctx);
    }
    assert_true(forgotten > 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(creating_a_context_fails_cleanly),
        cmocka_unit_test(requests_fail_cleanly),
        cmocka_unit_test(faults_are_told_without_memory),
        cmocka_unit_test(spawning_fails_cleanly),
        cmocka_unit_test(without_stacks_nobody_starts),
        cmocka_unit_test(failures_are_reported_without_memory),
        cmocka_unit_test(groups_fail_cleanly),
        cmocka_unit_test(a_failure_that_passed_is_forgotten),
    };
    return cmocka_run_group_tests_name("context alloc", tests, NULL, NULL);
}
