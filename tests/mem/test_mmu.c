/* test_mmu.c: what an address means to a PE, which mappings are refused, what is said of faults. */
#include "mmu_check.h"
#include "support/failing_alloc.h"
#include "support/seed.h"

/* A mapping of one extent with these copies, installed nowhere. */
static mem_mapping_id map(mem_mmu *mmu, const char *name, uint64_t va, uint64_t bytes,
                          const kb_location *copies, size_t copy_count)
{
    const mem_extent extent = {0, bytes, 0, copy_count};
    mem_mapping_id id;
    expect_ok(mem_mmu_add(mmu,
                          &(mem_mapping_spec){.name = name,
                                              .va = va,
                                              .bytes = bytes,
                                              .extents = &extent,
                                              .extent_count = bytes > 0,
                                              .copies = copies,
                                              .copy_count = copy_count},
                          &id));
    assert_int_not_equal(id, 0);
    return id;
}

static void install_everywhere(mem_mmu *mmu, mem_mapping_id id, uint32_t cubes, uint32_t pes)
{
    for (uint32_t cube = 0; cube < cubes; cube++)
        for (uint32_t pe = 0; pe < pes; pe++)
            mem_mmu_install(mmu, id, cube, pe);
}

/* ---- What an address means --------------------------------------------------------------- */

static void a_mapping_means_nothing_until_it_is_installed(void **state)
{
    (void)state;
    mem_mmu *mmu = make(2, 3);
    const kb_location copy = hbm(1, 2, 0x500);
    mem_mapping_id id = map(mmu, "x", MEM_VA_BASE, 0x100, &copy, 1);
    assert_int_equal(mem_mmu_installed(mmu, id), 0);
    for (uint32_t pe = 0; pe < 3; pe++)
        expect_nothing_at(mmu, 1, pe, MEM_VA_BASE);

    mem_mmu_install(mmu, id, 0, 1);
    expect_at(mmu, 0, 1, MEM_VA_BASE, hbm(1, 2, 0x500), 0x100);
    expect_at(mmu, 0, 1, MEM_VA_BASE + 0xff, hbm(1, 2, 0x5ff), 1);
    expect_nothing_at(mmu, 0, 1, MEM_VA_BASE - 1);
    expect_nothing_at(mmu, 0, 1, MEM_VA_BASE + 0x100);
    expect_nothing_at(mmu, 0, 0, MEM_VA_BASE);
    expect_nothing_at(mmu, 1, 1, MEM_VA_BASE);
    mem_mmu_install(mmu, id, 0, 1); /* twice is harmless */
    assert_int_equal(mem_mmu_installed(mmu, id), 1);

    mem_mmu_uninstall(mmu, id, 0, 1);
    mem_mmu_uninstall(mmu, id, 0, 1);
    mem_mmu_uninstall(mmu, id, 1, 1);
    expect_nothing_at(mmu, 0, 1, MEM_VA_BASE);
    assert_int_equal(mem_mmu_installed(mmu, id), 0);
    mem_mmu_destroy(mmu);
}

static void a_replicated_tensor_means_the_own_copy_everywhere(void **state)
{
    (void)state;
    enum { cubes = 3, pes = 5 };
    kb_location copies[cubes * pes];
    for (uint32_t cube = 0; cube < cubes; cube++)
        for (uint32_t pe = 0; pe < pes; pe++)
            copies[cube * pes + pe] = hbm(cube, pe, 0x1000 * (cube + 1) + 0x40 * pe);
    mem_mmu *mmu = make(cubes, pes);
    mem_mapping_id id = map(mmu, "weights", MEM_VA_BASE, 64, copies, cubes * pes);
    install_everywhere(mmu, id, cubes, pes);
    assert_int_equal(mem_mmu_installed(mmu, id), cubes * pes);
    for (uint32_t cube = 0; cube < cubes; cube++)
        for (uint32_t pe = 0; pe < pes; pe++)
            expect_at(mmu, cube, pe, MEM_VA_BASE + 10,
                      hbm(cube, pe, 0x1000 * (cube + 1) + 0x40 * pe + 10), 54);
    mem_mmu_destroy(mmu);
}

