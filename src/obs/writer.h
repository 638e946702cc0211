/*
 * writer.h: writes events of Chrome's "Trace Event Format" to a file, one after the other. Private
 * to obs.
 */
#ifndef KB_OBS_WRITER_H
#define KB_OBS_WRITER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <kernbench/kernbench.h>

typedef struct obs_writer {
    FILE *file;
    bool any; /* an event was written */
} obs_writer;

/* A string as JSON has it. What is not UTF-8 becomes U+FFFD. */
void obs_put_string(FILE *file, const char *text);

/* A member with microseconds, to the femtosecond. */
void obs_put_time(FILE *file, const char *key, kb_time time);

/* Begins an event: the caller writes more members, and obs_end_event(). */
FILE *obs_begin_event(obs_writer *w, const char *phase, uint64_t process, uint64_t thread);
void obs_end_event(const obs_writer *w);

/* Names a process ("process") or a thread ("thread"), and gives its place among the others. */
void obs_put_name(obs_writer *w, const char *what, uint64_t process, uint64_t thread,
                  const char *name);

/* The counter has this value from this time on. */
void obs_put_counter(obs_writer *w, uint64_t process, const char *name, const char *unit,
                     kb_time time, double value);

#endif
