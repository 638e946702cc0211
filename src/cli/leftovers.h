/*
 * leftovers.h: what must not outlive the process: temporary files and directories, and a compiler
 * that is still running. What makes one adds it, and what ends the process removes what is left.
 */
#ifndef KB_CLI_LEFTOVERS_H
#define KB_CLI_LEFTOVERS_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * The path stays the caller's until it is dropped. A directory goes with the files in it. False if
 * there are too many.
 */
bool leftovers_add(const char *path, bool is_directory);
void leftovers_drop(const char *path);

/* Removes a directory with the files in it, and drops it. */
void leftovers_discard(const char *directory);

/* A process group that leftovers_remove() ends first; 0: none. */
void leftovers_set_child(pid_t group);

/*
 * Ends the child by the signal and waits for it, then removes files and directories, the newest
 * first. Safe in a signal handler. A process that fork() made removes nothing.
 */
void leftovers_remove(int signal_number);

#endif