/* Copies at (0, 1), (0, 3), (2, 0), (2, 2), (2, 4), of 4 cubes of 5 PEs. */
static void a_pe_without_a_copy_takes_one_of_its_cube_or_any(void **state)
{
    (void)state;
    const kb_location copies[] = {hbm(0, 1, 0), hbm(0, 3, 0), hbm(2, 0, 0), hbm(2, 2, 0),
                                  hbm(2, 4, 0)};
    mem_mmu *mmu = make(4, 5);
    mem_mapping_id id = map(mmu, "x", MEM_VA_BASE, 8, copies, 5);
    install_everywhere(mmu, id, 4, 5);
    /* PE p of cube 0: its own, or the (p mod 2)-th of two. */
    static const uint32_t cube0[] = {1, 1, 1, 3, 1};
    /* PE p of cube 2: its own, or the (p mod 3)-th of three. */
    static const uint32_t cube2[] = {0, 2, 2, 0, 4};
    for (uint32_t pe = 0; pe < 5; pe++) {
        expect_at(mmu, 0, pe, MEM_VA_BASE, hbm(0, cube0[pe], 0), 8);
        expect_at(mmu, 2, pe, MEM_VA_BASE, hbm(2, cube2[pe], 0), 8);
    }
    /* Cubes 1 and 3 have none: PE 1 of cube 1 is the 6th of all, 6 mod 5 = 1; PE 3 of cube 3 the
     * 18th, 18 mod 5 = 3. */
    expect_at(mmu, 1, 1, MEM_VA_BASE, hbm(0, 3, 0), 8);
    expect_at(mmu, 1, 4, MEM_VA_BASE, hbm(2, 4, 0), 8);
    expect_at(mmu, 3, 0, MEM_VA_BASE, hbm(0, 1, 0), 8);
    expect_at(mmu, 3, 3, MEM_VA_BASE, hbm(2, 2, 0), 8);
    mem_mmu_destroy(mmu);
}

/* With 3 PEs a cube, number and PE differ mod 2: PE 0 of cube 1 is the 3rd, so the odd copy. */
static void pes_are_spread_by_their_number_in_the_sip(void **state)
{
    (void)state;
    const kb_location copies[] = {hbm(0, 0, 0), hbm(0, 1, 0)};
    mem_mmu *mmu = make(3, 3);
    mem_mapping_id id = map(mmu, "x", MEM_VA_BASE, 8, copies, 2);
    install_everywhere(mmu, id, 3, 3);
    expect_at(mmu, 1, 0, MEM_VA_BASE, hbm(0, 1, 0), 8);
    expect_at(mmu, 1, 1, MEM_VA_BASE, hbm(0, 0, 0), 8);
    expect_at(mmu, 2, 0, MEM_VA_BASE, hbm(0, 0, 0), 8);
    expect_at(mmu, 0, 2, MEM_VA_BASE, hbm(0, 0, 0), 8); /* of its cube: the (2 mod 2)-th */
    mem_mmu_destroy(mmu);
}

/* A copy at cube 0, PE 0 of another SIP is no PE's own here. */
static void copies_on_other_sips_are_no_ones_own(void **state)
{
    (void)state;
    const kb_location copies[] = {
        {KB_TCM, {0, 0, 0}, 16}, {KB_SRAM, {SIP, 1, 0}, 32}, {KB_TCM, {2, 0, 0}, 48}};
    mem_mmu *mmu = make(2, 2);
    mem_mapping_id id = map(mmu, NULL, MEM_VA_BASE, 8, copies, 3);
    install_everywhere(mmu, id, 2, 2);
    expect_at(mmu, 0, 0, MEM_VA_BASE, copies[0], 8); /* number 0 of the SIP */
    expect_at(mmu, 0, 1, MEM_VA_BASE, copies[1], 8); /* number 1 */
    expect_at(mmu, 1, 0, MEM_VA_BASE, copies[1], 8); /* its cube's */
    expect_at(mmu, 1, 1, MEM_VA_BASE, copies[1], 8);
    mem_mmu_destroy(mmu);
}

/* Shards at va + offset; from 0x30 to 0x40 there is nothing. */
static void an_address_is_found_in_its_extent(void **state)
{
    (void)state;
    const mem_extent extents[] = {{0, 0x10, 0, 1}, {0x10, 0x20, 1, 1}, {0x40, 0x40, 2, 2}};
    const kb_location copies[] = {hbm(0, 0, 0x7000), hbm(0, 1, 0x100), hbm(0, 0, 0x20),
                                  hbm(1, 0, 0x30)};
    mem_mmu *mmu = make(2, 2);
    mem_mapping_id id;
    const mem_mapping_spec spec = {.name = "x",
                                   .va = MEM_VA_BASE,
                                   .bytes = 0x90,
                                   .extents = extents,
                                   .extent_count = 3,
                                   .copies = copies,
                                   .copy_count = 4};
    expect_ok(mem_mmu_add(mmu, &spec, &id));
    mem_mmu_install(mmu, id, 1, 0);
    expect_at(mmu, 1, 0, MEM_VA_BASE, hbm(0, 0, 0x7000), 0x10);
    expect_at(mmu, 1, 0, MEM_VA_BASE + 0xf, hbm(0, 0, 0x700f), 1);
    expect_at(mmu, 1, 0, MEM_VA_BASE + 0x10, hbm(0, 1, 0x100), 0x20);
    expect_at(mmu, 1, 0, MEM_VA_BASE + 0x2f, hbm(0, 1, 0x11f), 1);
    expect_nothing_at(mmu, 1, 0, MEM_VA_BASE + 0x30);
    expect_nothing_at(mmu, 1, 0, MEM_VA_BASE + 0x3f);
    expect_at(mmu, 1, 0, MEM_VA_BASE + 0x40, hbm(1, 0, 0x30), 0x40);
    expect_at(mmu, 1, 0, MEM_VA_BASE + 0x7f, hbm(1, 0, 0x6f), 1);
    expect_nothing_at(mmu, 1, 0, MEM_VA_BASE + 0x80);
    expect_nothing_at(mmu, 1, 0, MEM_VA_BASE + 0x8f);
    mem_mmu_destroy(mmu);
}

