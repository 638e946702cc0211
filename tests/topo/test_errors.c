/* test_errors.c: wrong descriptions, and every message that topo has for them, word by word. */
#include "random_machines.h"

typedef struct wrong {
    const char *text;
    const char *setting; /* one, or NULL */
    const char *message;
} wrong;

static const wrong cases[] = {
    /* Unknown keys. */
    {"cube: { nok: { w: 4 } }", NULL,
     "f.yaml:1:9: unknown key 'cube.nok'; did you mean 'cube.noc'?"},
    {"sytem: {}", NULL,
     "f.yaml:1:1: unknown key 'sytem': expected name, system, fabric, sip or cube; did you mean 'system'?"},
    {"{}", "cube.hbm_ctrl.eficiency=0.9",
     "--set cube.hbm_ctrl.eficiency: unknown key 'cube.hbm_ctrl.eficiency': "
     "expected impl, latency_ns, raw_gbs or efficiency; did you mean 'cube.hbm_ctrl.efficiency'?"},
    {"cube:\n  sram:\n    overhead_ns: 3\n", NULL,
     "f.yaml:3:5: unknown key 'cube.sram.overhead_ns': expected impl, latency_ns, bw_gbs or "
     "capacity_mib"},
    {"system: { components: { swich: {} } }", NULL,
     "f.yaml:1:25: unknown key 'system.components.swich': expected host or switch; did you mean "
     "'system.components.switch'?"},
    /* Counts. */
    {"system:\n  sips:\n    count: 0\n", NULL,
     "f.yaml:3:12: system.sips.count: expected an integer from 1 to 4096, found '0'"},
    {"{}", "system.sips.count=4097",
     "--set system.sips.count: expected an integer from 1 to 4096, found '4097'"},
    {"{}", "sip.cube_mesh.w=0",
     "--set sip.cube_mesh.w: expected an integer from 1 to 64, found '0'"},
    {"{}", "sip.cube_mesh.h=65",
     "--set sip.cube_mesh.h: expected an integer from 1 to 64, found '65'"},
    {"{}", "cube.noc.h=2.5", "--set cube.noc.h: expected an integer from 1 to 64, found '2.5'"},
    {"{}", "fabric.packet_bytes=0",
     "--set fabric.packet_bytes: expected an integer from 1 to 1048576, found '0'"},
    {"{}", "fabric.vcs=65", "--set fabric.vcs: expected an integer from 1 to 63, found '65'"},
    {"{}", "fabric.depth_bytes=-1",
     "--set fabric.depth_bytes: expected an integer from 0 to 33554432, found '-1'"},
    /* Figures. */
    {"{}", "cube.noc.bw_gbs=0",
     "--set cube.noc.bw_gbs: expected a number of at least 0.001 and at most 1000000, found '0'"},
    {"{}", "cube.noc.bw_gbs=-5",
     "--set cube.noc.bw_gbs: expected a number of at least 0.001 and at most 1000000, found '-5'"},
    {"{}", "sip.ucie.bw_gbs=fast",
     "--set sip.ucie.bw_gbs: expected a number of at least 0.001 and at most 1000000, found 'fast'"},
    {"{}", "sip.ucie.bw_gbs=0.1234567891",
     "--set sip.ucie.bw_gbs: expected at most 9 digits after the point, found '0.1234567891'"},
    {"{}", "sip.ucie.overhead_ns=0.0000001",
     "--set sip.ucie.overhead_ns: expected at most 6 digits after the point, found '0.0000001'"},
    {"{}", "sip.ucie.overhead_ns=-1",
     "--set sip.ucie.overhead_ns: expected a number of at least 0 and at most 1000000, found '-1'"},
    {"{}", "system.ns_per_mm=1.5",
     "--set system.ns_per_mm: expected a number of at least 0 and at most 1, found '1.5'"},
    {"{}", "cube.noc.length_mm=-0.1",
     "--set cube.noc.length_mm: expected a number of at least 0 and at most 1000000, found '-0.1'"},
    {"cube: { hbm_ctrl: { efficiency: 0 } }", NULL,
     "f.yaml:1:33: cube.hbm_ctrl.efficiency: expected a number above 0 and at most 1, found '0'"},
    {"{}", "cube.hbm_ctrl.efficiency=1.01",
     "--set cube.hbm_ctrl.efficiency: expected a number above 0 and at most 1, found '1.01'"},
    {"cube: { hbm_ctrl: { raw_gbs: 1, efficiency: 0.0001 } }", NULL,
     "f.yaml:1:45: cube.hbm_ctrl.efficiency: expected raw_gbs * efficiency to be at least 0.001"},
    {"cube: { hbm_ctrl: 5 }", NULL, "f.yaml:1:19: cube.hbm_ctrl: expected a mapping, found '5'"},
    /* Sizes. */
    {"{}", "cube.hbm_gib=0",
     "--set cube.hbm_gib: expected a number above 0 and at most 1048576, found '0'"},
    {"{}", "cube.hbm_gib=0.1", "--set cube.hbm_gib: expected a whole number of bytes, found '0.1'"},
    {"cube:\n  noc: { w: 5, h: 1 }\n  pe_layout: { pe_per_router: 1 }\n  hbm_gib: 48\n", NULL,
     "f.yaml:4:12: cube.hbm_gib: expected a size divisible into 5 equal slices, one per PE, "
     "found 48 GiB"},
    {"{}", "cube.pe_gemm.rows=0",
     "--set cube.pe_gemm.rows: expected an integer from 1 to 65536, found '0'"},
    {"{}", "cube.pe_gemm.fill=twice",
     "--set cube.pe_gemm.fill: expected once or per_fold, found 'twice'"},
    {"{}", "cube.pe_gemm.cycle_ns=0",
     "--set cube.pe_gemm.cycle_ns: expected a number above 0 and at most 1000000, found '0'"},
    {"{}", "cube.pe_math.cycle_ns=0.0",
     "--set cube.pe_math.cycle_ns: expected a number above 0 and at most 1000000, found '0.0'"},
    {"{}", "cube.pe_math.lanes=-4",
     "--set cube.pe_math.lanes: expected an integer from 1 to 65536, found "
     "'-4'"},
    {"{}", "cube.pe_tcm.bw_gbs=0",
     "--set cube.pe_tcm.bw_gbs: expected a number of at least 0.001 and at most 1000000, found "
     "'0'"},
    {"{}", "cube.pe_dma.channels=0",
     "--set cube.pe_dma.channels: expected an integer from 1 to 1024, found "
     "'0'"},
    {"{}", "cube.pe_cpu.queue_depth=1e3",
     "--set cube.pe_cpu.queue_depth: expected an integer from 1 to 65536, found "
     "'1e3'"},
    {"{}", "cube.pe_tcm.capacity_mib=0.5",
     "--set cube.pe_tcm.capacity_mib: expected a number of at least 1 and at most 256, found '0.5'"},
    {"{}", "cube.pe_tcm.capacity_mib=256.5",
     "--set cube.pe_tcm.capacity_mib: expected a number of at least 1 and at most 256, found "
     "'256.5'"},
    {"{}", "cube.pe_tcm.capacity_mib=1.1",
     "--set cube.pe_tcm.capacity_mib: expected a whole number of bytes, found '1.1'"},
    {"{}", "cube.pe_tcm.reserved_mib=-1",
     "--set cube.pe_tcm.reserved_mib: expected a number of at least 0 and at most 256, found '-1'"},
    {"{}", "cube.pe_tcm.reserved_mib=16",
     "--set cube.pe_tcm.reserved_mib: expected less than the TCM capacity of 16 MiB, found 16 "
     "MiB"},
    {"cube: { pe_tcm: { capacity_mib: 2 } }", NULL,
     "f.yaml:1:17: cube.pe_tcm: expected less than the TCM capacity of 2 MiB, found 4 MiB"},
    {"cube: { pe_tcm: 5 }", NULL, "f.yaml:1:17: cube.pe_tcm: expected a mapping, found '5'"},
    {"cube: { pe_tcm: { impl: builtin.sram } }", NULL,
     "f.yaml:1:19: unknown key 'cube.pe_tcm.impl': expected capacity_mib, reserved_mib or bw_gbs"},
    {"name: \"a\\nb\"", NULL, "f.yaml:1:7: name: expected a name without control characters"},
    /* Patterns of SIPs. */
    {"{}", "system.sips.topology=ring",
     "--set system.sips.topology: expected ring_1d, torus_2d, mesh_2d or mesh_2d_no_wrap, found "
     "'ring'; did you mean 'ring_1d'?"},
    {"{}", "system.sips.topology=torus2d",
     "--set system.sips.topology: expected ring_1d, torus_2d, mesh_2d or mesh_2d_no_wrap, found "
     "'torus2d'; did you mean 'torus_2d'?"},
    {"system: { sips: { count: 6, topology: torus_2d } }", NULL,
     "f.yaml:1:26: system.sips.count: expected a square number, or w and h, found 6"},
    {"system: { sips: { topology: torus_2d } }", NULL,
     "f.yaml:1:17: system.sips: expected a square number, or w and h, found 2"},
    {"system: { sips: { count: 6, topology: torus_2d, w: 3 } }", NULL,
     "f.yaml:1:52: system.sips.w: missing h: w and h must be given together"},
    {"system: { sips: { count: 6, topology: mesh_2d, h: 3 } }", NULL,
     "f.yaml:1:51: system.sips.h: missing w: w and h must be given together"},
    {"system: { sips: { count: 8, topology: torus_2d, w: 3, h: 2 } }", NULL,
     "f.yaml:1:26: system.sips.count: expected w * h, which is 6, found 8"},
    {"system: { sips: { topology: torus_2d, w: 100, h: 100 } }", NULL,
     "f.yaml:1:17: system.sips: expected w * h, which is 10000, found 2"},
    {"system: { sips: { count: 6, w: 3, h: 2 } }", NULL,
     "f.yaml:1:32: system.sips.w: w and h need a 2D topology, such as torus_2d"},
    {"system: { sips: { count: 0, topology: torus_2d, w: 3, h: 2 } }", NULL,
     "f.yaml:1:26: system.sips.count: expected an integer from 1 to 4096, found '0'"},
    {"{}", "system.sips.link.bw_gbs=100",
     "--set system.sips.link.bw_gbs: missing key 'system.sips.link.length_mm' (and 1 more problem)"},
    {"system: { sips: { link: { bw_gbs: 1, length_mm: 1 } } }", NULL,
     "f.yaml:1:25: missing key 'system.sips.link.overhead_ns'"},
    /* NOC and PEs. */
    {"cube: { noc: { k: 4, w: 4 } }", NULL,
     "f.yaml:1:19: cube.noc.k: expected either k (w = h = k), or w and h"},
    {"cube: { pe_layout: { pe_per_router: 1, corners: [NW] } }", NULL,
     "f.yaml:1:37: cube.pe_layout.pe_per_router: expected either pe_per_router, or pe_per_corner and "
     "corners"},
    {"cube: { pe_layout: { corners: [NW, NW] } }", NULL,
     "f.yaml:1:36: cube.pe_layout.corners.1: duplicate corner NW"},
    {"cube: { pe_layout: { corners: [NW, NX] } }", NULL,
     "f.yaml:1:36: cube.pe_layout.corners.1: expected NW, NE, SW or SE, found 'NX'; did you mean 'NW'?"},
    {"cube: { pe_layout: { corners: [] } }", NULL,
     "f.yaml:1:31: cube.pe_layout.corners: expected at least one corner, found none"},
    {"cube: { pe_layout: { corners: NW } }", NULL,
     "f.yaml:1:31: cube.pe_layout.corners: expected a sequence, found 'NW'"},
    {"cube: { pe_layout: { pe_per_corner: 4096, corners: [NW, NE] } }", NULL,
     "f.yaml:1:37: cube.pe_layout.pe_per_corner: expected at most 4096 PEs per cube, found 8192"},
    {"cube: { noc: { k: 64 }, pe_layout: { pe_per_router: 2 } }", NULL,
     "f.yaml:1:53: cube.pe_layout.pe_per_router: expected at most 4096 PEs per cube, found 8192"},
    {"{}", "cube.pe_layout.pe_per_corner=0",
     "--set cube.pe_layout.pe_per_corner: expected an integer from 1 to 4096, found '0'"},
    /* Components. */
    {"system: { components: { switch: { impl: builtin.swich } } }", NULL,
     "f.yaml:1:41: system.components.switch.impl: unknown component 'builtin.swich': "
     "expected builtin.switch; did you mean 'builtin.switch'?"},
    {"{}", "cube.xbar.impl=builtin.router",
     "--set cube.xbar.impl: expected a component of kind xbar, found 'builtin.router', which "
     "is of kind router"},
    {"system: { components: { switch: { kind: host } } }", NULL,
     "f.yaml:1:41: system.components.switch.kind: expected switch, found 'host'"},
    {"system: { components: { host: { attrs: 1 } } }", NULL,
     "f.yaml:1:40: system.components.host.attrs: expected a mapping, found '1'"},
    {"{}", "cube.noc.router.impl=", "--set cube.noc.router.impl: expected a string, found nothing"},
    /* Names. */
    {"name: [1]", NULL, "f.yaml:1:7: name: expected a string, found a sequence"},
    {"name: 1234567890123456789012345678901234567890123456789012345678901234", NULL,
     "f.yaml:1:7: name: expected a name of at most 63 bytes"},
    /*
     * Too large. A cube has 48 links between routers, 8 of these to the crossbar, 27 of memories, 2
     * of the M CPU, 32 of PEs: 117; 20 cubes have 66 ports of 3 links; the IO chiplet has 6 + 4
     * * 3. So it is 2 + 4096 * (20 * 117 + 66 * 3 + 18).
     */
    {"system: { sips: { count: 4096 } }", "sip.cube_mesh.h=5",
     "f.yaml:1:1: machine too large: 10469378 links, the maximum is 8388607"},
    /* No YAML at all. */
    {"a: [", NULL, NULL},
    {"- 1\n- 2\n", NULL, NULL},
};

