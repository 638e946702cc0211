/*
 * test_units_order.c: what waits for what: spans, internal commands, and the laws on random
 * programs. Reading 4 KiB of the own slice takes 110.1425 ns, writing them 103.04.
 *
 * Checks K2 and K3.
 */
#include "support/seed.h"
#include "units_rig.h"

#define READ_4K ((kb_time)110142500)
#define WRITE_4K (103040 * KB_PS)

static const kb_pe pe0 = {0, 0, 0};

/* ---- Spans ------------------------------------------------------------------------------- */

static void note_ready(void *self, uint64_t arg)
{
    unit_rig *r = self;
    expect_ok(note_begun(self, arg));
    assert_false(pe_units_is_done(r->units, r->diary[arg].op)); /* and its name is known */
}

static size_t open_span(unit_rig *r, pe_span span)
{
    size_t number = r->entries++;
    entry *e = &r->diary[number];
    *e = (entry){.begun = -1, .ended = -1};
    span.ready = note_ready;
    span.self = r;
    span.arg = number;
    expect_ok(pe_units_open(r->units, pe0, &span, &e->op));
    return number;
}

static void close_span(unit_rig *r, size_t number)
{
    pe_units_close(r->units, r->diary[number].op);
    assert_true(pe_units_is_done(r->units, r->diary[number].op));
    r->diary[number].ended = kb_sim_now(r->sim);
}

static pe_command math(int64_t ns)
{
    return (pe_command){.unit = KB_UNIT_MATH, .time = ns * KB_NS};
}

/* It is ready at once if it waits for nothing, and done when it is closed; it takes no unit. */
static void a_span_lasts_until_it_is_closed(void **state)
{
    (void)state;
    unit_rig r;
    unit_rig_make(&r, default_machine());
    size_t s = open_span(&r, (pe_span){0});
    assert_int_equal(r.diary[s].begun, 0);
    assert_int_equal(pe_units_under_way(r.units, pe0), 1);
    pe_command command = math(10);
    command.after[0] = r.diary[s].op;
    size_t m = issue(&r, command);
    expect_ok(kb_sim_run(r.sim, 7 * KB_NS));
    assert_int_equal(r.diary[m].begun, -1);
    close_span(&r, s);
    assert_int_equal(r.diary[m].begun, 7 * KB_NS);
    run_all(&r);
    assert_int_equal(pe_units_under_way(r.units, pe0), 0);
    unit_rig_fini(&r);
}

/*
 * The span writes what a is reading and reads what b is writing; c, d and e each touch something of
 * it, f nothing that it writes.
 */
static void a_span_takes_part_in_the_order_of_bytes(void **state)
{
    (void)state;
    unit_rig r;
    unit_rig_make(&r, default_machine());
    mem_rect reads[] = {bytes_at(KB_HBM, 0, 0, 0, 0, 4096), bytes_at(KB_HBM, 0, 0, 3, 0, 64)};
    mem_rect writes[] = {bytes_at(KB_HBM, 0, 0, 0, 8192, 4096), bytes_at(KB_SRAM, 0, 0, 0, 0, 64)};
    pe_span span = {.reads = reads, .read_count = 2, .writes = writes, .write_count = 2};
    size_t a = read_slice(&r, 8192, 4096), b = write_slice(&r, 4000, 8);
    pe_ready there = {.at = KB_FOREVER};
    span.inputs[PE_MAX_INPUTS - 1] = &there;
    size_t s = open_span(&r, span);
    memset(reads, 0xff, sizeof reads); /* they were copied */
    size_t f = read_slice(&r, 100, 8), c = read_slice(&r, 8192, 8), d = write_slice(&r, 0, 8);
    size_t e = write_slice(&r, 12000, 8);
    assert_int_equal(r.diary[s].begun, -1);
    expect_ok(kb_sim_run(r.sim, 250 * KB_NS));
    there.at = 300 * KB_NS; /* which is known now */
    pe_units_poll(r.units, pe0);
    assert_int_equal(r.diary[s].begun, -1);
    expect_ok(kb_sim_run(r.sim, 500 * KB_NS));
    assert_true(r.diary[a].ended < 300 * KB_NS && r.diary[b].ended < 300 * KB_NS);
    assert_int_equal(r.diary[s].begun, 300 * KB_NS);
    assert_int_equal(r.diary[f].begun, 0);
    assert_int_equal(r.diary[c].begun, -1);
    assert_int_equal(r.diary[d].begun, -1);
    close_span(&r, s);
    run_all(&r);
    assert_int_equal(r.diary[c].begun, 500 * KB_NS);
    assert_int_equal(r.diary[d].begun, 500 * KB_NS);
    assert_int_equal(r.diary[e].begun, 500 * KB_NS);
    unit_rig_fini(&r);
}

