/*
 * test_interleaving.c: random programs for coroutines and handlers, run by the engine and by an
 * interpreter that shares no code with it; both must do the same at the same time.
 *
 * A program has actors, each with a list of operations: a coroutine performs them one after
 * another, an agent is a handler that does the same with the _then calls. They sleep, use
 * semaphores, channels and wait lists, spawn and kill each other, push and pop cleanups (each of
 * which is an operation again), and stop or fail the run. Between runs somebody acts from outside.
 * Times are small, so that much happens at one instant.
 *
 * What is compared: a trace of (time, actor, operation, result), the outcome and words of each run,
 * and the counts of events, with elision and without.
 */
#include "interleaving.h"

#include <inttypes.h>

#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#else
#define RUNNING_ON_VALGRIND 0
#endif

#if defined(KB_TSAN)
enum { PROGRAMS = 500 };
#elif defined(KB_ASAN)
enum { PROGRAMS = 5000 };
#else
enum { PROGRAMS = 20000 };
#endif

static const char *const kind_names[] = {
    "sleep",   "acquire", "put",      "get",      "wait",  "wait_until", "try_acquire", "release",
    "try_put", "try_get", "wake_one", "wake_all", "spawn", "kill",       "post",        "unpost",
    "cancel",  "stop",    "fail",     "exit",     "push",  "pop",
};

static void print_entry(const char *who, const program *p, const trace *t, int i)
{
    if (i >= t->count) {
        print_error("  %s: nothing more\n", who);
        return;
    }
    const entry *e = &t->entries[i];
    const char *name = e->op < LENGTH && e->actor < ACTORS
                           ? kind_names[p->ops[e->actor][e->op].kind]
                       : e->op < CLEANUP  ? "outside"
                       : e->op < NOTE     ? "cleanup"
                       : e->op == NOTE    ? "note"
                       : e->op == STARTED ? "started"
                       : e->op == ENDED   ? "ended"
                       : e->op == GONE    ? "gone"
                                          : "ran";
    print_error("  %s: at %" PRId64 " actor %d op %d (%s) gives %" PRIu64 "%s%s\n", who, e->time,
                e->actor, e->op, name, e->result, e->op == RAN ? ": " : "",
                e->op == RAN ? t->words[e->result] : "");
}

static bool same_entry(const trace *a, const trace *b, int i)
{
    const entry *x = &a->entries[i], *y = &b->entries[i];
    return x->time == y->time && x->actor == y->actor && x->op == y->op && x->result == y->result &&
           (x->op != RAN || strcmp(a->words[x->result], b->words[y->result]) == 0);
}

static void compare(uint64_t seed, const program *p, bool elision, const trace *expected,
                    const trace *found)
{
    int i = 0;
    while (i < expected->count && i < found->count && same_entry(expected, found, i))
        i++;
    if (i < expected->count || i < found->count) {
        print_error("program %" PRIu64 " %s elision differs after %d steps\n", seed,
                    elision ? "with" : "without", i);
        for (int before = i < 5 ? 0 : i - 5; before < i; before++)
            print_entry("both", p, expected, before);
        print_entry("expected", p, expected, i);
        print_entry("found", p, found, i);
        fail();
    }
    if (found->events != expected->events || found->cancelled != expected->cancelled ||
        (!elision && found->resumes != expected->resumes))
        fail_msg("program %" PRIu64 ": %" PRIu64 " events, %" PRIu64 " cancelled, %" PRIu64
                 " resumes; expected %" PRIu64 ", %" PRIu64 ", %" PRIu64,
                 seed, found->events, found->cancelled, found->resumes, expected->events,
                 expected->cancelled, expected->resumes);
}

static void the_engine_does_what_the_reference_does(void **state)
{
    (void)state;
    static trace expected, found;
    static program p;
    const uint64_t programs = RUNNING_ON_VALGRIND ? PROGRAMS / 100 : PROGRAMS;
    uint64_t steps = 0, seen[KINDS] = {0};
    uint64_t outcomes[5] = {0};
    for (uint64_t seed = 0; seed < programs; seed++) {
        draw_program(&p, seed);
        run_reference(&p, &expected);
        assert_true(expected.count < ENTRIES);
        for (int elision = 0; elision < 2; elision++) {
            run_engine(&p, elision, &found);
            compare(seed, &p, elision, &expected, &found);
        }
        steps += (uint64_t)expected.count;
        for (int i = 0; i < expected.count; i++) {
            const entry *e = &expected.entries[i];
            if (e->actor < ACTORS && e->op < LENGTH)
                seen[p.ops[e->actor][e->op].kind]++;
        }
        for (int i = 0; i < expected.runs; i++)
            outcomes[expected.words[i][0] - '0']++;
    }
    /* The programs are worth running: they get far, and everything occurs. */
    print_message("%" PRIu64 " programs, %" PRIu64 " steps\n", programs, steps);
    assert_true(steps > 40 * programs);
    for (kind k = SLEEP; k < KINDS; k++)
        if (k != EXIT && seen[k] < programs / 20)
            fail_msg("%s occurs only %" PRIu64 " times", kind_names[k], seen[k]);
    assert_true(outcomes[KB_OK] > programs / 2);
    assert_true(outcomes[KB_ERR_DEADLOCK] > programs / 2);
    assert_true(outcomes[KB_ERR_FAULT] > programs / 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_engine_does_what_the_reference_does),
    };
    return cmocka_run_group_tests_name("interleaving", tests, NULL, NULL);
}
