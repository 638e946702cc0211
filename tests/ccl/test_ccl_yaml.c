/*
 * test_ccl_yaml.c: ccl.yaml: built-in entries, inheritance, settings, names of plugins, and every
 * mistake with its message and place.
 */
#include "plans.h"
#include "support/temporary.h"

/* ---- A plugin ---------------------------------------------------------------------------- */

KB_KERNEL(do_nothing, int64_t number)
{
    (void)number;
}

static kb_error *no_arguments(const kb_ccl_call *call, const kb_ccl_target *target,
                              kb_ccl_arguments *args)
{
    (void)call;
    (void)target;
    (void)args;
    return NULL;
}

static kb_error *map_first(const kb_ccl_scope *scope, kb_ccl_participants *participants)
{
    return kb_ccl_add_participant(participants, 0, 0, scope->ranks[0]);
}

static kb_error *connect_none(const kb_ccl_scope *scope, const kb_ccl_participants *participants,
                              kb_ccl_graph *graph)
{
    (void)scope;
    (void)participants;
    (void)graph;
    return NULL;
}

static kb_error *accept_all(const kb_ccl_scope *scope, const kb_ccl_layout *layouts, size_t count)
{
    (void)scope;
    (void)layouts;
    (void)count;
    return NULL;
}

static const kb_ccl_algorithm my_algorithm = {.name = "my_kernel",
                                              .kernel = &do_nothing,
                                              .arguments = no_arguments,
                                              .collectives = 1 << KB_BROADCAST};
static const kb_ccl_topology my_topology = {.name = "my_graph", .connect = connect_none};
static const kb_ccl_mapper my_mapper = {.name = "my_first", .map = map_first};
static const kb_ccl_validator my_validator = {.name = "my_check", .check = accept_all};
static const kb_ccl_plugin mine = {
    .algorithms = KB_CCL_LIST(&my_algorithm),
    .topologies = KB_CCL_LIST(&my_topology),
    .mappers = KB_CCL_LIST(&my_mapper),
    .validators = KB_CCL_LIST(&my_validator),
};

/* ---- Loading ----------------------------------------------------------------------------- */

/* A file with that text, the plugin above, and up to two settings. */
static kb_error *load(const char *text, const char *first, const char *second, temporary *file,
                      ccl_config *config)
{
    static const kb_ccl_plugin *const plugins[] = {&mine};
    const char *settings[] = {first, second};
    ccl_registry registry;
    expect_ok(ccl_registry_init(&registry, plugins, 1));
    *file = file_of(text ? text : "");
    kb_error *err = ccl_config_load(text ? file->path : NULL, settings,
                                    (first != NULL) + (size_t)(second != NULL), &registry, config);
    remove_file(file);
    return err;
}

static ccl_config config_of(const char *text, const char *first, const char *second)
{
    ccl_config config;
    temporary file;
    expect_ok(load(text, first, second, &file, &config));
    return config;
}

static int64_t setting_of(const ccl_entry *entry, const char *key)
{
    return kb_ccl_setting(&(kb_ccl_scope){.settings = entry}, key, -1);
}

/* ---- What ships -------------------------------------------------------------------------- */