/* When each of three spans is closed. */
static pe_ready closed[3];

static void close_it_at_once(void *self, uint64_t arg)
{
    unit_rig *r = self;
    closed[arg].at = r->diary[arg].begun = kb_sim_now(r->sim);
    close_span(r, arg);
    pe_units_poll(r->units, pe0);
}

/* The second and third wait for the one before, and the second for something at 5 ns too. */
static void a_span_may_be_closed_when_it_is_ready(void **state)
{
    (void)state;
    const pe_ready five = {.at = 5 * KB_NS};
    unit_rig r;
    unit_rig_make(&r, default_machine());
    r.entries = 3;
    for (size_t i = 0; i < 3; i++) {
        r.diary[i] = (entry){.begun = -1, .ended = -1};
        closed[i] = (pe_ready){.at = KB_FOREVER};
        pe_span span = {.ready = close_it_at_once, .self = &r, .arg = i};
        if (i > 0)
            span.inputs[0] = &closed[i - 1];
        if (i == 1)
            span.inputs[1] = &five;
        expect_ok(pe_units_open(r.units, pe0, &span, &r.diary[i].op));
    }
    run_all(&r);
    expect_times(&r, 0, 0, 0);
    expect_times(&r, 1, five.at, five.at);
    expect_times(&r, 2, five.at, five.at);
    unit_rig_fini(&r);
}

/* Opened at 0 for 8 ns by a program that is ahead. */
static void a_span_may_be_opened_ahead(void **state)
{
    (void)state;
    unit_rig r;
    unit_rig_make(&r, default_machine());
    size_t s = open_span(&r, (pe_span){.issued = 8 * KB_NS});
    assert_int_equal(r.diary[s].begun, -1);
    expect_ok(kb_sim_run(r.sim, 20 * KB_NS));
    assert_int_equal(r.diary[s].begun, 8 * KB_NS);
    close_span(&r, s);
    unit_rig_fini(&r);
}

static void close_twice(void)
{
    unit_rig r;
    unit_rig_make(&r, default_machine());
    size_t s = open_span(&r, (pe_span){0});
    close_span(&r, s);
    close_span(&r, s);
}

static void close_too_early(void)
{
    unit_rig r;
    unit_rig_make(&r, default_machine());
    mem_rect rect = bytes_at(KB_HBM, 0, 0, 0, 0, 4096);
    (void)write_slice(&r, 0, 4096);
    close_span(&r, open_span(&r, (pe_span){.reads = &rect, .read_count = 1}));
}

static void close_before_its_input(void)
{
    unit_rig r;
    pe_ready there = {.at = KB_FOREVER};
    unit_rig_make(&r, default_machine());
    close_span(&r, open_span(&r, (pe_span){.inputs = {&there}}));
}

static void closing_at_the_wrong_time_is_a_bug(void **state)
{
    (void)state;
    expect_abort(close_twice, "pe_units_is_done");
    expect_abort(close_too_early, "is_ready");
    expect_abort(close_before_its_input, "is_ready");
}

