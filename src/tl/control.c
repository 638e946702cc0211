/*
 * control.c: what a kernel asks and waits for: its place in the grid, the time, values, futures.
 * Asking takes no time, and neither does looking at a number that is there.
 */
#include <inttypes.h>

#include "tl_private.h"

static void check_grid_axis(const tl_call *call, int axis)
{
    if (axis != 0 && axis != 1)
        tl_fault(call, "axis %d; there are 0, PEs of a cube, and 1, cubes of a SIP", axis);
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
    tl_wait_for(&call, handle->value ? handle->value->made : handle->filled);
}

void tl_wait_future_(tl_context *tl, tl_place at, tl_future future)
{
    tl_call call = tl_enter(tl, at, "tl_wait");
    if (future.id == 0)
        return;
    if (future.kernel != tl->kernel)
        tl_fault(&call, "a future of another kernel, or of another PE");
    tl_wait_for(&call, future.id);
}

double tl_item_(tl_context *tl, tl_place at, tl_tensor x)
{
    tl_call call = tl_enter(tl, at, "tl_item");
    tl_operand is = tl_take(&call, x);
    if (!is.value)
        return is.number;
    if (tl_elements(&is.shape) != 1)
        tl_fault(&call, "shape %s; it has to be one element", tl_shape_print(&is.shape).text);
    tl_wait_for(&call, is.value->made);
    if (!is.value->data && tl->runner->has.timing_only)
        tl_fault(&call, "this kernel asks for data, and the run has none: it is timing-only");
    if (!is.value->data)
        tl_fault(&call, "the value comes from a kernel that was stopped before it was there");
    double number = 0;
    tl_check(&call, data_item(tl->runner->has.store, is.value->data, 0, &number));
    tl_end_call(tl);
    return number;
}
