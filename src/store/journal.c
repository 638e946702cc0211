/*
 * journal.c: which journal the file system of a store needs.
 *
 * A write-ahead log has an index in memory that all programs share, so they must run on one host. A
 * file system that is not known to be of one host gets a rollback journal, which any can have that
 * locks files. KERNBENCH_STORE_JOURNAL=wal or =rollback decides otherwise.
 */
#include "store_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>

/* Types of statfs(2), of file systems that one host has mounted. */
static const unsigned long local_types[] = {
    0xef53,     /* ext2, ext3, ext4 */
    0x58465342, /* xfs */
    0x9123683e, /* btrfs */
    0x01021994, /* tmpfs */
    0x858458f6, /* ramfs */
    0x794c7630, /* overlayfs */
    0x2fc12fc1, /* zfs */
    0xf2f52010, /* f2fs */
    0xca451a4e, /* bcachefs */
    0x3153464a, /* jfs */
    0x52654973, /* reiserfs */
};

bool store_is_local(unsigned long type)
{
    for (size_t i = 0; i < sizeof local_types / sizeof local_types[0]; i++)
        if (local_types[i] == type)
            return true;
    return false;
}

static kb_error *read_choice(bool *chosen, bool *is_wal)
{
    const char *choice = getenv("KERNBENCH_STORE_JOURNAL");
    *chosen = choice && choice[0] != '\0';
    if (!*chosen)
        return NULL;
    *is_wal = strcmp(choice, "wal") == 0;
    if (*is_wal || strcmp(choice, "rollback") == 0)
        return NULL;
    return kb_error_new(KB_ERR_INPUT,
                        "KERNBENCH_STORE_JOURNAL: expected wal or rollback, found '%s'", choice);
}

kb_error *store_choose_journal(const char *path, bool *is_wal, const char **reason)
{
    bool chosen;
    *reason = "KERNBENCH_STORE_JOURNAL";
    KB_TRY(read_choice(&chosen, is_wal));
    if (chosen)
        return NULL;
    struct statfs status;
    if (statfs(path, &status) != 0)
        return kb_error_new(kb_code_of_errno(errno), "cannot read %s: %s", path, strerror(errno));
    *reason = "its file system may be shared by several hosts";
    *is_wal = store_is_local((unsigned long)status.f_type & 0xffffffff);
    return NULL;
}