/* ---- Internal commands ------------------------------------------------------------------- */

/*
 * A program's read waits for the span, and holds up the reads behind it, but not internal ones: the
 * span could not go on otherwise. These do not wait for bytes either.
 */
static void internal_commands_pass_what_waits(void **state)
{
    (void)state;
    unit_rig r;
    unit_rig_make(&r, default_machine());
    mem_rect rect = bytes_at(KB_HBM, 0, 0, 0, 0, 4096);
    size_t s = open_span(&r, (pe_span){.writes = &rect, .write_count = 1});
    size_t a = read_slice(&r, 0, 4096), b = read_slice(&r, 65536, 8);
    pe_command inner = {
        .unit = KB_UNIT_DMA_READ, .rects = &rect, .rect_count = 1, .internal = true};
    size_t c = issue(&r, inner);
    inner.unit = KB_UNIT_DMA_WRITE;
    size_t d = issue(&r, inner);
    expect_ok(kb_sim_run(r.sim, 400 * KB_NS));
    assert_int_equal(r.diary[c].begun, 0);
    assert_int_equal(r.diary[d].begun, 0);
    assert_int_equal(r.diary[a].begun, -1);
    assert_int_equal(r.diary[b].begun, -1);
    close_span(&r, s);
    run_all(&r);
    assert_int_equal(r.diary[a].begun, 400 * KB_NS);
    assert_int_equal(r.diary[b].begun, 400 * KB_NS);
    unit_rig_fini(&r);
}

/* Nor does a program's command wait for the bytes of an internal one: for that there are spans. */
static void nobody_waits_for_internal_bytes(void **state)
{
    (void)state;
    unit_rig r;
    unit_rig_make(&r, default_machine());
    mem_rect rect;
    pe_command inner = slice_command(KB_UNIT_DMA_WRITE, &rect, 0, 4096);
    inner.internal = true;
    (void)issue(&r, inner);
    size_t a = read_slice(&r, 0, 4096);
    assert_int_equal(r.diary[a].begun, 0);
    run_all(&r);
    unit_rig_fini(&r);
}

/* Of those that could begin, the one issued first does, internal or not. */
static void ready_commands_begin_in_the_order_of_issue(void **state)
{
    (void)state;
    unit_rig r;
    unit_rig_make(&r, default_machine());
    pe_command outer = math(10), inner = math(10);
    inner.internal = true;
    size_t numbers[6];
    for (size_t i = 0; i < 6; i++)
        numbers[i] = issue(&r, i % 3 == 1 ? inner : outer);
    run_all(&r);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(r.diary[numbers[i]].begun, (kb_time)i * 10 * KB_NS);
    unit_rig_fini(&r);
}

/* ---- Random programs --------------------------------------------------------------------- */

enum { PROGRAM = 120, MACHINE_PES = 4, MEMORY_BYTES = 40000 };

static const char machine_text[] = "system: { sips: { count: 1 } }\n"
                                   "sip: { cube_mesh: { w: 2, h: 1 } }\n"
                                   "cube:\n"
                                   "  noc: { k: 1 }\n"
                                   "  pe_layout: { pe_per_router: 2 }\n"
                                   "  hbm_gib: 2\n"
                                   "  pe_dma: { channels: 2 }\n"
                                   "  pe_tcm: { bw_gbs: 200 }\n";

typedef struct line {
    uint32_t pe;
    pe_command command;
    mem_rect rects[3];
    size_t after[2]; /* lines before it; its own number: none */
    kb_time issue_at;
} line;

typedef struct program {
    unit_rig r;
    line lines[PROGRAM];
    size_t issued;
} program;

static kb_pe pe_of(uint32_t number)
{
    return (kb_pe){0, number / 2, number % 2};
}

