/*
 * races_report.c: what is said of the races of a launch: the first one in full, and how many
 * accesses race besides.
 */
#include "races_private.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct summary {
    const tl_races *races;
    bool any, failed;
    tl_race first;
    KB_VEC(uint64_t) accesses; /* that race with an earlier one: their ids, some more than once */
} summary;

/* Whether one race goes on where another one ends. */
static bool continues(const tl_race *race, const tl_race *next)
{
    return race->first.id == next->first.id && race->second.id == next->second.id &&
           mem_same_memory(&race->at, &next->at) &&
           race->at.offset + race->bytes == next->at.offset;
}

static uint64_t number_of(const tl_races *races, kb_pe pe)
{
    return ((uint64_t)pe.sip * races->shape->cubes + pe.cube) * races->shape->pes + pe.pe;
}

/* Which of two is told of: the earlier one, and at the same time the one of the lower PE and byte.
 */
static bool is_earlier(const tl_races *races, const tl_race *a, const tl_race *b)
{
    const uint64_t x[] = {(uint64_t)a->second.time, number_of(races, a->second.pe),
                          number_of(races, a->first.pe), number_of(races, a->at.pe), a->at.offset};
    const uint64_t y[] = {(uint64_t)b->second.time, number_of(races, b->second.pe),
                          number_of(races, b->first.pe), number_of(races, b->at.pe), b->at.offset};
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        if (x[i] != y[i])
            return x[i] < y[i];
    return false;
}

static void on_race(void *self, const tl_race *race)
{
    summary *s = self;
    size_t count = s->accesses.count;
    if (count == 0 || s->accesses.items[count - 1] != race->second.id)
        s->failed = !kb_vec_push(&s->accesses, race->second.id) || s->failed;
    if (s->any && continues(&s->first, race))
        s->first.bytes += race->bytes;
    else if (!s->any || is_earlier(s->races, race, &s->first))
        s->first = *race;
    s->any = true;
}

static int by_id(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static uint64_t count_accesses(summary *s)
{
    uint64_t count = 0;
    qsort(s->accesses.items, s->accesses.count, sizeof *s->accesses.items, by_id);
    for (size_t i = 0; i < s->accesses.count; i++)
        count += i == 0 || s->accesses.items[i] != s->accesses.items[i - 1];
    return count;
}

/* ---- Text ---- */

static void print_side(const tl_race_side *side, kb_text *text)
{
    const char *verb = side->writes ? "writes" : "reads";
    if (side->kernel)
        kb_text_printf(text, "kernel '%s' on %s %s them (%s at %s:%d, ", side->kernel,
                       topo_pe_name(side->pe).text, verb, side->call,
                       tl_without_folders(side->file), side->line);
    else
        kb_text_printf(text, "the copy %s them (", verb);
    kb_text_printf(text, "issued at %" PRId64 ".%03" PRId64 " ns)", side->time / KB_NS,
                   side->time % KB_NS / KB_PS);
}

/* "launch 'scale' in stream 'one'" */
static void print_launch(const tl_race_side *side, kb_text *text)
{
    kb_text_printf(text, "%s '%s'", side->kernel ? "launch" : "copy of", side->launch);
    if (side->stream)
        kb_text_printf(text, " in stream '%s'", side->stream);
}

static void print_bytes(const tl_races *races, const tl_race *race, kb_text *text)
{
    mem_mmu *const *mmus = races->runner->has.mmus;
    mem_mapped owner;
    uint64_t va;
    kb_text_printf(text, "%" PRIu64 " bytes at ", race->bytes);
    mem_location_print(&race->at, text);
    if (!mem_mmu_find_owner(mmus[race->second.pe.sip], &race->at, &owner, &va))
        return;
    kb_text_puts(text, ", in ");
    mem_mapped_print(&owner, text);
    if (!owner.has_dtype)
        return;
    uint64_t size = kb_dtype_bytes(owner.dtype), from = va - owner.va;
    uint64_t first = from / size, last = (from + race->bytes - 1) / size;
    kb_text_printf(text, " from offset 0x%" PRIx64 " on, ", from);
    if (first == last)
        kb_text_printf(text, "element %" PRIu64, first);
    else
        kb_text_printf(text, "elements %" PRIu64 " to %" PRIu64, first, last);
}

static bool is_one_launch(const tl_race *race)
{
    return race->first.kernel && race->second.kernel && race->first.number == race->second.number;
}

/* The later of two launches may have said that it needs less. */
static void print_scope(const tl_race *race, kb_text *text)
{
    const tl_race_side *later =
        race->first.number > race->second.number ? &race->first : &race->second;
    if (!is_one_launch(race) && later->scope)
        kb_text_printf(text, ": the scope of launch '%s', %s, is too narrow", later->launch,
                       later->scope);
}

static void print_summary(summary *s, kb_text *text)
{
    uint64_t accesses = count_accesses(s);
    bool one = is_one_launch(&s->first);
    kb_text_puts(text, one ? "data race in " : "data race between ");
    print_launch(&s->first.first, text);
    if (!one) {
        kb_text_puts(text, " and ");
        print_launch(&s->first.second, text);
    }
    kb_text_puts(text, ": ");
    print_bytes(s->races, &s->first, text);
    kb_text_puts(text, ": ");
    print_side(&s->first.first, text);
    kb_text_puts(text, ", ");
    print_side(&s->first.second, text);
    kb_text_puts(text, one ? ", and no chain of messages orders the two"
                           : ", and neither a stream, an event nor a chain of messages orders the "
                             "two");
    print_scope(&s->first, text);
    if (accesses > 1)
        kb_text_printf(text, "; %" PRIu64 " more accesses%s race", accesses - 1,
                       one ? " of this launch" : "");
}

kb_error *tl_races_report(const tl_races *races, kb_text *text, bool *cut_off)
{
    summary s = {.races = races};
    kb_error *err = tl_races_find(races, on_race, &s, cut_off);
    if (!err && s.any && !s.failed)
        print_summary(&s, text);
    kb_vec_fini(&s.accesses);
    if (!err && (s.failed || text->failed || races->order->failed))
        err = kb_error_nomem();
    return err;
}
