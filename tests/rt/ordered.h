/*
 * ordered.h: what the tests of streams and graphs share: kernels that read what other PEs wrote,
 * tensors with one block for each PE, and contexts in which a data race is a fault.
 */
#ifndef TESTS_RT_ORDERED_H
#define TESTS_RT_ORDERED_H

#include "tensors.h"

#include <kernbench/tl.h>

enum { BLOCK = 64 }; /* elements of a PE */

/* Its block becomes a * its own block of `from` + the block of the PE `step` places further + b. */
KB_KERNEL(mix, tl_ptr to, tl_ptr from, int step, float a, float b)
{
    int64_t pes = tl_num_programs(0) * tl_num_programs(1);
    int64_t me = tl_program_id(1) * tl_num_programs(0) + tl_program_id(0);
    int64_t other = (me + step) % pes;
    tl_tensor mine = tl_load(from + me * BLOCK * 4, tl_shape(BLOCK), TL_F32);
    tl_tensor far = tl_load(from + other * BLOCK * 4, tl_shape(BLOCK), TL_F32);
    tl_store(to + me * BLOCK * 4, tl_add(tl_add(tl_mul(mine, a), far), b));
}

/* Its own block alone, after some work that takes longer on some PEs. */
KB_KERNEL(own, tl_ptr x, int work, float b)
{
    int64_t me = tl_program_id(1) * tl_num_programs(0) + tl_program_id(0);
    tl_ptr at = x + me * BLOCK * 4;
    tl_tensor v = tl_load(at, tl_shape(BLOCK), TL_F32);
    for (int64_t i = 0; i < work * (me + 1); i++)
        v = tl_add(tl_mul(v, 1), 0);
    tl_store(at, tl_add(v, b));
}

/* The block of the next PE of the same cube, from one tensor to the other. */
KB_KERNEL(from_neighbour, tl_ptr to, tl_ptr from)
{
    int64_t pes = tl_num_programs(0), first = tl_program_id(1) * pes;
    int64_t me = first + tl_program_id(0), other = first + (tl_program_id(0) + 1) % pes;
    tl_tensor v = tl_load(from + other * BLOCK * 4, tl_shape(BLOCK), TL_F32);
    tl_store(to + me * BLOCK * 4, tl_add(v, 1));
}

KB_KERNEL(outside, tl_ptr x)
{
    tl_load(x + ((int64_t)1 << 30), tl_shape(1), TL_F32);
}

static const kb_policy by_blocks = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};

static inline uint64_t block_elements(kb_context *ctx)
{
    kb_machine machine = kb_context_machine(ctx);
    return (uint64_t)machine.cubes * machine.pes * BLOCK;
}

/* A block for each PE, of zeros. */
static inline kb_tensor make_blocks(kb_context *ctx, const char *name)
{
    kb_tensor_spec spec = {.name = name,
                           .dtype = KB_F32,
                           .shape = KB_SHAPE(block_elements(ctx)),
                           .policy = &by_blocks,
                           .access = KB_UNTIMED};
    kb_tensor x;
    expect_ok(kb_zeros(ctx, &spec, &x));
    return x;
}

static inline double element(kb_context *ctx, kb_tensor x, uint64_t at)
{
    double value;
    expect_ok(kb_tensor_get(ctx, x, KB_UNTIMED, &KB_INDEX(at), &value));
    return value;
}

static inline void expect_all(kb_context *ctx, kb_tensor x, double value)
{
    uint64_t count = block_elements(ctx);
    float *all = malloc(count * sizeof *all);
    assert_non_null(all);
    expect_ok(kb_tensor_to_host(ctx, x, KB_UNTIMED, all, count * sizeof *all));
    for (uint64_t i = 0; i < count; i++)
        if (all[i] != (float)value)
            fail_msg("element %ju is %g, not %g", (uintmax_t)i, (double)all[i], value);
    free(all);
}

/* Data races are faults. */
static inline kb_context *open_strict(const char *machine)
{
    return open_context(machine, (kb_context_options){.races = KB_RACES_FAIL});
}

/* The error has the code and all of these texts, up to a NULL. */
static inline void expect_texts(kb_error *err, kb_code code, ...)
{
    assert_non_null(err);
    va_list texts;
    va_start(texts, code);
    if (kb_error_code(err) != code)
        fail_msg("code %d: %s", (int)kb_error_code(err), kb_error_message(err));
    for (const char *text; (text = va_arg(texts, const char *)) != NULL;)
        if (!strstr(kb_error_message(err), text) && !strstr(kb_error_detail(err), text))
            fail_msg("no '%s' in: %s\n%s", text, kb_error_message(err), kb_error_detail(err));
    va_end(texts);
    kb_error_free(err);
}

#endif
