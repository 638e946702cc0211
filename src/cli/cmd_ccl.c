/* cmd_ccl.c: the command `ccl`; each subcommand has a file of its own. */
#include "cmd_ccl.h"

#include "cli.h"

/* In the order that help shows them. */
static const cli_command *const subcommands[] = {&ccl_plan_command, &ccl_print_command,
                                                 &ccl_tune_command, NULL};

/* Called with an unknown subcommand, or without one. */
static kb_code run_ccl(const cli_call *call)
{
    const char *name = call->command->name;
    const char *names[sizeof subcommands / sizeof subcommands[0]];
    size_t count = 0;
    for (; subcommands[count]; count++)
        names[count] = cli_subcommand_word(subcommands[count]);
    if (call->word_count > 0)
        return cli_unknown("subcommand", call->words[0], names, count, name);
    kb_text list = KB_TEXT_INIT;
    kb_append_names(&list, names, count);
    kb_code code = cli_fail(KB_ERR_INPUT, "missing subcommand: %s; see kernbench %s --help",
                            kb_text_peek(&list), name);
    kb_text_fini(&list);
    return code;
}

const cli_command cli_ccl_command = {
    .name = "ccl",
    .arguments = "SUBCOMMAND [OPTIONS]",
    .summary = "show queue plans, print ccl.yaml, tune the choice of algorithms",
    .help = "",
    .example = "Example: kernbench ccl plan\n",
    .takes_raw_words = true,
    .subcommands = subcommands,
    .run = run_ccl,
};
