/*
 * test_address.c: physical addresses. Encoding and decoding are held against a reference that knows
 * the format as a list of fields, and against addresses that were put together by hand.
 *
 * Checks M1.
 */
#include "mem/cases.h"
#include "support/expect.h"
#include "support/seed.h"

#include "mem/mem.h"

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

/* ---- The reference ----------------------------------------------------------------------- */

typedef struct field {
    unsigned high, low;
} field;

static const field rack_field = {50, 47}, sip_field = {46, 43}, cube_field = {42, 38};
static const field window_field = {37, 37}, hbm_field = {36, 0}, unit_field = {36, 34};
static const field pe_field = {33, 30}, ext_field = {29, 29}, sub_field = {28, 0};

static uint64_t get(uint64_t bits, field f)
{
    uint64_t value = 0;
    for (unsigned bit = f.high + 1; bit-- > f.low;)
        value = value * 2 + bits / ((uint64_t)1 << bit) % 2;
    return value;
}

static uint64_t with(uint64_t bits, field f, uint64_t value)
{
    for (unsigned bit = f.low; bit <= f.high; bit++, value /= 2)
        bits = (bits & ~((uint64_t)1 << bit)) | value % 2 << bit;
    return bits;
}

/* The component of a sub-offset, as the table is meant, or none. */
static int component_of(uint64_t sub, uint64_t *base)
{
    static const struct {
        uint64_t from, to;
    } table[] = {{0x00000000, 0x10000000}, {0x10000000, 0x18000000}, {0x18000000, 0x1C000000},
                 {0x1C000000, 0x1C100000}, {0x1D000000, 0x1D010000}, {0x1E000000, 0x1F000000}};
    for (int c = 0; c < 6; c++)
        if (sub >= table[c].from && sub < table[c].to) {
            *base = table[c].from;
            return c;
        }
    return -1;
}

static bool reference_decode(uint64_t bits, mem_pa *pa)
{
    if (bits >= (uint64_t)1 << 51)
        return false;
    *pa = (mem_pa){.rack = (uint32_t)get(bits, rack_field),
                   .sip = (uint32_t)get(bits, sip_field),
                   .cube = (uint32_t)get(bits, cube_field)};
    if (get(bits, window_field) == 1) {
        pa->unit = MEM_UNIT_HBM;
        pa->offset = get(bits, hbm_field);
        return true;
    }
    if (get(bits, ext_field) != 0)
        return false;
    pa->offset = get(bits, sub_field);
    uint64_t pe = get(bits, pe_field), base;
    switch (get(bits, unit_field)) {
    case 0: {
        int component = component_of(pa->offset, &base);
        if (component < 0)
            return false;
        pa->unit = MEM_UNIT_PE;
        pa->pe = (uint32_t)pe;
        pa->component = (mem_component)component;
        pa->offset -= base;
        return true;
    }
    case 1:
        pa->unit = MEM_UNIT_M_CPU;
        return pe == 0;
    case 2:
        pa->unit = MEM_UNIT_SRAM;
        return pe == 0;
    default:
        return false;
    }
}

/* No request addresses the memory of an m_cpu, but addresses name it. */
static mem_pa pa_of_m_cpu(uint32_t sip, uint32_t cube, uint64_t offset)
{
    return (mem_pa){.sip = sip, .cube = cube, .unit = MEM_UNIT_M_CPU, .offset = offset};
}

static void expect_same(const mem_pa *a, const mem_pa *b)
{
    assert_int_equal(a->rack, b->rack);
    assert_int_equal(a->sip, b->sip);
    assert_int_equal(a->cube, b->cube);
    assert_int_equal(a->unit, b->unit);
    assert_int_equal(a->pe, b->pe);
    assert_int_equal(a->component, b->component);
    assert_int_equal(a->offset, b->offset);
}

/* Returns whether it is an address. */
static bool try_bits(uint64_t bits)
{
    mem_pa expected = {0}, found = {0};
    bool good = reference_decode(bits, &expected);
    kb_error *err = mem_pa_decode(bits, &found);
    if (!good) {
        assert_int_equal(kb_error_code(err), KB_ERR_FAULT);
        kb_error_free(err);
        return false;
    }
    expect_ok(err);
    expect_same(&found, &expected);
    uint64_t again = 0;
    expect_ok(mem_pa_encode(&found, &again));
    assert_int_equal(again, bits);
    return true;
}

