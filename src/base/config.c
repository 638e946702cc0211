/*
 * config.c: reading a configuration that has been loaded.
 *
 * Every value that is handed out is marked as read; what is not by the time of kb_config_finish is
 * unknown to the program. So nothing may look into a node but through the functions of this file.
 */
#include "base/config.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/config_node.h"
#include "base/decimal.h"
#include "base/suggest.h"
#include "base/text.h"

kb_config_node *kb_config_root(kb_config *config)
{
    if (!config->reading)
        config->override_problems = config->problems.count;
    config->reading = true;
    return config->root;
}

kb_config_node *kb_config_child(const kb_config_node *mapping, const char *key)
{
    for (kb_config_node *child = mapping->first; child; child = child->next) {
        if (strcmp(child->key, key) == 0)
            return child;
    }
    return NULL;
}

/* Once each, so that the list is as short as the program's list of keys. */
static void remember_asked(kb_config_node *mapping, const char *key)
{
    kb_config_asked **end = &mapping->asked;
    for (; *end; end = &(*end)->next) {
        if (strcmp((*end)->key, key) == 0)
            return;
    }
    kb_config_asked *asked = KB_ARENA_NEW(&mapping->config->arena, kb_config_asked);
    const char *copy = kb_arena_strdup(&mapping->config->arena, key);
    if (!asked || !copy) {
        mapping->config->out_of_memory = true;
        return;
    }
    *asked = (kb_config_asked){.key = copy};
    *end = asked;
}

static kb_config_node *mark_read(kb_config_node *node)
{
    if (node)
        node->read = true;
    return node;
}

kb_config_node *kb_config_find(kb_config_node *mapping, const char *key)
{
    mapping = kb_config_mapping(mapping);
    if (!mapping)
        return NULL;
    remember_asked(mapping, key);
    return mark_read(kb_config_child(mapping, key));
}

kb_config_node *kb_config_need(kb_config_node *mapping, const char *key)
{
    mapping = kb_config_mapping(mapping);
    kb_config_node *child = kb_config_find(mapping, key);
    if (mapping && !child)
        kb_config_note(mapping->config, &mapping->loc, "missing key '%s'",
                       kb_config_path_of(mapping, key));
    return child;
}

kb_config_node *kb_config_find_prefixed(kb_config_node *mapping, const char *prefix,
                                        kb_config_node *after)
{
    mapping = kb_config_mapping(mapping);
    if (!mapping)
        return NULL;
    kb_config_node *child = after ? after->next : mapping->first;
    while (child && strncmp(child->key, prefix, strlen(prefix)) != 0)
        child = child->next;
    return mark_read(child);
}

static kb_config_node *of_kind(kb_config_node *node, kb_config_kind kind, const char *what)
{
    if (!node || node->kind == kind)
        return node;
    kb_config_unexpected(node, NULL, "%s", what);
    return NULL;
}

kb_config_node *kb_config_mapping(kb_config_node *node)
{
    return of_kind(node, KB_CONFIG_MAPPING, "a mapping");
}

kb_config_node *kb_config_sequence(kb_config_node *node)
{
    return of_kind(node, KB_CONFIG_SEQUENCE, "a sequence");
}

size_t kb_config_count(const kb_config_node *node)
{
    return node ? node->count : 0;
}

kb_config_node *kb_config_first(kb_config_node *node)
{
    return mark_read(node ? node->first : NULL);
}

kb_config_node *kb_config_next(kb_config_node *item)
{
    return mark_read(item ? item->next : NULL);
}

const char *kb_config_key(const kb_config_node *value)
{
    return value ? value->key : NULL;
}

kb_srcloc kb_config_loc(const kb_config_node *node)
{
    return node ? node->loc : (kb_srcloc){.file = ""};
}

const char *kb_config_source_text(const kb_config_node *node)
{
    return node && node->kind == KB_CONFIG_SCALAR ? node->text : NULL;
}

bool kb_config_is_null(const kb_config_node *node)
{
    return node->kind == KB_CONFIG_SCALAR && !node->quoted &&
           (strcmp(node->text, "") == 0 || strcmp(node->text, "~") == 0 ||
            strcmp(node->text, "null") == 0);
}

/* Skips one digit or more; NULL if there is none. */
static const char *skip_digits(const char *text)
{
    size_t digits = strspn(text, "0123456789");
    return digits > 0 ? text + digits : NULL;
}

/* Skips a whole number without needless zeros in front. */
static const char *skip_whole(const char *text)
{
    text += *text == '-';
    return *text == '0' ? text + 1 : skip_digits(text);
}

static bool is_plain(const kb_config_node *node)
{
    return node->kind == KB_CONFIG_SCALAR && !node->quoted;
}

