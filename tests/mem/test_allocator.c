/*
 * test_allocator.c: allocators, against a map that has an owner for every single byte.
 *
 * Checks M2.
 */
#include "mem/cases.h"
#include "support/expect.h"
#include "support/failing_alloc.h"
#include "support/seed.h"

#include "mem/mem.h"

#define TOP ((uint64_t)1 << 63)

/* ---- What must always hold --------------------------------------------------------------- */

static uint64_t end_of(const mem_span *span)
{
    return span->start + span->bytes;
}

/* Blocks and gaps cover the range without overlap, and no two gaps touch. */
static void expect_sound(const mem_allocator *a)
{
    if (!a->free.items) {
        assert_int_equal(a->used.count, 0);
        assert_int_equal(a->free_bytes, a->bytes);
        return;
    }
    size_t used = 0, gap = 0;
    uint64_t at = a->base, free_bytes = 0;
    bool after_gap = false;
    while (used < a->used.count || gap < a->free.count) {
        bool is_gap =
            used == a->used.count || (gap < a->free.count && a->free.items[gap].start == at);
        const mem_span *span = is_gap ? &a->free.items[gap++] : &a->used.items[used++];
        assert_int_equal(span->start, at);
        assert_true(span->bytes > 0);
        assert_false(is_gap && after_gap);
        at = end_of(span);
        after_gap = is_gap;
        free_bytes += is_gap ? span->bytes : 0;
    }
    assert_int_equal(at, a->base + a->bytes);
    assert_int_equal(free_bytes, a->free_bytes);
    assert_true(a->free.count <= a->used.count + 1);
    assert_true(a->free.capacity >= a->used.count + 1); /* so giving back needs no memory */
}

static uint64_t must_take(mem_allocator *a, uint64_t bytes, uint64_t align)
{
    uint64_t start = 0;
    assert_int_equal(mem_allocator_take(a, bytes, align, &start), MEM_TAKEN);
    expect_sound(a);
    return start;
}

static void must_give(mem_allocator *a, uint64_t start)
{
    assert_true(mem_allocator_give(a, start));
    expect_sound(a);
}

static void must_fail(mem_allocator *a, uint64_t bytes, uint64_t align)
{
    uint64_t start = 0, free_bytes = a->free_bytes;
    size_t used = a->used.count;
    assert_int_equal(mem_allocator_take(a, bytes, align, &start), MEM_EXHAUSTED);
    assert_int_equal(a->free_bytes, free_bytes);
    assert_int_equal(a->used.count, used);
    expect_sound(a);
}

/* ---- By hand ----------------------------------------------------------------------------- */

static void first_fit_takes_the_lowest_place(void **state)
{
    (void)state;
    mem_allocator a;
    mem_allocator_init(&a, 1000, 100, MEM_FIRST_FIT);
    assert_int_equal(must_take(&a, 10, 1), 1000);
    assert_int_equal(must_take(&a, 20, 1), 1010);
    assert_int_equal(must_take(&a, 30, 1), 1030);
    must_give(&a, 1000);
    must_give(&a, 1030);
    assert_int_equal(must_take(&a, 11, 1), 1030); /* the first gap is too small */
    assert_int_equal(must_take(&a, 10, 1), 1000);
    mem_allocator_fini(&a);
}

static void next_fit_goes_on_behind_the_last_one_and_around(void **state)
{
    (void)state;
    mem_allocator a;
    mem_allocator_init(&a, 1000, 100, MEM_NEXT_FIT);
    assert_int_equal(must_take(&a, 40, 1), 1000);
    must_give(&a, 1000);
    assert_int_equal(must_take(&a, 40, 1), 1040); /* in the middle of the gap */
    assert_int_equal(must_take(&a, 30, 1), 1000); /* 20 are left behind it: around */
    assert_int_equal(must_take(&a, 10, 1), 1030);
    assert_int_equal(must_take(&a, 20, 1), 1080); /* up to the very end */
    must_give(&a, 1030);
    assert_int_equal(must_take(&a, 10, 1), 1030);
    must_fail(&a, 1, 1);
    mem_allocator_fini(&a);
}

