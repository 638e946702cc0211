/*
 * test_results.c: tables of results: a small sweep worked out by hand, and random ones whose
 * effects, plateaus, fronts and means are compared with plain loops over all pairs of points.
 */
#include "support/expect.h"
#include "support/seed.h"

#include "sweep/by_hand.h"

#include "sweep/effects.h"
#include "sweep/format.h"
#include "sweep/groups.h"
#include "sweep/pivot.h"
#include "sweep/results.h"
#include "sweep/select.h"

#include <math.h>

/* ---- A sweep by hand --------------------------------------------------------------------- */

static void a_table_keeps_what_it_was_given(void **state)
{
    (void)state;
    sweep_results *r = by_hand();
    assert_int_equal(r->columns.count, 9);
    assert_int_equal(column(r, "bw_gbs")->values.count, 5);
    assert_true(sweep_is_numeric(column(r, "nbytes")));
    assert_false(sweep_is_numeric(column(r, "algo")));
    assert_string_equal(sweep_cell(column(r, "algo"), 3).text, "tree");
    assert_string_equal(sweep_cell(column(r, "nbytes"), 3).text, "64KiB");
    assert_true(sweep_cell(column(r, "sim_ns"), 7).none);
    assert_int_equal(column(r, "wall_s")->kind, SWEEP_WALL);
    assert_int_equal(column(r, "parameters.nbytes")->kind, SWEEP_PARAMETER);
    assert_string_equal(r->rows[0].bottleneck, "message");    /* 60 of 100 */
    assert_string_equal(r->rows[6].bottleneck, "other_sips"); /* 1024 of 2048 */
    assert_null(r->rows[7].bottleneck);
    assert_string_equal(r->rows[7].status, "timeout");
    const sweep_column *none;
    expect_error(sweep_find_column(r, "figure", "sim_nz", &none), KB_ERR_INPUT,
                 "unknown figure 'sim_nz'; did you mean 'sim_ns'?");
    sweep_results_destroy(r);
}

static void effects_are_found_and_where(void **state)
{
    (void)state;
    sweep_results *r = by_hand();
    sweep_effect effect;
    /* algo: ten pairs but the one that failed, all equal but for the wall time. */
    expect_ok(sweep_find_effect(r, column(r, "algo"), NULL, &effect));
    assert_int_equal(effect.pairs, 9);
    assert_int_equal(effect.groups, 9);
    assert_int_equal(effect.changed, 0);
    assert_int_equal(effect.figures, 0);
    sweep_effect_fini(&effect);
    /* bw: four groups, 4 + 4 + 4 + 3 pairs of neighbours; the two of 64KiB change. */
    expect_ok(sweep_find_effect(r, column(r, "bw_gbs"), NULL, &effect));
    assert_int_equal(effect.pairs, 15);
    assert_int_equal(effect.groups, 4);
    assert_int_equal(effect.changed, 2);
    assert_int_equal(effect.figures, 3);
    assert_string_equal(effect.changed_figures[0]->name, "sim_ns");
    assert_ptr_equal(effect.only_for, column(r, "nbytes"));
    assert_false(effect.matters[0]);
    assert_true(effect.matters[1]);
    sweep_effect_fini(&effect);
    /* One figure: launches cost the same everywhere. */
    expect_ok(sweep_find_effect(r, column(r, "nbytes"), column(r, "causes.launch_ns"), &effect));
    assert_int_equal(effect.groups, 9);
    assert_int_equal(effect.changed, 0);
    sweep_effect_fini(&effect);
    sweep_results_destroy(r);
}

