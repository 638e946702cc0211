/*
 * figures_json.c: writes all figures as one flat JSON object, name to number. The file appears
 * whole or not at all: it is written under another name and then renamed. What is no plain file, a
 * pipe or a device, is written to as it is.
 */
#include "suite.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static kb_error *cannot_write(const bench *b, int reason)
{
    /* A path that leads nowhere is the caller's mistake, a full disk is not. */
    bool wrong_path = reason == ENOENT || reason == ENOTDIR || reason == EISDIR ||
                      reason == EACCES || reason == EPERM || reason == EROFS ||
                      reason == ENAMETOOLONG || reason == ELOOP;
    return kb_error_new(wrong_path ? KB_ERR_INPUT : KB_ERR_HOST, "cannot write %s: %s", b->json,
                        strerror(reason));
}

/* Where to write at first; the caller frees it. */
static char *first_path(const bench *b)
{
    struct stat status;
    kb_text path = KB_TEXT_INIT;

    kb_text_puts(&path, b->json);
    if (lstat(b->json, &status) != 0 || S_ISREG(status.st_mode))
        kb_text_printf(&path, ".%ld.tmp", (long)getpid());
    return kb_text_take(&path);
}

kb_error *bench_probe_json(const bench *b)
{
    char *path = first_path(b);
    if (path == NULL)
        return kb_error_nomem();

    kb_error *err = NULL;
    if (strcmp(path, b->json) != 0) {
        FILE *file = fopen(path, "w");
        if (file == NULL) {
            err = cannot_write(b, errno);
        } else {
            fclose(file);
            unlink(path);
        }
    }
    free(path);
    return err;
}

static void write_figures(const bench *b, FILE *file)
{
    fputs("{", file);
    for (size_t i = 0; i < b->stats.count; i++) {
        const bench_figure *figure = &b->stats.items[i];
        fprintf(file, "%s\n    \"%s\": %.6g", i > 0 ? "," : "", figure->name, figure->value);
    }
    fputs("\n}\n", file);
}

/* 0, or the reason why not. */
static int write_file(const bench *b, const char *path)
{
    FILE *file = fopen(path, "w");
    if (file == NULL)
        return errno;
    errno = 0;
    write_figures(b, file);
    bool failed = ferror(file) != 0;
    failed = fclose(file) != 0 || failed;
    return failed ? (errno != 0 ? errno : EIO) : 0;
}

kb_error *bench_write_json(const bench *b)
{
    if (b->failed)
        return kb_error_nomem();
    char *path = first_path(b);
    if (path == NULL)
        return kb_error_nomem();

    int reason = write_file(b, path);
    if (strcmp(path, b->json) != 0) {
        if (reason == 0 && rename(path, b->json) != 0)
            reason = errno;
        if (reason != 0)
            unlink(path);
    }
    free(path);
    return reason == 0 ? NULL : cannot_write(b, reason);
}
