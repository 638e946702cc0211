/* quantity.c: reading hardware quantities: numbers with their units. */
#include "quantity.h"

#include "rate.h"

enum { time_digits = 6, length_digits = 6, rate_digits = 9, share_digits = 9, size_digits = 9 };

static const int64_t giga = 1000000000;

void topo_read_time(kb_config_node *mapping, const char *key, kb_time *value)
{
    *value = kb_config_decimal(kb_config_find(mapping, key), time_digits, 0, KB_MS, *value);
}

void topo_read_cycle(kb_config_node *mapping, const char *key, kb_time *value)
{
    *value = kb_config_decimal(kb_config_find(mapping, key), time_digits, 1, KB_MS, *value);
}

static void read_unsigned(kb_config_node *mapping, const char *key, int digits, int64_t min,
                          int64_t max, uint64_t *value)
{
    kb_config_node *node = kb_config_find(mapping, key);
    *value = (uint64_t)kb_config_decimal(node, digits, min, max, (int64_t)*value);
}

void topo_read_bandwidth(kb_config_node *mapping, const char *key, uint64_t *value)
{
    read_unsigned(mapping, key, rate_digits, TOPO_RATE_MIN, TOPO_RATE_MAX, value);
}

void topo_read_length(kb_config_node *mapping, const char *key, uint64_t *value)
{
    static const int64_t kilometre = 1000 * giga;
    read_unsigned(mapping, key, length_digits, 0, kilometre, value);
}

void topo_read_share(kb_config_node *mapping, const char *key, uint64_t *value)
{
    read_unsigned(mapping, key, share_digits, 1, giga, value);
}

/* `min` and `max` in parts of 10^9 of a unit. */
static bool read_size(kb_config_node *mapping, const char *key, unsigned unit_bits, int64_t min,
                      int64_t max, uint64_t *value)
{
    kb_config_node *node = kb_config_find(mapping, key);
    int64_t units = kb_config_decimal(node, size_digits, min, max, -1);
    if (units < 0)
        return !node;
    __extension__ typedef unsigned __int128 wide;
    static const wide part = 1000000000;
    wide scaled = (wide)units << unit_bits;
    if (scaled % part != 0) {
        kb_config_problem(node, "expected a whole number of bytes, found '%s'",
                          kb_config_source_text(node));
        return false;
    }
    *value = (uint64_t)(scaled / part);
    return true;
}

bool topo_read_bytes(kb_config_node *mapping, const char *key, unsigned unit_bits, uint64_t *value)
{
    static const int max_bits = 50;
    int64_t max = ((int64_t)1 << (max_bits - (int)unit_bits)) * giga;
    return read_size(mapping, key, unit_bits, 1, max, value);
}

bool topo_read_bytes_within(kb_config_node *mapping, const char *key, unsigned unit_bits,
                            uint32_t min, uint32_t max, uint64_t *value)
{
    return read_size(mapping, key, unit_bits, min * giga, max * giga, value);
}

bool topo_read_count(kb_config_node *mapping, const char *key, uint32_t min, uint32_t max,
                     uint32_t *value)
{
    kb_config_node *node = kb_config_find(mapping, key);
    int64_t count = kb_config_int(node, min, max, -1);
    if (count < 0)
        return !node;
    *value = (uint32_t)count;
    return true;
}

kb_config_node *topo_blame(kb_config_node *mapping, const char *key, kb_config_node *other)
{
    kb_config_node *node = kb_config_find(mapping, key);
    if (!node)
        node = mapping;
    return node ? node : other;
}
