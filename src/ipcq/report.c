/*
 * report.c: what people are told of queues: a line for each message, messages that were not
 * received, who waits for whom, and the pointers of those who do. Of a large machine they are told
 * as much as can be read.
 *
 * A cycle of waits is looked for among waits that only one PE can end: that of a sender without
 * credit, for the PE that has to receive, and that of a receive for a direction, for the PE that
 * has to send. A receive for any direction waits for one of several, so it proves nothing and is
 * only mentioned.
 */
#include "ipcq_private.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Of each kind, in one report. */
enum { MAX_QUEUES = 4, MAX_WAITS = 16, MAX_RETOLD = 8, MAX_POINTERS = 32 };

/* ---- Trace ------------------------------------------------------------------------------- */

static void trace(const ipcq_end *end, const ipcq_message *message, const char *what,
                  const char *preposition, const ipcq_end *peer)
{
    const ipcq_options *has = &end->set->queues->has;
    kb_text line = KB_TEXT_INIT;
    kb_text_printf(&line, "%12.3f ns  %-16s  %s  %-8s  %10" PRIu64 " bytes  #%-6" PRIu64 "  %s %s",
                   kb_to_ns(kb_sim_now(has->sim)), topo_pe_name(ipcq_pe_of(end)).text, what,
                   end->direction, message->bytes, message->sequence, preposition,
                   topo_pe_name(ipcq_pe_of(peer)).text);
    if (line.failed)
        kb_sim_fail(has->sim, kb_error_nomem());
    else
        has->trace(has->trace_self, kb_text_peek(&line));
    kb_text_fini(&line);
}

void ipcq_trace_send(const ipcq_end *end, const ipcq_message *message)
{
    trace(end, message, "send", "to", end->to);
}

void ipcq_trace_receive(const ipcq_end *end, const ipcq_message *message)
{
    trace(end, message, "recv", "from", end->from);
}

/* ---- Queue pairs ------------------------------------------------------------------------- */

ipcq_end *ipcq_end_at(const ipcq_set *set, size_t number)
{
    return number < set->end_count ? &set->ends[number] : NULL;
}

kb_queue_info ipcq_end_info(const ipcq_end *end)
{
    kb_queue_info info = {
        .pe = ipcq_pe_of(end),
        .direction = end->direction,
        .can_send = end->to != NULL,
        .can_receive = end->from != NULL,
        .my_head = end->my_head,
        .peer_tail_cache = ipcq_arrived_credits(end),
        .peer_head_cache = end->peer_head,
        .my_tail = end->my_tail,
    };
    if (end->to)
        info.to = ipcq_pe_of(end->to);
    if (end->from) {
        info.from = ipcq_pe_of(end->from);
        info.ring = end->ring;
        info.ring_bytes = end->set->ring_bytes;
    }
    return info;
}

/* ---- Messages that were not received ----------------------------------------------------- */

/* Messages at an end of which no segment was handed out. */
static uint64_t unread_at(const ipcq_end *end)
{
    uint64_t n_slots = end->set->settings.n_slots;
    if (n_slots == 0)
        return end->peer_head - end->handed;
    const ipcq_message *before = end->left > 0 ? end->open : NULL;
    uint64_t count = 0;
    for (uint64_t number = end->handed; number < end->peer_head; number++) {
        const ipcq_message *message = end->slots[number % n_slots].message;
        count += message != before;
        before = message;
    }
    return count;
}

bool ipcq_print_unreceived(const ipcq_set *set, kb_text *text)
{
    if (set->unread == 0)
        return false;
    uint64_t all = 0, said = 0;
    for (size_t i = 0; i < set->end_count; i++)
        all += unread_at(&set->ends[i]);
    if (all == 0) /* but parts of what is being received */
        return false;
    kb_text_printf(text, "%" PRIu64 " message%s never received", all,
                   kb_noun(all, " was", "s were"));
    const char *separator = ": ";
    unsigned queues = 0;
    for (size_t i = 0; i < set->end_count && queues < MAX_QUEUES; i++) {
        const ipcq_end *end = &set->ends[i];
        uint64_t count = unread_at(end);
        if (count == 0)
            continue;
        kb_text_printf(text, "%s%s has %" PRIu64 " in %s from %s", separator,
                       topo_pe_name(ipcq_pe_of(end)).text, count, end->direction,
                       topo_pe_name(ipcq_pe_of(end->from)).text);
        separator = ", ";
        said += count;
        queues++;
    }
    if (said < all)
        kb_text_printf(text, ", and %" PRIu64 " more", all - said);
    return true;
}

