/*
 * test_decode.c: attention of one token for each sequence, against a double-precision reference, on
 * random shapes, machines, lengths, windows, pages and splits; over several steps; recorded in a
 * graph. Data races are faults.
 */
#include "attention_rig.h"
#include "support/seed.h"

#include <math.h>

typedef struct decode_case {
    kb_kv_cache_spec spec;
    machine_size machine;
    uint32_t window, steps;
    double scale;
    bool by_cube, is_graph;
    uint32_t layout; /* of qkv and out */
    uint64_t seed;
} decode_case;

/* A context with a cache, and the host's copy of what it should have. */
typedef struct decode_run {
    const decode_case *is;
    kb_context *ctx;
    kb_kv_cache cache;
    kb_tensor qkv, out;
    uint32_t *cached, *added;
    double *keys, *values; /* (layer, sequence, kv head, token, dim) */
    uint64_t draws;
    kb_graph graph; /* recorded already; {0}: none */
} decode_run;

static const kb_policy layouts[] = {
    {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE},
    {.cube = KB_ROW_WISE, .pe = KB_COLUMN_WISE},
    {.cube = KB_ROW_WISE, .pe = KB_ROW_WISE},
    {.num_cubes = 1, .num_pes = 1},
    {.tiling = KB_TILED_ROW_MAJOR, .tile_rows = 2, .tile_columns = 5},
};

enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

static double *head_at(const decode_run *run, double *all, uint32_t layer, uint32_t b,
                       uint32_t head)
{
    const kb_kv_cache_spec *s = &run->is->spec;
    return all + (((size_t)layer * s->batch + b) * s->kv_heads + head) * s->capacity * s->head_dim;
}

static void fill_range(decode_run *run, kb_kv_range r)
{
    const kb_kv_cache_spec *s = &run->is->spec;
    double *all = r.values ? run->values : run->keys;
    double *numbers = head_at(run, all, r.layer, r.sequence, r.kv_head);
    size_t count = (size_t)r.count * s->head_dim;
    float *floats = malloc(count * sizeof *floats + 1);
    assert_non_null(floats);
    for (size_t i = 0; i < count; i++) {
        numbers[i] = round_to(s->dtype, random_number(run->is->seed, run->draws++));
        floats[i] = (float)numbers[i];
    }
    expect_ok(kb_kv_cache_set(run->ctx, run->cache, &r, floats));
    free(floats);
}

static void begin_run(decode_run *run, const decode_case *is, const uint32_t *lengths)
{
    const kb_kv_cache_spec *s = &is->spec;
    size_t numbers = (size_t)s->layers * s->batch * s->kv_heads * s->capacity * s->head_dim;
    *run = (decode_run){.is = is, .ctx = open_checked(is->machine, false)};
    run->cached = calloc(s->batch, sizeof *run->cached);
    run->added = calloc(s->batch, sizeof *run->added);
    run->keys = calloc(numbers, sizeof *run->keys);
    run->values = calloc(numbers, sizeof *run->values);
    assert_true(run->cached && run->added && run->keys && run->values);
    uint64_t cubes = kb_context_machine(run->ctx).cubes, rows = s->batch;
    const kb_policy by_cube = {.cube = KB_ROW_WISE, .pe = KB_COLUMN_WISE};
    run->qkv = make_tensor(run->ctx, "qkv", s->dtype,
                           KB_SHAPE(rows, (s->heads + 2ull * s->kv_heads) * s->head_dim),
                           &layouts[is->layout], NULL);
    run->out =
        make_tensor(run->ctx, "out", s->dtype,
                    KB_SHAPE(is->by_cube ? rows * cubes : rows, s->heads * s->head_dim),
                    is->by_cube ? &by_cube : &layouts[(is->layout + is->seed) % LAYOUTS], NULL);
    expect_ok(kb_kv_cache_create(run->ctx, s, &run->cache));
    for (uint32_t b = 0; b < s->batch; b++) {
        run->cached[b] = lengths[b];
        for (uint32_t i = 0; i < s->layers * s->kv_heads * 2; i++)
            fill_range(run, (kb_kv_range){.layer = i / 2 / s->kv_heads,
                                          .sequence = b,
                                          .kv_head = i / 2 % s->kv_heads,
                                          .count = lengths[b],
                                          .values = i % 2 == 1});
    }
}

