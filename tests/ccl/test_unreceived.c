/*
 * test_unreceived.c: messages that are left in queues when a collective is over. They are a mistake
 * of its kernel, which the call returns as an error, except for messages to a rank that has not
 * called yet.
 */
#include "trial.h"

#include <kernbench/ccl.h>

enum { WORLD = 3, SMALL = 64, LARGE = 128 }; /* elements: 16 and 32 a PE, as a cube has four */

enum { ONE_TOO_MANY, ONE_WAY };

/* One too many: place 1 sends a small value twice. One way: place 0 sends to place 1, and is done
 * before that has begun. */
KB_KERNEL(mine, tl_ptr at, int64_t count, int way, int place)
{
    tl_dims shape = tl_shape(count);
    if (way == ONE_TOO_MANY || place == 0)
        tl_send("E", tl_load(at, shape, TL_F16));
    if (way == ONE_TOO_MANY && place == 1 && count == SMALL / 4)
        tl_send("E", tl_load(at, shape, TL_F16));
    if (way == ONE_TOO_MANY || place == 1)
        tl_store(at, tl_recv("W", shape, TL_F16));
}

static kb_error *arguments(const kb_ccl_call *call, const kb_ccl_target *target,
                           kb_ccl_arguments *args)
{
    kb_ccl_add_address(args, target->output);
    kb_ccl_add_integer(args, (int64_t)target->elements);
    kb_ccl_add_integer(args, kb_ccl_setting(call->scope, "kernel_way", ONE_TOO_MANY));
    kb_ccl_add_integer(args, target->index);
    return NULL;
}

static const kb_ccl_algorithm algorithm = {
    .name = "mine",
    .summary = "passes on to the next, and more",
    .kernel = &mine,
    .arguments = arguments,
    .collectives = 1 << KB_ALL_REDUCE,
};

static const kb_ccl_plugin plugin = {.algorithms = KB_CCL_LIST(&algorithm)};

static kb_context *open_plugin(void)
{
    static const kb_ccl_plugin *const plugins[] = {&plugin};
    temporary file =
        file_of("algorithms:\n"
                "  too_many: {module: mine, topology: ring_1d, mapper: lanes}\n"
                "  one_way: {module: mine, topology: ring_1d, mapper: lanes, kernel_way: 1}\n");
    kb_context *ctx = open_sips(
        WORLD, 1, 1, NULL,
        (kb_context_options){
            .ccl = file.path, .ccl_plugins = plugins, .ccl_plugin_count = 1, .threads = 1});
    expect_ok(kb_distributed_init_process_group(ctx, "ahbm")); /* reads the file */
    remove_file(&file);
    return ctx;
}

#define LEFT                                                                                       \
    "kernel 'mine': 4 messages were never received: sip2.cube0.pe0 has 1 in W from "               \
    "sip1.cube0.pe0, sip2.cube0.pe1 has 1 in W from sip1.cube0.pe1, sip2.cube0.pe2 has 1 in W "    \
    "from sip1.cube0.pe2, sip2.cube0.pe3 has 1 in W from sip1.cube0.pe3"

static kb_error *call_by(kb_context *ctx, kb_tensor x, const char *entry, kb_request *work)
{
    kb_collective_options options = {.algorithm = entry, .work = work};
    return kb_distributed_all_reduce(ctx, x, KB_SUM, &options);
}

/* ---- Left ---- */

static kb_error *sends_too_much(kb_context *ctx, uint32_t rank, void *arg)
{
    const uint64_t *elements = arg;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    return call_by(ctx, filled_f16(ctx, *elements, rank), "too_many", NULL);
}

static void the_last_rank_to_end_is_told(void **state)
{
    (void)state;
    uint64_t small = SMALL, large = LARGE;
    kb_context *ctx = open_plugin();
    for (int i = 0; i < 2; i++) {
        kb_error *err = kb_spawn(ctx, sends_too_much, &small, WORLD);
        assert_non_null(strstr(kb_error_message(err), "1 of 3 workers failed"));
        expect_error_about(err, KB_ERR_FAULT, ": collective 1, all_reduce: " LEFT);
        expect_ok(kb_spawn(ctx, sends_too_much, &large, WORLD));
    }
    kb_context_destroy(ctx);
}