static void a_mapping_may_be_as_large_as_addresses_go(void **state)
{
    (void)state;
    const kb_location copy = hbm(0, 0, 0);
    mem_mmu *mmu = make(1, 1);
    mem_mapping_id id = map(mmu, "x", 0, UINT64_MAX, &copy, 1);
    mem_mmu_install(mmu, id, 0, 0);
    expect_at(mmu, 0, 0, 0, copy, UINT64_MAX);
    expect_at(mmu, 0, 0, UINT64_MAX - 1, hbm(0, 0, UINT64_MAX - 1), 1);
    expect_nothing_at(mmu, 0, 0, UINT64_MAX);
    expect_error(mem_mmu_fault(mmu, "k", 0, 0, UINT64_MAX), KB_ERR_FAULT,
                 "k on sip1.cube0.pe0: address 0xffffffffffffffff is not mapped: it is just past "
                 "the end of tensor 'x' (0x0 to 0xffffffffffffffff)");
    mem_mmu_destroy(mmu);
}

/* ---- Adding and dropping ----------------------------------------------------------------- */

static void names_extents_and_copies_are_copied(void **state)
{
    (void)state;
    char name[] = "x";
    kb_location copy = hbm(0, 0, 64);
    mem_extent extent = {0, 8, 0, 1};
    const mem_mapping_spec spec = {.name = name,
                                   .va = MEM_VA_BASE,
                                   .bytes = 8,
                                   .extents = &extent,
                                   .extent_count = 1,
                                   .copies = &copy,
                                   .copy_count = 1};
    mem_mmu *mmu = make(1, 1);
    mem_mapping_id id;
    expect_ok(mem_mmu_add(mmu, &spec, &id));
    name[0] = '?';
    copy.offset = 0;
    extent.bytes = 1;
    mem_mmu_install(mmu, id, 0, 0);
    expect_at(mmu, 0, 0, MEM_VA_BASE, hbm(0, 0, 64), 8);
    expect_error(mem_mmu_fault(mmu, "k", 0, 0, MEM_VA_BASE + 8), KB_ERR_FAULT,
                 "k on sip1.cube0.pe0: address 0x100000008 is not mapped: it is just past the end "
                 "of tensor 'x' (0x100000000 to 0x100000008)");
    mem_mmu_destroy(mmu);
}

static kb_error *try_add(mem_mmu *mmu, const char *name, uint64_t va, uint64_t bytes)
{
    const kb_location copy = hbm(0, 0, 0);
    const mem_extent extent = {0, bytes, 0, 1};
    mem_mapping_id id = 77;
    kb_error *err = mem_mmu_add(mmu,
                                &(mem_mapping_spec){.name = name,
                                                    .va = va,
                                                    .bytes = bytes,
                                                    .extents = &extent,
                                                    .extent_count = bytes > 0,
                                                    .copies = &copy,
                                                    .copy_count = 1},
                                &id);
    assert_int_equal(id == 0, err != NULL);
    return err;
}

static void an_overlap_is_refused(void **state)
{
    (void)state;
    mem_mmu *mmu = make(1, 1);
    expect_ok(try_add(mmu, "x", 0x1000, 0x1000));
    expect_error(try_add(mmu, "y", 0x1fff, 1), KB_ERR_INPUT,
                 "sip1: tensor 'y' (0x1fff to 0x2000) cannot be mapped: it overlaps tensor 'x' "
                 "(0x1000 to 0x2000), which is still mapped");
    expect_error(try_add(mmu, NULL, 0xfff, 2), KB_ERR_INPUT,
                 "sip1: a mapping without a tensor (0xfff to 0x1001) cannot be mapped: it "
                 "overlaps tensor 'x' (0x1000 to 0x2000), which is still mapped");
    const uint64_t bad[][2] = {{0x1000, 0x1000}, {0x1000, 1},     {0x1800, 0x10}, {0, 0x3000},
                               {0xfff, 0x1001},  {0xfff, 0x1002}, {0x1800, 0},    {0x1000, 0}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        kb_error *err = try_add(mmu, "y", bad[i][0], bad[i][1]);
        assert_int_equal(kb_error_code(err), KB_ERR_INPUT);
        kb_error_free(err);
    }
    expect_ok(try_add(mmu, "y", 0x2000, 0x1000)); /* touching is fine */
    expect_ok(try_add(mmu, "z", 0, 0x1000));
    mem_mmu_drop(mmu, mem_mmu_find(mmu, 0x1000));
    expect_ok(try_add(mmu, "w", 0x1000, 0x1000));
    mem_mmu_destroy(mmu);
}

