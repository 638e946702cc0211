/* trace_slice.c: title and arguments of the slice of an operation: see trace_slice.h. */
#include "trace_slice.h"

#include <inttypes.h>
#include <string.h>

#include "base/base.h"
#include "trace_writer.h"

bool obs_is_wait(const kb_op *op)
{
    return op->unit == KB_UNIT_IPCQ &&
           (strcmp(op->name, "recv") == 0 || strcmp(op->name, "await credit") == 0);
}

bool obs_is_kernel(const kb_op *op)
{
    return op->unit == KB_UNIT_CPU && strcmp(op->name, "kernel") == 0;
}

/* The names of the tensors that are read, then of those that are written. */
static void add_tensors(const kb_op *op, kb_text *title)
{
    const char *before = " ";
    bool reads = false;
    for (int writes = 0; writes < 2; writes++) {
        for (size_t i = 0; i < op->access_count; i++) {
            if (op->accesses[i].write != (writes == 1))
                continue;
            kb_text_printf(title, "%s%s", writes && reads ? " to " : before,
                           op->accesses[i].tensor);
            before = ", ";
            reads = !writes;
        }
    }
}

/* A kernel has the name of its launch; other operations have theirs, with tensors. */
static void compose_title(const kb_op *op, kb_text *title)
{
    bool on_host = op->unit == KB_UNIT_HOST;
    if (obs_is_wait(op)) {
        bool for_message = strcmp(op->name, "recv") == 0;
        kb_text_puts(title, for_message ? "waiting for message" : "waiting for credit");
        if (op->direction)
            kb_text_printf(title, for_message ? " from %s" : " on %s", op->direction);
        return;
    }
    if (obs_is_kernel(op) && op->label[0] != '\0') {
        kb_text_puts(title, op->label);
        return;
    }
    kb_text_puts(title, op->name);
    if (on_host && op->label[0] != '\0')
        kb_text_printf(title, " %s", op->label);
    if (op->direction)
        kb_text_printf(title, " %s", op->direction);
    add_tensors(op, title);
}

bool obs_put_title(FILE *file, const kb_op *op)
{
    kb_text title = KB_TEXT_INIT;
    compose_title(op, &title);
    bool whole = !title.failed;
    obs_put_string(file, kb_text_peek(&title));
    kb_text_fini(&title);
    return whole;
}

/* Elements if the access is aligned to them, else bytes; the end is exclusive. */
static void put_access(FILE *file, const kb_op_access *access)
{
    uint64_t size = kb_dtype_bytes(access->dtype), end = access->offset + access->bytes;
    bool whole = size > 0 && access->offset % size == 0 && end % size == 0;
    fputs("{\"tensor\":", file);
    obs_put_string(file, access->tensor);
    fprintf(file, ",\"dtype\":\"%s\",\"access\":\"%s\"", kb_dtype_name(access->dtype),
            access->write ? "write" : "read");
    fprintf(file, ",\"first_%s\":%" PRIu64 ",\"end_%s\":%" PRIu64 "}", whole ? "element" : "byte",
            whole ? access->offset / size : access->offset, whole ? "element" : "byte",
            whole ? end / size : end);
}

/* The key of the next member of args. */
static void put_key(FILE *file, const char *key, bool *any)
{
    fprintf(file, "%s\"%s\":", *any ? "," : "", key);
    *any = true;
}

static void put_accesses(FILE *file, const kb_op *op, bool *any)
{
    if (op->access_count == 0)
        return;
    put_key(file, "tensors", any);
    for (size_t i = 0; i < op->access_count; i++) {
        fputc(i == 0 ? '[' : ',', file);
        put_access(file, &op->accesses[i]);
    }
    fputc(']', file);
}

static void put_text(FILE *file, const char *key, const char *text, bool *any)
{
    put_key(file, key, any);
    obs_put_string(file, text);
}

static void put_number(FILE *file, const char *key, uint64_t number, bool *any)
{
    if (number == 0)
        return;
    put_key(file, key, any);
    fprintf(file, "%" PRIu64, number);
}

/* "message of record 17", "work". */
static void put_reason(FILE *file, const char *key, kb_reason reason, bool *any)
{
    if (reason.kind == KB_REASON_NONE)
        return;
    put_key(file, key, any);
    fprintf(file, "\"%s", kb_reason_name(reason.kind));
    if (reason.id != 0)
        fprintf(file, " of record %" PRIu64, reason.id);
    fputc('"', file);
}

void obs_put_args(FILE *file, const kb_op *op)
{
    bool any = false;
    fputs(",\"args\":{", file);
    if (op->label[0] != '\0')
        put_text(file, "label", op->label, &any);
    put_accesses(file, op, &any);
    put_number(file, "bytes", op->bytes, &any);
    put_number(file, "flops", op->flops, &any);
    if (op->direction)
        put_text(file, "direction", op->direction, &any);
    put_number(file, "message", op->message, &any);
    if (op->unfinished) {
        put_key(file, "unfinished", &any);
        fputs("true", file);
    }
    if (op->file) {
        put_text(file, "file", op->file, &any);
        put_key(file, "line", &any);
        fprintf(file, "%d", op->line);
    }
    put_number(file, "record", op->id, &any);
    put_reason(file, "begun_by", op->begun_by, &any);
    put_reason(file, "ended_by", op->ended_by, &any);
    fputc('}', file);
}
