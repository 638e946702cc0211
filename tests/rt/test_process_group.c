/*
 * test_process_group.c: the process group: who is in it, and barriers, which are matched by their
 * order.
 */
#include "as_new.h"

static notes seen;

/* ---- Before and after ---- */

static void expect_no_group(kb_context *ctx)
{
    uint32_t number = 77;
    const char *backend = "none";
    kb_request work = {77};
    assert_false(kb_distributed_is_initialized(ctx));
    expect_error(kb_distributed_get_rank(ctx, &number), KB_ERR_INPUT,
                 "kb_distributed_get_rank: call kb_distributed_init_process_group() first");
    expect_error(kb_distributed_get_world_size(ctx, &number), KB_ERR_INPUT,
                 "kb_distributed_get_world_size: call kb_distributed_init_process_group() first");
    expect_error(kb_distributed_get_backend(ctx, &backend), KB_ERR_INPUT,
                 "kb_distributed_get_backend: call kb_distributed_init_process_group() first");
    expect_error(kb_distributed_barrier(ctx, NULL), KB_ERR_INPUT,
                 "kb_distributed_barrier: call kb_distributed_init_process_group() first");
    expect_error_about(kb_distributed_barrier(ctx, &(kb_collective_options){.work = &work}),
                       KB_ERR_INPUT, "call kb_distributed_init_process_group() first");
    expect_error(kb_distributed_destroy_process_group(ctx), KB_ERR_INPUT,
                 "kb_distributed_destroy_process_group: call kb_distributed_init_process_group() "
                 "first");
    assert_int_equal(number, 77);
    assert_string_equal(backend, "none");
    assert_int_equal(work.id, 0);
}

static void expect_group(kb_context *ctx, uint32_t rank, uint32_t size)
{
    uint32_t number;
    const char *backend;
    assert_true(kb_distributed_is_initialized(ctx));
    expect_ok(kb_distributed_get_rank(ctx, &number));
    assert_int_equal(number, rank);
    expect_ok(kb_distributed_get_world_size(ctx, &number));
    assert_int_equal(number, size);
    expect_ok(kb_distributed_get_backend(ctx, &backend));
    assert_string_equal(backend, "ahbm");
}

static void before_there_is_a_group_all_is_an_error(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    expect_no_group(ctx);
    expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
    expect_group(ctx, 0, SIPS);
    expect_ok(kb_distributed_destroy_process_group(ctx));
    expect_no_group(ctx);
    kb_context_destroy(ctx);
}

static void unknown_backends_are_refused(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    expect_error(kb_distributed_init_process_group(ctx, "nccl"), KB_ERR_INPUT,
                 "kb_distributed_init_process_group: unknown backend 'nccl': use 'ahbm'");
    expect_error_about(kb_distributed_init_process_group(ctx, ""), KB_ERR_INPUT,
                       "unknown backend ''");
    expect_error_about(kb_distributed_init_process_group(ctx, NULL), KB_ERR_INPUT,
                       "unknown backend ''");
    expect_error_about(kb_distributed_init_process_group(ctx, "AHBM"), KB_ERR_INPUT, "'AHBM'");
    expect_error_about(kb_distributed_init_process_group(ctx, "ahbm "), KB_ERR_INPUT, "'ahbm '");
    expect_no_group(ctx);
    kb_context_destroy(ctx);
}

static void initialising_twice_is_an_error(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
    expect_error(kb_distributed_init_process_group(ctx, "ahbm"), KB_ERR_INPUT,
                 "kb_distributed_init_process_group: already initialised");
    expect_group(ctx, 0, SIPS);
    kb_context_destroy(ctx);
}

static void the_world_is_as_large_as_the_machine(void **state)
{
    (void)state;
    kb_context *ctx = open_small(&(kb_context_options){.topology = "default"});
    expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
    expect_group(ctx, 0, kb_context_machine(ctx).sips);
    kb_context_destroy(ctx);
    ctx = open_small(&(kb_context_options){.device = "sip:3"});
    expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
    expect_group(ctx, 0, 1);
    kb_context_destroy(ctx);
}

