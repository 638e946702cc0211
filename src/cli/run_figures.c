/*
 * run_figures.c: what came of a run, gathered from its context when it is over.
 *
 * The run's time is divided into four parts that add up to it: while kernels run, as the PEs that
 * run them spend their time, on average; while none runs, communication if something is under way
 * and idle otherwise.
 */
#include "run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "machine.h"
#include "table.h"

__extension__ typedef __int128 wide;

/* ---- Where the time went ----------------------------------------------------------------- */

enum { PARTS = 4 };

kb_split_time run_divide(kb_time whole, const kb_split_time *by)
{
    kb_time weights[PARTS] = {by->compute, by->memory, by->communication, by->idle};
    kb_time parts[PARTS], rests[PARTS], total = 0, given = 0;
    for (int i = 0; i < PARTS; i++)
        total += weights[i];
    if (total == 0)
        return (kb_split_time){.idle = whole};
    for (int i = 0; i < PARTS; i++) {
        wide share = (wide)whole * weights[i];
        parts[i] = (kb_time)(share / total);
        rests[i] = (kb_time)(share % total);
        given += parts[i];
    }
    /* What rounding down left goes to those that lost most; of equals to the first. */
    for (; given < whole; given++) {
        int most = 0;
        for (int i = 1; i < PARTS; i++)
            most = rests[i] > rests[most] ? i : most;
        parts[most]++;
        rests[most] = -1;
    }
    return (kb_split_time){parts[0], parts[1], parts[2], parts[3]};
}

static void split_time(run_figures *f, const kb_oplog *log)
{
    kb_timeline timeline = kb_oplog_timeline(log);
    const kb_split_time *pes = &timeline.pes;
    f->kernel_time = timeline.kernels;
    f->pe_time = pes->compute + pes->memory + pes->communication + pes->idle;
    f->split = run_divide(timeline.kernels, pes);
    f->split.communication += timeline.communicating;
    f->outside = timeline.communicating;
    f->split.idle += timeline.idle;
}

/* ---- Units ------------------------------------------------------------------------------- */

/* A kernel as a whole is no work of the pe_cpu, which waits most of the time. */
static bool is_kernel(const kb_op_sum *sum)
{
    return sum->unit == KB_UNIT_CPU && strcmp(sum->name, "kernel") == 0;
}

static void sum_units(run_figures *f, kb_oplog *log)
{
    size_t count;
    const kb_op_sum *sums = kb_oplog_sums(log, &count);
    for (size_t i = 0; i < count; i++) {
        run_unit *unit = &f->units[sums[i].unit];
        if (is_kernel(&sums[i]))
            continue;
        unit->busy += sums[i].busy;
        unit->count += sums[i].count;
        unit->bytes += sums[i].bytes;
        unit->flops += sums[i].flops;
    }
    f->units[KB_UNIT_CPU].at_work = f->units[KB_UNIT_CPU].busy; /* one command at a time */
}

/* What takes data somewhere or changes it: the host, the pe_cpu and the scheduler only order it. */
static bool is_engine(kb_unit unit)
{
    return unit == KB_UNIT_DMA_READ || unit == KB_UNIT_DMA_WRITE || unit == KB_UNIT_GEMM ||
           unit == KB_UNIT_MATH;
}

static void look_at_pes(run_figures *f, const kb_oplog *log)
{
    for (uint64_t pe = 0; pe < topo_machine_shape(f->machine)->pe_count; pe++) {
        f->pes += kb_oplog_busy(log, pe, KB_UNIT_CPU) > 0;
        for (int unit = 0; unit < KB_UNITS; unit++) {
            kb_time busy = kb_oplog_busy(log, pe, (kb_unit)unit);
            if (unit != KB_UNIT_CPU)
                f->units[unit].at_work += busy;
            if (is_engine((kb_unit)unit) && busy > f->busiest_time) {
                f->busiest_time = busy;
                f->busiest_pe = pe;
                f->busiest_unit = (kb_unit)unit;
            }
        }
    }
}

