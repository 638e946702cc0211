/*
 * test_rect.c: rectangles between memories and packed arrays, against a model that moves one byte
 * at a time.
 */
#include "mem/places.h"
#include "support/seed.h"

enum { ROWS = 12, ROW_BYTES = 40, MEMORY_BYTES = 3000 };

/* Two PEs' HBM and their cube's SRAM, as plain arrays. */
typedef struct model {
    unsigned char bytes[3][MEMORY_BYTES];
} model;

static size_t memory_of(const kb_location *where)
{
    return where->memory == KB_SRAM ? 2 : where->pe.pe;
}

static mem_rect random_rect(kb_rng *rng)
{
    mem_rect rect = {.at = at(kb_rng_below(rng, 3) ? KB_HBM : KB_SRAM, 0, 0,
                              (uint32_t)kb_rng_below(rng, 2), kb_rng_below(rng, MEMORY_BYTES / 2))};
    rect.row = kb_rng_below(rng, ROWS);
    rect.rows = kb_rng_below(rng, ROWS - rect.row + 1);
    rect.column = kb_rng_below(rng, 3) ? kb_rng_below(rng, ROW_BYTES) : 0;
    rect.bytes = kb_rng_below(rng, 3) ? kb_rng_below(rng, ROW_BYTES - rect.column + 1)
                                      : ROW_BYTES - rect.column;
    rect.stride = kb_rng_below(rng, 3) ? kb_rng_below(rng, 100) : rect.bytes;
    return rect;
}

typedef void byte_fn(void *self, size_t memory, size_t offset, size_t in_array);

static void for_each_byte(const mem_rect *rect, byte_fn *fn, void *self)
{
    for (uint64_t r = 0; r < rect->rows; r++)
        for (uint64_t i = 0; i < rect->bytes; i++)
            fn(self, memory_of(&rect->at), rect->at.offset + r * rect->stride + i,
               (rect->row + r) * ROW_BYTES + rect->column + i);
}

typedef struct transfer {
    model *memory;
    unsigned char array[ROWS * ROW_BYTES];
} transfer;

static void read_byte(void *self, size_t memory, size_t offset, size_t in_array)
{
    transfer *t = self;
    t->array[in_array] = t->memory->bytes[memory][offset];
}

static void write_byte(void *self, size_t memory, size_t offset, size_t in_array)
{
    transfer *t = self;
    t->memory->bytes[memory][offset] = t->array[in_array];
}

static void expect_memories(const mem_memories *memories, const model *expected)
{
    unsigned char bytes[MEMORY_BYTES];
    const kb_location places[] = {at(KB_HBM, 0, 0, 0, 0), at(KB_HBM, 0, 0, 1, 0),
                                  at(KB_SRAM, 0, 0, 0, 0)};
    for (size_t i = 0; i < 3; i++) {
        mem_memories_read(memories, &places[i], bytes, sizeof bytes);
        assert_memory_equal(bytes, expected->bytes[i], sizeof bytes);
    }
}

static void reading_and_writing_are_as_byte_by_byte(void **state)
{
    (void)state;
    topo_machine *machine = machine_of(SMALL_MACHINE);
    mem_memories *memories = memories_of(machine);
    kb_rng rng;
    kb_rng_init(&rng, test_seed(5));
    static model m;
    for (uint64_t n = 0; n < cases(3000); n++) {
        mem_rect rects[3];
        size_t count = kb_rng_below(&rng, 4);
        transfer t = {.memory = &m}, read = {.memory = &m};
        unsigned char got[ROWS * ROW_BYTES] = {0};
        for (size_t i = 0; i < sizeof t.array; i++)
            t.array[i] = (unsigned char)kb_rng_u64(&rng);
        for (size_t i = 0; i < count; i++) {
            rects[i] = random_rect(&rng);
            for_each_byte(&rects[i], write_byte, &t);
        }
        expect_ok(mem_rects_write(memories, rects, count, t.array, ROW_BYTES));
        if (n % 16 == 0)
            expect_memories(memories, &m);
        for (size_t i = 0; i < count; i++)
            for_each_byte(&rects[i], read_byte, &read);
        mem_rects_read(memories, rects, count, got, ROW_BYTES);
        assert_memory_equal(got, read.array, sizeof got);
    }
    expect_memories(memories, &m);
    mem_memories_destroy(memories);
    topo_machine_destroy(machine);
}

