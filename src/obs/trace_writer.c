/* trace_writer.c: events of a trace as JSON: see trace_writer.h. */
#include "trace_writer.h"

#include <inttypes.h>
#include <string.h>

#include "base/base.h"

void obs_put_string(FILE *file, const char *text)
{
    fputc('"', file);
    for (size_t size = strlen(text); size > 0;) {
        uint32_t c = 0;
        size_t length = kb_utf8_decode(text, size, &c);
        if (length == 0)
            fputs("\\ufffd", file);
        else if (c == '"' || c == '\\')
            fprintf(file, "\\%c", (char)c);
        else if (kb_utf8_is_control(c))
            fprintf(file, "\\u%04x", (unsigned)c);
        else
            fwrite(text, 1, length, file);
        length = length > 0 ? length : 1;
        text += length;
        size -= length;
    }
    fputc('"', file);
}

void obs_put_time(FILE *file, const char *key, kb_time time)
{
    fprintf(file, ",\"%s\":%" PRId64 ".%09" PRId64, key, time / KB_US, time % KB_US);
}

FILE *obs_begin_event(obs_writer *w, const char *phase, uint64_t process, uint64_t thread)
{
    fprintf(w->file, "%s{\"ph\":\"%s\",\"pid\":%" PRIu64 ",\"tid\":%" PRIu64, w->any ? ",\n" : "",
            phase, process, thread);
    w->any = true;
    return w->file;
}

void obs_end_event(const obs_writer *w)
{
    fputc('}', w->file);
}

void obs_put_name(obs_writer *w, const char *what, uint64_t process, uint64_t thread,
                  const char *name)
{
    FILE *file = obs_begin_event(w, "M", process, thread);
    fprintf(file, ",\"name\":\"%s_name\",\"args\":{\"name\":", what);
    obs_put_string(file, name);
    fputc('}', file);
    obs_end_event(w);
    file = obs_begin_event(w, "M", process, thread);
    fprintf(file, ",\"name\":\"%s_sort_index\",\"args\":{\"sort_index\":%" PRIu64 "}", what,
            thread > 0 ? thread : process);
    obs_end_event(w);
}

void obs_put_counter(obs_writer *w, uint64_t process, const char *name, const char *unit,
                     kb_time time, double value)
{
    FILE *file = obs_begin_event(w, "C", process, 0);
    obs_put_time(file, "ts", time);
    fputs(",\"name\":", file);
    obs_put_string(file, name);
    fputs(",\"args\":{", file);
    obs_put_string(file, unit);
    fprintf(file, ":%.17g}", value);
    obs_end_event(w);
}
