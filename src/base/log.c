/*
 * log.c: leveled messages.
 *
 * Without memory a message loses its arguments, not its existence: the bare format is written.
 * Left out: locking. Threads that share a log need a sink that locks.
 */
#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/error.h"
#include "base/suggest.h"
#include "base/text.h"

static const char *const level_names[] = {
    [KB_LOG_ERROR] = "error", [KB_LOG_WARN] = "warn",   [KB_LOG_INFO] = "info",
    [KB_LOG_DEBUG] = "debug", [KB_LOG_TRACE] = "trace",
};
enum { level_count = sizeof level_names / sizeof level_names[0] };

void kb_log_init(kb_log *log, kb_log_level level, kb_log_sink *sink, void *sink_context)
{
    KB_ASSERT(sink);
    *log = (kb_log){.level = level, .sink = sink, .sink_context = sink_context};
}

void kb_log_set_clock(kb_log *log, kb_log_clock *clock, const void *clock_context)
{
    log->clock = clock;
    log->clock_context = clock_context;
}

void kb_log_to_file(void *file, kb_log_level level, const char *line)
{
    (void)level;
    fprintf(file, "%s\n", line);
}

const char *kb_log_level_name(kb_log_level level)
{
    KB_ASSERT((size_t)level < level_count);
    return level_names[level];
}

kb_error *kb_log_level_parse(const char *name, kb_log_level *level)
{
    for (size_t i = 0; i < level_count; i++) {
        if (strcmp(name, level_names[i]) == 0) {
            *level = (kb_log_level)i;
            return NULL;
        }
    }
    kb_suggestion near;
    kb_suggestion_search(&near, name, level_names, level_count);
    return kb_error_new(KB_ERR_INPUT, "unknown log level '%s'%s", name,
                        kb_suggestion_hint(&near, ""));
}

void kb_log_write(const kb_log *log, kb_log_level level, const char *format, ...)
{
    kb_text line = KB_TEXT_INIT;
    if (log->clock) {
        kb_text_puts(&line, "[");
        kb_text_append_ns(&line, log->clock(log->clock_context));
        kb_text_puts(&line, " ns] ");
    }
    kb_text_printf(&line, "%s: ", kb_log_level_name(level));
    va_list args;
    va_start(args, format);
    kb_text_vprintf(&line, format, args);
    va_end(args);
    kb_text_escape_from(&line, 0);
    log->sink(log->sink_context, level, line.failed ? format : kb_text_peek(&line));
    kb_text_fini(&line);
}
