/* commands.c: the table of commands, and the search by name. */
#include "cli.h"

#include <string.h>

/* In the order that help shows them. */
const cli_command *const cli_commands[] = {
    &cli_run_command,      &cli_runs_command,   &cli_sweep_command,   &cli_explain_command,
    &cli_compare_command,  &cli_report_command, &cli_list_command,    &cli_new_command,
    &cli_probe_command,    &cli_topo_command,   &cli_ccl_command,     &cli_traffic_command,
    &cli_validate_command, &cli_help_command,   &cli_version_command,
};
const size_t cli_command_count = sizeof cli_commands / sizeof cli_commands[0];

const cli_command *cli_find_command(const char *name)
{
    const char *names[sizeof cli_commands / sizeof cli_commands[0]];

    for (size_t i = 0; i < cli_command_count; i++) {
        if (strcmp(name, cli_commands[i]->name) == 0)
            return cli_commands[i];
        names[i] = cli_commands[i]->name;
    }
    cli_unknown("command", name, names, cli_command_count, "");
    return NULL;
}

const char *cli_subcommand_word(const cli_command *subcommand)
{
    return strrchr(subcommand->name, ' ') + 1;
}

const cli_command *cli_find_subcommand(const cli_command *command, const char *word)
{
    const cli_command *const *parts = command->subcommands;
    while (parts && *parts && strcmp(cli_subcommand_word(*parts), word) != 0)
        parts++;
    return parts ? *parts : NULL;
}
