/*
 * test_coroutine.c: coroutines: their order and times, what survives a switch, stacks and spawning.
 * test_unwinding.c has how they end. Everything runs twice: with elision and without.
 *
 * Checks C3.
 */
#include "sim/story.h"

#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#else
#define RUNNING_ON_VALGRIND 0
#endif

static int start(void **state)
{
    (void)state;
    return begin_story();
}

static int finish(void **state)
{
    (void)state;
    kb_sim_destroy(sim);
    sim = NULL;
    return problems;
}

/* ---- Order and time ---- */

static void they_start_in_order_of_source_id(void **state)
{
    (void)state;
    spawn("five", 5, tells_start, NULL);
    spawn("three", 3, tells_start, NULL);
    spawn("last", KB_SOURCE_ID_MAX, tells_start, NULL);
    spawn("zero", 0, tells_start, NULL);
    spawn("nine", 9, tells_start, NULL);
    expect_story(""); /* not before run */
    run();
    expect_story("0 zero starts; 0 three starts; 0 five starts; 0 nine starts; 0 last starts; ");
    assert_int_equal(kb_sim_get_stats(sim).resumes, 5);
    expect_nothing_left();
}

/*
 * a: 0 + 3 = 3, + 4 ns = 4000003. b: 0 + 1 = 1, + 2 = 3 (after a, whose id is lower), + 1 = 4.
 */
static void sleeps_take_exactly_as_long_as_asked(void **state)
{
    (void)state;
    spawn("b", 2, sleeps, (kb_time[]){1, 2, 1, -1});
    spawn("a", 1, sleeps, (kb_time[]){3, 4 * KB_NS, -1});
    run();
    expect_story("0 a starts; 0 b starts; 1 b slept; 3 a slept; 3 b slept; 4 b slept; "
                 "4000003 a slept; ");
    assert_int_equal(kb_sim_now(sim), 4000003);
    expect_nothing_left();
}

/* Sleeps that span the ends of runs: 5, 10, 15; the runs end at 5, 7 and 12. */
static void sleeps_go_on_in_a_later_run(void **state)
{
    (void)state;
    spawn("a", 1, sleeps, (kb_time[]){5, 5, 5, -1});
    expect_ok(kb_sim_run(sim, 5));
    expect_story("0 a starts; 5 a slept; ");
    expect_ok(kb_sim_run(sim, 7));
    assert_int_equal(kb_sim_now(sim), 7);
    expect_story("");
    expect_ok(kb_sim_run(sim, 12));
    expect_story("10 a slept; ");
    run();
    expect_story("15 a slept; ");
}

static kb_waitlist bell;

static void wakes_and_sleeps_0(kb_co *co, void *list)
{
    tell(kb_co_name(co), "starts");
    kb_wake_one(sim, list);
    kb_co_sleep(co, 0);
    tell(kb_co_name(co), "goes on");
}

/* Woken at time 0: early (id 1) comes before mid (id 2), late (id 3) after it. */
static void sleep_of_0_lets_earlier_ones_go_first(void **state)
{
    (void)state;
    kb_waitlist_init(&bell, "bell");
    spawn("late", 3, tells_start, NULL);
    spawn("mid", 2, wakes_and_sleeps_0, &bell);
    spawn("early", 1, waits, &bell);
    run();
    expect_story("0 early waits; 0 mid starts; 0 early goes on; 0 mid goes on; 0 late starts; ");
}

static void counts_keys(kb_co *co, void *arg)
{
    uint64_t before = kb_co_source(co)->next_key;
    sleeps(co, arg);
    CHECK(kb_co_source(co)->next_key == before + 5);
}

/*
 * One start is an event; five sleeps alone need none, and without elision one each. They take a key
 * each in any case, so that what is scheduled later has the same key.
 */
static void lonely_sleeps_are_elided(void **state)
{
    (void)state;
    spawn("a", 1, counts_keys, (kb_time[]){1, 2, 0, 3, 4, -1});
    run();
    kb_sim_stats stats = kb_sim_get_stats(sim);
    assert_int_equal(stats.elided, elision ? 5 : 0);
    assert_int_equal(stats.events, elision ? 1 : 6);
    assert_int_equal(stats.resumes, elision ? 1 : 6);
    assert_int_equal(kb_sim_now(sim), 10);
}

