/*
 * dtensor.c: a tensor parallel MLP in terms of distributed tensors.
 *
 * Four small devices compute y = relu(x * w1) * w2. Each has some columns of w1 and the same rows
 * of w2, as in Megatron-LM: the first product and the activation need no communication, and the
 * second gives each device a term of y. Redistributing it adds up the terms. Prints:
 *
 *     x   (24, 64)   (Replicate)     w1  (64, 250)  (Shard(1))
 *     h   (24, 250)  (Shard(1))      w2  (250, 64)  (Shard(0))
 *     y   (24, 64)   (Partial(sum)), then (Replicate)
 *     collectives: all_reduce
 *     all devices have the same y; it differs from the reference by less than 0.01
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <kernbench/dtensor.h>

enum { DEVICES = 4, TOKENS = 24, MODEL = 64, HIDDEN = 250 };

/* ---- The MLP ---- */

typedef struct mlp {
    kb_dtensor w1, w2;
} mlp;

static kb_error *print_tensor(kb_context *ctx, const char *name, kb_dtensor x, const char *end)
{
    kb_shape shape;
    kb_placements placements;
    char size[32], text[KB_PLACEMENTS_BYTES];
    KB_TRY(kb_dtensor_shape(ctx, x, &shape));
    KB_TRY(kb_dtensor_placements(ctx, x, &placements));
    kb_placements_print(placements, text);
    snprintf(size, sizeof size, "(%" PRIu64 ", %" PRIu64 ")", shape.dims[0], shape.dims[1]);
    printf(*end == ' ' ? "%-3s %-9s  %-14s%s" : "%-3s %-9s  %s%s", name, size, text, end);
    return NULL;
}

/* Rank 0 prints. */
static kb_error *forward(kb_context *ctx, uint32_t rank, const mlp *layer, kb_dtensor x,
                         kb_dtensor *y)
{
    kb_dtensor up, h, terms;
    KB_TRY(kb_dtensor_matmul(ctx, x, layer->w1, &up));
    KB_TRY(kb_dtensor_unary(ctx, KB_UNARY_RELU, up, &h));
    KB_TRY(kb_dtensor_matmul(ctx, h, layer->w2, &terms));
    KB_TRY(kb_dtensor_redistribute(ctx, terms, KB_PLACEMENTS(KB_REPLICATE_PLACEMENT), y));
    if (rank == 0) {
        KB_TRY(print_tensor(ctx, "x", x, "  "));
        KB_TRY(print_tensor(ctx, "w1", layer->w1, "\n"));
        KB_TRY(print_tensor(ctx, "h", h, "  "));
        KB_TRY(print_tensor(ctx, "w2", layer->w2, "\n"));
        KB_TRY(print_tensor(ctx, "y", terms, ", then (Replicate)\n"));
    }
    KB_TRY(kb_dtensor_free(ctx, terms));
    KB_TRY(kb_dtensor_free(ctx, h));
    return kb_dtensor_free(ctx, up);
}

/* ---- The program ---- */

/* Shared by all workers, which are coroutines of one program. */
typedef struct job {
    kb_tensor x, w1, w2; /* of the host */
    float results[DEVICES][TOKENS * MODEL];
    bool counting; /* the forward pass is under way */
    char collectives[256];
} job;

static kb_error *work(kb_context *ctx, uint32_t rank, void *arg)
{
    job *j = arg;
    kb_device_mesh mesh;
    kb_dtensor x, y;
    mlp layer;
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    const kb_device_mesh_spec spec = {.ndim = 1, .mesh_dim_names = {"tp"}};
    KB_TRY(kb_init_device_mesh(ctx, &spec, &mesh));
    KB_TRY(kb_distribute_tensor(ctx, j->x, mesh, KB_PLACEMENTS(KB_REPLICATE_PLACEMENT), &x));
    KB_TRY(kb_distribute_tensor(ctx, j->w1, mesh, KB_PLACEMENTS(KB_SHARD(1)), &layer.w1));
    KB_TRY(kb_distribute_tensor(ctx, j->w2, mesh, KB_PLACEMENTS(KB_SHARD(0)), &layer.w2));
    j->counting = true;
    KB_TRY(forward(ctx, rank, &layer, x, &y));

    uint16_t halves[TOKENS * MODEL];
    kb_tensor local; /* stays that of y */
    KB_TRY(kb_dtensor_to_local(ctx, y, &local));
    KB_TRY(kb_tensor_to_host(ctx, local, KB_TIMED, halves, sizeof halves));
    kb_convert(KB_F32, j->results[rank], KB_F16, halves, TOKENS * MODEL);

    KB_TRY(kb_dtensor_free(ctx, y));
    KB_TRY(kb_dtensor_free(ctx, layer.w2));
    KB_TRY(kb_dtensor_free(ctx, layer.w1));
    KB_TRY(kb_dtensor_free(ctx, x));
    KB_TRY(kb_device_mesh_free(ctx, mesh));
    return kb_distributed_destroy_process_group(ctx);
}

