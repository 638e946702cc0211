/*
 * head_tp.c: the worker at the head of tp.h, on both SIPs of the default machine.
 *
 * run: build-program head_tp.c && ./head_tp
 */
#include <stdio.h>

/* @EXAMPLE@ */

int main(void)
{
    kb_context *ctx;
    kb_error *err = kb_context_create(NULL, &ctx);
    if (!err)
        err = kb_spawn(ctx, mlp, NULL, 2);
    if (err)
        fprintf(stderr, "%s\n", kb_error_message(err));
    int code = (int)kb_error_code(err);
    kb_error_free(err);
    kb_context_destroy(ctx);
    return code;
}