/* Two benches, each with a figure of its own: the other bench says nothing about it. */
static void a_figure_is_compared_where_it_is(void **state)
{
    (void)state;
    static const char *const axes[] = {"bench", "bw"}, *const bandwidths[] = {"1", "2", "4"};
    static const double busbw[] = {10, 20, 20};
    sweep_results *r;
    expect_ok(sweep_results_create(axes, 2, 6, &r));
    for (size_t row = 0; row < 6; row++) {
        sweep_results_set_axis(r, row, 0, row < 3 ? "reduce" : "gemm");
        sweep_results_set_axis(r, row, 1, bandwidths[row % 3]);
        sweep_results_set_status(r, row, "ok", true, NULL);
        sweep_results_set_figure(r, row, row < 3 ? "busbw" : "tflops", row < 3 ? busbw[row] : 7);
    }
    expect_ok(sweep_results_finish(r));
    sweep_effect effect;
    expect_ok(sweep_find_effect(r, column(r, "bw"), column(r, "busbw"), &effect));
    assert_int_equal(effect.groups, 1);
    assert_int_equal(effect.changed, 1);
    assert_true(fabs(effect.ratio - 2) < 1e-12);
    assert_null(effect.only_for);
    sweep_effect_fini(&effect);
    expect_ok(sweep_find_effect(r, column(r, "bw"), column(r, "tflops"), &effect));
    assert_int_equal(effect.groups, 1);
    assert_int_equal(effect.changed, 0);
    sweep_effect_fini(&effect);
    bool found;
    sweep_plateau plateau;
    expect_ok(sweep_find_plateau(r, column(r, "bw"), column(r, "busbw"), 0.01, &found, &plateau));
    assert_true(found);
    assert_string_equal(plateau.from.text, "2");
    sweep_results_destroy(r);
}

static void a_plateau_begins_where_nothing_is_gained(void **state)
{
    (void)state;
    sweep_results *r = by_hand();
    sweep_plateau plateau;
    bool found;
    expect_ok(
        sweep_find_plateau(r, column(r, "bw_gbs"), column(r, "sim_ns"), 0.01, &found, &plateau));
    assert_true(found);
    assert_string_equal(plateau.from.text, "256");
    assert_false(plateau.is_first);
    assert_int_equal(plateau.groups, 4);
    /* Two values are too few, and texts have no order. */
    expect_ok(
        sweep_find_plateau(r, column(r, "nbytes"), column(r, "sim_ns"), 0.01, &found, &plateau));
    assert_false(found);
    expect_ok(sweep_find_plateau(r, column(r, "bw_gbs"), column(r, "causes.launch_ns"), 0.01,
                                 &found, &plateau));
    assert_true(found && plateau.is_first);
    sweep_results_destroy(r);
}

static void bottlenecks_turn_where_they_do(void **state)
{
    (void)state;
    sweep_results *r = by_hand();
    sweep_turns turns;
    expect_ok(sweep_find_turns(r, column(r, "bw_gbs"), &turns));
    assert_int_equal(turns.groups, 4);
    assert_int_equal(turns.changed, 2);
    assert_int_equal(turns.items.count, 1);
    assert_string_equal(turns.items.items[0].before.text, "128");
    assert_string_equal(turns.items.items[0].after.text, "256");
    assert_string_equal(turns.items.items[0].from, "other_sips");
    assert_string_equal(turns.items.items[0].to, "message");
    assert_int_equal(turns.items.items[0].groups, 2);
    sweep_turns_fini(&turns);
    sweep_results_destroy(r);
}

static void a_pivot_has_means_and_failures(void **state)
{
    (void)state;
    sweep_results *r = by_hand();
    sweep_pivot pivot;
    expect_ok(
        sweep_pivot_make(r, column(r, "bw_gbs"), column(r, "nbytes"), column(r, "sim_ns"), &pivot));
    static const double expected[5][2] = {
        {100, 2048}, {100, 1024}, {100, 512}, {100, 300}, {100, 300}};
    for (size_t y = 0; y < 5; y++)
        for (size_t x = 0; x < 2; x++) {
            const sweep_pivot_cell *cell = sweep_pivot_at(&pivot, y, x);
            assert_true(fabs(cell->mean - expected[y][x]) < 1e-12);
            assert_int_equal(cell->points, 2);
            assert_int_equal(cell->failed, y == 0 && x == 1);
        }
    assert_string_equal(pivot.rows->values.items[pivot.row_order[0]].text, "32");
    assert_string_equal(pivot.rows->values.items[pivot.row_order[4]].text, "512");
    assert_string_equal(sweep_pivot_at(&pivot, 0, 1)->status, "timeout");
    assert_false(pivot.combines);
    sweep_pivot_fini(&pivot);
    /* Over all sizes: (100 + 512) / 2 = 306, apart by 412. */
    expect_ok(
        sweep_pivot_make(r, column(r, "bw_gbs"), column(r, "algo"), column(r, "sim_ns"), &pivot));
    assert_true(pivot.combines);
    assert_true(fabs(sweep_pivot_at(&pivot, 2, 0)->mean - 306) < 1e-9);
    /* The largest is (2048 - 100) / 1074. */
    assert_true(fabs(pivot.spread - 1948.0 / 1074) < 1e-12);
    kb_text text = KB_TEXT_INIT;
    sweep_pivot_append_combined(&pivot, r, &text);
    assert_string_equal(kb_text_peek(&text), "nbytes");
    kb_text_fini(&text);
    sweep_pivot_fini(&pivot);
    sweep_results_destroy(r);
}

