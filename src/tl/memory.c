/*
 * memory.c: load, store and ref: what a kernel has in virtual memory.
 *
 * Addresses are translated when a command is issued; memory is read or changed when it begins. A
 * mask of numbers alone leaves elements out of what is translated and moved. Any other is not known
 * yet: all is moved, and the mask decides what becomes of it.
 */
#include "tl_private.h"

/* The distances of elements that are packed row by row. */
static tl_dims packed(const tl_dims *shape)
{
    tl_dims strides;
    strides.rank = shape->rank;
    int64_t stride = 1;
    for (int i = shape->rank; i-- > 0;) {
        strides.dims[i] = stride;
        stride *= shape->dims[i] > 0 ? shape->dims[i] : 1;
    }
    return strides;
}

/* A place that a call names, if it can be one: not all of it is set, as it is large. */
static void make_place(const tl_call *call, tl_ptr ptr, const tl_dims *shape,
                       const tl_dims *strides, kb_dtype dtype, tl_handle *place)
{
    tl_check_dtype(call, dtype);
    (void)tl_check_shape(call, shape);
    place->value = NULL;
    place->ptr = ptr;
    place->shape = *shape;
    place->dtype = dtype;
    place->filled = 0;
    place->after = 0;
    place->reinterpret = false;
    if (strides->rank == 0) {
        place->strides = packed(shape);
        return;
    }
    if (strides->rank != shape->rank)
        tl_fault(call, "%d strides for shape %s", strides->rank, tl_shape_print(shape).text);
    for (int i = 0; i < strides->rank; i++)
        if (strides->dims[i] < 0)
            tl_fault(call, "strides %s: none may be negative", tl_shape_print(strides).text);
    place->strides = *strides;
}

uint64_t tl_row_bytes(const tl_dims *shape, kb_dtype dtype)
{
    uint64_t columns = shape->rank > 0 ? (uint64_t)shape->dims[shape->rank - 1] : 1;
    return columns * kb_dtype_bytes(dtype);
}

/* What is not contiguous along its last axis moves as rows of one element. */
static bool has_short_rows(const tl_handle *place)
{
    int last = place->shape.rank - 1;
    return last >= 0 && place->strides.dims[last] != 1 && place->shape.dims[last] > 1;
}

static uint64_t place_row_bytes(const tl_handle *place)
{
    return has_short_rows(place) ? kb_dtype_bytes(place->dtype)
                                 : tl_row_bytes(&place->shape, place->dtype);
}

/* Rows of what is loaded or stored; of a matrix they stay what they are. */
static void add_axis_of_one(pe_region *region)
{
    region->dims[region->rank] = 1;
    region->strides[region->rank++] = 1;
}

static void resolve(const tl_call *call, const tl_handle *place, data_value *mask, int which,
                    bool as_matrix)
{
    tl_context *tl = call->tl;
    const tl_runner_options *has = &tl->runner->has;
    pe_region region = {.va = (uint64_t)place->ptr,
                        .element_bytes = (uint32_t)kb_dtype_bytes(place->dtype),
                        .rank = (uint32_t)place->shape.rank};
    for (int i = 0; i < place->shape.rank; i++) {
        region.dims[i] = (uint64_t)place->shape.dims[i];
        region.strides[i] = (uint64_t)place->strides.dims[i];
    }
    region.dtype = place->dtype;
    region.reinterpret = place->reinterpret;
    _Static_assert((int)TL_MAX_DIMS < (int)KB_MAX_DIMS, "there is room for one more axis");
    if (!as_matrix && has_short_rows(place))
        add_axis_of_one(&region);
    region.is_index = &tl->is_index;
    const void *bytes = NULL;
    if (mask)
        tl_check(call, data_bytes(has->store, mask, &bytes));
    region.mask = bytes;
    tl_check(call, pe_region_resolve(has->mmus[tl->run.pe.sip], has->memories, tl->run.pe,
                                     "the MMU", &region, &tl->rects[which]));
}

