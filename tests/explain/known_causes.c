/*
 * known_causes.c: programs that are each slow for one reason, which their name says.
 * tests/explain/causes.sh checks that `explain` names it. A tensor `x` has BLOCK bytes in the HBM
 * slice of each PE.
 *
 *     kernbench explain --bench tests/explain/known_causes.c:slow_link
 */
#include <time.h>

#include <kernbench/kernbench.h>
#include <kernbench/tl.h>

enum { SIDE = 64, TILE = SIDE * SIDE * 2, BLOCK = 16 * TILE };

/* Where the shard of that PE begins. */
static tl_ptr shard_of(tl_context *tl, tl_ptr x, int64_t cube, int64_t pe)
{
    return x + (cube * tl_num_programs(0) + pe) * BLOCK;
}

static tl_tensor load_tile(tl_context *tl, tl_ptr from, int64_t number)
{
    return tl_load(from + number % (BLOCK / TILE) * TILE, tl_shape(SIDE, SIDE), TL_F16);
}

static bool is_first(tl_context *tl)
{
    return tl_program_id(0) == 0 && tl_program_id(1) == 0;
}

/* ---- Kernels ----------------------------------------------------------------------------- */

/* The PEs of the first cube read slices of the second one, each PE its own: over one UCIe port. */
KB_KERNEL(read_neighbours, tl_ptr x, int64_t steps)
{
    if (tl_program_id(1) != 0)
        return;
    tl_ptr from = shard_of(tl, x, tl_num_programs(1) > 1, tl_program_id(0));
    for (int64_t i = 0; i < steps; i++)
        TL_SCOPE
            tl_load(from + i % 4 * (BLOCK / 4), tl_shape(4 * SIDE, SIDE), TL_F16);
}

/* The first PE reads the neighbour's slice; the others, near ones, have a little to do at home. */
KB_KERNEL(read_alone, tl_ptr x, int64_t steps)
{
    if (!is_first(tl)) {
        tl_store(shard_of(tl, x, tl_program_id(1), tl_program_id(0)),
                 tl_exp(load_tile(tl, x, tl_program_id(0))));
        return;
    }
    for (int64_t i = 0; i < steps; i++)
        TL_SCOPE
            tl_load(shard_of(tl, x, 1, 0), tl_shape(4 * SIDE, SIDE), TL_F16);
}

/* Half of the PEs work, all alike. */
KB_KERNEL(half_of_them, tl_ptr x, int64_t steps)
{
    tl_ptr mine = shard_of(tl, x, tl_program_id(1), tl_program_id(0));
    tl_tensor tile = load_tile(tl, mine, 0);
    for (int64_t i = 0; i < (tl_program_id(0) % 2 ? steps : 1); i++)
        tl_assign(&tile, tl_exp(tile));
    tl_store(mine, tile);
}

/* Products that do not depend on each other. */
KB_KERNEL(many_products, tl_ptr x, int64_t steps)
{
    tl_ptr mine = shard_of(tl, x, tl_program_id(1), tl_program_id(0));
    tl_tensor a = tl_load(mine, tl_shape(8 * SIDE, SIDE), TL_F16), b = load_tile(tl, mine, 8);
    for (int64_t i = 0; i < steps; i++)
        tl_free(tl_dot(a, b));
}

/* Sums of two tiles, each of which the vector engine reads and writes. */
KB_KERNEL(sums, tl_ptr x, int64_t steps)
{
    tl_ptr mine = shard_of(tl, x, tl_program_id(1), tl_program_id(0));
    tl_tensor tile = load_tile(tl, mine, 0);
    for (int64_t i = 0; i < steps; i++)
        tl_assign(&tile, tl_add(tile, tile));
    tl_store(mine, tile);
}

/* All do the same work but the last PE, which does ten times as much. */
KB_KERNEL(uneven, tl_ptr x, int64_t steps)
{
    bool is_last =
        tl_program_id(0) == tl_num_programs(0) - 1 && tl_program_id(1) == tl_num_programs(1) - 1;
    tl_ptr mine = shard_of(tl, x, tl_program_id(1), tl_program_id(0));
    for (int64_t i = 0; i < (is_last ? 10 : 1) * steps; i++)
        TL_SCOPE {
            tl_tensor tile = load_tile(tl, mine, i);
            tl_store(mine, tl_add(tl_dot(tile, tile), tile));
        }
}

/* Each product needs the one before. */
KB_KERNEL(chain_products, tl_ptr x, int64_t steps)
{
    if (!is_first(tl))
        return;
    tl_tensor factor = tl_load(x, tl_shape(16, 16), TL_F16);
    tl_tensor power = tl_load(x, tl_shape(16, 16), TL_F16);
    for (int64_t i = 0; i < steps; i++)
        tl_assign(&power, tl_dot(power, factor));
    tl_store(x, power);
}

