/*
 * va_offset_verify.c: every PE copies its block of a tensor to the same position of another one,
 * and finds it by arithmetic on virtual addresses alone: base + pid * stride if sizes divide, else
 * the sum of the sizes of the parts before it. A matrix is split by rows over the cubes and by
 * columns over the PEs of each; a vector is one row, split over both.
 */
#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

#include <stdlib.h>

#include "benches.h"

/* A block of `count` elements, in pieces that fit into the TCM. */
static void copy_block(tl_context *tl, tl_ptr from, tl_ptr to, int64_t count)
{
    enum { PIECE = 1 << 14 };
    for (int64_t done = 0; done < count; done += PIECE) {
        int64_t size = count - done < PIECE ? count - done : PIECE;
        TL_SCOPE {
            tl_tensor v = tl_load(from + done * 2, tl_shape(size), TL_F16);
            tl_store(to + done * 2, v);
        }
    }
}

KB_KERNEL(copy_2d, tl_ptr from, tl_ptr to, int64_t rows, int64_t columns)
{
    int64_t pe = tl_program_id(0), pes = tl_num_programs(0);
    int64_t cube = tl_program_id(1), cubes = tl_num_programs(1);
    int64_t height = tl_part_size(rows, cubes, cube);
    int64_t width = tl_part_size(columns, pes, pe);
    /* All rows of the previous cubes, and in this cube the blocks of the previous PEs. */
    int64_t before =
        tl_part_begin(rows, cubes, cube) * columns + height * tl_part_begin(columns, pes, pe);
    copy_block(tl, from + before * 2, to + before * 2, height * width);
}

KB_KERNEL(copy_1d, tl_ptr from, tl_ptr to, int64_t n)
{
    int64_t pe = tl_program_id(0), pes = tl_num_programs(0);
    int64_t cube = tl_program_id(1), cubes = tl_num_programs(1);
    int64_t of_cube = tl_part_size(n, cubes, cube);
    int64_t before = tl_part_begin(n, cubes, cube) + tl_part_begin(of_cube, pes, pe);
    copy_block(tl, from + before * 2, to + before * 2, tl_part_size(of_cube, pes, pe));
}

/* Two tensors on the current device: one with the numbers, and one for the copy. */
typedef struct pair {
    kb_tensor from, to;
} pair;

static kb_error *make(kb_bench *bench, const char *name, const char *copy, kb_shape shape,
                      const kb_policy *policy, const uint16_t *numbers, size_t bytes, pair *p)
{
    kb_context *ctx = kb_bench_context(bench);
    kb_tensor_spec spec = {
        .name = name, .dtype = KB_F16, .shape = shape, .policy = policy, .access = KB_UNTIMED};
    KB_TRY(kb_empty(ctx, &spec, &p->from));
    spec.name = copy;
    KB_TRY(kb_empty(ctx, &spec, &p->to));
    return kb_tensor_set_slice(ctx, p->from, KB_UNTIMED, NULL, numbers, bytes);
}

static kb_error *copy_both(kb_bench *bench, const uint16_t *numbers, const double *expected)
{
    static const kb_policy blocks = {.cube = KB_ROW_WISE, .pe = KB_COLUMN_WISE};
    static const kb_policy pieces = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    kb_context *ctx = kb_bench_context(bench);
    int64_t rows = kb_bench_param(bench, "rows"), columns = kb_bench_param(bench, "columns");
    int64_t count = rows * columns;
    size_t bytes = (size_t)count * sizeof *numbers;
    pair matrix, vector;
    KB_TRY(make(bench, "matrix", "copy of matrix", KB_SHAPE((uint64_t)rows, (uint64_t)columns),
                &blocks, numbers, bytes, &matrix));
    KB_TRY(make(bench, "vector", "copy of vector", KB_SHAPE((uint64_t)count), &pieces, numbers,
                bytes, &vector));
    kb_bench_print(bench,
                   "Each PE copies its block of a matrix (%lld, %lld) and of a vector "
                   "(%lld); both are in their HBM from the start",
                   (long long)rows, (long long)columns, (long long)count);
    kb_time began = kb_context_now(ctx);
    KB_TRY(kb_launch(ctx, "copy_2d", &copy_2d, matrix.from, matrix.to, rows, columns));
    KB_TRY(kb_launch(ctx, "copy_1d", &copy_1d, vector.from, vector.to, count));
    double time = kb_to_ns(kb_context_now(ctx) - began);
    kb_bench_metric(bench, "copied_gbs", 2.0 * (double)bytes / time,
                    "GB/s that arrive in the copies, launches included");
    KB_TRY(kb_bench_verify(bench, matrix.to, expected, 0, 0));
    return kb_bench_verify(bench, vector.to, expected, 0, 0);
}

static kb_error *run(kb_bench *bench)
{
    size_t count = (size_t)(kb_bench_param(bench, "rows") * kb_bench_param(bench, "columns"));
    uint16_t *numbers = malloc(count * sizeof *numbers);
    float *floats = malloc(count * sizeof *floats);
    double *expected = malloc(count * sizeof *expected);
    kb_error *err = NULL;
    if (numbers && floats && expected) {
        kb_bench_random(1, KB_F16, numbers, count);
        kb_convert(KB_F32, floats, KB_F16, numbers, count);
        for (size_t i = 0; i < count; i++)
            expected[i] = (double)floats[i];
        err = copy_both(bench, numbers, expected);
    } else {
        err = kb_error_new(KB_ERR_HOST, "out of memory");
    }
    free(numbers);
    free(floats);
    free(expected);
    return err;
}

static const kb_param params[] = {
    {.name = "rows", .value = 250, .min = 1, .max = 1 << 13, .help = "of the matrix"},
    {.name = "columns", .value = 1001, .min = 1, .max = 1 << 13, .help = "of the matrix"},
};

const kb_bench_spec bench_va_offset_verify = {
    .name = "va_offset_verify",
    .summary = "every PE copies its block of a sharded tensor, found by address arithmetic",
    .params = params,
    .param_count = sizeof params / sizeof params[0],
    .run = run,
};
