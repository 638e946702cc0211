/* cmd_topo.c: the command `topo`: summarises, checks, prints and draws a machine. */
#include "cli.h"
#include "effective.h"
#include "files.h"
#include "json.h"
#include "machine_options.h"
#include "obs/obs.h"
#include "rewrite.h"
#include "topo_summary.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "measure/measure.h"

typedef struct topo_args {
    cli_common common;
    bool print, effective, check;
    const char *svg;
} topo_args;

static const cli_option options[] = {
    CLI_OPTION("--check", NULL, CLI_FLAG, topo_args, check,
               "prints ok if the machine is valid, else all problems with their places"),
    CLI_OPTION("--print", NULL, CLI_FLAG, topo_args, print,
               "prints the text of the machine's file, or of the built-in machine, with its\n"
               "comments; values of --set are written into it"),
    CLI_OPTION("--effective", NULL, CLI_FLAG, topo_args, effective,
               "with --print: all settings of the machine, those that the file leaves out\n"
               "included, with the comments of the built-in machine"),
    CLI_OPTION("--svg", "FILE", CLI_STRING, topo_args, svg,
               "draws the machine as SVG into a file; - for stdout"),
};

/* ---- --check ----------------------------------------------------------------------------- */

/* The lines of the error's detail, or its message if it has none. */
static json_t *problems_json(const kb_error *err)
{
    json_t *problems = json_array();
    const char *line = kb_error_detail(err);
    if (*line == '\0')
        line = kb_error_message(err);
    while (*line != '\0') {
        size_t length = strcspn(line, "\n");
        cli_json_append(&problems, json_stringn(line, length));
        line += length + (line[length] == '\n');
    }
    return problems;
}

/* Whether the machine can be simulated: its fabric may be too large. */
static kb_error *try_fabric(const topo_machine *machine)
{
    kb_sim *sim;
    net *fabric;
    KB_TRY(kb_sim_create(NULL, &sim));
    kb_error *err = net_create_for(sim, machine, 0, false, &fabric);
    net_destroy(fabric);
    kb_sim_destroy(sim);
    return err;
}

static kb_code check(const cli_common *common)
{
    topo_machine *machine;
    if (!common->json) {
        kb_code code = cli_load_machine(common, &machine);
        kb_error *err = code == KB_OK ? try_fabric(machine) : NULL;
        if (err)
            code = cli_report(err);
        if (code == KB_OK)
            puts("ok");
        topo_machine_destroy(machine);
        return code;
    }
    kb_error *err = cli_try_machine(common, &machine);
    if (!err)
        err = try_fabric(machine);
    kb_code code = kb_error_code(err);
    if (err && code != KB_ERR_INPUT)
        return cli_report(err);
    kb_code printed = cli_json_print(
        json_pack("{s:b, s:o}", "ok", !err, "problems", err ? problems_json(err) : json_array()));
    kb_error_free(err);
    topo_machine_destroy(machine);
    return printed != KB_OK ? printed : code;
}

/* ---- --print ----------------------------------------------------------------------------- */

/* The text that the machine was loaded from. A file has precedence over a built-in machine. */
static kb_error *source_text(const char *path, kb_text *text)
{
    if (path && access(path, F_OK) == 0)
        return cli_read_file(path, text);
    for (const topo_builtin *b = topo_builtins; b->name; b++)
        if (strcmp(b->name, path ? path : "default") == 0)
            kb_text_append(text, b->text, b->length);
    return text->failed ? kb_error_nomem() : NULL;
}

/* Checks that the text describes the same machine. */
static kb_error *verify(const topo_machine *machine, const cli_common *common, const kb_text *text)
{
    topo_machine *again;
    topo_source source = {.path = common->topology ? common->topology : "default",
                          .text = cli_text(text),
                          .length = text->length};
    KB_TRY(topo_machine_load(&source, &again));
    bool same = topo_machine_hash(again) == topo_machine_hash(machine);
    topo_machine_destroy(again);
    return same ? NULL : kb_error_new(KB_ERR_BUG, "the printed description gives another machine");
}