static void free_neighbours_become_one(void **state)
{
    (void)state;
    /* Three blocks, given back in each order: always one gap in the end. */
    static const uint64_t orders[6][3] = {{0, 10, 20}, {0, 20, 10}, {10, 0, 20},
                                          {10, 20, 0}, {20, 0, 10}, {20, 10, 0}};
    for (size_t i = 0; i < 6; i++) {
        mem_allocator a;
        mem_allocator_init(&a, 0, 30, MEM_FIRST_FIT);
        for (uint64_t at = 0; at < 30; at += 10)
            assert_int_equal(must_take(&a, 10, 1), at);
        assert_int_equal(a.free.count, 0);
        assert_int_equal(mem_allocator_largest(&a), 0);
        for (size_t j = 0; j < 3; j++)
            must_give(&a, orders[i][j]);
        assert_int_equal(a.free.count, 1);
        assert_int_equal(mem_allocator_largest(&a), 30);
        assert_int_equal(must_take(&a, 30, 1), 0);
        mem_allocator_fini(&a);
    }
}

static void what_alignment_skips_stays_free(void **state)
{
    (void)state;
    mem_allocator a;
    mem_allocator_init(&a, 3, 125, MEM_FIRST_FIT);
    assert_int_equal(must_take(&a, 1, 64), 64);
    assert_int_equal(a.free_bytes, 124);
    assert_int_equal(must_take(&a, 61, 1), 3); /* all that was skipped */
    assert_int_equal(must_take(&a, 2, 32), 96);
    assert_int_equal(must_take(&a, 31, 1), 65);
    must_fail(&a, 1, 128); /* the range ends at 128 */
    mem_allocator_fini(&a);
}

static void exhaustion_takes_nothing(void **state)
{
    (void)state;
    for (int fit = MEM_FIRST_FIT; fit <= MEM_NEXT_FIT; fit++) {
        mem_allocator a;
        mem_allocator_init(&a, 0, 64, (mem_fit)fit);
        must_fail(&a, 65, 1);
        assert_int_equal(must_take(&a, 64, 64), 0);
        must_fail(&a, 1, 1);
        must_give(&a, 0);
        for (uint64_t at = 0; at < 64; at += 8)
            assert_int_equal(must_take(&a, 8, 1), at);
        for (uint64_t at = 0; at < 64; at += 16)
            must_give(&a, at);
        assert_int_equal(a.free_bytes, 32);
        assert_int_equal(mem_allocator_largest(&a), 8);
        must_fail(&a, 9, 1); /* 32 are free, in four parts */
        mem_allocator_fini(&a);
    }
}

static void what_is_not_the_start_of_a_block_is_not_given_back(void **state)
{
    (void)state;
    mem_allocator a;
    mem_allocator_init(&a, 100, 100, MEM_FIRST_FIT);
    assert_false(mem_allocator_give(&a, 100)); /* nothing was taken yet */
    assert_int_equal(must_take(&a, 10, 1), 100);
    assert_int_equal(must_take(&a, 10, 1), 110);
    assert_false(mem_allocator_give(&a, 101));
    assert_false(mem_allocator_give(&a, 120));
    assert_false(mem_allocator_give(&a, 99));
    assert_false(mem_allocator_give(&a, 0));
    assert_false(mem_allocator_give(&a, UINT64_MAX));
    must_give(&a, 110);
    assert_false(mem_allocator_give(&a, 110)); /* twice */
    expect_sound(&a);
    assert_int_equal(a.free_bytes, 90);
    mem_allocator_fini(&a);
}

