/*
 * queue.c: messages on their way through the rings.
 *
 * What arrives stays in its slot until it is its turn and a claim wants it. Slots are handed out in
 * the order in which they were sent to, whatever the order of arrivals. A message goes to one
 * claim, whole: if that is withdrawn in between, the rest is dropped as it comes.
 *
 * A credit on its way is a time in the end that it goes to. Each takes as long as the one before
 * it, so these times never decrease.
 *
 * Nothing here knows how bytes get into a slot, or how long that takes.
 */
#include "ipcq_private.h"

#include <inttypes.h>

static kb_sim *sim_of(const ipcq_end *end)
{
    return end->set->queues->has.sim;
}

static bool has_rings(const ipcq_end *end)
{
    return end->set->settings.n_slots > 0;
}

bool ipcq_is_traced(const ipcq *queues)
{
    return queues && queues->has.trace;
}

/* ---- Messages ---------------------------------------------------------------------------- */

/* Its last message is no longer one of which no slot was taken. */
static void forget_fresh(ipcq_end *end)
{
    if (end->fresh)
        ipcq_letter_at(end->set->queues, end->fresh)->fresh_at = NULL;
    end->fresh = 0;
}

ipcq_message_id ipcq_message_new(ipcq_end *end, kb_dtype dtype, const kb_shape *shape,
                                 uint64_t bytes)
{
    ipcq *queues = end->set->queues;
    uint64_t segments = ipcq_segments_of(&end->set->settings, bytes);
    KB_ASSERT(end->to && segments <= UINT32_MAX);
    ipcq_message_id id = kb_pool_take(&queues->messages);
    if (id == 0)
        return 0;
    *ipcq_letter_at(queues, id) = (letter){
        .message = {.dtype = dtype,
                    .shape = *shape,
                    .bytes = bytes,
                    .number = ++queues->message_count,
                    .sequence = end->next_sequence++,
                    .from = end,
                    .segments = (uint32_t)segments},
        .fresh_at = end,
    };
    forget_fresh(end);
    end->fresh = id;
    end->last_bytes = bytes;
    end->last_until = end->my_head + segments;
    return id;
}

ipcq_message *ipcq_message_at(ipcq *queues, ipcq_message_id id)
{
    return &ipcq_letter_at(queues, id)->message;
}

void ipcq_message_free(ipcq *queues, ipcq_message_id id)
{
    const letter *l = ipcq_letter_at(queues, id);
    if (l->fresh_at)
        forget_fresh(l->fresh_at);
    data_release(queues->has.store, l->message.data);
    kb_pool_give(&queues->messages, id);
}

/* ---- Lists of claims --------------------------------------------------------------------- */

static void append(claim_list *list, ipcq_claim *claim)
{
    claim->next = NULL;
    claim->prev = list->tail;
    if (list->tail)
        list->tail->next = claim;
    else
        list->head = claim;
    list->tail = claim;
}

static void take_out(claim_list *list, ipcq_claim *claim)
{
    if (claim->prev)
        claim->prev->next = claim->next;
    else
        list->head = claim->next;
    if (claim->next)
        claim->next->prev = claim->prev;
    else
        list->tail = claim->prev;
    claim->next = claim->prev = NULL;
}

static void forget_claims(claim_list *list)
{
    while (list->head) {
        list->head->waits = false;
        take_out(list, list->head);
    }
}

/* ---- Handing out ------------------------------------------------------------------------- */

static bool has_segment(const ipcq_end *end)
{
    return end->handed < end->peer_head;
}

/* The claim that the next segment goes to, which is no longer in a list then; NULL if it stays, or
 * is to be dropped. */
static ipcq_claim *choose_claim(ipcq_end *end)
{
    if (end->left > 0)
        return end->current;
    member *m = end->member;
    claim_list *list = end->claims.head ? &end->claims : &m->claims;
    ipcq_claim *claim = list->head;
    if (!claim)
        return NULL;
    take_out(list, claim);
    claim->end = end;
    if (claim->any)
        m->turn = (uint32_t)(end - m->ends + 1) % m->count;
    return claim;
}

static ipcq_segment take_segment(ipcq_end *end)
{
    const ipcq_settings *settings = &end->set->settings;
    ipcq_segment segment = {.end = end};
    if (settings->n_slots == 0) {
        const letter *l = ipcq_letter_at(end->set->queues, end->first);
        segment.message = end->first;
        segment.bytes = l->message.bytes;
        end->first = l->next;
        end->my_tail++;
    } else {
        uint64_t at = end->handed % settings->n_slots;
        segment.message = end->slots[at].message;
        segment.bytes = end->slots[at].bytes;
        segment.at = end->ring;
        segment.at.offset += at * settings->slot_bytes;
        end->slots[at].message = 0;
    }
    end->handed++;
    end->set->unread--;
    return segment;
}

