/*
 * test_sim_alloc.c: what a simulator does when there is no memory.
 *
 * Law: whichever allocation fails, alone or with all that follow, the outcome is success or an
 * error of KB_ERR_HOST; afterwards the simulator can still be run and destroyed; and nothing is
 * leaked, no block and no mapping. Each body is run with the 1st, 2nd, 3rd ... allocation failing
 * until none fails any more; the same with mmap(), from which stacks come.
 */
#include "support/expect.h"
#include "support/failing_alloc.h"

#include <errno.h>
#include <sys/mman.h>

#include "base/base.h"

void *__real_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *address, size_t length);
void *__wrap_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset);
int __wrap_munmap(void *address, size_t length);

static size_t live_maps;
static long mmap_countdown; /* 0: disarmed */
static bool mmap_failed;

void *__wrap_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    if (mmap_countdown > 0 && --mmap_countdown == 0) {
        mmap_failed = true;
        errno = ENOMEM;
        return MAP_FAILED;
    }
    void *base = __real_mmap(address, length, protection, flags, fd, offset);
    live_maps += base != MAP_FAILED;
    return base;
}

int __wrap_munmap(void *address, size_t length)
{
    int result = __real_munmap(address, length);
    live_maps -= result == 0;
    return result;
}

static void expect_host_error(kb_error *err)
{
    assert_int_equal(kb_error_code(err), KB_ERR_HOST);
    assert_true(kb_error_message(err)[0] != '\0');
    kb_error_free(err);
}

static int failures_seen;

/* Success or out of memory; false for the latter. */
static bool went_well(kb_error *err)
{
    if (!err)
        return true;
    failures_seen++;
    expect_host_error(err);
    return false;
}

/* Both kinds of failure, for every n. That nothing is leaked is checked after each. */
static void try_all(void (*body)(void))
{
    failures_seen = 0;
    size_t maps = live_maps;
    failing_alloc_try_all(body);
    assert_int_equal(live_maps, maps);
    bool done = false;
    for (long nth = 1; !done; nth++) {
        size_t blocks = failing_alloc_live();
        mmap_failed = false;
        mmap_countdown = nth;
        body();
        mmap_countdown = 0;
        done = !mmap_failed;
        assert_int_equal(live_maps, maps);
        assert_int_equal(failing_alloc_live(), blocks);
    }
    assert_true(failures_seen > 0); /* else nothing was tried */
}

static void count_events(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim;
    (void)arg;
    ++*(uint64_t *)self;
}

/* ---- Creating ---- */

static void create(void)
{
    kb_sim *sim = NULL;
    if (!went_well(kb_sim_create(NULL, &sim)))
        assert_null(sim);
    kb_sim_destroy(sim);
}

static void creating_fails_cleanly(void **state)
{
    (void)state;
    try_all(create);
}

static void add_handlers(void)
{
    kb_sim *sim;
    if (!went_well(kb_sim_create(NULL, &sim)))
        return;
    uint64_t counts[100] = {0};
    kb_source source = kb_source_make(1);
    int added = 0;
    for (int i = 0; i < 100; i++) {
        kb_handler handler;
        if (!went_well(kb_sim_add_handler(sim, count_events, &counts[added], &handler)))
            continue;
        added++;
        (void)kb_sim_at(sim, &source, i, handler, 0);
    }
    if (went_well(kb_sim_run(sim, KB_FOREVER))) {
        for (int i = 0; i < added; i++)
            assert_int_equal(counts[i], 1); /* those that were added work */
    }
    kb_sim_destroy(sim);
}

static void adding_handlers_fails_cleanly(void **state)
{
    (void)state;
    try_all(add_handlers);
}

/* ---- Events ---- */

enum { EVENTS = 5000 };

/*
 * Thousands of events, so that the set grows several times, and its wheel too. What could not be
 * scheduled fails the next run; what could be happens, then or after that.
 */
