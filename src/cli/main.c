/*
 * main.c: the kernbench program: finds the command, runs it, and sees that its output got out.
 */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "crash.h"
#include "descriptors.h"

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
 * A full disk shows here at the latest; a result that did not get out is no success. stdout stays
 * open for destructors of the user's code: closing a duplicate tells what closing it would.
 */
static kb_code check_stdout(kb_code code)
{
    bool failed = ferror(stdout) != 0;

    errno = 0;
    failed = fflush(stdout) != 0 || failed;
    if (!failed) {
        int duplicate = dup(STDOUT_FILENO);
        failed = duplicate >= 0 && close(duplicate) != 0;
    }
    if (!failed && code != KB_ERR_HOST && cli_text_was_lost())
        return cli_report(kb_error_nomem());
    if (!failed)
        return code;
    if (errno == 0) /* an earlier write failed, and its reason is gone: this one has it as well */
        (void)!write(STDOUT_FILENO, "\n", 1);
    return cli_fail(KB_ERR_HOST, "cannot write the output: %s",
                    errno != 0 ? strerror(errno) : "an earlier write failed");
}

/*
 * OpenBLAS would start a thread for each core when it is loaded, and end the process if it cannot.
 * It computes with one thread here anyway (src/data/blas.c), whatever the user has set.
 */
static bool keep_blas_from_threads(void)
{
    return setenv("OPENBLAS_NUM_THREADS", "1", 1) == 0;
}

int main(int argc, char **argv)
{
    kb_code code;

    descriptors_open();
    (void)crash_install();
    if (!keep_blas_from_threads()) {
        code = cli_report(kb_error_nomem());
    } else if (argc < 2) {
        cli_print_help(stderr);
        code = KB_ERR_INPUT;
    } else if (argv[1][0] == '-') {
        code = run_option(argv[1]);
    } else {
        code = run_command(argc - 1, argv + 1);
    }
    return crash_finish((int)check_stdout(code));
}