static void derived_figures_are_columns(void **state)
{
    (void)state;
    sweep_results *r = by_hand();
    sweep_expression *e;
    expect_ok(sweep_expression_parse("derive", "nbytes / sim_ns", &e));
    expect_ok(sweep_results_derive(r, "reached_gbs", e));
    assert_true(fabs(column(r, "reached_gbs")->numbers[0] - 40.96) < 1e-12);
    assert_true(isnan(column(r, "reached_gbs")->numbers[7]));
    expect_error(sweep_results_derive(r, "sim_ns", e), KB_ERR_INPUT,
                 "derived metric 'sim_ns': the points have a figure or an axis of that name");
    sweep_expression_destroy(e);
    sweep_results_destroy(r);
}

static void the_best_satisfies_the_constraint(void **state)
{
    (void)state;
    sweep_results *r = by_hand();
    sweep_expression *e;
    expect_ok(sweep_expression_parse("--constraint", "sim_ns < 600 and nbytes == 64KiB", &e));
    expect_ok(sweep_expression_bind(e, r->names, r->columns.count));
    bool admitted[20];
    assert_int_equal(sweep_admit(r, NULL, admitted), 19);
    assert_int_equal(sweep_admit(r, e, admitted), 6);
    sweep_objectives o;
    expect_ok(sweep_objectives_parse("--best", "bw_gbs:min", &o));
    expect_ok(sweep_objectives_find("--best", r, &o));
    size_t best, equal;
    assert_true(sweep_find_best(r, &o.items[0], admitted, &best, &equal));
    assert_int_equal(best, 14); /* 128 GB/s, 64KiB, ring */
    assert_int_equal(equal, 2);
    free(o.texts);
    /* The front: each bandwidth is worth it until 256. */
    expect_ok(sweep_objectives_parse("--pareto", "bw_gbs:min,sim_ns:min", &o));
    expect_ok(sweep_objectives_find("--pareto", r, &o));
    sweep_expression_destroy(e);
    expect_ok(sweep_expression_parse("--constraint", "nbytes > 4KiB", &e));
    expect_ok(sweep_expression_bind(e, r->names, r->columns.count));
    sweep_admit(r, e, admitted);
    bool front[20];
    expect_ok(sweep_find_front(r, &o, admitted, front));
    size_t count = 0;
    for (size_t i = 0; i < 20; i++)
        count += front[i];
    assert_int_equal(count, 7); /* 32 once, 64, 128 and 256 with both algorithms */
    assert_false(front[2] || front[3]);
    free(o.texts);
    sweep_expression_destroy(e);
    sweep_results_destroy(r);
}

static void bad_objectives_are_refused(void **state)
{
    (void)state;
    sweep_objectives o;
    static const char *const bad[] = {"sim_ns", ":min", "a:mim", "", "a:min,"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        kb_error *err = sweep_objectives_parse("--pareto", bad[i], &o);
        assert_non_null(strstr(kb_error_message(err), "--pareto: expected NAME:min or NAME:max"));
        kb_error_free(err);
    }
    sweep_results *r = by_hand();
    expect_ok(sweep_objectives_parse("--pareto", "algo:max", &o));
    expect_error(sweep_objectives_find("--pareto", r, &o), KB_ERR_INPUT,
                 "--pareto: the values of axis 'algo' are not numbers");
    free(o.texts);
    expect_ok(sweep_objectives_parse("--pareto", "a:b:max,x:min", &o));
    assert_string_equal(o.items[0].name, "a:b");
    free(o.texts);
    sweep_results_destroy(r);
}

static void csv_is_complete(void **state)
{
    (void)state;
    sweep_results *r = by_hand();
    kb_text text = KB_TEXT_INIT;
    sweep_append_csv(&text, r);
    static const char begin[] =
        "sip.ucie.bw_gbs,nbytes,algo,status,message,bottleneck,parameters.nbytes,sim_ns,"
        "causes.message_ns,causes.launch_ns,causes.other_sips_ns,wall_s\n"
        "512,4KiB,ring,ok,,message,4096,100,60,50,0,0\n";
    assert_memory_equal(kb_text_peek(&text), begin, sizeof begin - 1);
    assert_non_null(strstr(kb_text_peek(&text), "\n32,64KiB,tree,timeout,\"took more than 10 s, "
                                                "\"\"tree\"\"\",,,,,,,\n"));
    kb_text_fini(&text);
    sweep_results_destroy(r);
}