/* ---- Links ------------------------------------------------------------------------------- */

/* The busiest first, those that are alike together, of these the one that waited most first. */
static int compare_links(const void *a, const void *b)
{
    const run_link *x = a, *y = b;
    if (x->busy != y->busy)
        return x->busy < y->busy ? 1 : -1;
    if (x->kind != y->kind)
        return x->kind > y->kind ? 1 : -1;
    if (x->waited != y->waited)
        return x->waited < y->waited ? 1 : -1;
    return (x->link > y->link) - (x->link < y->link);
}

static void rank_links(run_figures *f)
{
    run_link *links = f->links.items;
    size_t kept = 0;
    if (f->links.count > 0)
        qsort(links, f->links.count, sizeof links[0], compare_links);
    for (size_t i = 0; i < f->links.count; i++) {
        if (kept > 0 && links[kept - 1].kind == links[i].kind &&
            links[kept - 1].bytes == links[i].bytes)
            links[kept - 1].alike++;
        else
            links[kept++] = links[i];
    }
    f->links.count = kept;
}

static void add_to_kind(run_kind *kind, const run_link *link)
{
    kind->bytes += link->bytes;
    kind->mean += link->utilization / (double)kind->kind->count;
    kind->max = link->utilization > kind->max ? link->utilization : kind->max;
    kind->waited += link->waited;
}

/* The busiest link first; of equals the order of kinds. */
static int compare_kinds(const void *a, const void *b)
{
    const run_kind *x = a, *y = b;
    if (x->max < y->max || x->max > y->max)
        return x->max < y->max ? 1 : -1;
    return (x->kind > y->kind) - (x->kind < y->kind);
}

static void drop_unused_kinds(run_figures *f)
{
    qsort(f->kinds.items, f->kinds.count, sizeof f->kinds.items[0], compare_kinds);
    size_t used = 0;
    for (size_t i = 0; i < f->kinds.count; i++)
        if (f->kinds.items[i].bytes > 0)
            f->kinds.items[used++] = f->kinds.items[i];
    f->kinds.count = used;
}

static kb_error *look_at_links(run_figures *f, net *fabric)
{
    const topo_graph *graph = topo_machine_graph(f->machine);
    KB_TRY(link_classes_init(&f->classes, f->machine));
    for (size_t i = 0; i < f->classes.all.count; i++)
        if (!kb_vec_push(&f->kinds, ((run_kind){.kind = &f->classes.all.items[i]})))
            return kb_error_nomem();
    for (uint32_t i = 0; i < graph->links.count; i++) {
        net_link_figures carried = net_link_get(fabric, i);
        if (carried.bytes == 0)
            continue;
        kb_time busy = topo_rate_time(topo_link_rate(graph, i), carried.bytes);
        run_link link = {
            .link = i,
            .kind = link_classes_index(&f->classes, f->machine, i),
            .bytes = carried.bytes,
            .busy = busy,
            .utilization = f->sim > 0 ? (double)busy / (double)f->sim : 0,
            .waited = carried.waited_fs,
        };
        if (!kb_vec_push(&f->links, link))
            return kb_error_nomem();
        add_to_kind(&f->kinds.items[link.kind], &link);
    }
    rank_links(f);
    drop_unused_kinds(f);
    return NULL;
}

/* ---- Roofline ---------------------------------------------------------------------------- */

/* What a PE can read of its own slice: the slowest link of the way, in bytes a second. */
static kb_error *slice_rate(const topo_machine *machine, uint64_t *rate)
{
    const topo_graph *graph = topo_machine_graph(machine);
    uint32_t *steps = kb_alloc_array(topo_machine_shape(machine)->max_steps, sizeof *steps);
    if (!steps)
        return kb_error_nomem();
    uint32_t pe = topo_node_at(machine, TOPO_PE_DMA, 0, 0, 0);
    uint32_t slice = topo_node_at(machine, TOPO_HBM_CTRL, 0, 0, 0);
    uint32_t count = topo_route(machine, slice, pe, true, steps);
    *rate = UINT64_MAX;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t of_link = topo_link_rate(graph, topo_step_link(steps[i]));
        *rate = of_link < *rate ? of_link : *rate;
    }
    free(steps);
    return NULL;
}

