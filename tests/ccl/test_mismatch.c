/*
 * test_mismatch.c: invalid calls, and calls of ranks that do not match: the message names the
 * calls, no rank hangs, and the context can be used afterwards.
 *
 * Checks Q6.
 */
#include "trial.h"

enum { WORLD = 3 };

static kb_context *open_three(void)
{
    return open_sips(WORLD, 2, 1, NULL, (kb_context_options){.threads = 1});
}

static kb_tensor filled(kb_context *ctx, const char *name, kb_dtype dtype, kb_shape shape,
                        double value)
{
    static const kb_policy policy = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    kb_tensor_spec spec = {
        .name = name, .dtype = dtype, .shape = shape, .policy = &policy, .access = KB_UNTIMED};
    kb_tensor tensor;
    expect_ok(kb_full(ctx, &spec, value, &tensor));
    return tensor;
}

/* ---- A good call ---- */

static kb_error *sums_ranks(kb_context *ctx, uint32_t rank, void *arg)
{
    const bool *founded = arg;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    if (!*founded)
        KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    kb_tensor x = filled(ctx, "good", KB_F16, KB_SHAPE(40), rank + 1);
    for (int i = 0; i < 2; i++)
        KB_TRY(kb_distributed_all_reduce(ctx, x, KB_SUM, NULL));
    double value;
    KB_TRY(kb_tensor_get(ctx, x, KB_UNTIMED, &KB_INDEX(39), &value));
    assert_true(value == 6 * WORLD);
    return kb_tensor_free(ctx, x);
}

static void expect_usable(kb_context *ctx, bool founded)
{
    expect_ok(kb_spawn(ctx, sums_ranks, &founded, WORLD));
}

/* ---- Calls that differ ---- */

/* What rank 2 calls while the others call all_reduce(sum) of (8,) f16. */
typedef kb_error *deviant_fn(kb_context *ctx);

typedef struct deviation {
    deviant_fn *call;
    const char *message; /* behind "collective 2: rank 2 calls " */
    bool founded;
} deviation;

static kb_error *other_kind(kb_context *ctx)
{
    return kb_distributed_broadcast(ctx, filled(ctx, "x", KB_F16, KB_SHAPE(8), 1), 1, NULL);
}

static kb_error *other_shape(kb_context *ctx)
{
    return kb_distributed_all_reduce(ctx, filled(ctx, "x", KB_F16, KB_SHAPE(4, 2), 1), KB_SUM,
                                     NULL);
}

static kb_error *other_dtype(kb_context *ctx)
{
    return kb_distributed_all_reduce(ctx, filled(ctx, "x", KB_F32, KB_SHAPE(8), 1), KB_SUM, NULL);
}

static kb_error *other_op(kb_context *ctx)
{
    return kb_distributed_all_reduce(ctx, filled(ctx, "x", KB_F16, KB_SHAPE(8), 1), KB_MAX, NULL);
}

static kb_error *other_algorithm(kb_context *ctx)
{
    return kb_distributed_all_reduce(ctx, filled(ctx, "x", KB_F16, KB_SHAPE(8), 1), KB_SUM,
                                     &(kb_collective_options){.algorithm = "one_shot"});
}

static kb_error *a_barrier(kb_context *ctx)
{
    return kb_distributed_barrier(ctx, NULL);
}

static kb_error *deviates(kb_context *ctx, uint32_t rank, void *arg)
{
    const deviation *d = arg;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    if (!d->founded)
        KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    KB_TRY(kb_distributed_barrier(ctx, NULL));
    if (rank < 2)
        return kb_distributed_all_reduce(ctx, filled(ctx, "x", KB_F16, KB_SHAPE(8), 1), KB_SUM,
                                         NULL);
    kb_co_sleep(kb_context_worker(ctx), 50 * KB_US); /* the others' kernels wait for this rank */
    return d->call(ctx);
}

