/*
 * test_collectives.c: every collective, among one to five ranks, on tensors in any layout, gives
 * the bits of a plain reference.
 */
#include "support/seed.h"
#include "trial.h"

/* ---- Random calls ---- */

static kb_dtype draw_dtype(kb_rng *rng, kb_collective_kind kind, kb_reduce_op op)
{
    static const kb_dtype floats[] = {KB_F16, KB_BF16, KB_F32};
    static const kb_dtype any[] = {KB_F16, KB_BF16, KB_F32, KB_I32, KB_I8};
    bool reduces = kind == KB_ALL_REDUCE || kind == KB_REDUCE || kind == KB_REDUCE_SCATTER;
    return reduces && op == KB_AVG ? floats[below(rng, 3)] : any[below(rng, 5)];
}

static trial draw_trial(kb_rng *rng, kb_context *ctx, uint32_t world, kb_collective_kind kind)
{
    kb_machine machine = kb_context_machine(ctx);
    trial t = {
        .kind = kind,
        .op = (kb_reduce_op)below(rng, KB_REDUCE_OPS),
        .root = (uint32_t)below(rng, world),
        .world = world,
        .block = one_in(rng, 12) ? 0 : 1 + below(rng, one_in(rng, 4) ? 3000 : 150),
        .memory = one_in(rng, 4) ? KB_TCM : KB_HBM,
    };
    t.dtype = draw_dtype(rng, kind, t.op);
    trial_draw(&t, rng, &machine, one_in(rng, 2));
    return t;
}

/* Some by workers, some by a program that drives all ranks. */
static void try_one(kb_rng *rng, kb_context *ctx, uint32_t world, kb_collective_kind kind)
{
    trial t = draw_trial(rng, ctx, world, kind);
    if (one_in(rng, 3)) {
        for (uint32_t rank = 0; rank < world; rank++) {
            expect_ok(kb_ahbm_set_device(ctx, rank));
            trial_make(&t, ctx, rank);
        }
        expect_ok(kb_distributed_init_process_group(ctx, "ahbm"));
        expect_ok(trial_call_all(&t, ctx));
        for (uint32_t rank = 0; rank < world; rank++)
            trial_check(&t, ctx, rank);
        expect_ok(kb_distributed_destroy_process_group(ctx));
    } else {
        trial_spawn(&t, ctx);
    }
    trial_fini(&t);
}

static void try_kinds(uint64_t seed, uint32_t sips, uint32_t w, uint32_t h, const char *const *more)
{
    kb_rng rng;
    kb_rng_init(&rng, test_seed(seed));
    for (int kind = 0; kind <= KB_ALL_TO_ALL; kind++) {
        kb_context *ctx = open_sips(sips, w, h, more, (kb_context_options){.threads = 1});
        for (uint64_t i = 0; i < cases(3); i++)
            try_one(&rng, ctx, sips, (kb_collective_kind)kind);
        kb_context_destroy(ctx);
    }
}

static void among_one(void **state)
{
    (void)state;
    try_kinds(1, 1, 2, 1, NULL);
}

static void among_two(void **state)
{
    (void)state;
    try_kinds(2, 2, 3, 1, NULL);
}

static void among_three(void **state)
{
    (void)state;
    try_kinds(3, 3, 1, 3, NULL);
}

static void among_four_with_links(void **state)
{
    (void)state;
    static const char *const torus[] = {
        "system.sips.topology=torus_2d", "system.sips.link.bw_gbs=100",
        "system.sips.link.length_mm=50", "system.sips.link.overhead_ns=20", NULL};
    try_kinds(4, 4, 1, 1, torus);
}

static void among_five(void **state)
{
    (void)state;
    try_kinds(5, 5, 1, 2, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(among_one),   cmocka_unit_test(among_two),
        cmocka_unit_test(among_three), cmocka_unit_test(among_four_with_links),
        cmocka_unit_test(among_five),
    };
    return cmocka_run_group_tests_name("collectives", tests, NULL, NULL);
}