/* What the DMAs of kernels moved. */
static uint64_t kernel_dma_bytes(kb_oplog *log)
{
    size_t count;
    const kb_op_sum *sums = kb_oplog_sums(log, &count);
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        if (sums[i].unit == KB_UNIT_DMA_READ || sums[i].unit == KB_UNIT_DMA_WRITE)
            bytes += sums[i].kernel_bytes;
    return bytes;
}

/* Time is in femtoseconds: a flop a femtosecond is 1000 TFLOP/s, a byte a femtosecond 10^6 GB/s. */
static kb_error *place_under_roof(run_figures *f, uint64_t dma_bytes)
{
    const topo_pe_figures *pe = &topo_machine_shape(f->machine)->pe;
    run_roofline *r = &f->roofline;
    uint64_t rate = 0;
    KB_TRY(slice_rate(f->machine, &rate));
    double time = f->kernel_time > 0 ? (double)f->kernel_time : HUGE_VAL;
    double flops = (double)f->units[KB_UNIT_GEMM].flops;
    r->peak_tflops = (double)f->pes * 2 * (double)pe->gemm_rows * (double)pe->gemm_columns * 1e3 /
                     (double)pe->gemm_cycle_fs;
    r->peak_gbs = (double)f->pes * (double)rate / (double)TOPO_GBS;
    r->tflops = flops * 1e3 / time;
    r->gbs = (double)dma_bytes * 1e6 / time;
    r->intensity = dma_bytes > 0 ? flops / (double)dma_bytes : HUGE_VAL;
    r->ridge = r->peak_gbs > 0 ? r->peak_tflops * 1e3 / r->peak_gbs : 0;
    r->roof_tflops = fmin(r->peak_tflops, r->peak_gbs * 1e-3 * r->intensity);
    double slots = 2 * (double)pe->gemm_rows * (double)pe->gemm_columns *
                   (double)f->units[KB_UNIT_GEMM].at_work / (double)pe->gemm_cycle_fs;
    r->slots = slots > 0 ? flops / slots : 0;
    return NULL;
}

/* ---- All of it --------------------------------------------------------------------------- */

static kb_error *gather(run_figures *f, const rt_figures *from)
{
    net_figures fabric = net_get_figures(from->fabric);
    f->launches = from->launches;
    f->launch_count = from->launch_count;
    f->hops = fabric.hops;
    f->link_bytes = fabric.link_bytes;
    split_time(f, from->log);
    sum_units(f, from->log);
    look_at_pes(f, from->log);
    KB_TRY(look_at_links(f, from->fabric));
    return place_under_roof(f, kernel_dma_bytes(from->log));
}

kb_error *run_figures_init(run_figures *f, kb_context *ctx)
{
    rt_figures from = rt_get_figures(ctx);
    *f = (run_figures){
        .machine = from.machine,
        .sim = kb_context_now(ctx),
        .events = kb_sim_get_stats(kb_context_sim(ctx)).events,
        .stand_ins = from.stand_ins,
    };
    kb_error *err = gather(f, &from);
    if (err)
        run_figures_fini(f);
    return err;
}

void run_figures_fini(run_figures *f)
{
    link_classes_fini(&f->classes);
    kb_vec_fini(&f->links);
    kb_vec_fini(&f->kinds);
}

/* ---- What bound it ----------------------------------------------------------------------- */

static double share_of(const run_figures *f, kb_time part)
{
    return f->sim > 0 ? (double)part / (double)f->sim : 0;
}

