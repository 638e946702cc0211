/*
 * test_select.c: the entry of ccl.yaml that serves a call, and files in the form of the Python
 * original: dotted module names, entries without mapper or validator, and calls without options.
 *
 * The machine has 3 SIPs of 2 x 1 cubes of four PEs. Rank r fills its tensor with r + 1, so that
 * the sum over ranks is 6, and 12 where the shards of both cubes are added up too.
 */
#include "trial.h"

#include "ccl/config/ccl_yaml.h"
#include "support/temporary.h"

enum { WORLD = 3, CUBES_OF_SIP = 2, PES_OF_CUBE = 4, RANK_SUM = 6 };

typedef enum placement { ONE_SHARD, SHARD_PER_CUBE, SHARD_PER_PE, COPY_PER_CUBE } placement;

typedef struct call {
    const char *algorithm; /* of the call's options */
    placement layout;
    double result[WORLD]; /* its first element, by rank */
    char used[WORLD][64];
} call;

static kb_tensor make_tensor(kb_context *ctx, placement where, double value)
{
    static const kb_policy policies[] = {
        [SHARD_PER_CUBE] = {.cube = KB_ROW_WISE, .num_pes = 1},
        [SHARD_PER_PE] = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE},
        [COPY_PER_CUBE] = {.cube = KB_REPLICATE, .num_pes = 1},
    };
    kb_tensor_spec spec = {.name = "x",
                           .dtype = KB_F16,
                           .shape = KB_SHAPE(CUBES_OF_SIP, 8),
                           .policy = where == ONE_SHARD ? NULL : &policies[where],
                           .access = KB_UNTIMED};
    kb_tensor tensor;
    expect_ok(kb_full(ctx, &spec, value, &tensor));
    return tensor;
}

static kb_error *reduce(kb_context *ctx, uint32_t rank, void *arg)
{
    call *c = arg;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    kb_tensor x = make_tensor(ctx, c->layout, rank + 1.0);
    kb_collective_options options = {.algorithm = c->algorithm};
    KB_TRY(kb_distributed_all_reduce(ctx, x, KB_SUM, c->algorithm ? &options : NULL));
    c->result[rank] = first_of(ctx, x);
    kb_collective_stats stats;
    KB_TRY(kb_distributed_get_stats(ctx, (kb_group){0}, &stats));
    snprintf(c->used[rank], sizeof c->used[rank], "%s", stats.algorithm);
    return kb_distributed_destroy_process_group(ctx);
}

typedef struct note_log {
    char text[4096];
} note_log;

static void on_note(void *self, const char *line)
{
    note_log *n = self;
    size_t length = strlen(n->text);
    snprintf(n->text + length, sizeof n->text - length, "%s\n", line);
}

/* The call with that ccl.yaml (NULL: the built-in one); what was noted of it goes to `n`. */
static kb_error *reduce_with(const char *yaml, call *c, note_log *n)
{
    *n = (note_log){""};
    temporary file = file_of(yaml ? yaml : "");
    static const char *const settings[] = {"system.sips.count=3", "sip.cube_mesh.w=2",
                                           "sip.cube_mesh.h=1",   "cube.noc.w=2",
                                           "cube.noc.h=2",        "cube.pe_layout.pe_per_corner=1"};
    kb_context *ctx;
    expect_ok(kb_context_create(&(kb_context_options){.threads = 1,
                                                      .settings = settings,
                                                      .setting_count = 6,
                                                      .ccl = yaml ? file.path : NULL,
                                                      .on_note = on_note,
                                                      .on_note_self = n},
                                &ctx));
    kb_error *err = kb_spawn(ctx, reduce, c, WORLD);
    kb_context_destroy(ctx);
    remove_file(&file);
    return err;
}

/* Every rank has this result, by this entry. */
static void expect_result(const char *yaml, placement where, const char *algorithm, double result,
                          const char *used)
{
    call c = {.layout = where, .algorithm = algorithm};
    note_log n;
    expect_ok(reduce_with(yaml, &c, &n));
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        assert_true(c.result[rank] == result);
        if (used)
            assert_string_equal(c.used[rank], used);
    }
}

