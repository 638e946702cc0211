/*
 * test_io.c: commands from the host to PEs and back: times by hand, and what holds on every machine
 * for every set of targets.
 */
#include "board.h"
#include "support/seed.h"

/* ---- By hand ----------------------------------------------------------------------------- */

enum { MAX_TARGETS = 4096 };

/* A command, what its targets do, and what came of it. */
typedef struct errand {
    board *b;
    kb_source source;
    kb_handler work;
    net_completion takes[MAX_TARGETS]; /* by target: parts of its work */
    kb_error *fails[MAX_TARGETS];
    uint64_t tickets[MAX_TARGETS];
    kb_time arrived[MAX_TARGETS];
    uint32_t arrivals[MAX_TARGETS];
    size_t order[MAX_TARGETS]; /* of arrival */
    size_t arrival_count;
    net_completion completion;
    kb_error *err;
    int done;
} errand;

static void on_work(kb_sim *sim, void *self, uint64_t target)
{
    (void)sim;
    errand *e = self;
    io_finish(e->b->control, e->tickets[target], &e->takes[target], e->fails[target]);
}

static void on_arrive(void *self, uint64_t ticket, size_t target)
{
    errand *e = self;
    e->arrivals[target]++;
    e->arrived[target] = kb_sim_now(e->b->sim);
    e->order[e->arrival_count++] = target;
    e->tickets[target] = ticket;
    kb_time takes = sum_of(&e->takes[target]);
    if (takes > 0)
        (void)kb_sim_after(e->b->sim, &e->source, takes, e->work, target);
    else
        io_finish(e->b->control, ticket, NULL, e->fails[target]);
}

static void on_done(void *self, uint64_t arg, const net_completion *completion, kb_error *err)
{
    errand *e = self;
    assert_int_equal(arg, 77);
    assert_int_equal(completion->ended, kb_sim_now(e->b->sim));
    e->completion = *completion;
    e->err = err;
    e->done++;
}

static errand *errand_new(board *b)
{
    errand *e = calloc(1, sizeof *e);
    assert_non_null(e);
    e->b = b;
    e->source = kb_source_make(KB_SOURCE_ID_MAX);
    expect_ok(kb_sim_add_handler(b->sim, on_work, e, &e->work));
    return e;
}

static void submit(errand *e, uint32_t sip, const io_target *targets, size_t count, uint64_t common)
{
    expect_ok(io_submit(e->b->control, &(io_command){.sip = sip,
                                                     .targets = targets,
                                                     .target_count = count,
                                                     .cube_bytes = common,
                                                     .arrive = on_arrive,
                                                     .done = on_done,
                                                     .self = e,
                                                     .arg = 77}));
}

static void expect_parts(const net_completion *r, kb_time overhead, kb_time wire, kb_time drain,
                         kb_time queueing)
{
    assert_int_equal(r->overhead, overhead);
    assert_int_equal(r->wire, wire);
    assert_int_equal(r->drain, drain);
    assert_int_equal(r->queueing, queueing);
    assert_int_equal(sum_of(r), r->ended - r->issued);
}

/*
 * One PE at the only router. The command is 16 bytes of header, 32 for the cube, and 16 for the PE:
 * 64, and 32 on the last arrow. In ns, with the source's overhead only where something is made:
 *
 *                                                      overhead            wire       drain
 *   host, switch, pcie_ep, io_noc, io_cpu       0 + 5 + 50 + 1 + 300    1 + 1 + .05 + .05  64 / 64
 *   io_cpu, io_noc, ucie, ucie, router, m_cpu   1 + 8 + 8 + 1 + 200     3 * .05     64 / 256
 *   m_cpu, router, pe                           1 + 5                               32 / 256
 *   pe, router, m_cpu                           5 + 1 + 200                         16 / 256
 *   m_cpu, router, ucie, ucie, io_noc, io_cpu   1 + 8 + 8 + 1 + 300     3 * .05     16 / 256
 *   io_cpu, io_noc, pcie_ep, switch, host       1 + 50 + 5 + 0          2.1         16 / 64
 *
 * which is 1160 + 4.5 + 1.75 ns. The PE has it after the first three: 580 + 2.25 + 1.375 ns.
 */