static void calls_that_differ_fail(void **state)
{
    (void)state;
    static const struct {
        deviant_fn *call;
        const char *message;
    } ways[] = {
        {other_kind, "broadcast of (8,) f16, root 1"},
        {other_shape, "all_reduce(sum) of (4, 2) f16"},
        {other_dtype, "all_reduce(sum) of (8,) f32"},
        {other_op, "all_reduce(max) of (8,) f16"},
        {other_algorithm, "all_reduce(sum) of (8,) f16, by 'one_shot'"},
        {a_barrier, "barrier"},
    };
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        for (int founded = 0; founded < 2; founded++) {
            kb_context *ctx = open_three();
            deviation d = {ways[i].call, ways[i].message, founded};
            if (founded)
                expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
            char message[200];
            snprintf(message, sizeof message,
                     "1 of 3 workers failed: rank 2: collective 2: rank 2 calls %s, but rank 0 "
                     "called all_reduce(sum) of (8,) f16",
                     d.message);
            for (int again = 0; again < 2; again++)
                expect_error(kb_spawn(ctx, deviates, &d, WORLD), KB_ERR_FAULT, message);
            expect_usable(ctx, founded);
            kb_context_destroy(ctx);
        }
    }
}

/* The others are told the same, and all go on together. */
static kb_error *survives(kb_context *ctx, uint32_t rank, void *arg)
{
    bool founded = true;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    for (int i = 0; i < 3; i++) {
        kb_tensor x = filled(ctx, "x", KB_F16, KB_SHAPE(300), 1);
        if (rank == (uint32_t)i)
            kb_co_sleep(kb_context_worker(ctx), 50 * KB_US);
        kb_error *err =
            kb_distributed_all_reduce(ctx, x, rank == (uint32_t)i ? KB_MAX : KB_SUM, NULL);
        char message[200];
        snprintf(message, sizeof message,
                 "collective %d: rank %d calls all_reduce(max) of (300,) f16, but rank %d called "
                 "all_reduce(sum) of (300,) f16",
                 3 * i + 1, i, i == 0);
        expect_error(err, KB_ERR_FAULT, message);
        KB_TRY(sums_ranks(ctx, rank, &founded));
    }
    ++*(uint32_t *)arg;
    return NULL;
}

static void ranks_can_go_on_after_a_mismatch(void **state)
{
    (void)state;
    kb_context *ctx = open_three();
    uint32_t survivors = 0;
    expect_ok(kb_spawn(ctx, survives, &survivors, WORLD));
    assert_int_equal(survivors, WORLD);
    kb_context_destroy(ctx);
}

/* Rank 0 has sent off another call already: it comes behind the one that fails, in its queues. */
static kb_error *runs_ahead(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    bool founded = true;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    kb_tensor x = filled(ctx, "x", KB_F16, KB_SHAPE(300), 1);
    kb_request works[2];
    if (rank == 2) {
        kb_co_sleep(kb_context_worker(ctx), 50 * KB_US);
        expect_error_about(kb_distributed_all_reduce(ctx, x, KB_MAX, NULL), KB_ERR_FAULT,
                           "collective 1: rank 2 calls all_reduce(max)");
        expect_error_about(kb_distributed_all_reduce(ctx, x, KB_SUM, NULL), KB_ERR_FAULT,
                           "after a failed collective: collective 1: rank 2 calls");
        return sums_ranks(ctx, rank, &founded);
    }
    for (int i = 0; i < 2; i++)
        KB_TRY(
            kb_distributed_all_reduce(ctx, x, KB_SUM, &(kb_collective_options){.work = &works[i]}));
    expect_error_about(kb_request_wait(ctx, works[0], NULL), KB_ERR_FAULT,
                       "collective 1: rank 2 calls all_reduce(max)");
    expect_error_about(kb_request_wait(ctx, works[1], NULL), KB_ERR_FAULT,
                       "after a failed collective: collective 1: rank 2 calls");
    for (int i = 0; i < 2; i++)
        KB_TRY(kb_request_free(ctx, works[i]));
    return sums_ranks(ctx, rank, &founded);
}

static void what_is_queued_behind_a_failed_call_fails_too(void **state)
{
    (void)state;
    kb_context *ctx = open_three();
    expect_ok(kb_spawn(ctx, runs_ahead, NULL, WORLD));
    kb_context_destroy(ctx);
}

/* Rank 1 differs while rank 0 waits, and rank 2 comes at the same instant. */
static kb_error *differs_in_the_middle(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    kb_tensor x = filled(ctx, "x", KB_F16, KB_SHAPE(8), 1);
    kb_co_sleep(kb_context_worker(ctx), KB_US);
    if (rank == 0)
        return kb_distributed_barrier(ctx, NULL);
    if (rank == 1)
        return kb_distributed_all_reduce(ctx, x, KB_SUM, NULL);
    return kb_distributed_barrier(ctx, NULL);
}

