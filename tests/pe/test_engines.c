/*
 * test_engines.c: commands of engines whose times are computed ahead of global time, by hand; and
 * random programs, whose times do not depend on how far the program runs ahead. The TCM passes 512
 * bytes a ns each way, so 5120 take 10 ns.
 */
#include "composite_rig.h"
#include "support/seed.h"

static const kb_pe pe0 = {0, 0, 0};

/* A command, and what came of it. */
typedef struct job {
    pe_work work;
    unit_rig *r;
    kb_op entry; /* has its begin and end */
    pe_ready ready;
    kb_time issued;   /* the program's clock */
    kb_time known_at; /* global time when its times became known */
} job;

static const pe_ready unknown = {.at = KB_FOREVER};

static void on_known(const pe_work *work, kb_time begin, pe_ready result)
{
    job *j = work->self;
    assert_int_equal(j->ready.at, KB_FOREVER);
    assert_int_equal(j->entry.start, begin);
    j->ready = result;
    j->known_at = kb_sim_now(j->r->sim);
}

static job matrix(int64_t ns, int64_t tail_ns, uint64_t reads, uint64_t writes)
{
    return (job){.work = {.unit = KB_UNIT_GEMM,
                          .time = ns * KB_NS,
                          .tail = tail_ns * KB_NS,
                          .tcm_reads = reads,
                          .tcm_writes = writes}};
}

static job vector(int64_t ns, uint64_t reads, uint64_t writes)
{
    job j = matrix(ns, 0, reads, writes);
    j.work.unit = KB_UNIT_MATH;
    return j;
}

static void needs(job *j, const pe_ready *input)
{
    j->work.inputs[j->work.input_count++] = input;
}

/* Issues it at the program's clock, once there is room. */
static void issue_job(unit_rig *r, job *j)
{
    pe_cpu *cpu = pe_units_cpu(r->units, pe0);
    pe_cpu_await_room(cpu, j->work.unit);
    j->r = r;
    j->ready = unknown;
    j->issued = cpu->clock;
    j->work.issued = cpu->clock;
    j->work.self = j;
    j->work.known = on_known;
    j->work.name = "job";
    j->work.entry = &j->entry;
    pe_work *work = pe_cpu_next_work(cpu, j->work.unit);
    assert_non_null(work);
    *work = j->work;
    if (pe_cpu_resolve(cpu, work, &j->ready)) {
        j->known_at = kb_sim_now(r->sim);
        return;
    }
    j->ready.by_engine = true;
    pe_cpu_queue(cpu, work);
}

static void expect_job(const job *j, int64_t begin_ns, int64_t end_ns)
{
    assert_int_equal(j->entry.start, begin_ns * KB_NS);
    assert_int_equal(j->entry.end, end_ns * KB_NS);
    assert_int_equal(j->ready.at, end_ns * KB_NS);
}

/* ---- Programs by hand -------------------------------------------------------------------- */

enum { MAX_JOBS = 8 };

/* The jobs of a program, which takes `gap` before each. */
typedef struct script {
    unit_rig r;
    job jobs[MAX_JOBS];
    size_t count;
    kb_time gap;
    kb_time over; /* global time when the program has issued all */
    kb_time clock;
} script;

static void run_script(kb_co *co, void *arg)
{
    script *s = arg;
    pe_cpu *cpu = pe_units_cpu(s->r.units, pe0);
    pe_cpu_begin(cpu, co);
    for (size_t i = 0; i < s->count; i++) {
        cpu->clock += s->gap;
        issue_job(&s->r, &s->jobs[i]);
    }
    s->over = kb_sim_now(s->r.sim);
    s->clock = cpu->clock;
    pe_cpu_end(cpu);
}

/* In place, as jobs point at each other. */
static void begin_script(script *s, topo_machine *machine)
{
    unit_rig_make(&s->r, machine);
    s->over = -1;
    expect_ok(kb_co_spawn(s->r.sim, NULL, run_script, s, NULL));
}

static void end_script(script *s)
{
    expect_ok(kb_sim_run(s->r.sim, KB_FOREVER));
    assert_true(s->over >= 0);
    unit_rig_fini(&s->r);
}

/*
 * Issued at 2, 4, 6, 8 and 10 ns. A: 2 to 12. B needs A and occupies its engine from 12 to 32, its
 * result is there at 37. C needs B: 37 to 40. D needs nothing but stands behind C: 40 to 44. E
 * needs C and D: 44 to 50. All is known at 0.
 */
