/* format.c: see format.h. */
#include "format.h"

#include <math.h>
#include <string.h>

/* ---- Units ------------------------------------------------------------------------------- */

typedef struct unit {
    const char *suffix; /* of the last part of a name, or the whole part without '_' */
    const char *name;
} unit;

static const unit units[] = {
    {"_ns", "ns"},          {"_us", "us"},       {"_ms", "ms"},   {"_s", "s"},
    {"_gbs", "GB/s"},       {"_tbs", "TB/s"},    {"_gib", "GiB"}, {"_mib", "MiB"},
    {"_kib", "KiB"},        {"_bytes", "bytes"}, {"_mm", "mm"},   {"_tflops", "TFLOP/s"},
    {"_gflops", "GFLOP/s"},
};

/* Metrics of a table of sizes, as the benches of collectives have them: busbw_1048576. */
static const unit sized[] = {
    {"busbw_", "GB/s"}, {"algbw_", "GB/s"}, {"time_", "us"}, {"bound_", "us"}};

static const char *last_part(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

/* The suffix in the table that the name ends with, or is without its '_'; NULL if there is none. */
static const unit *find_unit(const char *part)
{
    size_t length = strlen(part);
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        size_t size = strlen(units[i].suffix);
        if ((length > size && strcmp(part + length - size, units[i].suffix) == 0) ||
            (size > 3 && strcmp(part, units[i].suffix + 1) == 0))
            return &units[i];
    }
    return NULL;
}

const char *sweep_unit(const char *name)
{
    const char *part = last_part(name);
    for (size_t i = 0; i < sizeof sized / sizeof sized[0]; i++) {
        size_t size = strlen(sized[i].suffix);
        if (strncmp(part, sized[i].suffix, size) == 0 && part[size] != '\0' &&
            part[size + strspn(part + size, "0123456789")] == '\0')
            return sized[i].name;
    }
    const unit *found = find_unit(part);
    return found ? found->name : "";
}

void sweep_append_title(kb_text *text, const sweep_column *column)
{
    static const char metrics[] = "metrics.";
    const char *name = column->name;
    if (column->is_axis) {
        kb_text_puts(text, name);
        return;
    }
    if (strncmp(name, metrics, strlen(metrics)) == 0)
        name += strlen(metrics);
    const unit *found = find_unit(last_part(name));
    size_t length = strlen(name), cut = found ? strlen(found->suffix) : 0;
    if (found && strcmp(last_part(name), found->suffix + 1) == 0) { /* "tflops" */
        kb_text_puts(text, name);
        return;
    }
    kb_text_append(text, name, length - cut);
    kb_text_printf(text, *sweep_unit(name) ? " %s" : "%s", sweep_unit(name));
}

/* ---- Decimals ---------------------------------------------------------------------------- */

int sweep_decimals(const sweep_column *column, const double *numbers, size_t count)
{
    enum { DIGITS = 5, MAX_DECIMALS = 6 };
    bool whole = true;
    double smallest = (double)INFINITY;
    for (size_t i = 0; i < count; i++) {
        if (isnan(numbers[i]))
            continue;
        whole &= !(fabs(numbers[i] - nearbyint(numbers[i])) > 0);
        if (fabs(numbers[i]) > 0)
            smallest = fmin(smallest, fabs(numbers[i]));
    }
    if (whole)
        return 0;
    if (strcmp(sweep_unit(column->name), "ns") == 0)
        return 3;
    int decimals = DIGITS - 1 - (int)floor(log10(smallest));
    return decimals < 1 ? 1 : decimals > MAX_DECIMALS ? MAX_DECIMALS : decimals;
}

/* ---- CSV --------------------------------------------------------------------------------- */

/* Quoted where it must be (RFC 4180). */
static void append_field(kb_text *text, const char *field)
{
    if (field[strcspn(field, ",\"\r\n")] == '\0') {
        kb_text_puts(text, field);
        return;
    }
    kb_text_puts(text, "\"");
    for (const char *c = field; *c != '\0'; c++)
        kb_text_append(text, *c == '"' ? "\"\"" : c, *c == '"' ? 2 : 1);
    kb_text_puts(text, "\"");
}

static void append_cell(kb_text *text, const sweep_results *results, size_t row, size_t column)
{
    sweep_value value = sweep_cell(&results->columns.items[column], row);
    if (!value.none && value.text)
        append_field(text, value.text);
    else if (!value.none)
        sweep_append_number(text, value.number);
}

static void append_header(kb_text *text, const sweep_results *results)
{
    for (size_t c = 0; c < results->axis_count; c++) {
        append_field(text, results->names[c]);
        kb_text_puts(text, ",");
    }
    kb_text_puts(text, "status,message,bottleneck");
    for (size_t c = results->axis_count; c < results->columns.count; c++) {
        kb_text_puts(text, ",");
        append_field(text, results->names[c]);
    }
    kb_text_puts(text, "\n");
}

static void append_row(kb_text *text, const sweep_results *results, size_t row)
{
    const sweep_row *r = &results->rows[row];
    for (size_t c = 0; c < results->axis_count; c++) {
        append_cell(text, results, row, c);
        kb_text_puts(text, ",");
    }
    append_field(text, r->status ? r->status : "not run");
    kb_text_puts(text, ",");
    append_field(text, r->message ? r->message : "");
    kb_text_puts(text, ",");
    append_field(text, r->bottleneck ? r->bottleneck : "");
    for (size_t c = results->axis_count; c < results->columns.count; c++) {
        kb_text_puts(text, ",");
        append_cell(text, results, row, c);
    }
    kb_text_puts(text, "\n");
}

void sweep_append_csv(kb_text *text, const sweep_results *results)
{
    append_header(text, results);
    for (size_t row = 0; row < results->row_count; row++)
        append_row(text, results, row);
}
