/*
 * validate_forms.c: the model beside closed forms: uncontended transfers, on the default
 * machine and on a mesh, and queues at one link.
 */
#include "validate_private.h"

#include <math.h>
#include <stdio.h>

#include "net/net.h"

static kb_error *add_form(validation *v, validate_form form)
{
    double off = form.ours - form.expected;
    form.inside = form.inside && off <= form.tolerance && off >= -form.tolerance;
    v->report->judged++;
    v->report->inside += form.inside;
    return kb_vec_push(&v->report->forms, form) ? NULL : kb_error_nomem();
}

/* ---- A machine with nothing else going on ------------------------------------------------ */

typedef struct quiet {
    const topo_machine *machine;
    kb_sim *sim;
    net *fabric;
    net_route_buffer routes;
    kb_time took; /* what the last transfer did */
} quiet;

static kb_error *quiet_init(quiet *q, const topo_machine *machine)
{
    *q = (quiet){.machine = machine};
    KB_TRY(kb_sim_create(NULL, &q->sim));
    KB_TRY(net_create_for(q->sim, machine, 0, false, &q->fabric));
    return net_route_buffer_init(&q->routes, machine);
}

static void quiet_fini(quiet *q)
{
    if (q->sim)
        kb_sim_abandon(q->sim);
    net_route_buffer_fini(&q->routes);
    net_destroy(q->fabric);
    kb_sim_destroy(q->sim);
}

static void on_done(void *self, uint64_t arg, const net_completion *completion)
{
    (void)arg;
    quiet *q = self;
    q->took = completion->ended - completion->issued;
}

static kb_error *run_alone(quiet *q, uint32_t from, uint32_t to, uint64_t bytes, bool read)
{
    net_order order = net_make_order(&q->routes, from, to, bytes, read);
    order.plain = true;
    order.done = on_done;
    order.self = q;
    KB_TRY(net_submit(q->fabric, &order));
    return kb_sim_run(q->sim, KB_FOREVER);
}

/* Overhead of the nodes, wire of the links, and the bytes at the narrowest link. */
static kb_time message_time(const topo_graph *graph, uint32_t from, const net_message *message)
{
    kb_time time = topo_source_overhead(graph, from);
    uint64_t narrowest = TOPO_RATE_MAX;
    for (uint32_t i = 0; i < message->count; i++) {
        uint32_t link = topo_step_link(message->steps[i]);
        time += topo_link_overhead(graph, link) + graph->links.items[link].wire_fs;
        if (topo_link_rate(graph, link) < narrowest)
            narrowest = topo_link_rate(graph, link);
    }
    return time + topo_rate_time(narrowest, message->bytes);
}

static kb_time should_take(quiet *q, uint32_t from, uint32_t to, uint64_t bytes, bool read)
{
    const topo_graph *graph = topo_machine_graph(q->machine);
    net_order order = net_make_order(&q->routes, from, to, bytes, read);
    kb_time time = message_time(graph, from, &order.request);
    return read ? time + message_time(graph, to, &order.response) : time;
}

/* ---- Lone transfers ---------------------------------------------------------------------- */

typedef struct end {
    topo_kind kind;
    uint32_t sip, cube, index; /* LAST: the last one that the machine has */
} end;

typedef struct path {
    const char *name;
    bool read;
    end from, to;
} path;

#define LAST UINT32_MAX

static const path paths[] = {
    {"host to the nearest cube", false, {TOPO_HOST, 0, 0, 0}, {TOPO_HBM_CTRL, 0, 0, 0}},
    {"host to the farthest cube", false, {TOPO_HOST, 0, 0, 0}, {TOPO_HBM_CTRL, LAST, LAST, LAST}},
    {"host reads the nearest cube", true, {TOPO_HOST, 0, 0, 0}, {TOPO_HBM_CTRL, 0, 0, 0}},
    {"host reads the farthest", true, {TOPO_HOST, 0, 0, 0}, {TOPO_HBM_CTRL, LAST, LAST, LAST}},
    {"PE to its own slice", false, {TOPO_PE_DMA, 0, 0, 0}, {TOPO_HBM_CTRL, 0, 0, 0}},
    {"PE reads its own slice", true, {TOPO_PE_DMA, 0, 0, 0}, {TOPO_HBM_CTRL, 0, 0, 0}},
    {"PE to another slice", false, {TOPO_PE_DMA, 0, 0, 0}, {TOPO_HBM_CTRL, 0, 0, LAST}},
    {"PE to SRAM", false, {TOPO_PE_DMA, 0, 0, 0}, {TOPO_SRAM, 0, 0, 0}},
    {"PE to the next cube", false, {TOPO_PE_DMA, 0, 0, 0}, {TOPO_HBM_CTRL, 0, 1, 0}},
    {"PE to the farthest cube", false, {TOPO_PE_DMA, 0, 0, 0}, {TOPO_HBM_CTRL, 0, LAST, LAST}},
    {"PE reads the farthest cube", true, {TOPO_PE_DMA, 0, 0, 0}, {TOPO_HBM_CTRL, 0, LAST, LAST}},
    {"PE to another SIP", false, {TOPO_PE_DMA, 0, 0, 0}, {TOPO_HBM_CTRL, LAST, LAST, LAST}},
    {"PE to a PE of the next cube", false, {TOPO_PE_DMA, 0, 0, 0}, {TOPO_PE_DMA, 0, 1, 0}},
};
enum { path_count = sizeof paths / sizeof paths[0] };

