/*
 * config.h: strict reading of YAML settings. The schema is the sequence of reads.
 *
 *     kb_config *config;
 *     KB_TRY(kb_config_load_file("machine.yaml", &config));
 *     kb_config_override(config, "mesh.w=8");
 *
 *     kb_config_node *mesh = kb_config_mapping(kb_config_need(kb_config_root(config), "mesh"));
 *     int64_t w = kb_config_int(kb_config_need(mesh, "w"), 1, 64, 4);
 *     double share = kb_config_double(kb_config_find(mesh, "share"), kb_above(0), 0.5);
 *
 *     kb_error *err = kb_config_finish(config);
 *     kb_config_destroy(config);
 *
 * Only loading (no such file, not YAML) and finishing return errors. In between nothing stops: what
 * is wrong with a value is noted with its location, the getter returns the fallback, and finish
 * reports all problems in one go, in the order of the file and then of the overrides. A key that
 * was never asked for is a problem too, and so is an override of such a key.
 *
 * Every function takes a NULL node, does nothing and returns its fallback, NULL or 0: so the
 * absence of an optional mapping, or a problem that was noted already, needs no code.
 *
 * Anchors, aliases, merge keys and tags are refused: a value stands where it is used. So are ways
 * to write a string that the parser does not read reliably; see config_load.c.
 */
#ifndef KB_BASE_CONFIG_H
#define KB_BASE_CONFIG_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "base/error.h"

typedef struct kb_config kb_config;
typedef struct kb_config_node kb_config_node;

/* The file is read whole and closed. On failure *config is NULL. */
KB_MUST_USE kb_error *kb_config_load_file(const char *path, kb_config **config);

/* The same from memory. `name` stands for the file in messages. */
KB_MUST_USE kb_error *kb_config_load_text(const char *name, const char *text, size_t length,
                                          kb_config **config);

void kb_config_destroy(kb_config *config);

/*
 * Applies a setting such as "cube.hbm_ctrl.efficiency=0.9"; the last one of a key wins. A number
 * names an item of a list ("corners.0=NW"). The value is a plain scalar. Only before the first
 * read.
 */
void kb_config_override(kb_config *config, const char *setting);

/* The same for a setting that was given with a prefix, such as "ccl.", for messages to show. */
void kb_config_override_given(kb_config *config, const char *prefix, const char *setting);

/*
 * NULL if there is no problem. Else an error whose message is the first problem, with "(and N more
 * problems)" if there are more, and then the detail lists them all, one a line. To be called once,
 * when everything has been read.
 */
KB_MUST_USE kb_error *kb_config_finish(kb_config *config);

/*
 * Instead of kb_config_finish(): an error only if an override names a key that was not asked for,
 * or could not be applied. Problems of values do not count.
 */
KB_MUST_USE kb_error *kb_config_finish_overrides(kb_config *config);

/* The document, always a mapping. */
kb_config_node *kb_config_root(kb_config *config);

/* The value of a key; NULL if there is none, which is a problem for need and none for find. */
kb_config_node *kb_config_need(kb_config_node *mapping, const char *key);
kb_config_node *kb_config_find(kb_config_node *mapping, const char *key);

/*
 * The next value behind `after` (NULL: the first) whose key begins with the prefix: for keys that
 * are partly the user's choice. NULL if there is none.
 */
kb_config_node *kb_config_find_prefixed(kb_config_node *mapping, const char *prefix,
                                        kb_config_node *after);

/* The node itself if it is of that kind, else a problem and NULL. */
kb_config_node *kb_config_mapping(kb_config_node *node);
kb_config_node *kb_config_sequence(kb_config_node *node);

/* The items of a sequence, or the values of a mapping whose keys are the user's choice. */
size_t kb_config_count(const kb_config_node *node);
kb_config_node *kb_config_first(kb_config_node *node);
kb_config_node *kb_config_next(kb_config_node *item);
const char *kb_config_key(const kb_config_node *value); /* NULL for an item of a sequence */

/* Decimal, without leading zeros: 0, 42, -7. */
int64_t kb_config_int(kb_config_node *node, int64_t min, int64_t max, int64_t fallback);

/* Decimal, finite: 3, -0.5, 1e-3. Read correctly rounded, whatever the locale. */
typedef struct kb_range {
    double min;
    double max;
    bool above_min; /* min itself is not in it */
} kb_range;
double kb_config_double(kb_config_node *node, kb_range range, double fallback);

/*
 * The same numbers, exactly: the value times 10^digits, and so are min, max and fallback. One that
 * has more digits after the point is a problem.
 */
int64_t kb_config_decimal(kb_config_node *node, int digits, int64_t min, int64_t max,
                          int64_t fallback);

/* true or false. */
bool kb_config_bool(kb_config_node *node, bool fallback);

/* Any scalar but an empty one, quoted or not. Lives as long as the config. */
const char *kb_config_string(kb_config_node *node, const char *fallback);

/* The index of the scalar in `names`. */
size_t kb_config_enum(kb_config_node *node, const char *const *names, size_t count,
                      size_t fallback);

/* The text of a scalar as it was written, quotes and escapes resolved; NULL for other nodes. */
const char *kb_config_source_text(const kb_config_node *node);

/* Notes a problem of the caller's own finding: "expected a multiple of 8, found 12". */
void kb_config_problem(kb_config_node *node, const char *format, ...) KB_PRINTF(2, 3);

/* Where the node is. For an override the file is "--set key.path" and the line 0. */
kb_srcloc kb_config_loc(const kb_config_node *node);

/* The byte of the text at a line and column, which count from 1, the columns in characters. Lines
 * end with LF, CR LF or CR; a byte order mark at the beginning does not count. */
size_t kb_config_offset(const char *text, size_t length, kb_srcloc loc);

static inline kb_range kb_between(double min, double max)
{
    return (kb_range){.min = min, .max = max};
}

static inline kb_range kb_at_least(double min)
{
    return (kb_range){.min = min, .max = (double)INFINITY};
}

static inline kb_range kb_above(double min)
{
    return (kb_range){.min = min, .max = (double)INFINITY, .above_min = true};
}

/* (min, max]: such as an efficiency in (0, 1]. */
static inline kb_range kb_above_up_to(double min, double max)
{
    return (kb_range){.min = min, .max = max, .above_min = true};
}

#endif
