/*
 * races_spans.c: which bytes are touched by several PEs, one of which writes.
 *
 * Mostly none are, so this looks coarsely first, and closer only at what is left: at what each PE
 * touches of a memory from its first byte to its last; then at each access in the same way; then at
 * the rows of accesses, which is exact. Each time spans are sorted, and one pass finds whether two
 * of different PEs overlap, and where.
 */
#include "races_private.h"

#include <stdlib.h>

/* ---- Conflicts between spans ---- */

/* Bytes that a PE touches. */
typedef struct extent {
    uint64_t start, end;
    uint32_t run;
    bool writes;
} extent;

typedef KB_VEC(extent) extents;

static int by_start(const void *a, const void *b)
{
    const extent *x = a, *y = b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    if (x->end != y->end)
        return x->end < y->end ? -1 : 1;
    return x->run != y->run ? (x->run < y->run ? -1 : 1) : x->writes - y->writes;
}

/* The furthest ends so far, of two different PEs. */
typedef struct reach {
    uint64_t end[2];
    uint32_t run[2];
} reach;

static uint64_t reach_of_others(const reach *r, uint32_t run)
{
    return r->end[0] > 0 && r->run[0] == run ? r->end[1] : r->end[0];
}

static void extend_reach(reach *r, const extent *e)
{
    if (r->end[0] == 0 || r->run[0] == e->run) {
        if (e->end > r->end[0]) {
            r->end[0] = e->end;
            r->run[0] = e->run;
        }
    } else if (e->end > r->end[0]) {
        *r = (reach){{e->end, r->end[0]}, {e->run, r->run[0]}};
    } else if (e->end > r->end[1]) {
        r->end[1] = e->end;
        r->run[1] = e->run;
    }
}

/* Sorts them. The window has all bytes that two PEs touch, one of which writes; false: none. */
static bool find_conflicts(extents *list, race_window *window)
{
    reach all = {0}, writes = {0};
    bool any = false;
    if (list->count > 0)
        qsort(list->items, list->count, sizeof *list->items, by_start);
    for (size_t i = 0; i < list->count; i++) {
        const extent *e = &list->items[i];
        uint64_t end = reach_of_others(e->writes ? &all : &writes, e->run);
        if (end > e->start) {
            end = end < e->end ? end : e->end;
            window->start = any && window->start < e->start ? window->start : e->start;
            window->end = any && window->end > end ? window->end : end;
            any = true;
        }
        extend_reach(&all, e);
        if (e->writes)
            extend_reach(&writes, e);
    }
    return any;
}

/* ---- What each PE touches of a memory ---- */

/* From the first byte to the last one; an end of 0 is nothing. */
typedef struct hull {
    uint64_t memory;
    uint32_t run;
    uint64_t start[2], end[2]; /* of reads, of writes */
} hull;

/* Found by (memory, run): a table of numbers + 1, of which at least half are 0. */
typedef struct hulls {
    KB_VEC(hull) list;
    uint32_t *table;
    size_t size; /* a power of two */
} hulls;

static size_t slot_of(const hulls *h, uint64_t memory, uint32_t run)
{
    uint64_t key = (memory << 24 ^ run) * UINT64_C(0x9E3779B97F4A7C15);
    size_t slot = (size_t)(key >> 20) & (h->size - 1);
    for (; h->table[slot] != 0; slot = (slot + 1) & (h->size - 1)) {
        const hull *is = &h->list.items[h->table[slot] - 1];
        if (is->memory == memory && is->run == run)
            break;
    }
    return slot;
}

static bool grow_table(hulls *h)
{
    size_t size = h->size > 0 ? 2 * h->size : 64;
    uint32_t *table = kb_alloc_zeroed(size, sizeof *table);
    if (!table)
        return false;
    free(h->table);
    h->table = table;
    h->size = size;
    for (size_t i = 0; i < h->list.count; i++)
        h->table[slot_of(h, h->list.items[i].memory, h->list.items[i].run)] = (uint32_t)i + 1;
    return true;
}

