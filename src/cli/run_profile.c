/*
 * run_profile.c: the profile of a run by source line and operation, as text and as JSON.
 *
 * It divides the time in which kernels run, of all participating PEs: operations, and PEs without a
 * kernel, add up to it. The source is shown if the file can be read.
 */
#include "run.h"

#include "files.h"
#include "json.h"
#include "terminal.h"

#include <stdlib.h>
#include <string.h>

enum { SHOWN_LINES = 20, SOURCE_CHARACTERS = 60, CAUSES_SHOWN = 3 };
static const double negligible = 0.005;      /* share of the time of lines that are not shown, */
static const double negligible_row = 0.0005; /* and of operations of a line */

/* ---- Rows in order ----------------------------------------------------------------------- */

typedef KB_VEC(const kb_profile_row *) row_list;

/* A source line: consecutive rows of a list. */
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

/* By line, then descending time; ties: unit and name. */
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

/* Descending time; ties: file and line. */
static int compare_lines(const void *a, const void *b)
{
    const line *x = a, *y = b;
    if (x->time != y->time)
        return x->time < y->time ? 1 : -1;
    return compare_places(x->rows[0], y->rows[0]);
}

/* False if out of memory. */
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

/* The time that the profile divides. */
static double whole_time(const run_stats *s)
{
    return (double)s->timeline.kernels * (double)s->timeline.pes;
}

static double share_of(const run_stats *s, kb_time_sum time)
{
    double whole = whole_time(s);
    return whole > 0 ? (double)time / whole : 0;
}

/* ---- Source ------------------------------------------------------------------------------ */

/* The file that was read last; "" if it cannot be read. */
typedef struct source {
    const char *path;
    kb_text text;
} source;