static void a_command_to_one_pe(void **state)
{
    (void)state;
    for (int works = 0; works < 2; works++) {
        board b = board_make(one_router(1), false);
        errand *e = errand_new(&b);
        if (works)
            e->takes[0] = (net_completion){
                .overhead = 7 * KB_NS, .wire = 5 * KB_NS, .drain = 3 * KB_NS, .queueing = KB_NS};
        expect_ok(kb_sim_run(b.sim, 9 * KB_NS));
        submit(e, 0, (io_target[]){{.bytes = 16}}, 1, 32);
        expect_ok(kb_sim_run(b.sim, KB_FOREVER));
        assert_int_equal(e->done, 1);
        assert_null(e->err);
        assert_int_equal(e->arrived[0], 592625 * KB_PS);
        assert_int_equal(e->completion.issued, 9 * KB_NS);
        expect_parts(&e->completion, (1160 + 7 * works) * KB_NS, (4500 + 5000 * works) * KB_PS,
                     (1750 + 3000 * works) * KB_PS, works * KB_NS);
        free(e);
        board_fini(&b);
    }
}

/*
 * A recorded command of one PE begins with a trigger of the io_cpu and ends with its count, and all
 * messages have 16 bytes, which take .0625 ns at 256 GB/s:
 *
 *   trigger; io_cpu, io_noc, ucie, ucie, router, m_cpu   20; 1 + 8 + 8 + 1 + 20     .15
 *   m_cpu, router, pe                                    1 + 5
 *   pe, router, m_cpu                                    5 + 1 + 20
 *   m_cpu, router, ucie, ucie, io_noc, io_cpu            1 + 8 + 8 + 1 + 20         .15
 *
 * which is 128 + .3 + .25 ns. The PE has it after 64 + .15 + .125.
 */
static void a_recorded_command(void **state)
{
    (void)state;
    board b = board_make(one_router(1), false);
    errand *e = errand_new(&b);
    io_target target = {0};
    expect_ok(io_submit(b.control, &(io_command){.targets = &target,
                                                 .target_count = 1,
                                                 .recorded = true,
                                                 .arrive = on_arrive,
                                                 .done = on_done,
                                                 .self = e,
                                                 .arg = 77}));
    expect_ok(kb_sim_run(b.sim, KB_FOREVER));
    assert_int_equal(e->done, 1);
    assert_int_equal(e->arrived[0], 64275 * KB_PS);
    expect_parts(&e->completion, 128 * KB_NS, 300 * KB_PS, 250 * KB_PS, 0);
    free(e);
    board_fini(&b);
}

/* A command that is held: where it is, since when, and what came of it. */
typedef struct gate {
    errand *e;
    bool cancel, at_cube;
    uint64_t ticket;
    kb_time held, joined, cube_joined;
} gate;

static void on_gate_done(void *self, uint64_t arg, const net_completion *completion, kb_error *err)
{
    gate *g = self;
    on_done(g->e, arg, completion, err);
}

static void on_gate_arrive(void *self, uint64_t ticket, size_t target)
{
    gate *g = self;
    on_arrive(g->e, ticket, target);
}

static void open_gate(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim, (void)arg;
    gate *g = self;
    io *control = g->e->b->control;
    if (g->cancel)
        io_cancel(control, g->ticket, kb_error_new(KB_ERR_FAULT, "not to be"));
    else if (g->at_cube)
        io_release_cube(control, g->ticket);
    else
        io_release(control, g->ticket);
}

/* It is opened 1000 ns later. */
static void hold(gate *g, uint64_t ticket)
{
    kb_handler handler;
    g->ticket = ticket;
    g->held = kb_sim_now(g->e->b->sim);
    expect_ok(kb_sim_add_handler(g->e->b->sim, open_gate, g, &handler));
    (void)kb_sim_after(g->e->b->sim, &g->e->source, 1000 * KB_NS, handler, 0);
}

