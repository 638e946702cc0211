/* trace_writer.h: writes events of Chrome's "Trace Event Format" to a file. Private to obs. */
#ifndef KB_OBS_TRACE_WRITER_H
#define KB_OBS_TRACE_WRITER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <kernbench/kernbench.h>

typedef struct obs_writer {
    FILE *file;
    bool any; /* an event was written */
} obs_writer;

/* Writes a JSON string. Invalid UTF-8 becomes U+FFFD. */
void obs_put_string(FILE *file, const char *text);

/* Writes a member with microseconds, to the femtosecond. */
void obs_put_time(FILE *file, const char *key, kb_time time);

/* Begins an event: the caller writes more members and calls obs_end_event(). */
FILE *obs_begin_event(obs_writer *w, const char *phase, uint64_t process, uint64_t thread);
void obs_end_event(const obs_writer *w);

/* Writes the name and the sort index of a process ("process") or a thread ("thread"). */
void obs_put_name(obs_writer *w, const char *what, uint64_t process, uint64_t thread,
                  const char *name);

/* Writes the value of a counter from this time on. */
void obs_put_counter(obs_writer *w, uint64_t process, const char *name, const char *unit,
                     kb_time time, double value);

#endif