static hull *hull_of(hulls *h, uint64_t memory, uint32_t run)
{
    if (2 * (h->list.count + 1) > h->size && !grow_table(h))
        return NULL;
    size_t slot = slot_of(h, memory, run);
    if (h->table[slot] == 0) {
        if (!kb_vec_push(&h->list, ((hull){.memory = memory, .run = run})))
            return NULL;
        h->table[slot] = (uint32_t)h->list.count;
    }
    return &h->list.items[h->table[slot] - 1];
}

static bool find_hulls(const tl_races *races, hulls *h)
{
    for (size_t i = 0; i < races->accesses.count; i++) {
        const race_access *access = &races->accesses.items[i];
        hull *is = hull_of(h, access->at.memory, access->run);
        if (!is)
            return false;
        uint64_t *start = &is->start[access->writes], *end = &is->end[access->writes];
        uint64_t access_end = tl_bytes_end(&access->at);
        *start = *end == 0 || access->at.offset < *start ? access->at.offset : *start;
        *end = access_end > *end ? access_end : *end;
    }
    return true;
}

static int by_memory(const void *a, const void *b)
{
    const hull *x = a, *y = b;
    if (x->memory != y->memory)
        return x->memory < y->memory ? -1 : 1;
    return x->run < y->run ? -1 : x->run > y->run;
}

/* ---- Accesses by memory ---- */

static int by_place(const void *a, const void *b)
{
    const struct race_indexed *x = a, *y = b;
    if (x->memory != y->memory)
        return x->memory < y->memory ? -1 : 1;
    return x->access < y->access ? -1 : x->access > y->access;
}

kb_error *race_index_make(const tl_races *races, race_index *index)
{
    *index = (race_index){.races = races, .count = races->accesses.count};
    index->items = kb_alloc_array(index->count, sizeof *index->items);
    if (!index->items)
        return kb_error_nomem();
    for (size_t i = 0; i < index->count; i++) {
        index->items[i].memory = races->accesses.items[i].at.memory;
        index->items[i].access = (uint32_t)i;
    }
    if (index->count > 0)
        qsort(index->items, index->count, sizeof *index->items, by_place);
    return NULL;
}

void race_index_fini(race_index *index)
{
    free(index->items);
}