static void schedule_thousands(void)
{
    kb_sim *sim;
    if (!went_well(kb_sim_create(NULL, &sim)))
        return;
    uint64_t count = 0;
    kb_handler handler;
    kb_source source = kb_source_make(1);
    if (went_well(kb_sim_add_handler(sim, count_events, &count, &handler))) {
        uint64_t scheduled = 0;
        for (uint64_t i = 0; i < EVENTS; i++) {
            kb_time when = (kb_time)(i * 7919 % EVENTS) * (i % 2 ? KB_NS : KB_US);
            scheduled += kb_sim_at(sim, &source, when, handler, 0).slot != 0;
        }
        assert_int_equal(kb_sim_get_stats(sim).pending, scheduled);
        bool fine = went_well(kb_sim_run(sim, KB_FOREVER));
        assert_int_equal(fine, scheduled == EVENTS);
        if (!fine) {
            assert_int_equal(count, 0);
            expect_ok(kb_sim_run(sim, KB_FOREVER));
        }
        assert_int_equal(count, scheduled);
        assert_int_equal(kb_sim_get_stats(sim).pending, 0);
    }
    kb_sim_destroy(sim);
}

static void scheduling_thousands_fails_cleanly(void **state)
{
    (void)state;
    try_all(schedule_thousands);
}

typedef struct brood {
    kb_handler handler;
    kb_source source;
    uint64_t born;
} brood;

/* Each event makes two more until there are enough: growth within a run. */
static void breed(kb_sim *sim, void *self, uint64_t arg)
{
    (void)arg;
    brood *b = self;
    for (int i = 0; i < 2 && b->born < EVENTS; i++) {
        kb_time when = kb_sim_now(sim) + 1 + (kb_time)(b->born % 97);
        b->born += kb_sim_at(sim, &b->source, when, b->handler, 0).slot != 0;
    }
}

static void breed_in_a_run(void)
{
    kb_sim *sim;
    if (!went_well(kb_sim_create(NULL, &sim)))
        return;
    brood b = {.source = kb_source_make(1)};
    if (went_well(kb_sim_add_handler(sim, breed, &b, &b.handler))) {
        b.born += kb_sim_at(sim, &b.source, 0, b.handler, 0).slot != 0;
        while (!went_well(kb_sim_run(sim, KB_FOREVER)) && kb_sim_get_stats(sim).events < EVENTS / 4)
            continue; /* a run that failed can be gone on with */
        kb_sim_stats stats = kb_sim_get_stats(sim);
        assert_int_equal(stats.events + stats.pending, b.born); /* none was lost */
    }
    kb_sim_destroy(sim);
}

static void growing_within_a_run_fails_cleanly(void **state)
{
    (void)state;
    try_all(breed_in_a_run);
}

/* ---- Coroutines ---- */

static int cleanups_run;

static void count_cleanup(void *arg)
{
    (void)arg;
    cleanups_run++;
}

typedef struct meeting {
    kb_channel channel;
    kb_sem sem;
    int begun, ended;
} meeting;

static void visit(kb_co *co, void *arg)
{
    meeting *m = arg;
    kb_cleanup cleanup;
    m->begun++;
    kb_co_push_cleanup(co, &cleanup, count_cleanup, NULL);
    kb_sem_acquire(co, &m->sem, 1);
    kb_co_sleep(co, 3 * KB_NS);
    kb_sem_release(kb_co_sim(co), &m->sem, 1);
    kb_channel_put(co, &m->channel, (uint64_t)m->begun);
    kb_co_pop_cleanup(co, true);
    m->ended++;
}

static void receive(kb_co *co, void *arg)
{
    meeting *m = arg;
    for (;;)
        (void)kb_channel_get(co, &m->channel);
}

/*
 * Events run short as well: a new set has room for 255, and all but 20 of these are taken, so that
 * spawning, sleeping and waking may each be what cannot be done.
 */