static void titles_have_units(void **state)
{
    (void)state;
    static const struct {
        const char *name, *title, *unit;
    } cases[] = {
        {"sim_ns", "sim ns", "ns"},
        {"metrics.busbw_gbs", "busbw GB/s", "GB/s"},
        {"metrics.busbw_1048576", "busbw_1048576 GB/s", "GB/s"},
        {"metrics.time_16", "time_16 us", "us"},
        {"metrics.tflops", "tflops", "TFLOP/s"},
        {"roofline.gbs", "roofline.gbs", "GB/s"},
        {"breakdown.idle_ns", "breakdown.idle ns", "ns"},
        {"events", "events", ""},
        {"metrics.time_to_first_token", "time_to_first_token", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sweep_column c = {.name = cases[i].name};
        kb_text text = KB_TEXT_INIT;
        sweep_append_title(&text, &c);
        assert_string_equal(kb_text_peek(&text), cases[i].title);
        assert_string_equal(sweep_unit(cases[i].name), cases[i].unit);
        kb_text_fini(&text);
    }
    const sweep_column ns = {.name = "sim_ns"}, share = {.name = "share"};
    assert_int_equal(sweep_decimals(&ns, (const double[]){1, 2.5}, 2), 3);
    assert_int_equal(sweep_decimals(&ns, (const double[]){1, 2}, 2), 0);
    assert_int_equal(sweep_decimals(&share, (const double[]){0.5, (double)NAN}, 2), 5);
    assert_int_equal(sweep_decimals(&share, (const double[]){12345.5, 7e9}, 2), 1);
}

/* ---- Random sweeps ----------------------------------------------------------------------- */

enum { AXES = 3, MAX_ROWS = 40 };

typedef struct random_sweep {
    sweep_results *r;
    uint32_t at[MAX_ROWS][AXES]; /* values of axes; 3: the row has no value */
    size_t rows;
} random_sweep;

/* Distinct points of a grid of 3 x 3 x 3, in any order; figures depend on one or two axes. */
static random_sweep draw_sweep(kb_rng *rng)
{
    static const char *const axes[] = {"a", "b", "c"};
    static const char *const values[AXES][3] = {
        {"10", "9", "11"}, {"x", "y", "z"}, {"2KiB", "1KiB", "3072"}};
    random_sweep s = {0};
    bool used[64] = {false};
    s.rows = 2 + (size_t)kb_rng_below(rng, 25);
    expect_ok(sweep_results_create(axes, AXES, s.rows, &s.r));
    uint64_t mask = kb_rng_below(rng, 8); /* of the axes that the figure depends on */
    for (size_t row = 0; row < s.rows; row++) {
        uint64_t point;
        do {
            point = kb_rng_below(rng, 64);
        } while (used[point]);
        used[point] = true;
        uint32_t kept = 0;
        for (size_t i = 0; i < AXES; i++) {
            s.at[row][i] = (uint32_t)(point >> (2 * i)) & 3;
            if (s.at[row][i] < 3)
                sweep_results_set_axis(s.r, row, i, values[i][s.at[row][i]]);
            if (mask >> i & 1)
                kept = 4 * kept + s.at[row][i];
        }
        bool ok = kb_rng_below(rng, 8) > 0;
        sweep_results_set_status(s.r, row, ok ? "ok" : "failed", ok, NULL);
        if (ok) {
            sweep_results_set_figure(s.r, row, "f", kept % 7);
            if (kb_rng_below(rng, 4) > 0)
                sweep_results_set_figure(s.r, row, "g", (double)kb_rng_below(rng, 6));
            sweep_results_set_figure(s.r, row, "wall_s", (double)row);
        }
    }
    expect_ok(sweep_results_finish(s.r));
    return s;
}

static bool differ_only_in(const random_sweep *s, size_t axis, size_t a, size_t b)
{
    for (size_t i = 0; i < AXES; i++)
        if ((s->at[a][i] != s->at[b][i]) != (i == axis))
            return false;
    return s->r->rows[a].ok && s->r->rows[b].ok;
}

static bool differ_in(const sweep_column *figure, size_t a, size_t b)
{
    double x = figure->numbers[a], y = figure->numbers[b];
    return isnan(x) != isnan(y) || x < y || x > y;
}

static void effects_agree_with_all_pairs(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(3));
    size_t none = 0, some = 0, conditions = 0;
    for (int round = 0; round < 4000; round++) {
        random_sweep s = draw_sweep(&rng);
        for (size_t axis = 0; axis < AXES; axis++) {
            size_t pairs = 0, different = 0;
            for (size_t a = 0; a < s.rows; a++)
                for (size_t b = 0; b < a; b++)
                    if (differ_only_in(&s, axis, a, b)) {
                        bool differ = false;
                        for (size_t c = AXES; c < s.r->columns.count; c++)
                            differ |= s.r->columns.items[c].kind == SWEEP_RESULT &&
                                      differ_in(&s.r->columns.items[c], a, b);
                        pairs++;
                        different += differ;
                    }
            sweep_effect effect;
            expect_ok(sweep_find_effect(s.r, &s.r->columns.items[axis], NULL, &effect));
            assert_int_equal(effect.groups > 0, pairs > 0);
            assert_true(effect.pairs <= pairs);
            assert_int_equal(effect.changed > 0, different > 0);
            /* Where the other axis has a value that does not matter, no pair differs. */
            for (size_t a = 0; a < s.rows && effect.only_for; a++)
                for (size_t b = 0; b < a; b++)
                    if (differ_only_in(&s, axis, a, b)) {
                        uint32_t v = effect.only_for->index[a];
                        if (v != SWEEP_NO_VALUE && !effect.matters[v])
                            for (size_t c = AXES; c < s.r->columns.count; c++)
                                assert_false(s.r->columns.items[c].kind == SWEEP_RESULT &&
                                             differ_in(&s.r->columns.items[c], a, b));
                    }
            none += pairs > 0 && different == 0;
            some += different > 0;
            conditions += effect.only_for != NULL;
            sweep_effect_fini(&effect);
        }
        sweep_results_destroy(s.r);
    }
    assert_true(none > 100 && some > 100 && conditions > 100);
}

