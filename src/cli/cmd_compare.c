/*
 * cmd_compare.c: the command `compare`: why one run takes longer than another. The difference of
 * their times is divided like their critical paths: what a group has in one and not in the other.
 */
#include "cli.h"
#include "columns.h"
#include "explain_report.h"
#include "json.h"
#include "path_document.h"
#include "run.h"
#include "terminal.h"

#include <stdlib.h>
#include <string.h>

typedef struct compare_args {
    const char *store, *fail_above;
    bool json;
    double allowed; /* of fail_above, as a share; negative: any difference */
} compare_args;

static const cli_option options[] = {
    CLI_OPTION("--fail-above", "PERCENT", CLI_STRING, compare_args, fail_above,
               "ends with 1 if B takes longer than A by more than that, such as 2%"),
    CLI_OPTION("--store", "DB", CLI_STRING, compare_args, store,
               "the store of the runs, a file of run --save; default: kernbench.db"),
    CLI_OPTION("--json", NULL, CLI_FLAG, compare_args, json,
               "prints one JSON document instead of text"),
};

/* ---- Groups ------------------------------------------------------------------------------ */

typedef struct difference {
    const char *name;
    kb_time a, b;
} difference;

typedef struct comparison {
    const json_t *a, *b; /* documents */
    const json_t *path_a, *path_b;
} comparison;

typedef KB_VEC(difference) differences;

static difference *find(differences *all, const char *name)
{
    for (size_t i = 0; i < all->count; i++)
        if (strcmp(all->items[i].name, name) == 0)
            return &all->items[i];
    return kb_vec_push(all, (difference){.name = name}) ? &all->items[all->count - 1] : NULL;
}

static kb_time grown(const difference *d)
{
    return d->b - d->a;
}

static int by_size(const void *x, const void *y)
{
    const difference *p = x, *q = y;
    kb_time a = llabs(grown(p)), b = llabs(grown(q));
    return a != b ? (a < b ? 1 : -1) : strcmp(p->name, q->name);
}

/* All groups of the key, in descending order of what they differ by. */
static kb_error *list_differences(const comparison *c, const char *key, differences *all)
{
    size_t i;
    const json_t *group;
    *all = (differences){0};
    for (int side = 0; side < 2; side++)
        json_array_foreach(json_object_get(side ? c->path_b : c->path_a, key), i, group)
        {
            difference *d = find(all, explain_string(group, "name"));
            if (!d)
                return kb_error_nomem();
            *(side ? &d->b : &d->a) += explain_fs(group, "fs");
        }
    if (all->count > 0)
        qsort(all->items, all->count, sizeof *all->items, by_size);
    return NULL;
}

/* ---- What differs ------------------------------------------------------------------------ */

static void put_value(const json_t *value, kb_text *text)
{
    char *dumped = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    kb_text_puts(text, dumped ? dumped : "-");
    free(dumped);
}

static void add_line(json_t **lines, const char *what, const json_t *a, const json_t *b)
{
    kb_text text = KB_TEXT_INIT;
    if (json_equal(a, b) || (!a && !b))
        return;
    kb_text_printf(&text, "%s: ", what);
    put_value(a, &text);
    kb_text_puts(&text, " > ");
    put_value(b, &text);
    cli_json_append(lines, cli_json_text(cli_text(&text)));
    kb_text_fini(&text);
}

static void add_parameters(const comparison *c, json_t **lines)
{
    const json_t *a = json_object_get(c->a, "parameters"), *b = json_object_get(c->b, "parameters");
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)a, key, value)
        add_line(lines, key, value, json_object_get(b, key));
    json_object_foreach((json_t *)(uintptr_t)b, key, value) if (!json_object_get(a, key))
        add_line(lines, key, NULL, value);
}

/* Bench, parameters, machine and settings that are not the same. */
static json_t *changes_json(const comparison *c)
{
    json_t *lines = json_array();
    const json_t *a = json_object_get(c->a, "topology"), *b = json_object_get(c->b, "topology");
    add_line(&lines, "bench", json_object_get(c->a, "bench"), json_object_get(c->b, "bench"));
    add_line(&lines, "machine", json_object_get(a, "name"), json_object_get(b, "name"));
    add_line(&lines, "settings", json_object_get(a, "set"), json_object_get(b, "set"));
    add_parameters(c, &lines);
    if (lines && json_array_size(lines) == 0)
        add_line(&lines, "hash of the machine", json_object_get(a, "hash"),
                 json_object_get(b, "hash"));
    return lines;
}

