/*
 * ccl_allreduce.c: the all-reduce that ccl.yaml selects, as a program of workers: each sets its
 * device, joins the process group, makes its tensor and reduces it.
 *
 * By default rank r fills its tensor with r + 1 (if the algorithm also reduces the shards of a
 * device and each PE has one: each shard with its number + 1), and one line reports how many
 * results are correct. With max_bytes it prints a table of sizes instead, with random numbers.
 *
 * The layout is the one that the algorithm requires. If ranks are PEs, one worker drives all of
 * them, with a tensor on each device that has ranks.
 */
#include <kernbench/ccl.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "benches.h"
#include "ccl_common.h"

/* A tensor with n_elem elements per shard. In a table of sizes, a tensor that may be split anywhere
 * counts as one shard, so that any number of elements is possible. */
typedef struct rank_tensor {
    uint32_t device;
    uint32_t first; /* number of its first shard, among those of all ranks */
    uint32_t shards;
} rank_tensor;

typedef struct job {
    kb_bench *bench;
    kb_ccl_info info;
    kb_dtype dtype;
    kb_reduce_op op;
    uint32_t warmup;
    bool sweeps;
    uint32_t rank_tensor_count, shard_count; /* in all */
    rank_tensor *rank_tensors;
    kb_tensor *tensors; /* by rank_tensor */

    /* Of the current size. */
    uint64_t n_elem;
    double *inputs;        /* n_elem for each shard; NULL without data */
    double *expected;      /* n_elem for each shard of a rank; n_elem if shards are reduced too */
    double *magnitude;     /* sum of the magnitudes of the terms of each */
    kb_time time;          /* of the last call */
    uint64_t right, wrong; /* ranks or shards; elements */
    double mean;           /* of the wrong results */
    kb_collective_stats stats;
} job;

static bool has_data(const job *j)
{
    return !kb_context_is_timing_only(kb_bench_context(j->bench));
}

static bool is_per_cube(const job *j)
{
    return strcmp(j->info.validator, "shard_per_cube") == 0;
}

/* ---- Layouts ----------------------------------------------------------------------------- */

static bool is_at_one_pe(const job *j)
{
    return strcmp(j->info.validator, "single_shard_per_rank") == 0;
}

/* Whether PEs may have different numbers of elements. */
static bool is_cut_anywhere(const job *j)
{
    return j->info.validator[0] == '\0' && !j->info.reduce_shards;
}

/* The shards of a rank's tensor, if ranks are devices. */
static uint32_t shards_of_rank(const job *j)
{
    kb_machine machine = kb_context_machine(kb_bench_context(j->bench));
    if (is_per_cube(j))
        return machine.cubes;
    if (is_at_one_pe(j) || (j->sweeps && is_cut_anywhere(j)))
        return 1;
    return machine.cubes * machine.pes;
}

static kb_error *list_rank_tensors(job *j)
{
    kb_machine machine = kb_context_machine(kb_bench_context(j->bench));
    uint32_t of_device = machine.cubes * machine.pes;
    uint32_t world = j->info.world;
    j->rank_tensor_count = j->info.rank_is_pe ? (world + of_device - 1) / of_device : world;
    if (j->rank_tensor_count > kb_bench_device_count(j->bench))
        return kb_error_new(KB_ERR_INPUT,
                            "algorithm '%s' of ccl.yaml has %u ranks: it needs %u devices, but "
                            "there are %u",
                            j->info.algorithm, world, j->rank_tensor_count,
                            kb_bench_device_count(j->bench));
    j->rank_tensors = calloc(j->rank_tensor_count, sizeof *j->rank_tensors);
    j->tensors = calloc(j->rank_tensor_count, sizeof *j->tensors);
    if (!j->rank_tensors || !j->tensors)
        return kb_error_new(KB_ERR_HOST, "out of memory");
    for (uint32_t i = 0; i < j->rank_tensor_count; i++) {
        rank_tensor *h = &j->rank_tensors[i];
        h->device = kb_bench_device(j->bench, i);
        h->first = j->shard_count;
        h->shards = shards_of_rank(j);
        if (j->info.rank_is_pe)
            h->shards = world - h->first < of_device ? world - h->first : of_device;
        j->shard_count += h->shards;
    }
    return NULL;
}

