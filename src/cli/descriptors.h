/* descriptors.h: stdin, stdout and stderr, which may be closed when the program starts. */
#ifndef KB_CLI_DESCRIPTORS_H
#define KB_CLI_DESCRIPTORS_H

#include <stdbool.h>

/*
 * To be called before anything opens a file. A closed descriptor of 0, 1 and 2 is taken by one that
 * refuses reading (0) or writing (1) as a closed one does, and for 2 swallows what is written: so
 * no file that is opened later gets its number.
 */
void descriptors_open(void);

/* Whether the descriptor, of any number, was closed at the start. */
bool descriptors_was_closed(int descriptor);

/* 1 or 2 if stdout or stderr is not what it was at the start; 0 if they are. */
int descriptors_replaced(void);

#endif
