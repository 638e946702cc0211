/*
 * head_ccl.c: the collective at the head of ccl.h: its kernel, with its own arguments, in a mock
 * run; and the plugin, which is accepted.
 *
 * run: build-program head_ccl.c && ./head_ccl
 * run: sed -e '/ring_mock.h/d' -e '/^static void mock_arguments/,$d' head_ccl.c >plugin.c
 * run: kernbench list --plugin ./plugin.c | grep -q 'module  *pass_on'
 */
#include <kernbench/ccl.h>

#include "ring_mock.h"

/* @EXAMPLE@ */

static void mock_arguments(void *self, uint32_t rank, uint64_t address, kb_ccl_arguments *args)
{
    (void)self;
    const kb_ccl_call call = {.dtype = KB_F32};
    const kb_ccl_target target = {.rank = rank, .output = address, .elements = ELEMENTS};
    kb_error_free(arguments(&call, &target, args));
}

int main(void)
{
    return ring_mock(mine.algorithms[0]->kernel, mock_arguments);
}
