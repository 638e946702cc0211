/*
 * collectives.c: collectives among devices, with the calls of torch.distributed.
 *
 * Four small devices have a worker each, which joins the process group. The workers reduce their
 * tensors, gather them while the host copies the next batch, and reduce in two groups of two. The
 * tensor of rank r is r + 1 everywhere. Times are simulated, as rank 0 sees them. Prints:
 *
 *     all_reduce: each has 10 after 4.0 us
 *     all_reduce: each has 40 after 2.6 us
 *     all_gather: 3.3 us, copy: 2.2 us, both at once: 3.7 us; the last row is 4
 *     in groups: ranks have 4 6 4 6
 */
#include <stdio.h>
#include <kernbench/kernbench.h>

enum { DEVICES = 4, ELEMENTS = 1 << 14 };

static double us_since(const kb_context *ctx, kb_time before)
{
    return kb_to_ns(kb_context_now(ctx) - before) / 1000;
}

/* Split over all PEs of the current device; freed with the context. */
static kb_error *make(kb_context *ctx, const char *name, uint64_t rows, double value, kb_tensor *x)
{
    const kb_policy policy = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    const kb_tensor_spec spec = {
        .name = name, .dtype = KB_F16, .shape = KB_SHAPE(rows, ELEMENTS), .policy = &policy};
    return kb_full(ctx, &spec, value, x);
}

/* The first call also installs the queues between the PEs of all devices; they remain. */
static kb_error *add_up(kb_context *ctx, uint32_t rank)
{
    kb_tensor x;
    double sum;
    KB_TRY(make(ctx, "x", 1, rank + 1, &x));
    for (int call = 1; call <= 2; call++) {
        KB_TRY(kb_distributed_barrier(ctx, NULL));
        kb_time before = kb_context_now(ctx);
        KB_TRY(kb_distributed_all_reduce(ctx, x, KB_SUM, NULL));
        double us = us_since(ctx, before);
        KB_TRY(kb_tensor_get(ctx, x, KB_UNTIMED, &KB_INDEX(0, 5), &sum));
        if (rank == 0)
            printf("all_reduce: each has %g after %.1f us\n", sum, us);
    }
    return NULL;
}

typedef struct buffers {
    kb_tensor mine, all;   /* source and target of all_gather */
    kb_tensor batch, next; /* on the host, and its target */
} buffers;

/*
 * The time until all ranks are done. With `work` the call returns at once, as with async_op=True;
 * copies never wait. The host sends the launches of the kernels too: the yield lets all ranks send
 * theirs before this batch occupies the host's link.
 */
static kb_error *overlap(kb_context *ctx, const buffers *b, bool gather, bool copy, double *us)
{
    kb_request work = {0};
    const kb_collective_options options = {.work = &work};
    KB_TRY(kb_distributed_barrier(ctx, NULL));
    kb_time before = kb_context_now(ctx);
    if (gather)
        KB_TRY(kb_distributed_all_gather(ctx, b->all, b->mine, &options));
    KB_TRY(kb_cooperative_yield(ctx));
    if (copy)
        KB_TRY(kb_tensor_copy(ctx, b->next, b->batch, KB_TIMED));
    if (gather) {
        KB_TRY(kb_request_wait(ctx, work, NULL));
        KB_TRY(kb_request_free(ctx, work));
    }
    KB_TRY(kb_distributed_barrier(ctx, NULL)); /* waits for the copy, too */
    *us = us_since(ctx, before);
    return NULL;
}

static kb_error *gather_meanwhile(kb_context *ctx, uint32_t rank, kb_tensor batch)
{
    buffers b = {.batch = batch};
    double gather, copy, both, last;
    KB_TRY(make(ctx, "mine", 1, rank + 1, &b.mine));
    KB_TRY(make(ctx, "all", DEVICES, 0, &b.all));
    KB_TRY(make(ctx, "next", 1, 0, &b.next));
    KB_TRY(overlap(ctx, &b, true, false, &gather)); /* its queues are installed */
    KB_TRY(overlap(ctx, &b, true, false, &gather));
    KB_TRY(overlap(ctx, &b, false, true, &copy));
    KB_TRY(overlap(ctx, &b, true, true, &both));
    KB_TRY(kb_tensor_get(ctx, b.all, KB_UNTIMED, &KB_INDEX(DEVICES - 1, 5), &last));
    if (rank == 0)
        printf("all_gather: %.1f us, copy: %.1f us, both at once: %.1f us; the last row is %g\n",
               gather, copy, both, last);
    return NULL;
}

/* Even and odd ranks. As in torch, every rank creates both groups, in the same order. */
static kb_error *add_up_in_groups(kb_context *ctx, uint32_t rank, double *sum)
{
    const uint32_t members[2][2] = {{0, 2}, {1, 3}};
    kb_group groups[2];
    for (int i = 0; i < 2; i++)
        KB_TRY(kb_distributed_new_group(ctx, members[i], 2, &groups[i]));

    const kb_collective_options options = {.group = groups[rank % 2]};
    kb_tensor x;
    KB_TRY(make(ctx, "x", 1, rank + 1, &x));
    KB_TRY(kb_distributed_all_reduce(ctx, x, KB_SUM, &options));
    return kb_tensor_get(ctx, x, KB_UNTIMED, &KB_INDEX(0, 5), sum);
}

/* Shared by all workers, which are coroutines of one program. */
typedef struct job {
    kb_tensor batch;
    double sums[DEVICES]; /* in groups */
} job;

static kb_error *work(kb_context *ctx, uint32_t rank, void *arg)
{
    job *j = arg;
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    KB_TRY(add_up(ctx, rank));
    KB_TRY(gather_meanwhile(ctx, rank, j->batch));
    KB_TRY(add_up_in_groups(ctx, rank, &j->sums[rank]));
    return kb_distributed_destroy_process_group(ctx);
}

static kb_error *run(kb_context *ctx)
{
    static const uint16_t zeros[ELEMENTS];
    const kb_tensor_spec spec = {.dtype = KB_F16, .shape = KB_SHAPE(1, ELEMENTS)};
    job j;
    KB_TRY(kb_from_host(ctx, &spec, zeros, sizeof zeros, &j.batch));
    KB_TRY(kb_spawn(ctx, work, &j, DEVICES));
    printf("in groups: ranks have %g %g %g %g\n", j.sums[0], j.sums[1], j.sums[2], j.sums[3]);
    return NULL;
}

int main(void)
{
    static const char *const settings[] = {"system.sips.count=4", "sip.cube_mesh.w=2",
                                           "sip.cube_mesh.h=2"};
    const kb_context_options options = {.settings = settings, .setting_count = 3};
    kb_context *ctx;
    kb_error *err = kb_context_create(&options, &ctx);
    if (!err)
        err = run(ctx);
    if (err)
        fprintf(stderr, "%s\n", kb_error_message(err));
    int code = (int)kb_error_code(err);
    kb_error_free(err);
    kb_context_destroy(ctx);
    return code;
}
