/*
 * main.c: the kernbench program: prepares the process, runs the command, and checks that its output
 * was written. What concerns the process is here and in crash.c, exit_hooks.c and descriptors.c;
 * commands themselves run in any process.
 */
#include "cli.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "crash.h"
#include "descriptors.h"
#include "exit_hooks.h"
#include "python.h"

/*
 * A full disk shows here at the latest; a result that was not written is a failure. stdout stays
 * open for destructors of user code: closing a duplicate reports what closing stdout would.
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
    if (errno ==
        0) /* an earlier write failed and its errno is lost: this one fails for the same reason */
        (void)!write(STDOUT_FILENO, "\n", 1);
    return cli_fail(KB_ERR_HOST, "cannot write the output: %s",
                    errno != 0 ? strerror(errno) : "an earlier write failed");
}

/*
 * When OpenBLAS is loaded it would start a thread for each core, and end the process if it cannot.
 * KernBench computes with one thread anyway (src/data/blas.c), whatever the environment says.
 */
static bool limit_blas_threads(void)
{
    return setenv("OPENBLAS_NUM_THREADS", "1", 1) == 0;
}

int main(int argc, char **argv)
{
    descriptors_open();
    (void)crash_install(exit_hooks_exit);
    python_take_over(argc, argv);
    kb_code code = limit_blas_threads() ? cli_dispatch(argc, argv) : cli_report(kb_error_nomem());
    return crash_finish((int)check_stdout(code));
}