static mem_rect random_rect(kb_rng *rng)
{
    mem_rect rect = {.rows = 1 + kb_rng_below(rng, 4),
                     .bytes = kb_rng_below(rng, 6) == 0 ? 0 : 1 + kb_rng_below(rng, 3000)};
    static const kb_memory memories[] = {KB_HBM, KB_HBM, KB_SRAM, KB_TCM};
    rect.at.memory = memories[kb_rng_below(rng, 4)];
    rect.at.pe = pe_of((uint32_t)kb_rng_below(rng, MACHINE_PES));
    rect.at.offset = kb_rng_below(rng, MEMORY_BYTES);
    rect.stride = kb_rng_below(rng, 4000);
    return rect;
}

static line random_line(kb_rng *rng, size_t number, kb_time issue_at)
{
    line l = {.pe = (uint32_t)kb_rng_below(rng, MACHINE_PES), .issue_at = issue_at};
    l.command.unit = (kb_unit)(KB_UNIT_DMA_READ + kb_rng_below(rng, 4));
    l.command.internal = kb_rng_below(rng, 6) == 0;
    for (size_t i = 0; i < 2; i++)
        l.after[i] = kb_rng_below(rng, 3) == 0 && number > 0 ? kb_rng_below(rng, number) : number;
    if (l.command.unit == KB_UNIT_GEMM || l.command.unit == KB_UNIT_MATH) {
        l.command.time = (kb_time)kb_rng_below(rng, 40) * KB_NS;
        l.command.tail = (kb_time)kb_rng_below(rng, 3) * 10 * KB_NS;
        l.command.tcm_reads = kb_rng_below(rng, 2) * kb_rng_below(rng, 8000);
        l.command.tcm_writes = kb_rng_below(rng, 2) * kb_rng_below(rng, 8000);
    } else {
        l.command.rect_count = kb_rng_below(rng, 4);
        for (size_t i = 0; i < l.command.rect_count; i++)
            l.rects[i] = random_rect(rng);
    }
    return l;
}

static void issue_line(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim;
    program *p = self;
    line *l = &p->lines[arg];
    pe_command command = l->command;
    command.rects = l->rects;
    for (size_t i = 0; i < 2; i++)
        command.after[i] = l->after[i] != arg ? p->r.diary[l->after[i]].op : 0;
    assert_int_equal(issue_at(&p->r, pe_of(l->pe), command), arg);
}

static void run_program(program *p, uint64_t seed, bool no_elision)
{
    kb_rng rng;
    kb_rng_init(&rng, test_seed(seed));
    expect_ok(unit_rig_try(&p->r, machine_of(machine_text), no_elision));
    kb_handler handler;
    kb_source source = kb_source_make(KB_SOURCE_ID_MAX);
    expect_ok(kb_sim_add_handler(p->r.sim, issue_line, p, &handler));
    kb_time now = 0;
    for (size_t i = 0; i < PROGRAM; i++) {
        p->lines[i] = random_line(&rng, i, now);
        (void)kb_sim_at(p->r.sim, &source, now, handler, i);
        now += kb_rng_below(&rng, 3) > 0 ? 0 : (kb_time)kb_rng_below(&rng, 200) * KB_NS;
    }
    run_all(&p->r);
}

static bool is_dma(const line *l)
{
    return l->command.unit == KB_UNIT_DMA_READ || l->command.unit == KB_UNIT_DMA_WRITE;
}

static bool must_wait_for(const line *later, const line *earlier)
{
    return is_dma(later) && is_dma(earlier) && !later->command.internal &&
           !earlier->command.internal && later->pe == earlier->pe &&
           (later->command.unit == KB_UNIT_DMA_WRITE ||
            earlier->command.unit == KB_UNIT_DMA_WRITE) &&
           mem_rects_overlap(earlier->rects, earlier->command.rect_count, later->rects,
                             later->command.rect_count);
}