static void end_run(decode_run *run)
{
    expect_ok(kb_kv_cache_free(run->ctx, run->cache));
    free(run->cached);
    free(run->added);
    free(run->keys);
    free(run->values);
    kb_context_destroy(run->ctx);
}

/* The appended key and value are what they should be; from here on they are what was found, so that
 * a key that was rounded the other way does not count twice. */
static void check_appended(decode_run *run, uint32_t layer, uint32_t b, uint32_t head,
                           const double *k, const double *v)
{
    const kb_kv_cache_spec *s = &run->is->spec;
    uint32_t token = run->cached[b];
    float found[600];
    for (int values = 0; values < 2; values++) {
        const kb_kv_range r = {.layer = layer,
                               .sequence = b,
                               .kv_head = head,
                               .token = token,
                               .count = 1,
                               .values = values == 1};
        double *kept = head_at(run, values ? run->values : run->keys, layer, b, head);
        expect_ok(kb_kv_cache_get(run->ctx, run->cache, &r, found));
        for (uint32_t i = 0; i < s->head_dim; i++) {
            double expected = values ? v[i] : k[i];
            if (!(fabs((double)found[i] - expected) <= tolerance(s->dtype, expected)))
                fail_msg("%s %u of head %u of sequence %u is %.9g, expected %.9g",
                         values ? "value" : "key", i, head, b, (double)found[i], expected);
            kept[(size_t)token * s->head_dim + i] = (double)found[i];
        }
    }
}

static void attend(const decode_run *run, const double *q, const double *keys, const double *values,
                   uint32_t tokens, double *out)
{
    uint32_t dim = run->is->spec.head_dim, window = run->is->window;
    uint32_t first = window > 0 && tokens > window ? tokens - window : 0;
    double scale = run->is->scale != 0 ? run->is->scale : 1 / sqrt(dim), most = -(double)INFINITY,
           sum = 0;
    double *p = malloc(tokens * sizeof *p);
    assert_non_null(p);
    for (uint32_t t = first; t < tokens; t++) {
        p[t] = 0;
        for (uint32_t i = 0; i < dim; i++)
            p[t] += q[i] * keys[(size_t)t * dim + i] * scale;
        most = fmax(most, p[t]);
    }
    for (uint32_t i = 0; i < dim; i++)
        out[i] = 0;
    for (uint32_t t = first; t < tokens; t++) {
        p[t] = exp(p[t] - most);
        sum += p[t];
        for (uint32_t i = 0; i < dim; i++)
            out[i] += p[t] * values[(size_t)t * dim + i];
    }
    for (uint32_t i = 0; i < dim; i++)
        out[i] /= sum;
    free(p);
}

/* The row of one sequence. */
static void check_row(decode_run *run, uint32_t layer, uint32_t b, double *qkv, double *expected)
{
    const kb_kv_cache_spec *s = &run->is->spec;
    uint32_t dim = s->head_dim, group = s->heads / s->kv_heads;
    double position = run->cached[b];
    memset(expected, 0, (size_t)s->heads * dim * sizeof *expected);
    if (run->added[b] == 0)
        return;
    rotate_reference(&s->rope, qkv, &position, 1, s->heads + s->kv_heads, dim);
    for (uint32_t head = 0; head < s->kv_heads; head++) {
        double *k = qkv + (size_t)(s->heads + head) * dim;
        check_appended(run, layer, b, head, k, k + (size_t)s->kv_heads * dim);
        for (uint32_t i = head * group; i < (head + 1) * group; i++)
            attend(run, qkv + (size_t)i * dim, head_at(run, run->keys, layer, b, head),
                   head_at(run, run->values, layer, b, head), run->cached[b] + 1,
                   expected + (size_t)i * dim);
    }
}

