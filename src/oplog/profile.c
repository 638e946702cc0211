/*
 * profile.c: see profile.h. Keys are found by the addresses of their texts, which are constants; a
 * text that exists twice is compared once for each address. A key may be asked for ahead of time;
 * the row is made when something happens, so rows are in the order of that. A PE's items are looked
 * through: there are as many as its units and queues hold.
 */
#include "profile.h"

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "oplog.h"

enum { CACHE_BITS = 9, CACHE = 1 << CACHE_BITS };

/* Something that is under way on a PE. */
typedef struct item {
    uint64_t bytes; /* at least 1 */
    uint32_t row;
    uint32_t cause;
} item;

typedef struct pe_items {
    KB_VEC(item) items;
    uint32_t line; /* the row of the line where the pe_cpu is */
} pe_items;

/* What a row is known by. */
typedef struct row_key {
    const char *file, *name;
    kb_unit unit;
    int line;
    uint32_t row; /* its index + 1; 0: none yet */
} row_key;

/* Where a key was found. */
typedef struct found_key {
    const char *file, *name;
    kb_unit unit;
    int line;
    uint32_t key;
    bool used;
} found_key;

struct kb_profile {
    KB_VEC(row_key) keys;        /* the first is of what belongs to no line */
    KB_VEC(kb_profile_row) rows; /* has room for all keys */
    pe_items *pes;
    uint64_t pe_count;
    found_key cache[CACHE];
};

kb_profile *kb_profile_create(uint64_t pes)
{
    kb_profile *profile = kb_alloc_zeroed(1, sizeof *profile);
    if (!profile)
        return NULL;
    profile->pe_count = pes;
    profile->pes = kb_alloc_zeroed(pes, sizeof *profile->pes);
    kb_profile_row other = {.unit = KB_UNIT_CPU, .name = "other"};
    row_key other_key = {.unit = KB_UNIT_CPU, .name = "other", .row = 1};
    if (!profile->pes || !kb_vec_push(&profile->rows, other) ||
        !kb_vec_push(&profile->keys, other_key)) {
        kb_profile_destroy(profile);
        return NULL;
    }
    return profile;
}

void kb_profile_destroy(kb_profile *profile)
{
    if (!profile)
        return;
    for (uint64_t pe = 0; profile->pes && pe < profile->pe_count; pe++)
        kb_vec_fini(&profile->pes[pe].items);
    kb_vec_fini(&profile->keys);
    kb_vec_fini(&profile->rows);
    free(profile->pes);
    free(profile);
}

const kb_profile_row *kb_profile_rows(const kb_profile *profile, size_t *count)
{
    *count = profile->rows.count;
    return profile->rows.items;
}

/* ---- Rows -------------------------------------------------------------------------------- */

static bool is_same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool is_key_of(const row_key *key, const kb_op *op)
{
    return key->line == op->line && key->unit == op->unit && is_same_text(key->name, op->name) &&
           is_same_text(key->file, op->file);
}

/* False for want of host memory. */
static bool search_key(kb_profile *profile, const kb_op *op, uint32_t *key)
{
    size_t count = profile->keys.count;
    for (*key = 0; *key < count; ++*key)
        if (is_key_of(&profile->keys.items[*key], op))
            return true;
    row_key fresh = {.file = op->file, .line = op->line, .unit = op->unit, .name = op->name};
    return kb_vec_reserve(&profile->rows, count + 1 - profile->rows.count) &&
           kb_vec_push(&profile->keys, fresh);
}

static found_key *cache_slot(kb_profile *profile, const kb_op *op)
{
    uint64_t mixed = ((uintptr_t)op->file ^ (uintptr_t)op->name * 31) + (uint64_t)op->line * 131 +
                     (uint64_t)op->unit;
    return &profile->cache[mixed * UINT64_C(0x9e3779b97f4a7c15) >> (64 - CACHE_BITS)];
}

bool kb_profile_find_key(kb_profile *profile, const kb_op *op, uint32_t *key)
{
    *key = 0;
    if (!op)
        return true;
    found_key *found = cache_slot(profile, op);
    if (!found->used || found->file != op->file || found->name != op->name ||
        found->line != op->line || found->unit != op->unit) {
        uint32_t index;
        if (!search_key(profile, op, &index))
            return false;
        *found = (found_key){op->file, op->name, op->unit, op->line, index, true};
    }
    *key = found->key;
    return true;
}

/* The index of the key's row, which is made if there is none. */
static uint32_t row_of(kb_profile *profile, uint32_t key)
{
    row_key *of = &profile->keys.items[key];
    if (of->row == 0) {
        KB_ASSERT(profile->rows.count < profile->rows.capacity);
        profile->rows.items[profile->rows.count++] = (kb_profile_row){
            .file = of->file, .line = of->line, .unit = of->unit, .name = of->name};
        of->row = (uint32_t)profile->rows.count;
    }
    return of->row - 1;
}

/* ---- Items ------------------------------------------------------------------------------- */

bool kb_profile_begin(kb_profile *profile, uint64_t pe, kb_cause cause, uint64_t bytes,
                      uint32_t key)
{
    item fresh = {.cause = (uint32_t)cause, .bytes = bytes > 0 ? bytes : 1};
    fresh.row = row_of(profile, key);
    return kb_vec_push(&profile->pes[pe].items, fresh);
}

void kb_profile_end(kb_profile *profile, uint64_t pe, kb_cause cause, uint64_t bytes, uint32_t key)
{
    pe_items *at = &profile->pes[pe];
    uint32_t row = row_of(profile, key);
    bytes = bytes > 0 ? bytes : 1;
    for (size_t i = at->items.count; i-- > 0;) {
        const item *it = &at->items.items[i];
        if (it->row != row || it->cause != (uint32_t)cause || it->bytes != bytes)
            continue;
        at->items.items[i] = at->items.items[--at->items.count];
        return;
    }
}

void kb_profile_set_line(kb_profile *profile, uint64_t pe, uint32_t key)
{
    profile->pes[pe].line = row_of(profile, key);
}

static void add_time(kb_profile *profile, uint32_t row, kb_cause cause, kb_time time)
{
    kb_profile_row *to = &profile->rows.items[row];
    to->causes[cause] += time;
    to->time += time;
}

static uint64_t sum_weights(const pe_items *at, kb_cause cause)
{
    uint64_t total = 0;
    for (size_t i = 0; i < at->items.count; i++)
        total += at->items.items[i].cause == (uint32_t)cause ? at->items.items[i].bytes : 0;
    return total;
}

void kb_profile_charge(kb_profile *profile, uint64_t pe, kb_cause cause, kb_time time)
{
    const pe_items *at = &profile->pes[pe];
    uint64_t total = sum_weights(at, cause), before = 0;
    if (total == 0) {
        add_time(profile, at->line, cause, time);
        return;
    }
    kb_time given = 0;
    for (size_t i = 0; i < at->items.count; i++) {
        const item *it = &at->items.items[i];
        if (it->cause != (uint32_t)cause)
            continue;
        before += it->bytes;
        kb_time up_to = kb_part_of_time(time, before, total);
        add_time(profile, it->row, cause, up_to - given);
        given = up_to;
    }
}

bool kb_profile_counts(const kb_op *op)
{
    return op->unit != KB_UNIT_HOST && op->unit != KB_UNIT_SCHEDULER && !op->unfinished;
}

void kb_profile_count(kb_profile *profile, uint32_t key, uint64_t bytes, uint64_t flops)
{
    kb_profile_row *to = &profile->rows.items[row_of(profile, key)];
    to->count++;
    to->bytes += bytes;
    to->flops += flops;
}
