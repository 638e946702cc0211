/*
 * test_eventset.c: the event set gives events back in the order of (time, key), whatever is done.
 *
 * Law: after any sequence of pushes, pops, cancels and clears the set shows the same next event and
 * the same number of pending ones as a plain binary heap that was treated alike, and says the same
 * of every cancel. A `pair` is such a set with its heap; every operation on it compares, so the
 * first difference is reported where it arises. Beside that: the invariants E1 to E6 of eventset.h,
 * and hand-made cases for what each function promises.
 */
#include "support/expect.h"
#include "support/failing_alloc.h"
#include "support/seed.h"

#include <inttypes.h>

#include "base/base.h"
#include "eventset_check.h"
#include "reference_heap.h"
#include "sim/eventset.h"

#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#else
#define RUNNING_ON_VALGRIND 0
#endif

/* Fewer operations where each one takes much longer. */
static uint32_t scaled(uint32_t count)
{
    if (RUNNING_ON_VALGRIND)
        return count / 20;
#if defined(KB_ASAN) || defined(KB_TSAN)
    return count / 4;
#else
    return count;
#endif
}

/* ---- A set and a heap that must agree ---- */

enum { SOURCES = 61, STALE = 512 };

typedef struct pair {
    kb_eventset set;
    reference_heap heap;
    kb_rng rng;
    kb_time now; /* of the last event taken */
    uint64_t sequence[SOURCES];
    uint32_t *ticket_of_slot;
    uint32_t slots;
    kb_event stale[STALE]; /* handles of events that happened or were cancelled */
    uint32_t stale_count;
    uint64_t seed, pushes, pops, cancels;
    const char *phase;
} pair;

#define DIFFER(p, what)                                                                            \
    fail_msg("seed %" PRIu64 ", %s: after %" PRIu64 " pushes, %" PRIu64 " pops and %" PRIu64       \
             " cancels " what,                                                                     \
             (p)->seed, (p)->phase, (p)->pushes, (p)->pops, (p)->cancels)

static void pair_init(pair *p, uint64_t seed, uint32_t capacity)
{
    *p = (pair){.seed = seed, .phase = "begin", .slots = 8 * capacity + 1024};
    kb_rng_init(&p->rng, test_seed(seed));
    assert_true(kb_eventset_init(&p->set));
    assert_true(reference_heap_init(&p->heap, capacity));
    p->ticket_of_slot = calloc(p->slots, sizeof *p->ticket_of_slot);
    assert_non_null(p->ticket_of_slot);
}

static void pair_fini(pair *p)
{
    kb_eventset_fini(&p->set);
    reference_heap_fini(&p->heap);
    free(p->ticket_of_slot);
}

static uint64_t below(pair *p, uint64_t bound)
{
    return kb_rng_below(&p->rng, bound);
}

static void expect_same_next(pair *p)
{
    if (kb_eventset_pending(&p->set) != p->heap.count)
        DIFFER(p, "the number of pending events differs");
    if (p->heap.count == 0) {
        if (p->set.next != p->set.nodes || p->set.next->time != KB_FOREVER ||
            p->set.next->key != UINT64_MAX)
            DIFFER(p, "an empty set has a next event");
        return;
    }
    const reference_event *first = reference_heap_first(&p->heap);
    if (p->set.next->time != first->time || p->set.next->key != first->key)
        DIFFER(p, "the next event differs");
}

static void make_stale(pair *p, kb_event handle)
{
    p->stale[p->stale_count++ % STALE] = handle;
}

/* Ids are spread over all there are, the first and the last included. */
static uint64_t next_key(pair *p)
{
    uint32_t source = (uint32_t)below(p, SOURCES);
    uint64_t id = (uint64_t)KB_SOURCE_ID_MAX * source / (SOURCES - 1);
    return id << 40 | p->sequence[source]++;
}

static void pair_push(pair *p, kb_time time)
{
    reference_event event = {.time = time,
                             .key = next_key(p),
                             .handler = 1 + (uint32_t)below(p, 1000),
                             .arg = kb_rng_u64(&p->rng)};
    event.handle = kb_eventset_push(&p->set, time, event.key, event.handler, event.arg);
    p->pushes++;
    if (event.handle.slot == 0 || event.handle.slot >= p->slots)
        DIFFER(p, "an event was given no slot or a strange one");
    p->ticket_of_slot[event.handle.slot] = reference_heap_push(&p->heap, event);
    expect_same_next(p);
}

