/*
 * head_attention.c: the function at the head of attention.h, on the default machine.
 *
 * run: build-program head_attention.c && ./head_attention
 */
#include <stdio.h>

/* @EXAMPLE@ */

int main(void)
{
    kb_context *ctx;
    kb_error *err = kb_context_create(NULL, &ctx);
    if (!err)
        err = decode(ctx);
    if (err)
        fprintf(stderr, "%s\n", kb_error_message(err));
    int code = (int)kb_error_code(err);
    kb_error_free(err);
    kb_context_destroy(ctx);
    return code;
}
