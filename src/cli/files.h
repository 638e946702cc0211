/* files.h: reads files, and writes them atomically. */
#ifndef KB_CLI_FILES_H
#define KB_CLI_FILES_H

#include <stdio.h>

#include <kernbench/kernbench.h>

#include "base/base.h"

/* Appends the contents of the file to the text. */
KB_MUST_USE kb_error *cli_read_file(const char *path, kb_text *text);

/*
 * A file that is being written. It has a temporary name in the same directory until it is complete,
 * so a run that fails or is interrupted does not change an existing file. New files have the
 * permissions of the umask, existing ones keep theirs; of a symbolic link the target is replaced.
 *
 * "-" is stdout. Devices, pipes and /dev/stdout are written directly; so is an existing file in a
 * directory in which no file can be created.
 */
typedef struct cli_output cli_output;

/* Whether a path names stdout: "-", /dev/stdout, or a link to it. The only error is out of memory.
 */
KB_MUST_USE kb_error *cli_is_stdout(const char *path, bool *is_stdout);

KB_MUST_USE kb_error *cli_output_open(const char *path, cli_output **out);

FILE *cli_output_file(const cli_output *out);

/* Completes the file; on failure an existing one stays. Frees `out` in any case. */
KB_MUST_USE kb_error *cli_output_commit(cli_output *out);

/* Drops the file. NULL does nothing. */
void cli_output_discard(cli_output *out);

/* Writes a whole file. */
KB_MUST_USE kb_error *cli_write_file(const char *path, const kb_text *text);

/* The same, but an existing file is an error, and is not changed. */
KB_MUST_USE kb_error *cli_create_file(const char *path, const kb_text *text);

#endif
