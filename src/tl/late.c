/*
 * late.c: a table of pages, each with the entries that touch it. A kernel that keeps storing what
 * it receives has thousands of entries, and most pages have one or two. Stores take effect in
 * order: of a store that is covered by a later one nothing has to be known any more.
 */
#include "late.h"

#include <stdlib.h>

#include "mem/mem.h"

enum { PAGE = 4096, MAX_PAGES = 64 };

void tl_late_fini(tl_late *late)
{
    kb_vec_fini(&late->entries);
    kb_vec_fini(&late->links);
    kb_vec_fini(&late->large);
    free(late->heads);
    *late = (tl_late){0};
}

static uint64_t page_number(const tl_bytes *at, uint64_t offset)
{
    return at->memory << 40 ^ offset / PAGE;
}

static uint32_t *head_of(const tl_late *late, uint64_t page)
{
    return &late->heads[(page * UINT64_C(0x9E3779B97F4A7C15) >> 32) & (late->size - 1)];
}

static bool grow(tl_late *late)
{
    size_t size = late->size > 0 ? 2 * late->size : 64;
    uint32_t *heads = kb_alloc_zeroed(size, sizeof *heads);
    if (!heads)
        return false;
    free(late->heads);
    late->heads = heads;
    late->size = size;
    for (size_t i = 0; i < late->links.count; i++) {
        tl_late_link *link = &late->links.items[i];
        uint32_t *head = head_of(late, link->page);
        link->next = *head;
        *head = (uint32_t)i + 1;
    }
    return true;
}

/* ---- Adding ---- */

/* Whether all that a store touches of the page is stored again. */
static bool covers(const tl_late_entry *newer, const tl_late_entry *older, uint64_t page_start)
{
    const tl_bytes *n = &newer->at, *o = &older->at;
    if (!newer->in_queue || !older->in_queue || n->rows > 1 || n->memory != o->memory)
        return false;
    uint64_t from = o->offset > page_start ? o->offset : page_start;
    uint64_t to = tl_bytes_end(o) < page_start + PAGE ? tl_bytes_end(o) : page_start + PAGE;
    return n->offset <= from && tl_bytes_end(n) >= to;
}

static bool link_page(tl_late *late, uint32_t number, uint64_t page_start)
{
    const tl_late_entry *entry = &late->entries.items[number];
    uint64_t page = page_number(&entry->at, page_start);
    for (uint32_t l = *head_of(late, page); l != 0; l = late->links.items[l - 1].next) {
        tl_late_link *link = &late->links.items[l - 1];
        if (link->page == page && covers(entry, &late->entries.items[link->entry], page_start)) {
            link->entry = number;
            return true;
        }
    }
    if (!kb_vec_push(&late->links, ((tl_late_link){.page = page, .entry = number})))
        return false;
    if (late->links.count > late->size)
        return grow(late);
    tl_late_link *link = &late->links.items[late->links.count - 1];
    uint32_t *head = head_of(late, page);
    link->next = *head;
    *head = (uint32_t)late->links.count;
    return true;
}

static uint64_t count_pages(const tl_bytes *at)
{
    return (tl_bytes_end(at) - 1) / PAGE - at->offset / PAGE + 1;
}

bool tl_late_add(tl_late *late, const tl_late_entry *entry)
{
    if ((late->size == 0 && !grow(late)) || !kb_vec_push(&late->entries, *entry))
        return false;
    uint32_t number = (uint32_t)late->entries.count - 1;
    uint64_t pages = count_pages(&entry->at);
    if (pages > MAX_PAGES)
        return kb_vec_push(&late->large, number);
    uint64_t first = entry->at.offset / PAGE;
    for (uint64_t i = 0; i < pages; i++)
        if (!link_page(late, number, (first + i) * PAGE))
            return false;
    return true;
}

/* ---- Finding ---- */

typedef struct search {
    tl_late *late;
    const tl_bytes *at;
    uint64_t end;
    bool writes;
    tl_late_fn *found;
    void *self;
    const tl_late_entry *last_store;
} search;

static mem_rect rect_of(const tl_bytes *b)
{
    return (mem_rect){
        .at.offset = b->offset, .stride = b->stride, .rows = b->rows, .bytes = b->bytes};
}

static void look_at(search *s, uint32_t number)
{
    tl_late_entry *entry = &s->late->entries.items[number];
    if (entry->at.offset >= s->end || tl_bytes_end(&entry->at) <= s->at->offset ||
        entry->seen == s->late->searches || !(entry->writes || s->writes) ||
        entry->at.memory != s->at->memory)
        return;
    entry->seen = s->late->searches;
    if (entry->in_queue && s->last_store && s->last_store > entry)
        return;
    mem_rect a = rect_of(&entry->at), b = rect_of(s->at);
    if (!mem_rects_overlap(&a, 1, &b, 1))
        return;
    if (entry->in_queue)
        s->last_store = entry;
    else
        s->found(s->self, entry);
}

void tl_late_find(tl_late *late, const tl_bytes *at, bool writes, tl_late_fn *found, void *self)
{
    search s = {.late = late, .at = at, .writes = writes, .found = found, .self = self};
    s.end = tl_bytes_end(at);
    uint64_t pages = count_pages(at), first = at->offset / PAGE;
    late->searches++;
    for (size_t i = 0; i < late->large.count; i++)
        look_at(&s, late->large.items[i]);
    for (size_t i = 0; i < late->entries.count && pages > MAX_PAGES; i++)
        look_at(&s, (uint32_t)i);
    for (uint64_t i = 0; i < pages && pages <= MAX_PAGES; i++) {
        uint64_t page = page_number(at, (first + i) * PAGE);
        for (uint32_t l = *head_of(late, page); l != 0; l = late->links.items[l - 1].next)
            if (late->links.items[l - 1].page == page)
                look_at(&s, late->links.items[l - 1].entry);
    }
    if (s.last_store)
        found(self, s.last_store);
}

void tl_late_clean(tl_late *late, const tl_order *order)
{
    for (size_t i = 0; i < late->entries.count; i++)
        if (!order->nodes.items[late->entries.items[i].after].acquired)
            return;
    late->entries.count = late->links.count = late->large.count = 0;
    for (size_t i = 0; i < late->size; i++)
        late->heads[i] = 0;
}
