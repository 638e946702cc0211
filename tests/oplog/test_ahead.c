/*
 * test_ahead.c: what the log is told before its time. A case worked out by hand; and random
 * schedules, told call by call at their times to one log and ahead to another one: all that the two
 * show is the same at any time.
 *
 * Checks O1.
 */
#include "oplog/log_rig.h"
#include "support/failing_alloc.h"
#include "support/seed.h"

#include <stdlib.h>

/* ---- By hand ----------------------------------------------------------------------------- */

static kb_work product_of(kb_time start, kb_time free_at, kb_time end)
{
    return (kb_work){.name = "dot",
                     .unit = KB_UNIT_GEMM,
                     .of_kernel = true,
                     .start = start,
                     .free_at = free_at,
                     .end = end,
                     .flops = 100};
}

/*
 *     time      0    10   20   25   30   40   50   100
 *     matrix         [=============)
 *     drain                        [====)
 *     vector              [==================)
 *     load                                   [=====)
 *
 * All of it is told at 0. At 25: 10 of issuing, 10 of matrix, and 5 of both engines, 3 and 2. At
 * the end: matrix 10 + 5, vector 5 + 20, issue 10, the load 50; the drain is behind the vector
 * engine.
 */
static void a_schedule_told_at_its_start(void **state)
{
    (void)state;
    rig r = make(2);
    kb_oplog_kernel_begin(r.log, 1, 0);
    kb_work product = product_of(10, 30, 40);
    kb_work sum = {
        .name = "add", .unit = KB_UNIT_MATH, .start = 20, .free_at = 50, .end = 50, .flops = 1};
    kb_oplog_begin(r.log, 1, 50, KB_CAUSE_LOCAL_MEMORY, 64, NULL);
    kb_oplog_end(r.log, 1, 100, KB_CAUSE_LOCAL_MEMORY, 64, NULL);
    kb_oplog_work(r.log, 1, &sum);
    kb_oplog_work(r.log, 1, &product);
    size_t count;
    (void)kb_oplog_sums(r.log, &count);
    assert_int_equal(count, 0);
    go_to(&r, 25);
    kb_timeline t = kb_oplog_timeline(r.log);
    assert_true(t.causes[KB_CAUSE_ISSUE] == 10 && t.causes[KB_CAUSE_MATRIX] == 13 &&
                t.causes[KB_CAUSE_VECTOR] == 2 && t.both_engines == 5);
    assert_int_equal(kb_oplog_busy(r.log, 1, KB_UNIT_GEMM), 15);
    assert_int_equal(t.bytes[KB_CAUSE_LOCAL_MEMORY], 0);
    go_to(&r, 45);
    const kb_op_sum *sums = kb_oplog_sums(r.log, &count);
    assert_int_equal(count, 1);
    assert_true(strcmp(sums[0].name, "dot") == 0 && sums[0].busy == 30 && sums[0].flops == 100);
    go_to(&r, 100);
    kb_time_sum causes[KB_CAUSES] = {0};
    kb_oplog_kernel_end(r.log, 1, causes);
    assert_true(causes[KB_CAUSE_ISSUE] == 10 && causes[KB_CAUSE_MATRIX] == 15 &&
                causes[KB_CAUSE_VECTOR] == 25 && causes[KB_CAUSE_LOCAL_MEMORY] == 50);
    assert_int_equal(kb_oplog_busy(r.log, 1, KB_UNIT_GEMM), 30);
    assert_int_equal(kb_oplog_busy(r.log, 1, KB_UNIT_MATH), 30);
    assert_int_equal(kb_oplog_timeline(r.log).bytes[KB_CAUSE_LOCAL_MEMORY], 64);
    drop(&r);
}

/*
 *     time       0    10   20   30   40
 *     product 1  [====)~~~~~~~~~~~~~~)     drains from 10 on
 *     product 2       [=========)
 *
 * At 20 the second one is under way. It ends before the first one: the time at work is [0, 40).
 */
static void results_drain_past_the_next_product(void **state)
{
    (void)state;
    rig r = make(1);
    kb_oplog_kernel_begin(r.log, 0, 0);
    kb_work first = product_of(0, 10, 40), second = product_of(10, 30, 30);
    kb_oplog_work(r.log, 0, &first);
    kb_oplog_work(r.log, 0, &second);
    go_to(&r, 20);
    kb_oplog_begin(r.log, 0, 20, KB_CAUSE_LOCAL_MEMORY, 64, NULL);
    assert_int_equal(kb_oplog_busy(r.log, 0, KB_UNIT_GEMM), 20);
    assert_true(kb_oplog_timeline(r.log).causes[KB_CAUSE_MATRIX] == 20);
    go_to(&r, 50);
    assert_int_equal(kb_oplog_busy(r.log, 0, KB_UNIT_GEMM), 40);
    kb_timeline t = kb_oplog_timeline(r.log);
    assert_true(t.causes[KB_CAUSE_MATRIX] == 30 && t.causes[KB_CAUSE_LOCAL_MEMORY] == 20);
    drop(&r);
}