/* ---- Ranks ---- */

static kb_error *initialises_for_itself(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    expect_no_group(ctx); /* whatever others have done */
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    expect_group(ctx, rank, SIPS);
    expect_error(kb_distributed_init_process_group(ctx, "ahbm"), KB_ERR_INPUT,
                 "kb_distributed_init_process_group: already initialised");
    KB_TRY(kb_cooperative_yield(ctx));
    expect_group(ctx, rank, SIPS);
    KB_TRY(kb_distributed_barrier(ctx, NULL));
    if (rank % 2 == 0) /* or leaves it to the end */
        KB_TRY(kb_distributed_destroy_process_group(ctx));
    if (rank % 2 == 0)
        expect_no_group(ctx);
    return NULL;
}

static void workers_initialise_the_group_for_themselves(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    for (int i = 0; i < 3; i++) {
        expect_ok(kb_spawn(ctx, initialises_for_itself, NULL, SIPS));
        expect_no_group(ctx); /* it was theirs */
    }
    kb_context_destroy(ctx);
}

static kb_error *finds_a_group(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    expect_group(ctx, rank, SIPS);
    expect_error(kb_distributed_init_process_group(ctx, "ahbm"), KB_ERR_INPUT,
                 "kb_distributed_init_process_group: already initialised");
    return kb_distributed_barrier(ctx, NULL);
}

static void the_driver_initialises_the_group_for_all(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
    for (int i = 0; i < 3; i++) {
        expect_ok(kb_spawn(ctx, finds_a_group, NULL, SIPS));
        expect_group(ctx, 0, SIPS);
        expect_ok(kb_distributed_barrier(ctx, NULL));
    }
    expect_ok(kb_distributed_destroy_process_group(ctx));
    kb_context_destroy(ctx);
}

static void expect_no_device(kb_error *err, const char *function, uint32_t rank)
{
    char message[128];
    snprintf(message, sizeof message, "%s: rank %u has no device: the world size is 4", function,
             rank);
    expect_error(err, KB_ERR_INPUT, message);
}

/* There is a group, but it has no such rank. */
static void expect_no_rank(kb_context *ctx, uint32_t rank)
{
    uint32_t number;
    assert_false(kb_distributed_is_initialized(ctx));
    expect_no_device(kb_distributed_get_rank(ctx, &number), "kb_distributed_get_rank", rank);
    expect_no_device(kb_distributed_barrier(ctx, NULL), "kb_distributed_barrier", rank);
}

static kb_error *some_have_no_device(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    kb_error *err = kb_distributed_init_process_group(ctx, "ahbm");
    if (rank < SIPS) {
        expect_ok(err);
        return kb_distributed_barrier(ctx, NULL); /* the others are not missed */
    }
    expect_no_device(err, "kb_distributed_init_process_group", rank);
    expect_no_rank(ctx, rank);
    return NULL;
}

static void ranks_beyond_the_world_have_no_part_in_it(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    expect_ok(kb_spawn(ctx, some_have_no_device, NULL, SIPS + 3));
    kb_context_destroy(ctx);
}

static kb_error *belongs_if_there_is_a_device(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    if (rank < SIPS)
        expect_group(ctx, rank, SIPS);
    else
        expect_no_rank(ctx, rank);
    return NULL;
}

static void ranks_beyond_the_world_are_not_in_the_drivers_group(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
    expect_ok(kb_spawn(ctx, belongs_if_there_is_a_device, NULL, SIPS + 2));
    kb_context_destroy(ctx);
}

static kb_error *asks_for_its_rank(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    expect_group(ctx, rank, SIPS);
    return NULL;
}

static void outside_workers_the_rank_is_0_with_a_warning(void **state)
{
    (void)state;
    for (int debug = 0; debug < 2; debug++) {
        kb_context *ctx = open_small(&(kb_context_options){
            .debug = debug, .on_warning = note_warning, .on_warning_self = &seen});
        expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
        expect_ok(kb_spawn(ctx, asks_for_its_rank, NULL, SIPS)); /* those are not warned */
        expect_notes(&seen, "");
        expect_group(ctx, 0, SIPS);
        expect_notes(&seen,
                     debug ? "kb_distributed_get_rank: outside workers the rank is 0\n" : "");
        kb_context_destroy(ctx);
    }
}

