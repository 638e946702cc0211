/* effective.h: a machine as a complete YAML text. */
#ifndef KB_CLI_EFFECTIVE_H
#define KB_CLI_EFFECTIVE_H

#include "topo/topo.h"

/*
 * Appends a text that has every key and describes the same machine: the text of the built-in
 * default machine, with its comments, and with the values of this machine. It begins with a comment
 * that lists the differences from the default.
 */
KB_MUST_USE kb_error *effective_text(const topo_machine *machine, kb_text *text);

#endif
