/*
 * test_wait.c: wait lists, semaphores and channels, for coroutines and for handlers. Everything
 * runs twice: with elision and without.
 *
 * Most tests tell a story, "time name what; ..." with times in fs, and compare it. Coroutines have
 * low source ids and "c" names, handlers ids from 100 and "h" names.
 *
 * Checks C1 and C4.
 */
#include "sim/story.h"
#include "support/seed.h"

static kb_waitlist list;
static kb_sem sem;
static kb_channel channel;

static void tell_number(const char *who, const char *what, uint64_t number)
{
    char text[64];
    snprintf(text, sizeof text, "%s %" PRIu64, what, number);
    tell(who, text);
}

/* What a handler is to do. */
typedef struct deed {
    void (*fn)(uint64_t number);
    uint64_t number;
} deed;

static deed deeds[8];
static uint32_t deed_count;

static int start(void **state)
{
    (void)state;
    deed_count = 0;
    kb_waitlist_init(&list, "list");
    kb_sem_init(&sem, "sem", 0);
    channel = (kb_channel){0};
    return begin_story();
}

static int finish(void **state)
{
    (void)state;
    kb_sim_destroy(sim);
    kb_channel_fini(&channel);
    return problems;
}

/* Runs until no event is left, while a coroutine waits. */
static void run_dry(void)
{
    kb_error *err = kb_sim_run(sim, KB_FOREVER);
    assert_int_equal(kb_error_code(err), KB_ERR_DEADLOCK);
    kb_error_free(err);
}

static void does(kb_sim *s, void *self, uint64_t arg)
{
    (void)s;
    (void)self;
    deeds[arg].fn(deeds[arg].number);
}

static void at(kb_time when, void (*fn)(uint64_t), uint64_t number)
{
    kb_handler handler;
    kb_source source = kb_source_make(500 + deed_count);
    expect_ok(kb_sim_add_handler(sim, does, NULL, &handler));
    deeds[deed_count] = (deed){fn, number};
    kb_sim_at(sim, &source, when, handler, deed_count++);
}

/* A handler that waits: it tells when its turn has come. */
typedef struct agent {
    const char *name;
    kb_source source;
    kb_waiter waiter;
} agent;

static void agent_is_called(kb_sim *s, void *self, uint64_t arg)
{
    (void)s;
    agent *a = self;
    CHECK(arg == 42);
    CHECK(!a->waiter.list);
    tell_number(a->name, "is called with", a->waiter.value);
}

static void agent_init(agent *a, const char *name, uint32_t id)
{
    kb_handler handler;
    *a = (agent){.name = name, .source = kb_source_make(id)};
    expect_ok(kb_sim_add_handler(sim, agent_is_called, a, &handler));
    kb_waiter_init(&a->waiter, &a->source, handler, 42);
}

/* ---- Lists ---- */

static void comes_and_waits(kb_co *co, void *arg)
{
    kb_co_sleep(co, (kb_time)(uintptr_t)arg);
    tell(kb_co_name(co), "waits");
    kb_wait(co, &list);
    tell(kb_co_name(co), "woke");
}

static void wake(uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        CHECK(kb_wake_one(sim, &list));
    tell_number("-", "woke", count);
}

/* They come at 1, 2 and 3 against the order of ids: the list goes by arrival. */
static void the_first_to_wait_is_the_first_woken(void **state)
{
    (void)state;
    spawn("c1", 1, comes_and_waits, (void *)3);
    spawn("c2", 2, comes_and_waits, (void *)2);
    spawn("c3", 3, comes_and_waits, (void *)1);
    at(5, wake, 1);
    at(6, wake, 1);
    at(7, wake, 1);
    run();
    expect_story("1 c3 waits; 2 c2 waits; 3 c1 waits; 5 - woke 1; 5 c3 woke; 6 - woke 1; "
                 "6 c2 woke; 7 - woke 1; 7 c1 woke; ");
    assert_false(kb_wake_one(sim, &list));
}

