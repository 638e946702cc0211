/* intern.c: texts by number: see intern.h. */
#include "intern.h"

#include <stdlib.h>
#include <string.h>

enum {
    FIRST_SIZE = 256,
    MAX_COUNT = 1 << 16,
    MAX_BYTES = 4 << 20,
};

void intern_fini(intern *table)
{
    for (size_t i = 0; i < table->size; i++)
        free(table->entries[i].text);
    free(table->entries);
    *table = (intern){0};
}

bool intern_is_large(const intern *table)
{
    return table->count >= MAX_COUNT || table->bytes >= MAX_BYTES;
}

/* FNV-1a. */
static uint64_t hash_of(uint32_t kind, const char *text)
{
    uint64_t hash = 0xcbf29ce484222325 ^ kind;
    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3;
    return hash;
}

/* The entry of the text, or the free one where it belongs. */
static intern_entry *find(const intern *table, uint64_t hash, uint32_t kind, const char *text)
{
    size_t mask = table->size - 1;
    for (size_t i = (size_t)(hash ^ hash >> 32) & mask;; i = (i + 1) & mask) {
        intern_entry *e = &table->entries[i];
        if (!e->text || (e->hash == hash && e->kind == kind && strcmp(e->text, text) == 0))
            return e;
    }
}

/* False if out of memory: then nothing has changed. */
static bool grow(intern *table)
{
    intern larger = *table;
    larger.size = table->size > 0 ? 2 * table->size : FIRST_SIZE;
    larger.entries = kb_alloc_zeroed(larger.size, sizeof *larger.entries);
    if (!larger.entries)
        return false;
    for (size_t i = 0; i < table->size; i++) {
        const intern_entry *e = &table->entries[i];
        if (e->text)
            *find(&larger, e->hash, e->kind, e->text) = *e;
    }
    free(table->entries);
    *table = larger;
    return true;
}

uint32_t intern_text(intern *table, uint32_t kind, const char *text, bool *fresh)
{
    *fresh = false;
    if (2 * table->count >= table->size && !grow(table))
        return 0;
    uint64_t hash = hash_of(kind, text);
    intern_entry *e = find(table, hash, kind, text);
    if (e->text)
        return e->number;
    size_t size = strlen(text) + 1;
    char *copy = kb_alloc_array(size, 1);
    if (!copy)
        return 0;
    memcpy(copy, text, size);
    *fresh = true;
    table->count++;
    table->bytes += size;
    *e = (intern_entry){copy, hash, kind, ++table->last[kind]};
    return e->number;
}
