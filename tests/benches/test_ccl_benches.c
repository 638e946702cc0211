/*
 * test_ccl_benches.c: the benches of collectives: their original configurations, machines of other
 * shapes, sizes that do not divide, the report of wrong results, and times that do not depend on
 * contents. tests/ccl tests the results of collectives, without these benches.
 */
#include "rt/tensors.h"

#include <kernbench/ccl.h>

#include "benches/benches.h"
#include "benches/ccl_common.h"
#include "rt/rt.h"

/* ---- Machines ---------------------------------------------------------------------------- */

#define MACHINE(sips, w, h, cube)                                                                  \
    "system: { sips: { " sips " } }\n"                                                             \
    "sip: { cube_mesh: { w: " #w ", h: " #h " } }\n"                                               \
    "cube: { " cube " }\n"

#define PES_1 "noc: { k: 1 }, pe_layout: { pe_per_router: 1 }"
#define PES_2 "pe_layout: { pe_per_corner: 1, corners: [NW, SE] }"
#define PES_3 "pe_layout: { pe_per_corner: 1, corners: [NW, SE, SW] }"
#define PES_4 "noc: { k: 2 }, pe_layout: { pe_per_router: 1 }"
#define PES_5 "pe_layout: { pe_per_corner: 5, corners: [NE] }"
#define PES_16 "noc: { k: 4 }, pe_layout: { pe_per_router: 1 }"

/* ---- Running ----------------------------------------------------------------------------- */

enum { MAX_WORDS = 8, MAX_LINES = 16, LINE_BYTES = 256 };

typedef struct printed {
    size_t count;
    char lines[MAX_LINES][LINE_BYTES];
} printed;

static void keep_line(void *self, const char *line)
{
    printed *p = self;
    assert_true(p->count < MAX_LINES && strlen(line) < LINE_BYTES);
    strcpy(p->lines[p->count++], line);
}

/* The words of a text, which is changed. */
static size_t split(char *text, const char *words[MAX_WORDS])
{
    size_t count = 0;
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " ")) {
        assert_true(count < MAX_WORDS);
        words[count++] = word;
    }
    return count;
}

/* What is to be run: settings and parameters are words, "" if there are none. */
typedef struct job {
    const kb_bench_spec *spec;
    const char *machine;  /* NULL: the default one */
    const char *settings; /* of ccl.yaml */
    const char *params;
} job;

typedef struct outcome {
    printed out;
    rt_verdict verdict;
    kb_time ended;
} outcome;

static kb_error *run(const job *j, kb_context_options options, outcome *o)
{
    char settings[512], params[512];
    const char *setting_words[MAX_WORDS], *param_words[MAX_WORDS];
    snprintf(settings, sizeof settings, "%s", j->settings);
    snprintf(params, sizeof params, "%s", j->params);
    options.settings = setting_words;
    options.setting_count = split(settings, setting_words);
    *o = (outcome){.verdict = RT_NOT_VERIFIED};
    rt_bench_options bench_options = {
        .settings = param_words,
        .setting_count = split(params, param_words),
        .verify = !options.timing_only,
        .print = keep_line,
        .self = &o->out,
    };
    kb_context *ctx = open_context(j->machine, options);
    kb_bench *bench;
    expect_ok(rt_bench_create(j->spec, &bench_options, &bench));
    kb_error *err = rt_bench_run(bench, ctx);
    o->verdict = rt_bench_verdict(bench);
    o->ended = kb_context_now(ctx);
    rt_bench_destroy(bench);
    kb_context_destroy(ctx);
    return err;
}

/* ---- ccl_allreduce ----------------------------------------------------------------------- */

typedef struct reduction {
    const char *machine, *settings, *params, *line;
} reduction;

