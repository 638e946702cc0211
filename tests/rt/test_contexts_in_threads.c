/*
 * test_contexts_in_threads.c: contexts in several threads at once know nothing of each other: each
 * gives the times and the results that its program gives alone. Meant for ThreadSanitizer.
 *
 * The program has tensors, requests of all kinds, workers that meet at barriers, a failure, and
 * warnings; every thread has two contexts, in turns.
 */
#include "programs.h"

#include <pthread.h>

enum { THREADS = 4, ROUNDS = 3, STAGES = 4 };

typedef struct story {
    kb_context *ctx;
    uint64_t seed;
    uint64_t hash;
} story;

static void tell(story *s, uint64_t what)
{
    s->hash =
        (s->hash ^ what ^ (uint64_t)kb_context_now(s->ctx) << 20) * UINT64_C(0x9e3779b97f4a7c15);
    s->hash ^= s->hash >> 29;
}

static void tell_line(void *self, const char *line)
{
    story *s = self;
    for (; *line; line++)
        s->hash = s->hash * 31 + (unsigned char)*line;
}

/* cmocka is for one thread: what goes wrong here is told, and makes the stories differ. */
static bool told(story *s, kb_error *err)
{
    tell(s, kb_error_code(err));
    tell_line(s, kb_error_message(err));
    tell_line(s, kb_error_detail(err));
    bool fine = !err;
    kb_error_free(err);
    return fine;
}

static void do_request(story *s, kb_message message)
{
    kb_request request;
    kb_completion c = {0};
    if (!told(s, kb_request_submit(s->ctx, &message, &request)))
        return;
    (void)told(s, kb_request_wait(s->ctx, request, &c));
    tell(s, (uint64_t)c.queueing);
    (void)told(s, kb_request_free(s->ctx, request));
}

static kb_error *takes_part(kb_context *ctx, uint32_t rank, void *arg)
{
    story *s = arg;
    kb_tensor x, y;
    kb_tensor_spec spec = {.dtype = KB_F16, .shape = KB_SHAPE(20, 30 + s->seed % 5)};
    double value;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    KB_TRY(kb_full(ctx, &spec, rank + 0.5, &x));
    KB_TRY(kb_empty(ctx, &spec, &y));
    KB_TRY(kb_distributed_barrier(ctx, NULL));
    KB_TRY(kb_tensor_copy(ctx, y, x, KB_TIMED));
    KB_TRY(kb_cooperative_yield(ctx));
    KB_TRY(kb_tensor_get(ctx, y, KB_TIMED, &KB_INDEX(19, 2), &value));
    tell(s, (uint64_t)(value * 2) + rank);
    KB_TRY(kb_distributed_barrier(ctx, NULL));
    if (s->seed % 3 == 1 && rank == s->seed % SIPS)
        return kb_error_new(KB_ERR_CHECK, "seed %u", (unsigned)s->seed);
    KB_TRY(kb_tensor_free(ctx, x));
    return rank % 2 ? kb_tensor_free(ctx, y) : NULL; /* or be warned of it */
}

static void tell_stage(story *s, int stage)
{
    kb_context *ctx = s->ctx;
    uint32_t some = (uint32_t)s->seed % 7;
    switch (stage) {
    case 0:
        do_request(s, write_to(hbm(some % SIPS, 0), 1000 + some));
        do_request(s, dma((kb_pe){some % SIPS, 0, 1}, hbm(0, 0), hbm(1, 64), 50000));
        break;
    case 1:
        (void)told(s, kb_spawn(ctx, takes_part, s, SIPS));
        break;
    case 2:
        do_request(s, faulty(some % SIPS));
        do_request(s, map_to((kb_pe){0, 0, 0}, 0x300000000, hbm(0, 0), 4096));
        do_request(s, unmap_from((kb_pe){0, 0, 0}, 0x300000000));
        break;
    default: {
        kb_message message = read_from(hbm(2, 0), 30000);
        kb_request request;
        (void)told(s, kb_request_submit(ctx, &message, &request)); /* left under way */
        for (uint32_t i = 0; i < 10 + some; i++)
            (void)told(s, kb_cooperative_yield(ctx));
        break;
    }
    }
}

