/*
 * lazy_value.c: values and their references.
 *
 * A value lives as long as it has a reference: of its maker, or of a value or write that waits for
 * it. Values that are not computed are listed in the order they were made, in which inputs come
 * first. Nothing here recurses: a chain of any length is dropped link by link.
 */
#include <stdlib.h>

#include "data_private.h"

/* ---- Lists ------------------------------------------------------------------------------- */

static void list_pending(data_store *store, data_value *value)
{
    value->next_pending = NULL;
    value->previous_pending = store->last_pending;
    *(store->last_pending ? &store->last_pending->next_pending : &store->first_pending) = value;
    store->last_pending = value;
    store->pending_count++;
}

static void unlist_pending(data_store *store, data_value *value)
{
    data_value *before = value->previous_pending, *after = value->next_pending;
    *(before ? &before->next_pending : &store->first_pending) = after;
    *(after ? &after->previous_pending : &store->last_pending) = before;
    store->pending_count--;
}

/* ---- Counting ---------------------------------------------------------------------------- */

/* Its share of data_store.waiting_bytes. */
static uint64_t waiting_bytes(const data_value *value)
{
    bool waits = !value->is_computed && value->op != DATA_FULL && value->op != DATA_ARANGE;
    bool is_waited_for_alone = value->waiting > 0 && value->waiting == value->references;
    return waits || is_waited_for_alone ? data_bytes_of(value) : 0;
}

/* Everything that changes the share of a value is between these two. */
static void begin_change(data_value *value)
{
    value->store->waiting_bytes -= waiting_bytes(value);
}

static void end_change(data_value *value)
{
    value->store->waiting_bytes += waiting_bytes(value);
}

data_value *data_retain(data_value *value)
{
    begin_change(value);
    value->references++;
    end_change(value);
    return value;
}

void data_wait_for(data_value *value)
{
    begin_change(value);
    value->references++;
    value->waiting++;
    end_change(value);
}

/* ---- Dropping ---------------------------------------------------------------------------- */

static void destroy(data_value *value)
{
    data_store *store = value->store;
    data_value_unalloc(value);
    KB_LIST_TAKE_OUT(store->values, value);
    store->stats.live_values--;
    kb_pool_give(&store->pool, value->self);
}

/* Takes a reference away. If that was the last one, the value goes on the list of dropped ones. */
static void take_reference(data_value *value, bool of_one_who_waits, data_value **dropped)
{
    data_store *store = value->store;
    KB_ASSERT(value->references > 0);
    begin_change(value);
    value->references--;
    value->waiting -= of_one_who_waits;
    if (value->references > 0) {
        end_change(value);
        return;
    }
    if (!value->is_computed) {
        unlist_pending(store, value);
        store->stats.dropped++;
    }
    value->next_pending = *dropped;
    *dropped = value;
}

static void release(data_value *value, bool of_one_who_waits)
{
    data_value *dropped = NULL;
    take_reference(value, of_one_who_waits, &dropped);
    while (dropped) {
        data_value *gone = dropped;
        dropped = gone->next_pending;
        for (uint32_t i = 0; i < gone->input_count; i++)
            take_reference(gone->inputs[i], true, &dropped);
        destroy(gone);
    }
}

void data_release(data_store *store, data_value *value)
{
    if (!value)
        return;
    KB_ASSERT(value->store == store);
    release(value, false);
}

void data_wait_over(data_value *value)
{
    release(value, true);
}

/* ---- Making ------------------------------------------------------------------------------ */

/* False if there are more bytes than can be. */
static bool count_elements(const kb_shape *shape, kb_dtype dtype, uint64_t *elements)
{
    size_t product = kb_dtype_bytes(dtype);
    bool is_empty = false;
    for (uint32_t axis = 0; axis < shape->rank; axis++)
        is_empty |= shape->dims[axis] == 0;
    for (uint32_t axis = 0; !is_empty && axis < shape->rank; axis++)
        if (!kb_size_mul(product, shape->dims[axis], &product))
            return false;
    *elements = is_empty ? 0 : product / kb_dtype_bytes(dtype);
    return true;
}

