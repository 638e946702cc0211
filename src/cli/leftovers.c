/*
 * leftovers.c: temporary files of this process: see leftovers.h.
 *
 * Signal handlers read the table at any moment. So an entry counts only while it has a path, which
 * is written last and cleared first.
 */
#include "leftovers.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    MAX_LEFTOVERS = 16,
    CHILD_PATIENCE_MS = 2000, /* then it is killed */
    GROUP_PATIENCE_MS = 200,
    CHILD_POLL_MS = 2,
};

static struct {
    const char *volatile path;
    volatile bool is_directory;
} leftovers[MAX_LEFTOVERS];
static volatile pid_t owner, child;

bool leftovers_add(const char *path, bool is_directory)
{
    for (size_t i = 0; i < MAX_LEFTOVERS; i++) {
        if (leftovers[i].path)
            continue;
        owner = getpid();
        leftovers[i].is_directory = is_directory;
        leftovers[i].path = path;
        return true;
    }
    return false;
}

void leftovers_drop(const char *path)
{
    for (size_t i = 0; i < MAX_LEFTOVERS; i++)
        if (leftovers[i].path == path)
            leftovers[i].path = NULL;
}

void leftovers_set_child(pid_t group)
{
    owner = getpid();
    child = group;
}

/* Waits until the first process of the group, or all of it, is gone; false if it takes too long. */
static bool wait_for_end(pid_t group, bool all, int patience_ms)
{
    for (int waited = 0; waited < patience_ms; waited += CHILD_POLL_MS) {
        if (all ? kill(-group, 0) != 0 : waitpid(group, NULL, WNOHANG) != 0)
            return true;
        (void)poll(NULL, 0, CHILD_POLL_MS);
    }
    return false;
}

/*
 * A compiler that ignores the signal is killed: this process is about to end. It has processes of
 * its own, which end soon after; those are not ours to wait for, and may stay as zombies.
 */
static void end_child(int signal_number)
{
    pid_t group = child;
    if (group == 0)
        return;
    child = 0;
    (void)kill(-group, signal_number);
    if (!wait_for_end(group, false, CHILD_PATIENCE_MS)) {
        (void)kill(-group, SIGKILL);
        (void)waitpid(group, NULL, 0);
    }
    (void)wait_for_end(group, true, GROUP_PATIENCE_MS);
}

/* Files that are made while it is read may be missed. Not by readdir(): signal handlers call this.
 */
static void remove_files_in(const char *path)
{
    _Alignas(struct dirent64) char entries[2048];
    ssize_t size;
    int directory = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    while (directory >= 0 && (size = getdents64(directory, entries, sizeof entries)) > 0) {
        const struct dirent64 *entry;
        for (ssize_t at = 0; at < size; at += entry->d_reclen) {
            entry = (const void *)(entries + at);
            (void)unlinkat(directory, entry->d_name, 0); /* directories stay, "." among them */
        }
    }
    if (directory >= 0)
        (void)close(directory);
}

static void remove_directory(const char *path)
{
    enum { MAX_TRIES = 4 };
    for (int i = 0; i < MAX_TRIES && rmdir(path) != 0; i++)
        remove_files_in(path);
}

void leftovers_discard(const char *directory)
{
    remove_directory(directory);
    leftovers_drop(directory);
}

void leftovers_remove(int signal_number)
{
    if (owner != getpid())
        return;
    end_child(signal_number);
    for (size_t i = MAX_LEFTOVERS; i-- > 0;) {
        const char *path = leftovers[i].path;
        if (!path)
            continue;
        if (leftovers[i].is_directory)
            remove_directory(path);
        else
            (void)unlink(path);
        leftovers[i].path = NULL;
    }
}
