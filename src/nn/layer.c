/* layer.c: checks of tensors, outputs and launches, for all layers. */
#include "layer.h"

#include <inttypes.h>

enum { MAX_TENSORS = 12 }; /* of a launch */

static kb_error *check_dtype(const nn_call *call, const char *what, const char *name,
                             kb_dtype dtype, unsigned dtypes)
{
    if (dtypes & NN_DTYPE(dtype))
        return NULL;
    kb_text list = KB_TEXT_INIT;
    for (unsigned i = 0, left = dtypes; i < KB_DTYPES; i++) {
        if (!(dtypes & NN_DTYPE(i)))
            continue;
        left &= ~NN_DTYPE(i);
        kb_text_printf(&list, "%s%s", kb_dtype_name((kb_dtype)i),
                       left == 0                  ? ""
                       : (left & (left - 1)) == 0 ? " or "
                                                  : ", ");
    }
    kb_error *err =
        list.failed
            ? kb_error_nomem()
            : kb_error_new(KB_ERR_INPUT, "%s: %s: tensor '%s' is %s: expected %s", call->function,
                           what, name, kb_dtype_name(dtype), kb_text_peek(&list));
    kb_text_fini(&list);
    return err;
}

kb_error *nn_check_tensor(nn_call *call, const char *what, kb_tensor tensor, unsigned dtypes,
                          rt_tensor_view *seen)
{
    if (tensor.id == 0)
        return kb_error_new(KB_ERR_INPUT, "%s: %s: no tensor is given", call->function, what);
    kb_error *err = rt_view_tensor(call->ctx, tensor, seen);
    if (err)
        return kb_error_wrap(err, "%s: %s", call->function, what);
    if (seen->on_host)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: %s: tensor '%s' is on the host: copy it to a device first "
                            "(kb_tensor_copy)",
                            call->function, what, seen->name);
    if (!call->has_sip)
        call->sip = seen->sip;
    call->has_sip = true;
    if (seen->sip != call->sip)
        return kb_error_new(KB_ERR_INPUT,
                            "%s: %s: tensor '%s' is on sip%" PRIu32 ": expected sip%" PRIu32,
                            call->function, what, seen->name, seen->sip, call->sip);
    return check_dtype(call, what, seen->name, seen->dtype, dtypes);
}

kb_error *nn_make_view(const nn_call *call, const char *what, kb_tensor tensor, bool by_cube,
                       tp_view *view)
{
    kb_error *err = by_cube ? tp_view_make_by_cube(call->ctx, tensor, view)
                            : tp_view_make(call->ctx, tensor, view);
    return err ? kb_error_wrap(err, "%s: %s", call->function, what) : NULL;
}

kb_error *nn_take_input(nn_call *call, const char *what, kb_tensor tensor, unsigned dtypes,
                        tp_view *view)
{
    rt_tensor_view seen;
    KB_TRY(nn_check_tensor(call, what, tensor, dtypes, &seen));
    if (seen.memory != KB_HBM)
        return kb_error_new(KB_ERR_INPUT, "%s: %s: tensor '%s' is not in HBM", call->function, what,
                            seen.name);
    if (seen.elements == 0)
        return kb_error_new(KB_ERR_INPUT, "%s: %s: tensor '%s' is empty", call->function, what,
                            seen.name);
    return nn_make_view(call, what, tensor, false, view);
}

kb_error *nn_take_vector(nn_call *call, const char *what, kb_tensor tensor, int64_t columns,
                         tp_view *view)
{
    KB_TRY(nn_take_input(call, what, tensor, NN_FLOATS, view));
    if (view->rows == 1 && view->columns == columns)
        return NULL;
    return kb_error_new(KB_ERR_INPUT,
                        "%s: %s: the size is (%" PRId64 ", %" PRId64 "): expected %" PRId64
                        " elements in one row",
                        call->function, what, view->rows, view->columns, columns);
}

kb_error *nn_check_size(const nn_call *call, const char *what, const tp_view *view,
                        const tp_view *expected)
{
    if (view->rows == expected->rows && view->columns == expected->columns)
        return NULL;
    return kb_error_new(
        KB_ERR_INPUT,
        "%s: %s: the size is (%" PRId64 ", %" PRId64 "): expected (%" PRId64 ", %" PRId64 ")",
        call->function, what, view->rows, view->columns, expected->rows, expected->columns);
}