static double cost_of(const sweep_objective *o, size_t row)
{
    return (o->maximize ? -1 : 1) * sweep_cell(o->column, row).number;
}

static bool is_dominated(const sweep_objectives *o, const bool *usable, size_t rows, size_t row)
{
    for (size_t other = 0; other < rows; other++) {
        bool better = false, worse = !usable[other];
        for (size_t i = 0; i < o->count && !worse; i++) {
            better |= cost_of(&o->items[i], other) < cost_of(&o->items[i], row);
            worse |= cost_of(&o->items[i], other) > cost_of(&o->items[i], row);
        }
        if (better && !worse)
            return true;
    }
    return false;
}

static void fronts_agree_with_all_pairs(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(5));
    static const char *const objectives[] = {"f:min,g:max", "g:max", "f:max,g:max,a:min",
                                             "c:min,g:min"};
    size_t sizes_of_fronts = 0;
    for (int round = 0; round < 4000; round++) {
        random_sweep s = draw_sweep(&rng);
        sweep_objectives o;
        expect_ok(sweep_objectives_parse("--pareto", objectives[round % 4], &o));
        kb_error *err = sweep_objectives_find("--pareto", s.r, &o);
        bool admitted[MAX_ROWS], front[MAX_ROWS], usable[MAX_ROWS];
        sweep_admit(s.r, NULL, admitted);
        if (err) { /* no row has the figure */
            kb_error_free(err);
        } else {
            expect_ok(sweep_find_front(s.r, &o, admitted, front));
            for (size_t row = 0; row < s.rows; row++) {
                usable[row] = admitted[row];
                for (size_t i = 0; i < o.count; i++)
                    usable[row] &= !sweep_cell(o.items[i].column, row).none;
            }
            for (size_t row = 0; row < s.rows; row++) {
                assert_int_equal(front[row], usable[row] && !is_dominated(&o, usable, s.rows, row));
                sizes_of_fronts += front[row];
            }
            size_t best = 0, equal = 0, count = 0;
            bool found = sweep_find_best(s.r, &o.items[0], admitted, &best, &equal);
            for (size_t row = 0; row < s.rows && found; row++) {
                bool has = admitted[row] && !sweep_cell(o.items[0].column, row).none;
                double ahead = cost_of(&o.items[0], row) - cost_of(&o.items[0], best);
                assert_true(!has || ahead > 0 || (!(ahead < 0) && row >= best));
                count += has && !(ahead > 0);
            }
            assert_int_equal(count, equal);
        }
        free(o.texts);
        sweep_results_destroy(s.r);
    }
    assert_true(sizes_of_fronts > 4000);
}

