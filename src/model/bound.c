/*
 * bound.c: lower bounds of the time of a step, in closed form: each resource of the machine by
 * itself, at its full rate. Not modelled: latencies, launches, and the work of the vector engines.
 */
#include <math.h>

#include "ccl/ccl.h"
#include "model_state.h"
#include "tp/tp.h"

static kb_time ns_up(double ns)
{
    return ns >= (double)KB_FOREVER / 1e6 ? KB_FOREVER : (kb_time)ceil(ns * 1e6);
}

/* The tokens that the queries of one sequence attend to, summed: causal. */
static double seen_tokens(const kb_model_step *step)
{
    double rows = (double)step->rows;
    return rows * (double)step->cached + rows * (rows + 1) / 2;
}

/* Bytes per ns that a PE reads from its slice: limited by the memory and the port. */
static double read_rate(kb_context *ctx, const tp_pe_params *pe)
{
    const topo_machine *machine = rt_machine(ctx);
    const topo_graph *graph = topo_machine_graph(machine);
    uint32_t xbar = topo_node_at(machine, TOPO_XBAR, 0, 0, 0);
    uint32_t dma = topo_node_at(machine, TOPO_PE_DMA, 0, 0, 0);
    double rate = pe->hbm_bytes_per_ns;
    for (uint32_t i = graph->first_out[xbar]; i < graph->first_out[xbar + 1]; i++)
        if (graph->links.items[graph->out[i]].to == dma)
            rate = fmin(rate, (double)topo_link_rate(graph, graph->out[i]) / 1e9);
    return rate;
}

/* Each layer has a sum over ranks after attention and one after the MLP. */
static kb_error *sums_over_ranks(kb_context *ctx, const kb_model_spec *spec, uint32_t ranks,
                                 uint64_t rows, kb_time *time)
{
    kb_pe devices[MODEL_MAX_RANKS] = {0};
    for (uint32_t i = 0; i < ranks; i++)
        devices[i].sip = i;
    const ccl_bound_query query = {
        .machine = rt_machine(ctx),
        .kind = KB_ALL_REDUCE,
        .ranks = devices,
        .world = ranks,
        .memory = KB_HBM,
        .dtype = spec->dtype,
        .size = rows * spec->hidden * kb_dtype_bytes(spec->dtype),
    };
    ccl_bound bound;
    KB_TRY(ccl_bound_of(&query, &bound));
    *time = ns_up(2 * (double)spec->layers * kb_to_ns(bound.moving));
    return NULL;
}

kb_error *kb_model_bound(kb_context *ctx, const kb_model_spec *given, uint32_t ranks,
                         kb_model_step step, kb_model_bounds *bounds)
{
    const kb_model_spec spec = model_complete(given);
    const tp_pe_params pe = tp_get_pe_params(ctx);
    kb_model_counts counts;
    *bounds = (kb_model_bounds){0};
    KB_TRY(model_check(&spec, ranks));
    uint32_t sips = kb_context_machine(ctx).sips;
    if (ranks > sips)
        return kb_error_new(KB_ERR_INPUT, "model: %u ranks, but the machine has %u SIP%s", ranks,
                            sips, kb_plural(sips));
    KB_TRY(kb_model_count(&spec, &counts));
    double pes = (double)(pe.cubes * pe.pes) * ranks;
    double bytes_per_ns = pes * read_rate(ctx, &pe);
    double products_per_ns = pes * (double)(pe.array_rows * pe.array_columns) / pe.cycle_ns;
    double element = (double)kb_dtype_bytes(spec.dtype);
    double batch = (double)spec.batch;

    /* Only the last row of each prompt goes through the head. */
    double layers = (double)(spec.layers * counts.layer), head = (double)counts.head;
    double tokens = (double)(step.cached + step.rows) * batch;
    double products =
        batch * ((double)step.rows * layers + head) +
        batch * seen_tokens(&step) * 2 * (double)(spec.heads * spec.head_dim * spec.layers);
    bounds->weights = ns_up((layers + head) * element / bytes_per_ns);
    bounds->cache = ns_up(tokens * (double)counts.cache_elements * element / bytes_per_ns);
    bounds->matrix = ns_up(products / products_per_ns);
    if (ranks > 1)
        KB_TRY(sums_over_ranks(ctx, &spec, ranks, spec.batch * step.rows, &bounds->communication));
    bounds->memory = bounds->weights + bounds->cache;
    bounds->best = bounds->memory > bounds->matrix ? bounds->memory : bounds->matrix;
    if (bounds->communication > bounds->best)
        bounds->best = bounds->communication;
    return NULL;
}
