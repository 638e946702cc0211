/* machine_options.h: the machine that --topology and --set describe. */
#ifndef KB_CLI_MACHINE_OPTIONS_H
#define KB_CLI_MACHINE_OPTIONS_H

#include "topo/topo.h"

#include "options.h"

/*
 * Loads the machine. Errors are reported on stderr, and so are settings without effect, unless
 * --quiet is given. On failure *machine is NULL.
 */
KB_MUST_USE kb_code cli_load_machine(const cli_common *common, topo_machine **machine);

/* The same, without messages. */
KB_MUST_USE kb_error *cli_try_machine(const cli_common *common, topo_machine **machine);

/* Appends "'default'", and " with KEY=VALUE, ..." if there are settings. One line of text. */
void cli_machine_title(const topo_machine *machine, const cli_list *settings, kb_text *text);

/* Appends " --topology X --set KEY=VALUE ..." as they were given, quoted for a shell. */
void cli_machine_options(const cli_common *common, kb_text *text);

/* Appends " OPTION WORD", quoted for a shell. */
void cli_append_option(kb_text *text, const char *option, const char *word);

/*
 * Appends the name of a link for tables: the common prefix of its ends appears once, as in
 * "sip0.cube0.noc.x0y0>noc.x1y0".
 */
void cli_short_link_name(const topo_machine *machine, uint32_t link, kb_text *text);

#endif