/* The same queues are empty for the next call. */
static kb_error *goes_on(kb_context *ctx, uint32_t rank, void *arg)
{
    unsigned *told = arg;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    for (int i = 0; i < 2; i++) {
        kb_error *err = call_by(ctx, filled_f16(ctx, SMALL, 10 + rank), "too_many", NULL);
        *told += err != NULL;
        if (err)
            expect_error_about(err, KB_ERR_FAULT,
                               i == 0 ? "collective 1, all_reduce: " LEFT : LEFT);
        KB_TRY(kb_distributed_barrier(ctx, NULL));
        kb_tensor x = filled_f16(ctx, LARGE, 20 + rank);
        KB_TRY(call_by(ctx, x, "too_many", NULL));
        assert_true(first_of(ctx, x) == 20 + (rank + WORLD - 1) % WORLD);
        KB_TRY(kb_distributed_barrier(ctx, NULL));
    }
    return NULL;
}

static void queues_can_be_used_on(void **state)
{
    (void)state;
    kb_context *ctx = open_plugin();
    unsigned told = 0;
    expect_ok(kb_spawn(ctx, goes_on, &told, WORLD));
    assert_int_equal(told, 2);
    kb_context_destroy(ctx);
}

static void who_drives_all_ranks_is_told_too(void **state)
{
    (void)state;
    kb_context *ctx = open_plugin();
    kb_tensor x[2][WORLD];
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        expect_ok(kb_ahbm_set_device(ctx, rank));
        x[0][rank] = filled_f16(ctx, SMALL, rank);
        x[1][rank] = filled_f16(ctx, LARGE, 20 + rank);
    }
    for (int i = 0; i < 4; i++) {
        kb_collective call = {.kind = KB_ALL_REDUCE,
                              .inputs = x[i % 2],
                              .count = WORLD,
                              .options = {.algorithm = "too_many"}};
        kb_error *err = kb_distributed_call(ctx, &call);
        if (i % 2 == 0)
            expect_error(err, KB_ERR_FAULT, "all_reduce: " LEFT);
        else
            expect_ok(err);
    }
    assert_true(first_of(ctx, x[1][0]) == 21); /* passed on twice */
    kb_context_destroy(ctx);
}

/* ---- Not left, but early ---- */

enum { CALLS = 3 };

typedef struct lateness {
    kb_time of[WORLD];
    bool waits_each; /* for a call, before the next */
} lateness;

/* Each call has a tensor of its own, so that it is known which message went to which. */
static kb_error *comes_late(kb_context *ctx, uint32_t rank, void *arg)
{
    const lateness *late = arg;
    kb_request works[CALLS];
    kb_tensor x[CALLS];
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    for (uint32_t i = 0; i < CALLS; i++)
        x[i] = filled_f16(ctx, SMALL, 10 * i + rank);
    kb_co_sleep(kb_context_worker(ctx), late->of[rank]);
    for (uint32_t i = 0; i < CALLS; i++) {
        KB_TRY(call_by(ctx, x[i], "one_way", &works[i]));
        if (late->waits_each)
            KB_TRY(kb_request_wait(ctx, works[i], NULL));
    }
    for (uint32_t i = 0; i < CALLS; i++) {
        KB_TRY(kb_request_wait(ctx, works[i], NULL));
        KB_TRY(kb_request_free(ctx, works[i]));
        assert_true(first_of(ctx, x[i]) == 10 * i + (rank == 1 ? 0 : rank));
    }
    return NULL;
}

/* Rank 0 has sent for all calls before rank 1 or 2, or both, begin: what is there is for them. */
static void messages_for_a_late_rank_are_not_left(void **state)
{
    (void)state;
    static const kb_time late[] = {0, 700 * KB_NS, 3 * KB_US, 100 * KB_US};
    kb_context *ctx = open_plugin();
    for (int one = 0; one < 4; one++)
        for (int two = 0; two < 4; two++)
            for (int each = 0; each < 2; each++) {
                lateness l = {.of = {0, late[one], late[two]}, .waits_each = each};
                expect_ok(kb_spawn(ctx, comes_late, &l, WORLD));
            }
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_rank_to_end_is_told),
        cmocka_unit_test(queues_can_be_used_on),
        cmocka_unit_test(who_drives_all_ranks_is_told_too),
        cmocka_unit_test(messages_for_a_late_rank_are_not_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