static void a_range_beyond_64_bits_is_refused(void **state)
{
    (void)state;
    mem_mmu *mmu = make(1, 1);
    expect_error(try_add(mmu, "x", UINT64_MAX - 1, 2), KB_ERR_INPUT,
                 "sip1: 0x2 bytes at the virtual address 0xfffffffffffffffe exceed the 64-bit "
                 "address space");
    expect_ok(try_add(mmu, "x", UINT64_MAX - 1, 1));
    mem_mmu_destroy(mmu);
}

static void an_empty_mapping_has_no_addresses_and_can_be_found(void **state)
{
    (void)state;
    mem_mmu *mmu = make(1, 1);
    mem_mapping_id id = map(mmu, "none", 0x2000, 0, NULL, 0);
    mem_mmu_install(mmu, id, 0, 0);
    assert_int_equal(mem_mmu_installed(mmu, id), 1);
    assert_int_equal(mem_mmu_find(mmu, 0x2000), id);
    expect_nothing_at(mmu, 0, 0, 0x2000);
    expect_error(mem_mmu_fault(mmu, "k", 0, 0, 0x2000), KB_ERR_FAULT,
                 "k on sip1.cube0.pe0: address 0x2000 is not mapped: it is just past the end of "
                 "tensor 'none' (0x2000 to 0x2000)");
    expect_ok(try_add(mmu, "below", 0x1000, 0x1000));
    kb_error *err = try_add(mmu, "same", 0x2000, 1);
    assert_int_equal(kb_error_code(err), KB_ERR_INPUT);
    kb_error_free(err);
    expect_ok(try_add(mmu, "above", 0x2001, 0x1000));
    mem_mmu_drop(mmu, id);
    assert_int_equal(mem_mmu_find(mmu, 0x2000), 0);
    mem_mmu_destroy(mmu);
}

static void mappings_are_found_by_where_they_start(void **state)
{
    (void)state;
    const kb_location copy = hbm(0, 0, 0);
    mem_mmu *mmu = make(1, 1);
    assert_int_equal(mem_mmu_find(mmu, 0), 0);
    mem_mapping_id b = map(mmu, "b", 0x2000, 16, &copy, 1);
    mem_mapping_id a = map(mmu, "a", 0x1000, 16, &copy, 1);
    mem_mapping_id c = map(mmu, "c", 0x3000, 16, &copy, 1);
    assert_int_equal(mem_mmu_find(mmu, 0x1000), a);
    assert_int_equal(mem_mmu_find(mmu, 0x2000), b);
    assert_int_equal(mem_mmu_find(mmu, 0x3000), c);
    assert_int_equal(mem_mmu_find(mmu, 0x1001), 0);
    assert_int_equal(mem_mmu_find(mmu, 0xfff), 0);
    mem_mmu_drop(mmu, b);
    assert_int_equal(mem_mmu_find(mmu, 0x2000), 0);
    assert_int_equal(mem_mmu_find(mmu, 0x3000), c); /* others keep their ids */
    mem_mapping_id d = map(mmu, "d", 0x2000, 16, &copy, 1);
    assert_int_equal(mem_mmu_installed(mmu, d), 0);
    assert_int_equal(mem_mmu_find(mmu, 0x2000), d);
    assert_int_equal(mem_mmu_find(mmu, 0x1000), a);
    mem_mmu_destroy(mmu);
}

static void a_dropped_mapping_is_gone_wherever_it_was_installed(void **state)
{
    (void)state;
    const kb_location copy = hbm(0, 0, 0);
    mem_mmu *mmu = make(2, 70);
    mem_mapping_id id = map(mmu, "x", 0x1000, 16, &copy, 1);
    install_everywhere(mmu, id, 2, 70);
    mem_mmu_drop(mmu, id);
    for (uint32_t pe = 0; pe < 70; pe++)
        expect_nothing_at(mmu, 1, pe, 0x1000);
    id = map(mmu, "y", 0x1000, 16, &copy, 1); /* a new one starts from nothing */
    assert_int_equal(mem_mmu_installed(mmu, id), 0);
    for (uint32_t pe = 0; pe < 70; pe++)
        expect_nothing_at(mmu, 1, pe, 0x1000);
    mem_mmu_destroy(mmu);
}

