/*
 * tensor.h: data types, and tensors: their layout over a device, their contents, copies.
 */
#ifndef KERNBENCH_TENSOR_H
#define KERNBENCH_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/base.h>
#include <kernbench/context.h>
#include <kernbench/memory.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Numbers ----------------------------------------------------------------------------- */

typedef enum kb_dtype {
    KB_F16,
    KB_BF16,
    KB_F32,
    KB_F8E4M3, /* storage only: 4 bits of exponent, NaN but no infinity, up to 448 */
    KB_F8E5M2, /* storage only: 5 bits of exponent, as IEEE would have it, up to 57344 */
    KB_I8,
    KB_I32,
    KB_DTYPES
} kb_dtype;

KB_API size_t kb_dtype_bytes(kb_dtype dtype);     /* 0 if there is none such */
KB_API const char *kb_dtype_name(kb_dtype dtype); /* "f16" */

/*
 * Converts numbers: to the nearest, to even if two are equally near. What is too large becomes
 * infinite, or NaN in F8E4M3. From floating point to integers as C does, towards 0, but what is out
 * of range becomes the nearest there is, and NaN 0. The arrays must not overlap.
 */
KB_API void kb_convert(kb_dtype to_dtype, void *to, kb_dtype from_dtype, const void *from,
                       size_t count);

/* ---- Tensors ----------------------------------------------------------------------------- */

/* Names a tensor of its context. One that was freed is never taken for another. */
typedef struct kb_tensor {
    uint64_t id;
} kb_tensor;

enum { KB_MAX_DIMS = 8 };

typedef struct kb_shape {
    uint32_t rank;
    uint64_t dims[KB_MAX_DIMS];
} kb_shape;

/* KB_SHAPE(4, 8) is a kb_shape. */
#define KB_SHAPE(...)                                                                              \
    ((kb_shape){.rank = sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t),                      \
                .dims = {__VA_ARGS__}})

/* How one level of a device, its cubes or the PEs of a cube, shares a tensor. */
typedef enum kb_split {
    KB_REPLICATE,   /* each has all of it */
    KB_COLUMN_WISE, /* the last axis is split */
    KB_ROW_WISE     /* the first axis is split */
} kb_split;

typedef enum kb_tiling {
    KB_NOT_TILED,
    KB_TILED_COLUMN_MAJOR, /* tiles are dealt out to the PEs along the last axis first */
    KB_TILED_ROW_MAJOR     /* along the first axis first */
} kb_tiling;

/*
 * How a tensor is laid out in its device. A tensor of one dimension counts as one row. Sizes need
 * not divide: parts differ by one row or column at most, and some may be empty. All zeros is a copy
 * of it at every PE.
 */
typedef struct kb_policy {
    kb_split cube, pe;           /* over the cubes, and then over the PEs of each */
    uint32_t num_cubes, num_pes; /* use only the first of them; 0 means all */
    kb_tiling tiling;            /* unless KB_NOT_TILED: instead of the splits */
    uint64_t tile_rows, tile_columns;
} kb_policy;

/* Whether something takes simulated time. */
typedef enum kb_access {
    KB_TIMED,  /* through the fabric of the machine, as hardware would */
    KB_UNTIMED /* in no time at all: to set a stage, or to look without disturbing */
} kb_access;

typedef struct kb_tensor_spec {
    const char *name; /* for messages; copied; NULL: one is made up */
    kb_dtype dtype;
    kb_shape shape;
    kb_memory memory;        /* KB_HBM or KB_TCM */
    const kb_policy *policy; /* copied; NULL: all of it at PE 0 of cube 0 */
    kb_access access;        /* for making it, mapping it and freeing it */
    bool is_index;           /* I32 alone: its numbers decide addresses (page tables, lengths, token
                                ids), so it has contents in timing-only contexts too: those that the
                                host writes. What kernels store there is not computed */
} kb_tensor_spec;

/*
 * Creates a tensor on the current device. It has memory at once; that it is being mapped into the
 * device's MMUs is work under way of the caller. It has whatever is in its memory, which is 0 where
 * it was never written.
 */
KB_API KB_MUST_USE kb_error *kb_empty(kb_context *ctx, const kb_tensor_spec *spec,
                                      kb_tensor *tensor);

/* The same, and filled with 0, by the DMAs of the PEs that have it: more work under way. */
KB_API KB_MUST_USE kb_error *kb_zeros(kb_context *ctx, const kb_tensor_spec *spec,
                                      kb_tensor *tensor);

/* The same, and filled with the value, rounded to the dtype. */
KB_API KB_MUST_USE kb_error *kb_full(kb_context *ctx, const kb_tensor_spec *spec, double value,
                                     kb_tensor *tensor);

/*
 * A tensor that stays with the host: it is on no device. `data` has the elements row by row in the
 * spec's dtype, `bytes` of them in all; it is copied. The spec's memory, policy and access mean
 * nothing.
 */
KB_API KB_MUST_USE kb_error *kb_from_host(kb_context *ctx, const kb_tensor_spec *spec,
                                          const void *data, size_t bytes, kb_tensor *tensor);

/* Does not wait. In a cleanup of a worker that is being unwound it works too. */
KB_API KB_MUST_USE kb_error *kb_tensor_free(kb_context *ctx, kb_tensor tensor);

/* These look at the tensor and not at its contents: they never wait. A name is good until the
 * tensor is freed. */
