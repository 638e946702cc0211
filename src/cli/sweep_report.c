/* sweep_report.c: options of a report, and what it prints in which order; see sweep_report.h. */
#include "sweep_report.h"

#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "files.h"

const char *const sweep_plot_kinds[4] = {"auto", "lines", "heat", "pareto"};

enum { SHOWN_METRICS = 6 }; /* by default: of a bench that has more, those that differ */

/* ---- Options ----------------------------------------------------------------------------- */

typedef struct view_args {
    sweep_report_args report;
} view_args;

static const cli_option view_options[] = {SWEEP_REPORT_OPTIONS(view_args)};

static const cli_command view_command = {.name = "sweep", CLI_OPTIONS(view_options)};

static void prefer(const char **given, const char *other)
{
    if (!*given)
        *given = other;
}

kb_code sweep_report_take(sweep_report_args *args, const char *const *options, size_t count)
{
    view_args view = {0};
    char **argv = kb_alloc_zeroed(count + 2, sizeof *argv);
    if (!argv)
        return cli_report(kb_error_nomem());
    for (size_t i = 0; i < count; i++) /* cli_parse() moves words and changes none */
        argv[i + 1] = (char *)(uintptr_t)options[i];
    int argc = (int)count + 1;
    kb_code code = cli_parse(&view_command, &argc, argv, &view);
    free(argv);
    sweep_report_args *from = &view.report;
    if (code != KB_OK || args->values.count > 0) {
        cli_list_fini(&from->values);
    } else {
        cli_list_fini(&args->values);
        args->values = from->values;
    }
    if (code != KB_OK)
        return code;
    prefer(&args->rows, from->rows);
    prefer(&args->columns, from->columns);
    prefer(&args->sort, from->sort);
    prefer(&args->constraint, from->constraint);
    prefer(&args->best, from->best);
    prefer(&args->pareto, from->pareto);
    prefer(&args->csv, from->csv);
    prefer(&args->plot, from->plot);
    prefer(&args->plot_title, from->plot_title);
    prefer(&args->page, from->page);
    args->plot_kind = args->plot_kind > 0 ? args->plot_kind : from->plot_kind;
    return KB_OK;
}

/* "NAME" is "NAME:min" for --sort. */
static kb_error *parse_sort(const char *text, sweep_objectives *out)
{
    const char *colon = strrchr(text, ':');
    kb_text full = KB_TEXT_INIT;
    kb_text_puts(&full, text);
    if (!colon || (strcmp(colon, ":min") != 0 && strcmp(colon, ":max") != 0))
        kb_text_puts(&full, ":min");
    kb_error *err =
        full.failed ? kb_error_nomem() : sweep_objectives_parse("--sort", kb_text_peek(&full), out);
    kb_text_fini(&full);
    return err;
}

static kb_error *parse_objectives(const char *option, const char *text, size_t at_most,
                                  sweep_objectives *out)
{
    KB_TRY(sweep_objectives_parse(option, text, out));
    if (out->count <= at_most)
        return NULL;
    free(out->texts);
    *out = (sweep_objectives){0};
    return kb_error_new(KB_ERR_INPUT, "%s: expected one objective, such as sim_ns:min", option);
}

/* Parses what the arguments ask for. */
static kb_error *parse(sweep_report *r)
{
    const sweep_report_args *a = r->args;
    if (a->constraint)
        KB_TRY(sweep_expression_parse("--constraint", a->constraint, &r->constraint));
    if (a->sort)
        KB_TRY(parse_sort(a->sort, &r->sort));
    if (a->best)
        KB_TRY(parse_objectives("--best", a->best, 1, &r->best));
    if (a->pareto)
        KB_TRY(parse_objectives("--pareto", a->pareto, SWEEP_MAX_OBJECTIVES, &r->pareto));
    return NULL;
}

static void fini(sweep_report *r)
{
    kb_vec_fini(&r->figures);
    free(r->sort.texts);
    free(r->best.texts);
    free(r->pareto.texts);
    free(r->admitted);
    sweep_expression_destroy(r->constraint);
}

static kb_error *check_axis(const char *option, const char *name, const char *const *axes,
                            size_t count)
{
    size_t index;
    kb_error *err = name ? sweep_find_name("axis", name, axes, count, &index) : NULL;
    return err ? kb_error_wrap(err, "%s", option) : NULL;
}

