/*
 * suite_collectives.c: all-reduces, timing only.
 *
 * What they cost the host: the plain ring over the 256 PEs of the default machine, 8 and 2,048
 * elements a PE: time of a call, and instructions of a message. SimPy runs a simplified machine,
 * with processes and with links that are times (ring.py).
 *
 * How near they come to the lower bound on the simulated machine, in percent: over SIPs through the
 * switch, in a ring, a torus and a mesh with direct links, and over the PEs of one SIP.
 */
#include "suite.h"

#include <stdio.h>

#include <kernbench/ccl.h>

typedef struct reduction {
    const char *name;
    const char *algorithm;       /* an entry of ccl.yaml; init installs its queues */
    const char *const *settings; /* of machine and ccl.yaml; ends with NULL */
    const char *device;
    uint64_t bytes; /* of a rank */
    bool is_long;   /* not among the quick ones */
} reduction;

#define SETTINGS(...)                                                                              \
    (const char *const[])                                                                          \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

/* Longer packets than the default's 256 bytes: nearly the same times, sooner. */
#define LONG_PACKETS "fabric.packet_bytes=4096"

static const reduction costs[] = {
    {.name = "ring256_8",
     .algorithm = "ring_allreduce_tcm",
     .settings = SETTINGS("ccl.defaults.algorithm=ring_allreduce_tcm",
                          "ccl.algorithms.ring_allreduce_tcm.world_size=256"),
     .bytes = 16},
    {.name = "ring256_2048",
     .algorithm = "ring_allreduce_tcm",
     .settings = SETTINGS("ccl.defaults.algorithm=ring_allreduce_tcm",
                          "ccl.algorithms.ring_allreduce_tcm.world_size=256"),
     .bytes = 4096},
};

static const reduction bounds[] = {
    {.name = "switch_2",
     .algorithm = "ring_rsag",
     .settings = SETTINGS("ccl.defaults.algorithm=ring_rsag", LONG_PACKETS),
     .bytes = 16 << 20},
    {.name = "switch_5",
     .algorithm = "ring_rsag",
     .settings = SETTINGS("ccl.defaults.algorithm=ring_rsag", "system.sips.count=5", LONG_PACKETS),
     .bytes = 16 << 20,
     .is_long = true},
    {.name = "ring_4",
     .algorithm = "ring_rsag",
     .settings = SETTINGS("ccl.defaults.algorithm=ring_rsag", "system.sips.count=4",
                          "system.sips.link.bw_gbs=100", "system.sips.link.length_mm=200",
                          "system.sips.link.overhead_ns=20", LONG_PACKETS),
     .bytes = 16 << 20,
     .is_long = true},
    {.name = "torus_3x3",
     .algorithm = "ring_rsag",
     .settings = SETTINGS("ccl.defaults.algorithm=ring_rsag", "system.sips.count=9",
                          "system.sips.topology=torus_2d", "system.sips.link.bw_gbs=100",
                          "system.sips.link.length_mm=200", "system.sips.link.overhead_ns=20",
                          LONG_PACKETS),
     .bytes = 16 << 20,
     .is_long = true},
    {.name = "mesh_3x2",
     .algorithm = "streams",
     .settings = SETTINGS(
         "ccl.defaults.algorithm=streams", "system.sips.count=6", "system.sips.w=3",
         "system.sips.h=2", "system.sips.topology=mesh_2d_no_wrap", "system.sips.link.bw_gbs=100",
         "system.sips.link.length_mm=200", "system.sips.link.overhead_ns=20", LONG_PACKETS),
     .bytes = 16 << 20,
     .is_long = true},
    {.name = "pes_128",
     .algorithm = "ring_rsag_pes",
     .settings = SETTINGS("ccl.defaults.algorithm=ring_rsag_pes", LONG_PACKETS),
     .device = "sip:0",
     .bytes = 16 << 20,
     .is_long = true},
};

enum { RING_PES = 256, RING_MESSAGES = RING_PES * (RING_PES - 1) };

typedef struct outcome {
    double host_ns;
    double share; /* of the bound, in percent */
} outcome;

/* ---- One all-reduce ---------------------------------------------------------------------- */

enum { MAX_DEVICES = 16 };

/* A tensor on each device; where ranks are PEs, a tile for each of its ranks. */
static kb_error *make_tensors(kb_context *ctx, const reduction *r, const kb_ccl_info *info,
                              kb_tensor *tensors, size_t *count)
{
    kb_machine machine = kb_context_machine(ctx);
    uint32_t of_device = machine.cubes * machine.pes;
    uint64_t elements = r->bytes / kb_dtype_bytes(KB_F16);
    kb_policy policy = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    if (info->rank_is_pe)
        policy =
            (kb_policy){.tiling = KB_TILED_COLUMN_MAJOR, .tile_rows = 1, .tile_columns = elements};
    uint32_t left = info->world;
    for (*count = 0; left > 0; ++*count) {
        uint32_t ranks = !info->rank_is_pe ? 1 : left < of_device ? left : of_device;
        kb_tensor_spec spec = {.dtype = KB_F16,
                               .shape = KB_SHAPE(1, ranks * elements),
                               .policy = &policy,
                               .access = KB_UNTIMED};
        KB_TRY(kb_ahbm_set_device(ctx, (uint32_t)*count));
        KB_TRY(kb_empty(ctx, &spec, &tensors[*count]));
        left -= ranks;
    }
    return NULL;
}