/* Told out of order: [30, 50), [10, 20), [15, 35), and one that never begins. The time at work is
 * [10, 50), as much of it as has passed. */
static void spans_count_from_their_starts(void **state)
{
    (void)state;
    rig r = make(1);
    const kb_time spans[][2] = {{30, 50}, {10, 20}, {15, 35}, {70, 80}};
    const struct {
        kb_time at, busy;
        uint64_t count;
    } expected[] = {{9, 0, 0}, {12, 2, 1}, {25, 15, 2}, {32, 22, 3}, {60, 40, 3}};
    for (int i = 0; i < 4; i++)
        kb_oplog_count_ahead(r.log, 0, KB_UNIT_IPCQ, "credit", spans[i][0], spans[i][1], 0);
    for (int i = 0; i < 5; i++) {
        size_t count;
        go_to(&r, expected[i].at);
        assert_int_equal(kb_oplog_busy(r.log, 0, KB_UNIT_IPCQ), expected[i].busy);
        const kb_op_sum *sums = kb_oplog_sums(r.log, &count);
        assert_int_equal(count > 0 ? sums[0].count : 0, expected[i].count);
    }
    drop(&r);
}

static void see_state(void *self, uint64_t pe, kb_cause cause, kb_time start, kb_time end)
{
    (void)pe;
    (void)start;
    *(kb_time *)self += cause == KB_CAUSE_OTHER_CUBES ? end - start : 0;
}

/*
 * Two transfers of the DMA, [10, 30) of 4096 bytes and [20, 50) of 64: the engine is at work for
 * 40, all of it for other cubes, and the sums have 20 + 30. The same if states are watched.
 */
static void transfers_count_when_they_end(void **state)
{
    (void)state;
    for (int watched = 0; watched < 2; watched++) {
        rig r = make(1);
        kb_time shown = 0;
        if (watched)
            expect_ok(kb_oplog_watch_states(r.log, see_state, &shown));
        kb_oplog_kernel_begin(r.log, 0, 0);
        kb_op_brief load = {.name = "load",
                            .unit = KB_UNIT_DMA_READ,
                            .of_kernel = true,
                            .start = 10,
                            .bytes = 4096};
        go_to(&r, 10);
        kb_oplog_begin_transfer(r.log, 0, 10, KB_UNIT_DMA_READ, KB_CAUSE_OTHER_CUBES, 4096);
        go_to(&r, 20);
        assert_int_equal(kb_oplog_busy(r.log, 0, KB_UNIT_DMA_READ), 10);
        kb_oplog_begin_transfer(r.log, 0, 20, KB_UNIT_DMA_READ, KB_CAUSE_OTHER_CUBES, 64);
        go_to(&r, 30);
        load.end = 30;
        kb_oplog_end_transfer(r.log, 0, KB_CAUSE_OTHER_CUBES, &load);
        go_to(&r, 50);
        load = (kb_op_brief){
            .name = "load", .unit = KB_UNIT_DMA_READ, .start = 20, .end = 50, .bytes = 64};
        kb_oplog_end_transfer(r.log, 0, KB_CAUSE_OTHER_CUBES, &load);
        go_to(&r, 60);
        kb_time_sum causes[KB_CAUSES] = {0};
        kb_oplog_kernel_end(r.log, 0, causes);
        assert_true(causes[KB_CAUSE_OTHER_CUBES] == 40 && causes[KB_CAUSE_ISSUE] == 20);
        assert_int_equal(kb_oplog_busy(r.log, 0, KB_UNIT_DMA_READ), 40);
        assert_int_equal(kb_oplog_timeline(r.log).bytes[KB_CAUSE_OTHER_CUBES], 4160);
        size_t count;
        const kb_op_sum *sums = kb_oplog_sums(r.log, &count);
        assert_int_equal(count, 1);
        assert_true(sums[0].count == 2 && sums[0].busy == 50 && sums[0].bytes == 4160);
        assert_int_equal(sums[0].kernel_bytes, 4096);
        kb_oplog_flush(r.log);
        assert_int_equal(shown, watched ? 40 : 0);
        drop(&r);
    }
}

