/*
 * test_layer_errors.c: specs and outputs that layers refuse, calls that graphs cannot contain, and
 * layers that are not freed, or freed while a graph still needs them.
 */
#include "tp_ranks.h"

static const machine_size two_sips = {.sips = 2, .w = 1, .h = 1, .pes = 2};
static const kb_policy columns = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
static const double zeros[64];

static void run_workers(kb_worker_fn *work)
{
    kb_context *ctx = open_machine(two_sips, (kb_context_options){0});
    expect_ok(kb_spawn(ctx, work, NULL, 2));
    kb_context_destroy(ctx);
}

/* ---- Specs ---- */

static void expect_no_column(kb_context *ctx, kb_tp_linear_spec spec, const char *message)
{
    kb_tp_layer layer = {1};
    char text[512];
    snprintf(text, sizeof text, "kb_column_parallel_linear_create: %s", message);
    expect_error(kb_column_parallel_linear_create(ctx, &spec, &layer), KB_ERR_INPUT, text);
    assert_int_equal(layer.id, 0);
}

static kb_error *make_wrong_layers(kb_context *ctx, uint32_t rank, void *unused)
{
    (void)unused;
    KB_TRY(join_ranks(ctx, rank, 2));
    kb_tp_linear_spec spec = {.name = "up", .in_features = 4, .out_features = 0};
    expect_no_column(ctx, spec, "in_features is 4 and out_features is 0: both must be at least 1");
    spec.out_features = 8;
    spec.dtype = KB_DTYPES;
    expect_no_column(ctx, spec, "invalid dtype 7");
    spec.dtype = KB_F16;
    spec.input_is_parallel = (kb_tp_choice)3;
    expect_no_column(ctx, spec,
                     "invalid input_is_parallel 3: expected KB_TP_DEFAULT, KB_TP_NO or KB_TP_YES");
    spec.input_is_parallel = KB_TP_DEFAULT;
    spec.batch = UINT64_MAX;
    expect_no_column(ctx, spec,
                     "batch (18446744073709551615) is larger than the maximum 4294967295");
    spec.batch = 0;
    const kb_tensor_spec cube = {.name = "w", .shape = KB_SHAPE(2, 2, 8)};
    KB_TRY(kb_from_host(ctx, &cube, zeros, 64, &spec.weight));
    expect_no_column(ctx, spec,
                     "layer 'up': the weight 'w' has 3 dimensions: expected a matrix (4, 8), or "
                     "the rank's part (4, 4)");
    spec.seed = 1;
    expect_no_column(ctx, spec, "both weights and a seed are given");
    spec.weight = (kb_tensor){0};
    spec.bias_values = make_host_tensor(ctx, KB_F32, KB_SHAPE(8), zeros);
    expect_no_column(ctx, spec, "bias values are given, but bias is false");
    spec.bias = true;
    expect_no_column(ctx, spec, "layer 'up': the bias is f32, but the layer is f16");
    return NULL;
}

static void wrong_specs_are_refused(void **unused)
{
    (void)unused;
    run_workers(make_wrong_layers);
}

/* ---- Calls ---- */

static kb_error *call_wrongly(kb_context *ctx, uint32_t rank, void *unused)
{
    (void)unused;
    KB_TRY(join_ranks(ctx, rank, 2));
    const kb_tp_linear_spec spec = {
        .name = "up", .in_features = 4, .out_features = 8, .bias = true, .seed = 1};
    kb_tp_layer layer, down;
    KB_TRY(kb_column_parallel_linear_create(ctx, &spec, &layer));
    kb_tensor x = make_tensor(ctx, "x", KB_F16, KB_SHAPE(4, 4), &columns, zeros), out = x;
    expect_error(kb_column_parallel_linear_forward(ctx, layer, x, &out), KB_ERR_INPUT,
                 "kb_column_parallel_linear_forward: the output is the same tensor as the input of "
                 "layer 'up': pass another tensor, or {0} for a new one");
    KB_TRY(kb_tp_layer_weight(ctx, layer, &out)); /* (4, 4) too */
    expect_error(kb_column_parallel_linear_forward(ctx, layer, x, &out), KB_ERR_INPUT,
                 "kb_column_parallel_linear_forward: the output is the same tensor as the weight "
                 "of layer 'up': pass another tensor, or {0} for a new one");
    const kb_tp_linear_spec square = {.name = "down", .in_features = 8, .out_features = 4};
    KB_TRY(kb_row_parallel_linear_create(ctx, &square, &down));
    out = x;
    expect_error(kb_row_parallel_linear_forward(ctx, down, x, &out), KB_ERR_INPUT,
                 "kb_row_parallel_linear_forward: the output is the same tensor as the input of "
                 "layer 'down': pass another tensor, or {0} for a new one");
    return NULL;
}

