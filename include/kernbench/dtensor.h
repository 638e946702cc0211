/*
 * dtensor.h: distributed tensors, with the names of torch.distributed.tensor. Forward only.
 *
 * A device mesh is an arrangement of ranks in one or two dimensions. A distributed tensor (DTensor)
 * is one logical tensor over a mesh. For each dimension of the mesh a placement defines whether the
 * ranks along it have a part each (Shard), all of it (Replicate), or a term each of a sum or
 * another reduction (Partial). Each rank has one ordinary tensor of it, its local tensor. In this
 * example each worker multiplies with some columns of a weight, and gets the whole result:
 *
 *     #include <kernbench/dtensor.h>
 *
 *     static kb_error *multiply(kb_context *ctx, kb_tensor host_x, kb_tensor host_w, kb_tensor *y)
 *     {
 *         kb_device_mesh mesh;
 *         kb_dtensor x, w, product;
 *         KB_TRY(kb_init_device_mesh(ctx, &(kb_device_mesh_spec){.ndim = 1}, &mesh));
 *         KB_TRY(kb_distribute_tensor(ctx, host_x, mesh,
 *                                     KB_PLACEMENTS(KB_REPLICATE_PLACEMENT), &x));
 *         KB_TRY(kb_distribute_tensor(ctx, host_w, mesh, KB_PLACEMENTS(KB_SHARD(1)), &w));
 *         KB_TRY(kb_dtensor_matmul(ctx, x, w, &product));
 *         KB_TRY(kb_dtensor_full_tensor(ctx, product, y));
 *         KB_TRY(kb_dtensor_free(ctx, product));
 *         KB_TRY(kb_dtensor_free(ctx, w));
 *         KB_TRY(kb_dtensor_free(ctx, x));
 *         return kb_device_mesh_free(ctx, mesh);
 *     }
 *
 * Every rank of the mesh makes the same calls in the same order, as with collectives. Outside
 * workers the program drives all ranks: its DTensors have the local tensors of all of them, and
 * each call acts for all. Handles belong to the rank that made them; objects of workers that have
 * ended can be freed outside workers.
 *
 * Dimensions of tensors may be negative: -1 is the last. Sizes need not divide: along a dimension
 * of n elements that w ranks share, each has ceil(n / w) of them as long as there are some left, as
 * in torch.chunk(); the last ranks may have fewer, or none. If both dimensions of a mesh shard
 * the same dimension of a tensor, the second divides the parts of the first.
 *
 * Everything runs on the machine and takes simulated time: collectives with "auto", independent of
 * ccl.yaml, and kernels on all PEs for local operations. docs/dtensor.md is the guide.
 */
#ifndef KERNBENCH_DTENSOR_H
#define KERNBENCH_DTENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Device meshes ------------------------------------------------------------------------ */

/* A handle of a mesh. That of a freed mesh is invalid forever. */
typedef struct kb_device_mesh {
    uint64_t id;
} kb_device_mesh;

enum { KB_MESH_DIMS = 2, KB_MESH_NAME_BYTES = 32 };

typedef struct kb_device_mesh_spec {
    uint32_t ndim;                            /* 1 or 2 */
    uint32_t shape[KB_MESH_DIMS];             /* ranks along each; 0 with ndim 1: all ranks */
    const char *mesh_dim_names[KB_MESH_DIMS]; /* NULL: "dim0", "dim1" */
    const uint32_t *ranks; /* of the process group, row by row; NULL: all of them, from 0 */
} kb_device_mesh_spec;

/* Makes a mesh, and the groups of ranks along its dimensions. The process group must be
 * initialised. Every rank of the process group calls it; a rank that is not in the mesh can only
 * free it. */
KB_API KB_MUST_USE kb_error *kb_init_device_mesh(kb_context *ctx, const kb_device_mesh_spec *spec,
                                                 kb_device_mesh *mesh);

/*
 * An error while DTensors or sub-meshes of it exist. Its groups last as long as the process group.
 */