static kb_error *make_text(const topo_machine *machine, const topo_args *args, kb_text *text)
{
    const cli_common *common = &args->common;
    if (args->effective) {
        KB_TRY(effective_text(machine, text));
        return verify(machine, common, text);
    }
    KB_TRY(source_text(common->topology, text));
    for (size_t i = 0; i < common->settings.count; i++)
        KB_TRY(rewrite_setting(text, common->settings.items[i]));
    return common->settings.count > 0 ? verify(machine, common, text) : NULL;
}

static kb_code print(const topo_machine *machine, const topo_args *args)
{
    const cli_common *common = &args->common;
    kb_text text = KB_TEXT_INIT;
    kb_error *err = make_text(machine, args, &text);
    kb_code code = KB_OK;
    if (err)
        code = cli_report(err);
    else if (common->json)
        code = cli_json_print(json_pack("{s:o, s:s}", "topology",
                                        cli_json_machine(machine, &common->settings), "text",
                                        cli_text(&text)));
    else
        fwrite(cli_text(&text), 1, text.length, stdout);
    kb_text_fini(&text);
    return code;
}

/* ---- --svg ------------------------------------------------------------------------------- */

static kb_code draw(const topo_machine *machine, const topo_args *args)
{
    kb_text text = KB_TEXT_INIT;
    kb_error *err = draw_svg(machine, &text);
    if (!err && cli_text_was_lost())
        err = kb_error_nomem();
    if (!err)
        err = cli_write_file(args->svg, &text);
    kb_code code = err ? cli_report(err) : KB_OK;
    if (code == KB_OK && args->common.json)
        code = cli_json_print(json_pack("{s:o, s:s}", "topology",
                                        cli_json_machine(machine, &args->common.settings), "svg",
                                        args->svg));
    kb_text_fini(&text);
    return code;
}

/* ---- The command ------------------------------------------------------------------------- */

static kb_code check_options(const cli_call *call)
{
    const topo_args *args = call->args;
    if (args->print + args->check + (args->svg != NULL) > 1)
        return cli_fail(KB_ERR_INPUT, "--check, --print and --svg are mutually exclusive");
    if (args->effective && !args->print)
        return cli_fail(KB_ERR_INPUT, "--effective needs --print");
    if (args->svg && strcmp(args->svg, "-") == 0 && args->common.json)
        return cli_fail(KB_ERR_INPUT, "--svg - and --json both write to stdout: give --svg a file");
    return KB_OK;
}

static kb_code run_topo(const cli_call *call)
{
    const topo_args *args = call->args;
    const cli_list *settings = &args->common.settings;
    topo_machine *machine;
    if (args->check)
        return check(&args->common);
    kb_code code = cli_load_machine(&args->common, &machine);
    if (code != KB_OK)
        return code;
    if (args->print)
        code = print(machine, args);
    else if (args->svg)
        code = draw(machine, args);
    else
        code = args->common.json ? topo_print_summary_json(machine, settings)
                                 : topo_print_summary(machine, settings);
    topo_machine_destroy(machine);
    return code;
}

const cli_command cli_topo_command = {
    .name = "topo",
    .arguments = "[OPTIONS]",
    .summary = "summarise, check, print or draw the machine",
    .help =
        "Without --check, --print and --svg: a summary with counts, capacities, nodes and links.\n",
    .example = "Example: kernbench topo --set system.sips.count=4\n"
               "Example: kernbench topo --print >mine.yaml\n"
               "Example: kernbench topo --print --effective --set cube.noc.w=8 >wide.yaml\n"
               "Example: kernbench topo --topology mine.yaml --svg mine.svg\n",
    CLI_OPTIONS(options),
    CLI_ARGS(topo_args),
    .machine = CLI_MACHINE_OPTIONS,
    .check = check_options,
    .run = run_topo,
};