static void pair_pop(pair *p)
{
    reference_event expected = reference_heap_remove(&p->heap, p->heap.order[0]);
    kb_node event = kb_eventset_pop(&p->set);
    if (event.time != expected.time || event.key != expected.key || event.arg != expected.arg ||
        event.handler != expected.handler)
        DIFFER(p, "the event that was taken differs");
    p->pops++;
    p->now = event.time;
    make_stale(p, expected.handle);
    expect_same_next(p);
}

static void pair_cancel(pair *p, uint32_t ticket)
{
    reference_event event = reference_heap_remove(&p->heap, ticket);
    if (!kb_eventset_cancel(&p->set, event.handle))
        DIFFER(p, "a pending event could not be cancelled");
    p->cancels++;
    if (kb_eventset_cancel(&p->set, event.handle))
        DIFFER(p, "an event could be cancelled twice");
    make_stale(p, event.handle);
    expect_same_next(p);
}

/* An event in the run that is being consumed, if there is one; of those, any. */
static void cancel_in_run(pair *p)
{
    uint64_t length = (uint64_t)(p->set.run_end - p->set.run_first);
    if (length == 0)
        return;
    const kb_node *event = &p->set.run_first[below(p, length)];
    if (event->handler)
        pair_cancel(p, p->ticket_of_slot[event->next]);
}

static void cancel_stale(pair *p)
{
    uint32_t known = p->stale_count < STALE ? p->stale_count : STALE;
    if (known && kb_eventset_cancel(&p->set, p->stale[below(p, known)]))
        DIFFER(p, "a stale handle cancelled something");
    expect_same_next(p);
}

static void cancel_something(pair *p)
{
    uint64_t choice = below(p, 8);
    if (choice == 0)
        cancel_stale(p);
    else if (choice <= 2)
        cancel_in_run(p);
    else if (p->heap.count)
        pair_cancel(p, p->heap.order[choice == 3 ? 0 : below(p, p->heap.count)]);
}

static void pair_clear(pair *p)
{
    for (uint32_t i = 0; i < p->heap.count && i < STALE / 2; i++)
        make_stale(p, p->heap.events[p->heap.order[i]].handle);
    uint32_t peak = kb_eventset_peak(&p->set);
    kb_eventset_clear(&p->set);
    reference_heap_clear(&p->heap);
    assert_int_equal(kb_eventset_peak(&p->set), peak);
    expect_same_next(p);
}

static void pair_drain(pair *p)
{
    while (p->heap.count)
        pair_pop(p);
}

/* ---- Traffic ---- */

typedef enum traffic {
    ZERO,     /* mostly no delay at all */
    TIES,     /* few different times, so many events at each */
    HARDWARE, /* cycles and latencies of a few clocks */
    DENSE,    /* exponential with a mean of 40 fs: several an instant */
    SPARSE,   /* exponential with a mean of 3 us */
    FAR,      /* uniform over a second */
    ENDLESS,  /* any number of bits up to 62 */
    MIXED,    /* all of the above */
    TRAFFICS
} traffic;

static kb_time draw_delay(kb_rng *rng, traffic kind)
{
    static const kb_time hardware[] = {500 * KB_PS, 666667,       KB_NS,      1333334,
                                       2 * KB_NS,   7143 * KB_PS, 60 * KB_NS, 120 * KB_NS};
    if (kind == MIXED)
        kind = (traffic)kb_rng_below(rng, MIXED);
    switch (kind) {
    case ZERO:
        return kb_rng_below(rng, 8) ? 0 : (kb_time)kb_rng_below(rng, 1000);
    case TIES:
        return (kb_time)kb_rng_below(rng, 4) * KB_NS;
    case HARDWARE:
        return hardware[kb_rng_below(rng, 8)];
    case DENSE:
        return kb_rng_exponential_time(rng, 40);
    case SPARSE:
        return kb_rng_exponential_time(rng, 3 * KB_US);
    case FAR:
        return (kb_time)kb_rng_below(rng, (uint64_t)KB_S);
    default:
        return (kb_time)(kb_rng_u64(rng) >> (2 + kb_rng_below(rng, 60)));
    }
}