static void expect_bits(mem_pa pa, uint64_t expected)
{
    uint64_t bits = 0;
    mem_pa back = {0};
    expect_ok(mem_pa_encode(&pa, &bits));
    assert_int_equal(bits, expected);
    expect_ok(mem_pa_decode(bits, &back));
    expect_same(&back, &pa);
}

static void expect_refused(mem_pa pa, const char *message)
{
    uint64_t bits = 0;
    expect_error(mem_pa_encode(&pa, &bits), KB_ERR_INPUT, message);
}

static void expect_no_address(uint64_t bits, const char *message)
{
    mem_pa pa = {0};
    expect_error(mem_pa_decode(bits, &pa), KB_ERR_FAULT, message);
}

/* ---- The table --------------------------------------------------------------------------- */

static void the_ranges_of_a_pe_are_aligned_in_order_and_apart(void **state)
{
    (void)state;
    uint64_t end = 0;
    for (int c = 0; c < MEM_COMPONENTS; c++) {
        const mem_range *range = &mem_ranges[c];
        assert_non_null(range->name);
        assert_int_equal(range->base % 4096, 0);
        assert_int_equal(range->bytes % 4096, 0);
        assert_true(range->bytes > 0);
        assert_true(range->base >= end);
        end = range->base + range->bytes;
        uint64_t base = UINT64_MAX;
        assert_int_equal(component_of(range->base, &base), c);
        assert_int_equal(base, range->base);
        assert_int_equal(component_of(end - 1, &base), c);
    }
    assert_true(end <= MEM_PA_UNIT_BYTES);
}

static void the_largest_tcm_that_can_be_configured_fits(void **state)
{
    (void)state;
    topo_machine *machine;
    const char *largest[] = {"cube.pe_tcm.capacity_mib=256"};
    const char *larger[] = {"cube.pe_tcm.capacity_mib=257"};
    expect_ok(topo_machine_load(&(topo_source){.settings = largest, .setting_count = 1}, &machine));
    assert_int_equal(topo_machine_shape(machine)->tcm_bytes, mem_ranges[MEM_TCM].bytes);
    topo_machine_destroy(machine);
    kb_error *err =
        topo_machine_load(&(topo_source){.settings = larger, .setting_count = 1}, &machine);
    assert_int_equal(kb_error_code(err), KB_ERR_INPUT);
    kb_error_free(err);
}

/* ---- By hand ----------------------------------------------------------------------------- */

/*
 * SIP 1 is bit 43, cube 1 bit 38, PE 1 bit 30: 0x800_0000_0000, 0x40_0000_0000, 0x4000_0000. The
 * HBM is bit 37, 0x20_0000_0000; the M CPU is bit 34 and the SRAM bit 35, 0x4_0000_0000 and
 * 0x8_0000_0000.
 */
static void addresses_put_together_by_hand(void **state)
{
    (void)state;
    expect_bits(mem_pa_tcm(0, 0, 0, 0), 0);
    expect_bits(mem_pa_tcm(0, 0, 3, 0x1234), 0xC0001234);
    expect_bits(mem_pa_of_pe(1, 0, 3, MEM_IPCQ, 0x1234), 0x800D0001234);
    expect_bits(mem_pa_of_pe(0, 1, 0, MEM_SCRATCHPAD, 0x10), 0x4018000010);
    expect_bits(mem_pa_of_pe(0, 0, 1, MEM_REGISTERS, 8), 0x5C000008);
    expect_bits(mem_pa_of_pe(0, 0, 15, MEM_STATUS, 0xFFFF), 0x3DD00FFFF);
    expect_bits(mem_pa_of_pe(0, 0, 0, MEM_RESERVED, 0xFFFFFF), 0x1EFFFFFF);
    expect_bits(mem_pa_hbm(0, 0, 0), 0x2000000000);
    expect_bits(mem_pa_hbm(1, 2, 0x1FFFFFFFFF), 0x8BFFFFFFFFF);
    expect_bits(mem_pa_sram(0, 2, 0x40), 0x8800000040);
    expect_bits(mem_pa_sram(0, 0, 0x1FFFFFFF), 0x81FFFFFFF);
    expect_bits(pa_of_m_cpu(2, 0, 0x10), 0x100400000010);
    mem_pa last = {15, 15, 31, MEM_UNIT_HBM, 0, 0, 0x1FFFFFFFFF};
    expect_bits(last, 0x7FFFFFFFFFFFF);
    mem_pa rack = {.rack = 1};
    expect_bits(rack, 0x800000000000);
}

