/*
 * workers.c: one worker for each device.
 *
 * Each worker creates a tensor on its own device and prints it; workers run concurrently in
 * simulated time. Then one of them fails: the others are unwound, kb_spawn() reports the failed
 * ranks and their errors, and the context remains usable. Prints:
 *
 *     rank 0: 'x' (32, 64) f16 on sip0, mean 0.5, norm 22.6274
 *     rank 1: 'x' (32, 64) f16 on sip1, mean 1.5, norm 67.8823
 *     1 of 2 workers failed: rank 1: 1.5 is not below 1
 *     rank 0: 'x' (32, 64) f16 on sip0, mean 0.5, norm 22.6274
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <kernbench/kernbench.h>

/* A worker's tensor. */
typedef struct own_tensor {
    kb_context *ctx;
    kb_tensor tensor;
} own_tensor;

static void free_own(void *arg)
{
    own_tensor *own = arg;
    kb_error_free(kb_tensor_free(own->ctx, own->tensor));
}

static kb_error *look_at(kb_context *ctx, uint32_t rank, kb_tensor x, double limit)
{
    double value;
    char *text;
    KB_TRY(kb_tensor_get(ctx, x, KB_TIMED, &KB_INDEX(31, 63), &value));
    if (!(value < limit))
        return kb_error_new(KB_ERR_CHECK, "%g is not below %g", value, limit);
    KB_TRY(kb_tensor_repr(ctx, x, KB_TIMED, &text));
    printf("rank %" PRIu32 ": %s\n", rank, text);
    free(text);
    return NULL;
}

/* The tensor of rank r is r + 0.5 everywhere; a mean that is not below the limit is an error. */
static kb_error *work(kb_context *ctx, uint32_t rank, void *arg)
{
    const double *limit = arg;
    const kb_policy policy = {.cube = KB_ROW_WISE, .pe = KB_COLUMN_WISE};
    const kb_tensor_spec spec = {
        .name = "x", .dtype = KB_F16, .shape = KB_SHAPE(32, 64), .policy = &policy};
    own_tensor own = {.ctx = ctx};
    KB_TRY(kb_ahbm_set_device(ctx, rank));
    KB_TRY(kb_full(ctx, &spec, rank + 0.5, &own.tensor));

    /* It is freed at the end, and also if this worker is unwound before. */
    kb_cleanup cleanup;
    kb_co_push_cleanup(kb_context_worker(ctx), &cleanup, free_own, &own);
    kb_error *err = look_at(ctx, rank, own.tensor, *limit);
    kb_co_pop_cleanup(kb_context_worker(ctx), true);
    return err;
}

static kb_error *run(kb_context *ctx)
{
    uint32_t devices = kb_ahbm_device_count(ctx);
    double high = 10, low = 1;
    KB_TRY(kb_spawn(ctx, work, &high, devices));

    kb_error *err = kb_spawn(ctx, work, &low, devices);
    printf("%s\n", kb_error_message(err));
    kb_error_free(err);

    return kb_spawn(ctx, work, &low, 1);
}

int main(void)
{
    kb_context *ctx;
    kb_error *err = kb_context_create(NULL, &ctx);
    if (!err)
        err = run(ctx);
    if (err)
        fprintf(stderr, "%s\n", kb_error_message(err));
    int code = (int)kb_error_code(err);
    kb_error_free(err);
    kb_context_destroy(ctx);
    return code;
}