/* ---- Barriers ---- */

static kb_error *meets_at_barriers(kb_context *ctx, uint32_t rank, void *arg)
{
    kb_time(*left)[SIPS] = arg;
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    for (uint32_t i = 0; i < 5; i++) {
        kb_co_sleep(kb_context_worker(ctx), (rank * 3 + i * 5) % 7 * KB_NS);
        note(&seen, "%u ", rank);
        KB_TRY(kb_distributed_barrier(ctx, NULL));
        left[i][rank] = kb_context_now(ctx);
    }
    return NULL;
}

/* In round i rank r sleeps (3 r + 5 i) mod 7 ns; the slowest ones sleep 6, 5, 6, 4 and 6. */
static void a_barrier_is_left_when_the_last_one_has_come(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_time left[5][SIPS];
    expect_ok(kb_spawn(ctx, meets_at_barriers, left, SIPS));
    static const kb_time ends[5] = {6, 6 + 5, 11 + 6, 17 + 4, 21 + 6};
    for (int i = 0; i < 5; i++)
        for (int rank = 0; rank < SIPS; rank++)
            assert_int_equal(left[i][rank], ends[i] * KB_NS);
    expect_notes(&seen, "0 3 1 2 3 1 2 0 2 0 3 1 2 0 3 1 3 1 2 0 ");
    kb_context_destroy(ctx);
}

/* Rank r has (r + 1) * 3 barriers open before it waits for any of them. */
static kb_error *runs_ahead(kb_context *ctx, uint32_t rank, void *arg)
{
    kb_completion *completions = arg;
    enum { barriers = 12 };
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    kb_request works[barriers];
    uint32_t ahead = (rank + 1) * 3;
    for (uint32_t i = 0; i < barriers; i++) {
        if (i >= ahead)
            KB_TRY(kb_request_wait(ctx, works[i - ahead], NULL));
        kb_co_sleep(kb_context_worker(ctx), (rank + 1) * KB_NS);
        KB_TRY(kb_distributed_barrier(ctx, &(kb_collective_options){.work = &works[i]}));
    }
    for (uint32_t i = 0; i < barriers; i++) {
        completions[rank * barriers + i] = wait_for(ctx, works[i]);
        KB_TRY(kb_request_free(ctx, works[i]));
    }
    return NULL;
}

static void barriers_are_matched_by_their_order(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    enum { barriers = 12 };
    kb_completion c[SIPS * barriers];
    expect_ok(kb_spawn(ctx, runs_ahead, c, SIPS));
    for (uint32_t i = 0; i < barriers; i++) {
        kb_time last = 0;
        for (uint32_t rank = 0; rank < SIPS; rank++) {
            const kb_completion *own = &c[rank * barriers + i];
            last = own->issued > last ? own->issued : last;
        }
        for (uint32_t rank = 0; rank < SIPS; rank++) {
            const kb_completion *own = &c[rank * barriers + i];
            assert_int_equal(own->ended, last); /* when the last rank has joined this one */
            assert_int_equal(own->queueing, own->ended - own->issued);
            assert_int_equal(own->overhead + own->wire + own->drain, 0);
            assert_int_equal(own->bytes, 0);
        }
    }
    kb_context_destroy(ctx);
}

/* Rank 0 waits for its second barrier first. */
static kb_error *waits_in_any_order(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    kb_request first, second;
    KB_TRY(kb_distributed_barrier(ctx, &(kb_collective_options){.work = &first}));
    KB_TRY(kb_distributed_barrier(ctx, &(kb_collective_options){.work = &second}));
    KB_TRY(kb_request_wait(ctx, rank == 0 ? second : first, NULL));
    assert_true(is_done(ctx, first));
    KB_TRY(kb_request_wait(ctx, rank == 0 ? first : second, NULL));
    KB_TRY(kb_request_free(ctx, first));
    return kb_request_free(ctx, second);
}