/* The engines that were at work most, and for which part of the PEs' time. */
static bool is_matrix_bound(const run_figures *f, double *at_work)
{
    kb_time gemm = f->units[KB_UNIT_GEMM].at_work, math = f->units[KB_UNIT_MATH].at_work;
    kb_time most = gemm >= math ? gemm : math;
    *at_work = f->pe_time > 0 ? (double)most / (double)f->pe_time : 0;
    return gemm >= math;
}

/* Kernels matter, though most of the time goes elsewhere. */
static void add_kernels(const run_figures *f, kb_text *text)
{
    const kb_split_time *s = &f->split;
    if (5 * (s->compute + s->memory) < f->sim)
        return;
    kb_text_printf(text, "; while kernels run they are bound by %s",
                   s->memory >= s->compute ? "memory" : "computing");
}

static void communication_verdict(const run_figures *f, kb_text *text)
{
    cli_number share = cli_percent(share_of(f, f->split.communication));
    if (2 * f->outside >= f->split.communication) {
        kb_text_printf(text,
                       "Bound by launches and copies, %s %% of the time: they are on their way "
                       "between the host and PEs, and no kernel runs",
                       share.text);
    } else {
        kb_text_printf(text,
                       "Bound by communication, %s %% of the time: PEs wait for other cubes and "
                       "devices, and do not compute",
                       share.text);
        if (f->links.count > 0) {
            kb_text_puts(text, "; the busiest link is ");
            cli_short_link_name(f->machine, f->links.items[0].link, text);
            kb_text_printf(text, ", at %s %%", cli_percent(f->links.items[0].utilization).text);
        }
    }
    add_kernels(f, text);
}

static void compute_verdict(const run_figures *f, kb_text *text)
{
    const run_roofline *r = &f->roofline;
    double at_work, reached = r->tflops / r->peak_tflops;
    bool matrix = is_matrix_bound(f, &at_work);
    kb_text_printf(text, "Bound by computing, %s %% of the time: the %s engines of the PEs",
                   cli_percent(share_of(f, f->split.compute)).text, matrix ? "matrix" : "vector");
    if (matrix)
        kb_text_printf(text, ", which reach %s %% of their peak while kernels run",
                       cli_percent(reached).text);
    if (matrix && at_work > reached + 0.05)
        kb_text_printf(text,
                       " though at work for %s %%: %s %% of the arrays' slots have no work, as "
                       "they fill and where shapes are no multiple of them",
                       cli_percent(at_work).text, cli_percent(1 - r->slots).text);
    /* The memory is busier than the engines: they only just keep up with it. */
    if (r->gbs > at_work * r->peak_gbs)
        kb_text_printf(text,
                       "; but HBM gives %s %% of what it can, so that faster engines would not "
                       "help",
                       cli_percent(r->gbs / r->peak_gbs).text);
}

static void memory_verdict(const run_figures *f, kb_text *text)
{
    kb_text_printf(text,
                   "Bound by memory, %s %% of the time: PEs wait for memory of their cube, "
                   "which gives %s GB/s of %s",
                   cli_percent(share_of(f, f->split.memory)).text, cli_gbs(f->roofline.gbs).text,
                   cli_gbs(f->roofline.peak_gbs).text);
}

static void idle_verdict(const run_figures *f, kb_text *text)
{
    kb_text_printf(text,
                   "Bound by nothing in particular: for %s %% of the time PEs that run a "
                   "kernel have no unit at work, or nothing is under way",
                   cli_percent(share_of(f, f->split.idle)).text);
    add_kernels(f, text);
}

/* By the largest of the four parts: of equals what is named first below. */
void run_verdict(const run_figures *f, kb_text *text)
{
    const kb_split_time *s = &f->split;
    if (f->sim == 0)
        kb_text_puts(text, "Nothing took any time");
    else if (s->memory >= s->compute && s->memory >= s->communication && s->memory >= s->idle)
        memory_verdict(f, text);
    else if (s->compute >= s->communication && s->compute >= s->idle)
        compute_verdict(f, text);
    else if (s->communication >= s->idle)
        communication_verdict(f, text);
    else
        idle_verdict(f, text);
    kb_text_puts(text, ".");
}
