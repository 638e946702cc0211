/*
 * test_mlp.c: a two-layer MLP by DTensors (weights Shard(1) and Shard(0), the result redistributed
 * from Partial to Replicate) issues the same collectives as one of column and row parallel layers,
 * and gives the same numbers to rounding.
 */
#include "plain.h"
#include "support/seed.h"

#include <kernbench/tl.h>
#include <kernbench/tp.h>

enum { TOKENS = 12, MODEL = 24, HIDDEN = 48, MAX_CALLS = 64 };

typedef struct job {
    uint32_t ranks;
    bool by_layers;
    bool counting;
    kb_tensor x, w1, w2; /* of the host */
    plain expected;
    char calls[MAX_CALLS][32]; /* collectives of all ranks */
    size_t count;
    kb_collective_stats stats; /* of the last one */
} job;

static void watch(void *self, const kb_op *op)
{
    job *j = self;
    for (int kind = 0; kind < KB_BARRIER && j->counting && op->unit == KB_UNIT_HOST; kind++) {
        if (strcmp(op->name, kb_collective_name((kb_collective_kind)kind)) != 0)
            continue;
        assert_true(j->count < MAX_CALLS);
        snprintf(j->calls[j->count++], sizeof j->calls[0], "%s", op->name);
    }
}

/* Element by element, so the order of addresses does not matter: one PE does it all. */
KB_KERNEL(relu, tl_ptr x, int64_t count)
{
    if (tl_program_id(0) == 0 && tl_program_id(1) == 0)
        tl_store(x, tl_maximum(tl_load(x, tl_shape(count), TL_F16), 0));
}

static kb_error *run_layers(kb_context *ctx, job *j, kb_tensor *y)
{
    kb_tp_layer up, down;
    kb_group group;
    kb_tensor x, h = {0};
    *y = (kb_tensor){0};
    const kb_tensor_spec spec = {.name = "x", .shape = KB_SHAPE(TOKENS, MODEL)};
    const kb_tp_linear_spec first = {
        .name = "up", .in_features = MODEL, .out_features = HIDDEN, .weight = j->w1};
    const kb_tp_linear_spec second = {
        .name = "down", .in_features = HIDDEN, .out_features = MODEL, .weight = j->w2};
    KB_TRY(kb_tp_initialize_model_parallel(ctx, j->ranks));
    KB_TRY(kb_empty(ctx, &spec, &x));
    KB_TRY(kb_tensor_copy(ctx, x, j->x, KB_TIMED));
    KB_TRY(kb_column_parallel_linear_create(ctx, &first, &up));
    KB_TRY(kb_row_parallel_linear_create(ctx, &second, &down));
    KB_TRY(kb_column_parallel_linear_forward(ctx, up, x, &h));
    KB_TRY(kb_launch(ctx, "relu", &relu, h, TOKENS * HIDDEN / j->ranks));
    KB_TRY(kb_row_parallel_linear_forward(ctx, down, h, y));
    KB_TRY(kb_tp_get_tensor_model_parallel_group(ctx, &group));
    KB_TRY(kb_distributed_get_stats(ctx, group, &j->stats));
    KB_TRY(kb_tp_layer_free(ctx, up));
    KB_TRY(kb_tp_layer_free(ctx, down));
    KB_TRY(kb_tensor_free(ctx, h));
    return kb_tensor_free(ctx, x);
}

static kb_error *run_dtensors(kb_context *ctx, job *j, kb_tensor *y)
{
    kb_device_mesh mesh;
    kb_group group;
    kb_dtensor x, w1, w2, up, h, terms, sum;
    KB_TRY(kb_init_device_mesh(ctx, &(kb_device_mesh_spec){.ndim = 1}, &mesh));
    const kb_placements all = KB_PLACEMENTS(KB_REPLICATE_PLACEMENT);
    KB_TRY(kb_distribute_tensor(ctx, j->x, mesh, all, &x));
    KB_TRY(kb_distribute_tensor(ctx, j->w1, mesh, KB_PLACEMENTS(KB_SHARD(1)), &w1));
    KB_TRY(kb_distribute_tensor(ctx, j->w2, mesh, KB_PLACEMENTS(KB_SHARD(0)), &w2));
    KB_TRY(kb_dtensor_matmul(ctx, x, w1, &up));
    KB_TRY(kb_dtensor_unary(ctx, KB_UNARY_RELU, up, &h));
    KB_TRY(kb_dtensor_matmul(ctx, h, w2, &terms));
    KB_TRY(kb_dtensor_redistribute(ctx, terms, all, &sum));
    KB_TRY(kb_device_mesh_get_group(ctx, mesh, "dim0", &group));
    KB_TRY(kb_distributed_get_stats(ctx, group, &j->stats));
    KB_TRY(kb_dtensor_full_tensor(ctx, sum, y)); /* is there: a copy */
    const kb_dtensor made[] = {x, w1, w2, up, h, terms, sum};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        KB_TRY(kb_dtensor_free(ctx, made[i]));
    return kb_device_mesh_free(ctx, mesh);
}

