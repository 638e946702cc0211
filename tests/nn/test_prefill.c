/*
 * test_prefill.c: prompts that are appended to a cache and attend to it, compared with a
 * double-precision reference. Data races are errors.
 */
#include "prompts.h"
#include "support/seed.h"

/* ---- Random cases ---- */

static kb_policy draw_policy(kb_rng *rng)
{
    static const kb_policy policies[] = {
        {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE},
        {.cube = KB_ROW_WISE, .pe = KB_ROW_WISE},
        {.cube = KB_COLUMN_WISE, .pe = KB_ROW_WISE},
        {.tiling = KB_TILED_ROW_MAJOR, .tile_rows = 5, .tile_columns = 7},
        {.num_cubes = 1, .num_pes = 1},
    };
    return policies[draw(rng, 0, 4)];
}

/* Small, so that the reference is fast. Some are empty, some are one token. */
static prompt_case draw_case(kb_rng *rng, kb_policy policies[3])
{
    static const kb_dtype dtypes[] = {KB_F16, KB_BF16, KB_F32};
    prompt_case c = {.cache = {.batch = draw(rng, 1, 4),
                               .kv_heads = draw(rng, 1, 5),
                               .head_dim = draw(rng, 1, 24),
                               .dtype = dtypes[draw(rng, 0, 2)],
                               .page_tokens = draw(rng, 0, 1) * draw(rng, 1, 40)},
                     .prompt = draw(rng, 1, 60),
                     .seed = draw(rng, 1, 1000)};
    c.cache.heads = c.cache.kv_heads * draw(rng, 1, 5);
    c.cache.capacity = c.prompt + draw(rng, 0, 100);
    c.cache.page_seed = c.cache.page_tokens > 0 ? draw(rng, 0, 3) : 0;
    if (c.cache.head_dim % 2 == 0)
        c.cache.rope = (kb_rope){.style = (kb_rope_style)draw(rng, 0, 2),
                                 .dims = draw(rng, 0, c.cache.head_dim / 2) * 2};
    for (uint32_t b = 0; b < c.cache.batch; b++) {
        bool is_full = draw(rng, 0, 2) == 0;
        c.added[b] = is_full ? c.prompt : draw(rng, 0, c.prompt);
        c.cached[b] = draw(rng, 0, 1) * draw(rng, 0, c.cache.capacity - c.added[b]);
    }
    c.window = draw(rng, 0, 2) == 0 ? draw(rng, 1, 50) : 0;
    c.scale = draw(rng, 0, 3) == 0 ? 0.7 : 0;
    c.further_scale = draw(rng, 0, 3) == 0 ? 1.3 : 0;
    c.in_place = draw(rng, 0, 2) == 0;
    c.out_by_cube = draw(rng, 0, 3) == 0;
    for (int i = 0; i < 3; i++)
        policies[i] = draw_policy(rng);
    c.qkv_policy = &policies[0];
    c.q_policy = &policies[1];
    c.out_policy = &policies[2];
    return c;
}

static void run_and_check(kb_context *ctx, const prompt_case *c)
{
    prompt_tensors t = make_prompt(ctx, c);
    expect_ok(run_prompt(ctx, c, &t));
    check_prompt(ctx, c, &t);
    free_prompt(ctx, &t);
}

static void random_prompts_are_right(void **unused)
{
    (void)unused;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(11));
    for (int i = 0; i < 150; i++) {
        kb_policy policies[3];
        prompt_case c = draw_case(&rng, policies);
        kb_context *ctx = open_checked(attention_machines[i % ATTENTION_MACHINES], false);
        if (getenv("KB_TEST_PRINT"))
            printf("case %d: batch %u, heads %u/%u of %u, prompt %u, capacity %u, pages %u\n", i,
                   c.cache.batch, c.cache.heads, c.cache.kv_heads, c.cache.head_dim, c.prompt,
                   c.cache.capacity, c.cache.page_tokens);
        run_and_check(ctx, &c);
        kb_context_destroy(ctx);
    }
}