/*
 * So many waits are told ahead that a PE's buffer is full. The last one begins and ends at 200, and
 * its end is told when there is room again: it does not overtake the begin.
 */
static void more_is_told_ahead_than_a_buffer_has_room_for(void **state)
{
    (void)state;
    enum { WAITS = 40 };
    rig r = make(1);
    kb_oplog_kernel_begin(r.log, 0, 0);
    for (int i = 0; i < WAITS; i++) {
        kb_oplog_begin(r.log, 0, 100 + i, KB_CAUSE_MESSAGE, 8, NULL);
        kb_oplog_end(r.log, 0, 150, KB_CAUSE_MESSAGE, 8, NULL);
    }
    kb_oplog_begin(r.log, 0, 200, KB_CAUSE_CREDIT, 8, NULL);
    go_to(&r, 120);
    assert_true(kb_oplog_timeline(r.log).causes[KB_CAUSE_MESSAGE] == 20);
    go_to(&r, 160);
    kb_oplog_end(r.log, 0, 200, KB_CAUSE_CREDIT, 8, NULL);
    go_to(&r, 210);
    kb_timeline t = kb_oplog_timeline(r.log);
    assert_true(t.causes[KB_CAUSE_MESSAGE] == 50 && t.causes[KB_CAUSE_CREDIT] == 0);
    assert_true(t.bytes[KB_CAUSE_MESSAGE] == 8 * WAITS && t.bytes[KB_CAUSE_CREDIT] == 8);
    drop(&r);
}

typedef struct last_seen {
    size_t count;
    kb_op op;
    kb_op_access access;
} last_seen;

static void see_op(void *self, const kb_op *op)
{
    last_seen *seen = self;
    seen->count++;
    seen->op = *op;
    if (op->access_count > 0)
        seen->access = op->accesses[0];
}

/* The list of accesses is gone when the record is shown; a record whose end does not come is not
 * shown, a span that has begun is. */
static void records_are_copied(void **state)
{
    (void)state;
    rig r = make(1);
    last_seen seen = {0};
    kb_oplog_watch(r.log, see_op, &seen);
    kb_op_access *list = malloc(2 * sizeof *list);
    assert_non_null(list);
    list[0] = list[1] = (kb_op_access){.tensor = "x", .offset = 5, .bytes = 6};
    kb_op op = {.unit = KB_UNIT_DMA_READ,
                .name = "load",
                .label = "",
                .start = 3,
                .end = 7,
                .accesses = list,
                .access_count = 2};
    kb_oplog_add(r.log, 0, &op);
    op.end = 20;
    kb_oplog_add(r.log, 0, &op);
    free(list);
    op.accesses = NULL;
    op.access_count = 0;
    go_to(&r, 7);
    kb_oplog_flush(r.log);
    assert_int_equal(seen.count, 1);
    assert_true(seen.op.access_count == 2 && seen.access.bytes == 6 &&
                strcmp(seen.access.tensor, "x") == 0);
    kb_op credit = {.unit = KB_UNIT_IPCQ, .name = "credit", .label = "", .start = 8, .end = 30};
    kb_oplog_add_ahead(r.log, 0, &credit);
    kb_oplog_flush(r.log);
    assert_int_equal(seen.count, 1);
    go_to(&r, 8);
    kb_oplog_flush(r.log);
    assert_int_equal(seen.count, 2);
    assert_int_equal(seen.op.end, 30);
    go_to(&r, 25);
    kb_oplog_flush(r.log);
    assert_int_equal(seen.count, 3);
    assert_int_equal(seen.op.end, 20);
    drop(&r);
}

/* ---- Random schedules -------------------------------------------------------------------- */

enum { PES = 3, KERNELS = 2, CALLS = 90, LINES = 5, MAX_SHOWN = 4096 };

/* What a schedule consists of: each is one or two calls of the log, or kb_oplog_work(), or a
 * transfer: one of the DMA that is told in two calls or in four. */
typedef enum call_kind {
    ITEM,
    DRAIN,
    LINE,
    ANNOUNCED,
    SUMMED,
    SPAN,
    WAIT,
    WORK,
    TRANSFER,
    KINDS
} call_kind;

typedef struct call {
    call_kind kind;
    uint64_t pe;
    kb_time start, free_at, end;
    kb_cause cause;
    kb_unit unit;
    uint64_t bytes, flops;
    int line;
    kb_time told;  /* to the log that is told ahead */
    uint64_t turn; /* in that instant */
} call;

typedef struct schedule {
    kb_time length;
    kb_time begins[PES][KERNELS], ends[PES][KERNELS];
    call calls[CALLS];
} schedule;

