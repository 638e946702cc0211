/*
 * test_causes.c: what the time of PEs goes to, and that it adds up: the rule on cases worked out by
 * hand, and random histories against a replay instant by instant; the same by source line.
 *
 * Checks O2 and O3.
 */
#include "oplog/log_rig.h"
#include "support/failing_alloc.h"
#include "support/seed.h"

#include <math.h>

static void begin(rig *r, uint64_t pe, kb_cause cause, uint64_t bytes)
{
    kb_oplog_begin(r->log, pe, kb_sim_now(r->sim), cause, bytes, NULL);
}

static void end(rig *r, uint64_t pe, kb_cause cause, uint64_t bytes)
{
    kb_oplog_end(r->log, pe, kb_sim_now(r->sim), cause, bytes, NULL);
}

static void expect_causes(const kb_time_sum *found, const kb_time_sum *expected)
{
    for (int c = 0; c < KB_CAUSES; c++)
        if (found[c] != expected[c])
            fail_msg("%s: %lld, not %lld", kb_cause_name((kb_cause)c), (long long)found[c],
                     (long long)expected[c]);
}

static kb_time_sum sum_of(const kb_time_sum causes[KB_CAUSES])
{
    kb_time_sum sum = 0;
    for (int c = 0; c < KB_CAUSES; c++)
        sum += causes[c];
    return sum;
}

/* ---- Names and groups -------------------------------------------------------------------- */

static void causes_have_names_and_groups(void **state)
{
    (void)state;
    kb_time_sum causes[KB_CAUSES];
    for (int a = 0; a < KB_CAUSES; a++) {
        causes[a] = (kb_time)1 << a;
        for (int b = 0; b < a; b++)
            assert_string_not_equal(kb_cause_name((kb_cause)a), kb_cause_name((kb_cause)b));
    }
    assert_string_equal(kb_cause_name(KB_CAUSES), "?");
    kb_split_time split = kb_split_causes(causes);
    assert_int_equal(split.compute,
                     1 << KB_CAUSE_MATRIX | 1 << KB_CAUSE_VECTOR | 1 << KB_CAUSE_MATRIX_DRAIN);
    assert_int_equal(split.memory, 1 << KB_CAUSE_LOCAL_MEMORY | 1 << KB_CAUSE_TCM);
    assert_int_equal(split.idle, 1 << KB_CAUSE_ISSUE | 1 << KB_CAUSE_IMBALANCE);
    assert_int_equal(split.compute + split.memory + split.communication + split.idle,
                     (1 << KB_CAUSES) - 1);
}

/* ---- Dividing ---------------------------------------------------------------------------- */

/* 10 by 1 : 1 : 1 is 3 1/3, 6 2/3 and 10 up to each: 3, 3 and 4. 7 by 5 : 0 : 5 : 4 is 2.5, 2.5, 5
 * and 7: 2, 0, 3 and 2. */
static void time_is_divided_without_loss(void **state)
{
    (void)state;
    kb_time parts[4];
    kb_divide_time(10, (const uint64_t[]){1, 1, 1}, 3, parts);
    assert_true(parts[0] == 3 && parts[1] == 3 && parts[2] == 4);
    kb_divide_time(7, (const uint64_t[]){5, 0, 5, 4}, 4, parts);
    assert_true(parts[0] == 2 && parts[1] == 0 && parts[2] == 3 && parts[3] == 2);
    kb_divide_time(0, (const uint64_t[]){5, 1}, 2, parts);
    assert_true(parts[0] == 0 && parts[1] == 0);
}

static void parts_add_up_whatever_they_are(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(3));
    for (int i = 0; i < 10000; i++) {
        kb_time whole = (kb_time)(kb_rng_u64(&rng) >> (1 + kb_rng_below(&rng, 63)));
        uint64_t weights[5];
        kb_time parts[5], given = 0;
        long double total = 0;
        for (int j = 0; j < 5; j++)
            total +=
                (long double)(weights[j] = (kb_rng_u64(&rng) >> (3 + kb_rng_below(&rng, 61))) + 1);
        kb_divide_time(whole, weights, 5, parts);
        for (int j = 0; j < 5; j++) {
            long double exact = (long double)whole * (long double)weights[j] / total;
            assert_true(fabsl((long double)parts[j] - exact) <= 1 + 1e-15L * exact);
            given += parts[j];
        }
        assert_int_equal(given, whole);
    }
}

