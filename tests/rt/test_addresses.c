/*
 * test_addresses.c: memory, virtual addresses and physical addresses that are given to programs as
 * such: what is had once, what may be freed, and what addresses mean.
 */
#include "programs.h"

static const kb_pe pe0 = {0, 0, 0}, pe1 = {0, 0, 1}, far_pe = {0, 1, 3};

static void put(kb_context *ctx, kb_location to, const void *data, uint64_t bytes)
{
    kb_message message = write_to(to, bytes);
    message.data = data;
    (void)carry_out(ctx, message);
}

static void get(kb_context *ctx, kb_location from, void *into, uint64_t bytes)
{
    kb_message message = read_from(from, bytes);
    message.into = into;
    (void)carry_out(ctx, message);
}

static uint64_t some_addresses(kb_context *ctx, uint64_t bytes)
{
    uint64_t va;
    expect_ok(kb_va_alloc(ctx, bytes, &va));
    return va;
}

/* ---- Memory ---- */

static void memory_is_given_once(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    static const kb_memory memories[] = {KB_HBM, KB_TCM, KB_SRAM};
    for (int i = 0; i < 3; i++) {
        kb_location blocks[20];
        for (int j = 0; j < 20; j++) {
            expect_ok(kb_memory_alloc(ctx, far_pe, memories[i], 1000, 1 << j / 2, &blocks[j]));
            assert_int_equal(blocks[j].memory, memories[i]);
            assert_int_equal(blocks[j].pe.cube, far_pe.cube);
            assert_int_equal(blocks[j].offset % (1 << j / 2), 0);
            for (int k = 0; k < j; k++)
                assert_true(blocks[k].offset + 1000 <= blocks[j].offset ||
                            blocks[j].offset + 1000 <= blocks[k].offset);
        }
        for (int j = 0; j < 20; j++)
            expect_ok(kb_memory_free(ctx, blocks[j]));
    }
    kb_context_destroy(ctx);
}

static void memory_that_was_not_given_cannot_be_freed(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_location block, other;
    expect_ok(kb_memory_alloc(ctx, pe1, KB_HBM, 1000, 64, &block));
    expect_error(kb_memory_free(ctx, at(KB_HBM, 0, 0, 1, block.offset + 64)), KB_ERR_FAULT,
                 "kb_memory_free: no allocation of kb_memory_alloc() starts at "
                 "sip0.cube0.pe1.hbm+0x40");
    other = block;
    other.pe.pe = 2;
    expect_error_about(kb_memory_free(ctx, other), KB_ERR_FAULT,
                       "no allocation of kb_memory_alloc()");
    other.pe = (kb_pe){77, 78, 79};
    expect_error_about(kb_memory_free(ctx, other), KB_ERR_FAULT,
                       "no allocation of kb_memory_alloc()");
    other = block;
    other.memory = KB_TCM;
    expect_error_about(kb_memory_free(ctx, other), KB_ERR_FAULT,
                       "no allocation of kb_memory_alloc()");
    expect_error_about(kb_memory_free(ctx, virtual_at(0)), KB_ERR_FAULT,
                       "no allocation of kb_memory");
    expect_error_about(kb_memory_free(ctx, at((kb_memory)17, 0, 0, 0, 0)), KB_ERR_FAULT,
                       "no allocation of kb_memory");
    expect_ok(kb_memory_free(ctx, block));
    expect_error_about(kb_memory_free(ctx, block), KB_ERR_FAULT,
                       "no allocation of kb_memory_alloc()");

    uint64_t va = some_addresses(ctx, 1);
    expect_error_about(kb_memory_free(ctx, virtual_at(va)), KB_ERR_FAULT,
                       "no allocation of kb_memory");
    expect_ok(kb_va_free(ctx, va));

    kb_tensor x;
    kb_tensor_spec spec = bytes_spec("x", 100);
    expect_ok(kb_empty(ctx, &spec, &x));
    expect_ok(kb_tensor_shard_location(ctx, x, 0, &block));
    expect_error_about(kb_memory_free(ctx, block), KB_ERR_FAULT,
                       "no allocation of kb_memory_alloc()");
    expect_ok(kb_tensor_free(ctx, x));
    kb_context_destroy(ctx);
}