static void expect_lines(const reduction *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const reduction *c = &cases[i];
        outcome o;
        expect_ok(run(&(job){&bench_ccl_allreduce, c->machine, c->settings, c->params},
                      (kb_context_options){0}, &o));
        assert_int_equal(o.out.count, 1);
        assert_string_equal(o.out.lines[0], c->line);
        assert_int_equal(o.verdict, RT_VERIFIED);
    }
}

#define EXPECT_LINES(cases) expect_lines((cases), sizeof(cases) / sizeof(cases)[0])

/* "entry.key=value" of one entry, which is the one that is run. */
#define RUN(entry) "ccl.defaults.algorithm=" entry " "
#define WITH(entry, setting) "ccl.algorithms." entry "." setting " "

#define TCM "ring_allreduce_tcm"
#define HBM "ring_allreduce_hbm"
#define SRAM "ring_allreduce_sram"
#define MESH "mesh_allreduce_4"
#define TREE "tree_allreduce_7"
#define CUBES_TOO "intercube_allreduce"
#define LEVELS "hierarchical_allreduce"

/* Those that collectives of this kind of machine were first tested with. */
static void known_configurations(void **state)
{
    (void)state;
    static const reduction cases[] = {
        {NULL, RUN(TCM) WITH(TCM, "world_size=256"), "", TCM " (ws=256): 256 OK"},
        {NULL, RUN(TCM) WITH(TCM, "world_size=8") WITH(TCM, "n_elem=32"), "", TCM " (ws=8): 8 OK"},
        {NULL, RUN(HBM) WITH(HBM, "world_size=8") WITH(HBM, "n_elem=32"), "", HBM " (ws=8): 8 OK"},
        {NULL, RUN(SRAM) WITH(SRAM, "world_size=8") WITH(SRAM, "n_elem=32"), "",
         SRAM " (ws=8): 8 OK"},
        {NULL, RUN(TCM) WITH(TCM, "world_size=16"), "", TCM " (ws=16): 16 OK"},
        {NULL, RUN(MESH), "", MESH " (ws=4): 4 OK"},
        {NULL, RUN(TREE), "", TREE " (ws=7): 7 OK"},
        {NULL, "", "", CUBES_TOO " (ws=2): 32 OK"},
        {MACHINE("count: 4, topology: torus_2d", 4, 4, PES_4), "", "", CUBES_TOO " (ws=4): 64 OK"},
        {MACHINE("count: 4, topology: mesh_2d_no_wrap", 4, 4, PES_4), "", "",
         CUBES_TOO " (ws=4): 64 OK"},
        {MACHINE("count: 2", 2, 1, PES_4), RUN(LEVELS), "", LEVELS " (ws=2): 2 OK"},
    };
    EXPECT_LINES(cases);
}