static void open_barriers_may_be_waited_for_in_any_order(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    expect_ok(kb_spawn(ctx, waits_in_any_order, NULL, SIPS));
    kb_context_destroy(ctx);
}

static kb_error *joins_and_leaves(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    kb_request work;
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    kb_co_sleep(kb_context_worker(ctx), rank * KB_US);
    KB_TRY(kb_distributed_barrier(ctx, &(kb_collective_options){.work = &work}));
    return rank % 2 ? kb_request_free(ctx, work) : NULL; /* nobody waits */
}

static void a_barrier_that_nobody_waits_for_is_no_failure(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    expect_ok(kb_spawn(ctx, joins_and_leaves, NULL, SIPS));
    assert_int_equal(kb_context_now(ctx), (SIPS - 1) * KB_US);
    expect_as_new(ctx);
    kb_context_destroy(ctx);
}

static void outside_workers_a_barrier_is_over_at_once(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
    for (int i = 0; i < 10; i++) {
        kb_request work;
        expect_ok(kb_distributed_barrier(ctx, NULL));
        expect_ok(kb_distributed_barrier(ctx, &(kb_collective_options){.work = &work}));
        assert_true(is_done(ctx, work));
        kb_completion completion = wait_for(ctx, work);
        assert_int_equal(completion.ended, completion.issued);
        expect_ok(kb_request_free(ctx, work));
    }
    assert_int_equal(kb_context_now(ctx), 0);
    kb_context_destroy(ctx);
}

/* The barrier waits for the caller's own work and for ranks; without waiting, for ranks alone. */
static kb_error *has_a_transfer_under_way(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    kb_request request = submit(ctx, write_to(hbm(rank, 0), 100000));
    kb_request work;
    KB_TRY(kb_distributed_barrier(ctx, &(kb_collective_options){.work = &work}));
    KB_TRY(kb_request_wait(ctx, work, NULL));
    KB_TRY(kb_request_free(ctx, work));
    assert_false(is_done(ctx, request));
    assert_int_equal(kb_context_now(ctx), 0);
    KB_TRY(kb_distributed_barrier(ctx, NULL));
    assert_true(is_done(ctx, request));
    return kb_request_free(ctx, request);
}

static void a_barrier_waits_for_the_callers_own_transfers(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    expect_ok(kb_spawn(ctx, has_a_transfer_under_way, NULL, SIPS));
    kb_context_destroy(ctx);
}

/* ---- Those who do not come ---- */

typedef enum absence {
    ENDS_WITHOUT_INIT,
    ENDS_AT_ONCE,
    ENDS_AFTER_SOME_TIME,
    ENDS_AFTER_ONE, /* having joined the first of two */
    ENDS_WITH_WORK, /* which takes long */
    EXITS,          /* by kb_co_exit() */
} absence;

typedef struct absentee {
    absence how;
    uint32_t rank;
    bool late;    /* others come to the barrier when it is gone */
    bool founded; /* by the driver */
    kb_time failed_at;
} absentee;

static kb_error *stays_away(kb_context *ctx, const absentee *a)
{
    if (a->how == ENDS_WITHOUT_INIT)
        return NULL;
    if (!a->founded)
        KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    if (a->how == ENDS_AFTER_ONE)
        KB_TRY(kb_distributed_barrier(ctx, NULL));
    if (a->how == ENDS_AFTER_SOME_TIME)
        kb_co_sleep(kb_context_worker(ctx), KB_US);
    if (a->how == ENDS_WITH_WORK)
        (void)submit(ctx, read_from(hbm(0, 0), 100000));
    if (a->how == EXITS)
        kb_co_exit(kb_context_worker(ctx));
    return NULL;
}