static void push_later(pair *p, traffic kind)
{
    kb_time when;
    if (__builtin_add_overflow(p->now, draw_delay(&p->rng, kind), &when) || when == KB_FOREVER)
        when = KB_FOREVER - 1;
    pair_push(p, when);
}

/* Pushes and pops around `target` pending events; of 64 operations, `cancels` are cancels. */
static void mingle(pair *p, const char *phase, traffic kind, uint32_t target, uint32_t operations,
                   uint32_t cancels)
{
    p->phase = phase;
    for (uint32_t i = 0; i < operations; i++) {
        uint64_t push_of_8 = p->heap.count < target ? 6 : p->heap.count > target ? 2 : 4;
        if (below(p, 64) < cancels)
            cancel_something(p);
        else if (p->heap.count == 0 || below(p, 8) < push_of_8)
            push_later(p, kind);
        else
            pair_pop(p);
    }
}

/* Many at one instant. While they are consumed, some are cancelled and latecomers join them. */
static void burst(pair *p, uint32_t count)
{
    p->phase = "burst";
    kb_time left = KB_FOREVER - 1 - p->now;
    kb_time when = p->now + (kb_time)below(p, left < 1000 ? (uint64_t)left + 1 : 1000);
    for (uint32_t i = 0; i < count; i++)
        pair_push(p, when);
    for (uint32_t i = 0; i < count / 2; i++) {
        pair_pop(p);
        uint64_t choice = below(p, 8);
        if (choice == 0)
            pair_push(p, p->now);
        else if (choice == 1)
            cancel_in_run(p);
    }
    while (p->heap.count > count / 8)
        pair_pop(p);
}

/* ---- Property tests ---- */

/* All kinds of traffic in a random order, changing abruptly, with drains and clears in between. */
static void random_traffic(uint64_t seed)
{
    enum { capacity = 1 << 18, phases = 16 };
    static const char *const names[TRAFFICS] = {"zero",   "ties", "hardware", "dense",
                                                "sparse", "far",  "endless",  "mixed"};
    static const uint32_t targets[] = {1, 2, 5, 30, 300, 3000, 30000};
    pair p;
    pair_init(&p, seed, capacity);
    uint32_t operations = scaled(24000);
    for (int phase = 0; phase < phases; phase++) {
        traffic kind = (traffic)below(&p, TRAFFICS);
        uint32_t target = targets[below(&p, sizeof targets / sizeof *targets)];
        uint32_t cancels = below(&p, 2) ? 0 : (uint32_t)below(&p, 24);
        mingle(&p, names[kind], kind, target, operations, cancels);
        switch (below(&p, 8)) {
        case 0:
            p.phase = "drain";
            pair_drain(&p);
            break;
        case 1:
            p.phase = "clear";
            pair_clear(&p);
            break;
        case 2:
            burst(&p, operations / 8);
            break;
        default:
            break;
        }
        if (p.now > (kb_time)1 << 61) { /* time is nearly over: begin anew */
            pair_fini(&p);
            pair_init(&p, seed + 1000000 * (uint64_t)(phase + 1), capacity);
        }
    }
    p.phase = "end";
    pair_drain(&p);
    check_invariants(&p.set);
    pair_fini(&p);
}

static void agrees_with_a_heap_on_random_traffic(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 10; seed++)
        random_traffic(seed);
}

static void invariants_hold_throughout(void **state)
{
    (void)state;
    enum { rounds = 12, steps = 12 };
    pair p;
    pair_init(&p, 77, 1 << 16);
    for (uint32_t round = 0; round < rounds; round++) {
        traffic kind = round < TRAFFICS ? (traffic)round : MIXED;
        uint32_t target = round % 3 == 0 ? 20 : round % 3 == 1 ? 700 : 9000;
        kind = kind == ENDLESS ? FAR : kind; /* last, below: it uses time up */
        for (int i = 0; i < steps; i++) {
            mingle(&p, "steps", kind, target, 1 + scaled(3000), round % 2 ? 12 : 0);
            check_invariants(&p.set);
        }
        burst(&p, 1 + scaled(3000));
        check_invariants(&p.set);
        if (round % 4 == 3) {
            pair_clear(&p);
            check_invariants(&p.set);
        }
    }
    for (int i = 0; i < steps; i++) {
        mingle(&p, "endless", ENDLESS, 500, 1 + scaled(3000), 6);
        check_invariants(&p.set);
    }
    pair_drain(&p);
    check_invariants(&p.set);
    pair_fini(&p);
}

