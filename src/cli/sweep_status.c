/* sweep_status.c: see sweep_status.h. */
#include "sweep_status.h"

#include <stdio.h>
#include <unistd.h>

static const double terminal_period = 0.2, line_period = 10; /* seconds */

sweep_status sweep_status_start(bool quiet)
{
    return (sweep_status){.quiet = quiet, .on_terminal = isatty(STDERR_FILENO) == 1};
}

void sweep_append_duration(kb_text *text, double seconds)
{
    double whole = seconds + 0.5;
    if (seconds < 1)
        kb_text_printf(text, "%.0f ms", seconds * 1e3);
    else if (seconds < 100)
        kb_text_printf(text, "%.0f s", seconds);
    else if (whole < 3600)
        kb_text_printf(text, "%d min %d s", (int)whole / 60, (int)whole % 60);
    else
        kb_text_printf(text, "%.0f h %d min", (double)(int64_t)(whole / 3600),
                       (int)((int64_t)whole % 3600) / 60);
}

static void compose(const sweep_progress *p, kb_text *line)
{
    kb_text_printf(line, "sweep: %zu of %zu points", p->done, p->points);
    if (p->stored > 0)
        kb_text_printf(line, " (%zu stored before)", p->stored);
    if (p->running > 0)
        kb_text_printf(line, ", %zu running", p->running);
    if (p->failed > 0)
        kb_text_printf(line, ", %zu failed", p->failed);
    if (p->rate > 0)
        kb_text_printf(line, ", %.3g/s", p->rate);
    if (p->left_s >= 0 && p->done < p->points) {
        kb_text_puts(line, ", ");
        sweep_append_duration(line, p->left_s);
        kb_text_puts(line, " left");
    }
}

void sweep_status_show(void *self, const sweep_progress *progress)
{
    sweep_status *status = self;
    double period = status->on_terminal ? terminal_period : line_period;
    if (status->quiet || progress->is_last || progress->seconds < status->shown_s + period)
        return;
    kb_text line = KB_TEXT_INIT;
    compose(progress, &line);
    fprintf(stderr, status->on_terminal ? "\r\033[K%s" : "%s\n", kb_text_peek(&line));
    fflush(stderr);
    kb_text_fini(&line);
    status->shown_s = progress->seconds;
    status->is_shown = status->on_terminal;
}

void sweep_status_clear(sweep_status *status)
{
    if (status->is_shown)
        fputs("\r\033[K", stderr);
    status->is_shown = false;
}
