/*
 * trace_json.c: a trace in Chrome's "Trace Event Format": one JSON document, which Perfetto and
 * chrome://tracing read. Times are microseconds with all digits down to the femtosecond.
 */
#include "trace_writer.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "trace_slice.h"

typedef struct json_writer {
    trace_writer base;
    bool any; /* an event was written */
    bool any_argument;
} json_writer;

/* Invalid UTF-8 becomes U+FFFD. */
static void put_string(FILE *file, const char *text)
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

static void put_time(FILE *file, const char *key, kb_time time)
{
    fprintf(file, ",\"%s\":%" PRId64 ".%09" PRId64, key, time / KB_US, time % KB_US);
}

/* Begins an event: the caller writes more members and the closing brace. */
static FILE *begin_event(trace_writer *base, const char *phase, uint64_t process, uint64_t thread)
{
    json_writer *w = (json_writer *)base;
    fprintf(base->file, "%s{\"ph\":\"%s\",\"pid\":%" PRIu64 ",\"tid\":%" PRIu64,
            w->any ? ",\n" : "", phase, process, thread);
    w->any = true;
    return base->file;
}

/* The name and the sort index of a process ("process") or a thread ("thread"). */
static void put_name(trace_writer *base, const char *what, uint64_t process, uint64_t thread,
                     const char *name)
{
    FILE *file = begin_event(base, "M", process, thread);
    fprintf(file, ",\"name\":\"%s_name\",\"args\":{\"name\":", what);
    put_string(file, name);
    fputs("}}", file);
    begin_event(base, "M", process, thread);
    fprintf(file, ",\"name\":\"%s_sort_index\",\"args\":{\"sort_index\":%" PRIu64 "}}", what,
            thread > 0 ? thread : process);
}

static void name_process(trace_writer *base, uint64_t process, const char *name)
{
    put_name(base, "process", process, 0, name);
}

static void name_thread(trace_writer *base, const trace_thread *at, const char *name)
{
    put_name(base, "thread", at->process, at->thread, name);
}

/* ---- Arguments --------------------------------------------------------------------------- */

static FILE *put_key(void *self, const char *key)
{
    json_writer *w = self;
    fprintf(w->base.file, "%s\"%s\":", w->any_argument ? "," : "", key);
    w->any_argument = true;
    return w->base.file;
}

static void put_text(void *self, const char *key, const char *text)
{
    put_string(put_key(self, key), text);
}

static void put_number(void *self, const char *key, uint64_t number)
{
    fprintf(put_key(self, key), "%" PRIu64, number);
}

static void put_truth(void *self, const char *key)
{
    fputs("true", put_key(self, key));
}

static void put_accesses(void *self, const char *key, const kb_op *op)
{
    FILE *file = put_key(self, key);
    for (size_t i = 0; i < op->access_count; i++) {
        obs_access a = obs_describe_access(&op->accesses[i]);
        fputs(i == 0 ? "[{\"tensor\":" : ",{\"tensor\":", file);
        put_string(file, a.tensor);
        fprintf(file, ",\"dtype\":\"%s\",\"access\":\"%s\",\"%s\":%" PRIu64 ",\"%s\":%" PRIu64 "}",
                a.dtype, a.access, a.first_key, a.first, a.end_key, a.end);
    }
    fputc(']', file);
}

static const obs_args_ops args = {
    .text = put_text,
    .number = put_number,
    .truth = put_truth,
    .accesses = put_accesses,
    .reason = put_text,
};

/* ---- Events ------------------------------------------------------------------------------ */

static void put_slice(trace_writer *base, const trace_slice *slice)
{
    json_writer *w = (json_writer *)base;
    FILE *file = begin_event(base, "X", slice->at.process, slice->at.thread);
    put_time(file, "ts", slice->start);
    put_time(file, "dur", slice->end - slice->start);
    fprintf(file, ",\"cat\":\"%s\",\"name\":", slice->category);
    put_string(file, slice->title);
    fputs(",\"args\":{", file);
    w->any_argument = false;
    if (slice->op)
        obs_visit_args(slice->op, &args, w);
    for (size_t i = 0; i < slice->note_count; i++)
        put_number(w, slice->notes[i].key, slice->notes[i].number);
    fputs("}}", file);
}

static void put_arrow_end(trace_writer *base, const char *phase, const trace_arrow *arrow,
                          const trace_thread *at, kb_time time)
{
    FILE *file = begin_event(base, phase, at->process, at->thread);
    put_time(file, "ts", time);
    fprintf(file, ",\"cat\":\"%s\",\"name\":\"%s\",\"id\":%" PRIu64 ",\"bp\":\"e\"}", arrow->name,
            arrow->name, arrow->number);
}

/* Viewers bind each end to the slice of its thread at that time. */
static void put_arrow(trace_writer *base, const trace_arrow *arrow)
{
    put_arrow_end(base, "s", arrow, &arrow->from, arrow->from_time);
    put_arrow_end(base, "f", arrow, &arrow->to, arrow->to_time);
}

static void put_counter(trace_writer *base, const trace_counter *counter, kb_time time,
                        double value)
{
    FILE *file = begin_event(base, "C", counter->process, 0);
    put_time(file, "ts", time);
    fputs(",\"name\":", file);
    put_string(file, counter->name);
    fputs(",\"args\":{", file);
    put_string(file, counter->unit);
    fprintf(file, ":%.17g}}", value);
}

static void close_document(trace_writer *base)
{
    fputs("\n]}\n", base->file);
    free(base);
}

static const trace_writer_ops ops = {
    .name_process = name_process,
    .name_thread = name_thread,
    .put_slice = put_slice,
    .put_arrow = put_arrow,
    .put_counter = put_counter,
    .close = close_document,
};

trace_writer *trace_json_create(FILE *file, const kb_machine *machine)
{
    json_writer *w = kb_alloc_zeroed(1, sizeof *w);
    if (!w)
        return NULL;
    w->base = (trace_writer){.ops = &ops, .file = file};
    fprintf(file, "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"kernbench\":\"%s\",\"machine\":",
            kb_version());
    put_string(file, machine->name);
    fputs("},\"traceEvents\":[\n", file);
    return &w->base;
}
