/*
 * plan.h: an entry of ccl.yaml on a machine, for a group of ranks: which PEs take part, and how
 * they are joined. Computed on the host, once; no memory of the machine and no time.
 */
#ifndef KB_CCL_PLAN_H
#define KB_CCL_PLAN_H

#include <kernbench/ccl.h>

#include "base/base.h"
#include "ccl/config/config.h"
#include "ipcq/ipcq.h"
#include "topo/topo.h"

typedef struct ccl_circle {
    KB_VEC(kb_ccl_member) members;
} ccl_circle;

struct kb_ccl_members {
    KB_VEC(ccl_circle) circles;
};

struct kb_ccl_graph {
    KB_VEC(ipcq_edge) edges;
    kb_arena names;
};

typedef struct ccl_plan {
    const ccl_entry *entry;
    kb_ccl_scope scope;
    kb_pe *ranks; /* what scope.ranks is */
    kb_ccl_members members;
    ipcq_plan queues;
    size_t edge_count;
} ccl_plan;

void ccl_members_fini(kb_ccl_members *members);
void ccl_graph_fini(kb_ccl_graph *graph);

/*
 * `sips`: the device of each rank, or NULL with rank_is_pe: then rank r is the r-th PE of the
 * machine; if it is given with rank_is_pe, the k-th rank of a SIP is its k-th PE. The entry and the
 * machine must stay. Refused, with the entry's name, if the entry makes no sense on this machine.
 */
KB_MUST_USE kb_error *ccl_plan_make(const ccl_entry *entry, const topo_machine *machine,
                                    const uint32_t *sips, uint32_t world, ccl_plan *plan);
void ccl_plan_fini(ccl_plan *plan);

/* The same with the ranks said one by one, for groups whose ranks are any PEs; where ranks are SIPs
 * `ranks` has PE 0 of cube 0 of each. Copied. */
KB_MUST_USE kb_error *ccl_plan_make_for(const ccl_entry *entry, const topo_machine *machine,
                                        const kb_pe *ranks, uint32_t world, ccl_plan *plan);

/* What the entry says of its queues. */
ipcq_settings ccl_queue_settings(const ccl_entry *entry);

/* A topology by name over PEs in this order; w and h are its sides, or 0. */
typedef struct ccl_pe_topology {
    const char *name;
    const kb_pe *pes;
    size_t count;
    uint32_t w, h;
} ccl_pe_topology;

KB_MUST_USE kb_error *ccl_plan_topology(const ccl_registry *registry, const topo_machine *machine,
                                        const ccl_pe_topology *over, const ipcq_settings *settings,
                                        ipcq_plan *plan);

/* Queues along these edges, whose PEs have to be those of the machine. */
KB_MUST_USE kb_error *ccl_plan_edges(const topo_machine *machine, const ipcq_edge *edges,
                                     size_t count, const ipcq_settings *settings, ipcq_plan *plan);

/* The plan's queues, which are the caller's; the rest of the plan is freed. */
ipcq_plan ccl_plan_take_queues(ccl_plan *plan);

/* The sides of a topology of two dimensions over so many members: what the entry says, or equal. */
KB_MUST_USE kb_error *ccl_mesh_sides(const kb_ccl_scope *scope, uint32_t count, uint32_t *w,
                                     uint32_t *h);

/* The SIP one step east (dx 1), west (-1), south (dy 1) or north (-1) in the pattern of the
 * machine, or TOPO_NONE at the edge of a mesh and where there is but one in that line. */
uint32_t ccl_sip_neighbour(const kb_ccl_scope *scope, uint32_t sip, int dx, int dy);

/* How many ranks the entry has on this machine if all devices take part, or only one; TOPO_NONE:
 * all. */
uint32_t ccl_plan_world(const ccl_entry *entry, const topo_machine *machine, uint32_t only_sip);

#endif
