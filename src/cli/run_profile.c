/*
 * run_profile.c: the profile of a run by source line and operation.
 *
 * Times are those of all PEs that take part, over the time in which kernels run: rows, and what PEs
 * without a kernel wait for, add up to it. The source is shown if the file can be read.
 */
#include "run.h"

#include "cli.h"
#include "files.h"
#include "json.h"
#include "table.h"

#include <stdlib.h>
#include <string.h>

enum { SHOWN_LINES = 20, SOURCE_CHARACTERS = 60, CAUSES_SHOWN = 3 };
static const double negligible = 0.005;      /* of the time: lines that are not shown, */
static const double negligible_row = 0.0005; /* and operations of a line */

/* ---- Rows in order ----------------------------------------------------------------------- */

typedef KB_VEC(const kb_profile_row *) row_list;

/* A source line: rows that follow each other in a list. */
typedef struct line {
    const kb_profile_row *const *rows;
    size_t count;
    kb_time_sum time;
} line;

typedef KB_VEC(line) line_list;

static int compare_places(const kb_profile_row *x, const kb_profile_row *y)
{
    int order = strcmp(x->file ? x->file : "", y->file ? y->file : "");
    return order != 0 ? order : (x->line > y->line) - (x->line < y->line);
}

/* By line; the largest first in each; of equals the order of units and names. */
static int compare_rows(const void *a, const void *b)
{
    const kb_profile_row *x = *(const kb_profile_row *const *)a;
    const kb_profile_row *y = *(const kb_profile_row *const *)b;
    int order = compare_places(x, y);
    if (order == 0)
        order = (x->time < y->time) - (x->time > y->time);
    if (order == 0)
        order = (int)x->unit - (int)y->unit;
    return order != 0 ? order : strcmp(x->name, y->name);
}

/* The largest first; of equals the order of files and lines. */
static int compare_lines(const void *a, const void *b)
{
    const line *x = a, *y = b;
    if (x->time != y->time)
        return x->time < y->time ? 1 : -1;
    return compare_places(x->rows[0], y->rows[0]);
}

/* False for want of memory. */
static bool sort_rows(const kb_profile *profile, row_list *rows, line_list *lines)
{
    size_t count;
    const kb_profile_row *all = kb_profile_rows(profile, &count);
    for (size_t i = 0; i < count; i++)
        if ((all[i].time > 0 || all[i].count > 0) && !kb_vec_push(rows, &all[i]))
            return false;
    if (rows->count > 0)
        qsort(rows->items, rows->count, sizeof rows->items[0], compare_rows);
    for (size_t i = 0; i < rows->count; i++) {
        if (i == 0 || compare_places(rows->items[i - 1], rows->items[i]) != 0)
            if (!kb_vec_push(lines, ((line){.rows = rows->items + i})))
                return false;
        line *last = &lines->items[lines->count - 1];
        last->count++;
        last->time += rows->items[i]->time;
    }
    if (lines->count > 0)
        qsort(lines->items, lines->count, sizeof lines->items[0], compare_lines);
    return true;
}

/* All that is divided: of each PE the time in which kernels run. */
static double whole_time(const run_stats *f)
{
    return (double)f->timeline.kernels * (double)f->timeline.pes;
}

static double share_of(const run_stats *f, kb_time_sum time)
{
    double whole = whole_time(f);
    return whole > 0 ? (double)time / whole : 0;
}

/* ---- Source ------------------------------------------------------------------------------ */

/* The last file that was asked for; "" if it cannot be read. */
typedef struct source {
    const char *path;
    kb_text text;
} source;

/* The line without the white space around it; *length is 0 if there is none. */
static const char *find_line(source *s, const char *path, int number, size_t *length)
{
    *length = 0;
    if (!path || number < 1)
        return "";
    if (!s->path || strcmp(s->path, path) != 0) {
        kb_text_fini(&s->text);
        s->text = (kb_text)KB_TEXT_INIT;
        s->path = path;
        kb_error *err = cli_read_file(path, &s->text);
        if (err)
            kb_text_fini(&s->text);
        kb_error_free(err);
    }
    const char *at = cli_text(&s->text);
    for (int i = 1; i < number && at; i++) {
        at = strchr(at, '\n');
        at = at ? at + 1 : NULL;
    }
    if (!at)
        return "";
    at += strspn(at, " \t\r");
    *length = strcspn(at, "\n");
    while (*length > 0 && strchr(" \t\r", at[*length - 1]))
        --*length;
    return at;
}

