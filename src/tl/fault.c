/*
 * fault.c: what is said of a mistake in a kernel: which kernel, where it ran, when, at which line,
 * and what was wrong. The kernel ends there; what it issued before is done nevertheless.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tl_private.h"

const char *tl_without_folders(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

kb_error *tl_locate_error(const tl_call *call, kb_error *err)
{
    const tl_context *tl = call->tl;
    kb_time now = kb_sim_now(tl->runner->has.sim);
    kb_pe pe = tl->run.pe;
    return kb_error_wrap(err, "kernel '%s' on %s at %" PRId64 ".%03" PRId64 " ns, %s:%d: %s",
                         tl->run.kernel->name, topo_pe_name(pe).text, now / KB_NS,
                         now % KB_NS / KB_PS, tl_without_folders(call->at.file), call->at.line,
                         call->name);
}

void tl_fail(const tl_call *call, kb_error *err)
{
    tl_context *tl = call->tl;
    tl->failing = err; /* owned by the context, as the kernel may be ended while it waits */
    tl_synchronise(tl);
    err = tl->failing;
    tl->failing = NULL;
    if (tl->error) {
        kb_error_free(err); /* it was stopped already, for another reason */
    } else if (kb_error_code(err) == KB_ERR_FAULT) {
        tl->error = tl_locate_error(call, err);
        tl->over = true;
        tl->stopped = true;
        tl_withdraw_receives(tl);
    } else {
        kb_error_free(tl->failure);
        tl->failure = kb_error_copy(err);
        kb_sim_fail(tl->runner->has.sim, err);
    }
    kb_co_exit(tl->co);
}

static KB_PRINTF(1, 0) kb_error *print_fault(const char *format, va_list args)
{
    kb_text text = KB_TEXT_INIT;
    kb_text_vprintf(&text, format, args);
    kb_error *err =
        text.failed ? kb_error_nomem() : kb_error_new(KB_ERR_FAULT, "%s", kb_text_peek(&text));
    kb_text_fini(&text);
    return err;
}

void tl_fault(const tl_call *call, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    kb_error *err = print_fault(format, args);
    va_end(args);
    tl_fail(call, err);
}

void tl_raise_(tl_context *tl, tl_srcloc at, const char *format, ...)
{
    tl_call call = tl_enter(tl, at, "tl_raise");
    va_list args;
    va_start(args, format);
    kb_error *err = print_fault(format, args);
    va_end(args);
    tl_fail(&call, err);
}

tl_shape_text tl_shape_print(const tl_dims *shape)
{
    tl_shape_text is = {"("};
    size_t length = 1;
    for (int i = 0; i < shape->rank && i < TL_MAX_DIMS; i++)
        length += (size_t)snprintf(is.text + length, sizeof is.text - length, "%s%" PRId64,
                                   i > 0 ? ", " : "", shape->dims[i]);
    snprintf(is.text + length, sizeof is.text - length, ")");
    return is;
}

static __attribute__((noinline)) KB_NORETURN void
fault_dimension(const tl_call *call, const tl_dims *shape, int dimension)
{
    if (shape->dims[dimension] < 0)
        tl_fault(call, "shape %s has a negative dimension", tl_shape_print(shape).text);
    tl_fault(call, "shape %s is too large", tl_shape_print(shape).text);
}

uint64_t tl_check_shape(const tl_call *call, const tl_dims *shape)
{
    /* Sizes in bytes, and distances in memory, are to be small against 2^63. */
    enum { SMALL_BITS = 28, BITS = 2 * SMALL_BITS };
    if (KB_UNLIKELY((unsigned)shape->rank > TL_MAX_DIMS))
        tl_fault(call, "too many dimensions: %d, the maximum is %d", shape->rank, TL_MAX_DIMS);
    uint64_t elements = 1;
    bool empty = false;
    for (int i = 0; i < shape->rank; i++) {
        uint64_t factor = (uint64_t)shape->dims[i];
        empty |= factor == 0;
        factor += factor == 0;
        /* The product of two small ones needs no division. A negative dimension is a large one. */
        if (KB_UNLIKELY((factor | elements) >> SMALL_BITS != 0) &&
            factor > (UINT64_C(1) << BITS) / elements)
            fault_dimension(call, shape, i);
        elements *= factor;
    }
    return empty ? 0 : elements;
}

void tl_check_dtype(const tl_call *call, kb_dtype dtype)
{
    if (!mem_dtype_exists(dtype))
        tl_fault(call, "invalid dtype %d", (int)dtype);
}