/* Every single operation is followed by a check here, of small sets with many cancels. */
static void invariants_hold_after_each_operation(void **state)
{
    (void)state;
    pair p;
    pair_init(&p, 78, 4096);
    for (uint32_t i = 0; i < 200 + scaled(6000); i++) {
        traffic kind = (traffic)(i / 500 % ENDLESS);
        mingle(&p, "one", kind, 150, 1, 16);
        check_invariants(&p.set);
    }
    pair_fini(&p);
}

static void grows_to_a_million_and_back(void **state)
{
    (void)state;
    uint32_t most = scaled(1000000);
    pair p;
    pair_init(&p, 5, most + 1);
    p.phase = "growing";
    for (uint32_t i = 0; p.heap.count < most; i++) {
        if (i % 8 == 7)
            pair_pop(&p);
        else
            push_later(&p, i % 16 ? SPARSE : FAR);
    }
    assert_int_equal(kb_eventset_pending(&p.set), most);
    check_invariants(&p.set);
    p.phase = "shrinking";
    for (uint32_t i = 0; p.heap.count; i++) {
        if (i % 8 == 7)
            push_later(&p, SPARSE);
        else
            pair_pop(&p);
    }
    check_invariants(&p.set);
    pair_fini(&p);
}

/* 100,000 at one instant, many times at later ones, with other events around. */
static void bursts_come_out_in_order(void **state)
{
    (void)state;
    uint32_t count = scaled(100000);
    pair p;
    pair_init(&p, 6, 8 * count);
    for (int i = 0; i < 4; i++) {
        burst(&p, count);
        mingle(&p, "after a burst", HARDWARE, 100, scaled(20000), 8);
        for (uint32_t j = 0; j < count / 4; j++) /* an instant in the next burst's way */
            pair_push(&p, p.now + KB_NS);
    }
    pair_drain(&p);
    pair_fini(&p);
}

/* Law: the wheel is fitted to the rate, which leaps by decades here, and this changes no order. */
static void tuning_changes_no_order(void **state)
{
    (void)state;
    static const kb_time means[] = {1, KB_US, KB_PS, 100 * KB_MS, 10, KB_NS, KB_MS, 100 * KB_PS};
    uint32_t operations = scaled(20000) + 3000; /* two looks at the rate at least */
    uint64_t shifts = 0;
    uint32_t sizes = 0;
    pair p;
    pair_init(&p, 9, 4096);
    p.phase = "tuning";
    for (uint32_t leap = 0; leap < sizeof means / sizeof *means; leap++) {
        uint32_t target = leap % 3 ? 10 : 2000;
        pair_drain(&p); /* else what is left for the far future takes up the few places */
        for (uint32_t i = 0; i < operations; i++) {
            while (p.heap.count >= target)
                pair_pop(&p);
            pair_push(&p, p.now + kb_rng_exponential_time(&p.rng, means[leap]));
        }
        shifts |= UINT64_C(1) << p.set.shift;
        sizes |= p.set.mask + 1;
    }
    assert_true(__builtin_popcountll(shifts) >= 6); /* there was some tuning */
    assert_true(__builtin_popcount(sizes) >= 2);
    pair_drain(&p);
    pair_fini(&p);
}

/* ---- Single cases ---- */

static uint64_t key_of(uint32_t source, uint64_t sequence)
{
    return (uint64_t)source << 40 | sequence;
}

