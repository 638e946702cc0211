/*
 * trace.c: the trace of a run: see trace.h.
 *
 * Invariants: slices of a thread do not overlap. An arrow begins at the start of a slice and ends
 * in a slice, or at the start of one of no duration; it does not go back in time. Operations come
 * in order of their ends; each goes to the lane of its unit that became free last before its start.
 * So there are as many lanes as simultaneous operations.
 *
 * An arrow needs both its ends. Kernels end before their launch, so they are kept until the launch
 * ends; without that (the run failed) they have no arrow. The first part of a message is kept until
 * its receive ends.
 */
#include "trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "bins.h"
#include "topo/topo.h"
#include "trace_slice.h"
#include "trace_writer.h"

/* The threads of a PE, in the order of display. */
typedef enum track_kind {
    KERNELS,
    STATE,
    CPU,
    SCHEDULER,
    GEMM,
    MATH,
    DMA_READ,
    DMA_WRITE,
    IPCQ,
    WAITS,
    PE_TRACKS
} track_kind;

static const struct {
    const char *name;
    bool numbered; /* the first lane has a number as well */
} kinds[PE_TRACKS] = {
    [KERNELS] = {"kernel", false},      [STATE] = {"state", false},
    [CPU] = {"pe_cpu", false},          [SCHEDULER] = {"pe_scheduler", false},
    [GEMM] = {"pe_gemm", false},        [MATH] = {"pe_math", false},
    [DMA_READ] = {"pe_dma read", true}, [DMA_WRITE] = {"pe_dma write", true},
    [IPCQ] = {"pe_ipcq", false},        [WAITS] = {"waiting for communication", false},
};

enum {
    HOST_PROCESS = TRACE_HOST,
    FABRIC_PROCESS = 2,
    FIRST_CUBE = 3,   /* the process of cube 0 of SIP 0 */
    MAX_LANES = 10000 /* of a unit: thread numbers have room for as many */
};

/* The end of the last operation of each lane. */
typedef struct lanes {
    KB_VEC(kb_time) ends;
} lanes;

typedef struct pe_tracks {
    lanes of[PE_TRACKS];
} pe_tracks;

/* A slice that an arrow can begin or end at. */
typedef struct anchor {
    trace_thread at;
    kb_time start, end;
} anchor;

typedef struct waiting {
    uint64_t launch;
    anchor kernel;
} waiting;

/* A message that was sent but not received yet. */
typedef struct sent {
    uint64_t message;
    anchor send;
    uint64_t pe; /* the sender */
} sent;

/* A count of bytes that is shown as a bandwidth. */
typedef struct bandwidth {
    uint64_t process;
    char *name;
    char *utilization_name; /* of its share of the peak; NULL: not shown */
    uint64_t peak;          /* bytes per second; 0: not known */
} bandwidth;

/* Levels of a PE, which are shown with their peaks. */
typedef enum level_kind { TCM_LEVEL, QUEUE_LEVEL, PE_LEVELS } level_kind;

static const struct {
    const char *name, *unit;
} levels[PE_LEVELS] = {
    [TCM_LEVEL] = {"TCM in use", "bytes"},
    [QUEUE_LEVEL] = {"messages sent, not received", "messages"},
};

struct obs_trace {
    FILE *file;
    trace_writer *writer;
    char *name;       /* of the file, for messages */
    topo_shape shape; /* its counts and pe_count alone */
    lanes host;
    pe_tracks **tracks; /* by PE; NULL before its first operation */
    bool *named;        /* by process: its name was written */
    bool *group_named;  /* by PE */
    uint64_t *queued;   /* by PE: messages that it sent and that were not received */
    uint64_t counter_tracks;
    KB_VEC(waiting) kernels;
    KB_VEC(sent) messages; /* by number */
    uint64_t arrows;
    KB_VEC(bandwidth) counters;
    obs_sample_fn *sample; /* NULL: there are no counters of bytes */
    void *sample_self;
    uint64_t *totals; /* of the last sample */
    obs_bins bins;
    kb_time last;  /* the latest time of any call */
    bool has_path; /* the track of the critical path was named */
    int error;     /* the first errno; 0: none */
};