/* What a log has shown. */
typedef struct shown {
    size_t ops, states;
    kb_op op[MAX_SHOWN];
    kb_op_access access[MAX_SHOWN];
    kb_time state[MAX_SHOWN][4];
} shown;

/* A log, and how it is looked at. */
typedef struct side {
    rig r;
    bool watched, profiled, shows_states;
    shown *shown;
    kb_time_sum causes[KB_CAUSES]; /* of all kernels */
} side;

static void keep_op(void *self, const kb_op *op)
{
    shown *s = self;
    assert_true(s->ops < MAX_SHOWN);
    s->op[s->ops] = *op;
    s->op[s->ops].accesses = NULL;
    if (op->access_count > 0)
        s->access[s->ops] = op->accesses[0];
    s->ops++;
}

static void keep_state(void *self, uint64_t pe, kb_cause cause, kb_time start, kb_time end)
{
    shown *s = self;
    assert_true(s->states < MAX_SHOWN);
    kb_time *row = s->state[s->states++];
    row[0] = (kb_time)pe;
    row[1] = (kb_time)cause;
    row[2] = start;
    row[3] = end;
}

static kb_op op_of(const call *c, kb_op_access *access)
{
    static const char *const names[LINES] = {"a", "b", "c", "d", "e"};
    *access = (kb_op_access){.tensor = "x", .bytes = c->bytes};
    return (kb_op){.unit = c->unit,
                   .name = names[c->line],
                   .label = "",
                   .start = c->start,
                   .end = c->end,
                   .bytes = c->bytes,
                   .flops = c->flops,
                   .launch = c->line % 2 == 0 && c->kind != SPAN,
                   .accesses = access,
                   .access_count = c->line % 3 == 0,
                   .file = "f.c",
                   .line = c->line};
}

static kb_op_brief brief_of(const kb_op *op)
{
    return (kb_op_brief){.name = op->name,
                         .unit = op->unit,
                         .of_kernel = op->launch != 0,
                         .start = op->start,
                         .end = op->end,
                         .bytes = op->bytes,
                         .flops = op->flops};
}

static bool is_watched(const side *s)
{
    return s->watched || s->profiled;
}

static void end_op(side *s, const call *c, const kb_op *op)
{
    kb_op_brief brief = brief_of(op);
    if (is_watched(s))
        kb_oplog_add(s->r.log, c->pe, op);
    else
        kb_oplog_count(s->r.log, c->pe, &brief);
}

static void tell_span(side *s, const call *c, const kb_op *op)
{
    if (is_watched(s))
        kb_oplog_add_ahead(s->r.log, c->pe, op);
    else
        kb_oplog_count_ahead(s->r.log, c->pe, op->unit, op->name, op->start, op->end, op->bytes);
}

/* Everything about the call that is at its start, at its middle or at its end: those that are of
 * that time. */
static void tell_at_start(side *s, const call *c, const kb_op *op)
{
    kb_oplog *log = s->r.log;
    if (c->kind == ITEM)
        kb_oplog_begin(log, c->pe, c->start, c->cause, c->bytes, op);
    else if (c->kind == DRAIN)
        kb_oplog_need_drain(log, c->pe, c->start, true);
    else if (c->kind == LINE)
        kb_oplog_set_line(log, c->pe, c->start, op);
    else if (c->kind == ANNOUNCED || c->kind == WORK || c->kind == TRANSFER)
        kb_oplog_start(log, c->pe, c->start, c->unit);
    else if (c->kind == SPAN)
        tell_span(s, c, op);
    if (c->kind == WORK || c->kind == TRANSFER)
        kb_oplog_begin(log, c->pe, c->start, c->cause, c->bytes, op);
}

static bool drains(const call *c)
{
    return c->kind == WORK && c->cause == KB_CAUSE_MATRIX && c->free_at < c->end;
}

static void tell_when_free(side *s, const call *c, const kb_op *op)
{
    if (!drains(c))
        return;
    kb_oplog_begin(s->r.log, c->pe, c->free_at, KB_CAUSE_MATRIX_DRAIN, 0, op);
    kb_oplog_end(s->r.log, c->pe, c->free_at, KB_CAUSE_MATRIX, 0, op);
}

