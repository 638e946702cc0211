/* pe_rig.h: a machine with its fabric, its memories, its MMUs and the units of its PEs: what the
 * tests of copies of the host share.
 */
#ifndef TESTS_PE_RIG_H
#define TESTS_PE_RIG_H

#include "support/expect.h"

#include "pe/pe.h"
#include "topo/random_machines.h"

typedef struct rig {
    topo_machine *machine;
    const topo_shape *shape;
    kb_sim *sim;
    net *fabric;
    mem_memories *memories;
    mem_mmu **mmus;
    kb_oplog *log;
    pe_units *units;
    pe_dma *dma;
} rig;

/* Takes over the machine. After an error what was made is there and the rest is NULL. */
static inline kb_error *rig_try(rig *r, topo_machine *machine, bool no_elision)
{
    *r = (rig){.machine = machine, .shape = topo_machine_shape(machine)};
    net_options options = {.fabric = r->shape->fabric, .no_elision = no_elision};
    KB_TRY(kb_sim_create(NULL, &r->sim));
    KB_TRY(net_create(r->sim, topo_machine_graph(machine), &options, &r->fabric));
    KB_TRY(mem_memories_create(machine, TOPO_NONE, &r->memories));
    r->mmus = kb_alloc_zeroed(r->shape->sips, sizeof *r->mmus);
    if (!r->mmus)
        return kb_error_nomem();
    for (uint32_t sip = 0; sip < r->shape->sips; sip++)
        KB_TRY(mem_mmu_create(sip, r->shape->cubes, r->shape->pes, &r->mmus[sip]));
    KB_TRY(kb_oplog_create(r->sim, r->shape->pe_count, &r->log));
    KB_TRY(pe_units_create(&(pe_units_options){.sim = r->sim,
                                               .machine = machine,
                                               .fabric = r->fabric,
                                               .memories = r->memories,
                                               .log = r->log,
                                               .first_source = net_source_count(r->fabric)},
                           &r->units));
    return pe_dma_create(&(pe_dma_options){.sim = r->sim,
                                           .machine = machine,
                                           .units = r->units,
                                           .memories = r->memories,
                                           .mmus = r->mmus},
                         &r->dma);
}

static inline rig rig_make(topo_machine *machine, bool no_elision)
{
    rig r;
    expect_ok(rig_try(&r, machine, no_elision));
    return r;
}

/* Abandons what is under way; the machine stays. */
static inline void rig_drop(rig *r)
{
    if (r->sim)
        kb_sim_abandon(r->sim);
    pe_dma_destroy(r->dma);
    pe_units_destroy(r->units);
    kb_oplog_destroy(r->log);
    for (uint32_t sip = 0; r->mmus && sip < r->shape->sips; sip++)
        mem_mmu_destroy(r->mmus[sip]);
    free(r->mmus);
    mem_memories_destroy(r->memories);
    net_destroy(r->fabric);
    kb_sim_destroy(r->sim);
}

static inline void rig_fini(rig *r)
{
    rig_drop(r);
    topo_machine_destroy(r->machine);
}

static inline kb_time sum_of(const net_completion *r)
{
    return r->overhead + r->wire + r->drain + r->queueing;
}

static inline kb_location place(kb_memory memory, uint32_t sip, uint32_t cube, uint32_t pe,
                                uint64_t offset)
{
    return (kb_location){.memory = memory, .pe = {sip, cube, pe}, .offset = offset};
}

/* What came of a call. */
typedef struct outcome {
    rig *r;
    int done;
    net_completion completion;
    kb_error *err;
} outcome;

static inline void on_outcome(void *self, uint64_t arg, const net_completion *completion,
                              kb_error *err)
{
    outcome *o = self;
    assert_int_equal(arg, 5);
    assert_int_equal(completion->ended, kb_sim_now(o->r->sim));
    assert_int_equal(sum_of(completion), completion->ended - completion->issued);
    o->completion = *completion;
    o->err = err;
    o->done++;
}

#endif
