/*
 * main.c: the kernbench program: runs the command, and sees that its output got out.
 */
#include "cli.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "crash.h"
#include "descriptors.h"
#include "python.h"

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

int main(int argc, char **argv)
{
    descriptors_open();
    (void)crash_install();
    python_take_over(argc, argv);
    return crash_finish((int)check_stdout(cli_run(argc, argv)));
}
