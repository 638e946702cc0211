/*
 * suite_runtime.c: what the host runtime costs, on the default machine, through the public header
 * alone.
 *
 * context: creating and destroying one. request: a write of one packet by the host, submitted,
 * waited for and freed, alone in the machine. tensor: creating a tensor over all PEs of a SIP and
 * freeing it, with its mapping travelling to 128 MMUs and back (fabric) or without (untimed).
 * upload: a tensor of 4 MiB copied to a device, in bytes of the tensor. contents: the same without
 * time: what gathering and scattering costs. spawn: a worker that is started, yields and ends.
 */
#include "suite.h"

#include <stdlib.h>

enum { UPLOAD_BYTES = 4 << 20, COLUMNS = 1024, WORKERS = 256 };

typedef struct stage {
    kb_context *ctx;
    kb_tensor host, device;
    uint64_t times; /* that the thing in hand is done */
} stage;

typedef kb_error *thing_fn(stage *s);

static kb_error *contexts(stage *s)
{
    for (uint64_t i = 0; i < s->times; i++) {
        kb_context *ctx;
        KB_TRY(kb_context_create(NULL, &ctx));
        kb_context_destroy(ctx);
    }
    return NULL;
}

static kb_error *requests(stage *s)
{
    kb_message message = {.kind = KB_MEMORY_WRITE, .bytes = 256, .to = {.memory = KB_HBM}};
    for (uint64_t i = 0; i < s->times; i++) {
        kb_request request;
        KB_TRY(kb_request_submit(s->ctx, &message, &request));
        KB_TRY(kb_request_wait(s->ctx, request, NULL));
        KB_TRY(kb_request_free(s->ctx, request));
    }
    return NULL;
}

static kb_error *tensors(stage *s, kb_access access)
{
    kb_policy policy = {.cube = KB_COLUMN_WISE, .pe = KB_COLUMN_WISE};
    kb_tensor_spec spec = {.shape = KB_SHAPE(COLUMNS), .policy = &policy, .access = access};
    for (uint64_t i = 0; i < s->times; i++) {
        kb_tensor tensor;
        KB_TRY(kb_empty(s->ctx, &spec, &tensor));
        KB_TRY(kb_tensor_free(s->ctx, tensor));
        KB_TRY(kb_synchronize(s->ctx));
    }
    return NULL;
}

static kb_error *mapped_tensors(stage *s)
{
    return tensors(s, KB_TIMED);
}

static kb_error *plain_tensors(stage *s)
{
    return tensors(s, KB_UNTIMED);
}

static kb_error *uploads(stage *s)
{
    for (uint64_t i = 0; i < s->times; i++) {
        KB_TRY(kb_tensor_copy(s->ctx, s->device, s->host, KB_TIMED));
        KB_TRY(kb_synchronize(s->ctx));
    }
    return NULL;
}

static kb_error *scatters(stage *s)
{
    for (uint64_t i = 0; i < s->times; i++)
        KB_TRY(kb_tensor_copy(s->ctx, s->device, s->host, KB_UNTIMED));
    return NULL;
}

static kb_error *worker(kb_context *ctx, uint32_t rank, void *arg)
{
    (void)rank, (void)arg;
    return kb_cooperative_yield(ctx);
}

static kb_error *spawns(stage *s)
{
    for (uint64_t i = 0; i < s->times; i++)
        KB_TRY(kb_spawn(s->ctx, worker, NULL, WORKERS));
    return NULL;
}

static const struct thing {
    const char *name;
    thing_fn *fn;
    uint64_t times; /* of a round */
    double each;    /* what doing it once counts for */
    bool rate;      /* report how much a second instead of ns for each */
    const char *unit;
} things[] = {
    {"runtime.context.ns", contexts, 10, 1, false, "ns/context"},
    {"runtime.request.ns", requests, 20000, 1, false, "ns/request"},
    {"runtime.tensor.timed.ns", mapped_tensors, 20, 1, false, "ns/tensor"},
    {"runtime.tensor.untimed.ns", plain_tensors, 2000, 1, false, "ns/tensor"},
    {"runtime.upload.bytes_per_s", uploads, 2, UPLOAD_BYTES, true, "bytes/s"},
    {"runtime.contents.bytes_per_s", scatters, 20, UPLOAD_BYTES, true, "bytes/s"},
    {"runtime.spawn.ns", spawns, 50, WORKERS, false, "ns/worker"},
};
enum { thing_count = sizeof things / sizeof things[0] };

static kb_error *set_up(stage *s)
{
    kb_policy policy = {.cube = KB_ROW_WISE, .pe = KB_COLUMN_WISE};
    kb_tensor_spec spec = {
        .dtype = KB_F32,
        .shape = KB_SHAPE(UPLOAD_BYTES / 4 / COLUMNS, COLUMNS),
        .policy = &policy,
    };
    KB_TRY(kb_context_create(NULL, &s->ctx));
    void *numbers = calloc(1, UPLOAD_BYTES);
    if (!numbers)
        return kb_error_nomem();
    kb_error *err = kb_from_host(s->ctx, &spec, numbers, UPLOAD_BYTES, &s->host);
    free(numbers);
    return err ? err : kb_empty(s->ctx, &spec, &s->device);
}

static kb_error *measure(bench *b, stage *s)
{
    for (const struct thing *t = things; t < things + thing_count; t++) {
        if (!bench_wants(b, "%s", t->name))
            continue;
        bench_progress(b, "%s", t->name);
        double best_ns = 0;
        s->times = b->quick ? (t->times + 9) / 10 : t->times;
        for (unsigned round = 0; round < b->rounds; round++) {
            double start = bench_clock_ns();
            KB_TRY(t->fn(s));
            double took = bench_clock_ns() - start;
            bench_keep_least(&best_ns, took / ((double)s->times * t->each));
        }
        bench_report(b, t->rate ? 1e9 / best_ns : best_ns, t->unit, "%s", t->name);
    }
    return NULL;
}

static kb_error *run(bench *b)
{
    stage s = {0};
    if (!bench_wants(b, "runtime"))
        return NULL;
    kb_error *err = set_up(&s);
    if (!err)
        err = measure(b, &s);
    kb_context_destroy(s.ctx);
    return err;
}

const bench_suite bench_runtime = {
    .title = "Host runtime: requests, tensors and workers on the default machine",
    .run = run,
};
