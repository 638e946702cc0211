/*
 * test_tcm_port.c: a direction of the TCM, by hand, and against a diary that says what has each
 * instant.
 */
#include "support/expect.h"
#include "support/failing_alloc.h"
#include "support/seed.h"

#include "pe/tcm_port.h"

static kb_time book(tcm_port *port, kb_time now, kb_time begin, kb_time work)
{
    kb_time done;
    expect_ok(tcm_port_book(port, now, begin, work, &done));
    return done;
}

/* ---- By hand ----------------------------------------------------------------------------- */

/*
 * At 0 an engine books 10 from 100 on. A second command begins at 95 and needs 20: it has 95 to
 * 100, waits for the older one, and has the rest from 110 to 125. A third begins at 90: 90 to 95
 * and then from 125 on. One without bytes is done when it begins.
 */
static void the_oldest_booking_comes_first(void **state)
{
    (void)state;
    tcm_port port = {0};
    assert_int_equal(book(&port, 0, 100, 10), 110);
    assert_int_equal(book(&port, 0, 95, 20), 125);
    assert_int_equal(book(&port, 0, 90, 7), 127);
    assert_int_equal(book(&port, 0, 96, 0), 96);
    assert_int_equal(port.taken.count, 1); /* 90 to 127 */
    tcm_port_fini(&port);
}

/*
 * A stream from 0 to 50 needs 30, and engines have 0 to 40: 10 pass, 20 lag. They are done at 70,
 * unless an engine books: at 55 one books 10 from 60 on. So at 70 there are 10 left, which are done
 * at 80. The engine had its bytes at once.
 */
static void what_lags_passes_in_idle_time(void **state)
{
    (void)state;
    tcm_port port = {0};
    bool lags, done;
    tcm_port_stream_begin(&port);
    assert_int_equal(book(&port, 0, 0, 40), 40);
    expect_ok(tcm_port_stream_end(&port, 7, 0, 50, 30, 0, &lags));
    assert_true(lags);
    assert_int_equal(tcm_port_estimate(&port, 7, 50), 70);
    assert_int_equal(book(&port, 55, 60, 10), 70);
    expect_ok(tcm_port_catch_up(&port, 7, 70, &done));
    assert_false(done);
    assert_int_equal(tcm_port_estimate(&port, 7, 70), 80);
    expect_ok(tcm_port_catch_up(&port, 7, 80, &done));
    assert_true(done);
    assert_int_equal(port.lags.count, 0);
    tcm_port_fini(&port);
}

/*
 * Engines have 0 to 40. Two streams end at 40 and 45, and need 10 each: the first one has all idle
 * time from 40 to 50, the second one 50 to 60. A third, from 41 to 52, needs 3: it lags too, behind
 * them, until 63.
 */
static void lags_pass_one_after_the_other(void **state)
{
    (void)state;
    tcm_port port = {0};
    bool lags, done;
    tcm_port_stream_begin(&port);
    tcm_port_stream_begin(&port);
    assert_int_equal(book(&port, 0, 0, 40), 40);
    expect_ok(tcm_port_stream_end(&port, 1, 0, 40, 10, 0, &lags));
    assert_true(lags);
    tcm_port_stream_begin(&port);
    expect_ok(tcm_port_stream_end(&port, 2, 0, 45, 10, 41, &lags));
    assert_true(lags);
    assert_int_equal(tcm_port_estimate(&port, 1, 45), 50);
    assert_int_equal(tcm_port_estimate(&port, 2, 45), 60);
    expect_ok(tcm_port_catch_up(&port, 1, 50, &done));
    assert_true(done);
    expect_ok(tcm_port_stream_end(&port, 3, 41, 52, 3, 0, &lags));
    assert_true(lags);
    assert_int_equal(tcm_port_estimate(&port, 3, 52), 63);
    expect_ok(tcm_port_catch_up(&port, 2, 60, &done));
    assert_true(done);
    expect_ok(tcm_port_catch_up(&port, 3, 63, &done));
    assert_true(done);
    tcm_port_fini(&port);
}

static void what_takes_too_long_takes_for_ever(void **state)
{
    (void)state;
    tcm_port port = {0};
    assert_true(book(&port, 10, 10, KB_FOREVER - 11) == KB_FOREVER - 1);
    assert_true(book(&port, 20, 20, 2) == KB_FOREVER);
    tcm_port_fini(&port);
}

/* ---- The diary --------------------------------------------------------------------------- */

enum { INSTANTS = 40000, STREAMS = 6 };

typedef struct stream {
    uint64_t number;
    kb_time begun;
    kb_time work; /* of one that lags: what is left */
} stream;

