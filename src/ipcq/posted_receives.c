/*
 * posted_receives.c: posted receives, and what has arrived for them.
 *
 * What has arrived stays in its slot until it is its turn and a receive wants it. Slots are handed
 * out in the order in which they were sent to. A message goes to one receive, whole: if that is
 * withdrawn in between, the rest is dropped as it comes.
 *
 * A slot of a ring in TCM is free as soon as it is handed out, others once they have been read. An
 * end frees the slots that are read in the order of their reads.
 */
#include "ipcq_private.h"

#include <inttypes.h>

static kb_sim *sim_of(const ipcq_end *end)
{
    return end->set->queues->has.sim;
}

/* ---- Lists of receives ------------------------------------------------------------------- */

static void forget_all(receive_list *list)
{
    for (ipcq_receive *receive = list->head; receive; receive = receive->next)
        receive->waits = false;
    *list = (receive_list){0};
}

/* ---- Freeing slots ----------------------------------------------------------------------- */

/* How long a credit takes from here to the end that sends here. */
static kb_time credit_time(ipcq_end *end)
{
    if (KB_LIKELY(end->credit_fs != KB_FOREVER))
        return end->credit_fs;
    ipcq *queues = end->set->queues;
    kb_pe here = ipcq_pe_of(end), there = ipcq_pe_of(end->from);
    const topo_machine *machine = queues->has.machine;
    uint32_t from = topo_node_at(machine, TOPO_PE_DMA, here.sip, here.cube, here.pe);
    uint32_t to = topo_node_at(machine, TOPO_PE_DMA, there.sip, there.cube, there.pe);
    net_order order =
        net_make_order(&queues->routes, from, to, end->set->settings.credit_bytes, false);
    order.is_response = true;
    end->credit_fs = net_predict(queues->has.fabric, &order).ended;
    return end->credit_fs;
}

static const char credit_name[] = "credit";

/* The id of its record. */
static __attribute__((noinline)) uint32_t show_credit(const ipcq_end *end, kb_time start,
                                                      kb_time arrives)
{
    kb_oplog *log = end->set->queues->has.log;
    uint32_t id = kb_oplog_new_id(log);
    kb_op op = {
        .unit = KB_UNIT_IPCQ,
        .name = credit_name,
        .label = "",
        .pe = ipcq_pe_of(end),
        .start = start,
        .end = arrives,
        .bytes = end->set->settings.credit_bytes,
    };
    if (id != 0) {
        op.id = id;
        op.begun_by = end->freed_by;
        op.ended_by.kind = KB_REASON_TRANSFER;
    }
    kb_oplog_add_ahead(log, end->pe, &op);
    return id;
}

static uint32_t log_credit(const ipcq_end *end, kb_time start, kb_time arrives)
{
    kb_oplog *log = end->set->queues->has.log;
    if (KB_UNLIKELY(kb_oplog_is_watched(log)))
        return show_credit(end, start, arrives);
    kb_oplog_count_ahead(log, end->pe, KB_UNIT_IPCQ, credit_name, start, arrives,
                         end->set->settings.credit_bytes);
    return 0;
}

static void fail_credit(const ipcq_end *end)
{
    kb_text text = KB_TEXT_INIT;
    mem_address_print(end->set->queues->has.memories, &end->ring, &text);
    kb_sim_fail(sim_of(end),
                kb_error_new(KB_ERR_FAULT,
                             "a credit of %s, direction %s, for the ring at %s: no direction of %s "
                             "that is installed leads there",
                             topo_pe_name(ipcq_pe_of(end)).text, end->direction,
                             kb_text_peek(&text), topo_pe_name(ipcq_pe_of(end->from)).text));
    kb_text_fini(&text);
}

/* The oldest slot that was handed out is free from then on: a credit goes back. */
static inline __attribute__((always_inline)) void free_slot(ipcq_end *end, kb_time at)
{
    KB_DEBUG_ASSERT(end->my_tail < end->handed); /* Q2 */
    end->my_tail++;
    kb_time arrives = kb_time_add(at, credit_time(end));
    kb_sim_expect(sim_of(end), arrives, "a credit"); /* it has no event */
    uint32_t id = log_credit(end, at, arrives);
    ipcq_end *sender = end->from;
    if (KB_UNLIKELY(!sender->installed || sender->to != end))
        sender = ipcq_find_sender(end->set->queues, end->from->pe, &end->ring);
    if (KB_LIKELY(sender != NULL))
        ipcq_send_credits(sender, end->my_tail, arrives, id);
    else
        fail_credit(end);
}

