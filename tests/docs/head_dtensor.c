/*
 * head_dtensor.c: the worker at the head of dtensor.h. Ones (2, 3) times ones (3, 5), whose columns
 * two devices share, is 3 everywhere.
 *
 * run: build-program head_dtensor.c && ./head_dtensor
 */
#include <stdio.h>

/* @EXAMPLE@ */

static kb_tensor x, w;

static kb_error *work(kb_context *ctx, uint32_t rank, void *arg)
{
    kb_tensor y;
    float product[10];
    (void)rank, (void)arg;
    KB_TRY(kb_distributed_init_process_group(ctx, "ahbm"));
    KB_TRY(multiply(ctx, x, w, &y));
    KB_TRY(kb_tensor_to_host(ctx, y, KB_UNTIMED, product, sizeof product));
    for (int i = 0; i < 10; i++)
        if (product[i] != 3)
            return kb_error_new(KB_ERR_CHECK, "element %d is %g", i, (double)product[i]);
    return kb_tensor_free(ctx, y);
}

int main(void)
{
    static const float ones[15] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const kb_tensor_spec x_spec = {.name = "x", .dtype = KB_F32, .shape = KB_SHAPE(2, 3)};
    const kb_tensor_spec w_spec = {.name = "w", .dtype = KB_F32, .shape = KB_SHAPE(3, 5)};
    kb_context *ctx;
    kb_error *err = kb_context_create(NULL, &ctx);
    if (!err)
        err = kb_from_host(ctx, &x_spec, ones, 6 * sizeof(float), &x);
    if (!err)
        err = kb_from_host(ctx, &w_spec, ones, sizeof ones, &w);
    if (!err)
        err = kb_spawn(ctx, work, NULL, 2);
    if (err)
        fprintf(stderr, "%s\n", kb_error_message(err));
    return (int)kb_error_code(err);
}