static void extents_that_make_no_sense_are_a_bug(void **state)
{
    (void)state;
    const kb_location copies[] = {
        hbm(0, 0, 0), hbm(1, 0, 0), hbm(0, 1, 0), {KB_VIRTUAL, {SIP, 2, 0}, 0}};
    static const struct {
        mem_extent extents[2];
        size_t count;
    } cases[] = {
        {{{0, 0, 0, 1}}, 1},               /* empty */
        {{{0, 17, 0, 1}}, 1},              /* larger than the mapping */
        {{{9, 8, 0, 1}}, 1},               /* beyond its end */
        {{{17, 1, 0, 1}}, 1},              /* behind it */
        {{{UINT64_MAX, 2, 0, 1}}, 1},      /* round the end of numbers */
        {{{0, 8, 0, 1}, {7, 8, 0, 1}}, 2}, /* overlapping */
        {{{8, 8, 0, 1}, {0, 8, 0, 1}}, 2}, /* in the wrong order */
        {{{0, 8, 0, 0}}, 1},               /* no copy */
        {{{0, 8, 5, 1}}, 1},               /* copies that are not there */
        {{{0, 8, 4, 1}}, 1},
        {{{0, 8, SIZE_MAX, 2}}, 1}, /* the same */
        {{{0, 8, 1, 2}}, 1},        /* copies in the wrong order */
        {{{0, 8, 3, 1}}, 1},        /* memory that is none */
    };
    mem_mmu *mmu = make(3, 2);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const mem_mapping_spec spec = {.name = "x",
                                       .va = 0x1000,
                                       .bytes = 16,
                                       .extents = cases[i].extents,
                                       .extent_count = cases[i].count,
                                       .copies = copies,
                                       .copy_count = 4};
        mem_mapping_id id;
        kb_error *err = mem_mmu_add(mmu, &spec, &id);
        if (kb_error_code(err) != KB_ERR_BUG)
            fail_msg("case %zu was taken", i);
        kb_error_free(err);
    }
    expect_nothing_at(mmu, 0, 0, 0x1000);
    assert_int_equal(mem_mmu_find(mmu, 0x1000), 0);
    mem_mmu_destroy(mmu);
}

/* ---- Faults ------------------------------------------------------------------------------ */

static void a_fault_names_kernel_pe_address_and_nearest_tensor(void **state)
{
    (void)state;
    mem_mmu *mmu;
    expect_ok(mem_mmu_create(0, 4, 8, &mmu));
    const uint64_t base = MEM_VA_BASE;
    expect_error(mem_mmu_fault(mmu, "gemm", 3, 5, base), KB_ERR_FAULT,
                 "gemm on sip0.cube3.pe5: address 0x100000000 is not mapped: no tensor is "
                 "mapped");
    const kb_location copy = {KB_HBM, {0, 0, 0}, 0};
    mem_mapping_id x = map(mmu, "x", base, 0x1000, &copy, 1);
    install_everywhere(mmu, x, 4, 8);
    map(mmu, "y", base + 0x10000, 0x1000, &copy, 1);
    expect_error(mem_mmu_fault(mmu, "gemm", 3, 5, base + 0x2000), KB_ERR_FAULT,
                 "gemm on sip0.cube3.pe5: address 0x100002000 is not mapped: it is 0x1000 bytes "
                 "past the end of tensor 'x' (0x100000000 to 0x100001000)");
    expect_error(mem_mmu_fault(mmu, "gemm", 3, 5, base + 0xfff0), KB_ERR_FAULT,
                 "gemm on sip0.cube3.pe5: address 0x10000fff0 is not mapped: it is 0x10 bytes "
                 "before the start of tensor 'y' (0x100010000 to 0x100011000)");
    expect_error(mem_mmu_fault(mmu, "gemm", 3, 5, 0), KB_ERR_FAULT,
                 "gemm on sip0.cube3.pe5: address 0x0 is not mapped: it is 0x100000000 bytes "
                 "before the start of tensor 'x' (0x100000000 to 0x100001000)");
    expect_error(mem_mmu_fault(mmu, "gemm", 3, 5, UINT64_MAX), KB_ERR_FAULT,
                 "gemm on sip0.cube3.pe5: address 0xffffffffffffffff is not mapped: it is "
                 "0xfffffffefffeefff bytes past the end of tensor 'y' (0x100010000 to "
                 "0x100011000)");
    mem_mmu_destroy(mmu);
}

