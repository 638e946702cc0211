/*
 * test_effective.c: the effective description of a machine is complete, and gives the same machine:
 * on random machines that a sparse file and settings describe.
 */
#include "support/expect.h"
#include "support/seed.h"

#include <inttypes.h>
#include <stdio.h>

#include "cli/effective.h"

/* What a key may be set to: a whole number up to `max`, a decimal, or one of some words. */
typedef struct key {
    const char *name;
    unsigned min, max;
    int digits;               /* after the point */
    const char *const *words; /* ends with NULL; else numbers */
} key;

static const char *const patterns[] = {"ring_1d", "torus_2d", "mesh_2d", "mesh_2d_no_wrap", NULL};
static const char *const ports[] = {"parallel", "serial", NULL};
static const char *const fills[] = {"once", "per_fold", NULL};
static const char *const names[] = {"x", "null", "a b",      "it's", "\"q\"",
                                    "-", "1e3",  "\303\251", "{x}",  NULL};

static const key keys[] = {
    {"name", .words = names},
    {"system.ns_per_mm", 0, 1, 9, NULL},
    {"system.sips.count", 1, 9, 0, NULL},
    {"system.sips.topology", .words = patterns},
    {"system.components.host.attrs.overhead_ns", 0, 50, 6, NULL},
    {"system.components.switch.attrs.overhead_ns", 0, 50, 6, NULL},
    {"system.host_to_switch.bw_gbs", 1, 99, 9, NULL},
    {"system.host_to_switch.length_mm", 0, 99, 6, NULL},
    {"system.sip_to_switch.bw_gbs", 1, 99, 9, NULL},
    {"system.sip_to_switch.length_mm", 0, 99, 6, NULL},
    {"fabric.packet_bytes", 1, 512, 0, NULL},
    {"fabric.vcs", 1, 8, 0, NULL},
    {"fabric.depth_bytes", 0, 4096, 0, NULL},
    {"fabric.ports", .words = ports},
    {"sip.cube_mesh.w", 1, 3, 0, NULL},
    {"sip.cube_mesh.h", 1, 3, 0, NULL},
    {"sip.cube_pitch_mm", 0, 20, 6, NULL},
    {"sip.ucie.overhead_ns", 0, 20, 6, NULL},
    {"sip.ucie.bw_gbs", 1, 999, 9, NULL},
    {"sip.io.pcie_ep.overhead_ns", 0, 99, 6, NULL},
    {"sip.io.io_cpu.overhead_ns", 0, 999, 6, NULL},
    {"sip.io.io_cpu.count_ns", 0, 99, 6, NULL},
    {"sip.io.io_cpu.trigger_ns", 0, 99, 6, NULL},
    {"sip.io.io_noc.overhead_ns", 0, 9, 6, NULL},
    {"sip.io.io_noc.bw_gbs", 1, 999, 9, NULL},
    {"sip.io.io_noc.length_mm", 0, 9, 6, NULL},
    {"cube.noc.k", 1, 5, 0, NULL},
    {"cube.noc.w", 1, 5, 0, NULL},
    {"cube.noc.h", 1, 5, 0, NULL},
    {"cube.noc.router.overhead_ns", 0, 9, 6, NULL},
    {"cube.noc.bw_gbs", 1, 999, 9, NULL},
    {"cube.noc.length_mm", 0, 9, 6, NULL},
    {"cube.pe_layout.pe_per_corner", 1, 5, 0, NULL},
    {"cube.pe_layout.pe_per_router", 1, 2, 0, NULL},
    {"cube.ucie_to_noc_bw_gbs", 1, 999, 9, NULL},
    {"cube.pe_to_noc_bw_gbs", 1, 999, 9, NULL},
    {"cube.pe_to_xbar_bw_gbs", 1, 999, 9, NULL},
    {"cube.noc_to_xbar_bw_gbs", 1, 999, 9, NULL},
    {"cube.xbar_to_hbm_bw_gbs", 1, 999, 9, NULL},
    {"cube.xbar_to_sram_bw_gbs", 1, 999, 9, NULL},
    {"cube.xbar.overhead_ns", 0, 9, 6, NULL},
    {"cube.xbar.length_mm", 0, 9, 6, NULL},
    {"cube.hbm_gib", 1, 999, 0, NULL},
    {"cube.hbm_ctrl.latency_ns", 0, 99, 6, NULL},
    {"cube.hbm_ctrl.raw_gbs", 1, 999, 9, NULL},
    {"cube.hbm_ctrl.efficiency", 0, 0, 9, NULL},
    {"cube.sram.capacity_mib", 1, 99, 0, NULL},
    {"cube.sram.bw_gbs", 1, 999, 9, NULL},
    {"cube.sram.latency_ns", 0, 99, 6, NULL},
    {"cube.m_cpu.overhead_ns", 0, 999, 6, NULL},
    {"cube.m_cpu.count_ns", 0, 99, 6, NULL},
    {"cube.m_cpu.trigger_ns", 0, 99, 6, NULL},
    {"cube.pe_cpu.overhead_ns", 0, 99, 6, NULL},
    {"cube.pe_cpu.issue_ns", 0, 9, 6, NULL},
    {"cube.pe_cpu.queue_depth", 1, 99, 0, NULL},
    {"cube.pe_gemm.rows", 1, 99, 0, NULL},
    {"cube.pe_gemm.columns", 1, 99, 0, NULL},
    {"cube.pe_gemm.cycle_ns", 1, 9, 6, NULL},
    {"cube.pe_gemm.fill", .words = fills},
    {"cube.pe_math.lanes", 1, 99, 0, NULL},
    {"cube.pe_math.cycle_ns", 1, 9, 6, NULL},
    {"cube.pe_math.move_cycles", 1, 9, 0, NULL},
    {"cube.pe_math.div_cycles", 1, 9, 0, NULL},
    {"cube.pe_math.exp_cycles", 1, 9, 0, NULL},
    {"cube.pe_math.gather_cycles", 1, 9, 0, NULL},
    {"cube.pe_math.latency_cycles", 0, 9, 0, NULL},
    {"cube.pe_tcm.capacity_mib", 2, 64, 0, NULL},
    {"cube.pe_tcm.reserved_mib", 0, 3, 0, NULL},
    {"cube.pe_tcm.bw_gbs", 1, 999, 9, NULL},
    {"cube.pe_dma.overhead_ns", 0, 9, 6, NULL},
    {"cube.pe_dma.channels", 1, 9, 0, NULL},
};
enum { KEYS = sizeof keys / sizeof keys[0], MAX_SETTINGS = 12, SETTING = 96, ROUNDS = 400 };

