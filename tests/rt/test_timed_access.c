/*
 * test_timed_access.c: one program run in several ways. Timed or untimed it sees the
 * same contents, and untimed no time passes. With and without contents, and with and
 * without elision, it takes the same time to the femtosecond.
 */
#include "tensors.h"

#include "rt/runtime.h"
#include "support/seed.h"

enum { TENSORS = 4, STEPS = 60, MAX_READ = 1 << 14 };

/* A program is what its random numbers say; it never looks at what it sees. */
typedef struct run {
    kb_context *ctx;
    kb_machine machine;
    kb_rng rng;
    int access; /* for all; -1: as the program says */
    kb_shape shape;
    kb_policy policies[TENSORS];
    kb_tensor tensors[TENSORS];
    bool on_host[TENSORS];
    size_t bytes;
    unsigned char *seen; /* by the last step, `seen_bytes` of them */
    size_t seen_bytes;
} run;

static kb_access choose_access(run *r)
{
    kb_access drawn = one_in(&r->rng, 3) ? KB_UNTIMED : KB_TIMED;
    return r->access < 0 ? drawn : (kb_access)r->access;
}

static void make(run *r, int i)
{
    kb_tensor_spec spec = draw_spec(&r->rng, &r->machine, &r->policies[i]);
    unsigned char *data = draw_bytes(&r->rng, r->bytes);
    spec.shape = r->shape;
    spec.dtype = KB_I8;
    spec.access = choose_access(r);
    expect_ok(kb_ahbm_set_device(r->ctx, (uint32_t)below(&r->rng, r->machine.sips)));
    uint64_t how = below(&r->rng, 4);
    r->on_host[i] = how == 0;
    if (how == 0)
        expect_ok(kb_from_host(r->ctx, &spec, data, r->bytes, &r->tensors[i]));
    else if (how == 1)
        expect_ok(kb_empty(r->ctx, &spec, &r->tensors[i]));
    else
        expect_ok(kb_full(r->ctx, &spec, (double)how, &r->tensors[i]));
    free(data);
}

static run *begin(const char *yaml, uint64_t seed, int access, kb_context_options options)
{
    run *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->ctx = open_context(yaml, options);
    r->machine = kb_context_machine(r->ctx);
    r->access = access;
    kb_rng_init(&r->rng, test_seed(seed));
    r->shape = KB_SHAPE(1 + below(&r->rng, 20), 1 + below(&r->rng, 100));
    r->bytes = elements_of(&r->shape);
    r->seen = new_bytes(MAX_READ);
    for (int i = 0; i < TENSORS; i++)
        make(r, i);
    return r;
}

static void end(run *r)
{
    kb_context_destroy(r->ctx);
    free(r->seen);
    free(r);
}

static void look_at_text(run *r, int i)
{
    char *text;
    expect_ok(kb_tensor_repr(r->ctx, r->tensors[i], choose_access(r), &text));
    r->seen_bytes = strlen(text);
    memcpy(r->seen, text, r->seen_bytes);
    free(text);
}

static void change(run *r, int i)
{
    kb_context *ctx = r->ctx;
    uint64_t rows = r->shape.dims[0], start = below(&r->rng, rows);
    size_t bytes = r->bytes / rows * (rows - start);
    unsigned char *data = draw_bytes(&r->rng, bytes);
    kb_slice slice = KB_SLICE({start, KB_END});
    kb_access access = choose_access(r);
    switch (below(&r->rng, 3)) {
    case 0:
        expect_ok(kb_tensor_set_slice(ctx, r->tensors[i], access, &slice, data, bytes));
        break;
    case 1:
        expect_ok(kb_tensor_fill_slice(ctx, r->tensors[i], access, &slice, 5));
        break;
    default:
        expect_ok(kb_tensor_set(ctx, r->tensors[i], access, &KB_INDEX(start, 0), 6));
    }
    free(data);
}

