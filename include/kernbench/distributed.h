/*
 * distributed.h: workers, the process group, and collectives, with the names of torch.distributed.
 */
#ifndef KERNBENCH_DISTRIBUTED_H
#define KERNBENCH_DISTRIBUTED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/base.h>
#include <kernbench/context.h>
#include <kernbench/launch.h>
#include <kernbench/request.h>
#include <kernbench/sim.h>
#include <kernbench/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Workers ----------------------------------------------------------------------------- */

/* The function of a worker. Its error, if any, becomes that of kb_spawn(). */
typedef kb_error *kb_worker_fn(kb_context *ctx, uint32_t rank, void *arg);

/*
 * Runs fn(ctx, rank, arg) once for each rank from 0 to nprocs - 1, and returns when all workers and
 * all their work are done. Workers are coroutines of one thread: while one waits, others continue,
 * in the order of their ranks, and simulated time advances only when all wait. If one fails, the
 * others are stopped, pending work ends, and the error lists the failed ranks with their errors;
 * the context can still be used. It must not be called inside a worker. Stacks are small
 * (kb_context_options): large arrays belong on the heap.
 */
KB_API KB_MUST_USE kb_error *kb_spawn(kb_context *ctx, kb_worker_fn *fn, void *arg,
                                      uint32_t nprocs);

/* A rank that failed in the last kb_spawn(). Ranks that were only stopped are not listed. */
typedef struct kb_failure {
    uint32_t rank;
    kb_code code;
    const char *message; /* valid until the next kb_spawn() */
} kb_failure;

/* In the order of ranks. Writes up to `room` failures, and returns their total number. */
KB_API size_t kb_spawn_failures(const kb_context *ctx, kb_failure *failures, size_t room);

/* Lets the other workers that can continue do so. If none can, simulated time advances until a
 * request of any worker ends. For long loops, and for loops around kb_request_test(). */
KB_API KB_MUST_USE kb_error *kb_cooperative_yield(kb_context *ctx);

/* The calling worker, to push cleanups with kb_co_push_cleanup(); NULL outside workers. */
KB_API kb_co *kb_context_worker(kb_context *ctx);

/* ---- The process group ------------------------------------------------------------------- */

/*
 * Initialises the process group. Rank r is the worker of rank r and has device r; with `--device`
 * there is one rank. Each worker initialises the group for itself, or the program outside workers
 * does so once, for all ranks. Commands through the fabric install queues between PEs, which takes
 * simulated time; the call returns when they are installed.
 *
 * ccl.yaml may define ranks as PEs (`rank: pe`, or a `world_size`): the first PEs of the machine.
 * One worker then drives all ranks, with one tensor for each device that has ranks.
 */
KB_API KB_MUST_USE kb_error *kb_distributed_init_process_group(kb_context *ctx,
                                                               const char *backend); /* "ahbm" */

/* Removes the queues, and ends all groups. The last rank to call it waits until the queues are
 * removed. A rank that initialises again waits until all ranks have left and the queues are
 * removed. */
KB_API KB_MUST_USE kb_error *kb_distributed_destroy_process_group(kb_context *ctx);
KB_API bool kb_distributed_is_initialized(kb_context *ctx);

/* An error before the group is initialised. Outside workers the rank is 0. */
KB_API KB_MUST_USE kb_error *kb_distributed_get_rank(kb_context *ctx, uint32_t *rank);
KB_API KB_MUST_USE kb_error *kb_distributed_get_world_size(kb_context *ctx, uint32_t *size);
KB_API KB_MUST_USE kb_error *kb_distributed_get_backend(kb_context *ctx, const char **backend);

/* A group of ranks. All zeros: all ranks. */
typedef struct kb_group {
    uint64_t id;
} kb_group;

/* Makes a group of these ranks, which become its ranks 0, 1, .. in the given order. Every rank
 * calls it, also ranks that are not in the group; calls are matched by their order. It lasts as
 * long as the process group. */
KB_API KB_MUST_USE kb_error *kb_distributed_new_group(kb_context *ctx, const uint32_t *ranks,
                                                      size_t count, kb_group *group);

/* The caller's rank in the group, UINT32_MAX if it is not in it; and the number of its ranks. */
KB_API KB_MUST_USE kb_error *kb_distributed_get_group_rank(kb_context *ctx, kb_group group,
                                                           uint32_t *rank);
KB_API KB_MUST_USE kb_error *kb_distributed_get_group_size(kb_context *ctx, kb_group group,
                                                           uint32_t *size);

typedef enum kb_reduce_op { KB_SUM, KB_MAX, KB_MIN, KB_PROD, KB_AVG, KB_REDUCE_OPS } kb_reduce_op;

KB_API const char *kb_reduce_op_name(kb_reduce_op op); /* "sum" */

typedef enum kb_collective_kind {
    KB_ALL_REDUCE,
    KB_ALL_GATHER,
    KB_REDUCE_SCATTER,
    KB_BROADCAST,
    KB_REDUCE,
    KB_GATHER,
    KB_SCATTER,
    KB_ALL_TO_ALL,
    KB_SEND,
    KB_RECV,
    KB_BARRIER,
    KB_COLLECTIVES
} kb_collective_kind;

KB_API const char *kb_collective_name(kb_collective_kind kind); /* "all_reduce" */

