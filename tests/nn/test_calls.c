/*
 * test_calls.c: calls of layers: errors, streams and graphs, runs without data, and races.
 */
#include <kernbench/tl.h>

#include "layouts.h"

static const machine_size small = {.sips = 2, .w = 2, .h = 1, .pes = 3};
static const kb_policy *const by_columns = &layouts[0], *const by_rows = &layouts[1];

static kb_tensor plain(kb_context *ctx, const char *name, kb_dtype dtype, kb_shape shape)
{
    return make_tensor(ctx, name, dtype, shape, by_columns, NULL);
}

/* ---- Errors ---- */

static void tensors_are_checked(void **unused)
{
    (void)unused;
    kb_context *ctx = open_checked(small);
    kb_tensor x = plain(ctx, "x", KB_BF16, KB_SHAPE(4, 6)), out = {0}, i8;
    kb_tensor wide = plain(ctx, "wide", KB_BF16, KB_SHAPE(4, 8)), host, far, freed;
    const kb_tensor_spec spec = {.name = "host", .shape = KB_SHAPE(1)};
    expect_ok(kb_from_host(ctx, &spec, (uint16_t[1]){0}, 2, &host));
    i8 = plain(ctx, "i8", KB_I8, KB_SHAPE(4, 6));
    expect_ok(kb_ahbm_set_device(ctx, 1));
    far = plain(ctx, "far", KB_BF16, KB_SHAPE(4, 6));
    expect_ok(kb_ahbm_set_device(ctx, 0));
    freed = plain(ctx, "freed", KB_BF16, KB_SHAPE(4, 6));
    expect_ok(kb_tensor_free(ctx, freed));

    expect_error(kb_gelu(ctx, &(kb_gelu_spec){0}, &out), KB_ERR_INPUT,
                 "kb_gelu: x: no tensor is given");
    expect_error(kb_gelu(ctx, &(kb_gelu_spec){.x = freed}, &out), KB_ERR_FAULT,
                 "kb_gelu: x: invalid or freed tensor handle");
    expect_error(
        kb_gelu(ctx, &(kb_gelu_spec){.x = host}, &out), KB_ERR_INPUT,
        "kb_gelu: x: tensor 'host' is on the host: copy it to a device first (kb_tensor_copy)");
    expect_error(kb_gelu(ctx, &(kb_gelu_spec){.x = i8}, &out), KB_ERR_INPUT,
                 "kb_gelu: x: tensor 'i8' is i8: expected f16, bf16 or f32");
    expect_error(kb_add(ctx, &(kb_add_spec){.a = x, .b = far}, &out), KB_ERR_INPUT,
                 "kb_add: b: tensor 'far' is on sip1: expected sip0");
    expect_error(kb_add(ctx, &(kb_add_spec){.a = x, .b = wide}, &out), KB_ERR_INPUT,
                 "kb_add: b: the size is (4, 8): expected (4, 6)");
    out = far;
    expect_error(kb_gelu(ctx, &(kb_gelu_spec){.x = x}, &out), KB_ERR_INPUT,
                 "kb_gelu: output: tensor 'far' is on sip1: expected sip0");
    out = wide;
    expect_error(kb_gelu(ctx, &(kb_gelu_spec){.x = x}, &out), KB_ERR_INPUT,
                 "kb_gelu: output: the size is (4, 8): expected (4, 6)");
    out = i8;
    expect_error(kb_gelu(ctx, &(kb_gelu_spec){.x = x}, &out), KB_ERR_INPUT,
                 "kb_gelu: output: tensor 'i8' is i8: expected f16, bf16 or f32");
    kb_context_destroy(ctx);
}

