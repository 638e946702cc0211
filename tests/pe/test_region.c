/* test_region.c: arrays in virtual memory, against a byte-by-byte model, and how few rectangles
 * they are. */
#include "support/expect.h"
#include "support/failing_alloc.h"
#include "support/seed.h"

#include "pe/region.h"
#include "topo/random_machines.h"

static const char small_machine[] =
    "system: { sips: { count: 1 } }\n"
    "sip: { cube_mesh: { w: 2, h: 1 } }\n"
    "cube: { noc: { k: 1 }, pe_layout: { pe_per_router: 2 }, hbm_gib: 2 }\n";

#define VA MEM_VA_BASE
static const kb_pe pe = {0, 0, 1};
static const uint64_t slice_bytes = (uint64_t)1 << 30;

typedef struct rig {
    topo_machine *machine;
    mem_memories *memories;
    mem_mmu *mmu;
    pe_rects rects;
} rig;

static rig make(void)
{
    rig r = {.machine = machine_of(small_machine)};
    expect_ok(mem_memories_create(r.machine, TOPO_NONE, &r.memories));
    expect_ok(mem_mmu_create(0, 2, 2, &r.mmu));
    return r;
}

static void drop(rig *r)
{
    kb_vec_fini(&r->rects);
    mem_mmu_destroy(r->mmu);
    mem_memories_destroy(r->memories);
    topo_machine_destroy(r->machine);
}

/* Maps `bytes` at `va` there, for the PE. */
static void map(rig *r, uint64_t va, uint64_t bytes, kb_memory memory, uint32_t cube,
                uint64_t offset)
{
    mem_extent extent = {.bytes = bytes, .copy_count = 1};
    kb_location copy = {.memory = memory, .pe = {0, cube, 0}, .offset = offset};
    mem_mapping_spec spec = {.name = "t",
                             .va = va,
                             .bytes = bytes,
                             .extents = &extent,
                             .extent_count = 1,
                             .copies = &copy,
                             .copy_count = 1};
    mem_mapping_id id;
    expect_ok(mem_mmu_add(r->mmu, &spec, &id));
    mem_mmu_install(r->mmu, id, pe.cube, pe.pe);
}

static pe_region packed(uint64_t va, uint32_t element_bytes, uint32_t rank, const uint64_t *dims)
{
    pe_region region = {.va = va, .element_bytes = element_bytes, .rank = rank};
    uint64_t stride = 1;
    for (uint32_t d = rank; d-- > 0;) {
        region.dims[d] = dims[d];
        region.strides[d] = stride;
        stride *= dims[d];
    }
    return region;
}

static kb_error *resolve(rig *r, const pe_region *region)
{
    r->rects.count = 0;
    return pe_region_resolve(r->mmu, r->memories, pe, "kernel k", region, &r->rects);
}

static void expect_rects(rig *r, const pe_region *region, const mem_rect *expected, size_t count)
{
    expect_ok(resolve(r, region));
    assert_int_equal(r->rects.count, count);
    for (size_t i = 0; i < count; i++) {
        const mem_rect *got = &r->rects.items[i], *want = &expected[i];
        assert_true(mem_same_memory(&got->at, &want->at));
        assert_int_equal(got->at.offset, want->at.offset);
        assert_int_equal(got->row, want->row);
        assert_int_equal(got->rows, want->rows);
        assert_int_equal(got->column, want->column);
        assert_int_equal(got->bytes, want->bytes);
        if (want->rows > 1)
            assert_int_equal(got->stride, want->stride);
    }
}

static mem_rect rect(uint32_t cube, uint64_t offset, uint64_t row, uint64_t rows, uint64_t stride,
                     uint64_t column, uint64_t bytes)
{
    return (mem_rect){.at = {.memory = KB_HBM, .pe = {0, cube, 0}, .offset = offset},
                      .stride = stride,
                      .row = row,
                      .rows = rows,
                      .column = column,
                      .bytes = bytes};
}

/* ---- How many rectangles ----------------------------------------------------------------- */

