/*
 * new.c: the command that writes the beginning of something of one's own. It is a whole one that
 * works, to be changed step by step. No file that is there is touched.
 */
#include "cli.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "new_bench.h"

typedef struct new_args {
    const char *dir;
} new_args;

static const cli_option options[] = {
    {.name = "--dir",
     .value = "DIR",
     .help = "where the file goes; default: here",
     .kind = CLI_STRING,
     CLI_INTO(new_args, dir)},
};

/* The names of the file, the bench and the kernel. */
static bool is_identifier(const char *name)
{
    if (!isalpha((unsigned char)name[0]) && name[0] != '_')
        return false;
    for (; *name != '\0'; name++)
        if (!isalnum((unsigned char)*name) && *name != '_')
            return false;
    return true;
}

/* The template with its name replaced. */
static void fill_in(const char *name, kb_text *text)
{
    static const char mark[] = "my_bench";
    const char *at = new_bench_text;
    for (const char *found = strstr(at, mark); found; found = strstr(at, mark)) {
        kb_text_append(text, at, (size_t)(found - at));
        kb_text_puts(text, name);
        at = found + strlen(mark);
    }
    kb_text_puts(text, at);
}

static kb_code write_new(const char *path, const kb_text *text)
{
    FILE *file = fopen(path, "wx");
    if (!file && errno == EEXIST)
        return cli_fail(KB_ERR_INPUT, "%s is there already: choose another name", path);
    if (!file)
        return cli_fail(KB_ERR_INPUT, "cannot write %s: %s", path, strerror(errno));
    errno = 0;
    bool written = fwrite(kb_text_peek(text), 1, text->length, file) == text->length;
    int why = errno;
    if (fclose(file) != 0 && written) {
        written = false;
        why = errno;
    }
    if (written)
        return KB_OK;
    (void)unlink(path);
    return cli_fail(KB_ERR_HOST, "cannot write %s: %s", path, strerror(why));
}

static kb_code new_bench(const char *name, const char *dir)
{
    char buffer[CLI_CLIP];
    if (!is_identifier(name))
        return cli_fail(KB_ERR_INPUT,
                        "'%s' cannot be the name of a bench: letters, digits and _, as in C",
                        cli_clip(name, buffer));
    kb_text path = KB_TEXT_INIT, text = KB_TEXT_INIT;
    kb_text_printf(&path, "%s/%s.c", dir ? dir : ".", name);
    fill_in(name, &text);
    kb_code code = path.failed || text.failed ? cli_report(kb_error_nomem())
                                              : write_new(kb_text_peek(&path), &text);
    if (code == KB_OK)
        printf("%s is a bench with a kernel of its own. Next:\n"
               "  kernbench run --bench %s --verify-data\n",
               kb_text_peek(&path), kb_text_peek(&path));
    kb_text_fini(&text);
    kb_text_fini(&path);
    return code;
}

static kb_code run_new(const cli_command *self, int argc, char **argv)
{
    static const char *const kinds[] = {"bench"};
    new_args args = {0};
    kb_code code = cli_parse(self, &argc, argv, &args);
    if (code != KB_OK)
        return code;
    if (argc < 3)
        return cli_fail(KB_ERR_INPUT, "what is to be made? kernbench new bench NAME");
    if (strcmp(argv[1], kinds[0]) != 0)
        return cli_unknown("kind of thing", argv[1], kinds, 1);
    return new_bench(argv[2], args.dir);
}

const cli_command cli_new_command = {
    .name = "new",
    .arguments = "bench NAME [OPTIONS]",
    .summary = "a bench to start one's own from, into a file",
    .help =
        "Writes NAME.c: a short bench with its own kernel that verifies its result. A file that\n"
        "is there already stays as it is.\n",
    .example = "Example: kernbench new bench mine\n",
    CLI_OPTIONS(options),
    .max_words = 2,
    .run = run_new,
};