/* 10 + (KB_FOREVER - 11) is the last instant there is. */
static void the_last_instant_is_reached(void **state)
{
    (void)state;
    spawn("a", 1, sleeps, (kb_time[]){10, KB_FOREVER - 11, -1});
    run();
    assert_true(kb_sim_now(sim) == KB_FOREVER - 1);
    expect_nothing_left();
}

/* Sleeps until `beyond` past the end of time. */
static void sleeps_for_ever(kb_co *co, void *beyond)
{
    kb_co_sleep(co, 10);
    kb_time left = KB_FOREVER - kb_sim_now(sim);
    kb_time more = *(const kb_time *)beyond;
    kb_co_sleep(co, more > KB_FOREVER - left ? KB_FOREVER : left + more);
    tell(kb_co_name(co), "woke up");
}

/* The clock ends at KB_FOREVER - 1: a sleep beyond that is refused, and says when and whose. */
static void sleep_past_the_end_of_the_clock_is_refused(void **state)
{
    (void)state;
    kb_time beyond[] = {0, 1, KB_FOREVER};
    for (int i = 0; i < 3; i++) {
        spawn("sleeper", 1, sleeps_for_ever, &beyond[i]);
        kb_error *err = kb_sim_run(sim, KB_FOREVER);
        assert_int_equal(kb_sim_get_stats(sim).coroutines, 1);
        assert_int_equal(kb_sim_now(sim), 10 * (i + 1));
        char message[256];
        snprintf(message, sizeof message,
                 "simulated time exceeds its limit of 9,223 s: a wait of sleeper that begins at "
                 "0.0000%d0 ns would end later; use faster figures (shorter cycles and latencies, "
                 "more bandwidth) or less work",
                 i + 1);
        expect_error(err, KB_ERR_INPUT, message);
        kb_sim_abandon(sim);
        expect_nothing_left();
        expect_story("");
    }
}

static void sleeps_backwards(kb_co *co, void *arg)
{
    (void)arg;
    kb_co_sleep(co, 7);
    kb_co_sleep(co, -2);
    tell(kb_co_name(co), "woke up");
}

static void sleeping_backwards_fails(void **state)
{
    (void)state;
    spawn("a", 1, sleeps_backwards, NULL);
    expect_error(kb_sim_run(sim, KB_FOREVER), KB_ERR_FAULT,
                 "event scheduled in the past: at 5 fs, now 7 fs, by a");
    expect_story("");
    assert_int_equal(kb_sim_get_stats(sim).coroutines, 1);
    kb_sim_abandon(sim);
    expect_nothing_left();
}

/* ---- What survives a switch ---- */

/* Fills each frame with numbers, sleeps, and sums them up on the way back. Does not sleep if NULL.
 */
static __attribute__((noinline)) uint64_t descend(kb_co *co, uint64_t seed, int depth)
{
    uint64_t words[16];
    for (int i = 0; i < 16; i++)
        words[i] = kb_splitmix64(&seed);
    if (co)
        kb_co_sleep(co, (kb_time)(words[0] % 5));
    uint64_t sum = depth > 0 ? descend(co, words[1], depth - 1) : 0;
    if (co)
        kb_co_sleep(co, (kb_time)(words[2] % 5));
    for (int i = 0; i < 16; i++)
        sum = sum * 31 + words[i];
    return sum;
}

static int finished;

static void compares_sums(kb_co *co, void *arg)
{
    uint64_t seed = (uintptr_t)arg;
    int depth = 10 + (int)(seed % 20);
    CHECK(descend(co, seed, depth) == descend(NULL, seed, depth));
    finished++;
}

static void locals_survive_at_every_depth(void **state)
{
    (void)state;
    finished = 0;
    for (uint32_t i = 0; i < 40; i++)
        spawn("deep", i, compares_sums, (void *)(uintptr_t)(i * 7));
    run();
    assert_int_equal(finished, 40);
}

