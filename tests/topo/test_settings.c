/* test_settings.c: where a description comes from, settings and which of them change nothing,
 * hashes. */
#include <sys/stat.h>

#include "random_machines.h"

static kb_error *load(const char *path, const char *const *settings, size_t count,
                      topo_machine **machine)
{
    return topo_machine_load(
        &(topo_source){.path = path, .settings = settings, .setting_count = count}, machine);
}

static void expect_idle(const char *text, const char *const *settings, size_t count,
                        const char *expected)
{
    topo_machine *m;
    expect_ok(topo_machine_load(&(topo_source){.path = "f.yaml",
                                               .text = text,
                                               .length = strlen(text),
                                               .settings = settings,
                                               .setting_count = count},
                                &m));
    const char *idle = topo_machine_idle_settings(m);
    assert_string_equal(idle ? idle : "", expected);
    assert_int_equal(idle == NULL, expected[0] == '\0');
    topo_machine_destroy(m);
}

#define EXPECT_IDLE(text, expected, ...)                                                           \
    do {                                                                                           \
        static const char *const settings_[] = {__VA_ARGS__};                                      \
        expect_idle(text, settings_, sizeof settings_ / sizeof settings_[0], expected);            \
    } while (0)

static void settings_that_change_nothing_are_named(void **state)
{
    (void)state;
    EXPECT_IDLE("{}", "--set cube.noc.w=4 has no effect: the machine already has this value",
                "cube.noc.w=4");
    EXPECT_IDLE("{}", "", "cube.noc.w=5");
    EXPECT_IDLE("cube: { noc: { w: 5 } }", "", "cube.noc.w=4");
    EXPECT_IDLE("{}",
                "--set cube.hbm_ctrl.efficiency=0.80 has no effect: the machine already has this "
                "value\n"
                "--set sip.ucie.overhead_ns=8e0 has no effect: the machine already has this value",
                "cube.hbm_ctrl.efficiency=0.80", "system.sips.count=3", "sip.ucie.overhead_ns=8e0");
    /* mesh_2d and torus_2d are the same. */
    EXPECT_IDLE("system: { sips: { count: 4, topology: torus_2d } }",
                "--set system.sips.topology=mesh_2d has no effect: the machine already has "
                "this value",
                "system.sips.topology=mesh_2d");
    EXPECT_IDLE("{}", "", "name=other");
    EXPECT_IDLE("name: x", "--set name=x has no effect: the machine already has this value",
                "name=x");
}

static void of_several_of_one_key_the_last_counts(void **state)
{
    (void)state;
    EXPECT_IDLE("{}", "--set cube.noc.w=5 has no effect: a later --set overrides it",
                "cube.noc.w=5", "cube.noc.w=6");
    EXPECT_IDLE("{}",
                "--set cube.noc.w=5 has no effect: a later --set overrides it\n"
                "--set cube.noc.w=4 has no effect: the machine already has this value",
                "cube.noc.w=5", "cube.noc.w=4");
    EXPECT_IDLE("{}", "--set cube.noc.w=5 has no effect: a later --set overrides it",
                "cube.noc.w=5", "cube.noc.w=5");
}

/* Neither can be left out, so neither is idle. */
static void settings_that_need_each_other_are_not_idle(void **state)
{
    (void)state;
    EXPECT_IDLE("{}", "", "system.sips.count=4", "system.sips.topology=torus_2d");
    EXPECT_IDLE("system: { sips: { count: 4, topology: torus_2d } }", "", "system.sips.w=1",
                "system.sips.h=4");
    EXPECT_IDLE("{}", "", "system.sips.link.bw_gbs=1", "system.sips.link.length_mm=0",
                "system.sips.link.overhead_ns=0");
}

static uint64_t hash_with(const char *first, const char *second)
{
    topo_machine *m = machine_with(first, second, NULL, NULL);
    uint64_t hash = topo_machine_hash(m);
    topo_machine_destroy(m);
    return hash;
}

