/* pe2pe_print.c: the results of the bench pe2pe as text: targets, a table and a plot. */
#include "pe2pe.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *const pe2pe_distance_names[] = {"neighbour", "across_cube", "next_cube", "far_cube",
                                            "other_sip"};
const char *const pe2pe_method_names[] = {"queue", "dma"};

/* The marks of a distance in the plot: the first for queues, the second for DMA. */
static const struct {
    const char *label, *phrase;
    char marks[PE2PE_METHODS];
} looks[] = {
    [PE2PE_NEIGHBOUR] = {"neighbour", "the nearest PE of the cube", {'N', 'n'}},
    [PE2PE_ACROSS] = {"across cube", "the farthest PE of the cube", {'A', 'a'}},
    [PE2PE_NEXT_CUBE] = {"next cube", "the same PE of the next cube", {'C', 'c'}},
    [PE2PE_FAR_CUBE] = {"far cube", "the same PE of the farthest cube", {'F', 'f'}},
    [PE2PE_OTHER_SIP] = {"other SIP", "the same PE of another SIP", {'S', 's'}},
};

/* ---- Lines ------------------------------------------------------------------------------- */

typedef struct line {
    char text[192];
    size_t used;
} line;

static void append(line *l, const char *format, ...) KB_PRINTF(2, 3);

static void append(line *l, const char *format, ...)
{
    size_t room = sizeof l->text - l->used;
    va_list args;
    va_start(args, format);
    int length = vsnprintf(l->text + l->used, room, format, args);
    va_end(args);
    if (length > 0)
        l->used += (size_t)length < room ? (size_t)length : room - 1;
}

/* ---- Targets ----------------------------------------------------------------------------- */

void pe2pe_print_targets(kb_bench *bench, const pe2pe_table *table, const kb_pe *targets)
{
    for (int i = 0; i < PE2PE_DISTANCES; i++) {
        if (table->missing[i])
            kb_bench_print(bench, "  %-12s not measured: %s", looks[i].label, table->missing[i]);
        else
            kb_bench_print(bench, "  %-12s sip%u.cube%u.pe%u, %s", looks[i].label, targets[i].sip,
                           targets[i].cube, targets[i].pe, looks[i].phrase);
    }
    kb_bench_print(bench, "queue: from tl_send() until the receiver has the value");
    kb_bench_print(bench, "DMA:   a tl_store() until the bytes are in the target's memory; the "
                          "target is not notified");
}

/* ---- Table ------------------------------------------------------------------------------- */

/* Width of a number, and of the two numbers of a distance. */
enum { FIGURE = 9, PAIR = 2 * FIGURE + 2 };

static void print_head(kb_bench *bench, const pe2pe_table *table)
{
    line names = {.used = 0}, methods = {.used = 0}, units = {.used = 0};
    int after_last = 0; /* spaces behind the last label */
    append(&names, "%8s", "size");
    append(&methods, "%8s", "");
    append(&units, "%8s", "(B)");
    for (int i = 0; i < PE2PE_DISTANCES; i++) {
        if (table->missing[i])
            continue;
        int spaces = PAIR - (int)strlen(looks[i].label), left = (spaces + 1) / 2;
        append(&names, "%*s%s", after_last + left, "", looks[i].label);
        after_last = spaces - left;
        append(&methods, "%*s%*s", PAIR - FIGURE, "queue", FIGURE, "DMA");
        append(&units, "%*s%*s", PAIR - FIGURE, "(ns)", FIGURE, "(ns)");
    }
    kb_bench_print(bench, "%s", names.text);
    kb_bench_print(bench, "%s", methods.text);
    kb_bench_print(bench, "%s", units.text);
}

static void report(kb_bench *bench, const pe2pe_table *table, int distance, int method, size_t size)
{
    char name[64];
    snprintf(name, sizeof name, "%s_%s_%" PRIu64, pe2pe_distance_names[distance],
             pe2pe_method_names[method], table->sizes.bytes[size]);
    kb_bench_detail(bench, name, kb_to_ns(table->latency[distance][method][size]), "ns");
}

