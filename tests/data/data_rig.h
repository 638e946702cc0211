/*
 * data_rig.h: what the tests of data share: a store on a small machine, values made of given
 * numbers, and a naive way to look at elements.
 */
#ifndef TESTS_DATA_RIG_H
#define TESTS_DATA_RIG_H

#include "mem/cases.h"
#include "support/expect.h"
#include "support/seed.h"
#include "topo/random_machines.h"

#include <math.h>

#include "data/data.h"

/* As a double: the one of C is a float. */
#define NOT_A_NUMBER ((double)NAN)

typedef struct rig {
    topo_machine *machine;
    mem_memories *memories;
    data_store *store;
    kb_rng rng;
} rig;

/* Two PEs: 128 MiB of HBM each. */
#define RIG_MACHINE                                                                                \
    "system: { sips: { count: 1 } }\n"                                                             \
    "sip: { cube_mesh: { w: 1, h: 1 } }\n"                                                         \
    "cube:\n"                                                                                      \
    "  pe_layout: { pe_per_corner: 1, corners: [NW, SE] }\n"                                       \
    "  hbm_gib: 0.25\n"                                                                            \
    "  sram: { capacity_mib: 1 }\n"                                                                \
    "  pe_tcm: { capacity_mib: 1, reserved_mib: 0 }\n"

static inline rig rig_make(unsigned threads, uint64_t pending_bytes)
{
    rig r = {.machine = machine_of(RIG_MACHINE)};
    expect_ok(mem_memories_create(r.machine, TOPO_NONE, &r.memories));
    expect_ok(data_store_create(&(data_options){r.memories, threads, pending_bytes}, &r.store));
    kb_rng_init(&r.rng, test_seed(1));
    return r;
}

/* Nothing may be left: tests release what they make. */
static inline void rig_end(rig *r)
{
    data_stats stats = data_get_stats(r->store);
    assert_int_equal(stats.live_values, 0);
    assert_int_equal(stats.live_bytes, 0);
    data_store_destroy(r->store);
    mem_memories_destroy(r->memories);
    topo_machine_destroy(r->machine);
}

static inline uint64_t elements_of(const kb_shape *shape)
{
    uint64_t elements = 1;
    for (uint32_t axis = 0; axis < shape->rank; axis++)
        elements *= shape->dims[axis];
    return elements;
}

/* ---- Memory ------------------------------------------------------------------------------ */

/* One row of bytes in the HBM of a PE. */
static inline mem_rect row_at(uint32_t pe, uint64_t offset, uint64_t bytes)
{
    return (mem_rect){.at = {KB_HBM, {0, 0, pe}, offset}, .rows = 1, .bytes = bytes};
}

static inline data_value *read_row(rig *r, kb_dtype dtype, kb_shape shape, uint32_t pe,
                                   uint64_t offset)
{
    uint64_t bytes = elements_of(&shape) * kb_dtype_bytes(dtype);
    mem_rect rect = row_at(pe, offset, bytes);
    data_value *value;
    expect_ok(data_read(r->store, &(data_source){dtype, shape, bytes, &rect, 1, 0}, &value));
    return value;
}

static inline void write_row(rig *r, uint32_t pe, uint64_t offset, data_value *value,
                             data_value *mask)
{
    uint64_t bytes = elements_of(data_shape(value)) * kb_dtype_bytes(data_dtype(value));
    mem_rect rect = row_at(pe, offset, bytes);
    expect_ok(data_write(r->store, &rect, 1, bytes, value, mask));
}

/* ---- Values ------------------------------------------------------------------------------ */

/* Of given bytes, by way of memory. */
static inline data_value *value_of(rig *r, kb_dtype dtype, kb_shape shape, const void *bytes)
{
    kb_location somewhere = {KB_HBM, {0, 0, 1}, 64 << 20};
    uint64_t count = elements_of(&shape) * kb_dtype_bytes(dtype);
    expect_ok(data_settle(r->store));
    expect_ok(mem_memories_write(r->memories, &somewhere, bytes, count));
    return read_row(r, dtype, shape, 1, somewhere.offset);
}

/* Of given numbers, rounded to the dtype. */
static inline data_value *value_of_numbers(rig *r, kb_dtype dtype, kb_shape shape,
                                           const double *numbers)
{
    uint64_t count = elements_of(&shape);
    size_t size = kb_dtype_bytes(dtype);
    unsigned char *bytes = malloc(count * size + 1);
    assert_non_null(bytes);
    for (uint64_t i = 0; i < count; i++)
        mem_number_set(dtype, bytes + i * size, numbers[i]);
    data_value *value = value_of(r, dtype, shape, bytes);
    free(bytes);
    return value;
}