static double series(kb_co *co, int seed)
{
    float single = 0;
    double sum = 0;
    long double exact = 0;
    for (int i = 1; i < 50; i++) {
        single += 1.0f / (float)(i + seed);
        sum += 1.0 / (i * seed);
        exact += 1.0L / (i * i + seed);
        if (co)
            kb_co_sleep(co, i % 3);
    }
    return (double)single + sum + (double)exact;
}

static void compares_series(kb_co *co, void *arg)
{
    int seed = (int)(uintptr_t)arg;
    double mine = series(co, seed), alone = series(NULL, seed);
    CHECK(memcmp(&mine, &alone, sizeof mine) == 0);
    finished++;
}

static void floating_point_survives(void **state)
{
    (void)state;
    finished = 0;
    for (uint32_t i = 1; i <= 20; i++)
        spawn("float", i, compares_series, (void *)(uintptr_t)i);
    run();
    assert_int_equal(finished, 20);
}

#ifdef __x86_64__

/*
 * void call_with_registers(sleep, co, duration, const uint64_t in[6], uint64_t out[6]): puts `in`
 * into the registers that a call must preserve, calls sleep(co, duration), and stores them.
 */
__asm__(".text\n"
        ".type call_with_registers, @function\n"
        "call_with_registers:\n"
        "    push %rbp\n    push %rbx\n    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
        "    push %r8\n" /* aligns the stack as well */
        "    mov %rdi, %rax\n    mov %rsi, %rdi\n    mov %rdx, %rsi\n"
        "    mov 0(%rcx), %rbp\n    mov 8(%rcx), %rbx\n    mov 16(%rcx), %r12\n"
        "    mov 24(%rcx), %r13\n    mov 32(%rcx), %r14\n    mov 40(%rcx), %r15\n"
        "    call *%rax\n"
        "    pop %r8\n"
        "    mov %rbp, 0(%r8)\n    mov %rbx, 8(%r8)\n    mov %r12, 16(%r8)\n"
        "    mov %r13, 24(%r8)\n    mov %r14, 32(%r8)\n    mov %r15, 40(%r8)\n"
        "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbx\n    pop %rbp\n"
        "    ret\n"
        ".size call_with_registers, . - call_with_registers\n");
void call_with_registers(void (*sleep)(kb_co *, kb_time), kb_co *co, kb_time duration,
                         const uint64_t in[6], uint64_t out[6]);

static void keeps_registers(kb_co *co, void *arg)
{
    uint64_t seed = (uintptr_t)arg, in[6], out[6] = {0};
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 6; i++)
            in[i] = kb_splitmix64(&seed);
        call_with_registers(kb_co_sleep, co, round % 4, in, out);
        CHECK(memcmp(in, out, sizeof in) == 0);
    }
    finished++;
}

static void callee_saved_registers_survive(void **state)
{
    (void)state;
    finished = 0;
    for (uint32_t i = 1; i <= 10; i++)
        spawn("registers", i, keeps_registers, (void *)(uintptr_t)i);
    run();
    assert_int_equal(finished, 10);
}

#endif

typedef double pair __attribute__((vector_size(16)));

static bool aligned(const void *address, uintptr_t to)
{
    __asm__("" : "+r"(address)); /* the compiler must not conclude it from the declaration */
    return (uintptr_t)address % to == 0;
}

static void uses_aligned_locals(kb_co *co, void *arg)
{
    (void)arg;
    CHECK(
        aligned(__builtin_frame_address(0), 16)); /* where the caller's address and rbp were put */
    pair two = {1.5, 2.5};
    _Alignas(32) double four[4] = {1, 2, 3, 4};
    _Alignas(64) char line[64] = {0};
    __asm__("" : "+m"(two), "+m"(four), "+m"(line));
    kb_co_sleep(co, 1);
    two += (pair){four[0], four[3]};
    CHECK(aligned(&two, 16) && aligned(four, 32) && aligned(line, 64));
    snprintf(line, sizeof line, "%.3f %.1f %Lg", two[0], two[1], 0.25L);
    tell(kb_co_name(co), line);
}

static void the_stack_is_aligned(void **state)
{
    (void)state;
    spawn("a", 1, uses_aligned_locals, NULL);
    spawn("b", 2, uses_aligned_locals, NULL);
    run();
    expect_story("1 a 2.500 6.5 0.25; 1 b 2.500 6.5 0.25; ");
}

