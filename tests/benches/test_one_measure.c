/*
 * test_one_measure.c: each quantity has one measurement. A bench reports what `kernbench ccl tune`
 * measures, what `auto` chooses by, and what the summary of a run prints: to the femtosecond, on
 * machines of several shapes.
 */
#include "report.h"

#include <kernbench/ccl.h>

#include <inttypes.h>

#include "ccl/ccl.h"
#include "rt/rt.h"

/* ---- Machines ---------------------------------------------------------------------------- */

#define LINKS ", link: { bw_gbs: 100, length_mm: 200, overhead_ns: 20 }"
#define MACHINE(sips, w, h, cube)                                                                  \
    "system: { sips: { " sips " } }\n"                                                             \
    "sip: { cube_mesh: { w: " #w ", h: " #h " } }\n"                                               \
    "cube: { " cube " }\n"
#define PES_3 "pe_layout: { pe_per_corner: 1, corners: [NW, SE, SW] }"
#define PES_4 "noc: { k: 2 }, pe_layout: { pe_per_router: 1 }"

static const char *const machines[] = {
    MACHINE("count: 3", 2, 1, PES_4),                                        /* switch */
    MACHINE("count: 5" LINKS, 3, 1, PES_3),                                  /* ring */
    MACHINE("count: 6, topology: torus_2d, w: 3, h: 2" LINKS, 1, 3, PES_4),  /* torus */
    MACHINE("count: 4, topology: mesh_2d_no_wrap" LINKS, 2, 2, PES_3),       /* mesh */
    MACHINE("count: 2", 3, 3, PES_3) "fabric: { vcs: 1, packet_bytes: 96 }", /* one channel */
};
enum { MACHINES = sizeof machines / sizeof machines[0] };

/* ---- Running ----------------------------------------------------------------------------- */

static double metric(const report *r, const char *name, uint64_t size)
{
    char full[64];
    snprintf(full, sizeof full, "%s_%" PRIu64, name, size);
    const double *value = find_metric(r, full);
    if (!value)
        fail_msg("there is no metric %s", full);
    return *value;
}

static double in_us(kb_time time)
{
    return kb_to_ns(time) / 1000;
}

/* ---- Tuning and benches ------------------------------------------------------------------ */

typedef struct collective {
    kb_collective_kind kind;
    const kb_bench_spec *spec;
} collective;

static const collective all_reduce = {KB_ALL_REDUCE, &bench_ccl_allreduce};
static const collective others[] = {
    {KB_ALL_GATHER, &bench_ccl_all_gather}, {KB_REDUCE_SCATTER, &bench_ccl_reduce_scatter},
    {KB_BROADCAST, &bench_ccl_broadcast},   {KB_REDUCE, &bench_ccl_reduce},
    {KB_GATHER, &bench_ccl_gather},         {KB_SCATTER, &bench_ccl_scatter},
    {KB_ALL_TO_ALL, &bench_ccl_all_to_all},
};
enum { OTHERS = sizeof others / sizeof others[0] };

typedef struct measured {
    ccl_registry registry;
    ccl_config config;
    ccl_measurements results;
    uint64_t size;
} measured;

static void measure(const char *machine, kb_collective_kind kind, uint64_t bytes, measured *m)
{
    kb_context *ctx = open_context(machine, (kb_context_options){.timing_only = true});
    expect_ok(ccl_registry_init(&m->registry, NULL, 0));
    expect_ok(ccl_config_load(NULL, NULL, 0, &m->registry, &m->config));
    m->size = ccl_whole_size(kind, kb_ahbm_device_count(ctx), KB_F16, bytes);
    const ccl_question question = {.kind = kind, .bytes = bytes, .dtype = KB_F16};
    m->results = (ccl_measurements){0};
    expect_ok(ccl_measure(ctx, &m->config, &question, &m->results));
    kb_context_destroy(ctx);
}

static void free_measured(measured *m)
{
    kb_vec_fini(&m->results);
    ccl_config_fini(&m->config);
}

