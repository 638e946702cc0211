/*
 * mmu_check.h: what the tests of the MMUs share.
 */
#ifndef TESTS_MEM_MMU_CHECK_H
#define TESTS_MEM_MMU_CHECK_H

#include "support/expect.h"

#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#else
#define RUNNING_ON_VALGRIND 0
#endif

#include "mem/mem.h"

enum { SIP = 1 };

static inline mem_mmu *make(uint32_t cubes, uint32_t pes)
{
    mem_mmu *mmu;
    expect_ok(mem_mmu_create(SIP, cubes, pes, &mmu));
    return mmu;
}

/* A location in HBM of this SIP. */
static inline kb_location hbm(uint32_t cube, uint32_t pe, uint64_t offset)
{
    return (kb_location){KB_HBM, {SIP, cube, pe}, offset};
}

static inline void expect_at(const mem_mmu *mmu, uint32_t cube, uint32_t pe, uint64_t va,
                             kb_location want, uint64_t want_bytes)
{
    kb_location got;
    uint64_t bytes;
    assert_true(mem_mmu_translate(mmu, cube, pe, va, &got, &bytes));
    assert_int_equal(got.memory, want.memory);
    assert_int_equal(got.pe.sip, want.pe.sip);
    assert_int_equal(got.pe.cube, want.pe.cube);
    assert_int_equal(got.pe.pe, want.pe.pe);
    assert_int_equal(got.offset, want.offset);
    assert_int_equal(bytes, want_bytes);
}

static inline void expect_nothing_at(const mem_mmu *mmu, uint32_t cube, uint32_t pe, uint64_t va)
{
    kb_location got;
    uint64_t bytes;
    assert_false(mem_mmu_translate(mmu, cube, pe, va, &got, &bytes));
}

#endif