static void an_offset_in_a_slice_is_one_in_the_cube(void **state)
{
    (void)state;
    mem_pa pa = {0};
    expect_ok(mem_pa_pe_hbm(1, 2, 3, 0x10, 6 * GIB, &pa));
    mem_pa expected = mem_pa_hbm(1, 2, 18 * GIB + 0x10);
    expect_same(&pa, &expected);
    expect_ok(mem_pa_pe_hbm(0, 0, 15, 8 * GIB - 1, 8 * GIB, &pa));
    assert_int_equal(pa.offset, MEM_PA_HBM_BYTES - 1);
    /* Slices that are no power of two, and hold an odd number of bytes. */
    expect_ok(mem_pa_pe_hbm(0, 0, 2, 6, 7, &pa));
    assert_int_equal(pa.offset, 20);
}

static void an_offset_outside_its_slice_is_refused(void **state)
{
    (void)state;
    mem_pa pa = {0};
    expect_error(mem_pa_pe_hbm(0, 0, 0, 7, 7, &pa), KB_ERR_INPUT,
                 "offset 0x7 in a slice of hbm has no physical address: the size is 0x7 bytes");
    expect_error(mem_pa_pe_hbm(0, 0, 0, 0, 0, &pa), KB_ERR_INPUT,
                 "offset 0x0 in a slice of hbm has no physical address: the size is 0x0 bytes");
    expect_error(
        mem_pa_pe_hbm(0, 0, 15, 0, 9 * GIB, &pa), KB_ERR_INPUT,
        "offset 0x21c0000000 in hbm has no physical address: the size is 0x2000000000 bytes");
    expect_error(mem_pa_pe_hbm(0, 0, 16, 0, 7, &pa), KB_ERR_INPUT,
                 "pe 16 has no physical address: the maximum is 15; physical addresses cover "
                 "16 SIPs of 32 cubes of 16 PEs");
    /* 2^63 * 2 and 2^64 - 1 + 2^64 - 2 do not fit into 64 bits. */
    static const char far[] = "offset 0xffffffffffffffff in hbm has no physical address: the "
                              "size is 0x2000000000 bytes";
    expect_error(mem_pa_pe_hbm(0, 0, 2, 0, (uint64_t)1 << 63, &pa), KB_ERR_INPUT, far);
    expect_error(mem_pa_pe_hbm(0, 0, 1, UINT64_MAX - 1, UINT64_MAX, &pa), KB_ERR_INPUT, far);
}

/* ---- Limits ------------------------------------------------------------------------------ */

#define NAMES " physical addresses cover 16 SIPs of 32 cubes of 16 PEs"

static void every_field_has_a_last_value(void **state)
{
    (void)state;
    expect_bits((mem_pa){.rack = 15}, with(0, rack_field, 15));
    expect_bits((mem_pa){.sip = 15}, with(0, sip_field, 15));
    expect_bits((mem_pa){.cube = 31}, with(0, cube_field, 31));
    expect_bits((mem_pa){.pe = 15}, with(0, pe_field, 15));
    expect_refused((mem_pa){.rack = 16},
                   "rack 16 has no physical address: the maximum is 15;" NAMES);
    expect_refused((mem_pa){.sip = 16}, "sip 16 has no physical address: the maximum is 15;" NAMES);
    expect_refused((mem_pa){.cube = 32},
                   "cube 32 has no physical address: the maximum is 31;" NAMES);
    expect_refused((mem_pa){.pe = 16}, "pe 16 has no physical address: the maximum is 15;" NAMES);
    expect_refused((mem_pa){.sip = UINT32_MAX},
                   "sip 4294967295 has no physical address: the maximum is 15;" NAMES);
    expect_refused((mem_pa){.unit = (mem_unit)4}, "invalid unit 4: the maximum is 3");
    expect_refused((mem_pa){.component = MEM_COMPONENTS}, "invalid component 6: the maximum is "
                                                          "5");
    expect_refused((mem_pa){.unit = MEM_UNIT_SRAM, .pe = 1}, "invalid pe 1: expected 0 for sram");
    expect_refused((mem_pa){.unit = MEM_UNIT_HBM, .pe = 2}, "invalid pe 2: expected 0 for hbm");
    expect_refused((mem_pa){.unit = MEM_UNIT_M_CPU, .component = MEM_IPCQ},
                   "invalid component 1: expected 0 for m_cpu");
}

