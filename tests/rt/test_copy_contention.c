/*
 * test_copy_contention.c: copies of the host that meet each other and kernels in the DMA of one PE.
 * Reading 4 KiB of its slice into its TCM takes 110.1425 ns there, of which 20 drain at the slice
 * (tests/pe/test_dma.c has the parts).
 */
#include "ordered.h"

#include <stdio.h>
#include <stdlib.h>

#define READ_4K ((kb_time)110142500)

/* One PE, whose DMA has so many channels. */
static kb_context *open_channels(int channels)
{
    char yaml[512];
    snprintf(yaml, sizeof yaml,
             "system: { sips: { count: 1 } }\n"
             "sip: { cube_mesh: { w: 1, h: 1 } }\n"
             "cube: { noc: { k: 1 }, pe_layout: { pe_per_router: 1 }, pe_dma: { channels: %d } }\n",
             channels);
    return open_machine(yaml);
}

static kb_location at(kb_memory memory, uint64_t offset)
{
    return (kb_location){.memory = memory, .offset = offset};
}

static kb_request submit_copy(kb_context *ctx, kb_location from, kb_location to, uint64_t bytes)
{
    kb_message message = {.kind = KB_PE_DMA, .from = from, .to = to, .bytes = bytes};
    kb_request request;
    expect_ok(kb_request_submit(ctx, &message, &request));
    return request;
}

static kb_completion wait_for(kb_context *ctx, kb_request request)
{
    kb_completion completion;
    expect_ok(kb_request_wait(ctx, request, &completion));
    assert_int_equal(completion.overhead + completion.wire + completion.drain + completion.queueing,
                     completion.ended - completion.issued);
    expect_ok(kb_request_free(ctx, request));
    return completion;
}

/* ---- Copies and copies -------------------------------------------------------------------- */

/*
 * Two requests at once. With one channel the second begins when the first has ended, so it ends
 * 110.1425 later. With more, its bytes are behind those of the first at the slice, and it ends 20
 * later. All of that is queueing.
 */
static void requests_share_the_channels_of_a_pe(void **state)
{
    (void)state;
    for (int channels = 1; channels <= 4; channels++) {
        kb_context *ctx = open_channels(channels);
        kb_request first = submit_copy(ctx, at(KB_HBM, 0), at(KB_TCM, 0), 4096);
        kb_request second = submit_copy(ctx, at(KB_HBM, 8192), at(KB_TCM, 8192), 4096);
        kb_completion a = wait_for(ctx, first), b = wait_for(ctx, second);
        assert_int_equal(a.queueing, 0);
        assert_int_equal(b.ended - a.ended, channels == 1 ? READ_4K : 20 * KB_NS);
        assert_int_equal(b.queueing, b.ended - a.ended);
        kb_context_destroy(ctx);
    }
}

static kb_tensor make(kb_context *ctx, kb_memory memory, uint64_t bytes)
{
    kb_tensor_spec spec = {
        .shape = KB_SHAPE(bytes), .dtype = KB_I8, .memory = memory, .access = KB_UNTIMED};
    kb_tensor made;
    expect_ok(kb_empty(ctx, &spec, &made));
    return made;
}

/* Two streams copy 4 KiB into the TCM of one PE at a time. With one channel the second copy ends
 * 110.1425 after the first, else 20. */
static void streams_share_the_channels_of_a_pe(void **state)
{
    (void)state;
    kb_time took[5];
    for (int channels = 1; channels <= 4; channels++) {
        kb_context *ctx = open_channels(channels);
        kb_time before = kb_context_now(ctx);
        for (int i = 0; i < 2; i++) {
            kb_stream stream;
            expect_ok(kb_stream_create(ctx, i ? "two" : "one", &stream));
            expect_ok(kb_stream_copy(ctx, stream, make(ctx, KB_TCM, 4096), make(ctx, KB_HBM, 4096),
                                     NULL));
        }
        expect_ok(kb_synchronize(ctx));
        took[channels] = kb_context_now(ctx) - before;
        kb_context_destroy(ctx);
    }
    assert_int_equal(took[1] - took[4], READ_4K - 20 * KB_NS);
    assert_int_equal(took[2], took[4]);
    assert_int_equal(took[3], took[4]);
}

/* ---- Copies and kernels ------------------------------------------------------------------- */

/* Loads blocks one after the other, and waits for each. */
KB_KERNEL(load_blocks, tl_ptr x, int count)
{
    for (int i = 0; i < count; i++)
        tl_wait(tl_load(x + i * 4096, tl_shape(4096), TL_I8));
}

static kb_tensor make_input(kb_context *ctx, uint64_t bytes)
{
    kb_tensor_spec spec = {
        .name = "x", .shape = KB_SHAPE(bytes), .dtype = KB_I8, .access = KB_UNTIMED};
    kb_tensor made;
    expect_ok(kb_zeros(ctx, &spec, &made));
    return made;
}

