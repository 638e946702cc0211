/* rewrite.h: writes settings into the YAML text of a machine. */
#ifndef KB_CLI_REWRITE_H
#define KB_CLI_REWRITE_H

#include "base/base.h"

#include <kernbench/kernbench.h>

/*
 * Writes "key.path=value" into the text, and keeps its comments. A missing key is inserted. The
 * setting must be a valid override of the text.
 */
KB_MUST_USE kb_error *rewrite_setting(kb_text *text, const char *setting);

/*
 * Replaces the list or mapping in flow style at "key.path" by another one: "[NW, SE]". It must have
 * no brackets in strings or comments.
 */
KB_MUST_USE kb_error *rewrite_collection(kb_text *text, const char *path, const char *yaml);

#endif