static bool begin(story *s, uint64_t seed)
{
    *s = (story){.seed = seed};
    kb_context_options options = {.debug = true,
                                  .on_warning = tell_line,
                                  .on_warning_self = s,
                                  .stack_bytes = 128 << 10,
                                  .no_elision = seed % 2};
    kb_error *err = try_small(&options, &s->ctx);
    bool fine = !err;
    kb_error_free(err);
    return fine;
}

/* Two at a time, in turns. */
static void tell_two(uint64_t first, uint64_t second, uint64_t hashes[2])
{
    story stories[2];
    hashes[0] = hashes[1] = 0;
    if (!begin(&stories[0], first))
        return;
    if (!begin(&stories[1], second)) {
        kb_context_destroy(stories[0].ctx);
        return;
    }
    for (int stage = 0; stage < STAGES; stage++)
        for (int i = 0; i < 2; i++)
            tell_stage(&stories[i], stage);
    for (int i = 0; i < 2; i++) {
        kb_context_destroy(stories[i].ctx); /* with warnings of what was left */
        hashes[i] = stories[i].hash;
    }
}

typedef struct task {
    pthread_barrier_t *barrier;
    uint64_t seeds[ROUNDS][2], hashes[ROUNDS][2];
} task;

static void *run_task(void *arg)
{
    task *t = arg;
    pthread_barrier_wait(t->barrier);
    for (int i = 0; i < ROUNDS; i++)
        tell_two(t->seeds[i][0], t->seeds[i][1], t->hashes[i]);
    return NULL;
}

static void run_together(task tasks[THREADS])
{
    pthread_t threads[THREADS];
    pthread_barrier_t barrier;
    assert_int_equal(pthread_barrier_init(&barrier, NULL, THREADS), 0);
    for (int i = 0; i < THREADS; i++) {
        tasks[i].barrier = &barrier;
        assert_int_equal(pthread_create(&threads[i], NULL, run_task, &tasks[i]), 0);
    }
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    pthread_barrier_destroy(&barrier);
}

static uint64_t alone(uint64_t seed)
{
    story s;
    assert_true(begin(&s, seed));
    for (int stage = 0; stage < STAGES; stage++)
        tell_stage(&s, stage);
    kb_context_destroy(s.ctx);
    return s.hash;
}

static void the_same_program_gives_the_same_in_all_threads(void **state)
{
    (void)state;
    static task tasks[THREADS];
    for (int i = 0; i < THREADS; i++)
        for (uint64_t j = 0; j < ROUNDS; j++)
            tasks[i].seeds[j][0] = j, tasks[i].seeds[j][1] = j + 10;
    run_together(tasks);
    for (uint64_t j = 0; j < ROUNDS; j++) {
        uint64_t hashes[2] = {alone(j), alone(j + 10)};
        assert_true(hashes[0] != hashes[1]);
        for (int i = 0; i < THREADS; i++)
            assert_memory_equal(tasks[i].hashes[j], hashes, sizeof hashes);
    }
}

static void different_programs_do_not_disturb_each_other(void **state)
{
    (void)state;
    static task tasks[THREADS];
    for (uint64_t i = 0; i < THREADS; i++)
        for (uint64_t j = 0; j < ROUNDS; j++)
            tasks[i].seeds[j][0] = 100 * i + j, tasks[i].seeds[j][1] = 1000 + 100 * i + j;
    run_together(tasks);
    for (int i = 0; i < THREADS; i++)
        for (int j = 0; j < ROUNDS; j++)
            for (int k = 0; k < 2; k++)
                assert_true(tasks[i].hashes[j][k] == alone(tasks[i].seeds[j][k]));
}

/* A context may move between threads, as long as one uses it at a time. */
static void *tell_rest(void *arg)
{
    story *s = arg;
    for (int stage = 2; stage < STAGES; stage++)
        tell_stage(s, stage);
    return NULL;
}

static void a_context_can_be_handed_to_another_thread(void **state)
{
    (void)state;
    story s;
    pthread_t thread;
    assert_true(begin(&s, 5));
    tell_stage(&s, 0);
    tell_stage(&s, 1);
    assert_int_equal(pthread_create(&thread, NULL, tell_rest, &s), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    kb_context_destroy(s.ctx);
    assert_true(s.hash == alone(5));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_program_gives_the_same_in_all_threads),
        cmocka_unit_test(different_programs_do_not_disturb_each_other),
        cmocka_unit_test(a_context_can_be_handed_to_another_thread),
    };
    return cmocka_run_group_tests_name("contexts in threads", tests, NULL, NULL);
}
