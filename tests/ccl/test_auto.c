/* test_auto.c: `auto` selects the fastest equivalent entry, by measurement or by a table. */
#include "trial.h"

#include "ccl/ccl.h"
#include "rt/rt.h"

enum { WORLD = 3 };

typedef struct config {
    ccl_registry registry;
    ccl_config is;
} config;

static config *load_config(void)
{
    config *c = calloc(1, sizeof *c);
    assert_non_null(c);
    expect_ok(ccl_registry_init(&c->registry, NULL, 0));
    expect_ok(ccl_config_load(NULL, NULL, 0, &c->registry, &c->is));
    return c;
}

static void free_config(config *c)
{
    ccl_config_fini(&c->is);
    free(c);
}

/* The time of a call with tensors of these shapes on the first devices, and by which entry it was
 * done. */
static kb_time time_with(kb_context *ctx, const char *algorithm, const kb_policy *policy,
                         const kb_shape *shapes, uint32_t devices, const char **entry)
{
    kb_tensor tensors[WORLD];
    for (uint32_t sip = 0; sip < devices; sip++) {
        expect_ok(kb_ahbm_set_device(ctx, sip));
        kb_tensor_spec spec = {
            .dtype = KB_F16, .shape = shapes[sip], .policy = policy, .access = KB_UNTIMED};
        expect_ok(kb_empty(ctx, &spec, &tensors[sip]));
    }
    kb_collective call = {.kind = KB_ALL_REDUCE,
                          .inputs = tensors,
                          .count = devices,
                          .options = {.algorithm = algorithm}};
    expect_ok(kb_distributed_call(ctx, &call)); /* has the queues installed */
    kb_time before = kb_context_now(ctx);
    expect_ok(kb_distributed_call(ctx, &call));
    kb_time took = kb_context_now(ctx) - before;
    kb_collective_stats stats;
    expect_ok(kb_distributed_get_stats(ctx, (kb_group){0}, &stats));
    *entry = stats.algorithm;
    for (uint32_t sip = 0; sip < devices; sip++)
        expect_ok(kb_tensor_free(ctx, tensors[sip]));
    return took;
}

/* Of all ranks, where these are devices. */
static kb_time time_of(kb_context *ctx, const char *algorithm, uint64_t bytes, const char **entry)
{
    kb_policy policy = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    kb_shape shapes[WORLD];
    for (uint32_t sip = 0; sip < WORLD; sip++)
        shapes[sip] = KB_SHAPE(bytes / 2);
    return time_with(ctx, algorithm, &policy, shapes, WORLD, entry);
}

/* At every size it is as fast as the fastest of them. */
static void auto_is_the_best_of_them(void **state)
{
    (void)state;
    static const char *const names[] = {"ring_rsag", "trees", "streams", "one_shot"};
    kb_context *ctx =
        open_sips(WORLD, 2, 1, NULL, (kb_context_options){.timing_only = true, .threads = 1});
    expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
    const char *small = NULL, *large = NULL;
    for (uint64_t bytes = 512; bytes <= 1 << 19; bytes *= 32) {
        const char *chosen, *entry;
        kb_time best = KB_FOREVER;
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
            kb_time took = time_of(ctx, names[i], bytes, &entry);
            assert_string_equal(entry, names[i]);
            best = took < best ? took : best;
        }
        assert_int_equal(time_of(ctx, "auto", bytes, &chosen), best);
        small = small ? small : chosen;
        large = chosen;
    }
    assert_string_not_equal(small, large); /* what is good for one is not for the other */
    kb_context_destroy(ctx);
}

/* The 7 PEs of tree_allreduce_7, 4 of one SIP and 3 of another, each with this many bytes. */
static kb_time time_of_pes(kb_context *ctx, const char *algorithm, uint64_t bytes,
                           const char **entry)
{
    kb_policy policy = {.tiling = KB_TILED_COLUMN_MAJOR, .tile_rows = 1, .tile_columns = bytes / 2};
    kb_shape shapes[] = {KB_SHAPE(1, 4 * bytes / 2), KB_SHAPE(1, 3 * bytes / 2)};
    return time_with(ctx, algorithm, &policy, shapes, 2, entry);
}

/* A tree is three levels high, a ring of seven has twelve steps; but it sends everything at each of
 * its levels, and the ring a seventh. */
static void auto_is_the_best_where_ranks_are_pes(void **state)
{
    (void)state;
    static const char *const settings[] = {"ccl.defaults.algorithm=tree_allreduce_7", NULL};
    static const char *const names[] = {"tree_allreduce_7", "ring_rsag_pes"};
    static const struct {
        uint64_t bytes;
        const char *best;
    } sizes[] = {{64, "tree_allreduce_7"}, {1 << 18, "ring_rsag_pes"}};
    kb_context *ctx =
        open_sips(2, 1, 1, settings, (kb_context_options){.timing_only = true, .threads = 1});
    expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        kb_time best = KB_FOREVER;
        const char *entry;
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
            kb_time took = time_of_pes(ctx, names[k], sizes[i].bytes, &entry);
            assert_string_equal(entry, names[k]);
            best = took < best ? took : best;
        }
        assert_int_equal(time_of_pes(ctx, "auto", sizes[i].bytes, &entry), best);
        assert_string_equal(entry, sizes[i].best);
    }
    kb_context_destroy(ctx);
}

