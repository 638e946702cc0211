/*
 * tensor_access.c: what the host does with the contents of tensors: copies, elements, slices, a
 * line to print. Each call finds the box that is meant, changes or reads contents at once, and then
 * has the transfers take their time; calls that show contents wait for theirs to end.
 */
#include "runtime.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static kb_error *check_access(rt_call call, kb_access access)
{
    if (access == KB_TIMED || access == KB_UNTIMED)
        return NULL;
    return kb_error_new(KB_ERR_INPUT,
                        "%s: invalid access mode %d: expected KB_TIMED or "
                        "KB_UNTIMED",
                        rt_calls[call].function, (int)access);
}

static kb_error *enter(kb_context *ctx, rt_call call, kb_access access, kb_tensor handle,
                       rt_tensor **tensor)
{
    KB_TRY(check_access(call, access));
    return rt_enter(ctx, call, handle, tensor);
}

/* ---- Boxes ---- */

/* Axis i of the tensor is axis i + lead of its boxes, which have two at least. */
static uint32_t leading_axes(const rt_tensor *tensor)
{
    return tensor->placement.shape.rank - tensor->shape.rank;
}

static kb_error *element_box(const rt_tensor *tensor, rt_call call, const kb_index *index,
                             mem_box *box)
{
    *box = mem_box_whole(&tensor->placement.shape);
    if (!index || index->rank != tensor->shape.rank)
        return kb_error_new(KB_ERR_FAULT, "%s: the index has %u %s, but tensor '%s' has %u",
                            rt_calls[call].function, index ? index->rank : 0,
                            kb_noun(index ? index->rank : 0, "axis", "axes"), tensor->name,
                            tensor->shape.rank);
    uint32_t lead = leading_axes(tensor);
    for (uint32_t axis = 0; axis < tensor->shape.rank; axis++) {
        if (index->at[axis] >= tensor->shape.dims[axis])
            return kb_error_new(KB_ERR_FAULT,
                                "%s: index %" PRIu64 " of axis %u of tensor '%s' is out of "
                                "range: the size is %" PRIu64,
                                rt_calls[call].function, index->at[axis], axis, tensor->name,
                                tensor->shape.dims[axis]);
        box->start[axis + lead] = index->at[axis];
        box->size[axis + lead] = 1;
    }
    return NULL;
}

static kb_error *slice_box(const rt_tensor *tensor, rt_call call, const kb_slice *slice,
                           mem_box *box)
{
    *box = mem_box_whole(&tensor->placement.shape);
    if (!slice)
        return NULL;
    if (slice->rank > tensor->shape.rank)
        return kb_error_new(KB_ERR_FAULT, "%s: the slice has %u %s, but tensor '%s' has %u",
                            rt_calls[call].function, slice->rank,
                            kb_noun(slice->rank, "axis", "axes"), tensor->name, tensor->shape.rank);
    uint32_t lead = leading_axes(tensor);
    for (uint32_t axis = 0; axis < slice->rank; axis++) {
        uint64_t size = tensor->shape.dims[axis], start = slice->ranges[axis].start;
        uint64_t stop = slice->ranges[axis].stop == KB_END ? size : slice->ranges[axis].stop;
        if (start > stop)
            return kb_error_new(KB_ERR_FAULT,
                                "%s: %" PRIu64 ":%" PRIu64 " of axis %u of tensor '%s' ends before "
                                "it starts",
                                rt_calls[call].function, start, stop, axis, tensor->name);
        if (stop > size)
            return kb_error_new(KB_ERR_FAULT,
                                "%s: %" PRIu64 ":%" PRIu64 " of axis %u of tensor '%s' is out "
                                "of range: the size is %" PRIu64,
                                rt_calls[call].function, start, stop, axis, tensor->name, size);
        box->start[axis + lead] = start;
        box->size[axis + lead] = stop - start;
    }
    return NULL;
}

static kb_error *check_data(const rt_tensor *tensor, rt_call call, const mem_box *box,
                            const void *data, size_t bytes)
{
    uint64_t wanted = mem_box_elements(box) * kb_dtype_bytes(tensor->dtype);
    if (bytes == wanted && (data || bytes == 0))
        return NULL;
    if (bytes == wanted)
        return kb_error_new(KB_ERR_FAULT, "%s: tensor '%s': data is NULL", rt_calls[call].function,
                            tensor->name);
    return kb_error_new(KB_ERR_FAULT,
                        "%s: tensor '%s': %zu byte%s given, but the elements take %" PRIu64,
                        rt_calls[call].function, tensor->name, bytes, kb_plural(bytes), wanted);
}

/* ---- Reading and writing a box ---- */

