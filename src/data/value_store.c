/*
 * value_store.c: the store as a whole, and values that come out of memory.
 *
 * Values wait to be computed until they are read, so that what is never read is never computed and
 * much can be computed at once. To bound what waiting costs, all that waits is computed and
 * written when it keeps too many bytes, or is too much in number. Not modelled here: whether
 * memory may be read at this time; a DMA knows that.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "data_private.h"

enum { MAX_PENDING = 16 * 1024, MAX_THREADS = 64 };

static const uint64_t default_pending_bytes = (uint64_t)64 << 20;

static unsigned host_cores(void)
{
    cpu_set_t cores;
    if (sched_getaffinity(0, sizeof cores, &cores) != 0)
        return 1;
    return (unsigned)CPU_COUNT(&cores);
}

kb_error *data_store_create(const data_options *options, data_store **store)
{
    *store = NULL;
    data_store *made = kb_alloc_zeroed(1, sizeof *made);
    if (!made)
        return kb_error_nomem();
    made->memories = options->memories;
    made->pending_bytes = options->pending_bytes ? options->pending_bytes : default_pending_bytes;
    kb_pool_init(&made->pool, sizeof(data_value));
    unsigned threads = options->threads ? options->threads : host_cores();
    threads = threads < MAX_THREADS ? threads : MAX_THREADS;
    kb_error *err = threads > 1 ? data_threads_create(threads - 1, &made->threads) : NULL;
    if (err) {
        data_store_destroy(made);
        return err;
    }
    *store = made;
    return NULL;
}

void data_store_destroy(data_store *store)
{
    if (!store)
        return;
    data_threads_destroy(store->threads);
    data_writes_fini(&store->writes);
    for (data_value *value = store->values; value; value = value->next)
        free(value->bytes);
    kb_pool_fini(&store->pool);
    kb_vec_fini(&store->collected);
    kb_vec_fini(&store->first_items);
    free(store->scratches);
    free(store);
}

data_stats data_get_stats(const data_store *store)
{
    return store->stats;
}

kb_error *data_relieve(data_store *store)
{
    if (store->waiting_bytes <= store->pending_bytes && store->pending_count < MAX_PENDING &&
        store->writes.list.count < MAX_PENDING)
        return NULL;
    for (data_value *value = store->first_pending; value; value = value->next_pending)
        if (value->input_count > 0) /* those without keep nothing, and are quickly made */
            KB_TRY(data_collect(store, value));
    KB_TRY(data_compute(store));
    return data_settle(store);
}

/* Puts `number` wherever no rectangle does. */
static void fill_gaps(data_value *value, const data_source *source)
{
    uint64_t covered = 0;
    for (size_t i = 0; i < source->rect_count; i++)
        covered += mem_rect_bytes(&source->rects[i]);
    if (covered < data_bytes_of(value))
        data_fill(value->dtype, value->bytes, source->other, value->elements);
}

kb_error *data_of_bytes(data_store *store, kb_dtype dtype, const kb_shape *shape, const void *bytes,
                        data_value **value)
{
    *value = NULL;
    data_value *made = NULL;
    kb_error *err = data_value_make(store, DATA_READ, dtype, shape, &made);
    if (!made)
        return err;
    if (!data_value_alloc(made)) {
        data_release(store, made);
        return kb_error_nomem();
    }
    size_t size = kb_dtype_bytes(dtype);
    for (uint32_t axis = 0; axis < shape->rank; axis++)
        size *= shape->dims[axis];
    memcpy(made->bytes, bytes, size);
    data_value_is_computed(made);
    *value = made;
    return NULL;
}

kb_error *data_read(data_store *store, const data_source *source, data_value **value)
{
    *value = NULL;
    if (data_writes_touch(&store->writes, source->rects, source->rect_count))
        KB_TRY(data_settle(store));
    data_value *made = NULL;
    kb_error *err = data_value_make(store, DATA_READ, source->dtype, &source->shape, &made);
    if (!made)
        return err;
    if (!data_value_alloc(made)) {
        data_release(store, made);
        return kb_error_nomem();
    }
    fill_gaps(made, source);
    mem_rects_read(store->memories, source->rects, source->rect_count, made->bytes,
                   source->row_bytes);
    data_value_is_computed(made);
    *value = made;
    return NULL;
}
