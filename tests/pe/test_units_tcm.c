/*
 * test_units_tcm.c: a direction of the TCM against one that writes down who has each instant; and
 * what the engines take.
 */
#include "support/expect.h"
#include "support/failing_alloc.h"
#include "support/seed.h"

#include "pe/units.h"
#include "pe/units_tcm.h"

/* ---- The TCM ----------------------------------------------------------------------------- */

enum { INSTANTS = 20000, STREAMS = 5 };

typedef struct diary {
    bool taken[INSTANTS];
    kb_time booked_to;
} diary;

static kb_time book_in(diary *d, kb_time now, kb_time work)
{
    if (work == 0)
        return now;
    kb_time from = d->booked_to > now ? d->booked_to : now;
    memset(d->taken + from, true, (size_t)work);
    d->booked_to = from + work;
    return d->booked_to;
}

static kb_time end_stream_in(diary *d, kb_time begun, kb_time now, kb_time work)
{
    for (kb_time t = begun; t < now && work > 0; t++)
        if (!d->taken[t]) {
            d->taken[t] = true;
            work--;
        }
    return book_in(d, now, work);
}

typedef struct streams {
    kb_time begun[STREAMS]; /* in the order of beginning */
    size_t count;
} streams;

static void end_one(pe_tcm_port *port, diary *d, streams *s, size_t which, kb_time now,
                    kb_time work)
{
    kb_time begun = s->begun[which], done;
    s->count--;
    memmove(&s->begun[which], &s->begun[which + 1], (s->count - which) * sizeof *s->begun);
    expect_ok(pe_tcm_stream_end(port, begun, now, work, s->count > 0 ? s->begun[0] : 0, &done));
    assert_int_equal(done, end_stream_in(d, begun, now, work));
}

/* No instant is taken twice, and none is left that could have been used. */
static void every_instant_is_had_once(void **state)
{
    (void)state;
    static diary d;
    for (uint64_t seed = 0; seed < 100; seed++) {
        kb_rng rng;
        kb_rng_init(&rng, test_seed(seed));
        pe_tcm_port port = {0};
        streams s = {0};
        memset(&d, 0, sizeof d);
        kb_time load = 1 + (kb_time)kb_rng_below(&rng, 40);
        for (kb_time now = 0; now < 5000; now += (kb_time)kb_rng_below(&rng, 30)) {
            kb_time work = (kb_time)kb_rng_below(&rng, (uint64_t)load), done;
            uint64_t what = kb_rng_below(&rng, 3);
            if (what == 0) {
                expect_ok(pe_tcm_book(&port, now, work, &done));
                assert_int_equal(done, book_in(&d, now, work));
            } else if (what == 1 && s.count < STREAMS) {
                expect_ok(pe_tcm_stream_begin(&port, now));
                s.begun[s.count++] = now;
            } else if (s.count > 0) {
                end_one(&port, &d, &s, kb_rng_below(&rng, s.count), now, 2 * work);
            }
        }
        pe_tcm_fini(&port);
    }
}

/* However long something streams, only gaps that it can use are kept: with two that take turns, a
 * few. */
static void what_no_stream_can_use_is_forgotten(void **state)
{
    (void)state;
    pe_tcm_port port = {0};
    kb_time done;
    expect_ok(pe_tcm_stream_begin(&port, 0));
    for (kb_time now = 100; now < 1000000; now += 100) {
        expect_ok(pe_tcm_stream_begin(&port, now));
        expect_ok(pe_tcm_book(&port, now + 10, 5, &done));
        expect_ok(pe_tcm_stream_end(&port, now - 100, now + 50, 10, now, &done));
        assert_int_equal(done, now + 50);
    }
    expect_ok(pe_tcm_stream_end(&port, 999900, 1000100, 10, 0, &done));
    for (kb_time now = 2000000; now < 3000000; now += 100) { /* one at a time */
        expect_ok(pe_tcm_stream_begin(&port, now));
        expect_ok(pe_tcm_book(&port, now + 10, 5, &done));
        expect_ok(pe_tcm_stream_end(&port, now, now + 50, 10, 0, &done));
        assert_int_equal(done, now + 50);
    }
    assert_true(port.gaps.capacity < 32);
    pe_tcm_fini(&port);
}

static kb_error *use_port(pe_tcm_port *port)
{
    kb_time done;
    KB_TRY(pe_tcm_stream_begin(port, 0));
    KB_TRY(pe_tcm_stream_begin(port, 10));
    for (kb_time now = 20; now < 500; now += 20)
        KB_TRY(pe_tcm_book(port, now, 5, &done));
    KB_TRY(pe_tcm_stream_begin(port, 500));
    KB_TRY(pe_tcm_stream_end(port, 10, 550, 7, 0, &done));
    return pe_tcm_stream_end(port, 0, 600, 700, 500, &done);
}

static void try_without_memory(void)
{
    pe_tcm_port port = {0};
    kb_error *err = use_port(&port);
    if (err)
        assert_int_equal(kb_error_code(err), KB_ERR_HOST);
    kb_error_free(err);
    pe_tcm_fini(&port);
}

static void lack_of_memory_is_an_error(void **state)
{
    (void)state;
    failing_alloc_try_all(try_without_memory);
}

/* ---- Engines ----------------------------------------------------------------------------- */

