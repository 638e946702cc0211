/*
 * config_load.c: from bytes to nodes. libfyaml parses and is seen by this file alone.
 *
 * libfyaml gives events, and the tree is built here rather than by its document builder, so that
 * duplicate keys can be problems among others, aliases cannot explode, nesting is bounded, and what
 * is left has a place and outlives the parser. The bytes are checked before it sees them.
 */
#include <errno.h>
#include <libfyaml.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/config_node.h"
#include "base/text.h"

typedef struct builder {
    kb_config *config;
    const char *name;     /* of the file */
    kb_config_node *open; /* the innermost mapping or sequence not yet closed */
    const char *key;      /* read, waiting for its value; NULL if none */
    kb_place key_place;
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
static kb_config_node *add_node(builder *b, kb_config_kind kind, const kb_place *place,
                                kb_error **err)
{
    kb_config_node *node;
    if (!b->open) {
        node = b->config->root = KB_ARENA_NEW(&b->config->arena, kb_config_node);
    } else if (b->open->depth < KB_CONFIG_MAX_DEPTH) {
        node = kb_config_add_child(b->open, b->key);
    } else {
        *err =
            kb_error_at(KB_ERR_INPUT, place, "nested deeper than %d levels", KB_CONFIG_MAX_DEPTH);
        return NULL;
    }
    if (!node) {
        *err = kb_error_nomem();
        return NULL;
    }
    node->config = b->config;
    node->kind = kind;
    node->place = *place;
    node->key_place = b->key ? b->key_place : *place;
    b->key = NULL;
    return node;
}

static kb_error *on_open(builder *b, kb_config_kind kind, const kb_place *place)
{
    if (wants_key(b))
        return kb_error_at(KB_ERR_INPUT, place, "expected a name as the key, found a %s",
                           kind == KB_CONFIG_MAPPING ? "mapping" : "sequence");
    kb_error *err = NULL;
    kb_config_node *node = add_node(b, kind, place, &err);
    if (node)
        b->open = node;
    return err;
}

/*
 * Copies the text of a scalar into the arena; "" for a value that was left out. By the iterator, as
 * fy_token_get_text of libfyaml 0.7.12 leaks and miscounts.
 */
static kb_error *copy_text(builder *b, struct fy_event *event, const kb_place *place,
                           const char **copy, size_t *length)
{
    *copy = "";
    *length = 0;
    struct fy_token *token = fy_event_get_token(event);
    if (!token)
        return NULL;
    struct fy_token_iter *iterator = fy_token_iter_create(token);
    if (!iterator)
        return kb_error_nomem();
    kb_text text = KB_TEXT_INIT;
    int failed = 0;
    const struct fy_iter_chunk *chunk = NULL;
    while ((chunk = fy_token_iter_chunk_next(iterator, chunk, &failed)))
        kb_text_append(&text, chunk->str, chunk->len);
    fy_token_iter_destroy(iterator);

    const char *copied = NULL;
    if (!text.failed)
        copied = kb_arena_strndup(&b->config->arena, kb_text_peek(&text), text.length);
    size_t copied_length = text.length;
    kb_text_fini(&text);
    if (failed)
        return kb_error_at(KB_ERR_INPUT, place, "invalid string");
    if (!copied)
        return kb_error_nomem();
    *copy = copied;
    *length = copied_length;
    return NULL;
}

/*
 * What libfyaml 0.7.12 reads wrongly, as a comparison with PyYAML shows: two quotes in single
 * quotes become three, an escaped line break behind an escaped backslash becomes a blank, and
 * folding drops blank lines before indented ones. Refused, because no value is better than a wrong
 * one.
 */
static const char *unreliable(struct fy_event *event, const char *text)
{
    struct fy_token *token = fy_event_get_token(event);
    switch (fy_event_get_node_style(event)) {
    case FYNS_SINGLE_QUOTED:
        return strstr(text, "''") ? "two quotes in a row: use double quotes around the string"
                                  : NULL;
    case FYNS_DOUBLE_QUOTED:
        return fy_token_start_mark(token)->line == fy_token_end_mark(token)->line
                   ? NULL
                   : "a string in double quotes must end in the line where it begins";
    case FYNS_FOLDED:
        return "folded strings are not supported: use | instead of >";
    default:
        return NULL;
    }
}

static kb_error *on_key(builder *b, struct fy_event *event, const kb_place *place)
{
    const char *key;
    size_t length;
    KB_TRY(copy_text(b, event, place, &key, &length));
    if (length == 0)
        return kb_error_at(KB_ERR_INPUT, place, "expected a name as the key, found nothing");
    if (length > KB_CONFIG_MAX_KEY)
        return kb_error_at(KB_ERR_INPUT, place, "key longer than %d bytes", KB_CONFIG_MAX_KEY);
    const char *bad = kb_config_bad_text(b->config, key, length, NULL);
    if (bad)
        return kb_error_at(KB_ERR_INPUT, place, "%s in a key", bad);
    const char *doubtful = unreliable(event, key);
    if (doubtful)
        return kb_error_at(KB_ERR_INPUT, place, "%s", doubtful);
    b->key = key;
    b->key_place = *place;
    return NULL;
}

static kb_error *on_scalar(builder *b, struct fy_event *event, const kb_place *place)
{
    if (wants_key(b))
        return on_key(b, event, place);

    kb_error *err = NULL;
    kb_config_node *node = add_node(b, KB_CONFIG_SCALAR, place, &err);
    if (!node)
        return err;
    size_t length;
    KB_TRY(copy_text(b, event, place, &node->text, &length));
    enum fy_node_style style = fy_event_get_node_style(event);
    node->quoted = style != FYNS_PLAIN && style != FYNS_ANY; /* any: the value was left out */
    const char *bad = kb_config_bad_text(b->config, node->text, length, NULL);
    const char *doubtful = unreliable(event, node->text);
    node->faulty = bad || doubtful;
    if (bad) /* by way of "\0" and the like: the file itself was checked */
        kb_config_note(b->config, place, "%s in a string", bad);
    else if (doubtful)
        kb_config_note(b->config, place, "%s", doubtful);
    return NULL;
}

static kb_error *on_alias(builder *b, const kb_place *place)
{
    if (wants_key(b))
        return kb_error_at(KB_ERR_INPUT, place, "expected a name as the key, found an alias");
    kb_error *err = NULL;
    kb_config_node *node = add_node(b, KB_CONFIG_SCALAR, place, &err);
    if (!node)
        return err;
    node->text = "";
    node->faulty = true;
    kb_config_note(b->config, place, "aliases are not supported: repeat the value here");
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
        const kb_place *place = &sorted[i]->key_place;
        if (strcmp(sorted[i]->key, "<<") == 0)
            kb_config_note(config, place, "merge keys are not supported: repeat the keys here");
        else if (i != first)
            kb_config_note(config, place, "duplicate key '%s', first set in line %d",
                           kb_config_path(sorted[i]), sorted[first]->key_place.line);
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

static kb_place place_of(const builder *b, struct fy_event *event)
{
    const struct fy_mark *mark = fy_event_start_mark(event);
    if (!mark) /* of a value that was left out */
        return b->key ? b->key_place : (kb_place){.file = b->name, .line = 1, .column = 1};
    kb_place place = {.file = b->name, .line = mark->line + 1, .column = mark->column + 1};
    if (event->type == FYET_SCALAR) {
        enum fy_node_style style = fy_event_get_node_style(event);
        /* The mark is behind the quote. */
        if ((style == FYNS_SINGLE_QUOTED || style == FYNS_DOUBLE_QUOTED) && place.column > 1)
            place.column--;
    }
    return place;
}

static void refuse_decorations(builder *b, struct fy_event *event, const kb_place *place)
{
    bool node = event->type == FYET_SCALAR || event->type == FYET_MAPPING_START ||
                event->type == FYET_SEQUENCE_START;
    if (node && fy_event_get_anchor_token(event))
        kb_config_note(b->config, place, "anchors are not supported: leave out the &name");
    if (node && fy_event_get_tag_token(event))
        kb_config_note(b->config, place, "tags are not supported: leave out the !name");
}

static kb_error *on_event(builder *b, struct fy_event *event)
{
    kb_place place = place_of(b, event);
    refuse_decorations(b, event, &place);
    switch (event->type) {
    case FYET_DOCUMENT_START:
        if (b->ended)
            return kb_error_at(KB_ERR_INPUT, &place, "expected one document, found a second one");
        return NULL;
    case FYET_DOCUMENT_END:
        b->ended = true;
        return NULL;
    case FYET_MAPPING_START:
        return on_open(b, KB_CONFIG_MAPPING, &place);
    case FYET_SEQUENCE_START:
        return on_open(b, KB_CONFIG_SEQUENCE, &place);
    case FYET_MAPPING_END:
    case FYET_SEQUENCE_END:
        return on_close(b);
    case FYET_SCALAR:
        return on_scalar(b, event, &place);
    case FYET_ALIAS:
        return on_alias(b, &place);
    default:
        return NULL;
    }
}

/* The first complaint of the parser; the others mostly follow from it. */
static kb_error *syntax_error(const char *name, struct fy_diag *diag)
{
    void *iterator = NULL;
    const struct fy_diag_error *first = fy_diag_errors_iterate(diag, &iterator);
    if (!first || !first->msg)
        return kb_error_new(KB_ERR_INPUT, "%s: not a YAML document", name);
    kb_place place = {.file = name, .line = first->line, .column = first->column};
    return kb_error_at(KB_ERR_INPUT, &place, "%s", first->msg);
}

static kb_error *parse(builder *b, const char *text, size_t length)
{
    struct fy_diag_cfg diag_cfg;
    fy_diag_cfg_default(&diag_cfg);
    diag_cfg.fp = NULL;
    diag_cfg.level = FYET_ERROR;
    kb_error *err = NULL;
    struct fy_parser *parser = NULL;
    struct fy_diag *diag = fy_diag_create(&diag_cfg);
    if (!diag)
        return kb_error_nomem();
    fy_diag_set_collect_errors(diag, true);

    const struct fy_parse_cfg parse_cfg = {
        .flags = FYPCF_QUIET | FYPCF_DEFAULT_VERSION_1_2 | FYPCF_JSON_NONE,
        .diag = diag,
    };
    parser = fy_parser_create(&parse_cfg);
    if (!parser || fy_parser_set_string(parser, text, length) != 0) {
        err = kb_error_nomem();
        goto cleanup;
    }
    struct fy_event *event;
    while (!err && (event = fy_parser_parse(parser))) {
        err = on_event(b, event);
        fy_parser_event_free(parser, event);
    }
    if (!err && fy_parser_get_stream_error(parser))
        err = syntax_error(b->name, diag);

cleanup:
    fy_parser_destroy(parser);
    fy_diag_destroy(diag);
    return err;
}

/* Loads into a config that has its arena and locale. */
static kb_error *load(kb_config *config, const char *name, const char *text, size_t length)
{
    builder b = {.config = config, .name = kb_arena_strdup(&config->arena, name)};
    if (!b.name)
        return kb_error_nomem();
    static const char byte_order_mark[] = {'\xef', '\xbb', '\xbf'};
    size_t skip = sizeof byte_order_mark;
    if (length >= skip && memcmp(text, byte_order_mark, skip) == 0) {
        text += skip;
        length -= skip;
    }
    KB_TRY(kb_config_check_text(config, b.name, text, length));
    if (length > 0 && text[length - 1] != '\n') {
        /* libfyaml 0.7.12 reads beyond the end of a block that no newline ends. */
        text = kb_arena_printf(&config->arena, "%.*s\n", (int)length, text);
        if (!text)
            return kb_error_nomem();
        length++;
    }
    KB_TRY(parse(&b, text, length));
    if (!config->root)
        return kb_error_new(KB_ERR_INPUT, "%s: expected a mapping, found an empty document", name);
    if (config->root->kind != KB_CONFIG_MAPPING)
        return kb_error_at(KB_ERR_INPUT, &config->root->place, "expected a mapping, found a %s",
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
    kb_place place = {.file = path};
    FILE *file = fopen(path, "re");
    if (!file)
        return kb_error_at(KB_ERR_INPUT, &place, "cannot open: %s", strerror(errno));
    char block[8192];
    size_t got;
    /* One block more than is allowed: kb_config_check_text then says that it is too large. */
    while (!text->failed && text->length <= KB_CONFIG_MAX_SIZE &&
           (got = fread(block, 1, sizeof block, file)) > 0)
        kb_text_append(text, block, got);
    kb_error *err = NULL;
    if (ferror(file))
        err = kb_error_at(KB_ERR_INPUT, &place, "cannot read: %s", strerror(errno));
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
