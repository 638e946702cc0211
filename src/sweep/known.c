/* known.c: see known.h. Two hash tables with open addressing, never more than half full. */
#include "known.h"

#include <stdlib.h>
#include <string.h>

#include "digest.h"

enum { HEX_DIGITS = 32, FIRST_SLOTS = 1024 };

typedef struct hash128 {
    uint64_t high, low;
} hash128;

typedef struct entry {
    hash128 hash;
    hash128 key;         /* of a request */
    sweep_known_run run; /* of a key */
    bool used;
} entry;

typedef struct table {
    entry *entries;
    size_t slots, count;
} table;

struct sweep_known {
    table keys, requests, machines;
};

kb_error *sweep_known_create(sweep_known **out)
{
    *out = kb_alloc_zeroed(1, sizeof **out);
    return *out ? NULL : kb_error_nomem();
}

void sweep_known_destroy(sweep_known *known)
{
    if (!known)
        return;
    free(known->keys.entries);
    free(known->requests.entries);
    free(known->machines.entries);
    free(known);
}

/* ---- Tables ------------------------------------------------------------------------------ */

static int digit_of(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool read_hash(const char *hex, hash128 *hash)
{
    uint64_t halves[2] = {0};
    for (int i = 0; i < HEX_DIGITS; i++) {
        int digit = digit_of(hex[i]);
        if (digit < 0) /* the end of the text is none either */
            return false;
        halves[i / 16] = halves[i / 16] << 4 | (uint64_t)digit;
    }
    *hash = (hash128){halves[0], halves[1]};
    return hex[HEX_DIGITS] == '\0';
}

/* Its entry, or the free one where it belongs. */
static entry *find(const table *t, hash128 hash)
{
    size_t at = hash.low & (t->slots - 1);
    while (t->entries[at].used &&
           (t->entries[at].hash.low != hash.low || t->entries[at].hash.high != hash.high))
        at = (at + 1) & (t->slots - 1);
    return &t->entries[at];
}

static const entry *look_up(const table *t, hash128 hash)
{
    const entry *found = t->slots > 0 ? find(t, hash) : NULL;
    return found && found->used ? found : NULL;
}

static bool grow(table *t)
{
    table larger = {.slots = t->slots > 0 ? 2 * t->slots : FIRST_SLOTS, .count = t->count};
    larger.entries = kb_alloc_zeroed(larger.slots, sizeof *larger.entries);
    if (!larger.entries)
        return false;
    for (size_t i = 0; i < t->slots; i++)
        if (t->entries[i].used)
            *find(&larger, t->entries[i].hash) = t->entries[i];
    free(t->entries);
    *t = larger;
    return true;
}

/* NULL if there is no memory. */
static entry *insert(table *t, hash128 hash)
{
    if (2 * (t->count + 1) > t->slots && !grow(t))
        return NULL;
    entry *e = find(t, hash);
    t->count += !e->used;
    e->used = true;
    e->hash = hash;
    return e;
}

/* ---- Runs -------------------------------------------------------------------------------- */

kb_error *sweep_known_add(sweep_known *known, const char *key, const sweep_known_run *run)
{
    hash128 hash;
    if (!key || !read_hash(key, &hash))
        return NULL;
    entry *e = insert(&known->keys, hash);
    if (!e)
        return kb_error_nomem();
    e->run = *run;
    return NULL;
}

kb_error *sweep_known_add_request(sweep_known *known, const char *request, const char *key)
{
    hash128 from, to;
    if (!read_hash(request, &from) || !read_hash(key, &to))
        return NULL;
    entry *e = insert(&known->requests, from);
    if (!e)
        return kb_error_nomem();
    e->key = to;
    return NULL;
}

const sweep_known_run *sweep_known_find(const sweep_known *known, const char *key)
{
    hash128 hash;
    const entry *e = read_hash(key, &hash) ? look_up(&known->keys, hash) : NULL;
    return e ? &e->run : NULL;
}

const sweep_known_run *sweep_known_find_request(const sweep_known *known, const char *request)
{
    hash128 hash;
    const entry *e = read_hash(request, &hash) ? look_up(&known->requests, hash) : NULL;
    e = e ? look_up(&known->keys, e->key) : NULL;
    return e ? &e->run : NULL;
}

static hash128 hash_of_machine(const char *hash, const char *name)
{
    sweep_digest digest;
    hash128 result = {0};
    sweep_digest_init(&digest);
    sweep_digest_text(&digest, hash);
    sweep_digest_text(&digest, name);
    (void)read_hash(sweep_digest_finish(&digest).hex, &result);
    return result;
}

kb_error *sweep_known_add_machine(sweep_known *known, const char *hash, const char *name)
{
    return insert(&known->machines, hash_of_machine(hash, name)) ? NULL : kb_error_nomem();
}

bool sweep_known_has_machine(const sweep_known *known, const char *hash, const char *name)
{
    return look_up(&known->machines, hash_of_machine(hash, name)) != NULL;
}

/* ---- Reading ----------------------------------------------------------------------------- */

static kb_error *read_run(void *self, const store_known *stored)
{
    sweep_known_run run = {.id = stored->id, .status = stored->status, .wall_s = stored->wall_s};
    return sweep_known_add(self, stored->key, &run);
}

static kb_error *read_request(void *self, const char *request, const char *key)
{
    return sweep_known_add_request(self, request, key);
}

kb_error *sweep_known_read(sweep_known *known, store *s)
{
    KB_TRY(store_each_known(s, read_run, known));
    return store_each_request(s, read_request, known);
}