/* op: 1 max, 2 min, 3 prod, 4 avg; dtype: 1 bf16, 2 f32. */
static void other_machines(void **state)
{
    (void)state;
    static const reduction cases[] = {
        {MACHINE("count: 1", 1, 1, PES_1), WITH(CUBES_TOO, "n_elem=1"), "",
         CUBES_TOO " (ws=1): 1 OK"},
        {MACHINE("count: 3", 1, 4, PES_2),
         WITH(CUBES_TOO, "n_elem=13") WITH(CUBES_TOO, "root_cube=0"), "op=max dtype=f32",
         CUBES_TOO " (ws=3): 12 OK"},
        {MACHINE("count: 5", 3, 2, PES_3),
         WITH(CUBES_TOO, "n_elem=7") WITH(CUBES_TOO, "root_cube=4"), "op=min dtype=bf16",
         CUBES_TOO " (ws=5): 30 OK"},
        {MACHINE("count: 6, topology: torus_2d, w: 3, h: 2", 1, 1, PES_2), "", "op=avg",
         CUBES_TOO " (ws=6): 6 OK"},
        {MACHINE("count: 8, topology: mesh_2d_no_wrap, w: 4, h: 2", 1, 1, PES_1),
         WITH(CUBES_TOO, "n_elem=3000"), "op=prod dtype=f32", CUBES_TOO " (ws=8): 8 OK"},
        {MACHINE("count: 9, topology: mesh_2d", 1, 1, PES_3), "", "", CUBES_TOO " (ws=9): 9 OK"},
        {MACHINE("count: 7", 1, 4, PES_16), RUN(LEVELS) WITH(LEVELS, "n_elem=5"), "dtype=f32",
         LEVELS " (ws=7): 7 OK"},
        {MACHINE("count: 1", 3, 2, PES_5), RUN(LEVELS) WITH(LEVELS, "n_elem=11"),
         "op=avg dtype=bf16", LEVELS " (ws=1): 1 OK"},
        {MACHINE("count: 9", 1, 1, PES_1), RUN(HBM) WITH(HBM, "n_elem=2500"), "op=max",
         HBM " (ws=9): 9 OK"},
        {MACHINE("count: 2", 1, 1, PES_3),
         RUN(MESH) WITH(MESH, "world_size=6") WITH(MESH, "w=3") WITH(MESH, "h=2"), "op=prod",
         MESH " (ws=6): 6 OK"},
        {MACHINE("count: 1", 1, 1, PES_16),
         RUN(TREE) WITH(TREE, "world_size=12") WITH(TREE, "reduce_op=min"), "dtype=f32",
         TREE " (ws=12): 12 OK"},
    };
    EXPECT_LINES(cases);
}

/* Those for tensors of any layout; n_elem is what a PE has. */
static void algorithms_with_lanes(void **state)
{
    (void)state;
    static const reduction cases[] = {
        {MACHINE("count: 5", 3, 1, PES_3), RUN("ring_rsag") WITH("ring_rsag", "n_elem=1111"),
         "op=avg dtype=f32", "ring_rsag (ws=5): 5 OK"},
        {MACHINE("count: 6", 1, 2, PES_2), RUN("trees") WITH("trees", "n_elem=77"), "",
         "trees (ws=6): 6 OK"},
        {MACHINE("count: 3", 3, 2, PES_1), RUN("one_shot") WITH("one_shot", "n_elem=9"),
         "dtype=bf16", "one_shot (ws=3): 3 OK"},
        {MACHINE("count: 2", 3, 1, PES_3), RUN("ring_rsag_pes"), "op=max",
         "ring_rsag_pes (ws=18): 18 OK"},
        {MACHINE("count: 3", 1, 1, PES_2), RUN("auto"), "", "auto (ws=3): 3 OK"},
    };
    EXPECT_LINES(cases);
}

static void a_root_cube_that_is_not_there_is_an_error(void **state)
{
    (void)state;
    outcome o;
    job j = {&bench_ccl_allreduce, MACHINE("count: 1", 3, 2, PES_1), WITH(CUBES_TOO, "root_cube=6"),
             ""};
    kb_error *err = run(&j, (kb_context_options){0}, &o);
    assert_int_equal(kb_error_code(err), KB_ERR_INPUT);
    assert_non_null(strstr(kb_error_message(err), "root_cube is 6, but cubes are 0 to 5"));
    assert_int_equal(o.out.count, 0);
    kb_error_free(err);
}

/* It reduces nothing: of the four the last one, which is told of, has what the third had. */
static void what_is_wrong_is_noticed(void **state)
{
    (void)state;
    outcome o;
    job j = {&bench_ccl_allreduce, NULL, RUN("hello_send") WITH("hello_send", "world_size=4"), ""};
    expect_error(run(&j, (kb_context_options){0}, &o), KB_ERR_CHECK,
                 "hello_send: 32 elements are wrong");
    assert_int_equal(o.out.count, 1);
    assert_string_equal(o.out.lines[0], "[FAIL] hello_send (ws=4): got mean=3, expected=10");
    assert_int_not_equal(o.verdict, RT_VERIFIED);
    j.params = "max_bytes=20"; /* 1, 4 and 16 bytes: one, two and eight elements of four ranks */
    expect_error(run(&j, (kb_context_options){0}, &o), KB_ERR_CHECK, "44 elements are wrong");
    assert_int_not_equal(o.verdict, RT_VERIFIED);
}

