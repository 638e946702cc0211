/*
 * send.c: messages on their way to the rings of their receivers, and the credits of senders.
 *
 * A message larger than a slot is sent in segments, whose slots follow each other. They may arrive
 * in any order: what is in a slot is handed out (posted_receives.c) when all slots before it have
 * arrived.
 *
 * A credit on its way is a time in the end that it goes to. Each takes as long as the one before
 * it, so these times never decrease.
 *
 * Nothing here knows how bytes get into a slot, or how long that takes.
 */
#include "ipcq_private.h"

#include <inttypes.h>

bool ipcq_is_traced(const ipcq *queues)
{
    return queues && queues->has.trace;
}

void ipcq_redirect_trace(ipcq *queues, ipcq_trace_fn *trace, void *trace_self)
{
    if (!queues->has.trace)
        return;
    queues->has.trace = trace;
    queues->has.trace_self = trace_self;
}

/* ---- Messages ---------------------------------------------------------------------------- */

ipcq_message *ipcq_message_new(ipcq_end *end, uint64_t bytes)
{
    ipcq *queues = end->set->queues;
    uint64_t segments = ipcq_segments_of(&end->set->settings, bytes);
    KB_ASSERT(end->to && segments <= UINT32_MAX);
    uint32_t index = kb_pool_take(&queues->messages);
    if (index == 0)
        return NULL;
    ipcq_message *message = kb_pool_at(&queues->messages, index);
    message->dtype = 0;
    message->shape.rank = 0;
    message->data = NULL;
    message->order = message->delivery = 0;
    message->bytes = message->unsent = bytes;
    message->number = ++queues->message_count;
    message->sequence = end->next_sequence++;
    message->from = end;
    message->to_arrive = (uint32_t)segments;
    message->index = index;
    message->next = NULL;
    end->last_bytes = bytes;
    end->last_until = end->my_head + segments;
    return message;
}

void ipcq_message_free(ipcq_message *message)
{
    ipcq_release_message(message->from->set->queues, message);
}

/* ---- Credits ----------------------------------------------------------------------------- */

bool ipcq_credit_at(const ipcq_end *end, kb_time *at)
{
    uint64_t n_slots = end->set->settings.n_slots;
    *at = 0;
    if (end->my_head < n_slots || n_slots == 0)
        return true;
    uint64_t number = end->my_head - n_slots;
    *at = end->credit_times[number % n_slots];
    return number < end->credited;
}

uint32_t ipcq_credit_id(const ipcq_end *end)
{
    uint64_t n_slots = end->set->settings.n_slots;
    return end->my_head < n_slots ? 0 : end->credit_ids[end->my_head % n_slots];
}