static void read_slot(ipcq_end *end, ipcq_receive *receive, const slot *read)
{
    const ipcq_settings *settings = &end->set->settings;
    ipcq_slot_read what = {end->ring, read->bytes, end->reads++};
    what.slot.offset += (uint64_t)(read - end->slots) * settings->slot_bytes;
    end->slots[what.number % settings->n_slots].was_read = false;
    receive->ops->read(receive, &what);
}

void ipcq_set_read_id(ipcq_receive *receive, uint64_t number, uint32_t id)
{
    ipcq_end *end = receive->end;
    end->slots[number % end->set->settings.n_slots].read_by = id;
}

void ipcq_slot_was_read(ipcq_receive *receive, uint64_t number)
{
    ipcq_end *end = receive->end;
    uint32_t n_slots = end->set->settings.n_slots;
    kb_time now = kb_sim_now(sim_of(end));
    end->slots[number % n_slots].was_read = true;
    if (KB_UNLIKELY(end->slots[number % n_slots].read_by != 0))
        receive->by = end->freed_by =
            (kb_reason){KB_REASON_INPUT, end->slots[number % n_slots].read_by};
    while (end->reads_freed < end->reads && end->slots[end->reads_freed % n_slots].was_read) {
        end->reads_freed++;
        free_slot(end, now);
    }
    if (receive->when < now)
        receive->when = now;
    if (--receive->reads == 0 && !receive->waits)
        receive->ops->ended(receive);
}

/* ---- Handing out ------------------------------------------------------------------------- */

static bool has_segment(const ipcq_end *end)
{
    return end->handed < end->peer_head;
}

/* The receive that the next message goes to, which is in no list any more; NULL if there is none.
 */
static ipcq_receive *choose_receive(ipcq_end *end)
{
    member *m = end->member;
    receive_list *list = end->posted.head ? &end->posted : &m->posted;
    ipcq_receive *receive = list->head;
    if (!receive)
        return NULL;
    KB_LIST_REMOVE(list->head, list->tail, receive);
    receive->end = end;
    if (receive->any)
        m->turn = (uint32_t)(end - m->ends + 1) % m->count;
    return receive;
}

/* Takes the next segment out of its slot. */
static ipcq_message *take_segment(ipcq_end *end, slot *from)
{
    ipcq_message *message = from->message;
    from->message = NULL;
    end->handed++;
    end->set->unread--;
    if (end->left == 0) {
        end->left = ipcq_segments_of(&end->set->settings, message->bytes);
        end->open = message;
    }
    KB_ASSERT(message == end->open);
    end->left--;
    return message;
}

/* Without rings: all messages are whole, and there are no slots. */
static ipcq_message *take_message(ipcq_end *end)
{
    ipcq_message *message = end->first;
    end->first = message->next;
    end->handed++;
    end->my_tail++;
    end->set->unread--;
    return message;
}

/* Why the slot is handed out now: the receive was posted, or what is in the slot arrived. */
static void explain_hand_out(ipcq_end *end, ipcq_receive *receive, const slot *from)
{
    end->freed_by = (kb_reason){KB_REASON_MESSAGE, from->sent_by};
    if (receive && from->there_at < receive->when)
        end->freed_by = receive->by;
    else if (receive)
        receive->by = end->freed_by;
}

/* To the receive, or to nothing if that was withdrawn. */
static void hand_out_next(ipcq_end *end, ipcq_receive *receive)
{
    const ipcq_set *set = end->set;
    uint32_t n_slots = set->settings.n_slots;
    slot *from = KB_LIKELY(n_slots > 0) ? &end->slots[end->handed % n_slots] : NULL;
    ipcq_message *message = from ? take_segment(end, from) : take_message(end);
    bool is_last = end->left == 0;
    bool reads = from && receive && set->settings.buffer != KB_TCM;
    kb_time when = kb_sim_now(sim_of(end));
    end->current = is_last ? NULL : receive;
    if (KB_LIKELY(receive != NULL)) {
        receive->when = when = receive->posted > when ? receive->posted : when;
        receive->waits = !is_last;
        receive->reads += reads;
    }
    if (KB_UNLIKELY(from && from->sent_by != 0))
        explain_hand_out(end, receive, from);
    if (KB_LIKELY(from && !reads))
        free_slot(end, when);
    if (KB_LIKELY(is_last)) {
        if (KB_UNLIKELY(set->queues->has.trace != NULL) && receive)
            ipcq_trace_receive(end, message);
        if (KB_LIKELY(receive != NULL))
            receive->ops->matched(receive, message);
        ipcq_release_message(set->queues, message);
    }
    if (KB_UNLIKELY(reads))
        read_slot(end, receive, from);
}