static void without_contents_nothing_is_confirmed(void **state)
{
    (void)state;
    outcome o;
    job j = {&bench_ipcq_allreduce, MACHINE("count: 2", 2, 1, PES_1), "", ""};
    expect_ok(run(&j, (kb_context_options){.timing_only = true}, &o));
    assert_int_equal(o.out.count, 1);
    assert_string_equal(o.out.lines[0], CUBES_TOO " (ws=2): not checked (timing-only)");
    assert_int_equal(o.verdict, RT_NOT_VERIFIED);
}

/* ---- hello_send -------------------------------------------------------------------------- */

enum { HELLO_ELEMENTS = 8 };

static kb_error *pass_on(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)rank;
    const kb_tensor *x = arg;
    KB_TRY(kb_ahbm_set_device(ctx, 0));
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    KB_TRY(kb_distributed_call(ctx, &(kb_collective){.kind = KB_ALL_REDUCE,
                                                     .inputs = x,
                                                     .outputs = x,
                                                     .count = 1,
                                                     .options.algorithm = "hello_send"}));
    return kb_distributed_destroy_process_group(ctx);
}

/* PE r of the first `world` has r; afterwards it has what the one before had. */
static void hello(uint32_t world, const char *world_size)
{
    const char *settings[] = {"ccl.defaults.algorithm=hello_send", world_size};
    kb_context *ctx =
        open_context(NULL, (kb_context_options){.settings = settings, .setting_count = 2});
    kb_policy policy = {
        .tiling = KB_TILED_COLUMN_MAJOR, .tile_rows = 1, .tile_columns = HELLO_ELEMENTS};
    kb_tensor_spec spec = {.name = "x",
                           .dtype = KB_F32,
                           .shape = KB_SHAPE(1, world * HELLO_ELEMENTS),
                           .policy = &policy};
    kb_tensor x;
    float before[8 * HELLO_ELEMENTS], after[8 * HELLO_ELEMENTS];
    for (uint32_t i = 0; i < world * HELLO_ELEMENTS; i++) {
        uint32_t rank = i / HELLO_ELEMENTS;
        before[i] = (float)rank;
        after[i] = (float)((rank + world - 1) % world);
    }
    expect_ok(kb_empty(ctx, &spec, &x));
    expect_ok(kb_tensor_set_slice(ctx, x, KB_UNTIMED, NULL, before, bytes_of(&spec)));
    expect_ok(kb_spawn(ctx, pass_on, &x, 1));
    expect_contents(ctx, x, KB_UNTIMED, after, bytes_of(&spec));
    kb_context_destroy(ctx);
}

static void hello_send_passes_on(void **state)
{
    (void)state;
    hello(4, "ccl.algorithms.hello_send.world_size=4");
    hello(8, "ccl.algorithms.hello_send.world_size=8");
}

/* ---- The others -------------------------------------------------------------------------- */

static const struct {
    const kb_bench_spec *spec;
    const char *reduction, *root; /* as rows show them */
} others[] = {
    {&bench_ccl_all_gather, "none", "-1"}, {&bench_ccl_reduce_scatter, "max", "-1"},
    {&bench_ccl_broadcast, "none", "2"},   {&bench_ccl_reduce, "max", "2"},
    {&bench_ccl_gather, "none", "2"},      {&bench_ccl_scatter, "none", "2"},
    {&bench_ccl_all_to_all, "none", "-1"}, {&bench_ccl_sendrecv, "none", "-1"},
};
enum { OTHERS = sizeof others / sizeof others[0] };

/* Sizes of 1, 31 and 961 bytes are one block of one element at least. */
#define SIZES "min_bytes=1 max_bytes=1000 factor=31 "
enum { HEAD_LINES = 5 };

