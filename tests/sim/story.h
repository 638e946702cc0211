/*
 * story.h: what tests of coroutines share: a simulator, and a story that coroutines and handlers
 * tell, "time name what; ..." with times in fs, to be compared with the one expected.
 */
#ifndef TESTS_SIM_STORY_H
#define TESTS_SIM_STORY_H

#include "support/expect.h"

#include <inttypes.h>

#include "base/base.h"
#include "sim/engine.h"

static bool elision;
static kb_sim *sim;
static char story[8192];
static size_t told;
static int problems; /* of checks inside coroutines, where cmocka cannot jump out */

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            print_error("%s:%d: not so: %s\n", __FILE__, __LINE__, #cond);                         \
            problems++;                                                                            \
        }                                                                                          \
    } while (0)

/* A new simulator and an empty story; true if there is none. */
static inline bool begin_story(void)
{
    story[0] = '\0';
    told = 0;
    problems = 0;
    kb_error *err = kb_sim_create(&(kb_sim_options){.no_elision = !elision}, &sim);
    bool failed = err != NULL;
    kb_error_free(err);
    return failed;
}

static inline void tell(const char *who, const char *what)
{
    told += (size_t)snprintf(story + told, sizeof story - told, "%" PRId64 " %s %s; ",
                             kb_sim_now(sim), who, what);
    if (told >= sizeof story)
        fail_msg("the story is too long");
}

/* Compares, and begins a new one. */
static inline void expect_story(const char *expected)
{
    assert_string_equal(story, expected);
    story[0] = '\0';
    told = 0;
}

static inline kb_co *spawn(const char *name, uint32_t id, kb_co_fn *fn, void *arg)
{
    kb_co *co = NULL;
    kb_error *err = kb_co_spawn(sim, &(kb_co_options){.name = name, .source_id = id}, fn, arg, &co);
    CHECK(!err);
    kb_error_free(err);
    return co;
}

static inline void run(void)
{
    expect_ok(kb_sim_run(sim, KB_FOREVER));
}

static kb_source handlers = {UINT64_C(1000) << 40}; /* after the coroutines, which have low ids */

/* Calls a handler. */
static inline void call_at(kb_time when, kb_handler_fn *fn, void *self)
{
    kb_handler handler;
    expect_ok(kb_sim_add_handler(sim, fn, self, &handler));
    kb_sim_at(sim, &handlers, when, handler, 0);
}

/* Nothing is left of any coroutine. */
static inline void expect_nothing_left(void)
{
    kb_sim_stats stats = kb_sim_get_stats(sim);
    assert_int_equal(stats.coroutines, 0);
    assert_int_equal(stats.pending, 0);
    assert_null(sim->coroutines);
    assert_null(sim->current);
}

/* ---- Coroutines that many tests use ---- */

static inline void tells_start(kb_co *co, void *arg)
{
    (void)arg;
    tell(kb_co_name(co), "starts");
}

/* Sleeps for each of the durations, up to the first negative one. */
static inline void sleeps(kb_co *co, void *durations)
{
    tell(kb_co_name(co), "starts");
    for (const kb_time *duration = durations; *duration >= 0; duration++) {
        kb_co_sleep(co, *duration);
        tell(kb_co_name(co), "slept");
    }
}

static inline void waits(kb_co *co, void *list)
{
    tell(kb_co_name(co), "waits");
    kb_wait(co, list);
    tell(kb_co_name(co), "goes on");
}

#endif
