/*
 * head_nn.c: the function at the head of nn.h, on one row of ones. The sum with itself is 2, its
 * norm is 1 times the gain.
 *
 * run: build-program head_nn.c && ./head_nn
 */
#include <stdio.h>

/* @EXAMPLE@ */

int main(void)
{
    const kb_tensor_spec spec = {.name = "x", .dtype = KB_BF16, .shape = KB_SHAPE(1, 64)};
    const kb_tensor_spec gains = {.name = "gain", .dtype = KB_BF16, .shape = KB_SHAPE(64)};
    kb_context *ctx;
    kb_tensor x, gain;
    kb_error *err = kb_context_create(NULL, &ctx);
    if (!err)
        err = kb_full(ctx, &spec, 1, &x);
    if (!err)
        err = kb_full(ctx, &gains, 1, &gain);
    if (!err)
        err = activate(ctx, x, x, gain);
    if (err)
        fprintf(stderr, "%s\n", kb_error_message(err));
    int code = (int)kb_error_code(err);
    kb_error_free(err);
    kb_context_destroy(ctx);
    return code;
}