kb_error *data_value_make(data_store *store, int op, kb_dtype dtype, const kb_shape *shape,
                          data_value **value)
{
    KB_ASSERT(mem_dtype_exists(dtype) && shape->rank <= KB_MAX_DIMS);
    *value = NULL;
    uint64_t elements;
    if (!count_elements(shape, dtype, &elements))
        return kb_error_nomem();
    KB_TRY(data_relieve(store));
    uint32_t self = kb_pool_take(&store->pool);
    if (!self)
        return kb_error_nomem();
    data_value *made = kb_pool_at(&store->pool, self);
    *made = (data_value){
        .store = store,
        .self = self,
        .op = op,
        .dtype = dtype,
        .shape = *shape,
        .elements = elements,
        .serial = store->serial++,
        .references = 1,
    };
    KB_LIST_PUSH(store->values, made);
    list_pending(store, made);
    end_change(made);
    store->stats.live_values++;
    *value = made;
    return NULL;
}

static void add_input(data_value *value, data_value *input)
{
    KB_ASSERT(value->input_count < DATA_MAX_INPUTS && input->store == value->store);
    data_wait_for(input);
    value->inputs[value->input_count++] = input;
}

kb_error *data_full(data_store *store, kb_dtype dtype, const kb_shape *shape, double number,
                    data_value **value)
{
    data_value *made = NULL;
    kb_error *err = data_value_make(store, DATA_FULL, dtype, shape, &made);
    if (made)
        made->number = number;
    *value = made;
    return err;
}

kb_error *data_arange(data_store *store, kb_dtype dtype, int64_t first, uint64_t count,
                      data_value **value)
{
    data_value *made = NULL;
    kb_error *err = data_value_make(store, DATA_ARANGE, dtype, &KB_SHAPE(count), &made);
    if (made)
        made->first = first;
    *value = made;
    return err;
}

/* Whether an input of the shape can be repeated to give the result. */
static bool broadcasts(const kb_shape *shape, const kb_shape *result)
{
    if (shape->rank > result->rank)
        return false;
    uint32_t lacking = result->rank - shape->rank;
    for (uint32_t axis = 0; axis < shape->rank; axis++)
        if (shape->dims[axis] != 1 && shape->dims[axis] != result->dims[axis + lacking])
            return false;
    return true;
}

/* What the caller has to get right. Elements of moved arrays are counted when they are moved. */
static bool fits(data_op op, kb_dtype dtype, const kb_shape *shape, data_value *const *inputs,
                 size_t count, uint32_t axis)
{
    if (op >= DATA_OPS || count == 0 || count > DATA_MAX_INPUTS ||
        (data_op_inputs(op) != 0 && count != data_op_inputs(op)))
        return false;
    const data_kernel *kernel = data_kernel_of((int)op);
    if ((kernel->moves && inputs[0]->dtype != dtype) ||
        (kernel->along_axis && axis >= inputs[0]->shape.rank))
        return false;
    for (size_t i = 0; kernel->broadcasts && i < count; i++)
        if (!broadcasts(&inputs[i]->shape, shape))
            return false;
    return true;
}

kb_error *data_apply(data_store *store, data_op op, kb_dtype dtype, const kb_shape *shape,
                     data_value *const *inputs, size_t count, uint32_t axis, data_value **value)
{
    KB_ASSERT(fits(op, dtype, shape, inputs, count, axis));
    data_value *made = NULL;
    kb_error *err = data_value_make(store, (int)op, dtype, shape, &made);
    if (made)
        made->axis = axis;
    for (size_t i = 0; made && i < count; i++)
        add_input(made, inputs[i]);
    *value = made;
    return err;
}

kb_error *data_part(data_store *store, data_value *input, uint64_t first, const kb_shape *shape,
                    data_value **value)
{
    kb_error *err = data_apply(store, DATA_RESHAPE, input->dtype, shape, &input, 1, 0, value);
    if (!err) {
        KB_ASSERT(first <= input->elements && (*value)->elements <= input->elements - first);
        (*value)->first = (int64_t)first;
    }
    return err;
}

