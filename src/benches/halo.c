/*
 * halo.c: a stencil with a halo exchange, as an ordinary kernel over an ordinary tensor.
 *
 * A grid is split by rows over the cubes and over the PEs of each. In every step each cell becomes
 * the mean of its four neighbours; outside the grid there are zeros. A PE needs the last row of the
 * previous PE and the first row of the next PE. They are sent through queues, N and S, which the
 * bench installs between adjacent PEs. The other rows stay in the TCM for all steps.
 *
 * Receives are posted before the sends, so that a row that takes more slots than a queue has cannot
 * block both PEs. The inner rows do not wait for the exchange.
 */
#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

#include <stdlib.h>
#include <string.h>

#include "benches.h"

/* ---- The kernel -------------------------------------------------------------------------- */

/* The row of the neighbour in that direction, or zeros at the edge of the grid. */
static tl_tensor halo_row(tl_context *tl, const char *direction, int64_t columns)
{
    if (tl_can_recv(direction))
        return tl_recv_async(direction, tl_shape(1, columns), TL_F32);
    return tl_zeros(tl_shape(1, columns), TL_F32);
}

/* u with a row above, and without its last row. */
static tl_tensor shift_down(tl_context *tl, tl_tensor above, tl_tensor u, int64_t rows)
{
    return rows > 1 ? tl_concat(0, above, tl_slice(u, 0, 0, rows - 1)) : above;
}

static tl_tensor shift_up(tl_context *tl, tl_tensor u, tl_tensor below, int64_t rows)
{
    return rows > 1 ? tl_concat(0, tl_slice(u, 0, 1, rows), below) : below;
}

/* The sums of the left and right neighbours of all cells. */
static tl_tensor add_sides(tl_context *tl, tl_tensor u, int64_t rows, int64_t columns)
{
    tl_tensor edge = tl_zeros(tl_shape(rows, 1), TL_F32);
    if (columns == 1)
        return edge;
    tl_tensor left = tl_concat(1, edge, tl_slice(u, 1, 0, columns - 1));
    tl_tensor right = tl_concat(1, tl_slice(u, 1, 1, columns), edge);
    return tl_add(left, right);
}

KB_KERNEL(relax, tl_ptr grid, int64_t all_rows, int64_t columns, int steps)
{
    int64_t pe = tl_program_id(0), pes = tl_num_programs(0);
    int64_t cube = tl_program_id(1), cubes = tl_num_programs(1);
    int64_t of_cube = tl_part_size(all_rows, cubes, cube);
    int64_t rows = tl_part_size(of_cube, pes, pe);
    int64_t before = tl_part_begin(all_rows, cubes, cube) + tl_part_begin(of_cube, pes, pe);
    tl_ptr mine = grid + before * columns * 4;

    tl_tensor u = tl_load(mine, tl_shape(rows, columns), TL_F32);
    for (int step = 0; step < steps; step++)
        TL_SCOPE {
            tl_tensor above = halo_row(tl, "N", columns), below = halo_row(tl, "S", columns);
            if (tl_can_send("N"))
                tl_send("N", tl_slice(u, 0, 0, 1));
            if (tl_can_send("S"))
                tl_send("S", tl_slice(u, 0, rows - 1, rows));
            tl_tensor sides = add_sides(tl, u, rows, columns);
            tl_tensor sum = tl_add(shift_down(tl, above, u, rows), shift_up(tl, u, below, rows));
            tl_assign(&u, tl_mul(tl_add(sum, sides), 0.25));
        }
    tl_store(mine, u);
}

/* ---- The host ---------------------------------------------------------------------------- */

static const kb_policy by_rows = {.cube = KB_ROW_WISE, .pe = KB_ROW_WISE};

/* Connects PEs that have rows, in the order of the rows: S to the next PE, N back. */
static size_t list_edges(const kb_shard *shards, size_t count, kb_queue_edge *edges)
{
    size_t edge_count = 0;
    const kb_shard *last = NULL;
    for (size_t i = 0; i < count; i++) {
        const kb_shard *shard = &shards[i];
        if (shard->nbytes == 0)
            continue;
        if (last) {
            kb_pe a = {last->sip, last->cube, last->pe}, b = {shard->sip, shard->cube, shard->pe};
            edges[edge_count++] = (kb_queue_edge){a, "S", b};
            edges[edge_count++] = (kb_queue_edge){b, "N", a};
        }
        last = shard;
    }
    return edge_count;
}