static void a_chain_is_known_at_once(void **state)
{
    (void)state;
    script s = {.jobs = {vector(10, 0, 0), matrix(20, 5, 0, 0), vector(3, 0, 0), vector(4, 0, 0),
                         matrix(6, 0, 0, 0)},
                .count = 5,
                .gap = 2 * KB_NS};
    job *j = s.jobs;
    needs(&j[1], &j[0].ready);
    needs(&j[2], &j[1].ready);
    needs(&j[4], &j[2].ready);
    needs(&j[4], &j[3].ready);
    begin_script(&s, default_machine());
    expect_ok(kb_sim_run(s.r.sim, 0));
    assert_int_equal(s.over, 0);
    assert_int_equal(s.clock, 10 * KB_NS);
    expect_job(&j[0], 2, 12);
    expect_job(&j[1], 12, 37);
    expect_job(&j[2], 37, 40);
    expect_job(&j[3], 40, 44);
    expect_job(&j[4], 44, 50);
    assert_int_equal(pe_units_cpu(s.r.units, pe0)->engines_end, 50 * KB_NS);
    end_script(&s);
}

/*
 * A reads for 100 ns from 0 on, B for 50: from 100 to 150. C begins when A's engine is free, at
 * 100, and reads for 10 behind B: until 160. Writes have a port of their own: D, on the matrix
 * engine from 150 on, writes for 10.
 */
static void the_older_command_has_the_tcm_first(void **state)
{
    (void)state;
    script s = {.jobs = {vector(10, 51200, 0), matrix(5, 0, 25600, 0), vector(1, 5120, 0),
                         matrix(1, 0, 0, 5120)},
                .count = 4};
    begin_script(&s, default_machine());
    expect_ok(kb_sim_run(s.r.sim, 0));
    expect_job(&s.jobs[0], 0, 100);
    expect_job(&s.jobs[1], 0, 150);
    expect_job(&s.jobs[2], 100, 160);
    expect_job(&s.jobs[3], 150, 160);
    end_script(&s);
}

/* A waits for an input until 100, and reads for 100 ns. B is younger and begins at 0: it reads
 * until 104, and A from then on. */
static void ports_serve_in_the_order_of_begins(void **state)
{
    (void)state;
    const pe_ready input = {.at = 100 * KB_NS};
    script s = {.jobs = {vector(10, 51200, 0), matrix(5, 0, 53248, 0)}, .count = 2};
    needs(&s.jobs[0], &input);
    begin_script(&s, default_machine());
    expect_ok(kb_sim_run(s.r.sim, 0));
    expect_job(&s.jobs[0], 100, 204);
    expect_job(&s.jobs[1], 0, 104);
    end_script(&s);
}

/* Each takes 10 ns. With a queue of one, a command is issued when the one before it begins: at 0,
 * 0, 10, 20, 30; with a queue of two, when the one before that begins: 0, 0, 0, 10, 20. */
static void a_queue_limits_how_far_the_clock_is_behind(void **state)
{
    (void)state;
    static const char *const depths[] = {"cube.pe_cpu.queue_depth=1", "cube.pe_cpu.queue_depth=2"};
    static const kb_time issued[2][5] = {{0, 0, 10, 20, 30}, {0, 0, 0, 10, 20}};
    for (int d = 0; d < 2; d++) {
        script s = {.count = 5};
        for (size_t i = 0; i < 5; i++)
            s.jobs[i] = vector(10, 0, 0);
        begin_script(&s, machine_with(depths[d], NULL, NULL, NULL));
        expect_ok(kb_sim_run(s.r.sim, 0));
        assert_int_equal(s.over, 0);
        for (size_t i = 0; i < 5; i++) {
            assert_int_equal(s.jobs[i].issued, issued[d][i] * KB_NS);
            expect_job(&s.jobs[i], 10 * (int64_t)i, 10 * (int64_t)i + 10);
        }
        end_script(&s);
    }
}

/* Each engine has a queue of its own: the matrix engine's commands are all issued at 0 although the
 * vector engine's queue is full until 10. */
