/*
 * pairing.c: which direction of a PE is joined to which direction of its peer.
 *
 * Directions become ends, which are paired in three rounds: with the peer's opposite; with what is
 * left between the same two PEs, in the order of the edges; and one-way with the peer's direction
 * of the same name, which is made if there is none. What an end sends has one end to arrive at, and
 * what an end receives comes from one end. Everything is found by sorting, so plans of a million
 * edges are no problem.
 *
 * Whether a machine has the PEs is not known here.
 */
#include "ipcq_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* An end while the plan is made. */
typedef struct draft {
    ipcq_plan_end end;
    kb_pe peer;
    size_t order;  /* of its edge */
    size_t number; /* among the drafts */
    bool receives; /* was made to receive what that edge carries, and sends nothing */
} draft;

typedef struct maker {
    draft *drafts; /* first those of the edges, then those that were made to receive */
    size_t edges, count;
    draft **by_name; /* those of the edges */
    draft **some;    /* for a round of its own */
} maker;

int ipcq_compare_pes(kb_pe a, kb_pe b)
{
    if (a.sip != b.sip)
        return a.sip < b.sip ? -1 : 1;
    if (a.cube != b.cube)
        return a.cube < b.cube ? -1 : 1;
    return (a.pe > b.pe) - (a.pe < b.pe);
}

/* ---- Orders ------------------------------------------------------------------------------ */

static int compare_sizes(size_t a, size_t b)
{
    return (a > b) - (a < b);
}

/* The order of the plan: by PE; ends that only receive come last. */
static int compare_drafts(const void *a, const void *b)
{
    const draft *x = a, *y = b;
    int by_pe = ipcq_compare_pes(x->end.pe, y->end.pe);
    if (by_pe != 0)
        return by_pe;
    if (x->receives != y->receives)
        return x->receives ? 1 : -1;
    return compare_sizes(x->order, y->order);
}

static int compare_names(kb_pe pe, const char *direction, const draft *with)
{
    int by_pe = ipcq_compare_pes(pe, with->end.pe);
    return by_pe != 0 ? by_pe : strcmp(direction, with->end.direction);
}

static int compare_by_name(const void *a, const void *b)
{
    const draft *const *x = a, *const *y = b;
    int by_name = compare_names((*x)->end.pe, (*x)->end.direction, *y);
    return by_name != 0 ? by_name : compare_sizes((*x)->order, (*y)->order);
}

/* The two PEs that an end is between, in their order. */
typedef struct two_pes {
    kb_pe low, high;
} two_pes;

static two_pes pes_of(const draft *d)
{
    bool in_order = ipcq_compare_pes(d->end.pe, d->peer) < 0;
    return in_order ? (two_pes){d->end.pe, d->peer} : (two_pes){d->peer, d->end.pe};
}

static int compare_twos(two_pes a, two_pes b)
{
    int result = ipcq_compare_pes(a.low, b.low);
    return result != 0 ? result : ipcq_compare_pes(a.high, b.high);
}

/* Ends between the same two PEs are together: first those of the PE that comes first. */
static int compare_by_pair(const void *a, const void *b)
{
    const draft *const *x = a, *const *y = b;
    int by_pair = compare_twos(pes_of(*x), pes_of(*y));
    return by_pair != 0 ? by_pair : compare_drafts(*x, *y);
}

/* ---- Edges ------------------------------------------------------------------------------- */

static kb_error *check_settings(const ipcq_settings *settings)
{
    if (settings->n_slots == 0)
        return NULL;
    uint64_t bytes;
    if (settings->buffer != KB_TCM && settings->buffer != KB_HBM && settings->buffer != KB_SRAM)
        return kb_error_new(KB_ERR_INPUT, "invalid memory of receive rings: expected TCM, HBM "
                                          "or SRAM");
    if (settings->slot_bytes == 0)
        return kb_error_new(KB_ERR_INPUT, "invalid slot size: expected at least 1 byte");
    if (settings->credit_bytes == 0)
        return kb_error_new(KB_ERR_INPUT, "invalid credit size: expected at least 1 byte");
    if (__builtin_mul_overflow(settings->slot_bytes, settings->n_slots, &bytes) ||
        bytes > UINT64_MAX / 2)
        return kb_error_new(KB_ERR_INPUT,
                            "%" PRIu32 " slots of %" PRIu64 " bytes exceed the maximum size of "
                            "a receive ring",
                            settings->n_slots, settings->slot_bytes);
    return NULL;
}