static void norms_are_checked(void **unused)
{
    (void)unused;
    kb_context *ctx = open_checked(small);
    kb_tensor x = plain(ctx, "x", KB_BF16, KB_SHAPE(4, 6));
    kb_tensor gain = plain(ctx, "gain", KB_BF16, KB_SHAPE(5));
    static const kb_policy by_cube = {.cube = KB_REPLICATE, .pe = KB_COLUMN_WISE};
    kb_norm_outputs made = {0};
    expect_error(kb_rms_norm(ctx, &(kb_norm_spec){.x = x, .gain = gain}, &made), KB_ERR_INPUT,
                 "kb_rms_norm: gain: the size is (1, 5): expected 6 elements in one row");
    expect_error(kb_rms_norm(ctx, &(kb_norm_spec){.x = x, .bias = gain}, &made), KB_ERR_INPUT,
                 "kb_rms_norm: a bias is given: kb_layer_norm() has one");
    expect_error(kb_rms_norm(ctx, &(kb_norm_spec){.x = x, .eps = -1}, &made), KB_ERR_INPUT,
                 "kb_rms_norm: eps is -1: expected at least 0");
    const kb_norm_spec wrong = {.x = x, .quantisation = (kb_quantisation)5};
    expect_error(kb_layer_norm(ctx, &wrong, &made), KB_ERR_INPUT,
                 "kb_layer_norm: invalid quantisation 5");
    made.sum = x;
    expect_error(kb_rms_norm(ctx, &(kb_norm_spec){.x = x}, &made), KB_ERR_INPUT,
                 "kb_rms_norm: a sum is given, but no residual");
    made = (kb_norm_outputs){.scales = x};
    expect_error(kb_rms_norm(ctx, &(kb_norm_spec){.x = x}, &made), KB_ERR_INPUT,
                 "kb_rms_norm: scales are given, but the output is not quantised");
    const kb_norm_spec quantised = {.x = x, .quantisation = KB_QUANTISED_I8};
    made = (kb_norm_outputs){.scales = plain(ctx, "scales", KB_F32, KB_SHAPE(3))};
    expect_error(kb_rms_norm(ctx, &quantised, &made), KB_ERR_INPUT,
                 "kb_rms_norm: scales: 3 elements: expected one for each of 4 rows");
    assert_int_equal(made.out.id, 0); /* it was made, and freed */
    made = (kb_norm_outputs){.out = x};
    expect_error(kb_rms_norm(ctx, &quantised, &made), KB_ERR_INPUT,
                 "kb_rms_norm: output: tensor 'x' is bf16: expected i8");
    made.out = make_tensor(ctx, "out", KB_BF16, KB_SHAPE(4, 6), &by_cube, NULL);
    expect_error(kb_rms_norm(ctx, &(kb_norm_spec){.x = x}, &made), KB_ERR_INPUT,
                 "kb_rms_norm: output: 2 copies: expected one, or one at each of the 6 PEs");
    made.out = make_tensor(ctx, "all", KB_BF16, KB_SHAPE(4, 6), &layouts[LAYOUTS - 1], NULL);
    made.sum = x;
    expect_error(kb_rms_norm(ctx, &(kb_norm_spec){.x = x, .residual = x}, &made), KB_ERR_INPUT,
                 "kb_rms_norm: the output has 6 copies and the sum 1: expected as many");
    kb_context_destroy(ctx);
}