/* The first PE of each cube sends to the second one, which only receives. */
KB_KERNEL(send_tiles, tl_ptr x, int64_t steps)
{
    tl_ptr mine = shard_of(tl, x, tl_program_id(1), tl_program_id(0));
    tl_tensor tile = tl_load(mine, tl_shape(16, 16), TL_F16);
    tl_wait(tile);
    for (int64_t i = 0; i < steps; i++)
        TL_SCOPE {
            if (tl_can_send("E"))
                tl_send("E", tile);
            if (tl_can_recv("E"))
                tl_wait(tl_recv("E", tl_shape(16, 16), TL_F16));
        }
}

KB_KERNEL(nearly_empty, tl_ptr x, int64_t step)
{
    if (is_first(tl) && step < 0)
        tl_store(x, tl_zeros(tl_shape(1, 16), TL_F16));
}

/* All PEs read the slice of the first one. */
KB_KERNEL(read_first_slice, tl_ptr x, int64_t steps)
{
    if (tl_program_id(1) != 0)
        return;
    for (int64_t i = 0; i < steps; i++)
        TL_SCOPE
            load_tile(tl, x, i);
}

/* One PE reads a tile of the last cube, and needs it before it reads the next one. */
KB_KERNEL(read_far, tl_ptr x, int64_t steps)
{
    tl_ptr far = shard_of(tl, x, tl_num_programs(1) - 1, tl_num_programs(0) - 1);
    if (!is_first(tl))
        return;
    for (int64_t i = 0; i < steps; i++)
        TL_SCOPE
            tl_wait(tl_add(tl_load(far, tl_shape(1, SIDE), TL_F16), 1));
}

KB_KERNEL(exponentials, tl_ptr x, int64_t steps)
{
    tl_ptr mine = shard_of(tl, x, tl_program_id(1), tl_program_id(0));
    tl_tensor tile = load_tile(tl, mine, 0);
    for (int64_t i = 0; i < steps; i++)
        tl_assign(&tile, tl_exp(tile));
    tl_store(mine, tile);
}

/* Both PEs wait for a message of the other, which comes after some work. */
KB_KERNEL(wait_for_each_other, tl_ptr x, int64_t steps)
{
    for (int64_t i = 0; i < steps; i++)
        TL_SCOPE
            load_tile(tl, shard_of(tl, x, tl_program_id(1), tl_program_id(0)), i);
    if (tl_can_recv("E"))
        tl_wait(tl_recv("E", tl_shape(16, 16), TL_F16));
}

KB_KERNEL(read_nowhere, tl_ptr x, int64_t steps)
{
    for (int64_t i = 0; i < steps; i++)
        TL_SCOPE
            load_tile(tl, x, i);
    tl_wait(tl_load(1, tl_shape(16), TL_F16));
}

/* ---- The host ---------------------------------------------------------------------------- */

static kb_error *make_x(kb_context *ctx, kb_tensor *x)
{
    static const kb_policy split = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    kb_machine machine = kb_context_machine(ctx);
    uint64_t pes = (uint64_t)machine.cubes * machine.pes;
    kb_tensor_spec spec = {.name = "x",
                           .dtype = KB_F16,
                           .shape = KB_SHAPE(pes * BLOCK / 2),
                           .policy = &split,
                           .access = KB_UNTIMED};
    return kb_zeros(ctx, &spec, x);
}

static int64_t steps_of(kb_bench *bench)
{
    return kb_bench_param(bench, "steps");
}

