/*
 * move.c: the contents of tensors, and the time that moving them takes. The two are apart: contents
 * change at the call, transfers go their way afterwards (docs/decisions/0009-host-runtime.md).
 *
 * A part of a shard is one transfer however it lies in the shard: DMAs gather and scatter.
 */
#include "runtime.h"

#include <stdlib.h>
#include <string.h>

static const mem_shard *shard_at(const rt_tensor *tensor, size_t shard)
{
    return &tensor->placement.shards.items[shard];
}

static kb_location element_of(const rt_tensor *tensor, size_t shard, uint64_t element)
{
    kb_location at = rt_shard_location(tensor, shard);
    at.offset += element * kb_dtype_bytes(tensor->dtype);
    return at;
}

/* ---- Which shards have a box ---- */

/* `both` is the part of the box that the shard has. */
typedef kb_error *part_fn(void *self, size_t shard, const mem_box *both);

/* Calls fn for one shard of each cell that the box meets, or for all copies. */
static kb_error *each_part(const rt_tensor *tensor, const mem_box *box, bool all_copies,
                           part_fn *fn, void *self)
{
    const mem_grid *grid = &tensor->grid;
    mem_cells cells = mem_grid_find(grid, box);
    for (size_t row = cells.first_row; row < cells.end_row; row++) {
        for (size_t column = cells.first_column; column < cells.end_column; column++) {
            const uint32_t *shards = mem_grid_cell(grid, row, column);
            mem_box both;
            if (!mem_box_meet(&shard_at(tensor, shards[0])->box, box, &both))
                continue;
            for (size_t copy = 0; copy < (all_copies ? grid->copies : 1); copy++)
                KB_TRY(fn(self, shards[copy], &both));
        }
    }
    return NULL;
}

/* ---- Contents ---- */

typedef struct box_move {
    kb_context *ctx;
    const rt_tensor *tensor;
    const mem_box *box;
    size_t shard;
    size_t element_bytes;
    unsigned char *into;          /* one of the three: read into, */
    const unsigned char *from;    /* write from, */
    const unsigned char *pattern; /* fill with */
} box_move;

static kb_error *move_run(void *self, uint64_t at_shard, uint64_t at_box, uint64_t count)
{
    const box_move *move = self;
    mem_memories *memories = move->ctx->memories;
    kb_location at = element_of(move->tensor, move->shard, at_shard);
    uint64_t offset = at_box * move->element_bytes, bytes = count * move->element_bytes;
    if (move->into) {
        mem_memories_read(memories, &at, move->into + offset, bytes);
        return NULL;
    }
    if (move->from)
        return mem_memories_write(memories, &at, move->from + offset, bytes);
    return mem_memories_fill(memories, &at, bytes, move->pattern, move->element_bytes);
}

static kb_error *move_part(void *self, size_t shard, const mem_box *both)
{
    (void)both;
    box_move *move = self;
    move->shard = shard;
    return mem_box_runs(&shard_at(move->tensor, shard)->box, move->box, move_run, move);
}

/* A tensor of the host is one array. */
static kb_error *host_run(void *self, uint64_t at_tensor, uint64_t at_box, uint64_t count)
{
    const box_move *move = self;
    unsigned char *at = move->tensor->host + at_tensor * move->element_bytes;
    uint64_t offset = at_box * move->element_bytes, bytes = count * move->element_bytes;
    if (move->into)
        memcpy(move->into + offset, at, bytes);
    else if (move->from)
        memcpy(at, move->from + offset, bytes);
    else
        for (uint64_t i = 0; i < count; i++)
            memcpy(at + i * move->element_bytes, move->pattern, move->element_bytes);
    return NULL;
}

/* Where shards have columns, each takes little of a row. So an array is moved in bands of rows that
 * stay in the cache until all shards have their part of them. */
static kb_error *move_bands(const box_move *move)
{
    enum { BAND_BYTES = 512 << 10 };
    const mem_box *box = move->box;
    uint64_t rows = box->size[0], row_bytes = move->element_bytes;
    for (uint32_t axis = 1; axis < box->rank; axis++)
        row_bytes *= box->size[axis];
    uint64_t most = row_bytes > 0 && row_bytes < BAND_BYTES ? BAND_BYTES / row_bytes : 1;
    for (uint64_t row = 0; row < rows; row += most) {
        mem_box band = *box;
        band.start[0] += row;
        band.size[0] = kb_min(most, rows - row);
        box_move part = *move;
        part.box = &band;
        part.into = move->into ? move->into + row * row_bytes : NULL;
        part.from = move->from ? move->from + row * row_bytes : NULL;
        KB_TRY(each_part(move->tensor, &band, !move->into, move_part, &part));
    }
    return NULL;
}

static kb_error *move_box(box_move *move)
{
    const rt_tensor *tensor = move->tensor;
    move->element_bytes = kb_dtype_bytes(tensor->dtype);
    if (!tensor->on_host && move->box->rank > 1 && !move->pattern)
        return move_bands(move);
    if (!tensor->on_host)
        return each_part(tensor, move->box, !move->into, move_part, move);
    mem_box whole = mem_box_whole(&tensor->placement.shape);
    return mem_box_runs(&whole, move->box, host_run, move);
}