/* ---- Stacks ---- */

static void counts(kb_co *co, void *counter)
{
    (void)co;
    ++*(uint64_t *)counter;
}

/* Where much costs too much; ThreadSanitizer takes a few thousand coroutines at most. */
static uint32_t fewer(uint32_t count)
{
#ifdef KB_TSAN
    return count / 100;
#else
    return RUNNING_ON_VALGRIND ? count / 10 : count;
#endif
}

static void spawns_one_after_another(kb_co *co, void *counter)
{
    for (uint32_t i = 0; i < fewer(100000); i++) {
        spawn("child", 1 + i % 1000, counts, counter);
        kb_co_sleep(co, 1);
        if (*(uint64_t *)counter != i + 1)
            break;
    }
    CHECK(sim->stacks.mapped == 2); /* its own and its child's */
}

static void stacks_are_reused(void **state)
{
    (void)state;
    uint64_t counter = 0;
    spawn("parent", 0, spawns_one_after_another, &counter);
    run();
    assert_int_equal(counter, fewer(100000));
    assert_int_equal(kb_sim_now(sim), fewer(100000));
    expect_nothing_left();
}

static void sleeps_and_waits(kb_co *co, void *counter)
{
    uint64_t mine = ++*(uint64_t *)counter;
    kb_co_sleep(co, (kb_time)(mine % 7));
    kb_wait(co, &bell);
    ++*(uint64_t *)counter;
}

/* All start at 0, wait by 6 and are woken from outside; the second wave needs no new stacks. */
static void ten_thousand_are_alive_at_once(void **state)
{
    (void)state;
    const uint32_t count = fewer(10000);
    kb_waitlist_init(&bell, "bell");
    for (int wave = 0; wave < 2; wave++) {
        uint64_t counter = 0;
        for (uint32_t i = 0; i < count; i++)
            spawn("one of many", count - i, sleeps_and_waits, &counter);
        kb_error *err = kb_sim_run(sim, KB_FOREVER);
        assert_int_equal(kb_error_code(err), KB_ERR_DEADLOCK);
        kb_error_free(err);
        assert_int_equal(counter, count);
        assert_int_equal(kb_sim_get_stats(sim).coroutines, count);
        assert_int_equal(kb_sim_now(sim), 6 * (wave + 1));
        kb_wake_all(sim, &bell);
        run();
        assert_int_equal(counter, 2 * count);
        assert_int_equal(sim->stacks.mapped, count);
        expect_nothing_left();
    }
}

static void uses_much_stack(kb_co *co, void *arg)
{
    char large[900 * 1024];
    memset(large, (int)(uintptr_t)arg, sizeof large);
    __asm__ volatile("" : "+m"(large));
    kb_co_sleep(co, 1);
    for (size_t i = 0; i < sizeof large; i += 1000)
        CHECK(large[i] == (char)(uintptr_t)arg);
    finished++;
}

static void the_size_of_stacks_can_be_set(void **state)
{
    (void)state;
    kb_sim_destroy(sim);
    kb_sim_options options = {.stack_bytes = 1024 * 1024, .no_elision = !elision};
    expect_ok(kb_sim_create(&options, &sim));
    finished = 0;
    for (uint32_t i = 0; i < 3; i++)
        spawn("large", i, uses_much_stack, (void *)(uintptr_t)(i + 1));
    run();
    assert_int_equal(finished, 3);
}

static void an_overflow_can_be_told(void **state)
{
    (void)state;
    kb_waitlist_init(&bell, "bell");
    kb_co *a = spawn("a", 1, waits, &bell);
    kb_co *b = spawn("b", 2, waits, &bell);
    for (int i = 0; i < 2; i++) {
        const char *low = kb_stack_low((i ? b : a)->stack), *name = i ? "b" : "a";
        assert_string_equal(kb_sim_stack_overflow(sim, low - 1), name);
        assert_string_equal(kb_sim_stack_overflow(sim, low - KB_STACK_GUARD), name);
        assert_null(kb_sim_stack_overflow(sim, low));
        assert_null(kb_sim_stack_overflow(sim, low + sim->stacks.bytes - 1));
    }
    assert_null(kb_sim_stack_overflow(sim, NULL));
    assert_null(kb_sim_stack_overflow(sim, &state));
    kb_co_kill(a);
    assert_null(kb_sim_stack_overflow(sim, kb_stack_low(a->stack) - 1));
    kb_co_kill(b);
    assert_null(kb_sim_stack_overflow(sim, NULL));
}

