/*
 * plot_samples.c: writes plots of made-up sweeps, for plots.py: `plot-samples FOLDER`. They are of
 * every kind, and among them are those that are hard to lay out.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sweep/plot.h"

static const char *folder;

static void check(kb_error *err)
{
    if (!err)
        return;
    fprintf(stderr, "plot-samples: %s\n", kb_error_message(err));
    exit(1);
}

static const sweep_column *column(const sweep_results *r, const char *name)
{
    const sweep_column *found;
    check(sweep_find_column(r, "column", name, &found));
    return found;
}

static void write_plot(const char *name, const sweep_results *r, const sweep_plot_options *options)
{
    kb_text text = KB_TEXT_INIT, path = KB_TEXT_INIT;
    check(sweep_plot(r, options, &text));
    kb_text_printf(&path, "%s/%s.svg", folder, name);
    FILE *file = fopen(kb_text_peek(&path), "w");
    if (!file || fwrite(text.bytes, 1, text.length, file) != text.length || fclose(file) != 0)
        check(kb_error_new(KB_ERR_HOST, "cannot write %s", kb_text_peek(&path)));
    kb_text_fini(&path);
    kb_text_fini(&text);
}

/* The product of axes, the last one fastest; *at: indices of the values of a row. */
typedef struct grid {
    const char *names[4];
    const char *values[4][24];
    size_t counts[4], axes;
} grid;

static sweep_results *make(const grid *g,
                           void (*fill)(sweep_results *r, size_t row, const size_t *at))
{
    sweep_results *r;
    size_t rows = 1;
    for (size_t i = 0; i < g->axes; i++)
        rows *= g->counts[i];
    check(sweep_results_create(g->names, g->axes, rows, &r));
    for (size_t row = 0; row < rows; row++) {
        size_t at[4] = {0}, rest = row;
        for (size_t i = g->axes; i-- > 0; rest /= g->counts[i])
            at[i] = rest % g->counts[i];
        for (size_t i = 0; i < g->axes; i++)
            sweep_results_set_axis(r, row, i, g->values[i][at[i]]);
        sweep_results_set_status(r, row, "ok", true, NULL);
        fill(r, row, at);
    }
    check(sweep_results_finish(r));
    return r;
}

/* ---- Bandwidth of an all-reduce over bandwidth of UCIe ------------------------------------- */

static const grid links = {
    .names = {"sip.ucie.bw_gbs", "system.sips.count", "param.nbytes", "repeat"},
    .values = {{"32", "64", "128", "256", "512", "1024"},
               {"2", "4", "8"},
               {"64KiB", "1MiB"},
               {"1", "2"}},
    .counts = {6, 3, 2, 2},
    .axes = 4,
};

static void fill_links(sweep_results *r, size_t row, const size_t *at)
{
    double bw = 32 * pow(2, (double)at[0]), sips = 2 * pow(2, (double)at[1]);
    double bytes = at[2] == 0 ? 65536 : 1048576;
    double ns = 2000 + 300 * sips + 2 * (sips - 1) / sips * bytes / fmin(bw, 180);
    if (at[0] == 1 && at[1] == 2)
        sweep_results_set_status(r, row, "timeout", false, "took more than 10 s");
    else {
        sweep_results_set_figure(r, row, "sim_ns", ns);
        sweep_results_set_figure(r, row, "metrics.busbw_gbs", 2 * (sips - 1) / sips * bytes / ns);
    }
}

static void draw_links(void)
{
    sweep_results *r = make(&links, fill_links);
    sweep_plot_options o = {.figures = {column(r, "busbw_gbs"), column(r, "sim_ns")},
                            .figure_count = 1,
                            .title = "How much UCIe bandwidth does an all-reduce need?"};
    write_plot("lines", r, &o);
    o.figure_count = 2;
    write_plot("lines-two-figures", r, &o);
    o = (sweep_plot_options){
        .figures = {column(r, "busbw_gbs")}, .figure_count = 1, .x = column(r, "nbytes")};
    write_plot("lines-other-x", r, &o);
    o = (sweep_plot_options){
        .kind = SWEEP_PLOT_HEAT, .figures = {column(r, "busbw_gbs")}, .figure_count = 1};
    write_plot("heat-averaged", r, &o);
    sweep_objectives objectives;
    check(sweep_objectives_parse("--pareto", "bw_gbs:min,busbw_gbs:max", &objectives));
    check(sweep_objectives_find("--pareto", r, &objectives));
    sweep_expression *constraint;
    check(sweep_expression_parse("--constraint", "busbw_gbs > 20", &constraint));
    check(sweep_expression_bind(constraint, r->names, r->columns.count));
    o = (sweep_plot_options){.objectives = &objectives, .constraint = constraint};
    write_plot("pareto", r, &o);
    sweep_expression_destroy(constraint);
    free(objectives.texts);
    sweep_results_destroy(r);
}

/* ---- Many lines -------------------------------------------------------------------------- */

static const grid many = {
    .names = {"batch", "cube.xbar_to_hbm_bw_gbs", "topology.of.a.very.long.name.indeed", "algo"},
    .values = {{"1", "2", "4", "8", "16", "32", "64", "128", "256"},
               {"102.4", "204.8", "409.6"},
               {"ring", "torus <2d> & \"more\"", "mesh_2d_with_a_name_that_goes_on_and_on"},
               {"a", "b", "c", "d"}},
    .counts = {9, 3, 3, 4},
    .axes = 4,
};