static bool looks_like_int(const kb_config_node *node)
{
    const char *end = is_plain(node) ? skip_whole(node->text) : NULL;
    return end && *end == '\0';
}

static bool looks_like_double(const kb_config_node *node)
{
    const char *end = is_plain(node) ? skip_whole(node->text) : NULL;
    if (end && *end == '.')
        end = skip_digits(end + 1);
    if (end && (*end == 'e' || *end == 'E'))
        end = skip_digits(end + 1 + (end[1] == '-' || end[1] == '+'));
    return end && *end == '\0';
}

int64_t kb_config_int(kb_config_node *node, int64_t min, int64_t max, int64_t fallback)
{
    if (!node)
        return fallback;
    if (looks_like_int(node)) {
        errno = 0;
        long long value = strtoll(node->text, NULL, 10);
        if (errno == 0 && value >= min && value <= max)
            return value;
    }
    bool is_int = looks_like_int(node); /* then it is out of range, and that is what to tell */
    if (!is_int && min == INT64_MIN && max == INT64_MAX)
        kb_config_unexpected(node, NULL, "an integer");
    else if (!is_int && max == INT64_MAX)
        kb_config_unexpected(node, NULL, "an integer of at least %" PRId64, min);
    else
        kb_config_unexpected(node, NULL, "an integer from %" PRId64 " to %" PRId64, min, max);
    return fallback;
}

static bool is_in(const kb_range *range, double value)
{
    return isfinite(value) && value <= range->max &&
           (range->above_min ? value > range->min : value >= range->min);
}

double kb_config_double(kb_config_node *node, kb_range range, double fallback)
{
    if (!node)
        return fallback;
    if (looks_like_double(node)) {
        double value = strtod_l(node->text, NULL, node->config->c_locale);
        if (is_in(&range, value))
            return value;
    }
    bool has_min = isfinite(range.min), has_max = isfinite(range.max);
    const char *from = range.above_min ? "above" : "of at least";
    if (has_min && has_max)
        kb_config_unexpected(node, NULL, "a number %s %.15g and at most %.15g", from, range.min,
                             range.max);
    else if (has_min)
        kb_config_unexpected(node, NULL, "a number %s %.15g", from, range.min);
    else if (has_max)
        kb_config_unexpected(node, NULL, "a number of at most %.15g", range.max);
    else
        kb_config_unexpected(node, NULL, "a number");
    return fallback;
}

int64_t kb_config_decimal(kb_config_node *node, int digits, int64_t min, int64_t max,
                          int64_t fallback)
{
    if (!node)
        return fallback;
    kb_decimal_result result = KB_DECIMAL_NO_NUMBER;
    int64_t value = 0;
    if (is_plain(node))
        result = kb_decimal_parse(node->text, digits, &value);
    if (result == KB_DECIMAL_OK && value >= min && value <= max)
        return value;
    if (result == KB_DECIMAL_TOO_FINE) {
        kb_config_unexpected(node, NULL, "at most %d digit%s after the point", digits,
                             kb_plural((uint64_t)digits));
        return fallback;
    }
    kb_text range = KB_TEXT_INIT;
    kb_decimal_print_range(min, max, digits, &range);
    node->config->out_of_memory |= range.failed;
    kb_config_unexpected(node, NULL, "a number %s", kb_text_peek(&range));
    kb_text_fini(&range);
    return fallback;
}

bool kb_config_bool(kb_config_node *node, bool fallback)
{
    if (!node)
        return fallback;
    if (is_plain(node) && strcmp(node->text, "true") == 0)
        return true;
    if (is_plain(node) && strcmp(node->text, "false") == 0)
        return false;
    kb_config_unexpected(node, NULL, "true or false");
    return fallback;
}

const char *kb_config_string(kb_config_node *node, const char *fallback)
{
    if (!node)
        return fallback;
    if (node->kind == KB_CONFIG_SCALAR && node->text[0] != '\0' && !kb_config_is_null(node) &&
        !node->faulty)
        return node->text;
    kb_config_unexpected(node, NULL, "a string");
    return fallback;
}

size_t kb_config_enum(kb_config_node *node, const char *const *names, size_t count, size_t fallback)
{
    if (!node)
        return fallback;
    kb_suggestion near = {.best = NULL};
    if (node->kind == KB_CONFIG_SCALAR) {
        for (size_t i = 0; i < count; i++) {
            if (strcmp(node->text, names[i]) == 0)
                return i;
        }
        kb_suggestion_search(&near, node->text, names, count);
    }
    kb_text expected = KB_TEXT_INIT;
    kb_append_names(&expected, names, count);
    node->config->out_of_memory |= expected.failed;
    kb_config_unexpected(node, near.best, "%s", kb_text_peek(&expected));
    kb_text_fini(&expected);
    return fallback;
}