static void on_held(void *self, uint64_t arg, uint64_t ticket)
{
    assert_int_equal(arg, 77);
    hold(self, ticket);
}

static void on_cube_held(void *self, uint64_t arg, uint32_t cube, uint64_t ticket)
{
    assert_int_equal(arg, 77);
    assert_int_equal(cube, 0);
    hold(self, ticket);
}

static void on_joined(void *self, uint64_t arg, const kb_error *err)
{
    gate *g = self;
    assert_int_equal(arg, 77);
    assert_int_equal(err != NULL, g->cancel);
    g->joined = kb_sim_now(g->e->b->sim);
}

static void on_cube_joined(void *self, uint64_t arg, uint32_t cube)
{
    gate *g = self;
    assert_int_equal(arg, 77);
    assert_int_equal(cube, 0);
    g->cube_joined = kb_sim_now(g->e->b->sim);
}

/*
 * The command of a_command_to_one_pe(), held for 1000 ns, which count as queueing: at the io_cpu it
 * is after 356 + 2.1 + 1 ns, at the m_cpu after 218 + .15 + .25 ns more. Completions are joined at
 * the m_cpu 206 + 6 + .0625 + .125 ns after that, and at the io_cpu after 318 + .15 + .0625 more.
 * If it is cancelled, its completion goes back from the io_cpu: 56 + 2.1 + .25 ns.
 */
static void a_command_is_held(void **state)
{
    (void)state;
    enum { AT_IO_CPU, AT_CUBE, CANCELLED, CASES };
    for (int how = 0; how < CASES; how++) {
        board b = board_make(one_router(1), false);
        gate g = {.e = errand_new(&b), .cancel = how == CANCELLED, .at_cube = how == AT_CUBE};
        io_target target = {.bytes = 16};
        expect_ok(
            io_submit(b.control, &(io_command){.targets = &target,
                                               .target_count = 1,
                                               .cube_bytes = 32,
                                               .arrive = on_gate_arrive,
                                               .done = on_gate_done,
                                               .held = how == AT_CUBE ? NULL : on_held,
                                               .cube_held = how == AT_CUBE ? on_cube_held : NULL,
                                               .joined = on_joined,
                                               .cube_joined = on_cube_joined,
                                               .self = &g,
                                               .arg = 77}));
        expect_ok(kb_sim_run(b.sim, KB_FOREVER));
        assert_int_equal(g.e->done, 1);
        assert_int_equal(g.held, (how == AT_CUBE ? 577500 : 359100) * KB_PS);
        if (how == CANCELLED) {
            assert_int_equal(g.joined, 1359100 * KB_PS);
            expect_parts(&g.e->completion, 412 * KB_NS, 4200 * KB_PS, 1250 * KB_PS, 1000 * KB_NS);
            expect_error(g.e->err, KB_ERR_FAULT, "not to be");
            assert_int_equal(g.e->arrival_count, 0);
        } else {
            assert_int_equal(g.cube_joined, 1789687500 * KB_PS / 1000);
            assert_int_equal(g.joined, 2107900 * KB_PS);
            expect_parts(&g.e->completion, 1160 * KB_NS, 4500 * KB_PS, 1750 * KB_PS, 1000 * KB_NS);
            assert_null(g.e->err);
        }
        free(g.e);
        board_fini(&b);
    }
}

typedef struct channels_seen {
    const errand *e;
    uint32_t per_link, vcs;
    int requests, replies;
} channels_seen;

/* Of four classes the first two are of requests. Behind the last link there is no channel. */
static void on_booking(void *self, const net_booking *booking)
{
    channels_seen *seen = self;
    if (booking->channel == UINT32_MAX)
        return;
    bool reply = booking->channel % seen->per_link / seen->vcs >= 2;
    assert_int_equal(reply, seen->e->arrivals[0] > 0);
    seen->requests += !reply;
    seen->replies += reply;
}