/* Mostly numbers of a moderate size; now and then any bits, so also NaN and infinity. */
static inline double random_number(kb_rng *rng, kb_dtype dtype, bool any_bits)
{
    unsigned char bytes[4];
    uint64_t bits = kb_rng_u64(rng);
    if (any_bits && kb_rng_below(rng, 8) == 0) {
        memcpy(bytes, &bits, sizeof bytes);
        return mem_number_get(dtype, bytes);
    }
    if (dtype == KB_I8 || dtype == KB_I32)
        return (double)(int64_t)kb_rng_below(rng, 201) - 100;
    mem_number_set(dtype, bytes, (kb_rng_double(rng) - 0.5) * (kb_rng_below(rng, 4) ? 4 : 40));
    return mem_number_get(dtype, bytes);
}

static inline data_value *random_value(rig *r, kb_dtype dtype, kb_shape shape, bool any_bits)
{
    uint64_t count = elements_of(&shape);
    double *numbers = malloc((count + 1) * sizeof *numbers);
    assert_non_null(numbers);
    for (uint64_t i = 0; i < count; i++)
        numbers[i] = random_number(&r->rng, dtype, any_bits);
    data_value *value = value_of_numbers(r, dtype, shape, numbers);
    free(numbers);
    return value;
}

static inline data_value *full(rig *r, kb_dtype dtype, kb_shape shape, double number)
{
    data_value *value;
    expect_ok(data_full(r->store, dtype, &shape, number, &value));
    return value;
}

static inline data_value *apply(rig *r, data_op op, kb_dtype dtype, kb_shape shape,
                                data_value *const *inputs, uint32_t axis)
{
    data_value *value;
    expect_ok(data_apply(r->store, op, dtype, &shape, inputs, data_op_inputs(op), axis, &value));
    return value;
}

/* Of two of the same shape and dtype. */
static inline data_value *apply2(rig *r, data_op op, data_value *a, data_value *b)
{
    return apply(r, op, data_dtype(a), *data_shape(a), (data_value *[]){a, b}, 0);
}

static inline data_value *dot(rig *r, data_value *a, data_value *b, data_value *acc, kb_dtype dtype)
{
    data_value *value;
    expect_ok(data_dot(r->store, a, b, acc, dtype, &value));
    return value;
}

static inline double item(rig *r, data_value *value, uint64_t index)
{
    double number;
    expect_ok(data_item(r->store, value, index, &number));
    return number;
}

static inline const void *bytes_of(rig *r, data_value *value)
{
    const void *bytes;
    expect_ok(data_bytes(r->store, value, &bytes));
    return bytes;
}

static inline void drop(rig *r, data_value *value)
{
    data_release(r->store, value);
}

/* ---- Comparing --------------------------------------------------------------------------- */

/* How far apart two numbers of the dtype are, in steps from one to the next. Both NaN: 0. */
static inline double steps_between(kb_dtype dtype, double a, double b)
{
    static const int digits[KB_DTYPES] = {
        [KB_F16] = 11, [KB_BF16] = 8, [KB_F32] = 24, [KB_F8E4M3] = 4, [KB_F8E5M2] = 3};
    static const int lowest[KB_DTYPES] = {/* exponent of the smallest step */
                                          [KB_F16] = -24,
                                          [KB_BF16] = -133,
                                          [KB_F32] = -149,
                                          [KB_F8E4M3] = -9,
                                          [KB_F8E5M2] = -16};
    if (isnan(a) || isnan(b))
        return isnan(a) && isnan(b) ? 0 : HUGE_VAL;
    if (a == b)
        return 0;
    if (isinf(a) || isinf(b) || digits[dtype] == 0)
        return HUGE_VAL;
    int exponent = ilogb(fmax(fabs(a), fabs(b))) - digits[dtype] + 1;
    return fabs(a - b) / ldexp(1, exponent > lowest[dtype] ? exponent : lowest[dtype]);
}

/* The number as the dtype has it, by way of f32. */
static inline double rounded(kb_dtype dtype, double number)
{
    unsigned char bytes[4];
    if (dtype == KB_I8 || dtype == KB_I32)
        return number;
    float f32 = (float)number;
    kb_convert(dtype, bytes, KB_F32, &f32, 1);
    return mem_number_get(dtype, bytes);
}

/* Where an element of a result is in an input that is broadcast to it. */
static inline uint64_t input_index(const kb_shape *input, const kb_shape *result, uint64_t index)
{
    uint64_t at = 0, stride = 1;
    for (uint32_t axis = 0; axis < result->rank; axis++) {
        uint64_t dim = result->dims[result->rank - 1 - axis], i = index % dim;
        index /= dim;
        if (axis < input->rank) {
            uint64_t own = input->dims[input->rank - 1 - axis];
            at += (own == 1 ? 0 : i) * stride;
            stride *= own;
        }
    }
    return at;
}

#endif