/* The time of it. Waits if the host is to see what was read. */
static kb_error *spend_time(kb_context *ctx, const rt_tensor *tensor, const mem_box *box, bool read,
                            kb_access access)
{
    if (access == KB_UNTIMED || tensor->on_host)
        return NULL;
    rt_request *request;
    KB_TRY(rt_request_open(ctx, read ? "read" : "write", tensor->name, &request));
    kb_error *err = rt_time_box(tensor, box, read, request);
    rt_request_close(request, NULL);
    if (!err && read)
        err = rt_settle(rt_caller_of(ctx));
    return err;
}

static kb_error *read_box(kb_context *ctx, const rt_tensor *tensor, const mem_box *box,
                          kb_access access, void *data)
{
    KB_TRY(rt_read_box(ctx, tensor, box, data));
    return spend_time(ctx, tensor, box, true, access);
}

kb_error *kb_tensor_to_host(kb_context *ctx, kb_tensor handle, kb_access access, void *data,
                            size_t bytes)
{
    rt_tensor *tensor;
    KB_TRY(enter(ctx, RT_TENSOR_TO_HOST, access, handle, &tensor));
    mem_box box = mem_box_whole(&tensor->placement.shape);
    KB_TRY(check_data(tensor, RT_TENSOR_TO_HOST, &box, data, bytes));
    return read_box(ctx, tensor, &box, access, data);
}

kb_error *kb_tensor_get(kb_context *ctx, kb_tensor handle, kb_access access, const kb_index *index,
                        double *value)
{
    rt_tensor *tensor;
    mem_box box;
    KB_TRY(enter(ctx, RT_TENSOR_GET, access, handle, &tensor));
    KB_TRY(element_box(tensor, RT_TENSOR_GET, index, &box));
    unsigned char element[8];
    kb_dtype dtype = tensor->dtype;
    KB_TRY(read_box(ctx, tensor, &box, access, element));
    *value = mem_number_get(dtype, element);
    return NULL;
}

kb_error *kb_tensor_set(kb_context *ctx, kb_tensor handle, kb_access access, const kb_index *index,
                        double value)
{
    rt_tensor *tensor;
    mem_box box;
    KB_TRY(enter(ctx, RT_TENSOR_SET, access, handle, &tensor));
    KB_TRY(element_box(tensor, RT_TENSOR_SET, index, &box));
    KB_TRY(rt_fill_box(ctx, tensor, &box, value));
    return spend_time(ctx, tensor, &box, false, access);
}

kb_error *kb_tensor_get_slice(kb_context *ctx, kb_tensor handle, kb_access access,
                              const kb_slice *slice, void *data, size_t bytes)
{
    rt_tensor *tensor;
    mem_box box;
    KB_TRY(enter(ctx, RT_TENSOR_GET_SLICE, access, handle, &tensor));
    KB_TRY(slice_box(tensor, RT_TENSOR_GET_SLICE, slice, &box));
    KB_TRY(check_data(tensor, RT_TENSOR_GET_SLICE, &box, data, bytes));
    return read_box(ctx, tensor, &box, access, data);
}

kb_error *kb_tensor_set_slice(kb_context *ctx, kb_tensor handle, kb_access access,
                              const kb_slice *slice, const void *data, size_t bytes)
{
    rt_tensor *tensor;
    mem_box box;
    KB_TRY(enter(ctx, RT_TENSOR_SET_SLICE, access, handle, &tensor));
    KB_TRY(slice_box(tensor, RT_TENSOR_SET_SLICE, slice, &box));
    KB_TRY(check_data(tensor, RT_TENSOR_SET_SLICE, &box, data, bytes));
    KB_TRY(rt_write_box(ctx, tensor, &box, data));
    return spend_time(ctx, tensor, &box, false, access);
}

kb_error *kb_tensor_fill_slice(kb_context *ctx, kb_tensor handle, kb_access access,
                               const kb_slice *slice, double value)
{
    rt_tensor *tensor;
    mem_box box;
    KB_TRY(enter(ctx, RT_TENSOR_FILL_SLICE, access, handle, &tensor));
    KB_TRY(slice_box(tensor, RT_TENSOR_FILL_SLICE, slice, &box));
    KB_TRY(rt_fill_box(ctx, tensor, &box, value));
    return spend_time(ctx, tensor, &box, false, access);
}

/* ---- Copying ---- */