/* Each key by itself makes another machine. */
static void every_key_has_an_effect(void **state)
{
    (void)state;
    static const char *const settings[] = {
        "system.ns_per_mm=0.02",
        "system.sips.count=3",
        "system.components.host.attrs.overhead_ns=1",
        "system.components.switch.attrs.overhead_ns=6",
        "system.host_to_switch.bw_gbs=65",
        "system.host_to_switch.length_mm=101",
        "system.sip_to_switch.bw_gbs=65",
        "system.sip_to_switch.length_mm=101",
        "fabric.packet_bytes=512",
        "fabric.vcs=3",
        "fabric.depth_bytes=4096",
        "sip.cube_mesh.w=3",
        "sip.cube_mesh.h=3",
        "sip.cube_pitch_mm=11",
        "sip.ucie.overhead_ns=9",
        "sip.ucie.bw_gbs=513",
        "sip.io.pcie_ep.overhead_ns=51",
        "sip.io.io_cpu.overhead_ns=301",
        "sip.io.io_noc.overhead_ns=2",
        "sip.io.io_noc.bw_gbs=513",
        "sip.io.io_noc.length_mm=6",
        "cube.noc.w=5",
        "cube.noc.h=5",
        "cube.noc.router.overhead_ns=2",
        "cube.noc.bw_gbs=257",
        "cube.noc.length_mm=2.6",
        "cube.pe_layout.pe_per_corner=4",
        "cube.ucie_to_noc_bw_gbs=513",
        "cube.pe_to_noc_bw_gbs=257",
        "cube.pe_to_xbar_bw_gbs=257",
        "cube.noc_to_xbar_bw_gbs=257",
        "cube.xbar_to_hbm_bw_gbs=257",
        "cube.xbar_to_sram_bw_gbs=513",
        "cube.xbar.overhead_ns=3",
        "cube.xbar.length_mm=3",
        "cube.hbm_gib=96",
        "cube.hbm_ctrl.raw_gbs=512",
        "cube.hbm_ctrl.efficiency=0.9",
        "cube.hbm_ctrl.latency_ns=77",
        "cube.sram.capacity_mib=33",
        "cube.sram.bw_gbs=513",
        "cube.sram.latency_ns=11",
        "cube.pe_tcm.capacity_mib=17",
        "cube.pe_tcm.reserved_mib=5",
        "cube.pe_tcm.bw_gbs=500",
        "cube.pe_cpu.overhead_ns=21",
        "cube.pe_cpu.issue_ns=2",
        "cube.pe_cpu.queue_depth=8",
        "cube.pe_gemm.rows=32",
        "cube.pe_gemm.columns=32",
        "cube.pe_gemm.cycle_ns=0.5",
        "cube.pe_gemm.fill=per_fold",
        "cube.pe_math.lanes=32",
        "cube.pe_math.cycle_ns=0.5",
        "cube.pe_math.move_cycles=2",
        "cube.pe_math.div_cycles=5",
        "cube.pe_math.exp_cycles=9",
        "cube.pe_math.gather_cycles=5",
        "cube.pe_math.latency_cycles=0",
        "cube.pe_dma.channels=2",
        "cube.m_cpu.overhead_ns=201",
        "cube.m_cpu.count_ns=21",
        "cube.m_cpu.trigger_ns=21",
        "sip.io.io_cpu.count_ns=21",
        "sip.io.io_cpu.trigger_ns=21",
        "cube.pe_dma.overhead_ns=6",
    };
    enum { count = sizeof settings / sizeof settings[0] };
    uint64_t hashes[count + 1];
    hashes[count] = hash_with(NULL, NULL);
    for (size_t i = 0; i < count; i++) {
        hashes[i] = hash_with(settings[i], NULL);
        for (size_t j = 0; j < i; j++)
            assert_true(hashes[i] != hashes[j]);
        assert_true(hashes[i] != hashes[count]);
    }
}

static void equal_machines_have_equal_hashes(void **state)
{
    (void)state;
    uint64_t hash = hash_with(NULL, NULL);
    assert_true(hash == hash_with("name=other", "cube.noc.w=4"));
    /* The same effective bandwidth, in another way. */
    assert_true(hash == hash_with("cube.hbm_ctrl.raw_gbs=512", "cube.hbm_ctrl.efficiency=0.4"));
    topo_machine *m = machine_of("cube: { noc: { k: 4 } }");
    assert_true(hash == topo_machine_hash(m));
    assert_string_equal(topo_machine_name(m), "f"); /* after its file */
    topo_machine_destroy(m);
}

