/* list.c: the command that shows what there is: benches, machines, components, collectives. */
#include "cli.h"
#include "collectives.h"
#include "json.h"
#include "table.h"

#include <string.h>

#include "benches/benches.h"
#include "topo/topo.h"

typedef struct list_args {
    bool json, quiet;
    collectives_args collectives;
} list_args;

static const cli_option options[] = {
    {.name = "--json",
     .help = "prints one JSON document instead of text",
     .kind = CLI_FLAG,
     CLI_INTO(list_args, json)},
    {.name = "--quiet",
     .help = "prints only the names, one per line",
     .kind = CLI_FLAG,
     CLI_INTO(list_args, quiet)},
    COLLECTIVES_OPTIONS(list_args),
};

/* The component of a kind of node that ships; NULL if there is none, or an earlier kind has it. */
static const topo_component *component_at(int kind)
{
    const topo_component *component = topo_component_builtin((topo_kind)kind);
    for (int other = 0; component && other < kind; other++)
        if (topo_component_builtin((topo_kind)other) == component)
            return NULL;
    return component;
}

/* The first sentence of the comment that a built-in machine begins with. */
static void append_what(const topo_builtin *machine, kb_text *text)
{
    for (const char *line = machine->text; line[0] == '#' && line[1] == ' ';) {
        size_t length = strcspn(line, "\n");
        kb_text_printf(text, "%s%.*s", text->length > 0 ? " " : "", (int)length - 2, line + 2);
        if (line[length - 1] == '.' || line[length] == '\0')
            break;
        line += length + 1;
    }
}

/* ---- Text -------------------------------------------------------------------------------- */

static kb_code print_benches(void)
{
    static const cli_column columns[] = {{.title = "bench", .left = true},
                                         {.title = "description", .left = true}};
    cli_table table;
    cli_table_init(&table, columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; benches[i]; i++) {
        cli_table_cell(&table, "%s", benches[i]->name);
        cli_table_cell(&table, "%s", benches[i]->summary);
    }
    return cli_table_print(&table, stdout);
}

static void add_number(cli_table *table, const kb_param *param)
{
    cli_table_cell(table, "%lld", (long long)param->value);
    cli_table_cell(table, "%lld to %lld", (long long)param->min, (long long)param->max);
}

static void add_choice(cli_table *table, const kb_param *param)
{
    kb_text names = KB_TEXT_INIT;
    for (size_t i = 0; param->names[i]; i++)
        kb_text_printf(&names, "%s%s", i > 0 ? ", " : "", param->names[i]);
    cli_table_cell(table, "%s", param->names[param->value]);
    cli_table_cell(table, "%s", cli_text(&names));
    kb_text_fini(&names);
}

static bool has_params_of(const kb_bench_spec *spec, const kb_bench_spec *other)
{
    return spec->params == other->params && spec->param_count == other->param_count;
}

/* "Parameters of a, b, c": of the bench, and of others that have the same. */
static void print_who(const kb_bench_spec *spec)
{
    kb_text who = KB_TEXT_INIT;
    for (size_t i = 0; benches[i]; i++)
        if (has_params_of(benches[i], spec))
            kb_text_printf(&who, "%s%s", who.length > 0 ? ", " : "Parameters of ",
                           benches[i]->name);
    cli_print_wrapped(stdout, cli_text(&who));
    kb_text_fini(&who);
}

static kb_code print_params_of(const kb_bench_spec *spec)
{
    static const cli_column columns[] = {{.title = "parameter", .left = true},
                                         {.title = "default"},
                                         {.title = "values", .left = true},
                                         {.title = "description", .left = true}};
    cli_table table;
    print_who(spec);
    cli_table_init(&table, columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < spec->param_count; i++) {
        const kb_param *param = &spec->params[i];
        cli_table_cell(&table, "%s", param->name);
        if (param->names)
            add_choice(&table, param);
        else
            add_number(&table, param);
        cli_table_cell(&table, "%s", param->help);
    }
    return cli_table_print(&table, stdout);
}

/* Once for all benches that have the same. */
static kb_code print_params(void)
{
    kb_code code = KB_OK;
    for (size_t i = 0; benches[i] && code == KB_OK; i++) {
        size_t first = 0;
        while (!has_params_of(benches[first], benches[i]))
            first++;
        if (first != i || benches[i]->param_count == 0)
            continue;
        code = print_params_of(benches[i]);
        putchar('\n');
    }
    return code;
}