static void every_offset_has_a_limit(void **state)
{
    (void)state;
    uint64_t bits = 0;
    for (unsigned c = 0; c < MEM_COMPONENTS; c++) {
        const mem_range *range = &mem_ranges[c];
        mem_pa pa = mem_pa_of_pe(3, 4, 5, (mem_component)c, range->bytes - 1);
        expect_bits(pa, (uint64_t)3 << 43 | (uint64_t)4 << 38 | (uint64_t)5 << 30 |
                            (range->base + range->bytes - 1));
        pa.offset++;
        char message[128];
        (void)snprintf(message, sizeof message,
                       "offset 0x%llx in %s has no physical address: the size is 0x%llx bytes",
                       (unsigned long long)range->bytes, range->name,
                       (unsigned long long)range->bytes);
        expect_refused(pa, message);
        pa.offset = UINT64_MAX;
        kb_error *err = mem_pa_encode(&pa, &bits);
        assert_int_equal(kb_error_code(err), KB_ERR_INPUT);
        kb_error_free(err);
    }
    expect_refused(mem_pa_hbm(0, 0, 128 * GIB),
                   "offset 0x2000000000 in hbm has no physical address: the size is "
                   "0x2000000000 bytes");
    expect_refused(mem_pa_sram(0, 0, 512 * MIB),
                   "offset 0x20000000 in sram has no physical address: the size is 0x20000000 "
                   "bytes");
    expect_refused(pa_of_m_cpu(0, 0, UINT64_MAX), "offset 0xffffffffffffffff in m_cpu has no "
                                                  "physical address: the size is 0x20000000 "
                                                  "bytes");
}

static void what_is_no_address_says_why(void **state)
{
    (void)state;
    expect_no_address(0x8000000000000,
                      "invalid physical address 0x8000000000000: more than 51 bits");
    expect_no_address(UINT64_MAX, "invalid physical address 0xffffffffffffffff: more than 51 bits");
    for (unsigned unit = 3; unit < 8; unit++) {
        uint64_t bits = with(0, unit_field, unit);
        char message[128];
        (void)snprintf(message, sizeof message,
                       "invalid physical address 0x%llx: unknown unit %u: expected 0 (PE), 1 "
                       "(M CPU) or 2 (SRAM)",
                       (unsigned long long)bits, unit);
        expect_no_address(bits, message);
    }
    expect_no_address(0x20000000, "invalid physical address 0x20000000: the ext bit is 1: "
                                  "expected 0");
    expect_no_address(0x820000000, "invalid physical address 0x820000000: the ext bit is 1: "
                                   "expected 0");
    expect_no_address(0x840000000,
                      "invalid physical address 0x840000000: invalid pe 1: expected 0 for sram");
    expect_no_address(0x780000000,
                      "invalid physical address 0x780000000: invalid pe 14: expected 0 for "
                      "m_cpu");
    expect_no_address(0x1C100000, "invalid physical address 0x1c100000: a PE has nothing at "
                                  "sub-offset 0x1c100000");
    expect_no_address(0xDFFFFFFF, "invalid physical address 0xdfffffff: a PE has nothing at "
                                  "sub-offset 0x1fffffff");
}

static void the_bounds_of_every_range(void **state)
{
    (void)state;
    for (unsigned c = 0; c < MEM_COMPONENTS; c++) {
        const mem_range *range = &mem_ranges[c];
        assert_true(try_bits(range->base));
        assert_true(try_bits(range->base + range->bytes - 1));
        try_bits(range->base + range->bytes);
        if (range->base > 0)
            try_bits(range->base - 1);
    }
}

/* ---- By chance --------------------------------------------------------------------------- */

static void decoding_agrees_with_the_reference_and_encoding_is_its_inverse(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(51));
    size_t good = 0, tried = cases(200000);
    for (size_t i = 0; i < tried; i++) {
        uint64_t bits = kb_rng_u64(&rng) >> 13;
        if (i % 4 != 0) /* otherwise mostly HBM and unknown units */
            bits = with(with(bits, window_field, 0), unit_field, kb_rng_below(&rng, 4));
        if (i % 8 > 1)
            bits = with(bits, ext_field, 0);
        if (i % 16 > 7)
            bits = with(bits, pe_field, 0);
        good += try_bits(bits);
    }
    assert_true(good > tried / 4 && good < tried);
    for (unsigned bit = 0; bit < 64; bit++)
        try_bits((uint64_t)1 << bit);
}