/* The command passes 4 + 5 + 2 links, and its completions as many: each without its last one. */
static void completions_travel_as_replies(void **state)
{
    (void)state;
    board b = board_make(one_router(1), false);
    errand *e = errand_new(&b);
    channels_seen seen = {.e = e,
                          .per_link = net_channels_per_link(b.fabric),
                          .vcs = topo_machine_shape(b.machine)->fabric.vcs};
    assert_int_equal(seen.per_link, 4 * seen.vcs);
    net_watch(b.fabric, on_booking, &seen);
    submit(e, 0, (io_target[]){{.bytes = 16}}, 1, 32);
    expect_ok(kb_sim_run(b.sim, KB_FOREVER));
    assert_int_equal(seen.requests, 3 + 4 + 1);
    assert_int_equal(seen.replies, 3 + 4 + 1);
    free(e);
    board_fini(&b);
}

/*
 * Two PEs at the only router, with 240 and 496 bytes of their own. Towards them the M CPU's link
 * carries 256 bytes for the first, 1 ns, and then 512 for the second, 2 ns.
 *
 * To the IO CPU 16 + 240 + 496 = 752 bytes: 356 + 2.1 + 11.75 ns. To the M CPU 752 bytes:
 * 218 + .15 + 2.9375. So the M CPU has it at 590.9375, PE 0 at 597.9375 (6 + 1), and PE 1 at
 * 599.9375, having waited for 1 ns. If both answer at once the second one's completion is the last:
 * 206.0625, then 318.2125 and 58.35 for the way back to the host: 1182.5625 ns in all, of which
 * 1160 are overhead, 4.5 wire, 1 queueing and the rest drain.
 *
 * If PE 0 works for 2 ns its completion meets that of PE 1 at the same instant on different links
 * to the router, and on the same link to the M CPU: one waits for 62.5 ps. That of PE 0 has the
 * lower link and goes first, so the other one's chain is the last.
 *
 * If PE 0 works for 10 ns, it is the last: 597.9375 + 10 + 582.625 = 1190.5625.
 */
static void a_join_waits_for_the_slowest(void **state)
{
    (void)state;
    static const struct {
        kb_time work_ns, ended_ps, queueing_ps;
        bool first_is_last;
    } cases[] = {{0, 1182562, 1000, false}, {2, 1182625, 1062, false}, {10, 1190562, 0, true}};
    static const kb_time half_ps = 500; /* of all these times */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        board b = board_make(one_router(2), false);
        errand *e = errand_new(&b);
        e->takes[0].drain = cases[i].work_ns * KB_NS;
        submit(e, 0, (io_target[]){{.pe = 0, .bytes = 240}, {.pe = 1, .bytes = 496}}, 2, 0);
        expect_ok(kb_sim_run(b.sim, KB_FOREVER));
        assert_int_equal(e->done, 1);
        assert_int_equal(e->arrived[0], 597937 * KB_PS + half_ps);
        assert_int_equal(e->arrived[1], 599937 * KB_PS + half_ps);
        kb_time ended = cases[i].ended_ps * KB_PS + (i == 1 ? 0 : half_ps);
        kb_time queueing = cases[i].queueing_ps * KB_PS + (i == 1 ? half_ps : 0);
        assert_int_equal(e->completion.ended, ended);
        expect_parts(&e->completion, 1160 * KB_NS, 4500 * KB_PS, ended - 1164500 * KB_PS - queueing,
                     queueing);
        free(e);
        board_fini(&b);
    }
}