typedef struct diary {
    bool engines[INSTANTS];  /* the instant is an engine's */
    bool streamed[INSTANTS]; /* a stream's */
    kb_time served;          /* lags have had their idle time up to here */
    stream lags[INSTANTS];   /* in the order of their ends */
    size_t lag_count;
} diary;

static kb_time book_in(diary *d, kb_time begin, kb_time work)
{
    kb_time done = begin;
    for (kb_time t = begin; work > 0; t++) {
        assert_true(t < INSTANTS);
        if (d->engines[t])
            continue;
        assert_false(d->streamed[t]); /* time ahead of global time is never a stream's */
        d->engines[t] = true;
        work--;
        done = t + 1;
    }
    return done;
}

static bool is_idle(const diary *d, kb_time t)
{
    return !d->engines[t] && !d->streamed[t];
}

/* Each idle instant goes to the stream that has lagged longest. */
static void serve_in(diary *d, kb_time now)
{
    for (; d->served < now; d->served++) {
        size_t i = 0;
        while (i < d->lag_count && d->lags[i].work == 0)
            i++;
        if (i < d->lag_count && is_idle(d, d->served)) {
            d->streamed[d->served] = true;
            d->lags[i].work--;
        }
    }
}

/* True if it lags. */
static bool end_stream_in(diary *d, const stream *s, kb_time now, kb_time work)
{
    serve_in(d, now);
    for (kb_time t = s->begun; t < now && work > 0; t++)
        if (is_idle(d, t)) {
            d->streamed[t] = true;
            work--;
        }
    if (work > 0) {
        d->lags[d->lag_count] = *s;
        d->lags[d->lag_count++].work = work;
    }
    return work > 0;
}

/* When lag i is done if nothing else is booked. */
static kb_time foresee_in(const diary *d, size_t i, kb_time now)
{
    kb_time work = 0, t = now;
    for (size_t k = 0; k <= i; k++)
        work += d->lags[k].work;
    for (; work > 0; t++)
        work -= is_idle(d, t);
    return t;
}

static void check_estimates(const tcm_port *port, const diary *d, kb_time now)
{
    for (size_t i = 0; i < d->lag_count; i++)
        assert_int_equal(tcm_port_estimate(port, d->lags[i].number, now), foresee_in(d, i, now));
}

typedef struct streams {
    stream items[STREAMS]; /* in the order of beginning */
    size_t count;
} streams;

static void end_one(tcm_port *port, diary *d, streams *s, size_t which, kb_time now, kb_time work)
{
    stream ended = s->items[which];
    s->count--;
    memmove(&s->items[which], &s->items[which + 1], (s->count - which) * sizeof *s->items);
    bool lags;
    expect_ok(tcm_port_stream_end(port, ended.number, ended.begun, now, work,
                                  s->count > 0 ? s->items[0].begun : 0, &lags));
    assert_int_equal(lags, end_stream_in(d, &ended, now, work));
    check_estimates(port, d, now);
}

/* A stream that lags asks again at some time: it is done if the diary says so. */
static void ask_one(tcm_port *port, diary *d, size_t which, kb_time now)
{
    bool done;
    expect_ok(tcm_port_catch_up(port, d->lags[which].number, now, &done));
    serve_in(d, now);
    assert_int_equal(done, d->lags[which].work == 0);
    if (done) {
        d->lag_count--;
        memmove(&d->lags[which], &d->lags[which + 1], (d->lag_count - which) * sizeof *d->lags);
    }
    check_estimates(port, d, now);
}

/* Bookings, up to 200 ahead of global time and in any order; streams that end in any order; those
 * that lag ask at any time. */
static void every_instant_is_had_once(void **state)
{
    (void)state;
    static diary d;
    size_t lagged = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        kb_rng rng;
        kb_rng_init(&rng, test_seed(seed));
        tcm_port port = {0}, alone = {0};
        streams s = {0};
        memset(&d, 0, sizeof d);
        kb_time load = 1 + (kb_time)kb_rng_below(&rng, 40);
        uint64_t ahead = 1 + kb_rng_below(&rng, 2) * 200, number = 0;
        for (kb_time now = 0; now < 5000; now += (kb_time)kb_rng_below(&rng, 30)) {
            kb_time work = (kb_time)kb_rng_below(&rng, (uint64_t)load);
            uint64_t what = kb_rng_below(&rng, 5);
            if (what < 2) {
                kb_time begin = now + (kb_time)kb_rng_below(&rng, ahead);
                kb_time done = book(&port, now, begin, work);
                assert_int_equal(done, book_in(&d, begin, work));
                assert_int_equal(done, book(&alone, now, begin, work)); /* streams delay nothing */
            } else if (what == 2 && s.count < STREAMS) {
                tcm_port_stream_begin(&port);
                s.items[s.count++] = (stream){.number = number++, .begun = now};
            } else if (what == 3 && s.count > 0) {
                end_one(&port, &d, &s, kb_rng_below(&rng, s.count), now, 3 * work);
            } else if (d.lag_count > 0) {
                lagged++;
                ask_one(&port, &d, kb_rng_below(&rng, d.lag_count), now);
            }
        }
        tcm_port_fini(&port);
        tcm_port_fini(&alone);
    }
    assert_true(lagged > 1000);
}

