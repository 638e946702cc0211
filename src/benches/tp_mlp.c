/*
 * tp_mlp.c: the MLP of a transformer on all SIPs, tensor parallel as in Megatron: a column parallel
 * layer, an activation, a row parallel layer. The second layer runs twice: with its sum over ranks
 * after the product, and in chunks that overlap with the product.
 *
 * Exposed communication is the time of a call minus that of its product alone: the kernel of the
 * second layer without overlap.
 */
#include <kernbench/kernbench.h>
#include <kernbench/tl.h>
#include <kernbench/tp.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "benches.h"
#include "ccl_common.h"

/* ---- The activation ---- */

enum { GELU, SILU, RELU };
static const char *const activations[] = {"gelu", "silu", "relu", NULL};

enum { ROWS_AT_A_TIME = 64 };

/* For a matrix that is split by columns over all PEs: each PE has its columns, packed. */
KB_KERNEL(activate, tl_ptr x, int64_t rows, int64_t columns, int which, int dtype)
{
    int64_t of_cube = tl_part_size(columns, tl_num_programs(1), tl_program_id(1));
    int64_t width = tl_part_size(of_cube, tl_num_programs(0), tl_program_id(0));
    int64_t before = tl_part_begin(columns, tl_num_programs(1), tl_program_id(1)) +
                     tl_part_begin(of_cube, tl_num_programs(0), tl_program_id(0));
    int64_t bytes = (int64_t)kb_dtype_bytes((kb_dtype)dtype);
    for (int64_t row = 0; row < rows && width > 0; row += ROWS_AT_A_TIME)
        TL_SCOPE {
            int64_t count = rows - row < ROWS_AT_A_TIME ? rows - row : ROWS_AT_A_TIME;
            tl_ptr at = x + (before * rows + row * width) * bytes;
            tl_tensor v = tl_load(at, tl_shape(count, width), (kb_dtype)dtype);
            tl_store(at, which == GELU   ? tl_gelu(v)
                         : which == SILU ? tl_silu(v)
                                         : tl_maximum(v, 0));
        }
}

static double activate_on_host(double x, int64_t which)
{
    if (which == GELU)
        return x * (1 + erf(x / sqrt(2))) / 2;
    return which == SILU ? x / (1 + exp(-x)) : x > 0 ? x : 0;
}

/* ---- The run ---- */

typedef struct mlp {
    kb_bench *bench;
    uint64_t batch, width, hidden;
    uint32_t size; /* tensor parallel */
    int64_t activation;
    uint32_t overlap;
    kb_dtype dtype;
    double *x;        /* (batch, width); NULL without data */
    double *expected; /* (batch, width), summed over the ranks of the first group; NULL: none */
    uint64_t step;    /* of the rows that are compared */
    kb_tensor plain, chunked; /* results of rank 0 */
    kb_tp_times up, down[2];
    kb_time activating;
} mlp;

static kb_error *no_memory(void)
{
    return kb_error_new(KB_ERR_HOST, "out of memory");
}

static kb_error *make_layers(kb_context *ctx, const mlp *is, kb_tp_layer *up, kb_tp_layer down[2])
{
    kb_tp_linear_spec spec = {.name = "up",
                              .in_features = is->width,
                              .out_features = is->hidden,
                              .dtype = is->dtype,
                              .seed = 1,
                              .batch = is->batch,
                              .access = KB_UNTIMED};
    KB_TRY(kb_column_parallel_linear_create(ctx, &spec, up));
    spec.name = "down";
    spec.in_features = is->hidden;
    spec.out_features = is->width;
    spec.seed = 2;
    KB_TRY(kb_row_parallel_linear_create(ctx, &spec, &down[0]));
    spec.name = "down_overlap";
    spec.overlap = is->overlap;
    return kb_row_parallel_linear_create(ctx, &spec, &down[1]);
}

static kb_error *make_input(kb_context *ctx, const mlp *is, kb_tensor *x)
{
    static const kb_policy columns = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    const kb_tensor_spec spec = {.name = "x",
                                 .dtype = is->dtype,
                                 .shape = KB_SHAPE(is->batch, is->width),
                                 .policy = &columns,
                                 .access = KB_UNTIMED};
    KB_TRY(kb_empty(ctx, &spec, x));
    return is->x ? bench_fill(ctx, *x, is->dtype, is->x, is->batch * is->width) : NULL;
}

/* The rank's weights as numbers; free() them. */
static kb_error *read_weight(kb_context *ctx, const mlp *is, kb_tp_layer layer, uint64_t count,
                             double **numbers)
{
    kb_tensor weight;
    KB_TRY(kb_tp_layer_weight(ctx, layer, &weight));
    *numbers = malloc(count * sizeof **numbers);
    return *numbers ? bench_read(ctx, weight, is->dtype, *numbers, count) : no_memory();
}

