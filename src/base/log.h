/*
 * log.h: leveled messages, one line each, to wherever the owner of the log wants them.
 *
 *     kb_log log;
 *     kb_log_init(&log, KB_LOG_WARN, kb_log_to_file, stderr);
 *     kb_log_warn(&log, "link %s is %d%% full", name, percent);
 *
 * gives "warn: link sip0.io is 97% full", and with a clock "[12.345678 ns] warn: ...". A message
 * above the level costs one compare: its arguments are not evaluated.
 */
#ifndef KB_BASE_LOG_H
#define KB_BASE_LOG_H

#include <kernbench/kernbench.h>

typedef enum kb_log_level {
    KB_LOG_ERROR,
    KB_LOG_WARN,
    KB_LOG_INFO,
    KB_LOG_DEBUG,
    KB_LOG_TRACE
} kb_log_level;

/* Gets a line without its newline, valid during the call. Must not log itself. */
typedef void kb_log_sink(void *context, kb_log_level level, const char *line);
typedef kb_time kb_log_clock(const void *context);

typedef struct kb_log {
    kb_log_level level; /* the most talkative that still gets through */
    kb_log_sink *sink;
    void *sink_context;
    kb_log_clock *clock; /* NULL: lines carry no time */
    const void *clock_context;
} kb_log;

void kb_log_init(kb_log *log, kb_log_level level, kb_log_sink *sink, void *sink_context);
void kb_log_set_clock(kb_log *log, kb_log_clock *clock, const void *clock_context);

/* A sink: writes the line to the FILE * that is its context, in one call. */
void kb_log_to_file(void *file, kb_log_level level, const char *line);

const char *kb_log_level_name(kb_log_level level);
KB_MUST_USE kb_error *kb_log_level_parse(const char *name, kb_log_level *level);

#define KB_LOG(log, at_level, ...)                                                                 \
    do {                                                                                           \
        const kb_log *kb_log_ = (log);                                                             \
        if (__builtin_expect(kb_log_->level >= (at_level), 0))                                     \
            kb_log_write(kb_log_, (at_level), __VA_ARGS__);                                        \
    } while (0)

#define kb_log_error(log, ...) KB_LOG(log, KB_LOG_ERROR, __VA_ARGS__)
#define kb_log_warn(log, ...) KB_LOG(log, KB_LOG_WARN, __VA_ARGS__)
#define kb_log_info(log, ...) KB_LOG(log, KB_LOG_INFO, __VA_ARGS__)
#define kb_log_debug(log, ...) KB_LOG(log, KB_LOG_DEBUG, __VA_ARGS__)
#define kb_log_trace(log, ...) KB_LOG(log, KB_LOG_TRACE, __VA_ARGS__)

/* Writes whatever the level of the log: the macros above have compared already. */
void kb_log_write(const kb_log *log, kb_log_level level, const char *format, ...) KB_PRINTF(3, 4);

#endif