/* ---- Entries as the original writes them --------------------------------------------------- */

static const char original[] = "defaults:\n"
                               "  algorithm: intercube_allreduce\n"
                               "  buffer_kind: tcm\n"
                               "  backpressure: sleep\n"
                               "  n_slots: 4\n"
                               "  slot_size: 4096\n"
                               "  vc_chunk_size: 256\n"
                               "  ipcq_credit_size_bytes: 16\n"
                               "algorithms:\n"
                               "  intercube_allreduce:\n"
                               "    module: kernbench.ccl.algorithms.intercube_allreduce\n"
                               "    topology: none\n"
                               "    n_elem: 8\n"
                               "  ring_allreduce_tcm:\n"
                               "    module: kernbench.ccl.algorithms.ring_allreduce\n"
                               "    topology: ring_1d\n"
                               "  tree_allreduce:\n"
                               "    module: kernbench.ccl.algorithms.tree\n"
                               "    topology: tree_binary\n"
                               "  hierarchical_allreduce:\n"
                               "    module: kernbench.ccl.algorithms.hierarchical_allreduce\n"
                               "    topology: hierarchical_3level\n"
                               "  ring_of_pes:\n"
                               "    module: kernbench.ccl.algorithms.ring_allreduce\n"
                               "    topology: ring_1d\n"
                               "    mapper: all_pes\n"
                               "  ring_of_shards:\n"
                               "    module: kernbench.ccl.algorithms.ring_allreduce\n"
                               "    topology: ring_1d\n"
                               "    mapper: all_pes\n"
                               "    reduce_shards: true\n";

static void entries_have_what_their_modules_need(void **state)
{
    (void)state;
    static const struct {
        const char *entry, *module, *mapper, *validator;
        bool reduce_shards;
    } rows[] = {
        {"intercube_allreduce", "intercube", "cube_leaders", "shard_per_cube", true},
        {"ring_allreduce_tcm", "ring", "leader_only", "single_shard_per_rank", false},
        {"tree_allreduce", "tree", "leader_only", "single_shard_per_rank", false},
        {"hierarchical_allreduce", "hierarchical", "all_pes", "multi_pe_sip_local", true},
        {"ring_of_pes", "ring", "all_pes", "multi_pe_sip_local", false},
        {"ring_of_shards", "ring", "all_pes", "multi_pe_sip_local", true},
    };
    ccl_registry registry;
    ccl_config config;
    expect_ok(ccl_registry_init(&registry, NULL, 0));
    temporary file = file_of(original);
    expect_ok(ccl_config_load(file.path, NULL, 0, &registry, &config));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const ccl_entry *entry = ccl_config_find(&config, rows[i].entry);
        assert_non_null(entry);
        assert_string_equal(entry->algorithm->name, rows[i].module);
        assert_string_equal(entry->mapper->name, rows[i].mapper);
        assert_string_equal(entry->validator->name, rows[i].validator);
        assert_int_equal(entry->reduce_shards, rows[i].reduce_shards);
    }
    assert_null(ccl_config_find(&config, "ring_rsag")->validator); /* any layout */
    ccl_config_fini(&config);
    remove_file(&file);
}

static void dotted_names_are_modules(void **state)
{
    (void)state;
    static const struct {
        const char *dotted, *module;
    } rows[] = {
        {"kernbench.ccl.algorithms.ring", "ring"},
        {"kernbench.ccl.algorithms.ring_allreduce", "ring"},
        {"kernbench.ccl.algorithms.mesh_allreduce", "mesh"},
        {"kernbench.ccl.algorithms.tree_allreduce", "tree"},
        {"kernbench.ccl.algorithms.hierarchical", "hierarchical"},
        {"kernbench.ccl.algorithms.intercube_allreduce", "intercube"},
        {"kernbench.ccl.algorithms.hello_send", "hello_send"},
        {"kernbench.ccl.algorithms.", NULL},
        {"kernbench.ccl.algorithms._allreduce", NULL},
        {"kernbench.ccl.algorithms.rin", NULL},
        {"kernbench.ccl.algorithms.ring_", NULL},
        {"my.package.ring_allreduce", NULL},
        {"ring_allreduce", NULL},
    };
    ccl_registry registry;
    expect_ok(ccl_registry_init(&registry, NULL, 0));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const kb_ccl_algorithm *found = ccl_find_algorithm(&registry, rows[i].dotted);
        if (rows[i].module)
            assert_string_equal(found->name, rows[i].module);
        else
            assert_null(found);
    }
}