/* The first to fail in time is the one that is told of, also if it is not the first target. */
static void the_first_error_wins(void **state)
{
    (void)state;
    board b = board_make(one_router(3), false);
    errand *e = errand_new(&b);
    e->takes[0].drain = 90 * KB_NS;
    e->takes[1].drain = 20 * KB_NS;
    e->fails[0] = kb_error_new(KB_ERR_FAULT, "late");
    e->fails[1] = kb_error_new(KB_ERR_FAULT, "early");
    submit(e, 0, (io_target[]){{.pe = 0}, {.pe = 1}, {.pe = 2}}, 3, 0);
    expect_ok(kb_sim_run(b.sim, KB_FOREVER));
    assert_int_equal(e->done, 1);
    expect_error(e->err, KB_ERR_FAULT, "early");
    free(e);

    /*
     * At one instant the order of events counts. 16 bytes take 62.5 ps to each PE, so PE 2 has the
     * command that much later than PE 1, and both are done at once; PE 1 said so first.
     */
    e = errand_new(&b);
    e->takes[1].drain = KB_NS + 62500;
    e->takes[2].drain = KB_NS;
    e->fails[1] = kb_error_new(KB_ERR_FAULT, "second");
    e->fails[2] = kb_error_new(KB_ERR_FAULT, "third");
    submit(e, 0, (io_target[]){{.pe = 0}, {.pe = 1}, {.pe = 2}}, 3, 0);
    expect_ok(kb_sim_run(b.sim, KB_FOREVER));
    assert_int_equal(e->arrived[2] - e->arrived[1], 62500);
    expect_error(e->err, KB_ERR_FAULT, "second");
    free(e);
    board_fini(&b);
}

/* ---- By chance --------------------------------------------------------------------------- */

/* A set of targets in order, at least one. */
static size_t draw_targets(kb_rng *rng, const topo_shape *shape, io_target *targets)
{
    uint64_t often = 1 + kb_rng_below(rng, 6);
    size_t count = 0;
    for (uint32_t cube = 0; cube < shape->cubes; cube++)
        for (uint32_t pe = 0; pe < shape->pes && count < MAX_TARGETS; pe++)
            if (kb_rng_below(rng, often) == 0)
                targets[count++] =
                    (io_target){.cube = cube, .pe = pe, .bytes = kb_rng_below(rng, 700)};
    if (count == 0)
        targets[count++] = (io_target){.cube = between(rng, 0, shape->cubes - 1),
                                       .pe = between(rng, 0, shape->pes - 1),
                                       .bytes = kb_rng_below(rng, 700)};
    return count;
}

static net_completion draw_work(kb_rng *rng)
{
    if (kb_rng_below(rng, 3) == 0)
        return (net_completion){0};
    kb_time most = kb_rng_below(rng, 2) ? KB_NS : KB_US;
    return (net_completion){.overhead = (kb_time)kb_rng_below(rng, (uint64_t)most),
                            .wire = (kb_time)kb_rng_below(rng, (uint64_t)most),
                            .drain = (kb_time)kb_rng_below(rng, (uint64_t)most),
                            .queueing = (kb_time)kb_rng_below(rng, (uint64_t)most)};
}

/* What the fabric should have carried, and how long it takes at least. */
typedef struct plan {
    const board *b;
    net_route_buffer routes;
    uint64_t *bytes; /* by link */
} plan;

/* The way of one arrow, alone in the machine. */
static kb_time arrow(plan *p, uint32_t from, uint32_t to, uint64_t bytes, bool made, bool counts)
{
    net_order order = net_make_order(&p->routes, from, to, bytes, false);
    for (uint32_t i = 0; i < order.request.count && counts; i++)
        p->bytes[topo_step_link(order.request.steps[i])] += bytes;
    const topo_node *nodes = topo_machine_graph(p->b->machine)->nodes.items;
    kb_time decoding = topo_is_control(&nodes[to]) ? nodes[to].overhead_fs : 0;
    kb_time takes = net_predict(p->b->fabric, &order).ended + decoding;
    return takes - (made ? 0 : topo_source_overhead(topo_machine_graph(p->b->machine), from));
}

static uint64_t bytes_of_cube(const io_target *targets, size_t count, uint32_t cube)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += cube == TOPO_NONE || targets[i].cube == cube ? targets[i].bytes : 0;
    return bytes;
}