static void drop(ipcq_end *end, const ipcq_segment *segment)
{
    ipcq_free_slot(end, segment->when);
    if (segment->last)
        ipcq_message_free(end->set->queues, segment->message);
}

static void hand_out_next(ipcq_end *end, ipcq_claim *claim)
{
    ipcq *queues = end->set->queues;
    ipcq_segment segment = take_segment(end);
    const ipcq_message *message = ipcq_message_at(queues, segment.message);
    segment.first = end->left == 0;
    KB_ASSERT(segment.first || segment.message == end->open);
    if (segment.first)
        end->left = ipcq_segments_of(&end->set->settings, message->bytes);
    end->left--;
    end->open = segment.message;
    segment.last = end->left == 0;
    segment.when = kb_sim_now(sim_of(end));
    if (!claim) {
        drop(end, &segment);
        return;
    }
    if (claim->posted > segment.when)
        segment.when = claim->posted;
    end->current = segment.last ? NULL : claim;
    claim->waits = !segment.last;
    if (segment.last && KB_UNLIKELY(queues->has.trace != NULL))
        ipcq_trace_receive(end, message);
    claim->got(claim, &segment);
}

/* As much as there are claims for. What is called here may call this again: then the one that is at
 * it goes on afterwards, so that segments come one after the other. */
static void hand_out(ipcq_end *end)
{
    if (end->is_handing_out)
        return;
    end->is_handing_out = true;
    while (has_segment(end)) {
        bool drops = end->left > 0 && !end->current;
        ipcq_claim *claim = choose_claim(end);
        if (!claim && !drops)
            break;
        hand_out_next(end, claim);
    }
    end->is_handing_out = false;
}

/* ---- Claims ------------------------------------------------------------------------------ */

/* Ends take turns; one that is handing out looks at the claims itself. */
static void hand_out_any(member *m)
{
    for (uint32_t i = 0; i < m->count && m->claims.head; i++) {
        ipcq_end *end = &m->ends[(m->turn + i) % m->count];
        if (has_segment(end) && end->left == 0 && !end->is_handing_out) {
            hand_out(end);
            return;
        }
    }
}

void ipcq_claim_post(ipcq_set *set, ipcq_claim *claim)
{
    KB_ASSERT(!claim->waits);
    claim->set = set;
    claim->any = !claim->end;
    claim->waits = true;
    if (!claim->any) {
        append(&claim->end->claims, claim);
        hand_out(claim->end);
        return;
    }
    member *m = ipcq_find_member(set, claim->pe);
    KB_ASSERT(m);
    append(&m->claims, claim);
    hand_out_any(m);
}

void ipcq_claim_withdraw(ipcq_claim *claim)
{
    if (!claim->waits)
        return;
    claim->waits = false;
    ipcq_end *end = claim->end;
    if (end && end->current == claim) {
        end->current = NULL;
        hand_out(end); /* what is there already is dropped */
    } else {
        take_out(end ? &end->claims : &ipcq_find_member(claim->set, claim->pe)->claims, claim);
    }
}

/* ---- Arrivals ---------------------------------------------------------------------------- */

static kb_error *fault_at(const kb_location *at, const ipcq_message *message, const char *why)
{
    kb_text text = KB_TEXT_INIT;
    mem_address_print(message->from->set->queues->has.memories, at, &text);
    kb_error *err =
        kb_error_new(KB_ERR_FAULT, "message %" PRIu64 " of %s, direction %s, arrives at %s: %s",
                     message->sequence, ipcq_name_pe(ipcq_pe_of(message->from)).text,
                     message->from->direction, kb_text_peek(&text), why);
    kb_text_fini(&text);
    return err;
}

/* The number of the segment that the slot is for; what is there, or still to be freed, is not. */
static bool number_of(const ipcq_end *end, uint64_t slot_number, uint64_t *number)
{
    uint64_t n_slots = end->set->settings.n_slots;
    uint64_t ahead = (slot_number + n_slots - end->peer_head % n_slots) % n_slots;
    *number = end->peer_head + ahead;
    return *number < end->my_tail + n_slots && end->slots[slot_number].message == 0;
}