static void tell_at_end(side *s, const call *c, const kb_op *op)
{
    kb_oplog *log = s->r.log;
    if (c->kind == ITEM || c->kind == TRANSFER)
        kb_oplog_end(log, c->pe, c->end, c->cause, c->bytes, op);
    else if (c->kind == DRAIN)
        kb_oplog_need_drain(log, c->pe, c->end, false);
    else if (c->kind == WORK)
        kb_oplog_end(log, c->pe, c->end, drains(c) ? KB_CAUSE_MATRIX_DRAIN : c->cause, 0, op);
    if (c->kind == WAIT && is_watched(s))
        kb_oplog_show(log, op);
    if (c->kind == ANNOUNCED || c->kind == SUMMED || c->kind == WORK || c->kind == TRANSFER)
        end_op(s, c, op);
}

/* Whether it is told at its times, as a transfer. Not if a watcher could tell in which order PEs
 * change their states at an instant. */
static bool is_whole(const side *s, const call *c)
{
    return c->kind == TRANSFER && !is_watched(s) && !s->shows_states;
}

static void tell_whole(side *s, const call *c, kb_time now)
{
    kb_op_access access;
    kb_op op = op_of(c, &access);
    kb_op_brief brief = brief_of(&op);
    if (c->start == now)
        kb_oplog_begin_transfer(s->r.log, c->pe, now, c->unit, c->cause, c->bytes);
    if (c->end == now)
        kb_oplog_end_transfer(s->r.log, c->pe, c->cause, &brief);
}

static void tell_ahead(side *s, const call *c)
{
    kb_op_access access;
    kb_op op = op_of(c, &access);
    if (is_whole(s, c))
        return;
    if (c->kind != WORK) {
        tell_at_start(s, c, &op);
        tell_at_end(s, c, &op);
        return;
    }
    kb_work work = {.name = op.name,
                    .unit = op.unit,
                    .of_kernel = op.launch != 0,
                    .start = c->start,
                    .free_at = c->free_at,
                    .end = c->end,
                    .flops = op.flops,
                    .op = is_watched(s) ? &op : NULL};
    kb_oplog_work(s->r.log, c->pe, &work);
}

/* ---- Making them ---- */

static kb_time pick(kb_rng *rng, kb_time from, kb_time to)
{
    return from + (kb_time)kb_rng_below(rng, (uint64_t)(to - from) + 1);
}

static call make_call(kb_rng *rng, const schedule *s)
{
    call c = {.kind = (call_kind)kb_rng_below(rng, KINDS),
              .pe = kb_rng_below(rng, PES),
              .bytes = kb_rng_below(rng, 1000),
              .line = (int)kb_rng_below(rng, LINES)};
    size_t kernel = kb_rng_below(rng, KERNELS);
    kb_time from = s->begins[c.pe][kernel], to = s->ends[c.pe][kernel];
    c.start = pick(rng, from, to);
    c.end = pick(rng, c.start, to);
    c.free_at = pick(rng, c.start, c.end);
    c.cause = (kb_cause)pick(rng, KB_CAUSE_MATRIX_DRAIN, KB_CAUSE_CREDIT);
    bool is_product = kb_rng_below(rng, 2) == 0;
    if (c.kind == WORK) {
        c.cause = is_product ? KB_CAUSE_MATRIX : KB_CAUSE_VECTOR;
        c.bytes = 0; /* an engine's operation has none */
        c.flops = kb_rng_below(rng, 1000);
        if (!is_product)
            c.free_at = c.end;
    }
    if (c.kind == TRANSFER) {
        c.cause = (kb_cause)pick(rng, KB_CAUSE_LOCAL_MEMORY, KB_CAUSE_CREDIT);
        c.bytes++;
    }
    c.unit = c.kind == SPAN || c.kind == WAIT ? KB_UNIT_IPCQ
             : c.kind == ANNOUNCED            ? KB_UNIT_DMA_READ
             : c.kind == TRANSFER             ? KB_UNIT_DMA_WRITE
             : c.kind == WORK && is_product   ? KB_UNIT_GEMM
             : c.kind == WORK                 ? KB_UNIT_MATH
                                              : KB_UNIT_CPU;
    c.told = pick(rng, from, c.start);
    if (kb_rng_below(rng, 4) == 0)
        c.told = c.start;
    c.turn = kb_rng_u64(rng);
    return c;
}

static bool have_common_time(const call *a, const call *b)
{
    const kb_time x[] = {a->start, a->free_at, a->end}, y[] = {b->start, b->free_at, b->end};
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
            if (x[i] == y[j])
                return true;
    return false;
}

static bool is_told_before(const call *a, const call *b)
{
    if (a->told != b->told)
        return a->told < b->told;
    return a->turn != b->turn ? a->turn < b->turn : a < b;
}

