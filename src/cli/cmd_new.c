/*
 * cmd_new.c: the command `new`: creates a working bench or collective to start from. Existing files
 * are never overwritten.
 */
#include "cli.h"

#include <ctype.h>
#include <string.h>
#include <unistd.h>

#include "files.h"
#include "templates.h"

typedef struct new_args {
    const char *dir;
    bool python;
} new_args;

static const cli_option options[] = {
    CLI_OPTION("--dir", "DIR", CLI_STRING, new_args, dir,
               "directory of the new files; default: the current one"),
    CLI_OPTION("--python", NULL, CLI_FLAG, new_args, python, "a bench in Python"),
};

static bool is_identifier(const char *name)
{
    if (!isalpha((unsigned char)name[0]) && name[0] != '_')
        return false;
    for (; *name != '\0'; name++)
        if (!isalnum((unsigned char)*name) && *name != '_')
            return false;
    return true;
}

/* Appends the template with all occurrences of the mark replaced by the name. */
static void fill_in(const char *template, const char *mark, const char *name, kb_text *text)
{
    const char *at = template;
    for (const char *found = strstr(at, mark); found; found = strstr(at, mark)) {
        kb_text_append(text, at, (size_t)(found - at));
        kb_text_puts(text, name);
        at = found + strlen(mark);
    }
    kb_text_puts(text, at);
}

/* Writes DIR/NAME.ENDING, which is returned in *path. */
static kb_code write_template(const new_args *args, const char *name, const char *ending,
                              const char *template, const char *mark, kb_text *path)
{
    kb_text text = KB_TEXT_INIT;
    kb_text_printf(path, "%s/%s.%s", args->dir ? args->dir : ".", name, ending);
    fill_in(template, mark, name, &text);
    kb_error *err =
        path->failed || text.failed ? kb_error_nomem() : cli_create_file(kb_text_peek(path), &text);
    kb_text_fini(&text);
    return err ? cli_report(err) : KB_OK;
}

static kb_code new_bench(const char *name, const new_args *args)
{
    kb_text path = KB_TEXT_INIT;
    kb_code code =
        write_template(args, name, args->python ? "py" : "c",
                       args->python ? new_python_bench_text : new_bench_text, "my_bench", &path);
    if (code == KB_OK)
        printf("Created %s, a bench with its own kernel. Next:\n"
               "  kernbench run --bench %s --verify-data\n",
               kb_text_peek(&path), kb_text_peek(&path));
    kb_text_fini(&path);
    return code;
}

/* Both files, or none. */
static kb_code new_collective(const char *name, const new_args *args)
{
    static const char mark[] = "my_collective";
    kb_text source = KB_TEXT_INIT, config = KB_TEXT_INIT;
    kb_code code = write_template(args, name, "c", new_collective_text, mark, &source);
    if (code == KB_OK) {
        code = write_template(args, name, "yaml", new_collective_yaml, mark, &config);
        if (code != KB_OK)
            (void)unlink(kb_text_peek(&source));
    }
    if (code == KB_OK)
        printf("Created %s, a collective, and %s, its ccl.yaml. Next:\n"
               "  kernbench run --bench ccl_allreduce --ccl %s --plugin %s\n",
               kb_text_peek(&source), kb_text_peek(&config), kb_text_peek(&config),
               kb_text_peek(&source));
    kb_text_fini(&config);
    kb_text_fini(&source);
    return code;
}

static kb_code run_new(const cli_call *call)
{
    static const char *const kinds[] = {"bench", "collective"};
    char buffer[CLI_CLIP];
    if (call->word_count < 2)
        return cli_fail(KB_ERR_INPUT, "missing arguments: kernbench new bench NAME, or kernbench "
                                      "new collective NAME");
    const char *kind = call->words[0], *name = call->words[1];
    bool is_bench = strcmp(kind, kinds[0]) == 0;
    if (!is_bench && strcmp(kind, kinds[1]) != 0)
        return cli_unknown("kind of file", kind, kinds, 2, call->command->name);
    const new_args *args = call->args;
    if (!is_bench && args->python)
        return cli_fail(KB_ERR_INPUT, "--python is for benches: a collective in Python is a module "
                                      "that ccl.yaml names (docs/python.md)");
    if (!is_identifier(name))
        return cli_fail(KB_ERR_INPUT,
                        "invalid name '%s' of a %s: expected a C identifier (letters, digits, _)",
                        cli_clip(name, buffer), kind);
    return is_bench ? new_bench(name, call->args) : new_collective(name, call->args);
}

const cli_command cli_new_command = {
    .name = "new",
    .arguments = "bench|collective NAME [OPTIONS]",
    .summary = "create a bench or a collective to start from",
    .help =
        "bench: writes NAME.c, a short bench with its own kernel that verifies its result; with\n"
        "--python NAME.py.\n"
        "collective: writes NAME.c, an all-reduce around a ring, and NAME.yaml, its entry for\n"
        "--ccl. An existing file is never overwritten.\n",
    .example = "Example: kernbench new bench mine\n",
    CLI_OPTIONS(options),
    CLI_ARGS(new_args),
    .max_words = 2,
    .run = run_new,
};