static const char *name_of(const measured *m, size_t index)
{
    return m->config.entries.items[m->results.items[index].entry].name;
}

/* Every entry, and auto, with some number of calls before: with data now and then, which makes no
 * difference either. */
static void compare(const char *machine, const collective *c, uint64_t bytes)
{
    static const char *const warmups[] = {"warmup=1", "warmup=2", "warmup=3"};
    measured m;
    measure(machine, c->kind, bytes, &m);
    char min[32], max[32];
    snprintf(min, sizeof min, "min_bytes=%" PRIu64, bytes);
    snprintf(max, sizeof max, "max_bytes=%" PRIu64, bytes);
    for (size_t i = 0; i <= m.results.count; i++) {
        bool is_auto = i == m.results.count;
        const ccl_measurement *result = &m.results.items[is_auto ? 0 : i];
        job j = {.spec = c->spec,
                 .machine = machine,
                 .algorithm = is_auto ? "auto" : name_of(&m, i),
                 .params = {min, max, warmups[(bytes + i) % 3]},
                 .with_data = is_auto && bytes < 2000};
        report r;
        run(&j, &r);
        double time = metric(&r, "time", m.size);
        if (time < in_us(result->time) || time > in_us(result->time))
            fail_msg("%s of %" PRIu64 " bytes by %s on\n%s%.9f us, but %.9f us when measured",
                     kb_collective_name(c->kind), bytes, j.algorithm, machine, time,
                     in_us(result->time));
        assert_true(result->bound <= result->time);
        assert_true(metric(&r, "bound", m.size) == in_us(result->bound));
        const char *chosen = strrchr(r.last_line, ' ') + 1;
        assert_string_equal(chosen, name_of(&m, is_auto ? 0 : i));
    }
    free_measured(&m);
}

static void all_reduce_takes_what_tuning_says(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, 46, 1000, 1 << 14, 100002};
    for (size_t i = 0; i < MACHINES; i++)
        for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; k++)
            compare(machines[i], &all_reduce, sizes[k]);
}

static void other_collectives_take_what_tuning_says(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, 999, 50001};
    for (size_t i = 0; i < MACHINES; i++)
        for (size_t k = 0; k < OTHERS; k++)
            compare(machines[i], &others[k], sizes[(i + k) % 3]);
}

/* What was called before makes no difference: a table of sizes has the times of its sizes alone. */
static void a_size_takes_the_same_in_a_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < MACHINES; i++) {
        job j = {.spec = &bench_ccl_sendrecv,
                 .machine = machines[i],
                 .params = {"min_bytes=250", "max_bytes=4000", "warmup=1"}};
        report table, alone;
        run(&j, &table);
        /* 250, 1000, 4000, and the largest again; without `wrong`. */
        assert_int_equal(table.count, 4 * 4);
        j.params[0] = "min_bytes=4000";
        j.params[2] = "warmup=2";
        run(&j, &alone);
        assert_true(metric(&table, "time", 4000) == metric(&alone, "time", 4000));
    }
}

/* ---- Tables ------------------------------------------------------------------------------ */

/* All-reduces of any number of elements, right in all of them, and with the size that they have. */
static void sizes_that_do_not_divide(void **state)
{
    (void)state;
    static const char *const algorithms[] = {"ring_rsag", "auto", "ring_allreduce_tcm",
                                             "intercube_allreduce"};
    static const char *const maxima[] = {"max_bytes=1", "max_bytes=3", "max_bytes=46"};
    static const uint64_t sizes[] = {2, 2, 46};
    for (size_t i = 0; i < sizeof algorithms / sizeof algorithms[0]; i++)
        for (size_t k = 0; k < 3; k++) {
            report r;
            job j = {.spec = &bench_ccl_allreduce,
                     .machine = machines[1],
                     .algorithm = algorithms[i],
                     .params = {"min_bytes=1", maxima[k], "factor=46"},
                     .with_data = true};
            run(&j, &r);
            assert_int_equal(r.verdict, RT_VERIFIED);
            assert_true(metric(&r, "wrong", sizes[k]) == 0);
            assert_true(metric(&r, "time", sizes[k]) >= metric(&r, "bound", sizes[k]));
            double algbw = (double)sizes[k] / metric(&r, "time", sizes[k]) / 1000;
            assert_true(metric(&r, "algbw", sizes[k]) == algbw);
            size_t rows = k == 2 ? 2 : 1;
            /* time, algbw, busbw, bound, wrong; and of the largest size all but wrong */
            assert_int_equal(r.count, 5 * rows + 4);
            assert_int_equal(r.lines, 5 + rows);
        }
}

