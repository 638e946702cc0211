/* sqlite_error.c: messages for result codes of SQLite. */
#include "store_private.h"

#include <string.h>

kb_error *store_error_of(const char *path, int result, const char *message, int os)
{
    if (result == SQLITE_IOERR_NOMEM)
        return kb_error_nomem();
    switch (result & 0xff) {
    case SQLITE_NOMEM:
        return kb_error_nomem();
    case SQLITE_NOTADB:
        return kb_error_new(KB_ERR_INPUT, "%s is not a store of runs: it is no SQLite database",
                            path);
    case SQLITE_CORRUPT:
        return kb_error_new(
            KB_ERR_INPUT,
            "the store %s is damaged: save what is left with: sqlite3 %s .recover | "
            "sqlite3 NEW",
            path, path);
    case SQLITE_FULL:
        return kb_error_new(KB_ERR_HOST, "cannot write the store %s: the disk is full", path);
    case SQLITE_READONLY:
    case SQLITE_PERM:
        return kb_error_new(KB_ERR_INPUT, "cannot write the store %s: it is read-only", path);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return kb_error_new(KB_ERR_HOST, "the store %s is locked by another program", path);
    case SQLITE_TOOBIG:
        return kb_error_new(KB_ERR_HOST, "the store %s: an entry is too large; its limit is 1 GB",
                            path);
    default:
        return kb_error_new(os != 0 ? kb_code_of_errno(os) : KB_ERR_HOST,
                            "cannot access the store %s: %s", path,
                            os != 0 ? strerror(os) : message);
    }
}

kb_error *store_error(const store *s, int result)
{
    bool of_system = (result & 0xff) == SQLITE_CANTOPEN || (result & 0xff) == SQLITE_IOERR;
    return store_error_of(s->path, result, sqlite3_errmsg(s->db),
                          of_system ? sqlite3_system_errno(s->db) : 0);
}