static void a_block_is_found_by_any_address_in_it(void **state)
{
    (void)state;
    mem_allocator a;
    mem_allocator_init(&a, 100, 100, MEM_FIRST_FIT);
    assert_null(mem_allocator_find(&a, 100));
    must_take(&a, 10, 1);
    must_take(&a, 10, 64);
    assert_int_equal(mem_allocator_find(&a, 100)->start, 100);
    assert_int_equal(mem_allocator_find(&a, 109)->bytes, 10);
    assert_null(mem_allocator_find(&a, 110));
    assert_null(mem_allocator_find(&a, 127));
    assert_int_equal(mem_allocator_find(&a, 137)->start, 128);
    assert_null(mem_allocator_find(&a, 138));
    assert_null(mem_allocator_find(&a, 0));
    assert_null(mem_allocator_find(&a, UINT64_MAX));
    mem_allocator_fini(&a);
}

static void an_allocator_that_was_never_used_has_no_memory(void **state)
{
    (void)state;
    size_t before = failing_alloc_live();
    mem_allocator a;
    mem_allocator_init(&a, 0, 1000, MEM_FIRST_FIT);
    must_fail(&a, 1001, 1);
    assert_int_equal(mem_allocator_largest(&a), 1000);
    assert_int_equal(failing_alloc_live(), before);
    assert_null(a.used.items);
    assert_null(a.free.items);
    mem_allocator_fini(&a);
    mem_allocator_init(&a, 0, 0, MEM_NEXT_FIT); /* nothing at all */
    must_fail(&a, 1, 1);
    assert_int_equal(mem_allocator_largest(&a), 0);
    assert_int_equal(failing_alloc_live(), before);
}

/* ---- Near 2^64 --------------------------------------------------------------------------- */

static void the_largest_range_there_is(void **state)
{
    (void)state;
    for (int fit = MEM_FIRST_FIT; fit <= MEM_NEXT_FIT; fit++) {
        mem_allocator a;
        mem_allocator_init(&a, 0, UINT64_MAX, (mem_fit)fit);
        assert_int_equal(must_take(&a, UINT64_MAX, TOP), 0);
        must_fail(&a, 1, 1);
        must_give(&a, 0);
        assert_int_equal(must_take(&a, 1, TOP), 0);
        assert_int_equal(must_take(&a, 1, TOP), TOP);
        must_fail(&a, 1, TOP);        /* the next multiple is 2^64 */
        must_fail(&a, UINT64_MAX, 1); /* more than is left, and the end would not fit */
        assert_int_equal(mem_allocator_largest(&a), TOP - 1);
        must_give(&a, 0);
        must_give(&a, TOP);
        mem_allocator_fini(&a);
    }
}

static void a_range_that_ends_at_the_last_address(void **state)
{
    (void)state;
    for (int fit = MEM_FIRST_FIT; fit <= MEM_NEXT_FIT; fit++) {
        mem_allocator a;
        mem_allocator_init(&a, UINT64_MAX - 100, 100, (mem_fit)fit);
        must_fail(&a, 1, TOP); /* aligning up would overflow */
        must_fail(&a, 1, 128);
        assert_int_equal(must_take(&a, 36, 64), UINT64_MAX - 63);
        assert_int_equal(must_take(&a, 27, 1),
                         fit == MEM_FIRST_FIT ? UINT64_MAX - 100 : UINT64_MAX - 27);
        must_give(&a, UINT64_MAX - 63);
        must_fail(&a, 64, 64); /* 63 are left from the multiple on */
        assert_null(mem_allocator_find(&a, UINT64_MAX));
        mem_allocator_fini(&a);
    }
}

/* ---- By chance --------------------------------------------------------------------------- */

enum { MODEL_BYTES = 200, NOBODY = 0 };

typedef struct model {
    uint64_t base, bytes, next;
    mem_fit fit;
    unsigned owner[MODEL_BYTES]; /* by byte: a number a block, NOBODY if it is free */
    unsigned last_owner;
} model;

