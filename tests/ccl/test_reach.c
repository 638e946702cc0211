/*
 * test_reach.c: the share of the lower bound that large all-reduces reach. Times are simulated, so
 * the shares are the same on every host. SIPs are small (four cubes in a row, each with a port to
 * the IO chiplet), and packets long, for speed; docs/performance.md has the default machine.
 */
#include "rt/tensors.h"

#include <kernbench/ccl.h>

typedef struct reach {
    const char *algorithm;
    const char *settings[10]; /* of the machine; ends with NULL */
    const char *device;
    uint64_t bytes; /* of a rank */
    double least;   /* percent of the bound */
} reach;

#define LINKS                                                                                      \
    "system.sips.link.bw_gbs=100", "system.sips.link.length_mm=200",                               \
        "system.sips.link.overhead_ns=20"
#define ROW "sip.cube_mesh.h=1" /* of four cubes */

enum { MIB = 1 << 20, MAX_SETTINGS = 12, MAX_DEVICES = 16 };

/* A tensor on each device: cut over its PEs, or a tile for each where PEs are ranks. */
static size_t make_tensors(kb_context *ctx, const reach *r, kb_tensor *tensors)
{
    kb_ccl_info info;
    expect_ok(kb_ccl_get_info(ctx, &info));
    kb_machine machine = kb_context_machine(ctx);
    uint64_t elements = r->bytes / kb_dtype_bytes(KB_F16);
    kb_policy policy = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    size_t count = info.rank_is_pe ? 1 : info.world;
    uint64_t columns = elements;
    if (info.rank_is_pe) {
        assert_int_equal(info.world, machine.cubes * machine.pes);
        policy =
            (kb_policy){.tiling = KB_TILED_COLUMN_MAJOR, .tile_rows = 1, .tile_columns = elements};
        columns *= info.world;
    }
    for (size_t i = 0; i < count; i++) {
        kb_tensor_spec spec = {.dtype = KB_F16,
                               .shape = KB_SHAPE(1, columns),
                               .policy = &policy,
                               .access = KB_UNTIMED};
        expect_ok(kb_ahbm_set_device(ctx, (uint32_t)i));
        expect_ok(kb_empty(ctx, &spec, &tensors[i]));
    }
    return count;
}

static void expect_reached(const reach *r)
{
    char chosen[64];
    snprintf(chosen, sizeof chosen, "ccl.defaults.algorithm=%s", r->algorithm);
    const char *settings[MAX_SETTINGS] = {chosen, "fabric.packet_bytes=4096"};
    size_t count = 2;
    for (size_t i = 0; r->settings[i]; i++)
        settings[count++] = r->settings[i];
    kb_context_options options = {
        .timing_only = true, .settings = settings, .setting_count = count, .device = r->device};
    kb_context *ctx;
    kb_tensor tensors[MAX_DEVICES];
    kb_collective_stats stats;
    expect_ok(kb_context_create(&options, &ctx));
    kb_collective call = {.kind = KB_ALL_REDUCE,
                          .inputs = tensors,
                          .outputs = tensors,
                          .count = make_tensors(ctx, r, tensors),
                          .options.algorithm = r->algorithm};
    expect_ok(kb_distributed_init_process_group(ctx, "ahbm")); /* installs the queues */
    kb_time began = kb_context_now(ctx);
    expect_ok(kb_distributed_call(ctx, &call));
    kb_time took = kb_context_now(ctx) - began;
    expect_ok(kb_distributed_get_stats(ctx, (kb_group){0}, &stats));
    double share = 100 * kb_to_ns(stats.lower_bound) / kb_to_ns(took);
    if (share < r->least || share > 100)
        fail_msg("%s with %s: %.1f %% of the bound, not %g to 100", r->algorithm,
                 r->settings[0] ? r->settings[0] : "the default machine", share, r->least);
    kb_context_destroy(ctx);
}

static void rings_fill_the_links_of_sips(void **state)
{
    (void)state;
    static const reach cases[] = {
        {"ring_rsag", {"system.sips.count=2", ROW}, NULL, 4 * MIB, 90},
        {"ring_rsag", {"system.sips.count=3", ROW}, NULL, 4 * MIB, 90},
        {"ring_rsag", {"system.sips.count=4", LINKS, ROW}, NULL, 4 * MIB, 90},
        {"ring_rsag",
         {"system.sips.count=9", "system.sips.topology=torus_2d", LINKS, ROW},
         NULL,
         4 * MIB,
         90},
        {"ring_rsag",
         {"system.sips.count=6", "system.sips.w=3", "system.sips.h=2",
          "system.sips.topology=torus_2d", LINKS, ROW},
         NULL,
         16 * MIB,
         90},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_reached(&cases[i]);
}

static void a_ring_of_pes_keeps_their_memories_busy(void **state)
{
    (void)state;
    static const reach cases[] = {
        {"ring_rsag_pes", {ROW}, "sip:0", 16 * MIB, 90},
        {"ring_rsag_pes", {ROW, "sip.cube_mesh.w=2"}, "sip:0", 16 * MIB, 90},
        {"ring_rsag_pes", {"sip.cube_mesh.w=2", "sip.cube_mesh.h=2"}, "sip:0", 16 * MIB, 90},
        /* Without a cycle through all cubes. */
        {"ring_rsag_pes", {"sip.cube_mesh.w=3", "sip.cube_mesh.h=3"}, "sip:0", 16 * MIB, 90},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_reached(&cases[i]);
}

/* Where rings do not use all links alike. */
static void streams_fill_the_links_of_grids(void **state)
{
    (void)state;
    static const reach cases[] = {
        {"streams",
         {"system.sips.count=6", "system.sips.w=3", "system.sips.h=2",
          "system.sips.topology=mesh_2d_no_wrap", LINKS, ROW},
         NULL,
         4 * MIB,
         90},
        {"streams",
         {"system.sips.count=9", "system.sips.topology=mesh_2d_no_wrap", LINKS, ROW},
         NULL,
         8 * MIB,
         90},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_reached(&cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rings_fill_the_links_of_sips),
        cmocka_unit_test(a_ring_of_pes_keeps_their_memories_busy),
        cmocka_unit_test(streams_fill_the_links_of_grids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
