/* test_dispatch.c: commands run in a process of another program, and change nothing of it. */
#include "support/expect.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

/* Runs the words as arguments of the program, without output. */
static kb_code dispatch(const char *line)
{
    char words[256], *argv[32];
    int argc = 0, out = dup(STDOUT_FILENO), err = dup(STDERR_FILENO);
    int null = open("/dev/null", O_WRONLY);
    snprintf(words, sizeof words, "kernbench %s", line);
    for (char *word = strtok(words, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    argv[argc] = NULL;
    fflush(stdout);
    assert_true(dup2(null, STDOUT_FILENO) >= 0 && dup2(null, STDERR_FILENO) >= 0);
    kb_code code = cli_dispatch(argc, argv);
    fflush(stdout);
    assert_true(dup2(out, STDOUT_FILENO) >= 0 && dup2(err, STDERR_FILENO) >= 0);
    assert_true(close(null) == 0 && close(out) == 0 && close(err) == 0);
    return code;
}

static void codes_are_returned(void **state)
{
    (void)state;
    assert_int_equal(dispatch(""), KB_ERR_INPUT);
    assert_int_equal(dispatch("--version"), KB_OK);
    assert_int_equal(dispatch("xyzzy"), KB_ERR_INPUT);
    assert_int_equal(dispatch("topo --check"), KB_OK);
    assert_int_equal(dispatch("topo --set cube.noc.w=0"), KB_ERR_INPUT);
    assert_int_equal(dispatch("probe --case pe-local-hbm --json"), KB_OK);
    assert_int_equal(dispatch("help ccl plan"), KB_OK);
    assert_int_equal(dispatch("ccl plan --algorithm ring_rsag --json"), KB_OK);
    assert_int_equal(dispatch("run"), KB_ERR_INPUT);
}

/* One after the other: no command leaves anything behind that changes the next one. */
static void a_run_leaves_the_process_alone(void **state)
{
    (void)state;
    static const int numbers[] = {SIGSEGV, SIGABRT, SIGFPE, SIGINT, SIGTERM, SIGALRM, SIGXFSZ};
    enum { COUNT = sizeof numbers / sizeof numbers[0] };
    struct sigaction before[COUNT], after;
    for (size_t i = 0; i < COUNT; i++)
        assert_int_equal(sigaction(numbers[i], NULL, &before[i]), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(
            dispatch(
                "run --bench gemm_single_pe --param m=8 --param k=8 --param n=8 --verify-data"),
            KB_OK);
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(sigaction(numbers[i], NULL, &after), 0);
        assert_true(after.sa_handler == before[i].sa_handler);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_are_returned),
        cmocka_unit_test(a_run_leaves_the_process_alone),
    };
    return cmocka_run_group_tests_name("dispatch", tests, NULL, NULL);
}
