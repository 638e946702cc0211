/*
 * layer_times.c: the table of docs/layers.md: times of layers on the default machine, without data,
 * beside what the HBM and the vector engine need.
 */
#include <stdio.h>
#include <stdlib.h>
#include <kernbench/kernbench.h>
#include <kernbench/nn.h>

/* @MEASURE@ */

enum { COLUMNS = 8192, VOCABULARY = 128256, PES = 128 };

static kb_context *ctx;

static void check(kb_error *err)
{
    if (!err)
        return;
    fprintf(stderr, "%s\n", kb_error_message(err));
    exit(1);
}

static const kb_policy by_columns = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
static const kb_policy by_rows = {.cube = KB_ROW_WISE, .pe = KB_ROW_WISE};

static kb_tensor make(kb_dtype dtype, kb_shape shape, const kb_policy *policy)
{
    kb_tensor tensor;
    const kb_tensor_spec spec = {.dtype = dtype,
                                 .shape = shape,
                                 .policy = policy,
                                 .access = KB_UNTIMED,
                                 .is_index = dtype == KB_I32};
    check(kb_empty(ctx, &spec, &tensor));
    return tensor;
}

/* What all layers of a number of rows work on. */
typedef struct tensors {
    kb_tensor x, other, gain, out, half, f8, ids, table, logits;
} tensors;

static tensors make_tensors(uint64_t rows)
{
    kb_shape shape = KB_SHAPE(rows, COLUMNS);
    tensors t = {.x = make(KB_BF16, shape, &by_columns),
                 .other = make(KB_BF16, shape, &by_columns),
                 .gain = make(KB_BF16, KB_SHAPE(COLUMNS), &by_columns),
                 .out = make(KB_BF16, shape, &by_columns),
                 .half = make(KB_BF16, KB_SHAPE(rows, COLUMNS / 2), &by_columns),
                 .f8 = make(KB_F8E4M3, shape, &by_columns),
                 .ids = make(KB_I32, KB_SHAPE(rows), NULL),
                 .table = make(KB_BF16, KB_SHAPE(VOCABULARY, COLUMNS), &by_rows),
                 .logits = make(KB_BF16, KB_SHAPE(rows, VOCABULARY), &by_columns)};
    int32_t *ids = malloc(rows * sizeof *ids);
    if (!ids)
        exit(1);
    for (uint64_t i = 0; i < rows; i++)
        ids[i] = (int32_t)(i * 7919 % VOCABULARY);
    check(kb_tensor_set_slice(ctx, t.ids, KB_UNTIMED, NULL, ids, rows * sizeof *ids));
    free(ids);
    return t;
}

/* A layer: its call, what it reads and writes for each element of x, and its passes. */
typedef struct layer {
    const char *name;
    double bytes, passes;
    kb_error *(*call)(const tensors *t, kb_request *request);
} layer;

static kb_error *run_rms(const tensors *t, kb_request *request)
{
    kb_norm_outputs made = {.out = t->out};
    const kb_norm_spec spec = {.x = t->x, .gain = t->gain, .request = request};
    return kb_rms_norm(ctx, &spec, &made);
}

static kb_error *run_rms_residual(const tensors *t, kb_request *request)
{
    kb_norm_outputs made = {.out = t->out, .sum = t->other};
    const kb_norm_spec spec = {
        .x = t->x, .residual = t->other, .gain = t->gain, .request = request};
    return kb_rms_norm(ctx, &spec, &made);
}

static kb_error *run_rms_f8(const tensors *t, kb_request *request)
{
    kb_norm_outputs made = {.out = t->f8};
    const kb_norm_spec spec = {
        .x = t->x, .gain = t->gain, .quantisation = KB_QUANTISED_F8E4M3, .request = request};
    return kb_rms_norm(ctx, &spec, &made);
}

static kb_error *run_layer_norm(const tensors *t, kb_request *request)
{
    kb_norm_outputs made = {.out = t->out};
    const kb_norm_spec spec = {.x = t->x, .gain = t->gain, .bias = t->gain, .request = request};
    return kb_layer_norm(ctx, &spec, &made);
}

