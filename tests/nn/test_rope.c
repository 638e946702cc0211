/*
 * test_rope.c: rotary position embedding: frequencies against formulas, and the rotation in a
 * kernel against a double-precision reference.
 */
#include "nn/nn.h"
#include "numbers.h"

#include <math.h>

/* ---- Frequencies ---- */

static void frequencies_are_powers_of_the_base(void **unused)
{
    (void)unused;
    float found[64];
    const kb_rope plain = {.style = KB_ROPE_HALF_SPLIT};
    assert_int_equal(nn_rope_pairs(&plain, 128), 64);
    nn_rope_frequencies(&plain, 128, found);
    for (int i = 0; i < 64; i++)
        assert_true(found[i] == (float)pow(10000, -2.0 * i / 128));

    const kb_rope partial = {.style = KB_ROPE_INTERLEAVED, .base = 5e5, .dims = 6};
    assert_int_equal(nn_rope_pairs(&partial, 80), 3);
    nn_rope_frequencies(&partial, 80, found);
    for (int i = 0; i < 3; i++)
        assert_true(found[i] == (float)pow(5e5, -2.0 * i / 6));

    const kb_rope none = {.base = 3};
    assert_int_equal(nn_rope_pairs(&none, 128), 0);
}

static void frequencies_are_scaled(void **unused)
{
    (void)unused;
    float plain[64], found[64];
    kb_rope rope = {.style = KB_ROPE_HALF_SPLIT, .base = 500000};
    nn_rope_frequencies(&rope, 128, plain);

    rope.scaling = KB_ROPE_LINEAR;
    rope.factor = 4;
    nn_rope_frequencies(&rope, 128, found);
    for (int i = 0; i < 64; i++)
        assert_true(found[i] == plain[i] / 4);

    /* As Llama 3.1 has it: waves shorter than 8192 / 4 = 2048 tokens stay, those longer than
     * 8192 / 1 are divided. */
    rope = (kb_rope){.style = KB_ROPE_HALF_SPLIT,
                     .base = 500000,
                     .scaling = KB_ROPE_LLAMA3,
                     .factor = 8,
                     .low_freq_factor = 1,
                     .high_freq_factor = 4,
                     .original_max_position = 8192};
    nn_rope_frequencies(&rope, 128, found);
    int kept = 0, between = 0, divided = 0;
    for (int i = 0; i < 64; i++) {
        double frequency = pow(500000, -2.0 * i / 128), wave = 2 * M_PI / frequency;
        double expected = frequency;
        if (wave > 8192) {
            expected = frequency / 8;
            divided++;
        } else if (wave >= 2048) {
            double smooth = (8192 / wave - 1) / (4 - 1);
            expected = (1 - smooth) * frequency / 8 + smooth * frequency;
            between++;
        } else {
            kept++;
        }
        assert_true(fabs((double)found[i] - expected) <= 1e-7 * expected);
    }
    assert_true(kept > 0 && between > 0 && divided > 0);
}

static void invalid_values_are_refused(void **unused)
{
    (void)unused;
    const kb_rope half = {.style = KB_ROPE_HALF_SPLIT};
    kb_rope rope = half;
    expect_ok(nn_check_rope("f", &rope, 128));
    expect_ok(nn_check_rope("f", &(kb_rope){.dims = 7, .base = -1}, 7)); /* no rotation */
    expect_error(nn_check_rope("f", &rope, 127), KB_ERR_INPUT,
                 "f: rope: 127 elements of a head are rotated: expected an even number of at "
                 "least 2");
    rope.dims = 64;
    expect_error(nn_check_rope("f", &rope, 62), KB_ERR_INPUT,
                 "f: rope: dims is 64: a head has 62 elements");
    rope = half;
    rope.base = -2;
    expect_error(nn_check_rope("f", &rope, 64), KB_ERR_INPUT,
                 "f: rope: base is -2: expected more than 0");
    rope = half;
    rope.style = (kb_rope_style)3;
    expect_error(nn_check_rope("f", &rope, 64), KB_ERR_INPUT, "f: rope: invalid style 3");
    rope = half;
    rope.scaling = (kb_rope_scaling)7;
    expect_error(nn_check_rope("f", &rope, 64), KB_ERR_INPUT, "f: rope: invalid scaling 7");
    rope.scaling = KB_ROPE_LINEAR;
    rope.factor = (double)NAN;
    expect_error(nn_check_rope("f", &rope, 64), KB_ERR_INPUT,
                 "f: rope: factor is nan: expected at least 1");
    rope.scaling = KB_ROPE_LLAMA3;
    rope.factor = 8;
    rope.low_freq_factor = rope.high_freq_factor = 4;
    expect_error(nn_check_rope("f", &rope, 64), KB_ERR_INPUT,
                 "f: rope: low_freq_factor is 4 and high_freq_factor is 4: expected 0 < "
                 "low_freq_factor < high_freq_factor");
    rope.low_freq_factor = 1;
    expect_error(nn_check_rope("f", &rope, 64), KB_ERR_INPUT,
                 "f: rope: original_max_position is 0: llama3 scaling needs it");
}

/* ---- Rotation in a kernel ---- */

typedef struct rotation {
    nn_heads heads;
    kb_dtype dtype;
    int64_t position; /* of all tokens; -1: each has its own */
} rotation;

