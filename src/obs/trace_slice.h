/* trace_slice.h: title and arguments of the slice of an operation. Private to obs. */
#ifndef KB_OBS_TRACE_SLICE_H
#define KB_OBS_TRACE_SLICE_H

#include <stdbool.h>

#include <kernbench/kernbench.h>

#include "base/base.h"

/* Whether the operation is waiting for a message or a credit; a whole kernel. */
bool obs_is_wait(const kb_op *op);
bool obs_is_kernel(const kb_op *op);

/* Appends the title: "load x", "gemm a, b to c", "waiting for message from E". */
void obs_compose_title(const kb_op *op, kb_text *title);

/* What an access covers: elements if it is aligned to them, else bytes; the end is exclusive. */
typedef struct obs_access {
    const char *tensor, *dtype, *access; /* "read" or "write" */
    const char *first_key, *end_key;     /* "first_element", "end_byte" */
    uint64_t first, end;
} obs_access;

obs_access obs_describe_access(const kb_op_access *access);

/* Gets the arguments of an operation. */
typedef struct obs_args_ops {
    void (*text)(void *self, const char *key, const char *text); /* of few different ones */
    void (*number)(void *self, const char *key, uint64_t number);
    void (*truth)(void *self, const char *key); /* true */
    void (*accesses)(void *self, const char *key, const kb_op *op);
    void (*reason)(void *self, const char *key, const char *text); /* "message of record 17" */
} obs_args_ops;

void obs_visit_args(const kb_op *op, const obs_args_ops *ops, void *self);

#endif
