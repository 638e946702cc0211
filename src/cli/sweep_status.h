/*
 * sweep_status.h: the progress of a sweep on stderr: one line that is rewritten on a terminal, else
 * a line every ten seconds.
 */
#ifndef KB_CLI_SWEEP_STATUS_H
#define KB_CLI_SWEEP_STATUS_H

#include "sweep/sweep.h"

typedef struct sweep_status {
    bool quiet, on_terminal, is_shown;
    double shown_s; /* when the last line was printed, since the start */
} sweep_status;

sweep_status sweep_status_start(bool quiet);

/* A callback of sweep_drive: `self` is the sweep_status. */
void sweep_status_show(void *self, const sweep_progress *progress);

/* Removes the line on a terminal. */
void sweep_status_clear(sweep_status *status);

/* Appends a time for people: "850 ms", "12 s", "3 min 20 s", "2 h 5 min". */
void sweep_append_duration(kb_text *text, double seconds);

#endif