static void other_layers_are_checked(void **unused)
{
    (void)unused;
    kb_context *ctx = open_checked(small);
    kb_tensor x = plain(ctx, "x", KB_BF16, KB_SHAPE(4, 7)), out = {0};
    kb_tensor ids = plain(ctx, "ids", KB_I32, KB_SHAPE(3));
    expect_error(kb_swiglu(ctx, &(kb_swiglu_spec){.gate = x}, &out), KB_ERR_INPUT,
                 "kb_swiglu: gate has 7 columns: expected pairs of columns (gate, up)");
    kb_rope_spec rope = {.x = x, .positions = ids, .head_dim = 2};
    expect_error(kb_rope_apply(ctx, &rope, &out), KB_ERR_INPUT,
                 "kb_rope_apply: x has 7 columns, which are not divisible by head_dim (2)");
    rope.head_dim = 7;
    expect_error(kb_rope_apply(ctx, &rope, &out), KB_ERR_INPUT,
                 "kb_rope_apply: there are 3 positions for 4 tokens");
    rope.positions = x;
    expect_error(kb_rope_apply(ctx, &rope, &out), KB_ERR_INPUT,
                 "kb_rope_apply: positions: tensor 'x' is bf16: expected i32");
    rope.positions = plain(ctx, "ids", KB_I32, KB_SHAPE(4));
    rope.rope.style = KB_ROPE_HALF_SPLIT;
    expect_error(kb_rope_apply(ctx, &rope, &out), KB_ERR_INPUT,
                 "kb_rope_apply: rope: 7 elements of a head are rotated: expected an even number "
                 "of at least 2");
    expect_error(kb_embedding(ctx, &(kb_embedding_spec){.table = x, .tokens = x}, &out),
                 KB_ERR_INPUT, "kb_embedding: tokens: tensor 'x' is bf16: expected i32");
    out = x;
    expect_error(kb_argmax(ctx, &(kb_argmax_spec){.logits = x}, &out), KB_ERR_INPUT,
                 "kb_argmax: output: tensor 'x' is bf16: expected i32");
    out = ids;
    expect_error(kb_argmax(ctx, &(kb_argmax_spec){.logits = x}, &out), KB_ERR_INPUT,
                 "kb_argmax: output: 3 elements: expected one for each of 4 rows");
    kb_context_destroy(ctx);
}

/* A token that the table does not have stops the kernel. */
static void unknown_tokens_are_faults(void **unused)
{
    (void)unused;
    static const double wrong[] = {5, -1};
    for (int i = 0; i < 2; i++) {
        kb_context *ctx = open_checked(small);
        kb_tensor table = plain(ctx, "table", KB_BF16, KB_SHAPE(5, 8)), out = {0};
        kb_tensor ids = make_tensor(ctx, "ids", KB_I32, KB_SHAPE(2), NULL, (double[]){4, wrong[i]});
        kb_error *err =
            kb_embedding(ctx, &(kb_embedding_spec){.table = table, .tokens = ids}, &out);
        assert_int_equal(kb_error_code(err), KB_ERR_FAULT);
        char expected[96];
        snprintf(expected, sizeof expected,
                 "token %d (element 1) is not in the table, which has 5 rows", (int)wrong[i]);
        if (!strstr(kb_error_message(err), expected))
            fail_msg("%s", kb_error_message(err));
        assert_int_equal(out.id, 0);
        kb_error_free(err);
        kb_context_destroy(ctx);
    }
}

/* ---- All layers, one behind the other ---- */

enum { ROWS = 70, COLUMNS = 48, VOCABULARY = 50, HEAD = 8 };

typedef struct chain {
    kb_tensor table, tokens, positions, gain, residual;
    kb_tensor x, rotated, activated, squashed, added, paired, largest;
    kb_norm_outputs normed, quantised;
} chain;