static void those_who_are_told_of_a_mismatch_are_not_to_blame(void **state)
{
    (void)state;
    kb_context *ctx = open_three();
    expect_error(kb_spawn(ctx, differs_in_the_middle, NULL, WORLD), KB_ERR_FAULT,
                 "1 of 3 workers failed: rank 1: collective 1: rank 1 calls all_reduce(sum) of "
                 "(8,) f16, but rank 0 called barrier");
    expect_usable(ctx, false);
    kb_context_destroy(ctx);
}

/* ---- Those who do not come ---- */

static kb_error *one_stays_away(kb_context *ctx, uint32_t rank, void *arg)
{
    const bool *late = arg;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    KB_TRY(kb_distributed_barrier(ctx, NULL));
    if (rank == 1 && *late)
        kb_co_sleep(kb_context_worker(ctx), 50 * KB_US);
    if (rank == 1)
        return NULL;
    return kb_distributed_all_reduce(ctx, filled(ctx, "x", KB_F16, KB_SHAPE(8), 1), KB_SUM, NULL);
}

static void who_is_missing_is_said(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++) {
        kb_context *ctx = open_three();
        bool comes_late = late;
        kb_error *err = kb_spawn(ctx, one_stays_away, &comes_late, WORLD);
        expect_error(err, KB_ERR_FAULT,
                     "1 of 3 workers failed: rank 0: collective 2, all_reduce: rank 1 ended "
                     "without joining it; in it: rank 0, 2");
        expect_usable(ctx, false);
        kb_context_destroy(ctx);
    }
}

static kb_error *sends_without_receiver(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    if (rank > 0)
        return NULL;
    return kb_distributed_send(ctx, filled(ctx, "x", KB_F16, KB_SHAPE(8), 1), 2, NULL);
}

static void a_send_without_receive_is_said(void **state)
{
    (void)state;
    kb_context *ctx = open_three();
    expect_error(kb_spawn(ctx, sends_without_receiver, NULL, WORLD), KB_ERR_FAULT,
                 "1 of 3 workers failed: rank 0: send 1 from rank 0 to rank 2: rank 2 ended "
                 "without joining it; in it: rank 0");
    expect_usable(ctx, false);
    kb_context_destroy(ctx);
}

/* ---- Arguments ---- */

static kb_error *reduce_by(kb_context *ctx, const kb_tensor *tensors, size_t count,
                           const char *algorithm)
{
    kb_collective call = {.kind = KB_ALL_REDUCE,
                          .inputs = tensors,
                          .outputs = tensors,
                          .count = count,
                          .options = {.algorithm = algorithm}};
    return kb_distributed_call(ctx, &call);
}

static void fill_all(kb_context *ctx, kb_dtype dtype, kb_shape shape, kb_tensor tensors[WORLD])
{
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        char name[8];
        snprintf(name, sizeof name, "x%u", rank);
        expect_ok(kb_ahbm_set_device(ctx, rank));
        tensors[rank] = filled(ctx, name, dtype, shape, 1);
    }
}

static void tensors_have_to_be_there(void **state)
{
    (void)state;
    kb_context *ctx = open_three();
    kb_tensor x[WORLD], host, gone;
    unsigned char data[16] = {0};
    expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
    fill_all(ctx, KB_F16, KB_SHAPE(8), x);
    kb_tensor_spec spec = {.name = "w", .dtype = KB_F16, .shape = KB_SHAPE(8)};
    expect_ok(kb_from_host(ctx, &spec, data, sizeof data, &host));
    gone = filled(ctx, "gone", KB_F16, KB_SHAPE(8), 1);
    expect_ok(kb_tensor_free(ctx, gone));
    expect_error(reduce_by(ctx, (kb_tensor[]){x[0], host, x[2]}, 3, NULL), KB_ERR_FAULT,
                 "kb_distributed_call: tensor 'w' is on the host: it was never deployed to a "
                 "device");
    expect_error(reduce_by(ctx, (kb_tensor[]){x[0], gone, x[2]}, 3, NULL), KB_ERR_FAULT,
                 "kb_distributed_call: invalid or freed tensor handle");
    expect_error(reduce_by(ctx, (kb_tensor[]){x[1], x[0], x[2]}, 3, NULL), KB_ERR_FAULT,
                 "kb_distributed_call: tensor 'x1' is on sip1, but rank 0 has sip0");
    expect_error(reduce_by(ctx, (kb_tensor[]){x[0], x[1], x[1]}, 3, NULL), KB_ERR_FAULT,
                 "kb_distributed_call: a rank joined twice: tensors 'x1' and 'x1' are both on "
                 "sip1");
    expect_error(reduce_by(ctx, x, 2, NULL), KB_ERR_INPUT,
                 "kb_distributed_call: all_reduce: 2 tensors given, but the caller drives 3 "
                 "devices: expected one per device");
    expect_error(kb_distributed_all_reduce(ctx, x[0], KB_SUM, NULL), KB_ERR_INPUT,
                 "kb_distributed_all_reduce: all_reduce: 1 tensor given, but the caller drives "
                 "3 devices: expected one per device");
    expect_ok(reduce_by(ctx, x, 3, NULL));
    kb_context_destroy(ctx);
}

