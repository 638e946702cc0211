/*
 * what_if_table.c: what would make a run faster as text, made from the document of what_if.c alone.
 * A resource has a row if its effect or what the path expects of it is worth one; the others are
 * named below, by why they have none.
 */
#include "what_if_table.h"

#include <math.h>
#include <stdint.h>

#include "columns.h"
#include "explain_report.h"
#include "terminal.h"
#include "what_if.h"

static bool is_cut_off(const json_t *result)
{
    return json_object_get(result, "not_measured") != NULL;
}

/* The result for the factor 2, or of a setting of the user's. */
static const json_t *main_result(const json_t *one)
{
    const json_t *measured = json_object_get(one, "measured");
    const json_t *own = json_object_get(measured, "own");
    return own ? own : json_object_get(measured, factor_names[HALF]);
}

/* Without a sign before 0.0. */
static void put_percent(double share, kb_text *text)
{
    static const double shown = 0.0005;
    kb_text_printf(text, "%.1f", share > -shown && share < shown ? 0 : 100 * share);
}

/* "12.3", "no effect", "fails", "no time"; "-": there was no need */
static void put_gain(const json_t *measured, kb_text *text)
{
    if (!json_is_object(measured))
        kb_text_puts(text, "-");
    else if (is_cut_off(measured))
        kb_text_puts(text, "no time");
    else if (json_object_get(measured, "fails"))
        kb_text_puts(text, "fails");
    else if (explain_fs(measured, "gain_fs") == 0)
        kb_text_puts(text, "no effect");
    else
        put_percent(json_number_value(json_object_get(measured, "gain")), text);
}

/* "same", "other waits", "changes; most then: vector engine" */
static void put_path(const json_t *one, kb_text *text)
{
    const json_t *at_two = main_result(one);
    const json_t *same = json_object_get(at_two, "same_path");
    if (json_is_true(same))
        kb_text_puts(text,
                     json_is_false(json_object_get(at_two, "same_waits")) ? "other waits" : "same");
    else if (json_is_false(same))
        kb_text_printf(text, "changes; most then: %s", explain_string(at_two, "most"));
    else
        kb_text_puts(text, "-");
}

/* The largest gain or loss of any factor; negative: not measured, or it fails. */
static double largest_effect(const json_t *measured)
{
    double largest = -1;
    const char *factor;
    const json_t *at;
    json_object_foreach((json_t *)(uintptr_t)measured, factor, at)
    {
        if (json_object_get(at, "fails"))
            return -1;
        if (json_is_object(at) && !is_cut_off(at))
            largest = fmax(largest, fabs(json_number_value(json_object_get(at, "gain"))));
    }
    return largest;
}

typedef enum row_kind { SHOWN, NO_EFFECT, SMALL, CUT_OFF, ROW_KINDS } row_kind;

/* What deserves a row: an effect, one's own setting, a failure, or what the path expects of it. */
static row_kind kind_of_row(const json_t *path, const json_t *one)
{
    const json_t *measured = json_object_get(one, "measured");
    kb_time expected = explain_fs(json_object_get(one, "estimate_fs"), "2");
    double effect = largest_effect(measured);
    if (json_object_get(measured, "own") || effect >= WHAT_IF_MATTERS)
        return SHOWN;
    if (effect >= 0)
        return effect > 0 ? SMALL : NO_EFFECT;
    bool fails = json_object_get(main_result(one), "fails") != NULL;
    bool is_expected = (double)expected >= WHAT_IF_MATTERS * (double)explain_fs(path, "fs");
    return fails || is_expected ? SHOWN : CUT_OFF;
}

static void add_row(const json_t *path, const json_t *one, cli_table *out)
{
    const json_t *measured = json_object_get(one, "measured");
    const json_t *estimate = json_object_get(json_object_get(one, "estimate_fs"), "2");
    kb_text cells[FACTORS + 2] = {0};
    put_path(one, &cells[FACTORS + 1]);
    const json_t *own = json_object_get(measured, "own");
    for (int f = 0; f < FACTORS; f++)
        put_gain(own ? (f == HALF ? own : NULL) : json_object_get(measured, factor_names[f]),
                 &cells[f]);
    if (json_is_integer(estimate))
        put_percent((double)json_integer_value(estimate) / (double)explain_fs(path, "fs"),
                    &cells[FACTORS]);
    else
        kb_text_puts(&cells[FACTORS], "-");
    CLI_ROW(out, {.text = explain_string(one, "name")}, {.text = kb_text_peek(&cells[0])},
            {.text = kb_text_peek(&cells[1])}, {.text = kb_text_peek(&cells[2])},
            {.text = kb_text_peek(&cells[3])}, {.text = kb_text_peek(&cells[FACTORS + 1])});
    for (int f = 0; f < FACTORS + 2; f++)
        kb_text_fini(&cells[f]);
}