static chain make_chain(kb_context *ctx, const kb_policy *layout)
{
    static const kb_tensor_spec index = {.name = "tokens",
                                         .dtype = KB_I32,
                                         .shape = {1, {ROWS}},
                                         .access = KB_UNTIMED,
                                         .is_index = true};
    chain c = {0};
    double *table = random_numbers(1, VOCABULARY * COLUMNS, KB_BF16);
    int32_t ids[ROWS];
    for (int i = 0; i < ROWS; i++)
        ids[i] = i * 7 % VOCABULARY;
    kb_shape shape = KB_SHAPE(ROWS, COLUMNS);
    c.table = make_tensor(ctx, "table", KB_BF16, KB_SHAPE(VOCABULARY, COLUMNS), by_rows, table);
    expect_ok(kb_empty(ctx, &index, &c.tokens));
    expect_ok(kb_tensor_set_slice(ctx, c.tokens, KB_UNTIMED, NULL, ids, sizeof ids));
    c.positions = c.tokens;
    c.gain = make_tensor(ctx, "gain", KB_BF16, KB_SHAPE(COLUMNS), by_columns, table);
    c.residual = make_tensor(ctx, "residual", KB_BF16, shape, layout, NULL);
    kb_tensor *made[] = {&c.x,     &c.rotated,    &c.activated, &c.squashed,
                         &c.added, &c.normed.out, &c.normed.sum};
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++)
        *made[i] = make_tensor(ctx, "made", KB_BF16, shape, layout, NULL);
    c.paired = make_tensor(ctx, "paired", KB_BF16, KB_SHAPE(ROWS, COLUMNS / 2), layout, NULL);
    c.quantised.out = make_tensor(ctx, "q", KB_I8, shape, layout, NULL);
    c.quantised.scales = make_tensor(ctx, "scales", KB_F32, KB_SHAPE(ROWS), NULL, NULL);
    c.largest = make_tensor(ctx, "largest", KB_I32, KB_SHAPE(ROWS), NULL, NULL);
    free(table);
    return c;
}

static kb_error *run_chain(kb_context *ctx, chain *c, kb_stream stream)
{
    KB_TRY(kb_embedding(
        ctx, &(kb_embedding_spec){.table = c->table, .tokens = c->tokens, .stream = stream},
        &c->x));
    KB_TRY(kb_rms_norm(
        ctx, &(kb_norm_spec){.x = c->x, .residual = c->residual, .gain = c->gain, .stream = stream},
        &c->normed));
    KB_TRY(kb_rope_apply(ctx,
                         &(kb_rope_spec){.x = c->normed.out,
                                         .positions = c->positions,
                                         .head_dim = HEAD,
                                         .rope = {.style = KB_ROPE_HALF_SPLIT},
                                         .stream = stream},
                         &c->rotated));
    KB_TRY(kb_gelu(ctx, &(kb_gelu_spec){.x = c->rotated, .stream = stream}, &c->squashed));
    KB_TRY(kb_swiglu(ctx,
                     &(kb_swiglu_spec){.gate = c->squashed, .up = c->rotated, .stream = stream},
                     &c->activated));
    KB_TRY(kb_swiglu(ctx, &(kb_swiglu_spec){.gate = c->squashed, .stream = stream}, &c->paired));
    KB_TRY(kb_add(ctx, &(kb_add_spec){.a = c->activated, .b = c->normed.sum, .stream = stream},
                  &c->added));
    KB_TRY(kb_layer_norm(
        ctx, &(kb_norm_spec){.x = c->added, .quantisation = KB_QUANTISED_I8, .stream = stream},
        &c->quantised));
    return kb_argmax(ctx, &(kb_argmax_spec){.logits = c->added, .stream = stream}, &c->largest);
}

static const kb_tensor *results_of(const chain *c, size_t *count)
{
    static kb_tensor results[4];
    results[0] = c->largest;
    results[1] = c->quantised.out;
    results[2] = c->quantised.scales;
    results[3] = c->paired;
    *count = 4;
    return results;
}

static const size_t result_sizes[] = {ROWS, ROWS *COLUMNS, ROWS, ROWS *COLUMNS / 2};

static void read_results(kb_context *ctx, const chain *c, float *found[4])
{
    size_t count;
    const kb_tensor *results = results_of(c, &count);
    for (size_t i = 0; i < count; i++)
        found[i] = read_tensor(ctx, results[i], result_sizes[i]);
}

