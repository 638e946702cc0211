/*
 * config_node.h: how a configuration is held. Private to config*.c.
 *
 * All of it lives in one arena. Running out of memory is noted in `out_of_memory` and reported by
 * kb_config_finish, so that reading needs no checks.
 */
#ifndef KB_BASE_CONFIG_NODE_H
#define KB_BASE_CONFIG_NODE_H

#include <locale.h>

#include "base/arena.h"
#include "base/config.h"
#include "base/vec.h"

enum {
    KB_CONFIG_MAX_SIZE = 1 << 20, /* bytes of a file */
    KB_CONFIG_MAX_DEPTH = 50,     /* bounds recursion over nodes */
    KB_CONFIG_MAX_KEY = 200       /* bytes; bounds messages */
};

typedef enum kb_config_kind {
    KB_CONFIG_SCALAR,
    KB_CONFIG_MAPPING,
    KB_CONFIG_SEQUENCE
} kb_config_kind;

/* A key that the program asked for in a mapping: a candidate for "did you mean". */
typedef struct kb_config_asked {
    const char *key;
    struct kb_config_asked *next;
} kb_config_asked;

struct kb_config_node {
    kb_config *config;
    kb_config_node *parent; /* NULL for the root */
    kb_config_node *first;  /* children, in the order of the file */
    kb_config_node *last;
    kb_config_node *next; /* sibling */
    size_t count;         /* of children */
    size_t index;         /* among the siblings of a sequence */
    const char *key;      /* NULL in a sequence and for the root */
    const char *text;     /* of a scalar */
    kb_config_asked *asked;
    kb_srcloc loc; /* of the value; see kb_config_is_override */
    kb_srcloc key_loc;
    int depth; /* of the root: 0 */
    kb_config_kind kind;
    bool quoted; /* a scalar in quotes, which is a string whatever it looks like */
    bool read;   /* someone asked for it */
    bool faulty; /* not what was expected: its children are not checked */
};

typedef struct kb_config_noted {
    kb_srcloc loc;
    const char *message;
    size_t sequence; /* order of discovery, among problems of the same location */
} kb_config_noted;

struct kb_config {
    kb_arena arena;
    kb_config_node *root;
    KB_VEC(kb_config_noted) problems;
    locale_t c_locale;        /* for numbers with a decimal point */
    size_t override_problems; /* how many there were before the first read */
    int override_count;
    bool reading; /* the root was asked for */
    bool finished;
    bool out_of_memory;
};

/* An override has line 0, and its number for a column, which gives problems their order. */
static inline bool kb_config_is_override(const kb_srcloc *loc)
{
    return loc->line == 0;
}

/* Whether the node is a scalar that says "no value". */
bool kb_config_is_null(const kb_config_node *node);

/* A new last child, or NULL. `key` is copied by the caller; NULL in a sequence. */
kb_config_node *kb_config_add_child(kb_config_node *parent, const char *key);
kb_config_node *kb_config_child(const kb_config_node *mapping, const char *key);

/* Dotted, as --set takes it: "cube.corners.0". "" for the root, and if out of memory. */
const char *kb_config_path(const kb_config_node *node);
/* The path of a key that `mapping` has not. */
const char *kb_config_path_of(const kb_config_node *mapping, const char *key);

void kb_config_note(kb_config *config, const kb_srcloc *loc, const char *format, ...)
    KB_PRINTF(3, 4);

/* Notes "expected <what>, found <the node>; did you mean <near>?", unless near is NULL. */
void kb_config_unexpected(kb_config_node *node, const char *near, const char *format, ...)
    KB_PRINTF(3, 4);

/*
 * The first thing in `text` that no setting may hold: a byte that is not UTF-8, a control
 * character. NULL if there is none, else what it is, and its line and column in *loc unless that
 * is NULL.
 */
const char *kb_config_bad_text(kb_config *config, const char *text, size_t length, kb_srcloc *loc);

/* Whether the text of a file can be given to the parser at all. */
KB_MUST_USE kb_error *kb_config_check_text(kb_config *config, const char *name, const char *text,
                                           size_t length);

#endif
