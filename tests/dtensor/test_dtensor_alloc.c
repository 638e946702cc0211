/*
 * test_dtensor_alloc.c: allocations fail in turn while DTensors are made, redistributed and
 * computed with. The result is an error about memory, without leaks.
 */
#include "plain.h"

#include "support/failing_alloc.h"

enum { WORLD = 2 };

typedef struct script {
    kb_tensor host;
    long nth; /* the allocation that fails */
    failing_alloc_mode mode;
    bool failed;
} script;

/* Sizes that do not divide, so that all kinds of staging tensors are made. */
static kb_error *use_dtensors(kb_context *ctx, kb_tensor host)
{
    kb_device_mesh mesh;
    kb_dtensor x, y, z, w;
    kb_tensor full;
    KB_TRY(kb_init_device_mesh(ctx, &(kb_device_mesh_spec){.ndim = 2, .shape = {1, 2}}, &mesh));
    const kb_placements rows = KB_PLACEMENTS(KB_REPLICATE_PLACEMENT, KB_SHARD(0));
    const kb_placements columns = KB_PLACEMENTS(KB_REPLICATE_PLACEMENT, KB_SHARD(1));
    KB_TRY(kb_distribute_tensor(ctx, host, mesh, rows, &x));
    KB_TRY(kb_dtensor_redistribute(ctx, x, columns, &y));
    KB_TRY(kb_dtensor_matmul(ctx, y, x, &z));
    KB_TRY(kb_dtensor_add(ctx, z, x, &w));
    KB_TRY(kb_dtensor_full_tensor(ctx, w, &full));
    KB_TRY(kb_tensor_free(ctx, full));
    KB_TRY(kb_dtensor_free(ctx, w));
    KB_TRY(kb_dtensor_sum(ctx, z, KB_ALL_DIMS, false, &w));
    KB_TRY(kb_dtensor_free(ctx, w));
    KB_TRY(kb_dtensor_free(ctx, z));
    KB_TRY(kb_dtensor_free(ctx, y));
    KB_TRY(kb_dtensor_free(ctx, x));
    return kb_device_mesh_free(ctx, mesh);
}

/* All once before, so that collectives are chosen and installed. */
static kb_error *use_twice(kb_context *ctx, script *s)
{
    KB_TRY(use_dtensors(ctx, s->host));
    failing_alloc_arm(s->nth, s->mode);
    kb_error *err = use_dtensors(ctx, s->host);
    s->failed = failing_alloc_disarm();
    return err;
}

static kb_error *worker(kb_context *ctx, uint32_t rank, void *arg)
{
    script *s = arg;
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    KB_TRY(use_dtensors(ctx, s->host));
    if (rank == 0)
        failing_alloc_arm(s->nth, s->mode);
    return use_dtensors(ctx, s->host);
}

/* With the n-th allocation failing; false if there were fewer. */
static bool try_nth(bool by_workers, long n)
{
    kb_context *ctx = open_machine_of(WORLD, 1, 1, (kb_context_options){0});
    plain p = plain_new(&KB_SHAPE(5, 5));
    script s = {.host = host_tensor(ctx, "h", &p, KB_F32),
                .nth = n,
                .mode = n % 2 ? FAIL_ONCE : FAIL_ONWARDS};
    plain_free(&p);
    kb_error *err;
    if (by_workers) {
        err = kb_spawn(ctx, worker, &s, WORLD);
        s.failed = failing_alloc_disarm();
    } else {
        expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
        err = use_twice(ctx, &s);
    }
    if (err && kb_error_code(err) != KB_ERR_HOST)
        fail_msg("allocation %ld: %s", n, kb_error_message(err));
    kb_error_free(err);
    kb_context_destroy(ctx);
    return s.failed;
}

static void try_all(bool by_workers)
{
    size_t before = failing_alloc_live();
    bool failed = true;
    for (long n = 1; failed; n += (n < 60 ? 1 : n / 20) * (RUNNING_ON_VALGRIND ? 10 : 1)) {
        failed = try_nth(by_workers, n);
        assert_int_equal(failing_alloc_live(), before);
    }
}

static void from_outside_workers(void **state)
{
    (void)state;
    try_all(false);
}

static void from_workers(void **state)
{
    (void)state;
    try_all(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(from_outside_workers),
        cmocka_unit_test(from_workers),
    };
    return cmocka_run_group_tests_name("dtensor, memory", tests, NULL, NULL);
}