static void numbers_have_to_make_sense(void **state)
{
    (void)state;
    kb_context *ctx = open_three();
    kb_tensor x[WORLD], y[WORLD], small[WORLD], i32[WORLD];
    expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
    fill_all(ctx, KB_F16, KB_SHAPE(8), x);
    fill_all(ctx, KB_F16, KB_SHAPE(25), y);
    fill_all(ctx, KB_F8E4M3, KB_SHAPE(8), small);
    fill_all(ctx, KB_I32, KB_SHAPE(8), i32);
    kb_collective call = {.kind = KB_ALL_GATHER, .inputs = x, .outputs = y, .count = 3};
    expect_error(kb_distributed_call(ctx, &call), KB_ERR_FAULT,
                 "kb_distributed_call: tensor 'x0' has 25 elements, which do not divide into "
                 "blocks for 3 ranks");
    fill_all(ctx, KB_F16, KB_SHAPE(27), y);
    expect_error(kb_distributed_call(ctx, &call), KB_ERR_FAULT,
                 "kb_distributed_call: tensor 'x0' has 27 elements, but 24 are needed beside 'x0'");
    call = (kb_collective){.kind = KB_ALL_REDUCE, .inputs = i32, .count = 3, .op = KB_AVG};
    expect_error(kb_distributed_call(ctx, &call), KB_ERR_FAULT,
                 "kb_distributed_call: all_reduce: unsupported dtype i32: an average is not a "
                 "whole number");
    call.inputs = small;
    expect_error(kb_distributed_call(ctx, &call), KB_ERR_FAULT,
                 "kb_distributed_call: all_reduce: unsupported dtype f8e4m3: it is for storage "
                 "only");
    call = (kb_collective){.kind = KB_BROADCAST, .inputs = small, .count = 3, .root = 3};
    expect_error(kb_distributed_call(ctx, &call), KB_ERR_INPUT,
                 "kb_distributed_call: broadcast: no such rank 3: the group has 3");
    call.root = 2;
    expect_ok(kb_distributed_call(ctx, &call));
    call = (kb_collective){.kind = KB_ALL_REDUCE, .inputs = x, .count = 3, .op = KB_REDUCE_OPS};
    expect_error(kb_distributed_call(ctx, &call), KB_ERR_INPUT,
                 "kb_distributed_call: all_reduce: invalid reduce operation 5");
    call = (kb_collective){.kind = KB_COLLECTIVES};
    expect_error(kb_distributed_call(ctx, &call), KB_ERR_INPUT,
                 "kb_distributed_call: invalid collective 11");
    call = (kb_collective){.kind = KB_ALL_REDUCE, .inputs = x, .outputs = i32, .count = 3};
    expect_error(kb_distributed_call(ctx, &call), KB_ERR_INPUT,
                 "kb_distributed_call: all_reduce works in place: input and output have to be the "
                 "same tensor");
    kb_context_destroy(ctx);
}