static kb_error *run_rope(const tensors *t, kb_request *request)
{
    kb_tensor out = t->out;
    const kb_rope_spec spec = {.x = t->x,
                               .positions = t->ids,
                               .head_dim = 128,
                               .rope = {.style = KB_ROPE_HALF_SPLIT},
                               .request = request};
    return kb_rope_apply(ctx, &spec, &out);
}

static kb_error *run_swiglu(const tensors *t, kb_request *request)
{
    kb_tensor out = t->out;
    const kb_swiglu_spec spec = {.gate = t->x, .up = t->other, .request = request};
    return kb_swiglu(ctx, &spec, &out);
}

static kb_error *run_pairs(const tensors *t, kb_request *request)
{
    kb_tensor out = t->half;
    const kb_swiglu_spec spec = {.gate = t->x, .request = request};
    return kb_swiglu(ctx, &spec, &out);
}

static kb_error *run_gelu(const tensors *t, kb_request *request)
{
    kb_tensor out = t->out;
    const kb_gelu_spec spec = {.x = t->x, .request = request};
    return kb_gelu(ctx, &spec, &out);
}

static kb_error *run_add(const tensors *t, kb_request *request)
{
    kb_tensor out = t->out;
    const kb_add_spec spec = {.a = t->x, .b = t->other, .request = request};
    return kb_add(ctx, &spec, &out);
}

static kb_error *run_embedding(const tensors *t, kb_request *request)
{
    kb_tensor out = t->out;
    const kb_embedding_spec spec = {.table = t->table, .tokens = t->ids, .request = request};
    return kb_embedding(ctx, &spec, &out);
}

static kb_error *run_argmax(const tensors *t, kb_request *request)
{
    kb_tensor out = {0};
    const kb_argmax_spec spec = {.logits = t->logits, .request = request};
    return kb_argmax(ctx, &spec, &out);
}

static const layer layers[] = {
    {"rms_norm", 4, 4, run_rms},
    {"rms_norm, residual", 8, 5, run_rms_residual},
    {"rms_norm, f8", 3, 7, run_rms_f8},
    {"layer_norm", 4, 6, run_layer_norm},
    {"rope", 4, 5, run_rope},
    {"swiglu", 6, 12, run_swiglu},
    {"swiglu, pairs", 3, 7, run_pairs},
    {"gelu", 4, 9, run_gelu},
    {"add", 6, 1, run_add},
    {"embedding", 4, 0, run_embedding},
    {"argmax", 2. * VOCABULARY / COLUMNS, 2. * VOCABULARY / COLUMNS, run_argmax},
};

enum { LAYERS = sizeof layers / sizeof layers[0], SIZES = 3 };

int main(void)
{
    static const uint64_t rows[SIZES] = {1, 64, 2048};
    double times[LAYERS][SIZES];
    for (int size = 0; size < SIZES; size++) {
        const kb_context_options options = {.timing_only = true, .threads = 1};
        check(kb_context_create(&options, &ctx));
        tensors t = make_tensors(rows[size]);
        for (int i = 0; i < LAYERS; i++) {
            kb_request request;
            kb_time time;
            check(layers[i].call(&t, &request));
            check(kernel_time(ctx, request, &time));
            times[i][size] = kb_to_ns(time) / 1000;
        }
        kb_context_destroy(ctx);
    }
    printf("%-20s %8s %8s %9s %11s %11s\n", "kernel time in us", "1 row", "64 rows", "2048 rows",
           "HBM bound", "vector bound");
    for (int i = 0; i < LAYERS; i++) {
        double elements = 2048. * COLUMNS / PES;
        printf("%-20s %8.2f %8.2f %9.2f %11.2f %12.2f\n", layers[i].name, times[i][0], times[i][1],
               times[i][2], elements * layers[i].bytes / 204.8e3,
               elements / 64 * layers[i].passes / 1000);
    }
    return 0;
}