uint64_t ipcq_arrived_credits(const ipcq_end *end)
{
    uint64_t n_slots = end->set->settings.n_slots, count = end->credited;
    kb_time now = kb_sim_now(end->set->queues->has.sim);
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

void ipcq_send_credits(ipcq_end *sender, uint64_t tail, kb_time arrives, uint32_t id)
{
    if (KB_UNLIKELY(id != 0))
        for (uint64_t number = sender->credited; number < tail; number++)
            sender->credit_ids[number % sender->set->settings.n_slots] = id;
    while (sender->credited < tail)
        sender->credit_times[sender->credited++ % sender->set->settings.n_slots] = arrives;
    if (sender->wake)
        sender->wake(sender->wake_self);
}

/* ---- Sending ----------------------------------------------------------------------------- */

uint64_t ipcq_slot_share(const ipcq_end *end, uint64_t bytes)
{
    uint64_t slot_bytes = end->set->settings.slot_bytes;
    return bytes < slot_bytes ? bytes : slot_bytes;
}

ipcq_segment ipcq_take_slot(ipcq_message *message)
{
    ipcq_end *end = message->from;
    const ipcq_set *set = end->set;
    KB_DEBUG_ASSERT(set->settings.n_slots > 0 && ipcq_credit_at(end, &(kb_time){0})); /* Q2 */
    if (KB_UNLIKELY(set->queues->has.trace != NULL) && message->unsent == message->bytes)
        ipcq_trace_send(end, message);
    ipcq_segment segment = {.message = message,
                            .slot = end->to->ring,
                            .bytes = ipcq_slot_share(end, message->unsent),
                            .to = end->to};
    segment.slot.offset += end->my_head++ % set->settings.n_slots * set->settings.slot_bytes;
    message->unsent -= segment.bytes;
    return segment;
}

/* ---- Arrivals ---------------------------------------------------------------------------- */

static kb_error *fault_at(const ipcq_segment *segment, const char *why)
{
    const ipcq_message *message = segment->message;
    kb_text text = KB_TEXT_INIT;
    mem_address_print(message->from->set->queues->has.memories, &segment->slot, &text);
    kb_error *err =
        kb_error_new(KB_ERR_FAULT, "message %" PRIu64 " of %s, direction %s, arrives at %s: %s",
                     message->sequence, topo_pe_name(ipcq_pe_of(message->from)).text,
                     message->from->direction, kb_text_peek(&text), why);
    kb_text_fini(&text);
    return err;
}

/* The number of the segment that the slot is for; what is there, or still to be freed, is not. */
static bool number_of(const ipcq_end *end, uint64_t slot_number, uint64_t *number)
{
    uint64_t n_slots = end->set->settings.n_slots;
    uint64_t next = end->peer_head % n_slots;
    *number = end->peer_head + slot_number - next + (slot_number < next ? n_slots : 0);
    return *number < end->my_tail + n_slots && !end->slots[slot_number].message;
}

/* The end whose ring has the address. */
static ipcq_end *ring_at(const ipcq_segment *segment)
{
    ipcq_end *likely = segment->to;
    bool is_there = likely && likely->installed &&
                    ipcq_ring_contains(&likely->ring, likely->set->ring_bytes, &segment->slot);
    return KB_LIKELY(is_there)
               ? likely
               : ipcq_find_ring(segment->message->from->set->queues, &segment->slot);
}

/* All slots up to `until` are there with this segment. */
static void note_arrival(ipcq_end *end, uint64_t until, uint32_t id)
{
    kb_time now = kb_sim_now(end->set->queues->has.sim);
    for (uint64_t number = end->peer_head; number < until; number++) {
        slot *s = &end->slots[number % end->set->settings.n_slots];
        s->sent_by = id;
        s->there_at = now;
    }
}

kb_error *ipcq_arrive(const ipcq_segment *segment, uint64_t *delivered)
{
    ipcq_message *message = segment->message;
    ipcq_end *end = ring_at(segment);
    *delivered = 0;
    if (!end)
        return fault_at(segment, "no receive ring is installed there");
    const ipcq_settings *settings = &end->set->settings;
    uint64_t offset = segment->slot.offset - end->ring.offset, number;
    uint64_t slot_number = offset / settings->slot_bytes;
    if (slot_number >= settings->n_slots || offset % settings->slot_bytes != 0)
        return fault_at(segment, "not the start of a slot");
    if (segment->bytes > settings->slot_bytes)
        return fault_at(segment, "it is larger than the slot");
    if (!number_of(end, slot_number, &number))
        return fault_at(segment, "the slot is not free");
    KB_DEBUG_ASSERT(message->to_arrive > 0);
    if (--message->to_arrive == 0)
        *delivered = message->delivery;
    end->slots[slot_number].message = message;
    end->slots[slot_number].bytes = segment->bytes;
    end->set->unread++;
    if (number == end->peer_head) {
        uint64_t limit = end->my_tail + settings->n_slots;
        do
            number++;
        while (number < limit && end->slots[number % settings->n_slots].message);
        if (KB_UNLIKELY(segment->id != 0))
            note_arrival(end, number, segment->id);
        end->peer_head = number;
        ipcq_hand_out(end);
    }
    return NULL;
}

void ipcq_hand_over(ipcq_message *message)
{
    ipcq_end *end = message->from, *to = end->to;
    ipcq *queues = end->set->queues;
    KB_ASSERT(end->set->settings.n_slots == 0);
    message->to_arrive = 0;
    end->my_head++;
    if (KB_UNLIKELY(queues->has.trace != NULL))
        ipcq_trace_send(end, message);
    *(to->first ? &to->last->next : &to->first) = message;
    to->last = message;
    to->peer_head++;
    to->set->unread++;
    ipcq_hand_out(to);
}