static kb_error *fill_tensor(const job *j, uint32_t index)
{
    const rank_tensor *h = &j->rank_tensors[index];
    if (!has_data(j))
        return NULL;
    return bench_fill(kb_bench_context(j->bench), j->tensors[index], j->dtype,
                      j->inputs + h->first * j->n_elem, h->shards * j->n_elem);
}

static kb_error *make_tensor(const job *j, uint32_t index)
{
    const rank_tensor *h = &j->rank_tensors[index];
    kb_context *ctx = kb_bench_context(j->bench);
    uint64_t columns = h->shards * j->n_elem;
    kb_policy policy = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    kb_tensor_spec spec = {
        .name = "x", .dtype = j->dtype, .shape = KB_SHAPE(1, columns), .access = KB_UNTIMED};
    spec.policy = &policy;
    if (j->info.rank_is_pe) /* a tile for each of the first PEs */
        policy =
            (kb_policy){.tiling = KB_TILED_COLUMN_MAJOR, .tile_rows = 1, .tile_columns = j->n_elem};
    else if (is_per_cube(j)) {
        spec.shape = KB_SHAPE(h->shards, j->n_elem);
        policy = (kb_policy){.cube = KB_ROW_WISE, .num_pes = 1};
    } else if (is_at_one_pe(j)) {
        spec.policy = NULL;
    }
    KB_TRY(kb_ahbm_set_device(ctx, h->device));
    KB_TRY(kb_empty(ctx, &spec, &j->tensors[index]));
    return fill_tensor(j, index);
}

/* ---- Expected results -------------------------------------------------------------------- */

/* The elements of a rank that have a counterpart on every other rank. */
static uint64_t result_count(const job *j)
{
    bool single = j->info.reduce_shards || j->info.rank_is_pe;
    return (single ? 1 : j->rank_tensors[0].shards) * j->n_elem;
}

static double input_of(const job *j, uint32_t index, uint32_t shard)
{
    bool by_shard = j->info.rank_is_pe || (j->info.reduce_shards && !is_per_cube(j));
    return by_shard ? shard + 1.0 : index + 1.0;
}

static kb_error *make_numbers(job *j, uint64_t seed)
{
    uint64_t total = j->shard_count * j->n_elem, results = result_count(j);
    j->inputs = calloc(total, sizeof *j->inputs);
    j->expected = calloc(results, sizeof *j->expected);
    j->magnitude = calloc(results, sizeof *j->magnitude);
    double *random = j->sweeps ? bench_numbers(seed, j->dtype, total) : NULL;
    if (!j->inputs || !j->expected || !j->magnitude || (j->sweeps && !random)) {
        free(random);
        return kb_error_new(KB_ERR_HOST, "out of memory");
    }
    for (uint32_t i = 0; i < j->rank_tensor_count; i++)
        for (uint64_t k = 0; k < j->rank_tensors[i].shards * j->n_elem; k++) {
            uint64_t at = j->rank_tensors[i].first * j->n_elem + k;
            j->inputs[at] = random ? random[at] : input_of(j, i, (uint32_t)(at / j->n_elem));
        }
    free(random);
    for (uint64_t k = 0; k < total; k++) {
        double *sum = &j->expected[k % results];
        *sum = k < results ? j->inputs[k] : bench_combine(j->op, *sum, j->inputs[k]);
        j->magnitude[k % results] += fabs(j->inputs[k]);
    }
    double added_up = (double)total / (double)results;
    for (uint64_t k = 0; k < results && j->op == KB_AVG; k++) {
        j->expected[k] /= added_up;
        j->magnitude[k] /= added_up;
    }
    return NULL;
}

static void free_numbers(job *j)
{
    free(j->inputs);
    free(j->expected);
    free(j->magnitude);
    j->inputs = j->expected = j->magnitude = NULL;
}

/* Counts the wrong elements of a shard. */
static uint64_t check_shard(job *j, uint32_t shard, const double *got)
{
    uint64_t wrong = 0, results = result_count(j);
    double relative = bench_tolerance(j->dtype, j->shard_count);
    double sum = 0;
    for (uint64_t k = 0; k < j->n_elem; k++) {
        uint64_t at = (shard * j->n_elem + k) % results;
        double off = fabs(got[k] - j->expected[at]);
        wrong += !(off <= relative * (j->magnitude[at] + fabs(j->expected[at])));
        sum += got[k];
    }
    if (wrong > 0)
        j->mean = sum / (double)j->n_elem;
    return wrong;
}