static void spawn_many(void)
{
    enum { visitors = 40, idle_events = 235 };
    kb_sim *sim;
    if (!went_well(kb_sim_create(&(kb_sim_options){.stack_bytes = 16384}, &sim)))
        return;
    meeting m = {0};
    uint64_t idle = 0;
    kb_handler idling;
    kb_source source = kb_source_make(1000);
    kb_sem_init(&m.sem, "seats", 2);
    cleanups_run = 0;
    bool channel = went_well(kb_sim_add_handler(sim, count_events, &idle, &idling)) &&
                   went_well(kb_channel_init(&m.channel, "words", 4));
    for (int i = 0; i < idle_events && channel; i++)
        (void)kb_sim_at(sim, &source, KB_US, idling, 0);
    if (channel) {
        const kb_co_options receiver = {.name = "receiver", .source_id = 9999, .daemon = true};
        bool fine = went_well(kb_co_spawn(sim, &receiver, receive, &m, NULL));
        int spawned = 0;
        for (uint32_t i = 0; i < visitors; i++) {
            const kb_co_options visitor = {.name = "visitor", .source_id = i};
            spawned += went_well(kb_co_spawn(sim, &visitor, visit, &m, NULL));
        }
        assert_int_equal(kb_sim_get_stats(sim).coroutines, spawned + fine);
        kb_error *err = kb_sim_run(sim, KB_FOREVER);
        if (!err) {
            assert_int_equal(m.ended, spawned);
            assert_true(fine || spawned <= 4); /* the channel takes four without a receiver */
        } else if (fine || kb_error_code(err) != KB_ERR_DEADLOCK) {
            expect_host_error(err);
        } else {
            kb_error_free(err); /* nobody takes the words: a deadlock is what it is */
        }
        kb_sim_abandon(sim);
        assert_int_equal(kb_sim_get_stats(sim).coroutines, 0);
        assert_int_equal(cleanups_run, m.begun); /* however they ended */
        kb_channel_fini(&m.channel);
    }
    kb_sim_destroy(sim);
}

static void coroutines_fail_cleanly(void **state)
{
    (void)state;
    try_all(spawn_many);
}

/* The message of a refused stack is made of memory, too; without any there is still an error. */
static void a_stack_is_refused_without_any_memory(void **state)
{
    (void)state;
    kb_sim *sim;
    expect_ok(kb_sim_create(NULL, &sim));
    mmap_countdown = 1;
    failing_alloc_arm(1, FAIL_ONWARDS);
    kb_error *err = kb_co_spawn(sim, &(kb_co_options){.name = "x"}, visit, NULL, NULL);
    assert_true(failing_alloc_disarm());
    expect_error(err, KB_ERR_HOST, "out of memory");
    assert_int_equal(kb_sim_get_stats(sim).coroutines, 0);
    expect_ok(kb_sim_run(sim, KB_FOREVER));
    kb_sim_destroy(sim);
}

/* ---- Channels, errors ---- */

static void init_channel(void)
{
    kb_channel channel;
    if (went_well(kb_channel_init(&channel, "c", 1000)))
        kb_channel_fini(&channel);
}

static void channels_fail_cleanly(void **state)
{
    (void)state;
    try_all(init_channel);
}

static void wait_forever(kb_co *co, void *arg)
{
    kb_wait(co, arg);
}

/* The report of a deadlock may lose lines, or shrink to "out of memory"; the run still fails. */
static void deadlock(void)
{
    kb_sim *sim;
    if (!went_well(kb_sim_create(NULL, &sim)))
        return;
    kb_waitlist list;
    kb_waitlist_init(&list, "godot");
    const kb_co_options options = {.name = "estragon"};
    if (went_well(kb_co_spawn(sim, &options, wait_forever, &list, NULL))) {
        kb_error *err = kb_sim_run(sim, KB_FOREVER);
        assert_non_null(err);
        if (kb_error_code(err) == KB_ERR_DEADLOCK)
            kb_error_free(err);
        else
            (void)went_well(err);
    }
    kb_sim_destroy(sim);
}

static void deadlocks_are_reported_without_memory(void **state)
{
    (void)state;
    try_all(deadlock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(creating_fails_cleanly),
        cmocka_unit_test(adding_handlers_fails_cleanly),
        cmocka_unit_test(scheduling_thousands_fails_cleanly),
        cmocka_unit_test(growing_within_a_run_fails_cleanly),
        cmocka_unit_test(coroutines_fail_cleanly),
        cmocka_unit_test(a_stack_is_refused_without_any_memory),
        cmocka_unit_test(channels_fail_cleanly),
        cmocka_unit_test(deadlocks_are_reported_without_memory),
    };
    return cmocka_run_group_tests_name("alloc", tests, NULL, NULL);
}
