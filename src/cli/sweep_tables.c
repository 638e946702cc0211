/*
 * sweep_tables.c: the results of a sweep as tables: a row for each point, or a figure over two
 * axes. Every point that failed is told of, with its message.
 */
#include "sweep_report.h"

#include <math.h>
#include <stdlib.h>

#include "cli.h"
#include "columns.h"
#include "terminal.h"

enum { LISTED_FAILURES = 20 };

sweep_tally sweep_count_failures(const sweep_results *results)
{
    sweep_tally tally = {0};
    for (size_t row = 0; row < results->row_count; row++) {
        const sweep_row *r = &results->rows[row];
        tally.failed += r->status && !r->ok;
        tally.not_run += !r->status;
    }
    return tally;
}

/* ---- Columns ----------------------------------------------------------------------------- */

/* The columns of a text table with the texts that they own. */
typedef struct table_plan {
    KB_VEC(cli_column) columns;
    KB_VEC(kb_text) titles;
    KB_VEC(cli_value) values; /* of a row */
    bool failed;
} table_plan;

/* The title is taken over. */
static void add_column(table_plan *t, kb_text title, cli_format format, int decimals)
{
    kb_text_escape_from(&title, 0);
    cli_column column = {.title = cli_text(&title), .format = format, .decimals = decimals};
    bool good = !title.failed && kb_vec_push(&t->titles, title);
    if (!good)
        kb_text_fini(&title);
    if (!good || !kb_vec_push(&t->columns, column) || !kb_vec_push(&t->values, (cli_value){0}))
        t->failed = true;
}

static void add_titled(table_plan *t, const char *title, cli_format format)
{
    kb_text text = KB_TEXT_INIT;
    kb_text_puts(&text, title);
    add_column(t, text, format, 0);
}

static void add_axis(table_plan *t, const sweep_column *axis)
{
    add_titled(t, axis->name, sweep_is_numeric(axis) ? CLI_FIGURE : CLI_WORD);
}

static void add_figure(table_plan *t, const sweep_column *figure, size_t rows)
{
    kb_text title = KB_TEXT_INIT;
    sweep_append_title(&title, figure);
    add_column(t, title, CLI_REAL, sweep_decimals(figure, figure->numbers, rows));
}

static void table_plan_fini(table_plan *t)
{
    for (size_t i = 0; i < t->titles.count; i++)
        kb_text_fini(&t->titles.items[i]);
    kb_vec_fini(&t->titles);
    kb_vec_fini(&t->columns);
    kb_vec_fini(&t->values);
}

/* ---- The table --------------------------------------------------------------------------- */

static int compare_rows(const void *x, const void *y, void *objective)
{
    const sweep_objective *o = objective;
    size_t a = *(const size_t *)x, b = *(const size_t *)y;
    sweep_value p = sweep_cell(o->column, a), q = sweep_cell(o->column, b);
    if (p.none != q.none)
        return p.none ? 1 : -1; /* rows without a value come last */
    if (!p.none && (p.number < q.number || p.number > q.number))
        return (p.number < q.number) != o->maximize ? -1 : 1;
    return (a > b) - (a < b);
}

/* Axes of numbers and figures can be sorted by; rows are in the order of the plan otherwise. */
static size_t *order_rows(const sweep_report *r)
{
    size_t count = r->results->row_count;
    size_t *order = kb_alloc_array(count, sizeof *order);
    for (size_t i = 0; i < count && order; i++)
        order[i] = i;
    if (order && r->sort.count > 0)
        qsort_r(order, count, sizeof *order, compare_rows, (void *)(uintptr_t)&r->sort.items[0]);
    return order;
}

static void plan_table(const sweep_report *r, bool with_status, bool with_bottleneck, table_plan *t)
{
    const sweep_results *results = r->results;
    for (size_t i = 0; i < results->axis_count; i++)
        add_axis(t, &results->columns.items[i]);
    if (with_status)
        add_titled(t, "status", CLI_WORD);
    for (size_t i = 0; i < r->figures.count; i++)
        add_figure(t, r->figures.items[i], results->row_count);
    if (with_bottleneck)
        add_titled(t, "bottleneck", CLI_WORD);
}

