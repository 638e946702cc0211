/*
 * test_stream_alloc.c: allocations fail in turn while streams, events, copies, collectives in
 * streams and a graph with a collective are used. The result is an error about memory, without
 * leaks.
 */
#include "support/failing_alloc.h"
#include "trial.h"

#include <kernbench/tl.h>

enum { WORLD = 2, COUNT = 80 };

KB_KERNEL(add_one, tl_ptr x, int n)
{
    tl_ptr mine = x + (tl_program_id(1) * tl_num_programs(0) + tl_program_id(0)) * n * 2;
    tl_store(mine, tl_add(tl_load(mine, tl_shape(n), TL_F16), 1));
}

typedef struct tensors {
    kb_tensor x[WORLD], y[WORLD], host;
} tensors;

typedef kb_error *body_fn(kb_context *ctx, const tensors *t);

static kb_error *reduce_in(kb_context *ctx, const tensors *t, const kb_stream *stream,
                           kb_request *request)
{
    kb_collective call = {.kind = KB_ALL_REDUCE,
                          .op = KB_MAX,
                          .inputs = t->x,
                          .outputs = t->x,
                          .count = WORLD,
                          .options = {.stream = stream, .work = request}};
    return kb_distributed_call(ctx, &call);
}

static kb_error *fill_streams(kb_context *ctx, const tensors *t, const kb_stream *streams,
                              kb_stream_event event)
{
    kb_request request;
    kb_launch_options narrow = {.stream = streams[0], .scope = KB_SCOPE_PE, .request = &request};
    KB_TRY(kb_stream_copy(ctx, streams[0], t->x[0], t->host, NULL));
    KB_TRY(kb_launch_with(ctx, &narrow, &add_one, t->x[0], 10));
    KB_TRY(kb_request_free(ctx, request));
    KB_TRY(kb_launch_with(ctx, &narrow, &add_one, t->x[0], 10));
    KB_TRY(kb_request_free(ctx, request));
    KB_TRY(kb_stream_record(ctx, streams[0], event));
    KB_TRY(kb_stream_wait(ctx, streams[1], event));
    KB_TRY(kb_stream_copy(ctx, streams[1], t->y[1], t->x[0], NULL));
    KB_TRY(reduce_in(ctx, t, &streams[1], &request));
    KB_TRY(kb_request_free(ctx, request));
    KB_TRY(kb_stream_copy(ctx, streams[1], t->host, t->x[0], NULL));
    return kb_stream_synchronize(ctx, streams[1]);
}

static kb_error *use_streams(kb_context *ctx, const tensors *t)
{
    kb_stream streams[2];
    kb_stream_event event;
    for (int i = 0; i < 2; i++)
        KB_TRY(kb_stream_create(ctx, NULL, &streams[i]));
    KB_TRY(kb_stream_event_create(ctx, &event));
    KB_TRY(fill_streams(ctx, t, streams, event));
    KB_TRY(kb_synchronize(ctx));
    for (int i = 0; i < 2; i++)
        KB_TRY(kb_stream_destroy(ctx, streams[i]));
    return kb_stream_event_free(ctx, event);
}

static kb_error *record(kb_context *ctx, const tensors *t, kb_stream side, kb_graph *graph)
{
    kb_stream_event event;
    KB_TRY(kb_stream_event_create(ctx, &event));
    KB_TRY(kb_graph_begin(ctx, "step", graph));
    KB_TRY(kb_stream_copy(ctx, KB_DEFAULT_STREAM, t->x[0], t->host, NULL));
    KB_TRY(kb_launch(ctx, NULL, &add_one, t->x[0], 10));
    KB_TRY(kb_stream_record(ctx, KB_DEFAULT_STREAM, event));
    KB_TRY(kb_stream_wait(ctx, side, event));
    KB_TRY(kb_stream_copy(ctx, side, t->y[1], t->x[0], NULL));
    KB_TRY(reduce_in(ctx, t, &side, NULL));
    return kb_graph_end(ctx, *graph);
}

static kb_error *use_graph(kb_context *ctx, const tensors *t)
{
    kb_stream side;
    kb_graph graph;
    kb_request request;
    KB_TRY(kb_stream_create(ctx, "side", &side));
    KB_TRY(record(ctx, t, side, &graph));
    KB_TRY(kb_graph_launch(ctx, graph, &(kb_graph_options){.request = &request}));
    KB_TRY(kb_launch(ctx, NULL, &add_one, t->x[1], 10));
    KB_TRY(kb_request_wait(ctx, request, NULL));
    KB_TRY(kb_request_free(ctx, request));
    KB_TRY(kb_graph_set_arg(ctx, graph, 1, 0, kb_arg_tensor(t->y[0])));
    KB_TRY(kb_graph_launch(ctx, graph, NULL));
    return kb_graph_free(ctx, graph);
}

/* With the n-th allocation failing; false if there were fewer. */
static bool try_nth(body_fn *body, long n, failing_alloc_mode mode, bool grouped)
{
    tensors t;
    float zeros[COUNT] = {0};
    kb_context *ctx =
        open_sips(WORLD, 2, 1, NULL, (kb_context_options){.threads = 1, .races = KB_RACES_FAIL});
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        expect_ok(kb_ahbm_set_device(ctx, rank));
        t.x[rank] = filled_f16(ctx, COUNT, rank);
        t.y[rank] = filled_f16(ctx, COUNT, rank);
    }
    kb_tensor_spec spec = {.name = "host", .dtype = KB_F16, .shape = KB_SHAPE(COUNT)};
    expect_ok(kb_from_host(ctx, &spec, zeros, COUNT * 2, &t.host));
    if (grouped) {
        kb_request request;
        expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
        expect_ok(reduce_in(ctx, &t, NULL, &request)); /* which chooses and installs */
        expect_ok(kb_request_wait(ctx, request, NULL));
        expect_ok(kb_request_free(ctx, request));
    }
    failing_alloc_arm(n, mode);
    kb_error *err = grouped ? NULL : kb_distributed_init_process_group(ctx, "ahbm");
    if (!err)
        err = body(ctx, &t);
    bool failed = failing_alloc_disarm();
    if (err && kb_error_code(err) != KB_ERR_HOST)
        fail_msg("allocation %ld: %s\n%s", n, kb_error_message(err), kb_error_detail(err));
    if (!failed)
        expect_ok(err);
    kb_error_free(err);
    kb_context_destroy(ctx);
    return failed;
}

/* Once the group is there, each of the first ones and then a sample; few before. */
static long next_one(long n)
{
#ifdef KB_ASAN
    enum { EACH = 20, STEP = 29 };
#else
    enum { EACH = 100, STEP = 5 };
#endif
    return n < EACH && !RUNNING_ON_VALGRIND ? n + 1 : n + STEP;
}

static void try_many(body_fn *body)
{
    for (int mode = FAIL_ONCE; mode <= FAIL_ONWARDS; mode++) {
        size_t before = failing_alloc_live();
        for (long n = 1; try_nth(body, n, (failing_alloc_mode)mode, true); n = next_one(n))
            assert_int_equal(failing_alloc_live(), before);
        for (long n = 1; try_nth(body, n, (failing_alloc_mode)mode, false); n += n / 4 + 1)
            assert_int_equal(failing_alloc_live(), before);
    }
}

static void streams_without_memory(void **state)
{
    (void)state;
    try_many(use_streams);
}

static void graphs_without_memory(void **state)
{
    (void)state;
    try_many(use_graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_without_memory),
        cmocka_unit_test(graphs_without_memory),
    };
    return cmocka_run_group_tests_name("streams, memory", tests, NULL, NULL);
}
