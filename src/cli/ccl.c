/* ccl.c: the command about collectives: its parts are commands of their own. */
#include "ccl.h"

#include "cli.h"

/* In the order that help shows them. */
static const cli_command *const subcommands[] = {&ccl_plan_command, &ccl_print_command,
                                                 &ccl_tune_command, NULL};

/* Of a word that is none of them, or of none at all. */
static kb_code run_ccl(const cli_command *self, int argc, char **argv)
{
    const char *names[sizeof subcommands / sizeof subcommands[0]];
    kb_text list = KB_TEXT_INIT;
    size_t count = 0;
    for (; subcommands[count]; count++) {
        names[count] = cli_subcommand_word(subcommands[count]);
        kb_text_printf(&list, "%s%s", count > 0 ? " or " : "", names[count]);
    }
    kb_code code;
    if (argc > 1)
        code = cli_unknown("command of ccl", argv[1], names, count, self->name);
    else
        code = cli_fail(KB_ERR_INPUT, "%s what: %s? See kernbench %s --help", self->name,
                        kb_text_peek(&list), self->name);
    kb_text_fini(&list);
    return code;
}

const cli_command cli_ccl_command = {
    .name = "ccl",
    .arguments = "COMMAND [OPTIONS]",
    .summary = "what there is to know of collectives on a machine",
    .help = "",
    .example = "Example: kernbench ccl plan\n",
    .subcommands = subcommands,
    .run = run_ccl,
};
