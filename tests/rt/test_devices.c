/*
 * test_devices.c: the current device of each worker, warnings about it, and contexts that are
 * limited to one device.
 */
#include "programs.h"

/* ---- The current device ---- */

static void the_current_device_is_the_one_that_was_set(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    assert_int_equal(kb_ahbm_device_count(ctx), SIPS);
    assert_int_equal(kb_ahbm_current_device(ctx), 0);
    assert_int_equal(kb_accelerator_current_device_index(ctx), 0);
    expect_ok(kb_ahbm_set_device(ctx, 2));
    assert_int_equal(kb_ahbm_current_device(ctx), 2);
    assert_int_equal(kb_accelerator_current_device_index(ctx), 2);
    expect_ok(kb_accelerator_set_device_index(ctx, 3));
    assert_int_equal(kb_ahbm_current_device(ctx), 3);
    assert_int_equal(kb_accelerator_current_device_index(ctx), 3);
    kb_context_destroy(ctx);
}

static void a_device_that_is_not_there_cannot_be_set(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    expect_ok(kb_ahbm_set_device(ctx, 1));
    expect_error(kb_ahbm_set_device(ctx, SIPS), KB_ERR_INPUT,
                 "kb_ahbm_set_device: no such device 4: the machine has 4, numbered from 0");
    expect_error(kb_accelerator_set_device_index(ctx, UINT32_MAX), KB_ERR_INPUT,
                 "kb_ahbm_set_device: no such device 4294967295: the machine has 4, numbered "
                 "from 0");
    assert_int_equal(kb_ahbm_current_device(ctx), 1);
    kb_context_destroy(ctx);
}

static uint32_t device_of_new_tensor(kb_context *ctx, const char *name)
{
    kb_tensor x;
    kb_tensor_spec spec = bytes_spec(name, 16);
    expect_ok(kb_empty(ctx, &spec, &x));
    uint32_t sip = UINT32_MAX;
    expect_ok(kb_tensor_device(ctx, x, &sip));
    kb_location where;
    expect_ok(kb_tensor_shard_location(ctx, x, 0, &where));
    assert_int_equal(where.pe.sip, sip);
    expect_ok(kb_tensor_free(ctx, x));
    return sip;
}

static void tensors_are_created_on_the_current_device(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    assert_int_equal(device_of_new_tensor(ctx, "before any was set"), 0);
    for (uint32_t sip = 0; sip < SIPS; sip++) {
        expect_ok(kb_ahbm_set_device(ctx, sip));
        assert_int_equal(device_of_new_tensor(ctx, "x"), sip);
    }
    kb_context_destroy(ctx);
}

/* ---- Workers ---- */

static kb_error *has_its_own(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    assert_int_equal(kb_ahbm_current_device(ctx), 0); /* not the driver's, nor that of others */
    uint32_t own = SIPS - 1 - rank;
    KB_TRY(kb_ahbm_set_device(ctx, own));
    KB_TRY(kb_cooperative_yield(ctx));
    assert_int_equal(kb_ahbm_current_device(ctx), own);
    assert_int_equal(device_of_new_tensor(ctx, "x"), own);
    KB_TRY(kb_synchronize(ctx));
    expect_error_about(kb_ahbm_set_device(ctx, SIPS), KB_ERR_INPUT,
                       "kb_ahbm_set_device: no such device 4");
    assert_int_equal(kb_accelerator_current_device_index(ctx), own);
    return NULL;
}

static void each_worker_has_its_own_device(void **state)
{
    (void)state;
    kb_context *ctx = open_small(NULL);
    expect_ok(kb_ahbm_set_device(ctx, 3));
    for (int i = 0; i < 2; i++) { /* workers that follow start anew */
        expect_ok(kb_spawn(ctx, has_its_own, NULL, SIPS));
        assert_int_equal(kb_ahbm_current_device(ctx), 3);
    }
    kb_context_destroy(ctx);
}

static kb_error *asks_for_its_device(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    if (rank == 1)
        KB_TRY(kb_ahbm_set_device(ctx, 1));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(kb_ahbm_current_device(ctx), rank == 1);
        assert_int_equal(kb_accelerator_current_device_index(ctx), rank == 1);
        assert_int_equal(device_of_new_tensor(ctx, "x"), rank == 1);
    }
    return NULL;
}

static void spawn_with_warnings(const kb_context_options *options, uint32_t nprocs, notes *warnings)
{
    kb_context_options chosen = *options;
    chosen.on_warning = note_warning;
    chosen.on_warning_self = warnings;
    kb_context *ctx = open_small(&chosen);
    expect_ok(kb_spawn(ctx, asks_for_its_device, NULL, nprocs));
    kb_context_destroy(ctx);
}