static void fail(obs_trace *t, int error)
{
    if (t->error == 0)
        t->error = error != 0 ? error : EIO;
}

/* ---- Lanes ------------------------------------------------------------------------------- */

/* The lane that became free last before `start`, or a new one: then its number is the old count. */
static size_t choose_lane(const lanes *track, kb_time start)
{
    size_t best = track->ends.count;
    for (size_t i = 0; i < track->ends.count; i++) {
        kb_time end = track->ends.items[i];
        if (end <= start && (best == track->ends.count || end > track->ends.items[best]))
            best = i;
    }
    return best;
}

/* False if out of memory. */
static bool take_lane(lanes *track, const kb_op *op, size_t *lane, bool *fresh)
{
    *lane = choose_lane(track, op->start);
    *fresh = *lane == track->ends.count;
    if (*fresh)
        return *lane < MAX_LANES && kb_vec_push(&track->ends, op->end);
    track->ends.items[*lane] = op->end;
    return true;
}

static track_kind kind_of(const kb_op *op)
{
    switch (op->unit) {
    case KB_UNIT_DMA_READ:
        return DMA_READ;
    case KB_UNIT_DMA_WRITE:
        return DMA_WRITE;
    case KB_UNIT_GEMM:
        return GEMM;
    case KB_UNIT_MATH:
        return MATH;
    case KB_UNIT_SCHEDULER:
        return SCHEDULER;
    case KB_UNIT_IPCQ:
        return obs_is_wait(op) ? WAITS : IPCQ;
    default:
        return obs_is_kernel(op) ? KERNELS : CPU;
    }
}

static uint64_t pe_number(const obs_trace *t, kb_pe pe)
{
    KB_ASSERT(topo_has_pe(&t->shape, pe));
    return topo_pe_index(&t->shape, pe);
}

static lanes *track_of(obs_trace *t, const kb_op *op, track_kind kind)
{
    uint64_t pe = pe_number(t, op->pe);
    if (!t->tracks[pe])
        t->tracks[pe] = kb_alloc_zeroed(1, sizeof *t->tracks[pe]);
    return t->tracks[pe] ? &t->tracks[pe]->of[kind] : NULL;
}

static uint64_t process_of(const obs_trace *t, kb_pe pe)
{
    return FIRST_CUBE + topo_cube_index(&t->shape, pe);
}

static void name_process(obs_trace *t, uint64_t process)
{
    if (t->named[process])
        return;
    char name[64] = "host";
    if (process == FABRIC_PROCESS)
        snprintf(name, sizeof name, "fabric");
    else if (process != HOST_PROCESS)
        snprintf(name, sizeof name, "%s",
                 topo_cube_name(topo_pe_at(&t->shape, (process - FIRST_CUBE) * t->shape.pes)).text);
    t->writer->ops->name_process(t->writer, process, name);
    t->named[process] = true;
}

/* And the process that it is in. */
static void name_group(obs_trace *t, uint64_t process, uint64_t pe)
{
    name_process(t, process);
    if (t->group_named[pe])
        return;
    t->group_named[pe] = true;
    if (t->writer->ops->name_group)
        t->writer->ops->name_group(t->writer, process, pe % t->shape.pes);
}

static void name_thread(obs_trace *t, const anchor *at, const kb_op *op, size_t lane)
{
    char name[64];
    track_kind kind = kind_of(op);
    if (at->at.process == HOST_PROCESS)
        snprintf(name, sizeof name, "requests %zu", lane);
    else if (lane > 0 || kinds[kind].numbered)
        snprintf(name, sizeof name, "pe%u %s %zu", op->pe.pe, kinds[kind].name, lane);
    else
        snprintf(name, sizeof name, "pe%u %s", op->pe.pe, kinds[kind].name);
    t->writer->ops->name_thread(t->writer, &at->at, name);
}