kb_error *nn_check_copies(const nn_call *call, const char *what, const tp_view *view)
{
    kb_machine machine = kb_context_machine(call->ctx);
    if (view->copies == 1 || view->copies == (int64_t)machine.cubes * machine.pes)
        return NULL;
    return kb_error_new(KB_ERR_INPUT,
                        "%s: %s: %" PRId64 " copies: expected one, or one at each of the "
                        "%" PRIu32 " PEs",
                        call->function, what, view->copies, machine.cubes * machine.pes);
}

/* ---- Outputs ---- */

static kb_error *make_output(nn_call *call, const nn_output_spec *spec, kb_tensor *tensor)
{
    static const kb_policy one_pe = {.num_cubes = 1, .num_pes = 1};
    static const kb_policy columns = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    rt_tensor_view like = {.policy = spec->is_by_columns ? columns : one_pe};
    if (spec->like.id != 0)
        KB_TRY(rt_view_tensor(call->ctx, spec->like, &like));
    const kb_tensor_spec made = {.name = spec->name ? spec->name : spec->what,
                                 .dtype = spec->dtype,
                                 .shape = spec->shape,
                                 .policy = &like.policy};
    return tp_make_tensor(call->ctx, call->sip, &made, tensor);
}

kb_error *nn_take_output(nn_call *call, const nn_output_spec *spec, kb_tensor *tensor,
                         nn_output *output, tp_view *view)
{
    *output = (nn_output){.tensor = tensor, .was_given = tensor->id != 0};
    const tp_view expected =
        tp_view_plan(&(kb_machine){.cubes = 1, .pes = 1}, &spec->shape, spec->dtype, NULL);
    if (output->was_given) {
        KB_TRY(nn_take_input(call, spec->what, *tensor, spec->dtypes, view));
        return nn_check_size(call, spec->what, view, &expected);
    }
    KB_TRY(make_output(call, spec, tensor));
    return tp_view_make(call->ctx, *tensor, view);
}

kb_error *nn_take_rows_output(nn_call *call, const nn_output_spec *spec, int64_t rows,
                              kb_tensor *tensor, nn_output *output, tp_view *view)
{
    if (tensor->id == 0)
        return nn_take_output(call, spec, tensor, output, view);
    *output = (nn_output){.tensor = tensor, .was_given = true};
    KB_TRY(nn_take_input(call, spec->what, *tensor, spec->dtypes, view));
    if (view->rows * view->columns != rows)
        return kb_error_new(
            KB_ERR_INPUT, "%s: %s: %" PRId64 " elements: expected one for each of %" PRId64 " rows",
            call->function, spec->what, view->rows * view->columns, rows);
    return nn_check_copies(call, spec->what, view);
}

kb_error *nn_end_outputs(const nn_call *call, kb_error *err, nn_output *outputs, size_t count)
{
    for (size_t i = 0; err && i < count; i++)
        if (outputs[i].tensor && !outputs[i].was_given && outputs[i].tensor->id != 0) {
            kb_error_free(kb_tensor_free(call->ctx, *outputs[i].tensor));
            *outputs[i].tensor = (kb_tensor){0};
        }
    return err;
}

kb_shape nn_shape_of_rows(const kb_shape *shape)
{
    kb_shape rows = *shape;
    if (rows.rank < 2)
        return KB_SHAPE(1);
    rows.rank--;
    return rows;
}

/* ---- Launching ---- */

kb_error *nn_launch(const nn_call *call, const nn_launch_spec *spec)
{
    tp_state *tp;
    kb_tensor all_pes;
    const kb_kernel *kernel;
    kb_arg args[MAX_TENSORS + 1];
    KB_ASSERT(spec->tensor_count <= MAX_TENSORS);
    KB_TRY(tp_get_state(call->ctx, &tp));
    KB_TRY(tp_get_all_pes_tensor(tp, call->sip, &all_pes));
    KB_TRY(nn_get_kernel(call->ctx, spec->kernel, spec->plan, spec->plan_bytes, &kernel));
    for (size_t i = 0; i < spec->tensor_count; i++)
        args[i] = spec->tensors[i].id != 0 ? kb_arg_tensor(spec->tensors[i]) : kb_arg_integer(0);
    args[spec->tensor_count] = kb_arg_tensor(all_pes);
    const kb_launch_options options = {.name = spec->name,
                                       .request = spec->request,
                                       .queues = spec->queues,
                                       .stream = spec->stream};
    return kb_launch_args(call->ctx, &options, kernel, args, spec->tensor_count + 1);
}
