/*
 * progress.h: a line of progress with rate and remaining time, on stderr if that is a terminal,
 * after one second.
 *
 *     cli_progress progress = cli_progress_start("load points", 20, common.quiet);
 *     ...
 *     cli_progress_show(&progress, done);
 *     cli_progress_end(&progress);
 */
#ifndef KB_CLI_PROGRESS_H
#define KB_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct cli_progress {
    const char *what;
    uint64_t total;
    double began, shown; /* seconds of the wall clock */
    bool silent;
    bool dirty; /* a line is shown */
} cli_progress;

/* A total of 0 is unknown. */
cli_progress cli_progress_start(const char *what, uint64_t total, bool quiet);
void cli_progress_show(cli_progress *progress, uint64_t done);

/* Removes the line: call it before other output. */
void cli_progress_end(cli_progress *progress);

/* Seconds of the wall clock, for differences. */
double cli_wall_seconds(void);

#endif