/* Of the SRAM the PE does not matter. */
static void sram_can_be_freed_under_any_pe(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_location block;
    kb_machine m = kb_context_machine(ctx);
    for (uint32_t pe = 0; pe < 7; pe++) {
        expect_ok(kb_memory_alloc(ctx, (kb_pe){1, 1, pe}, KB_SRAM, m.sram_bytes, 1, &block));
        block.pe.pe = 6 - pe;
        expect_ok(kb_memory_free(ctx, block));
    }
    kb_context_destroy(ctx);
}

static void what_cannot_be_given_is_refused(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_machine m = kb_context_machine(ctx);
    kb_location block = at(KB_SRAM, 9, 9, 9, 9);
    expect_error(kb_memory_alloc(ctx, pe0, KB_HBM, 0, 1, &block), KB_ERR_INPUT,
                 "kb_memory_alloc: invalid size of 0 bytes in sip0.cube0.pe0.hbm: expected at "
                 "least 1");
    expect_error(
        kb_memory_alloc(ctx, pe0, KB_HBM, 1, 0, &block), KB_ERR_INPUT,
        "kb_memory_alloc: invalid alignment 0 in sip0.cube0.pe0.hbm: expected a power of two");
    expect_error(
        kb_memory_alloc(ctx, pe0, KB_TCM, 1, 24, &block), KB_ERR_INPUT,
        "kb_memory_alloc: invalid alignment 24 in sip0.cube0.pe0.tcm: expected a power of two");
    expect_error_about(kb_memory_alloc(ctx, pe0, KB_VIRTUAL, 1, 1, &block), KB_ERR_INPUT,
                       "expected a physical memory, found KB_VIRTUAL");
    expect_error_about(kb_memory_alloc(ctx, (kb_pe){0, 0, PES}, KB_HBM, 1, 1, &block), KB_ERR_INPUT,
                       "pe4 does not exist");
    expect_error(kb_memory_alloc(ctx, pe0, KB_TCM, m.tcm_bytes + 1, 1, &block), KB_ERR_FAULT,
                 "kb_memory_alloc: out of memory in sip0.cube0.pe0.tcm: 12582913 bytes requested, "
                 "12582912 free (capacity 12582912)");
    expect_error_about(kb_memory_alloc(ctx, pe0, KB_HBM, UINT64_MAX, 1, &block), KB_ERR_FAULT,
                       "out of memory in sip0.cube0.pe0.hbm");
    assert_int_equal(block.offset, 9);
    expect_ok(kb_memory_alloc(ctx, pe0, KB_TCM, m.tcm_bytes, 1, &block)); /* all there is */
    expect_error_about(kb_memory_alloc(ctx, pe0, KB_TCM, 1, 1, &block), KB_ERR_FAULT, "0 free");
    expect_ok(kb_memory_alloc(ctx, pe1, KB_TCM, m.tcm_bytes, 1, &block));
    kb_context_destroy(ctx);
}

static void what_was_freed_is_forgotten(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_location block, again;
    char back[7] = "zzzzzz";
    expect_ok(kb_memory_alloc(ctx, pe0, KB_HBM, 100, 1, &block));
    put(ctx, block, "secret", 7);
    expect_ok(kb_memory_free(ctx, block));
    expect_ok(kb_memory_alloc(ctx, pe0, KB_HBM, 100, 1, &again));
    assert_int_equal(again.offset, block.offset);
    get(ctx, again, back, 7);
    assert_memory_equal(back, "\0\0\0\0\0\0", 7);
    kb_context_destroy(ctx);
}

/* ---- Virtual addresses ---- */

static void addresses_are_given_once_in_whole_pages(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    uint64_t ranges[30];
    for (uint64_t i = 0; i < 30; i++) {
        ranges[i] = some_addresses(ctx, i * 1000 + 1);
        assert_int_equal(ranges[i] % 4096, 0);
        assert_true(ranges[i] >= 0x100000000);
        for (uint64_t j = 0; j < i; j++)
            assert_true(ranges[j] + j * 1000 + 1 <= ranges[i] ||
                        ranges[i] + i * 1000 + 1 <= ranges[j]);
    }
    for (int i = 0; i < 30; i++)
        expect_ok(kb_va_free(ctx, ranges[i]));
    kb_context_destroy(ctx);
}

