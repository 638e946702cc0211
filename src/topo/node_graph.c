/* node_graph.c: building a graph. */
#include "node_graph.h"

#include <stdlib.h>
#include <string.h>

uint32_t topo_graph_add_node(topo_graph *graph, topo_node node)
{
    node.service = TOPO_NONE;
    graph->failed |= graph->nodes.count >= UINT32_MAX - 1 || !kb_vec_push(&graph->nodes, node);
    return (uint32_t)graph->nodes.count - 1;
}

/* Machines have a handful of different bandwidths, so looking for one is no search. */
static uint32_t rate_index(topo_graph *graph, uint64_t bytes_per_s)
{
    KB_ASSERT(bytes_per_s >= 1 && bytes_per_s <= TOPO_RATE_MAX);
    for (size_t i = graph->rates.count; i-- > 0;)
        if (graph->rates.items[i] == bytes_per_s)
            return (uint32_t)i;
    graph->failed |= !kb_vec_push(&graph->rates, bytes_per_s);
    return (uint32_t)graph->rates.count - 1;
}

uint32_t topo_graph_add_link(topo_graph *graph, uint32_t from, uint32_t to, uint64_t bytes_per_s,
                             kb_time wire_fs)
{
    topo_link link = {
        .from = from, .to = to, .rate = rate_index(graph, bytes_per_s), .wire_fs = wire_fs};
    graph->failed |= !kb_vec_push(&graph->links, link);
    return (uint32_t)graph->links.count - 1;
}

void topo_graph_add_service(topo_graph *graph, uint32_t node, uint64_t bytes_per_s)
{
    uint32_t link = topo_graph_add_link(graph, node, node, bytes_per_s, 0);
    if (!graph->failed)
        graph->nodes.items[node].service = link;
}

kb_error *topo_graph_finish(topo_graph *graph)
{
    size_t nodes = graph->nodes.count, links = graph->links.count;
    if (graph->failed)
        return kb_error_nomem();
    if (links > TOPO_MAX_LINKS)
        return kb_error_new(KB_ERR_INPUT, "machine too large: %zu links, the maximum is %u", links,
                            TOPO_MAX_LINKS);
    graph->first_out = kb_alloc_zeroed(nodes + 1, sizeof *graph->first_out);
    graph->out = kb_alloc_array(links, sizeof *graph->out);
    if (!graph->first_out || !graph->out)
        return kb_error_nomem();

    /* Counting sort by the node that a link leaves: each first_out moves from its end to its start.
     */
    for (size_t i = 0; i < links; i++)
        graph->first_out[graph->links.items[i].from]++;
    for (size_t n = 1; n <= nodes; n++)
        graph->first_out[n] += graph->first_out[n - 1];
    for (size_t i = links; i-- > 0;)
        graph->out[--graph->first_out[graph->links.items[i].from]] = (uint32_t)i;
    return NULL;
}

void topo_graph_fini(topo_graph *graph)
{
    kb_vec_fini(&graph->nodes);
    kb_vec_fini(&graph->links);
    kb_vec_fini(&graph->rates);
    free(graph->first_out);
    free(graph->out);
    memset(graph, 0, sizeof *graph);
}
