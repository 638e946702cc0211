/*
 * plan.h: the plan of an entry of ccl.yaml for a group of ranks on a machine: the participants and
 * their queues. It is computed on the host, without simulated time or memory of the machine.
 */
#ifndef KB_CCL_PLAN_H
#define KB_CCL_PLAN_H

#include <kernbench/ccl.h>

#include "base/base.h"
#include "ccl/config/ccl_yaml.h"
#include "ipcq/ipcq.h"
#include "topo/topo.h"

typedef struct ccl_subgroup {
    KB_VEC(kb_ccl_participant) participants;
} ccl_subgroup;

struct kb_ccl_participants {
    KB_VEC(ccl_subgroup) subgroups;
};

struct kb_ccl_graph {
    KB_VEC(ipcq_edge) edges;
    kb_arena names;
};

typedef struct ccl_plan {
    const ccl_entry *entry;
    kb_ccl_scope scope;
    kb_pe *ranks; /* owned; scope.ranks points to it */
    kb_ccl_participants participants;
    ipcq_plan queues;
    size_t edge_count;
} ccl_plan;

void ccl_participants_fini(kb_ccl_participants *participants);
void ccl_graph_fini(kb_ccl_graph *graph);

/* `sips`: the device of each rank, or NULL with rank_is_pe: then rank r is the r-th PE of the
 * machine. If it is given with rank_is_pe, the k-th rank of a SIP is its k-th PE. The entry and the
 * machine must outlive the plan. An error names the entry. */
KB_MUST_USE kb_error *ccl_plan_make(const ccl_entry *entry, const topo_machine *machine,
                                    const uint32_t *sips, uint32_t world, ccl_plan *plan);
void ccl_plan_fini(ccl_plan *plan);

/* The same for given ranks, such as those of a group; where ranks are SIPs `ranks` has PE 0 of cube
 * 0 of each. Copied. */
KB_MUST_USE kb_error *ccl_plan_make_for(const ccl_entry *entry, const topo_machine *machine,
                                        const kb_pe *ranks, uint32_t world, ccl_plan *plan);

/* The queue settings of the entry. */
ipcq_settings ccl_queue_settings(const ccl_entry *entry);

/* A topology by name over these PEs in order; w and h are its sides, or 0. */
typedef struct ccl_pe_topology {
    const char *name;
    const kb_pe *pes;
    size_t count;
    uint32_t w, h;
} ccl_pe_topology;

KB_MUST_USE kb_error *ccl_plan_topology(const ccl_registry *registry, const topo_machine *machine,
                                        const ccl_pe_topology *over, const ipcq_settings *settings,
                                        ipcq_plan *plan);

/* Queues along these connections, whose PEs must be PEs of the machine. */
KB_MUST_USE kb_error *ccl_plan_edges(const topo_machine *machine, const ipcq_edge *edges,
                                     size_t count, const ipcq_settings *settings, ipcq_plan *plan);

/* Moves the queues out of the plan and frees the rest. */
ipcq_plan ccl_plan_take_queues(ccl_plan *plan);

/*
 * The sides of a two-dimensional topology over `count` participants: those of the entry, or equal.
 */
KB_MUST_USE kb_error *ccl_mesh_sides(const kb_ccl_scope *scope, uint32_t count, uint32_t *w,
                                     uint32_t *h);

/* The SIP one step east (dx 1), west (-1), south (dy 1) or north (-1) in the pattern of the
 * machine. TOPO_NONE at the edge of a mesh, and if the row or column has one SIP. */
uint32_t ccl_sip_neighbour(const kb_ccl_scope *scope, uint32_t sip, int dx, int dy);

/*
 * The number of ranks of the entry on this machine with all devices (TOPO_NONE), or with only one.
 */
uint32_t ccl_plan_world(const ccl_entry *entry, const topo_machine *machine, uint32_t only_sip);

#endif