static void pivots_agree_with_a_plain_sum(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(8));
    for (int round = 0; round < 2000; round++) {
        random_sweep s = draw_sweep(&rng);
        const sweep_column *a = &s.r->columns.items[0], *b = &s.r->columns.items[1];
        if (s.r->columns.count > AXES) {
            const sweep_column *figure = &s.r->columns.items[AXES];
            sweep_pivot p;
            expect_ok(sweep_pivot_make(s.r, a, b, figure, &p));
            for (size_t y = 0; y < a->values.count; y++)
                for (size_t x = 0; x < b->values.count; x++) {
                    double sum = 0;
                    size_t points = 0, numbers = 0;
                    for (size_t row = 0; row < s.rows; row++)
                        if (a->index[row] == p.row_order[y] && b->index[row] == p.column_order[x]) {
                            points++;
                            numbers += isnan(figure->numbers[row]) ? 0 : 1;
                            sum += isnan(figure->numbers[row]) ? 0 : figure->numbers[row];
                        }
                    const sweep_pivot_cell *cell = sweep_pivot_at(&p, y, x);
                    assert_int_equal(cell->points, points);
                    assert_int_equal(isnan(cell->mean), numbers == 0);
                    assert_true(numbers == 0 || fabs(cell->mean - sum / (double)numbers) < 1e-9);
                }
            sweep_pivot_fini(&p);
        }
        sweep_results_destroy(s.r);
    }
}

static void many_values_stay_quick(void **state)
{
    (void)state;
    enum { ROWS = 100000 };
    static const char *const axes[] = {"n", "s"};
    sweep_results *r;
    expect_ok(sweep_results_create(axes, 2, ROWS, &r));
    for (size_t row = 0; row < ROWS; row++) {
        char text[32];
        snprintf(text, sizeof text, "%zu", row * 7919 % ROWS);
        sweep_results_set_axis(r, row, 0, text);
        snprintf(text, sizeof text, "v%zu", row * 31 % 1000);
        sweep_results_set_axis(r, row, 1, text);
        sweep_results_set_status(r, row, "ok", true, NULL);
        sweep_results_set_figure(r, row, "x", (double)(row % 977));
        sweep_results_set_figure(r, row, "y", (double)(row % 1013));
    }
    expect_ok(sweep_results_finish(r));
    assert_int_equal(column(r, "n")->values.count, ROWS);
    assert_int_equal(column(r, "s")->values.count, 1000);
    sweep_effect effect;
    expect_ok(sweep_find_effect(r, column(r, "n"), NULL, &effect));
    assert_int_equal(effect.groups, 1000);
    sweep_effect_fini(&effect);
    sweep_objectives o;
    expect_ok(sweep_objectives_parse("--pareto", "x:min,y:max", &o));
    expect_ok(sweep_objectives_find("--pareto", r, &o));
    bool *admitted = malloc(ROWS), *front = malloc(ROWS);
    assert_int_equal(sweep_admit(r, NULL, admitted), ROWS);
    expect_ok(sweep_find_front(r, &o, admitted, front));
    free(admitted);
    free(front);
    free(o.texts);
    sweep_results_destroy(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_table_keeps_what_it_was_given),
        cmocka_unit_test(effects_are_found_and_where),
        cmocka_unit_test(a_figure_is_compared_where_it_is),
        cmocka_unit_test(a_plateau_begins_where_nothing_is_gained),
        cmocka_unit_test(bottlenecks_turn_where_they_do),
        cmocka_unit_test(a_pivot_has_means_and_failures),
        cmocka_unit_test(derived_figures_are_columns),
        cmocka_unit_test(the_best_satisfies_the_constraint),
        cmocka_unit_test(bad_objectives_are_refused),
        cmocka_unit_test(csv_is_complete),
        cmocka_unit_test(titles_have_units),
        cmocka_unit_test(effects_agree_with_all_pairs),
        cmocka_unit_test(fronts_agree_with_all_pairs),
        cmocka_unit_test(pivots_agree_with_a_plain_sum),
        cmocka_unit_test(many_values_stay_quick),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
