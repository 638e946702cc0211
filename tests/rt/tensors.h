/*
 * tensors.h: what the tests of tensors share: small machines, random specs, and a plain model of
 * where every element of a tensor is (layout.c).
 */
#ifndef TESTS_RT_TENSORS_H
#define TESTS_RT_TENSORS_H

#include "support/expect.h"
#include "support/temporary.h"

#include "base/base.h"
#include "mem/cases.h"

/* ---- Machines ---------------------------------------------------------------------------- */

/* One PE, at the only router of the only cube. */
#define ONE_PE                                                                                     \
    "system: { sips: { count: 1 } }\n"                                                             \
    "sip: { cube_mesh: { w: 1, h: 1 } }\n"                                                         \
    "cube: { noc: { k: 1 }, pe_layout: { pe_per_router: 1 } }\n"

/* Three SIPs of two cubes of four PEs. */
#define THREE_SIPS                                                                                 \
    "system: { sips: { count: 3 } }\n"                                                             \
    "sip: { cube_mesh: { w: 2, h: 1 } }\n"                                                         \
    "cube: { noc: { k: 2 }, pe_layout: { pe_per_router: 1 } }\n"

/* Two SIPs with links between them, of three cubes of three PEs. */
#define ODD_ONES                                                                                   \
    "system: { sips: { count: 2, link: { bw_gbs: 100, length_mm: 50, overhead_ns: 20 } } }\n"      \
    "sip: { cube_mesh: { w: 3, h: 1 } }\n"                                                         \
    "cube: { noc: { w: 3, h: 2 }, pe_layout: { pe_per_corner: 1, corners: [NW, SE, SW] } }\n"

/* One SIP of six cubes of two PEs. */
#define TALL                                                                                       \
    "system: { sips: { count: 1 } }\n"                                                             \
    "sip: { cube_mesh: { w: 2, h: 3 } }\n"                                                         \
    "cube: { noc: { w: 3, h: 1 }, pe_layout: { pe_per_corner: 2, corners: [NE] } }\n"

static const char *const small_machines[] = {ONE_PE, THREE_SIPS, ODD_ONES, TALL};
enum { SMALL_MACHINES = sizeof small_machines / sizeof *small_machines };

/* A context of the machine with this description; NULL is the default one. */
static inline kb_context *open_context(const char *yaml, kb_context_options options)
{
    temporary file;
    if (yaml) {
        file = file_of(yaml);
        options.topology = file.path;
    }
    kb_context *ctx;
    kb_error *err = kb_context_create(&options, &ctx);
    if (yaml)
        remove_file(&file);
    expect_ok(err);
    return ctx;
}

static inline kb_context *open_machine(const char *yaml)
{
    return open_context(yaml, (kb_context_options){0});
}

/* ---- Random specs ------------------------------------------------------------------------ */

static inline uint64_t below(kb_rng *rng, uint64_t bound)
{
    return kb_rng_below(rng, bound);
}

static inline bool one_in(kb_rng *rng, uint64_t count)
{
    return below(rng, count) == 0;
}

static inline kb_access draw_access(kb_rng *rng)
{
    return one_in(rng, 2) ? KB_TIMED : KB_UNTIMED;
}

/* Up to four dimensions and some hundred elements; now and then none at all. */
static inline kb_shape draw_shape(kb_rng *rng)
{
    static const uint64_t longest[] = {0, 300, 25, 9, 5};
    kb_shape shape = {.rank = (uint32_t)below(rng, 5)};
    for (uint32_t axis = 0; axis < shape.rank; axis++)
        shape.dims[axis] = one_in(rng, 40) ? 0 : 1 + below(rng, longest[shape.rank]);
    return shape;
}

static inline kb_policy draw_policy(kb_rng *rng, const kb_machine *machine)
{
    kb_policy policy = {0};
    if (one_in(rng, 2))
        policy.num_cubes = 1 + (uint32_t)below(rng, machine->cubes);
    if (one_in(rng, 2))
        policy.num_pes = 1 + (uint32_t)below(rng, machine->pes);
    if (one_in(rng, 3)) {
        policy.tiling = one_in(rng, 2) ? KB_TILED_COLUMN_MAJOR : KB_TILED_ROW_MAJOR;
        policy.tile_rows = 1 + below(rng, 5);
        policy.tile_columns = 1 + below(rng, 9);
    } else {
        policy.cube = (kb_split)below(rng, 3);
        policy.pe = (kb_split)below(rng, 3);
    }
    return policy;
}

static inline uint64_t elements_of(const kb_shape *shape)
{
    uint64_t elements = 1;
    for (uint32_t axis = 0; axis < shape->rank; axis++)
        elements *= shape->dims[axis];
    return elements;
}

static inline size_t bytes_of(const kb_tensor_spec *spec)
{
    return elements_of(&spec->shape) * kb_dtype_bytes(spec->dtype);
}