static void queues_are_of_one_engine(void **state)
{
    (void)state;
    script s = {.jobs = {vector(10, 0, 0), vector(10, 0, 0), matrix(10, 0, 0, 0),
                         matrix(10, 0, 0, 0), vector(10, 0, 0)},
                .count = 5};
    begin_script(&s, machine_with("cube.pe_cpu.queue_depth=1", NULL, NULL, NULL));
    expect_ok(kb_sim_run(s.r.sim, 0));
    static const kb_time issued[] = {0, 0, 0, 0, 10};
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(s.jobs[i].issued, issued[i] * KB_NS);
    end_script(&s);
}

/* ---- Inputs that become known ------------------------------------------------------------ */

typedef struct arrival {
    unit_rig *r;
    pe_ready *input;
    kb_time value;
} arrival;

static void on_arrival(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim;
    (void)arg;
    const arrival *a = self;
    a->input->at = a->value;
    pe_units_poll(a->r->units, pe0);
}

/* At `when` it becomes known that the input is there at `value`. */
static void arrive_at(arrival *a, kb_time when)
{
    kb_handler handler;
    kb_source source = kb_source_make(0);
    expect_ok(kb_sim_add_handler(a->r->sim, on_arrival, a, &handler));
    (void)kb_sim_at(a->r->sim, &source, when, handler, 0);
}

/*
 * A queue of one. The first needs what becomes known at 30; the second is issued when the first has
 * begun. If it is there at 30, they begin at 30 and 40; if it is known at 30 for 35, the program
 * goes on at 30 with its clock at 35.
 */
static void a_program_waits_for_room_until_a_begin_is_known(void **state)
{
    (void)state;
    for (int64_t later = 0; later <= 5; later += 5) {
        pe_ready input = unknown;
        script s = {.jobs = {vector(10, 0, 0), vector(10, 0, 0), vector(10, 0, 0)}, .count = 3};
        needs(&s.jobs[0], &input);
        begin_script(&s, machine_with("cube.pe_cpu.queue_depth=1", NULL, NULL, NULL));
        arrival a = {&s.r, &input, (30 + later) * KB_NS};
        arrive_at(&a, 30 * KB_NS);
        expect_ok(kb_sim_run(s.r.sim, 29 * KB_NS));
        assert_int_equal(s.over, -1);
        expect_ok(kb_sim_run(s.r.sim, 30 * KB_NS));
        assert_int_equal(s.over, 30 * KB_NS);
        assert_int_equal(s.clock, (40 + later) * KB_NS);
        for (int64_t i = 0; i < 3; i++)
            expect_job(&s.jobs[i], 30 + later + 10 * i, 40 + later + 10 * i);
        assert_int_equal(s.jobs[1].issued, (30 + later) * KB_NS);
        assert_int_equal(s.jobs[2].issued, (40 + later) * KB_NS);
        end_script(&s);
    }
}

/*
 * G, of the matrix engine, is the oldest and needs something of 30 ns. Of the vector engine, M
 * begins at 0 and N at 10; N reads for 30 ns, G for 10.
 *
 * N begins first and has the TCM from 10 to 40, so G has it from 40 to 50. If nothing is known of
 * the input until 30, N's begin is final when global time comes there; else at once.
 */
static void a_younger_command_does_not_wait_for_an_unknown_input(void **state)
{
    (void)state;
    for (int known = 0; known < 2; known++) {
        pe_ready input = {.at = known ? 30 * KB_NS : KB_FOREVER};
        script s = {.jobs = {matrix(1, 0, 5120, 0), vector(10, 0, 0), vector(1, 15360, 0)},
                    .count = 3};
        needs(&s.jobs[0], &input);
        begin_script(&s, default_machine());
        arrival a = {&s.r, &input, 30 * KB_NS};
        arrive_at(&a, 30 * KB_NS);
        expect_ok(kb_sim_run(s.r.sim, KB_FOREVER));
        assert_int_equal(s.over, 0);
        expect_job(&s.jobs[0], 30, 50);
        expect_job(&s.jobs[1], 0, 10);
        expect_job(&s.jobs[2], 10, 40);
        assert_int_equal(s.jobs[2].known_at, known ? 0 : 10 * KB_NS);
        end_script(&s);
    }
}

