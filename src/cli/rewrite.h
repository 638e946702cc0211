/* rewrite.h: settings written into the text of a description. */
#ifndef KB_CLI_REWRITE_H
#define KB_CLI_REWRITE_H

#include "base/base.h"

#include <kernbench/kernbench.h>

/*
 * Changes the text so that it says what "key.path=value" sets, and keeps its comments. A key that
 * it has not is put where it belongs. The setting must be one that the text takes as an override.
 */
KB_MUST_USE kb_error *rewrite_setting(kb_text *text, const char *setting);

/*
 * Replaces a list or a mapping that the text has in braces, at "key.path", by another one: "[NW,
 * SE]". It must have no brackets in strings or comments.
 */
KB_MUST_USE kb_error *rewrite_collection(kb_text *text, const char *path, const char *yaml);

#endif
