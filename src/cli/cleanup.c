/*
 * cleanup.c: temporary files and child processes: see cleanup.h.
 *
 * Signal handlers may read the table at any time: an entry is valid while it has a path, which is
 * written last and cleared first.
 */
#include "cleanup.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    MAX_ENTRIES = 16,
    CHILD_TIMEOUT_MS = 2000, /* then it is killed */
    GROUP_TIMEOUT_MS = 200,
    CHILD_POLL_MS = 2,
};

static struct {
    const char *volatile path;
    volatile bool is_directory;
} entries[MAX_ENTRIES];
static volatile pid_t owner, child;

bool cleanup_add(const char *path, bool is_directory)
{
    for (size_t i = 0; i < MAX_ENTRIES; i++) {
        if (entries[i].path)
            continue;
        owner = getpid();
        entries[i].is_directory = is_directory;
        entries[i].path = path;
        return true;
    }
    return false;
}

void cleanup_drop(const char *path)
{
    for (size_t i = 0; i < MAX_ENTRIES; i++)
        if (entries[i].path == path)
            entries[i].path = NULL;
}

void cleanup_set_child(pid_t group)
{
    owner = getpid();
    child = group;
}

void cleanup_forget(void)
{
    for (size_t i = 0; i < MAX_ENTRIES; i++)
        entries[i].path = NULL;
    child = 0;
}

/* Waits until the first process of the group, or all of them, ended; false after the timeout. */
static bool wait_for_end(pid_t group, bool all, int timeout_ms)
{
    for (int waited = 0; waited < timeout_ms; waited += CHILD_POLL_MS) {
        if (all ? kill(-group, 0) != 0 : waitpid(group, NULL, WNOHANG) != 0)
            return true;
        (void)poll(NULL, 0, CHILD_POLL_MS);
    }
    return false;
}

/*
 * A compiler that ignores the signal is killed, as this process is about to end. Its own child
 * processes end soon after; they cannot be waited for, and may remain as zombies.
 */
static void end_child(int signal_number)
{
    pid_t group = child;
    if (group == 0)
        return;
    child = 0;
    (void)kill(-group, signal_number);
    if (!wait_for_end(group, false, CHILD_TIMEOUT_MS)) {
        (void)kill(-group, SIGKILL);
        (void)waitpid(group, NULL, 0);
    }
    (void)wait_for_end(group, true, GROUP_TIMEOUT_MS);
}

/* May miss files that are created meanwhile. readdir() is not async-signal-safe. */
static void remove_files_in(const char *path)
{
    _Alignas(struct dirent64) char buffer[2048];
    ssize_t size;
    int directory = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    while (directory >= 0 && (size = getdents64(directory, buffer, sizeof buffer)) > 0) {
        const struct dirent64 *entry;
        for (ssize_t at = 0; at < size; at += entry->d_reclen) {
            entry = (const void *)(buffer + at);
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

void cleanup_discard(const char *directory)
{
    remove_directory(directory);
    cleanup_drop(directory);
}

void cleanup_remove(int signal_number)
{
    if (owner != getpid())
        return;
    end_child(signal_number);
    for (size_t i = MAX_ENTRIES; i-- > 0;) {
        const char *path = entries[i].path;
        if (!path)
            continue;
        if (entries[i].is_directory)
            remove_directory(path);
        else
            (void)unlink(path);
        entries[i].path = NULL;
    }
}
