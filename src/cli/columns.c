/*
 * columns.c: tables as text and as JSON: see columns.h. Column widths are counted in characters of
 * a terminal, not in bytes. A cell is one line of plain text. Numbers do not depend on the locale.
 */
#include "columns.h"

#include "cli.h"
#include "json.h"
#include "machine_options.h"
#include "terminal.h"

#include <stdlib.h>
#include <string.h>

void cli_table_init(cli_table *table, const cli_column *columns, size_t count)
{
    *table = (cli_table){.columns = columns, .column_count = count};
}

void cli_table_init_json(cli_table *table, const cli_column *columns, size_t count)
{
    cli_table_init(table, columns, count);
    table->is_json = true;
    table->rows = json_array();
}

/* ---- JSON -------------------------------------------------------------------------------- */

static json_t *link_class_json(const link_class *c)
{
    return json_pack("[ss]", topo_kind_name(c->a), topo_kind_name(c->b));
}

static json_t *value_json(const cli_table *table, const cli_column *column, const cli_value *value)
{
    if (value->none)
        return json_null();
    switch (column->format) {
    case CLI_WORD:
    case CLI_FIGURE:
        return value->text ? cli_json_text(value->text) : json_null();
    case CLI_BOOL:
        return json_boolean(value->n != 0);
    case CLI_INTEGER:
    case CLI_COUNT:
    case CLI_BYTES:
    case CLI_MFLOP:
        return cli_json_count((kb_u128)value->n);
    case CLI_NS:
        return cli_json_ns(value->n);
    case CLI_RATE:
        return cli_json_rate((uint64_t)value->n);
    case CLI_GBS:
    case CLI_SHARE:
    case CLI_ERROR:
    case CLI_REAL:
        return cli_json_real(value->real);
    case CLI_NODE:
        return cli_json_node(table->machine, (uint32_t)value->n);
    case CLI_LINK:
        return cli_json_link(table->machine, (uint32_t)value->n);
    case CLI_LINK_CLASS:
        return link_class_json(value->link_class);
    case CLI_NESTED:
        return value->json;
    }
    return NULL;
}

static void add_json_row(cli_table *table, const cli_value *values)
{
    json_t *row = json_object();
    for (size_t i = 0; i < table->column_count; i++)
        if (table->columns[i].key)
            cli_json_set(&row, table->columns[i].key,
                         value_json(table, &table->columns[i], &values[i]));
    cli_json_append(&table->rows, row);
}

/* ---- Text -------------------------------------------------------------------------------- */

static void put_value(cli_table *table, const cli_column *column, const cli_value *value)
{
    kb_text *out = &table->text;
    switch (column->format) {
    case CLI_WORD:
    case CLI_FIGURE:
        kb_text_puts(out, value->text ? value->text : "");
        break;
    case CLI_BOOL:
        kb_text_puts(out, value->n != 0 ? "yes" : "NO");
        break;
    case CLI_INTEGER:
        kb_text_printf(out, "%lld", (long long)value->n);
        break;
    case CLI_COUNT:
        kb_text_puts(out, obs_count((kb_u128)value->n).text);
        break;
    case CLI_BYTES:
        kb_text_puts(out, obs_bytes((uint64_t)value->n).text);
        break;
    case CLI_MFLOP:
        kb_text_printf(out, "%.3f", (double)value->n * 1e-6);
        break;
    case CLI_NS:
        kb_text_puts(out, obs_ns(value->n).text);
        break;
    case CLI_RATE:
        kb_text_puts(out, obs_rate((uint64_t)value->n).text);
        break;
    case CLI_GBS:
        kb_text_puts(out, obs_gbs(value->real).text);
        break;
    case CLI_SHARE:
        kb_text_puts(out, obs_percent(value->real).text);
        break;
    case CLI_ERROR:
        kb_text_printf(out, "%+.1f", 100 * value->real);
        break;
    case CLI_REAL:
        kb_text_printf(out, "%.*f", column->decimals, value->real);
        break;
    case CLI_NODE:
        topo_node_name(table->machine, (uint32_t)value->n, out);
        break;
    case CLI_LINK:
        cli_short_link_name(table->machine, (uint32_t)value->n, out);
        break;
    case CLI_LINK_CLASS:
        link_class_name(value->link_class, out);
        break;
    case CLI_NESTED:
        KB_ASSERT(false);
    }
}

static bool is_integer(cli_format format)
{
    return format >= CLI_INTEGER && format <= CLI_RATE;
}

