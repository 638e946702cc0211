/*
 * test_group_alloc.c: allocations fail in turn while a process group is made, used and left. The
 * result is an error about memory, without leaks.
 */
#include "support/failing_alloc.h"
#include "support/seed.h"
#include "trial.h"

enum { WORLD = 2 };

typedef struct script {
    const char *chosen; /* what init_process_group installs */
    trial trials[2];
    bool by_workers;
} script;

static kb_error *use_group(kb_context *ctx, script *s)
{
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    for (int i = 0; i < 2; i++)
        KB_TRY(trial_call_all(&s->trials[i], ctx));
    kb_collective_stats stats;
    KB_TRY(kb_distributed_get_stats(ctx, (kb_group){0}, &stats));
    KB_TRY(kb_distributed_barrier(ctx, NULL));
    return kb_distributed_destroy_process_group(ctx);
}

static kb_error *worker(kb_context *ctx, uint32_t rank, void *arg)
{
    script *s = arg;
    kb_group group;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    KB_TRY(kb_distributed_new_group(ctx, (uint32_t[]){1, 0}, 2, &group));
    KB_TRY(kb_distributed_barrier(ctx, &(kb_collective_options){.group = group}));
    for (int i = 0; i < 2; i++)
        KB_TRY(trial_call(&s->trials[i], ctx, rank, NULL));
    return kb_distributed_destroy_process_group(ctx);
}

/* With the n-th allocation failing; false if there were fewer. */
static bool try_nth(script *s, long n, failing_alloc_mode mode)
{
    char chosen[64];
    snprintf(chosen, sizeof chosen, "ccl.defaults.algorithm=%s", s->chosen);
    const char *const more[] = {chosen, NULL};
    kb_context *ctx = open_sips(WORLD, 1, 1, more, (kb_context_options){.threads = 1});
    for (int i = 0; i < 2; i++) {
        for (uint32_t rank = 0; rank < WORLD; rank++) {
            expect_ok(kb_ahbm_set_device(ctx, rank));
            trial_make(&s->trials[i], ctx, rank);
        }
    }
    failing_alloc_arm(n, mode);
    kb_error *err = s->by_workers ? kb_spawn(ctx, worker, s, WORLD) : use_group(ctx, s);
    bool failed = failing_alloc_disarm();
    if (err && kb_error_code(err) != KB_ERR_HOST)
        fail_msg("allocation %ld: %s", n, kb_error_message(err));
    kb_error_free(err);
    kb_context_destroy(ctx);
    return failed;
}

/* Every one of the first, then one in ten. */
static void try_many(script *s)
{
    kb_rng rng;
    kb_rng_init(&rng, test_seed(3));
    kb_context *ctx = open_sips(WORLD, 1, 1, NULL, (kb_context_options){.threads = 1});
    kb_machine machine = kb_context_machine(ctx);
    kb_context_destroy(ctx);
    for (int i = 0; i < 2; i++) {
        s->trials[i].world = WORLD;
        s->trials[i].dtype = KB_F32;
        s->trials[i].block = 12;
        trial_draw(&s->trials[i], &rng, &machine, i == 1);
    }
    size_t before = failing_alloc_live();
    bool failed = true;
    long stride = 1;
    for (long n = 1; failed; n += stride) {
        failed = try_nth(s, n, n % 2 ? FAIL_ONCE : FAIL_ONWARDS);
        assert_int_equal(failing_alloc_live(), before);
        stride = (long)(n < 40 ? 1 : n / 12) * (RUNNING_ON_VALGRIND ? 10 : 1);
        stride = stride > 0 ? stride : 1;
    }
    for (int i = 0; i < 2; i++)
        trial_fini(&s->trials[i]);
}

static void from_outside_workers(void **state)
{
    (void)state;
    script s = {
        .chosen = "ring_rsag",
        .trials = {{.kind = KB_ALL_REDUCE, .algorithm = "ring_rsag"},
                   {.kind = KB_ALL_GATHER, .algorithm = "ring_all_gather"}},
    };
    try_many(&s);
}

static void from_workers(void **state)
{
    (void)state;
    script s = {
        .chosen = "auto",
        .by_workers = true,
        .trials = {{.kind = KB_ALL_REDUCE, .algorithm = "one_shot"}, {.kind = KB_BROADCAST}},
    };
    try_many(&s);
}

/* Also while candidates are measured. */
static void choosing(void **state)
{
    (void)state;
    script s = {.chosen = "auto", .trials = {{.kind = KB_ALL_REDUCE}, {.kind = KB_REDUCE}}};
    try_many(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(from_outside_workers),
        cmocka_unit_test(from_workers),
        cmocka_unit_test(choosing),
    };
    return cmocka_run_group_tests_name("group, memory", tests, NULL, NULL);
}