static void look(run *r, int i)
{
    kb_context *ctx = r->ctx;
    kb_slice slice = KB_SLICE({0, KB_END}, {0, 1});
    kb_access access = choose_access(r);
    switch (below(&r->rng, 3)) {
    case 0:
        r->seen_bytes = r->bytes;
        expect_ok(kb_tensor_to_host(ctx, r->tensors[i], access, r->seen, r->bytes));
        break;
    case 1:
        r->seen_bytes = r->shape.dims[0];
        expect_ok(kb_tensor_get_slice(ctx, r->tensors[i], access, &slice, r->seen, r->seen_bytes));
        break;
    default: {
        double value;
        expect_ok(kb_tensor_get(ctx, r->tensors[i], access, &KB_INDEX(0, 0), &value));
        memcpy(r->seen, &value, sizeof value);
        r->seen_bytes = sizeof value;
    }
    }
}

static void step(run *r)
{
    int i = (int)below(&r->rng, TENSORS), j = (int)below(&r->rng, TENSORS);
    r->seen_bytes = 0;
    switch (below(&r->rng, 8)) {
    case 0:
        expect_ok(kb_tensor_free(r->ctx, r->tensors[i]));
        make(r, i);
        break;
    case 1:
    case 2:
        expect_ok(kb_tensor_copy(r->ctx, r->tensors[i], r->tensors[j], choose_access(r)));
        break;
    case 3:
        look_at_text(r, i);
        break;
    case 4:
    case 5:
        look(r, i);
        break;
    default:
        change(r, i);
    }
}

/* Requests too, which take time whatever the access. A PE reads a tensor by its address. */
static void step_or_request(run *r)
{
    int i = (int)below(&r->rng, TENSORS);
    kb_pe pe = {0, (uint32_t)below(&r->rng, r->machine.cubes),
                (uint32_t)below(&r->rng, r->machine.pes)};
    if (!one_in(&r->rng, 5) || r->on_host[i]) {
        step(r);
        return;
    }
    uint64_t va;
    expect_ok(kb_synchronize(r->ctx));
    expect_ok(kb_tensor_device(r->ctx, r->tensors[i], &pe.sip));
    expect_ok(kb_tensor_va(r->ctx, r->tensors[i], &va));
    r->seen_bytes = r->bytes;
    pe_reads(r->ctx, pe, va, r->seen, r->bytes);
    pe_writes(r->ctx, pe, va, r->seen, 1);
}

/* ---- Timed and untimed
 * ------------------------------------------------------------------------------- */

static void timed_and_untimed_show_the_same(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(40); n++) {
        const char *yaml = small_machines[n % SMALL_MACHINES];
        run *timed = begin(yaml, n, KB_TIMED, (kb_context_options){0});
        run *untimed = begin(yaml, n, KB_UNTIMED, (kb_context_options){0});
        run *mixed = begin(yaml, n, -1, (kb_context_options){0});
        for (int i = 0; i < STEPS; i++) {
            step(timed);
            step(untimed);
            step(mixed);
            assert_int_equal(timed->seen_bytes, untimed->seen_bytes);
            assert_int_equal(timed->seen_bytes, mixed->seen_bytes);
            expect_bytes(timed->seen, untimed->seen, timed->seen_bytes);
            expect_bytes(timed->seen, mixed->seen, timed->seen_bytes);
        }
        expect_ok(kb_synchronize(timed->ctx));
        expect_ok(kb_synchronize(untimed->ctx));
        assert_true(kb_context_now(timed->ctx) > KB_US);
        assert_int_equal(kb_context_now(untimed->ctx), 0);
        kb_sim_stats stats = kb_sim_get_stats(kb_context_sim(untimed->ctx));
        assert_int_equal(stats.events + stats.elided, 0);
        end(timed);
        end(untimed);
        end(mixed);
    }
}

/* ---- With and without contents ----------------------------------------------------------- */

