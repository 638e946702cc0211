/*
 * key.h: a key of a machine file, declared once. Reading it, its range, printing it in its unit and
 * its part of the machine's hash follow from the declaration. Private to topo.
 *
 *     {.path = "fabric.vcs", TOPO_COUNT(topo_description, fabric.vcs, 1, TOPO_MAX_VCS)}
 *
 * A value is kept exactly: a time in femtoseconds, a bandwidth in bytes a second, a length in
 * nanometres, a size in bytes.
 */
#ifndef KB_TOPO_KEY_H
#define KB_TOPO_KEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "base/base.h"
#include "rate.h"

typedef enum topo_key_form {
    TOPO_FORM_COUNT,   /* a whole number */
    TOPO_FORM_DECIMAL, /* a multiple of 10^-digits */
    TOPO_FORM_SIZE,    /* a multiple of 10^-9 * 2^unit_bits bytes that is a whole number of bytes */
    TOPO_FORM_CHOICE,  /* one of some names: its index */
} topo_key_form;

typedef struct topo_key {
    const char *path; /* below the mapping that it is read from */
    const char *const *names;
    int64_t min, max; /* as the value is kept; of a size, in 10^-9 * 2^unit_bits bytes */
    topo_key_form form;
    uint8_t digits, unit_bits;
    bool inherited;        /* of a component: its default is the rate of the component's link */
    uint16_t offset, size; /* of the field that holds the value */
} topo_key;

/* The slowest link: 0.001 GB/s, so that the time of a packet always fits. The fastest:
 * TOPO_RATE_MAX. */
#define TOPO_RATE_MIN ((uint64_t)1000000)

#define TOPO_GIGA INT64_C(1000000000)

#define TOPO_FIELD(type, field)                                                                    \
    .offset = offsetof(type, field), .size = sizeof(((type *)NULL)->field)

#define TOPO_COUNT(type, field, low, high)                                                         \
    .form = TOPO_FORM_COUNT, .min = (low), .max = (high), TOPO_FIELD(type, field)

#define TOPO_DECIMAL(type, field, places, low, high)                                               \
    .form = TOPO_FORM_DECIMAL, .digits = (places), .min = (low), .max = (high),                    \
    TOPO_FIELD(type, field)

/* Nanoseconds, to the femtosecond: up to a millisecond, so that the sum over a route always fits.
 * The time of a clock cycle is above 0. */
#define TOPO_NS(type, field) TOPO_DECIMAL(type, field, 6, 0, KB_MS)
#define TOPO_CYCLE_NS(type, field) TOPO_DECIMAL(type, field, 6, 1, KB_MS)

/* GB/s, to the byte a second. */
#define TOPO_GB_S(type, field) TOPO_DECIMAL(type, field, 9, TOPO_RATE_MIN, TOPO_RATE_MAX)

/* Millimetres, to the nanometre: up to a kilometre. */
#define TOPO_MM(type, field) TOPO_DECIMAL(type, field, 6, 0, 1000 * TOPO_GIGA)

/* A share in (0, 1], in parts of 10^9. */
#define TOPO_SHARE(type, field) TOPO_DECIMAL(type, field, 9, 1, TOPO_GIGA)

/* A size in MiB or GiB: from `low` to `high` of these, or any up to 2^50 bytes. */
#define TOPO_SIZE(type, field, bits, low, high)                                                    \
    .form = TOPO_FORM_SIZE, .unit_bits = (bits), .min = (low), .max = (high),                      \
    TOPO_FIELD(type, field)
#define TOPO_MIB_FROM(type, field, low, high)                                                      \
    TOPO_SIZE(type, field, 20, (low)*TOPO_GIGA, (high)*TOPO_GIGA)
#define TOPO_MIB(type, field) TOPO_SIZE(type, field, 20, 1, (INT64_C(1) << 30) * TOPO_GIGA)
#define TOPO_GIB(type, field) TOPO_SIZE(type, field, 30, 1, (INT64_C(1) << 20) * TOPO_GIGA)

/* One of the names of an array. */
#define TOPO_CHOICE(type, field, array)                                                            \
    .form = TOPO_FORM_CHOICE, .names = (array), .max = sizeof(array) / sizeof((array)[0]) - 1,     \
    TOPO_FIELD(type, field)

/* The node at a path of keys such as "cube.noc.w"; NULL if there is none. */
kb_config_node *topo_key_find(kb_config_node *mapping, const char *path);

/*
 * Reads a key below the mapping into its field of *values, which keeps its value, the default, if
 * the key is absent or wrong. False if there is a value and it is wrong.
 */
bool topo_key_read(const topo_key *key, kb_config_node *mapping, void *values);

/* Appends "PREFIX.PATH=VALUE" and a line end; an empty prefix has no point. */
void topo_key_print(const topo_key *key, const char *prefix, const void *values, kb_text *text);

/* The value of its field. */
uint64_t topo_key_get(const topo_key *key, const void *values);
void topo_key_set(const topo_key *key, void *values, uint64_t value);

/* The node of the path if it is there, else the nearest mapping above it that is: where to report a
 * problem of several keys. */
kb_config_node *topo_key_nearest(kb_config_node *mapping, const char *path);

#endif