static void tables_are_right(void **state)
{
    (void)state;
    enum { SIZE, COUNT, TYPE, OP, ROOT, TIME, ALGBW, BUSBW, WRONG, BOUND, REACHED, COLUMNS };
    for (size_t i = 0; i < OTHERS; i++) {
        outcome o;
        job j = {others[i].spec, MACHINE("count: 3", 3, 1, PES_3), "",
                 SIZES "op=max dtype=f32 root=2"};
        expect_ok(run(&j, (kb_context_options){0}, &o));
        assert_int_equal(o.verdict, RT_VERIFIED);
        assert_int_equal(o.out.count, HEAD_LINES + 3);
        for (size_t row = HEAD_LINES; row < o.out.count; row++) {
            const char *words[MAX_WORDS + COLUMNS] = {NULL};
            size_t count = 0;
            for (char *word = strtok(o.out.lines[row], " "); word; word = strtok(NULL, " "))
                words[count++] = word;
            assert_int_equal(count, COLUMNS + 1);
            assert_int_equal(strtoul(words[SIZE], NULL, 10), 4 * strtoul(words[COUNT], NULL, 10));
            assert_string_equal(words[TYPE], "f32");
            assert_string_equal(words[OP], others[i].reduction);
            assert_string_equal(words[ROOT], others[i].root);
            assert_string_equal(words[WRONG], "0");
            assert_true(strtod(words[TIME], NULL) >= strtod(words[BOUND], NULL));
        }
    }
}

KB_KERNEL(do_nothing, tl_ptr mine)
{
    (void)mine;
}

static kb_error *one_address(const kb_ccl_call *call, const kb_ccl_target *target,
                             kb_ccl_arguments *args)
{
    (void)call;
    kb_ccl_add_address(args, target->output);
    return NULL;
}

static const kb_ccl_algorithm nothing = {
    .name = "nothing",
    .summary = "does nothing",
    .kernel = &do_nothing,
    .collectives = ~0u,
    .same_bits = true,
    .arguments = one_address,
};
static const kb_ccl_plugin plugin = {.algorithms = KB_CCL_LIST(&nothing)};

/* Nothing is faster than what does nothing, so it is chosen; of sending the first is. */
static void what_is_wrong_in_tables_is_noticed(void **state)
{
    (void)state;
    temporary file = file_of("algorithms:\n"
                             "  pairs_send: { module: nothing, topology: ring_1d, mapper: lanes }\n"
                             "  nothing: { module: nothing, topology: ring_1d, mapper: lanes }\n");
    kb_context_options options = {
        .ccl = file.path, .ccl_plugins = (const kb_ccl_plugin *[]){&plugin}, .ccl_plugin_count = 1};
    for (size_t i = 0; i < OTHERS; i++) {
        outcome o;
        job j = {others[i].spec, MACHINE("count: 3", 1, 1, PES_2), "", "max_bytes=1024"};
        kb_error *err = run(&j, options, &o);
        if (!strstr(kb_error_message(err), " elements are wrong"))
            fail_msg("%s: '%s'", j.spec->name, kb_error_message(err));
        assert_int_equal(kb_error_code(err), KB_ERR_CHECK);
        assert_int_not_equal(o.verdict, RT_VERIFIED);
        kb_error_free(err);
    }
    remove_file(&file);
}

static void a_root_that_is_not_there_is_an_error(void **state)
{
    (void)state;
    outcome o;
    job j = {&bench_ccl_gather, MACHINE("count: 3", 1, 1, PES_1), "", "root=3"};
    expect_error(run(&j, (kb_context_options){0}, &o), KB_ERR_INPUT, "root=3: ranks are 0 to 2");
    j = (job){&bench_ccl_sendrecv, MACHINE("count: 1", 1, 1, PES_1), "", ""};
    expect_error(run(&j, (kb_context_options){0}, &o), KB_ERR_INPUT,
                 "ccl_sendrecv needs at least two devices");
}