KB_API KB_MUST_USE kb_error *kb_device_mesh_free(kb_context *ctx, kb_device_mesh mesh);

/* The number of dimensions, and of ranks along each. */
KB_API KB_MUST_USE kb_error *kb_device_mesh_shape(kb_context *ctx, kb_device_mesh mesh,
                                                  uint32_t *ndim, uint32_t shape[KB_MESH_DIMS]);

/* The caller's coordinates. Only in workers. */
KB_API KB_MUST_USE kb_error *kb_device_mesh_get_coordinate(kb_context *ctx, kb_device_mesh mesh,
                                                           uint32_t coordinate[KB_MESH_DIMS]);

/* The caller's coordinate along one dimension, by its name; and the group of the ranks along it
 * that includes the caller. Only in workers. */
KB_API KB_MUST_USE kb_error *kb_device_mesh_get_local_rank(kb_context *ctx, kb_device_mesh mesh,
                                                           const char *mesh_dim_name,
                                                           uint32_t *rank);
KB_API KB_MUST_USE kb_error *kb_device_mesh_get_group(kb_context *ctx, kb_device_mesh mesh,
                                                      const char *mesh_dim_name, kb_group *group);

/* mesh["tp"] of torch: the ranks of that group as a mesh of one dimension. Only in workers. It must
 * be freed before the mesh. */
KB_API KB_MUST_USE kb_error *kb_device_mesh_get_submesh(kb_context *ctx, kb_device_mesh mesh,
                                                        const char *mesh_dim_name,
                                                        kb_device_mesh *submesh);

/* ---- Placements --------------------------------------------------------------------------- */

typedef enum kb_placement_kind {
    KB_PLACEMENT_REPLICATE, /* each rank has all of it */
    KB_PLACEMENT_SHARD,     /* each rank has a part of dimension `dim` */
    KB_PLACEMENT_PARTIAL    /* the tensor is the reduction by `op` of the ranks' tensors */
} kb_placement_kind;

typedef struct kb_placement {
    kb_placement_kind kind;
    int dim;         /* of KB_PLACEMENT_SHARD */
    kb_reduce_op op; /* of KB_PLACEMENT_PARTIAL */
} kb_placement;

#define KB_REPLICATE_PLACEMENT ((kb_placement){KB_PLACEMENT_REPLICATE, 0, KB_SUM})
#define KB_SHARD(tensor_dim) ((kb_placement){KB_PLACEMENT_SHARD, (tensor_dim), KB_SUM})
#define KB_PARTIAL(reduce_op) ((kb_placement){KB_PLACEMENT_PARTIAL, 0, (reduce_op)})

/* One for each dimension of the mesh. If both are Partial they have the same operation, or are sum
 * and average: with others, such as sum and max, the order of the reductions would matter. */
typedef struct kb_placements {
    uint32_t count;
    kb_placement items[KB_MESH_DIMS];
} kb_placements;

/* KB_PLACEMENTS(KB_SHARD(0), KB_REPLICATE_PLACEMENT) is a kb_placements. */
#define KB_PLACEMENTS(...)                                                                         \
    ((kb_placements){.count = sizeof((kb_placement[]){__VA_ARGS__}) / sizeof(kb_placement),        \
                     .items = {__VA_ARGS__}})

enum { KB_PLACEMENTS_BYTES = 64 };

/* "(Shard(0), Partial(sum))" */
KB_API void kb_placements_print(kb_placements placements, char text[KB_PLACEMENTS_BYTES]);

/* ---- Distributed tensors ------------------------------------------------------------------ */

/* A handle of a DTensor. That of a freed DTensor is invalid forever. */
typedef struct kb_dtensor {
    uint64_t id;
} kb_dtensor;

/*
 * Distributes a tensor: Shard and Replicate only. A tensor of the host: the host sends each rank
 * its part. A tensor on the caller's device: that of the mesh's first rank is sent to the others by
 * scatter and broadcast; all ranks must give one of the same shape and dtype. Outside workers it
 * must be a tensor of the host. The tensor stays the caller's and is not changed.
 */
