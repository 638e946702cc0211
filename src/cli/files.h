/* files.h: whole files as texts. */
#ifndef KB_CLI_FILES_H
#define KB_CLI_FILES_H

#include <kernbench/kernbench.h>

#include "base/base.h"

/* Appends what is in the file to the text. */
KB_MUST_USE kb_error *cli_read_file(const char *path, kb_text *text);

/* What was in the file is lost, also if this fails. */
KB_MUST_USE kb_error *cli_write_file(const char *path, const kb_text *text);

/* A file that is there already is an error, and stays as it is. After other errors there is none.
 */
KB_MUST_USE kb_error *cli_create_file(const char *path, const kb_text *text);

#endif
