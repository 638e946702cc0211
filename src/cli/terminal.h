/* terminal.h: headings and paragraphs on a terminal. */
#ifndef KB_CLI_TERMINAL_H
#define KB_CLI_TERMINAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Width of a text in terminal columns. */
size_t cli_text_width(const char *text, size_t length);

/* Switches bold on or off; prints nothing without colours. */
void cli_print_bold(FILE *out, bool on);

/* A heading: bold on a terminal. */
void cli_print_heading(FILE *out, const char *text);

/* An indented paragraph, wrapped. */
void cli_print_wrapped(FILE *out, const char *text);

#endif