/* ---- Calls without options ------------------------------------------------------------------ */

static void the_configured_entry_serves_what_fits_it(void **state)
{
    (void)state;
    expect_result(original, SHARD_PER_CUBE, NULL, CUBES_OF_SIP * RANK_SUM, "intercube_allreduce");
    expect_result(NULL, SHARD_PER_CUBE, NULL, CUBES_OF_SIP * RANK_SUM, "intercube_allreduce");
    expect_result("defaults: { algorithm: tree_mine }\n"
                  "algorithms: { tree_mine: { module: tree, topology: tree_binary } }\n",
                  ONE_SHARD, NULL, RANK_SUM, "tree_mine");
    expect_result("defaults: { algorithm: ring_rsag }\n", SHARD_PER_PE, NULL, RANK_SUM,
                  "ring_rsag");
}

/* The plain sum, whatever the file names. */
static void auto_serves_the_rest(void **state)
{
    (void)state;
    expect_result(original, ONE_SHARD, NULL, RANK_SUM, NULL);
    expect_result(original, SHARD_PER_PE, NULL, RANK_SUM, NULL);
    expect_result(original, COPY_PER_CUBE, NULL, RANK_SUM, NULL);
    expect_result(original, SHARD_PER_CUBE, "auto", RANK_SUM, NULL);
    expect_result("defaults: { algorithm: ring_of_pes }\n"
                  "algorithms:\n"
                  "  ring_of_pes: { module: ring, topology: ring_1d, mapper: all_pes }\n",
                  SHARD_PER_PE, NULL, RANK_SUM, NULL);
}

static void notes_say_which_and_why(void **state)
{
    (void)state;
    call c = {.layout = SHARD_PER_CUBE};
    note_log n;
    expect_ok(reduce_with(original, &c, &n));
    assert_string_equal(n.text, "all_reduce(sum) of (2, 8) f16 uses 'intercube_allreduce': "
                                "defaults.algorithm names it\n");
    c.layout = ONE_SHARD;
    expect_ok(reduce_with(original, &c, &n));
    char expected[1024];
    snprintf(expected, sizeof expected,
             "all_reduce(sum) of (2, 8) f16 uses '%s': the fastest for 32 bytes that works in any "
             "layout; defaults.algorithm does not fit: 'intercube_allreduce': tensor 'x' of rank 0 "
             "has no shard on sip0.cube1.pe0, but one shard on PE 0 of every cube is needed; the "
             "policy for it: .cube = KB_ROW_WISE, .num_pes = 1\n",
             c.used[0]);
    assert_string_equal(n.text, expected);
}

/* ---- Calls that name an entry --------------------------------------------------------------- */

/* PEs are added up only where the entry says so: never a sum that is silently another one. */
static void another_meaning_is_refused_by_the_call(void **state)
{
    (void)state;
    call c = {.layout = SHARD_PER_PE, .algorithm = "ring_of_pes"};
    note_log n;
    expect_error(
        reduce_with(original, &c, &n), KB_ERR_INPUT,
        "3 of 3 workers failed: ranks 0-2: 'ring_of_pes' combines PEs, not ranks: its mapper "
        "all_pes takes several PEs of a rank. Say reduce_shards: true if the shards of a SIP are "
        "to be combined too, rank: pe if PEs are the ranks, or take the mapper leader_only");
    expect_result(original, SHARD_PER_PE, "ring_of_shards", CUBES_OF_SIP * PES_OF_CUBE * RANK_SUM,
                  "ring_of_shards");
    expect_result(original, SHARD_PER_PE, "hierarchical_allreduce",
                  CUBES_OF_SIP * PES_OF_CUBE * RANK_SUM, "hierarchical_allreduce");
}

