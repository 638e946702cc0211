/*
 * test_composite_moves.c: what products move. Matrices are cut into rectangles in all ways and lie
 * anywhere; every command that a scheduler issues is looked at on its way to the units.
 */
#include "composite_rig.h"
#include "support/seed.h"

enum { MOST = 160, MAX_RECTS = 64, BYTES = 2 };

/* A matrix, and how often each element has been moved. */
typedef struct laid_out {
    uint64_t rows, columns;
    mem_rect rects[MAX_RECTS];
    size_t count;
    kb_location where[MOST][MOST];
    uint32_t moved[MOST][MOST];
} laid_out;

static laid_out a, b, c;

/* What the array was told to do: commands whose results are stored; bytes of the TCM. */
static uint64_t stores, results, tcm_reads, tcm_writes;

/* ---- Layouts ----------------------------------------------------------------------------- */

/* Cuts lengths into parts: the ends of each, the last one being `whole`. */
static size_t cut_into(kb_rng *rng, uint64_t whole, uint32_t parts, uint64_t ends[8])
{
    size_t count = 0;
    uint64_t at = 0;
    while (at < whole) {
        uint64_t part = count + 1 == parts ? whole - at : 1 + kb_rng_below(rng, whole - at);
        at += part;
        ends[count++] = at;
    }
    return count;
}

static void shuffle(kb_rng *rng, laid_out *x)
{
    for (size_t i = x->count; i > 1; i--) {
        size_t other = kb_rng_below(rng, i);
        mem_rect swapped = x->rects[i - 1];
        x->rects[i - 1] = x->rects[other];
        x->rects[other] = swapped;
    }
}

/* A rectangle somewhere in one of three memories, with gaps between its rows. */
static void add_rect(kb_rng *rng, laid_out *x, mem_rect r, uint64_t *offset)
{
    uint32_t memory = between(rng, 0, 2);
    r.at = (kb_location){
        .memory = memory < 2 ? KB_HBM : KB_SRAM, .pe = {0, 0, memory % 2}, .offset = *offset};
    r.stride = r.rows > 1 ? r.bytes + (uint64_t)BYTES * between(rng, 0, 9) : 12345;
    *offset = mem_rect_end(&r);
    x->rects[x->count++] = r;
    const uint64_t columns = r.bytes / BYTES;
    for (uint64_t e = 0; e < r.rows * columns; e++) {
        kb_location *where = &x->where[r.row + e / columns][r.column / BYTES + e % columns];
        *where = r.at;
        where->offset += e / columns * (r.rows > 1 ? r.stride : 0) + e % columns * BYTES;
    }
}

/* Stacks of rectangles, each stack cut in its own way; or lines of them. */
static void lay_out(kb_rng *rng, laid_out *x, uint64_t rows, uint64_t columns, uint64_t *offset)
{
    *x = (laid_out){.rows = rows, .columns = columns};
    const bool in_stacks = between(rng, 0, 1);
    uint64_t outer[8], inner[8];
    size_t outers = cut_into(rng, in_stacks ? columns : rows, between(rng, 1, 8), outer);
    for (size_t i = 0; i < outers; i++) {
        uint64_t o = i > 0 ? outer[i - 1] : 0;
        size_t inners = cut_into(rng, in_stacks ? rows : columns, between(rng, 1, 8), inner);
        for (size_t j = 0; j < inners; j++) {
            uint64_t at = j > 0 ? inner[j - 1] : 0;
            mem_rect r = {.row = in_stacks ? at : o,
                          .rows = in_stacks ? inner[j] - at : outer[i] - o,
                          .column = BYTES * (in_stacks ? o : at),
                          .bytes = BYTES * (in_stacks ? outer[i] - o : inner[j] - at)};
            add_rect(rng, x, r, offset);
        }
    }
    shuffle(rng, x);
}

/* ---- Commands ---------------------------------------------------------------------------- */

/* Finds out by its place which matrix a rectangle is of, and checks it byte for byte. */
static bool count_moved(laid_out *x, const mem_rect *r)
{
    uint64_t column = r->column / BYTES, columns = r->bytes / BYTES;
    if (r->row + r->rows > x->rows || column + columns > x->columns)
        return false;
    const kb_location *first = &x->where[r->row][column];
    if (!mem_same_memory(first, &r->at) || first->offset != r->at.offset)
        return false;
    for (uint64_t i = 0; i < r->rows; i++)
        for (uint64_t j = 0; j < columns; j++) {
            const kb_location *where = &x->where[r->row + i][column + j];
            assert_true(mem_same_memory(where, &r->at));
            assert_int_equal(where->offset,
                             r->at.offset + i * (r->rows > 1 ? r->stride : 0) + j * BYTES);
            x->moved[r->row + i][column + j]++;
        }
    return true;
}

kb_error *__real_pe_units_issue(pe_units *units, kb_pe pe, const pe_command *command, pe_op *op);
kb_error *__wrap_pe_units_issue(pe_units *units, kb_pe pe, const pe_command *command, pe_op *op);

