/*
 * run_roofline.c: upper bounds of the performance of kernels. Four roofs: the matrix engines, the
 * vector engines, local memory, and the busiest link of the fabric for remote accesses. For each
 * the minimum share of the time that the work takes; the largest share is the lowest roof.
 *
 * For vector engines that is the time in which they are busy, as cycles per element depend on the
 * operation. For a link it is the transmission time of its bytes, over the time in which kernels
 * run or copies of the host are in progress, as both use it.
 */
#include "run.h"

#include <math.h>
#include <stdlib.h>

/* Bandwidth between a PE and its own slice in bytes/s: of the links from and to the slice, and of
 * the memory, which serves reads and writes together. */
typedef struct slice_rates {
    uint64_t read, write, service;
} slice_rates;

/* The bandwidth of the slowest link of the route, except the service link of the memory. */
static uint64_t slowest_link(const topo_machine *machine, uint32_t from, uint32_t to,
                             uint32_t service, uint32_t *steps)
{
    const topo_graph *graph = topo_machine_graph(machine);
    uint32_t count = topo_route(machine, from, to, true, steps);
    uint64_t slowest = UINT64_MAX;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t link = topo_step_link(steps[i]);
        uint64_t rate = topo_link_rate(graph, link);
        slowest = link != service && rate < slowest ? rate : slowest;
    }
    return slowest;
}

static kb_error *find_slice_rates(const topo_machine *machine, slice_rates *rates)
{
    const topo_graph *graph = topo_machine_graph(machine);
    uint32_t *steps = kb_alloc_array(topo_machine_shape(machine)->max_steps, sizeof *steps);
    if (!steps)
        return kb_error_nomem();
    uint32_t pe = topo_node_at(machine, TOPO_PE_DMA, 0, 0, 0);
    uint32_t slice = topo_node_at(machine, TOPO_HBM_CTRL, 0, 0, 0);
    uint32_t service = graph->nodes.items[slice].service;
    rates->read = slowest_link(machine, slice, pe, service, steps);
    rates->write = slowest_link(machine, pe, slice, service, steps);
    rates->service = service != TOPO_NONE ? topo_link_rate(graph, service) : UINT64_MAX;
    free(steps);
    return NULL;
}

/* Peak bandwidth of a PE in bytes/s, at the run's ratio of reads to writes. */
static double slice_peak(const run_stats *s, const slice_rates *rates)
{
    double read = (double)s->units[KB_UNIT_DMA_READ].bytes;
    double written = (double)s->units[KB_UNIT_DMA_WRITE].bytes;
    double all = read + written, peak = (double)rates->service;
    if (all <= 0)
        return fmin(peak, (double)rates->read);
    if (read > 0)
        peak = fmin(peak, (double)rates->read * all / read);
    if (written > 0)
        peak = fmin(peak, (double)rates->write * all / written);
    return peak;
}

/* Time is in femtoseconds: a flop a femtosecond is 1000 TFLOP/s. */
static void compute_engines(run_stats *s, double time)
{
    const topo_pe_params *pe = &topo_machine_shape(s->machine)->pe;
    run_roofline *r = &s->roofline;
    double flops = (double)s->units[KB_UNIT_GEMM].flops, pes = (double)s->pes;
    double array = 2 * (double)pe->gemm_rows * (double)pe->gemm_columns;
    double occupied =
        (double)s->timeline.causes[KB_CAUSE_MATRIX] + (double)s->timeline.both_engines / 2;
    r->peak_tflops = pes * array * 1e3 / (double)pe->gemm_cycle_fs;
    r->tflops = flops * 1e3 / time;
    r->slots = occupied > 0 ? flops * (double)pe->gemm_cycle_fs / (array * occupied) : 0;
    r->occupied = pes > 0 ? occupied / (pes * time) : 0;
    r->vector_peak_tflops = pes * (double)pe->math_lanes * 1e3 / (double)pe->math_cycle_fs;
    r->vector_tflops = (double)s->units[KB_UNIT_MATH].flops * 1e3 / time;
    r->vector_busy = pes > 0 ? (double)s->units[KB_UNIT_MATH].at_work / (pes * time) : 0;
}

/* A byte a femtosecond is 10^6 GB/s. */
static void compute_memory(run_stats *s, double time, double rate)
{
    run_roofline *r = &s->roofline;
    const uint64_t *bytes = s->timeline.bytes;
    uint64_t remote =
        bytes[KB_CAUSE_CUBE_PES] + bytes[KB_CAUSE_OTHER_CUBES] + bytes[KB_CAUSE_OTHER_SIPS];
    double local = (double)bytes[KB_CAUSE_LOCAL_MEMORY];
    const run_link *busiest = run_find_busiest(s, run_remote_links(s));
    r->peak_gbs = (double)s->pes * rate / (double)TOPO_GBS;
    r->gbs = local * 1e6 / time;
    r->remote_gbs = (double)remote * 1e6 / time;
    if (remote > 0 && busiest)
        r->remote_busy = fmin(1, (double)busiest->busy / (time + (double)s->timeline.requesting));
    r->intensity = local > 0 ? (double)s->units[KB_UNIT_GEMM].flops / local : HUGE_VAL;
    r->ridge = r->peak_gbs > 0 ? r->peak_tflops * 1e3 / r->peak_gbs : 0;
    r->roof_tflops = fmin(r->peak_tflops, r->peak_gbs * 1e-3 * r->intensity);
}

kb_error *run_compute_roofline(run_stats *s)
{
    run_roofline *r = &s->roofline;
    slice_rates rates = {0};
    KB_TRY(find_slice_rates(s->machine, &rates));
    double time = s->timeline.kernels > 0 ? (double)s->timeline.kernels : HUGE_VAL;
    compute_engines(s, time);
    double peak = slice_peak(s, &rates);
    compute_memory(s, time, peak);
    r->links_limit = peak < (double)rates.service;
    const double parts[] = {
        [RUN_MATRIX_ROOF] = r->peak_tflops > 0 ? r->tflops / r->peak_tflops : 0,
        [RUN_VECTOR_ROOF] = r->vector_busy,
        [RUN_MEMORY_ROOF] = r->peak_gbs > 0 ? r->gbs / r->peak_gbs : 0,
        [RUN_REMOTE_ROOF] = r->remote_busy,
    };
    for (int roof = RUN_MATRIX_ROOF; roof <= RUN_REMOTE_ROOF; roof++)
        if (parts[roof] > parts[r->roof])
            r->roof = (run_roof)roof;
    r->of_roof = parts[r->roof];
    return NULL;
}