static void test_built_in(void **state)
{
    (void)state;
    ccl_config config = config_of(NULL, NULL, NULL);
    assert_string_equal(config.path, "built-in ccl.yaml");
    assert_string_equal(config.entries.items[config.chosen].name, "intercube_allreduce");
    assert_int_equal(config.tuned.count, 0);

    const ccl_entry *entry = ccl_config_find(&config, "intercube_allreduce");
    assert_string_equal(entry->algorithm->name, "intercube");
    assert_null(entry->topology);
    assert_string_equal(entry->mapper->name, "cube_leaders");
    assert_string_equal(entry->validator->name, "shard_per_cube");
    assert_true(entry->reduce_shards);
    assert_false(entry->rank_is_pe);
    assert_int_equal(entry->world_size, 0);
    assert_int_equal(entry->buffer, KB_TCM);
    assert_false(entry->polls);
    assert_int_equal(entry->n_slots, 4);
    assert_int_equal(entry->slot_bytes, 4096);
    assert_int_equal(entry->vc_chunk_bytes, 256);
    assert_int_equal(entry->credit_bytes, 16);
    assert_int_equal(entry->reduce_op, KB_SUM);
    assert_int_equal(setting_of(entry, "n_elem"), 8);

    assert_int_equal(ccl_config_find(&config, "ring_allreduce_tcm")->buffer, KB_TCM);
    assert_int_equal(ccl_config_find(&config, "ring_allreduce_hbm")->buffer, KB_HBM);
    assert_int_equal(ccl_config_find(&config, "ring_allreduce_sram")->buffer, KB_SRAM);
    assert_string_equal(ccl_config_find(&config, "ring_allreduce_tcm")->mapper->name,
                        "leader_only");
    const ccl_entry *mesh = ccl_config_find(&config, "mesh_allreduce_4");
    assert_int_equal(mesh->world_size, 4);
    assert_true(mesh->rank_is_pe);
    assert_null(mesh->validator);
    const ccl_entry *pes = ccl_config_find(&config, "ring_rsag_pes");
    assert_int_equal(pes->world_size, 0);
    assert_true(pes->rank_is_pe);
    assert_null(ccl_config_find(&config, "ring"));
    ccl_config_fini(&config);
}

/* All entries that ship make sense on the default machine. */
static void test_built_in_plans(void **state)
{
    (void)state;
    ccl_config config = config_of(NULL, NULL, NULL);
    topo_machine *machine = default_machine();
    for (size_t i = 0; i < config.entries.count; i++) {
        ccl_plan plan;
        expect_ok(plan_all(&config.entries.items[i], machine, &plan));
        ccl_plan_fini(&plan);
    }
    topo_machine_destroy(machine);
    ccl_config_fini(&config);
}

/* ---- Inheritance ------------------------------------------------------------------------- */

static const char with_defaults[] =
    "defaults: { algorithm: short, n_slots: 9, backpressure: poll, n_elem: 3, reduce_op: max }\n"
    "algorithms:\n"
    "  short: { module: ring, topology: ring_1d }\n"
    "  long: { module: ring, topology: ring_1d_unidir, mapper: lanes, n_slots: 2, slot_size: 64,\n"
    "          backpressure: sleep, buffer_kind: sram, vc_chunk_size: 512, reduce_op: prod,\n"
    "          ipcq_credit_size_bytes: 8, n_elem: 7, chunk_size: 5, root_cube: 0, w: 2, h: 3,\n"
    "          kernel_depth: -4, reduce_shards: false, validator: multi_pe_sip_local,\n"
    "          fit_slots: true, auto_max_ranks: 9 }\n";

static void test_inheritance(void **state)
{
    (void)state;
    ccl_config config = config_of(with_defaults, NULL, NULL);
    assert_int_equal(config.chosen, 0);
    const ccl_entry *entry = ccl_config_find(&config, "short");
    assert_int_equal(entry->n_slots, 9);
    assert_true(entry->polls);
    assert_int_equal(entry->reduce_op, KB_MAX);
    assert_int_equal(setting_of(entry, "n_elem"), 3);
    assert_int_equal(setting_of(entry, "chunk_size"), -1);
    assert_int_equal(entry->slot_bytes, 4096); /* as is built in */
    assert_false(entry->fit_slots);
    assert_int_equal(entry->auto_max_ranks, 0);

    entry = ccl_config_find(&config, "long");
    assert_int_equal(entry->n_slots, 2);
    assert_int_equal(entry->slot_bytes, 64);
    assert_false(entry->polls);
    assert_int_equal(entry->buffer, KB_SRAM);
    assert_int_equal(entry->vc_chunk_bytes, 512);
    assert_int_equal(entry->credit_bytes, 8);
    assert_int_equal(entry->reduce_op, KB_PROD);
    assert_int_equal(setting_of(entry, "n_elem"), 7);
    assert_int_equal(setting_of(entry, "chunk_size"), 5);
    assert_int_equal(setting_of(entry, "root_cube"), 0);
    assert_int_equal(setting_of(entry, "w"), 2);
    assert_int_equal(setting_of(entry, "h"), 3);
    assert_int_equal(setting_of(entry, "kernel_depth"), -4);
    assert_true(entry->fit_slots);
    assert_int_equal(entry->auto_max_ranks, 9);
    assert_string_equal(entry->mapper->name, "lanes");
    assert_string_equal(entry->topology->name, "ring_1d_unidir");

    /* what ships is there too, with these defaults */
    entry = ccl_config_find(&config, "one_shot");
    assert_int_equal(entry->n_slots, 9);
    assert_int_equal(ccl_config_find(&config, "ring_rsag")->n_slots, 8);
    ccl_config_fini(&config);
}