/* ---- The rule ---------------------------------------------------------------------------- */

/*
 *     time      0    40   50   60   70   75   80   90   100
 *     kernel    [====================================)
 *     near 300  [====)
 *     far 100   [==========================)
 *     matrix              [=========)
 *     vector                   [==============)
 *     drain                                   [====)
 *
 * Until 40 near and far share 3 : 1, so 30 and 10; far to 50; matrix to 60, both engines to 70, so
 * 5 each; vector to 80; drain to 90; nothing to 100.
 */
static void engines_then_bytes_then_drains(void **state)
{
    (void)state;
    rig r = make(3);
    kb_oplog_kernel_begin(r.log, 2, 0);
    begin(&r, 2, KB_CAUSE_LOCAL_MEMORY, 300);
    begin(&r, 2, KB_CAUSE_OTHER_CUBES, 100);
    go_to(&r, 40);
    end(&r, 2, KB_CAUSE_LOCAL_MEMORY, 300);
    go_to(&r, 50);
    begin(&r, 2, KB_CAUSE_MATRIX, 0);
    go_to(&r, 60);
    begin(&r, 2, KB_CAUSE_VECTOR, 0);
    kb_timeline meanwhile = kb_oplog_timeline(r.log);
    assert_int_equal(meanwhile.causes[KB_CAUSE_MATRIX], 10);
    assert_int_equal(sum_of(meanwhile.causes), 60);
    go_to(&r, 70);
    end(&r, 2, KB_CAUSE_MATRIX, 0);
    go_to(&r, 75);
    end(&r, 2, KB_CAUSE_OTHER_CUBES, 100);
    go_to(&r, 80);
    begin(&r, 2, KB_CAUSE_MATRIX_DRAIN, 0);
    end(&r, 2, KB_CAUSE_VECTOR, 0);
    go_to(&r, 90);
    end(&r, 2, KB_CAUSE_MATRIX_DRAIN, 0);
    go_to(&r, 100);
    kb_time_sum causes[KB_CAUSES] = {0};
    kb_oplog_kernel_end(r.log, 2, causes);
    const kb_time_sum expected[KB_CAUSES] = {
        [KB_CAUSE_MATRIX] = 15,       [KB_CAUSE_VECTOR] = 15,      [KB_CAUSE_MATRIX_DRAIN] = 10,
        [KB_CAUSE_LOCAL_MEMORY] = 30, [KB_CAUSE_OTHER_CUBES] = 20, [KB_CAUSE_ISSUE] = 10,
    };
    expect_causes(causes, expected);
    kb_timeline timeline = kb_oplog_timeline(r.log);
    expect_causes(timeline.causes, expected);
    assert_true(timeline.kernels == 100 && timeline.pes == 1 && timeline.both_engines == 10);
    assert_int_equal(timeline.bytes[KB_CAUSE_LOCAL_MEMORY], 300);
    assert_int_equal(timeline.bytes[KB_CAUSE_OTHER_CUBES], 100);
    drop(&r);
}

/*
 * Bytes that begin or end change the division: 10 of 1 : 1, then 9 of 1 : 2, then 1 : 1 again for
 * 3, which is 1 and 2. A message of no bytes counts as one byte.
 */
static void each_change_of_bytes_counts(void **state)
{
    (void)state;
    rig r = make(1);
    kb_oplog_kernel_begin(r.log, 0, 0);
    begin(&r, 0, KB_CAUSE_CREDIT, 1);
    begin(&r, 0, KB_CAUSE_MESSAGE, 0);
    go_to(&r, 10);
    begin(&r, 0, KB_CAUSE_CREDIT, 1);
    go_to(&r, 19);
    end(&r, 0, KB_CAUSE_CREDIT, 1);
    go_to(&r, 22);
    end(&r, 0, KB_CAUSE_CREDIT, 1);
    end(&r, 0, KB_CAUSE_MESSAGE, 0);
    kb_time_sum causes[KB_CAUSES] = {0};
    kb_oplog_kernel_end(r.log, 0, causes);
    expect_causes(causes, (const kb_time_sum[KB_CAUSES]){
                              [KB_CAUSE_MESSAGE] = 5 + 3 + 1, [KB_CAUSE_CREDIT] = 5 + 6 + 2});
    drop(&r);
}