/* Queues between adjacent PEs. None if all rows are on one PE. */
static kb_error *connect(kb_context *ctx, const kb_tensor_spec *spec, kb_queue_set *set)
{
    size_t count;
    *set = (kb_queue_set){0};
    KB_TRY(kb_plan_shards(ctx, spec, NULL, 0, &count));
    kb_shard *shards = calloc(count, sizeof *shards);
    kb_queue_edge *edges = calloc(2 * count, sizeof *edges);
    kb_error *err = shards && edges ? NULL : kb_error_new(KB_ERR_HOST, "out of memory");
    if (!err)
        err = kb_plan_shards(ctx, spec, shards, count, &count);
    size_t edge_count = err ? 0 : list_edges(shards, count, edges);
    if (edge_count > 0)
        err =
            kb_queues_create(ctx, &(kb_queue_spec){.edges = edges, .edge_count = edge_count}, set);
    if (!err && set->id != 0)
        err = kb_queues_install(ctx, *set);
    free(shards);
    free(edges);
    return err;
}

/* One step, the same on the host in double precision. */
static void relax_on_host(const double *from, double *to, int64_t rows, int64_t columns)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            const double *at = &from[i * columns + j];
            double sum = i > 0 ? at[-columns] : 0;
            sum += i + 1 < rows ? at[columns] : 0;
            sum += j > 0 ? at[-1] : 0;
            sum += j + 1 < columns ? at[1] : 0;
            to[i * columns + j] = sum / 4;
        }
}

typedef struct numbers {
    size_t count;
    float *floats;
    double *now, *next;
} numbers;

static kb_error *run_grid(kb_bench *bench, numbers *n)
{
    kb_context *ctx = kb_bench_context(bench);
    int64_t rows = kb_bench_param(bench, "rows"), columns = kb_bench_param(bench, "columns");
    int64_t steps = kb_bench_param(bench, "steps");
    kb_tensor_spec spec = {.name = "grid",
                           .dtype = KB_F32,
                           .shape = KB_SHAPE((uint64_t)rows, (uint64_t)columns),
                           .policy = &by_rows,
                           .access = KB_UNTIMED};
    kb_tensor grid;
    kb_queue_set queues;
    KB_TRY(kb_empty(ctx, &spec, &grid));
    KB_TRY(
        kb_tensor_set_slice(ctx, grid, KB_UNTIMED, NULL, n->floats, n->count * sizeof *n->floats));
    kb_bench_print(bench,
                   "%lld steps of a 4-point stencil on a grid (%lld, %lld) in f32, cut by rows "
                   "over the PEs of one SIP",
                   (long long)steps, (long long)rows, (long long)columns);
    KB_TRY(connect(ctx, &spec, &queues));
    kb_time began = kb_context_now(ctx);
    KB_TRY(kb_launch_with(ctx, (&(kb_launch_options){.queues = queues}), &relax, grid, rows,
                          columns, steps));
    double time = kb_to_ns(kb_context_now(ctx) - began);
    kb_bench_metric(bench, "step_time", time / (double)(steps > 0 ? steps : 1),
                    "ns a step, launch included");
    kb_bench_metric(bench, "cells_per_ns", (double)(steps * rows * columns) / time,
                    "cells updated a ns, launch included");
    if (queues.id != 0)
        KB_TRY(kb_queues_remove(ctx, queues));
    for (int64_t step = 0; step < steps && kb_bench_verifies(bench); step++) {
        relax_on_host(n->now, n->next, rows, columns);
        double *swap = n->now;
        n->now = n->next;
        n->next = swap;
    }
    return kb_bench_verify(bench, grid, n->now, 1e-6, 1e-5);
}

static kb_error *run(kb_bench *bench)
{
    size_t count = (size_t)(kb_bench_param(bench, "rows") * kb_bench_param(bench, "columns"));
    numbers n = {.count = count,
                 .floats = malloc(count * sizeof *n.floats),
                 .now = malloc(count * sizeof *n.now),
                 .next = malloc(count * sizeof *n.next)};
    kb_error *err = kb_error_new(KB_ERR_HOST, "out of memory");
    if (n.floats && n.now && n.next) {
        kb_error_free(err);
        kb_bench_random(1, KB_F32, n.floats, count);
        for (size_t i = 0; i < count; i++)
            n.now[i] = (double)n.floats[i];
        err = run_grid(bench, &n);
    }
    free(n.floats);
    free(n.now);
    free(n.next);
    return err;
}

static const kb_param params[] = {
    {.name = "rows", .value = 1000, .min = 1, .max = 1 << 14, .help = "of the grid"},
    {.name = "columns", .value = 512, .min = 1, .max = 1 << 14, .help = "of the grid"},
    {.name = "steps", .value = 16, .min = 0, .max = 1 << 16, .help = "of the stencil"},
};

const kb_bench_spec bench_halo = {
    .name = "halo",
    .summary = "a stencil whose PEs exchange the edges of their parts through queues",
    .params = params,
    .param_count = sizeof params / sizeof params[0],
    .run = run,
};