/* What goes together. */
static kb_error *check_combination(const sweep_report_args *a, bool json)
{
    if (a->rows && !a->columns)
        return kb_error_new(KB_ERR_INPUT, "--rows needs --cols, the axis along the top");
    if (a->constraint && !a->best && !a->pareto)
        return kb_error_new(KB_ERR_INPUT, "--constraint needs --best or --pareto");
    if (a->plot_kind == SWEEP_PLOT_PARETO && !a->pareto)
        return kb_error_new(KB_ERR_INPUT, "--plot-kind pareto needs --pareto a:min,b:max");
    bool csv_is_stdout = false, plot_is_stdout = false, page_is_stdout = false;
    if (a->csv)
        KB_TRY(cli_is_stdout(a->csv, &csv_is_stdout));
    if (a->plot)
        KB_TRY(cli_is_stdout(a->plot, &plot_is_stdout));
    if (a->page)
        KB_TRY(cli_is_stdout(a->page, &page_is_stdout));
    if (page_is_stdout)
        return kb_error_new(KB_ERR_INPUT, "--report %s: give a file", a->page);
    if (csv_is_stdout + plot_is_stdout + json > 1)
        return kb_error_new(KB_ERR_INPUT, "only one of --json, --csv and --plot can be on stdout");
    return NULL;
}

kb_code sweep_report_check(const sweep_report_args *args, bool json, const char *const *axes,
                           size_t axis_count)
{
    sweep_report report = {.args = args};
    kb_error *err = check_combination(args, json);
    if (!err)
        err = parse(&report);
    if (!err)
        err = check_axis("--rows", args->rows, axes, axis_count);
    if (!err)
        err = check_axis("--cols", args->columns, axes, axis_count);
    fini(&report);
    return err ? cli_report(err) : KB_OK;
}

/* ---- Figures ----------------------------------------------------------------------------- */

static kb_error *add_figure(sweep_report *r, const sweep_column *figure)
{
    for (size_t i = 0; i < r->figures.count; i++)
        if (r->figures.items[i] == figure)
            return NULL;
    return kb_vec_push(&r->figures, figure) ? NULL : kb_error_nomem();
}

static kb_error *add_named(sweep_report *r, const char *name)
{
    const sweep_results *results = r->results;
    size_t axes = results->axis_count, index;
    kb_error *err = sweep_find_name("figure", name, results->names + axes,
                                    results->columns.count - axes, &index);
    return err ? kb_error_wrap(err, "--value")
               : add_figure(r, &results->columns.items[axes + index]);
}

static bool is_metric(const sweep_column *column)
{
    return !column->is_axis && strncmp(column->name, "metrics.", strlen("metrics.")) == 0;
}

static bool differs(const sweep_report *r, const sweep_column *figure)
{
    double first = 0;
    bool any = false;
    for (size_t row = 0; row < r->results->row_count; row++) {
        sweep_value value = sweep_cell(figure, row);
        if (!r->results->rows[row].ok || value.none)
            continue;
        if (any && (value.number < first || value.number > first))
            return true;
        first = value.number;
        any = true;
    }
    return false;
}

/* sim_ns, derived figures, and metrics: the first that differ, if there are many. */
static kb_error *choose_figures(sweep_report *r, const char *const *derived, size_t derived_count)
{
    const sweep_results *results = r->results;
    for (size_t i = 0; i < r->args->values.count; i++)
        KB_TRY(add_named(r, r->args->values.items[i]));
    if (r->args->values.count > 0)
        return NULL;
    size_t metrics = 0, shown = 0;
    for (size_t c = results->axis_count; c < results->columns.count; c++) {
        const sweep_column *column = &results->columns.items[c];
        metrics += is_metric(column);
        if (strcmp(column->name, "sim_ns") == 0)
            KB_TRY(add_figure(r, column));
    }
    for (size_t i = 0; i < derived_count; i++)
        KB_TRY(add_named(r, derived[i]));
    for (size_t c = results->axis_count; c < results->columns.count && shown < SHOWN_METRICS; c++) {
        const sweep_column *column = &results->columns.items[c];
        if (is_metric(column) && (metrics <= SHOWN_METRICS || differs(r, column))) {
            KB_TRY(add_figure(r, column));
            shown++;
        }
    }
    return NULL;
}

/* ---- Names ------------------------------------------------------------------------------- */

static kb_error *find_axis(const sweep_report *r, const char *option, const char *name,
                           const sweep_column **out)
{
    kb_error *err = name ? sweep_find_axis(r->results, "axis", name, out) : NULL;
    return err ? kb_error_wrap(err, "%s", option) : NULL;
}

