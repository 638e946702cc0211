/*
 * count.c: instructions per event, which do not depend on what else the machine does. callgrind
 * runs this program with `--count NAME EVENTS` for few and for many events; what the many cost more
 * is the events' alone, without start and end.
 */
#include "suite.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct counted {
    uint64_t events;
    uint64_t instructions;
} counted;

/* The number that follows on the label; 0 if there is none. */
static uint64_t number_after(const char *output, const char *label)
{
    const char *found = strstr(output, label);
    return found != NULL ? strtoull(found + strlen(label), NULL, 10) : 0;
}

static kb_error *run_once(const char *program, const char *name, uint64_t events, counted *result)
{
    char number[24], output[65536];
    const char *const argv[] = {
        "valgrind",
        "--tool=callgrind",
        "--callgrind-out-file=/dev/null",
        program,
        "--count",
        name,
        number,
        NULL,
    };

    *result = (counted){0};
    snprintf(number, sizeof number, "%" PRIu64, events);
    KB_TRY(bench_capture(argv, output, sizeof output, NULL));
    result->events = number_after(output, "events: ");
    result->instructions = number_after(output, "Collected : ");
    if (result->events == 0 || result->instructions == 0)
        return kb_error_new(KB_ERR_CHECK, "callgrind did not count the instructions of %s", name);
    return NULL;
}

kb_error *bench_self(char *path, size_t size)
{
    ssize_t length = readlink("/proc/self/exe", path, size - 1);
    if (length < 0)
        return kb_error_new(KB_ERR_HOST, "cannot find this program: %s", strerror(errno));
    path[length] = '\0';
    return NULL;
}

kb_error *bench_count_work(const bench_work *work, double *instructions)
{
    char program[4096];
    counted few, many;

    KB_TRY(bench_self(program, sizeof program));
    KB_TRY(run_once(program, work->name, work->few, &few));
    KB_TRY(run_once(program, work->name, work->many, &many));
    if (many.events <= few.events)
        return kb_error_new(KB_ERR_CHECK, "%s: no more events in a longer run", work->name);
    *instructions =
        ((double)many.instructions - (double)few.instructions) / (double)(many.events - few.events);
    return NULL;
}

kb_error *bench_count(bench *b, const bench_work *works)
{
    for (const bench_work *work = works; work->name != NULL; work++) {
        double instructions = 0;
        if (!bench_wants(b, "%s", work->name))
            continue;
        bench_progress(b, "%s.instructions", work->name);
        KB_TRY(bench_count_work(work, &instructions));
        bench_report(b, instructions, "", "%s.instructions", work->name);
    }
    return NULL;
}