static kb_error *comes_to_the_barrier(kb_context *ctx, uint32_t rank, void *arg)
{
    absentee *a = arg;
    if (rank == a->rank)
        return stays_away(ctx, a);
    if (a->late && a->how != ENDS_AFTER_ONE)
        kb_co_sleep(kb_context_worker(ctx), KB_MS);
    if (!a->founded)
        KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    if (a->how == ENDS_AFTER_ONE)
        KB_TRY(kb_distributed_barrier(ctx, NULL));
    kb_error *err = kb_distributed_barrier(ctx, NULL);
    a->failed_at = kb_context_now(ctx);
    assert_non_null(err);
    return err;
}

/* Those who wait are told at once: who is missing, in which barrier, and who is there. */
static void one_that_ends_without_joining_is_named(void **state)
{
    (void)state;
    for (uint32_t variant = 0; variant < 24; variant += stride_if_slow(5)) {
        for (uint32_t missing = 0; missing < SIPS; missing += stride_if_slow(3)) {
            kb_context *ctx = open_small(NULL);
            absentee a = {(absence)(variant % 6), missing, variant / 6 % 2, variant / 12, 0};
            if (a.founded)
                expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
            char text[96];
            snprintf(text, sizeof text,
                     "collective %d, barrier: rank %u ended without joining it; in it: rank",
                     a.how == ENDS_AFTER_ONE ? 2 : 1, missing);
            kb_error *err = kb_spawn(ctx, comes_to_the_barrier, &a, SIPS);
            assert_int_equal(kb_error_code(err), KB_ERR_FAULT);
            assert_non_null(strstr(kb_error_message(err), text));
            snprintf(text, sizeof text, "1 of 4 workers failed: rank %u: collective", missing == 0);
            expect_error_about(err, KB_ERR_FAULT, text);
            kb_time when = a.late && a.how != ENDS_AFTER_ONE ? KB_MS
                           : a.how == ENDS_AFTER_SOME_TIME   ? KB_US
                                                             : 0;
            assert_int_equal(a.failed_at, when);
            if (a.founded)
                expect_ok(kb_distributed_destroy_process_group(ctx));
            expect_as_new(ctx);
            kb_context_destroy(ctx);
        }
    }
}

static void the_message_says_who_waits(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    absentee a = {ENDS_AFTER_SOME_TIME, 1, false, false, 0};
    expect_error(kb_spawn(ctx, comes_to_the_barrier, &a, SIPS), KB_ERR_FAULT,
                 "1 of 4 workers failed: rank 0: collective 1, barrier: rank 1 ended without "
                 "joining it; in it: rank 0, 2, 3");
    kb_context_destroy(ctx);
}

static kb_error *is_one_of_too_few(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)rank;
    (void)arg;
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    return kb_distributed_barrier(ctx, NULL);
}

static void with_fewer_workers_than_ranks_a_barrier_fails(void **state)
{
    (void)state;
    for (uint32_t workers = 1; workers < SIPS; workers++) {
        kb_context *ctx = open_small(NULL);
        char text[80];
        snprintf(text, sizeof text,
                 "rank 0: collective 1, barrier: rank %u has no worker; in it: rank 0", workers);
        expect_error_about(kb_spawn(ctx, is_one_of_too_few, NULL, workers), KB_ERR_FAULT, text);
        assert_int_equal(kb_context_now(ctx), 0);
        expect_as_new(ctx);
        kb_context_destroy(ctx);
    }
}

/* One may be told that a barrier failed, and go on. */
static kb_error *survives(kb_context *ctx, uint32_t rank, void *arg)
{
    uint32_t *survivors = arg;
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    if (rank == 2)
        return NULL;
    for (int i = 0; i < 3; i++)
        expect_error_about(kb_distributed_barrier(ctx, NULL), KB_ERR_FAULT, "rank 2 ended without");
    kb_request work;
    expect_ok(kb_distributed_barrier(ctx, &(kb_collective_options){.work = &work}));
    assert_true(is_done(ctx, work));
    for (int i = 0; i < 2; i++)
        expect_error_about(kb_request_wait(ctx, work, NULL), KB_ERR_FAULT, "rank 2 ended without");
    ++*survivors;
    return NULL;
}

static void a_failed_barrier_is_not_the_end_of_a_worker(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    uint32_t survivors = 0;
    expect_ok(kb_spawn(ctx, survives, &survivors, SIPS));
    assert_int_equal(survivors, 3);
    kb_context_destroy(ctx);
}