/* The thread of a lane of a PE's unit. */
static trace_thread thread_of(const obs_trace *t, kb_pe pe, track_kind kind, size_t lane)
{
    return (trace_thread){
        .process = process_of(t, pe),
        .group = pe.pe,
        .thread = ((uint64_t)pe.pe * PE_TRACKS + kind) * MAX_LANES + lane + 1,
    };
}

/* Assigns the operation to a lane, and writes the names of a new process and thread. */
static bool assign_lane(obs_trace *t, const kb_op *op, anchor *at)
{
    bool on_host = op->unit == KB_UNIT_HOST, fresh;
    track_kind kind = kind_of(op);
    lanes *track = on_host ? &t->host : track_of(t, op, kind);
    size_t lane;
    if (!track || !take_lane(track, op, &lane, &fresh))
        return false;
    at->start = op->start;
    at->end = op->end;
    if (on_host) {
        at->at = (trace_thread){HOST_PROCESS, TRACE_NO_GROUP, lane + 1};
        name_process(t, HOST_PROCESS);
    } else {
        at->at = thread_of(t, op->pe, kind, lane);
        name_group(t, at->at.process, pe_number(t, op->pe));
    }
    if (fresh)
        name_thread(t, at, op, lane);
    return true;
}

/* ---- Operations -------------------------------------------------------------------------- */

/* Operations that count as busy time of a unit have the name of the unit. */
static const char *category_of(const kb_op *op)
{
    switch (op->unit == KB_UNIT_HOST ? PE_TRACKS : kind_of(op)) {
    case KERNELS:
        return "kernel";
    case WAITS:
        return "wait";
    default:
        return op->unfinished ? "unfinished" : kb_unit_name(op->unit);
    }
}

/* The last time that a viewer binds to a slice. */
static kb_time last_instant(kb_time start, kb_time end)
{
    return end > start ? end - 1 : start;
}