static void fill_many(sweep_results *r, size_t row, const size_t *at)
{
    double batch = pow(2, (double)at[0]);
    double ns = fmax(1e6 * batch / (1 + (double)at[1]), 2e7 * (1 + 0.1 * (double)at[2])) *
                (1 + 0.03 * (double)at[3]);
    sweep_results_set_figure(r, row, "metrics.time_ns", ns);
    sweep_results_set_figure(r, row, "metrics.tokens_per_second", batch / ns * 1e9);
}

static void draw_many(void)
{
    sweep_results *r = make(&many, fill_many);
    sweep_plot_options o = {.figures = {column(r, "tokens_per_second")}, .figure_count = 1};
    kb_text text = KB_TEXT_INIT;
    kb_error *err = sweep_plot(r, &o, &text); /* 36 lines: 3 facets of 12 */
    if (!err || !strstr(kb_error_message(err), "too many lines"))
        check(kb_error_new(KB_ERR_BUG, "36 lines were drawn"));
    kb_error_free(err);
    kb_text_fini(&text);
    sweep_results_destroy(r);
    grid fewer = many;
    fewer.axes = 3;
    r = make(&fewer, fill_many);
    o.figures[0] = column(r, "tokens_per_second");
    write_plot("lines-facets", r, &o);
    sweep_results_destroy(r);
}

/* ---- Lines that end at the same place, and texts as an axis -------------------------------- */

static const grid close_lines = {
    .names = {"algorithm", "seed"},
    .values = {{"ring", "tree", "recursive_halving_doubling", "all_to_all_then_reduce"},
               {"10", "20", "30", "40", "50", "60", "70"}},
    .counts = {4, 7},
    .axes = 2,
};

static void fill_close(sweep_results *r, size_t row, const size_t *at)
{
    sweep_results_set_figure(r, row, "metrics.share", 0.5 + 0.001 * (double)(at[1] * (at[0] + 1)));
    sweep_results_set_figure(r, row, "causes.message_ns", 1);
}

static void draw_close(void)
{
    sweep_results *r = make(&close_lines, fill_close);
    sweep_plot_options o = {.figures = {column(r, "share")}, .figure_count = 1};
    write_plot("lines-close", r, &o);
    o.x = column(r, "algorithm");
    write_plot("lines-texts", r, &o);
    sweep_results_destroy(r);
}

/* ---- Heat maps --------------------------------------------------------------------------- */

static const grid squares = {
    .names = {"cube.pe_gemm.rows", "cube.xbar_to_hbm_bw_gbs"},
    .values = {{"8", "16", "32", "64", "96", "128", "192", "256", "384", "512"},
               {"25.6", "51.2", "102.4", "204.8", "409.6", "819.2", "1638.4", "3276.8"}},
    .counts = {10, 8},
    .axes = 2,
};

static void fill_squares(sweep_results *r, size_t row, const size_t *at)
{
    double rate = 1 + (double)at[0], bw = pow(2, (double)at[1]);
    if (at[0] == 9 && at[1] < 2)
        sweep_results_set_status(r, row, "no memory", false, "needs 5 GiB");
    else
        sweep_results_set_figure(r, row, "sim_ns", 1e5 / rate + 3e5 / bw);
}

static const grid wide = {
    .names = {"n", "m"},
    .values = {{"1",  "2",  "3",  "4",  "5",  "6",  "7",  "8",  "9",  "10", "11", "12",
                "13", "14", "15", "16", "17", "18", "19", "20", "21", "22", "23", "24"},
               {"one", "a longer name", "\xff invalid"}},
    .counts = {24, 3},
    .axes = 2,
};

static void fill_wide(sweep_results *r, size_t row, const size_t *at)
{
    sweep_results_set_figure(r, row, "x", (double)at[0] - 5 * (double)at[1] - 0.5);
}

static void draw_heat(void)
{
    sweep_results *r = make(&squares, fill_squares);
    sweep_plot_options o = {.figures = {column(r, "sim_ns")}, .figure_count = 1};
    write_plot("heat", r, &o);
    sweep_results_destroy(r);
    r = make(&wide, fill_wide);
    o = (sweep_plot_options){
        .kind = SWEEP_PLOT_HEAT, .figures = {column(r, "x")}, .figure_count = 1};
    write_plot("heat-wide", r, &o);
    sweep_results_destroy(r);
}

/* ---- A single point, and none ------------------------------------------------------------ */

static void fill_one(sweep_results *r, size_t row, const size_t *at)
{
    (void)at;
    if (row == 0)
        sweep_results_set_figure(r, row, "sim_ns", 17.25);
    else
        sweep_results_set_status(r, row, "failed", false, "");
}

static void draw_one(void)
{
    const grid one = {.names = {"n"}, .values = {{"1", "2"}}, .counts = {2}, .axes = 1};
    sweep_results *r = make(&one, fill_one);
    sweep_plot_options o = {.figures = {column(r, "sim_ns")}, .figure_count = 1};
    write_plot("lines-one-point", r, &o);
    sweep_results_destroy(r);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    folder = argv[1];
    draw_links();
    draw_many();
    draw_close();
    draw_heat();
    draw_one();
    return 0;
}