/* Rank 0 has ended long before it turns out that its barrier will not come about. */
static kb_error *leaves_a_barrier_open(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    kb_request work;
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    if (rank == 0)
        return kb_distributed_barrier(ctx, &(kb_collective_options){.work = &work});
    kb_co_sleep(kb_context_worker(ctx), KB_US);
    return NULL;
}

static void a_barrier_that_was_left_open_is_told_at_the_end(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    expect_error(kb_spawn(ctx, leaves_a_barrier_open, NULL, SIPS), KB_ERR_FAULT,
                 "1 of 4 workers failed: rank 0: collective 1, barrier: rank 1 ended without "
                 "joining it; in it: rank 0");
    expect_as_new(ctx);
    kb_context_destroy(ctx);
}

/* ---- A failed spawn ---- */

typedef struct relapse {
    bool founded; /* by the driver */
    kb_request open;
} relapse;

static kb_error *fails_in_a_group(kb_context *ctx, uint32_t rank, void *arg)
{
    relapse *r = arg;
    if (!r->founded)
        KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    KB_TRY(kb_distributed_barrier(ctx, NULL));
    if (rank == 1)
        return kb_error_new(KB_ERR_CHECK, "boom");
    if (rank < 3)
        return kb_distributed_barrier(ctx, NULL);
    kb_request first; /* it is ahead of those that are unwound before it */
    KB_TRY(kb_distributed_barrier(ctx, &(kb_collective_options){.work = &first}));
    KB_TRY(kb_distributed_barrier(ctx, &(kb_collective_options){.work = &r->open}));
    KB_TRY(kb_request_free(ctx, first));
    return kb_distributed_barrier(ctx, NULL);
}

/* All leave each barrier when the last one comes. */
static kb_error *meets_four_times(kb_context *ctx, uint32_t rank, void *arg)
{
    const relapse *r = arg;
    kb_time start = kb_context_now(ctx);
    if (!r->founded)
        KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    for (int i = 1; i <= 4; i++) {
        kb_co_sleep(kb_context_worker(ctx), rank * KB_NS);
        KB_TRY(kb_distributed_barrier(ctx, NULL));
        assert_int_equal(kb_context_now(ctx) - start, i * (SIPS - 1) * KB_NS);
    }
    return NULL;
}

static void a_failed_spawn_does_not_poison_the_next(void **state)
{
    (void)state;
    for (int founded = 0; founded < 2; founded++) {
        kb_context *ctx = open_small(NULL);
        relapse r = {.founded = founded};
        if (founded)
            expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
        for (int i = 0; i < 3; i++) {
            expect_error(kb_spawn(ctx, fails_in_a_group, &r, SIPS), KB_ERR_CHECK,
                         "1 of 4 workers failed: rank 1: boom");
            expect_error(kb_request_wait(ctx, r.open, NULL), KB_ERR_FAULT,
                         "cancelled because a worker failed");
            expect_ok(kb_request_free(ctx, r.open));
            expect_ok(kb_spawn(ctx, meets_four_times, &r, SIPS));
        }
        if (founded)
            expect_ok(kb_distributed_destroy_process_group(ctx));
        expect_as_new(ctx);
        kb_context_destroy(ctx);
    }
}

/* ---- Leaving it ---- */

static kb_error *leaves_and_comes_back(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    for (int i = 0; i < 3; i++) {
        KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
        expect_group(ctx, rank, SIPS);
        KB_TRY(kb_distributed_barrier(ctx, NULL));
        KB_TRY(kb_cooperative_yield(ctx));
        KB_TRY(kb_distributed_barrier(ctx, NULL));
        KB_TRY(kb_distributed_destroy_process_group(ctx));
        expect_no_group(ctx);
    }
    return NULL;
}