/* The same while the input becomes known at 5 for 30: then N's begin is final too. */
static void an_input_that_is_known_in_time_counts(void **state)
{
    (void)state;
    pe_ready input = unknown;
    script s = {.jobs = {matrix(1, 0, 5120, 0), vector(10, 0, 0), vector(1, 15360, 0)}, .count = 3};
    needs(&s.jobs[0], &input);
    begin_script(&s, default_machine());
    arrival a = {&s.r, &input, 30 * KB_NS};
    arrive_at(&a, 5 * KB_NS);
    expect_ok(kb_sim_run(s.r.sim, KB_FOREVER));
    expect_job(&s.jobs[0], 30, 50);
    expect_job(&s.jobs[2], 10, 40);
    assert_int_equal(s.jobs[2].known_at, 5 * KB_NS);
    end_script(&s);
}

/* A command that waits holds up those behind it in its engine, whatever they need. */
static void an_engine_keeps_its_order(void **state)
{
    (void)state;
    pe_ready input = unknown;
    script s = {.jobs = {vector(10, 0, 0), vector(10, 0, 0), matrix(10, 0, 0, 0)}, .count = 3};
    needs(&s.jobs[0], &input);
    needs(&s.jobs[2], &s.jobs[1].ready);
    begin_script(&s, default_machine());
    arrival a = {&s.r, &input, 30 * KB_NS};
    arrive_at(&a, 20 * KB_NS);
    expect_ok(kb_sim_run(s.r.sim, KB_FOREVER));
    expect_job(&s.jobs[0], 30, 40);
    expect_job(&s.jobs[1], 40, 50);
    expect_job(&s.jobs[2], 50, 60);
    end_script(&s);
}

/* ---- Drains ------------------------------------------------------------------------------ */

static void begin_drain_script(script *s)
{
    begin_script(s, default_machine());
    kb_oplog_kernel_begin(s->r.log, 0, 0);
}

/* Runs all, and says how long results drained, and how long of it a product waited for them. */
static void expect_drain(script *s, kb_time drain, kb_time needed)
{
    kb_time_sum causes[KB_CAUSES] = {0};
    expect_ok(kb_sim_run(s->r.sim, KB_FOREVER));
    kb_time end = pe_units_cpu(s->r.units, pe0)->engines_end;
    if (end > kb_sim_now(s->r.sim))
        expect_ok(kb_sim_run(s->r.sim, end));
    kb_oplog_kernel_end(s->r.log, 0, causes);
    assert_int_equal(causes[KB_CAUSE_MATRIX_DRAIN], drain);
    assert_int_equal(kb_oplog_timeline(s->r.log).needed_drain, needed);
    end_script(s);
}

/* Each of the three occupies the engine for 5 and drains for 20. In a chain two wait for the drain
 * of the one before; the drain of the last one is waited for by none, or by a vector operation. If
 * they need nothing of each other, only the last drain shows. */
static void products_that_need_each_other_drain_in_between(void **state)
{
    (void)state;
    script chain = {
        .jobs = {matrix(5, 20, 0, 0), matrix(5, 20, 0, 0), matrix(5, 20, 0, 0), vector(7, 0, 0)},
        .count = 4};
    for (size_t i = 1; i < 4; i++)
        needs(&chain.jobs[i], &chain.jobs[i - 1].ready);
    begin_drain_script(&chain);
    expect_drain(&chain, 60 * KB_NS, 40 * KB_NS);
    script apart = {.jobs = {matrix(5, 20, 0, 0), matrix(5, 20, 0, 0), matrix(5, 20, 0, 0)},
                    .count = 3};
    begin_drain_script(&apart);
    expect_drain(&apart, 20 * KB_NS, 0);
}

/* The first is issued at 12, occupies the engine until 17 and drains until 37. The second needs it,
 * and is issued at 24: 13 of the drain count. */
static void a_drain_counts_from_the_issue(void **state)
{
    (void)state;
    script s = {.jobs = {matrix(5, 20, 0, 0), matrix(1, 0, 0, 0)}, .count = 2, .gap = 12 * KB_NS};
    needs(&s.jobs[1], &s.jobs[0].ready);
    begin_drain_script(&s);
    expect_drain(&s, 20 * KB_NS, 13 * KB_NS);
}

/*
 * A product takes 5 + 20, or 100 + 20; the next one needs it and what is known at 110 to be there
 * at 110. In the first case it waits for that, so nothing of the drain counts; in the second it
 * waits for the drain alone from 110 to 120.
 */