/* The same for elements next to each other along one axis: most are where others were lately. */
static void resolve_run(const tl_call *call, const tl_handle *place, int which)
{
    tl_context *tl = call->tl;
    const mem_mmu *mmu = tl->runner->has.mmus[tl->run.pe.sip];
    pe_region run;
    run.va = (uint64_t)place->ptr;
    run.element_bytes = (uint32_t)kb_dtype_bytes(place->dtype);
    run.dims[0] = (uint64_t)place->shape.dims[0];
    run.dtype = place->dtype;
    run.reinterpret = place->reinterpret;
    run.is_index = &tl->is_index;
    if (!kb_vec_reserve(&tl->rects[which], 1))
        tl_fail(call, kb_error_nomem());
    if (pe_translations_find(&tl->translations, mmu, &run, &tl->rects[which].items[0])) {
        tl->rects[which].count = 1;
        return;
    }
    resolve(call, place, NULL, which, false);
    if (tl->rects[which].count == 1)
        pe_translations_note(&tl->translations, mmu, tl->run.pe, run.va);
}

void tl_resolve(const tl_call *call, const tl_handle *place, data_value *mask, int which,
                bool as_matrix)
{
    call->tl->rects[which].count = 0;
    call->tl->is_index = false;
    bool is_run = place->shape.rank == 1 && place->strides.dims[0] == 1 && !mask;
    if (is_run && place->shape.dims[0] > 0 && place->shape.dims[0] <= INT32_MAX)
        resolve_run(call, place, which);
    else
        resolve(call, place, mask, which, as_matrix);
}

const pe_rects *tl_rects_of(tl_command *command, int which)
{
    tl_context *tl = command->tl;
    tl_details *details = command->details;
    if (!details)
        return &tl->rects[which];
    details->rects[which] = tl->rects[which];
    tl->rects[which] = (pe_rects){0};
    return &details->rects[which];
}

static pe_op issue_move(const tl_call *call, tl_command *command, kb_unit unit, const char *name)
{
    const pe_rects *rects = tl_rects_of(command, 0);
    pe_command what;
    tl_describe_move(command, unit, name, &what);
    what.rects = rects->items;
    what.rect_count = rects->count;
    return tl_issue(call, command, &what);
}

/* ---- Masks ---- */

/* A byte for each element of the shape: whether the mask is not 0. To be released. */
static kb_error *expand(tl_context *tl, const tl_operand *mask, const tl_dims *shape,
                        data_value **expanded)
{
    data_store *store = tl->runner->has.store;
    kb_shape full = tl_shape_of(shape);
    data_value *inputs[2] = {NULL, NULL}; /* the mask, and zeros to repeat it by */
    kb_error *err = tl_operand_data(tl, mask, &inputs[0]);
    if (!err)
        err = data_full(store, mask->dtype, &full, 0, &inputs[1]);
    if (!err)
        err = data_apply(store, DATA_NE, KB_I8, &full, inputs, 2, 0, expanded);
    data_release(store, inputs[1]);
    data_release(store, inputs[0]);
    return err;
}

/* What is given as .mask; false if nothing is. */
static bool take_mask(const tl_call *call, tl_tensor given, const tl_dims *shape, tl_operand *mask)
{
    if (given.id == 0)
        return false;
    *mask = tl_take(call, given);
    tl_dims both;
    if (!tl_broadcast(&mask->shape, shape, &both) || !tl_same_shape(&both, shape))
        tl_fault(call, "a mask of shape %s for shape %s", tl_shape_print(&mask->shape).text,
                 tl_shape_print(shape).text);
    if (mem_is_storage(mask->dtype))
        tl_fault(call, "a mask of %s: cast it first", kb_dtype_name(mask->dtype));
    return true;
}