/* ---- Output ------------------------------------------------------------------------------ */

static const char *const keys[] = {"by_category", "by_resource", "by_kernel",
                                   "by_line",     "by_place",    "by_reason"};
static const char *const titles[] = {"the difference, along the critical paths",
                                     "by resource",
                                     "by kernel",
                                     "by source line",
                                     "by memory that is accessed",
                                     "by what the next step waits for"};

enum { SHOWN = 12, KEYS = sizeof keys / sizeof keys[0] };

static kb_time difference_of(const comparison *c)
{
    return explain_fs(c->path_b, "fs") - explain_fs(c->path_a, "fs");
}

static void put_headline(const comparison *c, const differences *all, kb_text *text)
{
    kb_time a = explain_fs(c->path_a, "fs"), b = explain_fs(c->path_b, "fs"), more = b - a;
    kb_text_printf(text, "A takes %s ns, B %s ns: ", obs_ns(a).text, obs_ns(b).text);
    if (more == 0) {
        kb_text_puts(text, "the same.");
        return;
    }
    kb_text_printf(text, "B is %s by %s ns, %s %%.", more > 0 ? "slower" : "faster",
                   obs_ns(llabs(more)).text, obs_percent(run_share(llabs(more), a)).text);
    for (size_t i = 0; i < all->count; i++)
        if ((grown(&all->items[i]) > 0) == (more > 0)) {
            kb_text_printf(text, " Most of it: %s, %s ns.", all->items[i].name,
                           explain_ns(grown(&all->items[i])).text);
            return;
        }
}

static kb_code print_table(const comparison *c, const char *title, const char *key)
{
    cli_column columns[] = {CLI_TEXT(title, CLI_WORD), CLI_TEXT("A ns", CLI_NS),
                            CLI_TEXT("B ns", CLI_NS), CLI_TEXT("B - A ns", CLI_FIGURE)};
    cli_table table;
    differences all;
    kb_error *err = list_differences(c, key, &all);
    if (err) {
        kb_vec_fini(&all);
        return cli_report(err);
    }
    cli_table_init(&table, columns, sizeof columns / sizeof columns[0]);
    difference rest = {.name = "others"}, sum = {.name = "all"};
    for (size_t i = 0; i < all.count; i++) {
        const difference *d = &all.items[i];
        sum.a += d->a;
        sum.b += d->b;
        if (i < SHOWN) {
            CLI_ROW(&table, {.text = d->name}, {.n = d->a}, {.n = d->b},
                    {.text = explain_ns(grown(d)).text});
            continue;
        }
        rest.a += d->a;
        rest.b += d->b;
    }
    if (all.count > SHOWN)
        CLI_ROW(&table, {.text = rest.name}, {.n = rest.a}, {.n = rest.b},
                {.text = explain_ns(grown(&rest)).text});
    CLI_ROW(&table, {.text = sum.name}, {.n = sum.a}, {.n = sum.b},
            {.text = explain_ns(grown(&sum)).text});
    kb_vec_fini(&all);
    return cli_table_print(&table, stdout);
}

static void print_changes(const comparison *c)
{
    json_t *changes = changes_json(c);
    size_t i;
    const json_t *line;
    json_array_foreach(changes, i, line)
    {
        kb_text text = KB_TEXT_INIT;
        kb_text_printf(&text, "%s%s", i == 0 ? "Different: " : "", json_string_value(line));
        cli_print_wrapped(stdout, kb_text_peek(&text));
        kb_text_fini(&text);
    }
    if (json_array_size(changes) == 0)
        cli_print_wrapped(stdout,
                          "The name of the bench, parameters, machine and settings are the same.");
    json_decref(changes);
}

static kb_code print(const comparison *c, const char *headline)
{
    cli_print_wrapped(stdout, headline);
    print_changes(c);
    cli_print_wrapped(stdout, "A: ");
    explain_print_headline(c->path_a);
    cli_print_wrapped(stdout, "B: ");
    explain_print_headline(c->path_b);
    kb_code code = KB_OK;
    for (size_t i = 0; i < KEYS && code == KB_OK; i++) {
        putchar('\n');
        code = print_table(c, titles[i], keys[i]);
    }
    return code;
}

