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

int64_t tl_program_id_(tl_context *tl, tl_place at, int axis)
{
    tl_call call = tl_enter(tl, at, "tl_program_id");
    check_grid_axis(&call, axis);
    return axis == 0 ? tl->run.pe.pe : tl->run.pe.cube;
}

int64_t tl_num_programs_(tl_context *tl, tl_place at, int axis)
{
    tl_call call = tl_enter(tl, at, "tl_num_programs");
    check_grid_axis(&call, axis);
    return tl->run.programs[axis];
}

void *tl_user_(const tl_context *tl)
{
    return tl->run.kernel->user;
}

kb_time tl_now_(const tl_context *tl)
{
    return kb_sim_now(tl->runner->has.sim);
}

void tl_wait_tensor_(tl_context *tl, tl_place at, tl_tensor x)
{
    tl_call call = tl_enter(tl, at, "tl_wait");
    if (tl_is_number(x))
        return;
    const tl_handle *handle = tl_handle_find(&call, x);
    tl_point after = handle->value ? handle->value->after : handle->after;
    tl_wait_for(&call, handle->value ? handle->value->made : handle->filled);
    tl_acquire(&call, after);
}

void tl_wait_future_(tl_context *tl, tl_place at, tl_future future)
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

/* Waits for the value. False if it has no number because the run has no data. */
static bool read_item(const tl_call *call, tl_tensor x, double *number)
{
    tl_context *tl = call->tl;
    tl_operand is = tl_take(call, x);
    *number = is.number;
    if (!is.value)
        return true;
    if (tl_elements(&is.shape) != 1)
        tl_fault(call, "shape %s; expected a single element", tl_shape_print(&is.shape).text);
    tl_wait_for(call, is.value->made);
    tl_acquire(call, is.value->after);
    bool is_known = is.value->data;
    if (!is_known && !tl->runner->has.timing_only)
        tl_fault(call, "the value was never computed: its kernel was stopped");
    if (is_known)
        tl_check(call, data_item(tl->runner->has.store, is.value->data, is.first, number));
    tl_end_call(tl);
    return is_known;
}

double tl_item_(tl_context *tl, tl_place at, tl_tensor x)
{
    tl_call call = tl_enter(tl, at, "tl_item");
    double number;
    if (!read_item(&call, x, &number))
        tl_fault(&call, "the kernel reads data, but the run is timing-only; tl_item_or(x, "
                        "stand_in) gives such a run a number to go on with");
    return number;
}

double tl_item_or_(tl_context *tl, tl_place at, tl_tensor x, double stand_in)
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