/* "KEY=VALUE" */
static void make_setting(kb_rng *rng, const key *k, char setting[static SETTING])
{
    if (k->words) {
        size_t count = 0;
        while (k->words[count])
            count++;
        snprintf(setting, SETTING, "%s=%s", k->name, k->words[kb_rng_below(rng, count)]);
        return;
    }
    unsigned whole = k->min + (unsigned)kb_rng_below(rng, k->max - k->min + 1);
    int digits = k->digits > 0 ? (int)kb_rng_below(rng, (uint64_t)k->digits + 1) : 0;
    unsigned part = 1 + (unsigned)kb_rng_below(rng, 8); /* not 0, for the efficiency */
    if (digits == 0 && k->max > 0)
        snprintf(setting, SETTING, "%s=%u", k->name, whole);
    else /* such as 3.0004 */
        snprintf(setting, SETTING, "%s=%u.%.*s%u", k->name, whole, digits > 0 ? digits - 1 : 0,
                 "00000000", part);
}

/* Files that leave most out, in various forms. */
static const char *const files[] = {
    "{}",
    "system: { sips: { topology: torus_2d, w: 3, h: 2 } }\n",
    "# mine\nsystem:\n  sips:\n    count: 3 # three\n    link: { bw_gbs: 50.5, length_mm: 7, "
    "overhead_ns: 3.25 }\n",
    "cube:\n  pe_layout: { pe_per_router: 1 }\n  noc: { k: 3 }\n",
    "cube: { pe_layout: { pe_per_corner: 3, corners: [SE, NW] } }\n",
    "name: 'mine # it is'\ncube: { hbm_gib: 7.5, hbm_ctrl: { raw_gbs: 100, efficiency: 0.333 } }\n",
    "system: { sips: { topology: mesh_2d_no_wrap, w: 1, h: 5, link: { bw_gbs: 1, length_mm: 0, "
    "overhead_ns: 0 } } }\n",
    "cube: { sram: { capacity_mib: 0.5 }, pe_tcm: { capacity_mib: 1.5, reserved_mib: 0.25 } }\n",
};
enum { FILES = sizeof files / sizeof files[0] };

/* What holds of every effective description. */
static void check_machine(const topo_machine *machine, const char *what)
{
    kb_text text = KB_TEXT_INIT;
    expect_ok(effective_text(machine, &text));
    topo_source source = {.path = "again", .text = kb_text_peek(&text), .length = text.length};
    topo_machine *again;
    kb_error *err = topo_machine_load(&source, &again);
    if (err)
        fail_msg("%s: %s\n%s", what, kb_error_message(err), kb_text_peek(&text));
    if (topo_machine_hash(again) != topo_machine_hash(machine))
        fail_msg("%s: another machine:\n%s", what, kb_text_peek(&text));
    assert_string_equal(topo_machine_name(again), topo_machine_name(machine));

    /* Complete: without its defaults it says the same, so every setting stands in it. */
    kb_text before = KB_TEXT_INIT, after = KB_TEXT_INIT;
    topo_machine_print_settings(machine, &before);
    topo_machine_print_settings(again, &after);
    assert_string_equal(kb_text_peek(&after), kb_text_peek(&before));
    kb_text_fini(&before);
    kb_text_fini(&after);

    /* Stable: the effective description of the effective machine is the same text. */
    kb_text twice = KB_TEXT_INIT;
    expect_ok(effective_text(again, &twice));
    assert_string_equal(kb_text_peek(&twice), kb_text_peek(&text));
    kb_text_fini(&twice);
    kb_text_fini(&text);
    topo_machine_destroy(again);
}

