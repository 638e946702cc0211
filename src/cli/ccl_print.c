/* ccl_print.c: the command that prints the ccl.yaml that is built in, to start one's own from. */
#include "ccl.h"

#include <stdio.h>

#include "ccl/ccl.h"

static kb_code run_print(const cli_command *self, int argc, char **argv)
{
    kb_code code = cli_parse(self, &argc, argv, NULL);
    if (code == KB_OK)
        fwrite(ccl_builtin_text, 1, ccl_builtin_length, stdout);
    return code;
}

const cli_command ccl_print_command = {
    .name = "ccl print",
    .arguments = "",
    .summary = "print the built-in ccl.yaml, with comments on every key",
    .help = "",
    .example = "Example: kernbench ccl print >ccl.yaml\n",
    .run = run_print,
};
