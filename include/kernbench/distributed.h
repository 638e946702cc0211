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

/* What a worker does. Its error, if any, becomes that of kb_spawn(). */
typedef kb_error *kb_worker_fn(kb_context *ctx, uint32_t rank, void *arg);

/*
 * Runs fn(ctx, rank, arg) once for each rank from 0 to nprocs - 1 and returns when all are done,
 * with all their work. They are coroutines of one thread: while one waits, others go on, in the
 * order of their ranks, and time passes only when all wait. If one fails, the others are unwound,
 * what is under way ends, and the error says which ranks failed and why; the context can be used
 * on. Not inside a worker. Their stacks are small (kb_context_options): large arrays belong on the
 * heap.
 */
KB_API KB_MUST_USE kb_error *kb_spawn(kb_context *ctx, kb_worker_fn *fn, void *arg,
                                      uint32_t nprocs);

/* A rank that failed in the last kb_spawn(), and how; ranks that were only aborted are not listed.
 */
typedef struct kb_failure {
    uint32_t rank;
    kb_code code;
    const char *message; /* good until the next kb_spawn() */
} kb_failure;

/* In the order of ranks. Writes at most `room`, and returns how many there are. */
KB_API size_t kb_spawn_failures(const kb_context *ctx, kb_failure *failures, size_t room);

/*
 * Lets the other workers go on that can. If none can, time passes until a request of any worker
 * ends. For long loops, and for loops around kb_request_test().
 */
KB_API KB_MUST_USE kb_error *kb_cooperative_yield(kb_context *ctx);

/* The calling worker, to push cleanups with kb_co_push_cleanup(); NULL outside workers. */
KB_API kb_co *kb_context_worker(kb_context *ctx);

/* ---- The process group ------------------------------------------------------------------- */

/*
 * Ranks that do things together. Rank r is the worker of rank r and has device r; with `--device`
 * there is one rank. Each worker initialises the group for itself, or the program outside workers
 * does it once for all, and then stands for all ranks. Queues between PEs are installed by
 * commands through the fabric, which takes simulated time; it returns when all are.
 *
 * ccl.yaml may say that ranks are PEs (`rank: pe`, or a `world_size`): those are the
 * first PEs of the machine. One worker then drives all of them, with one tensor for each device that has some.
 */
KB_API KB_MUST_USE kb_error *kb_distributed_init_process_group(kb_context *ctx,
                                                               const char *backend); /* "ahbm" */

/*
 * Removes the queues. The last rank to call it waits until they are; a rank that initialises again
 * waits until all ranks have left and they are. Groups go with it.
 */
KB_API KB_MUST_USE kb_error *kb_distributed_destroy_process_group(kb_context *ctx);
KB_API bool kb_distributed_is_initialized(kb_context *ctx);

/* Errors before the group is initialised. Outside workers the rank is 0. */
KB_API KB_MUST_USE kb_error *kb_distributed_get_rank(kb_context *ctx, uint32_t *rank);
KB_API KB_MUST_USE kb_error *kb_distributed_get_world_size(kb_context *ctx, uint32_t *size);
KB_API KB_MUST_USE kb_error *kb_distributed_get_backend(kb_context *ctx, const char **backend);

/* Some of the ranks. All zeros: all of them. */
typedef struct kb_group {
    uint64_t id;
} kb_group;

/*
 * A group of these ranks, which become its ranks 0, 1, .. in the order given. Every rank calls it,
 * also those that are not in it; calls are matched by their order. It lasts as long as the process
 * group.
 */
KB_API KB_MUST_USE kb_error *kb_distributed_new_group(kb_context *ctx, const uint32_t *ranks,
                                                      size_t count, kb_group *group);

/* The caller's rank in the group, UINT32_MAX if it is not in it; and how many there are. */
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

/* How a collective is called. NULL and all zeros: among all ranks, and it waits. */
typedef struct kb_collective_options {
    kb_group group;
    kb_request *work;      /* NULL: the call waits. Else it does not, and this becomes a request
                              to be waited for and freed */
    const char *algorithm; /* an entry of ccl.yaml, or "auto", the fastest that works in any layout.
                              NULL: the entry that defaults.algorithm names where it can do the
                              collective and the tensor has the layout that it needs, else "auto" */
    const kb_stream *stream; /* NULL: in none: starts when the caller's work in streams has ended.
                                Else in this one, and sends and receives do not pass each other */
} kb_collective_options;

