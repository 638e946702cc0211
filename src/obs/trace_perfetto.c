/*
 * trace_perfetto.c: a trace in Perfetto's own format: a sequence of packets, each a protocol buffer
 * with a TrackDescriptor or a TrackEvent (docs/decisions/0037-report-and-traces.md has the fields).
 *
 * Invariant: a packet refers only to tracks and texts that it or an earlier packet has defined. All
 * texts of slices are interned; when the table was cleared, the next packet says so.
 *
 * Perfetto's clock counts whole nanoseconds. Times are rounded down, which keeps slices of a thread
 * apart; the arguments start_fs and end_fs are exact.
 */
#include "trace_writer.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/base.h"
#include "intern.h"
#include "protobuf.h"
#include "trace_slice.h"

/* Fields, by message. */
enum {
    TRACE_PACKET = 1,

    PACKET_TIMESTAMP = 8,
    PACKET_SEQUENCE = 10,
    PACKET_EVENT = 11,
    PACKET_INTERNED = 12,
    PACKET_FLAGS = 13,
    PACKET_DESCRIPTOR = 60,

    TRACK_UUID = 1,
    TRACK_NAME = 2,
    TRACK_PROCESS = 3,
    TRACK_PARENT = 5,
    TRACK_COUNTER = 8,
    TRACK_CHILD_ORDER = 11,
    TRACK_RANK = 12,

    PROCESS_ID = 1,
    PROCESS_NAME = 6,
    PROCESS_LABELS = 8,

    COUNTER_UNIT_NAME = 6,

    EVENT_CATEGORIES = 3,
    EVENT_ANNOTATIONS = 4,
    EVENT_TYPE = 9,
    EVENT_NAME = 10,
    EVENT_TRACK = 11,
    EVENT_DOUBLE_VALUE = 44,
    EVENT_FLOWS = 47,
    EVENT_ENDING_FLOWS = 48,

    ANNOTATION_NAME = 1,
    ANNOTATION_BOOL = 2,
    ANNOTATION_UINT = 3,
    ANNOTATION_STRING = 6,
    ANNOTATION_DICT = 11,
    ANNOTATION_ARRAY = 12,
    ANNOTATION_INTERNED_STRING = 17,

    INTERNED_NUMBER = 1,
    INTERNED_TEXT = 2,
};

/* Values of fields. */
enum {
    SEQUENCE = 1, /* there is only one */
    STATE_CLEARED = 1,
    NEEDS_STATE = 2,
    ORDER_BY_RANK = 3,
    SLICE_BEGIN = 1,
    SLICE_END = 2,
    COUNTER = 4,
};

typedef enum text_kind { CATEGORIES, NAMES, KEYS, STRINGS } text_kind;

/* The field of each kind in the interned data of a packet. */
static const uint32_t interned_fields[INTERN_KINDS] = {
    [CATEGORIES] = 1,
    [NAMES] = 2,
    [KEYS] = 3,
    [STRINGS] = 29,
};

typedef struct perfetto_writer {
    trace_writer base;
    intern texts;
    bool cleared;  /* the next packet begins with no interned texts */
    kb_text fresh; /* texts that the packet interns */
    kb_text event; /* the body of the packet */
    kb_text packet;
    kb_text labels[2]; /* of the host: program and machine */
} perfetto_writer;

/* ---- Numbers of tracks ------------------------------------------------------------------- */

/* Different for all tracks of a trace, and not 0. */
static uint64_t process_uuid(uint64_t process)
{
    return process << 40 | (uint64_t)1 << 39;
}

static uint64_t group_uuid(uint64_t process, uint64_t group)
{
    return process << 40 | (uint64_t)1 << 38 | group;
}

static uint64_t thread_uuid(const trace_thread *at)
{
    return at->process << 40 | at->thread;
}

static uint64_t counter_uuid(uint64_t number)
{
    return (uint64_t)1 << 63 | number;
}

static uint64_t parent_uuid(uint64_t process, uint64_t group)
{
    return group == TRACE_NO_GROUP ? process_uuid(process) : group_uuid(process, group);
}

/* ---- Packets ----------------------------------------------------------------------------- */

static void clear(kb_text *text)
{
    text->length = 0;
}

static void begin_packet(perfetto_writer *w)
{
    if (intern_is_large(&w->texts)) {
        intern_fini(&w->texts);
        w->cleared = true;
    }
    clear(&w->fresh);
    clear(&w->event);
}

/* Writes a packet with the body as this field. */
static void end_packet(perfetto_writer *w, uint32_t field, const kb_time *time)
{
    kb_text *packet = &w->packet;
    clear(packet);
    size_t begun = pb_begin(packet, TRACE_PACKET);
    if (time)
        pb_put_uint(packet, PACKET_TIMESTAMP, (uint64_t)(*time / KB_NS));
    pb_put_uint(packet, PACKET_SEQUENCE, SEQUENCE);
    pb_put_uint(packet, PACKET_FLAGS, w->cleared ? STATE_CLEARED | NEEDS_STATE : NEEDS_STATE);
    w->cleared = false;
    if (w->fresh.length > 0)
        pb_put_bytes(packet, PACKET_INTERNED, &w->fresh);
    pb_put_bytes(packet, field, &w->event);
    pb_end(packet, begun);
    if (packet->failed || w->fresh.failed)
        w->base.failed = true;
    else
        fwrite(packet->bytes, 1, packet->length, w->base.file);
}