static notes warnings;

static void a_worker_that_set_no_device_is_warned_once(void **state)
{
    (void)state;
    spawn_with_warnings(&(kb_context_options){.debug = true}, 3, &warnings);
    expect_notes(&warnings, "rank 0 uses device 0 by default: call kb_ahbm_set_device() first\n"
                            "rank 2 uses device 0 by default: call kb_ahbm_set_device() first\n");
}

static void there_is_no_warning_without_debug_mode(void **state)
{
    (void)state;
    spawn_with_warnings(&(kb_context_options){0}, 3, &warnings);
    expect_notes(&warnings, "");
}

static void there_is_no_warning_of_a_single_worker(void **state)
{
    (void)state;
    spawn_with_warnings(&(kb_context_options){.debug = true}, 1, &warnings);
    expect_notes(&warnings, "");
}

static void there_is_no_warning_outside_workers(void **state)
{
    (void)state;
    kb_context *ctx = open_small(&(kb_context_options){
        .debug = true, .on_warning = note_warning, .on_warning_self = &warnings});
    assert_int_equal(kb_ahbm_current_device(ctx), 0);
    assert_int_equal(device_of_new_tensor(ctx, "x"), 0);
    kb_context_destroy(ctx);
    expect_notes(&warnings, "");
}

/* Creating a tensor is enough to be warned: nobody has to ask. */
static kb_error *creates(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)rank;
    (void)arg;
    kb_tensor x, y;
    kb_tensor_spec spec = bytes_spec("x", 8);
    KB_TRY(kb_zeros(ctx, &spec, &x));
    KB_TRY(kb_full(ctx, &spec, 1, &y));
    KB_TRY(kb_tensor_free(ctx, x));
    return kb_tensor_free(ctx, y);
}

static void creating_a_tensor_without_a_device_warns(void **state)
{
    (void)state;
    kb_context *ctx = open_small(&(kb_context_options){
        .debug = true, .on_warning = note_warning, .on_warning_self = &warnings});
    expect_ok(kb_spawn(ctx, creates, NULL, 2));
    kb_context_destroy(ctx);
    expect_notes(&warnings, "rank 0 uses device 0 by default: call kb_ahbm_set_device() first\n"
                            "rank 1 uses device 0 by default: call kb_ahbm_set_device() first\n");
}

/* ---- Scope ---- */

static void in_a_limited_context_its_device_is_the_default(void **state)
{
    (void)state;
    for (uint32_t sip = 0; sip < SIPS; sip++) {
        char device[16];
        snprintf(device, sizeof device, "sip:%u", sip);
        kb_context *ctx = open_small(&(kb_context_options){.device = device});
        assert_int_equal(kb_ahbm_current_device(ctx), sip);
        assert_int_equal(device_of_new_tensor(ctx, "x"), sip);
        assert_int_equal(kb_ahbm_device_count(ctx), SIPS); /* the machine is as large as it is */
        kb_context_destroy(ctx);
    }
}

static void creating_elsewhere_is_an_error(void **state)
{
    (void)state;
    kb_context *ctx = open_small(&(kb_context_options){.device = "sip:1"});
    kb_tensor x;
    kb_tensor_spec spec = bytes_spec("x", 16);
    expect_ok(kb_ahbm_set_device(ctx, 0));
    expect_error(
        kb_empty(ctx, &spec, &x), KB_ERR_INPUT,
        "kb_empty: tensor 'x': the current device is 0, but this context is limited to sip:1");
    expect_error(
        kb_zeros(ctx, &spec, &x), KB_ERR_INPUT,
        "kb_zeros: tensor 'x': the current device is 0, but this context is limited to sip:1");
    expect_error(
        kb_full(ctx, &spec, 1, &x), KB_ERR_INPUT,
        "kb_full: tensor 'x': the current device is 0, but this context is limited to sip:1");
    expect_ok(kb_from_host(ctx, &spec, "0123456789abcdef", 16, &x)); /* is on no device */
    expect_ok(kb_ahbm_set_device(ctx, 1));
    assert_int_equal(device_of_new_tensor(ctx, "x"), 1);
    kb_context_destroy(ctx);
}