static void a_file_may_say_only_what_differs(void **state)
{
    (void)state;
    topo_machine *m = machine_of("cube: { hbm_ctrl: { raw_gbs: 512 } }\n");
    const topo_graph *graph = topo_machine_graph(m);
    uint32_t hbm = topo_node_at(m, TOPO_HBM_CTRL, 0, 0, 0);
    assert_true(topo_link_rate(graph, graph->nodes.items[hbm].service) == 409600000000);
    assert_int_equal(graph->nodes.items[hbm].overhead_fs, 76 * KB_NS);
    assert_int_equal(topo_machine_shape(m)->pe_count, 256);
    topo_machine_destroy(m);
    /* A controller follows its link, and the HBM the number of PEs. */
    m = machine_of(
        "cube: { xbar_to_hbm_bw_gbs: 512, noc: { k: 3 }, pe_layout: { pe_per_router: 1 } }");
    graph = topo_machine_graph(m);
    hbm = topo_node_at(m, TOPO_HBM_CTRL, 0, 0, 8);
    assert_true(topo_link_rate(graph, graph->nodes.items[hbm].service) == 409600000000);
    assert_true(topo_machine_shape(m)->hbm_bytes == (uint64_t)54 << 30);
    topo_machine_destroy(m);
    /* Bandwidths are whole bytes a second: 0.333333333 * 0.5 GB/s. */
    m = machine_of("cube: { hbm_ctrl: { raw_gbs: 0.333333333, efficiency: 0.5 } }\n");
    graph = topo_machine_graph(m);
    hbm = topo_node_at(m, TOPO_HBM_CTRL, 0, 0, 0);
    assert_true(topo_link_rate(graph, graph->nodes.items[hbm].service) == 166666666);
    topo_machine_destroy(m);
    m = machine_of("system: { sips: { w: 3, h: 2, topology: torus_2d } }"); /* the count follows */
    assert_int_equal(topo_machine_shape(m)->sips, 6);
    topo_machine_destroy(m);
    m = machine_of("system: { sips: { count: 9, topology: mesh_2d_no_wrap } }");
    assert_int_equal(topo_machine_shape(m)->sip_w, 3);
    assert_int_equal(topo_machine_shape(m)->sip_h, 3);
    topo_machine_destroy(m);
}

static void the_tcm_is_read_to_the_byte(void **state)
{
    (void)state;
    topo_machine *m = machine_of("cube: { pe_tcm: { capacity_mib: 1.5, reserved_mib: 0.0625 } }");
    assert_int_equal(topo_machine_shape(m)->tcm_bytes, 3 << 19);
    assert_int_equal(topo_machine_shape(m)->tcm_reserved_bytes, 1 << 16);
    topo_machine_destroy(m);
    /* The most there can be, and a scheduler that keeps nothing. */
    m = machine_of("cube: { pe_tcm: { capacity_mib: 256, reserved_mib: 0 } }");
    assert_int_equal(topo_machine_shape(m)->tcm_bytes, 256 << 20);
    assert_int_equal(topo_machine_shape(m)->tcm_reserved_bytes, 0);
    topo_machine_destroy(m);
    EXPECT_IDLE("{}", "", "cube.pe_tcm.capacity_mib=32");
    EXPECT_IDLE("{}", "", "cube.pe_tcm.reserved_mib=0");
    EXPECT_IDLE("{}",
                "--set cube.pe_tcm.reserved_mib=4.0 has no effect: the machine already has "
                "this value",
                "cube.pe_tcm.reserved_mib=4.0");
}

static void built_in_machines_have_names_and_texts(void **state)
{
    (void)state;
    static const char *const names[] = {"default", "mesh-reference"};
    size_t count = 0;
    for (const topo_builtin *builtin = topo_builtins; builtin->name; builtin++, count++) {
        assert_true(count < 2);
        assert_string_equal(builtin->name, names[count]);
        assert_int_equal(strlen(builtin->text), builtin->length);
        /* The very text of the file. */
        char path[512];
        snprintf(path, sizeof path, KB_TEST_DIR "/../machines/%s.yaml", builtin->name);
        FILE *file = fopen(path, "rb");
        assert_non_null(file);
        char *bytes = calloc(1, builtin->length + 2);
        assert_non_null(bytes);
        assert_int_equal(fread(bytes, 1, builtin->length + 1, file), builtin->length);
        assert_memory_equal(bytes, builtin->text, builtin->length);
        free(bytes);
        fclose(file);
        topo_machine *m;
        expect_ok(load(builtin->name, NULL, 0, &m));
        assert_string_equal(topo_machine_name(m), builtin->name);
        topo_machine_destroy(m);
        expect_ok(load(path, NULL, 0, &m));
        topo_machine_destroy(m);
    }
    assert_int_equal(count, 2);
}

static void a_file_goes_before_a_built_in_machine(void **state)
{
    (void)state;
    char folder[] = "/tmp/kb-topo-XXXXXX", old[4096];
    assert_non_null(mkdtemp(folder));
    assert_non_null(getcwd(old, sizeof old));
    assert_int_equal(chdir(folder), 0);
    FILE *file = fopen("default", "w");
    assert_non_null(file);
    fputs("system: { sips: { count: 5 } }\n", file);
    fclose(file);
    topo_machine *m;
    expect_ok(load("default", NULL, 0, &m));
    assert_int_equal(topo_machine_shape(m)->sips, 5);
    topo_machine_destroy(m);
    expect_ok(load(NULL, NULL, 0, &m));
    assert_int_equal(topo_machine_shape(m)->sips, 2);
    topo_machine_destroy(m);
    unlink("default");
    assert_int_equal(chdir(old), 0);
    rmdir(folder);
}