/* The number of the text, which the packet defines if it is new. */
static uint64_t number_of(perfetto_writer *w, text_kind kind, const char *text)
{
    bool fresh;
    uint32_t number = intern_text(&w->texts, kind, text, &fresh);
    if (number == 0)
        w->base.failed = true;
    if (fresh) {
        size_t begun = pb_begin(&w->fresh, interned_fields[kind]);
        pb_put_uint(&w->fresh, INTERNED_NUMBER, number);
        pb_put_text(&w->fresh, INTERNED_TEXT, text);
        pb_end(&w->fresh, begun);
    }
    return number;
}

/* ---- Tracks ------------------------------------------------------------------------------ */

static perfetto_writer *begin_track(trace_writer *base, uint64_t uuid, const char *name)
{
    perfetto_writer *w = (perfetto_writer *)base;
    begin_packet(w);
    pb_put_uint(&w->event, TRACK_UUID, uuid);
    pb_put_text(&w->event, TRACK_NAME, name);
    return w;
}

static void put_place(perfetto_writer *w, uint64_t parent, uint64_t rank)
{
    pb_put_uint(&w->event, TRACK_PARENT, parent);
    pb_put_uint(&w->event, TRACK_RANK, rank < INT32_MAX ? rank : INT32_MAX);
}

static void name_process(trace_writer *base, uint64_t process, const char *name)
{
    perfetto_writer *w = begin_track(base, process_uuid(process), name);
    size_t begun = pb_begin(&w->event, TRACK_PROCESS);
    pb_put_uint(&w->event, PROCESS_ID, process);
    pb_put_text(&w->event, PROCESS_NAME, name);
    for (int i = 0; process == TRACE_HOST && i < 2; i++)
        pb_put_text(&w->event, PROCESS_LABELS, kb_text_peek(&w->labels[i]));
    pb_end(&w->event, begun);
    pb_put_uint(&w->event, TRACK_CHILD_ORDER, ORDER_BY_RANK);
    end_packet(w, PACKET_DESCRIPTOR, NULL);
}

static void name_group(trace_writer *base, uint64_t process, uint64_t group)
{
    char name[32];
    snprintf(name, sizeof name, "pe%" PRIu64, group);
    perfetto_writer *w = begin_track(base, group_uuid(process, group), name);
    put_place(w, process_uuid(process), group);
    pb_put_uint(&w->event, TRACK_CHILD_ORDER, ORDER_BY_RANK);
    end_packet(w, PACKET_DESCRIPTOR, NULL);
}

static void name_thread(trace_writer *base, const trace_thread *at, const char *name)
{
    perfetto_writer *w = begin_track(base, thread_uuid(at), name);
    put_place(w, parent_uuid(at->process, at->group), at->thread);
    end_packet(w, PACKET_DESCRIPTOR, NULL);
}

/* Counters come before the threads beside them. */
static void name_counter(trace_writer *base, const trace_counter *counter)
{
    perfetto_writer *w = begin_track(base, counter_uuid(counter->number), counter->name);
    put_place(w, parent_uuid(counter->process, counter->group), 0);
    size_t begun = pb_begin(&w->event, TRACK_COUNTER);
    pb_put_text(&w->event, COUNTER_UNIT_NAME, counter->unit);
    pb_end(&w->event, begun);
    end_packet(w, PACKET_DESCRIPTOR, NULL);
}

/* ---- Arguments --------------------------------------------------------------------------- */

static size_t begin_annotation(perfetto_writer *w, uint32_t field, const char *key)
{
    size_t begun = pb_begin(&w->event, field);
    if (key)
        pb_put_uint(&w->event, ANNOTATION_NAME, number_of(w, KEYS, key));
    return begun;
}

static void add_number(perfetto_writer *w, uint32_t field, const char *key, uint64_t number)
{
    size_t begun = begin_annotation(w, field, key);
    pb_put_uint(&w->event, ANNOTATION_UINT, number);
    pb_end(&w->event, begun);
}

static void add_text(perfetto_writer *w, uint32_t field, const char *key, const char *text)
{
    size_t begun = begin_annotation(w, field, key);
    pb_put_uint(&w->event, ANNOTATION_INTERNED_STRING, number_of(w, STRINGS, text));
    pb_end(&w->event, begun);
}

static void put_text(void *self, const char *key, const char *text)
{
    add_text(self, EVENT_ANNOTATIONS, key, text);
}

static void put_number(void *self, const char *key, uint64_t number)
{
    add_number(self, EVENT_ANNOTATIONS, key, number);
}

