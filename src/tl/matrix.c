/*
 * matrix.c: products of matrices: tl_dot, a command of the matrix engine, and tl_composite, which
 * the scheduler makes many commands of.
 *
 * A product that accumulates writes over what it adds to. So it begins after what reads that: the
 * pe_cpu waits for readers, of which there are hardly ever any.
 */
#include "tl_private.h"

static void check_matrices(const tl_call *call, const tl_dims *a, const tl_dims *b)
{
    if (a->rank != 2 || b->rank != 2 || a->dims[1] != b->dims[0])
        tl_fault(call, "shapes %s and %s: expected matrices (m, k) and (k, n)",
                 tl_shape_print(a).text, tl_shape_print(b).text);
}

/* ---- Of the matrix engine ---------------------------------------------------------------- */

/* Without acc. */
static kb_dtype dot_dtype(kb_dtype a, kb_dtype b, bool out_f32)
{
    if (mem_is_integer(a) && mem_is_integer(b))
        return KB_I32;
    return out_f32 || mem_is_storage(a) || mem_is_storage(b) ? KB_F32 : tl_dtypes_meet(a, b);
}

static kb_error *bind_dot(tl_details *details)
{
    tl_context *tl = details->tl;
    data_store *store = tl->runner->has.store;
    data_value *inputs[3] = {NULL, NULL, NULL};
    kb_error *err = NULL;
    for (uint32_t i = 0; i < details->input_count && !err; i++)
        err = tl_operand_data(tl, &details->inputs[i], &inputs[i]);
    if (!err)
        err = data_dot(store, inputs[0], inputs[1], inputs[2], details->result->dtype,
                       &details->result->data);
    for (int i = 0; i < 3; i++)
        data_release(store, inputs[i]);
    return err;
}

/* The pe_cpu waits for what reads the value. */
static void await_readers(const tl_call *call, const tl_value *value)
{
    tl_context *tl = call->tl;
    kb_time asked = tl_clock(tl);
    while (value->readers > 0) {
        tl_synchronise(tl);
        if (value->readers > 0)
            tl_wait_for_progress(call, KB_FOREVER);
    }
    if (tl->cpu)
        tl->cpu->clock = kb_max(tl->cpu->clock, value->read_until);
    tl_explain_clock(tl, asked, KB_REASON_ORDER, value->read_by);
}

/* What is given as .acc, ready to be written over. */
static tl_handle *take_acc(const tl_call *call, tl_tensor given, const tl_operand *inputs,
                           const tl_dims *shape, kb_dtype dtype)
{
    const tl_handle *acc = tl_handle_find(call, given);
    if (!acc->value)
        tl_fault(call, "acc is a memory reference: load it first");
    if (!tl_same_shape(&acc->shape, shape))
        tl_fault(call, "acc has shape %s, the product %s", tl_shape_print(&acc->shape).text,
                 tl_shape_print(shape).text);
    if (acc->dtype != dtype && !(acc->dtype == KB_F32 && !mem_is_integer(dtype)))
        tl_fault(call, "acc is %s, the product %s", kb_dtype_name(acc->dtype),
                 kb_dtype_name(dtype));
    if (acc->value == inputs[0].value || acc->value == inputs[1].value)
        tl_fault(call, "acc is also an operand of the product");
    if (acc->value->handles > 1)
        tl_fault(call, "acc shares memory with a value made by tl_reshape or tl_slice: free "
                       "that first");
    if (tl_elements(shape) * kb_dtype_bytes(acc->dtype) != acc->value->bytes)
        tl_fault(call, "acc is a slice of a larger value: copy it first, for example with "
                       "tl_add(acc, 0)");
    await_readers(call, acc->value);
    return tl_handle_find(call, given);
}