static void an_empty_set_has_no_next(void **state)
{
    (void)state;
    kb_eventset set;
    assert_true(kb_eventset_init(&set));
    assert_true(set.next->time == KB_FOREVER);
    assert_true(set.next->key == UINT64_MAX);
    assert_ptr_equal(set.next, set.nodes);
    assert_int_equal(kb_eventset_pending(&set), 0);
    assert_int_equal(kb_eventset_peak(&set), 0);
    kb_eventset_clear(&set); /* nothing to do */
    assert_true(set.next->time == KB_FOREVER);
    check_invariants(&set);
    kb_eventset_fini(&set);
}

static void one_event_comes_and_goes(void **state)
{
    (void)state;
    const kb_time times[] = {0, 1, KB_NS, KB_S, (kb_time)1 << 62, KB_FOREVER - 1};
    kb_eventset set;
    assert_true(kb_eventset_init(&set));
    for (uint32_t i = 0; i < sizeof times / sizeof *times; i++) {
        kb_event handle = kb_eventset_push(&set, times[i], key_of(3, i), 7 + i, ~(uint64_t)i);
        assert_int_not_equal(handle.slot, 0);
        assert_true(handle.key == key_of(3, i));
        assert_int_equal(kb_eventset_pending(&set), 1);
        assert_true(set.next->time == times[i]);
        assert_true(set.next->key == key_of(3, i));
        kb_node event = kb_eventset_pop(&set);
        assert_true(event.time == times[i]);
        assert_true(event.key == key_of(3, i));
        assert_int_equal(event.handler, 7 + i);
        assert_true(event.arg == ~(uint64_t)i);
        assert_int_equal(kb_eventset_pending(&set), 0);
        assert_ptr_equal(set.next, set.nodes);
    }
    assert_int_equal(set.taken, 6);
    assert_int_equal(kb_eventset_peak(&set), 1);
    check_invariants(&set);
    kb_eventset_fini(&set);
}

/* The seven events of the next test, in order: by time, then source, then sequence. */
static kb_node ordered_event(uint32_t rank, kb_time step)
{
    static const struct {
        kb_time time;
        uint32_t source;
        uint64_t sequence;
    } order[] = {{0, 5, 9}, {1, 0, 1}, {1, 0, 2}, {1, 3, 0}, {1, KB_SOURCE_ID_MAX, 0},
                 {2, 0, 0}, {2, 2, 0}};
    return (kb_node){.time = order[rank].time * step,
                     .key = key_of(order[rank].source, order[rank].sequence),
                     .handler = rank + 1,
                     .arg = rank};
}

/*
 * Law: the order is (time, source, sequence at the source), in whatever order events are pushed:
 * all 7! permutations. With a step of 1 fs all share a bucket, with 1 us some are in segments, with
 * 2^60 fs in the heap.
 */
static void order_is_time_source_sequence(void **state)
{
    (void)state;
    enum { events = 7, permutations = 5040 };
    const kb_time steps[] = {1, KB_NS, KB_US, (kb_time)1 << 60};
    for (uint32_t s = 0; s < 4; s++) {
        for (uint32_t code = 0; code < permutations; code += RUNNING_ON_VALGRIND ? 37 : 1) {
            kb_eventset set;
            assert_true(kb_eventset_init(&set));
            uint32_t left[events] = {0, 1, 2, 3, 4, 5, 6};
            uint32_t rest = code;
            for (uint32_t count = events; count > 0; count--) {
                uint32_t pick = rest % count;
                rest /= count;
                kb_node event = ordered_event(left[pick], steps[s]);
                assert_int_not_equal(
                    kb_eventset_push(&set, event.time, event.key, event.handler, event.arg).slot,
                    0);
                left[pick] = left[count - 1];
            }
            for (uint32_t rank = 0; rank < events; rank++)
                assert_int_equal(kb_eventset_pop(&set).arg, rank);
            assert_int_equal(kb_eventset_pending(&set), 0);
            kb_eventset_fini(&set);
        }
    }
}

