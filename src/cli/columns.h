/*
 * columns.h: tables. One description of the columns makes the text table and the JSON rows.
 *
 *     static const cli_column columns[] = {
 *         CLI_COLUMN("link", "link", CLI_LINK),
 *         CLI_COLUMN("latency ns", "total_ns", CLI_NS),
 *         CLI_COLUMN("util %", "utilization", CLI_SHARE),
 *     };
 *
 *     static void add_links(cli_table *table, const void *results)
 *     {
 *         for each link of the results
 *             CLI_ROW(table, {.n = link->number}, {.n = link->latency_fs}, {.real = link->share});
 *     }
 *
 *     static const cli_rows links = {CLI_COLUMNS(columns), add_links};
 *
 *     code = cli_rows_print(&links, machine, results); // text on stdout
 *     json = cli_rows_json(&links, machine, results);  // an array of objects
 *
 * A column without a title is only in the JSON, one without a key only in the text. The JSON has
 * the members in the order of the columns. Out of memory is sticky; printing reports it.
 */
#ifndef KB_CLI_COLUMNS_H
#define KB_CLI_COLUMNS_H

#include "base/base.h"

#include <jansson.h>
#include <kernbench/kernbench.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "obs/obs.h"
#include "topo/topo.h"

/* How a value is printed: which member of cli_value it is, and an example of the text. Words are
 * aligned to the left, numbers to the right. */
typedef enum cli_format {
    CLI_WORD,       /* text: NULL is an empty cell, and null in JSON */
    CLI_FIGURE,     /* the same, aligned to the right as a number */
    CLI_BOOL,       /* n: "yes", "NO" */
    CLI_INTEGER,    /* n: "12345" */
    CLI_COUNT,      /* n: "12,345" */
    CLI_BYTES,      /* n: "4 KiB" */
    CLI_MFLOP,      /* n, in FLOP: "1.500" */
    CLI_NS,         /* n, in fs: "135.250" */
    CLI_RATE,       /* n, in bytes a second; GB/s, all digits: "204.8" */
    CLI_GBS,        /* real: "28.31" */
    CLI_SHARE,      /* real: 0.5 is "50.0" */
    CLI_ERROR,      /* real: 0.05 is "+5.0" */
    CLI_REAL,       /* real: with the decimals of the column */
    CLI_NODE,       /* n: a node of the machine */
    CLI_LINK,       /* n: a link of the machine; the text has its short name */
    CLI_LINK_CLASS, /* link_class */
    CLI_NESTED      /* json: a column without a title */
} cli_format;

typedef struct cli_column {
    const char *title; /* with the unit; NULL: only in JSON */
    const char *key;   /* NULL: only in the text */
    cli_format format;
    int decimals;
    const char *zero; /* the text for an integer 0; NULL: as other numbers */
} cli_column;

/* A column of both, of the text, and of the JSON. After the format may follow other members. */
#define CLI_COLUMN(title_, key_, ...)                                                              \
    {                                                                                              \
        .title = (title_), .key = (key_), .format = __VA_ARGS__                                    \
    }
#define CLI_TEXT(title_, ...)                                                                      \
    {                                                                                              \
        .title = (title_), .format = __VA_ARGS__                                                   \
    }
#define CLI_JSON(key_, ...)                                                                        \
    {                                                                                              \
        .key = (key_), .format = __VA_ARGS__                                                       \
    }

typedef struct cli_value {
    bool none; /* an empty cell, and null in JSON */
    union {
        kb_time_sum n;
        double real;
        const char *text;
        const link_class *link_class;
        json_t *json; /* taken over; NULL: out of memory */
    };
} cli_value;

typedef struct cli_table {
    const cli_column *columns;
    size_t column_count;
    const topo_machine *machine; /* of nodes and links */
    bool is_json;
    json_t *rows; /* of a table of JSON; the caller's */
    kb_text text;
    KB_VEC(size_t) ends; /* of the cells, in the text */
    bool failed;
} cli_table;

/* A table of text, or of JSON: its `rows` are an array then, NULL if out of memory. */
void cli_table_init(cli_table *table, const cli_column *columns, size_t count);
void cli_table_init_json(cli_table *table, const cli_column *columns, size_t count);

/* Adds a row: a value for each column. */
void cli_table_row(cli_table *table, const cli_value *values, size_t count);
#define CLI_ROW(table, ...)                                                                        \
    cli_table_row(table, (const cli_value[]){__VA_ARGS__},                                         \
                  sizeof((const cli_value[]){__VA_ARGS__}) / sizeof(cli_value))

/* Prints the text, two spaces before each row, and frees the table. */
KB_MUST_USE kb_code cli_table_print(cli_table *table, FILE *out);

/* Frees a table of text without printing it. */
void cli_table_discard(cli_table *table);

/* A table that commands print as text and as JSON. */
typedef struct cli_rows {
    const cli_column *columns;
    size_t column_count;
    void (*add)(cli_table *table, const void *from); /* adds all rows */
} cli_rows;
#define CLI_COLUMNS(array) (array), sizeof(array) / sizeof(array)[0]

KB_MUST_USE kb_code cli_rows_print(const cli_rows *rows, const topo_machine *machine,
                                   const void *from);

/* NULL if out of memory. */
json_t *cli_rows_json(const cli_rows *rows, const topo_machine *machine, const void *from);

#endif
