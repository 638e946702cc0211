/*
 * data_private.h: what the files of data know of each other.
 *
 *     lazy_value.c  values: made, counted, dropped
 *     compute.c     which values to compute, and in which order
 *     writes.c      pending writes to memory
 *     threads.c     the threads that compute
 *     value_store.c       the whole, and reading memory
 *     the others    how one operation is computed
 *
 * Threads other than the owner's only run parts of operations (data_kernel.run). All else, counting
 * references and allocating among it, is the owner's, so that computing cannot fail half-way.
 */
#ifndef KB_DATA_DATA_PRIVATE_H
#define KB_DATA_DATA_PRIVATE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"
#include "data.h"

/* Operations besides those of data_apply(). */
enum { DATA_DOT = DATA_OPS, DATA_FULL, DATA_ARANGE, DATA_READ, DATA_ALL_OPS };

/* ---- Values ------------------------------------------------------------------------------ */

struct data_value {
    data_store *store;
    uint32_t self; /* in the pool */
    int op;
    kb_dtype dtype;
    uint32_t axis;
    kb_shape shape;
    uint64_t elements;
    double number;   /* of DATA_FULL */
    int64_t first;   /* of DATA_ARANGE: number; of DATA_RESHAPE, DATA_SLICE: where they begin */
    uint64_t serial; /* values count up, so inputs have lower ones */

    uint64_t references;
    uint64_t waiting;  /* how many of them are those of values and writes that wait for it */
    bool is_computed;  /* and so has no inputs any more */
    bool is_collected; /* by data_compute() */
    uint32_t input_count;
    data_value *inputs[DATA_MAX_INPUTS];
    unsigned char *bytes; /* NULL until it is being computed */

    atomic_uint_fast64_t parts_left; /* to compute, while that is under way; otherwise 0 */
    uint64_t soonest;                /* when it could be computed, with any number of threads */

    data_value *prev, *next;                     /* of all values, or when dropped */
    data_value *previous_pending, *next_pending; /* of those not computed, by serial */
};

static inline size_t data_bytes_of(const data_value *value)
{
    return (size_t)value->elements * kb_dtype_bytes(value->dtype);
}

/* A value of the operation, not computed, without inputs yet, and with one reference; or NULL. */
KB_MUST_USE kb_error *data_value_make(data_store *store, int op, kb_dtype dtype,
                                      const kb_shape *shape, data_value **value);

/* A reference of a value or write that waits for the value. */
void data_wait_for(data_value *value);
void data_wait_over(data_value *value);

/* It has bytes from here on. False if there is no memory. */
bool data_value_alloc(data_value *value);
void data_value_unalloc(data_value *value);

/* Its bytes are right: it forgets its inputs. */
void data_value_is_computed(data_value *value);

/* ---- How operations are computed --------------------------------------------------------- */

/* Numbers are computed in one of these. */
typedef enum data_class { DATA_IN_F32, DATA_IN_I32 } data_class;

/* Of one thread, for blocks of matrices. */
enum { DATA_TILE_ROWS = 256, DATA_TILE_COLUMNS = 512, DATA_TILE_DEPTH = 512 };
typedef union data_number {
    float f32;
    int32_t i32;
} data_number;
typedef struct data_scratch {
    data_number a[DATA_TILE_ROWS * DATA_TILE_DEPTH];
    data_number b[DATA_TILE_DEPTH * DATA_TILE_COLUMNS];
    data_number c[DATA_TILE_ROWS * DATA_TILE_COLUMNS];
} data_scratch;

/*
 * An operation is cut into parts by the shapes alone, so that what is computed does not depend on
 * how many threads there are. Parts write different elements of the result.
 */
typedef struct data_kernel {
    uint64_t (*parts)(const data_value *value);
    void (*run)(const data_value *value, uint64_t part, data_scratch *scratch);
    uint64_t (*cost)(const data_value *value); /* of all parts, in about a nanosecond */
    bool needs_scratch;
    bool needs_blas;
    bool broadcasts; /* inputs may be repeated to give the result */
    bool along_axis; /* an axis of the first input */
    bool moves;      /* elements as they are: the result has the dtype of the first input */
} data_kernel;

/* Of any operation but DATA_READ. */
const data_kernel *data_kernel_of(int op);

extern const data_kernel data_elements_kernel, data_reduce_kernel, data_softmax_kernel,
    data_dot_kernel, data_transpose_kernel, data_reshape_kernel, data_full_kernel,
    data_arange_kernel, data_argmax_kernel, data_cumsum_kernel, data_topk_kernel,
    data_gather_kernel, data_scatter_kernel, data_scatter_add_kernel, data_slice_kernel,
    data_concat_kernel;

static inline kb_dtype data_dtype_of_class(data_class class)
{
    return class == DATA_IN_F32 ? KB_F32 : KB_I32;
}

/* ---- Blocks of elements: blocks.c -------------------------------------------------------- */

/* Elements that are worked on at a time: they stay in the L1 cache. */
enum { DATA_BLOCK = 1024 };

/* From what is computed in to the dtype of a result; integers wrap around. */
void data_store_numbers(kb_dtype dtype, void *to, data_class class, const void *from, size_t count);

/* The number, rounded to the dtype, again and again. */
void data_fill(kb_dtype dtype, void *to, double number, size_t count);