/* A tree on a ring would send nothing and be the fastest: it is refused, and auto leaves it out. */
static void topologies_have_to_fit_their_modules(void **state)
{
    (void)state;
    static const char file[] = "defaults: { algorithm: auto }\n"
                               "algorithms:\n"
                               "  mine: { module: tree, topology: ring_1d, mapper: lanes }\n"
                               "  torus: { module: ring, topology: torus_2d }\n";
    expect_result(file, SHARD_PER_PE, "auto", RANK_SUM, NULL);
    call c = {.layout = ONE_SHARD, .algorithm = "torus"};
    note_log n;
    expect_error(reduce_with(file, &c, &n), KB_ERR_INPUT,
                 "3 of 3 workers failed: ranks 0-2: algorithm 'torus': module ring needs topology "
                 "ring_1d or ring_1d_unidir, not torus_2d");
    c.algorithm = NULL;
    expect_error(reduce_with("defaults: { algorithm: t }\n"
                             "algorithms: { t: { module: tree, topology: ring_1d } }\n",
                             &c, &n),
                 KB_ERR_INPUT,
                 "3 of 3 workers failed: ranks 0-2: kb_distributed_init_process_group: algorithm "
                 "'t': module tree needs topology tree_binary, not ring_1d");
    expect_result("defaults: { algorithm: hello_send }\n", ONE_SHARD, NULL, RANK_SUM, NULL);
}

/* With two elements over 2 cubes of 4 PEs, each cube has one, on its PE 0: not the cube layout. */
static kb_error *reduce_two(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    static const kb_policy policy = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    kb_tensor_spec spec = {
        .dtype = KB_F16, .shape = KB_SHAPE(2), .policy = &policy, .access = KB_UNTIMED};
    kb_tensor x;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    KB_TRY(kb_full(ctx, &spec, rank + 1.0, &x));
    KB_TRY(kb_distributed_all_reduce(ctx, x, KB_SUM, NULL));
    assert_true(first_of(ctx, x) == RANK_SUM);
    return kb_distributed_destroy_process_group(ctx);
}

static void small_tensors_mean_what_large_ones_do(void **state)
{
    (void)state;
    static const char *const settings[] = {"system.sips.count=3", "sip.cube_mesh.w=2",
                                           "sip.cube_mesh.h=1"};
    kb_context *ctx;
    expect_ok(kb_context_create(
        &(kb_context_options){.threads = 1, .settings = settings, .setting_count = 3}, &ctx));
    expect_ok(kb_spawn(ctx, reduce_two, NULL, WORLD));
    kb_context_destroy(ctx);
}

static void a_file_can_redefine_a_shipped_name(void **state)
{
    (void)state;
    static const char file[] =
        "defaults: { algorithm: intercube_allreduce }\n"
        "algorithms: { intercube_allreduce: { module: ring, topology: ring_1d } }\n";
    expect_result(file, ONE_SHARD, NULL, RANK_SUM, "intercube_allreduce");
    expect_result(file, ONE_SHARD, "intercube_allreduce", RANK_SUM, "intercube_allreduce");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_have_what_their_modules_need),
        cmocka_unit_test(dotted_names_are_modules),
        cmocka_unit_test(the_configured_entry_serves_what_fits_it),
        cmocka_unit_test(auto_serves_the_rest),
        cmocka_unit_test(notes_say_which_and_why),
        cmocka_unit_test(another_meaning_is_refused_by_the_call),
        cmocka_unit_test(topologies_have_to_fit_their_modules),
        cmocka_unit_test(small_tensors_mean_what_large_ones_do),
        cmocka_unit_test(a_file_can_redefine_a_shipped_name),
    };
    return cmocka_run_group_tests_name("select", tests, NULL, NULL);
}