static kb_error *find_names(sweep_report *r)
{
    const sweep_results *results = r->results;
    KB_TRY(find_axis(r, "--rows", r->args->rows, &r->rows));
    KB_TRY(find_axis(r, "--cols", r->args->columns, &r->columns));
    KB_TRY(sweep_objectives_find("--sort", results, &r->sort));
    KB_TRY(sweep_objectives_find("--best", results, &r->best));
    KB_TRY(sweep_objectives_find("--pareto", results, &r->pareto));
    if (r->constraint)
        KB_TRY(sweep_expression_bind(r->constraint, results->names, results->columns.count));
    r->admitted = kb_alloc_zeroed(results->row_count, sizeof *r->admitted);
    if (!r->admitted)
        return kb_error_nomem();
    sweep_admit(results, r->constraint, r->admitted);
    if (r->rows && r->rows == r->columns)
        return kb_error_new(KB_ERR_INPUT, "--rows and --cols are the same axis");
    return NULL;
}

/* ---- Files ------------------------------------------------------------------------------- */

static kb_error *write_csv(const sweep_report *r)
{
    kb_text text = KB_TEXT_INIT;
    sweep_append_csv(&text, r->results);
    kb_error *err = text.failed ? kb_error_nomem() : cli_write_file(r->args->csv, &text);
    kb_text_fini(&text);
    return err;
}

kb_error *sweep_draw(const sweep_report *r, kb_text *out)
{
    sweep_plot_options options = {
        .kind = (sweep_plot_kind)r->args->plot_kind,
        .title = r->args->plot_title,
        .x = r->columns,
        .y = r->rows,
        .objectives = r->pareto.count > 0 ? &r->pareto : NULL,
        .constraint = r->constraint,
    };
    /* Without --value, one figure: the first metric that differs, or else the simulated time. */
    size_t most = r->args->values.count > 0 ? SWEEP_MAX_PLOTTED : 1;
    for (size_t i = 0; i < r->figures.count && options.figure_count < most; i++)
        options.figures[options.figure_count++] = r->figures.items[i];
    if (options.figure_count == 0 && !options.objectives)
        return kb_error_new(KB_ERR_INPUT, "the points have no figures");
    return sweep_plot(r->results, &options, out);
}

static kb_error *write_plot(const sweep_report *r)
{
    kb_text text = KB_TEXT_INIT;
    kb_error *err = sweep_draw(r, &text);
    if (err)
        err = kb_error_wrap(err, "--plot");
    else
        err = cli_write_file(r->args->plot, &text);
    kb_text_fini(&text);
    return err;
}

/* ---- Printing ---------------------------------------------------------------------------- */

static kb_code print_text(const sweep_report *r)
{
    kb_code code = r->rows ? sweep_print_pivot(r) : sweep_print_table(r);
    if (code != KB_OK)
        return code;
    sweep_print_failures(r);
    kb_error *err = r->quiet ? NULL : sweep_print_findings(r);
    return err ? cli_report(err) : KB_OK;
}

/* Whether a file of the options is stdout. */
static kb_error *takes_stdout(const sweep_report *r, bool *taken)
{
    bool csv = false, plot = false;
    if (r->args->csv)
        KB_TRY(cli_is_stdout(r->args->csv, &csv));
    if (r->args->plot)
        KB_TRY(cli_is_stdout(r->args->plot, &plot));
    *taken = csv || plot;
    return NULL;
}

static kb_error *prepare(sweep_report *r, const char *const *derived, size_t derived_count)
{
    KB_TRY(parse(r));
    KB_TRY(choose_figures(r, derived, derived_count));
    KB_TRY(find_names(r));
    if (r->rows && r->figures.count == 0)
        return kb_error_new(KB_ERR_INPUT, "no point has a figure to show");
    return NULL;
}

static kb_error *write_files(const sweep_report *r)
{
    if (r->args->csv)
        KB_TRY(write_csv(r));
    if (r->args->plot)
        KB_TRY(write_plot(r));
    return r->args->page ? sweep_write_page(r) : NULL;
}

kb_code sweep_report_print(const sweep_results *results, const sweep_report_args *args,
                           const char *const *derived, size_t derived_count, bool json, bool quiet)
{
    sweep_report r = {.results = results, .args = args, .quiet = quiet};
    /* Without a figure there is nothing to choose, divide or draw: the failures say why. */
    const sweep_report_args bare = {.csv = args->csv};
    if (results->columns.count == results->axis_count) {
        r.args = &bare;
        derived_count = 0;
    }
    bool stdout_is_taken = false;
    kb_error *err = prepare(&r, derived, derived_count);
    if (!err)
        err = takes_stdout(&r, &stdout_is_taken);
    kb_code code = KB_OK;
    if (!err && json)
        code = sweep_print_json(&r);
    else if (!err && !stdout_is_taken)
        code = print_text(&r);
    if (!err && code == KB_OK)
        err = write_files(&r);
    if (err)
        code = cli_report(err);
    fini(&r);
    if (code == KB_OK && sweep_count_failures(results).failed > 0)
        code = KB_ERR_CHECK;
    return code;
}
