/*
 * trace.c: the trace of a run: see trace.h.
 *
 * Invariants: slices of a thread do not overlap; an arrow begins at the start of a slice, ends in a
 * slice, and does not go back in time. Operations come in the order of their ends; each goes to the
 * lane of its unit that became free last before it started. In that order this rule needs no more
 * lanes than there ever are operations at a time.
 *
 * An arrow needs both its ends. Kernels end before their launch does, so they are kept until it is
 * told; those of a launch that is never told (the run failed) have no arrow. The first part of a
 * message is told before its receive and kept until then.
 */
#include "trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"

/* What a PE's threads show, in the order that they are shown in. */
typedef enum track_kind {
    KERNELS,
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
    bool numbered; /* its first lane, too: others have more than one only in passing */
} kinds[PE_TRACKS] = {
    [KERNELS] = {"kernel", false},         [CPU] = {"pe_cpu", false},
    [SCHEDULER] = {"pe_scheduler", false}, [GEMM] = {"pe_gemm", false},
    [MATH] = {"pe_math", false},           [DMA_READ] = {"pe_dma read", true},
    [DMA_WRITE] = {"pe_dma write", true},  [IPCQ] = {"pe_ipcq", false},
    [WAITS] = {"pe_ipcq waits", false},
};

enum {
    HOST_PROCESS = 1,
    FIRST_CUBE = 2,   /* the process of cube 0 of SIP 0 */
    MAX_LANES = 10000 /* of a unit, in the numbers of threads */
};

/* When each of its lanes was last busy. */
typedef struct lanes {
    KB_VEC(kb_time) ends;
} lanes;

typedef struct pe_tracks {
    lanes of[PE_TRACKS];
} pe_tracks;

/* A slice that an arrow can begin or end at. */
typedef struct slice {
    uint64_t process, thread;
    kb_time start;
} slice;

typedef struct waiting {
    uint64_t launch;
    slice kernel;
} waiting;

/* A message that was sent, and is not received yet. */
typedef struct sent {
    uint64_t message;
    slice send;
} sent;

struct obs_trace {
    FILE *file;
    char *path;
    uint64_t sips, cubes, pes;
    lanes host;
    pe_tracks **tracks; /* by PE; NULL for those that did nothing */
    bool *named;        /* by process: it has its name */
    KB_VEC(waiting) kernels;
    KB_VEC(sent) messages; /* by number */
    uint64_t arrows;
    bool any;  /* something was written */
    int error; /* of the system, the first */
};

/* ---- Writing ----------------------------------------------------------------------------- */

static void fail(obs_trace *t, int error)
{
    if (t->error == 0)
        t->error = error != 0 ? error : EIO;
}

/* JSON's form of a string. What is not UTF-8 becomes U+FFFD. */
static void put_string(FILE *file, const char *text)
{
    fputc('"', file);
    for (size_t size = strlen(text); size > 0;) {
        uint32_t c = 0;
        size_t length = kb_utf8_decode(text, size, &c);
        if (length == 0)
            fputs("\\ufffd", file);
        else if (c == '"' || c == '\\')
            fprintf(file, "\\%c", (char)c);
        else if (kb_utf8_is_control(c))
            fprintf(file, "\\u%04x", (unsigned)c);
        else
            fwrite(text, 1, length, file);
        length = length > 0 ? length : 1;
        text += length;
        size -= length;
    }
    fputc('"', file);
}

/* Microseconds, to the femtosecond. */
static void put_time(FILE *file, const char *key, kb_time time)
{
    fprintf(file, ",\"%s\":%" PRId64 ".%09" PRId64, key, time / KB_US, time % KB_US);
}

/* Begins an event; more members follow, and end_event(). */
static FILE *begin_event(obs_trace *t, const char *phase, uint64_t process, uint64_t thread)
{
    fprintf(t->file, "%s{\"ph\":\"%s\",\"pid\":%" PRIu64 ",\"tid\":%" PRIu64, t->any ? ",\n" : "",
            phase, process, thread);
    t->any = true;
    return t->file;
}