static bool place_is_good(const model *m, uint64_t at, uint64_t bytes, uint64_t align)
{
    if ((m->base + at) % align != 0 || at + bytes > m->bytes)
        return false;
    for (uint64_t i = at; i < at + bytes; i++)
        if (m->owner[i] != NOBODY)
            return false;
    return true;
}

/* The place in the range, or the size of the range if there is none. */
static uint64_t model_place(const model *m, uint64_t bytes, uint64_t align)
{
    uint64_t from = m->fit == MEM_NEXT_FIT ? m->next : 0;
    for (uint64_t i = 0; i < m->bytes; i++) {
        uint64_t at = (from + i) % m->bytes;
        if (place_is_good(m, at, bytes, align))
            return at;
    }
    return m->bytes;
}

static void model_fill(model *m, uint64_t at, uint64_t bytes, unsigned owner)
{
    for (uint64_t i = at; i < at + bytes; i++)
        m->owner[i] = owner;
}

static uint64_t block_bytes(const model *m, uint64_t at)
{
    uint64_t end = at;
    while (end < m->bytes && m->owner[end] == m->owner[at])
        end++;
    return end - at;
}

static bool starts_block(const model *m, uint64_t at)
{
    return m->owner[at] != NOBODY && (at == 0 || m->owner[at - 1] != m->owner[at]);
}

static void try_take(mem_allocator *a, model *m, uint64_t bytes, uint64_t align)
{
    uint64_t expected = model_place(m, bytes, align), start = 0;
    if (expected == m->bytes) {
        must_fail(a, bytes, align);
        return;
    }
    assert_int_equal(mem_allocator_take(a, bytes, align, &start), MEM_TAKEN);
    assert_int_equal(start, m->base + expected);
    model_fill(m, expected, bytes, ++m->last_owner);
    m->next = (expected + bytes) % m->bytes;
}

static void try_give(mem_allocator *a, model *m, uint64_t at)
{
    bool good = starts_block(m, at);
    assert_int_equal(mem_allocator_give(a, m->base + at), good);
    if (good)
        model_fill(m, at, block_bytes(m, at), NOBODY);
}

static void expect_model(const mem_allocator *a, const model *m)
{
    expect_sound(a);
    uint64_t largest = 0, start = 0;
    for (uint64_t at = 0; at < m->bytes; at++) {
        const mem_span *block = mem_allocator_find(a, m->base + at);
        assert_int_equal(block != NULL, m->owner[at] != NOBODY);
        if (starts_block(m, at))
            start = at;
        if (block) {
            assert_int_equal(block->start, m->base + start);
            assert_int_equal(block->bytes, block_bytes(m, start));
        } else if (block_bytes(m, at) > largest) {
            largest = block_bytes(m, at);
        }
    }
    assert_int_equal(mem_allocator_largest(a), largest);
}

static void one_case(kb_rng *rng, mem_fit fit)
{
    static const uint64_t bases[] = {0, 1, 4096, (uint64_t)1 << 40, TOP - 50};
    model m = {.bytes = 1 + kb_rng_below(rng, MODEL_BYTES), .fit = fit};
    size_t base = kb_rng_below(rng, 6);
    m.base = base < 5 ? bases[base] : UINT64_MAX - m.bytes;
    uint64_t most = 1 + kb_rng_below(rng, m.bytes), aligns = 1 + kb_rng_below(rng, 8);
    mem_allocator a;
    mem_allocator_init(&a, m.base, m.bytes, fit);
    size_t most_live = 0;
    for (int step = 0; step < 300; step++) {
        if (kb_rng_below(rng, 2) == 0)
            try_take(&a, &m, 1 + kb_rng_below(rng, most), (uint64_t)1 << kb_rng_below(rng, aligns));
        else
            try_give(&a, &m, kb_rng_below(rng, m.bytes));
        if (a.used.count > most_live)
            most_live = a.used.count;
        if (step % 10 == 0)
            expect_model(&a, &m);
    }
    expect_model(&a, &m);
    /* Vectors grow by half, from 8 on; a take that fails may have made room for one more. */
    assert_true(a.used.capacity <= 8 + most_live * 2);
    assert_true(a.free.capacity <= 8 + (most_live + 2) * 2);
    for (uint64_t at = 0; at < m.bytes; at++)
        try_give(&a, &m, at);
    assert_int_equal(a.free_bytes, m.bytes);
    assert_int_equal(mem_allocator_largest(&a), m.bytes);
    mem_allocator_fini(&a);
}

