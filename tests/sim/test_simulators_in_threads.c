/*
 * test_simulators_in_threads.c: simulators in several threads at once know nothing of each other:
 * each gives the trace that its program gives alone. Meant for ThreadSanitizer.
 *
 * The program is a small factory: workers that take parts from a channel, share tools and are
 * killed now and then; a supply of parts by a handler; and at last a deadlock, or a failure, or an
 * abandon.
 */
#include "support/expect.h"
#include "support/seed.h"

#include <inttypes.h>
#include <pthread.h>

#include "base/base.h"

enum { THREADS = 8, ROUNDS = 6, WORKERS = 12, PARTS = 200 };

typedef struct factory {
    kb_sim *sim;
    kb_rng rng;
    uint64_t hash;
    kb_sem tools;
    kb_channel parts;
    kb_waitlist whistle;
    kb_handler supply;
    kb_source source;
    kb_waiter waiter;
    kb_co *workers[WORKERS];
    uint32_t supplied;
} factory;

static void note(factory *f, uint64_t what)
{
    f->hash = (f->hash ^ what ^ (uint64_t)kb_sim_now(f->sim) << 20) * UINT64_C(0x9e3779b97f4a7c15);
    f->hash ^= f->hash >> 29;
}

static kb_time some_time(factory *f)
{
    return (kb_time)kb_rng_below(&f->rng, 5);
}

typedef struct job {
    factory *factory;
    uint32_t number;
} job;

static void worker_gone(void *arg)
{
    job *j = arg;
    note(j->factory, 1000 + j->number);
    j->factory->workers[j->number] = NULL;
    free(j);
}

static void tools_back(void *arg)
{
    factory *f = arg;
    kb_sem_release(f->sim, &f->tools, 2);
}

static void works(kb_co *co, void *arg)
{
    job *j = arg;
    factory *f = j->factory;
    kb_cleanup gone, back;
    kb_co_push_cleanup(co, &gone, worker_gone, j);
    for (int i = 0; i < 20; i++) {
        uint64_t part = kb_channel_get(co, &f->parts);
        kb_sem_acquire(co, &f->tools, 2);
        kb_co_push_cleanup(co, &back, tools_back, f);
        double x = 1.0 / (double)(part + 1);
        kb_co_sleep(co, some_time(f));
        note(f, part * 100 + j->number + (uint64_t)(x * 1e6));
        kb_co_pop_cleanup(co, true);
        if (kb_rng_below(&f->rng, 4) == 0)
            note(f, kb_wait_until(co, &f->whistle, kb_sim_now(f->sim) + some_time(f)));
    }
    kb_co_pop_cleanup(co, true);
}

static void hire(factory *f, uint32_t number)
{
    job *j = malloc(sizeof *j);
    KB_ASSERT(j);
    *j = (job){f, number};
    char name[16];
    snprintf(name, sizeof name, "worker %u", number);
    kb_co_options options = {.name = name, .source_id = number};
    kb_error *err = kb_co_spawn(f->sim, &options, works, j, &f->workers[number]);
    KB_ASSERT(!err);
}

/* Puts parts as fast as they are taken; blows the whistle, fires and hires. */
static void supply(kb_sim *sim, void *self, uint64_t arg)
{
    factory *f = self;
    (void)arg;
    while (f->supplied < PARTS) {
        uint32_t number = (uint32_t)kb_rng_below(&f->rng, WORKERS);
        switch (kb_rng_below(&f->rng, 8)) {
        case 0:
            kb_wake_all(sim, &f->whistle);
            break;
        case 1:
            /* One that has not started would not free its job. */
            if (f->workers[number] && kb_sim_now(sim) > 0) {
                kb_co_kill(f->workers[number]);
                hire(f, number);
                kb_sim_at(sim, &f->source, kb_sim_now(sim) + 1, f->supply, 0);
                return;
            }
            break;
        default:
            if (!kb_channel_put_then(sim, &f->parts, f->supplied++, &f->waiter))
                return;
        }
    }
}