kb_error *rt_write_box(kb_context *ctx, rt_tensor *tensor, const mem_box *box, const void *data)
{
    if (!rt_has_contents(ctx, tensor))
        return NULL;
    KB_TRY(data_settle(ctx->store));
    box_move move = {.ctx = ctx, .tensor = tensor, .box = box, .from = data};
    return move_box(&move);
}

kb_error *rt_read_box(kb_context *ctx, const rt_tensor *tensor, const mem_box *box, void *data)
{
    if (!rt_has_contents(ctx, tensor)) {
        uint64_t bytes = mem_box_elements(box) * kb_dtype_bytes(tensor->dtype);
        if (bytes > 0) /* else there may be no array */
            memset(data, 0, bytes);
        return NULL;
    }
    KB_TRY(data_settle(ctx->store));
    box_move move = {.ctx = ctx, .tensor = tensor, .box = box, .into = data};
    return move_box(&move);
}

kb_error *rt_fill_box(kb_context *ctx, rt_tensor *tensor, const mem_box *box, double value)
{
    if (!rt_has_contents(ctx, tensor))
        return NULL;
    KB_TRY(data_settle(ctx->store));
    unsigned char pattern[8] = {0};
    mem_number_set(tensor->dtype, pattern, value);
    box_move move = {.ctx = ctx, .tensor = tensor, .box = box, .pattern = pattern};
    return move_box(&move);
}

/* ---- From device to device ---- */

typedef struct cell_copies {
    const rt_tensor *tensor;
    const uint32_t *shards;
    uint32_t sip; /* of who asks: copies on another SIP are as near as the same ones here */
} cell_copies;

static kb_pe pe_of_copy(const void *self, size_t index)
{
    const cell_copies *cell = self;
    const mem_shard *shard = shard_at(cell->tensor, cell->shards[index]);
    return (kb_pe){cell->sip, shard->cube, shard->pe};
}

/* As the MMUs choose. */
size_t rt_nearest_shard(const rt_tensor *from, const uint32_t *shards, kb_pe pe, uint32_t pes)
{
    cell_copies cell = {from, shards, pe.sip};
    const mem_copies copies = {pe_of_copy, &cell, from->grid.copies};
    return shards[mem_nearest_copy(&copies, pe, pes)];
}

/* `both` is what shard `from_shard` of one and shard `to_shard` of the other have in common. */
typedef kb_error *pair_fn(void *self, size_t from_shard, size_t to_shard, const mem_box *both);

/* Calls fn for every shard of `to` and those of `from` that it gets its elements from. */
static kb_error *each_pair(const rt_tensor *to, const rt_tensor *from, uint32_t pes, pair_fn *fn,
                           void *self)
{
    for (size_t i = 0; i < to->placement.shards.count; i++) {
        const mem_shard *target = shard_at(to, i);
        if (target->nbytes == 0)
            continue;
        kb_pe pe = {to->sip, target->cube, target->pe};
        mem_cells cells = mem_grid_find(&from->grid, &target->box);
        for (size_t row = cells.first_row; row < cells.end_row; row++) {
            for (size_t column = cells.first_column; column < cells.end_column; column++) {
                const uint32_t *shards = mem_grid_cell(&from->grid, row, column);
                size_t source = rt_nearest_shard(from, shards, pe, pes);
                mem_box both;
                if (mem_box_meet(&shard_at(from, source)->box, &target->box, &both))
                    KB_TRY(fn(self, source, i, &both));
            }
        }
    }
    return NULL;
}

typedef struct pair_move {
    kb_context *ctx;
    const rt_tensor *to, *from;
    size_t to_shard, from_shard; /* of the pair in hand */
} pair_move;

static kb_error *copy_run(void *self, uint64_t at_from, uint64_t at_to, uint64_t count)
{
    const pair_move *move = self;
    kb_location from = element_of(move->from, move->from_shard, at_from);
    kb_location to = element_of(move->to, move->to_shard, at_to);
    return mem_memories_copy(move->ctx->memories, &to, &from,
                             count * kb_dtype_bytes(move->to->dtype));
}

static kb_error *copy_pair(void *self, size_t from_shard, size_t to_shard, const mem_box *both)
{
    (void)both;
    pair_move *move = self;
    move->from_shard = from_shard;
    move->to_shard = to_shard;
    return mem_box_runs(&shard_at(move->from, from_shard)->box, &shard_at(move->to, to_shard)->box,
                        copy_run, move);
}

kb_error *rt_copy_contents(kb_context *ctx, rt_tensor *to, const rt_tensor *from)
{
    mem_box whole = mem_box_whole(&to->placement.shape);
    if (!rt_has_contents(ctx, to) || !rt_has_contents(ctx, from) || to == from || to->bytes == 0)
        return NULL;
    if (from->on_host)
        return rt_write_box(ctx, to, &whole, from->host);
    if (to->on_host)
        return rt_read_box(ctx, from, &whole, to->host);
    KB_TRY(data_settle(ctx->store));
    pair_move move = {.ctx = ctx, .to = to, .from = from};
    return each_pair(to, from, ctx->shape->pes, copy_pair, &move);
}