static kb_error *work(kb_context *ctx, uint32_t rank, void *arg)
{
    job *j = arg;
    kb_tensor y;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    j->counting = true;
    KB_TRY(j->by_layers ? run_layers(ctx, j, &y) : run_dtensors(ctx, j, &y));
    expect_plain(ctx, y, &j->expected, 1e-2);
    KB_TRY(kb_tensor_free(ctx, y));
    return kb_distributed_destroy_process_group(ctx);
}

/* Multiplies row by row. */
static plain multiply(const plain *a, const plain *b, bool activate)
{
    uint64_t m = a->shape.dims[0], k = a->shape.dims[1], n = b->shape.dims[1];
    plain out = plain_new(&KB_SHAPE(m, n));
    for (uint64_t i = 0; i < m * n; i++) {
        for (uint64_t p = 0; p < k; p++)
            out.numbers[i] += a->numbers[i / n * k + p] * b->numbers[p * n + i % n];
        if (activate && out.numbers[i] < 0)
            out.numbers[i] = 0;
    }
    return out;
}

static void run(job *j, uint32_t ranks, bool by_layers)
{
    kb_rng rng;
    kb_rng_init(&rng, test_seed(1));
    *j = (job){.ranks = ranks, .by_layers = by_layers};
    kb_context *ctx =
        open_machine_of(ranks, 2, 1, (kb_context_options){.on_op = watch, .on_op_self = j});
    plain x = plain_draw(&rng, &KB_SHAPE(TOKENS, MODEL));
    plain w1 = plain_draw(&rng, &KB_SHAPE(MODEL, HIDDEN));
    plain w2 = plain_draw(&rng, &KB_SHAPE(HIDDEN, MODEL));
    for (uint64_t i = 0; i < MODEL * HIDDEN; i++) {
        w1.numbers[i] /= 16;
        w2.numbers[i] /= 16;
    }
    plain h = multiply(&x, &w1, true);
    j->expected = multiply(&h, &w2, false);
    j->x = host_tensor(ctx, "x", &x, KB_F16);
    j->w1 = host_tensor(ctx, "w1", &w1, KB_F16);
    j->w2 = host_tensor(ctx, "w2", &w2, KB_F16);
    expect_ok(kb_spawn(ctx, work, j, ranks));
    plain_free(&x);
    plain_free(&w1);
    plain_free(&w2);
    plain_free(&h);
    plain_free(&j->expected);
    kb_context_destroy(ctx);
}

static void compare(uint32_t ranks)
{
    static job layers, dtensors;
    run(&layers, ranks, true);
    run(&dtensors, ranks, false);
    /* One all_reduce of each rank, of (12, 24) f16. */
    assert_int_equal(dtensors.count, ranks);
    assert_int_equal(layers.count, dtensors.count);
    for (size_t i = 0; i < layers.count; i++) {
        assert_string_equal(dtensors.calls[i], "all_reduce");
        assert_string_equal(layers.calls[i], "all_reduce");
    }
    assert_int_equal(dtensors.stats.size, TOKENS * MODEL * 2);
    assert_int_equal(layers.stats.size, dtensors.stats.size);
    assert_int_equal(layers.stats.participants, dtensors.stats.participants);
}

static void among_two(void **state)
{
    (void)state;
    compare(2);
}

static void among_three(void **state)
{
    (void)state;
    compare(3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(among_two),
        cmocka_unit_test(among_three),
    };
    return cmocka_run_group_tests_name("mlp", tests, NULL, NULL);
}
