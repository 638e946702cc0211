/*
 * tp_machines.h: small machines, contexts that fail on data races, and tensors with given contents,
 * for the tests of tensor parallel layers.
 */
#ifndef TESTS_TP_MACHINES_H
#define TESTS_TP_MACHINES_H

#include "support/expect.h"
#include "support/temporary.h"

#include <kernbench/kernbench.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* SIPs of w x h cubes with `pes` PEs each, one at each router of a row. */
typedef struct machine_size {
    uint32_t sips, w, h, pes;
    const char *cube_extra, *sip_extra; /* further keys: ", pe_gemm: { rows: 16 }"; or NULL */
} machine_size;

static inline kb_context *open_machine(machine_size size, kb_context_options options)
{
    char yaml[512];
    snprintf(yaml, sizeof yaml,
             "system: { sips: { count: %u%s } }\n"
             "sip: { cube_mesh: { w: %u, h: %u } }\n"
             "cube: { noc: { w: %u, h: 1 }, pe_layout: { pe_per_router: 1 }%s }\n",
             size.sips, size.sip_extra ? size.sip_extra : "", size.w, size.h, size.pes,
             size.cube_extra ? size.cube_extra : "");
    temporary file = file_of(yaml);
    options.topology = file.path;
    options.threads = 1;
    kb_context *ctx;
    kb_error *err = kb_context_create(&options, &ctx);
    remove_file(&file);
    expect_ok(err);
    return ctx;
}

/* Numbers with exact sums: small integers. Deterministic, and different for each seed. */
static inline double small_integer(uint64_t seed, uint64_t i)
{
    uint64_t h = (i + 1) * 0x9e3779b97f4a7c15u ^ (seed + 1) * 0xc2b2ae3d27d4eb4fu;
    h ^= h >> 29;
    h *= 0xbf58476d1ce4e5b9u;
    h ^= h >> 32;
    return (double)(int)(h % 5) - 2;
}

/* The numbers in the dtype; free() them. */
static inline void *convert_numbers(kb_dtype dtype, const double *numbers, size_t count)
{
    float *floats = malloc(count * sizeof *floats);
    void *data = malloc(count * kb_dtype_bytes(dtype));
    assert_non_null(floats);
    assert_non_null(data);
    for (size_t i = 0; i < count; i++)
        floats[i] = (float)numbers[i];
    kb_convert(dtype, data, KB_F32, floats, count);
    free(floats);
    return data;
}

static inline size_t count_elements(const kb_shape *shape)
{
    size_t count = 1;
    for (uint32_t axis = 0; axis < shape->rank; axis++)
        count *= shape->dims[axis];
    return count;
}

/* With these contents, or as its memory is. */
static inline kb_tensor make_tensor(kb_context *ctx, const char *name, kb_dtype dtype,
                                    kb_shape shape, const kb_policy *policy, const double *numbers)
{
    const kb_tensor_spec spec = {
        .name = name, .dtype = dtype, .shape = shape, .policy = policy, .access = KB_UNTIMED};
    kb_tensor t;
    expect_ok(kb_empty(ctx, &spec, &t));
    if (!numbers)
        return t;
    size_t count = count_elements(&shape);
    void *data = convert_numbers(dtype, numbers, count);
    expect_ok(kb_tensor_set_slice(ctx, t, KB_UNTIMED, NULL, data, count * kb_dtype_bytes(dtype)));
    free(data);
    return t;
}

/* The contents as floats; free() them. */
static inline float *read_tensor(kb_context *ctx, kb_tensor t, size_t count)
{
    kb_dtype dtype;
    expect_ok(kb_tensor_dtype(ctx, t, &dtype));
    void *data = malloc(count * kb_dtype_bytes(dtype) + 1);
    float *floats = malloc(count * sizeof *floats + 1);
    assert_non_null(floats);
    assert_non_null(data);
    expect_ok(kb_tensor_to_host(ctx, t, KB_UNTIMED, data, count * kb_dtype_bytes(dtype)));
    kb_convert(KB_F32, floats, dtype, data, count);
    free(data);
    return floats;
}

#endif