#define RUN(bench_name, kernel)                                                                    \
    static kb_error *run_##bench_name(kb_bench *bench)                                             \
    {                                                                                              \
        kb_context *ctx = kb_bench_context(bench);                                                 \
        kb_tensor x;                                                                               \
        KB_TRY(make_x(ctx, &x));                                                                   \
        return kb_launch(ctx, #bench_name, &kernel, x, steps_of(bench));                           \
    }

RUN(slow_link, read_neighbours)
RUN(straggler, uneven)
RUN(dependent_products, chain_products)
RUN(hot_slice, read_first_slice)
RUN(far_operand, read_far)
RUN(vector_work, exponentials)
RUN(lone_reader, read_alone)
RUN(half, half_of_them)
RUN(tcm_ports, sums)
RUN(products, many_products)

/* Bytes of the host, over its link and then one that is as fast. */
static kb_error *run_upload(kb_bench *bench)
{
    static const float zeros[1 << 16];
    kb_tensor_spec spec = {.name = "x", .dtype = KB_F32, .shape = KB_SHAPE(1 << 16)};
    kb_context *ctx = kb_bench_context(bench);
    kb_tensor host, x;
    KB_TRY(kb_from_host(ctx, &spec, zeros, sizeof zeros, &host));
    KB_TRY(kb_empty(ctx, &spec, &x));
    return kb_tensor_copy(ctx, x, host, KB_TIMED);
}

static kb_error *run_nothing(kb_bench *bench)
{
    kb_tensor x;
    return make_x(kb_bench_context(bench), &x);
}

/* Takes that long on every machine, and every core. */
static kb_error *run_long(kb_bench *bench)
{
    kb_context *ctx = kb_bench_context(bench);
    double seconds = 1e-3 * (double)steps_of(bench);
    kb_tensor x;
    for (clock_t begin = clock(); (double)(clock() - begin) < seconds * CLOCKS_PER_SEC;)
        continue;
    KB_TRY(make_x(ctx, &x));
    return kb_launch(ctx, "long", &nearly_empty, x, (int64_t)0);
}

static kb_error *run_launch_latency(kb_bench *bench)
{
    kb_context *ctx = kb_bench_context(bench);
    kb_tensor x;
    KB_TRY(make_x(ctx, &x));
    for (int64_t i = 0; i < steps_of(bench); i++)
        KB_TRY(kb_launch(ctx, "launch_latency", &nearly_empty, x, i));
    return NULL;
}

static kb_error *run_few_slots(kb_bench *bench)
{
    kb_context *ctx = kb_bench_context(bench);
    kb_tensor x;
    KB_TRY(make_x(ctx, &x));
    kb_queue_edge edge = {{0, 0, 0}, "E", {0, 0, 1}};
    kb_queue_set set;
    KB_TRY(kb_queues_create(ctx,
                            &(kb_queue_spec){.edges = &edge,
                                             .edge_count = 1,
                                             .n_slots = (uint32_t)kb_bench_param(bench, "slots"),
                                             .slot_bytes = 512},
                            &set));
    KB_TRY(kb_queues_install(ctx, set));
    kb_bench_metric(bench, "message_bound_ns", 100, "ns that its messages take at least");
    kb_bench_metric(bench, "share_of_bound", 50, "% that is reached");
    return kb_launch(ctx, "few_slots", &send_tiles, x, steps_of(bench));
}

static kb_error *run_deadlock(kb_bench *bench)
{
    kb_context *ctx = kb_bench_context(bench);
    kb_tensor x;
    KB_TRY(make_x(ctx, &x));
    kb_queue_edge edges[] = {{{0, 0, 0}, "E", {0, 0, 1}}, {{0, 0, 1}, "E", {0, 0, 0}}};
    kb_queue_set set;
    KB_TRY(kb_queues_create(ctx, &(kb_queue_spec){.edges = edges, .edge_count = 2}, &set));
    KB_TRY(kb_queues_install(ctx, set));
    return kb_launch(ctx, "deadlock", &wait_for_each_other, x, steps_of(bench));
}

RUN(fault, read_nowhere)

#define STEPS(count)                                                                               \
    {                                                                                              \
        .name = "steps", .value = (count), .min = 1, .max = 1 << 20, .help = "repetitions"         \
    }
#define BENCH(bench_name, count)                                                                   \
    static const kb_param params_of_##bench_name[] = {STEPS(count)};                               \
    static const kb_bench_spec bench_##bench_name = {.name = #bench_name,                          \
                                                     .summary = "is slow for one reason",          \
                                                     .params = params_of_##bench_name,             \
                                                     .param_count = 1,                             \
                                                     .run = run_##bench_name};

BENCH(slow_link, 40)
BENCH(straggler, 30)
BENCH(dependent_products, 100)
BENCH(hot_slice, 60)
BENCH(far_operand, 60)
BENCH(vector_work, 40)
BENCH(lone_reader, 40)
BENCH(half, 40)
BENCH(tcm_ports, 40)
BENCH(nothing, 1)
BENCH(products, 20)
BENCH(upload, 1)
BENCH(launch_latency, 12)
BENCH(deadlock, 4)
BENCH(fault, 4)
BENCH(long, 300)

static const kb_param params_of_few_slots[] = {
    STEPS(200), {.name = "slots", .value = 1, .min = 1, .max = 1024, .help = "of the queue"}};
static const kb_bench_spec bench_few_slots = {.name = "few_slots",
                                              .summary = "is slow for one reason",
                                              .params = params_of_few_slots,
                                              .param_count = 2,
                                              .run = run_few_slots};

KB_EXPORT_BENCHES(&bench_slow_link, &bench_straggler, &bench_dependent_products, &bench_hot_slice,
                  &bench_far_operand, &bench_vector_work, &bench_launch_latency, &bench_few_slots,
                  &bench_deadlock, &bench_fault, &bench_lone_reader, &bench_half, &bench_tcm_ports,
                  &bench_nothing, &bench_upload, &bench_products, &bench_long);
