/* cmd_list.c: the command `list`: benches, machines, components and collectives. */
#include "cli.h"
#include "collective_options.h"
#include "columns.h"
#include "json.h"
#include "terminal.h"

#include <string.h>

#include "benches/benches.h"
#include "topo/topo.h"

typedef struct list_args {
    bool json, quiet;
    collectives_args collectives;
} list_args;

static const cli_option options[] = {
    CLI_OPTION("--json", NULL, CLI_FLAG, list_args, json,
               "prints one JSON document instead of text"),
    CLI_OPTION("--quiet", NULL, CLI_FLAG, list_args, quiet, "prints only the names, one per line"),
    COLLECTIVES_OPTIONS(list_args),
};

/* The built-in component of a kind of node; NULL if there is none, or an earlier kind has it. */
static const topo_component *component_at(int kind)
{
    const topo_component *component = topo_component_builtin((topo_kind)kind);
    for (int other = 0; component && other < kind; other++)
        if (topo_component_builtin((topo_kind)other) == component)
            return NULL;
    return component;
}

/* The first sentence of the comment at the top of a built-in machine. */
static void append_first_sentence(const topo_builtin *machine, kb_text *text)
{
    for (const char *line = machine->text; line[0] == '#' && line[1] == ' ';) {
        size_t length = strcspn(line, "\n");
        kb_text_printf(text, "%s%.*s", text->length > 0 ? " " : "", (int)length - 2, line + 2);
        if (line[length - 1] == '.' || line[length] == '\0')
            break;
        line += length + 1;
    }
}

/* ---- Benches ----------------------------------------------------------------------------- */

static json_t *choices_json(const kb_param *param)
{
    json_t *names = json_array();
    for (size_t i = 0; param->names[i]; i++)
        cli_json_append(&names, json_string(param->names[i]));
    return names;
}

static json_t *param_json(const kb_param *param)
{
    if (!param->names)
        return json_pack("{s:s, s:I, s:I, s:I, s:s}", "name", param->name, "default",
                         (json_int_t)param->value, "min", (json_int_t)param->min, "max",
                         (json_int_t)param->max, "help", param->help);
    return json_pack("{s:s, s:s, s:o, s:s}", "name", param->name, "default",
                     param->names[param->value], "names", choices_json(param), "help", param->help);
}

static json_t *params_json(const kb_bench_spec *spec)
{
    json_t *params = json_array();
    for (size_t i = 0; i < spec->param_count; i++)
        cli_json_append(&params, param_json(&spec->params[i]));
    return params;
}

static const cli_column bench_columns[] = {
    CLI_COLUMN("bench", "name", CLI_WORD),
    CLI_COLUMN("description", "summary", CLI_WORD),
    CLI_JSON("params", CLI_NESTED),
};

static void add_benches(cli_table *table, const void *from)
{
    (void)from;
    for (size_t i = 0; benches[i]; i++)
        CLI_ROW(table, {.text = benches[i]->name}, {.text = benches[i]->summary},
                {.json = table->is_json ? params_json(benches[i]) : NULL});
}

static const cli_rows bench_rows = {CLI_COLUMNS(bench_columns), add_benches};

static const cli_column param_columns[] = {
    CLI_TEXT("parameter", CLI_WORD),
    CLI_TEXT("default", CLI_FIGURE),
    CLI_TEXT("values", CLI_WORD),
    CLI_TEXT("description", CLI_WORD),
};

static void add_params(cli_table *table, const void *from)
{
    const kb_bench_spec *spec = from;
    for (size_t i = 0; i < spec->param_count; i++) {
        const kb_param *param = &spec->params[i];
        kb_text value = KB_TEXT_INIT, range = KB_TEXT_INIT;
        if (param->names) {
            kb_text_puts(&value, param->names[param->value]);
            for (size_t k = 0; param->names[k]; k++)
                kb_text_printf(&range, "%s%s", k > 0 ? ", " : "", param->names[k]);
        } else {
            kb_text_printf(&value, "%lld", (long long)param->value);
            kb_text_printf(&range, "%lld to %lld", (long long)param->min, (long long)param->max);
        }
        CLI_ROW(table, {.text = param->name}, {.text = cli_text(&value)},
                {.text = cli_text(&range)}, {.text = param->help});
        kb_text_fini(&value);
        kb_text_fini(&range);
    }
}

static const cli_rows param_rows = {CLI_COLUMNS(param_columns), add_params};

static bool has_params_of(const kb_bench_spec *spec, const kb_bench_spec *other)
{
    return spec->params == other->params && spec->param_count == other->param_count;
}