KB_API KB_MUST_USE kb_error *kb_tensor_shape(kb_context *ctx, kb_tensor tensor, kb_shape *shape);
KB_API KB_MUST_USE kb_error *kb_tensor_dtype(kb_context *ctx, kb_tensor tensor, kb_dtype *dtype);
KB_API KB_MUST_USE kb_error *kb_tensor_name(kb_context *ctx, kb_tensor tensor, const char **name);
KB_API KB_MUST_USE kb_error *kb_tensor_device(kb_context *ctx, kb_tensor tensor, uint32_t *sip);
KB_API KB_MUST_USE kb_error *kb_tensor_va(kb_context *ctx, kb_tensor tensor, uint64_t *va);

/* A part of a tensor in one PE's memory: a block of rows and columns, stored without gaps. */
typedef struct kb_shard {
    uint32_t sip, cube, pe;
    uint64_t offset_bytes; /* its offset in the tensor's virtual addresses */
    uint64_t nbytes;       /* 0 where there was nothing left to share out */
} kb_shard;

/* The shards that a tensor of this shape, dtype and policy has on the current device; makes none.
 * Writes at most `room`, and how many there are. */
KB_API KB_MUST_USE kb_error *kb_plan_shards(kb_context *ctx, const kb_tensor_spec *spec,
                                            kb_shard *shards, size_t room, size_t *count);

/* Shards come in the order of (cube, pe, offset_bytes). A tensor of the host has none. */
KB_API KB_MUST_USE kb_error *kb_tensor_shard_count(kb_context *ctx, kb_tensor tensor,
                                                   size_t *count);
KB_API KB_MUST_USE kb_error *kb_tensor_shard(kb_context *ctx, kb_tensor tensor, size_t index,
                                             kb_shard *shard);

/* Where the shard's first byte is. An empty shard is nowhere: an error. */
KB_API KB_MUST_USE kb_error *kb_tensor_shard_location(kb_context *ctx, kb_tensor tensor,
                                                      size_t index, kb_location *location);

/*
 * Calls that change contents do not wait: the transfers are work under way of the caller. What the
 * host sees of contents follows the order of its calls alone, never their timing.
 *
 * Calls that show contents to the host (to_host, get, get_slice, repr, and copy for where it copies
 * from unless that is a tensor of the host) first wait for all work under way of the calling
 * worker alone: to see what others have sent on its way, meet them in a barrier. If
 * some of that work has failed and its fault was not returned yet, they return it, and show
 * nothing.
 */

/*
 * Into any layout of the same shape and dtype, on a device or the host, from any other. Between
 * devices the PEs that have the data send it; the host sends each copy of a replicated tensor by
 * itself. Copying a tensor to itself does nothing.
 */
KB_API KB_MUST_USE kb_error *kb_tensor_copy(kb_context *ctx, kb_tensor to, kb_tensor from,
                                            kb_access access);

/* All elements, row by row, in the tensor's dtype. `bytes` must be what that takes. */
KB_API KB_MUST_USE kb_error *kb_tensor_to_host(kb_context *ctx, kb_tensor tensor, kb_access access,
                                               void *data, size_t bytes);

/* Which element: as many numbers as the tensor has dimensions. */
typedef struct kb_index {
    uint32_t rank;
    uint64_t at[KB_MAX_DIMS];
} kb_index;

/* KB_INDEX(3, 7) is a kb_index. */
#define KB_INDEX(...)                                                                              \
    ((kb_index){.rank = sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), .at = {__VA_ARGS__}})

/* One element, as in kb_tensor_get(ctx, x, KB_TIMED, &KB_INDEX(3, 7), &value). */
KB_API KB_MUST_USE kb_error *kb_tensor_get(kb_context *ctx, kb_tensor tensor, kb_access access,
                                           const kb_index *index, double *value);
KB_API KB_MUST_USE kb_error *kb_tensor_set(kb_context *ctx, kb_tensor tensor, kb_access access,
                                           const kb_index *index, double value);

/* Elements from `start` to before `stop` along an axis. */
typedef struct kb_span {
    uint64_t start, stop; /* KB_END: to the end */
} kb_span;

#define KB_END UINT64_MAX

/* One range for each of the first axes; of the others all is meant. */
typedef struct kb_slice {
    uint32_t rank;
    kb_span ranges[KB_MAX_DIMS];
} kb_slice;

/* KB_SLICE({0, 2}, {1, KB_END}) is a kb_slice. */
#define KB_SLICE(...)                                                                              \
    ((kb_slice){.rank = sizeof((kb_span[]){__VA_ARGS__}) / sizeof(kb_span),                        \
                .ranges = {__VA_ARGS__}})

/*
 * The elements of a slice, row by row; all of the tensor if the slice is NULL. `bytes` must be what
 * they take.
 */
KB_API KB_MUST_USE kb_error *kb_tensor_get_slice(kb_context *ctx, kb_tensor tensor,
                                                 kb_access access, const kb_slice *slice,
                                                 void *data, size_t bytes);
KB_API KB_MUST_USE kb_error *kb_tensor_set_slice(kb_context *ctx, kb_tensor tensor,
                                                 kb_access access, const kb_slice *slice,
                                                 const void *data, size_t bytes);

/* Sets all elements of the slice to the same. */
KB_API KB_MUST_USE kb_error *kb_tensor_fill_slice(kb_context *ctx, kb_tensor tensor,
                                                  kb_access access, const kb_slice *slice,
                                                  double value);

/* "'x' (4, 8) f16 on sip0, mean 0.5, norm 4": free() it. */
KB_API KB_MUST_USE kb_error *kb_tensor_repr(kb_context *ctx, kb_tensor tensor, kb_access access,
                                            char **text);

#ifdef __cplusplus
}
#endif

#endif