kb_error *rt_check_alike(const rt_tensor *to, const rt_tensor *from)
{
    if (to->dtype == from->dtype && mem_shape_equal(&to->shape, &from->shape))
        return NULL;
    kb_text text = KB_TEXT_INIT;
    rt_tensor_print(from, &text);
    kb_text_puts(&text, " does not fit into ");
    rt_tensor_print(to, &text);
    if (to->dtype != from->dtype)
        kb_text_puts(&text, ": the dtypes differ; kb_convert() converts");
    kb_error *err = kb_error_new(KB_ERR_FAULT, "kb_tensor_copy: %s", kb_text_peek(&text));
    kb_text_fini(&text);
    return err;
}

static void arrived(rt_request *request)
{
    rt_tensor *tensor = rt_table_get(&request->ctx->tensors, request->tensor);
    if (tensor)
        tensor->arriving--;
}

static kb_error *spend_copy_time(kb_context *ctx, rt_tensor *to, const rt_tensor *from)
{
    mem_box whole = mem_box_whole(&to->placement.shape);
    rt_request *request;
    KB_TRY(rt_request_open(ctx, "copy", to->name, &request));
    kb_error *err;
    if (from->on_host)
        err = rt_time_box(to, &whole, false, request);
    else if (to->on_host)
        err = rt_time_box(from, &whole, true, request);
    else
        err = rt_time_copy(to, from, request);
    if (to->on_host) {
        to->arriving++;
        request->tensor = to->id;
        request->on_end = arrived;
    }
    rt_request_close(request, NULL);
    return err;
}

kb_error *kb_tensor_copy(kb_context *ctx, kb_tensor to_handle, kb_tensor from_handle,
                         kb_access access)
{
    rt_tensor *to, *from;
    if (rt_is_recording(ctx) && access == KB_TIMED)
        return rt_record_copy(ctx, to_handle, from_handle, (kb_stream){0});
    KB_TRY(rt_enter(ctx, RT_TENSOR_COPY_TO, to_handle, &to));
    KB_TRY(enter(ctx, RT_TENSOR_COPY_FROM, access, from_handle, &from));
    KB_TRY(rt_enter(ctx, RT_TENSOR_COPY_TO, to_handle, &to)); /* it may have gone meanwhile */
    KB_TRY(rt_check_alike(to, from));
    KB_TRY(rt_copy_contents(ctx, to, from));
    if (access == KB_UNTIMED || to == from || to->bytes == 0 || (to->on_host && from->on_host))
        return NULL;
    return spend_copy_time(ctx, to, from);
}

/* ---- Printing ---- */

typedef struct moments {
    double mean, norm;
} moments;

static moments moments_of(kb_dtype dtype, const unsigned char *data, uint64_t count)
{
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i < count; i++) {
        double value = mem_number_get(dtype, data + i * kb_dtype_bytes(dtype));
        sum += value;
        squares += value * value;
    }
    return (moments){sum / (double)count, sqrt(squares)};
}

/* Reads the contents to see what they are like. */
static kb_error *look(kb_context *ctx, const rt_tensor *tensor, const mem_box *box, moments *m)
{
    unsigned char *data = kb_alloc_array(tensor->bytes, 1);
    if (!data)
        return kb_error_nomem();
    kb_error *err = rt_read_box(ctx, tensor, box, data);
    if (!err)
        *m = moments_of(tensor->dtype, data, tensor->bytes / kb_dtype_bytes(tensor->dtype));
    free(data);
    return err;
}

static kb_error *say(const rt_tensor *tensor, const moments *m, char **out)
{
    kb_text text = KB_TEXT_INIT;
    rt_tensor_print(tensor, &text);
    if (tensor->on_host)
        kb_text_puts(&text, " on the host");
    else
        kb_text_printf(&text, " on sip%u", tensor->sip);
    if (!m)
        kb_text_puts(&text, ", timing only");
    else if (tensor->bytes > 0)
        kb_text_printf(&text, ", mean %g, norm %g", m->mean, m->norm);
    *out = kb_text_take(&text);
    return *out ? NULL : kb_error_nomem();
}

kb_error *kb_tensor_repr(kb_context *ctx, kb_tensor handle, kb_access access, char **out)
{
    rt_tensor *tensor;
    KB_TRY(enter(ctx, RT_TENSOR_REPR, access, handle, &tensor));
    mem_box box = mem_box_whole(&tensor->placement.shape);
    moments m = {0};
    bool has_contents = rt_has_contents(ctx, tensor);
    if (has_contents)
        KB_TRY(look(ctx, tensor, &box, &m));
    /* A worker that is unwound while it waits gives nothing back: so nothing is held here. */
    KB_TRY(spend_time(ctx, tensor, &box, true, access));
    KB_TRY(rt_enter(ctx, RT_TENSOR_REPR, handle, &tensor));
    return say(tensor, has_contents ? &m : NULL, out);
}
