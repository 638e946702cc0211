/*
 * mock.c: a test of a collective's kernel, without a machine.
 *
 * The kernel is an all-reduce around a ring. A mock run needs no machine and no ccl.yaml: it takes
 * the ranks, their connections, the kernel's arguments and the ranks' buffers, and replaces the
 * contents of the buffers by the results. No time passes and queues are unbounded. Prints:
 *
 *     1 ranks: passed
 *     2 ranks: passed
 *     5 ranks: passed
 *     receiving first: a deadlock
 */
#include <stdio.h>
#include <kernbench/ccl.h>

enum { COUNT = 3, MAX_RANKS = 5 };

/* "E" leads to the next rank, "W" to the previous one. Each rank forwards and adds up messages. */
KB_KERNEL(ring, tl_ptr mine, int count, int ranks)
{
    tl_tensor sum = tl_load(mine, tl_shape(count), TL_F32), passing = sum;
    for (int step = 1; step < ranks; step++) {
        tl_send("E", passing);
        passing = tl_recv("W", tl_shape(count), TL_F32);
        sum = tl_add(sum, passing);
    }
    tl_store(mine, sum);
}

/* A deadlock: each rank receives before it sends. */
KB_KERNEL(stuck, tl_ptr mine, int count, int ranks)
{
    (void)ranks;
    tl_tensor received = tl_recv("W", tl_shape(count), TL_F32);
    tl_send("E", tl_load(mine, tl_shape(count), TL_F32));
    tl_store(mine, received);
}

/* The kernel's arguments on a rank whose buffer is at the address: one for each parameter. */
static void arguments(void *self, uint32_t rank, uint64_t address, kb_ccl_arguments *args)
{
    const uint32_t *ranks = self;
    (void)rank;
    kb_ccl_add_address(args, address);
    kb_ccl_add_integer(args, COUNT);
    kb_ccl_add_integer(args, *ranks);
}

static kb_error *run(const kb_kernel *kernel, uint32_t ranks, float data[][COUNT])
{
    kb_mock_edge edges[2 * MAX_RANKS];
    size_t count = 0;
    for (uint32_t rank = 0; rank < ranks && ranks > 1; rank++) {
        edges[count++] = (kb_mock_edge){.from = rank, .direction = "E", .to = (rank + 1) % ranks};
        edges[count++] =
            (kb_mock_edge){.from = rank, .direction = "W", .to = (rank + ranks - 1) % ranks};
    }
    const kb_mock mock = {
        .kernel = kernel,
        .ranks = ranks,
        .edges = edges,
        .edge_count = count,
        .dtype = KB_F32,
        .elements = COUNT,
        .arguments = arguments,
        .self = &ranks,
    };
    return kb_mock_run(&mock, data, ranks * sizeof data[0]);
}

/* Rank r starts with (r + 1), 2(r + 1), 3(r + 1); the sums are 1, 2 and 3 times 1 + .. + ranks. */
static kb_error *test_ring(uint32_t ranks)
{
    float data[MAX_RANKS][COUNT];
    for (uint32_t rank = 0; rank < ranks; rank++)
        for (int i = 0; i < COUNT; i++)
            data[rank][i] = (float)((i + 1) * ((int)rank + 1));
    KB_TRY(run(&ring, ranks, data));
    for (uint32_t rank = 0; rank < ranks; rank++)
        for (int i = 0; i < COUNT; i++)
            if (data[rank][i] != (float)((i + 1) * (int)(ranks * (ranks + 1) / 2)))
                return kb_error_new(KB_ERR_CHECK, "element %d of rank %u is %g", i, (unsigned)rank,
                                    data[rank][i]);
    printf("%u ranks: passed\n", (unsigned)ranks);
    return NULL;
}

static kb_error *test_all(void)
{
    KB_TRY(test_ring(1));
    KB_TRY(test_ring(2));
    KB_TRY(test_ring(MAX_RANKS));

    float data[2][COUNT] = {{0}};
    kb_error *err = run(&stuck, 2, data);
    printf("receiving first: %s\n",
           kb_error_code(err) == KB_ERR_DEADLOCK ? "a deadlock" : "another error");
    kb_error_free(err);
    return NULL;
}

int main(void)
{
    kb_error *err = test_all();
    if (err)
        fprintf(stderr, "%s\n", kb_error_message(err));
    int code = (int)kb_error_code(err);
    kb_error_free(err);
    return code;
}