/* The end whose ring has the address: most likely the one that the message was sent to. */
static ipcq_end *ring_at(const ipcq *queues, const kb_location *at, const ipcq_message *message)
{
    ipcq_end *likely = message->from->to;
    bool is_there =
        likely->member->installed && ipcq_ring_contains(&likely->ring, likely->set->ring_bytes, at);
    return KB_LIKELY(is_there) ? likely : ipcq_find_ring(queues, at);
}

kb_error *ipcq_arrive(ipcq *queues, kb_location at, ipcq_message_id id, uint64_t bytes)
{
    ipcq_message *message = ipcq_message_at(queues, id);
    ipcq_end *end = ring_at(queues, &at, message);
    if (!end)
        return fault_at(&at, message, "no receive ring is installed there");
    const ipcq_settings *settings = &end->set->settings;
    uint64_t offset = at.offset - end->ring.offset, number;
    uint64_t slot_number = offset / settings->slot_bytes;
    if (slot_number >= settings->n_slots || offset % settings->slot_bytes != 0)
        return fault_at(&at, message, "not the start of a slot");
    if (bytes > settings->slot_bytes)
        return fault_at(&at, message, "it is larger than the slot");
    if (!number_of(end, slot_number, &number))
        return fault_at(&at, message, "the slot is not free");
    KB_ASSERT(message->segments > 0);
    message->segments--;
    end->slots[slot_number] = (slot){.bytes = bytes, .message = id};
    end->set->unread++;
    if (number == end->peer_head) {
        do
            end->peer_head++;
        while (end->peer_head < end->my_tail + settings->n_slots &&
               end->slots[end->peer_head % settings->n_slots].message != 0);
        hand_out(end);
    }
    return NULL;
}

void ipcq_hand_over(ipcq_end *end, ipcq_message_id id)
{
    KB_ASSERT(!has_rings(end) && end->to);
    ipcq *queues = end->set->queues;
    letter *l = ipcq_letter_at(queues, id);
    ipcq_end *to = end->to;
    l->message.segments = 0;
    l->next = 0;
    forget_fresh(end);
    end->my_head++;
    if (KB_UNLIKELY(queues->has.trace != NULL))
        ipcq_trace_send(end, &l->message);
    if (to->first)
        ipcq_letter_at(queues, to->last)->next = id;
    else
        to->first = id;
    to->last = id;
    to->peer_head++;
    to->set->unread++;
    hand_out(to);
}

/* ---- Credits ----------------------------------------------------------------------------- */

bool ipcq_credit_at(const ipcq_end *end, kb_time *at)
{
    uint64_t n_slots = end->set->settings.n_slots;
    *at = 0;
    if (n_slots == 0 || end->my_head < n_slots)
        return true;
    uint64_t number = end->my_head - n_slots;
    *at = end->credit_times[number % n_slots];
    return number < end->credited;
}

uint64_t ipcq_arrived_credits(const ipcq_end *end)
{
    uint64_t n_slots = end->set->settings.n_slots, count = end->credited;
    kb_time now = kb_sim_now(sim_of(end));
    while (count > 0 && end->credited - count < n_slots &&
           end->credit_times[(count - 1) % n_slots] > now)
        count--;
    return count;
}

kb_waitlist *ipcq_await_credit(ipcq_end *end, kb_co *co, void (*wake)(void *self), void *self)
{
    KB_ASSERT(!end->wake);
    end->waiter = co;
    end->wake = wake;
    end->wake_self = self;
    return &end->waiters;
}

void ipcq_stop_awaiting(ipcq_end *end)
{
    end->wake = NULL;
}

kb_location ipcq_take_slot(ipcq_end *end)
{
    const ipcq_settings *settings = &end->set->settings;
    KB_ASSERT(end->to && settings->n_slots > 0 && ipcq_credit_at(end, &(kb_time){0}));
    ipcq *queues = end->set->queues;
    if (end->fresh && KB_UNLIKELY(queues->has.trace != NULL))
        ipcq_trace_send(end, ipcq_message_at(queues, end->fresh));
    forget_fresh(end);
    kb_location taken = end->to->ring;
    taken.offset += end->my_head++ % settings->n_slots * settings->slot_bytes;
    return taken;
}

/* All that the receiver has freed is free for the sender, from then on. */
static void send_credit(ipcq_end *sender, uint64_t tail, kb_time arrives)
{
    while (sender->credited < tail)
        sender->credit_times[sender->credited++ % sender->set->settings.n_slots] = arrives;
    if (sender->wake)
        sender->wake(sender->wake_self);
}

