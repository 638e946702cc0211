/*
 * reach.c: whether every node can be reached from the host, and the host from every node.
 *
 * Every description gives a machine that is connected; this is the check that compile.c made it so.
 */
#include <stdlib.h>
#include <string.h>

#include "machine_private.h"

/* Neighbours of node n: next[first[n]] .. next[first[n + 1] - 1]. */
typedef struct walk {
    uint32_t *first, *next;
    uint32_t *queue;
    bool *seen;
} walk;

/* Sorts the links by the node at one end, and lists the nodes at the other. */
static void list_neighbours(walk *w, const topo_graph *graph, bool backwards)
{
    size_t nodes = graph->nodes.count, links = graph->links.count;
    memset(w->first, 0, (nodes + 1) * sizeof *w->first);
    for (size_t i = 0; i < links; i++)
        w->first[backwards ? graph->links.items[i].to : graph->links.items[i].from]++;
    for (size_t n = 1; n <= nodes; n++)
        w->first[n] += w->first[n - 1];
    for (size_t i = 0; i < links; i++) {
        const topo_link *link = &graph->links.items[i];
        w->next[--w->first[backwards ? link->to : link->from]] = backwards ? link->from : link->to;
    }
}

/* How many nodes can be reached from one. */
static size_t flood(walk *w, size_t nodes, uint32_t start)
{
    size_t count = 0;
    memset(w->seen, 0, nodes * sizeof *w->seen);
    w->seen[start] = true;
    w->queue[count++] = start;
    for (size_t done = 0; done < count; done++) {
        uint32_t here = w->queue[done];
        for (uint32_t i = w->first[here]; i < w->first[here + 1]; i++) {
            if (!w->seen[w->next[i]]) {
                w->seen[w->next[i]] = true;
                w->queue[count++] = w->next[i];
            }
        }
    }
    return count;
}

static kb_error *check(walk *w, const topo_graph *graph, bool backwards)
{
    size_t nodes = graph->nodes.count;
    list_neighbours(w, graph, backwards);
    size_t count = flood(w, nodes, TOPO_NODE_HOST);
    if (count == nodes)
        return NULL;
    return kb_error_new(KB_ERR_BUG, "%zu node%s of the machine cannot %s the host", nodes - count,
                        kb_plural(nodes - count), backwards ? "reach" : "be reached from");
}

kb_error *topo_check_reach(const topo_machine *machine)
{
    const topo_graph *graph = &machine->graph;
    size_t nodes = graph->nodes.count;
    walk w = {
        .first = kb_alloc_array(nodes + 1, sizeof *w.first),
        .next = kb_alloc_array(graph->links.count, sizeof *w.next),
        .queue = kb_alloc_array(nodes, sizeof *w.queue),
        .seen = kb_alloc_array(nodes, sizeof *w.seen),
    };
    kb_error *err = kb_error_nomem();
    if (w.first && w.next && w.queue && w.seen) {
        err = check(&w, graph, false);
        if (!err)
            err = check(&w, graph, true);
    }
    free(w.seen);
    free(w.queue);
    free(w.next);
    free(w.first);
    return err;
}
