/* files.h: reading whole files, and writing them so that only whole ones appear. */
#ifndef KB_CLI_FILES_H
#define KB_CLI_FILES_H

#include <stdio.h>

#include <kernbench/kernbench.h>

#include "base/base.h"

/* Appends what is in the file to the text. */
KB_MUST_USE kb_error *cli_read_file(const char *path, kb_text *text);

/*
 * A file that is being written. It has a temporary name beside its own until it is complete, so a
 * run that fails or is interrupted leaves the file that was there as it was. A new file has the
 * permissions that the umask leaves, an existing one keeps its own; a symbolic link stays, and the
 * file it points to is replaced.
 *
 * "-" is stdout. What is not a regular file (a device, a pipe, /dev/stdout) is written directly; so
 * is an existing file in a directory where no file can be created.
 */
typedef struct cli_output cli_output;

/* Whether a path names stdout: "-", /dev/stdout, or a link there. An error only for want of memory.
 */
KB_MUST_USE kb_error *cli_is_stdout(const char *path, bool *is_stdout);

KB_MUST_USE kb_error *cli_output_open(const char *path, cli_output **out);

FILE *cli_output_file(const cli_output *out);

/* The file is complete. If that fails the old one stays. Frees `out` in any case. */
KB_MUST_USE kb_error *cli_output_commit(cli_output *out);

/* The file is not wanted any more. Nothing if `out` is NULL. */
void cli_output_discard(cli_output *out);

/* Writes a whole file. */
KB_MUST_USE kb_error *cli_write_file(const char *path, const kb_text *text);

/* The same, but a file that is there already is an error, and stays as it is. */
KB_MUST_USE kb_error *cli_create_file(const char *path, const kb_text *text);

#endif