/* ---- Sizes ---- */

/* TCMs of 64 to 512 KiB: blocks and tiles are small, and keys are several chunks. */
static void small_memories_need_several_chunks(void **unused)
{
    (void)unused;
    static const char *const tcms[] = {", pe_tcm: { capacity_mib: 1, reserved_mib: 0.9375 }",
                                       ", pe_tcm: { capacity_mib: 1, reserved_mib: 0.875 }",
                                       ", pe_tcm: { capacity_mib: 1, reserved_mib: 0.5 }"};
    kb_rng rng;
    kb_rng_init(&rng, test_seed(12));
    for (int i = 0; i < 60; i++) {
        kb_policy policies[3];
        prompt_case c = draw_case(&rng, policies);
        machine_size size = attention_machines[i % ATTENTION_MACHINES];
        size.cube_extra = tcms[i % 3];
        c.cache.capacity += draw(&rng, 0, 1) * 400;
        c.cached[0] = c.cache.capacity - c.added[0];
        kb_context *ctx = open_checked(size, false);
        run_and_check(ctx, &c);
        kb_context_destroy(ctx);
    }
}

/* Sizes beyond those of random cases. */
static void large_shapes_are_right(void **unused)
{
    (void)unused;
    static const struct {
        uint32_t heads, kv_heads, head_dim, batch, prompt, cached, page_tokens, window;
    } shapes[] = {
        {8, 1, 200, 1, 40, 0, 0, 0},      /* a head is wider than the matrix engine */
        {2, 2, 129, 2, 33, 200, 16, 0},   /* and odd */
        {300, 1, 4, 1, 6, 5, 0, 0},       /* more query heads of a kv head than rows of a block */
        {2, 1, 8, 70, 3, 4, 0, 0},        /* more sequences than are read at a time */
        {40, 20, 6, 1, 17, 9, 5, 0},      /* more kv heads than PEs */
        {4, 2, 16, 1, 700, 0, 0, 0},      /* several tiles */
        {4, 2, 16, 1, 300, 900, 64, 250}, /* a window that ends in the middle of tiles */
        {4, 1, 16, 2, 5, 4000, 1, 0},     /* pages of one token */
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        for (int machine = 1; machine < 4; machine++) {
            prompt_case c = {.cache = {.batch = shapes[i].batch,
                                       .capacity = shapes[i].prompt + shapes[i].cached,
                                       .heads = shapes[i].heads,
                                       .kv_heads = shapes[i].kv_heads,
                                       .head_dim = shapes[i].head_dim,
                                       .dtype = i % 2 ? KB_BF16 : KB_F32,
                                       .page_tokens = shapes[i].page_tokens,
                                       .page_seed = shapes[i].page_tokens > 0},
                             .prompt = shapes[i].prompt,
                             .window = shapes[i].window,
                             .qkv_policy = &by_rows,
                             .q_policy = &by_rows,
                             .seed = i};
            if (c.cache.head_dim % 2 == 0)
                c.cache.rope.style = KB_ROPE_HALF_SPLIT;
            for (uint32_t b = 0; b < c.cache.batch; b++) {
                c.cached[b] = shapes[i].cached;
                c.added[b] = b % 3 == 2 ? 0 : c.prompt;
            }
            kb_context *ctx = open_checked(attention_machines[machine], false);
            run_and_check(ctx, &c);
            kb_context_destroy(ctx);
        }
}

/* Large scores: exponentials of others than the largest are 0, and nothing overflows. */
static void large_scores_do_not_overflow(void **unused)
{
    (void)unused;
    prompt_case c = {.cache = {.batch = 1,
                               .capacity = 90,
                               .heads = 4,
                               .kv_heads = 2,
                               .head_dim = 16,
                               .dtype = KB_F32},
                     .prompt = 90,
                     .added = {90},
                     .scale = 300,
                     .seed = 5};
    machine_size size = attention_machines[1];
    size.cube_extra = ", pe_tcm: { capacity_mib: 1, reserved_mib: 0.9375 }";
    kb_context *ctx = open_checked(size, false);
    prompt_tensors t = make_prompt(ctx, &c);
    expect_ok(run_prompt(ctx, &c, &t));
    float *out = read_tensor(ctx, t.out, rows_of(&c) * width_of(&c, false));
    for (size_t i = 0; i < rows_of(&c) * width_of(&c, false); i++)
        assert_true(out[i] >= -1 && out[i] <= 1); /* between the values */
    free(out);
    free_prompt(ctx, &t);
    kb_context_destroy(ctx);
}

/* ---- Parts, graphs, streams ---- */

static prompt_case usual_case(void)
{
    return (prompt_case){.cache = {.batch = 2,
                                   .capacity = 96,
                                   .heads = 8,
                                   .kv_heads = 2,
                                   .head_dim = 16,
                                   .dtype = KB_F32,
                                   .page_tokens = 16,
                                   .page_seed = 1,
                                   .rope = {.style = KB_ROPE_HALF_SPLIT}},
                         .prompt = 40,
                         .cached = {3, 0},
                         .added = {40, 25},
                         .seed = 9};
}

/* A prompt in two parts has the same results as in one: the second part sees the first. */
static void a_prompt_in_parts_is_the_same(void **unused)
{
    (void)unused;
    prompt_case whole = usual_case();
    whole.cache.batch = 1;
    kb_context *ctx = open_checked(attention_machines[2], false);
    prompt_tensors t = make_prompt(ctx, &whole);
    expect_ok(run_prompt(ctx, &whole, &t));
    size_t width = width_of(&whole, false), all = width_of(&whole, true);
    float *expected = read_tensor(ctx, t.out, rows_of(&whole) * width);
    double *numbers = t.numbers;
    t.numbers = NULL;
    free_prompt(ctx, &t);

    prompt_case part = whole;
    part.prompt = part.added[0] = 15;
    t = make_prompt(ctx, &part);
    for (uint32_t first = 0; first < whole.prompt; first += part.prompt) {
        uint32_t count = whole.prompt - first < 15 ? whole.prompt - first : 15;
        void *rows = convert_numbers(KB_F32, numbers + first * all, count * all);
        expect_ok(kb_tensor_set_slice(ctx, t.qkv, KB_UNTIMED, &KB_SLICE({0, count}), rows,
                                      count * all * sizeof(float)));
        free(rows);
        part.cached[0] = whole.cached[0] + first;
        part.added[0] = count;
        expect_ok(kb_kv_cache_set_lengths(ctx, t.cache, part.cached, part.added));
        expect_ok(run_prompt(ctx, &part, &t));
        float *found = read_tensor(ctx, t.out, rows_of(&part) * width);
        for (size_t i = 0; i < count * width; i++)
            expect_number("result", 0, first + i / width, i % width, (double)found[i],
                          (double)expected[first * width + i], 1e-5);
        free(found);
    }
    free(expected);
    free(numbers);
    free_prompt(ctx, &t);
    kb_context_destroy(ctx);
}

/* A graph that was recorded once works for other lengths, which its kernels read. */
static void a_graph_is_launched_with_other_lengths(void **unused)
{
    (void)unused;
    prompt_case c = usual_case();
    kb_context *ctx = open_checked(attention_machines[3], false);
    kb_graph graph;
    prompt_tensors t = make_prompt(ctx, &c);
    expect_ok(kb_rope_prepare(ctx, 0, &c.cache.rope, c.cache.head_dim));
    expect_ok(kb_graph_begin(ctx, "prefill", &graph));
    expect_ok(run_prompt(ctx, &c, &t));
    expect_ok(kb_graph_end(ctx, graph));
    for (uint32_t run = 0; run < 3; run++) {
        c.cached[0] = 7 * run;
        c.added[0] = 40 - 13 * run;
        c.added[1] = 20 * run;
        expect_ok(kb_kv_cache_set_lengths(ctx, t.cache, c.cached, c.added));
        fill_cache(ctx, &c, t.cache);
        expect_ok(kb_graph_launch(ctx, graph, NULL));
        check_prompt(ctx, &c, &t);
    }
    expect_ok(kb_graph_free(ctx, graph));
    free_prompt(ctx, &t);
    kb_context_destroy(ctx);
}

/* The two calls follow each other in a stream, without waiting on the host. */
static void calls_follow_each_other_in_a_stream(void **unused)
{
    (void)unused;
    prompt_case c = usual_case();
    kb_context *ctx = open_checked(attention_machines[4], false);
    kb_stream stream;
    kb_request requests[2];
    prompt_tensors t = make_prompt(ctx, &c);
    expect_ok(kb_stream_create(ctx, NULL, &stream));
    const kb_kv_append_spec append = {
        .cache = t.cache, .qkv = t.qkv, .q = t.q, .stream = stream, .request = &requests[0]};
    const kb_attention_prefill_spec attention = {
        .cache = t.cache, .q = t.q, .out = t.out, .stream = stream, .request = &requests[1]};
    expect_ok(kb_kv_append(ctx, &append));
    expect_ok(kb_attention_prefill(ctx, &attention));
    for (int i = 0; i < 2; i++) {
        expect_ok(kb_request_wait(ctx, requests[i], NULL));
        expect_ok(kb_request_free(ctx, requests[i]));
    }
    check_prompt(ctx, &c, &t);
    expect_ok(kb_stream_destroy(ctx, stream));
    free_prompt(ctx, &t);
    kb_context_destroy(ctx);
}

/* ---- Time ---- */

static kb_time time_of(machine_size size, const prompt_case *c, bool timing_only)
{
    kb_context *ctx = open_checked(size, timing_only);
    prompt_tensors t = make_prompt(ctx, c);
    expect_ok(run_prompt(ctx, c, &t));
    kb_time time = kb_context_now(ctx);
    free_prompt(ctx, &t);
    kb_context_destroy(ctx);
    return time;
}

static void time_is_the_same_without_data(void **unused)
{
    (void)unused;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(13));
    for (int i = 0; i < 25; i++) {
        kb_policy policies[3];
        prompt_case c = draw_case(&rng, policies);
        machine_size size = attention_machines[i % ATTENTION_MACHINES];
        assert_int_equal(time_of(size, &c, false), time_of(size, &c, true));
    }
}