/* Adds the rank's contribution to a row of the result. */
static void add_row(const mlp *is, const double *w1, const double *w2, double *hidden, uint64_t row)
{
    uint64_t part = is->hidden / is->size;
    memset(hidden, 0, part * sizeof *hidden);
    for (uint64_t k = 0; k < is->width; k++)
        for (uint64_t j = 0; j < part; j++)
            hidden[j] += is->x[row * is->width + k] * w1[k * part + j];
    for (uint64_t k = 0; k < part; k++) {
        double h = activate_on_host(hidden[k], is->activation);
        for (uint64_t j = 0; j < is->width; j++)
            is->expected[row * is->width + j] += h * w2[k * is->width + j];
    }
}

static kb_error *add_expected(kb_context *ctx, const mlp *is, kb_tp_layer up, kb_tp_layer down)
{
    uint64_t part = is->hidden / is->size;
    double *w1 = NULL, *w2 = NULL, *hidden = malloc(part * sizeof *hidden);
    kb_error *err = hidden ? NULL : no_memory();
    if (!err)
        err = read_weight(ctx, is, up, is->width * part, &w1);
    if (!err)
        err = read_weight(ctx, is, down, part * is->width, &w2);
    for (uint64_t row = 0; row < is->batch && !err; row += is->step)
        add_row(is, w1, w2, hidden, row);
    free(w1);
    free(w2);
    free(hidden);
    return err;
}

/* One pass: the time of each step on this rank, if all ranks begin together. */
static kb_error *run_pass(kb_context *ctx, mlp *is, uint32_t rank, const kb_tp_layer *layers,
                          kb_tensor x, kb_tensor *h, kb_tensor out[2])
{
    kb_tp_times up, down[2];
    KB_TRY(kb_distributed_barrier(ctx, NULL));
    KB_TRY(kb_column_parallel_linear_forward(ctx, layers[0], x, h));
    KB_TRY(kb_tp_layer_times(ctx, layers[0], &up));
    kb_time began = kb_context_now(ctx);
    KB_TRY(kb_launch(ctx, "activate", &activate, *h, is->batch, is->hidden / is->size,
                     is->activation, (int)is->dtype));
    kb_time activating = kb_context_now(ctx) - began;
    for (int i = 0; i < 2; i++) {
        KB_TRY(kb_distributed_barrier(ctx, NULL));
        KB_TRY(kb_row_parallel_linear_forward(ctx, layers[1 + i], *h, &out[i]));
        KB_TRY(kb_tp_layer_times(ctx, layers[1 + i], &down[i]));
    }
    if (rank != 0)
        return NULL;
    is->up = up;
    is->activating = activating;
    memcpy(is->down, down, sizeof down);
    return NULL;
}

static kb_error *work(kb_context *ctx, uint32_t rank, void *arg)
{
    static const kb_policy columns = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    mlp *is = arg;
    kb_tp_layer layers[3];
    kb_tensor x, h, out[2] = {{0}, {0}};
    KB_TRY(kb_ahbm_set_device(ctx, kb_bench_device(is->bench, rank)));
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    KB_TRY(kb_tp_initialize_model_parallel(ctx, is->size));
    KB_TRY(make_layers(ctx, is, &layers[0], &layers[1]));
    KB_TRY(make_input(ctx, is, &x));
    const kb_tensor_spec spec = {.name = "hidden",
                                 .dtype = is->dtype,
                                 .shape = KB_SHAPE(is->batch, is->hidden / is->size),
                                 .policy = &columns,
                                 .access = KB_UNTIMED};
    KB_TRY(kb_empty(ctx, &spec, &h));
    for (int pass = 0; pass < 2; pass++) /* the first one installs queues */
        KB_TRY(run_pass(ctx, is, rank, layers, x, &h, out));
    if (is->expected && rank < is->size)
        KB_TRY(add_expected(ctx, is, layers[0], layers[1]));
    if (rank == 0) {
        is->plain = out[0];
        is->chunked = out[1];
    }
    return NULL;
}

/* ---- Results ---- */

static void report(const mlp *is)
{
    kb_bench *bench = is->bench;
    double gemm = kb_to_ns(is->down[0].kernel);
    double exposed = kb_to_ns(is->down[0].total) - gemm;
    double overlapped = kb_to_ns(is->down[1].total) - gemm;
    double before = kb_to_ns(is->up.total + is->activating);
    double flops = 4.0 * (double)is->batch * (double)is->width * (double)is->hidden / is->size;
    kb_bench_metric(bench, "gemm_up", kb_to_ns(is->up.kernel), "ns, kernel of the first layer");
    kb_bench_metric(bench, "gemm_down", gemm, "ns, kernel of the second layer");
    kb_bench_metric(bench, "activation", kb_to_ns(is->activating), "ns, with its launch");
    kb_bench_metric(bench, "exposed", exposed, "ns of communication behind the product");
    kb_bench_metric(bench, "exposed_overlap", overlapped, "ns that overlap leaves exposed");
    kb_bench_metric(bench, "exposed_share", exposed > 0 ? overlapped / exposed * 100 : 0,
                    "% of the exposed communication stays with overlap");
    kb_bench_metric(bench, "mlp", before + kb_to_ns(is->down[0].total), "ns in all");
    kb_bench_metric(bench, "mlp_overlap", before + kb_to_ns(is->down[1].total),
                    "ns in all with overlap");
    kb_bench_metric(bench, "gemm_tflops", kb_to_tflops(flops, is->up.kernel + is->down[0].kernel),
                    "TFLOPS of a SIP in both products");
}

