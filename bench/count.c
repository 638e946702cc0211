/*
 * count.c: instructions per event, which do not depend on what else the machine does. callgrind
 * runs this program with `--count NAME EVENTS` for few and for many events; what the many cost more
 * is the events' alone, without start and end.
 */
#include "bench.h"

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
    KB_TRY(bench_capture(argv, output, sizeof output));
    result->events = number_after(output, "events: ");
    result->instructions = number_after(output, "Collected : ");
    if (result->events == 0 || result->instructions == 0)
        return kb_error_new(KB_ERR_CHECK, "callgrind did not count the instructions of %s", name);
    return NULL;
}

static kb_error *count_work(bench *b, const char *program, const bench_work *work)
{
    counted few, many;

    bench_progress(b, "%s.instructions", work->name);
    KB_TRY(run_once(program, work->name, work->few, &few));
    KB_TRY(run_once(program, work->name, work->many, &many));
    if (many.events <= few.events)
        return kb_error_new(KB_ERR_CHECK, "%s: no more events in a longer run", work->name);
    bench_report(b,
                 ((double)many.instructions - (double)few.instructions) /
                     (double)(many.events - few.events),
                 "", "%s.instructions", work->name);
    return NULL;
}

kb_error *bench_count(bench *b, const bench_work *works)
{
    char program[4096];

    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    if (length < 0)
        return kb_error_new(KB_ERR_HOST, "cannot find this program: %s", strerror(errno));
    program[length] = '\0';
    for (const bench_work *work = works; work->name != NULL; work++) {
        if (bench_wants(b, "%s", work->name))
            KB_TRY(count_work(b, program, work));
    }
    return NULL;
}