static const uint64_t lone_sizes[] = {1, 100, 65537, 4096}; /* the last one is shown */
enum { lone_size_count = sizeof lone_sizes / sizeof lone_sizes[0] };

static const char *const packet_settings[] = {"fabric.packet_bytes=64", "fabric.packet_bytes=1000",
                                              "fabric.packet_bytes=256"};
enum { packet_setting_count = sizeof packet_settings / sizeof packet_settings[0] };

static uint32_t node_of(const topo_machine *machine, end e)
{
    const topo_shape *shape = topo_machine_shape(machine);
    uint32_t sip = e.sip == LAST ? shape->sips - 1 : e.sip;
    uint32_t cube = e.cube == LAST ? shape->cubes - 1 : e.cube;
    uint32_t index = e.index == LAST ? shape->pes - 1 : e.index;
    return topo_node_at(machine, e.kind, sip, cube, index);
}

/* The case, and where it ends: all that do not begin at the host begin at the first PE. */
static kb_error *name_path(const topo_machine *machine, const path *p, validate_form *form)
{
    kb_text to = KB_TEXT_INIT;
    topo_node_name(machine, node_of(machine, p->to), &to);
    snprintf(form->name, sizeof form->name, "%s: %s", p->name, kb_text_peek(&to));
    kb_error *err = to.failed ? kb_error_nomem() : NULL;
    kb_text_fini(&to);
    return err;
}

static kb_error *run_path(quiet *q, const path *p, validate_form *form)
{
    uint32_t from = node_of(q->machine, p->from), to = node_of(q->machine, p->to);
    for (size_t i = 0; i < lone_size_count; i++) {
        kb_time expected = should_take(q, from, to, lone_sizes[i], p->read);
        KB_TRY(run_alone(q, from, to, lone_sizes[i], p->read));
        form->expected = (double)expected / (double)KB_NS;
        form->ours = (double)q->took / (double)KB_NS;
        form->inside = form->inside && q->took == expected;
    }
    return NULL;
}

static kb_error *run_paths(const char *setting, validate_form *forms)
{
    topo_machine *machine;
    KB_TRY(topo_machine_load(&(topo_source){.settings = &setting, .setting_count = 1}, &machine));
    quiet q;
    kb_error *err = quiet_init(&q, machine);
    for (size_t i = 0; i < path_count && !err; i++) {
        err = name_path(machine, &paths[i], &forms[i]);
        if (!err)
            err = run_path(&q, &paths[i], &forms[i]);
    }
    quiet_fini(&q);
    topo_machine_destroy(machine);
    return err;
}

/* Exact, for every size of transfers and packets. */
static kb_error *check_lone(validation *v)
{
    validate_form forms[path_count];
    for (size_t i = 0; i < path_count; i++)
        forms[i] = (validate_form){.group = "lone transfer", .inside = true};
    for (size_t i = 0; i < packet_setting_count; i++) {
        KB_TRY(run_paths(packet_settings[i], forms));
        validate_step(v);
    }
    for (size_t i = 0; i < path_count; i++)
        KB_TRY(add_form(v, forms[i]));
    return NULL;
}

/* ---- An idle mesh ------------------------------------------------------------------------ */

static const uint32_t idle_sides[] = {4, 8};
static const uint32_t idle_flits[] = {1, 4, 16};
enum {
    idle_side_count = sizeof idle_sides / sizeof idle_sides[0],
    idle_flit_count = sizeof idle_flits / sizeof idle_flits[0],
};

/* The mean over all pairs, exactly. */
static kb_error *check_idle(validation *v, quiet *q, uint32_t k, uint32_t flits)
{
    const topo_shape *shape = topo_machine_shape(q->machine);
    kb_time sum = 0;
    for (uint32_t from = 0; from < shape->pes; from++) {
        for (uint32_t to = 0; to < shape->pes; to++) {
            KB_TRY(run_alone(q, topo_node_at(q->machine, TOPO_PE_DMA, 0, 0, from),
                             topo_node_at(q->machine, TOPO_PE_DMA, 0, 0, to),
                             (uint64_t)flits * VALIDATE_FLIT_BYTES, false));
            sum += q->took;
        }
    }
    double pairs = (double)shape->pes * (double)shape->pes;
    validate_form form = {.group = "idle mesh",
                          .expected = validate_idle(k, flits),
                          .ours = (double)sum / pairs / (double)KB_NS,
                          .inside = true};
    snprintf(form.name, sizeof form.name, "%u x %u, %u flit%s, mean of all pairs", k, k, flits,
             kb_plural(flits));
    validate_step(v);
    return add_form(v, form);
}

