/* files.c: reading and writing files as a whole. That a disk is full shows when a file is closed.
 */
#include "files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

kb_error *cli_read_file(const char *path, kb_text *text)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return kb_error_new(KB_ERR_INPUT, "%s: %s", path, strerror(errno));
    char buffer[4096];
    size_t size;
    while ((size = fread(buffer, 1, sizeof buffer, file)) > 0)
        kb_text_append(text, buffer, size);
    bool failed = ferror(file) != 0;
    (void)fclose(file); /* it was only read */
    if (failed)
        return kb_error_new(KB_ERR_INPUT, "%s: cannot read the file", path);
    return text->failed ? kb_error_nomem() : NULL;
}

/* Writes the text and closes the file, in any case. */
static kb_error *fill(FILE *file, const char *path, const kb_text *text)
{
    errno = 0;
    bool failed = fwrite(kb_text_peek(text), 1, text->length, file) != text->length;
    int why = errno;
    if (fclose(file) != 0 && !failed) {
        failed = true;
        why = errno;
    }
    return failed ? kb_error_new(KB_ERR_HOST, "cannot write %s: %s", path, strerror(why)) : NULL;
}

kb_error *cli_write_file(const char *path, const kb_text *text)
{
    FILE *file = fopen(path, "wb");
    if (!file)
        return kb_error_new(KB_ERR_INPUT, "cannot write %s: %s", path, strerror(errno));
    return fill(file, path, text);
}

kb_error *cli_create_file(const char *path, const kb_text *text)
{
    FILE *file = fopen(path, "wbx");
    if (!file && errno == EEXIST)
        return kb_error_new(KB_ERR_INPUT, "%s already exists: choose another name", path);
    if (!file)
        return kb_error_new(KB_ERR_INPUT, "cannot write %s: %s", path, strerror(errno));
    kb_error *err = fill(file, path, text);
    if (err)
        (void)unlink(path);
    return err;
}