/* Bytes are outstanding all the time, and results drain until 30: these count only from 10 on, when
 * a product waits for them, until 20. */
static void drains_that_products_wait_for_come_first(void **state)
{
    (void)state;
    rig r = make(1);
    kb_oplog_kernel_begin(r.log, 0, 0);
    begin(&r, 0, KB_CAUSE_LOCAL_MEMORY, 64);
    begin(&r, 0, KB_CAUSE_MATRIX_DRAIN, 0);
    go_to(&r, 10);
    kb_oplog_need_drain(r.log, 0, kb_sim_now(r.sim), true);
    go_to(&r, 20);
    kb_oplog_need_drain(r.log, 0, kb_sim_now(r.sim), false);
    go_to(&r, 30);
    end(&r, 0, KB_CAUSE_MATRIX_DRAIN, 0);
    go_to(&r, 35);
    end(&r, 0, KB_CAUSE_LOCAL_MEMORY, 64);
    kb_time_sum causes[KB_CAUSES] = {0};
    kb_oplog_kernel_end(r.log, 0, causes);
    expect_causes(causes, (const kb_time_sum[KB_CAUSES]){
                              [KB_CAUSE_MATRIX_DRAIN] = 10, [KB_CAUSE_LOCAL_MEMORY] = 25});
    assert_int_equal(kb_oplog_timeline(r.log).needed_drain, 10);
    drop(&r);
}

/* ---- PEs without a kernel ---------------------------------------------------------------- */

/*
 *     time      0    10   20   30   50   60   65   70   80
 *     clock     0    0    10   20   40   40   45   50   60
 *     PE 0           [=============)
 *     PE 1                [===)         [===========)
 *     PE 2                                   [====)
 *
 * The launches of PEs 0 and 1 are posted at 0. PE 1 waits for it 10, runs 10, has none for 20; its
 * second is posted at a clock of 40 and begins at once. PE 2's is posted at a clock of 42: nothing
 * for 42, 3 for the launch. PE 0 has none for the last 20, PE 2 for 10.
 */
static void pes_without_a_kernel_wait_for_a_launch_or_for_others(void **state)
{
    (void)state;
    rig r = make(5);
    kb_time_sum causes[KB_CAUSES] = {0};
    go_to(&r, 10);
    kb_oplog_kernel_begin(r.log, 0, 0);
    go_to(&r, 20);
    kb_oplog_kernel_begin(r.log, 1, 0);
    go_to(&r, 30);
    kb_oplog_kernel_end(r.log, 1, causes);
    go_to(&r, 50);
    kb_oplog_kernel_end(r.log, 0, causes);
    go_to(&r, 60);
    kb_oplog_kernel_begin(r.log, 1, kb_oplog_kernel_clock(r.log));
    go_to(&r, 62);
    kb_time posted = kb_oplog_kernel_clock(r.log);
    assert_int_equal(posted, 42);
    go_to(&r, 65);
    kb_oplog_kernel_begin(r.log, 2, posted);
    go_to(&r, 70);
    kb_oplog_kernel_end(r.log, 2, causes);
    go_to(&r, 80);
    kb_oplog_kernel_end(r.log, 1, causes);
    go_to(&r, 90);
    expect_causes(causes, (const kb_time_sum[KB_CAUSES]){[KB_CAUSE_ISSUE] = 40 + 10 + 20 + 5});
    kb_timeline t = kb_oplog_timeline(r.log);
    expect_causes(t.causes, (const kb_time_sum[KB_CAUSES]){
                                [KB_CAUSE_ISSUE] = 75,
                                [KB_CAUSE_LAUNCH] = 10 + 3,
                                [KB_CAUSE_IMBALANCE] = 20 + 42 + 20 + 10,
                            });
    assert_true(t.kernels == 60 && t.pes == 3 && t.in_kernels == 75);
    assert_int_equal(sum_of(t.causes), 3 * 60);
    assert_true(t.longest_pe == 0 && t.longest == 40 && t.mean == 25);
    drop(&r);
}

/* Nothing to 10; a copy to 20, a launch besides it to 40, while a kernel runs from 25 to 35; a copy
 * to 45; nothing to 50. */