/* Its policy is to be kept in `policy`. */
static inline kb_tensor_spec draw_spec(kb_rng *rng, const kb_machine *machine, kb_policy *policy)
{
    *policy = draw_policy(rng, machine);
    return (kb_tensor_spec){
        .shape = draw_shape(rng),
        .dtype = (kb_dtype)below(rng, KB_DTYPES),
        .memory = one_in(rng, 3) ? KB_TCM : KB_HBM,
        .policy = one_in(rng, 12) ? NULL : policy,
        .access = draw_access(rng),
    };
}

/* At least one byte is allocated, so that none is NULL. */
static inline unsigned char *new_bytes(size_t count)
{
    unsigned char *bytes = calloc(count + 1, 1);
    assert_non_null(bytes);
    return bytes;
}

static inline unsigned char *draw_bytes(kb_rng *rng, size_t count)
{
    unsigned char *bytes = new_bytes(count);
    for (size_t i = 0; i < count; i++)
        bytes[i] = (unsigned char)below(rng, 256);
    return bytes;
}

static inline void expect_bytes(const void *found, const void *expected, size_t count)
{
    if (count > 0)
        assert_memory_equal(found, expected, count);
}

/* ---- Where elements are ------------------------------------------------------------------ */

/* What a shard should be: its elements, as numbers in the tensor row by row. */
typedef struct layout_part {
    uint32_t cube, pe;
    uint64_t offset; /* elements before it in the tensor's addresses */
    uint64_t count;
    uint64_t *elements;
} layout_part;

typedef struct layout {
    layout_part *parts; /* by (cube, pe, offset) */
    size_t count;
} layout;

/* By asking for every element who has it. */
layout layout_of(const kb_shape *shape, const kb_policy *policy, const kb_machine *machine);
void layout_fini(layout *l);

/* The bytes of a part, picked out of those of the whole tensor. */
unsigned char *layout_bytes(const layout_part *part, const unsigned char *whole, size_t each);

/* ---- What PEs and hosts see -------------------------------------------------------------- */

/* The host reads a location as such. */
static inline void host_reads(kb_context *ctx, kb_location at, void *into, uint64_t bytes)
{
    kb_message read = {.kind = KB_MEMORY_READ, .from = at, .bytes = bytes, .into = into};
    kb_request request;
    expect_ok(kb_request_submit(ctx, &read, &request));
    expect_ok(kb_request_wait(ctx, request, NULL));
    expect_ok(kb_request_free(ctx, request));
}

static inline void host_writes(kb_context *ctx, kb_location at, const void *data, uint64_t bytes)
{
    kb_message write = {.kind = KB_MEMORY_WRITE, .to = at, .bytes = bytes, .data = data};
    kb_request request;
    expect_ok(kb_request_submit(ctx, &write, &request));
    expect_ok(kb_request_wait(ctx, request, NULL));
    expect_ok(kb_request_free(ctx, request));
}

static inline kb_location at_va(uint64_t va)
{
    return (kb_location){.memory = KB_VIRTUAL, .offset = va};
}

/* The PE's DMA copies, and what came of it. */
static inline kb_error *try_dma(kb_context *ctx, kb_pe pe, kb_location to, kb_location from,
                                uint64_t bytes)
{
    kb_message dma = {.kind = KB_PE_DMA, .pe = pe, .from = from, .to = to, .bytes = bytes};
    kb_request request;
    expect_ok(kb_request_submit(ctx, &dma, &request));
    kb_error *err = kb_request_wait(ctx, request, NULL);
    expect_ok(kb_request_free(ctx, request));
    return err;
}

/* The PE reads virtual addresses. */
static inline void pe_reads(kb_context *ctx, kb_pe pe, uint64_t va, void *into, uint64_t bytes)
{
    kb_location scratch;
    expect_ok(kb_memory_alloc(ctx, pe, KB_TCM, bytes, 1, &scratch));
    expect_ok(try_dma(ctx, pe, scratch, at_va(va), bytes));
    host_reads(ctx, scratch, into, bytes);
    expect_ok(kb_memory_free(ctx, scratch));
}

/* The PE writes to virtual addresses. */
static inline void pe_writes(kb_context *ctx, kb_pe pe, uint64_t va, const void *data,
                             uint64_t bytes)
{
    kb_location scratch;
    expect_ok(kb_memory_alloc(ctx, pe, KB_TCM, bytes, 1, &scratch));
    host_writes(ctx, scratch, data, bytes);
    expect_ok(try_dma(ctx, pe, at_va(va), scratch, bytes));
    expect_ok(kb_memory_free(ctx, scratch));
}

/* The tensor has the shards of the model, each with its elements at its location. */
void expect_shards(kb_context *ctx, kb_tensor tensor, const layout *l, const unsigned char *data);

static inline void expect_contents(kb_context *ctx, kb_tensor tensor, kb_access access,
                                   const void *expected, size_t bytes)
{
    unsigned char *found = new_bytes(bytes);
    memset(found, 0xa5, bytes);
    expect_ok(kb_tensor_to_host(ctx, tensor, access, found, bytes));
    expect_bytes(found, expected, bytes);
    free(found);
}

#endif