/* "No effect: TCM bandwidth, SRAM." */
static void print_names(const json_t *table, const char *what,
                        bool (*has)(const json_t *path, const json_t *one), const json_t *path)
{
    kb_text text = KB_TEXT_INIT;
    size_t i;
    const json_t *one;
    json_array_foreach(table, i, one)
    {
        if (has(path, one))
            kb_text_printf(&text, "%s%s", text.length == 0 ? what : ", ",
                           explain_string(one, "name"));
    }
    if (text.length > 0) {
        kb_text_puts(&text, ".");
        cli_print_wrapped(stdout, kb_text_peek(&text));
    }
    kb_text_fini(&text);
}

static bool has_no_effect(const json_t *path, const json_t *one)
{
    return kind_of_row(path, one) == NO_EFFECT;
}

static bool has_small_effect(const json_t *path, const json_t *one)
{
    return kind_of_row(path, one) == SMALL;
}

/* Also if it has a row, for what the path says of it. */
static bool has_no_result(const json_t *path, const json_t *one)
{
    (void)path;
    return is_cut_off(main_result(one));
}

static bool is_in_shared_run(const json_t *path, const json_t *one)
{
    (void)path;
    return json_is_object(json_object_get(one, "together"));
}

/* Of which there is no result of its own: "4 times as good, all in one run, 3.1 % faster: SRAM,
 * IPCQ." */
static void print_together(const json_t *table)
{
    const json_t *together = NULL;
    size_t i;
    const json_t *one;
    json_array_foreach(table, i, one)
    {
        if (is_in_shared_run(NULL, one) && has_no_result(NULL, one))
            together = json_object_get(one, "together");
    }
    if (!together)
        return;
    kb_text what = KB_TEXT_INIT;
    kb_text_printf(&what, "%s times as good all in one run, these gain ",
                   explain_string(together, "factor"));
    put_percent(json_number_value(json_object_get(together, "gain")), &what);
    kb_text_puts(&what, " %: ");
    print_names(table, kb_text_peek(&what), is_in_shared_run, NULL);
    kb_text_fini(&what);
}

/* "cube.pe_tcm.capacity_mib=4.5 fails: kernbench: kernel 'add_up' ..." */
static void print_failures(const json_t *table)
{
    size_t i;
    const json_t *one;
    json_array_foreach(table, i, one)
    {
        const json_t *at = main_result(one);
        if (!json_object_get(at, "fails"))
            continue;
        kb_text text = KB_TEXT_INIT;
        kb_text_printf(&text, "%s fails: %s", explain_string(one, "name"),
                       explain_string(at, "fails"));
        cli_print_wrapped(stdout, kb_text_peek(&text));
        kb_text_fini(&text);
    }
}

kb_code what_if_print(const json_t *path, const json_t *table, bool verbose)
{
    static const cli_column columns[] = {
        CLI_TEXT("what would help", CLI_WORD),  CLI_TEXT("1.25x %", CLI_FIGURE),
        CLI_TEXT("2x %", CLI_FIGURE),           CLI_TEXT("4x %", CLI_FIGURE),
        CLI_TEXT("path says 2x %", CLI_FIGURE), CLI_TEXT("path at 2x", CLI_WORD)};
    cli_table out;
    cli_table_init(&out, columns, sizeof columns / sizeof columns[0]);
    size_t i;
    const json_t *one;
    json_array_foreach(table, i, one)
    {
        if (verbose || kind_of_row(path, one) == SHOWN)
            add_row(path, one, &out);
    }
    kb_code code = cli_table_print(&out, stdout);
    if (code != KB_OK)
        return code;
    print_failures(table);
    if (!verbose) {
        print_names(table, "No effect: ", has_no_effect, path);
        print_names(table, "Less than 0.1 %: ", has_small_effect, path);
    }
    print_names(table, "Not measured in time (--rerun-seconds): ", has_no_result, path);
    print_together(table);
    return KB_OK;
}
