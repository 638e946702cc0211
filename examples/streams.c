/*
 * streams.c: work that follows each other on the device.
 *
 * A vector is uploaded in parts by one stream while another one scales the parts that are there: an
 * event for each part orders the two. Then the same steps are recorded as a graph, and the graph is
 * launched with one message of the host. Prints:
 *
 *     two streams:  the sum is 6
 *     as a graph:   the sum is 6, 1.6 times as fast
 */
#include <stdio.h>
#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

enum { PARTS = 4, ELEMENTS = 4096 };

KB_KERNEL(scale, tl_ptr x, float factor)
{
    int64_t pes = tl_num_programs(0) * tl_num_programs(1);
    int64_t me = tl_program_id(1) * tl_num_programs(0) + tl_program_id(0);
    int64_t count = tl_part_size(ELEMENTS, pes, me);
    tl_ptr at = x + tl_part_begin(ELEMENTS, pes, me) * 4;
    tl_store(at, tl_mul(tl_load(at, tl_shape(count), TL_F32), factor));
}

typedef struct program {
    kb_stream copies, kernels;
    kb_stream_event loaded;
    kb_tensor host[PARTS], device[PARTS];
} program;

static kb_error *make(kb_context *ctx, program *p)
{
    static const kb_policy by_blocks = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    kb_tensor_spec spec = {.dtype = KB_F32, .shape = KB_SHAPE(ELEMENTS), .policy = &by_blocks};
    KB_TRY(kb_stream_create(ctx, "copies", &p->copies));
    KB_TRY(kb_stream_create(ctx, "kernels", &p->kernels));
    KB_TRY(kb_stream_event_create(ctx, &p->loaded));
    for (int i = 0; i < PARTS; i++) {
        static float zeros[ELEMENTS];
        KB_TRY(kb_from_host(ctx, &spec, zeros, sizeof zeros, &p->host[i]));
        KB_TRY(kb_tensor_set(ctx, p->host[i], KB_UNTIMED, &KB_INDEX(7), i));
        KB_TRY(kb_empty(ctx, &spec, &p->device[i]));
    }
    return kb_synchronize(ctx);
}

/* The calls, which run or are recorded. */
static kb_error *steps(kb_context *ctx, program *p)
{
    for (int i = 0; i < PARTS; i++) {
        kb_request request;
        kb_launch_options options = {.name = "scale", .request = &request, .stream = p->kernels};
        KB_TRY(kb_stream_copy(ctx, p->copies, p->device[i], p->host[i], NULL));
        KB_TRY(kb_stream_record(ctx, p->copies, p->loaded));
        KB_TRY(kb_stream_wait(ctx, p->kernels, p->loaded));
        KB_TRY(kb_launch_with(ctx, &options, &scale, p->device[i], 1.0));
        KB_TRY(kb_request_free(ctx, request)); /* which is waited for with all others */
    }
    return NULL;
}

static kb_error *sum(kb_context *ctx, const program *p, double *total)
{
    *total = 0;
    for (int i = 0; i < PARTS; i++) {
        double value;
        KB_TRY(kb_tensor_get(ctx, p->device[i], KB_UNTIMED, &KB_INDEX(7), &value));
        *total += value;
    }
    return NULL;
}

static kb_error *run(kb_context *ctx)
{
    program p;
    kb_graph graph;
    double total;
    KB_TRY(make(ctx, &p));
    kb_time start = kb_context_now(ctx);
    KB_TRY(steps(ctx, &p));
    KB_TRY(kb_synchronize(ctx));
    kb_time by_calls = kb_context_now(ctx) - start;
    KB_TRY(sum(ctx, &p, &total));
    printf("two streams:  the sum is %g\n", total);

    KB_TRY(kb_graph_begin(ctx, "steps", &graph));
    KB_TRY(steps(ctx, &p));
    KB_TRY(kb_graph_end(ctx, graph));
    start = kb_context_now(ctx);
    KB_TRY(kb_graph_launch(ctx, graph, NULL));
    kb_time by_graph = kb_context_now(ctx) - start;
    KB_TRY(sum(ctx, &p, &total));
    printf("as a graph:   the sum is %g, %.1f times as fast\n", total,
           (double)by_calls / (double)by_graph);
    return NULL;
}

int main(void)
{
    kb_context *ctx;
    kb_error *err = kb_context_create(NULL, &ctx);
    if (!err)
        err = run(ctx);
    if (err)
        fprintf(stderr, "%s\n", kb_error_message(err));
    int code = (int)kb_error_code(err);
    kb_error_free(err);
    kb_context_destroy(ctx);
    return code;
}