KB_KERNEL(rotate, tl_ptr x, tl_ptr positions, tl_ptr frequencies, tl_ptr out)
{
    const rotation *plan = tl_user();
    const nn_heads *is = &plan->heads;
    if (tl_program_id(0) > 0) /* the frequencies are at each PE */
        return;
    tl_tensor values = tl_load(x, tl_shape(is->tokens * is->heads, is->head_dim), plan->dtype);
    nn_angles angles = {0};
    if (is->pairs > 0) {
        tl_tensor loaded = nn_load_frequencies(tl, frequencies, is->pairs);
        tl_tensor all = tl_load(positions, tl_shape(is->tokens, 1), TL_I32);
        angles = plan->position >= 0 ? nn_angles_at(tl, loaded, is->pairs, plan->position)
                                     : nn_angles_of(tl, loaded, is->pairs, all, is->tokens);
    }
    tl_store(out, nn_rotate(tl, is, values, &angles));
    if (is->pairs > 0)
        nn_free_angles(tl, &angles);
}

static void expect_rotated(const kb_rope *rope, uint32_t tokens, uint32_t heads, uint32_t head_dim,
                           kb_dtype dtype, int64_t position)
{
    kb_context *ctx = open_machine((machine_size){.sips = 1, .w = 1, .h = 1, .pes = 3},
                                   (kb_context_options){.races = KB_RACES_FAIL});
    size_t count = (size_t)tokens * heads * head_dim;
    double *numbers = random_numbers(head_dim, count, dtype),
           *positions = random_numbers(1, tokens, dtype);
    for (uint32_t i = 0; i < tokens; i++)
        positions[i] = position >= 0 ? (double)position : (double)(i * 977 % 5000);
    kb_tensor x = make_tensor(ctx, "x", dtype, KB_SHAPE(tokens * heads, head_dim), NULL, numbers);
    kb_tensor p = make_tensor(ctx, "positions", KB_I32, KB_SHAPE(tokens), NULL, positions);
    kb_tensor out = make_tensor(ctx, "out", KB_F32, KB_SHAPE(tokens * heads, head_dim), NULL, NULL);
    kb_tensor frequencies;
    expect_ok(nn_check_rope("test", rope, head_dim));
    expect_ok(nn_get_frequencies(ctx, "test", 0, rope, head_dim, &frequencies));
    rotation plan = {
        {tokens, heads, head_dim, rope->style, nn_rope_pairs(rope, head_dim)}, dtype, position};
    kb_kernel kernel = rotate;
    kernel.user = &plan;
    const kb_arg args[] = {kb_arg_tensor(x), kb_arg_tensor(p),
                           frequencies.id ? kb_arg_tensor(frequencies) : kb_arg_integer(0),
                           kb_arg_tensor(out)};
    expect_ok(kb_launch_args(ctx, NULL, &kernel, args, 4));
    rotate_reference(rope, numbers, positions, tokens, heads, head_dim);
    expect_near(ctx, out, numbers, count);
    free(numbers);
    free(positions);
    kb_context_destroy(ctx);
}

static void heads_are_rotated(void **unused)
{
    (void)unused;
    static const kb_dtype dtypes[] = {KB_F16, KB_BF16, KB_F32};
    for (int style = KB_ROPE_NONE; style <= KB_ROPE_INTERLEAVED; style++)
        for (int i = 0; i < 3; i++) {
            kb_rope rope = {.style = (kb_rope_style)style};
            expect_rotated(&rope, 5, 3, 10, dtypes[i], -1);
            expect_rotated(&rope, 1, 1, 2, dtypes[i], 77);
            expect_rotated(&rope, 3, 1, 128, dtypes[i], 4095);
            rope.dims = 6; /* and the rest stays */
            rope.base = 500000;
            expect_rotated(&rope, 4, 2, 9, dtypes[i], -1);
            expect_rotated(&rope, 1, 3, 11, dtypes[i], 1000);
            rope.scaling = KB_ROPE_LINEAR;
            rope.factor = 2;
            expect_rotated(&rope, 7, 2, 6, dtypes[i], -1);
        }
}

/* Frequencies of the same numbers are one tensor; recording needs them to be there. */
static void frequencies_are_kept(void **unused)
{
    (void)unused;
    kb_context *ctx =
        open_machine((machine_size){.sips = 2, .w = 1, .h = 1, .pes = 2}, (kb_context_options){0});
    const kb_rope rope = {.style = KB_ROPE_HALF_SPLIT};
    const kb_rope same = {.style = KB_ROPE_INTERLEAVED, .base = 10000, .dims = 8};
    kb_tensor a, b, other;
    kb_graph graph;
    expect_ok(kb_graph_begin(ctx, "g", &graph));
    expect_error(nn_get_frequencies(ctx, "f", 0, &rope, 8, &a), KB_ERR_FAULT,
                 "f: a graph is being recorded, and the rope's frequencies are not on the device "
                 "yet: call kb_rope_prepare() before");
    kb_error_free(kb_graph_end(ctx, graph));
    expect_ok(kb_rope_prepare(ctx, 0, &rope, 8));
    expect_ok(nn_get_frequencies(ctx, "f", 0, &rope, 8, &a));
    expect_ok(nn_get_frequencies(ctx, "f", 0, &same, 10, &b));
    expect_ok(nn_get_frequencies(ctx, "f", 1, &rope, 8, &other));
    assert_true(a.id == b.id && a.id != other.id);
    expect_error(kb_rope_prepare(ctx, 2, &rope, 8), KB_ERR_INPUT,
                 "kb_rope_prepare: invalid device 2: there are 2");
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frequencies_are_powers_of_the_base),
        cmocka_unit_test(frequencies_are_scaled),
        cmocka_unit_test(invalid_values_are_refused),
        cmocka_unit_test(heads_are_rotated),
        cmocka_unit_test(frequencies_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