/* ---- Overlap ----------------------------------------------------------------------------- */

static void mark(void *self, size_t memory, size_t offset, size_t in_array)
{
    (void)in_array;
    model *m = self;
    m->bytes[memory][offset] = 1;
}

static void look_for_mark(void *self, size_t memory, size_t offset, size_t in_array)
{
    (void)in_array;
    transfer *t = self;
    t->array[0] |= t->memory->bytes[memory][offset];
}

static uint64_t end_of(const mem_rect *rect)
{
    return rect->at.offset + (rect->rows - 1) * rect->stride + rect->bytes;
}

static void what_has_a_byte_in_common_overlaps(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(6));
    size_t yes = 0, no = 0;
    for (uint64_t n = 0; n < 200 + cases(3000); n++) {
        mem_rect a = random_rect(&rng), b = random_rect(&rng);
        if (kb_rng_below(&rng, 2))
            b.stride = a.stride;
        static model m;
        memset(&m, 0, sizeof m);
        transfer found = {.memory = &m};
        for_each_byte(&a, mark, &m);
        for_each_byte(&b, look_for_mark, &found);
        bool told = mem_rects_overlap(&a, 1, &b, 1);
        assert_int_equal(told, mem_rects_overlap(&b, 1, &a, 1));
        assert_int_equal(told, found.array[0] != 0);
        yes += told;
        no += !told;
        if (mem_rect_bytes(&a) > 0)
            assert_int_equal(mem_rect_end(&a), end_of(&a));
    }
    assert_true(yes > 0 && no > 0);
}

static void any_pair_counts(void **state)
{
    (void)state;
    const mem_rect here = {.at = at(KB_HBM, 0, 0, 0, 100), .rows = 1, .bytes = 10};
    const mem_rect behind = {.at = at(KB_HBM, 0, 0, 0, 110), .rows = 1, .bytes = 10};
    const mem_rect elsewhere = {.at = at(KB_HBM, 0, 0, 1, 100), .rows = 1, .bytes = 10};
    const mem_rect tcm = {.at = at(KB_TCM, 0, 0, 0, 100), .rows = 1, .bytes = 10};
    const mem_rect others[] = {behind, elsewhere, tcm, here};
    assert_false(mem_rects_overlap(&here, 1, others, 3));
    assert_true(mem_rects_overlap(&here, 1, others, 4));
    assert_true(mem_rects_overlap(others, 4, &here, 1));
    assert_false(mem_rects_overlap(&here, 0, others, 4));

    /* The SRAM of a cube is one, whoever asks. */
    const mem_rect sram[] = {{.at = at(KB_SRAM, 0, 0, 0, 0), .rows = 1, .bytes = 1},
                             {.at = at(KB_SRAM, 0, 0, 2, 0), .rows = 1, .bytes = 1},
                             {.at = at(KB_SRAM, 0, 1, 0, 0), .rows = 1, .bytes = 1}};
    assert_true(mem_rects_overlap(&sram[0], 1, &sram[1], 1));
    assert_false(mem_rects_overlap(&sram[0], 1, &sram[2], 1));

    /* Columns of one array have no byte in common; the stride of a single row says nothing. */
    const mem_rect left = {.at = at(KB_HBM, 0, 0, 0, 0), .stride = 64, .rows = 4, .bytes = 8};
    const mem_rect right = {.at = at(KB_HBM, 0, 0, 0, 8), .stride = 64, .rows = 4, .bytes = 8};
    assert_false(mem_rects_overlap(&left, 1, &right, 1));
    const mem_rect single = {.at = at(KB_HBM, 0, 0, 0, 0), .stride = 1000, .rows = 1, .bytes = 8};
    assert_false(mem_rects_overlap(&single, 1, &right, 1));
    assert_int_equal(mem_rect_bytes(&left), 32);
}

