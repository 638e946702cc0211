/*
 * error.h: making errors. Plain ones, reading and freeing are public: <kernbench/kernbench.h>.
 *
 * An error is built where the facts are known and handed up; each caller may add context. NULL is
 * success. The message is always one line: control characters that came in with user input are
 * escaped. Nothing here fails: if memory is short, the error is the one about memory.
 */
#ifndef KB_BASE_ERROR_H
#define KB_BASE_ERROR_H

#include <stddef.h>

#include <kernbench/kernbench.h>

/* A location in some input. Line and column count from 1; line 0 means the input as a whole. */
typedef struct kb_srcloc {
    const char *file;
    int line;
    int column;
} kb_srcloc;

/* The message begins with "file:line:column: ", or "file: " for line 0. */
KB_MUST_USE kb_error *kb_error_at(kb_code code, const kb_srcloc *loc, const char *format, ...)
    KB_PRINTF(3, 4);

/* The error for lack of memory: a constant, so it always exists. */
KB_MUST_USE kb_error *kb_error_nomem(void);

/*
 * The code of an error of a file, by errno: KB_ERR_HOST if the host has no memory, descriptors or
 * space left, else KB_ERR_INPUT: it is missing, or may not be touched.
 */
kb_code kb_code_of_errno(int error);

/*
 * Takes over `cause` and puts "context: " before its message; code and detail stay. Returns cause
 * unchanged if there is no memory, and if it is the constant of kb_error_nomem().
 */
KB_MUST_USE kb_error *kb_error_wrap(kb_error *cause, const char *format, ...) KB_PRINTF(2, 3);

/* Another one with the same code, message and detail. */
KB_MUST_USE kb_error *kb_error_copy(const kb_error *err);

/* Of one that only passes on what went wrong elsewhere, where it is told of too. Copies are such
 * ones as well. */
void kb_error_set_secondary(kb_error *err);
bool kb_error_is_secondary(const kb_error *err);

/* Appends the detail of another error to that of this one; nothing if there is no memory. */
void kb_error_add_detail_of(kb_error *err, const kb_error *from);

/* Appends a line to the detail. The line is dropped if there is no memory. */
void kb_error_add_detail(kb_error *err, const char *format, ...) KB_PRINTF(2, 3);

#endif