/* Those woken at one instant go on in order of their ids, as all events do. */
static void those_woken_together_go_on_in_order_of_id(void **state)
{
    (void)state;
    spawn("c1", 1, comes_and_waits, (void *)3);
    spawn("c2", 2, comes_and_waits, (void *)2);
    spawn("c3", 3, comes_and_waits, (void *)1);
    at(5, wake, 2);
    run_dry();
    expect_story("1 c3 waits; 2 c2 waits; 3 c1 waits; 5 - woke 2; 5 c2 woke; 5 c3 woke; ");
    assert_true(kb_wake_one(sim, &list));
    run();
    expect_story("5 c1 woke; ");
}

static void wake_all(uint64_t number)
{
    (void)number;
    kb_wake_all(sim, &list);
    CHECK(!list.head && !list.tail);
    tell("-", "woke all");
}

static void all_are_woken_at_once(void **state)
{
    (void)state;
    agent h;
    agent_init(&h, "h", 100);
    kb_wake_all(sim, &list); /* the list is empty */
    spawn("c1", 1, comes_and_waits, (void *)2);
    kb_wait_then(&list, &h.waiter);
    spawn("c2", 2, comes_and_waits, (void *)1);
    at(4, wake_all, 0);
    run();
    expect_story(
        "1 c2 waits; 2 c1 waits; 4 - woke all; 4 c1 woke; 4 c2 woke; 4 h is called with 0; ");
}

static void waits_again(kb_co *co, void *arg)
{
    (void)arg;
    for (int i = 0; i < 2; i++)
        kb_wait(co, &list);
    tell(kb_co_name(co), "woke twice");
}

/* A coroutine that waits again while all are woken is not woken again by that. */
static void waking_all_does_not_wake_those_who_come_back(void **state)
{
    (void)state;
    spawn("c1", 1, waits_again, NULL);
    spawn("c2", 2, waits_again, NULL);
    at(1, wake_all, 0);
    run_dry();
    expect_story("1 - woke all; ");
    kb_wake_all(sim, &list);
    run();
    expect_story("1 c1 woke twice; 1 c2 woke twice; ");
}

static void waits_until(kb_co *co, void *deadline)
{
    bool woken = kb_wait_until(co, &list, (kb_time)(uintptr_t)deadline);
    tell(kb_co_name(co), woken ? "woke" : "was late");
}

static void a_wait_ends_by_waking_or_by_its_deadline(void **state)
{
    (void)state;
    spawn("c1", 1, waits_until, (void *)3);
    spawn("c2", 2, waits_until, (void *)9);
    at(5, wake, 1); /* c1 is gone: it wakes c2 */
    run();
    expect_story("3 c1 was late; 5 - woke 1; 5 c2 woke; ");
    assert_int_equal(kb_sim_now(sim), 5); /* the deadline at 9 is gone as well */
    kb_sim_stats stats = kb_sim_get_stats(sim);
    assert_int_equal(stats.cancelled, 1);
    assert_int_equal(stats.pending, 0);
    assert_null(list.head);
}

static void wakes_at(kb_co *co, void *when)
{
    kb_co_sleep(co, (kb_time)(uintptr_t)when);
    tell(kb_co_name(co), kb_wake_one(sim, &list) ? "wakes one" : "wakes nobody");
}

/*
 * Both at 5. The deadline is an event of c5, so it comes after a waker with a lower id, which finds
 * c5 waiting, and before one with a higher id, which does not.
 */
static void a_waker_at_the_deadline_comes_by_its_id(void **state)
{
    (void)state;
    spawn("c5", 5, waits_until, (void *)5);
    spawn("c4", 4, wakes_at, (void *)5);
    run();
    expect_story("5 c4 wakes one; 5 c5 woke; ");
    kb_sim_destroy(sim);
    start(NULL);
    spawn("c5", 5, waits_until, (void *)5);
    spawn("c6", 6, wakes_at, (void *)5);
    run();
    expect_story("5 c5 was late; 5 c6 wakes nobody; ");
}

static void waits_in_the_past(kb_co *co, void *arg)
{
    (void)arg;
    kb_co_sleep(co, 5);
    CHECK(!kb_wait_until(co, &list, 4));
    CHECK(!kb_wait_until(co, &list, 5)); /* lets others go first, as a sleep of 0 does */
    tell(kb_co_name(co), "goes on");
}

