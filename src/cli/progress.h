/*
 * progress.h: what is being done, how far it is, how fast, and how long it will still take; on
 * stderr, on a terminal alone, and only after a second.
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
    bool dirty; /* there is a line to wipe out */
} cli_progress;

/* A total of 0 is one that nobody knows. */
cli_progress cli_progress_start(const char *what, uint64_t total, bool quiet);
void cli_progress_show(cli_progress *progress, uint64_t done);

/* Wipes the line out: before anything else is printed. */
void cli_progress_end(cli_progress *progress);

#endif
