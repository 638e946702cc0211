/* cmd_ccl_print.c: the command `ccl print`: the built-in ccl.yaml. */
#include "cmd_ccl.h"

#include <stdio.h>

#include "ccl/ccl.h"

static kb_code run_print(const cli_call *call)
{
    (void)call;
    fwrite(ccl_builtin_text, 1, ccl_builtin_length, stdout);
    return KB_OK;
}

const cli_command ccl_print_command = {
    .name = "ccl print",
    .arguments = "",
    .summary = "print the built-in ccl.yaml, with comments on every key",
    .help = "",
    .example = "Example: kernbench ccl print >ccl.yaml\n",
    .run = run_print,
};
