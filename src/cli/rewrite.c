/*
 * rewrite.c: writes a setting into the text of a machine. The text is parsed to find the place; the
 * rest does not change.
 *
 *     w: 4 # spec             cube.noc.w=8     the scalar is replaced
 *     mesh: { w: 4 }          mesh.h=2         the key is inserted first: { h: 2, w: 4 }
 *     mesh:                   mesh.h=2         the key gets a line before the first one
 *       w: 4
 */
#include "rewrite.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static size_t offset_of(const kb_text *text, kb_srcloc loc)
{
    return kb_config_offset(kb_text_peek(text), text->length, loc);
}

/* Replaces `old` bytes. */
static void splice(kb_text *text, size_t at, size_t old, const char *fresh)
{
    kb_text result = KB_TEXT_INIT;
    kb_text_append(&result, kb_text_peek(text), at);
    kb_text_puts(&result, fresh);
    kb_text_append(&result, kb_text_peek(text) + at + old, text->length - at - old);
    result.failed = result.failed || text->failed;
    kb_text_fini(text);
    *text = result;
}

static void splice_text(kb_text *text, size_t at, size_t old, const kb_text *fresh)
{
    splice(text, at, old, kb_text_peek(fresh));
    text->failed = text->failed || fresh->failed;
}

/* The value as YAML: in quotes if it has special characters. */
static void print_value(kb_text *out, const char *value)
{
    static const char plain[] =
        "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_.+-";
    bool begins = isalnum((unsigned char)value[0]) || value[0] == '_' ||
                  (value[0] == '-' && isdigit((unsigned char)value[1]));
    if (begins && value[strspn(value, plain)] == '\0' && strcmp(value, "null") != 0) {
        kb_text_puts(out, value);
        return;
    }
    kb_text_puts(out, "\"");
    for (; *value != '\0'; value++)
        kb_text_printf(out, "%s%c", *value == '"' || *value == '\\' ? "\\" : "", *value);
    kb_text_puts(out, "\"");
}

/* The length of the scalar at this position; 0 if it is not a scalar on one line. */
static size_t scalar_length(const char *at, const char *source)
{
    if (*at == '"' || *at == '\'') {
        for (size_t i = 1; at[i] != '\0' && at[i] != '\n' && at[i] != '\r'; i++) {
            bool escapes = *at == '"' ? at[i] == '\\' : at[i] == *at && at[i + 1] == *at;
            if (escapes)
                i++;
            else if (at[i] == *at)
                return i + 1;
        }
        return 0;
    }
    size_t length = strlen(source);
    return strncmp(at, source, length) == 0 ? length : 0;
}

static kb_error *error_cannot_write(const char *setting)
{
    return kb_error_new(KB_ERR_INPUT,
                        "cannot write --set %s into the text of the file; --print --effective "
                        "prints the machine with all its settings",
                        setting);
}

/* The child with this key or index, or NULL. */
static kb_config_node *child(kb_config_node *node, const char *key)
{
    kb_config_node *item = kb_config_first(node);
    char *end;
    unsigned long index = strtoul(key, &end, 10);
    for (unsigned long i = 0; item; item = kb_config_next(item), i++) {
        const char *name = kb_config_key(item);
        if (name ? strcmp(name, key) == 0 : *end == '\0' && i == index)
            return item;
    }
    return NULL;
}

/* Inserts "a: { b: value }" into the mapping at this position. Splits `path` into its words. */
static void insert(kb_text *text, kb_srcloc loc, char *path, const char *value)
{
    kb_text fresh = KB_TEXT_INIT;
    size_t at = offset_of(text, loc), depth = 0;
    bool flow = kb_text_peek(text)[at] == '{';
    for (char *word = path; word; depth++) {
        char *point = strchr(word, '.');
        if (point)
            *point = '\0';
        kb_text_printf(&fresh, "%s%s: ", depth > 0 ? "{ " : "", word);
        word = point ? point + 1 : NULL;
    }
    print_value(&fresh, value);
    for (; depth > 1; depth--)
        kb_text_puts(&fresh, " }");
    if (flow) {
        const char *rest = kb_text_peek(text) + at + 1;
        const char *gap = rest[strspn(rest, " \t\r\n")] == '}' ? " " : ",";
        kb_text line = KB_TEXT_INIT;
        kb_text_printf(&line, " %s%s", kb_text_peek(&fresh), gap);
        line.failed = line.failed || fresh.failed;
        splice_text(text, at + 1, 0, &line);
        kb_text_fini(&line);
    } else {
        kb_text_printf(&fresh, "\n%*s", loc.column - 1, "");
        splice_text(text, at, 0, &fresh);
    }
    kb_text_fini(&fresh);
}