/* ---- Waits ------------------------------------------------------------------------------- */

/* A kernel waits at an end, or at all ends of a PE. */
typedef struct wait {
    const member *at;
    const ipcq_end *end; /* NULL: any */
    bool sends;
    kb_line line;
} wait;

typedef struct wait_list {
    KB_VEC(wait) items;
    bool failed; /* there was no memory for all of them */
} wait_list;

static void add_wait(wait_list *waits, wait fresh)
{
    if (!kb_vec_push(&waits->items, fresh))
        waits->failed = true;
}

static void add_receive(wait_list *waits, const member *at, const ipcq_receive *receive)
{
    add_wait(waits, (wait){at, receive->end, false, {receive->file, receive->line}});
}

static void gather_at(wait_list *waits, const member *m)
{
    for (uint32_t i = 0; i < m->count; i++) {
        const ipcq_end *end = &m->ends[i];
        if (end->wake)
            add_wait(waits, (wait){m, end, true, kb_co_get_line(end->waiter)});
        if (end->current)
            add_receive(waits, m, end->current);
        for (const ipcq_receive *r = end->posted.head; r; r = r->next)
            add_receive(waits, m, r);
    }
    for (const ipcq_receive *r = m->posted.head; r; r = r->next)
        add_receive(waits, m, r);
}

static const ipcq_end *peer_of(const wait *w)
{
    return w->sends ? w->end->to : w->end->from;
}

static void gather(const ipcq *queues, wait_list *waits)
{
    for (const ipcq_set *set = queues->first; set; set = set->next)
        for (size_t i = 0; i < set->member_count; i++)
            gather_at(waits, &set->members[i]);
}

/* In the middle of a message that does not fit into its ring: the receiver has to begin first. */
static void print_large_message(const ipcq_end *end, kb_text *text)
{
    const ipcq_settings *settings = &end->set->settings;
    uint64_t slots = ipcq_segments_of(settings, end->last_bytes);
    bool is_in_it = end->my_head < end->last_until && end->last_until < end->my_head + slots;
    if (is_in_it && slots > settings->n_slots)
        kb_text_printf(text,
                       "; its message of %" PRIu64 " bytes needs %" PRIu64
                       " slots, the queue has %" PRIu32,
                       end->last_bytes, slots, settings->n_slots);
}

/* What the PE could receive instead. */
static void print_unread(const wait *w, kb_text *text)
{
    const char *separator = "; it has ";
    unsigned queues = 0;
    for (uint32_t i = 0; i < w->at->count; i++) {
        const ipcq_end *end = &w->at->ends[i];
        uint64_t count = w->sends || end != w->end ? unread_at(end) : 0;
        if (count == 0)
            continue;
        if (queues++ == MAX_QUEUES) {
            kb_text_puts(text, ", ...");
            return;
        }
        kb_text_printf(text, "%s%" PRIu64, separator, count);
        if (queues == 1)
            kb_text_printf(text, " unread message%s", kb_plural(count));
        kb_text_printf(text, " in %s", end->direction);
        separator = ", ";
    }
}

static void print_wait(const wait *w, kb_text *text)
{
    const ipcq_set *set = w->at->ends->set;
    kb_pe pe = ipcq_pe_of(w->at->ends);
    kb_text_printf(text, "%s waits to ", topo_pe_name(pe).text);
    if (!w->end) {
        kb_text_puts(text, "receive from any of ");
        ipcq_list_directions(set, pe, text);
    } else {
        topo_pe_text peer = topo_pe_name(ipcq_pe_of(peer_of(w)));
        kb_text_printf(text, w->sends ? "send by %s: %s has no free slot" : "receive by %s from %s",
                       w->end->direction, peer.text);
    }
    if (w->line.file) {
        const char *folder_end = strrchr(w->line.file, '/');
        kb_text_printf(text, ", at %s:%d", folder_end ? folder_end + 1 : w->line.file,
                       w->line.line);
    }
    if (w->sends)
        print_large_message(w->end, text);
    print_unread(w, text);
    kb_text_puts(text, "\n");
}