/* The first access to the memory, or to one behind it. */
static size_t first_of_memory(const race_index *index, uint64_t memory)
{
    size_t low = 0, high = index->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (index->items[middle].memory < memory)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool is_of_memory(const race_index *index, size_t at, uint64_t memory)
{
    return at < index->count && index->items[at].memory == memory;
}

/* ---- Closer ---- */

static uint64_t rows_in(const race_access *access, const race_window *window, uint64_t *first)
{
    uint64_t end = tl_bytes_end(&access->at), stride = access->at.stride;
    *first = 0;
    if (access->at.memory != window->memory || access->at.offset >= window->end ||
        end <= window->start)
        return 0;
    if (access->at.rows == 1)
        return 1;
    if (window->start >= access->at.offset + access->at.bytes)
        *first = (window->start - access->at.offset - access->at.bytes) / stride + 1;
    uint64_t behind = access->at.rows; /* the first row that begins behind the window */
    if (access->at.offset + (access->at.rows - 1) * stride >= window->end)
        behind = (window->end - access->at.offset - 1) / stride + 1;
    return behind > *first ? behind - *first : 0;
}

kb_error *race_list_spans(const race_index *index, const race_window *window, race_spans *spans)
{
    size_t at = first_of_memory(index, window->memory);
    for (; is_of_memory(index, at, window->memory); at++) {
        uint32_t i = index->items[at].access;
        const race_access *access = &index->races->accesses.items[i];
        uint64_t first, rows = rows_in(access, window, &first);
        for (uint64_t row = first; row < first + rows; row++) {
            race_span span = {.start = access->at.offset + row * access->at.stride, .access = i};
            span.end = span.start + access->at.bytes;
            span.start = span.start > window->start ? span.start : window->start;
            span.end = span.end < window->end ? span.end : window->end;
            if (!kb_vec_push(spans, span))
                return kb_error_nomem();
        }
    }
    return NULL;
}

/* The accesses of the window, each from its first byte to its last. */
static kb_error *narrow(const race_index *index, race_window *window, bool *any)
{
    extents list = {0};
    size_t at = first_of_memory(index, window->memory);
    for (; is_of_memory(index, at, window->memory); at++) {
        const race_access *access = &index->races->accesses.items[index->items[at].access];
        uint64_t first;
        if (rows_in(access, window, &first) == 0)
            continue;
        extent e = {access->at.offset, tl_bytes_end(&access->at), access->run, access->writes};
        if (!kb_vec_push(&list, e)) {
            kb_vec_fini(&list);
            return kb_error_nomem();
        }
    }
    race_window found = *window;
    *any = find_conflicts(&list, &found);
    window->start = found.start > window->start ? found.start : window->start;
    window->end = found.end < window->end ? found.end : window->end;
    kb_vec_fini(&list);
    return NULL;
}

/* Row by row: exact. */
static kb_error *narrow_rows(const race_index *index, race_window *window, bool *any)
{
    race_spans spans = {0};
    extents list = {0};
    kb_error *err = race_list_spans(index, window, &spans);
    if (!err && !kb_vec_reserve(&list, spans.count))
        err = kb_error_nomem();
    for (size_t i = 0; i < spans.count && !err; i++) {
        const race_access *access = &index->races->accesses.items[spans.items[i].access];
        list.items[list.count++] =
            (extent){spans.items[i].start, spans.items[i].end, access->run, access->writes};
    }
    *any = !err && find_conflicts(&list, window);
    kb_vec_fini(&list);
    kb_vec_fini(&spans);
    return err;
}

static uint64_t count_rows(const race_index *index, const race_window *window)
{
    uint64_t count = 0, first;
    size_t at = first_of_memory(index, window->memory);
    for (; is_of_memory(index, at, window->memory); at++)
        count += rows_in(&index->races->accesses.items[index->items[at].access], window, &first);
    return count;
}

/* Adds what is contested of the window; cuts it until there are not too many rows to sort. */
static kb_error *add_windows(const race_index *index, race_window window, race_windows *windows)
{
    const race_limits *limits = &index->races->limits;
    if (window.end - window.start >= 2 * limits->window_bytes &&
        count_rows(index, &window) > limits->spans) {
        uint64_t middle = window.start + (window.end - window.start) / 2;
        KB_TRY(add_windows(index, (race_window){window.memory, window.start, middle}, windows));
        return add_windows(index, (race_window){window.memory, middle, window.end}, windows);
    }
    bool any;
    KB_TRY(narrow_rows(index, &window, &any));
    if (any && !kb_vec_push(windows, window))
        return kb_error_nomem();
    return NULL;
}

/* The PEs that touch a memory: `first` and those behind it in the list. */
static kb_error *look_at_memory(const race_index *index, const hull *first, size_t count,
                                extents *list, race_windows *windows)
{
    list->count = 0;
    for (size_t i = 0; i < count; i++) {
        for (int writes = 0; writes < 2; writes++) {
            extent e = {first[i].start[writes], first[i].end[writes], first[i].run, writes};
            if (e.end > 0 && !kb_vec_push(list, e))
                return kb_error_nomem();
        }
    }
    race_window window = {.memory = first->memory};
    bool any = find_conflicts(list, &window);
    if (any)
        KB_TRY(narrow(index, &window, &any));
    return any ? add_windows(index, window, windows) : NULL;
}

kb_error *race_find_windows(const race_index *index, race_windows *windows)
{
    hulls h = {0};
    extents list = {0};
    kb_error *err = find_hulls(index->races, &h) ? NULL : kb_error_nomem();
    if (!err && h.list.count > 0)
        qsort(h.list.items, h.list.count, sizeof *h.list.items, by_memory);
    size_t end;
    for (size_t first = 0; first < h.list.count && !err; first = end) {
        const hull *items = h.list.items;
        for (end = first + 1; end < h.list.count && items[end].memory == items[first].memory;)
            end++;
        if (end - first > 1) /* more than one PE */
            err = look_at_memory(index, &items[first], end - first, &list, windows);
    }
    kb_vec_fini(&list);
    kb_vec_fini(&h.list);
    free(h.table);
    return err;
}
