/*
 * set.c: the ends of a plan with their rings, and what is installed at each PE.
 *
 * Rings of all sets are disjoint. A PE's lists of what is installed have each base once, in order,
 * so a location leads to the one end that it belongs to. Rings in SRAM are listed with their cube.
 *
 * The state of queues takes no simulated memory beside the rings.
 */
#include "ipcq_private.h"

#include <inttypes.h>
#include <string.h>

enum { RING_ALIGN = 64 };

/* ---- Finding by address ------------------------------------------------------------------ */

/* By memory, and by offset in each. */
static int compare_locations(const kb_location *a, const kb_location *b)
{
    if (a->memory != b->memory)
        return a->memory < b->memory ? -1 : 1;
    int order = ipcq_compare_pes(a->pe, b->pe);
    return order != 0 ? order : (a->offset > b->offset) - (a->offset < b->offset);
}

/* How many of the list begin at the location or before it. */
static size_t count_up_to(const user_list *list, const kb_location *at)
{
    size_t low = 0, high = list->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (compare_locations(&list->items[middle].base, at) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The rings of the PE or the cube that the location is of; NULL if the machine has no such memory.
 */
static const user_list *rings_at(const ipcq *queues, const kb_location *at)
{
    const topo_shape *shape = queues->shape;
    kb_pe pe = at->pe;
    if (at->memory == KB_VIRTUAL || !topo_has_pe(shape, pe))
        return NULL;
    return at->memory == KB_SRAM ? &queues->cubes[topo_cube_index(queues->shape, pe)]
                                 : &queues->pes[topo_pe_index(queues->shape, pe)].rings;
}

ipcq_end *ipcq_find_ring(const ipcq *queues, const kb_location *at)
{
    const user_list *rings = rings_at(queues, at);
    size_t before = rings ? count_up_to(rings, at) : 0;
    if (before == 0)
        return NULL;
    const ring_user *nearest = &rings->items[before - 1];
    bool is_inside = ipcq_ring_contains(&nearest->base, nearest->end->set->ring_bytes, at);
    return is_inside ? nearest->end : NULL;
}

ipcq_end *ipcq_find_sender(const ipcq *queues, uint64_t pe, const kb_location *base)
{
    const user_list *senders = &queues->pes[pe].senders;
    size_t before = count_up_to(senders, base);
    if (before == 0 || compare_locations(&senders->items[before - 1].base, base) != 0)
        return NULL;
    return senders->items[before - 1].end;
}

/* ---- Making ends ------------------------------------------------------------------------- */

static kb_error *check_pes(const ipcq *queues, const ipcq_plan *plan)
{
    const topo_shape *shape = queues->shape;
    for (size_t i = 0; i < plan->ends.count; i++) {
        const ipcq_plan_end *end = &plan->ends.items[i];
        if (!topo_has_pe(shape, end->pe))
            return kb_error_new(KB_ERR_INPUT,
                                "direction %s is of %s, which the machine does not have: it has "
                                "%" PRIu32 " SIPs of %" PRIu32 " cubes of %" PRIu32 " PEs",
                                end->direction, topo_pe_name(end->pe).text, shape->sips,
                                shape->cubes, shape->pes);
    }
    return NULL;
}

static size_t count_members(const ipcq_plan *plan)
{
    size_t count = 0;
    for (size_t i = 0; i < plan->ends.count; i++)
        count += i == 0 || ipcq_compare_pes(plan->ends.items[i - 1].pe, plan->ends.items[i].pe);
    return count;
}

static kb_error *allocate(ipcq_set *set, const ipcq_plan *plan)
{
    size_t slots;
    set->end_count = plan->ends.count;
    set->member_count = count_members(plan);
    if (!kb_size_mul(set->end_count, set->settings.n_slots, &slots))
        return kb_error_nomem();
    set->ends = kb_alloc_zeroed(set->end_count, sizeof *set->ends);
    set->by_name = kb_alloc_array(set->end_count, sizeof *set->by_name);
    set->pes = kb_alloc_zeroed(set->member_count, sizeof *set->pes);
    set->members = kb_alloc_zeroed(set->member_count, sizeof *set->members);
    set->credit_times = kb_alloc_zeroed(slots, sizeof *set->credit_times);
    set->credit_ids = kb_alloc_zeroed(slots, sizeof *set->credit_ids);
    set->slots = kb_alloc_zeroed(slots, sizeof *set->slots);
    if (!set->ends || !set->by_name || !set->pes || !set->members || !set->credit_times ||
        !set->credit_ids || !set->slots)
        return kb_error_nomem();
    return NULL;
}

static ipcq_end *end_at(ipcq_set *set, size_t number)
{
    return number == IPCQ_NONE ? NULL : &set->ends[number];
}

static kb_error *fill_end(ipcq_set *set, const ipcq_plan *plan, size_t number)
{
    const ipcq_plan_end *planned = &plan->ends.items[number];
    ipcq_end *end = &set->ends[number];
    end->set = set;
    end->to = end_at(set, planned->to);
    end->from = end_at(set, planned->from);
    end->credit_times = &set->credit_times[number * set->settings.n_slots];
    end->credit_ids = &set->credit_ids[number * set->settings.n_slots];
    end->slots = &set->slots[number * set->settings.n_slots];
    end->credit_fs = KB_FOREVER;
    kb_waitlist_init(&end->waiters, "a credit of a queue");
    end->direction = kb_arena_strdup(&set->names, planned->direction);
    return end->direction ? NULL : kb_error_nomem();
}

/* The ends of a PE follow each other. */
static kb_error *fill(ipcq_set *set, const ipcq_plan *plan)
{
    member *m = NULL;
    for (size_t i = 0; i < set->end_count; i++) {
        kb_pe pe = plan->ends.items[i].pe;
        if (i == 0 || ipcq_compare_pes(plan->ends.items[i - 1].pe, pe) != 0) {
            m = m ? m + 1 : set->members;
            *m = (member){.number = topo_pe_index(set->queues->shape, pe),
                          .ends = &set->ends[i],
                          .by_name = &set->by_name[i]};
            set->pes[m - set->members] = (ipcq_member){.pe = pe, .bytes = IPCQ_SETTINGS_BYTES};
        }
        set->ends[i].member = m;
        set->ends[i].pe = m->number;
        set->pes[m - set->members].bytes += IPCQ_END_BYTES;
        m->count++;
        KB_TRY(fill_end(set, plan, i));
    }
    return NULL;
}

static int compare_directions(const void *a, const void *b)
{
    const ipcq_end *const *x = a, *const *y = b;
    return strcmp((*x)->direction, (*y)->direction);
}

static void sort_names(const member *m)
{
    for (uint32_t i = 0; i < m->count; i++)
        m->by_name[i] = &m->ends[i];
    qsort(m->by_name, m->count, sizeof *m->by_name, compare_directions);
}

/* ---- Rings ------------------------------------------------------------------------------- */

static kb_error *reserve(ipcq_set *set, kb_pe pe, uint64_t bytes, kb_location *ring)
{
    if (!kb_vec_reserve(&set->reserved, 1))
        return kb_error_nomem();
    KB_TRY(mem_memories_reserve_ring(set->queues->has.memories, pe, set->settings.buffer, bytes,
                                     RING_ALIGN, ring));
    set->reserved.items[set->reserved.count++] = *ring;
    return NULL;
}

static kb_error *reserve_each(ipcq_set *set)
{
    for (size_t i = 0; i < set->end_count; i++) {
        ipcq_end *end = &set->ends[i];
        if (!end->from)
            continue;
        kb_error *err = reserve(set, ipcq_pe_of(end), set->ring_bytes, &end->ring);
        if (err)
            return kb_error_wrap(err, "receive ring of %s, direction %s",
                                 topo_pe_name(ipcq_pe_of(end)).text, end->direction);
    }
    return NULL;
}

static bool same_cube(const ipcq_end *a, const ipcq_end *b)
{
    kb_pe x = ipcq_pe_of(a), y = ipcq_pe_of(b);
    return x.sip == y.sip && x.cube == y.cube;
}

/* One reservation for all PEs and directions of a cube. */
static kb_error *reserve_sram(ipcq_set *set)
{
    for (size_t first = 0, next; first < set->end_count; first = next) {
        kb_pe pe = ipcq_pe_of(&set->ends[first]);
        uint64_t rings = 0, bytes;
        kb_location ring = {0};
        for (next = first; next < set->end_count; next++) {
            if (!same_cube(&set->ends[first], &set->ends[next]))
                break;
            rings += set->ends[next].from != NULL;
        }
        if (rings == 0)
            continue;
        kb_error *err = __builtin_mul_overflow(rings, set->ring_bytes, &bytes)
                            ? kb_error_new(KB_ERR_INPUT, "more bytes than there are addresses")
                            : reserve(set, pe, bytes, &ring);
        if (err)
            return kb_error_wrap(err, "%" PRIu64 " receive rings of %s", rings,
                                 topo_cube_name(pe).text);
        for (size_t i = first; i < next; i++) {
            if (!set->ends[i].from)
                continue;
            set->ends[i].ring = ring;
            ring.offset += set->ring_bytes;
        }
    }
    return NULL;
}

static int compare_users(const void *a, const void *b)
{
    const ring_user *x = a, *y = b;
    return compare_locations(&x->base, &y->base);
}

static void print_user(const ring_user *user, kb_text *text)
{
    kb_text_printf(text, "of %s, direction %s, at ", topo_pe_name(ipcq_pe_of(user->end)).text,
                   user->end->direction);
    mem_address_print(user->end->set->queues->has.memories, &user->base, text);
}

static kb_error *overlap(const ring_user *a, const ring_user *b)
{
    kb_text text = KB_TEXT_INIT;
    print_user(a, &text);
    kb_text_puts(&text, " and ");
    print_user(b, &text);
    kb_error *err = kb_error_new(KB_ERR_BUG, "receive rings overlap: %s", kb_text_peek(&text));
    kb_text_fini(&text);
    return err;
}

static kb_error *check_overlap(const user_list *rings)
{
    for (size_t i = 1; i < rings->count; i++) {
        const ring_user *a = &rings->items[i - 1], *b = &rings->items[i];
        if (ipcq_ring_contains(&a->base, a->end->set->ring_bytes, &b->base))
            return overlap(a, b);
    }
    return NULL;
}

static bool add_rings(const ipcq_set *set, user_list *rings)
{
    if (set->settings.n_slots == 0)
        return true;
    if (!kb_vec_reserve(rings, set->end_count))
        return false;
    for (size_t i = 0; i < set->end_count; i++)
        if (set->ends[i].from)
            rings->items[rings->count++] = (ring_user){set->ends[i].ring, &set->ends[i]};
    return true;
}

/* Of this set and all others. */
static kb_error *check_disjoint(const ipcq_set *set)
{
    user_list rings = {0};
    bool all = add_rings(set, &rings);
    for (const ipcq_set *other = set->queues->first; other && all; other = other->next)
        all = add_rings(other, &rings);
    if (rings.count > 0)
        qsort(rings.items, rings.count, sizeof *rings.items, compare_users);
    kb_error *err = all ? check_overlap(&rings) : kb_error_nomem();
    kb_vec_fini(&rings);
    return err;
}

static kb_error *make_rings(ipcq_set *set)
{
    const ipcq_settings *settings = &set->settings;
    if (settings->n_slots == 0)
        return NULL;
    KB_ASSERT(set->queues->has.fabric && set->queues->has.memories);
    uint64_t bytes = settings->n_slots * settings->slot_bytes;
    set->ring_bytes = (bytes + RING_ALIGN - 1) / RING_ALIGN * RING_ALIGN;
    KB_TRY(settings->buffer == KB_SRAM ? reserve_sram(set) : reserve_each(set));
    return check_disjoint(set);
}

/* ---- Sets -------------------------------------------------------------------------------- */

/* Gives back what it has, also of one that is not finished. */
static void release(ipcq_set *set)
{
    for (size_t i = set->reserved.count; i > 0; i--) {
        kb_error *err =
            mem_memories_release_ring(set->queues->has.memories, &set->reserved.items[i - 1]);
        KB_ASSERT(!err);
    }
    kb_vec_fini(&set->reserved);
    kb_arena_fini(&set->names);
    free(set->ends);
    free(set->by_name);
    free(set->pes);
    free(set->members);
    free(set->credit_times);
    free(set->credit_ids);
    free(set->slots);
    free(set);
}

kb_error *ipcq_set_create(ipcq *queues, const ipcq_plan *plan, ipcq_set **set)
{
    *set = NULL;
    KB_TRY(check_pes(queues, plan));
    ipcq_set *made = kb_alloc_zeroed(1, sizeof *made);
    if (!made)
        return kb_error_nomem();
    made->queues = queues;
    made->settings = plan->settings;
    kb_arena_init(&made->names);
    kb_error *err = allocate(made, plan);
    if (!err)
        err = fill(made, plan);
    if (!err)
        err = make_rings(made);
    if (err) {
        release(made);
        return err;
    }
    for (size_t i = 0; i < made->member_count; i++)
        sort_names(&made->members[i]);
    KB_LIST_APPEND(queues->first, queues->last, made);
    *set = made;
    return NULL;
}

void ipcq_set_reset(ipcq_set *set)
{
    for (size_t i = 0; i < set->end_count; i++)
        ipcq_forget_end(&set->ends[i]);
    set->unread = 0;
    for (size_t i = 0; i < set->member_count; i++)
        ipcq_forget_any(&set->members[i]);
}

void ipcq_set_destroy(ipcq_set *set)
{
    if (!set)
        return;
    ipcq_set_reset(set);
    for (size_t i = 0; i < set->member_count; i++) {
        kb_error *err = set->pes[i].installed ? ipcq_remove(set, set->pes[i].pe) : NULL;
        KB_ASSERT(!err);
    }
    KB_LIST_REMOVE(set->queues->first, set->queues->last, set);
    release(set);
}

const ipcq_member *ipcq_set_members(const ipcq_set *set, size_t *count)
{
    *count = set->member_count;
    return set->pes;
}

const ipcq_settings *ipcq_set_settings(const ipcq_set *set)
{
    return &set->settings;
}

/* ---- Directions -------------------------------------------------------------------------- */

member *ipcq_find_member(const ipcq_set *set, kb_pe pe)
{
    size_t low = 0, high = set->member_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int result = ipcq_compare_pes(pe, set->pes[middle].pe);
        if (result == 0)
            return &set->members[middle];
        if (result < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

bool ipcq_is_member(const ipcq_set *set, kb_pe pe)
{
    return ipcq_find_member(set, pe) != NULL;
}

ipcq_end *ipcq_find(ipcq_set *set, kb_pe pe, const char *direction)
{
    const member *m = ipcq_find_member(set, pe);
    uint32_t low = 0, high = m ? m->count : 0;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        ipcq_end *end = m->by_name[middle];
        int result = strcmp(direction, end->direction);
        if (result == 0)
            return end;
        if (result < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

void ipcq_list_directions(const ipcq_set *set, kb_pe pe, kb_text *text)
{
    const member *m = ipcq_find_member(set, pe);
    for (uint32_t i = 0; m && i < m->count; i++)
        kb_text_printf(text, "%s%s", i > 0 ? ", " : "", m->ends[i].direction);
}

kb_pe ipcq_end_pe(const ipcq_end *end)
{
    return ipcq_pe_of(end);
}

const char *ipcq_direction(const ipcq_end *end)
{
    return end->direction;
}

bool ipcq_can_send(const ipcq_end *end)
{
    return end->to != NULL;
}

bool ipcq_can_receive(const ipcq_end *end)
{
    return end->from != NULL;
}

/* ---- Installing -------------------------------------------------------------------------- */

static user_list *list_of_rings(const ipcq_set *set, const member *m)
{
    ipcq *queues = set->queues;
    return set->settings.buffer == KB_SRAM ? &queues->cubes[m->number / queues->shape->pes]
                                           : &queues->pes[m->number].rings;
}

static kb_error *add_users(const ipcq_set *set, const member *m)
{
    user_list *rings = list_of_rings(set, m), *senders = &set->queues->pes[m->number].senders;
    if (!kb_vec_reserve(rings, m->count) || !kb_vec_reserve(senders, m->count))
        return kb_error_nomem();
    for (uint32_t i = 0; i < m->count; i++) {
        ipcq_end *end = &m->ends[i];
        if (end->from)
            rings->items[rings->count++] = (ring_user){end->ring, end};
        if (end->to)
            senders->items[senders->count++] = (ring_user){end->to->ring, end};
    }
    qsort(rings->items, rings->count, sizeof(ring_user), compare_users);
    qsort(senders->items, senders->count, sizeof(ring_user), compare_users);
    return NULL;
}

static void remove_users(user_list *list, const member *m)
{
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++)
        if (list->items[i].end->member != m)
            list->items[kept++] = list->items[i];
    list->count = kept;
}

/* Finds a PE that has ends, and is installed or not. */
static kb_error *find_to(ipcq_set *set, kb_pe pe, bool remove, member **m)
{
    *m = ipcq_find_member(set, pe);
    const char *task = remove ? "remove" : "install";
    if (!*m)
        return kb_error_new(KB_ERR_INPUT, "cannot %s queues at %s: the plan has none there", task,
                            topo_pe_name(pe).text);
    if (set->pes[*m - set->members].installed != remove)
        return kb_error_new(KB_ERR_FAULT, "cannot %s queues at %s: they are %s installed", task,
                            topo_pe_name(pe).text, remove ? "not" : "already");
    return NULL;
}

static void note_installed(ipcq_set *set, const member *m, bool installed)
{
    set->pes[m - set->members].installed = installed;
    for (uint32_t i = 0; i < m->count; i++)
        m->ends[i].installed = installed;
}

kb_error *ipcq_install(ipcq_set *set, kb_pe pe)
{
    member *m;
    KB_TRY(find_to(set, pe, false, &m));
    if (set->settings.n_slots > 0)
        KB_TRY(add_users(set, m));
    note_installed(set, m, true);
    return NULL;
}

kb_error *ipcq_remove(ipcq_set *set, kb_pe pe)
{
    member *m;
    KB_TRY(find_to(set, pe, true, &m));
    if (set->settings.n_slots > 0) {
        remove_users(list_of_rings(set, m), m);
        remove_users(&set->queues->pes[m->number].senders, m);
    }
    note_installed(set, m, false);
    return NULL;
}

/* ---- All queues -------------------------------------------------------------------------- */

kb_error *ipcq_create(const ipcq_options *options, ipcq **queues)
{
    *queues = NULL;
    ipcq *made = kb_alloc_zeroed(1, sizeof *made);
    if (!made)
        return kb_error_nomem();
    made->has = *options;
    made->shape = topo_machine_shape(options->machine);
    kb_pool_init(&made->messages, sizeof(ipcq_message));
    made->pes = kb_alloc_zeroed(made->shape->pe_count, sizeof *made->pes);
    made->cubes = kb_alloc_zeroed(made->shape->sips, made->shape->cubes * sizeof *made->cubes);
    kb_error *err = net_route_buffer_init(&made->routes, options->machine);
    if (!err && (!made->pes || !made->cubes))
        err = kb_error_nomem();
    if (err) {
        ipcq_destroy(made);
        return err;
    }
    *queues = made;
    return NULL;
}

void ipcq_destroy(ipcq *queues)
{
    if (!queues)
        return;
    for (ipcq_set *set = queues->first, *next; set; set = next) {
        next = set->next;
        release(set); /* the owners of receives may be gone */
    }
    for (uint64_t pe = 0; queues->pes && pe < queues->shape->pe_count; pe++) {
        kb_vec_fini(&queues->pes[pe].rings);
        kb_vec_fini(&queues->pes[pe].senders);
    }
    uint64_t cubes = (uint64_t)queues->shape->sips * queues->shape->cubes;
    for (uint64_t cube = 0; queues->cubes && cube < cubes; cube++)
        kb_vec_fini(&queues->cubes[cube]);
    free(queues->pes);
    free(queues->cubes);
    net_route_buffer_fini(&queues->routes);
    kb_pool_fini(&queues->messages);
    free(queues);
}
