/*
 * remote.c: points that run on other ranks: see remote.h.
 *
 *     to rank 0    READY slots | FAILED text     once, when the rank is prepared
 *                  RESULT result bytes messages  for each point
 *                  LEFT                          the last one
 *     from rank 0  START point | STOP
 *
 * MPI has no descriptor to wait on, and its own waiting takes a whole core. So both sides look for
 * messages from time to time: often while there is something to do, less often else. After STOP
 * rank 0 takes what is on its way until each rank has left, as a rank could not send it otherwise.
 */
#include "remote.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const double shortest_pause = 50e-6, longest_pause = 1e-3; /* seconds between looks */

typedef enum kind { READY, FAILED, RESULT, LEFT, START, STOP } kind;

typedef struct header {
    uint64_t kind;
    uint64_t number; /* slots, or the point */
} header;

typedef struct result_header {
    header head;
    uint64_t peak_bytes, bytes, messages; /* the latter two: lengths of what follows */
    double wall_s, cpu_s;
    int32_t end, status;
} result_header;

typedef struct rank {
    size_t slots, running;
    bool has_left;
} rank;

struct sweep_remote {
    mpi_job *job;
    rank *ranks; /* that of rank 0 has no slots */
    int count;
    size_t slots;
    kb_text message; /* that was received last */
};

/* Longer from pause to pause, until something has happened. */
static void rest(double *pause)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = (long)(*pause * 1e9)}, NULL);
    *pause = *pause * 1.5 < longest_pause ? *pause * 1.5 : longest_pause;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void send_header(mpi_job *job, int to, kind what, uint64_t number)
{
    header h = {.kind = (uint64_t)what, .number = number};
    mpi_send(job, to, &h, sizeof h);
}

static header read_header(const kb_text *message)
{
    header h;
    KB_ASSERT(message->length >= sizeof h);
    memcpy(&h, message->bytes, sizeof h);
    return h;
}

/* ---- Rank 0 -------------------------------------------------------------------------------- */

static kb_error *note_ready(sweep_remote *r, int from)
{
    header h = read_header(&r->message);
    if (h.kind == READY) {
        r->ranks[from].slots = (size_t)h.number;
        r->slots += (size_t)h.number;
        return NULL;
    }
    r->ranks[from].has_left = true;
    return kb_error_new(KB_ERR_INPUT, "rank %d cannot run points: %s", from,
                        kb_text_peek(&r->message) + sizeof h);
}

/* From all of them, also after an error. */
static kb_error *wait_for_ranks(sweep_remote *r)
{
    kb_error *err = NULL;
    double pause = shortest_pause;
    for (int heard = 1; heard < r->count;) {
        int from;
        if (!mpi_receive(r->job, &from, &r->message)) {
            rest(&pause);
            continue;
        }
        kb_error *failure = note_ready(r, from);
        if (err)
            kb_error_free(failure);
        else
            err = failure;
        heard++;
    }
    return err;
}

kb_error *sweep_remote_create(mpi_job *job, sweep_remote **out)
{
    *out = NULL;
    sweep_remote *r = kb_alloc_zeroed(1, sizeof *r);
    rank *ranks = kb_alloc_zeroed((size_t)mpi_size(job), sizeof *ranks);
    if (!r || !ranks) {
        free(r);
        free(ranks);
        return kb_error_nomem();
    }
    *r = (sweep_remote){.job = job, .ranks = ranks, .count = mpi_size(job)};
    kb_error *err = wait_for_ranks(r);
    if (err) {
        sweep_remote_destroy(r);
        return err;
    }
    *out = r;
    return NULL;
}

static void stop(sweep_remote *r)
{
    double pause = shortest_pause;
    int left = 0, from;
    for (int i = 1; i < r->count; i++) {
        if (r->ranks[i].has_left)
            continue;
        send_header(r->job, i, STOP, 0);
        left++;
    }
    while (left > 0) {
        if (!mpi_receive(r->job, &from, &r->message))
            rest(&pause);
        else if (read_header(&r->message).kind == LEFT)
            left--;
    }
}

void sweep_remote_destroy(sweep_remote *r)
{
    if (!r)
        return;
    stop(r);
    kb_text_fini(&r->message);
    free(r->ranks);
    free(r);
}

/* On the rank with the smallest share of its slots in use. */
static kb_error *start(void *self, size_t point)
{
    sweep_remote *r = self;
    int best = 0;
    for (int i = 1; i < r->count; i++) {
        const rank *one = &r->ranks[i], *other = &r->ranks[best];
        if (one->running < one->slots &&
            (best == 0 || one->running * other->slots < other->running * one->slots))
            best = i;
    }
    KB_ASSERT(best != 0);
    r->ranks[best].running++;
    send_header(r->job, best, START, point);
    return NULL;
}

static void take_text(kb_text *text, const char **at, size_t length)
{
    kb_text_append(text, *at, length);
    *at += length;
}