static void a_deadline_may_be_now_or_past(void **state)
{
    (void)state;
    spawn("c2", 2, waits_in_the_past, NULL);
    spawn("c1", 1, wakes_at, (void *)5);
    run();
    expect_story("5 c1 wakes nobody; 5 c2 goes on; ");
    assert_null(list.head);
}

static void wakes_another_and_waits_until_now(kb_co *co, void *another)
{
    kb_co_sleep(co, 5);
    CHECK(kb_wake_one(sim, another));
    waits_until(co, (void *)5);
}

static void waits_and_wakes(kb_co *co, void *own)
{
    kb_wait(co, own);
    tell(kb_co_name(co), kb_wake_one(sim, &list) ? "wakes one" : "wakes nobody");
}

/* c1 comes before the deadline of c2 at the same instant. */
static void a_deadline_that_is_now_leaves_time_to_be_woken(void **state)
{
    (void)state;
    kb_waitlist own;
    kb_waitlist_init(&own, "own");
    spawn("c1", 1, waits_and_wakes, &own);
    spawn("c2", 2, wakes_another_and_waits_until_now, &own);
    run();
    expect_story("5 c1 wakes one; 5 c2 woke; ");
}

/* ---- Semaphores ---- */

/* Comes, acquires units, keeps them for 10 and gives them back. */
typedef struct customer {
    kb_time comes;
    uint64_t units;
} customer;

static void is_served(kb_co *co, void *arg)
{
    const customer *c = arg;
    kb_co_sleep(co, c->comes);
    kb_sem_acquire(co, &sem, c->units);
    tell_number(kb_co_name(co), "has", c->units);
    kb_co_sleep(co, 10);
    kb_sem_release(sim, &sem, c->units);
}

/*
 * 3 units. c1 has 2 from 0 to 10; c2 wants 2 at 1, and c3, who wants 1 at 2 and could have it,
 * waits behind. At 10 both are served, in order of ids at one instant; at 20 all is back.
 */
static void nobody_overtakes(void **state)
{
    (void)state;
    sem.available = 3;
    spawn("c1", 1, is_served, &(customer){0, 2});
    spawn("c2", 2, is_served, &(customer){1, 2});
    spawn("c3", 3, is_served, &(customer){2, 1});
    expect_ok(kb_sim_run(sim, 5));
    assert_int_equal(sem.available, 1);
    assert_false(kb_sem_try_acquire(&sem, 1)); /* there is one, but others wait */
    run();
    expect_story("0 c1 has 2; 10 c2 has 2; 10 c3 has 1; ");
    assert_int_equal(kb_sim_now(sim), 20);
    assert_int_equal(sem.available, 3);
}

static void release(uint64_t units)
{
    kb_sem_release(sim, &sem, units);
    tell_number("-", "gives", units);
}

/* c1 wants 5, c2 wants 1: 2 + 2 are not enough, + 1 serves c1 alone, + 3 serve c2. */
static void units_are_gathered_for_the_first(void **state)
{
    (void)state;
    spawn("c1", 1, is_served, &(customer){0, 5});
    spawn("c2", 2, is_served, &(customer){0, 1});
    at(1, release, 2);
    at(2, release, 2);
    at(3, release, 1);
    at(4, release, 3);
    run();
    expect_story("1 - gives 2; 2 - gives 2; 3 - gives 1; 3 c1 has 5; 4 - gives 3; 4 c2 has 1; ");
    assert_int_equal(sem.available, 8);
}

static void zero_units_wait_their_turn_too(void **state)
{
    (void)state;
    spawn("c1", 1, is_served, &(customer){0, 1});
    spawn("c2", 2, is_served, &(customer){0, 0});
    at(3, release, 1);
    run();
    expect_story("3 - gives 1; 3 c1 has 1; 3 c2 has 0; ");
    assert_true(kb_sem_try_acquire(&sem, 0));
}