kb_error *data_slice(data_store *store, data_value *input, uint32_t axis, uint64_t begin,
                     uint64_t end, data_value **value)
{
    kb_shape shape = input->shape;
    KB_ASSERT(axis < shape.rank && begin <= end && end <= shape.dims[axis]);
    shape.dims[axis] = end - begin;
    kb_error *err = data_apply(store, DATA_SLICE, input->dtype, &shape, &input, 1, axis, value);
    if (!err)
        (*value)->first = (int64_t)begin;
    return err;
}

kb_error *data_concat(data_store *store, data_value *const *inputs, size_t count, uint32_t axis,
                      data_value **value)
{
    kb_shape shape = inputs[0]->shape;
    for (size_t i = 1; i < count; i++) {
        KB_ASSERT(inputs[i]->dtype == inputs[0]->dtype && inputs[i]->shape.rank == shape.rank);
        shape.dims[axis] += inputs[i]->shape.dims[axis];
    }
    return data_apply(store, DATA_CONCAT, inputs[0]->dtype, &shape, inputs, count, axis, value);
}

kb_error *data_dot(data_store *store, data_value *a, data_value *b, data_value *acc, kb_dtype dtype,
                   data_value **value)
{
    KB_ASSERT(a->shape.rank == 2 && b->shape.rank == 2 && a->shape.dims[1] == b->shape.dims[0]);
    kb_shape shape = KB_SHAPE(a->shape.dims[0], b->shape.dims[1]);
    KB_ASSERT(!acc || mem_shape_equal(&acc->shape, &shape));
    data_value *made = NULL;
    kb_error *err = data_value_make(store, DATA_DOT, dtype, &shape, &made);
    data_value *inputs[] = {a, b, acc};
    for (size_t i = 0; made && i < (acc ? 3 : 2); i++)
        add_input(made, inputs[i]);
    *value = made;
    return err;
}

/* ---- Being computed ---------------------------------------------------------------------- */

bool data_value_alloc(data_value *value)
{
    enum { cache_line = 64 };
    data_stats *stats = &value->store->stats;
    value->bytes = kb_alloc_aligned(cache_line, data_bytes_of(value), 1);
    if (!value->bytes)
        return false;
    stats->live_bytes += data_bytes_of(value);
    if (stats->max_live_bytes < stats->live_bytes)
        stats->max_live_bytes = stats->live_bytes;
    return true;
}

void data_value_unalloc(data_value *value)
{
    if (!value->bytes)
        return;
    value->store->stats.live_bytes -= data_bytes_of(value);
    free(value->bytes);
    value->bytes = NULL;
}

void data_value_is_computed(data_value *value)
{
    KB_ASSERT(value->bytes && !value->is_computed);
    begin_change(value);
    value->is_computed = true;
    end_change(value);
    unlist_pending(value->store, value);
    for (uint32_t i = 0; i < value->input_count; i++)
        data_wait_over(value->inputs[i]);
    value->input_count = 0;
}

/* ---- Looking ----------------------------------------------------------------------------- */

kb_dtype data_dtype(const data_value *value)
{
    return value->dtype;
}

const kb_shape *data_shape(const data_value *value)
{
    return &value->shape;
}

kb_error *data_bytes(data_store *store, data_value *value, const void **bytes)
{
    *bytes = NULL;
    KB_TRY(data_collect(store, value));
    KB_TRY(data_compute(store));
    *bytes = value->bytes;
    return NULL;
}

kb_error *data_item(data_store *store, data_value *value, uint64_t index, double *number)
{
    const void *bytes;
    *number = 0;
    KB_ASSERT(index < value->elements);
    KB_TRY(data_bytes(store, value, &bytes));
    size_t size = kb_dtype_bytes(value->dtype);
    *number = mem_number_get(value->dtype, (const unsigned char *)bytes + index * size);
    return NULL;
}