static void add_row(const sweep_report *r, size_t row, bool with_status, bool with_bottleneck,
                    table_plan *t, cli_table *table)
{
    const sweep_results *results = r->results;
    cli_value *value = t->values.items;
    for (size_t i = 0; i < results->axis_count; i++)
        *value++ = (cli_value){.text = sweep_cell(&results->columns.items[i], row).text};
    if (with_status) {
        const char *status = results->rows[row].status;
        *value++ = (cli_value){.text = status ? status : "not run"};
    }
    for (size_t i = 0; i < r->figures.count; i++) {
        sweep_value number = sweep_cell(r->figures.items[i], row);
        *value++ = (cli_value){.none = number.none, .real = number.number};
    }
    if (with_bottleneck)
        *value++ = (cli_value){.text = results->rows[row].bottleneck};
    cli_table_row(table, t->values.items, t->values.count);
}

kb_code sweep_print_table(const sweep_report *r)
{
    const sweep_results *results = r->results;
    sweep_tally tally = sweep_count_failures(results);
    bool with_status = tally.failed + tally.not_run > 0, with_bottleneck = false;
    for (size_t row = 0; row < results->row_count; row++)
        with_bottleneck |= results->rows[row].bottleneck != NULL;
    table_plan t = {0};
    plan_table(r, with_status, with_bottleneck, &t);
    size_t *order = order_rows(r);
    kb_code code = t.failed || !order ? cli_report(kb_error_nomem()) : KB_OK;
    if (order && code == KB_OK && t.columns.count > 0) {
        cli_table table;
        cli_table_init(&table, t.columns.items, t.columns.count);
        for (size_t i = 0; i < results->row_count; i++)
            add_row(r, order[i], with_status, with_bottleneck, &t, &table);
        code = cli_table_print(&table, stdout);
    }
    free(order);
    table_plan_fini(&t);
    return code;
}

/* ---- The pivot --------------------------------------------------------------------------- */

static void plan_pivot(const sweep_pivot *p, table_plan *t)
{
    size_t width = p->columns->values.count, cells = width * p->rows->values.count;
    double *means = kb_alloc_array(cells, sizeof *means);
    t->failed = !means;
    for (size_t i = 0; i < cells && means; i++)
        means[i] = p->cells[i].mean;
    int decimals = means ? sweep_decimals(p->value, means, cells) : 0;
    free(means);
    add_axis(t, p->rows);
    for (size_t x = 0; x < width; x++) {
        kb_text title = KB_TEXT_INIT;
        sweep_append_value(&title, p->columns->values.items[p->column_order[x]]);
        add_column(t, title, CLI_FIGURE, decimals);
    }
}

/* The texts of a row; a cell without a number says how its points ended. */
static void add_pivot_row(const sweep_pivot *p, size_t y, table_plan *t, cli_table *table)
{
    size_t width = p->columns->values.count;
    kb_text *texts = kb_alloc_zeroed(width, sizeof *texts);
    t->failed |= !texts;
    t->values.items[0] = (cli_value){.text = p->rows->values.items[p->row_order[y]].text};
    for (size_t x = 0; x < width && texts; x++) {
        const sweep_pivot_cell *cell = sweep_pivot_at(p, y, x);
        if (!isnan(cell->mean))
            kb_text_printf(&texts[x], "%.*f%s", t->columns.items[x + 1].decimals, cell->mean,
                           cell->failed > 0 ? "*" : "");
        else
            kb_text_puts(&texts[x], cell->status ? cell->status : "-");
        t->values.items[x + 1] = (cli_value){.text = cli_text(&texts[x])};
    }
    if (texts)
        cli_table_row(table, t->values.items, t->values.count);
    for (size_t x = 0; x < width && texts; x++)
        kb_text_fini(&texts[x]);
    free(texts);
}

