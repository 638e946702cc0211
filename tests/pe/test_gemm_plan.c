/*
 * test_gemm_plan.c: laws of plans: every product of every element is in one step, sums begin and
 * end where they should, what is needed is there, space is enough, and bytes and cycles are those
 * of the whole.
 */
#include "support/expect.h"
#include "support/seed.h"

#include "pe/gemm_plan.h"
#include "topo/random_machines.h"

static topo_pe_params figures_of(uint32_t rows, uint32_t columns)
{
    return (topo_pe_params){.gemm_rows = rows,
                            .gemm_columns = columns,
                            .gemm_cycle_fs = KB_NS,
                            .dma_channels = 4,
                            .tcm_bytes_per_s = 512 * TOPO_GBS};
}

/* On the default PE, with operands of two bytes in its own slice. */
static gemm_problem problem_of(uint64_t m, uint64_t k, uint64_t n)
{
    return (gemm_problem){.m = m,
                          .k = k,
                          .n = n,
                          .a_bytes = 2,
                          .b_bytes = 2,
                          .c_bytes = 2,
                          .a_streams = true,
                          .b_streams = true,
                          .space = 4 << 20,
                          .bytes_per_s = 204800000000,
                          .latency = 90 * KB_NS};
}

static uint64_t divide_up(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

/* ---- Sums over all steps ----------------------------------------------------------------- */

typedef struct totals {
    uint64_t steps, volume, cycles, loaded, stored, most_used;
} totals;

/*
 * Walks through the steps, one after the other, each done before the next begins. That needs the
 * least space, and there has to be enough.
 */
static totals walk(const topo_pe_params *params, const gemm_problem *problem, const gemm_plan *plan)
{
    totals sum = {0};
    uint64_t used = 0;
    gemm_step s;
    for (gemm_cursor at = {0}; gemm_plan_next(plan, &at, &s); sum.steps++) {
        assert_true(s.rows > 0 && s.row + s.rows <= problem->m);
        assert_true(s.columns > 0 && s.column + s.columns <= problem->n);
        assert_true(s.depths > 0 && s.depth + s.depths <= problem->k);
        assert_int_equal(s.is_first, s.depth == 0);
        assert_int_equal(s.is_last, s.depth + s.depths == problem->k);
        used += s.a_loaded + s.b_loaded + s.sums;
        assert_true(used <= problem->space);
        sum.most_used = used > sum.most_used ? used : sum.most_used;
        assert_true(used >= s.a_freed + s.b_freed);
        used -= s.a_freed + s.b_freed;
        if (s.is_last)
            used -= gemm_sum_space(plan, s.rows, s.columns);
        sum.volume += s.rows * s.columns * s.depths;
        sum.cycles += divide_up(s.depths, params->gemm_rows) *
                      divide_up(s.columns, params->gemm_columns) * s.rows;
        sum.loaded += s.a_loaded + s.b_loaded;
        sum.stored += s.is_last ? s.rows * s.columns * problem->c_bytes : 0;
    }
    assert_int_equal(used, 0);
    return sum;
}

static totals check_totals(const topo_pe_params *params, const gemm_problem *problem)
{
    gemm_plan plan;
    expect_ok(gemm_plan_make(params, problem, &plan));
    totals sum = walk(params, problem, &plan);
    assert_int_equal(sum.volume, problem->m * problem->k * problem->n);
    assert_int_equal(sum.cycles, divide_up(problem->k, params->gemm_rows) *
                                     divide_up(problem->n, params->gemm_columns) * problem->m);
    assert_int_equal(sum.loaded, plan.loaded);
    assert_int_equal(sum.stored, plan.stored);
    uint64_t once = (problem->a_streams ? problem->m * problem->k * problem->a_bytes : 0) +
                    (problem->b_streams ? problem->k * problem->n * problem->b_bytes : 0);
    assert_true(sum.loaded >= once);
    assert_int_equal(sum.stored, problem->m * problem->n * problem->c_bytes);
    return sum;
}

/* From 1 to most, small ones as likely as large ones; now and then a round number. */
static uint64_t any_size(kb_rng *rng, uint32_t most_bits, uint64_t most)
{
    uint64_t size = 1 + kb_rng_below(rng, (uint64_t)1 << between(rng, 0, most_bits));
    if (between(rng, 0, 2) == 0 && size > 64)
        size = size / 64 * 64;
    return size < most ? size : most;
}

static gemm_problem any_problem(kb_rng *rng)
{
    static const uint32_t sizes[] = {1, 2, 4};
    uint64_t m = any_size(rng, 17, 100000), k = any_size(rng, 17, 100000);
    gemm_problem p = problem_of(m, k, any_size(rng, 17, 100000));
    p.a_bytes = sizes[between(rng, 0, 2)];
    p.b_bytes = sizes[between(rng, 0, 2)];
    p.c_bytes = sizes[between(rng, 0, 2)];
    p.a_streams = between(rng, 0, 3) > 0;
    p.b_streams = between(rng, 0, 3) > 0;
    p.space = ((uint64_t)64 << 10) << between(rng, 0, 12);
    p.bytes_per_s = TOPO_GBS << between(rng, 0, 10);
    p.latency = (kb_time)between(rng, 1, 2000) * KB_NS;
    return p;
}

/* What is too long to walk through is left out. */
static bool is_short(const topo_pe_params *params, const gemm_problem *p)
{
    return divide_up(p->k, params->gemm_rows) * divide_up(p->n, params->gemm_columns) *
               divide_up(p->m, 64) <
           20000;
}

static void sums_are_those_of_the_whole(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(11));
    int walked = 0;
    while (walked < 300) {
        uint32_t rows = 1u << between(&rng, 2, 6); /* with 200 columns a tile fits into 64 KiB */
        topo_pe_params params = figures_of(rows, between(&rng, 4, 200));
        params.gemm_fill_per_fold = between(&rng, 0, 1);
        gemm_problem problem = any_problem(&rng);
        if (!is_short(&params, &problem))
            continue;
        check_totals(&params, &problem);
        walked++;
    }
}