static void test_an_entry_replaces_one_that_ships(void **state)
{
    (void)state;
    ccl_config config =
        config_of("algorithms: { trees: { module: ring, topology: pairs } }\n", NULL, NULL);
    const ccl_entry *entry = ccl_config_find(&config, "trees");
    assert_string_equal(entry->algorithm->name, "ring");
    assert_string_equal(entry->mapper->name, "leader_only");
    size_t count = 0;
    for (size_t i = 0; i < config.entries.count; i++)
        count += strcmp(config.entries.items[i].name, "trees") == 0;
    assert_int_equal(count, 1);
    assert_string_equal(config.entries.items[config.chosen].name, "intercube_allreduce");
    ccl_config_fini(&config);
}

static void test_ranks(void **state)
{
    (void)state;
    static const char text[] =
        "algorithms:\n"
        "  a: { module: ring, topology: ring_1d }\n"
        "  b: { module: ring, topology: ring_1d, world_size: 3 }\n"
        "  c: { module: ring, topology: ring_1d, world_size: 3, rank: sip }\n"
        "  d: { module: ring, topology: ring_1d, rank: pe }\n";
    ccl_config config = config_of(text, NULL, NULL);
    assert_false(ccl_config_find(&config, "a")->rank_is_pe);
    assert_true(ccl_config_find(&config, "b")->rank_is_pe);
    assert_false(ccl_config_find(&config, "c")->rank_is_pe);
    assert_int_equal(ccl_config_find(&config, "c")->world_size, 3);
    assert_true(ccl_config_find(&config, "d")->rank_is_pe);
    ccl_config_fini(&config);

    config = config_of(text, "defaults.world_size=2", NULL);
    assert_true(ccl_config_find(&config, "a")->rank_is_pe);
    assert_int_equal(ccl_config_find(&config, "a")->world_size, 2);
    ccl_config_fini(&config);

    config = config_of(text, "defaults.rank=sip", NULL);
    assert_false(ccl_config_find(&config, "b")->rank_is_pe);
    assert_true(ccl_config_find(&config, "d")->rank_is_pe);
    ccl_config_fini(&config);
}

/* ---- Settings ---------------------------------------------------------------------------- */

static void test_settings(void **state)
{
    (void)state;
    ccl_config config = config_of(NULL, "defaults.n_slots=8", "defaults.algorithm=auto");
    assert_int_equal(ccl_config_find(&config, "one_shot")->n_slots, 8);
    assert_true(config.chosen == CCL_AUTO);
    ccl_config_fini(&config);

    config = config_of(with_defaults, "defaults.n_slots=6", "algorithms.long.kernel_depth=1");
    assert_int_equal(ccl_config_find(&config, "short")->n_slots, 6);
    assert_int_equal(setting_of(ccl_config_find(&config, "long"), "kernel_depth"), 1);
    ccl_config_fini(&config);

    /* an entry that the file does not have, but which ships; one that both have is the file's */
    config = config_of("algorithms: { trees: { module: ring, topology: pairs } }\n",
                       "algorithms.one_shot.slot_size=128", "algorithms.trees.slot_size=256");
    assert_int_equal(ccl_config_find(&config, "one_shot")->slot_bytes, 128);
    assert_int_equal(ccl_config_find(&config, "trees")->slot_bytes, 256);
    assert_string_equal(ccl_config_find(&config, "trees")->algorithm->name, "ring");
    ccl_config_fini(&config);

    /* a new one */
    config = config_of(NULL, "algorithms.new.module=ring", "algorithms.new.topology=ring_1d");
    assert_non_null(ccl_config_find(&config, "new"));
    ccl_config_fini(&config);
}

/* ---- Plugins ----------------------------------------------------------------------------- */