static void the_run_is_divided_too(void **state)
{
    (void)state;
    rig r = make(1);
    kb_time_sum causes[KB_CAUSES] = {0};
    go_to(&r, 10);
    kb_oplog_request_begin(r.log);
    go_to(&r, 20);
    kb_oplog_request_begin(r.log);
    kb_oplog_launch_begin(r.log);
    go_to(&r, 25);
    kb_oplog_kernel_begin(r.log, 0, 0);
    go_to(&r, 35);
    kb_oplog_kernel_end(r.log, 0, causes);
    go_to(&r, 40);
    kb_oplog_request_end(r.log);
    kb_oplog_launch_end(r.log);
    go_to(&r, 45);
    kb_oplog_request_end(r.log);
    go_to(&r, 50);
    kb_timeline t = kb_oplog_timeline(r.log);
    assert_true(t.kernels == 10 && t.launching == 10 && t.requesting == 15 && t.idle == 15);
    drop(&r);
}

/* ---- Against a replay -------------------------------------------------------------------- */

enum { PES = 3, STEPS = 400, ITEMS = 6, LINES = 5 };

/* Something under way. */
typedef struct thing {
    kb_cause cause;
    uint64_t bytes;
    int line;
} thing;

/* What is true at an instant. */
typedef struct present {
    thing things[PES][ITEMS];
    int count[PES];
    bool needed[PES];
    bool kernel[PES];
    unsigned requests, launches;
} present;

typedef struct sums {
    double causes[KB_CAUSES];
    kb_time kernels, launching, requesting, idle, in_kernels;
    unsigned changes;
} sums;

static const kb_op *op_of(int line)
{
    static kb_op ops[LINES];
    static const char *const names[LINES] = {"a", "b", "c", "d", "e"};
    ops[line] = (kb_op){.name = names[line], .unit = KB_UNIT_CPU, .file = "f.c", .line = line};
    return &ops[line];
}

/* One unit of time of a PE that runs a kernel. */
static void charge_instant(const present *p, int pe, double *causes)
{
    double bytes[KB_CAUSES] = {0}, total = 0;
    unsigned matrix = 0, vector = 0, drains = 0;
    for (int i = 0; i < p->count[pe]; i++) {
        const thing *t = &p->things[pe][i];
        matrix += t->cause == KB_CAUSE_MATRIX;
        vector += t->cause == KB_CAUSE_VECTOR;
        drains += t->cause == KB_CAUSE_MATRIX_DRAIN;
        if (t->cause <= KB_CAUSE_MATRIX_DRAIN)
            continue;
        double weight = t->bytes > 0 ? (double)t->bytes : 1;
        bytes[t->cause] += weight;
        total += weight;
    }
    if (matrix && vector) {
        causes[KB_CAUSE_MATRIX] += 0.5;
        causes[KB_CAUSE_VECTOR] += 0.5;
    } else if (matrix || vector) {
        causes[matrix ? KB_CAUSE_MATRIX : KB_CAUSE_VECTOR] += 1;
    } else if (p->needed[pe]) {
        causes[KB_CAUSE_MATRIX_DRAIN] += 1;
    } else if (total > 0) {
        for (int c = 0; c < KB_CAUSES; c++)
            causes[c] += bytes[c] / total;
    } else {
        causes[drains ? KB_CAUSE_MATRIX_DRAIN : KB_CAUSE_ISSUE] += 1;
    }
}

static void pass(const present *p, kb_time time, sums *s)
{
    bool any = p->kernel[0] || p->kernel[1] || p->kernel[2];
    for (kb_time t = 0; t < time; t++) {
        for (int pe = 0; pe < PES; pe++) {
            s->in_kernels += p->kernel[pe];
            if (p->kernel[pe])
                charge_instant(p, pe, s->causes);
        }
    }
    *(any           ? &s->kernels
      : p->launches ? &s->launching
      : p->requests ? &s->requesting
                    : &s->idle) += time;
}

static void change_thing(rig *r, kb_rng *rng, present *p, int pe)
{
    if (p->count[pe] < ITEMS && kb_rng_below(rng, 2) == 0) {
        thing t = {(kb_cause)kb_rng_below(rng, KB_CAUSE_CREDIT + 1), kb_rng_below(rng, 1000),
                   (int)kb_rng_below(rng, LINES)};
        kb_oplog_begin(r->log, (uint64_t)pe, kb_sim_now(r->sim), t.cause, t.bytes, op_of(t.line));
        p->things[pe][p->count[pe]++] = t;
    } else if (p->count[pe] > 0) {
        int which = (int)kb_rng_below(rng, (uint64_t)p->count[pe]);
        thing t = p->things[pe][which];
        p->things[pe][which] = p->things[pe][--p->count[pe]];
        kb_oplog_end(r->log, (uint64_t)pe, kb_sim_now(r->sim), t.cause, t.bytes, op_of(t.line));
    }
}