/* "Parameters of a, b, c": the bench, and others with the same parameters. */
static void print_benches_with_params_of(const kb_bench_spec *spec)
{
    kb_text names = KB_TEXT_INIT;
    for (size_t i = 0; benches[i]; i++)
        if (has_params_of(benches[i], spec))
            kb_text_printf(&names, "%s%s", names.length > 0 ? ", " : "Parameters of ",
                           benches[i]->name);
    cli_print_wrapped(stdout, cli_text(&names));
    kb_text_fini(&names);
}

/* One table for all benches with the same parameters. */
static kb_code print_params(void)
{
    kb_code code = KB_OK;
    for (size_t i = 0; benches[i] && code == KB_OK; i++) {
        size_t first = 0;
        while (!has_params_of(benches[first], benches[i]))
            first++;
        if (first != i || benches[i]->param_count == 0)
            continue;
        print_benches_with_params_of(benches[i]);
        code = cli_rows_print(&param_rows, NULL, benches[i]);
        putchar('\n');
    }
    return code;
}

/* ---- Machines and components ------------------------------------------------------------- */

static const cli_column machine_columns[] = {
    CLI_COLUMN("topology", "name", CLI_WORD),
    CLI_COLUMN("description", "summary", CLI_WORD),
};

static void add_machines(cli_table *table, const void *from)
{
    (void)from;
    for (const topo_builtin *machine = topo_builtins; machine->name; machine++) {
        kb_text summary = KB_TEXT_INIT;
        append_first_sentence(machine, &summary);
        CLI_ROW(table, {.text = machine->name}, {.text = cli_text(&summary)});
        kb_text_fini(&summary);
    }
}

static const cli_rows machine_rows = {CLI_COLUMNS(machine_columns), add_machines};

static void print_components(void)
{
    printf("  components (values of impl in a machine file):\n   ");
    for (int kind = 0; kind < TOPO_KINDS; kind++)
        if (component_at(kind))
            printf(" %s", component_at(kind)->name);
    putchar('\n');
}

/* ---- Collectives ------------------------------------------------------------------------- */

/* ["all_reduce", "broadcast"] */
static json_t *collectives_of(const kb_ccl_algorithm *algorithm)
{
    json_t *names = json_array();
    for (int kind = 0; kind < KB_COLLECTIVES; kind++)
        if (algorithm->collectives & 1u << kind)
            cli_json_append(&names, json_string(kb_collective_name((kb_collective_kind)kind)));
    return names;
}

/* "all_reduce, broadcast" */
static void append_collectives(const kb_ccl_algorithm *algorithm, kb_text *text)
{
    for (int kind = 0; kind < KB_COLLECTIVES; kind++)
        if (algorithm->collectives & 1u << kind)
            kb_text_printf(text, "%s%s", text->length > 0 ? ", " : "",
                           kb_collective_name((kb_collective_kind)kind));
}

static const cli_column algorithm_columns[] = {
    CLI_COLUMN("algorithm", "name", CLI_WORD),
    CLI_TEXT("collectives", CLI_WORD),
    CLI_JSON("collectives", CLI_NESTED),
    CLI_COLUMN("module", "module", CLI_WORD),
    CLI_COLUMN("topology", "topology", CLI_WORD),
    CLI_COLUMN("mapper", "mapper", CLI_WORD),
    CLI_TEXT("validator", CLI_WORD),
    CLI_JSON("validator", CLI_WORD),
};

static void add_algorithms(cli_table *table, const void *from)
{
    const collectives *c = from;
    for (size_t i = 0; i < c->config.entries.count; i++) {
        const ccl_entry *entry = &c->config.entries.items[i];
        const char *validator = entry->validator ? entry->validator->name : NULL;
        kb_text kinds = KB_TEXT_INIT;
        append_collectives(entry->algorithm, &kinds);
        CLI_ROW(table, {.text = entry->name}, {.text = cli_text(&kinds)},
                {.json = table->is_json ? collectives_of(entry->algorithm) : NULL},
                {.text = entry->algorithm->name},
                {.text = entry->topology ? entry->topology->name : "none"},
                {.text = entry->mapper->name}, {.text = validator ? validator : "none"},
                {.text = validator});
        kb_text_fini(&kinds);
    }
}

static const cli_rows algorithm_rows = {CLI_COLUMNS(algorithm_columns), add_algorithms};

/* Modules, topologies, mappers and validators: one table in the text, one array each in JSON. */
static const cli_column registered_columns[] = {
    CLI_TEXT("key", CLI_WORD),
    CLI_COLUMN("value", "name", CLI_WORD),
    CLI_COLUMN("description", "summary", CLI_WORD),
};

