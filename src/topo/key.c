/* key.c: reads and prints keys of machine files by their declarations. */
#include "key.h"

#include <inttypes.h>
#include <string.h>

enum { size_digits = 9 };

/* Follows the path; stops at the last node that is there if `nearest`. */
static kb_config_node *follow(kb_config_node *mapping, const char *path, bool nearest)
{
    kb_config_node *node = mapping;
    while (node && *path != '\0') {
        char key[32];
        size_t length = strcspn(path, ".");
        KB_ASSERT(length < sizeof key);
        memcpy(key, path, length);
        key[length] = '\0';
        path += length + (path[length] == '.');
        kb_config_node *child = kb_config_find(node, key);
        if (!child && nearest)
            return node;
        node = child;
    }
    return node;
}

kb_config_node *topo_key_find(kb_config_node *mapping, const char *path)
{
    return follow(mapping, path, false);
}

kb_config_node *topo_key_nearest(kb_config_node *mapping, const char *path)
{
    return follow(mapping, path, true);
}

/* ---- Fields ------------------------------------------------------------------------------ */

uint64_t topo_key_get(const topo_key *key, const void *values)
{
    const char *field = (const char *)values + key->offset;
    uint64_t wide;
    uint32_t word;
    if (key->size == sizeof(bool))
        return *(const bool *)(const void *)field;
    if (key->size == sizeof word) {
        memcpy(&word, field, sizeof word);
        return word;
    }
    KB_ASSERT(key->size == sizeof wide);
    memcpy(&wide, field, sizeof wide);
    return wide;
}

void topo_key_set(const topo_key *key, void *values, uint64_t value)
{
    char *field = (char *)values + key->offset;
    uint32_t word = (uint32_t)value;
    if (key->size == sizeof(bool))
        *(bool *)(void *)field = value != 0;
    else if (key->size == sizeof word)
        memcpy(field, &word, sizeof word);
    else
        memcpy(field, &value, sizeof value);
}

/* ---- Reading ----------------------------------------------------------------------------- */

/* Sets *bytes; false if the size is wrong. */
static bool read_size(const topo_key *key, kb_config_node *node, uint64_t *bytes)
{
    __extension__ typedef unsigned __int128 wide;
    int64_t parts = kb_config_decimal(node, size_digits, key->min, key->max, -1);
    if (parts < 0)
        return false;
    wide scaled = (wide)parts << key->unit_bits;
    *bytes = (uint64_t)(scaled / (wide)TOPO_GIGA);
    if (scaled % (wide)TOPO_GIGA == 0)
        return true;
    kb_config_problem(node, "expected a whole number of bytes, found '%s'",
                      kb_config_source_text(node));
    return false;
}

static bool read_value(const topo_key *key, kb_config_node *node, uint64_t *value)
{
    static const int64_t wrong = INT64_MIN;
    int64_t number = wrong;
    size_t count = (size_t)key->max + 1, name;
    switch (key->form) {
    case TOPO_FORM_COUNT:
        number = kb_config_int(node, key->min, key->max, wrong);
        break;
    case TOPO_FORM_DECIMAL:
        number = kb_config_decimal(node, key->digits, key->min, key->max, wrong);
        break;
    case TOPO_FORM_SIZE:
        return read_size(key, node, value);
    case TOPO_FORM_CHOICE:
        name = kb_config_enum(node, key->names, count, count);
        number = name < count ? (int64_t)name : wrong;
        break;
    }
    *value = (uint64_t)number;
    return number != wrong;
}

bool topo_key_read(const topo_key *key, kb_config_node *mapping, void *values)
{
    uint64_t value;
    kb_config_node *node = topo_key_find(mapping, key->path);
    if (!node)
        return true;
    bool right = read_value(key, node, &value);
    if (right)
        topo_key_set(key, values, value);
    return right;
}

/* ---- Printing ---------------------------------------------------------------------------- */

void topo_key_print(const topo_key *key, const char *prefix, const void *values, kb_text *text)
{
    __extension__ typedef unsigned __int128 wide;
    uint64_t value = topo_key_get(key, values);
    kb_text_printf(text, "%s%s%s=", prefix, prefix[0] != '\0' ? "." : "", key->path);
    switch (key->form) {
    case TOPO_FORM_COUNT:
        kb_text_printf(text, "%" PRIu64, value);
        break;
    case TOPO_FORM_DECIMAL:
        kb_decimal_print((int64_t)value, key->digits, text);
        break;
    case TOPO_FORM_SIZE: /* exact, as the bytes were read from nine digits at most */
        kb_decimal_print((int64_t)(((wide)value * (wide)TOPO_GIGA) >> key->unit_bits), size_digits,
                         text);
        break;
    case TOPO_FORM_CHOICE:
        kb_text_puts(text, key->names[value]);
        break;
    }
    kb_text_puts(text, "\n");
}
