/*
 * test_handles.c: a handle is refused by every context but its own, also if its own was destroyed
 * and another one made since. Both contexts make the same things in the same order, so that only
 * the context tells their handles apart.
 *
 * Checks H5.
 */
#include "programs.h"

#include <kernbench/attention.h>
#include <kernbench/dtensor.h>
#include <kernbench/model.h>
#include <kernbench/tl.h>
#include <kernbench/tp.h>

#define FOREIGN " handle: it belongs to another context, or to one that was destroyed"

KB_KERNEL(nothing, tl_ptr x)
{
    (void)x;
}

typedef struct things {
    kb_context *ctx;
    kb_tensor tensor;
    kb_request request;
    kb_stream stream;
    kb_stream_event event;
    kb_graph graph;
    kb_group group;
    kb_device_mesh mesh;
    kb_dtensor dtensor;
    kb_kv_cache cache;
} things;

static const kb_tensor_spec spec = {.dtype = KB_F16, .shape = {2, {8, 8}}, .access = KB_UNTIMED};

static void make_things(things *t)
{
    static const uint32_t ranks[] = {0, 1};
    static const kb_kv_cache_spec cache = {
        .batch = 1, .capacity = 16, .heads = 2, .kv_heads = 2, .head_dim = 8};
    *t = (things){.ctx = open_small(NULL)};
    expect_ok(kb_zeros(t->ctx, &spec, &t->tensor));
    expect_ok(kb_stream_create(t->ctx, "s", &t->stream));
    expect_ok(kb_stream_event_create(t->ctx, &t->event));
    expect_ok(kb_graph_begin(t->ctx, "g", &t->graph));
    expect_ok(kb_launch(t->ctx, "nothing", &nothing, t->tensor));
    expect_ok(kb_graph_end(t->ctx, t->graph));
    expect_ok(kb_graph_launch(t->ctx, t->graph, &(kb_graph_options){.request = &t->request}));
    expect_ok(kb_kv_cache_create(t->ctx, &cache, &t->cache));
    expect_ok(kb_distributed_init_process_group(t->ctx, "ahbm"));
    expect_ok(kb_distributed_new_group(t->ctx, ranks, 2, &t->group));
    expect_ok(kb_init_device_mesh(t->ctx, &(kb_device_mesh_spec){.ndim = 1}, &t->mesh));
    static const uint16_t zeros[64];
    kb_tensor on_host;
    expect_ok(kb_from_host(t->ctx, &spec, zeros, sizeof zeros, &on_host));
    expect_ok(kb_distribute_tensor(t->ctx, on_host, t->mesh, KB_PLACEMENTS(KB_REPLICATE_PLACEMENT),
                                   &t->dtensor));
}

/* Handles of `from` in the context of `t`. */
static void expect_refusals(const things *t, const things *from)
{
    kb_context *ctx = t->ctx;
    kb_shape shape;
    bool done;
    uint32_t rank;
    kb_dtensor made;
    expect_error(kb_tensor_shape(ctx, from->tensor, &shape), KB_ERR_FAULT,
                 "kb_tensor_shape: invalid tensor" FOREIGN);
    expect_error(kb_tensor_copy(ctx, t->tensor, from->tensor, KB_UNTIMED), KB_ERR_FAULT,
                 "kb_tensor_copy: from: invalid tensor" FOREIGN);
    expect_error(kb_tensor_free(ctx, from->tensor), KB_ERR_FAULT,
                 "kb_tensor_free: invalid tensor" FOREIGN);
    expect_error(kb_launch(ctx, "nothing", &nothing, from->tensor), KB_ERR_FAULT,
                 "launch of 'nothing': argument 1: invalid tensor" FOREIGN);
    expect_error(kb_request_test(ctx, from->request, &done), KB_ERR_FAULT,
                 "kb_request_test: invalid request" FOREIGN);
    expect_error(kb_stream_synchronize(ctx, from->stream), KB_ERR_FAULT,
                 "kb_stream_synchronize: invalid stream" FOREIGN);
    expect_error(kb_stream_event_free(ctx, from->event), KB_ERR_FAULT,
                 "kb_stream_event_free: invalid event" FOREIGN);
    expect_error(kb_graph_free(ctx, from->graph), KB_ERR_FAULT,
                 "kb_graph_free: invalid graph" FOREIGN);
    expect_error(kb_distributed_get_group_rank(ctx, from->group, &rank), KB_ERR_FAULT,
                 "kb_distributed_get_group_rank: invalid group" FOREIGN);
    expect_error(kb_device_mesh_free(ctx, from->mesh), KB_ERR_FAULT,
                 "kb_device_mesh_free: invalid device mesh" FOREIGN);
    expect_error(kb_dtensor_matmul(ctx, t->dtensor, from->dtensor, &made), KB_ERR_FAULT,
                 "kb_dtensor_matmul: invalid DTensor" FOREIGN);
    expect_error(kb_kv_cache_free(ctx, from->cache), KB_ERR_FAULT,
                 "kb_kv_cache_free: invalid cache" FOREIGN);
    expect_error(kb_tp_layer_free(ctx, (kb_tp_layer){from->cache.id}), KB_ERR_FAULT,
                 "kb_tp_layer_free: invalid layer" FOREIGN);
    expect_error(kb_model_free(ctx, (kb_model){from->cache.id}), KB_ERR_FAULT,
                 "kb_model_free: invalid model" FOREIGN);
    expect_ok(kb_tensor_shape(ctx, t->tensor, &shape));
    expect_ok(kb_request_wait(ctx, t->request, NULL));
}

static void handles_of_another_context_are_refused(void **state)
{
    (void)state;
    things a, b;
    make_things(&a);
    make_things(&b);
    expect_refusals(&a, &b);
    expect_refusals(&b, &a);
    kb_context_destroy(a.ctx);
    kb_context_destroy(b.ctx);
}

static void handles_of_a_destroyed_context_are_refused(void **state)
{
    (void)state;
    things a, b;
    make_things(&a);
    kb_context_destroy(a.ctx);
    make_things(&b);
    expect_refusals(&b, &a);
    kb_context_destroy(b.ctx);
}

/* A number that no context ever had is no other context's. */
static void nonsense_is_invalid(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    kb_shape shape;
    expect_error(kb_tensor_shape(ctx, (kb_tensor){UINT64_MAX}, &shape), KB_ERR_FAULT,
                 "kb_tensor_shape: invalid or freed tensor handle");
    expect_error(kb_tensor_shape(ctx, (kb_tensor){7}, &shape), KB_ERR_FAULT,
                 "kb_tensor_shape: invalid or freed tensor handle");
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(handles_of_another_context_are_refused),
        cmocka_unit_test(handles_of_a_destroyed_context_are_refused),
        cmocka_unit_test(nonsense_is_invalid),
    };
    return cmocka_run_group_tests_name("handles", tests, NULL, NULL);
}