/* Options of a collective. NULL and all zeros: among all ranks, and the call waits. */
typedef struct kb_collective_options {
    kb_group group;
    kb_request *work;      /* NULL: the call waits. Else it returns at once, with a request
                              to be waited for and freed */
    const char *algorithm; /* an entry of ccl.yaml, or "auto", the fastest that works in any layout.
                              NULL: the entry of defaults.algorithm if it can do the
                              collective and the tensor has the layout that it needs, else "auto" */
    const kb_stream *stream; /* NULL: none: starts when the caller's work in streams has ended.
                                Else in this stream, and sends and receives keep their order */
} kb_collective_options;

/*
 * Collectives. All ranks of the group call the same one, with the same shapes, dtype, operation and
 * root: calls are matched by their order. A call that differs from the others fails at once, with a
 * message that names both calls; all calls fail if a rank ends without joining. Each rank starts
 * when it calls, and has its result when the call, or its work, is done. A late rank delays the
 * others.
 *
 * Tensors are on the rank's device, in any layout. Elements are counted row by row. If there is
 * a block for each rank, blocks are in the order of ranks. With "auto" results are
 * the same bits on every rank, and a reduction is element by element over the ranks. Entries of
 * ccl.yaml may need a certain layout, differ in the last bits between ranks, or reduce the shards
 * within a SIP too (reduce_shards): use "auto" to get the plain result.
 *
 * Tensors of a pending collective must not be changed or freed. If there is an input and an
 * output, they must be two tensors.
 *
 * Kernels of a rank run in the order of its calls, as in one stream. So an asynchronous send or
 * receive delays later calls of its rank, except for other sends and receives, until the other
 * rank has made its call. If that rank first waits for one of those later calls, there is a
 * deadlock, which is reported: both ranks should make the two calls in the same order.
 */

/* Each tensor becomes the sum (or the result of `op`) of the ranks' tensors, element by element. */
KB_API KB_MUST_USE kb_error *kb_distributed_all_reduce(kb_context *ctx, kb_tensor tensor,
                                                       kb_reduce_op op,
                                                       const kb_collective_options *options);

/* Each output becomes the inputs of all ranks, one after the other. */
KB_API KB_MUST_USE kb_error *kb_distributed_all_gather(kb_context *ctx, kb_tensor output,
                                                       kb_tensor input,
                                                       const kb_collective_options *options);

/* Rank r gets block r of the sum of the inputs. */
KB_API KB_MUST_USE kb_error *kb_distributed_reduce_scatter(kb_context *ctx, kb_tensor output,
                                                           kb_tensor input, kb_reduce_op op,
                                                           const kb_collective_options *options);

/* Each tensor becomes the root's tensor. */
KB_API KB_MUST_USE kb_error *kb_distributed_broadcast(kb_context *ctx, kb_tensor tensor,
                                                      uint32_t root,
                                                      const kb_collective_options *options);

/* As all_reduce, but only the root's tensor changes. */
KB_API KB_MUST_USE kb_error *kb_distributed_reduce(kb_context *ctx, kb_tensor tensor, uint32_t root,
                                                   kb_reduce_op op,
                                                   const kb_collective_options *options);

/*
 * The root's output becomes the inputs of all ranks; only the root needs an output ({0} elsewhere).
 */
KB_API KB_MUST_USE kb_error *kb_distributed_gather(kb_context *ctx, kb_tensor output,
                                                   kb_tensor input, uint32_t root,
                                                   const kb_collective_options *options);

/* Each rank's output becomes its block of the root's input; only the root needs an input. */
KB_API KB_MUST_USE kb_error *kb_distributed_scatter(kb_context *ctx, kb_tensor output,
                                                    kb_tensor input, uint32_t root,
                                                    const kb_collective_options *options);

/* Block s of rank r's output is block r of rank s's input. */
KB_API KB_MUST_USE kb_error *kb_distributed_all_to_all(kb_context *ctx, kb_tensor output,
                                                       kb_tensor input,
                                                       const kb_collective_options *options);

/* From one rank to another; only these two call it. The n-th send from a rank to another is matched
 * with the n-th receive there from that rank. */
KB_API KB_MUST_USE kb_error *kb_distributed_send(kb_context *ctx, kb_tensor tensor, uint32_t to,
                                                 const kb_collective_options *options);
KB_API KB_MUST_USE kb_error *kb_distributed_recv(kb_context *ctx, kb_tensor tensor, uint32_t from,
                                                 const kb_collective_options *options);

/* Waits until all ranks have called it. Without `work` it first waits for the caller's own work. */
KB_API KB_MUST_USE kb_error *kb_distributed_barrier(kb_context *ctx,
                                                    const kb_collective_options *options);

/* Any collective, for callers that drive several ranks: outside workers one tensor for each rank of
 * the group; if ranks are PEs, one for each device that has ranks. */
typedef struct kb_collective {
    kb_collective_kind kind;
    const kb_tensor *inputs, *outputs; /* equal for collectives in place */
    size_t count;                      /* of inputs, and of outputs */
    kb_reduce_op op;
    uint32_t root; /* or the other rank of a send or receive */
    kb_collective_options options;
} kb_collective;

KB_API KB_MUST_USE kb_error *kb_distributed_call(kb_context *ctx, const kb_collective *call);

/* Statistics of a collective. */
typedef struct kb_collective_stats {
    const char *algorithm; /* name of the entry that was used */
    kb_time lower_bound;   /* of the time of any algorithm on this machine */
    double bus_factor;     /* bus bandwidth = size / time * bus_factor, as in nccl-tests */
    uint64_t size;         /* in bytes, as in nccl-tests: of one rank's larger buffer */
    uint32_t participants;
} kb_collective_stats;

/* Of the caller's last finished collective in the group. */
KB_API KB_MUST_USE kb_error *kb_distributed_get_stats(kb_context *ctx, kb_group group,
                                                      kb_collective_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
