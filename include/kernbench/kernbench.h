/*
 * kernbench.h: all calls of host programs. Each header that it includes can be included alone.
 *
 * Here a matrix is cut by rows over the cubes of a device and by columns over the PEs of each, goes
 * there through the fabric of the simulated machine, and comes back:
 *
 *     #include <kernbench/kernbench.h>
 *     #include <stdio.h>
 *
 *     static kb_error *there_and_back(kb_context *ctx)
 *     {
 *         const float numbers[2][3] = {{1, 2, 3}, {4, 5, 6}};
 *         float back[2][3];
 *         const kb_policy policy = {.cube = KB_ROW_WISE, .pe = KB_COLUMN_WISE};
 *         const kb_tensor_spec spec = {
 *             .name = "x", .dtype = KB_F32, .shape = KB_SHAPE(2, 3), .policy = &policy};
 *         kb_tensor host, x;
 *         KB_TRY(kb_from_host(ctx, &spec, numbers, sizeof numbers, &host));
 *         KB_TRY(kb_empty(ctx, &spec, &x));
 *         KB_TRY(kb_tensor_copy(ctx, x, host, KB_TIMED));
 *         KB_TRY(kb_tensor_to_host(ctx, x, KB_TIMED, back, sizeof back));
 *         printf("%g came back after %.3f ns\n", back[1][2], kb_to_ns(kb_context_now(ctx)));
 *         KB_TRY(kb_tensor_free(ctx, host));
 *         return kb_tensor_free(ctx, x);
 *     }
 *
 *     int main(void)
 *     {
 *         kb_context *ctx;
 *         kb_error *err = kb_context_create(NULL, &ctx);
 *         if (!err)
 *             err = there_and_back(ctx);
 *         if (err)
 *             fprintf(stderr, "%s\n", kb_error_message(err));
 *         int code = (int)kb_error_code(err);
 *         kb_error_free(err);
 *         kb_context_destroy(ctx);
 *         return code;
 *     }
 *
 * Names follow PyTorch's where it has the thing. Calls that can fail return an error, NULL if all
 * went well, and their results through their last arguments; a handle that could not be had is 0.
 * The first argument is the context; then come the object or objects, through which access (whether
 * it takes simulated time), what goes in, and what comes out.
 *
 * Nothing here is global: a context belongs to the thread that uses it, and a process may have
 * many.
 *
 * Further headers build on these: tl.h, the operations of kernels; ccl.h, collectives of one's own;
 * nn.h, attention.h, tp.h, dtensor.h and model.h, layers and models.
 */
#ifndef KERNBENCH_KERNBENCH_H
#define KERNBENCH_KERNBENCH_H

#include <kernbench/base.h>
#include <kernbench/bench.h>
#include <kernbench/context.h>
#include <kernbench/distributed.h>
#include <kernbench/launch.h>
#include <kernbench/memory.h>
#include <kernbench/profile.h>
#include <kernbench/queue.h>
#include <kernbench/request.h>
#include <kernbench/sim.h>
#include <kernbench/stream.h>
#include <kernbench/tensor.h>

#endif
