/*
 * config_override.c: settings of the command line, put into the tree before it is read.
 *
 * A key that is not there is made, with all that leads to it; whether the program knows it comes
 * out as for every other key: by being read or not. Left out: keys that hold dots, and values
 * other than scalars.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/config_node.h"

typedef struct override {
    kb_config *config;
    const char *path;
    const char *value;
    kb_srcloc loc;
} override;

#define note(o, ...) kb_config_note((o)->config, &(o)->loc, __VA_ARGS__)

static kb_config_node *item_of(const kb_config_node *sequence, const char *number)
{
    char *end;
    errno = 0;
    unsigned long long index = strtoull(number, &end, 10);
    if (errno != 0 || *end != '\0' || number[0] < '0' || number[0] > '9')
        return NULL;
    kb_config_node *item = sequence->first;
    while (item && item->index != index)
        item = item->next;
    return item;
}

static kb_config_node *make_child(const override *o, kb_config_node *mapping, const char *key)
{
    if (mapping->depth == KB_CONFIG_MAX_DEPTH) {
        note(o, "nested deeper than %d levels", KB_CONFIG_MAX_DEPTH);
        return NULL;
    }
    kb_config_node *child = kb_config_add_child(mapping, key);
    if (child) {
        child->text = "";
        child->loc = child->key_loc = o->loc;
    }
    return child;
}

/* The child of that name, made if need be; NULL if there cannot be one, which is noted. */
static kb_config_node *step_into(const override *o, kb_config_node *node, const char *name)
{
    if (kb_config_is_null(node)) { /* `cube:` with nothing behind it, or made by make_child */
        node->kind = KB_CONFIG_MAPPING;
        node->loc = o->loc;
    }
    kb_config_node *child = NULL;
    switch (node->kind) {
    case KB_CONFIG_SCALAR:
        note(o, "'%s' is not a mapping", kb_config_path(node));
        return NULL;
    case KB_CONFIG_SEQUENCE:
        child = item_of(node, name);
        if (!child)
            note(o, "'%s' is a sequence of %zu: expected an index from 0, found '%s'",
                 kb_config_path(node), node->count, name);
        return child;
    case KB_CONFIG_MAPPING:
        child = kb_config_child(node, name);
        return child ? child : make_child(o, node, name);
    }
    return NULL;
}

/* Names joined by dots, none of them empty or longer than a key may be. */
static bool is_path(const char *path)
{
    for (;;) {
        size_t length = strcspn(path, ".");
        if (length == 0 || length > KB_CONFIG_MAX_KEY)
            return false;
        if (path[length] == '\0')
            return true;
        path += length + 1;
    }
}

static void apply(const override *o)
{
    kb_config_node *node = o->config->root;
    const char *end;
    for (const char *name = o->path; name; name = *end ? end + 1 : NULL) {
        end = name + strcspn(name, ".");
        const char *copy = kb_arena_strndup(&o->config->arena, name, (size_t)(end - name));
        if (!copy)
            o->config->out_of_memory = true;
        node = copy ? step_into(o, node, copy) : NULL;
        if (!node)
            return;
    }
    node->kind = KB_CONFIG_SCALAR;
    node->text = o->value;
    node->quoted = node->faulty = false;
    node->first = node->last = NULL;
    node->count = 0;
    node->loc = node->key_loc = o->loc;
}

void kb_config_override(kb_config *config, const char *setting)
{
    kb_config_override_given(config, "", setting);
}

void kb_config_override_given(kb_config *config, const char *prefix, const char *setting)
{
    KB_ASSERT(!config->reading);
    const char *equals = strchr(setting, '=');
    size_t length = strlen(setting);
    size_t path_length = equals ? (size_t)(equals - setting) : length;
    override o = {
        .config = config,
        .path = kb_arena_strndup(&config->arena, setting, path_length),
        .value = equals ? kb_arena_strdup(&config->arena, equals + 1) : "",
        .loc.column = ++config->override_count,
    };
    if (o.path)
        o.loc.file = kb_arena_printf(&config->arena, "--set %s%s", prefix, o.path);
    if (!o.path || !o.value || !o.loc.file) {
        config->out_of_memory = true;
        return;
    }
    const char *bad = kb_config_bad_text(config, setting, length, NULL);
    if (bad)
        note(&o, "found %s", bad);
    else if (!equals)
        note(&o, "expected key=value");
    else if (!is_path(o.path))
        note(&o, "expected names of 1 to %d bytes, joined by dots", KB_CONFIG_MAX_KEY);
    else
        apply(&o);
}