static kb_error *check_idle_side(validation *v, uint32_t k)
{
    topo_machine *machine;
    KB_TRY(validate_mesh(k, 1, &machine));
    quiet q;
    kb_error *err = quiet_init(&q, machine);
    for (size_t i = 0; i < idle_flit_count && !err; i++)
        err = check_idle(v, &q, k, idle_flits[i]);
    quiet_fini(&q);
    topo_machine_destroy(machine);
    return err;
}

/* ---- Queues at one link ------------------------------------------------------------------ */

/*
 * One PE that sends to itself: its link to the router is a queue with a service time of S = `flits`
 * cycles; behind it transfers are at least that far apart and never wait again. With a load of rho
 * the mean wait is rho S / (2 (1 - rho)) for Poisson arrivals (M/D/1), and rho (S - 1) / (2 (1 -
 * rho)) for Bernoulli ones (Geo/D/1), of which none come in the same cycle.
 */
typedef struct queue {
    traffic_process process;
    uint32_t flits;
    uint64_t load_ppb;
} queue;

static const queue queues[] = {
    {TRAFFIC_POISSON, 1, 500000000},   {TRAFFIC_POISSON, 1, 800000000},
    {TRAFFIC_POISSON, 16, 800000000},  {TRAFFIC_BERNOULLI, 1, 800000000},
    {TRAFFIC_BERNOULLI, 4, 500000000}, {TRAFFIC_BERNOULLI, 4, 800000000},
};
enum { queue_count = sizeof queues / sizeof queues[0], queue_seeds = 8 };

static double queue_wait(const queue *q)
{
    double load = (double)q->load_ppb / (double)TRAFFIC_RATE_ONE;
    double service = q->process == TRAFFIC_POISSON ? q->flits : (double)q->flits - 1;
    return load * service / (2 * (1 - load));
}

static kb_error *run_queue(validation *v, const topo_machine *machine, const queue *q,
                           uint64_t seed, double *wait)
{
    uint64_t transfers = v->options->quick ? 10000 : 50000;
    kb_time window = (kb_time)(transfers * q->flits) * KB_NS;
    traffic_options options = {.process = q->process,
                               .rate_ppb = q->load_ppb,
                               .bytes = (uint64_t)q->flits * VALIDATE_FLIT_BYTES,
                               .cycle_bytes = VALIDATE_FLIT_BYTES,
                               .seed = seed,
                               .warmup = window / 10,
                               .measure = window};
    traffic_result result;
    KB_TRY(traffic_run(machine, &options, &result));
    v->report->hops += result.hops;
    *wait = result.mean_fs / (double)KB_NS - validate_idle(1, q->flits);
    return NULL;
}

/* Inside if the mean of some seeds is within three standard errors, as their spread shows them. */
static kb_error *check_queue(validation *v, const topo_machine *machine, const queue *q)
{
    double waits[queue_seeds], mean = 0, squares = 0;
    for (size_t i = 0; i < queue_seeds; i++) {
        uint64_t seed = (uint64_t)(q - queues) * queue_seeds + i;
        KB_TRY(run_queue(v, machine, q, seed, &waits[i]));
        mean += waits[i] / queue_seeds;
    }
    for (size_t i = 0; i < queue_seeds; i++)
        squares += (waits[i] - mean) * (waits[i] - mean);
    validate_form form = {.group = q->process == TRAFFIC_POISSON ? "M/D/1 queue, mean wait"
                                                                 : "Geo/D/1 queue, mean wait",
                          .expected = queue_wait(q),
                          .ours = mean,
                          .tolerance = 3 * sqrt(squares / (queue_seeds - 1) / queue_seeds),
                          .inside = true};
    snprintf(form.name, sizeof form.name, "load %.1f, %u flit%s",
             (double)q->load_ppb / (double)TRAFFIC_RATE_ONE, q->flits, kb_plural(q->flits));
    validate_step(v);
    return add_form(v, form);
}

static kb_error *check_queues(validation *v)
{
    topo_machine *machine;
    KB_TRY(validate_mesh(1, 1, &machine));
    kb_error *err = NULL;
    for (size_t i = 0; i < queue_count && !err; i++)
        err = check_queue(v, machine, &queues[i]);
    topo_machine_destroy(machine);
    return err;
}

kb_error *validate_forms(validation *v)
{
    KB_TRY(check_lone(v));
    for (size_t i = 0; i < idle_side_count; i++)
        KB_TRY(check_idle_side(v, idle_sides[i]));
    return check_queues(v);
}

uint64_t validate_forms_steps(void)
{
    return packet_setting_count + (uint64_t)idle_side_count * idle_flit_count + queue_count;
}