static void a_drain_counts_if_the_next_product_waits_for_nothing_else(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        pe_ready input = unknown;
        script s = {.jobs = {matrix(i == 0 ? 5 : 100, 20, 0, 0), matrix(1, 0, 0, 0)}, .count = 2};
        needs(&s.jobs[1], &s.jobs[0].ready);
        needs(&s.jobs[1], &input);
        begin_drain_script(&s);
        arrival a = {&s.r, &input, 110 * KB_NS};
        arrive_at(&a, 110 * KB_NS);
        expect_drain(&s, 20 * KB_NS, i == 0 ? 0 : 10 * KB_NS);
    }
}

/* ---- The program's clock ----------------------------------------------------------------- */

typedef struct waits {
    unit_rig r;
    pe_ready input; /* becomes known at 30 for 35 */
    kb_time at[5], now[5];
} waits;

static void note_clock(waits *w, size_t i)
{
    w->at[i] = pe_units_cpu(w->r.units, pe0)->clock;
    w->now[i] = kb_sim_now(w->r.sim);
}

static void wait_for_all(kb_co *co, void *arg)
{
    waits *w = arg;
    pe_cpu *cpu = pe_units_cpu(w->r.units, pe0);
    const pe_ready known = {.at = 20 * KB_NS};
    pe_cpu_begin(cpu, co);
    size_t load = read_slice(&w->r, 0, 4096); /* takes 110.1425 ns */
    pe_cpu_await_value(cpu, &known);
    note_clock(w, 0);
    pe_cpu_await_value(cpu, &w->input);
    note_clock(w, 1);
    cpu->clock += 10 * KB_NS;
    pe_cpu_synchronise(cpu);
    note_clock(w, 2);
    pe_cpu_await_op(cpu, w->r.diary[load].op);
    note_clock(w, 3);
    cpu->clock += KB_US;
    pe_cpu_await_op(cpu, w->r.diary[load].op);
    note_clock(w, 4);
    pe_cpu_end(cpu);
}

/* What is known advances the clock alone; what is not known is waited for until it is. */
static void waiting_advances_the_clock(void **state)
{
    (void)state;
    waits w = {.input = unknown};
    unit_rig_make(&w.r, default_machine());
    expect_ok(kb_co_spawn(w.r.sim, NULL, wait_for_all, &w, NULL));
    arrival a = {&w.r, &w.input, 35 * KB_NS};
    arrive_at(&a, 30 * KB_NS);
    expect_ok(kb_sim_run(w.r.sim, KB_FOREVER));
    const kb_time load = 110142500;
    const kb_time at[] = {20 * KB_NS, 35 * KB_NS, 45 * KB_NS, load, load + KB_US};
    const kb_time now[] = {0, 30 * KB_NS, 45 * KB_NS, load, load};
    assert_memory_equal(w.at, at, sizeof at);
    assert_memory_equal(w.now, now, sizeof now);
    unit_rig_fini(&w.r);
}

/* ---- Random programs --------------------------------------------------------------------- */

enum { LINES = 150 };

/* What a program does next: a command of an engine, a load, a copy in the TCM, or a product. */
typedef enum line_kind { JOB, LOAD, PRODUCT, AWAIT, KINDS } line_kind;

typedef struct line {
    line_kind kind;
    job job;
    uint64_t offset, bytes;
    kb_time gap;
    size_t inputs[2]; /* lines before it; its own number: none */
} line;

/* When what a line makes is there. */
typedef struct result {
    kb_time begun;
    pe_ready ready;
} result;

enum { MAX_OPS = 20000 };

typedef struct op_time {
    kb_time start, end;
    kb_unit unit;
} op_time;

typedef struct random_program {
    composite_rig r;
    op_time ops[MAX_OPS]; /* all that the log had */
    size_t op_count;
    line lines[LINES];
    result results[LINES];
    kb_time clocks[LINES];
    uint32_t window; /* lines between two synchronisations; 0: never */
} random_program;

static line random_line(kb_rng *rng, size_t number, bool composite, bool round)
{
    line l = {.kind = JOB, .gap = (1 + (kb_time)kb_rng_below(rng, 3)) * KB_NS};
    uint64_t what = kb_rng_below(rng, 16);
    if (what < 4)
        l.kind = what == 3 ? AWAIT : LOAD;
    else if (what == 5 && composite)
        l.kind = PRODUCT;
    for (size_t i = 0; i < 2; i++)
        l.inputs[i] = kb_rng_below(rng, 2) && number > 0
                          ? number - 1 - kb_rng_below(rng, number < 9 ? number : 9)
                          : number;
    l.offset = kb_rng_below(rng, 64) * 4096;
    l.bytes = round ? 4096 : 1 + kb_rng_below(rng, 8192);
    uint64_t unit = round ? 5120 : 1000;
    l.job = matrix((int64_t)kb_rng_below(rng, 5) * 10, (int64_t)kb_rng_below(rng, 3) * 10,
                   kb_rng_below(rng, 4) * unit, kb_rng_below(rng, 4) * unit);
    if (kb_rng_below(rng, 2)) {
        l.job.work.unit = KB_UNIT_MATH;
        l.job.work.tail = 0;
    }
    return l;
}

