/*
 * ccl_collectives.c: a table of sizes and times for every collective except all-reduce. Ranks are
 * devices. Each has its block, or a block for each rank as the rows of a matrix, split by columns
 * over all its PEs, or on one PE if the algorithm requires that. The algorithm is the one that
 * ccl.yaml selects if it can do the collective, else "auto". All results are checked, element by
 * element, unless the run is timing-only.
 */
#include <kernbench/ccl.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "benches.h"
#include "ccl_common.h"

/* The inputs and outputs of a collective. */
typedef struct collective {
    kb_collective_kind kind;
    bool many_in, many_out; /* a block for each rank */
    bool in_place, reduces, has_root;
    bool in_at_root, out_at_root; /* only the root has it */
    const char *size_label;
} collective;

typedef struct job {
    kb_bench *bench;
    const collective *is;
    const char *algorithm;
    bool at_one_pe; /* the layout of tensors */
    kb_dtype dtype;
    kb_reduce_op op;
    uint32_t root, world, warmup;

    /* Of the current size. */
    uint64_t block;  /* elements */
    double **inputs; /* by rank; NULL without data */
    kb_time time;    /* of the last call */
    uint64_t wrong;
    bench_row row; /* of the latest size */
    kb_collective_stats stats;
} job;

typedef struct tensors {
    const job *of;
    kb_tensor input, output;
} tensors;

static bool has_data(const job *j)
{
    return !kb_context_is_timing_only(kb_bench_context(j->bench));
}

static uint64_t input_count(const job *j)
{
    return j->block * (j->is->many_in ? j->world : 1);
}

static uint64_t output_count(const job *j)
{
    return j->block * (j->is->many_out ? j->world : 1);
}

/* ---- Expected results -------------------------------------------------------------------- */

static double combined(const job *j, uint64_t at, double *magnitude)
{
    double result = j->inputs[0][at];
    *magnitude = fabs(result);
    for (uint32_t rank = 1; rank < j->world; rank++) {
        result = bench_combine(j->op, result, j->inputs[rank][at]);
        *magnitude += fabs(j->inputs[rank][at]);
    }
    return j->op == KB_AVG ? result / j->world : result;
}

/* Element `at` of the rank's output. */
static double expected(const job *j, uint32_t rank, uint64_t at, double *magnitude)
{
    uint32_t block = (uint32_t)(at / j->block);
    uint64_t within = at % j->block;
    *magnitude = 0; /* moved elements are exact */
    switch (j->is->kind) {
    case KB_ALL_GATHER:
    case KB_GATHER:
        return j->inputs[block][within];
    case KB_REDUCE_SCATTER:
        return combined(j, rank * j->block + at, magnitude);
    case KB_BROADCAST:
        return j->inputs[j->root][at];
    case KB_REDUCE:
        return rank == j->root ? combined(j, at, magnitude) : j->inputs[rank][at];
    case KB_SCATTER:
        return j->inputs[j->root][rank * j->block + at];
    case KB_ALL_TO_ALL:
        return j->inputs[block][rank * j->block + within];
    default: /* KB_SEND: along the ring */
        return j->inputs[(rank + j->world - 1) % j->world][at];
    }
}

static kb_error *check(job *j, uint32_t rank, kb_tensor output)
{
    kb_context *ctx = kb_bench_context(j->bench);
    uint64_t count = output_count(j);
    double *got = malloc(count * sizeof *got);
    if (!got)
        return kb_error_new(KB_ERR_HOST, "out of memory");
    kb_error *err = bench_read(ctx, output, j->dtype, got, count);
    double relative = bench_tolerance(j->dtype, j->world);
    for (uint64_t at = 0; at < count && !err; at++) {
        double magnitude, should = expected(j, rank, at, &magnitude);
        j->wrong += !(fabs(got[at] - should) <= relative * magnitude);
    }
    free(got);
    return err;
}

/* ---- One rank ---------------------------------------------------------------------------- */

static kb_error *make_tensor(const job *j, const char *name, bool many, kb_tensor *tensor)
{
    static const kb_policy policy = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    kb_tensor_spec spec = {.name = name,
                           .dtype = j->dtype,
                           .shape = many ? KB_SHAPE(j->world, j->block) : KB_SHAPE(j->block),
                           .policy = j->at_one_pe ? NULL : &policy,
                           .access = KB_UNTIMED};
    return kb_empty(kb_bench_context(j->bench), &spec, tensor);
}

