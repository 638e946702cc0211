/* descriptors.h: stdin, stdout and stderr, which may be closed when the program starts. */
#ifndef KB_CLI_DESCRIPTORS_H
#define KB_CLI_DESCRIPTORS_H

#include <stdbool.h>

/*
 * Called before any file is opened. Replaces closed descriptors, so that files that are opened
 * later do not get the numbers 0, 1 and 2: reading from 0 and writing to 1 fail as before, and
 * output to 2 is discarded.
 */
void descriptors_open(void);

/* Whether the descriptor, of any number, was closed at the start. */
bool descriptors_was_closed(int descriptor);

/* In a forked process that has redirected them: they are as they should be. */
void descriptors_adopt(void);

/* 1 or 2 if stdout or stderr was closed or replaced since; 0 if neither was. */
int descriptors_replaced(void);

#endif
