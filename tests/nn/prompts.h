/*
 * prompts.h: a prompt that is appended to a cache and attends to it, with a double-precision
 * reference, for the tests of prefill.
 */
#ifndef TESTS_NN_PROMPTS_H
#define TESTS_NN_PROMPTS_H

#include "attention_rig.h"

enum { MAX_BATCH = 70 };

typedef struct prompt_case {
    kb_kv_cache_spec cache;
    uint32_t prompt; /* rows of a sequence */
    uint32_t cached[MAX_BATCH], added[MAX_BATCH];
    uint32_t window;
    double scale, further_scale; /* of kb_kv_append() and of kb_attention_prefill() */
    bool in_place;               /* queries stay in qkv */
    bool out_by_cube;
    const kb_policy *qkv_policy, *q_policy, *out_policy; /* NULL: columns over all PEs */
    uint64_t seed;
} prompt_case;

/* What a case has on the device. */
typedef struct prompt_tensors {
    kb_kv_cache cache;
    kb_tensor qkv, q, out;
    double *numbers; /* of qkv */
} prompt_tensors;

static const kb_policy by_columns = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
static const kb_policy by_rows = {.cube = KB_ROW_WISE, .pe = KB_ROW_WISE};

static inline size_t width_of(const prompt_case *c, bool all)
{
    return (c->cache.heads + (all ? 2 * c->cache.kv_heads : 0)) * (size_t)c->cache.head_dim;
}

static inline size_t rows_of(const prompt_case *c)
{
    return (size_t)c->cache.batch * c->prompt;
}

/* ---- Making it ---- */

/* A number for each element of the cache that is not appended. */
static inline float old_number(const kb_kv_range *r, uint32_t token, uint32_t i)
{
    uint64_t place = (((uint64_t)r->sequence * 64 + r->kv_head) * 4096 + token) * 512 + i;
    return (float)random_number(r->values ? 77 : 78, place);
}

/* All of the cache has numbers: a kernel that reads or writes the wrong ones is found. */
static inline void fill_cache(kb_context *ctx, const prompt_case *c, kb_kv_cache cache)
{
    size_t count = (size_t)c->cache.capacity * c->cache.head_dim;
    float *numbers = malloc(count * sizeof *numbers);
    assert_non_null(numbers);
    for (uint32_t at = 0; at < 2 * c->cache.batch * c->cache.kv_heads; at++) {
        kb_kv_range r = {.sequence = at / 2 / c->cache.kv_heads,
                         .kv_head = at / 2 % c->cache.kv_heads,
                         .count = c->cache.capacity,
                         .values = at % 2 == 1};
        for (size_t i = 0; i < count; i++)
            numbers[i] = old_number(&r, (uint32_t)(i / c->cache.head_dim),
                                    (uint32_t)(i % c->cache.head_dim));
        expect_ok(kb_kv_cache_set(ctx, cache, &r, numbers));
    }
    free(numbers);
}

static inline prompt_tensors make_prompt(kb_context *ctx, const prompt_case *c)
{
    prompt_tensors t = {0};
    uint64_t rows = rows_of(c), copies = c->out_by_cube ? kb_context_machine(ctx).cubes : 1;
    bool has_data = !kb_context_is_timing_only(ctx);
    kb_kv_cache_spec spec = c->cache;
    spec.access = KB_UNTIMED;
    expect_ok(kb_kv_cache_create(ctx, &spec, &t.cache));
    expect_ok(kb_kv_cache_set_lengths(ctx, t.cache, c->cached, c->added));
    if (has_data) {
        t.numbers = random_numbers(c->seed, rows * width_of(c, true), spec.dtype);
        fill_cache(ctx, c, t.cache);
    }
    t.qkv = make_tensor(ctx, "qkv", spec.dtype, KB_SHAPE(rows, width_of(c, true)),
                        c->qkv_policy ? c->qkv_policy : &by_columns, t.numbers);
    if (!c->in_place)
        t.q = make_tensor(ctx, "q", spec.dtype, KB_SHAPE(rows, width_of(c, false)),
                          c->q_policy ? c->q_policy : &by_columns, NULL);
    t.out = make_tensor(ctx, "out", spec.dtype, KB_SHAPE(copies * rows, width_of(c, false)),
                        c->out_by_cube  ? &by_rows
                        : c->out_policy ? c->out_policy
                                        : &by_columns,
                        NULL);
    return t;
}