/* ---- Errors ---- */

static void invalid_values_are_refused(void **unused)
{
    (void)unused;
    static const kb_policy copies = {.cube = KB_REPLICATE, .pe = KB_REPLICATE};
    prompt_case c = usual_case();
    kb_context *ctx = open_machine((machine_size){2, 1, 1, 2, NULL, NULL}, (kb_context_options){0});
    prompt_tensors t = make_prompt(ctx, &c);
    kb_tensor narrow = make_tensor(ctx, "narrow", KB_F32, KB_SHAPE(80, 100), &by_rows, NULL);
    kb_tensor odd = make_tensor(ctx, "odd", KB_F32, KB_SHAPE(81, 128), &by_rows, NULL);
    kb_tensor half = make_tensor(ctx, "half", KB_F16, KB_SHAPE(80, 128), &by_rows, NULL);
    kb_tensor few = make_tensor(ctx, "few", KB_F32, KB_SHAPE(60, 128), &by_rows, NULL);
    kb_tensor all = make_tensor(ctx, "all", KB_F32, KB_SHAPE(80, 128), &copies, NULL);
    expect_ok(kb_ahbm_set_device(ctx, 1));
    kb_tensor far = make_tensor(ctx, "far", KB_F32, KB_SHAPE(80, 128), &by_rows, NULL);

    kb_kv_append_spec append = {.cache = t.cache, .qkv = t.qkv, .q = t.q};
    kb_attention_prefill_spec attention = {.cache = t.cache, .q = t.q, .out = t.out};
    append.qkv = narrow;
    expect_error(kb_kv_append(ctx, &append), KB_ERR_INPUT,
                 "kb_kv_append: qkv is (80, 100): expected a multiple of 2 rows, one part for each "
                 "sequence of the cache, and 192 columns");
    append.qkv = t.qkv;
    append.q = few;
    expect_error(kb_kv_append(ctx, &append), KB_ERR_INPUT,
                 "kb_kv_append: qkv has 80 rows and q 60: expected the same");
    append.q = all;
    expect_error(kb_kv_append(ctx, &append), KB_ERR_INPUT,
                 "kb_kv_append: q is replicated: expected a layout with one copy");
    append.q = t.q;
    append.layer = 1;
    expect_error(kb_kv_append(ctx, &append), KB_ERR_INPUT,
                 "kb_kv_append: layer 1: the cache has 1 layers");
    append.layer = 0;
    append.scale = (double)NAN;
    expect_error(kb_kv_append(ctx, &append), KB_ERR_INPUT,
                 "kb_kv_append: scale is nan: expected a finite number");

    attention.q = odd;
    expect_error(
        kb_attention_prefill(ctx, &attention), KB_ERR_INPUT,
        "kb_attention_prefill: q is (81, 128): expected a multiple of 2 rows, one part for "
        "each sequence of the cache, and 128 columns");
    attention.q = half;
    expect_error(kb_attention_prefill(ctx, &attention), KB_ERR_INPUT,
                 "kb_attention_prefill: q: tensor 'half' is f16: expected f32");
    attention.q = far;
    expect_error(kb_attention_prefill(ctx, &attention), KB_ERR_INPUT,
                 "kb_attention_prefill: q: tensor 'far' is on sip1: expected sip0");
    attention.q = t.q;
    attention.out = all;
    expect_error(kb_attention_prefill(ctx, &attention), KB_ERR_INPUT,
                 "kb_attention_prefill: out is replicated: expected a layout with one copy");
    attention.out = few;
    expect_error(kb_attention_prefill(ctx, &attention), KB_ERR_INPUT,
                 "kb_attention_prefill: q has 80 rows and out 60: expected the same");
    attention.out = t.out;
    c.added[1] = 41;
    expect_ok(kb_kv_cache_set_lengths(ctx, t.cache, c.cached, c.added));
    expect_error(kb_attention_prefill(ctx, &attention), KB_ERR_INPUT,
                 "kb_attention_prefill: 41 tokens are added to sequence 1, which has 40 rows");
    expect_error(kb_kv_append(ctx, &(kb_kv_append_spec){.cache = {99}}), KB_ERR_FAULT,
                 "kb_kv_append: invalid or freed cache handle");
    free_prompt(ctx, &t);
    kb_context_destroy(ctx);
}