static kb_error *check_edge(const ipcq_edge *edge)
{
    if (!edge->direction || edge->direction[0] == '\0')
        return kb_error_new(KB_ERR_INPUT, "missing direction name: %s to %s has none",
                            topo_pe_name(edge->from).text, topo_pe_name(edge->to).text);
    if (ipcq_compare_pes(edge->from, edge->to) == 0)
        return kb_error_new(KB_ERR_INPUT, "direction %s of %s is connected to itself",
                            edge->direction, topo_pe_name(edge->from).text);
    return NULL;
}

static kb_error *add_edges(maker *m, const ipcq_edge *edges, kb_arena *names)
{
    for (size_t i = 0; i < m->edges; i++) {
        KB_TRY(check_edge(&edges[i]));
        const char *name = kb_arena_strdup(names, edges[i].direction);
        if (!name)
            return kb_error_nomem();
        m->drafts[i] = (draft){
            .end = {.pe = edges[i].from, .direction = name, .to = IPCQ_NONE, .from = IPCQ_NONE},
            .peer = edges[i].to,
            .order = i,
            .number = i,
        };
    }
    m->count = m->edges;
    return NULL;
}

static void sort(draft **drafts, size_t count, int (*compare)(const void *, const void *))
{
    qsort(drafts, count, sizeof *drafts, compare);
}

static bool have_same_name(const draft *a, const draft *b)
{
    return compare_names(a->end.pe, a->end.direction, b) == 0;
}

static kb_error *sort_names(maker *m)
{
    for (size_t i = 0; i < m->edges; i++)
        m->by_name[i] = &m->drafts[i];
    sort(m->by_name, m->edges, compare_by_name);
    for (size_t i = 1; i < m->edges; i++) {
        const draft *a = m->by_name[i - 1], *b = m->by_name[i];
        if (have_same_name(a, b))
            return kb_error_new(KB_ERR_INPUT, "%s has direction %s twice: to %s and to %s",
                                topo_pe_name(a->end.pe).text, a->end.direction,
                                topo_pe_name(a->peer).text, topo_pe_name(b->peer).text);
    }
    return NULL;
}

/* ---- Pairing ----------------------------------------------------------------------------- */

