/*
 * op_log.c: the operations of a run as compressed CSV: see op_log.h.
 *
 * Lines are collected in blocks, which are compressed as they fill up, fast rather than small: the
 * text has more than a hundred bytes an operation, and its compressed form about twelve.
 */
#include "op_log.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    BLOCK = 1 << 16,
    GZIP = 15 + 16, /* window bits: the largest window, with the header of gzip */
    LEVEL = 1,
};

struct op_log {
    z_stream stream;
    kb_text lines, compressed;
    bool failed;
};

static const char titles[] = "start_ns,end_ns,unit,sip,cube,pe,name,label,bytes,flops,launch,"
                             "message,direction,file,line,id,begun_by,begun_id,ended_by,ended_id\n";

kb_error *op_log_create(op_log **log)
{
    *log = kb_alloc_zeroed(1, sizeof **log);
    if (!*log)
        return kb_error_nomem();
    z_stream *stream = &(*log)->stream;
    if (deflateInit2(stream, LEVEL, Z_DEFLATED, GZIP, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
        free(*log);
        *log = NULL;
        return kb_error_nomem();
    }
    kb_text_puts(&(*log)->lines, titles);
    return NULL;
}

void op_log_destroy(op_log *log)
{
    if (!log)
        return;
    (void)deflateEnd(&log->stream);
    kb_text_fini(&log->lines);
    kb_text_fini(&log->compressed);
    free(log);
}

/* Compresses the lines. */
static void flush(op_log *log, int mode)
{
    unsigned char out[BLOCK];
    z_stream *stream = &log->stream;
    log->failed = log->failed || log->lines.failed;
    stream->next_in = (unsigned char *)log->lines.bytes;
    stream->avail_in = (unsigned)log->lines.length;
    do {
        stream->next_out = out;
        stream->avail_out = sizeof out;
        (void)deflate(stream, mode); /* cannot fail: the stream is good */
        kb_text_append(&log->compressed, (const char *)out, sizeof out - stream->avail_out);
    } while (stream->avail_out == 0);
    log->lines.length = 0;
    log->failed = log->failed || log->compressed.failed;
}

/* In quotes if it must be. */
static void add_text(kb_text *line, const char *text)
{
    if (!text || text[strcspn(text, ",\"\r\n")] == '\0') {
        kb_text_puts(line, text ? text : "");
        return;
    }
    kb_text_puts(line, "\"");
    for (; *text != '\0'; text++)
        kb_text_append(line, *text == '"' ? "\"\"" : text, *text == '"' ? 2 : 1);
    kb_text_puts(line, "\"");
}

static void add_reason(kb_text *line, const kb_reason *reason)
{
    kb_text_printf(line, ",%s,%llu", kb_reason_name(reason->kind), (unsigned long long)reason->id);
}

void op_log_add(op_log *log, const kb_op *op)
{
    kb_text *line = &log->lines;
    if (log->failed)
        return;
    kb_text_append_ns(line, op->start);
    kb_text_puts(line, ",");
    kb_text_append_ns(line, op->end);
    kb_text_printf(line, ",%s", kb_unit_name(op->unit));
    if (op->unit == KB_UNIT_HOST)
        kb_text_puts(line, ",,,,");
    else
        kb_text_printf(line, ",%u,%u,%u,", op->pe.sip, op->pe.cube, op->pe.pe);
    add_text(line, op->name);
    kb_text_puts(line, ",");
    add_text(line, op->label);
    kb_text_printf(line, ",%llu,%llu,%llu,%llu,", (unsigned long long)op->bytes,
                   (unsigned long long)op->flops, (unsigned long long)op->launch,
                   (unsigned long long)op->message);
    add_text(line, op->direction);
    kb_text_puts(line, ",");
    add_text(line, op->file);
    kb_text_printf(line, ",%d,%llu", op->line, (unsigned long long)op->id);
    add_reason(line, &op->begun_by);
    add_reason(line, &op->ended_by);
    kb_text_puts(line, "\n");
    if (line->length >= BLOCK || line->failed)
        flush(log, Z_NO_FLUSH);
}

kb_error *op_log_finish(op_log *log, const void **bytes, size_t *size)
{
    flush(log, Z_FINISH);
    *bytes = log->compressed.bytes;
    *size = log->compressed.length;
    return log->failed ? kb_error_nomem() : NULL;
}

static kb_error *inflate_to(z_stream *stream, FILE *file)
{
    unsigned char out[BLOCK];
    int result;
    do {
        stream->next_out = out;
        stream->avail_out = sizeof out;
        result = inflate(stream, Z_NO_FLUSH);
        (void)fwrite(out, 1, sizeof out - stream->avail_out, file); /* main() checks stdout */
    } while (result == Z_OK);
    if (result == Z_STREAM_END)
        return NULL;
    return result == Z_MEM_ERROR ? kb_error_nomem()
                                 : kb_error_new(KB_ERR_INPUT, "the op log of the run is damaged");
}

kb_error *op_log_print(const kb_text *bytes, FILE *file)
{
    z_stream stream = {.next_in = (unsigned char *)bytes->bytes,
                       .avail_in = (unsigned)bytes->length};
    if (inflateInit2(&stream, GZIP) != Z_OK)
        return kb_error_nomem();
    kb_error *err = inflate_to(&stream, file);
    (void)inflateEnd(&stream);
    return err;
}