/* ---- Without memory ---------------------------------------------------------------------- */

static topo_machine *poor_machine;

/* What fails can be repeated. */
static void write_in_want(void)
{
    mem_memories *memories;
    kb_error *err = mem_memories_create(poor_machine, TOPO_NONE, &memories);
    if (err) {
        kb_error_free(err);
        return;
    }
    unsigned char array[80], got[80];
    memset(array, 7, sizeof array);
    const mem_rect rects[] = {
        {.at = at(KB_HBM, 0, 0, 0, 4090), .stride = 8000, .rows = 2, .bytes = 20},
        {.at = at(KB_HBM, 0, 0, 1, 0), .stride = 20, .row = 2, .rows = 2, .bytes = 20}};
    err = mem_rects_write(memories, rects, 2, array, 20);
    if (err) {
        assert_int_equal(kb_error_code(err), KB_ERR_HOST);
        kb_error_free(err);
        err = mem_rects_write(memories, rects, 2, array, 20);
    }
    if (!err) {
        mem_rects_read(memories, rects, 2, got, 20);
        assert_memory_equal(got, array, sizeof got);
    }
    kb_error_free(err);
    mem_memories_destroy(memories);
}

static void host_memory_may_be_short(void **state)
{
    (void)state;
    poor_machine = machine_of(SMALL_MACHINE);
    failing_alloc_try_all(write_in_want);
    topo_machine_destroy(poor_machine);
}

/* Lists that are in order are looked through once; the answer is that of looking at all pairs. */
static void lists_overlap_if_a_pair_does(void **state)
{
    (void)state;
    enum { MOST = 40 };
    kb_rng rng;
    kb_rng_init(&rng, test_seed(7));
    size_t yes = 0;
    for (uint64_t n = 0; n < 100 + cases(2000); n++) {
        mem_rect lists[2][MOST];
        size_t counts[2];
        bool sorted = kb_rng_below(&rng, 4) > 0, expected = false;
        for (int i = 0; i < 2; i++) {
            uint64_t offset = kb_rng_below(&rng, 30);
            uint32_t pe = 0;
            counts[i] = kb_rng_below(&rng, MOST + 1);
            for (size_t j = 0; j < counts[i]; j++) {
                uint64_t bytes = 1 + kb_rng_below(&rng, 6);
                offset = sorted ? offset + kb_rng_below(&rng, 90) : kb_rng_below(&rng, 2000);
                pe += sorted && pe < 2 && kb_rng_below(&rng, 20) == 0;
                lists[i][j] = (mem_rect){.at = at(KB_HBM, 0, 0, pe, offset),
                                         .rows = 1 + kb_rng_below(&rng, 3),
                                         .stride = 7 + kb_rng_below(&rng, 3),
                                         .bytes = bytes};
                offset += bytes;
            }
        }
        for (size_t i = 0; i < counts[0]; i++)
            for (size_t j = 0; j < counts[1]; j++)
                expected |= mem_rects_overlap(&lists[0][i], 1, &lists[1][j], 1);
        assert_int_equal(expected, mem_rects_overlap(lists[0], counts[0], lists[1], counts[1]));
        yes += expected;
    }
    assert_true(yes > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reading_and_writing_are_as_byte_by_byte),
        cmocka_unit_test(what_has_a_byte_in_common_overlaps),
        cmocka_unit_test(any_pair_counts),
        cmocka_unit_test(lists_overlap_if_a_pair_does),
        cmocka_unit_test(host_memory_may_be_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
