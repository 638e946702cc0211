/* units_rig.h: a machine with the units of its PEs, and a diary of what its commands did. */
#ifndef TESTS_PE_UNITS_RIG_H
#define TESTS_PE_UNITS_RIG_H

#include "support/expect.h"

#include "pe/units.h"
#include "topo/random_machines.h"

/* A command, from issue to end. -1: not yet. */
typedef struct entry {
    pe_op op;
    kb_time begun, ended;
} entry;

enum { MAX_ENTRIES = 512 };

typedef struct unit_rig {
    topo_machine *machine;
    const topo_shape *shape;
    kb_sim *sim;
    net *fabric;
    mem_memories *memories;
    kb_oplog *log;
    pe_units *units;
    entry diary[MAX_ENTRIES];
    size_t entries;
} unit_rig;

static inline kb_error *unit_rig_try(unit_rig *r, topo_machine *machine, bool no_elision)
{
    *r = (unit_rig){.machine = machine, .shape = topo_machine_shape(machine)};
    KB_TRY(kb_sim_create(&(kb_sim_options){.no_elision = no_elision}, &r->sim));
    KB_TRY(net_create_for(r->sim, machine, 0, no_elision, &r->fabric));
    KB_TRY(mem_memories_create(machine, TOPO_NONE, &r->memories));
    KB_TRY(kb_oplog_create(r->sim, r->shape->pe_count, &r->log));
    return pe_units_create(&(pe_units_options){.sim = r->sim,
                                               .machine = machine,
                                               .fabric = r->fabric,
                                               .memories = r->memories,
                                               .log = r->log,
                                               .first_source = net_source_count(r->fabric)},
                           &r->units);
}

/* The rig has to stay where it is. */
static inline void unit_rig_make(unit_rig *r, topo_machine *machine)
{
    expect_ok(unit_rig_try(r, machine, false));
}

/* Abandons what is under way; the machine stays. */
static inline void unit_rig_drop(unit_rig *r)
{
    if (r->sim)
        kb_sim_abandon(r->sim);
    pe_units_destroy(r->units);
    kb_oplog_destroy(r->log);
    mem_memories_destroy(r->memories);
    net_destroy(r->fabric);
    kb_sim_destroy(r->sim);
}

static inline void unit_rig_fini(unit_rig *r)
{
    unit_rig_drop(r);
    topo_machine_destroy(r->machine);
}

static inline kb_error *note_begun(void *self, uint64_t arg)
{
    unit_rig *r = self;
    assert_int_equal(r->diary[arg].begun, -1);
    r->diary[arg].begun = kb_sim_now(r->sim);
    return NULL;
}

static inline void note_ended(void *self, uint64_t arg)
{
    unit_rig *r = self;
    assert_true(r->diary[arg].begun >= 0);
    assert_int_equal(r->diary[arg].ended, -1);
    assert_true(pe_units_is_done(r->units, r->diary[arg].op));
    r->diary[arg].ended = kb_sim_now(r->sim);
}

/* Issues it with a page in the diary, whose number it returns. */
static inline size_t issue_at(unit_rig *r, kb_pe pe, pe_command command)
{
    size_t number = r->entries++;
    assert_true(number < MAX_ENTRIES);
    entry *e = &r->diary[number];
    *e = (entry){.begun = -1, .ended = -1};
    command.begun = note_begun;
    command.ended = note_ended;
    command.self = r;
    command.arg = number;
    command.op.name = command.op.name ? command.op.name : "test";
    expect_ok(pe_units_issue(r->units, pe, &command, &e->op));
    return number;
}

static inline size_t issue(unit_rig *r, pe_command command)
{
    return issue_at(r, (kb_pe){0, 0, 0}, command);
}

static inline void run_all(unit_rig *r)
{
    expect_ok(kb_sim_run(r->sim, KB_FOREVER));
    for (size_t i = 0; i < r->entries; i++)
        assert_true(r->diary[i].ended >= 0);
}

static inline void expect_times(const unit_rig *r, size_t number, kb_time begun, kb_time ended)
{
    assert_int_equal(r->diary[number].begun, begun);
    assert_int_equal(r->diary[number].ended, ended);
}

/* So many bytes in a row. */
static inline mem_rect bytes_at(kb_memory memory, uint32_t sip, uint32_t cube, uint32_t pe,
                                uint64_t offset, uint64_t bytes)
{
    return (mem_rect){.at = {.memory = memory, .pe = {sip, cube, pe}, .offset = offset},
                      .rows = 1,
                      .bytes = bytes};
}

/* A DMA command of PE 0 for so many bytes of its own slice. */
static inline pe_command slice_command(kb_unit unit, mem_rect *rect, uint64_t offset,
                                       uint64_t bytes)
{
    *rect = bytes_at(KB_HBM, 0, 0, 0, offset, bytes);
    return (pe_command){.unit = unit, .rects = rect, .rect_count = 1};
}

static inline size_t read_slice(unit_rig *r, uint64_t offset, uint64_t bytes)
{
    mem_rect rect;
    return issue(r, slice_command(KB_UNIT_DMA_READ, &rect, offset, bytes));
}

static inline size_t write_slice(unit_rig *r, uint64_t offset, uint64_t bytes)
{
    mem_rect rect;
    return issue(r, slice_command(KB_UNIT_DMA_WRITE, &rect, offset, bytes));
}

#endif