/* Translates what the mask leaves; all of it if the mask is NULL or not known yet. */
static void resolve_masked(const tl_call *call, const tl_handle *place, const tl_operand *mask)
{
    tl_context *tl = call->tl;
    if (!mask || !tl_is_structural(mask)) {
        tl_resolve(call, place, NULL, 0, false);
        return;
    }
    /* Owned by the context, as the kernel may end in there. */
    tl_check(call, expand(tl, mask, &place->shape, &tl->mask));
    tl_resolve(call, place, tl->mask, 0, false);
    data_release(tl->runner->has.store, tl->mask);
    tl->mask = NULL;
}

/* What `bind` needs; mask NULL: none. */
static void describe_move(tl_details *details, tl_bind_fn *bind, const tl_handle *place,
                          const tl_operand *mask)
{
    details->bind = bind;
    details->row_bytes = place_row_bytes(place);
    details->masked = mask && !tl_is_structural(mask);
}

/* ---- Loading ---- */

/* Puts `number` where the mask, the last input, is 0. */
static kb_error *choose(tl_details *details, data_value *loaded, data_value **chosen)
{
    tl_context *tl = details->tl;
    data_store *store = tl->runner->has.store;
    kb_dtype dtype = details->result->dtype;
    kb_shape shape = tl_shape_of(&details->shape), single = {.rank = 0};
    data_value *inputs[3] = {NULL, loaded, NULL};
    kb_error *err = tl_operand_data(tl, &details->inputs[details->input_count - 1], &inputs[0]);
    if (!err)
        err = data_full(store, dtype, &single, details->number, &inputs[2]);
    if (!err)
        err = data_apply(store, DATA_WHERE, dtype, &shape, inputs, 3, 0, chosen);
    data_release(store, inputs[2]);
    data_release(store, inputs[0]);
    return err;
}

static kb_error *bind_load(tl_details *details)
{
    data_store *store = details->tl->runner->has.store;
    kb_dtype dtype = details->result->dtype;
    data_source source = {.dtype = dtype,
                          .shape = tl_shape_of(&details->shape),
                          .row_bytes = details->row_bytes,
                          .rects = details->rects[0].items,
                          .rect_count = details->rects[0].count,
                          .other = details->number};
    if (!details->masked)
        return data_read(store, &source, &details->result->data);
    data_value *loaded;
    KB_TRY(data_read(store, &source, &loaded));
    kb_error *err = choose(details, loaded, &details->result->data);
    data_release(store, loaded);
    return err;
}

tl_value *tl_load_place(const tl_call *call, const tl_handle *place, const tl_operand *mask,
                        double other)
{
    tl_value *value = tl_value_new(call, place->dtype, &place->shape); /* if it fits at all */
    resolve_masked(call, place, mask);
    tl_command *command =
        tl_command_new(call, mask, mask ? 1 : 0, value, &place->shape, call->tl->is_index);
    if (KB_UNLIKELY(command->details != NULL)) {
        command->details->number = other;
        command->details->reads_index = call->tl->is_index;
        describe_move(command->details, bind_load, place, mask);
    }
    (void)tl_note_access(call, command, place, false);
    const pe_rects *rects = &call->tl->rects[0];
    tl_point after = tl_join(call, command->after, place->after);
    value->after = tl_after_conflicts(call, rects, false, after);
    tl_record_access(call, &(tl_touch){.rects = rects, .after = value->after});
    (void)issue_move(call, command, KB_UNIT_DMA_READ, "load");
    return value;
}

tl_tensor tl_load_(tl_context *tl, tl_srcloc at, tl_ptr ptr, tl_dims shape, tl_load_options options)
{
    tl_call call = tl_enter(tl, at, "tl_load");
    tl_handle place;
    make_place(&call, ptr, &shape, &options.strides, options.dtype, &place);
    place.reinterpret = options.reinterpret;
    tl_operand mask;
    bool masked = take_mask(&call, options.mask, &shape, &mask);
    tl_value *value = tl_load_place(&call, &place, masked ? &mask : NULL, options.other);
    tl_end_call(tl);
    return tl_handle_of(&call, value, &shape);
}