static void next_is_always_shown(void **state)
{
    (void)state;
    kb_eventset set;
    assert_true(kb_eventset_init(&set));
    kb_event at_30 = kb_eventset_push(&set, 30, key_of(4, 0), 1, 0);
    assert_true(set.next->time == 30 && set.next->key == key_of(4, 0));
    (void)kb_eventset_push(&set, 30, key_of(4, 1), 1, 0); /* the same source, later */
    (void)kb_eventset_push(&set, 30, key_of(5, 0), 1, 0); /* a later source */
    (void)kb_eventset_push(&set, 31, key_of(0, 0), 1, 0); /* a later time */
    assert_true(set.next->time == 30 && set.next->key == key_of(4, 0));
    (void)kb_eventset_push(&set, 30, key_of(3, 7), 1, 0); /* an earlier source */
    assert_true(set.next->time == 30 && set.next->key == key_of(3, 7));
    kb_event at_29 = kb_eventset_push(&set, 29, key_of(9, 0), 1, 0);
    assert_true(set.next->time == 29 && set.next->key == key_of(9, 0));

    assert_true(kb_eventset_cancel(&set, at_29));
    assert_true(set.next->time == 30 && set.next->key == key_of(3, 7));
    assert_true(kb_eventset_cancel(&set, at_30));
    assert_true(set.next->time == 30 && set.next->key == key_of(3, 7));
    assert_true(kb_eventset_pop(&set).key == key_of(3, 7));
    assert_true(set.next->time == 30 && set.next->key == key_of(4, 1)); /* not the cancelled one */
    check_invariants(&set);
    kb_eventset_fini(&set);
}

static void cancel_says_whether_the_event_was_pending(void **state)
{
    (void)state;
    kb_eventset set;
    assert_true(kb_eventset_init(&set));
    kb_event a = kb_eventset_push(&set, 10, key_of(1, 0), 1, 0);
    kb_event b = kb_eventset_push(&set, 20, key_of(1, 1), 1, 0);
    kb_event c = kb_eventset_push(&set, 30, key_of(1, 2), 1, 0);
    assert_true(kb_eventset_cancel(&set, b));
    assert_false(kb_eventset_cancel(&set, b)); /* cancelled before */
    assert_int_equal(kb_eventset_pending(&set), 2);
    (void)kb_eventset_pop(&set);
    assert_false(kb_eventset_cancel(&set, a)); /* it has happened */

    kb_event d = kb_eventset_push(&set, 40, key_of(1, 3), 1, 0);
    kb_event e = kb_eventset_push(&set, 40, key_of(1, 4), 1, 0);
    assert_true(d.slot == a.slot || e.slot == a.slot || d.slot == b.slot || e.slot == b.slot);
    assert_false(kb_eventset_cancel(&set, a)); /* its slot has another event now */
    assert_false(kb_eventset_cancel(&set, b));

    assert_false(kb_eventset_cancel(&set, (kb_event){0}));
    assert_false(kb_eventset_cancel(&set, (kb_event){.key = UINT64_MAX}));
    assert_false(kb_eventset_cancel(&set, (kb_event){.key = c.key, .slot = set.capacity}));
    assert_false(kb_eventset_cancel(&set, (kb_event){.key = c.key, .slot = UINT64_MAX}));
    assert_false(kb_eventset_cancel(&set, (kb_event){.key = c.key + 1, .slot = c.slot}));
    assert_false(kb_eventset_cancel(&set, (kb_event){.slot = set.capacity - 1})); /* never used */
    assert_int_equal(kb_eventset_pending(&set), 3);
    assert_true(kb_eventset_cancel(&set, c) && kb_eventset_cancel(&set, e));
    assert_true(kb_eventset_cancel(&set, d));
    assert_int_equal(kb_eventset_pending(&set), 0);
    assert_ptr_equal(set.next, set.nodes);
    check_invariants(&set);
    kb_eventset_fini(&set);
}