KB_API KB_MUST_USE kb_error *kb_distribute_tensor(kb_context *ctx, kb_tensor tensor,
                                                  kb_device_mesh mesh, kb_placements placements,
                                                  kb_dtensor *dtensor);

/*
 * A DTensor with this local tensor, on the caller's device and in any layout. Nothing is copied.
 * The tensor stays the caller's, who frees it after the DTensor. `shape` is that of the whole;
 * NULL: all ranks have parts of the same size. Outside workers, use the second function: one tensor
 * for each rank of the mesh, row by row.
 */
KB_API KB_MUST_USE kb_error *kb_dtensor_from_local(kb_context *ctx, kb_tensor local,
                                                   kb_device_mesh mesh, kb_placements placements,
                                                   const kb_shape *shape, kb_dtensor *dtensor);
KB_API KB_MUST_USE kb_error *kb_dtensor_from_locals(kb_context *ctx, const kb_tensor *locals,
                                                    size_t count, kb_device_mesh mesh,
                                                    kb_placements placements, const kb_shape *shape,
                                                    kb_dtensor *dtensor);

/* The local tensor of the caller. The DTensor owns it. Local tensors that calls have made are in
 * HBM, in rows over all PEs. Outside workers, use the second function: that of a rank of the
 * process group. */
KB_API KB_MUST_USE kb_error *kb_dtensor_to_local(kb_context *ctx, kb_dtensor dtensor,
                                                 kb_tensor *local);
KB_API KB_MUST_USE kb_error *kb_dtensor_local_of(kb_context *ctx, kb_dtensor dtensor, uint32_t rank,
                                                 kb_tensor *local);

/* The whole tensor, as a new tensor on the caller's device (outside workers: on that of the mesh's
 * first rank), which the caller frees. */
KB_API KB_MUST_USE kb_error *kb_dtensor_full_tensor(kb_context *ctx, kb_dtensor dtensor,
                                                    kb_tensor *full);

/*
 * The same tensor with other placements, as a new DTensor. The collective follows from the pair of
 * placements: Shard to Replicate is all_gather, Partial to Replicate all_reduce, Partial to Shard
 * reduce_scatter, Shard to another Shard all_to_all; Replicate to Shard or Partial is local. If
 * several orders of the mesh's dimensions are possible, the one that moves the fewest bytes is
 * taken.
 */
KB_API KB_MUST_USE kb_error *kb_dtensor_redistribute(kb_context *ctx, kb_dtensor dtensor,
                                                     kb_placements placements, kb_dtensor *result);

/* Frees the DTensor, and local tensors that calls have made for it. Does not wait. */
KB_API KB_MUST_USE kb_error *kb_dtensor_free(kb_context *ctx, kb_dtensor dtensor);

/* These never wait. */
KB_API KB_MUST_USE kb_error *kb_dtensor_shape(kb_context *ctx, kb_dtensor dtensor, kb_shape *shape);
KB_API KB_MUST_USE kb_error *kb_dtensor_dtype(kb_context *ctx, kb_dtensor dtensor, kb_dtype *dtype);
KB_API KB_MUST_USE kb_error *kb_dtensor_mesh(kb_context *ctx, kb_dtensor dtensor,
                                             kb_device_mesh *mesh);
KB_API KB_MUST_USE kb_error *kb_dtensor_placements(kb_context *ctx, kb_dtensor dtensor,
                                                   kb_placements *placements);

/* ---- Operations --------------------------------------------------------------------------- */

/*
 * Operations propagate placements by a table of rules (kb_dtensor_print_rules()). If no rule fits
 * the placements of the operands, they are redistributed so that a rule fits, with the
 * fewest bytes; a note (kb_context_options.on_note) and the result's report record it.
 * Operands have the same dtype, which is not f8, and the same mesh. Operands are not changed.
 */

