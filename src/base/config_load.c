/*
 * config_load.c: from bytes to nodes. libyaml parses and is seen by this file alone.
 *
 * libyaml gives events, and the tree is built here rather than by its document builder, so that
 * duplicate keys can be problems among others, aliases cannot explode, nesting is bounded, and what
 * is left has a location and outlives the parser. The bytes are checked before it sees them.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

#include "base/check.h"
#include "base/config_node.h"
#include "base/text.h"

typedef struct builder {
    kb_config *config;
    const char *name;     /* of the file */
    kb_config_node *open; /* the innermost mapping or sequence not yet closed */
    const char *key;      /* read, waiting for its value; NULL if none */
    kb_srcloc key_loc;
    bool ended; /* the document has */
} builder;

kb_config_node *kb_config_add_child(kb_config_node *parent, const char *key)
{
    kb_config_node *child = KB_ARENA_NEW(&parent->config->arena, kb_config_node);
    if (!child) {
        parent->config->out_of_memory = true;
        return NULL;
    }
    child->config = parent->config;
    child->parent = parent;
    child->key = key;
    child->index = parent->count++;
    child->depth = parent->depth + 1;
    *(parent->last ? &parent->last->next : &parent->first) = child;
    parent->last = child;
    return child;
}

/* Whether the next node is a key and not a value. */
static bool wants_key(const builder *b)
{
    return b->open && b->open->kind == KB_CONFIG_MAPPING && !b->key;
}

/* Adds a value to what is open; the first of all is the root. On failure NULL, and *err says why.
 */
static kb_config_node *add_node(builder *b, kb_config_kind kind, const kb_srcloc *loc,
                                kb_error **err)
{
    kb_config_node *node;
    if (!b->open) {
        node = b->config->root = KB_ARENA_NEW(&b->config->arena, kb_config_node);
    } else if (b->open->depth < KB_CONFIG_MAX_DEPTH) {
        node = kb_config_add_child(b->open, b->key);
    } else {
        *err = kb_error_at(KB_ERR_INPUT, loc, "nested deeper than %d levels", KB_CONFIG_MAX_DEPTH);
        return NULL;
    }
    if (!node) {
        *err = kb_error_nomem();
        return NULL;
    }
    node->config = b->config;
    node->kind = kind;
    node->loc = *loc;
    node->key_loc = b->key ? b->key_loc : *loc;
    b->key = NULL;
    return node;
}

static kb_error *on_open(builder *b, kb_config_kind kind, const kb_srcloc *loc)
{
    if (wants_key(b))
        return kb_error_at(KB_ERR_INPUT, loc, "expected a name as the key, found a %s",
                           kind == KB_CONFIG_MAPPING ? "mapping" : "sequence");
    kb_error *err = NULL;
    kb_config_node *node = add_node(b, kind, loc, &err);
    if (node)
        b->open = node;
    return err;
}

/* Copies the text of a scalar into the arena; "" for a value that was left out. */
static kb_error *copy_text(builder *b, const yaml_event_t *event, const char **copy, size_t *length)
{
    *length = event->data.scalar.length;
    *copy = kb_arena_strndup(&b->config->arena, (const char *)event->data.scalar.value, *length);
    return *copy ? NULL : kb_error_nomem();
}

static kb_error *on_key(builder *b, const yaml_event_t *event, const kb_srcloc *loc)
{
    const char *key;
    size_t length;
    KB_TRY(copy_text(b, event, &key, &length));
    if (length == 0)
        return kb_error_at(KB_ERR_INPUT, loc, "expected a name as the key, found nothing");
    if (length > KB_CONFIG_MAX_KEY)
        return kb_error_at(KB_ERR_INPUT, loc, "key longer than %d bytes", KB_CONFIG_MAX_KEY);
    const char *bad = kb_config_bad_text(b->config, key, length, NULL);
    if (bad)
        return kb_error_at(KB_ERR_INPUT, loc, "%s in a key", bad);
    b->key = key;
    b->key_loc = *loc;
    return NULL;
}

static kb_error *on_scalar(builder *b, const yaml_event_t *event, const kb_srcloc *loc)
{
    if (wants_key(b))
        return on_key(b, event, loc);

    kb_error *err = NULL;
    kb_config_node *node = add_node(b, KB_CONFIG_SCALAR, loc, &err);
    if (!node)
        return err;
    size_t length;
    KB_TRY(copy_text(b, event, &node->text, &length));
    node->quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    const char *bad = kb_config_bad_text(b->config, node->text, length, NULL);
    node->faulty = bad;
    if (bad) /* by way of "\0" and the like: the file itself was checked */
        kb_config_note(b->config, loc, "%s in a string", bad);
    return NULL;
}

static kb_error *on_alias(builder *b, const kb_srcloc *loc)
{
    if (wants_key(b))
        return kb_error_at(KB_ERR_INPUT, loc, "expected a name as the key, found an alias");
    kb_error *err = NULL;
    kb_config_node *node = add_node(b, KB_CONFIG_SCALAR, loc, &err);
    if (!node)
        return err;
    node->text = "";
    node->faulty = true;
    kb_config_note(b->config, loc, "aliases are not supported: repeat the value here");
    return NULL;
}