void __real_pe_units_issue_part(pe_units *units, pe_op span, pe_part *part);
void __wrap_pe_units_issue_part(pe_units *units, pe_op span, pe_part *part);

/* The linker puts this in the place of pe_units_issue_part(). */
void __wrap_pe_units_issue_part(pe_units *units, pe_op span, pe_part *part)
{
    assert_int_equal(part->work.unit, KB_UNIT_GEMM);
    results += part->work.tail > 0;
    tcm_reads += part->work.tcm_reads;
    tcm_writes += part->work.tcm_writes;
    __real_pe_units_issue_part(units, span, part);
}

/* The linker puts this in the place of pe_units_issue(). */
kb_error *__wrap_pe_units_issue(pe_units *units, kb_pe pe, const pe_command *command, pe_op *op)
{
    assert_true(command->internal);
    assert_true(command->rect_count > 0);
    stores += command->unit == KB_UNIT_DMA_WRITE;
    for (size_t i = 0; i < command->rect_count; i++) {
        const mem_rect *r = &command->rects[i];
        assert_true(mem_rect_bytes(r) > 0);
        if (command->unit == KB_UNIT_DMA_WRITE)
            assert_true(count_moved(&c, r));
        else
            assert_true(count_moved(&a, r) || count_moved(&b, r));
    }
    return __real_pe_units_issue(units, pe, command, op);
}

/* All elements were moved equally often. */
static uint32_t times_moved(const laid_out *x)
{
    for (uint64_t i = 0; i < x->rows; i++)
        for (uint64_t j = 0; j < x->columns; j++)
            assert_int_equal(x->moved[i][j], x->moved[0][0]);
    return x->moved[0][0];
}

/*
 * Of the TCM the array reads a once for each 64 columns, b once for each row of tiles, and sums (4
 * bytes) where it adds to some; it writes as many sums, and in the end c.
 */
static void check_tcm(uint64_t m, uint64_t k, uint64_t n)
{
    assert_int_equal(results, stores);
    uint64_t sums = tcm_writes - m * n * BYTES, a_reads = m * k * BYTES * ((n + 63) / 64);
    uint64_t b_reads = tcm_reads - sums - a_reads, b_bytes = k * n * BYTES;
    assert_int_equal(sums % 4, 0);
    while (b_reads > b_bytes)
        b_reads -= b_bytes;
    assert_int_equal(b_reads, b_bytes);
}

/* Returns how often operands were loaded in all. */
static uint32_t multiply_any(composite_rig *r, kb_rng *rng, bool a_streams, bool b_streams)
{
    uint64_t m = between(rng, 1, MOST), k = between(rng, 1, MOST), n = between(rng, 1, MOST);
    uint64_t offset = 0;
    lay_out(rng, &a, m, k, &offset);
    lay_out(rng, &b, k, n, &offset);
    lay_out(rng, &c, m, n, &offset);
    pe_product product = {
        .m = m,
        .k = k,
        .n = n,
        .a = {.rects = a.rects, .rect_count = a_streams ? a.count : 0, .element_bytes = BYTES},
        .b = {.rects = b.rects, .rect_count = b_streams ? b.count : 0, .element_bytes = BYTES},
        .c = {.rects = c.rects, .rect_count = c.count, .element_bytes = BYTES}};
    stores = results = tcm_reads = tcm_writes = 0;
    (void)time_product(r, &product);
    check_tcm(m, k, n);
    assert_int_equal(times_moved(&c), 1);
    uint32_t a_times = times_moved(&a), b_times = times_moved(&b);
    assert_int_equal(a_times > 0, a_streams);
    assert_int_equal(b_times > 0, b_streams);
    return a_times + b_times;
}

static void each_element_comes_from_its_place(void **state)
{
    (void)state;
    composite_rig r;
    composite_rig_make(&r, default_machine());
    kb_rng rng;
    kb_rng_init(&rng, test_seed(21));
    for (int i = 0; i < 40; i++)
        assert_int_equal(multiply_any(&r, &rng, true, true), 2); /* all fits */
    for (int i = 0; i < 10; i++) {
        assert_int_equal(multiply_any(&r, &rng, false, true), 1);
        assert_int_equal(multiply_any(&r, &rng, true, false), 1);
    }
    composite_rig_fini(&r);
}

/* With 16 KiB, operands are loaded again and again. */
static void so_it_does_with_little_space(void **state)
{
    (void)state;
    composite_rig r;
    composite_rig_make(&r, machine_with("cube.pe_tcm.reserved_mib=0.015625", NULL, NULL, NULL));
    kb_rng rng;
    kb_rng_init(&rng, test_seed(22));
    uint32_t times = 0;
    for (int i = 0; i < 40; i++)
        times += multiply_any(&r, &rng, true, true);
    assert_true(times > 100);
    composite_rig_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_element_comes_from_its_place),
        cmocka_unit_test(so_it_does_with_little_space),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