static void try_takes_all_or_nothing(void **state)
{
    (void)state;
    sem.available = 3;
    assert_false(kb_sem_try_acquire(&sem, 4));
    assert_int_equal(sem.available, 3);
    assert_true(kb_sem_try_acquire(&sem, 2));
    assert_false(kb_sem_try_acquire(&sem, 2));
    assert_true(kb_sem_try_acquire(&sem, 1));
    assert_int_equal(sem.available, 0);
    kb_sem_release(sim, &sem, UINT64_C(1) << 40);
    assert_true(kb_sem_try_acquire(&sem, UINT64_C(1) << 40));
    assert_int_equal(kb_sim_get_stats(sim).pending, 0);
}

/* Handlers and coroutines share one queue: h1 before c1 before h2. */
static void handlers_and_coroutines_queue_together(void **state)
{
    (void)state;
    agent h1, h2;
    agent_init(&h1, "h1", 100);
    agent_init(&h2, "h2", 101);
    sem.available = 2;
    assert_true(kb_sem_acquire_then(&sem, 2, &h1.waiter)); /* at once, and no event */
    assert_int_equal(kb_sim_get_stats(sim).pending, 0);
    assert_false(kb_sem_acquire_then(&sem, 2, &h1.waiter));
    spawn("c1", 1, is_served, &(customer){0, 1});
    run_dry();
    assert_false(kb_sem_acquire_then(&sem, 1, &h2.waiter));
    at(3, release, 2);
    at(4, release, 1);
    run();
    expect_story("3 - gives 2; 3 h1 is called with 2; 4 - gives 1; 4 c1 has 1; "
                 "14 h2 is called with 1; ");
    assert_int_equal(sem.available, 0);
}

/* Many with random appetites: no unit is lost or made, and never more are out than there are. */
enum { UNITS = 7 };
static uint64_t held;
static int served;

static void takes_and_gives(kb_co *co, void *arg)
{
    kb_rng rng;
    kb_rng_init(&rng, test_seed((uintptr_t)arg));
    for (int i = 0; i < 30; i++) {
        uint64_t units = kb_rng_below(&rng, UNITS + 1);
        if (kb_rng_below(&rng, 4) > 0)
            kb_sem_acquire(co, &sem, units);
        else if (!kb_sem_try_acquire(&sem, units))
            units = 0;
        held += units;
        CHECK(held <= UNITS);
        kb_co_sleep(co, (kb_time)kb_rng_below(&rng, 4));
        held -= units;
        kb_sem_release(sim, &sem, units);
        kb_co_sleep(co, (kb_time)kb_rng_below(&rng, 20));
    }
    served++;
}

static void units_are_conserved(void **state)
{
    (void)state;
    sem.available = UNITS;
    held = 0;
    served = 0;
    for (uint32_t i = 0; i < 20; i++)
        spawn("customer", i, takes_and_gives, (void *)(uintptr_t)i);
    run();
    assert_int_equal(served, 20);
    assert_int_equal(sem.available, UNITS);
    assert_int_equal(held, 0);
}

/* ---- Channels ---- */

static void puts_words(kb_co *co, void *arg)
{
    for (const uint64_t *word = arg; *word; word++) {
        kb_channel_put(co, &channel, *word);
        tell_number(kb_co_name(co), "put", *word);
    }
}

static void gets_one(uint64_t number)
{
    (void)number;
    uint64_t word = 0;
    CHECK(kb_channel_try_get(sim, &channel, &word));
    tell_number("-", "got", word);
}

/* Capacity 2: two words are put at once, the third when the first is taken at 5, and so on. */
static void a_full_channel_blocks(void **state)
{
    (void)state;
    expect_ok(kb_channel_init(&channel, "channel", 2));
    spawn("c1", 1, puts_words, (uint64_t[]){11, 12, 13, 14, 0});
    for (kb_time t = 5; t <= 8; t++)
        at(t, gets_one, 0);
    run();
    expect_story("0 c1 put 11; 0 c1 put 12; 5 - got 11; 5 c1 put 13; 6 - got 12; 6 c1 put 14; "
                 "7 - got 13; 8 - got 14; ");
    uint64_t word = 99;
    assert_false(kb_channel_try_get(sim, &channel, &word));
    assert_int_equal(word, 99);
}

