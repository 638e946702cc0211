/*
 * dispatch.c: finds the command that the arguments name, and runs it. The steps are the same for
 * each: read the options, check them, load the machine, run, free.
 */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

#include "machine_options.h"

/* ---- One command ------------------------------------------------------------------------- */

/* argv[0] is the command's name. */
static kb_code read_arguments(cli_call *call, int argc, char **argv)
{
    const cli_command *command = call->command;
    if (command->args_size > 0) {
        call->args = kb_alloc_zeroed(1, command->args_size);
        if (!call->args)
            return cli_report(kb_error_nomem());
        memcpy(call->args, command->defaults, command->args_size);
    }
    kb_code code = command->takes_raw_words ? KB_OK : cli_parse(command, &argc, argv, call->args);
    call->words = argv + 1;
    call->word_count = argc - 1;
    if (command->machine != CLI_NO_MACHINE)
        call->common = call->args;
    if (code == KB_OK && command->check)
        code = command->check(call);
    return code;
}

static void free_arguments(const cli_call *call)
{
    if (call->args)
        cli_free_lists(call->command, call->args);
    free(call->args);
}

static kb_code run_command(const cli_command *command, int argc, char **argv)
{
    cli_call call = {.command = command};
    topo_machine *machine = NULL;
    kb_code code = read_arguments(&call, argc, argv);
    if (code == KB_OK && command->machine == CLI_MACHINE)
        code = cli_load_machine(call.common, &machine);
    call.machine = machine;
    if (code == KB_OK)
        code = command->run(&call);
    topo_machine_destroy(machine);
    free_arguments(&call);
    return code;
}

/* ---- Which command ----------------------------------------------------------------------- */

static bool is_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static kb_code run_option(const char *option)
{
    static const char *const options[] = {"--help", "--version"};

    if (is_help(option)) {
        cli_print_help(stdout);
        return KB_OK;
    }
    if (strcmp(option, "--version") == 0)
        return cli_print_version();
    return cli_unknown("option", option, options, sizeof options / sizeof options[0], "");
}

kb_code cli_dispatch(int argc, char **argv)
{
    if (argc < 2) {
        cli_print_help(stderr);
        return KB_ERR_INPUT;
    }
    if (argv[1][0] == '-')
        return run_option(argv[1]);
    argc--;
    argv++;
    const cli_command *command = cli_find_command(argv[0]);
    if (!command)
        return KB_ERR_INPUT;
    const cli_command *subcommand = argc > 1 ? cli_find_subcommand(command, argv[1]) : NULL;
    if (subcommand) {
        command = subcommand;
        argc--;
        argv++;
    }
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (is_help(argv[i])) {
            cli_print_command_help(command);
            return KB_OK;
        }
    }
    return run_command(command, argc, argv);
}