/* The first calls warm up the host; the last one is measured. */
static kb_error *reduce(kb_context *ctx, const reduction *r, uint64_t warmup, outcome *o)
{
    kb_tensor tensors[MAX_DEVICES];
    kb_ccl_info info = {0};
    kb_collective_stats stats = {0};
    kb_collective call = {.kind = KB_ALL_REDUCE,
                          .inputs = tensors,
                          .outputs = tensors,
                          .options.algorithm = r->algorithm};
    KB_TRY(kb_ccl_get_info(ctx, &info));
    KB_TRY(make_tensors(ctx, r, &info, tensors, &call.count));
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    for (uint64_t i = 0; i < warmup; i++)
        KB_TRY(kb_distributed_call(ctx, &call));
    kb_time began = kb_context_now(ctx);
    double start = bench_clock_ns();
    KB_TRY(kb_distributed_call(ctx, &call));
    o->host_ns = bench_clock_ns() - start;
    KB_TRY(kb_distributed_get_stats(ctx, (kb_group){0}, &stats));
    o->share = 100 * kb_to_ns(stats.lower_bound) / kb_to_ns(kb_context_now(ctx) - began);
    return NULL;
}

static kb_error *run_one(const reduction *r, uint64_t warmup, outcome *o)
{
    size_t count = 0;
    while (r->settings[count])
        count++;
    kb_context_options options = {
        .timing_only = true, .settings = r->settings, .setting_count = count, .device = r->device};
    kb_context *ctx;
    KB_TRY(kb_context_create(&options, &ctx));
    kb_error *err = reduce(ctx, r, warmup, o);
    kb_context_destroy(ctx);
    return err;
}

/* ---- All of them ------------------------------------------------------------------------- */

/* SimPy takes seconds for a call: once is enough. */
static kb_error *run_simpy(bench *b, const reduction *r, double ms)
{
    static const struct {
        const char *argument, *metric, *name;
    } styles[] = {{"process", "vs_simpy", "simpy"}, {"lean", "vs_lean_simpy", "lean_simpy"}};
    char elements[16];

    if (!b->simpy || b->quick)
        return NULL;
    snprintf(elements, sizeof elements, "%u", (unsigned)(r->bytes / kb_dtype_bytes(KB_F16)));
    for (size_t i = 0; i < sizeof styles / sizeof styles[0]; i++) {
        double ns;
        bench_progress(b, "collectives.%s.%s", r->name, styles[i].name);
        KB_TRY(bench_python("ring.py", elements, styles[i].argument, &ns));
        double simpy_ms = ns * RING_MESSAGES / 1e6;
        bench_report(b, simpy_ms / ms, "", "collectives.%s.%s", r->name, styles[i].metric);
        bench_report(b, simpy_ms, "ms", "collectives.%s.%s_ms", r->name, styles[i].name);
    }
    return NULL;
}

static kb_error *measure_cost(bench *b, const reduction *r)
{
    double best = 0;
    bench_progress(b, "collectives.%s", r->name);
    for (unsigned round = 0; round < b->rounds; round++) {
        outcome o = {0};
        KB_TRY(run_one(r, 1, &o));
        bench_keep_least(&best, o.host_ns);
    }
    bench_report(b, best / 1e6, "ms", "collectives.%s.ms", r->name);
    return run_simpy(b, r, best / 1e6);
}

static bool wants(const bench *b, const reduction *r)
{
    return bench_wants(b, "collectives.%s", r->name) && !(b->quick && r->is_long);
}

static kb_error *run(bench *b)
{
    for (size_t i = 0; i < sizeof costs / sizeof costs[0]; i++)
        if (wants(b, &costs[i]))
            KB_TRY(measure_cost(b, &costs[i]));
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        if (!wants(b, &bounds[i]))
            continue;
        outcome o = {0};
        bench_progress(b, "collectives.%s", bounds[i].name);
        KB_TRY(run_one(&bounds[i], 0, &o));
        bench_report(b, o.share, "% of bound", "collectives.%s.percent", bounds[i].name);
    }
    return NULL;
}

/* Instructions of the plain ring, per message: each of 256 PEs sends 255 in a call. */
static kb_error *count_ring(uint32_t index, uint64_t messages, uint64_t *done)
{
    outcome o = {0};
    uint64_t calls = (messages + RING_MESSAGES - 1) / RING_MESSAGES;
    *done = calls * RING_MESSAGES;
    return run_one(&costs[index], calls > 0 ? calls - 1 : 0, &o);
}

static const bench_work works[] = {
    {"collectives.ring256_8", count_ring, 0, RING_MESSAGES, 2 * RING_MESSAGES},
    {"collectives.ring256_2048", count_ring, 1, RING_MESSAGES, 2 * RING_MESSAGES},
    {0},
};

const bench_suite bench_collectives = {
    .title = "Collectives: all-reduces, timing only",
    .run = run,
    .works = works,
};