/* How long a credit takes from here to the end that sends here. */
static kb_time credit_time(ipcq_end *end)
{
    if (end->credit_fs != KB_FOREVER)
        return end->credit_fs;
    ipcq *queues = end->set->queues;
    kb_pe here = ipcq_pe_of(end), there = ipcq_pe_of(end->from);
    const topo_machine *machine = queues->has.machine;
    uint32_t from = topo_node_at(machine, TOPO_PE_DMA, here.sip, here.cube, here.pe);
    uint32_t to = topo_node_at(machine, TOPO_PE_DMA, there.sip, there.cube, there.pe);
    net_order order =
        net_ways_order(&queues->ways, from, to, end->set->settings.credit_bytes, false);
    order.reply = true;
    end->credit_fs = net_foresee(queues->has.fabric, &order).ended;
    return end->credit_fs;
}

static void log_credit(const ipcq_end *end, kb_time start, kb_time arrives)
{
    static const char name[] = "credit";
    kb_oplog *log = end->set->queues->has.log;
    uint64_t bytes = end->set->settings.credit_bytes;
    if (KB_LIKELY(!kb_oplog_is_watched(log))) {
        kb_op_brief brief = {
            .unit = KB_UNIT_IPCQ, .name = name, .start = start, .end = arrives, .bytes = bytes};
        kb_oplog_count_ahead(log, end->member->number, &brief);
        return;
    }
    kb_op op = {
        .unit = KB_UNIT_IPCQ,
        .name = name,
        .label = "",
        .pe = ipcq_pe_of(end),
        .start = start,
        .end = arrives,
        .bytes = bytes,
    };
    kb_oplog_add_ahead(log, end->member->number, &op);
}

static void fail_credit(const ipcq_end *end)
{
    kb_text text = KB_TEXT_INIT;
    mem_address_print(end->set->queues->has.memories, &end->ring, &text);
    kb_sim_fail(sim_of(end),
                kb_error_new(KB_ERR_FAULT,
                             "a credit of %s, direction %s, for the ring at %s: no direction of %s "
                             "that is installed leads there",
                             ipcq_name_pe(ipcq_pe_of(end)).text, end->direction,
                             kb_text_peek(&text), ipcq_name_pe(ipcq_pe_of(end->from)).text));
    kb_text_fini(&text);
}

void ipcq_free_slot(ipcq_end *end, kb_time at)
{
    if (!has_rings(end))
        return;
    KB_ASSERT(end->my_tail < end->handed);
    end->my_tail++;
    kb_time arrives = kb_time_add(at, credit_time(end));
    kb_sim_expect(sim_of(end), arrives, "a credit"); /* it has no event */
    log_credit(end, at, arrives);
    ipcq_end *sender = end->from;
    if (KB_UNLIKELY(!sender->member->installed || sender->to != end))
        sender = ipcq_find_sender(end->set->queues, end->from->member->number, &end->ring);
    if (KB_LIKELY(sender != NULL))
        send_credit(sender, end->my_tail, arrives);
    else
        fail_credit(end);
}

/* ---- Forgetting -------------------------------------------------------------------------- */

/* Segments of a message follow each other, but some may never have come. */
static void free_messages(ipcq_end *end)
{
    ipcq *queues = end->set->queues;
    uint64_t n_slots = end->set->settings.n_slots;
    ipcq_message_id freed = end->left > 0 ? end->open : 0;
    if (freed)
        ipcq_message_free(queues, freed);
    for (uint64_t number = end->handed; number < end->my_tail + n_slots; number++) {
        slot *s = &end->slots[number % n_slots];
        if (s->message != 0 && s->message != freed) {
            freed = s->message;
            ipcq_message_free(queues, freed);
        }
        s->message = 0;
    }
    while (end->first) {
        ipcq_message_id next = ipcq_letter_at(queues, end->first)->next;
        ipcq_message_free(queues, end->first);
        end->first = next;
    }
}

void ipcq_forget_end(ipcq_end *end)
{
    KB_ASSERT(!end->wake && !end->is_handing_out);
    free_messages(end);
    forget_claims(&end->claims);
    if (end->current)
        end->current->waits = false;
    end->current = NULL;
    end->left = 0;
    end->next_sequence = end->my_head = end->credited = 0;
    end->peer_head = end->handed = end->my_tail = 0;
    end->last = 0;
    end->last_until = 0;
    forget_fresh(end);
}

void ipcq_forget_any(member *m)
{
    forget_claims(&m->claims);
    m->turn = 0;
}