static kb_error *verify(const mlp *is)
{
    KB_TRY(kb_bench_verify(is->bench, is->plain, is->expected, 1e-2, 1e-2));
    return kb_bench_verify(is->bench, is->chunked, is->expected, 1e-2, 1e-2);
}

/* Numbers of the input, and the buffer of expected results; rows that are not compared are NaN. */
static kb_error *make_numbers(mlp *is)
{
    if (kb_context_is_timing_only(kb_bench_context(is->bench)))
        return NULL;
    is->x = bench_numbers(3, is->dtype, is->batch * is->width);
    if (!is->x)
        return no_memory();
    if (!kb_bench_verifies(is->bench))
        return NULL;
    is->expected = malloc(is->batch * is->width * sizeof *is->expected);
    if (!is->expected)
        return no_memory();
    double row_work = 2.0 * (double)is->width * (double)is->hidden;
    double rows = 2e9 / row_work < 1 ? 1 : 2e9 / row_work;
    is->step = (double)is->batch <= rows ? 1 : (uint64_t)ceil((double)is->batch / rows);
    for (uint64_t row = 0; row < is->batch; row++)
        for (uint64_t j = 0; j < is->width; j++)
            is->expected[row * is->width + j] = row % is->step == 0 ? 0 : (double)NAN;
    return NULL;
}

static kb_error *run(kb_bench *bench)
{
    uint32_t devices = kb_bench_device_count(bench);
    int64_t size = kb_bench_param(bench, "tp");
    mlp is = {.bench = bench,
              .batch = (uint64_t)kb_bench_param(bench, "batch"),
              .width = (uint64_t)kb_bench_param(bench, "width"),
              .hidden = (uint64_t)kb_bench_param(bench, "hidden"),
              .size = size > 0 ? (uint32_t)size : devices,
              .activation = kb_bench_param(bench, "activation"),
              .overlap = (uint32_t)kb_bench_param(bench, "overlap"),
              .dtype = kb_bench_param(bench, "dtype") == 0 ? KB_BF16 : KB_F16,
              .step = 1};
    if (is.hidden % is.size != 0)
        return kb_error_new(KB_ERR_INPUT,
                            "parameter hidden (%llu) is not divisible by the tensor parallel size "
                            "%u",
                            (unsigned long long)is.hidden, is.size);
    kb_bench_print(
        bench, "MLP (%llu, %llu) > %llu > %llu in %s, tensor parallel over %u of %u SIPs",
        (unsigned long long)is.batch, (unsigned long long)is.width, (unsigned long long)is.hidden,
        (unsigned long long)is.width, kb_dtype_name(is.dtype), is.size, devices);
    kb_error *err = make_numbers(&is);
    if (!err)
        err = kb_spawn(kb_bench_context(bench), work, &is, devices);
    if (!err) {
        report(&is);
        err = verify(&is);
    }
    free(is.x);
    free(is.expected);
    return err;
}

/* The weights of a 70B model have 900 MB per layer. */
static bool is_large(const kb_bench *bench)
{
    return (double)kb_bench_param(bench, "width") * (double)kb_bench_param(bench, "hidden") > 1e7;
}

static const char *const dtypes[] = {"bf16", "f16", NULL};

static const kb_param params[] = {
    {.name = "batch", .value = 64, .min = 1, .max = 1 << 12, .help = "rows of the input"},
    {.name = "width", .value = 8192, .min = 1, .max = 1 << 16, .help = "features of the input"},
    {.name = "hidden", .value = 28672, .min = 1, .max = 1 << 18, .help = "features in between"},
    {.name = "tp",
     .value = 0,
     .min = 0,
     .max = 1 << 10,
     .help = "tensor parallel size; 0: all SIPs"},
    {.name = "overlap",
     .value = 4,
     .min = 1,
     .max = 64,
     .help = "chunks of the sum over ranks that run behind the product"},
    {.name = "activation", .names = activations, .help = "between the layers"},
    {.name = "dtype", .names = dtypes, .help = "of all tensors"},
};

const kb_bench_spec bench_tp_mlp = {
    .name = "tp_mlp",
    .summary = "tensor parallel MLP: column and row parallel layers, with and without overlap",
    .params = params,
    .param_count = sizeof params / sizeof params[0],
    .run = run,
    .is_timing_only = is_large,
};