static void source_fini(source *s)
{
    kb_text_fini(&s->text);
}

static const char *without_folders(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* ---- Text -------------------------------------------------------------------------------- */

/* "stalled on local memory 80 %, issuing commands 20 %": the largest few. */
static void put_causes(const kb_profile_row *row, kb_text *text)
{
    bool done[KB_CAUSES] = {0};
    for (int shown = 0; shown < CAUSES_SHOWN; shown++) {
        int most = -1;
        for (int c = 0; c < KB_CAUSES; c++)
            if (!done[c] && row->causes[c] > 0 && (most < 0 || row->causes[c] > row->causes[most]))
                most = c;
        if (most < 0 || run_share(row->causes[most], row->time) < negligible)
            break;
        done[most] = true;
        kb_text_printf(text, "%s%s %.0f %%", shown > 0 ? ", " : "", run_cause_label(most),
                       100 * run_share(row->causes[most], row->time));
    }
}

/* Cells that say nothing. */
static void put_blanks(cli_table *table, int count)
{
    for (int i = 0; i < count; i++)
        cli_table_cell(table, "%s", "");
}

static void put_time(const run_stats *f, cli_table *table, kb_time_sum time)
{
    cli_table_cell(table, "%s", obs_percent(share_of(f, time)).text);
    cli_table_cell(table, "%s", obs_ns(time / (kb_time_sum)f->timeline.pes).text);
}

static void put_row(const run_stats *f, cli_table *table, const kb_profile_row *row)
{
    kb_text causes = KB_TEXT_INIT;
    put_causes(row, &causes);
    cli_table_cell(table, "  %s, %s", row->name, kb_unit_name(row->unit));
    put_time(f, table, row->time);
    cli_table_cell(table, "%s", obs_count(row->count).text);
    cli_table_cell(table, "%s", row->bytes > 0 ? obs_count(row->bytes).text : "");
    if (row->flops > 0)
        cli_table_cell(table, "%.3f", (double)row->flops * 1e-6);
    else
        put_blanks(table, 1);
    cli_table_cell(table, "%s", cli_text(&causes));
    kb_text_fini(&causes);
}

/* The line with its source, and its operations. */
static void put_line(const run_stats *f, cli_table *table, const line *l, source *s, bool all)
{
    const kb_profile_row *first = l->rows[0];
    size_t length;
    const char *text = find_line(s, first->file, first->line, &length);
    if (first->file)
        cli_table_cell(table, "%s:%d", without_folders(first->file), first->line);
    else
        cli_table_cell(table, "%s", "(no line)");
    put_time(f, table, l->time);
    put_blanks(table, 3);
    bool is_long = length > SOURCE_CHARACTERS;
    cli_table_cell(table, "%.*s%s", (int)(is_long ? SOURCE_CHARACTERS : length), text,
                   is_long ? " ..." : "");
    for (size_t i = 0; i < l->count; i++)
        if (all || share_of(f, l->rows[i]->time) >= negligible_row)
            put_row(f, table, l->rows[i]);
}

/* What PEs without a kernel wait for. */
static void put_no_kernel(const run_stats *f, cli_table *table, kb_cause cause)
{
    kb_time_sum time = f->timeline.causes[cause];
    if (time == 0)
        return;
    cli_table_cell(table, "(%s)", kb_cause_name(cause));
    put_time(f, table, time);
    put_blanks(table, 3);
    cli_table_cell(table, "%s", run_cause_label((int)cause));
}

static kb_code print_lines(const run_stats *f, const line_list *lines, bool all)
{
    static const cli_column columns[] = {
        {.title = "line, operation", .left = true},
        {.title = "% time"},
        {.title = "ns per PE"},
        {.title = "commands"},
        {.title = "bytes"},
        {.title = "MFLOP"},
        {.title = "source, causes", .left = true},
    };
    cli_table table;
    source s = {.text = KB_TEXT_INIT};
    cli_table_init(&table, columns, sizeof columns / sizeof columns[0]);
    size_t shown = 0;
    kb_time_sum rest = 0;
    for (size_t i = 0; i < lines->count; i++) {
        const line *l = &lines->items[i];
        if (all || (i < SHOWN_LINES && share_of(f, l->time) >= negligible)) {
            put_line(f, &table, l, &s, all);
            shown++;
        } else {
            rest += l->time;
        }
    }
    source_fini(&s);
    put_no_kernel(f, &table, KB_CAUSE_LAUNCH);
    put_no_kernel(f, &table, KB_CAUSE_IMBALANCE);
    kb_code code = cli_table_print(&table, stdout);
    if (shown < lines->count)
        printf("  ... and %zu more, %s %% in all (--verbose shows them)\n", lines->count - shown,
               obs_percent(share_of(f, rest)).text);
    return code;
}

kb_code run_profile_print(const run_stats *f, bool all)
{
    row_list rows = {0};
    line_list lines = {0};
    bool right = sort_rows(f->profile, &rows, &lines);
    char title[200];
    snprintf(title, sizeof title, "Profile by source line: %s PE%s, %s ns each while kernels run",
             obs_count(f->pes).text, f->pes == 1 ? "" : "s", obs_ns(f->timeline.kernels).text);
    if (right)
        cli_print_heading(stdout, title);
    kb_code code = right ? print_lines(f, &lines, all) : cli_report(kb_error_nomem());
    kb_vec_fini(&lines);
    kb_vec_fini(&rows);
    return code;
}

/* ---- JSON -------------------------------------------------------------------------------- */

static json_t *causes_json(const kb_profile_row *row)
{
    json_t *object = json_object();
    for (int c = 0; object && c < KB_CAUSES; c++) {
        char key[40];
        snprintf(key, sizeof key, "%s_ns", kb_cause_name((kb_cause)c));
        if (row->causes[c] > 0 &&
            json_object_set_new(object, key, cli_json_ns(row->causes[c])) != 0) {
            json_decref(object);
            object = NULL;
        }
    }
    return object;
}

/* Text of others may be no UTF-8. */
static json_t *text_json(const char *text, size_t length)
{
    kb_text plain = KB_TEXT_INIT;
    kb_text_printf(&plain, "%.*s", (int)length, text);
    kb_text_escape_from(&plain, 0);
    json_t *value = plain.failed ? NULL : json_string(cli_text(&plain));
    kb_text_fini(&plain);
    return value;
}

static json_t *row_json(const run_stats *f, const kb_profile_row *row, source *s)
{
    size_t length;
    const char *text = find_line(s, row->file, row->line, &length);
    return json_pack("{s:o, s:i, s:o, s:s, s:s, s:o, s:o, s:I, s:I, s:I, s:o}", "file",
                     row->file ? text_json(row->file, strlen(row->file)) : json_null(), "line",
                     row->line, "source", length > 0 ? text_json(text, length) : json_null(),
                     "operation", row->name, "unit", kb_unit_name(row->unit), "time_ns",
                     cli_json_ns(row->time), "share", cli_json_real(share_of(f, row->time)),
                     "commands", (json_int_t)row->count, "bytes", (json_int_t)row->bytes, "flops",
                     (json_int_t)row->flops, "causes", causes_json(row));
}

/* A row that belongs to no line. */
static json_t *no_kernel_json(const run_stats *f, kb_cause cause)
{
    kb_profile_row row = {.name = kb_cause_name(cause), .unit = KB_UNIT_CPU};
    row.time = row.causes[cause] = f->timeline.causes[cause];
    source none = {.text = KB_TEXT_INIT};
    return row_json(f, &row, &none);
}

static json_t *lines_json(const run_stats *f, const line_list *lines)
{
    json_t *array = json_array();
    source s = {.text = KB_TEXT_INIT};
    for (size_t i = 0; i < lines->count; i++)
        for (size_t j = 0; j < lines->items[i].count; j++)
            cli_json_append(&array, row_json(f, lines->items[i].rows[j], &s));
    source_fini(&s);
    for (int c = 0; c < KB_CAUSES; c++)
        if ((c == KB_CAUSE_LAUNCH || c == KB_CAUSE_IMBALANCE) && f->timeline.causes[c] > 0)
            cli_json_append(&array, no_kernel_json(f, (kb_cause)c));
    return array;
}

json_t *run_profile_json(const run_stats *f)
{
    row_list rows = {0};
    line_list lines = {0};
    json_t *array = sort_rows(f->profile, &rows, &lines) ? lines_json(f, &lines) : NULL;
    kb_vec_fini(&lines);
    kb_vec_fini(&rows);
    return array;
}