static kb_error *check(job *j, uint32_t index)
{
    kb_context *ctx = kb_bench_context(j->bench);
    const rank_tensor *h = &j->rank_tensors[index];
    uint64_t count = h->shards * j->n_elem;
    double *got = malloc((count > 0 ? count : 1) * sizeof *got);
    if (!got)
        return kb_error_new(KB_ERR_HOST, "out of memory");
    kb_error *err = bench_read(ctx, j->tensors[index], j->dtype, got, count);
    uint64_t wrong = 0;
    for (uint32_t s = 0; s < h->shards && !err; s++) {
        uint64_t here = check_shard(j, s, got + s * j->n_elem);
        wrong += here;
        if (is_per_cube(j) || j->info.rank_is_pe)
            j->right += here == 0;
    }
    if (!is_per_cube(j) && !j->info.rank_is_pe)
        j->right += wrong == 0;
    j->wrong += wrong;
    free(got);
    return err;
}

/* ---- The all-reduce ---------------------------------------------------------------------- */

/* The tensors that a worker drives: its rank's, or all of them if ranks are PEs. */
static uint32_t first_of(const job *j, uint32_t rank)
{
    return j->info.rank_is_pe ? 0 : rank;
}

static uint32_t count_of(const job *j)
{
    return j->info.rank_is_pe ? j->rank_tensor_count : 1;
}

static kb_error *reduce(void *arg, uint32_t rank)
{
    const job *j = arg;
    const kb_tensor *tensors = j->tensors + first_of(j, rank);
    kb_collective call = {
        .kind = KB_ALL_REDUCE,
        .inputs = tensors,
        .outputs = tensors,
        .count = count_of(j),
        .op = j->op,
        .options.algorithm = j->info.algorithm,
    };
    return kb_distributed_call(kb_bench_context(j->bench), &call);
}

static kb_error *work(kb_context *ctx, uint32_t rank, void *arg)
{
    job *j = arg;
    uint32_t first = first_of(j, rank), end = first + count_of(j);
    KB_TRY(kb_ahbm_set_device(ctx, j->rank_tensors[first].device));
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    for (uint32_t i = first; i < end; i++)
        KB_TRY(make_tensor(j, i));
    for (uint32_t i = 0; i <= j->warmup; i++) {
        for (uint32_t k = first; k < end && i > 0; k++)
            KB_TRY(fill_tensor(j, k));
        KB_TRY(bench_time(ctx, reduce, j, rank, &j->time));
    }
    for (uint32_t i = first; i < end && has_data(j); i++)
        KB_TRY(check(j, i));
    if (rank == 0)
        KB_TRY(kb_distributed_get_stats(ctx, (kb_group){0}, &j->stats));
    for (uint32_t i = first; i < end; i++)
        KB_TRY(kb_tensor_free(ctx, j->tensors[i]));
    return kb_distributed_destroy_process_group(ctx);
}

static kb_error *run_size(job *j, uint64_t n_elem, uint64_t seed)
{
    j->n_elem = n_elem;
    j->right = j->wrong = 0;
    kb_error *err = has_data(j) ? make_numbers(j, seed) : NULL;
    if (!err)
        err = kb_spawn(kb_bench_context(j->bench), work, j, j->info.rank_is_pe ? 1 : j->info.world);
    return err;
}

/* ---- Output ------------------------------------------------------------------------------ */

static kb_error *report_single(job *j)
{
    kb_bench_metric(j->bench, "first_call", kb_to_ns(j->time),
                    "ns for the first call, which also installs the queues");
    kb_bench_metric(j->bench, "bound", kb_to_ns(j->stats.lower_bound),
                    "ns that any algorithm needs at least");
    if (!has_data(j)) {
        kb_bench_print(j->bench, "%s (ws=%u): not checked (timing-only)", j->info.algorithm,
                       j->info.world);
        return NULL;
    }
    if (j->wrong == 0) {
        kb_bench_confirm(j->bench);
        kb_bench_print(j->bench, "%s (ws=%u): %" PRIu64 " OK", j->info.algorithm, j->info.world,
                       j->right);
        return NULL;
    }
    kb_bench_print(j->bench, "[FAIL] %s (ws=%u): got mean=%g, expected=%g", j->info.algorithm,
                   j->info.world, j->mean, j->expected[0]);
    return kb_error_new(KB_ERR_CHECK, "%s: %" PRIu64 " elements are wrong", j->info.algorithm,
                        j->wrong);
}