static void pending_and_peak_count(void **state)
{
    (void)state;
    kb_eventset set;
    assert_true(kb_eventset_init(&set));
    uint64_t key = 0;
    for (kb_time t = 1; t <= 3; t++)
        (void)kb_eventset_push(&set, t, key++, 1, 0);
    assert_int_equal(kb_eventset_pending(&set), 3);
    assert_int_equal(kb_eventset_peak(&set), 3);
    (void)kb_eventset_pop(&set);
    (void)kb_eventset_pop(&set);
    (void)kb_eventset_push(&set, 10, key++, 1, 0);
    assert_int_equal(kb_eventset_pending(&set), 2); /* 3 - 2 + 1 */
    assert_int_equal(kb_eventset_peak(&set), 3);
    for (kb_time t = 11; t <= 13; t++)
        (void)kb_eventset_push(&set, t, key++, 1, 0);
    assert_int_equal(kb_eventset_pending(&set), 5);
    assert_int_equal(kb_eventset_peak(&set), 5);
    kb_eventset_clear(&set);
    assert_int_equal(kb_eventset_pending(&set), 0);
    assert_int_equal(kb_eventset_peak(&set), 5); /* a clear does not forget it */
    for (kb_time t = 14; t <= 19; t++)
        (void)kb_eventset_push(&set, t, key++, 1, 0);
    assert_int_equal(kb_eventset_peak(&set), 6);
    for (kb_time t = 1000; t < 3000; t++) /* growing must not be taken for use */
        (void)kb_eventset_push(&set, t, key++, 1, 0);
    assert_int_equal(kb_eventset_pending(&set), 2006);
    assert_int_equal(kb_eventset_peak(&set), 2006);
    kb_eventset_fini(&set);
}

static void clearing_forgets_all_and_can_be_gone_on_from(void **state)
{
    (void)state;
    pair p;
    pair_init(&p, 21, 8192);
    for (int i = 0; i < 20; i++) {
        mingle(&p, "before", i % 2 ? FAR : TIES, 3000, 200 + scaled(8000), 4);
        pair_clear(&p);
        check_invariants(&p.set);
        for (uint32_t j = 0; j < STALE; j++)
            assert_false(kb_eventset_cancel(&p.set, p.stale[j]));
    }
    pair_fini(&p);
}

/*
 * Cancelled events are swept out when more are cancelled than pending, so timeouts that are always
 * cancelled cost no memory. By hand: 100 are pending and at most 101 cancelled when a sweep comes,
 * so the 256 nodes of a new set are enough for ever.
 */
static void cancelled_events_take_no_memory_for_long(void **state)
{
    (void)state;
    kb_eventset set;
    assert_true(kb_eventset_init(&set));
    uint32_t capacity = set.capacity;
    assert_int_equal(capacity, 256);
    uint64_t key = 0;
    for (kb_time t = 0; t < 100; t++)
        (void)kb_eventset_push(&set, t, key++, 1, 0);
    for (int i = 0; i < 20000; i++) {
        kb_event timeout = kb_eventset_push(&set, KB_MS + i, key++, 1, 0);
        assert_true(kb_eventset_cancel(&set, timeout));
        assert_in_range(set.dead, 0, 101);
    }
    assert_int_equal(set.capacity, capacity);
    assert_in_range(kb_eventset_peak(&set), 100, 202);
    for (kb_time t = 0; t < 100; t++)
        assert_true(kb_eventset_pop(&set).time == t);
    assert_int_equal(kb_eventset_pending(&set), 0);
    check_invariants(&set);
    kb_eventset_fini(&set);
}

/* An event at the last instant there is, below KB_FOREVER, comes after everything else. */
static void the_end_of_time_is_in_reach(void **state)
{
    (void)state;
    kb_eventset set;
    assert_true(kb_eventset_init(&set));
    for (uint32_t i = 0; i < 63; i++) {
        kb_time time = KB_FOREVER >> i;
        (void)kb_eventset_push(&set, time - (i == 0), key_of(i, 0), 1, i);
    }
    (void)kb_eventset_push(&set, KB_FOREVER - 1, key_of(1, 1), 1, 63);
    check_invariants(&set);
    for (uint32_t i = 0; i < 62; i++)
        assert_int_equal(kb_eventset_pop(&set).arg, 62 - i);
    assert_int_equal(kb_eventset_pop(&set).arg, 0); /* source 0 before source 1 */
    assert_true(set.next->time == KB_FOREVER - 1);
    (void)kb_eventset_push(&set, KB_FOREVER - 1, key_of(0, 1), 1, 64); /* now, an earlier source */
    assert_int_equal(kb_eventset_pop(&set).arg, 64);
    assert_int_equal(kb_eventset_pop(&set).arg, 63);
    assert_int_equal(kb_eventset_pending(&set), 0);
    check_invariants(&set);
    kb_eventset_fini(&set);
}

/* ---- Without memory ---- */

