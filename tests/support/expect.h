/*
 * expect.h: what several tests need: cmocka with its headers, errors to compare, aborts to expect.
 */
#ifndef TESTS_SUPPORT_EXPECT_H
#define TESTS_SUPPORT_EXPECT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include <kernbench/kernbench.h>

/* Compares and frees. */
static inline void expect_error(kb_error *err, kb_code code, const char *message)
{
    assert_string_equal(kb_error_message(err), message);
    assert_int_equal(kb_error_code(err), code);
    kb_error_free(err);
}

static inline void expect_ok(kb_error *err)
{
    assert_string_equal(kb_error_message(err), "");
    assert_null(err);
}

/* Runs `body` in a child, which must abort; what it printed on stderr must contain `text`. */
static inline void expect_abort(void (*body)(void), const char *text)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        body();
        _exit(0);
    }
    close(ends[1]);
    char output[4096];
    size_t length = 0;
    ssize_t got;
    while ((got = read(ends[0], output + length, sizeof output - 1 - length)) > 0)
        length += (size_t)got;
    output[length] = '\0';
    close(ends[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        fail_msg("expected an abort");
    if (!strstr(output, text))
        fail_msg("expected '%s' on stderr, found '%s'", text, output);
}

#endif