/* The result is at `result`, which the handle takes over. */
static void issue_dot(const tl_call *call, const tl_operand *inputs, uint32_t count,
                      tl_value *result, const tl_dims *shape)
{
    const topo_pe_params *params = call->tl->runner->params;
    uint64_t m = (uint64_t)shape->dims[0], n = (uint64_t)shape->dims[1];
    uint64_t k = (uint64_t)inputs[0].shape.dims[1];
    tl_work is = {.bind = bind_dot, .input_count = count, .shape = *shape};
    for (uint32_t i = 0; i < count; i++)
        is.inputs[i] = inputs[i];
    is.unit = KB_UNIT_GEMM;
    is.tcm_writes = result->bytes;
    is.flops = pe_gemm_flops(m, k, n);
    if (m > 0 && k > 0 && n > 0) {
        pe_gemm_time time = pe_gemm_time_of(params, m, k, n);
        is.time = time.occupied;
        is.tail = time.fill;
        is.tcm_reads = pe_gemm_reads(params, m, k, n, (uint32_t)kb_dtype_bytes(inputs[0].dtype),
                                     (uint32_t)kb_dtype_bytes(inputs[1].dtype));
    }
    if (count == 3)
        is.tcm_reads += result->bytes;
    tl_issue_engine(call, &is, result, NULL);
}

tl_tensor tl_dot_(tl_context *tl, tl_srcloc at, tl_tensor a, tl_dot_options options)
{
    tl_call call = tl_enter(tl, at, "tl_dot");
    tl_operand inputs[3];
    inputs[0] = tl_take(&call, a);
    inputs[1] = tl_take(&call, options.b);
    check_matrices(&call, &inputs[0].shape, &inputs[1].shape);
    tl_dims shape = {.rank = 2, .dims = {inputs[0].shape.dims[0], inputs[1].shape.dims[1]}};
    (void)tl_check_shape(&call, &shape);
    kb_dtype dtype = dot_dtype(inputs[0].dtype, inputs[1].dtype, options.out_f32);
    if (options.acc.id == 0) {
        tl_value *result = tl_value_new(&call, dtype, &shape);
        issue_dot(&call, inputs, 2, result, &shape);
        tl_end_call(tl);
        return tl_handle_of(&call, result, &shape);
    }
    tl_handle *acc = take_acc(&call, options.acc, inputs, &shape, dtype);
    uint32_t scope = acc->scope;
    inputs[2] = (tl_operand){
        .value = acc->value, .dtype = acc->dtype, .shape = shape, .elements = tl_elements(&shape)};
    tl_value *result = tl_value_in_place_of(&call, acc->value);
    issue_dot(&call, inputs, 3, result, &shape);
    tl_end_call(tl);
    tl_tensor sum = tl_handle_of(&call, result, &shape); /* not in the slot of acc */
    tl_handle_drop(tl, tl_handle_find(&call, options.acc), (tl_end){"as .acc of tl_dot", at});
    tl_handle_move(tl, tl_handle_find(&call, sum), scope);
    return sum;
}

/* ---- Of the scheduler -------------------------------------------------------------------- */

/* a or b: what the value has, or what is in memory now. To be released. */
static kb_error *factor(tl_details *details, uint32_t which, data_value **data)
{
    tl_context *tl = details->tl;
    const tl_operand *is = &details->inputs[which];
    if (is->value)
        return tl_operand_data(tl, is, data);
    const pe_rects *rects = &details->rects[which];
    data_source source = {.dtype = is->dtype,
                          .shape = tl_shape_of(&is->shape),
                          .row_bytes = tl_row_bytes(&is->shape, is->dtype),
                          .rects = rects->items,
                          .rect_count = rects->count};
    return data_read(tl->runner->has.store, &source, data);
}

static kb_error *bind_composite(tl_details *details)
{
    data_store *store = details->tl->runner->has.store;
    data_value *a = NULL, *b = NULL;
    kb_error *err = factor(details, 0, &a);
    if (!err)
        err = factor(details, 1, &b);
    if (!err)
        err = data_dot(store, a, b, NULL, details->inputs[2].dtype, &details->product);
    data_release(store, b);
    data_release(store, a);
    return err;
}

static kb_error *write_product(tl_command *command)
{
    const tl_details *details = command->details;
    const pe_rects *rects = &details->rects[2];
    if (!details->product)
        return NULL; /* a factor was never there */
    return data_write(command->tl->runner->has.store, rects->items, rects->count,
                      tl_row_bytes(&details->shape, details->inputs[2].dtype), details->product,
                      NULL);
}

/* A matrix of the product: a value, or a place, which is not loaded. */
static tl_operand take_matrix(const tl_call *call, tl_tensor given, int which, tl_point *after)
{
    const tl_handle *handle = tl_handle_find(call, given);
    *after = tl_join(call, *after, handle->value ? 0 : handle->after);
    if (!handle->value && which == 2)
        tl_check_apart(call, handle);
    if (!handle->value)
        tl_resolve(call, handle, NULL, which, true);
    if (!handle->value)
        *after = tl_after_conflicts(call, &call->tl->rects[which], which == 2, *after);
    return (tl_operand){.value = handle->value,
                        .dtype = handle->dtype,
                        .shape = handle->shape,
                        .elements = tl_elements(&handle->shape),
                        .first = handle->first};
}