static kb_error *make_tensors(const job *j, uint32_t rank, tensors *t)
{
    const collective *is = j->is;
    *t = (tensors){.of = j};
    if (!is->in_at_root || rank == j->root)
        KB_TRY(make_tensor(j, "input", is->many_in, &t->input));
    if (is->in_place)
        t->output = t->input;
    else if (!is->out_at_root || rank == j->root)
        KB_TRY(make_tensor(j, "output", is->many_out, &t->output));
    return NULL;
}

/* Rank r sends to r + 1 while it receives from r - 1. */
static kb_error *send_and_receive(const job *j, uint32_t rank, const tensors *t)
{
    kb_context *ctx = kb_bench_context(j->bench);
    kb_request sent;
    uint32_t next = (rank + 1) % j->world, previous = (rank + j->world - 1) % j->world;
    kb_collective_options options = {.algorithm = j->algorithm, .work = &sent};
    KB_TRY(kb_distributed_send(ctx, t->input, next, &options));
    options.work = NULL;
    KB_TRY(kb_distributed_recv(ctx, t->output, previous, &options));
    KB_TRY(kb_request_wait(ctx, sent, NULL));
    return kb_request_free(ctx, sent);
}

static kb_error *call_once(void *arg, uint32_t rank)
{
    const tensors *t = arg;
    const job *j = t->of;
    kb_collective call = {
        .kind = j->is->kind,
        .inputs = &t->input,
        .outputs = &t->output,
        .count = 1,
        .op = j->op,
        .root = j->root,
        .options.algorithm = j->algorithm,
    };
    if (j->is->kind == KB_SEND)
        return send_and_receive(j, rank, t);
    return kb_distributed_call(kb_bench_context(j->bench), &call);
}

static kb_error *work(kb_context *ctx, uint32_t rank, void *arg)
{
    job *j = arg;
    tensors t;
    KB_TRY(kb_ahbm_set_device(ctx, kb_bench_device(j->bench, rank)));
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    KB_TRY(make_tensors(j, rank, &t));
    for (uint32_t i = 0; i <= j->warmup; i++) {
        if (has_data(j) && t.input.id != 0)
            KB_TRY(bench_fill(ctx, t.input, j->dtype, j->inputs[rank], input_count(j)));
        KB_TRY(bench_time(ctx, call_once, &t, rank, &j->time));
    }
    if (has_data(j) && t.output.id != 0)
        KB_TRY(check(j, rank, t.output));
    if (rank == 0)
        KB_TRY(kb_distributed_get_stats(ctx, (kb_group){0}, &j->stats));
    if (t.input.id != 0)
        KB_TRY(kb_tensor_free(ctx, t.input));
    if (t.output.id != 0 && !j->is->in_place)
        KB_TRY(kb_tensor_free(ctx, t.output));
    return kb_distributed_destroy_process_group(ctx);
}

/* ---- All sizes --------------------------------------------------------------------------- */

static void free_numbers(job *j)
{
    for (uint32_t rank = 0; j->inputs && rank < j->world; rank++)
        free(j->inputs[rank]);
    free(j->inputs);
    j->inputs = NULL;
}

static kb_error *make_numbers(job *j)
{
    j->inputs = calloc(j->world, sizeof *j->inputs);
    bool all = j->inputs != NULL;
    for (uint32_t rank = 0; all && rank < j->world; rank++) {
        j->inputs[rank] = bench_numbers(rank + 1, j->dtype, input_count(j));
        all = j->inputs[rank] != NULL;
    }
    return all ? NULL : kb_error_new(KB_ERR_HOST, "out of memory");
}

static kb_error *run_size(job *j, uint64_t size)
{
    uint64_t blocks = j->is->many_in || j->is->many_out ? j->world : 1;
    uint64_t grain = blocks * kb_dtype_bytes(j->dtype);
    uint64_t block = size > grain ? size / grain : 1;
    if (block == j->block)
        return NULL; /* rounds to the previous size */
    j->block = block;
    uint64_t before = j->wrong;
    if (has_data(j))
        KB_TRY(make_numbers(j));
    KB_TRY(kb_spawn(kb_bench_context(j->bench), work, j, j->world));
    char root[16] = "-1";
    if (j->is->has_root)
        snprintf(root, sizeof root, "%u", j->root);
    j->row = (bench_row){.size = j->block * grain,
                         .count = j->block * blocks,
                         .dtype = j->dtype,
                         .op = j->is->reduces ? kb_reduce_op_name(j->op) : "none",
                         .root = root,
                         .time = j->time,
                         .checked = has_data(j),
                         .wrong = j->wrong - before,
                         .stats = j->stats};
    bench_print_row(j->bench, &j->row);
    return NULL;
}

