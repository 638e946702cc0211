/*
 * queue_rig.h: PEs of one cube that are joined by queues, and kernels that run on all of them.
 */
#ifndef TESTS_TL_QUEUE_RIG_H
#define TESTS_TL_QUEUE_RIG_H

#include "tl_rig.h"

enum { MAX_PES = 8 };

static const ipcq_settings small_slots = {
    .buffer = KB_TCM, .n_slots = 4, .slot_bytes = 256, .credit_bytes = 16};

static inline kb_pe pe_at(uint32_t number)
{
    return (kb_pe){0, 0, number};
}

/* Installs the queues at once: how they get there is not of interest here. */
static inline kb_error *connect_try(rig *r, const ipcq_edge *edges, size_t count,
                                    const ipcq_settings *settings)
{
    ipcq_plan plan;
    KB_TRY(ipcq_plan_init(&plan, edges, count, settings));
    kb_error *err = ipcq_set_create(r->queues, &plan, &r->set);
    ipcq_plan_fini(&plan);
    size_t members = 0;
    const ipcq_member *all = err ? NULL : ipcq_set_members(r->set, &members);
    for (size_t i = 0; i < members && !err; i++)
        err = ipcq_install(r->set, all[i].pe);
    return err;
}

/* E leads to the next PE, W to the one before; of two PEs both lead to the other one. */
static inline kb_error *ring_try(rig *r, uint32_t pes, const ipcq_settings *settings)
{
    ipcq_edge edges[2 * MAX_PES];
    for (uint32_t i = 0; i < pes; i++) {
        edges[2 * i] = (ipcq_edge){pe_at(i), "E", pe_at((i + 1) % pes)};
        edges[2 * i + 1] = (ipcq_edge){pe_at(i), "W", pe_at((i + pes - 1) % pes)};
    }
    return connect_try(r, edges, 2 * (size_t)pes, settings);
}

static inline rig ring_with(uint32_t pes, const ipcq_settings *settings, rig_options options)
{
    rig r;
    assert_true(pes <= MAX_PES);
    expect_ok(rig_try_with(&r, one_cube(NULL), options));
    expect_ok(ring_try(&r, pes, settings));
    return r;
}

static inline rig ring_of(uint32_t pes, const ipcq_settings *settings)
{
    return ring_with(pes, settings, (rig_options){0});
}

/* Runs it on the first PEs; the ends are there when the run is over. */
static inline kb_error *run_on(rig *r, uint32_t pes, const kb_kernel *kernel, const tl_arg *args,
                               ending *ends)
{
    for (uint32_t i = 0; i < pes; i++)
        KB_TRY(start_on(r, pe_at(i), kernel, args, &ends[i]));
    return kb_sim_run(r->sim, KB_FOREVER);
}

/* The same, and all must succeed. The time when the last was done. */
#define run_all(r, pes, kernel, ...)                                                               \
    run_all_args((r), (pes), &(kernel), (const tl_arg[]){__VA_ARGS__})

static inline kb_time run_all_args(rig *r, uint32_t pes, const kb_kernel *kernel,
                                   const tl_arg *args)
{
    ending ends[MAX_PES];
    expect_ok(run_on(r, pes, kernel, args, ends));
    kb_time last = 0;
    for (uint32_t i = 0; i < pes; i++) {
        assert_int_equal(ends[i].done, 1);
        expect_ok(ends[i].err);
        if (ends[i].outcome.end > last)
            last = ends[i].outcome.end;
    }
    return last;
}

/* A number in the memory of a PE. */
static inline double number_at(rig *r, uint32_t pe, uint64_t offset, kb_dtype dtype)
{
    unsigned char bytes[8];
    kb_location at = {.memory = KB_HBM, .pe = pe_at(pe), .offset = offset};
    expect_ok(data_settle(r->store));
    mem_memories_read(r->memories, &at, bytes, kb_dtype_bytes(dtype));
    return mem_number_get(dtype, bytes);
}

static inline void put_at(rig *r, uint32_t pe, uint64_t offset, kb_dtype dtype, double number)
{
    unsigned char bytes[8];
    kb_location at = {.memory = KB_HBM, .pe = pe_at(pe), .offset = offset};
    mem_number_set(dtype, bytes, number);
    expect_ok(data_settle(r->store));
    expect_ok(mem_memories_write(r->memories, &at, bytes, kb_dtype_bytes(dtype)));
}

/* All TCM of the PEs but that of their rings is free. */
static inline uint64_t tcm_free_at(const rig *r, uint32_t pe)
{
    return mem_memories_get_stats(r->memories, pe_at(pe), KB_TCM).free;
}

#endif