static void input_and_output_have_to_be_two(void **state)
{
    (void)state;
    static const kb_collective_kind kinds[] = {KB_ALL_GATHER, KB_REDUCE_SCATTER, KB_GATHER,
                                               KB_SCATTER, KB_ALL_TO_ALL};
    kb_context *ctx = open_three();
    kb_tensor x[WORLD];
    expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
    fill_all(ctx, KB_F16, KB_SHAPE(6, 8), x);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        kb_collective call = {.kind = kinds[i], .inputs = x, .outputs = x, .count = WORLD};
        char message[200];
        snprintf(message, sizeof message,
                 "kb_distributed_call: %s: input and output are the same tensor 'x0', which is "
                 "not supported",
                 kb_collective_name(kinds[i]));
        expect_error(kb_distributed_call(ctx, &call), KB_ERR_FAULT, message);
    }
    expect_ok(reduce_by(ctx, x, WORLD, NULL));
    kb_context_destroy(ctx);
}

static void algorithms_have_to_be_able(void **state)
{
    (void)state;
    kb_context *ctx = open_three();
    kb_tensor x[WORLD];
    expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
    fill_all(ctx, KB_F16, KB_SHAPE(8), x);
    expect_error(reduce_by(ctx, x, 3, "ring_rsg"), KB_ERR_INPUT,
                 "kb_distributed_call: built-in ccl.yaml has no algorithm 'ring_rsg'; "
                 "did you mean 'ring_rsag'?");
    expect_error(reduce_by(ctx, x, 3, "ring_broadcast"), KB_ERR_INPUT,
                 "kb_distributed_call: 'ring_broadcast' (ring_broadcast) does not implement "
                 "all_reduce");
    expect_error(reduce_by(ctx, x, 3, "mesh_allreduce_4"), KB_ERR_INPUT,
                 "kb_distributed_call: ranks of 'mesh_allreduce_4' are PEs, but ranks of the "
                 "process group are devices, as defaults.algorithm selects in built-in ccl.yaml");
    expect_error_about(reduce_by(ctx, x, 3, "ring_allreduce_tcm"), KB_ERR_INPUT,
                       "'ring_allreduce_tcm': tensor 'x0' of rank 0 has 1 shard on "
                       "sip0.cube0.pe1");
    expect_ok(reduce_by(ctx, x, 3, "trees"));
    kb_context_destroy(ctx);
}

/* ---- Groups that differ ---- */

static kb_error *makes_another_group(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    kb_group group;
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    return kb_distributed_new_group(ctx, (uint32_t[]){0, rank == 2 ? 2 : 1}, 2, &group);
}

static void groups_have_to_be_the_same(void **state)
{
    (void)state;
    kb_context *ctx = open_three();
    expect_error(kb_spawn(ctx, makes_another_group, NULL, WORLD), KB_ERR_FAULT,
                 "1 of 3 workers failed: rank 2: kb_distributed_new_group: rank 2 makes group 1 of "
                 "ranks 0, 2, but others have made it of ranks 0, 1");
    kb_group group;
    expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
    expect_error(kb_distributed_new_group(ctx, (uint32_t[]){0, 0}, 2, &group), KB_ERR_INPUT,
                 "kb_distributed_new_group: rank 0 is named twice");
    expect_error(kb_distributed_new_group(ctx, (uint32_t[]){3}, 1, &group), KB_ERR_INPUT,
                 "kb_distributed_new_group: no such rank 3: the world size is 3");
    expect_error(kb_distributed_new_group(ctx, NULL, 0, &group), KB_ERR_INPUT,
                 "kb_distributed_new_group: empty list of ranks");
    expect_error(kb_distributed_barrier(ctx, &(kb_collective_options){.group = {77}}), KB_ERR_FAULT,
                 "kb_distributed_barrier: invalid or destroyed group handle");
    expect_usable(ctx, true);
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_that_differ_fail),
        cmocka_unit_test(ranks_can_go_on_after_a_mismatch),
        cmocka_unit_test(what_is_queued_behind_a_failed_call_fails_too),
        cmocka_unit_test(those_who_are_told_of_a_mismatch_are_not_to_blame),
        cmocka_unit_test(who_is_missing_is_said),
        cmocka_unit_test(a_send_without_receive_is_said),
        cmocka_unit_test(tensors_have_to_be_there),
        cmocka_unit_test(numbers_have_to_make_sense),
        cmocka_unit_test(input_and_output_have_to_be_two),
        cmocka_unit_test(algorithms_have_to_be_able),
        cmocka_unit_test(groups_have_to_be_the_same),
    };
    return cmocka_run_group_tests_name("mismatch", tests, NULL, NULL);
}