static inline kb_error *run_prompt(kb_context *ctx, const prompt_case *c, const prompt_tensors *t)
{
    const kb_kv_append_spec append = {
        .cache = t->cache, .qkv = t->qkv, .q = t->q, .scale = c->scale};
    const kb_attention_prefill_spec attention = {.cache = t->cache,
                                                 .q = c->in_place ? t->qkv : t->q,
                                                 .out = t->out,
                                                 .out_by_cube = c->out_by_cube,
                                                 .window = c->window,
                                                 .scale = c->further_scale};
    KB_TRY(kb_kv_append(ctx, &append));
    return kb_attention_prefill(ctx, &attention);
}

static inline void free_prompt(kb_context *ctx, prompt_tensors *t)
{
    free(t->numbers);
    expect_ok(kb_kv_cache_free(ctx, t->cache));
    expect_ok(kb_tensor_free(ctx, t->qkv));
    if (t->q.id != 0)
        expect_ok(kb_tensor_free(ctx, t->q));
    expect_ok(kb_tensor_free(ctx, t->out));
}

/* ---- The reference ---- */

static inline void expect_number(const char *what, uint32_t sequence, size_t token, size_t element,
                                 double found, double expected, double bound)
{
    if (!(fabs(found - expected) <= bound))
        fail_msg("%s of sequence %u, token %zu, element %zu: %.9g, expected %.9g", what, sequence,
                 token, element, found, expected);
}

/* Queries or keys of a token as they should be, rotated: heads from `head` on. */
static inline void rotate_token(const prompt_case *c, const prompt_tensors *t, uint32_t sequence,
                                uint32_t token, size_t head, size_t heads, double *x)
{
    size_t dim = c->cache.head_dim, row = (size_t)sequence * c->prompt + token;
    double position = c->cached[sequence] + token;
    for (size_t i = 0; i < heads * dim; i++)
        x[i] = t->numbers[row * width_of(c, true) + head * dim + i];
    rotate_reference(&c->cache.rope, x, &position, 1, heads, dim);
}

/* The cache has the old numbers, and the new ones where they belong. */
static inline void check_cache(kb_context *ctx, const prompt_case *c, const prompt_tensors *t)
{
    size_t dim = c->cache.head_dim, count = c->cache.capacity * dim;
    float *found = malloc(count * sizeof *found);
    double *key = malloc(dim * sizeof *key);
    assert_non_null(found);
    assert_non_null(key);
    for (uint32_t at = 0; at < 2 * c->cache.batch * c->cache.kv_heads; at++) {
        kb_kv_range r = {.sequence = at / 2 / c->cache.kv_heads,
                         .kv_head = at / 2 % c->cache.kv_heads,
                         .count = c->cache.capacity,
                         .values = at % 2 == 1};
        uint32_t b = r.sequence;
        expect_ok(kb_kv_cache_get(ctx, t->cache, &r, found));
        for (uint32_t token = 0; token < c->cache.capacity; token++) {
            bool is_new = token >= c->cached[b] && token < c->cached[b] + c->added[b];
            size_t head = c->cache.heads + r.kv_head + (r.values ? c->cache.kv_heads : 0);
            if (is_new && !r.values)
                rotate_token(c, t, b, token - c->cached[b], head, 1, key);
            for (uint32_t i = 0; i < dim; i++) {
                double is = (double)found[token * dim + i];
                size_t row = (size_t)b * c->prompt + token - c->cached[b];
                if (!is_new)
                    expect_number("old number", b, token, i, is,
                                  round_to(c->cache.dtype, (double)old_number(&r, token, i)), 0);
                else if (r.values)
                    expect_number("value", b, token, i, is,
                                  t->numbers[row * width_of(c, true) + head * dim + i], 0);
                else
                    expect_number("key", b, token, i, is, key[i],
                                  tolerance(c->cache.dtype, key[i]));
            }
        }
    }
    free(found);
    free(key);
}

/* Rotated queries, (rows, heads * head_dim), as the device has them; free() them. */
static inline float *read_queries(kb_context *ctx, const prompt_case *c, const prompt_tensors *t)
{
    size_t width = width_of(c, c->in_place), used = width_of(c, false);
    float *all = read_tensor(ctx, c->in_place ? t->qkv : t->q, rows_of(c) * width);
    for (size_t row = 0; row < rows_of(c); row++)
        memmove(all + row * used, all + row * width, used * sizeof *all);
    return all;
}