/* A graph has the same bits as the calls, each time it is launched. */
static void layers_are_recorded(void **unused)
{
    (void)unused;
    for (int layout = 0; layout < SINGLE_LAYOUTS; layout++) {
        kb_context *ctx = open_checked(small);
        chain calls = make_chain(ctx, &layouts[layout]);
        chain recorded = make_chain(ctx, &layouts[layout]);
        kb_graph graph;
        kb_stream stream;
        const kb_rope rope = {.style = KB_ROPE_HALF_SPLIT};
        expect_ok(kb_rope_prepare(ctx, 0, &rope, HEAD));
        expect_ok(kb_stream_create(ctx, "s", &stream));
        expect_ok(kb_graph_begin(ctx, "layers", &graph));
        expect_ok(run_chain(ctx, &recorded, stream));
        expect_ok(kb_graph_end(ctx, graph));
        expect_ok(run_chain(ctx, &calls, (kb_stream){0}));
        float *expected[4], *found[4];
        read_results(ctx, &calls, expected);
        for (int run = 0; run < 2; run++) {
            expect_ok(kb_graph_launch(ctx, graph, NULL));
            read_results(ctx, &recorded, found);
            for (int i = 0; i < 4; i++) {
                assert_memory_equal(found[i], expected[i], result_sizes[i] * sizeof(float));
                free(found[i]);
            }
        }
        for (int i = 0; i < 4; i++)
            free(expected[i]);
        kb_context_destroy(ctx);
    }
}

/* Recording installs queues and makes plans, if nothing was called before. */
static void layers_are_recorded_first(void **unused)
{
    (void)unused;
    kb_context *ctx = open_checked(small);
    chain c = make_chain(ctx, by_columns);
    kb_graph graph;
    const kb_rope rope = {.style = KB_ROPE_HALF_SPLIT};
    expect_ok(kb_rope_prepare(ctx, 0, &rope, HEAD));
    expect_ok(kb_graph_begin(ctx, "layers", &graph));
    expect_ok(run_chain(ctx, &c, (kb_stream){0}));
    expect_ok(kb_graph_end(ctx, graph));
    expect_ok(kb_graph_launch(ctx, graph, NULL));
    kb_context_destroy(ctx);
}

/* The simulated time is the same without data, as tokens and positions are an index tensor. */
static void times_do_not_depend_on_data(void **unused)
{
    (void)unused;
    for (int layout = 0; layout < SINGLE_LAYOUTS; layout++) {
        kb_time ends[2];
        for (int timing_only = 0; timing_only < 2; timing_only++) {
            kb_context *ctx =
                open_machine(small, (kb_context_options){.timing_only = timing_only == 1});
            chain c = make_chain(ctx, &layouts[layout]);
            expect_ok(run_chain(ctx, &c, (kb_stream){0}));
            ends[timing_only] = kb_context_now(ctx);
            kb_context_destroy(ctx);
        }
        assert_int_equal(ends[0], ends[1]);
    }
}

/* Tokens that a kernel would have computed are replaced by others in a run without data. */
static void tokens_may_be_unknown(void **unused)
{
    (void)unused;
    kb_context *ctx = open_machine(small, (kb_context_options){.timing_only = true});
    kb_tensor table = plain(ctx, "table", KB_BF16, KB_SHAPE(5, 8)), out = {0};
    kb_tensor ids = plain(ctx, "ids", KB_I32, KB_SHAPE(9));
    expect_ok(kb_embedding(ctx, &(kb_embedding_spec){.table = table, .tokens = ids}, &out));
    kb_context_destroy(ctx);
}

/* A call with a request does not wait. */
static void requests_are_waited_for(void **unused)
{
    (void)unused;
    kb_context *ctx = open_checked(small);
    kb_tensor x = plain(ctx, "x", KB_BF16, KB_SHAPE(4, 6)), out = {0};
    kb_request request = {0};
    kb_launch_result result;
    size_t count;
    const kb_gelu_spec spec = {.name = "mine", .x = x, .request = &request};
    expect_ok(kb_gelu(ctx, &spec, &out));
    expect_ok(kb_request_wait(ctx, request, NULL));
    expect_ok(kb_launch_results(ctx, request, &result, 1, &count));
    assert_string_equal(result.name, "mine");
    assert_int_equal(result.pes, 6);
    expect_ok(kb_request_free(ctx, request));
    kb_context_destroy(ctx);
}