static void do_something(rig *r, kb_rng *rng, present *p)
{
    int pe = (int)kb_rng_below(rng, PES);
    kb_time_sum causes[KB_CAUSES] = {0};
    switch (kb_rng_below(rng, 8)) {
    case 0:
        if (p->kernel[pe])
            kb_oplog_kernel_end(r->log, (uint64_t)pe, causes);
        else
            kb_oplog_kernel_begin(r->log, (uint64_t)pe, kb_oplog_kernel_clock(r->log) / 2);
        p->kernel[pe] = !p->kernel[pe];
        break;
    case 1:
        kb_oplog_need_drain(r->log, (uint64_t)pe, kb_sim_now(r->sim), !p->needed[pe]);
        p->needed[pe] = !p->needed[pe];
        break;
    case 2:
        if (p->requests > p->launches && kb_rng_below(rng, 2) > 0) {
            kb_oplog_request_end(r->log);
            p->requests--;
        } else {
            kb_oplog_request_begin(r->log);
            p->requests++;
        }
        break;
    case 3:
        if (p->launches > 0) {
            kb_oplog_request_end(r->log);
            kb_oplog_launch_end(r->log);
            p->launches--;
            p->requests--;
        } else if (p->requests > 0) {
            kb_oplog_launch_begin(r->log);
            p->launches++;
        }
        break;
    case 4:
        kb_oplog_set_line(r->log, (uint64_t)pe, kb_sim_now(r->sim),
                          op_of((int)kb_rng_below(rng, LINES)));
        break;
    default:
        change_thing(r, rng, p, pe);
    }
}

/* Each division is off by less than one; sums are exact. */
static void expect_sums(rig *r, const sums *s)
{
    kb_timeline t = kb_oplog_timeline(r->log);
    assert_true(t.kernels == s->kernels && t.launching == s->launching);
    assert_true(t.requesting == s->requesting && t.idle == s->idle &&
                t.in_kernels == s->in_kernels);
    assert_int_equal(t.kernels + t.launching + t.requesting + t.idle, kb_sim_now(r->sim));
    assert_int_equal(sum_of(t.causes), (kb_time)t.pes * t.kernels);
    for (int c = 0; c < KB_CAUSES; c++)
        if (c != KB_CAUSE_LAUNCH && c != KB_CAUSE_IMBALANCE)
            assert_true(fabs((double)t.causes[c] - s->causes[c]) <= s->changes);
}

/* The rows of the profile have the same time, cause by cause. */
static void expect_profile(rig *r)
{
    kb_timeline t = kb_oplog_timeline(r->log);
    size_t count;
    const kb_profile_row *rows = kb_profile_rows(kb_oplog_profile(r->log), &count);
    kb_time_sum causes[KB_CAUSES] = {0};
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(sum_of(rows[i].causes), rows[i].time);
        for (int c = 0; c < KB_CAUSES; c++)
            causes[c] += rows[i].causes[c];
    }
    t.causes[KB_CAUSE_LAUNCH] = t.causes[KB_CAUSE_IMBALANCE] = 0;
    expect_causes(causes, t.causes);
}

/* Slices of a PE follow each other, and cover its kernels. */
typedef struct slices {
    kb_time end[PES], total;
} slices;

static void on_state(void *self, uint64_t pe, kb_cause cause, kb_time start, kb_time end)
{
    slices *s = self;
    assert_true(pe < PES && cause < KB_CAUSES && start < end && start >= s->end[pe]);
    s->end[pe] = end;
    s->total += end - start;
}