static void of_two_equally_near_the_lower_one_is_named(void **state)
{
    (void)state;
    mem_mmu *mmu = make(1, 1);
    expect_ok(try_add(mmu, "low", 0x1000, 0x10));
    expect_ok(try_add(mmu, "high", 0x1030, 0x10));
    expect_error(mem_mmu_fault(mmu, "k", 0, 0, 0x1020), KB_ERR_FAULT,
                 "k on sip1.cube0.pe0: address 0x1020 is not mapped: it is 0x10 bytes past the end "
                 "of tensor 'low' (0x1000 to 0x1010)");
    expect_error(mem_mmu_fault(mmu, "k", 0, 0, 0x1021), KB_ERR_FAULT,
                 "k on sip1.cube0.pe0: address 0x1021 is not mapped: it is 0xf bytes before the "
                 "start of tensor 'high' (0x1030 to 0x1040)");
    mem_mmu_destroy(mmu);
}

static void a_fault_inside_a_tensor_says_what_is_missing(void **state)
{
    (void)state;
    const kb_location copy = hbm(0, 0, 0);
    const mem_extent extent = {0, 8, 0, 1};
    mem_mmu *mmu = make(2, 2);
    mem_mapping_id id;
    expect_ok(mem_mmu_add(mmu,
                          &(mem_mapping_spec){.name = "x",
                                              .va = 0x1000,
                                              .bytes = 16,
                                              .extents = &extent,
                                              .extent_count = 1,
                                              .copies = &copy,
                                              .copy_count = 1},
                          &id));
    expect_error(mem_mmu_fault(mmu, "k", 1, 0, 0x1007), KB_ERR_FAULT,
                 "k on sip1.cube1.pe0: address 0x1007 is not mapped: it lies in tensor 'x' "
                 "(0x1000 to 0x1010), which is not mapped in this PE (yet, or no longer)");
    mem_mmu_install(mmu, id, 1, 0);
    expect_error(mem_mmu_fault(mmu, "k", 1, 0, 0x1008), KB_ERR_FAULT,
                 "k on sip1.cube1.pe0: address 0x1008 is not mapped: it lies in tensor 'x' "
                 "(0x1000 to 0x1010), which has no memory at this address");
    expect_error(mem_mmu_fault(mmu, "k", 1, 1, 0x1000), KB_ERR_FAULT,
                 "k on sip1.cube1.pe1: address 0x1000 is not mapped: it lies in tensor 'x' "
                 "(0x1000 to 0x1010), which is not mapped in this PE (yet, or no longer)");
    mem_mmu_uninstall(mmu, id, 1, 0);
    expect_error(mem_mmu_fault(mmu, "k", 1, 0, 0x1008), KB_ERR_FAULT,
                 "k on sip1.cube1.pe0: address 0x1008 is not mapped: it lies in tensor 'x' "
                 "(0x1000 to 0x1010), which is not mapped in this PE (yet, or no longer)");
    mem_mmu_destroy(mmu);
}

static void a_fault_near_something_without_a_name_says_so(void **state)
{
    (void)state;
    mem_mmu *mmu = make(1, 1);
    expect_ok(try_add(mmu, NULL, 0x1000, 16));
    expect_error(mem_mmu_fault(mmu, "two\nlines", 0, 0, 0x1011), KB_ERR_FAULT,
                 "two\\n"
                 "lines on sip1.cube0.pe0: address 0x1011 is not mapped: it is 0x1 bytes past "
                 "the end of a mapping without a tensor (0x1000 to 0x1010)");
    mem_mmu_destroy(mmu);
}

/* ---- What is where ----------------------------------------------------------------------- */

static void expect_owner(const mem_mmu *mmu, kb_location at, const char *text, uint64_t va)
{
    mem_mapped owner;
    uint64_t found = 0;
    kb_text said = KB_TEXT_INIT;
    if (mem_mmu_find_owner(mmu, &at, &owner, &found))
        mem_mapped_print(&owner, &said);
    assert_string_equal(kb_text_peek(&said), text);
    assert_int_equal(found, va);
    kb_text_fini(&said);
}

/* A tensor in two pieces, of which the first has two copies; a range that is no tensor over it. */
static void memory_has_an_owner(void **state)
{
    (void)state;
    mem_mmu *mmu = make(3, 2);
    const mem_extent extents[] = {{0, 16, 0, 2}, {16, 8, 2, 1}};
    kb_location copies[] = {hbm(0, 0, 0x100), hbm(1, 0, 0x200), hbm(2, 1, 0x300)};
    mem_mapping_spec spec = {.va = 0x8000, .bytes = 16, .extents = extents, .extent_count = 1};
    spec.copies = copies;
    spec.copy_count = 2;
    mem_mapping_id id;
    expect_ok(mem_mmu_add(mmu, &spec, &id));
    expect_owner(mmu, hbm(0, 0, 0x10f), "a mapping without a tensor (0x8000 to 0x8010)", 0x800f);
    spec = (mem_mapping_spec){.name = "x",
                              .va = 0x9000,
                              .bytes = 24,
                              .extents = extents,
                              .extent_count = 2,
                              .copies = copies,
                              .copy_count = 3,
                              .has_dtype = true,
                              .dtype = KB_BF16};
    expect_ok(mem_mmu_add(mmu, &spec, &id));
    static const char x[] = "tensor 'x' (bf16, 0x9000 to 0x9018)";
    expect_owner(mmu, hbm(0, 0, 0x100), x, 0x9000); /* the tensor goes first */
    expect_owner(mmu, hbm(1, 0, 0x20f), x, 0x900f);
    expect_owner(mmu, hbm(2, 1, 0x307), x, 0x9017);
    expect_owner(mmu, hbm(2, 1, 0x308), "", 0);
    expect_owner(mmu, hbm(0, 1, 0x100), "", 0);
    mem_mapped mapped;
    assert_true(mem_mmu_get_mapped(mmu, 0x9017, &mapped));
    assert_int_equal(mapped.dtype, KB_BF16);
    assert_false(mem_mmu_get_mapped(mmu, 0x9018, &mapped));
    mem_mmu_destroy(mmu);
}