static void takes_and_gives_agree_with_the_map(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(3));
    for (uint64_t i = 0; i < cases(1500); i++)
        one_case(&rng, i % 2 ? MEM_NEXT_FIT : MEM_FIRST_FIT);
}

/* ---- For a long time --------------------------------------------------------------------- */

static void nothing_grows_over_a_long_time(void **state)
{
    (void)state;
    enum { LIVE = 64 };
    for (int fit = MEM_FIRST_FIT; fit <= MEM_NEXT_FIT; fit++) {
        mem_allocator a;
        mem_allocator_init(&a, 0, (uint64_t)1 << 40, (mem_fit)fit);
        uint64_t live[LIVE];
        for (size_t i = 0; i < LIVE; i++)
            live[i] = must_take(&a, 4096, 64);
        size_t used = a.used.capacity, gaps = a.free.capacity;
        kb_rng rng;
        kb_rng_init(&rng, test_seed(17));
        failing_alloc_arm(1, FAIL_ONWARDS); /* not even for a moment */
        for (uint64_t i = 0; i < cases(300000); i++) {
            size_t which = kb_rng_below(&rng, LIVE);
            bool given = mem_allocator_give(&a, live[which]);
            mem_taken taken =
                mem_allocator_take(&a, 1 + kb_rng_below(&rng, 100000), 64, &live[which]);
            if (!given || taken != MEM_TAKEN)
                fail_msg("step %llu", (unsigned long long)i);
        }
        failing_alloc_disarm();
        expect_sound(&a);
        assert_int_equal(a.used.capacity, used);
        assert_int_equal(a.free.capacity, gaps);
        if (fit == MEM_FIRST_FIT)
            assert_true(a.used.items[a.used.count - 1].start < (uint64_t)64 << 20); /* compact */
        mem_allocator_fini(&a);
    }
}

/* An address that was given back is not taken again while there are others. */
static void next_fit_uses_the_whole_range_before_it_repeats(void **state)
{
    (void)state;
    mem_allocator a;
    mem_allocator_init(&a, 4096, (uint64_t)4096 * 1000, MEM_NEXT_FIT);
    for (uint64_t i = 0; i < 3000; i++) {
        uint64_t start = must_take(&a, 4096, 4096);
        assert_int_equal(start, 4096 + i % 1000 * 4096);
        must_give(&a, start);
    }
    mem_allocator_fini(&a);
}

/* Binary search, or this takes minutes. */
static void many_blocks_are_found_quickly(void **state)
{
    (void)state;
    const uint64_t count = cases(40000);
    mem_allocator a;
    mem_allocator_init(&a, 0, count * 2, MEM_FIRST_FIT);
    uint64_t start = 0;
    for (uint64_t i = 0; i < count; i++) {
        assert_int_equal(mem_allocator_take(&a, 2, 1, &start), MEM_TAKEN);
        assert_int_equal(start, 2 * i);
    }
    for (uint64_t round = 0; round < 100; round++)
        for (uint64_t i = 0; i < count; i++)
            if (mem_allocator_find(&a, 2 * i + 1)->start != 2 * i)
                fail();
    for (uint64_t i = 1; i < count; i += 2)
        assert_true(mem_allocator_give(&a, 2 * i));
    expect_sound(&a);
    assert_int_equal(a.free.count, count / 2);
    for (uint64_t i = 0; i < count; i += 2)
        assert_true(mem_allocator_give(&a, 2 * i));
    expect_sound(&a);
    mem_allocator_fini(&a);
}

