/*
 * control.c: what a kernel asks and waits for: its place in the grid, the time, values, futures.
 * Asking takes no time, and neither does looking at a number that is there.
 */
#include <inttypes.h>

#include "tl_private.h"

static void check_grid_axis(const tl_call *call, int axis)
{
    if (axis != 0 && axis != 1)
        tl_fault(call, "invalid axis %d: expected 0 (PEs of a cube) or 1 (cubes of a SIP)", axis);
}

int64_t tl_program_id_(tl_context *tl, tl_srcloc at, int axis)
{
    tl_call call = tl_enter(tl, at, "tl_program_id");
    check_grid_axis(&call, axis);
    return axis == 0 ? tl->run.pe.pe : tl->run.pe.cube;
}

int64_t tl_num_programs_(tl_context *tl, tl_srcloc at, int axis)
{
    tl_call call = tl_enter(tl, at, "tl_num_programs");
    check_grid_axis(&call, axis);
    return tl->run.programs[axis];
}

void *tl_user_(const tl_context *tl)
{
    return tl->run.kernel->user;
}

kb_pe tl_pe(const tl_context *tl)
{
    return tl->run.pe;
}

int64_t tl_programs(const tl_context *tl, int axis)
{
    return tl->run.programs[axis];
}

kb_time tl_now_(const tl_context *tl)
{
    return tl_clock(tl);
}

void tl_wait_tensor_(tl_context *tl, tl_srcloc at, tl_tensor x)
{
    tl_call call = tl_enter(tl, at, "tl_wait");
    if (tl_is_number(x))
        return;
    const tl_handle *handle = tl_handle_find(&call, x);
    tl_point after = handle->value ? handle->value->after : handle->after;
    if (handle->value)
        tl_wait_for_value(&call, handle->value);
    else
        tl_wait_for(&call, handle->filled);
    tl_acquire(&call, after);
}

void tl_wait_future_(tl_context *tl, tl_srcloc at, tl_future future)
{
    tl_call call = tl_enter(tl, at, "tl_wait");
    if (future.id == 0)
        return;
    if (future.kernel != tl->kernel)
        tl_fault(&call, "the future belongs to another kernel or PE");
    tl_wait_for(&call, future.id);
    tl_acquire(&call, future.after);
    tl_close_accesses(tl, future.id);
}

/* ---- Numbers ---- */

/* Waits until the numbers are there. False if they never will be, because the run has no data. */
static bool wait_for_data(const tl_call *call, const tl_value *value)
{
    tl_wait_for_value(call, value);
    tl_acquire(call, value->after);
    if (!value->data && !call->tl->runner->has.timing_only)
        tl_fault(call, "the value was never computed: its kernel was stopped");
    return value->data;
}

static void read_number(const tl_call *call, const tl_operand *is, int64_t index, double *number)
{
    tl_check(call, data_item(call->tl->runner->has.store, is->value->data,
                             is->first + (uint64_t)index, number));
}

/* False if it has no number because the run has no data. */
static bool read_item(const tl_call *call, tl_tensor x, double *number)
{
    tl_operand is = tl_take(call, x);
    *number = is.number;
    if (!is.value)
        return true;
    if (tl_elements(&is.shape) != 1)
        tl_fault(call, "shape %s; expected a single element", tl_shape_print(&is.shape).text);
    bool is_known = wait_for_data(call, is.value);
    if (is_known)
        read_number(call, &is, 0, number);
    tl_end_call(call->tl);
    return is_known;
}

double tl_item_(tl_context *tl, tl_srcloc at, tl_tensor x)
{
    tl_call call = tl_enter(tl, at, "tl_item");
    double number;
    if (!read_item(&call, x, &number))
        tl_fault(&call, "the kernel reads data, but the run is timing-only; tl_item_or(x, "
                        "stand_in) gives such a run a number to go on with, and an index tensor "
                        "(kb_tensor_spec.is_index) has contents in every run");
    return number;
}

void tl_items_(tl_context *tl, tl_srcloc at, tl_tensor x, int64_t *numbers, int64_t count)
{
    tl_call call = tl_enter(tl, at, "tl_items");
    tl_operand is = tl_take(&call, x);
    if (!is.value || !mem_is_integer(is.dtype))
        tl_fault(&call, "expected a tensor of integers");
    if ((int64_t)tl_elements(&is.shape) != count)
        tl_fault(&call, "shape %s; expected %" PRId64 " elements", tl_shape_print(&is.shape).text,
                 count);
    if (!wait_for_data(&call, is.value))
        tl_fault(&call, "the kernel reads data, but the run is timing-only; an index tensor "
                        "(kb_tensor_spec.is_index) has contents in every run");
    for (int64_t i = 0; i < count; i++) {
        double number;
        read_number(&call, &is, i, &number);
        numbers[i] = (int64_t)number;
    }
    tl_end_call(tl);
}

bool tl_read_value(tl_context *tl, tl_srcloc at, tl_tensor x, void *data)
{
    tl_call call = tl_enter(tl, at, "tl_data");
    tl_operand is = tl_take(&call, x);
    if (!is.value)
        tl_fault(&call, "a plain number has no data");
    bool is_known = wait_for_data(&call, is.value);
    if (is_known) {
        const void *bytes;
        size_t each = kb_dtype_bytes(is.dtype);
        tl_check(&call, data_bytes(tl->runner->has.store, is.value->data, &bytes));
        memcpy(data, (const char *)bytes + is.first * each, tl_elements(&is.shape) * each);
    }
    tl_end_call(tl);
    return is_known;
}

double tl_item_or_(tl_context *tl, tl_srcloc at, tl_tensor x, double stand_in)
{
    tl_call call = tl_enter(tl, at, "tl_item_or");
    double number;
    if (read_item(&call, x, &number))
        return number;
    tl_stand_ins *used = &tl->runner->stand_ins;
    if (used->count++ == 0)
        used->first = at;
    return stand_in;
}