static void addresses_that_were_not_given_cannot_be_freed(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    uint64_t va = some_addresses(ctx, 10000);
    expect_error(kb_va_free(ctx, 0), KB_ERR_FAULT,
                 "kb_va_free: no range of kb_va_alloc() starts at 0x0");
    expect_error_about(kb_va_free(ctx, va + 4096), KB_ERR_FAULT, "no range of kb_va_alloc()");
    expect_error_about(kb_va_free(ctx, UINT64_MAX), KB_ERR_FAULT, "0xffffffffffffffff");
    expect_ok(kb_va_free(ctx, va));
    expect_error_about(kb_va_free(ctx, va), KB_ERR_FAULT, "no range of kb_va_alloc() starts");
    kb_context_destroy(ctx);
}

static void addresses_that_are_mapped_cannot_be_freed(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    uint64_t va = some_addresses(ctx, 8192), next = some_addresses(ctx, 4096);
    assert_int_equal(next, va + 8192);
    const kb_pe elsewhere = {2, 0, 0};
    (void)carry_out(ctx, map_to(elsewhere, va + 5000, hbm(0, 0), 100));
    expect_error_about(kb_va_free(ctx, va), KB_ERR_FAULT,
                       "is still mapped on sip2: unmap it first");
    expect_ok(kb_va_free(ctx, next));
    (void)carry_out(ctx, unmap_from(elsewhere, va + 5000));
    expect_ok(kb_va_free(ctx, va));
    kb_context_destroy(ctx);
}

static void a_mapping_stays_inside_a_range(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    uint64_t first = some_addresses(ctx, 4096), second = some_addresses(ctx, 4096);
    assert_int_equal(second, first + 4096);
    kb_request request;
    static const struct {
        uint64_t from, bytes;
    } wrongs[] = {{0, 8192}, {1, 4096}, {8192, 1}, {UINT64_MAX - 4095, 4096}, {0, UINT64_MAX}};
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        kb_message message = map_to(pe0, first + wrongs[i].from, hbm(0, 0), wrongs[i].bytes);
        kb_error *err = kb_request_submit(ctx, &message, &request);
        assert_non_null(err);
        kb_error_free(err);
    }
    (void)carry_out(ctx, map_to(pe0, first + 1, hbm(0, 0), 4095));
    expect_error_about(kb_va_free(ctx, first), KB_ERR_FAULT, "is still mapped on sip0");
    (void)carry_out(ctx, unmap_from(pe0, first + 1));
    expect_ok(kb_va_free(ctx, first));
    expect_ok(kb_va_free(ctx, second));
    kb_context_destroy(ctx);
}

static void more_addresses_than_there_are_is_an_error(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    uint64_t va = 7;
    expect_error(kb_va_alloc(ctx, 0, &va), KB_ERR_INPUT, "kb_va_alloc: invalid size of 0 bytes");
    expect_error_about(kb_va_alloc(ctx, ((uint64_t)1 << 48) + 1, &va), KB_ERR_FAULT,
                       "out of virtual addresses: 281474976710657 bytes requested");
    expect_error_about(kb_va_alloc(ctx, UINT64_MAX, &va), KB_ERR_FAULT, "out of virtual addresses");
    assert_int_equal(va, 7);
    va = some_addresses(ctx, (uint64_t)1 << 48);
    uint64_t more;
    expect_error_about(kb_va_alloc(ctx, 1, &more), KB_ERR_FAULT, "0 free");
    expect_ok(kb_va_free(ctx, va));
    expect_ok(kb_va_alloc(ctx, 1, &more));
    kb_context_destroy(ctx);
}

/* ---- Physical addresses ---- */

static void physical_addresses_name_every_location(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_machine m = kb_context_machine(ctx);
    const uint64_t sizes[] = {
        [KB_HBM] = m.hbm_bytes, [KB_TCM] = m.tcm_bytes, [KB_SRAM] = m.sram_bytes};
    for (uint32_t sip = 0; sip < m.sips; sip++) {
        for (uint32_t cube = 0; cube < m.cubes; cube++) {
            for (uint32_t pe = 0; pe < m.pes; pe++) {
                for (int memory = KB_HBM; memory <= KB_SRAM; memory++) {
                    const uint64_t offsets[] = {0, 0x1234, sizes[memory] - 1};
                    for (int i = 0; i < 3; i++) {
                        kb_location there = at((kb_memory)memory, sip, cube,
                                               memory == KB_SRAM ? 0 : pe, offsets[i]);
                        kb_location back = {0};
                        uint64_t pa;
                        expect_ok(kb_location_to_pa(ctx, there, &pa));
                        assert_true(pa < (uint64_t)1 << 51);
                        expect_ok(kb_location_from_pa(ctx, pa, &back));
                        assert_memory_equal(&back, &there, sizeof back);
                    }
                }
            }
        }
    }
    kb_context_destroy(ctx);
}