static void end_event(const obs_trace *t)
{
    fputc('}', t->file);
}

/* Names a process or a thread, and says where it stands among the others. */
static void put_name(obs_trace *t, const char *what, uint64_t process, uint64_t thread,
                     const char *name)
{
    FILE *file = begin_event(t, "M", process, thread);
    fprintf(file, ",\"name\":\"%s_name\",\"args\":{\"name\":", what);
    put_string(file, name);
    fputc('}', file);
    end_event(t);
    file = begin_event(t, "M", process, thread);
    fprintf(file, ",\"name\":\"%s_sort_index\",\"args\":{\"sort_index\":%" PRIu64 "}", what,
            thread > 0 ? thread : process);
    end_event(t);
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

/* False if there is no memory. */
static bool take_lane(lanes *track, const kb_op *op, size_t *lane, bool *fresh)
{
    *lane = choose_lane(track, op->start);
    *fresh = *lane == track->ends.count;
    if (*fresh)
        return *lane < MAX_LANES && kb_vec_push(&track->ends, op->end);
    track->ends.items[*lane] = op->end;
    return true;
}

/* Of what a pe_ipcq is told to do: it is no work (kb_unit). */
static bool is_wait(const kb_op *op)
{
    return strcmp(op->name, "recv") == 0 || strcmp(op->name, "await credit") == 0;
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
        return is_wait(op) ? WAITS : IPCQ;
    default:
        return strcmp(op->name, "kernel") == 0 ? KERNELS : CPU;
    }
}

static lanes *track_of(obs_trace *t, const kb_op *op, track_kind kind)
{
    uint64_t pe = (op->pe.sip * t->cubes + op->pe.cube) * t->pes + op->pe.pe;
    KB_ASSERT(op->pe.sip < t->sips && op->pe.cube < t->cubes && op->pe.pe < t->pes);
    if (!t->tracks[pe])
        t->tracks[pe] = kb_alloc_zeroed(1, sizeof *t->tracks[pe]);
    return t->tracks[pe] ? &t->tracks[pe]->of[kind] : NULL;
}

static void name_process(obs_trace *t, uint64_t process, const kb_op *op)
{
    if (t->named[process])
        return;
    char name[64] = "host";
    if (process != HOST_PROCESS)
        snprintf(name, sizeof name, "sip%u.cube%u", op->pe.sip, op->pe.cube);
    put_name(t, "process", process, 0, name);
    t->named[process] = true;
}

static void name_thread(obs_trace *t, const slice *at, const kb_op *op, size_t lane)
{
    char name[64];
    track_kind kind = kind_of(op);
    if (at->process == HOST_PROCESS)
        snprintf(name, sizeof name, "requests %zu", lane);
    else if (lane > 0 || kinds[kind].numbered)
        snprintf(name, sizeof name, "pe%u %s %zu", op->pe.pe, kinds[kind].name, lane);
    else
        snprintf(name, sizeof name, "pe%u %s", op->pe.pe, kinds[kind].name);
    put_name(t, "thread", at->process, at->thread, name);
}

/* Where the operation is shown. Names process and thread when they are new. */
static bool place(obs_trace *t, const kb_op *op, slice *at)
{
    bool on_host = op->unit == KB_UNIT_HOST, fresh;
    track_kind kind = kind_of(op);
    lanes *track = on_host ? &t->host : track_of(t, op, kind);
    size_t lane;
    if (!track || !take_lane(track, op, &lane, &fresh))
        return false;
    at->start = op->start;
    at->process = on_host ? HOST_PROCESS : FIRST_CUBE + op->pe.sip * t->cubes + op->pe.cube;
    uint64_t unit = on_host ? 0 : (uint64_t)op->pe.pe * PE_TRACKS + kind;
    at->thread = unit * MAX_LANES + lane + 1;
    name_process(t, at->process, op);
    if (fresh)
        name_thread(t, at, op, lane);
    return true;
}

/* ---- Operations -------------------------------------------------------------------------- */