static void memory_elsewhere_is_not_to_be_had(void **state)
{
    (void)state;
    kb_context *ctx = open_small(&(kb_context_options){.device = "sip:1"});
    kb_location block;
    static const kb_memory memories[] = {KB_HBM, KB_TCM, KB_SRAM};
    for (int i = 0; i < 3; i++) {
        for (uint32_t sip = 0; sip < SIPS; sip++) {
            kb_error *err = kb_memory_alloc(ctx, (kb_pe){sip, 0, 0}, memories[i], 64, 64, &block);
            if (sip == 1)
                expect_ok(err);
            else
                expect_error_about(err, KB_ERR_INPUT, "the run is limited to sip 1");
        }
    }
    kb_context_destroy(ctx);
}

static kb_error *is_alone(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)rank;
    (void)arg;
    assert_int_equal(kb_ahbm_current_device(ctx), 2);
    assert_int_equal(device_of_new_tensor(ctx, "x"), 2);
    uint32_t size;
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    KB_TRY(kb_distributed_get_world_size(ctx, &size));
    assert_int_equal(size, 1);
    return kb_distributed_barrier(ctx, NULL);
}

static void in_a_limited_context_the_world_has_one_rank(void **state)
{
    (void)state;
    kb_context *ctx = open_small(&(kb_context_options){.device = "sip:2"});
    uint32_t size;
    expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
    expect_ok(kb_distributed_get_world_size(ctx, &size));
    assert_int_equal(size, 1);
    expect_ok(kb_distributed_destroy_process_group(ctx));
    expect_ok(kb_spawn(ctx, is_alone, NULL, 1));
    kb_context_destroy(ctx);
}

/* Their device is the one there is: nobody need set it. */
static kb_error *asks_in_a_limited_context(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)rank;
    (void)arg;
    assert_int_equal(kb_ahbm_current_device(ctx), 2);
    return NULL;
}

static void in_a_limited_context_workers_are_not_warned(void **state)
{
    (void)state;
    kb_context *ctx = open_small(&(kb_context_options){.device = "sip:2",
                                                       .debug = true,
                                                       .on_warning = note_warning,
                                                       .on_warning_self = &warnings});
    expect_ok(kb_spawn(ctx, asks_in_a_limited_context, NULL, 3));
    kb_context_destroy(ctx);
    expect_notes(&warnings, "");
}

static void devices_in_words(void **state)
{
    (void)state;
    static const char *const good[] = {"all", "sip:0", "sip:3", "sip:03"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        kb_context_destroy(open_small(&(kb_context_options){.device = good[i]}));
    static const char *const bad[] = {
        "",        "sip",        "sip:",   "sip:x",          "sip:1x", "sip:-1",
        "sip: 1",  "SIP:1",      " sip:1", "sip:1 ",         "1",      "cuda",
        "sip:1.0", "sip:+1",     "all ",   "sip:4294967297", "sip::1", "sip:1\n2",
        "sip1:2",  "sip:1sip:1",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        kb_context *ctx = (kb_context *)(uintptr_t)1;
        kb_error *err = try_small(&(kb_context_options){.device = bad[i]}, &ctx);
        expect_error_about(err, KB_ERR_INPUT, "': expected all, or sip:N as in sip:0");
        assert_null(ctx);
    }
    static const char *const absent[] = {"sip:4", "sip:99", "sip:999999999"};
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++) {
        kb_context *ctx = (kb_context *)(uintptr_t)1;
        kb_error *err = try_small(&(kb_context_options){.device = absent[i]}, &ctx);
        expect_error_about(err, KB_ERR_INPUT, "': the machine has 4 SIPs, numbered from 0");
        assert_null(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_current_device_is_the_one_that_was_set),
        cmocka_unit_test(a_device_that_is_not_there_cannot_be_set),
        cmocka_unit_test(tensors_are_created_on_the_current_device),
        cmocka_unit_test(each_worker_has_its_own_device),
        cmocka_unit_test(a_worker_that_set_no_device_is_warned_once),
        cmocka_unit_test(there_is_no_warning_without_debug_mode),
        cmocka_unit_test(there_is_no_warning_of_a_single_worker),
        cmocka_unit_test(there_is_no_warning_outside_workers),
        cmocka_unit_test(creating_a_tensor_without_a_device_warns),
        cmocka_unit_test(in_a_limited_context_its_device_is_the_default),
        cmocka_unit_test(creating_elsewhere_is_an_error),
        cmocka_unit_test(memory_elsewhere_is_not_to_be_had),
        cmocka_unit_test(in_a_limited_context_the_world_has_one_rank),
        cmocka_unit_test(in_a_limited_context_workers_are_not_warned),
        cmocka_unit_test(devices_in_words),
    };
    return cmocka_run_group_tests_name("devices", tests, NULL, NULL);
}