/* For the log: where the matrix is, if it is in memory. */
static void note_matrix(const tl_call *call, tl_command *command, tl_tensor given, bool write,
                        pe_matrix *side)
{
    const tl_handle *place = tl_handle_find(call, given);
    side->access = tl_note_access(call, command, place, write);
    side->row_stride = (uint64_t)place->strides.dims[0] * side->element_bytes;
    side->column_stride = (uint64_t)place->strides.dims[1] * side->element_bytes;
}

static void check_product(const tl_call *call, const tl_operand matrices[TL_MATRICES])
{
    const tl_operand *a = &matrices[0], *b = &matrices[1], *out = &matrices[2];
    check_matrices(call, &a->shape, &b->shape);
    tl_dims shape = {.rank = 2, .dims = {a->shape.dims[0], b->shape.dims[1]}};
    if (out->value)
        tl_fault(call, "out must be a tl_ref: the result is written to memory");
    if (!tl_same_shape(&out->shape, &shape))
        tl_fault(call, "out has shape %s, the product %s", tl_shape_print(&out->shape).text,
                 tl_shape_print(&shape).text);
    bool integers = mem_is_integer(a->dtype) && mem_is_integer(b->dtype);
    if (integers ? out->dtype != KB_I32 : mem_is_integer(out->dtype))
        tl_fault(call, "%s times %s cannot be %s", kb_dtype_name(a->dtype), kb_dtype_name(b->dtype),
                 kb_dtype_name(out->dtype));
    if (a->shape.dims[1] == 0 && tl_elements(&shape) > 0)
        tl_fault(call, "shapes %s and %s: k is 0", tl_shape_print(&a->shape).text,
                 tl_shape_print(&b->shape).text);
}

tl_future tl_composite_(tl_context *tl, tl_srcloc at, tl_composite_op op, tl_tensor a, tl_tensor b,
                        tl_tensor out)
{
    tl_call call = tl_enter(tl, at, "tl_composite");
    if (op != TL_GEMM)
        tl_fault(&call, "invalid composite operation %d", (int)op);
    tl_point after = 0; /* what refs wait for */
    tl_operand matrices[TL_MATRICES] = {take_matrix(&call, a, 0, &after),
                                        take_matrix(&call, b, 1, &after),
                                        take_matrix(&call, out, 2, &after)};
    check_product(&call, matrices);
    const tl_dims *shape = &matrices[2].shape;
    if (tl_elements(shape) == 0)
        return (tl_future){0};

    tl_command *command = tl_command_new(&call, matrices, TL_MATRICES, NULL, shape, false);
    if (command->details)
        command->details->bind = bind_composite;
    command->conclude = tl->runner->has.timing_only ? NULL : write_product;
    pe_product what = {.m = (uint64_t)shape->dims[0],
                       .k = (uint64_t)matrices[0].shape.dims[1],
                       .n = (uint64_t)shape->dims[1],
                       .op.name = "gemm"};
    what.op.flops = pe_gemm_flops(what.m, what.k, what.n);
    pe_matrix *const sides[TL_MATRICES] = {&what.a, &what.b, &what.c};
    const tl_tensor given[TL_MATRICES] = {a, b, out};
    after = tl_join(&call, after, command->after);
    tl_begin_open_accesses(tl);
    for (int i = 0; i < TL_MATRICES; i++) {
        sides[i]->element_bytes = (uint32_t)kb_dtype_bytes(matrices[i].dtype);
        if (matrices[i].value)
            continue;
        tl_record_access(
            &call,
            &(tl_touch){.rects = &tl->rects[i], .writes = i == 2, .open = true, .after = after});
        const pe_rects *rects = tl_rects_of(command, i);
        sides[i]->rects = rects->items;
        sides[i]->rect_count = rects->count;
        note_matrix(&call, command, given[i], i == 2, sides[i]);
    }
    pe_op done = tl_issue_product(&call, command, &what);
    tl_name_open_accesses(&call, done);
    return (tl_future){.id = done, .kernel = tl->kernel, .after = after};
}