static void gets_words(kb_co *co, void *count)
{
    for (uintptr_t i = 0; i < (uintptr_t)count; i++)
        tell_number(kb_co_name(co), "got", kb_channel_get(co, &channel));
}

static void a_word_is_handed_to_one_who_waits(void **state)
{
    (void)state;
    expect_ok(kb_channel_init(&channel, "channel", 1));
    spawn("c1", 1, gets_words, (void *)1);
    spawn("c2", 2, gets_words, (void *)1);
    run_dry();
    assert_true(kb_channel_try_put(sim, &channel, 21));
    assert_int_equal(channel.count, 0); /* not by way of the queue */
    assert_true(kb_channel_try_put(sim, &channel, 22));
    assert_int_equal(channel.count, 0);
    assert_true(kb_channel_try_put(sim, &channel, 23));
    assert_int_equal(channel.count, 1);
    assert_false(kb_channel_try_put(sim, &channel, 24));
    run();
    expect_story("0 c1 got 21; 0 c2 got 22; ");
}

/*
 * Words 1 2 3 through a capacity of 1: c1 puts 1 and waits with 2. c2 takes 1, which lets 2 in and
 * c1 go on; c2 takes 2 as well before c1's turn and waits. c1 goes first by its id: it puts 3 into
 * the hands of c2.
 */
static void a_capacity_of_one_alternates(void **state)
{
    (void)state;
    expect_ok(kb_channel_init(&channel, "channel", 1));
    spawn("c1", 1, puts_words, (uint64_t[]){1, 2, 3, 0});
    spawn("c2", 2, gets_words, (void *)3);
    run();
    expect_story("0 c1 put 1; 0 c2 got 1; 0 c2 got 2; 0 c1 put 2; 0 c1 put 3; 0 c2 got 3; ");
    assert_int_equal(channel.count, 0);
}

/* Words of each producer arrive in order, and all of them; sums tell if any got lost or doubled. */
enum { PRODUCERS = 7, CONSUMERS = 5, WORDS = 100 };
static uint64_t last_seen[CONSUMERS][PRODUCERS], sum;

static void produces(kb_co *co, void *arg)
{
    uint64_t me = (uintptr_t)arg;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(me));
    for (uint64_t i = 1; i <= WORDS; i++) {
        kb_channel_put(co, &channel, me << 32 | i);
        kb_co_sleep(co, (kb_time)kb_rng_below(&rng, 5));
    }
    if (--served == 0)
        for (int i = 0; i < CONSUMERS; i++)
            kb_channel_put(co, &channel, 0);
}

static void consumes(kb_co *co, void *arg)
{
    uint64_t me = (uintptr_t)arg, word;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(1000 + me));
    while ((word = kb_channel_get(co, &channel)) != 0) {
        uint64_t from = word >> 32, number = word & UINT32_MAX;
        CHECK(from < PRODUCERS);
        CHECK(number > last_seen[me][from]);
        last_seen[me][from] = number;
        sum += number;
        kb_co_sleep(co, (kb_time)kb_rng_below(&rng, 4));
    }
}

static void many_produce_and_consume(void **state)
{
    (void)state;
    for (uint32_t capacity = 1; capacity <= 5; capacity++) {
        kb_channel_fini(&channel);
        expect_ok(kb_channel_init(&channel, "channel", capacity));
        memset(last_seen, 0, sizeof last_seen);
        sum = 0;
        served = PRODUCERS;
        for (uint32_t i = 0; i < PRODUCERS; i++)
            spawn("producer", 2 * i, produces, (void *)(uintptr_t)i);
        for (uint32_t i = 0; i < CONSUMERS; i++)
            spawn("consumer", 2 * i + 1, consumes, (void *)(uintptr_t)i);
        run();
        assert_int_equal(sum, PRODUCERS * WORDS * (WORDS + 1) / 2);
        assert_int_equal(channel.count, 0);
    }
}