typedef struct page {
    random_program *p;
    size_t number;
} page;

static page pages[LINES];

static kb_error *on_begun(void *self, uint64_t arg)
{
    random_program *p = self;
    p->results[arg].begun = kb_sim_now(p->r.has.sim);
    return NULL;
}

static void on_ended(void *self, uint64_t arg)
{
    random_program *p = self;
    p->results[arg].ready.at = kb_sim_now(p->r.has.sim);
    pe_units_poll(p->r.has.units, pe0);
}

static void on_job_known(const pe_work *work, kb_time begin, pe_ready ready)
{
    const line *l = work->self;
    const page *at = &pages[l->offset];
    at->p->results[at->number] = (result){begin, ready};
}

static void issue_engine_line(random_program *p, size_t i)
{
    line *l = &p->lines[i];
    pe_cpu *cpu = pe_units_cpu(p->r.has.units, pe0);
    pe_work *work = &l->job.work;
    pe_cpu_await_room(cpu, work->unit);
    l->offset = i;
    work->known = on_job_known;
    work->name = "job";
    work->entry = &l->job.entry;
    work->issued = cpu->clock;
    work->self = l;
    for (size_t k = 0; k < 2; k++)
        if (l->inputs[k] != i)
            work->inputs[work->input_count++] = &p->results[l->inputs[k]].ready;
    pe_ready ready;
    pe_work *next = pe_cpu_next_work(cpu, work->unit);
    assert_non_null(next);
    *next = *work;
    if (pe_cpu_resolve(cpu, next, &ready))
        p->results[i] = (result){l->job.entry.start, ready};
    else
        pe_cpu_queue(cpu, next);
}

static void issue_dma_line(random_program *p, size_t i)
{
    const line *l = &p->lines[i];
    pe_cpu *cpu = pe_units_cpu(p->r.has.units, pe0);
    mem_rect rect = bytes_at(KB_HBM, 0, 0, 0, l->offset, l->bytes);
    pe_command command = {.unit = l->offset % 3 ? KB_UNIT_DMA_READ : KB_UNIT_DMA_WRITE,
                          .rects = &rect,
                          .rect_count = 1,
                          .begun = on_begun,
                          .ended = on_ended,
                          .self = p,
                          .arg = i,
                          .op.name = "move"};
    pe_cpu_await_room(cpu, command.unit);
    command.issued = cpu->clock;
    for (size_t k = 0; k < 2; k++)
        if (l->inputs[k] != i)
            command.inputs[k] = &p->results[l->inputs[k]].ready;
    pe_op op;
    expect_ok(pe_units_issue(p->r.has.units, pe0, &command, &op));
}

static void issue_product_line(random_program *p, size_t i)
{
    const line *l = &p->lines[i];
    plain_product product;
    plain_make(&product, 64, 128, 64, 2);
    product.is.issued = pe_units_cpu(p->r.has.units, pe0)->clock;
    product.is.begun = on_begun;
    product.is.ended = on_ended;
    product.is.self = p;
    product.is.arg = i;
    product.is.op.name = "product";
    if (l->inputs[0] != i)
        product.is.inputs[0] = &p->results[l->inputs[0]].ready;
    pe_op op;
    expect_ok(pe_composites_issue(p->r.composites, pe0, &product.is, &op));
}