static void what_is_contiguous_is_one_rectangle(void **state)
{
    (void)state;
    rig r = make();
    map(&r, VA, 1 << 20, KB_HBM, 0, 5000);
    pe_region region = packed(VA + 16, 2, 4, (uint64_t[]){3, 5, 7, 11});
    expect_rects(&r, &region, (mem_rect[]){rect(0, 5016, 0, 105, 22, 0, 22)}, 1);
    region = packed(VA, 4, 1, (uint64_t[]){1000});
    expect_rects(&r, &region, (mem_rect[]){rect(0, 5000, 0, 1, 0, 0, 4000)}, 1);
    region = packed(VA + 8, 8, 0, NULL); /* one element */
    expect_rects(&r, &region, (mem_rect[]){rect(0, 5008, 0, 1, 0, 0, 8)}, 1);
    region = packed(VA, 1, 3, (uint64_t[]){1, 6, 1});
    expect_rects(&r, &region, (mem_rect[]){rect(0, 5000, 0, 6, 1, 0, 1)}, 1);
    drop(&r);
}

/* Rows of 10 elements out of 100, evenly spaced; then every other matrix of such rows; then all
 * rows the same. */
static void rows_of_one_stride_are_one_rectangle(void **state)
{
    (void)state;
    rig r = make();
    map(&r, VA, 1 << 20, KB_HBM, 0, 0);
    pe_region region = {
        .va = VA + 20, .element_bytes = 2, .rank = 3, .dims = {3, 8, 10}, .strides = {800, 100, 1}};
    expect_rects(&r, &region, (mem_rect[]){rect(0, 20, 0, 24, 200, 0, 20)}, 1);
    region.strides[0] = 1600;
    expect_rects(&r, &region,
                 (mem_rect[]){rect(0, 20, 0, 8, 200, 0, 20), rect(0, 3220, 8, 8, 200, 0, 20),
                              rect(0, 6420, 16, 8, 200, 0, 20)},
                 3);
    region.strides[0] = region.strides[1] = 0;
    expect_rects(&r, &region, (mem_rect[]){rect(0, 20, 0, 24, 0, 0, 20)}, 1);
    drop(&r);
}

/* Elements that are not next to each other: each column is a rectangle. */
static void a_transposed_array_is_a_rectangle_a_column(void **state)
{
    (void)state;
    rig r = make();
    map(&r, VA, 1 << 20, KB_HBM, 0, 0);
    pe_region region = {
        .va = VA, .element_bytes = 4, .rank = 2, .dims = {50, 2}, .strides = {1, 50}};
    expect_rects(&r, &region,
                 (mem_rect[]){rect(0, 0, 0, 50, 4, 0, 4), rect(0, 200, 0, 50, 4, 4, 4)}, 2);
    drop(&r);
}

/* 100 bytes are in one place and the rest in another, which cuts the third row of 40 bytes. If the
 * rest follows in the same memory nothing is cut. */
static void a_row_is_cut_where_an_extent_ends(void **state)
{
    (void)state;
    pe_region region = packed(VA, 1, 2, (uint64_t[]){6, 40});
    rig r = make();
    map(&r, VA, 100, KB_HBM, 0, 7000);
    map(&r, VA + 100, 4096, KB_HBM, 1, 0);
    expect_rects(&r, &region,
                 (mem_rect[]){rect(0, 7000, 0, 2, 40, 0, 40), rect(0, 7080, 2, 1, 0, 0, 20),
                              rect(1, 0, 2, 1, 0, 20, 20), rect(1, 20, 3, 3, 40, 0, 40)},
                 4);
    drop(&r);
    r = make();
    map(&r, VA, 100, KB_HBM, 0, 7000);
    map(&r, VA + 100, 4096, KB_HBM, 0, 7100);
    expect_rects(&r, &region, (mem_rect[]){rect(0, 7000, 0, 6, 40, 0, 40)}, 1);
    drop(&r);
}

/* A mask that leaves out the same of all rows makes a rectangle of each run; addresses of what is
 * left out are not looked at. */
static void a_mask_leaves_in_runs(void **state)
{
    (void)state;
    rig r = make();
    map(&r, VA, 64, KB_HBM, 0, 0);
    unsigned char mask[4][8] = {{0}};
    for (int row = 0; row < 3; row++)
        mask[row][1] = mask[row][2] = mask[row][6] = 1;
    pe_region region = packed(VA, 2, 2, (uint64_t[]){4, 8});
    region.mask = mask[0];
    expect_rects(&r, &region,
                 (mem_rect[]){rect(0, 2, 0, 3, 16, 2, 4), rect(0, 12, 0, 3, 16, 12, 2)}, 2);
    region.va = VA + 4096;
    memset(mask, 0, sizeof mask);
    expect_rects(&r, &region, NULL, 0);
    region.va = UINT64_MAX - 3;
    expect_rects(&r, &region, NULL, 0);
    drop(&r);
}

/* What is next to each other in memory alone stays apart: elements 0 and 2 of a row, and the first
 * of one row with the second of the next. */