static void wrong_calls_are_refused(void **unused)
{
    (void)unused;
    run_workers(call_wrongly);
}

static kb_error *free_a_recorded_layer(kb_context *ctx, uint32_t rank, void *unused)
{
    (void)unused;
    KB_TRY(join_ranks(ctx, rank, 2));
    const kb_tp_linear_spec spec = {.name = "up", .in_features = 4, .out_features = 8};
    kb_tp_layer layer;
    kb_tensor x = make_tensor(ctx, "x", KB_F16, KB_SHAPE(4, 4), &columns, zeros), out = {0};
    kb_graph graph;
    KB_TRY(kb_column_parallel_linear_create(ctx, &spec, &layer));
    KB_TRY(kb_column_parallel_linear_forward(ctx, layer, x, &out));
    KB_TRY(kb_graph_begin(ctx, "step", &graph));
    KB_TRY(kb_column_parallel_linear_forward(ctx, layer, x, &out));
    KB_TRY(kb_graph_end(ctx, graph));
    KB_TRY(kb_tp_layer_free(ctx, layer));
    kb_error *err = kb_graph_launch(ctx, graph, NULL);
    assert_non_null(strstr(kb_error_message(err), "graph 'step', node 0 ('up')"));
    assert_non_null(strstr(kb_error_message(err), "the tensor was freed"));
    kb_error_free(err);
    return kb_graph_free(ctx, graph);
}

static void graphs_of_freed_layers_do_not_run(void **unused)
{
    (void)unused;
    run_workers(free_a_recorded_layer);
}

/* Calls that free a tensor which the graph would need. */
static kb_error *record_temporaries(kb_context *ctx, uint32_t rank, void *unused)
{
    (void)unused;
    KB_TRY(join_ranks(ctx, rank, 2));
    const kb_tp_embedding_spec table = {.num_embeddings = 8, .embedding_dim = 4};
    kb_tp_layer layer;
    kb_tensor spread = make_tensor(ctx, "spread", KB_I32, KB_SHAPE(4), &columns, zeros),
              packed = make_tensor(ctx, "packed", KB_I32, KB_SHAPE(4), NULL, zeros),
              logits = make_tensor(ctx, "logits", KB_F32, KB_SHAPE(4, 4), &columns, zeros),
              out = {0};
    kb_graph graph;
    KB_TRY(kb_vocab_parallel_embedding_create(ctx, &table, &layer));
    KB_TRY(kb_graph_begin(ctx, "step", &graph));
    expect_error(kb_vocab_parallel_embedding_forward(ctx, layer, spread, &out), KB_ERR_FAULT,
                 "kb_vocab_parallel_embedding_forward: a graph is being recorded, which cannot "
                 "contain a tensor that is freed when this call returns: keep the indices on one "
                 "PE (no policy)");
    expect_error(kb_vocab_parallel_cross_entropy(ctx, logits, packed, &out), KB_ERR_FAULT,
                 "kb_vocab_parallel_cross_entropy: a graph is being recorded, which cannot contain "
                 "a tensor that is freed when this call returns: call it outside the graph");
    expect_error(kb_gather_from_tensor_model_parallel_region(ctx, logits, &out), KB_ERR_FAULT,
                 "kb_gather_from_tensor_model_parallel_region: a graph is being recorded, which "
                 "cannot contain a tensor that is freed when this call returns: call it outside "
                 "the graph, or use gather_output of a layer");
    assert_int_equal(out.id, 0);
    KB_TRY(kb_vocab_parallel_embedding_forward(ctx, layer, packed, &out));
    KB_TRY(kb_graph_end(ctx, graph));
    KB_TRY(kb_graph_launch(ctx, graph, NULL));
    return kb_graph_free(ctx, graph);
}