static void measurements_are_in_order_and_repeatable(void **state)
{
    (void)state;
    config *c = load_config();
    kb_context *ctx = open_sips(WORLD, 1, 1, NULL, (kb_context_options){.threads = 1});
    ccl_question question = {.kind = KB_ALL_REDUCE, .bytes = 4096, .dtype = KB_F16};
    ccl_measurements first = {0}, second = {0};
    expect_ok(ccl_measure(ctx, &c->is, &question, &first));
    expect_ok(ccl_measure(ctx, &c->is, &question, &second));
    assert_int_equal(kb_context_now(ctx), 0); /* no time of this one passes */
    assert_int_equal(first.count, 4);
    assert_int_equal(second.count, 4);
    for (size_t i = 0; i < first.count; i++) {
        assert_int_equal(first.items[i].entry, second.items[i].entry);
        assert_int_equal(first.items[i].time, second.items[i].time);
        assert_true(i == 0 || first.items[i - 1].time <= first.items[i].time);
    }
    question.best_only = true;
    expect_ok(ccl_measure(ctx, &c->is, &question, &second));
    assert_true(second.count >= 1 && second.count <= 4);
    assert_int_equal(first.items[0].entry, second.items[0].entry);
    assert_int_equal(first.items[0].time, second.items[0].time);
    question.best_only = false;
    uint32_t pair[] = {2, 0};
    question.ranks = pair;
    question.rank_count = 2;
    expect_ok(ccl_measure(ctx, &c->is, &question, &second));
    assert_int_equal(second.count, 4);
    assert_true(second.items[0].time < first.items[0].time);
    kb_vec_fini(&first);
    kb_vec_fini(&second);
    kb_context_destroy(ctx);
    free_config(c);
}

/* What a table says is taken, whether it is good or not; but only for this machine and these sizes.
 */
static void a_table_decides(void **state)
{
    (void)state;
    kb_context *ctx = open_sips(WORLD, 1, 1, NULL, (kb_context_options){.threads = 1});
    uint64_t machine = topo_machine_hash(rt_machine(ctx));
    kb_context_destroy(ctx);
    char text[1024];
    snprintf(text, sizeof text,
             "tuned:\n"
             "  - {collective: all_reduce, world: 3, machine: \"%016jx\", up_to_bytes: 1000, "
             "algorithm: trees}\n"
             "  - {collective: all_reduce, world: 3, machine: \"%016jx\", up_to_bytes: 2000, "
             "algorithm: ring_rsag}\n"
             "  - {collective: all_reduce, world: 3, machine: \"%016jx\", up_to_bytes: 9000000, "
             "algorithm: trees}\n",
             (uintmax_t)machine, (uintmax_t)machine, (uintmax_t)machine + 1);
    temporary file = file_of(text);
    ctx = open_sips(WORLD, 1, 1, NULL, (kb_context_options){.ccl = file.path, .threads = 1});
    expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
    const char *entry;
    (void)time_of(ctx, "auto", 1000, &entry);
    assert_string_equal(entry, "trees");
    (void)time_of(ctx, NULL, 1002, &entry);
    assert_string_equal(entry, "ring_rsag");
    (void)time_of(ctx, NULL, 2048, &entry);
    assert_string_equal(entry, "one_shot"); /* measured */
    kb_context_destroy(ctx);
    remove_file(&file);
}

static void without_candidates_it_is_refused(void **state)
{
    (void)state;
    static const char *const pes[] = {"ccl.defaults.algorithm=ring_rsag_pes", NULL};
    kb_context *ctx = open_sips(1, 1, 1, pes, (kb_context_options){.threads = 1});
    expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
    kb_tensor_spec spec = {.dtype = KB_F16, .shape = KB_SHAPE(8), .access = KB_UNTIMED};
    kb_tensor x;
    expect_ok(kb_empty(ctx, &spec, &x));
    expect_error_about(kb_distributed_broadcast(ctx, x, 0, NULL), KB_ERR_INPUT,
                       "can do broadcast in any layout");
    kb_context_destroy(ctx);
}

/* What `defaults` says of ranks and operations goes for auto as for any entry. */
static void auto_has_what_defaults_say(void **state)
{
    (void)state;
    static const char *const settings[] = {
        "ccl.defaults.algorithm=auto", "ccl.defaults.world_size=3", "ccl.defaults.reduce_op=max",
        "ccl.defaults.n_elem=5", NULL};
    kb_context *ctx = open_sips(1, 1, 1, settings, (kb_context_options){.threads = 1});
    kb_ccl_info info;
    expect_ok(kb_ccl_get_info(ctx, &info));
    assert_string_equal(info.algorithm, "auto");
    assert_true(info.rank_is_pe);
    assert_int_equal(info.world, 3);
    assert_int_equal(info.op, KB_MAX);
    assert_int_equal(info.n_elem, 5);
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auto_is_the_best_of_them),
        cmocka_unit_test(auto_is_the_best_where_ranks_are_pes),
        cmocka_unit_test(measurements_are_in_order_and_repeatable),
        cmocka_unit_test(a_table_decides),
        cmocka_unit_test(without_candidates_it_is_refused),
        cmocka_unit_test(auto_has_what_defaults_say),
    };
    return cmocka_run_group_tests_name("auto", tests, NULL, NULL);
}