/* ---- Storing ---- */

void tl_check_apart(const tl_call *call, const tl_handle *place)
{
    for (int i = 0; i < place->shape.rank; i++)
        if (place->strides.dims[i] == 0 && place->shape.dims[i] > 1)
            tl_fault(call, "strides %s put several elements in one place",
                     tl_shape_print(&place->strides).text);
}

static kb_error *bind_store(tl_details *details)
{
    tl_context *tl = details->tl;
    data_store *store = tl->runner->has.store;
    const pe_rects *rects = &details->rects[0];
    data_value *value, *mask = NULL;
    KB_TRY(tl_operand_data(tl, &details->inputs[0], &value));
    kb_error *err = NULL;
    if (details->masked)
        err = expand(tl, &details->inputs[1], &details->shape, &mask);
    if (!err)
        err = data_write(store, rects->items, rects->count, details->row_bytes, value, mask);
    data_release(store, mask);
    data_release(store, value);
    return err;
}

tl_future tl_store_(tl_context *tl, tl_srcloc at, tl_ptr ptr, tl_store_options options)
{
    tl_call call = tl_enter(tl, at, "tl_store");
    tl_operand inputs[2];
    tl_take_to(&call, options.value, &inputs[0]);
    const tl_dims *shape = &inputs[0].shape;
    if (!inputs[0].value)
        tl_fault(&call, "a plain number has no shape: make it a tensor with tl_full");
    tl_handle place;
    make_place(&call, ptr, shape, &options.strides, inputs[0].dtype, &place);
    place.reinterpret = options.reinterpret;
    tl_check_apart(&call, &place);
    bool masked = take_mask(&call, options.mask, shape, &inputs[1]);
    resolve_masked(&call, &place, masked ? &inputs[1] : NULL);
    tl_command *command = tl_command_new(&call, inputs, masked ? 2 : 1, NULL, shape, false);
    if (KB_UNLIKELY(command->details != NULL))
        describe_move(command->details, bind_store, &place, masked ? &inputs[1] : NULL);
    (void)tl_note_access(&call, command, &place, true);
    const pe_rects *rects = &tl->rects[0];
    tl_point after = tl_after_conflicts(&call, rects, true, command->after);
    after = tl_queue_write(&call, after);
    tl_record_access(&call,
                     &(tl_touch){.rects = rects, .writes = true, .in_queue = true, .after = after});
    pe_op op = issue_move(&call, command, KB_UNIT_DMA_WRITE, "store");
    tl_end_call(tl);
    return (tl_future){.id = op, .kernel = tl->kernel, .after = after};
}

tl_handle tl_packed_place(const tl_call *call, tl_ptr ptr, const tl_dims *shape, kb_dtype dtype)
{
    tl_handle place;
    make_place(call, ptr, shape, &(tl_dims){0}, dtype, &place);
    return place;
}

tl_command *tl_prepare_store(const tl_call *call, const tl_handle *place, tl_value *value)
{
    tl_operand stored = {.value = value,
                         .dtype = place->dtype,
                         .shape = place->shape,
                         .elements = tl_elements(&place->shape)};
    tl_resolve(call, place, NULL, 0, false);
    tl_command *command = tl_command_new(call, &stored, 1, NULL, &place->shape, true);
    describe_move(command->details, bind_store, place, NULL);
    (void)tl_note_access(call, command, place, true);
    (void)tl_rects_of(command, 0);
    return command;
}

/* ---- Places ---- */

tl_tensor tl_ref_(tl_context *tl, tl_srcloc at, tl_ptr ptr, tl_dims shape, tl_load_options options)
{
    tl_call call = tl_enter(tl, at, "tl_ref");
    tl_handle place;
    make_place(&call, ptr, &shape, &options.strides, options.dtype, &place);
    place.reinterpret = options.reinterpret;
    if (options.mask.id != 0)
        tl_fault(&call, "a place in memory has no mask: load it with one");
    return tl_handle_new(&call, &place);
}