/* Two streams without an event between them: the norm reads what the sum writes. */
static void races_are_found(void **unused)
{
    (void)unused;
    kb_context *ctx = open_checked(small);
    kb_tensor x = plain(ctx, "x", KB_BF16, KB_SHAPE(64, 60));
    kb_norm_outputs made = {.out = plain(ctx, "out", KB_BF16, KB_SHAPE(64, 60))};
    kb_stream a, b;
    kb_request first, second;
    expect_ok(kb_stream_create(ctx, "a", &a));
    expect_ok(kb_stream_create(ctx, "b", &b));
    const kb_add_spec add = {.a = x, .b = x, .stream = a, .request = &first};
    const kb_norm_spec norm = {.x = x, .stream = b, .request = &second};
    expect_ok(kb_add(ctx, &add, &x));
    kb_error *err = kb_rms_norm(ctx, &norm, &made);
    if (!err)
        err = kb_synchronize(ctx);
    assert_non_null(err);
    if (!strstr(kb_error_message(err), "race"))
        fail_msg("%s", kb_error_message(err));
    kb_error_free(err);
    kb_context_destroy(ctx);
}

/* Norms of two streams exchange statistics through the same queues, each time on all PEs. */
static void streams_do_not_mix_exchanges(void **unused)
{
    (void)unused;
    enum { CALLS = 12, COUNT = 70 * 48 };
    kb_context *ctx = open_checked(small);
    kb_stream streams[2];
    kb_tensor x[2], alone[2];
    double *numbers[2];
    kb_norm_outputs made[2][CALLS];
    memset(made, 0, sizeof made);
    for (int s = 0; s < 2; s++) {
        kb_norm_outputs once = {0};
        numbers[s] = random_numbers((uint64_t)s, COUNT, KB_F32);
        for (int i = 0; s == 1 && i < COUNT; i++)
            numbers[s][i] *= i / 48;
        expect_ok(kb_stream_create(ctx, s ? "b" : "a", &streams[s]));
        x[s] = make_tensor(ctx, "x", KB_F32, KB_SHAPE(70, 48), by_columns, numbers[s]);
        expect_ok(kb_layer_norm(ctx, &(kb_norm_spec){.x = x[s]}, &once));
        alone[s] = once.out;
    }
    for (int i = 0; i < 2 * CALLS; i++) {
        kb_request request;
        int s = i * 7 % 5 % 2; /* in no regular order */
        const kb_norm_spec spec = {.x = x[s], .stream = streams[s], .request = &request};
        expect_ok(kb_layer_norm(ctx, &spec, &made[s][i / 2]));
        expect_ok(kb_request_free(ctx, request));
    }
    expect_ok(kb_synchronize(ctx));
    for (int s = 0; s < 2; s++) {
        float *expected = read_tensor(ctx, alone[s], COUNT);
        for (int i = 0; i < CALLS; i++) {
            if (made[s][i].out.id == 0)
                continue;
            float *found = read_tensor(ctx, made[s][i].out, COUNT);
            assert_memory_equal(found, expected, COUNT * sizeof *found);
            free(found);
        }
        free(expected);
        free(numbers[s]);
    }
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_checked),          cmocka_unit_test(norms_are_checked),
        cmocka_unit_test(other_layers_are_checked),     cmocka_unit_test(unknown_tokens_are_faults),
        cmocka_unit_test(layers_are_recorded),          cmocka_unit_test(layers_are_recorded_first),
        cmocka_unit_test(times_do_not_depend_on_data),  cmocka_unit_test(tokens_may_be_unknown),
        cmocka_unit_test(requests_are_waited_for),      cmocka_unit_test(races_are_found),
        cmocka_unit_test(streams_do_not_mix_exchanges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