static kb_code print_topologies(void)
{
    static const cli_column columns[] = {{.title = "topology", .left = true},
                                         {.title = "description", .left = true}};
    cli_table table;
    cli_table_init(&table, columns, sizeof columns / sizeof columns[0]);
    for (const topo_builtin *machine = topo_builtins; machine->name; machine++) {
        kb_text what = KB_TEXT_INIT;
        append_what(machine, &what);
        cli_table_cell(&table, "%s", machine->name);
        cli_table_cell(&table, "%s", cli_text(&what));
        kb_text_fini(&what);
    }
    return cli_table_print(&table, stdout);
}

static void print_components(void)
{
    printf("  components (values of impl in a machine file):\n   ");
    for (int kind = 0; kind < TOPO_KINDS; kind++)
        if (component_at(kind))
            printf(" %s", component_at(kind)->name);
    putchar('\n');
}

/* "all_reduce, broadcast" */
static void append_collectives(const kb_ccl_algorithm *algorithm, kb_text *text)
{
    size_t start = text->length;
    for (int kind = 0; kind < KB_COLLECTIVES; kind++)
        if (algorithm->collectives & 1u << kind)
            kb_text_printf(text, "%s%s", text->length > start ? ", " : "",
                           kb_collective_name((kb_collective_kind)kind));
}

static kb_code print_algorithms(const collectives *c)
{
    static const cli_column columns[] = {
        {.title = "algorithm", .left = true}, {.title = "collectives", .left = true},
        {.title = "module", .left = true},    {.title = "topology", .left = true},
        {.title = "mapper", .left = true},    {.title = "validator", .left = true}};
    cli_table table;
    cli_table_init(&table, columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < c->config.entries.count; i++) {
        const ccl_entry *entry = &c->config.entries.items[i];
        kb_text kinds = KB_TEXT_INIT;
        append_collectives(entry->algorithm, &kinds);
        cli_table_cell(&table, "%s", entry->name);
        cli_table_cell(&table, "%s", cli_text(&kinds));
        cli_table_cell(&table, "%s", entry->algorithm->name);
        cli_table_cell(&table, "%s", entry->topology ? entry->topology->name : "none");
        cli_table_cell(&table, "%s", entry->mapper->name);
        cli_table_cell(&table, "%s", entry->validator ? entry->validator->name : "none");
        kb_text_fini(&kinds);
    }
    return cli_table_print(&table, stdout);
}

/* Modules, topologies, mappers, validators. */
static kb_code print_things(const collectives *c)
{
    static const cli_column columns[] = {{.title = "key", .left = true},
                                         {.title = "value", .left = true},
                                         {.title = "description", .left = true}};
    cli_table table;
    cli_table_init(&table, columns, sizeof columns / sizeof columns[0]);
    for (ccl_kind kind = 0; kind < CCL_KINDS; kind++) {
        ccl_named named;
        for (ccl_cursor at = {0}; ccl_registry_next(&c->registry, kind, &at, &named);) {
            cli_table_cell(&table, "%s", ccl_kind_name(kind));
            cli_table_cell(&table, "%s", named.name);
            cli_table_cell(&table, "%s", named.summary ? named.summary : "");
        }
        if (kind == CCL_TOPOLOGY) {
            cli_table_cell(&table, "%s", ccl_kind_name(kind));
            cli_table_cell(&table, "none");
            cli_table_cell(&table, "defined by the module");
        }
    }
    return cli_table_print(&table, stdout);
}

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

static kb_code print_text(const collectives *c, bool quiet)
{
    if (quiet) {
        print_names(c);
        return KB_OK;
    }
    kb_code code = print_benches();
    printf("\n  Run one: kernbench run --bench NAME --param NAME=VALUE (4096 or 4KiB)\n"
           "  Write your own: kernbench new bench mine\n\n");
    if (code == KB_OK)
        code = print_params();
    if (code == KB_OK)
        code = print_topologies();
    putchar('\n');
    print_components();
    printf("\n  collectives of %s:\n", c->config.path);
    if (code == KB_OK)
        code = print_algorithms(c);
    putchar('\n');
    if (code == KB_OK)
        code = print_things(c);
    return code;
}

/* ---- JSON -------------------------------------------------------------------------------- */