/* The least time of the whole command, counting all that is carried. Fills in when each arrives. */
static kb_time plan_command(plan *p, uint32_t sip, const io_target *targets, size_t count,
                            uint64_t common, const net_completion *works, kb_time *arrives)
{
    const topo_machine *m = p->b->machine;
    uint32_t host = topo_node_at(m, TOPO_HOST, 0, 0, 0);
    uint32_t io_cpu = topo_node_at(m, TOPO_IO_CPU, sip, 0, 0);
    uint64_t each = IO_HEADER_BYTES + common;
    kb_time down =
        arrow(p, host, io_cpu, each + bytes_of_cube(targets, count, TOPO_NONE), true, true);
    kb_time most = 0;
    for (size_t i = 0; i < count; i++) {
        uint32_t cube = targets[i].cube;
        bool first = i == 0 || targets[i - 1].cube != cube;
        uint32_t m_cpu = topo_node_at(m, TOPO_M_CPU, sip, cube, 0);
        uint32_t pe = topo_node_at(m, TOPO_PE_DMA, sip, cube, targets[i].pe);
        kb_time time = down;
        time += arrow(p, io_cpu, m_cpu, each + bytes_of_cube(targets, count, cube), false, first);
        time += arrow(p, m_cpu, pe, IO_HEADER_BYTES + targets[i].bytes, false, true);
        arrives[i] = time;
        time += sum_of(&works[i]);
        time += arrow(p, pe, m_cpu, IO_COMPLETION_BYTES, true, true);
        time += arrow(p, m_cpu, io_cpu, IO_COMPLETION_BYTES, false, first);
        most = time > most ? time : most;
    }
    return most + arrow(p, io_cpu, host, IO_COMPLETION_BYTES, false, true);
}

static topo_machine *random_machine(kb_rng *rng)
{
    for (;;) {
        char *text = random_description(rng);
        topo_machine *machine = machine_of(text);
        free(text);
        if (topo_machine_shape(machine)->pe_count <= 1000)
            return machine;
        topo_machine_destroy(machine);
    }
}

static void one_command_at_random(kb_rng *rng)
{
    board b = board_make(random_machine(rng), false);
    const topo_graph *graph = topo_machine_graph(b.machine);
    const topo_shape *shape = topo_machine_shape(b.machine);
    errand *e = errand_new(&b);
    io_target *targets = calloc(MAX_TARGETS, sizeof *targets);
    kb_time *arrives = calloc(MAX_TARGETS, sizeof *arrives);
    plan p = {.b = &b, .bytes = calloc(graph->links.count, sizeof *p.bytes)};
    assert_true(targets && arrives && p.bytes);
    expect_ok(net_route_buffer_init(&p.routes, b.machine));

    size_t count = draw_targets(rng, shape, targets);
    uint32_t sip = between(rng, 0, shape->sips - 1);
    uint64_t common = kb_rng_below(rng, 3000);
    for (size_t i = 0; i < count; i++)
        e->takes[i] = draw_work(rng);
    kb_time least = plan_command(&p, sip, targets, count, common, e->takes, arrives);
    submit(e, sip, targets, count, common);
    expect_ok(kb_sim_run(b.sim, KB_FOREVER));

    assert_int_equal(e->done, 1);
    assert_int_equal(e->arrival_count, count);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(e->arrivals[i], 1);
        assert_true(e->arrived[i] >= arrives[i]);
        if (count == 1)
            assert_int_equal(e->arrived[i], arrives[i]);
    }
    assert_true(e->completion.ended >= least);
    assert_int_equal(sum_of(&e->completion), e->completion.ended);
    assert_true(e->completion.queueing >= 0);
    if (count == 1) {
        assert_int_equal(e->completion.ended, least);
        assert_int_equal(e->completion.queueing, e->takes[0].queueing);
    }
    for (uint32_t at = 0; at < graph->links.count; at++)
        assert_int_equal(net_link_get(b.fabric, at).bytes, p.bytes[at]);
    net_route_buffer_fini(&p.routes);
    free(p.bytes);
    free(arrives);
    free(targets);
    free(e);
    board_fini(&b);
}