static void add_kind(cli_table *table, const collectives *c, ccl_kind kind)
{
    ccl_named named;
    for (ccl_cursor at = {0}; ccl_registry_next(&c->registry, kind, &at, &named);)
        CLI_ROW(table, {.text = ccl_kind_name(kind)}, {.text = named.name},
                {.text = named.summary});
}

static void add_registered(cli_table *table, const void *from)
{
    for (ccl_kind kind = 0; kind < CCL_KINDS; kind++) {
        add_kind(table, from, kind);
        if (kind == CCL_TOPOLOGY)
            CLI_ROW(table, {.text = ccl_kind_name(kind)}, {.text = "none"},
                    {.text = "defined by the module"});
    }
}

static const cli_rows registered_rows = {CLI_COLUMNS(registered_columns), add_registered};

static json_t *kind_json(const collectives *c, ccl_kind kind)
{
    cli_table table;
    cli_table_init_json(&table, CLI_COLUMNS(registered_columns));
    add_kind(&table, c, kind);
    return table.rows;
}

/* ---- All of it --------------------------------------------------------------------------- */

static void print_collective_names(const collectives *c)
{
    for (size_t i = 0; i < c->config.entries.count; i++)
        printf("%s\n", c->config.entries.items[i].name);
    for (ccl_kind kind = 0; kind < CCL_KINDS; kind++) {
        ccl_named named;
        for (ccl_cursor at = {0}; ccl_registry_next(&c->registry, kind, &at, &named);)
            printf("%s\n", named.name);
    }
}

static void print_names(const collectives *c)
{
    for (size_t i = 0; benches[i]; i++)
        printf("%s\n", benches[i]->name);
    for (const topo_builtin *machine = topo_builtins; machine->name; machine++)
        printf("%s\n", machine->name);
    for (int kind = 0; kind < TOPO_KINDS; kind++)
        if (component_at(kind))
            printf("%s\n", component_at(kind)->name);
    print_collective_names(c);
}

static kb_code print_text(const collectives *c)
{
    kb_code code = cli_rows_print(&bench_rows, NULL, NULL);
    printf("\n  Run one: kernbench run --bench NAME --param NAME=VALUE (4096 or 4KiB)\n"
           "  Write your own: kernbench new bench mine\n\n");
    if (code == KB_OK)
        code = print_params();
    if (code == KB_OK)
        code = cli_rows_print(&machine_rows, NULL, NULL);
    putchar('\n');
    print_components();
    printf("\n  collectives of %s:\n", c->config.path);
    if (code == KB_OK)
        code = cli_rows_print(&algorithm_rows, NULL, c);
    putchar('\n');
    if (code == KB_OK)
        code = cli_rows_print(&registered_rows, NULL, c);
    return code;
}

static json_t *collectives_json(const collectives *c)
{
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o}", "ccl", c->config.path, "algorithms",
                     cli_rows_json(&algorithm_rows, NULL, c), "modules",
                     kind_json(c, CCL_ALGORITHM), "topologies", kind_json(c, CCL_TOPOLOGY),
                     "mappers", kind_json(c, CCL_MAPPER), "validators",
                     kind_json(c, CCL_VALIDATOR));
}

static kb_code print_json(const collectives *c)
{
    json_t *components = json_array();
    for (int kind = 0; kind < TOPO_KINDS; kind++)
        if (component_at(kind))
            cli_json_append(&components, json_string(component_at(kind)->name));
    return cli_json_print(json_pack("{s:o, s:o, s:o, s:o}", "benches",
                                    cli_rows_json(&bench_rows, NULL, NULL), "topologies",
                                    cli_rows_json(&machine_rows, NULL, NULL), "components",
                                    components, "collectives", collectives_json(c)));
}

static kb_code run_list(const cli_call *call)
{
    const list_args *args = call->args;
    static const cli_list no_settings = {0};
    collectives c;
    kb_code code = collectives_init(&c, &args->collectives, &no_settings);
    if (code == KB_OK && args->json)
        code = print_json(&c);
    else if (code == KB_OK && args->quiet)
        print_names(&c);
    else if (code == KB_OK)
        code = print_text(&c);
    collectives_fini(&c);
    return code;
}

const cli_command cli_list_command = {
    .name = "list",
    .arguments = "[OPTIONS]",
    .summary = "list benches with their parameters, machines, components and collectives",
    .help = "",
    .example = "Example: kernbench list\n",
    CLI_OPTIONS(options),
    CLI_ARGS(list_args),
    .run = run_list,
};