static bool is_mapping(const kb_text *text, kb_config_node *node)
{
    const kb_config_node *first = kb_config_first(node);
    if (first)
        return kb_config_key(first) != NULL;
    return kb_text_peek(text)[offset_of(text, kb_config_loc(node))] == '{';
}

/* Follows the path as far as the text has it, then replaces the value or inserts the rest. */
static kb_error *apply(kb_text *text, kb_config *config, char *path, const char *value,
                       const char *setting)
{
    kb_config_node *node = kb_config_root(config);
    char *word = path;
    while (word) {
        char *point = strchr(word, '.');
        if (point)
            *point = '\0';
        kb_config_node *next = child(node, word);
        if (point)
            *point = '.';
        if (!next && !is_mapping(text, node))
            return error_cannot_write(setting);
        if (!next) {
            insert(text, kb_config_loc(node), word, value);
            return NULL;
        }
        node = next;
        word = point ? point + 1 : NULL;
    }
    const char *source = kb_config_source_text(node);
    size_t at = offset_of(text, kb_config_loc(node));
    size_t length = source ? scalar_length(kb_text_peek(text) + at, source) : 0;
    if (length == 0)
        return error_cannot_write(setting);
    kb_text fresh = KB_TEXT_INIT;
    print_value(&fresh, value);
    splice_text(text, at, length, &fresh);
    kb_text_fini(&fresh);
    return NULL;
}

kb_error *rewrite_setting(kb_text *text, const char *setting)
{
    const char *equals = strchr(setting, '=');
    kb_config *config;
    if (!equals)
        return error_cannot_write(setting);
    KB_TRY(kb_config_load_text("description", kb_text_peek(text), text->length, &config));
    char *path = strndup(setting, (size_t)(equals - setting));
    kb_error *err = path ? apply(text, config, path, equals + 1, setting) : kb_error_nomem();
    free(path);
    kb_config_destroy(config);
    return !err && text->failed ? kb_error_nomem() : err;
}

/* The length of the collection in brackets at this position; 0 if there is none. */
static size_t collection_length(const char *at)
{
    size_t depth = 0;
    for (size_t i = 0; at[i] != '\0'; i++) {
        depth += at[i] == '{' || at[i] == '[';
        if (depth == 0)
            return 0;
        depth -= at[i] == '}' || at[i] == ']';
        if (depth == 0)
            return i + 1;
    }
    return 0;
}

kb_error *rewrite_collection(kb_text *text, const char *path, const char *yaml)
{
    kb_config *config;
    KB_TRY(kb_config_load_text("description", kb_text_peek(text), text->length, &config));
    kb_config_node *node = kb_config_root(config);
    kb_text word = KB_TEXT_INIT;
    for (const char *at = path; node && *at != '\0'; at += at[0] == '.') {
        size_t length = strcspn(at, ".");
        word.length = 0;
        kb_text_append(&word, at, length);
        node = child(node, kb_text_peek(&word));
        at += length;
    }
    size_t at = node ? offset_of(text, kb_config_loc(node)) : 0;
    size_t length = node ? collection_length(kb_text_peek(text) + at) : 0;
    bool out_of_memory = word.failed;
    if (length > 0)
        splice(text, at, length, yaml);
    kb_text_fini(&word);
    kb_config_destroy(config);
    if (out_of_memory || text->failed)
        return kb_error_nomem();
    return length > 0 ? NULL : kb_error_new(KB_ERR_BUG, "no collection '%s' to replace", path);
}