static void put_truth(void *self, const char *key)
{
    perfetto_writer *w = self;
    size_t begun = begin_annotation(w, EVENT_ANNOTATIONS, key);
    pb_put_uint(&w->event, ANNOTATION_BOOL, 1);
    pb_end(&w->event, begun);
}

static void put_accesses(void *self, const char *key, const kb_op *op)
{
    perfetto_writer *w = self;
    size_t begun = begin_annotation(w, EVENT_ANNOTATIONS, key);
    for (size_t i = 0; i < op->access_count; i++) {
        obs_access a = obs_describe_access(&op->accesses[i]);
        size_t item = begin_annotation(w, ANNOTATION_ARRAY, NULL);
        add_text(w, ANNOTATION_DICT, "tensor", a.tensor);
        add_text(w, ANNOTATION_DICT, "dtype", a.dtype);
        add_text(w, ANNOTATION_DICT, "access", a.access);
        add_number(w, ANNOTATION_DICT, a.first_key, a.first);
        add_number(w, ANNOTATION_DICT, a.end_key, a.end);
        pb_end(&w->event, item);
    }
    pb_end(&w->event, begun);
}

/* Has the number of a record, so each is another text. */
static void put_reason(void *self, const char *key, const char *text)
{
    perfetto_writer *w = self;
    size_t begun = begin_annotation(w, EVENT_ANNOTATIONS, key);
    pb_put_text(&w->event, ANNOTATION_STRING, text);
    pb_end(&w->event, begun);
}

static const obs_args_ops args = {
    .text = put_text,
    .number = put_number,
    .truth = put_truth,
    .accesses = put_accesses,
    .reason = put_reason,
};

/* ---- Events ------------------------------------------------------------------------------ */

static void begin_event(perfetto_writer *w, uint64_t type, uint64_t track)
{
    begin_packet(w);
    pb_put_uint(&w->event, EVENT_TYPE, type);
    pb_put_uint(&w->event, EVENT_TRACK, track);
}

static void put_flow(perfetto_writer *w, uint32_t field, uint64_t flow)
{
    if (flow != 0)
        pb_put_fixed64(&w->event, field, flow);
}

static void put_slice(trace_writer *base, const trace_slice *slice)
{
    perfetto_writer *w = (perfetto_writer *)base;
    begin_event(w, SLICE_BEGIN, thread_uuid(&slice->at));
    pb_put_uint(&w->event, EVENT_CATEGORIES, number_of(w, CATEGORIES, slice->category));
    pb_put_uint(&w->event, EVENT_NAME, number_of(w, NAMES, slice->title));
    put_flow(w, EVENT_FLOWS, slice->flow_from_start);
    put_flow(w, EVENT_ENDING_FLOWS, slice->flow_to_start);
    put_number(w, "start_fs", (uint64_t)slice->start);
    put_number(w, "end_fs", (uint64_t)slice->end);
    if (slice->op)
        obs_visit_args(slice->op, &args, w);
    for (size_t i = 0; i < slice->note_count; i++)
        put_number(w, slice->notes[i].key, slice->notes[i].number);
    end_packet(w, PACKET_EVENT, &slice->start);
    begin_event(w, SLICE_END, thread_uuid(&slice->at));
    put_flow(w, EVENT_ENDING_FLOWS, slice->flow_to_end);
    end_packet(w, PACKET_EVENT, &slice->end);
}

static void put_counter(trace_writer *base, const trace_counter *counter, kb_time time,
                        double value)
{
    perfetto_writer *w = (perfetto_writer *)base;
    begin_event(w, COUNTER, counter_uuid(counter->number));
    pb_put_double(&w->event, EVENT_DOUBLE_VALUE, value);
    end_packet(w, PACKET_EVENT, &time);
}

static void close_trace(trace_writer *base)
{
    perfetto_writer *w = (perfetto_writer *)base;
    intern_fini(&w->texts);
    kb_text_fini(&w->fresh);
    kb_text_fini(&w->event);
    kb_text_fini(&w->packet);
    for (int i = 0; i < 2; i++)
        kb_text_fini(&w->labels[i]);
    free(w);
}

static const trace_writer_ops ops = {
    .name_process = name_process,
    .name_group = name_group,
    .name_thread = name_thread,
    .put_slice = put_slice,
    .name_counter = name_counter,
    .put_counter = put_counter,
    .close = close_trace,
};

trace_writer *trace_perfetto_create(FILE *file, const kb_machine *machine)
{
    perfetto_writer *w = kb_alloc_zeroed(1, sizeof *w);
    if (!w)
        return NULL;
    w->base = (trace_writer){.ops = &ops, .file = file};
    w->cleared = true;
    kb_text_printf(&w->labels[0], "kernbench %s", kb_version());
    kb_text_printf(&w->labels[1], "machine %s", machine->name);
    w->base.failed = w->labels[0].failed || w->labels[1].failed;
    return &w->base;
}