void pe2pe_print_table(kb_bench *bench, const pe2pe_table *table)
{
    print_head(bench, table);
    for (size_t size = 0; size < table->sizes.count; size++) {
        line row = {.used = 0};
        append(&row, "%8" PRIu64, table->sizes.bytes[size]);
        for (int i = 0; i < PE2PE_DISTANCES; i++) {
            if (table->missing[i])
                continue;
            append(&row, "%*s", PAIR - 2 * FIGURE, "");
            for (int method = 0; method < PE2PE_METHODS; method++) {
                append(&row, "%*.2f", FIGURE, kb_to_ns(table->latency[i][method][size]));
                report(bench, table, i, method, size);
            }
        }
        kb_bench_print(bench, "%s", row.text);
    }
}

/* ---- Plot -------------------------------------------------------------------------------- */

enum { ROWS = 21, COLUMNS = 71 };

typedef struct plot {
    double min, max; /* latency, in ns */
    char cells[ROWS][COLUMNS];
} plot;

/* The position of a value on a logarithmic axis from min (0) to max (count - 1). */
static int position(double value, double min, double max, int count)
{
    return max > min ? (int)lround(log(value / min) / log(max / min) * (count - 1)) : 0;
}

/* If both methods of a distance coincide, the queue's mark stays; other coinciding marks become
 * '*'. */
static void mark(plot *p, double latency, double bytes, const pe2pe_sizes *sizes, char with)
{
    int row = position(latency, p->min, p->max, ROWS);
    int column =
        position(bytes, (double)sizes->bytes[0], (double)sizes->bytes[sizes->count - 1], COLUMNS);
    char *cell = &p->cells[row][column];
    if (*cell == ' ')
        *cell = with;
    else if (toupper((unsigned char)*cell) != toupper((unsigned char)with))
        *cell = '*';
}

/* In ns, and at least the resolution of time, so that it has a logarithm. */
static double latency_of(const pe2pe_table *table, int distance, int method, size_t size)
{
    return fmax(kb_to_ns(table->latency[distance][method][size]), kb_to_ns(1));
}

static void fill(plot *p, const pe2pe_table *table)
{
    p->min = (double)INFINITY;
    p->max = 0;
    for (int i = 0; i < PE2PE_DISTANCES; i++)
        for (int method = 0; method < PE2PE_METHODS && !table->missing[i]; method++)
            for (size_t size = 0; size < table->sizes.count; size++) {
                p->min = fmin(p->min, latency_of(table, i, method, size));
                p->max = fmax(p->max, latency_of(table, i, method, size));
            }
    memset(p->cells, ' ', sizeof p->cells);
    for (int i = 0; i < PE2PE_DISTANCES; i++)
        for (int method = 0; method < PE2PE_METHODS && !table->missing[i]; method++)
            for (size_t size = 0; size < table->sizes.count; size++)
                mark(p, latency_of(table, i, method, size), (double)table->sizes.bytes[size],
                     &table->sizes, looks[i].marks[method]);
}

void pe2pe_print_plot(kb_bench *bench, const pe2pe_table *table)
{
    plot p;
    line key = {.used = 0};
    fill(&p, table);
    for (int i = 0; i < PE2PE_DISTANCES; i++)
        if (!table->missing[i])
            append(&key, "  %c %c %s", looks[i].marks[PE2PE_QUEUE], looks[i].marks[PE2PE_DMA],
                   looks[i].label);
    kb_bench_print(bench,
                   "Latency (ns) over size (B), both axes logarithmic. Marks of queue and DMA:");
    kb_bench_print(bench, "%s", key.text);
    kb_bench_print(bench, "  a capital also stands for both at one place, * for several distances");
    for (int row = ROWS - 1; row >= 0; row--) {
        double at = p.min * pow(p.max / p.min, (double)row / (ROWS - 1));
        const char *cells = p.cells[row];
        int length = COLUMNS;
        while (length > 0 && cells[length - 1] == ' ')
            length--;
        if (row % 5 == 0)
            kb_bench_print(bench, "%10.2f |%.*s", at, length, cells);
        else
            kb_bench_print(bench, "%10s |%.*s", "", length, cells);
    }
    kb_bench_print(bench, "%10s +%.*s", "", COLUMNS,
                   "--------------------------------------------------------------------------");
    kb_bench_print(bench, "%12s%-*" PRIu64 "%*" PRIu64, "", COLUMNS / 2, table->sizes.bytes[0],
                   COLUMNS - COLUMNS / 2, table->sizes.bytes[table->sizes.count - 1]);
}
