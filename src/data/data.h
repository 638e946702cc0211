/*
 * data.h: the numbers that a simulated program computes with. A value is an array that never
 * changes. It is described when the operation that makes it is issued, and computed later: when
 * it is read, or when much is waiting; on all cores. What it is computed from are values too,
 * never "what is at that address", so neither the order of computing nor what memory is used for
 * afterwards can change it.
 *
 *     data_value *a, *b, *sum;
 *     KB_TRY(data_read(store, &(data_source){...}, &a));       // memory as it is now
 *     KB_TRY(data_full(store, KB_F16, &shape, 2.0, &b));
 *     KB_TRY(data_apply(store, DATA_ADD, KB_F16, &shape, (data_value *[]){a, b}, 2, 0, &sum));
 *     KB_TRY(data_write(store, rects, count, row_bytes, sum, NULL));   // memory is to hold it
 *     KB_TRY(data_settle(store));                              // now it does
 *     data_release(store, a); ...
 *
 * Memory: what is written is remembered as (where, value) until the store is settled;
 * data_read() does so by itself if it reads what is still to be written. Other code that
 * reads or writes the contents of memories, or frees a part of a memory, has to settle first: a
 * pending write would end up in what is there next.
 *
 * What is computed does not depend on when, in which order, or by how many threads. A store belongs
 * to one thread; the threads that compute are its own. All errors are for want of host memory, or
 * of the library that multiplies matrices (KB_ERR_HOST). A call that fails has changed no value and
 * can be repeated; what waits goes on waiting.
 */
#ifndef KB_DATA_DATA_H
#define KB_DATA_DATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/detail/tl_ops.h>
#include <kernbench/kernbench.h>

#include "mem/mem.h"

enum { DATA_MAX_INPUTS = 6 }; /* of an operation */

typedef struct data_store data_store;
typedef struct data_value data_value; /* counted: its receiver releases it */

typedef struct data_options {
    mem_memories *memories; /* must stay */
    unsigned threads;       /* that compute, the caller's among them; 0: as many as it has cores */
    uint64_t pending_bytes; /* that may be kept because something is not computed; 0: 64 MiB */
} data_options;

/* Threads are started when there is first enough to do for them; if they cannot be, the caller's
 * computes alone. */
KB_MUST_USE kb_error *data_store_create(const data_options *options, data_store **store);

/* With all values, and all that was not settled. */
void data_store_destroy(data_store *store);

/*
 * Whether this thread is loading a library that the operations need. Constructors of the library
 * may end the process if there is no memory.
 */
bool data_is_loading_library(void);

data_value *data_retain(data_value *value);
void data_release(data_store *store, data_value *value); /* NULL is nothing */

/* ---- Making values ---- */

/* All of one number, rounded to the dtype; 0, 1, 2, .. from `first` on, in one dimension. */
KB_MUST_USE kb_error *data_full(data_store *store, kb_dtype dtype, const kb_shape *shape,
                                double number, data_value **value);
KB_MUST_USE kb_error *data_arange(data_store *store, kb_dtype dtype, int64_t first, uint64_t count,
                                  data_value **value);

/* What is in memory now. What no rectangle covers is `other`. */
typedef struct data_source {
    kb_dtype dtype;
    kb_shape shape;     /* packed row by row; rows of rectangles are those of the last axis, or */
    uint64_t row_bytes; /* whatever the rectangles take for a row */
    const mem_rect *rects;
    size_t rect_count;
    double other;
} data_source;

KB_MUST_USE kb_error *data_read(data_store *store, const data_source *source, data_value **value);

/* A copy of these numbers, packed row by row. */
KB_MUST_USE kb_error *data_of_bytes(data_store *store, kb_dtype dtype, const kb_shape *shape,
                                    const void *bytes, data_value **value);

