/* trace_slice.c: title and arguments of the slice of an operation: see trace_slice.h. */
#include "trace_slice.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"

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
void obs_compose_title(const kb_op *op, kb_text *title)
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

obs_access obs_describe_access(const kb_op_access *access)
{
    uint64_t size = kb_dtype_bytes(access->dtype), end = access->offset + access->bytes;
    bool whole = size > 0 && access->offset % size == 0 && end % size == 0;
    return (obs_access){
        .tensor = access->tensor,
        .dtype = kb_dtype_name(access->dtype),
        .access = access->write ? "write" : "read",
        .first_key = whole ? "first_element" : "first_byte",
        .end_key = whole ? "end_element" : "end_byte",
        .first = whole ? access->offset / size : access->offset,
        .end = whole ? end / size : end,
    };
}

static void visit_number(const char *key, uint64_t number, const obs_args_ops *ops, void *self)
{
    if (number != 0)
        ops->number(self, key, number);
}

static void visit_reason(const char *key, kb_reason reason, const obs_args_ops *ops, void *self)
{
    if (reason.kind == KB_REASON_NONE)
        return;
    char text[64];
    if (reason.id != 0)
        snprintf(text, sizeof text, "%s of record %" PRIu64, kb_reason_name(reason.kind),
                 reason.id);
    else
        snprintf(text, sizeof text, "%s", kb_reason_name(reason.kind));
    ops->reason(self, key, text);
}

void obs_visit_args(const kb_op *op, const obs_args_ops *ops, void *self)
{
    if (op->label[0] != '\0')
        ops->text(self, "label", op->label);
    if (op->access_count > 0)
        ops->accesses(self, "tensors", op);
    visit_number("bytes", op->bytes, ops, self);
    visit_number("flops", op->flops, ops, self);
    if (op->direction)
        ops->text(self, "direction", op->direction);
    visit_number("message", op->message, ops, self);
    if (op->unfinished)
        ops->truth(self, "unfinished");
    if (op->file) {
        ops->text(self, "file", op->file);
        ops->number(self, "line", (uint64_t)op->line);
    }
    visit_number("record", op->id, ops, self);
    visit_reason("begun_by", op->begun_by, ops, self);
    visit_reason("ended_by", op->ended_by, ops, self);
}