/* The index of the message in the sorted list, or the index to insert it at. */
static size_t find_message(const obs_trace *t, uint64_t message)
{
    size_t low = 0, high = t->messages.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (t->messages.items[middle].message < message)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* NULL if it was not sent, or was received. */
static const sent *find_sent(const obs_trace *t, uint64_t message)
{
    size_t at = find_message(t, message);
    return at < t->messages.count && t->messages.items[at].message == message
               ? &t->messages.items[at]
               : NULL;
}

/* Flows have one number for each launch and each message. */
static uint64_t launch_flow(uint64_t launch)
{
    return 2 * launch;
}

static uint64_t message_flow(uint64_t message)
{
    return 2 * message + 1;
}

/* Sets the flows of an operation. Kernels end before their launch does: whether it will is not
 * known yet. */
static void set_flows(const obs_trace *t, const kb_op *op, trace_slice *slice)
{
    bool waits = op->unit != KB_UNIT_HOST && kind_of(op) == WAITS;
    const sent *message = op->message != 0 ? find_sent(t, op->message) : NULL;
    if (waits && message && last_instant(op->start, op->end) >= message->send.start)
        slice->flow_to_end = message_flow(op->message);
    if (!waits && !message && op->message != 0)
        slice->flow_from_start = message_flow(op->message);
    if (op->launch != 0 && op->unit == KB_UNIT_HOST)
        slice->flow_from_start = launch_flow(op->launch);
    else if (op->launch != 0 && kind_of(op) == KERNELS)
        slice->flow_to_start = launch_flow(op->launch);
}

/* False if out of memory. */
static bool put_slice(obs_trace *t, const kb_op *op, const anchor *at)
{
    kb_text title = KB_TEXT_INIT;
    obs_compose_title(op, &title);
    bool whole = !title.failed;
    trace_slice slice = {
        .at = at->at,
        .start = op->start,
        .end = op->end,
        .category = category_of(op),
        .title = kb_text_peek(&title),
        .op = op,
    };
    set_flows(t, op, &slice);
    t->writer->ops->put_slice(t->writer, &slice);
    kb_text_fini(&title);
    return whole;
}

/* An arrow from the start of a slice to this time in another one. */
static void put_arrow(obs_trace *t, const char *name, const anchor *from, const anchor *to,
                      kb_time time)
{
    if (time < from->start || !t->writer->ops->put_arrow)
        return;
    trace_arrow arrow = {
        .name = name,
        .number = ++t->arrows,
        .from = from->at,
        .to = to->at,
        .from_time = from->start,
        .to_time = time,
    };
    t->writer->ops->put_arrow(t->writer, &arrow);
}

/* Writes the arrows to the kernels of the launch, and drops the kernels. */
static void put_arrows(obs_trace *t, uint64_t launch, const anchor *from)
{
    size_t kept = 0;
    for (size_t i = 0; i < t->kernels.count; i++) {
        const waiting *w = &t->kernels.items[i];
        if (w->launch != launch) {
            t->kernels.items[kept++] = *w;
            continue;
        }
        put_arrow(t, "launch", from, &w->kernel, w->kernel.start);
    }
    t->kernels.count = kept;
}

/* Changes the number of messages that the PE sent and that were not received. */
static bool count_queued(obs_trace *t, uint64_t pe, bool more)
{
    t->queued[pe] += more ? 1 : UINT64_MAX;
    return obs_bins_set_level(&t->bins, pe * PE_LEVELS + QUEUE_LEVEL, t->queued[pe]);
}

/* Keeps the first part of a message, where its arrow begins. False if out of memory. */
static bool keep_message(obs_trace *t, const kb_op *op, const anchor *send)
{
    uint64_t message = op->message, pe = pe_number(t, op->pe);
    size_t at = find_message(t, message);
    if (at < t->messages.count && t->messages.items[at].message == message)
        return true;
    if (!kb_vec_reserve(&t->messages, 1))
        return false;
    sent *items = t->messages.items;
    memmove(&items[at + 1], &items[at], (t->messages.count++ - at) * sizeof *items);
    items[at] = (sent){message, *send, pe};
    return count_queued(t, pe, true);
}

/* False if out of memory. */
static bool end_message(obs_trace *t, uint64_t message, const anchor *receive)
{
    size_t at = find_message(t, message);
    sent *items = t->messages.items;
    if (at == t->messages.count || items[at].message != message)
        return true;
    uint64_t pe = items[at].pe;
    put_arrow(t, "message", &items[at].send, receive, last_instant(receive->start, receive->end));
    memmove(&items[at], &items[at + 1], (--t->messages.count - at) * sizeof *items);
    return count_queued(t, pe, false);
}

/* False if out of memory. */
static bool put_op(obs_trace *t, const kb_op *op)
{
    anchor at;
    if (!assign_lane(t, op, &at) || !put_slice(t, op, &at))
        return false;
    if (op->message != 0 && kind_of(op) == WAITS) {
        if (!end_message(t, op->message, &at))
            return false;
    } else if (op->message != 0 && !keep_message(t, op, &at)) {
        return false;
    }
    if (op->launch == 0)
        return true;
    if (op->unit == KB_UNIT_HOST)
        put_arrows(t, op->launch, &at);
    else if (kind_of(op) == KERNELS)
        return kb_vec_push(&t->kernels, ((waiting){op->launch, at}));
    return true;
}

/* ---- Counters ---------------------------------------------------------------------------- */

/* Reads the totals, and returns their time. */
static kb_time sample(const obs_trace *t)
{
    return t->sample ? t->sample(t->sample_self, t->totals) : t->last;
}

/* Advances the time of the counters; operations may be added later than their end. */
static void note_time(obs_trace *t, kb_time time)
{
    if (time <= t->last)
        return;
    t->last = time;
    if (!obs_bins_is_due(&t->bins, time))
        return;
    kb_time now = sample(t);
    if (obs_bins_is_due(&t->bins, now))
        obs_bins_end_bin(&t->bins, now, t->totals);
}

static kb_error *add_counters(obs_trace *t, const obs_counters *counters)
{
    KB_ASSERT(!t->totals && t->bins.count == 0);
    t->totals = kb_alloc_zeroed(counters->count, sizeof *t->totals);
    if (!t->totals || !kb_vec_reserve(&t->counters, counters->count))
        return kb_error_nomem();
    for (size_t i = 0; i < counters->count; i++) {
        const obs_counter *c = &counters->items[i];
        kb_text name = KB_TEXT_INIT;
        kb_text_puts(&name, c->name);
        char *copy = kb_text_take(&name);
        if (!copy)
            return kb_error_nomem();
        uint64_t process = c->of_cube ? process_of(t, c->cube) : FABRIC_PROCESS;
        t->counters.items[t->counters.count++] = (bandwidth){process, copy, NULL, 0};
    }
    obs_bins_fini(&t->bins);
    KB_TRY(obs_bins_init(&t->bins, counters->count, t->shape.pe_count * PE_LEVELS));
    t->sample = counters->sample;
    t->sample_self = counters->self;
    return NULL;
}

kb_error *obs_trace_count(obs_trace *t, const obs_counters *counters)
{
    kb_error *err = add_counters(t, counters);
    if (err)
        fail(t, ENOMEM);
    return err;
}

void obs_trace_tcm(obs_trace *t, kb_pe pe, kb_time now, uint64_t bytes)
{
    if (t->error != 0)
        return;
    note_time(t, now);
    if (!obs_bins_set_level(&t->bins, pe_number(t, pe) * PE_LEVELS + TCM_LEVEL, bytes))
        fail(t, ENOMEM);
}

kb_error *obs_trace_set_peak(obs_trace *t, size_t which, const char *name, uint64_t bytes_per_s)
{
    KB_ASSERT(which < t->counters.count && !t->counters.items[which].utilization_name);
    kb_text text = KB_TEXT_INIT;
    kb_text_puts(&text, name);
    char *copy = kb_text_take(&text);
    if (!copy) {
        fail(t, ENOMEM);
        return kb_error_nomem();
    }
    t->counters.items[which].utilization_name = copy;
    t->counters.items[which].peak = bytes_per_s;
    return NULL;
}

/* A counter track that is being written; equal consecutive values are written once. */
typedef struct track {
    trace_writer *writer;
    trace_counter counter;
    double value; /* the last one written; negative: none */
} track;

static void put_value(track *at, kb_time time, double value)
{
    if (value < at->value || value > at->value)
        at->writer->ops->put_counter(at->writer, &at->counter, time, value);
    at->value = value;
}

static track begin_counter(obs_trace *t, trace_counter counter)
{
    counter.number = ++t->counter_tracks;
    if (t->writer->ops->name_counter)
        t->writer->ops->name_counter(t->writer, &counter);
    return (track){t->writer, counter, -1};
}

/* What the counter grew by in each bin, by time: times `scale`, if that is bytes by femtosecond. */
static void put_rates(obs_trace *t, size_t which, const char *name, const char *unit, double scale)
{
    const obs_bins *bins = &t->bins;
    uint64_t process = t->counters.items[which].process;
    track at = begin_counter(t, (trace_counter){process, TRACE_NO_GROUP, 0, name, unit});
    kb_time start = 0;
    for (size_t bin = 0; bin < bins->count; bin++) {
        kb_time width = bins->ends[bin] - start;
        put_value(&at, start, (double)obs_bins_growth(bins, which, bin) * scale / (double)width);
        start = bins->ends[bin];
    }
    put_value(&at, start, 0);
}

/* 1 byte a femtosecond is 10^6 GB/s. */
static void put_bandwidth(obs_trace *t, size_t which)
{
    const bandwidth *c = &t->counters.items[which];
    if (t->bins.totals[which] == 0)
        return;
    name_process(t, c->process);
    put_rates(t, which, c->name, "GB/s", 1e6);
    if (c->utilization_name && c->peak > 0)
        put_rates(t, which, c->utilization_name, "%", 1e15 * 100 / (double)c->peak);
}

/* The peak in each bin, and the level at the end. */
static void put_level(obs_trace *t, uint64_t pe, level_kind kind)
{
    const obs_level *level = t->bins.levels[pe * PE_LEVELS + kind];
    if (!level)
        return;
    char name[64];
    snprintf(name, sizeof name, "pe%" PRIu64 " %s", pe % t->shape.pes, levels[kind].name);
    uint64_t process = FIRST_CUBE + pe / t->shape.pes;
    name_group(t, process, pe);
    track at =
        begin_counter(t, (trace_counter){process, pe % t->shape.pes, 0, name, levels[kind].unit});
    kb_time start = 0;
    for (size_t bin = 0; bin < t->bins.count; bin++) {
        put_value(&at, start, (double)level->peaks[bin]);
        start = t->bins.ends[bin];
    }
    put_value(&at, start, (double)level->now);
}

/* Called at the end of the run. */
static void put_counters(obs_trace *t)
{
    kb_time now = sample(t);
    obs_bins_finish(&t->bins, now, t->totals);
    for (size_t i = 0; i < t->counters.count; i++)
        put_bandwidth(t, i);
    for (uint64_t pe = 0; pe < t->shape.pe_count; pe++)
        for (int kind = 0; kind < PE_LEVELS; kind++)
            put_level(t, pe, (level_kind)kind);
}

static void check_writer(obs_trace *t)
{
    if (t->writer->failed)
        fail(t, ENOMEM);
    if (ferror(t->file))
        fail(t, errno);
}

void obs_trace_op(obs_trace *t, const kb_op *op)
{
    if (t->error != 0)
        return;
    errno = 0;
    note_time(t, op->end);
    if (!put_op(t, op))
        fail(t, ENOMEM);
    check_writer(t);
}

/* ---- States of PEs ----------------------------------------------------------------------- */

/* Finds the PE's track, and writes its name if it is new. False if out of memory. */
static bool find_state_track(obs_trace *t, const kb_op *op, trace_thread *at)
{
    lanes *states = track_of(t, op, STATE);
    if (!states)
        return false;
    *at = thread_of(t, op->pe, STATE, 0);
    if (states->ends.count > 0)
        return true;
    if (!kb_vec_push(&states->ends, 0))
        return false;
    char name[64];
    snprintf(name, sizeof name, "pe%u %s", op->pe.pe, kinds[STATE].name);
    name_group(t, at->process, pe_number(t, op->pe));
    t->writer->ops->name_thread(t->writer, at, name);
    return true;
}

void obs_trace_state(obs_trace *t, uint64_t pe, kb_cause cause, kb_time start, kb_time end)
{
    if (t->error != 0)
        return;
    kb_op op = {.pe = topo_pe_at(&t->shape, pe)};
    trace_slice slice = {
        .start = start, .end = end, .category = "state", .title = kb_cause_name(cause)};
    errno = 0;
    if (find_state_track(t, &op, &slice.at))
        t->writer->ops->put_slice(t->writer, &slice);
    else
        fail(t, ENOMEM);
    check_writer(t);
}

/* ---- The critical path ------------------------------------------------------------------- */

void obs_trace_step(obs_trace *t, const obs_step *step)
{
    if (t->error != 0)
        return;
    trace_slice slice = {
        .at = {HOST_PROCESS, TRACE_NO_GROUP, MAX_LANES + 1}, /* after the lanes of requests */
        .start = step->start,
        .end = step->end,
        .category = "path",
        .title = step->title,
        .notes = step->notes,
        .note_count = step->note_count,
    };
    errno = 0;
    if (!t->has_path) {
        t->has_path = true;
        name_process(t, HOST_PROCESS);
        t->writer->ops->name_thread(t->writer, &slice.at, "critical path");
    }
    t->writer->ops->put_slice(t->writer, &slice);
    check_writer(t);
}

/* ---- Opening and closing ----------------------------------------------------------------- */

static void destroy(obs_trace *t)
{
    for (uint64_t pe = 0; t->tracks && pe < t->shape.pe_count; pe++) {
        for (int kind = 0; t->tracks[pe] && kind < PE_TRACKS; kind++)
            kb_vec_fini(&t->tracks[pe]->of[kind].ends);
        free(t->tracks[pe]);
    }
    kb_vec_fini(&t->host.ends);
    kb_vec_fini(&t->kernels);
    kb_vec_fini(&t->messages);
    for (size_t i = 0; i < t->counters.count; i++) {
        free(t->counters.items[i].name);
        free(t->counters.items[i].utilization_name);
    }
    kb_vec_fini(&t->counters);
    obs_bins_fini(&t->bins);
    free(t->totals);
    free(t->tracks);
    free(t->named);
    free(t->group_named);
    free(t->queued);
    free(t->name);
    free(t);
}

/* Whether the file's name asks for Perfetto's own format. */
static bool is_perfetto(const char *name)
{
    static const char *const endings[] = {".pftrace", ".perfetto-trace"};
    size_t length = strlen(name);
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        size_t size = strlen(endings[i]);
        if (length >= size && strcmp(name + length - size, endings[i]) == 0)
            return true;
    }
    return false;
}