static void read_result(sweep_remote *r, int from, child_result *result)
{
    result_header h;
    KB_ASSERT(r->message.length >= sizeof h);
    memcpy(&h, r->message.bytes, sizeof h);
    *result = (child_result){
        .tag = h.head.number,
        .end = (child_end)h.end,
        .status = h.status,
        .wall_s = h.wall_s,
        .cpu_s = h.cpu_s,
        .peak_bytes = h.peak_bytes,
    };
    KB_ASSERT(r->message.length == sizeof h + h.bytes + h.messages);
    const char *at = r->message.bytes + sizeof h;
    take_text(&result->bytes, &at, (size_t)h.bytes);
    take_text(&result->messages, &at, (size_t)h.messages);
    r->ranks[from].running--;
}

static bool wait_for_end(void *self, double seconds, child_result *result)
{
    sweep_remote *r = self;
    double began = now(), pause = shortest_pause;
    int from;
    while (!mpi_receive(r->job, &from, &r->message)) {
        if (now() - began >= seconds || interrupts_signal() != 0)
            return false;
        rest(&pause);
    }
    KB_ASSERT(read_header(&r->message).kind == RESULT);
    read_result(r, from, result);
    return true;
}

/* sweep_remote_destroy() ends what runs. */
static void cancel(void *self)
{
    (void)self;
}

sweep_runner sweep_remote_runner(sweep_remote *remote)
{
    return (sweep_runner){
        .self = remote,
        .slots = remote->slots,
        .start = start,
        .wait = wait_for_end,
        .cancel = cancel,
    };
}

/* ---- The others ---------------------------------------------------------------------------- */

typedef struct server {
    mpi_job *job;
    const sweep_runner *local;
    kb_error *(*note)(void *self, const child_result *result);
    void *self;
    kb_text message;
    size_t running;
    bool stopped;
} server;

static kb_error *send_result(const server *s, const child_result *result)
{
    result_header h = {
        .head = {.kind = RESULT, .number = result->tag},
        .peak_bytes = result->peak_bytes,
        .bytes = result->bytes.length,
        .messages = result->messages.length,
        .wall_s = result->wall_s,
        .cpu_s = result->cpu_s,
        .end = (int32_t)result->end,
        .status = result->status,
    };
    kb_text message = KB_TEXT_INIT;
    kb_text_append(&message, (const char *)&h, sizeof h);
    kb_text_append(&message, kb_text_peek(&result->bytes), result->bytes.length);
    kb_text_append(&message, kb_text_peek(&result->messages), result->messages.length);
    kb_error *err =
        message.failed || result->bytes.failed || result->messages.failed ? kb_error_nomem() : NULL;
    if (!err)
        mpi_send(s->job, 0, message.bytes, message.length);
    kb_text_fini(&message);
    return err;
}

static kb_error *take_messages(server *s)
{
    int from;
    while (!s->stopped && mpi_receive(s->job, &from, &s->message)) {
        header h = read_header(&s->message);
        if (h.kind == STOP) {
            s->stopped = true;
            break;
        }
        KB_TRY(s->local->start(s->local->self, (size_t)h.number));
        s->running++;
    }
    return NULL;
}

/* Waits for a point to end: while there is a free slot, for a message too. */
static kb_error *take_result(server *s, double *pause)
{
    child_result result;
    double seconds = s->running < s->local->slots ? *pause : 10 * longest_pause;
    if (!s->local->wait(s->local->self, seconds, &result)) {
        *pause = *pause * 1.5 < longest_pause ? *pause * 1.5 : longest_pause;
        return NULL;
    }
    *pause = shortest_pause;
    s->running--;
    kb_error *err = s->note(s->self, &result);
    if (!err)
        err = send_result(s, &result);
    child_result_fini(&result);
    return err;
}

static kb_error *serve(server *s)
{
    double pause = shortest_pause;
    while (!s->stopped && interrupts_signal() == 0) {
        KB_TRY(take_messages(s));
        if (s->running > 0)
            KB_TRY(take_result(s, &pause));
        else if (!s->stopped)
            rest(&pause);
    }
    return NULL;
}

kb_error *sweep_serve(mpi_job *job, const sweep_runner *local,
                      kb_error *(*note)(void *self, const child_result *result), void *self)
{
    server s = {.job = job, .local = local, .note = note, .self = self};
    send_header(job, 0, READY, local->slots);
    kb_error *err = serve(&s);
    local->cancel(local->self);
    if (s.stopped)
        send_header(job, 0, LEFT, 0);
    kb_text_fini(&s.message);
    return err;
}

void sweep_refuse_to_serve(mpi_job *job, const char *message)
{
    kb_text text = KB_TEXT_INIT;
    header h = {.kind = FAILED};
    kb_text_append(&text, (const char *)&h, sizeof h);
    kb_text_append(&text, message, strlen(message) + 1);
    if (text.failed)
        mpi_abort(job, KB_ERR_HOST);
    mpi_send(job, 0, text.bytes, text.length);
    kb_text_fini(&text);
}