static void a_command_keeps_to_the_plan_on_any_machine(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(1));
    for (int round = 0; round < 60; round++)
        one_command_at_random(&rng);
}

/* ---- Many at once ------------------------------------------------------------------------ */

enum { MAX_COMMANDS = 400 };

/* What happened, for comparing runs. */
typedef struct happening {
    kb_time at;
    uint64_t what; /* command << 32 | target, or command << 32 | UINT32_MAX when it is done */
    net_completion completion;
} happening;

typedef struct crowd crowd;

typedef struct order_of_crowd {
    crowd *c;
    io_target *targets;
    size_t count, arrivals;
    uint32_t sip, number;
    uint64_t common;
    uint32_t follower; /* a command submitted when this one is done, or 0 */
    uint32_t nested;   /* and one when its first target has it, or 0 */
    bool fails;
    bool done;
} order_of_crowd;

typedef struct worker_of_crowd {
    order_of_crowd *o;
    uint64_t ticket;
    net_completion takes;
    size_t target;
} worker_of_crowd;

struct crowd {
    board b;
    kb_rng rng;
    kb_source source;
    kb_handler work;
    order_of_crowd orders[MAX_COMMANDS + 1];
    KB_VEC(worker_of_crowd) workers;
    KB_VEC(happening) log;
    uint32_t done;
};

static void start(crowd *c, uint32_t number);

static kb_error *outcome_of(const order_of_crowd *o, size_t target)
{
    if (!o->fails || target % 3 != 1)
        return NULL;
    return kb_error_new(KB_ERR_FAULT, "target %zu of command %u", target, o->number);
}

static void on_crowd_work(kb_sim *sim, void *self, uint64_t arg)
{
    (void)sim;
    crowd *c = self;
    worker_of_crowd w = c->workers.items[arg];
    io_finish(c->b.control, w.ticket, &w.takes, outcome_of(w.o, w.target));
}

static void on_crowd_arrive(void *self, uint64_t ticket, size_t target)
{
    order_of_crowd *o = self;
    crowd *c = o->c;
    happening h = {.at = kb_sim_now(c->b.sim), .what = (uint64_t)o->number << 32 | target};
    assert_true(kb_vec_push(&c->log, h));
    assert_false(o->done);
    if (o->arrivals++ == 0 && o->nested)
        start(c, o->nested);
    net_completion takes = draw_work(&c->rng);
    if (sum_of(&takes) == 0) {
        io_finish(c->b.control, ticket, NULL, outcome_of(o, target));
        return;
    }
    worker_of_crowd w = {.o = o, .ticket = ticket, .takes = takes, .target = target};
    assert_true(kb_vec_push(&c->workers, w));
    (void)kb_sim_after(c->b.sim, &c->source, sum_of(&takes), c->work, c->workers.count - 1);
}

static void on_crowd_done(void *self, uint64_t arg, const net_completion *completion, kb_error *err)
{
    order_of_crowd *o = self;
    crowd *c = o->c;
    assert_int_equal(arg, o->number);
    assert_int_equal(sum_of(completion), completion->ended - completion->issued);
    assert_int_equal(completion->ended, kb_sim_now(c->b.sim));
    assert_int_equal(o->arrivals, o->count);
    assert_false(o->done);
    o->done = true;
    bool should_fail = o->fails && o->count > 1;
    assert_int_equal(kb_error_code(err), should_fail ? KB_ERR_FAULT : KB_OK);
    kb_error_free(err);
    happening h = {.at = completion->ended,
                   .what = (uint64_t)o->number << 32 | UINT32_MAX,
                   .completion = *completion};
    assert_true(kb_vec_push(&c->log, h));
    c->done++;
    if (o->follower)
        start(c, o->follower);
}