static kb_error *init(obs_trace *t, const char *name, const kb_machine *machine)
{
    uint64_t pes = t->shape.pe_count;
    kb_text copy = KB_TEXT_INIT;
    kb_text_puts(&copy, name);
    t->name = kb_text_take(&copy);
    t->tracks = kb_alloc_zeroed(pes, sizeof(pe_tracks *));
    t->named = kb_alloc_zeroed(FIRST_CUBE + pes / t->shape.pes, sizeof *t->named);
    t->group_named = kb_alloc_zeroed(pes, sizeof *t->group_named);
    t->queued = kb_alloc_zeroed(pes, sizeof *t->queued);
    if (!t->name || !t->tracks || !t->named || !t->group_named || !t->queued)
        return kb_error_nomem();
    KB_TRY(obs_bins_init(&t->bins, 0, pes * PE_LEVELS));
    t->writer = is_perfetto(name) ? trace_perfetto_create(t->file, machine)
                                  : trace_json_create(t->file, machine);
    return t->writer ? NULL : kb_error_nomem();
}

kb_error *obs_trace_create(FILE *file, const char *name, const kb_machine *machine, obs_trace **out)
{
    *out = NULL;
    obs_trace *t = kb_alloc_zeroed(1, sizeof *t);
    if (!t)
        return kb_error_nomem();
    t->file = file;
    t->shape = (topo_shape){.sips = machine->sips, .cubes = machine->cubes, .pes = machine->pes};
    t->shape.pe_count = (uint64_t)machine->sips * machine->cubes * machine->pes;
    kb_error *err = init(t, name, machine);
    if (err) {
        destroy(t);
        return err;
    }
    *out = t;
    return NULL;
}

kb_error *obs_trace_close(obs_trace *t)
{
    if (!t)
        return NULL;
    errno = 0;
    if (t->error == 0)
        put_counters(t);
    if (t->writer->failed)
        fail(t, ENOMEM);
    t->writer->ops->close(t->writer);
    if (fflush(t->file) != 0 || ferror(t->file))
        fail(t, errno);
    kb_error *err = NULL;
    if (t->error == ENOMEM)
        err = kb_error_nomem();
    else if (t->error != 0)
        err = kb_error_new(KB_ERR_HOST, "cannot write %s: %s", t->name, strerror(t->error));
    destroy(t);
    return err;
}
