/* test_plan_alloc.c: every allocation fails in turn while ccl.yaml is read and plans are made. */
#include "plans.h"
#include "support/failing_alloc.h"
#include "support/temporary.h"

static int failures;
static temporary file;
static topo_machine *machine;

static void expect_done_or_no_memory(kb_error *err, kb_code otherwise)
{
    if (err && kb_error_code(err) == KB_ERR_HOST)
        failures++;
    else
        assert_int_equal(kb_error_code(err), otherwise);
    kb_error_free(err);
}

static void load(const char *setting, kb_code otherwise)
{
    const char *settings[] = {setting, "algorithms.trees.kernel_x=3"};
    ccl_registry registry = shipped();
    ccl_config config;
    kb_error *err = ccl_config_load(file.path, settings, 2, &registry, &config);
    if (!err)
        ccl_config_fini(&config);
    expect_done_or_no_memory(err, otherwise);
}

static void load_file(void)
{
    load("defaults.n_slots=8", KB_OK);
}

static void load_something_wrong(void)
{
    load("defaults.algorithm=b", KB_ERR_INPUT);
}

static void make_lanes(void)
{
    ccl_entry entry = an_entry();
    entry.mapper = mapper_of("lanes");
    entry.topology = topology_of("sip_links");
    ccl_plan plan;
    kb_error *err = plan_all(&entry, machine, &plan);
    if (!err)
        ccl_plan_fini(&plan);
    expect_done_or_no_memory(err, KB_OK);
}

static void make_levels(void)
{
    ccl_entry entry = an_entry();
    entry.mapper = mapper_of("all_pes");
    entry.topology = topology_of("hierarchical_3level");
    ccl_plan plan;
    kb_error *err = plan_all(&entry, machine, &plan);
    if (!err)
        ccl_plan_fini(&plan);
    expect_done_or_no_memory(err, KB_OK);
}

static void make_pe_ring(void)
{
    ccl_entry entry = an_entry();
    entry.mapper = mapper_of("pe_ring");
    entry.rank_is_pe = true;
    ccl_plan plan;
    kb_error *err = plan_all(&entry, machine, &plan);
    if (!err)
        ccl_plan_fini(&plan);
    expect_done_or_no_memory(err, KB_OK);
}

static void try_all(void (*body)(void))
{
    failures = 0;
    failing_alloc_try_all(body);
    assert_true(failures > 0);
}

static void test_config(void **state)
{
    (void)state;
    file = file_of("defaults: { n_elem: 3 }\n"
                   "algorithms: { a: { module: ring, topology: ring_1d, kernel_x: 1 } }\n"
                   "tuned:\n"
                   "- { collective: all_reduce, world: 2, machine: '0123456789abcdef', "
                   "up_to_bytes: 9, algorithm: trees }\n");
    try_all(load_file);
    try_all(load_something_wrong);
    remove_file(&file);
}

static void test_plans(void **state)
{
    (void)state;
    machine = machine_of("sip: { cube_mesh: { w: 2, h: 1 } }\n"
                         "cube:\n"
                         "  noc: { k: 1 }\n"
                         "  pe_layout: { pe_per_router: 2 }\n");
    try_all(make_lanes);
    try_all(make_levels);
    try_all(make_pe_ring);
    topo_machine_destroy(machine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config),
        cmocka_unit_test(test_plans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