/* ---- Without host memory ----------------------------------------------------------------- */

static size_t failures;

/* Retries what failed: the outcome is the same as without failures. */
static void take_and_give_with_failures(void)
{
    mem_allocator a;
    mem_allocator_init(&a, 0, 1000, MEM_FIRST_FIT);
    for (uint64_t i = 0; i < 40; i++) {
        uint64_t start = 0;
        mem_taken taken = mem_allocator_take(&a, 8, 16, &start);
        expect_sound(&a);
        if (taken == MEM_NO_HOST_MEMORY) {
            failures++;
            assert_int_equal(a.used.count, i);
            assert_int_equal(a.free_bytes, 1000 - 8 * i);
            failing_alloc_disarm(); /* memory is back */
            taken = mem_allocator_take(&a, 8, 16, &start);
        }
        assert_int_equal(taken, MEM_TAKEN);
        assert_int_equal(start, 16 * i);
    }
    mem_allocator_fini(&a);
}

static void a_take_without_host_memory_changes_nothing(void **state)
{
    (void)state;
    size_t before = failing_alloc_live();
    for (long n = 1; n < 30; n++) {
        failures = 0;
        failing_alloc_arm(n, FAIL_ONWARDS);
        take_and_give_with_failures();
        failing_alloc_disarm();
        assert_int_equal(failing_alloc_live(), before);
        if (failures == 0) {
            assert_true(n > 4);
            return;
        }
    }
    fail();
}

static void giving_back_needs_no_host_memory(void **state)
{
    (void)state;
    enum { BLOCKS = 200 };
    for (uint64_t seed = 0; seed < cases(50); seed++) {
        mem_allocator a;
        mem_allocator_init(&a, 0, BLOCKS, MEM_FIRST_FIT);
        uint64_t starts[BLOCKS];
        for (size_t i = 0; i < BLOCKS; i++)
            starts[i] = must_take(&a, 1, 1);
        kb_rng rng;
        kb_rng_init(&rng, test_seed(seed));
        failing_alloc_arm(1, FAIL_ONWARDS);
        bool good = true;
        for (size_t i = BLOCKS; i > 0 && good; i--) {
            size_t which = kb_rng_below(&rng, i);
            good = mem_allocator_give(&a, starts[which]);
            starts[which] = starts[i - 1];
        }
        bool asked = failing_alloc_disarm();
        assert_true(good && !asked);
        expect_sound(&a);
        mem_allocator_fini(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_fit_takes_the_lowest_place),
        cmocka_unit_test(next_fit_goes_on_behind_the_last_one_and_around),
        cmocka_unit_test(free_neighbours_become_one),
        cmocka_unit_test(what_alignment_skips_stays_free),
        cmocka_unit_test(exhaustion_takes_nothing),
        cmocka_unit_test(what_is_not_the_start_of_a_block_is_not_given_back),
        cmocka_unit_test(a_block_is_found_by_any_address_in_it),
        cmocka_unit_test(an_allocator_that_was_never_used_has_no_memory),
        cmocka_unit_test(the_largest_range_there_is),
        cmocka_unit_test(a_range_that_ends_at_the_last_address),
        cmocka_unit_test(takes_and_gives_agree_with_the_map),
        cmocka_unit_test(nothing_grows_over_a_long_time),
        cmocka_unit_test(next_fit_uses_the_whole_range_before_it_repeats),
        cmocka_unit_test(many_blocks_are_found_quickly),
        cmocka_unit_test(a_take_without_host_memory_changes_nothing),
        cmocka_unit_test(giving_back_needs_no_host_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
