/*
 * config_problems.c: the problems of a configuration: noting them, finding unknown keys, reporting.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/config_node.h"
#include "base/suggest.h"
#include "base/text.h"
#include "base/utf8.h"

enum {
    max_quote = 60,   /* bytes of a value that a message shows */
    max_problems = 20 /* that an error lists; a file of 1 MiB can have 100,000 */
};

/* Formats into the arena; NULL if out of memory, which is noted. */
KB_PRINTF(3, 0)
static const char *format_message(kb_config *config, const char *prefix, const char *format,
                                  va_list args)
{
    kb_text text = KB_TEXT_INIT;
    kb_text_puts(&text, prefix);
    kb_text_vprintf(&text, format, args);
    const char *message = NULL;
    if (!text.failed)
        message = kb_arena_strdup(&config->arena, kb_text_peek(&text));
    kb_text_fini(&text);
    if (!message)
        config->out_of_memory = true;
    return message;
}

/* A NULL message is one for which there was no memory. */
static void note_message(kb_config *config, const kb_srcloc *loc, const char *message)
{
    kb_config_noted noted = {
        .loc = *loc,
        .message = message,
        .sequence = config->problems.count,
    };
    if (!message || !kb_vec_push(&config->problems, noted))
        config->out_of_memory = true;
}

void kb_config_note(kb_config *config, const kb_srcloc *loc, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    note_message(config, loc, format_message(config, "", format, args));
    va_end(args);
}

const char *kb_config_path_of(const kb_config_node *mapping, const char *key)
{
    const char *parent = kb_config_path(mapping);
    const char *path =
        kb_arena_printf(&mapping->config->arena, "%s%s%s", parent, *parent ? "." : "", key);
    if (!path)
        mapping->config->out_of_memory = true;
    return path ? path : "";
}

const char *kb_config_path(const kb_config_node *node)
{
    if (!node->parent)
        return "";
    if (node->key)
        return kb_config_path_of(node->parent, node->key);
    char index[24];
    snprintf(index, sizeof index, "%zu", node->index);
    return kb_config_path_of(node->parent, index);
}

void kb_config_problem(kb_config_node *node, const char *format, ...)
{
    if (!node)
        return;
    kb_config *config = node->config;
    /* In a file the key says which value is meant; an override has it in its path already. */
    const char *path = kb_config_is_override(&node->loc) ? "" : kb_config_path(node);
    const char *prefix = *path ? kb_arena_printf(&config->arena, "%s: ", path) : "";
    const char *message = NULL;
    va_list args;
    va_start(args, format);
    if (prefix)
        message = format_message(config, prefix, format, args);
    va_end(args);
    note_message(config, &node->loc, message);
}

/* The bytes of a string that a message shows: whole characters, up to max_quote. */
static size_t quotable(const char *text)
{
    size_t length = strlen(text);
    if (length <= max_quote)
        return length;
    size_t shown = 0;
    uint32_t character;
    for (size_t step = 0; shown + step <= max_quote; shown += step)
        step = kb_utf8_decode(text + shown, length - shown, &character);
    return shown;
}

/* What the node is, for a message. NULL if out of memory. */
static const char *describe(const kb_config_node *node)
{
    if (node->kind != KB_CONFIG_SCALAR)
        return node->kind == KB_CONFIG_MAPPING ? "a mapping" : "a sequence";
    if (kb_config_is_null(node) && node->text[0] == '\0')
        return "nothing";
    size_t shown = quotable(node->text);
    return kb_arena_printf(&node->config->arena, "%s'%.*s%s'", node->quoted ? "the string " : "",
                           (int)shown, node->text, node->text[shown] ? "..." : "");
}