static void test_names_of_plugins(void **state)
{
    (void)state;
    ccl_config config = config_of("algorithms: { mine: { module: my_kernel, topology: my_graph, "
                                  "mapper: my_first, validator: my_check } }\n",
                                  NULL, NULL);
    const ccl_entry *entry = ccl_config_find(&config, "mine");
    assert_ptr_equal(entry->algorithm, &my_algorithm);
    assert_ptr_equal(entry->topology, &my_topology);
    assert_ptr_equal(entry->mapper, &my_mapper);
    assert_ptr_equal(entry->validator, &my_validator);
    ccl_config_fini(&config);
}

static void expect_bad_plugin(const kb_ccl_plugin *bad, const char *message)
{
    const kb_ccl_plugin *plugins[] = {&mine, bad};
    ccl_registry registry;
    expect_error(ccl_registry_init(&registry, plugins, 2), KB_ERR_INPUT, message);
}

static void test_bad_plugins(void **state)
{
    (void)state;
    static const kb_ccl_mapper again = {.name = "lanes", .map = map_first};
    expect_bad_plugin(&(kb_ccl_plugin){.mappers = KB_CCL_LIST(&again)},
                      "plugin 2: another mapper is called 'lanes' already");
    static const kb_ccl_topology other = {.name = "my_graph", .connect = connect_none};
    expect_bad_plugin(&(kb_ccl_plugin){.topologies = KB_CCL_LIST(&other)},
                      "plugin 2: another topology is called 'my_graph' already");
    static const kb_ccl_validator a = {.name = "a", .check = accept_all}, nameless = {0};
    expect_bad_plugin(&(kb_ccl_plugin){.validators = KB_CCL_LIST(&a, &nameless)},
                      "plugin 2: its validator 2 has no name");
    static const kb_ccl_topology none = {.name = "none", .connect = connect_none};
    expect_bad_plugin(&(kb_ccl_plugin){.topologies = KB_CCL_LIST(&none)},
                      "plugin 2: its topology 1 cannot be called 'none'");
    static const kb_ccl_algorithm half = {.name = "half", .kernel = &do_nothing};
    expect_bad_plugin(&(kb_ccl_plugin){.algorithms = KB_CCL_LIST(&half)},
                      "plugin 2: algorithm 'half' lacks a kernel, or arguments");
    static const kb_ccl_mapper empty = {.name = "empty"};
    expect_bad_plugin(&(kb_ccl_plugin){.mappers = KB_CCL_LIST(&empty)},
                      "plugin 2: mapper 'empty' lacks its function");
    /* the same twice is one */
    static const kb_ccl_plugin *const twice[] = {&mine, &mine};
    ccl_registry registry;
    expect_ok(ccl_registry_init(&registry, twice, 2));
}

/* ---- The measured table ------------------------------------------------------------------- */

static void test_tuned(void **state)
{
    (void)state;
    ccl_config config = config_of(
        "tuned:\n"
        "- { collective: all_reduce, world: 4, machine: '00000000deadbeef', up_to_bytes: 1024, "
        "algorithm: one_shot }\n"
        "- { collective: all_reduce, world: 4, machine: '00000000deadbeef', up_to_bytes: 2048, "
        "algorithm: ring_rsag }\n",
        NULL, NULL);
    assert_int_equal(config.tuned.count, 2);
    const ccl_tuned *line = &config.tuned.items[1];
    assert_int_equal(line->kind, KB_ALL_REDUCE);
    assert_int_equal(line->world, 4);
    assert_int_equal(line->machine, 0xdeadbeef);
    assert_int_equal(line->up_to_bytes, 2048);
    assert_string_equal(config.entries.items[line->entry].name, "ring_rsag");
    ccl_config_fini(&config);
}

/* ---- Mistakes ---------------------------------------------------------------------------- */

typedef struct wrong {
    const char *text;
    const char *setting; /* one, or NULL */
    const char *message; /* behind the file's name, if it is in the file */
} wrong;

#define RING "module: ring, topology: ring_1d"
#define LINE "- { collective: all_reduce, world: 2, machine: '0123456789abcdef', up_to_bytes: 9, "