static void neighbours_in_memory_need_not_be_in_the_array(void **state)
{
    (void)state;
    rig r = make();
    map(&r, VA, 4, KB_HBM, 0, 100);
    map(&r, VA + 8, 4, KB_HBM, 0, 104);
    map(&r, VA + 12, 4, KB_HBM, 0, 104);
    pe_region region = packed(VA, 4, 1, (uint64_t[]){3});
    region.mask = (const unsigned char[]){1, 0, 1};
    expect_rects(&r, &region,
                 (mem_rect[]){rect(0, 100, 0, 1, 0, 0, 4), rect(0, 104, 0, 1, 0, 8, 4)}, 2);
    region = packed(VA, 4, 2, (uint64_t[]){2, 2});
    region.mask = (const unsigned char[]){1, 0, 0, 1};
    expect_rects(&r, &region,
                 (mem_rect[]){rect(0, 100, 0, 1, 0, 0, 4), rect(0, 104, 1, 1, 0, 4, 4)}, 2);
    drop(&r);
}

static void nothing_is_nothing(void **state)
{
    (void)state;
    rig r = make();
    pe_region region = packed(VA, 2, 3, (uint64_t[]){5, 0, 7});
    expect_rects(&r, &region, NULL, 0);
    region.dims[0] = region.dims[2] = UINT64_MAX;
    expect_rects(&r, &region, NULL, 0);
    drop(&r);
}

