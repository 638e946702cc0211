/*
 * test_prefill_time.c: the simulated time of a prompt on the default machine.
 *
 * 2,048 tokens of 64 heads, causal: 64 * 2048 * 2049 / 2 = 134.3 million scores, 1,049,088 for each
 * of the 128 PEs. A vector engine of 64 lanes makes the exponentials of these in 16,392 * 8 =
 * 131,136 ns; with maximum, difference and sum (11 cycles) it needs 180,312 ns. The matrix engine
 * needs 65.5 us for both products.
 */
#include "prompts.h"

typedef struct prompt_time {
    kb_time append, attention;
} prompt_time;

static kb_time finish(kb_context *ctx, kb_request request)
{
    kb_launch_result result;
    size_t count;
    expect_ok(kb_request_wait(ctx, request, NULL));
    expect_ok(kb_launch_results(ctx, request, &result, 1, &count));
    assert_int_equal(count, 1);
    expect_ok(kb_request_free(ctx, request));
    return result.pe_exec;
}

static prompt_time time_prompt(const prompt_case *c)
{
    kb_context *ctx;
    kb_request request;
    prompt_time time;
    expect_ok(kb_context_create(&(kb_context_options){.timing_only = true}, &ctx));
    prompt_tensors t = make_prompt(ctx, c);
    const kb_kv_append_spec append = {
        .cache = t.cache, .qkv = t.qkv, .q = t.q, .request = &request};
    const kb_attention_prefill_spec attention = {
        .cache = t.cache, .q = t.q, .out = t.out, .window = c->window, .request = &request};
    expect_ok(kb_kv_append(ctx, &append));
    time.append = finish(ctx, request);
    expect_ok(kb_attention_prefill(ctx, &attention));
    time.attention = finish(ctx, request);
    free_prompt(ctx, &t);
    kb_context_destroy(ctx);
    if (getenv("KB_TEST_PRINT"))
        printf("%u/%u heads, batch %u, prompt %u, cached %u, pages %u: append %.1f us, attention "
               "%.1f us\n",
               c->cache.heads, c->cache.kv_heads, c->cache.batch, c->prompt, c->cached[0],
               c->cache.page_tokens, kb_to_ns(time.append) / 1000, kb_to_ns(time.attention) / 1000);
    return time;
}

static prompt_case headline(uint32_t heads, uint32_t kv_heads, uint32_t prompt)
{
    return (prompt_case){.cache = {.batch = 1,
                                   .capacity = prompt,
                                   .heads = heads,
                                   .kv_heads = kv_heads,
                                   .head_dim = 128,
                                   .dtype = KB_BF16,
                                   .rope = {.style = KB_ROPE_HALF_SPLIT}},
                         .prompt = prompt,
                         .added = {prompt},
                         .qkv_policy = &by_rows,
                         .q_policy = &by_rows,
                         .out_policy = &by_rows};
}

static void a_prompt_is_near_the_bound(void **unused)
{
    (void)unused;
    prompt_case c = headline(64, 8, 2048);
    prompt_time time = time_prompt(&c);
    assert_true(time.attention > 131136 * KB_NS); /* the exponentials */
    assert_true(time.append + time.attention <= 210 * KB_US);
    c.cache.page_tokens = KB_PAGE_TOKENS;
    c.cache.page_seed = 3;
    time = time_prompt(&c);
    assert_true(time.append + time.attention <= 220 * KB_US);
}

/* The half of the heads that a device has with tensor parallelism over two. */
static void half_of_the_heads_take_about_half(void **unused)
{
    (void)unused;
    prompt_case c = headline(32, 4, 2048);
    prompt_time time = time_prompt(&c);
    assert_true(time.attention > 65568 * KB_NS);
    assert_true(time.append + time.attention <= 130 * KB_US);
}

/*
 * Balance: a prompt of 1,000 tokens behind 1,048 in the cache, 64 heads. Each of its queries sees
 * from 1,049 to 2,048 keys: 64 * 1000 * 1548.5 / 128 = 774,250 scores for each PE, which take ten
 * cycles (the matrix engine sums): 120,977 ns. Blocks do not divide by lanes.
 */
static void a_part_of_a_prompt_is_balanced(void **unused)
{
    (void)unused;
    prompt_case c = headline(64, 8, 1000);
    c.cache.capacity = 2048;
    c.cached[0] = 1048;
    prompt_time time = time_prompt(&c);
    assert_true(time.attention > 120977 * KB_NS);
    assert_true(time.attention <= 160 * KB_US);
}

/* A ragged batch: 8 sequences of 256 to 2,048 tokens. */
static void a_ragged_batch_is_balanced(void **unused)
{
    (void)unused;
    prompt_case c = headline(64, 8, 2048);
    double scores = 0;
    c.cache.batch = 8;
    for (uint32_t b = 0; b < 8; b++) {
        c.added[b] = 256 * (b + 1);
        scores += 64.0 * c.added[b] * (c.added[b] + 1) / 2;
    }
    prompt_time time = time_prompt(&c);
    double bound = scores / 128 * 10 / 64; /* ns, at ten cycles for 64 scores */
    assert_true(kb_to_ns(time.attention) > bound);
    assert_true(kb_to_ns(time.attention) <= 1.25 * bound);
}

/* A context of 16,384 tokens, whose keys and values do not fit in a TCM. */
static void a_long_context_goes_through_in_chunks(void **unused)
{
    (void)unused;
    prompt_case c = headline(64, 8, 512);
    c.cache.capacity = 16384;
    c.cached[0] = 15872;
    prompt_time time = time_prompt(&c);
    /* 64 * 512 * 16128.5 / 128 scores a PE, ten cycles for 64. */
    assert_true(time.attention > 645140 * KB_NS);
    assert_true(time.attention <= 760 * KB_US);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prompt_is_near_the_bound),
        cmocka_unit_test(half_of_the_heads_take_about_half),
        cmocka_unit_test(a_part_of_a_prompt_is_balanced),
        cmocka_unit_test(a_ragged_batch_is_balanced),
        cmocka_unit_test(a_long_context_goes_through_in_chunks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