static int by_key_and_index(const void *a, const void *b)
{
    const kb_config_node *x = *(kb_config_node *const *)a, *y = *(kb_config_node *const *)b;
    int order = strcmp(x->key, y->key);
    return order != 0 ? order : (x->index > y->index) - (x->index < y->index);
}

/* Notes and takes out the values whose key came before, and merge keys. */
static kb_error *drop_duplicates(kb_config_node *mapping)
{
    kb_config *config = mapping->config;
    kb_config_node **sorted = kb_alloc_array(mapping->count, sizeof(kb_config_node *));
    if (!sorted)
        return kb_error_nomem();
    size_t count = 0;
    for (kb_config_node *child = mapping->first; child; child = child->next)
        sorted[count++] = child;
    qsort(sorted, count, sizeof *sorted, by_key_and_index);

    for (size_t i = 0, first = 0; i < count; i++) {
        if (strcmp(sorted[i]->key, sorted[first]->key) != 0)
            first = i;
        const kb_srcloc *loc = &sorted[i]->key_loc;
        if (strcmp(sorted[i]->key, "<<") == 0)
            kb_config_note(config, loc, "merge keys are not supported: repeat the keys here");
        else if (i != first)
            kb_config_note(config, loc, "duplicate key '%s', first set in line %d",
                           kb_config_path(sorted[i]), sorted[first]->key_loc.line);
        else
            continue;
        sorted[i]->parent = NULL; /* marks it, for the loop below */
    }
    free(sorted);

    kb_config_node **link = &mapping->first;
    mapping->last = NULL;
    mapping->count = 0;
    for (kb_config_node *child = mapping->first; child; child = child->next) {
        if (!child->parent)
            continue;
        *link = child;
        link = &child->next;
        mapping->last = child;
        mapping->count++;
    }
    *link = NULL;
    return NULL;
}

static kb_error *on_close(builder *b)
{
    kb_config_node *closed = b->open;
    b->open = closed->parent;
    return closed->kind == KB_CONFIG_MAPPING && closed->count > 0 ? drop_duplicates(closed) : NULL;
}

static kb_srcloc loc_at(const builder *b, const yaml_mark_t *mark)
{
    return (kb_srcloc){
        .file = b->name, .line = (int)mark->line + 1, .column = (int)mark->column + 1};
}

static kb_srcloc loc_of(const builder *b, const yaml_event_t *event)
{
    kb_srcloc loc = loc_at(b, &event->start_mark);
    if (event->type == YAML_ALIAS_EVENT)
        loc.column++; /* of the name, behind the * */
    /* A plain scalar of no bytes is a value that was left out; its mark is where the next is. */
    if (event->type == YAML_SCALAR_EVENT && event->data.scalar.length == 0 &&
        event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE)
        loc = b->key ? b->key_loc : (kb_srcloc){.file = b->name, .line = 1, .column = 1};
    return loc;
}

static void refuse_decorations(builder *b, const yaml_event_t *event, const kb_srcloc *loc)
{
    const yaml_char_t *anchor = NULL, *tag = NULL;
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        anchor = event->data.scalar.anchor;
        tag = event->data.scalar.tag;
        break;
    case YAML_MAPPING_START_EVENT:
        anchor = event->data.mapping_start.anchor;
        tag = event->data.mapping_start.tag;
        break;
    case YAML_SEQUENCE_START_EVENT:
        anchor = event->data.sequence_start.anchor;
        tag = event->data.sequence_start.tag;
        break;
    default:
        break;
    }
    if (anchor)
        kb_config_note(b->config, loc, "anchors are not supported: leave out the &name");
    if (tag)
        kb_config_note(b->config, loc, "tags are not supported: leave out the !name");
}

static kb_error *on_event(builder *b, const yaml_event_t *event)
{
    kb_srcloc loc = loc_of(b, event);
    refuse_decorations(b, event, &loc);
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (b->ended)
            return kb_error_at(KB_ERR_INPUT, &loc, "expected one document, found a second one");
        return NULL;
    case YAML_DOCUMENT_END_EVENT:
        b->ended = true;
        return NULL;
    case YAML_MAPPING_START_EVENT:
        return on_open(b, KB_CONFIG_MAPPING, &loc);
    case YAML_SEQUENCE_START_EVENT:
        return on_open(b, KB_CONFIG_SEQUENCE, &loc);
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT:
        return on_close(b);
    case YAML_SCALAR_EVENT:
        return on_scalar(b, event, &loc);
    case YAML_ALIAS_EVENT:
        return on_alias(b, &loc);
    default:
        return NULL;
    }
}

/* The byte behind `characters` characters of valid UTF-8; NUL if the text ends there. */
static char byte_behind(const char *text, size_t length, size_t characters)
{
    for (size_t i = 0; i < length; i++) {
        bool starts = ((unsigned char)text[i] & 0xc0) != 0x80;
        if (starts && characters-- == 0)
            return text[i];
    }
    return '\0';
}