static void run_lines(kb_co *co, void *arg)
{
    random_program *p = arg;
    pe_cpu *cpu = pe_units_cpu(p->r.has.units, pe0);
    pe_cpu_begin(cpu, co);
    for (size_t i = 0; i < LINES; i++) {
        const line *l = &p->lines[i];
        cpu->clock += l->gap;
        if ((p->window > 0 && i % p->window == 0) || cpu->shares_units || l->kind == PRODUCT)
            pe_cpu_synchronise(cpu); /* as kernels do */
        p->clocks[i] = cpu->clock;
        if (l->kind == JOB) {
            issue_engine_line(p, i);
        } else if (l->kind == LOAD) {
            issue_dma_line(p, i);
        } else if (l->kind == PRODUCT) {
            issue_product_line(p, i);
        } else {
            if (l->inputs[0] != i)
                pe_cpu_await_value(cpu, &p->results[l->inputs[0]].ready);
            p->results[i] = (result){cpu->clock, {.at = cpu->clock}};
        }
    }
    pe_cpu_synchronise(cpu);
    pe_cpu_end(cpu);
}

static void note_op(void *self, const kb_op *op)
{
    random_program *p = self;
    assert_true(p->op_count < MAX_OPS);
    p->ops[p->op_count++] = (op_time){op->start, op->end, op->unit};
}

static int compare_ops(const void *a, const void *b)
{
    const op_time *x = a, *y = b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return (int)x->unit - (int)y->unit;
}

static void run_random(random_program *p, uint64_t seed, uint32_t window)
{
    static const char *const depths[] = {"cube.pe_cpu.queue_depth=1", "cube.pe_cpu.queue_depth=2",
                                         "cube.pe_cpu.queue_depth=16"};
    kb_rng rng;
    kb_rng_init(&rng, test_seed(seed));
    memset(p, 0, sizeof *p);
    p->window = window;
    const char *depth = depths[kb_rng_below(&rng, 3)];
    bool composite = kb_rng_below(&rng, 2), round = kb_rng_below(&rng, 2);
    composite_rig_make(&p->r, machine_with(depth, NULL, NULL, NULL));
    for (size_t i = 0; i < LINES; i++) {
        p->lines[i] = random_line(&rng, i, composite, round);
        p->results[i] = (result){-1, unknown};
        pages[i] = (page){p, i};
    }
    kb_co_options options = {.name = "program", .source_id = KB_SOURCE_ID_MAX};
    kb_oplog_watch(p->r.has.log, note_op, p);
    kb_oplog_kernel_begin(p->r.has.log, 0, 0);
    expect_ok(kb_co_spawn(p->r.has.sim, &options, run_lines, p, NULL));
    expect_ok(kb_sim_run(p->r.has.sim, KB_FOREVER));
    kb_time end = pe_units_cpu(p->r.has.units, pe0)->engines_end; /* may be later than all events */
    if (end > kb_sim_now(p->r.has.sim))
        expect_ok(kb_sim_run(p->r.has.sim, end));
    kb_oplog_flush(p->r.has.log);
    qsort(p->ops, p->op_count, sizeof *p->ops, compare_ops);
}

static void expect_same_ops(const random_program *p, const random_program *q)
{
    for (size_t i = 0; i < p->op_count && i < q->op_count; i++) {
        const op_time *a = &p->ops[i], *b = &q->ops[i];
        if (compare_ops(a, b) != 0)
            print_message("operation %d: unit %d, %lld to %lld; then unit %d, %lld to %lld\n",
                          (int)i, (int)a->unit, (long long)a->start, (long long)a->end,
                          (int)b->unit, (long long)b->start, (long long)b->end);
        assert_int_equal(compare_ops(a, b), 0);
    }
    assert_int_equal(p->op_count, q->op_count);
}

static void expect_same_sums(random_program *p, random_program *q)
{
    kb_time_sum a[KB_CAUSES] = {0}, b[KB_CAUSES] = {0};
    for (int unit = 0; unit < KB_UNITS; unit++)
        assert_int_equal(kb_oplog_busy(p->r.has.log, 0, (kb_unit)unit),
                         kb_oplog_busy(q->r.has.log, 0, (kb_unit)unit));
    assert_int_equal(kb_sim_now(p->r.has.sim), kb_sim_now(q->r.has.sim));
    kb_oplog_kernel_end(p->r.has.log, 0, a);
    kb_oplog_kernel_end(q->r.has.log, 0, b);
    for (int cause = 0; cause < KB_CAUSES; cause++) {
        if (a[cause] != b[cause])
            print_message("cause %d: %lld, then %lld\n", cause, (long long)a[cause],
                          (long long)b[cause]);
        assert_true(a[cause] == b[cause]);
    }
}