static void a_head_that_does_not_fit_is_refused(void **unused)
{
    (void)unused;
    prompt_case c = usual_case();
    machine_size size = attention_machines[1];
    size.cube_extra = ", pe_tcm: { capacity_mib: 1, reserved_mib: 0.984375 }";
    kb_context *ctx = open_checked(size, true);
    c.cache.head_dim = 256;
    prompt_tensors t = make_prompt(ctx, &c);
    const kb_attention_prefill_spec attention = {.cache = t.cache, .q = t.q, .out = t.out};
    kb_error *err = kb_attention_prefill(ctx, &attention);
    assert_int_equal(kb_error_code(err), KB_ERR_INPUT);
    assert_non_null(strstr(kb_error_message(err), "heads of 256 elements do not fit in the TCM"));
    kb_error_free(err);
    free_prompt(ctx, &t);
    kb_context_destroy(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_prompts_are_right),
        cmocka_unit_test(small_memories_need_several_chunks),
        cmocka_unit_test(large_shapes_are_right),
        cmocka_unit_test(large_scores_do_not_overflow),
        cmocka_unit_test(a_prompt_in_parts_is_the_same),
        cmocka_unit_test(a_graph_is_launched_with_other_lengths),
        cmocka_unit_test(calls_follow_each_other_in_a_stream),
        cmocka_unit_test(time_is_the_same_without_data),
        cmocka_unit_test(invalid_values_are_refused),
        cmocka_unit_test(a_head_that_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