static kb_error *decode(decode_run *run, uint32_t layer)
{
    const kb_attention_decode_spec spec = {.cache = run->cache,
                                           .layer = layer,
                                           .qkv = run->qkv,
                                           .out = run->out,
                                           .out_by_cube = run->is->by_cube,
                                           .window = run->is->window,
                                           .scale = run->is->scale};
    kb_graph graph;
    if (run->graph.id != 0)
        return kb_graph_launch(run->ctx, run->graph, NULL);
    if (!run->is->is_graph)
        return kb_attention_decode(run->ctx, &spec);
    KB_TRY(kb_graph_begin(run->ctx, "step", &graph));
    KB_TRY(kb_attention_decode(run->ctx, &spec));
    KB_TRY(kb_graph_end(run->ctx, graph));
    KB_TRY(kb_graph_launch(run->ctx, graph, NULL));
    return kb_graph_free(run->ctx, graph);
}

/* Adds a token to some sequences, in one layer. */
static void check_step(decode_run *run, uint32_t layer)
{
    const kb_kv_cache_spec *s = &run->is->spec;
    size_t width = (s->heads + 2ull * s->kv_heads) * s->head_dim;
    size_t columns = (size_t)s->heads * s->head_dim;
    size_t copies = run->is->by_cube ? kb_context_machine(run->ctx).cubes : 1;
    double *qkv = random_numbers(run->is->seed + ++run->draws, s->batch * width, s->dtype);
    double *expected = malloc(copies * s->batch * columns * sizeof *expected);
    void *data = convert_numbers(s->dtype, qkv, s->batch * width);
    assert_non_null(expected);
    expect_ok(kb_tensor_set_slice(run->ctx, run->qkv, KB_UNTIMED, NULL, data,
                                  s->batch * width * kb_dtype_bytes(s->dtype)));
    expect_ok(kb_kv_cache_set_lengths(run->ctx, run->cache, run->cached, run->added));
    expect_ok(decode(run, layer));
    for (uint32_t b = 0; b < s->batch; b++)
        check_row(run, layer, b, qkv + b * width, expected + b * columns);
    for (size_t copy = 1; copy < copies; copy++)
        memcpy(expected + copy * s->batch * columns, expected,
               s->batch * columns * sizeof *expected);
    expect_near(run->ctx, run->out, expected, copies * s->batch * columns);
    free(data);
    free(expected);
    free(qkv);
}

static void run_case(const decode_case *is, const uint32_t *lengths)
{
    decode_run run;
    kb_rng rng;
    kb_rng_init(&rng, test_seed(is->seed));
    begin_run(&run, is, lengths);
    for (uint32_t step = 0; step < is->steps; step++) {
        for (uint32_t b = 0; b < is->spec.batch; b++)
            run.added[b] = run.cached[b] < is->spec.capacity && draw(&rng, 0, 7) > 0;
        for (uint32_t layer = 0; layer < is->spec.layers; layer++)
            check_step(&run, layer);
        for (uint32_t b = 0; b < is->spec.batch; b++)
            run.cached[b] += run.added[b];
    }
    end_run(&run);
}

/* ---- Random cases ---- */

static void draw_shape(kb_rng *rng, kb_kv_cache_spec *s)
{
    static const uint32_t heads[][2] = {{8, 1}, {4, 4}, {12, 4}, {5, 1}, {6, 2}, {9, 9}, {1, 1}};
    static const uint32_t dims[] = {16, 7, 32, 1, 130, 64};
    static const kb_dtype dtypes[] = {KB_F16, KB_BF16, KB_F32};
    uint32_t i = draw(rng, 0, sizeof heads / sizeof heads[0] - 1);
    *s = (kb_kv_cache_spec){.batch = draw(rng, 1, 6),
                            .capacity = draw(rng, 1, 150),
                            .heads = heads[i][0],
                            .kv_heads = heads[i][1],
                            .head_dim = dims[draw(rng, 0, 5)],
                            .layers = draw(rng, 1, 2),
                            .dtype = dtypes[draw(rng, 0, 2)],
                            .access = KB_UNTIMED};
    if (draw(rng, 0, 1) == 1) {
        s->page_tokens = draw(rng, 1, 40);
        s->page_seed = draw(rng, 0, 3);
    }
    if (s->head_dim % 2 == 0 && draw(rng, 0, 3) > 0) {
        s->rope.style = draw(rng, 0, 1) ? KB_ROPE_HALF_SPLIT : KB_ROPE_INTERLEAVED;
        s->rope.dims = draw(rng, 0, 2) == 0 ? 2 : 0;
    }
}