static void random_histories_add_up(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 100; seed++) {
        kb_rng rng;
        kb_rng_init(&rng, test_seed(seed));
        rig r = make(PES);
        present p = {0};
        sums s = {0};
        slices shown = {0};
        bool profiled = seed % 2, watched = seed % 3 == 0;
        if (profiled)
            expect_ok(kb_oplog_start_profile(r.log));
        if (watched)
            expect_ok(kb_oplog_watch_states(r.log, on_state, &shown));
        for (kb_time now = 0; now < STEPS;) {
            go_to(&r, now);
            do_something(&r, &rng, &p);
            s.changes++;
            kb_time next = now + (kb_time)kb_rng_below(&rng, 6);
            pass(&p, next - now, &s);
            now = next;
            go_to(&r, now);
            if (kb_rng_below(&rng, 20) == 0)
                expect_sums(&r, &s);
        }
        expect_sums(&r, &s);
        if (profiled)
            expect_profile(&r);
        kb_oplog_flush(r.log);
        assert_int_equal(shown.total, watched ? s.in_kernels : 0);
        drop(&r);
    }
}

/* ---- States ------------------------------------------------------------------------------ */

typedef struct diary {
    size_t count;
    kb_cause causes[8];
    kb_time ends[8];
} diary;

static void keep_state(void *self, uint64_t pe, kb_cause cause, kb_time start, kb_time end)
{
    diary *d = self;
    assert_int_equal(pe, 1);
    assert_int_equal(start, d->count > 0 ? d->ends[d->count - 1] : 5);
    d->causes[d->count] = cause;
    d->ends[d->count++] = end;
}

/* Issuing to 10; near 1 : far 3 to 20 and far alone to 30 are one slice; near to 35. */
static void states_are_intervals_of_the_largest_cause(void **state)
{
    (void)state;
    rig r = make(2);
    diary d = {0};
    kb_time_sum causes[KB_CAUSES] = {0};
    expect_ok(kb_oplog_watch_states(r.log, keep_state, &d));
    go_to(&r, 5);
    kb_oplog_kernel_begin(r.log, 1, 0);
    go_to(&r, 10);
    begin(&r, 1, KB_CAUSE_LOCAL_MEMORY, 10);
    begin(&r, 1, KB_CAUSE_OTHER_SIPS, 30);
    go_to(&r, 20);
    end(&r, 1, KB_CAUSE_LOCAL_MEMORY, 10);
    go_to(&r, 30);
    begin(&r, 1, KB_CAUSE_LOCAL_MEMORY, 10);
    end(&r, 1, KB_CAUSE_OTHER_SIPS, 30);
    go_to(&r, 35);
    end(&r, 1, KB_CAUSE_LOCAL_MEMORY, 10);
    kb_oplog_kernel_end(r.log, 1, causes);
    assert_int_equal(d.count, 2);
    kb_oplog_flush(r.log);
    kb_oplog_flush(r.log);
    assert_int_equal(d.count, 3);
    assert_true(d.causes[0] == KB_CAUSE_ISSUE && d.ends[0] == 10);
    assert_true(d.causes[1] == KB_CAUSE_OTHER_SIPS && d.ends[1] == 30);
    assert_true(d.causes[2] == KB_CAUSE_LOCAL_MEMORY && d.ends[2] == 35);
    drop(&r);
}

/* ---- The profile ------------------------------------------------------------------------- */

static const kb_profile_row *row_at(rig *r, int line, kb_unit unit)
{
    size_t count;
    const kb_profile_row *rows = kb_profile_rows(kb_oplog_profile(r->log), &count);
    for (size_t i = 0; i < count; i++)
        if (rows[i].line == line && rows[i].unit == unit)
            return &rows[i];
    fail_msg("no row of line %d", line);
    return NULL;
}

/*
 * Two loads of lines 7 and 8 with 100 and 200 bytes share 31 of local memory: 10 and 21; and line 9
 * has issued for 4 before, and 5 after. The texts of the second load have addresses of their own.
 */