/* The first run does not run ahead at all. */
static void times_do_not_depend_on_how_far_a_program_runs_ahead(void **state)
{
    (void)state;
    static const uint32_t windows[] = {2, 3, 33, 0};
    static random_program p, q;
    for (uint64_t seed = 0; seed < 200; seed++)
        for (size_t w = 0; w < 4; w++) {
            run_random(&p, seed, 1);
            run_random(&q, seed, windows[w]);
            expect_same_ops(&p, &q);
            for (size_t i = 0; i < LINES; i++) {
                if (p.results[i].begun != q.results[i].begun ||
                    p.results[i].ready.at != q.results[i].ready.at || p.clocks[i] != q.clocks[i])
                    print_message("seed %d, window %d, line %d of kind %d: %lld to %lld (clock "
                                  "%lld), then %lld to %lld (clock %lld)\n",
                                  (int)seed, (int)windows[w], (int)i, (int)p.lines[i].kind,
                                  (long long)p.results[i].begun, (long long)p.results[i].ready.at,
                                  (long long)p.clocks[i], (long long)q.results[i].begun,
                                  (long long)q.results[i].ready.at, (long long)q.clocks[i]);
                assert_int_equal(p.clocks[i], q.clocks[i]);
                assert_int_equal(p.results[i].begun, q.results[i].begun);
                assert_int_equal(p.results[i].ready.at, q.results[i].ready.at);
            }
            expect_same_sums(&p, &q);
            composite_rig_fini(&p.r);
            composite_rig_fini(&q.r);
        }
}

/* ---- Composite operations ---------------------------------------------------------------- */

typedef struct beside {
    composite_rig r;
    job jobs[3];
} beside;

static void run_beside(kb_co *co, void *arg)
{
    beside *b = arg;
    pe_cpu *cpu = pe_units_cpu(b->r.has.units, pe0);
    pe_cpu_begin(cpu, co);
    for (size_t i = 0; i < 3; i++) {
        cpu->clock += 4 * KB_NS;
        issue_job(&b->r.has, &b->jobs[i]);
    }
    pe_cpu_end(cpu);
}

/*
 * A product loads for more than 100 ns before its first tile. Meanwhile the program issues commands
 * at 4, 8 and 12 ns, each of 10 ns: the vector engine begins at 4 and 14, the matrix engine at 12.
 * As the product may use the engines, each is known when it begins, not before.
 */
static void commands_begin_in_events_beside_a_composite_operation(void **state)
{
    (void)state;
    beside b = {.jobs = {vector(10, 5120, 0), vector(10, 0, 0), matrix(10, 0, 0, 5120)}};
    composite_rig_make(&b.r, default_machine());
    plain_product p;
    plain_make(&p, 64, 128, 64, 2);
    size_t product = issue_product(&b.r, p.is);
    expect_ok(kb_co_spawn(b.r.has.sim, NULL, run_beside, &b, NULL));
    expect_ok(kb_sim_run(b.r.has.sim, KB_FOREVER));
    static const int64_t begins[] = {4, 14, 12};
    for (size_t i = 0; i < 3; i++) {
        expect_job(&b.jobs[i], begins[i], begins[i] + 10);
        assert_int_equal(b.jobs[i].issued, 4 * (kb_time)(i + 1) * KB_NS);
        assert_int_equal(b.jobs[i].known_at, begins[i] * KB_NS);
    }
    assert_true(b.r.has.diary[product].ended > 100 * KB_NS);
    composite_rig_fini(&b.r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_is_known_at_once),
        cmocka_unit_test(the_older_command_has_the_tcm_first),
        cmocka_unit_test(ports_serve_in_the_order_of_begins),
        cmocka_unit_test(a_queue_limits_how_far_the_clock_is_behind),
        cmocka_unit_test(queues_are_of_one_engine),
        cmocka_unit_test(a_program_waits_for_room_until_a_begin_is_known),
        cmocka_unit_test(a_younger_command_does_not_wait_for_an_unknown_input),
        cmocka_unit_test(an_input_that_is_known_in_time_counts),
        cmocka_unit_test(an_engine_keeps_its_order),
        cmocka_unit_test(products_that_need_each_other_drain_in_between),
        cmocka_unit_test(a_drain_counts_from_the_issue),
        cmocka_unit_test(a_drain_counts_if_the_next_product_waits_for_nothing_else),
        cmocka_unit_test(waiting_advances_the_clock),
        cmocka_unit_test(commands_begin_in_events_beside_a_composite_operation),
        cmocka_unit_test(times_do_not_depend_on_how_far_a_program_runs_ahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