static void addresses_of_nothing_are_errors(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_machine m = kb_context_machine(ctx);
    uint64_t pa;
    kb_location where;
    char name[KB_NAME_BYTES];
    expect_error_about(kb_location_to_pa(ctx, hbm(0, m.hbm_bytes), &pa), KB_ERR_FAULT,
                       "out of bounds");
    expect_error_about(kb_location_to_pa(ctx, hbm(SIPS, 0), &pa), KB_ERR_INPUT,
                       "sip4 does not exist");
    expect_error_about(kb_location_to_pa(ctx, virtual_at(0), &pa), KB_ERR_INPUT,
                       "expected a physical memory, found KB_VIRTUAL");
    expect_ok(kb_location_to_pa(ctx, hbm(0, 0), &pa));
    uint64_t there = pa | (uint64_t)SIPS << 43; /* a SIP that is not there */
    expect_error_about(kb_location_from_pa(ctx, there, &where), KB_ERR_FAULT, "not in the machine");
    expect_error_about(kb_location_from_pa(ctx, (uint64_t)1 << 51, &where), KB_ERR_FAULT, "51");
    expect_error_about(kb_pa_name((uint64_t)1 << 51, name), KB_ERR_FAULT, "51");
    kb_context_destroy(ctx);
}

static void addresses_say_what_they_mean(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    uint64_t pa;
    char name[KB_NAME_BYTES];
    expect_ok(kb_location_to_pa(ctx, at(KB_TCM, 1, 0, 3, 0x1234), &pa));
    expect_ok(kb_pa_name(pa, name));
    assert_string_equal(name, "sip1.cube0.pe3.tcm+0x1234");
    expect_ok(kb_location_to_pa(ctx, at(KB_SRAM, 2, 1, 0, 0x10), &pa));
    expect_ok(kb_pa_name(pa, name));
    assert_string_equal(name, "sip2.cube1.sram+0x10");
    kb_context_destroy(ctx);
}

/* 20 SIPs are more than 4 bits can name. */
static void machines_too_large_for_physical_addresses_run(void **state)
{
    (void)state;
    static const char *const settings[] = {"system.sips.count=20", "sip.cube_mesh.w=1",
                                           "sip.cube_mesh.h=1"};
    kb_context *ctx = open_small(&(kb_context_options){.settings = settings, .setting_count = 3});
    char back[5] = "";
    put(ctx, hbm(19, 64), "here", 5);
    (void)carry_out(ctx, dma((kb_pe){18, 0, 0}, hbm(19, 64), hbm(17, 0), 5));
    get(ctx, hbm(17, 0), back, 5);
    assert_string_equal(back, "here");
    uint64_t pa;
    kb_location where;
    for (uint32_t sip = 0; sip < 20; sip += 19)
        expect_error(kb_location_to_pa(ctx, hbm(sip, 0), &pa), KB_ERR_INPUT,
                     "the machine is too large for physical addresses: it has 20 SIPs of 1 cubes "
                     "of 8 PEs, physical addresses name 16 SIPs of 32 cubes of 16 PEs");
    expect_error_about(kb_location_from_pa(ctx, 0, &where), KB_ERR_INPUT,
                       "the machine is too large for physical addresses");
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_given_once),
        cmocka_unit_test(memory_that_was_not_given_cannot_be_freed),
        cmocka_unit_test(sram_can_be_freed_under_any_pe),
        cmocka_unit_test(what_cannot_be_given_is_refused),
        cmocka_unit_test(what_was_freed_is_forgotten),
        cmocka_unit_test(addresses_are_given_once_in_whole_pages),
        cmocka_unit_test(addresses_that_were_not_given_cannot_be_freed),
        cmocka_unit_test(addresses_that_are_mapped_cannot_be_freed),
        cmocka_unit_test(a_mapping_stays_inside_a_range),
        cmocka_unit_test(more_addresses_than_there_are_is_an_error),
        cmocka_unit_test(physical_addresses_name_every_location),
        cmocka_unit_test(addresses_of_nothing_are_errors),
        cmocka_unit_test(addresses_say_what_they_mean),
        cmocka_unit_test(machines_too_large_for_physical_addresses_run),
    };
    return cmocka_run_group_tests_name("addresses", tests, NULL, NULL);
}