static void lines_share_a_cause_by_bytes(void **state)
{
    (void)state;
    rig r = make(1);
    char file[] = "k.c", name[] = "load";
    kb_op first = {.name = "load", .unit = KB_UNIT_DMA_READ, .file = "k.c", .line = 7};
    kb_op second = {.name = name, .unit = KB_UNIT_DMA_READ, .file = file, .line = 8};
    kb_op third = second;
    kb_op issue = {.name = "issue", .unit = KB_UNIT_CPU, .file = "k.c", .line = 9};
    kb_time_sum causes[KB_CAUSES] = {0};
    expect_ok(kb_oplog_start_profile(r.log));
    assert_true(kb_oplog_is_watched(r.log));
    third.name = "load";
    third.file = "k.c";
    kb_oplog_kernel_begin(r.log, 0, 0);
    kb_oplog_set_line(r.log, 0, kb_sim_now(r.sim), &issue);
    go_to(&r, 4);
    kb_oplog_begin(r.log, 0, kb_sim_now(r.sim), KB_CAUSE_LOCAL_MEMORY, 100, &first);
    kb_oplog_begin(r.log, 0, kb_sim_now(r.sim), KB_CAUSE_LOCAL_MEMORY, 200, &second);
    go_to(&r, 35);
    kb_oplog_end(r.log, 0, kb_sim_now(r.sim), KB_CAUSE_LOCAL_MEMORY, 100, &first);
    kb_oplog_end(r.log, 0, kb_sim_now(r.sim), KB_CAUSE_LOCAL_MEMORY, 200, &third);
    second.label = "";
    second.start = 4;
    second.end = 35;
    second.bytes = 200;
    kb_oplog_start(r.log, 0, kb_sim_now(r.sim), KB_UNIT_DMA_READ);
    kb_oplog_add(r.log, 0, &second);
    go_to(&r, 40);
    kb_oplog_kernel_end(r.log, 0, causes);
    assert_int_equal(row_at(&r, 7, KB_UNIT_DMA_READ)->causes[KB_CAUSE_LOCAL_MEMORY], 10);
    assert_int_equal(row_at(&r, 8, KB_UNIT_DMA_READ)->causes[KB_CAUSE_LOCAL_MEMORY], 21);
    assert_int_equal(row_at(&r, 9, KB_UNIT_CPU)->causes[KB_CAUSE_ISSUE], 9);
    assert_int_equal(row_at(&r, 8, KB_UNIT_DMA_READ)->count, 1);
    assert_int_equal(row_at(&r, 8, KB_UNIT_DMA_READ)->bytes, 200);
    drop(&r);
}

/*
 * Until 10 two causes share the time 1 : 1, while the pe_cpu goes from line to line and a drain
 * begins: 5 each. Until 17 both engines work, and products follow each other: 4 and 3. A profile
 * makes no difference, although it charges the time in pieces: an odd piece more to one of the two
 * each time would be 4 and 6, 5 and 2.
 */
static void a_profile_leaves_causes_as_they_are(void **state)
{
    (void)state;
    for (int profiled = 0; profiled < 2; profiled++) {
        rig r = make(1);
        kb_time_sum causes[KB_CAUSES] = {0};
        if (profiled)
            expect_ok(kb_oplog_start_profile(r.log));
        kb_oplog_kernel_begin(r.log, 0, 0);
        begin(&r, 0, KB_CAUSE_LOCAL_MEMORY, 8);
        begin(&r, 0, KB_CAUSE_MESSAGE, 8);
        go_to(&r, 1);
        kb_oplog_set_line(r.log, 0, kb_sim_now(r.sim), op_of(0));
        go_to(&r, 3);
        begin(&r, 0, KB_CAUSE_MATRIX_DRAIN, 0);
        go_to(&r, 10);
        begin(&r, 0, KB_CAUSE_MATRIX, 0);
        begin(&r, 0, KB_CAUSE_VECTOR, 0);
        for (kb_time at = 11; at <= 14; at += 3) {
            go_to(&r, at);
            begin(&r, 0, KB_CAUSE_MATRIX, 0);
            end(&r, 0, KB_CAUSE_MATRIX, 0);
        }
        go_to(&r, 17);
        kb_oplog_kernel_end(r.log, 0, causes);
        expect_causes(causes, (const kb_time_sum[KB_CAUSES]){
                                  [KB_CAUSE_LOCAL_MEMORY] = 5,
                                  [KB_CAUSE_MESSAGE] = 5,
                                  [KB_CAUSE_MATRIX] = 4,
                                  [KB_CAUSE_VECTOR] = 3,
                              });
        drop(&r);
    }
}

/* ---- No memory --------------------------------------------------------------------------- */