static void a_group_can_be_left_and_made_again(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    expect_ok(kb_spawn(ctx, leaves_and_comes_back, NULL, SIPS));
    expect_no_group(ctx);
    for (int i = 0; i < 3; i++) {
        expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
        expect_ok(kb_spawn(ctx, finds_a_group, NULL, SIPS));
        expect_ok(kb_distributed_destroy_process_group(ctx));
        expect_no_group(ctx);
    }
    kb_context_destroy(ctx);
}

static kb_error *one_leaves(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    KB_TRY(kb_distributed_barrier(ctx, NULL));
    if (rank == 1)
        KB_TRY(kb_distributed_destroy_process_group(ctx));
    if (rank == 1)
        expect_no_group(ctx);
    else
        expect_group(ctx, rank, SIPS);
    return NULL;
}

static void who_leaves_the_drivers_group_does_so_for_himself(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
    expect_ok(kb_spawn(ctx, one_leaves, NULL, SIPS));
    expect_ok(kb_spawn(ctx, finds_a_group, NULL, SIPS)); /* and those that follow have it */
    kb_context_destroy(ctx);
}

/* The last to leave closes it: barriers that are open then are abandoned. */
static kb_error *leaves_barriers_open(kb_context *ctx, uint32_t rank, void *arg)
{
    kb_request *works = arg;
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    if (rank != 3)
        KB_TRY(kb_distributed_barrier(ctx, &(kb_collective_options){.work = &works[rank]}));
    KB_TRY(kb_cooperative_yield(ctx));
    KB_TRY(kb_distributed_destroy_process_group(ctx));
    KB_TRY(kb_cooperative_yield(ctx));
    if (rank != 3)
        expect_error(kb_request_wait(ctx, works[rank], NULL), KB_ERR_FAULT,
                     "the barrier was abandoned");
    return NULL;
}

static void a_group_that_is_left_abandons_its_barriers(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_request works[SIPS];
    expect_ok(kb_spawn(ctx, leaves_barriers_open, works, SIPS));
    kb_context_destroy(ctx);
}

static void a_context_may_go_with_its_group(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
    kb_request work;
    expect_ok(kb_distributed_barrier(ctx, &(kb_collective_options){.work = &work}));
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(before_there_is_a_group_all_is_an_error),
        cmocka_unit_test(unknown_backends_are_refused),
        cmocka_unit_test(initialising_twice_is_an_error),
        cmocka_unit_test(the_world_is_as_large_as_the_machine),
        cmocka_unit_test(workers_initialise_the_group_for_themselves),
        cmocka_unit_test(the_driver_initialises_the_group_for_all),
        cmocka_unit_test(ranks_beyond_the_world_have_no_part_in_it),
        cmocka_unit_test(ranks_beyond_the_world_are_not_in_the_drivers_group),
        cmocka_unit_test(outside_workers_the_rank_is_0_with_a_warning),
        cmocka_unit_test(a_barrier_is_left_when_the_last_one_has_come),
        cmocka_unit_test(barriers_are_matched_by_their_order),
        cmocka_unit_test(open_barriers_may_be_waited_for_in_any_order),
        cmocka_unit_test(a_barrier_that_nobody_waits_for_is_no_failure),
        cmocka_unit_test(outside_workers_a_barrier_is_over_at_once),
        cmocka_unit_test(a_barrier_waits_for_the_callers_own_transfers),
        cmocka_unit_test(one_that_ends_without_joining_is_named),
        cmocka_unit_test(the_message_says_who_waits),
        cmocka_unit_test(with_fewer_workers_than_ranks_a_barrier_fails),
        cmocka_unit_test(a_failed_barrier_is_not_the_end_of_a_worker),
        cmocka_unit_test(a_barrier_that_was_left_open_is_told_at_the_end),
        cmocka_unit_test(a_failed_spawn_does_not_poison_the_next),
        cmocka_unit_test(a_group_can_be_left_and_made_again),
        cmocka_unit_test(who_leaves_the_drivers_group_does_so_for_himself),
        cmocka_unit_test(a_group_that_is_left_abandons_its_barriers),
        cmocka_unit_test(a_context_may_go_with_its_group),
    };
    return cmocka_run_group_tests_name("group", tests, NULL, NULL);
}