static inline void check_queries(const prompt_case *c, const prompt_tensors *t, const float *q)
{
    size_t width = width_of(c, false);
    double scale = c->scale != 0 ? c->scale : 1 / sqrt((double)c->cache.head_dim);
    double *expected = malloc(width * sizeof *expected);
    assert_non_null(expected);
    for (uint32_t b = 0; b < c->cache.batch; b++)
        for (uint32_t token = 0; token < c->added[b]; token++) {
            rotate_token(c, t, b, token, 0, c->cache.heads, expected);
            for (size_t i = 0; i < width; i++)
                expect_number("query", b, token, i,
                              (double)q[((size_t)b * c->prompt + token) * width + i],
                              expected[i] * scale, tolerance(c->cache.dtype, expected[i] * scale));
        }
    free(expected);
}

/* softmax(q K^T) V of one query, over keys from `first` to before `end`. */
static inline void attend(const float *q, const float *keys, const float *values, size_t first,
                          size_t end, size_t dim, double scale, double *weights, double *o)
{
    double max = -HUGE_VAL, sum = 0;
    for (size_t key = first; key < end; key++) {
        weights[key] = 0;
        for (size_t i = 0; i < dim; i++)
            weights[key] += scale * (double)q[i] * (double)keys[key * dim + i];
        max = fmax(max, weights[key]);
    }
    for (size_t i = 0; i < dim; i++)
        o[i] = 0;
    for (size_t key = first; key < end; key++) {
        double weight = exp(weights[key] - max);
        sum += weight;
        for (size_t i = 0; i < dim; i++)
            o[i] += weight * (double)values[key * dim + i];
    }
    for (size_t i = 0; i < dim; i++)
        o[i] /= sum;
}

/* Results of a sequence and kv head, from keys, values and queries that the device has. */
static inline void check_head(const prompt_case *c, uint32_t b, uint32_t kv_head, const float *q,
                              const float *keys, const float *values, const float *out)
{
    size_t dim = c->cache.head_dim, width = width_of(c, false);
    uint32_t group = c->cache.heads / c->cache.kv_heads;
    double *weights = malloc((c->cache.capacity + 1) * sizeof *weights);
    double *o = malloc(dim * sizeof *o);
    assert_non_null(weights);
    assert_non_null(o);
    for (uint32_t token = 0; token < c->prompt; token++)
        for (uint32_t head = kv_head * group; head < (kv_head + 1) * group; head++) {
            size_t at = ((size_t)b * c->prompt + token) * width + head * dim;
            size_t end = (size_t)c->cached[b] + token + 1;
            size_t first = c->window > 0 && end > c->window ? end - c->window : 0;
            if (token < c->added[b])
                attend(q + at, keys, values, first, end, dim,
                       c->further_scale != 0 ? c->further_scale : 1, weights, o);
            for (size_t i = 0; i < dim; i++) {
                double expected = token < c->added[b] ? o[i] : 0;
                expect_number("result", b, token, head * dim + i, (double)out[at + i], expected,
                              tolerance(c->cache.dtype, expected) + 1e-5);
            }
        }
    free(weights);
    free(o);
}

static inline void check_results(kb_context *ctx, const prompt_case *c, const prompt_tensors *t,
                                 const float *q, const float *out)
{
    size_t count = (size_t)c->cache.capacity * c->cache.head_dim;
    float *keys = malloc(count * sizeof *keys), *values = malloc(count * sizeof *values);
    assert_non_null(keys);
    assert_non_null(values);
    for (uint32_t b = 0; b < c->cache.batch; b++)
        for (uint32_t head = 0; head < c->cache.kv_heads; head++) {
            kb_kv_range r = {.sequence = b, .kv_head = head, .count = c->cache.capacity};
            expect_ok(kb_kv_cache_get(ctx, t->cache, &r, keys));
            r.values = true;
            expect_ok(kb_kv_cache_get(ctx, t->cache, &r, values));
            check_head(c, b, head, q, keys, values, out);
        }
    free(keys);
    free(values);
}

static inline void check_prompt(kb_context *ctx, const prompt_case *c, const prompt_tensors *t)
{
    size_t count = rows_of(c) * width_of(c, false);
    uint32_t copies = c->out_by_cube ? kb_context_machine(ctx).cubes : 1;
    float *q = read_queries(ctx, c, t);
    float *out = read_tensor(ctx, t->out, copies * count);
    check_cache(ctx, c, t);
    check_queries(c, t, q);
    for (uint32_t copy = 0; copy < copies; copy++)
        check_results(ctx, c, t, q, out + copy * count);
    free(q);
    free(out);
}

#endif
