/*
 * effective.c: writes a machine's values into the text of the default machine, which has every key
 * with a comment. Comments of the user's file are not kept.
 */
#include "effective.h"

#include <inttypes.h>
#include <string.h>

#include "rewrite.h"

/* Reads the next line of *at into `line`; false at the end. */
static bool next_line(const char **at, kb_text *line)
{
    if (**at == '\0')
        return false;
    size_t length = strcspn(*at, "\n");
    line->length = 0;
    kb_text_append(line, *at, length);
    *at += length + ((*at)[length] == '\n');
    return !line->failed;
}

/* The value of "KEY=VALUE" in the lines, up to the end of its line; NULL without the key. */
static const char *find_value(const char *lines, const char *key, size_t key_length)
{
    for (const char *at = lines; *at != '\0'; at += at[0] == '\n') {
        if (strncmp(at, key, key_length) == 0 && at[key_length] == '=')
            return at + key_length + 1;
        at += strcspn(at, "\n");
    }
    return NULL;
}

/* Writes one setting that differs from the default into the text and the list of differences. */
static kb_error *write_setting(const char *setting, const char *defaults, kb_text *differences,
                               kb_text *text)
{
    size_t key_length = strcspn(setting, "=");
    const char *value = setting + key_length + 1;
    const char *before = find_value(defaults, setting, key_length);
    size_t before_length = before ? strcspn(before, "\n") : 0;
    if (before && strlen(value) == before_length && strncmp(value, before, before_length) == 0)
        return NULL;
    kb_text_printf(differences, "#   %.*s: %s", (int)key_length, setting, value);
    if (before)
        kb_text_printf(differences, " (default: %.*s)", (int)before_length, before);
    kb_text_puts(differences, "\n");
    bool is_collection =
        value[0] == '{' && (!before || before[0] == '{'); /* names may contain braces */
    if (!is_collection)
        return rewrite_setting(text, setting);
    kb_text path = KB_TEXT_INIT;
    kb_text_append(&path, setting, key_length);
    kb_error *err =
        path.failed ? kb_error_nomem() : rewrite_collection(text, kb_text_peek(&path), value);
    kb_text_fini(&path);
    return err;
}

static kb_error *write_settings(const topo_machine *machine, const topo_machine *standard,
                                kb_text *differences, kb_text *text)
{
    kb_text settings = KB_TEXT_INIT, defaults = KB_TEXT_INIT, line = KB_TEXT_INIT;
    topo_machine_print_settings(machine, &settings);
    topo_machine_print_settings(standard, &defaults);
    kb_error *err = NULL;
    const char *at = kb_text_peek(&settings);
    while (!err && next_line(&at, &line))
        err = write_setting(kb_text_peek(&line), kb_text_peek(&defaults), differences, text);
    bool out_of_memory = settings.failed || defaults.failed || line.failed;
    kb_text_fini(&settings);
    kb_text_fini(&defaults);
    kb_text_fini(&line);
    return !err && out_of_memory ? kb_error_nomem() : err;
}

/* The text of the default machine, without its first comment. */
static void append_default_text(kb_text *text)
{
    const topo_builtin *b = topo_builtins;
    while (strcmp(b->name, "default") != 0)
        b++;
    const char *body = strstr(b->text, "\n\n");
    kb_text_puts(text, body ? body + 2 : b->text);
}

kb_error *effective_text(const topo_machine *machine, kb_text *text)
{
    topo_machine *standard;
    KB_TRY(topo_machine_load(&(topo_source){0}, &standard));
    kb_text differences = KB_TEXT_INIT, body = KB_TEXT_INIT;
    append_default_text(&body);
    kb_error *err = write_settings(machine, standard, &differences, &body);
    kb_text_printf(text,
                   "# The effective machine, complete; hash %016" PRIx64
                   ". Other comments are the default machine's.\n#\n# %s\n%s\n",
                   topo_machine_hash(machine),
                   differences.length > 0
                       ? "Settings that differ from the built-in default machine:"
                       : "It is the built-in default machine.",
                   kb_text_peek(&differences));
    kb_text_append(text, kb_text_peek(&body), body.length);
    if (!err && (differences.failed || body.failed || text->failed))
        err = kb_error_nomem();
    kb_text_fini(&differences);
    kb_text_fini(&body);
    topo_machine_destroy(standard);
    return err;
}
