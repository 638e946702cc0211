/*
 * files.c: reads files, and writes them under a temporary name: see files.h.
 *
 * Paths of outputs become absolute when they are opened, as user code may change the current
 * directory. A full disk is noticed at the latest when the file is closed.
 */
#include "files.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cleanup.h"
#include "descriptors.h"

kb_error *cli_read_file(const char *path, kb_text *text)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return kb_error_new(kb_code_of_errno(errno), "%s: %s", path, strerror(errno));
    char buffer[4096];
    size_t size;
    while ((size = fread(buffer, 1, sizeof buffer, file)) > 0)
        kb_text_append(text, buffer, size);
    bool failed = ferror(file) != 0;
    (void)fclose(file);
    if (failed)
        return kb_error_new(KB_ERR_INPUT, "%s: cannot read the file", path);
    return text->failed ? kb_error_nomem() : NULL;
}

/* ---- Paths of outputs -------------------------------------------------------------------- */

struct cli_output {
    FILE *file;
    char *path;      /* as the user gave it */
    char *directory; /* absolute */
    char *target;    /* the file in it */
    char *temporary; /* NULL: the target is written directly */
    struct stat is;  /* of the temporary file */
    bool is_new;     /* an existing file is an error */
    int error;       /* first errno while writing; 0: none */
};

static kb_error *cannot_write(kb_code code, const char *path, int why)
{
    if (why == ENOMEM)
        return kb_error_nomem();
    return kb_error_new(code, "cannot write %s: %s", path, strerror(why));
}

/* A copy of "directory/name", or NULL. */
static char *join(const char *directory, const char *name)
{
    kb_text text = KB_TEXT_INIT;
    kb_text_printf(&text, "%s%s%s", directory, strcmp(directory, "/") == 0 ? "" : "/", name);
    return kb_text_take(&text);
}

/* Sets `directory` and `target` for a path. Returns an errno, or 0. */
static int split(cli_output *out, const char *path)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    if (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return EISDIR;
    kb_text text = KB_TEXT_INIT;
    if (slash)
        kb_text_append(&text, path, slash == path ? 1 : (size_t)(slash - path));
    else
        kb_text_puts(&text, ".");
    free(out->directory);
    free(out->target);
    out->target = NULL;
    errno = ENOMEM;
    out->directory = text.failed ? NULL : realpath(kb_text_peek(&text), NULL);
    int why = errno;
    kb_text_fini(&text);
    if (!out->directory)
        return why;
    out->target = join(out->directory, name);
    return out->target ? 0 : ENOMEM;
}

/* The descriptor that the target names (/dev/stdout, /dev/fd/3), or -1. */
static int descriptor_of(const cli_output *out)
{
    char own[64];
    const char *name = strrchr(out->target, '/') + 1;
    snprintf(own, sizeof own, "/proc/%ld/fd", (long)getpid());
    if (strcmp(out->directory, own) != 0 || !isdigit((unsigned char)name[0]))
        return -1;
    long number = strtol(name, NULL, 10);
    return number <= INT_MAX ? (int)number : -1;
}

/* Follows symbolic links, also to files that do not exist. Returns an errno, or 0. */
static int locate(cli_output *out, int *descriptor)
{
    enum { MAX_LINKS = 40 };
    char link[PATH_MAX];
    int why = split(out, out->path);
    for (int links = 0; why == 0; links++) {
        *descriptor = descriptor_of(out);
        ssize_t length = *descriptor >= 0 ? -1 : readlink(out->target, link, sizeof link - 1);
        if (length < 0)
            return 0;
        if (links == MAX_LINKS)
            return ELOOP;
        link[length] = '\0';
        char *next = link[0] == '/' ? strdup(link) : join(out->directory, link);
        why = next ? split(out, next) : ENOMEM;
        free(next);
    }
    return why;
}

kb_error *cli_is_stdout(const char *path, bool *is_stdout)
{
    *is_stdout = strcmp(path, "-") == 0;
    if (*is_stdout)
        return NULL;
    cli_output out = {.path = strdup(path)};
    int descriptor = -1, why = out.path ? locate(&out, &descriptor) : ENOMEM;
    free(out.path);
    free(out.directory);
    free(out.target);
    *is_stdout = why == 0 && descriptor == STDOUT_FILENO;
    return why == ENOMEM ? kb_error_nomem() : NULL;
}

/* ---- Opening ----------------------------------------------------------------------------- */

/* Descriptors of outputs. A forked process of user code has copies of their buffers, and must not
 * write them to the same files. */
enum { MAX_OPEN = 4 };
static int open_descriptors[MAX_OPEN];
static int open_count;

