/*
 * intern.h: texts by number, for formats that write each text once. Numbers go from 1 on, for each
 * kind of text on its own. The table is cleared when it has grown large, so its memory is bounded
 * however many different texts there are; numbers then begin anew. Private to obs.
 */
#ifndef KB_OBS_INTERN_H
#define KB_OBS_INTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"

enum { INTERN_KINDS = 4 };

typedef struct intern_entry {
    char *text; /* NULL: free */
    uint64_t hash;
    uint32_t kind, number;
} intern_entry;

typedef struct intern {
    intern_entry *entries; /* open addressing; a power of two */
    size_t size, count, bytes;
    uint32_t last[INTERN_KINDS];
} intern;

void intern_fini(intern *table);

/* The number of the text; *fresh: it is new. 0 if out of memory. */
uint32_t intern_text(intern *table, uint32_t kind, const char *text, bool *fresh);

/* Whether it should be cleared before more is added. */
bool intern_is_large(const intern *table);

#endif
