/*
 * foreign.h: a kernel in another language, as far as the simulator sees it: frames that each have
 * to be left once, the innermost first, and operations that are made in tl_try(). An error that
 * tl_try() returns is an exception: every frame passes it on to its caller.
 *
 * Kernels must not use the assertions of cmocka, as these leave the stack: what happens is counted
 * and checked after the run.
 */
#ifndef TESTS_TL_FOREIGN_H
#define TESTS_TL_FOREIGN_H

#include "support/expect.h"

#include <kernbench/tl.h>

/* A kernel on a PE. */
typedef struct foreign {
    bool bare; /* no tl_try(): operations end the kernel, and skip its frames */
    uint32_t depth, entered, left;
    uint32_t skipped; /* frames that were still there when one around them was left */
    uint32_t errors;  /* that tl_try() returned */
    kb_code code;     /* of the first one */
    char message[512];
    uint32_t different; /* later ones that were not the same */
} foreign;

typedef void foreign_op(tl_context *tl, void *arg);

static inline uint32_t foreign_enter(foreign *f)
{
    f->entered++;
    return ++f->depth;
}

static inline void foreign_leave(foreign *f, uint32_t depth)
{
    if (f->depth != depth)
        f->skipped += f->depth - depth;
    f->depth = depth - 1;
    f->left++;
}

static inline void foreign_note(foreign *f, kb_error *err)
{
    if (f->errors++ == 0) {
        f->code = kb_error_code(err);
        snprintf(f->message, sizeof f->message, "%s", kb_error_message(err));
    } else if (f->code != kb_error_code(err) ||
               strncmp(f->message, kb_error_message(err), sizeof f->message - 1) != 0) {
        f->different++;
    }
    kb_error_free(err);
}

/* Makes the operation in a frame of its own. False: an exception is on its way. */
static inline bool foreign_call(foreign *f, tl_context *tl, foreign_op *op, void *arg)
{
    uint32_t depth = foreign_enter(f);
    kb_error *err = NULL;
    if (f->bare)
        op(tl, arg);
    else
        err = tl_try(tl, op, arg);
    if (err)
        foreign_note(f, err);
    foreign_leave(f, depth);
    return !err;
}

static inline void expect_balanced(const foreign *f)
{
    assert_int_equal(f->depth, 0);
    assert_int_equal(f->entered, f->left);
    assert_int_equal(f->skipped, 0);
    assert_int_equal(f->different, 0);
}

#endif
