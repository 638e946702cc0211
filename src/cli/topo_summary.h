/* topo_summary.h: the summary of a machine. */
#ifndef KB_CLI_TOPO_SUMMARY_H
#define KB_CLI_TOPO_SUMMARY_H

#include "topo/topo.h"

#include "options.h"

KB_MUST_USE kb_code topo_print_summary(const topo_machine *machine, const cli_list *settings);
KB_MUST_USE kb_code topo_print_summary_json(const topo_machine *machine, const cli_list *settings);

#endif