static void try_init(void)
{
    kb_eventset set;
    if (kb_eventset_init(&set)) {
        assert_int_not_equal(kb_eventset_push(&set, 1, 1, 1, 1).slot, 0);
        kb_eventset_fini(&set);
    }
}

static void init_survives_any_failure(void **state)
{
    (void)state;
    failing_alloc_try_all(try_init);
}

/* Law: a push without memory says so, and leaves the set as it was. */
static void a_push_without_memory_changes_nothing(void **state)
{
    (void)state;
    pair p;
    pair_init(&p, 31, 4096);
    while (p.set.free_node)
        push_later(&p, MIXED);
    uint32_t pending = kb_eventset_pending(&p.set);
    for (long nth = 1; nth <= 4; nth++) { /* four arrays grow */
        failing_alloc_arm(nth, FAIL_ONCE);
        kb_event event = kb_eventset_push(&p.set, p.now, key_of(0, (uint64_t)1 << 39), 1, 0);
        assert_true(failing_alloc_disarm());
        assert_int_equal(event.slot, 0);
        assert_int_equal(kb_eventset_pending(&p.set), pending);
        expect_same_next(&p);
        check_invariants(&p.set);
    }
    pair_push(&p, p.now); /* there is memory again */
    mingle(&p, "after", MIXED, 1000, 2000, 8);
    pair_drain(&p);
    pair_fini(&p);
}

/*
 * Law: popping and cancelling work without memory, and in particular a wheel that cannot be resized
 * only makes the set slower. 3000 pending events want a wheel of 32768 buckets, as 3000 * 2 buckets
 * an event * 4 times their mean delay is 24000; the set has one of 128.
 */
static void a_wheel_that_cannot_be_resized_still_works(void **state)
{
    (void)state;
    enum { few_buckets = 128, pending = 3000 };
    pair p;
    pair_init(&p, 32, 2 * pending);
    while (p.set.capacity < 2 * pending)
        push_later(&p, FAR); /* so that there are nodes enough for what follows */
    pair_clear(&p);
    assert_int_equal(p.set.mask + 1, few_buckets);
    failing_alloc_arm(1, FAIL_ONWARDS);
    while (p.heap.count < pending)
        push_later(&p, SPARSE);
    for (int i = 0; i < 20000; i++) {
        pair_pop(&p);
        push_later(&p, i < 10000 ? SPARSE : HARDWARE);
        if (i % 16 == 0) {
            cancel_something(&p);
            if (p.heap.count < pending)
                push_later(&p, FAR);
        }
    }
    assert_true(failing_alloc_disarm()); /* it did try */
    assert_int_equal(p.set.mask + 1, few_buckets);
    check_invariants(&p.set);
    for (int i = 0; i < 20000; i++) {
        pair_pop(&p);
        push_later(&p, SPARSE);
    }
    assert_true(p.set.mask + 1 > few_buckets); /* with memory it does succeed */
    pair_drain(&p);
    check_invariants(&p.set);
    pair_fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_set_has_no_next),
        cmocka_unit_test(one_event_comes_and_goes),
        cmocka_unit_test(order_is_time_source_sequence),
        cmocka_unit_test(next_is_always_shown),
        cmocka_unit_test(cancel_says_whether_the_event_was_pending),
        cmocka_unit_test(pending_and_peak_count),
        cmocka_unit_test(clearing_forgets_all_and_can_be_gone_on_from),
        cmocka_unit_test(cancelled_events_take_no_memory_for_long),
        cmocka_unit_test(the_end_of_time_is_in_reach),
        cmocka_unit_test(init_survives_any_failure),
        cmocka_unit_test(a_push_without_memory_changes_nothing),
        cmocka_unit_test(a_wheel_that_cannot_be_resized_still_works),
        cmocka_unit_test(invariants_hold_after_each_operation),
        cmocka_unit_test(invariants_hold_throughout),
        cmocka_unit_test(tuning_changes_no_order),
        cmocka_unit_test(bursts_come_out_in_order),
        cmocka_unit_test(grows_to_a_million_and_back),
        cmocka_unit_test(agrees_with_a_heap_on_random_traffic),
    };
    return cmocka_run_group_tests_name("eventset", tests, NULL, NULL);
}
