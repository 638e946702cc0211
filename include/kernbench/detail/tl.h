/*
 * tl.h: what the macros of <kernbench/tl.h> expand to. Not for programs: names that begin with
 * TL_DETAIL_ or end with an underscore may change.
 */
#ifndef KERNBENCH_DETAIL_TL_H
#define KERNBENCH_DETAIL_TL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/detail/tl_ops.h>
#include <kernbench/tl.h>

typedef struct tl_srcloc {
    const char *file;
    int line;
} tl_srcloc;

#define TL_DETAIL_HERE ((tl_srcloc){__FILE__, __LINE__})

#define TL_DETAIL_OP(op, name, inputs, kernel) TL_##op##_,
typedef enum tl_op { TL_DETAIL_EACH_OP(TL_DETAIL_OP) TL_OPS_ } tl_op;
#undef TL_DETAIL_OP

typedef struct tl_scope {
    tl_context *tl;
    bool open;
} tl_scope;

/* ---- Kernels and scopes ------------------------------------------------------------------- */

#define KB_DETAIL_ARGUMENT(index) kb_args_[index]

#define TL_DETAIL_SCOPE_AS(scope)                                                                  \
    for (tl_scope scope                                                                            \
         __attribute__((cleanup(tl_scope_end_))) = tl_scope_begin_(tl, TL_DETAIL_HERE);            \
         (scope).open; (scope).open = false)

/* ---- Options by name ---------------------------------------------------------------------- */

#define tl_load_takes_ptr_shape_dtype_(ptr, shape, type, ...)                                      \
    tl_load_(tl, TL_DETAIL_HERE, (ptr), (shape),                                                   \
             (tl_load_options){.dtype = tl_needs_a_dtype_(type), __VA_ARGS__})

#define tl_store_takes_ptr_value_(ptr, tensor, ...)                                                \
    tl_store_(tl, TL_DETAIL_HERE, (ptr),                                                           \
              (tl_store_options){.value = tl_needs_a_tensor_(tensor), __VA_ARGS__})

#define tl_ref_takes_ptr_shape_dtype_(ptr, shape, type, ...)                                       \
    tl_ref_(tl, TL_DETAIL_HERE, (ptr), (shape),                                                    \
            (tl_load_options){.dtype = tl_needs_a_dtype_(type), __VA_ARGS__})

#define tl_dot_takes_a_b_(left, right, ...)                                                        \
    tl_dot_(tl, TL_DETAIL_HERE, (left),                                                            \
            (tl_dot_options){.b = tl_needs_a_tensor_(right), __VA_ARGS__})

#define tl_recv_takes_direction_shape_dtype_(waits, direction, shape, type, ...)                   \
    tl_recv_(tl, TL_DETAIL_HERE, (direction), (shape),                                             \
             (tl_recv_options){.dtype = tl_needs_a_dtype_(type), __VA_ARGS__}, waits)

/* ---- Operands ----------------------------------------------------------------------------- */

/* A tensor, or a number as one. */
#define TL_DETAIL_OPERAND(x)                                                                       \
    _Generic((x), tl_tensor                                                                        \
             : tl_needs_a_tensor_, tl_tensor *                                                     \
             : tl_needs_a_tensor_, const tl_tensor *                                               \
             : tl_needs_a_tensor_, float                                                           \
             : tl_of_float_, long                                                                  \
             : tl_of_integer_, long long                                                           \
             : tl_of_integer_, unsigned long                                                       \
             : tl_of_size_, unsigned long long                                                     \
             : tl_of_size_, default                                                                \
             : tl_scalar)(x)

/* These do nothing but have a name, for the compiler's message if there is no tensor or dtype. */
static inline tl_tensor tl_needs_a_tensor_(tl_tensor x)
{
    return x;
}

static inline kb_dtype tl_needs_a_dtype_(kb_dtype dtype)
{
    return dtype;
}

static inline tl_tensor tl_of_float_(float number)
{
    return tl_scalar((double)number);
}

static inline tl_tensor tl_of_integer_(int64_t number)
{
    return tl_scalar((double)number);
}

static inline tl_tensor tl_of_size_(uint64_t number)
{
    return tl_scalar((double)number);
}

