/*
 * job.c: commands to the PEs of a SIP, and what they do when one arrives. Each has its own part of
 * the work, which is finished when the part is: the control processors join them.
 */
#include "runtime.h"

#include <stdlib.h>

enum {
    MOVE_BYTES = 32,  /* of a command: from, to, bytes, how */
    RANGE_BYTES = 16, /* of a table that a cube keeps: where a range begins, and where it is */
    ENTRY_BYTES = 16, /* of a PE's MMU: the range as a whole, and where its own copy is */
};

typedef struct target {
    uint32_t cube, pe;
    size_t first_move, move_count;
} target;

struct rt_job {
    kb_context *ctx;
    rt_job_kind kind;
    uint32_t sip;
    const char *who;
    rt_request *request;
    mem_mapping_id mapping;
    ipcq_set *queues;
    uint64_t cube_bytes;
    uint64_t moved_bytes;
    KB_VEC(target) targets;
    KB_VEC(io_target) io_targets;
    KB_VEC(pe_move) moves;
    rt_job_order order;  /* all NULL: it is in no stream */
    rt_job *next, *prev; /* among those under way */
};

kb_error *rt_job_create(kb_context *ctx, rt_job_kind kind, uint32_t sip, const char *who,
                        rt_job **out)
{
    rt_job *job = kb_alloc_zeroed(1, sizeof *job);
    *out = job;
    if (!job)
        return kb_error_nomem();
    job->ctx = ctx;
    job->kind = kind;
    job->sip = sip;
    job->who = who;
    return NULL;
}

void rt_job_destroy(rt_job *job)
{
    if (!job)
        return;
    kb_vec_fini(&job->targets);
    kb_vec_fini(&job->io_targets);
    kb_vec_fini(&job->moves);
    free(job);
}

kb_error *rt_job_add_target(rt_job *job, uint32_t cube, uint32_t pe, uint64_t bytes)
{
    target fresh = {.cube = cube, .pe = pe, .first_move = job->moves.count};
    io_target io_fresh = {.cube = cube, .pe = pe, .bytes = bytes};
    if (!kb_vec_reserve(&job->targets, 1) || !kb_vec_push(&job->io_targets, io_fresh))
        return kb_error_nomem();
    job->targets.items[job->targets.count++] = fresh;
    return NULL;
}

kb_error *rt_job_add_pe(rt_job *job, uint32_t cube, uint32_t pe)
{
    return rt_job_add_target(job, cube, pe, job->kind == RT_JOB_MAP ? ENTRY_BYTES : 0);
}

kb_error *rt_job_add_all(rt_job *job)
{
    const topo_shape *shape = job->ctx->shape;
    for (uint32_t cube = 0; cube < shape->cubes; cube++)
        for (uint32_t pe = 0; pe < shape->pes; pe++)
            KB_TRY(rt_job_add_pe(job, cube, pe));
    return NULL;
}

kb_error *rt_job_add_move(rt_job *job, uint32_t cube, uint32_t pe, const pe_move *move)
{
    size_t last = job->targets.count;
    bool known = last > 0 && job->targets.items[last - 1].cube == cube &&
                 job->targets.items[last - 1].pe == pe;
    if (!known)
        KB_TRY(rt_job_add_pe(job, cube, pe));
    if (!kb_vec_push(&job->moves, *move))
        return kb_error_nomem();
    job->targets.items[job->targets.count - 1].move_count++;
    job->io_targets.items[job->io_targets.count - 1].bytes += MOVE_BYTES;
    job->moved_bytes += move->bytes;
    return NULL;
}

void rt_job_set_mapping(rt_job *job, mem_mapping_id mapping, size_t ranges)
{
    job->mapping = mapping;
    job->cube_bytes = (uint64_t)ranges * RANGE_BYTES;
}

void rt_job_set_cube_bytes(rt_job *job, uint64_t bytes)
{
    job->cube_bytes = bytes;
}

void rt_job_set_queues(rt_job *job, ipcq_set *set)
{
    job->queues = set;
}

/* ---- Under way ---- */

static void dma_done(void *self, uint64_t ticket, const net_completion *completion, kb_error *err)
{
    rt_job *job = self;
    io_finish(job->ctx->control, ticket, completion, err);
}

static void arrive(void *self, uint64_t ticket, size_t index)
{
    rt_job *job = self;
    kb_context *ctx = job->ctx;
    const target *t = &job->targets.items[index];
    kb_pe pe = {job->sip, t->cube, t->pe};
    kb_error *err = NULL;
    switch (job->kind) {
    case RT_JOB_MAP:
        mem_mmu_install(ctx->mmus[job->sip], job->mapping, t->cube, t->pe);
        break;
    case RT_JOB_UNMAP:
        mem_mmu_uninstall(ctx->mmus[job->sip], job->mapping, t->cube, t->pe);
        break;
    case RT_JOB_DMA:
        err = pe_dma_start(ctx->dma, pe, job->who, &job->moves.items[t->first_move], t->move_count,
                           dma_done, job, ticket);
        if (!err)
            return; /* dma_done() finishes */
        break;
    case RT_JOB_INSTALL:
        err = ipcq_install(job->queues, pe);
        break;
    case RT_JOB_REMOVE:
        err = ipcq_remove(job->queues, pe);
        break;
    case RT_JOB_RECORD:
        break; /* the PE keeps it */
    }
    io_finish(ctx->control, ticket, NULL, err);
}

static void done(void *self, uint64_t arg, const net_completion *completion, kb_error *err)
{
    (void)arg;
    rt_job *job = self;
    KB_LIST_TAKE_OUT(job->ctx->jobs, job);
    rt_request *request = job->request;
    rt_job_order order = job->order;
    rt_job_destroy(job);
    if (order.done)
        err = order.done(order.self, err);
    rt_request_end_part(request, completion, err);
}

static void held(void *self, uint64_t arg, uint64_t ticket)
{
    (void)arg;
    const rt_job *job = self;
    job->order.held(job->order.self, ticket);
}

static void joined(void *self, uint64_t arg, const kb_error *err)
{
    (void)arg;
    const rt_job *job = self;
    job->order.joined(job->order.self, err);
}

/* PEs know what they are to do: nothing differs. */
static void forget_bytes(rt_job *job)
{
    for (size_t i = 0; i < job->io_targets.count; i++)
        job->io_targets.items[i].bytes = 0;
}

kb_error *rt_job_submit_ordered(rt_job *job, rt_request *request, const rt_job_order *order)
{
    job->request = request;
    if (order)
        job->order = *order;
    if (job->order.recorded)
        forget_bytes(job);
    io_command command = {
        .sip = job->sip,
        .targets = job->io_targets.items,
        .target_count = job->io_targets.count,
        .cube_bytes = job->order.recorded ? 0 : job->cube_bytes,
        .recorded = job->order.recorded,
        .arrive = arrive,
        .done = done,
        .held = job->order.held ? held : NULL,
        .joined = job->order.joined ? joined : NULL,
        .self = job,
    };
    kb_error *err = io_submit(job->ctx->control, &command);
    if (err) {
        rt_job_destroy(job);
        return err;
    }
    KB_LIST_PUSH(job->ctx->jobs, job);
    rt_request_add_part(request);
    request->completion.bytes += job->moved_bytes;
    return NULL;
}

kb_error *rt_job_submit(rt_job *job, rt_request *request)
{
    return rt_job_submit_ordered(job, request, NULL);
}

void rt_jobs_fini(kb_context *ctx)
{
    for (rt_job *job = ctx->jobs, *next; job; job = next) {
        next = job->next;
        rt_job_destroy(job);
    }
    ctx->jobs = NULL;
}