static void print_list(const wait_list *waits, kb_text *text)
{
    size_t count = waits->items.count, shown = count < MAX_WAITS ? count : MAX_WAITS;
    for (size_t i = 0; i < shown; i++)
        print_wait(&waits->items.items[i], text);
    if (count > shown)
        kb_text_printf(text, "and %zu more %s\n", count - shown,
                       kb_noun(count - shown, "waits", "wait"));
}

/* ---- Circles of waits -------------------------------------------------------------------- */

/* Who waits for whom: a search from each PE that waits, which goes deeper as long as it can. */
typedef struct search {
    const wait **edges; /* those of a PE follow each other */
    size_t *next;       /* by PE: the edge to be tried next */
    size_t *end;        /* by PE: behind its last one */
    uint64_t *path;     /* PEs from the first to the one that was reached */
    size_t depth;
    uint8_t *state; /* by PE */
} search;

enum { NEW, ON_PATH, DONE };

/* Sorts the edges by PE; their order there stays. */
static void sort_edges(search *s, const wait_list *waits, uint64_t pe_count)
{
    const wait *items = waits->items.items;
    for (size_t i = 0; i < waits->items.count; i++)
        s->end[items[i].at->number] += items[i].end != NULL;
    for (uint64_t pe = 0, sum = 0; pe < pe_count; pe++) {
        s->next[pe] = sum;
        sum += s->end[pe];
        s->end[pe] = s->next[pe];
    }
    for (size_t i = 0; i < waits->items.count; i++)
        if (items[i].end)
            s->edges[s->end[items[i].at->number]++] = &items[i];
}

static void enter(search *s, uint64_t pe)
{
    s->state[pe] = ON_PATH;
    s->path[s->depth++] = pe;
}

/* Whether it comes back to a PE of its path, which is that then. */
static bool follow(search *s, uint64_t start, uint64_t *back_at)
{
    enter(s, start);
    while (s->depth > 0) {
        uint64_t pe = s->path[s->depth - 1];
        if (s->next[pe] == s->end[pe]) {
            s->state[pe] = DONE;
            s->depth--;
            continue;
        }
        uint64_t to = peer_of(s->edges[s->next[pe]++])->member->number;
        *back_at = to;
        if (s->state[to] == ON_PATH)
            return true;
        if (s->state[to] == NEW)
            enter(s, to);
    }
    return false;
}

/* Each is for the PE of the next one, and the last for that of the first. */
typedef struct cycle {
    const wait **waits;
    size_t count; /* 0: there is none */
} cycle;

static cycle cycle_from(const search *s, uint64_t start)
{
    size_t first = 0;
    while (s->path[first] != start)
        first++;
    cycle found = {.waits = kb_alloc_array(s->depth - first, sizeof *found.waits)};
    for (size_t i = first; i < s->depth && found.waits; i++)
        found.waits[found.count++] = s->edges[s->next[s->path[i]] - 1];
    return found;
}

static cycle find_cycle(const ipcq *queues, const wait_list *waits)
{
    uint64_t pe_count = queues->shape->pe_count, start;
    cycle found = {0};
    search s = {
        .edges = kb_alloc_array(waits->items.count, sizeof *s.edges),
        .next = kb_alloc_zeroed(pe_count, sizeof *s.next),
        .end = kb_alloc_zeroed(pe_count, sizeof *s.end),
        .path = kb_alloc_array(pe_count, sizeof *s.path),
        .state = kb_alloc_zeroed(pe_count, sizeof *s.state),
    };
    if (s.edges && s.next && s.end && s.path && s.state) {
        sort_edges(&s, waits, pe_count);
        for (uint64_t pe = 0; pe < pe_count; pe++)
            if (s.state[pe] == NEW && s.next[pe] < s.end[pe] && follow(&s, pe, &start)) {
                found = cycle_from(&s, start);
                break;
            }
    }
    free(s.edges);
    free(s.next);
    free(s.end);
    free(s.path);
    free(s.state);
    return found;
}