/*
 * Collectives. All ranks of the group call the same one, with the same shapes, dtype, operation and
 * root: calls are matched by their order, and one that differs from the others fails at once, with
 * who, what and where; so do all when a rank ends without having joined. Each rank starts when it
 * calls, and a result is there when the call, or its work, is done: ranks that come later make the
 * others wait.
 *
 * Tensors are on the rank's device, in any layout. Elements are counted row by row. Where there is
 * a block for each rank, blocks follow each other in the order of ranks. With "auto" results are
 * the same bits on every rank, and a reduction is element by element over the ranks. Entries of
 * ccl.yaml may need a certain layout, differ in the last bits between ranks, or combine the shards
 * inside a SIP too (reduce_shards): a call that needs the plain result asks for "auto".
 *
 * What a collective under way uses is not to be changed or freed. Where there is an input and an
 * output, these are two tensors.
 *
 * Kernels of a rank run in the order of its calls, as in one stream. So an asynchronous send or
 * receive holds back what its rank calls later, but for other sends and receives, until the other
 * rank has called its part; and if that rank first waits for one of those later calls, neither goes
 * on: it is a deadlock, and is reported. Both ranks should have the two in the same order.
 */

/* The sum (or what `op` says) of the ranks' tensors, element by element, becomes each of them. */
KB_API KB_MUST_USE kb_error *kb_distributed_all_reduce(kb_context *ctx, kb_tensor tensor,
                                                       kb_reduce_op op,
                                                       const kb_collective_options *options);

/* The inputs of all ranks, one behind the other, become the output of each. */
KB_API KB_MUST_USE kb_error *kb_distributed_all_gather(kb_context *ctx, kb_tensor output,
                                                       kb_tensor input,
                                                       const kb_collective_options *options);

/* Of the sum of the inputs, rank r gets block r. */
KB_API KB_MUST_USE kb_error *kb_distributed_reduce_scatter(kb_context *ctx, kb_tensor output,
                                                           kb_tensor input, kb_reduce_op op,
                                                           const kb_collective_options *options);

/* The root's tensor becomes that of all. */
KB_API KB_MUST_USE kb_error *kb_distributed_broadcast(kb_context *ctx, kb_tensor tensor,
                                                      uint32_t root,
                                                      const kb_collective_options *options);

/* As all_reduce, but only the root's tensor changes. */
KB_API KB_MUST_USE kb_error *kb_distributed_reduce(kb_context *ctx, kb_tensor tensor, uint32_t root,
                                                   kb_reduce_op op,
                                                   const kb_collective_options *options);

/* The root's output gets the inputs of all; only the root needs an output ({0} elsewhere). */
KB_API KB_MUST_USE kb_error *kb_distributed_gather(kb_context *ctx, kb_tensor output,
                                                   kb_tensor input, uint32_t root,
                                                   const kb_collective_options *options);

/* Each rank's output gets its block of the root's input; only the root needs one. */
KB_API KB_MUST_USE kb_error *kb_distributed_scatter(kb_context *ctx, kb_tensor output,
                                                    kb_tensor input, uint32_t root,
                                                    const kb_collective_options *options);

/* Block s of rank r's output is block r of rank s's input. */
KB_API KB_MUST_USE kb_error *kb_distributed_all_to_all(kb_context *ctx, kb_tensor output,
                                                       kb_tensor input,
                                                       const kb_collective_options *options);

/* From rank to rank: only these two call it. The n-th send from a rank to another is matched with
 * the n-th receive there from that rank. */
KB_API KB_MUST_USE kb_error *kb_distributed_send(kb_context *ctx, kb_tensor tensor, uint32_t to,
                                                 const kb_collective_options *options);
KB_API KB_MUST_USE kb_error *kb_distributed_recv(kb_context *ctx, kb_tensor tensor, uint32_t from,
                                                 const kb_collective_options *options);

/* Waits for the caller's own work, unless it returns work, and then until all ranks have called. */
KB_API KB_MUST_USE kb_error *kb_distributed_barrier(kb_context *ctx,
                                                    const kb_collective_options *options);

/*
 * The same with everything said, for those who drive several ranks: outside workers one tensor for
 * each rank of the group, and where ranks are PEs one for each device that has some.
 */
typedef struct kb_collective {
    kb_collective_kind kind;
    const kb_tensor *inputs, *outputs; /* the same where it works in place */
    size_t count;                      /* of each */
    kb_reduce_op op;
    uint32_t root; /* or the other rank */
    kb_collective_options options;
} kb_collective;

KB_API KB_MUST_USE kb_error *kb_distributed_call(kb_context *ctx, const kb_collective *call);

/* What is known of a collective before it runs, and of the last one. */
typedef struct kb_collective_stats {
    const char *algorithm; /* that is used, or was: the entry's name */
    kb_time lower_bound;   /* no algorithm can be faster on this machine */
    double bus_factor;     /* bus bandwidth = size / time * this, as in nccl-tests */
    uint64_t size;         /* in bytes, as in nccl-tests: of one rank's larger buffer */
    uint32_t participants;
} kb_collective_stats;

/* Of the caller's last collective in the group that is done. */
KB_API KB_MUST_USE kb_error *kb_distributed_get_stats(kb_context *ctx, kb_group group,
                                                      kb_collective_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
