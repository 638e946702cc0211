/*
 * table.h: aligned tables of text.
 *
 *     static const cli_column columns[] = {{.title = "case", .left = true}, {.title = "ns"}};
 *     cli_table table;
 *     cli_table_init(&table, columns, 2);
 *     cli_table_cell(&table, "%s", name);
 *     cli_table_cell(&table, "%s", obs_ns(time).text);
 *     kb_code code = cli_table_print(&table, stdout);
 *
 * Cells are added row by row. Out of memory is sticky; printing says so. A cell is one line of
 * plain text whatever is in it.
 */
#ifndef KB_CLI_TABLE_H
#define KB_CLI_TABLE_H

#include "base/base.h"

#include <kernbench/kernbench.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct cli_column {
    const char *title; /* with the unit of its numbers */
    bool left;         /* aligned to the left: words. Numbers go to the right. */
} cli_column;

typedef struct cli_table {
    const cli_column *columns;
    size_t column_count;
    kb_text text;
    KB_VEC(size_t) ends; /* of the cells, in the text */
    bool failed;
} cli_table;

void cli_table_init(cli_table *table, const cli_column *columns, size_t count);

/* The next cell; "" leaves it empty. */
void cli_table_cell(cli_table *table, const char *format, ...) KB_PRINTF(2, 3);

/* Prints two spaces before each row, and empties the table for good. */
KB_MUST_USE kb_code cli_table_print(cli_table *table, FILE *out);

/* Columns that the text takes on a terminal. */
size_t cli_text_width(const char *text, size_t length);

/* Whether escape codes are wanted there: on a terminal, unless NO_COLOR is set. */
bool cli_wants_colour(FILE *out);

/* A heading: bold on a terminal. */
void cli_print_heading(FILE *out, const char *text);

/* Words on lines of some length, indented. */
void cli_print_wrapped(FILE *out, const char *text);

#endif