/* A kernel is known by its launch, a request by what it does to what. */
static void put_title(FILE *file, const kb_op *op)
{
    if (op->unit == KB_UNIT_CPU && op->label[0] != '\0' && kind_of(op) == KERNELS) {
        put_string(file, op->label);
        return;
    }
    char title[256];
    if (op->unit == KB_UNIT_HOST && op->label[0] != '\0') {
        snprintf(title, sizeof title, "%s %s", op->name, op->label);
        put_string(file, title);
    } else {
        put_string(file, op->name);
    }
}

static void put_args(FILE *file, const kb_op *op)
{
    const char *comma = "";
    fputs(",\"args\":{", file);
    if (op->label[0] != '\0') {
        fputs("\"label\":", file);
        put_string(file, op->label);
        comma = ",";
    }
    if (op->bytes > 0) {
        fprintf(file, "%s\"bytes\":%" PRIu64, comma, op->bytes);
        comma = ",";
    }
    if (op->flops > 0) {
        fprintf(file, "%s\"flops\":%" PRIu64, comma, op->flops);
        comma = ",";
    }
    if (op->file) {
        fprintf(file, "%s\"file\":", comma);
        put_string(file, op->file);
        fprintf(file, ",\"line\":%d", op->line);
    }
    fputc('}', file);
}

/* What adds up to the busy time of a unit has its name. */
static const char *category_of(const kb_op *op)
{
    switch (op->unit == KB_UNIT_HOST ? PE_TRACKS : kind_of(op)) {
    case KERNELS:
        return "kernel";
    case WAITS:
        return "wait";
    default:
        return kb_unit_name(op->unit);
    }
}

static void put_slice(obs_trace *t, const kb_op *op, const slice *at)
{
    FILE *file = begin_event(t, "X", at->process, at->thread);
    put_time(file, "ts", op->start);
    put_time(file, "dur", op->end - op->start);
    fprintf(file, ",\"cat\":\"%s\",\"name\":", category_of(op));
    put_title(file, op);
    put_args(file, op);
    end_event(t);
}

static void put_arrow_end(obs_trace *t, const char *phase, const char *name, const slice *at,
                          kb_time time)
{
    FILE *file = begin_event(t, phase, at->process, at->thread);
    put_time(file, "ts", time);
    fprintf(file, ",\"cat\":\"%s\",\"name\":\"%s\",\"id\":%" PRIu64 ",\"bp\":\"e\"", name, name,
            t->arrows);
    end_event(t);
}

static void put_arrow(obs_trace *t, const char *name, const slice *from, const slice *to)
{
    t->arrows++;
    put_arrow_end(t, "s", name, from, from->start);
    put_arrow_end(t, "f", name, to, from->start > to->start ? from->start : to->start);
}

/* Arrows to the kernels of the launch, which are forgotten then. */
static void put_arrows(obs_trace *t, uint64_t launch, const slice *from)
{
    size_t kept = 0;
    for (size_t i = 0; i < t->kernels.count; i++) {
        const waiting *w = &t->kernels.items[i];
        if (w->launch != launch) {
            t->kernels.items[kept++] = *w;
            continue;
        }
        put_arrow(t, "launch", from, &w->kernel);
    }
    t->kernels.count = kept;
}

/* Where the message is among those that were sent, or would be. Numbers mostly come in order. */
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

/* A part of the message is on its way: an arrow begins at the first. False if there is no memory.
 */
static bool keep_message(obs_trace *t, uint64_t message, const slice *send)
{
    size_t at = find_message(t, message);
    if (at < t->messages.count && t->messages.items[at].message == message)
        return true;
    if (!kb_vec_reserve(&t->messages, 1))
        return false;
    sent *items = t->messages.items;
    memmove(&items[at + 1], &items[at], (t->messages.count++ - at) * sizeof *items);
    items[at] = (sent){message, *send};
    return true;
}