/* The line without leading and trailing white space; *length is 0 if it does not exist. */
static const char *find_line(source *file, const char *path, int number, size_t *length)
{
    *length = 0;
    if (!path || number < 1)
        return "";
    if (!file->path || strcmp(file->path, path) != 0) {
        kb_text_fini(&file->text);
        file->text = (kb_text)KB_TEXT_INIT;
        file->path = path;
        kb_error *err = cli_read_file(path, &file->text);
        if (err)
            kb_text_fini(&file->text);
        kb_error_free(err);
    }
    const char *at = cli_text(&file->text);
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

/* ---- Rows of the table ------------------------------------------------------------------- */

/* "stalled on local memory 80 %, issuing commands 20 %": the largest few. */
static void put_causes(const kb_profile_row *row, kb_text *text)
{
    int order[KB_CAUSES];
    size_t count = run_sort_causes(row->causes, KB_CAUSES, order);
    for (size_t i = 0; i < count && i < CAUSES_SHOWN; i++) {
        double share = run_share(row->causes[order[i]], row->time);
        if (share < negligible)
            break;
        kb_text_printf(text, "%s%s %.0f %%", i > 0 ? ", " : "", run_cause_label(order[i]),
                       100 * share);
    }
}

/* The text has a row for each line, with its source, and below it its operations, with what their
 * time went to; the JSON has the operations. */
static const cli_column columns[] = {
    CLI_TEXT("line, operation", CLI_WORD),
    CLI_JSON("file", CLI_WORD),
    CLI_JSON("line", CLI_INTEGER),
    CLI_JSON("source", CLI_WORD),
    CLI_JSON("operation", CLI_WORD),
    CLI_JSON("unit", CLI_WORD),
    CLI_JSON("time_ns", CLI_NS),
    CLI_COLUMN("% time", "share", CLI_SHARE),
    CLI_TEXT("ns per PE", CLI_NS),
    CLI_COLUMN("commands", "commands", CLI_COUNT),
    CLI_COLUMN("bytes", "bytes", CLI_COUNT, .zero = ""),
    CLI_COLUMN("MFLOP", "flops", CLI_MFLOP, .zero = ""),
    CLI_JSON("causes", CLI_NESTED),
    CLI_TEXT("source, causes", CLI_WORD),
};

/* Adds a row of the text for a line, or for PEs without a kernel. */
static void add_heading(cli_table *table, const run_stats *s, const char *name, kb_time_sum time,
                        const char *description)
{
    static const cli_value none = {.none = true};
    CLI_ROW(table, {.text = name}, none, none, none, none, none, none, {.real = share_of(s, time)},
            {.n = time / (kb_time_sum)s->timeline.pes}, none, none, none, none,
            {.text = description});
}

static json_t *causes_json(const kb_profile_row *row)
{
    json_t *object = json_object();
    for (int c = 0; c < KB_CAUSES; c++) {
        char key[40];
        snprintf(key, sizeof key, "%s_ns", kb_cause_name((kb_cause)c));
        if (row->causes[c] > 0)
            cli_json_set(&object, key, cli_json_ns(row->causes[c]));
    }
    return object;
}

static void add_operation(cli_table *table, const run_stats *s, const kb_profile_row *row,
                          source *lines)
{
    size_t length;
    const char *at = find_line(lines, row->file, row->line, &length);
    kb_text name = KB_TEXT_INIT, text = KB_TEXT_INIT, causes = KB_TEXT_INIT;
    kb_text_printf(&name, "  %s, %s", row->name, kb_unit_name(row->unit));
    kb_text_append(&text, at, length);
    put_causes(row, &causes);
    CLI_ROW(table, {.text = cli_text(&name)}, {.text = row->file}, {.n = row->line},
            {.text = length > 0 ? cli_text(&text) : NULL}, {.text = row->name},
            {.text = kb_unit_name(row->unit)}, {.n = row->time}, {.real = share_of(s, row->time)},
            {.n = row->time / (kb_time_sum)s->timeline.pes}, {.n = row->count}, {.n = row->bytes},
            {.n = row->flops}, {.json = table->is_json ? causes_json(row) : NULL},
            {.text = cli_text(&causes)});
    kb_text_fini(&name);
    kb_text_fini(&text);
    kb_text_fini(&causes);
}

/* ---- Text -------------------------------------------------------------------------------- */

/* The line with its source, and its operations. */
static void add_line(cli_table *table, const run_stats *s, const line *l, source *lines, bool all)
{
    const kb_profile_row *first = l->rows[0];
    size_t length;
    const char *at = find_line(lines, first->file, first->line, &length);
    bool is_long = length > SOURCE_CHARACTERS;
    kb_text name = KB_TEXT_INIT, text = KB_TEXT_INIT;
    if (first->file)
        kb_text_printf(&name, "%s:%d", without_folders(first->file), first->line);
    else
        kb_text_puts(&name, "(no line)");
    kb_text_append(&text, at, is_long ? SOURCE_CHARACTERS : length);
    kb_text_puts(&text, is_long ? " ..." : "");
    add_heading(table, s, cli_text(&name), l->time, cli_text(&text));
    kb_text_fini(&name);
    kb_text_fini(&text);
    for (size_t i = 0; i < l->count; i++)
        if (all || share_of(s, l->rows[i]->time) >= negligible_row)
            add_operation(table, s, l->rows[i], lines);
}

/* The time of PEs without a kernel. */
static void add_no_kernel(cli_table *table, const run_stats *s, kb_cause cause)
{
    char name[48];
    snprintf(name, sizeof name, "(%s)", kb_cause_name(cause));
    if (s->timeline.causes[cause] > 0)
        add_heading(table, s, name, s->timeline.causes[cause], run_cause_label((int)cause));
}

static kb_code print_lines(const run_stats *s, const line_list *lines, bool all)
{
    cli_table table;
    source file = {.text = KB_TEXT_INIT};
    cli_table_init(&table, CLI_COLUMNS(columns));
    size_t shown = 0;
    kb_time_sum rest = 0;
    for (size_t i = 0; i < lines->count; i++) {
        const line *l = &lines->items[i];
        if (all || (i < SHOWN_LINES && share_of(s, l->time) >= negligible)) {
            add_line(&table, s, l, &file, all);
            shown++;
        } else {
            rest += l->time;
        }
    }
    source_fini(&file);
    add_no_kernel(&table, s, KB_CAUSE_LAUNCH);
    add_no_kernel(&table, s, KB_CAUSE_IMBALANCE);
    kb_code code = cli_table_print(&table, stdout);
    if (shown < lines->count)
        printf("  ... and %zu more, %s %% in all (--verbose shows them)\n", lines->count - shown,
               obs_percent(share_of(s, rest)).text);
    return code;
}

kb_code run_print_profile(const run_view *view)
{
    const run_stats *s = view->stats;
    row_list rows = {0};
    line_list lines = {0};
    bool done = sort_rows(s->profile, &rows, &lines);
    char title[200];
    snprintf(title, sizeof title, "Profile by source line: %s PE%s, %s ns each while kernels run",
             obs_count(s->pes).text, kb_plural(s->pes), obs_ns(s->timeline.kernels).text);
    if (done)
        cli_print_heading(stdout, title);
    kb_code code = done ? print_lines(s, &lines, view->verbose) : cli_report(kb_error_nomem());
    kb_vec_fini(&lines);
    kb_vec_fini(&rows);
    return code;
}

/* ---- JSON -------------------------------------------------------------------------------- */

/* A row of PEs without a kernel, which belongs to no line. */
static void add_no_kernel_json(cli_table *table, const run_stats *s, kb_cause cause)
{
    kb_profile_row row = {.name = kb_cause_name(cause), .unit = KB_UNIT_CPU};
    row.time = row.causes[cause] = s->timeline.causes[cause];
    source none = {.text = KB_TEXT_INIT};
    if (row.time > 0)
        add_operation(table, s, &row, &none);
}

static void add_all(cli_table *table, const run_stats *s, const line_list *lines)
{
    source file = {.text = KB_TEXT_INIT};
    for (size_t i = 0; i < lines->count; i++)
        for (size_t j = 0; j < lines->items[i].count; j++)
            add_operation(table, s, lines->items[i].rows[j], &file);
    source_fini(&file);
    for (int c = 0; c < KB_CAUSES; c++)
        if (c == KB_CAUSE_LAUNCH || c == KB_CAUSE_IMBALANCE)
            add_no_kernel_json(table, s, (kb_cause)c);
}

json_t *run_profile_json(const run_view *view)
{
    const run_stats *s = view->stats;
    row_list rows = {0};
    line_list lines = {0};
    cli_table table;
    cli_table_init_json(&table, CLI_COLUMNS(columns));
    if (sort_rows(s->profile, &rows, &lines)) {
        add_all(&table, s, &lines);
    } else {
        json_decref(table.rows);
        table.rows = NULL;
    }
    kb_vec_fini(&lines);
    kb_vec_fini(&rows);
    return table.rows;
}