/* ---- Spawning ---- */

static void spawns_a_family(kb_co *co, void *arg)
{
    (void)arg;
    tell(kb_co_name(co), "starts");
    kb_co_sleep(co, 4);
    spawn("younger", 1, tells_start, NULL); /* before it in order: at once when it gives way */
    spawn("elder", 9, tells_start, NULL);
    tell(kb_co_name(co), "has spawned");
    kb_co_sleep(co, 0);
    tell(kb_co_name(co), "goes on");
}

static void handler_spawns(kb_sim *s, void *self, uint64_t arg)
{
    (void)s;
    (void)self;
    (void)arg;
    static kb_time durations[] = {1, -1};
    tell("handler", "spawns");
    spawn("child", 2, sleeps, durations);
}

static void they_are_spawned_from_coroutines_and_handlers(void **state)
{
    (void)state;
    spawn("parent", 5, spawns_a_family, NULL);
    call_at(6, handler_spawns, NULL);
    run();
    expect_story("0 parent starts; 4 parent has spawned; 4 younger starts; 4 parent goes on; "
                 "4 elder starts; 6 handler spawns; 6 child starts; 7 child slept; ");
}

static void checks_itself(kb_co *co, void *arg)
{
    CHECK(kb_co_sim(co) == sim);
    CHECK(*(kb_co **)arg == co);
    CHECK(kb_co_source(co)->next_key >> 40 == 77);
    tell(kb_co_name(co), "is well");
}

static void names_are_copied_and_cut(void **state)
{
    (void)state;
    char name[] = "a name that is by far longer than the field which holds names";
    kb_co *handle = NULL;
    handle = spawn(name, 77, checks_itself, &handle);
    memset(name, 'x', sizeof name - 1);
    assert_string_equal(kb_co_name(handle), "a name that is by far longer than the field whi");
    run();
    expect_story("0 a name that is by far longer than the field whi is well; ");
    handle = spawn(NULL, 77, checks_itself, &handle);
    run();
    expect_story("0 coroutine is well; ");
}

static void a_source_id_must_be_small(void **state)
{
    (void)state;
    kb_co_options options = {.name = "a", .source_id = KB_SOURCE_ID_MAX + 1};
    expect_error(kb_co_spawn(sim, &options, tells_start, NULL, NULL), KB_ERR_BUG,
                 "coroutine 'a': source id 16777216 exceeds the maximum of 16777215");
    expect_nothing_left();
}

#define T(test) cmocka_unit_test_setup_teardown(test, start, finish)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(they_start_in_order_of_source_id),
        T(sleeps_take_exactly_as_long_as_asked),
        T(sleeps_go_on_in_a_later_run),
        T(sleep_of_0_lets_earlier_ones_go_first),
        T(lonely_sleeps_are_elided),
        T(the_last_instant_is_reached),
        T(sleep_past_the_end_of_the_clock_is_refused),
        T(sleeping_backwards_fails),
        T(locals_survive_at_every_depth),
        T(floating_point_survives),
#ifdef __x86_64__
        T(callee_saved_registers_survive),
#endif
        T(the_stack_is_aligned),
        T(stacks_are_reused),
        T(ten_thousand_are_alive_at_once),
        T(the_size_of_stacks_can_be_set),
        T(an_overflow_can_be_told),
        T(they_are_spawned_from_coroutines_and_handlers),
        T(names_are_copied_and_cut),
        T(a_source_id_must_be_small),
    };
    elision = true;
    int failed = cmocka_run_group_tests_name("coroutine", tests, NULL, NULL);
    elision = false;
    return failed + cmocka_run_group_tests_name("coroutine without elision", tests, NULL, NULL);
}