static json_t *param_json(const kb_param *param)
{
    if (!param->names)
        return json_pack("{s:s, s:I, s:I, s:I, s:s}", "name", param->name, "default",
                         (json_int_t)param->value, "min", (json_int_t)param->min, "max",
                         (json_int_t)param->max, "help", param->help);
    json_t *names = json_array();
    for (size_t i = 0; param->names[i]; i++)
        cli_json_append(&names, json_string(param->names[i]));
    return json_pack("{s:s, s:s, s:o, s:s}", "name", param->name, "default",
                     param->names[param->value], "names", names, "help", param->help);
}

static json_t *params_json(const kb_bench_spec *spec)
{
    json_t *params = json_array();
    for (size_t i = 0; i < spec->param_count; i++)
        cli_json_append(&params, param_json(&spec->params[i]));
    return params;
}

static json_t *topologies_json(void)
{
    json_t *topologies = json_array();
    for (const topo_builtin *machine = topo_builtins; machine->name; machine++) {
        kb_text what = KB_TEXT_INIT;
        append_what(machine, &what);
        cli_json_append(&topologies,
                        json_pack("{s:s, s:s}", "name", machine->name, "summary", cli_text(&what)));
        kb_text_fini(&what);
    }
    return topologies;
}

static json_t *algorithms_json(const collectives *c)
{
    json_t *algorithms = json_array();
    for (size_t i = 0; i < c->config.entries.count; i++) {
        const ccl_entry *entry = &c->config.entries.items[i];
        json_t *kinds = json_array();
        for (int kind = 0; kind < KB_COLLECTIVES; kind++)
            if (entry->algorithm->collectives & 1u << kind)
                cli_json_append(&kinds, json_string(kb_collective_name((kb_collective_kind)kind)));
        cli_json_append(&algorithms,
                        json_pack("{s:s, s:o, s:s, s:s, s:s, s:s?}", "name", entry->name,
                                  "collectives", kinds, "module", entry->algorithm->name,
                                  "topology", entry->topology ? entry->topology->name : "none",
                                  "mapper", entry->mapper->name, "validator",
                                  entry->validator ? entry->validator->name : NULL));
    }
    return algorithms;
}

static json_t *things_json(const collectives *c, ccl_kind kind)
{
    json_t *things = json_array();
    ccl_named named;
    for (ccl_cursor at = {0}; ccl_registry_next(&c->registry, kind, &at, &named);)
        cli_json_append(&things,
                        json_pack("{s:s, s:s?}", "name", named.name, "summary", named.summary));
    return things;
}

static json_t *collectives_json(const collectives *c)
{
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o}", "ccl", c->config.path, "algorithms",
                     algorithms_json(c), "modules", things_json(c, CCL_ALGORITHM), "topologies",
                     things_json(c, CCL_TOPOLOGY), "mappers", things_json(c, CCL_MAPPER),
                     "validators", things_json(c, CCL_VALIDATOR));
}

static kb_code print_json(const collectives *c)
{
    json_t *all = json_array(), *components = json_array();
    for (size_t i = 0; benches[i]; i++)
        cli_json_append(&all, json_pack("{s:s, s:s, s:o}", "name", benches[i]->name, "summary",
                                        benches[i]->summary, "params", params_json(benches[i])));
    for (int kind = 0; kind < TOPO_KINDS; kind++)
        if (component_at(kind))
            cli_json_append(&components, json_string(component_at(kind)->name));
    return cli_json_print(json_pack("{s:o, s:o, s:o, s:o}", "benches", all, "topologies",
                                    topologies_json(), "components", components, "collectives",
                                    collectives_json(c)));
}

static kb_code run_list(const cli_command *self, int argc, char **argv)
{
    list_args args = {0};
    static const cli_list no_settings = {0};
    collectives c = {0};
    kb_code code = cli_parse(self, &argc, argv, &args);
    if (code == KB_OK)
        code = collectives_open(&args.collectives, &c);
    if (code == KB_OK)
        code = collectives_load(&c, &no_settings);
    if (code == KB_OK)
        code = args.json ? print_json(&c) : print_text(&c, args.quiet);
    collectives_close(&c);
    collectives_args_fini(&args.collectives);
    return code;
}

const cli_command cli_list_command = {
    .name = "list",
    .arguments = "[OPTIONS]",
    .summary = "list benches with their parameters, machines, components and collectives",
    .help = "",
    .example = "Example: kernbench list\n",
    CLI_OPTIONS(options),
    .run = run_list,
};