/* Asked at the time that was estimated, a lag is done unless something was booked meanwhile. */
static void an_estimate_holds_unless_engines_book(void **state)
{
    (void)state;
    static diary d;
    for (uint64_t seed = 0; seed < 200; seed++) {
        kb_rng rng;
        kb_rng_init(&rng, test_seed(seed + 1000));
        tcm_port port = {0};
        memset(&d, 0, sizeof d);
        for (int i = 0; i < 10; i++) {
            kb_time begin = (kb_time)kb_rng_below(&rng, 300);
            kb_time work = 1 + (kb_time)kb_rng_below(&rng, 40);
            (void)book_in(&d, begin, work);
            (void)book(&port, 0, begin, work);
        }
        tcm_port_stream_begin(&port);
        bool lags, done;
        kb_time ends = 1 + (kb_time)kb_rng_below(&rng, 200);
        expect_ok(tcm_port_stream_end(&port, 5, 0, ends, 400, 0, &lags));
        assert_true(lags && end_stream_in(&d, &(stream){.number = 5}, ends, 400));
        kb_time at = tcm_port_estimate(&port, 5, ends);
        assert_int_equal(at, foresee_in(&d, 0, ends));
        if (kb_rng_below(&rng, 2)) {
            expect_ok(tcm_port_catch_up(&port, 5, at - 1, &done));
            assert_false(done);
        }
        expect_ok(tcm_port_catch_up(&port, 5, at, &done));
        assert_true(done);
        tcm_port_fini(&port);
    }
}

/* However long something streams, only what it can use is kept: with two that take turns, little.
 */
static void what_no_stream_can_use_is_forgotten(void **state)
{
    (void)state;
    tcm_port port = {0};
    bool lags;
    tcm_port_stream_begin(&port);
    for (kb_time now = 100; now < 1000000; now += 100) {
        tcm_port_stream_begin(&port);
        assert_int_equal(book(&port, now + 10, now + 10, 5), now + 15);
        expect_ok(tcm_port_stream_end(&port, 1, now - 100, now + 50, 10, now, &lags));
        assert_false(lags);
    }
    expect_ok(tcm_port_stream_end(&port, 1, 999900, 1000100, 10, 0, &lags));
    assert_false(lags);
    for (kb_time now = 2000000; now < 3000000; now += 100) { /* one at a time */
        tcm_port_stream_begin(&port);
        assert_int_equal(book(&port, now + 10, now + 10, 5), now + 15);
        expect_ok(tcm_port_stream_end(&port, 1, now, now + 50, 10, 0, &lags));
        assert_false(lags);
    }
    for (kb_time now = 4000000; now < 5000000; now += 100) /* none: engines that book ahead */
        assert_int_equal(book(&port, now, now + 310, 5), now + 315);
    assert_true(port.taken.capacity < 32);
    tcm_port_fini(&port);
}

static kb_error *use_port(tcm_port *port)
{
    kb_time done;
    bool lags;
    tcm_port_stream_begin(port);
    tcm_port_stream_begin(port);
    for (kb_time now = 20; now < 500; now += 20)
        KB_TRY(tcm_port_book(port, now, now + 3, 5, &done));
    tcm_port_stream_begin(port);
    KB_TRY(tcm_port_stream_end(port, 1, 10, 550, 7, 0, &lags));
    KB_TRY(tcm_port_stream_end(port, 2, 0, 600, 700, 500, &lags));
    return tcm_port_catch_up(port, 2, 2000, &lags);
}

static void try_without_memory(void)
{
    tcm_port port = {0};
    kb_error *err = use_port(&port);
    if (err)
        assert_int_equal(kb_error_code(err), KB_ERR_HOST);
    kb_error_free(err);
    tcm_port_fini(&port);
}

static void lack_of_memory_is_an_error(void **state)
{
    (void)state;
    failing_alloc_try_all(try_without_memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_oldest_booking_comes_first),
        cmocka_unit_test(what_lags_passes_in_idle_time),
        cmocka_unit_test(lags_pass_one_after_the_other),
        cmocka_unit_test(what_takes_too_long_takes_for_ever),
        cmocka_unit_test(every_instant_is_had_once),
        cmocka_unit_test(an_estimate_holds_unless_engines_book),
        cmocka_unit_test(what_no_stream_can_use_is_forgotten),
        cmocka_unit_test(lack_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
