/*
 * tl_rig.h: a machine whose PEs run kernels, and memory for these: what the tests of tl share.
 *
 * Every PE of the SIP sees MEMORY_BYTES of virtual memory from MEMORY on: its own HBM slice, from
 * its beginning.
 */
#ifndef TESTS_TL_RIG_H
#define TESTS_TL_RIG_H

#include "support/expect.h"

#include <math.h>

#include "tl/tl.h"
#include "topo/random_machines.h"

#define MEMORY ((tl_ptr)MEM_VA_BASE)
#define MEMORY_BYTES ((uint64_t)32 << 20)

typedef struct rig {
    topo_machine *machine;
    const topo_shape *shape;
    kb_sim *sim;
    net *fabric;
    mem_memories *memories;
    mem_mmu **mmus; /* one: of the SIP */
    kb_oplog *log;
    pe_units *units;
    pe_composites *composites;
    data_store *store;
    ipcq *queues;
    ipcq_set *set; /* whose directions kernels have; NULL: none */
    tl_runner *runner;
} rig;

typedef struct rig_options {
    bool timing_only;
    bool no_elision;
    bool instant;    /* no time passes */
    uint32_t window; /* of the runner */
} rig_options;

static inline kb_error *rig_map(rig *r)
{
    mem_extent extent = {.bytes = MEMORY_BYTES, .copy_count = r->shape->pes};
    kb_location copies[64];
    assert_true(r->shape->pes <= 64);
    for (uint32_t pe = 0; pe < r->shape->pes; pe++)
        copies[pe] = (kb_location){.memory = KB_HBM, .pe = {0, 0, pe}};
    mem_mapping_spec spec = {.name = "memory",
                             .va = (uint64_t)MEMORY,
                             .bytes = MEMORY_BYTES,
                             .extents = &extent,
                             .extent_count = 1,
                             .copies = copies,
                             .copy_count = r->shape->pes};
    mem_mapping_id id;
    KB_TRY(mem_mmu_add(r->mmus[0], &spec, &id));
    for (uint32_t pe = 0; pe < r->shape->pes; pe++)
        mem_mmu_install(r->mmus[0], id, 0, pe);
    return NULL;
}

static inline kb_error *rig_add_units(rig *r)
{
    KB_TRY(kb_oplog_create(r->sim, r->shape->pe_count, &r->log));
    KB_TRY(pe_units_create(&(pe_units_options){.sim = r->sim,
                                               .machine = r->machine,
                                               .fabric = r->fabric,
                                               .memories = r->memories,
                                               .log = r->log,
                                               .first_source = 1 << 20},
                           &r->units));
    return pe_composites_create(r->sim, r->machine, r->units, r->log, &r->composites);
}

static inline kb_error *rig_add_fabric(rig *r, bool no_elision)
{
    net_options options = {.fabric = r->shape->fabric, .no_elision = no_elision};
    return net_create(r->sim, topo_machine_graph(r->machine), &options, &r->fabric);
}

/* Takes over the machine. After an error what was made is there and the rest is NULL. */
static inline kb_error *rig_try_with(rig *r, topo_machine *machine, rig_options options)
{
    *r = (rig){.machine = machine, .shape = topo_machine_shape(machine)};
    KB_TRY(kb_sim_create(&(kb_sim_options){.no_elision = options.no_elision}, &r->sim));
    if (!options.instant)
        KB_TRY(rig_add_fabric(r, options.no_elision));
    KB_TRY(mem_memories_create(machine, TOPO_NONE, &r->memories));
    r->mmus = kb_alloc_zeroed(1, sizeof *r->mmus);
    if (!r->mmus)
        return kb_error_nomem();
    KB_TRY(mem_mmu_create(0, r->shape->cubes, r->shape->pes, &r->mmus[0]));
    KB_TRY(rig_map(r));
    if (!options.instant)
        KB_TRY(rig_add_units(r));
    KB_TRY(data_store_create(&(data_options){.memories = r->memories, .threads = 1}, &r->store));
    KB_TRY(ipcq_create(&(ipcq_options){.sim = r->sim,
                                       .machine = machine,
                                       .fabric = r->fabric,
                                       .memories = r->memories,
                                       .store = r->store,
                                       .log = r->log},
                       &r->queues));
    return tl_runner_create(&(tl_runner_options){.sim = r->sim,
                                                 .machine = machine,
                                                 .memories = r->memories,
                                                 .mmus = r->mmus,
                                                 .units = r->units,
                                                 .composites = r->composites,
                                                 .log = r->log,
                                                 .store = r->store,
                                                 .queues = r->queues,
                                                 .timing_only = options.timing_only,
                                                 .instant = options.instant,
                                                 .window = options.window,
                                                 .first_source = 1 << 10},
                            &r->runner);
}