/* h1 and h2 wait to put behind c1, which does; then h1, c2 and h2 wait to get. */
static void handlers_put_and_get_in_turn(void **state)
{
    (void)state;
    agent h1, h2;
    agent_init(&h1, "h1", 100);
    agent_init(&h2, "h2", 101);
    expect_ok(kb_channel_init(&channel, "channel", 1));
    assert_true(kb_channel_put_then(sim, &channel, 31, &h1.waiter));
    spawn("c1", 1, puts_words, (uint64_t[]){32, 0});
    run_dry();
    assert_false(kb_channel_put_then(sim, &channel, 33, &h1.waiter));
    assert_false(kb_channel_put_then(sim, &channel, 34, &h2.waiter));
    for (kb_time t = 1; t <= 4; t++)
        at(t, gets_one, 0);
    run();
    expect_story("1 - got 31; 1 c1 put 32; 2 - got 32; 2 h1 is called with 33; 3 - got 33; "
                 "3 h2 is called with 34; 4 - got 34; ");

    assert_true(kb_channel_try_put(sim, &channel, 41));
    assert_true(kb_channel_get_then(sim, &channel, &h1.waiter)); /* at once, and no event */
    assert_int_equal(h1.waiter.value, 41);
    assert_int_equal(kb_sim_get_stats(sim).pending, 0);
    assert_false(kb_channel_get_then(sim, &channel, &h1.waiter));
    spawn("c2", 2, gets_words, (void *)1);
    run_dry();
    assert_false(kb_channel_get_then(sim, &channel, &h2.waiter));
    spawn("c3", 3, puts_words, (uint64_t[]){42, 43, 44, 0});
    run(); /* c3 need not wait; then those it served, by their ids */
    expect_story("4 c3 put 42; 4 c3 put 43; 4 c3 put 44; 4 c2 got 43; 4 h1 is called with 42; "
                 "4 h2 is called with 44; ");
}

static void a_channel_has_a_capacity(void **state)
{
    (void)state;
    expect_error(kb_channel_init(&channel, "narrow", 0), KB_ERR_BUG,
                 "channel 'narrow' has no capacity: expected at least 1");
    kb_channel_fini(&channel); /* also after a failure, and twice */
}

/* ---- What costs nothing, and cancelling ---- */

static void does_not_have_to_wait(kb_co *co, void *arg)
{
    (void)arg;
    kb_sim_stats before = kb_sim_get_stats(sim);
    for (uint64_t i = 0; i < 100; i++) {
        kb_sem_acquire(co, &sem, 3);
        kb_sem_release(sim, &sem, 3);
        kb_channel_put(co, &channel, i);
        kb_channel_put(co, &channel, i + 1);
        CHECK(kb_channel_get(co, &channel) == i);
        CHECK(kb_channel_get(co, &channel) == i + 1);
        kb_wake_all(sim, &list);
        CHECK(!kb_wake_one(sim, &list));
    }
    kb_sim_stats after = kb_sim_get_stats(sim);
    CHECK(after.events == before.events && after.elided == before.elided);
    CHECK(after.resumes == before.resumes && after.cancelled == before.cancelled);
    CHECK(after.pending == 0 && after.max_pending == before.max_pending);
}

static void what_need_not_wait_costs_no_event(void **state)
{
    (void)state;
    sem.available = 3;
    expect_ok(kb_channel_init(&channel, "channel", 2));
    spawn("c1", 1, does_not_have_to_wait, NULL);
    run();
    assert_int_equal(kb_sim_get_stats(sim).events, 1);
    assert_int_equal(kb_sim_get_stats(sim).elided, 0);
}

/* First, middle and last are taken out; the others keep their order. */
static void a_waiter_can_be_cancelled(void **state)
{
    (void)state;
    agent h[5];
    static const char *const names[] = {"h0", "h1", "h2", "h3", "h4"};
    for (uint32_t i = 0; i < 5; i++) {
        agent_init(&h[i], names[i], 104 - i);
        kb_wait_then(&list, &h[i].waiter);
    }
    assert_true(kb_waiter_cancel(sim, &h[2].waiter));
    assert_true(kb_waiter_cancel(sim, &h[0].waiter));
    assert_true(kb_waiter_cancel(sim, &h[4].waiter));
    assert_false(kb_waiter_cancel(sim, &h[4].waiter));
    kb_wait_then(&list, &h[0].waiter); /* it may come back, at the end */
    for (kb_time t = 1; t <= 3; t++)
        at(t, wake, 1);
    run();
    expect_story("1 - woke 1; 1 h1 is called with 0; 2 - woke 1; 2 h3 is called with 0; "
                 "3 - woke 1; 3 h0 is called with 0; ");
    assert_false(kb_waiter_cancel(sim, &h[0].waiter)); /* it has been called */
    assert_null(list.head);
    assert_null(list.tail);
}

