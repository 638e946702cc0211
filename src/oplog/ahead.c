/*
 * ahead.c: what the log is told before its time.
 *
 * A PE has an array of transitions, sorted by (time, order of the calls). They come nearly in that
 * order, so each is inserted from the end; the array is reused, and is made when first needed.
 * Those whose time has come are applied before anything else changes or is read at the PE, or when
 * there is no room: no result can tell that from being applied at their time. A profile and a
 * watcher of states could, as they see several PEs: while there is one, the log is detailed and all
 * PEs' transitions are applied in the order of time, by the agenda, a heap of the PEs' first
 * transitions. It is corrected lazily: an item whose transition is not the first of its PE any more
 * is skipped.
 *
 * Records for the watcher wait in a heap of their own, sorted by their ends. With equal ends those
 * that would have been told first come first.
 */
#include <stdlib.h>
#include <string.h>

#include "oplog_private.h"

void kb_oplog_fail_memory(kb_oplog *log)
{
    log->incomplete = true;
    kb_sim_fail(log->sim, kb_error_nomem());
}

/* ---- A heap ------------------------------------------------------------------------------- */

static bool comes_before(const due_item *a, const due_item *b)
{
    if (a->at != b->at)
        return a->at < b->at;
    return a->told_at != b->told_at ? a->told_at < b->told_at : a->order < b->order;
}

/* False if there is no memory. */
static bool push(due_heap *heap, due_item fresh)
{
    if (!kb_vec_reserve(heap, 1))
        return false;
    due_item *items = heap->items;
    size_t at = heap->count++;
    for (; at > 0 && comes_before(&fresh, &items[(at - 1) / 2]); at = (at - 1) / 2)
        items[at] = items[(at - 1) / 2];
    items[at] = fresh;
    return true;
}

static due_item pop(due_heap *heap)
{
    due_item *items = heap->items;
    due_item first = items[0], last = items[--heap->count];
    size_t at = 0, child, count = heap->count;
    while ((child = 2 * at + 1) < count) {
        if (child + 1 < count && comes_before(&items[child + 1], &items[child]))
            child++;
        if (!comes_before(&items[child], &last))
            break;
        items[at] = items[child];
        at = child;
    }
    items[at] = last;
    return first;
}

/* ---- Transitions -------------------------------------------------------------------------- */

enum { FIRST_ROOM = 8 };

void kb_oplog_link_pe(kb_oplog *log, pe_record *record)
{
    uint64_t pe = (uint64_t)(record - log->pes);
    KB_ASSERT(pe < UINT32_MAX);
    if (record->array || record->ops || record->buffer)
        return;
    record->next_ahead = log->ahead_pes;
    log->ahead_pes = (uint32_t)pe + 1;
}

/* Applies what is due, and makes room for another transition. False if there is no memory. */
static bool make_room(kb_oplog *log, pe_record *record)
{
    catch_up(log, record);
    if (record->end < record->array + record->room)
        return true;
    size_t before = (size_t)(record->first - record->array);
    size_t count = (size_t)(record->end - record->first);
    if (before > record->room / 2) {
        memmove(record->array + PAST, record->first, count * sizeof *record->array);
        record->first = record->array + PAST;
        record->end = record->first + count;
        return true;
    }
    size_t room = record->room;
    transition *grown = NULL;
    if (room < UINT32_MAX / 2)
        grown = kb_grow_array(record->array, before + count, room > 0 ? 1 : FIRST_ROOM,
                              sizeof *grown, &room);
    if (!grown)
        return false;
    if (!record->array) {
        kb_oplog_link_pe(log, record);
        before = PAST;
        memset(grown, 0, PAST * sizeof *grown);
    }
    record->array = grown;
    record->room = (uint32_t)room;
    record->first = grown + before;
    record->end = record->first + count;
    return true;
}

/* False if there is no memory. */
static bool push_first(kb_oplog *log, const pe_record *record)
{
    return push(&log->agenda, (due_item){.at = record->first->at,
                                         .told_at = record->first->at,
                                         .order = record->first->order,
                                         .pe = (uint64_t)(record - log->pes)});
}

/* A transition became the PE's first one while the log is detailed. */
static void put_on_agenda(kb_oplog *log, const pe_record *record)
{
    if (!push_first(log, record))
        kb_oplog_fail_memory(log);
}

transition *kb_oplog_insert(kb_oplog *log, pe_record *record, kb_time at)
{
    if (record->end == record->array + record->room && !make_room(log, record)) {
        kb_oplog_fail_memory(log);
        return NULL;
    }
    record->append_limit = log->detailed ? NULL : record->array + record->room;
    transition *t = record->end++;
    for (; t > record->first && t[-1].at > at; t--)
        *t = t[-1];
    t->at = at;
    t->order = log->told_ahead++;
    if (t == record->first && log->detailed)
        put_on_agenda(log, record);
    else if (!log->detailed && at < record->next_due)
        record->next_due = at;
    return t;
}