static const wrong cases[] = {
    /* Keys. */
    {"defalts: {}\n", NULL,
     ":1:1: unknown key 'defalts': expected defaults, algorithms or tuned; did you mean 'defaults'?"},
    {"defaults: { n_slot: 3 }\n", NULL,
     ":1:13: unknown key 'defaults.n_slot'; did you mean 'defaults.n_slots'?"},
    {"defaults: { root_cube: 3 }\n", NULL, ":1:13: unknown key 'defaults.root_cube'"},
    {"algorithms: { a: { " RING ", mappper: lanes } }\n", NULL,
     ":1:53: unknown key 'algorithms.a.mappper'; did you mean 'algorithms.a.mapper'?"},
    {"algorithms: { a: { " RING ", kernal_x: 3 } }\n", NULL,
     ":1:53: unknown key 'algorithms.a.kernal_x'"},
    {NULL, "defaults.nslots=3",
     "--set ccl.defaults.nslots: unknown key 'defaults.nslots'; did you mean 'defaults.n_slots'?"},
    {NULL, "n_slots=3",
     "--set ccl.n_slots: unknown key 'n_slots': expected defaults, algorithms or tuned"},
    {"algorithms: { a: {topology: ring_1d} }\n", NULL, ":1:18: missing key 'algorithms.a.module'"},
    {"algorithms: { a: {module: ring} }\n", NULL, ":1:18: missing key 'algorithms.a.topology'"},
    {"algorithms: { a: ring }\n", NULL, ":1:18: algorithms.a: expected a mapping, found 'ring'"},
    {"algorithms:\n- a\n", NULL, ":2:1: algorithms: expected a mapping, found a sequence"},
    {"algorithms: { auto: { " RING " } }\n", NULL,
     ":1:21: algorithms.auto: 'auto' is reserved: expected another name"},
    /* Values. */
    {"defaults: { n_slots: 0 }\n", NULL,
     ":1:22: defaults.n_slots: expected an integer from 1 to 65536, found '0'"},
    {NULL, "defaults.n_slots=65537",
     "--set ccl.defaults.n_slots: expected an integer from 1 to 65536, found '65537'"},
    {NULL, "defaults.slot_size=15",
     "--set ccl.defaults.slot_size: expected an integer from 16 to 67108864, found '15'"},
    {NULL, "defaults.slot_size=67108865",
     "--set ccl.defaults.slot_size: expected an integer from 16 to 67108864, found '67108865'"},
    {NULL, "defaults.vc_chunk_size=0",
     "--set ccl.defaults.vc_chunk_size: expected an integer from 1 to 67108864, found '0'"},
    {NULL, "defaults.ipcq_credit_size_bytes=4097",
     "--set ccl.defaults.ipcq_credit_size_bytes: expected an integer from 1 to 4096, found '4097'"},
    {NULL, "defaults.buffer_kind=tmc",
     "--set ccl.defaults.buffer_kind: expected tcm, hbm or sram, found 'tmc'; did you mean 'tcm'?"},
    {NULL, "defaults.backpressure=wait",
     "--set ccl.defaults.backpressure: expected sleep or poll, found 'wait'"},
    {NULL, "defaults.world_size=0",
     "--set ccl.defaults.world_size: expected an integer from 1 to 2147483647, found '0'"},
    {NULL, "defaults.rank=cube", "--set ccl.defaults.rank: expected sip or pe, found 'cube'"},
    {NULL, "defaults.reduce_op=mean",
     "--set ccl.defaults.reduce_op: expected sum, max, min, prod or avg, found 'mean'"},
    {NULL, "defaults.n_elem=0",
     "--set ccl.defaults.n_elem: expected an integer from 1 to 1099511627776, found '0'"},
    {NULL, "defaults.chunk_size=x",
     "--set ccl.defaults.chunk_size: expected an integer from 1 to 1099511627776, found 'x'"},
    {"algorithms: { a: { " RING ", w: 2 } }\n", NULL,
     ":1:56: algorithms.a.w: missing h: w and h must be given together"},
    {"algorithms: { a: { " RING ", h: 2 } }\n", NULL,
     ":1:56: algorithms.a.h: missing w: w and h must be given together"},
    {"algorithms: { a: { " RING ", root_cube: -1 } }\n", NULL,
     ":1:64: algorithms.a.root_cube: expected an integer from 0 to 2147483647, found '-1'"},
    {"algorithms: { a: { " RING ", kernel_x: 1.5 } }\n", NULL,
     ":1:63: algorithms.a.kernel_x: expected an integer, found '1.5'"},
    {"algorithms: { a: { " RING ", fit_slots: 1 } }\n", NULL,
     ":1:64: algorithms.a.fit_slots: expected true or false, found '1'"},
    {"algorithms: { a: { " RING ", auto_max_ranks: 0 } }\n", NULL,
     ":1:69: algorithms.a.auto_max_ranks: expected an integer from 1 to 2147483647, found '0'"},
    {"algorithms: { a: { " RING ", reduce_shards: maybe } }\n", NULL,
     ":1:68: algorithms.a.reduce_shards: expected true or false, found 'maybe'"},
    {"algorithms: { a: { module: intercube, topology: none, reduce_shards: false } }\n", NULL,
     ":1:70: algorithms.a.reduce_shards: module 'intercube' reduces the shards within each "
     "SIP: expected true"},
    /* Names. */
    {"algorithms: { a: { " RING ", mapper: leaders_only } }\n", NULL,
     ":1:61: algorithms.a.mapper: unknown mapper 'leaders_only': expected leader_only, "
     "all_pes, cube_leaders, lanes, pe_ring or my_first; did you mean 'leader_only'?"},
    {"algorithms: { a: { " RING ", validator: x } }\n", NULL,
     ":1:64: algorithms.a.validator: unknown validator 'x': expected single_shard_per_rank, "
     "shard_per_cube, multi_pe_sip_local or my_check"},
    {"algorithms: { a: { module: ring, topology: ring_2d } }\n", NULL,
     ":1:44: algorithms.a.topology: unknown topology 'ring_2d': expected "
     "ring_1d, ring_1d_unidir, mesh_2d, torus_2d, mesh_2d_no_wrap, tree_binary, "
     "hierarchical_3level, pairs, sip_links, my_graph or none; did you mean 'ring_1d'?"},
    {"algorithms: { a: { module: ring, topology: none } }\n", NULL,
     ":1:44: algorithms.a.topology: module 'ring' needs a topology, found none"},
    {"algorithms: { a: { module: trees, topology: ring_1d } }\n", NULL,
     ":1:45: algorithms.a.topology: module 'trees' defines its own topology: expected none"},
    /* The table. */
    {"tuned: {}\n", NULL, ":1:8: tuned: expected a sequence, found a mapping"},
    {"tuned:\n" LINE "algorithm: trees, speed: 1 }\n", NULL,
     ":2:102: unknown key 'tuned.0.speed': expected algorithm, collective, world, up_to_bytes or "
     "machine"},
    {"tuned:\n- { collective: all_reduce, world: 2, up_to_bytes: 9, algorithm: trees }\n", NULL,
     ":2:3: missing key 'tuned.0.machine'"},
    {"tuned:\n- { collective: all_reduce, world: 2, machine: '123', up_to_bytes: 9, "
     "algorithm: trees }\n",
     NULL,
     ":2:48: tuned.0.machine: expected the hash of a machine, 16 digits of 0-9 and a-f, found "
     "'123'"},
    {"tuned:\n" LINE "algorithm: trees }\n" LINE "algorithm: one_shot }\n", NULL,
     ":3:3: tuned.1: duplicate entry: same machine, collective, world and size as entry 1"},
    {"tuned:\n" LINE "algorithm: ring_broadcast }\n", NULL,
     ":2:95: tuned.0.algorithm: 'ring_broadcast' does not implement all_reduce"},
};