/* What is in the list already stays as it is. */
static void rectangles_are_appended(void **state)
{
    (void)state;
    rig r = make();
    map(&r, VA, 4096, KB_HBM, 0, 0);
    static const unsigned char second_row[20] = {[10] = 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    pe_region region = packed(VA, 1, 1, (uint64_t[]){10});
    expect_ok(resolve(&r, &region));
    region = packed(VA, 1, 2, (uint64_t[]){2, 10});
    region.mask = second_row; /* continues the first, but it is another array */
    expect_ok(pe_region_resolve(r.mmu, r.memories, pe, "k", &region, &r.rects));
    assert_int_equal(r.rects.count, 2);
    assert_int_equal(r.rects.items[0].rows, 1);
    assert_int_equal(r.rects.items[1].at.offset, 10);
    assert_int_equal(r.rects.items[1].row, 1);
    drop(&r);
}

/* ---- Faults ------------------------------------------------------------------------------ */

static void expect_fault(rig *r, const pe_region *region, uint64_t va)
{
    kb_error *fault = mem_mmu_fault(r->mmu, "kernel k", pe.cube, pe.pe, va);
    expect_error(resolve(r, region), KB_ERR_FAULT, kb_error_message(fault));
    kb_error_free(fault);
}

static void faults_name_the_address(void **state)
{
    (void)state;
    rig r = make();
    map(&r, VA, 100, KB_HBM, 0, 0);
    map(&r, VA + 200, 100, KB_HBM, 0, 200);
    pe_region region = packed(VA, 4, 2, (uint64_t[]){5, 10});
    expect_fault(&r, &region, VA + 100); /* in the middle of the third row */
    region.va = VA - 4;
    expect_fault(&r, &region, VA - 4);
    region.va = VA;
    region.dims[0] = 3;
    region.strides[0] = 60; /* the second row has 40 bytes at VA + 240, the third is at 480 */
    expect_fault(&r, &region, VA + 480);
    drop(&r);
}

static void what_is_mapped_outside_a_memory_is_a_fault(void **state)
{
    (void)state;
    rig r = make();
    map(&r, VA, 4096, KB_HBM, 0, slice_bytes - 100);
    pe_region region = packed(VA, 1, 1, (uint64_t[]){100});
    expect_ok(resolve(&r, &region));
    region.dims[0] = 101;
    expect_error(resolve(&r, &region), KB_ERR_FAULT,
                 "kernel k on sip0.cube0.pe1: out of bounds: 101 bytes at "
                 "sip0.cube0.pe0.hbm+0x3fffff9c; the capacity of the memory is 1073741824");
    drop(&r);
}

/* Neither addresses nor the way to them wrap around to something that is mapped. */
static void addresses_do_not_wrap(void **state)
{
    (void)state;
    static const char message[] = "kernel k on sip0.cube0.pe1: the array at 0x100000000 "
                                  "exceeds the 64-bit address space";
    rig r = make();
    map(&r, VA, 4096, KB_HBM, 0, 0);
    pe_region region = {
        .va = VA, .element_bytes = 8, .rank = 2, .dims = {2, 4}, .strides = {(uint64_t)1 << 61, 1}};
    expect_error(resolve(&r, &region), KB_ERR_FAULT, message); /* 2^64 bytes on is VA again */
    region.strides[0] = UINT64_MAX;
    expect_error(resolve(&r, &region), KB_ERR_FAULT, message);
    region.dims[0] = UINT64_MAX; /* more elements than can be counted */
    region.strides[0] = 0;
    expect_error(resolve(&r, &region), KB_ERR_FAULT, message);
    region = (pe_region){.va = VA,
                         .element_bytes = 8,
                         .rank = 2,
                         .dims = {(uint64_t)1 << 62, 1},
                         .strides = {UINT64_MAX, 1}};
    expect_error(resolve(&r, &region), KB_ERR_FAULT, message);
    region = packed(UINT64_MAX - 3, 4, 1, (uint64_t[]){4});
    expect_fault(&r, &region, UINT64_MAX - 3);
    drop(&r);
}

/* ---- Against a model --------------------------------------------------------------------- */

enum { SPACE = 3000, MAX_PACKED = 4096 };

/* A space of SPACE bytes: mappings of random sizes, some in pieces that follow each other in
 * memory, with holes now and then. */
static void map_at_random(rig *r, kb_rng *rng)
{
    uint64_t next[2] = {0, 0};
    for (uint64_t at = 0; at < SPACE;) {
        uint64_t bytes = 1 + kb_rng_below(rng, kb_rng_below(rng, 3) ? 200 : 2000);
        uint32_t cube = (uint32_t)kb_rng_below(rng, 2);
        if (kb_rng_below(rng, 2))
            next[cube] += kb_rng_below(rng, 100);
        if (kb_rng_below(rng, 12) > 0)
            map(r, VA + at, bytes, KB_HBM, cube, next[cube]);
        next[cube] += bytes;
        at += bytes;
    }
}

static pe_region random_region(kb_rng *rng, unsigned char *mask)
{
    static const uint32_t sizes[] = {1, 2, 4, 8};
    pe_region region = {.va = VA + kb_rng_below(rng, SPACE / 2),
                        .element_bytes = sizes[kb_rng_below(rng, 4)],
                        .rank = (uint32_t)kb_rng_below(rng, 5)};
    uint64_t stride = 1, elements = 1;
    for (uint32_t d = region.rank; d-- > 0;) {
        region.dims[d] = kb_rng_below(rng, 30) == 0 ? 0 : 1 + kb_rng_below(rng, d > 1 ? 12 : 5);
        region.strides[d] = kb_rng_below(rng, 3) ? stride : kb_rng_below(rng, 40);
        stride = region.strides[d] * region.dims[d] + kb_rng_below(rng, 3) / 2;
        elements *= region.dims[d];
    }
    if (kb_rng_below(rng, 2)) {
        region.mask = mask;
        uint64_t row =
            region.rank > 0 && region.dims[region.rank - 1] > 0 ? region.dims[region.rank - 1] : 1;
        for (uint64_t e = 0; e < elements; e++) /* many rows like the one before */
            mask[e] = e >= row && kb_rng_below(rng, 20) ? mask[e - row]
                                                        : (unsigned char)kb_rng_below(rng, 3);
    }
    return region;
}

/* One element at a time, one byte at a time. False if a byte is not mapped. */
static bool model(const rig *r, const pe_region *region, unsigned char *data, unsigned char *there)
{
    uint64_t elements = 1, size = region->element_bytes;
    for (uint32_t d = 0; d < region->rank; d++)
        elements *= region->dims[d];
    for (uint64_t e = 0; e < elements; e++) {
        if (region->mask && !region->mask[e])
            continue;
        uint64_t va = region->va, rest = e, run;
        for (uint32_t d = region->rank; d-- > 0; rest /= region->dims[d])
            va += rest % region->dims[d] * region->strides[d] * size;
        for (uint64_t b = 0; b < size; b++) {
            kb_location where;
            if (!mem_mmu_translate(r->mmu, pe.cube, pe.pe, va + b, &where, &run))
                return false;
            mem_memories_read(r->memories, &where, &data[e * size + b], 1);
            there[e * size + b] = 1;
        }
    }
    return true;
}

static uint64_t row_bytes(const pe_region *region)
{
    return (region->rank > 0 ? region->dims[region->rank - 1] : 1) * region->element_bytes;
}

static void mark(const pe_rects *rects, uint64_t width, unsigned char *there)
{
    for (size_t i = 0; i < rects->count; i++) {
        const mem_rect *one = &rects->items[i];
        assert_true(one->rows > 0 && one->bytes > 0 && one->column + one->bytes <= width);
        assert_in_range(mem_rect_end(one), one->at.offset + one->bytes, 3 * SPACE);
        for (uint64_t row = one->row; row < one->row + one->rows; row++)
            for (uint64_t c = one->column; c < one->column + one->bytes; c++)
                assert_int_equal(there[row * width + c]++, 0);
    }
}

/* Neighbours in the list that could have been one. */
static bool can_be_joined(const mem_rect *a, const mem_rect *b)
{
    return a->rows == 1 && b->rows == 1 && mem_same_memory(&a->at, &b->at) && a->row == b->row &&
           a->column + a->bytes == b->column && a->at.offset + a->bytes == b->at.offset;
}

static void random_arrays_are_what_the_model_says(void **state)
{
    (void)state;
    static unsigned char content[2][3 * SPACE], mask[MAX_PACKED], expected[MAX_PACKED * 8],
        got[MAX_PACKED * 8], wanted[MAX_PACKED * 8], moved[MAX_PACKED * 8];
    size_t resolved = 0;
    for (uint64_t seed = 0; seed < 60; seed++) {
        kb_rng rng;
        kb_rng_init(&rng, test_seed(seed));
        rig r = make();
        map_at_random(&r, &rng);
        for (uint32_t cube = 0; cube < 2; cube++) {
            kb_location start = {.memory = KB_HBM, .pe = {0, cube, 0}};
            for (size_t i = 0; i < sizeof content[cube]; i++)
                content[cube][i] = (unsigned char)kb_rng_u64(&rng);
            expect_ok(mem_memories_write(r.memories, &start, content[cube], sizeof content[cube]));
        }
        for (int i = 0; i < 40; i++) {
            pe_region region = random_region(&rng, mask);
            memset(expected, 0, sizeof expected);
            memset(got, 0, sizeof got);
            memset(wanted, 0, sizeof wanted);
            memset(moved, 0, sizeof moved);
            bool mapped = model(&r, &region, expected, wanted);
            kb_error *err = resolve(&r, &region);
            assert_int_equal(mapped, err == NULL);
            kb_error_free(err);
            if (!mapped)
                continue;
            resolved++;
            mark(&r.rects, row_bytes(&region), moved);
            mem_rects_read(r.memories, r.rects.items, r.rects.count, got, row_bytes(&region));
            assert_memory_equal(moved, wanted, sizeof moved);
            assert_memory_equal(got, expected, sizeof got);
            for (size_t j = 1; j < r.rects.count; j++)
                assert_false(can_be_joined(&r.rects.items[j - 1], &r.rects.items[j]));
        }
        drop(&r);
    }
    assert_true(resolved > 1000); /* of 2400 */
}

/* ---- No memory --------------------------------------------------------------------------- */

static rig shared;

static void try_without_memory(void)
{
    pe_region region = {
        .va = VA, .element_bytes = 1, .rank = 2, .dims = {2, 40}, .strides = {100, 2}};
    pe_rects rects = {0};
    kb_error *err = pe_region_resolve(shared.mmu, shared.memories, pe, "k", &region, &rects);
    if (err)
        assert_int_equal(kb_error_code(err), KB_ERR_HOST);
    kb_error_free(err);
    kb_vec_fini(&rects);
}

static void lack_of_memory_is_an_error(void **state)
{
    (void)state;
    shared = make();
    map(&shared, VA, 4096, KB_HBM, 0, 0);
    failing_alloc_try_all(try_without_memory);
    drop(&shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_contiguous_is_one_rectangle),
        cmocka_unit_test(rows_of_one_stride_are_one_rectangle),
        cmocka_unit_test(a_transposed_array_is_a_rectangle_a_column),
        cmocka_unit_test(a_row_is_cut_where_an_extent_ends),
        cmocka_unit_test(a_mask_leaves_in_runs),
        cmocka_unit_test(neighbours_in_memory_need_not_be_in_the_array),
        cmocka_unit_test(nothing_is_nothing),
        cmocka_unit_test(rectangles_are_appended),
        cmocka_unit_test(faults_name_the_address),
        cmocka_unit_test(what_is_mapped_outside_a_memory_is_a_fault),
        cmocka_unit_test(addresses_do_not_wrap),
        cmocka_unit_test(random_arrays_are_what_the_model_says),
        cmocka_unit_test(lack_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