/* a (.., m, k) times b (k, n). Sums are made in f32 and rounded once; of i8 the result is i32. */
KB_API KB_MUST_USE kb_error *kb_dtensor_matmul(kb_context *ctx, kb_dtensor a, kb_dtensor b,
                                               kb_dtensor *result);

/* Element-wise operations. Shapes broadcast: they are aligned at their last dimensions, and a
 * dimension of 1 is repeated. Division is for floating point only. */
typedef enum kb_binary_op {
    KB_BINARY_ADD,
    KB_BINARY_SUB,
    KB_BINARY_MUL,
    KB_BINARY_DIV,
    KB_BINARY_MAXIMUM,
    KB_BINARY_MINIMUM,
    KB_BINARY_OPS
} kb_binary_op;

KB_API KB_MUST_USE kb_error *kb_dtensor_binary(kb_context *ctx, kb_binary_op op, kb_dtensor a,
                                               kb_dtensor b, kb_dtensor *result);
KB_API KB_MUST_USE kb_error *kb_dtensor_add(kb_context *ctx, kb_dtensor a, kb_dtensor b,
                                            kb_dtensor *result);
KB_API KB_MUST_USE kb_error *kb_dtensor_mul(kb_context *ctx, kb_dtensor a, kb_dtensor b,
                                            kb_dtensor *result);

/* For integers abs, neg and relu keep the dtype; all others produce f32. */
typedef enum kb_unary_op {
    KB_UNARY_NEG,
    KB_UNARY_ABS,
    KB_UNARY_RELU,
    KB_UNARY_EXP,
    KB_UNARY_LOG,
    KB_UNARY_SQRT,
    KB_UNARY_RSQRT,
    KB_UNARY_SIGMOID,
    KB_UNARY_TANH,
    KB_UNARY_COS,
    KB_UNARY_SIN,
    KB_UNARY_GELU,
    KB_UNARY_SILU,
    KB_UNARY_OPS
} kb_unary_op;

KB_API KB_MUST_USE kb_error *kb_dtensor_unary(kb_context *ctx, kb_unary_op op, kb_dtensor x,
                                              kb_dtensor *result);

/* Over one dimension, which is dropped from the result or, with keepdim, has size 1; or over
 * all (KB_ALL_DIMS). Sums and means are made in f32 and rounded once for each rank; sums of
 * integers are i32, and means are of floating point only. */
#define KB_ALL_DIMS INT32_MIN

KB_API KB_MUST_USE kb_error *kb_dtensor_sum(kb_context *ctx, kb_dtensor x, int dim, bool keepdim,
                                            kb_dtensor *result);
KB_API KB_MUST_USE kb_error *kb_dtensor_mean(kb_context *ctx, kb_dtensor x, int dim, bool keepdim,
                                             kb_dtensor *result);
KB_API KB_MUST_USE kb_error *kb_dtensor_max(kb_context *ctx, kb_dtensor x, int dim, bool keepdim,
                                            kb_dtensor *result);
KB_API KB_MUST_USE kb_error *kb_dtensor_min(kb_context *ctx, kb_dtensor x, int dim, bool keepdim,
                                            kb_dtensor *result);

/* The redistribution of operands by the operation that made a DTensor. */
typedef struct kb_dtensor_report {
    uint32_t operands;     /* 0: not the result of an operation */
    bool redistributed[2]; /* by operand: no rule fitted its placements */
    kb_placements from[2]; /* the operand's placements, */
    kb_placements to[2];   /* and those that the operation used */
    uint64_t bytes;        /* sent by each rank for it, approximately */
} kb_dtensor_report;

KB_API KB_MUST_USE kb_error *kb_dtensor_get_report(kb_context *ctx, kb_dtensor dtensor,
                                                   kb_dtensor_report *report);

/* The table of rules, a line each. */
KB_API void kb_dtensor_print_rules(kb_warning_fn *print, void *self);

#ifdef __cplusplus
}
#endif

#endif