static topo_pe_text waiter_name(const wait *w)
{
    return topo_pe_name(ipcq_pe_of(w->end));
}

static void print_cycle(const cycle *c, kb_text *text)
{
    if (c->count == 0)
        return;
    kb_text_puts(text, "cycle: ");
    for (size_t i = 0; i < c->count && i < MAX_WAITS; i++)
        kb_text_printf(text, "%s (%s) > ", waiter_name(c->waits[i]).text,
                       c->waits[i]->end->direction);
    kb_text_printf(text, "%s%s\n", c->count > MAX_WAITS ? "... > " : "",
                   waiter_name(c->waits[0]).text);
}

/* ": a waits for b (W), which waits for a (E)" */
static void retell_cycle(const cycle *c, kb_text *text)
{
    for (size_t i = 0; i < c->count && i < MAX_RETOLD; i++) {
        const wait *w = c->waits[i];
        if (i == 0)
            kb_text_printf(text, ": %s", waiter_name(w).text);
        kb_text_printf(text, "%s waits for %s (%s)", i > 0 ? ", which" : "",
                       topo_pe_name(ipcq_pe_of(peer_of(w))).text, w->end->direction);
    }
    if (c->count > MAX_RETOLD)
        kb_text_puts(text, ", and so on in a cycle");
}

/* A wait of the PE that one other PE has to end; NULL if it has none. */
static const wait *wait_of(const wait_list *waits, uint64_t pe)
{
    for (size_t i = 0; i < waits->items.count; i++)
        if (waits->items.items[i].at->number == pe && waits->items.items[i].end)
            return &waits->items.items[i];
    return NULL;
}

/* Without a cycle a chain of waits ends at a PE that does not wait: in a deadlock it has no kernel
 * that could go on. ": a waits for b (W), which runs no kernel any more" */
static void retell_chain(const wait_list *waits, kb_text *text)
{
    const wait *last = NULL;
    for (size_t i = 0; i < waits->items.count && !last; i++)
        last = waits->items.items[i].end ? &waits->items.items[i] : NULL;
    /* More steps than waits are a cycle that was not found for want of memory. */
    size_t left = waits->items.count + 1;
    for (const wait *next = last; next && left > 0; left--) {
        next = wait_of(waits, peer_of(last)->member->number);
        last = next ? next : last;
    }
    if (last && left > 0)
        kb_text_printf(text,
                       ": %s waits for %s (%s), which runs no kernel: its kernel has ended, or the "
                       "launch does not run on it",
                       waiter_name(last).text, topo_pe_name(ipcq_pe_of(peer_of(last))).text,
                       last->end->direction);
}

bool ipcq_print_waits(const ipcq *queues, kb_text *text)
{
    wait_list waits = {0};
    gather(queues, &waits);
    cycle found = find_cycle(queues, &waits);
    print_list(&waits, text);
    print_cycle(&found, text);
    free(found.waits);
    bool any = waits.items.count > 0 || waits.failed;
    kb_vec_fini(&waits.items);
    return any;
}

/* ---- Pointers ---------------------------------------------------------------------------- */

static void print_count(bool has, uint64_t count, kb_text *text)
{
    if (has)
        kb_text_printf(text, "  %15" PRIu64, count);
    else
        kb_text_printf(text, "  %15s", "-");
}

/* How wide columns have to be. */
typedef struct widths {
    int pe, direction;
} widths;

static int wider(int width, const char *text)
{
    int length = (int)strlen(text);
    return length > width ? length : width;
}