/*
 * Operations, as <kernbench/detail/tl_ops.h> lists them.
 *
 * On elements (ADD to CAST): inputs broadcast: shapes are aligned at their last axes, and an axis
 * of 1 is repeated. If all inputs and the result are integers, they are computed with in i32 and
 * wrap around, in i32 and in i8; otherwise in f32, and what is computed is rounded once to the
 * result's dtype, as kb_convert() does. Functions are good to 2 units in the last digit of the
 * dtype. DIV of integers is towards 0, and by 0 gives 0. MAXIMUM and MINIMUM are NaN if one input
 * is, as IEEE has it. Comparisons are 1 or 0. FMA rounds the product to the dtype, then the sum.
 * CLAMP is of x, lowest, highest; WHERE of condition (of any dtype), if not 0, if 0. CAST is
 * kb_convert(): integers do not wrap around.
 *
 * Along `axis`, which stays with length 1: SUM is rounded once to f32, and then to the dtype, of
 * integers it is made in i32; MAX and MIN are NaN if one is. ARGMAX and ARGMIN are the i32 index of
 * the first of these: of the first NaN if there is one.
 *
 * Along `axis`, which keeps its length: SOFTMAX subtracts the maximum first; CUMSUM rounds each sum
 * once, as SUM does. TOPK has the i32 indices of the k largest, the largest first, where k is the
 * length of the axis in the result: NaN counts as larger than any number, and of equal ones the
 * lowest index comes first.
 *
 * TRANSPOSE swaps the last two axes; RESHAPE keeps the elements in another shape. GATHER is of x
 * and an index: each element of the index is a position along `axis` of x; its positions along the
 * other axes are the index's own. SCATTER is x with elements of src (the third input) at the
 * positions that the index says, in order: the last of several at one position stays. SCATTER_ADD
 * adds them instead, rounded once, as SUM does; integers wrap around. For SLICE and CONCAT see
 * data_slice() and data_concat().
 */
#define DATA_OP_(op, name, inputs, kernel) DATA_##op,
typedef enum data_op { TL_DETAIL_EACH_OP(DATA_OP_) DATA_OPS } data_op;
#undef DATA_OP_

unsigned data_op_inputs(data_op op); /* 0: any number of them */

/* `dtype` and `shape` are those of the result, which must be right: see tl, which checks. The
 * inputs are kept for as long as they are needed. */
KB_MUST_USE kb_error *data_apply(data_store *store, data_op op, kb_dtype dtype,
                                 const kb_shape *shape, data_value *const *inputs, size_t count,
                                 uint32_t axis, data_value **value);

/* The elements from `first` on, of an array in the order of its rows, in a shape. */
KB_MUST_USE kb_error *data_part(data_store *store, data_value *input, uint64_t first,
                                const kb_shape *shape, data_value **value);

/* What is from `begin` to before `end` along the axis. */
KB_MUST_USE kb_error *data_slice(data_store *store, data_value *input, uint32_t axis,
                                 uint64_t begin, uint64_t end, data_value **value);

/* One behind the other along the axis; up to DATA_MAX_INPUTS, of one dtype, that differ in shape
 * only there. */
KB_MUST_USE kb_error *data_concat(data_store *store, data_value *const *inputs, size_t count,
                                  uint32_t axis, data_value **value);

/*
 * Whether all numbers of an i32 value are from 0 to before `limit`, as GATHER and SCATTER need it:
 * if not, which element is the first that is not, and its number. Computes the value.
 */
KB_MUST_USE kb_error *data_check_index(data_store *store, data_value *index, uint64_t limit,
                                       bool *is_inside, uint64_t *at, int32_t *number);

/*
 * a (m, k) times b (k, n), plus acc (m, n) unless that is NULL. Products of floating-point numbers
 * are summed in f32, of integers in i32, and the sum is rounded once to `dtype`.
 */
KB_MUST_USE kb_error *data_dot(data_store *store, data_value *a, data_value *b, data_value *acc,
                               kb_dtype dtype, data_value **value);

/* ---- Looking at values ---- */

kb_dtype data_dtype(const data_value *value);
const kb_shape *data_shape(const data_value *value);

/* Both compute it first if need be. The bytes are good as long as the value is. */
KB_MUST_USE kb_error *data_bytes(data_store *store, data_value *value, const void **bytes);
KB_MUST_USE kb_error *data_item(data_store *store, data_value *value, uint64_t index,
                                double *number);

/* ---- Memory ---- */

/*
 * From now on the rectangles hold the value, which is packed row by row with `row_bytes` a row;
 * only where `mask`, of the same number of elements, is not 0, unless it is NULL.
 */
KB_MUST_USE kb_error *data_write(data_store *store, const mem_rect *rects, size_t count,
                                 uint64_t row_bytes, data_value *value, data_value *mask);

/* Puts into memory all that is to be there, in the order of the writes. Cheap if there is nothing.
 */
KB_MUST_USE kb_error *data_settle(data_store *store);

/* ---- Statistics, for tests and reports ---- */

typedef struct data_stats {
    uint64_t computed;     /* values, ever; those that were read are not computed */
    uint64_t dropped;      /* never needed, so never computed */
    uint64_t live_values;  /* now */
    size_t live_bytes;     /* of computed ones, now */
    size_t max_live_bytes; /* the most there were */
    uint64_t settled;      /* times that something had to be computed for memory */
} data_stats;

data_stats data_get_stats(const data_store *store);

#endif