/* Collects the kinds of collectives of the forward pass. */
static void watch(void *self, const kb_op *op)
{
    job *j = self;
    for (int kind = 0; kind < KB_COLLECTIVES && j->counting; kind++) {
        const char *name = kb_collective_name((kb_collective_kind)kind);
        size_t used = strlen(j->collectives);
        if (op->unit == KB_UNIT_HOST && strcmp(op->name, name) == 0 &&
            !strstr(j->collectives, name))
            snprintf(j->collectives + used, sizeof j->collectives - used, " %s", name);
    }
}

/* Random f16 numbers, and the same as floats. */
static kb_error *make(kb_context *ctx, const char *name, uint64_t rows, uint64_t columns,
                      float scale, float *numbers, kb_tensor *tensor)
{
    size_t count = rows * columns;
    uint16_t *halves = malloc(count * sizeof *halves);
    if (!halves)
        return kb_error_new(KB_ERR_HOST, "out of memory");
    kb_bench_random(count, KB_F32, numbers, count);
    for (size_t i = 0; i < count; i++)
        numbers[i] *= scale;
    kb_convert(KB_F16, halves, KB_F32, numbers, count);
    kb_convert(KB_F32, numbers, KB_F16, halves, count);
    const kb_tensor_spec spec = {.name = name, .dtype = KB_F16, .shape = KB_SHAPE(rows, columns)};
    kb_error *err = kb_from_host(ctx, &spec, halves, count * sizeof *halves, tensor);
    free(halves);
    return err;
}

/* The largest difference from the plain MLP. */
static double compare(const float *x, const float *w1, const float *w2, const float *y)
{
    double largest = 0;
    for (int row = 0; row < TOKENS; row++) {
        double h[HIDDEN];
        for (int i = 0; i < HIDDEN; i++) {
            double up = 0;
            for (int k = 0; k < MODEL; k++)
                up += (double)x[row * MODEL + k] * (double)w1[k * HIDDEN + i];
            h[i] = up > 0 ? up : 0;
        }
        for (int i = 0; i < MODEL; i++) {
            double sum = 0;
            for (int k = 0; k < HIDDEN; k++)
                sum += h[k] * (double)w2[k * MODEL + i];
            double off = sum - (double)y[row * MODEL + i];
            off = off < 0 ? -off : off;
            largest = off > largest ? off : largest;
        }
    }
    return largest;
}

static kb_error *run(kb_context *ctx, job *j)
{
    static float x[TOKENS * MODEL], w1[MODEL * HIDDEN], w2[HIDDEN * MODEL];
    KB_TRY(make(ctx, "x", TOKENS, MODEL, 1, x, &j->x));
    KB_TRY(make(ctx, "w1", MODEL, HIDDEN, 0.125F, w1, &j->w1));
    KB_TRY(make(ctx, "w2", HIDDEN, MODEL, 0.0625F, w2, &j->w2));
    KB_TRY(kb_spawn(ctx, work, j, DEVICES));
    printf("collectives:%s\n", j->collectives);
    for (int rank = 1; rank < DEVICES; rank++)
        if (memcmp(j->results[0], j->results[rank], sizeof j->results[0]) != 0)
            return kb_error_new(KB_ERR_CHECK, "ranks 0 and %d differ", rank);
    double off = compare(x, w1, w2, j->results[0]);
    if (!(off < 0.01))
        return kb_error_new(KB_ERR_CHECK, "y is off by %g", off);
    printf("all devices have the same y; it differs from the reference by less than 0.01\n");
    return NULL;
}

int main(void)
{
    static job j;
    static const char *const settings[] = {"system.sips.count=4", "sip.cube_mesh.w=2",
                                           "sip.cube_mesh.h=2"};
    const kb_context_options options = {
        .settings = settings, .setting_count = 3, .on_op = watch, .on_op_self = &j};
    kb_context *ctx;
    kb_error *err = kb_context_create(&options, &ctx);
    if (!err)
        err = run(ctx, &j);
    if (err)
        fprintf(stderr, "%s\n", kb_error_message(err));
    int code = (int)kb_error_code(err);
    kb_error_free(err);
    kb_context_destroy(ctx);
    return code;
}
