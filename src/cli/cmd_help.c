/* cmd_help.c: the commands `help` and `version`. */
#include "cli.h"

#include <ctype.h>

void cli_print_help(FILE *out)
{
    fputs("usage: kernbench COMMAND [ARGUMENTS]\n"
          "\n"
          "Simulates programs on multi-chiplet AI accelerators: their results, their time, and\n"
          "what limits it.\n"
          "\n"
          "Commands:\n",
          out);
    for (size_t i = 0; i < cli_command_count; i++)
        fprintf(out, "  %-10s %s\n", cli_commands[i]->name, cli_commands[i]->summary);
    fputs(
        "\n"
        "Options:\n"
        "  --help     this text; after a command, the help of that command\n"
        "  --version  the version of the program\n"
        "\n"
        "Exit status: 0 success; 1 a check failed; 2 bad usage or input file; 3 the simulated\n"
        "program faulted; 4 it deadlocked; 70 a bug in KernBench; 71 an error of the host, such as\n"
        "a full disk or no memory.\n",
        out);
}

void cli_print_command_help(const cli_command *command)
{
    const char *gap = command->arguments[0] == '\0' ? "" : " ";

    printf("usage: kernbench %s%s%s\n\n", command->name, gap, command->arguments);
    printf("%c%s.\n\n", toupper((unsigned char)command->summary[0]), command->summary + 1);
    if (command->help[0] != '\0')
        printf("%s\n", command->help);
    for (size_t i = 0; command->subcommands && command->subcommands[i]; i++)
        printf("%s  %-10s %s\n", i == 0 ? "Subcommands:\n" : "",
               cli_subcommand_word(command->subcommands[i]), command->subcommands[i]->summary);
    if (command->subcommands)
        printf("\n");
    cli_print_options(command, stdout);
    fputs(command->example, stdout);
}

static kb_code run_help(const cli_call *call)
{
    char **words = call->words;
    int count = call->word_count;
    if (count == 0) {
        cli_print_help(stdout);
        return KB_OK;
    }
    if (words[0][0] == '-')
        return cli_too_many(call->command->name, words[count - 1]);

    const cli_command *command = cli_find_command(words[0]);
    if (command == NULL)
        return KB_ERR_INPUT;
    const cli_command *subcommand = count > 1 ? cli_find_subcommand(command, words[1]) : NULL;
    if (count > 2 || (count > 1 && subcommand == NULL))
        return cli_too_many(call->command->name, words[count - 1]);
    cli_print_command_help(subcommand ? subcommand : command);
    return KB_OK;
}

kb_code cli_print_version(void)
{
    printf("kernbench %s\n", kb_version());
    return KB_OK;
}

static kb_code run_version(const cli_call *call)
{
    if (call->word_count > 0)
        return cli_too_many(call->command->name, call->words[0]);
    return cli_print_version();
}

const cli_command cli_help_command = {
    .name = "help",
    .arguments = "[COMMAND]",
    .summary = "print the help of the program or of a command",
    .help = "",
    .example = "Example: kernbench help run\n",
    .takes_raw_words = true,
    .run = run_help,
};

const cli_command cli_version_command = {
    .name = "version",
    .arguments = "",
    .summary = "print the version of the program",
    .help = "",
    .example = "Example: kernbench version\n",
    .takes_raw_words = true,
    .run = run_version,
};