/* An engine's operations come one after the other, and are told in that order. */
static bool are_in_order(const call *a, const call *b)
{
    bool same = a->kind == WORK && b->kind == WORK && a->pe == b->pe && a->unit == b->unit;
    if (!same)
        return true;
    if (a->start >= b->free_at)
        return !is_told_before(a, b);
    return b->start >= a->free_at && is_told_before(a, b);
}

/* Operations that break that become waits. */
static void keep_order_of_engines(schedule *s)
{
    for (call *b = s->calls; b < s->calls + CALLS; b++)
        for (const call *a = s->calls; a < b; a++)
            if (!are_in_order(a, b)) {
                b->kind = WAIT;
                b->unit = KB_UNIT_IPCQ;
                break;
            }
}

/* Of calls with a common time the first of the schedule is told first. */
static void keep_order_of_ties(schedule *s)
{
    bool changed = true;
    while (changed) {
        changed = false;
        for (call *b = s->calls; b < s->calls + CALLS; b++)
            for (call *a = s->calls; a < b; a++)
                if (have_common_time(a, b) && is_told_before(b, a)) {
                    a->told = b->told;
                    a->turn = b->turn;
                    changed = true;
                }
    }
}

/* False if a kernel would be told of something before it begins. */
static bool make_schedule(kb_rng *rng, schedule *s)
{
    s->length = kb_rng_below(rng, 2) == 0 ? 150 : 5000;
    kb_time part = s->length / KERNELS;
    kb_time stagger = s->length > 1000 ? part / 8 : 0; /* with many ties few would be legal */
    for (int pe = 0; pe < PES; pe++)
        for (int k = 0; k < KERNELS; k++) {
            s->begins[pe][k] = pick(rng, k * part, k * part + stagger);
            s->ends[pe][k] = pick(rng, k * part + part / 2, k * part + part - 1);
        }
    for (int i = 0; i < CALLS; i++)
        s->calls[i] = make_call(rng, s);
    keep_order_of_ties(s);
    keep_order_of_engines(s);
    for (int i = 0; i < CALLS; i++) {
        const call *c = &s->calls[i];
        size_t kernel = c->start < part ? 0 : 1;
        if (c->told < s->begins[c->pe][kernel])
            return false;
    }
    return true;
}

/* ---- Running them ---- */

static void begin_kernels(side *s, const schedule *plan, kb_time now)
{
    for (uint64_t pe = 0; pe < PES; pe++)
        for (int k = 0; k < KERNELS; k++)
            if (plan->begins[pe][k] == now)
                kb_oplog_kernel_begin(s->r.log, pe, kb_oplog_kernel_clock(s->r.log) / 2);
}

static void end_kernels(side *s, const schedule *plan, kb_time now)
{
    for (uint64_t pe = 0; pe < PES; pe++)
        for (int k = 0; k < KERNELS; k++)
            if (plan->ends[pe][k] == now)
                kb_oplog_kernel_end(s->r.log, pe, s->causes);
}

static void tell_in_time(side *s, const schedule *plan, kb_time now)
{
    for (int i = 0; i < CALLS; i++) {
        const call *c = &plan->calls[i];
        kb_op_access access;
        kb_op op = op_of(c, &access);
        if (c->start == now)
            tell_at_start(s, c, &op);
        if (drains(c) && c->free_at == now)
            tell_when_free(s, c, &op);
        if (c->end == now)
            tell_at_end(s, c, &op);
    }
}

static int compare_calls(const void *a, const void *b)
{
    const call *const *x = a, *const *y = b;
    return is_told_before(*x, *y) ? -1 : is_told_before(*y, *x);
}

static void sort_calls(const schedule *plan, const call *sorted[CALLS])
{
    for (int i = 0; i < CALLS; i++)
        sorted[i] = &plan->calls[i];
    qsort(sorted, CALLS, sizeof *sorted, compare_calls);
}

/* ---- Comparing them ---- */

static void expect_same_timeline(const kb_timeline *a, const kb_timeline *b)
{
    assert_true(a->kernels == b->kernels && a->idle == b->idle && a->pes == b->pes);
    assert_true(a->both_engines == b->both_engines && a->needed_drain == b->needed_drain);
    assert_true(a->in_kernels == b->in_kernels && a->longest_pe == b->longest_pe);
    assert_true(a->longest == b->longest && a->mean == b->mean);
    for (int c = 0; c < KB_CAUSES; c++)
        assert_true(a->causes[c] == b->causes[c] && a->bytes[c] == b->bytes[c]);
}