static const topo_pe_figures figures = {
    .gemm_rows = 64,
    .gemm_columns = 64,
    .gemm_cycle_fs = KB_NS,
    .math_lanes = 64,
    .math_cycle_fs = 2 * KB_NS,
    .math_cycles = {1, 4, 8},
    .math_latency_cycles = 4,
};

static kb_time math_ns(uint64_t elements, uint32_t moves, uint32_t divisions, uint32_t exps)
{
    uint32_t counts[PE_MATH_CLASSES] = {moves, divisions, exps};
    return pe_math_time(&figures, pe_math_cycles(&figures, elements, counts)) / KB_NS;
}

/* ceil(elements / 64) * class + 4 cycles of 2 ns. */
static void vector_operations_pass_the_lanes(void **state)
{
    (void)state;
    assert_int_equal(math_ns(4096, 1, 0, 0), 2 * (64 + 4));
    assert_int_equal(math_ns(4097, 1, 0, 0), 2 * (65 + 4));
    assert_int_equal(math_ns(1, 0, 1, 0), 2 * (4 + 4));
    assert_int_equal(math_ns(128, 0, 0, 1), 2 * (16 + 4));
    assert_int_equal(math_ns(128, 3, 1, 1), 2 * (2 * (3 + 4 + 8) + 4)); /* a softmax */
    assert_int_equal(math_ns(0, 1, 0, 0), 2 * 4);
}

static kb_time cycles(const topo_pe_figures *f, uint64_t m, uint64_t k, uint64_t n)
{
    pe_gemm_time time = pe_gemm_time_of(f, m, k, n);
    return (time.occupied + time.fill) / f->gemm_cycle_fs;
}

/* ceil(k / R) * ceil(n / C) * m, and 2R + C - 2 once; what is ragged pays for its padding. */
static void matrices_are_folded(void **state)
{
    (void)state;
    pe_gemm_time time = pe_gemm_time_of(&figures, 512, 512, 512);
    assert_int_equal(time.occupied, 8 * 8 * 512 * KB_NS);
    assert_int_equal(time.fill, 190 * KB_NS);
    assert_int_equal(cycles(&figures, 1, 1, 1), 1 + 190);
    assert_int_equal(cycles(&figures, 3, 65, 1), 2 * 3 + 190);
    assert_int_equal(cycles(&figures, 3, 64, 129), 3 * 3 + 190);
}

/* Figures of SCALE-Sim, an array of 32 x 32. */
static void fills_are_counted_as_scale_sim_does(void **state)
{
    (void)state;
    topo_pe_figures f = figures;
    f.gemm_rows = f.gemm_columns = 32;
    f.gemm_fill_per_fold = true;
    assert_int_equal(cycles(&f, 512, 512, 512), 155135);
    assert_int_equal(cycles(&f, 1024, 1024, 1024), 1144831);
    assert_int_equal(pe_gemm_time_of(&f, 512, 512, 512).fill, 0);
    f.gemm_rows = 16; /* 2 * 3 folds of 7 + 32 + 32 - 2 */
    assert_int_equal(cycles(&f, 7, 17, 65), 6 * 69 - 1);
}

/* a of 3 x 100 passes for each of two folds of columns, b of 100 x 65 once. */
static void operands_are_read_from_the_tcm(void **state)
{
    (void)state;
    assert_int_equal(pe_gemm_reads(&figures, 3, 100, 65, 2, 4), 2 * 600 + 26000);
    assert_int_equal(pe_gemm_reads(&figures, 3, 100, 64, 1, 2), 300 + 12800);
}

/* Times, cycles and flops that do not fit stay at the largest number, for the engine to refuse. */
static void what_takes_too_long_takes_for_ever(void **state)
{
    (void)state;
    pe_gemm_time time = pe_gemm_time_of(&figures, UINT64_MAX / 2, 1000, 1000);
    assert_true(time.occupied == KB_FOREVER);
    assert_true(time.fill < KB_NS * 1000);
    assert_true(pe_math_time(&figures, UINT64_MAX) == KB_FOREVER);
    assert_true(pe_math_cycles(&figures, UINT64_MAX, (const uint32_t[PE_MATH_CLASSES]){1000}) ==
                UINT64_MAX);
    assert_true(pe_gemm_flops(3, 4, 5) == 120);
    /* 2 * 2^21 * 2^21 * 2^21 is 2^64. */
    assert_true(pe_gemm_flops(1 << 21, 1 << 21, 1 << 21) == UINT64_MAX);
    assert_true(pe_gemm_flops(1 << 21, 1 << 21, 1 << 20) == (uint64_t)1 << 63);

    pe_tcm_port port = {0};
    kb_time done;
    expect_ok(pe_tcm_book(&port, 10, KB_FOREVER - 11, &done));
    assert_true(done == KB_FOREVER - 1);
    expect_ok(pe_tcm_book(&port, 20, 2, &done));
    assert_true(done == KB_FOREVER);
    pe_tcm_fini(&port);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_instant_is_had_once),
        cmocka_unit_test(what_no_stream_can_use_is_forgotten),
        cmocka_unit_test(lack_of_memory_is_an_error),
        cmocka_unit_test(vector_operations_pass_the_lanes),
        cmocka_unit_test(matrices_are_folded),
        cmocka_unit_test(fills_are_counted_as_scale_sim_does),
        cmocka_unit_test(operands_are_read_from_the_tcm),
        cmocka_unit_test(what_takes_too_long_takes_for_ever),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
