/*
 * quantity.h: reads hardware quantities, in the units that people write and exactly.
 *
 * Each function reads one key of a mapping and leaves *value as it was if the key is absent or
 * wrong, so what is there before is the default.
 */
#ifndef KB_TOPO_QUANTITY_H
#define KB_TOPO_QUANTITY_H

#include <stdbool.h>
#include <stdint.h>

#include <kernbench/kernbench.h>

#include "base/base.h"

/* The slowest link: 0.001 GB/s, so that the time of a packet always fits. The fastest:
 * TOPO_RATE_MAX. */
#define TOPO_RATE_MIN ((uint64_t)1000000)

/* Nanoseconds, to the femtosecond: up to a millisecond, so that the sum over a route always fits.
 */
void topo_read_time(kb_config_node *mapping, const char *key, kb_time *value);

/* The same, above 0: of a clock. */
void topo_read_cycle(kb_config_node *mapping, const char *key, kb_time *value);

/* GB/s, to the byte a second. */
void topo_read_bandwidth(kb_config_node *mapping, const char *key, uint64_t *value);

/* Millimetres, to the nanometre. */
void topo_read_length(kb_config_node *mapping, const char *key, uint64_t *value);

/* A share in (0, 1], in parts of 10^9. */
void topo_read_share(kb_config_node *mapping, const char *key, uint64_t *value);

/*
 * A size in units of 2^unit_bits bytes (30: GiB), a whole number of bytes, up to 2^50; one from
 * `min` to `max` such units; and a whole number. False if there is one and it is wrong.
 */
bool topo_read_bytes(kb_config_node *mapping, const char *key, unsigned unit_bits, uint64_t *value);
bool topo_read_bytes_within(kb_config_node *mapping, const char *key, unsigned unit_bits,
                            uint32_t min, uint32_t max, uint64_t *value);
bool topo_read_count(kb_config_node *mapping, const char *key, uint32_t min, uint32_t max,
                     uint32_t *value);

/* The key's node if it is there, else the mapping, else the other: where to put a complaint. */
kb_config_node *topo_blame(kb_config_node *mapping, const char *key, kb_config_node *other);

#endif