static void graphs_refuse_temporary_tensors(void **unused)
{
    (void)unused;
    run_workers(record_temporaries);
}

/* ---- Ranks that do not match ---- */

typedef struct mismatch {
    uint64_t rows[2]; /* by rank */
    uint32_t overlap[2];
} mismatch;

static kb_error *multiply_differently(kb_context *ctx, uint32_t rank, void *arg)
{
    const mismatch *is = arg;
    KB_TRY(join_ranks(ctx, rank, 2));
    const kb_tp_linear_spec spec = {
        .in_features = 128, .out_features = 96, .overlap = is->overlap[rank]};
    kb_tp_layer layer;
    kb_tensor x = make_tensor(ctx, "x", KB_F16, KB_SHAPE(4, 64), &columns, NULL), out = {0},
              other = make_tensor(ctx, "x", KB_F16, KB_SHAPE(is->rows[rank], 64), &columns, NULL);
    KB_TRY(kb_row_parallel_linear_create(ctx, &spec, &layer));
    if (is->overlap[0] == is->overlap[1])
        for (int pass = 0; pass < 3; pass++)
            KB_TRY(kb_row_parallel_linear_forward(ctx, layer, x, &out));
    out = (kb_tensor){0};
    return kb_row_parallel_linear_forward(ctx, layer, other, &out);
}

/* Their kernels would wait for each other for ever, or take parts of another size. */
static void ranks_that_overlap_have_to_match(void **unused)
{
    (void)unused;
    static const struct {
        mismatch is;
        const char *message; /* of the rank that comes second; NULL: they match */
    } cases[] = {
        {{.rows = {4, 3}, .overlap = {2, 2}}, "(4, 64) * (64, 96) f16 in 2 chunks"},
        {{.rows = {4, 4}, .overlap = {2, 3}}, "(4, 64) * (64, 96) f16 in 3 chunks"},
        {{.rows = {9, 9}, .overlap = {2, 2}}, NULL},
    };
    kb_context *ctx = open_machine(two_sips, (kb_context_options){0});
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        mismatch is = cases[i].is;
        kb_error *err = kb_spawn(ctx, multiply_differently, &is, 2);
        if (!cases[i].message) {
            expect_ok(err);
            continue;
        }
        assert_int_equal(kb_error_code(err), KB_ERR_INPUT);
        assert_non_null(strstr(kb_error_message(err), "ranks of a tensor parallel group do not "
                                                      "match: rank "));
        assert_non_null(strstr(kb_error_message(err), cases[i].message));
        kb_error_free(err);
    }
    kb_context_destroy(ctx);
}

/* ---- Debug mode ---- */

static void append_warning(void *self, const char *text)
{
    char *all = self;
    size_t length = strlen(all);
    snprintf(all + length, 512 - length, "%s\n", text);
}

static kb_error *leave_a_layer(kb_context *ctx, uint32_t rank, void *unused)
{
    (void)unused;
    KB_TRY(join_ranks(ctx, rank, 2));
    const kb_tp_linear_spec spec = {.name = "up", .in_features = 4, .out_features = 8};
    kb_tp_layer layer, freed;
    KB_TRY(kb_column_parallel_linear_create(ctx, &spec, &freed));
    if (rank == 1)
        KB_TRY(kb_column_parallel_linear_create(ctx, &spec, &layer));
    return kb_tp_layer_free(ctx, freed);
}

static void debug_mode_reports_layers_that_were_not_freed(void **unused)
{
    (void)unused;
    char warnings[512] = "";
    kb_context *ctx = open_machine(two_sips, (kb_context_options){.debug = true,
                                                                  .on_warning = append_warning,
                                                                  .on_warning_self = warnings});
    expect_ok(kb_spawn(ctx, leave_a_layer, NULL, 2));
    kb_context_destroy(ctx);
    assert_string_equal(warnings, "context destroyed: layer 'up' on sip1 was not freed\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_specs_are_refused),
        cmocka_unit_test(wrong_calls_are_refused),
        cmocka_unit_test(graphs_of_freed_layers_do_not_run),
        cmocka_unit_test(graphs_refuse_temporary_tensors),
        cmocka_unit_test(ranks_that_overlap_have_to_match),
        cmocka_unit_test(debug_mode_reports_layers_that_were_not_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