void kb_config_unexpected(kb_config_node *node, const char *near, const char *format, ...)
{
    if (node->faulty)
        return; /* noted already */
    node->faulty = true;
    va_list args;
    va_start(args, format);
    const char *expected = format_message(node->config, "", format, args);
    va_end(args);
    const char *found = describe(node);
    if (expected && found)
        kb_config_problem(node, "expected %s, found %s%s%s%s", expected, found,
                          near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    else
        node->config->out_of_memory = true;
}

static void note_unknown(const kb_config_node *node)
{
    const kb_config_node *mapping = node->parent;
    kb_suggestion known;
    kb_suggestion_init(&known, node->key);
    for (const kb_config_asked *asked = mapping->asked; asked; asked = asked->next)
        kb_suggestion_offer(&known, asked->key);
    if (known.best) /* as --set takes it */
        known.best = kb_config_path_of(mapping, known.best);
    kb_config_note(node->config, &node->key_loc, "unknown key '%s'%s", kb_config_path(node),
                   kb_suggestion_hint(&known, ""));
}

/* Notes the keys below a node that were not read. KB_CONFIG_MAX_DEPTH bounds the recursion. */
static void note_unread(const kb_config_node *node)
{
    for (const kb_config_node *child = node->first; child; child = child->next) {
        if (child->key && !child->read)
            note_unknown(child);
        else if (!child->faulty)
            note_unread(child);
    }
}

static int by_place(const void *a, const void *b)
{
    const kb_config_noted *x = a, *y = b;
    bool x_last = kb_config_is_override(&x->loc), y_last = kb_config_is_override(&y->loc);
    if (x_last != y_last)
        return x_last ? 1 : -1;
    if (x->loc.line != y->loc.line)
        return x->loc.line < y->loc.line ? -1 : 1;
    if (x->loc.column != y->loc.column)
        return x->loc.column < y->loc.column ? -1 : 1;
    return (x->sequence > y->sequence) - (x->sequence < y->sequence);
}

/* An error that lists the problems, NULL if there are none. */
static kb_error *report(kb_config *config)
{
    KB_ASSERT(!config->finished);
    config->finished = true;
    if (config->out_of_memory)
        return kb_error_nomem();
    size_t count = config->problems.count;
    if (count == 0)
        return NULL;

    kb_config_noted *problems = config->problems.items;
    qsort(problems, count, sizeof *problems, by_place);
    if (count == 1)
        return kb_error_at(KB_ERR_INPUT, &problems[0].loc, "%s", problems[0].message);
    kb_error *err = kb_error_at(KB_ERR_INPUT, &problems[0].loc, "%s (and %zu more problem%s)",
                                problems[0].message, count - 1, kb_plural(count - 1));
    size_t shown = count > max_problems ? max_problems : count;
    for (size_t i = 0; i < shown; i++) {
        const kb_srcloc *loc = &problems[i].loc;
        if (loc->line > 0)
            kb_error_add_detail(err, "%s:%d:%d: %s", loc->file, loc->line, loc->column,
                                problems[i].message);
        else
            kb_error_add_detail(err, "%s: %s", loc->file, problems[i].message);
    }
    if (count > shown)
        kb_error_add_detail(err, "... and %zu more problem%s", count - shown,
                            kb_plural(count - shown));
    return err;
}

/* Keeps problems of overrides that are there already, or are noted from `from` on. */
static void keep_problems_of_keys(kb_config *config, size_t from)
{
    size_t kept = 0;
    for (size_t i = 0; i < config->problems.count; i++) {
        const kb_config_noted *problem = &config->problems.items[i];
        bool of_key = i < config->override_problems || i >= from;
        if (of_key && kb_config_is_override(&problem->loc))
            config->problems.items[kept++] = *problem;
    }
    config->problems.count = kept;
}

kb_error *kb_config_finish_overrides(kb_config *config)
{
    size_t of_values = config->problems.count;
    note_unread(config->root);
    keep_problems_of_keys(config, of_values);
    return report(config);
}

kb_error *kb_config_finish(kb_config *config)
{
    note_unread(config->root);
    return report(config);
}