/* NULL if no edge begins at the PE under that name. */
static draft *find_name(const maker *m, kb_pe pe, const char *direction)
{
    size_t low = 0, high = m->edges;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int result = compare_names(pe, direction, m->by_name[middle]);
        if (result == 0)
            return m->by_name[middle];
        if (result < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

/* NULL if it has none. */
static const char *opposite_of(const char *direction)
{
    static const char *const pairs[][2] = {
        {"E", "W"}, {"N", "S"}, {"global_E", "global_W"}, {"global_N", "global_S"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        for (int side = 0; side < 2; side++)
            if (strcmp(direction, pairs[i][side]) == 0)
                return pairs[i][1 - side];
    return NULL;
}

/* What `from` sends arrives at `to`. */
static void join(draft *from, draft *to)
{
    from->end.to = to->number;
    to->end.from = from->number;
}

static void pair_opposites(maker *m)
{
    for (size_t i = 0; i < m->edges; i++) {
        draft *d = &m->drafts[i];
        const char *opposite = opposite_of(d->end.direction);
        draft *other = opposite ? find_name(m, d->peer, opposite) : NULL;
        if (other && ipcq_compare_pes(other->peer, d->end.pe) == 0)
            join(d, other); /* and the other one with this, when its turn comes */
    }
}

/* Ends that lead nowhere yet. */
static size_t gather_rest(maker *m)
{
    size_t count = 0;
    for (size_t i = 0; i < m->edges; i++)
        if (m->drafts[i].end.to == IPCQ_NONE)
            m->some[count++] = &m->drafts[i];
    return count;
}

/* Of the ends between two PEs, pairs the first with the first, and so on. */
static void pair_group(draft *const *group, size_t count)
{
    size_t split = 1;
    while (split < count && ipcq_compare_pes(group[split]->end.pe, group[0]->end.pe) == 0)
        split++;
    for (size_t i = 0; i < split && split + i < count; i++) {
        join(group[i], group[split + i]);
        join(group[split + i], group[i]);
    }
}

static void pair_the_rest(maker *m)
{
    size_t count = gather_rest(m);
    sort(m->some, count, compare_by_pair);
    for (size_t first = 0, next; first < count; first = next) {
        two_pes between = pes_of(m->some[first]);
        for (next = first + 1; next < count; next++)
            if (compare_twos(between, pes_of(m->some[next])) != 0)
                break;
        pair_group(&m->some[first], next - first);
    }
}

static kb_error *refuse(const maker *m, const draft *sender, size_t has)
{
    const draft *other = &m->drafts[has];
    const char *direction = sender->end.direction;
    return kb_error_new(KB_ERR_INPUT,
                        "direction %s of %s leads to %s, which has no direction back: its "
                        "messages would be received by %s, which receives from direction %s of "
                        "%s",
                        direction, topo_pe_name(sender->end.pe).text,
                        topo_pe_name(sender->peer).text, direction, other->end.direction,
                        topo_pe_name(other->end.pe).text);
}

static draft *make_receiver(maker *m, const draft *sender)
{
    draft *made = &m->drafts[m->count];
    *made = (draft){
        .end = {.pe = sender->peer,
                .direction = sender->end.direction,
                .to = IPCQ_NONE,
                .from = IPCQ_NONE},
        .peer = sender->end.pe,
        .order = sender->order,
        .number = m->count++,
        .receives = true,
    };
    return made;
}

static kb_error *pair_one_way(maker *m)
{
    size_t count = gather_rest(m);
    for (size_t i = 0; i < count; i++) {
        draft *d = m->some[i];
        draft *there = find_name(m, d->peer, d->end.direction);
        if (there && there->end.from != IPCQ_NONE)
            return refuse(m, d, there->end.from);
        join(d, there ? there : make_receiver(m, d));
    }
    /* Some of those that were made may have the same name. */
    size_t made = m->count - m->edges;
    for (size_t i = 0; i < made; i++)
        m->some[i] = &m->drafts[m->edges + i];
    sort(m->some, made, compare_by_name);
    for (size_t i = 1; i < made; i++) {
        const draft *a = m->some[i - 1], *b = m->some[i];
        if (have_same_name(a, b))
            return refuse(m, &m->drafts[b->end.from], a->end.from);
    }
    return NULL;
}

/* ---- Plans ------------------------------------------------------------------------------- */

/* Puts the ends into their order, which gives them their numbers. */
static kb_error *take_ends(maker *m, ipcq_plan *plan)
{
    size_t *numbers = kb_alloc_array(m->count, sizeof *numbers);
    if (!numbers || !kb_vec_reserve(&plan->ends, m->count)) {
        free(numbers);
        return kb_error_nomem();
    }
    qsort(m->drafts, m->count, sizeof *m->drafts, compare_drafts);
    for (size_t i = 0; i < m->count; i++)
        numbers[m->drafts[i].number] = i;
    for (size_t i = 0; i < m->count; i++) {
        ipcq_plan_end end = m->drafts[i].end;
        end.to = end.to == IPCQ_NONE ? IPCQ_NONE : numbers[end.to];
        end.from = end.from == IPCQ_NONE ? IPCQ_NONE : numbers[end.from];
        plan->ends.items[plan->ends.count++] = end;
    }
    free(numbers);
    return NULL;
}

static kb_error *make_plan(maker *m, const ipcq_edge *edges, ipcq_plan *plan)
{
    size_t most; /* one more for each that is received from one way */
    if (!kb_size_mul(m->edges, 2, &most))
        return kb_error_nomem();
    m->drafts = kb_alloc_array(most, sizeof *m->drafts);
    m->by_name = kb_alloc_array(m->edges, sizeof *m->by_name);
    m->some = kb_alloc_array(m->edges, sizeof *m->some);
    if (!m->drafts || !m->by_name || !m->some)
        return kb_error_nomem();
    KB_TRY(add_edges(m, edges, &plan->names));
    KB_TRY(sort_names(m));
    pair_opposites(m);
    pair_the_rest(m);
    KB_TRY(pair_one_way(m));
    return take_ends(m, plan);
}

kb_error *ipcq_plan_init(ipcq_plan *plan, const ipcq_edge *edges, size_t count,
                         const ipcq_settings *settings)
{
    *plan = (ipcq_plan){.settings = *settings};
    kb_arena_init(&plan->names);
    KB_TRY(check_settings(settings));
    maker m = {.edges = count};
    kb_error *err = make_plan(&m, edges, plan);
    free(m.drafts);
    free(m.by_name);
    free(m.some);
    if (err)
        ipcq_plan_fini(plan);
    return err;
}

void ipcq_plan_fini(ipcq_plan *plan)
{
    kb_vec_fini(&plan->ends);
    kb_arena_fini(&plan->names);
}