/* With data, without, and with every step an event of its own. */
static void expect_same_times(const job *j)
{
    static const kb_context_options modes[] = {
        {0}, {.timing_only = true}, {.no_elision = true}, {.threads = 1}};
    kb_time first = 0;
    for (size_t mode = 0; mode < sizeof modes / sizeof modes[0]; mode++) {
        outcome o;
        expect_ok(run(j, modes[mode], &o));
        assert_true(o.ended > 0);
        first = mode == 0 ? o.ended : first;
        assert_int_equal(o.ended, first);
    }
}

/* A parameter's index is taken for the kb_dtype or kb_reduce_op. */
static void parameters_have_the_names_of_the_library(void **state)
{
    (void)state;
    size_t dtypes = 0, ops = 0;
    for (; bench_dtypes[dtypes]; dtypes++)
        assert_string_equal(bench_dtypes[dtypes], kb_dtype_name((kb_dtype)dtypes));
    for (; bench_ops[ops]; ops++) {
        assert_string_equal(bench_ops[ops], kb_reduce_op_name((kb_reduce_op)ops));
        assert_string_equal(bench_ops[ops], bench_ops_or_default[ops]);
    }
    assert_int_equal(dtypes, KB_F32 + 1);
    assert_int_equal(ops, KB_REDUCE_OPS);
    assert_string_equal(bench_ops_or_default[ops], "default");
    assert_null(bench_ops_or_default[ops + 1]);
}

static void an_operation_that_is_given_counts(void **state)
{
    (void)state;
    static const struct {
        const char *params, *shown;
    } cases[] = {
        {"max_bytes=1KiB", " f16   max "},
        {"max_bytes=1KiB op=default", " f16   max "},
        {"max_bytes=1KiB op=sum dtype=f32", " f32   sum "},
        {"max_bytes=1KiB op=min", " f16   min "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        outcome o;
        job j = {&bench_ccl_allreduce, MACHINE("count: 2", 1, 1, PES_2),
                 RUN("ring_rsag") WITH("ring_rsag", "reduce_op=max"), cases[i].params};
        expect_ok(run(&j, (kb_context_options){0}, &o));
        assert_non_null(strstr(o.out.lines[o.out.count - 1], cases[i].shown));
    }
}

static void times_do_not_depend_on_data(void **state)
{
    (void)state;
    static const char *const reductions[] = {
        "",           RUN(LEVELS),
        RUN(SRAM),    RUN(MESH),
        RUN(TREE),    RUN("ring_rsag"),
        RUN("trees"), RUN("one_shot") "ccl.defaults.backpressure=poll"};
    for (size_t i = 0; i < sizeof reductions / sizeof reductions[0]; i++)
        expect_same_times(&(job){&bench_ccl_allreduce, ODD_ONES, reductions[i], ""});
    for (size_t i = 0; i < OTHERS; i++)
        expect_same_times(&(job){others[i].spec, ODD_ONES, "", SIZES "warmup=0"});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_configurations),
        cmocka_unit_test(other_machines),
        cmocka_unit_test(algorithms_with_lanes),
        cmocka_unit_test(a_root_cube_that_is_not_there_is_an_error),
        cmocka_unit_test(what_is_wrong_is_noticed),
        cmocka_unit_test(without_contents_nothing_is_confirmed),
        cmocka_unit_test(hello_send_passes_on),
        cmocka_unit_test(tables_are_right),
        cmocka_unit_test(what_is_wrong_in_tables_is_noticed),
        cmocka_unit_test(a_root_that_is_not_there_is_an_error),
        cmocka_unit_test(parameters_have_the_names_of_the_library),
        cmocka_unit_test(an_operation_that_is_given_counts),
        cmocka_unit_test(times_do_not_depend_on_data),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
