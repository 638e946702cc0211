/*
 * my_bench.c: y = a * x + b, where each PE computes its shard. Right on any machine, for any size.
 *
 *     kernbench run --bench ./my_bench.c --verify-data
 */
#include <stdlib.h>

#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

enum { BLOCK = 4096 };

/* Runs once on each PE that holds a shard of x or y. */
KB_KERNEL(axpb, tl_ptr x, tl_ptr y, int64_t n, float a, float b)
{
    /* x is split over the cubes, and each cube's part over its PEs: the shard of this PE. */
    int64_t of_cube = tl_part_size(n, tl_num_programs(1), tl_program_id(1));
    int64_t mine = tl_part_size(of_cube, tl_num_programs(0), tl_program_id(0));
    int64_t begin = tl_part_begin(n, tl_num_programs(1), tl_program_id(1)) +
                    tl_part_begin(of_cube, tl_num_programs(0), tl_program_id(0));

    /* In blocks, as the TCM of a PE is small. */
    for (int64_t done = 0; done < mine; done += BLOCK) {
        int64_t size = mine - done < BLOCK ? mine - done : BLOCK;
        tl_ptr offset = (begin + done) * 4; /* bytes of a float */
        TL_SCOPE {
            tl_tensor v = tl_load(x + offset, tl_shape(size), TL_F32);
            tl_store(y + offset, tl_add(tl_mul(v, a), b));
        }
    }
}

static kb_error *scale(kb_bench *bench, int64_t n, float *numbers, double *expected)
{
    kb_context *ctx = kb_bench_context(bench);
    const double a = 2.5, b = -1;
    const kb_policy split = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    kb_tensor_spec spec = {.name = "x",
                           .dtype = KB_F32,
                           .shape = KB_SHAPE((uint64_t)n),
                           .policy = &split,
                           .access = KB_UNTIMED}; /* set up without simulated time */
    kb_tensor x, y;
    KB_TRY(kb_empty(ctx, &spec, &x));
    spec.name = "y";
    KB_TRY(kb_empty(ctx, &spec, &y));

    kb_bench_random(1, KB_F32, numbers, (size_t)n);
    KB_TRY(kb_tensor_set_slice(ctx, x, KB_UNTIMED, NULL, numbers, (size_t)n * sizeof *numbers));
    KB_TRY(kb_launch(ctx, "axpb", &axpb, x, y, n, a, b));

    for (int64_t i = 0; i < n; i++)
        expected[i] = a * numbers[i] + b;
    return kb_bench_verify(bench, y, expected, 1e-6, 1e-6);
}

static kb_error *run(kb_bench *bench)
{
    int64_t n = kb_bench_param(bench, "n");
    float *numbers = malloc((size_t)n * sizeof *numbers);
    double *expected = malloc((size_t)n * sizeof *expected);
    kb_error *err = numbers && expected ? scale(bench, n, numbers, expected)
                                        : kb_error_new(KB_ERR_HOST, "out of memory");
    free(numbers);
    free(expected);
    return err;
}

static const kb_param params[] = {
    {.name = "n", .value = 100000, .min = 1, .max = 1 << 26, .help = "elements of x"},
};

static const kb_bench_spec bench_my_bench = {
    .name = "my_bench",
    .summary = "y = a * x + b over all PEs of a SIP",
    .params = params,
    .param_count = sizeof params / sizeof params[0],
    .run = run,
};

KB_EXPORT_BENCHES(&bench_my_bench);
