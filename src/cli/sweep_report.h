/*
 * sweep_report.h: the results of a sweep as text, JSON, CSV and a plot.
 *
 *     sweep_report.c     options, and what is printed in which order
 *     sweep_tables.c     the table, the pivot, and the points that failed
 *     sweep_findings.c   what the axes change, the best point, the Pareto front: sentences
 *     sweep_json.c       the document of --json
 *     sweep_page.c       the page of --report
 */
#ifndef KB_CLI_SWEEP_REPORT_H
#define KB_CLI_SWEEP_REPORT_H

#include "sweep/sweep.h"

#include <jansson.h>

#include "options.h"

/* Options of the command, and of the mapping `show` of a plan file. */
typedef struct sweep_report_args {
    cli_list values;
    const char *rows, *columns, *sort, *constraint, *best, *pareto, *csv, *plot, *plot_title;
    const char *page;
    size_t plot_kind;
    const char *command; /* no option: what makes the results again, for the page */
} sweep_report_args;

extern const char *const sweep_plot_kinds[4];

/* For a struct with a member `report`. */
#define SWEEP_REPORT_OPTIONS(type)                                                                 \
    CLI_OPTION("--value", "METRIC", CLI_LIST, type, report.values,                                 \
               "a figure to show: sim_ns, busbw_gbs, causes.message_ns, ...; repeatable;\n"        \
               "default: sim_ns, the metrics of the bench and derived ones"),                      \
        CLI_OPTION("--rows", "KEY", CLI_STRING, type, report.rows,                                 \
                   "with --cols: a table of the first figure over two axes"),                      \
        CLI_OPTION("--cols", "KEY", CLI_STRING, type, report.columns,                              \
                   "the axis along the top, and along x of a plot"),                               \
        CLI_OPTION("--sort", "NAME[:max]", CLI_STRING, type, report.sort,                          \
                   "sorts the table by a figure or an axis, the smallest or the largest first"),   \
        CLI_OPTION("--constraint", "EXPR", CLI_STRING, type, report.constraint,                    \
                   "points that --best and --pareto may choose, such as 'busbw_gbs >= 100'"),      \
        CLI_OPTION("--best", "NAME:min|max", CLI_STRING, type, report.best,                        \
                   "says which point is best"),                                                    \
        CLI_OPTION("--pareto", "A:min,B:max", CLI_STRING, type, report.pareto,                     \
                   "says which points no other one beats in all objectives"),                      \
        CLI_OPTION("--csv", "FILE", CLI_STRING, type, report.csv,                                  \
                   "writes all axes and figures as CSV; - is stdout, which has no other text\n"    \
                   "then"),                                                                        \
        CLI_OPTION("--plot", "FILE.svg", CLI_STRING, type, report.plot, "draws the results"),      \
        CLI_OPTION("--plot-kind", "KIND", CLI_ENUM, type, report.plot_kind,                        \
                   "auto (default: chosen from the axes), lines, heat or pareto",                  \
                   CLI_NAMES(sweep_plot_kinds)),                                                   \
        CLI_OPTION("--plot-title", "TEXT", CLI_STRING, type, report.plot_title,                    \
                   "the title of the plot; default: made from the figure and the axes"),           \
        CLI_OPTION("--report", "FILE.html", CLI_STRING, type, report.page,                         \
                   "writes one HTML page that needs nothing else: the plot, figures over axes,\n"  \
                   "the Pareto front, what each axis changes, all points")

/* A report: what is shown of the results, once the names in the options are found. */
typedef struct sweep_report {
    const sweep_results *results;
    const sweep_report_args *args;
    bool quiet;
    KB_VEC(const sweep_column *) figures; /* that are shown */
    const sweep_column *rows, *columns;   /* NULL: not given */
    sweep_objectives sort, best, pareto;  /* count 0: not given */
    sweep_expression *constraint;         /* NULL: none */
    bool *admitted;                       /* by the constraint, for each row */
} sweep_report;

/*
 * Takes options from a plan file, "--rows=KEY", where the command line gives none. The texts must
 * live as long as the arguments.
 */
KB_MUST_USE kb_code sweep_report_take(sweep_report_args *args, const char *const *options,
                                      size_t count);

/* Checks what can be checked before there are results: syntax, and names of axes. */
KB_MUST_USE kb_code sweep_report_check(const sweep_report_args *args, bool json,
                                       const char *const *axes, size_t axis_count);

/*
 * Prints the results, and writes what the options ask for. `derived`: names of figures that are
 * shown by default. Returns KB_ERR_CHECK if a point failed.
 */
KB_MUST_USE kb_code sweep_report_print(const sweep_results *results, const sweep_report_args *args,
                                       const char *const *derived, size_t derived_count, bool json,
                                       bool quiet);

/* Appends the plot as an SVG document; KB_ERR_INPUT if the results cannot be drawn. */
KB_MUST_USE kb_error *sweep_draw(const sweep_report *report, kb_text *out);

/* ---- sweep_tables.c ---- */

KB_MUST_USE kb_code sweep_print_table(const sweep_report *report);
KB_MUST_USE kb_code sweep_print_pivot(const sweep_report *report);
void sweep_print_failures(const sweep_report *report);

/* Appends "a = 1, b = ring": the axes of a row; with `varying` those alone that have two values. */
void sweep_append_axes(kb_text *text, const sweep_results *results, size_t row, bool varying);

/* How many points failed, and how many have not run. */
typedef struct sweep_tally {
    size_t failed, not_run;
} sweep_tally;
sweep_tally sweep_count_failures(const sweep_results *results);

/* ---- sweep_findings.c ---- */

/* Less of a change than this is called a plateau. */
#define SWEEP_TOLERANCE 0.01

KB_MUST_USE kb_error *sweep_print_findings(const sweep_report *report);

/* ---- sweep_json.c ---- */

KB_MUST_USE kb_error *sweep_make_document(const sweep_report *report, json_t **document);
KB_MUST_USE kb_code sweep_print_json(const sweep_report *report);

/* ---- sweep_page.c ---- */

KB_MUST_USE kb_error *sweep_write_page(const sweep_report *report);

#endif