static inline kb_error *rig_try(rig *r, topo_machine *machine, bool timing_only)
{
    return rig_try_with(r, machine, (rig_options){.timing_only = timing_only});
}

static inline rig rig_make(topo_machine *machine, bool timing_only)
{
    rig r;
    expect_ok(rig_try(&r, machine, timing_only));
    return r;
}

/* One SIP of one cube, which is like those of the default machine but for what is said. */
static inline topo_machine *one_cube(const char *but)
{
    char text[512];
    int length = snprintf(text, sizeof text,
                          "system: { sips: { count: 1 } }\n"
                          "sip: { cube_mesh: { w: 1, h: 1 } }\n"
                          "%s%s\n",
                          but ? "cube: " : "", but ? but : "");
    assert_true(length > 0 && (size_t)length < sizeof text);
    return machine_of(text);
}

static inline rig rig_default(void)
{
    return rig_make(one_cube(NULL), false);
}

/* Abandons what is under way; the machine stays. */
static inline void rig_drop(rig *r)
{
    if (r->sim)
        kb_sim_abandon(r->sim);
    tl_runner_destroy(r->runner);
    ipcq_destroy(r->queues);
    pe_composites_destroy(r->composites);
    pe_units_destroy(r->units);
    data_store_destroy(r->store);
    kb_oplog_destroy(r->log);
    if (r->mmus)
        mem_mmu_destroy(r->mmus[0]);
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

/* ---- Running ---- */

static const kb_pe pe0 = {0, 0, 0};

typedef struct ending {
    int done;
    tl_outcome outcome;
    kb_error *err;
} ending;

static inline void on_done(void *self, uint64_t arg, const tl_outcome *outcome, kb_error *err)
{
    ending *e = self;
    assert_int_equal(arg, 7);
    e->done++;
    e->outcome = *outcome;
    e->err = err;
}

static inline kb_error *start_on(rig *r, kb_pe pe, const kb_kernel *kernel, const tl_arg *args,
                                 ending *e)
{
    *e = (ending){0};
    return tl_runner_start(r->runner, &(tl_run){.kernel = kernel,
                                                .args = args,
                                                .label = "test",
                                                .launch = 1,
                                                .pe = pe,
                                                .programs = {r->shape->pes, 1},
                                                .queues = r->set,
                                                .done = on_done,
                                                .self = e,
                                                .arg = 7});
}

/* Runs it on PE 0; what it is given are numbers. */
static inline ending run_args(rig *r, const kb_kernel *kernel, const tl_arg *args)
{
    ending e;
    expect_ok(start_on(r, pe0, kernel, args, &e));
    expect_ok(kb_sim_run(r->sim, KB_FOREVER));
    assert_int_equal(e.done, 1);
    return e;
}

#define run(r, kernel, ...) run_args((r), &(kernel), (const tl_arg[]){__VA_ARGS__})

/* The same, and it must succeed; how long it took. */
#define time_of(r, kernel, ...) time_of_ending(run(r, kernel, __VA_ARGS__))

static inline kb_time time_of_ending(ending e)
{
    expect_ok(e.err);
    return e.outcome.end - e.outcome.start;
}

/* For kernels that want only the time of an operation, or its fault. */
static inline void ignore(tl_tensor result)
{
    (void)result;
}

/* What its fault says after the name of the kernel and the PE. */
#define expect_fault(r, kernel, text, ...)                                                         \
    expect_fault_of((r), run(r, kernel, __VA_ARGS__), #kernel, text)

static inline void expect_fault_of(rig *r, ending e, const char *kernel, const char *text)
{
    (void)r;
    char prefix[80];
    snprintf(prefix, sizeof prefix, "kernel '%s' on sip0.cube0.pe0 at ", kernel);
    const char *message = kb_error_message(e.err);
    assert_int_equal(strncmp(message, prefix, strlen(prefix)), 0);
    const char *place = strstr(message, " ns, test_");
    assert_non_null(place);
    const char *said = strchr(place, ':');
    assert_non_null(said);
    said = strchr(said + 1, ':');
    assert_non_null(said);
    assert_string_equal(said + 2, text);
    assert_int_equal(kb_error_code(e.err), KB_ERR_FAULT);
    kb_error_free(e.err);
}

/* ---- Memory ---- */

static inline kb_location at_byte(uint64_t offset)
{
    return (kb_location){.memory = KB_HBM, .pe = pe0, .offset = offset};
}

static inline void put(rig *r, uint64_t offset, kb_dtype dtype, const double *numbers, size_t count)
{
    size_t size = kb_dtype_bytes(dtype);
    unsigned char *bytes = calloc(count + 1, size);
    assert_non_null(bytes);
    for (size_t i = 0; i < count; i++)
        mem_number_set(dtype, bytes + i * size, numbers[i]);
    kb_location at = at_byte(offset);
    expect_ok(data_settle(r->store));
    expect_ok(mem_memories_write(r->memories, &at, bytes, count * size));
    free(bytes);
}

static inline void get(rig *r, uint64_t offset, kb_dtype dtype, double *numbers, size_t count)
{
    expect_ok(data_settle(r->store));
    size_t size = kb_dtype_bytes(dtype);
    for (size_t i = 0; i < count; i++) {
        unsigned char bytes[8];
        kb_location at = at_byte(offset + i * size);
        mem_memories_read(r->memories, &at, bytes, size);
        numbers[i] = mem_number_get(dtype, bytes);
    }
}

static inline double get_one(rig *r, uint64_t offset, kb_dtype dtype)
{
    double number;
    get(r, offset, dtype, &number, 1);
    return number;
}

#define expect_numbers(r, offset, dtype, ...)                                                      \
    expect_these((r), (offset), (dtype), (const double[]){__VA_ARGS__},                            \
                 sizeof((const double[]){__VA_ARGS__}) / sizeof(double))

static inline void expect_these(rig *r, uint64_t offset, kb_dtype dtype, const double *expected,
                                size_t count)
{
    for (size_t i = 0; i < count; i++) {
        double number = get_one(r, offset + i * kb_dtype_bytes(dtype), dtype);
        if (number != expected[i] && !(isnan(number) && isnan(expected[i])))
            fail_msg("element %zu is %g, not %g", i, number, expected[i]);
    }
}

/* 0, 1, 2, .. */
static inline void put_sequence(rig *r, uint64_t offset, kb_dtype dtype, size_t count)
{
    for (size_t i = 0; i < count; i++)
        put(r, offset + i * kb_dtype_bytes(dtype), dtype, &(double){(double)i}, 1);
}

/* All TCM of PE 0 is free again. */
static inline void expect_tcm_free(const rig *r)
{
    mem_stats stats = mem_memories_get_stats(r->memories, pe0, KB_TCM);
    assert_int_equal(stats.free, stats.capacity);
}

#endif
