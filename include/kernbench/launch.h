/*
 * launch.h: launching kernels, their arguments, and the times of a launch.
 */
#ifndef KERNBENCH_LAUNCH_H
#define KERNBENCH_LAUNCH_H

#include <stddef.h>
#include <stdint.h>

#include <kernbench/base.h>
#include <kernbench/context.h>
#include <kernbench/profile.h>
#include <kernbench/request.h>
#include <kernbench/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Launching kernels ------------------------------------------------------------------- */

/* A kernel: see KB_KERNEL in <kernbench/tl.h>. */
typedef struct kb_kernel kb_kernel;

typedef enum kb_arg_kind { KB_ARG_INTEGER, KB_ARG_REAL, KB_ARG_TENSOR, KB_ARG_TENSORS } kb_arg_kind;

/* What a kernel is given. */
typedef struct kb_arg {
    kb_arg_kind kind;
    int64_t integer;
    double real;
    kb_tensor tensor;
    const kb_tensor *tensors; /* one for each device that it is launched on */
    size_t tensor_count;
} kb_arg;

static inline kb_arg kb_arg_integer(int64_t integer)
{
    kb_arg arg = {KB_ARG_INTEGER, integer, 0, {0}, NULL, 0};
    return arg;
}

static inline kb_arg kb_arg_real(double real)
{
    kb_arg arg = {KB_ARG_REAL, 0, real, {0}, NULL, 0};
    return arg;
}

static inline kb_arg kb_arg_unsigned(uint64_t integer)
{
    return integer > INT64_MAX ? kb_arg_real((double)integer) : kb_arg_integer((int64_t)integer);
}

static inline kb_arg kb_arg_tensor(kb_tensor tensor)
{
    kb_arg arg = {KB_ARG_TENSOR, 0, 0, tensor, NULL, 0};
    return arg;
}

/* Each device gets the one that is on it: KB_EACH(shards_of_w, 4). */
static inline kb_arg kb_arg_tensors(const kb_tensor *tensors, size_t count)
{
    kb_arg arg = {KB_ARG_TENSORS, 0, 0, {0}, tensors, count};
    return arg;
}

#define KB_EACH(tensors, count) kb_arg_tensors((tensors), (count))

/*
 * Runs the kernel on every PE that has a part of one of the tensors, and waits until all are done:
 *
 *     KB_TRY(kb_launch(ctx, "scale", &scale, x, 256, 0.5));
 *
 * The name is for reports; NULL: the kernel's own. The tensors are on one device, or in sets of one
 * for each device (KB_EACH): all devices are told before any is waited for. The kernel sees the
 * addresses of those of its device. A launch is sent when all that the caller sent before outside
 * streams has arrived (copies, mappings). Launches of a stream run one after the other: the next
 * one starts when the one before has ended on all its PEs. In C++, use kb_launch_args().
 */
#define kb_launch(ctx, label, kernel, ...)                                                         \
    kb_launch_with((ctx), (&(kb_launch_options){.name = (label)}), (kernel), __VA_ARGS__)

/* The same without waiting: *handle is a request to be waited for and freed. */
#define kb_launch_async(ctx, handle, label, kernel, ...)                                           \
    kb_launch_with((ctx), (&(kb_launch_options){.name = (label), .request = (handle)}), (kernel),  \
                   __VA_ARGS__)

/* A set of queues between PEs: see queue.h. */
typedef struct kb_queue_set {
    uint64_t id;
} kb_queue_set;

/* A sequence of work on devices: see stream.h. 0 is the default stream. */
typedef struct kb_stream {
    uint64_t id;
} kb_stream;

/* Which results of the work before it in its stream a launch needs. */
typedef enum kb_scope {
    KB_SCOPE_DEVICE, /* all of it: it starts when that has ended on all PEs */
    KB_SCOPE_CUBE,   /* what the same cube made: it starts there when its PEs have ended */
    KB_SCOPE_PE      /* what the same PE made: it starts there at once */
} kb_scope;

/* How a kernel is launched. NULL and all zeros: as kb_launch() does. */
typedef struct kb_launch_options {
    const char *name;    /* for reports; NULL: the kernel's own */
    kb_request *request; /* NULL: the call waits. Else it does not, and this becomes a request to be
                            waited for and freed */
    kb_queue_set queues; /* that the kernel sends and receives by; 0: on each PE the set that was
                            installed there last, if any */
    kb_stream stream;
    kb_scope scope; /* the race check finds accesses that need a wider one */
} kb_launch_options;

#define kb_launch_with(ctx, options, kernel, ...)                                                  \
    kb_launch_args((ctx), (options), (kernel), KB_DETAIL_ARGS(__VA_ARGS__))

KB_API KB_MUST_USE kb_error *kb_launch_args(kb_context *ctx, const kb_launch_options *options,
                                            const kb_kernel *kernel, const kb_arg *args,
                                            size_t arg_count);

/* What became of a launch on one device. */
typedef struct kb_launch_result {
    const char *name; /* good as long as the context */
    uint32_t sip;
    uint32_t pes; /* that ran it */
    kb_time issued, ended;
    kb_time pe_exec;            /* from the first PE that began to the last that ended */
    kb_time held;               /* at the io_cpu, until what came before in its stream had ended */
    kb_time network;            /* all the rest: on the way there and back */
    kb_time_sum busy[KB_UNITS]; /* of the units of all PEs */
    kb_split_time split;        /* of the PEs' time in this kernel, summed over all PEs */
    kb_time_sum causes[KB_CAUSES]; /* the same in detail; of LAUNCH and IMBALANCE there is none */
} kb_launch_result;

/* Of a launch that is done: one a device, in their order. Writes at most `room`, and how many there
 * are. */
KB_API KB_MUST_USE kb_error *kb_launch_results(kb_context *ctx, kb_request request,
                                               kb_launch_result *results, size_t room,
                                               size_t *count);

#ifdef __cplusplus
}
#endif

#include <kernbench/detail/launch.h>

#endif