/* Three ranks: 1, 2, 4 bytes are one element each, which are 6; 8 and 16 are 6 and 12. */
static void no_size_comes_twice(void **state)
{
    (void)state;
    report r;
    job j = {.spec = &bench_ccl_all_gather,
             .machine = machines[0],
             .params = {"min_bytes=1", "max_bytes=16", "factor=2"},
             .with_data = true};
    run(&j, &r);
    assert_int_equal(r.count, 5 * 2 + 4);
    assert_true(*find_metric(&r, "time_us") == metric(&r, "time", 12)); /* of the largest */
    assert_true(metric(&r, "wrong", 6) == 0 && metric(&r, "wrong", 12) == 0);
}

/* Nothing was compared, so nothing is known to be right. */
static void without_data_nothing_is_counted(void **state)
{
    (void)state;
    report r;
    job j = {.spec = &bench_ccl_broadcast,
             .machine = machines[0],
             .params = {"min_bytes=64", "max_bytes=64"}};
    run(&j, &r);
    assert_null(find_metric(&r, "wrong_64"));
    assert_non_null(find_metric(&r, "time_64"));
    assert_non_null(strstr(r.last_line, " n/a "));
}

/* ---- Kernels ----------------------------------------------------------------------------- */

static void is_what_the_log_says(kb_context *ctx, const report *r)
{
    rt_stats stats = rt_get_stats(ctx);
    size_t count;
    const kb_op_sum *sums = kb_oplog_sums(stats.log, &count);
    uint64_t flops = 0;
    kb_time longest = 0;
    for (size_t i = 0; i < count; i++)
        flops += sums[i].unit == KB_UNIT_GEMM ? sums[i].flops : 0;
    for (size_t i = 0; i < stats.launch_count; i++)
        if (stats.launches[i].pe_exec > longest)
            longest = stats.launches[i].pe_exec;
    kb_time kernels = kb_oplog_timeline(stats.log).kernels;
    assert_int_equal(kb_context_kernel_time(ctx), kernels);
    assert_true(*find_metric(r, "tflops") == kb_to_tflops((double)flops, kernels));
    if (kb_context_machine(ctx).sips > 1 && stats.launch_count > 1)
        assert_true(kernels > longest); /* devices do not start at one instant */
}

static void tflops_are_those_of_the_roofline(void **state)
{
    (void)state;
    const job jobs[] = {
        {.spec = &bench_gemm_single_pe, .params = {"m=100", "k=70", "n=33"}},
        {.spec = &bench_qkv_gemm, .params = {"tokens=9", "width=100"}},
        {.spec = &bench_qkv_gemm_multi_pe, .params = {"tokens=7", "width=95"}},
    };
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++)
        for (size_t k = 0; k < MACHINES; k++) {
            job j = jobs[i];
            report r;
            j.machine = machines[k];
            j.look = is_what_the_log_says;
            run(&j, &r);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_reduce_takes_what_tuning_says),
        cmocka_unit_test(other_collectives_take_what_tuning_says),
        cmocka_unit_test(a_size_takes_the_same_in_a_table),
        cmocka_unit_test(sizes_that_do_not_divide),
        cmocka_unit_test(no_size_comes_twice),
        cmocka_unit_test(without_data_nothing_is_counted),
        cmocka_unit_test(tflops_are_those_of_the_roofline),
    };
    return cmocka_run_group_tests_name("one measure", tests, NULL, NULL);
}