static mem_pa draw_address(kb_rng *rng)
{
    mem_pa pa = {.rack = (uint32_t)kb_rng_below(rng, MEM_PA_RACKS),
                 .sip = (uint32_t)kb_rng_below(rng, MEM_PA_SIPS),
                 .cube = (uint32_t)kb_rng_below(rng, MEM_PA_CUBES),
                 .unit = (mem_unit)kb_rng_below(rng, 4)};
    uint64_t bytes = pa.unit == MEM_UNIT_HBM ? MEM_PA_HBM_BYTES : MEM_PA_UNIT_BYTES;
    if (pa.unit == MEM_UNIT_PE) {
        pa.pe = (uint32_t)kb_rng_below(rng, MEM_PA_PES);
        pa.component = (mem_component)kb_rng_below(rng, MEM_COMPONENTS);
        bytes = mem_ranges[pa.component].bytes;
    }
    pa.offset = kb_rng_below(rng, bytes);
    return pa;
}

static void what_is_encoded_decodes_to_the_same(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(37));
    for (size_t i = 0; i < cases(200000); i++) {
        mem_pa pa = draw_address(&rng), back = {0}, expected = {0};
        uint64_t bits = 0;
        expect_ok(mem_pa_encode(&pa, &bits));
        expect_ok(mem_pa_decode(bits, &back));
        expect_same(&back, &pa);
        assert_true(reference_decode(bits, &expected));
        expect_same(&expected, &pa);
    }
}

/* ---- Printing ---------------------------------------------------------------------------- */

static void expect_print(mem_pa pa, const char *expected)
{
    kb_text text = KB_TEXT_INIT;
    mem_pa_print(&pa, &text);
    assert_string_equal(kb_text_peek(&text), expected);
    kb_text_fini(&text);
}

static void an_address_prints_as_what_it_means(void **state)
{
    (void)state;
    expect_print(mem_pa_of_pe(1, 0, 3, MEM_IPCQ, 0x1234), "sip1.cube0.pe3.ipcq+0x1234");
    expect_print(mem_pa_tcm(0, 1, 2, 0), "sip0.cube1.pe2.tcm+0x0");
    expect_print(mem_pa_of_pe(0, 0, 0, MEM_SCRATCHPAD, 1), "sip0.cube0.pe0.scratchpad+0x1");
    expect_print(mem_pa_of_pe(0, 0, 0, MEM_REGISTERS, 1), "sip0.cube0.pe0.registers+0x1");
    expect_print(mem_pa_of_pe(0, 0, 0, MEM_STATUS, 1), "sip0.cube0.pe0.status+0x1");
    expect_print(mem_pa_of_pe(0, 0, 0, MEM_RESERVED, 1), "sip0.cube0.pe0.reserved+0x1");
    expect_print(mem_pa_hbm(0, 2, 0), "sip0.cube2.hbm+0x0");
    expect_print(mem_pa_sram(0, 2, 0x40), "sip0.cube2.sram+0x40");
    expect_print(pa_of_m_cpu(15, 31, 0xABCDEF), "sip15.cube31.m_cpu+0xabcdef");
    mem_pa pa = mem_pa_hbm(0, 0, UINT64_MAX);
    pa.rack = 2;
    expect_print(pa, "rack2.sip0.cube0.hbm+0xffffffffffffffff");
    expect_print((mem_pa){.unit = (mem_unit)9}, "sip0.cube0.?+0x0");
    expect_print((mem_pa){.component = (mem_component)9}, "sip0.cube0.pe0.?+0x0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_ranges_of_a_pe_are_aligned_in_order_and_apart),
        cmocka_unit_test(the_largest_tcm_that_can_be_configured_fits),
        cmocka_unit_test(addresses_put_together_by_hand),
        cmocka_unit_test(an_offset_in_a_slice_is_one_in_the_cube),
        cmocka_unit_test(an_offset_outside_its_slice_is_refused),
        cmocka_unit_test(every_field_has_a_last_value),
        cmocka_unit_test(every_offset_has_a_limit),
        cmocka_unit_test(what_is_no_address_says_why),
        cmocka_unit_test(the_bounds_of_every_range),
        cmocka_unit_test(decoding_agrees_with_the_reference_and_encoding_is_its_inverse),
        cmocka_unit_test(what_is_encoded_decodes_to_the_same),
        cmocka_unit_test(an_address_prints_as_what_it_means),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
