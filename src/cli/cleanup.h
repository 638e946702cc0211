/*
 * cleanup.h: temporary files and directories, and running compilers, which must not outlive the
 * process. They are registered here, and removed when the process ends, also by a signal.
 */
#ifndef KB_CLI_CLEANUP_H
#define KB_CLI_CLEANUP_H

#include <stdbool.h>
#include <sys/types.h>

/*
 * The path must stay valid until it is dropped. A directory is removed with its files. False if
 * there are too many entries.
 */
bool cleanup_add(const char *path, bool is_directory);
void cleanup_drop(const char *path);

/* Removes a directory with the files in it, and drops it. */
void cleanup_discard(const char *directory);

/* A process group that cleanup_remove() terminates first; 0: none. */
void cleanup_set_child(pid_t group);

/* In a forked process: forgets what belongs to the process that it was forked from. */
void cleanup_forget(void);

/*
 * Sends the signal to the child and waits for it, then removes files and directories, the newest
 * first. Async-signal-safe. Does nothing in a forked process.
 */
void cleanup_remove(int signal_number);

#endif