/* The meaning of size: of one participant, which is a PE if shards are reduced too. */
static const char *size_label(const job *j)
{
    if (j->info.rank_is_pe)
        return "bytes of one PE";
    return j->info.reduce_shards ? "bytes of one participant" : "bytes of one device";
}

static kb_error *sweep(job *j)
{
    uint32_t shards = j->info.rank_is_pe || j->info.reduce_shards ? 1 : j->rank_tensors[0].shards;
    uint64_t grain = shards * kb_dtype_bytes(j->dtype), wrong = 0;
    bench_sizes sizes;
    KB_TRY(bench_get_sizes(j->bench, &sizes));
    bench_print_head(j->bench, size_label(j), j->info.world);
    bench_row row = {0};
    for (uint64_t size = sizes.first; size <= sizes.last; size *= sizes.factor) {
        uint64_t n_elem = size > grain ? size / grain : 1;
        if (n_elem == j->n_elem)
            continue; /* rounds to the previous size */
        kb_error *err = run_size(j, n_elem, size);
        free_numbers(j);
        KB_TRY(err);
        row = (bench_row){.size = n_elem * grain,
                          .count = n_elem * shards,
                          .dtype = j->dtype,
                          .op = kb_reduce_op_name(j->op),
                          .root = "-1",
                          .time = j->time,
                          .checked = has_data(j),
                          .wrong = j->wrong,
                          .stats = j->stats};
        bench_print_row(j->bench, &row);
        wrong += j->wrong;
    }
    bench_add_largest(j->bench, &row);
    if (wrong > 0)
        return kb_error_new(KB_ERR_CHECK, "%" PRIu64 " elements are wrong", wrong);
    if (has_data(j))
        kb_bench_confirm(j->bench);
    return NULL;
}

/* Whether the sum of all inputs exceeds the range of f16. */
static bool overflows_f16(const job *j)
{
    double count = j->shard_count;
    return j->dtype == KB_F16 && count * (count + 1) / 2 > 65504;
}

static kb_error *run_job(job *j)
{
    KB_TRY(kb_ccl_get_info(kb_bench_context(j->bench), &j->info));
    kb_reduce_op op = (kb_reduce_op)kb_bench_param(j->bench, "op");
    j->op = op == KB_REDUCE_OPS ? j->info.op : op;
    j->dtype = (kb_dtype)kb_bench_param(j->bench, "dtype");
    j->sweeps =
        kb_bench_param(j->bench, "max_bytes") > 0 || kb_bench_param(j->bench, "min_bytes") > 0;
    j->warmup = j->sweeps ? (uint32_t)kb_bench_param(j->bench, "warmup") : 0;
    KB_TRY(list_rank_tensors(j));
    if (j->sweeps)
        return sweep(j);
    if (overflows_f16(j))
        j->dtype = KB_F32;
    KB_TRY(run_size(j, j->info.n_elem > 0 ? (uint64_t)j->info.n_elem : 8, 0));
    return report_single(j);
}

static kb_error *run(kb_bench *bench)
{
    job j = {.bench = bench};
    kb_error *err = run_job(&j);
    free_numbers(&j);
    free(j.rank_tensors);
    free(j.tensors);
    return err;
}

static const kb_param params[] = {
    CCL_SWEEP_PARAMS(0, 0, .names = bench_ops_or_default, .value = KB_REDUCE_OPS,
                     .help = "reduce operation; default: reduce_op of ccl.yaml")};

const kb_bench_spec bench_ccl_allreduce = {
    .name = "ccl_allreduce",
    .summary = "the all-reduce that ccl.yaml selects; with max_bytes a table of sizes",
    .params = params,
    .param_count = sizeof params / sizeof params[0],
    .run = run,
};

const kb_bench_spec bench_ipcq_allreduce = {
    .name = "ipcq_allreduce",
    .summary = "alias of ccl_allreduce",
    .params = params,
    .param_count = sizeof params / sizeof params[0],
    .run = run,
};