/* As much as there are receives for, the first message to `receive` if that is not NULL. What is
 * called here may call this again: then the one that is at it goes on afterwards, so that segments
 * come one after the other. */
static void hand_out(ipcq_end *end, ipcq_receive *receive)
{
    end->is_handing_out = true;
    do {
        bool drops = end->left > 0 && !end->current;
        if (end->left > 0)
            receive = end->current;
        else if (!receive)
            receive = choose_receive(end);
        if (!receive && !drops)
            break;
        hand_out_next(end, receive);
        receive = NULL;
    } while (has_segment(end));
    end->is_handing_out = false;
}

void ipcq_hand_out(ipcq_end *end)
{
    if (has_segment(end) && !end->is_handing_out)
        hand_out(end, NULL);
}

/* ---- Receives ---------------------------------------------------------------------------- */

void ipcq_post(ipcq_receive *receive)
{
    ipcq_end *end = receive->end;
    receive->waits = true;
    receive->any = false;
    receive->reads = 0;
    if (has_segment(end) && end->left == 0 && !end->posted.head && !end->is_handing_out) {
        hand_out(end, receive);
        return;
    }
    KB_LIST_APPEND(end->posted.head, end->posted.tail, receive);
    ipcq_hand_out(end);
}

/* Ends take turns; one that is handing out looks at the receives itself. */
static void hand_out_any(member *m)
{
    for (uint32_t i = 0; i < m->count && m->posted.head; i++) {
        ipcq_end *end = &m->ends[(m->turn + i) % m->count];
        if (has_segment(end) && end->left == 0 && !end->is_handing_out) {
            hand_out(end, NULL);
            return;
        }
    }
}

void ipcq_post_any(ipcq_set *set, kb_pe pe, ipcq_receive *receive)
{
    member *m = ipcq_find_member(set, pe);
    KB_ASSERT(m);
    receive->waits = receive->any = true;
    receive->reads = 0;
    receive->end = NULL;
    receive->member = m;
    KB_LIST_APPEND(m->posted.head, m->posted.tail, receive);
    hand_out_any(m);
}

void ipcq_forget(ipcq_receive *receive)
{
    if (!receive->waits)
        return;
    receive->waits = false;
    ipcq_end *end = receive->end;
    if (end && end->current == receive) {
        end->current = NULL;
        ipcq_hand_out(end); /* what is there already is dropped */
    } else {
        receive_list *list = end ? &end->posted : &receive->member->posted;
        KB_LIST_REMOVE(list->head, list->tail, receive);
    }
}

void ipcq_withdraw(ipcq_receive *receive)
{
    if (!receive->waits)
        return;
    ipcq_forget(receive);
    if (receive->reads > 0)
        return;
    kb_time now = kb_sim_now(sim_of(receive->end ? receive->end : receive->member->ends));
    receive->when = receive->when > now ? receive->when : now;
    receive->ops->ended(receive);
}

/* ---- Forgetting -------------------------------------------------------------------------- */

/* Segments of a message follow each other, but some may never have come. */
static void free_messages(ipcq_end *end)
{
    uint64_t n_slots = end->set->settings.n_slots;
    const ipcq_message *freed = end->left > 0 ? end->open : NULL;
    if (freed)
        ipcq_message_free(end->open);
    for (uint64_t number = end->handed; number < end->my_tail + n_slots; number++) {
        slot *s = &end->slots[number % n_slots];
        if (s->message && s->message != freed) {
            freed = s->message;
            ipcq_message_free(s->message);
        }
        s->message = NULL;
    }
    for (ipcq_message *next; end->first; end->first = next) {
        next = end->first->next;
        ipcq_message_free(end->first);
    }
}

void ipcq_forget_end(ipcq_end *end)
{
    KB_ASSERT(!end->wake && !end->is_handing_out);
    free_messages(end);
    forget_all(&end->posted);
    if (end->current)
        end->current->waits = false;
    end->current = NULL;
    end->left = 0;
    end->next_sequence = end->my_head = end->credited = 0;
    end->peer_head = end->handed = end->my_tail = 0;
    end->reads = end->reads_freed = 0;
    end->last_until = 0;
}

void ipcq_forget_any(member *m)
{
    forget_all(&m->posted);
    m->turn = 0;
}