static void draw_split(kb_rng *rng, const machine_size *m, kb_kv_cache_spec *s)
{
    uint32_t pes = m->w * m->h * m->pes, lanes = pes > s->kv_heads ? pes / s->kv_heads : 1;
    s->split = draw(rng, 0, 2) == 0 ? 0 : draw(rng, 1, lanes);
}

static void random_cases_match_the_reference(void **unused)
{
    (void)unused;
    for (uint64_t seed = 1; seed <= 150; seed++) {
        kb_rng rng;
        uint32_t lengths[6];
        decode_case is = {.seed = seed, .steps = 2};
        kb_rng_init(&rng, test_seed(seed));
        draw_shape(&rng, &is.spec);
        is.machine = attention_machines[seed % ATTENTION_MACHINES];
        draw_split(&rng, &is.machine, &is.spec);
        is.window = draw(&rng, 0, 2) == 0 ? draw(&rng, 1, 60) : 0;
        is.scale = draw(&rng, 0, 4) == 0 ? 0.3 : 0;
        is.by_cube = draw(&rng, 0, 3) == 0;
        is.is_graph = draw(&rng, 0, 4) == 0;
        is.layout = draw(&rng, 0, LAYOUTS - 1);
        for (uint32_t b = 0; b < is.spec.batch; b++)
            lengths[b] = draw(&rng, 0, 3) == 0 ? 0 : draw(&rng, 0, is.spec.capacity);
        is.spec.expected = draw(&rng, 0, 1) == 0 ? lengths : NULL;
        run_case(&is, lengths);
    }
}

/* ---- Chosen cases ---- */

/* A TCM of 1 MiB holds few of the keys of 1,500 tokens: tiles with a running maximum. In pages of
 * all tokens, in small ones, and with more pages than a PE reads slots of at a time. */
static void long_sequences_are_tiled(void **unused)
{
    (void)unused;
    const uint32_t lengths[] = {1499, 700};
    decode_case is = {
        .machine = {1, 1, 1, 2, ", pe_tcm: { capacity_mib: 5 }", NULL}, .steps = 2, .seed = 3};
    for (uint32_t page = 0; page < 4; page++) {
        is.spec = (kb_kv_cache_spec){.batch = 2,
                                     .capacity = 1501,
                                     .heads = 24,
                                     .kv_heads = 2,
                                     .head_dim = 160,
                                     .layers = 1,
                                     .dtype = KB_BF16,
                                     .page_tokens = (const uint32_t[]){0, 1501, 64, 3}[page],
                                     .page_seed = page,
                                     .rope = {.style = KB_ROPE_HALF_SPLIT},
                                     .access = KB_UNTIMED};
        is.window = page == 2 ? 1000 : 0;
        run_case(&is, lengths);
    }
}

/* More sequences than records are read at a time; most have one key or none. */
static void large_batches_are_read_in_parts(void **unused)
{
    (void)unused;
    static uint32_t lengths[150];
    decode_case is = {.machine = attention_machines[2], .steps = 1, .seed = 9};
    for (uint32_t split = 1; split <= 3; split++) {
        is.spec = (kb_kv_cache_spec){.batch = 150,
                                     .capacity = 9,
                                     .heads = 8,
                                     .kv_heads = 4,
                                     .head_dim = 6,
                                     .layers = 1,
                                     .dtype = KB_F32,
                                     .split = split,
                                     .page_tokens = split == 2 ? 0 : 2,
                                     .access = KB_UNTIMED};
        for (uint32_t b = 0; b < 150; b++)
            lengths[b] = b % 4 == 0 ? b % 9 : 0;
        run_case(&is, lengths);
    }
}