/* Chooses the algorithm and the number of ranks. */
static kb_error *choose(job *j)
{
    kb_ccl_info info;
    KB_TRY(kb_ccl_get_info(kb_bench_context(j->bench), &info));
    if (info.rank_is_pe)
        return kb_error_new(KB_ERR_INPUT,
                            "%s is between devices, but with algorithm '%s' of ccl.yaml ranks are "
                            "PEs: set ccl.defaults.algorithm to another one",
                            kb_collective_name(j->is->kind), info.algorithm);
    bool can = info.collectives >> j->is->kind & 1;
    j->algorithm = can ? info.algorithm : "auto";
    j->at_one_pe = can && strcmp(info.validator, "single_shard_per_rank") == 0;
    j->world = info.world;
    if (j->root >= j->world)
        return kb_error_new(KB_ERR_INPUT, "root=%u: ranks are 0 to %u", j->root, j->world - 1);
    if (j->is->kind == KB_SEND && j->world < 2)
        return kb_error_new(KB_ERR_INPUT, "ccl_sendrecv needs at least two devices");
    return NULL;
}

static kb_error *run(kb_bench *bench, const collective *is)
{
    job j = {.bench = bench,
             .is = is,
             .dtype = (kb_dtype)kb_bench_param(bench, "dtype"),
             .op = (kb_reduce_op)kb_bench_param(bench, "op"),
             .root = (uint32_t)kb_bench_param(bench, "root"),
             .warmup = (uint32_t)kb_bench_param(bench, "warmup")};
    bench_sizes sizes;
    KB_TRY(choose(&j));
    KB_TRY(bench_get_sizes(bench, &sizes));
    bench_print_head(bench, is->size_label, j.world);
    kb_error *err = NULL;
    for (uint64_t size = sizes.first; size <= sizes.last && !err; size *= sizes.factor) {
        err = run_size(&j, size);
        free_numbers(&j);
    }
    if (!err)
        bench_add_largest(bench, &j.row);
    if (!err && j.wrong > 0)
        err = kb_error_new(KB_ERR_CHECK, "%" PRIu64 " elements are wrong", j.wrong);
    if (!err && has_data(&j))
        kb_bench_confirm(bench);
    return err;
}

/* ---- The benches ------------------------------------------------------------------------- */

static const kb_param params[] = {CCL_SWEEP_PARAMS(1024, 1 << 20, .names = bench_ops,
                                                   .help = "reduce operation, for reductions")};

#define BENCH(bench, text, means, ...)                                                             \
    static kb_error *run_##bench(kb_bench *b)                                                      \
    {                                                                                              \
        static const collective is = {.size_label = (means), __VA_ARGS__};                         \
        return run(b, &is);                                                                        \
    }                                                                                              \
    const kb_bench_spec bench_##bench = {                                                          \
        .name = #bench,                                                                            \
        .summary = (text),                                                                         \
        .params = params,                                                                          \
        .param_count = sizeof params / sizeof params[0],                                           \
        .run = run_##bench,                                                                        \
    }

BENCH(ccl_all_gather, "all-gather between devices, by size", "of the output", .kind = KB_ALL_GATHER,
      .many_out = true);
BENCH(ccl_reduce_scatter, "reduce-scatter between devices, by size", "of the input",
      .kind = KB_REDUCE_SCATTER, .many_in = true, .reduces = true);
BENCH(ccl_broadcast, "broadcast from one device to all, by size", "of the tensor",
      .kind = KB_BROADCAST, .in_place = true, .has_root = true);
BENCH(ccl_reduce, "reduction of all devices' tensors to one, by size", "of the tensor",
      .kind = KB_REDUCE, .in_place = true, .reduces = true, .has_root = true);
BENCH(ccl_gather, "gather to one device, by size", "of the root's output", .kind = KB_GATHER,
      .many_out = true, .out_at_root = true, .has_root = true);
BENCH(ccl_scatter, "scatter from one device, by size", "of the root's input", .kind = KB_SCATTER,
      .many_in = true, .in_at_root = true, .has_root = true);
BENCH(ccl_all_to_all, "all-to-all between devices, by size", "of the input", .kind = KB_ALL_TO_ALL,
      .many_in = true, .many_out = true);
BENCH(ccl_sendrecv, "every device sends to the next one, by size", "of the tensor",
      .kind = KB_SEND);