static void add_cell(cli_table *table, const cli_column *column, const cli_value *value)
{
    size_t start = table->text.length;
    if (column->zero && is_integer(column->format) && !value->none && value->n == 0)
        kb_text_puts(&table->text, column->zero);
    else if (!value->none)
        put_value(table, column, value);
    kb_text_escape_from(&table->text, start);
    if (table->text.failed || !kb_vec_push(&table->ends, table->text.length))
        table->failed = true;
}

void cli_table_row(cli_table *table, const cli_value *values, size_t count)
{
    KB_ASSERT(count == table->column_count);
    if (table->is_json) {
        add_json_row(table, values);
        return;
    }
    for (size_t i = 0; i < count; i++)
        if (table->columns[i].title)
            add_cell(table, &table->columns[i], &values[i]);
}

/* ---- Printing text ----------------------------------------------------------------------- */

/* A column of the text: columns without a title are left out. */
typedef struct text_column {
    const char *title;
    size_t width;
    bool left;
} text_column;

typedef struct cell {
    const char *text;
    size_t length;
} cell;

static cell cell_at(const cli_table *table, size_t i)
{
    size_t start = i == 0 ? 0 : table->ends.items[i - 1];
    return (cell){kb_text_peek(&table->text) + start, table->ends.items[i] - start};
}

/* Returns how many columns the text has. */
static size_t lay_out(const cli_table *table, text_column *columns)
{
    size_t count = 0;
    for (size_t i = 0; i < table->column_count; i++) {
        const cli_column *c = &table->columns[i];
        bool left = c->format == CLI_WORD || c->format == CLI_BOOL || c->format >= CLI_NODE;
        if (c->title)
            columns[count++] =
                (text_column){c->title, cli_text_width(c->title, strlen(c->title)), left};
    }
    KB_ASSERT(count > 0 && table->ends.count % count == 0);
    for (size_t i = 0; i < table->ends.count; i++) {
        cell c = cell_at(table, i);
        size_t width = cli_text_width(c.text, c.length);
        if (width > columns[i % count].width)
            columns[i % count].width = width;
    }
    return count;
}

/* *pending: spaces that are printed if another text follows in the line. */
static void print_cell(const text_column *column, cell c, int *pending, FILE *out)
{
    size_t used = cli_text_width(c.text, c.length);
    int gap = (int)(column->width > used ? column->width - used : 0);
    *pending += 2 + (column->left ? 0 : gap);
    if (c.length > 0) {
        fprintf(out, "%*s", *pending, "");
        fwrite(c.text, 1, c.length, out);
        *pending = 0;
    }
    *pending += column->left ? gap : 0;
}

static void print_table(const cli_table *table, const text_column *columns, size_t count, FILE *out)
{
    int pending = 0;
    cli_print_bold(out, true);
    for (size_t i = 0; i < count; i++)
        print_cell(&columns[i], (cell){columns[i].title, strlen(columns[i].title)}, &pending, out);
    cli_print_bold(out, false);
    fputc('\n', out);
    for (size_t i = 0, column = 0; i < table->ends.count; i++) {
        pending = column == 0 ? 0 : pending;
        print_cell(&columns[column], cell_at(table, i), &pending, out);
        column = column + 1 == count ? 0 : column + 1;
        if (column == 0)
            fputc('\n', out);
    }
}

void cli_table_discard(cli_table *table)
{
    kb_text_fini(&table->text);
    kb_vec_fini(&table->ends);
}

kb_code cli_table_print(cli_table *table, FILE *out)
{
    text_column *columns = kb_alloc_array(table->column_count, sizeof *columns);
    bool good = columns && !table->failed;
    if (good)
        print_table(table, columns, lay_out(table, columns), out);
    free(columns);
    cli_table_discard(table);
    return good ? KB_OK : cli_report(kb_error_nomem());
}

/* ---- Tables of commands ------------------------------------------------------------------ */

kb_code cli_rows_print(const cli_rows *rows, const topo_machine *machine, const void *from)
{
    cli_table table;
    cli_table_init(&table, rows->columns, rows->column_count);
    table.machine = machine;
    rows->add(&table, from);
    return cli_table_print(&table, stdout);
}

json_t *cli_rows_json(const cli_rows *rows, const topo_machine *machine, const void *from)
{
    cli_table table;
    cli_table_init_json(&table, rows->columns, rows->column_count);
    table.machine = machine;
    rows->add(&table, from);
    return table.rows;
}
