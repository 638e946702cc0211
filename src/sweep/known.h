/*
 * known.h: the runs that the store has, by key, and which request led to which key.
 *
 * Read once, then kept up to date, so that 100,000 points are looked up without the store. Children
 * have a copy of the moment in which they began.
 */
#ifndef KB_SWEEP_KNOWN_H
#define KB_SWEEP_KNOWN_H

#include "base/base.h"
#include "store/store.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sweep_known sweep_known;

/* The newest run of a key. */
typedef struct sweep_known_run {
    int64_t id;
    store_status status;
    double wall_s;
} sweep_known_run;

KB_MUST_USE kb_error *sweep_known_create(sweep_known **out);
void sweep_known_destroy(sweep_known *known); /* NULL does nothing */

KB_MUST_USE kb_error *sweep_known_read(sweep_known *known, store *s);

/* Hashes are texts of 32 hexadecimal digits. Others are no points of sweeps, and ignored. */
KB_MUST_USE kb_error *sweep_known_add(sweep_known *known, const char *key,
                                      const sweep_known_run *run);
KB_MUST_USE kb_error *sweep_known_add_request(sweep_known *known, const char *request,
                                              const char *key);

/* Machines whose files the store has, by their hash and name. */
KB_MUST_USE kb_error *sweep_known_add_machine(sweep_known *known, const char *hash,
                                              const char *name);
bool sweep_known_has_machine(const sweep_known *known, const char *hash, const char *name);

/* NULL if there is none. Valid until something is added. */
const sweep_known_run *sweep_known_find(const sweep_known *known, const char *key);
const sweep_known_run *sweep_known_find_request(const sweep_known *known, const char *request);

#endif