static void start(crowd *c, uint32_t number)
{
    order_of_crowd *o = &c->orders[number];
    expect_ok(io_submit(c->b.control, &(io_command){.sip = o->sip,
                                                    .targets = o->targets,
                                                    .target_count = o->count,
                                                    .cube_bytes = o->common,
                                                    .arrive = on_crowd_arrive,
                                                    .done = on_crowd_done,
                                                    .self = o,
                                                    .arg = number}));
    /* They are copied. */
    memset(o->targets, 0xff, o->count * sizeof *o->targets);
}

/* Commands 1 .. count; a third each at the start, after others, and from inside others. */
static crowd *crowd_run(topo_machine *machine, uint32_t count, uint64_t seed, bool no_elision)
{
    crowd *c = calloc(1, sizeof *c);
    assert_non_null(c);
    c->b = board_make(machine, no_elision);
    kb_rng_init(&c->rng, test_seed(seed));
    c->source = kb_source_make(KB_SOURCE_ID_MAX);
    expect_ok(kb_sim_add_handler(c->b.sim, on_crowd_work, c, &c->work));
    const topo_shape *shape = topo_machine_shape(machine);
    for (uint32_t i = 1; i <= count; i++) {
        order_of_crowd *o = &c->orders[i];
        *o = (order_of_crowd){.c = c, .number = i, .fails = kb_rng_below(&c->rng, 4) == 0};
        o->targets = calloc(MAX_TARGETS, sizeof *o->targets);
        assert_non_null(o->targets);
        o->count = draw_targets(&c->rng, shape, o->targets);
        o->sip = between(&c->rng, 0, shape->sips - 1);
        o->common = kb_rng_below(&c->rng, 500);
        if (i % 3 == 1 && i + 2 <= count) {
            o->follower = i + 1;
            o->nested = i + 2;
        }
    }
    for (uint32_t i = 1; i <= count; i++)
        if (i % 3 == 1 || (i - 1) / 3 * 3 + 3 > count)
            start(c, i);
    expect_ok(kb_sim_run(c->b.sim, KB_FOREVER));
    assert_int_equal(c->done, count);
    assert_int_equal(net_get_stats(c->b.fabric).live, 0);
    return c;
}

static void crowd_free(crowd *c)
{
    for (uint32_t i = 1; i <= MAX_COMMANDS; i++)
        free(c->orders[i].targets);
    kb_vec_fini(&c->workers);
    kb_vec_fini(&c->log);
    board_fini(&c->b);
    free(c);
}

static void expect_equal_logs(const crowd *a, const crowd *b)
{
    assert_int_equal(a->log.count, b->log.count);
    for (size_t i = 0; i < a->log.count; i++)
        assert_memory_equal(&a->log.items[i], &b->log.items[i], sizeof a->log.items[i]);
}

static void elision_makes_no_difference(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(2));
    for (uint64_t round = 0; round < 12; round++) {
        char *text = random_description(&rng);
        crowd *a = crowd_run(machine_of(text), 20, round, false);
        crowd *b = crowd_run(machine_of(text), 20, round, true);
        crowd *again = crowd_run(machine_of(text), 20, round, false);
        expect_equal_logs(a, b);
        expect_equal_logs(a, again);
        crowd_free(a);
        crowd_free(b);
        crowd_free(again);
        free(text);
    }
}

static void many_commands_at_once(void **state)
{
    (void)state;
    crowd_free(crowd_run(default_machine(), 120, 3, false));
    crowd_free(crowd_run(one_router(1), MAX_COMMANDS, 4, false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_command_to_one_pe),
        cmocka_unit_test(a_recorded_command),
        cmocka_unit_test(a_command_is_held),
        cmocka_unit_test(completions_travel_as_replies),
        cmocka_unit_test(a_join_waits_for_the_slowest),
        cmocka_unit_test(the_first_error_wins),
        cmocka_unit_test(a_command_keeps_to_the_plan_on_any_machine),
        cmocka_unit_test(elision_makes_no_difference),
        cmocka_unit_test(many_commands_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