static void expect_wrong(const wrong *w)
{
    ccl_config config;
    temporary file;
    char message[600];
    kb_error *err = load(w->text, w->setting, NULL, &file, &config);
    snprintf(message, sizeof message, "%s%s", w->message[0] == ':' ? file.path : "", w->message);
    expect_error(err, KB_ERR_INPUT, message);
    assert_int_equal(config.entries.count, 0);
}

static void test_mistakes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect_wrong(&cases[i]);
}

/* The whole list of algorithms is in these; what matters is how they begin. */
static void expect_begins(const char *text, const char *setting, const char *begin)
{
    ccl_config config;
    temporary file;
    char message[600];
    kb_error *err = load(text, setting, NULL, &file, &config);
    snprintf(message, sizeof message, "%s%s", begin[0] == ':' ? file.path : "", begin);
    if (strncmp(kb_error_message(err), message, strlen(message)) != 0)
        fail_msg("expected '%s...', found '%s'", message, kb_error_message(err));
    assert_int_equal(kb_error_code(err), KB_ERR_INPUT);
    kb_error_free(err);
}

static void test_unknown_algorithms(void **state)
{
    (void)state;
    expect_begins("algorithms: { a: { module: rinf, topology: ring_1d } }\n", NULL,
                  ":1:28: algorithms.a.module: unknown module 'rinf': expected hello_send, ");
    expect_begins("defaults: { algorithm: mesh }\n", NULL,
                  ":1:24: defaults.algorithm: unknown algorithm 'mesh'; did you mean "
                  "'mesh_allreduce_4'?");
    expect_begins("defaults: { algorithm: short }\nalgorithms: { shorts: { " RING " } }\n", NULL,
                  ":1:24: defaults.algorithm: unknown algorithm 'short'; did you mean "
                  "'shorts'?");
    expect_begins(NULL, "defaults.algorithm=one_shoot",
                  "--set ccl.defaults.algorithm: unknown algorithm 'one_shoot'; did you mean "
                  "'one_shot'?");
    expect_begins("tuned:\n" LINE "algorithm: auto }\n", NULL,
                  ":2:95: tuned.0.algorithm: unknown algorithm 'auto'; see kernbench list");
    expect_begins("tuned:\n" LINE "algorithm: a }\n", "tuned.0.collective=all_reduse",
                  ":2:95: tuned.0.algorithm: unknown algorithm 'a'; see kernbench list");
}