/* When it could have begun at the soonest: nothing else held it up. */
static kb_time earliest(const program *p, size_t i)
{
    const line *l = &p->lines[i];
    const entry *diary = p->r.diary;
    kb_time soonest = l->issue_at;
    for (size_t j = 0; j < i; j++) {
        const line *before = &p->lines[j];
        bool same_queue = before->pe == l->pe && before->command.unit == l->command.unit &&
                          before->command.internal == l->command.internal;
        kb_time bound = l->after[0] == j || l->after[1] == j || must_wait_for(l, before)
                            ? diary[j].ended
                        : same_queue ? diary[j].begun
                                     : 0;
        soonest = bound > soonest ? bound : soonest;
    }
    return soonest;
}

/* A unit is held until the end; an engine perhaps no longer than its time, if the TCM was no limit.
 */
static kb_time held_until(const program *p, size_t i, bool at_least)
{
    const pe_command *command = &p->lines[i].command;
    const entry *e = &p->r.diary[i];
    bool has_tail =
        at_least && !is_dma(&p->lines[i]) && e->ended == e->begun + command->time + command->tail;
    return has_tail ? e->begun + command->time : e->ended;
}

/* How many commands of the unit besides it hold a channel, or the engine, at the time. */
static uint32_t holders(const program *p, size_t i, kb_time when, bool at_least)
{
    const line *l = &p->lines[i];
    uint32_t count = 0;
    for (size_t j = 0; j < PROGRAM; j++) {
        const line *other = &p->lines[j];
        if (j != i && other->pe == l->pe && other->command.unit == l->command.unit)
            count += p->r.diary[j].begun <= when && when < held_until(p, j, at_least);
    }
    return count;
}

static void check_laws(const program *p)
{
    for (size_t i = 0; i < PROGRAM; i++) {
        const line *l = &p->lines[i];
        const entry *e = &p->r.diary[i];
        uint32_t channels = is_dma(l) ? p->r.shape->pe.dma_channels : 1;
        kb_time soonest = earliest(p, i);
        assert_true(e->begun >= soonest);
        if (held_until(p, i, true) > e->begun)
            assert_true(holders(p, i, e->begun, true) < channels);
        if (e->begun > soonest) /* then all channels were taken */
            assert_true(holders(p, i, e->begun - 1, false) >= channels);
        assert_true(e->ended - e->begun >= l->command.time + l->command.tail);
    }
}

/* On random programs: no command begins before it may, and none later than it must; the results do
 * not depend on elision. */
static void random_programs_keep_the_laws(void **state)
{
    (void)state;
    static program p, q;
    for (uint64_t seed = 0; seed < 25; seed++) {
        run_program(&p, seed, false);
        run_program(&q, seed, true);
        check_laws(&p);
        assert_memory_equal(p.r.diary, q.r.diary, PROGRAM * sizeof *p.r.diary);
        for (uint64_t pe = 0; pe < MACHINE_PES; pe++) {
            assert_int_equal(pe_units_under_way(p.r.units, pe_of((uint32_t)pe)), 0);
            for (int unit = 0; unit < KB_UNITS; unit++)
                assert_int_equal(kb_oplog_busy(p.r.log, pe, (kb_unit)unit),
                                 kb_oplog_busy(q.r.log, pe, (kb_unit)unit));
        }
        unit_rig_fini(&p.r);
        unit_rig_fini(&q.r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_span_lasts_until_it_is_closed),
        cmocka_unit_test(a_span_takes_part_in_the_order_of_bytes),
        cmocka_unit_test(a_span_may_be_closed_when_it_is_ready),
        cmocka_unit_test(a_span_may_be_opened_ahead),
        cmocka_unit_test(closing_at_the_wrong_time_is_a_bug),
        cmocka_unit_test(internal_commands_pass_what_waits),
        cmocka_unit_test(nobody_waits_for_internal_bytes),
        cmocka_unit_test(ready_commands_begin_in_the_order_of_issue),
        cmocka_unit_test(random_programs_keep_the_laws),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