/* How long the kernel runs on its PE, with a copy of 4 KiB into the TCM beside it or without. */
static kb_time time_kernel(int channels, int blocks, bool copies)
{
    kb_context *ctx = open_channels(channels);
    kb_tensor x = make_input(ctx, (uint64_t)blocks * 4096);
    kb_request launch;
    kb_launch_result result;
    size_t count;
    expect_ok(kb_launch_async(ctx, &launch, NULL, &load_blocks, x, blocks));
    if (copies) {
        expect_ok(kb_sim_run(kb_context_sim(ctx), kb_context_now(ctx) + KB_US));
        kb_request copy = submit_copy(ctx, at(KB_HBM, 1 << 30), at(KB_TCM, 1 << 20), 4096);
        kb_time queueing = wait_for(ctx, copy).queueing;
        assert_true(channels == 1 ? queueing > 0 && queueing < READ_4K : queueing <= 20 * KB_NS);
    }
    expect_ok(kb_request_wait(ctx, launch, NULL));
    expect_ok(kb_launch_results(ctx, launch, &result, 1, &count));
    expect_ok(kb_request_free(ctx, launch));
    kb_context_destroy(ctx);
    return result.pe_exec;
}

/*
 * Blocks are loaded one after the other. With one channel the copy begins when a load ends, while
 * the pe_cpu issues the next one: that begins 110.1425 after the end of the one before it. With
 * four, both are under way at a time: they meet at the slice, if at all, for the 20 ns that the
 * copy drains there.
 */
static void a_kernel_and_a_copy_share_the_channels(void **state)
{
    (void)state;
    enum { BLOCKS = 40 };
    kb_time alone = time_kernel(1, BLOCKS, false);
    kb_time block = time_kernel(1, BLOCKS + 1, false) - alone;
    assert_true(block > READ_4K);
    assert_int_equal(time_kernel(1, BLOCKS, true) - alone, READ_4K - (block - READ_4K));
    assert_int_equal(time_kernel(4, BLOCKS, false), alone);
    assert_in_range(time_kernel(4, BLOCKS, true) - alone, 0, 20 * KB_NS);
}

/* ---- Windows ------------------------------------------------------------------------------ */

/* Uses both engines of the DMA and the vector engine, which writes to the TCM all the time. */
KB_KERNEL(work, tl_ptr to, tl_ptr from, int rounds)
{
    tl_tensor sum = tl_zeros(tl_shape(2048), TL_F32);
    for (int i = 0; i < rounds; i++) {
        tl_tensor x = tl_load(from + i * 8192, tl_shape(2048), TL_F32);
        sum = tl_add(tl_add(sum, tl_mul(x, 2)), x);
        if (i % 3 == 0)
            tl_store(to + i * 8192, sum);
    }
    tl_store(to, sum);
}

enum { COPIES = 24, ROUNDS = 60 };

static kb_tensor make_floats(kb_context *ctx)
{
    kb_tensor_spec spec = {.shape = KB_SHAPE(ROUNDS * 2048), .dtype = KB_F32, .access = KB_UNTIMED};
    kb_tensor made;
    expect_ok(kb_zeros(ctx, &spec, &made));
    return made;
}

/* When each copy and, at last, the launch have ended. */
static void time_all(const char *window, int channels, uint64_t seed, kb_time times[COPIES + 1])
{
    assert_int_equal(setenv("KERNBENCH_RUN_AHEAD", window, 1), 0);
    kb_context *ctx = open_channels(channels);
    kb_rng rng;
    kb_rng_init(&rng, seed);
    kb_tensor to = make_floats(ctx), from = make_floats(ctx);
    kb_request launch, copies[COPIES];
    expect_ok(kb_launch_async(ctx, &launch, NULL, &work, to, from, ROUNDS));
    for (int i = 0; i < COPIES; i++) {
        kb_memory source = below(&rng, 2) ? KB_TCM : KB_HBM,
                  target = below(&rng, 2) ? KB_TCM : KB_HBM;
        uint64_t bytes = 1 + below(&rng, i % 4 == 0 ? 200000 : 9000);
        copies[i] = submit_copy(ctx, at(source, 4 << 20), at(target, 6 << 20), bytes);
    }
    for (int i = 0; i < COPIES; i++)
        times[i] = wait_for(ctx, copies[i]).ended;
    kb_completion done;
    expect_ok(kb_request_wait(ctx, launch, &done));
    times[COPIES] = done.ended;
    kb_context_destroy(ctx);
}

/* A kernel that runs ahead does not know of copies to come, and yet nothing depends on that. */
static void copies_do_not_depend_on_how_far_a_kernel_runs_ahead(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 12; seed++) {
        int channels = (int)(seed % 3) + 1;
        kb_time ahead[COPIES + 1], beside[COPIES + 1], none[COPIES + 1];
        time_all("64", channels, seed, ahead);
        time_all("1", channels, seed, beside);
        time_all("3", channels, seed, none);
        assert_memory_equal(ahead, beside, sizeof ahead);
        assert_memory_equal(ahead, none, sizeof ahead);
    }
    assert_int_equal(unsetenv("KERNBENCH_RUN_AHEAD"), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(requests_share_the_channels_of_a_pe),
        cmocka_unit_test(streams_share_the_channels_of_a_pe),
        cmocka_unit_test(a_kernel_and_a_copy_share_the_channels),
        cmocka_unit_test(copies_do_not_depend_on_how_far_a_kernel_runs_ahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