static void expect_same_sums(kb_oplog *a, kb_oplog *b)
{
    size_t x_count, y_count;
    const kb_op_sum *x = kb_oplog_sums(a, &x_count), *y = kb_oplog_sums(b, &y_count);
    assert_int_equal(x_count, y_count);
    for (size_t i = 0; i < x_count; i++) {
        assert_true(x[i].unit == y[i].unit && strcmp(x[i].name, y[i].name) == 0);
        assert_true(x[i].count == y[i].count && x[i].busy == y[i].busy);
        assert_true(x[i].bytes == y[i].bytes && x[i].flops == y[i].flops);
        assert_true(x[i].kernel_bytes == y[i].kernel_bytes);
    }
    for (uint64_t pe = 0; pe < PES; pe++)
        for (int unit = 0; unit < KB_UNITS; unit++)
            assert_int_equal(kb_oplog_busy(a, pe, (kb_unit)unit),
                             kb_oplog_busy(b, pe, (kb_unit)unit));
}

/* In the same order, too. */
static void expect_same_rows(kb_oplog *a, kb_oplog *b)
{
    size_t x_count, y_count;
    const kb_profile_row *x = kb_profile_rows(kb_oplog_profile(a), &x_count);
    const kb_profile_row *y = kb_profile_rows(kb_oplog_profile(b), &y_count);
    assert_int_equal(x_count, y_count);
    for (size_t i = 0; i < x_count; i++) {
        assert_true(x[i].line == y[i].line && x[i].unit == y[i].unit);
        assert_true(strcmp(x[i].name, y[i].name) == 0 && x[i].count == y[i].count);
        assert_true(x[i].bytes == y[i].bytes && x[i].flops == y[i].flops);
        assert_true(x[i].time == y[i].time);
        for (int c = 0; c < KB_CAUSES; c++)
            assert_true(x[i].causes[c] == y[i].causes[c]);
    }
}

/* After kb_oplog_flush(). */
static void expect_same_shown(const shown *a, const shown *b)
{
    assert_int_equal(a->ops, b->ops);
    assert_int_equal(a->states, b->states);
    assert_memory_equal(a->state, b->state, a->states * sizeof a->state[0]);
    for (size_t i = 0; i < a->ops; i++) {
        const kb_op *x = &a->op[i], *y = &b->op[i];
        assert_true(x->unit == y->unit && x->start == y->start && x->end == y->end);
        assert_true(x->bytes == y->bytes && x->line == y->line && x->name == y->name);
        assert_int_equal(x->access_count, y->access_count);
        assert_true(x->access_count == 0 || (a->access[i].bytes == b->access[i].bytes &&
                                             strcmp(b->access[i].tensor, "x") == 0));
    }
}

static void expect_same(side *a, side *b)
{
    kb_timeline x = kb_oplog_timeline(a->r.log), y = kb_oplog_timeline(b->r.log);
    expect_same_timeline(&x, &y);
    expect_same_sums(a->r.log, b->r.log);
    for (int c = 0; c < KB_CAUSES; c++)
        assert_true(a->causes[c] == b->causes[c]);
    if (a->profiled)
        expect_same_rows(a->r.log, b->r.log);
}

static void flush_both(side *a, side *b)
{
    kb_oplog_flush(a->r.log);
    kb_oplog_flush(b->r.log);
    expect_same_shown(a->shown, b->shown);
}

static void run_both(kb_rng *rng, const schedule *plan, side *a, side *b)
{
    const call *sorted[CALLS];
    sort_calls(plan, sorted);
    size_t told = 0;
    for (kb_time now = 0; now <= plan->length; now++) {
        go_to(&a->r, now);
        go_to(&b->r, now);
        begin_kernels(a, plan, now);
        begin_kernels(b, plan, now);
        tell_in_time(a, plan, now);
        for (; told < CALLS && sorted[told]->told == now; told++)
            tell_ahead(b, sorted[told]);
        for (int i = 0; i < CALLS; i++)
            if (is_whole(b, &plan->calls[i]))
                tell_whole(b, &plan->calls[i], now);
        end_kernels(a, plan, now);
        end_kernels(b, plan, now);
        if (kb_rng_below(rng, (uint64_t)plan->length / 20) == 0)
            expect_same(a, b);
        if (kb_rng_below(rng, (uint64_t)plan->length / 2) == 0)
            flush_both(a, b);
    }
    assert_int_equal(told, CALLS);
    expect_same(a, b);
    flush_both(a, b);
}

static side make_side(uint64_t mode)
{
    side s = {.r = make(PES), .watched = mode & 1, .profiled = mode & 2, .shows_states = mode & 4};
    s.shown = kb_alloc_zeroed(1, sizeof *s.shown);
    assert_non_null(s.shown);
    if (s.watched)
        kb_oplog_watch(s.r.log, keep_op, s.shown);
    if (s.profiled)
        expect_ok(kb_oplog_start_profile(s.r.log));
    if (s.shows_states)
        expect_ok(kb_oplog_watch_states(s.r.log, keep_state, s.shown));
    return s;
}