static void end_message(obs_trace *t, uint64_t message, const slice *receive)
{
    size_t at = find_message(t, message);
    sent *items = t->messages.items;
    if (at == t->messages.count || items[at].message != message)
        return;
    put_arrow(t, "message", &items[at].send, receive);
    memmove(&items[at], &items[at + 1], (--t->messages.count - at) * sizeof *items);
}

/* False if there is no memory. */
static bool put_op(obs_trace *t, const kb_op *op)
{
    slice at;
    if (!place(t, op, &at))
        return false;
    put_slice(t, op, &at);
    if (op->message != 0 && kind_of(op) == WAITS)
        end_message(t, op->message, &at);
    else if (op->message != 0 && !keep_message(t, op->message, &at))
        return false;
    if (op->launch == 0)
        return true;
    if (op->unit == KB_UNIT_HOST)
        put_arrows(t, op->launch, &at);
    else if (kind_of(op) == KERNELS)
        return kb_vec_push(&t->kernels, ((waiting){op->launch, at}));
    return true;
}

void obs_trace_op(obs_trace *t, const kb_op *op)
{
    if (t->error != 0)
        return;
    errno = 0;
    if (!put_op(t, op))
        fail(t, ENOMEM);
    if (ferror(t->file))
        fail(t, errno);
}

/* ---- Opening and closing ----------------------------------------------------------------- */

static void destroy(obs_trace *t)
{
    for (uint64_t pe = 0; t->tracks && pe < t->sips * t->cubes * t->pes; pe++) {
        for (int kind = 0; t->tracks[pe] && kind < PE_TRACKS; kind++)
            kb_vec_fini(&t->tracks[pe]->of[kind].ends);
        free(t->tracks[pe]);
    }
    kb_vec_fini(&t->host.ends);
    kb_vec_fini(&t->kernels);
    kb_vec_fini(&t->messages);
    free(t->tracks);
    free(t->named);
    free(t->path);
    free(t);
}

kb_error *obs_trace_create(const char *path, const kb_machine *machine, obs_trace **out)
{
    *out = NULL;
    obs_trace *t = kb_alloc_zeroed(1, sizeof *t);
    if (!t)
        return kb_error_nomem();
    t->sips = machine->sips;
    t->cubes = machine->cubes;
    t->pes = machine->pes;
    kb_text copy = KB_TEXT_INIT;
    kb_text_puts(&copy, path);
    t->path = kb_text_take(&copy);
    t->tracks = kb_alloc_zeroed(t->sips * t->cubes * t->pes, sizeof(pe_tracks *));
    t->named = kb_alloc_zeroed(FIRST_CUBE + t->sips * t->cubes, sizeof *t->named);
    kb_error *err = t->path && t->tracks && t->named ? NULL : kb_error_nomem();
    if (!err) {
        t->file = fopen(path, "w");
        if (!t->file)
            err = kb_error_new(KB_ERR_INPUT, "cannot write %s: %s", path, strerror(errno));
    }
    if (err) {
        destroy(t);
        return err;
    }
    fprintf(t->file, "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"kernbench\":\"%s\",\"machine\":",
            kb_version());
    put_string(t->file, machine->name);
    fputs("},\"traceEvents\":[\n", t->file);
    *out = t;
    return NULL;
}

/* A device or a pipe stays; half a file would only be taken for a whole one. */
static void remove_regular(const char *path)
{
    struct stat status;
    if (lstat(path, &status) == 0 && S_ISREG(status.st_mode))
        (void)unlink(path);
}

kb_error *obs_trace_close(obs_trace *t)
{
    if (!t)
        return NULL;
    errno = 0;
    fputs("\n]}\n", t->file);
    if (ferror(t->file))
        fail(t, errno);
    if (fclose(t->file) != 0)
        fail(t, errno);
    kb_error *err = NULL;
    if (t->error == ENOMEM)
        err = kb_error_nomem();
    else if (t->error != 0)
        err = kb_error_new(KB_ERR_HOST, "cannot write %s: %s", t->path, strerror(t->error));
    if (err)
        remove_regular(t->path);
    destroy(t);
    return err;
}