static json_t *differences_json(const differences *all)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < all->count; i++)
        cli_json_append(&rows,
                        json_pack("{s:s, s:I, s:I, s:I}", "name", all->items[i].name, "a_fs",
                                  (json_int_t)all->items[i].a, "b_fs", (json_int_t)all->items[i].b,
                                  "difference_fs", (json_int_t)grown(&all->items[i])));
    return rows;
}

static kb_code print_json(const comparison *c, const char *headline)
{
    kb_time a = explain_fs(c->path_a, "fs");
    json_t *document =
        json_pack("{s:o, s:I, s:I, s:I, s:o, s:o}", "headline", cli_json_text(headline), "a_fs",
                  (json_int_t)a, "b_fs", (json_int_t)explain_fs(c->path_b, "fs"), "difference_fs",
                  (json_int_t)difference_of(c), "difference",
                  cli_json_real(a > 0 ? (double)difference_of(c) / (double)a : 0), "changes",
                  changes_json(c));
    for (size_t i = 0; i < KEYS; i++) {
        differences all;
        kb_error *err = list_differences(c, keys[i], &all);
        cli_json_set(&document, keys[i], err ? NULL : differences_json(&all));
        kb_error_free(err);
        kb_vec_fini(&all);
    }
    return cli_json_print(document);
}

static kb_code compare(const compare_args *args, const comparison *c)
{
    differences all;
    kb_text headline = KB_TEXT_INIT;
    kb_error *err = list_differences(c, "by_resource", &all);
    if (!err)
        put_headline(c, &all, &headline);
    kb_vec_fini(&all);
    kb_code code = err          ? cli_report(err)
                   : args->json ? print_json(c, cli_text(&headline))
                                : print(c, cli_text(&headline));
    kb_text_fini(&headline);
    double a = (double)explain_fs(c->path_a, "fs"), more = (double)difference_of(c);
    if (code == KB_OK && args->allowed >= 0 && more > args->allowed * a) {
        fflush(stdout);
        return cli_fail(KB_ERR_CHECK, "B takes %s %% longer than A, more than %s",
                        a > 0 ? obs_percent(more / a).text : "infinitely many", args->fail_above);
    }
    return code;
}

/* ---- The command ------------------------------------------------------------------------- */

static kb_code check_options(const cli_call *call)
{
    compare_args *args = call->args;
    char buffer[CLI_CLIP];
    if (call->word_count < 2)
        return cli_fail(KB_ERR_INPUT, "missing run%s: kernbench compare A B, such as @-2 @last",
                        call->word_count == 0 ? "s" : "");
    args->allowed = -1;
    if (!args->fail_above)
        return KB_OK;
    size_t length = strlen(args->fail_above);
    char number[32] = "";
    if (length > 0 && args->fail_above[length - 1] == '%')
        length--;
    if (length < sizeof number)
        memcpy(number, args->fail_above, length);
    if (!cli_read_double(number, &args->allowed) || args->allowed < 0)
        return cli_fail(KB_ERR_INPUT, "--fail-above: expected a percentage such as 2%%, found '%s'",
                        cli_clip(args->fail_above, buffer));
    args->allowed /= 100;
    return KB_OK;
}

static kb_code run_compare(const cli_call *call)
{
    const compare_args *args = call->args;
    json_t *a = NULL, *b = NULL;
    kb_code code = path_document_load(call->words[0], args->store, &a);
    if (code == KB_OK)
        code = path_document_load(call->words[1], args->store, &b);
    comparison c = {a, b, json_object_get(a, "critical_path"), json_object_get(b, "critical_path")};
    if (code == KB_OK)
        code = compare(args, &c);
    json_decref(a);
    json_decref(b);
    return code;
}

const cli_command cli_compare_command = {
    .name = "compare",
    .arguments = "A B [OPTIONS]",
    .summary = "compare two runs: what got slower and what faster, and why",
    .help =
        "A and B are runs of a store (run --save): ids, prefixes of them, @last or @-2; or files\n"
        "with their documents (explain --json). The difference of their times is divided along\n"
        "their critical paths: each table adds up to it.\n"
        "\n"
        "Exit status: 1 if B is slower than --fail-above allows.\n",
    .example = "Example: kernbench run --bench halo --save && kernbench run --bench halo --save "
               "--set sip.ucie.overhead_ns=9\n"
               "Example: kernbench compare @-2 @last --fail-above 20%\n",
    CLI_OPTIONS(options),
    CLI_ARGS(compare_args, .store = "kernbench.db"),
    .max_words = 2,
    .check = check_options,
    .run = run_compare,
};