/* ---- The memory of the host -------------------------------------------------------------- */

static void use_does_not_grow_with_time(void **state)
{
    (void)state;
    enum { alive = 50 };
    const int rounds = RUNNING_ON_VALGRIND ? 500 : 50000;
    const kb_location copy = hbm(0, 0, 0);
    mem_mmu *mmu = make(2, 40);
    mem_mapping_id ids[alive];
    for (uint64_t i = 0; i < alive; i++)
        ids[i] = map(mmu, "x", i * 0x1000, 16, &copy, 1);
    size_t blocks = failing_alloc_live();
    kb_rng rng;
    kb_rng_init(&rng, test_seed(5));
    for (int round = 0; round < rounds; round++) {
        uint64_t which = kb_rng_below(&rng, alive);
        mem_mmu_install(mmu, ids[which], 1, 39);
        mem_mmu_drop(mmu, ids[which]);
        ids[which] = map(mmu, "x", which * 0x1000, 16, &copy, 1);
        assert_in_range(ids[which], 1, alive);
    }
    assert_int_equal(failing_alloc_live(), blocks);
    mem_mmu_destroy(mmu);
}

static int failures;

/* True if it worked; lack of memory is the one way to fail. */
static bool went_well(kb_error *err)
{
    if (!err)
        return true;
    assert_int_equal(kb_error_code(err), KB_ERR_HOST);
    kb_error_free(err);
    failures++;
    return false;
}

static void work_with_little_memory(void)
{
    const kb_location copies[] = {hbm(0, 0, 0), hbm(1, 0, 0)};
    const mem_extent extent = {0, 16, 0, 2};
    mem_mmu *mmu;
    if (!went_well(mem_mmu_create(SIP, 2, 2, &mmu)))
        return;
    for (uint64_t i = 0; i < 20; i++) {
        mem_mapping_id id;
        const mem_mapping_spec spec = {.name = i % 2 ? "x" : NULL,
                                       .va = (i * 7 % 20) * 16,
                                       .bytes = 16,
                                       .extents = &extent,
                                       .extent_count = 1,
                                       .copies = copies,
                                       .copy_count = 2};
        bool added = went_well(mem_mmu_add(mmu, &spec, &id));
        assert_int_equal(id != 0, added);
        assert_int_equal(mem_mmu_find(mmu, spec.va), id);
        if (!added)
            continue;
        kb_error *err = mem_mmu_fault(mmu, "k", 1, 1, spec.va);
        assert_true(kb_error_code(err) == KB_ERR_HOST ||
                    !!strstr(kb_error_message(err), "tensor 'x'") == (spec.name != NULL));
        kb_error_free(err);
        mem_mmu_install(mmu, id, 1, 1);
        expect_at(mmu, 1, 1, spec.va, copies[1], 16);
        if (i % 5 == 4)
            mem_mmu_drop(mmu, id);
    }
    /* Errors are errors, be they about what was asked or about memory. */
    mem_mapping_id id;
    kb_error *err = mem_mmu_add(mmu,
                                &(mem_mapping_spec){.name = "big",
                                                    .va = 0,
                                                    .bytes = 1 << 20,
                                                    .extents = &extent,
                                                    .extent_count = 1,
                                                    .copies = copies,
                                                    .copy_count = 2},
                                &id);
    failures += kb_error_code(err) == KB_ERR_HOST;
    assert_true(kb_error_code(err) == KB_ERR_INPUT || kb_error_code(err) == KB_ERR_HOST);
    kb_error_free(err);
    err = mem_mmu_fault(mmu, "k", 0, 0, 0);
    failures += kb_error_code(err) == KB_ERR_HOST;
    assert_true(kb_error_code(err) == KB_ERR_FAULT || kb_error_code(err) == KB_ERR_HOST);
    kb_error_free(err);
    mem_mmu_destroy(mmu);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    failures = 0;
    failing_alloc_try_all(work_with_little_memory);
    assert_true(failures > 100);
}