/* Sizes that are one, just one fold, one more; long and thin in every direction. */
static void extreme_shapes_work(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, 63, 64, 65, 100000};
    const topo_pe_params params = figures_of(64, 64);
    for (int i = 0; i < 125; i++) {
        gemm_problem problem = problem_of(sizes[i % 5], sizes[i / 5 % 5], sizes[i / 25]);
        gemm_plan plan;
        expect_ok(gemm_plan_make(&params, &problem, &plan));
        if (is_short(&params, &problem))
            check_totals(&params, &problem);
    }
}

/* ---- Element by element ------------------------------------------------------------------ */

enum { SMALL = 24 };

typedef struct picture {
    unsigned char done[SMALL][SMALL];      /* of c: how far its sum is */
    bool a[SMALL][SMALL], b[SMALL][SMALL]; /* is there */
} picture;

static void set_block(bool map[SMALL][SMALL], uint64_t row, uint64_t rows, uint64_t column,
                      uint64_t columns, bool value)
{
    for (uint64_t i = row; i < row + rows; i++)
        for (uint64_t j = column; j < column + columns; j++) {
            assert_int_equal(map[i][j], !value);
            map[i][j] = value;
        }
}

static void do_step(picture *is, const gemm_problem *p, const gemm_step *s)
{
    if (s->a_loaded > 0) {
        assert_int_equal(s->a_loaded, s->rows * s->depths * p->a_bytes);
        set_block(is->a, s->row, s->rows, s->depth, s->depths, true);
    }
    if (s->b_loaded > 0) {
        assert_int_equal(s->b_loaded, s->depths * s->columns * p->b_bytes);
        set_block(is->b, s->depth, s->depths, s->column, s->columns, true);
    }
    for (uint64_t i = s->row; i < s->row + s->rows; i++)
        for (uint64_t j = s->column; j < s->column + s->columns; j++) {
            for (uint64_t d = s->depth; d < s->depth + s->depths; d++) {
                assert_true(!p->a_streams || is->a[i][d]);
                assert_true(!p->b_streams || is->b[d][j]);
            }
            assert_int_equal(is->done[i][j], s->depth); /* what comes before is there */
            is->done[i][j] = (unsigned char)(s->depth + s->depths);
        }
    if (s->a_freed > 0)
        set_block(is->a, s->row, s->rows, s->depth, s->depths, false);
    if (s->b_freed > 0)
        set_block(is->b, s->depth, s->depths, s->column, s->columns, false);
}

static void each_product_is_in_one_step(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(12));
    uint64_t steps = 0, plans = 400, kept = 0, by_columns = 0;
    for (uint64_t i = 0; i < plans; i++) {
        uint32_t rows = between(&rng, 1, 6);
        topo_pe_params params = figures_of(rows, between(&rng, 1, 6));
        gemm_problem p = any_problem(&rng);
        p.m = between(&rng, 1, SMALL);
        p.k = between(&rng, 1, SMALL);
        p.n = between(&rng, 1, SMALL);
        p.space = between(&rng, 192, 2000); /* 4 * (6 + 6 * 6 + 6) is always enough for a tile */
        gemm_plan plan;
        expect_ok(gemm_plan_make(&params, &p, &plan));
        picture is = {0};
        gemm_step s;
        for (gemm_cursor at = {0}; gemm_plan_next(&plan, &at, &s); steps++)
            do_step(&is, &p, &s);
        for (uint64_t e = 0; e < p.m * p.n; e++)
            assert_int_equal(is.done[e / p.n][e % p.n], p.k);
        static const bool empty[SMALL][SMALL];
        assert_memory_equal(is.a, empty, sizeof empty);
        assert_memory_equal(is.b, empty, sizeof empty);
        check_totals(&params, &p);
        kept += plan.keeps_a || plan.keeps_b;
        by_columns += !plan.rows_first;
    }
    assert_true(steps > 4 * plans); /* the cases are worth something */
    assert_true(kept > 20 && by_columns > 2);
}