/* What the parser says, in our words where its own do not help. */
static kb_error *syntax_error(const builder *b, const yaml_parser_t *parser, const char *text,
                              size_t length)
{
    if (parser->error == YAML_MEMORY_ERROR)
        return kb_error_nomem();
    const char *problem = parser->problem ? parser->problem : "not a YAML document";
    if (parser->error == YAML_READER_ERROR) /* the bytes were checked: not to be expected */
        return kb_error_new(KB_ERR_INPUT, "%s: %s (byte %zu)", b->name, problem,
                            parser->problem_offset);
    kb_srcloc loc = loc_at(b, &parser->problem_mark);
    kb_srcloc begin = loc_at(b, &parser->context_mark);
    const char *context = parser->context;
    if (strcmp(problem, "found character that cannot start any token") == 0) {
        char found = byte_behind(text, length, parser->problem_mark.index);
        if (found == '\t')
            return kb_error_at(KB_ERR_INPUT, &loc, "tab character may not be used as indentation");
        return kb_error_at(KB_ERR_INPUT, &loc, "a value must not begin with %c: put it in quotes",
                           found);
    }
    if (!context)
        return kb_error_at(KB_ERR_INPUT, &loc, "%s", problem);
    if (strcmp(problem, "found unexpected end of stream") == 0)
        loc = begin; /* what has no end is what is to be looked at */
    if (begin.line == loc.line)
        return kb_error_at(KB_ERR_INPUT, &loc, "%s %s", problem, context);
    return kb_error_at(KB_ERR_INPUT, &loc, "%s %s that begins in line %d", problem, context,
                       begin.line);
}

static kb_error *parse(builder *b, const char *text, size_t length)
{
    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        return kb_error_nomem();
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, length);
    kb_error *err = NULL;
    for (bool more = true; !err && more;) {
        yaml_event_t event;
        if (!yaml_parser_parse(&parser, &event)) {
            err = syntax_error(b, &parser, text, length);
            break;
        }
        err = on_event(b, &event);
        more = event.type != YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return err;
}

/* Loads into a config that has its arena and locale. */
static kb_error *load(kb_config *config, const char *name, const char *text, size_t length)
{
    builder b = {.config = config, .name = kb_arena_strdup(&config->arena, name)};
    if (!b.name)
        return kb_error_nomem();
    size_t skip = kb_config_offset(text, length, (kb_srcloc){.line = 1, .column = 1});
    text += skip;
    length -= skip;
    KB_TRY(kb_config_check_text(config, b.name, text, length));
    KB_TRY(parse(&b, text, length));
    if (!config->root)
        return kb_error_new(KB_ERR_INPUT, "%s: expected a mapping, found an empty document", name);
    if (config->root->kind != KB_CONFIG_MAPPING)
        return kb_error_at(KB_ERR_INPUT, &config->root->loc, "expected a mapping, found a %s",
                           config->root->kind == KB_CONFIG_SCALAR ? "scalar" : "sequence");
    config->root->read = true;
    return NULL;
}

kb_error *kb_config_load_text(const char *name, const char *text, size_t length, kb_config **config)
{
    *config = NULL;
    kb_config *made = kb_alloc_zeroed(1, sizeof *made);
    if (!made)
        return kb_error_nomem();
    kb_arena_init(&made->arena);
    made->c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    kb_error *err = made->c_locale ? load(made, name, text, length) : kb_error_nomem();
    if (err) {
        kb_config_destroy(made);
        return err;
    }
    *config = made;
    return NULL;
}

static kb_error *read_file(const char *path, kb_text *text)
{
    kb_srcloc loc = {.file = path};
    FILE *file = fopen(path, "re");
    if (!file)
        return kb_error_at(kb_code_of_errno(errno), &loc, "cannot open: %s", strerror(errno));
    char block[8192];
    size_t got;
    /* One block more than is allowed: kb_config_check_text then says that it is too large. */
    while (!text->failed && text->length <= KB_CONFIG_MAX_SIZE &&
           (got = fread(block, 1, sizeof block, file)) > 0)
        kb_text_append(text, block, got);
    kb_error *err = NULL;
    if (ferror(file))
        err = kb_error_at(kb_code_of_errno(errno), &loc, "cannot read: %s", strerror(errno));
    else if (text->failed)
        err = kb_error_nomem();
    fclose(file);
    return err;
}

kb_error *kb_config_load_file(const char *path, kb_config **config)
{
    *config = NULL;
    kb_text text = KB_TEXT_INIT;
    kb_error *err = read_file(path, &text);
    if (!err)
        err = kb_config_load_text(path, kb_text_peek(&text), text.length, config);
    kb_text_fini(&text);
    return err;
}

void kb_config_destroy(kb_config *config)
{
    if (!config)
        return;
    if (config->c_locale)
        freelocale(config->c_locale);
    kb_vec_fini(&config->problems);
    kb_arena_fini(&config->arena);
    free(config);
}