static void test_all_at_once(void **state)
{
    (void)state;
    ccl_config config;
    temporary file;
    kb_error *err =
        load("defaults: { n_slots: 0 }\n"
             "algorithms:\n"
             "  a: { module: ring, topologie: ring_1d }\n"
             "  b: { " RING ", w: 0, h: 1 }\n",
             "algorithms.one_shot.n_slots=-1", "algorithms.c.n_slots=2", &file, &config);
    char message[200];
    snprintf(message, sizeof message,
             "%s:1:22: defaults.n_slots: expected an integer from 1 to 65536, found '0' (and 5 "
             "more problems)",
             file.path);
    assert_string_equal(kb_error_message(err), message);
    static const char *const lines[] = {
        ":1:22: defaults.n_slots: expected",
        ":3:6: missing key 'algorithms.a.topology'",
        ":3:22: unknown key 'algorithms.a.topologie'; did you mean 'algorithms.a.topology'?",
        ":4:44: algorithms.b.w: expected an integer from 1 to 65536, found '0'",
        "--set ccl.algorithms.c.n_slots: missing key 'algorithms.c.module'",
        "--set ccl.algorithms.c.n_slots: missing key 'algorithms.c.topology'",
        "--set ccl.algorithms.one_shot.n_slots: expected an integer from 1 to 65536, found '-1'",
    };
    const char *at = kb_error_detail(err);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        at = strstr(at, lines[i]);
        if (!at)
            fail_msg("'%s' is not in order in: %s", lines[i], kb_error_detail(err));
    }
    kb_error_free(err);
}

static void test_files_that_cannot_be_read(void **state)
{
    (void)state;
    ccl_registry registry = shipped();
    ccl_config config;
    kb_error *err = ccl_config_load("/nowhere/ccl.yaml", NULL, 0, &registry, &config);
    assert_int_equal(kb_error_code(err), KB_ERR_INPUT);
    assert_non_null(strstr(kb_error_message(err), "/nowhere/ccl.yaml"));
    kb_error_free(err);
    expect_begins("algorithms: { a: { " RING " }, a: { " RING " } }\n", NULL, ":1:");
    expect_begins("- a\n", NULL, ":1:1: ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_built_in),
        cmocka_unit_test(test_built_in_plans),
        cmocka_unit_test(test_inheritance),
        cmocka_unit_test(test_an_entry_replaces_one_that_ships),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_settings),
        cmocka_unit_test(test_names_of_plugins),
        cmocka_unit_test(test_bad_plugins),
        cmocka_unit_test(test_tuned),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_unknown_algorithms),
        cmocka_unit_test(test_all_at_once),
        cmocka_unit_test(test_files_that_cannot_be_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