#define TL_DETAIL_UNARY(op, x)                                                                     \
    tl_apply_(tl, TL_DETAIL_HERE, TL_##op##_, (tl_tensor[]){TL_DETAIL_OPERAND(x)}, 0)
#define TL_DETAIL_BINARY(op, a, b)                                                                 \
    tl_apply_(tl, TL_DETAIL_HERE, TL_##op##_,                                                      \
              (tl_tensor[]){TL_DETAIL_OPERAND(a), TL_DETAIL_OPERAND(b)}, 0)
#define TL_DETAIL_TERNARY(op, a, b, c)                                                             \
    tl_apply_(tl, TL_DETAIL_HERE, TL_##op##_,                                                      \
              (tl_tensor[]){TL_DETAIL_OPERAND(a), TL_DETAIL_OPERAND(b), TL_DETAIL_OPERAND(c)}, 0)
#define TL_DETAIL_ALONG(op, x, axis)                                                               \
    tl_apply_(tl, TL_DETAIL_HERE, TL_##op##_, (tl_tensor[]){tl_needs_a_tensor_(x)}, (axis))

/* ---- Calls -------------------------------------------------------------------------------- */

KB_API int64_t tl_program_id_(tl_context *tl, tl_srcloc at, int axis);
KB_API int64_t tl_num_programs_(tl_context *tl, tl_srcloc at, int axis);
KB_API tl_tensor tl_load_(tl_context *tl, tl_srcloc at, tl_ptr ptr, tl_dims shape,
                          tl_load_options options);
KB_API tl_future tl_store_(tl_context *tl, tl_srcloc at, tl_ptr ptr, tl_store_options options);
KB_API tl_tensor tl_ref_(tl_context *tl, tl_srcloc at, tl_ptr ptr, tl_dims shape,
                         tl_load_options options);
KB_API KB_MUST_USE tl_tensor tl_dot_(tl_context *tl, tl_srcloc at, tl_tensor a,
                                     tl_dot_options options);
KB_API tl_future tl_composite_(tl_context *tl, tl_srcloc at, tl_composite_op op, tl_tensor a,
                               tl_tensor b, tl_tensor out);
KB_API KB_MUST_USE tl_tensor tl_apply_(tl_context *tl, tl_srcloc at, tl_op op,
                                       const tl_tensor *inputs, int axis);
KB_API tl_tensor tl_cast_(tl_context *tl, tl_srcloc at, tl_tensor x, kb_dtype dtype);
KB_API tl_tensor tl_transpose_(tl_context *tl, tl_srcloc at, tl_tensor x);
KB_API tl_tensor tl_reshape_(tl_context *tl, tl_srcloc at, tl_tensor x, tl_dims shape);
KB_API tl_tensor tl_slice_(tl_context *tl, tl_srcloc at, tl_tensor x, int axis, int64_t begin,
                           int64_t end);
KB_API void tl_split_(tl_context *tl, tl_srcloc at, tl_tensor x, int axis, tl_tensor *parts,
                      int64_t count);
KB_API void tl_split_sizes_(tl_context *tl, tl_srcloc at, tl_tensor x, int axis, tl_tensor *parts,
                            const int64_t *sizes, int count);
KB_API KB_MUST_USE tl_tensor tl_concat_(tl_context *tl, tl_srcloc at, int axis,
                                        const tl_tensor *inputs, size_t count);
KB_API KB_MUST_USE tl_topk_result tl_topk_(tl_context *tl, tl_srcloc at, tl_tensor x, int64_t k,
                                           int axis);
KB_API KB_MUST_USE tl_tensor tl_gather_(tl_context *tl, tl_srcloc at, tl_tensor x, tl_tensor index,
                                        int axis);
KB_API KB_MUST_USE tl_tensor tl_scatter_(tl_context *tl, tl_srcloc at, tl_tensor x, tl_tensor index,
                                         int axis, tl_tensor src, bool adds);
KB_API tl_tensor tl_full_(tl_context *tl, tl_srcloc at, tl_dims shape, kb_dtype dtype,
                          double number);
KB_API tl_tensor tl_arange_(tl_context *tl, tl_srcloc at, int64_t begin, int64_t end);
KB_API tl_future tl_send_(tl_context *tl, tl_srcloc at, const char *direction, tl_tensor value,
                          bool sync);
KB_API tl_tensor tl_recv_(tl_context *tl, tl_srcloc at, const char *direction, tl_dims shape,
                          tl_recv_options options, bool wait);
KB_API bool tl_can_send_(tl_context *tl, tl_srcloc at, const char *direction);
KB_API bool tl_can_recv_(tl_context *tl, tl_srcloc at, const char *direction);
KB_API void tl_wait_tensor_(tl_context *tl, tl_srcloc at, tl_tensor x);
KB_API void tl_wait_future_(tl_context *tl, tl_srcloc at, tl_future future);
KB_API double tl_item_(tl_context *tl, tl_srcloc at, tl_tensor x);
KB_API void tl_items_(tl_context *tl, tl_srcloc at, tl_tensor x, int64_t *numbers, int64_t count);
KB_API KB_NORETURN void tl_raise_(tl_context *tl, tl_srcloc at, const char *format, ...)
    KB_PRINTF(3, 4);
KB_API void *tl_user_(const tl_context *tl);
KB_API double tl_item_or_(tl_context *tl, tl_srcloc at, tl_tensor x, double stand_in);
KB_API kb_time tl_now_(const tl_context *tl);
KB_API void tl_free_(tl_context *tl, tl_srcloc at, tl_tensor x);
KB_API tl_scope tl_scope_begin_(tl_context *tl, tl_srcloc at);
KB_API void tl_scope_end_(tl_scope *scope);
KB_API void tl_assign_(tl_context *tl, tl_srcloc at, tl_tensor *variable, tl_tensor value);

#endif