static void nothing_to_destroy(void **state)
{
    (void)state;
    mem_mmu_destroy(NULL);
}

/* ---- Misuse ------------------------------------------------------------------------------ */

static void drop_twice(void)
{
    const kb_location copy = hbm(0, 0, 0);
    mem_mmu *mmu = make(1, 1);
    mem_mapping_id id = map(mmu, "x", 0, 16, &copy, 1);
    mem_mmu_drop(mmu, id);
    mem_mmu_drop(mmu, id);
}

static mem_mmu *volatile kept; /* so that memcheck does not count it as lost at the abort */

static void install_nothing(void)
{
    kept = make(1, 1);
    mem_mmu_install(kept, 0, 0, 0);
}

static void install_what_never_was(void)
{
    kept = make(1, 1);
    mem_mmu_install(kept, 1, 0, 0);
}

static void install_nowhere(void)
{
    const kb_location copy = hbm(0, 0, 0);
    mem_mmu *mmu = make(2, 2);
    mem_mmu_install(mmu, map(mmu, "x", 0, 16, &copy, 1), 0, 2);
}

static void misuse_is_caught(void **state)
{
    (void)state;
    expect_abort(drop_twice, "assertion failed: id != 0");
    expect_abort(install_nothing, "assertion failed: id != 0");
    expect_abort(install_what_never_was, "assertion failed: id != 0");
    expect_abort(install_nowhere, "assertion failed: cube < mmu->cubes && pe < mmu->pes");
}

/* By any address of it, not behind its end. */
static void a_mapping_is_described_by_its_addresses(void **state)
{
    (void)state;
    mem_mmu *mmu = make(1, 1);
    const mem_extent extent = {0, 16, 0, 1};
    const kb_location copy = hbm(0, 0, 0);
    mem_mapping_id id;
    mem_mapping_spec spec = {.name = "x",
                             .va = 0x1000,
                             .bytes = 16,
                             .extents = &extent,
                             .extent_count = 1,
                             .copies = &copy,
                             .copy_count = 1,
                             .has_dtype = true,
                             .dtype = KB_F32};
    expect_ok(mem_mmu_add(mmu, &spec, &id));
    mem_mapped found;
    for (uint64_t va = 0x1000; va < 0x1010; va++) {
        assert_true(mem_mmu_get_mapped(mmu, va, &found));
        assert_string_equal(found.name, "x");
        assert_true(found.has_dtype && found.dtype == KB_F32);
        assert_true(found.va == 0x1000 && found.end == 0x1010);
    }
    assert_false(mem_mmu_get_mapped(mmu, 0xfff, &found));
    assert_false(mem_mmu_get_mapped(mmu, 0x1010, &found));
    mem_mmu_drop(mmu, id);
    assert_false(mem_mmu_get_mapped(mmu, 0x1000, &found));
    mem_mmu_destroy(mmu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mapping_means_nothing_until_it_is_installed),
        cmocka_unit_test(a_mapping_is_described_by_its_addresses),
        cmocka_unit_test(a_replicated_tensor_means_the_own_copy_everywhere),
        cmocka_unit_test(a_pe_without_a_copy_takes_one_of_its_cube_or_any),
        cmocka_unit_test(pes_are_spread_by_their_number_in_the_sip),
        cmocka_unit_test(copies_on_other_sips_are_no_ones_own),
        cmocka_unit_test(an_address_is_found_in_its_extent),
        cmocka_unit_test(a_mapping_may_be_as_large_as_addresses_go),
        cmocka_unit_test(names_extents_and_copies_are_copied),
        cmocka_unit_test(an_overlap_is_refused),
        cmocka_unit_test(a_range_beyond_64_bits_is_refused),
        cmocka_unit_test(an_empty_mapping_has_no_addresses_and_can_be_found),
        cmocka_unit_test(mappings_are_found_by_where_they_start),
        cmocka_unit_test(a_dropped_mapping_is_gone_wherever_it_was_installed),
        cmocka_unit_test(extents_that_make_no_sense_are_a_bug),
        cmocka_unit_test(memory_has_an_owner),
        cmocka_unit_test(a_fault_names_kernel_pe_address_and_nearest_tensor),
        cmocka_unit_test(of_two_equally_near_the_lower_one_is_named),
        cmocka_unit_test(a_fault_inside_a_tensor_says_what_is_missing),
        cmocka_unit_test(a_fault_near_something_without_a_name_says_so),
        cmocka_unit_test(use_does_not_grow_with_time),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(nothing_to_destroy),
        cmocka_unit_test(misuse_is_caught),
    };
    return cmocka_run_group_tests_name("mmu", tests, NULL, NULL);
}