static uint64_t run_factory(uint64_t seed)
{
    factory f = {.source = kb_source_make(1000)};
    kb_rng_init(&f.rng, test_seed(seed));
    kb_error *err = kb_sim_create(&(kb_sim_options){.no_elision = seed % 2}, &f.sim);
    KB_ASSERT(!err);
    kb_sem_init(&f.tools, "tools", 7);
    err = kb_channel_init(&f.parts, "parts", 3);
    KB_ASSERT(!err);
    kb_waitlist_init(&f.whistle, "whistle");
    err = kb_sim_add_handler(f.sim, supply, &f, &f.supply);
    KB_ASSERT(!err);
    kb_waiter_init(&f.waiter, &f.source, f.supply, 0);
    for (uint32_t i = 0; i < WORKERS; i++)
        hire(&f, i);
    kb_sim_at(f.sim, &f.source, 0, f.supply, 0);

    err = kb_sim_run(f.sim, 20);
    KB_ASSERT(!err);
    if (seed % 3 == 0)
        kb_sim_fail(f.sim, kb_error_new(KB_ERR_FAULT, "seed %d", (int)seed));
    err = kb_sim_run(f.sim, KB_FOREVER);
    for (const char *c = kb_error_message(err); *c; c++)
        note(&f, (uint64_t)*c);
    for (const char *c = kb_error_detail(err); *c; c++)
        note(&f, (uint64_t)*c);
    kb_error_free(err);
    if (seed % 5 == 0)
        kb_sim_abandon(f.sim);
    kb_sim_stats stats = kb_sim_get_stats(f.sim);
    note(&f, stats.events);
    note(&f, stats.resumes);
    kb_sim_destroy(f.sim); /* the cleanups of those who wait still use the rest */
    f.sim = NULL;
    kb_channel_fini(&f.parts);
    return f.hash;
}

typedef struct task {
    pthread_barrier_t *barrier;
    uint64_t seed[ROUNDS], hash[ROUNDS];
} task;

static void *run_task(void *arg)
{
    task *t = arg;
    pthread_barrier_wait(t->barrier);
    for (int i = 0; i < ROUNDS; i++)
        t->hash[i] = run_factory(t->seed[i]);
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

static void the_same_program_gives_the_same_in_all_threads(void **state)
{
    (void)state;
    task tasks[THREADS];
    for (int i = 0; i < THREADS; i++)
        for (int j = 0; j < ROUNDS; j++)
            tasks[i].seed[j] = (uint64_t)j;
    run_together(tasks);
    for (int j = 0; j < ROUNDS; j++) {
        uint64_t alone = run_factory((uint64_t)j);
        for (int i = 0; i < THREADS; i++)
            assert_true(tasks[i].hash[j] == alone);
    }
}

static void different_programs_do_not_disturb_each_other(void **state)
{
    (void)state;
    task tasks[THREADS];
    for (int i = 0; i < THREADS; i++)
        for (int j = 0; j < ROUNDS; j++)
            tasks[i].seed[j] = (uint64_t)(100 + i * 37 + j);
    run_together(tasks);
    for (int i = 0; i < THREADS; i++) {
        for (int j = 0; j < ROUNDS; j++) {
            assert_true(tasks[i].hash[j] == run_factory(tasks[i].seed[j]));
            assert_true(tasks[i].hash[j] != tasks[(i + 1) % THREADS].hash[j]);
        }
    }
}

/* A simulator may move between threads, as long as one uses it at a time and coroutines wait. */
typedef struct relay {
    kb_sim *sim;
    kb_time until;
    kb_time slept;
} relay;

static void sleeps_on(kb_co *co, void *arg)
{
    relay *r = arg;
    for (int i = 0; i < 100; i++) {
        kb_co_sleep(co, 1);
        r->slept++;
    }
}

static void *run_leg(void *arg)
{
    relay *r = arg;
    kb_error *err = kb_sim_run(r->sim, r->until);
    KB_ASSERT(!err);
    return NULL;
}

static void a_simulator_can_be_handed_to_another_thread(void **state)
{
    (void)state;
    relay r = {0};
    expect_ok(kb_sim_create(NULL, &r.sim));
    expect_ok(kb_co_spawn(r.sim, &(kb_co_options){.name = "a"}, sleeps_on, &r, NULL));
    for (int leg = 1; leg <= 4; leg++) {
        pthread_t thread;
        r.until = 25 * leg;
        assert_int_equal(pthread_create(&thread, NULL, run_leg, &r), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(r.slept, 25 * leg); /* one a femtosecond */
    }
    assert_int_equal(kb_sim_get_stats(r.sim).coroutines, 0);
    kb_sim_destroy(r.sim);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_program_gives_the_same_in_all_threads),
        cmocka_unit_test(different_programs_do_not_disturb_each_other),
        cmocka_unit_test(a_simulator_can_be_handed_to_another_thread),
    };
    return cmocka_run_group_tests_name("threads", tests, NULL, NULL);
}