static void redirect_in_child(void)
{
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    for (int i = 0; i < open_count && null >= 0; i++)
        (void)dup3(null, open_descriptors[i], O_CLOEXEC);
    if (null >= 0)
        (void)close(null);
}

static bool note_open(int descriptor)
{
    static bool is_registered;
    if (!is_registered && pthread_atfork(NULL, NULL, redirect_in_child) != 0)
        return false;
    is_registered = true;
    if (open_count == MAX_OPEN)
        return false;
    open_descriptors[open_count++] = descriptor;
    return true;
}

/* Takes the descriptor over. Returns an errno, or 0. */
static int use_descriptor(cli_output *out, int descriptor)
{
    if (descriptor < 0)
        return errno;
    out->file = fdopen(descriptor, "w");
    if (out->file && note_open(descriptor))
        return 0;
    int why = out->file ? ENOMEM : errno;
    if (out->file) {
        (void)fclose(out->file);
        out->file = NULL;
        return why;
    }
    (void)close(descriptor);
    return why;
}

/* Writes to a descriptor that is open already. */
static kb_error *open_descriptor(cli_output *out, int descriptor)
{
    int why = descriptors_was_closed(descriptor)
                  ? EBADF
                  : use_descriptor(out, fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
    return why != 0 ? cannot_write(KB_ERR_HOST, out->path, why) : NULL;
}

static kb_error *open_stdout(cli_output *out)
{
    free(out->path);
    out->path = strdup("the output"); /* for messages */
    return out->path ? open_descriptor(out, STDOUT_FILENO) : kb_error_nomem();
}

/* Blocks signals until the file is registered for cleanup. Returns an errno, or 0. */
static int create_temporary(cli_output *out)
{
    enum { MAX_TRIES = 1000 };
    int descriptor = -1, why = EEXIST;
    sigset_t all, before;
    sigfillset(&all);
    (void)pthread_sigmask(SIG_BLOCK, &all, &before);
    for (int i = 0; i < MAX_TRIES && why == EEXIST; i++) {
        char name[64];
        snprintf(name, sizeof name, ".kernbench-%ld-%d", (long)getpid(), i);
        free(out->temporary);
        out->temporary = join(out->directory, name);
        if (!out->temporary) {
            why = ENOMEM;
            break;
        }
        descriptor = open(out->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        why = descriptor < 0 ? errno : 0;
    }
    if (why == 0 && !cleanup_add(out->temporary, false)) {
        (void)unlink(out->temporary);
        (void)close(descriptor);
        why = EMFILE;
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (why == 0)
        why = use_descriptor(out, descriptor);
    else {
        free(out->temporary);
        out->temporary = NULL;
    }
    return why;
}

/* As far as permitted: who may write a file need not own it. */
static void keep_owner_and_mode(const cli_output *out, const struct stat *old)
{
    int descriptor = fileno(out->file);
    if (old->st_uid != geteuid() || old->st_gid != getegid())
        if (fchown(descriptor, old->st_uid, old->st_gid) != 0)
            errno = 0;
    if (fchmod(descriptor, old->st_mode & 07777) != 0)
        errno = 0;
}

static bool is_stdout(const struct stat *file)
{
    struct stat own;
    return fstat(STDOUT_FILENO, &own) == 0 && own.st_dev == file->st_dev &&
           own.st_ino == file->st_ino;
}

/* `old`: the existing file, or NULL. */
static kb_error *open_beside(cli_output *out, const struct stat *old)
{
    if (old && is_stdout(old))
        return kb_error_new(KB_ERR_INPUT, "cannot write %s: stdout goes to the same file",
                            out->path);
    int why = old && faccessat(AT_FDCWD, out->target, W_OK, AT_EACCESS) != 0 ? errno : 0;
    if (why == 0)
        why = create_temporary(out);
    bool refused = why == EACCES || why == EPERM || why == EROFS;
    if (refused && old && faccessat(AT_FDCWD, out->target, W_OK, AT_EACCESS) == 0)
        why = use_descriptor(out, open(out->target, O_WRONLY | O_TRUNC | O_CLOEXEC));
    if (why != 0)
        return cannot_write(kb_code_of_errno(why), out->path, why);
    if (!out->temporary)
        return NULL;
    if (old)
        keep_owner_and_mode(out, old);
    return fstat(fileno(out->file), &out->is) == 0 ? NULL
                                                   : cannot_write(KB_ERR_HOST, out->path, errno);
}

static kb_error *open_path(cli_output *out)
{
    struct stat old;
    int descriptor = -1, why = locate(out, &descriptor);
    if (why == 0 && descriptor >= 0)
        return open_descriptor(out, descriptor);
    bool is_there = why == 0 && stat(out->target, &old) == 0;
    if (why == 0 && !is_there && errno != ENOENT)
        why = errno;
    if (is_there && S_ISDIR(old.st_mode))
        why = EISDIR;
    if (why == 0 && (!is_there || S_ISREG(old.st_mode)))
        return open_beside(out, is_there ? &old : NULL);
    if (why == 0)
        why = use_descriptor(out, open(out->target, O_WRONLY | O_NOCTTY | O_CLOEXEC));
    return why != 0 ? cannot_write(kb_code_of_errno(why), out->path, why) : NULL;
}

/* Follows no link: the path must not exist. */
static kb_error *open_new(cli_output *out)
{
    struct stat old;
    int why = split(out, out->path);
    out->is_new = true;
    if (why == 0 && lstat(out->target, &old) == 0)
        return kb_error_new(KB_ERR_INPUT, "%s already exists: choose another name", out->path);
    return why != 0 ? cannot_write(kb_code_of_errno(why), out->path, why) : open_beside(out, NULL);
}

static kb_error *open_output(const char *path, bool is_new, cli_output **result)
{
    *result = NULL;
    cli_output *out = kb_alloc_zeroed(1, sizeof *out);
    if (out)
        out->path = strdup(path);
    if (!out || !out->path) {
        free(out);
        return kb_error_nomem();
    }
    kb_error *err = NULL;
    if (is_new)
        err = open_new(out);
    else if (strcmp(path, "-") == 0)
        err = open_stdout(out);
    else
        err = open_path(out);
    if (err) {
        cli_output_discard(out);
        return err;
    }
    *result = out;
    return NULL;
}

kb_error *cli_output_open(const char *path, cli_output **out)
{
    return open_output(path, false, out);
}

FILE *cli_output_file(const cli_output *out)
{
    return out->file;
}

/* ---- Closing ----------------------------------------------------------------------------- */

/* Returns an errno, or 0. */
static int close_file(cli_output *out)
{
    FILE *file = out->file;
    struct stat now;
    out->file = NULL;
    open_count--;
    errno = 0;
    bool failed = fflush(file) != 0;
    int why = out->error != 0 ? out->error : errno;
    failed = ferror(file) != 0 || failed;
    /* User code may have closed the descriptor, and another file may have its number. */
    if (!failed && out->temporary &&
        (fstat(fileno(file), &now) != 0 || now.st_dev != out->is.st_dev ||
         now.st_ino != out->is.st_ino)) {
        failed = true;
        why = EBADF;
    }
    errno = 0;
    if (fclose(file) != 0 && !failed) {
        failed = true;
        why = errno;
    }
    return !failed ? 0 : why != 0 ? why : EIO;
}

/* Renames the complete file. Returns an errno, or 0. */
static int install(const cli_output *out)
{
    if (!out->is_new)
        return rename(out->temporary, out->target) == 0 ? 0 : errno;
    if (renameat2(AT_FDCWD, out->temporary, AT_FDCWD, out->target, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return errno;
    /* Not every file system supports this: link to the name instead. */
    return link(out->temporary, out->target) == 0 ? 0 : errno;
}

static void free_output(cli_output *out)
{
    if (out->temporary) {
        (void)unlink(out->temporary); /* fails if the file was renamed */
        cleanup_drop(out->temporary);
    }
    free(out->temporary);
    free(out->target);
    free(out->directory);
    free(out->path);
    free(out);
}

kb_error *cli_output_commit(cli_output *out)
{
    int why = close_file(out);
    if (why == 0 && out->temporary)
        why = install(out);
    kb_error *err = NULL;
    if (why == EEXIST && out->is_new)
        err = kb_error_new(KB_ERR_INPUT, "%s already exists: choose another name", out->path);
    else if (why != 0)
        err = cannot_write(KB_ERR_HOST, out->path, why);
    free_output(out);
    return err;
}

void cli_output_discard(cli_output *out)
{
    if (!out)
        return;
    if (out->file)
        (void)close_file(out);
    free_output(out);
}

/* ---- Whole files ------------------------------------------------------------------------- */

static kb_error *write_whole(const char *path, bool is_new, const kb_text *text)
{
    if (text->failed)
        return kb_error_nomem();
    cli_output *out;
    KB_TRY(open_output(path, is_new, &out));
    errno = 0;
    if (fwrite(kb_text_peek(text), 1, text->length, out->file) != text->length)
        out->error = errno; /* reported by cli_output_commit() */
    return cli_output_commit(out);
}

kb_error *cli_write_file(const char *path, const kb_text *text)
{
    return write_whole(path, false, text);
}

kb_error *cli_create_file(const char *path, const kb_text *text)
{
    return write_whole(path, true, text);
}