/* A graph that was recorded once makes a step for each launch, of whatever lengths. */
static void a_graph_is_launched_with_other_lengths(void **unused)
{
    (void)unused;
    const decode_case is = {.machine = attention_machines[4],
                            .seed = 21,
                            .spec = {.batch = 3,
                                     .capacity = 40,
                                     .heads = 8,
                                     .kv_heads = 2,
                                     .head_dim = 16,
                                     .layers = 1,
                                     .dtype = KB_F16,
                                     .page_tokens = 8,
                                     .page_seed = 4,
                                     .split = 4,
                                     .rope = {.style = KB_ROPE_INTERLEAVED},
                                     .access = KB_UNTIMED}};
    decode_run run;
    kb_graph graph;
    begin_run(&run, &is, (const uint32_t[]){30, 0, 7});
    const kb_attention_decode_spec spec = {.cache = run.cache, .qkv = run.qkv, .out = run.out};
    expect_ok(kb_graph_begin(run.ctx, "step", &graph));
    expect_ok(kb_attention_decode(run.ctx, &spec));
    expect_ok(kb_graph_end(run.ctx, graph));
    run.graph = graph;
    for (uint32_t step = 0; step < 5; step++) {
        for (uint32_t b = 0; b < 3; b++)
            run.added[b] = (step + b) % 3 != 0;
        check_step(&run, 0);
        for (uint32_t b = 0; b < 3; b++)
            run.cached[b] += run.added[b];
    }
    expect_ok(kb_graph_free(run.ctx, graph));
    end_run(&run);
}

/* Two steps in a stream, of two layers, without waiting between them. */
static void steps_follow_each_other_in_a_stream(void **unused)
{
    (void)unused;
    const decode_case is = {.machine = attention_machines[3],
                            .seed = 2,
                            .spec = {.batch = 2,
                                     .capacity = 20,
                                     .heads = 4,
                                     .kv_heads = 2,
                                     .head_dim = 8,
                                     .layers = 2,
                                     .dtype = KB_F32,
                                     .access = KB_UNTIMED}};
    decode_run run;
    kb_stream stream;
    kb_request requests[2];
    begin_run(&run, &is, (const uint32_t[]){11, 12});
    expect_ok(kb_stream_create(run.ctx, "s", &stream));
    expect_ok(kb_kv_cache_set_lengths(run.ctx, run.cache, run.cached, (const uint32_t[]){1, 1}));
    for (uint32_t layer = 0; layer < 2; layer++) {
        const kb_attention_decode_spec spec = {.cache = run.cache,
                                               .layer = layer,
                                               .qkv = run.qkv,
                                               .out = run.out,
                                               .stream = stream,
                                               .request = &requests[layer]};
        expect_ok(kb_attention_decode(run.ctx, &spec));
    }
    for (int i = 0; i < 2; i++) {
        kb_launch_result result;
        size_t count;
        expect_ok(kb_request_wait(run.ctx, requests[i], NULL));
        expect_ok(kb_launch_results(run.ctx, requests[i], &result, 1, &count));
        assert_string_equal(result.name, "attention_decode");
        assert_int_equal(result.pes, 8);
        expect_ok(kb_request_free(run.ctx, requests[i]));
    }
    expect_ok(kb_stream_destroy(run.ctx, stream));
    end_run(&run);
}

/* ---- Ranks ---- */

