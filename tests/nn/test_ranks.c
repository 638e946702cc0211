/* test_ranks.c: the argmax of logits that are split over ranks, against a plain loop. */
#include "layouts.h"
#include "tp/tp_ranks.h"

enum { RANKS = 3, ROWS = 37, PART = 50, ALL = RANKS * PART };

/* Few different numbers: the largest are on several ranks. */
static void fill(double *logits)
{
    for (int i = 0; i < ROWS * ALL; i++)
        logits[i] = small_integer(3, (uint64_t)i);
    logits[5 * ALL + 120] = (double)NAN;
    logits[5 * ALL + 70] = (double)NAN;
    for (int i = 0; i < ALL; i++)
        logits[6 * ALL + i] = -(double)INFINITY;
}

static int expected_of(const double *row)
{
    int best = 0;
    for (int i = 0; i < ALL; i++) {
        if (isnan(row[i]))
            return i;
        if (row[i] > row[best])
            best = i;
    }
    return best;
}

static void expect_columns_of(kb_context *ctx, kb_tensor out, const double *logits)
{
    float *found = read_tensor(ctx, out, ROWS);
    for (int row = 0; row < ROWS; row++)
        assert_int_equal((int)found[row], expected_of(logits + (ptrdiff_t)row * ALL));
    free(found);
}

static kb_error *search(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    double *logits = malloc(sizeof *logits * ROWS * ALL), *own = malloc(sizeof *own * ROWS * PART);
    assert_non_null(logits);
    assert_non_null(own);
    fill(logits);
    for (int i = 0; i < ROWS * PART; i++)
        own[i] = logits[i / PART * ALL + (int)rank * PART + i % PART];
    KB_TRY(join_ranks(ctx, rank, RANKS));
    for (int i = 0; i < LAYOUTS; i++) {
        kb_tensor out = {0}, again, t;
        kb_graph graph;
        t = make_tensor(ctx, "logits", floats[i % 3], KB_SHAPE(ROWS, PART), &layouts[i], own);
        again = make_tensor(ctx, "again", KB_I32, KB_SHAPE(ROWS), &layouts[i], NULL);
        const kb_argmax_spec spec = {.logits = t};
        KB_TRY(kb_vocab_parallel_argmax(ctx, &spec, &out));
        expect_columns_of(ctx, out, logits);
        KB_TRY(kb_graph_begin(ctx, "argmax", &graph));
        KB_TRY(kb_vocab_parallel_argmax(ctx, &spec, &again));
        KB_TRY(kb_graph_end(ctx, graph));
        KB_TRY(kb_graph_launch(ctx, graph, NULL));
        expect_columns_of(ctx, again, logits);
        KB_TRY(kb_tensor_free(ctx, out));
    }
    free(logits);
    free(own);
    return NULL;
}

static void ranks_agree_on_the_largest(void **unused)
{
    (void)unused;
    kb_context *ctx = open_checked((machine_size){.sips = RANKS, .w = 2, .h = 1, .pes = 3});
    expect_ok(kb_spawn(ctx, search, NULL, RANKS));
    kb_context_destroy(ctx);
}

/* Without other ranks it is kb_argmax(). */
static kb_error *search_alone(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)arg;
    kb_tensor out = {0};
    kb_request request;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    kb_tensor t =
        make_tensor(ctx, "logits", KB_F32, KB_SHAPE(1, 4), &layouts[0], (double[]){1, 3, 2, 3});
    kb_argmax_spec spec = {.logits = t};
    kb_error *err = kb_vocab_parallel_argmax(ctx, &spec, &out);
    assert_non_null(strstr(kb_error_message(err), "kb_vocab_parallel_argmax: "));
    kb_error_free(err);
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    KB_TRY(kb_tp_initialize_model_parallel(ctx, 1));
    KB_TRY(kb_vocab_parallel_argmax(ctx, &spec, &out));
    float *found = read_tensor(ctx, out, 1);
    assert_true(found[0] == 1);
    free(found);
    spec.request = &request;
    expect_error(kb_vocab_parallel_argmax(ctx, &spec, &out), KB_ERR_INPUT,
                 "kb_vocab_parallel_argmax: a request is given: the call waits");
    return NULL;
}

static void one_rank_needs_no_others(void **unused)
{
    (void)unused;
    kb_context *ctx = open_checked((machine_size){.sips = 2, .w = 1, .h = 1, .pes = 2});
    expect_ok(kb_spawn(ctx, search_alone, NULL, 2));
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_agree_on_the_largest),
        cmocka_unit_test(one_rank_needs_no_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