/* Those behind one that was cancelled are looked at with the next release, be it of nothing. */
static void a_cancelled_request_takes_no_units(void **state)
{
    (void)state;
    agent h;
    agent_init(&h, "h", 100);
    sem.available = 2;
    assert_false(kb_sem_acquire_then(&sem, 3, &h.waiter));
    spawn("c1", 1, is_served, &(customer){0, 1});
    run_dry();
    assert_true(kb_waiter_cancel(sim, &h.waiter));
    kb_sem_release(sim, &sem, 0);
    run();
    expect_story("0 c1 has 1; ");
    assert_int_equal(sem.available, 2);

    expect_ok(kb_channel_init(&channel, "channel", 1));
    assert_false(kb_channel_get_then(sim, &channel, &h.waiter));
    assert_true(kb_waiter_cancel(sim, &h.waiter));
    assert_true(kb_channel_try_put(sim, &channel, 51)); /* stays: nothing waits for it */
    assert_int_equal(channel.count, 1);
    assert_false(kb_channel_put_then(sim, &channel, 52, &h.waiter));
    assert_true(kb_waiter_cancel(sim, &h.waiter));
    gets_one(0);
    assert_int_equal(channel.count, 0); /* 52 was never put */
    expect_story("10 - got 51; ");
}

/* After a run that failed things may go in any order: who waited there waits for nothing. */
static void a_channel_can_go_while_somebody_waits(void **state)
{
    (void)state;
    static kb_waiter waiter;
    kb_channel gone;
    expect_ok(kb_channel_init(&gone, "gone", 1));
    assert_false(kb_channel_get_then(sim, &gone, &waiter));
    kb_channel_fini(&gone);
    assert_false(kb_waiter_cancel(sim, &waiter));
}

static kb_waiter twice;

static void wait_twice(void)
{
    kb_wait_then(&list, &twice);
    kb_wait_then(&list, &twice);
}

static void wrong_use_is_an_assertion(void **state)
{
    (void)state;
    expect_abort(wait_twice, "assertion failed: !waiter->list");
}

#define T(test) cmocka_unit_test_setup_teardown(test, start, finish)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(the_first_to_wait_is_the_first_woken),
        T(those_woken_together_go_on_in_order_of_id),
        T(all_are_woken_at_once),
        T(waking_all_does_not_wake_those_who_come_back),
        T(a_wait_ends_by_waking_or_by_its_deadline),
        T(a_waker_at_the_deadline_comes_by_its_id),
        T(a_deadline_may_be_now_or_past),
        T(a_deadline_that_is_now_leaves_time_to_be_woken),
        T(nobody_overtakes),
        T(units_are_gathered_for_the_first),
        T(zero_units_wait_their_turn_too),
        T(try_takes_all_or_nothing),
        T(handlers_and_coroutines_queue_together),
        T(units_are_conserved),
        T(a_full_channel_blocks),
        T(a_word_is_handed_to_one_who_waits),
        T(a_capacity_of_one_alternates),
        T(many_produce_and_consume),
        T(handlers_put_and_get_in_turn),
        T(a_channel_has_a_capacity),
        T(what_need_not_wait_costs_no_event),
        T(a_waiter_can_be_cancelled),
        T(a_cancelled_request_takes_no_units),
        T(a_channel_can_go_while_somebody_waits),
        T(wrong_use_is_an_assertion),
    };
    elision = true;
    int failed = cmocka_run_group_tests_name("wait", tests, NULL, NULL);
    elision = false;
    return failed + cmocka_run_group_tests_name("wait without elision", tests, NULL, NULL);
}