static void random_machines_are_printed_exactly(void **state)
{
    (void)state;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(7));
    unsigned machines = 0, used[KEYS] = {0};
    for (int round = 0; round < ROUNDS; round++) {
        char storage[MAX_SETTINGS][SETTING];
        const char *settings[MAX_SETTINGS];
        size_t which[MAX_SETTINGS], count = kb_rng_below(&rng, MAX_SETTINGS + 1);
        for (size_t i = 0; i < count; i++) {
            which[i] = kb_rng_below(&rng, KEYS);
            make_setting(&rng, &keys[which[i]], storage[i]);
            settings[i] = storage[i];
        }
        const char *file = files[kb_rng_below(&rng, FILES)];
        topo_source source = {.path = "f.yaml",
                              .text = file,
                              .length = strlen(file),
                              .settings = settings,
                              .setting_count = count};
        topo_machine *machine;
        kb_error *err = topo_machine_load(&source, &machine);
        if (err) { /* such as both forms of pe_layout, or a count that is no square */
            assert_int_equal(kb_error_code(err), KB_ERR_INPUT);
            kb_error_free(err);
            continue;
        }
        machines++;
        for (size_t i = 0; i < count; i++)
            used[which[i]]++;
        check_machine(machine, file);
        topo_machine_destroy(machine);
    }
    assert_true(machines > ROUNDS / 4);
    for (size_t i = 0; i < KEYS; i++)
        if (used[i] == 0)
            fail_msg("%s was never part of a valid machine", keys[i].name);
}

static void the_machines_that_ship_are_printed_exactly(void **state)
{
    (void)state;
    for (const topo_builtin *b = topo_builtins; b->name; b++) {
        topo_machine *machine;
        expect_ok(topo_machine_load(&(topo_source){.path = b->name}, &machine));
        check_machine(machine, b->name);
        topo_machine_destroy(machine);
    }
}

/* Every scalar below the node must be among the settings, so that a new key is not forgotten. */
static void check_keys(kb_config_node *node, const char *path, const char *settings)
{
    for (kb_config_node *child = kb_config_first(node); child; child = kb_config_next(child)) {
        const char *word = kb_config_key(child);
        char key_path[SETTING], line[SETTING + 2];
        snprintf(key_path, sizeof key_path, "%s%s%s", path, *path ? "." : "", word);
        bool is_class = strcmp(word, "kind") == 0 || strcmp(word, "impl") == 0;
        snprintf(line, sizeof line, "\n%s=", key_path);
        if (strstr(settings, line) || is_class)
            continue;
        if (kb_config_source_text(child))
            fail_msg("%s is not printed", key_path);
        check_keys(child, key_path, settings);
    }
}

static void every_key_of_the_default_machine_is_printed(void **state)
{
    (void)state;
    topo_machine *machine;
    kb_config *config;
    kb_text settings = KB_TEXT_INIT;
    expect_ok(topo_machine_load(&(topo_source){0}, &machine));
    kb_text_puts(&settings, "\n");
    topo_machine_print_settings(machine, &settings);
    expect_ok(
        kb_config_load_text("default", topo_builtins[0].text, topo_builtins[0].length, &config));
    check_keys(kb_config_root(config), "", kb_text_peek(&settings));
    kb_config_destroy(config);
    kb_text_fini(&settings);
    topo_machine_destroy(machine);
}

static void the_default_machine_has_no_differences(void **state)
{
    (void)state;
    topo_machine *machine;
    kb_text text = KB_TEXT_INIT;
    expect_ok(topo_machine_load(&(topo_source){0}, &machine));
    expect_ok(effective_text(machine, &text));
    assert_non_null(
        strstr(kb_text_peek(&text), "# It is the built-in default machine.\n\n# Units"));
    const char *body = strstr(kb_text_peek(&text), "# Units");
    assert_non_null(strstr(topo_builtins[0].text, body)); /* to the letter */
    kb_text_fini(&text);
    topo_machine_destroy(machine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_machines_are_printed_exactly),
        cmocka_unit_test(the_machines_that_ship_are_printed_exactly),
        cmocka_unit_test(every_key_of_the_default_machine_is_printed),
        cmocka_unit_test(the_default_machine_has_no_differences),
    };
    return cmocka_run_group_tests_name("effective", tests, NULL, NULL);
}
