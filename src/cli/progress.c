/* progress.c: a line on stderr that is rewritten a few times a second. */
#include "progress.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

static const double delay = 1, period = 0.2; /* seconds before the first line, and between lines */

double cli_wall_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

cli_progress cli_progress_start(const char *what, uint64_t total, bool quiet)
{
    return (cli_progress){
        .what = what,
        .total = total,
        .began = cli_wall_seconds(),
        .silent = quiet || isatty(STDERR_FILENO) != 1,
    };
}

static void note_line(cli_progress *progress, double t)
{
    fflush(stderr);
    progress->shown = t;
    progress->dirty = true;
}

void cli_progress_show(cli_progress *progress, uint64_t done)
{
    if (progress->silent)
        return;
    double t = cli_wall_seconds(), passed = t - progress->began;
    if (passed < delay || t - progress->shown < period || done == 0)
        return;
    double rate = (double)done / passed;
    if (progress->total == 0) {
        fprintf(stderr, "\r\033[K%s: %llu, %.3g/s", progress->what, (unsigned long long)done, rate);
        note_line(progress, t);
        return;
    }
    double left = (double)(progress->total > done ? progress->total - done : 0) / rate;
    fprintf(stderr, "\r\033[K%s: %llu of %llu, %.3g/s, %.0f s left", progress->what,
            (unsigned long long)done, (unsigned long long)progress->total, rate, left);
    note_line(progress, t);
}

void cli_progress_end(cli_progress *progress)
{
    if (progress->dirty)
        fputs("\r\033[K", stderr);
    progress->dirty = false;
}