static void drop_side(side *s)
{
    drop(&s->r);
    free(s->shown);
}

static void telling_ahead_changes_nothing(void **state)
{
    (void)state;
    static schedule plan;
    int compared = 0;
    for (uint64_t seed = 0; seed < 160; seed++) {
        kb_rng rng;
        kb_rng_init(&rng, test_seed(seed));
        if (!make_schedule(&rng, &plan))
            continue;
        side a = make_side(seed % 8), b = make_side(seed % 8);
        run_both(&rng, &plan, &a, &b);
        drop_side(&a);
        drop_side(&b);
        compared++;
    }
    assert_true(compared > 80);
}

/* ---- No memory --------------------------------------------------------------------------- */

static void tell_much(kb_oplog *log, kb_time now, bool watched)
{
    kb_oplog_kernel_begin(log, 0, 0);
    for (kb_time i = 1; i <= 12; i++) {
        call c = {.kind = (call_kind)(i % KINDS), .start = now + i, .end = now + 2 * i, .line = 3};
        c.free_at = c.start;
        kb_op_access access;
        kb_op op = op_of(&c, &access);
        side s = {.r = {.log = log}, .watched = watched};
        c.kind = ITEM;
        c.cause = (kb_cause)(i % (KB_CAUSE_CREDIT + 1));
        tell_ahead(&s, &c);
        kb_oplog_need_drain(log, 0, c.start, true);
        kb_oplog_need_drain(log, 0, c.end, false);
        kb_oplog_set_line(log, 0, c.start, &op);
        c.kind = WORK;
        c.cause = KB_CAUSE_MATRIX;
        c.unit = KB_UNIT_GEMM;
        tell_ahead(&s, &c);
        c.kind = SPAN;
        c.unit = KB_UNIT_IPCQ;
        tell_ahead(&s, &c);
        c.kind = WAIT;
        tell_ahead(&s, &c);
    }
}

static bool without_memory_watched;

static void on_event(kb_sim *sim, void *self, uint64_t arg)
{
    kb_time_sum causes[KB_CAUSES] = {0};
    if (arg == 0)
        tell_much(self, kb_sim_now(sim), without_memory_watched);
    else
        kb_oplog_kernel_end(self, 0, causes);
}

static kb_error *run_events(rig *r, last_seen *seen)
{
    kb_handler handler;
    kb_source source = kb_source_make(0);
    KB_TRY(kb_sim_create(NULL, &r->sim));
    KB_TRY(kb_oplog_create(r->sim, 2, &r->log));
    if (without_memory_watched) {
        kb_oplog_watch(r->log, see_op, seen);
        KB_TRY(kb_oplog_start_profile(r->log));
    }
    KB_TRY(kb_sim_add_handler(r->sim, on_event, r->log, &handler));
    (void)kb_sim_at(r->sim, &source, 7, handler, 0);
    (void)kb_sim_at(r->sim, &source, 40, handler, 1);
    return kb_sim_run(r->sim, KB_FOREVER);
}

/* Whatever the log lacks, what it has can be applied and read. */
static void try_without_memory(void)
{
    rig r = {0};
    last_seen seen = {0};
    kb_error *err = run_events(&r, &seen);
    if (err) {
        assert_int_equal(kb_error_code(err), KB_ERR_HOST);
        if (r.log)
            kb_error_free(kb_sim_run(r.sim, 100));
    }
    kb_error_free(err);
    if (r.log) {
        size_t count;
        (void)kb_oplog_sums(r.log, &count);
        (void)kb_oplog_timeline(r.log);
        kb_oplog_flush(r.log);
    }
    drop(&r);
}

static void lack_of_memory_fails_the_run(void **state)
{
    (void)state;
    for (int watched = 0; watched < 2; watched++) {
        without_memory_watched = watched;
        failing_alloc_try_all(try_without_memory);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_schedule_told_at_its_start),
        cmocka_unit_test(results_drain_past_the_next_product),
        cmocka_unit_test(spans_count_from_their_starts),
        cmocka_unit_test(transfers_count_when_they_end),
        cmocka_unit_test(more_is_told_ahead_than_a_buffer_has_room_for),
        cmocka_unit_test(records_are_copied),
        cmocka_unit_test(telling_ahead_changes_nothing),
        cmocka_unit_test(lack_of_memory_fails_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