static void contents_take_no_time(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < cases(40); n++) {
        const char *yaml = small_machines[n % SMALL_MACHINES];
        run *runs[] = {
            begin(yaml, n, -1, (kb_context_options){0}),
            begin(yaml, n, -1, (kb_context_options){.timing_only = true}),
            begin(yaml, n, -1, (kb_context_options){.no_elision = true}),
            begin(yaml, n, -1, (kb_context_options){.no_elision = true, .timing_only = true}),
        };
        for (int i = 0; i < STEPS; i++) {
            for (int k = 0; k < 4; k++)
                step_or_request(runs[k]);
            for (int k = 1; k < 4; k++)
                assert_int_equal(kb_context_now(runs[k]->ctx), kb_context_now(runs[0]->ctx));
            assert_int_equal(runs[0]->seen_bytes, runs[2]->seen_bytes);
            expect_bytes(runs[2]->seen, runs[0]->seen, runs[0]->seen_bytes);
            assert_int_equal(mem_memories_content_bytes(runs[1]->ctx->memories), 0);
        }
        assert_true(kb_context_now(runs[0]->ctx) > KB_US);
        for (int k = 0; k < 4; k++)
            end(runs[k]);
    }
}

/* 32 GiB that nobody could keep: no memory is needed, and what is read is 0. */
static void without_contents_nothing_is_kept(void **state)
{
    (void)state;
    static const kb_policy policy = {.cube = KB_ROW_WISE, .pe = KB_ROW_WISE};
    kb_context *ctx = open_context(NULL, (kb_context_options){.timing_only = true});
    assert_true(kb_context_is_timing_only(ctx));
    kb_tensor_spec spec = {.name = "x",
                           .shape = KB_SHAPE((uint64_t)1 << 20, 8192),
                           .dtype = KB_F32,
                           .policy = &policy,
                           .access = KB_UNTIMED};
    kb_tensor x, y, h;
    char *text;
    double value = 5;
    unsigned char bytes[16];
    expect_ok(kb_full(ctx, &spec, 3, &x));
    expect_ok(kb_empty(ctx, &spec, &y));
    expect_ok(kb_tensor_copy(ctx, y, x, KB_UNTIMED));
    expect_ok(kb_tensor_fill_slice(ctx, y, KB_TIMED, &KB_SLICE({5, 9}), 4));
    expect_ok(kb_tensor_get(ctx, y, KB_TIMED, &KB_INDEX(6, 6), &value));
    assert_true(value == 0);
    memset(bytes, 1, sizeof bytes);
    expect_ok(kb_tensor_get_slice(ctx, y, KB_TIMED, &KB_SLICE({5, 6}, {0, 4}), bytes, 16));
    expect_bytes(bytes, (unsigned char[16]){0}, 16);
    expect_ok(kb_tensor_repr(ctx, y, KB_UNTIMED, &text));
    assert_string_equal(text, "'x' (1048576, 8192) f32 on sip0, timing only");
    free(text);
    assert_int_equal(mem_memories_content_bytes(ctx->memories), 0);
    /* A tensor of the host has none either. */
    spec.shape = KB_SHAPE(4);
    expect_ok(kb_from_host(ctx, &spec, "sixteen letters.", 16, &h));
    assert_null(((rt_tensor *)rt_table_get(&ctx->tensors, h.id))->host);
    expect_ok(kb_tensor_set(ctx, h, KB_TIMED, &KB_INDEX(1), 1));
    expect_contents(ctx, h, KB_TIMED, (unsigned char[16]){0}, 16);
    expect_ok(kb_tensor_repr(ctx, h, KB_TIMED, &text));
    assert_string_equal(text, "'x' (4,) f32 on the host, timing only");
    free(text);
    /* And nothing of nothing can be asked for. */
    spec.shape = KB_SHAPE(0);
    expect_ok(kb_zeros(ctx, &spec, &x));
    expect_ok(kb_tensor_to_host(ctx, x, KB_TIMED, NULL, 0));
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timed_and_untimed_show_the_same),
        cmocka_unit_test(contents_take_no_time),
        cmocka_unit_test(without_contents_nothing_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