static void a_machine_that_does_not_exist_is_refused(void **state)
{
    (void)state;
    topo_machine *m = (topo_machine *)&m;
    kb_error *err = load("defualt", NULL, 0, &m);
    assert_null(m);
    expect_error(err, KB_ERR_INPUT,
                 "no such file or built-in machine: 'defualt': expected default or mesh-reference; "
                 "did you mean 'default'?");
    err = load("nowhere/x.yaml", NULL, 0, &m);
    expect_error(err, KB_ERR_INPUT,
                 "no such file or built-in machine: 'nowhere/x.yaml': expected default or "
                 "mesh-reference");
}

/* ---- Components of others ---------------------------------------------------------------- */

/* A router whose latency is set in cycles of 1 ps. */
static void derive_mine(kb_config_node *settings, topo_parameters *parameters)
{
    kb_config_need(settings, "cycles");
    assert_int_equal(parameters->timing.latency_fs, 1 * KB_NS); /* the default machine's */
    parameters->timing.latency_fs = (kb_time)parameters->bytes * KB_PS;
}

static void others_can_bring_components(void **state)
{
    (void)state;
    static const topo_key keys[] = {{.path = "cycles", TOPO_COUNT(topo_parameters, bytes, 1, 100)}};
    static const topo_component mine = {.name = "mine.router",
                                        .kind = TOPO_ROUTER,
                                        .keys = keys,
                                        .key_count = 1,
                                        .derive = derive_mine};
    static const topo_component *const others[] = {&mine};
    const char text[] = "cube: { noc: { router: { impl: mine.router, cycles: 40 } } }";
    topo_source source = {.path = "f.yaml", .text = text, .length = sizeof text - 1};
    topo_machine *m;
    expect_error(topo_machine_load(&source, &m), KB_ERR_INPUT,
                 "f.yaml:1:32: cube.noc.router.impl: unknown component 'mine.router': "
                 "expected builtin.router (and 1 more problem)");
    source.registry = (topo_registry){.others = others, .other_count = 1};
    expect_ok(topo_machine_load(&source, &m));
    uint32_t router = topo_node_at(m, TOPO_ROUTER, 0, 0, 0);
    assert_int_equal(topo_machine_graph(m)->nodes.items[router].overhead_fs, 40 * KB_PS);
    assert_ptr_equal(topo_machine_component(m, TOPO_ROUTER), &mine);
    kb_text settings = KB_TEXT_INIT;
    topo_machine_print_settings(m, &settings);
    assert_non_null(strstr(kb_text_peek(&settings), "\ncube.noc.router.impl=mine.router\n"
                                                    "cube.noc.router.cycles=40\n"));
    kb_text_fini(&settings);
    topo_machine_destroy(m);
    source.settings = (const char *const[]){"cube.xbar.impl=mine.rooter"};
    source.setting_count = 1;
    expect_error(topo_machine_load(&source, &m), KB_ERR_INPUT,
                 "--set cube.xbar.impl: unknown component 'mine.rooter': expected "
                 "builtin.xbar");
    static const char short_text[] = "cube: { noc: { router: { impl: mine.rooter } } }";
    source = (topo_source){.path = "f.yaml",
                           .text = short_text,
                           .length = sizeof short_text - 1,
                           .registry = source.registry};
    expect_error(topo_machine_load(&source, &m), KB_ERR_INPUT,
                 "f.yaml:1:32: cube.noc.router.impl: unknown component 'mine.rooter': expected "
                 "builtin.router or mine.router; did you mean 'mine.router'?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_that_change_nothing_are_named),
        cmocka_unit_test(of_several_of_one_key_the_last_counts),
        cmocka_unit_test(settings_that_need_each_other_are_not_idle),
        cmocka_unit_test(every_key_has_an_effect),
        cmocka_unit_test(equal_machines_have_equal_hashes),
        cmocka_unit_test(a_file_may_say_only_what_differs),
        cmocka_unit_test(the_tcm_is_read_to_the_byte),
        cmocka_unit_test(built_in_machines_have_names_and_texts),
        cmocka_unit_test(a_file_goes_before_a_built_in_machine),
        cmocka_unit_test(a_machine_that_does_not_exist_is_refused),
        cmocka_unit_test(others_can_bring_components),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