static widths widths_of(const ipcq_set *set)
{
    widths w = {(int)strlen("from"), (int)strlen("direction")};
    for (size_t i = 0; i < set->member_count; i++)
        w.pe = wider(w.pe, topo_pe_name(set->pes[i].pe).text);
    for (size_t i = 0; i < set->end_count; i++)
        w.direction = wider(w.direction, set->ends[i].direction);
    return w;
}

static void print_peer(const ipcq_end *peer, widths w, kb_text *text)
{
    kb_text_printf(text, "  %-*s", w.pe, peer ? topo_pe_name(ipcq_pe_of(peer)).text : "-");
}

static void print_end(const ipcq_end *end, widths w, kb_text *text)
{
    kb_text_printf(text, "%-*s  %-*s", w.pe, topo_pe_name(ipcq_pe_of(end)).text, w.direction,
                   end->direction);
    print_peer(end->to, w, text);
    print_peer(end->from, w, text);
    print_count(end->to, end->my_head, text);
    print_count(end->to, ipcq_arrived_credits(end), text);
    print_count(end->from, end->my_tail, text);
    print_count(end->from, end->peer_head, text);
    kb_text_puts(text, "  ");
    if (end->from && end->set->settings.n_slots > 0)
        mem_address_print(end->set->queues->has.memories, &end->ring, text);
    else
        kb_text_puts(text, "-");
    kb_text_puts(text, "\n");
}

static void print_titles(widths w, kb_text *text)
{
    kb_text_printf(text, "%-*s  %-*s  %-*s  %-*s  %15s  %15s  %15s  %15s  ring\n", w.pe, "PE",
                   w.direction, "direction", w.pe, "to", w.pe, "from", "my_head", "peer_tail_cache",
                   "my_tail", "peer_head_cache");
}

static void print_pointers(const ipcq_set *set, const wait_list *waits, kb_text *text)
{
    widths w = {0};
    const member *before = NULL;
    uint32_t said = 0, left_out = 0;
    for (size_t i = 0; i < waits->items.count && i < MAX_WAITS; i++) {
        const member *m = waits->items.items[i].at;
        if (m == before || m->ends->set != set)
            continue;
        if (!before) {
            w = widths_of(set);
            print_titles(w, text);
        }
        before = m; /* waits of a PE follow each other */
        for (uint32_t k = 0; k < m->count; k++) {
            if (said == MAX_POINTERS) {
                left_out++;
                continue;
            }
            print_end(&m->ends[k], w, text);
            said++;
        }
    }
    if (left_out > 0)
        kb_text_printf(text, "and %" PRIu32 " more\n", left_out);
}

void ipcq_print_pointers(const ipcq_set *set, kb_text *text)
{
    wait_list waits = {0};
    gather(set->queues, &waits);
    print_pointers(set, &waits, text);
    kb_vec_fini(&waits.items);
}

/* ---- Deadlocks --------------------------------------------------------------------------- */

static void add_lines(kb_error *err, const char *lines)
{
    while (*lines != '\0') {
        int length = (int)strcspn(lines, "\n");
        kb_error_add_detail(err, "%.*s", length, lines);
        lines += length + (lines[length] == '\n');
    }
}

kb_error *ipcq_explain_deadlock(const ipcq *queues, kb_error *err)
{
    wait_list waits = {0};
    gather(queues, &waits);
    if (waits.items.count > 0) {
        kb_text message = KB_TEXT_INIT, detail = KB_TEXT_INIT;
        cycle found = find_cycle(queues, &waits);
        if (found.count > 0)
            retell_cycle(&found, &message);
        else
            retell_chain(&waits, &message);
        print_list(&waits, &detail);
        print_cycle(&found, &detail);
        free(found.waits);
        for (const ipcq_set *set = queues->first; set; set = set->next)
            print_pointers(set, &waits, &detail);
        kb_error *told =
            kb_error_new(kb_error_code(err), "%s%s", kb_error_message(err), kb_text_peek(&message));
        kb_error_add_detail_of(told, err);
        add_lines(told, kb_text_peek(&detail));
        kb_error_free(err);
        err = told;
        kb_text_fini(&message);
        kb_text_fini(&detail);
    }
    kb_vec_fini(&waits.items);
    return err;
}