static void on_event(kb_sim *sim, void *self, uint64_t arg)
{
    kb_oplog *log = self;
    kb_time_sum causes[KB_CAUSES] = {0};
    kb_op op = *op_of((int)arg);
    op.label = "";
    op.start = op.end = kb_sim_now(sim);
    kb_oplog_kernel_begin(log, 1, 0);
    kb_oplog_set_line(log, 1, op.end, op_of(0));
    kb_oplog_begin(log, 1, op.end, KB_CAUSE_LOCAL_MEMORY, 5, op_of(1));
    kb_oplog_add(log, 1, &op);
    kb_oplog_end(log, 1, op.end, KB_CAUSE_LOCAL_MEMORY, 5, op_of(1));
    kb_oplog_kernel_end(log, 1, causes);
    (void)kb_oplog_timeline(log);
}

static kb_error *run_one_event(rig *r, diary *d)
{
    kb_handler handler;
    kb_source source = kb_source_make(0);
    KB_TRY(kb_sim_create(NULL, &r->sim));
    KB_TRY(kb_oplog_create(r->sim, 2, &r->log));
    KB_TRY(kb_oplog_start_profile(r->log));
    KB_TRY(kb_oplog_watch_states(r->log, keep_state, d));
    KB_TRY(kb_sim_add_handler(r->sim, on_event, r->log, &handler));
    (void)kb_sim_at(r->sim, &source, 7, handler, 2);
    return kb_sim_run(r->sim, KB_FOREVER);
}

static void try_without_memory(void)
{
    rig r = {0};
    diary d = {0};
    kb_error *err = run_one_event(&r, &d);
    if (err)
        assert_int_equal(kb_error_code(err), KB_ERR_HOST);
    kb_error_free(err);
    drop(&r);
}

static void lack_of_memory_fails_the_run(void **state)
{
    (void)state;
    failing_alloc_try_all(try_without_memory);
}

/* Three PEs in kernels of 9000 s, with a profile: 27000 s in all, and rows that add up to it. */
static void sums_over_pes_do_not_wrap(void **state)
{
    (void)state;
    rig r = make(3);
    const kb_time whole = 9000 * KB_S + 1;
    expect_ok(kb_oplog_start_profile(r.log));
    for (uint64_t pe = 0; pe < 3; pe++) {
        kb_oplog_kernel_begin(r.log, pe, 0);
        begin(&r, pe, KB_CAUSE_LOCAL_MEMORY, 100);
    }
    go_to(&r, whole);
    kb_time_sum causes[KB_CAUSES] = {0};
    for (uint64_t pe = 0; pe < 3; pe++) {
        end(&r, pe, KB_CAUSE_LOCAL_MEMORY, 100);
        kb_oplog_kernel_end(r.log, pe, causes);
    }
    kb_timeline t = kb_oplog_timeline(r.log);
    assert_true(t.causes[KB_CAUSE_LOCAL_MEMORY] == (kb_time_sum)27000 * KB_S + 3);
    assert_true(causes[KB_CAUSE_LOCAL_MEMORY] == t.causes[KB_CAUSE_LOCAL_MEMORY]);
    assert_true(t.in_kernels == (kb_time_sum)27000 * KB_S + 3);
    assert_true(t.mean == whole && t.longest == whole && t.kernels == whole);
    assert_true(kb_split_causes(t.causes).memory == (kb_time_sum)27000 * KB_S + 3);
    size_t count;
    const kb_profile_row *rows = kb_profile_rows(kb_oplog_profile(r.log), &count);
    kb_time_sum profiled = 0;
    for (size_t i = 0; i < count; i++)
        profiled += rows[i].time;
    assert_true(profiled == t.in_kernels);
    drop(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(causes_have_names_and_groups),
        cmocka_unit_test(time_is_divided_without_loss),
        cmocka_unit_test(parts_add_up_whatever_they_are),
        cmocka_unit_test(engines_then_bytes_then_drains),
        cmocka_unit_test(each_change_of_bytes_counts),
        cmocka_unit_test(drains_that_products_wait_for_come_first),
        cmocka_unit_test(pes_without_a_kernel_wait_for_a_launch_or_for_others),
        cmocka_unit_test(the_run_is_divided_too),
        cmocka_unit_test(random_histories_add_up),
        cmocka_unit_test(states_are_intervals_of_the_largest_cause),
        cmocka_unit_test(lines_share_a_cause_by_bytes),
        cmocka_unit_test(a_profile_leaves_causes_as_they_are),
        cmocka_unit_test(lack_of_memory_fails_the_run),
        cmocka_unit_test(sums_over_pes_do_not_wrap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
