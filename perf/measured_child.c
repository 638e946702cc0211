/* measured_child.c: runs other programs and reads what they print. They inherit the CPU they run
 * on. */
#include "suite.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* The Python that the distribution's packages, such as simpy, are for. */
static const char python[] = "/usr/bin/python3";

/* Starts the program with its output and its complaints going to the pipe. */
static int start(const char *const argv[], const int ends[2], pid_t *pid)
{
    posix_spawn_file_actions_t actions;
    int failed = posix_spawn_file_actions_init(&actions);

    if (failed != 0)
        return failed;
    failed = posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    if (failed == 0)
        failed = posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
    if (failed == 0)
        failed =
            posix_spawnp(pid, argv[0], &actions, NULL, (char *const *)(uintptr_t)argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    return failed;
}

/* Reads to the end, and keeps the last of it if it is too much: there it says what went wrong. */
static void read_all(int fd, char *output, size_t size)
{
    size_t length = 0;

    while (true) {
        if (length == size - 1) {
            memmove(output, output + size / 2, length - size / 2);
            length -= size / 2;
        }
        ssize_t got = read(fd, output + length, size - 1 - length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        length += (size_t)got;
    }
    output[length] = '\0';
}

static const char *last_line(char *output)
{
    size_t length = strlen(output);

    while (length > 0 && output[length - 1] == '\n')
        output[--length] = '\0';
    const char *newline = strrchr(output, '\n');
    return newline != NULL ? newline + 1 : output;
}

static double seconds(struct timeval time)
{
    return (double)time.tv_sec + (double)time.tv_usec / 1e6;
}

kb_error *bench_capture(const char *const argv[], char *output, size_t size, bench_usage *usage)
{
    int ends[2];
    pid_t pid = 0;
    int status = 0;
    struct rusage used = {0};

    if (pipe2(ends, O_CLOEXEC) != 0)
        return kb_error_new(KB_ERR_HOST, "cannot run %s: %s", argv[0], strerror(errno));
    fflush(stdout);
    int failed = start(argv, ends, &pid);
    close(ends[1]);
    if (failed == 0)
        read_all(ends[0], output, size);
    close(ends[0]);
    if (failed != 0)
        return kb_error_new(KB_ERR_HOST, "cannot run %s: %s", argv[0], strerror(failed));
    while (wait4(pid, &status, 0, &used) < 0 && errno == EINTR)
        continue;
    if (usage != NULL)
        *usage = (bench_usage){.cpu_s = seconds(used.ru_utime) + seconds(used.ru_stime),
                               .max_mb = (double)used.ru_maxrss * 1024 / 1e6};
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return kb_error_new(KB_ERR_CHECK, "%s failed: %s", argv[0], last_line(output));
    return NULL;
}

kb_error *bench_python(const char *script, const char *a, const char *b, double *number)
{
    char path[4096], output[4096];
    char *end;

    snprintf(path, sizeof path, "%s/%s", KB_BENCH_DIR, script);
    KB_TRY(bench_capture((const char *[]){python, path, a, b, NULL}, output, sizeof output, NULL));
    *number = strtod(output, &end);
    if (end == output || *number <= 0)
        return kb_error_new(KB_ERR_CHECK, "%s printed no number: %s", script, last_line(output));
    return NULL;
}

static bool succeeds(const char *const argv[])
{
    char output[4096];
    kb_error *err = bench_capture(argv, output, sizeof output, NULL);
    bool good = err == NULL;

    kb_error_free(err);
    return good;
}

/* Why there will be no figures of SimPy, or NULL. */
static const char *why_no_simpy(const bench *b)
{
    if (!b->simpy)
        return "--no-simpy";
    if (!succeeds((const char *[]){python, "-c", "import simpy", NULL}))
        return "/usr/bin/python3 has no module simpy";
    return NULL;
}

const char *bench_why_no_instructions(void)
{
    if (!bench_is_release)
        return "this is no release build"; /* valgrind does not run sanitized programs */
    if (!succeeds((const char *[]){"valgrind", "--version", NULL}))
        return "there is no valgrind";
    return NULL;
}

void bench_check_tools(bench *b)
{
    const char *reason = why_no_simpy(b);
    b->simpy = reason == NULL;
    if (reason != NULL)
        printf("Without SimPy: %s.\n", reason);

    reason = b->instructions ? bench_why_no_instructions() : "--no-instructions";
    b->instructions = reason == NULL;
    if (reason != NULL)
        printf("Without counts of instructions: %s.\n", reason);
}
