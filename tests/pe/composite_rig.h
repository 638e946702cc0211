/* composite_rig.h: a machine with the units and the schedulers of its PEs, and matrices in memory.
 */
#ifndef TESTS_PE_COMPOSITE_RIG_H
#define TESTS_PE_COMPOSITE_RIG_H

#include "pe/composite.h"
#include "units_rig.h"

typedef struct composite_rig {
    unit_rig has;
    pe_composites *composites;
} composite_rig;

static inline kb_error *composite_rig_try(composite_rig *r, topo_machine *machine, bool no_elision)
{
    r->composites = NULL;
    KB_TRY(unit_rig_try(&r->has, machine, no_elision));
    return pe_composites_create(r->has.sim, machine, r->has.units, r->has.log, &r->composites);
}

/* The rig has to stay where it is. */
static inline void composite_rig_make(composite_rig *r, topo_machine *machine)
{
    expect_ok(composite_rig_try(r, machine, false));
}

/* Abandons what is under way; the machine stays. */
static inline void composite_rig_drop(composite_rig *r)
{
    if (r->has.sim)
        kb_sim_abandon(r->has.sim);
    pe_composites_destroy(r->composites);
    unit_rig_drop(&r->has);
}

static inline void composite_rig_fini(composite_rig *r)
{
    composite_rig_drop(r);
    topo_machine_destroy(r->has.machine);
}

/* A whole matrix, row by row, from an offset of PE 0's own slice on. */
static inline mem_rect matrix_at(uint64_t offset, uint64_t rows, uint64_t columns, uint32_t bytes)
{
    return (mem_rect){.at = {.memory = KB_HBM, .offset = offset},
                      .stride = columns * bytes,
                      .rows = rows,
                      .bytes = columns * bytes};
}

/* A product whose operands are each in one piece: at 0, 1 and 2 GiB of PE 0's slice. */
typedef struct plain_product {
    mem_rect a, b, c;
    pe_product is;
} plain_product;

static inline void plain_make(plain_product *p, uint64_t m, uint64_t k, uint64_t n, uint32_t bytes)
{
    p->a = matrix_at(0, m, k, bytes);
    p->b = matrix_at((uint64_t)1 << 30, k, n, bytes);
    p->c = matrix_at((uint64_t)2 << 30, m, n, bytes);
    p->is = (pe_product){.m = m,
                         .k = k,
                         .n = n,
                         .a = {.rects = &p->a, .rect_count = 1, .element_bytes = bytes},
                         .b = {.rects = &p->b, .rect_count = 1, .element_bytes = bytes},
                         .c = {.rects = &p->c, .rect_count = 1, .element_bytes = bytes},
                         .op = {.label = ""}};
}

static inline kb_error *note_product_begun(void *self, uint64_t arg)
{
    composite_rig *r = self;
    return note_begun(&r->has, arg);
}

/* Its op is done only when this returns: then what reads the result may begin. */
static inline void note_product_ended(void *self, uint64_t arg)
{
    composite_rig *r = self;
    assert_true(r->has.diary[arg].begun >= 0);
    assert_int_equal(r->has.diary[arg].ended, -1);
    r->has.diary[arg].ended = kb_sim_now(r->has.sim);
}

/* Issues it on PE 0 with a page in the diary, whose number it returns. */
static inline size_t issue_product(composite_rig *r, pe_product product)
{
    size_t number = r->has.entries++;
    assert_true(number < MAX_ENTRIES);
    r->has.diary[number] = (entry){.begun = -1, .ended = -1};
    product.begun = note_product_begun;
    product.ended = note_product_ended;
    product.self = r;
    product.arg = number;
    expect_ok(
        pe_composites_issue(r->composites, (kb_pe){0, 0, 0}, &product, &r->has.diary[number].op));
    return number;
}

/* Does it, and nothing else. */
static inline kb_time time_product(composite_rig *r, const pe_product *product)
{
    size_t number = issue_product(r, *product);
    run_all(&r->has);
    assert_int_equal(pe_composites_under_way(r->composites, (kb_pe){0, 0, 0}), 0);
    assert_int_equal(pe_units_under_way(r->has.units, (kb_pe){0, 0, 0}), 0);
    return r->has.diary[number].ended - r->has.diary[number].begun;
}

#endif