static kb_error *load(const char *text, const char *const *settings, size_t count)
{
    topo_machine *machine = (topo_machine *)&machine;
    kb_error *err = topo_machine_load(&(topo_source){.path = "f.yaml",
                                                     .text = text,
                                                     .length = strlen(text),
                                                     .settings = settings,
                                                     .setting_count = count},
                                      &machine);
    assert_int_equal(machine == NULL, err != NULL);
    topo_machine_destroy(machine);
    return err;
}

static void wrong_descriptions_are_refused_with_a_reason(void **state)
{
    (void)state;
    int failures = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        kb_error *err = load(cases[i].text, &cases[i].setting, cases[i].setting != NULL);
        const char *expected = cases[i].message;
        if (kb_error_code(err) != KB_ERR_INPUT ||
            (expected && strcmp(kb_error_message(err), expected) != 0)) {
            print_message("%s %s\n  found    %s\n  expected %s\n", cases[i].text,
                          cases[i].setting ? cases[i].setting : "", kb_error_message(err),
                          expected);
            failures++;
        }
        kb_error_free(err);
    }
    assert_int_equal(failures, 0);
}

static void all_problems_are_reported_in_one_go(void **state)
{
    (void)state;
    static const char *const settings[] = {"cube.hbm_ctrl.efficiency=2", "nothing"};
    kb_error *err = load("system:\n"
                         "  sips: { count: none, topology: torus_2d, w: 3 }\n"
                         "  components: { switch: { impl: builtin.swtch, atrs: {} } }\n"
                         "cube:\n"
                         "  noc: { w: 0, h: 99, bw_gbs: 0 }\n"
                         "  pe_layout: { pe_per_corner: 2, corners: [NW, XX, NW] }\n"
                         "  hbm_gib: 1.7\n",
                         settings, 2);
    assert_string_equal(
        kb_error_detail(err),
        "f.yaml:2:18: system.sips.count: expected an integer from 1 to 4096, found 'none'\n"
        "f.yaml:3:33: system.components.switch.impl: unknown component 'builtin.swtch': "
        "expected builtin.switch; did you mean 'builtin.switch'?\n"
        "f.yaml:3:48: unknown key 'system.components.switch.atrs': expected kind, impl or "
        "attrs; did you mean 'system.components.switch.attrs'?\n"
        "f.yaml:5:13: cube.noc.w: expected an integer from 1 to 64, found '0'\n"
        "f.yaml:5:19: cube.noc.h: expected an integer from 1 to 64, found '99'\n"
        "f.yaml:5:31: cube.noc.bw_gbs: expected a number of at least 0.001 and at most "
        "1000000, found '0'\n"
        "f.yaml:6:48: cube.pe_layout.corners.1: expected NW, NE, SW or SE, found 'XX'\n"
        "f.yaml:6:52: cube.pe_layout.corners.2: duplicate corner NW\n"
        "f.yaml:7:12: cube.hbm_gib: expected a whole number of bytes, found '1.7'\n"
        "--set cube.hbm_ctrl.efficiency: expected a number above 0 and at most 1, found '2'\n"
        "--set nothing: expected key=value");
    expect_error(err, KB_ERR_INPUT,
                 "f.yaml:2:18: system.sips.count: expected an integer from 1 to 4096, found 'none' "
                 "(and 10 more problems)");
}

/* The largest machine there can be is one below the limit of links, and is not made here. */
static void machines_that_are_too_large_take_no_memory(void **state)
{
    (void)state;
    static const char *const settings[] = {"system.sips.count=4096", "sip.cube_mesh.w=64",
                                           "sip.cube_mesh.h=64", "cube.noc.w=64", "cube.noc.h=64"};
    kb_error *err = load("cube: { pe_layout: { pe_per_router: 1 }, hbm_gib: 4096 }", settings, 5);
    assert_int_equal(kb_error_code(err), KB_ERR_INPUT);
    assert_non_null(strstr(kb_error_message(err), " links, the maximum is 8388607"));
    kb_error_free(err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_descriptions_are_refused_with_a_reason),
        cmocka_unit_test(all_problems_are_reported_in_one_go),
        cmocka_unit_test(machines_that_are_too_large_take_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