/* One input of an operation on elements, as it looks from the result. */
typedef struct data_view {
    const data_value *input;
    bool is_whole; /* the same elements in the same order */
    uint32_t rank; /* of what follows, the innermost first; axes that can be are joined */
    uint64_t dims[KB_MAX_DIMS];
    uint64_t strides[KB_MAX_DIMS]; /* in elements of the input; 0: repeated */
} data_view;

void data_view_init(data_view *view, const data_value *input, const kb_shape *result);

/*
 * The elements from `at` on, seen from the result, converted to `dtype`. Where they are: in `into`
 * (room for DATA_BLOCK of them), or in the input itself.
 */
const void *data_view_get(const data_view *view, uint64_t at, size_t count, kb_dtype dtype,
                          void *into);

/* ---- Along an axis: stripes.c ------------------------------------------------------------ */

/* A shape, seen from an axis. */
typedef struct data_axis {
    uint64_t outer, length, inner;
} data_axis;

data_axis data_axis_of(const kb_shape *shape, uint32_t axis);

/* Columns side by side, of the first input of an operation along an axis. */
typedef struct data_stripe {
    const data_value *value;
    data_class class;
    uint64_t length, inner; /* of the whole */
    uint64_t first;         /* element, of the input */
    uint64_t first_result;  /* if the axis has length 1 there */
    size_t columns;
} data_stripe;

typedef void data_stripe_fn(const data_stripe *s);

uint64_t data_stripe_parts(const data_value *value);
void data_for_each_stripe(const data_value *value, uint64_t part, data_class class,
                          data_stripe_fn *fn);

/* How many rows are read at once from `row` on: more than one if they follow each other without
 * gaps. At most a block of numbers. */
size_t data_stripe_rows(const data_stripe *s, uint64_t row);

/* Rows in f32 or i32, as they are or converted into `into`. */
const void *data_stripe_get(const data_stripe *s, uint64_t row, size_t rows, data_number *into);

/* ---- Computing: compute.c, threads.c ----------------------------------------------------- */

typedef KB_VEC(data_value *) data_value_list;

/* Computes those that are not computed yet, with all that they need. The list is used up. */
KB_MUST_USE kb_error *data_compute(data_store *store);

/* Puts a value on the store's list of what to compute, unless it is there or computed. */
KB_MUST_USE kb_error *data_collect(data_store *store, data_value *value);

/* What threads take parts of. */
typedef struct data_job {
    const data_value_list *values; /* inputs come before what needs them */
    const uint64_t *first_items;   /* of each value: parts are numbered through; and all of them */
    atomic_uint_fast64_t next_item;
    atomic_uint sleepers; /* who wait for a value */
    pthread_mutex_t lock;
    pthread_cond_t computed; /* a value was, with the lock, if there are sleepers */
} data_job;

/* Takes parts until there are none. */
void data_job_run(data_job *job, data_scratch *scratch);

typedef struct data_threads data_threads;

/* `count` besides the caller's. They are started when first needed. */
KB_MUST_USE kb_error *data_threads_create(unsigned count, data_threads **threads);
void data_threads_destroy(data_threads *threads);

/* Starts them unless that was done; how many there are. It is no error if that is none. */
unsigned data_threads_start(data_threads *threads);

/* All of them and the caller run the job. `scratches`: one for each, the caller's first, or NULL.
 */
void data_threads_run(data_threads *threads, data_job *job, data_scratch *scratches);

/* ---- Writes that wait: writes.c ---------------------------------------------------------- */

typedef struct data_pending_write {
    data_value *value, *mask;
    size_t first_rect, rect_count; /* in data_writes.rects */
    uint64_t row_bytes;
} data_pending_write;

/* What is to be written to one memory: the bytes from `low` to `high` at most. */
typedef struct data_target {
    kb_location memory; /* of any location in it */
    uint64_t low, high;
    size_t last_rect; /* the others follow from it by data_writes.before */
    bool is_used;
} data_target;

typedef struct data_writes {
    KB_VEC(data_pending_write) list; /* in order */
    KB_VEC(mem_rect) rects;
    KB_VEC(size_t) before; /* of each rectangle: the one before it in its memory, or SIZE_MAX */
    data_target *targets;  /* a hash table with open addressing */
    size_t target_capacity, target_count;
} data_writes;

void data_writes_fini(data_writes *writes); /* and releases what they keep */

/* Whether a byte of the rectangles waits to be written, or may. */
bool data_writes_touch(const data_writes *writes, const mem_rect *rects, size_t count);

/* ---- The store --------------------------------------------------------------------------- */

struct data_store {
    mem_memories *memories;
    uint64_t pending_bytes;
    kb_pool pool;
    data_value *values;                       /* all, the newest first */
    data_value *first_pending, *last_pending; /* not computed */
    uint64_t pending_count;
    uint64_t serial;

    /*
     * What would go if all were computed and written: the bytes of values that are computed and
     * that only waiting values and writes have; and those of values that are not computed, as it is
     * unknown for how long they are needed.
     */
    uint64_t waiting_bytes;

    data_writes writes;
    data_value_list collected;
    KB_VEC(uint64_t) first_items;
    data_threads *threads; /* NULL: the owner's alone */
    data_scratch *scratches;
    unsigned scratch_count;
    data_stats stats;
};

/* Computes and writes everything if too much waits. */
KB_MUST_USE kb_error *data_relieve(data_store *store);

#endif