/* Each rank has a cache on its own device. With values of 1 the result is 1. */
static kb_error *decode_on_rank(kb_context *ctx, uint32_t rank, void *arg)
{
    const kb_policy columns = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    const kb_kv_cache_spec spec = {
        .batch = 1, .capacity = 30, .heads = 2, .kv_heads = 1, .head_dim = 4, .split = 4};
    kb_tensor_spec tensor = {
        .name = "qkv", .shape = KB_SHAPE(1, 16), .policy = &columns, .access = KB_UNTIMED};
    kb_tensor qkv, out;
    kb_kv_cache cache;
    double found;
    (void)arg;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    KB_TRY(kb_full(ctx, &tensor, 1, &qkv));
    tensor.shape = KB_SHAPE(1, 8);
    KB_TRY(kb_empty(ctx, &tensor, &out));
    KB_TRY(kb_kv_cache_create(ctx, &spec, &cache));
    for (uint32_t step = 0; step < 30; step++) {
        const kb_attention_decode_spec decode = {.cache = cache, .qkv = qkv, .out = out};
        KB_TRY(kb_kv_cache_set_lengths(ctx, cache, &step, (const uint32_t[]){1}));
        KB_TRY(kb_attention_decode(ctx, &decode));
    }
    KB_TRY(kb_tensor_get(ctx, out, KB_UNTIMED, &KB_INDEX(0, 7), &found));
    assert_true(found == 1);
    return kb_kv_cache_free(ctx, cache);
}

static void each_rank_has_a_cache(void **unused)
{
    (void)unused;
    kb_context *ctx = open_checked((machine_size){2, 2, 1, 2, NULL, NULL}, false);
    expect_ok(kb_spawn(ctx, decode_on_rank, NULL, 2));
    kb_context_destroy(ctx);
}

/* ---- Errors ---- */

static void invalid_calls_are_refused(void **unused)
{
    (void)unused;
    const decode_case is = {.machine = attention_machines[1],
                            .spec = {.batch = 2,
                                     .capacity = 20,
                                     .heads = 4,
                                     .kv_heads = 2,
                                     .head_dim = 8,
                                     .layers = 1,
                                     .access = KB_UNTIMED}};
    const kb_policy copies = {.cube = KB_REPLICATE, .pe = KB_REPLICATE};
    decode_run run;
    begin_run(&run, &is, (const uint32_t[]){1, 2});
    kb_context *ctx = run.ctx;
    const kb_attention_decode_spec good = {.cache = run.cache, .qkv = run.qkv, .out = run.out};
    kb_attention_decode_spec bad = good;
    bad.layer = 1;
    expect_error(kb_attention_decode(ctx, &bad), KB_ERR_INPUT,
                 "kb_attention_decode: layer 1: the cache has 1 layers");
    bad = good;
    bad.qkv = run.out;
    expect_error(kb_attention_decode(ctx, &bad), KB_ERR_INPUT,
                 "kb_attention_decode: qkv is (2, 32): expected (2, 64)");
    bad = good;
    bad.out = make_tensor(ctx, "wide", KB_F32, KB_SHAPE(2, 32), &layouts[0], NULL);
    expect_error(kb_attention_decode(ctx, &bad), KB_ERR_INPUT,
                 "kb_attention_decode: out: tensor 'wide' is f32: expected f16");
    bad.out = make_tensor(ctx, "copies", KB_F16, KB_SHAPE(2, 32), &copies, NULL);
    expect_error(kb_attention_decode(ctx, &bad), KB_ERR_INPUT,
                 "kb_attention_decode: out is replicated: expected a layout with one copy");
    bad = good;
    bad.scale = (double)INFINITY;
    expect_error(kb_attention_decode(ctx, &bad), KB_ERR_INPUT,
                 "kb_attention_decode: scale is inf: expected a finite number");
    bad = good;
    bad.cache.id++;
    expect_error(kb_attention_decode(ctx, &bad), KB_ERR_FAULT,
                 "kb_attention_decode: invalid or freed cache handle");
    expect_ok(kb_kv_cache_set_lengths(ctx, run.cache, run.cached, (const uint32_t[]){1, 2}));
    expect_error(kb_attention_decode(ctx, &good), KB_ERR_INPUT,
                 "kb_attention_decode: 2 tokens are added to sequence 1, which has 1 row");
    end_run(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_cases_match_the_reference),
        cmocka_unit_test(long_sequences_are_tiled),
        cmocka_unit_test(large_batches_are_read_in_parts),
        cmocka_unit_test(a_graph_is_launched_with_other_lengths),
        cmocka_unit_test(steps_follow_each_other_in_a_stream),
        cmocka_unit_test(each_rank_has_a_cache),
        cmocka_unit_test(invalid_calls_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
