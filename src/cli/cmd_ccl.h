/* cmd_ccl.h: the subcommands of `ccl`. */
#ifndef KB_CLI_CMD_CCL_H
#define KB_CLI_CMD_CCL_H

#include "cli.h"

extern const cli_command ccl_plan_command;
extern const cli_command ccl_print_command;
extern const cli_command ccl_tune_command;

#endif