/* ---- Time ---- */

typedef struct box_time {
    const rt_tensor *tensor;
    rt_transfer_fn *fn;
    void *self;
} box_time;

static kb_error *transfer_part(void *self, size_t shard, const mem_box *both)
{
    const box_time *time = self;
    kb_location at = rt_shard_location(time->tensor, shard);
    uint64_t bytes = mem_box_elements(both) * kb_dtype_bytes(time->tensor->dtype);
    return time->fn(time->self, &at, bytes);
}

kb_error *rt_each_transfer(const rt_tensor *tensor, const mem_box *box, bool read,
                           rt_transfer_fn *fn, void *self)
{
    box_time time = {tensor, fn, self};
    return each_part(tensor, box, !read, transfer_part, &time);
}

typedef struct request_time {
    rt_request *request;
    bool read;
} request_time;

static kb_error *transfer_of_request(void *self, const kb_location *at, uint64_t bytes)
{
    const request_time *time = self;
    return rt_request_transfer(time->request, at, bytes, time->read);
}

kb_error *rt_time_box(const rt_tensor *tensor, const mem_box *box, bool read, rt_request *request)
{
    if (tensor->on_host)
        return NULL;
    request_time time = {request, read};
    return rt_each_transfer(tensor, box, read, transfer_of_request, &time);
}

typedef struct pair_time {
    size_t element_bytes;
    rt_sendings sendings;
} pair_time;

static kb_error *note_pair(void *self, size_t from_shard, size_t to_shard, const mem_box *both)
{
    pair_time *time = self;
    rt_sending fresh = {from_shard, to_shard, mem_box_elements(both) * time->element_bytes};
    return kb_vec_push(&time->sendings, fresh) ? NULL : kb_error_nomem();
}

/* Shards are in the order of (cube, pe), as a job wants its moves. */
static int by_sender(const void *a, const void *b)
{
    const rt_sending *x = a, *y = b;
    if (x->from_shard != y->from_shard)
        return x->from_shard < y->from_shard ? -1 : 1;
    return (x->to_shard > y->to_shard) - (x->to_shard < y->to_shard);
}

static kb_error *add_sendings(rt_job *job, const rt_tensor *to, const rt_tensor *from,
                              const rt_sendings *sendings)
{
    for (size_t i = 0; i < sendings->count; i++) {
        const rt_sending *s = &sendings->items[i];
        const mem_shard *source = shard_at(from, s->from_shard);
        pe_move move = {
            .from = rt_shard_location(from, s->from_shard),
            .to = rt_shard_location(to, s->to_shard),
            .bytes = s->bytes,
            .time_only = true,
        };
        KB_TRY(rt_job_add_move(job, source->cube, source->pe, &move));
    }
    return NULL;
}

kb_error *rt_make_sendings(kb_context *ctx, const rt_tensor *to, const rt_tensor *from,
                           rt_sendings *sendings, rt_job **out)
{
    rt_job *job;
    *out = NULL;
    if (sendings->count == 0)
        return NULL;
    KB_TRY(rt_job_create(ctx, RT_JOB_DMA, from->sip, "copy", &job));
    qsort(sendings->items, sendings->count, sizeof *sendings->items, by_sender);
    kb_error *err = add_sendings(job, to, from, sendings);
    if (err) {
        rt_job_destroy(job);
        return err;
    }
    *out = job;
    return NULL;
}

kb_error *rt_make_copy(kb_context *ctx, const rt_tensor *to, const rt_tensor *from, rt_job **job)
{
    pair_time time = {.element_bytes = kb_dtype_bytes(to->dtype)};
    *job = NULL;
    kb_error *err = each_pair(to, from, ctx->shape->pes, note_pair, &time);
    if (!err)
        err = rt_make_sendings(ctx, to, from, &time.sendings, job);
    kb_vec_fini(&time.sendings);
    return err;
}

kb_error *rt_time_copy(const rt_tensor *to, const rt_tensor *from, rt_request *request)
{
    rt_job *job;
    KB_TRY(rt_make_copy(request->ctx, to, from, &job));
    return job ? rt_job_submit(job, request) : NULL;
}

kb_error *rt_time_fill(const rt_tensor *tensor, rt_request *request)
{
    rt_job *job;
    KB_TRY(rt_job_create(request->ctx, RT_JOB_DMA, tensor->sip, "fill", &job));
    kb_error *err = NULL;
    for (size_t i = 0; i < tensor->placement.shards.count && !err; i++) {
        const mem_shard *shard = shard_at(tensor, i);
        if (shard->nbytes == 0)
            continue;
        pe_move move = {
            .to = rt_shard_location(tensor, i),
            .bytes = shard->nbytes,
            .fill = true,
            .time_only = true,
        };
        err = rt_job_add_move(job, shard->cube, shard->pe, &move);
    }
    if (err) {
        rt_job_destroy(job);
        return err;
    }
    return rt_job_submit(job, request);
}
