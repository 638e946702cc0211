/* test_topo_alloc.c: every allocation fails in turn while machines are loaded. */
#include "random_machines.h"
#include "support/failing_alloc.h"

static int failures;

static void expect_machine_or_no_memory(const topo_source *source, bool good)
{
    topo_machine *machine = NULL;
    kb_error *err = topo_machine_load(source, &machine);
    assert_int_equal(machine == NULL, err != NULL);
    if (err && kb_error_code(err) == KB_ERR_HOST)
        failures++;
    else
        assert_int_equal(kb_error_code(err), good ? KB_OK : KB_ERR_INPUT);
    kb_error_free(err);
    topo_machine_destroy(machine);
}

static void load_default(void)
{
    expect_machine_or_no_memory(&(topo_source){0}, true);
}

static const char text[] = "system: { sips: { w: 3, h: 2, topology: torus_2d } }\n"
                           "sip: { cube_mesh: { w: 2, h: 1 } }\n"
                           "cube: { noc: { k: 2 } }\n";

static void load_with_idle_settings(void)
{
    static const char *const settings[] = {"cube.noc.k=2", "cube.noc.bw_gbs=1"};
    expect_machine_or_no_memory(&(topo_source){.path = "f.yaml",
                                               .text = text,
                                               .length = sizeof text - 1,
                                               .settings = settings,
                                               .setting_count = 2},
                                true);
}

static void load_something_wrong(void)
{
    static const char *const settings[] = {"cube.nok.k=2", "cube.xbar.impl=x", "cube.hbm_gib=0.7"};
    expect_machine_or_no_memory(&(topo_source){.path = "f.yaml",
                                               .text = text,
                                               .length = sizeof text - 1,
                                               .settings = settings,
                                               .setting_count = 3},
                                false);
}

static void load_nothing(void)
{
    expect_machine_or_no_memory(&(topo_source){.path = "defalt"}, false);
}

static void try_all(void (*body)(void))
{
    failures = 0;
    failing_alloc_try_all(body);
    assert_true(failures > 0);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    try_all(load_default);
    try_all(load_with_idle_settings);
    try_all(load_something_wrong);
    try_all(load_nothing);
}

static void nothing_to_destroy(void **state)
{
    (void)state;
    topo_machine_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(nothing_to_destroy),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