void kb_oplog_apply_in_order(kb_oplog *log)
{
    while (log->agenda.count > 0 && log->agenda.items[0].at <= log->clock->now) {
        due_item next = pop(&log->agenda);
        pe_record *record = &log->pes[next.pe];
        const transition *first = record->first;
        if (first == record->end || first->at != next.at || first->order != next.order)
            continue;
        kb_oplog_apply_first(log, record);
        if (record->first != record->end)
            put_on_agenda(log, record);
    }
}

void kb_oplog_apply_all_due(kb_oplog *log)
{
    if (log->detailed)
        kb_oplog_apply_in_order(log);
    for (uint32_t next = log->ahead_pes; next != 0 && !log->detailed;) {
        pe_record *record = &log->pes[next - 1];
        catch_up(log, record);
        next = record->next_ahead;
    }
}

bool kb_oplog_make_agenda(kb_oplog *log)
{
    if (log->detailed)
        return true;
    log->agenda.count = 0;
    for (uint64_t pe = 0; pe <= log->pe_count; pe++) {
        pe_record *record = &log->pes[pe];
        if (record->next_due == 0 && !record->buffer)
            continue;
        kb_oplog_apply_due(log, record);
        kb_oplog_pass_engines(log, record, log->clock->now);
        kb_oplog_count_worked(log, record);
        kb_oplog_count_runs(log, record);
        record->change_limit = NULL;
        record->edge_limit = NULL;
        record->span_limit = NULL;
        record->next_due = 0;
    }
    for (uint32_t next = log->ahead_pes; next != 0; next = log->pes[next - 1].next_ahead) {
        pe_record *record = &log->pes[next - 1];
        record->append_limit = NULL;
        record->op_limit = NULL;
        for (transition *t = record->first; t < record->end; t++)
            t->order = log->told_ahead++;
        if (record->first != record->end && !push_first(log, record))
            return false;
    }
    return true;
}

/* ---- Records ------------------------------------------------------------------------------ */

void kb_oplog_keep_record(kb_oplog *log, const kb_op *op, kb_time told_at)
{
    size_t accesses = op->access_count * sizeof *op->accesses;
    early_op *kept = kb_alloc_array(1, sizeof *kept + accesses);
    if (!kept ||
        !push(&log->early,
              (due_item){
                  .at = op->end, .told_at = told_at, .order = log->told_ahead++, .record = kept})) {
        free(kept);
        kb_oplog_fail_memory(log);
        return;
    }
    kept->is_span = told_at < op->end;
    kept->op = *op;
    if (accesses > 0) {
        memcpy(kept->accesses, op->accesses, accesses);
        kept->op.accesses = kept->accesses;
    }
}

void kb_oplog_show_early(kb_oplog *log)
{
    while (log->early.count > 0 && log->early.items[0].at <= log->clock->now) {
        early_op *record = pop(&log->early).record;
        log->watch(log->watcher, &record->op);
        free(record);
    }
}

void kb_oplog_show_due(kb_oplog *log)
{
    kb_oplog_apply_all_due(log);
    if (log->watch)
        kb_oplog_show_early(log);
}

static int compare_items(const void *a, const void *b)
{
    return comes_before(a, b) ? -1 : comes_before(b, a);
}

/* Shows the spans that have begun, and keeps the others: sorted, which is a heap too. */
static void show_spans(kb_oplog *log)
{
    due_heap *early = &log->early;
    size_t kept = 0;
    if (early->count > 0)
        qsort(early->items, early->count, sizeof *early->items, compare_items);
    for (size_t i = 0; i < early->count; i++) {
        early_op *record = early->items[i].record;
        if (!record->is_span || record->op.start > log->clock->now) {
            early->items[kept++] = early->items[i];
            continue;
        }
        log->watch(log->watcher, &record->op);
        free(record);
    }
    early->count = kept;
}

void kb_oplog_flush(kb_oplog *log)
{
    kb_oplog_apply_all_due(log);
    if (log->watch) {
        kb_oplog_show_early(log);
        show_spans(log);
    }
    kb_oplog_flush_states(log);
}

static void drop_records(kb_oplog *log)
{
    for (size_t i = 0; i < log->early.count; i++)
        free(log->early.items[i].record);
    log->early.count = 0;
}

void kb_oplog_watch(kb_oplog *log, kb_op_fn *fn, void *self)
{
    kb_oplog_flush(log);
    if (!fn)
        drop_records(log);
    log->watch = fn;
    log->watcher = self;
    log->watched = fn || log->profile;
    for (uint32_t next = log->ahead_pes; next != 0; next = log->pes[next - 1].next_ahead)
        log->pes[next - 1].op_limit = NULL; /* kb_oplog_work() looks again */
}

void kb_oplog_drop_ahead(kb_oplog *log)
{
    drop_records(log);
    kb_vec_fini(&log->early);
    kb_vec_fini(&log->agenda);
    for (uint32_t next = log->ahead_pes; next != 0; next = log->pes[next - 1].next_ahead) {
        free(log->pes[next - 1].array);
        free(log->pes[next - 1].ops);
        free(log->pes[next - 1].buffer);
    }
}
