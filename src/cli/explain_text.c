/* explain_text.c: a critical path as text, from its document. */
#include "explain_report.h"

#include "columns.h"
#include "run.h"
#include "terminal.h"

#include <string.h>

enum { FEW_GROUPS = 5, LARGE_GROUPS = 10, ALL_GROUPS = 64, FEW_STEPS = 5, ALL_STEPS = 1 << 30 };

kb_time explain_fs(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

const char *explain_string(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

obs_number explain_ns(kb_time time)
{
    obs_number number = obs_ns(time < 0 ? -time : time);
    if (time < 0) {
        memmove(number.text + 1, number.text, strlen(number.text) + 1);
        number.text[0] = '-';
    }
    return number;
}

static double share_of(kb_time part, const json_t *path)
{
    return run_share(part, explain_fs(path, "fs"));
}

/* ---- The headline ------------------------------------------------------------------------ */

void explain_print_headline(const json_t *path)
{
    cli_print_wrapped(stdout, explain_string(path, "headline"));
    const json_t *difference = json_object_get(path, "difference");
    if (json_is_string(difference))
        cli_print_wrapped(stdout, json_string_value(difference));
    size_t i;
    const json_t *note;
    json_array_foreach(json_object_get(path, "notes"), i, note)
    {
        kb_text text = KB_TEXT_INIT;
        kb_text_printf(&text, "Also: %s.", json_string_value(note));
        cli_print_wrapped(stdout, kb_text_peek(&text));
        kb_text_fini(&text);
    }
}

/* ---- Groups ------------------------------------------------------------------------------ */

typedef struct group_table {
    const char *title, *key;
    size_t shown;
} group_table;

static kb_code print_group(const json_t *path, const group_table *of)
{
    const json_t *groups = json_object_get(path, of->key), *group;
    cli_column columns[] = {CLI_TEXT(of->title, CLI_WORD), CLI_TEXT("ns", CLI_NS),
                            CLI_TEXT("% of the run", CLI_SHARE), CLI_TEXT("steps", CLI_COUNT)};
    cli_table table;
    cli_table_init(&table, columns, sizeof columns / sizeof columns[0]);
    kb_time others = 0;
    json_int_t other_steps = 0;
    size_t i;
    json_array_foreach(groups, i, group)
    {
        kb_time time = explain_fs(group, "fs");
        if (i >= of->shown) {
            others += time;
            other_steps += json_integer_value(json_object_get(group, "steps"));
            continue;
        }
        CLI_ROW(&table, {.text = explain_string(group, "name")}, {.n = time},
                {.real = share_of(time, path)},
                {.n = json_integer_value(json_object_get(group, "steps"))});
    }
    kb_text more = KB_TEXT_INIT;
    if (json_array_size(groups) > of->shown) {
        kb_text_printf(&more, "%zu others", json_array_size(groups) - of->shown);
        CLI_ROW(&table, {.text = kb_text_peek(&more)}, {.n = others},
                {.real = share_of(others, path)}, {.n = other_steps});
    }
    if (json_array_size(groups) > 1)
        CLI_ROW(&table, {.text = "all"}, {.n = explain_fs(path, "fs")}, {.real = 1},
                {.n = json_integer_value(json_object_get(path, "steps"))});
    kb_code code = cli_table_print(&table, stdout);
    kb_text_fini(&more);
    return code;
}

/* ": HBM latency 76.000, NOC bandwidth 12.500" */
static void put_parts(const json_t *step, kb_text *text)
{
    size_t i;
    const json_t *part;
    json_array_foreach(json_object_get(step, "parts"), i, part)
        kb_text_printf(text, "%s%s %s", i > 0 ? ", " : ": ", explain_string(part, "name"),
                       obs_ns(explain_fs(part, "fs")).text);
    const json_t *waited = json_object_get(step, "waited");
    if (json_is_object(waited))
        kb_text_printf(text, "; behind %lld transfers at %s, longest: %s",
                       (long long)json_integer_value(json_object_get(waited, "transfers")),
                       explain_string(waited, "link"), explain_string(waited, "longest"));
}

/* `parts`: also what each one consists of. */
static kb_code print_steps(const json_t *steps, size_t most, bool parts)
{
    static const cli_column columns[] = {CLI_TEXT("from ns", CLI_NS), CLI_TEXT("ns", CLI_NS),
                                         CLI_TEXT("step", CLI_WORD),
                                         CLI_TEXT("next waits for", CLI_WORD)};
    cli_table table;
    cli_table_init(&table, columns, sizeof columns / sizeof columns[0]);
    size_t i;
    const json_t *step;
    json_array_foreach(steps, i, step)
    {
        if (i >= most)
            break;
        kb_text what = KB_TEXT_INIT;
        kb_text_puts(&what, explain_string(step, "what"));
        if (parts)
            put_parts(step, &what);
        kb_time from = explain_fs(step, "from_fs");
        CLI_ROW(&table, {.n = from}, {.n = explain_fs(step, "to_fs") - from},
                {.text = kb_text_peek(&what)}, {.text = explain_string(step, "led_by")});
        kb_text_fini(&what);
    }
    return cli_table_print(&table, stdout);
}

static kb_code print_other_groups(const json_t *path)
{
    static const group_table tables[] = {
        {"by resource", "by_resource", ALL_GROUPS},
        {"by kernel", "by_kernel", LARGE_GROUPS},
        {"by unit", "by_unit", ALL_GROUPS},
        {"by link that limits or is waited for", "by_link", ALL_GROUPS},
        {"by memory that is accessed", "by_place", ALL_GROUPS},
        {"by what the next step waits for", "by_reason", ALL_GROUPS},
    };
    kb_code code = KB_OK;
    for (size_t i = 0; i < sizeof tables / sizeof tables[0] && code == KB_OK; i++) {
        putchar('\n');
        code = print_group(path, &tables[i]);
    }
    return code;
}

static kb_code print_largest(const json_t *path, bool verbose)
{
    printf("\n  The longest steps\n");
    return print_steps(json_object_get(path, "largest"), verbose ? ALL_STEPS : FEW_STEPS, verbose);
}

static kb_code print_chain(const json_t *path)
{
    const json_t *chain = json_object_get(path, "path");
    size_t all = (size_t)json_integer_value(json_object_get(path, "steps"));
    printf("\n  The path, %zu step%s", all, kb_plural(all));
    if (json_array_size(chain) < all)
        printf(", of which these are the %zu longest", json_array_size(chain));
    putchar('\n');
    return print_steps(chain, ALL_STEPS, true);
}

kb_code explain_print_groups(const json_t *path, bool verbose, bool steps)
{
    const group_table causes = {"the critical path goes through", "by_category", ALL_GROUPS};
    const group_table lines = {"by source line", "by_line", verbose ? LARGE_GROUPS : FEW_GROUPS};
    kb_code code = print_group(path, &causes);
    if (code == KB_OK) {
        putchar('\n');
        code = print_group(path, &lines);
    }
    if (code == KB_OK && verbose)
        code = print_other_groups(path);
    if (code == KB_OK)
        code = print_largest(path, verbose);
    if (code == KB_OK && steps)
        code = print_chain(path);
    return code;
}

/* ---- The bound --------------------------------------------------------------------------- */

kb_code explain_print_bound(const json_t *path)
{
    const json_t *bound = json_object_get(path, "bound"), *part, *other;
    if (!json_is_object(bound))
        return KB_OK;
    kb_text text = KB_TEXT_INIT;
    kb_time time = explain_fs(bound, "fs");
    kb_text_printf(&text,
                   "The bound: no program that does this work on this machine takes less than %s "
                   "ns (%s): %s %% of the run.",
                   obs_ns(time).text, explain_string(bound, "name"),
                   obs_percent(share_of(time, path)).text);
    size_t i, others = 0;
    json_array_foreach(json_object_get(bound, "bounds"), i, other)
    {
        if (strcmp(explain_string(other, "name"), explain_string(bound, "name")) != 0)
            kb_text_printf(&text, "%s %s, %.3f ns", others++ == 0 ? " Other bounds:" : ";",
                           explain_string(other, "name"),
                           json_number_value(json_object_get(other, "ns")));
    }
    kb_text_puts(&text, others > 0 ? "." : "");
    cli_print_wrapped(stdout, kb_text_peek(&text));
    kb_text_fini(&text);
    static const cli_column columns[] = {CLI_TEXT("beyond the bound", CLI_WORD),
                                         CLI_TEXT("ns", CLI_FIGURE),
                                         CLI_TEXT("% of the run", CLI_SHARE)};
    cli_table table;
    cli_table_init(&table, columns, sizeof columns / sizeof columns[0]);
    json_array_foreach(json_object_get(bound, "gap"), i, part)
    {
        kb_time beyond = explain_fs(part, "fs");
        CLI_ROW(&table, {.text = explain_string(part, "name")}, {.text = explain_ns(beyond).text},
                {.real = share_of(beyond, path)});
    }
    kb_time gap = explain_fs(bound, "gap_fs");
    CLI_ROW(&table, {.text = "all"}, {.text = explain_ns(gap).text}, {.real = share_of(gap, path)});
    return cli_table_print(&table, stdout);
}