static void print_pivot_head(const sweep_pivot *p)
{
    kb_text title = KB_TEXT_INIT;
    sweep_append_title(&title, p->value);
    kb_text_printf(&title, " by %s (down) and %s (across)", p->rows->name, p->columns->name);
    kb_text_escape_from(&title, 0);
    cli_print_heading(stdout, cli_text(&title));
    kb_text_fini(&title);
}

/* How points of one cell are combined. */
static void print_pivot_notes(const sweep_report *r, const sweep_pivot *p)
{
    kb_text note = KB_TEXT_INIT;
    bool partial = false;
    for (size_t i = 0; i < p->rows->values.count * p->columns->values.count; i++)
        partial |= p->cells[i].failed > 0 && p->cells[i].numbers > 0;
    if (p->combines) {
        kb_text_puts(&note, "A cell has the mean over ");
        sweep_pivot_append_combined(p, r->results, &note);
        kb_text_printf(&note, "; within a cell values are up to %.3g %% of it apart. ",
                       100 * p->spread);
    }
    if (partial)
        kb_text_puts(&note, "*: some points of the cell failed or have not run.");
    if (note.length > 0) {
        printf("\n");
        kb_text_escape_from(&note, 0);
        cli_print_wrapped(stdout, cli_text(&note));
    }
    kb_text_fini(&note);
}

kb_code sweep_print_pivot(const sweep_report *r)
{
    for (size_t i = 0; i < r->figures.count; i++) {
        /* Without --value it is the first figure alone. */
        if (i > 0 && r->args->values.count == 0)
            break;
        sweep_pivot p;
        kb_error *err = sweep_pivot_make(r->results, r->rows, r->columns, r->figures.items[i], &p);
        if (err)
            return cli_report(err);
        table_plan t = {0};
        plan_pivot(&p, &t);
        if (i > 0)
            printf("\n");
        print_pivot_head(&p);
        cli_table table;
        cli_table_init(&table, t.columns.items, t.columns.count);
        for (size_t y = 0; y < p.rows->values.count && !t.failed; y++)
            add_pivot_row(&p, y, &t, &table);
        table.failed |= t.failed;
        kb_code code = cli_table_print(&table, stdout);
        if (code == KB_OK)
            print_pivot_notes(r, &p);
        table_plan_fini(&t);
        sweep_pivot_fini(&p);
        if (code != KB_OK)
            return code;
    }
    return KB_OK;
}

/* ---- Failures ---------------------------------------------------------------------------- */

void sweep_append_axes(kb_text *text, const sweep_results *results, size_t row, bool varying)
{
    size_t count = 0;
    for (size_t i = 0; i < results->axis_count; i++) {
        const sweep_column *axis = &results->columns.items[i];
        sweep_value value = sweep_cell(axis, row);
        if (value.none || (varying && !sweep_varies(axis)))
            continue;
        kb_text_printf(text, "%s%s = %s", count++ > 0 ? ", " : "", axis->name, value.text);
    }
    if (count == 0)
        kb_text_puts(text, "the only point");
}

void sweep_print_failures(const sweep_report *r)
{
    const sweep_results *results = r->results;
    sweep_tally tally = sweep_count_failures(results);
    if (tally.not_run > 0)
        printf("\n%zu of %zu points have not run\n", tally.not_run, results->row_count);
    if (tally.failed == 0)
        return;
    printf("\n%zu of %zu points failed\n", tally.failed, results->row_count);
    size_t listed = 0;
    for (size_t row = 0; row < results->row_count && listed < LISTED_FAILURES; row++) {
        const sweep_row *point = &results->rows[row];
        if (!point->status || point->ok)
            continue;
        kb_text text = KB_TEXT_INIT;
        sweep_append_axes(&text, results, row, false);
        kb_text_printf(&text, ": %s", point->status);
        if (point->message && point->message[0] != '\0')
            kb_text_printf(&text, ": %s", point->message);
        kb_text_escape_from(&text, 0);
        printf("  %s\n", cli_text(&text));
        kb_text_fini(&text);
        listed++;
    }
    if (listed < tally.failed)
        printf("  ... and %zu more: --csv FILE and --json have the messages of all\n",
               tally.failed - listed);
}