/* ---- Cases ------------------------------------------------------------------------------- */

static void one_element_is_one_step(void **state)
{
    (void)state;
    const topo_pe_params params = figures_of(64, 64);
    const gemm_problem problem = problem_of(1, 1, 1);
    gemm_plan plan;
    expect_ok(gemm_plan_make(&params, &problem, &plan));
    gemm_cursor at = {0};
    gemm_step s;
    assert_true(gemm_plan_next(&plan, &at, &s));
    assert_int_equal(s.rows * s.columns * s.depths, 1);
    assert_int_equal(s.a_loaded, 2);
    assert_int_equal(s.b_loaded, 2);
    assert_int_equal(s.a_freed + s.b_freed, 4);
    assert_int_equal(s.sums, 4); /* f32 */
    assert_true(s.is_first && s.is_last);
    assert_false(gemm_plan_next(&plan, &at, &s));
    assert_false(gemm_plan_next(&plan, &at, &s));
}

/* Both operands fit beside each other, so each is loaded once. */
static void what_fits_is_loaded_once(void **state)
{
    (void)state;
    const topo_pe_params params = figures_of(64, 64);
    const gemm_problem problem = problem_of(512, 1024, 768);
    totals sum = check_totals(&params, &problem);
    assert_int_equal(sum.loaded, 2 * (512 * 1024 + 1024 * 768));
}

/* What is in the TCM is not loaded. */
static void what_is_there_is_not_loaded(void **state)
{
    (void)state;
    const topo_pe_params params = figures_of(64, 64);
    gemm_problem problem = problem_of(300, 500, 700);
    problem.a_streams = false;
    assert_int_equal(check_totals(&params, &problem).loaded, 2 * 500 * 700);
    problem.b_streams = false;
    assert_int_equal(check_totals(&params, &problem).loaded, 0);
}

static void steps_are_few(void **state)
{
    (void)state;
    const topo_pe_params params = figures_of(64, 64);
    const gemm_problem layer = problem_of(128, 12288, 96), large = problem_of(4096, 4096, 4096);
    assert_true(check_totals(&params, &layer).steps < 300);
    assert_true(check_totals(&params, &large).steps < 4000);
}

/*
 * The least tile of 1000 x 1000 x 1000 is a row: 64 elements of a, 64 x 64 of b, and 64 sums:
 * 2 * 64 + 2 * 4096 + 4 * 64 = 8576 bytes. With less there is no plan, with so much there is.
 */
static void too_little_space_is_a_fault(void **state)
{
    (void)state;
    const topo_pe_params params = figures_of(64, 64);
    gemm_problem problem = problem_of(1000, 1000, 1000);
    gemm_plan plan;
    problem.space = 8575;
    expect_error(gemm_plan_make(&params, &problem, &plan), KB_ERR_FAULT,
                 "matrix product 1000 x 1000 x 1000 needs tiles of at least 8576 bytes, but "
                 "the scheduler has 8575 bytes of TCM: raise cube.pe_tcm.reserved_mib");
    problem.space = 8576;
    assert_int_equal(check_totals(&params, &problem).most_used, 8576);

    /* 3 elements of a, 3 x 5 of b, 5 sums: 6 + 30 + 20. */
    problem = problem_of(7, 3, 5);
    problem.space = 56;
    assert_int_equal(check_totals(&params, &problem).most_used, 56);
    problem.space = 55;
    expect_error(gemm_plan_make(&params, &problem, &plan), KB_ERR_FAULT,
                 "matrix product 7 x 3 x 5 needs tiles of at least 56 bytes, but the scheduler "
                 "has 55 bytes of TCM: raise cube.pe_tcm.reserved_mib");
}

/* Too much for the clock of a simulator, but there is a plan. */
static void times_do_not_overflow(void **state)
{
    (void)state;
    topo_pe_params params = figures_of(1, 1);
    params.gemm_cycle_fs = 1000 * KB_US;
    gemm_problem problem = problem_of(100000, 100000, 100000);
    problem.bytes_per_s = 1000000;
    gemm_plan plan;
    expect_ok(gemm_plan_make(&params, &problem, &plan));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_those_of_the_whole),
        cmocka_unit_test(extreme_shapes_work),
        cmocka_unit_test(each_product_is_in_one_step),
        cmocka_unit_test(one_element_is_one_step),
        cmocka_unit_test(what_fits_is_loaded_once),
        cmocka_unit_test(what_is_there_is_not_loaded),
        cmocka_unit_test(steps_are_few),
        cmocka_unit_test(too_little_space_is_a_fault),
        cmocka_unit_test(times_do_not_overflow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
