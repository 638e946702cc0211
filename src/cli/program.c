/*
 * program.c: finds the command that the arguments name, and runs it: for the program, and for
 * others that the commands are part of.
 */
#include "cli.h"

#include <stdlib.h>
#include <string.h>

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

static kb_code run_command(int argc, char **argv)
{
    const cli_command *command = cli_find_command(argv[0]);

    if (command == NULL)
        return KB_ERR_INPUT;
    const cli_command *part = argc > 1 ? cli_find_subcommand(command, argv[1]) : NULL;
    if (part != NULL) {
        command = part;
        argc--;
        argv++;
    }
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (is_help(argv[i])) {
            cli_print_command_help(command);
            return KB_OK;
        }
    }
    return command->run(command, argc, argv);
}

/*
 * OpenBLAS would start a thread for each core when it is loaded, and end the process if it cannot.
 * It computes with one thread here anyway (src/data/blas.c), whatever the user has set.
 */
static bool keep_blas_from_threads(void)
{
    return setenv("OPENBLAS_NUM_THREADS", "1", 1) == 0;
}

kb_code cli_run(int argc, char **argv)
{
    if (!keep_blas_from_threads())
        return cli_report(kb_error_nomem());
    if (argc < 2) {
        cli_print_help(stderr);
        return KB_ERR_INPUT;
    }
    return argv[1][0] == '-' ? run_option(argv[1]) : run_command(argc - 1, argv + 1);
}
